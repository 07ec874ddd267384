"""The contract of copies: each task reads folder, archive and TFDS alike, names what is wrong, and is safe from it."""

from __future__ import annotations

import gzip
import os
import struct
import subprocess
import sys
import tarfile
import tracemalloc
import zlib
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import lrurun
from lrurun.data import task_data
from lrurun.data.downloaded import retrieval
from lrurun.data.tasks import TASKS
from lrurun.errors import LrurunError
from tests.harness import formats
from tests.harness.data_copies import (
    COPIES,
    SMALL,
    files_of,
    lines,
    member,
    members_of,
    pack,
    prepare,
    task_of,
    tfds_of,
)
from tests.harness.hostile_texts import TEXTS, check

DAMAGED = "the copy is incomplete or damaged: fetch it again"
each_task = pytest.mark.parametrize("task", COPIES)


def digests(task: str, given: Path, where: Path, **settings: Any) -> dict[str, str]:
    task = task_of(task)
    table = task_data.prepare(TASKS[task], TASKS[task].options(**settings), where / task, from_path=given)
    return dict(table.sha256)


def refused(task: str, given: Path, where: Path) -> LrurunError:
    with pytest.raises(LrurunError) as caught:
        digests(task, given, where)
    assert not where.exists() or not any(where.iterdir())
    assert "\n" not in caught.value.message
    assert caught.value.hint
    return caught.value


EVIL = [
    member("../../../../evil.sh", b"#!/bin/sh"),
    member("/etc/evil", b"x"),
    member("link/", b"", tarfile.SYMTYPE, "/etc"),
    member("link/evil", b"x"),
    member("zero", b"", tarfile.CHRTYPE),
    member("pipe", b"", tarfile.FIFOTYPE),
    member("\x1b[2J\x1b]0;t\x07\n", b"x"),
    member("\udcff\udcfe", b"x"),
    member("9" * 300 + "/metadata/" + "9" * 200 + ".npy", b"x"),
]
"""What may lie beside the data in an archive."""


def linked(place: Path, task: str) -> Path:
    """A folder with a link to a file elsewhere: its owner has put it there."""
    path = formats.tree(place / "tree", files_of(task)) / COPIES[task]
    path.rename(place / "file")
    path.symlink_to(place / "file")
    return place / "tree"


@each_task
def test_each_form_of_a_copy_gives_the_same_arrays(task, tmp_path, here):
    settings = {"split": "lra"} if task == "Pathfinder" else {}  # TFDS knows no other
    files = files_of(task)
    forms = {
        "tree": formats.tree(tmp_path / "tree", files),
        "zipped": formats.tar(tmp_path / "a.tar.gz", files),
        "dotted": formats.tar(tmp_path / "d.tar", {f"./{name}": files[name] for name in reversed(files)}, "w"),
        "beside evil": pack(tmp_path / "evil.tar.gz", *EVIL, *members_of(task), *EVIL),
        "linked": linked(tmp_path / "linked", task),
        "TFDS": tfds_of(task, tmp_path / "tfds"),
    }
    found = {form: digests(task, given, tmp_path / "out" / form, **settings) for form, given in forms.items() if given}
    assert len(found) > 4
    assert all(each == found["tree"] for each in found.values()), found
    assert prepare(here, task, forms["beside evil"])[0] == 0
    for words in (["data", "check", task_of(task)], ["data", "info", task_of(task)]):
        done = here.run(*words)
        check(0, done.stdout, done.stderr, words)


@each_task
def test_fewer_examples_are_the_first_ones(task, tmp_path, here):
    given = formats.tree(tmp_path / "tree", files_of(task))
    sizes = SMALL.get(task_of(task), {}).get("full", {})
    few = {"train": 3 if sizes.get("train") == 8 else 1, "test": 1}
    digests(task, given, tmp_path / "all")
    digests(task, given, tmp_path / "few", **few)
    for path in sorted((tmp_path / "few" / task_of(task)).glob("*.npy")):
        whole, part = np.load(tmp_path / "all" / task_of(task) / path.name), np.load(path)
        np.testing.assert_array_equal(part, whole[: len(part)])
        assert part.dtype == whole.dtype
        assert path.name.startswith("validation") or len(part) == few[path.name.partition("-")[0]]


PLACE = "lra_release/lra_release/"
ARENA = {"ListOps": "listops-1000", "Retrieval": "tsv_data", "Pathfinder": "pathfinder32/curv_contour_length_14"}
"""Tasks of Long Range Arena, whose release has two copies of each file, and the folders of their files."""


@pytest.mark.parametrize("task", ARENA)
@pytest.mark.parametrize("order", ["folder", "outer first", "inner first", "in turn"])
def test_of_two_copies_of_the_release_the_inner_one_is_read(task, order, tmp_path, here):
    """Wherever people unpack it; and nothing is read behind the tables of an archive."""
    inner = files_of(task)
    wanted = digests(task, formats.tree(tmp_path / "alone", inner), tmp_path / "out")
    blank = formats.png(np.zeros((32, 32), np.uint8))
    outer = {
        name.removeprefix("lra_release/"): blank if name.endswith("png") else content.replace(b"\t2\n", b"\t3\n")
        for name, content in inner.items()
    }
    outer = {name: content.replace(b"\tone", b"\tother") for name, content in outer.items()}
    if order == "folder":
        place = formats.tree(tmp_path / "given", inner | outer)
        for number, given in enumerate((place, place / "lra_release")):
            table = task_data.prepare(TASKS[task], TASKS[task].options(), tmp_path / f"{number}", from_path=given)
            assert dict(table.sha256) == wanted
            assert table.source == f"the folder {place / PLACE / ARENA[task]}"
        for number, head in enumerate(("", "lra_release/", f"{ARENA[task].partition('/')[0]}/")):
            leaf = ARENA[task] if number < 2 else ARENA[task].partition("/")[2]
            files = {f"{head}{leaf}/{name.removeprefix(PLACE + ARENA[task])}": inner[name] for name in inner}
            given = formats.tree(tmp_path / f"found {number}", files)
            assert digests(task, given, tmp_path / f"out {number}") == wanted
        return
    files = inner | outer if order == "inner first" else outer | inner
    if order == "in turn":
        files = {name: files[name] for pair in zip(outer, inner, strict=True) for name in pair}
    cut = order == "outer first" and task != "Pathfinder"
    archive = formats.tar(tmp_path / "given/lra_release.gz", files | {"noise": os.urandom(1 << 20)} if cut else files)
    if cut:
        os.truncate(archive, archive.stat().st_size - (1 << 19))
    for number, given in enumerate((archive, archive.parent)):
        table = task_data.prepare(TASKS[task], TASKS[task].options(), tmp_path / f"{number}", from_path=given)
        assert dict(table.sha256) == wanted
        assert table.source == f"the archive {archive}"
        assert table.notes == ([] if task == "Pathfinder" else [f"read from {PLACE}{ARENA[task]} in lra_release.gz"])


@each_task
def test_what_is_truncated_or_incomplete_is_named(task, tmp_path, here):
    noise = {f"noise/{number}": os.urandom(9000) for number in range(9)}
    given = formats.tar(tmp_path / "a.tar.gz", noise | files_of(task))
    whole = given.read_bytes()
    for kept in (0.1, 0.97):
        given.write_bytes(whole[: int(kept * len(whole))])
        error = refused(task, given, tmp_path / "out")
        assert (error.message, error.hint) == (f"{given}: the archive is truncated", DAMAGED)
    files = {name: content for name, content in files_of(task).items() if name != COPIES[task]}
    for given in (formats.tree(tmp_path / "tree", files), formats.tar(tmp_path / "b.tar.gz", files)):
        message = refused(task, given, tmp_path / "out").message
        assert str(given) in message
        assert any(word in message for word in ("missing", "expected", "no clips of")), message


@each_task
def test_what_is_no_copy_is_named(task, tmp_path, here):
    (tmp_path / "photos/2024").mkdir(parents=True)
    (tmp_path / "page.tar.gz").write_text("<html>403 Forbidden</html>")
    for given in (tmp_path / "photos", tmp_path / "page.tar.gz"):
        error = refused(task, given, tmp_path / "out")
        assert error.message == f"--from {given}: no copy of {task_of(task)} is there"
        assert (error.hint or "").startswith("it takes ")
    given = formats.tar(tmp_path / "a.tar", {"readme.txt": b"nothing"})
    message = refused(task, given, tmp_path / "out").message
    assert message.startswith(f"{given}: ")
    assert message.endswith(" missing")


NAMES = ("../../../outside", "b\udcff\udc80", "/etc/outside", "x" * 100_000, TEXTS["csi"], TEXTS["nul"])


@each_task
def test_names_of_members_are_never_paths(task, tmp_path, here):
    """Damaged files under hostile names are refused, the message is clean, and nothing is written anywhere."""
    leaf = COPIES[task].removeprefix("lra_release/lra_release/")
    for text in NAMES if task == "Text" else NAMES[:1]:
        files = {f"{text}/{leaf}": b"\xff\x1b[31m"} | {f"{text}/{file}": b"\xff\x1b[31m" for file in files_of(task)}
        given = pack(tmp_path / f"{task}.tar.gz", *(member(name, content) for name, content in files.items()))
        code, said = prepare(here, task, given)
        assert code == 1
        assert f"error: {given}" in said


@each_task
def test_links_and_devices_are_neither_made_nor_read(task, tmp_path, here):
    (tmp_path / "secret").write_text("1\t2\tsecret")
    kinds = (tarfile.SYMTYPE, tarfile.LNKTYPE, tarfile.CHRTYPE, tarfile.FIFOTYPE)
    members = [
        member(file, b"", kinds[number % 4], str(tmp_path / "secret")) for number, file in enumerate(files_of(task))
    ]
    code, said = prepare(here, task, pack(tmp_path / f"{task}.tar.gz", *members))
    assert code == 1
    assert "missing" in said
    path = formats.tree(tmp_path / "tree", files_of(task)) / COPIES[task]
    for make in (os.mkfifo, lambda path: path.symlink_to("/dev/zero"), lambda path: path.symlink_to(path)):
        path.unlink()
        make(path)
        assert prepare(here, task, tmp_path / "tree")[0] == 1


TOO_MUCH = {
    "sCIFAR": "longer than 33,554,432 bytes",
    "sCIFAR pickled": "longer than 67,108,864 bytes",
    "Text": "longer than 1,048,576 bytes",
    "SpeechCommands": "longer than 65,536 bytes",
    "ListOps": "a line of more than 1,048,576 bytes",
    "Retrieval": "a line of more than 16,777,216 bytes",
    "Pathfinder": "longer than 4,194,304 bytes",
    "PG19": "longer than 67,108,864 bytes",
}


def head(name: str, size: int) -> bytes:
    """512 bytes that announce so many."""
    entry = tarfile.TarInfo(name)
    entry.size = size
    return entry.tobuf(tarfile.GNU_FORMAT)


@cache
def zeros() -> bytes:
    """160 MB, compressed: gzip members in a row are one stream."""
    return gzip.compress(bytes(1 << 25), 1) * 5


@each_task
def test_a_bomb_takes_no_memory(task, tmp_path, here):
    """160 MB of zeros in place of a file of the copy."""
    rest = {name: content for name, content in files_of(task).items() if name != COPIES[task]}
    before = b"".join(head(name, len(data)) + data + bytes(-len(data) % 512) for name, data in rest.items())
    given = tmp_path / "bomb.tar.gz"
    given.write_bytes(gzip.compress(before + head(COPIES[task], 5 << 25)) + zeros() + gzip.compress(bytes(1024)))
    assert given.stat().st_size < 2 << 20
    tree = formats.tree(tmp_path / "tree", files_of(task))
    os.truncate(tree / COPIES[task], 160 << 20)
    for place, name in ((given, f"{given}: {COPIES[task]}"), (tree, f"{tree / COPIES[task]}")):
        tracemalloc.start()
        message = refused(task, place, tmp_path / "out").message
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        assert message.startswith(name)
        assert TOO_MUCH[task] in message
        assert peak < 150e6


def large_png(side: int) -> bytes:
    """A PNG whose header states this size."""
    small = formats.png(np.zeros((32, 32), np.uint8))
    stated = b"IHDR" + struct.pack(">IIBBBBB", side, side, 8, 0, 0, 0, 0)
    return small[:12] + stated + struct.pack(">I", zlib.crc32(stated)) + small[33:]


def npy(shape: str, descr: str, content: bytes = b"") -> bytes:
    stated = f"{{'descr': {descr}, 'fortran_order': False, 'shape': {shape}, }}\n".encode()
    return b"\x93NUMPY\1\0" + struct.pack("<H", len(stated)) + stated + content


def listops(*rows: bytes) -> bytes:
    return b"\n".join([b"Source\tTarget", *rows, b""])


LIST = "lra_release/lra_release/pathfinder32/curv_contour_length_14/metadata/0.npy"
LIES: list[tuple[str, str, bytes, str]] = [
    ("Pathfinder", COPIES["Pathfinder"], large_png(33), "expected 32 x 32 pixels, found 33 x 33"),
    ("Pathfinder", COPIES["Pathfinder"], large_png(10_000), "not a PNG image"),
    ("Pathfinder", COPIES["Pathfinder"], large_png(2**31 - 1), "not a PNG image"),
    ("Pathfinder", LIST, lines("../../../outside x.png 0 1"), "expected 10 images, found 1"),
    ("Pathfinder", LIST, lines("/etc passwd 0 1"), "expected 10 images, found 1"),
    ("Pathfinder", LIST, lines("imgs/0 \x1b[31mred\x07.png 0 1"), "expected 10 images, found 1"),
    ("Pathfinder", LIST, lines("x" * 5_000_000), "longer than 4,194,304 bytes"),
    ("Pathfinder", LIST, npy("(1000000000000, 4)", "'<U9'"), "not an array of texts"),
    ("Pathfinder", LIST, npy("(1000000000, 4)", "'<U0'"), "not an array of texts"),
    ("Pathfinder", LIST, npy("(1,)", "'|O'", b"cos\nsystem\n(S'touch owned'\ntR."), "not an array of texts"),
    ("ListOps", COPIES["ListOps"], listops(b"[" * 900_000 + b"\t1"), "unknown token"),
    ("ListOps", COPIES["ListOps"], listops(b"[MAX " * 150_000 + b"\t1"), "expected 1 to 2000 tokens, found 150000"),
    ("ListOps", COPIES["ListOps"], listops(b"\x1b]0;owned\x07\t1"), "unknown token"),
    ("Retrieval", COPIES["Retrieval"], b"\t" * 1_000_000, "expected 5 columns, found 1000001"),
    ("Retrieval", COPIES["Retrieval"], b"\x1b[31m" * 9 + b"\tA\tB\tx\ty", "expected a label of 0.0 or 1.0"),
]
"""Task, file of its copy, hostile content, what is said of it."""


def test_files_that_lie_are_refused(tmp_path, here):
    """In an archive and in a folder: nothing is unpickled or decompressed, and no name leads out of the copy."""
    formats.tree(tmp_path, {"outside/x.png": formats.png(np.zeros((32, 32), np.uint8)), "a/x.png": b"secret"})
    for number, (task, file, content, expected) in enumerate(LIES):
        files = files_of(task) | {file: content}
        given = pack(tmp_path / f"{number}.tar", *(member(n, c) for n, c in files.items()), mode="w")
        code, said = prepare(here, task, given)
        assert (code, expected in said, "warning" in said.lower()) == (1, True, False), said
        assert expected in refused(task, formats.tree(tmp_path / f"a/b/{number}", files), tmp_path / "out").message
    assert not (here.folder / "owned").exists()


def test_a_table_that_would_fill_the_disk_is_refused(tmp_path, here, monkeypatch):
    monkeypatch.setattr(retrieval, "_FILE_LIMIT", 100)
    given = pack(tmp_path / "given.tar", *(member(n, c * 100) for n, c in files_of("Retrieval").items()))
    code, said = prepare(here, "Retrieval", given)
    assert code == 1
    assert f"{COPIES['Retrieval']}: longer than 100 bytes" in said


def test_texts_of_anything_are_texts(tmp_path, here):
    """Long lines, controls and escapes within the limits are data like others, and shown cleanly."""
    evil = "".join(TEXTS.values()).replace("\t", " ").replace("\n", " ")
    row = f"1.0\t{evil}\t\t{evil}\t{'long ' * 2_000_000}\n".encode()
    assert (
        prepare(
            here, "Retrieval", formats.tree(tmp_path / "t", files_of("Retrieval") | {COPIES["Retrieval"]: row * 2})
        )[0]
        == 0
    )
    for words in (["data", "check", "Retrieval"], ["data", "check", "Retrieval", "--json"]):
        done = here.run(*words)
        check(0, done.stdout, done.stderr, words)
    assert np.load(tmp_path / "data/Retrieval/train-lengths.npy")[:, 1].tolist() == [4000, 4000]


@pytest.mark.slow
def test_modules_of_the_working_directory_are_not_run(tmp_path: Path) -> None:
    """By a worker, which is a process of its own: where a ladder is typed may lie anything."""
    (tmp_path / "tarfile.py").write_text("raise SystemExit('run')")
    (tmp_path / "lrurun").mkdir()
    (tmp_path / "lrurun/__init__.py").write_text("raise SystemExit('run')")
    words = ["ladder", "sDigits", "--profile", "smoke", "--rung", "tanh-rnn", "--seeds", "1", "--set", "train.steps=2"]
    env = os.environ | {"PYTHONPATH": str(Path(lrurun.__file__).parent.parent)}
    done = subprocess.run(
        [sys.executable, "-P", "-m", "lrurun", *words], env=env, cwd=tmp_path, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
