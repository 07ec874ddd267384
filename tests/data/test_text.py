"""Text: every character of every review, whichever copy it comes from, or a refusal that says where."""

from __future__ import annotations

import hashlib
import json
import random
import re
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest

from lrurun.data import store as folder
from lrurun.data.downloaded.text import SIZES, Text, TextOptions
from lrurun.data.task import SPLITS, majority
from tests.harness import formats

FULL = {"train": 36, "validation": 4, "test": 30}
OPTIONS = TextOptions(max_length=60, min_frequency=4)
HINT = "the copy is not the published one, or incomplete: fetch it again"
CLASSES = ("neg", "pos")
PIECES = ["Good", "bad ", "<br /><br />", "é", "\x97", "—", "𝄞", "\n", "\u2028", "\x00", "“", " ", ".", "ZZ", "aaaaaaa"]


def made(seed: int = 0) -> dict[str, bytes]:
    """The archive's files: name -> content; some texts are empty, equal, long, or begin and end with blanks."""
    draw = random.Random(seed)
    found = {"aclImdb/README": b"Large Movie Review Dataset", "aclImdb/imdb.vocab": b"the\nand\n"}
    for part, count in (("train", 20), ("test", 15)):
        for label in CLASSES:
            for k in range(count):
                text = "".join(draw.choices(PIECES, k=draw.choice([1, 8, 20, 60])))
                blanks = draw.choice(["", " ", "\n "])
                found[f"aclImdb/{part}/{label}/{k}_{draw.randint(1, 10)}.txt"] = f"{blanks}{text}{blanks}".encode()
            found[f"aclImdb/{part}/urls_{label}.txt"] = b"http://www.imdb.com/title/tt0064354/usercomments\n"
        found[f"aclImdb/{part}/labeledBow.feat"] = b"9 0:9 1:1\n"
    for k in range(10):
        found[f"aclImdb/train/unsup/{k}_0.txt"] = "§ only here § § § § §".encode()
    found["aclImdb/train/urls_unsup.txt"] = b"http://www.imdb.com/title/tt0018515/usercomments\n"
    found["aclImdb/train/pos/._3_9.txt"] = b"\x00\x05\x16\x07Mac OS X"
    return found


FILES = made()


def texts(part: str, label: str, files: dict[str, bytes] = FILES) -> list[str]:
    prefix = f"aclImdb/{part}/{label}/"
    return [data.decode().strip(" \n") for name, data in files.items() if name.startswith(prefix) and "._" not in name]


def archive(path: Path, files: dict[str, bytes], dot: str = "") -> Path:
    """With folders as members too, which `dot` may precede."""
    folders = sorted({f"{Path(name).parent.as_posix()}/" for name in files})
    return formats.tar(path, {dot + name: files.get(name, b"") for name in [*folders, *files]})


def examples(part: str, files: dict[str, bytes], labels: Sequence[int] = (0, 1)) -> list[dict]:
    return [
        {"text": text.encode(), "label": label}
        for label, name in zip(labels, CLASSES, strict=True)
        for text in texts(part, name, files)
    ]


def tfds_splits(files: dict[str, bytes], labels: Sequence[int] = (0, 1)) -> dict[str, list[dict]]:
    """What TFDS makes of the archive."""
    unlabelled = [{"text": "§ only here".encode(), "label": -1}]
    splits = {part: examples(part, files, labels) for part in ("train", "test")}
    return splits | {"unsupervised": unlabelled}


def tfds_folder(place: Path, files: dict[str, bytes]) -> Path:
    """In array_record files, as TFDS writes them."""
    splits = {split: enumerate(found) for split, found in tfds_splits(files).items()}
    formats.tfds_array_record(place, "imdb_reviews", {}, splits)
    return place


def tfrecord_folder(place: Path, files: dict[str, bytes], labels: Sequence[int] = (0, 1), **more: str) -> Path:
    """In tfrecord files, as TensorFlow writes them."""
    features = {"text": formats.text_feature(), "label": formats.class_feature(2)}
    folder = place / "imdb_reviews/plain_text/1.0.0"
    about = {"configName": "plain_text"} | more
    formats.tfds_tfrecord(folder, "imdb_reviews", "1.0.0", features, tfds_splits(files, labels), shards=2, **about)
    return place


def encoded(text: str, vocabulary: list[str], length: int) -> tuple[list[int], int]:
    """One character after the other."""
    ids = [vocabulary.index(c) if c in vocabulary[3:] else 1 for c in list(text)[: length - 1]] + [2]
    return ids + [0] * (length - len(ids)), len(ids)


def expected(part: str, vocabulary: list[str], length: int, files: dict[str, bytes] = FILES) -> list:
    return sorted(
        (*encoded(t, vocabulary, length), y) for y, name in enumerate(CLASSES) for t in texts(part, name, files)
    )


def found(*splits) -> list:
    return sorted(
        (row.tolist(), int(length), int(label))
        for split in splits
        for row, length, label in zip(split.inputs, split.lengths, split.labels, strict=True)
    )


def vocabulary_of(length: int, least: int, files: dict[str, bytes] = FILES) -> list[str]:
    counts = Counter(c for name in CLASSES for text in texts("train", name, files) for c in text[: length - 1])
    common = sorted((-count, c) for c, count in counts.items() if count >= least)
    return ["<pad>", "<unk>", "<eos>", *(c for _, c in common)]


def refused(where: Path, given: Path, options: TextOptions = OPTIONS, full: dict[str, int] = FULL) -> tuple:
    return formats.refused(Text(full), options, where, given)


@pytest.fixture(scope="module")
def copies(tmp_path_factory):
    """The same reviews in every form."""
    place = tmp_path_factory.mktemp("copies")
    archive(place / "archive/aclImdb_v1.tar.gz", FILES)
    archive(place / "other/reviews.tgz", dict(reversed(FILES.items())), dot="./")
    formats.tree(place / "unpacked", FILES)
    tfds_folder(place / "array_record", FILES)
    tfrecord_folder(place / "tfrecord", FILES)
    return place


@pytest.fixture(scope="module")
def prepared(copies, tmp_path_factory):
    where = tmp_path_factory.mktemp("data") / "Text"
    folder.prepare(Text(FULL), OPTIONS, where, from_path=copies / "archive")
    return where


def test_the_published_data_are_the_default():
    task = Text()
    assert task.sizes(TextOptions()) == SIZES == {"train": 22_500, "validation": 2_500, "test": 25_000}
    spec = task.spec(TextOptions())
    assert (spec.kind, spec.features, spec.classes, spec.length, spec.pair) == ("tokens", 135, 2, 4096, False)
    assert TextOptions().min_frequency == 15
    assert task.protocols == ("holdout", "paper")
    (remote,) = task.remotes
    assert remote.url.endswith(f"/{remote.name}")
    assert len(remote.sha256) == 64


def test_every_character_of_every_review_is_there(prepared):
    data = folder.load(Text(FULL), OPTIONS, prepared)
    vocabulary = vocabulary_of(60, 4)
    table = json.loads((prepared / "manifest.json").read_text())
    assert table["vocabulary"] == vocabulary
    assert {"<", "é", "—", "𝄞", "\u2028", "\x00", "\x97", "\n"} < set(vocabulary)
    assert "§" not in vocabulary
    assert found(data.train, data.validation) == expected("train", vocabulary, 60)
    assert found(data.test) == expected("test", vocabulary, 60)
    assert data.train.inputs.dtype == np.uint8
    assert data.train.lengths.dtype == np.int16
    assert data.spec.features == len(vocabulary)
    assert data.spec.length == data.train.inputs.shape[1] == 60
    assert set(data.train.lengths) > {60}
    assert data.baselines == {"majority class": 0.5}
    assert [note.partition(": ")[0] for note in table["notes"]] == ["not the published data"]


def test_rare_characters_are_unknown_and_common_ones_come_first(copies, tmp_path):
    sizes = {}
    for least in (1, 40, 100):
        options = TextOptions(max_length=60, min_frequency=least)
        folder.prepare(Text(FULL), options, tmp_path / str(least), from_path=copies / "archive")
        data = folder.load(Text(FULL), options, tmp_path / str(least))
        vocabulary = vocabulary_of(60, least)
        assert found(data.test) == expected("test", vocabulary, 60)
        assert (1 in data.train.inputs) == (least > 1)
        sizes[least] = data.spec.features
    assert sizes[1] > sizes[40] > sizes[100] > 3


def test_a_tenth_is_held_out_as_many_of_each_class(prepared):
    data = folder.load(Text(FULL), OPTIONS, prepared)
    for name in SPLITS:
        split = getattr(data, name)
        assert np.bincount(split.labels).tolist() == [FULL[name] // 2] * 2
        changes = np.count_nonzero(np.diff(split.labels))
        assert len(split.labels) < 10 or changes > len(split.labels) // 4, "the first ones are not of one class"


def test_the_paper_trains_on_all_and_selects_on_test(prepared):
    data = folder.load(Text(FULL), OPTIONS, prepared)
    paper = folder.load(Text(FULL), OPTIONS, prepared, "paper")
    assert found(paper.train) == found(data.train, data.validation)
    assert found(paper.validation) == found(paper.test) == found(data.test)


@pytest.mark.parametrize(
    "given",
    [
        "archive/aclImdb_v1.tar.gz",
        "archive",
        "other/reviews.tgz",
        "unpacked/aclImdb",
        "unpacked",
        "array_record",
        "array_record/imdb_reviews/plain_text/1.0.0",
        "tfrecord",
    ],
)
def test_every_copy_gives_the_same_bytes(copies, prepared, tmp_path, given):
    table = folder.prepare(Text(FULL), OPTIONS, tmp_path / "Text", from_path=copies / given)
    first = folder.manifest(Text(FULL), OPTIONS, prepared)
    assert table.sha256 == first.sha256
    assert table.vocabulary == first.vocabulary
    assert str(copies / given.partition("/")[0]) in table.source
    assert {path.name for path in tmp_path.iterdir()} == {"Text"}


def test_version_1_is_these_bytes_for_ever(prepared):
    # other bytes are another version: change Text.version, which is in every fingerprint, not this digest
    assert Text.version == "1"
    content = b"".join((prepared / f"{s}-{part}.npy").read_bytes() for s in SPLITS for part in folder.PARTS)
    assert hashlib.sha256(content).hexdigest() == "5107297e792cb0230eb06fea247a1b5fe47d79dab4fea48b1dbbcacf62bae610"


def test_fewer_examples_are_the_first_ones_with_the_same_vocabulary(copies, prepared, tmp_path):
    options = TextOptions(max_length=60, min_frequency=4, train=10, validation=2, test=7)
    folder.prepare(Text(FULL), options, tmp_path / "Text", from_path=copies / "archive")
    few = folder.load(Text(FULL), options, tmp_path / "Text")
    data = folder.load(Text(FULL), OPTIONS, prepared)
    assert few.spec == data.spec
    for name, count in (("train", 10), ("validation", 2), ("test", 7)):
        np.testing.assert_array_equal(getattr(few, name).inputs, getattr(data, name).inputs[:count])
        np.testing.assert_array_equal(getattr(few, name).labels, getattr(data, name).labels[:count])
    assert few.baselines["majority class"] == majority(data.train.labels[:10], data.test.labels[:7])


def test_wide_vocabularies_and_long_texts_have_wider_numbers(tmp_path):
    files = dict(FILES)
    first = next(name for name in files if name.startswith("aclImdb/train/pos/"))
    files[first] = "".join(map(chr, range(0x4E00, 0x4E00 + 300))).encode()
    options = TextOptions(max_length=40_000, min_frequency=1)
    folder.prepare(Text(FULL), options, tmp_path / "Text", from_path=archive(tmp_path / "aclImdb_v1.tar.gz", files))
    data = folder.load(Text(FULL), options, tmp_path / "Text")
    assert (data.train.inputs.dtype, data.train.lengths.dtype) == (np.int16, np.int32)
    assert data.spec.features > 300
    row = next(row for row in [*data.train.inputs, *data.validation.inputs] if np.count_nonzero(row) == 301)
    vocabulary = folder.manifest(Text(FULL), options, tmp_path / "Text").vocabulary
    assert "".join(vocabulary[token] for token in row[:301]) == files[first].decode() + "<eos>"


def test_more_characters_than_numbers_are_refused(tmp_path):
    files = dict(FILES)
    first = next(name for name in files if name.startswith("aclImdb/train/pos/"))
    files[first] = "".join(map(chr, range(0x10000, 0x10000 + 33_000))).encode()
    given = archive(tmp_path / "aclImdb_v1.tar.gz", files)
    message, hint = refused(tmp_path, given, TextOptions(max_length=40_000, min_frequency=1))
    assert message.startswith("33,0")
    assert message.endswith("different characters in the training texts are too many")
    assert hint.startswith("set a larger min_frequency")


def test_an_example_is_its_text(prepared):
    task = Text(FULL)
    data = folder.load(task, OPTIONS, prepared)
    vocabulary = folder.manifest(task, OPTIONS, prepared).vocabulary
    shown = {task.example(data.spec, data.test, k, vocabulary) for k in range(30)}
    assert shown == {text[:59] + "<eos>" for name in CLASSES for text in texts("test", name)}


def test_a_review_that_is_no_utf_8_is_named_and_the_next_try_succeeds(copies, tmp_path):
    name = next(name for name in FILES if name.startswith("aclImdb/test/neg/7_"))
    given = archive(tmp_path / "aclImdb_v1.tar.gz", FILES | {name: b"  caf\xe9!"})
    assert refused(tmp_path, given) == (f"./aclImdb_v1.tar.gz: {name}: not UTF-8: byte 0xe9 at 3", HINT)
    formats.tree(tmp_path, FILES | {name: b"\xff"})
    assert refused(tmp_path, tmp_path / "aclImdb") == (f"./{name}: not UTF-8: byte 0xff at 0", HINT)
    folder.prepare(Text(FULL), OPTIONS, tmp_path / "out/Text", from_path=copies / "archive")
    assert [path.name for path in (tmp_path / "out").iterdir()] == ["Text"]


def test_a_missing_review_is_counted(tmp_path):
    name = next(name for name in FILES if name.startswith("aclImdb/train/pos/7_"))
    files = {k: v for k, v in FILES.items() if k != name}
    message = "train/pos: expected 20 reviews, found 19"
    assert refused(tmp_path, archive(tmp_path / "few/aclImdb_v1.tar.gz", files)) == (
        f"./few/aclImdb_v1.tar.gz: {message}",
        HINT,
    )
    assert refused(tmp_path, formats.tree(tmp_path / "plain", files)) == (f"./plain/aclImdb: {message}", HINT)
    for path in (tmp_path / "plain/aclImdb/train").glob("pos/*"):
        path.unlink()
    (tmp_path / "plain/aclImdb/train/pos").rmdir()
    assert refused(tmp_path, tmp_path / "plain/aclImdb")[0] == "./plain/aclImdb: train/pos/*.txt missing"


def test_one_review_too_many_is_counted(tmp_path):
    given = archive(tmp_path / "a.tar.gz", FILES | {"aclImdb/test/neg/99_1.txt": b"x"})
    assert refused(tmp_path, given)[0] == "./a.tar.gz: test/neg: expected 15 reviews, found 16"


def test_tfds_folders_of_other_kinds_are_refused(tmp_path):
    other = tfrecord_folder(tmp_path / "other", FILES, configName="subwords8k")
    assert refused(tmp_path, other) == (
        "./other/imdb_reviews/plain_text/1.0.0: another configuration of imdb_reviews",
        "give a folder of imdb_reviews/plain_text",
    )
    files = {k: v for k, v in FILES.items() if not k.startswith("aclImdb/test/neg/7_")}
    message, hint = refused(tmp_path, tfrecord_folder(tmp_path / "few", files))
    assert message == "./few/imdb_reviews/plain_text/1.0.0: test/neg: expected 15 reviews, found 14"
    assert hint == HINT
    message, hint = refused(tmp_path, tfrecord_folder(tmp_path / "labels", FILES, labels=(0, -1)))
    assert re.fullmatch(
        r"./labels/imdb_reviews/plain_text/1.0.0: train: example \d+: expected a label of 0 to 1, found -1", message
    )
