"""A small recipe and ladder, and what tests of plans ask of them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from lrurun.config import planning
from lrurun.errors import UsageError

SMALL_RECIPE = """
task = "sDigits"

[about]
source = "ours"
expect = "anything"
device = "a core"
hours = 0
checked = "never"

[model]
depth = 1
width = 8
state = 8

[optim]
lr = 0.01
recurrent_factor = 0.5
weight_decay = 0.05

[train]
steps = 10
batch = 8
eval_every = 5

"""

RECIPE = f"""
seeds = 2
{SMALL_RECIPE}
[ladder.mine.rung.ring.model.recurrence]
r_min = 0.5
r_max = 0.9

[ladder.mine.rung.ring.optim]
lr = 0.02

[tune.grid]
"optim.lr" = [0.01, 0.02]

[profile.small]
seeds = 1

[profile.small.model]
width = 4

[profile.small.train]
steps = 4

[profile.small.execution]
threads = 2

[profile.small.ladder.mine.rung.ring.model.recurrence]
r_max = 0.8

[profile.small.tune]
"optim.lr" = [0.1, 0.2, 0.3]
"optim.weight_decay" = [0, 0.1]
"""


LADDER = """
name = "mine"
title = "mine"
source = "ours"

[[rung]]
name = "dense"
title = "dense"
change = { "model.recurrence.kind" = "dense", "model.recurrence.activation" = "tanh" }

[[rung]]
name = "plane"
title = "diagonal"
change = { "model.recurrence.kind" = "diagonal" }

[[rung]]
name = "ring"
title = "ring"
tunes = ["model.recurrence.r_min", "model.recurrence.r_max"]

[[rung]]
name = "norm"
title = "gamma"
change = { "model.recurrence.normalize" = true }
"""


def write_documents(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Makes `folder` the working directory, with the recipe and the ladder in it."""
    monkeypatch.chdir(folder)
    Path("r.toml").write_text(RECIPE)
    Path("l.toml").write_text(LADDER)
    return folder


def make(recipe: str = RECIPE, ladder: str = LADDER, **options: Any) -> planning.Plan:
    Path("r.toml").write_text(recipe)
    Path("l.toml").write_text(ladder)
    return planning.make("./r.toml", ladder="./l.toml", **options)


def error(recipe: str = RECIPE, ladder: str = LADDER, **options: Any) -> tuple[str, str | None]:
    with pytest.raises(UsageError) as caught:
        make(recipe, ladder, **options)
    assert sorted(path.name for path in Path().iterdir()) == ["l.toml", "r.toml"]
    return caught.value.message, caught.value.hint


def rungs(plan: planning.Plan) -> dict[str, planning.ResolvedRung]:
    return {rung.name: rung for rung in plan.rungs}


def differences(rung: planning.ResolvedRung) -> dict[str, Any]:
    """Name of a setting -> its value, of what the rung changes."""
    return {one.path.removeprefix("model.recurrence."): one.after for one in rung.differences}


def changed(text: str, old: str, new: str) -> str:
    assert text.count(old) == 1
    return text.replace(old, new)


def on(base: str, name: str, change: str) -> str:
    """A rung that changes an earlier one."""
    return f'\n[[rung]]\nname = "{name}"\ntitle = "x"\non = "{base}"\nchange = {{ {change} }}\n'
