"""`report --by K --choose` where instances have runs in common, or equal values: what counts is by value, not by
instance."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple

import numpy as np
import pytest
import scipy.stats
from hypothesis import Phase, given, settings, strategies

from lrurun.config import planning
from lrurun.config.planning import final_runs
from lrurun.errors import NotFoundError
from lrurun.instances import requests
from lrurun.ledger.ledger import Ledger
from lrurun.report.tables.chosen_table import Choice
from lrurun.report.tables.swept_table import find
from tests.harness.machine import Machine
from tests.harness.results import fill

FAST = ("sDigits", "--profile", "smoke")
RATE, R_MIN = "optim.lr", "model.recurrence.r_min"
ITEMS = 300
Sets = Mapping[str, Any]


def score(rung: str, value: Any, seed: int, *, validation: bool = False) -> float:
    """A whole number of the test items, so that the runs have per-item results."""
    draw = np.random.default_rng([*f"{rung} {value} {validation}".encode(), seed])
    level = 0.5 + 0.2 * (np.random.default_rng([*f"{rung} {value}".encode()]).uniform() - 0.5)
    return float(np.round(ITEMS * draw.normal(level, 0.03)) / ITEMS)


def scores(rung: str, value: Any, seeds: Sequence[int]) -> list[float]:
    return [score(rung, value, seed) for seed in seeds]


def train(ledger: Path, sets: Sets, values: Mapping[str, Any], seeds: range) -> None:
    """Runs of the rungs with these values, in the instance with these settings."""
    fill(
        ledger,
        "sDigits",
        {rung: scores(rung, value, seeds) for rung, value in values.items()},
        profile="smoke",
        sets=sets,
        first=seeds.start,
        validation={
            rung: [score(rung, value, seed, validation=True) for seed in seeds] for rung, value in values.items()
        },
    )


def share(path: Path, sets: Sets, rungs: Sequence[str], seeds: Sequence[int]) -> None:
    """Runs that another instance has trained, in the instance with these settings too."""
    plan = planning.make("sDigits", profile="smoke", sets=sets)
    with Ledger.open(path) as ledger:
        instance = ledger.add_ladder(plan.ladder.name, plan.recipe.task, "smoke", plan.spec, plan.short_name)
        for rung in planning.choose_rungs(plan, rungs):
            runs = ledger.enqueue(instance.key, final_runs(plan, rung, seeds))
            assert {run.state for run in runs} == {"done"}, "nobody has trained them"


def by_name(rows: Sequence[Any], name: str) -> Any:
    [row] = [row for row in rows if row["rung"] == name]
    return row


PAIR = ("stable-exponential", "ring-init")
OWN = 0.032
"""The rate that the recipe has for both."""


def mean_of_choice(rung: str, value: Any, seeds: Sequence[int] = range(3)) -> float:
    return float(np.mean([score(rung, value, seed, validation=True) for seed in seeds]))


WORSE = next(
    rate
    for rate in np.arange(0.1, 1, 0.01).round(2).tolist()
    if all(mean_of_choice(rung, rate) < mean_of_choice(rung, OWN) for rung in PAIR)
)
OF_PAIR = ("--rung", PAIR[0], "--rung", PAIR[1])


def test_seeds_of_the_recipes_rate_count_whichever_instance_has_them(tmp_path: Path) -> None:
    """A plain ladder was there before the sweep, which has its rate too: both have runs that the other has not."""
    machine = Machine(tmp_path / "here")
    train(machine.ledger, {}, dict.fromkeys(PAIR, OWN), range(5))
    train(machine.ledger, {RATE: WORSE}, dict.fromkeys(PAIR, WORSE), range(3))
    share(machine.ledger, {RATE: OWN}, PAIR, range(3))
    command = ("report", *FAST, *OF_PAIR, "--by", RATE, "--choose")
    before = machine.json(*command)
    assert [(choice["among"], choice["seeds"], choice["judged"]) for choice in before["choice"]] == [
        (2, [0, 1, 2], 2)
    ] * 2
    assert [row["n"] for row in before["rows"]] == [2, 2], "seeds 3 and 4, which only the plain instance has"
    assert [words.partition("--set")[2] for words in before["commands"]] == [
        f" {RATE}={OWN} {' '.join(OF_PAIR)} --seeds 3-14"
    ]
    train(machine.ledger, {RATE: OWN}, dict.fromkeys(PAIR, OWN), range(5, 17))
    report = machine.json(*command)
    seeds = range(3, 17)
    assert [choice["judged"] for choice in report["choice"]] == [14, 14]
    assert report["commands"] == []
    for rung in PAIR:
        row = by_name(report["rows"], rung)
        assert row["scores"] == scores(rung, OWN, seeds)
        assert row["mean"] == pytest.approx(np.mean(row["scores"]))
        assert row["stderr"] == pytest.approx(np.std(row["scores"], ddof=1) / 14**0.5)
        assert row["learning_rate"] == OWN
    change = by_name(report["rows"], PAIR[1])["comparison"]
    other, mine = (np.array(scores(rung, OWN, seeds)) for rung in PAIR)
    assert change["difference"] == pytest.approx(mine.mean() - other.mean())
    greater = mine[:, None] > other
    assert change["improvement"] == pytest.approx(np.mean(greater + (mine[:, None] == other) / 2))
    interval = scipy.stats.ttest_ind(mine, other, equal_var=False).confidence_interval()
    assert change["low"] <= interval.low <= interval.high <= change["high"], "test items widen it"
    assert not change["provisional"]
    # as of a ledger in which one instance has all of these runs
    alone = Machine(tmp_path / "alone")
    train(alone.ledger, {RATE: OWN}, dict.fromkeys(PAIR, OWN), seeds)
    wanted = alone.json("report", *FAST, *OF_PAIR, "--set", f"{RATE}={OWN}")
    assert change == by_name(wanted["rows"], PAIR[1])["comparison"]


def test_a_rung_without_the_setting_is_judged_by_the_runs_of_all_instances(tmp_path: Path) -> None:
    """Its command trains it in an instance that the sweep has not made."""
    machine = Machine(tmp_path / "here")
    radii = sorted((0.8, 0.9), key=lambda radius: mean_of_choice("ring-init", radius))
    worse, best = radii
    for radius in radii:
        train(machine.ledger, {R_MIN: radius}, {"ring-init": radius}, range(3))
    train(machine.ledger, {R_MIN: worse}, {"tanh-rnn": None}, range(3))
    share(machine.ledger, {R_MIN: best}, ["tanh-rnn"], range(3))
    rungs = ("--rung", "tanh-rnn", "--rung", "ring-init")
    command = ("report", *FAST, *rungs, "--by", R_MIN, "--choose")
    commands = machine.json(*command)["commands"]
    assert [words.partition(" smoke ")[2] for words in commands] == [
        "--rung tanh-rnn --seeds 3-14",
        f"--set {R_MIN}={best} --rung ring-init --seeds 3-14",
    ]
    train(machine.ledger, {}, {"tanh-rnn": None}, range(3, 8))
    train(machine.ledger, {R_MIN: best}, {"ring-init": best}, range(3, 8))
    report = machine.json(*command)
    assert [(one["rung"], one["among"], one["seeds"], one["judged"]) for one in report["choice"]] == [
        ("tanh-rnn", 1, [], 5),
        ("ring-init", 2, [0, 1, 2], 5),
    ]
    first, second = scores("tanh-rnn", None, range(3, 8)), scores("ring-init", best, range(3, 8))
    assert [row["scores"] for row in report["rows"]] == [first, second]
    assert report["commands"] == commands, "five seeds are not twelve"
    for rung, value, sets in (("tanh-rnn", None, {}), ("ring-init", best, {R_MIN: best})):
        train(machine.ledger, sets, {rung: value}, range(8, 15))
    report = machine.json(*command)
    assert report["commands"] == []
    assert [row["n"] for row in report["rows"]] == [12, 12]


def test_few_seeds_of_several_instances_are_compared_by_welchs_test(tmp_path: Path) -> None:
    machine = Machine(tmp_path / "here")
    train(machine.ledger, {RATE: WORSE}, dict.fromkeys(PAIR, WORSE), range(3))
    train(machine.ledger, {RATE: OWN}, dict.fromkeys(PAIR, OWN), range(3))
    train(machine.ledger, {}, dict.fromkeys(PAIR, OWN), range(3, 7))
    report = machine.json("report", *FAST, *OF_PAIR, "--by", RATE, "--choose")
    change = by_name(report["rows"], PAIR[1])["comparison"]
    other, mine = (scores(rung, OWN, range(3, 7)) for rung in PAIR)
    assert [row["scores"] for row in report["rows"]] == [other, mine]
    assert change["provisional"]
    # an error from the items is added to that of the seeds
    welch = scipy.stats.ttest_ind(mine, other, equal_var=False)
    assert change["difference"] == pytest.approx(np.mean(mine) - np.mean(other))
    assert change["p_on_these_items"] >= welch.pvalue * 0.999
    assert change["p_unadjusted"] >= welch.pvalue * 0.999


def test_seeds_that_one_instance_had_before_are_earlier_results_of_the_other(tmp_path: Path) -> None:
    """All of these runs are there already, so that the commands only record what was asked for."""
    machine = Machine(tmp_path / "swept")
    train(machine.ledger, {}, dict.fromkeys(PAIR, OWN), range(15))
    train(machine.ledger, {RATE: WORSE}, dict.fromkeys(PAIR, WORSE), range(3))
    command = ("report", *FAST, *OF_PAIR, "--by", RATE, "--choose")

    def added() -> list[str]:
        return [note["text"] for note in machine.json(*command)["notes"] if "later command" in note["text"]]

    ladder = ("ladder", *FAST, *OF_PAIR)
    for value in (OWN, WORSE):
        machine.run(*ladder, "--set", f"{RATE}={value}", "--seeds", "3")
    machine.run(*ladder, "--set", f"{RATE}={OWN}", "--seeds", "3-14")
    assert added() == [], "the seeds that chose judge nothing"
    machine = Machine(tmp_path / "plain")
    train(machine.ledger, {}, dict.fromkeys(PAIR, OWN), range(15))
    train(machine.ledger, {RATE: WORSE}, dict.fromkeys(PAIR, WORSE), range(3))
    machine.run(*ladder, "--seeds", "5")
    for value in (OWN, WORSE):
        machine.run(*ladder, "--set", f"{RATE}={value}", "--seeds", "3")
    machine.run(*ladder, "--set", f"{RATE}={OWN}", "--seeds", "3-14")
    [sentence] = added()
    assert sentence.startswith(f"seeds 5 to 14 of {', '.join(PAIR)} were added in a later command: the error rate")


def test_fresh_seeds_of_the_command_that_chose_are_no_later_seeds_of_its_comparison(machine: Machine) -> None:
    train(machine.ledger, {RATE: OWN}, dict.fromkeys(PAIR, OWN), range(15))
    train(machine.ledger, {RATE: WORSE}, dict.fromkeys(PAIR, WORSE), range(6))
    with Ledger.open(machine.ledger) as ledger:
        for value, seeds, chosen_by in ((OWN, range(6), []), (WORSE, range(6), []), (OWN, range(3, 15), [0, 1, 2])):
            sets = {RATE: value}
            request = requests.LadderRequest(
                task="sDigits", ladder="lru", profile="smoke", tune=False, sets=sets, rungs=[*PAIR], chosen_by=chosen_by
            )
            plan = request.plan()
            [instance] = [one for one in ledger.ladders() if one.spec == plan.spec]
            requests.remember(ledger, instance, request, plan, seeds)

    def added(*command: str) -> list[str]:
        return [note["text"] for note in machine.json("report", *command)["notes"] if " added " in note["text"]]

    assert added(*FAST, *OF_PAIR, "--by", RATE, "--choose") == []
    of_instance = (*FAST, *OF_PAIR, "--set", f"{RATE}={OWN}")
    [sentence] = added(*of_instance)
    assert sentence.startswith(
        f"seeds 6 to 14 of {', '.join(PAIR)} were added because validation chose this value by seeds 0 to 2: the error"
    )
    methods = machine.json("report", *FAST, "--set", f"{RATE}={OWN}", "--methods")["text"]
    assert "were added because validation chose this value by seeds 0 to 2" in methods


def test_a_forgotten_run_of_two_instances_is_one_run(tmp_path: Path) -> None:
    machine = Machine(tmp_path / "here")
    train(machine.ledger, {}, dict.fromkeys(PAIR, OWN), range(4))
    share(machine.ledger, {RATE: OWN}, PAIR, range(4))
    train(machine.ledger, {RATE: 0.5}, dict.fromkeys(PAIR, 0.5), range(4))
    condition = f"rung = '{PAIR[0]}' and seed = 1 and {RATE} = {OWN}"
    machine.run("ledger", "forget", "--where", condition, "--why", "a broken disk", "--yes")
    command = ("report", *FAST, *OF_PAIR, "--by", RATE, "--choose")
    assert f"1 run was forgotten ({PAIR[0]}): a broken disk" in machine.run(*command).stdout
    assert by_name(machine.json(*command)["rows"], PAIR[0])["removed"] == 1


INSTANCES: dict[str, Sets] = {"plain": {}, "same": {RATE: OWN}, "other": {RATE: 0.5}}
Parts = Mapping[tuple[str, str], set[int]]
"""An instance and a rung -> the seeds that it has of it."""
PARTS = strategies.fixed_dictionaries(
    {
        (name, rung): strategies.sets(strategies.integers(0, 5), min_size=2 if name == "other" else 0, max_size=4)
        for name in INSTANCES
        for rung in PAIR
    }
)


def record(path: Path, parts: Parts) -> None:
    done: set[tuple[str, float, int]] = set()
    for (name, rung), seeds in parts.items():
        value = INSTANCES[name].get(RATE, OWN)
        for seed in sorted(seeds):
            if (rung, value, seed) in done:
                share(path, INSTANCES[name], [rung], [seed])
            else:
                train(path, INSTANCES[name], {rung: value}, range(seed, seed + 1))
            done.add((rung, value, seed))


class ByHand(NamedTuple):
    """What is chosen and judged, of seeds by value alone."""

    values: dict[str, float]
    among: dict[str, int]
    chose: dict[str, list[int]]
    judged: dict[str, list[int]]


def by_hand(parts: Parts, most: int) -> ByHand | None:
    pools: dict[str, dict[float, set[int]]] = {rung: {} for rung in PAIR}
    for (name, rung), seeds in parts.items():
        if seeds:
            pools[rung].setdefault(INSTANCES[name].get(RATE, OWN), set()).update(seeds)
    chose, values = {}, {}
    for rung, pool in pools.items():
        common = sorted(set.intersection(*pool.values()))[:most] if len(pool) > 1 else []
        if pool and (common or len(pool) == 1):
            chose[rung] = common
            values[rung] = (
                max(pool, key=lambda value: mean_of_choice(rung, value, common)) if common else next(iter(pool))
            )
    used = set().union(*chose.values())
    if not used:
        return None
    judged = {rung: sorted(pools[rung][value] - used) for rung, value in values.items()}
    return ByHand(values, {rung: len(pools[rung]) for rung in values}, chose, judged)


@pytest.mark.slow
# a simpler example of a failure would take minutes to find
@settings(max_examples=10, derandomize=True, deadline=None, database=None, phases=[Phase.generate])
@given(PARTS, strategies.integers(1, 2))
def test_instances_do_not_matter_beside_their_values(parts: Parts, most: int) -> None:
    expected = by_hand(parts, most)
    with TemporaryDirectory() as folder:
        path = Path(folder) / "ledger.db"
        record(path, parts)
        plan = planning.make("sDigits", profile="smoke")
        request = requests.LadderRequest(task="sDigits", ladder="lru", profile="smoke", tune=False, sets={})
        with Ledger.open(path) as ledger:
            instances = find(ledger, plan, (RATE,), "")
            if expected is None:
                with pytest.raises(NotFoundError):
                    Choice(plan, instances, (RATE,), most, "")
                return
            report = Choice(plan, instances, (RATE,), most, "").report(request, list(PAIR))
    assert {choice.rung: choice.values[RATE] for choice in report.choice} == expected.values
    assert {choice.rung: choice.among for choice in report.choice} == expected.among
    assert {choice.rung: choice.seeds for choice in report.choice} == expected.chose
    assert {choice.rung: choice.judged for choice in report.choice} == {
        rung: len(seeds) for rung, seeds in expected.judged.items()
    }
    for row in report.rows:
        seeds = expected.judged.get(row.rung, [])
        assert list(row.scores) == [score(row.rung, expected.values[row.rung], seed) for seed in seeds]
        assert row.n == len(seeds)
    change = report.rows[1].comparison
    first, second = (list(row.scores) for row in report.rows)
    if change is not None and min(len(first), len(second)) > 1:
        assert change.difference == pytest.approx(np.mean(second) - np.mean(first))
        welch = scipy.stats.ttest_ind(second, first, equal_var=False)
        assert change.p_unadjusted is not None
        assert change.p_unadjusted >= welch.pvalue * 0.999
    assert bool(report.commands) == any(len(seeds) < 12 for seeds in expected.judged.values())
