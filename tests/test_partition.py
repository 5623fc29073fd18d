"""What makes programs equal, and so compiled once: models, guides, objectives, static values."""

import functools
import sys
import threading
import time
import types
from concurrent.futures import ThreadPoolExecutor

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import optax
import pytest
from numpyro import handlers
from numpyro.infer.autoguide import AutoMultivariateNormal, AutoNormal
from support.helpers import KEY, compiled as compiled_programs, regression

import dgp_ppl as dgp
from dgp_ppl import kernels
from dgp_ppl._partition import TRACING, Call, Partition, compiled
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
