"""ListOpsSubTrees: the value of every subtree at its bracket, one tree of each form, and what is stored of them."""

from __future__ import annotations

import numpy as np
import pytest

from lrurun.data import TASKS, store
from lrurun.data.generated.generators import listops
from lrurun.data.generated.generators.listops import TOKENS, Parameters
from lrurun.data.generated.listops_subtrees import ListOpsSubTreesOptions
from lrurun.decoding import convert
from lrurun.errors import UsageError
from tests.data.test_listops_generator import REDUCE, digest, joined

TASK = TASKS["ListOpsSubTrees"]
LONG = TASK.options().parameters()
SHORT = Parameters(min_length=20, max_length=128, max_depth=8, max_args=9, subtrees=True)


def valued(words: list[str]) -> list[int]:
    """-1 for each word, but the value of the subtree at a closing bracket, and its depth at most: on a stack."""
    found, stack = [], []
    for word in words:
        found.append(-1)
        if word == "]":
            values: list[int] = []
            while isinstance(stack[-1], int):
                values.insert(0, stack.pop())
            found[-1] = REDUCE[stack.pop()](values)
            stack.append(found[-1])
        else:
            stack.append(int(word) if word.isdigit() else word)
    assert len(stack) == 1
    return found


def test_the_example_of_the_paper():
    words = "[MAX 2 6 [MED [SM 3 1 6 ] 8 3 ] 4 5 ]".split()
    assert [value for value in valued(words) if value >= 0] == [0, 3, 6]


@pytest.mark.parametrize(("parameters", "count"), [(LONG, 60), (SHORT, 1000)], ids=["long", "short"])
def test_every_subtree_has_the_value_that_a_stack_finds(parameters, count):
    found = joined(listops.generate(count, 3, parameters))
    assert (found.inputs.dtype, found.labels.dtype) == (np.uint8, np.int8)
    for row, length, labels in zip(*found, strict=True):
        assert parameters.min_length < length < parameters.max_length
        assert valued([TOKENS[token] for token in row[:length]]) == labels[:length].tolist()
        assert not row[length:].any()
        assert (labels[length:] == -1).all()


@pytest.mark.slow
def test_every_subtree_of_a_thousand_published_expressions():
    found = joined(listops.generate(1000, 4, LONG))
    for row, length, labels in zip(*found, strict=True):
        assert valued([TOKENS[token] for token in row[:length]]) == labels[:length].tolist()


def test_published_parameters_give_the_published_statistics():
    """Of the published program: 0.38 % of trees are kept, with a median length of 7,488.

    Tolerances are four standard errors of some 370 trees.
    """
    assert LONG == Parameters(min_length=7000, max_length=8180, max_depth=15, max_args=9, subtrees=True)
    lengths = np.concatenate([listops.draw(1, number, LONG).lengths for number in range(5)])
    assert 0.0030 < len(lengths) / (5 * listops.TREES) < 0.0045
    assert np.median(lengths) == pytest.approx(7488, abs=130)


def test_the_labels_are_those_of_the_trees_without_them():
    """The same bits as ListOps has; the last bracket has the value of the whole tree."""
    with_labels, without = (listops.draw(2, 0, SHORT._replace(subtrees=subtrees), 3000) for subtrees in (True, False))
    np.testing.assert_array_equal(with_labels.inputs, without.inputs)
    last = with_labels.labels[np.arange(len(without.labels)), without.lengths.astype(int) - 1]
    np.testing.assert_array_equal(last, without.labels)


def test_the_bits_of_version_1_are_these_for_ever():
    assert listops.VERSION == "1"
    assert (
        digest(listops.draw(0, 0, SHORT, trees=2000))
        == "149a5f833e458220c17756f69b376986e7ee6b6ccc91997b3418f4110db7c879"
    )


def test_no_two_differ_in_digits_alone():
    parameters = Parameters(min_length=3, max_length=16, max_depth=4, max_args=4)

    def templates(subtrees: bool) -> list[bytes]:
        found = joined(listops.generate(300, 0, parameters._replace(subtrees=subtrees)))
        return [bytes(token for token in row if 0 < token < listops.ZERO) for row in found.inputs.tolist()]

    assert len(set(templates(True))) == 300
    assert len(set(templates(False))) < 300


def test_each_bracket_has_its_operator():
    words = "[MAX 2 [MIN 6 0 ] [MED [SM 3 1 ] 8 ] ]".split()
    row = np.array([[TOKENS.index(word) for word in words], [0] * len(words)], np.uint8)
    row[1, :5] = [listops.SM, 7, 8, listops.CLOSE, 0]
    first, second = listops.operators(row).tolist()
    assert [TOKENS[token] for token in first if token] == ["[MIN", "[SM", "[MED", "[MAX"]
    assert [index for index, token in enumerate(first) if token] == [i for i, word in enumerate(words) if word == "]"]
    assert [token for token in second if token] == [listops.SM]


def test_what_is_stored(tmp_path):
    options = convert(
        {"train": 300, "validation": 20, "test": 100, "min_length": 20, "max_length": 128, "max_depth": 8, "seed": 5},
        TASK.options,
        "data",
    )
    store.prepare(TASK, options, tmp_path / "x")
    data = store.load(TASK, options, tmp_path / "x")
    made = joined(listops.generate(420, 5, options.parameters()))
    stored = [
        np.concatenate([getattr(split, name) for split in (data.test, data.validation, data.train)])
        for name in ("inputs", "lengths", "labels")
    ]
    for mine, other in zip(stored, made, strict=True):
        np.testing.assert_array_equal(mine, other)
    labels = data.train.labels[data.train.labels >= 0]
    commonest = np.bincount(labels).argmax()
    there = data.test.labels[data.test.labels >= 0]
    assert data.baselines["majority class"] == np.mean(there == commonest)
    assert data.baselines["operator only"] == pytest.approx(operator_only(data), abs=1e-12)
    assert data.spec.output.at == "positions"


def operator_only(data) -> float:
    """The accuracy of the commonest value of each operator, from a stack."""
    counts: dict[str, dict[int, int]] = {}
    right = total = 0
    for split in (data.train, data.test):
        for row, length, labels in zip(split.inputs, split.lengths, split.labels, strict=True):
            stack = []
            for token, label in zip(row[:length].tolist(), labels.tolist(), strict=False):
                if token < listops.CLOSE:
                    stack.append(token)
                elif token == listops.CLOSE:
                    of = counts.setdefault(stack.pop(), dict.fromkeys(range(10), 0))
                    if split is data.train:
                        of[label] += 1
                    else:
                        right += label == max(of, key=of.__getitem__)
                        total += 1
    return right / total


def test_arrays_are_as_wide_as_the_paper_says():
    assert TASK.spec(TASK.options()).length == 8192
    assert TASK.spec(ListOpsSubTreesOptions(min_length=20, max_length=100)).length == 100
    assert TASK.sizes(TASK.options()) == {"train": 96_000, "validation": 2_000, "test": 2_000}
    with pytest.raises(UsageError, match="no length is between"):
        convert({"min_length": 8179}, TASK.options, "data")


def test_short_expressions_of_published_width(tmp_path):
    options = ListOpsSubTreesOptions(train=3, validation=2, test=2)
    store.prepare(TASK, options, tmp_path / "x")
    data = store.load(TASK, options, tmp_path / "x")
    assert data.train.inputs.shape == data.train.labels.shape == (3, 8192)
    assert (data.train.labels[:, 8179:] == -1).all()
    assert data.train.lengths.min() > 7000
