"""What tuning tries for each rung: the recipe's grid, what it has for the rung alone, and what may be left out."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from lrurun.__main__ import run
from lrurun.config.runs import choose_point, final_runs, grid_points, tuning_runs
from lrurun.report import design_record
from lrurun.runner.selection import Selection
from tests.plans import LADDER, RECIPE, changed, error, make, on, rungs, write_documents

SCOPED = """
[ladder.mine.rung.ring.tune]
"model.recurrence.r_max" = [0.7, 0.8]
"optim.weight_decay" = [0.0, 0.1]
"""
RMAX = "model.recurrence.r_max"
EVERY = '"optim.lr" = [0.01, 0.02]\n'
OWN = '"model.recurrence.activation" = ["tanh", "relu"]\n'


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    return write_documents(tmp_path, monkeypatch)


def grids(recipe: str, ladder: str = LADDER, **options: object) -> dict[str, dict[str, list[object]]]:
    return {rung.name: rung.grid for rung in make(recipe, ladder, tune=True, **options).rungs}


def test_a_rung_tries_what_its_recurrence_has_of_the_grid() -> None:
    lr = {"optim.lr": [0.01, 0.02]}
    found = grids(changed(RECIPE, EVERY, EVERY + OWN))
    assert found == {
        "dense": lr | {"model.recurrence.activation": ["tanh", "relu"]},
        "plane": lr,
        "ring": lr,
        "norm": lr,
    }


def test_values_for_a_rung_are_tried_for_it_and_those_of_the_model_for_rungs_that_change_it() -> None:
    lr, r_max = {"optim.lr": [0.01, 0.02]}, {RMAX: [0.7, 0.8]}
    assert grids(RECIPE + SCOPED) == {
        "dense": lr,
        "plane": lr,
        "ring": lr | r_max | {"optim.weight_decay": [0.0, 0.1]},
        "norm": lr | r_max,
    }
    # not for rungs that set the value, or have another recurrence
    later = on("norm", "wide", f'"{RMAX}" = 0.99') + on("norm", "again", '"model.recurrence.kind" = "dense"')
    found = grids(RECIPE + SCOPED, LADDER + later)
    assert found["wide"] == found["again"] == lr
    # the profile's own values replace these, and its grid that of the recipe
    own = SCOPED.replace("[ladder", "[profile.small.ladder").replace("0.7, 0.8", "0.6")
    small = {"optim.lr": [0.1, 0.2, 0.3], "optim.weight_decay": [0, 0.1]}
    assert grids(RECIPE + SCOPED + own, profile="small")["norm"] == small | {RMAX: [0.6]}
    assert grids(RECIPE + SCOPED, sets=[f"{RMAX}=0.9"])["norm"] == lr
    # a rung that takes the values of another one takes what it tries
    taking = on("plane", "taking", '"model.depth" = 2').replace("change", 'takes = "mine/ring"\nchange')
    assert grids(RECIPE + SCOPED, LADDER + taking)["taking"][RMAX] == [0.7, 0.8]


def test_each_rung_has_the_runs_of_its_own_grid() -> None:
    only = RECIPE.replace(EVERY, OWN)  # the profile has a grid of its own
    made = make(only + SCOPED, tune=True)
    named = rungs(made)
    assert [len(tuning_runs(made, [rung])) for rung in made.rungs] == [2, 0, 4, 2]
    decay = [
        (w.config["model"]["recurrence"]["r_max"], w.config["optim"]["weight_decay"])
        for w in tuning_runs(made, [named["ring"]])
    ]
    assert decay == [(0.7, 0.0), (0.7, 0.1), (0.8, 0.0), (0.8, 0.1)]
    results = [{"val/accuracy": score, "val/loss": 1.0} for score in (0.1, 0.4, 0.3, 0.2)]
    assert choose_point(made, named["ring"], results) == grid_points(named["ring"].grid)[1]
    chosen = Selection(plan=made, rungs=made.rungs, seeds=(0, 1))
    assert list(chosen.tuning()) == ["dense", "ring", "norm"]
    assert [(w.rung, w.seed) for w in chosen.final()] == [("plane", 0), ("plane", 1)]
    point, final = chosen.chosen("norm", results[:2])
    assert point == {RMAX: 0.8}
    assert {w.config["model"]["recurrence"]["r_max"] for w in final} == {0.8}
    assert {rung.name: rung.rate_source.kind for rung in made.rungs} == {
        "dense": "default", "plane": "default", "ring": "chosen", "norm": "default",
    }  # fmt: skip
    assert made.free("ring") == (RMAX, "optim.weight_decay")
    assert made.free("plane") == make(only + SCOPED).free("ring") == ()


def test_without_scoped_values_nothing_is_different() -> None:
    made = make(tune=True)
    assert {rung.name: rung.grid for rung in made.rungs} == {name: {"optim.lr": [0.01, 0.02]} for name in rungs(made)}
    assert [final_runs(make(), rung, (0,)) for rung in make().rungs] == [
        final_runs(make(RECIPE + SCOPED), rung, (0,)) for rung in make(RECIPE + SCOPED).rungs
    ]
    assert design_record._settings(make(RECIPE + SCOPED)) == design_record._settings(make())


def test_tuning_needs_no_second_value_where_the_recipe_has_a_default() -> None:
    ladder = LADDER + '\n[[rung]]\nname = "own-rate"\ntitle = "t"\ntunes = ["optim.lr"]\n'
    table = "[ladder.mine.rung.own-rate]"
    refused = (
        f"r.toml: {table} does not set optim.lr, which ladder mine expects from it",
        f"add optim.lr to {table}, or write it into the ladder's rung",
    )
    assert error(RECIPE, ladder) == refused
    assert rungs(make(RECIPE, ladder, tune=True))["own-rate"].grid == {"optim.lr": [0.01, 0.02]}
    # not if the grid does not have it
    assert error(changed(RECIPE, EVERY, '"optim.weight_decay" = [0.0]\n'), ladder, tune=True) == refused
    # nor if the recipe has no value that it would replace
    some = RECIPE.replace("r_min = 0.5\nr_max = 0.9\n", "r_max = 0.9\n") + SCOPED.replace("r_max", "r_min")
    assert error(some, tune=True)[0] == (
        "r.toml: [ladder.mine.rung.ring] does not set model.recurrence.r_min, which ladder mine expects from it"
    )


def test_a_rung_that_differs_from_its_base_in_what_it_tries_is_no_copy_of_it() -> None:
    ladder = LADDER + '\n[[rung]]\nname = "searched"\ntitle = "t"\ntunes = ["optim.weight_decay"]\n'
    recipe = (
        RECIPE + '\n[ladder.mine.rung.searched]\noptim.weight_decay = 0.05\ntune."optim.weight_decay" = [0.0, 0.1]\n'
    )
    assert rungs(make(recipe, ladder))["searched"].same_as_base
    assert not rungs(make(recipe, ladder, tune=True))["searched"].same_as_base
    assert rungs(make(recipe.replace('tune."', "#"), ladder, tune=True))["searched"].same_as_base


@pytest.mark.parametrize(
    ("recipe", "message", "hint"),
    [
        (
            RECIPE.replace(EVERY, '"model.recurrence.n_ssm" = [1, 2]\n'),
            "--tune: no rung of ladder mine has what the grid would tune: model.recurrence.n_ssm",
            "add settings of its rungs to [tune.grid], or omit --tune",
        ),
        (
            RECIPE + SCOPED.replace("r_max", "rmax"),
            "r.toml [ladder.mine.rung.ring.tune], model.recurrence.rmax: unknown name",
            "did you mean 'model.recurrence.r_max'?",
        ),
        (
            RECIPE + SCOPED.replace("0.7, 0.8", "0.7, 0.7"),
            "r.toml [ladder.mine.rung.ring.tune], model.recurrence.r_max: 0.7 is listed twice",
            "remove one of them",
        ),
        (
            RECIPE + SCOPED.replace("0.7, 0.8", "0.7, 1.5"),
            "r.toml [ladder.mine.rung.ring.tune], model.recurrence.r_max: expected a number <= 1, found 1.5",
            "change model.recurrence.r_max in r.toml [ladder.mine.rung.ring.tune]",
        ),
        (
            RECIPE + SCOPED.replace("[0.7, 0.8]", "[]"),
            "r.toml, ladder.mine.rung.ring.tune.model.recurrence.r_max: expected a list of length >= 1, "
            "found an empty list",
            "change ladder.mine.rung.ring.tune.model.recurrence.r_max in r.toml",
        ),
    ],
)  # fmt: skip
def test_wrong_grids_are_refused(recipe: str, message: str, hint: str) -> None:
    assert error(recipe, tune=True) == (message, hint)


def test_plan_prints_what_each_rung_tries(capsys: pytest.CaptureFixture[str]) -> None:
    Path("r.toml").write_text(RECIPE.replace(EVERY, OWN) + SCOPED)
    Path("l.toml").write_text(LADDER)
    assert run(["plan", "./r.toml", "--ladder", "./l.toml", "--tune"]) == 0
    out = " ".join(capsys.readouterr().out.split())
    assert "Chosen on validation, for dense: model.recurrence.activation from tanh, relu." in out
    assert "Not tuned: plane." in out
    assert f"Chosen on validation, for ring: {RMAX} from 0.7, 0.8; optim.weight_decay from 0, 0.1." in out
    assert f"Chosen on validation, for norm: {RMAX} from 0.7, 0.8." in out
    assert run(["plan", "./r.toml", "--ladder", "./l.toml", "--tune", "--json"]) == 0
    assert [row["tuning_runs"] for row in json.loads(capsys.readouterr().out)["rungs"]] == [2, 0, 4, 2]
