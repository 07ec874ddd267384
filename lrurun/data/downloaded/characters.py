"""Texts as characters: a vocabulary by frequency, ids, and back."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from lrurun.data.arrays import Writer
from lrurun.data.reduction import first_examples, fits
from lrurun.data.task import Data, Progress, Reduction, Split
from lrurun.errors import LrurunError

PAD, UNKNOWN, END = range(3)
SPECIAL = ("<pad>", "<unk>", "<eos>")
"""The first tokens of every vocabulary of characters, in the order of ids."""

_CODES = 0x110000
"""Unicode's code points."""
_BLOCK = 500
"""Texts counted at once: some megabytes."""


def utf8(data: bytes, name: str, hint: str) -> str:
    """The text in `data`.

    Raises:
        LrurunError: it is not UTF-8; `name` is the text's in the message.
    """
    try:
        return data.decode()
    except UnicodeDecodeError as error:
        raise LrurunError(f"{name}: not UTF-8: byte 0x{data[error.start]:02x} at {error.start:,}", hint) from None


class Frequencies:
    """The frequency of every character in the first `length` - 1 characters of texts."""

    def __init__(self, length: int) -> None:
        self._length = length
        self._counts = np.zeros(_CODES, np.int64)

    def add(self, texts: Sequence[str]) -> None:
        """Counts the characters of more texts."""
        for first in range(0, len(texts), _BLOCK):
            found = np.bincount(_codes("".join(text[: self._length - 1] for text in texts[first : first + _BLOCK])))
            self._counts[: len(found)] += found

    def vocabulary(self, least: int) -> list[str]:
        """The special tokens, then the characters that occur at least `least` times, the most frequent first."""
        (codes,) = np.nonzero(self._counts >= least)
        order = np.argsort(-self._counts[codes], kind="stable")  # ties stay in the order of code points
        return [*SPECIAL, *map(chr, codes[order].tolist())]


class Alphabet:
    """Encodes characters as ids by a table of all code points."""

    def __init__(self, vocabulary: Sequence[str], length: int) -> None:
        self.vocabulary, self.length = list(vocabulary), length
        self.dtype = np.dtype(np.uint8 if len(vocabulary) <= 256 else np.int16)
        """The type of ids."""
        self.length_dtype = np.dtype(np.int16 if length <= np.iinfo(np.int16).max else np.int32)
        if len(vocabulary) > np.iinfo(np.int16).max:
            raise LrurunError(
                f"{len(vocabulary):,} different characters in the training texts are too many",
                "set a larger min_frequency, or give another copy: published texts have about a hundred",
            )
        self._table = np.full(_CODES, UNKNOWN, self.dtype)
        self._table[[ord(character) for character in vocabulary[len(SPECIAL) :]]] = range(len(SPECIAL), len(vocabulary))

    def encode(self, texts: Sequence[str]) -> tuple[np.ndarray, np.ndarray]:
        """(n, length) ids, with `<eos>` after the last character and then 0; (n,) lengths, including `<eos>`."""
        ids = np.zeros((len(texts), self.length), self.dtype)
        ends = np.empty(len(texts), self.length_dtype)
        for number, text in enumerate(texts):
            codes = _codes(text[: self.length - 1])
            ids[number, : len(codes)] = self._table.take(codes)
            ids[number, len(codes)] = END
            ends[number] = len(codes) + 1
        return ids, ends


def shortened(options: Any, there: Any, texts: Sequence[str]) -> Reduction | None:
    """Writes the first examples, with at most `max_length` tokens a text and the vocabulary of these.

    A character that is too rare in longer texts is too rare in shorter ones: none that is needed is missing. None where
    data with the options `there` do not have what is needed.

    Args:
        options: with the fields `max_length` and `min_frequency`, as `there`.
        texts: the splits whose texts the vocabulary is of.
    """
    if not fits(options, there, but=("max_length", "min_frequency")):
        return None
    length, least = options.max_length, options.min_frequency
    if (length, least) == (there.max_length, there.min_frequency):
        return first_examples(options)
    if length > there.max_length or least < there.min_frequency or any(getattr(there, split) for split in texts):
        return None

    def reduction(full: Data, writer: Writer, progress: Progress) -> None:
        found = np.zeros(len(full.vocabulary), np.int64)
        for split in texts:
            inputs = getattr(full, split).inputs
            for first in range(0, len(inputs), _BLOCK):
                progress(f"counting {split}", first, len(inputs))
                ids = inputs[first : first + _BLOCK, ..., : length - 1]
                found += np.bincount(ids.ravel(), minlength=len(found))
        found[: len(SPECIAL)] = 0
        (kept,) = np.nonzero(found >= least)
        kept = kept[kept >= len(SPECIAL)]
        # ties stay in the order of code points, as in Frequencies.vocabulary
        codes = np.array([ord(full.vocabulary[token]) for token in kept.tolist()], np.int64)
        kept = kept[np.lexsort((codes, -found[kept]))]
        alphabet = Alphabet([*SPECIAL, *(full.vocabulary[token] for token in kept.tolist())], length)
        writer.vocabulary = alphabet.vocabulary
        table = np.full(len(full.vocabulary), UNKNOWN, alphabet.dtype)
        table[PAD], table[END], table[kept] = PAD, END, np.arange(len(SPECIAL), len(alphabet.vocabulary))

        def change(rows: Split, split: str, first: int) -> Split:
            ids = table[rows.inputs[..., :length]]
            assert rows.lengths is not None
            lengths = np.minimum(rows.lengths, length).astype(alphabet.length_dtype)
            np.put_along_axis(ids, lengths[..., None].astype(np.int64) - 1, END, axis=-1)
            return Split(inputs=ids, labels=rows.labels, lengths=lengths)

        first_examples(options, change)(full, writer, progress)

    return reduction


def _codes(text: str) -> np.ndarray:
    return np.frombuffer(text.encode("utf-32-le"), np.dtype("<u4"))


def decoded(ids: np.ndarray, length: int, vocabulary: Sequence[str]) -> str:
    """The characters of a row, and `<eos>`."""
    return "".join(vocabulary[token] for token in np.asarray(ids)[:length])
