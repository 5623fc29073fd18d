"""What a fit, or many fits in one program, return."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping
from typing import Any, ClassVar

import jax
import numpy as np
from numpyro.infer.svi import SVIState

from dgp_ppl._errors import NonFiniteLossError
from dgp_ppl._typing import Params
from dgp_ppl.inference.runs._pickling import Portable
from dgp_ppl.inference.runs._summary import Summarized, list_arrays, list_losses
from dgp_ppl.inference.svi._feed import Position


@dataclasses.dataclass(frozen=True, repr=False)
class FitResult(Summarized, Portable):
    """The outcome of a fit. It can be pickled.

    An `optimizer` that cannot be pickled (any of optax's) is None after loading; `fit`'s default
    can. To continue such a fit, give the same one to ``dataclasses.replace(result, optimizer=...)``
    and to `fit`.

    Attributes:
        params: constrained values of all params, a dict of arrays.
        losses: minus the ELBO in nats before every step of this call, [steps].
        num_data: rows N of the data plate, or of the observed site if the model has no plate.
        state: NumPyro's SVI state of these params, from which a fit can go on.
        seconds: wall-clock time of the steps, compilation included.
        optimizer: the optax optimiser of the state.
        reverted: whether `keep_best` returned the params that the fit began with.
        interrupted: whether Ctrl-C ended the fit early; see `Interrupted`.
        restart_bounds: of ``restarts=R``: the ELBO in nats of each restart, [R], by 100 draws with
            the same key; minus infinity for those that failed. This result is the best one's.
        start_losses: of a list of starts: the loss in nats at the end of the trial of each, [S];
            infinity for those that failed. The best one went on.
        position: of a fit to `Rows`: where a fit that goes on continues in the order of the rows,
            the seed of the order and a step.
    """

    params: Params
    losses: np.ndarray
    num_data: int
    state: SVIState
    seconds: float
    optimizer: Any
    reverted: bool = False
    interrupted: bool = False
    restart_bounds: np.ndarray | None = None
    start_losses: np.ndarray | None = None
    position: Position | None = None

    if_possible: ClassVar[tuple[str, ...]] = ("optimizer",)

    @property
    def elbo_per_datum(self) -> np.ndarray:
        """The ELBO estimates of every step, in nats per data point, [steps]."""
        return -self.losses / self.num_data

    def summary(self) -> list[str]:
        first = list_losses("loss", self.losses, self.seconds)
        if len(self.losses):
            first += f" nats (ELBO per datum {self.elbo_per_datum[-1]:.4g}, N = {self.num_data})"
        lines = [first]
        if self.reverted:
            lines.append("keep_best returned the params that the fit began with")
        if self.interrupted:
            lines.append("interrupted before its last step")
        if self.start_losses is not None:
            trials = ", ".join(f"{a:.4g}" for a in self.start_losses)
            lines.append(f"best of starts with losses after a trial {trials}")
        if self.restart_bounds is not None:
            bounds = ", ".join(f"{b:.4g}" for b in self.restart_bounds / self.num_data)
            lines.append(f"best of restarts with ELBO per datum {bounds}")
        return [*lines, *list_arrays("params", self.params)]


@dataclasses.dataclass(frozen=True, repr=False)
class FitResults(Summarized, Portable):
    """The outcomes of many fits in one program. ``results[i]`` is the `FitResult` of fit i.

    Attributes:
        params: constrained values of all params, with a leading axis of fits.
        losses: minus the ELBO in nats before every step, [R, steps]; NaN from the step at which
            a fit failed.
        num_data: rows N of the data plate, see `FitResult`; of each fit, [R], if the data were
            padded.
        state: NumPyro's SVI states of these params, stacked.
        seconds: wall-clock time of the steps of all fits, compilation included.
        optimizer: the optax optimiser of the states.
        errors: errors of the fits that failed, by number. Their params are the last ones with a
            finite loss.
        interrupted: whether Ctrl-C ended the fits early; see `Interrupted`.
        start_losses: of a list of starts: see `FitResult`, [R, S].
    """

    params: Params
    losses: np.ndarray
    num_data: int | np.ndarray
    state: SVIState
    seconds: float
    optimizer: Any
    errors: Mapping[int, NonFiniteLossError] = dataclasses.field(default_factory=dict)
    interrupted: bool = False
    start_losses: np.ndarray | None = None

    if_possible: ClassVar[tuple[str, ...]] = ("optimizer",)

    def __len__(self) -> int:
        return len(self.losses)

    def __getitem__(self, index: int) -> FitResult:
        """Return one fit.

        Raises:
            IndexError: if there is no fit of this number.
            NonFiniteLossError: if the fit failed.
        """
        number = range(len(self))[index]
        if number in self.errors:
            raise self.errors[number]
        return self.part(number, self.losses.shape[1])

    def __iter__(self) -> Iterator[FitResult]:
        return (self[i] for i in range(len(self)))

    @property
    def elbo_per_datum(self) -> np.ndarray:
        """The ELBO estimates of every step, in nats per data point, [R, steps]."""
        return -self.losses / np.asarray(self.num_data)[..., None]

    @property
    def succeeded(self) -> list[int]:
        """The numbers of the fits that did not fail."""
        return [i for i in range(len(self)) if i not in self.errors]

    def part(self, number: int, steps: int) -> FitResult:
        """Return the state of one fit and its losses of so many steps, failed or not."""
        params, state = jax.tree.map(lambda a: a[number], (self.params, self.state))
        sizes = self.num_data
        num_data = int(sizes[number]) if isinstance(sizes, np.ndarray) else sizes
        return FitResult(
            params, self.losses[number, :steps], num_data, state, self.seconds,
            self.optimizer, interrupted=self.interrupted,
            start_losses=None if self.start_losses is None else self.start_losses[number],
        )  # fmt: skip

    def summary(self) -> list[str]:
        shape = self.losses.shape
        first = f"{shape[0]} fits, {shape[1]} steps each in {self.seconds:.3g} s"
        if shape[1]:
            bounds = self.elbo_per_datum[self.succeeded, -1]
            if len(bounds):
                first += f", final ELBO per datum {bounds.min():.4g} to {bounds.max():.4g}"
        failed = [f"fit {i} failed: {error}" for i, error in self.errors.items()]
        interrupted = ["interrupted before the last step"] * self.interrupted
        return [first, *failed, *interrupted, *list_arrays("params of each", self.params, skip=1)]
