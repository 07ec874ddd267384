"""Readers of copies: tar archives, folders of TFDS and PNG images as they are; what is damaged or lies is named."""

from __future__ import annotations

import contextlib
import gzip
import io
import json
import os
import struct
import subprocess
import sys
import tarfile
from pathlib import Path

import numpy as np
import pytest

import lrurun
from lrurun.data import store
from lrurun.data.copies import reader, reading, tfds
from lrurun.data.copies.png import pixels
from lrurun.errors import LrurunError
from tests.harness import formats

COPY = "the copy is incomplete or damaged: fetch it again"


FILES = {"./": b"", "./a.txt": b"first\nsecond\n", "b/": b"", "b/empty": b"", "b/./big.bin": bytes(range(256)) * 300}


def refused(call) -> LrurunError:
    with pytest.raises(LrurunError) as caught:
        call()
    assert "\n" not in caught.value.message
    return caught.value


def read_tar(path: Path) -> list[tuple[str, bytes]]:
    with contextlib.closing(reader.members(path)) as found:  # after an error the file is closed at once
        return [(name, reading.read(file, 1 << 20, name)) for name, file in found]


@pytest.mark.parametrize("mode", ["w:gz", "w"])
def test_members_are_read_in_order_under_plain_names(tmp_path, mode):
    path = formats.tar(tmp_path / "files.tar", FILES, mode)
    assert read_tar(path) == [("a.txt", FILES["./a.txt"]), ("b/empty", b""), ("b/big.bin", FILES["b/./big.bin"])]
    assert next(list(file) for _, file in reader.members(path)) == [b"first\n", b"second\n"]
    assert [name for name, _ in reader.members(path)] == ["a.txt", "b/empty", "b/big.bin"]  # nothing read
    assert os.listdir(tmp_path) == ["files.tar"]


@pytest.mark.parametrize("mode", ["w:gz", "w"])
def test_an_archive_truncated_anywhere_is_named(tmp_path, mode):
    random = np.random.RandomState(0)
    files = {f"{number}.bin": random.bytes(3000) for number in range(9)}
    path = formats.tar(tmp_path / "files.tar", files, mode)
    content = path.read_bytes()
    for cut in (*range(0, 27_000, 1277), 512, 4096, len(content) - 9 if mode == "w:gz" else 32_300):
        path.write_bytes(content[:cut])
        error = refused(lambda: read_tar(path))
        assert error.message in (
            f"{path}: the archive is truncated",
            f"{path}: the archive is truncated, or not a tar archive",
        )
        assert error.hint == COPY
        assert refused(lambda: list(reader.members(path))).message == error.message


def test_a_damaged_archive_is_named(tmp_path):
    files = {"random.bin": np.random.RandomState(0).bytes(50_000)}
    path = formats.tar(tmp_path / "files.tar", files, "w")
    content = bytearray(gzip.compress(path.read_bytes()))
    content[10] |= 6  # a block of a kind that there is not
    path.write_bytes(content)
    assert refused(lambda: read_tar(path)).message.startswith(f"{path}: the archive is damaged: Error -3 ")
    # a flaw that only the checksum at the end shows
    content = bytearray(formats.tar(path, files).read_bytes())
    content[-8] ^= 255
    path.write_bytes(content)
    assert refused(lambda: read_tar(path)).message.startswith(f"{path}: the archive is damaged: CRC check failed")


def test_what_is_not_an_archive_is_named(tmp_path):
    path = tmp_path / "file"
    for content in (b"<html>403 Forbidden</html>", b"x" * 9999, bytes(20) + b"x" * 9999, gzip.compress(b"x" * 9999)):
        path.write_bytes(content)
        message = refused(lambda: read_tar(path)).message
        assert message.startswith(f"{path}: ")
        assert "not a tar archive" in message
    error = refused(lambda: read_tar(tmp_path / "nothing"))
    assert error.message == f"{tmp_path}/nothing: No such file or directory"


def test_errors_of_the_caller_pass(tmp_path):
    path = formats.tar(tmp_path / "files.tar", FILES)

    def use() -> None:
        for _ in reader.members(path):
            raise OSError(28, "No space left on device")

    with pytest.raises(OSError, match="No space left"):
        use()


def header(name: str, size: int, kind: bytes = tarfile.REGTYPE) -> bytes:
    member = tarfile.TarInfo(name)
    member.type, member.size = kind, size
    return member.tobuf(tarfile.GNU_FORMAT)


@pytest.mark.parametrize("kind", [tarfile.GNUTYPE_LONGNAME, tarfile.XHDTYPE, tarfile.XGLTYPE])
def test_a_header_of_gigabytes_is_refused_before_it_is_read_tar(tmp_path, kind):
    path = tmp_path / "files.tar"
    path.write_bytes(header("x", 1 << 33, kind) + bytes(1 << 16))
    assert "a header of 8,589,934,592 bytes, where 65,536 are allowed" in refused(lambda: read_tar(path)).message


@pytest.mark.parametrize("size", [10**15, -5000])
def test_a_member_of_an_impossible_size_ends_in_an_error(tmp_path, size):
    path = tmp_path / "files.tar"
    path.write_bytes(header("first", 0) + header("second", size) + bytes(2048))
    assert "trunc" in (message := refused(lambda: list(reader.members(path))).message) or "negative" in message


def test_links_devices_and_pipes_are_skipped(tmp_path):
    with tarfile.open(tmp_path / "files.tar", "w") as archive:
        for kind in (tarfile.SYMTYPE, tarfile.LNKTYPE, tarfile.CHRTYPE, tarfile.BLKTYPE, tarfile.FIFOTYPE):
            member = tarfile.TarInfo("a.txt")
            member.type, member.linkname = kind, "/etc/passwd"
            archive.addfile(member)
    assert read_tar(tmp_path / "files.tar") == []


def test_the_headers_of_members_do_not_pile_up(tmp_path, monkeypatch):
    path = formats.tar(tmp_path / "files.tar", {f"{number}": b"x" for number in range(50)}, "w")
    opened, real = [], tarfile.open
    monkeypatch.setattr(reader.tarfile, "open", lambda *a, **b: opened.append(real(*a, **b)) or opened[-1])
    for _ in reader.members(path):
        assert len(opened[0].members) <= 1
    assert len(opened) == 1


EXAMPLES = [
    {"text": b"", "label": 0},
    {"text": "Ünder a gr\0en tree".encode(), "label": 1},
    {"text": b"x" * 5000, "label": -1},
]


FEATURES = {"text": formats.text_feature(), "label": formats.class_feature(2)}


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


@pytest.mark.parametrize("below", ["", "1.0.0", "reviews/1.0.0", "reviews/plain/1.0.0"])
def test_a_tfds_folder_is_found_from_everywhere(tmp_path, below):
    folder = reviews(tmp_path / below)
    while folder != tmp_path.parent:
        assert tfds.find(folder, "reviews").place == tmp_path / below
        assert tfds.find(folder, "others") is None
        folder = folder.parent


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


@pytest.mark.parametrize("shape", [(5, 5), (5, 5, 3)])
def test_pixels_are_those_of_the_image(shape):
    from PIL import Image

    image = np.random.RandomState(0).randint(0, 256, shape).astype(np.uint8)
    data = formats.png(image)
    mode = "L" if len(shape) == 2 else "RGB"
    np.testing.assert_array_equal(pixels(data, "x", 5, "", mode), image)
    np.testing.assert_array_equal(pixels(data, "x", 5, ""), np.asarray(Image.open(io.BytesIO(data)).convert("L")))


def test_what_is_not_an_image_is_named():
    data = formats.png(np.random.RandomState(0).randint(0, 256, (32, 32)).astype(np.uint8))
    error = refused(lambda: pixels(b"", "imgs/0/sample_172.png", 32, ""))
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
        error = refused(lambda content=content: pixels(content, "x.png", 32, ""))
        assert error.message.startswith("x.png: not a PNG image, or a damaged one")
        assert error.hint == COPY


def test_images_of_more_than_8_bits_are_refused():
    from PIL import Image

    file = io.BytesIO()
    Image.fromarray(np.full((2, 2), 40_000, np.uint16)).save(file, "PNG")
    message = refused(lambda: pixels(file.getvalue(), "x", 2, "")).message
    assert message == "x: not a PNG image, or a damaged one: I;16 pixels have more than 8 bits"


def test_a_file_that_cannot_be_read_is_named(tmp_path):
    assert refused(lambda: reading.read_file(tmp_path, 9)).message == f"{tmp_path}: Is a directory"
    path = tmp_path / "nine"
    path.write_bytes(bytes(9))
    assert reading.read_file(path, 9) == bytes(9)
    message = refused(lambda: reading.read_file(path, 8)).message
    assert message == f"{path}: longer than 8 bytes: published files of this kind are shorter"
