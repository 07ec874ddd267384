"""Draws with `lrurun plot`, and reads what is drawn."""

from __future__ import annotations

import struct
from pathlib import Path
from typing import Any

import pytest

from lrurun import console
from tests.commands import said


def lrurun(capsys: pytest.CaptureFixture[str], *words: str) -> tuple[int, str, str]:
    console.set_verbosity(0)
    return said(capsys, "plot", *words)


def lines(ax: Any) -> dict[str, tuple[list[float], list[float]]]:
    """Label -> the points of every labelled line."""
    return {
        line.get_label(): (list(line.get_xdata()), list(line.get_ydata()))
        for line in ax.lines
        if not str(line.get_label()).startswith("_")
    }


def caption(figure: Any) -> str:
    return " ".join(figure.texts[1].get_text().split())


def size(path: str) -> tuple[int, int]:
    head = Path(path).read_bytes()[:24]
    assert head[:8] == b"\x89PNG\r\n\x1a\n"
    assert head[12:16] == b"IHDR"
    width, height = struct.unpack(">II", head[16:24])
    return width, height
