"""`lrurun runs`: what conditions, orders, columns and groups mean, and how they are printed."""

from __future__ import annotations

import contextlib
import io
import math
import os
import pty
import random
import re
import statistics
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from unittest import mock

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from lrurun import console
from lrurun.__main__ import run as command
from lrurun.config.runs import InstanceSpec
from lrurun.config.schema import is_setting, known_paths
from lrurun.errors import UsageError
from lrurun.ledger import columns
from lrurun.ledger.ledger import Ledger
from lrurun.ledger.where import grammar
from lrurun.ledger.where.names import Names
from tests.harness import where
from tests.harness.machine import Machine
from tests.harness.results import fill
from tests.harness.stores import ME, drop_trigger, raw, want

KNOWN = Names(["val/extra"])
Holds = Callable[[str], bool]


@pytest.fixture(scope="module")
def holds(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Holds]:
    """Whether a condition is true of the only run of a ledger."""
    path = tmp_path_factory.mktemp("one") / "ledger.db"
    with Ledger.open(path) as ledger:
        key = ledger.add_ladder("lru", "ListOps", None, InstanceSpec()).key
        config = {"task": "ListOps", "optim": {"lr": 4e-4}, "model": {"recurrence": {"normalize": True}}, "seed": 3}
        same = {"task": "ListOps", "config": config, "fingerprint": f"sha256:{'0' * 64}"}
        ledger.enqueue(key, [want(rung, 3, 3, **same) for rung in ("disk", "ring-init")])
        held = ledger.hold(key, ME)
        assert held is not None
        ledger.finish(held, "done", result={"val/accuracy": 0.75, "val/extra": math.nan})
    drop_trigger(path, "runs_finished_stay", "stored_runs")
    raw(path, "UPDATE stored_runs SET id = '123456789012', created_at = 1795168800.25")
    with Ledger.open(path) as ledger:
        yield lambda text: bool(ledger.run_ids(grammar.parse(text, KNOWN)))


TRUE = """
task=ListOps
task==ListOps
task = 'ListOps'
task="ListOps"
task!=Text
task>Kist
task=ListOps and val/accuracy>0.5 and optim.lr<1e-3
id=123456789012
seed=3 AND seed=3.0 and seed=+3 and seed=3e0
seed>-1 and seed>=3 and seed<=3 and seed<4 and not seed!=3
val/accuracy>.5 and val/accuracy>=75% and not val/accuracy>75%
rung=disk and rung=ring-init and rung!=tanh-rnn
tag!=good and not tag=good
profile!=smoke and profile=''
not test/accuracy>0
model.recurrence.normalize=true and model.recurrence.normalize!=false
state=done or state=done and state=failed
not state=failed and state=done
not(state=failed)and(state=done)
not not state=done
(((state=done)))
val/extra!=1
task!='and'
created_at>2026-11-20 and created_at<2026-11-21
created_at>2026 and created_at>=2026-11 and created_at<2027 and created_at<=2026-12
created_at>2026-11-20T09:59 and created_at<'2026-11-20 10:01'
created_at='2026-11-20 10:00:00' and created_at=2026-11-20T10:00:00 and created_at=2026-11-20T10:00:00Z
created_at=2026-11-20T11:30:00+01:30 and created_at='2026-11-19 23:00:00.75-11:00'
created_at>'2026-11-20 09:59:59' and not created_at>'2026-11-20 10:00:00'
created_at<2026-11-20T10:00-00:01 and created_at>2026-11-20T10:00:00+00:01
created_at=1795168800 and created_at=1795168800.9 and created_at>1795168799 and created_at<1795168801
created_at!=2026-11-20 and created_at>2026-11-20
""".strip().splitlines()
FALSE = """
task=listops
rung!=disk
tag=good
test/accuracy=0
test/accuracy!=0
test/accuracy>0 or test/accuracy<=0
profile=smoke
profile!=''
stage=tune
stage!=train
model.recurrence.kernel_length>=0
(state=done or state=done) and state=failed
val/extra>0
val/extra<=0
seed=3 and not seed=3
""".strip().splitlines()


def test_conditions_are_true_or_false(holds: Holds) -> None:
    assert [text for text in TRUE if not holds(text)] == []
    assert [text for text in FALSE if holds(text)] == []
    assert holds("(" * 100 + "seed=3" + ")" * 100)
    assert holds(" and ".join(["seed=3"] * 200))
    shares = grammar.parse("val/accuracy>69.9%", KNOWN)
    assert isinstance(shares, grammar.ValueComparison)
    assert shares.number == 0.699


PIECES = ["seed", "=", "<", "3", "(", ")", "and", "or", "not", " ", "'", '"', "task", "\x1b[31m", "é", "\n", "!", "%s"]


@settings(max_examples=50, derandomize=True, deadline=None, suppress_health_check=list(HealthCheck))
@given(pieces=st.lists(st.sampled_from(PIECES), max_size=12))
def test_any_text_is_a_condition_or_one_error(holds: Holds, pieces: list[str]) -> None:
    with contextlib.suppress(UsageError):
        assert holds("".join(pieces)) in (True, False)


WRONG = [
    ("", "column 1: expected a name, 'not' or '('", "as in: task="),
    ("seed", "column 5: expected = != < <= > or >= after seed, found the end", "as in"),
    ("seed=", "column 6: expected a value to compare seed with, found the end", "as in"),
    ("seed=3 task=x", "column 8: expected and, or, or the end, found 'task'", "as in"),
    ("seed=3)", "column 7: expected and, or, or the end, found ')'", "as in"),
    ("(seed=3", "column 8: expected ')', 'and' or 'or', found the end", "as in"),
    ("seed=3 and", "column 11: expected a name", "as in"),
    ("seed=and", "column 6: expected a value to compare seed with, found 'and'", "as in"),
    ("seed=three", "column 6: expected a number to compare seed with, found 'three'", "as in"),
    ("seed='3'", "column 6: expected a number", "as in"),
    ("seed=nan", "column 6: expected a number", "as in"),
    ("seed=1; drop table runs", "column 6: expected a number to compare seed with, found '1;'", "as in"),
    ("optim.lr>30%", "column 10: expected a number", "only shares such as test/accuracy are compared in per cent"),
    ("val/loss>30%", "column 10: expected a number", "only shares"),
    ("val/extra>30%", "column 11: expected a number", "of a task of your own needs --load FILE, or write 0.3"),
    ("val/extra>30%%", "found '30%%'", "as in"),
    ("val/accuracy>'30%'", "column 14: expected a number", "as in"),
    ("rung<disk", "column 5: expected = or != after rung, found '<'", "as in"),
    ("execution.remat=1", "column 17: expected true or false to compare execution.remat with, found '1'", "as in"),
    ("task='List", "column 6: a quote that does not end", "add another '"),
    ("!seed=3", "column 1: unexpected '!'", "as in"),
    ("seed=3 and optim.rl=1", "column 12: unknown name 'optim.rl'", "did you mean 'optim.lr'? fields: id, kind,"),
    ("lr=1", "column 1: unknown name 'lr'", "did you mean 'optim.lr'?"),
    ("__import__('os').system('x')=1", "column 1: unknown name '__import__'", "fields:"),
    ("state=dne", "column 7: unknown state 'dne'", "did you mean 'done'? states: queued, running,"),
    ("x" * 1_000_000, "1000000 characters are too long", ""),
    ("(" * 101 + "seed=3" + ")" * 101, "column 101: nested more than 100 deep", ""),
    ("not " * 2000 + "seed=3", "column 401: nested more than 100 deep", ""),
    ("y" * 5000 + "=1", f"column 1: unknown name '{'y' * 37}...'", ""),
]
NO_TIMES = [
    *("yesterday", "12:00", "2026-13-45", "2026-02-29", "2026-11-22T25:00", "2026-11-22T10:00:60", "0000", "20261122"),
    *("2026-1-2", "2026-11-22T14", "2026-11-", "0", "1e9", "999999999999", "1795168800000", "-5", "2026-11-22Z"),
    *("0001-01-01T00:00+01:00", "9999-12-31T23:59:59-01:00", "٢٠٢٦", "2026-11-22T10:00:00+25:00"),
]


@pytest.mark.parametrize(
    ("text", "error", "hint"),
    [*WRONG, *((f"finished_at<{time}", "column 13: expected a date or time", "(UTC)") for time in NO_TIMES)],
    ids=range(len(WRONG) + len(NO_TIMES)),
)
def test_errors_of_conditions_name_the_column(text: str, error: str, hint: str) -> None:
    with pytest.raises(UsageError) as refused:
        grammar.parse(text, KNOWN)
    assert refused.value.message.startswith("--where")
    assert error in refused.value.message
    assert len(refused.value.message) < 200
    assert hint in (refused.value.hint or "")


# Chosen and sorted


@pytest.fixture(scope="module")
def kept(tmp_path_factory: pytest.TempPathFactory) -> Machine:
    """Six runs of three rates, of which the last two were not trained, and one diverged. Tests only read it."""
    machine = Machine(tmp_path_factory.mktemp("kept") / "here")
    with Ledger.open(machine.ledger) as ledger:
        key = ledger.add_ladder("lru", "sDigits", "smoke", InstanceSpec()).key
        rates = (0.001, 0.001, 0.004, 0.004, 0.002, 0.002)
        wanted = [
            want("ring", seed, seed, config={"optim": {"lr": rate}, "seed": seed}, execution={"threads": seed + 1})
            for seed, rate in enumerate(rates)
        ]
        ledger.enqueue(key, wanted)
        for score in (0.5, 0.625, 0.25, None):
            held = ledger.hold(key, ME)
            assert held is not None
            result = (
                {"test/accuracy": score, "val/accuracy": score, "probe/rare": 1.5} if score else {"probe/rare": 1.0}
            )
            ledger.finish(held, "done" if score else "diverged", result=result, step=9)
        ledger.mark([ledger.runs()[-1].id], tag=["a|b"])
        plain = ledger.add_ladder("lru", "sDigits", None, InstanceSpec()).key
        ledger.enqueue(plain, [want("disk", 6), wanted[0]])
    return machine


@pytest.mark.parametrize(
    ("words", "seeds"),
    [
        ([], [6, 5, 4, 3, 2, 1, 0]),
        (["--where", "val/accuracy>0.25"], [1, 0]),
        (["--where", "val/accuracy>=50%"], [1, 0]),
        (["--where", "probe/rare=1"], [3]),
        (["--where", "state=queued and optim.lr<=0.002"], [5, 4]),
        (["--where", "execution.threads>=5 or profile!=smoke"], [6, 5, 4]),
        (["--where", "rung=ring and ladder=lru and stage=train and profile=smoke", "--limit", "1"], [5]),
        (["--where", "created_at<2020 or finished_at>2020"], [3, 2, 1, 0]),
        (["--where", "profile=''"], [6, 0]),
        (["--sort", "seed", "--limit", "2", "--ladder", "lru"], [0, 1]),
        (["--sort", "-seed", "--limit", "0"], [6, 5, 4, 3, 2, 1, 0]),
        (["--sort", "optim.lr", "--where", "profile=smoke"], [1, 0, 5, 4, 3, 2]),
        (["--sort", "-optim.lr", "--where", "profile=smoke"], [3, 2, 5, 4, 1, 0]),
        (["--sort", "-val/accuracy"], [1, 0, 2, 6, 5, 4, 3]),
        (["--sort", "finished_at"], [0, 1, 2, 3, 6, 5, 4]),
    ],
)
def test_runs_are_chosen_and_sorted(words: list[str], seeds: list[int], kept: Machine) -> None:
    assert [run["seed"] for run in kept.json("runs", *words)["runs"]] == seeds


@pytest.mark.parametrize(
    ("condition", "said"),
    [
        ("seed>10", "none of 7 runs meets the condition\n"),
        ("rung=rinng and task=sDigits", "none of 7 runs meets the condition; did you mean rung=ring?\n"),
        ("test/accuracy > 30", "warning: --where, test/accuracy>30: accuracy is a fraction: 0.3, or 30%\nnone of 7"),
        ("val/f1>=62.5", "warning: --where, val/f1>=62.5: f1 is a fraction: 0.625, or 62.5%\nnone of 7"),
        ("test/accuracy>1", "none of 7"),
        ("test/accuracy>100%", "none of 7"),
        ("test/loss>30", "none of 7"),
    ],
)
def test_what_is_said_where_no_run_is_chosen(condition: str, said: str, kept: Machine) -> None:
    done = kept.run("runs", "--where", condition)
    assert done.stdout == ""
    assert done.stderr.startswith(said)


def test_without_a_ledger_the_list_is_empty_and_conditions_are_checked(machine: Machine) -> None:
    assert machine.json("runs", "--where", "val/accuracy>0.5", "--sort", "-val/accuracy")["runs"] == []
    assert machine.json("runs", "--by", "rung") == {"schema_version": 1, "by": ["rung"], "groups": []}
    assert machine.run("runs", "--columns", "id").stderr.startswith("there is no ledger at ledger.db yet")
    assert "unknown name 'probe/rar'" in machine.refused("runs", "--where", "probe/rar=1")


# Columns and groups


def test_tables_of_columns_and_groups(kept: Machine, golden) -> None:
    columns = (
        "runs",
        "--columns",
        "seed,rung, optim.lr",
        "--columns",
        "test/accuracy,probe/rare,tag",
        "--sort",
        "seed",
    )
    by = ("runs", "--by", "rung,optim.lr", "--where", "profile=smoke")
    calls = [
        (*columns, "--limit", "2"),
        (*columns, "--limit", "1", "--format", "md"),
        (*columns, "--where", "test/accuracy>=50%", "--format", "csv"),
        by,
        (*by, "--sort", "-mean", "--limit", "2"),
        (*by, "--metric", "probe/rare", "--format", "csv"),
        ("runs", "--by", "rung", "--where", "state=done", "--format", "md"),
        ("runs", "--format", "csv", "--limit", "1"),
        ("runs", "--sort", "seed"),
    ]
    text = "\n".join(f"$ lrurun {' '.join(words)}\n{kept.run(*words).stdout}" for words in calls)
    golden("runs.txt", re.sub(r"\b[0-9a-f]{12}\b", "123456789abc", text))


def test_groups_are_sorted_by_the_mean_of_a_metric(kept: Machine) -> None:
    by = ("runs", "--by", "optim.lr", "--where", "profile=smoke")
    expected = kept.json(*by, "--sort", "-mean")["groups"]
    means = [group["mean"] for group in expected if group["mean"] is not None]
    assert means == sorted(means, reverse=True)
    assert len(set(means)) > 1
    assert kept.json(*by, "--sort", "-test/accuracy")["groups"] == expected
    assert kept.json(*by, "--metric", "test/accuracy", "--sort", "-test/accuracy")["groups"] == expected
    rare = kept.json(*by, "--metric", "probe/rare", "--sort", "mean")["groups"]
    assert kept.json(*by, "--sort", "probe/rare")["groups"] == rare
    assert {group["metric"] for group in rare} == {"probe/rare"}


def test_groups_without_a_value_come_last(kept: Machine) -> None:
    """Here those of runs that no process has begun."""
    assert [group["numerics"] for group in kept.json("runs", "--by", "numerics")["groups"]] == [1, None]


def test_columns_and_groups_in_json(kept: Machine) -> None:
    found = kept.json("runs", "--columns", "seed,test/accuracy,duration,finished_at", "--where", "seed>=3 and seed<5")
    assert found["columns"] == ["seed", "test/accuracy", "duration", "finished_at"]
    last, diverged = found["runs"]
    assert last == {"seed": 4, "test/accuracy": None, "duration": None, "finished_at": None}
    assert diverged["duration"] >= 0
    assert diverged["finished_at"].endswith("Z")
    found = kept.json("runs", "--by", "optim.lr", "--where", "profile=smoke", "--sort", "-mean", "--limit", "2")
    first = {"optim.lr": 0.001, "metric": "test/accuracy", "runs": 2, "n": 2, "mean": 0.5625, "stderr": 0.0625}
    second = {"optim.lr": 0.004, "metric": "test/accuracy", "runs": 2, "n": 1, "mean": 0.25, "stderr": None}
    assert found["groups"] == [{**one, "instances": ["sDigits"]} for one in (first, second)]


@pytest.mark.parametrize(
    ("words", "error"),
    [
        (["--columns", "sed"], "--columns: unknown name 'sed'\nhint: did you mean 'seed'?"),
        (["--columns", "seed,"], "--columns seed,: a name is missing"),
        (["--columns", "seed,seed"], "--columns seed: named twice"),
        (["--columns", "seed", "--by", "seed"], "--columns and --by exclude each other"),
        (["--columns", "id", "--json", "--format", "csv"], "--json and --format exclude"),
        (["--by", "duration"], "--by duration: runs are grouped by fields and settings"),
        (["--by", "id"], "--by id: runs are grouped by"),
        (["--by", "val/loss"], "--by val/loss: runs are grouped by"),
        (["--by", "optim.rl"], "--by: unknown name 'optim.rl'\nhint: did you mean 'optim.lr'?"),
        (["--metric", "val/loss"], "--metric: belongs to --by"),
        (["--by", "rung", "--metric", "val/los"], "--metric: unknown name 'val/los'"),
        (["--by", "rung", "--metric", "seed"], "--metric seed: is no result"),
        (
            ["--by", "rung", "--sort", "-seed"],
            "--sort -seed: groups have no seed\nhint: they have: rung, runs, n, mean",
        ),
        (["--by", "rung", "--sort", "probe/rar"], "--sort: unknown name 'probe/rar'\nhint: did you mean 'probe/rare'?"),
        (
            ["--by", "rung", "--metric", "probe/rare", "--sort", "-test/accuracy"],
            "--sort -test/accuracy: groups have the means of probe/rare\nhint: --sort mean, or --metric test/accuracy",
        ),
        (["--sort=-sed"], "--sort: unknown name 'sed'\nhint: did you mean 'seed'?"),
        (["--sort", "--", "-sed"], "no such option"),
        (["--where", "probe/rar=1"], "did you mean 'probe/rare'?"),
        (["--where", "task='\x1b[31m[red]' or zed=1"], "unknown name 'zed'"),
    ],
)
def test_wrong_columns_groups_and_orders_are_refused(words: list[str], error: str, kept: Machine) -> None:
    said = kept.refused("runs", *words)
    assert error in said
    assert "\x1b" not in said


def test_means_over_several_instances_say_so(machine: Machine) -> None:
    fill(machine.ledger, "sDigits", {"diagonal": [0.5], "gamma-norm": [0.5]})
    fill(machine.ledger, "sDigits", {"diagonal": [0.7]}, profile="smoke")
    fill(machine.ledger, "npDigits", {"diagonal": [0.9]})
    said = machine.run("runs", "--by", "rung").stderr
    assert "rung diagonal of sDigits, sDigits-smoke, npDigits; --by instance has a mean for each" in said
    said = machine.run("runs", "--by", "state", "--where", "task=sDigits").stderr
    assert "every group of sDigits, sDigits-smoke;" in said
    for words in (("--by", "rung,instance"), ("--by", "rung", "--instance", "sDigits-smoke")):
        assert machine.run("runs", *words).stderr == ""


def test_settings_that_vary_within_a_rung_are_shown(machine: Machine) -> None:
    fill(machine.ledger, "sDigits", {"tanh-rnn": [0.5, 0.6]}, profile="smoke")
    assert "optim.lr" not in machine.run("runs").stdout
    fill(machine.ledger, "sDigits", {"tanh-rnn": [0.5]}, profile="smoke", sets={"optim.lr": 0.5})
    header, first, *_ = machine.run("runs").stdout.splitlines()
    assert (header.split()[-1], first.split()[-1]) == ("optim.lr", "0.5")
    assert "optim.lr" not in machine.run("runs", "--where", "optim.lr=0.5").stdout


def test_settings_that_only_follow_from_the_optimiser_are_not_shown(machine: Machine) -> None:
    """Name and learning rate come first; a setting of one optimiser is shown where it varies for it."""

    def shown(**sets: Any) -> list[str]:
        changes = {f"optim.{name}": value for name, value in sets.items()}
        fill(machine.ledger, "sDigits", {"tanh-rnn": [0.5]}, profile="smoke", sets=changes)
        return [name for name in machine.run("runs").stdout.splitlines()[0].split() if name.startswith("optim.")]

    assert shown() == []
    assert shown(name="lion") == shown(name="sgd") == ["optim.name"]
    assert shown(name="sgd", momentum=0.9) == ["optim.name", "optim.momentum"]
    assert shown(clip=1.0, lr=0.5) == ["optim.name", "optim.lr", "optim.clip", "optim.momentum"]


# What the database computes is what Python computes


SETTINGS: dict[str, list[Any]] = {
    "optim.lr": [3.0, 0.1, 2.5e-3, 1e-7, 1 / 3],
    "model.glu": ["full", "half", "none"],
    "execution.remat": [True, False],
    "execution.threads": [1, 3],
}
RESULTS = ["val/accuracy", "val/loss", "best_step", "machine/steps_per_second"]


@pytest.fixture(scope="module")
def random_ledger(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Ledger]:
    draw = random.Random(0)
    with Ledger.open(tmp_path_factory.mktemp("random") / "ledger.db") as ledger:
        keys = [ledger.add_ladder(name, "sDigits", profile, InstanceSpec()).key for name, profile in LADDERS]
        runs = []
        for seed in range(30):
            tables: dict[str, dict[str, Any]] = {"optim": {}, "model": {}, "execution": {}}
            for path, values in SETTINGS.items():
                section, _, name = path.partition(".")
                if draw.random() < 0.8:
                    tables[section][name] = draw.choice(values)
            execution = tables.pop("execution")
            rung, stage, task = (draw.choice(words) for words in (("disk", "é", "3"), ("train", "tune"), ("é", "Text")))
            config = {**tables, "seed": seed}
            runs.append(want(rung, seed, stage=stage, task=task, config=config, execution=execution))
        for key in keys:
            ledger.enqueue(key, draw.sample(runs, 15))
        for key in keys * 11:
            held = ledger.hold(key, ME, environment={"numerics": draw.choice([1, 2])})
            if held is not None:
                result = {name: draw.choice([0, 1, 0.1, 1 / 3, math.nan, math.inf]) for name in draw.sample(RESULTS, 3)}
                ledger.finish(held, draw.choice(["done", "done", "diverged", "failed"]), result=result)
        some = [run.id for run in ledger.runs(brief=True)]
        ledger.mark(some[:5], tag=["two", "words"])
        ledger.mark(some[5:8], exclude="a test")
        yield ledger


LADDERS = (("lru", None), ("lru", "smoke"), ("é", ""))


def test_columns_are_the_values_that_python_has(random_ledger: Ledger) -> None:
    names = [*(name for name in columns.FIELDS if name != "duration"), *columns.METRICS, *SETTINGS]
    found, everything = random_ledger.columns_of(names), random_ledger.runs(superseded=True)
    assert len(found) == len(everything)
    for run in everything:
        for name, value in zip(names, found[run.id], strict=True):
            wanted = where.value(run, name)
            if name in where.PLACES:
                wanted = getattr(run.memberships[0], name) or "" if run.memberships else None
            elif name in ("created_at", "finished_at"):
                wanted = getattr(run, name)
            elif isinstance(wanted, float) and math.isnan(wanted):
                wanted = None
            assert value == wanted, name
    some = everything[:3]
    assert random_ledger.columns_of(["seed"], [run.id for run in some]) == {run.id: (run.seed,) for run in some}


@pytest.mark.parametrize("by", [["seed"], ["rung"], ["rung", "stage", "model.glu", "execution.remat"]])
def test_means_are_those_of_python(by: list[str], random_ledger: Ledger) -> None:
    wanted: dict[tuple[object, ...], list[float | None]] = {}
    everything = random_ledger.runs(superseded=True)
    for run in everything:
        if run.superseded or run.excluded is not None:
            continue
        value = (run.result or {}).get("val/accuracy")
        counted = value if value is not None and math.isfinite(value) else None
        places = {tuple(getattr(place, name) for name in by if name in where.PLACES) for place in run.memberships}
        for place in places if set(by) & set(where.PLACES) else [()]:
            rest = iter(place)
            key = tuple(next(rest) if name in where.PLACES else where.value(run, name) for name in by)
            wanted.setdefault((*map(repr, key), run.task), []).append(counted)
    found = random_ledger.groups_of([*by, "task"], dict.fromkeys(("é", "Text"), "val/accuracy"))
    assert len(found) == len(wanted)
    for one in found:
        values = wanted[(*map(repr, one.values[:-1]), str(one.values[-1]))]
        finite = [value for value in values if value is not None]
        assert (one.metric, one.runs, one.n) == ("val/accuracy", len(values), len(finite))
        assert one.mean == (pytest.approx(statistics.mean(finite)) if finite else None)
        error = statistics.stdev(finite) / len(finite) ** 0.5 if len(finite) > 1 else None
        assert one.stderr == (error if error is None else pytest.approx(error))


def test_the_table_of_a_recurrence_is_no_setting() -> None:
    assert all(map(is_setting, known_paths()))
    assert not is_setting("model.recurrence")
    assert "model.recurrence" not in Names()


# At a terminal


def on_terminal(machine: Machine, *arguments: str, columns: int) -> tuple[str, str]:
    """Stdout and stderr of a command whose stdout is a terminal of this width."""
    parent, child = pty.openpty()
    parts: list[bytes] = []

    def read() -> None:
        with contextlib.suppress(OSError):  # as soon as the terminal is closed
            while part := os.read(parent, 65536):
                parts.append(part)

    reader = threading.Thread(target=read)
    reader.start()
    err = io.StringIO()
    console._console.cache_clear()  # whose width is that of the environment
    env = machine.env | {"COLUMNS": str(columns), "TERM": "xterm", "NO_COLOR": "1"}
    with (
        open(child, "w", encoding="utf-8") as terminal,
        mock.patch.dict(os.environ, env, clear=True),
        contextlib.chdir(machine.folder),
        contextlib.redirect_stdout(terminal),
        contextlib.redirect_stderr(err),
    ):
        assert command(list(arguments)) == 0
    console._console.cache_clear()
    reader.join()
    os.close(parent)
    return b"".join(parts).decode().replace("\r\n", "\n"), err.getvalue()


def test_a_terminal_gets_the_newest_fifty_and_how_many_more_there_are(tmp_path: Path) -> None:
    machine = Machine(tmp_path / "here")
    with Ledger.open(machine.ledger) as ledger:
        key = ledger.add_ladder("lru", "sDigits", None, InstanceSpec()).key
        ledger.enqueue(key, [want(seed=seed, position=seed) for seed in range(60)])
    out, err = on_terminal(machine, "runs", columns=40)
    assert (len(re.findall("^[0-9a-f]{12}", out, re.MULTILINE)), out.count("queued")) == (50, 50)
    assert err == "and 10 more; --limit 0 lists all\n"
    assert "Not shown at this width: task, " in out
    assert max(map(len, out.splitlines())) <= 40
    assert "\x1b" not in out
    out, err = on_terminal(machine, "runs", "--limit", "55", columns=100)
    assert (out.count("queued"), err) == (55, "")
    assert machine.run("runs").stdout.count("queued") == 60
