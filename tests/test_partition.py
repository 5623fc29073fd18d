"""What makes programs equal, and so compiled once: models, guides, objectives, static values."""

import functools
import hashlib
import sys
import threading
import time
import tracemalloc
import types
from collections import deque
from concurrent.futures import ThreadPoolExecutor

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import optax
import pandas as pd
import pytest
from numpyro import handlers
from numpyro.infer.autoguide import AutoMultivariateNormal, AutoNormal
from support.helpers import KEY, compiled as compiled_programs, regression

import dgp_ppl as dgp
from dgp_ppl import kernels
from dgp_ppl._partition import TRACING, Call, Partition, compiled
from dgp_ppl._static_key import static_key
from dgp_ppl.inference.svi._setup import Problem
from dgp_ppl.models import svgp

Z = np.linspace(-2, 2, 5)[:, None]
X, Y = (np.asarray(a) for a in regression(rows=24))


class Shifted(dgp.MeanField):
    """A guide with one more argument, which it does not list anywhere."""

    def __init__(self, model, *, shift=0.0, **options):
        super().__init__(model, **options)
        self.shift = shift


def test_programs_are_shared_by_equal_guides_outside_of_handlers():
    """Attributes of subclasses count, also if they are set later."""
    zero, one, same = (Shifted(svgp, shift=s) for s in (0.0, 1.0, 1.0))
    program = lambda guide: Partition.split(svgp, Call((X, Y)), guide)[0]  # noqa: E731
    before = program(zero)
    assert before != program(one) == program(same)
    assert hash(program(one)) == hash(program(same))
    assert dgp.MeanField(svgp) != zero
    zero.shift = 1.0
    assert program(zero) == program(one)
    assert hash(before) != hash(program(zero))
    with handlers.scale(scale=10.0):
        assert program(one) != program(one)
    loss = dgp.PredictiveELBO()
    loss.beta = 10.0
    assert (loss == dgp.PredictiveELBO(beta=10.0), loss == dgp.PredictiveELBO()) == (True, False)


def test_guides_compare_the_guides_of_other_sites():
    """Programs are shared by it: a guide of other supports must not run as an earlier one."""
    high = 1.0

    def model(x, y=None):
        w = numpyro.sample("w", dist.Uniform(0.0, high))
        svgp(x, y, z=Z, noise=0.1 + w)

    one, same, joint, other = (
        dgp.MeanField(model, rest=rest)
        for rest in (AutoNormal, AutoNormal, AutoMultivariateNormal, AutoNormal)
    )
    for guide in (one, same, joint, other):
        high = 3.0 if guide is other else 1.0
        guide.setup(X, Y)
    assert one.other_sites == same.other_sites
    assert joint.other_sites != one.other_sites != other.other_sites


def test_a_guide_without_the_base_classs_constructor():
    class Bare(dgp.MeanField):
        def __init__(self, model):
            self.model = model

    with pytest.raises(TypeError, match=r"Bare: its __init__ does not call super\(\).__init__"):
        Bare(svgp).setup(X, Y, z=Z)


class Weighted(dgp.PredictiveELBO):
    def __init__(self, weight, **options):
        super().__init__(**options)
        self.weight = weight


def test_objectives_compare_by_their_arguments():
    for one, same, other in (
        (Weighted(1.0), Weighted(weight=1.0), Weighted(2.0)),
        (dgp.ImportanceWeighted(2), dgp.ImportanceWeighted(2, "local"), dgp.ImportanceWeighted(3)),
        (dgp.DiffusionELBO(2), dgp.DiffusionELBO(num_paths=2), dgp.DiffusionELBO(3)),
        (dgp.AdversarialELBO(), dgp.AdversarialELBO(), dgp.AdversarialELBO(certified=True)),
        (Weighted(1), Weighted(1), Weighted(True)),
        (dgp.MeanField(svgp), dgp.MeanField(svgp), dgp.MeanField(svgp, hidden_scale=0.1)),
    ):
        assert one == same != other
        assert hash(one) == hash(same)


def own_model(x, y=None, *, z):
    """A model as a user writes it, in a file of their own."""
    f = dgp.gp("l1", kernels.Matern52.learned("l1", 1), z)
    with dgp.minibatch(x, y) as (xb, yb):
        numpyro.sample("y", dgp.observe(f(xb), lambda f: dist.Normal(f, SD)), obs=yb)


SD = 0.1


class Own(dist.Normal):
    """A user's distribution, whose densities are tried at the data before a fit."""


def made_again(sd):
    """Return a model that is a new function at each call."""

    def model(x, y=None, *, z):
        scale = numpyro.sample("scale", dist.LogNormal(0.0, 0.1))
        f = dgp.gp("l1", kernels.SquaredExponential(1.0, scale), z)
        with dgp.minibatch(x, y) as (xb, yb):
            numpyro.sample("y", dgp.observe(f(xb), lambda f: Own(f, sd)), obs=yb)

    return model


def test_a_users_model_compiles_once(caplog):
    """Later fits, evaluations, predictions and conversions of equal models compile nothing."""

    def run():
        model = made_again(0.1)
        guide = dgp.MeanField(model)
        options = {"z": Z, "steps": 10, "progress": False}
        dgp.fit(KEY, model, guide, X, Y, optimizer=optax.adam(0.01), **options)
        result = dgp.fit(KEY, model, guide, X, Y, start={}, **options)
        dgp.evaluate(KEY, model, guide, result, X, Y, z=Z)
        dgp.predict(KEY, model, guide, result, X, z=Z, num_samples=3).mean  # noqa: B018
        options = {"num_samples": 3, "num_prior_samples": 3, "z": Z}
        dgp.to_inferencedata(KEY, model, guide, result, X, Y, **options)

    assert len(compiled_programs(caplog, run)) > 3
    assert compiled_programs(caplog, run) == []


def test_setting_up_a_fit_runs_its_model_once():
    """The checks of the data and of starts, and a guide and its base, use one run on shapes.

    Five more, or seven with a guide of rows, tell which arguments have rows and whether a row's
    values are its own, once for a model.
    """
    calls = []

    def model(x, y=None, *, z):
        calls.append(x)
        own_model(x, y, z=z)

    def set_up(make):
        calls.clear()
        options = {"steps": 1, "learning_rate": 0.1, "optimizer": None, "loss": None}
        call = Call((X, Y), {"z": Z})
        Problem.set_up("fit", KEY, model, make(model), call, start={"l1.z": Z}, **options)
        return len(calls)

    guides = (dgp.MeanField, dgp.Flow, dgp.Diffusion, dgp.Implicit, lambda m: dgp.Decoupled(m, Z))
    assert [set_up(make) for make in guides] == [6, 6, 6, 6, 8]
    # It also asks what its layers are made of, and where they are evaluated at its own rows.
    assert set_up(lambda m: dgp.GlobalInducing(m, Z)) == 12


def test_the_model_that_is_traced_is_the_model_as_it_is_now():
    """Of equal models the first one's program is used, unless its closure has changed since."""

    def made(sd):
        def model(x, y=None):
            f = dgp.gp("l1", kernels.SquaredExponential(1.0, 1.0), Z)
            with dgp.minibatch(x, y) as (x, y):
                numpyro.sample("y", dgp.observe(f(x), lambda f: dist.Normal(f, sd)), obs=y)

        def change(new):
            nonlocal sd
            sd = new

        return model, change

    def first(model, rows):
        options = {"steps": 1, "progress": False}
        return dgp.fit(KEY, model, dgp.MeanField(model), X[:rows], Y[:rows], **options).losses[0]

    old, change = made(0.5)
    first(old, 8)
    change(3.0)
    assert first(made(0.5)[0], 9) != first(old, 9)
    assert first(made(0.5)[0], 9) == first(made(0.5)[0], 9)


def test_a_stock_guide_compiles_once(caplog):
    def plain(x, y=None):
        w = numpyro.sample("w", dist.Normal(0, 1))
        numpyro.sample("y", dist.Normal(w * x[:, 0], SD).to_event(1), obs=y)

    guide = AutoNormal(plain)
    run = lambda: dgp.fit(KEY, plain, guide, X, Y, steps=10, progress=False)  # noqa: E731
    assert compiled_programs(caplog, run)
    assert compiled_programs(caplog, run) == []


class Noisy:
    """A model that is a method, and reads an attribute."""

    depth = 1

    def __init__(self, sd):
        self.sd = sd

    def model(self, x, y=None, *, z):
        made_again(self.sd)(x, y, z=z)


class Called:
    """A model whose method reads a global."""

    def __call__(self, x, y=None, *, z):
        made_again(SD)(x, y, z=z)


class Slots:
    __slots__ = "sd"

    def __init__(self):
        self.sd = 0.1


def test_globals_and_attributes_that_change(monkeypatch):
    settings, helpers = types.ModuleType("settings"), types.ModuleType("helpers")
    settings.sd = 0.1
    exec("sd = 0.1\ndef read():\n    return sd", helpers.__dict__)
    read, deep = helpers.read, Noisy([Noisy(0.1)])
    deep.itself, inner = deep, types.SimpleNamespace(of=types.SimpleNamespace(sd=0.1))
    monkeypatch.setitem(sys.modules, "imported", imported := types.ModuleType("imported"))
    imported.sd = settings.width = 0.1

    def importing():
        from imported import sd  # pyright: ignore[reportMissingImports]

        return sd

    width = lambda: settings.width  # noqa: E731
    both = lambda: settings.sd * width()  # noqa: E731
    noisy, of_settings = Noisy(0.1), lambda: settings.sd
    weights, of_a_class = np.ones(2), lambda: Noisy.depth
    names, last, table, sds = {"a"}, deque([1]), pd.DataFrame({"a": [1.0]}), [0.1]
    functions = (
        of_settings, own_model, noisy.model, lambda: weights, of_a_class, Noisy(1).model, Called(),
        slots := Slots(), lambda: names, lambda: last, lambda: table, Noisy(sds).model,
        lambda: read(), deep.model, lambda: inner, importing,
    )  # fmt: skip
    before = [static_key(f) for f in functions]
    monkeypatch.setitem(globals(), "SD", 0.2)
    monkeypatch.setattr(Noisy, "depth", 2)
    noisy.sd = settings.sd = weights[0] = slots.sd = table.loc[0, "a"] = last[0] = sds[0] = 0.2
    helpers.sd = deep.sd[0].sd = inner.of.sd = imported.sd = 0.2
    names.add("b")
    after = [static_key(f) for f in functions]
    assert [a == b for a, b in zip(before, after, strict=True)] == [False] * 16
    assert after == [static_key(f) for f in functions]
    before, settings.width = static_key(both), 0.2
    assert static_key(both) != before


def test_the_key_of_objects_that_hold_objects_without_end():
    root, last, itself = Noisy(0.1), None, {}
    itself["itself"] = itself
    root.itself = itself["a"] = root
    for _ in range(5000):
        last = Noisy([{"a": last}])
    exec("def of_no_module(): return 1", names := {})
    for model in (root.model, last.model, lambda: root, lambda: itself, names["of_no_module"]):
        assert static_key(model) == static_key(model)


@pytest.mark.slow
def test_a_change_in_a_package_is_seen_once_jax_forgets_its_programs(monkeypatch):
    monkeypatch.setitem(sys.modules, "package", types.SimpleNamespace(__file__="site-packages/a"))
    package = types.ModuleType("package")
    package.sd = 0.1

    def model(x, y=None):
        made_again(package.sd)(x, y, z=Z)

    def run():
        options = {"steps": 1, "progress": False}
        return dgp.fit(KEY, model, dgp.MeanField(model), X, Y, **options).losses[0]

    before, package.sd = run(), 0.2
    assert run() == before
    jax.clear_caches()
    assert run() != before


def test_values_that_are_equal_and_values_that_are_not():
    """Functions are equal by code, closure, defaults and globals; arrays by value."""
    array, equal, changed = np.zeros(2), np.zeros(2), np.zeros(2, np.float32)
    new = lambda f: types.FunctionType(  # noqa: E731
        f.__code__, f.__globals__, f.__name__, f.__defaults__, f.__closure__
    )

    def closed_over(value):
        return lambda: value

    def with_default(value):
        return lambda a=value: a

    def recursive():
        def itself(n):
            return itself(n - 1)

        return itself

    same = {
        "a function": (own_model, new(own_model)),
        "a closure": (closed_over(1.0), closed_over(1.0)),
        "a default": (with_default((1, "a")), with_default((1, "a"))),
        "an array in a closure": (closed_over(array), closed_over(equal)),
        "a recursive function": (recursive(), recursive()),
        "partial": (functools.partial(own_model, z=1), functools.partial(new(own_model), z=1)),
        "a handler": (handlers.lift(own_model), handlers.lift(new(own_model))),
    }

    class Settings(dict):
        def __init__(self, sd):
            self.sd = sd

    def with_attribute(sd):
        def itself():
            return itself.sd

        itself.sd = sd
        return itself

    other = {
        "another type": (1, True),
        "another attribute of a dict": (Settings(1), Settings(2)),
        "another attribute of a function": (with_attribute(1), with_attribute(2)),
        "another entry of objects": (
            np.array(["a", 300.5], object),
            np.array(["a", 301.5], object),
        ),
        "another closure": (closed_over(1.0), closed_over(2.0)),
        "another default": (with_default(1), with_default(2)),
        "another array": (closed_over(array), closed_over(changed)),
        "other code": (lambda: 1, lambda: 2),
        "another argument": (functools.partial(own_model, z=1), functools.partial(own_model, z=2)),
    }
    key = static_key
    assert [
        n for n, (a, b) in same.items() if (key(a), hash(key(a))) != (key(b), hash(key(b)))
    ] == []
    assert [n for n, (a, b) in other.items() if key(a) == key(b)] == []


def test_arrays_in_a_key_are_hashed_once_and_not_copied(monkeypatch):
    array, hashed = np.zeros((1000, 1000)), []
    tracemalloc.start()
    static_key(array)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < array.nbytes / 10
    for other in (array.T, np.array(["a", None], object), np.zeros(0), np.datetime64("2024", "D")):
        assert static_key(np.asarray(other)) == static_key(np.array(other, order="C"))
    one = hashlib.sha256
    monkeypatch.setattr(hashlib, "sha256", lambda raw: hashed.append(len(raw)) or one(raw))
    model = lambda: array  # noqa: E731
    first, again, changed = (
        Partition.split(model, Call((value,)), dgp.MeanField(model))[0]
        for value in map(array.__setitem__, (0, 0, 0), (0.0, 0.0, 1.0))
    )
    assert hashed == [array.nbytes] * 3
    assert first == again != changed


def test_the_key_of_helpers_that_call_helpers_takes_linear_time():
    """Each of 60 functions names the next two: 2^40 paths lead to the last one."""

    def chain(last):
        names = {"__name__": "helpers"}
        code = [f"def f{i}(): return f{i + 1}() + f{i + 2}()" for i in range(60)]
        exec("\n".join([*code, f"def f60(): return {last}", "def f61(): return 1"]), names)
        return names["f0"]

    assert static_key(chain(1)) == static_key(chain(1)) != static_key(chain(2))


def in_threads(*calls):
    """Return what the calls return, each in a thread."""
    with ThreadPoolExecutor(len(calls)) as pool:
        return [future.result(60) for future in [pool.submit(call) for call in calls]]


def test_threads_run_a_model_in_turn_and_its_programs_side_by_side():
    """NumPyro has one stack of handlers: two threads in a model would mix their sites."""
    seen = types.SimpleNamespace(now=types.SimpleNamespace(inside=[], most=0))  # deep: no key

    def model(x, y=None):
        now = seen.now
        now.inside.append(threading.get_ident())  # a model may run within itself
        now.most = max(now.most, len(set(now.inside)))
        time.sleep(0.002)  # another thread would enter here
        try:
            svgp(x, y, z=Z)
        finally:
            now.inside.pop()

    guide = dgp.MeanField(model)
    fit = lambda rows: dgp.fit(KEY, model, guide, X[:rows], Y[:rows], steps=2, progress=False)  # noqa: E731
    at = lambda rows: dgp.predict(KEY, model, guide, first, X[:rows], num_samples=2)  # noqa: E731
    first = fit(6)
    calls = [functools.partial(fit, 6 + i) for i in (0, 0, 1)]
    calls += [lambda rows=rows: at(rows).mean for rows in (3, 3, 4)]
    *fits, wide, same, other = in_threads(*calls)
    assert (seen.now.most, seen.now.inside) == (1, [])
    for result in fits[:2]:
        np.testing.assert_array_equal(result.losses, first.losses)
    assert fits[2].num_data == 7
    np.testing.assert_array_equal(wide, same)
    np.testing.assert_allclose(other[:3], wide, rtol=1e-4)
    prediction = at(3)
    with TRACING:  # another thread may trace for long
        (again,) = in_threads(lambda: prediction.mean)
    np.testing.assert_array_equal(again, wide)


def test_a_thread_that_holds_the_lock_waits_for_no_trace_that_needs_it():
    """JAX lets a thread wait until another has traced the same program."""
    program = compiled(lambda x: 2 * x)
    begins = threading.Event()

    def holds():
        with TRACING:
            begins.set()
            time.sleep(0.2)  # the other thread begins to trace, and waits for the lock
            return program(jnp.ones(3))

    def waits():
        begins.wait()
        return program(jnp.ones(3))

    np.testing.assert_array_equal(in_threads(holds, waits), 2.0)


def test_derivatives_by_what_a_closure_holds():
    """Such a program is within another one, although its arguments are not traced."""
    slope = jax.grad(lambda a: compiled(lambda: jnp.sin(a))().sum())
    np.testing.assert_allclose(slope(0.5), np.cos(0.5), rtol=1e-6)
    with jax.transfer_guard("disallow"):
        compiled(jnp.sin)(jax.device_put(np.float32(0.5)))


def test_a_program_keeps_its_own_options_of_the_compiler():
    quickly = compiled(jnp.sin, compiler_options={"xla_backend_optimization_level": 0})
    np.testing.assert_allclose(quickly(0.5), np.sin(0.5), rtol=1e-6)


def test_arrays_of_a_call_share_no_memory_with_the_callers():
    """JAX would share memory that is aligned."""
    memory = np.zeros(4096 + 64, np.uint8)
    x = memory[-memory.ctypes.data % 64 :][:4096].view(np.float32)
    _, arrays = Partition.split(svgp, Call((x,)))
    x[:] = 1
    np.testing.assert_array_equal(arrays.args[0], 0)
