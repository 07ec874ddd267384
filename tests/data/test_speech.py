"""SpeechCommands: every sample of every clip in its split, or a refusal that names the clip."""

from __future__ import annotations

import hashlib
import json
import os
import random
import struct
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import lrurun
from lrurun.data import store
from lrurun.data.downloaded.speech import SIZES, WORDS, SpeechCommands, SpeechOptions, thinned, waveform
from lrurun.data.task import SPLITS
from tests.data.test_retrieval import PEAK
from tests.harness import formats

HINT = "the copy is not speech_commands_v0.02.tar.gz, or it is incomplete: fetch it again"
PUBLISHED = SpeechOptions()


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


LIST = b"LIST" + struct.pack("<I", 5) + b"odd data"[:5] + b"\0"  # chunks begin at even places
TEXT = b"data is in here"


def made() -> tuple[dict[str, bytes], dict[str, list[int]]]:
    """The archive's files, and the samples of every clip; the two lists come last."""
    draw = random.Random(0)
    files, sounds = {"README.md": b"# Speech Commands", "LICENSE": b"CC BY"}, {}
    clips = []
    for word in sorted(WORDS, reverse=True):
        for number in range(5):
            clip = f"{word}/{draw.getrandbits(32):08x}_nohash_{number}.wav"
            sounds[clip] = [draw.randint(-32768, 32767) for _ in range(draw.choice([1, 700, 1501]))]
            files[clip] = wav(struct.pack(f"<{len(sounds[clip])}h", *sounds[clip]), head=LIST * (number % 2))
            clips.append(clip)
    sounds[clips[0]] = [draw.randint(-32768, 32767) for _ in range(16000)]
    files[clips[0]] = wav(struct.pack("<16000h", *sounds[clips[0]]), behind=b"note" + struct.pack("<I", 4) + b"1234")
    files["_background_noise_/running_tap.wav"] = wav(bytes(100), rate=44100)
    files["_background_noise_/README.md"] = b"noise"
    files["zero/._hidden.wav"] = b"\x00\x05\x16\x07"
    files[".DS_Store"] = b"\0"
    draw.shuffle(clips)
    files["validation_list.txt"] = "".join(f"{clip}\n" for clip in clips[:20]).encode()
    files["testing_list.txt"] = "".join(f"{clip}\r\n" for clip in clips[20:50]).encode()
    return files, sounds


CONTENTS, SOUNDS = made()
FULL = {"train": 125, "validation": 20, "test": 30}
SOME = sorted(SOUNDS)[33]


def archive(path: Path, files: dict[str, bytes], mode: str = "w:gz") -> Path:
    """With './' before every name and folders as members, as the published one."""
    folders = ["./", *sorted({f"./{name.partition('/')[0]}/" for name in files if "/" in name})]
    return formats.tar(path, dict.fromkeys(folders, b"") | {f"./{name}": data for name, data in files.items()}, mode)


def clips_of(split: str) -> list[str]:
    """In any order."""
    held = {name: CONTENTS[f"{name}_list.txt"].decode().split() for name in ("validation", "testing")}
    rest = [clip for clip in SOUNDS if clip not in held["validation"] + held["testing"]]
    return {"train": rest, "validation": held["validation"], "test": held["testing"]}[split]


def refused(where: Path, given: Path, full: dict[str, int] = FULL) -> tuple:
    return formats.refused(SpeechCommands(full), PUBLISHED, where, given)


@pytest.fixture(scope="module")
def copies(tmp_path_factory):
    """The same clips in every form."""
    place = tmp_path_factory.mktemp("copies")
    archive(place / "archive/speech_commands_v0.02.tar.gz", CONTENTS)
    files = dict(reversed(CONTENTS.items()))
    archive(place / "plain.tar", {f"speech_commands_v0.02/{name}": data for name, data in files.items()}, mode="w")
    formats.tree(place / "unpacked/speech_commands_v0.02", CONTENTS)
    return place


@pytest.fixture(scope="module")
def prepared(copies, tmp_path_factory):
    where = tmp_path_factory.mktemp("data") / "SpeechCommands"
    store.prepare(SpeechCommands(FULL), PUBLISHED, where, from_path=copies / "archive")
    return where


def test_the_published_data_are_the_default():
    task = SpeechCommands()
    assert task.sizes(PUBLISHED) == SIZES == {"train": 84_843, "validation": 9_981, "test": 11_005}
    assert sum(SIZES.values()) == 105_829
    assert len(set(WORDS)) == task.classes == 35
    assert list(WORDS) == sorted(WORDS)
    spec = task.spec(PUBLISHED)
    assert (spec.kind, spec.features, spec.classes, spec.length, spec.scale) == ("features", 1, 35, 16000, 2**-15)
    (remote,) = task.remotes
    assert remote.url.endswith(f"/{remote.name}")
    assert len(remote.sha256) == 64


def test_every_sample_of_every_clip_is_there(prepared):
    data = store.load(SpeechCommands(FULL), PUBLISHED, prepared)
    for name in SPLITS:
        split = getattr(data, name)
        assert split.inputs.shape == (FULL[name], 16000)
        assert split.inputs.dtype == np.int16
        assert split.lengths is None
        found = sorted((int(label), row.tolist()) for label, row in zip(split.labels, split.inputs, strict=True))
        expected = [(WORDS.index(clip.split("/")[0]), SOUNDS[clip] + [0] * 16000) for clip in clips_of(name)]
        assert found == sorted((label, samples[:16000]) for label, samples in expected)
    train, test = (sorted(clip.split("/")[0] for clip in clips_of(name)) for name in ("train", "test"))
    common = max(WORDS, key=lambda word: (train.count(word), -WORDS.index(word)))
    assert data.baselines == {"majority class": test.count(common) / len(test)}
    assert len(list(prepared.iterdir())) == 7


def test_ten_words_are_the_whole_clips_in_splits_with_the_same_share_of_each(tmp_path):
    """Ten clips of each word last a second, 13 of "go", and two of each are shorter by a sample or padded by nobody."""
    words = sorted(["yes", "no", "up", "down", "left", "right", "on", "off", "stop", "go"])
    random, whole = np.random.default_rng(0), {}
    files = {name: data for name, data in CONTENTS.items() if name.partition("/")[0] not in words}
    for word in words:
        for number in range(15 if word == "go" else 12):
            sound = random.integers(-9999, 9999, 15_999 if number < 2 else 16_000, np.int16)
            clip = f"{word}/{number:08x}_nohash_0.wav"
            files[clip] = wav(sound.tobytes())
            whole |= {clip: sound} if number >= 2 else {}
    for name in ("validation", "testing"):
        files[f"{name}_list.txt"] = b""
    archive(tmp_path / "speech_commands_v0.02.tar.gz", files)
    full = {"train": 72, "validation": 15, "test": 16}
    task, options = SpeechCommands(FULL, full), SpeechOptions(words=10)
    store.prepare(task, options, tmp_path / "raw", from_path=tmp_path / "speech_commands_v0.02.tar.gz")
    data = store.load(task, options, tmp_path / "raw")
    assert data.spec.classes == 10
    found = []
    for name, size in full.items():
        split = getattr(data, name)
        assert split.inputs.shape == (size, 16_000)
        for word, count in zip(words, np.bincount(split.labels, minlength=10), strict=True):
            assert abs(count - size * (13 if word == "go" else 10) / 103) <= 1
        found += [(words[label], row.tobytes()) for label, row in zip(split.labels, split.inputs, strict=True)]
    assert sorted(found) == sorted((clip.split("/")[0], sound.tobytes()) for clip, sound in whole.items())
    assert len(set(data.train.labels[:30].tolist())) > 6
    options = SpeechOptions(words=10, standardize=True)
    store.prepare(task, options, tmp_path / "standardised", from_path=tmp_path / "speech_commands_v0.02.tar.gz")
    inputs = store.load(task, options, tmp_path / "standardised").train.inputs
    np.testing.assert_allclose(inputs.mean(0), 0, atol=1e-4)
    np.testing.assert_allclose(inputs.std(0, ddof=1), 1, atol=1e-3)
    raw = data.train.inputs / 32768
    np.testing.assert_allclose(inputs, (raw - raw.mean(0)) / (raw.std(0, ddof=1) + 1e-5), atol=1e-4)


def test_ten_words_have_the_published_number_of_clips():
    """34,975, of which 70 and 15 % are rounded down."""
    sizes = SpeechCommands().sizes(SpeechOptions(words=10))
    assert sizes == {"train": int(0.7 * 34_975), "validation": int(0.5 * (34_975 - int(0.7 * 34_975))), "test": 5_247}
    assert sum(sizes.values()) == 34_975


def test_the_first_clips_are_of_many_words(prepared):
    data = store.load(SpeechCommands(FULL), PUBLISHED, prepared)
    assert len(set(data.train.labels[:30].tolist())) > 12


@pytest.mark.parametrize(
    "given",
    [
        "archive/speech_commands_v0.02.tar.gz",
        "plain.tar",
        "unpacked",
        "unpacked/speech_commands_v0.02",
    ],
)
def test_every_copy_gives_the_same_bytes(copies, prepared, tmp_path, given):
    where = tmp_path / "SpeechCommands"
    table = store.prepare(SpeechCommands(FULL), PUBLISHED, where, from_path=copies / given)
    assert table.sha256 == store.manifest(SpeechCommands(FULL), PUBLISHED, prepared).sha256
    assert str(copies / given) in table.source


def test_version_1_is_these_bytes_for_ever(prepared):
    # other bytes are another version: change SpeechCommands.version, which is in every fingerprint, not this digest
    assert SpeechCommands.version == "1"
    content = b"".join((prepared / f"{s}-{part}.npy").read_bytes() for s in SPLITS for part in ("inputs", "labels"))
    assert hashlib.sha256(content).hexdigest() == "9f5695f705c1b2d13c4e025cb8127913e0523015139199370a744356afd1fd60"


@pytest.mark.parametrize("stride", [2, 7, 16, 16000])
def test_a_stride_takes_means_of_neighbours(copies, prepared, tmp_path, stride):
    options = SpeechOptions(stride=stride, train=12, validation=3, test=4)
    task, where = SpeechCommands(FULL), tmp_path / "SpeechCommands"
    store.prepare(task, options, where, from_path=copies / "archive")
    few, data = store.load(task, options, where), store.load(task, PUBLISHED, prepared)
    for name, count in (("train", 12), ("validation", 3), ("test", 4)):
        rows = getattr(data, name).inputs[:count].tolist()
        expected = [
            [round(sum(part) / len(part)) for part in (row[k : k + stride] for k in range(0, 16000, stride))]
            for row in rows
        ]
        assert getattr(few, name).inputs.tolist() == expected
        np.testing.assert_array_equal(getattr(few, name).labels, getattr(data, name).labels[:count])
    assert few.spec.length == few.train.inputs.shape[1] == -(-16000 // stride)


@pytest.mark.parametrize("stride", [1, 100])
def test_standardised_clips_are_those_of_s5(copies, prepared, tmp_path, stride):
    """At each position, by mean and standard deviation over the training clips (s5/dataloaders/sc.py)."""
    task, options = SpeechCommands(FULL), SpeechOptions(standardize=True, stride=stride, train=50)
    store.prepare(task, options, tmp_path / "SpeechCommands", from_path=copies / "archive")
    found = store.load(task, options, tmp_path / "SpeechCommands")
    plain = {split: np.load(prepared / f"{split}-inputs.npy").astype(np.float64) for split in SPLITS}
    plain = {split: np.rint(x.reshape(len(x), -1, stride).mean(-1)) / 32768 for split, x in plain.items()}
    train = plain["train"][:50]
    for split in SPLITS:
        wanted = (plain[split] - train.mean(0)) / (train.std(0, ddof=1) + 1e-5)
        inputs = getattr(found, split).inputs
        assert inputs.dtype == np.float32
        np.testing.assert_allclose(inputs, wanted[: len(inputs)], rtol=1e-6, atol=1e-6)
    assert found.spec.scale == 1.0
    picture = task.example(found.spec, found.train, 0, ())
    assert picture.min() == 0
    assert picture[0].min() == 0 or picture[-1].min() == 0


def test_means_do_not_overflow():
    row = np.full(16000, -32768, np.int16)
    assert thinned(row, 3).tolist() == [-32768] * 5334


def test_an_example_is_a_picture_of_the_sound(prepared):
    data = store.load(SpeechCommands(FULL), PUBLISHED, prepared)
    shown = SpeechCommands(FULL).example(data.spec, data.train, 0, ())
    np.testing.assert_array_equal(shown, waveform(data.train.inputs[0]))
    row = np.zeros(16000, np.int16)
    row[8000:8050] = 1000
    row[12000:12050] = -500
    picture = waveform(row)
    assert picture.shape == (96, 320)
    assert picture.dtype == np.uint8
    black = [np.flatnonzero(column == 0).tolist() for column in picture.T]
    assert black[160] == [0]
    assert black[240] == [71]
    assert set(map(tuple, black[:160])) == {(48,)}
    for length in (1, 100, 320, 1000):
        assert waveform(np.arange(length).astype(np.int16)).shape == (96, 320)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "not a WAV file with PCM sound: EOFError"),
        (b"OggS" + bytes(100), "not a WAV file with PCM sound: file does not start with RIFF id"),
        (wav(bytes(100))[:12], "not a WAV file with PCM sound: fmt chunk and/or data chunk missing"),
        (wav(bytes(100))[:30], "not a WAV file with PCM sound: EOFError"),
        (wav(bytes(100), kind=3), "not a WAV file with PCM sound: unknown format: 3"),
        (wav(bytes(100), channels=2), "expected 1 channel, 16000 Hz, 16 bits, found 2 channels, 16000 Hz, 16 bits"),
        (wav(bytes(100), rate=8000), "expected 1 channel, 16000 Hz, 16 bits, found 1 channels, 8000 Hz, 16 bits"),
        (wav(bytes(100), bits=8), "expected 1 channel, 16000 Hz, 16 bits, found 1 channels, 16000 Hz, 8 bits"),
        (wav(b""), "expected 1 to 16,000 samples, found 0"),
        (wav(bytes(32002)), "expected 1 to 16,000 samples, found 16,001"),
        (wav(bytes(90), size=100), "truncated: expected 100 bytes of sound, found 90"),
        (wav(b"", size=2**32 - 1), "expected 1 to 16,000 samples, found 2,147,483,647"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_a_wrong_clip_is_named(tmp_path, content, message):
    given = archive(tmp_path / "a.tar.gz", CONTENTS | {SOME: content})
    assert refused(tmp_path, given) == (f"./a.tar.gz: {SOME}: {message}", HINT)


def test_the_next_try_succeeds(tmp_path):
    files = formats.tree(tmp_path / "given", CONTENTS | {SOME: b"x"})
    assert refused(tmp_path, files) == (f"./given/{SOME}: not a WAV file with PCM sound: EOFError", HINT)
    (files / SOME).write_bytes(CONTENTS[SOME])
    store.prepare(SpeechCommands(FULL), PUBLISHED, tmp_path / "out/SpeechCommands", from_path=files)
    assert [path.name for path in (tmp_path / "out").iterdir()] == ["SpeechCommands"]


def without(*names: str) -> dict[str, bytes]:
    return {name: data for name, data in CONTENTS.items() if not name.startswith(names)}


@pytest.mark.parametrize(
    ("files", "message"),
    [
        (without("validation_list.txt"), "validation_list.txt missing"),
        (without("testing_list.txt"), "testing_list.txt missing"),
        (without("visual/", "learn/"), "no clips of learn, visual"),
        (without("b", "c", "d"), "no clips of backward, bed, bird, cat, dog, ..."),
        ({"README": b"x"}, "validation_list.txt and testing_list.txt and */*.wav missing"),
        (CONTENTS | {"perhaps/0_nohash_0.wav": wav(b"12")}, "'perhaps' is none of the 35 words"),
        (CONTENTS | {"zero/0_nohash_0.wav": wav(b"12")}, "train: expected 125 clips, found 126"),
        (without(clips_of("train")[0]), "train: expected 125 clips, found 124"),
        (
            without(clips_of("test")[0]),
            f"testing_list.txt names {clips_of('test')[0]}, which is missing or also in another list",
        ),
        (
            CONTENTS | {"testing_list.txt": CONTENTS["validation_list.txt"]},
            f"testing_list.txt names {min(clips_of('validation'))}, which is missing or also in another list",
        ),
        (
            CONTENTS | {"testing_list.txt": b"\xff\n"},
            "testing_list.txt names \ufffd, which is missing or also in another list",
        ),
        (CONTENTS | {"testing_list.txt": clips_of("test")[1].encode()}, "train: expected 125 clips, found 154"),
        (CONTENTS | {f"again/{SOME}": wav(b"12")}, f"{SOME} occurs twice"),
    ],
)
def test_clips_and_lists_that_do_not_belong_together_are_refused(tmp_path, files, message):
    assert refused(tmp_path, archive(tmp_path / "a.tar.gz", files)) == (f"./a.tar.gz: {message}", HINT)


def test_the_twelve_classes_of_tfds_are_refused(tmp_path):
    place = tmp_path / "tensorflow_datasets/speech_commands/0.0.3"
    place.mkdir(parents=True)
    table = {"name": "speech_commands", "version": "0.0.3", "fileFormat": "tfrecord", "splits": []}
    (place / "dataset_info.json").write_text(json.dumps(table))
    for given in (place, tmp_path / "tensorflow_datasets"):
        message, hint = refused(tmp_path, given)
        assert message == (
            "./tensorflow_datasets/speech_commands/0.0.3: TFDS's speech_commands has 12 classes "
            "(10 words, unknown and silence), not 35 words"
        )
        assert hint == "give speech_commands_v0.02.tar.gz: TFDS keeps it among its downloads"


MEASURED = f"""{PEAK}
from lrurun.data import store as folder
from lrurun.data.downloaded.speech import SpeechCommands, SpeechOptions

place, options = Path(sys.argv[1]), SpeechOptions()
small, large = (dict(train=int(count), validation=35, test=35) for count in sys.argv[2:])
folder.prepare(SpeechCommands(small), options, place / "small", from_path=place / "few.tar")
before = peak()
folder.prepare(SpeechCommands(large), options, place / "S", from_path=place / "many.tar")
print(before, peak())
"""


def test_memory_does_not_grow_with_the_clips(tmp_path):
    for name, count in (("few", 3), ("many", 100)):
        files = {f"{word}/{k}.wav": wav(bytes(32000)) for word in WORDS for k in range(count)}
        lists = {"validation_list.txt": 0, "testing_list.txt": 1}
        files |= {file: "\n".join(f"{word}/{k}.wav" for word in WORDS).encode() for file, k in lists.items()}
        archive(tmp_path / f"{name}.tar", files, mode="w")
    assert (tmp_path / "many.tar").stat().st_size > 110e6
    environment = os.environ | {"PYTHONPATH": str(Path(lrurun.__file__).parent.parent)}
    output = subprocess.run(
        [sys.executable, "-c", MEASURED, str(tmp_path), "35", str(98 * 35)],
        env=environment,
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    before, after = map(int, output.split())
    assert after - before < 30e6, output
