"""Texts as characters, as Text and Retrieval have them: a vocabulary by frequency, ids, and back."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import islice
from typing import Annotated, Any, ClassVar

import numpy as np
from msgspec import Meta

from lrurun.data.arrays import Writer
from lrurun.data.reduction import first_examples, fits
from lrurun.data.task import Count, Data, Options, Progress, Reduction, Source, Spec, Split, Task, limited
from lrurun.errors import LrurunError

PAD, UNKNOWN, END = range(3)
SPECIAL = ("<pad>", "<unk>", "<eos>")
"""The first tokens of every vocabulary of characters, in the order of ids."""

_CODES = 0x110000
"""The number of Unicode's code points."""
_BLOCK = 500
"""Texts that are counted or encoded at once: some megabytes."""

Row = tuple[int, tuple[str, ...]]
"""An example: its label and its texts."""


class CharacterOptions(Options, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The options of texts. The vocabulary is from all training texts of the source, even if not all are kept."""

    max_length: Annotated[int, Meta(ge=2, le=1_000_000)]
    """Tokens of a text, including `<eos>`; longer ones are truncated."""
    min_frequency: Count
    """Characters that occur less often in the training texts become `<unk>`."""


class CharacterTask(Task):
    """One text, or a pair of them, of two classes."""

    classes = 2
    pair: ClassVar[bool] = False
    published_vocabulary: ClassVar[int]
    """The published number of tokens, for a model without prepared data."""
    counted: ClassVar[tuple[str, ...]] = ("train",)
    """The splits from whose texts the vocabulary is made."""

    def __init__(self, full: Mapping[str, int]) -> None:
        self.full = dict(full)
        """Examples per split of a complete copy."""

    def sizes(self, options: Any) -> dict[str, int]:
        return limited(options, self.full)

    def spec(self, options: Any, vocabulary: Sequence[str] = ()) -> Spec:
        return Spec(
            name=self.name,
            kind="tokens",
            features=len(vocabulary) or self.published_vocabulary,
            classes=2,
            length=options.max_length,
            pair=self.pair,
        )

    def reduction(self, options: Any, full: Any) -> Reduction | None:
        return shortened(options, full, self.counted)

    @abstractmethod
    def write(self, writer: Writer, copy: Any, options: Any, progress: Progress) -> None:
        """Writes the data that `find` has found."""

    def source(self, copy: Any, options: Any) -> Source:
        """The source of a copy that `reader.find` has found."""

        def fill(writer: Writer, progress: Progress) -> None:
            self.write(writer, copy, options, progress)

        return Source(kind="folder", text=copy.text, fill=fill, archive=copy.archive)


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
            counts = np.bincount(_codes("".join(text[: self._length - 1] for text in texts[first : first + _BLOCK])))
            self._counts[: len(counts)] += counts

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


def write_split(
    writer: Writer,
    split: str,
    rows: Iterable[Row],
    count: int,
    alphabet: Alphabet,
    progress: Progress,
    *,
    pair: bool = False,
) -> None:
    """Writes the arrays of a split of `count` examples: inputs (count, length), or (count, 2, length) for pairs."""
    texts = (2,) if pair else ()
    inputs = writer.create(split, "inputs", (count, *texts, alphabet.length), alphabet.dtype)
    lengths = writer.create(split, "lengths", (count, *texts), alphabet.length_dtype)
    labels = writer.create(split, "labels", (count,), np.uint8)
    done = 0
    for block in blocks(rows):
        ids, ends = alphabet.encode([text for _, texts_of_row in block for text in texts_of_row])
        inputs.put(done, ids.reshape(len(block), *texts, alphabet.length))
        lengths.put(done, ends.reshape(len(block), *texts))
        labels.put(done, np.array([label for label, _ in block], np.uint8))
        done += len(block)
        progress(f"encoding {split}", done, count)


def blocks(rows: Iterable[Row]) -> Iterator[list[Row]]:
    """The examples in blocks."""
    rows = iter(rows)
    while block := list(islice(rows, _BLOCK)):
        yield block


def shortened(options: Any, full_options: Any, texts: Sequence[str]) -> Reduction | None:
    """Writes the first examples, with at most `max_length` tokens a text and the vocabulary of these.

    A character that is too rare in longer texts is too rare in shorter ones: none that is needed is missing. None where
    data with `full_options` do not have what is needed.

    Args:
        options: with the fields `max_length` and `min_frequency`, as `full_options`.
        texts: the splits from whose texts the vocabulary is made.
    """
    if not fits(options, full_options, ignored=("max_length", "min_frequency")):
        return None
    length, least = options.max_length, options.min_frequency
    if (length, least) == (full_options.max_length, full_options.min_frequency):
        return first_examples(options)
    if length > full_options.max_length or least < full_options.min_frequency:
        return None
    if any(getattr(full_options, split) for split in texts):
        return None

    def reduction(full: Data, writer: Writer, progress: Progress) -> None:
        counts = np.zeros(len(full.vocabulary), np.int64)
        for split in texts:
            inputs = getattr(full, split).inputs
            for first in range(0, len(inputs), _BLOCK):
                progress(f"counting {split}", first, len(inputs))
                ids = inputs[first : first + _BLOCK, ..., : length - 1]
                counts += np.bincount(ids.ravel(), minlength=len(counts))
        counts[: len(SPECIAL)] = 0
        (kept,) = np.nonzero(counts >= least)
        kept = kept[kept >= len(SPECIAL)]
        # ties stay in the order of code points, as in Frequencies.vocabulary
        codes = np.array([ord(full.vocabulary[token]) for token in kept.tolist()], np.int64)
        kept = kept[np.lexsort((codes, -counts[kept]))]
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
