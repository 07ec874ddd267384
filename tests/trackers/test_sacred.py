"""Runs of Sacred 0.8.7, as its FileStorageObserver has written them (`make/sacred.py`)."""

from __future__ import annotations

import calendar
import json
import math
import shutil
import time
from pathlib import Path

import pytest

from lrurun.errors import UsageError
from lrurun.trackers import TrackedRun
from tests.trackers.make.sacred import ENDS
from tests.trackers.reader_output import FILES, points, read, recognised

FOLDER = FILES / "sacred" / "sacred_runs"
SEEDS = "no command has named the seed of 9 runs: Sacred then draws one at random, which a script may not use"


@pytest.fixture
def runs() -> dict[str, TrackedRun]:
    return dict(zip(ENDS, read("sacred", FOLDER)[0], strict=True))


@pytest.fixture
def copy(tmp_path: Path) -> Path:
    """A copy of the runs 1 and 2."""
    for name in ("1", "2"):
        shutil.copytree(FOLDER / name, tmp_path / "copy" / name)
    return tmp_path / "copy"


def test_ids_are_the_folders_in_the_order_of_their_numbers(runs: dict[str, TrackedRun]) -> None:
    assert [run.id for run in runs.values()] == [str(number) for number in range(1, 11)]
    assert {run.project for run in runs.values()} == {"norms"}
    assert recognised("sacred", FOLDER)
    assert recognised("sacred", FOLDER / "3")
    (third,), _ = read("sacred", FOLDER / "3")
    assert (third.id, third.last, third.place) == ("3", runs["failed"].last, runs["failed"].place)


def test_only_a_run_that_sacred_completed_is_finished_and_a_killed_one_is_running(runs: dict[str, TrackedRun]) -> None:
    assert {end: (run.state, run.state_text) for end, run in runs.items()} == {
        "completed": ("finished", "COMPLETED"),
        "seeded": ("finished", "COMPLETED"),
        "failed": ("crashed", "FAILED"),
        "interrupted": ("crashed", "INTERRUPTED"),
        "timed-out": ("crashed", "TIMEOUT"),
        "killed": ("running", "RUNNING"),
        "terminated": ("running", "RUNNING"),
        "table": ("finished", "COMPLETED"),
        "array": ("finished", "COMPLETED"),
        "late": ("running", "RUNNING"),
    }


def test_a_run_that_was_killed_before_the_first_heartbeat_has_no_metrics(runs: dict[str, TrackedRun]) -> None:
    for end in ("killed", "terminated"):
        assert (runs[end].last, runs[end].curves, runs[end].last_step) == ({}, {}, None)
    assert list(runs["late"].last) == ["test_acc", "train.loss"]


def test_both_points_of_a_step_and_bare_words_for_nan_are_kept(runs: dict[str, TrackedRun]) -> None:
    run = runs["completed"]
    assert points(run, "train.loss") == [(0, "1.0"), (1, "0.5"), (2, str(1 / 3)), (2, "nan"), (1, "0.125")]
    assert points(run, "test_acc") == [(0, "0.5"), (1, "inf")]
    assert run.last == {"test_acc": math.inf, "train.loss": 0.125, "result": 0.75}
    assert run.last_step == 2


def test_curves_are_those_that_were_asked_for_and_last_values_are_all(runs: dict[str, TrackedRun]) -> None:
    for curves, names in (((), []), (["test_acc"], ["test_acc"]), (["result"], [])):
        run = read("sacred", FOLDER, curves)[0][0]
        assert (list(run.curves), run.last) == (names, runs["completed"].last)


def test_a_result_is_a_metric_and_so_are_the_numbers_of_a_table(runs: dict[str, TrackedRun]) -> None:
    results = {end: {name: run.last[name] for name in run.last if "result" in name} for end, run in runs.items()}
    assert results["completed"] == {"result": 0.75}
    assert results["array"] == {"result": 0.25}
    assert results["table"] == {"result.test.acc": 0.25}
    assert results["failed"] == {}


def test_settings_are_plain_data_of_what_jsonpickle_wrote(runs: dict[str, TrackedRun]) -> None:
    settings = dict(runs["seeded"].settings)
    assert math.isnan(settings.pop("decay"))  # type: ignore[arg-type]
    assert settings == {
        "data": '{"py/reduce": [{"py/type": "pathlib.PosixPath"}, {"py/tuple": ["/", "data", "digits"]}]}',
        "norm": "layer",
        "optim.betas": [0.9, 0.999],
        "optim.lr": 0.001,
        "seed": 3,
        "tags": ["a"],
        "widths": [0, 1, 2],
    }


def test_a_seed_that_sacred_has_drawn_is_noted(runs: dict[str, TrackedRun]) -> None:
    drawn = [run.settings["seed"] for end, run in runs.items() if end != "seeded"]
    assert len(set(drawn)) == 9
    assert read("sacred", FOLDER)[1] == [SEEDS]
    assert read("sacred", FOLDER / "2")[1] == []


def test_times_are_in_utc(monkeypatch: pytest.MonkeyPatch) -> None:
    record = json.loads((FOLDER / "1" / "run.json").read_text())
    with monkeypatch.context() as elsewhere:
        elsewhere.setenv("TZ", "EST+5")
        time.tzset()
        run = read("sacred", FOLDER)[0][0]
    time.tzset()
    for seconds, text in ((run.started_at, record["start_time"]), (run.ended_at, record["stop_time"])):
        assert seconds == pytest.approx(calendar.timegm(time.strptime(text, "%Y-%m-%dT%H:%M:%S.%f")), abs=1)
    assert read("sacred", FOLDER)[0][5].ended_at is None


def test_commit_and_resources_are_those_of_the_record(copy: Path) -> None:
    record = (copy / "1" / "run.json").read_text()
    repositories = '"repositories": [{"commit": "0f3c", "dirty": false, "url": "x"}]'
    record = record.replace('"repositories": []', repositories)
    (copy / "1" / "run.json").write_text(
        record.replace('"resources": []', '"resources": [["/data/digits.npz", "_resources/digits_1f.npz"]]')
    )
    first, second = read("sacred", copy)[0]
    assert (first.code, first.data) == ("0f3c", "digits_1f.npz")
    assert (second.code, second.data) == ("", "")


def test_another_project_has_none_of_these_runs() -> None:
    with pytest.raises(UsageError, match="has no project 'others'"):
        read("sacred", FOLDER, project="others")
    assert len(read("sacred", FOLDER, project="norms")[0]) == 10


@pytest.mark.parametrize(
    ("content", "problem"),
    [
        (b'{"norm": "lay', "not valid JSON: Unterminated string starting at at line 1, column 10"),
        (b"", "not valid JSON: Expecting value at line 1, column 1"),
        (b'{"norm": "\xff"}', "not UTF-8 text (invalid start byte at byte 10)"),
        (b"[1]", "expected a table, found list"),
        (b"[" * 100_000, "not JSON that can be read: nested too deeply, or a number is too long"),
    ],
)
@pytest.mark.parametrize("file", ["config.json", "metrics.json", "run.json"])
def test_a_run_with_a_damaged_file_is_read_without_it(file: str, content: bytes, problem: str, copy: Path) -> None:
    (copy / "1" / file).write_bytes(content)
    (first, second), notes = read("sacred", copy)
    assert f"{copy / '1' / file}: {problem}: run 1 is read without it" in notes
    assert (first.id, second.id) == ("1", "2")
    assert (second.state, second.last["result"]) == ("finished", 0.75)
    assert (first.settings == {}) == (file == "config.json")
    assert (first.curves == {}) == (file == "metrics.json")
    assert (first.state, first.state_text) == (
        ("running", "run.json is damaged") if file == "run.json" else ("finished", "COMPLETED")
    )


def test_numbers_that_do_not_fit_are_left_out(copy: Path) -> None:
    values = f'"steps": [0, 1.5, {2**70}, 3, 4], "values": [1, 2, 3, 1{"0" * 400}, 5]'
    (copy / "1" / "metrics.json").write_text(f'{{"loss": {{{values}}}, "none": {{"steps": 1}}, "other": 3}}')
    run = read("sacred", copy)[0][0]
    assert points(run, "loss") == [(0, "1.0"), (3, "inf"), (4, "5.0")]
    assert run.last == {"loss": 5.0, "result": 0.75}


def test_a_folder_without_runs_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"no folder of a run with a run\.json") as refused:
        read("sacred", tmp_path)
    assert refused.value.hint == "name the folder that was given to FileStorageObserver, as in sacred_runs"
    (tmp_path / "abc").mkdir()
    (tmp_path / "abc" / "run.json").write_text("{}")  # as in a runs folder of lrurun
    assert not recognised("sacred", tmp_path)
    assert not recognised("sacred", tmp_path / "none")
