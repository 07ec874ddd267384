"""Containers: what files hold is read as it is; what is cut off, damaged or something else is told with its name."""

from __future__ import annotations

import gzip
import io
import json
import os
import struct
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import lrurun
from lrurun.errors import LrurunError
from lrurun.tasks import containers
from tests import formats

COPY = "the copy is incomplete or damaged: fetch it again"
EXAMPLES = [
    {"text": b"", "label": 0},
    {"text": "Ünder a gr\0en tree".encode(), "label": 1},
    {"text": b"x" * 5000, "label": -1},
]
FEATURES = {"text": formats.text_feature(), "label": formats.class_feature(2)}
FILES = {"./": b"", "./a.txt": b"first\nsecond\n", "b/": b"", "b/empty": b"", "b/./big.bin": bytes(range(256)) * 300}


def refused(call) -> LrurunError:
    with pytest.raises(LrurunError) as caught:
        call()
    assert "\n" not in caught.value.message
    return caught.value


def reviews(folder: Path, **more) -> Path:
    """tfrecord files in two shards."""
    splits = {"train": EXAMPLES * 2, "test": EXAMPLES[:1]}
    return formats.tfds_tfrecord(folder, "reviews", "1.0.0", FEATURES, splits, shards=2, **more)


def read(path: Path) -> list[tuple[str, bytes]]:
    return [(name, file.read()) for name, file in containers.members(path)]


def test_tfrecord_files_are_read_in_order(tmp_path):
    found = containers.tfds(reviews(tmp_path), "reviews")
    assert (found.text, found.version, found.folder) == ("TFDS reviews 1.0.0, tfrecord", "1.0.0", tmp_path)
    assert found.counts == {"train": 6, "test": 1}
    assert list(found.read("train", {})) == EXAMPLES * 2
    assert list(found.read("test", {})) == EXAMPLES[:1]


def test_array_record_files_are_read_in_order(tmp_path):
    import tensorflow_datasets

    features = {
        "text": tensorflow_datasets.features.Text(),
        "label": tensorflow_datasets.features.ClassLabel(num_classes=2),
    }
    examples = [(number, {"text": b"%d" % number, "label": number % 2}) for number in range(12)]
    formats.tfds_array_record(tmp_path, "letters", features, {"train": examples})
    found = containers.tfds(tmp_path, "letters")
    assert (found.text, found.counts) == ("TFDS letters 1.0.0, array_record", {"train": 12})
    read = list(found.read("train", {}))
    assert sorted(read, key=lambda one: int(one["text"])) == [example for _, example in examples]
    assert read != [example for _, example in examples]  # TFDS shuffles


@pytest.mark.parametrize("below", ["", "1.0.0", "reviews/1.0.0", "reviews/plain/1.0.0"])
def test_a_tfds_folder_is_found_from_everywhere(tmp_path, below):
    folder = reviews(tmp_path / below)
    while folder != tmp_path.parent:
        assert containers.tfds(folder, "reviews").folder == tmp_path / below
        assert containers.tfds(folder, "others") is None
        folder = folder.parent


def test_a_data_set_folder_is_found_from_inside(tmp_path, monkeypatch):
    reviews(tmp_path / "reviews/plain/1.0.0")
    monkeypatch.chdir(tmp_path / "reviews")
    assert containers.tfds(Path("."), "reviews").counts["train"] == 6


def test_the_newest_version_is_taken_unless_one_is_asked_for(tmp_path):
    for version in ("9.0.0", "10.0.0", "9.1.0"):
        formats.tfds_tfrecord(tmp_path / f"reviews/{version}", "reviews", version, FEATURES, {"train": EXAMPLES})
    formats.tfds_tfrecord(tmp_path / "reviews/incomplete.XY_11.0.0", "reviews", "11.0.0", FEATURES, {"train": []})
    assert containers.tfds(tmp_path, "reviews").version == "10.0.0"
    assert containers.tfds(tmp_path, "reviews", version="9.1.0").folder == tmp_path / "reviews/9.1.0"
    assert containers.tfds(tmp_path, "reviews", version="8.0.0") is None


def test_a_configuration_can_be_asked_for(tmp_path):
    reviews(tmp_path / "reviews/bytes/1.0.0", configName="bytes")
    reviews(tmp_path / "reviews/plain/1.0.0", configName="plain")
    assert containers.tfds(tmp_path, "reviews", config="bytes").folder == tmp_path / "reviews/bytes/1.0.0"
    assert containers.tfds(tmp_path, "reviews", config="plain").folder == tmp_path / "reviews/plain/1.0.0"
    assert containers.tfds(tmp_path, "reviews", config="words") is None


@pytest.mark.parametrize("cut", [1, 5, 20, 5000])
def test_a_cut_off_tfrecord_file_is_told(tmp_path, cut):
    path = reviews(tmp_path) / "reviews-train.tfrecord-00001-of-00002"
    os.truncate(path, path.stat().st_size - cut)
    found = containers.tfds(tmp_path, "reviews")
    error = refused(lambda: list(found.read("train", {})))
    assert (error.message, error.hint) == (f"{path}: cut off in record 2", COPY)


def test_damaged_tfrecord_files_are_told(tmp_path):
    path = reviews(tmp_path) / "reviews-train.tfrecord-00000-of-00002"
    whole = path.read_bytes()
    found = containers.tfds(tmp_path, "reviews")
    (length,) = struct.unpack("<Q", whole[:8])
    for content, message in [
        (b"\1" + whole[1:], "record 0: wrong checksum of its length"),
        (whole[: length + 16], "expected 3 records, found 1"),
        (whole + whole[: length + 16], "expected 3 records, found 4"),
        (formats.tfrecord([b"\xff" * 30] * 3), "record 0 of train: "),
    ]:
        path.write_bytes(content)
        error = refused(lambda: list(found.read("train", {})))
        assert error.message.startswith(f"{path}: {message}")
    path.unlink()
    error = refused(lambda: list(found.read("train", {})))
    assert error.message == f"{path}: there is no such file, and dataset_info.json names it"
    error = refused(lambda: list(found.read("validation", {})))
    assert error.message == f"{tmp_path}: no split 'validation' among train, test"


@pytest.mark.parametrize("share", [0, 0.3, 0.9])
def test_a_cut_off_array_record_file_is_told(tmp_path, share):
    import tensorflow_datasets

    features = {"text": tensorflow_datasets.features.Text()}
    random = np.random.RandomState(0)
    examples = [(number, {"text": random.bytes(9000).hex()}) for number in range(40)]
    (path,) = formats.tfds_array_record(tmp_path, "letters", features, {"train": examples}).glob("*array_record*")
    os.truncate(path, int(share * path.stat().st_size))
    error = refused(lambda: list(containers.tfds(tmp_path, "letters").read("train", {})))
    assert error.message.startswith(f"{path}: example 0 of train: ")
    assert error.hint == COPY


def test_descriptions_that_cannot_be_used_are_told(tmp_path):
    file = reviews(tmp_path) / "dataset_info.json"
    table = json.loads(file.read_text())
    file.write_text(json.dumps(table | {"fileFormat": "riegeli"}))
    error = refused(lambda: containers.tfds(tmp_path, "reviews"))
    assert error.message == f"{tmp_path}: the data are in riegeli files, which cannot be read"
    assert error.hint == "prepare them with TFDS as one of: array_record, tfrecord"
    file.write_text(json.dumps(table)[:50])
    assert refused(lambda: containers.tfds(tmp_path, "reviews")).message.startswith(f"{file}: not JSON: ")
    file.write_text('{"name": "reviews"}')
    error = refused(lambda: containers.tfds(tmp_path, "reviews"))
    assert error.message == f"{file}: not a description of a data set: Object missing required field `version`"
    file.write_text(json.dumps(table))
    (tmp_path / "features.json").unlink()
    error = refused(lambda: list(containers.tfds(tmp_path, "reviews").read("train", {})))
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
    error = refused(lambda: list(containers.tfds(folder, "reviews").read("train", {})))
    assert error.message == f"{features}: names 'evil_features.Text', which is no feature of TFDS"
    features.write_text(plain)

    for split in described["splits"]:
        split["filepathTemplate"] = "../{DATASET}-{SPLIT}.{FILEFORMAT}-{SHARD_X_OF_Y}"
    info.write_text(json.dumps(described))
    error = refused(lambda: list(containers.tfds(folder, "reviews").read("train", {})))
    assert f"leads out of {folder}" in error.message


def test_a_record_of_petabytes_is_refused_before_it_is_read(tmp_path):
    folder = reviews(tmp_path)
    path = next(folder.glob("*train.tfrecord-00000*"))
    length = struct.pack("<Q", 1 << 50)
    path.write_bytes(length + formats._masked(length) + bytes(100))
    error = refused(lambda: list(containers.tfds(folder, "reviews").read("train", {})))
    assert error.message == f"{path}: record 0: 1,125,899,906,842,624 bytes are more than the 16,777,216 allowed"


@pytest.mark.parametrize(
    ("features", "message"),
    [
        ({"image": bytes}, "train: example 0: expected features image, found "),
        ({"text": int}, "train: example 0: text: expected int, found bytes"),
    ],
)
def test_examples_have_what_is_asked_for(tmp_path, features, message):
    error = refused(lambda: list(containers.tfds(reviews(tmp_path), "reviews").read("train", features)))
    assert message in error.message


@pytest.mark.parametrize("mode", ["w:gz", "w"])
def test_members_are_read_in_order_under_plain_names(tmp_path, mode):
    path = formats.tar(tmp_path / "files.tar", FILES, mode)
    assert read(path) == [("a.txt", FILES["./a.txt"]), ("b/empty", b""), ("b/big.bin", FILES["b/./big.bin"])]
    assert next(list(file) for _, file in containers.members(path)) == [b"first\n", b"second\n"]
    assert [name for name, _ in containers.members(path)] == ["a.txt", "b/empty", "b/big.bin"]  # nothing read
    assert os.listdir(tmp_path) == ["files.tar"]


def test_reading_an_archive_says_how_far_it_is(tmp_path):
    path = formats.tar(tmp_path / "files.tar", FILES, "w")
    told = []
    for _ in containers.members(path, lambda *words: told.append(words)):
        pass
    assert {(what, total) for what, _, total in told} == {("reading files.tar", path.stat().st_size)}
    assert [done for _, done, _ in told] == sorted(done for _, done, _ in told)


@pytest.mark.parametrize("mode", ["w:gz", "w"])
def test_an_archive_cut_off_anywhere_is_told(tmp_path, mode):
    random = np.random.RandomState(0)
    files = {f"{number}.bin": random.bytes(3000) for number in range(9)}
    path = formats.tar(tmp_path / "files.tar", files, mode)
    content = path.read_bytes()
    for cut in (*range(0, 27_000, 1277), 512, 4096, len(content) - 9 if mode == "w:gz" else 32_300):
        path.write_bytes(content[:cut])
        error = refused(lambda: read(path))
        assert error.message in (
            f"{path}: the archive is cut off",
            f"{path}: the archive is cut off, or not a tar archive",
        )
        assert error.hint == COPY
        assert refused(lambda: list(containers.members(path))).message == error.message


def test_a_damaged_archive_is_told(tmp_path):
    files = {"random.bin": np.random.RandomState(0).bytes(50_000)}
    path = formats.tar(tmp_path / "files.tar", files, "w")
    content = bytearray(gzip.compress(path.read_bytes()))
    content[10] |= 6  # a block of a kind that there is not
    path.write_bytes(content)
    assert refused(lambda: read(path)).message.startswith(f"{path}: the archive is damaged: Error -3 ")
    # a flaw that only the checksum at the end shows
    content = bytearray(formats.tar(path, files).read_bytes())
    content[-8] ^= 255
    path.write_bytes(content)
    assert refused(lambda: read(path)).message.startswith(f"{path}: the archive is damaged: CRC check failed")


def test_what_is_no_archive_is_told(tmp_path):
    path = tmp_path / "file"
    for content in (b"<html>403 Forbidden</html>", b"x" * 9999, bytes(20) + b"x" * 9999, gzip.compress(b"x" * 9999)):
        path.write_bytes(content)
        message = refused(lambda: read(path)).message
        assert message.startswith(f"{path}: ")
        assert "not a tar archive" in message
    error = refused(lambda: read(tmp_path / "nothing"))
    assert error.message == f"{tmp_path}/nothing: No such file or directory"


def test_faults_of_whoever_reads_an_archive_stay_what_they_are(tmp_path):
    path = formats.tar(tmp_path / "files.tar", FILES)

    def use() -> None:
        for _ in containers.members(path):
            raise OSError(28, "No space left on device")

    with pytest.raises(OSError, match="No space left"):
        use()


@pytest.mark.parametrize("shape", [(5, 5), (5, 5, 3)])
def test_pixels_are_those_of_the_image(shape):
    from PIL import Image

    pixels = np.random.RandomState(0).randint(0, 256, shape).astype(np.uint8)
    data = formats.png(pixels)
    mode = "L" if len(shape) == 2 else "RGB"
    np.testing.assert_array_equal(containers.png(data, "x", 5, "", mode), pixels)
    np.testing.assert_array_equal(
        containers.png(data, "x", 5, ""), np.asarray(Image.open(io.BytesIO(data)).convert("L"))
    )


def test_images_that_are_none_are_told_by_name():
    data = formats.png(np.random.RandomState(0).randint(0, 256, (32, 32)).astype(np.uint8))
    error = refused(lambda: containers.png(b"", "imgs/0/sample_172.png", 32, ""))
    assert (error.message, error.hint) == ("imgs/0/sample_172.png: the image is empty (0 bytes)", COPY)
    broken = bytearray(data)
    broken[len(data) // 2] ^= 255
    for content in (
        data[:10],
        data[:20],
        data[:-300],
        data[: len(data) // 2],
        bytes(broken),
        b"GIF89a" + bytes(90),
        b"text",
    ):
        error = refused(lambda content=content: containers.png(content, "x.png", 32, ""))
        assert error.message.startswith("x.png: not a PNG image, or a damaged one")
        assert error.hint == COPY
    error = refused(lambda: containers.png(np.zeros((2, 2)), "x", 2, ""))
    assert error.message == "x: expected the bytes of a PNG image, found ndarray"


def test_images_of_more_than_8_bits_are_refused():
    from PIL import Image

    file = io.BytesIO()
    Image.fromarray(np.full((2, 2), 40_000, np.uint16)).save(file, "PNG")
    message = refused(lambda: containers.png(file.getvalue(), "x", 2, "")).message
    assert message == "x: not a PNG image, or a damaged one: I;16 pixels have more than 8 bits"


def test_a_file_that_cannot_be_read_is_told(tmp_path):
    assert refused(lambda: containers.read(tmp_path, 9)).message == f"{tmp_path}: Is a directory"
    path = tmp_path / "nine"
    path.write_bytes(bytes(9))
    assert containers.read(path, 9) == bytes(9)
    message = refused(lambda: containers.read(path, 8)).message
    assert message == f"{path}: longer than 8 bytes, which no published file of its kind is"


def test_neither_tfds_nor_pillow_is_imported_before_it_is_needed():
    code = (
        "import sys; from lrurun.tasks import containers, images, pathfinder, splits\n"
        "heavy = {'tensorflow_datasets', 'PIL', 'jax', 'grain'}\n"
        "print(sorted(heavy & {name.partition('.')[0] for name in sys.modules}))"
    )
    environment = os.environ | {"PYTHONPATH": str(Path(lrurun.__file__).parent.parent)}
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env=environment, check=True)
    assert done.stdout == "[]\n"
