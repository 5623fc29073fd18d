"""Bars on terminals, lines in pipes."""

import io
import sys

import pytest

from dgp_ppl._terminal import Progress


class Terminal(io.StringIO):
    def isatty(self):
        return True


@pytest.fixture
def clock(monkeypatch):
    """A clock that the test sets."""
    now = [0.0]
    monkeypatch.setattr("time.monotonic", lambda: now[0])
    return now


def run(monkeypatch, stream, clock=None, seconds=0.0, **options):
    monkeypatch.setattr(sys, "stderr", stream)
    with Progress(options.pop("show", True), 100, "fit", **options) as bar:
        for i in range(50):
            if clock is not None:
                clock[0] += seconds
            bar.update(2, f"loss {i}")
    return stream.getvalue()


def test_a_pipe_gets_one_line_of_a_short_run(monkeypatch, clock):
    text = run(monkeypatch, io.StringIO(), clock, 0.1, show="dsvi 1/3")
    assert text == "dsvi 1/3: 100 of 100 steps in 5.0 s, loss 49\n"


def test_a_pipe_gets_a_line_per_tenth_of_a_long_run(monkeypatch, clock):
    lines = run(monkeypatch, io.StringIO(), clock, 60.0).splitlines()
    assert len(lines) == 10
    assert lines[0] == "fit: 10 of 100 steps in 300 s, loss 4"
    assert lines[-1] == "fit: 100 of 100 steps in 3000 s, loss 49"


def test_lines_are_ten_seconds_apart(monkeypatch, clock):
    lines = run(monkeypatch, io.StringIO(), clock, 1.0).splitlines()
    assert [line.split()[1] for line in lines] == ["20", "40", "60", "80", "100"]


def test_steps_done_before_count(monkeypatch, clock):
    monkeypatch.setattr(sys, "stderr", stream := io.StringIO())
    with Progress(True, 100, "sample", "draws", done=80) as bar:
        bar.update(10)
    assert stream.getvalue() == "sample: 90 of 100 draws in 0.0 s\n"


def test_a_terminal_gets_a_bar(monkeypatch):
    text = run(monkeypatch, Terminal())
    assert "\r" in text
    assert "fit" in text
    assert "\n" not in text


@pytest.mark.parametrize("stream", [io.StringIO(), Terminal()])
def test_nothing_is_shown_unasked(monkeypatch, stream):
    assert run(monkeypatch, stream, show=False) == ""


def test_a_run_of_unknown_length_gets_a_line_every_ten_seconds(monkeypatch, clock):
    stream = io.StringIO()
    monkeypatch.setattr(sys, "stderr", stream)
    with Progress(True, None, "pilot", "temperatures") as bar:
        for i in range(50):
            clock[0] += 1.0
            bar.update(1, f"beta 0.{i}")
    lines = stream.getvalue().splitlines()
    assert lines[0] == "pilot: 10 temperatures in 10 s, beta 0.9"
    assert lines[-1] == "pilot: 50 temperatures in 50 s, beta 0.49"
    assert len(lines) == 6
