"""Pathfinder and Path-X: released images in every layout, the published splits, and generated ones."""

from __future__ import annotations

import tracemalloc
from typing import NamedTuple

import numpy as np
import pytest
from msgspec.structs import asdict

from lrurun import machine
from lrurun.data import store
from lrurun.data.generated.generators import pathfinder as generator
from lrurun.data.generated.pathfinder import Pathfinder, PathfinderOptions, PathX, PathXOptions
from lrurun.decoding import convert
from lrurun.errors import LrurunError, UsageError
from tests.data.test_images import torch_order
from tests.harness import formats
from tests.harness.pathfinder_copies import (
    HASHED,
    LEVEL,
    ORDERS,
    PREPARED,
    RELEASES,
    TASK,
    below,
    prepared,
    release,
    same,
    tfrecord,
    tree,
)


@pytest.fixture
def given(tmp_path):
    """A level of the release."""
    return RELEASES["level"](tmp_path / "given")


def test_what_the_tasks_declare():
    sizes = {"train": 160_000, "validation": 20_000, "test": 20_000}
    for task, length in ((Pathfinder(), 1024), (PathX(), 16384)):
        options = task.options()
        spec = task.spec(options)
        assert task.sizes(options) == sizes
        assert (spec.name, spec.kind, spec.features, spec.classes) == (task.name, "features", 1, 2)
        assert (spec.length, spec.scale, spec.mean, spec.std) == (length, 1 / 255, (0.5,), (0.5,))
        assert (options.contour_length, options.quirks, options.seed, options.split) == (14, True, 0, "s4")
        assert not task.remotes
    assert Pathfinder().sizes(PathfinderOptions(train=300_000))["train"] == 300_000  # generated, if one wants


@pytest.mark.parametrize("table", [{"size": 33}, {"contour_length": 0}, {"seed": -1}, {"split": "tfds"}, {"level": 1}])
def test_settings_that_are_none_are_refused(table):
    with pytest.raises(UsageError):
        convert(table, PathfinderOptions, "data")


@pytest.mark.parametrize("split", ORDERS)
@pytest.mark.parametrize("copy", RELEASES)
def test_every_layout_gives_every_image_at_its_place(tmp_path, copy, split):
    given = RELEASES[copy](tmp_path / "given")
    data, table = prepared(tmp_path / "data/x", given, options=PathfinderOptions(split=split))
    same(data, ORDERS[split])
    assert table.kind == "folder"
    assert table.source.startswith(f"the {'archive' if 'archive' in copy else 'folder'} {tmp_path}/given/")
    assert not table.notes


@pytest.mark.parametrize("copy", PREPARED)
def test_a_tfds_copy_gives_the_split_of_long_range_arena(tmp_path, copy):
    given = PREPARED[copy](tmp_path / "given")
    data, table = prepared(tmp_path / "data/x", given, options=PathfinderOptions(split="lra"))
    same(data, HASHED)
    assert table.source == f"TFDS pathfinder32 1.0.0, {copy}, {tmp_path}/given/pathfinder32/1.0.0"
    assert not table.notes


def test_a_tfds_copy_cannot_give_the_split_of_s4_and_says_so(tmp_path):
    data, table = prepared(tmp_path / "data/x", tfrecord(tmp_path / "given"))
    same(data, [HASHED[row] for row in ORDERS["s4"]])
    (note,) = table.notes
    assert note.endswith("the split is random like that of S4, but not the same")


@pytest.mark.parametrize("given", ["", "lra_release"])
@pytest.mark.parametrize("archive", ["", "archive", "reversed"])
def test_of_two_copies_the_inner_one_is_read(tmp_path, given, archive):
    files = release("lra_release", shift=1) | release("lra_release/lra_release")
    if archive == "reversed":
        files = dict(reversed(files.items()))
    if archive:
        path = formats.tar(tmp_path / "given" / (given or "x") / "lra_release.gz", files)
    else:
        path = tree(tmp_path / "given", files, given)
    data, table = prepared(tmp_path / "data/x", path)
    same(data, ORDERS["s4"])
    if not archive:
        inner = tmp_path / f"given/lra_release/lra_release/pathfinder32/{LEVEL}"
        assert table.source == f"the folder {inner}"


def test_path_x_is_read_image_by_image(tmp_path):
    task = PathX(train=240, validation=30)
    pixels = np.zeros((300, 128, 128), np.uint8)
    pixels[:, 5, 7] = np.arange(300) % 256
    pixels[:, 9, 9] = np.arange(300) // 256
    labels = np.arange(300) % 2
    files = formats.pathfinder(pixels, labels, {0: 300})
    given = tree(tmp_path / "given", below(f"pathfinder128/{LEVEL}", files))
    prepared(tmp_path / "warm/x", given, task)  # what imports take is not counted
    peaks = []
    for name in ("first", "second"):  # the memory of other threads is counted, too: the smaller peak is without it
        tracemalloc.start()
        data, _ = prepared(tmp_path / name / "x", given, task)
        peaks.append(tracemalloc.get_traced_memory()[1])
        tracemalloc.stop()
    assert min(peaks) < pixels.nbytes / 4
    order = torch_order(300, 42)
    np.testing.assert_array_equal(data.train.inputs, pixels[order[:240]].reshape(-1, 16384))
    np.testing.assert_array_equal(data.test.inputs, pixels[order[270:]].reshape(-1, 16384))
    np.testing.assert_array_equal(data.test.labels, labels[order[270:]])


@pytest.mark.parametrize("copy", ["level", "archive", "tfrecord"])
def test_fewer_examples_are_the_first_ones(tmp_path, copy):
    given = (RELEASES | PREPARED)[copy](tmp_path / "given")
    whole, _ = prepared(tmp_path / "whole/x", given)
    if copy == "level":  # the others need not be there
        for row in (*ORDERS["s4"][5:16], ORDERS["s4"][19]):
            number, line = (2, row) if row < 13 else (10, row - 13)
            (given / f"imgs/{number}/sample_{line}.png").unlink()
    data, table = prepared(tmp_path / "data/x", given, options=PathfinderOptions(train=5, test=1))
    assert asdict(table.counts) == {"train": 5, "validation": 2, "test": 1}
    for split, count in asdict(table.counts).items():
        np.testing.assert_array_equal(getattr(data, split).inputs, getattr(whole, split).inputs[:count])
        np.testing.assert_array_equal(getattr(data, split).labels, getattr(whole, split).labels[:count])


def test_the_baseline_is_the_commonest_label_of_the_training_split(tmp_path, given):
    data, _ = prepared(tmp_path / "data/x", given)
    best = int(data.train.labels.sum() > 8)
    assert data.baselines == {"majority class": float(np.mean(data.test.labels == best))}


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

    monkeypatch.setattr(generator, "generate", generate, raising=False)
    reported = []
    options = PathfinderOptions(train=20, validation=3, test=9, seed=5)
    where = tmp_path / "data/x"
    table = store.prepare(TASK, options, where, progress=lambda *progress: reported.append(progress))
    data = store.load(TASK, options, where)
    for split, first, count in (("test", 0, 9), ("validation", 9, 3), ("train", 12, 20)):
        numbers = np.arange(first, first + count)
        loaded = getattr(data, split)
        np.testing.assert_array_equal(loaded.inputs[:, 3 * 32 + 4], numbers)
        np.testing.assert_array_equal(loaded.labels, numbers % 3 == 0)
    assert asked == [(32, 5, options.parameters(), 1)]
    assert (table.kind, data.kind) == ("generated", "generated")
    assert table.source == f"generated by lrurun Pathfinder {generator.VERSION}, seed 5"
    assert table.generator == {"name": "pathfinder", "version": generator.VERSION, "seed": 5}
    assert data.baselines == {"majority class": 6 / 9}
    assert [one for one in reported if one[0].startswith("generating")][-1] == ("generating Pathfinder", 32, 32)
    # a smaller training split is part of a larger one, and the other splits stay what they are
    fewer, _ = prepared(tmp_path / "fewer/x", None, options=PathfinderOptions(train=4, validation=3, test=9, seed=5))
    np.testing.assert_array_equal(fewer.train.inputs, data.train.inputs[:4])
    np.testing.assert_array_equal(fewer.test.inputs, data.test.inputs)
    # many images are worth starting processes
    prepared(tmp_path / "many/x", None, options=PathfinderOptions(train=2000, validation=3, test=9))
    assert asked[-1][3] == machine.cores()


def test_what_is_generated_is_what_the_generator_gives(tmp_path):
    options = PathfinderOptions(train=20, validation=5, test=5, seed=3)
    data, _ = prepared(tmp_path / "data/x", None, Pathfinder(), options)
    chunks = list(generator.generate(30, 3, options.parameters()))
    images = np.concatenate([chunk.images for chunk in chunks]).reshape(30, 1024)
    labels = np.concatenate([chunk.labels for chunk in chunks])
    np.testing.assert_array_equal(data.test.inputs, images[:5])
    np.testing.assert_array_equal(data.validation.inputs, images[5:10])
    np.testing.assert_array_equal(data.train.inputs, images[10:])
    np.testing.assert_array_equal(data.train.labels, labels[10:])


def test_a_generator_that_fails_leaves_nothing(tmp_path, monkeypatch):
    def generate(count, seed, parameters, workers):
        yield Chunk(np.zeros((2, 32, 32), np.uint8), np.zeros(2, np.uint8))
        raise LrurunError("a process that generates data died: signal SIGKILL", "hint")

    monkeypatch.setattr(generator, "generate", generate, raising=False)
    with pytest.raises(LrurunError, match="SIGKILL"):
        prepared(tmp_path / "data/x", None)
    assert not list((tmp_path / "data").glob("*"))


def test_path_x_is_of_128_pixels_a_side():
    options = PathXOptions()
    assert (options.size, options.parameters().size) == (128, 128)
    assert PathX().offline(options).text == f"generated by lrurun Pathfinder {generator.VERSION}, seed 0"
