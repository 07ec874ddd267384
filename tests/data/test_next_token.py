"""Predicting the next token: PG19, PG19Tokens and sSource in chunks, n-gram baselines, refusals that say where."""

from __future__ import annotations

import hashlib
import io
import math
import random
import shutil
import sys
from collections import Counter, defaultdict
from pathlib import Path

import numpy as np
import pytest

from lrurun.config.plan import data_of
from lrurun.data import store
from lrurun.data.downloaded import pg19
from lrurun.data.downloaded.pg19 import PG19, BookOptions, PG19Tokens, TokenOptions
from lrurun.data.generated import source_code
from lrurun.data.generated.source_code import SourceCode, SourceOptions
from lrurun.data.next_token import bits_per_byte
from lrurun.data.task import SPLITS, Data
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
def test_baselines_are_interpolated_counts(n: int) -> None:
    random = np.random.default_rng(0)
    text = np.frombuffer(b"the cat sat on the mat; a cat and a dog sat. " * 40, np.uint8).copy()
    text[random.integers(0, len(text), 150)] = random.integers(1, 255, 150)
    rows = text.reshape(-1, 20)
    train, test = rows[:60], rows[60:]
    assert bits_per_byte(train, test, n) == pytest.approx(slow_bits_per_byte(train, test, n), rel=1e-12)


def test_each_byte_is_predicted_from_those_before_it(tmp_path) -> None:
    task, options = SourceCode(), SourceOptions(length=64, train=400, validation=30, test=50)
    data = store.load(task, options, prepared_code(task, options, tmp_path / "sSource"))
    np.testing.assert_array_equal(data.train.inputs[:, 1:], data.train.labels[:, :-1])
    assert data.train.inputs.min() > 0
    # The first module of each split, in the order of the list: numbers 1, 5 and 10.
    for split, number in (("train", 1), ("validation", 5), ("test", 10)):
        text = (source_code.stdlib() / f"{source_code.MODULES[number - 1]}.py").read_bytes()
        assert getattr(data, split).inputs[0].tobytes() == text[:64]
    assert 1 < data.baselines["5-gram model"] < data.baselines["unigram model"] < 6


def prepared_code(task, options, where):
    store.prepare(task, options, where)
    return where


@pytest.mark.slow
def test_no_runs_are_added_to_those_on_the_text_of_another_python(machine, monkeypatch) -> None:
    ladder = ("ladder", "sSource", "--profile", "smoke", "--rung", "gamma-norm", "--jobs", "1", "--data-dir", "d")
    machine.run(*ladder)
    [first] = machine.json("runs")["runs"]
    shutil.rmtree(machine.folder / "d")
    text = source_code._text
    monkeypatch.setattr(source_code, "_text", lambda split: b"#" + text(split))
    task, options, name = data_of("sSource", "smoke")
    store.prepare(task, options, machine.folder / "d" / name)
    present = store.digest(store.manifest(task, options, machine.folder / "d" / name).sha256)
    done = machine.run(*ladder, "--seeds", "2", code=1)
    assert [run["id"] for run in machine.json("runs")["runs"]] == [first["id"]]
    before = first["data_sha256"][:19]
    assert f"1 finished run ({first['id']}) had other data: {before}, those in" in done.stderr
    assert f"are {present[:19]}\n" in done.stderr


def test_a_python_with_less_text_is_an_error(tmp_path, monkeypatch) -> None:
    monkeypatch.setattr(source_code, "_text", lambda split: b"x" * 1000)
    with pytest.raises(LrurunError, match="train needs 26,000 bytes, the modules of this Python have 1,000") as raised:
        store.prepare(SourceCode(), SourceOptions(length=64, train=400), tmp_path / "sSource")
    assert raised.value.hint == "use fewer examples: train = 15 in [data] of a recipe of your own"
    assert not (tmp_path / "sSource").exists()


def test_a_python_without_sources_is_an_error(tmp_path, monkeypatch) -> None:
    monkeypatch.setattr(source_code, "stdlib", lambda: tmp_path)
    with pytest.raises(LrurunError, match="the source of module _pydecimal cannot be read"):
        store.prepare(SourceCode(), SourceOptions(), tmp_path / "data" / "sSource")
    assert not (tmp_path / "data").exists()


PUBLISHED = {"train": 7, "validation": 2, "test": 3}


OPTIONS = BookOptions(length=30)


WORDS = ["the ", "cat ", "sat ", "on a mat; ", "ünder ", "tréé. ", "\r\n", "“", "\x00", "𝄞", "dog "]


def made() -> dict[str, list[str]]:
    """Split -> books; one has fewer bytes than a chunk, and one has none."""
    draw = random.Random(0)
    sizes = {split: [draw.randint(20, 60) for _ in range(count)] for split, count in PUBLISHED.items()}
    sizes["train"][2:4] = [0, 3]
    return {split: ["".join(draw.choices(WORDS, k=size)) for size in each] for split, each in sizes.items()}


BOOKS = made()


def texts(place: Path) -> Path:
    names = {split: [f"{split}/{100 + k}.txt" for k in range(len(found))] for split, found in BOOKS.items()}
    files = {name: text.encode() for split in SPLITS for name, text in zip(names[split], BOOKS[split], strict=True)}
    return formats.tree(place, files | {"metadata.csv": b"100,A,1900,http://x", "train/urls.tsv": b"x"})


def tfds_folder(place: Path) -> Path:
    features = {"book_text": formats.text_feature(), "book_title": formats.text_feature()}
    examples = {s: [{"book_text": text.encode(), "book_title": b"A"} for text in found] for s, found in BOOKS.items()}
    formats.tfds_tfrecord(place / "pg19/0.1.1", "pg19", "0.1.1", features, examples, shards=2)
    return place


def parquet(place: Path, column: str = "text", name: str = "data/{split}-{number:05d}-of-00002.parquet") -> Path:
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


def prepared(place: Path, options: BookOptions = OPTIONS, task: PG19 | PG19Tokens | None = None) -> Data:
    task = task or PG19(PUBLISHED)
    where = place.parent / "data" / task.name
    store.prepare(task, options, where, from_path=place)
    assert {path.name for path in where.iterdir()} == {
        "manifest.json",
        *(f"{split}-{part}.npy" for split in SPLITS for part in ("inputs", "labels")),
    }
    return store.load(task, options, where)


def refused(place: Path, options: BookOptions = OPTIONS, task: PG19 | PG19Tokens | None = None) -> LrurunError:
    task = task or PG19(PUBLISHED)
    with pytest.raises(LrurunError) as caught:
        store.prepare(task, options, place.parent / "data" / task.name, from_path=place)
    assert not (place.parent / "data").exists()
    assert "\n" not in caught.value.message
    return caught.value


@pytest.mark.parametrize("kind", COPIES)
def test_each_copy_gives_the_bytes_of_the_books_in_chunks(tmp_path, kind):
    data = prepared(COPIES[kind](tmp_path / "copy"))
    for split, found in BOOKS.items():
        stream = "".join(found).encode()
        chunks = [stream[k : k + 31] for k in range(0, len(stream), 31)]
        chunks = [chunk for chunk in chunks if len(chunk) == 31]
        given = getattr(data, split)
        assert len(chunks) > 5
        assert [row.tobytes() for row in given.inputs] == [chunk[:-1] for chunk in chunks]
        assert [row.tobytes() for row in given.labels] == [chunk[1:] for chunk in chunks]
    assert (data.spec.features, data.spec.classes, data.spec.output.at) == (256, 256, "positions")
    assert data.published == "unverified"
    assert PG19().example(data.spec, data.test, 0, []) == "".join(BOOKS["test"]).encode()[:30].decode(errors="replace")


def test_limits_keep_the_first_chunks_and_need_no_complete_copy(tmp_path):
    """Books after the last chunk are not read: one that is damaged does not matter."""
    place = texts(tmp_path / "copy")
    (place / "train/106.txt").write_bytes(b"\xff")
    options = BookOptions(length=30, train=3, validation=2, test=4)
    data = prepared(place, options, PG19())
    assert [len(getattr(data, split).inputs) for split in SPLITS] == [3, 2, 4]
    assert data.train.inputs.tobytes() == b"".join("".join(BOOKS["train"]).encode()[31 * k :][:30] for k in range(3))


def test_baselines_are_a_unigram_and_a_5_gram_model(tmp_path, monkeypatch):
    data = prepared(texts(tmp_path / "copy"))
    rows = {
        split: np.concatenate([part.inputs, part.labels[:, -1:]], axis=1)
        for split, part in {"train": data.train, "test": data.test}.items()
    }
    assert data.baselines["unigram model"] == pytest.approx(bits_per_byte(rows["train"], rows["test"], 1), rel=1e-12)
    assert data.baselines["5-gram model"] == pytest.approx(bits_per_byte(rows["train"], rows["test"], 5), rel=1e-12)
    monkeypatch.setattr(pg19, "_COUNTED", 31 * 4)
    (tmp_path / "again").mkdir()
    where = tmp_path / "again" / "PG19"
    table = store.prepare(PG19(PUBLISHED), OPTIONS, where, from_path=tmp_path / "copy")
    kept = {split: found[[k * len(found) // 4 for k in range(4)]] for split, found in rows.items()}
    assert table.baselines == {
        "unigram model": pytest.approx(data.baselines["unigram model"]),
        "5-gram model of a sample": pytest.approx(bits_per_byte(kept["train"], kept["test"], 5)),
    }


@pytest.fixture(scope="module")
def model() -> bytes:
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
    data = prepared(place, TokenOptions(length=12), PG19Tokens(PUBLISHED))
    counts: dict[str, Counter[int]] = {}
    for split, found in BOOKS.items():
        ids = [number for text in found for number in tokenizer.encode(text)]
        rows = [ids[k : k + 13] for k in range(0, len(ids) - 12, 13)]
        given = getattr(data, split)
        np.testing.assert_array_equal(given.inputs, [row[:-1] for row in rows])
        np.testing.assert_array_equal(given.labels, [row[1:] for row in rows])
        counts[split] = Counter(number for row in rows for number in row[1:])
    size = tokenizer.get_piece_size()
    assert (data.spec.features, data.spec.classes) == (size, size)
    total, kinds = counts["train"].total(), len(counts["train"])
    nats = sum(
        -math.log((counts["train"][token] + kinds / size) / (total + kinds)) * count
        for token, count in counts["test"].items()
    )
    assert data.baselines == {"unigram model": pytest.approx(nats / counts["test"].total())}
    vocabulary = [tokenizer.id_to_piece(number) for number in range(size)]
    shown = PG19Tokens().example(data.spec, data.test, 0, vocabulary)
    assert shown.startswith(" " + BOOKS["test"][0][:4].strip())


def test_a_tokenizer_anywhere_is_given_by_its_path(tmp_path, model):
    (tmp_path / "mine.model").write_bytes(model)
    place = texts(tmp_path / "copy")
    options = TokenOptions(length=12, tokenizer=str(tmp_path / "mine.model"))
    prepared(place, options, PG19Tokens(PUBLISHED))
    source = store.manifest(PG19Tokens(), options, tmp_path / "data" / "PG19Tokens").source
    digest = hashlib.sha256(model).hexdigest()[:12]
    assert source.startswith(f"the folder {place}, ")
    assert source.endswith(f" pieces of mine.model with sha256 {digest}")


def test_a_tokenizer_that_is_missing_or_damaged_is_named(tmp_path, model):
    place = texts(tmp_path / "copy")
    error = refused(place, TokenOptions(length=12), PG19Tokens(PUBLISHED))
    assert error.message == f"PG19Tokens: there is no SentencePiece model {place / 'spiece.model'}"
    assert error.hint == "put the tokenizer of T5 there, or set data.tokenizer to the path of a model"
    for content in (b"", b"rubbish" * 50, model[: len(model) // 2]):
        (place / "spiece.model").write_bytes(content)
        error = refused(place, TokenOptions(length=12), PG19Tokens(PUBLISHED))
        assert error.message.startswith(f"{place / 'spiece.model'}: not a SentencePiece model: ")


@pytest.mark.parametrize("package", ["pyarrow", "sentencepiece"])
def test_a_package_that_is_missing_is_named(tmp_path, monkeypatch, package):
    place = tmp_path / "copy"
    if package == "pyarrow":
        formats.tree(place, {f"{split}/0.parquet": b"PAR1" for split in SPLITS})
        task, options = PG19(PUBLISHED), OPTIONS
    else:
        (texts(place) / "spiece.model").write_bytes(b"x")
        task, options = PG19Tokens(PUBLISHED), TokenOptions(length=12)
    monkeypatch.setitem(sys.modules, package, None)
    error = refused(place, options, task)
    assert f"with {package}, which is not installed" in error.message
    assert error.hint == "pip install 'lrurun[pg19]'"


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("train/106.txt", None, "train: expected 7 books, found 6"),
        ("train/999.txt", b"more", "train: expected 7 books, found 8"),
        ("test/101.txt", b"caf\xe9", "test/101.txt: not UTF-8: byte 0xe9 at 3"),
    ],
)
def test_a_folder_with_other_books_is_refused(tmp_path, name, content, message):
    place = texts(tmp_path / "copy")
    (place / name).unlink(missing_ok=True)
    if content is not None:
        (place / name).write_bytes(content)
    error = refused(place)
    assert error.message.endswith(message)
    assert error.hint.startswith(pg19.HINT)


def test_a_split_that_is_missing_or_too_small_is_named(tmp_path):
    place = texts(tmp_path / "copy")
    found = len("".join(BOOKS["validation"]).encode()) // 31
    error = refused(place, BookOptions(length=30, validation=found + 1))
    assert error.message == (f"the folder {place}: validation: expected {found + 1} chunks of 31 tokens, found {found}")
    error = refused(place, BookOptions(length=60_000))
    assert error.message.endswith("train: expected 1 chunks of 60,001 tokens, found 0")
    for path in (place / "validation").iterdir():
        path.unlink()
    assert refused(place).message == f"{place}: validation/*.txt missing"
    assert PG19().find(tmp_path, OPTIONS) is None


def test_a_damaged_parquet_file_is_named(tmp_path):
    place = parquet(tmp_path / "copy")
    path = place / "data/train-00001-of-00002.parquet"
    whole = path.read_bytes()
    for content in (b"", b"PAR1" * 20, whole[: len(whole) // 2], whole[:20] + bytes(60) + whole[80:]):
        path.write_bytes(content)
        assert refused(place).message.startswith(f"{path}: row ")
    parquet(tmp_path / "copy", "words")
    path = place / "data/train-00000-of-00002.parquet"
    message = f"{path}: expected a column text or book_text, found short_book_title, words"
    assert refused(place).message == message


def test_a_parquet_file_whose_column_has_no_texts_is_refused(tmp_path):
    pyarrow = pytest.importorskip("pyarrow")
    from pyarrow import parquet as files

    place = parquet(tmp_path / "copy")
    path = place / "data/train-00000-of-00002.parquet"
    for values, found in (([1], "int"), (["one", None], "NoneType")):
        files.write_table(pyarrow.table({"text": values}), path)
        assert refused(place).message == f"{path}: row {len(values) - 1}: expected a text, found {found}"


LONG = {"texts": "txt: longer than 100 bytes", "TFDS": ": record 0: ", "parquet": ": row 0: "}


@pytest.mark.parametrize("kind", LONG)
def test_a_book_longer_than_any_is_refused(tmp_path, monkeypatch, kind):
    monkeypatch.setattr(pg19, "BOOK_LIMIT", 100)
    message = refused(COPIES[kind](tmp_path / "copy")).message
    assert LONG[kind] in message
    assert kind == "texts" or message.endswith("are more than the 100 allowed")
