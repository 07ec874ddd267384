"""Text and Retrieval: every character of every text, whichever copy it comes from, or a refusal that says where."""

from __future__ import annotations

import hashlib
import random
import sys
import tracemalloc
from collections import Counter

import numpy as np
import pytest

from lrurun.data import task_data
from lrurun.data.downloaded import text
from lrurun.data.downloaded.retrieval import FILES as TABLES
from lrurun.data.downloaded.retrieval import Retrieval, RetrievalOptions
from lrurun.data.downloaded.text import Text, TextOptions
from lrurun.data.task import SPLITS, majority
from tests.harness import formats

CLASSES = ("neg", "pos")
PUBLISHED_PARTS = ("inputs", "labels", "lengths")
"""The arrays of a split of published data, in the order of the digests below."""


def vocabulary_of(texts, length, least):
    counts = Counter(c for text in texts for c in text[: length - 1])
    return ["<pad>", "<unk>", "<eos>", *(c for _, c in sorted((-n, c) for c, n in counts.items() if n >= least))]


def encoded(text, vocabulary, length):
    """One character after the other."""
    ids = [vocabulary.index(c) if c in vocabulary[3:] else 1 for c in list(text)[: length - 1]] + [2]
    return ids + [0] * (length - len(ids))


# Text


def reviews():
    """The archive's files: name -> content; some texts are empty, equal, long, or begin and end with blanks."""
    pieces = ["Good", "bad ", "<br /><br />", "é", "\x97", "—", "𝄞", "\n", "\u2028", "\x00", "“", " ", ".", "aaaaaaa"]
    draw = random.Random(0)
    found = {"aclImdb/README": b"Large Movie Review Dataset", "aclImdb/imdb.vocab": b"the\nand\n"}
    for part, count in (("train", 20), ("test", 15)):
        for label in CLASSES:
            for k in range(count):
                text = "".join(draw.choices(pieces, k=draw.choice([1, 8, 20, 60])))
                blanks = draw.choice(["", " ", "\n "])
                found[f"aclImdb/{part}/{label}/{k}_{draw.randint(1, 10)}.txt"] = f"{blanks}{text}{blanks}".encode()
            found[f"aclImdb/{part}/urls_{label}.txt"] = b"http://www.imdb.com/title/tt0064354/usercomments\n"
        found[f"aclImdb/{part}/labeledBow.feat"] = b"9 0:9 1:1\n"
    for k in range(10):
        found[f"aclImdb/train/unsup/{k}_0.txt"] = "§ only here § § § § §".encode()
    found["aclImdb/train/pos/._3_9.txt"] = b"\x00\x05\x16\x07Mac OS X"
    return found


TEXT = Text({"train": 36, "validation": 4, "test": 30})
OPTIONS = TextOptions(max_length=60, min_frequency=4)
REVIEWS = reviews()
COUNTED = "test/neg: expected 15 reviews, found 14"
TEXT_HINT = "the copy is not the published one, or incomplete: fetch it again"


def texts(part, label, files=REVIEWS):
    prefix = f"aclImdb/{part}/{label}/"
    return [data.decode().strip(" \n") for name, data in files.items() if name.startswith(prefix) and "._" not in name]


def archive(path, files=REVIEWS, dot=""):
    """With folders as members too, which `dot` may precede."""
    folders = sorted({f"{name.rpartition('/')[0]}/" for name in files})
    return formats.tar(path, {dot + name: files.get(name, b"") for name in [*folders, *files]})


def tfds_splits(files=REVIEWS, labels=(0, 1)):
    """What TFDS makes of the archive."""
    labelled = {
        part: [
            {"text": text.encode(), "label": label}
            for label, name in zip(labels, CLASSES, strict=True)
            for text in texts(part, name, files)
        ]
        for part in ("train", "test")
    }
    return labelled | {"unsupervised": [{"text": "§ only here".encode(), "label": -1}]}


def array_record(place):
    splits = {split: enumerate(found) for split, found in tfds_splits().items()}
    return formats.tfds_array_record(place, "imdb_reviews", {}, splits)


def tfrecord(place, splits=None, **more):
    features = {"text": formats.text_feature(), "label": formats.class_feature(2)}
    folder, about = place / "imdb_reviews/plain_text/1.0.0", {"configName": "plain_text"} | more
    formats.tfds_tfrecord(folder, "imdb_reviews", "1.0.0", features, splits or tfds_splits(), shards=2, **about)
    return place


def parquet(place, names="plain_text/{part}-0000{number}-of-00002.parquet", kind=str, **columns):
    """Two files for each part, and one of texts without labels, as the hub has them."""
    pyarrow = pytest.importorskip("pyarrow")
    from pyarrow import parquet as files

    for part, rows in tfds_splits().items():
        for number, some in enumerate((rows[:9], rows[9:])):
            path = place / names.format(part=part, number=number)
            path.parent.mkdir(parents=True, exist_ok=True)
            found = [row["text"].decode() if kind is str else row["text"] for row in some]
            table = {"text": found, "label": [row["label"] for row in some]} | columns.get(path.name, {})
            files.write_table(pyarrow.table(table), path, row_group_size=4)
    return place


REVIEW_COPIES = {
    "archive": lambda place: archive(place / "aclImdb_v1.tar.gz").parent,
    "reversed": lambda place: archive(place / "reviews.tgz", dict(reversed(REVIEWS.items())), "./"),
    "folder": lambda place: formats.tree(place, REVIEWS) / "aclImdb",
    "folder around": lambda place: formats.tree(place, REVIEWS),
    "array_record": array_record,
    "tfrecord": tfrecord,
    "parquet": parquet,
    "folder of parquet": lambda place: parquet(place) / "plain_text",
    "parquet in folders": lambda place: parquet(place, "{part}/000{number}.parquet"),
    "parquet of bytes": lambda place: parquet(place, "data/{part}-{number}.parquet", bytes),
    "archive of parquet": lambda place: formats.tar(
        place / "x.tar",
        {f"imdb/{path.name}": path.read_bytes() for path in (parquet(place / "given") / "plain_text").iterdir()},
        "w",
    ),
}


def rows_of(*splits):
    return sorted(
        (row.tolist(), int(length), int(label))
        for split in splits
        for row, length, label in zip(split.inputs, split.lengths, split.labels, strict=True)
    )


def expected(part, vocabulary, length):
    found = [(encoded(t, vocabulary, length), y) for y, name in enumerate(CLASSES) for t in texts(part, name)]
    return sorted((row, row.index(2) + 1, y) for row, y in found)


@pytest.fixture(scope="module")
def prepared(tmp_path_factory):
    place = tmp_path_factory.mktemp("text")
    data, table = formats.prepared(TEXT, place / "out", REVIEW_COPIES["archive"](place / "given"), OPTIONS)
    return place, data, table


def test_every_character_of_every_review_is_there(prepared):
    _, data, table = prepared
    vocabulary = vocabulary_of([text for name in CLASSES for text in texts("train", name)], 60, 4)
    assert table.vocabulary == vocabulary
    assert {"<", "é", "—", "𝄞", "\u2028", "\x00", "\x97", "\n"} < set(vocabulary)
    assert "§" not in vocabulary
    assert rows_of(data.train, data.validation) == expected("train", vocabulary, 60)
    assert rows_of(data.test) == expected("test", vocabulary, 60)
    assert [data.train.inputs.dtype, data.train.lengths.dtype] == ["u1", "i2"]
    assert data.spec.features == len(vocabulary)
    assert data.spec.length == data.train.inputs.shape[1] == 60
    assert set(data.train.lengths) > {60}
    assert data.baselines == {"majority class": 0.5}
    assert [note.partition(": ")[0] for note in table.notes] == ["not the published data"]
    shown = {TEXT.example(data.spec, data.test, k, vocabulary) for k in range(30)}
    assert shown == {text[:59] + "<eos>" for name in CLASSES for text in texts("test", name)}
    # other bytes are another version: change Text.version, which is in every fingerprint, not this digest
    content = b"".join(np.asarray(getattr(getattr(data, s), p)).tobytes() for s in SPLITS for p in PUBLISHED_PARTS)
    assert hashlib.sha256(content).hexdigest()[:16] == "7aa70f91fef27826"


def test_a_tenth_is_held_out_as_many_of_each_class_and_the_paper_trains_on_all(prepared):
    place, data, _ = prepared
    for name in SPLITS:
        labels = getattr(data, name).labels
        assert np.bincount(labels).tolist() == [TEXT.full[name] // 2] * 2
        assert len(labels) < 10 or np.count_nonzero(np.diff(labels)) > len(labels) // 4, "first come those of one class"
    paper = task_data.load(TEXT, OPTIONS, place / "out/Text", "paper")
    assert rows_of(paper.train) == rows_of(data.train, data.validation)
    assert rows_of(paper.validation) == rows_of(paper.test) == rows_of(data.test)


def test_rare_characters_are_unknown_and_fewer_examples_are_the_first_ones(prepared, tmp_path):
    place, data, _ = prepared
    for least in (1, 100):
        options = TextOptions(max_length=60, min_frequency=least)
        other, _ = formats.prepared(TEXT, tmp_path / str(least), place / "given", options)
        vocabulary = vocabulary_of([text for name in CLASSES for text in texts("train", name)], 60, least)
        assert rows_of(other.test) == expected("test", vocabulary, 60)
        assert (1 in other.train.inputs) == (least > 1)
    options = TextOptions(max_length=60, min_frequency=4, train=10, validation=2, test=7)
    few, _ = formats.prepared(TEXT, tmp_path / "few", place / "given", options)
    assert few.spec == data.spec
    for name, count in (("train", 10), ("validation", 2), ("test", 7)):
        np.testing.assert_array_equal(getattr(few, name).inputs, getattr(data, name).inputs[:count])
        np.testing.assert_array_equal(getattr(few, name).labels, getattr(data, name).labels[:count])
    assert few.baselines["majority class"] == majority(data.train.labels[:10], data.test.labels[:7])


@pytest.mark.parametrize("copy", REVIEW_COPIES)
def test_every_copy_of_the_reviews_gives_the_same_bytes(prepared, tmp_path, copy):
    data, _ = formats.prepared(TEXT, tmp_path / "out", REVIEW_COPIES[copy](tmp_path / "given"), OPTIONS)
    assert data.sha256 == prepared[1].sha256


FIRST = "train-00000-of-00002.parquet"


@pytest.mark.parametrize(
    ("column", "values", "message"),
    [
        ("text", [1] * 9, "row 0: expected a text, found int"),
        ("text", [*["x"] * 8, None], "row 8: expected a text, found NoneType"),
        ("text", [b"\xff"] * 9, "row 0: not UTF-8: byte 0xff at 0"),
        ("label", [*[0] * 8, 2], "row 8: expected a label of 0 or 1, found 2"),
        ("label", [-1] * 9, "row 0: expected a label of 0 or 1, found -1"),
        ("label", ["pos"] * 9, "row 0: expected a label of 0 or 1, found pos"),
        ("label", [True] * 9, "row 0: expected a label of 0 or 1, found True"),
    ],
)
def test_wrong_values_of_parquet_files_are_named(tmp_path, column, values, message):
    given = parquet(tmp_path / "given", **{FIRST: {column: values}})
    found, hint = formats.refused(TEXT, OPTIONS, tmp_path, given)
    assert (found, hint) == (f"./given/plain_text/{FIRST}: {message}", TEXT_HINT)


@pytest.mark.parametrize(
    ("found", "said"),
    [
        (["x" * 50_000] * 3, "row 0: 50,0"),
        ([f"{k}{'x' * 900}" for k in range(200)], "column text: 18"),
    ],
)
def test_parquet_files_of_large_texts_are_refused(tmp_path, monkeypatch, found, said):
    """One long text, and many: both are a few kilobytes on disk."""
    pyarrow = pytest.importorskip("pyarrow")
    from pyarrow import parquet as files

    monkeypatch.setattr(text, "_FILE_LIMIT", 1000)
    monkeypatch.setattr(text, "_GROUP_LIMIT", 100_000)
    path = parquet(tmp_path / "given") / "plain_text" / FIRST
    table = pyarrow.table({"text": found, "label": [0] * len(found)})
    files.write_table(table, path, compression="zstd")
    assert path.stat().st_size < 10_000
    message, hint = formats.refused(TEXT, OPTIONS, tmp_path, tmp_path / "given")
    assert message.startswith(f"./given/plain_text/{FIRST}: {said}")
    assert message.endswith(" allowed")
    assert hint == "the copy is incomplete or damaged: fetch it again"


def test_parquet_files_that_are_damaged_or_incomplete_are_named(tmp_path, monkeypatch):
    pyarrow = pytest.importorskip("pyarrow")
    from pyarrow import parquet as files

    place = parquet(tmp_path / "given")
    path = place / "plain_text" / FIRST
    whole = path.read_bytes()
    for content in (b"", b"PAR1" * 20, whole[: len(whole) // 2], whole[:20] + bytes(60) + whole[80:]):
        path.write_bytes(content)
        assert formats.refused(TEXT, OPTIONS, tmp_path, place)[0].startswith(f"./given/plain_text/{FIRST}: row ")
    files.write_table(pyarrow.table({"text": ["x"], "stars": [1]}), path)
    message = f"./given/plain_text/{FIRST}: expected a column label, found text, stars"
    assert formats.refused(TEXT, OPTIONS, tmp_path, place) == (message, TEXT_HINT)
    path.unlink()
    assert (
        formats.refused(TEXT, OPTIONS, tmp_path, place)[0]
        == "./given/plain_text: train/neg: expected 20 reviews, found 11"
    )
    for one in (place / "plain_text").glob("test-*"):
        one.unlink()
    assert formats.refused(TEXT, OPTIONS, tmp_path, place)[0] == "./given/plain_text: test-*.parquet missing"
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    place = formats.tree(tmp_path / "more", {"train.parquet": b"PAR1", "test.parquet": b"PAR1"})
    assert formats.refused(TEXT, OPTIONS, tmp_path, place) == (
        "./more/test.parquet: Parquet files are read with pyarrow, which is not installed",
        "pip install 'lrurun[parquet]'",
    )


def test_wide_vocabularies_and_long_texts_have_wider_numbers_up_to_a_limit(tmp_path):
    first = next(name for name in REVIEWS if name.startswith("aclImdb/train/pos/"))
    long = "".join(map(chr, range(0x4E00, 0x4E00 + 300)))
    options = TextOptions(max_length=40_000, min_frequency=1)
    given = archive(tmp_path / "given.tar.gz", REVIEWS | {first: long.encode()})
    data, table = formats.prepared(TEXT, tmp_path / "good", given, options)
    assert [data.train.inputs.dtype, data.train.lengths.dtype] == ["i2", "i4"]
    row = next(row for row in [*data.train.inputs, *data.validation.inputs] if np.count_nonzero(row) == 301)
    assert "".join(table.vocabulary[token] for token in row[:301]) == f"{long}<eos>"
    many = "".join(map(chr, range(0x10000, 0x10000 + 33_000))).encode()
    message, hint = formats.refused(TEXT, options, tmp_path, archive(tmp_path / "many.tar.gz", REVIEWS | {first: many}))
    assert message.startswith("33,0")
    assert message.endswith("different characters in the training texts are too many")
    assert hint.startswith("set a larger min_frequency")


def test_wrong_reviews_are_named_or_counted(tmp_path):
    name = next(name for name in REVIEWS if name.startswith("aclImdb/test/neg/7_"))
    fewer = {k: v for k, v in REVIEWS.items() if k != name}
    for number, (files, message) in enumerate(
        [
            (REVIEWS | {name: b"  caf\xe9!"}, f"{name}: not UTF-8: byte 0xe9 at 3"),
            (fewer, COUNTED),
            (REVIEWS | {"aclImdb/test/neg/99_1.txt": b"x"}, "test/neg: expected 15 reviews, found 16"),
        ]
    ):
        given = archive(tmp_path / f"{number}.tar.gz", files)
        assert formats.refused(TEXT, OPTIONS, tmp_path, given) == (f"./{number}.tar.gz: {message}", TEXT_HINT)
    given = formats.tree(tmp_path / "plain", fewer) / "aclImdb"
    assert formats.refused(TEXT, OPTIONS, tmp_path, given)[0] == f"./plain/aclImdb: {COUNTED}"
    for path in given.glob("train/pos/*"):
        path.unlink()
    assert formats.refused(TEXT, OPTIONS, tmp_path, given)[0] == "./plain/aclImdb: train/pos/*.txt missing"
    where = "./tfds/imdb_reviews/plain_text/1.0.0"
    for splits, config, message in (
        (None, "subwords8k", ": another configuration of imdb_reviews"),
        (tfds_splits(fewer), "plain_text", f": {COUNTED}"),
        (tfds_splits(labels=(0, -1)), "plain_text", ": train: example 20: expected a label of 0 to 1, found -1"),
    ):
        given = tfrecord(tmp_path / "tfds", splits, configName=config)
        assert formats.refused(TEXT, OPTIONS, tmp_path, given)[0] == where + message


# Retrieval

FULL = {"train": 300, "validation": 23, "test": 21}


def pairs(seed=0):
    """Rows of the tables: label, two names, two texts. What splits lines elsewhere must not do so here."""
    pieces = ["Parsing ", '"', '"quoted" ', "''", ",", "\\", "\\n", "é", "\x0b", "\x1c", "\x85", "\u2028", "𝄞", "a\rb"]
    draw, rows = random.Random(seed), {}
    for split, count in FULL.items():
        rows[split] = []
        for number in range(count):
            both = ["".join(draw.choices(pieces, k=draw.choice([0, 1, 5, 30]))) for _ in range(2)]
            label = "1.0" if draw.random() < 0.4 else "0.0"
            rows[split].append((label, f'P0{number}-"1', "E09-1001", *both))
    rows["train"][7] = ("1.0", "A", '"B', '"opened', "and not closed")
    rows["test"][3] = ("0.0", "A", "B", "õ is not in train", "x")
    return rows


PAIRED, PAIRS = Retrieval(FULL), pairs()
SHORT = RetrievalOptions(max_length=40)
PAIR_HINT = "this is not the released file, or it is damaged: fetch it again, or give another copy"


def tables(rows=PAIRS, end="\n", place="."):
    return {
        f"{place}/{TABLES[split]}": "".join("\t".join(row) + end for row in found).encode()
        for split, found in rows.items()
    }


def check(data, vocabulary, length):
    for split in SPLITS:
        loaded = getattr(data, split)
        rows = PAIRS[split][: len(loaded.labels)]
        assert loaded.inputs.shape == (len(rows), 2, length)
        for k, (label, _, _, *both) in enumerate(rows):
            assert loaded.labels[k] == float(label)
            assert loaded.inputs[k].tolist() == [encoded(text, vocabulary, length) for text in both]
            assert loaded.lengths[k].tolist() == [min(len(text) + 1, length) for text in both]


@pytest.fixture(scope="module")
def paired(tmp_path_factory):
    place = tmp_path_factory.mktemp("pairs")
    return formats.prepared(PAIRED, place / "out", formats.tree(place / "aan", tables()), SHORT)


def test_every_character_of_both_documents_is_there(paired, tmp_path):
    data, table = paired
    trained = [text for row in PAIRS["train"] for text in row[3:]]
    assert table.vocabulary == vocabulary_of(trained, 40, 1)
    assert {'"', "\\", "é", "𝄞", "\r", "\x0b", "\x1c", "\x85", "\u2028"} < set(table.vocabulary)
    assert "õ" not in table.vocabulary
    check(data, table.vocabulary, 40)
    assert data.test.inputs[3, 0, 0] == 1
    assert [getattr(data.train, part).dtype for part in ("inputs", "lengths", "labels")] == ["u1", "i2", "u1"]
    assert (data.spec.features, data.spec.pair, table.notes) == (len(table.vocabulary), True, [])
    assert data.baselines == {"majority class": np.mean(data.test.labels == 0)}
    # other bytes are another version: change Retrieval.version, which is in every fingerprint, not this digest
    content = b"".join(np.asarray(getattr(getattr(data, s), p)).tobytes() for s in SPLITS for p in PUBLISHED_PARTS)
    assert hashlib.sha256(content).hexdigest()[:16] == "b564028c9b4cf45a"
    given = formats.tree(tmp_path / "aan", tables())
    rare, table = formats.prepared(PAIRED, tmp_path / "rare", given, RetrievalOptions(max_length=25, min_frequency=200))
    vocabulary = vocabulary_of(trained, 25, 200)
    assert 3 < len(vocabulary) < len(vocabulary_of(trained, 25, 1))
    check(rare, vocabulary, 25)


def test_ends_of_lines_and_blank_lines_change_nothing(paired, tmp_path):
    contents = tables(end="\r\n")
    contents = {name: data.removesuffix(b"\r\n") + b"\n\n" * ("train" in name) for name, data in contents.items()}
    data, table = formats.prepared(PAIRED, tmp_path / "out", formats.tree(tmp_path / "given/data/aan", contents), SHORT)
    assert data.sha256 == paired[0].sha256
    assert table.source == f"the folder {tmp_path}/given/data/aan"


def test_an_example_shows_both_documents(paired):
    data, table = paired
    rows, vocabulary = np.zeros((1, 2, 500), np.uint8), [*table.vocabulary[:3], *"xshort"]
    rows[0, 0, :200], rows[0, 1, :6] = 3, [4, 5, 6, 7, 8, 2]
    rows[0, 0, 200] = 2
    split = type(data.train)(inputs=rows, labels=np.zeros(1, np.uint8), lengths=np.array([[201, 6]]))
    assert PAIRED.example(data.spec, split, 0, vocabulary) == f"1: {'x' * 130}... 2: short<eos>"


@pytest.mark.parametrize(
    ("line", "message"),
    [
        (b"1.0\tA\tB\tone\ttwo\tthree", "expected 5 columns, found 6"),
        (b"no table", "expected 5 columns, found 1"),
        (b"2.0\tA\tB\tone\ttwo", "expected a label of 0.0 or 1.0, found '2.0'"),
        (b'"1.0"\tA\tB\tone\ttwo', "expected a label of 0.0 or 1.0, found '\"1.0\"'"),
        (b"\xff\tA\tB\tone\ttwo", "expected a label of 0.0 or 1.0, found '\\\\xff'"),
        (b"1.0\tA\tB\tna\xefve\ttwo", "column 4: not UTF-8: byte 0xef at 2"),
        (b"1.0\tA\tB\tone\t\xe2\x80", "column 5: not UTF-8: byte 0xe2 at 0"),
    ],
)
def test_a_wrong_line_is_named(tmp_path, line, message):
    for split in ("train", "test"):
        contents = tables()
        lines = contents[f"./{TABLES[split]}"].split(b"\n")
        lines[11] = line
        contents[f"./{TABLES[split]}"] = b"\n".join(lines)
        given = formats.tree(tmp_path / "aan", contents)
        assert formats.refused(PAIRED, SHORT, tmp_path, given) == (f"./aan/{TABLES[split]}:12: {message}", PAIR_HINT)
    given = formats.tar(tmp_path / "a.gz", {f"tsv_data/{name.removeprefix('./')}": contents[name] for name in contents})
    assert formats.refused(PAIRED, SHORT, tmp_path, given)[0] == f"./a.gz: tsv_data/{TABLES['test']}:12: {message}"


@pytest.mark.parametrize(("count", "fine"), [(297, True), (296, False), (303, True), (304, False)])
def test_a_hundredth_more_or_less_is_said_and_more_is_refused(tmp_path, count, fine):
    given = formats.tree(tmp_path / "aan", tables(PAIRS | {"train": (PAIRS["train"] * 2)[:count]}))
    if fine:
        data, table = formats.prepared(PAIRED, tmp_path / "out", given, SHORT)
        assert table.notes == [f"train has {count} examples, the published data have 300"]
        assert len(data.train.labels) == count
    else:
        message = f"./aan/new_aan_pairs.train.tsv: expected about 300 pairs, found {count}"
        for options in (SHORT, RetrievalOptions(train=10)):
            assert formats.refused(PAIRED, options, tmp_path, given) == (message, PAIR_HINT)


def test_memory_does_not_grow_with_the_tables(tmp_path):
    text = ("All of this is about parsing, é. " * 500).encode()  # 17 kB, longer than what is read
    line = b"1.0\tA\tB\t" + text + b"\t" + text + b"\n"
    given = formats.tree(tmp_path / "aan", {n: line * (600 if "train" in n else 4) for n in TABLES.values()})
    task = Retrieval({"train": 600, "validation": 4, "test": 4})
    formats.prepared(task, tmp_path / "warm", given, RetrievalOptions(max_length=10))
    tracemalloc.start()
    formats.prepared(task, tmp_path / "out", given, RetrievalOptions(max_length=10))
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 14e6 < (given / TABLES["train"]).stat().st_size
