"""Looking closer at runs: compare, logs, what show adds; all on ledgers that no training has written."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import pytest

from lrurun import plan as planning
from lrurun.__main__ import run as command
from lrurun.ledger.store import Ledger
from lrurun.ledger.values import Run
from tests.test_ledger import ME

CODE = {"lrurun": "0.1.0", "commit": "0123456789abcdef"}


def fill(path: Path, rungs: tuple[str, ...] = ("tanh-rnn", "linear-rnn"), seeds: int = 2) -> list[Run]:
    """A smoke ladder of sDigits as if it had been trained: the scores rise from run to run, by a hundredth."""
    plan = planning.make("sDigits", ladder="lru", profile="smoke")
    with Ledger.open(path) as ledger:
        key = ledger.add_ladder(plan.ladder.name, plan.recipe.task, plan.profile, plan.spec).key
        wanted = [w for r in planning.choose_rungs(plan, rungs) for w in planning.wanted_final(plan, r, range(seeds))]
        ledger.enqueue(key, wanted)
        for number in range(len(wanted)):
            claim = ledger.claim(key, ME, environment={"code": CODE})
            assert claim is not None
            ledger.rewind(claim, 0)
            ledger.record(claim, [(step, "train/loss", 2 / step) for step in range(1, 61)], 60)
            ledger.record(claim, [(step, "val/accuracy", step / 100) for step in (30, 60)], 60)
            ledger.describe(claim, parameters=1000, data_sha256="d" * 64)
            score = 0.5 + number / 100
            result = {"test/accuracy": score, "val/accuracy": score, "machine/steps_per_second": 100.0, "best_step": 60}
            ledger.finish(claim, "done", result=result, step=60)
        return ledger.runs()[::-1]


@pytest.fixture
def runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[Run]:
    """Four finished runs in the working directory: two rungs of two seeds."""
    monkeypatch.chdir(tmp_path)
    return fill(tmp_path / "ledger.db")


def said(capsys: pytest.CaptureFixture[str], *words: str) -> tuple[int, str, str]:
    code = command(list(words))
    return (code, *capsys.readouterr())


def answered(capsys: pytest.CaptureFixture[str], *words: str) -> dict[str, Any]:
    code, out, err = said(capsys, *words, "--json")
    assert (code, err) == (0, "")
    table: dict[str, Any] = json.loads(out)
    return table


# compare


def test_compare_tells_only_what_differs(runs: list[Run], capsys: pytest.CaptureFixture[str]) -> None:
    tanh, _, linear, _ = runs
    code, out, err = said(capsys, "compare", tanh.id[:6], linear.id)
    assert (code, err) == (0, "")
    assert out.splitlines() == [
        "what differs",
        f"path                         {tanh.id}          {linear.id}",
        "rung                         lru/tanh-rnn (train)  lru/linear-rnn (train)",
        "model.recurrence.activation  tanh                  identity",
        "optim.lr                     0.004                 0.032",
        "results",
        f"metric                    {tanh.id}  {linear.id}",
        "best_step                 60            60",
        "machine/steps_per_second  100           100",
        "test/accuracy             0.5           0.52",
        "val/accuracy              0.5           0.52",
    ]
    assert answered(capsys, "compare", tanh.id, runs[1].id, tanh.id) == {
        "schema_version": 1,
        "runs": [tanh.id, runs[1].id],
        "differs": [{"path": "seed", "values": [0, 1]}],
        "results": [
            {"metric": "best_step", "values": [60, 60]},
            {"metric": "machine/steps_per_second", "values": [100.0, 100.0]},
            {"metric": "test/accuracy", "values": [0.5, 0.51]},
            {"metric": "val/accuracy", "values": [0.5, 0.51]},
        ],
    }


def test_compare_tells_of_execution_code_and_data(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    made = []
    with Ledger.open("ledger.db") as ledger:
        for sets, code, data, value in (
            ({}, "a", "d", 0.5),
            ({"execution.threads": 2, "optim.lr": 0.5}, "b\x1b[31m", "e", math.nan),
        ):
            plan = planning.make("sDigits", ladder="lru", profile="smoke", sets=sets)
            key = ledger.add_ladder("lru", "sDigits", "smoke", plan.spec).key
            ledger.enqueue(key, planning.wanted_final(plan, plan.rungs[0], [0]))
            claim = ledger.claim(key, ME, environment={"code": code})
            assert claim is not None
            ledger.describe(claim, data_sha256=data)
            ledger.finish(claim, "done", result={"val/accuracy": value})
            made.append(claim.run.id)
    table = answered(capsys, "compare", *made)
    assert {one["path"]: one["values"] for one in table["differs"]} == {
        "optim.lr": [planning.make("sDigits", ladder="lru", profile="smoke").rungs[0].config.optim.lr, 0.5],
        "execution.threads": [1, 2],
        "code": ["a", "b\x1b[31m"],
        "data_sha256": ["d", "e"],
    }
    assert table["results"] == [{"metric": "val/accuracy", "values": [0.5, None], "finite": False}]
    assert "\x1b" not in said(capsys, "compare", *made)[1]


def test_compare_refuses_one_run_and_unknown_ones(runs: list[Run], capsys: pytest.CaptureFixture[str]) -> None:
    one = runs[0].id
    alone = f"error: compare: {one} alone has nothing to differ from\nhint: name another run beside it\n"
    assert said(capsys, "compare", one) == (2, "", alone)
    assert said(capsys, "compare", one, one[:8]) == (2, "", alone)
    unknown = "error: no run 'zz' in this ledger\nhint: see `lrurun runs`\n"
    assert said(capsys, "compare", one, "zz") == (4, "", unknown)
    assert said(capsys, "compare", one, "zz", "--ledger", "none.db") == (
        4,
        "",
        f"error: run '{one}': there is no ledger at none.db\nhint: name one with --ledger PATH\n",
    )


def test_compare_of_equals_says_so(runs: list[Run], capsys: pytest.CaptureFixture[str]) -> None:
    with Ledger.open("ledger.db") as ledger:
        plan = planning.make("sDigits", ladder="lru", profile="smoke")
        ledger.enqueue(ledger.ladders()[0].key, planning.wanted_final(plan, plan.rungs[0], [0]), fresh=True)
        claim = ledger.claim(ledger.ladders()[0].key, ME, environment={"code": CODE})
        assert claim is not None
        ledger.describe(claim, data_sha256="d" * 64)
        ledger.finish(claim, "done")
    code, out, err = said(capsys, "compare", runs[0].id, f"{runs[0].id}-2")
    assert (code, err) == (0, "nothing differs but what came out\n")
    assert out.startswith("results\n")
