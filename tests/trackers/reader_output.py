"""Runs as a reader gives them, for tests."""

from __future__ import annotations

from collections.abc import Collection
from pathlib import Path

from lrurun import trackers
from lrurun.trackers import Source, TrackedRun

FILES = Path(__file__).parent / "files"


def read(
    kind: str, path: Path, curves: Collection[str] | None = None, *, project: str = ""
) -> tuple[list[TrackedRun], list[str]]:
    """The runs of a source of this kind, and the notes on them."""
    reader = trackers.opened(Source(name=str(path), project=project), kind)
    return list(reader.runs(curves)), list(reader.notes())


def points(run: TrackedRun, metric: str) -> list[tuple[int, str]]:
    """Step and value of each point of a metric; values as texts, so that NaN equals NaN."""
    curve = run.curves[metric]
    return [(int(step), str(value)) for step, value in zip(curve.steps, curve.values.tolist(), strict=True)]


def recognised(kind: str, path: Path) -> bool:
    """Whether a reader takes this path for a source of its own."""
    return trackers.reader(kind).recognises(Source(name=str(path)))
