"""The library's own errors: what was got, what was wanted, what to try next."""


class DataError(ValueError):
    """A data set that cannot be used. Its message is one line and says what to do about it."""


class UnsuitableError(ValueError):
    """A method of a comparison cannot do this data set; the others go on."""


class NonFiniteLossError(FloatingPointError):
    """A fit stopped because its loss was not finite.

    Attributes:
        step: number of the step (from 0) whose loss was not finite.
        site: the sample site or parameter that was first found not to be finite.
        result: the last finite state of the fit, a `dgp_ppl.FitResult`; None if there was none.
    """

    def __init__(self, message: str, *, step: int, site: str, result: object | None) -> None:
        super().__init__(message)
        self.step = step
        self.site = site
        self.result = result
