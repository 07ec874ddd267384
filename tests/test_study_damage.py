"""Studies notice a damaged layer: the checks of profile "ci" pass with the layers of this package, and fail with copies
that are wrong."""

from __future__ import annotations

import sys
from collections.abc import Callable
from functools import cache
from typing import Any

import jax
import pytest

from lrurun import studies
from lrurun.studies import checks, execution
from lrurun.studies import plan as planning

Damage = Callable[[pytest.MonkeyPatch], None]


def everywhere(home: str, name: str, change: Callable[[Any], Any]) -> Damage:
    """A damage: `change` of the function `name` of the module `home`, in all modules of layers that have imported it.

    For example everywhere("lrurun.nn.recurrences.lru", "ring", change).
    """

    def damage(patch: pytest.MonkeyPatch) -> None:
        right = getattr(sys.modules[home], name)
        wrong = change(right)
        for module in [module for path, module in sys.modules.items() if path.startswith("lrurun.nn.")]:
            if getattr(module, name, None) is right:
                patch.setattr(module, name, wrong)

    return damage


def scaled_ring(decay: float, phase: float) -> Damage:
    """Factors of the initial nu and theta."""

    def change(ring: Any) -> Any:
        def wrong(*arguments: Any) -> Any:
            nu, theta = ring(*arguments)
            return decay * nu, phase * theta

        return wrong

    return everywhere("lrurun.nn.recurrences.lru", "ring", change)


def of_class(path: str, name: str, change: Callable[[Any], Any]) -> Damage:
    """A damage: `change` of the method `name` of a class, given as "module:Class"."""

    def damage(patch: pytest.MonkeyPatch) -> None:
        module, _, cls = path.partition(":")
        patched = getattr(sys.modules[module], cls)
        patch.setattr(patched, name, change(getattr(patched, name)))

    return damage


def scaled_eigenvalues(decay: float, phase: float) -> Damage:
    """Factors of nu and theta of trained eigenvalues."""

    def change(decay_and_phase: Any) -> Any:
        def wrong(*arguments: Any) -> Any:
            nu, theta = decay_and_phase(*arguments)
            return decay * nu, phase * theta

        return wrong

    return of_class("lrurun.nn.recurrences.parametrizations:Exponential", "decay_and_phase", change)


def transposed(right: Any) -> Any:
    """A function of a matrix of the state, which is transposed before."""
    return lambda matrix, *arguments: right(matrix.T, *arguments)


DAMAGES: dict[str, Damage] = {
    "phases of the ring x 0.1": scaled_ring(1.0, 0.1),
    "nu of the ring x 0.3": scaled_ring(0.3, 1.0),
    "gamma to the fourth power": everywhere(
        "lrurun.nn.recurrences.lru", "log_gamma", lambda right: lambda nu: 4.0 * right(nu)
    ),
    "phases of eigenvalues x 0.01": scaled_eigenvalues(1.0, 0.01),
    "nu of eigenvalues x 0.3": scaled_eigenvalues(0.3, 1.0),
    "scan of the dense matrix transposed": everywhere("lrurun.nn.recurrences.rnn", "dense_scan", transposed),
    "step of the dense recurrence x 0.99": of_class(
        "lrurun.nn.recurrences.rnn:RNN",
        "step",
        lambda right: lambda layer, params, state, u: right(layer, params, 0.99 * state, u),
    ),
    "initial dense matrix x 0.7": everywhere(
        "lrurun.nn.recurrences.rnn", "remapped", lambda right: lambda *arguments: 0.7 * right(*arguments)
    ),
    "blocks transposed": of_class(
        "lrurun.nn.recurrences.block_diagonal:BlockDiagonal",
        "_blocks",
        lambda right: lambda layer, params: right(layer, {**params, "A": params["A"].swapaxes(1, 2)}),
    ),
}
"""Name -> what it does to the layers."""

NOTICED: dict[str, tuple[str, ...]] = {
    "teacher": (
        "phases of the ring x 0.1",
        "nu of the ring x 0.3",
        "scan of the dense matrix transposed",
        "initial dense matrix x 0.7",
    ),
    "bridge": ("gamma to the fourth power", "blocks transposed"),
    "hessian": (
        "gamma to the fourth power",
        "phases of eigenvalues x 0.01",
        "nu of eigenvalues x 0.3",
        "step of the dense recurrence x 0.99",
    ),
    "adam": (
        "phases of the ring x 0.1",
        "nu of the ring x 0.3",
        "gamma to the fourth power",
        "phases of eigenvalues x 0.01",
    ),
    "concentration": ("gamma to the fourth power", "phases of eigenvalues x 0.01", "nu of eigenvalues x 0.3"),
}
"""Study -> the damages that its checks notice."""

CHANGES: dict[str, dict[str, Any]] = {
    "hessian": {"network": ["dense", "lru-single"]},
    "concentration": {"architecture": ["lru"], "angle": [0.1], "rho": [0.0]},
}
"""Study -> settings with which profile "ci" takes less time here."""


def failed(study: str) -> list[str]:
    """The names of the checks that fail, computed with the layers as they are now."""
    jax.clear_caches()  # of programs that were compiled with other layers
    plan = planning.make(studies.get(study), "ci", CHANGES.get(study, {}))
    return [check.name for check in checks.failed(plan.study.checks(execution.in_process(plan)))]


@cache
def failed_undamaged(study: str) -> list[str]:
    return failed(study)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("study", "damage"), [(study, damage) for study, damages in NOTICED.items() for damage in damages]
)
def test_checks_notice_a_damaged_layer(study: str, damage: str, monkeypatch: pytest.MonkeyPatch) -> None:
    assert failed_undamaged(study) == []
    DAMAGES[damage](monkeypatch)
    found = failed(study)
    monkeypatch.undo()
    jax.clear_caches()
    assert found
