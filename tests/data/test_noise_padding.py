"""npDigits and npCIFAR: images row by row, then the noise that another generator gives, the same in every epoch."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from itertools import count, islice
from pathlib import Path
from statistics import NormalDist

import numpy as np
import pytest

from lrurun import data as tasks
from lrurun.data import store
from lrurun.data.downloaded.images import SCifar
from lrurun.data.downloaded.np_cifar import NpCifar, NpCifarOptions
from lrurun.data.generated import digits
from lrurun.data.generated.np_digits import NpDigitsOptions
from lrurun.data.task import SPLITS, Data
from lrurun.decoding import convert
from lrurun.errors import UsageError
from tests.harness import formats

DIGITS = tasks.get("npDigits")
TRAIN, TEST = 50, 10
RANDOM = np.random.RandomState(0)
PIXELS = RANDOM.randint(0, 256, (TRAIN + TEST, 32, 32, 3)).astype(np.uint8)
FILES = formats.cifar(PIXELS, RANDOM.randint(0, 10, TRAIN + TEST), TRAIN)
MEAN, STD = (0.4914, 0.4822, 0.4465), (0.247, 0.243, 0.261)


def philox(seed: int, split: int, row: int) -> Iterator[int]:
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


def made(folder: Path, **options: int) -> Data:
    chosen = NpDigitsOptions(**options)
    store.prepare(DIGITS, chosen, folder / "npDigits")
    return store.load(DIGITS, chosen, folder / "npDigits")


def made_cifar(folder: Path, name: str, **options: int) -> Data:
    task, chosen = NpCifar(TRAIN, TEST), NpCifarOptions(**options)
    given = formats.tree(folder / f"given-{name}", FILES)
    store.prepare(task, chosen, folder / name, from_path=given)
    return store.load(task, chosen, folder / name)


def test_a_digit_is_its_rows_and_then_the_noise_of_another_generator(tmp_path: Path) -> None:
    data = made(tmp_path, length=21, noise=5, seed=7)
    assert (data.spec.length, data.spec.features, data.spec.scale) == (21, 8, 1 / 16)
    for number, (name, split) in enumerate(digits.splits().items()):
        loaded = getattr(data, name)
        assert loaded.inputs.shape == (len(split.labels), 21, 8)
        np.testing.assert_array_equal(loaded.inputs[:, :8].reshape(-1, 64), split.inputs)
        np.testing.assert_array_equal(loaded.labels, split.labels)
        for row in (0, 1, len(split.labels) - 1):
            bits = islice(philox(7, number, row), 13 * 8)
            assert loaded.inputs[row, 8:].ravel().tolist() == [6 * value // 65536 for value in bits]


def test_noise_is_uniform_and_differs_between_examples_splits_and_seeds(tmp_path: Path) -> None:
    data = made(tmp_path / "a", length=40, noise=3)
    train = data.train.inputs[:, 8:]
    shares = np.bincount(train.ravel(), minlength=4) / train.size
    assert shares == pytest.approx([0.25] * 4, abs=0.005)
    other = made(tmp_path / "b", length=40, noise=3, seed=1)
    rows = np.concatenate([getattr(one, split).inputs[:, 8:] for one in (data, other) for split in SPLITS])
    assert len(np.unique(rows.reshape(len(rows), -1), axis=0)) == len(rows) == 2 * 1797
    np.testing.assert_array_equal(other.train.inputs[:, :8], data.train.inputs[:, :8])


def test_fewer_examples_and_steps_are_the_first_ones(tmp_path: Path) -> None:
    whole = made(tmp_path / "a", length=40)
    few = made(tmp_path / "b", length=17, train=5, test=3)
    np.testing.assert_array_equal(few.train.inputs, whole.train.inputs[:5, :17])
    np.testing.assert_array_equal(few.test.inputs, whole.test.inputs[:3, :17])
    np.testing.assert_array_equal(few.validation.inputs, whole.validation.inputs[:, :17])


def test_noise_may_be_absent_or_of_any_level(tmp_path: Path) -> None:
    assert made(tmp_path / "a", length=30, noise=0, train=9).train.inputs[:, 8:].max() == 0
    loud = made(tmp_path / "b", length=30, noise=255, train=99).train.inputs[:, 8:]
    assert (loud.min(), loud.max()) == (0, 255)
    assert made(tmp_path / "c", length=8).train.inputs.shape == (1197, 8, 8)


def test_version_1_is_these_bytes_for_ever(tmp_path: Path) -> None:
    # other bytes are another version: change NpDigits.version, which is in every fingerprint, not this digest
    assert DIGITS.version == "1"
    data = made(tmp_path, length=32, noise=3)
    digest = hashlib.sha256(b"".join(getattr(data, split).inputs.tobytes() for split in SPLITS)).hexdigest()
    assert digest == "94268f1b33c27337b5f572d19111c94e818842dbf2256e2775e8deea7c80d7cc"


def test_the_source_names_generator_version_and_seed(tmp_path: Path) -> None:
    options = NpDigitsOptions(seed=3)
    table = store.prepare(DIGITS, options, tmp_path / "npDigits")
    generator = {"name": "lrurun noise", "version": "1", "seed": 3}
    assert (table.kind, table.generator) == ("generated", generator)
    assert table.source == "scikit-learn load_digits, then lrurun noise 1, seed 3"
    given = formats.tree(tmp_path / "given", FILES)
    cifar = NpCifarOptions(length=33, seed=3)
    table = store.prepare(NpCifar(TRAIN, TEST), cifar, tmp_path / "npCIFAR", from_path=given)
    assert (table.kind, table.generator) == ("folder", generator)
    assert table.source == f"the folder {given}, then lrurun noise 1, seed 3"


@pytest.mark.parametrize("options", [{"length": 7}, {"noise": -1}, {"noise": 256}, {"seed": -1}, {"pool": 2}])
def test_settings_that_are_none_are_refused(options: dict[str, int]) -> None:
    with pytest.raises(UsageError):
        convert(options, NpDigitsOptions, "data")


def test_the_picture_of_an_example_has_its_rows(tmp_path: Path) -> None:
    data = made(tmp_path, length=16)
    picture = DIGITS.example(data.spec, data.train, 0, ())
    assert isinstance(picture, np.ndarray)
    assert (picture.shape, picture.dtype, picture[:8].max()) == ((16, 8), np.uint8, 255)


def test_an_image_is_its_rows_in_colour_and_then_normal_noise(tmp_path: Path) -> None:
    data = made_cifar(tmp_path, "npCIFAR", length=40, seed=2)
    spec = data.spec
    assert (spec.length, spec.features, spec.scale) == (40, 96, 1 / 255)
    assert (spec.mean, spec.std) == (MEAN * 32, STD * 32)
    store.prepare(SCifar(TRAIN, TEST), SCifar.options(), tmp_path / "s", from_path=tmp_path / "given-npCIFAR")
    plain = store.load(SCifar(TRAIN, TEST), SCifar.options(), tmp_path / "s")
    for number, split in enumerate(SPLITS):
        inputs = getattr(data, split).inputs
        assert inputs.dtype == np.int16
        np.testing.assert_array_equal(inputs[:, :32].reshape(-1, 1024, 3), getattr(plain, split).inputs)
        np.testing.assert_array_equal(getattr(data, split).labels, getattr(plain, split).labels)
        bits = islice(philox(2, number, 4), 8 * 96)
        normal = [NormalDist().inv_cdf((value + 0.5) / 65536) for value in bits]
        wanted = [round(255 * (MEAN[k % 3] + STD[k % 3] * value)) for k, value in enumerate(normal)]
        assert inputs[4, 32:].ravel().tolist() == wanted
    standardised = (data.train.inputs[:, 32:] * spec.scale - np.array(spec.mean)) / np.array(spec.std)
    assert (standardised.mean(), standardised.std()) == (pytest.approx(0, abs=0.02), pytest.approx(1, abs=0.02))


def test_smaller_images_have_narrower_rows_and_noise(tmp_path: Path) -> None:
    data = made_cifar(tmp_path, "x", length=50, pool=2)
    assert (data.spec.features, data.spec.mean) == (48, MEAN * 16)
    square = PIXELS[TRAIN, :2, 2:4].astype(float).mean((0, 1))
    np.testing.assert_array_equal(data.test.inputs[0, 0, 3:6], np.floor(square + 0.5))
    picture = NpCifar().example(data.spec, data.test, 0, ())
    assert isinstance(picture, np.ndarray)
    assert (picture.shape, picture.dtype) == ((50, 16, 3), np.uint8)
    np.testing.assert_array_equal(picture[:16].reshape(16, 48), data.test.inputs[0, :16])


def test_more_images_than_a_block_have_the_same_noise(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    whole = made_cifar(tmp_path, "whole", length=35)
    monkeypatch.setattr(NpCifar, "block", 7)
    assert made_cifar(tmp_path, "blocks", length=35).sha256 == whole.sha256
