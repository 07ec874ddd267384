"""The page of the map has the numbers of the ledger that is kept beside it."""

from __future__ import annotations

import pytest

from tests.docs import generated, task_map

pytestmark = pytest.mark.slow  # thousands of runs are merged and compared


def test_the_page_is_that_of_its_ledger() -> None:
    page = task_map.DOCS / "map.md"
    assert page.read_text() == generated.page(page), "run: python -m tests.docs.generated --write"


def test_the_picture_is_that_of_its_ledger() -> None:
    texts = task_map.texts(task_map.PICTURE.read_text())
    assert texts == task_map.texts(task_map.shown()["picture"]), "run: python -m tests.docs.generated --write"
    columns = len(task_map.shown()["lru"]["columns"]) + 1  # the last one counts
    assert sum(text[:1] in "▲▼·" for text in texts) == 7 * columns
