# %% [markdown]
# # A deep GP, from the first line to the criticism
#
# This page is for readers who know NumPyro. It writes a deep Gaussian process as a model
# function, fits it, predicts, hands the fit to ArviZ, criticises it, and compares it with NUTS.
# The outputs come from running `docs/tutorial.py`; `make tutorial` runs it again.

# %%
import os
import warnings
from typing import Any

import arviz_plots
import arviz_stats
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import xarray
from jax import random
from numpyro import handlers
from numpyro.infer import NUTS

import dgp_ppl as dgp
from dgp_ppl import criticism, kernels, means, models, plots
from dgp_ppl.criticism import chain_diagnostics

quick = "DGP_PPL_QUICK" in os.environ  # the tests run this page with few steps
steps, draws = (3, 20) if quick else (3000, 400)
keys = random.split(random.key(0), 12)

# %% [markdown]
# ## Data with a jump
#
# The data imitate a titration: pH against the volume of a base, in mL. The pH hardly moves, then
# jumps, then hardly moves again. A stationary GP has one lengthscale, which fits either the
# plains or the jump.
#
# Models see standardised values. A `Standardizer` remembers the units of the data.

# %%
rng = np.random.default_rng(0)
volume = np.sort(rng.uniform(0, 50, size=(60, 1)), axis=0)  # mL
ph = 7 + 4 * np.tanh((volume[:, 0] - 27) / 1.5) + 0.6 * rng.normal(size=60)

scale = dgp.Standardizer.fit(volume, ph)
x, y = scale.inputs(volume), scale.outputs(ph)
print("rows:", x.shape, y.shape)

# %% [markdown]
# ## The model
#
# A deep GP is a NumPyro model. `dgp.gp` makes a sparse GP layer with inducing inputs `z`. Its
# only latent site holds the whitened inducing values, `l1.v`. `f1.sample(x)` draws a hidden
# layer. Calling a layer, `f2(...)`, gives its Gaussian at each row. `observe` connects `y` to the
# last layer, and `minibatch` is a plate over the rows. Kernel parameters are `numpyro.param`s.


# %%
def model(x: Any, y: Any = None, *, z: Any) -> None:
    noise = numpyro.param("noise", 0.3, constraint=dist.constraints.positive)
    z1: Any = numpyro.param("l1.z", z)
    z2: Any = numpyro.param("l2.z", z)
    kernel = kernels.SquaredExponential.learned
    f1 = dgp.gp("l1", kernel("l1", 1), z1, mean=means.identity)
    f2 = dgp.gp("l2", kernel("l2", 1), z2)
    with dgp.minibatch(x, y) as (x, y):
        f = f2(f1.sample(x))
        numpyro.sample("y", dgp.observe(f, lambda f: dist.Normal(f, noise)), obs=y)


z = jnp.linspace(-1.8, 1.8, 8)[:, None]

# %% [markdown]
# ## Fit it by doubly stochastic variational inference
#
# `MeanField` is a Gaussian for each layer's inducing values. `fit` runs NumPyro's SVI on the
# device. It learns the kernels, the noise and the inducing inputs as well. Stock
# `SVI(...).run(...)` with `TraceMeanField_ELBO` does the same. One draw estimates the bound at
# each step, so the curve stays noisy. It should be flat at the end:

# %% name="elbo" alt="The ELBO per datum rises and becomes flat"
guide = dgp.MeanField(model)
fit = dgp.fit(keys[0], model, guide, x, y, z=z, steps=steps, progress=False)
plots.training_curves({"two layers, DSVI": fit.elbo_per_datum})

# %% [markdown]
# ## Predict in the units of the data
#
# With the `standardizer`, inputs go in as mL, and means, intervals and densities come out as pH.
# The grid extends a little beyond the data on both sides.

# %% name="prediction" alt="Data, mean and 90 % band of the pH against the volume"
grid = np.linspace(-5, 55, 120)[:, None]
p = dgp.predict(keys[1], model, guide, fit.params, grid, standardizer=scale, z=z)
lower, upper = p.interval(0.9)
curves = p.function_draws(keys[2], 8)
band = {"mean": p.mean, "lower": lower, "upper": upper, "draws": curves}
names = ("volume (mL)", "pH")
plots.function_bands(volume[:, 0], ph, grid[:, 0], {"two layers, DSVI": band}, names)

# %% [markdown]
# What did each layer learn? `layer_functions` draws all layers together. The first layer is steep
# where the pH jumps: it stretches the jump, so the second layer can be smooth. Ticks at the
# bottom mark the inputs of a layer, circles mark inducing inputs.

# %% name="layers" alt="The function of the first layer above that of the second one"
functions = dgp.layer_functions(keys[3], model, guide, fit.params, scale.inputs(grid), z=z)
plots.layers(functions, ["volume, standardised"])

# %% [markdown]
# ## Hand it to ArviZ
#
# `to_inferencedata` makes one data tree of the fit: draws of the posterior and of the prior,
# replicated `y`, and log p(y_n | draw) of every row. It integrates out the noise of the hidden
# layers, which is a nuisance of each row. `tree.to_netcdf(path)` saves the tree.

# %%
common: dict[str, Any] = {"standardizer": scale, "z": z, "num_samples": 4 * draws}
tree = dgp.to_inferencedata(
    keys[4], model, guide, fit.params, volume, ph, result=fit, units={"y": "pH"}, **common
)
for name, group in tree.children.items():
    print(f"{name:22s}{', '.join(list(group.data_vars)[:3])}")
print(dict(tree["posterior"]["l2.v"].sizes))

# %% [markdown]
# So far kernels and noise are point estimates. NumPyro's `handlers.lift` puts priors on them, and
# the same guide then covers them too. Lengthscales are in standardised units.

# %%
wide = dist.LogNormal(0.0, 1.0)
priors = {
    "noise": dist.LogNormal(-1.5, 1.0),
    "l1.lengthscale": wide.expand([1]).to_event(1),
    "l2.lengthscale": wide.expand([1]).to_event(1),
}
lifted = handlers.lift(model, prior=priors)
lifted_guide = dgp.MeanField(lifted)
lifted_fit = dgp.fit(keys[5], lifted, lifted_guide, x, y, z=z, steps=steps, progress=False)
lifted_tree = dgp.to_inferencedata(
    keys[5], lifted, lifted_guide, lifted_fit.params, volume, ph, num_prior_samples=0, **common
)
statistics: Any = arviz_stats  # typed lazily
statistics.summary(lifted_tree, var_names=list(priors), kind="stats")

# %% [markdown]
# ## Criticise it
#
# **Leave-one-out cross-validation** estimates how well the other rows predict each row, without a
# new fit. `elpd` is the sum of log densities, in nats. The Pareto k of a row tells whether the
# estimate can be trusted: above `good_k` the row moves the posterior too much. ArviZ warns about
# such rows; this page counts them instead.

# %%
warnings.filterwarnings("ignore", "Estimated shape parameter")
loo = criticism.loo(tree)
print(f"elpd {loo.elpd:.1f} ± {loo.se:.1f} nats, effective parameters {loo.p:.1f}")
bad = loo.pareto_k.values > loo.good_k
print(f"{bad.sum()} of {len(bad)} rows have Pareto k above {loo.good_k:.2f}")
print("their volumes (mL):", volume[bad, 0].round(1))

# %% [markdown]
# For these rows the estimate is a guess. Draws that are narrower than the posterior, as DSVI's
# are, do not cover what the posterior would be without the row. NUTS, below, has wider draws.
#
# **LOO-PIT** is the position of each observed pH in the distribution that the other rows predict
# for it. Calibrated predictions make these values uniform. The curve is their distribution minus
# the uniform one, and mostly stays in the grey band. A curve that falls and then rises means bands
# that are too wide. A curve that rises and then falls means bands that are too narrow.

# %% name="loo_pit" alt="Distribution of the LOO-PIT minus the uniform one, with its band"
_ = arviz_plots.plot_loo_pit(tree, backend="matplotlib")

# %% [markdown]
# **Posterior predictive checks** compare a statistic of the data, the dot, with its distribution
# over replicated data. A dot far in a tail names a feature that the model does not reproduce.

# %% name="check" alt="The standard deviation of the data and of replicated data"
_ = arviz_plots.plot_ppc_tstat(tree, t_stat="std", backend="matplotlib")

# %% [markdown]
# **k-hat** judges the guide, not the model: how heavy is the tail of the importance weights p(y,
# v) / q(v)? Below 0.7, q is close enough to the posterior that weighting can correct its draws.

# %%
print(dgp.check_guide(keys[6], model, guide, fit.params, x, y, z=z, num_simulations=0))

# %% [markdown]
# So the predictions are calibrated, and the posterior is still not the exact one. These are two
# different questions.
#
# ## A better posterior, and NUTS as the reference
#
# A mean-field posterior cannot let one layer follow another. `Diffusion` starts at the mean-field
# fit and moves draws of both layers together through a few learned steps. (`GlobalInducing`
# couples the layers in closed form; see `examples/every_posterior.py`.) The hyperparameters are
# fixed at those of DSVI, so all methods have the same posterior to find.

# %% name="diffusion" alt="The ELBO per datum of DSVI, and of the diffusion that starts from it"
fixed = dgp.freeze(model, {n: a for n, a in fit.params.items() if ".v." not in n})
diffusion = dgp.Diffusion(fixed, base=dgp.MeanField(fixed), informed=(x, y))
quiet: dict[str, Any] = {"z": z, "progress": False}
better = dgp.fit(keys[7], fixed, diffusion, x, y, steps=steps, start=fit, **quiet)
better_params = {**fit.params, **better.params}
plots.training_curves({"DSVI": fit.elbo_per_datum, "diffusion": better.elbo_per_datum})

# %% [markdown]
# NUTS draws from the exact posterior if its chains mix, which they can on 60 rows. `transported`
# gives it the same model in the reference space of the fit, where it takes longer steps. R-hat
# should be near 1:

# %%
kernel = NUTS(dgp.transported(model, guide, fit.params), target_accept_prob=0.95)
sizes = {"num_warmup": draws, "num_samples": draws, "num_chains": 4}
chains = dgp.run_mcmc(keys[8], kernel, x, y, **sizes, **quiet)
exact = dgp.to_inferencedata(
    keys[8], model, None, fit.params, volume, ph, posterior_samples=chains,
    num_prior_samples=0, **common,
)  # fmt: skip
v = dgp.Chains({n: chains.samples[n] for n in ("l1.v", "l2.v")}, chains.fields)
mixed = chain_diagnostics(v)
print(f"R-hat {mixed['rhat']:.3f}, least effective sample size {mixed['ess']:.0f}")
print(f"{mixed['divergences']} divergences")

# %% [markdown]
# The energy distance measures how far the draws of `v` are from those of NUTS. It is 0 for equal
# distributions.

# %%
diffusion_tree = dgp.to_inferencedata(
    keys[9], model, diffusion, better_params, volume, ph, num_prior_samples=0, **common
)
trees = {"DSVI": tree, "diffusion": diffusion_tree, "NUTS": exact}
for name in ("DSVI", "diffusion"):
    approximate = dgp.Chains({n: trees[name]["posterior"][n].values for n in v.samples})
    found = dgp.compare_posteriors(keys[10], v, approximate, model, fit.params, x, y, z=z)
    print(f"{name:10s} {found.joint}")

# %% name="forest" alt="Intervals of inducing values by DSVI, diffusion and NUTS"
shown = {"l1.inducing": [0, 3, 6], "l2.inducing": [0, 3, 6]}
flat = {}
for name, each in trees.items():  # all have as many draws, in different numbers of chains
    joined = each["posterior"].to_dataset()[["l1.v", "l2.v"]].stack(sample=["chain", "draw"])
    joined = joined.drop_vars(["sample", "chain", "draw"])
    flat[name] = xarray.DataTree.from_dict({"posterior": joined})
_ = arviz_plots.plot_forest(flat, sample_dims=["sample"], coords=shown, backend="matplotlib")

# %% [markdown]
# DSVI is blue, diffusion orange, and NUTS green. DSVI's intervals are the shortest nearly
# everywhere, the intervals of NUTS are the longest, and the intervals by diffusion lie between.
#
# ## Did the second layer pay?
#
# `models.svgp` is the one-layer model. **Stacking** finds the mixture of models that best
# predicts left-out rows. The table lists the best `elpd` first, its difference from the others
# with the standard error `dse`, and the `weight` of each in the mixture.

# %%
one: dict[str, Any] = {"z": z}
shallow = dgp.MeanField(models.svgp)
first = dgp.fit(keys[11], models.svgp, shallow, x, y, steps=steps, progress=False, **one)
one_tree = dgp.to_inferencedata(
    keys[11], models.svgp, shallow, first.params, volume, ph, num_prior_samples=0, **common
)
for name, result in {"one layer": first, "two layers": fit}.items():
    print(f"{name:11s} ELBO per datum {result.elbo_per_datum[-steps // 10 :].mean():.3f}")
estimates = {n: criticism.loo(t) for n, t in {"one layer": one_tree, **trees}.items()}
table: Any = arviz_stats.compare(estimates)
table[["elpd", "elpd_diff", "dse", "weight"]].astype(float).round(2)

# %% [markdown]
# The ELBO is higher with two layers, and so is the LOO of all posteriors with two layers. At the
# same hyperparameters, a better posterior also gains: NUTS is best, and the mixture needs nothing
# else. On 60 rows the differences from NUTS to DSVI and to one layer are two to three standard
# errors, that to diffusion is less than two. DSVI's LOO has many large Pareto k.
#
# ## Where next
#
# - `dgp-ppl compare DATA --report` fits many methods to your file, and writes one page of tables,
#   pictures and criticism.
# - `examples/svi_vs_mcmc.py` compares DSVI, a flow, SGHMC and NUTS on one model, with held-out
#   metrics.
# - `examples/every_posterior.py` has a line for each guide, `examples/likelihoods.py` other
#   likelihoods, `examples/counts_and_priors.py` priors, and `examples/gallery.py` all pictures.
# - [Choose a model](choose_a_model.md) has latent inputs and flows; [write a
#   model](write_a_model.md) has minibatches and priors.
