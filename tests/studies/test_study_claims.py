"""The claims of papers about studies: made-up results reach both verdicts of each, and rules go both ways."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import pytest

from lrurun import studies
from lrurun.studies import plan
from lrurun.studies.checks import identity
from lrurun.studies.depth import GROUPS
from lrurun.studies.evidence import (
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


MADE_UP: dict[str, dict[str, tuple[Numbers, Numbers]]] = {
    "ring": {
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
    "teacher": {
        "LRUs outperform dense linear RNNs the more, the longer the memory of the teacher is": (
            losses(lambda cell: 1 / (1 - cell.nu) if cell.architecture == "dense" else 1.0),
            losses(lambda cell: 1 - cell.nu if cell.architecture == "dense" else 1.0),
        ),
        "An LRU with a tenth of the parameters outperforms a dense linear RNN at the longest memory": (
            losses(lambda cell: 9.0 if cell.architecture == "dense" else 1.0),
            losses(lambda cell: 1.0 if cell.architecture == "dense" else 9.0),
        ),
    },
    "bridge": {
        "A block-diagonal matrix of 2 x 2 blocks lowers the loss of the dense linear RNN": ladder(dense=9.0, block=1.0),
        "Complex diagonal matrices have a lower loss than dense ones": ladder(dense=9.0, complex=1.0),
        "More neurons do not explain the gap": (
            ladder(**{"block": 1.1, "block-64": 1.0})[0],
            ladder(**{"block": 9.0, "block-64": 1.0})[0],
        ),
        "Complex numbers in place of the blocks lower the loss further": ladder(**{"block-64": 9.0, "complex": 1.0}),
        "Most of the gap comes from the complex numbers, not from the blocks": (
            ladder(**{"dense": 2.0, "block": 1.0, "block-64": 9.0, "complex": 1.0})[0],
            ladder(**{"dense": 9.0, "block": 1.0, "block-64": 2.0, "complex": 1.0})[0],
        ),
        "The normalisation by gamma lowers the loss of the complex diagonal RNN": ladder(complex=9.0, gamma=1.0),
        "The exponential parametrisation lowers the loss further": ladder(gamma=9.0, lru=1.0),
    },
    "hessian": {
        "The largest eigenvectors are more concentrated for complex diagonal networks than for dense ones": (
            lambda cell, seed: {"participation": (9.0 if cell.network == "dense" else 1.0) + seed / 100},
            lambda cell, seed: {"participation": (1.0 if cell.network == "dense" else 9.0) + seed / 100},
        ),
        "The spectra of the Hessians of dense and complex networks are almost the same": (
            lambda cell, seed: {"top": (1.2 if cell.network == "dense" else 1.0) + seed / 100},
            lambda cell, seed: {"top": (9.0 if cell.network == "dense" else 1.0) + seed / 100},
        ),
        "The loss of an LRU is sharper in its angles than in its absolute values": (
            lambda cell, seed: {"largest theta_log": 9.0 + seed / 100, "largest nu_log": 1.0},
            lambda cell, seed: {"largest theta_log": 1.0 + seed / 100, "largest nu_log": 9.0},
        ),
    },
    "adam": {
        "Adam takes larger steps in the complex diagonal RNN than in the dense one": (
            lambda cell, seed: {"lam_re median": 9.0 + seed / 100, "lam_im median": 9.0 + seed / 100, "A median": 1.0},
            lambda cell, seed: {"lam_re median": 9.0 + seed / 100, "lam_im median": 0.1 + seed / 100, "A median": 1.0},
        ),
        "In the LRU, Adam takes smaller steps in the angles than in the absolute values": (
            lambda cell, seed: {"nu_log median": 9.0 + seed / 100, "theta_log median": 1.0},
            lambda cell, seed: {"nu_log median": 1.0 + seed / 100, "theta_log median": 9.0},
        ),
    },
    "concentration": {
        "Concentrated angles make the Hessian less diagonal": (
            shares(lambda cell: 1 / cell.angle),
            shares(lambda cell: cell.angle),
        ),
        "The Hessian of an LRU is more diagonal than that of the complex diagonal RNN": (
            shares(lambda cell: 9.0 if cell.architecture == "complex" else 1.0),
            shares(lambda cell: 1.0 if cell.architecture == "complex" else 9.0),
        ),
        "Concentrated angles widen the lead of the LRU over the complex diagonal RNN": (
            losses(lambda cell: 1 / cell.angle if cell.architecture == "complex" else 1.0),
            losses(lambda cell: cell.angle if cell.architecture == "complex" else 1.0),
        ),
        "A dense linear RNN is worse than both, however concentrated the angles are": (
            losses(lambda cell: 9.0 if cell.architecture == "dense" else 1.0),
            losses(lambda cell: 1.0 if cell.architecture == "dense" else 9.0),
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
    "depth": {
        "The states of a complex RNN explode with the memory, those of an LRU hardly grow": (
            powers(cRNN_state=3.0),
            powers(cRNN_state=3.0, LRU_state=2.0),
        ),
        "Gradients of a complex RNN explode with the memory, those of an LRU in its angles only": (
            powers(cRNN_lambda=8.0, LRU_theta=2.0),
            powers(cRNN_lambda=8.0),
        ),
        "Layer norm bounds the gradients of a complex RNN by parameters other than its eigenvalues": (
            powers(cRNN_lambda=2.0),
            powers(cRNN_lambda=2.0, cRNN_rest=2.0),
        ),
        "Gradients of an LSTM with chrono initialisation do not depend on the memory": (
            powers(),
            powers(LSTM_cell=-2.0),
        ),
        "The LSTM's own parameters have smaller gradients than the feed-forward parameters": (
            lambda cell, seed: {"gradient of cell": 0.01, "gradient of rest": 0.1},
            lambda cell, seed: {"gradient of cell": 1.0, "gradient of rest": 0.1},
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


def test_norms_of_trainings_that_learned_nothing_are_no_evidence() -> None:
    study, learned = studies.get("norms"), norms(rotrnn=0.1, lru=1.0)
    results = made_up(
        "norms", "laptop", lambda cell, seed: {**learned(cell, seed), "last loss": 2.2, "mean": np.ones(2)}
    )
    white, *trained = (claim.evidence(results) for claim in study.claims)
    assert white is not None
    assert trained == [None] * 3


@pytest.mark.parametrize(
    ("p", "parts", "verdict"), [(0.04, 1, "contradicted"), (0.04, 2, "undecided"), (0.02, 2, "contradicted")]
)
def test_one_of_several_tests_contradicts_at_a_lower_level(p: float, parts: int, verdict: str) -> None:
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
