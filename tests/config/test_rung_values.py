"""What a ladder itself has for a rung: a learning rate, values to try, and settings that it leaves to the recipe."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from lrurun.config.ladder import load_ladder
from lrurun.config.resolve import RateSource
from lrurun.config.settings import flatten
from lrurun.config.tuning import choose_point, tuning_runs
from tests.harness.machine import Machine
from tests.harness.plans import LADDER, RECIPE, SMALL_RECIPE, changed, error, make, on, rungs, write_documents

LR, RMAX = "optim.lr", "model.recurrence.r_max"
PLANE, RING = 'title = "diagonal"', 'title = "ring"'
RATE = 'lr = 0.3\nlr_published = "Table 1"\n'
WIDER = 'tune = { "optim.lr" = [0.1, 0.3, 0.9] }\n'
OWN = "\n[ladder.mine.rung.plane]\noptim.lr = 0.7\ntune.'optim.lr' = [0.6, 0.7]\n"


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    return write_documents(tmp_path, monkeypatch)


def with_(title: str, keys: str, ladder: str = LADDER) -> str:
    """The ladder, with more keys for the rung of this title."""
    return changed(ladder, title, f"{title}\n{keys}")


def rate(name: str, recipe: str = RECIPE, ladder: str = LADDER, **options: Any) -> tuple[float, RateSource, str]:
    """The learning rate of a rung, where it comes from, and the source of the value."""
    rung = rungs(make(recipe, ladder, **options))[name]
    return rung.training.optim.lr, rung.rate_source, rung.sources[LR]


def grids(recipe: str = RECIPE, ladder: str = LADDER, **options: Any) -> dict[str, list[Any]]:
    """Rung -> the learning rates that tuning tries."""
    return {rung.name: rung.grid[LR] for rung in make(recipe, ladder, tune=True, **options).rungs}


def test_a_rate_in_a_ladder_is_for_its_rung_alone() -> None:
    ladder = with_(PLANE, RATE)
    source = "l.toml, rung plane"
    assert rate("plane", ladder=ladder) == (0.3, RateSource("published", "published: Table 1"), source)
    assert {name: found.training.optim.lr for name, found in rungs(make(ladder=ladder)).items()} == {
        "dense": 0.01, "plane": 0.3, "ring": 0.02, "norm": 0.01,
    }  # fmt: skip
    chosen = with_(PLANE, 'lr = 0.3\nlr_chosen = "a guess"')
    assert rate("plane", ladder=chosen)[1] == RateSource("chosen", "chosen for this rung: a guess")
    reasons = '\n[ours]\n"optim.lr" = "ours"\n'  # the reason for the recipe's rate is none for the ladder's
    silent = with_(PLANE, "lr = 0.3")
    for recipe in (RECIPE, RECIPE + reasons):
        assert rate("plane", recipe, silent)[1] == RateSource("chosen", f"set by the ladder: {source}")
    assert rate("plane", ladder=ladder, sets={LR: 0.5})[:2] == (0.5, RateSource("set", "given by --set optim.lr"))
    assert rate("plane", ladder=ladder, tune=True)[1].kind == "tuned"


@pytest.mark.parametrize("profile", [None, "small"])
def test_what_the_recipe_has_for_the_rung_comes_after_the_ladder_and_all_else_before(profile: str | None) -> None:
    ladder = with_(PLANE, RATE + WIDER)
    common = changed(RECIPE, "[profile.small.model]", "[profile.small.optim]\nlr = 0.5\n[profile.small.model]")
    assert rate("plane", common, ladder, profile=profile)[0] == 0.3
    assert grids(common, ladder, profile=profile)["plane"] == [0.1, 0.3, 0.9]
    # a rung whose values it takes, in the recipe and in its profile
    taken = "[{}ladder.mine.rung.dense]\noptim.lr = 0.4\noptim.weight_decay = 0.2\ntune.'optim.lr' = [0.4, 0.5]\n"
    recipe = common + "".join(taken.format(prefix) for prefix in ("", "profile.small."))
    taking = changed(ladder, PLANE, f'{PLANE}\ntakes = "mine/dense"')
    assert rate("plane", recipe, taking, profile=profile)[0] == 0.3
    assert rungs(make(recipe, taking, profile=profile))["plane"].training.optim.weight_decay == 0.2
    assert grids(recipe, taking, profile=profile)["plane"] == [0.1, 0.3, 0.9]
    # its own table, of the recipe alone
    found = rate("plane", recipe + OWN, taking, profile=profile)
    assert found == (0.7, RateSource("chosen", "chosen for this rung: in r.toml [ladder.mine.rung.plane]"), found[2])
    assert grids(recipe + OWN, taking, profile=profile)["plane"] == [0.6, 0.7]
    of_profile = OWN.replace("[ladder", "[profile.small.ladder").replace("0.7", "0.8")
    assert rate("plane", recipe + OWN + of_profile, taking, profile=profile)[0] == (0.8 if profile else 0.7)


def test_a_note_of_the_recipe_on_its_rate_is_not_about_the_rate_of_a_ladder() -> None:
    recipe = RECIPE + '\n[ladder.mine]\nlr_published = "of the recipe"\n'
    grid_alone = with_(PLANE, WIDER)
    assert rate("plane", recipe, grid_alone)[1].text == "published: of the recipe"
    assert rate("plane", recipe, with_(PLANE, RATE))[1].text == "published: Table 1"


def test_a_grid_in_a_ladder_replaces_the_recipes_for_its_rung() -> None:
    ladder = with_(PLANE, WIDER)
    made = make(ladder=ladder, tune=True)
    found = rungs(made)
    assert {name: rung.grid[LR] for name, rung in found.items()} == {
        "dense": [0.01, 0.02], "plane": [0.1, 0.3, 0.9], "ring": [0.01, 0.02], "norm": [0.01, 0.02],
    }  # fmt: skip
    assert found["plane"].tried[LR][1] == "l.toml, rung plane, tune"
    assert [len(tuning_runs(made, [rung])) for rung in made.rungs] == [6, 9, 6, 6]
    results = [{"val/accuracy": score, "val/loss": 1.0} for score in (0.1, 0.1, 0.1, 0.2, 0.2, 0.2, 0.9, 0.9, 0.9)]
    assert choose_point(made, found["plane"], results) == {LR: 0.9}
    # other settings of the common grid stay, and it is another instance
    more = changed(RECIPE, "[tune.grid]\n", '[tune.grid]\n"optim.weight_decay" = [0.0, 0.1]\n')
    assert rungs(make(more, ladder, tune=True))["plane"].grid == {LR: [0.1, 0.3, 0.9], "optim.weight_decay": [0.0, 0.1]}
    assert made.spec.digest != make(tune=True).spec.digest
    assert make(ladder=ladder).spec == make().spec, "without --tune nothing is different"


def test_values_of_the_model_are_also_tried_for_the_rungs_that_change_this_one() -> None:
    ladder = with_(RING, f'tune = {{ "{RMAX}" = [0.7, 0.8] }}')
    found = {rung.name: rung.grid.get(RMAX) for rung in make(ladder=ladder, tune=True).rungs}
    assert found == {"dense": None, "plane": None, "ring": [0.7, 0.8], "norm": [0.7, 0.8]}
    reset = ladder + on("ring", "again", '"model.depth" = 2') + f'resets = ["{RMAX}"]\n'
    changing = changed(reset, 'title = "diagonal"', f'title = "diagonal"\nchange."{RMAX}" = 0.6')
    changing = changed(changing, 'change = { "model.recurrence.kind" = "diagonal" }', "")
    changing = changed(changing, f'change."{RMAX}" = 0.6', f'change = {{ {KIND}, "{RMAX}" = 0.6 }}')
    assert rungs(make(ladder=changing, tune=True))["again"].grid.get(RMAX) is None, "it is reset"


KIND = '"model.recurrence.kind" = "diagonal"'


def test_a_profile_with_few_values_keeps_the_middle_of_each_list() -> None:
    seven = "tune = { 'optim.lr' = [0.003, 0.01, 0.03, 0.1, 0.3, 1.0, 3.0] }"
    ladder = with_(PLANE, f"lr = 0.1\n{seven}")

    def tried(values: int) -> list[Any]:
        recipe = changed(RECIPE, "[profile.small]\n", f"[profile.small]\ntune_values = {values}\n")
        return grids(recipe, ladder, profile="small")["plane"]

    assert [tried(values) for values in (1, 2, 3, 4, 9)] == [
        [0.1], [0.03, 0.1], [0.03, 0.1, 0.3], [0.01, 0.03, 0.1, 0.3], [0.003, 0.01, 0.03, 0.1, 0.3, 1.0, 3.0],
    ]  # fmt: skip
    # and of that of a rung of the recipe; the list for all rungs is as it is
    recipe = changed(RECIPE, "[profile.small]\n", "[profile.small]\ntune_values = 2\n")
    assert grids(recipe, profile="small")["dense"] == [0.1, 0.2, 0.3]
    assert grids(recipe + OWN.replace("0.6, 0.7", "0.5, 0.6, 0.7"), profile="small")["plane"] == [0.5, 0.6]
    assert grids(recipe, ladder)["plane"] == [0.003, 0.01, 0.03, 0.1, 0.3, 1.0, 3.0], "no other profile's"
    message, _ = error(changed(RECIPE, "[profile.small]\n", "[profile.small]\ntune_values = 0\n"))
    assert message == "r.toml, profile.small.tune_values: expected a whole number >= 1, found 0"


def test_a_search_chooses_among_the_values_of_a_ladder() -> None:
    search = '[tune]\nsearch = "random"\ntrials = 2\n[tune.space]\n"optim.lr" = { low = 0.01, high = 0.1 }\n'
    recipe = changed(RECIPE, '[tune.grid]\n"optim.lr" = [0.01, 0.02]\n', search)
    made = make(recipe, with_(PLANE, WIDER), tune=True)
    assert rungs(made)["plane"].grid[LR] == [0.1, 0.3, 0.9]
    assert {run.config.optim.lr for run in tuning_runs(made, [rungs(made)["plane"]])} <= {0.1, 0.3, 0.9}


CHANGING = on("norm", "plain", '"optim.recurrent_factor" = 1.0, "optim.warmup" = 0.0, "model.depth" = 3')


def reset(*paths: str, recipe: str = RECIPE) -> tuple[dict[str, Any], dict[str, Any], dict[str, str]]:
    """The values of the rung `plain`, and those of one that resets these paths, with their sources."""
    again = f'\n[[rung]]\nname = "again"\ntitle = "x"\nresets = {list(paths)}\n'
    made = rungs(make(recipe, LADDER + CHANGING + again))
    warmup = {"optim.warmup", "optim.warmup_steps"}
    assert {difference.path for difference in made["again"].differences} <= {*paths, *warmup}
    return dict(flatten(made["plain"].values)), dict(flatten(made["again"].training)), made["again"].sources


def test_a_setting_that_a_rung_resets_has_the_recipes_value_or_its_default_again() -> None:
    before, after, sources = reset("optim.recurrent_factor", "optim.warmup")
    assert (before["optim.recurrent_factor"], before["optim.warmup"]) == (1.0, 0.0)
    assert (after["optim.recurrent_factor"], after["optim.warmup"], after["model.depth"]) == (0.5, 0.1, 3)
    assert (sources["optim.recurrent_factor"], sources["optim.warmup"]) == ("r.toml", "default")
    small = changed(RECIPE, "[profile.small.model]\n", "[profile.small.model]\ndepth = 2\n")
    assert reset("model.depth", recipe=small)[1]["model.depth"] == 1
    assert (
        reset("optim.warmup", recipe=changed(RECIPE, "[optim]\n", "[optim]\nwarmup = 0.3\n"))[1]["optim.warmup"] == 0.3
    )


def test_a_reset_warm_up_is_in_steps_where_the_recipe_has_steps() -> None:
    steps = changed(RECIPE, "[optim]\n", "[optim]\nwarmup_steps = 7\n")
    before, after, _ = reset("optim.warmup", recipe=steps)
    assert "optim.warmup_steps" not in before
    assert after["optim.warmup_steps"] == 7


def test_a_rung_that_resets_what_the_recipe_has_anyway_shares_the_runs_of_its_base() -> None:
    recipe = changed(SMALL_RECIPE, "recurrent_factor = 0.5", "recurrent_factor = 1.0")
    recipe += "[ladder.mine.rung.ring]\nmodel.recurrence.r_min = 0.5\nmodel.recurrence.r_max = 0.9\n"
    ladder = LADDER + on("norm", "plain", '"optim.recurrent_factor" = 1.0, "model.depth" = 2')
    ladder += '\n[[rung]]\nname = "again"\nresets = ["optim.recurrent_factor"]\n'
    assert make(recipe, ladder).same_as_base == {"again"}


def test_plan_and_check_say_where_rates_and_grids_come_from(machine: Machine) -> None:
    (machine.folder / "r.toml").write_text(RECIPE)
    (machine.folder / "l.toml").write_text(with_(PLANE, RATE + WIDER))
    words = ("plan", "./r.toml", "--ladder", "./l.toml")
    assert "Learning rates (published: Table 1): plane 0.3." in " ".join(machine.run(*words).stdout.split())
    tuned = " ".join(machine.run(*words, "--tune").stdout.split())
    assert "Chosen on validation with 3 seeds, for plane: optim.lr from 0.1, 0.3, 0.9." in tuned
    plane = machine.json(*words)["rungs"][1]
    assert (plane["learning_rate"], plane["rate_source"]["kind"]) == (0.3, "published")
    assert [row["tuning_runs"] for row in machine.json(*words, "--tune")["rungs"]] == [6, 9, 6, 6]
    assert machine.run("check", "recipe", "./r.toml", "--ladder", "./l.toml").returncode == 0
    assert load_ladder(str(machine.folder / "l.toml")).rungs[1].tune == {LR: [0.1, 0.3, 0.9]}


LION = 'change = { "optim.name" = "lion" }\n'
PRODIGY = 'change = { "optim.name" = "prodigy", "optim.recurrent_factor" = 1.0 }\nlr = 1.0\n'


@pytest.mark.parametrize(
    ("keys", "message", "hint"),
    [
        (
            LION + 'tune = { "optim.eps" = [0.1] }',
            "optim.eps: a setting that lion does not have",
            "its own settings: b1, b2",
        ),
        (
            PRODIGY + 'tune = { "optim.lr" = [0.5, 1.0] }',
            "optim.lr: prodigy estimates its learning rate",
            "remove it: there is none to try",
        ),
        (
            'tune = { "model.recurrence.radius" = [0.5] }',
            "model.recurrence.radius: a setting that diagonal does not have",
            "its own settings: ",
        ),
    ],
)
def test_values_to_try_are_of_settings_that_the_rung_has(keys: str, message: str, hint: str) -> None:
    found, way_out = error(ladder=with_(RING, keys))
    assert found == f"l.toml, rung ring, tune, {message}"
    assert way_out is not None
    assert way_out.startswith(hint)


def test_an_optimiser_that_estimates_its_rate_is_not_tuned() -> None:
    last = changed(LADDER, 'change = { "model.recurrence.normalize" = true }', PRODIGY)
    found = rungs(make(ladder=last, tune=True))
    assert LR not in found["norm"].grid
    assert found["plane"].grid[LR] == [0.01, 0.02]
