"""The denoising-diffusion guide: a chain over all layers' inducing values, with a learned score."""

import copy
import math
from collections.abc import Callable, Hashable
from typing import Any, ClassVar, Literal, Self

import equinox as eqx
import jax
import jax.numpy as jnp
import numpyro
from jax import lax, random
from jax.flatten_util import ravel_pytree
from jaxtyping import Array
from numpyro import handlers
from numpyro.distributions import constraints

from dgp_ppl._checks import check_count
from dgp_ppl._partition import Call
from dgp_ppl._typing import Model, PRNGKey
from dgp_ppl.core import DiagonalInducing, Handover, TransportInducing
from dgp_ppl.inference._handlers import hidden_samples
from dgp_ppl.inference.guides._base import LayerGuide, Replace, TransportGuide
from dgp_ppl.inference.guides._mean_field import MeanField
from dgp_ppl.inference.guides._transport import point_distribution, reference_log_joint
from dgp_ppl.inference.guides.diffusion._networks import (
    Score,
    ScoreMaker,
    apply_score,
    default_score,
    score_params,
)
from dgp_ppl.inference.guides.diffusion._process import (
    Control,
    Estimator,
    Process,
    Schedule,
    VariancePreserving,
    last_step_cost,
    simulate_path,
    simulate_process,
)

__all__ = ["Diffusion"]

PREFIX = "diffusion."  # of the params that are the chain's own
_CAP = 30.0  # of the gradient's norm: what is larger says where to go, not how far
_TINY = 1e-12


class Diffusion(LayerGuide):
    """A denoising-diffusion posterior over all layers' inducing values jointly.

    After Xu & Zeng's DDVI and with the exact transitions of `chain`, so that the bound holds at any
    number of steps. The chain lives in the base's white space: the base is a bijection v = T(z) of
    z ~ N(0, I), and the chain with zero control, where it starts, is the base itself. It contains
    the base, and is started from the base's fit (`fit` then moves all but the chain at a
    hundredth of its learning rate: one draw of a chain is a noisy bound)::

        first = dgp.fit(key, model, MeanField(model), x, y, z=z)
        result = dgp.fit(key, model, Diffusion(model), x, y, z=z, start=first.params)

    The chain is drawn down to its last step; what is then left is the base's Gaussian, moved and
    rescaled, and the layers integrate it out as they do the base's. The rest of the bound is one
    factor, ``diffusion.path``: stock `SVI` with `TraceMeanField_ELBO` is the bound, with one chain;
    `DiffusionELBO` takes several, and other gradients.

    Params: the base's; ``diffusion.variance`` [K, H], the variances of the steps (the first row is
    the last step's; H numbers, in the order of the sites' names); ``diffusion.score.*``, one for
    each array of the score.

    Args:
        model: a model made of `dgp_ppl.gp` layers.
        steps: number of steps K.
        base: the guide that zero control is: a `LayerGuide` (`MeanField(model)` by default;
            `GlobalInducing` for layers that follow each other), or ``"prior"``. The guides of other
            latent sites are the base's.
        score: any callable ``score(t, z)`` (see `DenseScore`), such as an `equinox` module,
            whose arrays are learned, or a function, which has none. One that requires a
            parameter named ``key`` is called as ``score(layers, key=key)`` to make it (layers:
            `Layer` by site), as is `score.default_score`, the default.
        schedule: how the reference noises; `VariancePreserving` by default, with b = 3 throughout
            or, for ``base="prior"``, which is far from any posterior, from 0.1 to 20.
        discretization: ``"exact"``; or ``"euler"``, the algorithm as Xu & Zeng print it, for
            comparison only: it is no bound, and can exceed the evidence (`Process.euler` says what
            it has). The variances of its steps are not learned.
        informed: the model's positional arguments (x, y, ...) as a tuple: each step's score then
            has a learned multiple, e⁻⁵ at first, of the gradient of log p(y, T(z)) |T'| / N(z; 0,
            I), its norm at most 30 and held constant. It costs a pass through the model a step, on
            a minibatch of its own where the call has a ``batch_size`` (one draw for a chain; the
            bound holds for any rows). Draws and predictions have none and take all these rows: of
            large data give a part.
        stick_the_landing: hold the densities' params constant in the cost of all steps but the
            last, which leaves its expectation as it is and lowers its noise near the optimum.
        last: ``"integrated"``, or ``"drawn"``: the layers then use the draw, and the chain's cost
            is that of the states drawn, as importance weights need it.

    Raises:
        ValueError: for other options than these, if `steps` is not positive, for a schedule that
            adds no noise, and at the first call if `base` is of a model with other layers, a score
            has other shapes than its state, or the model observes nothing of `informed`.
        TypeError: for a `steps` that is no integer, a `schedule` that is none, a `score` that is no
            callable or has integer arrays, an `informed` that is no tuple.
    """

    # One draw of the chain is a noisy bound: at a base's own rate the noise undoes its fit.
    rate: ClassVar[float] = 0.01
    rates: ClassVar[dict[str, float]] = {PREFIX: 0.1}
    held: ClassVar[tuple[str, ...]] = ("informed",)

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
                "Diffusion: stick_the_landing goes with last='integrated': chains drawn to "
                "their end make importance weights, which hold nothing constant"
            )
        if base is None or base == "prior":
            base = _Prior(model) if base == "prior" else MeanField(model)
        if not isinstance(base, TransportGuide):
            raise ValueError(
                f"Diffusion: base is {base!r}, wanted MeanField(model), GlobalInducing(model, ...) "
                "or 'prior'"
            )
        super().__init__(model, rest=base.rest)
        self.base, self.steps, self.discretization = base, steps, discretization
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
        self.chain = build(self.schedule, steps)
        self.keeps_states = False

    def drawn(self, *, detached: bool = False) -> Self:
        """The same guide with the last step drawn, and its cost that of the states drawn.

        A trace's log density, less that of the guide's, is then the chain's log importance weight.
        `detached` holds the states constant in gradients.
        """
        return self.changed(last="drawn", estimator="detached" if detached else "drawn")

    def keeping_states(self) -> "Diffusion":
        """The same guide with the site ``diffusion.states``, x_K ... x_1 [K, H]."""
        return self.changed(keeps_states=True)

    def with_model(self, model: Model) -> Self:
        return super().with_model(model).changed(base=self.base.with_model(model))

    @property
    def arrays(self) -> dict[str, Any]:
        return {"informed": self.informed, "base": self.base.arrays}

    def holding(self, arrays: dict[str, Any]) -> "Diffusion":
        other = copy.copy(self)
        other.informed, other.base = arrays["informed"], self.base.holding(arrays["base"])
        return other

    def find_layers(self, call: Call) -> dict[str, Any]:
        trace = super().find_layers(call)
        self.base.setup(*call.args, **call.kwargs)
        if self.base.layers != self.layers:
            raise ValueError(
                f"Diffusion: base is of a model with the layers {self.base.layers}, wanted those "
                f"of this model, {self.layers}; make both of one model"
            )
        return trace

    def posterior(self, call: Call) -> dict[str, Handover]:
        key, key_last, key_model = random.split(_key(), 3)
        zeros = {n: jnp.zeros(layer.shape) for n, layer in self.layers.items()}
        flat, unravel = ravel_pytree(zeros)
        eta: Any = jnp.tile(jnp.asarray(self.chain.variance, flat.dtype)[:, None], flat.size)
        if self.discretization == "exact":
            eta = numpyro.param(f"{PREFIX}variance", eta, constraint=constraints.positive)
        controls = self._controls(key_model, unravel, call)
        x, mean, cost = simulate_process(
            key, self.chain, controls[0], eta, frozen_control=controls[1], estimator=self.estimator
        )
        if self.keeps_states:
            path = simulate_path(key, self.chain, controls[0], eta)
            numpyro.deterministic(f"{PREFIX}states", path)
        scale = jnp.sqrt(eta[0])
        loc, sd = unravel(mean), unravel(scale)
        if self.last == "integrated":
            cost = cost + last_step_cost(self.chain, x, mean, eta[0])
            handed = self.base.transport(call, lambda n, q: q.scaled(loc[n], sd[n]))
        else:
            end = mean + scale * random.normal(key_last, mean.shape, mean.dtype)
            if self.estimator == "detached":
                end = lax.stop_gradient(end)
            cost = cost + last_step_cost(self.chain, x, end, 0.0)
            handed = self._drawn_at(unravel(end), loc, sd, call)
        numpyro.factor(f"{PREFIX}path", cost)
        return handed

    def _drawn_at(
        self,
        z: dict[str, Array],
        loc: dict[str, Array],
        sd: dict[str, Array],
        call: Call,
    ) -> dict[str, Handover]:
        """v = T(z), for z drawn from N(loc, sd²)."""
        found: dict[str, TransportInducing] = {}

        def at_z(site: str, q: TransportInducing) -> TransportInducing:
            found[site] = q.scaled(loc[site], sd[site])
            return point_distribution(site, q, z[site])

        handed = self.base.transport(call, at_z)
        white = {n: (z[n] - loc[n]) / sd[n] for n in handed}  # by T alone, v need not be inverted
        return {
            n: h._replace(q=None, site=found[n], value=h.distribution.loc, white=white[n])
            for n, h in handed.items()
        }

    def _controls(
        self,
        key: PRNGKey,
        unravel: Any,
        call: Call,
    ) -> tuple[Control, Control]:
        """The control of flat states, and the same with its params held constant."""
        learned, static = score_params(self.score, self.layers, f"{PREFIX}score")
        multiples: Any = None
        gradient: Callable[[Array], Array] | None = None
        if self.informed is not None:
            start = jnp.full((self.steps,), math.exp(-5.0))
            name = f"{PREFIX}informed"
            multiples = numpyro.param(name, start, constraint=constraints.positive)
            gradient = self._target_gradient(key, unravel, call)
        when = jnp.asarray(self.chain.times[1:] / self.schedule.horizon)

        def control_of(arrays: Any, multiples: Any) -> Control:
            score: Any = eqx.combine(arrays, static)

            def control(k: Array, x: Array) -> Array:
                u = apply_score(score, when[k].astype(x.dtype), unravel(x))
                u = ravel_pytree(u)[0].astype(x.dtype)
                return u if gradient is None else u + multiples[k] * gradient(x)

            return control

        held = lax.stop_gradient((learned, multiples))
        return control_of(learned, multiples), control_of(*held)

    def _target_gradient(
        self,
        key: PRNGKey,
        unravel: Any,
        call: Call,
    ) -> Callable[[Array], Array]:
        """The gradient of log p(y, T(z)) |T'| / N(z; 0, I) at flat z, capped and held constant."""
        data = Call(self.informed or (), call.without("x", "y").kwargs)
        # Inside the chain's loop no message may reach the handlers outside: it gets the params.
        with hidden_samples(), handlers.trace() as sites, handlers.seed(rng_seed=key):
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
            log_joint, _ = reference_log_joint(self.base, z, key, params, call, data)
            return log_joint + 0.5 * jnp.sum(jnp.square(x))

        def gradient(x: Array) -> Array:
            g = lax.stop_gradient(jax.grad(log_ratio)(lax.stop_gradient(x)))
            return g * jnp.minimum(1.0, _CAP / jnp.sqrt(jnp.sum(jnp.square(g)) + _TINY))

        return gradient


class _Prior(TransportGuide):
    """The prior of every layer, without params."""

    def transport(self, call: Call, replace: Replace) -> dict[str, Handover]:
        handed = {}
        for n, layer in self.layers.items():
            prior = DiagonalInducing(
                jnp.zeros(layer.shape), jnp.ones(layer.shape), validate_args=False
            )
            handed[n] = Handover(replace(n, prior))
        return handed


def _check_types(score: Any, schedule: Any, informed: Any) -> None:
    if not (score is None or callable(score)):
        raise TypeError(
            f"Diffusion: score is {score!r}, wanted a callable (t, z), or one (layers, key) that "
            "makes it; leave it out for the default"
        )
    if not (schedule is None or isinstance(schedule, Schedule)):
        raise TypeError(
            f"Diffusion: schedule is {schedule!r}, wanted an object with horizon, variance, "
            f"rate(t) and diffusion(t), such as {VariancePreserving()}"
        )
    if not isinstance(schedule, Hashable):
        raise ValueError(
            f"Diffusion: schedule is a {type(schedule).__name__}, which has no hash; wanted one "
            "that has: make it a dataclass with frozen=True"
        )
    if not (informed is None or (isinstance(informed, tuple) and informed)):
        got = "()" if isinstance(informed, tuple) else f"a {type(informed).__name__}"
        raise TypeError(
            f"Diffusion: informed is {got}, wanted a tuple of the model's positional arguments; "
            "pass informed=(x, y)"
        )


def _key() -> PRNGKey:
    key = numpyro.prng_key()
    if key is None:
        raise ValueError(
            "Diffusion needs a random key: run it under numpyro.handlers.seed, or through SVI"
        )
    return key
