"""Malicious data files: bombs, sizes and lists that lie, pipes. Refused in two lines, within limits of memory."""

from __future__ import annotations

import os
import struct
import subprocess
import sys
import zlib
from pathlib import Path

import numpy as np
import pytest

import lrurun
from lrurun.__main__ import run as command
from lrurun.data.downloaded import retrieval
from tests.harness import formats
from tests.harness.data_copies import (
    COPIES,
    files_of,
    here,  # noqa: F401 (a fixture)
    lines,
    member,
    pack,
    prepare,
)
from tests.harness.hostile_texts import TEXTS, check

pytestmark = pytest.mark.slow


def test_a_table_that_would_fill_the_disk_is_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(retrieval, "_FILE_LIMIT", 100)
    files = files_of("Retrieval")
    given = pack(tmp_path / "given.tar", *(member(n, c * 100) for n, c in files.items()))
    code, said = prepare("Retrieval", given, capsys)
    assert code == 1
    assert f"{COPIES['Retrieval']}: longer than 100 bytes" in said


def large_png(side: int) -> bytes:
    """A PNG whose header states this size."""
    small = formats.png(np.zeros((32, 32), np.uint8))
    head = b"IHDR" + struct.pack(">IIBBBBB", side, side, 8, 0, 0, 0, 0)
    return small[:12] + head + struct.pack(">I", zlib.crc32(head)) + small[33:]


@pytest.mark.parametrize("side", [33, 10_000, 2**31 - 1])
def test_images_that_claim_to_be_large(side: int, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Nothing is decompressed, and Pillow's own warning is not shown."""
    files = files_of("Pathfinder") | {COPIES["Pathfinder"]: large_png(side)}
    given = pack(tmp_path / "given.tar", *(member(n, c) for n, c in files.items()))
    code, said = prepare("Pathfinder", given, capsys)
    assert code == 1
    assert f"error: {given}: {COPIES['Pathfinder']}: " in said
    assert "expected 32 x 32 pixels" in said or "not a PNG image" in said
    assert "warning" not in said.lower()


LIST = "lra_release/lra_release/pathfinder32/curv_contour_length_14/metadata/0.npy"


def npy(shape: str, descr: str, content: bytes = b"") -> bytes:
    head = f"{{'descr': {descr}, 'fortran_order': False, 'shape': {shape}, }}\n".encode()
    return b"\x93NUMPY\1\0" + struct.pack("<H", len(head)) + head + content


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (lines("../../../outside x.png 0 1"), "expected 10 images, found 1"),
        (lines("/etc passwd 0 1"), "expected 10 images, found 1"),
        (lines("imgs/0 ../../x.png 0 1"), "expected 10 images, found 1"),
        (lines("imgs/0 \x1b[31mred\x07.png 0 1"), "expected 10 images, found 1"),
        (lines("x" * 5_000_000), "longer than 4,194,304 bytes"),
        (npy("(10, 4)", "'<U9'"), "not an array of texts"),
        (npy("(1000000000000, 4)", "'<U9'"), "not an array of texts"),
        (npy("(1000000000, 4)", "'<U0'"), "not an array of texts"),
        (npy("(1,)", "'|O'", b"cos\nsystem\n(S'touch owned'\ntR."), "not an array of texts"),
    ],
)
def test_lists_of_images_that_lie(
    content: bytes, said: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """In an archive and in a folder, out of which no name leads."""
    formats.tree(tmp_path, {"outside/x.png": formats.png(np.zeros((32, 32), np.uint8)), "a/x.png": b"secret"})
    files = files_of("Pathfinder") | {LIST: content}
    given = pack(tmp_path / "given.tar", *(member(n, c) for n, c in files.items()))
    assert said in prepare("Pathfinder", given, capsys)[1]
    formats.tree(tmp_path / "tree/a/b/c", files)
    assert said in prepare("Pathfinder", tmp_path / "tree/a/b/c", capsys)[1]
    assert not Path("owned").exists()


ROW = "1.0\tA\tB\tone\ttwo"


@pytest.mark.parametrize(
    ("task", "rows", "said"),
    [
        ("ListOps", [b"Source\tTarget", b"[" * 900_000 + b"\t1"], "unknown token"),
        ("ListOps", [b"Source\tTarget", b"[MAX " * 150_000 + b"\t1"], "expected 1 to 2000 tokens, found 150000"),
        ("ListOps", [b"Source\tTarget", b"\x1b]0;owned\x07\t1"], "unknown token"),
        ("Retrieval", [b"\t" * 1_000_000], "expected 5 columns, found 1000001"),
        ("Retrieval", [b"\x1b[31m" * 9 + b"\tA\tB\tx\ty"], "expected a label of 0.0 or 1.0"),
        ("Retrieval", [b"1.0\tA\tB\tx" + b"\x00" * 17_000_000], "a line of more than 16,777,216 bytes"),
    ],
)
def test_tables_that_lie(
    task: str, rows: list[bytes], said: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    files = files_of(task) | {COPIES[task]: b"\n".join([*rows, b""])}
    given = pack(tmp_path / "given.tar", *(member(n, c) for n, c in files.items()), mode="w")
    assert said in prepare(task, given, capsys)[1]
    formats.tree(tmp_path / "tree", files)
    assert said in prepare(task, tmp_path / "tree", capsys)[1]


def test_texts_of_anything_are_texts(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Long lines, controls and escapes within the limits are data like others, and shown cleanly."""
    evil = "".join(TEXTS.values()).replace("\t", " ").replace("\n", " ")
    row = f"1.0\t{evil}\t\t{evil}\t{'long ' * 2_000_000}\n".encode()
    files = files_of("Retrieval")
    files[COPIES["Retrieval"]] = row * 2
    assert prepare("Retrieval", formats.tree(tmp_path / "tree", files), capsys)[0] == 0
    reviews = {name: f"{content.decode()} {evil}".encode() for name, content in files_of("Text").items()}
    (tmp_path / "data").rename(tmp_path / "before")
    assert prepare("Text", formats.tree(tmp_path / "reviews", reviews), capsys)[0] == 0
    (tmp_path / "before/Retrieval").rename(tmp_path / "data/Retrieval")
    for task in ("Text", "Retrieval"):
        for words in (["data", "check", task], ["data", "check", task, "--json"], ["data", "info", task, "--json"]):
            code = command(words)
            out, err = capsys.readouterr()
            check(code, out, err, words)
            assert code == 0
    found = np.load(tmp_path / "data/Retrieval/train-lengths.npy")
    assert found[:, 1].tolist() == [4000, 4000]


def test_modules_of_the_working_directory_are_not_run(tmp_path: Path) -> None:
    """By a worker, which is a process of its own: where a ladder is typed may lie anything."""
    (tmp_path / "here/tarfile.py").write_text("raise SystemExit('run')")
    (tmp_path / "here/lrurun").mkdir()
    (tmp_path / "here/lrurun/__init__.py").write_text("raise SystemExit('run')")
    words = ["ladder", "sDigits", "--profile", "smoke", "--rung", "tanh-rnn", "--set", "train.steps=2"]
    env = os.environ | {"PYTHONPATH": str(Path(lrurun.__file__).parent.parent)}
    done = subprocess.run([sys.executable, "-P", "-m", "lrurun", *words], env=env, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
