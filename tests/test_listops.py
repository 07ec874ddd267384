"""ListOps: every value right, the published law, the same bits everywhere; copies are read or refused."""

from __future__ import annotations

import hashlib
import io
import itertools
import os
import random
import statistics
import tarfile
from pathlib import Path

import numpy as np
import pytest

from lrurun.errors import LrurunError, UsageError
from lrurun.strict import convert
from lrurun.tasks import folder
from lrurun.tasks import listops as task_module
from lrurun.tasks.base import SPLITS
from lrurun.tasks.generators import listops
from lrurun.tasks.generators.listops import TOKENS, Examples, Law
from lrurun.tasks.listops import ListOps, ListOpsOptions

SMALL = Law(min_length=5, max_length=60, max_depth=4, max_args=5)


def joined(parts) -> Examples:
    return Examples(*(np.concatenate(arrays) for arrays in zip(*parts, strict=True)))


def same(a: Examples, b: Examples) -> None:
    for mine, other in zip(a, b, strict=True):
        np.testing.assert_array_equal(mine, other)


def digest(examples: Examples) -> str:
    return hashlib.sha256(b"".join(array.tobytes() for array in examples)).hexdigest()


REDUCE = {
    "[MIN": min,
    "[MAX": max,
    "[MED": lambda values: int(statistics.median(values)),
    "[SM": lambda values: sum(values) % 10,
}


def evaluated(words: list[str]) -> tuple[int, int, int]:
    """The value, the depth and the greatest number of arguments: one word after the other, on a stack."""
    open_: list[tuple[str, list[int]]] = [("", [])]
    deepest = widest = 0
    for word in words:
        if word in REDUCE:
            open_.append((word, []))
        elif word == "]":
            name, values = open_.pop()
            assert len(values) >= 2
            widest = max(widest, len(values))
            open_[-1][1].append(REDUCE[name](values))
        else:
            open_[-1][1].append(int(word))
        deepest = max(deepest, len(open_))
    ((_, (value,)),) = open_
    return value, deepest, widest


@pytest.fixture(scope="module")
def published() -> Examples:
    """What four rounds of the published law keep, about 6,500 examples."""
    return joined(listops.draw(0, number) for number in range(4))


def test_the_vocabulary_is_fixed():
    assert " ".join(TOKENS) == "<pad> [MIN [MAX [MED [SM ] 0 1 2 3 4 5 6 7 8 9"


def test_every_value_is_what_a_stack_finds(published):
    assert len(published.labels) > 5000
    words = np.array(TOKENS)
    shapes = set()
    for row, length, label in zip(published.inputs[:5000], published.lengths, published.labels, strict=False):
        assert not row[length:].any()
        found = words[row[:length]].tolist()
        value, *shape = evaluated(found)
        assert value == label, " ".join(found)
        assert "<pad>" not in found
        shapes.add(tuple(shape))
    assert max(shapes) == (10, 10)
    assert {widest for _, widest in shapes} == {10}


def test_shapes_and_types_are_declared(published):
    n = len(published.labels)
    assert (published.inputs.shape, published.inputs.dtype) == ((n, 2000), np.uint8)
    assert (published.lengths.shape, published.lengths.dtype) == ((n,), np.int16)
    assert (published.labels.shape, published.labels.dtype) == ((n,), np.uint8)


def test_the_published_law_has_its_published_statistics(published):
    # tolerances are four standard errors of 6,500 examples
    n = len(published.labels)
    assert n / (4 * listops.TREES) == pytest.approx(0.082, abs=0.004)
    lengths = published.lengths
    assert lengths.min() > 500
    assert lengths.max() < 2000
    assert lengths.mean() == pytest.approx(1039, abs=20)
    assert np.median(lengths) == pytest.approx(960, abs=28)
    assert np.percentile(lengths, 10) == pytest.approx(579, abs=10)
    assert np.percentile(lengths, 90) == pytest.approx(1655, abs=42)
    shares = [0.170, 0.090, 0.078, 0.083, 0.090, 0.086, 0.077, 0.072, 0.087, 0.167]
    np.testing.assert_allclose(np.bincount(published.labels, minlength=10) / n, shares, atol=0.018)
    np.testing.assert_allclose(np.bincount(published.roots, minlength=6) / n, [0, *[0.25] * 4, 0], atol=0.022)
    for root, label, share in ((1, 0, 0.58), (2, 9, 0.57), (3, 4, 0.21)):
        counts = np.bincount(published.labels[published.roots == root], minlength=10)
        assert counts.argmax() == label
        assert counts.max() / counts.sum() == pytest.approx(share, abs=0.05)


def one(source: random.Random, law: Law, depth: int = 1) -> list[str]:
    """One tree, as the law says it: node after node."""
    if depth == law.max_depth or source.random() > 0.25:
        return [str(source.randrange(10))]
    children = [one(source, law, depth + 1) for _ in range(source.randint(2, law.max_args))]
    return [source.choice(list(REDUCE)), *itertools.chain(*children), "]"]


@pytest.mark.parametrize("law", [SMALL, Law(min_length=20, max_length=128, max_depth=10, max_args=3)])
def test_whole_rounds_have_the_law_of_single_trees(law):
    source = random.Random(0)
    trees = 60_000
    singles = [words for _ in range(trees) if law.min_length < len(words := one(source, law)) < law.max_length]
    drawn = listops.draw(0, 0, law, trees)
    words = [np.array(TOKENS)[row[:length]].tolist() for row, length in zip(drawn.inputs, drawn.lengths, strict=True)]
    statistics_of = {
        "length": len,
        "root": lambda words: TOKENS.index(words[0]),
        "digits": lambda words: sum(word.isdigit() for word in words),
        "sevens": lambda words: words.count("7"),
        "minima": lambda words: words.count("[MIN"),
        "value": lambda words: evaluated(words)[0],
        "depth": lambda words: evaluated(words)[1],
        "arguments": lambda words: evaluated(words)[2],
    }
    assert len(words) == pytest.approx(len(singles), abs=6 * len(singles) ** 0.5)
    for name, statistic in statistics_of.items():
        mine, theirs = (np.bincount([statistic(x) for x in sample], minlength=200) for sample in (words, singles))
        common = mine + theirs > 20
        scale = np.sqrt(len(singles) / len(words))
        chi2 = ((mine * scale - theirs / scale)[common] ** 2 / (mine + theirs)[common]).sum()
        freedom = common.sum()
        assert chi2 < freedom + 5 * np.sqrt(2 * freedom), name


def test_the_bits_of_version_1_are_these_for_ever():
    # other bits are another version: change VERSION, which is in every fingerprint, not these digests
    assert listops.VERSION == "1"
    assert (
        digest(listops.draw(0, 0, SMALL, trees=2000))
        == "e5e7ea4b07a3c2c3789880bbd64c21c18dadbf2442cba243302d0f6b561860ed"
    )
    assert (
        digest(listops.draw(3, 7, Law(), trees=200))
        == "216ba6111a352d79e414f55829287e128d6386ba650a26b37db4998ad4bcf248"
    )


def test_seeds_and_rounds_are_streams_of_their_own():
    rounds = [listops.draw(seed, number, SMALL, 2000) for seed in (0, 1) for number in (0, 1)]
    assert len({digest(examples) for examples in rounds}) == 4


@pytest.mark.parametrize("workers", [1, 2])
def test_the_first_distinct_examples_come_in_order(workers):
    # so small a law that many trees are drawn again and again
    law = Law(min_length=1, max_length=8, max_depth=3, max_args=3)
    first: dict[bytes, int] = {}
    for number in range(20):
        examples = listops.draw(5, number, law)
        for row, label in zip(examples.inputs, examples.labels, strict=True):
            first.setdefault(row.tobytes(), int(label))
    assert len(first) > 9000
    made = joined(listops.generate(9000, 5, law, workers=workers))
    assert [row.tobytes() for row in made.inputs] == list(first)[:9000]
    assert made.labels.tolist() == list(first.values())[:9000]
    assert made.lengths.tolist() == [len(row.rstrip(b"\0")) for row in list(first)[:9000]]


def test_fewer_are_the_first_of_more():
    more = joined(listops.generate(3000, 0, SMALL))
    same(joined(listops.generate(50, 0, SMALL)), Examples(*(array[:50] for array in more)))


@pytest.mark.parametrize(
    ("law", "count", "message"),
    [
        # ten digits below one operator are 12 tokens at most
        (
            Law(min_length=12, max_length=20, max_depth=2),
            10,
            "ListOps: 0 new examples in 400,000 trees of more than 12 and less than 20 tokens, depth 2 and 10 "
            "arguments; 0 of 10 found",
        ),
        # 4 operators on 2 or 3 digits: no more than 4,400 trees
        (
            Law(min_length=1, max_length=8, max_depth=2, max_args=3),
            4401,
            "ListOps: 0 new examples in 400,000 trees of more than 1 and less than 8 tokens, depth 2 and 3 arguments; "
            "4,400 of 4,401 found",
        ),
    ],
)
def test_a_law_that_keeps_next_to_nothing_ends(law, count, message):
    with pytest.raises(LrurunError) as caught:
        list(listops.generate(count, 0, law))
    assert caught.value.message == message
    assert caught.value.hint == "choose other lengths, another depth or number of arguments, or fewer examples"


def test_a_law_of_huge_trees_does_not_fill_the_memory():
    # an operator's hundred children have 25 operators on average, and so on
    examples = listops.draw(0, 0, Law(min_length=20, max_length=200, max_depth=100, max_args=100), trees=5000)
    for row, length, label in zip(*examples, strict=True):
        words = np.array(TOKENS)[row[:length]].tolist()
        assert evaluated(words)[0] == label


@pytest.mark.parametrize(
    ("law", "seed", "message"),
    [
        (Law(), -1, "ListOps: seed: expected 0 to 4294967295, found -1"),
        (Law(max_length=2**15), 0, "ListOps: max_length: expected 2 to 32767, found 32768"),
        (Law(min_length=1999), 0, "ListOps: min_length: expected 1 to 1998, found 1999"),
        (Law(max_depth=1), 0, "ListOps: max_depth: expected 2 to 100, found 1"),
        (Law(max_args=1), 0, "ListOps: max_args: expected 2 to 100, found 1"),
    ],
)
def test_a_law_that_is_none_is_refused(law, seed, message):
    with pytest.raises(LrurunError) as caught:
        list(listops.generate(1, seed, law))
    assert caught.value.message == message


def test_the_baselines_guess_what_is_commonest_in_train():
    roots, labels = np.array([(1, 0), (1, 0), (1, 9), (2, 9), (2, 9), (2, 9), (2, 1)]).T
    test_roots, test_labels = np.array([(1, 0), (1, 9), (1, 1), (2, 9), (2, 1)]).T
    found = listops.baselines(roots, labels, test_roots, test_labels)
    assert found == {"majority class": 2 / 5, "root operator only": 2 / 5}
    found = listops.baselines(roots, labels, roots, labels)
    assert found == {"majority class": 4 / 7, "root operator only": 5 / 7}


def test_the_baselines_of_the_published_law(published):
    found = listops.baselines(*[published.roots, published.labels] * 2)
    assert found["majority class"] == pytest.approx(0.170, abs=0.018)
    assert found["root operator only"] == pytest.approx(0.362, abs=0.024)


# --- the task ---

TASK = ListOps()
FILES = ("basic_train.tsv", "basic_val.tsv", "basic_test.tsv")
INNER = "lra_release/lra_release/listops-1000"
HEADER = b"Source\tTarget\r\n"
ROW = b"( ( ( [MAX 1 ) 2 ) ] )\t2\r\n"
HINT = "this is not the released file, or it is damaged: give another copy, or leave --from out to generate the data"


@pytest.fixture
def few(monkeypatch):
    """As if 6, 3 and 2 examples had been published."""
    monkeypatch.setattr(task_module, "SIZES", dict(zip(SPLITS, (6, 3, 2), strict=True)))


def release(place: Path, rows: tuple[list[bytes], ...] = ([ROW] * 6, [ROW] * 3, [ROW] * 2)) -> Path:
    place.mkdir(parents=True, exist_ok=True)
    for name, lines in zip(FILES, rows, strict=True):
        (place / name).write_bytes(HEADER + b"".join(lines))
    return place


def marked(place: Path, target: int) -> Path:
    """A copy that is known by its labels."""
    row = b"( ( ( [MIN %d ) 9 ) ] )\t%d\r\n" % (target, target)
    return release(place, ([row] * 6, [row] * 3, [row] * 2))


def packed(archive: Path, places: list[Path], below: Path, mode: str = "w:gz") -> Path:
    with tarfile.open(archive, mode) as tar:
        for place in places:
            tar.add(place, f"./{place.relative_to(below)}")
    return archive


def prepared(tmp_path: Path, given: Path | None, options: ListOpsOptions | None = None):
    """The data and the manifest."""
    options = options or ListOpsOptions()
    where = tmp_path / "data/ListOps"
    table = folder.prepare(TASK, options, where, given=given)
    return folder.load(TASK, options, where), table


def refusal(tmp_path: Path, given: Path, options: ListOpsOptions | None = None) -> tuple[str, str | None]:
    with pytest.raises(LrurunError) as caught:
        prepared(tmp_path, given, options)
    assert not (tmp_path / "data/ListOps").exists()
    return caught.value.message.replace(str(tmp_path), "."), caught.value.hint


def in_parentheses(words: list[str]) -> str:
    """An example as the released files have it: a binary tree, operator and arguments joined from the left."""
    word = words.pop(0)
    if not word.startswith("["):
        return word
    while words[0] != "]":
        word = f"( {word} {in_parentheses(words)} )"
    return f"( {word} {words.pop(0)} )"


def test_the_bytes_of_a_file_become_tokens_lengths_and_labels(tmp_path, few):
    nested = b"( ( ( ( [SM ( ( ( [MED 3 ) 8 ) ] ) ) 0 ) 7 ) ] )\t2\r\n"
    place = release(tmp_path / "copy", ([ROW, nested, *[ROW] * 4], [nested] * 3, [nested, ROW]))
    (place / FILES[2]).write_bytes((place / FILES[2]).read_bytes().replace(b"\r\n", b"\n"))
    data, table = prepared(tmp_path, place)
    row = [2, 7, 8, 5] + [0] * 1996
    other = [4, 3, 9, 14, 5, 6, 13, 5] + [0] * 1992
    assert data.train.inputs.tolist() == [row, other, row, row, row, row]
    assert data.validation.inputs.tolist() == [other] * 3
    assert data.test.inputs.tolist() == [other, row]
    assert data.train.lengths.tolist() == [4, 8, 4, 4, 4, 4]
    assert data.test.lengths.tolist() == [8, 4]
    assert data.test.labels.tolist() == [2, 2]
    assert (data.train.inputs.dtype, data.train.lengths.dtype, data.train.labels.dtype) == (
        np.uint8,
        np.int16,
        np.uint8,
    )
    assert table["vocabulary"] == list(TOKENS)
    assert table["source"] == f"Long Range Arena's release, {place}"
    assert (table["kind"], "generator" in table, "notes" in table) == ("folder", False, False)
    assert TASK.example(data.spec, data.test, 0, table["vocabulary"]) == "[SM [MED 3 8 ] 0 7 ]"
    spec = data.spec
    assert (spec.kind, spec.features, spec.classes, spec.length) == ("tokens", 16, 10, 2000)


def test_generated_data_written_as_the_release_are_read_as_the_same(tmp_path, few):
    generated, table = prepared(tmp_path / "generated", None)
    assert (table["kind"], table["generator"]) == ("generated", {"name": "lrurun ListOps", "version": "1", "seed": 0})
    assert table["source"] == "generated by lrurun ListOps 1, seed 0"
    rows = []
    for name in SPLITS:
        split = getattr(generated, name)
        lines = []
        for row, length, label in zip(split.inputs, split.lengths, split.labels, strict=True):
            lines.append(f"{in_parentheses([TOKENS[token] for token in row[:length]])}\t{label}\r\n".encode())
        rows.append(lines)
    read, table = prepared(tmp_path / "read", release(tmp_path / "copy", tuple(rows)))
    assert read.sha256 == generated.sha256
    assert read.baselines == generated.baselines == table["baselines"]
    assert (read.kind, generated.kind) == ("folder", "generated")


def test_the_splits_are_distinct_and_a_smaller_train_split_is_part_of_a_larger(tmp_path):
    sizes = {"validation": 100, "test": 200}
    law = {"min_length": 20, "max_length": 128, "max_depth": 5}
    small, _ = prepared(tmp_path / "small", None, ListOpsOptions(train=2000, **sizes, **law))
    large, table = prepared(tmp_path / "large", None, ListOpsOptions(train=5000, **sizes, **law))
    for name in ("validation", "test"):
        np.testing.assert_array_equal(getattr(small, name).inputs, getattr(large, name).inputs)
    np.testing.assert_array_equal(small.train.inputs, large.train.inputs[:2000])
    rows = [row.tobytes() for name in SPLITS for row in getattr(large, name).inputs]
    assert len(rows) == len(set(rows)) == 5300
    assert large.train.inputs.shape == (5000, 128)
    assert (large.train.lengths.min(), large.train.lengths.max()) == (21, 127)
    assert large.spec.length == 128
    assert table["counts"] == {"train": 5000, "validation": 100, "test": 200}
    train, test = large.train, large.test
    expected = listops.baselines(train.inputs[:, 0], train.labels, test.inputs[:, 0], test.labels)
    assert large.baselines == expected


def test_the_seed_makes_other_data(tmp_path, few):
    first, _ = prepared(tmp_path / "first", None)
    other, table = prepared(tmp_path / "other", None, ListOpsOptions(seed=7))
    assert first.sha256 != other.sha256
    assert table["generator"]["seed"] == 7
    assert table["source"] == "generated by lrurun ListOps 1, seed 7"


@pytest.mark.parametrize("place", [".", "listops-1000", "lra_release/listops-1000", INNER])
def test_a_copy_is_found_wherever_people_unpack_it(tmp_path, few, place):
    release(tmp_path / "copy" / place)
    _, table = prepared(tmp_path, tmp_path / "copy")
    assert table["source"] == f"Long Range Arena's release, {tmp_path / 'copy' / place}"


def test_of_two_copies_the_inner_one_is_read_and_named(tmp_path, few):
    marked(tmp_path / "copy/lra_release/listops-1000", 1)
    marked(tmp_path / "copy" / INNER, 2)
    for number, start in enumerate(("copy", "copy/lra_release")):
        data, table = prepared(tmp_path / str(number), tmp_path / start)
        assert set(data.train.labels.tolist()) == {2}
        assert table["source"] == f"Long Range Arena's release, {tmp_path / 'copy' / INNER}"


@pytest.mark.parametrize(
    ("name", "mode"), [("lra_release.gz", "w:gz"), ("lra_release.tar.gz", "w:gz"), ("own.tar", "w:")]
)
def test_an_archive_is_read_without_being_unpacked(tmp_path, few, name, mode):
    copy = marked(tmp_path / "copy" / INNER, 3)
    (tmp_path / "have").mkdir()
    archive = packed(tmp_path / "have" / name, [copy], tmp_path / "copy", mode)
    data, table = prepared(tmp_path, archive)
    assert {label for name in SPLITS for label in getattr(data, name).labels.tolist()} == {3}
    assert table["source"] == f"Long Range Arena's release, {archive}"
    assert table["notes"] == [f"read from {INNER} in {name}"]
    if name in ("lra_release.gz", "lra_release.tar.gz"):
        data, _ = prepared(tmp_path / "again", archive.parent)
        assert data.train.labels.tolist() == [3] * 6


@pytest.mark.parametrize("order", ["outer first", "inner first", "in turn"])
def test_of_two_copies_in_an_archive_the_inner_one_is_read(tmp_path, few, order):
    copies = [marked(tmp_path / "copy/lra_release/listops-1000", 1), marked(tmp_path / "copy" / INNER, 2)]
    if order == "in turn":
        places = [copy / name for name in FILES for copy in copies]
    else:
        places = copies[:: -1 if order == "inner first" else 1]
    archive = packed(tmp_path / "lra_release.gz", places, tmp_path / "copy")
    data, table = prepared(tmp_path, archive)
    assert {label for name in SPLITS for label in getattr(data, name).labels.tolist()} == {2}
    assert table["notes"] == [f"read from {INNER} in lra_release.gz"]


def test_what_follows_the_inner_copy_in_an_archive_is_not_read(tmp_path, few):
    copy = release(tmp_path / "copy" / INNER)
    (tmp_path / "copy/pictures").write_bytes(os.urandom(1 << 20))
    archive = packed(tmp_path / "lra_release.gz", [copy, tmp_path / "copy/pictures"], tmp_path / "copy")
    archive.write_bytes(archive.read_bytes()[: 1 << 19])
    data, _ = prepared(tmp_path, archive)
    assert data.train.labels.tolist() == [2] * 6


def test_a_damaged_archive_is_told(tmp_path, few):
    (tmp_path / "copy").mkdir()
    (tmp_path / "copy/pictures").write_bytes(os.urandom(1 << 20))
    copy = release(tmp_path / "copy" / INNER)
    archive = packed(tmp_path / "lra_release.gz", [tmp_path / "copy/pictures", copy], tmp_path / "copy")
    archive.write_bytes(archive.read_bytes()[: 1 << 19])
    assert refusal(tmp_path, archive)[0] == "./lra_release.gz: the archive is cut off"


def test_an_archive_without_a_table_is_told(tmp_path, few):
    copy = release(tmp_path / "copy" / INNER)
    (copy / FILES[1]).unlink()
    archive = packed(tmp_path / "lra_release.gz", [copy], tmp_path / "copy")
    assert refusal(tmp_path, archive) == (f"./lra_release.gz: {INNER}/basic_val.tsv missing", HINT)


def test_a_link_in_an_archive_is_no_table(tmp_path, few):
    archive = tmp_path / "lra_release.gz"
    with tarfile.open(archive, "w:gz") as tar:
        for name in FILES:
            member = tarfile.TarInfo(f"listops-1000/{name}")
            member.type, member.linkname = tarfile.SYMTYPE, "/etc/passwd"
            tar.addfile(member, io.BytesIO())
    message = "./lra_release.gz: basic_train.tsv and basic_val.tsv and basic_test.tsv missing"
    assert refusal(tmp_path, archive) == (message, HINT)


def test_a_folder_without_a_table_is_told(tmp_path, few):
    (release(tmp_path / "copy/listops-1000") / FILES[0]).unlink()
    assert refusal(tmp_path, tmp_path / "copy") == ("./copy/listops-1000: basic_train.tsv missing", HINT)


def test_what_is_no_copy_is_none(tmp_path):
    (tmp_path / "empty").mkdir()
    (tmp_path / "file.gz").write_bytes(b"\x1f\x8bno archive")
    (tmp_path / "nothing.gz").touch()
    for name in ("empty", "file.gz", "nothing.gz"):
        assert TASK.find(tmp_path / name, ListOpsOptions()) is None
        message, hint = refusal(tmp_path, tmp_path / name)
        assert message == f"--from ./{name}: no copy of ListOps is there"
        assert hint == "it takes the folder or the archive of the Long Range Arena release, or its folder listops-1000"


LONG = b"( [SM " + b"( 1 ) " * 1999 + b"] )\t9\n"


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "1: expected the header 'Source<TAB>Target', found ''"),
        (ROW * 6, "1: expected the header 'Source<TAB>Target', found '( ( ( [MAX 1 ) 2 ) ] )\\t2'"),
        (b"Target\tSource\n" + ROW * 6, "1: expected the header 'Source<TAB>Target', found 'Target\\tSource'"),
        (b"\xff\xfeS\0", "1: expected the header 'Source<TAB>Target', found '\\\\xff\\\\xfeS\\x00'"),
        (HEADER + ROW * 2 + b"[MAX 1 2 ]\r\n" + ROW, "4: expected 2 columns, found 1"),
        (HEADER + b"1\t2\t3\n", "2: expected 2 columns, found 3"),
        (HEADER + ROW * 2 + b"\n", "4: expected 2 columns, found 1"),
        (HEADER + b"( ( ( [AVG 1 ) 2 ) ] )\t2\n", "2: unknown token '[AVG'"),
        (HEADER + b"[MAX 1 22 ]\t2\n", "2: unknown token '22'"),
        (HEADER + b"[MAX 1 <pad> ]\t2\n", "2: unknown token '<pad>'"),
        (HEADER + "[MAX 1 \u0665 ]\t2\n".encode(), "2: unknown token '\u0665'"),
        (HEADER + b"[MAX 1 " + b"x" * 100 + b" ]\t2\n", "2: unknown token '" + "x" * 37 + "...'"),
        (HEADER + ROW + b"[MAX 1 \xe9 ]\t2\n", "3: not UTF-8: byte 0xe9 in column 8"),
        (HEADER + b"[MAX 1 2 ]\t10\n", "2: expected a target of 0 to 9, found '10'"),
        (HEADER + b"[MAX 1 2 ]\t-1\n", "2: expected a target of 0 to 9, found '-1'"),
        (HEADER + b"[MAX 1 2 ]\t\n", "2: expected a target of 0 to 9, found ''"),
        (HEADER + b"[MAX 1 2 ]\t2.0\n", "2: expected a target of 0 to 9, found '2.0'"),
        (HEADER + b"( )\t2\n", "2: expected 1 to 2000 tokens, found 0"),
        (HEADER + ROW + LONG, "3: expected 1 to 2000 tokens, found 2001"),
    ],
)
def test_a_wrong_line_is_told_with_its_place(tmp_path, few, content, message):
    place = release(tmp_path / "copy" / INNER)
    (place / FILES[1]).write_bytes(content)
    assert refusal(tmp_path, place) == (f"./copy/{INNER}/basic_val.tsv:{message}", HINT)
    archive = packed(tmp_path / "lra_release.gz", [place], tmp_path / "copy")
    assert refusal(tmp_path, archive) == (f"./lra_release.gz: {INNER}/basic_val.tsv:{message}", HINT)


@pytest.mark.parametrize(("rows", "found"), [(2, "2"), (0, "0"), (4, "more")])
def test_another_number_of_rows_is_told(tmp_path, few, rows, found):
    place = release(tmp_path / "copy", ([ROW] * 6, [ROW] * rows, [ROW] * 2))
    assert refusal(tmp_path, place) == (f"./copy/basic_val.tsv: expected 3 examples, found {found}", HINT)


def test_the_published_numbers_of_rows():
    assert TASK.sizes(ListOpsOptions()) == {"train": 96000, "validation": 2000, "test": 2000}


def test_fewer_examples_are_the_first_of_a_copy(tmp_path, few):
    rows = [b"[MIN %d 9 ]\t%d\n" % (digit, digit) for digit in range(6)]
    place = release(tmp_path / "copy", (rows, rows[:3], rows[:2]))
    data, _ = prepared(tmp_path, place, ListOpsOptions(train=4, test=1))
    assert [getattr(data, name).labels.tolist() for name in SPLITS] == [[0, 1, 2, 3], [0, 1, 2], [0]]
    message = "./copy/basic_train.tsv: expected 7 examples, found 6"
    assert refusal(tmp_path / "other", place, ListOpsOptions(train=7))[0].endswith(message[1:])


def test_a_copy_is_not_taken_for_data_of_another_law(tmp_path, few):
    place = release(tmp_path / "copy")
    message, hint = refusal(tmp_path, place, ListOpsOptions(seed=3, max_depth=5))
    assert message == "./copy: a copy holds the published data, not those with seed = 3, max_depth = 5"
    assert hint == "leave --from out: these data are generated"


@pytest.mark.parametrize(
    ("table", "message"),
    [
        ({"min_length": 1999}, "recipe: no length is between min_length = 1999 and max_length = 2000"),
        ({"max_args": 1}, "recipe, max_args: expected a whole number >= 2, found 1"),
        ({"max_length": 40000}, "recipe, max_length: expected a whole number <= 32767, found 40000"),
        ({"seed": -1}, "recipe, seed: expected a whole number >= 0, found -1"),
        ({"depth": 3}, "recipe, depth: unknown name"),
    ],
)
def test_settings_that_are_none_are_refused(table, message):
    with pytest.raises(UsageError) as caught:
        convert(table, ListOpsOptions, "recipe")
    assert caught.value.message == message


def test_what_the_settings_allow_the_generator_takes():
    for options in (
        ListOpsOptions(min_length=1, max_length=3, max_depth=2, max_args=2, seed=2**31 - 1),
        ListOpsOptions(min_length=32765, max_length=32767, max_depth=100, max_args=100),
    ):
        listops.check(options.law(), options.seed)
