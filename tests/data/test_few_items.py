"""The warning of few test items before training: the spread of scores over other test sets."""

from __future__ import annotations

import re

import numpy as np
import pytest

from lrurun.data.few_items import ENOUGH, caution
from lrurun.data.metric import R2, Accuracy

DRAWS = 5_000


def shown(text: str) -> list[list[float]]:
    """For each score of a caution, the errors: one, or the smallest and the largest."""
    found = re.findall(r"near [\d.]+(?: %)? by (?:up to )?± ([\d.]+)(?: to ([\d.]+))?", text)
    return [[float(number) for number in pair if number] for pair in found]


@pytest.mark.parametrize("items", [30, 90, 400])
def test_the_error_is_the_spread_over_test_sets(items: int) -> None:
    random = np.random.RandomState(0)
    errors_of_metrics = (shown(caution(metric, items)) for metric in (Accuracy(), R2()))
    for score, [of_share], [of_r2] in zip((0.5, 0.9), *errors_of_metrics, strict=True):
        assert of_share == pytest.approx(100 * random.binomial(items, score, DRAWS).std() / items, rel=0.05)
        predictions = random.normal(scale=score**0.5, size=(DRAWS, items))
        errors = random.normal(scale=(1 - score) ** 0.5, size=(DRAWS, items))
        r2 = 1 - np.square(errors).sum(axis=1) / (predictions + errors).var(axis=1) / items
        assert of_r2 == pytest.approx(r2.std(), rel=0.15)


def test_groups_may_count_as_one_item_each() -> None:
    random, sizes = np.random.RandomState(0), [100, 40, 40, 10, 5, 5]
    [least, most], _ = shown(caution(Accuracy(), sum(sizes), sizes))
    right = np.repeat(random.rand(DRAWS, len(sizes)) < 0.5, sizes, axis=1)  # all alike
    assert most == pytest.approx(100 * right.mean(axis=1).std(), rel=0.05)
    assert least == shown(caution(Accuracy(), sum(sizes)))[0][0]
    assert caution(Accuracy(), 60, 6) == caution(Accuracy(), 60, [10] * 6)


def test_enough_items_need_no_caution_and_groups_of_them_do() -> None:
    assert caution(Accuracy(), ENOUGH) == ""
    assert caution(Accuracy(), ENOUGH - 1) == (
        "499 test items: the choice of items alone moves an accuracy near 50 % by ± 2.2 points, "
        "near 90 % by ± 1.3 points"
    )
    assert caution(R2(), 90, several=True) == (
        "90 test items: the choice of items alone moves an R² near 0.5 by up to ± 0.075, near 0.9 by up to ± 0.020, "
        "if the errors of predictions are normal"
    )
    assert caution(Accuracy(), 5000, 20) == (
        "5,000 test items in 20 groups: the choice of items alone moves an accuracy near 50 % by ± 0.7 to 11.2 points, "
        "near 90 % by ± 0.4 to 6.7 points (the larger where the items of a group are alike)"
    )
    assert caution(Accuracy(), 5000, 500) == ""
