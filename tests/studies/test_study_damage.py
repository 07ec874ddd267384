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


DAMAGES: dict[str, Damage] = {
    "phases of the ring x 0.1": scaled_ring(1.0, 0.1),
    "nu of the ring x 0.3": scaled_ring(0.3, 1.0),
    "gamma to the fourth power": everywhere(
        "lrurun.nn.recurrences.lru", "log_gamma", lambda right: lambda nu: 4.0 * right(nu)
    ),
    "entries of normal matrices x 1.1": everywhere(
        "lrurun.nn.sampling",
        "normals",
        lambda right: lambda *arguments: {name: 1.1 * value for name, value in right(*arguments).items()},
    ),
    "a symmetric dense matrix": of_class(
        "lrurun.nn.recurrences.rnn:RNN",
        "init",
        lambda right: lambda layer, key: (params := right(layer, key)) | {"A": (params["A"] + params["A"].T) * 2**-0.5},
    ),
    "the dense matrix transposed": everywhere(
        "lrurun.nn.recurrences.rnn", "dense_scan", lambda right: lambda a, *rest: right(a.T, *rest)
    ),
    "no gradient of the dense matrix": everywhere(
        "lrurun.nn.recurrences.rnn",
        "dense_scan",
        lambda right: lambda a, *rest: right(jax.lax.stop_gradient(a), *rest),
    ),
    "phases of eigenvalues x 0.1": everywhere(
        "lrurun.nn.complex", "polar", lambda right: lambda nu, theta: right(nu, 0.1 * theta)
    ),
    "nu of eigenvalues x 0.3": everywhere(
        "lrurun.nn.complex", "polar", lambda right: lambda nu, theta: right(0.3 * nu, theta)
    ),
    "nu of the stable form x 0.3": of_class(
        "lrurun.nn.recurrences.parametrizations:StableExponential",
        "actual_decay",
        lambda right: lambda form, trained: 0.3 * right(form, trained),
    ),
    "phases of exponential forms x 0.1": of_class(
        "lrurun.nn.recurrences.parametrizations:Exponential",
        "decay_and_phase",
        lambda right: lambda form, params: (right(form, params)[0], 0.1 * right(form, params)[1]),
    ),
    "step of the dense recurrence x 0.99": of_class(
        "lrurun.nn.recurrences.rnn:RNN",
        "step",
        lambda right: lambda layer, params, state, u: right(layer, params, 0.99 * state, u),
    ),
    "moved eigenvalues of the dense matrix x 0.7": everywhere(
        "lrurun.nn.recurrences.rnn", "remapped", lambda right: lambda *arguments: 0.7 * right(*arguments)
    ),
    "blocks transposed": of_class(
        "lrurun.nn.recurrences.block_diagonal:BlockDiagonal",
        "_blocks",
        lambda right: lambda layer, params: right(layer, {**params, "A": params["A"].swapaxes(1, 2)}),
    ),
    "all phases of DLR 0": of_class(
        "lrurun.nn.recurrences.dlr:DLR",
        "init",
        lambda right: (
            lambda layer, key: {
                name: 0.0 * value if name == "log_im" else value for name, value in right(layer, key).items()
            }
        ),
    ),
    "phases of kernels x 1.01": everywhere(
        "lrurun.nn.convolution.powers", "powers", lambda right: lambda nu, theta, steps: right(nu, 1.01 * theta, steps)
    ),
    "linear maps of the network x 2": everywhere(
        "lrurun.nn.network.layers",
        "lecun_normals",
        lambda right: lambda *arguments: {name: 2.0 * value for name, value in right(*arguments).items()},
    ),
    "normaliser of the RotRNN x 7": of_class(
        "lrurun.nn.recurrences.rotrnn:RotRNN",
        "_normalizer",
        lambda right: lambda layer, params: 7.0 * right(layer, params),
    ),
}
"""Name -> what it does to the layers."""

NOTICED: dict[str, tuple[str, ...]] = {
    "disk": ("entries of normal matrices x 1.1", "a symmetric dense matrix"),
    "convolution": ("the dense matrix transposed", "no gradient of the dense matrix"),
    "powers": ("phases of eigenvalues x 0.1", "nu of eigenvalues x 0.3"),
    "remedy": ("gamma to the fourth power", "nu of the stable form x 0.3"),
    "parametrise": ("gamma to the fourth power", "nu of the stable form x 0.3", "phases of exponential forms x 0.1"),
    "angle": ("phases of exponential forms x 0.1",),
    "ring": ("phases of the ring x 0.1", "nu of the ring x 0.3", "gamma to the fourth power"),
    "gain": ("phases of the ring x 0.1", "nu of the ring x 0.3"),
    "impulse": ("phases of the ring x 0.1", "nu of the ring x 0.3"),
    "teacher": (
        "phases of the ring x 0.1",
        "nu of the ring x 0.3",
        "the dense matrix transposed",
        "moved eigenvalues of the dense matrix x 0.7",
    ),
    "bridge": ("gamma to the fourth power", "blocks transposed"),
    "hessian": (
        "gamma to the fourth power",
        "phases of exponential forms x 0.1",
        "nu of the stable form x 0.3",
        "step of the dense recurrence x 0.99",
    ),
    "adam": (
        "phases of the ring x 0.1",
        "nu of the ring x 0.3",
        "gamma to the fourth power",
        "phases of exponential forms x 0.1",
    ),
    "concentration": (
        "gamma to the fourth power",
        "phases of exponential forms x 0.1",
        "nu of the stable form x 0.3",
    ),
    "reals": ("all phases of DLR 0", "phases of kernels x 1.01"),
    "depth": ("linear maps of the network x 2", "nu of the ring x 0.3", "gamma to the fourth power"),
    "norms": ("normaliser of the RotRNN x 7",),
    "phase": ("phases of the ring x 0.1", "nu of the ring x 0.3", "gamma to the fourth power"),
}
"""Study -> the damages that its checks notice."""

CHANGES: dict[str, dict[str, Any]] = {
    "disk": {"size": [50]},
    "convolution": {"state": 10},
    "powers": {"angle": 0.5, "updates": 10},
    "parametrise": {"form": ["exponential"], "radius": [0.36, 0.99]},
    "angle": {"form": ["exponential"], "updates": 10},
    "ring": {"ring": [[0.9, 0.999]]},
    "gain": {"ring": [[0.0, 0.9]], "steps": 1000},
    "impulse": {"steps": [1024]},
    "hessian": {"network": ["dense", "lru-single"]},
    "concentration": {"architecture": ["lru"], "angle": [0.1], "rho": [0.0]},
    "reals": {"modes": [64]},
    "depth": {"model": "LRU", "time": 10.0, "rho": 0.0},
    "phase": {"normalize": True, "phase": 2.0, "length": 64},
}
"""Study -> settings with which profile "ci" takes less time here."""


def forget() -> None:
    """Programs that were compiled with other layers are compiled again when they are used."""
    for program in [
        value
        for path, module in sys.modules.items()
        if path.startswith("lrurun.studies.")
        for value in vars(module).values()
    ]:
        if hasattr(program, "cache_clear"):
            program.cache_clear()


def failed(study: str) -> list[str]:
    """The names of the checks that fail, computed with the layers as they are now."""
    forget()
    plan = planning.make(studies.get(study), "ci", CHANGES.get(study, {}))
    try:
        return [check.name for check in checks.failed(plan.study.checks(execution.in_process(plan)))]
    finally:
        forget()


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
    assert failed(study)
