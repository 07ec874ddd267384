"""Runs of DVCLive 3.49.1, as it has written them (`make/dvclive.py`)."""

from __future__ import annotations

import math
import shutil
from pathlib import Path

import pytest

from lrurun.errors import UsageError
from lrurun.trackers import TrackedRun
from tests.trackers.make.dvclive import PARAMETERS
from tests.trackers.reader_output import FILES, points, read, recognised

RUNS = FILES / "dvclive" / "runs"


@pytest.fixture
def runs() -> dict[str, TrackedRun]:
    return {run.id: run for run in read("dvclive", RUNS)[0]}


@pytest.fixture
def copy(tmp_path: Path) -> Path:
    """A copy of the run "whole", alone in its folder."""
    return Path(shutil.copytree(RUNS / "whole" / "dvclive", tmp_path / "copies" / "one"))


def test_a_run_is_named_by_the_folder_around_that_of_dvclive(runs: dict[str, TrackedRun]) -> None:
    assert list(runs) == ["again", "no-steps", "resumed", "summary", "whole"]
    assert {run.project for run in runs.values()} == {"runs"}
    (alone,), _ = read("dvclive", RUNS / "whole" / "dvclive")
    (around,), _ = read("dvclive", RUNS / "whole")
    for run in (alone, around):
        assert (run.id, run.project, run.place) == ("whole", "runs", runs["whole"].place)


def test_a_folder_of_another_name_names_its_run(copy: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(copy)
    for path in (copy, copy.parent, Path(), Path("..")):
        (run,), _ = read("dvclive", path)
        assert (run.id, run.project) == ("one", "copies")


def test_folders_of_runs_are_recognised(runs: dict[str, TrackedRun], tmp_path: Path) -> None:
    assert recognised("dvclive", RUNS)
    assert recognised("dvclive", RUNS / "whole" / "dvclive")
    assert not recognised("dvclive", tmp_path)
    (tmp_path / "metrics.json").write_text("{}")
    assert not recognised("dvclive", tmp_path)
    shutil.copytree(RUNS, tmp_path / ".dvc" / "runs")
    assert not recognised("dvclive", tmp_path)


def test_names_of_metrics_are_paths_and_their_curves_have_the_words_for_nan(runs: dict[str, TrackedRun]) -> None:
    run = runs["whole"]
    assert sorted(run.curves) == ["top.5", "train/loss", "val/deep/acc"]
    assert points(run, "train/loss") == [(0, "1.0"), (1, "nan"), (2, "inf")]
    assert points(run, "val/deep/acc") == [(0, "0.0"), (1, "0.1"), (2, "0.2")]
    assert points(run, "top.5") == [(0, "0.5"), (1, "0.6"), (2, "0.7")]  # with a column of times
    assert run.last == {"train/loss": math.inf, "val/deep/acc": 0.2, "top.5": 0.7, "unplotted": 7.0}
    assert run.last_step == 2


def test_curves_are_those_that_were_asked_for(runs: dict[str, TrackedRun]) -> None:
    for curves, names in (((), []), (["top.5", "unplotted", "step"], ["top.5"])):
        (run,), _ = read("dvclive", RUNS / "whole", curves)
        assert (list(run.curves), run.last, run.last_step) == (names, runs["whole"].last, 2)


def test_parameters_are_yaml_1_2(runs: dict[str, TrackedRun]) -> None:
    expected = {name: value for name, value in PARAMETERS.items() if name not in ("optim", "nan")}
    expected |= {f"optim.{name}": value for name, value in PARAMETERS["optim"].items()}
    settings = dict(runs["whole"].settings)
    assert math.isnan(settings.pop("nan"))  # type: ignore[arg-type]
    assert settings == expected
    assert {name: type(value) for name, value in settings.items()} == {
        name: type(value) for name, value in expected.items()
    }


def test_whole_numbers_are_those_of_yaml_1_2(copy: Path) -> None:
    (copy / "params.yaml").write_text("ten: 010\noctal: 0o17\nhex: 0x1f\nwords: [yes, 1_000, 0b1, ~, .5, 1e3]\n")
    assert read("dvclive", copy)[0][0].settings == {
        "ten": 10,
        "octal": 15,
        "hex": 31,
        "words": ["yes", "1_000", "0b1", None, 0.5, 1000.0],
    }


def test_a_run_without_steps_has_the_values_of_step_0(runs: dict[str, TrackedRun]) -> None:
    run = runs["no-steps"]
    assert points(run, "acc") == [(0, "0.5")]
    assert points(run, "bad/nan") == [(0, "nan")]
    assert (run.last["bad/inf"], run.last_step) == (-math.inf, 0)
    assert math.isnan(run.last["bad/nan"])


def test_values_without_curves_are_those_of_the_summary(copy: Path) -> None:
    shutil.rmtree(copy / "plots")
    (copy / "metrics.json").write_text('{"acc": 0.5, "bad": {"nan": "nan", "inf": "-inf", "text": "x"}, "step": 3}')
    (run,), notes = read("dvclive", copy)
    assert {name: str(value) for name, value in run.last.items()} == {"acc": "0.5", "bad/nan": "nan", "bad/inf": "-inf"}
    assert (run.curves, run.last_step, notes) == ({}, None, [])
    (copy / "params.yaml").unlink()
    assert read("dvclive", copy)[0][0].settings == {}


def test_a_resumed_run_goes_on_after_its_last_step(runs: dict[str, TrackedRun]) -> None:
    assert points(runs["resumed"], "acc") == [(0, "0.5"), (1, "0.6"), (2, "0.75"), (3, "0.85")]


def test_without_resume_only_the_later_run_is_left(runs: dict[str, TrackedRun]) -> None:
    assert points(runs["again"], "acc") == [(0, "2.0")]
    assert "old" not in runs["again"].last


def test_the_end_of_a_curve_counts_where_the_summary_was_set_to_another_value(runs: dict[str, TrackedRun]) -> None:
    folder = RUNS / "summary" / "dvclive"
    assert runs["summary"].last == {"acc": 0.25}
    assert read("dvclive", RUNS)[1] == [
        f"{folder}: acc is 0.75 in metrics.json and 0.25 at the end of its curve, which is read:"
        " a summary may be of another step"
    ]


def test_dvclive_has_no_states(runs: dict[str, TrackedRun]) -> None:
    assert {(run.state, run.state_text) for run in runs.values()} == {("finished", "")}


def test_lines_that_are_no_points_are_left_out_with_a_note(copy: Path) -> None:
    path = copy / "plots" / "metrics" / "train" / "loss.tsv"
    path.write_text(f"step\tloss\n0\t1.0\n1\n2\tx\n{2**70}\t3.0\n1.5\t2\n3\t0.5\n4\t0.2")
    (run,), notes = read("dvclive", copy)
    assert points(run, "train/loss") == [(0, "1.0"), (3, "0.5")]
    assert f"{path}: line 3 is no whole point of a curve and is left out, as 4 more are" in notes
    path.write_text("step\tloss\n0\t1.0\n1\t0.2")
    (run,), notes = read("dvclive", copy)
    assert points(run, "train/loss") == [(0, "1.0")]  # 0.2 may have been 0.25
    assert f"{path}: line 3 is no whole point of a curve and is left out" in notes


def test_a_quote_in_a_file_hides_no_line(copy: Path) -> None:
    path = copy / "plots" / "metrics" / '"q.tsv'
    path.write_text('step\t"q\n0\t1.0\n1\t2.0\n')
    assert points(read("dvclive", copy)[0][0], '"q') == [(0, "1.0"), (1, "2.0")]


def test_a_metric_called_step_has_the_second_column(copy: Path) -> None:
    (copy / "plots" / "metrics" / "step.tsv").write_text("step\tstep\n0\t5.0\n")
    assert points(read("dvclive", copy)[0][0], "step") == [(0, "5.0")]


@pytest.mark.parametrize(
    ("file", "content", "note"),
    [
        ("metrics.json", b'{"acc": 0.', ": not valid JSON: Expecting ',' delimiter at line 1, column 10"),
        ("metrics.json", b"\xff", ": not UTF-8 text (invalid start byte at byte 0): its run is read without it"),
        ("params.yaml", b"norm: [1", ", line 2: is not YAML: "),
        ("params.yaml", b"norm: \x00", ": is not YAML: unacceptable character"),
        ("params.yaml", b"- 1", ": expected a table of settings, found list: its run is read without settings"),
        ("params.yaml", b"a: !!python/object:os.system {}", ", line 1: is not YAML: could not determine"),
        ("params.yaml", b"\xe4", ": not UTF-8 text (unexpected end of data at byte 0)"),
        (
            "plots/metrics/top.5.tsv",
            b"",
            ": expected the columns step and top.5, found an empty file: top.5",
        ),
        (
            "plots/metrics/top.5.tsv",
            b"step\tx\n",
            ": expected the columns step and top.5, found step, x: top.5",
        ),
        ("plots/metrics/top.5.tsv", b"\xff", ": not UTF-8 text (invalid start byte at byte 0): top.5 is read without"),
    ],
)
def test_a_damaged_file_leaves_the_rest_of_its_run(file: str, content: bytes, note: str, copy: Path) -> None:
    (copy / file).write_bytes(content)
    (run,), notes = read("dvclive", copy)
    assert [text for text in notes if text.startswith(f"{copy / file}{note}")]
    assert (run.settings == {}) == (file == "params.yaml")
    assert ("unplotted" in run.last) == (file != "metrics.json")
    assert ("top.5" in run.curves) == ("top" not in file)


def test_a_folder_without_runs_is_refused(tmp_path: Path) -> None:
    for path in (tmp_path, tmp_path / "none"):
        with pytest.raises(UsageError, match="no folder of DVCLive"):
            read("dvclive", path)


def test_runs_of_another_project_are_left_out() -> None:
    with pytest.raises(UsageError, match="has no project 'others'"):
        read("dvclive", RUNS, project="others")
    assert len(read("dvclive", RUNS, project="runs")[0]) == 5
