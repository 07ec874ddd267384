"""Folders that TFDS has prepared: examples are read as they are; what is truncated or damaged is named."""

from __future__ import annotations

import json
import os
import struct
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import lrurun
from lrurun.data import store
from lrurun.data.copies import tfds
from lrurun.errors import LrurunError
from tests.harness import formats

COPY = "the copy is incomplete or damaged: fetch it again"
EXAMPLES = [
    {"text": b"", "label": 0},
    {"text": "Ünder a gr\0en tree".encode(), "label": 1},
    {"text": b"x" * 5000, "label": -1},
]
FEATURES = {"text": formats.text_feature(), "label": formats.class_feature(2)}


def refused(call) -> LrurunError:
    with pytest.raises(LrurunError) as caught:
        call()
    assert "\n" not in caught.value.message
    return caught.value


def read(copy: tfds.Tfds, split: str, features: dict) -> list[dict]:
    return [example for _, example in copy.read(split, features, store.no_progress)]


def reviews(folder: Path, **more) -> Path:
    """tfrecord files in two shards."""
    splits = {"train": EXAMPLES * 2, "test": EXAMPLES[:1]}
    return formats.tfds_tfrecord(folder, "reviews", "1.0.0", FEATURES, splits, shards=2, **more)


def test_tfrecord_files_are_read_in_order(tmp_path):
    found = tfds.find(reviews(tmp_path), "reviews")
    assert (found.text, found.version, found.place) == (
        f"TFDS reviews 1.0.0, tfrecord, {tmp_path}",
        "1.0.0",
        tmp_path,
    )
    assert found.counts == {"train": 6, "test": 1}
    assert read(found, "train", {}) == EXAMPLES * 2
    assert read(found, "test", {}) == EXAMPLES[:1]


def test_array_record_files_are_read_in_order(tmp_path):
    import tensorflow_datasets

    features = {
        "text": tensorflow_datasets.features.Text(),
        "label": tensorflow_datasets.features.ClassLabel(num_classes=2),
    }
    examples = [(number, {"text": b"%d" % number, "label": number % 2}) for number in range(12)]
    formats.tfds_array_record(tmp_path, "letters", features, {"train": examples})
    found = tfds.find(tmp_path, "letters")
    assert (found.text, found.counts) == (f"TFDS letters 1.0.0, array_record, {found.place}", {"train": 12})
    letters = read(found, "train", {})
    assert sorted(letters, key=lambda one: int(one["text"])) == [example for _, example in examples]
    assert letters != [example for _, example in examples]  # TFDS shuffles


@pytest.mark.parametrize("below", ["", "1.0.0", "reviews/1.0.0", "reviews/plain/1.0.0"])
def test_a_tfds_folder_is_found_from_everywhere(tmp_path, below):
    folder = reviews(tmp_path / below)
    while folder != tmp_path.parent:
        assert tfds.find(folder, "reviews").place == tmp_path / below
        assert tfds.find(folder, "others") is None
        folder = folder.parent


def test_a_data_set_folder_is_found_from_inside(tmp_path, monkeypatch):
    reviews(tmp_path / "reviews/plain/1.0.0")
    monkeypatch.chdir(tmp_path / "reviews")
    assert tfds.find(Path("."), "reviews").counts["train"] == 6


def test_the_newest_version_is_taken(tmp_path):
    for version in ("9.0.0", "10.0.0", "9.1.0"):
        formats.tfds_tfrecord(tmp_path / f"reviews/{version}", "reviews", version, FEATURES, {"train": EXAMPLES})
    formats.tfds_tfrecord(tmp_path / "reviews/incomplete.XY_11.0.0", "reviews", "11.0.0", FEATURES, {"train": []})
    assert tfds.find(tmp_path, "reviews").version == "10.0.0"


def test_a_configuration_can_be_asked_for(tmp_path):
    reviews(tmp_path / "reviews/bytes/1.0.0", configName="bytes")
    reviews(tmp_path / "reviews/plain/1.0.0", configName="plain")
    assert tfds.find(tmp_path, "reviews", config="bytes").place == tmp_path / "reviews/bytes/1.0.0"
    assert tfds.find(tmp_path, "reviews", config="plain").place == tmp_path / "reviews/plain/1.0.0"
    error = refused(lambda: tfds.find(tmp_path, "reviews", config="words"))
    assert error.message.endswith(": another configuration of reviews")
    assert error.hint == "give a folder of reviews/words"


@pytest.mark.parametrize("cut", [1, 5, 20, 5000])
def test_a_truncated_tfrecord_file_is_named(tmp_path, cut):
    path = reviews(tmp_path) / "reviews-train.tfrecord-00001-of-00002"
    os.truncate(path, path.stat().st_size - cut)
    found = tfds.find(tmp_path, "reviews")
    error = refused(lambda: read(found, "train", {}))
    assert (error.message, error.hint) == (f"{path}: truncated in record 2", COPY)


def test_damaged_tfrecord_files_are_named(tmp_path):
    path = reviews(tmp_path) / "reviews-train.tfrecord-00000-of-00002"
    whole = path.read_bytes()
    found = tfds.find(tmp_path, "reviews")
    (length,) = struct.unpack("<Q", whole[:8])
    for content, message in [
        (whole[: length + 16], "expected 3 records, found 1"),
        (whole + whole[: length + 16], "expected 3 records, found 4"),
        (formats.tfrecord([b"\xff" * 30] * 3), "record 0 of train: "),
    ]:
        path.write_bytes(content)
        error = refused(lambda: read(found, "train", {}))
        assert error.message.startswith(f"{path}: {message}")
    path.unlink()
    error = refused(lambda: read(found, "train", {}))
    assert error.message == f"{path}: named in dataset_info.json, but missing"
    error = refused(lambda: read(found, "validation", {}))
    assert error.message == f"{tmp_path}: no split 'validation' among train, test"


@pytest.mark.parametrize("share", [0, 0.3, 0.9])
def test_a_truncated_array_record_file_is_named(tmp_path, share):
    import tensorflow_datasets

    features = {"text": tensorflow_datasets.features.Text()}
    random = np.random.RandomState(0)
    examples = [(number, {"text": random.bytes(9000).hex()}) for number in range(40)]
    (path,) = formats.tfds_array_record(tmp_path, "letters", features, {"train": examples}).glob("*array_record*")
    os.truncate(path, int(share * path.stat().st_size))
    error = refused(lambda: read(tfds.find(tmp_path, "letters"), "train", {}))
    assert error.message.startswith(f"{path}: example 0 of train: ")
    assert error.hint == COPY


def test_descriptions_that_cannot_be_used_are_named(tmp_path):
    file = reviews(tmp_path) / "dataset_info.json"
    table = json.loads(file.read_text())
    file.write_text(json.dumps(table | {"fileFormat": "riegeli"}))
    error = refused(lambda: tfds.find(tmp_path, "reviews"))
    assert error.message == f"{tmp_path}: the data are in riegeli files, which cannot be read"
    assert error.hint == "prepare them with TFDS as one of: array_record, tfrecord"
    file.write_text(json.dumps(table)[:50])
    assert refused(lambda: tfds.find(tmp_path, "reviews")).message.startswith(
        f"{file}: not a description of a data set: "
    )
    file.write_text('{"name": "reviews"}')
    error = refused(lambda: tfds.find(tmp_path, "reviews"))
    assert error.message == f"{file}: not a description of a data set: Object missing required field `version`"
    file.write_text(json.dumps(table))
    (tmp_path / "features.json").unlink()
    error = refused(lambda: read(tfds.find(tmp_path, "reviews"), "train", {}))
    assert error.message.startswith(f"{tmp_path}: TFDS cannot read it: ")


def test_a_tfds_folder_runs_and_reads_nothing_else(tmp_path, monkeypatch):
    """TFDS imports the module of any class that the description of the features names."""
    evil = tmp_path / "modules"
    evil.mkdir()
    (evil / "evil_features.py").write_text("raise SystemExit('run')")
    monkeypatch.syspath_prepend(str(evil))
    folder = reviews(tmp_path / "data")
    features, info = folder / "features.json", folder / "dataset_info.json"
    plain, described = features.read_text(), json.loads(info.read_text())
    table = json.loads(plain)
    table["featuresDict"]["features"]["text"]["pythonClassName"] = "evil_features.Text"
    features.write_text(json.dumps(table))
    error = refused(lambda: read(tfds.find(folder, "reviews"), "train", {}))
    assert error.message == f"{features}: names 'evil_features.Text', which is not a feature of TFDS"
    features.write_text(plain)

    for split in described["splits"]:
        split["filepathTemplate"] = "../{DATASET}-{SPLIT}.{FILEFORMAT}-{SHARD_X_OF_Y}"
    info.write_text(json.dumps(described))
    error = refused(lambda: read(tfds.find(folder, "reviews"), "train", {}))
    assert f"named in dataset_info.json, but outside of {folder}" in error.message


def test_a_record_of_petabytes_is_refused_before_it_is_read(tmp_path):
    folder = reviews(tmp_path)
    path = next(folder.glob("*train.tfrecord-00000*"))
    length = struct.pack("<Q", 1 << 50)
    path.write_bytes(length + formats._masked(length) + bytes(100))
    error = refused(lambda: read(tfds.find(folder, "reviews"), "train", {}))
    assert error.message == f"{path}: record 0: 1,125,899,906,842,624 bytes are more than the 16,777,216 allowed"


@pytest.mark.parametrize(
    ("features", "message"),
    [
        ({"image": bytes}, "train: example 0: expected features image, found "),
        ({"text": 2}, "train: example 0: expected a text of 0 to 1, found bytes"),
        ({"label": 1}, "train: example 1: expected a label of 0 to 0, found 1"),
        ({"label": bytes}, "train: example 0: label: expected bytes, found int"),
    ],
)
def test_examples_have_what_is_asked_for(tmp_path, features, message):
    error = refused(lambda: read(tfds.find(reviews(tmp_path), "reviews"), "train", features))
    assert message in error.message


def test_neither_tfds_nor_pillow_is_imported_before_it_is_needed():
    code = (
        "import sys; from lrurun.data.copies import png, reader\n"
        "from lrurun.data.downloaded import images\n"
        "from lrurun.data.generated import pathfinder\n"
        "heavy = {'tensorflow_datasets', 'PIL', 'jax', 'grain'}\n"
        "print(sorted(heavy & {name.partition('.')[0] for name in sys.modules}))"
    )
    environment = os.environ | {"PYTHONPATH": str(Path(lrurun.__file__).parent.parent)}
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env=environment, check=True)
    assert done.stdout == "[]\n"
