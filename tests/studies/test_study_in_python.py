"""`lrurun.study`: a study from Python, computed by worker processes, without jax and without the command line."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

import lrurun
from lrurun import studies
from lrurun.errors import FailedChecksError, NotFoundError, UsageError
from lrurun.report.formats import as_json
from lrurun.session.study import StudySession
from lrurun.studies.machinery import checks
from tests.harness.machine import Machine

RUN = """
import sys
import lrurun

study = lrurun.study("impulse", profile="ci", seeds=2, ledger="ledger.db")
assert {cell.done for cell in study.plan()} == {0}
study.train(jobs=1)
result = study.report()
assert {cell.done for cell in study.plan()} == {2}
assert not result.report.unfinished and len(result.checks) > 5
assert result.page.count('class="supported">ok') == len(result.checks)
loaded = [name for name in sys.modules if name.split(".")[0] in ("jax", "typer") or name.startswith("lrurun.commands")]
assert not loaded, loaded
"""


def memory(folder: Path, **more: object) -> StudySession:
    return lrurun.study("memory", profile="ci", ledger=folder / "ledger.db", **more)  # type: ignore[arg-type]


def test_workers_compute_a_study_whose_caller_imports_no_jax_and_no_command(machine: Machine) -> None:
    done = subprocess.run([sys.executable, "-c", RUN], capture_output=True, text=True, cwd=machine.folder, check=False)
    assert done.returncode == 0, done.stderr
    assert machine.json("report", "study:impulse", "--profile", "ci")["unfinished"] == 0


def test_a_study_in_python_has_the_numbers_of_the_command(machine: Machine) -> None:
    sets = {"rho": [0, 0.9], "points": 5}
    study = memory(machine.folder, set=sets)
    with pytest.raises(NotFoundError, match=r'memory in profile ci set={"rho": \[0, 0.9\]} set={"points": 5}'):
        study.report()
    study.train(jobs=1)
    result = study.report()
    words = ("study", "memory", "--profile", "ci", "--set", "rho=[0,0.9]", "--set", "points=5")
    assert machine.json(*words) == json.loads(as_json.render(result.report))
    [first, second] = result.cells.to_pandas().to_dict("records")
    assert (first["rho"], second["rho"], first["points"]) == (0, 0.9, 5)
    assert second["state at 0.9"] == result.report.cells[1].values["state at 0.9"]
    assert list(result.checks.columns()["passed"]) == [True] * len(result.report.checks)
    assert machine.states() == {"done": 2}, "the command has found what Python has computed"


def test_a_notebook_shows_the_page_and_a_figure(machine: Machine) -> None:
    study = memory(machine.folder, cells="rho=0")
    assert [cell.cell for cell in study.plan()] == ["rho=0"]
    study.train(jobs=1)
    part = study.report()
    assert (part.answer, part.report.unfinished, list(part.claims)) == ("", 4, [])
    with pytest.raises(NotFoundError, match="no figure, because cells are missing"):
        study.plot()
    whole = memory(machine.folder)
    whole.train(jobs=1)
    result = whole.report()
    assert result.answer in result.page
    assert "<svg" in result.page
    assert result._repr_html_().startswith("<iframe")
    captioned, plain = (
        " ".join(text.get_text() for text in figure.texts).replace("\n", " ")
        for figure in (whole.plot(), whole.plot(plain=True))
    )
    assert (study.question in captioned, study.question in plain) == (True, False)
    assert repr(result).splitlines()[-1] == "10 of 10 checks passed"


def test_a_failed_check_is_an_error_after_the_study_is_recorded(
    machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    kind = type(studies.get("memory"))
    monkeypatch.setattr(kind, "checks", lambda self, results: [checks.identity("a sum", len(results), 4.0)])
    study = memory(machine.folder)
    with pytest.raises(FailedChecksError, match="memory: 1 of 1 check failed: a sum: 5, expected equal up to 1e-08"):
        study.train(jobs=1)
    assert [check.passed for check in study.report().checks] == [False]


def test_arguments_of_another_type_and_unknown_names_are_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="unknown study 'memry'"):
        lrurun.study("memry")
    with pytest.raises(UsageError, match="profile: unknown profile 'smoke'"):
        lrurun.study("memory", profile="smoke")
    with pytest.raises(UsageError, match="set: expected a mapping, found list"):
        lrurun.study("memory", set=["rho=0"])  # type: ignore[arg-type]
    with pytest.raises(UsageError, match="unknown cell 'rho=2'"):
        memory(tmp_path, cells=["rho=2"])
    with pytest.raises(UsageError, match="jobs: expected a whole number from 1 to 4096, found 0"):
        memory(tmp_path).train(jobs=0)
    assert list(tmp_path.iterdir()) == []
