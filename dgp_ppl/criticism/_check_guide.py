"""Whether a guide is near its posterior: PSIS k-hat and VSBC, NumPyro's, on deep GPs."""

import dataclasses
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
from jax import random
from numpyro import handlers
from numpyro.infer import psis_diagnostic
from numpyro.infer.calibration import vsbc_diagnostic

from dgp_ppl._partition import Call
from dgp_ppl._typing import Model, Params, PRNGKey
from dgp_ppl.core import carries_mean, handover_of, is_layer, with_handover
from dgp_ppl.inference import LayerGuide, freeze
from dgp_ppl.inferencedata import Sites

__all__ = ["GuideCheck", "check_guide", "khat"]

_LEVEL = 0.05


@dataclasses.dataclass(frozen=True)
class GuideCheck:
    """What `check_guide` returns.

    Attributes:
        khat: shape of the tail of the importance weights p(y, v) / q(v) (Yao et al. 2018): below
            0.7 the guide is near enough to be corrected by weighing its draws. None where q has no
            density.
        probabilities: P_q(v < v*) of each latent value in each simulation, [R, ...] by site. None
            where nothing was simulated.
        p_values: of the hypothesis that these are symmetric about 1/2 in each value, [...] by site:
            small where the guide is biased. Of M values, 0.05 M are below 0.05 by chance.
    """

    khat: float | None
    probabilities: dict[str, np.ndarray] | None = None
    p_values: dict[str, np.ndarray] | None = None

    @property
    def biased_share(self) -> float | None:
        """The share of latent values with a p-value below 0.05: that of chance is 0.05."""
        if self.p_values is None:
            return None
        return float(np.mean(np.concatenate([p.ravel() for p in self.p_values.values()]) < _LEVEL))

    def __str__(self) -> str:
        tail = "none (q has no density)" if self.khat is None else f"{self.khat:.2f}"
        near = "" if self.khat is None else ", near" if self.khat < 0.7 else ", not near (0.7)"
        words = f"PSIS k-hat {tail}{near}"
        if self.p_values is None:
            return words
        values = sum(p.size for p in self.p_values.values())
        return (
            f"{words}; VSBC: {self.biased_share:.0%} of {values} latent values with p < 0.05, "
            "where chance has 5%"
        )


def check_guide(
    key: PRNGKey,
    model: Model,
    guide: Model,
    params: Params,
    *args: Any,
    num_weights: int = 1000,
    num_simulations: int = 50,
    steps: int = 1000,
    learning_rate: float = 0.02,
    num_draws: int = 200,
    **kwargs: Any,
) -> GuideCheck:
    """Both of NumPyro's diagnostics of a variational fit, at its hyperparameters.

    k-hat is of this fit. VSBC (variational simulation-based calibration, Yao et al. 2018) asks
    whether the guide's marginals are unbiased over data that the model itself makes: it draws v
    and y from the model, fits the guide to y with the model's params held, and looks where v is
    among the guide's draws. It costs `num_simulations` fits; 0 leaves it out.

    Args:
        key: random key.
        model: the model; ``model(x, None, *args[2:], **kwargs)`` must draw y.
        guide: its fitted guide.
        params: the fit's params.
        *args: the model's arguments, x and y by position.
        num_weights: importance weights of k-hat.
        num_simulations: data sets that VSBC makes and fits; 0 for none.
        steps: optimiser steps of each of its fits.
        learning_rate: Adam's, of these.
        num_draws: draws of each of its guides.
        **kwargs: the model's keyword arguments, without a ``batch_size``.

    Raises:
        ValueError: if x or y is not given by position, or a number is not positive.
    """
    if len(args) < 2:
        raise ValueError(
            f"check_guide: got {len(args)} of the model's x and y by position, wanted both"
        )
    for name, value, least in (
        ("num_weights", num_weights, 10),
        ("num_simulations", num_simulations, 0),
        ("steps", steps, 1),
        ("num_draws", num_draws, 2),
    ):
        if value < least or (name == "num_simulations" and value == 1):
            raise ValueError(f"check_guide: {name} is {value}, wanted at least {least} (not 1)")
    if kwargs.get("batch_size") is not None:
        raise ValueError("check_guide: got a batch_size, wanted all rows; leave it out")
    sites = Sites.from_model(model, Call(args, kwargs))
    if num_simulations and len(sites.data) != 1:
        raise ValueError(
            f"check_guide: the model observes {list(sites.data)}, wanted one site for VSBC; pass "
            "num_simulations=0 for k-hat alone"
        )
    key_tail, key_simulate = random.split(key)
    tail = khat(key_tail, guide, model, params, args, kwargs, num_weights)
    if not num_simulations:
        return GuideCheck(tail)
    own = handlers.trace(handlers.seed(model, key)).get_trace(*args, **kwargs)
    held = {n: params[n] for n, s in own.items() if s["type"] == "param" and n in params}
    program = _noise_inside(freeze(model, held))
    free = guide.with_model(freeze(model, held)) if isinstance(guide, LayerGuide) else guide
    loss = free.bound_loss if isinstance(free, LayerGuide) else numpyro.infer.Trace_ELBO()
    names = list(sites.data)
    if jnp.issubdtype(key_simulate.dtype, jax.dtypes.prng_key):
        key_simulate = random.key_data(key_simulate)  # NumPyro's reshapes it, as old keys can be
    found = vsbc_diagnostic(
        key_simulate, program, free, numpyro.optim.Adam(learning_rate), loss, args[0], None,
        *args[2:], observed_sites=names, num_simulations=num_simulations, num_svi_steps=steps,
        num_samples=num_draws, simulated_data_to_args=_second(names[0]), **kwargs,
    )  # fmt: skip
    arrays = lambda d: {n: np.asarray(a) for n, a in d.items()}  # noqa: E731
    return GuideCheck(tail, arrays(found.probabilities), arrays(found.ks_pvalues))


def _second(site: str) -> Any:
    """Simulated data as the model's second argument."""

    def put(data: dict[str, Any], x: Any, y: Any, *args: Any, **kwargs: Any) -> Any:
        return (x, data[site], *args), kwargs

    return put


def _noise_inside(model: Model) -> Model:
    """The model, whose hidden layers' noise is drawn inside and seen by nobody."""

    def program(*args: Any, **kwargs: Any) -> Any:
        key = numpyro.prng_key()
        inner = model if key is None else handlers.seed(model, key)
        hide = lambda site: bool(site.get("infer", {}).get("is_auxiliary"))  # noqa: E731
        return handlers.block(inner, hide_fn=hide)(*args, **kwargs)

    return program


def khat(
    key: PRNGKey,
    guide: Model,
    model: Model,
    params: Params,
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
    num: int,
) -> float | None:
    """NumPyro's `psis_diagnostic`, with v drawn where a guide has the model integrate over its law.

    Each weight has its own draw of hidden layers' unit noise, which no q(v) can answer for and
    which makes it larger. None where q(v) has no density, or a mean with a basis of its own.
    """
    if not getattr(guide, "has_density", True):
        return None
    drawn = guide.drawn() if isinstance(guide, LayerGuide) else guide
    laws: list[Any] = []

    def as_drawn(site: Any) -> dict[str, Any]:
        laws.append(handover_of(site).q)
        return with_handover(site, q=None) if is_layer(site) else {}

    program = handlers.infer_config(drawn, config_fn=as_drawn)
    with handlers.block(), handlers.seed(rng_seed=key), handlers.substitute(data=params):
        program(*args, **kwargs)
    if any(q is not None and not carries_mean(q) for q in laws):
        return None
    found = psis_diagnostic(
        key, params, model, program, *args, num_particles=num, chunk_size=min(num, 100), **kwargs
    )
    return float(found)
