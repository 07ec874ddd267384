"""Small archives in the formats of the real ones, written here byte by byte."""

from __future__ import annotations

import io
import itertools
import json
import struct
import tarfile
import zlib
from collections.abc import Iterable, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np
import pytest

from lrurun.data import task_data
from lrurun.data.task import Data, Task
from lrurun.errors import LrurunError

CIFAR_FILES = (*(f"data_batch_{number}.bin" for number in range(1, 6)), "test_batch.bin")


def png(pixels: np.ndarray) -> bytes:
    """A PNG file of (height, width[, 3]) uint8 pixels."""

    def chunk(name: bytes, content: bytes) -> bytes:
        return struct.pack(">I", len(content)) + name + content + struct.pack(">I", zlib.crc32(name + content))

    height, width = pixels.shape[:2]
    head = struct.pack(">IIBBBBB", width, height, 8, 2 if pixels.ndim == 3 else 0, 0, 0, 0)
    lines = b"".join(b"\0" + row.tobytes() for row in pixels)
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", head) + chunk(b"IDAT", zlib.compress(lines)) + chunk(b"IEND", b"")


def tar(path: Path, members: dict[str, bytes], mode: str = "w:gz") -> Path:
    """An archive of these files; names that end in "/" are folders."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with tarfile.open(path, mode) as archive:
        for name, content in members.items():
            member = tarfile.TarInfo(name)
            member.size = len(content)
            if name.endswith("/"):
                member.type = tarfile.DIRTYPE
            archive.addfile(member, io.BytesIO(content))
    return path


def tree(folder: Path, members: dict[str, bytes]) -> Path:
    """The same files in a folder."""
    for name, content in members.items():
        path = folder / name
        if name.endswith("/"):
            path.mkdir(parents=True, exist_ok=True)
        else:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(content)
    return folder


def cifar(images: np.ndarray, labels: np.ndarray, train: int) -> dict[str, bytes]:
    """CIFAR-10's binary files: `train` of the (n, 32, 32, 3) images in five batches, the others in the test batch."""
    records = [
        bytes([label]) + b"".join(image[..., c].tobytes() for c in range(3))
        for image, label in zip(images, labels, strict=True)
    ]
    size = train // 5
    parts = [records[number * size : (number + 1) * size] for number in range(5)] + [records[train:]]
    return {name: b"".join(part) for name, part in zip(CIFAR_FILES, parts, strict=True)}


def cifar_archive(files: dict[str, bytes]) -> dict[str, bytes]:
    """The members of the published archive."""
    folder = "cifar-10-batches-bin"
    about = {f"{folder}/": b"", f"{folder}/batches.meta.txt": b"airplane\n", f"{folder}/readme.html": b"<html>"}
    return about | {f"{folder}/{name}": content for name, content in files.items()}


def cifar_pickled(files: dict[str, bytes]) -> dict[str, bytes]:
    """The same batches as the archive for Python has them: pickles of Python 2."""
    pickled = {}
    for number, (name, content) in enumerate(files.items(), start=1):
        records = np.frombuffer(content, np.uint8).reshape(-1, 3073)
        label = f"training batch {number} of 5" if number < 6 else "testing batch 1 of 1"
        names = [f"image_s_{row:06d}.png" for row in range(len(records))]
        table = {"batch_label": label, "labels": records[:, 0].tolist(), "data": records[:, 1:], "filenames": names}
        pickled[name.removesuffix(".bin")] = pickle_of_python_2(table)
    return pickled


def cifar_pickled_archive(files: dict[str, bytes]) -> dict[str, bytes]:
    """The members of the published archive for Python, in an order like its own, of the pickled batches."""
    folder = "cifar-10-batches-py"
    meta = pickle_of_python_2({"num_cases_per_batch": 10, "label_names": ["airplane"], "num_vis": 3072})
    order = sorted(files, reverse=True)
    about = {f"{folder}/readme.html": b"<html>", f"{folder}/batches.meta": meta}
    return {f"{folder}/": b""} | {f"{folder}/{name}": files[name] for name in order} | about


def pickle_of_python_2(value: Any) -> bytes:
    """What `cPickle.dumps(value, 2)` of Python 2 with NumPy 1 gives; each value is remembered under a number."""
    numbers = itertools.count(1)

    def remembered(content: bytes) -> bytes:
        number = next(numbers)
        return content + (b"q" + bytes([number]) if number < 256 else b"r" + struct.pack("<I", number))

    def dumped(value: Any) -> bytes:
        if isinstance(value, str):
            data = value.encode("latin-1")
            return remembered(b"U" + bytes([len(data)]) + data)
        if isinstance(value, int):
            if 0 <= value < 256:
                return b"K" + bytes([value])
            return b"M" + struct.pack("<H", value) if 0 <= value < 65536 else b"J" + struct.pack("<i", value)
        if isinstance(value, list):
            return remembered(b"]") + b"(" + b"".join(map(dumped, value)) + b"e"
        if isinstance(value, dict):
            pairs = b"".join(dumped(key) + dumped(one) for key, one in value.items())
            return remembered(b"}") + b"(" + pairs + b"u"
        assert value.dtype == np.uint8
        empty = remembered(b"cnumpy.core.multiarray\n_reconstruct\n") + remembered(b"cnumpy\nndarray\n")
        empty += remembered(b"K\x00\x85") + dumped("b") + remembered(b"\x87") + remembered(b"R")
        kind = remembered(b"cnumpy\ndtype\n") + dumped("u1") + b"K\x00K\x01" + remembered(b"\x87") + remembered(b"R")
        kind += b"(K\x03" + dumped("|") + b"NNN" + b"J\xff\xff\xff\xff" * 2 + b"K\x00" + remembered(b"t") + b"b"
        shape = b"".join(map(dumped, value.shape)) + remembered(b"\x86")
        data = value.tobytes()
        numbers_of_it = remembered(b"T" + struct.pack("<i", len(data)) + data)
        return empty + b"(K\x01" + shape + kind + b"\x89" + numbers_of_it + remembered(b"t") + b"b"

    return b"\x80\x02" + dumped(value) + b"."


IMAGE = "tensorflow_datasets.core.features.image_feature.Image"
CLASS = "tensorflow_datasets.core.features.class_label_feature.ClassLabel"
TEXT = "tensorflow_datasets.core.features.text_feature.Text"
DICT = "tensorflow_datasets.core.features.features_dict.FeaturesDict"


def image_feature(*shape: int) -> dict[str, Any]:
    """As `features.json` has it; -1 for any size."""
    dimensions = {"dimensions": [str(size) for size in shape]}
    return {"pythonClassName": IMAGE, "image": {"dtype": "uint8", "shape": dimensions}}


def class_feature(classes: int) -> dict[str, Any]:
    return {"pythonClassName": CLASS, "classLabel": {"numClasses": str(classes)}}


def text_feature() -> dict[str, Any]:
    return {"pythonClassName": TEXT, "text": {}}


CIFAR_FEATURES = {"id": text_feature(), "image": image_feature(32, 32, 3), "label": class_feature(10)}
PATHFINDER_FEATURES = {"image": image_feature(-1, -1, 3), "label": class_feature(2)}

Examples = dict[str, list[dict[str, "bytes | int"]]]
"""Split -> examples in the order of the files."""


def tfds_tfrecord(
    folder: Path, name: str, version: str, features: dict[str, Any], splits: Examples, *, shards: int = 1, **more: str
) -> Path:
    """The folder of a version as TensorFlow writes it by default: tfrecord files and their descriptions."""
    described = []
    for split, examples in splits.items():
        cuts = np.linspace(0, len(examples), shards + 1).astype(int)
        parts = [examples[a:b] for a, b in pairwise(cuts)]
        payloads = [[_example(example) for example in part] for part in parts]
        for number, part in enumerate(payloads):
            path = folder / f"{name}-{split}.tfrecord-{number:05d}-of-{shards:05d}"
            tree(folder, {path.name: tfrecord(part)})
        described.append(
            {
                "filepathTemplate": "{DATASET}-{SPLIT}.{FILEFORMAT}-{SHARD_X_OF_Y}",
                "name": split,
                "numBytes": str(sum(len(payload) for part in payloads for payload in part)),
                "shardLengths": [str(len(part)) for part in parts],
            }
        )
    info = {"fileFormat": "tfrecord", "name": name, "splits": described, "version": version} | more
    (folder / "dataset_info.json").write_text(json.dumps(info, indent=2))
    table = {"pythonClassName": DICT, "featuresDict": {"features": features}}
    (folder / "features.json").write_text(json.dumps(table, indent=4))
    return folder


def tfds_array_record(data_dir: Path, name: str, features: dict[str, Any], splits: dict[str, Iterable[Any]]) -> Path:
    """The folder of a version as TFDS itself writes it without TensorFlow; splits are of (key, example).

    `features` are TFDS's; they are not needed for the data sets that it knows.
    """
    import tensorflow_datasets

    tensorflow_datasets.disable_progress_bar()
    # it would ask the network for what it knows of the data set, and leave a folder in /tmp
    with patch.object(tensorflow_datasets.core.DatasetInfo, "initialize_from_bucket"):
        if features:
            builder = _builder(name, features)(data_dir=data_dir)
        else:
            builder = tensorflow_datasets.builder(name, data_dir=data_dir)
    if name == "cifar10":  # the archive would bring them
        builder.info.features["label"].names = [f"class {number}" for number in range(10)]
    builder._split_generators = lambda manager: {split: iter(examples) for split, examples in splits.items()}
    builder.download_and_prepare(file_format="array_record")
    return Path(builder.data_dir)


def _builder(name: str, features: dict[str, Any]) -> Any:
    import tensorflow_datasets

    def info(self: Any) -> Any:
        described = tensorflow_datasets.features.FeaturesDict(features)
        return tensorflow_datasets.core.DatasetInfo(builder=self, features=described)

    members = {
        "name": name,
        "VERSION": tensorflow_datasets.core.Version("1.0.0"),
        "_info": info,
        "_split_generators": lambda self, manager: {},
        "_generate_examples": lambda self: iter(()),
    }
    return type(name.title(), (tensorflow_datasets.core.GeneratorBasedBuilder,), members, skip_registration=True)


def tfrecord(payloads: Sequence[bytes]) -> bytes:
    """A file of records: length, masked checksum of the length, payload, masked checksum of the payload."""
    content = b""
    for payload in payloads:
        length = struct.pack("<Q", len(payload))
        content += length + _masked(length) + payload + _masked(payload)
    return content


def _masked(data: bytes) -> bytes:
    """The checksum of tfrecord files: CRC-32C by a table of bytes, rotated and shifted."""
    crc = 0xFFFFFFFF
    for byte in data:
        crc = crc >> 8 ^ _CRC[(crc ^ byte) & 255]
    crc ^= 0xFFFFFFFF
    return struct.pack("<I", ((crc >> 15 | crc << 17 & 0xFFFFFFFF) + 0xA282EAD8) & 0xFFFFFFFF)


def _crc(byte: int) -> int:
    for _ in range(8):
        byte = byte >> 1 ^ 0x82F63B78 * (byte & 1)
    return byte


_CRC = [_crc(byte) for byte in range(256)]


def _example(example: dict[str, bytes | int]) -> bytes:
    """A serialised `tf.train.Example`: map entries of a name, and a list of one text or one number."""
    entries = b""
    for name, value in example.items():
        if isinstance(value, bytes):
            feature = _field(1, _field(1, value))
        else:
            feature = _field(3, _field(1, _varint(value & (1 << 64) - 1)))
        entries += _field(1, _field(1, name.encode()) + _field(2, feature))
    return _field(1, entries)


def _field(number: int, content: bytes) -> bytes:
    return _varint(number << 3 | 2) + _varint(len(content)) + content


def _varint(value: int) -> bytes:
    content = b""
    while value > 127:
        content += bytes([value & 127 | 128])
        value >>= 7
    return content + bytes([value])


def wav(sound: bytes, head: bytes = b"", behind: bytes = b"", size: int | None = None, **fields: int) -> bytes:
    """A WAV file; `head` stands before the sound and `behind` after it, `size` is what the file says of its sound."""
    form = {"kind": 1, "channels": 1, "rate": 16000, "bits": 16} | fields
    block = form["channels"] * form["bits"] // 8
    chunk = struct.pack(
        "<HHIIHH", form["kind"], form["channels"], form["rate"], form["rate"] * block, block, form["bits"]
    )
    size = len(sound) if size is None else size
    body = b"WAVEfmt " + struct.pack("<I", 16) + chunk + head + b"data" + struct.pack("<I", size) + sound + behind
    return b"RIFF" + struct.pack("<I", len(body)) + body


def pathfinder(
    images: np.ndarray, labels: np.ndarray, lists: dict[int, int], *, arrays: bool = False
) -> dict[str, bytes]:
    """The files of a level: lists by their number with so many lines each, as text or as arrays of texts."""
    files, sample = {}, 0
    for number, count in lists.items():
        rows = []
        for line in range(count):
            files[f"imgs/{number}/sample_{line}.png"] = png(images[sample])
            row = [f"imgs/{number}", f"sample_{line}.png", str(line), str(labels[sample])]
            rows.append([*row, "1.0", "14", "4", "2", "0.5", "1", "1"])
            sample += 1
        content = io.BytesIO()
        if arrays:
            np.save(content, np.array(rows))
        else:
            content.write("".join(" ".join(row) + "\n" for row in rows).encode())
        files[f"metadata/{number}.npy"] = content.getvalue()
    return files


def refused(task: Task, options: Any, where: Path, given: Path) -> tuple[str, str | None]:
    """Message and hint of the error when `task` is prepared in a folder of `where`, with nothing left behind."""
    with pytest.raises(LrurunError) as caught:
        task_data.prepare(task, options, where / "out" / task.name, from_path=given)
    assert not (where / "out").exists() or not list((where / "out").iterdir())
    assert "\n" not in caught.value.message
    return caught.value.message.replace(str(where), "."), caught.value.hint


def prepared(
    task: Task, where: Path, given: Path | None = None, options: Any = None
) -> tuple[Data, task_data.Manifest]:
    """The data and the manifest of a task that is prepared from a copy in the folder `where`; nothing is beside it."""
    options = options or task.options()
    table = task_data.prepare(task, options, where / task.name, from_path=given)
    assert [path.name for path in where.iterdir()] == [task.name]
    return task_data.load(task, options, where / task.name), table
