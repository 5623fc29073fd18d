"""A way to stop a fit in the middle of its steps."""

import pytest

from dgp_ppl.inference.svi._loop import TrainingLoop


@pytest.fixture
def stop_after(monkeypatch):
    """Return a function that raises an error instead of the chunk with this number, from 0."""
    advance = TrainingLoop.advance

    def stop(number, error):
        calls = iter(range(number + 1))

        def stopped(self, *args):
            if next(calls) == number:
                raise error
            return advance(self, *args)

        monkeypatch.setattr(TrainingLoop, "advance", stopped)

    return stop
