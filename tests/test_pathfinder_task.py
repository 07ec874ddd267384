"""Pathfinder and Path-X: released images in every layout, the published splits, generated ones, and copies refused."""

from __future__ import annotations

import hashlib
import io
import os
import tracemalloc
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pytest

from lrurun import provenance
from lrurun.errors import LrurunError, UsageError
from lrurun.strict import convert
from lrurun.tasks import folder
from lrurun.tasks.base import SPLITS
from lrurun.tasks.generators import pathfinder as generator
from lrurun.tasks.pathfinder import Pathfinder, PathfinderOptions, PathX, PathXOptions
from tests import formats
from tests.test_images import torch_order

TASK = Pathfinder(train=16, validation=2)
TOTAL = 20
RANDOM = np.random.RandomState(0)
PIXELS = RANDOM.randint(0, 256, (TOTAL, 32, 32)).astype(np.uint8)
LABELS = RANDOM.randint(0, 2, TOTAL)
LISTS = {2: 13, 10: 7}
"""In the order of numbers, which is not that of names."""
LEVEL = "curv_contour_length_14"
HINT = "give an undamaged copy, or leave --from out to generate the data"
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
    table = folder.prepare(task, options, where, given=given)
    assert sorted(os.listdir(where.parent)) == [where.name]  # nothing beside it is left
    return folder.load(task, options, where), table


def refused(tmp_path: Path, given: Path, options=None) -> LrurunError:
    """The error; nothing is left, and the same place can be filled afterwards."""
    where = tmp_path / "data/Pathfinder"
    with pytest.raises(LrurunError) as caught:
        folder.prepare(TASK, options or PathfinderOptions(), where, given=given)
    assert not list(where.parent.glob("*"))
    assert "\n" not in caught.value.message
    data, _ = prepared(where, RELEASES["level"](tmp_path / "good"))
    assert len(data.train.labels) == 16
    return caught.value


@pytest.fixture
def given(tmp_path):
    """A level of the release, to be harmed."""
    return RELEASES["level"](tmp_path / "given")


def same(data, order: list[int]) -> None:
    ends = {"train": order[:16], "validation": order[16:18], "test": order[18:]}
    for split in SPLITS:
        loaded = getattr(data, split)
        np.testing.assert_array_equal(loaded.inputs, PIXELS[ends[split]].reshape(-1, 1024))
        np.testing.assert_array_equal(loaded.labels, LABELS[ends[split]])
        assert loaded.inputs.dtype == loaded.labels.dtype == np.uint8


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
    assert table["kind"] == "folder"
    assert table["source"].startswith("Long Range Arena's release, /")
    assert "notes" not in table


@pytest.mark.parametrize("copy", PREPARED)
def test_a_tfds_copy_gives_the_split_of_long_range_arena(tmp_path, copy):
    given = PREPARED[copy](tmp_path / "given")
    data, table = prepared(tmp_path / "data/x", given, options=PathfinderOptions(split="lra"))
    same(data, HASHED)
    assert table["source"] == f"TFDS pathfinder32 1.0.0, {copy}, {tmp_path}/given/pathfinder32/1.0.0"
    assert "notes" not in table


def test_a_tfds_copy_cannot_give_the_split_of_s4_and_says_so(tmp_path):
    data, table = prepared(tmp_path / "data/x", tfrecord(tmp_path / "given"))
    same(data, [HASHED[row] for row in ORDERS["s4"]])
    (note,) = table["notes"]
    assert note.endswith("the split is as random as S4's, but another")


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
        assert table["source"] == f"Long Range Arena's release, {inner}, the inner one of two copies"


def test_path_x_is_read_image_by_image(tmp_path):
    task = PathX(train=240, validation=30)
    pixels = np.zeros((300, 128, 128), np.uint8)
    pixels[:, 5, 7] = np.arange(300) % 256
    pixels[:, 9, 9] = np.arange(300) // 256
    labels = np.arange(300) % 2
    files = formats.pathfinder(pixels, labels, {0: 300})
    given = tree(tmp_path / "given", below(f"pathfinder128/{LEVEL}", files))
    prepared(tmp_path / "warm/x", given, task)  # what imports take is not counted
    tracemalloc.start()
    data, _ = prepared(tmp_path / "data/x", given, task)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < pixels.nbytes / 4
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
    assert table["counts"] == {"train": 5, "validation": 2, "test": 1}
    for split, count in table["counts"].items():
        np.testing.assert_array_equal(getattr(data, split).inputs, getattr(whole, split).inputs[:count])
        np.testing.assert_array_equal(getattr(data, split).labels, getattr(whole, split).labels[:count])


def test_the_baseline_is_the_commonest_label_of_the_training_split(tmp_path, given):
    data, _ = prepared(tmp_path / "data/x", given)
    best = int(data.train.labels.sum() > 8)
    assert data.baselines == {"majority class": float(np.mean(data.test.labels == best))}


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
    error = refused(tmp_path, given, PathfinderOptions(**options))
    assert error.message == f"{given}: a copy holds the published images, not those with {found}"
    assert error.hint == "leave --from out: these images are generated"


def test_an_empty_image_is_told_by_name(tmp_path, given):
    path = given / "imgs/10/sample_3.png"
    path.write_bytes(b"")
    error = refused(tmp_path, given)
    assert (error.message, error.hint) == (f"{path}: the image is empty (0 bytes)", COPY)


def test_broken_missing_and_other_images_are_told_by_name(tmp_path, given):
    path = given / "imgs/2/sample_0.png"
    path.write_bytes(path.read_bytes()[:500])
    assert refused(tmp_path, given).message.startswith(f"{path}: not a PNG image, or a damaged one: ")
    path.write_bytes(formats.png(PIXELS[0, :, :31]))
    error = refused(tmp_path / "again", given)
    assert (error.message, error.hint) == (f"{path}: expected 32 x 32 pixels, found 32 x 31", HINT)
    path.unlink()
    assert refused(tmp_path / "and again", given).message == f"{path}: No such file or directory"


def array(content: object) -> bytes:
    file = io.BytesIO()
    np.save(file, np.array(content), allow_pickle=True)
    return file.getvalue()


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"imgs/2 sample_0.png 0 1 1.0\nimgs/2 sample_1.png 1\n", ":2: expected 4 fields or more, found 3"),
        (b"imgs/2 sample_0.png 0 2 1.0\n", ":1: expected a label of 0 or 1, found '2'"),
        (b"imgs/2 sample_0.png 0 1.0 1.0\n", ":1: expected a label of 0 or 1, found '1.0'"),
        (b"imgs/2 \xff\xfe 0 1\n", ": neither text nor a NumPy array: invalid start byte"),
        (array([["imgs/2", "sample_0.png", "0"]]), ":1: expected 4 fields or more, found 3"),
        (array([["imgs/2", "sample_0.png", "0", "x"]]), ":1: expected a label of 0 or 1, found 'x'"),
        (array([[1.0, 2.0]]), ": expected an array of texts, found 2 axes of float64"),
        (array([[["a"]]]), ": expected an array of texts, found 3 axes of <U1"),
        (array([None, {}]), ": not an array of texts: it holds Python objects, which are not loaded"),
        (array([["imgs/2", "sample_0.png", "0", "1"]])[:-9], ": not an array of texts: "),
        (array([["imgs/2"]])[:20], ": not an array of texts: "),
    ],
)
def test_lists_that_are_none_are_told_with_file_and_line(tmp_path, given, content, message):
    path = given / "metadata/2.npy"
    path.write_bytes(content)
    error = refused(tmp_path, given)
    assert error.message.startswith(f"{path}{message}")
    assert error.hint == HINT


def test_an_array_of_whole_lines_is_a_list_too(tmp_path, given):
    for path in (given / "metadata").iterdir():
        lines = path.read_text().splitlines()
        path.write_bytes(array(lines if path.stem == "2" else [line.encode() for line in lines]))
    same(prepared(tmp_path / "data/x", given)[0], ORDERS["s4"])


def test_other_numbers_of_images_are_refused(tmp_path, given):
    path = given / "metadata/10.npy"
    whole = path.read_text()
    path.write_text("".join(whole.splitlines(keepends=True)[:-1]))
    error = refused(tmp_path, given)
    assert (error.message, error.hint) == (f"{given}: expected 20 images, found 19", HINT)
    path.write_text(whole + whole.splitlines()[0])
    error = refused(tmp_path / "again", given)
    assert error.message == f"{given}: imgs/10/sample_0.png is listed 2 times"
    for file in (given / "metadata").iterdir():
        file.unlink()
    assert refused(tmp_path / "and again", given).message == f"{given}: metadata/0.npy and all others missing"


def test_an_archive_without_all_images_is_told(tmp_path):
    files = release("lra_release")
    prefix = f"lra_release/pathfinder32/{LEVEL}"
    del files[f"{prefix}/imgs/10/sample_1.png"]
    path = formats.tar(tmp_path / "lra_release.gz", files)
    assert refused(tmp_path, path).message == f"{path}: {prefix}: imgs/10/sample_1.png missing"
    files = {name: content for name, content in files.items() if "imgs" not in name}
    formats.tar(path, files)
    message = refused(tmp_path / "again", path).message
    assert message == f"{path}: {prefix}: imgs/2/sample_0.png and 19 others missing"
    formats.tar(path, {"lra_release/listops-1000/basic_train.tsv": b""})
    message = refused(tmp_path / "and again", path).message
    assert message == f"{path}: pathfinder32/{LEVEL}: metadata/0.npy and all others missing"


def test_an_empty_image_in_an_archive_is_told_by_name(tmp_path):
    member = f"lra_release/pathfinder32/{LEVEL}/imgs/2/sample_5.png"
    path = formats.tar(tmp_path / "lra_release.gz", release("lra_release") | {member: b""})
    assert refused(tmp_path, path).message == f"{path}: {member}: the image is empty (0 bytes)"


def test_a_cut_off_archive_is_told(tmp_path):
    path = formats.tar(tmp_path / "lra_release.gz", release("lra_release"))
    os.truncate(path, path.stat().st_size // 2)
    assert refused(tmp_path, path).message == f"{path}: the archive is cut off"


def test_a_folder_or_file_without_a_copy_is_told(tmp_path):
    (tmp_path / "given/pathfinder64").mkdir(parents=True)
    (tmp_path / "text").write_text("x")
    for given in (tmp_path / "given", tmp_path / "text"):
        error = refused(tmp_path / f"for {given.name}", given)
        assert error.message == f"--from {given}: no copy of Pathfinder is there"
        assert "its folder pathfinder32" in error.hint


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda rows: rows[1:], "expected 20 images, found 19"),
        (lambda rows: [*rows[:-1], rows[0] | {"label": -1}], "hard: example 19: expected a label of 0 or 1, found -1"),
        (lambda rows: [rows[0] | {"image": b""}, *rows[1:]], "hard: example 0: the image is empty (0 bytes)"),
        (
            lambda rows: [rows[0] | {"image": formats.png(PIXELS[0, :9])}, *rows[1:]],
            "hard: example 0: expected 32 x 32",
        ),
    ],
)
def test_a_tfds_copy_that_is_not_the_release_is_refused(tmp_path, change, message):
    given = tfrecord(tmp_path / "given", change(tfds_examples()))
    assert refused(tmp_path, given).message.startswith(f"{given}: {message}")


def test_a_tfds_copy_without_the_published_level_is_refused(tmp_path):
    given = tfrecord(tmp_path / "given", split="easy")
    error = refused(tmp_path, given)
    assert (error.message, error.hint) == (f"{given}: expected a split 'hard', found easy", HINT)


def test_a_cut_off_tfds_copy_is_told(tmp_path):
    given = tfrecord(tmp_path / "given")
    path = given / "pathfinder32-hard.tfrecord-00001-of-00002"
    os.truncate(path, path.stat().st_size - 1)
    assert refused(tmp_path, given).message == f"{path}: cut off in record 9"


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
    told = []
    options = PathfinderOptions(train=20, validation=3, test=9, seed=5)
    where = tmp_path / "data/x"
    table = folder.prepare(TASK, options, where, tell=lambda *words: told.append(words))
    data = folder.load(TASK, options, where)
    for split, first, count in (("test", 0, 9), ("validation", 9, 3), ("train", 12, 20)):
        numbers = np.arange(first, first + count)
        loaded = getattr(data, split)
        np.testing.assert_array_equal(loaded.inputs[:, 3 * 32 + 4], numbers)
        np.testing.assert_array_equal(loaded.labels, numbers % 3 == 0)
    assert asked == [(32, 5, options.parameters(), 1)]
    assert (table["kind"], data.kind) == ("generated", "generated")
    assert table["source"] == f"generated by lrurun Pathfinder {generator.VERSION}, seed 5"
    assert table["generator"] == {"name": "pathfinder", "version": generator.VERSION, "seed": 5}
    assert data.baselines == {"majority class": 6 / 9}
    assert [words for words in told if words[0].startswith("generating")][-1] == ("generating Pathfinder", 32, 32)
    # a smaller training split is part of a larger one, and the other splits stay what they are
    fewer, _ = prepared(tmp_path / "fewer/x", None, options=PathfinderOptions(train=4, validation=3, test=9, seed=5))
    np.testing.assert_array_equal(fewer.train.inputs, data.train.inputs[:4])
    np.testing.assert_array_equal(fewer.test.inputs, data.test.inputs)
    # many images are worth starting processes
    prepared(tmp_path / "many/x", None, options=PathfinderOptions(train=2000, validation=3, test=9))
    assert asked[-1][3] == provenance.cores()


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
