"""ListOps and ListOpsSubTrees: values by a stack, the published law, released tables read as the same, or refused."""

from __future__ import annotations

import hashlib
import itertools
import random
import statistics

import numpy as np
import pytest
from msgspec.structs import asdict

from lrurun.data.synthetic import listops as task_module
from lrurun.data.synthetic import listops_generator
from lrurun.data.synthetic.listops import ListOps, ListOpsOptions
from lrurun.data.synthetic.listops_generator import TOKENS, Examples, Parameters
from lrurun.data.synthetic.listops_subtrees import ListOpsSubTreesOptions
from lrurun.data.task import SPLITS
from lrurun.data.tasks import TASKS
from lrurun.errors import LrurunError
from tests.harness import formats

TASK, SUBTREES = ListOps(), TASKS["ListOpsSubTrees"]
SMALL = Parameters(min_length=5, max_length=60, max_depth=4, max_args=5)
LONG = SUBTREES.options().parameters()
SHORT = Parameters(min_length=20, max_length=128, max_depth=8, max_args=9, subtrees=True)


def joined(parts):
    return Examples(*(np.concatenate(arrays) for arrays in zip(*parts, strict=True)))


def digest(examples):
    return hashlib.sha256(b"".join(array.tobytes() for array in examples)).hexdigest()


REDUCE = {
    "[MIN": min,
    "[MAX": max,
    "[MED": lambda values: int(statistics.median(values)),
    "[SM": lambda values: sum(values) % 10,
}


def evaluated(words):
    """One word after the other, on a stack: the value of each subtree at its bracket and -1 elsewhere, the value of
    the whole, the depth, and the greatest number of arguments."""
    stack, labels = [("", [])], []
    deepest = widest = 0
    for word in words:
        labels.append(-1)
        if word in REDUCE:
            stack.append((word, []))
        elif word == "]":
            name, values = stack.pop()
            assert len(values) >= 2
            widest = max(widest, len(values))
            labels[-1] = REDUCE[name](values)
            stack[-1][1].append(labels[-1])
        else:
            stack[-1][1].append(int(word))
        deepest = max(deepest, len(stack))
    ((_, (value,)),) = stack
    return labels, value, deepest, widest


def words_of(row, length):
    return [TOKENS[token] for token in row[:length].tolist()]


@pytest.fixture(scope="module")
def published():
    """What four rounds with the published parameters keep, about 6,500 examples."""
    return joined(listops_generator.draw(0, number) for number in range(4))


def test_published_parameters_give_right_values_and_the_published_statistics(published):
    # tolerances are four standard errors of 6,500 examples
    n = len(published.labels)
    assert (published.inputs.shape, published.inputs.dtype) == ((n, 2000), np.uint8)
    assert (published.lengths.dtype, published.labels.dtype) == (np.int16, np.uint8)
    shapes = set()
    for row, length, label in itertools.islice(zip(*published, strict=True), 200):
        assert not row[length:].any()
        _, value, *shape = evaluated(words_of(row, length))
        assert value == label
        shapes.add(tuple(shape))
    assert max(shapes) == (10, 10)
    assert n / (4 * listops_generator.TREES) == pytest.approx(0.082, abs=0.004)
    lengths = published.lengths
    assert (lengths.min() > 500, lengths.max() < 2000) == (True, True)
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
    found = listops_generator.baselines(*[published.roots, published.labels] * 2)
    assert found["majority class"] == pytest.approx(0.170, abs=0.018)
    assert found["root operator only"] == pytest.approx(0.362, abs=0.024)


def one(source, parameters, depth=1):
    """One tree, grown node by node."""
    if depth == parameters.max_depth or source.random() > 0.25:
        return [str(source.randrange(10))]
    children = [one(source, parameters, depth + 1) for _ in range(source.randint(2, parameters.max_args))]
    return [source.choice(list(REDUCE)), *itertools.chain(*children), "]"]


def test_rounds_have_the_distribution_of_single_trees():
    source, trees = random.Random(0), 12_000
    singles = [words for _ in range(trees) if 5 < len(words := one(source, SMALL)) < 60]
    drawn = listops_generator.draw(0, 0, SMALL, trees)
    words = [words_of(row, length) for row, length in zip(drawn.inputs, drawn.lengths, strict=True)]
    statistics_of = {
        "length": len,
        "root": lambda words: TOKENS.index(words[0]),
        "digits": lambda words: sum(word.isdigit() for word in words),
        "sevens": lambda words: words.count("7"),
        "minima": lambda words: words.count("[MIN"),
        "value": lambda words: evaluated(words)[1],
        "depth": lambda words: evaluated(words)[2],
        "arguments": lambda words: evaluated(words)[3],
    }
    assert len(words) == pytest.approx(len(singles), abs=6 * len(singles) ** 0.5)
    for name, statistic in statistics_of.items():
        mine, theirs = (np.bincount([statistic(x) for x in sample], minlength=200) for sample in (words, singles))
        common = mine + theirs > 20
        scale = np.sqrt(len(singles) / len(words))
        chi2 = ((mine * scale - theirs / scale)[common] ** 2 / (mine + theirs)[common]).sum()
        freedom = common.sum()
        assert chi2 < freedom + 5 * np.sqrt(2 * freedom), name


@pytest.mark.parametrize(
    ("arguments", "bits"),
    [
        ((0, 0, SMALL, 2000), "e5e7ea4b07a3c2c3789880bbd64c21c18dadbf2442cba243302d0f6b561860ed"),
        ((3, 7, Parameters(), 200), "216ba6111a352d79e414f55829287e128d6386ba650a26b37db4998ad4bcf248"),
        ((0, 0, SHORT, 2000), "149a5f833e458220c17756f69b376986e7ee6b6ccc91997b3418f4110db7c879"),
    ],
)
def test_the_bits_of_version_1_are_these_for_ever(arguments, bits):
    # other bits are another version: change VERSION, which is in every fingerprint, not these digests
    assert listops_generator.VERSION == "1"
    assert digest(listops_generator.draw(*arguments)) == bits


@pytest.mark.parametrize("workers", [1, pytest.param(2, marks=pytest.mark.slow)])
def test_the_first_distinct_examples_come_in_order(workers):
    # with these, many trees are sampled again and again
    parameters = Parameters(min_length=1, max_length=8, max_depth=3, max_args=3)
    first: dict[bytes, int] = {}
    for number in range(5):
        examples = listops_generator.draw(5, number, parameters)
        for row, label in zip(examples.inputs, examples.labels, strict=True):
            first.setdefault(row.tobytes(), int(label))
    assert len(first) > 4000
    made = joined(listops_generator.generate(4000, 5, parameters, workers=workers))
    assert [row.tobytes() for row in made.inputs] == list(first)[:4000]
    assert made.labels.tolist() == list(first.values())[:4000]
    assert made.lengths.tolist() == [len(row.rstrip(b"\0")) for row in list(first)[:4000]]


@pytest.mark.parametrize(
    ("parameters", "count", "message"),
    [
        # ten digits below one operator are 12 tokens at most
        (Parameters(12, 20, 2), 10, "with more than 12 and less than 20 tokens, depth 2 and 10 arguments; 0 of 10 fou"),
        # 4 operators on 2 or 3 digits: no more than 4,400 trees
        (Parameters(1, 8, 2, 3), 4401, "with more than 1 and less than 8 tokens, depth 2 and 3 arguments; 4,400 of 4,"),
    ],
)
def test_parameters_that_keep_almost_nothing_end_in_an_error(parameters, count, message):
    with pytest.raises(LrurunError) as caught:
        list(listops_generator.generate(count, 0, parameters))
    assert caught.value.message.startswith(f"ListOps: 0 new examples in 400,000 trees {message}")


def test_the_baselines_guess_what_is_commonest_in_train():
    roots, labels = np.array([(1, 0), (1, 0), (1, 9), (2, 9), (2, 9), (2, 9), (2, 1)]).T
    test_roots, test_labels = np.array([(1, 0), (1, 9), (1, 1), (2, 9), (2, 1)]).T
    found = listops_generator.baselines(roots, labels, test_roots, test_labels)
    assert found == {"majority class": 2 / 5, "root operator only": 2 / 5}
    found = listops_generator.baselines(roots, labels, roots, labels)
    assert found == {"majority class": 4 / 7, "root operator only": 5 / 7}


# subtrees


@pytest.mark.parametrize(
    ("parameters", "count"), [pytest.param(LONG, 200, marks=pytest.mark.slow), (LONG, 20), (SHORT, 500)]
)
def test_every_subtree_has_the_value_that_a_stack_finds(parameters, count):
    found = joined(listops_generator.generate(count, 3, parameters))
    assert (found.inputs.dtype, found.labels.dtype) == (np.uint8, np.int8)
    for row, length, labels in zip(*found, strict=True):
        assert parameters.min_length < length < parameters.max_length
        assert evaluated(words_of(row, length))[0] == labels[:length].tolist()
        assert not row[length:].any()
        assert (labels[length:] == -1).all()


def test_subtrees_have_the_published_law():
    """Of the published program: 0.38 % of trees are kept, with a median length of 7,488.

    Tolerances are four standard errors of some 150 trees.
    """
    assert LONG == Parameters(min_length=7000, max_length=8180, max_depth=15, max_args=9, subtrees=True)
    lengths = np.concatenate([listops_generator.draw(1, number, LONG).lengths for number in range(2)])
    assert 0.0026 < len(lengths) / (2 * listops_generator.TREES) < 0.0050
    assert np.median(lengths) == pytest.approx(7488, abs=200)


def test_subtrees_have_the_bits_of_trees_and_no_two_differ_in_digits_alone():
    with_labels, without = (
        listops_generator.draw(2, 0, SHORT._replace(subtrees=subtrees), 3000) for subtrees in (True, False)
    )
    np.testing.assert_array_equal(with_labels.inputs, without.inputs)
    last = with_labels.labels[np.arange(len(without.labels)), without.lengths.astype(int) - 1]
    np.testing.assert_array_equal(last, without.labels)
    parameters = Parameters(min_length=3, max_length=16, max_depth=4, max_args=4)

    def templates(subtrees):
        found = joined(listops_generator.generate(300, 0, parameters._replace(subtrees=subtrees)))
        return [bytes(token for token in row if 0 < token < listops_generator.ZERO) for row in found.inputs.tolist()]

    assert len(set(templates(True))) == 300
    assert len(set(templates(False))) < 300


def test_each_bracket_has_its_operator():
    words = "[MAX 2 [MIN 6 0 ] [MED [SM 3 1 ] 8 ] ]".split()
    row = np.array([[TOKENS.index(word) for word in words], [0] * len(words)], np.uint8)
    row[1, :5] = [listops_generator.SM, 7, 8, listops_generator.CLOSE, 0]
    first, second = listops_generator.operators(row).tolist()
    assert [TOKENS[token] for token in first if token] == ["[MIN", "[SM", "[MED", "[MAX"]
    assert [index for index, token in enumerate(first) if token] == [i for i, word in enumerate(words) if word == "]"]
    assert [token for token in second if token] == [listops_generator.SM]


def operator_only(data):
    """The accuracy of the commonest value of each operator, from a stack."""
    counts, right, total = {}, 0, 0
    for split in (data.train, data.test):
        for row, length, labels in zip(split.inputs, split.lengths, split.labels, strict=True):
            stack = []
            for token, label in zip(row[:length].tolist(), labels.tolist(), strict=False):
                if token < listops_generator.CLOSE:
                    stack.append(token)
                elif token == listops_generator.CLOSE:
                    of = counts.setdefault(stack.pop(), dict.fromkeys(range(10), 0))
                    if split is data.train:
                        of[label] += 1
                    else:
                        right += label == max(of, key=of.__getitem__)
                        total += 1
    return right / total


def test_what_is_stored_of_subtrees(tmp_path):
    shape = {"min_length": 20, "max_length": 128, "max_depth": 8, "seed": 5}
    options = ListOpsSubTreesOptions(train=300, validation=20, test=100, **shape)
    data, _ = formats.prepared(SUBTREES, tmp_path / "x", None, options)
    made = joined(listops_generator.generate(420, 5, options.parameters()))
    for name, other in zip(("inputs", "lengths", "labels"), made, strict=True):
        mine = np.concatenate([getattr(split, name) for split in (data.test, data.validation, data.train)])
        np.testing.assert_array_equal(mine, other)
    commonest = np.bincount(data.train.labels[data.train.labels >= 0]).argmax()
    assert data.baselines["majority class"] == np.mean(data.test.labels[data.test.labels >= 0] == commonest)
    assert data.baselines["operator only"] == pytest.approx(operator_only(data), abs=1e-12)
    few = ListOpsSubTreesOptions(train=3, validation=2, test=2)
    wide, _ = formats.prepared(SUBTREES, tmp_path / "wide", None, few)
    assert wide.train.inputs.shape == wide.train.labels.shape == (3, 8192)
    assert (wide.train.labels[:, 8179:] == -1).all()
    assert wide.train.lengths.min() > 7000


# the task, from a copy or generated

FILES = ("basic_train.tsv", "basic_val.tsv", "basic_test.tsv")
INNER = "lra_release/lra_release/listops-1000"
HEADER = b"Source\tTarget\r\n"
ROW = b"( ( ( [MAX 1 ) 2 ) ] )\t2\r\n"
HINT = "this is not the released file, or it is damaged: give another copy, or omit --from to generate the data"


@pytest.fixture
def few(monkeypatch):
    """As if 6, 3 and 2 examples had been published."""
    monkeypatch.setattr(task_module, "SIZES", dict(zip(SPLITS, (6, 3, 2), strict=True)))


def release(rows=([ROW] * 6, [ROW] * 3, [ROW] * 2), place=INNER):
    return {f"{place}/{name}": HEADER + b"".join(lines) for name, lines in zip(FILES, rows, strict=True)}


def in_parentheses(words):
    """An example as the released files have it: a binary tree, operator and arguments joined from the left."""
    word = words.pop(0)
    if not word.startswith("["):
        return word
    while words[0] != "]":
        word = f"( {word} {in_parentheses(words)} )"
    return f"( {word} {words.pop(0)} )"


def test_the_bytes_of_a_file_become_tokens_lengths_and_labels(tmp_path, few):
    nested = b"( ( ( ( [SM ( ( ( [MED 3 ) 8 ) ] ) ) 0 ) 7 ) ] )\t2\r\n"
    files = release(([ROW, nested, *[ROW] * 4], [nested] * 3, [nested, ROW]), ".")
    files[f"./{FILES[2]}"] = files[f"./{FILES[2]}"].replace(b"\r\n", b"\n")
    place = formats.tree(tmp_path / "copy", files)
    data, table = formats.prepared(TASK, tmp_path / "out", place)
    row = [2, 7, 8, 5] + [0] * 1996
    other = [4, 3, 9, 14, 5, 6, 13, 5] + [0] * 1992
    assert data.train.inputs.tolist() == [row, other, row, row, row, row]
    assert data.validation.inputs.tolist() == [other] * 3
    assert data.test.inputs.tolist() == [other, row]
    assert data.train.lengths.tolist() == [4, 8, 4, 4, 4, 4]
    assert data.test.lengths.tolist() == [8, 4]
    assert data.test.labels.tolist() == [2, 2]
    assert [data.train.inputs.dtype, data.train.lengths.dtype, data.train.labels.dtype] == ["u1", "i2", "u1"]
    assert (table.vocabulary, table.source) == (list(TOKENS), f"the folder {place}")
    assert (table.kind, table.generator, table.notes) == ("folder", {}, [])
    assert TASK.example(data.spec, data.test, 0, table.vocabulary) == "[SM [MED 3 8 ] 0 7 ]"


def test_generated_data_written_as_the_release_are_read_as_the_same(tmp_path, few):
    generated, table = formats.prepared(TASK, tmp_path / "generated", None)
    assert (table.kind, table.generator) == ("generated", {"name": "lrurun ListOps", "version": "1", "seed": 0})
    assert table.source == "generated by lrurun ListOps 1, seed 0"
    other, _ = formats.prepared(TASK, tmp_path / "other", None, ListOpsOptions(seed=7))
    assert (other.source, other.sha256 == generated.sha256) == ("generated by lrurun ListOps 1, seed 7", False)
    rows = []
    for split in (getattr(generated, name) for name in SPLITS):
        triples = zip(split.inputs, split.lengths, split.labels, strict=True)
        rows.append([f"{in_parentheses(words_of(row, n))}\t{label}\r\n".encode() for row, n, label in triples])
    given = formats.tree(tmp_path / "copy", release(tuple(rows), "listops-1000"))
    read, table = formats.prepared(TASK, tmp_path / "read", given)
    assert read.sha256 == generated.sha256
    assert read.baselines == generated.baselines == table.baselines
    assert (read.kind, generated.kind) == ("folder", "generated")


def test_with_eos_lists_are_as_in_the_code_of_s4_and_s5(tmp_path, few):
    """Its vocabulary of 18 tokens and its width; the two forms hold the same lists."""
    place = formats.tree(tmp_path / "copy", release())
    data, table = formats.prepared(TASK, tmp_path / "out", place, ListOpsOptions(eos=True))
    assert table.vocabulary == ["<pad>", "<unk>", "<eos>", "[MIN", "[MAX", "[MED", "[SM", "]", *"0123456789"]
    assert data.train.inputs.tolist() == [[4, 9, 10, 7, 2] + [0] * 2043] * 6
    assert data.train.lengths.tolist() == [5] * 6
    assert (data.train.lengths.dtype, data.spec.features, data.spec.length) == (np.int16, 18, 2048)
    assert TASK.example(data.spec, data.test, 0, table.vocabulary) == "[MAX 1 2 ] <eos>"
    plain, _ = formats.prepared(TASK, tmp_path / "plain", place)
    assert data.baselines == plain.baselines
    small = {"min_length": 3, "max_length": 12, "train": 50, "validation": 5, "test": 5}
    lists, _ = formats.prepared(TASK, tmp_path / "lists", None, ListOpsOptions(**small))
    ended, _ = formats.prepared(TASK, tmp_path / "ended", None, ListOpsOptions(eos=True, **small))
    assert (ended.spec.length, ended.train.lengths.max()) == (12, lists.train.lengths.max() + 1)
    for row, other, length in zip(lists.train.inputs, ended.train.inputs, lists.train.lengths, strict=True):
        assert other.tolist() == [*(row[:length] + 2), 2, *[0] * (11 - length)]


def test_the_splits_are_distinct_and_a_smaller_train_split_is_part_of_a_larger(tmp_path):
    shape = {"min_length": 20, "max_length": 128, "max_depth": 5, "validation": 100, "test": 200}
    small, _ = formats.prepared(TASK, tmp_path / "small", None, ListOpsOptions(train=500, **shape))
    large, table = formats.prepared(TASK, tmp_path / "large", None, ListOpsOptions(train=1500, **shape))
    for name in ("validation", "test"):
        np.testing.assert_array_equal(getattr(small, name).inputs, getattr(large, name).inputs)
    np.testing.assert_array_equal(small.train.inputs, large.train.inputs[:500])
    rows = [row.tobytes() for name in SPLITS for row in getattr(large, name).inputs]
    assert len(rows) == len(set(rows)) == 1800
    assert large.train.inputs.shape == (1500, 128)
    assert (large.train.lengths.min(), large.train.lengths.max()) == (21, 127)
    assert asdict(table.counts) == {"train": 1500, "validation": 100, "test": 200}
    train, test = large.train, large.test
    expected = listops_generator.baselines(train.inputs[:, 0], train.labels, test.inputs[:, 0], test.labels)
    assert large.baselines == expected


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", ":1: expected the header 'Source<TAB>Target', found ''"),
        (b"Target\tSource\n" + ROW * 6, ":1: expected the header 'Source<TAB>Target', found 'Target\\tSource'"),
        (b"\xff\xfeS\0", ":1: expected the header 'Source<TAB>Target', found '\\\\xff\\\\xfeS\\x00'"),
        (HEADER + ROW * 2 + b"[MAX 1 2 ]\r\n" + ROW, ":4: expected 2 columns, found 1"),
        (HEADER + b"1\t2\t3\n", ":2: expected 2 columns, found 3"),
        (HEADER + b"[MAX 1 22 ]\t2\n", ":2: unknown token '22'"),
        (HEADER + b"[MAX 1 <pad> ]\t2\n", ":2: unknown token '<pad>'"),
        (HEADER + b"[MAX 1 " + b"x" * 40 + b" ]\t2\n", ":2: unknown token '" + "x" * 40 + "'"),
        (HEADER + b"[MAX 1 " + b"x" * 41 + b" ]\t2\n", ":2: unknown token '" + "x" * 37 + "...'"),
        (HEADER + ROW + b"[MAX 1 \xe9 ]\t2\n", ":3: not UTF-8: byte 0xe9 in column 8"),
        (HEADER + b"[MAX 1 2 ]\t10\n", ":2: expected a target of 0 to 9, found '10'"),
        (HEADER + b"[MAX 1 2 ]\t2.0\n", ":2: expected a target of 0 to 9, found '2.0'"),
        (HEADER + b"( )\t2\n", ":2: expected 1 to 2000 tokens, found 0"),
        (HEADER + ROW + b"( [SM " + b"( 1 ) " * 1999 + b"] )\t9\n", ":3: expected 1 to 2000 tokens, found 2001"),
        (HEADER + ROW * 2, ": expected 3 examples, found 2"),
        (HEADER, ": expected 3 examples, found 0"),
        (HEADER + ROW * 4, ": expected 3 examples, found more"),
    ],
)
def test_a_wrong_line_is_named_with_its_place(tmp_path, few, content, message):
    name = f"{INNER}/{FILES[1]}"
    files = release() | {name: content}
    given = formats.tree(tmp_path / "copy", files)
    assert formats.refused(TASK, ListOpsOptions(), tmp_path, given) == (f"./copy/{name}{message}", HINT)
    given = formats.tar(tmp_path / "lra_release.gz", files)
    assert formats.refused(TASK, ListOpsOptions(), tmp_path, given) == (f"./lra_release.gz: {name}{message}", HINT)


def test_fewer_examples_are_the_first_of_a_copy_which_has_published_data_only(tmp_path, few):
    rows = [b"[MIN %d 9 ]\t%d\n" % (digit, digit) for digit in range(6)]
    place = formats.tree(tmp_path / "copy", release((rows, rows[:3], rows[:2]), "."))
    data, _ = formats.prepared(TASK, tmp_path / "few", place, ListOpsOptions(train=4, test=1))
    assert [getattr(data, name).labels.tolist() for name in SPLITS] == [[0, 1, 2, 3], [0, 1, 2], [0]]
    message, _ = formats.refused(TASK, ListOpsOptions(train=7), tmp_path, place)
    assert message == "./copy/basic_train.tsv: expected 7 examples, found 6"
    assert formats.refused(TASK, ListOpsOptions(seed=3, max_depth=5), tmp_path, place) == (
        "./copy: a copy holds the published data, not those with seed = 3, max_depth = 5",
        "omit --from: these data are generated",
    )
