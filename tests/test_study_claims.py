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
    majority,
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


def remedied(change: float) -> dict[str, float]:
    """State and gradient, which change by this factor from eigenvalue 0.5 to 0.9999."""
    return {
        f"{name} at {place}": factor
        for name in ("state", "gradient")
        for place, factor in ((0.5, 1.0), (0.9999, change))
    }


DISTANCES = ("distance to uniform", "distance of the angles")
CURVATURES = ("curvature by radius", "curvature by angle")
PAIRS = {"its conjugate": 9.0, "0.9 at the angle of its conjugate": 2.0, "0.99": 8.0}


def gains(white: float, constant: float) -> Numbers:
    """Gains of the study `gain`, as multiples of the formula; those of constant input differ more over seeds."""

    def numbers(cell: Any, seed: int) -> dict[str, float]:
        factor = {"white": white, "constant": constant}[cell.input]
        spread = {"white": 0.001, "constant": 0.01}[cell.input] * (1 + seed % 5)
        return {"gain": ring_gain(cell.ring) * (factor + spread * (-1) ** seed)}

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
    "angle": {
        "Without a reparametrisation of the angle, the loss is extremely sharp, but Adam compensates for it": (
            lambda cell, seed: {"first loss": 50.0, "final loss": 1e-9 if cell.form == "polar" else 10.0},
            lambda cell, seed: {"first loss": 50.0, "final loss": 20.0 if cell.form == "polar" else 1e-9},
        ),
        "An angle that is reparametrised for the curvature at the optimum traps learning far away from it": (
            lambda cell, seed: {"first loss": 50.0, "final loss": 20.0},
            lambda cell, seed: {"first loss": 50.0, "final loss": 1e-9 if cell.form == "optimal" else 20.0},
        ),
    },
    "disk": {
        "The eigenvalues of a Glorot matrix become uniform on the unit disk as it grows": (
            lambda cell, seed: dict.fromkeys(DISTANCES, (1 + 0.01 * seed) / cell.size),
            lambda cell, seed: dict.fromkeys(DISTANCES, (1 + 0.01 * seed) * cell.size),
        ),
        "Glorot's initialisation is approximately stable: a smaller share of eigenvalues is outside the unit disk of "
        "larger matrices": (
            lambda cell, seed: {"share in the disk": 1 - (2 + 0.01 * seed) / cell.size},
            lambda cell, seed: {"share in the disk": 0.9 - (1 + 0.01 * seed) * cell.size / 1000},
        ),
    },
    "convolution": {
        "A linear RNN learns a linear filter faster than a tanh RNN, at the best learning rate of each": (
            lambda cell, seed: {"final loss": cell.lr * (1.0 if cell.model == "linear" else 2.0)},
            lambda cell, seed: {"final loss": cell.lr * (2.0 if cell.model == "linear" else 1.0)},
        ),
        "A linear RNN learns a linear filter faster than a tanh RNN at every learning rate of the grid": (
            lambda cell, seed: {"final loss": cell.lr * (1.0 if cell.model == "linear" else 2.0)},
            lambda cell, seed: {"final loss": 1.0 if cell.model == "linear" else 1e-3 / cell.lr},
        ),
    },
    "leak": {
        "A ReLU leaks a signal to higher frequencies": (
            lambda cell, seed: {"share at higher frequencies": 0.06},
            lambda cell, seed: {"share at higher frequencies": 0.001},
        ),
    },
    "landscape": {
        "The loss sharpens as longer memories are encoded, in absolute value and angle": (
            lambda cell, seed: dict.fromkeys(CURVATURES, cell.gap**-2),
            lambda cell, seed: dict.fromkeys(CURVATURES, 3.0),
        ),
        "Far from a teacher with a long memory, the loss is flat": (
            lambda cell, seed: {"fall half way by radius": 3 * cell.gap, "fall half way by angle": cell.gap},
            lambda cell, seed: {"fall half way by radius": 0.75, "fall half way by angle": cell.gap},
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
    "parametrise": {
        "The exponential form controls the explosion of the Hessian in the absolute value": (
            lambda cell, seed: {"magnitude": 0.25 - (1 - cell.radius)},
            lambda cell, seed: {"magnitude": (1 - cell.radius) ** -2},
        ),
        "The exponential form controls the explosion of the Hessian in the angle": (
            lambda cell, seed: {"angle": 1 + cell.radius},
            lambda cell, seed: {"angle": (1 - cell.radius) ** -2},
        ),
        "The optimal form controls the explosion of the Hessian, where θ is differentiated as if it did not depend on "
        "ν": (
            lambda cell, seed: {"magnitude": 1.0, "angle": 1.0},
            lambda cell, seed: {"magnitude": 1.0, "angle": (1 - cell.radius) ** -2},
        ),
        "The basin of attraction shrinks for the angle as |λ*| goes to 1, but not for the absolute value": (
            lambda cell, seed: {"basin": 2 * (1 - cell.radius), "basin of the magnitude": 1.3},
            lambda cell, seed: {"basin": 2 * (1 - cell.radius), "basin of the magnitude": (1 - cell.radius) / 3},
        ),
    },
    "powers": {
        "Exponential parametrisation helps Adam to learn an eigenvalue of which a power is given": (
            lambda cell, seed: {"updates": 70.0 if cell.form == "exponential" else 70 * (1 + 2 * cell.angle)},
            lambda cell, seed: {"updates": 3000.0 if cell.form == "exponential" else 500.0},
        ),
        "Real and imaginary parts are slowest for a target phase of π/2": (
            lambda cell, seed: {"updates": 70 * (1 + cell.angle) / cell.lr},
            lambda cell, seed: {"updates": 70 * (3 - abs(cell.angle - 0.5)) / cell.lr},
        ),
    },
    "remedy": {
        "For uncorrelated input, normalisation and the exponential form control state and gradient": (
            lambda cell, seed: remedied(1.0),
            lambda cell, seed: remedied(6.0),
        ),
        "For correlated input, normalisation and the exponential form do not control state and gradient": (
            lambda cell, seed: remedied(1 + 10 * cell.rho),
            lambda cell, seed: remedied(2.0),
        ),
    },
    "similarity": {
        "Without correlation, eigenvalues are most similar to their conjugates": (
            lambda cell, seed: {"angle of the largest": -0.25},
            lambda cell, seed: {"angle of the largest": 0.25},
        ),
        "With more correlation this effect decreases, and eigenvalues become similar to those close to 1": (
            lambda cell, seed: {"its conjugate": 9 - 8 * cell.rho, "0.99": 1 + 8 * cell.rho},
            lambda cell, seed: {"its conjugate": 9 - 8 * cell.rho, "0.99": 2 - cell.rho},
        ),
        "In both cases, the effect is amplified as the magnitude of the eigenvalue increases": (
            lambda cell, seed: PAIRS | {"0.9": 2.0},
            lambda cell, seed: PAIRS | {"0.9": 9.0},
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
        (majority("m", [True] * 6 + [False]), "undecided"),
        (majority("m", [True] * 7 + [False]), "supported"),
        (majority("m", [False] * 7 + [True]), "contradicted"),
        (majority("m", [True] * 4), "undecided"),  # four seeds
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
