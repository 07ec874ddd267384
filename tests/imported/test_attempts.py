"""Curves whose steps go back."""

from __future__ import annotations

import math

import pytest

from lrurun.imported.attempts import ordered
from tests.harness.tracked_runs import curve


def found(steps: list[int]) -> tuple[list[tuple[int, int]], str]:
    """The steps that count, each with the number of its point, and why they went back."""
    of_steps = ordered(curve([(step, float(k)) for k, step in enumerate(steps)]))
    points = zip(of_steps.curve.steps.tolist(), map(int, of_steps.curve.values.tolist()), strict=True)
    return [*points], of_steps.went_back


def test_increasing_steps_are_left_as_they_are() -> None:
    increasing = curve({0: 1.0, 4: 2.0})
    assert ordered(increasing).curve is increasing
    assert ordered(curve({})).curve.steps.tolist() == []
    assert found([3, 3, 4]) == ([(3, 1), (4, 2)], "")


def test_points_before_step_zero_are_left_out() -> None:
    assert found([-3, 4]) == ([(4, 1)], "")
    assert found([5, -(2**31)]) == ([(5, 0)], "")


@pytest.mark.parametrize(
    ("steps", "expected"),
    [
        ([0, 1, 2, 3, 4, 5, 2, 3], [(0, 0), (1, 1), (2, 6), (3, 7)]),
        # to a step between those recorded
        ([10, 20, 30, 25, 35], [(10, 0), (20, 1), (25, 3), (35, 4)]),
        # again and again to checkpoints, and further each time
        ([0, 1, 2, 3, 2, 3, 4, 5, 4, 5, 6, 7], [(0, 0), (1, 1), (2, 4), (3, 5), (4, 8), (5, 9), (6, 10), (7, 11)]),
        # to an earlier checkpoint than before
        ([0, 1, 2, 3, 4, 3, 4, 1, 2], [(0, 0), (1, 7), (2, 8)]),
        # the counter begins where the attempt does: 50 lies between 43 and 53
        ([0, 10, 20, 30, 40, 50, 33, 43, 53], [(0, 0), (10, 1), (20, 2), (30, 3), (33, 6), (43, 7), (53, 8)]),
        # from the beginning
        ([0, 1, 2, 0], [(0, 3)]),
    ],
)
def test_what_an_abandoned_attempt_recorded_is_void(steps: list[int], expected: list[tuple[int, int]]) -> None:
    assert found(steps) == (expected, "attempts")


@pytest.mark.parametrize(
    ("steps", "expected"),
    [
        # a step apart, and both go on
        ([1, 0, 2, 1, 3, 2], [(0, 1), (1, 3), (2, 5), (3, 4)]),
        ([5, 3, 6, 4], [(3, 1), (4, 3), (5, 0), (6, 2)]),
        # one is far ahead
        (
            [0, 10, 20, 30, 40, 5, 50, 60, 70, 80],
            [(0, 0), (5, 5), *((10 * k, k if k < 5 else k + 1) for k in range(1, 9))],
        ),
        # in no order at all
        ([5, 4, 3, 2], [(2, 3), (3, 2), (4, 1), (5, 0)]),
    ],
)
def test_the_points_of_two_writers_stay(steps: list[int], expected: list[tuple[int, int]]) -> None:
    assert found(steps) == (sorted(expected), "writers")


def test_nan_is_a_value() -> None:
    of_steps = ordered(curve([(1, 0.1), (3, 0.3), (3, math.nan)]))
    assert of_steps.curve.values.tolist() == pytest.approx([0.1, math.nan], nan_ok=True)
