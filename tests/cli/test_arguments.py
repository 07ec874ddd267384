"""Global options before and after the command, the places that they name, and what the shell completes."""

from __future__ import annotations

from pathlib import Path

import pytest

from lrurun import console, paths
from lrurun.cli.arguments import split_global
from lrurun.ledger.ledger import Ledger
from tests.harness import results
from tests.harness.machine import Machine


@pytest.mark.parametrize(
    "line",
    [
        "-q --ledger x.db plan sDigits",
        "plan sDigits --ledger=x.db --quiet",
        "--ledger y.db plan sDigits -qvq --ledger x.db",
        "plan --ledger x.db -q -- sDigits",
    ],
)
def test_global_options_stand_before_and_after_the_command(line, machine: Machine, monkeypatch) -> None:
    seen = []
    monkeypatch.setattr("lrurun.commands._shared.plan_output._print_plan", lambda *_: None)
    read = Ledger.read
    monkeypatch.setattr("lrurun.ledger.ledger.Ledger.read", lambda path: seen.append(str(path)) or read(path))
    machine.run(*line.split())
    assert (seen, console.verbosity()) == (["x.db"], -1)


def test_arguments_after_two_dashes_are_not_options() -> None:
    assert split_global(["plan", "-v", "--", "-q", "--ledger"]) == (["-v"], ["plan", "--", "-q", "--ledger"])


def test_options_override_the_environment_which_overrides_the_defaults(monkeypatch, tmp_path) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "x"))
    assert paths.places() == paths.Places(ledger=Path("ledger.db"), runs=Path("runs"), data=tmp_path / "x/lrurun")
    monkeypatch.delenv("XDG_DATA_HOME")
    assert paths.places().data == tmp_path / ".local/share/lrurun"
    for name in ("LEDGER", "RUNS", "DATA"):
        monkeypatch.setenv(f"LRURUN_{name}", f"env/{name}")
    assert paths.places() == paths.Places(ledger=Path("env/LEDGER"), runs=Path("env/RUNS"), data=Path("env/DATA"))
    given = paths.places("a/l.db", "~/r", "d")
    assert given == paths.Places(ledger=Path("a/l.db"), runs=tmp_path / "r", data=Path("d"))
    monkeypatch.setenv("LRURUN_RUNS", "")
    for ledger, runs in (
        ("ledger.db", "runs"),
        ("l.db", "l-runs"),
        ("ledger.db.backup-2", "runs"),
        ("e.1", "e.1-runs"),
    ):
        assert paths.places(f"a/{ledger}").runs == Path("a", runs)  # ledgers in one folder do not share theirs
    for url, path in (("sqlite:///x.db", "x.db"), ("sqlite+pysqlite:////tmp/x.db", "/tmp/x.db")):
        assert paths.places(url).ledger == Path(path)


# Completion


def complete(machine: Machine, *words: str) -> list[str]:
    asked = {"_LRURUN_COMPLETE": "complete_bash", "COMP_WORDS": " ".join(["lrurun", *words])}
    done = machine.run(env=asked | {"COMP_CWORD": str(len(words))})
    assert done.stderr == ""
    return done.stdout.split()


@pytest.mark.parametrize(
    ("line", "found"),
    [
        ("plan sD", "sDigits"),
        ("plan sDigits --ladder nonlinearity --rung r", "relu-rnn"),
        ("plan sDigits --profile s", "smoke"),
        ("plan nowhere --profile s", ""),  # without anything to complete from, nothing is printed
        ("plan sDigits --ladder no --rung r", ""),
        ("show a", ""),
        ("plan sDigits --set optim.b", "optim.b1= optim.b2= optim.beta= optim.beta3="),
        ("plan sDigits --set train.log", "train.log_every="),
        ("plan sDigits --set model.poo", "model.pooling=mean model.pooling=max model.pooling=last"),
        ("plan sDigits --set model.bidirectional=", "model.bidirectional=true model.bidirectional=false"),
        ("plan sDigits --sweep model.pooling=mean,m", "model.pooling=mean,max"),
        ("plan sDigits --set model.recurrence.kind=rotr", "model.recurrence.kind=rotrnn"),
        ("plan sDigits --profile smoke --sweep optim.lr=", "optim.lr=0.004 optim.lr=0.016"),
        ("plan sDigits --set train.nothing=", "train.nothing="),
        ("report sDigits --by optim.lr,train.ba", "optim.lr,train.batch"),
        ("runs --columns id,dur", "id,duration"),
        ("runs --columns seed,see", ""),
        ("runs --by rung --metric val/l", "val/loss"),
        ("runs --where state=d", "state=done state=diverged"),
        ("runs --where stage!=tu", "stage!=tune"),
        ("runs --where task=sDi", "task=sDigits"),
        ("runs --where model.pooling=la", "model.pooling=last"),
    ],
)
def test_the_shell_completes_names_and_values(line: str, found: str, machine: Machine) -> None:
    assert complete(machine, *(line + " ").split(" ")[:-1]) == found.split()


def test_the_shell_completes_what_is_in_the_ledger(machine: Machine) -> None:
    results.fill(machine.ledger, "sDigits", {"tanh-rnn": [0.5, 0.6], "linear-rnn": [0.7]})
    with Ledger.read(machine.ledger) as ledger:
        ids, [instance] = [run.id for run in ledger.runs()], [ladder.short_name for ladder in ledger.ladders()]
    assert complete(machine, "show", ids[1][:4]) == [ids[1]]
    assert complete(machine, "show", "") == ids
    assert complete(machine, "show", "%") == []
    assert complete(machine, "report", "sDigits", "--instance", instance[:3]) == [instance]
    assert complete(machine, "runs", "--where", "seed=0&val/acc") == ["seed=0&val/accuracy"]
    machine.ledger.write_bytes(b"no database" * 100)
    assert complete(machine, "show", "") == []


def test_bash_gets_what_follows_the_equals_sign(machine: Machine) -> None:
    """Bash splits words at "=", and replaces only what follows it."""
    for line, current, found in (
        ("plan sDigits --set model.pooling = ma", 6, "max"),
        ("plan sDigits --set model.bidirectional =", 5, "true false"),
        ("plan sDigits --sweep model.pooling = max,l", 6, "max,last"),
        ("plan sDigits --set model.pooling = max --profile smo", 8, "smoke"),
    ):
        asked = {"_LRURUN_COMPLETE": "complete_bash", "COMP_WORDS": "\n".join(["lrurun", *line.split()])}
        done = machine.run(env=asked | {"COMP_CWORD": str(current)})
        assert done.stdout.split() == found.split()
