"""Keys of static values: what a program depends on, and what it does not."""

import array
import configparser
import contextvars
import dataclasses
import enum
import functools
import hashlib
import os
import sys
import tracemalloc
import types
from collections import deque
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pandas as pd
from numpyro import handlers
from numpyro.infer import TraceMeanField_ELBO
from numpyro.primitives import Messenger
from scipy.sparse import csr_matrix
from sklearn.preprocessing import StandardScaler

import dgp_ppl as dgp
from dgp_ppl import kernels
from dgp_ppl._partition import Call, Partition
from dgp_ppl._static_key import Keyed, static_key

SD = 0.1
RUNS = []


def own_model(x, y=None, *, z):
    """A function that reads a global."""
    return SD


class Noisy:
    """A model that is a method, and reads an attribute."""

    depth = 1

    def __init__(self, sd):
        self.sd = sd

    def model(self, x, y=None, *, z):
        return self.sd


class Called:
    """A model whose method reads a global."""

    def __call__(self, x, y=None, *, z):
        return SD


class Slots:
    __slots__ = "sd"

    def __init__(self):
        self.sd = 0.1


class Prior:
    """Values by members of a class, all of a global."""

    @property
    def sd(self):
        return SD

    @staticmethod
    def width():
        return SD

    @classmethod
    def scale(cls):
        return SD

    def model(self, x):
        return self.read()

    def read(self):
        return SD

    def run(self):
        RUNS.append(self.model)


class Listed(Prior):
    """An object that adds itself to what the model does not read."""

    def __init__(self):
        RUNS.append(self)


class Narrow(Prior):
    """A method of a base, a name that is made, and an object that does not let itself be read."""

    __slots__ = ("broken",)

    def read(self):
        return super().read() + 1

    def by_name(self):
        return getattr(self, "".join(["re", "ad"]))()

    def __getattr__(self, name):
        raise RuntimeError(name)


def variable(name):
    return os.environ[name]


def reads(prior):
    return prior.read()


class Kind(enum.Enum):
    A = 1

    @property
    def sd(self):
        return SD


class Outer:
    inner = type("Inner", (), {"sd": 0.1})


@dataclasses.dataclass(frozen=True)
class Frozen:
    table: dict
    values: np.ndarray


@dataclasses.dataclass
class Config:
    sd: float


class Tempered(Messenger):
    factor = 1.0

    def process_message(self, msg):
        msg["scale"] = SD * self.factor


class Pair(NamedTuple):
    a: float

    @property
    def sd(self):
        return SD * self.a


class Found:
    def __get__(self, of, cls=None):
        return SD


class Dispatched:
    found = Found()

    @functools.singledispatchmethod
    def read(self, x):
        return 1.0

    @read.register
    def _(self, x: int):
        return SD


class Private:
    __slots__ = ("__sd",)

    def change(self):
        self.__sd = SD


class Objective(TraceMeanField_ELBO):
    weight = 1.0


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


def test_what_methods_and_containers_hold(monkeypatch):
    prior, narrow, frozen = Prior(), Narrow(), Frozen({"sd": 0.1}, np.zeros(2))
    bytes_, table = array.array("d", [0.1]), {"sd": 0.1}
    view, holder = types.MappingProxyType(table), types.SimpleNamespace(f=lambda: SD)
    kernel, vector = kernels.SquaredExponential(1.0, np.ones(2)), np.vectorize(lambda x: x * SD)
    wrapped, keeper = jax.custom_jvp(lambda x: x * SD), Noisy(prior.model)
    monkeypatch.setitem(sys.modules, "own", package := types.ModuleType("own"))
    monkeypatch.setitem(sys.modules, "own.settings", settings := types.ModuleType("own.settings"))
    package.__path__, package.settings, settings.sd = [], settings, 0.1
    inside = {"__package__": "own", "__name__": "own.models", "known": settings}
    exec("def one():\n    from .settings import sd\n    return sd", inside)
    exec("def two():\n    from . import settings\n    return settings.sd", inside)
    exec("def three():\n    return getattr(known, 'sd')", inside)
    functions = (
        lambda: prior.sd, lambda: Prior.width(), lambda: prior.scale(), prior.model,
        lambda: Prior().read(), lambda: Kind.A.sd, lambda: Outer.inner.sd, lambda: frozen,
        lambda: Outer().inner.sd, lambda: bytes_[0], lambda: view["sd"], lambda: holder.f(),
        lambda: kernel, lambda: vector(1.0), lambda: wrapped(1.0), inside["one"], inside["two"],
        lambda: globals()["SD"], inside["three"], Frozen(table, np.ones(1)), keeper.model,
        narrow.model, lambda: reads(prior), lambda: narrow.by_name(), lambda: (narrow, SD),
    )  # fmt: skip
    before = [static_key(f) for f in functions]
    assert before == [static_key(f) for f in functions]
    monkeypatch.setitem(globals(), "SD", 0.2)
    monkeypatch.setattr(Outer.inner, "sd", 0.2)
    bytes_[0] = table["sd"] = frozen.table["sd"] = kernel.lengthscale[0] = settings.sd = 0.2
    after = [static_key(f) for f in functions]
    assert [a == b for a, b in zip(before, after, strict=True)] == [False] * 25
    listed = Listed()
    before = static_key(prior.model), static_key(listed.model)
    RUNS.append(Listed())
    assert (static_key(prior.model), static_key(listed.model)) == before
    monkeypatch.setattr(Prior, "read", lambda self: 3.0)
    assert static_key(prior.model) != before[0]


def test_what_subclasses_packages_and_optimisers_read(monkeypatch):
    pair, of, table, scaled = Pair(1.0), Dispatched(), {"sd": 0.1}, types.SimpleNamespace()
    context, get, loss = contextvars.ContextVar("sd", default=0.1), table.get, Objective()
    scaled.by, rate = StandardScaler().fit([[1.0]]), lambda step: SD
    config, private, weights = configparser.ConfigParser(), Private(), np.ones(3)
    config["a"], sparse = {"sd": "1"}, csr_matrix(np.eye(2))
    masked = np.ma.array([0.0, 1.0], mask=[False, False])
    values = (
        lambda: pair.sd, Tempered(own_model), lambda: of.read(1), lambda: of.found,
        lambda: get("sd"), lambda: context.get(), Noisy(get).model, Noisy(context).model,
        Noisy(config).model, lambda: private, Noisy(sparse).model, Noisy(weights.dot).model,
        Noisy(functools.partial(np.multiply, weights)).model, lambda: scaled.by.mean_,
        optax.adam(rate), optax.MultiSteps(optax.adam(rate), 2), masked,
        lambda: variable("SD"),
    )  # fmt: skip
    monkeypatch.setenv("SD", "1")
    before, same = [Keyed(f) for f in values], Keyed(loss)
    assert before == [Keyed(f) for f in values]
    monkeypatch.setitem(globals(), "SD", 0.2)
    monkeypatch.setenv("SD", "2")
    context.set(0.2)
    scaled.by.fit([[2.0]])
    table["sd"], masked[0], config["a"]["sd"], weights[0] = 0.2, np.ma.masked, "2", 2.0
    private.change()
    sparse.data[0] = 2.0
    after = [Keyed(f) for f in values]
    assert [i for i, (a, b) in enumerate(zip(before, after, strict=True)) if a == b] == []
    tempered = Keyed(Tempered(own_model))
    monkeypatch.setattr(Tempered, "factor", 2.0)
    assert Keyed(Tempered(own_model)) != tempered
    assert Keyed(Objective()) == same
    monkeypatch.setattr(Objective, "weight", 2.0)
    assert Keyed(loss) != same


def test_the_key_of_objects_that_hold_objects_without_end():
    root, last, itself = Noisy(0.1), None, {}
    itself["itself"] = itself
    root.itself = itself["a"] = root
    for _ in range(5000):
        last = Noisy([{"a": last}])
    exec("def of_no_module(): return 1", names := {})
    for model in (root.model, last.model, lambda: root, lambda: itself, names["of_no_module"]):
        assert static_key(model) == static_key(model)


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
        "an array of JAX": (closed_over(jnp.zeros(2)), closed_over(jnp.zeros(2))),
        "a dataclass": (closed_over(Config(0.1)), closed_over(Config(0.1))),
        "a schedule": tuple(optax.adam(optax.cosine_decay_schedule(0.1, 9)) for _ in range(2)),
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
        "another zero": (0.0, -0.0),
        "another array of JAX": (jnp.zeros(2), jnp.array([0.0, 1.0])),
        "another field": (Config(0.1), Config(0.2)),
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
