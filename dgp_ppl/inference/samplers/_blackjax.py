"""Any sampler of BlackJAX as a kernel for NumPyro's `MCMC`."""

from __future__ import annotations

import importlib.util
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import random
from jaxtyping import Array

from dgp_ppl._checks import check_kind
from dgp_ppl._typing import Model, PRNGKey, Values
from dgp_ppl.inference.samplers._dynamics import Flat
from dgp_ppl.inference.samplers._kernel import ExactKernel, FlatDensity

_LEAST_WARMUP = 20  # steps of an adaptation
_SHOWN = ("acceptance_rate", "num_integration_steps")  # in the progress bar


class BlackJAXState(NamedTuple):
    """The state of a chain of `BlackJAXKernel`, and BlackJAX's statistics by NumPyro's names."""

    i: Array  # steps done
    z: Values  # unconstrained values of the latent sites
    chain: Any  # BlackJAX's state
    info: Any  # BlackJAX's information about the step; zeros before the first
    diverging: Array  # whether BlackJAX calls the step divergent, or its values are not finite
    parameters: dict[str, Any]  # settings that the adaptation has found, by name
    rng_key: PRNGKey  # random key

    @property
    def potential_energy(self) -> Array:
        return -self.chain.logdensity

    @property
    def energy_error(self) -> Array:
        return self.info.energy_change

    @property
    def accept_prob(self) -> Array:
        return self.info.acceptance_rate

    @property
    def num_steps(self) -> Array:
        return self.info.num_integration_steps


class BlackJAXKernel(ExactKernel):
    """A sampler of BlackJAX for any NumPyro model, as a kernel for NumPyro's `MCMC`.

    BlackJAX's samplers take a log density and their settings. `algorithm` binds the settings::

        mala = dgp.BlackJAXKernel(model, lambda density: blackjax.mala(density, step_size=0.01))
        mcmc = MCMC(mala, num_warmup=1000, num_samples=5000)

    The log density is a function of the flat unconstrained values [d] of all latent sites, sites in
    alphabetical order, as `jax.flatten_util.ravel_pytree` puts them. BlackJAX's adaptations find
    settings, in `init`, by `num_warmup` steps of their own. NumPyro's warm-up follows them::

        def adaptation(density):
            return blackjax.window_adaptation(blackjax.nuts, density)

        dgp.BlackJAXKernel(model, blackjax.nuts, adaptation=adaptation)

    Elliptical slice sampling (Murray et al. 2010) draws from a Gaussian times a function. Any
    density is N(0, 1) times a function, and where the latent values have the prior N(0, 1), as v of
    `gp`, that function is the likelihood::

        def slices(density):
            likelihood = lambda u: density(u) + 0.5 * u @ u
            return blackjax.elliptical_slice(likelihood, mean=jnp.zeros(d), cov=jnp.ones(d))

    Fields of BlackJAX's state and information are `extra_fields`, with dots:
    ``"info.acceptance_rate"``, ``"chain.logdensity"``, ``"parameters.step_size"``.

    Args:
        model: a NumPyro model with continuous latent sites, and no minibatches.
        algorithm: a function from the log density, and settings by name that `adaptation` has
            found, to a ``blackjax.SamplingAlgorithm``, whose state has a ``position``.
        adaptation: a function from the log density to BlackJAX's adaptation; None for none.
        init_strategy: NumPyro's, for sites that ``init_params`` omits; None for `init_to_uniform`.

    Raises:
        ImportError: if BlackJAX is not installed.
        TypeError: in `init`, if `algorithm` returns something else.
        ValueError: in `init`, if the model has discrete sites or minibatches, ``init_params`` do
            not fit, the log density or its gradient is not finite, or an adaptation has fewer than
            20 steps of warm-up.
    """

    default_fields: Any = ("z", "diverging")

    def __init__(
        self,
        model: Model,
        algorithm: Callable[..., Any],
        *,
        adaptation: Callable[[FlatDensity], Any] | None = None,
        init_strategy: Callable[..., Any] | None = None,
    ) -> None:
        caller = type(self).__name__
        if importlib.util.find_spec("blackjax") is None:
            raise ImportError(
                f"{caller}: wanted blackjax; python -m pip install 'dgp_ppl[blackjax]'"
            )
        wanted = "a function of the log density, as lambda d: blackjax.mala(d, step_size=0.01)"
        check_kind(caller, "algorithm", algorithm, Callable, wanted)
        check_kind(caller, "adaptation", adaptation, Callable | None, wanted)
        super().__init__(model, init_strategy)
        self.algorithm, self.adaptation = algorithm, adaptation

    def get_diagnostics_str(self, state: BlackJAXState) -> str:
        known = {n: state.parameters[n] for n in ("step_size", "L") if n in state.parameters}
        known |= {n: getattr(state.info, n) for n in _SHOWN if hasattr(state.info, n)}
        return ", ".join(f"{n.replace('_', ' ')} {a:.2g}" for n, a in known.items())

    def _first(
        self, key: PRNGKey, num_warmup: int, z: Values, position: Flat, density: FlatDensity
    ) -> BlackJAXState:
        parameters: dict[str, Any] = {}
        key_start, key_adapt = random.split(key)
        if self.adaptation is not None:
            if num_warmup < _LEAST_WARMUP:
                raise ValueError(
                    f"{type(self).__name__}: num_warmup is {num_warmup}, wanted at least "
                    f"{_LEAST_WARMUP} for the adaptation; or a BlackJAXKernel with settings in "
                    "algorithm and no adaptation"
                )
            (found, parameters), _ = self.adaptation(density).run(key_adapt, position, num_warmup)
            position = found.position
        algorithm = self._bound(density, parameters)
        chain = algorithm.init(position, key_start)
        if not hasattr(chain, "position"):
            raise TypeError(
                f"BlackJAXKernel: the algorithm's state is a {type(chain).__name__}, wanted one "
                "with a position, as of blackjax's samplers of a single chain"
            )
        info = jax.eval_shape(lambda k: algorithm.step(k, chain)[1], key)
        return BlackJAXState(
            i=jnp.zeros((), jnp.int32),
            z=z,
            chain=chain,
            info=jax.tree.map(lambda a: jnp.zeros(a.shape, a.dtype), info),
            diverging=jnp.zeros((), bool),
            parameters=parameters,
            rng_key=key,
        )

    def _next(
        self, key: PRNGKey, state: BlackJAXState, density: FlatDensity
    ) -> tuple[BlackJAXState, Flat]:
        chain, info = self._bound(density, state.parameters).step(key, state.chain)
        finite = jnp.isfinite(chain.position).all()
        # MCLMC's information has `nonans` instead.
        diverging = getattr(info, "is_divergent", False) | ~getattr(info, "nonans", finite)
        return state._replace(i=state.i + 1, chain=chain, info=info, diverging=diverging), (
            chain.position
        )

    def _bound(self, density: FlatDensity, parameters: dict[str, Any]) -> Any:
        algorithm = self.algorithm(density, **parameters)
        if not hasattr(algorithm, "step"):
            raise TypeError(
                f"BlackJAXKernel: algorithm returned a {type(algorithm).__name__}, wanted a "
                "blackjax.SamplingAlgorithm; bind the settings: "
                "lambda density: blackjax.mala(density, step_size=0.01)"
            )
        return algorithm
