"""Searches by Optuna's samplers: what trials try, how searches are continued, and faults of recipes."""

from __future__ import annotations

import json
import math
import random
import signal
import sys
from pathlib import Path
from typing import Any

import pytest

from lrurun.config import planning
from lrurun.config.recipe import Range
from lrurun.config.search import Search, proposed_points
from lrurun.config.tuning import choose_point, tuning_of, tuning_runs
from lrurun.errors import UsageError
from lrurun.ledger import owner, query
from lrurun.ledger.ledger import Ledger
from lrurun.paths import Places
from lrurun.runner.selection import SelectedRuns, Selection
from tests.harness.machine import Machine, stop, wait_for
from tests.harness.plans import LADDER, RECIPE, error, make, rungs, write_documents

RANDOM = Search(method="random", trials=30, batch=4)
TPE = Search(method="tpe", trials=40, batch=4)
SPACE: dict[str, Range | list[Any]] = {
    "optim.lr": Range(low=1e-4, high=0.1, log=True),
    "optim.warmup": Range(low=0, high=1, step=0.25),
    "model.state": Range(low=8, high=64, log=True),
    "model.norm": ["batch", "layer"],
}
CONFIG = {"optim.lr": 0.01, "optim.warmup": 0.1, "model.state": 8, "model.norm": "batch"}


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    return write_documents(tmp_path, monkeypatch)


def test_points_are_in_their_ranges_and_have_the_types_of_the_settings() -> None:
    points = proposed_points(RANDOM, SPACE, CONFIG, ())
    assert len(points) == 30
    for point in points:
        assert list(point) == list(SPACE)
        assert 1e-4 <= point["optim.lr"] <= 0.1
        assert point["optim.lr"] == float(f"{point['optim.lr']:.4g}")
        assert point["optim.warmup"] in (0.0, 0.25, 0.5, 0.75, 1.0)
        assert isinstance(point["optim.warmup"], float)
        assert isinstance(point["model.state"], int)
        assert 8 <= point["model.state"] <= 64
        assert point["model.norm"] in ("batch", "layer")
    assert {point["model.norm"] for point in points} == {"batch", "layer"}
    # uniform in the logarithm: about half of them are below the geometric mean
    assert 8 <= sum(point["optim.lr"] < math.sqrt(1e-4 * 0.1) for point in points) <= 22


def test_points_of_a_step_are_multiples_of_it_from_the_lower_end() -> None:
    # ranges that do not end at a step, and values of more than four digits
    space: dict[str, Range | list[Any]] = {
        "optim.warmup": Range(low=0.0, high=1.0, step=0.3),
        "optim.clip": Range(low=1000.5, high=1100, step=1.0),
        "train.batch": Range(low=1, high=10, step=4),
    }
    points = proposed_points(RANDOM, space, {"train.batch": 8}, ())
    assert {point["optim.warmup"] for point in points} == {0.0, 0.3, 0.6, 0.9}
    assert all(point["optim.clip"] % 1 == 0.5 for point in points)
    assert {point["train.batch"] for point in points} == {1, 5, 9}


def test_random_trials_depend_on_their_number_alone() -> None:
    points = proposed_points(RANDOM, SPACE, CONFIG, ())
    assert proposed_points(RANDOM, SPACE, CONFIG, [0.5, None, 0.25]) == points
    assert proposed_points(Search(method="random", trials=7, batch=1), SPACE, CONFIG, ()) == points[:7]
    assert len({json.dumps(point) for point in points}) == 30


def searched(search: Search, score: Any) -> list[dict[str, Any]]:
    """What a search tries, one batch after the other."""
    points: list[dict[str, Any]] = []
    while len(more := proposed_points(search, SPACE, CONFIG, [score(point) for point in points])) > len(points):
        assert more[: len(points)] == points, "what was tried before is proposed again"
        points = more
    return points


def near(point: dict[str, Any]) -> float | None:
    """Best at a rate of 0.01; large rates diverge."""
    return None if point["optim.lr"] > 0.05 else -abs(math.log10(point["optim.lr"]) + 2)


@pytest.mark.slow
def test_tpe_proposes_batches_of_a_fixed_size_and_concentrates() -> None:
    sizes = [len(proposed_points(TPE, SPACE, CONFIG, [0.5] * known)) for known in (0, 9, 10, 13, 14, 39, 40)]
    assert sizes == [10, 10, 14, 14, 18, 40, 40]
    points = searched(TPE, near)
    assert searched(TPE, near) == points
    other = searched(TPE, lambda point: -(near(point) or -9))
    assert other[:10] == points[:10]
    assert other[10:] != points[10:]

    def distance(some: list[dict[str, Any]]) -> float:
        return sorted(abs(math.log10(point["optim.lr"]) + 2) for point in some)[len(some) // 2]

    assert distance(points[20:]) < 0.5 * distance(points[:10])
    assert sum(near(point) is None for point in points[20:]) <= 1


FOUND = """
[tune]
search = "random"
trials = 3

[tune.space]
"optim.lr" = { low = 0.001, high = 0.1, log = true }
"optim.weight_decay" = [0.0, 0.1]
"model.recurrence.r_max" = { low = 0.6, high = 0.9 }
"""
GRID = '[tune.grid]\n"optim.lr" = [0.01, 0.02]\n'
SEARCH = RECIPE.replace(GRID, FOUND)
OWN = '\n[profile.small.ladder.mine.rung.ring.tune]\n"optim.warmup" = { low = 0.1, high = 0.2 }\n'


def test_spaces_have_the_scopes_of_grids() -> None:
    made = make(SEARCH, tune=True)
    assert {rung.name: list(rung.grid) for rung in made.rungs} == {
        "dense": ["optim.lr", "optim.weight_decay"],
        "plane": ["optim.lr", "optim.weight_decay", "model.recurrence.r_max"],
        "ring": ["optim.lr", "optim.weight_decay", "model.recurrence.r_max"],
        "norm": ["optim.lr", "optim.weight_decay", "model.recurrence.r_max"],
    }
    ring = rungs(made)["ring"]
    assert ring.rate_source.text == "tuned on validation here with 3 seeds: random search, 3 trials"
    runs = tuning_runs(made, [ring])
    assert [run.seed for run in runs] == [1000, 1001, 1002] * 3
    assert runs[0].sources["optim.lr"] == "the tuning: random search, 3 trials"
    assert len({run.config.optim.lr for run in runs}) == 3
    assert all(0.6 <= run.config.model.recurrence.r_max <= 0.9 for run in runs)
    results = [{"val/accuracy": score, "val/loss": 1.0} for score in (0.1, 0.4, 0.3) for _ in range(3)]
    point = choose_point(made, ring, results)
    assert point is not None
    assert point["optim.lr"] == runs[3].config.optim.lr
    small = make(SEARCH.replace("seeds = 1\n", "seeds = 1\ntrials = 5\n") + OWN, tune=True, profile="small")
    assert (small.search.trials if small.search else 0) == 5
    assert list(rungs(small)["ring"].grid) == ["optim.lr", "optim.weight_decay", "optim.warmup"]
    assert len(tuning_runs(small, [rungs(small)["ring"]])) == 5
    fixed = make(SEARCH, tune=True, sets={"optim.lr": 0.5})
    assert "optim.lr" not in rungs(fixed)["ring"].grid


def test_a_search_replaces_the_grids_of_the_recipe_that_is_extended() -> None:
    Path("base.toml").write_text(RECIPE + '\n[ladder.mine.rung.norm.tune]\n"optim.warmup" = [0.1]\n')
    Path("r.toml").write_text(f'extends = "base.toml"\n{FOUND}')
    made = planning.make("./r.toml", ladder="./l.toml", tune=True, profile="small")
    assert list(rungs(made)["norm"].grid) == ["optim.lr", "optim.weight_decay", "model.recurrence.r_max"]
    base = planning.make("./base.toml", ladder="./l.toml", tune=True, profile="small")
    assert "optim.warmup" in rungs(base)["norm"].grid, "the file that is extended keeps its own"


@pytest.mark.parametrize(
    ("old", "new", "message", "hint"),
    [
        ("trials = 3\n", "", "r.toml [tune]: search = 'random' without a budget", "as in trials = 20"),
        ("trials = 3", "trials = 0", "r.toml, tune.trials: expected a whole number >= 1, found 0", ""),
        ('"random"', '"annealing"', "r.toml, tune.search: ", ""),
        (
            FOUND,
            FOUND + GRID,
            "r.toml [tune]: search = 'random' and a grid exclude each other",
            "write what is searched",
        ),
        ('search = "random"\n', "", "r.toml [tune.space]: is for a search", 'add search = "random" or "tpe" to [tune]'),
        (FOUND, "[tune]\n", "r.toml [tune]: has neither a grid nor a search", "add [tune.grid]; or add search"),
        (FOUND, "[tune]\nsearch = 'tpe'\ntrials = 3\n", "search = 'tpe' without a space", "as in [tune.sp"),
        ("low = 0.001", "low = 0.1", "optim.lr: low = 0.1, high = 0.1: low must be less than high", "[0.9]"),
        (
            "low = 0.001",
            "low = 0.0",
            "optim.lr: low = 0.0, high = 0.1: a logarithmic range begins above 0",
            "raise low",
        ),
        ("log = true", "log = true, step = 0.1", "log and step exclude each other", "omit one of them"),
        ("log = true", "step = 1.0", "step = 1.0 does not fit into it", "at most high - low"),
        ("high = 0.1,", "", "tune.space", ""),
        ("low = 0.001", "lwo = 0.001", "tune.space", ""),
        ("optim.lr", "optim.rl", "optim.rl: unknown name", "did you mean 'optim.lr'?"),
        ("high = 0.9", "high = 1.5", "r_max: expected a number <= 1, found 1.5", ""),
        ('"optim.lr" = {', '"model.width" = {', "model.width: expected a whole number", ""),
        (
            FOUND,
            GRID.replace("[0.01, 0.02]", "{ low = 0.1, high = 0.2 }"),
            "optim.lr: a range is for a search",
            "add s",
        ),
    ],
    ids=range(17),
)
def test_wrong_searches_are_errors_with_hints(old: str, new: str, message: str, hint: str) -> None:
    assert old in SEARCH
    found = error(SEARCH.replace(old, new, 1), tune=True)
    assert message in found[0]
    assert hint in (found[1] or "")


def test_all_faults_of_a_search_are_listed_at_once(machine: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    write_documents(machine.folder, monkeypatch)
    wrong = SEARCH.replace("trials = 3\n", "").replace("low = 0.6", "low = 1.5").replace("optim.lr", "optim.rl")
    Path("r.toml").write_text(wrong + GRID)
    out = machine.run("check", "recipe", "./r.toml", "--ladder", "./l.toml", code=2).stdout
    for fault in ("without a budget", "a grid exclude each", "low must be less than high", "optim.rl: unknown"):
        assert fault in out


def test_trials_of_a_profile_need_a_search() -> None:
    message, _ = error(RECIPE.replace("seeds = 1\n", "seeds = 1\ntrials = 5\n"))
    assert message == "r.toml [profile.small], trials: the recipe has no search"


def test_without_optuna_an_error_says_what_to_install(machine: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    write_documents(machine.folder, monkeypatch)
    Path("r.toml").write_text(SEARCH)
    monkeypatch.setitem(sys.modules, "optuna", None)
    words = ("./r.toml", "--ladder", "./l.toml")
    machine.run("plan", *words)
    for what in ("plan", "ladder"):
        said = machine.refused(what, *words, "--tune", code=1)
        assert "error: a search needs Optuna, which is not installed\nhint: install it: pip install 'lrurun[sea" in said


def test_plan_says_what_is_searched_and_how_long(machine: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    write_documents(machine.folder, monkeypatch)
    Path("r.toml").write_text(SEARCH.replace('"random"', '"tpe"').replace("trials = 3", "trials = 25"))
    plan = ("plan", "./r.toml", "--ladder", "./l.toml", "--rung", "ring", "--tune")
    out = " ".join(machine.run(*plan).stdout.split())
    assert "0/77" in out
    assert (
        "with 3 seeds by TPE search, batches of 4, 25 trials, for each rung: optim.lr from 0.001 to 0.1 (log);" in out
    )
    assert "optim.weight_decay from 0, 0.1; model.recurrence.r_max from 0.6 to 0.9." in out
    [row] = machine.json(*plan)["rungs"]
    assert (row["tuning_runs"], row["runs"], row["rate_source"]["kind"]) == (75, 77, "tuned")


class Terminal:
    """One command on a search, whose runs get a score that follows from their settings."""

    def __init__(self, ledger: Ledger, recipe: str, *, fresh: bool = False) -> None:
        self.plan = make(recipe, LADDER, tune=True)
        self.ledger, self.said, self.sign = ledger, list[str](), 1
        self.instance = ledger.add_ladder("mine", "sDigits", None, self.plan.spec)
        chosen = Selection(plan=self.plan, rungs=planning.choose_rungs(self.plan, ["ring"]), seeds=[0])
        places = Places(ledger=Path("ledger.db"), runs=Path("runs"), data=Path("data"))
        work = chosen.work(self.instance, places, fresh=fresh)
        self.runs = SelectedRuns(ledger, work, chosen, say=self.said.append)
        self.runs.enqueue()
        self.runs.advance(first=True)

    def train(self, count: int = 1000) -> None:
        """Trains at most `count` queued runs, one after another."""
        for _ in range(count):
            held = self.ledger.hold(self.instance.key, owner.this_process(), environment={})
            if held is None:
                return
            rate = held.run.config.optim.lr
            if rate > 0.08 and held.run.seed == 1001:
                self.ledger.finish(held, "diverged", result={})
            else:
                score = -self.sign * abs(math.log10(rate) + 2) + 0.001 * (held.run.seed - 1000)
                self.ledger.finish(held, "done", result={"val/accuracy": score, "val/loss": 1.0})
            self.runs.load()
            self.runs.advance()


def test_final_runs_of_another_choice_are_no_longer_counted(tmp_path: Path) -> None:
    with Ledger.open(tmp_path / "ledger.db") as ledger:

        def final() -> list[Any]:
            places = ((run, place) for run in ledger.runs(terminal.instance.key) for place in run.memberships)
            return [run.config.optim.lr for run, place in places if place.stage == "train"]

        terminal = Terminal(ledger, SEARCH)
        terminal.train()
        before = final()
        terminal = Terminal(ledger, SEARCH, fresh=True)
        terminal.sign = -1
        terminal.train()
        assert len(before) == len(final()) == 1
        assert before != final()
        assert any(said.startswith("ring: no longer part of this ladder: 1 run ") for said in terminal.said)


def trials(path: Path, instance: str = "%") -> list[Any]:
    sql = (
        "select trial, id, optim_lr, optim_weight_decay, val_accuracy from trials "
        f"where instance like '{instance}' order by trial, seed"
    )
    return query.select(path, sql)[1]


@pytest.mark.slow
def test_a_search_that_is_stopped_and_shared_ends_with_the_same_trials(tmp_path: Path) -> None:
    recipe = SEARCH.replace('"random"', '"tpe"').replace("trials = 3", "trials = 20\nseeds = 2")
    whole, parts = tmp_path / "whole.db", tmp_path / "parts.db"
    with Ledger.open(whole) as ledger:
        terminal = Terminal(ledger, recipe)
        assert terminal.runs.remaining() == (41, 41)
        terminal.train()
        assert terminal.runs.all_over()
        [said] = terminal.said
        tuned = {run.id: run for run in ledger.runs()}
        assert len(tuned) == 41
        again = Terminal(ledger, recipe)
        assert again.runs.all_over()
        assert again.said == []
    with Ledger.open(parts) as ledger:
        for count in (3, 17):
            Terminal(ledger, recipe).train(count)
        first, second = Terminal(ledger, recipe), Terminal(ledger, recipe)
        for terminal in (first, second, second, first):
            terminal.train(2)
        second.runs.load()
        second.runs.advance()
        second.train()
        assert [one for one in first.said + second.said if "no longer part" in one] == []
        assert said in second.said + first.said
        assert {run.id for run in ledger.runs()} == set(tuned)
    found = trials(whole)
    assert trials(parts) == found
    assert len(found) == 40
    assert sum(row[4] is not None and row[4] > -0.5 for row in found[20:]) >= 14, "it goes where it is good"


@pytest.mark.slow
def test_another_space_leaves_the_old_trials_out_and_fresh_trains_all_again(tmp_path: Path) -> None:
    recipe = SEARCH.replace('"random"', '"tpe"').replace("trials = 3", "trials = 14")
    with Ledger.open(tmp_path / "ledger.db") as ledger:
        Terminal(ledger, recipe).train()
        more = Terminal(ledger, recipe.replace("trials = 14", "trials = 18"))
        more.train()
        assert len(ledger.runs()) == (14 + 4) * 3 + 1
        assert more.runs.all_over()
        assert not any("no longer part" in one for one in more.said)
        other = Terminal(ledger, recipe.replace("high = 0.1,", "high = 0.05,"))
        other.train()
        assert other.instance.key != more.instance.key
        before = [row[:4] for row in trials(tmp_path / "ledger.db", other.instance.short_name)]
        assert len(before) == 14 * 3
        assert max(row[2] for row in before) <= 0.05
        Terminal(ledger, recipe.replace("high = 0.1,", "high = 0.05,"), fresh=True).train()
        after = [row[:4] for row in trials(tmp_path / "ledger.db", other.instance.short_name)]
        assert [row[2:] for row in after] == [row[2:] for row in before]
        assert not {row[1] for row in after} & {row[1] for row in before}


def test_a_point_that_is_proposed_twice_is_one_run(tmp_path: Path) -> None:
    few = '[tune]\nseeds = 1\nsearch = "random"\ntrials = 6\n[tune.space]\n"optim.weight_decay" = [0.0, 0.1]\n'
    with Ledger.open(tmp_path / "ledger.db") as ledger:
        terminal = Terminal(ledger, RECIPE.replace(GRID, few))
        terminal.train()
        assert [run.state for run in ledger.runs()] == ["done"] * 3
        ring = rungs(terminal.plan)["ring"]
        assert len(tuning_of(terminal.plan, ring, ())) == 6


SPACES = """
extends = "sDigits.toml"

[tune]
search = "{kind}"
trials = 20

[tune.space]
"optim.lr" = {{ low = 1e-3, high = 0.1, log = true }}  # the setting with which nothing is compiled again
"""
ARGUMENTS = ("ladder", "search.toml", "--profile", "smoke", "--rung", "gamma-norm", "--tune")
SETS = ("--set", "execution.checkpoint_seconds=0.2")


def outcome(machine: Machine) -> list[Any]:
    """Trials, final runs and the choice, with every bit of the results."""
    kept = []
    for view in ("trials", "results"):
        found = machine.json("query", f"select * from {view} order by id")
        varying = [found["columns"].index(name) for name in ("duration", "finished_at", "machine_steps_per_second")]
        kept.append([[cell for n, cell in enumerate(row) if n not in varying] for row in found["rows"]])
    return [*kept, machine.json("query", "select text from events where kind = 'tuned'")["rows"]]


@pytest.mark.rare
@pytest.mark.parametrize("kind", ["random", "tpe"])
def test_a_search_killed_twice_ends_as_an_undisturbed_one(kind: str, tmp_path: Path) -> None:
    machines = [Machine(tmp_path / name) for name in ("calm", "killed")]
    for machine in machines:
        (machine.folder / "search.toml").write_text(SPACES.format(kind=kind))
    calm, killed = machines
    calm.run(*ARGUMENTS, *SETS, "--jobs", "1", apart=True, timeout=600)
    assert len(outcome(calm)[0]) == 20
    draw = random.Random(0)
    for least in (3, 12):
        process = killed.start(*ARGUMENTS, *SETS, "--jobs", "2")
        wait_for(lambda least=least: killed.states().get("done", 0) >= least + draw.randint(0, 2), 300)
        stop(process, signal.SIGKILL)
        process.communicate(timeout=30)
        wait_for(lambda: "running" not in killed.states(), 30)
        assert killed.states().get("done", 0) < 20
    killed.run(*ARGUMENTS, *SETS, "--jobs", "2", apart=True, timeout=600)
    assert outcome(killed) == outcome(calm)
    report = killed.run("report", "search.toml", *ARGUMENTS[2:4], "--tune", "--details").stdout
    assert "tuned on validation here with 1 seed: " in report
    with pytest.raises(UsageError):
        query.select(killed.ledger, "select nothing from trials")
