"""The defaults of every recurrence: fingerprints leave them out."""

import importlib
from pkgutil import iter_modules

import msgspec
import pytest

from lrurun.config import recurrences as package
from lrurun.config import schema
from lrurun.config.recurrences import KINDS

MINGRU = {
    "negative": False,
    "gates": "input",
    "readout": True,
    "candidate": "positive",
    "form": "plain",
    "initial": "learned",
}

DEFAULTS = {
    "attention": {"heads": 4, "chunk": 0, "positions": "rotary"},
    "block-diagonal": {"tied": False, "doubled": False, "r_min": 0.0, "r_max": 1.0, "max_phase": 3.141592653589793},
    "dense": {"activation": "identity", "draw": "normal", "radius": 0.0},
    "diagonal": {
        "parametrization": "stable-exponential",
        "phase": "plain",
        "r_min": 0.0,
        "r_max": 1.0,
        "max_phase": 6.283185307179586,
        "normalize": False,
        "train_gamma": True,
        "conjugate": False,
        "heads": 0,
    },
    "gru": {"t_max": 0.0, "t_min": 2.0},
    "lstm": {"t_max": 0.0, "t_min": 2.0},
    "hgrn": {"negative": False, "gates": "input", "readout": True, "bound": "layer"},
    "mingru": MINGRU,
    "minlstm": MINGRU | {"normalised": False, "forget_bias": 3.0},
    "s6": {
        "negative": False,
        "gates": "input",
        "delta": "low-rank",
        "rank": 0,
        "b": "selective",
        "c": "selective",
        "discretization": "euler",
        "heads": 0,
        "skip": True,
        "dt_min": 0.001,
        "dt_max": 0.1,
    },
    "rg-lru": {
        "negative": False,
        "gates": "input",
        "mixing": "elementwise",
        "decay": "softplus",
        "recurrence_gate": True,
        "input_gate": True,
        "multiplier": "sqrt",
        "init": "code",
        "gate_blocks": 16,
        "gate_fan": "block",
        "first": "plain",
        "complex": False,
        "r_min": 0.9,
        "r_max": 0.999,
    },
    "rotrnn": {
        "heads": 1,
        "r_min": 0.9,
        "r_max": 0.999,
        "draw": "log",
        "max_phase": 6.283185307179586,
        "normalizer": "trace",
        "slow_rotations": True,
    },
    "dlr": {
        "cast": "real",
        "poles": "complex",
        "weights": "complex",
        "phases": "uniform",
        "dt_min": 0.0005,
        "dt_max": 0.5,
        "kernel_length": 0,
    },
    "dss": {"init": "lin", "dt_min": 0.001, "dt_max": 0.1, "kernel_length": 0},
    "s4": {"dt_min": 0.001, "dt_max": 0.1, "n_ssm": 0, "slow_dt": True, "clip_b": False},
    "s4d": {
        "init": "lin",
        "discretization": "zoh",
        "dt_min": 0.001,
        "dt_max": 0.1,
        "n_ssm": 0,
        "train_b": True,
        "shared_dt": True,
        "slow_dt": True,
    },
    "sgconv": {"alpha_min": 0.5, "alpha_max": 0.5, "train_alpha": False, "init": "one", "kernel_length": 0},
    "s5": {
        "blocks": 1,
        "conj_sym": True,
        "discretization": "zoh",
        "c_init": "truncated",
        "dt_min": 0.001,
        "dt_max": 0.1,
        "clip_eigs": False,
        "slow_b": True,
        "slow_dt": True,
    },
}
"""Of every kind: a new one is added here."""


def test_every_kind_that_a_module_declares_is_known():
    modules = [importlib.import_module(f"{package.__name__}.{one.name}") for one in iter_modules(package.__path__)]
    declared = [one.kind for module in modules for one in getattr(module, "DECLARATIONS", ())]
    assert sorted(declared) == sorted(KINDS)


@pytest.mark.parametrize("kind", KINDS)
def test_defaults_of_a_kind_change_only_together_with_the_config_version(kind):
    assert schema.CONFIG_VERSION == 1
    assert msgspec.to_builtins(KINDS[kind].settings()) == {"kind": kind, **DEFAULTS[kind]}
