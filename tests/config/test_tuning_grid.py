"""What tuning tries for each rung: the recipe's grid, what it has for the rung alone, and what may be left out."""

from __future__ import annotations

from pathlib import Path

import pytest
from msgspec import structs

from lrurun.config.planning import final_runs
from lrurun.config.recipe import load_recipe
from lrurun.config.settings import combinations
from lrurun.config.tuning import choose_point, tuning_runs
from lrurun.config.tuning_grid import replacement_note
from lrurun.data.metric import Accuracy
from lrurun.data.tasks import TASKS
from lrurun.judging import design_record
from lrurun.ledger import owner
from lrurun.ledger.ledger import Ledger
from lrurun.paths import Places
from lrurun.report.tables import loaded_instance
from lrurun.runner.selection import SelectedRuns, Selection
from tests.harness.machine import Machine
from tests.harness.plans import LADDER, RECIPE, changed, error, make, on, rungs, write_documents

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
    assert grids(RECIPE + SCOPED, sets={RMAX: 0.9})["norm"] == lr
    # a rung that takes the values of another one takes what it tries
    taking = on("plane", "taking", '"model.depth" = 2').replace("change", 'takes = "mine/ring"\nchange')
    assert grids(RECIPE + SCOPED, LADDER + taking)["taking"][RMAX] == [0.7, 0.8]


def test_each_rung_has_the_runs_of_its_own_grid() -> None:
    only = RECIPE.replace(EVERY, OWN)  # the profile has a grid of its own
    made = make(only + SCOPED, tune=True)
    named = rungs(made)
    assert [len(tuning_runs(made, [rung])) for rung in made.rungs] == [6, 0, 12, 6]
    decay = [
        (w.config.model.recurrence.r_max, w.config.optim.weight_decay, w.seed)
        for w in tuning_runs(made, [named["ring"]])
    ]
    points = [(0.7, 0.0), (0.7, 0.1), (0.8, 0.0), (0.8, 0.1)]
    assert decay == [(*point, seed) for point in points for seed in (1000, 1001, 1002)]
    results = results_of([[score] * 3 for score in (0.1, 0.4, 0.3, 0.2)])
    assert choose_point(made, named["ring"], results) == combinations(named["ring"].grid)[1]
    chosen = Selection(plan=made, rungs=made.rungs, seeds=(0, 1))
    assert list(chosen.tuning()) == ["dense", "ring", "norm"]
    assert [(w.rung, w.seed) for w in chosen.final()] == [("plane", 0), ("plane", 1)]
    point, final = chosen.tuning()["norm"].choose(results[:6])
    assert point == {RMAX: 0.8}
    assert {w.config.model.recurrence.r_max for w in final} == {0.8}
    assert {rung.name: rung.rate_source.kind for rung in made.rungs} == {
        "dense": "default", "plane": "default", "ring": "chosen", "norm": "default",
    }  # fmt: skip
    assert made.free("ring") == (RMAX, "optim.weight_decay")
    assert made.free("plane") == make(only + SCOPED).free("ring") == ()


def results_of(scores: list[list[float | None]]) -> list[dict[str, float] | None]:
    """Results of tuning runs with the scores of each point's seeds; None for a seed that diverged or failed."""
    return [None if score is None else {"val/accuracy": score, "val/loss": 1.0} for of in scores for score in of]


def chosen_rate(rates: list[float], *scores: list[float | None]) -> float | None:
    """The learning rate that the scores choose, those of each rate with as many seeds."""
    recipe = changed(RECIPE, "[tune.grid]\n" + EVERY, f'[tune]\nseeds = {len(scores[0])}\ngrid."optim.lr" = {rates}\n')
    made = make(recipe, tune=True)
    point = choose_point(made, made.rungs[0], results_of(list(scores)))
    return None if point is None else point["optim.lr"]


A, B, C, D = RATES = [0.001, 0.01, 0.1, 1.0]


def test_the_rate_with_the_best_mean_is_chosen_where_none_ties_with_it() -> None:
    assert chosen_rate([A, B], [0.9, 0.9, 0.9], [0.92, 0.92, 0.93]) == B
    # the standard deviation is 0.02, one standard error sqrt(2 / 3) of that, 0.0163
    best = [0.78, 0.8, 0.82]
    assert chosen_rate([A, B, C], [0.782, 0.782, 0.782], best, [*best[:2], 0.7]) == B
    assert chosen_rate([A, B, C], [0.785, 0.785, 0.785], best, [*best[:2], 0.7]) == A


def test_rates_within_one_standard_error_of_the_best_tie_and_the_middle_one_is_chosen() -> None:
    best, near, far = [0.78, 0.8, 0.82], [0.79, 0.79, 0.79], [0.5, 0.5, 0.5]
    assert chosen_rate(RATES, best, near, near, far) == B
    assert chosen_rate(RATES, near, near, near, best) == B, "the lower one of two"
    assert chosen_rate(RATES, far, best, near, near) == C
    assert chosen_rate([B, D, A, C], best, best, best, far) == B, "in the order of the rates, not as they are listed"
    assert chosen_rate(RATES, best, far, far, near) == A
    # equal scores tie too
    assert chosen_rate(RATES, [1.0, 1.0], [1.0, 1.0], [1.0, 1.0], [1.0, 0.9]) == B
    # the spread of the other point does not count: it has one bad seed
    assert chosen_rate([A, B, C], [0.9, 0.9, 0.3], [0.9, 0.9, 0.9], [0.9, 0.9, 0.3]) == B
    # one seed has no standard error
    assert chosen_rate(RATES, [0.7], [0.8], [0.8], [0.799]) == B


def test_a_seed_that_diverged_or_failed_scores_chance() -> None:
    assert chosen_rate([A, B], [0.9, 0.9, None], [0.1, 0.1, 0.1]) == A
    assert chosen_rate([A, B], [0.1, 0.1, 0.1], [0.9, 0.9, float("nan")]) == B
    assert chosen_rate([A, B, C], [0.2, 0.2, 0.2], [0.9, 0.9, None], [0.24, 0.24, 0.24]) == B
    assert chosen_rate([A, B, C], [0.3, 0.3, 0.3], [0.9, 0.9, None], [0.2, 0.2, 0.2]) == B, "a lost seed ties nothing"
    # finished seeds are better where the scores are not worse
    assert chosen_rate([A, B], [0.9, 0.9, None], [0.9, 0.9, 0.9]) == B
    # the mean is 0.367 with two lost seeds, and 0.633 with one
    assert chosen_rate([A, B, C], [0.9, None, None], [0.1, 0.1, 0.1], [0.9, None, 0.9]) == C
    assert chosen_rate([A, B, C], [0.9, None], [0.95, None], [None, None]) == B
    # with one seed, and where all are lost
    assert chosen_rate([A, B], [None], [0.05]) == B, "chance is no score of a point without a finite one"
    assert chosen_rate([A, B], [None, None], [None, None]) is None


def test_where_chance_is_not_known_a_point_with_fewer_finished_seeds_is_worse(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(type(TASKS["sDigits"]), "metric", Accuracy())
    assert chosen_rate([A, B], [0.9, 0.9, None], [0.1, 0.2, 0.1]) == B
    assert chosen_rate([A, B], [0.9, 0.9, float("nan")], [0.1, 0.2, 0.1]) == B
    assert chosen_rate([A, B, C], [0.9, None, None], [0.1, 0.2, None], [0.3, None, 0.3]) == C
    assert chosen_rate([A, B, C], [0.9, None], [0.95, None], [None, None]) == B
    assert chosen_rate([A, B], [None, None], [None, None]) is None


def test_the_middle_of_several_settings_is_the_tied_point_nearest_to_the_middle_along_each() -> None:
    grid = f'"optim.lr" = {RATES}\n"model.recurrence.activation" = ["relu", "identity", "tanh"]\n'
    made = make(changed(RECIPE, EVERY, grid), tune=True)
    points = combinations(made.rungs[0].grid)

    def chosen(*tied: tuple[float, str]) -> tuple[float, str]:
        scores = [[0.9 if tuple(point.values()) in tied else 0.1] * 3 for point in points]
        point = choose_point(made, made.rungs[0], results_of(scores))
        assert point is not None
        return point["optim.lr"], point["model.recurrence.activation"]

    assert chosen((A, "relu"), (B, "relu"), (C, "relu"), (B, "identity"), (B, "tanh")) == (B, "relu")
    assert chosen((A, "relu"), (B, "identity"), (C, "tanh")) == (B, "identity"), "in the order in which they are listed"
    # the medians are B and identity, and all four are as near to them
    assert chosen((A, "identity"), (B, "tanh"), (B, "relu"), (C, "identity")) == (A, "identity")
    assert chosen((A, "tanh"), (A, "identity"), (D, "relu")) == (A, "identity")


def test_a_setting_that_a_rung_takes_is_tuned_with_several_seeds_and_the_report_says_what_was_chosen(
    tmp_path: Path,
) -> None:
    ladder = LADDER + on("norm", "taking", '"model.depth" = 2').replace("change", 'takes = "mine/ring"\nchange')
    scoped = '\n[ladder.mine.rung.taking.tune]\n"model.recurrence.r_min" = [0.1, 0.2, 0.3]\n'
    made = make(changed(RECIPE, "[tune.grid]\n" + EVERY, "") + scoped, ladder, tune=True)
    assert {rung.name: rung.grid for rung in made.rungs if rung.grid} == {
        "taking": {"model.recurrence.r_min": [0.1, 0.2, 0.3]}
    }
    # 0.1 is better with the first seed alone
    scores = {0.1: [0.6, 0.3, 0.3], 0.2: [0.55, 0.5, 0.52], 0.3: [0.4, 0.3, 0.3]}
    said: list[str] = []
    with Ledger.open(tmp_path / "ledger.db") as ledger:
        instance = ledger.add_ladder("mine", "sDigits", None, made.spec)
        chosen = Selection(plan=made, rungs=[rungs(made)["taking"]], seeds=[0])
        places = Places(ledger=Path("ledger.db"), runs=Path("runs"), data=Path("data"))
        runs = SelectedRuns(ledger, chosen.work(instance, places), chosen, say=said.append)
        runs.enqueue()
        assert runs.remaining() == (10, 10)
        while (held := ledger.hold(instance.key, owner.this_process(), environment={})) is not None:
            seed, low = held.run.seed, held.run.config.model.recurrence.r_min
            score = scores[low][seed - 1000] if seed else 0.5
            ledger.finish(held, "done", result={"val/accuracy": score, "test/accuracy": score, "val/loss": 1.0})
            runs.load()
            runs.advance()
        assert said == ["taking: chosen on validation with 3 seeds: model.recurrence.r_min = 0.2"]
        assert len(ledger.runs()) == 10
        report = loaded_instance.LoadedInstance(made, instance, ledger).report()
        assert "chosen on validation with 3 seeds: model.recurrence.r_min = 0.2 (taking)" in map(str, report.notes)
        # the only value that is tried is not chosen
        only = tuple(
            structs.replace(rung, tried={path: ([0.2], source) for path, (_, source) in rung.tried.items()})
            for rung in made.rungs
        )
        report = loaded_instance.LoadedInstance(structs.replace(made, rungs=only), instance, ledger).report()
        assert not any("chosen on validation" in str(note) for note in report.notes)
        final = next(run for run in ledger.runs() if run.seed == 0)
        assert final.sources["model.recurrence.r_min"] == "tuned on validation with 3 seeds"
        assert final.config.model.recurrence.r_max == 0.9, "as mine/ring has it"


def test_a_profile_with_fewer_seeds_tunes_with_as_few_unless_it_says_how_many() -> None:
    def seeds(recipe: str, profile: str | None = None) -> list[int]:
        return list(make(recipe, tune=True, profile=profile).tuning_seeds)

    assert seeds(RECIPE) == [1000, 1001, 1002]
    assert seeds(RECIPE, "small") == [1000]
    small = changed(RECIPE, "[profile.small]\nseeds = 1", "[profile.small]\nseeds = 5")
    assert seeds(small, "small") == [1000, 1001, 1002]
    assert seeds(small.replace("seeds = 5", "seeds = 5\ntune_seeds = 4"), "small") == [1000, 1001, 1002, 1003]
    two = changed(RECIPE, "[tune.grid]", "[tune]\nseeds = 2\n[tune.grid]")
    assert seeds(two) == seeds(two.replace("seeds = 1\n", "seeds = 6\n"), "small") == [1000, 1001]


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


def test_a_grid_of_which_no_rung_has_a_setting_is_refused() -> None:
    message, hint = error(RECIPE.replace(EVERY, '"model.recurrence.n_ssm" = [1, 2]\n'), tune=True)
    assert message == "--tune: no rung of ladder mine has the settings in the grid: model.recurrence.n_ssm"
    assert str(hint).startswith("add settings of its rungs to [tune.grid]")


def test_a_profile_with_a_grid_of_its_own_says_so() -> None:
    make()
    note = replacement_note(load_recipe("r.toml"), "small")
    assert note == "profile small has values of its own to try, so r.toml [tune.grid] is not used"
    assert replacement_note(load_recipe("r.toml"), None) == ""
    search = '[tune]\nsearch = "random"\ntrials = 2\n[tune.space]\n"optim.lr" = { low = 0.01, high = 0.1 }\n'
    Path("r.toml").write_text(changed(RECIPE, f"[tune.grid]\n{EVERY}", search))
    assert "[tune.space] is not used" in replacement_note(load_recipe("r.toml"), "small")


def test_plan_prints_what_each_rung_tries(machine: Machine) -> None:
    (machine.folder / "r.toml").write_text(RECIPE.replace(EVERY, OWN) + SCOPED)
    (machine.folder / "l.toml").write_text(LADDER)
    out = " ".join(machine.run("plan", "./r.toml", "--ladder", "./l.toml", "--tune").stdout.split())
    assert "Chosen on validation with 3 seeds, for dense: model.recurrence.activation from tanh, relu." in out
    assert "Not tuned: plane." in out
    words = ("--set", "optim.name=prodigy", "--set", "optim.lr=1", "--set", "optim.recurrent_factor=1")
    of_prodigy = machine.run("plan", "npDigits", "--profile", "smoke", "--rung", "diagonal", "--tune", *words).stdout
    assert "Nothing is tuned: no setting of these rungs has values to try." in of_prodigy
    assert "Chosen on validation" not in of_prodigy
    assert f"Chosen on validation with 3 seeds, for ring: {RMAX} from 0.7, 0.8; optim.weight_decay from 0, 0.1." in out
    assert f"Chosen on validation with 3 seeds, for norm: {RMAX} from 0.7, 0.8." in out
    rows = machine.json("plan", "./r.toml", "--ladder", "./l.toml", "--tune")["rungs"]
    assert [row["tuning_runs"] for row in rows] == [6, 0, 12, 6]
