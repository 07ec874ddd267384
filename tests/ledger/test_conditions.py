"""Conditions and orders: the runs of random ledgers that an evaluation in Python chooses, in its order."""

from __future__ import annotations

import math
import random
from collections.abc import Iterator
from functools import partial
from typing import Any

import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st
from msgspec import structs

from lrurun.config.runs import InstanceSpec
from lrurun.errors import UsageError
from lrurun.ledger import columns
from lrurun.ledger.ledger import Ledger
from lrurun.ledger.values import Run
from lrurun.ledger.where import grammar
from lrurun.ledger.where.names import Names
from lrurun.report.listing import Choice
from lrurun.server import Location
from tests.harness import where
from tests.harness.stores import ME, drop_trigger, raw, want

RUNS = 40
TEXTS = ["disk", "ring-init", "é", "", "true", "3", "nan", "two words"]
NUMBERS = [0, 1, -1, 3, 0.1, 0.3, 2.5e-3, 0.0004, 1e-7, 1 / 3, 1e300]
TIMES = [0.0, 1e9, 1e9 + 0.25, 1e9 + 0.75, 1e9 + 1, 1.8e9, -1.5, 2.6e11, -5e10]
METRICS = ["val/accuracy", "val/loss", "test/accuracy", "best_step", "machine/steps_per_second", "extra", "é/x", 'a"b']
SETTINGS = ["optim.lr", "optim.b1", "model.glu", "model.recurrence.normalize", "execution.threads", "execution.remat"]


@pytest.fixture(scope="module", params=["file", pytest.param("server", marks=pytest.mark.slow)])
def random_ledger(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Ledger]:
    file = request.param == "file"
    path: Location = (
        tmp_path_factory.mktemp("random") / "ledger.db" if file else request.getfixturevalue("postgres").ledger()
    )
    fill(path, random.Random(0))
    with Ledger.open(path) as opened:
        yield opened


@pytest.fixture(scope="module")
def everything(random_ledger: Ledger) -> list[Run]:
    return random_ledger.runs(superseded=True)


VALUES: dict[str, list[Any]] = {
    "optim.lr": [3.0, 0.1, 0.3, 2.5e-3, 0.0004, 1e-7, 1 / 3],
    "optim.b1": [0, 0.1, 0.3, 2.5e-3, 0.0004, 1e-7, 1 / 3],
    "model.glu": ["full", "half", "none"],
    "model.recurrence.normalize": [True, False],
    "execution.threads": [1, 3],
    "execution.remat": [True, False],
}


def table(chance: random.Random, prefix: str) -> dict[str, Any]:
    """Some of the settings that begin with `prefix`."""
    found: dict[str, Any] = {}
    for path in SETTINGS:
        if path.startswith("execution.") == (prefix == "execution.") and chance.random() < 0.8:
            here = found
            *sections, name = path.removeprefix(prefix).split(".")
            for section in sections:
                here = here.setdefault(section, {})
            here[name] = chance.choice(VALUES[path])
    if prefix == "" and "recurrence" not in found.get("model", {}):
        found.setdefault("model", {})["recurrence"] = {"kind": "s5"}  # which has no `normalize`
    return found


def fill(path: Location, chance: random.Random) -> None:
    """A ledger of runs with all kinds of values, some of which no version of lrurun would write."""
    with Ledger.open(path) as ledger:
        ladders = [
            ledger.add_ladder(name, "sDigits", profile, InstanceSpec()).key
            for name, profile in [("lru", None), ("lru", "smoke"), ("grid", "é"), ("é", "")]
        ]
        runs = [
            want(
                seed=seed,
                rung=chance.choice(TEXTS[:4]),
                stage=chance.choice(["train", "tune"]),
                task=chance.choice(["sDigits", "ListOps", "é"]),
                config={**table(chance, ""), "seed": seed},
                execution=table(chance, "execution."),
            )
            for seed in range(RUNS)
        ]
        for key in ladders:
            ledger.enqueue(key, chance.sample(runs, RUNS // 2))
        for key in ladders * 9:
            held = ledger.hold(key, ME, environment={"numerics": chance.choice([1, 2, 3])})
            if held is not None and chance.random() < 0.9:
                values = [*NUMBERS, math.nan, math.inf, -math.inf]
                result = {name: chance.choice(values) for name in METRICS if chance.random() < 0.7}
                ledger.finish(held, chance.choice(["done", "done", "diverged", "failed"]), result=result)
        for run_id in chance.sample([run.id for run in ledger.runs(brief=True)], 10):
            ledger.mark([run_id], tag=chance.sample(TEXTS[:3], 2))
    drop_trigger(path, "runs_finished_stay", "stored_runs")
    numbers = [number for (number,) in raw(path, "SELECT number FROM stored_runs ORDER BY number")]
    for number in numbers:
        times = chance.choice(TIMES), chance.choice([None, *TIMES]), chance.choice([None, 1, 7])
        raw(
            path,
            "UPDATE stored_runs SET created_at = ?, finished_at = ?, parameters = ? WHERE number = ?",
            *times,
            number,
        )
    for number in chance.sample(numbers, 5):
        raw(path, "DELETE FROM ladder_runs WHERE run = ?", number)
    users = [None, "alice", "é"]
    for key, user in zip(ladders, users, strict=False):
        raw(path, "UPDATE ladders SET user_name = ? WHERE key = ?", user, key)


KNOWN = Names(METRICS)
NAMES = [
    *(name for name in columns.FIELDS if name != "duration"),
    *METRICS[:-2],
    *SETTINGS,
]
SECOND = "2001-09-09T01:46:4"  # of 1e9


def operators(name: str) -> list[str]:
    return ["=", "!="] if KNOWN[name] in ("set", "truth") else ["=", "!=", "<", "<=", ">", ">="]


def values(name: str) -> list[str]:
    if name == "profile":
        return ["''", "smoke", "é"]
    if name == "user":
        return ["''", "alice", "é", "nobody"]
    if name.endswith("_at"):
        return [
            f"{SECOND}0Z",
            f"'{SECOND}1'",
            "2001-09-09T01:46",
            "1970-01-01",
            "0001",
            "9999",
            "1000000000.75",
            "2001-09",
        ]
    return {
        "state": ["done", "'running'", "queued"],
        "number": [*map(repr, NUMBERS), "1e400", "-1e400", "+3", "00.30"],
        "share": [*map(repr, NUMBERS), "30%", "100.5%", "1e400%"],
        "truth": ["true", "false"],
        "text": [repr(text) for text in [*TEXTS, "ListOps", "done", "sDigits"]] + ["3", "1e-7", "0.30"],
        "set": [repr(text) for text in [*TEXTS[:4], "lru", "train"]],
    }[KNOWN[name]]


COMPARISONS = st.sampled_from([*NAMES, *SETTINGS]).flatmap(
    lambda name: st.builds(f"{name}{{}}{{}}".format, st.sampled_from(operators(name)), st.sampled_from(values(name)))
)
CONDITIONS = st.recursive(
    COMPARISONS | COMPARISONS.map("not {}".format),
    lambda parts: (
        parts.map("not ({})".format)
        | st.builds(
            lambda joint, several: f"({f' {joint} '.join(several)})",
            st.sampled_from(["and", "or"]),
            st.lists(parts, min_size=2, max_size=4),
        )
    ),
    max_leaves=12,
)
ORDERS = st.none() | st.builds("{}{}".format, st.sampled_from(["", "-"]), st.sampled_from([*NAMES, *SETTINGS]))


def expected(text: str | None, sort: str | None, runs: list[Run]) -> list[str]:
    """The ids that Python chooses."""
    parsed = grammar.parse(text, KNOWN) if text is not None else None
    return where.in_order(
        [run for run in runs if parsed is None or where.holds(parsed, partial(where.value, run))], sort
    )


def test_sql_compares_and_sorts_as_python_does(random_ledger: Ledger, everything: list[Run]) -> None:
    seen = set[tuple[str, bool, bool]]()
    for number, name in enumerate(NAMES):
        known, some = operators(name), values(name)
        kind = KNOWN[name], name in columns.FIELDS, name in SETTINGS
        if kind in seen and name not in ("profile", "user"):  # which have values of their own
            some = [*some[number % len(some) :], *some][: len(known) + 1]
        else:  # each value
            some = [*some, *some[: len(known)]]
        seen.add(kind)
        for at, value in enumerate(some):
            text = f"{name}{known[at % len(known)]}{value}"
            assert Choice(text, None, random_ledger).ids(random_ledger) == expected(text, None, everything), text
        for order in (name, f"-{name}"):
            assert Choice(None, order, random_ledger).ids(random_ledger) == expected(None, order, everything), order


@pytest.mark.filterwarnings("ignore:Generating overly large repr")  # of a ledger's runs
@settings(max_examples=25, derandomize=True, deadline=None, phases=[Phase.generate])
@given(
    text=st.none() | CONDITIONS,
    order=ORDERS,
    ladder=st.sampled_from([None, None, "lru", "grid", "nothing"]),
    limit=st.sampled_from([None, 1, 5]),
)
def test_sql_and_python_choose_the_same_runs_in_the_same_order(
    random_ledger: Ledger,
    everything: list[Run],
    text: str | None,
    order: str | None,
    ladder: str | None,
    limit: int | None,
) -> None:
    if order is not None and order.removeprefix("-") in where.PLACES:
        ladder = None  # of a ladder, its first place counts: see the next test
    candidates = [run for run in everything if ladder is None or any(m.ladder == ladder for m in run.memberships)]
    wanted = expected(text, order, candidates)[:limit]
    assert Choice(text, order, random_ledger).ids(random_ledger, ladder, limit) == wanted


def test_places_in_a_ladder_are_sorted_by_the_first_of_them(random_ledger: Ledger, everything: list[Run]) -> None:
    inside = [
        structs.replace(run, memberships=places)
        for run in everything
        if (places := tuple(place for place in run.memberships if place.ladder == "lru"))
    ]
    assert len(inside) > 9
    for name in where.PLACES:
        for order in (name, f"-{name}"):
            assert Choice(None, order, random_ledger).ids(random_ledger, "lru") == where.in_order(inside, order)


def test_what_no_database_can_do_is_refused(random_ledger: Ledger) -> None:
    for text, message in [
        ("task!='\udcff'", "--where: a character that is not valid UTF-8"),
        (" or ".join(f"seed={seed}" for seed in range(201)), "--where: 201 comparisons are too many"),
        ("a\\b>0", "--where, column 1: unknown name 'a\\\\b'"),
        ("seed=1 or é/x>0", "--where, column 11: 'é/x': only names in plain ASCII can be compared or listed"),
    ]:
        with pytest.raises(UsageError) as refused:
            Choice(text, None, random_ledger)
        assert refused.value.message == message
    for largest in ("seed=1 and " * 199 + "seed=1", "(" * 99 + "not seed=2" + ")" * 99):
        assert Choice(largest, "-optim.lr", random_ledger).ids(random_ledger)
