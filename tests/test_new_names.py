"""Plug-ins that are older than lrurun's own tasks and recurrences of the same names."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from lrurun import data, paths, plugins
from lrurun.config import plan as planning
from lrurun.config.recurrences import KINDS
from lrurun.config.runs import final_runs
from lrurun.errors import UsageError
from lrurun.ledger.store import Ledger
from lrurun.report import scores
from tests.commands import said
from tests.plug_ins import AVERAGES, BUILT_IN, LADDER, MAJORITY, RADIUS, RECIPE, forget, forgotten

__all__ = ["forgotten"]  # a fixture

WARNING = "warning: task 'Copy' of mine.py is used instead of lrurun's own task of this name"


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A working directory with a task called Copy, its recipe, and a recurrence called gru."""
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "share"))
    monkeypatch.chdir(tmp_path)
    Path("mine.py").write_text(MAJORITY.replace('"Majority"', '"Copy"'))
    Path("recipes").mkdir()
    Path("recipes/Copy.toml").write_text(RECIPE.replace('"Majority"', '"Copy"'))
    Path("radius.toml").write_text(RADIUS)
    Path("averages.py").write_text(AVERAGES.replace('"averages"', '"gru"'))
    Path("averages.toml").write_text(
        LADDER.replace('"model.recurrence.kind" = "averages"', '"model.recurrence.kind" = "gru"')
    )
    return tmp_path


def test_the_names_of_the_release_are_those_of_its_files() -> None:
    own = {"recurrence": set(BUILT_IN), "task": set(data.TASKS)}
    assert all(names < own[what] for what, names in plugins.RELEASED.items())
    assert {what: len(names) for what, names in plugins.RELEASED.items()} == {"recurrence": 8, "task": 9}


def test_a_task_of_the_users_own_comes_before_a_newer_one_of_lrurun(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    own = data.TASKS["Copy"]
    code, _, err = said(capsys, "plan", "Copy", "--ladder", "radius.toml", "--load", "mine.py")
    assert code == 0
    assert err.count(WARNING) == 1
    assert data.TASKS["Copy"].code.startswith("sha256:")
    config = planning.make("Copy", ladder="radius.toml").rungs[0].config
    assert config.code is not None
    forget()
    assert data.TASKS["Copy"] is own


def test_lruruns_recipe_is_not_that_of_a_users_task(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    Path("recipes/Copy.toml").rename("mine.toml")
    code, _, err = said(capsys, "plan", "Copy", "--ladder", "radius.toml", "--load", "mine.py")
    assert code == 2
    assert err.splitlines() == [
        WARNING,
        "error: recipes/Copy.toml: is the recipe of lrurun's own task Copy, and not of that of mine.py",
        "hint: write recipes/Copy.toml, or name the path of another recipe: PATH.toml",
    ]
    forget()
    code, out, err = said(capsys, "plan", "mine.toml", "--ladder", "radius.toml", "--load", "mine.py")
    assert (code, err) == (0, f"{WARNING}\n")
    assert "Copy" in out
    forget()
    code, _, err = said(
        capsys, "plan", "mine.toml", "--ladder", "radius.toml"
    )  # with lrurun's own task, whose settings the recipe fits too
    assert (code, err) == (0, "")


def test_a_recurrence_of_the_users_own_comes_before_a_newer_one_of_lrurun(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    own = KINDS["gru"]
    code, _, err = said(capsys, "plan", "sDigits", "--ladder", "averages.toml")
    warning = "warning: recurrence 'gru' of averages.py is used instead of lrurun's own recurrence of this name\n"
    assert (code, err) == (0, warning)
    assert planning.make("sDigits", ladder="averages.toml").rungs[-1].config.code is not None
    forget()
    assert KINDS["gru"] is own


def test_a_ladder_of_lrurun_is_not_about_a_users_recurrence(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    Path("averages.py").write_text(AVERAGES.replace('"averages"', '"sgconv"'))
    arguments = ("plan", "ListOpsSubTrees", "--ladder")
    code, _, err = said(capsys, *arguments, "dlr", "--load", "averages.py")
    assert code == 2
    assert err.splitlines()[1:] == [
        "error: ablations/dlr.toml, rung sgconv: is about lrurun's own sgconv, and not about that of averages.py",
        "hint: copy the ladder without its published scores and claims, and name the copy: --ladder PATH.toml",
    ]
    _, out, _ = said(capsys, "claims", "--ladder", "dlr", "--json")
    verdicts = {(one["here"]["verdict"], one["here"]["detail"]) for one in json.loads(out)["claims"]}
    assert verdicts == {("not judged", err.splitlines()[1].removeprefix("error: "))}
    Path("copy.toml").write_text((paths.packaged("ablations") / "dlr.toml").read_text())
    assert said(capsys, *arguments, "copy.toml")[0] == 0


def test_a_plug_in_that_fails_leaves_lruruns_own(folder: Path) -> None:
    own = data.TASKS["Copy"]
    Path("mine.py").write_text(Path("mine.py").read_text() + "1 / 0\n")
    with pytest.raises(UsageError, match="raised ZeroDivisionError"):
        plugins.load("mine.py")
    assert data.TASKS["Copy"] is own
    assert plugins.source_of("task", "Copy") is None


def test_an_installed_package_comes_before_a_newer_task_of_lrurun(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    site = folder / "site"
    (site / "means-1.0.dist-info").mkdir(parents=True)
    (site / "means.py").write_text(Path("mine.py").read_text())
    (site / "means-1.0.dist-info" / "METADATA").write_text("Metadata-Version: 2.1\nName: means\nVersion: 1.0\n")
    (site / "means-1.0.dist-info" / "entry_points.txt").write_text("[lrurun]\nCopy = means\n")
    monkeypatch.syspath_prepend(site)
    code, _, err = said(capsys, "plan", "Copy", "--ladder", "radius.toml")
    assert code == 0
    assert err.count("is used instead of lrurun's own task of this name") == 1
    assert plugins.loaded()["found"] == [["task", "Copy"]]


def test_a_report_without_the_plug_in_says_why_runs_are_left_out(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    plugins.load("mine.py")
    plan = planning.make("Copy", ladder="radius.toml")
    with Ledger.open(Path("ledger.db")) as ledger:
        instance = ledger.add_ladder(plan.ladder.name, plan.recipe.task, plan.profile, plan.spec)
        (run,) = ledger.enqueue(instance.key, final_runs(plan, plan.rungs[0], [0]))
    report = ("report", "Copy", "--ladder", "radius.toml")
    assert "left out" not in said(capsys, *report)[1]
    forget()
    _, out, _ = said(capsys, *report)
    assert f"Note: left out, because the plug-in with their task 'Copy' is not loaded: {run.id}" in out


def test_scores_of_a_task_that_is_not_loaded_have_no_direction() -> None:
    own = scores.of_task("Copy", ("val/loss", "val/error"))  # not lrurun's Copy, whose metric is the accuracy
    assert (own.name, own.higher_is_better, own.best([0.1, 0.2])) == ("error", None, None)
    assert scores.of_task("of-a-plug-in", ("val/error",)) == own
    assert scores.of_task("TeacherStudent", ("val/nmse", "val/r2")).best([0.1, 0.2]) == 0.1
    assert scores.of_task("TeacherStudent").name == "nmse"
