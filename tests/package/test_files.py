"""Files and folders that appear only when they are complete."""

import os
import threading

import pytest

from lrurun import files


def interrupted(target):
    with files.atomic(target) as partial:
        partial.write_text("new")
        partial.with_name(f"{partial.name}-wal").write_text("a log")
        assert target.read_text() == "old"
        raise ZeroDivisionError


def test_what_fails_leaves_the_old_file_and_no_other(tmp_path):
    target = tmp_path / "table.csv"
    target.write_text("old")
    with pytest.raises(ZeroDivisionError):
        interrupted(target)
    assert [path.name for path in tmp_path.iterdir()] == ["table.csv"]
    assert target.read_text() == "old"


def test_a_folder_appears_with_all_its_files(tmp_path):
    with files.atomic(tmp_path / "export") as partial:
        partial.mkdir()
        (partial / "runs.csv").write_text("id")
        assert not (tmp_path / "export").exists()
    assert (tmp_path / "export/runs.csv").read_text() == "id"
    with pytest.raises(OSError), files.atomic(tmp_path / "export") as partial:
        partial.mkdir()
    assert os.listdir(tmp_path) == ["export"]


def test_a_file_behind_a_link_is_replaced_and_a_pipe_is_written_to(tmp_path):
    (tmp_path / "link").symlink_to(tmp_path / "real")
    files.write(tmp_path / "link", b"once")
    files.write(tmp_path / "link", b"twice")
    assert (tmp_path / "link").is_symlink()
    assert (tmp_path / "real").read_bytes() == b"twice"
    os.mkfifo(tmp_path / "pipe")
    found = []
    reader = threading.Thread(target=lambda: found.append((tmp_path / "pipe").read_bytes()))
    reader.start()
    files.write(tmp_path / "pipe", b"through")
    reader.join()
    assert found == [b"through"]


@pytest.mark.parametrize("count", [3, files.MANY + 1])
def test_a_folder_goes_with_all_but_what_cannot_be_removed(tmp_path, monkeypatch, count):
    folder, outside = tmp_path / "folder", tmp_path / "outside"
    outside.mkdir()
    (outside / "kept").touch()
    for number in range(count):
        (folder / f"{number}" / "inner").mkdir(parents=True)
        (folder / f"{number}" / "inner" / "file").touch()
        (folder / f"{number}" / "link").symlink_to(outside)
    (folder / "link").symlink_to(outside)
    unlink = os.unlink

    def refuse(path):
        if str(path) == f"{folder}/1/inner/file":
            raise PermissionError(13, "Permission denied", str(path))
        unlink(path)

    with monkeypatch.context() as patch:
        patch.setattr(files.os, "unlink", refuse)
        with pytest.raises(PermissionError, match="1/inner/file"):
            files.remove_tree(folder)
    assert [str(path.relative_to(folder)) for path in sorted(folder.rglob("*"))] == ["1", "1/inner", "1/inner/file"]
    files.remove_tree(folder)
    assert not folder.exists()
    files.remove_tree(folder)
    assert list(outside.iterdir()) == [outside / "kept"]


def test_several_processes_may_remove_a_folder_at_once(tmp_path):
    folder = tmp_path / "folder"
    for number in range(2 * files.MANY):
        (folder / f"{number}" / "inner").mkdir(parents=True)
        (folder / f"{number}" / "inner" / "file").touch()
    faults = []

    def remove():
        try:
            files.remove_tree(folder)
        except OSError as error:
            faults.append(error)

    threads = [threading.Thread(target=remove) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert faults == []
    assert not folder.exists()
