"""Smaller data from prepared ones: the parts of `Task.reduction` that tasks share."""

from __future__ import annotations

from collections.abc import Callable

import msgspec
import numpy as np

from lrurun.data.arrays import Writer
from lrurun.data.task import SPLITS, Data, Options, Progress, Reduction, Split

_BLOCK = 500
"""Examples that are read and written at once."""


def fits(options: Options, full: Options, but: tuple[str, ...] = ()) -> bool:
    """Whether data with `options` are the first examples of those with `full`, apart from the fields `but`."""
    if type(options) is not type(full):
        return False
    wanted, there = msgspec.structs.asdict(options), msgspec.structs.asdict(full)
    enough = all(there[split] is None or (wanted[split] or np.inf) <= there[split] for split in SPLITS)
    return enough and all(wanted[name] == there[name] for name in wanted if name not in (*SPLITS, *but))


def count(split: str, full: Data, options: Options) -> int:
    """The number of examples of a split, the first ones of `full`."""
    there = len(getattr(full, split).labels)
    return min(getattr(options, split) or there, there)


def first_examples(
    options: Options, change: Callable[[Split, str, int], Split] | None = None, block: int = _BLOCK
) -> Reduction:
    """Writes the first examples of every split, with the vocabulary of the full data.

    Args:
        change: applied to blocks of examples, with the name of the split and the number of the first one; examples
            keep their places.
        block: examples in a block.
    """

    def reduction(full: Data, writer: Writer, progress: Progress) -> None:
        writer.vocabulary = writer.vocabulary or list(full.vocabulary)
        for split in SPLITS:
            number = count(split, full, options)
            for begin in range(0, number, block):
                rows = _rows(getattr(full, split), begin, min(begin + block, number))
                made = change(rows, split, begin) if change else rows
                for part in ("inputs", "labels", "lengths"):
                    values = getattr(made, part)
                    if values is None:
                        continue
                    if begin == 0:
                        writer.create(split, part, (number, *values.shape[1:]), values.dtype)
                    writer.arrays[f"{split}-{part}"].put(begin, values)
                progress(f"writing {split}", begin, number)

    return reduction


def _rows(split: Split, first: int, last: int) -> Split:
    return Split(
        inputs=np.asarray(split.inputs[first:last]),
        labels=np.asarray(split.labels[first:last]),
        lengths=None if split.lengths is None else np.asarray(split.lengths[first:last]),
    )
