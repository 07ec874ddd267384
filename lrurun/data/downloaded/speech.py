"""Speech Commands (Warden 2018): which of 35 words, or of 10, is spoken in one second of sound at 16 kHz?"""

from __future__ import annotations

import contextlib
import re
import wave
from collections.abc import Iterator, Mapping, Sequence
from io import BytesIO
from pathlib import Path
from typing import Annotated, Literal

import numpy as np
from msgspec import Meta, structs

from lrurun.data.arrays import ArrayFile, Writer
from lrurun.data.copies import reader, reading
from lrurun.data.copies.reader import Copy
from lrurun.data.copies.tfds import Tfds
from lrurun.data.reduction import count, first_examples, fits
from lrurun.data.task import SPLITS, Data, Options, Progress, Reduction, Remote, Source, Spec, Split, Task, limited
from lrurun.errors import LrurunError

SIZES = {"train": 84_843, "validation": 9_981, "test": 11_005}
SIZES_OF_10 = {"train": 24_482, "validation": 5_246, "test": 5_247}
"""The sizes with ten words: 70, 15 and 15 % of the 34,975 clips that last a whole second, rounded as in the published
code."""
ARCHIVE = "speech_commands_v0.02.tar.gz"
RATE = LENGTH = 16_000
"""Samples per second, and samples of a clip: one second."""
FULL_SCALE = 1 / 32768
EPSILON = 1e-5
"""Added to the standard deviation, in units of full scale, as in the code of S5."""
WORDS = tuple(
    "backward bed bird cat dog down eight five follow forward four go happy house learn left marvin nine no off on one "
    "right seven sheila six stop three tree two up visual wow yes zero".split()
)
"""The classes in the order of their labels."""
TEN_WORDS = tuple("down go left no off on right stop up yes".split())
"""The classes of the task of ten words (Kidger et al. 2020), in the order of their labels."""

LISTS = {"validation": "validation_list.txt", "test": "testing_list.txt"}
_FILES = (*LISTS.values(), "*/*.wav")

_CLIP = re.compile(r"(?:.*/)?([^/._][^/]*/[^/.][^/]*\.wav)")
_HINT = f"the copy is not {ARCHIVE}, or it is incomplete: fetch it again"

_CLIP_LIMIT = 1 << 16
"""Bytes of a clip's file: a second of sound has 32,000, and its header 44."""
_LIST_LIMIT = 4 << 20
"""Bytes of a list: the longer one names 11,005 clips, each with fewer than 50 characters."""


class SpeechOptions(Options, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The words, and how the samples of a clip are stored."""

    words: Literal[10, 35] = 35
    """The number of classes. 10: the smaller task that S4 and DLR have (Kidger et al. 2020, Gu et al. 2022, Gupta et
    al. 2023, Table 4), of the clips that last a whole second, divided at random with the same share of each word."""
    stride: Annotated[int, Meta(ge=1, le=LENGTH)] = 1
    """Neighbouring samples that are averaged; 1: every sample is kept."""
    standardize: bool = False
    """Whether inputs are standardised as in the code of S5: at each position by mean and standard deviation over the
    training clips. They are then stored in float32."""


class SpeechCommands(Task):
    """All 35 words of version 0.02 with its own lists of validation and test clips, without background noise.

    Clips are sorted by word and file name and then shuffled, so that the first clips of a split are a random sample,
    whatever the order in the archive.

    Ten words have no published lists: in the published code the split depends on the order in which a file system
    lists the clips, so that only its sizes can be as in the papers. Their inputs are standardised there.
    """

    name = "SpeechCommands"
    title = "spoken words, 16000 samples, 35 classes"
    version = "1"
    """1: the shuffle of `arranged`, 16-bit samples unchanged."""
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

    def __init__(self, full: Mapping[str, int] = SIZES, full_of_10: Mapping[str, int] = SIZES_OF_10) -> None:
        self.full = {35: dict(full), 10: dict(full_of_10)}
        """Number of words -> examples per split of a complete copy."""

    def sizes(self, options: SpeechOptions) -> dict[str, int]:
        return limited(options, self.full[options.words])

    def spec(self, options: SpeechOptions, vocabulary: Sequence[str] = ()) -> Spec:
        length = -(-LENGTH // options.stride)
        scale = 1.0 if options.standardize else FULL_SCALE
        return Spec(name=self.name, kind="features", features=1, classes=options.words, length=length, scale=scale)

    def find(self, path: Path, options: SpeechOptions) -> Source | None:
        folders = ["", ARCHIVE.removesuffix(".tar.gz")]
        copy = reader.find(path, _FILES, _HINT, folders=folders, archives=[ARCHIVE], data_set="speech_commands")
        if isinstance(copy, Tfds):
            raise LrurunError(
                f"{copy.path}: TFDS's speech_commands has 12 classes (10 words, unknown and silence), not 35 words",
                f"give {ARCHIVE}: TFDS keeps it among its downloads",
            )
        return self._source(copy, options) if copy else None

    def reduction(self, options: SpeechOptions, full: SpeechOptions) -> Reduction | None:
        if not fits(options, full, ignored=("stride", "standardize")):
            return None
        if full.standardize:  # by the moments of its own training clips
            is_same = (options.standardize, options.stride, options.train) == (True, full.stride, full.train)
            return first_examples(options) if is_same else None
        if full.stride not in (1, options.stride):
            return None
        stride = options.stride // full.stride
        if not options.standardize:
            return first_examples(options, lambda rows, *_: _thinned(rows, stride))

        def reduction(full: Data, writer: Writer, progress: Progress) -> None:
            clips = full.train.inputs[: count("train", full, options)]
            center, spread = moments(thinned(np.asarray(clip), stride) for clip in clips)

            def change(rows: Split, *_: object) -> Split:
                sounds = _thinned(rows, stride).inputs
                return structs.replace(rows, inputs=np.stack([standardized(row, center, spread) for row in sounds]))

            first_examples(options, change)(full, writer, progress)

        return reduction

    def example(self, spec: Spec, split: Split, index: int, vocabulary: Sequence[str]) -> np.ndarray:
        return waveform(np.asarray(split.inputs[index]))

    def _source(self, copy: Copy, options: SpeechOptions) -> Source:
        def fill(writer: Writer, progress: Progress) -> None:
            # the lists may come after the clips: a first pass for the names, a second for the sound
            splits = self._listed(copy, options, progress)
            words = WORDS if options.words == 35 else TEN_WORDS
            sizes = self.sizes(options)
            rows: dict[str, tuple[ArrayFile, int]] = {}
            dtype = np.float32 if options.standardize else np.int16
            for split in SPLITS:
                clips = splits[split][: sizes[split]]
                inputs = writer.create(split, "inputs", (len(clips), -(-LENGTH // options.stride)), dtype)
                rows |= {clip: (inputs, row) for row, clip in enumerate(clips)}
                labels = np.array([words.index(word_of(clip)) for clip in clips], np.uint8)
                writer.save(split, "labels", labels)

            def sounds() -> Iterator[tuple[str, np.ndarray]]:
                for file in copy.files(progress):
                    if (clip := clip_of(file.name)) in rows:
                        yield clip, thinned(samples(file.read(_CLIP_LIMIT), file.where), options.stride)

            if options.standardize:
                train = set(splits["train"][: sizes["train"]])
                center, spread = moments(sound for clip, sound in sounds() if clip in train)
            for clip, sound in sounds():
                inputs, row = rows[clip]
                inputs.put(row, (standardized(sound, center, spread) if options.standardize else sound)[None])

        return Source(kind="folder", text=copy.text, fill=fill, archive=copy.archive)

    def _listed(self, copy: Copy, options: SpeechOptions, progress: Progress) -> dict[str, list[str]]:
        """The clips of every split, in order.

        Raises:
            LrurunError: clips, words or lists are missing or inconsistent.
        """
        clips: set[str] = set()
        whole: set[str] = set()  # clips of ten words that last a second
        lists: dict[str, list[str]] = {}
        where = str(copy.path)
        for file in copy.files(progress):
            if clip := clip_of(file.name):
                if clip in clips:
                    raise LrurunError(f"{where}: {clip} occurs twice", _HINT)
                clips.add(clip)
                if options.words == 10 and word_of(clip) in TEN_WORDS:
                    whole |= {clip} if duration(file.read(_CLIP_LIMIT), file.where) == LENGTH else set()
                if len(clips) > 2 * sum(self.full[35].values()):  # a few too many are reported below
                    break
            elif file.name in LISTS.values():
                lists[file.name] = file.read(_LIST_LIMIT).decode(errors="replace").split()
        splits = arranged(clips, lists, where)
        if options.words == 10:
            splits = divided(whole, self.full[10])
        for split, full in self.full[options.words].items():
            if len(splits[split]) != full:
                raise LrurunError(f"{where}: {split}: expected {full:,} clips, found {len(splits[split]):,}", _HINT)
        return splits


def arranged(clips: set[str], lists: Mapping[str, Sequence[str]], where: str) -> dict[str, list[str]]:
    """The clips of each split, in order.

    Raises:
        LrurunError: words or lists are missing, or a list names a clip that is missing.
    """
    words = {word_of(clip) for clip in clips}
    if unknown := sorted(words - set(WORDS)):
        raise LrurunError(f"{where}: {unknown[0]!r} is none of the 35 words", _HINT)
    if missing := [word for word in WORDS if word not in words]:
        raise LrurunError(f"{where}: no clips of {', '.join(missing[:5])}{', ...' * (len(missing) > 5)}", _HINT)
    splits = {"train": set(clips)}
    for split, base in LISTS.items():
        splits[split] = set(lists[base])
        if absent := sorted(splits[split] - splits["train"]):
            raise LrurunError(f"{where}: {base} names {absent[0]}, which is missing or also in another list", _HINT)
        splits["train"] -= splits[split]
    random = np.random.RandomState(0)
    ordered = {split: sorted(splits[split]) for split in SPLITS}
    return {split: [names[k] for k in random.permutation(len(names))] for split, names in ordered.items()}


def divided(clips: set[str], full: Mapping[str, int]) -> dict[str, list[str]]:
    """The clips of ten words in each split, in order, with the share of each word that it has among all clips.

    The last split has what the others leave.
    """
    random = np.random.RandomState(0)
    shares: list[tuple[float, str]] = []
    for word in TEN_WORDS:
        names = sorted(clip for clip in clips if word_of(clip) == word)
        shares += [((rank + 0.5) / len(names), names[k]) for rank, k in enumerate(random.permutation(len(names)))]
    ordered = [clip for _, clip in sorted(shares)]
    ends = np.cumsum([full[split] for split in SPLITS])[:-1].tolist()
    parts = zip(SPLITS, [0, *ends], [*ends, len(ordered)], strict=True)
    return {
        split: [ordered[first + k] for k in random.permutation(len(ordered[first:end]))] for split, first, end in parts
    }


def clip_of(name: str) -> str:
    """`word/file.wav` for a clip, "" for other files; folders like `_background_noise_` have no clips."""
    match = _CLIP.fullmatch(name)
    return match[1] if match else ""


def word_of(clip: str) -> str:
    return clip.partition("/")[0]


@contextlib.contextmanager
def _opened(data: bytes, name: str) -> Iterator[wave.Wave_read]:
    try:
        with wave.open(BytesIO(data)) as file:
            yield file
    except (wave.Error, EOFError) as error:
        raise LrurunError(f"{name}: not a WAV file with PCM sound: {reading.first_line(error)}", _HINT) from None


def duration(data: bytes, name: str) -> int:
    """The number of samples of a WAV file, as its header has it.

    Raises:
        LrurunError: another kind of file; `name` is the file's in the message.
    """
    with _opened(data, name) as file:
        return file.getnframes()


def samples(data: bytes, name: str) -> np.ndarray:
    """(16000,) int16: the sound of a WAV file with one channel, 16 bits and 16 kHz; a shorter one is padded with zeros.

    Raises:
        LrurunError: another kind of file, longer, or truncated; `name` is the file's in the message.
    """
    with _opened(data, name) as file:
        channels, rate, bits = file.getnchannels(), file.getframerate(), 8 * file.getsampwidth()
        count = file.getnframes()
        sound = file.readframes(min(count, LENGTH))
    if (channels, rate, bits) != (1, RATE, 16):
        actual = f"{channels} channels, {rate} Hz, {bits} bits"
        raise LrurunError(f"{name}: expected 1 channel, {RATE} Hz, 16 bits, found {actual}", _HINT)
    if not 0 < count <= LENGTH:
        raise LrurunError(f"{name}: expected 1 to {LENGTH:,} samples, found {count:,}", _HINT)
    if len(sound) != 2 * count:
        raise LrurunError(f"{name}: truncated: expected {2 * count:,} bytes of sound, found {len(sound):,}", _HINT)
    row = np.zeros(LENGTH, np.int16)
    row[:count] = np.frombuffer(sound, np.dtype("<i2"))
    return row


def thinned(row: np.ndarray, stride: int) -> np.ndarray:
    """The rounded means of every `stride` neighbouring samples; the last mean may be of fewer."""
    if stride == 1:
        return row
    starts = np.arange(0, len(row), stride)
    sums = np.add.reduceat(row, starts, dtype=np.int64)
    return np.rint(sums / np.diff(starts, append=len(row))).astype(np.int16)


def moments(sounds: Iterator[np.ndarray]) -> tuple[np.ndarray, np.ndarray]:
    """Mean and standard deviation (with n - 1) at each position, in units of full scale, float64."""
    count, sums, squares = 0, np.zeros(1, np.int64), np.zeros(1, np.int64)
    for sound in sounds:
        row = sound.astype(np.int64)
        count, sums, squares = count + 1, sums + row, squares + row * row
    mean = sums / count
    variance = (squares - sums * mean) / max(count - 1, 1)
    return mean * FULL_SCALE, np.sqrt(np.maximum(variance, 0.0)) * FULL_SCALE


def standardized(row: np.ndarray, center: np.ndarray, spread: np.ndarray) -> np.ndarray:
    """A clip, int16, as float32 with these moments taken out."""
    return ((row * FULL_SCALE - center) / (spread + EPSILON)).astype(np.float32)


def _thinned(rows: Split, stride: int) -> Split:
    return structs.replace(rows, inputs=np.stack([thinned(row, stride) for row in rows.inputs]))


def waveform(row: np.ndarray, height: int = 96, width: int = 320) -> np.ndarray:
    """(height, width) uint8: black between the least and the greatest sample of every column, else white.

    The loudest sample reaches the border.
    """
    starts = np.arange(width) * len(row) // width
    peak = float(np.abs(row.astype(np.float64)).max()) or 1.0
    middle = (height - 1) / 2
    top = np.rint(middle * (1 - np.maximum.reduceat(row, starts) / peak))
    bottom = np.rint(middle * (1 - np.minimum.reduceat(row, starts) / peak))
    lines = np.arange(height)[:, None]
    return np.where((lines >= top) & (lines <= bottom), 0, 255).astype(np.uint8)
