"""The denoising-diffusion guide: a process over all layers' inducing values."""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable
from typing import Any, ClassVar, Literal, Self

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

from dgp_ppl._checks import check_count
from dgp_ppl._partition import Call
from dgp_ppl._typing import Model, PRNGKey
from dgp_ppl.core import DiagonalInducing, Handover, TransportInducing, padded
from dgp_ppl.inference.guides._base import LayerGuide, Replace, TransportGuide
from dgp_ppl.inference.guides._mean_field import MeanField
from dgp_ppl.inference.guides._on_base import GuideOnBase
from dgp_ppl.inference.guides._transport import point_distribution, reference_log_joint
from dgp_ppl.inference.guides.diffusion._networks import (
    MixerScore,
    Score,
    ScoreMaker,
    apply_score,
    default_score,
    score_params,
)
from dgp_ppl.inference.guides.diffusion._process import (
    Estimator,
    Process,
    Schedule,
    VariancePreserving,
    last_step_cost,
    simulate_path,
    simulate_process,
)
from dgp_ppl.inference.guides.diffusion._walk import Control
from dgp_ppl.inference.programs._handlers import hidden_samples

__all__ = ["PREFIX", "Diffusion"]

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
        schedule: noise rates of the reference; see `VariancePreserving`.
        discretization: ``"exact"``; or ``"euler"``, the paper's algorithm, which is not a bound.
        informed: the model's positional arguments (x, y, ...), to add a multiple of the target's
            gradient to the score. Costs one pass through the model per step. Calls without a
            ``batch_size`` use all these rows, so pass a part of large data.
        stick_the_landing: whether to hold the densities' params constant in the cost, for gradients
            with less noise near the optimum.
        last: ``"integrated"``: the layers integrate the last step out; ``"drawn"``: they use its
            draw, as importance weights require.

    Raises:
        ValueError: for an unsupported option or combination; at the first call, if base, score or
            `informed` do not match the model.
        TypeError: for an argument of the wrong type.

    Source: Xu & Zeng 2024 (DDVI).
    """

    # One path gives a noisy bound. At the base's usual rate the noise would undo its fit.
    rate: ClassVar[float] = 0.01
    rates: ClassVar[dict[str, float]] = {PREFIX: 0.1}
    array_arguments: ClassVar[tuple[str, ...]] = ("informed",)

    def __init__(
        self,
        model: Model,
        *,
        steps: int = 8,
        base: LayerGuide | Literal["prior"] | None = None,
        score: eqx.Module | Score | ScoreMaker | None = None,
        schedule: Schedule | None = None,
        discretization: Literal["exact", "euler"] = "exact",
        informed: tuple[Any, ...] | None = None,
        stick_the_landing: bool = False,
        last: Literal["integrated", "drawn"] = "integrated",
    ) -> None:
        check_count("Diffusion", "steps", steps)
        _check_types(score, schedule, informed)
        for name, value, wanted in (
            ("discretization", discretization, ("exact", "euler")),
            ("last", last, ("integrated", "drawn")),
        ):
            if value not in wanted:
                raise ValueError(f"Diffusion: {name} is {value!r}, wanted {' or '.join(wanted)}")
        if stick_the_landing and last == "drawn":
            raise ValueError(
                "Diffusion: stick_the_landing is True with last='drawn', wanted last='integrated'; "
                "drawn paths make importance weights, which hold no params constant"
            )
        if base is None or base == "prior":
            base = _Prior(model) if base == "prior" else MeanField(model)
        super().__init__(model, base, "MeanField(model), GlobalInducing(model, ...) or 'prior'")
        self.steps, self.discretization = steps, discretization
        self.score = default_score if score is None else score
        far = VariancePreserving()
        near = VariancePreserving(low=3.0, high=3.0)
        default = far if isinstance(base, _Prior) else near
        self.schedule = default if schedule is None else schedule
        self.informed, self.last = informed, last
        self.estimator: Estimator = (
            "drawn" if last == "drawn" else "landing" if stick_the_landing else "expected"
        )
        build = Process.exact if discretization == "exact" else Process.euler
        self.process = build(self.schedule, steps)
        self.records_states = False

    def drawn(self) -> Self:
        """Return this guide with the last step drawn, and the cost taken at the states drawn.

        The log density of the model's trace minus the guide's is then the log importance weight of
        the path.
        """
        return self.changed(last="drawn", estimator="drawn")

    def recording_states(self) -> Diffusion:
        """Return this guide with the site ``diffusion.states``, x_K ... x_1 [K, H]."""
        return self.changed(records_states=True)

    @property
    def arrays(self) -> dict[str, Any]:
        return {"informed": self.informed, **super().arrays}

    def posterior(self, call: Call) -> dict[str, Handover]:
        key, key_last, key_model = random.split(self.random_key(), 3)
        zeros = {n: jnp.zeros(layer.shape) for n, layer in self.layers.items()}
        flat, unravel = ravel_pytree(zeros)
        eta: Any = jnp.tile(jnp.asarray(self.process.variance, flat.dtype)[:, None], flat.size)
        if self.discretization == "exact":
            eta = numpyro.param(f"{PREFIX}variance", eta, constraint=constraints.positive)
        control, gradient = self._control(key_model, unravel, call)
        x, mean, cost = simulate_process(
            key, self.process, control, eta, given=gradient, estimator=self.estimator
        )
        if self.records_states:
            path = simulate_path(key, self.process, control, eta, given=gradient)
            numpyro.deterministic(f"{PREFIX}states", path)
        scale = jnp.sqrt(eta[0])
        loc, sd = unravel(mean), unravel(scale)
        if self.last == "integrated":
            cost = cost + last_step_cost(self.process, x, mean, eta[0])
            handovers = self.base.transport(call, lambda n, q: q.scaled(loc[n], sd[n]))
        else:
            end = mean + scale * random.normal(key_last, mean.shape, mean.dtype)
            cost = cost + last_step_cost(self.process, x, end, 0.0)
            handovers = self._drawn_at(unravel(end), loc, sd, call)
        numpyro.factor(f"{PREFIX}path", cost)
        return handovers

    def _drawn_at(
        self,
        z: dict[str, Array],
        loc: dict[str, Array],
        sd: dict[str, Array],
        call: Call,
    ) -> dict[str, Handover]:
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
        self,
        key: PRNGKey,
        unravel: Any,
        call: Call,
    ) -> tuple[Control, Callable[[Array], Array] | None]:
        """Return the control of flat states, and the target's gradient that it is given."""
        learned, static = score_params(self.score, self.layers, f"{PREFIX}score")
        multiples: Any = None
        gradient: Callable[[Array], Array] | None = None
        if self.informed is not None:
            start = jnp.full((self.steps,), math.exp(-5.0))
            name = f"{PREFIX}informed"
            multiples = numpyro.param(name, start, constraint=constraints.positive)
            gradient = self._target_gradient(key, unravel, call)
        when = self.process.times[1:] / self.schedule.horizon

        score: Any = eqx.combine(learned, static)
        if mixer := isinstance(score, MixerScore):
            learned, static = eqx.partition(score.at(jnp.asarray(when)), eqx.is_array)

        def control(params: Any, k: Array, x: Array, *gradient: Array) -> Array:
            (arrays, multiples), z = params, unravel(x)
            score: Any = eqx.combine(arrays, static)
            # `walk` wants constants that are not traced: NumPy's.
            u = score(k, z) if mixer else apply_score(score, jnp.asarray(when, x.dtype)[k], z)
            u = ravel_pytree(u)[0].astype(x.dtype)
            return u + multiples[k] * gradient[0] if gradient else u

        return Partial(control, (learned, multiples)), gradient

    def _target_gradient(
        self,
        key: PRNGKey,
        unravel: Any,
        call: Call,
    ) -> Callable[[Array], Array]:
        """Return the function z -> gradient of log p(y, T(z)) |T'| / N(z; 0, I), for flat z.

        The gradient is capped in norm and held constant.
        """
        data = Call(self.informed or (), call.without("x", "y").kwargs)
        # The process runs in a loop that no message may leave, so it gets the params' values.
        # Padding is that of the data of the fit, not of the guide's own.
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
    if not (score is None or callable(score)):
        raise TypeError(
            f"Diffusion: score is {score!r}, wanted a callable (t, z), or a callable (layers, key) "
            "that makes one; leave it out for the default"
        )
    if not (schedule is None or isinstance(schedule, Schedule)):
        raise TypeError(
            f"Diffusion: schedule is {schedule!r}, wanted an object with horizon, variance, "
            f"rate(t) and diffusion(t), such as {VariancePreserving()}"
        )
    if not isinstance(schedule, Hashable):
        raise ValueError(
            f"Diffusion: schedule is a {type(schedule).__name__}, which has no hash, wanted a "
            "hashable schedule; make it a dataclass with frozen=True"
        )
    if not (informed is None or (isinstance(informed, tuple) and informed)):
        got = "()" if isinstance(informed, tuple) else f"a {type(informed).__name__}"
        raise TypeError(
            f"Diffusion: informed is {got}, wanted a tuple of the model's positional arguments; "
            "pass informed=(x, y)"
        )
