"""The contract of copies: a task reads its files from a folder and an archive alike, and names the same mistakes."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from lrurun.data import TASKS, store
from lrurun.errors import LrurunError
from tests import formats
from tests.hostile.data_copies import (
    COPIES,
    files_of,
    here,  # noqa: F401 (a fixture)
)

pytestmark = pytest.mark.parametrize("task", COPIES)


def digests(task: str, given: Path, where: Path) -> dict[str, str]:
    table = store.prepare(TASKS[task], TASKS[task].options(), where / task, from_path=given)
    return dict(table["sha256"])


def refused(task: str, given: Path, where: Path) -> LrurunError:
    with pytest.raises(LrurunError) as caught:
        digests(task, given, where)
    assert not where.exists() or not any(where.iterdir())
    assert "\n" not in caught.value.message
    assert caught.value.hint
    return caught.value


def test_a_folder_and_an_archive_give_the_same_arrays(task: str, tmp_path: Path) -> None:
    expected = digests(task, formats.tree(tmp_path / "tree", files_of(task)), tmp_path / "0")
    for number, mode in enumerate(("w:gz", "w"), 1):
        given = formats.tar(tmp_path / f"{number}.tar", files_of(task), mode)
        assert digests(task, given, tmp_path / str(number)) == expected
    dotted = {f"./{name}": content for name, content in reversed(files_of(task).items())}
    assert digests(task, formats.tar(tmp_path / "dotted.tar", dotted), tmp_path / "3") == expected


@pytest.mark.parametrize("kept", [0.1, 0.5, 0.97])
def test_a_truncated_archive_is_named(task: str, kept: float, tmp_path: Path) -> None:
    noise = {f"noise/{number}": os.urandom(9000) for number in range(9)}
    given = formats.tar(tmp_path / "a.tar.gz", noise | files_of(task))
    os.truncate(given, int(given.stat().st_size * kept))
    error = refused(task, given, tmp_path / "data")
    assert error.message == f"{given}: the archive is truncated"
    assert error.hint == "the copy is incomplete or damaged: fetch it again"


def test_a_missing_file_is_named_or_counted(task: str, tmp_path: Path) -> None:
    files = {name: content for name, content in files_of(task).items() if name != COPIES[task]}
    tree, archive = formats.tree(tmp_path / "tree", files), formats.tar(tmp_path / "a.tar.gz", files)
    for given in (tree, archive):
        error = refused(task, given, tmp_path / "data")
        assert error.message.startswith(str(given))
        words = ("missing", "No such file", "expected", "no clips of")
        assert any(word in error.message for word in words), error.message


def test_another_folder_or_file_is_no_copy(task: str, tmp_path: Path) -> None:
    (tmp_path / "photos/2024").mkdir(parents=True)
    (tmp_path / "page.tar.gz").write_text("<html>403 Forbidden</html>")
    for given in (tmp_path / "photos", tmp_path / "page.tar.gz"):
        error = refused(task, given, tmp_path / "data")
        assert error.message == f"--from {given}: no copy of {task} is there"
        assert (error.hint or "").startswith("it takes ")
