"""Predicting the next token: PG19, PG19Tokens and sSource in chunks, n-gram baselines, refusals that say where."""

from __future__ import annotations

import hashlib
import io
import math
import random
import shutil
import sys
from collections import Counter, defaultdict

import numpy as np
import pytest

from lrurun.config.planning import data_of
from lrurun.data import task_data
from lrurun.data.downloaded import pg19
from lrurun.data.downloaded.pg19 import PG19, BookOptions, PG19Tokens, TokenOptions
from lrurun.data.next_token import bits_per_byte
from lrurun.data.synthetic import source_code
from lrurun.data.synthetic.source_code import SourceCode, SourceOptions
from lrurun.data.task import SPLITS
from lrurun.errors import LrurunError
from tests.harness import formats


def slow_bits_per_byte(train: np.ndarray, test: np.ndarray, n: int) -> float:
    followers: dict[bytes, Counter[int]] = defaultdict(Counter)
    for row in train:
        for place in range(1, len(row)):
            for context in range(min(n - 1, place) + 1):
                followers[row[place - context : place].tobytes()][int(row[place])] += 1

    def probability(context: bytes, byte: int) -> float:
        below = probability(context[1:], byte) if context else 1 / 256
        seen = followers.get(context)
        return below if seen is None else (seen[byte] + len(seen) * below) / (seen.total() + len(seen))

    bits = [
        -math.log2(probability(row[max(0, place - n + 1) : place].tobytes(), int(row[place])))
        for row in test
        for place in range(1, len(row))
    ]
    return float(np.mean(bits))


@pytest.mark.parametrize("n", [1, 2, 3, 5])
def test_baselines_are_interpolated_counts(n):
    random = np.random.default_rng(0)
    text = np.frombuffer(b"the cat sat on the mat; a cat and a dog sat. " * 40, np.uint8).copy()
    text[random.integers(0, len(text), 150)] = random.integers(1, 255, 150)
    rows = text.reshape(-1, 20)
    train, test = rows[:60], rows[60:]
    assert bits_per_byte(train, test, n) == pytest.approx(slow_bits_per_byte(train, test, n), rel=1e-12)


def test_each_byte_of_source_code_is_predicted_from_those_before_it(tmp_path):
    options = SourceOptions(length=64, train=400, validation=30, test=50)
    data, _ = formats.prepared(SourceCode(), tmp_path, None, options)
    np.testing.assert_array_equal(data.train.inputs[:, 1:], data.train.labels[:, :-1])
    assert data.train.inputs.min() > 0
    # The first module of each split, in the order of the list: numbers 1, 5 and 10.
    for split, number in (("train", 1), ("validation", 5), ("test", 10)):
        text = (source_code.stdlib() / f"{source_code.MODULES[number - 1]}.py").read_bytes()
        assert getattr(data, split).inputs[0].tobytes() == text[:64]
    assert 1 < data.baselines["5-gram model"] < data.baselines["unigram model"] < 6


@pytest.mark.slow
def test_no_runs_are_added_to_those_on_the_text_of_another_python(machine, monkeypatch):
    ladder = ("ladder", "sSource", "--profile", "smoke", "--rung", "gamma-norm", "--set", "train.steps=2")
    ladder += ("--jobs", "1", "--data-dir", "d")
    machine.run(*ladder)
    [first] = machine.json("runs")["runs"]
    shutil.rmtree(machine.folder / "d")
    text = source_code._text
    monkeypatch.setattr(source_code, "_text", lambda split: b"#" + text(split))
    task, options, name = data_of("sSource", "smoke")
    task_data.prepare(task, options, machine.folder / "d" / name)
    present = task_data.digest(task_data.manifest(task, options, machine.folder / "d" / name).sha256)
    done = machine.run(*ladder, "--seeds", "2", code=1)
    assert [run["id"] for run in machine.json("runs")["runs"]] == [first["id"]]
    before = first["data_sha256"][:19]
    assert f"1 finished run ({first['id']}) had other data: {before}, those in" in done.stderr
    assert f"are {present[:19]}\n" in done.stderr


def test_a_python_with_less_text_or_without_sources_is_an_error(tmp_path, monkeypatch):
    where = tmp_path / "data/sSource"
    with monkeypatch.context() as patch:
        patch.setattr(source_code, "_text", lambda split: b"x" * 1000)
        with pytest.raises(
            LrurunError, match="train needs 26,000 bytes, the modules of this Python have 1,000"
        ) as raised:
            task_data.prepare(SourceCode(), SourceOptions(length=64, train=400), where)
    assert raised.value.hint == "use fewer examples: train = 15 in [data] of a recipe of your own"
    monkeypatch.setattr(source_code, "stdlib", lambda: tmp_path)
    with pytest.raises(LrurunError, match="the source of module _pydecimal cannot be read"):
        task_data.prepare(SourceCode(), SourceOptions(), where)
    assert not where.parent.exists()


# books

PUBLISHED = {"train": 7, "validation": 2, "test": 3}
TASK, TOKENS = PG19(PUBLISHED), PG19Tokens(PUBLISHED)
OPTIONS = BookOptions(length=30)


def made():
    """Split -> books; one has fewer bytes than a chunk, and one has none."""
    words = ["the ", "cat ", "sat ", "on a mat; ", "ünder ", "tréé. ", "\r\n", "“", "\x00", "𝄞", "dog "]
    draw = random.Random(0)
    sizes = {split: [draw.randint(20, 60) for _ in range(count)] for split, count in PUBLISHED.items()}
    sizes["train"][2:4] = [0, 3]
    return {split: ["".join(draw.choices(words, k=size)) for size in each] for split, each in sizes.items()}


BOOKS = made()


def texts(place):
    files = {f"{s}/{100 + k}.txt": text.encode() for s, found in BOOKS.items() for k, text in enumerate(found)}
    return formats.tree(place, files | {"metadata.csv": b"100,A,1900,http://x", "train/urls.tsv": b"x"})


def tfds_folder(place):
    features = {"book_text": formats.text_feature(), "book_title": formats.text_feature()}
    examples = {s: [{"book_text": text.encode(), "book_title": b"A"} for text in found] for s, found in BOOKS.items()}
    formats.tfds_tfrecord(place / "pg19/0.1.1", "pg19", "0.1.1", features, examples, shards=2)
    return place


def parquet(place, column="text", name="data/{split}-{number:05d}-of-00002.parquet"):
    """Two files for each split."""
    pyarrow = pytest.importorskip("pyarrow")
    from pyarrow import parquet as files

    for split, found in BOOKS.items():
        for number, part in enumerate((found[:1], found[1:])):
            path = place / name.format(split=split, number=number)
            path.parent.mkdir(parents=True, exist_ok=True)
            table = pyarrow.table({"short_book_title": ["A"] * len(part), column: part})
            files.write_table(table, path, row_group_size=2)
    return place


COPIES = {
    "texts": texts,
    "TFDS": tfds_folder,
    "parquet": parquet,
    "parquet in folders": lambda place: parquet(place, "book_text", "{split}/{number}.parquet"),
}


def refused(tmp_path, given, options=OPTIONS, task=TASK):
    return formats.refused(task, options, tmp_path, given)


@pytest.mark.parametrize("kind", COPIES)
def test_each_copy_gives_the_bytes_of_the_books_in_chunks(tmp_path, kind, monkeypatch):
    given = COPIES[kind](tmp_path / "copy")
    data, _ = formats.prepared(TASK, tmp_path / "out", given, OPTIONS)
    for split, found in BOOKS.items():
        stream = "".join(found).encode()
        chunks = [stream[k : k + 31] for k in range(0, len(stream) - 30, 31)]
        split = getattr(data, split)
        assert len(chunks) > 5
        assert [row.tobytes() for row in split.inputs] == [chunk[:-1] for chunk in chunks]
        assert [row.tobytes() for row in split.labels] == [chunk[1:] for chunk in chunks]
    assert (data.spec.features, data.spec.classes, data.spec.output.at) == (256, 256, "positions")
    assert data.published == "unverified"
    assert len(list((tmp_path / "out/PG19").iterdir())) == 7
    assert TASK.example(data.spec, data.test, 0, []) == "".join(BOOKS["test"]).encode()[:30].decode(errors="replace")
    monkeypatch.setattr(pg19, "BOOK_LIMIT", 100)
    message, _ = refused(tmp_path / "long", COPIES[kind](tmp_path / "long/copy"))
    expected = {"texts": "txt: longer than 100 bytes", "TFDS": ": record 0: "}.get(kind, ": row 0: ")
    assert expected in message
    assert kind == "texts" or message.endswith("are more than the 100 allowed")


def test_limits_keep_the_first_chunks_and_need_no_complete_copy(tmp_path):
    """Books after the last chunk are not read: one that is damaged does not matter."""
    place = texts(tmp_path / "copy")
    (place / "train/106.txt").write_bytes(b"\xff")
    data, _ = formats.prepared(PG19(), tmp_path / "out", place, BookOptions(length=30, train=3, validation=2, test=4))
    assert [len(getattr(data, split).inputs) for split in SPLITS] == [3, 2, 4]
    assert data.train.inputs.tobytes() == b"".join("".join(BOOKS["train"]).encode()[31 * k :][:30] for k in range(3))


def test_baselines_are_a_unigram_and_a_5_gram_model(tmp_path, monkeypatch):
    given = texts(tmp_path / "copy")
    data, _ = formats.prepared(TASK, tmp_path / "out", given, OPTIONS)
    rows = {s: np.concatenate([getattr(data, s).inputs, getattr(data, s).labels[:, -1:]], axis=1) for s in SPLITS}
    assert data.baselines["unigram model"] == pytest.approx(bits_per_byte(rows["train"], rows["test"], 1), rel=1e-12)
    assert data.baselines["5-gram model"] == pytest.approx(bits_per_byte(rows["train"], rows["test"], 5), rel=1e-12)
    monkeypatch.setattr(pg19, "_COUNTED", 31 * 4)
    _, table = formats.prepared(TASK, tmp_path / "again", given, OPTIONS)
    kept = {split: found[[k * len(found) // 4 for k in range(4)]] for split, found in rows.items()}
    assert table.baselines == {
        "unigram model": pytest.approx(data.baselines["unigram model"]),
        "5-gram model of a sample": pytest.approx(bits_per_byte(kept["train"], kept["test"], 5)),
    }


@pytest.fixture(scope="module")
def model():
    sentencepiece = pytest.importorskip("sentencepiece")
    output = io.BytesIO()
    lines = iter(" ".join(BOOKS["train"]).replace("\0", "").splitlines())
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=lines, model_writer=output, vocab_size=60, hard_vocab_limit=False, minloglevel=2
    )
    return output.getvalue()


def test_pieces_are_those_of_the_tokenizer(tmp_path, model):
    import sentencepiece

    place = texts(tmp_path / "copy")
    (place / "spiece.model").write_bytes(model)
    tokenizer = sentencepiece.SentencePieceProcessor(model_proto=model)
    data, _ = formats.prepared(TOKENS, tmp_path / "out", place, TokenOptions(length=12))
    counts = {}
    for split, found in BOOKS.items():
        ids = [number for text in found for number in tokenizer.encode(text)]
        rows = [ids[k : k + 13] for k in range(0, len(ids) - 12, 13)]
        split_data = getattr(data, split)
        np.testing.assert_array_equal(split_data.inputs, [row[:-1] for row in rows])
        np.testing.assert_array_equal(split_data.labels, [row[1:] for row in rows])
        counts[split] = Counter(number for row in rows for number in row[1:])
    size = tokenizer.get_piece_size()
    assert (data.spec.features, data.spec.classes) == (size, size)
    total, kinds = counts["train"].total(), len(counts["train"])
    nats = sum(
        -math.log((counts["train"][token] + kinds / size) / (total + kinds)) * count
        for token, count in counts["test"].items()
    )
    assert data.baselines == {"unigram model": pytest.approx(nats / counts["test"].total())}
    shown = TOKENS.example(data.spec, data.test, 0, [tokenizer.id_to_piece(number) for number in range(size)])
    assert shown.startswith(" " + BOOKS["test"][0][:4].strip())
    # anywhere, by its path
    (place / "spiece.model").rename(tmp_path / "mine.model")
    options = TokenOptions(length=12, tokenizer=str(tmp_path / "mine.model"))
    _, table = formats.prepared(TOKENS, tmp_path / "mine", place, options)
    assert table.source.startswith(f"the folder {place}, ")
    assert table.source.endswith(f" pieces of mine.model with sha256 {hashlib.sha256(model).hexdigest()[:12]}")


def test_a_tokenizer_that_is_missing_or_damaged_is_named(tmp_path, model):
    place, options = texts(tmp_path / "copy"), TokenOptions(length=12)
    assert refused(tmp_path, place, options, TOKENS) == (
        "PG19Tokens: there is no SentencePiece model ./copy/spiece.model",
        "put the tokenizer of T5 there, or set data.tokenizer to the path of a model",
    )
    for content in (b"", b"rubbish" * 50, model[: len(model) // 2]):
        (place / "spiece.model").write_bytes(content)
        message, _ = refused(tmp_path, place, options, TOKENS)
        assert message.startswith("./copy/spiece.model: not a SentencePiece model: ")


@pytest.mark.parametrize("package", ["pyarrow", "sentencepiece"])
def test_a_package_that_is_missing_is_named(tmp_path, monkeypatch, package):
    place, task, options = tmp_path / "copy", TASK, OPTIONS
    if package == "pyarrow":
        formats.tree(place, {f"{split}/0.parquet": b"PAR1" for split in SPLITS})
    else:
        (texts(place) / "spiece.model").write_bytes(b"x")
        task, options = TOKENS, TokenOptions(length=12)
    monkeypatch.setitem(sys.modules, package, None)
    message, hint = refused(tmp_path, place, options, task)
    assert f"with {package}, which is not installed" in message
    assert hint == f"pip install 'lrurun[{'parquet' if package == 'pyarrow' else 'pg19'}]'"


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("train/106.txt", None, "train: expected 7 books, found 6"),
        ("train/999.txt", b"more", "train: expected 7 books, found 8"),
        ("test/101.txt", b"caf\xe9", "test/101.txt: not UTF-8: byte 0xe9 at 3"),
    ],
)
def test_a_folder_with_other_books_is_refused(tmp_path, name, content, message):
    path = texts(tmp_path / "copy") / name
    path.unlink(missing_ok=True)
    if content is not None:
        path.write_bytes(content)
    found, hint = refused(tmp_path, tmp_path / "copy")
    assert found.endswith(message)
    assert hint.startswith(pg19.HINT)


def test_a_split_that_is_missing_or_too_small_is_named(tmp_path):
    place = texts(tmp_path / "copy")
    count = len("".join(BOOKS["validation"]).encode()) // 31
    message, _ = refused(tmp_path, place, BookOptions(length=30, validation=count + 1))
    assert message == f"the folder ./copy: validation: expected {count + 1} chunks of 31 tokens, found {count}"
    message, _ = refused(tmp_path, place, BookOptions(length=60_000))
    assert message.endswith("train: expected 1 chunks of 60,001 tokens, found 0")
    for path in (place / "validation").iterdir():
        path.unlink()
    assert refused(tmp_path, place)[0] == "./copy: validation/*.txt missing"
    assert TASK.find(tmp_path, OPTIONS) is None


def test_a_damaged_parquet_file_is_named(tmp_path):
    pyarrow = pytest.importorskip("pyarrow")
    from pyarrow import parquet as files

    place = parquet(tmp_path / "copy")
    names = [f"data/train-0000{number}-of-00002.parquet" for number in (0, 1)]
    whole = (place / names[1]).read_bytes()
    for content in (b"", b"PAR1" * 20, whole[: len(whole) // 2], whole[:20] + bytes(60) + whole[80:]):
        (place / names[1]).write_bytes(content)
        assert refused(tmp_path, place)[0].startswith(f"./copy/{names[1]}: row ")
    parquet(place, "words")
    message = f"./copy/{names[0]}: expected a column text or book_text, found short_book_title, words"
    assert refused(tmp_path, place)[0] == message
    parquet(place)
    for values, found in (([1], "int"), (["one", None], "NoneType")):
        files.write_table(pyarrow.table({"text": values}), place / names[0])
        message = f"./copy/{names[0]}: row {len(values) - 1}: expected a text, found {found}"
        assert refused(tmp_path, place)[0] == message
