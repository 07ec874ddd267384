"""Parquet files, of which never more is in memory than a part. pyarrow is imported when one is read.

Columns of structs are dotted names. Texts stay texts. Dates and times are texts as in ISO 8601. pandas writes NaN as
null: a loss that diverged is then an empty cell, which no reader can tell from one that was never measured.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from importlib import metadata
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from lrurun.errors import LrurunError, UsageError
from lrurun.trackers import Source
from lrurun.trackers.tables.columns import Block, Column, Strings, check_names, objects, plain
from lrurun.trackers.tables.reader import TableReader
from lrurun.trackers.tables.text_lines import check_file, first_bytes

if TYPE_CHECKING:
    import pyarrow

_AT_ONCE = 1 << 16
"""How many rows are read at once."""
_INDEX = "__index_level_0__"
"""The column in which pandas writes an index without a name."""


class ParquetReader(TableReader):
    """Reads Parquet files."""

    name: ClassVar = "parquet"
    title: ClassVar = "Parquet"

    @classmethod
    def recognises(cls, source: Source) -> bool:
        return source.frame is None and first_bytes(source.path, 4) == b"PAR1"

    def version(self) -> str:
        with contextlib.suppress(metadata.PackageNotFoundError):
            return f"pyarrow {metadata.version('pyarrow')}"
        return ""

    def table(self) -> ParquetTable:
        return ParquetTable(self.source)


class ParquetTable:
    """The table in a Parquet file, read block by block."""

    def __init__(self, source: Source) -> None:
        """
        Raises:
            UsageError: it is none, or a damaged one.
            LrurunError: it cannot be read, or pyarrow is not installed.
        """
        self.place = str(source.path)
        check_file(source.path)
        try:
            from pyarrow import parquet
        except ImportError:
            hint = "pip install 'lrurun[parquet]'"
            raise LrurunError(f"{self.place}: reading Parquet needs pyarrow, which is not installed", hint) from None
        with self._faults():
            self._file = parquet.ParquetFile(source.path, buffer_size=1 << 20, pre_buffer=False)
        self.notes: list[str] = []
        self.rows: int = self._file.metadata.num_rows
        self._groups = [self._file.metadata.row_group(group).num_rows for group in range(self._file.num_row_groups)]
        leaves = _leaves(self._file.schema_arrow)
        check_names(self.place, [name for name, _ in leaves])
        self._paths = {name: path for name, path in leaves if name != _INDEX}
        self.names: Strings = list(self._paths)

    def blocks(self, names: Strings, start: int = 0, stop: int | None = None) -> Iterator[tuple[int, Block]]:
        stop = self.rows if stop is None else stop
        groups: list[int] = []
        first = at = 0
        for group, rows in enumerate(self._groups):
            if at < stop and at + rows > start:
                first = first if groups else at
                groups.append(group)
            at += rows
        tops = list(dict.fromkeys(self._paths[name][0] for name in names))
        if not groups or not tops:
            return
        at = first
        for batch in self._batches(groups, tops):
            low, high = max(start - at, 0), min(stop - at, len(batch))
            if low < high:
                part = batch.slice(low, high - low)
                yield at + low, {name: _column(_picked(part, self._paths[name])) for name in names}
            at += len(batch)
            if at >= stop:
                return

    def _batches(self, groups: list[int], tops: list[str]) -> Iterator[pyarrow.RecordBatch]:
        with self._faults():
            yield from self._file.iter_batches(_AT_ONCE, row_groups=groups, columns=tops, use_threads=False)

    def row_name(self, row: int) -> str:
        return f"row {row + 1}"

    @contextlib.contextmanager
    def _faults(self) -> Iterator[None]:
        import pyarrow

        try:
            yield
        except (pyarrow.ArrowException, OSError) as error:
            reason = str(error).partition("\n")[0]
            raise UsageError(f"{self.place}: cannot be read as Parquet: {reason}", "write or fetch it again") from None


def _leaves(schema: pyarrow.Schema) -> list[tuple[str, tuple[str, ...]]]:
    """Dotted name and path of each column that is no struct."""
    import pyarrow

    found: list[tuple[str, tuple[str, ...]]] = []

    def visit(field: pyarrow.Field, path: tuple[str, ...]) -> None:
        path = (*path, field.name)
        if pyarrow.types.is_struct(field.type):
            for inner in field.type:
                visit(inner, path)
        else:
            found.append((".".join(path), path))

    for field in schema:
        visit(field, ())
    return found


def _picked(batch: pyarrow.RecordBatch, path: tuple[str, ...]) -> pyarrow.Array:
    from pyarrow import compute

    array = batch.column(path[0])
    return compute.struct_field(array, list(path[1:])) if len(path) > 1 else array


def _column(array: pyarrow.Array) -> Column:
    """The cells of an Arrow array."""
    import pyarrow

    types = pyarrow.types
    kind = array.type
    if types.is_null(kind):
        return Column(np.zeros(len(array)), np.ones(len(array), bool))
    empty = ~_bits(array.buffers()[0], array) if array.null_count else np.zeros(len(array), bool)
    if types.is_boolean(kind):
        return Column(_bits(array.buffers()[1], array), empty)
    if types.is_integer(kind) and not types.is_uint64(kind):
        return Column(_numbers(array.cast(pyarrow.int64()), np.int64), empty)
    if types.is_floating(kind) or types.is_decimal(kind) or types.is_uint64(kind):
        return Column(_numbers(array.cast(pyarrow.float64(), safe=False), np.float64), empty)
    if types.is_string(kind) or types.is_large_string(kind):
        array = array.dictionary_encode()  # a text that repeats is one object
    if types.is_dictionary(array.type):
        words = objects([plain(word) for word in array.dictionary.to_pylist()])
        indices = np.where(empty, 0, _numbers(array.indices.cast(pyarrow.int64()), np.int64))
        return Column(words[indices] if len(words) else objects([None] * len(array)), empty)
    return Column(objects([plain(value) for value in array.to_pylist()]), empty)


def _numbers(array: pyarrow.Array, dtype: type[np.generic]) -> NDArray[Any]:
    """The values of an array. Its own `to_numpy` imports pandas, if it is installed: 46 MB, and a third of a second."""
    values = array.buffers()[1]
    return np.frombuffer(values, dtype, len(array), array.offset * 8) if len(array) else np.zeros(0, dtype)


def _bits(buffer: pyarrow.Buffer, array: pyarrow.Array) -> NDArray[np.bool_]:
    bits = np.unpackbits(np.frombuffer(buffer, np.uint8), bitorder="little", count=array.offset + len(array))
    return bits[array.offset :].astype(bool)
