"""Commands about imported runs: what they show, and that nothing would train them."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

import lrurun
from lrurun.errors import UsageError
from tests.harness.imported import TABLE, fill, write
from tests.harness.machine import Machine
from tests.harness.results import fill as fill_trained
from tests.harness.shared import once

WITHOUT_TIMES = (r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ", "TIME")


def _fill(folder: Path) -> None:
    fill(folder / "ledger.db", write(folder))


@pytest.fixture(scope="module")
def imported() -> Machine:
    return Machine(once("imported-commands", _fill))


@pytest.fixture
def run(imported: Machine) -> str:
    [found] = imported.json("runs", "--where", "rung=layer and seed=0")["runs"]
    return found["id"]


def test_what_is_shown_of_runs(imported: Machine, run: str, golden) -> None:
    [missing] = imported.json("runs", "--where", "state=failed")["runs"]
    [base] = imported.json("runs", "--where", "rung=none and seed=0")["runs"]
    shown = []
    for words in (
        ("show", run),
        ("show", missing["id"]),
        ("compare", base["id"], run),
        ("runs", "--where", "origin.run = 'layer-0'", "--columns", "id,origin.tracker,settings.norm,test/acc"),
        ("query", "select kind, state, count(*) n from runs group by state order by state"),
        ("check", "ladder", "runs.toml"),
        ("check", "recipe", "runs.toml"),
        ("verify", "--items", "--instance", "runs"),
        ("resume",),
        ("status", "--watch"),
    ):
        done = imported.run(*words)
        text = re.sub(*WITHOUT_TIMES, f"{done.stdout}{done.stderr}")
        shown.append(f"$ lrurun {' '.join(words)}\n{text}")
    golden("imported/commands.txt", "\n".join(shown))


REFUSED = (
    ("ladder", "runs.toml"),
    ("ladder", "runs"),
    ("ladder", "runs.toml", "--set", "settings.norm=group"),
    ("ladder", "runs.toml", "--sweep", "settings.norm=group,layer"),
    ("ladder", "runs.toml", "--tune"),
    ("ladder", "runs.toml", "--decide"),
    ("ladder", "runs.toml", "--seeds", "12", "--fresh"),
    ("ladder", "runs.toml", "--dry-run"),
    ("plan", "runs.toml"),
    ("plan", "runs"),
    ("plan", "runs.toml", "--measure"),
    ("plan", "runs.toml", "--sweep", "settings.norm=group"),
    ("resume", "--instance", "runs"),
    ("report", "runs.toml", "--tune"),
    ("report", "runs.toml", "--set", "settings.norm=group"),
    ("report", "runs.toml", "--speed"),
    ("check", "program", "runs.toml"),
    ("data", "prepare", "runs.toml"),
    ("data", "info", "runs.toml"),
    ("verify", "RUN"),
    ("show", "RUN", "--toml"),
    *(
        ("plot", "runs.toml", "--kind", kind, "--out", "x.svg")
        for kind in ("rates", "eigenvalues", "norms", "speed", "slots", "lengths", "errors", "predictions")
    ),
    ("plot", "RUN", "--kind", "norms", "--out", "x.svg"),
    ("plot", "RUN", "--kind", "rates", "--out", "x.svg"),
)


def test_what_would_train_or_needs_a_model_is_refused(imported: Machine, run: str, golden) -> None:
    shown = []
    for words in REFUSED:
        words = tuple(run if word == "RUN" else word for word in words)
        shown.append(f"$ lrurun {' '.join(words)}\n{imported.refused(*words)}")
    for words, code in (
        (("show", run, "--log"), 4),
        (("show", run, "--files"), 4),
        (("show", run, "--requirements"), 1),
        (("plot", "runs.toml", "--kind", "items", "--out", "x.svg"), 4),
    ):
        shown.append(f"$ lrurun {' '.join(words)}\n{imported.refused(*words, code=code)}")
    golden("imported/refused.txt", re.sub(r"/\S*/(?=runs\.toml)", "FOLDER/", "\n".join(shown)))


def test_resume_leaves_missing_runs_alone_beside_others(imported: Machine, tmp_path: Path) -> None:
    machine = Machine(tmp_path)
    fill_trained(machine.ledger, "sDigits", {"tanh-rnn": [0.5]}, profile="smoke")
    fill(machine.ledger, write(tmp_path))
    before = machine.json("runs")["runs"]
    done = machine.run("resume")
    assert done.stderr.startswith("nothing to do: every ladder of this ledger is finished")
    assert machine.json("runs")["runs"] == before
    states = {row["instance"]: row for row in machine.json("status")["ladders"]}
    assert [states[key]["eta_seconds"] for key in states] == [None, None]


def test_a_ledger_that_is_not_there_names_the_import(tmp_path: Path) -> None:
    machine = Machine(tmp_path)
    write(tmp_path)
    for words in (("report", "runs.toml"), ("plot", "runs.toml", "--out", "x.svg")):
        assert "hint: run: lrurun import runs.toml\n" in machine.refused(*words, code=4)
    fill_trained(machine.ledger, "sDigits", {"tanh-rnn": [0.5]}, profile="smoke")
    assert "hint: run: lrurun import runs.toml\n" in machine.refused("report", "runs.toml", code=4)


def test_a_changed_file_is_another_instance(tmp_path: Path) -> None:
    machine = Machine(tmp_path)
    fill(machine.ledger, write(tmp_path))
    write(tmp_path, TABLE.replace("test_acc", "test_loss"))
    error = machine.refused("report", "runs.toml", code=4)
    assert "another version of the ladder, recipe or code has results: --instance runs (16 finished runs)" in error
    assert "or run: lrurun import runs.toml" in error


def test_the_report_needs_no_file(tmp_path: Path) -> None:
    machine = Machine(tmp_path)
    file = write(tmp_path)
    fill(machine.ledger, file)
    before = machine.run("report", "runs").stdout
    file.unlink()
    for words in (("report", "runs"), ("report", "--instance", "runs"), ("report",)):
        after = machine.run(*words).stdout
        assert after.splitlines()[:9] == before.splitlines()[:9]
    assert "these runs were imported" in machine.refused("ladder", "runs")
    assert "supported  runs  batch is better" in machine.run("claims").stdout


def test_python_refuses_to_train_them(imported: Machine) -> None:
    words = "these runs were imported, and cannot be trained here"
    for name in ("runs", imported.folder / "runs.toml"):
        with pytest.raises(UsageError, match=words) as found:
            lrurun.ladder(name, ledger=imported.ledger)
        assert "lrurun report" in found.value.hint
        assert "lrurun import" in found.value.hint
    with pytest.raises(UsageError, match=words):
        lrurun.resume(instance="runs", ledger=imported.ledger)


def test_no_model_of_them_is_loaded(imported: Machine, run: str) -> None:
    with pytest.raises(UsageError, match="was imported, and lrurun knows no model of it"):
        lrurun.load(run, ledger=imported.ledger)


TABLE_OF_RUNS = """\
run,norm,seed,test_acc,state
a,none,0,0.70,finished
b,none,1,0.72,finished
c,none,2,0.71,finished
d,layer,0,0.81,finished
e,layer,1,0.83,finished
f,layer,2,,crashed
"""


def test_a_table_of_runs_from_its_file_to_the_answer(tmp_path: Path) -> None:
    machine = Machine(tmp_path)
    (tmp_path / "table.csv").write_text(TABLE_OF_RUNS)
    done = machine.run("import", "table.csv", "--metric", "test_acc", "--by", "norm", "--seed-column", "seed")
    assert done.stdout.splitlines()[0].endswith("2 to 3 seeds a rung · imported from table.csv (csv)")
    assert "1 run missing (layer): unequal shares may favour a rung" in done.stdout
    *answer, _ = machine.run("report", "table.toml").stdout.splitlines()
    assert done.stdout.splitlines()[:-1] == answer, "but for the commands of the last line"
    [crashed] = machine.json("runs", "--where", "state=failed")["runs"]
    shown = machine.run("show", crashed["id"]).stdout
    assert re.search(r"^tracker +CSV$", shown, re.MULTILINE)
    assert re.search(r"^place +\S*table.csv", shown, re.MULTILINE)
    assert not re.search(r"^(started|ended|metric +points)", shown, re.MULTILINE)
    error = machine.refused("plot", "table.toml", "--kind", "curves", "--out", "x.svg", code=4)
    assert "was imported without such curves" in error
    assert "these runs were imported, and cannot be trained here" in machine.refused("ladder", "table")
    page = machine.run("report", "table.toml", "--format", "html").stdout
    assert " of 0<" not in page
