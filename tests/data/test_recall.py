"""The tasks of recall and state against their definitions, re-evaluated row by row in plain Python."""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Callable
from functools import cache, partial
from typing import Any

import jax
import numpy as np
import pytest

from lrurun import data as tasks
from lrurun.data import store
from lrurun.data.on_device import training_key
from lrurun.data.task import Data
from lrurun.decoding import convert
from lrurun.errors import UsageError
from lrurun.report.judging.scored_runs import scoring_of

SMALL: dict[str, dict[str, Any]] = {
    "Copy": {"length": 12, "tokens": 3, "vocabulary": 6},
    "SelectiveCopy": {"length": 12, "tokens": 3, "vocabulary": 6},
    "MQAR": {"length": 24, "pairs": 4, "vocabulary": 16, "power": 0.3},
    "InductionHeads": {"length": 10, "vocabulary": 6, "longest": 40},
    "Parity": {"min_length": 3, "max_length": 9, "longest": 30},
}
COUNT = 4000


@cache
def sampled(name: str, seed: int = 0, step: int = 0, **options: Any) -> tuple[np.ndarray, np.ndarray, Any]:
    """Examples of one training step, and their lengths or None; with the small settings."""
    task = tasks.get(name)
    chosen = convert(SMALL[name] | options, task.options, "options")
    sample = jax.jit(partial(task.sample, count=COUNT, options=chosen))  # type: ignore[attr-defined]
    inputs, labels, lengths = sample(training_key(seed, step))
    return np.asarray(inputs), np.asarray(labels), None if lengths is None else np.asarray(lengths)


@pytest.fixture(scope="module")
def prepared(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Data]:
    """The stored splits of a task with the small settings, 600 examples for validation and 500 for test."""

    @cache
    def made(name: str) -> Data:
        task, folder = tasks.get(name), tmp_path_factory.mktemp(name) / name
        chosen = convert(SMALL[name] | {"validation": 600, "test": 500}, task.options, "options")
        store.prepare(task, chosen, folder)
        return store.load(task, chosen, folder)

    return made


def uniform(counts: Counter[Any], outcomes: range) -> None:
    """Every outcome occurs, about equally often: chi-square within five standard deviations of its mean."""
    assert set(counts) == set(outcomes)
    expected = counts.total() / len(outcomes)
    chi2 = sum((count - expected) ** 2 / expected for count in counts.values())
    freedom = len(outcomes) - 1
    assert chi2 < freedom + 5 * (2 * freedom) ** 0.5, counts


@pytest.mark.parametrize("name", ["Copy", "SelectiveCopy"])
def test_the_markers_ask_for_the_tokens_in_their_order(name: str) -> None:
    inputs, labels, lengths = sampled(name)
    assert (inputs.shape, labels.shape, lengths) == ((COUNT, 15), (COUNT, 3), None)
    tokens, places = Counter[int](), [Counter[int]() for _ in range(3)]
    for row, label in zip(inputs.tolist(), labels.tolist(), strict=True):
        before, markers = row[:12], row[12:]
        assert markers == [5, 5, 5]
        assert [token for token in before if token != 0] == label
        tokens.update(label)
        found = [place for place, token in enumerate(before) if token != 0]
        for counter, place in zip(places, found, strict=True):
            counter[place] += 1
    uniform(tokens, range(1, 5))
    if name == "Copy":
        assert places == [{0: COUNT}, {1: COUNT}, {2: COUNT}]
    else:  # any place, and each triple of them equally often
        uniform(sum(places, Counter[int]()), range(12))
        triples = Counter(tuple(np.flatnonzero(row[:12]).tolist()) for row in inputs)
        assert len(triples) == 220
        assert max(triples.values()) < 50  # 18 in the mean


def test_queries_of_mqar_are_answered_by_the_pairs_and_nothing_else_is() -> None:
    inputs, labels, lengths = sampled("MQAR")
    assert (inputs.shape, labels.shape, lengths) == ((COUNT, 24), (COUNT, 16), None)
    keys, values = Counter[int](), Counter[int]()
    for row, label in zip(inputs.tolist(), labels.tolist(), strict=True):
        pairs = dict(zip(row[0:8:2], row[1:8:2], strict=True))
        assert (len(pairs), len(set(pairs.values()))) == (4, 4)
        queries = []
        for place, (token, wanted) in enumerate(zip(row[8:], label, strict=True)):
            assert (token, place % 2) == (0, place % 2) if wanted < 0 else (pairs[token], 0) == (wanted, place % 2)
            queries += [token] * (wanted >= 0)
        assert sorted(queries) == sorted(pairs)
        keys.update(pairs)
        values.update(pairs.values())
    uniform(keys, range(1, 8))
    uniform(values, range(8, 16))


def test_keys_take_the_slots_of_mqar_as_in_the_published_code() -> None:
    """One after another, without replacement, with the probabilities of a power law; the order of keys has no rule."""
    inputs, labels, _ = sampled("MQAR")
    mine, order = np.zeros((4, 8)), Counter[tuple[int, ...]]()
    for row, label in zip(inputs.tolist(), labels.tolist(), strict=True):
        for place in np.flatnonzero(np.array(label) >= 0).tolist():
            mine[row[0:8:2].index(row[8 + place]), place // 2] += 1
        order[tuple(np.argsort(row[0:8:2]).tolist())] += 1
    random, theirs = np.random.RandomState(0), np.zeros((4, 8))
    weights = np.arange(1, 9) ** (0.3 - 1)
    for _ in range(COUNT):
        theirs[np.arange(4), random.choice(8, size=4, replace=False, p=weights / weights.sum())] += 1
    chi2 = ((mine - theirs) ** 2 / (mine + theirs)).sum()
    assert chi2 < 28 + 5 * (2 * 28) ** 0.5
    assert mine[0, 0] > 1.3 * mine[3, 0]
    uniform(Counter(dict(enumerate(order.values()))), range(24))


def test_the_filler_of_mqar_may_be_random_ids() -> None:
    inputs, labels, _ = sampled("MQAR", random_filler=True)
    plain, same, _ = sampled("MQAR")
    np.testing.assert_array_equal(labels, same)
    free = np.concatenate([np.zeros((COUNT, 8), bool), labels < 0], axis=1)
    np.testing.assert_array_equal(inputs[~free], plain[~free])
    uniform(Counter(inputs[free].tolist()), range(16))


def test_the_baseline_of_mqar_is_the_best_pair_of_each_slot(prepared: Callable[[str], Data]) -> None:
    made = prepared("MQAR")
    asked: list[Counter[int]] = [Counter() for _ in range(16)]
    guesses, right = 0, 0
    for split, scored in ((made.validation, False), (made.test, True)):
        for row, label in zip(split.inputs.tolist(), split.labels.tolist(), strict=True):
            for place, wanted in enumerate(label):
                if wanted >= 0 and not scored:
                    asked[place][row[1:8:2].index(wanted)] += 1
                elif wanted >= 0:
                    guesses += 1
                    right += row[1:8:2][max(range(4), key=asked[place].__getitem__)] == wanted
    assert made.baselines == {"without the queries": right / guesses}
    assert 0.25 < right / guesses < 0.4
    # reports take it as chance: a model that knows the values, but no queries, has learned next to nothing
    metric = tasks.get("MQAR").metric
    assert scoring_of(metric, {"baselines": made.baselines}, 500).chance == right / guesses
    assert made.spec.output.labelled == 4


def test_the_induction_head_is_the_symbol_after_the_special_token() -> None:
    inputs, labels, lengths = sampled("InductionHeads")
    assert (inputs.shape, labels.shape, lengths) == ((COUNT, 10), (COUNT, 1), None)
    places, symbols = Counter[int](), Counter[int]()
    for row, [label] in zip(inputs.tolist(), labels.tolist(), strict=True):
        first = row.index(5)
        assert (row.count(5), row[-1], row[first + 1]) == (2, 5, label)
        places[first] += 1
        symbols.update(row)
    uniform(places, range(8))
    assert symbols.pop(5) == 2 * COUNT
    uniform(symbols, range(5))
    uniform(Counter(labels[:, 0].tolist()), range(5))


def test_the_label_of_parity_is_at_the_last_bit() -> None:
    inputs, labels, lengths = sampled("Parity")
    assert (inputs.shape, labels.shape) == ((COUNT, 9), (COUNT, 7))
    for row, label, length in zip(inputs.tolist(), labels.tolist(), lengths.tolist(), strict=True):
        bits = [token - 1 for token in row[:length]]
        assert set(bits) <= {0, 1}
        assert row[length:] == [0] * (9 - length)
        assert label == [-1] * (length - 3) + [sum(bits) % 2] + [-1] * (9 - length)
    uniform(Counter(lengths.tolist()), range(3, 10))
    uniform(Counter(labels[labels >= 0].tolist()), range(2))
    uniform(Counter(inputs[inputs > 0].tolist()), range(1, 3))


@pytest.mark.slow
def test_longer_tests_of_induction_heads_are_longer_and_not_repetitions(prepared: Callable[[str], Data]) -> None:
    made = prepared("InductionHeads")
    assert {name: split.inputs.shape for name, split in made.further_tests.items()} == {
        "20": (500, 20),
        "40": (500, 40),
    }
    for name, split in made.further_tests.items():
        rows, half = split.inputs.tolist(), int(name) // 2
        places = [row.index(5) for row in rows]
        assert all(row[place + 1] == label for row, place, [label] in zip(rows, places, split.labels, strict=True))
        assert max(places) == int(name) - 3
        assert not any(row[: half - 1] == row[half:-1] for row in rows)
        assert not {tuple(row[:10]) for row in rows} & {tuple(row) for row in made.test.inputs.tolist()}


def test_the_longer_test_of_parity_begins_where_training_ends(prepared: Callable[[str], Data]) -> None:
    [(name, split)] = prepared("Parity").further_tests.items()
    assert (name, split.inputs.shape, split.labels.shape) == ("30", (500, 30), (500, 22))
    assert split.lengths is not None
    uniform(Counter(split.lengths.tolist()), range(9, 31))
    sums = [(row[:length] == 2).sum() % 2 for row, length in zip(split.inputs, split.lengths, strict=True)]
    assert [label[label >= 0].tolist() for label in split.labels] == [[parity] for parity in sums]
    uniform(Counter(sums), range(2))
    assert np.mean([np.array_equal(row[:9], row[9:18]) for row in split.inputs]) < 0.02


# Of the stored splits with the small settings: another number is another version of the task.
DIGESTS = {
    "Copy": "e1d927c63919747d",
    "SelectiveCopy": "d4aff033b9e774eb",
    "MQAR": "388ca46a4c46a249",
    "InductionHeads": "921632f9b70ba0bb",
    "Parity": "47062d0b48d51f31",
}


@pytest.mark.slow
@pytest.mark.parametrize("name", SMALL)
def test_examples_are_a_pure_function_of_seed_and_step(name: str, prepared: Callable[[str], Data]) -> None:
    first, again = sampled(name), sampled.__wrapped__(name)
    jax.tree.map(np.testing.assert_array_equal, first, again)
    for other in (sampled(name, 1, 0), sampled(name, 0, 1)):
        assert np.mean(np.all(first[0] == other[0], axis=1)) < 0.1
    made = prepared(name)
    splits = (made.train, made.validation, made.test, *made.further_tests.values())
    assert [len(split.labels) for split in splits[:3]] == [64, 600, 500]
    text = b"".join(np.asarray(part, np.int32).tobytes() for split in splits for part in (split.inputs, split.labels))
    assert hashlib.sha256(text).hexdigest()[:16] == DIGESTS[name]
    assert not np.array_equal(made.validation.inputs[:64], made.test.inputs[:64])


@pytest.mark.parametrize(
    ("name", "options", "message"),
    [
        ("Copy", {"tokens": 13}, "tokens must be at most length = 12, found 13"),
        ("MQAR", {"length": 14}, "length must be even and at least 4 pairs = 16, found 14"),
        ("MQAR", {"length": 25}, "length must be even and at least 4 pairs = 16, found 25"),
        ("MQAR", {"vocabulary": 8}, "vocabulary must be even and above 2 pairs = 8, found 8"),
        ("Parity", {"max_length": 30}, "min_length, max_length and longest must ascend, found 3, 30, 30"),
    ],
)
def test_settings_that_do_not_fit_each_other_are_refused(name: str, options: dict[str, int], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        convert(SMALL[name] | options, tasks.get(name).options, "options")
