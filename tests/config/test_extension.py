"""Grids that follow the optimum: which values tuning adds beyond an edge, when it stops, and what is refused.

Scores are simulated: a rule from settings to scores stands for the training.
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from lrurun.config import planning
from lrurun.config.instance import Instance
from lrurun.config.runs import InstanceSpec
from lrurun.config.tuning import added_points, budget, choose_point, most_added, tuning_of
from lrurun.config.tuning_grid import next_value
from lrurun.ledger import owner
from lrurun.ledger.ledger import Ledger
from lrurun.ledger.values import instance_key
from lrurun.paths import Places
from lrurun.report.tables import loaded_instance
from lrurun.report.tables.ladder_remarks import cautions, of_report
from lrurun.runner.selection import SelectedRuns, Selection
from tests.harness.plans import LADDER, RECIPE, changed, error, make, on, rungs, write_documents

GRID = '[tune.grid]\n"optim.lr" = [0.01, 0.02]\n'
RATE, FACTOR, WIDTH = "optim.lr", "optim.recurrent_factor", "model.width"

Score = Callable[[dict[str, Any], int], float | None]
"""The validation score of a point with a seed; None if it diverges."""


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    return write_documents(tmp_path, monkeypatch)


def recipe(grid: str, extend: int = 0, seeds: int = 2) -> str:
    declared = f"extend = {extend}\n" if extend else ""
    return changed(RECIPE, GRID, f"[tune]\nseeds = {seeds}\n{declared}[tune.grid]\n{grid}\n")


def tuned(
    score: Score, grid: str, extend: int = 4, seeds: int = 2
) -> tuple[list[dict[str, Any]], dict[str, Any] | None]:
    """The points that are added to a grid for rung `ring` by these scores, and the point that is chosen."""
    return tuned_rung(score, make(recipe(grid, extend, seeds), tune=True), "ring")


def tuned_rung(score: Score, plan: planning.Plan, name: str) -> tuple[list[dict[str, Any]], dict[str, Any] | None]:
    """The same for a rung of a plan."""
    rung = rungs(plan)[name]
    results: list[dict[str, float] | None] = []
    while len(runs := tuning_of(plan, rung, results)) > len(results):
        results = []
        for run in runs:
            config = dict(planning.full(run.config))  # type: ignore[arg-type]
            value = score({path: config[path] for path in rung.grid}, run.seed)
            results.append(None if value is None else {"val/accuracy": value, "val/loss": 1.0})
    assert len(results) == budget(plan, rung) + len(plan.tuning_seeds) * len(added_points(plan, rung, results))
    assert len(results) <= budget(plan, rung) + most_added(plan, rung)
    return added_points(plan, rung, results), choose_point(plan, rung, results)


def near(best: float, path: str = RATE) -> Score:
    """The nearer a value is to the best one, in the logarithm, the better."""
    return lambda point, seed: 0.9 - 0.1 * abs(math.log(point[path] / best)) + 1e-6 * (seed - 1000)


def test_values_follow_by_the_ratio_at_the_edge_until_the_best_one_is_inside() -> None:
    rates = '"optim.lr" = [0.001, 0.002, 0.004, 0.008]'
    assert tuned(near(0.0025), rates) == ([], {RATE: 0.002})
    assert tuned(near(0.011), rates)[0] == [{RATE: 0.016}]
    assert tuned(near(0.03), rates) == ([{RATE: 0.016}, {RATE: 0.032}, {RATE: 0.064}], {RATE: 0.032})
    assert tuned(near(0.0004), rates) == ([{RATE: 0.0005}, {RATE: 0.00025}], {RATE: 0.0005})
    # as many as may be added
    assert tuned(near(1.0), rates, extend=2) == ([{RATE: 0.016}, {RATE: 0.032}], {RATE: 0.032})
    assert tuned(near(1.0), rates, extend=0) == ([], {RATE: 0.008})
    # the ratio is that of the two values at this edge, which later values keep
    uneven = '"optim.lr" = [0.01, 0.001, 0.003]'
    assert tuned(near(0.1), uneven)[0] == [{RATE: 0.03333}, {RATE: 0.1111}, {RATE: 0.3703}]
    assert tuned(near(0.0003), uneven)[0] == [{RATE: 0.0003333}, {RATE: 0.0001111}]


def test_the_point_that_is_chosen_counts_and_not_the_best_one() -> None:
    """A tie is resolved to the middle value, which is inside: no value follows, though the best one is at the edge."""

    def tie(point: dict[str, Any], seed: int) -> float:
        return {0.001: 0.5, 0.002: 0.89, 0.004: 0.9}.get(point[RATE], 0.1) + 0.02 * (seed - 1000)

    rates = '"optim.lr" = [0.001, 0.002, 0.004]'
    assert tuned(tie, rates, seeds=3) == ([], {RATE: 0.002})
    # of two values that tie the lower one is chosen: it is at the edge of two
    assert tuned(tie, '"optim.lr" = [0.002, 0.004]', seeds=3)[0] == [{RATE: 0.001}]


def test_the_scores_of_an_added_value_may_move_the_choice_inside() -> None:
    """The added rate is the best one, with a spread with which all others tie."""
    scores = {0.01: (0.8, 0.8), 0.02: (0.8, 0.8), 0.04: (0.82, 0.82), 0.08: (1.0, 0.7)}
    rates = '"optim.lr" = [0.01, 0.02, 0.04]'
    assert tuned(lambda point, seed: scores[point[RATE]][seed - 1000], rates) == ([{RATE: 0.08}], {RATE: 0.02})


def test_a_value_at_which_every_seed_diverges_ends_the_extension() -> None:
    rates = '"optim.lr" = [0.01, 0.02]'

    def score(point: dict[str, Any], seed: int) -> float | None:
        return None if point[RATE] > 0.05 else near(0.1)(point, seed)

    assert tuned(score, rates) == ([{RATE: 0.04}, {RATE: 0.08}], {RATE: 0.04})

    def half(point: dict[str, Any], seed: int) -> float | None:
        return None if point[RATE] > 0.05 and seed == 1001 else near(0.1)(point, seed)

    assert tuned(half, rates) == ([{RATE: 0.04}, {RATE: 0.08}], {RATE: 0.04}), "a lost seed scores chance"
    assert tuned(lambda point, seed: None, rates) == ([], None)


def test_the_limit_of_a_setting_ends_the_extension() -> None:
    assert tuned(near(100.0), '"optim.lr" = [1.0, 2.5]') == ([{RATE: 6.25}], {RATE: 6.25}), "lr is at most 10"
    r_max = "model.recurrence.r_max"
    assert tuned(near(2.0, r_max), f'"{r_max}" = [0.6, 0.8]')[0] == [], "1.067 is above 1"
    assert tuned(near(0.1, r_max), f'"{r_max}" = [0.6, 0.8]')[0] == [], "0.45 is below r_min, which is 0.5"
    floor = "optim.floor"
    high = near(1.0, floor)
    assert tuned(high, f'"{floor}" = [0.002, 0.004]')[0] == [{floor: 0.008}, {floor: 0.016}], "0.032 is above lr"


def test_the_length_of_the_sequences_is_a_limit_of_kernels() -> None:
    length = "model.recurrence.kernel_length"
    text = recipe('"optim.lr" = [0.01]', 4) + f'\n[ladder.mine.rung.conv.tune]\n"{length}" = [80, 100]\n'
    plan = make(text, LADDER + on("plane", "conv", '"model.recurrence.kind" = "sgconv"'), tune=True)
    assert plan.length == 64
    assert [point[length] for point in tuned_rung(near(1, length), plan, "conv")[0]] == [64], "51 is too short"


def test_whole_numbers_stay_whole_and_move() -> None:
    assert tuned(near(30, WIDTH), f'"{WIDTH}" = [8, 12]')[0] == [{WIDTH: 18}, {WIDTH: 27}, {WIDTH: 40}]
    [*_, last] = tuned(near(3, WIDTH), f'"{WIDTH}" = [8, 12]')[0]
    assert all(type(point[WIDTH]) is int for point in tuned(near(3, WIDTH), f'"{WIDTH}" = [8, 12]')[0])
    assert last == {WIDTH: 2}
    assert tuned(near(0.1, WIDTH), f'"{WIDTH}" = [2, 3]')[0] == [{WIDTH: 1}], "0 is no width"
    # the setting is no whole number, though the grid lists some
    assert tuned(near(5.0), '"optim.lr" = [2, 3]')[0] == [{RATE: 4.5}, {RATE: 6.75}]
    assert next_value(100, [100, 99], whole=True) == 101
    assert next_value(7, [7, 8], whole=True) == 6
    assert next_value(8, [7, 8], whole=True) == 9
    assert next_value(-1, [-1, -2], whole=True) == 0


def test_a_ratio_that_leads_nowhere_adds_nothing() -> None:
    decay = "optim.weight_decay"
    assert tuned(lambda point, seed: point[decay], f'"{decay}" = [0.0, 0.1]') == ([], {decay: 0.1})
    assert tuned(lambda point, seed: -point[decay], f'"{decay}" = [0.0, 0.1]') == ([], {decay: 0.0})
    assert tuned(lambda point, seed: point[decay], f'"{decay}" = [0.0, 0.1, 0.2]')[0][0] == {decay: 0.4}
    for value, values in ((1.0, [-1.0, 1.0]), (0.0, [0.0, 1.0]), (1.0, [0.0, 1.0]), (1e308, [1.0, 1e308])):
        assert next_value(value, values, whole=False) is None
    assert next_value(-4.0, [-1.0, -2.0, -4.0], whole=False) == -8.0
    assert next_value(-1.0, [-1.0, -2.0, -4.0], whole=False) == -0.5
    # as many digits as it takes to be further out
    assert next_value(1.00002, [1.00001, 1.00002], whole=False) == 1.00003


def test_of_several_settings_one_at_a_time_is_extended_at_the_chosen_values_of_the_others() -> None:
    grid = f'"{RATE}" = [0.01, 0.02]\n"{FACTOR}" = [0.25, 0.5]'

    def score(point: dict[str, Any], seed: int) -> float:
        return near(0.03)(point, seed) + near(0.9, FACTOR)(point, seed) - 0.9

    added, chosen = tuned(score, grid)
    points = [(point[RATE], point[FACTOR]) for point in added]
    assert points == [(0.04, 0.5), (0.08, 0.5), (0.04, 1.0), (0.04, 2.0)], "the rate first, as the grid has it"
    assert chosen == {RATE: 0.04, FACTOR: 1.0}
    assert tuned(score, grid, extend=1)[0] == [{RATE: 0.04, FACTOR: 0.5}]


@pytest.mark.parametrize(
    "grid", ['"optim.lr" = [0.01]', '"model.glu" = ["full", "none"]', '"model.norm" = ["batch", "layer"]']
)
def test_single_values_and_choices_are_not_extended(grid: str) -> None:
    assert tuned(lambda point, seed: 0.5, grid)[0] == []
    plan = make(recipe(grid, 4), tune=True)
    assert (plan.extend, plan.spec) == (0, make(recipe(grid), tune=True).spec)
    assert "no rung tries two or more numbers" in error(recipe(grid), tune=True, extend=2)[0]


def test_each_rung_is_extended_by_itself() -> None:
    only = '\n[ladder.mine.rung.norm.tune]\n"model.norm" = ["batch", "layer"]\n'
    plan = make(
        recipe('"optim.lr" = [0.01]', 3) + only + '[ladder.mine.rung.dense.tune]\n"optim.lr" = [0.1, 0.2]\n', tune=True
    )
    assert [most_added(plan, rung) for rung in plan.rungs] == [6, 0, 0, 0]


def test_without_it_instances_keep_their_names_keys_and_digests() -> None:
    spec = InstanceSpec(set={"a": 1}, tune=True, digest="0123456789ab")
    assert spec.table == {"set": {"a": 1}, "tune": True, "digest": "0123456789ab"}
    assert instance_key("lru", "sDigits", None, spec) == "3b13f63cd056", "as it was before there was an extension"
    plain, none, some = (make(tune=True, **more) for more in ({}, {"extend": 0}, {"extend": 2}))
    assert plain.spec == none.spec
    assert plain.short_name == none.short_name == "r-l-tune"
    assert some.short_name == "r-l-tune-extend2"
    assert some.spec.digest != plain.spec.digest
    assert (some.spec.extend, some.identity.label) == (2, "sDigits, tuned with --extend 2")
    assert Instance(ladder="l", task="t", tune=True).label == "t, tuned"
    # declared and given are the same instance
    declared = recipe('"optim.lr" = [0.01, 0.02]', 2)
    for extended in (make(declared, tune=True), make(recipe('"optim.lr" = [0.01, 0.02]'), tune=True, extend=2)):
        assert (extended.extend, extended.spec) == (2, make(declared, tune=True).spec)
    assert (make(declared, tune=True).short_name, make(declared, tune=True).extend_option) == ("r-l-tune", None)
    assert make(declared, tune=True, extend=0).short_name == "r-l-tune-extend0"
    # it is about tuning alone
    assert make(declared).spec == make().spec


def test_a_profile_may_have_a_number_of_its_own() -> None:
    declared = recipe('"optim.lr" = [0.01, 0.02]', 2)
    assert make(declared, tune=True, profile="small").extend == 2
    own = declared.replace("[profile.small]\nseeds = 1\n", "[profile.small]\nseeds = 1\ntune_extend = 5\n")
    assert [make(own, tune=True, profile=name).extend for name in (None, "small")] == [2, 5]
    assert make(own.replace("tune_extend = 5", "tune_extend = 0"), tune=True, profile="small").extend == 0
    assert make(own, tune=True, profile="small", extend=1).extend == 1


SPACE = '[tune]\nsearch = "random"\ntrials = 3\n[tune.space]\n"optim.lr" = { low = 0.001, high = 0.1 }\n'


@pytest.mark.parametrize(
    ("text", "options", "message", "hint"),
    [
        (RECIPE, {"extend": 2}, "--extend: belongs to --tune", "add --tune, or leave it out"),
        (RECIPE.replace(GRID, f"[tune]\nextend = 21\n{GRID}"), {}, "tune.extend: expected a whole number <= 20", ""),
        (RECIPE.replace(GRID, f"[tune]\nextend = -1\n{GRID}"), {}, "tune.extend: expected a whole number >= 0", ""),
        (
            RECIPE.replace(GRID, SPACE),
            {"tune": True, "extend": 2},
            "--extend 2: is for a grid, and the recipe has a random search, 3 trials",
            "a search stays within its space",
        ),
        (
            RECIPE.replace(GRID, SPACE.replace("[tune]\n", "[tune]\nextend = 2\n")),
            {},
            "r.toml [tune]: search = 'random' and extend = 2 exclude each other",
            "widen low and high, and raise trials",
        ),
        (
            RECIPE.replace(GRID, SPACE).replace("seeds = 1\n", "seeds = 1\ntune_extend = 2\n"),
            {},
            "r.toml [profile.small], tune_extend: is for a grid",
            "a search stays within its space",
        ),
    ],
)  # fmt: skip
def test_what_makes_no_sense_is_refused_with_a_hint(text: str, options: Any, message: str, hint: str) -> None:
    found = error(text, **options)
    assert message in found[0]
    assert hint in (found[1] or "")


def test_a_search_in_a_recipe_that_extends_another_leaves_its_extension_out() -> None:
    Path("base.toml").write_text(
        recipe('"optim.lr" = [0.01, 0.02]', 2).replace("seeds = 1\n", "seeds = 1\ntune_extend = 3\n")
    )
    Path("r.toml").write_text(f'extends = "base.toml"\n{SPACE}')
    assert planning.make("./r.toml", ladder="./l.toml", tune=True, profile="small").extend == 0


class Terminal:
    """One command, whose runs get a score that follows from their settings."""

    def __init__(self, ledger: Ledger, text: str, score: Score, *, fresh: bool = False) -> None:
        self.plan, self.ledger, self.score = make(text, LADDER, tune=True), ledger, score
        self.said: list[str] = []
        self.instance = ledger.add_ladder("mine", "sDigits", None, self.plan.spec)
        chosen = Selection(plan=self.plan, rungs=planning.choose_rungs(self.plan, ["ring", "norm"]), seeds=[0])
        places = Places(ledger=Path("ledger.db"), runs=Path("runs"), data=Path("data"))
        self.runs = SelectedRuns(ledger, chosen.work(self.instance, places, fresh=fresh), chosen, say=self.said.append)
        self.runs.enqueue()
        self.runs.advance(first=True)

    def train(self, count: int = 1000, order: random.Random | None = None) -> None:
        """Trains at most `count` queued runs, several at a time that end in any order."""
        held = []
        while True:
            if count and (run := self.ledger.hold(self.instance.key, owner.this_process(), environment={})) is not None:
                held.append(run)
                count -= 1
                if order is not None and len(held) < 4 and order.random() < 0.7:
                    continue
            if not held:
                return
            run = held.pop(order.randrange(len(held)) if order is not None else 0)
            config = dict(planning.full(run.run.config))  # type: ignore[arg-type]
            rung = self.plan.rungs[2 + (run.run.memberships[0].rung == "norm")]
            score = self.score({path: config[path] for path in rung.grid}, run.run.seed)
            if score is None:
                self.ledger.finish(run, "diverged", result={})
            else:
                self.ledger.finish(run, "done", result={"val/accuracy": score, "val/loss": 1.0, "test/accuracy": score})
            self.runs.load()
            self.runs.advance()


RATES = recipe('"optim.lr" = [0.01, 0.02]', 4)


def tuning_of_ledger(ledger: Ledger, terminal: Terminal) -> set[tuple[str, str, float, int]]:
    return {
        (place.rung, place.stage, run.config.optim.lr, run.seed)
        for run in ledger.runs(terminal.instance.key)
        for place in run.memberships
    }


@pytest.mark.parametrize("repetitions", [1, pytest.param(20, marks=pytest.mark.slow)])
def test_in_any_order_and_with_any_number_of_terminals_the_same_values_are_added(
    repetitions: int, tmp_path: Path
) -> None:
    score = near(0.07)
    with Ledger.open(tmp_path / "whole.db") as ledger:
        terminal = Terminal(ledger, RATES, score)
        assert terminal.runs.remaining() == (10, 10)
        terminal.train()
        assert terminal.runs.all_over()
        whole = tuning_of_ledger(ledger, terminal)
        assert {rate for rung, stage, rate, _ in whole if (rung, stage) == ("ring", "tune")} == {
            0.01,
            0.02,
            0.04,
            0.08,
            0.16,
        }
        assert "ring: the best value is at the edge of those tried; next: optim.lr = 0.04" in terminal.said
        assert "ring: chosen on validation with 2 seeds: optim.lr = 0.08; 3 values added to the grid" in terminal.said
        again = Terminal(ledger, RATES, score)
        assert again.runs.all_over()
        assert again.said == []
        assert again.runs.remaining() == (0, len(whole))
    for seed in range(repetitions):
        order = random.Random(seed)
        with Ledger.open(tmp_path / f"{seed}.db") as ledger:
            for _ in range(order.randint(0, 3)):  # stopped, and begun again
                Terminal(ledger, RATES, score).train(order.randint(1, 5), order)
            terminals = [Terminal(ledger, RATES, score) for _ in range(2)]
            for terminal in [order.choice(terminals) for _ in range(6)]:
                terminal.runs.load()
                terminal.runs.advance()
                terminal.train(order.randint(1, 4), order)
            for terminal in terminals * 2:
                terminal.runs.load()
                terminal.runs.advance()
                terminal.train(order=order)
            assert tuning_of_ledger(ledger, terminals[0]) == whole
            assert not any("no longer part" in text for text in terminals[0].said + terminals[1].said)


def test_values_of_another_choice_are_no_longer_counted(tmp_path: Path) -> None:
    with Ledger.open(tmp_path / "ledger.db") as ledger:
        Terminal(ledger, RATES, near(0.07)).train()
        terminal = Terminal(ledger, RATES, near(0.003), fresh=True)
        terminal.train()
        rates = {
            rate for rung, stage, rate, _ in tuning_of_ledger(ledger, terminal) if (rung, stage) == ("ring", "tune")
        }
        assert rates == {0.01, 0.02, 0.005, 0.0025, 0.00125}
        assert any(said.startswith("ring: no longer part of this ladder: 6 tuning runs ") for said in terminal.said)


def report(ledger: Ledger, terminal: Terminal) -> tuple[Any, str, str]:
    """The tuning of a report, its full text, and the cautions."""
    made = loaded_instance.LoadedInstance(terminal.plan, terminal.instance, ledger).report()
    return made.tuning, " ".join(remark.full for remark in of_report(made)), "; ".join(
        remark.caution.text for remark in cautions(made) if remark.caution is not None
    )  # fmt: skip


def test_a_report_says_how_many_points_each_rung_had_and_looks_for_edges_among_all(tmp_path: Path) -> None:
    with Ledger.open(tmp_path / "inside.db") as ledger:
        terminal = Terminal(ledger, RATES, near(0.07))
        terminal.train()
        tuning, text, short = report(ledger, terminal)
        assert (tuning.extend, tuning.points["ring"], tuning.added["ring"], tuning.at_edge) == (4, 5, 3, {})
        assert (
            "Points tried, with values that were added to the grids: 5 of each rung. More points are more luck" in text
        )
        assert "at the edge" not in text + short
    with Ledger.open(tmp_path / "limit.db") as ledger:
        terminal = Terminal(ledger, RATES, near(5.0))
        terminal.train()
        tuning, text, short = report(ledger, terminal)
        assert (tuning.points["ring"], tuning.at_edge, tuning.at_limit) == (
            6, {"ring": [RATE], "norm": [RATE]}, ["ring", "norm"],
        )  # fmt: skip
        assert "As many values as could be added, 4, were added there." in text
        assert "best rate at the edge of those tried (ring, norm): 4 were added, the limit of --extend" in short
    with Ledger.open(tmp_path / "setting.db") as ledger:
        terminal = Terminal(ledger, recipe('"optim.lr" = [1.0, 4.0]', 4), near(100.0))
        terminal.train()
        tuning, text, short = report(ledger, terminal)
        assert (tuning.points["ring"], tuning.added["ring"], tuning.at_edge["ring"]) == (2, 0, [RATE])
        assert "No further value is valid: ring, norm." in text
        assert "best rate at the edge of those tried (ring, norm)" in short
        assert "limit" not in text + short
    with Ledger.open(tmp_path / "plain.db") as ledger:
        terminal = Terminal(ledger, recipe('"optim.lr" = [0.01, 0.02]'), near(5.0))
        terminal.train()
        tuning, text, short = report(ledger, terminal)
        assert (tuning.extend, tuning.points["ring"], tuning.added, tuning.at_edge["ring"]) == (0, 2, {}, [RATE])
        assert "Points tried" not in text
        assert "best rate at the edge of those tried (ring, norm)" in short
