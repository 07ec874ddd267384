"""Plans: precedence, what each rung changes, where every value comes from."""

from __future__ import annotations

import json
from pathlib import Path

import msgspec
import pytest

from lrurun.__main__ import run
from lrurun.config import plan as planning
from lrurun.config.plan import final_runs
from lrurun.config.resolve import Difference
from lrurun.config.schema import Execution, fingerprint
from lrurun.errors import UsageError
from tests.harness.plans import LADDER, RECIPE, changed, differences, error, make, on, rungs, write_documents


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    return write_documents(tmp_path, monkeypatch)


def test_a_difference_has_both_values_and_the_source():
    moves = rungs(make())["ring"].differences
    assert moves == (
        Difference("model.recurrence.r_min", 0.0, 0.5, "r.toml [ladder.mine.rung.ring]"),
        Difference("model.recurrence.r_max", 1.0, 0.9, "r.toml [ladder.mine.rung.ring]"),
        Difference("optim.lr", 0.01, 0.02, "r.toml [ladder.mine.rung.ring]"),
    )
    dropped = {move.path: move for move in rungs(make())["plane"].differences}
    assert dropped["model.recurrence.activation"] == Difference(
        "model.recurrence.activation", "tanh", None, "l.toml, rung plane"
    )
    assert dropped["model.recurrence.r_max"].source == "default"


def test_model_values_of_a_rung_table_are_inherited_and_optimizer_values_are_not():
    made = rungs(make())
    assert [rung.config.optim.lr for rung in made.values()] == [0.01, 0.01, 0.02, 0.01]
    norm = made["norm"].config.model.recurrence
    assert (norm.r_min, norm.r_max, norm.normalize) == (0.5, 0.9, True)
    assert made["norm"].sources["model.recurrence.r_min"] == "r.toml [ladder.mine.rung.ring]"
    assert made["norm"].sources["optim.lr"] == "r.toml"


def test_optimizer_values_of_the_ladder_are_inherited():
    kind = '"model.recurrence.kind" = "diagonal"'
    made = make(ladder=changed(LADDER, kind, f'{kind}, "optim.weight_decay" = 0'))
    assert [rung.config.optim.weight_decay for rung in made.rungs] == [0.05, 0.0, 0.0, 0.0]


def test_a_rung_with_the_values_of_its_base_shares_its_runs():
    # the whole disk: the ring of rung.ring is where plane starts already
    disk = changed(
        RECIPE, "r_min = 0.5\nr_max = 0.9\n\n[ladder.mine.rung.ring.optim]\nlr = 0.02", "r_min = 0\nr_max = 1.0"
    )
    made = make(disk)
    assert made.same_as_base == {"ring"}
    ring, plane = rungs(made)["ring"], rungs(made)["plane"]
    assert ring.differences == ()
    assert [w.fingerprint for w in final_runs(made, ring, (0, 1))] == [
        w.fingerprint for w in final_runs(made, plane, (0, 1))
    ]
    assert make().same_as_base == frozenset()


def test_a_rung_that_differs_only_in_its_learning_rate_shares_no_runs():
    own_rate = changed(RECIPE, "r_min = 0.5\nr_max = 0.9", "r_min = 0.0\nr_max = 1.0")
    assert make(own_rate).same_as_base == frozenset()


def test_a_kind_change_drops_the_old_settings_wherever_it_is_written():
    back = LADDER + '\n[[rung]]\nname = "again"\ntitle = "x"\nchange = { "model.recurrence.kind" = "dense" }\n'
    again = rungs(make(ladder=back))["again"]
    assert msgspec.to_builtins(again.config.model.recurrence) == {
        "kind": "dense",
        "activation": "identity",
        "draw": "normal",
        "radius": 0.0,
    }
    # in the recipe, with the kind after its settings
    late = RECIPE + '\n[ladder.mine.rung.norm.model.recurrence]\nactivation = "relu"\nkind = "dense"\n'
    plain = changed(LADDER, '"model.recurrence.normalize" = true', '"model.depth" = 2')
    assert msgspec.to_builtins(rungs(make(late, plain))["norm"].config.model.recurrence) == {
        "kind": "dense",
        "activation": "relu",
        "draw": "normal",
        "radius": 0.0,
    }


def test_a_rung_on_an_earlier_one_has_its_values():
    ladder = LADDER + on("plane", "half", '"model.recurrence.r_max" = 0.5') + on("ring", "wide", '"model.width" = 16')
    made = rungs(make(ladder=ladder))
    assert [rung.on for rung in made.values()] == [None, "dense", "plane", "ring", "plane", "ring"]
    half = made["half"]
    recurrence = half.config.model.recurrence
    assert (recurrence.r_min, recurrence.r_max, recurrence.normalize) == (0.0, 0.5, False)
    assert half.differences == (Difference("model.recurrence.r_max", 1.0, 0.5, "l.toml, rung half"),)
    # the model values of [ladder.mine.rung.ring] are inherited, those of the optimizer are not
    wide = made["wide"]
    recurrence = wide.config.model.recurrence
    assert (recurrence.r_min, recurrence.r_max, recurrence.normalize) == (0.5, 0.9, False)
    assert wide.sources["model.recurrence.r_min"] == "r.toml [ladder.mine.rung.ring]"
    assert {move.path: (move.before, move.after) for move in wide.differences} == {
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
    assert differences(made["deep"]) == {"model.depth": 3}


def test_a_rung_is_compared_with_its_base():
    # `again` is plane, two rungs on; `too` is the one before it, and yet changes ring
    ladder = LADDER + on("plane", "again", '"model.recurrence.r_max" = 1') + on("ring", "too", '"model.depth" = 1')
    same = changed(RECIPE, "[ladder.mine.rung.ring.optim]\nlr = 0.02", "")
    made = make(same, ladder)
    assert made.same_as_base == {"again", "too"}
    assert rungs(made)["again"].differences == ()
    plane, again = (final_runs(made, rungs(made)[name], (0, 1)) for name in ("plane", "again"))
    assert [want.fingerprint for want in again] == [want.fingerprint for want in plane]
    neighbours = LADDER + on("ring", "twin", '"model.recurrence.normalize" = true')
    assert make(same, neighbours).same_as_base == frozenset()


def test_the_plan_names_a_base_that_is_not_the_previous_rung(folder, capsys):
    ladder = LADDER + on("plane", "half", '"model.recurrence.r_max" = 0.5')
    ladder += on("dense", "same", '"model.recurrence.activation" = "tanh"')
    Path("l.toml").write_text(ladder)
    command = ["plan", "./r.toml", "--ladder", "./l.toml", "--set", "optim.lr=0.01", "--ledger", "none.db"]
    assert run([*command, "--json"]) == 0
    rows = json.loads(capsys.readouterr().out)["rungs"]
    assert [(row["rung"], row["on"]) for row in rows] == [
        ("dense", None),
        ("plane", "dense"),
        ("ring", "plane"),
        ("norm", "ring"),
        ("half", "plane"),
        ("same", "dense"),
    ]
    assert run(command) == 0
    lines = [" ".join(line.split()) for line in capsys.readouterr().out.splitlines()]
    assert lines[4:8] == [
        "ring 0/2 unknown r_min = 0.5; r_max = 0.9",
        "norm 0/2 unknown normalize = true",
        "half 0/2 unknown on plane: r_max = 0.5",
        "same 0/2 as dense",
    ]


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


def test_the_source_of_every_value_is_kept():
    ring = rungs(make(profile="small", sets=["model.state=16"]))["ring"]
    assert ring.sources == {
        "task": "r.toml",
        "data.version": "task sDigits",
        "seed": "the ladder's seeds",
        "model.recurrence.kind": "l.toml, rung plane",
        "model.recurrence.parametrization": "default",
        "model.recurrence.phase": "default",
        "model.recurrence.r_min": "r.toml [ladder.mine.rung.ring]",
        "model.recurrence.r_max": "r.toml [profile.small.ladder.mine.rung.ring]",
        "model.recurrence.max_phase": "default",
        "model.recurrence.normalize": "default",
        "model.recurrence.train_gamma": "default",
        "model.recurrence.conjugate": "default",
        "model.recurrence.heads": "default",
        "model.depth": "r.toml",
        "model.width": "r.toml [profile.small]",
        "model.state": "--set model.state",
        "model.frame": "default",
        "model.norm": "default",
        "model.norm_momentum": "default",
        "model.norm_place": "default",
        "model.final_norm": "default",
        "model.glu": "default",
        "model.experts": "default",
        "model.feed_forward": "default",
        "model.feed_forward_ratio": "default",
        "model.pooling": "default",
        "model.head_activation": "default",
        "optim.decay_norm_bias": "default",
        "model.dropout": "default",
        "model.dropout_mask": "default",
        "model.bidirectional": "default",
        **dict.fromkeys(("model.conv", "model.conv_activation", "model.branch", "model.expand"), "default"),
        "model.precision": "default",
        "model.parity": "default",
        "optim.lr": "r.toml [ladder.mine.rung.ring]",
        "optim.recurrent_factor": "r.toml",
        "optim.weight_decay": "r.toml",
        "optim.warmup": "default",
        "optim.schedule": "default",
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
        "execution.devices": "default",
        "execution.remat": "default",
        "execution.feed": "default",
        "execution.probes": "default",
    }


def test_execution_settings_change_no_fingerprint_and_no_instance():
    plain = make()
    other = make(sets=["execution.threads=3", "execution.checkpoint_seconds=0", "execution.scan_backend=sequential"])
    assert other.rungs[0].execution == Execution(threads=3, checkpoint_seconds=0.0, scan_backend="sequential")
    for one, two in zip(plain.rungs, other.rungs, strict=True):
        assert fingerprint(one.config) == fingerprint(two.config)
    assert plain.spec == other.spec
    assert (plain.spec.set, plain.spec.tune) == ({}, False)


def test_an_instance_is_of_values_not_of_words():
    specs = [make(sets=[text]).spec for text in ("optim.lr=1", "optim.lr=1.0", " optim.lr = 1e0 ")]
    assert specs == [specs[0]] * 3
    assert (specs[0].set, specs[0].tune) == ({"optim.lr": 1.0}, False)
    assert all(isinstance(spec.set["optim.lr"], float) for spec in specs)
    # and what was kept of it makes it again
    kept = make(sets=["optim.lr=1", "model.recurrence.r_max=0.75"])
    assert make(sets=kept.changes) == kept


def test_unknown_profiles_and_rungs_get_the_nearest_one():
    assert error(profile="smal") == ("r.toml: unknown profile 'smal'", "did you mean 'small'? profiles: small")
    with pytest.raises(UsageError) as caught:
        planning.choose_rungs(make(), ["dense", "rign"])
    assert caught.value.message == "l.toml: unknown rung 'rign'"
    assert caught.value.hint == "did you mean 'ring'? rungs: dense, plane, ring, norm"


def test_protocol_that_the_task_does_not_know_is_refused() -> None:
    with pytest.raises(UsageError) as caught:
        planning.make("sDigits", sets=["train.protocol=paper"])
    assert caught.value.message == "--set train.protocol: sDigits has no protocol 'paper'"
    assert caught.value.hint == "protocols of this task: holdout"
