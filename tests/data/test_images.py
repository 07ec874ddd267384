"""sCIFAR and Image: every pixel of every copy at its place, the published splits and grays, and copies refused."""

from __future__ import annotations

import hashlib
import os
import shutil
from pathlib import Path

import numpy as np
import pytest
from msgspec.structs import asdict

from lrurun.data import store
from lrurun.data.downloaded import images
from lrurun.data.downloaded.images import CifarOptions, Image, ImageOptions, SCifar
from lrurun.data.splits import hashed_order, tfds_order, torch_permutation
from lrurun.data.task import SPLITS
from lrurun.decoding import convert
from lrurun.errors import LrurunError, UsageError
from tests.harness import formats

TRAIN, TEST = 50, 10
COLOUR, GRAY = SCifar(TRAIN, TEST), Image(TRAIN, TEST)
RANDOM = np.random.RandomState(0)
PIXELS = RANDOM.randint(0, 256, (TRAIN + TEST, 32, 32, 3)).astype(np.uint8)
LABELS = RANDOM.randint(0, 10, TRAIN + TEST)
FILES = formats.cifar(PIXELS, LABELS, TRAIN)
HINT = "give an undamaged copy of cifar-10-binary.tar.gz, or omit --from to download it"


def torch_order(n: int, seed: int) -> list[int]:
    """What PyTorch's source says, one step after the other."""
    generator = np.random.MT19937()
    generator._legacy_seeding(seed)
    order = list(range(n))
    for place in range(n - 1):
        other = place + int(generator.random_raw()) % (n - place)
        order[place], order[other] = order[other], order[place]
    return order


def md5_order(n: int, split: str) -> list[int]:
    return sorted(range(n), key=lambda key: int(hashlib.md5(f"{split}{key}".encode()).hexdigest(), 16))


def examples(split: str, ids: bool = True) -> list[dict[str, bytes | int]]:
    """What TFDS holds of a split, in its order."""
    first, count = (0, TRAIN) if split == "train" else (TRAIN, TEST)
    return [
        ({"id": f"{split}_{row:05d}".encode()} if ids else {})
        | {"image": formats.png(PIXELS[first + row]), "label": int(LABELS[first + row])}
        for row in md5_order(count, split)
    ]


def tfrecord(place: Path, ids: bool = True) -> Path:
    features = formats.CIFAR_FEATURES if ids else {k: v for k, v in formats.CIFAR_FEATURES.items() if k != "id"}
    splits = {split: examples(split, ids) for split in ("train", "test")}
    return formats.tfds_tfrecord(place / "cifar10/3.0.2", "cifar10", "3.0.2", features, splits, shards=3)


def array_record(place: Path) -> Path:
    splits = {}
    for split in ("train", "test"):
        rows = sorted(examples(split), key=lambda example: example["id"])
        splits[split] = ((row, example) for row, example in enumerate(rows))
    return formats.tfds_array_record(place, "cifar10", {}, splits)


COPIES = {
    "archive": lambda place: formats.tar(place / "cifar-10-binary.tar.gz", formats.cifar_archive(FILES)),
    "archive by another name": lambda place: formats.tar(place / "x.tar", formats.cifar_archive(FILES), "w"),
    "folder of the archive": lambda place: (
        formats.tar(place / "cifar-10-binary.tar.gz", formats.cifar_archive(FILES)).parent
    ),
    "batches": lambda place: formats.tree(place / "any", FILES),
    "folder of the batches": lambda place: formats.tree(place, formats.cifar_archive(FILES)),
    "tfrecord": tfrecord,
    "tfrecord without ids": lambda place: tfrecord(place, ids=False).parent,
    "array_record": lambda place: array_record(place).parent.parent,
}


def prepared(where: Path, given: Path, task=COLOUR, options=None):
    options = options or task.options()
    table = store.prepare(task, options, where, from_path=given)
    assert sorted(os.listdir(where.parent)) == [where.name]  # nothing beside it is left
    return store.load(task, options, where), table


@pytest.fixture
def given(tmp_path):
    """The unpacked batches, to be harmed."""
    return formats.tree(tmp_path / "given", FILES)


def refused(tmp_path: Path, given: Path, task=COLOUR, options=None) -> LrurunError:
    """The error; nothing is left, and the same place can be filled afterwards."""
    where = tmp_path / "data" / task.name
    with pytest.raises(LrurunError) as caught:
        store.prepare(task, options or task.options(), where, from_path=given)
    assert not list(where.parent.glob("*"))
    assert "\n" not in caught.value.message
    good = formats.tree(tmp_path / "good", FILES)
    assert len(prepared(where, good, task)[0].train.labels) == 45
    return caught.value


def test_torch_permutations_are_those_of_torch():
    assert torch_permutation(10, 42).tolist() == [2, 6, 1, 8, 4, 5, 0, 9, 3, 7]
    assert torch_permutation(10, 0).tolist() == [4, 1, 7, 5, 3, 9, 0, 8, 6, 2]
    assert torch_permutation(999, 7).tolist() == torch_order(999, 7)
    assert [torch_permutation(n, 1).tolist() for n in (0, 1)] == [[], [0]]
    # digests of what PyTorch 2.13 gives: CIFAR-10 and Pathfinder as S4 and S5 split them
    for n, digest in (
        (50_000, "55ecb6cd4e1eb48274001018b26a797b833f72ae79a02b388e4874497445b43d"),
        (200_000, "ee4e53fa9a9cb4316c55a0d184c7aa8fd2f92e97453e62e49195c42034a31789"),
    ):
        assert hashlib.sha256(torch_permutation(n, 42).astype("<i8").tobytes()).hexdigest() == digest


def test_tfds_orders_are_those_of_tfds():
    order = tfds_order(50_000, "train")
    assert order[:4].tolist() == [16399, 1680, 47917, 17307]
    assert sorted(order.tolist()) == list(range(50_000))
    assert tfds_order(999, "test").tolist() == md5_order(999, "test")
    assert hashed_order(["b", "a", "c"], "hard").tolist() == sorted(
        range(3), key=lambda row: hashlib.md5(b"hard" + b"bac"[row : row + 1]).digest()
    )


def test_what_the_tasks_declare():
    assert (
        SCifar().sizes(CifarOptions())
        == Image().sizes(ImageOptions())
        == {
            "train": 45_000,
            "validation": 5_000,
            "test": 10_000,
        }
    )
    assert SCifar().sizes(CifarOptions(train=100, test=99_999)) == {"train": 100, "validation": 5_000, "test": 10_000}
    colour, gray = SCifar().spec(CifarOptions()), Image().spec(ImageOptions())
    assert (colour.features, colour.length, colour.classes, colour.kind) == (3, 1024, 10, "features")
    assert (gray.features, gray.length, gray.classes, gray.kind) == (1, 1024, 10, "features")
    assert (colour.scale, colour.mean, colour.std) == (1 / 255, (0.4914, 0.4822, 0.4465), (0.247, 0.243, 0.261))
    assert (gray.scale, gray.mean, gray.std) == (1 / 255, (122.6 / 255,), (61 / 255,))
    (remote,) = SCifar().remotes
    assert remote.url == "https://www.cs.toronto.edu/~kriz/cifar-10-binary.tar.gz"
    assert (remote.bytes, len(remote.sha256)) == (170_052_171, 64)
    assert (CifarOptions().split, ImageOptions().split, ImageOptions().gray) == ("s4", "lra", "lra")


@pytest.mark.parametrize("table", [{"pool": 3}, {"pool": 8}, {"split": "random"}, {"gray": "lra"}, {"train": 0}])
def test_settings_that_are_none_are_refused(table):
    with pytest.raises(UsageError):
        convert(table, CifarOptions, "data")


@pytest.mark.parametrize("copy", COPIES)
@pytest.mark.parametrize(("split", "order"), [("s4", torch_order(TRAIN, 42)), ("lra", md5_order(TRAIN, "train"))])
def test_every_copy_gives_every_pixel_and_label_at_its_place(tmp_path, copy, split, order):
    data, table = prepared(
        tmp_path / "data/sCIFAR", COPIES[copy](tmp_path / "given"), options=CifarOptions(split=split)
    )
    rows = {"train": order[:45], "validation": order[45:], "test": list(range(TRAIN, TRAIN + TEST))}
    for name in SPLITS:
        loaded = getattr(data, name)
        np.testing.assert_array_equal(loaded.inputs, PIXELS[rows[name]].reshape(-1, 1024, 3))
        np.testing.assert_array_equal(loaded.labels, LABELS[rows[name]])
        assert loaded.inputs.dtype == loaded.labels.dtype == np.uint8
    assert table.kind == "folder"
    assert str(tmp_path / "given") in table.source


def test_the_source_says_which_copy(tmp_path):
    sources = {}
    for number, (copy, make) in enumerate(COPIES.items()):
        path = make(tmp_path / f"{number}")
        sources[copy] = COLOUR.find(path, CifarOptions()).text.replace(str(tmp_path / f"{number}"), "")
    assert sources == {
        "archive": "the archive /cifar-10-binary.tar.gz",
        "archive by another name": "the archive /x.tar",
        "folder of the archive": "the archive /cifar-10-binary.tar.gz",
        "batches": "the folder /any",
        "folder of the batches": "the folder /cifar-10-batches-bin",
        "tfrecord": "TFDS cifar10 3.0.2, tfrecord, /cifar10/3.0.2",
        "tfrecord without ids": "TFDS cifar10 3.0.2, tfrecord, /cifar10/3.0.2",
        "array_record": "TFDS cifar10 3.0.2, array_record, /cifar10/3.0.2",
    }


def test_images_of_both_tasks_are_the_same_whatever_the_copy(tmp_path):
    digests = set()
    for number, make in enumerate(COPIES.values()):
        data, _ = prepared(tmp_path / f"data/{number}/Image", make(tmp_path / f"given/{number}"), GRAY)
        digests.add(data.sha256)
    assert len(digests) == 1


def test_gray_as_long_range_arena_has_it(tmp_path):
    data, _ = prepared(tmp_path / "data/Image", COPIES["archive"](tmp_path / "given"), GRAY)
    weights = np.array([0.2989, 0.587, 0.114])
    expected = (PIXELS.astype(np.float64) @ weights / 255 * 255.5).astype(np.uint8)
    order = md5_order(TRAIN, "train")
    np.testing.assert_array_equal(data.train.inputs, expected[order[:45]].reshape(-1, 1024))
    np.testing.assert_array_equal(data.validation.inputs, expected[order[45:]].reshape(-1, 1024))
    np.testing.assert_array_equal(data.test.inputs, expected[TRAIN:].reshape(-1, 1024))
    np.testing.assert_array_equal(data.train.labels, LABELS[order[:45]])


def test_gray_is_tensorflows_for_every_colour():
    # the digest of what tf.image.rgb_to_grayscale of TensorFlow 2.21 gives for all colours, red as the highest byte
    digest = hashlib.sha256()
    low = np.arange(1 << 16)
    colours = np.zeros((1 << 16, 3), np.uint8)
    colours[:, 1], colours[:, 2] = low >> 8, low & 255
    for red in range(256):
        colours[:, 0] = red
        digest.update(images.lra_gray(colours).tobytes())
    assert digest.hexdigest() == "824a76d81dad2c5a2cf1fa0b2c0a5afe7d871ec2970e4fa2809b53ddbecdca93"


def test_gray_as_pillow_has_it(tmp_path):
    from PIL import Image as Pillow

    options = ImageOptions(gray="pil", split="s4")
    data, _ = prepared(tmp_path / "data/Image", COPIES["archive"](tmp_path / "given"), GRAY, options)
    expected = np.stack([np.asarray(Pillow.fromarray(image).convert("L")) for image in PIXELS]).reshape(-1, 1024)
    order = torch_order(TRAIN, 42)
    np.testing.assert_array_equal(data.train.inputs, expected[order[:45]])
    np.testing.assert_array_equal(data.test.inputs, expected[TRAIN:])
    every_fourth = np.stack(np.meshgrid(*[np.arange(0, 256, 3, np.uint8)] * 3), -1).reshape(86, -1, 3)
    np.testing.assert_array_equal(
        images.pil_gray(every_fourth), np.asarray(Pillow.fromarray(every_fourth, "RGB").convert("L"))
    )


@pytest.mark.parametrize("pool", [2, 4])
@pytest.mark.parametrize("task", [COLOUR, GRAY], ids=lambda task: task.name)
def test_pooled_pixels_are_means_rounded_half_up(tmp_path, task, pool):
    options = task.options(pool=pool, split="s4")
    data, table = prepared(tmp_path / "data/x", COPIES["archive"](tmp_path / "given"), task, options)
    side = 32 // pool
    assert data.spec.length == side * side
    assert table.options["pool"] == pool
    source = PIXELS if task is COLOUR else images.lra_gray(PIXELS)[..., None]
    for row, index in enumerate(torch_order(TRAIN, 42)[:3]):
        for step in (0, 1, side, side * side - 1):
            top, left = step // side * pool, step % side * pool
            square = source[index, top : top + pool, left : left + pool].astype(float)
            np.testing.assert_array_equal(data.train.inputs[row, step], np.floor(square.mean((0, 1)) + 0.5).squeeze())
    assert images.pooled(np.array([[[1, 2], [1, 2]]], np.uint8), 2).tolist() == [[[2]]]  # 1.5
    assert images.pooled(np.full((1, 4, 4), 255, np.uint8), 4).tolist() == [[[255]]]


def test_fewer_examples_are_the_first_ones(tmp_path):
    given = COPIES["batches"](tmp_path / "given")
    options = CifarOptions(train=7, validation=99, test=3)
    whole, _ = prepared(tmp_path / "data/whole/x", given)
    few, table = prepared(tmp_path / "data/few/x", given, options=options)
    assert asdict(table.counts) == {"train": 7, "validation": 5, "test": 3}
    for split in SPLITS:
        count = asdict(table.counts)[split]
        np.testing.assert_array_equal(getattr(few, split).inputs, getattr(whole, split).inputs[:count])


def test_the_baseline_is_the_commonest_label_of_the_training_split(tmp_path):
    data, _ = prepared(tmp_path / "data/x", COPIES["batches"](tmp_path / "given"))
    train, test = data.train.labels.tolist(), data.test.labels.tolist()
    best = max(range(10), key=lambda label: (train.count(label), -label))
    assert data.baselines == {"majority class": test.count(best) / TEST}


def test_more_images_than_a_block_are_written(tmp_path, monkeypatch):
    given = COPIES["batches"](tmp_path / "given")
    whole, _ = prepared(tmp_path / "data/whole/x", given)
    monkeypatch.setattr(images.Cifar, "block", 7)
    assert prepared(tmp_path / "data/blocks/x", given)[0].sha256 == whole.sha256


def test_the_published_archive_is_what_is_expected_by_default(tmp_path):
    with pytest.raises(LrurunError) as caught:
        store.prepare(SCifar(), CifarOptions(), tmp_path / "data/x", from_path=COPIES["batches"](tmp_path / "given"))
    assert "data_batch_1.bin: expected 10,000 records of 3,073 bytes, found 30,730 bytes" in caught.value.message


@pytest.mark.parametrize("size", [0, 3073 * 10 - 1, 3073 * 11])
def test_batches_of_another_size_are_refused(tmp_path, given, size):
    path = given / "data_batch_3.bin"
    path.write_bytes((path.read_bytes() * 2)[:size])
    error = refused(tmp_path, given)
    assert error.message == f"{path}: expected 10 records of 3,073 bytes, found {size:,} bytes"
    assert error.hint == HINT


def test_labels_that_are_none_are_refused(tmp_path, given):
    content = bytearray(FILES["test_batch.bin"])
    content[3073 * 4] = 10
    (given / "test_batch.bin").write_bytes(content)
    error = refused(tmp_path, given)
    assert error.message == f"{given}/test_batch.bin: record 4: expected a label of 0 to 9, found 10"
    assert error.hint == HINT


def test_missing_batches_are_named(tmp_path, given):
    (given / "data_batch_1.bin").unlink()
    (given / "test_batch.bin").unlink()
    error = refused(tmp_path, given)
    missing = "data_batch_1.bin and test_batch.bin missing"
    assert (error.message, error.hint) == (f"{given}: {missing}", HINT)
    archive = formats.tar(
        tmp_path / "x.tar.gz",
        {"cifar-10-batches-py/data_batch_1": b"", "b/data_batch_2.bin": FILES["data_batch_2.bin"]},
    )
    error = refused(tmp_path / "again", archive)
    assert error.message.startswith(f"{archive}: b/data_batch_1.bin and b/data_batch_3.bin and ")


def test_a_wrong_record_in_an_archive_is_named_with_its_member(tmp_path):
    files = formats.cifar_archive(FILES | {"data_batch_5.bin": b"\0" * 3073})
    path = formats.tar(tmp_path / "given/cifar-10-binary.tar.gz", files)
    error = refused(tmp_path, path.parent)
    member = "cifar-10-batches-bin/data_batch_5.bin"
    assert error.message == f"{path}: {member}: expected 10 records of 3,073 bytes, found 3,073 bytes"


def harmed(place: Path, change) -> Path:
    """A TFDS copy whose training examples went through `change`."""
    splits = {"train": change(examples("train")), "test": examples("test")}
    return formats.tfds_tfrecord(place, "cifar10", "3.0.2", formats.CIFAR_FEATURES, splits)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda rows: rows[1:], "expected 50 examples, found 49"),
        (lambda rows: rows[:-1] + rows[:1], "1 of 50 images are missing, others occur twice"),
        (lambda rows: [{**rows[0], "id": b"test_00001"}, *rows[1:]], "example 0: expected an id like train_00049"),
        (lambda rows: [*rows[:-1], {**rows[0], "id": b"train_00050"}], "example 49: expected an id like train_00049"),
        (lambda rows: [{**rows[0], "image": b""}, *rows[1:]], "example 0: the image is empty (0 bytes)"),
        (
            lambda rows: [{**rows[0], "image": rows[0]["image"][:900]}, *rows[1:]],
            "example 0: not a PNG image, or a damaged",
        ),
        (lambda rows: [{**rows[0], "label": 10}, *rows[1:]], "example 0: expected a label of 0 to 9, found 10"),
        (lambda rows: [{**rows[0], "label": -1}, *rows[1:]], "example 0: expected a label of 0 to 9, found -1"),
        (
            lambda rows: [{**rows[0], "image": formats.png(PIXELS[0, :31])}, *rows[1:]],
            "example 0: expected 32 x 32 pixels, found 31 x 32",
        ),
    ],
)
def test_a_tfds_copy_that_is_not_cifar10_is_refused(tmp_path, change, message):
    given = harmed(tmp_path / "given", change)
    error = refused(tmp_path, given)
    assert error.message.startswith(f"{given}: train: {message}")


def test_a_cut_off_tfds_copy_is_named(tmp_path):
    given = tfrecord(tmp_path / "given")
    path = given / "cifar10-test.tfrecord-00002-of-00003"
    os.truncate(path, path.stat().st_size - 100)
    error = refused(tmp_path, given)
    assert error.message == f"{path}: truncated in record 3"


def test_a_copy_that_vanishes_while_it_is_read_is_named(tmp_path, given, monkeypatch):
    def vanish(*words: object) -> None:
        shutil.rmtree(given, ignore_errors=True)

    with pytest.raises(LrurunError) as caught:
        store.prepare(COLOUR, CifarOptions(), tmp_path / "data/x", from_path=given, progress=vanish)
    assert caught.value.message.startswith(f"{given}: ")
    assert not list((tmp_path / "data").glob("*"))
