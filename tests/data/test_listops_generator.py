"""Generated ListOps: every value right, the published distribution, the same bits everywhere."""

from __future__ import annotations

import hashlib
import itertools
import random
import statistics

import numpy as np
import pytest

from lrurun.data.generated.generators import listops
from lrurun.data.generated.generators.listops import TOKENS, Examples, Parameters
from lrurun.errors import LrurunError

SMALL = Parameters(min_length=5, max_length=60, max_depth=4, max_args=5)


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
    """What four rounds with the published parameters keep, about 6,500 examples."""
    return joined(listops.draw(0, number) for number in range(4))


def test_the_vocabulary_is_fixed():
    assert " ".join(TOKENS) == "<pad> [MIN [MAX [MED [SM ] 0 1 2 3 4 5 6 7 8 9"


@pytest.mark.slow
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


def test_published_parameters_give_the_published_statistics(published):
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


def one(source: random.Random, parameters: Parameters, depth: int = 1) -> list[str]:
    """One tree, grown node by node."""
    if depth == parameters.max_depth or source.random() > 0.25:
        return [str(source.randrange(10))]
    children = [one(source, parameters, depth + 1) for _ in range(source.randint(2, parameters.max_args))]
    return [source.choice(list(REDUCE)), *itertools.chain(*children), "]"]


@pytest.mark.parametrize("parameters", [SMALL, Parameters(min_length=20, max_length=128, max_depth=10, max_args=3)])
def test_rounds_have_the_distribution_of_single_trees(parameters):
    source = random.Random(0)
    trees = 60_000
    singles = [
        words
        for _ in range(trees)
        if parameters.min_length < len(words := one(source, parameters)) < parameters.max_length
    ]
    drawn = listops.draw(0, 0, parameters, trees)
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
        digest(listops.draw(3, 7, Parameters(), trees=200))
        == "216ba6111a352d79e414f55829287e128d6386ba650a26b37db4998ad4bcf248"
    )


def test_seeds_and_rounds_are_streams_of_their_own():
    rounds = [listops.draw(seed, number, SMALL, 2000) for seed in (0, 1) for number in (0, 1)]
    assert len({digest(examples) for examples in rounds}) == 4


@pytest.mark.parametrize("workers", [1, 2])
def test_the_first_distinct_examples_come_in_order(workers):
    # with these, many trees are sampled again and again
    parameters = Parameters(min_length=1, max_length=8, max_depth=3, max_args=3)
    first: dict[bytes, int] = {}
    for number in range(20):
        examples = listops.draw(5, number, parameters)
        for row, label in zip(examples.inputs, examples.labels, strict=True):
            first.setdefault(row.tobytes(), int(label))
    assert len(first) > 9000
    made = joined(listops.generate(9000, 5, parameters, workers=workers))
    assert [row.tobytes() for row in made.inputs] == list(first)[:9000]
    assert made.labels.tolist() == list(first.values())[:9000]
    assert made.lengths.tolist() == [len(row.rstrip(b"\0")) for row in list(first)[:9000]]


def test_fewer_are_the_first_of_more():
    more = joined(listops.generate(3000, 0, SMALL))
    same(joined(listops.generate(50, 0, SMALL)), Examples(*(array[:50] for array in more)))


@pytest.mark.parametrize(
    ("parameters", "count", "message"),
    [
        # ten digits below one operator are 12 tokens at most
        (
            Parameters(min_length=12, max_length=20, max_depth=2),
            10,
            "ListOps: 0 new examples in 400,000 trees with more than 12 and less than 20 tokens, depth 2 and 10 "
            "arguments; 0 of 10 found",
        ),
        # 4 operators on 2 or 3 digits: no more than 4,400 trees
        (
            Parameters(min_length=1, max_length=8, max_depth=2, max_args=3),
            4401,
            "ListOps: 0 new examples in 400,000 trees with more than 1 and less than 8 tokens, depth 2 and 3 "
            "arguments; 4,400 of 4,401 found",
        ),
    ],
)
def test_parameters_that_keep_almost_nothing_end_in_an_error(parameters, count, message):
    with pytest.raises(LrurunError) as caught:
        list(listops.generate(count, 0, parameters))
    assert caught.value.message == message
    assert caught.value.hint == "choose other lengths, another depth or number of arguments, or fewer examples"


def test_huge_trees_do_not_fill_the_memory():
    # an operator's hundred children have 25 operators on average, and so on
    examples = listops.draw(0, 0, Parameters(min_length=20, max_length=200, max_depth=100, max_args=100), trees=5000)
    for row, length, label in zip(*examples, strict=True):
        words = np.array(TOKENS)[row[:length]].tolist()
        assert evaluated(words)[0] == label


def test_the_baselines_guess_what_is_commonest_in_train():
    roots, labels = np.array([(1, 0), (1, 0), (1, 9), (2, 9), (2, 9), (2, 9), (2, 1)]).T
    test_roots, test_labels = np.array([(1, 0), (1, 9), (1, 1), (2, 9), (2, 1)]).T
    found = listops.baselines(roots, labels, test_roots, test_labels)
    assert found == {"majority class": 2 / 5, "root operator only": 2 / 5}
    found = listops.baselines(roots, labels, roots, labels)
    assert found == {"majority class": 4 / 7, "root operator only": 5 / 7}


def test_the_baselines_of_published_parameters(published):
    found = listops.baselines(*[published.roots, published.labels] * 2)
    assert found["majority class"] == pytest.approx(0.170, abs=0.018)
    assert found["root operator only"] == pytest.approx(0.362, abs=0.024)
