"""The library's exceptions. A message states what was given, what was wanted and what to try."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any


def one_line(error: object) -> str:
    """Format a value, or another library's error, on one line of at most 200 characters."""
    text = printable(" ".join(str(error).split())) or type(error).__name__
    return text if len(text) <= 200 else text[:197] + "..."


def printable(text: object) -> str:
    """Return a text with escapes for control characters, which a terminal would obey."""
    return "".join(c if c.isprintable() else repr(c)[1:-1] for c in str(text))


def listed(texts: Sequence[str], most: int) -> str:
    """Join texts by commas; if there are more than `most`, the first ones and the number of all."""
    rest = f", ... ({len(texts)} in all)" if len(texts) > most else ""
    return ", ".join(texts[:most]) + rest


class DataError(ValueError):
    """Data, a file or an option cannot be used. The message is one line and suggests a remedy."""

    def __init__(self, message: str = "") -> None:
        text = printable(message)  # it may quote names of a file, of any length
        super().__init__(text if len(text) <= 2000 else f"{text[:1500]} ... {text[-400:]}")


class UnsuitableError(ValueError):
    """A method of a comparison does not support this data set. The other methods still run."""


class Interrupted(KeyboardInterrupt):
    """A run was interrupted by Ctrl-C; what it had done is the error's `result`.

    It is a `KeyboardInterrupt`, so ``except KeyboardInterrupt`` catches it and ``except Exception``
    does not.

    Attributes:
        result: of `fit`, the `FitResult` after the last finished steps; of `run_mcmc` and
            `fit_mcem`, the `Chains` or the `MCEMResult` of the draws so far; of `compare`, the
            `Comparison` of the finished fits.
    """

    def __init__(self, message: str, result: Any) -> None:
        super().__init__(message)
        self.result = result


class NonFiniteLossError(FloatingPointError):
    """A fit stopped because its loss became NaN or infinite.

    Attributes:
        step: number of the step, from 0, with the non-finite loss.
        site: the first sample site or parameter with a value that is not finite.
        result: the last finite state of the fit, a `dgp_ppl.FitResult`; None if no step was finite.
    """

    def __init__(self, message: str, *, step: int, site: str, result: object | None) -> None:
        super().__init__(message)
        self.step = step
        self.site = site
        self.result = result

    def __reduce__(self) -> tuple[Any, ...]:
        make = partial(type(self), step=self.step, site=self.site, result=self.result)
        return make, self.args
