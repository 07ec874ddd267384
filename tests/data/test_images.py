"""Images: sCIFAR and Image pixel by pixel from every copy, npDigits and npCIFAR with their noise, copies refused."""

from __future__ import annotations

import hashlib
import os
import pickle
import shutil
from itertools import count, islice
from statistics import NormalDist

import numpy as np
import pytest
from msgspec.structs import asdict

from lrurun.data import task_data, tasks
from lrurun.data.downloaded import images
from lrurun.data.downloaded.images import CifarOptions, Image, ImageOptions, SCifar
from lrurun.data.downloaded.np_cifar import NpCifar, NpCifarOptions
from lrurun.data.splits import hashed_order, tfds_order, torch_permutation
from lrurun.data.synthetic import digits
from lrurun.data.synthetic.np_digits import NpDigitsOptions
from lrurun.data.task import SPLITS
from lrurun.errors import LrurunError
from tests.harness import formats

TRAIN, TEST = 50, 10
COLOUR, GRAY, NOISY = SCifar(TRAIN, TEST), Image(TRAIN, TEST), NpCifar(TRAIN, TEST)
DIGITS = tasks.get("npDigits")
RANDOM = np.random.RandomState(0)
PIXELS = RANDOM.randint(0, 256, (TRAIN + TEST, 32, 32, 3)).astype(np.uint8)
LABELS = RANDOM.randint(0, 10, TRAIN + TEST)
FILES = formats.cifar(PIXELS, LABELS, TRAIN)
PICKLED = formats.cifar_pickled(FILES)
HINT = "give an undamaged cifar-10-binary.tar.gz or cifar-10-python.tar.gz, or omit --from to download one"
MEAN, STD = (0.4914, 0.4822, 0.4465), (0.247, 0.243, 0.261)


def torch_order(n, seed):
    """What PyTorch's source says, one step after the other."""
    generator = np.random.MT19937()
    generator._legacy_seeding(seed)
    order = list(range(n))
    for place in range(n - 1):
        other = place + int(generator.random_raw()) % (n - place)
        order[place], order[other] = order[other], order[place]
    return order


def md5_order(n, split):
    return sorted(range(n), key=lambda key: int(hashlib.md5(f"{split}{key}".encode()).hexdigest(), 16))


def examples(split, ids=True):
    """What TFDS holds of a split, in its order."""
    first, number = (0, TRAIN) if split == "train" else (TRAIN, TEST)
    return [
        ({"id": f"{split}_{row:05d}".encode()} if ids else {})
        | {"image": formats.png(PIXELS[first + row]), "label": int(LABELS[first + row])}
        for row in md5_order(number, split)
    ]


def tfrecord(place, ids=True, change=list):
    features = {name: one for name, one in formats.CIFAR_FEATURES.items() if ids or name != "id"}
    splits = {"train": change(examples("train", ids)), "test": examples("test", ids)}
    return formats.tfds_tfrecord(place / "cifar10/3.0.2", "cifar10", "3.0.2", features, splits, shards=3)


def array_record(place):
    splits = {s: enumerate(sorted(examples(s), key=lambda example: example["id"])) for s in ("train", "test")}
    return formats.tfds_array_record(place, "cifar10", {}, splits).parent.parent


def repickled(protocol):
    """The batches as Python 3 writes what it has loaded."""
    return {name: pickle.dumps(pickle.loads(content, encoding="bytes"), protocol) for name, content in PICKLED.items()}


COPIES = {
    "archive": lambda place: formats.tar(place / "x.tar", formats.cifar_archive(FILES), "w"),
    "folder of the archive": lambda place: (
        formats.tar(place / "cifar-10-binary.tar.gz", formats.cifar_archive(FILES)).parent
    ),
    "batches": lambda place: formats.tree(place / "any", FILES),
    "folder of the batches": lambda place: formats.tree(place, formats.cifar_archive(FILES)),
    "pickled archive": lambda place: formats.tar(place / "x.tar", formats.cifar_pickled_archive(PICKLED), "w"),
    "folder of the pickled archive": lambda place: (
        formats.tar(place / "cifar-10-python.tar.gz", formats.cifar_pickled_archive(PICKLED)).parent
    ),
    "pickled batches": lambda place: formats.tree(place / "any", PICKLED),
    "folder of torchvision": lambda place: formats.tree(
        place, formats.cifar_pickled_archive(PICKLED) | {"cifar-10-python.tar.gz": b"never read"}
    ),
    "pickled beside an incomplete folder": lambda place: formats.tree(
        place, formats.cifar_pickled_archive(PICKLED) | {"cifar-10-batches-bin/test_batch.bin": b""}
    ),
    "pickles of Python 3": lambda place: formats.tree(place / "any", repickled(2)),
    "pickles in its protocol 4": lambda place: formats.tree(place / "any", repickled(4)),
    "tfrecord": tfrecord,
    "tfrecord without ids": lambda place: tfrecord(place, ids=False).parent,
    "array_record": array_record,
}
SOURCES = {
    "archive": "the archive given/x.tar",
    "folder of the archive": "the archive given/cifar-10-binary.tar.gz",
    "batches": "the folder given/any",
    "folder of the batches": "the folder given/cifar-10-batches-bin",
    "pickled archive": "the archive given/x.tar",
    "folder of the pickled archive": "the archive given/cifar-10-python.tar.gz",
    "pickled batches": "the folder given/any",
    "folder of torchvision": "the folder given/cifar-10-batches-py",
    "pickled beside an incomplete folder": "the folder given/cifar-10-batches-py",
    "pickles of Python 3": "the folder given/any",
    "pickles in its protocol 4": "the folder given/any",
    "tfrecord": "TFDS cifar10 3.0.2, tfrecord, given/cifar10/3.0.2",
    "tfrecord without ids": "TFDS cifar10 3.0.2, tfrecord, given/cifar10/3.0.2",
    "array_record": "TFDS cifar10 3.0.2, array_record, given/cifar10/3.0.2",
}


@pytest.fixture
def given(tmp_path):
    """The unpacked batches, to be harmed."""
    return formats.tree(tmp_path / "given", FILES)


def refused(tmp_path, given):
    return formats.refused(COLOUR, CifarOptions(), tmp_path, given)


def test_orders_are_those_of_torch_and_tfds():
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
    order = tfds_order(50_000, "train")
    assert order[:4].tolist() == [16399, 1680, 47917, 17307]
    assert sorted(order.tolist()) == list(range(50_000))
    assert tfds_order(999, "test").tolist() == md5_order(999, "test")
    by_hash = sorted(range(3), key=lambda row: hashlib.md5(b"hard" + b"bac"[row : row + 1]).digest())
    assert hashed_order(["b", "a", "c"], "hard").tolist() == by_hash


@pytest.mark.parametrize("copy", COPIES)
def test_every_copy_gives_every_pixel_and_label_at_its_place(tmp_path, copy):
    given = COPIES[copy](tmp_path / "given")
    for split, order in {"s4": torch_order(TRAIN, 42), "lra": md5_order(TRAIN, "train")}.items():
        data, table = formats.prepared(COLOUR, tmp_path / split, given, CifarOptions(split=split))
        rows = {"train": order[:45], "validation": order[45:], "test": list(range(TRAIN, TRAIN + TEST))}
        for name in SPLITS:
            loaded = getattr(data, name)
            np.testing.assert_array_equal(loaded.inputs, PIXELS[rows[name]].reshape(-1, 1024, 3))
            np.testing.assert_array_equal(loaded.labels, LABELS[rows[name]])
            assert loaded.inputs.dtype == loaded.labels.dtype == np.uint8
        assert (table.kind, table.source.replace(f"{tmp_path}/", "")) == ("folder", SOURCES[copy])
        train, test = data.train.labels.tolist(), data.test.labels.tolist()
        best = max(range(10), key=lambda label: (train.count(label), -label))
        assert data.baselines == {"majority class": test.count(best) / TEST}


def test_gray_as_long_range_arena_and_pillow_have_it(tmp_path, given):
    from PIL import Image as Pillow

    weighted = (PIXELS.astype(np.float64) @ np.array([0.2989, 0.587, 0.114]) / 255 * 255.5).astype(np.uint8)
    pillow = np.stack([np.asarray(Pillow.fromarray(image).convert("L")) for image in PIXELS])
    for gray, wanted, split, order in (
        ("lra", weighted, "lra", md5_order(TRAIN, "train")),
        ("pil", pillow, "s4", torch_order(TRAIN, 42)),
    ):
        data, _ = formats.prepared(GRAY, tmp_path / gray, given, ImageOptions(gray=gray, split=split))
        np.testing.assert_array_equal(data.train.inputs, wanted[order[:45]].reshape(-1, 1024))
        np.testing.assert_array_equal(data.validation.inputs, wanted[order[45:]].reshape(-1, 1024))
        np.testing.assert_array_equal(data.test.inputs, wanted[TRAIN:].reshape(-1, 1024))
        np.testing.assert_array_equal(data.train.labels, LABELS[order[:45]])
    colours = np.stack(np.meshgrid(*[np.arange(0, 256, 3, np.uint8)] * 3), -1).reshape(86, -1, 3)
    np.testing.assert_array_equal(images.pil_gray(colours), np.asarray(Pillow.fromarray(colours, "RGB").convert("L")))


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


@pytest.mark.parametrize(("task", "pool"), [(COLOUR, 2), (GRAY, 4)])
def test_pooled_pixels_are_means_rounded_half_up(tmp_path, given, task, pool):
    data, table = formats.prepared(task, tmp_path / "out", given, task.options(pool=pool, split="s4"))
    side = 32 // pool
    assert (data.spec.length, table.options["pool"]) == (side * side, pool)
    source = PIXELS if task is COLOUR else images.lra_gray(PIXELS)[..., None]
    for row, index in enumerate(torch_order(TRAIN, 42)[:3]):
        for step in (0, 1, side, side * side - 1):
            top, left = step // side * pool, step % side * pool
            square = source[index, top : top + pool, left : left + pool].astype(float)
            np.testing.assert_array_equal(data.train.inputs[row, step], np.floor(square.mean((0, 1)) + 0.5).squeeze())
    assert images.pooled(np.array([[[1, 2], [1, 2]]], np.uint8), 2).tolist() == [[[2]]]  # 1.5
    assert images.pooled(np.full((1, 4, 4), 255, np.uint8), 4).tolist() == [[[255]]]


def test_fewer_examples_are_the_first_ones_and_blocks_change_nothing(tmp_path, given, monkeypatch):
    whole, _ = formats.prepared(COLOUR, tmp_path / "whole", given)
    few, table = formats.prepared(COLOUR, tmp_path / "few", given, CifarOptions(train=7, validation=99, test=3))
    assert asdict(table.counts) == {"train": 7, "validation": 5, "test": 3}
    for split, number in asdict(table.counts).items():
        np.testing.assert_array_equal(getattr(few, split).inputs, getattr(whole, split).inputs[:number])
    noisy, _ = formats.prepared(NOISY, tmp_path / "noisy", given, NpCifarOptions(length=35))
    monkeypatch.setattr(images.Cifar, "block", 7)
    assert formats.prepared(COLOUR, tmp_path / "blocks", given)[0].sha256 == whole.sha256
    again, _ = formats.prepared(NOISY, tmp_path / "noisy blocks", given, NpCifarOptions(length=35))
    assert again.sha256 == noisy.sha256


def test_the_published_archive_is_what_is_expected_by_default(tmp_path, given):
    message, _ = formats.refused(SCifar(), CifarOptions(), tmp_path, given)
    assert message == "./given/data_batch_1.bin: expected 10,000 records of 3,073 bytes, found 30,730 bytes"


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"data_batch_3.bin": b""}, "/data_batch_3.bin: expected 10 records of 3,073 bytes, found 0 bytes"),
        (
            {"data_batch_3.bin": bytes(30_731)},
            "/data_batch_3.bin: expected 10 records of 3,073 bytes, found 30,731 bytes",
        ),
        (
            {"test_batch.bin": bytes(3073 * 4) + b"\x0a" + bytes(3073 * 6 - 1)},
            "/test_batch.bin: record 4: expected a label of 0 to 9, found 10",
        ),
        ({"data_batch_1.bin": None, "test_batch.bin": None}, ": data_batch_1.bin and test_batch.bin missing"),
    ],
)
def test_batches_that_are_not_cifar10_are_refused(tmp_path, given, changes, message):
    for name, content in changes.items():
        (given / name).unlink() if content is None else (given / name).write_bytes(content)
    assert refused(tmp_path, given) == (f"./given{message}", HINT)
    if None not in changes.values():
        archive = formats.tar(tmp_path / "a/cifar-10-binary.tar.gz", formats.cifar_archive(FILES | changes))
        member = "./a/cifar-10-binary.tar.gz: cifar-10-batches-bin"
        assert refused(tmp_path, archive.parent) == (member + message, HINT)


def changed(name="data_batch_3", **entries):
    """The pickled batches with other entries in one of them; None removes an entry."""
    table = pickle.loads(PICKLED[name], encoding="latin1") | entries
    kept = {key: value for key, value in table.items() if value is not None}
    return PICKLED | {name: formats.pickle_of_python_2(kept)}


ROWS = np.zeros((10, 3072), np.uint8)


@pytest.mark.parametrize(
    ("files", "message"),
    [
        (changed(data=ROWS[:9]), "data_batch_3: data: expected an array of shape (10, 3072), found (9, 3072)"),
        (changed(data=ROWS[:, :-1]), "data_batch_3: data: expected an array of shape (10, 3072), found (10, 3071)"),
        (changed(data="text"), "data_batch_3: data: expected an array of shape (10, 3072), found bytes"),
        (changed(data=None), "data_batch_3: expected data and labels, found 'batch_label', 'filenames', 'labels'"),
        (changed(labels=[1] * 9), "data_batch_3: labels: expected 10 whole numbers, found 9 of them"),
        (changed(labels=["1"] * 10), "data_batch_3: labels: expected 10 whole numbers, found 10 of them"),
        (changed(labels=ROWS), "data_batch_3: labels: expected 10 whole numbers, found ndarray"),
        (changed(labels=[3] * 4 + [10] * 6), "data_batch_3: record 4: expected a label of 0 to 9, found 10"),
        (changed(labels=[3] * 9 + [-1]), "data_batch_3: record 9: expected a label of 0 to 9, found -1"),
        (changed(fine_labels=[70] * 10), "data_batch_3: has the labels of CIFAR-100, not of CIFAR-10"),
        (
            changed("test_batch", data=ROWS[:9]),
            "test_batch: data: expected an array of shape (10, 3072), found (9, 3072)",
        ),
    ],
)
def test_pickled_batches_that_are_not_cifar10_are_refused(tmp_path, files, message):
    given = formats.tree(tmp_path / "given", files)
    assert refused(tmp_path, given) == (f"./given/{message}", HINT)


def test_pickled_batches_that_are_missing_or_truncated_are_named(tmp_path):
    some = {name: content for name, content in PICKLED.items() if name not in ("data_batch_2", "data_batch_4")}
    for place in (tmp_path / "given", tmp_path / "given/cifar-10-batches-py"):
        formats.tree(place, some)
        assert refused(tmp_path, place) == (
            "./given: data_batch_2 and data_batch_4 missing".replace(
                "./given", f".{str(place).removeprefix(str(tmp_path))}"
            ),
            HINT,
        )
        shutil.rmtree(place)
    archive = formats.tar(tmp_path / "x.tar.gz", formats.cifar_pickled_archive(some))
    folder = "cifar-10-batches-py"
    assert refused(tmp_path, archive)[0] == f"./x.tar.gz: {folder}/data_batch_2 and {folder}/data_batch_4 missing"
    for cut in (1, 100, 15_000, 30_700):
        given = formats.tree(tmp_path / "given", PICKLED | {"data_batch_5": PICKLED["data_batch_5"][:-cut]})
        message, hint = refused(tmp_path, given)
        assert message.startswith("./given/data_batch_5: not a pickle, or a damaged one: ")
        assert hint == "the copy is incomplete or damaged: fetch it again"


FINE = formats.pickle_of_python_2({"fine_labels": [70], "data": ROWS[:1]})


@pytest.mark.parametrize(
    ("folder", "names"),
    [("cifar-100-python", ("meta", "train", "test")), ("cifar-100-binary", ("train.bin", "test.bin", "fine.txt"))],
)
def test_cifar_100_is_called_so(tmp_path, folder, names):
    files = {f"{folder}/{name}": FINE for name in names}
    place = formats.tree(tmp_path / "given", files)
    archive = formats.tar(tmp_path / f"{folder}.tar.gz", files)
    for given, shown in (
        (place, f"./given/{folder}"),
        (place / folder, f"./given/{folder}"),
        (archive, f"./{folder}.tar.gz: {folder}"),
    ):
        message, hint = refused(tmp_path, given)
        assert message == f"{shown}: this is CIFAR-100, not CIFAR-10"
        assert hint.startswith("give cifar-10-binary.tar.gz or cifar-10-python.tar.gz, the unpacked folder ")
    formats.tar(place / "cifar-10-python.tar.gz", formats.cifar_pickled_archive(PICKLED))  # beside CIFAR-10
    formats.prepared(COLOUR, tmp_path / "out", place)
    formats.tree(place, formats.cifar_pickled_archive(PICKLED))
    formats.prepared(COLOUR, tmp_path / "again", place)


@pytest.mark.parametrize("name", ["plain_text/train-00000-of-00001.parquet", "train/0000.parquet", "train.parquet"])
def test_parquet_files_are_refused_by_name(tmp_path, name):
    message, hint = refused(tmp_path, formats.tree(tmp_path / "given", {name: b"PAR1"}))
    assert message.startswith("./given: Parquet files of CIFAR-10 are not read: their rows do not say which image")
    assert hint.startswith("give cifar-10-binary.tar.gz or cifar-10-python.tar.gz, ")


@pytest.mark.parametrize("task", [GRAY, NOISY])
def test_other_tasks_of_cifar10_read_pickles(tmp_path, given, task):
    pickled = formats.tree(tmp_path / "pickled", formats.cifar_pickled_archive(PICKLED))
    data, _ = formats.prepared(task, tmp_path / "out", pickled)
    assert data.sha256 == formats.prepared(task, tmp_path / "binary", given)[0].sha256


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda rows: rows[1:], "expected 50 examples, found 49"),
        (lambda rows: rows[:-1] + rows[:1], "1 of 50 images are missing, others occur twice"),
        (lambda rows: [{**rows[0], "id": b"test_00001"}, *rows[1:]], "example 0: expected an id like train_00049"),
        (lambda rows: [*rows[:-1], {**rows[0], "id": b"train_00050"}], "example 49: expected an id like train_00049"),
        (lambda rows: [{**rows[0], "image": b""}, *rows[1:]], "example 0: the image is empty (0 bytes)"),
        (lambda rows: [{**rows[0], "label": 10}, *rows[1:]], "example 0: expected a label of 0 to 9, found 10"),
        (
            lambda rows: [{**rows[0], "image": formats.png(PIXELS[0, :31])}, *rows[1:]],
            "example 0: expected 32 x 32 pixels, found 31 x 32",
        ),
    ],
)
def test_a_tfds_copy_that_is_not_cifar10_is_refused(tmp_path, change, message):
    given = tfrecord(tmp_path / "given", change=change)
    assert refused(tmp_path, given)[0].startswith(f"./given/cifar10/3.0.2: train: {message}")


def test_a_copy_that_is_cut_off_or_vanishes_while_it_is_read_is_named(tmp_path, given):
    path = tfrecord(tmp_path / "tfds") / "cifar10-test.tfrecord-00002-of-00003"
    os.truncate(path, path.stat().st_size - 100)
    assert refused(tmp_path, path.parent)[0] == f"./{path.relative_to(tmp_path)}: truncated in record 3"

    def vanish(*words: object) -> None:
        shutil.rmtree(given, ignore_errors=True)

    with pytest.raises(LrurunError) as caught:
        task_data.prepare(COLOUR, CifarOptions(), tmp_path / "data/x", from_path=given, progress=vanish)
    assert caught.value.message.startswith(f"{given}: ")
    assert not list((tmp_path / "data").glob("*"))


# npDigits and npCIFAR: images row by row, then noise, the same in every epoch


def philox(seed, split, row):
    """16 bits at a time of Philox 4x64-10, as its paper defines it, in whole numbers; counters begin with 1."""
    mask = 2**64 - 1
    for counter in count(1):
        a, b, c, d = counter, 0, 0, row
        key, other = seed, split
        for _ in range(10):
            first, second = 0xD2E7470EE14C6C93 * a, 0xCA5A826395121157 * c
            a, b, c, d = second >> 64 ^ b ^ key, second & mask, first >> 64 ^ d ^ other, first & mask
            key, other = key + 0x9E3779B97F4A7C15 & mask, other + 0xBB67AE8584CAA73B & mask
        for word in (a, b, c, d):
            yield from (word >> shift & 0xFFFF for shift in (0, 16, 32, 48))


def noisy_digits(folder, **options):
    return formats.prepared(DIGITS, folder, None, NpDigitsOptions(**options))[0]


def test_a_digit_is_its_rows_and_then_the_noise_of_another_generator(tmp_path):
    data = noisy_digits(tmp_path / "a", length=21, noise=5, seed=7)
    assert (data.spec.length, data.spec.features, data.spec.scale) == (21, 8, 1 / 16)
    for number, (name, split) in enumerate(digits.splits().items()):
        loaded = getattr(data, name)
        assert loaded.inputs.shape == (len(split.labels), 21, 8)
        np.testing.assert_array_equal(loaded.inputs[:, :8].reshape(-1, 64), split.inputs)
        np.testing.assert_array_equal(loaded.labels, split.labels)
        for row in (0, 1, len(split.labels) - 1):
            bits = islice(philox(7, number, row), 13 * 8)
            assert loaded.inputs[row, 8:].ravel().tolist() == [6 * value // 65536 for value in bits]
    picture = DIGITS.example(data.spec, data.train, 0, ())
    assert (picture.shape, picture.dtype, picture[:8].max()) == ((21, 8), np.uint8, 255)
    few = noisy_digits(tmp_path / "b", length=17, train=5, test=3, noise=5, seed=7)
    np.testing.assert_array_equal(few.train.inputs, data.train.inputs[:5, :17])
    np.testing.assert_array_equal(few.test.inputs, data.test.inputs[:3, :17])
    assert noisy_digits(tmp_path / "c", length=30, noise=0, train=9).train.inputs[:, 8:].max() == 0
    assert noisy_digits(tmp_path / "d", length=8).train.inputs.shape == (1197, 8, 8)
    loud = noisy_digits(tmp_path / "e", length=30, noise=255, train=99).train.inputs[:, 8:]
    assert (loud.min(), loud.max()) == (0, 255)


def test_noise_is_uniform_and_differs_between_examples_splits_and_seeds(tmp_path):
    # other bytes are another version: change NpDigits.version, which is in every fingerprint, not this digest
    data, other = (noisy_digits(tmp_path / str(seed), length=32, noise=3, seed=seed) for seed in (0, 1))
    digest = hashlib.sha256(b"".join(getattr(data, split).inputs.tobytes() for split in SPLITS)).hexdigest()
    assert (DIGITS.version, digest) == ("1", "94268f1b33c27337b5f572d19111c94e818842dbf2256e2775e8deea7c80d7cc")
    train = data.train.inputs[:, 8:]
    assert np.bincount(train.ravel(), minlength=4) / train.size == pytest.approx([0.25] * 4, abs=0.005)
    rows = np.concatenate([getattr(one, split).inputs[:, 8:] for one in (data, other) for split in SPLITS])
    assert len(np.unique(rows.reshape(len(rows), -1), axis=0)) == len(rows) == 2 * 1797


def test_the_source_names_generator_version_and_seed(tmp_path, given):
    generator = {"name": "lrurun noise", "version": "1", "seed": 3}
    for task, options, copy, kind, source in (
        (DIGITS, NpDigitsOptions(seed=3), None, "generated", "scikit-learn load_digits"),
        (NOISY, NpCifarOptions(length=33, seed=3), given, "folder", f"the folder {given}"),
    ):
        _, table = formats.prepared(task, tmp_path / kind, copy, options)
        assert (table.kind, table.generator) == (kind, generator)
        assert table.source == f"{source}, then lrurun noise 1, seed 3"


def test_an_image_is_its_rows_in_colour_and_then_normal_noise(tmp_path, given):
    data, _ = formats.prepared(NOISY, tmp_path / "out", given, NpCifarOptions(length=40, seed=2))
    spec = data.spec
    assert (spec.length, spec.features, spec.scale) == (40, 96, 1 / 255)
    assert (spec.mean, spec.std) == (MEAN * 32, STD * 32)
    plain, _ = formats.prepared(COLOUR, tmp_path / "plain", given)
    for number, split in enumerate(SPLITS):
        inputs = getattr(data, split).inputs
        assert inputs.dtype == np.int16
        np.testing.assert_array_equal(inputs[:, :32].reshape(-1, 1024, 3), getattr(plain, split).inputs)
        np.testing.assert_array_equal(getattr(data, split).labels, getattr(plain, split).labels)
        bits = islice(philox(2, number, 4), 8 * 96)
        normal = [NormalDist().inv_cdf((value + 0.5) / 65536) for value in bits]
        wanted = [round(255 * (MEAN[k % 3] + STD[k % 3] * value)) for k, value in enumerate(normal)]
        assert inputs[4, 32:].ravel().tolist() == wanted
    small, _ = formats.prepared(NOISY, tmp_path / "small", given, NpCifarOptions(length=50, pool=2))
    assert (small.spec.features, small.spec.mean) == (48, MEAN * 16)
    square = PIXELS[TRAIN, :2, 2:4].astype(float).mean((0, 1))
    np.testing.assert_array_equal(small.test.inputs[0, 0, 3:6], np.floor(square + 0.5))
    picture = NOISY.example(small.spec, small.test, 0, ())
    assert (picture.shape, picture.dtype) == ((50, 16, 3), np.uint8)
    np.testing.assert_array_equal(picture[:16].reshape(16, 48), small.test.inputs[0, :16])
