"""The per-item results as rows of the ledger, and values from these rows."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import numpy as np
from sqlalchemy import Row

from lrurun.items import ItemResults, TestSet, pack, unpack
from lrurun.ledger.rows import build
from lrurun.ledger.run_files import PackedItems, PackedTestSet

_MOST_GROUPS = 2**31 - 1


def packed(items: Mapping[str, ItemResults]) -> dict[str, PackedItems]:
    """Per-item results as the ledger has them.

    Raises:
        ValueError: some have another number of items than their test set.
    """
    return {name: _packed(name, results) for name, results in items.items()}


def _packed(name: str, results: ItemResults) -> PackedItems:
    tests = results.test_set
    parts = {"results": results.sums, "weights": tests.weights, "groups": tests.groups}
    for part, values in parts.items():
        if values is not None and np.shape(values) != (tests.count,):
            raise ValueError(f"{name}: {part} of shape {np.shape(values)} for {tests.count} test items")
    if not tests.count:
        raise ValueError(f"{name}: a test set without items")
    if tests.groups is not None and np.abs(tests.groups).max() > _MOST_GROUPS:
        raise ValueError(f"{name}: the number of a group is above {_MOST_GROUPS}")
    packed_tests = PackedTestSet(
        sha256=tests.sha256,
        count=tests.count,
        order=tests.order,
        weights=None if tests.weights is None else pack(tests.weights),
        groups=None if tests.groups is None else pack(np.asarray(tests.groups, np.float64)),
    )
    return PackedItems(test_set=packed_tests, sums=pack(results.sums))


def packed_test_set(row: Row[Any]) -> PackedTestSet:
    """A test set as its row has it."""
    return build(PackedTestSet, row, order=row.order_sha256)


def test_set(row: PackedTestSet) -> TestSet:
    """The test set of a row.

    Raises:
        ValueError: a column has something else than packed numbers of as many items.
    """
    groups = _unpacked(row.groups, row.count)
    return TestSet(
        count=row.count,
        order=row.order,
        weights=_unpacked(row.weights, row.count),
        groups=None if groups is None else groups.astype(np.int64),
    )


def sums(content: bytes, count: int) -> Any:
    """The numbers of a row.

    Raises:
        ValueError: they are not packed numbers of as many items.
    """
    return _unpacked(content, count)


def check(items: PackedItems) -> None:
    """Checks that a row can be read, and that the digest of its test set is right. Raises ValueError."""
    if test_set(items.test_set).sha256 != items.test_set.sha256:
        raise ValueError("a test set does not match its digest")
    _unpacked(items.sums, items.test_set.count)


def _unpacked(content: bytes | None, count: int) -> Any:
    if content is None:
        return None
    numbers = unpack(content)
    if len(numbers) != count:
        raise ValueError(f"results of {len(numbers)} instead of {count} items")
    return numbers


def as_json(content: bytes) -> str | bytes:
    """Packed numbers as a list in JSON, NaN and infinities as texts; other bytes stay as they are."""
    try:
        numbers = unpack(content)
    except ValueError:
        return content
    if np.array_equal(numbers, np.round(numbers)):
        return json.dumps([int(number) for number in numbers], separators=(",", ":"))
    # The shortest digits that float32 reads as the same number.
    shortest = (float(str(number)) for number in numbers.astype(np.float32))
    return json.dumps([x if np.isfinite(x) else str(x) for x in shortest], separators=(",", ":"))
