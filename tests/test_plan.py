"""Plans: precedence, what each rung moves, where every value comes from, seeds and grids."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import msgspec
import pytest

from lrurun import commands, paths, strict, tasks
from lrurun import plan as planning
from lrurun.catalog import flatten, load_recipe
from lrurun.config import KIND, RECURRENCES, Execution, RunConfig, fingerprint
from lrurun.errors import UsageError

RECIPE = """
task = "sDigits"
seeds = 2

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

[rung.ring.model.recurrence]
r_min = 0.5
r_max = 0.9

[rung.ring.optim]
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

[profile.small.rung.ring.model.recurrence]
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


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    """A working directory with one recipe and one ladder."""
    monkeypatch.chdir(tmp_path)
    Path("r.toml").write_text(RECIPE)
    Path("l.toml").write_text(LADDER)
    return tmp_path


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


def moved(rung: planning.ResolvedRung) -> dict[str, Any]:
    return {move.path.removeprefix("model.recurrence."): move.after for move in rung.moves}


def changed(text: str, old: str, new: str) -> str:
    assert text.count(old) == 1
    return text.replace(old, new)


def test_each_rung_of_the_lru_ladder_moves_exactly_what_it_declares():
    made = rungs(planning.make("sDigits", sets=["optim.lr=0.01"]))  # each rung has a rate of its own otherwise
    assert moved(made["tanh-rnn"]) == {}
    assert moved(made["linear-rnn"]) == {"activation": "identity"}
    assert moved(made["diagonal"]) == {
        # another kind: its settings go, with the values that the new one starts from
        "kind": "diagonal",
        "activation": None,
        "draw": None,
        "parametrization": "cartesian",
        "phase": "plain",
        "r_min": 0.0,
        "r_max": 1.0,
        "max_phase": 6.283185307179586,
        "normalize": False,
        "conjugate": False,
        "heads": 0,
    }
    assert moved(made["exponential"]) == {"parametrization": "exponential"}
    assert moved(made["stable-exponential"]) == {"parametrization": "stable-exponential"}
    assert set(moved(made["ring-init"])) == {"r_min", "r_max"}
    assert moved(made["gamma-norm"]) == {"normalize": True}
    assert set(moved(made["small-phase"])) == {"phase", "max_phase"}


SHIPPED = sorted(
    (path.stem, profile or "")
    for path in paths.packaged("recipes").glob("*.toml")
    for profile in (None, *load_recipe(path.stem).profile)
)


LADDERS = sorted(path.stem for path in paths.packaged("ablations").glob("*.toml"))


@pytest.mark.parametrize("ladder", LADDERS)
@pytest.mark.parametrize(("task", "profile"), SHIPPED)
def test_shipped_ladders_run_on_shipped_recipes_and_declare_what_they_move(task, profile, ladder):
    made = planning.make(task, ladder=ladder, profile=profile or None)
    documents = {rung.name: rung for rung in made.ladder.rungs}
    shrink = made.recipe.profile[profile].rung if profile else {}

    def table(rung: str) -> set[str]:
        return {path for tables in (made.recipe.rung, shrink) for path, _ in flatten(tables.get(rung, {}))}

    for rung in made.rungs[1:]:
        declared = {*documents[rung.name].change, *documents[rung.name].tunes} | table(rung.name)
        # a rate that the rung before it has for itself alone is not kept
        declared |= {path for path in table(rung.on or "") if path.startswith("optim.")}
        for move in rung.moves:
            other_kind = KIND in declared and move.path.startswith("model.recurrence.")
            assert move.path in declared or other_kind, (rung.name, move)


@pytest.mark.parametrize("ladder", ["rotrnn", "ssm"])
@pytest.mark.parametrize(("task", "profile"), SHIPPED)
def test_the_lru_of_the_other_ladders_is_that_of_the_first(task, profile, ladder):
    """Its runs are shared: nothing is trained twice, and the ladders' numbers agree."""
    last = "small-phase" if task == "PathX" else "gamma-norm"  # where the paper's LRU is, see its Table 8
    wanted = []
    for name, rung in (("lru", last), (ladder, "lru")):
        made = planning.make(task, ladder=name, profile=profile or None)
        wanted.append(planning.wanted_final(made, rungs(made)[rung], (0, 1, 2)))
    assert [want.fingerprint for want in wanted[0]] == [want.fingerprint for want in wanted[1]]
    assert [want.execution for want in wanted[0]] == [want.execution for want in wanted[1]]


@pytest.mark.parametrize("task", sorted({task for task, _ in SHIPPED}))
def test_one_thing_changes_from_the_lru_to_the_rotrnn(task):
    sets = ["optim.lr=0.01", "optim.recurrent_factor=0.5"]
    made = rungs(planning.make(task, ladder="rotrnn", sets=sets))
    assert list(made) == ["lru", "conjugate-pairs", "head-decay", "rotation", "trace-norm", "rotrnn"]
    assert moved(made["conjugate-pairs"]) == {"conjugate": True}
    assert moved(made["head-decay"]) == {"heads": made["head-decay"].config.model.recurrence.heads}
    assert moved(made["trace-norm"]) == {"normalizer": "trace"}
    assert moved(made["rotrnn"])["draw"] == "log"
    assert set(moved(made["rotrnn"])) <= {"draw", "r_min", "r_max", "max_phase"}
    # the rotations have the heads, the ring and the phases of what they replace, and its gamma
    before, rotation = (made[name].config.model.recurrence for name in ("head-decay", "rotation"))
    assert (rotation.normalizer, rotation.draw, before.normalize) == ("gamma", "ring", True)
    for name in ("heads", "r_min", "r_max", "max_phase"):
        assert getattr(rotation, name) == getattr(before, name), name


@pytest.mark.parametrize("task", sorted({task for task, _ in SHIPPED}))
def test_the_forms_of_dlr_have_its_size_its_start_and_its_rates(task):
    made = rungs(planning.make(task, ladder="dlr"))
    assert {rung.config.model.state for rung in made.values()} == {made["dlr"].config.model.state}
    assert {path for path in moved(made["dlr-prod"]) if task != "sDigits" or path != "optim.lr"} == {"cast"}
    assert {path for path in moved(made["dlr-real"]) if task != "sDigits" or path != "optim.lr"} == {"poles", "weights"}


# Retyped from what the systems' authors published: a rung of each task, its state, its rate and that of its recurrent
# group, and the settings of its recurrence. S5: bin/run_experiments, whose rates are ssm_lr and lr_factor times it.
# S4D, S4: the configurations of lra, cifar and sc, those of words with the earlier size. RotRNN: Table 3. DLR: Table 9.
PUBLISHED = {
    ("s5", "ListOps"): (16, 3e-3, 1e-3, {"blocks": 8, "c_init": "lecun", "dt_min": 1e-3, "slow_b": False}),
    ("s5", "Text"): (192, 4e-3, 1e-3, {"blocks": 12, "c_init": "lecun", "dt_min": 1e-3, "slow_dt": False}),
    ("s5", "Retrieval"): (256, 2e-3, 1e-3, {"blocks": 16, "c_init": "truncated", "dt_min": 1e-3, "slow_dt": False}),
    ("s5", "Image"): (384, 4.5e-3, 1e-3, {"blocks": 3, "c_init": "lecun", "clip_eigs": True, "slow_b": False}),
    ("s5", "Pathfinder"): (256, 4.5e-3, 9e-4, {"blocks": 8, "c_init": "truncated", "dt_min": 1e-3, "slow_b": True}),
    ("s5", "PathX"): (256, 1.8e-3, 6e-4, {"blocks": 16, "c_init": "complex", "dt_min": 1e-4, "dt_max": 0.1}),
    ("s5", "SpeechCommands"): (128, 8e-3, 2e-3, {"blocks": 16, "c_init": "lecun", "dt_min": 1e-3, "slow_b": True}),
    ("s4d", "ListOps"): (64, 1e-2, 1e-3, {"n_ssm": 0, "dt_min": 1e-3, "slow_dt": False, "init": "legs"}),
    ("s4d", "Text"): (64, 1e-2, 1e-3, {"n_ssm": 0, "dt_min": 1e-3, "slow_dt": False, "init": "legs"}),
    ("s4d", "Retrieval"): (64, 1e-2, 1e-3, {"n_ssm": 0, "dt_min": 1e-3, "slow_dt": False, "init": "legs"}),
    ("s4d", "Image"): (64, 1e-2, 1e-3, {"n_ssm": 1, "dt_min": 1e-3, "slow_dt": True, "init": "legs"}),
    ("s4d", "sCIFAR"): (64, 1e-2, 1e-3, {"n_ssm": 2, "dt_min": 1e-3, "slow_dt": True, "init": "legs"}),
    ("s4d", "Pathfinder"): (64, 4e-3, 1e-3, {"n_ssm": 0, "dt_min": 1e-3, "slow_dt": True, "init": "legs"}),
    ("s4d", "PathX"): (64, 1e-3, 1e-3, {"n_ssm": 0, "dt_min": 1e-4, "slow_dt": True, "init": "legs"}),
    ("s4d", "SpeechCommands"): (64, 1e-2, 1e-3, {"n_ssm": 2, "dt_min": 1e-3, "slow_dt": True, "init": "legs"}),
    ("s4", "ListOps"): (64, 1e-2, 1e-3, {"n_ssm": 0, "dt_min": 1e-3, "slow_dt": False}),
    ("s4", "Text"): (64, 1e-2, 1e-3, {"n_ssm": 0, "dt_min": 1e-3, "slow_dt": False}),
    ("s4", "Retrieval"): (64, 1e-2, 1e-3, {"n_ssm": 0, "dt_min": 1e-3, "slow_dt": False}),
    ("s4", "Image"): (64, 1e-2, 1e-3, {"n_ssm": 1, "dt_min": 1e-3, "slow_dt": True}),
    ("s4", "sCIFAR"): (64, 1e-2, 1e-3, {"n_ssm": 2, "dt_min": 1e-3, "slow_dt": True}),
    ("s4", "Pathfinder"): (64, 4e-3, 1e-3, {"n_ssm": 0, "dt_min": 1e-3, "slow_dt": True}),
    ("s4", "PathX"): (64, 1e-3, 1e-3, {"n_ssm": 0, "dt_min": 1e-4, "slow_dt": True}),
    ("s4", "SpeechCommands"): (64, 1e-2, 1e-3, {"n_ssm": 2, "dt_min": 1e-3, "slow_dt": True}),
    ("rotrnn", "ListOps"): (256, 1e-3, 1e-3, {"heads": 32, "r_min": 0.5, "r_max": 0.999}),
    ("rotrnn", "Text"): (192, 1e-3, 1e-3, {"heads": 32, "r_min": 0.5, "r_max": 0.8}),
    ("rotrnn", "Retrieval"): (256, 1e-4, 1e-5, {"heads": 32, "r_min": 0.5, "r_max": 0.999}),
    ("rotrnn", "Image"): (384, 4.5e-3, 1e-3, {"heads": 32, "r_min": 0.99, "r_max": 0.999}),
    ("rotrnn", "Pathfinder"): (256, 4.5e-3, 1e-3, {"heads": 32, "r_min": 0.1, "r_max": 0.9999}),
    ("rotrnn", "PathX"): (256, 4.5e-3, 1e-3, {"heads": 32, "r_min": 0.999, "r_max": 0.9999}),
    ("rotrnn", "SpeechCommands"): (128, 8e-3, 1e-3, {"heads": 32, "r_min": 0.1, "r_max": 0.9999}),
    ("dlr", "ListOps"): (1024, 4e-4, 4e-4, {"dt_min": 1e-3, "dt_max": 0.5, "kernel_length": 0}),
    ("dlr", "Text"): (256, 1e-4, 1e-4, {"dt_min": 0.2, "dt_max": 0.5, "kernel_length": 0}),
    ("dlr", "Retrieval"): (256, 1e-4, 1e-4, {"dt_min": 0.05, "dt_max": 0.5, "kernel_length": 0}),
    ("dlr", "Pathfinder"): (1024, 4e-4, 4e-4, {"dt_min": 1e-4, "dt_max": 0.1, "kernel_length": 0}),
    ("dlr", "PathX"): (2048, 1e-4, 1e-4, {"dt_min": 1e-4, "dt_max": 0.1, "kernel_length": 0}),
    ("dlr", "SpeechCommands"): (2048, 1e-4, 1e-4, {"dt_min": 1e-3, "dt_max": 0.5, "kernel_length": 2000}),
}


@pytest.mark.parametrize(("rung", "task"), PUBLISHED)
def test_a_system_has_the_size_the_start_and_the_rates_of_its_publication(rung, task):
    state, lr, slow, settings = PUBLISHED[rung, task]
    config = rungs(planning.make(task, ladder="ssm" if rung in ("s5", "s4d", "s4") else rung))[rung].config
    assert config.model.state == state
    assert config.optim.lr == pytest.approx(lr)
    assert config.optim.lr * config.optim.recurrent_factor == pytest.approx(slow)
    found = msgspec.to_builtins(config.model.recurrence)
    assert {name: found[name] for name in settings} == settings
    # everything else is the recipe's: the network and the training are the same for all rungs
    recipe = load_recipe(task)
    table = msgspec.to_builtins(config.model)
    assert {name: table[name] for name in recipe.model if name != "state"} == {
        name: value for name, value in recipe.model.items() if name != "state"
    }
    assert config.optim.weight_decay == recipe.optim["weight_decay"]


def test_a_move_tells_the_value_before_the_value_after_and_whence():
    moves = rungs(make())["ring"].moves
    assert moves == (
        planning.Move("model.recurrence.r_min", 0.0, 0.5, "r.toml [rung.ring]"),
        planning.Move("model.recurrence.r_max", 1.0, 0.9, "r.toml [rung.ring]"),
        planning.Move("optim.lr", 0.01, 0.02, "r.toml [rung.ring]"),
    )
    dropped = {move.path: move for move in rungs(make())["plane"].moves}
    assert dropped["model.recurrence.activation"] == planning.Move(
        "model.recurrence.activation", "tanh", None, "l.toml, rung plane"
    )
    assert dropped["model.recurrence.r_max"].source == "default"


def test_what_a_rung_table_says_of_the_model_is_inherited_and_of_the_optimizer_is_not():
    made = rungs(make())
    assert [rung.config.optim.lr for rung in made.values()] == [0.01, 0.01, 0.02, 0.01]
    norm = made["norm"].config.model.recurrence
    assert (norm.r_min, norm.r_max, norm.normalize) == (0.5, 0.9, True)
    assert made["norm"].provenance["model.recurrence.r_min"] == "r.toml [rung.ring]"
    assert made["norm"].provenance["optim.lr"] == "r.toml"


def test_what_the_ladder_says_of_the_optimizer_is_inherited():
    kind = '"model.recurrence.kind" = "diagonal"'
    made = make(ladder=changed(LADDER, kind, f'{kind}, "optim.weight_decay" = 0'))
    assert [rung.config.optim.weight_decay for rung in made.rungs] == [0.05, 0.0, 0.0, 0.0]


def test_a_rung_with_the_values_of_the_one_before_is_as_the_rung_before():
    # the whole disk: the ring of rung.ring is where plane starts already
    disk = changed(RECIPE, "r_min = 0.5\nr_max = 0.9\n\n[rung.ring.optim]\nlr = 0.02", "r_min = 0\nr_max = 1.0")
    made = make(disk)
    assert made.same_as_before == {"ring"}
    ring, plane = rungs(made)["ring"], rungs(made)["plane"]
    assert ring.moves == ()
    assert [w.fingerprint for w in planning.wanted_final(made, ring, (0, 1))] == [
        w.fingerprint for w in planning.wanted_final(made, plane, (0, 1))
    ]
    assert make().same_as_before == frozenset()


def test_a_rung_with_its_own_rate_alone_is_not_as_the_rung_before():
    own_rate = changed(RECIPE, "r_min = 0.5\nr_max = 0.9", "r_min = 0.0\nr_max = 1.0")
    assert make(own_rate).same_as_before == frozenset()


def test_a_kind_change_drops_the_old_settings_wherever_it_is_written():
    back = LADDER + '\n[[rung]]\nname = "again"\ntitle = "x"\nchange = { "model.recurrence.kind" = "dense" }\n'
    again = rungs(make(ladder=back))["again"]
    assert msgspec.to_builtins(again.config.model.recurrence) == {
        "kind": "dense",
        "activation": "identity",
        "draw": "normal",
    }
    # in the recipe, with the kind after its settings
    late = RECIPE + '\n[rung.norm.model.recurrence]\nactivation = "relu"\nkind = "dense"\n'
    plain = changed(LADDER, '"model.recurrence.normalize" = true', '"model.depth" = 2')
    assert msgspec.to_builtins(rungs(make(late, plain))["norm"].config.model.recurrence) == {
        "kind": "dense",
        "activation": "relu",
        "draw": "normal",
    }


def on(base: str, name: str, change: str) -> str:
    """A rung that changes an earlier one."""
    return f'\n[[rung]]\nname = "{name}"\ntitle = "x"\non = "{base}"\nchange = {{ {change} }}\n'


def test_a_rung_on_an_earlier_one_starts_from_its_values():
    ladder = LADDER + on("plane", "half", '"model.recurrence.r_max" = 0.5') + on("ring", "wide", '"model.width" = 16')
    made = rungs(make(ladder=ladder))
    assert [rung.on for rung in made.values()] == [None, "dense", "plane", "ring", "plane", "ring"]
    half = made["half"]
    recurrence = half.config.model.recurrence
    assert (recurrence.r_min, recurrence.r_max, recurrence.normalize) == (0.0, 0.5, False)
    assert half.moves == (planning.Move("model.recurrence.r_max", 1.0, 0.5, "l.toml, rung half"),)
    # what [rung.ring] says of the model comes along, what it says of the optimizer stays behind
    wide = made["wide"]
    recurrence = wide.config.model.recurrence
    assert (recurrence.r_min, recurrence.r_max, recurrence.normalize) == (0.5, 0.9, False)
    assert wide.provenance["model.recurrence.r_min"] == "r.toml [rung.ring]"
    assert {move.path: (move.before, move.after) for move in wide.moves} == {
        "model.width": (8, 16),
        "optim.lr": (0.02, 0.01),
    }
    # the rungs that the branch leaves are as they are without it
    alone = rungs(make())
    assert {name: made[name] for name in alone} == alone


def test_a_rung_after_a_branch_goes_on_from_the_branch():
    kind = '"model.recurrence.kind" = "diagonal"'
    ladder = changed(LADDER, kind, f'{kind}, "optim.weight_decay" = 0') + on("dense", "relu", '"model.depth" = 2')
    ladder += '\n[[rung]]\nname = "deep"\ntitle = "x"\nchange = { "model.depth" = 3 }\n'
    made = rungs(make(ladder=ladder))
    for name, depth in (("relu", 2), ("deep", 3)):
        assert msgspec.to_builtins(made[name].config.model.recurrence)["activation"] == "tanh"
        assert (made[name].config.model.depth, made[name].config.optim.weight_decay) == (depth, 0.05)
    assert made["deep"].on == "relu"
    assert moved(made["deep"]) == {"model.depth": 3}


def test_as_before_means_as_the_rung_that_is_changed():
    # `again` is plane, two rungs on; `too` is the one before it, and yet changes ring
    ladder = LADDER + on("plane", "again", '"model.recurrence.r_max" = 1') + on("ring", "too", '"model.depth" = 1')
    same = changed(RECIPE, "[rung.ring.optim]\nlr = 0.02", "")
    made = make(same, ladder)
    assert made.same_as_before == {"again", "too"}
    assert rungs(made)["again"].moves == ()
    plane, again = (planning.wanted_final(made, rungs(made)[name], (0, 1)) for name in ("plane", "again"))
    assert [want.fingerprint for want in again] == [want.fingerprint for want in plane]
    neighbours = LADDER + on("ring", "twin", '"model.recurrence.normalize" = true')
    assert make(same, neighbours).same_as_before == frozenset()


def test_the_plan_says_which_rung_is_changed_where_it_is_not_the_one_before(folder, capsys):
    ladder = LADDER + on("plane", "half", '"model.recurrence.r_max" = 0.5')
    ladder += on("dense", "same", '"model.recurrence.activation" = "tanh"')
    Path("l.toml").write_text(ladder)
    asked = commands.Asked(
        task="./r.toml", ladder="./l.toml", profile=None, rungs=[], seeds=None, tune=False, sets=["optim.lr=0.01"]
    )
    places = paths.Places(ledger=folder / "none.db", runs=folder, data=folder)
    commands.plan(places, asked, json=True)
    rows = json.loads(capsys.readouterr().out)["rungs"]
    assert [(row["rung"], row["on"]) for row in rows] == [
        ("dense", None),
        ("plane", "dense"),
        ("ring", "plane"),
        ("norm", "ring"),
        ("half", "plane"),
        ("same", "dense"),
    ]
    commands.plan(places, asked, json=False)
    lines = [" ".join(line.split()) for line in capsys.readouterr().out.splitlines()]
    assert lines[4:8] == [
        "ring r_min = 0.5; r_max = 0.9 0/2 unknown",
        "norm normalize = true 0/2 unknown",
        "half on plane: r_max = 0.5 0/2 unknown",
        "same as dense 0/2",
    ]


def test_the_ladder_of_table_5_is_a_grid_on_its_first_rung():
    made = planning.make("sDigits", ladder="stability")
    assert len(made.rungs) == 27
    assert made.same_as_before == frozenset()
    forms = {"free": ("exponential", False), "stable": ("stable-exponential", False)}
    forms["gamma"] = ("stable-exponential", True)
    for rung in made.rungs:
        form, r_min, r_max = rung.name.split("-")
        found = rung.config.model.recurrence
        assert (found.parametrization, found.normalize) == forms[form]
        assert (found.r_min, found.r_max) == (float(r_min), float(r_max))
        base = {"free": "free-0-0.9", "stable": f"free-{r_min}-{r_max}", "gamma": f"stable-{r_min}-{r_max}"}[form]
        assert rung.on == (None if rung.name == "free-0-0.9" else base)
        assert not any(path.startswith(("optim.", "train.")) for path in moved(rung))


def test_later_wins_recipe_profile_rung_set():
    sets = ("train.steps=6", "model.recurrence.r_max=0.7", "optim.lr=0.5")
    one, two, three = make(), make(profile="small"), make(profile="small", sets=sets)
    ring = [rungs(plan)["ring"] for plan in (one, two, three)]
    assert [rung.config.model.width for rung in ring] == [8, 4, 4]
    assert [rung.config.train.steps for rung in ring] == [10, 4, 6]
    assert [rung.config.model.recurrence.r_max for rung in ring] == [0.9, 0.8, 0.7]
    assert [rung.config.optim.lr for rung in ring] == [0.02, 0.02, 0.5]
    assert [rung.execution.threads for rung in ring] == [1, 2, 2]
    assert [plan.seeds for plan in (one, two, three)] == [2, 1, 1]
    assert {rung.config.optim.lr for rung in three.rungs} == {0.5}


def test_the_provenance_of_every_value_is_kept():
    ring = rungs(make(profile="small", sets=["model.state=16"]))["ring"]
    assert ring.provenance == {
        "task": "r.toml",
        "data.version": "task sDigits",
        "seed": "the ladder's seeds",
        "model.recurrence.kind": "l.toml, rung plane",
        "model.recurrence.parametrization": "default",
        "model.recurrence.phase": "default",
        "model.recurrence.r_min": "r.toml [rung.ring]",
        "model.recurrence.r_max": "r.toml [profile.small.rung.ring]",
        "model.recurrence.max_phase": "default",
        "model.recurrence.normalize": "default",
        "model.recurrence.conjugate": "default",
        "model.recurrence.heads": "default",
        "model.depth": "r.toml",
        "model.width": "r.toml [profile.small]",
        "model.state": "--set model.state",
        "model.norm": "default",
        "model.norm_momentum": "default",
        "model.norm_place": "default",
        "model.final_norm": "default",
        "model.glu": "default",
        "model.pooling": "default",
        "optim.decay_norm_bias": "default",
        "model.dropout": "default",
        "model.dropout_mask": "default",
        "model.bidirectional": "default",
        "model.precision": "default",
        "model.parity": "default",
        "optim.lr": "r.toml [rung.ring]",
        "optim.recurrent_factor": "r.toml",
        "optim.weight_decay": "r.toml",
        "optim.warmup": "default",
        "optim.floor": "default",
        "optim.b1": "default",
        "optim.b2": "default",
        "optim.eps": "default",
        "train.steps": "r.toml [profile.small]",
        "train.batch": "r.toml",
        "train.eval_every": "r.toml",
        "train.log_every": "default",
        "train.protocol": "default",
        "execution.threads": "r.toml [profile.small]",
        "execution.steps_per_dispatch": "default",
        "execution.checkpoint_seconds": "default",
        "execution.hang_after_seconds": "default",
        "execution.scan_backend": "default",
        "execution.remat": "default",
        "execution.feed": "default",
    }


def test_wanted_runs_carry_the_provenance_of_every_value():
    made = make()
    for want in [*planning.wanted_final(made, made.rungs[2], (0,)), *planning.wanted_tuning(made, made.rungs)]:
        flat = {*dict(flatten(want.config)), *dict(flatten(want.execution, "execution."))}
        assert set(want.provenance) == flat


def test_execution_settings_change_no_fingerprint_and_no_instance():
    plain = make()
    other = make(sets=["execution.threads=3", "execution.checkpoint_seconds=0", "execution.scan_backend=sequential"])
    assert other.rungs[0].execution == Execution(threads=3, checkpoint_seconds=0.0, scan_backend="sequential")
    for one, two in zip(plain.rungs, other.rungs, strict=True):
        assert fingerprint(one.config) == fingerprint(two.config)
    assert plain.spec == other.spec == {"set": {}, "tune": False}


def test_an_instance_is_of_values_not_of_words():
    specs = [make(sets=[text]).spec for text in ("optim.lr=1", "optim.lr=1.0", " optim.lr = 1e0 ")]
    assert specs == [{"set": {"optim.lr": 1.0}, "tune": False}] * 3
    assert all(isinstance(spec["set"]["optim.lr"], float) for spec in specs)
    # and what was kept of it makes it again
    kept = make(sets=["optim.lr=1", "model.recurrence.r_max=0.75"])
    assert make(sets=kept.changes) == kept


def test_seeds_make_different_runs_of_one_config():
    made = make()
    wanted = planning.wanted_final(made, made.rungs[2], (0, 4, 7))
    assert [w.seed for w in wanted] == [w.config["seed"] for w in wanted] == [0, 4, 7]
    assert len({w.fingerprint for w in wanted}) == 3
    assert {w.stage for w in wanted} == {"train"}
    assert {msgspec.json.encode(w.config | {"seed": 0}) for w in wanted} == {msgspec.json.encode(made.rungs[2].config)}
    for want in wanted:
        assert want.fingerprint == fingerprint(strict.convert(want.config, RunConfig, "the ledger"))


def test_wanted_runs_come_in_ladder_order_tuning_before_training():
    made = make()
    positions = [
        want.position
        for rung in made.rungs
        for want in [*planning.wanted_tuning(made, [rung]), *planning.wanted_final(made, rung, (0, 999))]
    ]
    assert positions == sorted(set(positions))


def test_the_grid_is_every_combination_and_tuning_uses_its_own_seed():
    made = make(profile="small", tune=True)
    points = planning.grid_points(made.grid)
    assert points == [{"optim.lr": lr, "optim.weight_decay": wd} for lr in (0.1, 0.2, 0.3) for wd in (0, 0.1)]
    wanted = planning.wanted_tuning(made, made.rungs[2:3])
    assert [(w.config["optim"]["lr"], w.config["optim"]["weight_decay"]) for w in wanted] == [
        (p["optim.lr"], p["optim.weight_decay"]) for p in points
    ]
    assert {(w.seed, w.stage, w.rung) for w in wanted} == {(1000, "tune", "ring")}
    assert wanted[0].provenance["optim.lr"] == "the tuning grid"
    assert wanted[0].provenance["seed"] == "the seed of tuning runs"
    # a tuned final run differs from its tuning run in the seed alone
    final = planning.wanted_final(made, made.rungs[2], (0,), points[3])[0]
    assert final.config | {"seed": 1000} == wanted[3].config
    assert final.provenance["optim.lr"] == "tuned on validation"
    assert final.provenance["model.width"] == "r.toml [profile.small]"


def test_without_a_profile_the_recipes_own_grid_is_tuned():
    assert make(tune=True).grid == {"optim.lr": [0.01, 0.02]}
    assert make(tune=True).spec == {"set": {}, "tune": True}


def test_what_set_fixes_is_not_tuned():
    made = make(profile="small", tune=True, sets=["optim.lr=0.5"])
    assert made.grid == {"optim.weight_decay": [0, 0.1]}
    assert {w.config["optim"]["lr"] for w in planning.wanted_tuning(made, made.rungs)} == {0.5}
    assert error(tune=True, sets=["optim.lr=0.5"]) == (
        "--tune: nothing is left to tune, --set fixes optim.lr",
        "leave one of them out",
    )


def test_a_recipe_without_a_grid_cannot_be_tuned():
    assert error(changed(RECIPE, '[tune.grid]\n"optim.lr" = [0.01, 0.02]\n', ""), tune=True) == (
        "r.toml: has no grid to tune over",
        "add a table [tune.grid], or leave --tune out",
    )


@pytest.mark.parametrize(
    ("grid", "message"),
    [
        ("[0.01, -1]", "r.toml [tune.grid], optim.lr: expected a number > 0, found -1"),
        ("[0.01, nan]", "r.toml [tune.grid], optim.lr: expected a finite number, found nan"),
        (
            "[0.01, 1e-9]",
            "r.toml [tune.grid], optim: floor must not be larger than lr, found floor = 1e-07, lr = 1e-09",
        ),
    ],
)
def test_a_wrong_value_in_the_grid_is_refused_before_anything_is_tuned(grid, message):
    assert error(changed(RECIPE, "[0.01, 0.02]", grid))[0] == message


def test_a_set_of_what_some_rungs_have_applies_to_those():
    made = rungs(make(sets=["model.recurrence.activation=relu", "model.recurrence.normalize=true"]))
    assert [rung.config.model.recurrence for rung in made.values()] == [
        strict.convert(table, type(made[name].config.model.recurrence), "x")
        for name, table in (
            ("dense", {"kind": "dense", "activation": "relu"}),
            ("plane", {"kind": "diagonal", "normalize": True}),
            ("ring", {"kind": "diagonal", "normalize": True, "r_min": 0.5, "r_max": 0.9}),
            ("norm", {"kind": "diagonal", "normalize": True, "r_min": 0.5, "r_max": 0.9}),
        )
    ]


def test_a_set_that_no_rung_has_is_refused():
    dense = LADDER.partition('\n[[rung]]\nname = "plane"')[0]
    assert error(ladder=dense, sets=["model.recurrence.r_min=0.5"]) == (
        "--set model.recurrence.r_min: no rung of this ladder has it",
        "lrurun plan sDigits shows what the rungs have",
    )


def test_a_set_kind_replaces_the_recipes_recurrence_but_not_what_rungs_set():
    recipe = RECIPE + '\n[model.recurrence]\nkind = "dense"\nactivation = "relu"\n'
    depths = 'name = "m"\ntitle = "m"\nsource = "s"\n' + "".join(
        f'\n[[rung]]\nname = "d{depth}"\ntitle = "d"\nchange = {{ "model.depth" = {depth} }}\n' for depth in (1, 2)
    )
    made = make(recipe, depths, sets=["model.recurrence.kind=diagonal", "model.recurrence.r_min=0.5"])
    for rung in made.rungs:
        assert msgspec.to_builtins(rung.config.model.recurrence)["r_min"] == 0.5
        assert rung.provenance["model.recurrence.kind"] == "--set model.recurrence.kind"
    assert error(sets=["model.recurrence.kind=diagonal"]) == (
        "--set model.recurrence.kind=diagonal: rung dense sets model.recurrence.activation, which this kind has not "
        "(l.toml, rung dense)",
        "leave it out: what the rungs change is the ladder's",
    )


@pytest.mark.parametrize(
    ("text", "message", "hint"),
    [
        ("optim.lr", "--set optim.lr: expected path=value", "as in --set optim.lr=0.002"),
        ("=3", "--set =3: expected path=value", "as in --set optim.lr=0.002"),
        ("optim.lrate=1", "--set optim.lrate: unknown name", "did you mean 'optim.lr'?"),
        ("lr=1", "--set lr: unknown name", "did you mean 'optim.lr'?"),
        ("zzz=1", "--set zzz: unknown name", "paths begin with model., optim., train. or execution."),
        ("task=x", "--set task: unknown name", "paths begin with model., optim., train. or execution."),
        ("seed=3", "--set seed: seeds are not set this way", "use --seeds 0,1,2"),
        ("optim.lr=", '--set optim.lr: expected a number, found ""', "give it another value: --set optim.lr=..."),
        ("optim.lr=-1", "--set optim.lr: expected a number > 0, found -1", "give it another value: --set optim.lr=..."),
        (
            "optim.lr=inf",
            "--set optim.lr: expected a finite number, found inf",
            "give it another value: --set optim.lr=...",
        ),
        (
            "optim.lr=nan",
            "--set optim.lr: expected a finite number, found nan",
            "give it another value: --set optim.lr=...",
        ),
        ("optim.lr=true", "--set optim.lr: expected a number, found true", "give it another value: --set optim.lr=..."),
        (
            "optim.lr={ a = 1 }",
            "--set optim.lr: expected a number, found a table",
            "give it another value: --set optim.lr=...",
        ),
        (
            "optim.lr=[1]",
            "--set optim.lr: expected a number, found a list",
            "give it another value: --set optim.lr=...",
        ),
        (
            "optim.lr=1\ny=2",
            '--set optim.lr: expected a number, found "1\\ny=2"',
            "give it another value: --set optim.lr=...",
        ),
        (
            "train.steps=0",
            "--set train.steps: expected a whole number >= 1, found 0",
            "give it another value: --set train.steps=...",
        ),
        (
            "train.steps=1e3",
            "--set train.steps: expected a whole number, found 1000.0",
            "give it another value: --set train.steps=...",
        ),
        (
            "train.steps=99999999999999999999",
            "--set train.steps: expected a whole number <= 2147483647, found 99999999999999999999",
            "give it another value: --set train.steps=...",
        ),
        (
            "train.steps=" + "9" * 5000,
            f'--set train.steps: expected a whole number, found "{"9" * 56}...',
            "give it another value: --set train.steps=...",
        ),
        (
            "model.norm=btach",
            '--set model.norm: expected one of batch, layer, found "btach"',
            "did you mean 'batch'? known values: batch, layer",
        ),
        (
            "model.recurrence.kind=dens",
            f'--set model.recurrence.kind: expected one of {", ".join(RECURRENCES)}, found "dens"',
            f"did you mean 'dense'? known values: {', '.join(RECURRENCES)}",
        ),
        (
            "model.recurrence.kind=[1]",
            "--set model.recurrence.kind: expected a string, found a list",
            "give it another value: --set model.recurrence.kind=...",
        ),
        (
            "model.recurrence.r_min=0.95",
            "--set model.recurrence.r_min: r_min must not be larger than r_max, found r_min = 0.95, r_max = 0.9",
            "change one of the values named above",
        ),
        (
            "optim.floor=0.5",
            "--set optim.floor: floor must not be larger than lr, found floor = 0.5, lr = 0.01",
            "change one of the values named above",
        ),
        (
            "execution.threads=0",
            "--set execution.threads: expected a whole number >= 1, found 0",
            "give it another value: --set execution.threads=...",
        ),
    ],
)
def test_a_wrong_set_is_refused(text, message, hint):
    assert error(sets=[text]) == (message, hint)


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("optim.lr=1e-3", 1e-3),
        ("model.norm=layer", "layer"),
        ('model.norm="layer"', "layer"),
        ("model.bidirectional=true", True),
        ("model.glu=a=b", "a=b"),
    ],
)
def test_a_set_is_toml_or_a_word(text, value):
    assert planning.parse_set(text) == (text.partition("=")[0], value)


@pytest.mark.parametrize(
    ("recipe", "ladder", "message", "hint"),
    [
        (
            changed(RECIPE, "lr = 0.01", "lr = -1"),
            LADDER,
            "r.toml, optim.lr: expected a number > 0, found -1",
            "change optim.lr in r.toml",
        ),
        (
            changed(RECIPE, "[rung.ring.optim]\nlr = 0.02", "[rung.ring.optim]\nlr = inf"),
            LADDER,
            "r.toml [rung.ring], optim.lr: expected a finite number, found inf",
            "change optim.lr in r.toml [rung.ring]",
        ),
        (
            changed(RECIPE, "r_min = 0.5\nr_max = 0.9", "r_min = 0.9\nr_max = 0.5"),
            LADDER,
            "r.toml [rung.ring], model.recurrence: r_min must not be larger than r_max, found r_min = 0.9, r_max = 0.5",
            "change one of the values named above",
        ),
        (
            changed(RECIPE, "depth = 1\n", ""),
            LADDER,
            "r.toml, model.depth: missing",
            "add depth to model",
        ),
        (
            changed(RECIPE, "[train]\nsteps = 10", "[execution]\nthreads = 1.5\n[train]\nsteps = 10"),
            LADDER,
            "r.toml, execution.threads: expected a whole number, found 1.5",
            "change execution.threads in r.toml",
        ),
        (
            changed(RECIPE, "r_min = 0.5\n", ""),
            LADDER,
            "r.toml: [rung.ring] gives no model.recurrence.r_min, which ladder mine leaves to it",
            "add model.recurrence.r_min to [rung.ring], or write it into the ladder's rung",
        ),
        (
            changed(RECIPE, '"sDigits"', '"sDigit"'),
            LADDER,
            "r.toml, task: unknown task 'sDigit'",
            f"did you mean 'sDigits'? tasks: {', '.join(tasks.TASKS)}",
        ),
        (
            RECIPE,
            changed(LADDER, '"model.recurrence.normalize" = true', '"model.recurrence.normalize" = 1'),
            "l.toml, rung norm, model.recurrence.normalize: expected true or false, found 1",
            "change model.recurrence.normalize in l.toml, rung norm",
        ),
        (
            RECIPE,
            changed(LADDER, '"model.recurrence.normalize" = true', '"model.recurrence.activation" = "relu"'),
            "l.toml, rung norm, model.recurrence.activation: unknown name",
            "did you mean 'parametrization'? known names here: kind, parametrization, phase, r_min, r_max, max_phase, "
            "normalize, conjugate, heads",
        ),
        (
            RECIPE,
            changed(
                LADDER, '"model.recurrence.kind" = "dense", "model.recurrence.activation" = "tanh"', '"model.depth" = 2'
            ),
            "r.toml, model.recurrence: missing",
            "add recurrence to model",
        ),
    ],
)
def test_wrong_values_are_told_with_the_file_they_stand_in(recipe, ladder, message, hint):
    assert error(recipe, ladder) == (message, hint)


def test_unknown_profiles_and_rungs_get_the_nearest_one():
    assert error(profile="smal") == ("r.toml: unknown profile 'smal'", "did you mean 'small'? profiles: small")
    with pytest.raises(UsageError) as caught:
        planning.choose_rungs(make(), ["dense", "rign"])
    assert caught.value.message == "l.toml: unknown rung 'rign'"
    assert caught.value.hint == "did you mean 'ring'? rungs: dense, plane, ring, norm"


def test_rungs_are_chosen_in_ladder_order():
    made = make()
    assert [rung.name for rung in planning.choose_rungs(made, ["norm", "dense"])] == ["dense", "norm"]
    assert planning.choose_rungs(made, []) == made.rungs


@pytest.mark.parametrize(
    ("text", "seeds"),
    [
        ("1", (0,)),
        ("3", (0, 1, 2)),
        ("0,4,7", (0, 4, 7)),
        ("7,4", (7, 4)),
        ("4,", (4,)),
        ("1000", tuple(range(1000))),
        ("999,0", (999, 0)),
    ],
)
def test_seeds_are_a_number_or_a_list(text, seeds):
    assert planning.seeds_of(text) == seeds


HOW = "a number of seeds, as in --seeds 3, or a list, as in --seeds 0,4,7"


@pytest.mark.parametrize(
    ("text", "message", "hint"),
    [
        ("0", "at least one seed is needed", HOW),
        ("-3", "at least one seed is needed", HOW),
        ("3.5", "expected whole numbers", HOW),
        ("", "expected whole numbers", HOW),
        (",", "expected whole numbers", HOW),
        ("0,,1", "expected whole numbers", HOW),
        ("many", "expected whole numbers", HOW),
        ("1_0", "expected whole numbers", HOW),
        ("٣", "expected whole numbers", HOW),
        ("1e3", "expected whole numbers", HOW),
        ("9" * 5000, "expected whole numbers", HOW),
        ("0,1,0", "a seed is named twice", HOW),
        ("0,00", "a seed is named twice", HOW),
        ("0,-1", "seeds lie between 0 and 999", "1000 is the seed of tuning runs"),
        ("1000,", "seeds lie between 0 and 999", "1000 is the seed of tuning runs"),
        ("1001", "seeds lie between 0 and 999", "1000 is the seed of tuning runs"),
        ("999999999", "seeds lie between 0 and 999", "1000 is the seed of tuning runs"),
    ],
)
def test_other_seeds_are_refused(text, message, hint):
    with pytest.raises(UsageError) as caught:
        planning.seeds_of(text)
    assert (caught.value.message, caught.value.hint) == (f"--seeds {text}: {message}", hint)


def test_every_known_path_is_one_that_a_config_has():
    made = make()
    flat = {path for rung in made.rungs for path in flatten(planning.plain(rung.config))} - {("seed", 0)}
    names = {path for path, _ in flat} - {"seed", "task", "data.version"}
    names |= {path for path, _ in flatten(planning.plain(made.rungs[0].execution), "execution.")}
    # settings of kinds that no rung has
    names |= {p for kind in RECURRENCES.values() for p, _ in flatten(planning.plain(kind()), "model.recurrence.")}
    assert sorted(planning.known_paths()) == sorted(names)


def test_protocol_that_the_task_does_not_know_is_refused() -> None:
    with pytest.raises(UsageError) as caught:
        planning.make("sDigits", sets=["train.protocol=paper"])
    assert caught.value.message == "--set train.protocol: sDigits has no protocol 'paper'"
    assert caught.value.hint == "protocols of this task: holdout"


def test_point_is_chosen_on_validation_and_ties_go_to_the_lower_loss() -> None:
    made = planning.make("sDigits", profile="smoke", tune=True)
    low, high = planning.grid_points(made.grid)

    def result(accuracy: float, loss: float) -> dict[str, float]:
        return {"val/accuracy": accuracy, "val/loss": loss, "test/accuracy": 1 - accuracy}

    assert planning.choose_point(made, [result(0.9, 0.2), result(0.8, 0.1)]) == low
    assert planning.choose_point(made, [result(0.9, 0.2), result(0.9, 0.1)]) == high
    assert planning.choose_point(made, [result(0.9, 0.2), result(0.9, 0.2)]) == low
    assert planning.choose_point(made, [None, result(0.1, 3.0)]) == high
    assert planning.choose_point(made, [result(0.9, float("nan")), result(0.1, 3.0)]) == high
    assert planning.choose_point(made, [None, None]) is None
