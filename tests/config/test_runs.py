"""The runs of a plan: seeds, tuning grids, order."""

from __future__ import annotations

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lrurun.config import planning
from lrurun.config.fingerprint import fingerprint
from lrurun.config.planning import final_runs
from lrurun.config.runs import parse_seeds
from lrurun.config.schema import used_execution
from lrurun.config.settings import combinations, flatten
from lrurun.config.tuning import choose_point, tuning_runs
from lrurun.errors import UsageError
from tests.harness.plans import make, write_documents
from tests.harness.scored import tasks  # noqa: F401


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    return write_documents(tmp_path, monkeypatch)


def test_planned_runs_have_the_source_of_every_value():
    made = make()
    for want in [*final_runs(made, made.rungs[2], (0,)), *tuning_runs(made, made.rungs)]:
        execution = used_execution(want.config, want.execution)
        flat = {*dict(flatten(want.config)), *dict(flatten(execution, "execution."))}
        assert set(want.sources) == flat


def test_seeds_make_different_runs_of_one_config():
    made = make()
    wanted = final_runs(made, made.rungs[2], (0, 4, 7))
    assert [w.seed for w in wanted] == [w.config.seed for w in wanted] == [0, 4, 7]
    assert len({w.fingerprint for w in wanted}) == 3
    assert {w.stage for w in wanted} == {"train"}
    assert [msgspec.structs.replace(w.config, seed=0) for w in wanted] == [made.rungs[2].config] * 3
    for want in wanted:
        assert want.fingerprint == fingerprint(want.config)


def test_planned_runs_come_in_ladder_order_tuning_before_training():
    made = make()
    positions = [
        want.position for rung in made.rungs for want in [*tuning_runs(made, [rung]), *final_runs(made, rung, (0, 999))]
    ]
    assert positions == sorted(positions)
    # the seeds of a point are side by side
    assert len(set(positions)) == sum(len(tuning_runs(made, [rung])) // 3 + 2 for rung in made.rungs)


def test_the_grid_is_every_combination_and_tuning_uses_its_own_seed():
    made = make(profile="small", tune=True)
    points = combinations(made.grid)
    assert points == [{"optim.lr": lr, "optim.weight_decay": wd} for lr in (0.1, 0.2, 0.3) for wd in (0, 0.1)]
    wanted = tuning_runs(made, made.rungs[2:3])
    assert [(w.config.optim.lr, w.config.optim.weight_decay) for w in wanted] == [
        (p["optim.lr"], p["optim.weight_decay"]) for p in points
    ]
    assert {(w.seed, w.stage, w.rung) for w in wanted} == {(1000, "tune", "ring")}
    assert wanted[0].sources["optim.lr"] == "the tuning grid"
    assert wanted[0].sources["seed"] == "the seeds of tuning runs"
    # a tuned final run differs from its tuning run in the seed alone
    final = final_runs(made, made.rungs[2], (0,), points[3])[0]
    assert msgspec.structs.replace(final.config, seed=1000) == wanted[3].config
    assert final.sources["optim.lr"] == "tuned on validation with 1 seed"
    assert final.sources["model.width"] == "r.toml [profile.small]"


def test_without_a_profile_the_recipes_own_grid_is_tuned():
    assert make(tune=True).grid == {"optim.lr": [0.01, 0.02]}
    assert make(tune=True).spec.tune


def test_what_set_fixes_is_not_tuned():
    made = make(profile="small", tune=True, sets={"optim.lr": 0.5})
    assert made.grid == {"optim.weight_decay": [0, 0.1]}
    assert {w.config.optim.lr for w in tuning_runs(made, made.rungs)} == {0.5}


def test_rungs_are_chosen_in_ladder_order():
    made = make()
    assert [rung.name for rung in planning.choose_rungs(made, ["norm", "dense"])] == ["dense", "norm"]
    assert planning.choose_rungs(made, []) == made.rungs


@pytest.mark.parametrize(
    ("text", "seeds"),
    [
        ("1", (0,)), ("3", (0, 1, 2)), ("0,4,7", (0, 4, 7)), ("7,4", (7, 4)), ("4,", (4,)), ("999,0", (999, 0)),
        ("1000", tuple(range(1000))), ("0-4", (0, 1, 2, 3, 4)), ("7,0-2,", (7, 0, 1, 2)), ("5-5", (5,)),
    ],
)  # fmt: skip
def test_seeds_are_a_number_or_a_list(text, seeds):
    assert parse_seeds(text) == seeds


WRONG = {
    "at least one seed is needed": ["0", "-3"],
    "expected whole numbers": ["3.5", ",", "0,,1", "many", "1_0", "٣", "1e3", "0-", "0-1-2"],
    "a seed is named twice": ["0-2,1", "0,1,0", "0,00"],
    "the range 4-0 ends before it begins": ["4-0"],
    "seeds lie between 0 and 999": ["998-1000", "0-999999999", "0,-1", "1000,", "1001", "9" * 20, "0," + "9" * 5000],
}


@pytest.mark.parametrize("message", WRONG)
def test_other_seeds_are_refused(message):
    for text in WRONG[message]:
        with pytest.raises(UsageError) as caught:
            parse_seeds(text)
        assert caught.value.message == f"--seeds {text}: {message}"
        assert caught.value.hint


@pytest.mark.parametrize("text", ["", " "])
def test_an_empty_text_is_not_printed(text):
    with pytest.raises(UsageError) as caught:
        parse_seeds(text)
    assert caught.value.message == "--seeds: expected seeds, found an empty text"


@settings(max_examples=25, derandomize=True, deadline=None)
@given(st.sets(st.integers(0, 999), min_size=1, max_size=20))
def test_a_list_of_seeds_may_have_ranges(seeds):
    ordered, parts = sorted(seeds), []
    while ordered:
        last = next(k for k in range(len(ordered)) if k + 1 == len(ordered) or ordered[k + 1] != ordered[k] + 1)
        parts.append(f"{ordered[0]}-{ordered[last]}" if last else str(ordered[0]))
        del ordered[: last + 1]
    assert parse_seeds(",".join(parts) + ",") == tuple(sorted(seeds))


def test_point_is_chosen_on_validation_and_ties_go_to_the_lower_loss() -> None:
    made = planning.make("sDigits", profile="smoke", tune=True)
    low, high = combinations(made.grid)

    def result(accuracy: float, loss: float) -> dict[str, float]:
        return {"val/accuracy": accuracy, "val/loss": loss, "test/accuracy": 1 - accuracy}

    assert choose_point(made, made.rungs[0], [result(0.9, 0.2), result(0.8, 0.1)]) == low
    assert choose_point(made, made.rungs[0], [result(0.9, 0.2), result(0.9, 0.1)]) == high
    assert choose_point(made, made.rungs[0], [result(0.9, 0.2), result(0.9, 0.2)]) == low
    assert choose_point(made, made.rungs[0], [None, result(0.1, 3.0)]) == high
    assert choose_point(made, made.rungs[0], [result(0.9, float("nan")), result(0.1, 3.0)]) == high
    assert choose_point(made, made.rungs[0], [None, None]) is None


@pytest.mark.usefixtures("tasks")
@pytest.mark.parametrize(("task", "better"), [("Wave", 1), ("Letters", 0)])
def test_point_is_chosen_by_the_metric_of_the_task_and_its_direction(task: str, better: int) -> None:
    made = planning.make(task, ladder="sizes", profile="small", tune=True)
    name = made.task.metric.name
    seeds = len(made.tuning_seeds)
    scores = [[-0.5] * seeds, [0.25] * seeds]

    def chosen() -> object:
        found = [{f"val/{name}": score, "val/accuracy": 1 - score, "val/loss": 1.0} for of in scores for score in of]
        return choose_point(made, made.rungs[0], found)

    assert chosen() == combinations(made.grid)[better]
    scores[better] = [float("nan")] * seeds
    assert chosen() == combinations(made.grid)[1 - better]
