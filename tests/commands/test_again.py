"""`lrurun show RUN --toml`: a ladder that trains a run again, to the same fingerprint."""

from __future__ import annotations

import shlex
import sqlite3
from pathlib import Path

import pytest

from lrurun.config import plan as planning
from lrurun.config.plan import final_runs, tuning_runs
from lrurun.config.runs import InstanceSpec, parse_seeds
from lrurun.ledger.store import Ledger
from lrurun.ledger.values import Run
from lrurun.report.request import LadderRequest, recorded, remember
from tests.harness.commands import said
from tests.harness.machine import Machine

RUNGS = {
    "lru": ("tanh-rnn", "linear-rnn", "diagonal", "exponential", "ring-init", "small-phase"),
    "nonlinearity": None,
    "stability": ("free-0-0.9", "stable-0.9-0.9", "gamma-0.9-0.999"),
}


def enqueue(task: str, ladder: str, profile: str | None, seed: int, sets: list[str]) -> list[Run]:
    plan = planning.make(task, ladder=ladder, profile=profile, sets=sets)
    rungs = planning.choose_rungs(plan, RUNGS.get(ladder) or [])
    with Ledger.open("ledger.db") as ledger:
        key = ledger.add_ladder(plan.ladder.name, plan.recipe.task, plan.profile, plan.spec).key
        return ledger.enqueue(key, [w for rung in rungs for w in final_runs(plan, rung, [seed])])


def again(text: str, path: Path) -> tuple[str, dict[str, object], list[str]]:
    """Fingerprint and execution of what the command in the text's comment would train, once the text is in a file."""
    path.write_text(text)
    lines = text.splitlines()
    arguments = shlex.split(lines[1].removeprefix("# ").replace("FILE.toml", str(path)))
    options = dict(zip(arguments[3::2], arguments[4::2], strict=True))
    sets = [value for name, value in zip(arguments[3::2], arguments[4::2], strict=True) if name == "--set"]
    asked = LadderRequest(
        task=arguments[2],
        ladder=options["--ladder"],
        profile=options.get("--profile"),
        rungs=[],
        seeds=options["--seeds"],
        tune=False,
        sets=sets,
    )
    plan = asked.plan()
    [rung] = plan.rungs
    [wanted] = final_runs(plan, rung, parse_seeds(options["--seeds"]))
    return wanted.fingerprint, wanted.execution, arguments


@pytest.mark.parametrize(
    ("task", "ladder", "profile", "sets"),
    [
        ("sDigits", "lru", "smoke", []),
        (
            "sDigits",
            "lru",
            None,
            ["optim.lr=1", "model.dropout=0.3", "model.bidirectional=true"],
        ),
        ("sDigits", "nonlinearity", "smoke", ["execution.threads=2", "execution.scan_backend=sequential"]),
        ("sCIFAR", "stability", None, []),
        ("ListOps", "lru", "laptop", ["optim.floor=1e-09", "execution.remat=true"]),
        ("Text", "lru", None, ["train.protocol=paper"]),
    ],
)
def test_the_document_has_the_runs_fingerprint(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    task: str,
    ladder: str,
    profile: str | None,
    sets: list[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    for run in enqueue(task, ladder, profile, 7, sets):
        code, out, err = said(capsys, "show", run.id[:8], "--toml")
        assert (code, err) == (0, "")
        found, execution, arguments = again(out, tmp_path / "again.toml")
        assert found == run.fingerprint
        assert execution == run.execution
        assert arguments[:3] == ["lrurun", "ladder", task]
        (tmp_path / "again.toml").write_text(out.replace('"train.steps" = ', '"train.steps" = 1'))
        assert again((tmp_path / "again.toml").read_text(), tmp_path / "again.toml")[0] != run.fingerprint


def test_the_whole_document(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    run = enqueue("sDigits", "lru", "smoke", 3, ["execution.threads=2"])[0]
    text = said(capsys, "show", run.id, "--toml")[1]
    assert text.split("[rung.change]")[0] == (
        f"# Trains run {run.id} again if it is not done already (--fresh trains it in any case):\n"
        "# lrurun ladder sDigits --profile smoke --ladder FILE.toml --seeds 3, --set execution.threads=2\n"
        f'name = "again-{run.id}"\n'
        f'title = "run {run.id} again"\n'
        f'source = "ladder lru, rung tanh-rnn, {run.fingerprint}"\n'
        "\n"
        "[[rung]]\n"
        f'name = "run-{run.id}"\n'
        f'title = "run {run.id} again"\n'
        "\n"
    )
    assert '[rung.change]\n"model.recurrence.kind" = "dense"\n' in text
    assert '"model.bidirectional" = false\n' in text


def test_what_cannot_be_trained_again_is_not_printed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    plan = planning.make("sDigits", ladder="lru", profile="smoke", tune=True)
    with Ledger.open("ledger.db") as ledger:
        key = ledger.add_ladder("lru", "sDigits", "smoke", plan.spec).key
        tuning = ledger.enqueue(key, tuning_runs(plan, plan.rungs[:1]))[0]
    assert said(capsys, "show", tuning.id, "--toml") == (
        1,
        "",
        f"error: run {tuning.id} is a tuning run: a ladder trains it only to choose among the points of the grid\n"
        "hint: name one of its final runs: lrurun runs --where 'stage=train'\n",
    )
    run = enqueue("sDigits", "lru", "smoke", 0, [])[0]
    assert said(capsys, "show", run.id, "--toml", "--json")[0] == 2
    assert said(capsys, "show", run.id, "--toml", "--ledger", "none.db")[0] == 4
    connection = sqlite3.connect("ledger.db")
    with connection:
        connection.execute(
            "insert into documents (sha256, text) "
            "select 'another', json_set(config, '$.data.version', 'another') from runs where id = ?",
            [run.id],
        )
        connection.execute("update stored_runs set config_id = last_insert_rowid() where id = ?", [run.id])
    connection.close()
    assert said(capsys, "show", run.id, "--toml") == (
        1,
        "",
        f"error: run {run.id} cannot be trained again: the recipe of sDigits has changed its data, or was not found\n"
        "hint: restore the recipe; lrurun show names the data of the run\n",
    )


def test_names_in_the_ledger_are_data(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    run = enqueue("sDigits", "lru", "smoke", 0, [])[0]
    connection = sqlite3.connect("ledger.db")
    with connection:
        connection.execute("update ladder_runs set rung = char(27) || '[31m\"x' || char(10) || '[evil]'")
    connection.close()
    text = said(capsys, "show", run.id, "--toml")[1]
    assert "\x1b" not in text
    assert again(text, tmp_path / "again.toml")[0] == run.fingerprint


@pytest.mark.slow
def test_the_run_is_trained_again_to_the_same_result(machine: Machine) -> None:
    machine.run("ladder", "sDigits", "--profile", "smoke", "--rung", "gamma-norm", "--seeds", "4,")
    [run] = machine.json("runs")["runs"]
    text = machine.run("show", run["id"], "--toml").stdout
    (machine.folder / "again.toml").write_text(text)
    arguments = shlex.split(text.splitlines()[1].removeprefix("# lrurun ").replace("FILE.toml", "again.toml"))
    assert "nothing to do" in machine.run(*arguments).stderr
    machine.run(*arguments, "--ledger", "other.db", "--runs-dir", "other")
    [other] = machine.json("runs", "--ledger", "other.db")["runs"]
    assert other["id"] == run["id"]
    same = {name: value for name, value in run["metrics"].items() if not name.startswith("machine/")}
    assert same == {name: value for name, value in other["metrics"].items() if not name.startswith("machine/")}


def test_the_newest_way_to_execute_the_same_runs_is_repeated(machine: Machine) -> None:
    with Ledger.open(machine.ledger) as ledger:
        instance = ledger.add_ladder("lru", "sDigits", "smoke", InstanceSpec())
        for seeds, devices in (([0], 4), ([0], 2), ([0, 1], 1), ([0], 4), ([0], 4)):
            sets = ["train.steps=9", f"execution.devices={devices}"]
            asked = LadderRequest(task="sDigits", ladder="lru", profile="smoke", tune=False, sets=sets)
            remember(ledger, instance, asked, asked.plan(), seeds)
        found = recorded(ledger, instance, LadderRequest)
        assert len(ledger.events(ladder_key=instance.key)) == 4
    assert [(one.seeds, one.sets[-1]) for one in found] == [
        ("0,1", "execution.devices=1"),
        ("0,", "execution.devices=4"),
    ]
