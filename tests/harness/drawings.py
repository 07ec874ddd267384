"""Reads what figures draw."""

from __future__ import annotations

import struct
from itertools import combinations
from pathlib import Path
from typing import Any


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


def misplaced(figure: Any) -> list[str]:
    """Titles and labels of axes, texts and legends that are not wholly inside of a figure, or cover each other."""
    figure.canvas.draw()
    texts = [*figure.texts, *(text for legend in figure.legends for text in legend.get_texts())]
    for ax in figure.axes:
        texts += [ax.title, ax.xaxis.label, ax.yaxis.label]
    boxes = [(text.get_text(), text.get_window_extent()) for text in texts if text.get_text()]
    width, height = figure.bbox.width + 1, figure.bbox.height + 1
    found = [text for text, box in boxes if min(box.x0, box.y0) < -1 or box.x1 > width or box.y1 > height]
    return found + [f"{one} over {other}" for (one, a), (other, b) in combinations(boxes, 2) if a.overlaps(b)]
