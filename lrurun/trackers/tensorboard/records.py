"""Event files: length, checksum, message, checksum, and so on; the messages are TensorBoard's protobufs."""

from __future__ import annotations

import importlib
import struct
from collections.abc import Callable, Iterator
from importlib import metadata
from pathlib import Path
from typing import Any

from msgspec import Struct

from lrurun.errors import LrurunError

_HEADER = struct.Struct("<QI")
_CHECKSUM = struct.Struct("<I")
_PACKAGES = (
    ("tensorboard", "tensorboard.compat.proto.event_pb2", "tensorboard.plugins.hparams.plugin_data_pb2"),
    ("tensorboardX", "tensorboardX.proto.event_pb2", "tensorboardX.proto.plugin_hparams_pb2"),
)
"""The packages with these messages, the quicker one first: either is enough, and neither needs TensorFlow."""


class Messages(Struct, frozen=True):
    """The classes of messages, and the package that they are from."""

    package: str
    Event: Any
    HParamsPluginData: Any

    @property
    def version(self) -> str:
        """The package with its version."""
        return f"{self.package} {metadata.version(self.package)}"


def messages(source: str) -> Messages:
    """The messages of whichever package is installed.

    Raises:
        LrurunError: neither is.
    """
    for package, events, hparams in _PACKAGES:
        try:
            return Messages(
                package,
                importlib.import_module(events).Event,
                importlib.import_module(hparams).HParamsPluginData,
            )
        except ModuleNotFoundError:
            continue
    raise LrurunError(
        f"{source}: neither tensorboard nor tensorboardX is installed, which have the form of event files",
        "install one: pip install 'lrurun[tensorboard]'",
    )


def events(path: Path, messages: Messages, notice: Callable[[str], None]) -> Iterator[Any]:
    """Yields the events of a file up to its end, or to where it is cut or damaged.

    Args:
        notice: takes a sentence on what was left out.

    Raises:
        OSError: the file cannot be read.
    """
    with path.open("rb") as file:
        while header := file.read(_HEADER.size):
            at = file.tell() - len(header)
            if len(header) < _HEADER.size:
                notice(f"{path}: the last record is cut, as a killed writer leaves it, and is left out")
                return
            length, checksum = _HEADER.unpack(header)
            if _masked(header[:8]) != checksum:
                notice(f"{path}: damaged at byte {at:,}: what follows in this file is left out")
                return
            content, end = file.read(length), file.read(_CHECKSUM.size)
            if len(content) < length or len(end) < _CHECKSUM.size:
                notice(f"{path}: the last record is cut, as a killed writer leaves it, and is left out")
                return
            try:
                event = messages.Event.FromString(content)
            except Exception as error:  # protobuf's own class differs between its implementations
                if type(error).__name__ != "DecodeError":
                    raise
                event = None
            # Pictures are not read, and their checksums would take most of the time.
            if event is None or (_has_values(event) and _masked(content) != _CHECKSUM.unpack(end)[0]):
                notice(f"{path}: damaged at byte {at:,}: what follows in this file is left out")
                return
            yield event


def _has_values(event: Any) -> bool:
    """Whether an event may have something that is read."""
    return event.WhichOneof("what") != "summary" or any(
        value.WhichOneof("value") in ("simple_value", "tensor", None) for value in event.summary.value
    )


def _table() -> list[int]:
    table = []
    for byte in range(256):
        for _ in range(8):
            byte = byte >> 1 ^ (0x82F63B78 if byte & 1 else 0)
        table.append(byte)
    return table


_TABLE = _table()


def _masked(content: bytes) -> int:
    """The checksum of event files: CRC-32C, rotated and with a constant added."""
    crc = 0xFFFFFFFF
    for byte in content:
        crc = _TABLE[(crc ^ byte) & 0xFF] ^ crc >> 8
    crc ^= 0xFFFFFFFF
    return ((crc >> 15 | crc << 17) + 0xA282EAD8) & 0xFFFFFFFF
