"""Tasks of the next token of a text, as PG19 and sSource have them, and models of n bytes as naive predictors."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any

import numpy as np
from msgspec import Meta

from lrurun.data.metric import Accuracy, BitsPerByte, Metric
from lrurun.data.task import Options, Output, Spec, Split, Task

BYTES = 256
MAX_ORDER = 7
"""Largest n of a model of n bytes: a key of 64 bits can hold 7."""
ORDER = 5
"""Order of the longest model among the baselines."""


class ChunkOptions(Options, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How the text is cut."""

    length: Annotated[int, Meta(ge=2, le=65_536)]
    """Tokens of an example; neighbours share none."""


class NextToken(Task):
    """Each token is predicted from the tokens before it in its example.

    There are `classes` tokens, or as many as the vocabulary has.
    """

    def spec(self, options: Any, vocabulary: Sequence[str] = ()) -> Spec:
        size = len(vocabulary) or self.classes
        output = Output(at="positions")
        return Spec(name=self.name, kind="tokens", features=size, classes=size, length=options.length, output=output)


class NextByte(NextToken):
    """The tokens are bytes."""

    classes = BYTES

    @property
    def metric(self) -> Metric:
        return BitsPerByte()

    @property
    def metrics(self) -> tuple[Metric, ...]:
        return (BitsPerByte(), Accuracy(naive=None))

    def example(self, spec: Spec, split: Split, index: int, vocabulary: Sequence[str]) -> str:
        return np.asarray(split.inputs[index]).tobytes().decode(errors="replace")


def bits_per_byte(train: np.ndarray, test: np.ndarray, n: int) -> float:
    """The cross-entropy in bits of a model of n bytes on `test`, after counting in `train`; both (rows, L + 1) uint8.

    Predicts bytes 1 to L of each row from up to n - 1 bytes before it in its row. n = 1 is the unigram model. Orders
    are interpolated by Witten and Bell (1991): with T followers of a context seen, a shorter context has weight T.
    """
    if not 1 <= n <= MAX_ORDER:
        raise ValueError(f"n must lie between 1 and {MAX_ORDER}, found {n}")
    probability = np.full((len(test), test.shape[1] - 1), 1 / BYTES)
    for context in range(n):
        counted, requested = _keys(train, context), _keys(test, context)
        grams, counts = np.unique(counted, return_counts=True)
        contexts, first = np.unique(grams // BYTES, return_index=True)
        total, followers = np.add.reduceat(counts, first), np.diff([*first, len(grams)])
        seen = _look_up(counts, grams, requested)
        total_of_context, distinct = (_look_up(values, contexts, requested // BYTES) for values in (total, followers))
        columns = probability[:, max(context, 1) - 1 :]
        known = total_of_context > 0
        mixed = (seen + distinct * columns) / np.where(known, total_of_context + distinct, 1)
        columns[...] = np.where(known, mixed, columns)
    return float(-np.mean(np.log2(probability)))


def _keys(rows: np.ndarray, context: int) -> np.ndarray:
    """A number for each predicted byte and the `context` bytes before it: (rows, columns) uint64."""
    length = rows.shape[1]
    start = max(context, 1)
    keys = np.zeros((len(rows), length - start), np.uint64)
    for back in range(context, -1, -1):
        keys = keys * np.uint64(BYTES) + rows[:, start - back : length - back].astype(np.uint64)
    return keys


def _look_up(values: np.ndarray, keys: np.ndarray, requested: np.ndarray) -> np.ndarray:
    """The value of each requested key among the sorted `keys`; 0 for others."""
    index = np.minimum(np.searchsorted(keys, requested), len(keys) - 1)
    return np.where(keys[index] == requested, values[index], 0)
