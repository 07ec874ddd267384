"""ListOps (Nangia & Bowman 2018) as in Long Range Arena: evaluate a nested list of up to 2,000 tokens."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import islice
from pathlib import Path
from typing import IO, Annotated

import numpy as np
from msgspec import Meta

from lrurun import machine
from lrurun.data.arrays import Writer
from lrurun.data.copies import reader, reading
from lrurun.data.copies.reader import Copy
from lrurun.data.splits import distributed
from lrurun.data.synthetic.listops_generator import TOKENS, VERSION, Examples, Parameters, baselines, generate
from lrurun.data.task import SPLITS, Fill, Options, Progress, Seed, Source, Spec, Task
from lrurun.errors import LrurunError

SIZES = {"train": 96_000, "validation": 2_000, "test": 2_000}
FILES = {"train": "basic_train.tsv", "validation": "basic_val.tsv", "test": "basic_test.tsv"}

PUBLISHED_TOKENS = ("<pad>", "<unk>", "<eos>", *TOKENS[1:])
"""The vocabulary of S4's and S5's code, which has no unknown tokens in these data. It is sorted by frequency there; an
embedding learns the same from any order."""
PUBLISHED_LENGTH = 2048
_END = PUBLISHED_TOKENS.index("<eos>")
_SHIFT = len(PUBLISHED_TOKENS) - len(TOKENS)

_HEADER = b"Source\tTarget"
_IDS = {token.encode(): number for number, token in enumerate(TOKENS) if number}
_DIGITS = {b"%d" % digit: digit for digit in range(10)}
_LINE_LIMIT = 1 << 20
"""Bytes of a line: 2,000 tokens with all their parentheses are fewer than 20,000."""
_BLOCK = 1000
"""Examples that are written at once."""
_HINT = "this is not the released file, or it is damaged: give another copy, or omit --from to generate the data"


class ExpressionOptions(Options, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Other parameters than the published ones give other data, with any number of examples."""

    seed: Seed = 0
    """Seed of generated data."""
    min_length: Annotated[int, Meta(ge=1, le=32_765)] = 500
    """Lower bound of the number of tokens, exclusive; so is `max_length`, which is also the width of the arrays."""
    max_length: Annotated[int, Meta(ge=3, le=32_767)] = 2000
    max_depth: Annotated[int, Meta(ge=2, le=100)] = 10
    max_args: Annotated[int, Meta(ge=2, le=100)] = 10

    def __post_init__(self) -> None:
        if self.min_length > self.max_length - 2:
            raise ValueError(f"no length is between min_length = {self.min_length} and max_length = {self.max_length}")

    def parameters(self) -> Parameters:
        return Parameters(self.min_length, self.max_length, self.max_depth, self.max_args)


class ListOpsOptions(ExpressionOptions, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The options of lists that are classified."""

    eos: bool = False
    """Whether `<eos>` follows every list, as in the code of S4 and S5: 18 tokens, and 2,048 as the width of the arrays
    of published lists."""

    @property
    def vocabulary(self) -> tuple[str, ...]:
        return PUBLISHED_TOKENS if self.eos else TOKENS

    @property
    def length(self) -> int:
        """The width of the arrays."""
        return PUBLISHED_LENGTH if self.eos and self.max_length == 2000 else self.max_length


class ListOps(Task):
    """The ten digits are the classes; the parentheses of the files, which make binary trees, are not tokens.

    Validation is the published file `basic_val.tsv`, or the generated lists after the test split.
    """

    name = "ListOps"
    title = "nested list operations on digits, 500 to 2000 tokens, 10 classes"
    version = "1"
    """1: the vocabulary `TOKENS`; of generated data, the bits of the generator's version 1."""
    options = ListOpsOptions
    classes = 10
    wanted = "the folder or the archive of the Long Range Arena release, or its folder listops-1000"

    def sizes(self, options: ListOpsOptions) -> dict[str, int]:
        return {split: getattr(options, split) or SIZES[split] for split in SPLITS}

    def spec(self, options: ListOpsOptions, vocabulary: Sequence[str] = ()) -> Spec:
        features = len(options.vocabulary)
        return Spec(name=self.name, kind="tokens", features=features, classes=10, length=options.length)

    def find(self, path: Path, options: ListOpsOptions) -> Source | None:
        """The tables of the release in a folder or in its archive."""
        folders = [*reader.release("listops-1000"), ""]
        copy = reader.find(path, tuple(FILES.values()), _HINT, folders=folders, archives=reader.LRA)
        if not isinstance(copy, Copy):
            return None
        _only_published(copy.path, options)

        def read(writer: Writer, splits: dict[str, _Arrays], progress: Progress) -> None:
            by_file = {FILES[split]: arrays for split, arrays in splits.items()}
            for file in copy.innermost(progress):
                with file.open() as table:
                    by_file[file.name].read(table, file.where, options, progress)
            if copy.archive:
                writer.notes.append(f"read from {file.folder} in {copy.path.name}")

        return Source(kind="folder", text=copy.text, fill=_fill(self.sizes(options), options, read))

    def offline(self, options: ListOpsOptions) -> Source:
        def read(writer: Writer, splits: dict[str, _Arrays], progress: Progress) -> None:
            _generated(options, splits, progress)

        return Source(
            kind="generated",
            text=f"generated by lrurun ListOps {VERSION}, seed {options.seed}",
            fill=_fill(self.sizes(options), options, read),
            generator={"name": "lrurun ListOps", "version": VERSION, "seed": options.seed},
        )


class _Arrays:
    """The arrays of one split while they are written; first tokens and labels are kept for the baselines."""

    def __init__(self, writer: Writer, split: str, count: int, options: ListOpsOptions) -> None:
        self.split, self.count, self.options = split, count, options
        self._inputs = writer.create(split, "inputs", (count, options.length), np.uint8)
        self._lengths = writer.create(split, "lengths", (count,), np.int16)
        self._labels = writer.create(split, "labels", (count,), np.uint8)
        self.roots = np.zeros(count, np.uint8)
        self.labels = np.zeros(count, np.uint8)

    def put(self, first: int, examples: Examples) -> None:
        inputs, lengths = examples.inputs, examples.lengths
        if self.options.eos:
            inputs, lengths = _ended(examples, self.options.length)
        for file, rows in ((self._inputs, inputs), (self._lengths, lengths), (self._labels, examples.labels)):
            file.put(first, rows)
        last = first + len(examples.labels)
        self.roots[first:last] = examples.roots
        self.labels[first:last] = examples.labels

    def read(self, file: IO[bytes], name: str, options: ListOpsOptions, progress: Progress) -> None:
        """Reads all rows of a table, or the first ones if `options` ask for fewer examples.

        Raises:
            LrurunError: file, line, and the error.
        """
        rows = _rows(reading.lines(file, _LINE_LIMIT, name), name, options.max_length)
        done = 0
        while block := list(islice(rows, min(_BLOCK, self.count - done))):
            self.put(done, _block(block, options.max_length))
            done += len(block)
            progress(f"reading {FILES[self.split]}", done, self.count)
        complete = getattr(options, self.split) is None
        if done < self.count or (complete and next(rows, None)):
            actual = f"{done:,}" if done < self.count else "more"
            raise LrurunError(f"{name}: expected {self.count:,} examples, found {actual}", _HINT)


def _fill(
    sizes: dict[str, int], options: ListOpsOptions, read: Callable[[Writer, dict[str, _Arrays], Progress], None]
) -> Fill:
    def fill(writer: Writer, progress: Progress) -> None:
        splits = {split: _Arrays(writer, split, sizes[split], options) for split in SPLITS}
        writer.vocabulary = list(options.vocabulary)
        read(writer, splits, progress)
        train, test = splits["train"], splits["test"]
        writer.baselines = baselines(train.roots, train.labels, test.roots, test.labels)

    return fill


def _generated(options: ListOpsOptions, splits: dict[str, _Arrays], progress: Progress) -> None:
    """Writes generated examples, which are distinct over all splits."""
    sizes = {split: arrays.count for split, arrays in splits.items()}
    total = sum(sizes.values())
    workers = min(4, machine.cores()) if total > 20_000 else 1  # a process starts in the time of 3,000 examples
    chunks = generate(total, options.seed, options.parameters(), workers)
    for split, first, examples in distributed(chunks, sizes, progress, "generating ListOps"):
        splits[split].put(first, examples)


def _rows(lines: Iterable[bytes], name: str, length: int) -> Iterator[tuple[bytes, int]]:
    """Token ids and label of each row of a table.

    Raises:
        LrurunError: file, line, and the error.
    """
    numbered = enumerate(lines, 1)
    _, header = next(numbered, (1, b""))
    if header.rstrip(b"\r\n") != _HEADER:
        raise _wrong(name, 1, f"expected the header 'Source<TAB>Target', found {_shown(header)}")
    for number, line in numbered:
        columns = line.rstrip(b"\r\n").split(b"\t")
        if len(columns) != 2:
            raise _wrong(name, number, f"expected 2 columns, found {len(columns)}")
        tokens = columns[0].translate(None, b"()").split()
        try:
            ids = bytes(map(_IDS.__getitem__, tokens))
        except KeyError as error:
            raise _wrong(name, number, _unknown(line, error.args[0])) from None
        if not 0 < len(ids) <= length:
            raise _wrong(name, number, f"expected 1 to {length} tokens, found {len(ids)}")
        if columns[1] not in _DIGITS:
            raise _wrong(name, number, f"expected a target of 0 to 9, found {_shown(columns[1])}")
        yield ids, _DIGITS[columns[1]]


def _unknown(line: bytes, token: bytes) -> str:
    try:
        line.decode()
    except UnicodeDecodeError as error:
        return f"not UTF-8: byte 0x{line[error.start]:02x} in column {error.start + 1}"
    return f"unknown token {_shown(token)}"


def _block(rows: list[tuple[bytes, int]], length: int) -> Examples:
    inputs = np.zeros((len(rows), length), np.uint8)
    for row, (ids, _) in zip(inputs, rows, strict=True):
        row[: len(ids)] = np.frombuffer(ids, np.uint8)
    lengths = np.array([len(ids) for ids, _ in rows], np.int16)
    return Examples(inputs, lengths, np.array([label for _, label in rows], np.uint8))


def _ended(examples: Examples, length: int) -> tuple[np.ndarray, np.ndarray]:
    """Ids (n, length) in `PUBLISHED_TOKENS`, with `<eos>` after each list, and the new lengths (n,)."""
    count, width = examples.inputs.shape
    inputs = np.zeros((count, length), np.uint8)
    inputs[:, :width] = np.where(examples.inputs > 0, examples.inputs + _SHIFT, 0)
    inputs[np.arange(count), examples.lengths] = _END
    return inputs, examples.lengths + 1


def _only_published(path: Path, options: ListOpsOptions) -> None:
    """Checks that a copy can have the data that `options` ask for.

    Raises:
        LrurunError: they ask for other data than the published ones.
    """
    default = ListOpsOptions()
    fields = ("seed", "min_length", "max_length", "max_depth", "max_args")
    changed = [name for name in fields if getattr(options, name) != getattr(default, name)]
    if changed:
        values = ", ".join(f"{name} = {getattr(options, name)}" for name in changed)
        raise LrurunError(
            f"{path}: a copy holds the published data, not those with {values}",
            "omit --from: these data are generated",
        )


def _wrong(name: str, line: int, problem: str) -> LrurunError:
    return LrurunError(f"{name}:{line}: {problem}", _HINT)


def _shown(text: bytes) -> str:
    """Part of a file, shortened for an error message."""
    shown = text.rstrip(b"\r\n").decode(errors="backslashreplace")
    return repr(shown if len(shown) <= 40 else f"{shown[:37]}...")
