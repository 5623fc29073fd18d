"""The evidence, measured: annealed importance sampling from a fitted guide to the posterior."""

import dataclasses
import math
from functools import partial
from typing import Any, Literal, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax, random
from jax.flatten_util import ravel_pytree
from jax.scipy.special import logsumexp
from jaxtyping import Array
from numpyro import handlers
from tqdm.auto import tqdm

from dgp_ppl._arguments import Skeleton
from dgp_ppl._typing import Model, Params, PRNGKey
from dgp_ppl.inference.layer_guide import LayerGuide
from dgp_ppl.inference.white import white_base, white_log_joint, white_values

__all__ = ["AnnealedEvidence", "annealed_evidence"]

_WANTED_RATE = 0.8  # of acceptance
_PILOT = 40  # temperatures of the first run, at least
_CHUNK = 20  # in one call of the device
_GAIN = 0.3  # of the log step size for what the acceptance rate is off


@dataclasses.dataclass(frozen=True)
class AnnealedEvidence:
    """What `annealed_evidence` returns; in nats.

    Attributes:
        log_evidence: log of the mean weight; in expectation not above the truth.
        standard_error: of it, by the spread of the weights. (Of few chains it is rough.)
        log_weights: of the chains, [C].
        effective_chains: how many equal weights would be worth as much.
        draws: where the chains end, latent sites [C, ...]: weighted, draws of the posterior.
        acceptance: mean acceptance rate at every temperature, [K].
        upper: by the chains in reverse, from exact draws: in expectation not below the truth. None
            without them.
        upper_error: its standard error, as if the exact draws were independent.
    """

    log_evidence: float
    standard_error: float
    log_weights: np.ndarray
    effective_chains: float
    draws: dict[str, np.ndarray]
    acceptance: np.ndarray
    upper: float | None = None
    upper_error: float | None = None


def annealed_evidence(
    key: PRNGKey,
    model: Model,
    guide: LayerGuide,
    params: Params,
    *args: Any,
    target: Literal["bound", "model"] = "bound",
    temperatures: int = 500,
    leapfrogs: int = 15,
    num_chains: int = 8,
    num_noise: int = 8,
    posterior_samples: dict[str, Any] | None = None,
    progress: bool | str = True,
    **kwargs: Any,
) -> AnnealedEvidence:
    """log p(y) at a fit's hyperparameters, hence how far below it the fit's bound is.

    Annealed importance sampling (Neal 2001) in the guide's white space, where its q(v) is N(0, I):
    from q, by Hamiltonian Monte Carlo, through q^(1 - beta) p(y, v)^beta, beta from 0 to 1. A first
    run finds step sizes for all temperatures, with which the second, whose weights count, is an
    unbiased estimate of the evidence. From exact draws of the posterior the same temperatures are
    also gone through in reverse, which gives an upper end (Grosse et al. 2015).

    Args:
        key: random key.
        model: a model made of `dgp_ppl.gp` layers, without other latent sites.
        guide: its fitted guide, `MeanField` or `GlobalInducing`; of a `Diffusion` its base.
        params: the fit's params.
        *args: the model's arguments.
        target: ``"bound"``: the evidence of what a bound is a bound of, exp(E log p(y | f)) given
            v, with hidden layers' unit noise averaged in the expectation: what a better q(v) could
            still gain. ``"model"``: that of the model that MCMC samples, the unit noise being
            latent variables; the whole gap.
        temperatures: steps K from q to the posterior.
        leapfrogs: leapfrog steps of each transition.
        num_chains: chains C, side by side.
        num_noise: with "bound", draws of the unit noise that stand for its average, the same at all
            v. The evidence is then too high by about half the average's variance at a v of the
            posterior, which falls as 1 / num_noise; a model of one layer has none.
        posterior_samples: draws of the target's posterior, every latent site [S, ...], unit noise
            included with "model": NUTS's ``get_samples()``; C of them are taken, evenly spaced.
        progress: show a progress bar; a string is its label.
        **kwargs: the model's keyword arguments, without a ``batch_size``.

    Raises:
        TypeError: if the guide has no white space.
        ValueError: if the model has other latent sites or takes a minibatch, a number is not
            positive, or `posterior_samples` lacks a site or has too few draws.
    """
    for name, value, least in (
        ("temperatures", temperatures, 1),
        ("leapfrogs", leapfrogs, 1),
        ("num_chains", num_chains, 2),
        ("num_noise", num_noise, 1),
    ):
        if value < least:
            raise ValueError(f"annealed_evidence: {name} is {value}, wanted at least {least}")
    if target not in ("bound", "model"):
        raise ValueError(f"annealed_evidence: target is {target!r}, wanted 'bound' or 'model'")
    base = white_base("annealed_evidence", guide)
    with handlers.block(), handlers.seed(rng_seed=key):
        base.setup(*args, **kwargs)
    skeleton, data = Skeleton.split(model, args, kwargs, base)
    key_noise, key_start, key_pilot, key_run, key_back = random.split(key, 5)
    noise = _noise_sites(base, params, args, kwargs)
    start = {n: jnp.zeros(layer.shape) for n, layer in base.layers.items()}
    if target == "model":
        start |= {n: jnp.zeros(shape) for n, shape in noise.items()}
    keys = random.split(key_noise, num_noise if noise else 1)
    problem = _Problem(base, skeleton, target, leapfrogs, start)
    inputs = params, data, keys
    betas = np.linspace(0.0, 1.0, temperatures + 1)
    z = random.normal(key_start, (num_chains, problem.dim))
    exact = None
    if posterior_samples is not None:
        exact = problem.white(_spaced(posterior_samples, start, num_chains), inputs)
    pilot = betas if temperatures < 4 * _PILOT else np.linspace(0.0, 1.0, temperatures // 4 + 1)
    total = len(pilot) - 1 + temperatures * (1 if exact is None else 2)
    bar = tqdm(total=total, disable=not progress, leave=False, unit=" temperatures")
    bar.set_description("anneal" if progress is True else str(progress), refresh=False)
    with bar:
        run = partial(problem.run, inputs, bar)
        # Sizes that have seen the chains' own starts would make their weights biased.
        other = random.normal(random.fold_in(key_start, 1), z.shape)
        adapted = run(random.split(key_pilot, num_chains), other, pilot, None)
        sizes = np.interp(betas[1:], pilot[1:], adapted.size)
        end = run(random.split(key_run, num_chains), z, betas, sizes)
        value, error, effective = _log_mean(end.log_weight)
        upper: tuple[Any, Any] = None, None
        if exact is not None:
            back = run(random.split(key_back, num_chains), exact, betas[::-1], sizes[::-1])
            minus, upper_error, _ = _log_mean(back.log_weight)
            upper = -minus, upper_error
    draws = {n: np.asarray(a) for n, a in problem.draws(end.z, inputs).items()}
    return AnnealedEvidence(value, error, end.log_weight, effective, draws, end.acceptance, *upper)


def _log_mean(w: np.ndarray) -> tuple[float, float, float]:
    """The log of the mean weight, its standard error, and how many equal weights it is worth."""
    total = float(logsumexp(w))
    effective = float(1 / np.sum(np.exp(w - total) ** 2))
    error = math.sqrt(max((len(w) / effective - 1) / (len(w) - 1), 0.0))
    return total - math.log(len(w)), error, effective


def _spaced(samples: dict[str, Any], sites: dict[str, Array], num: int) -> dict[str, Array]:
    """`num` draws of every site, evenly spaced."""
    shapes = {n: (num, *a.shape) for n, a in sites.items()}
    got = {n: np.shape(samples[n]) for n in shapes if n in samples}
    if set(got) != set(shapes) or any(
        got[n][1:] != s[1:] or got[n][0] < num for n, s in shapes.items()
    ):
        raise ValueError(
            f"annealed_evidence: posterior_samples has {got} of the latent sites, wanted at least "
            f"{shapes}; for unit noise (.eps) sample the model itself by NUTS, or take "
            "target='bound'"
        )
    rows = {n: np.linspace(0, s[0] - 1, num).round().astype(int) for n, s in got.items()}
    return {n: jnp.asarray(np.asarray(samples[n])[rows[n]], float) for n in shapes}


class _State(NamedTuple):
    """Chains at a temperature: white values [C, d], the log ratio there and its slope."""

    z: Array
    ratio: Array
    slope: Array
    log_weight: Array
    log_size: Array
    keys: Array


class _End(NamedTuple):
    """After all temperatures: the chains [C, d], their log weights [C]; by temperature [K]."""

    z: Array
    log_weight: np.ndarray
    size: np.ndarray
    acceptance: np.ndarray


class _Problem:
    """The compiled annealing from N(0, I) to the posterior in a guide's white space."""

    def __init__(
        self, base: LayerGuide, skeleton: Skeleton, target: str, leapfrogs: int, start: Any
    ) -> None:
        self.base, self.skeleton, self.guided = base, skeleton, target == "bound"
        self.leapfrogs, self.dim = leapfrogs, ravel_pytree(start)[0].size
        self.unravel = ravel_pytree(start)[1]
        # Of this instance, so that what they compiled goes when it goes.
        self._first, self._advance = jax.jit(self._start), jax.jit(self._rungs)
        self.white, self.draws = jax.jit(self._white), jax.jit(self._draws)

    def run(self, inputs: Any, bar: Any, keys: Array, z: Array, betas: Any, sizes: Any) -> _End:
        """From z [C, d] through all temperatures; without `sizes` they are found on the way."""
        state, found = self._first(keys, z, inputs), []
        given = np.ones(len(betas) - 1) if sizes is None else sizes
        plan = np.stack([betas[1:], betas[:-1], given], axis=1)
        for start in range(0, len(plan), _CHUNK):
            part = plan[start : start + _CHUNK]
            padded = jnp.zeros((_CHUNK, 3)).at[: len(part)].set(part)
            state, rungs = self._advance(state, inputs, padded, len(part), sizes is None)
            found.append(np.asarray(rungs)[: len(part)])
            bar.update(len(part))
        size, acceptance = np.concatenate(found).T
        return _End(state.z, np.asarray(state.log_weight, np.float64), size, acceptance)

    def _white(self, latents: dict[str, Array], inputs: Any) -> Array:
        """White values [C, d] of latent sites."""
        params, data, _ = inputs
        call = self.skeleton.join(data)
        base = self.skeleton.guide(self.base, data)

        def one(latents: dict[str, Array]) -> Array:
            v = {n: latents[n] for n in base.layers}
            z = white_values(base, v, params, {}, call)
            return ravel_pytree(latents | z)[0]

        return jax.vmap(one)(latents)

    def _draws(self, z: Array, inputs: Any) -> dict[str, Array]:
        """Latent sites at white values [C, d]."""

        def one(z: Array) -> dict[str, Array]:
            _, v = self._log_ratio(z, inputs)
            whole = self.unravel(z)
            return v | {n: a for n, a in whole.items() if n not in v}

        return jax.vmap(one)(z)

    def _log_ratio(self, z: Array, inputs: Any) -> tuple[Array, dict[str, Array]]:
        """log p(y, T(z)) |T'| - log N(z; 0, I), of the layers' and the noise's z, and v."""
        params, data, keys = inputs
        call = self.skeleton.join(data)
        base = self.skeleton.guide(self.base, data)
        values = self.unravel(z)
        layers = {n: values[n] for n in self.base.layers}
        given = {n: a for n, a in values.items() if n not in layers}

        def joint(key: PRNGKey) -> tuple[Array, dict[str, Array]]:
            return white_log_joint(base, layers, key, params, given, call, call, guided=self.guided)

        if len(keys) == 1 or not self.guided:
            log_joint, v = joint(keys[0])
        else:
            log_joint, v = jax.tree.map(partial(jnp.mean, axis=0), jax.vmap(joint)(keys))
        log_start = -0.5 * (jnp.sum(jnp.square(z)) + self.dim * jnp.log(2 * jnp.pi))
        return log_joint - log_start, v

    def _value_and_slope(self, z: Array, inputs: Any) -> tuple[Array, Array]:
        """The log ratio of every chain [C], and its slope [C, d]."""
        return jax.vmap(jax.value_and_grad(lambda z: self._log_ratio(z, inputs)[0]))(z)

    def _start(self, keys: Array, z: Array, inputs: Any) -> _State:
        size = jnp.log(jnp.asarray(0.5 * self.dim**-0.25, z.dtype))
        return _State(z, *self._value_and_slope(z, inputs), jnp.zeros(len(z)), size, keys)

    def _rungs(
        self, state: _State, inputs: Any, plan: Array, num: Any, adapts: Any
    ) -> tuple[_State, Array]:
        """`num` temperatures of a plan [K, 3]: each one, the one before, and the step size."""

        def rung(i: Any, carry: tuple[_State, Array]) -> tuple[_State, Array]:
            state, found = carry
            beta, before, own = plan[i]
            size = jnp.where(adapts, jnp.exp(state.log_size), own)
            weighed = state._replace(log_weight=state.log_weight + (beta - before) * state.ratio)
            moved, rate = self._move(weighed, inputs, beta, size)
            log_size = state.log_size + _GAIN * (rate - _WANTED_RATE)
            return moved._replace(log_size=log_size), found.at[i].set(jnp.stack([size, rate]))

        return lax.fori_loop(0, num, rung, (state, jnp.zeros((len(plan), 2))))

    def _move(self, state: _State, inputs: Any, beta: Array, size: Array) -> tuple[_State, Array]:
        """A transition of Hamiltonian Monte Carlo at a temperature, and its acceptance rate."""
        keys, key_size, key_momentum, key_accept = jnp.moveaxis(
            jax.vmap(lambda k: random.split(k, 4))(state.keys), 1, 0
        )
        # Not all of a length, which could be that of an orbit.
        eps = (
            size * jax.vmap(lambda k: random.uniform(k, minval=0.7, maxval=1.3))(key_size)[:, None]
        )

        def leap(_: Any, at: Any) -> Any:
            z, p, ratio, slope = at
            p = p + 0.5 * eps * (beta * slope - z)
            z = z + eps * p
            ratio, slope = self._value_and_slope(z, inputs)
            return z, p + 0.5 * eps * (beta * slope - z), ratio, slope

        def energy(z: Array, p: Array, ratio: Array, _: Array) -> Array:
            return 0.5 * jnp.sum(jnp.square(z) + jnp.square(p), axis=1) - beta * ratio

        momentum = jax.vmap(lambda k: random.normal(k, (self.dim,)))(key_momentum)
        old = state.z, momentum, state.ratio, state.slope
        new = lax.fori_loop(0, self.leapfrogs, leap, old)
        rate = jnp.exp(jnp.minimum(0.0, energy(*old) - energy(*new)))
        rate = jnp.where(jnp.isfinite(rate), rate, 0.0)
        accept = jax.vmap(random.uniform)(key_accept) < rate
        pick = lambda a, b: jnp.where(accept.reshape(-1, *[1] * (a.ndim - 1)), a, b)  # noqa: E731
        z, _, ratio, slope = map(pick, new, old)
        return state._replace(z=z, ratio=ratio, slope=slope, keys=keys), jnp.mean(rate)


def _noise_sites(
    base: LayerGuide, params: Params, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> dict[str, tuple[int, ...]]:
    """Shapes of the sites of hidden layers' unit noise."""
    sites: dict[str, Any] = {}

    def run() -> None:
        program = handlers.substitute(handlers.seed(base.model, random.PRNGKey(0)), data=params)
        sites.update(handlers.trace(program).get_trace(*args, **kwargs))

    with handlers.block():
        jax.eval_shape(run)
    for name, site in sites.items():
        if site["type"] == "plate" and len(site["value"]) < site["args"][0]:
            raise ValueError(
                f"annealed_evidence: plate {name!r} is subsampled; leave out batch_size: the "
                "evidence is that of all rows"
            )
    latent = {n: s for n, s in sites.items() if s["type"] == "sample" and not s["is_observed"]}
    noise = {n: s["fn"].shape() for n, s in latent.items() if n not in base.layers}
    if others := [n for n in noise if not latent[n]["infer"].get("is_auxiliary")]:
        raise ValueError(
            f"annealed_evidence: the model has other latent sites, {others}; fix them "
            "and hide their priors: handlers.block(handlers.substitute(model, ...), hide=[...])"
        )
    return noise
