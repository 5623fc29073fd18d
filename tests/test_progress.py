"""Bars on terminals and in pipes."""

import io
import sys

import pytest

from dgp_ppl._progress import Progress


class Terminal(io.StringIO):
    def isatty(self):
        return True


@pytest.mark.parametrize("stream", [io.StringIO, Terminal])
def test_a_bar_shows_label_steps_and_note(monkeypatch, stream):
    """It stays at the end of a pipe, and leaves a terminal's line empty."""
    monkeypatch.setattr(sys, "stderr", found := stream())
    with Progress("dsvi 1/3", 100, "fit", done=50) as bar:
        for i in range(25):
            bar.update(2, f"loss {i}")
    text = found.getvalue()
    assert text.startswith("\rdsvi 1/3:  50%")
    assert ("100/100" in text and "loss 24" in text) == (stream is io.StringIO)
    assert text.count("\r") <= 6


def test_nothing_is_shown_unasked(monkeypatch):
    monkeypatch.setattr(sys, "stderr", found := io.StringIO())
    with Progress(False, None, "pilot", "temperatures") as bar:
        bar.update(1, "worth 3 particles")
    assert found.getvalue() == ""
