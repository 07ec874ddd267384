"""Completion by the shell: names of tasks, rungs and settings, and what is in the ledger."""

from __future__ import annotations

import pytest

from lrurun.ledger import Ledger
from tests import results
from tests.commands import folder, lrurun

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
        ids, [instance] = [run.id for run in ledger.runs()], [ladder.key for ladder in ledger.ladders()]
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
