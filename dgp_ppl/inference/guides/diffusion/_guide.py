"""The denoising-diffusion guide: a process over all layers' inducing values."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import cached_property
from typing import Any, ClassVar, Literal

import equinox as eqx
import jax
import jax.numpy as jnp
import numpyro
from jax import lax, random
from jax.flatten_util import ravel_pytree
from jax.tree_util import Partial
from jaxtyping import Array
from numpyro import handlers
from numpyro.distributions import constraints

from dgp_ppl._checks import GivenParams, check_choice, check_count, check_key, check_kind, params_of
from dgp_ppl._partition import Call, compiled
from dgp_ppl._typing import Fitted, Model, Params, PRNGKey, Values
from dgp_ppl.core import DiagonalInducing, Handover, TransportInducing
from dgp_ppl.core._minibatch import padded
from dgp_ppl.inference.guides._base import LayerGuide, Replace, TransportGuide
from dgp_ppl.inference.guides._mean_field import MeanField
from dgp_ppl.inference.guides._modules import module_params
from dgp_ppl.inference.guides._on_base import GuideOnBase
from dgp_ppl.inference.guides._transport import (
    from_reference,
    point_distribution,
    reference_log_joint,
)
from dgp_ppl.inference.guides.diffusion._networks import (
    Score,
    ScoreMaker,
    apply_score,
    default_score,
)
from dgp_ppl.inference.guides.diffusion._process import (
    Control,
    Process,
    VariancePreserving,
    last_step_cost,
    simulate_path,
    simulate_process,
)
from dgp_ppl.inference.programs._handlers import hidden_samples

PREFIX = "diffusion."  # prefix of the process's params
_MAX_NORM = 30.0  # of the target's gradient: a larger one gives the direction, not the distance
_TINY = 1e-12


class Diffusion(GuideOnBase):
    """A denoising-diffusion posterior over all layers' inducing values jointly.

    A process with a learned score moves draws of another guide, the base, in the base's reference
    space. Zero score is the base itself, so start from its fit::

        first = dgp.fit(key, model, MeanField(model), x, y)
        result = dgp.fit(key, model, Diffusion(model), x, y, start=first.params)

    The bound holds at any number of steps. Stock `SVI` with `TraceMeanField_ELBO` uses one path,
    `DiffusionELBO` several.

    Params: the base's; ``diffusion.variance`` [K, H], the steps' variances, last step first;
    ``diffusion.informed`` [K]; ``diffusion.score.PATH``.

    Args:
        model: a model made of `dgp_ppl.gp` layers.
        steps: number of steps K.
        base: `MeanField` (default), `GlobalInducing`, or ``"prior"``.
        score: ``score(t, z)``, or a maker ``score(layers, key=key)``; see `DenseScore`.
        schedule: noise rates of the reference. By default b = 3 throughout; for ``base="prior"``,
            which is far from any posterior, b rises from 0.1 to 20.
        informed: the model's positional arguments (x, y, ...), to add a multiple of the target's
            gradient to the score. Costs one pass through the model per step. Calls without a
            ``batch_size`` use all these rows, so pass a part of large data.
        last: ``"integrated"``: the layers integrate the last step out; ``"drawn"``: they use its
            draw, as importance weights require.

    Raises:
        ValueError: for an unsupported option; at the first call, if base, score or `informed` do
            not match the model.
        TypeError: for an argument of the wrong type.

    Source: Xu & Zeng 2024 (DDVI).
    """

    # One path gives a noisy bound. At the base's usual rate the noise would undo its fit.
    rate: ClassVar[float] = 0.01
    rates: ClassVar[dict[str, float]] = {PREFIX: 0.1}
    array_fields: ClassVar[tuple[str, ...]] = ("informed",)

    def __init__(
        self,
        model: Model,
        *,
        steps: int = 8,
        base: LayerGuide | Literal["prior"] | None = None,
        score: eqx.Module | Score | ScoreMaker | None = None,
        schedule: VariancePreserving | None = None,
        informed: tuple[Any, ...] | None = None,
        last: Literal["integrated", "drawn"] = "integrated",
    ) -> None:
        check_count("Diffusion", "steps", steps)
        _check_types(score, schedule, informed)
        check_choice("Diffusion", "last", last, ("integrated", "drawn"))
        far, near = VariancePreserving(), VariancePreserving(3.0, 3.0)
        is_prior = isinstance(base, str) and base == "prior"
        self.schedule = schedule or (far if is_prior else near)
        chosen: Any = _Prior(model) if is_prior else MeanField(model) if base is None else base
        super().__init__(model, chosen, "MeanField(model), GlobalInducing(model, ...) or 'prior'")
        self.steps = steps
        self.score = default_score if score is None else score
        self.informed, self.last = informed, last
        self.records_states = False

    def drawn(self) -> Diffusion:
        """Return this guide with the last step drawn, and the cost taken at the states drawn.

        The log density of the model's trace minus the guide's is then the log importance weight of
        the path.
        """
        return self.replace(last="drawn")

    def recording_states(self) -> Diffusion:
        """Return this guide with the site ``diffusion.states``, x_K ... x_1 [K, H]."""
        return self.replace(records_states=True)

    @cached_property
    def process(self) -> Process:
        """The process in its steps."""
        return Process.build(self.schedule, self.steps)

    def posterior(self, call: Call) -> dict[str, Handover]:
        key, key_last, key_model = random.split(self.random_key(), 3)
        zeros = {n: jnp.zeros(layer.shape) for n, layer in self.layers.items()}
        flat, unravel = ravel_pytree(zeros)
        eta: Any = jnp.tile(jnp.asarray(self.process.variance, flat.dtype)[:, None], flat.size)
        eta = numpyro.param(f"{PREFIX}variance", eta, constraint=constraints.positive)
        control, gradient = self._control(key_model, unravel, call)
        drawn = self.last == "drawn"
        x, mean, cost = simulate_process(
            key, self.process, control, eta, given=gradient, drawn=drawn
        )
        if self.records_states:
            path = simulate_path(key, self.process, control, eta, given=gradient)
            numpyro.deterministic(f"{PREFIX}states", path)
        scale = jnp.sqrt(eta[0])
        loc, sd = unravel(mean), unravel(scale)
        if drawn:
            end = mean + scale * random.normal(key_last, mean.shape, mean.dtype)
            cost = cost + last_step_cost(self.process, x, end, 0.0)
            handovers = self._drawn_at(unravel(end), loc, sd, call)
        else:
            cost = cost + last_step_cost(self.process, x, mean, eta[0])
            handovers = self.base.transport(call, lambda n, q: q.scaled(loc[n], sd[n]))
        numpyro.factor(f"{PREFIX}path", cost)
        return handovers

    def _drawn_at(self, z: Values, loc: Values, sd: Values, call: Call) -> dict[str, Handover]:
        """Hand over v = T(z), for z drawn from N(loc, sd²)."""
        scaled: dict[str, TransportInducing] = {}

        def at_z(site: str, q: TransportInducing) -> TransportInducing:
            scaled[site] = q.scaled(loc[site], sd[site])
            return point_distribution(site, q, z[site])

        handovers = self.base.transport(call, at_z)
        white = {n: (z[n] - loc[n]) / sd[n] for n in handovers}  # known: T need not be inverted
        return {
            n: h._replace(q=None, site=scaled[n], value=h.distribution.loc, white=white[n])
            for n, h in handovers.items()
        }

    def _control(
        self, key: PRNGKey, unravel: Any, call: Call
    ) -> tuple[Control, Callable[[Array], Array] | None]:
        """Return the control of flat states, and the target's gradient that it is given."""
        what, name = "Diffusion: the score", f"{PREFIX}score"
        learned, static = module_params(what, self.score, name, self.layers)
        multiples: Any = None
        gradient: Callable[[Array], Array] | None = None
        if self.informed is not None:
            start = jnp.full((self.steps,), math.exp(-5.0))
            name = f"{PREFIX}informed"
            multiples = numpyro.param(name, start, constraint=constraints.positive)
            gradient = self._target_gradient(key, unravel, call)
        when = self.process.times[1:]

        def control(params: Any, k: Array, x: Array, *gradient: Array) -> Array:
            (arrays, multiples), z = params, unravel(x)
            t = jnp.asarray(when, x.dtype)[k]
            u = ravel_pytree(apply_score(eqx.combine(arrays, static), t, z))[0].astype(x.dtype)
            return u + multiples[k] * gradient[0] if gradient else u

        return Partial(control, (learned, multiples)), gradient

    def _target_gradient(self, key: PRNGKey, unravel: Any, call: Call) -> Callable[[Array], Array]:
        """Return the capped gradient of log p(y, T(z)) |T'| / N(z; 0, I) at flat z, a constant."""
        data = Call(self.informed or (), call.without("x", "y").kwargs)
        # The process runs in a loop that no message may leave, so it gets the params' values.
        # Padding belongs to the data of the fit, not to the guide's own data.
        with (
            padded(None), hidden_samples(), handlers.trace() as sites, handlers.seed(rng_seed=key)
        ):  # fmt: skip
            self.base.posterior(call)
            self.model(*data.args, **data.kwargs)
        if not any(s.get("is_observed") for s in sites.values()):
            raise ValueError(
                f"Diffusion: informed has {len(data.args)} of the model's arguments, with which "
                "the model observes nothing; wanted the data too, as in informed=(x, y)"
            )
        params = {n: s["value"] for n, s in sites.items() if s["type"] == "param"}

        def log_ratio(x: Array) -> Array:
            z = unravel(x)
            with padded(None):
                log_joint, _ = reference_log_joint(self.base, z, key, params, call, data)
            return log_joint + 0.5 * jnp.sum(jnp.square(x))

        def gradient(x: Array) -> Array:
            g = lax.stop_gradient(jax.grad(log_ratio)(lax.stop_gradient(x)))
            return g * jnp.minimum(1.0, _MAX_NORM / jnp.sqrt(jnp.sum(jnp.square(g)) + _TINY))

        return gradient


def diffusion_paths(
    key: PRNGKey,
    guide: Diffusion,
    params: Params | Fitted,
    *args: Any,
    num_paths: int = 100,
    **kwargs: Any,
) -> dict[str, Array]:
    """Draw paths of a `Diffusion` guide: the inducing values after each denoising step.

    The last states are the draws of ``guide.sample_posterior(key, params, *args,
    sample_shape=(num_paths,), **kwargs)``. The first states are noise. Under the default schedules
    they are N(0, I) in the base's reference space, so v has the base's distribution (the prior with
    ``base="prior"``). `dgp_ppl.plots.diffusion_paths` draws the result::

        paths = diffusion_paths(key, guide, result.params, x, y)
        plots.diffusion_paths(paths)

    Args:
        key: random key.
        guide: a `Diffusion` guide.
        params: the params of a fit, or its result.
        *args: positional arguments of the model.
        num_paths: number of paths S.
        **kwargs: keyword arguments of the model.

    Returns:
        The inducing values at the states x_K ... x_0 by site (such as ``l1.v``),
        [S, K + 1, M, P].

    Raises:
        TypeError: if the guide is not a `Diffusion`, if the base's mean has inducing inputs of
            its own (as `Decoupled` has), or if `num_paths` is not an integer.
        ValueError: if `num_paths` is not positive, or params lack one of the guide or have another
            shape of it.
    """
    check_key("diffusion_paths", key)
    check_kind("diffusion_paths", "guide", guide, Diffusion, "a Diffusion")
    check_count("diffusion_paths", "num_paths", num_paths)
    guide.setup(*args, **kwargs)
    params = params_of("diffusion_paths", params)
    program = GivenParams(guide.recording_states(), params, "diffusion_paths")
    layers = guide.layers
    _, unravel = ravel_pytree({n: jnp.zeros(layer.shape) for n, layer in layers.items()})

    def path(key: PRNGKey) -> dict[str, Array]:
        sites: Any = handlers.trace(handlers.seed(program, key)).get_trace(*args, **kwargs)
        drawn = {n: s for n, s in sites.items() if s["type"] == "sample" and not s["is_observed"]}
        values = {n: s["value"] for n, s in drawn.items()}
        end = {n: values.pop(n) for n in layers}
        states = jax.vmap(unravel)(sites[f"{PREFIX}states"]["value"])
        v_of = lambda z: from_reference(guide.base, z, params, Call(args, kwargs, values))  # noqa: E731
        states = jax.lax.map(v_of, states)
        return {n: jnp.concatenate([states[n], end[n][None]]) for n in layers}

    return compiled(jax.vmap(path))(random.split(key, num_paths))


class _Prior(TransportGuide):
    """A guide that is the prior of every layer, without params."""

    def transport(self, call: Call, replace: Replace) -> dict[str, Handover]:
        handovers = {}
        for n, layer in self.layers.items():
            prior = DiagonalInducing(
                jnp.zeros(layer.shape), jnp.ones(layer.shape), validate_args=False
            )
            handovers[n] = Handover(replace(n, prior))
        return handovers


def _check_types(score: Any, schedule: Any, informed: Any) -> None:
    wanted = "a callable (t, z), or a callable (layers, key) that makes one; or leave it out"
    check_kind("Diffusion", "score", score, Callable | None, wanted)
    wanted = f"noise rates, such as {VariancePreserving()}"
    check_kind("Diffusion", "schedule", schedule, VariancePreserving | None, wanted)
    if not (informed is None or (isinstance(informed, tuple) and informed)):
        got = "()" if isinstance(informed, tuple) else f"a {type(informed).__name__}"
        raise TypeError(
            f"Diffusion: informed is {got}, wanted a tuple of the model's positional arguments; "
            "pass informed=(x, y)"
        )
