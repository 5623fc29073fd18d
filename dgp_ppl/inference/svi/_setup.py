"""Set up a fit, and report a loss that is not finite, or does not move."""

from __future__ import annotations

import dataclasses
import warnings
from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax.example_libraries import optimizers
from numpyro.distributions import constraints
from numpyro.infer import TraceMeanField_ELBO
from numpyro.infer.autoguide import AutoGuide
from numpyro.infer.elbo import ELBO, RenyiELBO
from numpyro.optim import _NumPyroOptim

from dgp_ppl._checks import (
    check_count,
    check_kind,
    check_positive,
    is_traced,
    params_of,
    short_list,
)
from dgp_ppl._errors import NonFiniteLossError
from dgp_ppl._partition import Call, CallArrays
from dgp_ppl._typing import Fitted, Model, Params, PRNGKey
from dgp_ppl.inference._params import set_up_guide
from dgp_ppl.inference.guides import LayerGuide
from dgp_ppl.inference.programs._data import RowCheck, check_data, explain_data, row_check
from dgp_ppl.inference.programs._handlers import Sites, survey
from dgp_ppl.inference.programs._optimizer import default_optimizer
from dgp_ppl.inference.programs._rows import split_padded
from dgp_ppl.inference.svi._feed import at_step
from dgp_ppl.inference.svi._loop import Failure, ManyFits, Outcome, TrainingLoop, training_loop
from dgp_ppl.likelihoods import Observed
from dgp_ppl.likelihoods._likelihood_sites import bounded_arguments
from dgp_ppl.linalg._precision import warn_if_wide

Start = Fitted | Params | None
"""What a fit starts from: some params, or all of a result; None has the initial values."""

_OPTIMIZERS = optax.GradientTransformation | optimizers.Optimizer | _NumPyroOptim | None
_DEFAULT_LOSS = TraceMeanField_ELBO()
STEPS = 6000  # of a fit by Adam, or in small minibatches
_NATURAL_STEPS = 3000  # where natural gradients have at least half of the rows
# With natural steps of all rows, which have less noise than steps of minibatches.
_CALM = {"hyper_factor": 2.0, "hold": 0.5}
_HUGE = 1e20  # a loss that float32 cannot lower
_FEW = 10  # numbers of a param that may be a scale


@dataclasses.dataclass(frozen=True)
class Problem:
    """A fit that is ready to run."""

    loop: TrainingLoop
    data: CallArrays  # of the model and of the guide
    optimizer: Any  # the default one if none was given
    steps: int  # the default if none was given
    held: int  # steps at the full rates that may end early; 0 if `steps` was given
    num_data: int  # rows N of the data plate
    starts: list[Params]  # of each candidate; params that are not there have initial values
    check_rows: RowCheck  # of streamed arguments

    @staticmethod
    def set_up(
        caller: str,
        key: PRNGKey,
        model: Model,
        guide: Model,
        call: Call,
        *,
        steps: int | None,
        learning_rate: float,
        optimizer: Any,
        loss: ELBO | None,
        start: Start | Sequence[Start],
        pad: bool = True,
    ) -> Problem:
        """Check the arguments of a fit, and build its loop; `pad` its rows where they can be."""
        if steps is not None:
            check_count(caller, "steps", steps)
        check_positive(caller, "learning_rate", learning_rate)
        wanted = "an optax optimiser, such as optax.adam(0.01), or None"
        check_kind(caller, "optimizer", optimizer, _OPTIMIZERS, wanted)
        call, sites = check_data(caller, model, call)
        whole = [n for n, s in sites.items() if s["type"] == "param" and _is_whole(s)]
        if whole:
            raise TypeError(
                f"{caller}: param {whole[0]!r} holds integers or booleans, which have no gradient, "
                f"wanted floats, such as numpyro.param({whole[0]!r}, 1.0)"
            )
        set_up_guide(key, guide, call, model, sites)
        if isinstance(loss or _DEFAULT_LOSS, TraceMeanField_ELBO):
            _check_latent(caller, guide, call, sites)
        # A NumPyro result is a tuple too.
        entries: Any = start
        several = isinstance(start, list) or type(start) is tuple
        given: list[Any] = list(entries) if several else [entries]
        if not given:
            raise ValueError(f"{caller}: start has no values, wanted one of the starts at least")
        names = [f"start[{i}]" for i in range(len(given))] if several else ["start"]
        starts = [
            {} if a is None else params_of(caller, a, name)
            for a, name in zip(given, names, strict=True)
        ]
        for values in starts:
            warn_if_wide(f"{caller}: start", values)
        partition, data, share = split_padded(model, call, guide, pad)
        model_params = frozenset(n for n, s in sites.items() if s["type"] == "param")
        if may_end := steps is None:
            is_natural = optimizer is None and _natural_params(guide, loss)
            steps = _NATURAL_STEPS if is_natural and share >= 0.5 else STEPS
        held = 0
        if optimizer is None:
            all_rows = share == 1
            if may_end and _is_calm(guide, loss, all_rows):
                held = int(_CALM["hold"] * steps)
            optimizer = guide_optimizer(
                guide, learning_rate, steps, model_params, from_params={} not in starts, loss=loss,
                all_rows=all_rows,
            )  # fmt: skip
        default = guide.default_loss if isinstance(guide, LayerGuide) else _DEFAULT_LOSS
        loop = training_loop(partition, optimizer, checked_loss(caller, guide, loss) or default)
        check_rows = row_check(caller, model, call, sites)
        return Problem(loop, data, optimizer, steps, held, _num_rows(sites), starts, check_rows)


def refuse_tracing(caller: str, *arguments: Any) -> None:
    """Raise if JAX traces the caller, which looks at numbers."""
    if is_traced(jnp.zeros(()), arguments):
        raise TypeError(
            f"{caller}: it is traced by jax.jit, vmap or grad, wanted a call outside of them: it "
            "compiles itself, and dgp_ppl.fit_many makes many fits in one program"
        )


def _check_latent(caller: str, guide: Model, call: Call, sites: Sites) -> None:
    """Raise unless a guide of one's own has the latent sites; of others the classes see to it."""
    if isinstance(guide, LayerGuide | AutoGuide):
        return
    drawn = survey(guide, call)
    for name, site in sites.items():
        latent = site["type"] == "sample" and not site["is_observed"]
        if latent and name not in drawn and not site["infer"].get("is_auxiliary"):
            raise ValueError(
                f"{caller}: the guide draws {short_list(drawn)}, wanted {name!r} too, "
                "a latent site of the model: add it, or pass a guide such as MeanField(model)"
            )
    for name in drawn.keys() - sites.keys():
        extra = drawn[name]
        if extra["type"] == "sample" and not (
            extra["is_observed"] or extra["infer"].get("is_auxiliary")
        ):
            raise ValueError(
                f"{caller}: the guide draws {name!r}, which the model does not: leave it out, or "
                "give it infer={'is_auxiliary': True}"
            )


def _is_whole(site: Any) -> bool:
    """Return whether a param stays whole: the inverse of a constraint makes floats."""
    value = site["value"]
    if site["kwargs"].get("constraint", constraints.real) is not constraints.real:
        return False
    return isinstance(value, int) or not jnp.issubdtype(getattr(value, "dtype", float), jnp.inexact)


def _natural_params(guide: Model, loss: ELBO | None) -> frozenset[str]:
    """Return the params that move by natural gradients.

    The predictive objective is not concave in q(v): with natural steps its fits diverge.
    """
    is_bound = loss is None or type(loss) is TraceMeanField_ELBO
    return guide.natural_params if is_bound and isinstance(guide, LayerGuide) else frozenset()


def _is_calm(guide: Model, loss: ELBO | None, all_rows: bool) -> bool:
    """Return whether the default optimiser holds its rates."""
    if not isinstance(guide, LayerGuide) or guide.optimizer is not None or not all_rows:
        return False
    return bool(_natural_params(guide, loss)) and not guide.row_params  # these want the decay


def guide_optimizer(
    guide: Model,
    learning_rate: float,
    steps: int,
    slow: frozenset[str] = frozenset(),
    *,
    from_params: bool = False,
    loss: ELBO | None = None,
    all_rows: bool = True,
) -> Any:
    """Return `fit`'s default optimiser, an optax one, for a guide that has found its layers.

    Guides declare what they need in `LayerGuide.rate`, `rates`, `natural_params` and `optimizer`.
    `slow` are the model's own params; `from_params` is whether the fit starts from given ones, and
    `all_rows` whether each step has all rows.
    """
    if not isinstance(guide, LayerGuide):
        return default_optimizer(learning_rate, steps, slow)
    if guide.optimizer is None:
        share = guide.rate if from_params else 1.0
        rates = tuple((start, rate / share) for start, rate in guide.rates.items())
        natural = _natural_params(guide, loss)
        rate = share * learning_rate
        options: dict[str, Any] = {"step_size": 0.5} if all_rows else {}
        if _is_calm(guide, loss, all_rows):
            options |= _CALM
        return default_optimizer(rate, steps, slow, rates, guide.row_params, natural, **options)
    special, rows = guide.optimizer(learning_rate, steps, slow), guide.row_params
    if not rows:
        return special
    parts: Any = {"rows": default_optimizer(learning_rate, steps, rows=rows), "special": special}
    label = lambda params: {n: "rows" if n in rows else "special" for n in params}  # noqa: E731
    return optax.partition(parts, label)


def bound_loss(guide: Model) -> ELBO:
    """Return the objective that is minus a lower bound of the log evidence."""
    return guide.bound_loss if isinstance(guide, LayerGuide) else _DEFAULT_LOSS


def checked_loss(caller: str, guide: Model, loss: ELBO | None) -> ELBO | None:
    """Return the loss, unless it would weigh draws that the guide integrates out."""
    if loss is not None:
        check_kind(caller, "loss", loss, ELBO, "an ELBO, such as numpyro.infer.Trace_ELBO()")
    if isinstance(loss, RenyiELBO) and isinstance(guide, LayerGuide):
        raise TypeError(
            f"{caller}: loss is a RenyiELBO, which weighs a draw of v by log p(v) - log q(v), but "
            f"{type(guide).__name__} has v integrated out of p(y | v): the value would lie above "
            "the evidence; wanted dgp_ppl.ImportanceWeighted(K)"
        )
    return loss


def non_finite_loss(
    loop: TrainingLoop, failure: Failure, call: Call, steps: int, result: Any
) -> NonFiniteLossError:
    """Return the error of a fit that failed; `result` has the last state with a finite loss."""
    step, (site, why) = failure.step, _first_non_finite(loop, failure)
    kept = f"the state before it, after {step - 1} steps, is the error's result" if step else ""
    advice = (
        "Try a smaller learning_rate, standardised data (dgp_ppl.Standardizer), or float64 "
        "(jax_enable_x64)"
    )
    return NonFiniteLossError(
        f"the loss is not finite at step {step} (of {steps}); first not finite: {site}{why}. "
        f"{explain_data(loop.partition.model, call) or advice}{'; ' + kept if kept else ''}",
        step=step,
        site=site,
        result=result if step else None,
    )


def _first_non_finite(loop: TrainingLoop, failure: Failure) -> tuple[str, str]:
    """Return the first param or site that is not finite in a loss, and a remark on it."""
    for name, value in loop.params(failure.state).items():
        if not all(np.isfinite(np.asarray(a)).all() for a in jax.tree.leaves(value)):
            return f"param {name}", ""
    for name, fn, terms in loop.terms(failure.state, failure.data):
        if not np.isfinite(terms).all():
            return f"site {name}", _out_of_range(fn)
    return "the loss itself (every site is finite)", ""


def _out_of_range(fn: Any) -> str:
    """Return which argument of a distribution is out of its range, as a remark, or nothing."""
    while not isinstance(fn, Observed) and hasattr(fn, "base_dist"):
        fn = fn.base_dist
    for what, limit, value in bounded_arguments(fn.at_mean if isinstance(fn, Observed) else fn):
        if not np.all(limit(value)):
            return f" ({what} is out of its range, {limit})"
    return ""


def warn_if_stuck(loop: TrainingLoop, first: Any, outcome: Outcome) -> None:
    """Warn of fits that went nowhere: a huge loss, no param that moved, a scale below zero."""
    if outcome.before is None:  # all steps are from a checkpoint
        return
    one, found, num = loop.one if isinstance(loop, ManyFits) else loop, [], loop.num_fits
    trees = loop.unconstrained(first), loop.unconstrained(outcome.state), loop.params(outcome.state)
    begun, ended, seen = (
        [np.asarray(a).reshape(num, -1) for a in jax.tree.leaves(tree)] for tree in trees
    )
    for i in sorted({*range(num)} - outcome.failures.keys()):
        moved = any((a[i] != b[i]).any() for a, b in zip(begun, ended, strict=True))
        pairs = [(a[i], c[i]) for a, c in zip(begun, seen, strict=True) if a.shape[1] <= _FEW]
        fell = any((a > 0).all() and (c < 0).any() for a, c in pairs)
        losses = outcome.losses[i]
        loss, texts = np.median(losses[-max(1, len(losses) // 10) :]), []
        if begun and not moved:
            texts.append(
                f"no param moved in {len(losses)} steps: the loss does not depend on "
                f"{short_list(trees[0])}, or learning_rate is too small for their precision"
            )
        if abs(loss) > _HUGE or fell:
            data = loop.part_of_data(at_step(outcome.before[1], 0), i)
            terms = one.terms(loop.part(outcome.state, i), data)
            if abs(loss) > _HUGE:
                largest = max(terms, key=lambda term: np.abs(term[2]).sum())[0]
                texts.append(
                    f"the loss is {loss:.3g} at the end, most of it at site {largest}, where no "
                    "gradient helps; start from a smaller kernel variance, or standardise the data"
                )
            wrong = [f"site {n}{why}" for n, fn, _ in terms if (why := _out_of_range(fn))]
            texts += [f"{w}; declare its param with constraint=constraints.positive" for w in wrong]
        if texts:
            found.append(f"fit{f'[{i}]' if num > 1 else ''}: {'; '.join(texts)}")
    if found:
        more = f"; {len(found)} of {num} fits in all" if num > 1 else ""
        warnings.warn(found[0] + more, stacklevel=4)


def _num_rows(sites: dict[str, Any]) -> int:
    """Return the size of the plate ``data``, else of the largest plate, else of observed values."""
    sizes = {n: s["args"][0] for n, s in sites.items() if s["type"] == "plate"}
    observed = 1
    for site in sites.values():
        if site["type"] == "sample" and site["is_observed"]:
            counts: Any = getattr(site["fn"], "counts", None)  # of `sgpr` and `exact`
            if str(getattr(counts, "dtype", "")) == "bool" and not is_traced(counts):
                return max(1, int(np.sum(counts)))
            observed = (*jnp.shape(site["value"]), 1)[0]
    return max(1, sizes.get("data", max(sizes.values(), default=observed)))
