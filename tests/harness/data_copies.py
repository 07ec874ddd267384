"""Small copies of published data in every form, and `data prepare` of them, which must leave nothing behind."""

from __future__ import annotations

import hashlib
import io
import os
import random
import signal
import struct
import tarfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import lrurun
from lrurun.data import task_data
from lrurun.data.synthetic import listops
from lrurun.data.tasks import TASKS
from lrurun.runner import preparation
from tests.harness import formats
from tests.harness.hostile_texts import check
from tests.harness.machine import Machine

SMALL: dict[str, dict[str, Any]] = {
    "sCIFAR": {"train": 10, "test": 2},
    "Text": {"full": {"train": 4, "validation": 2, "test": 2}},
    "SpeechCommands": {"full": {35: {"train": 35, "validation": 1, "test": 1}}},
    "Retrieval": {"full": {"train": 2, "validation": 1, "test": 1}},
    "Pathfinder": {"full": {"train": 8, "validation": 1, "test": 1}},
    "PG19": {"published": {"train": 2, "validation": 1, "test": 1}},
}
"""Whole copies of a few examples, for tasks that would expect as many as were published."""


@pytest.fixture
def here(machine: Machine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Machine]:
    """Small tasks, prepared in this process: what the real one would end with is an error here. No test waits long."""

    def prepared(data_dir: Path, choice: Any, signals: Any, view: Any, *, force: bool = False, **given: Any) -> bool:
        task_data.prepare(choice.task, choice.options, (data_dir / choice.data_name).absolute(), force=force, **given)
        return True

    machine.env["LRURUN_DATA"] = str(tmp_path / "data")
    monkeypatch.setattr(preparation, "prepare_data", prepared)
    for task, sizes in SMALL.items():
        for name, value in sizes.items():
            monkeypatch.setattr(TASKS[task], name, value)
    for split, count in {"train": 2, "validation": 1, "test": 1}.items():
        monkeypatch.setitem(listops.SIZES, split, count)
    monkeypatch.setattr(type(TASKS["Retrieval"]), "tolerance", lambda self, split: 0)

    def late(*_: object) -> None:
        raise AssertionError("it waits, or does not come to an end")

    before = signal.signal(signal.SIGALRM, late)
    signal.alarm(60)
    yield machine
    signal.alarm(0)
    signal.signal(signal.SIGALRM, before)


def lines(*rows: str) -> bytes:
    return "".join(f"{row}\n" for row in rows).encode()


def task_of(copy: str) -> str:
    """The task of a key of `COPIES`."""
    return copy.partition(" ")[0]


def files_of(task: str) -> dict[str, bytes]:
    """A small copy as it lies in the published archive, of a key of `COPIES`."""
    draw = random.Random(0)
    if task.startswith("sCIFAR"):
        pixels = np.random.RandomState(0).randint(0, 256, (12, 32, 32, 3)).astype(np.uint8)
        batches = formats.cifar(pixels, np.arange(12) % 10, 10)
        if task.endswith("pickled"):
            return formats.cifar_pickled_archive(formats.cifar_pickled(batches))
        return formats.cifar_archive(batches)
    if task == "Text":
        names = [f"aclImdb/{part}/{label}" for part in ("train", "test") for label in ("neg", "pos")]
        counts = {name: 3 if "train" in name else 1 for name in names}
        return {f"{name}/{k}_1.txt": f"{name} {k}".encode() for name in names for k in range(counts[name])}
    if task == "SpeechCommands":
        words = [*lrurun.data.downloaded.speech.WORDS, "zero", "yes"]
        clips = [f"{word}/{k}.wav" for k, word in enumerate(words)]
        found = {clip: formats.wav(struct.pack("<9h", *draw.choices(range(99), k=9))) for clip in clips}
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
    if task == "PG19":
        books = {"train/1": 3000, "train/2": 3000, "validation/3": 5000, "test/4": 5000}
        return {f"{name}.txt": "".join(draw.choices("abcé ", k=size)).encode() for name, size in books.items()}
    pixels = np.random.RandomState(0).randint(0, 256, (10, 32, 32)).astype(np.uint8)
    level = formats.pathfinder(pixels, np.arange(10) % 2, {0: 10})
    return {f"lra_release/lra_release/pathfinder32/curv_contour_length_14/{n}": c for n, c in level.items()}


def tfds_of(task: str, place: Path) -> Path | None:
    """The same data as TFDS prepares them; None for a task that does not read such folders."""
    files = files_of(task)
    label: dict[str, Any] = {"text": formats.text_feature(), "label": formats.class_feature(2)}
    if task == "sCIFAR":
        features, name = formats.CIFAR_FEATURES, "cifar10"
        batches = b"".join(files[f"cifar-10-batches-bin/{file}"] for file in formats.CIFAR_FILES)
        records = np.frombuffer(batches, np.uint8).reshape(12, 3073)
        images = records[:, 1:].reshape(12, 3, 32, 32).transpose(0, 2, 3, 1)
        splits = {
            split: [
                {"id": f"{split}_{k:05d}".encode(), "image": formats.png(images[row]), "label": int(records[row, 0])}
                for k, row in enumerate(rows)
            ]
            for split, rows in {"train": range(10), "test": range(10, 12)}.items()
        }
    elif task == "Text":
        features, name = label, "imdb_reviews"
        splits = {
            part: [
                {"text": content, "label": int("/pos/" in file)}
                for file, content in files.items()
                if f"/{part}/" in file
            ]
            for part in ("train", "test")
        }
    elif task == "Pathfinder":
        features, name = formats.PATHFINDER_FEATURES, "pathfinder32"
        images = sorted((file for file in files if file.endswith(".png")), key=_key_of_pathfinder)
        number = {file: int(file.removesuffix(".png").rpartition("_")[2]) for file in images}
        splits = {"hard": [{"image": files[file], "label": number[file] % 2} for file in images]}
    elif task == "PG19":
        features, name = {"book_text": formats.text_feature()}, "pg19"
        splits = {
            split: [{"book_text": content} for file, content in files.items() if file.startswith(split)]
            for split in ("train", "validation", "test")
        }
    else:
        return None
    more = {"configName": "plain_text"} if task == "Text" else {}
    return formats.tfds_tfrecord(place / name / "1.0.0", name, "1.0.0", features, splits, **more)


def _key_of_pathfinder(file: str) -> bytes:
    """Where TFDS has an image."""
    line = int(file.removesuffix(".png").rpartition("_")[2])
    return hashlib.md5(f"hardimgs/0_sample_{line}.png_{line + 1}".encode()).digest()


COPIES = {
    "sCIFAR": "cifar-10-batches-bin/data_batch_1.bin",
    "sCIFAR pickled": "cifar-10-batches-py/data_batch_1",
    "Text": "aclImdb/train/pos/0_1.txt",
    "SpeechCommands": "zero/34.wav",
    "ListOps": "lra_release/lra_release/listops-1000/basic_train.tsv",
    "Retrieval": "lra_release/lra_release/tsv_data/new_aan_pairs.train.tsv",
    "Pathfinder": "lra_release/lra_release/pathfinder32/curv_contour_length_14/imgs/0/sample_3.png",
    "PG19": "train/1.txt",
}
"""Task, and a form of its copy if there are several -> a file of the copy that is read whole or line by line."""


def pack(path: Path, *members: tuple[tarfile.TarInfo, bytes], mode: str = "w:gz") -> Path:
    """An archive of these members."""
    with tarfile.open(path, mode) as archive:
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


def prepare(machine: Machine, task: str, given: Path) -> tuple[int, str]:
    """The exit code and what was said of `data prepare`; a failure leaves everything as it was, and no data folder."""
    top = machine.folder.parent
    before = everything(top)
    task = task_of(task)
    done = machine.run("data", "prepare", task, "--from", str(given), code=None)
    check(done.returncode, done.stdout, done.stderr, (task, str(given)))
    assert "secret" not in done.stdout + done.stderr
    after, data = everything(top), str(top / "data")
    if done.returncode:
        assert done.returncode == 1
        assert after == before
    else:
        assert {name: content for name, content in after.items() if not name.startswith(data)} == before
        assert sorted(path.name for path in (top / "data").iterdir()) == [task]
    return done.returncode, done.stdout + done.stderr
