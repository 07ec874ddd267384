"""PG19 and PG19Tokens: the next byte, or the next piece of a tokenizer, of the books of PG-19 (Rae et al. 2020)."""

from __future__ import annotations

import contextlib
import hashlib
import math
from abc import abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Annotated, Any, ClassVar

import numpy as np
from msgspec import Meta

from lrurun.data.arrays import Writer
from lrurun.data.copies import parquet, reader, reading
from lrurun.data.copies.reader import Copy, File
from lrurun.data.copies.tfds import Tfds
from lrurun.data.downloaded.characters import utf8
from lrurun.data.metric import Accuracy, CrossEntropy, Metric, Perplexity
from lrurun.data.next_token import BYTES, ORDER, ChunkOptions, NextByte, NextToken, bits_per_byte
from lrurun.data.task import SPLITS, Progress, Source, Spec, Split
from lrurun.errors import LrurunError

BOOKS = {"train": 28_602, "validation": 50, "test": 100}
SIZES = {"train": 11_453_688_452, "validation": 17_402_295, "test": 40_482_852}
"""Approximate bytes of the published parquet files before compression, with titles and addresses of the books."""
TOKENS_PER_BYTE = 720_000 * 4096 / SIZES["train"]
"""Approximate, for T5's tokenizer. An epoch has 720,000 chunks (Gupta et al. 2023, Table 10: 60,000 steps of 120 in 10
epochs)."""
_COUNTED = 1 << 22
"""Bytes of each split that the longest n-gram model sees: counting takes about a hundred times as much memory."""
_BLOCK = 1 << 24
"""Tokens that are copied at once."""
_MODEL_LIMIT = 64 << 20
"""Bytes of a tokenizer's model: T5's has 0.8 million for 32,000 pieces."""

Encode = Callable[[str], np.ndarray]


class BookOptions(ChunkOptions, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How the books are cut. With sizes, a part of a copy is enough."""

    length: Annotated[int, Meta(ge=2, le=65_536)] = 4096


class TokenOptions(BookOptions, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How the books are cut, and the tokenizer."""

    tokenizer: Annotated[str, Meta(min_length=1, max_length=1000)] = "spiece.model"
    """Path of a SentencePiece model: absolute, or from the folder of the copy. The default is the name of T5's."""


class _Books(NextToken):
    """All books of a split, one after the other in the order of the copy, in chunks of length + 1 tokens.

    What remains at the end of a split is dropped. Validation is the published split.
    """

    version = "1"
    """1: rows of length + 1 tokens, without a mark between books."""
    protocols = ("holdout",)
    options: ClassVar[type[BookOptions]] = BookOptions
    tokens_per_byte: ClassVar[float] = 1.0
    wanted = (
        "a folder or an archive of PG-19 with the folders train, validation and test of texts (*.txt), a folder with "
        "parquet files of these names, or a TFDS folder of pg19"
    )

    def __init__(self, published: Mapping[str, int] = BOOKS) -> None:
        self.published = dict(published)
        """Books per split of a complete copy."""

    def sizes(self, options: BookOptions) -> dict[str, int]:
        """The sizes of the splits: estimates with two digits where no limit is set."""
        full = {split: size * self.tokens_per_byte / (options.length + 1) for split, size in SIZES.items()}
        return {split: getattr(options, split) or int(float(f"{full[split]:.1e}")) for split in SPLITS}

    def tolerance(self, split: str) -> None:
        return None

    @abstractmethod
    def encoder(self, options: Any, path: Path) -> tuple[Encode, list[str], str]:
        """Text -> ids, the vocabulary (empty: bytes), and its name for messages; `path` is the path of the copy."""

    @abstractmethod
    def baselines(self, rows: Mapping[str, np.ndarray], unigram: float, writer: Writer) -> None:
        """Adds the naive predictors; `unigram` is the cross-entropy of the unigram model in nats."""

    def find(self, path: Path, options: BookOptions) -> Source | None:
        copy = reader.find(
            path, FILES[0], HINT, forms=FILES[1:], folders=["", "data"], data_set="pg19", limit=BOOK_LIMIT
        )
        if copy is None:
            return None
        encode, vocabulary, tokenizer = self.encoder(options, path)

        def fill(writer: Writer, progress: Progress) -> None:
            writer.vocabulary = vocabulary
            size = len(vocabulary) or BYTES
            rows, seen = {}, {}
            with _texts(copy, writer.folder, progress) as read:
                for split in SPLITS:
                    file = writer.folder / f"{split}.tokens"
                    dtype = np.dtype(np.uint8 if size <= BYTES else np.uint16 if size <= 1 << 16 else np.int32)
                    tokens = map(encode, self._books(copy, read(split), split, options, progress))
                    rows[split] = _chunks(file, tokens, dtype, options.length + 1, getattr(options, split))
                    self._check(copy, split, len(rows[split]), options)
                    seen[split] = _write(writer, split, rows[split], size)
            progress("counting for the naive predictors", 0, None)
            self.baselines(rows, unigram(seen["train"], seen["test"]), writer)
            for split in SPLITS:
                (writer.folder / f"{split}.tokens").unlink()

        return Source(kind="folder", text=copy.text + tokenizer, fill=fill, archive=copy.archive)

    def _books(
        self, copy: Copy | Tfds, texts: Iterator[str], split: str, options: BookOptions, progress: Progress
    ) -> Iterator[str]:
        """The texts of the books of a split.

        Raises:
            LrurunError: at the end of a split without a limit, if the number of books is not the published one.
        """
        number = 0
        for number, text in enumerate(texts, start=1):
            progress(f"reading {split}: books", number, None if getattr(options, split) else self.published[split])
            yield text
        if getattr(options, split) is None and number != self.published[split]:
            raise LrurunError(
                f"{copy.text}: {split}: expected {self.published[split]:,} books, found {number:,}",
                f"{HINT}, or set data.{split}, the number of examples to keep, in a recipe",
            )

    def _check(self, copy: Copy | Tfds, split: str, count: int, options: BookOptions) -> None:
        """Refuses a split with fewer chunks than its limit, or none.

        Raises:
            LrurunError: with both numbers.
        """
        if count < (expected := getattr(options, split) or 1):
            raise LrurunError(
                f"{copy.text}: {split}: expected {expected:,} chunks of {options.length + 1:,} tokens, found {count:,}",
                HINT,
            )


class PG19(NextByte, _Books):
    """The next byte."""

    name = "PG19"
    title = "the next byte of books"

    def encoder(self, options: BookOptions, path: Path) -> tuple[Encode, list[str], str]:
        return lambda text: np.frombuffer(text.encode(), np.uint8), [], ""

    def baselines(self, rows: Mapping[str, np.ndarray], unigram: float, writer: Writer) -> None:
        train, test = (_sample(rows[split]) for split in ("train", "test"))
        writer.baselines["unigram model"] = unigram / math.log(2)
        is_sample = train.size < rows["train"].size or test.size < rows["test"].size
        name = f"{ORDER}-gram model" + " of a sample" * is_sample
        writer.baselines[name] = bits_per_byte(train, test, ORDER)


class PG19Tokens(_Books):
    """The next piece of a SentencePiece tokenizer; published numbers have T5's."""

    name = "PG19Tokens"
    title = "the next token of books, of the tokenizer of T5"
    options = TokenOptions
    tokens_per_byte = TOKENS_PER_BYTE
    classes = 32_000
    """The number of pieces of T5's tokenizer."""

    @property
    def metric(self) -> Metric:
        return CrossEntropy()

    @property
    def metrics(self) -> tuple[Metric, ...]:
        return (CrossEntropy(), Perplexity(), Accuracy(naive=None))

    def encoder(self, options: TokenOptions, path: Path) -> tuple[Encode, list[str], str]:
        file = (path if path.is_dir() else path.parent) / options.tokenizer
        content = _model(file)
        pieces = _sentencepiece(content, file)
        size = pieces.get_piece_size()
        name = f", {size:,} pieces of {file.name} with sha256 {hashlib.sha256(content).hexdigest()[:12]}"
        vocabulary = [pieces.id_to_piece(number) for number in range(size)]
        return lambda text: np.array(pieces.encode(text), np.int32), vocabulary, name

    def baselines(self, rows: Mapping[str, np.ndarray], unigram: float, writer: Writer) -> None:
        writer.baselines["unigram model"] = unigram

    def example(self, spec: Spec, split: Split, index: int, vocabulary: Sequence[str]) -> str:
        return "".join(vocabulary[token] for token in np.asarray(split.inputs[index])).replace("\u2581", " ")


def unigram(train: np.ndarray, test: np.ndarray) -> float:
    """The cross-entropy in nats of a unigram model; both are (classes,) counts. As `bits_per_byte` with n = 1."""
    distinct = np.count_nonzero(train)
    probability = (train + distinct / len(train)) / (train.sum() + distinct)
    return float(-(test @ np.log(probability)) / test.sum())


def _chunks(file: Path, tokens: Iterator[np.ndarray], dtype: Any, length: int, limit: int | None) -> np.ndarray:
    """(count, length) ids, at most `most`, which are in `file`: their number is not known before."""
    room = None if limit is None else limit * length
    with file.open("wb") as output:
        for ids in tokens:
            ids.astype(dtype)[:room].tofile(output)
            if room is not None and (room := max(room - len(ids), 0)) == 0:
                break
    count = file.stat().st_size // (length * np.dtype(dtype).itemsize)
    if not count:
        return np.empty((0, length), dtype)
    return np.memmap(file, dtype, "r", shape=(count, length))


def _write(writer: Writer, split: str, rows: np.ndarray, classes: int) -> np.ndarray:
    """Writes inputs and, one token later, labels; returns the (classes,) counts of labels."""
    shape = (len(rows), rows.shape[1] - 1)
    inputs, labels = (writer.create(split, part, shape, rows.dtype) for part in ("inputs", "labels"))
    counts = np.zeros(classes, np.int64)
    step = max(_BLOCK // rows.shape[1], 1)
    for first in range(0, len(rows), step):
        block = np.asarray(rows[first : first + step])
        inputs.put(first, block[:, :-1])
        labels.put(first, block[:, 1:])
        counts += np.bincount(block[:, 1:].ravel(), minlength=classes)
    return counts


def _sample(rows: np.ndarray) -> np.ndarray:
    """A sample of at most `_COUNTED` tokens, in rows at equal distances."""
    count = max(min(_COUNTED // rows.shape[1], len(rows)), 1)
    return np.asarray(rows[np.arange(count) * len(rows) // count])


def _model(file: Path) -> bytes:
    """The content of a tokenizer's model."""
    if not file.is_file():
        raise LrurunError(
            f"PG19Tokens: there is no SentencePiece model {file}",
            "put the tokenizer of T5 there, or set data.tokenizer to the path of a model",
        )
    return reading.read_file(file, _MODEL_LIMIT)


def _sentencepiece(content: bytes, file: Path) -> Any:
    """The tokenizer of a model."""
    try:
        import sentencepiece
    except ImportError:
        raise LrurunError(
            "PG19Tokens: texts are tokenized with sentencepiece, which is not installed", "pip install 'lrurun[pg19]'"
        ) from None
    try:
        if not content:
            raise ValueError("the file is empty")
        return sentencepiece.SentencePieceProcessor(model_proto=content)
    except Exception as error:  # RuntimeError and others
        reason = reading.first_line(error)
        raise LrurunError(f"{file}: not a SentencePiece model: {reason}", reading.DAMAGED) from None


HINT = "the copy is not PG-19, or incomplete: fetch it again"
BOOK_LIMIT = 64 << 20
"""Bytes of a book: they have 0.4 million on average, and the text of an encyclopaedia has some ten million."""
FILES = [tuple(f"{split}/*.txt" for split in SPLITS), *parquet.forms(SPLITS)]
"""The files of each form of a copy, a name for each split."""
_COLUMNS = ("text", "book_text")
"""Names of the column of a parquet file that has the texts of books."""


@contextlib.contextmanager
def _texts(copy: Copy | Tfds, where: Path, progress: Progress) -> Iterator[Callable[[str], Iterator[str]]]:
    """A function from a split to the texts of its books, which are in the order of TFDS, or of the names of files."""
    if isinstance(copy, Tfds):
        yield partial(_prepared, copy, progress)
        return
    with copy.on_disk(where, BOOK_LIMIT, progress) as files:
        yield lambda split: (text for file in files if file.name.startswith(split) for text in _file(file))


def _file(file: File) -> Iterator[str]:
    if file.name.endswith(".txt"):
        yield utf8(file.read(BOOK_LIMIT), file.where, HINT)
    else:
        for where, (text,) in parquet.rows(file, [_COLUMNS], HINT, BOOK_LIMIT):
            yield _checked(text.encode() if isinstance(text, str) else text, where)


def _prepared(copy: Tfds, progress: Progress, split: str) -> Iterator[str]:
    for where, example in copy.read(split, {"book_text": bytes}, progress):
        yield _checked(example["book_text"], where)


def _checked(content: Any, name: str) -> str:
    if not isinstance(content, bytes):
        raise LrurunError(f"{name}: expected a text, found {type(content).__name__}", HINT)
    if len(content) > BOOK_LIMIT:
        raise LrurunError(f"{name}: {len(content):,} bytes are more than the {BOOK_LIMIT:,} allowed", HINT)
    return utf8(content, name, HINT)
