# %% [markdown]
# # A deep GP, from the first line to the criticism
#
# For readers who know NumPyro. This page writes a deep Gaussian process, fits it, predicts, hands
# it to ArviZ, criticises it, and compares it with NUTS. `make tutorial` runs `docs/tutorial.py`
# and renders this page.

# %%
import os
import warnings
from typing import Any

import arviz as az
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
from jax import random
from numpyro import handlers
from numpyro.infer import NUTS

import dgp_ppl as dgp
from dgp_ppl import criticism, kernels, means, models, plots

quick = "DGP_PPL_QUICK" in os.environ  # the tests run this page with few steps
steps, draws = (3, 20) if quick else (3000, 400)
keys = random.split(random.key(0), 12)

# %% [markdown]
# ## Data with a jump
#
# A titration: pH against the volume of a base, in mL. The pH hardly moves, then jumps. A
# stationary GP has one lengthscale, which fits either the plains or the jump. Models see
# standardised values; a `Standardizer` remembers the units.

# %%
rng = np.random.default_rng(0)
volume = np.sort(rng.uniform(0, 50, size=(60, 1)), axis=0)  # mL
ph = 7 + 4 * np.tanh((volume[:, 0] - 27) / 1.5) + 0.6 * rng.normal(size=60)

scale = dgp.Standardizer.fit(volume, ph)
x, y = scale.inputs(volume), scale.outputs(ph)

# %% [markdown]
# ## The model
#
# `dgp.gp` makes a sparse GP layer with inducing inputs `z`. Its only latent site, `l1.v`, holds
# the whitened inducing values. `f1.sample(x)` draws a hidden layer; calling a layer gives its
# Gaussian at each row. `observe` connects `y` to the last layer, and `minibatch` is a plate.


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
# ## Fit
#
# `MeanField` is a Gaussian for each layer's inducing values. `fit` runs SVI on the device, and
# learns kernels, noise and inducing inputs too. One draw estimates the bound at each step, so the
# curve stays noisy. It should be flat at the end:

# %% name="elbo" alt="The ELBO per datum rises and becomes flat"
guide = dgp.MeanField(model)
fit = dgp.fit(keys[0], model, guide, x, y, z=z, steps=steps, progress=False)
plots.training_curves({"two layers, DSVI": fit.elbo_per_datum})

# %% [markdown]
# ## Predict
#
# With the `standardizer`, inputs are in mL, and means, intervals and densities are in pH.

# %% name="prediction" alt="Data, mean and 90 % band of the pH against the volume"
grid = np.linspace(-5, 55, 120)[:, None]
p = dgp.predict(keys[1], model, guide, fit.params, grid, standardizer=scale, z=z)
lower, upper = p.interval(0.9)
band = {"mean": p.mean, "lower": lower, "upper": upper, "draws": p.function_draws(keys[2], 8)}
names = ("volume (mL)", "pH")
plots.function_bands(volume[:, 0], ph, grid[:, 0], {"two layers, DSVI": band}, names)

# %% [markdown]
# The first layer is steep where the pH jumps. It stretches the jump, so the second layer can be
# smooth. Ticks mark the inputs of a layer, circles its inducing inputs.

# %% name="layers" alt="The function of the first layer above that of the second one"
functions = dgp.layer_functions(keys[3], model, guide, fit.params, scale.inputs(grid), z=z)
plots.layers(functions, ["volume, standardised"])

# %% [markdown]
# ## Hand it to ArviZ
#
# `to_inferencedata` makes one data tree: draws of posterior and prior, replicated `y`, and
# log p(y_n | draw) of every row, with the noise of hidden layers integrated out.

# %%
common: dict[str, Any] = {"standardizer": scale, "z": z, "num_samples": 4 * draws}
tree = dgp.to_inferencedata(
    keys[4], model, guide, fit.params, volume, ph, result=fit, units={"y": "pH"}, **common
)
print(", ".join(tree.children))

# %% [markdown]
# So far kernels and noise are point estimates. `handlers.lift` gives them priors, and the same
# guide then covers them too:

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
az.summary(lifted_tree, var_names=list(priors), kind="stats")

# %% [markdown]
# ## Criticise it
#
# **Leave-one-out cross-validation** estimates how well the other rows predict each row. `elpd` is
# the sum of log densities, in nats. Where the Pareto k of a row is above `good_k`, the row moves
# the posterior too much and the estimate is a guess.

# %%
warnings.filterwarnings("ignore", "Estimated shape parameter")
loo = criticism.loo(tree)
bad = loo.pareto_k.values > loo.good_k
print(f"elpd {loo.elpd:.1f} ± {loo.se:.1f} nats")
print(f"{bad.sum()} of {len(bad)} rows have Pareto k above {loo.good_k:.2f}")

# %% [markdown]
# Draws that are narrower than the posterior, as DSVI's are, have many large Pareto k.
#
# **LOO-PIT** is the position of each pH in the distribution that the other rows predict for it,
# uniform if predictions are calibrated. The curve is its distribution minus the uniform one; the
# band shows what chance allows:

# %% name="loo_pit" alt="The distribution of the LOO-PIT minus the uniform one, inside its band"
_ = az.plot_loo_pit(tree)

# %% [markdown]
# **Posterior predictive checks** compare a statistic of the data, the dot, with its distribution
# over replicated data. A dot far in a tail names a feature that the model does not reproduce:

# %% name="check" alt="The standard deviation of the data and of replicated data"
_ = az.plot_ppc_tstat(tree, t_stat="std")

# %% [markdown]
# **k-hat** judges the guide, not the model. Below 0.7, importance weights can correct its draws:

# %%
print(dgp.check_guide(keys[6], model, guide, fit.params, x, y, z=z, num_simulations=0))

# %% [markdown]
# So the predictions are calibrated, and the posterior is still not the exact one.
#
# ## A better posterior, and NUTS as the reference
#
# A mean-field posterior cannot let one layer follow another. `Diffusion` starts at the mean-field
# fit and moves draws of both layers together. The hyperparameters are fixed, so all methods have
# the same posterior to find.

# %%
fixed = dgp.freeze(model, {n: a for n, a in fit.params.items() if ".v." not in n})
diffusion = dgp.Diffusion(fixed, base=dgp.MeanField(fixed), informed=(x, y))
quiet: dict[str, Any] = {"z": z, "progress": False}
better = dgp.fit(keys[7], fixed, diffusion, x, y, steps=steps, start=fit, **quiet)
better_params = {**fit.params, **better.params}

# %% [markdown]
# NUTS draws from the exact posterior if its chains mix. `transported` gives it the model in the
# reference space of the fit, where it takes longer steps. R-hat should be near 1:

# %%
kernel = NUTS(dgp.transported(model, guide, fit.params), target_accept_prob=0.95)
sizes = {"num_warmup": draws, "num_samples": draws, "num_chains": 4}
chains = dgp.run_mcmc(keys[8], kernel, x, y, **sizes, **quiet)
exact = dgp.to_inferencedata(
    keys[8], model, None, fit.params, volume, ph, posterior_samples=chains,
    num_prior_samples=0, **common,
)  # fmt: skip
v = dgp.Chains({n: chains.samples[n] for n in ("l1.v", "l2.v")}, chains.fields)
mixed = criticism.chain_diagnostics(v)
print(f"R-hat {mixed['rhat']:.3f}, least effective sample size {mixed['ess']:.0f}")

# %% [markdown]
# The energy distance measures how far draws of `v` are from NUTS's; 0 is exact. DSVI's intervals
# are the shortest, NUTS's the longest:

# %% name="forest" alt="Intervals of inducing values by DSVI, diffusion and NUTS"
diffusion_tree = dgp.to_inferencedata(
    keys[9], model, diffusion, better_params, volume, ph, num_prior_samples=0, **common
)
trees = {"DSVI": tree, "diffusion": diffusion_tree, "NUTS": exact}
for name in ("DSVI", "diffusion"):
    approximate = dgp.Chains({n: trees[name]["posterior"][n].values for n in v.samples})
    found = dgp.compare_posteriors(keys[10], v, approximate, model, fit.params, x, y, z=z)
    print(f"{name:10s} {found.joint}")
v2 = {n: t["posterior"]["l2.v"].values.reshape(1, -1, len(z)) for n, t in trees.items()}
shown = {n: az.from_dict({"posterior": {"l2.v": a}}) for n, a in v2.items()}
az.plot_forest(shown, figure_kwargs={"figsize": (7, 5)}).add_legend("model")

# %% [markdown]
# ## Did the second layer pay?
#
# `models.svgp` has one layer. **Stacking** finds the mixture of models that best predicts left-out
# rows. The table lists the best `elpd` first, and the `weight` of each model in the mixture.

# %%
shallow = dgp.MeanField(models.svgp)
first = dgp.fit(keys[11], models.svgp, shallow, x, y, steps=steps, **quiet)
one_tree = dgp.to_inferencedata(
    keys[11], models.svgp, shallow, first.params, volume, ph, num_prior_samples=0, **common
)
table: Any = az.compare({n: criticism.loo(t) for n, t in {"one layer": one_tree, **trees}.items()})
table[["elpd", "elpd_diff", "dse", "weight"]].astype(float).round(2)

# %% [markdown]
# The LOO of all posteriors with two layers is higher, and at the same hyperparameters a better
# posterior gains. From NUTS to DSVI and to one layer the differences are two to three standard
# errors; from NUTS to diffusion the difference is less than two.
#
# ## Where next
#
# - `dgp-ppl compare DATA --report` fits many methods to your file.
# - `examples/` has a program for each guide, for likelihoods, priors and pictures.
# - [Choose a model](choose_a_model.md), [choose a posterior](choose_a_posterior.md), and [write a
#   model](write_a_model.md).
