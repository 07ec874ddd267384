"""The claims of papers about studies: made-up results reach both verdicts of each, and rules go both ways."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import pytest

from lrurun import studies
from lrurun.studies import plan
from lrurun.studies.checks import identity
from lrurun.studies.evidence import (
    Evidence,
    StudyClaim,
    close,
    equivalent,
    judge,
    larger,
    positive,
    threshold,
    together,
)
from lrurun.studies.study import CellResult, Results

Numbers = Callable[[Any, int], Mapping[str, Any]]
"""Cell, seed -> made-up values (numbers) and curves (arrays) of it."""


def made_up(study: str, profile: str, numbers: Numbers) -> Results[Any]:
    """Results of a study's profile."""
    planned = plan.make(studies.get(study), profile, {})
    cells = []
    for cell in planned.cells:
        for seed in planned.seeds:
            given = numbers(cell, seed)
            curves = {name: value for name, value in given.items() if isinstance(value, np.ndarray)}
            values = {name: float(value) for name, value in given.items() if name not in curves}
            cells.append(CellResult(cell=cell, seed=seed, run="", diverged=False, values=values, curves=curves))
    return Results(cells, profile)


MADE_UP: dict[str, dict[str, tuple[Numbers, Numbers]]] = {
    "memory": {
        "The sensitivity to the eigenvalue explodes faster than the state": (
            lambda cell, seed: {"state slope": 1.0, "sensitivity slope": 3.0},
            lambda cell, seed: {"state slope": 1.0, "sensitivity slope": 1.0},
        ),
        "Correlated input makes the sensitivity to a positive real eigenvalue explode more": (
            lambda cell, seed: {"sensitivity at 0.9": 200 * (1 + cell.rho)},
            lambda cell, seed: {"sensitivity at 0.9": 200 * (1 - cell.rho / 2)},
        ),
    },
}
"""Study -> claim -> made-up results that support it, and ones that contradict it."""

CLAIMS = [
    pytest.param(study.name, claim, id=f"{study.name}: {claim.text}")
    for study in studies.every()
    for claim in study.claims
]


@pytest.mark.parametrize(("study", "claim"), CLAIMS)
def test_made_up_results_support_and_contradict_each_claim(study: str, claim: StudyClaim) -> None:
    verdicts = []
    for numbers in MADE_UP[study][claim.text]:
        evidence = claim.evidence(made_up(study, claim.profile, numbers))
        assert evidence is not None
        verdicts.append(evidence.verdict)
    assert verdicts == ["supported", "contradicted"]


def test_no_made_up_results_are_left_over() -> None:
    texts = {study.name: {claim.text for claim in study.claims} for study in studies.every()}
    assert {name: set(table) for name, table in MADE_UP.items()} == {
        name: claims for name, claims in texts.items() if claims
    }


@pytest.mark.parametrize(
    ("evidence", "verdict"),
    [
        (threshold("t", 2.0, supported=2.0, contradicted=1.0), "supported"),
        (threshold("t", 1.5, supported=2.0, contradicted=1.0), "undecided"),
        (threshold("t", 1.0, supported=2.0, contradicted=1.0), "contradicted"),
        (threshold("t", 1.0, supported=1.0, contradicted=2.0), "supported"),
        (threshold("t", 2.0, supported=1.0, contradicted=2.0), "contradicted"),
        (threshold("t", np.nan, supported=1.0, contradicted=2.0), "undecided"),
        (positive("p", [1.0, 1.1, 0.9, 1.2, 1.0]), "supported"),
        (positive("p", [-1.0, -1.1, -0.9, -1.2, -1.0]), "contradicted"),
        (positive("p", [1.0, 1.1, 0.9, 1.2]), "undecided"),  # four seeds
        (positive("p", [1.0, 1.1, 0.9, 1.2, np.inf]), "undecided"),
        (positive("p", [1.0, -1.1, 0.9, -1.2, 1.0]), "undecided"),
        (positive("p", [-0.01, -0.01, -0.01, 9.0, 9.0, 9.0, -0.01]), "undecided"),  # a few seeds decide the mean
        (larger("l", [3.0, 4.0, 3.0, 5.0, 4.0], [1.0] * 5), "supported"),
        (larger("l", [0.0, 4.0, 3.0, 5.0, 4.0], [1.0] * 5), "undecided"),
        (equivalent("e", [0.1, -0.1, 0.0, 0.1, -0.1], 1.0), "supported"),
        (equivalent("e", [2.1, 1.9, 2.0, 2.1, 1.9], 1.0), "contradicted"),
        (equivalent("e", [1.1, 0.9, 1.0, 1.1, 0.9], 1.0), "undecided"),
        (close("c", 1.01, 1.0, 0.001), "supported"),
        (close("c", 1.2, 1.0, 0.001), "contradicted"),
        (close("c", 1.01, 1.0, 0.1), "undecided"),
    ],
)
def test_rules_go_both_ways(evidence: Evidence, verdict: str) -> None:
    assert evidence.verdict == verdict


def test_parts_hold_together() -> None:
    for_it, against, neither = (Evidence(verdict, verdict) for verdict in ("supported", "contradicted", "undecided"))
    verdicts = [
        evidence and evidence.verdict
        for evidence in (
            together(for_it, None),
            together(for_it, neither),
            together(for_it, neither, against),
            together(None),
        )
    ]
    assert verdicts == ["supported", "undecided", "contradicted", None]


def test_a_wrong_number_leaves_claims_undecided() -> None:
    claim = StudyClaim(text="t", source="s", evidence=lambda _: Evidence("supported", "1"))
    for measured, verdict in ((1.0, "supported"), (2.0, "undecided")):
        [judged] = judge([claim], None, [identity("sum", measured, 1.0)])
        assert judged.verdict == verdict
    assert judge([StudyClaim(text="t", source="s", evidence=lambda _: None)], None, []) == []
