"""Retrieval (Tay et al. 2021): are two papers of the ACL Anthology Network linked by a citation? In characters."""

from __future__ import annotations

import shutil
from collections.abc import Iterator, Mapping, Sequence
from itertools import islice
from pathlib import Path, PurePosixPath
from typing import Annotated, NamedTuple

import numpy as np
from msgspec import Meta

from lrurun.data.arrays import Writer
from lrurun.data.copies import files, reading
from lrurun.data.downloaded.characters import Alphabet, Frequencies, decoded, shortened, utf8
from lrurun.data.task import Count, Options, Progress, Reduction, Remote, Source, Spec, Split, Task, limited
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
_BLOCK = 250
"""Pairs that are encoded at once: two megabytes."""
_SHOWN = 130
"""Characters of each document that an example shows."""
_HINT = "this is not the released file, or it is damaged: fetch it again, or give another copy"


class RetrievalOptions(Options, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The vocabulary is that of all training texts of the source, even if not all are kept."""

    max_length: Annotated[int, Meta(ge=2, le=1_000_000)] = 4000
    """Tokens of a document, including `<eos>`; longer ones are truncated."""
    min_frequency: Count = 1
    """Characters that occur less often in the training texts become `<unk>`."""


class Pair(NamedTuple):
    """A line of a table."""

    label: int
    first: str
    second: str


class Table(NamedTuple):
    """A file, and its name in messages."""

    path: Path
    name: str


class Retrieval(Task):
    """An example is two documents. The order is that of the files; quotation marks are ordinary characters."""

    name = "Retrieval"
    title = "pairs of papers in characters, up to 4000 each, 2 classes"
    version = "1"
    """1: the order of the files, ids by frequency."""
    options = RetrievalOptions
    classes = 2
    remotes = tuple(Remote(url=MIRROR + name, name=name) for name in FILES.values())
    wanted = (
        "the folder or the archive of the Long Range Arena release, its folder tsv_data, "
        f"or a folder that holds {', '.join(FILES.values())}"
    )

    def __init__(self, full: Mapping[str, int] = SIZES) -> None:
        self.full = dict(full)
        """Examples per split of a complete copy, as counted by others."""

    def sizes(self, options: RetrievalOptions) -> dict[str, int]:
        return limited(options, self.full)

    def tolerance(self, split: str) -> int:
        """1 %: the published numbers are from readers that took a quotation mark as the start of a longer column."""
        return self.full[split] // 100

    def spec(self, options: RetrievalOptions, vocabulary: Sequence[str] = ()) -> Spec:
        """Without a vocabulary, 98 tokens: as published."""
        features = len(vocabulary) or 98
        return Spec(name=self.name, kind="tokens", features=features, classes=2, length=options.max_length, pair=True)

    def find(self, path: Path, options: RetrievalOptions) -> Source | None:
        """The three tables in a folder, or in the archive of the release."""
        places = [*files.release("tsv_data"), "data/aan"]
        copy = files.find(path, places, tuple(FILES.values()), files.LRA, _HINT)
        if copy is None:
            return None
        return self._archive(copy, options) if copy.archive else self._folder(copy.place, options)

    def reduction(self, options: RetrievalOptions, full: RetrievalOptions) -> Reduction | None:
        return shortened(options, full, ("train",))

    def example(self, spec: Spec, split: Split, index: int, vocabulary: Sequence[str]) -> str:
        assert split.lengths is not None
        texts = [
            decoded(ids, int(length), vocabulary)
            for ids, length in zip(split.inputs[index], split.lengths[index], strict=True)
        ]
        first, second = (text if len(text) <= _SHOWN else f"{text[:_SHOWN]}..." for text in texts)
        return f"1: {first} 2: {second}"

    def _folder(self, folder: Path, options: RetrievalOptions) -> Source:
        tables = {split: Table(folder / name, str(folder / name)) for split, name in FILES.items()}

        def fill(writer: Writer, progress: Progress) -> None:
            self._read(tables, options, writer, progress)

        return Source(kind="folder", text=f"the tables in {folder.absolute()}", fill=fill)

    def _archive(self, copy: files.Copy, options: RetrievalOptions) -> Source:
        def fill(writer: Writer, progress: Progress) -> None:
            # two passes over gigabytes of other tasks' files would take longer than copying three files to disk
            place = writer.folder / "unpacked"
            place.mkdir()
            try:
                chosen = _unpack(copy, place, progress)
                tables = {s: Table(place / name, f"{copy.place}: {chosen / name}") for s, name in FILES.items()}
                self._read(tables, options, writer, progress)
            finally:
                shutil.rmtree(place, ignore_errors=True)
            writer.notes.append(f"read from {chosen} in {copy.place.name}")

        return Source(kind="folder", text=f"Long Range Arena's release, {copy.place.absolute()}", fill=fill)

    def _read(self, tables: Mapping[str, Table], options: RetrievalOptions, writer: Writer, progress: Progress) -> None:
        """The first pass counts pairs and characters, the second writes the arrays."""
        frequencies = Frequencies(options.max_length)
        counts = {}
        for split, table in tables.items():
            counts[split] = 0
            for block in _blocks(table, progress, "counting", options.max_length):
                counts[split] += len(block)
                if split == "train":
                    frequencies.add([text for pair in block for text in (pair.first, pair.second)])
            self._check(split, counts[split], table)
        alphabet = Alphabet(frequencies.vocabulary(options.min_frequency), options.max_length)
        writer.vocabulary = alphabet.vocabulary
        for split, table in tables.items():
            count = min(counts[split], getattr(options, split) or counts[split])
            _write(writer, split, count, _blocks(table, progress, "encoding", options.max_length, count), alphabet)

    def _check(self, split: str, count: int, table: Table) -> None:
        full = self.full[split]
        if abs(count - full) > self.tolerance(split):
            raise LrurunError(f"{table.name}: expected about {full:,} pairs, found {count:,}", _HINT)


def _write(writer: Writer, split: str, count: int, blocks: Iterator[list[Pair]], alphabet: Alphabet) -> None:
    """Writes the arrays of a split."""
    inputs = writer.create(split, "inputs", (count, 2, alphabet.length), alphabet.dtype)
    lengths = writer.create(split, "lengths", (count, 2), alphabet.length_dtype)
    labels = np.zeros(count, np.uint8)
    done = 0
    for block in blocks:
        ids, ends = alphabet.encode([text for pair in block for text in (pair.first, pair.second)])
        inputs.put(done, ids.reshape(-1, 2, alphabet.length))
        lengths.put(done, ends.reshape(-1, 2))
        labels[done : done + len(block)] = [pair.label for pair in block]
        done += len(block)
    writer.save(split, "labels", labels)


def _blocks(
    table: Table, progress: Progress, doing: str, length: int, count: int | None = None
) -> Iterator[list[Pair]]:
    """The first `count` pairs of a table, or all of them, in blocks, with `length` characters of each text."""
    size = table.path.stat().st_size
    with reading.open_regular(table.path) as file:
        found = pairs(reading.lines(file, _LINE_LIMIT, table.name), table.name)
        # of a table with long lines, the rest would be gigabytes
        rows = (Pair(label, first[:length], second[:length]) for label, first, second in islice(found, count))
        while block := list(islice(rows, _BLOCK)):
            yield block
            progress(f"{doing} {table.path.name}", file.tell(), size)


def pairs(lines: Iterator[bytes], name: str) -> Iterator[Pair]:
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
            found = columns[0][:20].decode(errors="backslashreplace")
            raise LrurunError(f"{name}:{number}: expected a label of 0.0 or 1.0, found {found!r}", _HINT)
        first, second = (utf8(columns[k], f"{name}:{number}: column {k + 1}", _HINT) for k in (3, 4))
        yield Pair(_LABELS[columns[0]], first, second)


def _unpack(copy: files.Copy, where: Path, progress: Progress) -> PurePosixPath:
    """Copies the innermost three tables of an archive into the folder `where`; returns their folder in the archive."""
    for file in copy.innermost(progress):
        with (where / file.name).open("wb") as table:
            for piece in reading.blocks(file.open(), _FILE_LIMIT, file.where):
                table.write(piece)
    return file.folder
