"""SpeechCommands: every sample of every clip in its split, or a refusal that names the clip."""

from __future__ import annotations

import hashlib
import json
import random
import struct
import tracemalloc

import numpy as np
import pytest

from lrurun.data.downloaded.speech import WORDS, SpeechCommands, SpeechOptions, thinned, waveform
from lrurun.data.task import SPLITS
from tests.harness import formats
from tests.harness.formats import wav

HINT = "the copy is not speech_commands_v0.02.tar.gz, or it is incomplete: fetch it again"
PUBLISHED = SpeechOptions()
LIST = b"LIST" + struct.pack("<I", 5) + b"odd data"[:5] + b"\0"  # chunks begin at even places


def made():
    """The archive's files, and the samples of every clip; the two lists come last."""
    draw = random.Random(0)
    files, sounds = {"README.md": b"# Speech Commands", "LICENSE": b"CC BY"}, {}
    for word in sorted(WORDS, reverse=True):
        for number in range(3):
            clip = f"{word}/{draw.getrandbits(32):08x}_nohash_{number}.wav"
            sounds[clip] = [draw.randint(-32768, 32767) for _ in range(draw.choice([1, 300, 701]))]
            files[clip] = wav(struct.pack(f"<{len(sounds[clip])}h", *sounds[clip]), head=LIST * (number % 2))
    clips = list(sounds)
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
FULL = {"train": 55, "validation": 20, "test": 30}
TASK = SpeechCommands(FULL)
SOME = sorted(SOUNDS)[33]


def archive(path, files, mode="w"):
    """With './' before every name and folders as members, as the published one."""
    folders = ["./", *sorted({f"./{name.partition('/')[0]}/" for name in files if "/" in name})]
    return formats.tar(path, dict.fromkeys(folders, b"") | {f"./{name}": data for name, data in files.items()}, mode)


def clips_of(split):
    """In any order."""
    held = {name: CONTENTS[f"{name}_list.txt"].decode().split() for name in ("validation", "testing")}
    rest = [clip for clip in SOUNDS if clip not in held["validation"] + held["testing"]]
    return {"train": rest, "validation": held["validation"], "test": held["testing"]}[split]


@pytest.fixture(scope="module")
def prepared(tmp_path_factory):
    """The archive and its data."""
    place = tmp_path_factory.mktemp("speech")
    given = archive(place / "given/speech_commands_v0.02.tar.gz", CONTENTS, "w:gz").parent
    return given, formats.prepared(TASK, place / "out", given)[0]


def test_every_sample_of_every_clip_is_there(prepared):
    _, data = prepared
    digest = hashlib.sha256()
    for name in SPLITS:
        split = getattr(data, name)
        assert split.inputs.shape == (FULL[name], 16000)
        assert (split.inputs.dtype, split.lengths) == (np.int16, None)
        found = sorted((int(label), row.tolist()) for label, row in zip(split.labels, split.inputs, strict=True))
        expected = [(WORDS.index(clip.split("/")[0]), SOUNDS[clip] + [0] * 16000) for clip in clips_of(name)]
        assert found == sorted((label, samples[:16000]) for label, samples in expected)
        digest.update(split.inputs.tobytes() + split.labels.tobytes())
    train, test = (sorted(clip.split("/")[0] for clip in clips_of(name)) for name in ("train", "test"))
    common = max(WORDS, key=lambda word: (train.count(word), -WORDS.index(word)))
    assert data.baselines == {"majority class": test.count(common) / len(test)}
    assert len(set(data.train.labels[:30].tolist())) > 12
    # other bytes are another version: change SpeechCommands.version, which is in every fingerprint, not this digest
    assert (TASK.version, digest.hexdigest()[:16]) == ("1", "1af3eba47c4d187a")


@pytest.mark.parametrize("form", ["reversed", "folder", "folder around"])
def test_every_copy_gives_the_same_bytes(prepared, tmp_path, form):
    files = {f"speech_commands_v0.02/{name}": data for name, data in reversed(CONTENTS.items())}
    if form == "reversed":
        given = archive(tmp_path / "plain.tar", files)
    else:
        given = formats.tree(tmp_path / "given", files) / ("speech_commands_v0.02" if form == "folder" else "")
    data, table = formats.prepared(TASK, tmp_path / "out", given)
    assert data.sha256 == prepared[1].sha256
    assert str(given) in table.source


def test_ten_words_are_the_whole_clips_in_splits_with_the_same_share_of_each(tmp_path):
    """Ten clips of each word last a second, 13 of "go", and two of each are shorter by a sample or padded by nobody."""
    words = sorted(["yes", "no", "up", "down", "left", "right", "on", "off", "stop", "go"])
    draw, whole = np.random.default_rng(0), {}
    files = {name: data for name, data in CONTENTS.items() if name.partition("/")[0] not in words}
    for word in words:
        for number in range(15 if word == "go" else 12):
            sound = draw.integers(-9999, 9999, 15_999 if number < 2 else 16_000, np.int16)
            clip = f"{word}/{number:08x}_nohash_0.wav"
            files[clip] = wav(sound.tobytes())
            whole |= {clip: sound} if number >= 2 else {}
    for name in ("validation", "testing"):
        files[f"{name}_list.txt"] = b""
    given = archive(tmp_path / "given/x.tar", files)
    full = {"train": 72, "validation": 15, "test": 16}
    task = SpeechCommands(FULL, full)
    data, _ = formats.prepared(task, tmp_path / "raw", given, SpeechOptions(words=10))
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
    inputs = formats.prepared(task, tmp_path / "standardised", given, options)[0].train.inputs
    raw = data.train.inputs / 32768
    np.testing.assert_allclose(inputs, (raw - raw.mean(0)) / (raw.std(0, ddof=1) + 1e-5), atol=1e-4)


@pytest.mark.parametrize("stride", [7, 16])
def test_a_stride_takes_means_of_neighbours(prepared, tmp_path, stride):
    given, data = prepared
    counts = {"train": 12, "validation": 3, "test": 4}
    few, _ = formats.prepared(TASK, tmp_path, given, SpeechOptions(stride=stride, **counts))
    for name, count in counts.items():
        rows = getattr(data, name).inputs[:count].tolist()
        parts = [[row[k : k + stride] for k in range(0, 16000, stride)] for row in rows]
        expected = [[round(sum(part) / len(part)) for part in row] for row in parts]
        assert getattr(few, name).inputs.tolist() == expected
        np.testing.assert_array_equal(getattr(few, name).labels, getattr(data, name).labels[:count])
    assert few.spec.length == few.train.inputs.shape[1] == -(-16000 // stride)
    assert thinned(np.full(16000, -32768, np.int16), 3).tolist() == [-32768] * 5334  # no sum overflows


@pytest.mark.parametrize("stride", [1, 100])
def test_standardised_clips_are_those_of_s5(prepared, tmp_path, stride):
    """At each position, by mean and standard deviation over the training clips (s5/dataloaders/sc.py)."""
    given, data = prepared
    options = SpeechOptions(standardize=True, stride=stride, train=40)
    found, _ = formats.prepared(TASK, tmp_path, given, options)
    plain = {split: getattr(data, split).inputs.astype(np.float64) for split in SPLITS}
    plain = {split: np.rint(x.reshape(len(x), -1, stride).mean(-1)) / 32768 for split, x in plain.items()}
    train = plain["train"][:40]
    for split in SPLITS:
        wanted = (plain[split] - train.mean(0)) / (train.std(0, ddof=1) + 1e-5)
        inputs = getattr(found, split).inputs
        assert inputs.dtype == np.float32
        np.testing.assert_allclose(inputs, wanted[: len(inputs)], rtol=1e-6, atol=1e-6)
    assert found.spec.scale == 1.0
    picture = TASK.example(found.spec, found.train, 0, ())
    assert picture.min() == 0
    assert picture[0].min() == 0 or picture[-1].min() == 0


def test_an_example_is_a_picture_of_the_sound(prepared):
    data = prepared[1]
    shown = TASK.example(data.spec, data.train, 0, ())
    np.testing.assert_array_equal(shown, waveform(data.train.inputs[0]))
    row = np.zeros(16000, np.int16)
    row[8000:8050] = 1000
    row[12000:12050] = -500
    picture = waveform(row)
    assert (picture.shape, picture.dtype) == ((96, 320), np.uint8)
    black = [np.flatnonzero(column == 0).tolist() for column in picture.T]
    assert (black[160], black[240], set(map(tuple, black[:160]))) == ([0], [71], {(48,)})
    for length in (1, 100, 320, 1000):
        assert waveform(np.arange(length).astype(np.int16)).shape == (96, 320)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "not a WAV file with PCM sound: EOFError"),
        (b"OggS" + bytes(100), "not a WAV file with PCM sound: file does not start with RIFF id"),
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
def test_a_wrong_clip_is_named_and_the_next_try_succeeds(tmp_path, content, message):
    given = archive(tmp_path / "a.tar", CONTENTS | {SOME: content})
    assert formats.refused(TASK, PUBLISHED, tmp_path, given) == (f"./a.tar: {SOME}: {message}", HINT)
    if not content:
        files = formats.tree(tmp_path / "given", CONTENTS | {SOME: content})
        assert formats.refused(TASK, PUBLISHED, tmp_path, files) == (f"./given/{SOME}: {message}", HINT)
        (files / SOME).write_bytes(CONTENTS[SOME])
        formats.prepared(TASK, tmp_path / "out", files)


def without(*names):
    return {name: data for name, data in CONTENTS.items() if not name.startswith(names)}


@pytest.mark.parametrize(
    ("files", "message"),
    [
        (without("validation_list.txt"), "validation_list.txt missing"),
        (without("visual/", "learn/"), "no clips of learn, visual"),
        (without("b", "c", "d"), "no clips of backward, bed, bird, cat, dog, ..."),
        ({"README": b"x"}, "validation_list.txt and testing_list.txt and */*.wav missing"),
        (CONTENTS | {"perhaps/0_nohash_0.wav": wav(b"12")}, "'perhaps' is none of the 35 words"),
        (CONTENTS | {"zero/0_nohash_0.wav": wav(b"12")}, "train: expected 55 clips, found 56"),
        (without(clips_of("train")[0]), "train: expected 55 clips, found 54"),
        (without(clips_of("test")[0]), f"testing_list.txt names {clips_of('test')[0]}, which is missing or al"),
        (
            CONTENTS | {"testing_list.txt": CONTENTS["validation_list.txt"]},
            f"testing_list.txt names {min(clips_of('validation'))}, which is missing or al",
        ),
        (CONTENTS | {"testing_list.txt": b"\xff\n"}, "testing_list.txt names \ufffd, which is missing or al"),
        (CONTENTS | {f"again/{SOME}": wav(b"12")}, f"{SOME} occurs twice"),
    ],
)
def test_clips_and_lists_that_do_not_belong_together_are_refused(tmp_path, files, message):
    found, hint = formats.refused(TASK, PUBLISHED, tmp_path, archive(tmp_path / "a.tar", files))
    assert found.startswith(f"./a.tar: {message}")
    assert hint == HINT


def test_the_twelve_classes_of_tfds_are_refused(tmp_path):
    place = tmp_path / "tensorflow_datasets/speech_commands/0.0.3"
    place.mkdir(parents=True)
    table = {"name": "speech_commands", "version": "0.0.3", "fileFormat": "tfrecord", "splits": []}
    (place / "dataset_info.json").write_text(json.dumps(table))
    for given in (place, tmp_path / "tensorflow_datasets"):
        message, hint = formats.refused(TASK, PUBLISHED, tmp_path, given)
        assert message.startswith(f"./{place.relative_to(tmp_path)}: TFDS's speech_commands has 12 classes")
        assert hint == "give speech_commands_v0.02.tar.gz: TFDS keeps it among its downloads"


def test_memory_does_not_grow_with_the_clips(tmp_path):
    """Eleven megabytes of sound."""
    files = {f"{word}/{k}.wav": wav(bytes(32000)) for word in WORDS for k in range(10)}
    lists = {"validation_list.txt": 0, "testing_list.txt": 1}
    files |= {file: "\n".join(f"{word}/{k}.wav" for word in WORDS).encode() for file, k in lists.items()}
    given = archive(tmp_path / "many.tar", files)
    tracemalloc.start()
    formats.prepared(SpeechCommands({"train": 8 * 35, "validation": 35, "test": 35}), tmp_path / "out", given)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 4e6
