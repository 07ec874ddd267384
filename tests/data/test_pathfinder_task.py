"""Pathfinder and Path-X: released images at their place from every layout, generated ones, damaged copies by name."""

from __future__ import annotations

import hashlib
import io
import os
import tracemalloc
from typing import NamedTuple

import numpy as np
import pytest
from msgspec.structs import asdict

from lrurun import machine as this_machine
from lrurun.data import task_data
from lrurun.data.splits import torch_permutation
from lrurun.data.synthetic import pathfinder_generator
from lrurun.data.synthetic.pathfinder import Pathfinder, PathfinderOptions, PathX
from lrurun.data.task import SPLITS
from lrurun.errors import LrurunError
from tests.harness import formats

TASK = Pathfinder(train=16, validation=2)
RANDOM = np.random.RandomState(0)
PIXELS = RANDOM.randint(0, 256, (20, 32, 32)).astype(np.uint8)
LABELS = RANDOM.randint(0, 2, 20)
LISTS = {2: 13, 10: 7}
"""In the order of numbers, which is not that of names."""
LEVEL = "curv_contour_length_14"
HINT = "give an undamaged copy, or omit --from to generate the data"
DAMAGED = "the copy is incomplete or damaged: fetch it again"

KEYS = [f"imgs/{number}_sample_{line}.png_{line + 1}" for number, count in LISTS.items() for line in range(count)]
"""What Long Range Arena's TFDS builder calls the images."""
HASHED = sorted(range(20), key=lambda row: int(hashlib.md5(f"hard{KEYS[row]}".encode()).hexdigest(), 16))
ORDERS = {"s4": torch_permutation(20, 42).tolist(), "lra": HASHED}  # compared with PyTorch in test_images.py


def below(prefix, files):
    return {f"{prefix}/{name}": content for name, content in files.items()}


def release(place, shift=0, arrays=False):
    """A release with its other levels and tasks."""
    level = formats.pathfinder(PIXELS + np.uint8(shift), LABELS, LISTS, arrays=arrays)
    other = below(f"{place}/pathfinder64/{LEVEL}", {"metadata/0.npy": b"x", "imgs/0/sample_0.png": b""})
    easy = below(f"{place}/pathfinder32/curv_baseline", {"metadata/0.npy": b"x", "imgs/0/sample_172.png": b""})
    return other | easy | below(f"{place}/pathfinder32/{LEVEL}", level)


def examples():
    return [{"image": formats.png(PIXELS[row]), "label": int(LABELS[row])} for row in HASHED]


def tfrecord(place, rows=None, split="hard"):
    splits = {split: examples() if rows is None else rows}
    return formats.tfds_tfrecord(
        place / "pathfinder32/1.0.0", "pathfinder32", "1.0.0", formats.PATHFINDER_FEATURES, splits, shards=2
    )


def array_record(place):
    from tensorflow_datasets import features

    described = {"image": features.Image(), "label": features.ClassLabel(num_classes=2)}
    rows = zip(KEYS, PIXELS, LABELS, strict=True)
    found = [(key, {"image": formats.png(pixels), "label": int(label)}) for key, pixels, label in rows]
    return formats.tfds_array_record(place, "pathfinder32", described, {"hard": found}).parent.parent


RELEASES = {
    "level": lambda place: formats.tree(place, release(".")) / f"pathfinder32/{LEVEL}",
    "pathfinder32, arrays": lambda place: formats.tree(place, release(".", arrays=True)) / "pathfinder32",
    "archive": lambda place: formats.tar(place / "any.tar", release("lra_release/lra_release"), "w"),
    "folder of the archive": lambda place: formats.tar(place / "lra_release.gz", release("./lra_release")).parent,
}
TFDS = {"tfrecord": tfrecord, "array_record": array_record}


def same(data, order):
    ends = {"train": order[:16], "validation": order[16:18], "test": order[18:]}
    for split in SPLITS:
        loaded = getattr(data, split)
        np.testing.assert_array_equal(loaded.inputs, PIXELS[ends[split]].reshape(-1, 1024))
        np.testing.assert_array_equal(loaded.labels, LABELS[ends[split]])
        assert loaded.inputs.dtype == loaded.labels.dtype == np.uint8


@pytest.fixture
def given(tmp_path):
    """A level of the release, to be harmed."""
    return RELEASES["level"](tmp_path / "given")


@pytest.mark.parametrize("copy", RELEASES | TFDS)
def test_every_copy_gives_every_image_at_its_place(tmp_path, copy):
    given = (RELEASES | TFDS)[copy](tmp_path / "given")
    for split, order in ORDERS.items():
        data, table = formats.prepared(TASK, tmp_path / split, given, PathfinderOptions(split=split))
        hashed_only = copy in TFDS and split == "s4"
        same(data, [HASHED[row] for row in order] if hashed_only else order)
        assert len(table.notes) == hashed_only
        assert all(note.endswith("the split is random like that of S4, but not the same") for note in table.notes)
        if copy in TFDS:
            assert table.source == f"TFDS pathfinder32 1.0.0, {copy}, {tmp_path}/given/pathfinder32/1.0.0"
        else:
            assert table.source.startswith(f"the {'archive' if 'archive' in copy else 'folder'} {tmp_path}/given")
        best = int(data.train.labels.sum() > 8)
        assert data.baselines == {"majority class": float(np.mean(data.test.labels == best))}


def test_path_x_is_read_image_by_image(tmp_path):
    task = PathX(train=240, validation=30)
    pixels = np.zeros((300, 128, 128), np.uint8)
    pixels[:, 5, 7] = np.arange(300) % 256
    pixels[:, 9, 9] = np.arange(300) // 256
    labels = np.arange(300) % 2
    files = below(f"pathfinder128/{LEVEL}", formats.pathfinder(pixels, labels, {0: 300}))
    given = formats.tree(tmp_path / "given", files)
    formats.prepared(task, tmp_path / "warm", given)  # what imports take is not counted
    tracemalloc.start()
    data, _ = formats.prepared(task, tmp_path / "out", given)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < pixels.nbytes / 4
    order = torch_permutation(300, 42)
    np.testing.assert_array_equal(data.train.inputs, pixels[order[:240]].reshape(-1, 16384))
    np.testing.assert_array_equal(data.test.inputs, pixels[order[270:]].reshape(-1, 16384))
    np.testing.assert_array_equal(data.test.labels, labels[order[270:]])


@pytest.mark.parametrize("copy", ["level", "archive", "tfrecord"])
def test_fewer_examples_are_the_first_ones(tmp_path, copy):
    given = (RELEASES | TFDS)[copy](tmp_path / "given")
    whole, _ = formats.prepared(TASK, tmp_path / "whole", given)
    if copy == "level":  # the others need not be there
        for row in (*ORDERS["s4"][5:16], ORDERS["s4"][19]):
            number, line = (2, row) if row < 13 else (10, row - 13)
            (given / f"imgs/{number}/sample_{line}.png").unlink()
    data, table = formats.prepared(TASK, tmp_path / "few", given, PathfinderOptions(train=5, test=1))
    assert asdict(table.counts) == {"train": 5, "validation": 2, "test": 1}
    for split, count in asdict(table.counts).items():
        np.testing.assert_array_equal(getattr(data, split).inputs, getattr(whole, split).inputs[:count])
        np.testing.assert_array_equal(getattr(data, split).labels, getattr(whole, split).labels[:count])


class Chunk(NamedTuple):
    images: np.ndarray
    labels: np.ndarray


def test_generated_images_fill_the_splits_one_after_the_other(tmp_path, monkeypatch):
    asked = []

    def generate(count, seed, parameters, workers):
        asked.append((count, seed, parameters, workers))
        for first in range(0, count, 7):
            numbers = np.arange(first, min(first + 7, count))
            images = np.zeros((len(numbers), 32, 32), np.uint8)
            images[:, 3, 4] = numbers
            yield Chunk(images, (numbers % 3 == 0).astype(np.uint8))

    monkeypatch.setattr(pathfinder_generator, "generate", generate)
    reported = []
    options = PathfinderOptions(train=20, validation=3, test=9, seed=5)
    table = task_data.prepare(TASK, options, tmp_path / "x", progress=lambda *progress: reported.append(progress))
    data = task_data.load(TASK, options, tmp_path / "x")
    for split, first, count in (("test", 0, 9), ("validation", 9, 3), ("train", 12, 20)):
        numbers = np.arange(first, first + count)
        loaded = getattr(data, split)
        np.testing.assert_array_equal(loaded.inputs[:, 3 * 32 + 4], numbers)
        np.testing.assert_array_equal(loaded.labels, numbers % 3 == 0)
    assert asked == [(32, 5, options.parameters(), 1)]
    assert (table.kind, data.kind) == ("generated", "generated")
    assert table.source == f"generated by lrurun Pathfinder {pathfinder_generator.VERSION}, seed 5"
    assert table.generator == {"name": "pathfinder", "version": pathfinder_generator.VERSION, "seed": 5}
    assert data.baselines == {"majority class": 6 / 9}
    assert [one for one in reported if one[0].startswith("generating")][-1] == ("generating Pathfinder", 32, 32)
    # a smaller training split is part of a larger one, and the other splits stay what they are
    fewer, _ = formats.prepared(TASK, tmp_path / "few", None, PathfinderOptions(train=4, validation=3, test=9, seed=5))
    np.testing.assert_array_equal(fewer.train.inputs, data.train.inputs[:4])
    np.testing.assert_array_equal(fewer.test.inputs, data.test.inputs)
    # many images are worth starting processes
    formats.prepared(TASK, tmp_path / "many", None, PathfinderOptions(train=2000, validation=3, test=9))
    assert asked[-1][3] == this_machine.cores()


def test_what_is_generated_is_what_the_generator_gives(tmp_path, monkeypatch):
    options = PathfinderOptions(train=20, validation=5, test=5, seed=3)
    data, _ = formats.prepared(Pathfinder(), tmp_path, None, options)
    (chunk,) = pathfinder_generator.generate(30, 3, options.parameters())
    stored = np.concatenate([data.test.inputs, data.validation.inputs, data.train.inputs])
    np.testing.assert_array_equal(stored, chunk.images.reshape(30, 1024))
    np.testing.assert_array_equal(data.train.labels, chunk.labels[10:])

    def fails(count, seed, parameters, workers):
        yield Chunk(np.zeros((2, 32, 32), np.uint8), np.zeros(2, np.uint8))
        raise LrurunError("a process that generates data died: signal SIGKILL", "hint")

    monkeypatch.setattr(pathfinder_generator, "generate", fails)
    with pytest.raises(LrurunError, match="SIGKILL"):
        formats.prepared(TASK, tmp_path / "fails", None)
    assert not list((tmp_path / "fails").glob("*"))


def array(content):
    file = io.BytesIO()
    np.save(file, np.array(content), allow_pickle=True)
    return file.getvalue()


@pytest.mark.parametrize(
    ("file", "content", "message", "hint"),
    [
        ("imgs/10/sample_3.png", b"", "/imgs/10/sample_3.png: the image is empty (0 bytes)", DAMAGED),
        ("imgs/2/sample_0.png", formats.png(PIXELS[0])[:500], "/imgs/2/sample_0.png: not a PNG image, or a d", DAMAGED),
        ("imgs/2/sample_0.png", formats.png(PIXELS[0, :, :31]), "/imgs/2/sample_0.png: expected 32 x 32 pix", HINT),
        ("imgs/2/sample_0.png", None, ": imgs/2/sample_0.png missing", HINT),
        (
            "metadata/2.npy",
            b"imgs/2 a.png 0 1 1.0\nimgs/2 b.png 1\n",
            "/metadata/2.npy:2: expected 4 fields or mo",
            HINT,
        ),
        ("metadata/2.npy", b"imgs/2 sample_0.png 0 2 1.0\n", "/metadata/2.npy:1: expected a label of 0 or 1, f", HINT),
        ("metadata/2.npy", b"imgs/2 \xff\xfe 0 1\n", "/metadata/2.npy: neither text nor a NumPy array: inv", HINT),
        ("metadata/2.npy", array([["imgs/2", "a.png", "0"]]), "/metadata/2.npy:1: expected 4 fields or more, f", HINT),
        ("metadata/2.npy", array([["imgs/2", "a.png", "0", "x"]]), "/metadata/2.npy:1: expected a label of 0 o", HINT),
        (
            "metadata/2.npy",
            array([[1.0, 2.0]]),
            "/metadata/2.npy: not an array of texts: found 2 axes of float64",
            HINT,
        ),
        ("metadata/2.npy", array([[["a"]]]), "/metadata/2.npy: not an array of texts: found 3 axes of <U1", HINT),
        ("metadata/2.npy", array([None, {}]), "/metadata/2.npy: not an array of texts: Object arrays cannot", HINT),
        ("metadata/2.npy", array([["imgs/2"]])[:20], "/metadata/2.npy: not an array of texts: ", HINT),
    ],
)
def test_a_damaged_file_of_a_level_is_named(tmp_path, given, file, content, message, hint):
    (given / file).unlink()
    if content is not None:
        (given / file).write_bytes(content)
    place = f"./{given.relative_to(tmp_path)}"
    found, hint_found = formats.refused(TASK, PathfinderOptions(), tmp_path, given)
    assert found.startswith(place + message)
    assert hint_found == hint


def test_an_array_of_whole_lines_is_a_list_too_and_none_is_listed_twice_or_left_out(tmp_path, given):
    lists = {path: path.read_text().splitlines() for path in (given / "metadata").iterdir()}
    for path, lines in lists.items():
        path.write_bytes(array(lines if path.stem == "2" else [line.encode() for line in lines]))
    same(formats.prepared(TASK, tmp_path / "good", given)[0], ORDERS["s4"])
    path = given / "metadata/10.npy"
    for lines, message in (
        (lists[path][:-1], "expected 20 images, found 19"),
        ([*lists[path], lists[path][0]], "imgs/10/sample_0.png is listed 2 times"),
    ):
        path.write_text("\n".join(lines))
        found, hint = formats.refused(TASK, PathfinderOptions(), tmp_path, given)
        assert (found, hint) == (f"./{given.relative_to(tmp_path)}: {message}", HINT)


@pytest.mark.parametrize(
    ("options", "found"),
    [
        ({"seed": 1}, "seed = 1"),
        ({"quirks": False, "seed": 2}, "quirks = False, seed = 2"),
        ({"contour_length": 9}, "contour_length = 9"),
        ({"train": 17}, "train = 17"),
    ],
)
def test_images_that_no_copy_holds_are_not_taken_from_one(tmp_path, given, options, found):
    message, hint = formats.refused(TASK, PathfinderOptions(**options), tmp_path, given)
    assert message.endswith(f": a copy holds the published images, not those with {found}")
    assert hint == "omit --from: these images are generated"


def test_an_archive_without_all_images_is_named(tmp_path):
    prefix = f"lra_release/pathfinder32/{LEVEL}"
    files = release("lra_release")
    one = {name: content for name, content in files.items() if not name.endswith("imgs/10/sample_1.png")}
    many = {name: content for name, content in files.items() if "imgs/2/" not in name}
    for number, (given, message) in enumerate(
        [
            (one, f"{prefix}: imgs/10/sample_1.png missing"),
            (many, f"{prefix}: imgs/2/sample_0.png and 12 others missing"),
            (files | {f"{prefix}/imgs/2/sample_5.png": b""}, f"{prefix}/imgs/2/sample_5.png: the image is empty (0 by"),
        ]
    ):
        path = formats.tar(tmp_path / f"{number}.gz", given)
        found, _ = formats.refused(TASK, PathfinderOptions(), tmp_path, path)
        assert found.startswith(f"./{number}.gz: {message}")


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda rows: rows[1:], "expected 20 examples, found 19"),
        (lambda rows: [*rows[:-1], rows[0] | {"label": -1}], "example 19: expected a label of 0 to 1, found -1"),
        (lambda rows: [rows[0] | {"image": b""}, *rows[1:]], "example 0: the image is empty (0 bytes)"),
        (lambda rows: [rows[0] | {"image": formats.png(PIXELS[0, :9])}, *rows[1:]], "example 0: expected 32 x 32"),
        (None, "expected 20 examples, found 0"),
    ],
)
def test_a_tfds_copy_that_is_not_the_release_is_refused(tmp_path, change, message):
    rows, split = (change(examples()), "hard") if change else (None, "easy")
    found, _ = formats.refused(TASK, PathfinderOptions(), tmp_path, tfrecord(tmp_path / "given", rows, split))
    assert found.startswith(f"./given/pathfinder32/1.0.0: hard: {message}")


def test_a_cut_off_tfds_copy_is_named(tmp_path):
    path = tfrecord(tmp_path / "given") / "pathfinder32-hard.tfrecord-00001-of-00002"
    os.truncate(path, path.stat().st_size - 1)
    found, _ = formats.refused(TASK, PathfinderOptions(), tmp_path, path.parent)
    assert found == f"./{path.relative_to(tmp_path)}: truncated in record 9"
