"""Values as JSON and arrays, and back."""

import functools
import json
import os

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
import pytest
from jax import random
from numpyro import handlers
from numpyro.infer import init_to_value
from numpyro.infer.autoguide import AutoDelta, AutoGuideList, AutoNormal
from numpyro.infer.reparam import LocScaleReparam
from support import keepable

import dgp_ppl as dgp
from dgp_ppl import kernels, likelihoods, means, models
from dgp_ppl.core import Grid
from dgp_ppl.inference.guides.diffusion._process import VariancePreserving
from dgp_ppl.persistence._archive import ArchiveReader, write_archive
from dgp_ppl.persistence._content import (
    Encoder,
    decode,
    import_name,
    import_path,
)  # fmt: skip
from dgp_ppl.persistence._trust import check_trust

Z = np.linspace(-1, 1, 3)[:, None]


@pytest.fixture
def there_and_back(tmp_path):
    """Return the value that a file returns, by way of JSON's text."""
    path = tmp_path / "fit.dgp"

    def convert(value, change=lambda node: node):
        encoder = Encoder()
        record = {"value": json.loads(json.dumps(encoder.encode(value, "value")))}
        write_archive(path, "fit", 1, change(record), encoder.members)
        archive = ArchiveReader(path)
        return decode(archive, archive.record["value"])

    return convert


def same(a, b):
    """Return whether values have the same types, and bit for bit the same content."""
    if isinstance(a, functools.partial):
        return same((a.func, a.args, a.keywords), (b.func, b.args, b.keywords))
    if hasattr(a, "dtype") and jnp.issubdtype(a.dtype, jax.dtypes.prng_key):
        return random.key_impl(a) == random.key_impl(b) and same(*map(random.key_data, (a, b)))
    if isinstance(a, jax.Array | np.ndarray | np.generic):
        alike = isinstance(b, jax.Array) if isinstance(a, jax.Array) else type(a) is type(b)
        bits = [np.asarray(v).tobytes() for v in (a, b)]
        return alike and (a.dtype, a.shape, bits[0]) == (b.dtype, b.shape, bits[1])
    if type(a) is not type(b):
        return False
    if isinstance(a, tuple | list):
        return len(a) == len(b) and all(map(same, a, b))
    if isinstance(a, dict):
        return list(a) == list(b) and all(same(a[n], b[n]) for n in a)
    if dataclasses_like := getattr(a, "__dict__", None):
        return (callable(a) and a == b) or same(dataclasses_like, vars(b))
    return a == b or (a != a and b != b)


VALUES = {
    "plain": [None, True, 1, 10**30, -0.0, 0.1, 1e-310, "ü\n", [], ()],
    "not_finite": (float("inf"), -float("inf"), float("nan")),
    "dict": {"a": 1, 2: "b", (1, 2): {"c": [3]}, None: ()},
    "named_tuple": keepable.Corner(0.5, [np.float32(0.1)]),
    "arrays": [Z, jnp.asarray(Z), np.arange(3), np.array(["a", "bc"]), np.array(True), Z.T[:, ::2]],
    "empty_array": np.zeros((0, 3)),
    "bfloat16": [jnp.ones(2, jnp.bfloat16), np.ones(2, jnp.bfloat16)],
    "scalars": (np.float32(0.1), np.int64(3), np.bool_(True)),
    "keys": [random.key(3), random.PRNGKey(3), random.split(random.key(1), 2)],
    "learned": kernels.Matern52.learned,
    "partial": functools.partial(kernels.Matern52.learned, out=2, variance=Z),
    "tree_partial": jax.tree_util.Partial(keepable.student, Z),
    "kernel": kernels.SquaredExponential(1.5, jnp.array([0.5, 2.0])) + kernels.Linear(1.0, 2.0),
    "mean": [means.identity, means.linear(np.eye(2)), means.pca(jnp.asarray(Z), 1)],
    "likelihoods": (likelihoods.bernoulli_probit, likelihoods.robust_max, keepable.student),
    "dataclass": keepable.Setting("a", Z),
    "scaler": dgp.Standardizer.fit(Z, Z[:, 0]),
    "grid": Grid(Z, np.array([0.0, 1.0])),
    "schedule": VariancePreserving(low=3.0),
    "network": eqx.nn.MLP(2, 1, 4, 2, jax.nn.gelu, key=random.key(0)),
    "distribution": dist.LogNormal(jnp.zeros(2), 1.0).to_event(1),
    "reparam": {"a": LocScaleReparam(0.5)},
    "interval": dist.constraints.interval(0.0, 2.0),
    "enum": keepable.Colour.RED,
}


def test_values_come_back(there_and_back):
    """The distribution, whose support is made when needed, has a test of its own."""
    wrong = [n for n, value in VALUES.items() if not same(value, there_and_back(value))]
    assert set(wrong) <= {"distribution"}
    encoder = Encoder()
    encoder.encode({"z": (Z, Z), "again": Z}, "value")
    assert len(encoder.members) == 1  # an array is stored once


def test_a_distribution_is_the_same(there_and_back):
    found, y = there_and_back(VALUES["distribution"]), jnp.array([0.3, 1.0])
    assert found.log_prob(y) == VALUES["distribution"].log_prob(y)
    assert found.base_dist.support is VALUES["distribution"].base_dist.support


MODELS = {
    "lift": handlers.lift(keepable.plain, {"noise": dist.LogNormal(-1, 1)}),
    "freeze": dgp.freeze(models.svgp, {"noise": jnp.array(0.1)}),
    "reparam": handlers.reparam(keepable.plain, {"a": LocScaleReparam(0)}),
    "partial": functools.partial(keepable.plain, noise=0.5),
}


def test_models_under_handlers_come_back(there_and_back):
    for name, model in MODELS.items():
        found = there_and_back(model)
        traces = [handlers.trace(handlers.seed(m, 0)).get_trace(Z, z=Z) for m in (model, found)]
        assert traces[0].keys() == traces[1].keys(), name
        assert all(same(traces[0][n]["value"], traces[1][n]["value"]) for n in traces[0]), name
        assert getattr(found, "__module__", None) == getattr(model, "__module__", None), name


GUIDES = {
    "mean_field": dgp.MeanField(models.svgp, hidden_scale=0.1),
    "changed": dgp.MeanField(models.deep_gp).replace(hidden_scale=0.2).with_model(models.svgp),
    "decoupled": dgp.Decoupled(models.svgp, {"l1": Z}, mean="cb"),
    "nested": dgp.Diffusion(models.svgp, steps=2, base=dgp.GlobalInducing(models.svgp, Z)),
    "own": keepable.Shifted(models.svgp, shift=1.0, hidden_scale=0.2),
    "rest": dgp.MeanField(models.svgp, rest=functools.partial(AutoNormal, init_scale=0.2)),
}


def test_guides_come_back(there_and_back):
    found = there_and_back(AutoNormal(keepable.plain, init_scale=0.3, prefix="q"))
    assert (type(found), found.prefix, found._init_scale) == (AutoNormal, "q", 0.3)
    located = AutoDelta(keepable.plain, init_loc_fn=functools.partial(init_to_value, values={}))
    assert isinstance(there_and_back(located).init_loc_fn, functools.partial)
    for name, guide in GUIDES.items():
        found = there_and_back(guide)
        assert type(found) is type(guide), name
        assert found.model is guide.model, name
        assert same(guide.arrays, found.arrays), name
        assert guide == found, name


def _local():
    def model(x):
        return x

    return model


def test_what_a_file_cannot_hold_is_named():
    for value, message in (
        ({"likelihood": lambda f: f}, r"save: value\['likelihood'\] is a lambda; .*my_models.py"),
        ([_local()], r"value\[0\] is model, which is defined inside a function"),
        (functools.partial(keepable.plain, scale=lambda: 1), r"value.keywords\['scale'\] is a"),
        (keepable.Setting("a", {keepable.Plain()}), r"value.scales is an object of the class set"),
        (keepable.Plain(), r"value is an object of the class Plain"),
        (keepable.Plain().method, r"value is not what .*Plain.method is now"),
        (handlers.lift(_local(), {}), r"value.fn is model, which is defined inside a function"),
        (dgp.MeanField(lambda x: x), r"value.model is a lambda"),
        (np.array([{}]), r"value is an array of Python objects, wanted numbers"),
        (np.ma.masked_less(np.arange(3.0), 1), r"value is an array with a mask, wanted numbers"),
        (type("Local", (), {}), r"value is Local, which cannot be imported"),
        ([os.getcwd], r"value\[0\] is getcwd of Python's own posix, which no file may name"),
    ):
        with pytest.raises(TypeError, match=message):
            Encoder().encode(value, "value")
    for value in (functools.partial(keepable.plain, scale=_local), AutoGuideList(keepable.plain)):
        Encoder().encode(value, "value")


def replaced(old, new):
    return lambda record: json.loads(json.dumps(record).replace(old, new))


def test_what_has_changed_since_is_named(there_and_back):
    setting, guide = keepable.Setting("a", 1), GUIDES["mean_field"]
    for value, old, new, message in (
        (keepable.student, "support.keepable", "no_such", r"needs student of the module no_such"),
        (keepable.student, "student", "gone", r"needs gone of the module support.keepable"),
        (setting, "scales", "other", r"keepable.Setting: it has no other"),
        (setting, "Setting", "Plain", r"wanted a guide, a dataclass"),
        (guide, "hidden_scale", "width", r"MeanField: it has no width"),
        (guide, "dgp_ppl:MeanField", "dgp_ppl:fit", r"wanted a guide"),
    ):
        with pytest.raises(dgp.DataError, match=message):
            there_and_back(value, replaced(old, new))


def test_a_field_that_is_new_gets_its_default(there_and_back):
    value = keepable.Setting("a", 1, 9)
    assert there_and_back(value, replaced('["added_later", 9]', '["name", "a"]')).added_later == 7


def test_float64_of_jax_needs_float64(there_and_back, tmp_path):
    with jax.enable_x64(True):
        wide = jnp.ones(2)
        assert same(there_and_back(wide), wide)
    with pytest.raises(dgp.DataError, match=r"float64, and .* 32-bit.*jax_enable_x64"):
        there_and_back(wide)
    assert there_and_back(np.ones(2)).dtype == np.float64  # NumPy's arrays keep their dtype


def test_values_of_the_libraries_are_trusted_and_others_named():
    for values in (VALUES, MODELS, GUIDES):
        for value in values.values():
            content = Encoder().encode(value, "value")
            check_trust("a.dgp", content, ["support.keepable", "mine"])
            if "support." in json.dumps(content):
                with pytest.raises(dgp.DataError, match=r"load\('a.dgp', trusted=\['support'\]\)"):
                    check_trust("a.dgp", content, ["keepable"])
            else:
                check_trust("a.dgp", content, ())


def test_names_that_run_code_are_refused_before_an_import(there_and_back):
    """Of Python in any case, also by way of another module; what touches files if not trusted."""
    for path, said in (
        ("os:system", "belongs to no fit"), ("builtins:eval", "belongs to no fit"),
        ("functools:partial", "belongs to no fit"), ("dgp_ppl.cli.__main__:run", "to no fit"),
        ("dgp_ppl.models:svgp.__globals__", "belongs to no fit"), ("numpy:load", "code of numpy,"),
        ("numpy.testing:runstring", r"trusted=\['numpy.testing'\]"),
        ("jax:pure_callback", "code of jax,"),
        ("equinox:default_serialise_filter_spec", "code of equinox,"),
        ("dgp_ppl.inference.runs._checkpoint:replacing", "code of dgp_ppl.inference.runs"),
        *((path, f"code of {path.partition(':')[0]},") for path in (
            "dgp_ppl.inference.svi._fit:RunFolder._lock", "dgp_ppl.inference.svi._fit:folder_of",
            "dgp_ppl.inference.svi._mesh:SharedFolder.write", "dgp_ppl:MeanField._rows",
            "dgp_ppl.inference.runs._loop:run", "numpy:memmap.flush", "numpy:seterr",
            "numpyro:set_platform", "numpyro:enable_x64", "numpyro.infer.inspect:render",
            "numpyro.distributions:enable_validation", "jax:live_arrays",
            "equinox:filter_eval_shape", "dgp_ppl:Rows.from_parquet",
        )),
        ("dgp_ppl:save", "code of dgp_ppl,"), ("jax.experimental:no", "of jax.experimental,"),
        ("dgp_ppl.persistence._content:import_name", "dgp_ppl.persistence._content"),
        ("no_such.place:model", r"code of no_such, .* or --trusted no_such"),
    ):  # fmt: skip
        node = {"kind": "object", "path": "numpy:tanh", "class": path}
        inside = {"kind": "partial", "tree": False, "function": node, "args": [], "keywords": []}
        with pytest.raises(dgp.DataError, match=said):
            check_trust("a.dgp", [{"kind": "dict", "items": [["a", inside]]}], ["os", "builtins"])
    for path in (
        "os:system", "dgp_ppl._files:os.system", "dgp_ppl._files:os", "support.keepable:sys.exit",
        "support.keepable:Path", "dgp_ppl.inference:fit.x",
    ):  # fmt: skip
        with pytest.raises(dgp.DataError, match=r"which cannot be imported"):
            there_and_back(keepable.student, replaced("support.keepable:student", path))
    with pytest.raises(dgp.DataError, match="it has no __class__"):
        there_and_back(dist.Normal(0, 1), replaced('"loc"', '"__class__"'))


def test_import_paths_lead_back():
    """Public paths come before private ones."""
    for value, path in (
        (dgp.MeanField, "dgp_ppl:MeanField"),
        (dgp.models.deep_gp, "dgp_ppl.models:deep_gp"),
        (dist.constraints.positive, "numpyro.distributions.constraints:positive"),
        (jnp.tanh, "jax.numpy:tanh"),
        (keepable.counts, "support.keepable:counts"),
        (keepable.Plain.method, "support.keepable:Plain.method"),
        (keepable.Colour.RED, "support.keepable:Colour.RED"),
    ):
        assert import_path(value) == path
        assert import_name(path) is value
    learned = import_path(kernels.Matern52.learned)
    assert learned == "dgp_ppl.kernels:Matern52.learned"
    assert import_name(learned) == kernels.Matern52.learned


def test_what_has_no_import_path(monkeypatch, tmp_path):
    old = keepable.student
    monkeypatch.delattr(keepable, "student")
    with pytest.raises(ValueError, match=r"student, which cannot be imported from support"):
        import_path(old)
    monkeypatch.setattr(keepable.plain, "__module__", "__main__")
    with pytest.raises(ValueError, match=r"plain of __main__, the program that runs now"):
        import_path(keepable.plain)
    (tmp_path / "broken_models.py").write_text("1 / 0\n")
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(ImportError, match=r"broken_models: ZeroDivisionError: division by zero"):
        import_name("broken_models:model")
