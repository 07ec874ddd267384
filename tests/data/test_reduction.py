"""Profiles with fewer or smaller examples: made from prepared data, with the bits that a copy would give."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from msgspec.structs import asdict, replace

from lrurun.data import task_data
from lrurun.data.arrays import Writer
from lrurun.data.downloaded.images import CifarOptions, Image, ImageOptions, SCifar
from lrurun.data.downloaded.np_cifar import NpCifar, NpCifarOptions
from lrurun.data.downloaded.retrieval import Retrieval, RetrievalOptions
from lrurun.data.downloaded.speech import SpeechCommands, SpeechOptions
from lrurun.data.downloaded.text import Text, TextOptions
from lrurun.data.reduction import first_examples
from lrurun.data.task import SPLITS, Options, Progress, Reduction, Source, Spec, Task, limited
from lrurun.errors import LrurunError
from tests.data import test_characters, test_speech
from tests.harness import formats

RANDOM = np.random.RandomState(0)
CIFAR = formats.cifar(RANDOM.randint(0, 256, (60, 32, 32, 3)).astype(np.uint8), RANDOM.randint(0, 10, 60), 50)
FEWER = {"train": 20, "validation": 3, "test": 7}

COPIES: dict[str, tuple[Task, Callable[[Path], Path]]] = {
    "sCIFAR": (SCifar(50, 10), lambda place: formats.tree(place, CIFAR)),
    "Image": (Image(50, 10), lambda place: formats.tree(place, CIFAR)),
    "npCIFAR": (NpCifar(50, 10), lambda place: formats.tree(place, CIFAR)),
    "Text": (Text(test_characters.TEXT.full), lambda place: formats.tree(place, test_characters.REVIEWS)),
    "Retrieval": (Retrieval(test_characters.FULL), lambda place: formats.tree(place, test_characters.tables())),
    "SpeechCommands": (
        SpeechCommands(test_speech.FULL),
        lambda place: formats.tree(place, test_speech.CONTENTS),
    ),
}

SMALLER: list[Any] = [
    ("sCIFAR", CifarOptions(), [CifarOptions(**FEWER), CifarOptions(pool=4, train=20), CifarOptions(pool=2)]),
    ("sCIFAR", CifarOptions(pool=2, train=40), [CifarOptions(pool=2, train=40, test=2)]),
    ("Image", ImageOptions(gray="pil"), [ImageOptions(gray="pil", pool=2, **FEWER)]),
    ("npCIFAR", NpCifarOptions(length=40, seed=3), [NpCifarOptions(length=33, seed=3, pool=2, **FEWER)]),
    ("Text", TextOptions(max_length=60, min_frequency=4), [
        TextOptions(max_length=60, min_frequency=4, **FEWER),
        TextOptions(max_length=20, min_frequency=4, **FEWER),
        TextOptions(max_length=60, min_frequency=30),
        TextOptions(max_length=2, min_frequency=9, train=5),
    ]),
    ("Retrieval", RetrievalOptions(max_length=40), [
        RetrievalOptions(max_length=40, **FEWER),
        RetrievalOptions(max_length=10, min_frequency=20, **FEWER),
    ]),
    ("SpeechCommands", SpeechOptions(), [
        SpeechOptions(stride=250, **FEWER),
        SpeechOptions(standardize=True, stride=7, train=40),
    ]),
]  # fmt: skip

OTHERS: list[tuple[str, Options, Options]] = [
    ("sCIFAR", CifarOptions(pool=2), CifarOptions()),
    ("sCIFAR", CifarOptions(pool=2), CifarOptions(pool=4)),
    ("sCIFAR", CifarOptions(train=20), CifarOptions(train=21)),
    ("sCIFAR", CifarOptions(test=5), CifarOptions()),
    ("sCIFAR", CifarOptions(), CifarOptions(split="lra")),
    ("Image", ImageOptions(), ImageOptions(gray="pil")),
    ("npCIFAR", NpCifarOptions(), NpCifarOptions(seed=1)),
    ("Text", TextOptions(max_length=9), TextOptions(max_length=10)),
    ("Text", TextOptions(), TextOptions(min_frequency=2)),
    ("Text", TextOptions(validation=2), TextOptions(max_length=9, validation=2)),
    ("Retrieval", RetrievalOptions(train=9), RetrievalOptions(max_length=9, train=9)),
    ("SpeechCommands", SpeechOptions(standardize=True), SpeechOptions(standardize=True, train=9)),
    ("SpeechCommands", SpeechOptions(stride=2), SpeechOptions(stride=4)),
]
"""Prepared data, and data that do not follow from them."""


def contents(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.glob("*.npy")}


@pytest.fixture(autouse=True)
def nothing_to_download(monkeypatch: pytest.MonkeyPatch) -> None:
    for task, _ in COPIES.values():
        monkeypatch.setattr(task, "remotes", ())


@pytest.mark.parametrize(("name", "full", "smaller"), SMALLER)
def test_smaller_data_have_the_bits_that_the_copy_would_give(
    tmp_path: Path, name: str, full: Options, smaller: list[Options]
) -> None:
    task, copy = COPIES[name]
    given, there = copy(tmp_path / "given"), tmp_path / "data" / name
    source = task_data.prepare(task, full, there, from_path=given).source
    for number, options in enumerate(smaller):
        made = task_data.prepare(task, options, there.with_name(f"{name}-smoke"))
        direct = task_data.prepare(task, options, tmp_path / f"{number}", from_path=given)
        assert contents(there.with_name(f"{name}-smoke")) == contents(tmp_path / f"{number}")
        assert made == replace(direct, source=f"{source}, by way of {there}")
        assert asdict(made.counts) == task.sizes(options)
        shutil.rmtree(there.with_name(f"{name}-smoke"))


@pytest.mark.parametrize(("name", "full", "other"), OTHERS)
def test_other_data_need_a_copy(tmp_path: Path, name: str, full: Options, other: Options) -> None:
    assert COPIES[name][0].reduction(other, full) is None
    assert COPIES[name][0].reduction(full, full) is not None


def test_data_of_another_profile_are_used_unless_damaged_or_outdated(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    task, copy = COPIES["sCIFAR"]
    laptop, where, options = tmp_path / "sCIFAR-laptop", tmp_path / "sCIFAR-smoke", CifarOptions(train=5)
    with pytest.raises(LrurunError, match="neither be downloaded nor generated"):
        task_data.prepare(task, options, where)
    task_data.prepare(task, CifarOptions(train=20), laptop, from_path=copy(tmp_path / "given"))
    assert task_data.prepare(task, options, where).source.endswith(f", by way of {laptop}")
    assert task_data.prepare(task, options, where, force=True).counts.train == 5
    said: list[str] = []
    with monkeypatch.context() as patch:
        patch.setattr(task, "version", "2")
        with pytest.raises(LrurunError, match="neither be downloaded nor generated"):
            task_data.prepare(task, options, tmp_path / "sCIFAR-new", progress=lambda what, *_: said.append(what))
    assert said[0].startswith(f"{laptop} is not used: {laptop}: expected sCIFAR version 2, found sCIFAR version 1")
    shutil.rmtree(where)
    content = bytearray((laptop / "train-inputs.npy").read_bytes())
    content[-1] ^= 1
    (laptop / "train-inputs.npy").write_bytes(content)
    with pytest.raises(LrurunError, match=rf"{laptop}/train-inputs\.npy: its digest is not that in the manifest"):
        task_data.prepare(task, options, where)
    assert not where.exists()


def test_a_note_on_the_copy_stays_with_smaller_data(tmp_path: Path) -> None:
    _, copy = COPIES["Retrieval"]
    task = Retrieval(test_characters.FULL | {"test": 22})
    task.tolerance = lambda split: 1  # type: ignore[method-assign]
    task.remotes = ()
    given = copy(tmp_path / "given")
    note = "test has 21 examples, the published data have 22"
    full = task_data.prepare(task, RetrievalOptions(max_length=40), tmp_path / "Retrieval", from_path=given)
    assert full.notes == [note]
    few = task_data.prepare(task, RetrievalOptions(max_length=40, train=9), tmp_path / "Retrieval-few")
    assert few.notes == [note]
    fewer = task_data.prepare(task, RetrievalOptions(max_length=40, test=9), tmp_path / "Retrieval-fewer")
    assert not fewer.notes


class Speakers(Task):
    """A task whose test items are of speakers."""

    name, title, version, classes = "Speakers", "who speaks?", "1", 2

    def __init__(self, groups: list[int]) -> None:
        self.groups = np.array(groups)

    def sizes(self, options: Options) -> dict[str, int]:
        return limited(options, dict.fromkeys(SPLITS, 6))

    def spec(self, options: Options, vocabulary: Any = ()) -> Spec:
        return Spec(name=self.name, kind="features", features=1, classes=2, length=3)

    def offline(self, options: Options) -> Source:
        def fill(writer: Writer, progress: Progress) -> None:
            for split in SPLITS:
                writer.save(split, "inputs", np.arange(18, dtype=np.uint8).reshape(6, 3))
                writer.save(split, "labels", np.arange(6, dtype=np.uint8) % 2)
            writer.save("test", "groups", self.groups)

        return Source(kind="generated", text="numbers", fill=fill)

    def reduction(self, options: Options, full: Options) -> Reduction | None:
        return first_examples(options) if full == Options() else None


def test_groups_of_test_items_are_data_of_a_task(tmp_path: Path) -> None:
    task, fewer = Speakers([4, 4, 0, 9, 9, 9]), Options(test=4)
    task_data.prepare(task, Options(), tmp_path / "Speakers")
    task_data.prepare(task, fewer, tmp_path / "Speakers-smoke")
    for folder, options, count in (("Speakers", Options(), 6), ("Speakers-smoke", fewer, 4)):
        data = task_data.load(task, options, tmp_path / folder)
        assert data.test.groups is not None
        assert data.test.groups.tolist() == [4, 4, 0, 9, 9, 9][:count]
        assert (data.train.groups, data.validation.groups) == (None, None)
    with pytest.raises(LrurunError, match="test-groups: expected one for each of 6 labels, found 5"):
        task_data.prepare(Speakers([0, 0, 0, 1, 1]), Options(), tmp_path / "other" / "Speakers")
    with pytest.raises(LrurunError, match=r"test-groups\[1\]: expected numbers from 0 to 2147483647, found -1"):
        task_data.prepare(Speakers([0, -1, 0, 1, 1, 2]), Options(), tmp_path / "other" / "Speakers")
    assert not (tmp_path / "other").exists()
