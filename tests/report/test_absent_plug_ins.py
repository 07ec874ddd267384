"""Runs of a plug-in that is not loaded."""

from __future__ import annotations

from pathlib import Path

import pytest

from lrurun import plugins
from lrurun.config import plan as planning
from lrurun.config.plan import final_runs
from lrurun.ledger.store import Ledger
from lrurun.report import scores
from tests.harness.commands import said
from tests.harness.plug_ins import MAJORITY, RADIUS, RECIPE, forget, forgotten

__all__ = ["forgotten"]  # a fixture


def test_a_report_without_the_plug_in_says_why_runs_are_left_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "share"))
    monkeypatch.chdir(tmp_path)
    Path("mine.py").write_text(MAJORITY)
    Path("recipes").mkdir()
    Path("recipes/Majority.toml").write_text(RECIPE)
    Path("radius.toml").write_text(RADIUS)
    plugins.load("mine.py")
    plan = planning.make("Majority", ladder="radius.toml")
    with Ledger.open(Path("ledger.db")) as ledger:
        instance = ledger.add_ladder(plan.ladder.name, plan.recipe.task, plan.profile, plan.spec)
        (run,) = ledger.enqueue(instance.key, final_runs(plan, plan.rungs[0], [0]))
    report = ("report", "Majority", "--ladder", "radius.toml")
    assert "left out" not in said(capsys, *report)[1]
    forget()
    code, out, err = said(capsys, *report)
    assert (code, out) == (2, "")
    assert "recipes/Majority.toml, task: unknown task 'Majority'" in err
    assert run.id in said(capsys, "runs")[1]


def test_scores_of_a_task_that_is_not_loaded_have_no_direction() -> None:
    own = scores.of_task("of-a-plug-in", ("val/loss", "val/error"))
    assert (own.name, own.higher_is_better, own.best([0.1, 0.2])) == ("error", None, None)
    # names of lrurun's own tasks with other results are of a plug-in that had the name before
    assert scores.of_task("Copy", ("val/error",)) == own
    assert scores.of_task("TeacherStudent", ("val/nmse", "val/r2")).best([0.1, 0.2]) == 0.1
    assert scores.of_task("TeacherStudent").name == "nmse"
