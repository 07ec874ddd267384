"""How differences, intervals and p are worded, and which values of a judged claim a document shows."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any, ClassVar

import pytest
from msgspec import Struct, structs

from lrurun.judging import wording
from lrurun.judging.scores import ACCURACY
from lrurun.judging.verdicts import Comparison, Side
from lrurun.report.formats.as_json import render

SIDES = (Side(rung="b", n=3, mean=0.91), Side(rung="a", n=3, mean=0.89))
COMPARISON = Comparison(kind="better", rung="b", other="a", verdict="supported", sides=SIDES, difference=0.0213)
WITH_INTERVAL = structs.replace(COMPARISON, low=0.0132, high=0.0294)


def test_a_difference_has_its_interval_where_both_ends_are_known() -> None:
    assert wording.difference_with_interval(WITH_INTERVAL, ACCURACY) == "+2.13 [+1.32, +2.94]"
    assert wording.difference_with_interval(WITH_INTERVAL, ACCURACY, short=True) == "+2.1 [+1.3, +2.9]"
    assert wording.difference_with_interval(WITH_INTERVAL, ACCURACY, with_unit=True) == "+2.13 points [+1.32, +2.94]"
    assert wording.between(WITH_INTERVAL, ACCURACY) == "between +1.32 and +2.94 points"
    assert wording.difference_with_interval(structs.replace(WITH_INTERVAL, low=None), ACCURACY) == "+2.13"
    assert wording.interval(COMPARISON, ACCURACY) == wording.between(COMPARISON, ACCURACY) == ""
    assert wording.difference_with_interval(structs.replace(WITH_INTERVAL, difference=None), ACCURACY) == ""
    assert wording.size_of_difference(structs.replace(COMPARISON, difference=-0.0213), ACCURACY) == "2.13 points"


@pytest.mark.parametrize(("p", "number"), [(0.0009, "< 0.001"), (0.001, "0.001"), (0.01249, "0.012"), (1.0, "1.000")])
def test_a_p_has_three_decimals_in_columns_and_in_sentences(p: float, number: str) -> None:
    assert wording.p_number(p) == number
    assert wording.p_value(p) == ("p < 0.001" if number == "< 0.001" else f"p = {number}")


@pytest.mark.parametrize(
    ("p", "number"),
    [(0.04973, "0.0497"), (0.0503, "0.0503"), (0.049999, "0.049999"), (0.05, "0.050"), (0.0494, "0.049")],
)
def test_a_p_near_the_level_has_the_digits_that_show_on_which_side_it_is(p: float, number: str) -> None:
    assert wording.p_number(p) == number
    assert wording.p_value(p) == f"p = {number}"


def test_a_p_of_a_study_near_the_level_has_them_too() -> None:
    assert wording.beside_level(0.0497, "{:.2g}", "{:.3g}") == "0.0497"
    assert wording.beside_level(0.0123, "{:.2g}", "{:.3g}") == "0.012"


def test_scores_without_a_known_error_have_none() -> None:
    assert wording.with_error(0.9267, 0.0019, ACCURACY) == "92.67 ± 0.19"
    assert wording.with_error(0.9267, None, ACCURACY, short=True) == "92.7"


class _Part(Struct):
    first: int = 1
    second: int = 2
    inner: _Part | None = None


class _Document(Struct):
    json_fields: ClassVar[Sequence[str]] = ("parts.second", "parts.inner.first", "parts.deep=first")
    parts: list[_Part]


def test_a_document_shows_the_values_that_it_names_in_this_order() -> None:
    shown: dict[str, Any] = json.loads(render(_Document(parts=[_Part(inner=_Part(first=3, second=4))])))
    assert list(shown["parts"][0].items()) == [("second", 2), ("inner", {"first": 3}), ("deep", 1)]
