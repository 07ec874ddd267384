"""Malicious archives of data: names that lead outside, links, devices, and members beside the data."""

from __future__ import annotations

import json
import tarfile
from pathlib import Path

import pytest

from lrurun.__main__ import run as command
from tests.hostile.data_copies import (
    COPIES,
    files_of,
    here,  # noqa: F401 (a fixture)
    member,
    members_of,
    pack,
    prepare,
)
from tests.hostile.texts import TEXTS, check

pytestmark = pytest.mark.slow

NAMES = ("../../../outside", "/etc/outside", "b\udcff\udc80", "x" * 100_000, TEXTS["csi"], TEXTS["nul"])


@pytest.mark.parametrize("task", COPIES)
def test_names_of_members_are_never_paths(task: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Damaged files under hostile names are refused, the message is clean, and nothing is written anywhere."""
    leaf = COPIES[task].removeprefix("lra_release/lra_release/")
    for text in NAMES:
        files = {f"{text}/{leaf}": b"\xff\x1b[31m"} | {f"{text}/{file}": b"\xff\x1b[31m" for file in files_of(task)}
        given = pack(tmp_path / f"{task}.tar.gz", *(member(name, content) for name, content in files.items()))
        code, said = prepare(task, given, capsys)
        assert code == 1
        assert f"error: {given}" in said


@pytest.mark.parametrize("task", COPIES)
def test_links_and_devices_are_neither_made_nor_read(
    task: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "secret").write_text("1\t2\tsecret")
    for kind in (tarfile.SYMTYPE, tarfile.LNKTYPE, tarfile.CHRTYPE, tarfile.FIFOTYPE):
        given = tmp_path / f"{task}.tar.gz"
        pack(given, *(member(file, b"", kind, str(tmp_path / "secret")) for file in files_of(task)))
        code, said = prepare(task, given, capsys)
        assert code == 1
        assert any(word in said for word in ("missing", "expected", "no clips")), said


@pytest.mark.parametrize("task", COPIES)
def test_members_beside_the_data_change_nothing(task: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Whatever else is in an archive, the arrays are those of the clean one, and nothing else is on disk."""
    harmless = members_of(task)
    (tmp_path / "clean").mkdir()
    assert command(["data", "prepare", task, "--from", str(pack(tmp_path / "clean/c.tar", *harmless, mode="w"))]) == 0
    clean = json.loads((tmp_path / "data" / task / "manifest.json").read_text())["sha256"]
    (tmp_path / "data").rename(tmp_path / "before")
    first = COPIES[task]
    evil = [
        member("../../../../evil.sh", b"#!/bin/sh"),
        member("/etc/evil", b"x"),
        member(first.partition("/")[0], b"", tarfile.SYMTYPE, "/etc"),
        member("link/", b"", tarfile.SYMTYPE, str(tmp_path)),
        member("link/evil", b"x"),
        member("zero", b"", tarfile.CHRTYPE),
        member("pipe", b"", tarfile.FIFOTYPE),
        member("\x1b[2J\x1b]0;t\x07\n", b"x"),
        member("\udcff\udcfe", b"x"),
        member("9" * 300 + "/metadata/" + "9" * 200 + ".npy", b"x"),
    ]
    capsys.readouterr()
    code, _ = prepare(task, pack(tmp_path / "evil.tar.gz", *evil, *harmless, *evil), capsys)
    assert code == 0
    assert json.loads((tmp_path / "data" / task / "manifest.json").read_text())["sha256"] == clean
    for words in (["data", "check", task], ["data", "info", task]):
        assert command(words) == 0
        check(0, *capsys.readouterr(), words)
