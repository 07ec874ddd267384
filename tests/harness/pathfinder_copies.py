"""Small copies of Pathfinder in every released layout, and what tests ask of them."""

from __future__ import annotations

import hashlib
import os
from pathlib import Path

import numpy as np
import pytest

from lrurun.data import store
from lrurun.data.generated.pathfinder import Pathfinder, PathfinderOptions
from lrurun.data.task import SPLITS
from lrurun.errors import LrurunError
from tests.data.test_images import torch_order
from tests.harness import formats

TASK = Pathfinder(train=16, validation=2)
TOTAL = 20
RANDOM = np.random.RandomState(0)
PIXELS = RANDOM.randint(0, 256, (TOTAL, 32, 32)).astype(np.uint8)
LABELS = RANDOM.randint(0, 2, TOTAL)
LISTS = {2: 13, 10: 7}
"""In the order of numbers, which is not that of names."""
LEVEL = "curv_contour_length_14"
HINT = "give an undamaged copy, or omit --from to generate the data"
COPY = "the copy is incomplete or damaged: fetch it again"

KEYS = [f"imgs/{number}_sample_{line}.png_{line + 1}" for number, count in LISTS.items() for line in range(count)]
"""What Long Range Arena's TFDS builder calls the images."""
HASHED = sorted(range(TOTAL), key=lambda row: int(hashlib.md5(f"hard{KEYS[row]}".encode()).hexdigest(), 16))
ORDERS = {"s4": torch_order(TOTAL, 42), "lra": HASHED}


def level(arrays: bool = False, shift: int = 0) -> dict[str, bytes]:
    return formats.pathfinder(PIXELS + np.uint8(shift), LABELS, LISTS, arrays=arrays)


def below(prefix: str, files: dict[str, bytes]) -> dict[str, bytes]:
    return {f"{prefix}/{name}": content for name, content in files.items()}


def release(place: str, **more) -> dict[str, bytes]:
    """A release with its other levels and tasks."""
    other = below(f"{place}/pathfinder64/{LEVEL}", {"metadata/0.npy": b"x", "imgs/0/sample_0.png": b""})
    easy = below(f"{place}/pathfinder32/curv_baseline", {"metadata/0.npy": b"x", "imgs/0/sample_172.png": b""})
    return other | easy | below(f"{place}/pathfinder32/{LEVEL}", level(**more))


def tree(place: Path, files: dict[str, bytes], given: str = "") -> Path:
    return formats.tree(place, files) / given


def tfds_examples() -> list[dict[str, bytes | int]]:
    return [{"image": formats.png(PIXELS[row]), "label": int(LABELS[row])} for row in HASHED]


def tfrecord(place: Path, examples=None, split: str = "hard", size: int = 32) -> Path:
    name = f"pathfinder{size}"
    splits = {split: tfds_examples() if examples is None else examples}
    return formats.tfds_tfrecord(place / f"{name}/1.0.0", name, "1.0.0", formats.PATHFINDER_FEATURES, splits, shards=2)


def array_record(place: Path) -> Path:
    from tensorflow_datasets import features

    described = {"image": features.Image(), "label": features.ClassLabel(num_classes=2)}
    examples = [
        (key, {"image": formats.png(pixels), "label": int(label)})
        for key, pixels, label in zip(KEYS, PIXELS, LABELS, strict=True)
    ]
    return formats.tfds_array_record(place, "pathfinder32", described, {"hard": examples})


RELEASES = {
    "level": lambda place: tree(place / LEVEL, level()),
    "pathfinder32": lambda place: tree(place, release("."), "pathfinder32"),
    "pathfinder32, arrays": lambda place: tree(place, release(".", arrays=True), "pathfinder32"),
    "folder of pathfinder32": lambda place: tree(place, release(".")),
    "inner lra_release": lambda place: tree(place, release("lra_release/lra_release"), "lra_release/lra_release"),
    "outer lra_release": lambda place: tree(place, release("lra_release/lra_release"), "lra_release"),
    "folder of lra_release": lambda place: tree(place, release("lra_release/lra_release")),
    "folder of one lra_release": lambda place: tree(place, release("lra_release", arrays=True)),
    "archive": lambda place: formats.tar(place / "any.tar", release("lra_release/lra_release"), "w"),
    "folder of the archive": lambda place: formats.tar(place / "lra_release.gz", release("./lra_release")).parent,
}
PREPARED = {"tfrecord": tfrecord, "array_record": lambda place: array_record(place).parent.parent}


def prepared(where: Path, given: Path | None, task=TASK, options=None):
    options = options or task.options()
    table = store.prepare(task, options, where, from_path=given)
    assert sorted(os.listdir(where.parent)) == [where.name]  # nothing beside it is left
    return store.load(task, options, where), table


def refused(tmp_path: Path, given: Path, options=None) -> LrurunError:
    """The error; nothing is left, and the same place can be filled afterwards."""
    where = tmp_path / "data/Pathfinder"
    with pytest.raises(LrurunError) as caught:
        store.prepare(TASK, options or PathfinderOptions(), where, from_path=given)
    assert not list(where.parent.glob("*"))
    assert "\n" not in caught.value.message
    data, _ = prepared(where, RELEASES["level"](tmp_path / "good"))
    assert len(data.train.labels) == 16
    return caught.value


def same(data, order: list[int]) -> None:
    ends = {"train": order[:16], "validation": order[16:18], "test": order[18:]}
    for split in SPLITS:
        loaded = getattr(data, split)
        np.testing.assert_array_equal(loaded.inputs, PIXELS[ends[split]].reshape(-1, 1024))
        np.testing.assert_array_equal(loaded.labels, LABELS[ends[split]])
        assert loaded.inputs.dtype == loaded.labels.dtype == np.uint8
