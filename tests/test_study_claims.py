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
from lrurun.studies.formulas import ring_gain
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


def gains(white: float, constant: float) -> Numbers:
    """Gains of the study `gain`, as multiples of the formula; those of constant input differ more over seeds."""

    def numbers(cell: Any, seed: int) -> dict[str, float]:
        factor = {"white": white, "constant": constant}[cell.input]
        spread = {"white": 0.001, "constant": 0.01}[cell.input] * (1 + seed % 5)
        return {"gain": ring_gain(cell.ring) * (factor + spread * (-1) ** seed)}

    return numbers


def norms(rotrnn: float, lru: float) -> Numbers:
    """Numbers of trainings of the study `norms`, which differ over seeds in proportion to their size."""

    def numbers(cell: Any, seed: int) -> dict[str, Any]:
        size = {"RotRNN": rotrnn, "LRU": lru}[cell.model] * (1 + 0.1 * (seed % 5))
        # norms of 1 that rise and fall over seeds by powers of 1 + `size` / 10
        last = size * (1 + 0.1 * size) ** ((seed % 5) - 2)
        return {"change": size, "ratio over layers": 1 + size, "last norm": last}

    return numbers


def phases(**accuracies: float) -> Numbers:
    """Trainings of the study `phase` with these test accuracies, of "full" or "small" phases, "plain" without gamma."""

    def numbers(cell: Any, seed: int) -> dict[str, float]:
        kind = ("" if cell.normalize else "plain_") + ("full" if cell.phase == 2.0 else "small")
        return {"last test accuracy": accuracies.get(kind, 0.5) + 0.01 * (seed % 3), "last training loss": 0.1}

    return numbers


MADE_UP: dict[str, dict[str, tuple[Numbers, Numbers]]] = {
    "ring": {
        "Eigenvalues that are sampled by Lemma 2 fill a ring of the disk evenly": (
            lambda cell, seed: {"distance of |lambda|^2 to uniform": 0.01, "distance of the phase to uniform": 0.02},
            lambda cell, seed: {"distance of |lambda|^2 to uniform": 0.01, "distance of the phase to uniform": 0.06},
        ),
        "Eigenvalues that are sampled on the unit disk are distributed as those of a Glorot matrix": (
            lambda cell, seed: {"distance to a Glorot spectrum": 0.02},
            lambda cell, seed: {"distance to a Glorot spectrum": 0.2},
        ),
    },
    "impulse": {
        "Over 1,024 steps, eigenvalues with phases on the whole circle oscillate only a few times": (
            lambda cell, seed: {"mean sign changes": 10.0},
            lambda cell, seed: {"mean sign changes": 511.0},
        ),
        "Phases in a small slice oscillate over 16,384 steps no more than all phases over 1,024": (
            lambda cell, seed: {"mean sign changes": cell.phase * cell.steps / 4},
            lambda cell, seed: {"mean sign changes": cell.steps / 4},
        ),
    },
    "gain": {
        "The forward pass amplifies white input by log((1 - a^2) / (1 - b^2)) / (b^2 - a^2)": (
            gains(white=1.0, constant=2.0),
            gains(white=2.0, constant=1.0),
        ),
        "The forward pass amplifies constant input by the same factor, in the mean": (
            gains(white=2.0, constant=1.0),
            gains(white=1.0, constant=2.0),
        ),
        "The formula for the gain is more accurate with random than with constant input": (
            gains(white=1.0, constant=1.0),
            gains(white=1.5, constant=1.0),
        ),
    },
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
    "phase": {
        "With small phases a long model generalises, with phases on the whole circle it does not": (
            phases(small=0.9, full=0.5),
            phases(small=0.5, full=0.5),
        ),
        "Without normalisation the loss at initialisation blows up": (
            lambda cell, seed: {"first training loss": 1.0 if cell.normalize else 10.0},
            lambda cell, seed: {"first training loss": 1.0},
        ),
        "Without normalisation a long model stays at chance, with small phases too": (
            phases(small=0.9, plain_small=0.5),
            phases(small=0.9, plain_small=0.9),
        ),
    },
    "norms": {
        "White input keeps the expected norm of the RotRNN's state constant over the whole sequence": (
            lambda cell, seed: {"mean": np.array([0.99, 1.0, 1.01])},
            lambda cell, seed: {"mean": np.array([0.02, 0.5, 1.0])},
        ),
        "In training the norms of a RotRNN change less than those of an LRU": (
            norms(rotrnn=0.1, lru=1.0),
            norms(rotrnn=1.0, lru=0.1),
        ),
        "After training the norms of a RotRNN differ less over its layers than those of an LRU": (
            norms(rotrnn=0.1, lru=1.0),
            norms(rotrnn=1.0, lru=0.1),
        ),
        "With one layer the norms of the LRU are larger, and differ more over seeds": (
            norms(rotrnn=1.0, lru=20.0),
            norms(rotrnn=20.0, lru=1.0),
        ),
    },
    "reals": {
        "Real eigenvalues cannot express a shift": (
            lambda cell, seed: {"residual": 0.9},
            lambda cell, seed: {"residual": 0.01},
        ),
        "A state smaller than the length limits a shift": (
            lambda cell, seed: {"residual": 0.5 if cell.modes < cell.length else 1e-20},
            lambda cell, seed: {"residual": 0.01},
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
