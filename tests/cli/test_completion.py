"""Completion by the shell: names of tasks, rungs and settings, and what is in the ledger."""

from __future__ import annotations

import pytest

from lrurun.config.recipe import read_recipe
from lrurun.ledger import Ledger
from tests.harness import results
from tests.harness.commands import folder, lrurun

__all__ = ["folder"]  # a fixture


def complete(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], *arguments: str) -> list[str]:
    monkeypatch.setenv("_LRURUN_COMPLETE", "complete_bash")
    monkeypatch.setenv("COMP_WORDS", " ".join(["lrurun", *arguments]))
    monkeypatch.setenv("COMP_CWORD", str(len(arguments)))
    code, out, err = lrurun(capsys)
    assert (code, err) == (0, "")
    return out.split()


def test_the_shell_completes_names(monkeypatch, capsys):
    assert complete(monkeypatch, capsys, "plan", "sD") == ["sDigits"]
    assert complete(monkeypatch, capsys, "plan", "sDigits", "--ladder", "non") == ["nonlinearity"]
    assert complete(monkeypatch, capsys, "plan", "sDigits", "--rung", "st") == ["stable-exponential"]
    assert complete(monkeypatch, capsys, "plan", "sDigits", "--ladder", "nonlinearity", "--rung", "r") == ["relu-rnn"]
    assert complete(monkeypatch, capsys, "plan", "sDigits", "--profile", "s") == ["smoke"]
    # without anything to complete from, nothing is printed
    assert complete(monkeypatch, capsys, "plan", "nowhere", "--profile", "s") == []
    assert complete(monkeypatch, capsys, "plan", "sDigits", "--ladder", "no", "--rung", "r") == []
    assert complete(monkeypatch, capsys, "show", "a") == []


def test_the_shell_completes_what_is_in_the_ledger(monkeypatch, capsys, tmp_path):
    path = tmp_path / "ledger.db"
    monkeypatch.setenv("LRURUN_LEDGER", str(path))
    results.fill(path, "sDigits", {"tanh-rnn": [0.5, 0.6], "linear-rnn": [0.7]})
    with Ledger.read(path) as ledger:
        ids, [instance] = [run.id for run in ledger.runs()], [ladder.short_name for ladder in ledger.ladders()]
    assert complete(monkeypatch, capsys, "show", ids[1][:4]) == [ids[1]]
    assert complete(monkeypatch, capsys, "show", "") == ids
    assert complete(monkeypatch, capsys, "show", "%") == []
    assert complete(monkeypatch, capsys, "plot", ids[0][:5]) == [ids[0]]
    assert complete(monkeypatch, capsys, "report", "sDigits", "--instance", instance[:3]) == [instance]
    assert complete(monkeypatch, capsys, "runs", "--sort", "optim.l") == ["optim.lr"]
    assert complete(monkeypatch, capsys, "runs", "--where", "seed=0&val/acc") == ["seed=0&val/accuracy"]
    path.write_bytes(b"no database" * 100)
    assert complete(monkeypatch, capsys, "show", "") == []
    assert complete(monkeypatch, capsys, "report", "sDigits", "--instance", "") == []


@pytest.mark.slow
def test_the_shell_completes_settings_and_their_values(monkeypatch, capsys):
    plan = ("plan", "sDigits", "--profile", "smoke")
    assert complete(monkeypatch, capsys, *plan, "--set", "train.log") == ["train.log_every="]
    assert complete(monkeypatch, capsys, *plan, "--set", "optim.b") == ["optim.b1=", "optim.b2="]
    assert complete(monkeypatch, capsys, *plan, "--set", "model.poo") == [
        *("model.pooling=mean", "model.pooling=max", "model.pooling=last"),
    ]
    assert complete(monkeypatch, capsys, *plan, "--set", "model.pooling=m") == [
        "model.pooling=mean",
        "model.pooling=max",
    ]
    assert complete(monkeypatch, capsys, *plan, "--sweep", "model.pooling=mean,m") == ["model.pooling=mean,max"]
    assert complete(monkeypatch, capsys, *plan, "--set", "model.bidirectional=") == [
        *("model.bidirectional=true", "model.bidirectional=false"),
    ]
    assert "model.recurrence.kind=diagonal" in complete(monkeypatch, capsys, *plan, "--set", "model.recurrence.kind=d")
    grid = read_recipe("sDigits").tune.grid["optim.lr"]
    assert complete(monkeypatch, capsys, "plan", "sDigits", "--sweep", "optim.lr=") == [
        f"optim.lr={rate}" for rate in grid
    ]
    assert complete(monkeypatch, capsys, *plan, "--set", "train.steps=") == ["train.steps="]
    assert complete(monkeypatch, capsys, *plan, "--set", "train.nothing=") == ["train.nothing="]
    assert complete(monkeypatch, capsys, "report", "sDigits", "--by", "optim.lr,train.ba") == ["optim.lr,train.batch"]


def test_the_shell_completes_columns_and_values_in_conditions(monkeypatch, capsys):
    assert complete(monkeypatch, capsys, "runs", "--columns", "id,dur") == ["id,duration"]
    assert complete(monkeypatch, capsys, "runs", "--columns", "seed,see") == []
    assert complete(monkeypatch, capsys, "runs", "--by", "rung,optim.l") == ["rung,optim.lr"]
    assert complete(monkeypatch, capsys, "runs", "--by", "rung", "--metric", "val/l") == ["val/loss"]
    assert complete(monkeypatch, capsys, "runs", "--where", "state=d") == ["state=done", "state=diverged"]
    assert complete(monkeypatch, capsys, "runs", "--where", "stage!=tu") == ["stage!=tune"]
    assert complete(monkeypatch, capsys, "runs", "--where", "task=sDi") == ["task=sDigits"]
    assert complete(monkeypatch, capsys, "runs", "--where", "model.pooling=la") == ["model.pooling=last"]


def test_bash_gets_what_follows_the_equals_sign(monkeypatch, capsys):
    """Bash splits words at "=", and replaces only what follows it."""
    for words, current, wanted in (
        (["plan", "sDigits", "--set", "model.pooling", "=", "ma"], 6, ["max"]),
        (["plan", "sDigits", "--set", "model.bidirectional", "="], 5, ["true", "false"]),
        (["plan", "sDigits", "--sweep", "model.pooling", "=", "max,l"], 6, ["max,last"]),
        (["plan", "sDigits", "--set", "model.pooling", "=", "max", "--profile", "smo"], 8, ["smoke"]),
        (["plan", "sDigits", "--profile", "=", "smo"], 5, ["smoke"]),
    ):
        monkeypatch.delenv("_LRURUN_SPLIT_AT_EQUALS", raising=False)
        monkeypatch.setenv("_LRURUN_COMPLETE", "complete_bash")
        monkeypatch.setenv("COMP_WORDS", "\n".join(["lrurun", *words]))
        monkeypatch.setenv("COMP_CWORD", str(current))
        assert lrurun(capsys) == (0, "\n".join(wanted) + "\n", "")
