"""The recipe that `lrurun data import` writes: a beginning, with values that no paper gives."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from lrurun import paths
from lrurun.config.documents import Ladder, Rung, read_ladder
from lrurun.config.export import toml_value
from lrurun.data.imported import Imported
from lrurun.decoding import canonical

_SHORT = 100
"""Steps of a sequence: up to this length, the ring of initial eigenvalues is that of sDigits."""
_EPOCHS, _FEWEST, _MOST = 50, 500, 5000
"""Steps of training are those of so many epochs, within limits."""
_RATES = [0.002, 0.004, 0.008, 0.016, 0.032]

_OURS = {
    "model.depth": "two blocks train quickly and still distinguish the rungs",
    "model.width": "small enough for a laptop",
    "model.state": "equal to the width",
    "model.recurrence.r_min": f"0.5 up to {_SHORT} steps, for a memory of tens of them; else 0.9, for hundreds",
    "model.recurrence.r_max": f"0.99 up to {_SHORT} steps, else 0.999; of a rung without r_min: the whole disk",
    "model.recurrence.max_phase": "pi/10 where the phase is the change, as on the paper's PathX; else the whole circle",
    "model.recurrence.dt_min": "the published range of most tasks, 0.001 to 0.1",
    "model.recurrence.n_ssm": "one A per channel",
    "model.recurrence.heads": "8 numbers per head",
    "model.recurrence.blocks": "the number of heads",
    "model.recurrence.c_init": "the initialisation whose scale does not depend on the width",
    "optim.lr": "untuned: --tune chooses one for each rung on validation",
    "optim.recurrent_factor": "the largest of the LRU paper's values, 0.1 to 0.5, because training is short",
    "optim.weight_decay": "the LRU paper's on most tasks",
    "train.steps": f"{_EPOCHS} epochs, at least {_FEWEST} steps and at most {_MOST}",
    "train.batch": "small, for many steps in little time",
}


def text(task: Imported, command: str) -> str:
    """The recipe of a task of imported arrays; `command` imports them."""
    facts = canonical(task.facts)
    batch = min(64, facts["train"])
    steps = min(_MOST, max(_FEWEST, _EPOCHS * facts["train"] // batch))
    tables: dict[str, dict[str, Any]] = {
        "about": {
            "source": "ours: imported arrays, of which no paper has results",
            "expect": "not known yet",
            "device": "two CPU cores",
            "hours": 0,
            "checked": "never",
        },
        "data": facts,
        "model": {"depth": 2, "width": 32, "state": 32, "norm": "batch", "glu": "full", "dropout": 0.0},
        "optim": {"lr": 0.008, "recurrent_factor": 0.5, "weight_decay": 0.05},
        "train": {"steps": steps, "batch": batch, "eval_every": steps // 10, "log_every": 10},
        "execution": {"threads": 1, "steps_per_dispatch": 50},
        "ours": {f'"{path}"': reason for path, reason in _OURS.items()},
        **dict(_rungs(facts["length"])),
        "tune.grid": {'"optim.lr"': _RATES},
        "profile.smoke": {"why": "the whole pipeline in well under a minute; the scores mean nothing", "seeds": 1},
        "profile.smoke.model": {"depth": 1, "width": 16, "state": 16},
        "profile.smoke.train": {"steps": 60, "batch": min(32, batch), "eval_every": 30, "log_every": 10},
        "profile.smoke.execution": {"steps_per_dispatch": 10},
        "profile.smoke.tune": {'"optim.lr"': [0.004, 0.016]},
    }
    head = [
        f"# {task.title}. Written by: {command}",
        "# [data] describes the arrays: import them again to change it. All other values are yours to change.",
        f"task = {toml_value(task.name)}",
        "seeds = 3",
    ]
    return "\n\n".join(["\n".join(head), *(_table(name, values) for name, values in tables.items())]) + "\n"


def _table(name: str, values: dict[str, Any]) -> str:
    return "\n".join([f"[{name}]", *(f"{key} = {toml_value(value)}" for key, value in values.items())])


def _rungs(length: int) -> Iterator[tuple[str, dict[str, Any]]]:
    """What the packaged ladders expect from a recipe: table -> values."""
    for path in sorted(paths.packaged("ablations").glob("*.toml")):
        ladder = read_ladder(str(path))
        for rung in ladder.rungs:
            if values := _values(ladder, rung, length):
                yield f"ladder.{ladder.name}.rung.{rung.name}", values


def _values(ladder: Ladder, rung: Rung, length: int) -> dict[str, Any]:
    """The values that a rung expects from its recipe, without those that it takes from other rungs."""
    taken: set[str] = set()
    for scope in ladder.scopes(rung)[:-1]:
        source = ladder if scope.ladder == ladder.name else read_ladder(scope.ladder)
        taken.update(*(one.tunes for one in source.rungs if one.name == scope.rung))
    ring = (0.5, 0.99) if length <= _SHORT else (0.9, 0.999)
    known = {
        "model.recurrence.r_min": ring[0],
        "model.recurrence.r_max": ring[1] if "model.recurrence.r_min" in rung.tunes else 1.0,
        # a rung that tunes nothing else is about the phase; others have the whole circle
        "model.recurrence.max_phase": 0.3141592653589793 if len(rung.tunes) == 1 else 6.283185307179586,
        "model.recurrence.dt_min": 0.001,
        "model.recurrence.dt_max": 0.1,
        "model.recurrence.n_ssm": 0,
        "model.recurrence.heads": 4,
        "model.recurrence.blocks": 4,
        "model.recurrence.c_init": "truncated",
    }
    return {path: known[path] for path in rung.tunes if path in known and path not in taken}
