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
    "teacher": {
        "LRUs outperform dense linear RNNs the more, the longer the memory of the teacher is": (
            losses(lambda cell: 1 / (1 - cell.nu) if cell.architecture == "dense" else 1.0),
            losses(lambda cell: 1 - cell.nu if cell.architecture == "dense" else 1.0),
        ),
        "An LRU with a tenth of its parameters outperforms a dense linear RNN at the longest memory": (
            losses(lambda cell: 9.0 if cell.architecture == "dense" else 1.0),
            losses(lambda cell: 1.0 if cell.architecture == "dense" else 9.0),
        ),
    },
    "bridge": {
        "A block-diagonal matrix of 2 x 2 blocks lowers the loss of the dense linear RNN": ladder(dense=9.0, block=1.0),
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
