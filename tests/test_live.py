"""How far a preparation is, as a pipe and as a terminal see it."""

from __future__ import annotations

import io
import re

import pytest
from rich.console import Console

from lrurun import console
from lrurun.report import live


@pytest.fixture
def clock(monkeypatch):
    """Seconds that a test sets."""
    now = [100.0]
    monkeypatch.setattr(live.time, "monotonic", lambda: now[0])
    return now


def test_a_pipe_hears_of_every_step_once_and_then_now_and_then(monkeypatch, clock):
    said: list[str] = []
    monkeypatch.setattr(console, "is_terminal", lambda: False)
    monkeypatch.setattr(console, "say", said.append)
    with live.Preparing() as preparing:
        for done in range(1000):
            clock[0] += 0.1
            preparing.tell("generating images", done, 1000)
        preparing.tell("computing digests", 0, None)
        clock[0] += 31
        preparing.tell("computing digests", 0, None)
    assert said == [
        "generating images",
        "generating images: 30%",
        "generating images: 60%",
        "generating images: 90%",
        "computing digests",
        "computing digests",
    ]


@pytest.mark.parametrize("width", [44, 100])
def test_a_terminal_shows_a_line_a_step_that_fits(monkeypatch, width):
    screen = io.StringIO()
    terminal = Console(file=screen, force_terminal=True, width=width, color_system=None)
    monkeypatch.setattr(console, "is_terminal", lambda: True)
    monkeypatch.setattr(console, "err", lambda: terminal)
    with live.Preparing() as preparing:
        preparing.tell("counting new_aan_pairs.train.tsv [bold]", 1, 3)  # words, not markup
        preparing.tell("counting new_aan_pairs.train.tsv [bold]", 2, 3)
        preparing.tell("encoding", 1, 4)
        preparing.tell("computing digests", 0, None)
    drawn = re.sub(r"\x1b\[[0-9;?]*[a-zA-Z]", "", screen.getvalue())
    last = [line.rstrip() for line in re.split(r"[\r\n]+", drawn) if line.strip()][-3:]
    assert all(len(line) <= width for line in last)
    assert [line.split()[0] for line in last] == ["counting", "encoding", "computing"]
    assert "100%" in last[0], "a step that is over is whole, whatever was told last"
    assert "100%" in last[1]
    assert "%" not in last[2]
    assert ("[bold]" in last[0]) == (width == 100)
