"""Data sets that TFDS has prepared, with or without TensorFlow, in array_record or tfrecord files.

TensorFlow is not needed. TFDS is imported when the first example is read.
"""

from __future__ import annotations

import json
import os
import re
import struct
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Annotated, Any

import msgspec
import numpy as np

from lrurun.data.copies.reading import DAMAGED, first_line, open_regular, read_file
from lrurun.data.task import Progress
from lrurun.errors import LrurunError

_FORMATS = ("array_record", "tfrecord")
_FEATURES = "tensorflow_datasets.core.features."
RECORD_LIMIT = 16 << 20
"""Bytes of a record without another limit: a review or a small image, some kilobytes."""
_DESCRIPTION_LIMIT = 16 << 20
"""Bytes of a JSON file that TFDS has written: they are kilobytes."""


class _Part(msgspec.Struct, rename="camel"):
    """A split in `dataset_info.json`."""

    name: str
    shard_lengths: list[Annotated[str, msgspec.Meta(pattern=r"^[0-9]{1,12}\Z")]] = []


class _Description(msgspec.Struct, rename="camel"):
    """The fields of `dataset_info.json` that the reader uses."""

    name: str
    version: Annotated[str, msgspec.Meta(pattern=r"^[\w.+-]{1,40}\Z")]
    splits: list[_Part]
    file_format: str = "tfrecord"
    config_name: str | None = None


class Tfds:
    """A prepared data set: a copy, with the methods of copies in `reader`."""

    archive = None
    """A prepared data set is not an archive."""

    def __init__(self, folder: Path, description: _Description, limit: int = RECORD_LIMIT) -> None:
        self.path = folder
        """The folder with `dataset_info.json`."""
        self.limit = limit
        """The most bytes that a record of a tfrecord file may have."""
        self.version = description.version
        self.format = description.file_format
        self.text = f"TFDS {description.name} {self.version}, {self.format}, {folder.absolute()}"
        """One line for messages and manifests."""
        self.counts = {split.name: sum(map(int, split.shard_lengths)) for split in description.splits}
        """Split -> number of examples."""
        if self.format not in _FORMATS:
            raise LrurunError(
                f"{folder}: the data are in {self.format} files, which cannot be read",
                f"prepare them with TFDS as one of: {', '.join(_FORMATS)}",
            )

    def expect(self, split: str, count: int, hint: str) -> None:
        """Refuses a copy whose split has another number of examples.

        Raises:
            LrurunError: with both numbers.
        """
        if (actual := self.counts.get(split, 0)) != count:
            raise LrurunError(f"{self.path}: {split}: expected {count:,} examples, found {actual:,}", hint)

    def read(
        self, split: str, features: Mapping[str, type[bytes] | int], progress: Progress
    ) -> Iterator[tuple[str, dict[str, Any]]]:
        """The examples of a split in their order, each with where it is, for messages.

        Args:
            features: those that each example must have: `bytes` for texts and encoded images, a number of classes for
                labels.

        Raises:
            LrurunError: the split or a file is missing, a file is truncated or damaged, or a feature is missing or
                wrong.
        """
        builder = self._builder()
        if split not in builder.info.splits:
            raise LrurunError(f"{self.path}: no split {split!r} among {', '.join(self.counts)}", DAMAGED)
        info = builder.info.splits[split]
        paths = [Path(path) for path in info.filepaths]
        for path in paths:
            if os.path.normpath(path.parent) != os.path.normpath(self.path):
                raise LrurunError(f"{path}: named in dataset_info.json, but outside of {self.path}", DAMAGED)
            if not path.is_file():
                raise LrurunError(f"{path}: named in dataset_info.json, but missing", DAMAGED)
        read = self._array_record if self.format == "array_record" else self._tfrecord
        examples = read(builder, split, list(zip(paths, info.shard_lengths, strict=True)))
        for row, example in enumerate(examples):
            where = f"{self.path}: {split}: example {row}"
            progress(f"reading {split} of {self.path}", row, self.counts.get(split))
            _check_features(example, features, where)
            yield where, example

    def _builder(self) -> Any:
        import tensorflow_datasets

        _check_classes(self.path / "features.json")
        try:
            return tensorflow_datasets.builder_from_directory(self.path)
        except Exception as error:  # TFDS raises many types for a damaged features.json
            raise LrurunError(f"{self.path}: TFDS cannot read it: {first_line(error)}", DAMAGED) from None

    def _array_record(self, builder: Any, split: str, shards: list[tuple[Path, int]]) -> Iterator[dict[str, Any]]:
        row = 0
        try:
            source = builder.as_data_source(split=split, decoders=_undecoded_images(builder))
            for row in range(len(source)):
                yield source[row]
        except Exception as error:  # RuntimeError of the C++ reader, DecodeError of protobuf, and others
            ends = np.cumsum([count for _, count in shards])
            path, _ = shards[int(np.searchsorted(ends, row, "right"))]
            raise LrurunError(f"{path}: example {row} of {split}: {first_line(error)}", DAMAGED) from None

    def _tfrecord(self, builder: Any, split: str, shards: list[tuple[Path, int]]) -> Iterator[dict[str, Any]]:
        decoders = _undecoded_images(builder)
        for path, count in shards:
            number = 0
            for payload in _records(path, self.limit):
                try:
                    example = builder.info.features.deserialize_example_np(payload, decoders=decoders)
                except Exception as error:  # DecodeError of protobuf, ValueError and others
                    raise LrurunError(f"{path}: record {number} of {split}: {first_line(error)}", DAMAGED) from None
                yield example
                number += 1
            if number != count:
                raise LrurunError(f"{path}: expected {count:,} records, found {number:,}", DAMAGED)


def find(path: Path, name: str, *, config: str | None = None, limit: int = RECORD_LIMIT) -> Tfds | None:
    """The newest version of the TFDS data set `name` at `path`, or None if there is none.

    Args:
        path: the folder of a version, of the data set, or of several data sets, as ~/tensorflow_datasets.
        config: the configuration to choose; any by default.
        limit: bytes of the longest record that is read.

    Raises:
        LrurunError: its description cannot be read, the format of its files is unknown, or there are only other
            configurations.
    """
    patterns = ["dataset_info.json", "*/dataset_info.json"]
    patterns += [f"{name}/*/dataset_info.json", f"{name}/*/*/dataset_info.json"]
    if path.absolute().name == name:
        patterns.append("*/*/dataset_info.json")
    versions, other_folder = [], None
    for file in sorted({file for pattern in patterns for file in path.glob(pattern)}):
        if file.parent.name.startswith("incomplete."):  # TFDS was interrupted
            continue
        description = _description(file)
        if description.name == name and config not in (None, description.config_name):
            other_folder = file.parent
        elif description.name == name:
            version = [int(number) for number in re.findall(r"\d+", description.version)]
            versions.append((version, file.parent, description))
    if versions:
        _, folder, description = max(versions, key=lambda version: version[0])
        return Tfds(folder, description, limit)
    if other_folder:
        raise LrurunError(f"{other_folder}: another configuration of {name}", f"give a folder of {name}/{config}")
    return None


def _description(file: Path) -> _Description:
    try:
        return msgspec.json.decode(read_file(file, _DESCRIPTION_LIMIT), type=_Description)
    except (msgspec.DecodeError, RecursionError) as error:
        raise LrurunError(f"{file}: not a description of a data set: {first_line(error)}", DAMAGED) from None


def _check_classes(file: Path) -> None:
    """Refuses a description of features that names classes from outside of TFDS, which would import their modules.

    Raises:
        LrurunError: another class, or not JSON.
    """
    if not file.exists():
        return  # TFDS reports what is missing

    def check(table: dict[str, Any]) -> None:
        name = str(table.get("pythonClassName", _FEATURES))
        if not name.startswith(_FEATURES):
            raise LrurunError(f"{file}: names {name[:200]!r}, which is not a feature of TFDS", DAMAGED)

    try:
        json.loads(read_file(file, _DESCRIPTION_LIMIT), object_hook=check)
    except (ValueError, RecursionError) as error:
        raise LrurunError(f"{file}: not JSON: {first_line(error)}", DAMAGED) from None


def _check_features(example: Mapping[str, Any], features: Mapping[str, type[bytes] | int], where: str) -> None:
    if not set(features) <= set(example):
        raise LrurunError(
            f"{where}: expected features {' and '.join(sorted(features))}, found {', '.join(example)}", DAMAGED
        )
    for name, expected in features.items():
        value = example[name]
        if isinstance(expected, int):
            if not isinstance(value, (int, np.integer)) or not 0 <= value < expected:
                shown = value if isinstance(value, (int, np.integer)) else type(value).__name__
                raise LrurunError(f"{where}: expected a {name} of 0 to {expected - 1}, found {shown}", DAMAGED)
        elif not isinstance(value, expected):
            raise LrurunError(f"{where}: {name}: expected {expected.__name__}, found {type(value).__name__}", DAMAGED)


def _undecoded_images(builder: Any) -> dict[str, Any]:
    """Decoders that leave images encoded: some are gray, whatever the description says."""
    import tensorflow_datasets

    images = [
        name
        for name, feature in builder.info.features.items()
        if isinstance(feature, tensorflow_datasets.features.Image)
    ]
    return {name: tensorflow_datasets.decode.SkipDecoding() for name in images}


def _records(path: Path, limit: int) -> Iterator[bytes]:
    """The records of a tfrecord file: length, its checksum, payload, its checksum. The checksums are not verified."""
    with open_regular(path) as file:
        number = 0
        while head := file.read(12):
            size = struct.unpack("<QI", head)[0] if len(head) == 12 else 0
            if size > limit:
                raise LrurunError(
                    f"{path}: record {number}: {size:,} bytes are more than the {limit:,} allowed", DAMAGED
                )
            payload = file.read(size + 4)
            if len(head) != 12 or len(payload) != size + 4:
                raise LrurunError(f"{path}: truncated in record {number}", DAMAGED)
            yield payload[:-4]
            number += 1
