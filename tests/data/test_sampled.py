"""Tasks whose examples are sampled: DLR's atomic tasks, recall and state, TeacherStudent, against slow definitions."""

from __future__ import annotations

import hashlib
import math
from collections import Counter
from collections.abc import Callable
from functools import cache, partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import lrurun
from lrurun.config import planning
from lrurun.config.planning import data_of
from lrurun.config.recurrences.rnn import RNNSettings
from lrurun.config.settings import parse_sets
from lrurun.data import task_data, tasks
from lrurun.data.metric import R2, Nmse
from lrurun.data.on_device import training_key
from lrurun.data.sampled import atomic
from lrurun.data.sampled.teacher import TeacherOptions, teacher
from lrurun.errors import UsageError
from lrurun.judging.scored_runs import scoring_of
from lrurun.nn import recurrences
from lrurun.nn.network import Model
from tests.harness.plans import rungs

ATOMIC = [name for name, task in tasks.TASKS.items() if isinstance(task, atomic.Atomic)]

FEW = 24


@cache
def sampler(name: str, count: int, **settings: Any) -> Callable[[jax.Array], Any]:
    return jax.jit(lambda key: tasks.get(name).sample(key, count, tasks.get(name).options(**settings)))  # type: ignore


def drawn(name: str, step: int = 0, count: int = FEW, **settings: Any) -> tuple[np.ndarray, np.ndarray]:
    inputs, labels, lengths = sampler(name, count, **settings)(training_key(7, step))
    assert lengths is None
    return np.asarray(inputs), np.asarray(labels)


def many(name: str, steps: int) -> tuple[np.ndarray, np.ndarray]:
    """The examples of several steps, with length 63."""
    inputs, labels = zip(*(drawn(name, step, length=63) for step in range(steps)), strict=True)
    return np.concatenate(inputs), np.concatenate(labels)


def inner_products(x, n):
    q, k, v = (x[:, 4 * part : 4 * part + 4].astype(np.float64) for part in range(3))
    return [v[max(range(i + 1), key=lambda j: q[i] @ k[j])] for i in range(n)]


def context_shift(x, n):
    s = round(math.atan2(x[1, 0], x[0, 0]) / (2 * math.pi) * n) % n
    return [[x[i - s, 0] if i >= s else 0.0] for i in range(n)]


def solution(x, n):
    size = max(size for size in range(n) if n - size * size - size >= size)
    rows = x[: size * size + size, 0].astype(np.float64).reshape(size, size + 1)
    assert not x[size * size + size :, 0].any()
    np.testing.assert_allclose(rows[:, :size] @ rows[:, :size].T, np.eye(size), atol=1e-5)
    return [[value] for value in np.linalg.solve(rows[:, :size], rows[:, size])]


SLOW: dict[str, Callable[[np.ndarray, int], list[Any]]] = {
    "Shift": lambda x, n: [[x[i - j * n // 8, 0] if i >= j * n // 8 else 0.0 for j in range(8)] for i in range(n)],
    "CumSum": lambda x, n: [[sum(float(x[j, 0]) for j in range(i + 1)) * (i + 1) ** -0.5] for i in range(n)],
    "CumMax": lambda x, n: [[max(x[j, 0] for j in range(i + 1))] for i in range(n)],
    "Reverse": lambda x, n: [[x[n - 1 - i, 0]] for i in range(n)],
    "Sort": lambda x, n: [[value] for value in sorted(x[:n, 0], key=lambda value: abs(value - x[0, 0]))],
    "Select": lambda x, n: [[value] for value, marker in x[:, :2] if marker == 1.0],
    "SelectFixed": lambda x, n: [[value] for value, marker in x[:, :2] if marker == 1.0],
    "MIPS": inner_products,
    "ContextShift": context_shift,
    "Solve": solution,
    "SolveFixed": solution,
}
"""Task -> the labels of inputs x and length n, by the text of the paper."""
PADDED = {"Reverse": 63, "Sort": 63, "Select": 95, "SelectFixed": 95}
"""Task -> the numbers after which there are zeros, with length 63."""


@pytest.mark.parametrize(("name", "length"), [*((name, 63) for name in ATOMIC), ("Shift", 64)])
def test_labels_follow_from_the_inputs_by_the_text_of_the_paper(name, length):
    inputs, labels = drawn(name, length=length)
    spec = tasks.get(name).spec(tasks.get(name).options(length=length))
    assert inputs.shape == (FEW, spec.length, spec.features)
    assert inputs.dtype == labels.dtype == np.float32
    for x, y in zip(inputs, labels, strict=True):
        np.testing.assert_allclose(y, np.asarray(SLOW[name](x, length)), atol=2e-5)
    assert length != 63 or not inputs[:, PADDED.get(name, 10**6) :, :-2].any()
    steps = 2 * np.pi * np.arange(spec.length) / spec.length
    np.testing.assert_allclose(inputs[:, :, -2], np.cos(steps)[None].repeat(FEW, 0), atol=1e-6)
    np.testing.assert_allclose(inputs[:, :, -1], np.sin(steps)[None].repeat(FEW, 0), atol=1e-6)
    again, second = (drawn(name, step, length=length)[0] for step in (0, 1))
    np.testing.assert_array_equal(inputs, again)
    assert not np.array_equal(inputs, second)
    assert len(np.unique(labels, axis=0)) == FEW


def test_inputs_are_normal_and_divided_by_their_largest_absolute_value():
    x = many("Shift", 34)[0][..., 0]
    np.testing.assert_allclose(np.abs(x).max(axis=1), 1.0, rtol=1e-6)
    z = x / x.std(axis=1, keepdims=True)
    assert abs(z.mean()) < 0.02
    assert np.mean(np.abs(z) < 1) == pytest.approx(math.erf(0.5**0.5), abs=0.01)
    x = many("MIPS", 9)[0][..., :12].reshape(-1, 63, 3, 4)
    np.testing.assert_allclose((x**2).sum(-1), 1.0, rtol=1e-5)
    np.testing.assert_allclose((x**2).mean(axis=(0, 1)), 0.25, atol=0.01)
    np.testing.assert_allclose((drawn("Solve", length=63)[1] ** 2).sum(axis=(1, 2)), 1.0, rtol=1e-5)


def test_positions_of_select_are_uniform_and_those_of_select_fixed_are_always_the_same():
    marks = many("Select", 100)[0][:, :95, 1]
    assert set(marks.sum(axis=1)) == {32.0}
    np.testing.assert_allclose(marks.mean(axis=0), 32 / 95, atol=0.05)
    first, second = (drawn("SelectFixed", step, length=63)[0][..., 1] for step in (0, 1))
    np.testing.assert_array_equal(first, second)
    assert len(np.unique(first, axis=0)) == 1
    assert not np.array_equal(np.flatnonzero(first[0]), np.arange(32))


def test_shifts_of_context_shift_are_those_of_the_published_code():
    x = many("ContextShift", 100)[0]
    s = np.round(np.arctan2(x[:, 1, 0], x[:, 0, 0]) / (2 * np.pi) * 63).astype(int) % 63
    assert np.array_equal(np.unique(s), np.arange(61))  # 0 to L - 3
    np.testing.assert_allclose(np.bincount(s) / len(s), 1 / 61, atol=0.012)


def test_matrices_of_solve_differ_and_that_of_solve_fixed_is_one():
    def matrices(name: str, steps: int) -> np.ndarray:
        return many(name, steps)[0][:, :56, 0].reshape(-1, 7, 8)[..., :7]

    assert len(np.unique(matrices("SolveFixed", 2), axis=0)) == 1
    free = matrices("Solve", 17)
    angles = np.arctan2(free[:, 0, 1], free[:, 0, 0])
    assert abs(np.exp(1j * angles).mean()) < 0.15  # rotations are uniform
    assert np.mean(np.linalg.det(free) > 0) == pytest.approx(0.5, abs=0.1)  # and half of them reflect


def test_the_size_of_the_system_is_an_integer_root():
    assert [atomic.unknowns(length) for length in (4096, 512, 63, 1023)] == [63, 21, 7, 31]
    for length in range(4, 300):
        assert atomic.unknowns(length) == max(n for n in range(length) if length - n * n - n >= n)


@pytest.mark.slow
def test_data_commands_show_what_a_task_of_real_values_has(machine):
    """Labels at the last positions only."""
    task, options, name = data_of("Solve", "smoke")
    task_data.prepare(task, options, machine.folder / "d" / name)
    words = ("Solve", "--profile", "smoke", "--data-dir", "d")
    assert "up to 32 steps, 1 real value at positions" in machine.run("data", "info", *words).stdout
    assert "label" in machine.run("data", "check", *words).stdout
    found = machine.json("data", "check", *words)["splits"]["test"]
    assert (found["count"], found["classes"], found["labels"]) == (64, [], 4)
    assert abs(found["values"][0]) < 0.1 < found["values"][1] < 1


SMALL: dict[str, dict[str, Any]] = {
    "Copy": {"length": 12, "tokens": 3, "vocabulary": 6},
    "SelectiveCopy": {"length": 12, "tokens": 3, "vocabulary": 6},
    "MQAR": {"length": 24, "pairs": 4, "vocabulary": 16, "power": 0.3},
    "InductionHeads": {"length": 10, "vocabulary": 6, "longest": 40},
    "Parity": {"min_length": 3, "max_length": 9, "longest": 30},
}

COUNT = 1500


@cache
def recalled(name: str, **options: Any) -> Callable[[jax.Array], Any]:
    task = tasks.get(name)
    return jax.jit(partial(task.sample, count=COUNT, options=task.options(**SMALL[name] | options)))  # type: ignore


@cache
def sampled(name: str, seed: int = 0, step: int = 0, **options: Any) -> tuple[np.ndarray, np.ndarray, Any]:
    """Examples of one training step, and their lengths or None; with the small settings."""
    inputs, labels, lengths = recalled(name, **options)(training_key(seed, step))
    return np.asarray(inputs), np.asarray(labels), None if lengths is None else np.asarray(lengths)


@pytest.fixture(scope="module")
def prepared(tmp_path_factory):
    """The stored splits of a task with the small settings, 600 examples for validation and 500 for test."""

    @cache
    def made(name):
        task, folder = tasks.get(name), tmp_path_factory.mktemp(name) / name
        chosen = task.options(**SMALL[name] | {"validation": 600, "test": 500})
        task_data.prepare(task, chosen, folder)
        return task_data.load(task, chosen, folder)

    return made


def uniform(counts, outcomes):
    """Every outcome occurs, about equally often: chi-square within five standard deviations of its mean."""
    assert set(counts) == set(outcomes)
    expected = counts.total() / len(outcomes)
    chi2 = sum((count - expected) ** 2 / expected for count in counts.values())
    freedom = len(outcomes) - 1
    assert chi2 < freedom + 5 * (2 * freedom) ** 0.5, counts


@pytest.mark.parametrize("name", ["Copy", "SelectiveCopy"])
def test_the_markers_ask_for_the_tokens_in_their_order(name):
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
        assert len(triples) > 215
        assert max(triples.values()) < 25  # 7 in the mean


def test_queries_of_mqar_are_answered_by_the_pairs_and_nothing_else_is():
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
        keys.update(list(pairs))
        values.update(pairs.values())
    uniform(keys, range(1, 8))
    uniform(values, range(8, 16))


def test_keys_take_the_slots_of_mqar_as_in_the_published_code():
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


def test_the_filler_of_mqar_may_be_random_ids():
    inputs, labels, _ = sampled("MQAR", random_filler=True)
    plain, same, _ = sampled("MQAR")
    np.testing.assert_array_equal(labels, same)
    free = np.concatenate([np.zeros((COUNT, 8), bool), labels < 0], axis=1)
    np.testing.assert_array_equal(inputs[~free], plain[~free])
    uniform(Counter(inputs[free].tolist()), range(16))


def test_the_baseline_of_mqar_is_the_best_pair_of_each_slot(prepared):
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


def test_the_induction_head_is_the_symbol_after_the_special_token():
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


def test_the_label_of_parity_is_at_the_last_bit():
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


def test_longer_tests_of_induction_heads_are_longer_and_not_repetitions(prepared):
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


def test_the_longer_test_of_parity_begins_where_training_ends(prepared):
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


@pytest.mark.parametrize("name", SMALL)
def test_examples_are_a_pure_function_of_seed_and_step(name, prepared):
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


TEACHER = tasks.get("TeacherStudent")


def step_by_step(options: TeacherOptions, inputs: np.ndarray) -> np.ndarray:
    """Outputs for inputs (n, length, 1), with the weights of the teacher and float64."""
    a, b, c, d = teacher(options)
    h, found = np.zeros((len(inputs), len(b))), []
    for x in inputs.astype(np.float64).swapaxes(0, 1):
        h = h @ a.T + x * b
        found.append(h @ c[:, None] + d * x)
    return np.stack(found, axis=1)


@pytest.mark.parametrize(
    "options",
    [TeacherOptions(), TeacherOptions(nu=0.32, length=50, teacher=7), TeacherOptions(states=3, max_phase=0.3)],
    ids=["published", "short memory", "small phases"],
)
def test_labels_are_what_the_teacher_makes_of_the_inputs(options):
    inputs, labels, lengths = jax.jit(lambda key: TEACHER.sample(key, 5, options))(jax.random.key(3))
    assert lengths is None
    assert inputs.shape == labels.shape == (5, options.length, 1)
    wanted = step_by_step(options, np.asarray(inputs))
    np.testing.assert_allclose(labels, wanted, rtol=1e-5, atol=1e-5 * np.std(wanted))


def test_inputs_are_white_noise():
    inputs = np.asarray(TEACHER.sample(jax.random.key(0), 500, TeacherOptions(length=100))[0])[..., 0]
    assert np.mean(inputs) == pytest.approx(0, abs=5 / 50000**0.5)
    assert np.mean(inputs**2) == pytest.approx(1, abs=5 * (2 / 50000) ** 0.5)
    assert np.mean(inputs[:, 1:] * inputs[:, :-1]) == pytest.approx(0, abs=5 / 49500**0.5)


@pytest.mark.parametrize("nu", [0.0, 0.32, 0.84, 0.99])
def test_eigenvalues_of_the_teacher_are_those_of_a_random_matrix_moved_to_the_ring(nu):
    """Equation 133: phases stay, and |lambda| becomes nu + (1 - nu) tanh |lambda|."""
    options = TeacherOptions(nu=nu, teacher=5)
    moved = np.linalg.eigvals(teacher(options).a)
    before = np.linalg.eigvals(np.random.RandomState(5).standard_normal((10, 10)) / math.sqrt(10))
    wanted = (nu + (1 - nu) * np.tanh(np.abs(before))) * before / np.abs(before)
    np.testing.assert_allclose(np.sort_complex(moved), np.sort_complex(wanted), atol=1e-9)
    assert np.all((np.abs(moved) >= nu) & (np.abs(moved) < 1))


def test_the_teacher_depends_on_its_seed_alone_and_not_on_that_of_the_fixed_splits():
    kernels = [teacher(TeacherOptions(**one)).kernel(20) for one in ({}, {"seed": 3}, {"teacher": 1})]
    assert np.array_equal(kernels[0], kernels[1])
    assert not np.allclose(kernels[0], kernels[2])


def test_nmse_is_the_unexplained_share_of_the_variance_in_decibel():
    labels = [np.array([1.0, 2.0, 6.0]), np.array([-3.0])]
    predictions = [np.array([1.1, 2.0, 5.9]), np.array([-3.2])]
    pairs = list(zip(labels, predictions, strict=True))
    sums = {
        "loss": np.array([np.sum((y - p) ** 2) for y, p in pairs]),
        "count": np.array([3.0, 1.0]),
        "mean": np.array([y.mean() for y in labels]),
        "variation": np.array([np.sum((y - y.mean()) ** 2) for y in labels]),
    }
    flat, guess = np.concatenate(labels), np.concatenate(predictions)
    share = np.mean((flat - guess) ** 2) / np.var(flat)
    assert Nmse().value(sums) == pytest.approx(10 * math.log10(share))
    assert R2().value(sums) == pytest.approx(1 - share)
    constant = sums | {"loss": np.array([np.sum((y - flat.mean()) ** 2) for y in labels])}
    assert Nmse().value(constant) == pytest.approx(Nmse().chance, abs=1e-12)
    assert Nmse().value(sums | {"loss": np.zeros(2)}) == -200
    assert Nmse().oriented(-20.0) > Nmse().oriented(-10.0)


def test_students_have_the_published_numbers_of_parameters():
    """One input, one output and nothing around the recurrence."""
    counts = {}
    for name, rung in rungs(planning.make("TeacherStudent", ladder="cells")).items():
        model = Model(rung.config.model, TEACHER.spec(TeacherOptions()))
        counts[name] = model.count(jax.eval_shape(model.init, jax.random.key(0))[0])
    wanted = {"dense-rnn": 4225, "block-diagonal": 257, "more-neurons": 513, "complex-diagonal": 385}
    assert counts == wanted | {"gamma": 449, "lru": 449}


@pytest.mark.slow
def test_a_network_without_a_frame_is_its_recurrences():
    changes = {"model.depth": 2, "model.state": 6}
    config = rungs(planning.make("TeacherStudent", ladder="cells", sets=changes))["lru"].config.model
    model = Model(config, TEACHER.spec(TeacherOptions(length=9)))
    params, stats = model.init(jax.random.key(1))
    x = jax.random.normal(jax.random.key(2), (4, 9, 1))
    y, scan = x.swapaxes(0, 1), jax.jit(model.recurrence.scan)
    for block in ("0", "1"):
        y = scan(params["blocks"][block]["recurrence"], y)
    assert (set(params), stats) == ({"blocks"}, {})
    np.testing.assert_allclose(model.apply(params, stats, x, train=True)[0], y.swapaxes(0, 1), rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize(
    ("task", "change", "message"),
    [
        ("sDigits", "model.frame=none", "inputs of size 1 and outputs of size 10, width is 32"),
        ("TeacherStudent", "model.width=4", "inputs of size 1 and outputs of size 1, width is 4"),
        ("TeacherStudent", "model.dropout=0.1", 'found frame = "none", dropout = 0.1, final_norm = false'),
    ],
)
def test_what_does_not_fit_recurrences_alone_is_refused(task, change, message):
    with pytest.raises(UsageError) as error:
        planning.make(task, ladder="cells", sets=parse_sets([change]))
    assert message in error.value.message
    assert error.value.hint


def test_the_remapped_dense_matrix_keeps_phases_and_moves_eigenvalues_into_the_unit_circle():
    dense, plain = (
        recurrences.build(RNNSettings(draw=draw), width=1, state=24)  # type: ignore[arg-type]
        for draw in ("remapped", "normal")
    )
    params, others = (jax.jit(one.init)(jax.random.key(4)) for one in (dense, plain))
    before, after = plain.spectrum(others), dense.spectrum(params)
    wanted = np.tanh(np.abs(before)) * before / np.abs(before)
    np.testing.assert_allclose(np.sort_complex(after), np.sort_complex(wanted), atol=1e-3)
    assert params["A"].dtype == jnp.float32
    assert all(np.array_equal(params[name], others[name]) for name in ("B", "C", "D"))


@pytest.mark.slow
def test_a_student_trains_scores_in_decibel_and_is_loaded(machine):
    machine.run("ladder", "TeacherStudent", "--profile", "smoke", "--ladder", "cells", "--rung", "dense-rnn")
    (run,) = machine.json("runs")["runs"]
    scores = run["metrics"]
    share = 1 - scores["test/r2"]
    assert scores["test/nmse"] == pytest.approx(10 * math.log10(share), abs=1e-9)
    loaded = lrurun.load(run["id"], ledger=machine.ledger, runs_dir=machine.runs)
    assert loaded(np.zeros((2, 32, 1), np.float32)).tolist() == np.zeros((2, 32, 1)).tolist()
    x = np.asarray(jax.random.normal(jax.random.key(0), (64, 32, 1)))
    wanted = step_by_step(TeacherOptions(length=32), x)
    assert np.mean((loaded(x) - wanted) ** 2) < 0.9 * np.mean(wanted**2)
