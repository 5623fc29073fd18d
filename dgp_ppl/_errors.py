"""The library's exceptions. A message states what was given, what was wanted and what to try."""


class DataError(ValueError):
    """A data set cannot be used. The message is one line and suggests a remedy."""


class UnsuitableError(ValueError):
    """A method of a comparison does not support this data set. The other methods still run."""


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
