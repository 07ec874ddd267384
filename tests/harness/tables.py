"""Tables of runs that imports read."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

SCORES: Mapping[str, Sequence[float]] = {
    "none": (0.801, 0.812, 0.793, 0.806, 0.798, 0.81),
    "layer": (0.846, 0.851, 0.838, 0.857, 0.844, 0.852),
    "batch": (0.812, 0.795, 0.803, 0.814, 0.789, 0.806),
}
"""Norm -> the score of each seed."""


def write_csv(path: Path, head: Sequence[str], rows: Sequence[Sequence[Any]]) -> Path:
    """Writes a table with these columns and rows."""
    lines = [",".join(head), *(",".join("" if cell is None else str(cell) for cell in row) for row in rows)]
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return path


def write_runs(path: Path, scores: Mapping[str, Sequence[float]] = SCORES, **more: Any) -> Path:
    """Writes a row for each run: its norm, its seed, its score, and further columns of one value."""
    rows = [
        [f"{norm}-{seed}", norm, seed, score, *more.values()]
        for norm, of_norm in scores.items()
        for seed, score in enumerate(of_norm)
    ]
    return write_csv(path, ["run", "norm", "seed", "test_acc", *more], rows)


def write_steps(path: Path, steps: int = 20, scores: Mapping[str, Sequence[float]] = SCORES) -> Path:
    """Writes a row for each step of each run: the score falls after half of the steps, as val_acc does of "layer"."""
    rows = []
    for norm, of_norm in scores.items():
        for seed, score in enumerate(of_norm):
            for step in range(1, steps + 1):
                late = max(0, step - steps // 2) / steps
                fall = late if norm == "layer" else late / 10
                value = round(score * step / steps if step < steps // 2 else score - fall, 5)
                rows.append([f"{norm}-{seed}", norm, seed, step, value, round(value - 0.01, 5), round(1 - value, 5)])
    return write_csv(path, ["run", "norm", "seed", "step", "test_acc", "val_acc", "train_loss"], rows)
