"""Tar archives: members are read as they are; what is truncated, damaged or not an archive is named."""

from __future__ import annotations

import contextlib
import gzip
import os
import tarfile
from pathlib import Path

import numpy as np
import pytest

from lrurun.data.copies import reader, reading
from lrurun.errors import LrurunError
from tests.harness import formats

COPY = "the copy is incomplete or damaged: fetch it again"
FILES = {"./": b"", "./a.txt": b"first\nsecond\n", "b/": b"", "b/empty": b"", "b/./big.bin": bytes(range(256)) * 300}


def refused(call) -> LrurunError:
    with pytest.raises(LrurunError) as caught:
        call()
    assert "\n" not in caught.value.message
    return caught.value


def read(path: Path) -> list[tuple[str, bytes]]:
    with contextlib.closing(reader.members(path)) as found:  # after an error the file is closed at once
        return [(name, reading.read(file, 1 << 20, name)) for name, file in found]


@pytest.mark.parametrize("mode", ["w:gz", "w"])
def test_members_are_read_in_order_under_plain_names(tmp_path, mode):
    path = formats.tar(tmp_path / "files.tar", FILES, mode)
    assert read(path) == [("a.txt", FILES["./a.txt"]), ("b/empty", b""), ("b/big.bin", FILES["b/./big.bin"])]
    assert next(list(file) for _, file in reader.members(path)) == [b"first\n", b"second\n"]
    assert [name for name, _ in reader.members(path)] == ["a.txt", "b/empty", "b/big.bin"]  # nothing read
    assert os.listdir(tmp_path) == ["files.tar"]


def test_progress_is_reported(tmp_path):
    path = formats.tar(tmp_path / "files.tar", FILES, "w")
    seen = []
    for _ in reader.members(path, lambda *facts: seen.append(facts)):
        pass
    assert {(what, total) for what, _, total in seen} == {("reading files.tar", path.stat().st_size)}
    assert [done for _, done, _ in seen] == sorted(done for _, done, _ in seen)


@pytest.mark.parametrize("mode", ["w:gz", "w"])
def test_an_archive_truncated_anywhere_is_named(tmp_path, mode):
    random = np.random.RandomState(0)
    files = {f"{number}.bin": random.bytes(3000) for number in range(9)}
    path = formats.tar(tmp_path / "files.tar", files, mode)
    content = path.read_bytes()
    for cut in (*range(0, 27_000, 1277), 512, 4096, len(content) - 9 if mode == "w:gz" else 32_300):
        path.write_bytes(content[:cut])
        error = refused(lambda: read(path))
        assert error.message in (
            f"{path}: the archive is truncated",
            f"{path}: the archive is truncated, or not a tar archive",
        )
        assert error.hint == COPY
        assert refused(lambda: list(reader.members(path))).message == error.message


def test_a_damaged_archive_is_named(tmp_path):
    files = {"random.bin": np.random.RandomState(0).bytes(50_000)}
    path = formats.tar(tmp_path / "files.tar", files, "w")
    content = bytearray(gzip.compress(path.read_bytes()))
    content[10] |= 6  # a block of a kind that there is not
    path.write_bytes(content)
    assert refused(lambda: read(path)).message.startswith(f"{path}: the archive is damaged: Error -3 ")
    # a flaw that only the checksum at the end shows
    content = bytearray(formats.tar(path, files).read_bytes())
    content[-8] ^= 255
    path.write_bytes(content)
    assert refused(lambda: read(path)).message.startswith(f"{path}: the archive is damaged: CRC check failed")


def test_what_is_not_an_archive_is_named(tmp_path):
    path = tmp_path / "file"
    for content in (b"<html>403 Forbidden</html>", b"x" * 9999, bytes(20) + b"x" * 9999, gzip.compress(b"x" * 9999)):
        path.write_bytes(content)
        message = refused(lambda: read(path)).message
        assert message.startswith(f"{path}: ")
        assert "not a tar archive" in message
    error = refused(lambda: read(tmp_path / "nothing"))
    assert error.message == f"{tmp_path}/nothing: No such file or directory"


def test_errors_of_the_caller_pass(tmp_path):
    path = formats.tar(tmp_path / "files.tar", FILES)

    def use() -> None:
        for _ in reader.members(path):
            raise OSError(28, "No space left on device")

    with pytest.raises(OSError, match="No space left"):
        use()


def header(name: str, size: int, kind: bytes = tarfile.REGTYPE) -> bytes:
    member = tarfile.TarInfo(name)
    member.type, member.size = kind, size
    return member.tobuf(tarfile.GNU_FORMAT)


@pytest.mark.parametrize("kind", [tarfile.GNUTYPE_LONGNAME, tarfile.XHDTYPE, tarfile.XGLTYPE])
def test_a_header_of_gigabytes_is_refused_before_it_is_read(tmp_path, kind):
    path = tmp_path / "files.tar"
    path.write_bytes(header("x", 1 << 33, kind) + bytes(1 << 16))
    assert "a header of 8,589,934,592 bytes, where 65,536 are allowed" in refused(lambda: read(path)).message


@pytest.mark.parametrize("size", [10**15, -5000])
def test_a_member_of_an_impossible_size_ends_in_an_error(tmp_path, size):
    path = tmp_path / "files.tar"
    path.write_bytes(header("first", 0) + header("second", size) + bytes(2048))
    assert "trunc" in (message := refused(lambda: list(reader.members(path))).message) or "negative" in message


def test_links_devices_and_pipes_are_skipped(tmp_path):
    with tarfile.open(tmp_path / "files.tar", "w") as archive:
        for kind in (tarfile.SYMTYPE, tarfile.LNKTYPE, tarfile.CHRTYPE, tarfile.BLKTYPE, tarfile.FIFOTYPE):
            member = tarfile.TarInfo("a.txt")
            member.type, member.linkname = kind, "/etc/passwd"
            archive.addfile(member)
    assert read(tmp_path / "files.tar") == []


def test_the_headers_of_members_do_not_pile_up(tmp_path, monkeypatch):
    path = formats.tar(tmp_path / "files.tar", {f"{number}": b"x" for number in range(50)}, "w")
    opened, real = [], tarfile.open
    monkeypatch.setattr(reader.tarfile, "open", lambda *a, **b: opened.append(real(*a, **b)) or opened[-1])
    for _ in reader.members(path):
        assert len(opened[0].members) <= 1
    assert len(opened) == 1
