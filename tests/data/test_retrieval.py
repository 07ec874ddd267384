"""Retrieval: both documents of every pair, quotes and all, or a refusal that says in which line."""

from __future__ import annotations

import hashlib
import json
import os
import random
import subprocess
import sys
from collections import Counter
from pathlib import Path

import numpy as np
import pytest

import lrurun
from lrurun.data import store
from lrurun.data.downloaded.retrieval import FILES, SIZES, Retrieval, RetrievalOptions
from lrurun.data.task import SPLITS
from tests.harness import formats

FULL = {"train": 300, "validation": 23, "test": 21}
OPTIONS = RetrievalOptions(max_length=40)
HINT = "this is not the released file, or it is damaged: fetch it again, or give another copy"
PIECES = [
    "Parsing ",
    '"',
    '"quoted" ',
    "''",
    ",",
    "\\",
    "\\n",
    "é",
    "\x0b",
    "\x1c",
    "\x85",
    "\u2028",
    "𝄞",
    "the ",
    "a\rb",
    "0.0",
]


def made(seed: int = 0, full: dict[str, int] = FULL) -> dict[str, list[tuple[str, ...]]]:
    """Rows of the tables: label, two names, two texts. What splits lines elsewhere must not do so here."""
    draw = random.Random(seed)
    rows = {}
    for split, count in full.items():
        rows[split] = []
        for number in range(count):
            texts = ["".join(draw.choices(PIECES, k=draw.choice([0, 1, 5, 30]))) for _ in range(2)]
            label = "1.0" if draw.random() < 0.4 else "0.0"
            rows[split].append((label, f'P0{number}-"1', "E09-1001", *texts))
    rows["train"][7] = ("1.0", "A", '"B', '"opened', "and not closed")
    rows["test"][3] = ("0.0", "A", "B", "õ is not in train", "x")
    return rows


ROWS = made()


def tables(rows: dict[str, list[tuple[str, ...]]] = ROWS, end: str = "\n") -> dict[str, bytes]:
    return {FILES[split]: "".join("\t".join(row) + end for row in found).encode() for split, found in rows.items()}


def vocabulary_of(length: int, least: int = 1) -> list[str]:
    counts = Counter(c for row in ROWS["train"] for text in row[3:] for c in text[: length - 1])
    common = sorted((-count, c) for c, count in counts.items() if count >= least)
    return ["<pad>", "<unk>", "<eos>", *(c for _, c in common)]


def encoded(text: str, vocabulary: list[str], length: int) -> list[int]:
    """One character after the other."""
    ids = [vocabulary.index(c) if c in vocabulary[3:] else 1 for c in list(text)[: length - 1]] + [2]
    return ids + [0] * (length - len(ids))


def check(data, vocabulary: list[str], length: int) -> None:
    for split in SPLITS:
        loaded = getattr(data, split)
        rows = ROWS[split][: len(loaded.labels)]
        assert loaded.inputs.shape == (len(rows), 2, length)
        assert loaded.lengths.shape == (len(rows), 2)
        for k, (label, _, _, *texts) in enumerate(rows):
            assert loaded.labels[k] == float(label)
            assert loaded.inputs[k].tolist() == [encoded(text, vocabulary, length) for text in texts]
            assert loaded.lengths[k].tolist() == [min(len(text) + 1, length) for text in texts]


def refused(where: Path, given: Path, options: RetrievalOptions = OPTIONS) -> tuple:
    return formats.refused(Retrieval(FULL), options, where, given)


@pytest.fixture(scope="module")
def prepared(tmp_path_factory):
    place = tmp_path_factory.mktemp("data")
    store.prepare(Retrieval(FULL), OPTIONS, place / "Retrieval", from_path=formats.tree(place / "aan", tables()))
    return place / "Retrieval"


def test_the_published_data_are_the_default():
    task = Retrieval()
    assert task.sizes(RetrievalOptions()) == SIZES == {"train": 147_086, "validation": 18_090, "test": 17_437}
    assert task.tolerance("train") == 1470
    spec = task.spec(RetrievalOptions())
    assert (spec.kind, spec.features, spec.classes, spec.length, spec.pair) == ("tokens", 98, 2, 4000, True)
    assert RetrievalOptions().min_frequency == 1
    assert [remote.name for remote in task.remotes] == [f"new_aan_pairs.{s}.tsv" for s in ("train", "eval", "test")]
    for remote in task.remotes:
        assert remote.url.startswith("https://huggingface.co/datasets/OpenNLPLab/lra/resolve/6cb133c44f406da7")
        assert remote.url.endswith(f"/data/aan/{remote.name}")


def test_every_character_of_both_documents_is_there(prepared):
    data = store.load(Retrieval(FULL), OPTIONS, prepared)
    vocabulary = vocabulary_of(40)
    table = json.loads((prepared / "manifest.json").read_text())
    assert table["vocabulary"] == vocabulary
    assert {'"', "\\", "é", "𝄞", "\r", "\x0b", "\x1c", "\x85", "\u2028"} < set(vocabulary)
    assert "õ" not in vocabulary
    check(data, vocabulary, 40)
    assert data.test.inputs[3, 0, 0] == 1
    assert (data.train.inputs.dtype, data.train.lengths.dtype, data.train.labels.dtype) == (
        np.uint8,
        np.int16,
        np.uint8,
    )
    assert data.spec.features == len(vocabulary)
    assert data.spec.pair
    assert set(np.unique(data.train.lengths)) > {1, 40}
    assert data.baselines == {"majority class": np.mean(data.test.labels == 0)}
    assert "notes" not in table
    assert {path.name for path in prepared.parent.iterdir()} == {"aan", "Retrieval"}
    assert len(list(prepared.iterdir())) == 10


def test_rare_characters_are_unknown(tmp_path):
    options = RetrievalOptions(max_length=25, min_frequency=90)
    store.prepare(Retrieval(FULL), options, tmp_path / "Retrieval", from_path=formats.tree(tmp_path / "aan", tables()))
    data = store.load(Retrieval(FULL), options, tmp_path / "Retrieval")
    vocabulary = vocabulary_of(25, 90)
    assert 5 < len(vocabulary) < len(vocabulary_of(25))
    check(data, vocabulary, 25)


def test_fewer_pairs_are_the_first_ones_with_the_same_vocabulary(prepared, tmp_path):
    options = RetrievalOptions(max_length=40, train=260, validation=2, test=5)
    store.prepare(Retrieval(FULL), options, tmp_path / "Retrieval", from_path=prepared.parent / "aan")
    data = store.load(Retrieval(FULL), options, tmp_path / "Retrieval")
    assert [len(split.labels) for split in (data.train, data.validation, data.test)] == [260, 2, 5]
    check(data, vocabulary_of(40), 40)


@pytest.mark.parametrize(
    "inside", ["", "tsv_data", "lra_release/lra_release/tsv_data", "lra_release/tsv_data", "data/aan"]
)
@pytest.mark.parametrize("end", ["\n", "\r\n"])
def test_tables_are_found_in_every_folder_that_holds_them(prepared, tmp_path, inside, end):
    formats.tree(tmp_path / "given" / inside, tables(end=end))
    table = store.prepare(Retrieval(FULL), OPTIONS, tmp_path / "Retrieval", from_path=tmp_path / "given")
    assert table.sha256 == store.manifest(Retrieval(FULL), OPTIONS, prepared).sha256
    assert table.source == f"the folder {tmp_path / 'given' / inside}"


@pytest.mark.parametrize("outer", ["before", "after", "between", "alone"])
def test_the_archive_of_the_release_is_read_as_a_stream(prepared, tmp_path, outer):
    inner = {f"lra_release/lra_release/tsv_data/{name}": data for name, data in tables().items()}
    other = {f"lra_release/tsv_data/{name}": data for name, data in tables(made(1)).items()}
    images = {"lra_release/lra_release/pathfinder32/curv_baseline/imgs/0/sample_0.png": b"x" * 5000}
    if outer == "alone":
        other, inner = (
            {name.replace("lra_release/lra_release", "lra_release"): data for name, data in inner.items()},
            {},
        )
    members = other | images | inner if outer == "before" else images | inner | other
    if outer == "between":
        members = {name: (inner | other)[name] for pair in zip(inner, other, strict=True) for name in pair}
    given = formats.tar(tmp_path / "given/lra_release.gz", members)
    for number, path in enumerate((given, given.parent)):
        where = tmp_path / str(number) / "Retrieval"
        table = store.prepare(Retrieval(FULL), OPTIONS, where, from_path=path)
        assert table.sha256 == store.manifest(Retrieval(FULL), OPTIONS, prepared).sha256
        place = "lra_release/tsv_data" if outer == "alone" else "lra_release/lra_release/tsv_data"
        assert table.notes == [f"read from {place} in lra_release.gz"]
        assert len(list(where.iterdir())) == 10
        assert [path.name for path in where.parent.iterdir()] == ["Retrieval"]


def test_nothing_behind_the_tables_is_read(tmp_path):
    members = {f"lra_release/lra_release/tsv_data/{name}": data for name, data in tables().items()}
    noise = random.Random(0).randbytes(1 << 20)
    given = formats.tar(tmp_path / "lra_release.gz", members | {"lra_release/lra_release/pathfinder32/0.png": noise})
    given.write_bytes(given.read_bytes()[: -(1 << 19)])
    store.prepare(Retrieval(FULL), OPTIONS, tmp_path / "Retrieval", from_path=given)


def test_version_1_is_these_bytes_for_ever(prepared):
    # other bytes are another version: change Retrieval.version, which is in every fingerprint, not this digest
    assert Retrieval.version == "1"
    content = b"".join((prepared / f"{s}-{part}.npy").read_bytes() for s in SPLITS for part in store.PARTS)
    assert hashlib.sha256(content).hexdigest() == "09a651cf6212d00c2dd62e227dd297388947a636fbd4048e7494d96d9df39b08"


def test_an_example_shows_both_documents(tmp_path):
    rows = made()
    rows["train"][0] = ("1.0", "A", "B", "x" * 200, "short")
    task, options = Retrieval(FULL), RetrievalOptions(max_length=500)
    store.prepare(task, options, tmp_path / "Retrieval", from_path=formats.tree(tmp_path / "aan", tables(rows)))
    data = store.load(task, options, tmp_path / "Retrieval")
    vocabulary = store.manifest(task, options, tmp_path / "Retrieval").vocabulary
    assert task.example(data.spec, data.train, 0, vocabulary) == f"1: {'x' * 130}... 2: short<eos>"


@pytest.mark.parametrize(
    ("line", "message"),
    [
        (b"1.0\tA\tB\tone\ttwo\tthree", "expected 5 columns, found 6"),
        (b"1.0\tA\tB\tone", "expected 5 columns, found 4"),
        (b"no table", "expected 5 columns, found 1"),
        (b"label\tid1\tid2\ttext1\ttext2", "expected a label of 0.0 or 1.0, found 'label'"),
        (b"2.0\tA\tB\tone\ttwo", "expected a label of 0.0 or 1.0, found '2.0'"),
        (b'"1.0"\tA\tB\tone\ttwo', "expected a label of 0.0 or 1.0, found '\"1.0\"'"),
        (b"\xff\tA\tB\tone\ttwo", "expected a label of 0.0 or 1.0, found '\\\\xff'"),
        (b"1.0\tA\tB\tna\xefve\ttwo", "column 4: not UTF-8: byte 0xef at 2"),
        (b"1.0\tA\tB\tone\t\xe2\x80", "column 5: not UTF-8: byte 0xe2 at 0"),
    ],
)
@pytest.mark.parametrize("split", ["train", "test"])
def test_a_wrong_line_is_named_and_the_next_try_succeeds(tmp_path, line, message, split):
    contents = tables()
    lines = contents[FILES[split]].split(b"\n")
    lines[11] = line
    given = formats.tree(tmp_path / "aan", contents | {FILES[split]: b"\n".join(lines)})
    assert refused(tmp_path, given) == (f"./aan/{FILES[split]}:12: {message}", HINT)
    formats.tree(given, contents)
    store.prepare(Retrieval(FULL), OPTIONS, tmp_path / "out/Retrieval", from_path=given)
    assert [path.name for path in (tmp_path / "out").iterdir()] == ["Retrieval"]


def test_a_wrong_line_in_an_archive_is_named_by_its_member(tmp_path):
    contents = tables()
    contents[FILES["test"]] += b"1.0\tA\n"
    given = formats.tar(
        tmp_path / "lra_release.tar.gz", {f"./tsv_data/{name}": data for name, data in contents.items()}
    )
    message = f"./lra_release.tar.gz: tsv_data/{FILES['test']}:22: expected 5 columns, found 2"
    assert refused(tmp_path, given) == (message, HINT)


@pytest.mark.parametrize(("count", "fine"), [(297, True), (296, False), (303, True), (304, False)])
def test_a_hundredth_more_or_less_is_said_and_more_is_refused(tmp_path, count, fine):
    given = formats.tree(tmp_path / "aan", tables(ROWS | {"train": (ROWS["train"] * 2)[:count]}))
    if fine:
        table = store.prepare(Retrieval(FULL), OPTIONS, tmp_path / "Retrieval", from_path=given)
        assert table.notes == [f"train has {count} examples, the published data have 300"]
        assert len(store.load(Retrieval(FULL), OPTIONS, tmp_path / "Retrieval").train.labels) == count
    else:
        message = f"./aan/new_aan_pairs.train.tsv: expected about 300 pairs, found {count}"
        for options in (OPTIONS, RetrievalOptions(train=10)):
            assert refused(tmp_path, given, options) == (message, HINT)


def test_blank_lines_and_a_missing_last_line_break_change_nothing(prepared, tmp_path):
    contents = {name: data[:-1] for name, data in tables().items()}
    contents[FILES["train"]] += b"\n\n\n"
    table = store.prepare(Retrieval(FULL), OPTIONS, tmp_path / "R", from_path=formats.tree(tmp_path / "aan", contents))
    assert table.sha256 == store.manifest(Retrieval(FULL), OPTIONS, prepared).sha256


PEAK = """
import resource, sys
from pathlib import Path

def peak():
    # bytes; on Linux getrusage's begins at the peak of the process that started this one
    if sys.platform != "linux":
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    (line,) = [line for line in Path("/proc/self/status").read_text().splitlines() if line.startswith("VmHWM")]
    return int(line.split()[1]) * 1024
"""

MEASURED = f"""{PEAK}
from lrurun.data import store as folder
from lrurun.data.downloaded.retrieval import Retrieval, RetrievalOptions

place = Path(sys.argv[1])
task = Retrieval(dict(train=4000, validation=4, test=4))
folder.prepare(task, RetrievalOptions(max_length=10), place / "small", from_path=place / "few")
before = peak()
folder.prepare(task, RetrievalOptions(), place / "R", from_path=place / "aan")
print(before, peak())
"""


@pytest.mark.slow
def test_memory_does_not_grow_with_the_tables(tmp_path):
    text = ("All of this is about parsing, é. " * 500).encode()  # 17 kB, longer than what is read
    line = b"1.0\tA\tB\t" + text + b"\t" + text + b"\n"
    few, many = (b"1.0\tA\tB\tx\ty\n" * 4, line * 4)
    formats.tree(tmp_path / "aan", {name: line * 4000 if "train" in name else many for name in FILES.values()})
    formats.tree(tmp_path / "few", {name: few * 1000 if "train" in name else few for name in FILES.values()})
    size = sum(path.stat().st_size for path in (tmp_path / "aan").iterdir())
    assert size > 130e6
    environment = os.environ | {"PYTHONPATH": str(Path(lrurun.__file__).parent.parent)}
    output = subprocess.run(
        [sys.executable, "-c", MEASURED, str(tmp_path)], env=environment, capture_output=True, text=True, check=True
    ).stdout
    before, after = map(int, output.split())
    assert after - before < 50e6, output
