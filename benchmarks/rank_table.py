"""Writes lrurun/judging/brunner_munzel.json: `python -m benchmarks.rank_table`, about two minutes.

P(|W| >= w) of the statistic of Brunner and Munzel over all permutations, without ties. With 12 values a side all
2,704,156 of them are enumerated; with 20 a side, 40 million are drawn.
"""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterator
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

FILE = Path(__file__).parent.parent / "lrurun/judging/brunner_munzel.json"
DRAWS, CHUNK = 40_000_000, 200_000
PER_DECADE = 40
"""Points of the table."""

Floats = NDArray[np.float64]


def statistics(first: NDArray[np.int64], n: int) -> Floats:
    """|W| for each row of the n ranks, from 0, of the first sample among 2 n, in ascending order."""
    # in ascending order, the i-th value of a sample has rank - i values of the other one below it
    wins = first - np.arange(n)
    taken = np.zeros((len(first), 2 * n), bool)
    np.put_along_axis(taken, first, True, axis=1)
    second = np.nonzero(~taken)[1].reshape(len(first), n)
    losses = second - np.arange(n)
    distance = wins.mean(1) / n - 0.5
    spread = np.sqrt((wins.var(1, ddof=1) + losses.var(1, ddof=1)) / n) / n
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.where(np.abs(distance) < 1e-12, 0.0, np.abs(distance / spread))


def every(n: int) -> Iterator[Floats]:
    chosen = itertools.combinations(range(2 * n), n)
    while some := list(itertools.islice(chosen, CHUNK)):
        yield statistics(np.array(some), n)


def drawn(n: int) -> Iterator[Floats]:
    random = np.random.default_rng(n)
    for _ in range(DRAWS // CHUNK):
        yield statistics(np.sort(random.random((CHUNK, 2 * n)).argsort(1)[:, :n], axis=1), n)


def table(values: Floats, n: int) -> dict[str, list[float]]:
    """Points (w, p), from p = 1 to the smallest p that is ever needed, 2^(1 - n)."""
    values = np.sort(values)
    count = int(np.ceil(PER_DECADE * (n - 1) * np.log10(2))) + 1
    places = np.floor(len(values) * (1 - 10 ** (-np.arange(count) / PER_DECADE))).astype(int)
    w = np.unique(np.round(values[places][np.isfinite(values[places])], 6))
    p = 1 - np.searchsorted(values, w - 1e-6) / len(values)
    return {"w": w.tolist(), "p": [float(f"{one:.6g}") for one in p]}


if __name__ == "__main__":
    tables = {n: table(np.concatenate(list(values(n))), n) for n, values in ((12, every), (20, drawn))}
    FILE.write_text(json.dumps(tables) + "\n")
    print({n: len(one["w"]) for n, one in tables.items()}, FILE.stat().st_size, "bytes")
