"""IMDB movie reviews (Maas et al. 2011), character by character: is a review positive? Also texts as characters."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Annotated, NamedTuple

import numpy as np
from msgspec import Meta

from lrurun.errors import LrurunError
from lrurun.tasks import containers
from lrurun.tasks.base import SPLITS, Count, Fill, Options, Remote, Source, Spec, Split, Task, Tell, limited, majority
from lrurun.tasks.writer import Writer

SIZES = {"train": 22_500, "validation": 2_500, "test": 25_000}
ARCHIVE = "aclImdb_v1.tar.gz"

PAD, UNKNOWN, END = range(3)
SPECIAL = ("<pad>", "<unk>", "<eos>")
"""The first tokens of every vocabulary of characters, in the order of ids."""

_CLASSES = ("neg", "pos")
_PARTS = ("train", "test")
_REVIEW = re.compile(r"(?:.*/)?(train|test)/(neg|pos)/\d+_\d+\.txt")
_CODES = 0x110000
"""Unicode's code points."""
_FILE = 1 << 20
"""Bytes of a review, at most: people wrote them into a form, the longest a few thousand words."""
_BLOCK = 500
"""Texts encoded and written at once."""
_HINT = "the copy is not the published one, or incomplete: fetch it again"


class TextOptions(Options, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The vocabulary is that of all training texts of the source, however many of them are kept."""

    max_length: Annotated[int, Meta(ge=2, le=1_000_000)] = 4096
    """Tokens, `<eos>` included; what is longer is cut."""
    min_frequency: Count = 15
    """Characters that occur less often in the training texts are `<unk>`."""


class Review(NamedTuple):
    """One labelled text of the published training or test part."""

    part: str
    label: int
    text: str


Read = Callable[[Tell], Iterator[Review]]


class Text(Task):
    """Reviews as S4 and S5 read them: characters as they are, `<br />` too; blanks at both ends are cut, as in TFDS.

    Every copy gives the same arrays: texts are put in the order of their characters and then shuffled, so that the
    first ones of a split are as good as any, and none of this depends on the order or the names of files.
    """

    name = "Text"
    title = "movie reviews in characters, up to 4096 of them, 2 classes"
    version = "1"
    """1: the shuffle of `arranged`, ids by frequency."""
    protocols = ("holdout", "paper")
    options = TextOptions
    classes = 2
    remotes = (
        Remote(
            url="http://ai.stanford.edu/~amaas/data/sentiment/aclImdb_v1.tar.gz",
            name=ARCHIVE,
            bytes=84_125_825,
            sha256="c40f74a18d3b61f90feba1e17730e0d38e8b97c05fde7008942e91923d1658fe",
        ),
    )
    wanted = f"{ARCHIVE}, its unpacked folder aclImdb, or a TFDS folder of imdb_reviews"

    def __init__(self, full: Mapping[str, int] = SIZES) -> None:
        self.full = dict(full)
        """Examples per split of a whole copy, half of them of each class."""

    def sizes(self, options: TextOptions) -> dict[str, int]:
        return limited(options, self.full)

    def spec(self, options: TextOptions, vocabulary: Sequence[str] = ()) -> Spec:
        """Without a vocabulary, 135 tokens: as published."""
        features = len(vocabulary) or 135
        return Spec(name=self.name, kind="tokens", features=features, classes=2, length=options.max_length)

    def find(self, path: Path, options: TextOptions) -> Source | None:
        if path.is_file():
            return self._archive(path, options) if containers.is_archive(path) else None
        for folder in (path, path / "aclImdb"):
            if any((folder / part / name).is_dir() for part in _PARTS for name in _CLASSES):
                text = f"the reviews in {folder.absolute()}"
                return Source(
                    kind="folder", text=text, fill=self._fill(partial(_unpacked, folder), str(folder), options)
                )
        if (path / ARCHIVE).is_file():
            return self._archive(path / ARCHIVE, options)
        return self._tfds(path, options)

    def example(self, spec: Spec, split: Split, index: int, vocabulary: Sequence[str]) -> str:
        assert split.lengths is not None
        return decoded(split.inputs[index], int(split.lengths[index]), vocabulary)

    def _archive(self, path: Path, options: TextOptions) -> Source:
        return Source(
            kind="folder", text=str(path.absolute()), fill=self._fill(partial(_streamed, path), str(path), options)
        )

    def _tfds(self, path: Path, options: TextOptions) -> Source | None:
        copy = containers.tfds(path, "imdb_reviews", config="plain_text")
        if copy is None:
            other = containers.tfds(path, "imdb_reviews")
            if other is None:
                return None
            raise LrurunError(
                f"{other.folder}: no plain texts, but another configuration of imdb_reviews",
                "give a folder of imdb_reviews/plain_text",
            )
        text = f"{copy.text}, {copy.folder.absolute()}"
        fill = self._fill(partial(_from_tfds, copy), str(copy.folder), options)
        return Source(kind="folder", text=text, fill=fill)

    def _fill(self, read: Read, where: str, options: TextOptions) -> Fill:
        def fill(writer: Writer, tell: Tell) -> None:
            reviews: dict[tuple[str, int], list[str]] = {(part, label): [] for part in _PARTS for label in (0, 1)}
            for part, label, text in read(tell):
                # what no array keeps decides no order: texts that are equal up to here are equal rows
                reviews[part, label].append(text[: options.max_length - 1])
                if len(reviews[part, label]) > 2 * self._whole(part):  # a few too many are counted below
                    break
            self._check(reviews, where)
            frequencies = Frequencies(options.max_length)
            for label in (0, 1):
                frequencies.add(reviews["train", label])
            alphabet = Alphabet(frequencies.vocabulary(options.min_frequency), options.max_length)
            writer.vocabulary = alphabet.vocabulary
            labels = {}
            splits = arranged(reviews, self.full["validation"])
            for split, count in self.sizes(options).items():
                labels[split] = _write(writer, split, splits[split][:count], alphabet, tell)
            writer.baselines["majority class"] = majority(labels["train"], labels["test"])

        return fill

    def _check(self, reviews: Mapping[tuple[str, int], Sequence[str]], where: str) -> None:
        """Whether every class is whole.

        Raises:
            LrurunError: with the numbers of the first that is not.
        """
        for (part, label), texts in reviews.items():
            if len(texts) != self._whole(part):
                raise LrurunError(
                    f"{where}: {part}/{_CLASSES[label]}: expected {self._whole(part):,} reviews, found {len(texts):,}",
                    _HINT,
                )

    def _whole(self, part: str) -> int:
        """The reviews of each class in a part of a whole copy."""
        return (self.full[part] + (self.full["validation"] if part == "train" else 0)) // 2


def arranged(reviews: Mapping[tuple[str, int], Sequence[str]], validation: int) -> dict[str, list[tuple[str, int]]]:
    """Texts with labels per split; `validation` of the training texts are held out, as many of each class."""
    random = np.random.RandomState(0)
    held = validation // 2
    splits: dict[str, list[tuple[str, int]]] = {split: [] for split in SPLITS}
    for label in (0, 1):
        train = [(text, label) for text in sorted(reviews["train", label])]
        order = random.permutation(len(train))
        splits["validation"] += [train[k] for k in order[:held]]
        splits["train"] += [train[k] for k in order[held:]]
        splits["test"] += [(text, label) for text in sorted(reviews["test", label])]
    return {split: [rows[k] for k in random.permutation(len(rows))] for split, rows in splits.items()}


def _write(writer: Writer, split: str, rows: Sequence[tuple[str, int]], alphabet: Alphabet, tell: Tell) -> np.ndarray:
    """Fills the arrays of a split; its labels."""
    inputs = writer.create(split, "inputs", (len(rows), alphabet.length), alphabet.dtype)
    lengths = writer.create(split, "lengths", (len(rows),), alphabet.length_dtype)
    for first in range(0, len(rows), _BLOCK):
        ids, ends = alphabet.encode([text for text, _ in rows[first : first + _BLOCK]])
        inputs.put(first, ids)
        lengths.put(first, ends)
        tell(f"encoding {split}", first + len(ends), len(rows))
    labels = np.array([label for _, label in rows], np.uint8)
    writer.save(split, "labels", labels)
    return labels


def _streamed(path: Path, tell: Tell) -> Iterator[Review]:
    """The labelled reviews of the archive; the unlabelled half of it is passed over."""
    for name, file in containers.members(path, tell):
        if found := _REVIEW.fullmatch(name):
            data = containers.whole(file, _FILE, f"{path}: {name}")
            yield _review(found[1], _CLASSES.index(found[2]), data, f"{path}: {name}")


def _unpacked(folder: Path, tell: Tell) -> Iterator[Review]:
    for part in _PARTS:
        for label, name in enumerate(_CLASSES):
            tell(f"reading {folder / part / name}", 0, None)
            for path in (folder / part / name).glob("*.txt"):
                if _REVIEW.fullmatch(path.as_posix()):
                    yield _review(part, label, containers.read(path, _FILE), str(path))


def _from_tfds(copy: containers.Tfds, tell: Tell) -> Iterator[Review]:
    for part in _PARTS:
        for number, example in enumerate(copy.read(part, {"text": bytes, "label": int})):
            tell(f"reading {part} of {copy.folder}", number, copy.counts.get(part))
            name = f"{copy.folder}: example {number} of {part}"
            label = int(example["label"])
            if label not in (0, 1):
                raise LrurunError(f"{name}: expected label 0 or 1, found {label}", _HINT)
            yield _review(part, label, example["text"], name)


def _review(part: str, label: int, data: bytes, name: str) -> Review:
    return Review(part, label, utf8(data.strip(), name, _HINT))


def utf8(data: bytes, name: str, hint: str) -> str:
    """The text that is meant by `data`.

    Raises:
        LrurunError: it is no UTF-8; `name` says which text.
    """
    try:
        return data.decode()
    except UnicodeDecodeError as error:
        raise LrurunError(f"{name}: not UTF-8: byte 0x{data[error.start]:02x} at {error.start:,}", hint) from None


class Frequencies:
    """How often every character occurs in texts of which only the first `length` - 1 characters are read."""

    def __init__(self, length: int) -> None:
        self._length = length
        self._counts = np.zeros(_CODES, np.int64)

    def add(self, texts: Sequence[str]) -> None:
        """Counts more texts, some megabytes at a time."""
        for first in range(0, len(texts), _BLOCK):
            found = np.bincount(_codes("".join(text[: self._length - 1] for text in texts[first : first + _BLOCK])))
            self._counts[: len(found)] += found

    def vocabulary(self, least: int) -> list[str]:
        """The special tokens, then the characters that occur `least` times or more, the commonest first."""
        (codes,) = np.nonzero(self._counts >= least)
        order = np.argsort(-self._counts[codes], kind="stable")  # ties stay in the order of code points
        return [*SPECIAL, *map(chr, codes[order].tolist())]


class Alphabet:
    """Characters to ids, by a table of all code points."""

    def __init__(self, vocabulary: Sequence[str], length: int) -> None:
        self.vocabulary, self.length = list(vocabulary), length
        self.dtype = np.dtype(np.uint8 if len(vocabulary) <= 256 else np.int16)
        """Of ids."""
        self.length_dtype = np.dtype(np.int16 if length <= np.iinfo(np.int16).max else np.int32)
        if len(vocabulary) > np.iinfo(np.int16).max:
            raise LrurunError(
                f"{len(vocabulary):,} different characters in the training texts are too many",
                "set a larger min_frequency, or give another copy: published texts have about a hundred",
            )
        self._table = np.full(_CODES, UNKNOWN, self.dtype)
        self._table[[ord(character) for character in vocabulary[len(SPECIAL) :]]] = range(len(SPECIAL), len(vocabulary))

    def encode(self, texts: Sequence[str]) -> tuple[np.ndarray, np.ndarray]:
        """(n, length) ids, `<eos>` behind the last character and 0 after it; (n,) lengths with `<eos>`."""
        ids = np.zeros((len(texts), self.length), self.dtype)
        ends = np.empty(len(texts), self.length_dtype)
        for number, text in enumerate(texts):
            codes = _codes(text[: self.length - 1])
            ids[number, : len(codes)] = self._table.take(codes)
            ids[number, len(codes)] = END
            ends[number] = len(codes) + 1
        return ids, ends


def _codes(text: str) -> np.ndarray:
    return np.frombuffer(text.encode("utf-32-le"), np.dtype("<u4"))


def decoded(ids: np.ndarray, length: int, vocabulary: Sequence[str]) -> str:
    """The characters of a row, `<eos>` among them."""
    return "".join(vocabulary[token] for token in np.asarray(ids)[:length])
