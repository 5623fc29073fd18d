"""Bars on terminals and in pipes."""

import contextlib
import io
import sys
import time

import pytest

from dgp_ppl import _waiting
from dgp_ppl._partition import compiled
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


def test_a_terminal_shows_how_long_the_first_program_compiles(monkeypatch):
    monkeypatch.setattr(sys, "stderr", found := Terminal())
    with Progress(True, 10, "fit") as bar:
        time.sleep(1.3)
        assert "compiling, 1 s" in found.getvalue()
        bar.update(10, "loss 1")
    after = found.getvalue()
    time.sleep(1.1)
    assert found.getvalue() == after


@pytest.mark.parametrize("bar", [None, True, False])
def test_a_terminal_shows_how_long_a_program_compiles_without_a_bar(monkeypatch, bar):
    monkeypatch.setattr(sys, "stderr", found := Terminal())
    monkeypatch.setattr(_waiting, "_FIRST", 0.1)
    monkeypatch.setattr(_waiting.Waiting, "others", 0)  # whatever bars other tests have left
    with contextlib.nullcontext() if bar is None else Progress(bar, 10, "fit"):
        compiled(lambda: time.sleep(0.5))()  # JAX traces it once
    assert ("dgp_ppl: compiling or running, 0 s" in found.getvalue()) == (bar is None)
    assert bar or not found.getvalue().split("\r")[-1]
