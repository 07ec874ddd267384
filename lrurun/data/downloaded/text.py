"""IMDB movie reviews (Maas et al. 2011), character by character: is a review positive?"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Annotated, NamedTuple

import numpy as np
from msgspec import Meta

from lrurun.data.arrays import Writer
from lrurun.data.copies import files, tfds
from lrurun.data.downloaded.characters import Alphabet, Frequencies, decoded, shortened, utf8
from lrurun.data.task import (
    SPLITS,
    Count,
    Fill,
    Options,
    Progress,
    Reduction,
    Remote,
    Source,
    Spec,
    Split,
    Task,
    limited,
)
from lrurun.errors import LrurunError

SIZES = {"train": 22_500, "validation": 2_500, "test": 25_000}
ARCHIVE = "aclImdb_v1.tar.gz"

_CLASSES = ("neg", "pos")
_PARTS = ("train", "test")
_FILES = tuple(f"{part}/{name}/*.txt" for part in _PARTS for name in _CLASSES)
_REVIEW = re.compile(r"(train|test)/(neg|pos)/\d+_\d+\.txt")
_FILE_LIMIT = 1 << 20
"""Bytes of a review: the longest has a few thousand words."""
_BLOCK = 500
"""Texts encoded and written at once."""
_HINT = "the copy is not the published one, or incomplete: fetch it again"


class TextOptions(Options, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The vocabulary is that of all training texts of the source, even if not all are kept."""

    max_length: Annotated[int, Meta(ge=2, le=1_000_000)] = 4096
    """Tokens, including `<eos>`; longer texts are truncated."""
    min_frequency: Count = 15
    """Characters that occur less often in the training texts become `<unk>`."""


class Review(NamedTuple):
    """One labelled text of the published training or test part."""

    part: str
    label: int
    text: str


Read = Callable[[Progress], Iterator[Review]]


class Text(Task):
    """Reviews as S4 and S5 read them: unchanged characters, with `<br />`; space at both ends is removed, as in TFDS.

    Every copy gives the same arrays, whatever the order and names of its files: texts are sorted and then shuffled, so
    that the first texts of a split are a random sample.
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
        """Examples per split of a complete copy, half of them of each class."""

    def sizes(self, options: TextOptions) -> dict[str, int]:
        return limited(options, self.full)

    def spec(self, options: TextOptions, vocabulary: Sequence[str] = ()) -> Spec:
        """Without a vocabulary, 135 tokens: as published."""
        features = len(vocabulary) or 135
        return Spec(name=self.name, kind="tokens", features=features, classes=2, length=options.max_length)

    def find(self, path: Path, options: TextOptions) -> Source | None:
        copy = files.find(path, ["", "aclImdb"], _FILES, [ARCHIVE], _HINT)
        if copy is None:
            return self._tfds(path, options)
        text = f"{copy.place.absolute()}" if copy.archive else f"the reviews in {copy.place.absolute()}"
        fill = self._fill(partial(_from_files, copy), str(copy.place), options)
        return Source(kind="folder", text=text, fill=fill, archive=copy.archive)

    def reduction(self, options: TextOptions, full: TextOptions) -> Reduction | None:
        return shortened(options, full, ("train", "validation"))

    def example(self, spec: Spec, split: Split, index: int, vocabulary: Sequence[str]) -> str:
        assert split.lengths is not None
        return decoded(split.inputs[index], int(split.lengths[index]), vocabulary)

    def _tfds(self, path: Path, options: TextOptions) -> Source | None:
        copy = tfds.find(path, "imdb_reviews", config="plain_text")
        if copy is None:
            other = tfds.find(path, "imdb_reviews")
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
        def fill(writer: Writer, progress: Progress) -> None:
            reviews: dict[tuple[str, int], list[str]] = {(part, label): [] for part in _PARTS for label in (0, 1)}
            for part, label, text in read(progress):
                # only characters that are kept decide the order: texts that are equal up to here are equal rows
                reviews[part, label].append(text[: options.max_length - 1])
                if len(reviews[part, label]) > 2 * self._complete(part):  # a few too many are reported below
                    break
            self._check(reviews, where)
            frequencies = Frequencies(options.max_length)
            for label in (0, 1):
                frequencies.add(reviews["train", label])
            alphabet = Alphabet(frequencies.vocabulary(options.min_frequency), options.max_length)
            writer.vocabulary = alphabet.vocabulary
            splits = arranged(reviews, self.full["validation"])
            for split, count in self.sizes(options).items():
                _write(writer, split, splits[split][:count], alphabet, progress)

        return fill

    def _check(self, reviews: Mapping[tuple[str, int], Sequence[str]], where: str) -> None:
        """Checks that every class is complete.

        Raises:
            LrurunError: with the numbers of the first class that is not.
        """
        for (part, label), texts in reviews.items():
            wanted = self._complete(part)
            if len(texts) != wanted:
                found = f"expected {wanted:,} reviews, found {len(texts):,}"
                raise LrurunError(f"{where}: {part}/{_CLASSES[label]}: {found}", _HINT)

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


def _write(writer: Writer, split: str, rows: Sequence[tuple[str, int]], alphabet: Alphabet, progress: Progress) -> None:
    """Writes the arrays of a split."""
    inputs = writer.create(split, "inputs", (len(rows), alphabet.length), alphabet.dtype)
    lengths = writer.create(split, "lengths", (len(rows),), alphabet.length_dtype)
    for first in range(0, len(rows), _BLOCK):
        ids, ends = alphabet.encode([text for text, _ in rows[first : first + _BLOCK]])
        inputs.put(first, ids)
        lengths.put(first, ends)
        progress(f"encoding {split}", first + len(ends), len(rows))
    writer.save(split, "labels", np.array([label for _, label in rows], np.uint8))


def _from_files(copy: files.Copy, progress: Progress) -> Iterator[Review]:
    """The labelled reviews; an archive also has an unlabelled half."""
    for file in copy.files(progress):
        if found := _REVIEW.fullmatch(file.name):
            yield _review(found[1], _CLASSES.index(found[2]), file.read(_FILE_LIMIT), file.where)


def _from_tfds(copy: tfds.Tfds, progress: Progress) -> Iterator[Review]:
    for part in _PARTS:
        for number, example in enumerate(copy.read(part, {"text": bytes, "label": int})):
            progress(f"reading {part} of {copy.folder}", number, copy.counts.get(part))
            name = f"{copy.folder}: example {number} of {part}"
            label = int(example["label"])
            if label not in (0, 1):
                raise LrurunError(f"{name}: expected label 0 or 1, found {label}", _HINT)
            yield _review(part, label, example["text"], name)


def _review(part: str, label: int, data: bytes, name: str) -> Review:
    return Review(part, label, utf8(data.strip(), name, _HINT))
