"""IMDB movie reviews (Maas et al. 2011), character by character: is a review positive?"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Annotated, NamedTuple

import numpy as np
from msgspec import Meta

from lrurun.data.arrays import Writer
from lrurun.data.copies import parquet, reader
from lrurun.data.copies.reader import Copy, File
from lrurun.data.copies.tfds import Tfds
from lrurun.data.downloaded.characters import (
    Alphabet,
    CharacterOptions,
    CharacterTask,
    Frequencies,
    decoded,
    utf8,
    write_split,
)
from lrurun.data.task import SPLITS, Count, Progress, Remote, Source, Spec, Split
from lrurun.errors import LrurunError

SIZES = {"train": 22_500, "validation": 2_500, "test": 25_000}
ARCHIVE = "aclImdb_v1.tar.gz"

_CLASSES = ("neg", "pos")
_PARTS = ("train", "test")
_FILES = tuple(f"{part}/{name}/*.txt" for part in _PARTS for name in _CLASSES)
_PARQUET = parquet.forms(_PARTS)
_REVIEW = re.compile(r"(train|test)/(neg|pos)/\d+_\d+\.txt")
_FILE_LIMIT = 1 << 20
"""Bytes of a review: the longest has a few thousand words."""
_PARQUET_LIMIT = 1 << 27
"""Bytes of a Parquet file: the published ones have 21 million."""
_GROUP_LIMIT = 1 << 27
"""Bytes of the texts in a group of its rows: all texts of a part have 34 million."""
_HINT = "the copy is not the published one, or incomplete: fetch it again"


class TextOptions(CharacterOptions, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The options of a review; the defaults are as published."""

    max_length: Annotated[int, Meta(ge=2, le=1_000_000)] = 4096
    min_frequency: Count = 15


class Review(NamedTuple):
    """One labelled text of the published training or test part."""

    part: str
    label: int
    text: str


class Text(CharacterTask):
    """Reviews as S4 and S5 read them: unchanged characters, with `<br />`; space at both ends is removed, as in TFDS.

    Every copy gives the same arrays, whatever the order and names of its files: texts are sorted and then shuffled, so
    that the first texts of a split are a random sample. Validation is a tenth of the training texts (`arranged`).
    """

    name = "Text"
    title = "movie reviews in characters, up to 4096 of them, 2 classes"
    version = "1"
    """1: the shuffle of `arranged`, ids by frequency."""
    protocols = ("holdout", "paper")
    options = TextOptions
    published_vocabulary = 135
    counted = ("train", "validation")
    remotes = (
        Remote(
            url="http://ai.stanford.edu/~amaas/data/sentiment/aclImdb_v1.tar.gz",
            name=ARCHIVE,
            bytes=84_125_825,
            sha256="c40f74a18d3b61f90feba1e17730e0d38e8b97c05fde7008942e91923d1658fe",
        ),
    )
    wanted = (
        f"{ARCHIVE}, its unpacked folder aclImdb, a folder with parquet files named train and test, or a TFDS "
        "folder of imdb_reviews"
    )

    def __init__(self, full: Mapping[str, int] = SIZES) -> None:
        """Half of the examples of each split of a complete copy are of each class."""
        super().__init__(full)

    def find(self, path: Path, options: TextOptions) -> Source | None:
        copy = reader.find(
            path,
            _FILES,
            _HINT,
            forms=_PARQUET,
            folders=["", "aclImdb", "plain_text", "data"],
            archives=[ARCHIVE],
            data_set="imdb_reviews",
            config="plain_text",
        )
        return self.source(copy, options) if copy else None

    def example(self, spec: Spec, split: Split, index: int, vocabulary: Sequence[str]) -> str:
        assert split.lengths is not None
        return decoded(split.inputs[index], int(split.lengths[index]), vocabulary)

    def write(self, writer: Writer, copy: Copy | Tfds, options: TextOptions, progress: Progress) -> None:
        reviews: dict[tuple[str, int], list[str]] = {(part, label): [] for part in _PARTS for label in (0, 1)}
        for part, label, text in _reviews(copy, writer.folder, progress):
            # only characters that are kept decide the order: texts that are equal up to here are equal rows
            reviews[part, label].append(text[: options.max_length - 1])
            if len(reviews[part, label]) > 2 * self._complete(part):  # a few too many are reported below
                break
        self._check(reviews, str(copy.path))
        frequencies = Frequencies(options.max_length)
        for label in (0, 1):
            frequencies.add(reviews["train", label])
        alphabet = Alphabet(frequencies.vocabulary(options.min_frequency), options.max_length)
        writer.vocabulary = alphabet.vocabulary
        splits = arranged(reviews, self.full["validation"])
        for split, count in self.sizes(options).items():
            rows = [(label, (text,)) for text, label in splits[split][:count]]
            write_split(writer, split, rows, len(rows), alphabet, progress)

    def _check(self, reviews: Mapping[tuple[str, int], Sequence[str]], where: str) -> None:
        """Checks that every class is complete.

        Raises:
            LrurunError: with the numbers of the first class that is not.
        """
        for (part, label), texts in reviews.items():
            expected = self._complete(part)
            if len(texts) != expected:
                numbers = f"expected {expected:,} reviews, found {len(texts):,}"
                raise LrurunError(f"{where}: {part}/{_CLASSES[label]}: {numbers}", _HINT)

    def _complete(self, part: str) -> int:
        """The number of reviews of each class in a part of a complete copy."""
        return (self.full[part] + (self.full["validation"] if part == "train" else 0)) // 2


def arranged(reviews: Mapping[tuple[str, int], Sequence[str]], validation: int) -> dict[str, list[tuple[str, int]]]:
    """Texts with labels per split; `validation` of the training texts are held out, half of them of each class."""
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


def _reviews(copy: Copy | Tfds, where: Path, progress: Progress) -> Iterator[Review]:
    """The labelled reviews; Parquet files of an archive are in the folder `where` for that time."""
    if isinstance(copy, Tfds):
        yield from _prepared(copy, progress)
    elif copy.patterns in _PARQUET:
        with copy.on_disk(where, _PARQUET_LIMIT, progress) as files:
            for file in files:
                yield from _parquet(file, progress)
    else:
        yield from _files(copy, progress)


def _parquet(file: File, progress: Progress) -> Iterator[Review]:
    """The reviews in a Parquet file of a part, which is the beginning of its name."""
    part = next(part for part in _PARTS if file.name.startswith(part))
    for where, (text, label) in parquet.rows(file, [("text",), ("label",)], _HINT, _FILE_LIMIT, _GROUP_LIMIT):
        content = text.encode() if isinstance(text, str) else text
        if not isinstance(content, bytes):
            raise LrurunError(f"{where}: expected a text, found {type(text).__name__}", _HINT)
        if type(label) is not int or label not in (0, 1):
            raise LrurunError(f"{where}: expected a label of 0 or 1, found {str(label)[:20]}", _HINT)
        progress(f"reading {file.where}", 0, None)
        yield _review(part, label, content, where)


def _files(copy: Copy, progress: Progress) -> Iterator[Review]:
    """The labelled reviews; an archive also has an unlabelled half."""
    for file in copy.files(progress):
        if match := _REVIEW.fullmatch(file.name):
            yield _review(match[1], _CLASSES.index(match[2]), file.read(_FILE_LIMIT), file.where)


def _prepared(copy: Tfds, progress: Progress) -> Iterator[Review]:
    for part in _PARTS:
        for where, example in copy.read(part, {"text": bytes, "label": 2}, progress):
            yield _review(part, int(example["label"]), example["text"], where)


def _review(part: str, label: int, data: bytes, name: str) -> Review:
    return Review(part, label, utf8(data.strip(), name, _HINT))
