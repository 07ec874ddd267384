"""Copies of PG-19 (Rae et al. 2020): folders of texts, parquet files, or a folder of TFDS, read book by book."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

from lrurun.data import reading, tfds
from lrurun.data.characters import utf8
from lrurun.data.task import SPLITS
from lrurun.errors import LrurunError

HINT = "the copy is not PG-19, or incomplete: fetch it again"
BOOK_LIMIT = 64 << 20
"""Bytes of a book: they have 0.4 million on average, and the text of an encyclopaedia has some ten million."""
_COLUMNS = ("text", "book_text")
"""Of a parquet file: the text of a book."""

Read = Callable[[str], Iterator[str]]
"""Split -> the texts of its books in the order of the copy."""


class Copy(NamedTuple):
    """A copy that was found."""

    text: str
    """One line for messages."""
    read: Read


def find(path: Path) -> Copy | None:
    """The copy at `path`, or in its folder `data`; None if there is none.

    Raises:
        LrurunError: a split is missing, or the description of TFDS cannot be read.
    """
    copy = tfds.find(path, "pg19", limit=BOOK_LIMIT)
    if copy is not None:
        return Copy(f"{copy.text}, {copy.folder.absolute()}", partial(_from_tfds, copy))
    for folder in (path, path / "data"):
        for kind, read in (("parquet", _from_parquet), ("txt", _from_texts)):
            found = {split: _files(folder, split, kind) for split in SPLITS}
            if missing := [split for split, files in found.items() if not files]:
                if len(missing) < len(SPLITS):
                    raise LrurunError(f"{folder}: no {kind} files of {' and '.join(missing)}", HINT)
                continue
            return Copy(f"the {kind} files in {folder.absolute()}", partial(_each, found, read))
    return None


def _files(folder: Path, split: str, kind: str) -> list[Path]:
    """The files of a split by name: those in its folder, or those of parquet whose names begin with it."""
    found = [*folder.glob(f"{split}/*.{kind}")]
    if kind == "parquet":
        found += [*folder.glob(f"{split}.parquet"), *folder.glob(f"{split}-*.parquet")]
    return sorted(found)


def _each(files: Mapping[str, Sequence[Path]], read: Callable[[Path], Iterator[str]], split: str) -> Iterator[str]:
    for path in files[split]:
        yield from read(path)


def _from_texts(path: Path) -> Iterator[str]:
    yield utf8(reading.read_file(path, BOOK_LIMIT), str(path), HINT)


def _from_tfds(copy: tfds.Tfds, split: str) -> Iterator[str]:
    for number, example in enumerate(copy.read(split, {"book_text": bytes})):
        yield _checked(example["book_text"], f"{copy.folder}: example {number} of {split}")


def _from_parquet(path: Path) -> Iterator[str]:
    """The column of texts, row by row."""
    parquet = _parquet()
    number = 0
    try:
        with reading.open_regular(path) as file:
            table = parquet.ParquetFile(file)
            column = next((name for name in _COLUMNS if name in table.schema_arrow.names), None)
            if column is None:
                found = ", ".join(table.schema_arrow.names)[:200]
                raise LrurunError(f"{path}: expected a column {' or '.join(_COLUMNS)}, found {found}", HINT)
            for batch in table.iter_batches(batch_size=1, columns=[column], use_threads=False):
                for text in batch.column(0):
                    content = text.as_py()
                    if isinstance(content, str):
                        content = content.encode()
                    yield _checked(content, f"{path}: row {number}")
                    number += 1
    except LrurunError:
        raise
    except Exception as error:  # ArrowInvalid, OSError, UnicodeDecodeError and others
        raise LrurunError(f"{path}: row {number}: {reading.first_line(error)}", reading.DAMAGED) from None


def _parquet() -> Any:
    try:
        from pyarrow import parquet
    except ImportError:
        raise LrurunError(
            "PG-19: parquet files are read with pyarrow, which is not installed", "pip install 'lrurun[pg19]'"
        ) from None
    return parquet


def _checked(content: Any, name: str) -> str:
    if not isinstance(content, bytes):
        raise LrurunError(f"{name}: expected a text, found {type(content).__name__}", HINT)
    if len(content) > BOOK_LIMIT:
        raise LrurunError(f"{name}: {len(content):,} bytes are more than the {BOOK_LIMIT:,} allowed", HINT)
    return utf8(content, name, HINT)
