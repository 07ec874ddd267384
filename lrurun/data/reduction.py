"""Smaller data from prepared ones: the parts of `Task.reduction` that tasks share."""

from __future__ import annotations

from collections.abc import Callable

import msgspec
import numpy as np

from lrurun.data.arrays import Writer
from lrurun.data.task import SPLITS, Data, Options, Progress, Reduction, Split

_BLOCK = 500
"""Examples that are read and written at once."""


def fits(options: Options, full: Options, ignored: tuple[str, ...] = ()) -> bool:
    """Whether data with `options` are the first examples of those with `full`, apart from the fields `ignored`."""
    if type(options) is not type(full):
        return False
    requested, prepared = msgspec.structs.asdict(options), msgspec.structs.asdict(full)
    is_enough = all(prepared[split] is None or (requested[split] or np.inf) <= prepared[split] for split in SPLITS)
    return is_enough and all(requested[name] == prepared[name] for name in requested if name not in (*SPLITS, *ignored))


def count(split: str, full: Data, options: Options) -> int:
    """The number of examples of a split, the first ones of `full`."""
    available = len(getattr(full, split).labels)
    return min(getattr(options, split) or available, available)


def first_examples(
    options: Options, change: Callable[[Split, str, int], Split] | None = None, block: int = _BLOCK
) -> Reduction:
    """Writes the first examples of every split, with the vocabulary of the full data.

    Args:
        change: applied to blocks of examples, with the name of the split and the number of the first one; examples
            keep their order.
        block: examples in a block.
    """

    def reduction(full: Data, writer: Writer, progress: Progress) -> None:
        writer.vocabulary = writer.vocabulary or list(full.vocabulary)
        for split in SPLITS:
            total = count(split, full, options)
            for begin in range(0, total, block):
                rows = _rows(getattr(full, split), begin, min(begin + block, total))
                changed = change(rows, split, begin) if change else rows
                for part in ("inputs", "labels", "lengths", "groups"):
                    values = getattr(changed, part)
                    if values is None:
                        continue
                    if begin == 0:
                        writer.create(split, part, (total, *values.shape[1:]), values.dtype)
                    writer.arrays[f"{split}-{part}"].put(begin, values)
                progress(f"writing {split}", begin, total)

    return reduction


def _rows(split: Split, first: int, last: int) -> Split:
    return Split(
        inputs=np.asarray(split.inputs[first:last]),
        labels=np.asarray(split.labels[first:last]),
        lengths=None if split.lengths is None else np.asarray(split.lengths[first:last]),
        groups=None if split.groups is None else np.asarray(split.groups[first:last]),
    )
