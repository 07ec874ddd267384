"""The records in a `.wandb` file: messages of Protocol Buffers, in the blocks of a log as LevelDB has them.

The package of W&B has no reader of these files in Python. Its classes for the messages are part of 110 MB, so the few
that are needed are declared here, by the numbers that W&B gives their fields, for the library of Protocol Buffers.
Numbers of fields never change: files of all versions have the same.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any, BinaryIO

from lrurun.errors import LrurunError, UsageError

MAGIC = b":W&B\xe1\xbe\x00"
"""The first bytes of a file: what it is, a number, and the version."""
_BLOCK = 1 << 15
_HEADER = struct.Struct("<IHB")
"""Of each part of a record: checksum, length, and what part it is."""
_FULL, _FIRST, _MIDDLE, _LAST = 1, 2, 3, 4

_FIELDS: dict[str, dict[str, tuple[int, str]]] = {
    "Record": {
        "history": (2, "History"),
        "summary": (3, "Changes"),
        "config": (5, "Changes"),
        "run": (17, "Run"),
        "exit": (18, "Exit"),
        "environment": (26, "Environment"),
    },
    "History": {"item": (1, "Item*"), "step": (2, "Step")},
    "Step": {"num": (1, "int64")},
    "Item": {"key": (1, "string"), "nested_key": (2, "string*"), "value_json": (16, "string")},
    "Changes": {"update": (1, "Item*"), "remove": (2, "Item*")},
    "Run": {
        "run_id": (1, "string"),
        "project": (3, "string"),
        "config": (4, "Changes"),
        "display_name": (8, "string"),
        "start_time": (17, "Time"),
        "git": (21, "Git"),
    },
    "Time": {"seconds": (1, "int64"), "nanos": (2, "int32")},
    "Git": {"remote_url": (1, "string"), "commit": (2, "string")},
    "Exit": {"exit_code": (1, "int32")},
    "Environment": {"git": (9, "Git")},
}
"""Message -> field -> its number, and its type; a star after it: a list of them."""


@cache
def _record_class() -> Any:
    """The class of a record."""
    try:
        from google.protobuf import descriptor_pb2, descriptor_pool, message_factory
    except ImportError:
        hint = "pip install protobuf"
        raise LrurunError("reading .wandb files needs protobuf, which is not installed", hint) from None

    field = descriptor_pb2.FieldDescriptorProto
    types = {"int64": field.TYPE_INT64, "int32": field.TYPE_INT32, "string": field.TYPE_STRING}
    file = descriptor_pb2.FileDescriptorProto(name="wandb_records.proto", package="wandb_records", syntax="proto3")
    for message, fields in _FIELDS.items():
        declared = file.message_type.add(name=message)
        for name, (number, kind) in fields.items():
            label = field.LABEL_REPEATED if kind.endswith("*") else field.LABEL_OPTIONAL
            added = declared.field.add(name=name, number=number, label=label)
            kind = kind.removesuffix("*")
            if kind in types:
                added.type = types[kind]
            else:
                added.type, added.type_name = field.TYPE_MESSAGE, f".wandb_records.{kind}"
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    return message_factory.GetMessageClass(pool.FindMessageTypeByName("wandb_records.Record"))


class RecordFile:
    """Iterates over the records of a file."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.fault = ""
        """Why reading stopped before the end, after all records were read that are complete; empty if it did not."""

    def __iter__(self) -> Iterator[Any]:
        """
        Raises:
            UsageError: this is no file of W&B, or one of a newer version.
            OSError: it cannot be read.
        """
        from google.protobuf.message import DecodeError

        record_class = _record_class()
        self.fault = ""
        for content in self._contents():
            record = record_class()
            try:
                record.ParseFromString(content)
            except DecodeError:
                self.fault = "has a damaged record"
                return
            yield record

    def _contents(self) -> Iterator[bytes]:
        """The bytes of each record."""
        with self.path.open("rb") as file:
            start = file.read(len(MAGIC))
            if start != MAGIC[: len(start)]:
                if start[:4] == MAGIC[:4]:
                    raise UsageError(f"{self.path}: is of another version of W&B's files", "export the runs as CSV")
                raise UsageError(f"{self.path}: is no file of W&B", "name a folder `wandb`, or a file run-ID.wandb")
            if len(start) < len(MAGIC):
                self.fault = "is cut off"
                return
            yield from self._joined(file)

    def _joined(self, file: BinaryIO) -> Iterator[bytes]:
        parts: list[bytes] = []
        for kind, content in self._parts(file):
            if kind in (_FULL, _FIRST):
                if parts:
                    self.fault = "has a damaged record"
                    return
                parts = []
            parts.append(content)
            if kind in (_FULL, _LAST):
                yield b"".join(parts)
                parts = []
        if parts:
            self.fault = self.fault or "is cut off"

    def _parts(self, file: BinaryIO) -> Iterator[tuple[int, bytes]]:
        """What part of a record each is, and its bytes."""
        block = MAGIC + file.read(_BLOCK - len(MAGIC))
        at = len(MAGIC)
        while block:
            while len(block) - at >= _HEADER.size:
                checksum, length, kind = _HEADER.unpack_from(block, at)
                content = block[at + _HEADER.size : at + _HEADER.size + length]
                if len(content) < length:
                    self.fault = "is cut off"
                    return
                if kind not in (_FULL, _FIRST, _MIDDLE, _LAST) or checksum != _checksum(kind, content):
                    self.fault = "has a damaged record"
                    return
                yield kind, content
                at += _HEADER.size + length
            if len(block) < _BLOCK:
                self.fault = "is cut off" if len(block) > at else ""
                return
            block, at = file.read(_BLOCK), 0  # what is left of a block is too short for a header


def _checksum(kind: int, content: bytes) -> int:
    return zlib.crc32(content, zlib.crc32(bytes([kind])))
