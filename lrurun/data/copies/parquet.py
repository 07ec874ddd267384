"""Parquet files with an example in each row, as the Hugging Face hub has them. pyarrow is imported when one is read."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from lrurun.data.copies.reader import File
from lrurun.data.copies.reading import DAMAGED, first_line
from lrurun.errors import LrurunError


def forms(splits: Sequence[str]) -> list[tuple[str, ...]]:
    """The patterns of the names of such files, a list for each way to name them: a pattern for each split."""
    return [tuple(name.format(split) for split in splits) for name in ("{}/*.parquet", "{}-*.parquet", "{}.parquet")]


def rows(
    file: File, columns: Sequence[Sequence[str]], hint: str, limit: int, group_limit: int | None = None
) -> Iterator[tuple[str, tuple[Any, ...]]]:
    """The rows of a file in their order, each with where it is, for messages.

    Args:
        columns: for each value of a row the names that its column may have, the best one first.
        hint: shown if a column is missing.
        limit: bytes of a row.
        group_limit: bytes of a column in a group of rows, before compression; None: any number.

    Raises:
        LrurunError: pyarrow is not installed, a column is missing, the file is damaged, or has more bytes.
    """
    try:
        from pyarrow import parquet
    except ImportError:
        message = f"{file.where}: Parquet files are read with pyarrow, which is not installed"
        raise LrurunError(message, "pip install 'lrurun[parquet]'") from None
    number = 0
    try:
        with file.open() as content:
            table = parquet.ParquetFile(content)
            chosen = [_column(names, table.schema_arrow.names, file.where, hint) for names in columns]
            if group_limit is not None:
                _check_groups(table.metadata, chosen, group_limit, file.where)
            # one row at once, which may be a book
            for batch in table.iter_batches(batch_size=1, columns=chosen, use_threads=False):
                where = f"{file.where}: row {number}"
                if batch.nbytes > limit:
                    raise LrurunError(f"{where}: {batch.nbytes:,} bytes are more than the {limit:,} allowed", DAMAGED)
                row = batch.to_pylist()[0]
                yield where, tuple(row[name] for name in chosen)
                number += 1
    except LrurunError:
        raise
    except Exception as error:  # ArrowInvalid, OSError, UnicodeDecodeError and others
        raise LrurunError(f"{file.where}: row {number}: {first_line(error)}", DAMAGED) from None


def _column(names: Sequence[str], columns: Sequence[str], where: str, hint: str) -> str:
    """The first of the names that a column has."""
    for name in names:
        if name in columns:
            return name
    actual = ", ".join(columns)[:200]
    raise LrurunError(f"{where}: expected a column {' or '.join(names)}, found {actual}", hint)


def _check_groups(metadata: Any, columns: Sequence[str], limit: int, where: str) -> None:
    """Refuses columns that take more than `limit` bytes in a group of rows."""
    for group in map(metadata.row_group, range(metadata.num_row_groups)):
        for column in map(group.column, range(group.num_columns)):
            size = column.total_uncompressed_size
            if column.path_in_schema in columns and size > limit:
                message = f"{where}: column {column.path_in_schema}: {size:,} bytes are more than the {limit:,} allowed"
                raise LrurunError(message, DAMAGED)
