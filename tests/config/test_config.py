"""The configuration of a run: strict types, ranges, and fingerprints that never change."""

from __future__ import annotations

import copy
import json
from importlib import import_module
from pathlib import Path
from pkgutil import iter_modules
from typing import Any

import msgspec
import pytest

from lrurun.config import recurrences, schema
from lrurun.config.fingerprint import CONFIG_VERSION, compiled_key, fingerprint, program_key
from lrurun.config.optimizers import OPTIMIZERS, OptimConfig
from lrurun.config.recurrences import KINDS
from lrurun.config.schema import Execution, RunConfig
from lrurun.errors import UsageError
from tests.harness.optims import NEEDED

BASE: dict[str, Any] = {
    "task": "sDigits",
    "data": {"version": "1"},
    "model": {"recurrence": {"kind": "dense", "activation": "tanh"}, "depth": 2, "width": 32, "state": 32},
    "optim": {"lr": 0.008, "recurrent_factor": 0.5, "weight_decay": 0.05},
    "train": {"steps": 1000, "batch": 64, "eval_every": 100},
    "seed": 0,
}
RING = {"kind": "diagonal", "r_min": 0.5, "r_max": 0.99}


def table(**changes: Any) -> dict[str, Any]:
    """The base with `section__name=value` put in."""
    made = copy.deepcopy(BASE)
    for path, value in changes.items():
        *parents, name = path.split("__")
        here = made
        for parent in parents:
            here = here[parent]
        here[name] = value
    return made


def make(**changes: Any) -> RunConfig:
    return schema.decode(table(**changes), RunConfig, "recipes/x.toml")


# These must never change: finished runs are found by them. If one changes, a default or a field means something else,
# and CONFIG_VERSION has to be raised instead.
FINGERPRINTS: list[tuple[dict[str, Any], str]] = [
    ({}, "sha256:20f1595753ddcd83fad338e8e5297d7ff3ae3b4b1ade9764fe1a4e3e40890a1f"),
    ({"seed": 1}, "sha256:bce7f72e841a016f1f4ebf69245fcf9fdc00e6c89c36c1d1cfd8aff40bfe47d5"),
    ({"seed": 1000}, "sha256:bb3ca3fe648915d4620f22856dab25e26e95d4df06ee2312fb5d2f89a9983503"),
    (
        {"model__recurrence": {"kind": "dense"}},
        "sha256:811176543ade18c0acad07f55f32161246d37902701ec5e7c63e0913ab9fc27b",
    ),
    (
        {"model__recurrence": {"kind": "diagonal", "parametrization": "cartesian"}},
        "sha256:2b516051fb2f29a316054a6af7bf5988407955f105a4bc68cc2b633bb2a5f410",
    ),
    (
        {"model__recurrence": {"kind": "diagonal"}},
        "sha256:9c915d7a32cf4f5b43e7fb297b6a57783b7a0f0b91155a4fb4712f35389b3c43",
    ),
    (
        {"model__recurrence": {"kind": "diagonal", "r_min": 0.5, "r_max": 0.99}},
        "sha256:33db94176008e03e551156dae94f8bcde5eaaf53af754383509c494f39a3d430",
    ),
    (
        {
            "model__recurrence": {
                "kind": "diagonal",
                "r_min": 0.5,
                "r_max": 0.99,
                "normalize": True,
                "phase": "log",
                "max_phase": 0.3141592653589793,
            }
        },
        "sha256:c43932722261bd243067944ed32d8a47c020748e5ba51f44b8927d537d3cbf10",
    ),
    (
        {
            "task": "ListOps",
            "data__version": "2",
            "model__norm": "layer",
            "model__glu": "half",
            "model__dropout": 0.1,
            "model__bidirectional": True,
            "model__norm_momentum": 0.9,
            "model__parity": "reference",
        },
        "sha256:74ce6f8c8937d4e730cd26e8478f382adff2920aecb584be7fd917680280ecd3",
    ),
    (
        {
            "optim__lr": 0.001,
            "optim__weight_decay": 0,
            "optim__warmup": 0.0,
            "optim__floor": 1e-06,
            "optim__b1": 0.8,
            "optim__b2": 0.99,
            "optim__eps": 1e-09,
            "train__steps": 180000,
            "train__log_every": 100,
            "train__protocol": "paper",
        },
        "sha256:43870d67d55942d96fa794c698170f72e4ad785974329bb275f0d13386e82864",
    ),
]


@pytest.mark.parametrize(("changes", "expected"), FINGERPRINTS)
def test_fingerprints_never_change(changes, expected):
    assert fingerprint(make(**changes)) == expected


def every_default(value: msgspec.Struct, prefix: str = "") -> dict[str, Any]:
    found = {}
    for field in msgspec.structs.fields(type(value)):
        item = getattr(value, field.name)
        if isinstance(item, msgspec.Struct):
            found |= every_default(item, f"{prefix}{field.name}__")
        elif field.default is not msgspec.NODEFAULT:
            found[f"{prefix}{field.name}"] = field.default
    return found


def test_defaults_change_only_together_with_the_config_version():
    """Of `RunConfig`, of every kind and of every optimiser; those of a new one are added to the file."""
    # defaults are left out of the hash: another default under the same version would rename what finished runs were
    found = every_default(make())
    assert CONFIG_VERSION == 1
    known = json.loads((Path(__file__).parent / "defaults.json").read_text())
    assert {
        path.replace("__", "."): value for path, value in found.items() if not path.startswith("model__recurrence__")
    } == known.pop("run")
    assert {name: own_defaults(declaration.settings) for name, declaration in OPTIMIZERS.items()} == known.pop("optim")
    assert {name: msgspec.to_builtins(kind.settings()) for name, kind in KINDS.items()} == {
        name: {"kind": name, **values} for name, values in known.items()
    }


def own_defaults(optim: type[OptimConfig]) -> dict[str, Any]:
    """The defaults of the settings that an optimiser alone has."""
    fields = msgspec.structs.fields(optim)
    return {field.name: field.default for field in fields if field.name not in OptimConfig.__struct_fields__}


def test_configurations_are_frozen_and_named():
    """A fingerprint is that of its configuration for good."""
    parts = [type(getattr(make(), name)) for name in ("model", "optim", "train")]
    choices = [declaration.settings for declaration in (*KINDS.values(), *OPTIMIZERS.values())]
    for struct in (RunConfig, *parts, *choices):
        assert struct.__struct_config__.frozen, struct
        assert msgspec.structs.fields(struct) == () or not struct.__match_args__, struct


def test_every_kind_that_a_module_declares_is_known():
    modules = [import_module(f"{recurrences.__name__}.{one.name}") for one in iter_modules(recurrences.__path__)]
    assert sorted(one.kind for module in modules for one in getattr(module, "DECLARATIONS", ())) == sorted(KINDS)


@pytest.mark.parametrize("recurrence", [{"kind": "dense"}, {"kind": "diagonal"}])
def test_defaults_written_out_do_not_change_the_fingerprint(recurrence):
    plain = make(model__recurrence=recurrence)
    defaults = every_default(plain)
    assert {"model__norm", "optim__warmup", "train__log_every"} < set(defaults)
    written = make(model__recurrence=dict(recurrence), **defaults)
    assert written == plain
    assert fingerprint(written) == fingerprint(plain)


def test_every_field_changes_the_fingerprint():
    changes = {path: another(path, value) for path, value in _values(msgspec.to_builtins(make())).items()}
    del changes["model__recurrence__kind"], changes["optim__name"]
    needs: dict[str, dict[str, Any]] = {
        "model__experts": {"model__glu": "switch"},
        "model__feed_forward_ratio": {"model__feed_forward": 1},
        "model__conv_activation": {"model__conv": 4},
        "model__branch": {"model__glu": "none"},
        "model__expand": {"model__glu": "none", "model__branch": "gelu"},
        "optim__cooldown": {"optim__schedule": "wsd"},
        "optim__clip_by": {"optim__clip": 1.0},
        "optim__average_decay": {"optim__average": "ema"},
    }
    found = {fingerprint(make(**needs.get(path, {}), **{path: value})) for path, value in changes.items()}
    others = {fingerprint(make(**changes)) for changes in ({}, {"model__glu": "switch"}, {"optim__schedule": "wsd"})}
    assert len(found | others) == len(changes) + 3


def test_every_setting_of_every_optimiser_changes_the_fingerprint():
    found = [fingerprint(make())]
    for name, declaration in OPTIMIZERS.items():
        plain = {f"optim__{setting}": value for setting, value in {"name": name, **NEEDED.get(name, {})}.items()}
        found += [fingerprint(make(**plain))] if name != "adamw" else []
        for setting, value in own_defaults(declaration.settings).items():
            needs = {"optim__momentum": 0.9} if setting == "nesterov" and name == "sgd" else {}
            found.append(fingerprint(make(**plain, **needs, **{f"optim__{setting}": another(setting, value)})))
    assert len(set(found)) == len(found) == 1 + 3 + 4 + 3 + 3 + 8 + 4 + 5 + 8 + 4


def _values(nested: dict[str, Any], prefix: str = "") -> dict[str, Any]:
    found = {}
    for key, value in nested.items():
        found |= _values(value, f"{prefix}{key}__") if isinstance(value, dict) else {prefix + key: value}
    return found


CHOICES = {
    "frame": "none", "norm": "layer", "norm_place": "post", "glu": "half", "conv_activation": "silu", "branch": "gelu",
    "pooling": "max", "head_activation": "gelu", "dropout_mask": "position", "parity": "reference",
    "precision": "bf16", "activation": "relu", "draw": "truncated", "schedule": "constant", "protocol": "paper",
    "clip_by": "block-rms", "average": "ema",
}  # fmt: skip


def another(path: str, value: Any) -> Any:
    """Another value that the setting may have."""
    if value is None:
        return 0.5 if path == "beta3" else 5
    if isinstance(value, bool):
        return not value
    if isinstance(value, str):
        return CHOICES.get(path.rpartition("__")[2], "2")
    return value + 1 if isinstance(value, int) else value / 2 or 0.1


def test_the_fingerprint_is_of_values_not_of_how_they_are_written():
    assert fingerprint(make(optim__lr=1, optim__weight_decay=0)) == fingerprint(
        make(optim__lr=1.0, optim__weight_decay=-0.0)
    )
    backwards = {name: table()[name] for name in reversed(list(table()))}
    assert fingerprint(schema.decode(backwards, RunConfig, "x")) == fingerprint(make())


def test_a_config_survives_the_ledgers_plain_table():
    made = make(model__recurrence=RING, optim__floor=0, seed=7)
    again = schema.decode(json.loads(json.dumps(msgspec.to_builtins(made))), RunConfig, "the ledger")
    assert again == made
    assert fingerprint(again) == fingerprint(made)


@pytest.mark.parametrize("key_of", [compiled_key, program_key])
def test_runs_that_differ_in_seed_and_peak_rate_alone_share_a_program(key_of):
    execution = Execution()
    key = key_of(make(), execution)
    assert key_of(make(seed=5, optim__lr=0.002), execution) == key
    assert key_of(make(optim__weight_decay=0.1), execution) != key
    assert key_of(make(), Execution(scan_backend="sequential")) != key
    assert key_of(make(), Execution(devices=2)) != key


def test_rungs_that_differ_in_initial_values_alone_share_a_program_but_are_not_trained_together():
    plain, ring, other = (
        make(model__recurrence=DIAGONAL | settings)
        for settings in ({}, {"r_min": 0.5, "r_max": 0.99}, {"r_min": 0.5, "normalize": True})
    )
    execution = Execution()
    assert program_key(plain, execution) == program_key(ring, execution) != program_key(other, execution)
    assert compiled_key(plain, execution) != compiled_key(ring, execution)


def test_trainings_of_other_lengths_share_a_program_but_are_not_trained_together():
    long, short = make(), make(train__steps=300)
    assert program_key(long, Execution()) == program_key(short, Execution())
    assert compiled_key(long, Execution()) != compiled_key(short, Execution())


DIAGONAL = {"kind": "diagonal"}
WRONG = [
    ({"optim__lr": -1}, "optim.lr: expected a number > 0, found -1", "change optim.lr in recipes/x.toml"),
    ({"optim__lr": 11}, "optim.lr: expected a number <= 10, found 11", "change optim.lr"),
    ({"optim__lr": "fast"}, 'optim.lr: expected a number, found "fast"', "change optim.lr"),
    ({"optim__lr": True}, "optim.lr: expected a number, found true", "change optim.lr"),
    ({"optim__lr": float("nan")}, "optim.lr: expected a finite number, found nan", "change optim.lr"),
    ({"optim__weight_decay": float("inf")}, "optim.weight_decay: expected a finite number, found inf", "change"),
    ({"optim__weight_decay": float("-inf")}, "optim.weight_decay: expected a finite number, found -inf", "change"),
    ({"optim__lr": 10**400}, f"optim.lr: expected a number <= 10, found 1{'0' * 56}...", "change optim.lr"),
    ({"optim__lr": 10**5000}, "optim.lr: expected a number <= 10, found a very long number", "change optim.lr"),
    ({"train__steps": 10**20}, f"train.steps: expected a whole number <= 2147483647, found 1{'0' * 20}", "change"),
    ({"train__steps": 10.0}, "train.steps: expected a whole number, found 10.0", "change train.steps"),
    ({"train__steps": True}, "train.steps: expected a whole number, found true", "change train.steps"),
    ({"model__bidirectional": 1}, "model.bidirectional: expected true or false, found 1", "change model.bidirectional"),
    ({"model__norm": "batsch"}, 'model.norm: expected one of batch, layer, found "batsch"', "did you mean 'batch'?"),
    ({"model__recurrence": {"kind": "diag"}}, f"model.recurrence.kind: expected one of {', '.join(KINDS)}", "did you"),
    ({"model__recurrence": {"r_min": 0.5}}, "model.recurrence.kind: missing", "add kind to model.recurrence"),
    ({"model__recurrence": {"kind": "dense", "r_min": 0.5}}, "model.recurrence.r_min: unknown name", "known names"),
    ({"model__recurrence": DIAGONAL | {"rmin": 0.5}}, "model.recurrence.rmin: unknown name", "did you mean 'r_min'?"),
    ({"model__recurrence": DIAGONAL | {"r_min": 0.9, "r_max": 0.5}},
     "model.recurrence: r_min must not be larger than r_max, found r_min = 0.9, r_max = 0.5", "change one of the"),
    ({"model__recurrence": DIAGONAL | {"phase": "log", "parametrization": "cartesian"}},
     'model.recurrence: phase = "log" needs an exponential parametrization, found', "change one of the values"),
    ({"optim__floor": 0.5}, "optim: floor must not be larger than lr, found floor = 0.5, lr = 0.008", "change one of"),
    ({"optim": 3}, "optim: expected a table, found 3", "change optim in recipes/x.toml"),
    ({"seed": [1]}, "seed: expected a whole number, found a list", "change seed in recipes/x.toml"),
    ({"sead": 1}, "sead: unknown name", "did you mean 'seed'? known names here: task, data, model, optim, train,"),
    # settings that would change nothing
    ({"model__experts": 4}, 'model: experts needs glu = "switch", found glu = "full", experts = 4', "change one of"),
    ({"model__frame": "none", "model__glu": "half"}, 'model: glu needs frame = "blocks", found', "change"),
    ({"model__feed_forward_ratio": 16}, "model: feed_forward_ratio = 16 needs feed_forward, found 0", "change one of"),
    ({"model__frame": "none", "model__feed_forward": 2}, 'model: feed_forward needs frame = "blocks", found', "change"),
    ({"model__frame": "none", "model__experts": 4}, 'model: experts needs glu = "switch"', "change one of"),
]  # fmt: skip


@pytest.mark.parametrize(("changes", "message", "hint"), [pytest.param(*one, id=one[1]) for one in WRONG])
def test_errors_have_path_rule_value_and_next_step(changes, message, hint):
    with pytest.raises(UsageError) as caught:
        make(**changes)
    assert caught.value.message.startswith(f"recipes/x.toml, {message}")
    assert str(caught.value.hint).startswith(hint)


def test_a_missing_field_is_named_with_its_table():
    without = table()
    del without["model"]["depth"]
    with pytest.raises(UsageError) as caught:
        schema.decode(without, RunConfig, "recipes/x.toml")
    assert (caught.value.message, caught.value.hint) == ("recipes/x.toml, model.depth: missing", "add depth to model")


def test_errors_name_the_source_of_a_value_before_the_document():
    with pytest.raises(UsageError) as caught:
        schema.decode(table(optim__lr=-1), RunConfig, "recipes/x.toml", {"optim.lr": "--set optim.lr"})
    assert caught.value.message == "--set optim.lr: expected a number > 0, found -1"
    assert caught.value.hint == "give it another value: --set optim.lr=..."


def test_a_thin_ring_and_a_constant_rate_are_allowed():
    assert make(optim__floor=0.008).optim.floor == make().optim.lr
    made = make(model__recurrence={"kind": "diagonal", "r_min": 0.9, "r_max": 0.9})
    assert made.model.recurrence.r_min == made.model.recurrence.r_max == 0.9


def test_every_number_is_bounded_on_both_sides():
    def types(struct: type) -> None:
        for field in msgspec.inspect.type_info(struct).fields:
            kinds = [field.type, *getattr(field.type, "types", ())]
            for kind in kinds:
                if isinstance(kind, msgspec.inspect.IntType | msgspec.inspect.FloatType):
                    assert (kind.ge is not None) or (kind.gt is not None), (struct, field.name)
                    assert (kind.le is not None) or (kind.lt is not None), (struct, field.name)
                if isinstance(kind, msgspec.inspect.StructType):
                    types(kind.cls)

    for struct in (RunConfig, Execution, *(declaration.settings for declaration in OPTIMIZERS.values())):
        types(struct)
