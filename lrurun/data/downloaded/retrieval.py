"""Retrieval (Tay et al. 2021): are two papers of the ACL Anthology Network linked by a citation? In characters."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from itertools import islice
from pathlib import Path
from typing import Annotated

from msgspec import Meta

from lrurun.data.arrays import Writer
from lrurun.data.copies import reader, reading
from lrurun.data.copies.reader import Copy, File
from lrurun.data.downloaded.characters import (
    Alphabet,
    CharacterOptions,
    CharacterTask,
    Frequencies,
    Row,
    blocks,
    decoded,
    utf8,
    write_split,
)
from lrurun.data.task import Count, Progress, Remote, Source, Spec, Split
from lrurun.errors import LrurunError

SIZES = {"train": 147_086, "validation": 18_090, "test": 17_437}
FILES = {
    "train": "new_aan_pairs.train.tsv",
    "validation": "new_aan_pairs.eval.tsv",
    "test": "new_aan_pairs.test.tsv",
}
MIRROR = "https://huggingface.co/datasets/OpenNLPLab/lra/resolve/6cb133c44f406da743661488df9e977b87d98775/data/aan/"
"""A copy by others at a fixed revision: the published archive is no longer available."""

_COLUMNS = 5
_LABELS = {b"0.0": 0, b"1.0": 1, b"0": 0, b"1": 1}
_LINE_LIMIT = 16 << 20
"""Bytes of a line: two papers in plain text; a long one has some hundred thousand."""
_FILE_LIMIT = 16 << 30
"""Bytes of a table in an archive: the complete release, with all its tasks, has 18.6 GB."""
_SHOWN = 130
"""Characters of each document that an example shows."""
_HINT = "this is not the released file, or it is damaged: fetch it again, or give another copy"


class RetrievalOptions(CharacterOptions, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The options of each of the two documents; the defaults are as published."""

    max_length: Annotated[int, Meta(ge=2, le=1_000_000)] = 4000
    min_frequency: Count = 1


class Retrieval(CharacterTask):
    """An example is two documents. The order is as in the files; quotation marks are ordinary characters.

    Validation is the published file `eval`.
    """

    name = "Retrieval"
    title = "pairs of papers in characters, up to 4000 each, 2 classes"
    version = "1"
    """1: the order of the files, ids by frequency."""
    options = RetrievalOptions
    pair = True
    published_vocabulary = 98
    remotes = tuple(Remote(url=MIRROR + name, name=name) for name in FILES.values())
    wanted = (
        "the folder or the archive of the Long Range Arena release, its folder tsv_data, "
        f"or a folder that holds {', '.join(FILES.values())}"
    )

    def __init__(self, full: Mapping[str, int] = SIZES) -> None:
        """Sets the sizes; by default those that others have counted."""
        super().__init__(full)

    def tolerance(self, split: str) -> int:
        """1 %: the published numbers are from readers that took a quotation mark as the start of a longer column."""
        return self.full[split] // 100

    def find(self, path: Path, options: RetrievalOptions) -> Source | None:
        """The three tables in a folder, or in the archive of the release."""
        folders = [*reader.release("tsv_data"), "", "data/aan"]
        copy = reader.find(path, tuple(FILES.values()), _HINT, folders=folders, archives=reader.LRA)
        return self.source(copy, options) if copy else None

    def example(self, spec: Spec, split: Split, index: int, vocabulary: Sequence[str]) -> str:
        assert split.lengths is not None
        texts = [
            decoded(ids, int(length), vocabulary)
            for ids, length in zip(split.inputs[index], split.lengths[index], strict=True)
        ]
        first, second = (text if len(text) <= _SHOWN else f"{text[:_SHOWN]}..." for text in texts)
        return f"1: {first} 2: {second}"

    def write(self, writer: Writer, copy: Copy, options: RetrievalOptions, progress: Progress) -> None:
        """A first pass counts pairs and characters, a second one writes the arrays."""
        # two passes over gigabytes of other tasks' files would take longer than copying three files to disk
        with copy.on_disk(writer.folder, _FILE_LIMIT, progress) as files:
            tables = {split: next(file for file in files if file.name == name) for split, name in FILES.items()}
            frequencies = Frequencies(options.max_length)
            counts = {}
            for split, table in tables.items():
                counts[split] = 0
                for block in blocks(_rows(table, progress, "counting", options.max_length)):
                    counts[split] += len(block)
                    if split == "train":
                        frequencies.add([text for _, texts in block for text in texts])
                self._check(split, counts[split], table.where)
            alphabet = Alphabet(frequencies.vocabulary(options.min_frequency), options.max_length)
            writer.vocabulary = alphabet.vocabulary
            for split, table in tables.items():
                count = min(counts[split], getattr(options, split) or counts[split])
                # of a table with long lines, the rest would be gigabytes
                rows = islice(_rows(table, progress, "encoding", options.max_length), count)
                write_split(writer, split, rows, count, alphabet, progress, pair=True)
        if copy.archive:
            writer.notes.append(f"read from {files[0].folder} in {copy.path.name}")

    def _check(self, split: str, count: int, where: str) -> None:
        full = self.full[split]
        if abs(count - full) > self.tolerance(split):
            raise LrurunError(f"{where}: expected about {full:,} pairs, found {count:,}", _HINT)


def _rows(table: File, progress: Progress, doing: str, length: int) -> Iterator[Row]:
    """The pairs of a table, with `length` characters of each text."""
    with table.open() as file:
        size = os.fstat(file.fileno()).st_size
        for number, (label, texts) in enumerate(pairs(reading.lines(file, _LINE_LIMIT, table.where), table.where)):
            yield label, tuple(text[:length] for text in texts)
            if number % 250 == 0:
                progress(f"{doing} {table.name}", file.tell(), size)


def pairs(lines: Iterator[bytes], name: str) -> Iterator[Row]:
    """The rows of a table: label, names of two papers, their texts, separated by tabs, without quoting.

    Raises:
        LrurunError: file, line, and the error.
    """
    for number, line in enumerate(lines, 1):
        columns = line.removesuffix(b"\n").removesuffix(b"\r").split(b"\t")
        if columns == [b""]:  # an empty last line
            continue
        if len(columns) != _COLUMNS:
            raise LrurunError(f"{name}:{number}: expected {_COLUMNS} columns, found {len(columns)}", _HINT)
        if columns[0] not in _LABELS:
            actual = columns[0][:20].decode(errors="backslashreplace")
            raise LrurunError(f"{name}:{number}: expected a label of 0.0 or 1.0, found {actual!r}", _HINT)
        first, second = (utf8(columns[k], f"{name}:{number}: column {k + 1}", _HINT) for k in (3, 4))
        yield _LABELS[columns[0]], (first, second)
