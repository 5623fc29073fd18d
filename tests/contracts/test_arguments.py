"""Arguments of public functions: bad ones are named, and none captures an argument of a model."""

import importlib
import inspect
import pkgutil
import warnings
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pandas as pd
import pytest
from numpyro.infer import NUTS
from scipy.sparse import csr_matrix
from support.fits import SHALLOW, X, Y, Z, shallow
from support.helpers import KEY

import dgp_ppl as dgp
from dgp_ppl import datasets, initialize, kernels, means, models
from dgp_ppl.inference import default_optimizer, minimize
from dgp_ppl.inference.programs._data import check_data
from dgp_ppl.likelihoods import RightCensored
from dgp_ppl.models import svgp
from dgp_ppl.prediction import layer_functions


def test_inputs_that_are_not_finite():
    """Rows are named; nothing is computed."""
    x = np.array(X)
    x[3], x[7] = np.nan, np.inf
    fit, place = shallow(4), r"x is NaN or infinite in 2 of 20 rows \[3, 7\]; fill in"
    with pytest.raises(dgp.DataError, match=f"^predict: {place}"):
        dgp.predict(KEY, svgp, SHALLOW, fit, x, z=Z)
    with pytest.raises(dgp.DataError, match=r"^Standardizer.fit: column 0 of x: nan in row 3"):
        dgp.Standardizer.fit(x, Y)
    with pytest.raises(dgp.DataError, match=f"^initialize.deep_gp: {place}"):
        initialize.deep_gp(KEY, x, num_inducing=3, depth=2)
    with pytest.raises(dgp.DataError, match=r"^evaluate: argument 'x' is NaN.*rows \[3, 7\]: fill"):
        dgp.evaluate(KEY, svgp, SHALLOW, fit, x, Y, z=Z)
    with pytest.raises(dgp.NonFiniteLossError, match=r"argument 'x' is NaN or inf.*\]: fill in"):
        shallow_of(x)


def shallow_of(x, y: Any = Y, guide: Any = SHALLOW):
    return dgp.fit(KEY, svgp, guide, x, y, z=Z, steps=4, progress=False)


def test_inputs_that_are_no_numbers():
    text = np.array([["a", "b"]] * 20)
    with pytest.raises(TypeError, match="predict: x holds values of type <U1, wanted numbers; dgp"):
        dgp.predict(KEY, svgp, SHALLOW, shallow(4), text, z=Z)
    with pytest.raises(TypeError, match=r"argument 'x' holds objects .*str.*wanted numbers"):
        shallow_of(text.astype(object))
    with pytest.raises(TypeError, match=r"fit: guide is None, wanted a guide, such as dgp_ppl.Mea"):
        shallow_of(X, guide=None)


class Frame:
    """A data frame, of which the library knows the names of columns alone."""

    columns = ("b", "a")

    def __array__(self, *_, **__):
        return np.asarray(X)


deep_gp: Any = models.deep_gp  # with arguments of other types
THREE: Any = 3
MASKED = np.ma.masked_array(np.asarray(X), mask=np.asarray(X) == X[3])
NEGATIVE = {"l1.variance": -1.0}
DRAWS = {"l1.v": np.zeros((4, len(Z), 1))}
F = dgp.Marginals(jnp.zeros((3, 1)), jnp.ones((3, 1)))


def observed(likelihood, x, y=None, *, z):
    numpyro.sample(
        "y", dgp.observe(dgp.gp("f", kernels.Matern12(1.0, 1.0), z)(x), likelihood), obs=y
    )


def sample(init_params):
    options: Any = {"num_warmup": 1, "num_samples": 1, "init_params": init_params}
    dgp.run_mcmc(KEY, NUTS(dgp.freeze(svgp, shallow(4))), X, Y, z=Z, **options)


def two_layers_from_one():
    options = {"z": (Z, Z), "init_params": {"l1.v": np.zeros((6, 1))}}
    dgp.run_mcmc(KEY, NUTS(deep_gp), X, Y, num_warmup=1, num_samples=1, **options)


def bad_arguments():
    """Yield what must be said of an argument, and the call that has it."""
    fit, own = shallow(4), []
    own.append(own)
    listed: Any = [KEY]
    ragged: Any = [[1], [1, 2]]

    def predict(x=X, **options):
        given = {"guide": SHALLOW, "params": fit, "x": x, "z": Z} | options
        return dgp.predict(KEY, svgp, **given)

    def converted(**options):
        dgp.to_inferencedata(KEY, svgp, SHALLOW, fit, X, Y, z=Z, **options)

    def fit_to(x: Any = X, y: Any = Y, model: Any = svgp, guide: Any = SHALLOW, **options):
        options = {"z": Z, "steps": 4, "progress": False} | options
        return dgp.fit(KEY, model, guide, x, y, **options)

    every = {
        "fit: argument 'x'": fit_to,
        "predict: x": predict,
        "evaluate: argument 'x'": lambda x: dgp.evaluate(KEY, svgp, SHALLOW, fit, x, Y, z=Z),
        "fit_many: argument 'x'": lambda x: dgp.fit_many(KEY[None], svgp, SHALLOW, x, Y, z=Z),
        "run_mcmc: argument 'x'": lambda x: dgp.run_mcmc(
            KEY, NUTS(svgp), x, Y, z=Z, num_warmup=1, num_samples=1
        ),
        "fit_mcem: argument 'x'": lambda x: dgp.fit_mcem(KEY, svgp, x, Y, z=Z),
        "to_inferencedata: argument 'x'": lambda x: dgp.to_inferencedata(
            KEY, svgp, SHALLOW, fit, x, Y, z=Z
        ),
        "check_guide: argument 'x'": lambda x: dgp.check_guide(KEY, svgp, SHALLOW, fit, x, Y, z=Z),
        "annealed_evidence: argument 'x'": lambda x: dgp.inference.annealed_evidence(
            KEY, svgp, SHALLOW, fit, x, Y, z=Z
        ),
        "inducing_inputs: x": lambda x: initialize.inducing_inputs(KEY, x, 3),
        "Standardizer: x": lambda x: dgp.Standardizer.fit(x, Y),
        "means.pca: x": lambda x: means.pca(x, 1),
    }
    for name, call in every.items():
        yield rf"^{name} is a Frame, .*: x\[\['b', 'a'\]\].to_numpy\(\)$", partial(call, Frame())
        yield rf"^{name} is masked in 1 of 20 rows \[3\]", partial(call, MASKED)
        yield rf"^{name} holds complex numbers", partial(call, np.asarray(X) + 1j)
        yield rf"^{name} is a csr_matrix, wanted an array", partial(call, csr_matrix(np.asarray(X)))
    yield from (
        ("has shape .20, 2., wanted .20,", lambda: fit_to(y=np.c_[Y, Y])),
        ("has shape .20, 1., wanted .20,.; pass y", lambda: fit_to(y=Y[:, None])),
        ("'y', observed at site 'y', has shape .., wanted", lambda: fit_to(y=1.0)),
        ("minibatch: array 1 holds objects .such as fu", lambda: fit_to(y=svgp)),
        ("site 'y' of dgp_ppl.observe has no data", lambda: fit_to(y=None)),
        ("'y' has the value 4294967299, beyond int32, .*; rescale",
         lambda: fit_to(y=np.full(20, 2**32 + 3))),
        ("'x' has the value -1e.39, beyond float32", lambda: fit_to(x=np.full((20, 1), -1e39))),
        ("log_prob: y is a random key", lambda: predict().log_prob(KEY)),
        ("transported: model is", lambda: dgp.transported(3, SHALLOW, fit)),  # type: ignore
        ("log_prob: y has the value 42", lambda: predict().log_prob(np.full(20, 2**32 + 3))),
        ("batch_size is 2.5, wanted an integer", lambda: fit_to(batch_size=2.5)),
        ("Matern12.learned: dim is 2.5", lambda: kernels.Matern12.learned("l", dim=2.5)),  # type: ignore
        ("num_nodes is 0, wanted at least 1", lambda: dgp.observe(F, dist.Poisson, num_nodes=0)),
        ("guide is the class MeanField, wanted", lambda: fit_to(guide=dgp.MeanField)),
        ("model is the class MeanField, wanted", lambda: fit_to(model=dgp.MeanField)),
        ("argument 'z'; its arguments are .'x', 'y'.", lambda: fit_to(model=lambda x, y: None)),
        ("z is .*0, 1.*, wanted an array .M, D. with M >= 1", lambda: fit_to(z=Z[:0])),
        ("z is .*6, 1.*, wanted an array", lambda: deep_gp(X, z=Z)),
        ("noise is nan, wanted finite numbers within", lambda: fit_to(noise=np.nan)),
        ("deep_gp: noise is 0, .* models.exact.noise=None. interpol", lambda: fit_to(noise=0.0)),
        ("noise is None, wanted", lambda: fit_to(noise=None)),
        ("kernel is Mat.*, wanted a function", lambda: fit_to(kernel=kernels.Matern12(1.0, 1.0))),
        ("kernel is .*svgp.*, wanted a function of a name", lambda: fit_to(kernel=svgp)),
        ("deep_gp: skip is 3, wanted True or False", lambda: deep_gp(X, z=(Z, Z), skip=3)),
        ("fit: keep_best is 3, wanted True or False", lambda: fit_to(keep_best=3)),
        ("predict: site is 3, wanted the name", lambda: predict(site=3)),
        ("slow is nan, wanted a frozenset", lambda: default_optimizer(0.1, 9, np.nan).init({})),
        ("censored: censored holds obj.* wanted num", lambda: RightCensored(dist.Normal(0, 1), np)),
        ("compare: categorical is .*, wanted names", lambda: dgp.compare("step", categorical=np)),
        ("layer_functions: num_samples is given, wanted num_draws",
         lambda: dgp.layer_functions(KEY, svgp, None, {}, X, num_samples=2, z=Z)),
        ("correct_noise is 3, wanted True", lambda: dgp.SGHMC(svgp, correct_noise=THREE)),
        ("coupled is 3, wanted True or False", lambda: dgp.MeanField(svgp, coupled=THREE)),
        ("steps is a ndarray, wanted an integer", lambda: fit_to(steps=np.ones((2, 2)))),
        ("mean is .*, wanted a function for each", lambda: fit_to(mean=1.0)),
        ("likelihood is a Normal, wanted a func", lambda: fit_to(likelihood=dist.Normal(0.0, 1.0))),
        ("value of the likelihood is None", lambda: fit_to(likelihood=lambda f: None)),
        ("start.'l1.variance'. is -1.0, wanted .* within", lambda: fit_to(start=NEGATIVE)),
        ("start.1...l1.variance'. is -1.0", lambda: fit_to(start=[{}, NEGATIVE])),
        ("start.'l1.variance'. is abc, wanted", lambda: fit_to(start={"l1.variance": "abc"})),
        ("params.'l1.variance'. is -1.0", lambda: predict(params=fit.params | NEGATIVE)),
        ("params.'l1.variance'. is -1.0", lambda: fit_to(model=dgp.freeze(svgp, NEGATIVE))),
        ("loss is 'elbo', wanted an ELBO", lambda: fit_to(loss="elbo")),
        ("learning_rate is 'a', wanted a pos", lambda: fit_to(learning_rate="a")),
        ("learning_rate is True, wanted", lambda: fit_to(learning_rate=True)),
        ("_rate is a ndarray, wanted", lambda: fit_to(learning_rate=np.array([0.1, 0.2]))),
        ("_rate is a ArrayImpl, wanted", lambda: fit_to(learning_rate=jnp.array([0.1]))),
        ("fit: optimizer is 'adam', wanted an opt", lambda: fit_to(optimizer="adam")),
        ("fit: checkpoint is 3, wanted the path", lambda: fit_to(checkpoint=3)),
        ("checkpoint 'a.*' has a null byte, wanted", lambda: fit_to(checkpoint="a\0")),
        ("fit_mcem: checkpoint is 3", lambda: dgp.fit_mcem(KEY, svgp, X, Y, z=Z, checkpoint=THREE)),
        ("mask holds values of type <U", lambda: predict().log_prob(Y, mask=np.full(20, "a"))),
        ("pool: predictions is 3, wanted one or", lambda: dgp.pool(THREE)),
        ("pool: predictions is a PRNGKey", lambda: dgp.pool(KEY)),  # type: ignore
        ("splits: data is 3, wanted a Dataset", lambda: datasets.splits(THREE, 1, 0)),
        ("chain_diag.*: chains is 3, wanted", lambda: dgp.criticism.chain_diagnostics(THREE)),
        ("standardizer is 'a', wanted", lambda: predict(standardizer="a")),
        ("samples is a FitResult, wanted Chains, an MCMC",
         lambda: predict(guide=None, posterior_samples=fit)),
        ("predict: got a guide and posterior_samples", lambda: predict(posterior_samples=DRAWS)),
        ("observe: mask holds values of type <U1", lambda: dgp.observe(F, dist.Normal, mask=["a"])),
        ("mask has other values than True", lambda: dgp.observe(F, dist.Normal, mask=[0.5, 1, 0])),
        ("observe: the likelihood's Normal distribution got invalid scale parameter",
         lambda: fit_to(model=partial(observed, lambda f: dist.Normal(f, -0.1)))),
        ("observe: probs of BernoulliProbs is f, which is any number, wanted UnitInterval",
         lambda: dgp.observe(F, lambda f: dist.Bernoulli(probs=f))),
        (r"site 'y': scale of Normal leaves its limits, Pos.* at an f of -4 or 4, wanted a link",
         lambda: fit_to(model=partial(observed, lambda f: dist.Normal(0.0, f + 1)))),
        ("noise has shape .3,., wanted a number or .1,.", lambda: fit_to(noise=np.ones(3))),
        (r"sgpr: x has shape \(20,\), wanted \[N, 1\]", lambda: models.sgpr(X[:, 0], Y, z=Z)),
        ("optimal_inducing: y has shape", lambda: models.optimal_inducing(fit, X, Y[1:])),
        ("optimal_inducing: y is NaN", lambda: models.optimal_inducing(fit, X, np.nan * Y)),
        ("sgpr: noise has shape .3,., wanted", lambda: models.sgpr(X, Y, z=Z, noise=np.ones(3))),
        ("Matern12: lengthscale has shape .3,., wanted .* each of 1 inputs",
         lambda: kernels.Matern12(1.0, np.ones(3))(X)),
        ("Matern12: variance has shape .3,., wanted a number; for",
         lambda: kernels.Matern12(np.ones(3), 1.0)(X)),
        ("Matern12: lengthscale is a list, wanted a number or an array",
         lambda: kernels.Matern12(1.0, [1.0, 2.0])),
        ("Matern12: variance is -1.0, wanted finite", lambda: kernels.Matern12(-1.0, 1.0)),
        ("unsupported operand .* 'Matern12' and 'int'", lambda: kernels.Matern12(1.0, 1.0) + THREE),
        ("learned: lengthscale has shape .3,., wanted a number or .2,.",
         lambda: kernels.Matern12.learned("l", 2, lengthscale=np.ones(3))),
        ("learned: variance is a, wanted finite",
         lambda: kernels.Matern12.learned("l", 2, variance="a")),
        ("PerOutput has arrays of shapes .*, wanted a leading axis of 1",
         lambda: fit_to(kernel=lambda *_: kernels.PerOutput(kernels.Matern12(*np.ones((2, 3)))))),
        ("Coregion.learned: dim is 2.5, wanted an integer",
         lambda: kernels.Coregion.learned("c", 2.5)),  # type: ignore
        ("Coregion.learned: out is 2.5", lambda: kernels.Coregion.learned("c", 2, out=2.5)),  # type: ignore
        ("l1.v needs a random key: run the model under", lambda: svgp(X, Y, z=Z)),
        ("fit_mcem: expected is a b, wanted", lambda: dgp.fit_mcem(KEY, svgp, expected="a\nb")),  # type: ignore
        ("fit_mcem: optimizer is 'adam', wanted an optax",
         lambda: dgp.fit_mcem(KEY, svgp, X, Y, z=Z, optimizer="adam")),
        ("MeanField: covariance is a Frame, wanted 'full', 'diagonal' or 'shared'",
         lambda: dgp.MeanField(svgp, covariance=Frame())),  # type: ignore
        ("MeanField: model is 3, wanted a NumPyro model", lambda: dgp.MeanField(THREE)),
        ("Diffusion: base is .*, wanted MeanField.model.,",
         lambda: dgp.Diffusion(svgp, base=np.ones(3))),  # type: ignore
        ("SGHMC: model is 3, wanted a NumPyro model", lambda: dgp.SGHMC(THREE)),
        ("SGHMC: friction is 2, wanted a positive number, at most 1",
         lambda: dgp.SGHMC(svgp, friction=2)),
        ("SGHMC: integrator is a Frame, wanted 'baoab'",
         lambda: dgp.SGHMC(svgp, integrator=Frame())),  # type: ignore
        ("run_mcmc: init_params has .'w'., wanted some of .'l1.v'.", lambda: sample({"w": 1.0})),
        ("init_params.'l1.v'. holds .* wanted numbers", lambda: sample({"l1.v": "a"})),
        ("init_params lacks .'l2.v', 'l1.eps'., wanted all of .'l1.v'", two_layers_from_one),
        ("init_params is 3, wanted a dict of unconstrained", lambda: sample(3)),
        ("fit: it is traced by jax.jit, vmap or grad, wanted", lambda: jax.jit(fit_to)()),
        ("minimize: it is traced by", lambda: jax.vmap(lambda y: minimize(KEY, svgp, None, y))(X)),
        ("evaluate: it is traced by",
         lambda: jax.jit(lambda y: dgp.evaluate(KEY, svgp, SHALLOW, {}, X, y, z=Z))(Y)),
        ("layer_functions: it is traced by",
         lambda: jax.jit(lambda x: layer_functions(KEY, svgp, SHALLOW, {}, x, z=Z))(X)),
        ("fit: param 'b' holds integers or booleans, .* wanted floats, such as numpyro.param.'b', ",
         lambda: fit_to(model=lambda *_, **__: numpyro.param("b", 1))),
        ("keys is a list, wanted keys, such as jax.random.split",
         lambda: dgp.fit_many(listed, svgp, SHALLOW, X, Y, z=Z)),
        ("num_rows is no array .*inhomogeneous", lambda: dgp.fit_many(
            KEY[None], svgp, SHALLOW, X, Y, z=Z, num_rows=ragged)),
        ("fit_many: each is 3, wanted a tuple of names",
         lambda: dgp.fit_many(KEY[None], svgp, SHALLOW, X, Y, z=Z, each=THREE)),
        ("array 0 holds complex numbers", lambda: dgp.Rows.from_arrays(np.ones((3, 1)) + 1j)),
        ("array 0 holds values of type <U1", lambda: dgp.Rows.from_arrays(np.full((3, 1), "a"))),
        ("progress is a PRNGKeyArray, wanted True, False, or", lambda: fit_to(progress=KEY)),
        ("evaluate: guide is a Normal, wanted a guide",
         lambda: dgp.evaluate(KEY, svgp, dist.Normal(0, 1), fit, X, Y, z=Z)),  # type: ignore
        ("layer_functions: at is 3, wanted a dict",
         lambda: dgp.layer_functions(KEY, svgp, SHALLOW, fit, X, z=Z, at=THREE)),
        ("to_inferencedata: attrs is 3, wanted a dict", lambda: converted(attrs=3)),
        ("to_inferencedata: result is 3, wanted the result of", lambda: converted(result=3)),
        ("freeze: program is 3, wanted a NumPyro model", lambda: dgp.freeze(THREE, fit)),
        ("interval: level is 'a', wanted a posi", lambda: predict().interval("a")),  # type: ignore
        ("interval: level is a PRNGKeyArray, wanted a posi", lambda: predict().interval(KEY)),  # type: ignore
        ("params.'l1.variance'. is .*, wanted finite",
         lambda: predict(params=fit.params | {"l1.variance": KEY})),
        ("mode is a list, wanted 'joint'", lambda: predict().function_draws(KEY, 2, [])),  # type: ignore
        ("shared is 3, wanted True", lambda: dgp.Standardizer.fit(X, Y, shared=THREE)),
        ("targets is 3, wanted True", lambda: dgp.Standardizer.fit(X, Y, targets=THREE)),
        ("unscaled is b b, wanted positions", lambda: dgp.Standardizer.fit(X, unscaled="b\nb")),  # type: ignore
        ("pseudo_inputs is .*, wanted .R, D. of finite",
         lambda: dgp.GlobalInducing(svgp, np.full((1, 1), "a"))),
        ("gplvm: y has shape .0, 2., wanted .N, P. or .N., N >= 1",
         lambda: initialize.gplvm(KEY, np.zeros((0, 2)), dim=1, num_inducing=3)),
        ("initialize.gplvm: x is not finite everywhere",
         lambda: initialize.gplvm(KEY, np.ones((3, 2)), dim=1, x=np.full((3, 1), np.nan))),
        ("nearest_rows: y, or an entry of y_new where seen is True, is not finite",
         lambda: initialize.nearest_rows(np.full((1, 1), np.nan), [[1]], np.ones((1, 1)))),
        ("nearest_rows: y_new, seen and y have shapes",
         lambda: initialize.nearest_rows(np.ones((1, 2)), np.ones((1, 2)), np.zeros((0, 2)))),
        ("means.linear: weight holds values of type <U1", lambda: means.linear("a")),  # type: ignore
        ("save: path is 3, wanted the path", lambda: dgp.save(THREE, svgp, SHALLOW, fit)),
        ("save: data is 3, wanted a tuple", lambda: dgp.save("a", svgp, SHALLOW, fit, data=THREE)),
        ("save: data holds no arrays", lambda: dgp.save("a", svgp, SHALLOW, fit, data=[])),
        ("save: data holds no arrays", lambda: dgp.save("a", svgp, SHALLOW, fit, data=[KEY])),
        ("columns is a str, wanted a", lambda: dgp.save("a", svgp, SHALLOW, fit, columns="ab")),
        ("save: model is 3, wanted a NumPyro", lambda: dgp.save("a", THREE, SHALLOW, fit)),
        ("save: path 'a.x00' has a null byte", lambda: dgp.save("a\0", svgp, SHALLOW, fit)),
        ("check_fit: test is a list, wanted a prediction of held-out",
         lambda: dgp.check_fit(fit, KEY, svgp, SHALLOW, X, Y, z=Z, test=[Y, Y])),  # type: ignore
        ("check_fit: argument 'y' holds objects .such as str., wanted numbers",
         lambda: dgp.check_fit(fit, KEY, svgp, SHALLOW, X, np.array(["a"] * 20, object), z=Z)),
        ("check_fit: x and y have shapes .*, wanted .N, D. and .N.",
         lambda: dgp.check_fit(fit, KEY, svgp, SHALLOW, 1.0, Y, z=Z)),
        ("check_fit: num_weights is a list, wanted an integer",
         lambda: dgp.check_fit(fit, KEY, svgp, SHALLOW, X, Y, z=Z, num_weights=[])),  # type: ignore
        ("check_fit: num_particles is 10, wanted a multiple of 8",
         lambda: dgp.check_fit(fit, KEY, svgp, SHALLOW, X, Y, z=Z, num_particles=10)),
        ("compare: methods is 3, wanted a list", lambda: dgp.compare("step", THREE)),
        ("gp: name is 3, wanted the name of the layer",
         lambda: dgp.gp(THREE, kernels.Matern12(1.0, 1.0), Z)),
        ("Flow: stick_the_landing is 3, wanted True",
         lambda: dgp.Flow(svgp, stick_the_landing=THREE)),
        ("from_arrays: array 0 is a Series, wanted an array on disk or in memory",
         lambda: dgp.Rows.from_arrays(pd.Series([1.0, None], dtype="Float64"))),
        ("sgpr: z has shape .0, 1., wanted .M, D. with M >= 1",
         lambda: minimize(KEY, models.sgpr, None, X, Y, z=Z[:0], progress=False)),
        ("compare_posteriors: test is 3, wanted two arrays: .x_test, y_t",
         lambda: dgp.compare_posteriors(KEY, THREE, SHALLOW, svgp, fit, X, Y, z=Z, test=THREE)),
        ("compare: seed is None, wanted an integer", lambda: dgp.compare("step", seed=None)),  # type: ignore
        ("compare: out is 3, wanted the path", lambda: dgp.compare("step", out=THREE)),
        ("a.x00 cannot be created: .*embedded null", lambda: dgp.compare("step", out="a\0")),
        ("export: path 'a.x00' has a null byte", lambda: dgp.export("a\0", predict())),
        ("load: path 'a.x00' has a null byte", lambda: dgp.load("a\0")),
        ("save: an argument holds itself", lambda: dgp.save("a", svgp, SHALLOW, fit, z=own)),
        ("'z'. is an integer of over", lambda: dgp.save("a", svgp, SHALLOW, fit, z=10**6000)),
        ("load: path is 3, wanted the path", lambda: dgp.load(THREE)),
        ("num is 1.*, wanted at least 1, below 2..31",
         lambda: initialize.inducing_inputs(KEY, X, 2**70)),
        ("repeated_rows: x_test holds values of type <U1, wanted numbers",
         lambda: datasets.repeated_rows(np.ones((1, 1)), np.array([["a"]]))),
    )  # fmt: skip


def test_arguments_that_are_refused():
    """Each in one line of the library, which names the argument, before anything is compiled."""
    for message, call in bad_arguments():
        with pytest.raises((TypeError, ValueError), match=message) as found:
            call()
        assert "\n" not in str(found.value)


def test_lists_and_series_are_arrays():
    series = type("Series", (), {"__array__": lambda self, *_, **__: np.asarray(Y)})()
    wanted = shallow_of(X).losses
    swapped = np.asarray(Y).astype(">f4")  # bytes in another order
    found = dgp.fit_many(KEY[None], svgp, SHALLOW, X, swapped, z=Z, steps=4, progress=False)
    np.testing.assert_allclose(found[0].losses, wanted, rtol=1e-5)
    np.testing.assert_array_equal(shallow_of(np.asarray(X).tolist(), series).losses, wanted)


def test_inputs_that_float32_cannot_tell_apart():
    """Such as minutes, but not months, since 1970; of few rows half an hour is near."""
    rng = np.random.default_rng(0)
    minutes = 1.7e9 + 60 * np.arange(300_000.0)
    for x, blurred in (
        (minutes, True), (rng.permutation(minutes), True), (1.7e9 + 1800 * np.arange(20.0), True),
        (1970 + np.arange(600) / 12, False), (rng.normal(100, 10, 200_000), False),
        (rng.normal(1000, 10, 200_000).round(2), False), (np.full(5, 1e9), False),
    ):  # fmt: skip
        x, num = x[:, None], len(x)
        with warnings.catch_warnings(record=True) as found:
            warnings.simplefilter("always")
            check_data("fit", svgp, dgp.inference.Call((x, np.zeros(num)), {"z": x[:3]}))
        texts = [str(w.message) for w in found]
        assert len(texts) == blurred
        assert all("column 0 of x" in t and "subtract a constant" in t for t in texts)
    with pytest.warns(UserWarning, match="^predict: column 0 of x has mean"):
        dgp.predict(KEY, svgp, SHALLOW, shallow(4), minutes[:20, None], z=Z)


DATA = {"x", "y"}  # arguments that a function may share with the model


def functions(module):
    """Return the functions that a module exports, by name."""
    found = {n: getattr(module, n) for n in getattr(module, "__all__", ())}
    return {n: f for n, f in found.items() if inspect.isfunction(f)}


def programs():
    """Return all public functions and methods of the package's faces, by name."""
    found = {}
    for info in pkgutil.walk_packages(dgp.__path__, "dgp_ppl."):
        if any(part.startswith("_") for part in info.name.split(".")):
            continue
        face = importlib.import_module(info.name)
        found |= {f"{info.name}.{n}": f for n, f in functions(face).items()}
        for name, kind in inspect.getmembers(face, inspect.isclass):
            methods = inspect.getmembers(kind, inspect.isfunction)
            found |= {
                f"{name}.{n}": f
                for n, f in methods
                if name in face.__all__ and not n.startswith("_") and "dgp_ppl" in f.__module__
            }
    return found | functions(dgp)


def names(function, *kinds):
    """Return the names of a function's parameters of these kinds."""
    parameters = inspect.signature(function).parameters.values()
    return {p.name for p in parameters if p.kind in kinds}


NAMED = inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY
PROGRAMS = programs()
OF_A_KEY = {f for f in PROGRAMS.values() if [*inspect.signature(f).parameters][:1] == ["key"]}
FORWARDING = {
    n: f for n, f in PROGRAMS.items()
    if names(f, inspect.Parameter.VAR_KEYWORD) and not n.startswith("dgp_ppl.models")
}  # fmt: skip
MODELS = {
    n: f for n, f in functions(models).items() if next(iter(inspect.signature(f).parameters)) == "x"
}


def test_what_is_no_key_is_refused_first():
    """Before any other argument is looked at."""
    assert {dgp.fit, dgp.predict, dgp.evaluate, dgp.to_inferencedata} <= OF_A_KEY
    assert initialize.deep_gp in OF_A_KEY
    for function in OF_A_KEY:
        parameters = inspect.signature(function).parameters.values()
        needed = [p.name for p in parameters if p.default is p.empty and p.kind in NAMED][1:]
        for key in (0, None, [1, 2]):
            with pytest.raises(TypeError, match=r"key is .*, wanted one random key"):
                function(key, **dict.fromkeys(needed))


def test_no_option_captures_an_argument_of_a_model():
    """Functions that forward keyword arguments to a model have options too."""
    assert {"fit", "fit_mcem", "run_mcmc", "predict", "annealed_evidence"} <= set(FORWARDING)
    assert {"GlobalInducing.start_from", "LatentInputs.reconstruct"} <= set(FORWARDING)
    assert {"deep_gp", "svgp", "diff_gp", "gplvm", "bnn", "sgpr"} <= set(MODELS)
    captured = [
        f"{name} captures {options}, arguments of models.{model}"
        for name, function in FORWARDING.items()
        for model, program in MODELS.items()
        if (options := (names(function, *NAMED) - DATA) & names(program, *NAMED))
    ]
    assert not captured
