"""Speech Commands (Warden 2018): which of 35 words is said in a second of sound, at 16 kHz?"""

from __future__ import annotations

import re
import struct
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Annotated

import numpy as np
from msgspec import Meta

from lrurun.errors import LrurunError
from lrurun.tasks import containers
from lrurun.tasks.base import SPLITS, Options, Remote, Source, Spec, Split, Task, Tell, limited, majority
from lrurun.tasks.writer import ArrayFile, Writer

SIZES = {"train": 84_843, "validation": 9_981, "test": 11_005}
ARCHIVE = "speech_commands_v0.02.tar.gz"
RATE = LENGTH = 16_000
"""Samples a second, and samples of a clip: one second."""
WORDS = tuple(
    "backward bed bird cat dog down eight five follow forward four go happy house learn left marvin nine no off on one "
    "right seven sheila six stop three tree two up visual wow yes zero".split()
)
"""The classes in the order of their labels."""

LISTS = {"validation": "validation_list.txt", "test": "testing_list.txt"}

_CLIP = re.compile(r"(?:.*/)?([^/._][^/]*/[^/.][^/]*\.wav)")
_HINT = f"the copy is not {ARCHIVE}, or it is incomplete: fetch it again"

_SOUND = 1 << 16
"""Bytes of a clip's file, at most: a second of sound has 32,000, and a head of 44."""
_LIST = 4 << 20
"""Bytes of a list, at most: the longer one names 11,005 clips with fewer than 50 characters each."""

Files = Callable[[Tell], Iterator[tuple[str, Callable[[int], bytes]]]]
"""The files of a copy: name, and how to read so many bytes of it, at most, before the next one is asked for."""


class SpeechOptions(Options, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Fewer samples make data for trials."""

    stride: Annotated[int, Meta(ge=1, le=LENGTH)] = 1
    """Neighbouring samples of which the mean is kept; 1: every sample."""


class SpeechCommands(Task):
    """All 35 words of version 0.02 with its own lists of validation and test clips; background noise is left out.

    Clips are put in the order of word and file name and then shuffled, so that the first ones of a split are as good
    as any, whatever the order in the archive.
    """

    name = "SpeechCommands"
    title = "spoken words, 16000 samples, 35 classes"
    version = "1"
    """1: the shuffle of `arranged`, 16-bit samples as they are."""
    options = SpeechOptions
    classes = len(WORDS)
    remotes = (
        Remote(
            url=f"http://download.tensorflow.org/data/{ARCHIVE}",
            name=ARCHIVE,
            bytes=2_428_923_189,
            sha256="af14739ee7dc311471de98f5f9d2c9191b18aedfe957f4a6ff791c709868ff58",
        ),
    )
    wanted = f"{ARCHIVE}, or the folder it was unpacked into"

    def __init__(self, full: Mapping[str, int] = SIZES) -> None:
        self.full = dict(full)
        """Examples per split of a whole copy."""

    def sizes(self, options: SpeechOptions) -> dict[str, int]:
        return limited(options, self.full)

    def spec(self, options: SpeechOptions, vocabulary: Sequence[str] = ()) -> Spec:
        length = -(-LENGTH // options.stride)
        return Spec(name=self.name, kind="features", features=1, classes=35, length=length, scale=1 / 32768)

    def find(self, path: Path, options: SpeechOptions) -> Source | None:
        if path.is_file():
            return self._source(path, partial(_streamed, path), options) if containers.is_archive(path) else None
        for folder in (path, path / ARCHIVE.removesuffix(".tar.gz")):
            if any((folder / name).is_file() for name in LISTS.values()):
                return self._source(folder, partial(_unpacked, folder), options)
        if (path / ARCHIVE).is_file():
            return self._source(path / ARCHIVE, partial(_streamed, path / ARCHIVE), options)
        if copy := containers.tfds(path, "speech_commands"):
            raise LrurunError(
                f"{copy.folder}: TFDS's speech_commands has 12 classes (10 words, unknown and silence), not 35 words",
                f"give {ARCHIVE}: TFDS keeps it among its downloads",
            )
        return None

    def example(self, spec: Spec, split: Split, index: int, vocabulary: Sequence[str]) -> np.ndarray:
        return waveform(np.asarray(split.inputs[index]))

    def _source(self, path: Path, files: Files, options: SpeechOptions) -> Source:
        def fill(writer: Writer, tell: Tell) -> None:
            # the lists may come after the clips: first only names, then the sound, every clip to its place
            splits = self._listed(files, str(path), tell)
            sizes = self.sizes(options)
            places: dict[str, tuple[ArrayFile, int]] = {}
            labels = {}
            for split in SPLITS:
                clips = splits[split][: sizes[split]]
                inputs = writer.create(split, "inputs", (len(clips), -(-LENGTH // options.stride)), np.int16)
                places |= {clip: (inputs, row) for row, clip in enumerate(clips)}
                labels[split] = np.array([WORDS.index(word_of(clip)) for clip in clips], np.uint8)
                writer.save(split, "labels", labels[split])
            for name, read in files(tell):
                if (clip := clip_of(name)) in places:
                    inputs, row = places[clip]
                    inputs.put(row, thinned(samples(read(_SOUND), f"{path}: {name}"), options.stride)[None])
            writer.baselines["majority class"] = majority(labels["train"], labels["test"])

        return Source(kind="folder", text=str(path.absolute()), fill=fill)

    def _listed(self, files: Files, where: str, tell: Tell) -> dict[str, list[str]]:
        """The clips of every split, in order.

        Raises:
            LrurunError: clips, words or lists are missing, or do not belong together.
        """
        clips: set[str] = set()
        lists: dict[str, list[str]] = {}
        for name, read in files(tell):
            base = name.rpartition("/")[2]
            if clip := clip_of(name):
                if clip in clips:
                    raise LrurunError(f"{where}: {clip} is there twice", _HINT)
                clips.add(clip)
                if len(clips) > 2 * sum(self.full.values()):  # a few too many are counted below
                    break
            elif base in LISTS.values():
                lists[base] = read(_LIST).decode(errors="replace").split()
        splits = arranged(clips, lists, where)
        for split, full in self.full.items():
            if len(splits[split]) != full:
                raise LrurunError(f"{where}: {split}: expected {full:,} clips, found {len(splits[split]):,}", _HINT)
        return splits


def arranged(clips: set[str], lists: Mapping[str, Sequence[str]], where: str) -> dict[str, list[str]]:
    """Which clip is in which split, and at which place.

    Raises:
        LrurunError: words or lists are missing, or lists name what is not there.
    """
    words = {word_of(clip) for clip in clips}
    if unknown := sorted(words - set(WORDS)):
        raise LrurunError(f"{where}: {unknown[0]!r} is none of the 35 words", _HINT)
    if missing := [word for word in WORDS if word not in words]:
        raise LrurunError(f"{where}: no clips of {', '.join(missing[:5])}{', ...' * (len(missing) > 5)}", _HINT)
    splits = {"train": set(clips)}
    for split, base in LISTS.items():
        if base not in lists:
            raise LrurunError(f"{where}: {base} is missing", _HINT)
        splits[split] = set(lists[base])
        if absent := sorted(splits[split] - splits["train"]):
            raise LrurunError(f"{where}: {base} names {absent[0]}, which is not there or in another list too", _HINT)
        splits["train"] -= splits[split]
    random = np.random.RandomState(0)
    ordered = {split: sorted(splits[split]) for split in SPLITS}
    return {split: [names[k] for k in random.permutation(len(names))] for split, names in ordered.items()}


def clip_of(name: str) -> str:
    """`word/file.wav` for a clip, nothing for other files; folders like `_background_noise_` hold no clips."""
    found = _CLIP.fullmatch(name)
    return found[1] if found else ""


def word_of(clip: str) -> str:
    return clip.partition("/")[0]


def _streamed(path: Path, tell: Tell) -> Iterator[tuple[str, Callable[[int], bytes]]]:
    for name, file in containers.members(path, tell):
        yield name, partial(containers.whole, file, name=f"{path}: {name}")


def _unpacked(folder: Path, tell: Tell) -> Iterator[tuple[str, Callable[[int], bytes]]]:
    for path in (*folder.glob("*_list.txt"), *folder.glob("*/*.wav")):
        tell(f"reading {path.parent}", 0, None)
        yield path.relative_to(folder).as_posix(), partial(containers.read, path)


def samples(data: bytes, name: str) -> np.ndarray:
    """(16000,) int16: the sound of a WAV file of one channel, 16 bits and 16 kHz, with zeros behind a shorter one.

    Raises:
        LrurunError: it is another kind of file, longer, or cut off; `name` says which.
    """
    if data[:4] != b"RIFF" or data[8:12] != b"WAVE":
        raise LrurunError(f"{name}: not a WAV file", _HINT)
    form, _ = _chunk(data, b"fmt ")
    if len(form) < 16:
        raise LrurunError(f"{name}: a WAV file without a format", _HINT)
    kind, channels, rate, _, _, bits = struct.unpack("<HHIIHH", form[:16])
    if (kind, channels, rate, bits) != (1, 1, RATE, 16):
        found = f"format {kind}, {channels} channels, {rate} Hz, {bits} bits"
        raise LrurunError(f"{name}: expected format 1 (PCM), 1 channel, {RATE} Hz, 16 bits, found {found}", _HINT)
    sound, size = _chunk(data, b"data")
    if len(sound) != size:
        raise LrurunError(f"{name}: cut off: expected {size:,} bytes of sound, found {len(sound):,}", _HINT)
    if size % 2 or not 0 < size <= 2 * LENGTH:
        raise LrurunError(f"{name}: expected 1 to {LENGTH:,} samples of 2 bytes, found {size:,} bytes", _HINT)
    row = np.zeros(LENGTH, np.int16)
    row[: size // 2] = np.frombuffer(sound, np.dtype("<i2"))
    return row


def _chunk(data: bytes, name: bytes) -> tuple[bytes, int]:
    """The first chunk of that name in a WAV file, and how long it should be; nothing where there is none."""
    place = 12
    while place + 8 <= len(data):
        size = int.from_bytes(data[place + 4 : place + 8], "little")
        if data[place : place + 4] == name:
            return data[place + 8 : place + 8 + size], size
        place += 8 + size + size % 2  # chunks begin at even places
    return b"", 0


def thinned(row: np.ndarray, stride: int) -> np.ndarray:
    """The rounded mean of every `stride` neighbouring samples; the last mean may be of fewer."""
    if stride == 1:
        return row
    starts = np.arange(0, len(row), stride)
    sums = np.add.reduceat(row, starts, dtype=np.int64)
    return np.rint(sums / np.diff(starts, append=len(row))).astype(np.int16)


def waveform(row: np.ndarray, height: int = 96, width: int = 320) -> np.ndarray:
    """(height, width) uint8: between the least and the greatest sample of every column black, else white.

    The loudest sample reaches the border.
    """
    starts = np.arange(width) * len(row) // width
    peak = max(1, int(np.abs(row.astype(np.int32)).max()))
    middle = (height - 1) / 2
    top = np.rint(middle * (1 - np.maximum.reduceat(row, starts) / peak))
    bottom = np.rint(middle * (1 - np.minimum.reduceat(row, starts) / peak))
    lines = np.arange(height)[:, None]
    return np.where((lines >= top) & (lines <= bottom), 0, 255).astype(np.uint8)
