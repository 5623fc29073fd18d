"""The adversarial game of implicit posteriors: objective, optimiser, and a diagnostic.

The density of an implicit posterior q(v) is unknown; a discriminator T(v), trained to tell draws of
q from draws of another law, learns log q(v)/p(v) (Yu et al. 2019, "Implicit posterior variational
inference for deep Gaussian processes", section 3; Mescheder et al. 2017, "Adversarial variational
Bayes", sections 2 and 3.3).
"""

import abc
import dataclasses
import math
from functools import lru_cache
from typing import Any, ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax import lax, random
from jaxtyping import Array
from numpyro import handlers
from numpyro.infer import TraceMeanField_ELBO
from numpyro.infer.elbo import ELBO

from dgp_ppl._checks import check_count
from dgp_ppl._partition import ComparedByArguments
from dgp_ppl._typing import Model, Params, PRNGKey
from dgp_ppl.core import Handover, guide_site
from dgp_ppl.inference._optimizer import cosine_schedule
from dgp_ppl.inference.guides._base import LayerGuide
from dgp_ppl.inference.guides.implicit._pair import AdversarialPair

__all__ = [
    "AdversarialELBO",
    "AdversarialGuide",
    "DiscriminatorGap",
    "adversarial_optimizer",
    "discriminator_gap",
]


class AdversarialGuide(LayerGuide):
    """A guide whose q(v) has no density and comes with a discriminator."""

    has_density: ClassVar[bool] = False

    @abc.abstractmethod
    def players(self, params: Params) -> AdversarialPair:
        """Generator and discriminator at these params; once the guide has run."""


class AdversarialELBO(ComparedByArguments, ELBO):
    """The objective of a guide without density, such as `Implicit`: one loss for all players.

    Its value is minus the bound, with the discriminator's estimate in place of the KL:

        -E_q[log p(y | f)] + E_q[T(v)]  (+ the KL of other latent sites),

    with T weighing 1 against a data term that the plate scales by N / B. Its gradient is the
    simultaneous step of the game (Yu et al. 2019, eq. 4 and 5): generator and model get that of
    this value with T's own params held; the discriminator gets that of its cross-entropy with the
    draws held, -E_q log sigma(t) - E_reference log(1 - sigma(t)). Nobody gets any other.

    The value is a bound only as far as T is right (see `discriminator_gap`), and can be far above
    the evidence. `certified`, it has an upper bound on the KL in place of E_q[T]: a bound whatever
    T says, to judge a fit by and not to train with. It asks no discriminator and teaches none.

    Args:
        num_draws: draws of v in the data term, each shared by the whole minibatch, which is one for
            all draws; in antithetic pairs.
        game_draws: draws in E_q[T], and of q and its reference in the cross-entropy; if certified,
            those S in the KL's bound, which credits q with at most log(S + 1) nats of coupling, so
            that more are tighter. (Moments of r are taken from these draws: with K features the
            estimate is too high by up to about K² / (2 S) nats.)
        certified: whether the value is to be a bound.

    Raises:
        TypeError: if a number is no integer; in `loss`, for guides without a discriminator.
        ValueError: if one of them is not positive, or `game_draws` is below `num_draws`.
    """

    def __init__(
        self, num_draws: int = 1, game_draws: int = 256, *, certified: bool = False
    ) -> None:
        for name, value in (("num_draws", num_draws), ("game_draws", game_draws)):
            check_count("AdversarialELBO", name, value)
        if game_draws < num_draws:
            raise ValueError(
                f"AdversarialELBO: game_draws is {game_draws}, wanted at least num_draws, "
                f"{num_draws}: the draws of the data term are some of the game's"
            )
        super().__init__()
        self.num_draws, self.game_draws, self.certified = num_draws, game_draws, certified

    def loss_with_mutable_state(
        self,
        rng_key: PRNGKey,
        param_map: Params,
        model: Model,
        guide: Model,
        *args: Any,
        **kwargs: Any,
    ) -> Any:
        key_s, key_e, key_z, key_p, key_data = random.split(rng_key, 5)
        players = _adversarial("AdversarialELBO", guide).players(param_map)
        h = players.features(key_s, self.game_draws)
        values = players.values(key_e, h[: self.num_draws])

        def rest(i: Any) -> Array:
            """The stock loss given a draw; the same key, hence the same minibatch."""
            laws = players.handed(h[i])
            drawn: Any = {n: guide_site(n, Handover(laws[n]), v[i]) for n, v in values.items()}
            given = handlers.block(handlers.replay(model, drawn), hide=list(laws))
            others = handlers.block(guide, hide=list(laws))
            stock: Any = TraceMeanField_ELBO()
            return stock.loss(key_data, param_map, given, others, *args, **kwargs)

        # Not a vmap: it would make the layers' large products batched ones, which are slower.
        num = self.num_draws
        data = rest(0) if num == 1 else jnp.mean(lax.map(rest, jnp.arange(num)))
        if self.certified:
            others = players.features(key_p, 2 * self.game_draws)[::2]
            penalty = jnp.mean(players.kl_bounds(key_z, h, others)[1])
            return {"loss": data + penalty, "mutable_state": None}
        seen = players.seen(key_z, h)
        judged = eqx.tree_at(lambda p: p.discriminator, players, _held(players.discriminator))
        penalty = jnp.mean(judged.log_ratio(h, seen))
        lesson = players.cross_entropy(_held(seen), players.reference(key_p, self.game_draws))
        return {"loss": data + penalty + lesson - lax.stop_gradient(lesson), "mutable_state": None}


def _held(tree: Any) -> Any:
    return jax.tree.map(lambda a: lax.stop_gradient(a) if eqx.is_array(a) else a, tree)


@lru_cache(maxsize=64)
def adversarial_optimizer(
    learning_rate: float,
    steps: int,
    slow: frozenset[str] = frozenset(),
    *,
    discriminator: float = 0.1,
    generator: float = 0.01,
    share: float = 0.3,
    discriminator_steps: int = 1,
) -> Any:
    """Adam for the players of `AdversarialELBO`, each with a learning rate of its own.

    All with one cosine decay to 3 %. Both networks have little momentum (b1 = 0.5): the target of
    each moves with the other. The discriminator's rate is ten times the generator's, so that it
    keeps up: at equal rates the generator runs into what the discriminator has not seen yet, and
    the loss falls below any bound.

    Args:
        learning_rate: of the generator's affine part, and of guides of other sites, at the start.
        steps: of the fit.
        slow: names of the model's params.
        discriminator: share of the rate for the discriminator.
        generator: share of the rate for the generator's network and directions.
        share: share of the rate for the model's params.
        discriminator_steps: n_D. Generator and model move once in as many steps of the
            discriminator, by the mean of their gradients in these.

    Raises:
        TypeError: if `discriminator_steps` is no integer.
        ValueError: if it is not positive.
    """
    check_count("adversarial_optimizer", "discriminator_steps", discriminator_steps)

    def adam(rate: float, *, b1: float, every: int) -> Any:
        own = optax.adam(cosine_schedule(rate * learning_rate, -(-steps // every)), b1=b1, b2=0.99)
        return own if every == 1 else optax.MultiSteps(own, every).gradient_transformation()

    def label(params: Params) -> dict[str, str]:
        return {n: _player(n, slow) for n in params}

    parts: Any = {
        "discriminator": adam(discriminator, b1=0.5, every=1),
        "generator": adam(generator, b1=0.5, every=discriminator_steps),
        "guide": adam(1.0, b1=0.95, every=discriminator_steps),
        "model": adam(share, b1=0.95, every=discriminator_steps),
    }
    return optax.partition(parts, label)


def _player(name: str, slow: frozenset[str]) -> str:
    if name.startswith("implicit.discriminator."):
        return "discriminator"
    if name.startswith("implicit.generator.") or name.endswith(".directions"):
        return "generator"  # whatever shapes what the discriminator sees
    return "model" if name in slow else "guide"


@dataclasses.dataclass(frozen=True)
class DiscriminatorGap:
    """The discriminator's KL against bounds on the true one, in nats.

    Attributes:
        estimate: E_q T, what the loss has for KL[q || p].
        estimate_se: its standard error.
        lower: a lower bound on KL[q || p] in expectation; the KL itself for a Gaussian generator.
        lower_se: its standard error.
        upper: an upper bound on it, as good.
        upper_se: its standard error.
    """

    estimate: float
    estimate_se: float
    lower: float
    lower_se: float
    upper: float
    upper_se: float

    @property
    def gap(self) -> float:
        """Nats that the estimate is below the lower bound, or (negative) above the upper one.

        The bound that a fit reports is too high by at least as much, or too low; 0 in between.
        """
        return max(self.lower - self.estimate, 0.0) + min(self.upper - self.estimate, 0.0)

    @property
    def lags(self) -> bool:
        """Whether the gap is above three standard errors, 5 % of the KL, and half a nat."""
        error = math.hypot(self.estimate_se, max(self.lower_se, self.upper_se))
        return abs(self.gap) > max(3 * error, 0.05 * abs(self.lower), 0.5)


def discriminator_gap(
    key: PRNGKey,
    guide: AdversarialGuide,
    params: Params,
    *,
    num_draws: int = 2000,
    num_others: int = 2000,
) -> DiscriminatorGap:
    """Whether the discriminator keeps up with the generator: E_q T against the KL's own bounds.

    For a Gaussian generator (``Implicit(model, generator=None)``) the KL is in closed form. For any
    other, q is a mixture of Gaussians over the shared noise, and finite mixtures give a bound from
    either side; see `AdversarialPair.kl_bounds`.

    Args:
        key: random key.
        guide: an `Implicit` guide that has run.
        params: of a fit.
        num_draws: draws of the features, at least 4; hundreds, to be of use.
        num_others: draws of the shared noise in the mixture: the more, the tighter.

    Raises:
        TypeError: for guides without a discriminator, and numbers that are no integers.
        ValueError: for too few draws; if the guide has not run.
    """
    for name, value, least in (("num_draws", num_draws, 4), ("num_others", num_others, 1)):
        check_count("discriminator_gap", name, value, least)
    players = _adversarial("discriminator_gap", guide).players(params)
    terms = _terms(players, key, 2 * -(-num_draws // 2), num_others)
    estimate, lower, upper = (_summary(a) for a in terms)
    return DiscriminatorGap(*estimate, *lower, *upper)


def _adversarial(caller: str, guide: object) -> AdversarialGuide:
    if not isinstance(guide, AdversarialGuide):
        raise TypeError(
            f"{caller}: guide is {getattr(guide, '__name__', type(guide).__name__)}, wanted one "
            "with a discriminator, such as dgp_ppl.Implicit(model); a guide with a density goes "
            "with numpyro.infer.TraceMeanField_ELBO()"
        )
    return guide


@eqx.filter_jit
def _terms(
    players: AdversarialPair, key: PRNGKey, num: int, others: int
) -> tuple[Array, Array, Array]:
    key_s, key_e, key_others = random.split(key, 3)
    h = players.features(key_s, num)
    estimate = players.log_ratio(h, players.seen(key_e, h))
    return estimate, *players.kl_bounds(key_e, h, players.features(key_others, 2 * others)[::2])


def _summary(terms: Array) -> tuple[float, float]:
    """Mean and standard error; antithetic pairs count as one."""
    pairs = np.asarray(terms, np.float64).reshape(-1, 2).mean(axis=1)
    return float(pairs.mean()), float(pairs.std(ddof=1) / math.sqrt(len(pairs)))
