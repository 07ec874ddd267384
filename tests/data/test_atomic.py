"""DLR's atomic tasks: labels recomputed from the inputs by slow loops written from the paper's text, and their laws."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import jax
import numpy as np
import pytest

from lrurun import data, decoding
from lrurun.data.metric import R2, BatchR2
from lrurun.data.on_device import training_key
from lrurun.data.sampled import atomic
from lrurun.errors import UsageError

TASKS = [name for name, task in data.TASKS.items() if isinstance(task, atomic.Atomic)]
COUNT = 24


def options_of(name: str, **settings: Any) -> Any:
    return decoding.convert(settings, data.get(name).options, "test")


def drawn(name: str, step: int = 0, count: int = COUNT, **settings: Any) -> tuple[np.ndarray, np.ndarray]:
    task, options = data.get(name), options_of(name, **settings)
    inputs, labels, lengths = jax.jit(lambda key: task.sample(key, count, options))(training_key(7, step))
    assert lengths is None
    return np.asarray(inputs), np.asarray(labels)


def shift(x: np.ndarray, length: int) -> list[Any]:
    return [[x[i - j * length // 8, 0] if i >= j * length // 8 else 0.0 for j in range(8)] for i in range(length)]


def cumulative_sum(x: np.ndarray, length: int) -> list[Any]:
    return [[sum(float(x[j, 0]) for j in range(i + 1)) * (i + 1) ** -0.5] for i in range(length)]


def cumulative_max(x: np.ndarray, length: int) -> list[Any]:
    return [[max(x[j, 0] for j in range(i + 1))] for i in range(length)]


def reverse(x: np.ndarray, length: int) -> list[Any]:
    assert not x[length:, 0].any()
    return [[x[length - 1 - i, 0]] for i in range(length)]


def by_distance(x: np.ndarray, length: int) -> list[Any]:
    assert not x[length:, 0].any()
    return [[value] for value in sorted(x[:length, 0], key=lambda value: abs(value - x[0, 0]))]


def select(x: np.ndarray, length: int) -> list[Any]:
    assert not x[length + 32 :, :2].any()
    assert set(x[:, 1]) == {0.0, 1.0}
    return [[value] for value, marker in x[:, :2] if marker == 1.0]


def inner_products(x: np.ndarray, length: int) -> list[Any]:
    q, k, v = (x[:, 4 * part : 4 * part + 4].astype(np.float64) for part in range(3))
    found = [max(range(i + 1), key=lambda j, i=i: q[i] @ k[j]) for i in range(length)]
    return [v[j] for j in found]


def context_shift(x: np.ndarray, length: int) -> list[Any]:
    s = round(math.atan2(x[1, 0], x[0, 0]) / (2 * math.pi) * length) % length
    return [[x[i - s, 0] if i >= s else 0.0] for i in range(length)]


def solution(x: np.ndarray, length: int) -> list[Any]:
    n = max(n for n in range(length) if length - n * n - n >= n)
    rows = x[: n * n + n, 0].astype(np.float64).reshape(n, n + 1)
    assert not x[n * n + n :, 0].any()
    np.testing.assert_allclose(rows[:, :n] @ rows[:, :n].T, np.eye(n), atol=1e-5)
    return [[value] for value in np.linalg.solve(rows[:, :n], rows[:, n])]


SLOW: dict[str, Callable[[np.ndarray, int], list[Any]]] = {
    "Shift": shift,
    "CumSum": cumulative_sum,
    "CumMax": cumulative_max,
    "Reverse": reverse,
    "Sort": by_distance,
    "Select": select,
    "SelectFixed": select,
    "MIPS": inner_products,
    "ContextShift": context_shift,
    "Solve": solution,
    "SolveFixed": solution,
}


@pytest.mark.parametrize("length", [63, 64])
@pytest.mark.parametrize("name", TASKS)
def test_labels_follow_from_the_inputs_by_the_text_of_the_paper(name, length):
    inputs, labels = drawn(name, length=length)
    spec = data.get(name).spec(options_of(name, length=length))
    assert inputs.shape == (COUNT, spec.length, spec.features)
    assert inputs.dtype == labels.dtype == np.float32
    for x, y in zip(inputs, labels, strict=True):
        np.testing.assert_allclose(y, np.asarray(SLOW[name](x, length)), atol=2e-5)
    steps = 2 * np.pi * np.arange(spec.length) / spec.length
    np.testing.assert_allclose(inputs[:, :, -2], np.cos(steps)[None].repeat(COUNT, 0), atol=1e-6)
    np.testing.assert_allclose(inputs[:, :, -1], np.sin(steps)[None].repeat(COUNT, 0), atol=1e-6)


@pytest.mark.parametrize("name", TASKS)
def test_every_step_has_new_examples_and_the_same_step_the_same_bits(name):
    (first, labels), (again, _), (second, _) = (drawn(name, step, length=64) for step in (0, 0, 1))
    np.testing.assert_array_equal(first, again)
    assert not np.array_equal(first, second)
    assert len(np.unique(labels, axis=0)) == COUNT


def test_inputs_are_normal_and_divided_by_their_largest_absolute_value():
    for name, numbers in {"Shift": 256, "Reverse": 256, "Select": 288}.items():
        x = drawn(name, count=200, length=256)[0][:, :numbers, 0]
        np.testing.assert_allclose(np.abs(x).max(axis=1), 1.0, rtol=1e-6)
        z = x / x.std(axis=1, keepdims=True)
        assert abs(z.mean()) < 0.02
        assert np.mean(np.abs(z) < 1) == pytest.approx(math.erf(0.5**0.5), abs=0.01)
    x = drawn("MIPS", count=200, length=64)[0][..., :12].reshape(200, 64, 3, 4)
    np.testing.assert_allclose((x**2).sum(-1), 1.0, rtol=1e-5)
    np.testing.assert_allclose((x**2).mean(axis=(0, 1)), 0.25, atol=0.01)
    np.testing.assert_allclose((drawn("Solve", length=64)[1] ** 2).sum(axis=(1, 2)), 1.0, rtol=1e-5)


def test_positions_of_select_are_uniform_and_those_of_select_fixed_are_always_the_same():
    marks = drawn("Select", count=2000, length=24, selected=8)[0][:, :32, 1]
    assert set(marks.sum(axis=1)) == {8.0}
    np.testing.assert_allclose(marks.mean(axis=0), 0.25, atol=0.05)
    first, second = (drawn("SelectFixed", step, length=24, selected=8)[0][..., 1] for step in (0, 1))
    np.testing.assert_array_equal(first, second)
    assert len(np.unique(first, axis=0)) == 1
    assert not np.array_equal(np.flatnonzero(first[0]), np.arange(8))


def test_shifts_of_context_shift_are_those_of_the_published_code():
    x = drawn("ContextShift", count=2000, length=10)[0]
    s = np.round(np.arctan2(x[:, 1, 0], x[:, 0, 0]) / (2 * np.pi) * 10).astype(int) % 10
    assert np.array_equal(np.unique(s), np.arange(8))  # 0 to L - 3
    np.testing.assert_allclose(np.bincount(s) / 2000, 1 / 8, atol=0.04)


def test_matrices_of_solve_differ_and_that_of_solve_fixed_is_one():
    def matrices(name: str, step: int) -> np.ndarray:
        return drawn(name, step, count=400, length=8)[0][:, :6, 0].reshape(400, 2, 3)[..., :2]

    fixed = np.concatenate([matrices("SolveFixed", step) for step in (0, 1)])
    assert len(np.unique(fixed, axis=0)) == 1
    free = matrices("Solve", 0)
    angles = np.arctan2(free[:, 0, 1], free[:, 0, 0])
    assert abs(np.exp(1j * angles).mean()) < 0.15  # rotations are uniform
    assert np.mean(np.linalg.det(free) > 0) == pytest.approx(0.5, abs=0.1)  # and half of them reflect


def test_the_size_of_the_system_is_an_integer_root():
    assert [atomic.unknowns(length) for length in (4096, 512, 63, 1023)] == [63, 21, 7, 31]
    for length in range(4, 1100):
        assert atomic.unknowns(length) == max(n for n in range(length) if length - n * n - n >= n)


@pytest.mark.parametrize(
    ("name", "settings", "message"),
    [
        ("Shift", {"length": 3}, "length: expected a whole number >= 4, found 3"),
        ("Shift", {"length": 4, "shifts": 5}, "shifts must not be larger than length, found 5 and 4"),
        ("Select", {"selected": 0}, "selected: expected a whole number >= 1, found 0"),
        ("MIPS", {"size": 1}, "size: expected a whole number >= 2, found 1"),
        ("CumSum", {"shifts": 2}, "shifts: unknown name"),
    ],
)
def test_settings_that_do_not_fit_are_refused(name, settings, message):
    with pytest.raises(UsageError) as caught:
        options_of(name, **settings)
    assert message in caught.value.message


def test_the_pooled_score_selects_the_model_and_that_of_the_paper_is_beside_it():
    assert len(TASKS) == 11
    for name in TASKS:
        task = data.get(name)
        assert (task.metric, task.metrics) == (R2(), (R2(), BatchR2()))
        assert task.spec(task.options()).classes == task.classes


@pytest.mark.slow
def test_data_commands_show_what_a_task_of_real_values_has(machine):
    """Labels at all positions, and at the last ones only."""
    sampled = "train 64, validation 64, test 64; sampled by lrurun, threefry2x32, seed 0"
    for name, labels, outputs in (("Shift", 32, "8 real values"), ("Solve", 4, "1 real value")):
        info = machine.run("data", "info", name, "--profile", "smoke").stdout
        assert data.get(name).title in info
        assert f"up to 32 steps, {outputs} at positions" in info
        assert machine.run("data", "prepare", name, "--profile", "smoke").stdout.strip().endswith(sampled)
        assert "label" in machine.run("data", "check", name, "--profile", "smoke").stdout
        found = machine.json("data", "check", name, "--profile", "smoke")["splits"]["test"]
        assert (found["count"], found["classes"], found["labels"]) == (64, [], labels)
        assert abs(found["values"][0]) < 0.1 < found["values"][1] < 1
