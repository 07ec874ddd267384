"""Data files that mean harm: archives, tables, images and prepared folders are refused in two lines, within limits."""

from __future__ import annotations

import gzip
import io
import json
import os
import random
import signal
import struct
import subprocess
import sys
import tarfile
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import lrurun
from lrurun import console, supervise
from lrurun.__main__ import run as command
from lrurun.tasks import TASKS, folder, listops, retrieval
from tests import formats
from tests.hostile.texts import TEXTS, check
from tests.test_retrieval import PEAK
from tests.test_speech import wav

pytestmark = pytest.mark.slow

SMALL: dict[str, dict[str, Any]] = {
    "sCIFAR": {"train": 10, "test": 2},
    "Text": {"full": {"train": 4, "validation": 2, "test": 2}},
    "SpeechCommands": {"full": {"train": 35, "validation": 1, "test": 1}},
    "Retrieval": {"full": {"train": 2, "validation": 1, "test": 1}},
    "Pathfinder": {"full": {"train": 8, "validation": 1, "test": 1}},
}
"""Whole copies of a few examples, for tasks that would expect as many as were published."""


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Small tasks, prepared in this process: what the real one would end with is an error here. No test waits long."""

    def prepared(data_dir: Path, what: Any, signals: Any, *, given: Path | None = None) -> bool:
        folder.prepare(what.task, what.options, (data_dir / what.data_name).absolute(), given=given)
        return True

    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")
    monkeypatch.setenv("LRURUN_DATA", str(tmp_path / "data"))
    monkeypatch.setattr(supervise, "prepare_data", prepared)
    for task, sizes in SMALL.items():
        for name, value in sizes.items():
            monkeypatch.setattr(TASKS[task], name, value)
    for split, count in {"train": 2, "validation": 1, "test": 1}.items():
        monkeypatch.setitem(listops.SIZES, split, count)
    monkeypatch.setattr(type(TASKS["Retrieval"]), "tolerance", lambda self, split: 0)
    console.set_verbosity(0)

    def late(*_: object) -> None:
        raise AssertionError("it waits, or does not come to an end")

    before = signal.signal(signal.SIGALRM, late)
    signal.alarm(60)
    yield
    signal.alarm(0)
    signal.signal(signal.SIGALRM, before)


def lines(*rows: str) -> bytes:
    return "".join(f"{row}\n" for row in rows).encode()


def files_of(task: str) -> dict[str, bytes]:
    """A small copy as it lies in the published archive."""
    draw = random.Random(0)
    if task == "sCIFAR":
        pixels = np.random.RandomState(0).randint(0, 256, (12, 32, 32, 3)).astype(np.uint8)
        return formats.cifar_archive(formats.cifar(pixels, np.arange(12) % 10, 10))
    if task == "Text":
        names = [f"aclImdb/{part}/{label}" for part in ("train", "test") for label in ("neg", "pos")]
        counts = {name: 3 if "train" in name else 1 for name in names}
        return {f"{name}/{k}_1.txt": f"{name} {k}".encode() for name in names for k in range(counts[name])}
    if task == "SpeechCommands":
        words = [*lrurun.tasks.speech.WORDS, "zero", "yes"]
        clips = [f"{word}/{k}.wav" for k, word in enumerate(words)]
        found = {clip: wav(struct.pack("<9h", *draw.choices(range(99), k=9))) for clip in clips}
        return found | {"validation_list.txt": lines(clips[-1]), "testing_list.txt": lines(clips[-2])}
    if task == "ListOps":
        place = "lra_release/lra_release/listops-1000"
        rows = {"train": 2, "val": 1, "test": 1}
        table = {s: lines("Source\tTarget", *["( ( [MAX 1 ) 2 ) ]\t2"] * n) for s, n in rows.items()}
        return {f"{place}/basic_{split}.tsv": content for split, content in table.items()}
    if task == "Retrieval":
        place = "lra_release/lra_release/tsv_data"
        rows = {"train": 2, "eval": 1, "test": 1}
        return {f"{place}/new_aan_pairs.{s}.tsv": lines(*["1.0\tA\tB\tone\ttwo"] * n) for s, n in rows.items()}
    pixels = np.random.RandomState(0).randint(0, 256, (10, 32, 32)).astype(np.uint8)
    level = formats.pathfinder(pixels, np.arange(10) % 2, {0: 10})
    return {f"lra_release/lra_release/pathfinder32/curv_contour_length_14/{n}": c for n, c in level.items()}


COPIES = {
    "sCIFAR": "cifar-10-batches-bin/data_batch_1.bin",
    "Text": "aclImdb/train/pos/0_1.txt",
    "SpeechCommands": "zero/34.wav",
    "ListOps": "lra_release/lra_release/listops-1000/basic_train.tsv",
    "Retrieval": "lra_release/lra_release/tsv_data/new_aan_pairs.train.tsv",
    "Pathfinder": "lra_release/lra_release/pathfinder32/curv_contour_length_14/imgs/0/sample_3.png",
}
"""Task -> a file of its copy that is read whole or line by line."""


def pack(
    path: Path, *members: tuple[tarfile.TarInfo, bytes], mode: str = "w:gz", form: int = tarfile.PAX_FORMAT
) -> Path:
    """An archive of these members, whatever they say of themselves."""
    with tarfile.open(path, mode, format=form) as archive:
        for member, content in members:
            archive.addfile(member, io.BytesIO(content))
    return path


def member(name: str, content: bytes = b"", kind: bytes = tarfile.REGTYPE, link: str = "") -> tuple[Any, bytes]:
    one = tarfile.TarInfo(name)
    one.size, one.type, one.linkname = len(content), kind, link
    one.devmajor, one.devminor = 1, 5  # /dev/zero
    return one, content


def members_of(task: str) -> list[tuple[Any, bytes]]:
    return [member(name, content) for name, content in files_of(task).items()]


def everything(place: Path) -> dict[str, bytes | None]:
    """What lies in a folder and below, links followed nowhere."""
    found = {}
    for root, folders, files in os.walk(place):
        for name in (*folders, *files):
            path = Path(root) / name
            plain = path.is_file() and not path.is_symlink() and path.stat().st_size < 1 << 20
            found[str(path)] = path.read_bytes() if plain else None
    return found


def prepare(task: str, given: Path, capsys: pytest.CaptureFixture[str]) -> tuple[int, str]:
    """The exit code and what was said of `data prepare`; a failure leaves everything as it was, and no data folder."""
    top = given.parent
    while top.parent.name != "here" and not (top / "here").is_dir():
        top = top.parent
    before = everything(top)
    code = command(["data", "prepare", task, "--from", str(given)])
    out, err = capsys.readouterr()
    check(code, out, err, (task, str(given)))
    assert "secret" not in out + err
    after = everything(top)
    if code:
        assert code == 1
        assert after == before
    else:
        data = str(top / "data")
        assert {name: content for name, content in after.items() if not name.startswith(data)} == before
        assert sorted(path.name for path in (top / "data").iterdir()) == [task]
    return code, out + err


NAMES = {
    "dots": "../../../outside",
    "absolute": "/etc/outside",
    "undecodable": "b\udcff\udc80",
    "long": "x" * 900,
    "very long": "x" * 100_000,
    "deep": "d/" * 20_000,
    **{name: TEXTS[name] for name in ("csi", "link", "clipboard", "c1", "return", "bidi", "separators", "newline")},
    **{name: TEXTS[name] for name in ("markup", "format", "nul")},
}


@pytest.mark.parametrize("task", COPIES)
def test_names_of_members_are_names(task: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Files of a copy under hostile names, with nothing good in them: each is refused and told cleanly."""
    leaf = COPIES[task].removeprefix("lra_release/lra_release/")
    for name, text in NAMES.items():
        files = {f"{text}/{file}": b"\xff\x1b[31m" for file in files_of(task) if leaf != file}
        bad = [member(f"{text}/{leaf}", b"\xff\x1b[31m"), *(member(n, c) for n, c in files.items())]
        for form in (tarfile.PAX_FORMAT, tarfile.GNU_FORMAT):
            code, said = prepare(task, pack(tmp_path / f"{task}.tar.gz", *bad, form=form), capsys)
            assert code == 1
            assert "error: " in said
            assert str(tmp_path / f"{task}.tar.gz") in said, name
            if len(text) > 1000:
                assert "bytes, where" in said


@pytest.mark.parametrize("task", COPIES)
def test_what_is_no_file_is_neither_made_nor_read(
    task: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "secret").write_text("1\t2\tsecret")
    kinds = {
        "link": (tarfile.SYMTYPE, str(tmp_path / "secret")),
        "hard link": (tarfile.LNKTYPE, str(tmp_path / "secret")),
        "device": (tarfile.CHRTYPE, ""),
        "block device": (tarfile.BLKTYPE, ""),
        "pipe": (tarfile.FIFOTYPE, ""),
        "folder": (tarfile.DIRTYPE, ""),
    }
    for name, (kind, link) in kinds.items():
        given = tmp_path / f"{task}.tar.gz"
        pack(given, *(member(file, b"", kind, link) for file in files_of(task)))
        code, said = prepare(task, given, capsys)
        assert code == 1, name
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


@pytest.mark.parametrize("task", ["Text", "SpeechCommands", "Pathfinder", "sCIFAR"])
def test_files_twice_are_counted_or_the_last_counts(
    task: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    twice = [*members_of(task), *members_of(task)]
    code, said = prepare(task, pack(tmp_path / "twice.tar.gz", *twice), capsys)
    assert code == (1 if task in ("Text", "SpeechCommands") else 0), said


def header(name: str, size: int, kind: bytes = tarfile.REGTYPE) -> bytes:
    """512 bytes that say so."""
    one = tarfile.TarInfo(name)
    one.type, one.size = kind, size
    return one.tobuf(tarfile.GNU_FORMAT)


def padded(content: bytes) -> bytes:
    return content + bytes(-len(content) % 512)


def bomb(path: Path, name: str, size: int, before: bytes = b"") -> Path:
    """An archive with `size` zeros under a name: gzip members in a row are one stream, and this one is written once."""
    block = 1 << 25
    assert size % block == 0
    zeros = gzip.compress(bytes(block), 1)
    with path.open("wb") as file:
        file.write(gzip.compress(before + header(name, size)))
        for _ in range(size // block):
            file.write(zeros)
        file.write(gzip.compress(bytes(1024)))
    return path


TOO_MUCH = {
    "sCIFAR": "longer than 33,554,432 bytes",
    "Text": "longer than 1,048,576 bytes",
    "SpeechCommands": "longer than 65,536 bytes",
    "ListOps": ":1: a line of more than 1,048,576 bytes",
    "Retrieval": ":1: a line of more than 16,777,216 bytes",
    "Pathfinder": "longer than 4,194,304 bytes",
}

BOMBS = f"""{PEAK}
from lrurun.errors import LrurunError
from lrurun.tasks import TASKS, folder, listops

listops.SIZES |= dict(train=2, validation=1, test=1)
for name, sizes in {SMALL!r}.items():
    for key, value in sizes.items():
        setattr(TASKS[name], key, value)
task = TASKS[sys.argv[1]]
before = peak()
try:
    folder.prepare(task, task.options(), Path(sys.argv[3]) / "x", given=Path(sys.argv[2]))
except LrurunError as error:
    print(peak() - before, error.message)
"""


@pytest.mark.parametrize("task", COPIES)
def test_two_gigabytes_of_zeros_take_no_memory(task: str, tmp_path: Path) -> None:
    """Where a file of a copy should be; the archive has two megabytes."""
    rest = {name: content for name, content in files_of(task).items() if name != COPIES[task]}
    before = b"".join(header(name, len(content)) + padded(content) for name, content in rest.items())
    size = 1 << 31 if task != "Retrieval" else 1 << 28  # which is copied to disk first
    given = bomb(tmp_path / "bomb.tar.gz", COPIES[task], size, before)
    assert given.stat().st_size < 12 << 20
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


@pytest.mark.parametrize("task", COPIES)
def test_files_longer_than_any_published_are_refused_by_name(
    task: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """In an archive and in a folder."""
    files = files_of(task)
    files[COPIES[task]] = bytes(34 << 20)
    _, said = prepare(task, pack(tmp_path / "given.tar", *(member(n, c) for n, c in files.items()), mode="w"), capsys)
    assert f"error: {tmp_path / 'given.tar'}: {COPIES[task]}" in said
    assert TOO_MUCH[task] in said
    formats.tree(tmp_path / "tree", files)
    _, said = prepare(task, tmp_path / "tree", capsys)
    assert f"error: {tmp_path / 'tree' / COPIES[task]}" in said
    assert TOO_MUCH[task] in said


def test_a_table_that_would_fill_the_disk_is_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(retrieval, "_FILE", 100)
    files = files_of("Retrieval")
    given = pack(tmp_path / "given.tar", *(member(n, c * 100) for n, c in files.items()))
    code, said = prepare("Retrieval", given, capsys)
    assert code == 1
    assert f"{COPIES['Retrieval']}: longer than 100 bytes" in said


def large_png(width: int, height: int, again: bool = False) -> bytes:
    """A PNG whose head names this size; with `again`, one whose second head does."""

    def chunk(name: bytes, content: bytes) -> bytes:
        return struct.pack(">I", len(content)) + name + content + struct.pack(">I", zlib.crc32(name + content))

    head = struct.pack(">IIBBBBB", width, height, 8, 0, 0, 0, 0)
    first = struct.pack(">IIBBBBB", 32, 32, 8, 0, 0, 0, 0)
    heads = chunk(b"IHDR", first) * again + chunk(b"IHDR", head)
    return b"\x89PNG\r\n\x1a\n" + heads + chunk(b"IDAT", zlib.compress(bytes(99_999))) + chunk(b"IEND", b"")


@pytest.mark.parametrize("size", [33, 10_000, 14_000, 100_000, 2**31 - 1])
@pytest.mark.parametrize("again", [False, True])
def test_pictures_that_claim_to_be_large(
    size: int, again: bool, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Nothing is unpacked, and Pillow's own warning is no line of ours."""
    files = files_of("Pathfinder") | {COPIES["Pathfinder"]: large_png(size, size, again)}
    given = pack(tmp_path / "given.tar", *(member(n, c) for n, c in files.items()))
    code, said = prepare("Pathfinder", given, capsys)
    assert code == 1
    assert f"error: {given}: {COPIES['Pathfinder']}: " in said
    assert "expected 32 x 32 pixels" in said or "not a PNG image" in said
    assert "warning" not in said.lower()


LIST = "lra_release/lra_release/pathfinder32/curv_contour_length_14/metadata/0.npy"


def npy(shape: str, descr: str, content: bytes = b"", version: bytes = b"\1\0") -> bytes:
    head = f"{{'descr': {descr}, 'fortran_order': False, 'shape': {shape}, }}\n".encode()
    length = struct.pack("<H" if version == b"\1\0" else "<I", len(head))
    return b"\x93NUMPY" + version + length + head + content


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (lines("../../../outside x.png 0 1"), "expected an image as imgs/0 sample_0.png"),
        (lines("/etc passwd 0 1"), "expected an image as imgs/0 sample_0.png"),
        (lines("imgs/0 ../../x.png 0 1"), "expected an image as imgs/0 sample_0.png"),
        (lines("imgs/0 a\x00b.png 0 1"), "expected an image as imgs/0 sample_0.png"),
        (lines("imgs/0 \x1b[31mred\x07.png 0 1"), "expected an image as imgs/0 sample_0.png"),
        (lines("imgs/0 x.png 0 " + "1" * 100_000), "expected a label of 0 or 1"),
        (lines("x" * 5_000_000), "longer than 4,194,304 bytes"),
        (b"\xff\xfe", "neither text nor a NumPy array"),
        (npy("(10, 4)", "'<U9'"), "not an array of texts"),
        (npy("(1000000000000, 4)", "'<U9'"), "not an array of texts"),
        (npy("(1000000000, 4)", "'<U0'"), "not an array of texts"),
        (npy("(" + "9" * 5000 + ",)", "'<U9'"), "not an array of texts"),
        (npy("(-1,)", "'<U9'", bytes(36)), "not an array of texts"),
        (npy("(1,)", "'|O'", b"cos\nsystem\n(S'touch owned'\ntR."), "it holds Python objects"),
        (npy("(" * 5000, "'<U9'"), "not an array of texts"),
        (npy("(1,)", "[('a', '|O')]"), "not an array of texts"),
        (npy("(1,)", "'x" + "\x1b[31m'"), "not an array of texts"),
        (npy("(1,)", "'<U1'", b"\xff\xff\xff\xff"), "not an array of texts"),
        (npy("(1,)", "'<f8'", bytes(8)), "expected an array of texts"),
        (npy("(1,)", "'<U9'", version=b"\7\0"), "not an array of texts"),
        (b"\x93NUMPY", "not an array of texts"),
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
        ("ListOps", [b"Source\tTarget", b"( " * 400_000 + b"\t1"], "expected 1 to 2000 tokens, found 0"),
        ("ListOps", [b"Source\tTarget", b"( 1 )\x00\t1"], "unknown token"),
        ("ListOps", [b"Source\tTarget", b"\x1b]0;owned\x07\t1"], "unknown token"),
        ("ListOps", [b"Source\tTarget", b"\xff\t1"], "not UTF-8"),
        ("ListOps", [b"Source\tTarget", b"1\t" + b"9" * 100_000], "expected a target of 0 to 9"),
        ("ListOps", [b"Source\tTarget", b"\t" * 100_000], "expected 2 columns, found 100001"),
        ("ListOps", [b"\x00" * 100_000], "expected the header"),
        ("Retrieval", [b"\t" * 1_000_000], "expected 5 columns, found 1000001"),
        ("Retrieval", [b"\x1b[31m" * 9 + b"\tA\tB\tx\ty"], "expected a label of 0.0 or 1.0"),
        ("Retrieval", [b"1.0\tA\tB\t\xed\xa0\x80\ty"], "not UTF-8"),
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


@pytest.mark.parametrize(
    "clip",
    [
        wav(b"", size=2**32 - 1),
        wav(bytes(20), size=2**32 - 2),
        wav(bytes(20), size=0),
        wav(bytes(20), channels=9000),
        wav(bytes(20), rate=0, bits=0),
        wav(bytes(20))[:30],
        b"RIFF\xff\xff\xff\xffWAVE" + b"fmt \x00\x00\x00\x00" * 5000,
        b"RIFF\xff\xff\xff\xffWAVE" + b"junk\xff\xff\xff\xff" * 9,
        b"RIFF" + bytes(60_000),
        b"",
    ],
)
def test_sounds_whose_heads_lie(clip: bytes, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    files = files_of("SpeechCommands") | {COPIES["SpeechCommands"]: clip}
    given = pack(tmp_path / "given.tar", *(member(n, c) for n, c in files.items()))
    code, said = prepare("SpeechCommands", given, capsys)
    assert code == 1
    assert f"error: {given}: {COPIES['SpeechCommands']}: " in said


def test_lists_of_clips_name_nothing_outside(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for text in ("../../etc/passwd", "/etc/passwd", "\x1b[31mred", "\x00"):
        files = files_of("SpeechCommands") | {"testing_list.txt": lines(text)}
        code, said = prepare("SpeechCommands", formats.tree(tmp_path / "tree", files), capsys)
        assert code == 1
        assert "which is not there" in said


@pytest.mark.parametrize("task", COPIES)
@pytest.mark.parametrize("kind", ["pipe", "endless", "loop", "socket", "folder"])
def test_what_is_no_file_in_a_folder_is_not_waited_for(
    task: str, kind: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    formats.tree(tmp_path / "tree", files_of(task))
    path = tmp_path / "tree" / COPIES[task]
    path.unlink()
    if kind == "pipe":
        os.mkfifo(path)
    elif kind == "endless":
        path.symlink_to("/dev/zero")
    elif kind == "loop":
        path.symlink_to(path)
    elif kind == "folder":
        path.mkdir()
    else:
        import socket

        with socket.socket(socket.AF_UNIX) as one:
            os.chdir(path.parent)
            one.bind(path.name)
    assert prepare(task, tmp_path / "tree", capsys)[0] == 1


@pytest.mark.parametrize("task", COPIES)
def test_links_to_files_are_files(task: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A copy may lie elsewhere: whoever gives the folder has put the link there."""
    formats.tree(tmp_path / "tree", files_of(task))
    path = tmp_path / "tree" / COPIES[task]
    (tmp_path / "elsewhere").mkdir()
    path.rename(tmp_path / "elsewhere/file")
    path.symlink_to(tmp_path / "elsewhere/file")
    assert prepare(task, tmp_path / "tree", capsys)[0] == 0


LYING = {
    "petabytes, passed over": (header("beside", 10**15), "cut off"),
    "petabytes, of the data": (header(COPIES["Text"], 10**15), "longer than 1,048,576 bytes"),
    "a long name of gigabytes": (header("././@LongLink", 1 << 33, tarfile.GNUTYPE_LONGNAME), "a header of"),
    "a long link of gigabytes": (header("././@LongLink", 1 << 33, tarfile.GNUTYPE_LONGLINK), "a header of"),
    "settings of gigabytes": (header("pax", 1 << 33, tarfile.XHDTYPE), "a header of"),
    "settings for all of gigabytes": (header("pax", 1 << 33, tarfile.XGLTYPE), "a header of"),
    "sparse": (header("hole", 512, tarfile.GNUTYPE_SPARSE), "is sparse"),
}


@pytest.mark.parametrize("zipped", [False, True])
@pytest.mark.parametrize("name", LYING)
def test_headers_that_lie(name: str, zipped: bool, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    begins, message = LYING[name]
    content = begins + bytes(1 << 21)
    given = tmp_path / "given.tar.gz"
    given.write_bytes(gzip.compress(content, 1) if zipped else content)
    code, said = prepare("Text", given, capsys)
    assert code == 1
    assert f"error: {given}" in said
    assert message in said


def test_modules_of_the_working_directory_are_not_run(tmp_path: Path) -> None:
    """By a worker, which is a process of its own: where a ladder is typed may lie anything."""
    (tmp_path / "here/tarfile.py").write_text("raise SystemExit('run')")
    (tmp_path / "here/lrurun").mkdir()
    (tmp_path / "here/lrurun/__init__.py").write_text("raise SystemExit('run')")
    words = ["ladder", "sDigits", "--profile", "smoke", "--rung", "tanh-rnn", "--set", "train.steps=2"]
    env = os.environ | {"PYTHONPATH": str(Path(lrurun.__file__).parent.parent)}
    done = subprocess.run([sys.executable, "-P", "-m", "lrurun", *words], env=env, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
