# %% [markdown]
# # A deep GP from the first line to the criticism
#
# This page is for a person who knows NumPyro. It writes a deep Gaussian process as a model
# function, fits it, draws predictions, hands everything to ArviZ, asks what is wrong with it, and
# compares it with draws of NUTS. All that you see was made by running `docs/tutorial.py`; `make
# tutorial` does it again.

# %%
import os
import warnings
from typing import Any

import arviz_stats
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pandas
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
# ## Data with a jump in it
#
# The data are made up, in the shape of a titration: pH against the volume of a base, in mL. The pH
# hardly moves, then jumps, then hardly moves again. A single stationary GP has one lengthscale for
# the plains and the jump alike.
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
# A deep GP is a NumPyro model. `dgp.gp` makes a sparse GP layer with inducing inputs `z`; its only
# latent site is the whitened inducing values `l1.v`. `f1.sample(x)` draws a hidden layer, and
# calling a layer, `f2(...)`, gives the Gaussian of the last one at each row. `observe` says how
# `y` comes from it, and `minibatch` is a plate over the rows. Kernel parameters are
# `numpyro.param`s.


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
# device and learns the kernels, the noise and the inducing inputs on the way. Stock
# `SVI(...).run(...)` with `TraceMeanField_ELBO` does the same. A step estimates the bound by one
# draw, so that the curve stays noisy; by the end it should hardly rise:

# %% name="elbo" alt="The ELBO per datum rises and becomes flat"
guide = dgp.MeanField(model)
fit = dgp.fit(keys[0], model, guide, x, y, z=z, steps=steps, progress=False)
plots.training_curves({"two layers, DSVI": fit.elbo_per_datum})

# %% [markdown]
# ## Predict in the units of the data
#
# With the `standardizer`, inputs go in as mL, and means, intervals and densities come out as pH.
# We look a little beyond the data on both sides.

# %% name="prediction" alt="Data, mean and 90 % band of the pH against the volume"
grid = np.linspace(-5, 55, 120)[:, None]
p = dgp.predict(keys[1], model, guide, fit.params, grid, standardizer=scale, z=z)
lower, upper = p.interval(0.9)
curves = p.function_draws(keys[2], 8)
band = {"mean": p.mean, "lower": lower, "upper": upper, "draws": curves}
names = ("volume (mL)", "pH")
plots.function_bands(volume[:, 0], ph, grid[:, 0], {"two layers, DSVI": band}, names)

# %% [markdown]
# What did each layer learn? `layer_functions` draws all layers together. The first layer's
# function is steep where the pH jumps: it pulls the jump apart, so that the second layer can be
# smooth. Ticks at the bottom are where a layer is called, circles are inducing inputs.

# %% name="layers" alt="The function of the first layer above that of the second one"
functions = dgp.layer_functions(keys[3], model, guide, fit.params, scale.inputs(grid), z=z)
plots.layers(functions, ["volume, standardised"])

# %% [markdown]
# ## Hand it to ArviZ
#
# `to_inferencedata` makes one data tree of the fit: draws of the posterior and of the prior,
# replicated `y`, and log p(y_n | draw) of every row. The noise of the hidden layers, which is a
# nuisance of each row, is integrated out by `passes`. The tree can be saved by
# `tree.to_netcdf(path)`.

# %%
common: dict[str, Any] = {"standardizer": scale, "z": z, "num_samples": 4 * draws}
tree = dgp.to_inferencedata(
    keys[4], model, guide, fit.params, volume, ph, result=fit, units={"y": "pH"}, **common
)
for name, group in tree.children.items():
    print(f"{name:22s}{', '.join(list(group.data_vars)[:3])}")
print(dict(tree["posterior"]["l2.v"].sizes))

# %% [markdown]
# Kernels and noise were learned as points. Put priors on them by NumPyro's `handlers.lift`, and
# the same guide covers them too. Lengthscales are in standardised units.

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
# **Leave-one-out cross-validation** says how well each row is predicted by all the others, without
# a new fit: `elpd` is the sum of log densities, in nats. The Pareto k of a row says whether that
# shortcut can be trusted there: above `good_k` the row moves the posterior too much. ArviZ warns
# of such rows; here we count them instead.

# %%
warnings.filterwarnings("ignore", "Estimated shape parameter")
loo = criticism.loo(tree)
print(f"elpd {loo.elpd:.1f} ± {loo.se:.1f} nats, effective parameters {loo.p:.1f}")
bad = loo.pareto_k.values > loo.good_k
print(f"{bad.sum()} of {len(bad)} rows have Pareto k above {loo.good_k:.2f}")
print("their volumes (mL):", volume[bad, 0].round(1))

# %% [markdown]
# For these rows the shortcut is a guess: draws that are narrower than the posterior, as those of
# DSVI are, know too little of what would be without a row. We shall see that NUTS has wider ones.
#
# **LOO-PIT** is where each observed pH falls in the distribution that the other rows predict for
# it. If predictions are calibrated, these values are uniform: a heap in the middle says that bands
# are too wide, heaps at both ends that they are too narrow. The grey band is what chance allows.

# %% name="loo_pit" alt="Histogram of the LOO-PIT"
pit = criticism.loo_pit(tree)
print(f"p-value of uniform LOO-PIT: {criticism.calibration(pit).p_value:.2f}")
plots.pit_histograms({"two layers, DSVI": pit}, bins=6)

# %% [markdown]
# **Posterior predictive checks** compare statistics of the data with those of replicated data. A
# `p_value` near 0 or 1 names what the model does not reproduce.

# %%
criticism.posterior_check(tree).round(2)

# %% [markdown]
# None of these p-values is extreme: the model makes data like ours.
#
# **k-hat** asks about the guide, not about the model: how heavy is the tail of the importance
# weights p(y, v) / q(v)? Below 0.7, q is near enough to the posterior that its draws could be
# corrected by weighing them.

# %%
print(dgp.check_guide(keys[6], model, guide, fit.params, x, y, z=z, num_simulations=0))

# %% [markdown]
# So predictions are calibrated, and still the posterior is not the exact one: the two are
# different questions.
#
# ## A better posterior, and NUTS as the judge
#
# A mean-field posterior cannot let one layer follow another. `Diffusion` starts at the mean-field
# fit and moves draws of both layers together through a few learned steps. (`GlobalInducing`
# couples the layers in closed form; see `examples/every_posterior.py`.) The hyperparameters are
# held at those of DSVI, so that all methods have the same posterior to find.

# %% name="diffusion" alt="The ELBO per datum of DSVI, and of the diffusion that starts from it"
fixed = dgp.freeze(model, {n: a for n, a in fit.params.items() if ".v." not in n})
chain = dgp.Diffusion(fixed, base=dgp.MeanField(fixed), informed=(x, y))
quiet: dict[str, Any] = {"z": z, "progress": False}
better = dgp.fit(keys[7], fixed, chain, x, y, steps=steps, start=fit, **quiet)
better_params = {**fit.params, **better.params}
plots.training_curves({"DSVI": fit.elbo_per_datum, "diffusion": better.elbo_per_datum})

# %% [markdown]
# NUTS draws from the exact posterior if its chains have mixed, which is possible on 60 rows.
# `transported` gives it the same model in the white space of the fit, where it can take long
# steps. R-hat should be near 1:

# %%
white = NUTS(dgp.transported(model, guide, fit.params), target_accept_prob=0.95)
sizes = {"num_warmup": draws, "num_samples": draws, "num_chains": 4}
chains = dgp.run_mcmc(keys[8], white, x, y, **sizes, **quiet)
exact = dgp.to_inferencedata(
    keys[8], model, None, fit.params, volume, ph, posterior_samples=chains,
    num_prior_samples=0, **common,
)  # fmt: skip
v = dgp.Chains({n: chains.samples[n] for n in ("l1.v", "l2.v")}, chains.fields)
mixed = chain_diagnostics(v)
print(f"R-hat {mixed['rhat']:.3f}, least effective sample size {mixed['ess']:.0f}")
print(f"{mixed['divergences']} divergences")

# %% [markdown]
# The energy distance says how far the draws of `v` are from those of NUTS: 0 is the same law.

# %%
chain_tree = dgp.to_inferencedata(
    keys[9], model, chain, better_params, volume, ph, num_prior_samples=0, **common
)
trees = {"DSVI": tree, "diffusion": chain_tree, "NUTS": exact}
for name in ("DSVI", "diffusion"):
    own = dgp.Chains({n: trees[name]["posterior"][n].values for n in v.samples})
    judged = dgp.compare_posteriors(keys[10], v, own, model, fit.params, x, y, z=z)
    print(f"{name:10s} {judged.joint}")

# %% name="forest" alt="Intervals of inducing values by DSVI, diffusion and NUTS"
plots.posterior_forest(trees, 4)

# %% [markdown]
# DSVI's intervals are the shortest nearly everywhere, those of NUTS the longest, and diffusion is
# between the two. Two inducing values of the last layer against each other say the same: DSVI has
# their correlation, which is within a layer, but not their spread.

# %% name="pair" alt="Draws of two inducing values by DSVI and by NUTS"
pair = [("l2.v", 0, 0), ("l2.v", 1, 0)]
plots.posterior_pair({n: trees[n] for n in ("NUTS", "DSVI")}, pair)

# %% [markdown]
# ## Did the second layer pay?
#
# `models.svgp` is the one-layer model. **Stacking** finds the mixture of models that predicts
# left-out rows best. The table has the best `elpd` first, its difference to the others with the
# standard error `dse`, and the `weight` of each in the mixture.

# %%
one: dict[str, Any] = {"z": z}
shallow = dgp.MeanField(models.svgp)
first = dgp.fit(keys[11], models.svgp, shallow, x, y, steps=steps, progress=False, **one)
one_tree = dgp.to_inferencedata(
    keys[11], models.svgp, shallow, first.params, volume, ph, num_prior_samples=0, **common
)
for name, result in {"one layer": first, "two layers": fit}.items():
    print(f"{name:11s} ELBO per datum {result.elbo_per_datum[-steps // 10 :].mean():.3f}")
table: pandas.DataFrame = criticism.stacking({"one layer": one_tree, **trees})
table[["elpd", "elpd_diff", "dse", "weight"]].astype(float).round(2)

# %% [markdown]
# The ELBO is higher with two layers, and so is the LOO of all posteriors that have two. A better
# posterior of the same model at the same hyperparameters gains too: NUTS is best, and the mixture
# needs nothing else. The differences to DSVI and to one layer are two to three standard errors on
# 60 rows, that of diffusion to NUTS is less than two; and DSVI's LOO is one with many large
# Pareto k.
#
# ## Where next
#
# - `dgp-ppl compare DATA --report` fits many methods to your file, and writes one page of tables,
#   pictures and criticism.
# - `examples/svi_vs_mcmc.py` compares DSVI, diffusion, SGHMC and NUTS on one model, with held-out
#   scores.
# - `examples/every_posterior.py` has a line for each guide, `examples/likelihoods.py` other
#   likelihoods, `examples/counts_and_priors.py` priors, `examples/gallery.py` all pictures.
# - The README has larger data, minibatches, latent inputs and flows.
