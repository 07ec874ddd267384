"""The contract of copies: each task reads folder, archive and TFDS alike, names what is wrong, and is safe from it."""

from __future__ import annotations

import gzip
import os
import subprocess
import sys
import tarfile
from pathlib import Path

import pytest

import lrurun
from lrurun.__main__ import run as command
from lrurun.data import TASKS, store
from lrurun.errors import LrurunError
from tests.data.test_retrieval import PEAK
from tests.harness import formats
from tests.harness.data_copies import (
    COPIES,
    SMALL,
    files_of,
    here,  # noqa: F401 (a fixture)
    member,
    members_of,
    pack,
    prepare,
    tfds_of,
)
from tests.harness.hostile_texts import TEXTS, check

pytestmark = pytest.mark.parametrize("task", COPIES)


def digests(task: str, given: Path, where: Path, **settings: str) -> dict[str, str]:
    table = store.prepare(TASKS[task], TASKS[task].options(**settings), where / task, from_path=given)
    return dict(table.sha256)


def refused(task: str, given: Path, where: Path) -> LrurunError:
    with pytest.raises(LrurunError) as caught:
        digests(task, given, where)
    assert not where.exists() or not any(where.iterdir())
    assert "\n" not in caught.value.message
    assert caught.value.hint
    return caught.value


def test_each_form_of_a_copy_gives_the_same_arrays(task: str, tmp_path: Path) -> None:
    settings = {"split": "lra"} if task == "Pathfinder" else {}  # TFDS knows no other
    forms = {
        "tree": formats.tree(tmp_path / "tree", files_of(task)),
        "zipped": formats.tar(tmp_path / "a.tar.gz", files_of(task)),
        "plain": formats.tar(tmp_path / "a.tar", files_of(task), "w"),
        "dotted": formats.tar(
            tmp_path / "dotted.tar", {f"./{name}": content for name, content in reversed(files_of(task).items())}
        ),
        "TFDS": tfds_of(task, tmp_path / "tfds"),
    }
    found = {form: digests(task, given, tmp_path / "data" / form, **settings) for form, given in forms.items() if given}
    assert len(found) > 3
    assert all(each == found["tree"] for each in found.values()), found


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
        assert str(given) in error.message
        words = ("missing", "expected", "no clips of")
        assert any(word in error.message for word in words), error.message


def test_another_folder_or_file_is_no_copy(task: str, tmp_path: Path) -> None:
    (tmp_path / "photos/2024").mkdir(parents=True)
    (tmp_path / "page.tar.gz").write_text("<html>403 Forbidden</html>")
    for given in (tmp_path / "photos", tmp_path / "page.tar.gz"):
        error = refused(task, given, tmp_path / "data")
        assert error.message == f"--from {given}: no copy of {task} is there"
        assert (error.hint or "").startswith("it takes ")


def test_an_archive_without_the_files_is_named(task: str, tmp_path: Path) -> None:
    given = formats.tar(tmp_path / "a.tar", {"readme.txt": b"nothing"})
    error = refused(task, given, tmp_path / "data")
    assert error.message.startswith(f"{given}: ")
    assert error.message.endswith(" missing")


NAMES = ("../../../outside", "/etc/outside", "b\udcff\udc80", "x" * 100_000, TEXTS["csi"], TEXTS["nul"])


def test_names_of_members_are_never_paths(task: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Damaged files under hostile names are refused, the message is clean, and nothing is written anywhere."""
    leaf = COPIES[task].removeprefix("lra_release/lra_release/")
    for text in NAMES:
        files = {f"{text}/{leaf}": b"\xff\x1b[31m"} | {f"{text}/{file}": b"\xff\x1b[31m" for file in files_of(task)}
        given = pack(tmp_path / f"{task}.tar.gz", *(member(name, content) for name, content in files.items()))
        code, said = prepare(task, given, capsys)
        assert code == 1
        assert f"error: {given}" in said


def test_links_and_devices_are_neither_made_nor_read(
    task: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "secret").write_text("1\t2\tsecret")
    for kind in (tarfile.SYMTYPE, tarfile.LNKTYPE, tarfile.CHRTYPE, tarfile.FIFOTYPE):
        given = tmp_path / f"{task}.tar.gz"
        pack(given, *(member(file, b"", kind, str(tmp_path / "secret")) for file in files_of(task)))
        code, said = prepare(task, given, capsys)
        assert code == 1
        assert "missing" in said


def test_members_beside_the_data_change_nothing(task: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Whatever else is in an archive, the arrays are those of the clean one, and nothing else is on disk."""
    harmless = members_of(task)
    clean = digests(task, pack(tmp_path / "c.tar", *harmless, mode="w"), tmp_path / "clean")
    evil = [
        member("../../../../evil.sh", b"#!/bin/sh"),
        member("/etc/evil", b"x"),
        member(COPIES[task].partition("/")[0], b"", tarfile.SYMTYPE, "/etc"),
        member("link/", b"", tarfile.SYMTYPE, str(tmp_path)),
        member("link/evil", b"x"),
        member("zero", b"", tarfile.CHRTYPE),
        member("pipe", b"", tarfile.FIFOTYPE),
        member("\x1b[2J\x1b]0;t\x07\n", b"x"),
        member("\udcff\udcfe", b"x"),
        member("9" * 300 + "/metadata/" + "9" * 200 + ".npy", b"x"),
    ]
    code, _ = prepare(task, pack(tmp_path / "evil.tar.gz", *evil, *harmless, *evil), capsys)
    assert code == 0
    assert digests(task, tmp_path / "evil.tar.gz", tmp_path / "again") == clean
    for words in (["data", "check", task], ["data", "info", task]):
        assert command(words) == 0
        check(0, *capsys.readouterr(), words)


TOO_MUCH = {
    "sCIFAR": "longer than 33,554,432 bytes",
    "Text": "longer than 1,048,576 bytes",
    "SpeechCommands": "longer than 65,536 bytes",
    "ListOps": "a line of more than 1,048,576 bytes",
    "Retrieval": "a line of more than 16,777,216 bytes",
    "Pathfinder": "longer than 4,194,304 bytes",
    "PG19": "longer than 67,108,864 bytes",
}


def test_a_file_that_is_too_long_is_refused_by_name(
    task: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    formats.tree(tmp_path / "tree", files_of(task))
    os.truncate(tmp_path / "tree" / COPIES[task], 68 << 20)
    _, said = prepare(task, tmp_path / "tree", capsys)
    assert f"error: {tmp_path / 'tree' / COPIES[task]}" in said
    assert TOO_MUCH[task] in said


BOMBS = f"""{PEAK}
from lrurun.errors import LrurunError
from lrurun.data import TASKS; from lrurun.data import store as folder
from lrurun.data.generated import listops

listops.SIZES |= dict(train=2, validation=1, test=1)
for name, sizes in {SMALL!r}.items():
    for key, value in sizes.items():
        setattr(TASKS[name], key, value)
task = TASKS[sys.argv[1]]
before = peak()
try:
    folder.prepare(task, task.options(), Path(sys.argv[3]) / "x", from_path=Path(sys.argv[2]))
except LrurunError as error:
    print(peak() - before, error.message)
"""


def head(name: str, size: int) -> bytes:
    """512 bytes that announce so many."""
    entry = tarfile.TarInfo(name)
    entry.size = size
    return entry.tobuf(tarfile.GNU_FORMAT)


@pytest.mark.slow
def test_a_bomb_takes_no_memory(task: str, tmp_path: Path) -> None:
    """256 MB of zeros in place of a file of the copy: gzip members in a row are one stream."""
    rest = {name: content for name, content in files_of(task).items() if name != COPIES[task]}
    before = b"".join(head(name, len(data)) + data + bytes(-len(data) % 512) for name, data in rest.items())
    given, zeros = tmp_path / "bomb.tar.gz", gzip.compress(bytes(1 << 25), 1)
    given.write_bytes(gzip.compress(before + head(COPIES[task], 1 << 28)) + zeros * 8 + gzip.compress(bytes(1024)))
    assert given.stat().st_size < 2 << 20
    done = subprocess.run(
        [sys.executable, "-c", BOMBS, task, str(given), str(tmp_path / "data")],
        env=os.environ | {"PYTHONPATH": str(Path(lrurun.__file__).parent.parent)},
        capture_output=True,
        text=True,
        check=True,
    )
    peak, _, message = done.stdout.partition(" ")
    assert message.startswith(f"{given}: {COPIES[task]}")
    assert TOO_MUCH[task] in message
    assert int(peak) < 150e6
    assert not (tmp_path / "data").exists()


def test_what_is_not_a_regular_file_in_a_folder_is_not_waited_for(
    task: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = formats.tree(tmp_path / "tree", files_of(task)) / COPIES[task]
    for make in (os.mkfifo, lambda path: path.symlink_to("/dev/zero"), lambda path: path.symlink_to(path)):
        path.unlink()
        make(path)
        assert prepare(task, tmp_path / "tree", capsys)[0] == 1


def test_links_to_files_are_files(task: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A copy may lie elsewhere: the owner of the folder has put the link there."""
    path = formats.tree(tmp_path / "tree", files_of(task)) / COPIES[task]
    (tmp_path / "elsewhere").mkdir()
    path.rename(tmp_path / "elsewhere/file")
    path.symlink_to(tmp_path / "elsewhere/file")
    assert prepare(task, tmp_path / "tree", capsys)[0] == 0
