"""`check_fit`: one table of what may be wrong with a fit, and what to do."""

from __future__ import annotations

import dataclasses
import math
import textwrap
from collections.abc import Iterator, Mapping
from typing import Any

import jax
import numpy as np
from jax.typing import ArrayLike
from numpyro.infer.mcmc import MCMC

from dgp_ppl._checks import as_array, check_count, check_key, checked_call, one_line
from dgp_ppl._partition import Call, call_signature, compiled
from dgp_ppl._typing import Fitted, Model, Params, PRNGKey
from dgp_ppl._waiting import Waiting
from dgp_ppl.criticism._chain_diagnostics import chain_lines
from dgp_ppl.criticism._check_guide import khat
from dgp_ppl.criticism._curvature import curvature_lines
from dgp_ppl.criticism._layer_lines import layer_lines, mean_pass, squared_distances
from dgp_ppl.datasets import Rows
from dgp_ppl.inference import Chains, FitResult, LayerGuide, MeanField, annealed_evidence, evaluate
from dgp_ppl.inference.runs._lines import INDEPENDENCE, Line, checked
from dgp_ppl.inference.samplers._chains import draws_of
from dgp_ppl.inference.svi._ending import loss_lines
from dgp_ppl.likelihoods._survival import density_test
from dgp_ppl.prediction import Prediction, predict

_ROWS = 500  # training rows that are looked at
_MOST_ROWS = 100_000  # among which repetitions are looked for


@dataclasses.dataclass(frozen=True)
class FitCheck:
    """The result of `check_fit`; its `str` is a table.

    Attributes:
        lines: the checks: each has ``what``, ``value``, ``verdict`` ("good", "look" or "bad") and
            ``advice``.
    """

    lines: tuple[Line, ...]

    @property
    def verdict(self) -> str:
        """The worst verdict."""
        found = [line.verdict for line in self.lines]
        return next(v for v in ("bad", "look", "good") if v in (*found, "good"))

    def __str__(self) -> str:
        width = max((len(line.what) for line in self.lines), default=0)
        rows = []
        for what, value, verdict, advice in self.lines:
            rows.append(f"{verdict:<4}  {what:<{width}}  {value}")
            rows += textwrap.wrap(advice, 94, initial_indent=" " * 6, subsequent_indent=" " * 6)
        return "\n".join(rows)


def check_fit(
    fit: Params | Fitted,
    key: PRNGKey,
    model: Model,
    guide: Model | None,
    *args: Any,
    test: tuple[Prediction, ArrayLike] | None = None,
    posterior_samples: Mapping[str, ArrayLike] | Chains | MCMC | None = None,
    num_weights: int = 0,
    num_particles: int = 0,
    **kwargs: Any,
) -> FitCheck:
    """Check training, numerics, approximation and calibration of a fit; returns one table.

    ::

        p = dgp.predict(key, model, guide, fit, x_test, z=z)
        print(dgp.check_fit(fit, key, model, guide, x, y, z=z, test=(p, y_test)))

    It looks at 500 training rows, and at all where a keyword argument has as many. Limits are rules
    of thumb. "look" may be right, such as for a hidden layer that the data do not need; "bad"
    seldom is. No table proves a fit.

    Args:
        fit: the fit's result, or its params alone.
        key: random key.
        model: the model.
        guide: its fitted guide; None for a sampler.
        *args: the model's arguments: x and y by position, or `Rows`. y is the argument of that
            name, or else the second. Of more than 500 `Rows` the others are not read: no k-hat, no
            gap of the bound, no sd of q's parts, and no word of repeated rows unless some are among
            these. Entries of y that are NaN or masked are left out.
        test: the prediction of held-out rows and their targets, NaN where missing, for coverage
            and PIT. These, and the lines on residuals, are left out for counts, classes and
            censored targets.
        posterior_samples: draws of a sampler, as for `predict`; `Chains` have lines of their own.
        num_weights: number of importance weights for k-hat; 0 leaves it out.
        num_particles: particles of `annealed_evidence`, a multiple of 8, for the gap of the bound;
            0 leaves it out. It can cost more than the fit.
        **kwargs: the model's keyword arguments.

    Raises:
        TypeError: if `key` is no random key, `test` no prediction with its targets, or an argument
            a ragged list; or if the model has no y and fails without its second argument.
        ValueError: if y is not given by position, or targets of `test` are infinite, or all are
            missing; and as `predict`.
    """
    check_key("check_fit", key)
    posterior_samples = draws_of("check_fit", posterior_samples, guide)
    is_pair = isinstance(test, tuple | list) and len(test) == 2
    if test is not None and not (is_pair and isinstance(test[0], Prediction)):
        raise TypeError(
            f"check_fit: test is a {type(test).__name__}, wanted a prediction of held-out rows and "
            "their targets: test=(p, y_test)"
        )
    for name, count in {"num_weights": num_weights, "num_particles": num_particles}.items():
        check_count("check_fit", name, count, 0)
    if num_particles % 8:
        raise ValueError(f"check_fit: num_particles is {num_particles}, wanted a multiple of 8")
    num_data, places = 0, None
    if args and isinstance(args[0], Rows):
        num_data = len(args[0])
        places = _some(num_data)
        args = (*args[0].take(places), *args[1:])
    names = list(call_signature(model).parameters)
    place = names.index("y") if "y" in names else 1
    if len(args) <= place or args[place] is None:
        raise ValueError(
            "check_fit: y is missing among the model's arguments, wanted x and y by position: "
            "check_fit(fit, key, model, guide, x, y)"
        )
    kwargs.pop("batch_size", None)
    args = checked_call("check_fit", model, guide, args, kwargs).args
    for name, a in zip(names, args, strict=False):
        if isinstance(a, list) and all(isinstance(b, int | float) for b in jax.tree.leaves(a)):
            as_array("check_fit", f"argument {name!r}", a)  # raises if it is ragged
    shapes = np.shape(args[0]), np.shape(args[place])
    if not np.size(args[0]) or not shapes[0] or shapes[0][:1] != shapes[1][:1]:
        hint = "; models of latent inputs have no check" if args[0] is None else ""
        raise ValueError(
            f"check_fit: x and y have shapes {shapes}, wanted [N, D] and [N], N >= 1{hint}"
        )
    num_data = num_data or len(args[0])
    lines: list[Line] = []
    if isinstance(fit, FitResult):
        lines += loss_lines(fit.losses, fit.num_data, fit.restart_bounds)
    if isinstance(posterior_samples, Chains):
        lines += chain_lines(posterior_samples)
    # A keyword argument of as many rows may belong to the rows.
    sized = [a for a in kwargs.values() if isinstance(a, list) or getattr(a, "ndim", 0)]
    whole = any(len(a) == len(args[0]) for a in sized)
    rows = np.arange(len(args[0])) if whole else _some(len(args[0]))
    by_row = [np.shape(a)[:1] == (len(args[0]),) for a in args]
    seen = [np.asarray(a)[rows] if r else a for a, r in zip(args, by_row, strict=True)]
    y: Any = seen[place]
    after = seen[place + 1 :]
    given = [*seen[:place], *([None] if after else []), *after]
    with Waiting():  # one line at a terminal for its many programs
        # A prediction of as many rows and passes shares the compiled program.
        size = test and getattr(test[0], "members", test)[0]
        shared = {"num_samples": size.num_samples, "chunk_size": size.chunk_size} if size else {}
        options: Any = {**shared, **kwargs}
        try:
            p = predict(
                key, model, guide, fit, *given, posterior_samples=posterior_samples, **options
            )
        except TypeError as error:
            if "y" in names or len(args) < 3:
                raise
            raise TypeError(
                f"check_fit: the model fails without its argument {''.join(names[1:2])!r}, the "
                f"second, which is taken for y ({one_line(error)}); give the argument of the "
                "targets the name y"
            ) from error
        draws = {n: a[-1] for n, a in p.draws.items()}
        layers, noise, mask = mean_pass(p.forward_pass, p.key, draws, p.params, p.data, p.x)
        moments = _moments(p)
        if layers:
            sd = 1.0 if moments is None else float(np.sqrt(moments[1].mean()))
            found = layer_lines(layers, float(noise), sd, len(rows) / num_data)
            unsure = type(guide) is MeanField and test is None  # else coverage is measured
            lines += [line for line in found if line.what != INDEPENDENCE or unsure]
        if moments is not None and y.shape == moments[0].shape:
            known = np.isfinite(y) if mask is None else (np.isfinite(y).T & np.asarray(mask).T).T
            if known.any():
                lines += _prediction_lines(
                    p, y, *moments, rows if places is None else places, known
                )
        if moments is not None:
            table = list(
                zip(*(np.asarray(a)[:_MOST_ROWS] for a in (args[0], args[place])), strict=True)
            )
            bits = lambda a: (a + 0.0 if a.dtype.kind == "f" else a).tobytes()  # noqa: E731 - of -0.0
            share = 1 - len({hash(bits(a) + bits(b)) for a, b in table}) / len(table)
            if share or len(args[0]) == num_data:  # 500 of many rows would show few repetitions
                lines.append(checked("repeated rows", share, f"{share:.1%} of those looked at"))
        if isinstance(guide, LayerGuide) and len(args[0]) == num_data:
            call = Call(args, kwargs)
            names = [n for n, layer in layers.items() if layer["observed"]]
            lines += curvature_lines(key, guide, p.params, call, names)
            if num_weights and (tail := khat(key, guide, model, p.params, call, num_weights)):
                lines.append(checked("k-hat", tail, f"{tail:.2f}"))
            if num_particles:
                bound, _ = evaluate(key, model, guide, p.params, *args, **kwargs)
                annealed = annealed_evidence(
                    key, model, guide, p.params, *args, num_particles=num_particles, progress=False,
                    **kwargs,
                )  # fmt: skip
                gap = (annealed.log_evidence - bound) / num_data
                error = annealed.standard_error / num_data
                lines.append(
                    checked("gap of the bound", gap, f"{gap:.2g} ± {error:.1g} nats per row")
                )
    return FitCheck((*lines, *(() if test is None else _calibration(*test))))


def _some(num: int) -> np.ndarray:
    """Return the numbers of the rows that are looked at, evenly spaced."""
    return np.linspace(0, num - 1, min(num, _ROWS)).round().astype(int)


def _moments(p: Prediction) -> tuple[np.ndarray, np.ndarray] | None:
    """Return mean and variance of continuous targets that are not censored, else None."""
    mixture = next(p.components())[1]
    if mixture.support.is_discrete or density_test(mixture.components) is not None:
        return None
    try:
        return p.mean, p.var
    except (NotImplementedError, ValueError):
        return None


@compiled
def _means(mixtures: Any) -> Any:
    """Return E[y] of each pass, [S, B, ...]."""
    return jax.vmap(lambda m: m.mean)(mixtures)


def _prediction_lines(
    p: Prediction, y: np.ndarray, mean: np.ndarray, var: np.ndarray, rows: np.ndarray,
    known: np.ndarray,
) -> Iterator[Line]:  # fmt: skip
    """Yield what predictions of training rows say: error, fit, structure and outliers.

    `known` says which entries of y were observed.
    """
    means = [np.asarray(_means(m))[:, : r.stop - r.start] for r, m in p.components()]
    spread = np.concatenate(means, axis=1).var(axis=0).mean() / p.num_samples
    share = math.sqrt(spread / var.mean())
    yield checked("Monte Carlo error", share, f"at most {share:.1%} of the predictive sd")
    table = np.ma.array(y, mask=~known).reshape(len(y), -1)
    residual = table - mean.reshape(table.shape)
    # The worst output: outputs may have other means and units.
    left = np.square(residual).mean(axis=0)
    explained = float((1 - left / np.maximum(table.var(axis=0), 1e-300)).min())
    yield checked("explained variance", -explained, f"{explained:.1%} of training rows")
    error = (residual / np.ma.maximum(np.ma.sqrt(left), 1e-300)).filled(0.0)
    nearest = squared_distances(np.asarray(p.x, np.float64)).argmin(axis=1)
    near = float((error * error[nearest]).sum() / max(np.square(error).sum(), 1e-300))
    sure = near * math.sqrt(known.reshape(table.shape).any(axis=1).sum()) > 4
    yield checked("structure in residuals", near, f"correlation {near:.2f} of neighbours", sure)
    pit = np.where(known, p.cdf(np.where(known, y, mean)), 0.5).reshape(table.shape)
    far = np.flatnonzero((np.minimum(pit, 1 - pit) < 0.005 / known.sum()).any(axis=1))
    first = f", such as row {rows[far[0]]}" if len(far) else ""
    yield checked("outliers", len(far), f"{len(far)} of {len(y)} rows{first}")


def _calibration(p: Prediction, y: ArrayLike) -> Iterator[Line]:
    """Yield coverage and PIT of continuous held-out targets that are known."""
    if (moments := _moments(p)) is None:
        return
    y = np.asarray(as_array("check_fit", "the targets of test", y))
    if y.shape != moments[0].shape:
        raise ValueError(
            f"check_fit: the targets of test have shape {y.shape}, wanted {moments[0].shape}"
        )
    known = ~np.isnan(y)
    if np.isinf(y).any() or not known.any():
        raise ValueError(
            "check_fit: the targets of test are infinite, or all NaN, wanted finite ones, and NaN "
            "where missing"
        )
    pit = np.sort(p.cdf(np.where(known, y, moments[0]))[known])
    num, inside = len(pit), float(np.mean((pit > 0.05) & (pit < 0.95)))
    gap, text = abs(inside - 0.9), f"{inside:.1%} of {num} held-out targets"
    yield checked("coverage of 90 %", gap, text, sure=gap > 3 * math.sqrt(0.09 / num))
    steps = np.arange(num + 1) / num
    distance = float(max((steps[1:] - pit).max(), (pit - steps[:-1]).max()))
    sure = distance * math.sqrt(num) > 1.95  # p = 0.001
    yield checked("PIT", distance, f"{distance:.2f} from uniform", sure)
