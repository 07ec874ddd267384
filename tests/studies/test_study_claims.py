"""The claims of papers about studies: made-up results reach both verdicts of each, and rules go both ways."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import pytest

from lrurun import studies
from lrurun.studies.depth import GROUPS
from lrurun.studies.machinery import planning
from lrurun.studies.machinery.checks import identity
from lrurun.studies.machinery.evidence import (
    Evidence,
    StudyClaim,
    Verdict,
    equivalent,
    judge,
    larger,
    majority,
    positive,
    threshold,
    together,
)
from lrurun.studies.machinery.study import CellResult, Results
from lrurun.studies.mathematics.formulas import ring_gain

Numbers = Callable[[Any, int], Mapping[str, Any]]
"""Cell, seed -> made-up values (numbers) and curves (arrays) of it."""


def made_up(study: str, profile: str, numbers: Numbers | Mapping[str, Any]) -> Results[Any]:
    """Results of a study's profile."""
    planned = planning.make(studies.get(study), profile, {})
    cells = []
    for cell in planned.cells:
        for seed in planned.seeds:
            given = numbers(cell, seed) if callable(numbers) else numbers
            curves = {name: value for name, value in given.items() if isinstance(value, np.ndarray)}
            values = {name: float(value) for name, value in given.items() if name not in curves}
            cells.append(CellResult(cell=cell, seed=seed, run="", diverged=False, values=values, curves=curves))
    return Results(cells, profile)


def losses(of_cell: Callable[[Any], float]) -> Numbers:
    """Losses of students, a little different for each seed and each learning rate."""
    return lambda cell, seed: {"loss": of_cell(cell) * (1 + (seed + cell.lr) / 100 * (1 + len(cell.architecture) / 9))}


def ladder(**of_architectures: float) -> tuple[Numbers, Numbers]:
    """Losses of architectures, 1 for all others; and the same with these ones the other way round."""
    other_way = dict(zip(of_architectures, reversed(of_architectures.values()), strict=True))
    return (
        losses(lambda cell: of_architectures.get(cell.architecture, 1.0)),
        losses(lambda cell: other_way.get(cell.architecture, 1.0)),
    )


def shares(of_cell: Callable[[Any], float]) -> Numbers:
    """Shares of Hessians off their diagonal, of five systems."""
    return lambda cell, seed: {"share of systems": of_cell(cell) * (1 + np.arange(5) / 100 * cell.angle)}


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


def norms(rotrnn: float, lru: float) -> Numbers:
    """Numbers of trainings of the study `norms`, which differ over seeds in proportion to their size."""

    def numbers(cell: Any, seed: int) -> dict[str, Any]:
        size = {"RotRNN": rotrnn, "LRU": lru}[cell.model] * (1 + 0.1 * (seed % 5))
        # norms of 1 that rise and fall over seeds by powers of 1 + `size` / 10
        last = size * (1 + 0.1 * size) ** ((seed % 5) - 2)
        fallen = {"first loss": 2.3, "last loss": 1.5}
        return {"change": size, "ratio over layers": 1 + size, "last norm": last, **fallen}

    return numbers


def phases(**accuracies: float) -> Numbers:
    """Trainings of the study `phase` with these test accuracies, of "full" or "small" phases, "plain" without gamma."""

    def numbers(cell: Any, seed: int) -> dict[str, float]:
        kind = ("" if cell.normalize else "plain_") + ("full" if cell.phase == 2.0 else "small")
        return {"last test accuracy": accuracies.get(kind, 0.5) + 0.01 * (seed % 3), "last training loss": 0.1}

    return numbers


def powers(**of_groups: float) -> Numbers:
    """Numbers of the study `depth` that grow with these powers of the time constant, others not at all."""

    def numbers(cell: Any, seed: int) -> dict[str, float]:
        values = {f"gradient of {group}": of_groups.get(f"{cell.model}_{group}", 0.0) for group in GROUPS[cell.model]}
        values["state of block 4"] = of_groups.get(f"{cell.model}_state", 0.0)
        return {name: cell.time**power for name, power in values.items()}

    return numbers


MADE_UP: dict[str, list[tuple[Any, Any]]] = {
    "ring": [
        ({"distance to a Glorot spectrum": 0.02}, {"distance to a Glorot spectrum": 0.2}),
    ],
    "impulse": [
        ({"mean sign changes": 10.0}, {"mean sign changes": 511.0}),
        (lambda c, s: {"mean sign changes": c.phase * c.steps / 4}, lambda c, s: {"mean sign changes": c.steps / 4}),
    ],
    "gain": [
        (gains(white=1.0, constant=1.0), gains(white=1.5, constant=1.0)),
    ],
    "angle": [
        (
            lambda c, s: {"first loss": 50.0, "final loss": 1e-9 if c.form == "polar" else 10.0},
            lambda c, s: {"first loss": 50.0, "final loss": 20.0 if c.form == "polar" else 1e-9},
        ),
        (
            {"first loss": 50.0, "final loss": 20.0},
            lambda c, s: {"first loss": 50.0, "final loss": 1e-9 if c.form == "optimal" else 20.0},
        ),
    ],
    "disk": [
        (
            lambda c, s: dict.fromkeys(DISTANCES, (1 + 0.01 * s) / c.size),
            lambda c, s: dict.fromkeys(DISTANCES, (1 + 0.01 * s) * c.size),
        ),
        (
            lambda c, s: {"share in the disk": 1 - (2 + 0.01 * s) / c.size},
            lambda c, s: {"share in the disk": 0.9 - (1 + 0.01 * s) * c.size / 1000},
        ),
    ],
    "convolution": [
        (
            lambda c, s: {"final loss": c.lr * (1.0 if c.model == "linear" else 2.0)},
            lambda c, s: {"final loss": c.lr * (2.0 if c.model == "linear" else 1.0)},
        ),
        (
            lambda c, s: {"final loss": c.lr * (1.0 if c.model == "linear" else 2.0)},
            lambda c, s: {"final loss": 1.0 if c.model == "linear" else 1e-3 / c.lr},
        ),
    ],
    "leak": [
        ({"share at higher frequencies": 0.06}, {"share at higher frequencies": 0.001}),
    ],
    "landscape": [
        (lambda c, s: dict.fromkeys(CURVATURES, c.gap**-2), dict.fromkeys(CURVATURES, 3.0)),
        (
            lambda c, s: {"fall half way by radius": 3 * c.gap, "fall half way by angle": c.gap},
            lambda c, s: {"fall half way by radius": 0.75, "fall half way by angle": c.gap},
        ),
    ],
    "memory": [
        ({"state slope": 1.0, "sensitivity slope": 3.0}, {"state slope": 1.0, "sensitivity slope": 1.0}),
        (
            lambda c, s: {"sensitivity at 0.9": 200 * (1 + c.rho)},
            lambda c, s: {"sensitivity at 0.9": 200 * (1 - c.rho / 2)},
        ),
    ],
    "teacher": [
        (
            losses(lambda c: 1 / (1 - c.nu) if c.architecture == "dense" else 1.0),
            losses(lambda c: 1 - c.nu if c.architecture == "dense" else 1.0),
        ),
        (
            losses(lambda c: 9.0 if c.architecture == "dense" else 1.0),
            losses(lambda c: 1.0 if c.architecture == "dense" else 9.0),
        ),
    ],
    "bridge": [
        ladder(dense=9.0, block=1.0),
        ladder(dense=9.0, complex=1.0),
        (ladder(**{"block": 1.1, "block-64": 1.0})[0], ladder(**{"block": 9.0, "block-64": 1.0})[0]),
        ladder(**{"block-64": 9.0, "complex": 1.0}),
        (
            ladder(**{"dense": 2.0, "block": 1.0, "block-64": 9.0, "complex": 1.0})[0],
            ladder(**{"dense": 9.0, "block": 1.0, "block-64": 2.0, "complex": 1.0})[0],
        ),
        ladder(complex=9.0, gamma=1.0),
        ladder(gamma=9.0, lru=1.0),
    ],
    "hessian": [
        (
            lambda c, s: {"participation": (9.0 if c.network == "dense" else 1.0) + s / 100},
            lambda c, s: {"participation": (1.0 if c.network == "dense" else 9.0) + s / 100},
        ),
        (
            lambda c, s: {"top": (1.2 if c.network == "dense" else 1.0) + s / 100},
            lambda c, s: {"top": (9.0 if c.network == "dense" else 1.0) + s / 100},
        ),
        (
            lambda c, s: {"largest theta_log": 9.0 + s / 100, "largest nu_log": 1.0},
            lambda c, s: {"largest theta_log": 1.0 + s / 100, "largest nu_log": 9.0},
        ),
    ],
    "adam": [
        (
            lambda c, s: {"lam_re median": 9.0 + s / 100, "lam_im median": 9.0 + s / 100, "A median": 1.0},
            lambda c, s: {"lam_re median": 9.0 + s / 100, "lam_im median": 0.1 + s / 100, "A median": 1.0},
        ),
        (
            lambda c, s: {"nu_log median": 9.0 + s / 100, "theta_log median": 1.0},
            lambda c, s: {"nu_log median": 1.0 + s / 100, "theta_log median": 9.0},
        ),
    ],
    "concentration": [
        (shares(lambda c: 1 / c.angle), shares(lambda c: c.angle)),
        (
            shares(lambda c: 9.0 if c.architecture == "complex" else 1.0),
            shares(lambda c: 1.0 if c.architecture == "complex" else 9.0),
        ),
        (
            losses(lambda c: 1 / c.angle if c.architecture == "complex" else 1.0),
            losses(lambda c: c.angle if c.architecture == "complex" else 1.0),
        ),
        (
            losses(lambda c: 9.0 if c.architecture == "dense" else 1.0),
            losses(lambda c: 1.0 if c.architecture == "dense" else 9.0),
        ),
    ],
    "phase": [
        (phases(small=0.9, full=0.5), phases(small=0.5, full=0.5)),
        (lambda c, s: {"first training loss": 1.0 if c.normalize else 10.0}, {"first training loss": 1.0}),
        (phases(small=0.9, plain_small=0.5), phases(small=0.9, plain_small=0.9)),
    ],
    "depth": [
        (powers(cRNN_state=3.0), powers(cRNN_state=3.0, LRU_state=2.0)),
        (powers(cRNN_lambda=8.0, LRU_theta=2.0), powers(cRNN_lambda=8.0)),
        (powers(cRNN_lambda=2.0), powers(cRNN_lambda=2.0, cRNN_rest=2.0)),
        (powers(), powers(LSTM_cell=-2.0)),
        ({"gradient of cell": 0.01, "gradient of rest": 0.1}, {"gradient of cell": 1.0, "gradient of rest": 0.1}),
    ],
    "norms": [
        ({"mean": np.array([0.99, 1.0, 1.01])}, {"mean": np.array([0.02, 0.5, 1.0])}),
        (norms(rotrnn=0.1, lru=1.0), norms(rotrnn=1.0, lru=0.1)),
        (norms(rotrnn=0.1, lru=1.0), norms(rotrnn=1.0, lru=0.1)),
        (
            lambda c, s: norms(rotrnn=1.0, lru=20.0 if c.depth == 1 else 0.1)(c, s),
            lambda c, s: norms(rotrnn=20.0, lru=1.0 if c.depth == 1 else 400.0)(c, s),
        ),
    ],
    "parametrise": [
        (lambda c, s: {"magnitude": 0.25 - (1 - c.radius)}, lambda c, s: {"magnitude": (1 - c.radius) ** -2}),
        (lambda c, s: {"angle": 1 + c.radius}, lambda c, s: {"angle": (1 - c.radius) ** -2}),
        ({"magnitude": 1.0, "angle": 1.0}, lambda c, s: {"magnitude": 1.0, "angle": (1 - c.radius) ** -2}),
        (
            lambda c, s: {"basin": 2 * (1 - c.radius), "basin of the magnitude": 1.3},
            lambda c, s: {"basin": 2 * (1 - c.radius), "basin of the magnitude": (1 - c.radius) / 3},
        ),
    ],
    "powers": [
        (
            lambda c, s: {"updates": 70.0 if c.form == "exponential" else 70 * (1 + 2 * c.angle)},
            lambda c, s: {"updates": 3000.0 if c.form == "exponential" else 500.0},
        ),
        (
            lambda c, s: {"updates": 70 * (1 + c.angle) / c.lr},
            lambda c, s: {"updates": 70 * (3 - abs(c.angle - 0.5)) / c.lr},
        ),
    ],
    "remedy": [
        (remedied(1.0), remedied(6.0)),
        (lambda c, s: remedied(1 + 10 * c.rho), remedied(2.0)),
    ],
    "similarity": [
        ({"angle of the largest": -0.25}, {"angle of the largest": 0.25}),
        (
            lambda c, s: {"its conjugate": 9 - 8 * c.rho, "0.99": 1 + 8 * c.rho},
            lambda c, s: {"its conjugate": 9 - 8 * c.rho, "0.99": 2 - c.rho},
        ),
        (PAIRS | {"0.9": 2.0}, PAIRS | {"0.9": 9.0}),
    ],
    "reals": [
        ({"residual": 0.9}, {"residual": 0.01}),
        (lambda c, s: {"residual": 0.5 if c.modes < c.length else 1e-20}, {"residual": 0.01}),
    ],
}
"""Study -> for each of its claims, in their order: made-up results that support it, and ones that contradict it."""


@pytest.mark.parametrize("name", [study.name for study in studies.every() if study.claims])
def test_made_up_results_support_and_contradict_each_claim(name: str) -> None:
    for claim, each_way in zip(studies.get(name).claims, MADE_UP[name], strict=True):
        evidence = [claim.evidence(made_up(name, claim.profile, numbers)) for numbers in each_way]
        assert [one and one.verdict for one in evidence] == ["supported", "contradicted"], claim.text


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
    ],
)
def test_rules_go_both_ways(evidence: Evidence, verdict: str) -> None:
    assert evidence.verdict == verdict


def test_parts_hold_together() -> None:
    for_it, against, neither = (Evidence(verdict, verdict) for verdict in ("supported", "contradicted", "undecided"))
    parts = ((for_it, None), (for_it, neither), (for_it, neither, against), (None,))
    assert [evidence and evidence.verdict for evidence in (together(*some) for some in parts)] == [
        "supported",
        "undecided",
        "contradicted",
        None,
    ]


def test_norms_of_trainings_that_learned_nothing_are_no_evidence() -> None:
    study, learned = studies.get("norms"), norms(rotrnn=0.1, lru=1.0)
    results = made_up(
        "norms", "laptop", lambda cell, seed: {**learned(cell, seed), "last loss": 2.2, "mean": np.ones(2)}
    )
    white, *trained = (claim.evidence(results) for claim in study.claims)
    assert white is not None
    assert trained == [None] * 3


def test_one_of_several_tests_contradicts_at_a_lower_level() -> None:
    for p, parts, verdict in ((0.04, 1, "contradicted"), (0.04, 2, "undecided"), (0.02, 2, "contradicted")):
        others = [Evidence("supported", "other", 1e-3)] * (parts - 1)
        evidence = together(Evidence("contradicted", "tested", p), *others)
        assert evidence is not None
        assert evidence.verdict == verdict


def test_tests_of_a_study_are_corrected_by_holm_and_bounds_are_not() -> None:
    def claim(p: float | None, verdict: Verdict) -> StudyClaim:
        return StudyClaim(text=str(p), source="s", evidence=lambda _: Evidence(verdict, "d", p))

    claims = [
        claim(0.01, "supported"),
        claim(0.03, "contradicted"),
        claim(0.04, "supported"),
        claim(None, "contradicted"),
        claim(0.9, "undecided"),
    ]
    judged = {one.text: (one.verdict, one.detail) for one in judge(claims, None, [])}
    assert judged == {
        "0.01": ("supported", "d; adjusted p = 0.04"),
        "0.03": ("undecided", "d; adjusted p = 0.09"),
        "0.04": ("undecided", "d; adjusted p = 0.09"),
        "None": ("contradicted", "d"),
        "0.9": ("undecided", "d"),
    }


def test_a_wrong_number_leaves_claims_undecided() -> None:
    claim = StudyClaim(text="t", source="s", evidence=lambda _: Evidence("supported", "1"))
    for measured, verdict in ((1.0, "supported"), (2.0, "undecided")):
        [judged] = judge([claim], None, [identity("sum", measured, 1.0)])
        assert judged.verdict == verdict
    assert judge([StudyClaim(text="t", source="s", evidence=lambda _: None)], None, []) == []
