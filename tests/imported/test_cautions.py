"""What changes the reading of verdicts on imported runs."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from lrurun.config.ladder import Claim, Ladder, Rung
from lrurun.imported import cautions
from lrurun.imported.scoring import ScoredRun
from lrurun.instances.import_record import Caution
from tests.harness.tracked_runs import made, table

PAIR = [("b", "a")]


def runs(count: int, missing: int = 0, **fields: Any) -> list[ScoredRun]:
    """So many runs, of which the last have no result."""
    return [made(f"r{k}", None if k >= count - missing else 0.5, seed=k, **fields) for k in range(count)]


def short(found: Iterable[Caution]) -> list[str]:
    return [caution.short for caution in found]


def test_best_of_test_is_always_a_caution() -> None:
    assert short(cautions.best_of_test(table(protocol="best-of-test"))) == ["best of test"]
    assert not [*cautions.best_of_test(table(at="best", metric_for_choice="val_acc"))]


def test_a_score_of_another_split_is_a_caution() -> None:
    [validation] = cautions.split_of_score(table(metric="eval_acc"))
    assert validation.short == "the score is of validation"
    assert "best of several" not in validation.full
    [best] = cautions.split_of_score(table(metric="best_val_acc"))
    assert "It is the best of several steps" in best.full
    [training] = cautions.split_of_score(table(metric="train_loss", direction="min"))
    assert training.short == "the score is of training"
    for metric in ("test_acc", "acc", "eval/test_acc"):
        assert not [*cautions.split_of_score(table(metric=metric))]
    assert "the score is of validation" in short(cautions.of_import({"a": runs(3)}, [], table(metric="val_acc")))


def test_budgets_are_compared_by_the_medians_of_runs_with_results() -> None:
    lost = made("lost", None, step=1)
    same = {"a": [*runs(3, step=1000), lost], "b": runs(3, step=1010)}
    assert not [*cautions.unequal_budgets(same, PAIR, table())]
    longer = {"a": runs(3, step=1000), "b": [*runs(2, step=1011), made("x", step=5000)], "c": runs(3, step=1)}
    [found] = cautions.unequal_budgets(longer, PAIR, table())
    assert (found.short, found.rungs) == ("unequal budgets", ("a", "b"))
    assert "a 1,000, b 1,011" in found.full
    [at_step] = cautions.unequal_budgets(longer, PAIR, table(at=900))
    assert at_step.short == ""
    assert "all are scored at step 900" in at_step.full
    unknown = {"a": runs(3, step=0), "b": runs(3, step=1000)}
    assert not [*cautions.unequal_budgets(unknown, PAIR, table())]


def test_a_run_that_ends_early_is_named() -> None:
    members = {
        "a": [*runs(4, step=1000), made("cut", step=899), made("lost", None, step=10)],
        "b": [*runs(4, step=1000), made("x", step=900)],
        "c": runs(3, step=0),
    }
    [found] = cautions.early_ends(members)
    assert (found.short, found.rungs) == ("runs that end early", ("a",))
    assert "a 1 of 5 with a median of 1,000: cut" in found.full


def test_versions_of_code_and_data_that_are_known_differ() -> None:
    members = {
        "a": [made("x", code="abcdef0123456789", data="v1"), made("y", code="")],
        "b": [made("z", code="fedcba9876543210", data="v1"), made("lost", None, code="c", data="v2")],
        "c": [made("u", code="other", data="v3")],
    }
    [code] = cautions.unequal_code(members, PAIR)
    assert (code.short, code.rungs) == ("unequal code", ("a", "b"))
    assert "a abcdef012345 (1 run); b fedcba987654 (1 run)" in code.full
    assert not [*cautions.unequal_data(members, PAIR)]
    [data] = cautions.unequal_data(members, [("c", "a")])
    assert (data.short, data.rungs) == ("unequal data", ("a", "c"))
    within = {"a": [made("x", data="v1"), made("y", data="v2")], "b": [made("z")]}
    [data] = cautions.unequal_data(within, PAIR)
    assert data.rungs == ("a",)
    assert not [*cautions.unequal_data(within, [])]


def of_widths(*widths: Any) -> list[ScoredRun]:
    return [made(f"r{k}", seed=k, settings={"width": width, "seed": k}) for k, width in enumerate(widths)]


def test_settings_that_vary_within_a_rung() -> None:
    settings = ["width", "seed"]
    assert not [*cautions.varying_settings({"a": of_widths(8, 8.0)}, [], table(seed="seed"), settings)]
    [mixed] = cautions.varying_settings(
        {"a": of_widths(8, 16), "b": of_widths(8, 8)}, PAIR, table(seed="seed"), settings
    )
    assert (mixed.short, mixed.rungs) == ("settings vary within rungs", ("a",))
    assert "a: width (8, 16)" in mixed.full
    # half of each in both: the mixture is the same
    [alike] = cautions.varying_settings(
        {"a": of_widths(8, 16), "b": of_widths(16, 8, 16, 8)}, PAIR, table(seed="seed"), settings
    )
    assert (alike.short, alike.rungs) == ("", ("a", "b"))
    [unlike] = cautions.varying_settings(
        {"a": of_widths(8, 16), "b": of_widths(16, 8, 8)}, PAIR, table(seed="seed"), settings
    )
    assert (unlike.short, unlike.rungs) == ("settings vary within rungs", ("a", "b"))


def test_numbers_that_were_drawn_for_each_run_are_compared_by_their_ranks() -> None:
    names = ["width"]
    low, high = [0.001 * (k + 1) for k in range(12)], [0.0011 * (k + 1) for k in range(12)]
    [alike] = cautions.varying_settings({"a": of_widths(*low), "b": of_widths(*high)}, PAIR, table(), names)
    assert (alike.short, alike.rungs) == ("", ("a", "b"))
    assert "a: width (0.001 to 0.012, median 0.0065)" in alike.full
    shifted = [value + 0.006 for value in high]  # they overlap
    [unlike] = cautions.varying_settings({"a": of_widths(*low), "b": of_widths(*shifted)}, PAIR, table(), names)
    assert (unlike.short, unlike.rungs) == ("settings vary within rungs", ("a", "b"))
    # three values a side allow no p below 5 %, but their ranges are apart
    [apart] = cautions.varying_settings(
        {"a": of_widths(1.5, 2.5, 3.5), "b": of_widths(4.5, 5.5, 6.5)}, PAIR, table(), names
    )
    assert apart.short == "settings vary within rungs"


def test_cautions_on_many_rungs_list_a_few() -> None:
    rungs = [f"rung-{k}" for k in range(50)]
    members = {
        rung: [
            made(f"{rung}-{seed}", seed=seed, settings={"width": seed + k}, code=str(k), data=str(k), step=100 + 10 * k)
            for seed in range(12)
        ]
        + [made(f"{rung}-early", seed=12, settings={"width": 0}, step=1)]
        for k, rung in enumerate(rungs)
    }
    differences = {rung: [f"setting-{k}" for k in range(30)] for rung in rungs[1:]}
    found = cautions.of_import(
        members, [(rung, "rung-0") for rung in rungs[1:]], table(), settings=["width"], differences=differences
    )
    assert len(found) == 8  # of settings, some are alike
    assert max(len(caution.full) for caution in found) < 700
    assert all(len(caution.rungs) > 40 for caution in found if caution.rungs and caution.short)
    [settings] = [caution for caution in found if caution.short == "settings vary within rungs"]
    assert "rung-0: width (0 to 11, median 5); rung-" in settings.full
    assert settings.full.count("rung-") == 4
    assert "and 44 more" in settings.full


def test_neither_scores_nor_seeds_nor_what_is_chosen_varies() -> None:
    [run, other] = (
        made(f"r{k}", settings={"seed": k, "test_acc": k, "val_acc": k, "lr": k, "right": [k]}) for k in range(2)
    )
    reading = table(seed="seed", metric_for_choice="val_acc", choose=("lr",), items="right")
    assert not [*cautions.varying_settings({"a": [run, other]}, [], reading, run.run.settings)]


def test_more_than_one_difference_from_the_base() -> None:
    differences = {"b": ["norm"], "c": ["norm", "width"], "d": ["norm", "lr"]}
    [found] = cautions.several_differences(differences, table(choose=("lr",), metric_for_choice="val_acc"))
    assert (found.short, found.rungs) == ("more than one difference from the base", ("c",))
    assert "c in norm, width" in found.full


def test_crashed_runs_that_count_as_failures_are_counted() -> None:
    members = {"a": [made("x", None, state="diverged"), made("y")], "b": [made("z")]}
    [found] = cautions.failures(members, table(crashed="failed"))
    assert found.full.startswith("1 run that crashed")
    assert not [*cautions.failures({"b": [made("z")]}, table(crashed="failed"))]


def test_states_that_are_not_known_or_not_to_be_trusted() -> None:
    assert "does not say how runs ended" in next(cautions.states_of_runs({"a": runs(2)}, table())).full
    known = {"a": [*runs(2), made("x", state_text="FINISHED")]}
    assert not [*cautions.states_of_runs(known, table())]
    assert "MLflow" in next(cautions.states_of_runs(known, table(from_="mlflow"))).full


def test_the_seed_of_sacred_is_its_own() -> None:
    assert [*cautions.seeds_of_sacred(table(from_="sacred", seed="seed"))]
    assert not [*cautions.seeds_of_sacred(table(from_="sacred", seed="model_seed"))]
    assert not [*cautions.seeds_of_sacred(table(from_="csv", seed="seed"))]


def test_curves_that_go_back_are_named() -> None:
    members = {"a": [made("x", went_back="attempts"), made("y")], "b": [made("z"), made("w", went_back="writers")]}
    attempts, writers = cautions.steps_back(members)
    assert (attempts.rungs, attempts.short) == (("a",), "")
    assert "of 1 run go back, as after an attempt that was abandoned" in attempts.full
    assert attempts.full.endswith("(x).")
    assert writers.rungs == ("b",)
    assert "as of two writers" in writers.full


def test_runs_at_their_only_value_are_counted_by_rung() -> None:
    members = {"a": [made("x", at_only_value=True), made("y"), made("lost", None)], "b": [made("z")]}
    best = table(at="best", metric_for_choice="val_acc")
    [found] = cautions.only_values(members, best)
    assert (found.short, found.rungs) == ("runs without a best step", ("a",))
    assert "at their only value: a 1 of 2." in found.full
    assert not [*cautions.only_values({"b": [made("z")]}, best)]
    assert "runs without a best step" in short(cautions.of_import(members, PAIR, best))


def test_comparisons_are_those_with_the_base_and_those_of_claims() -> None:
    ladder = Ladder(
        name="l", title="t", source="s",
        rungs=tuple(Rung(name=name, title=name, where="x = 1") for name in "abc"),
        claims=(
            Claim(text="c beats a", source="s", rung="c", than="a"),
            Claim(text="b beats a", source="s", rung="b", than="a"),
            Claim(text="c learns", source="s", rung="c", kind="above-chance"),
        ),
    )  # fmt: skip
    assert cautions.compared(ladder) == [("b", "a"), ("c", "b"), ("c", "a")]


def test_those_of_the_first_screen_come_first() -> None:
    members = {"a": runs(10, 4, went_back="attempts"), "b": runs(10, step=50)}
    chosen = Caution(short="seeds numbered here", full="x")
    found = cautions.of_import(members, PAIR, table(protocol="best-of-test"), others=[chosen])
    assert short(found) == [
        "best of test", "seeds numbered here", "unequal budgets", "", "",
    ]  # fmt: skip
    assert not cautions.of_import({"a": [made("x", state_text="ok")], "b": [made("y")]}, PAIR, table())
