"""Runs of Trackio 0.43.0, as it has written them (`make/trackio.py`), and of 0.5.0 (`make/trackio_old.py`)."""

from __future__ import annotations

import math
import shutil
import sqlite3
from collections.abc import Iterator
from pathlib import Path

import pytest

from lrurun.errors import UsageError
from lrurun.trackers import TrackedRun
from tests.trackers.reader_output import FILES, points, read, recognised

FILE = FILES / "trackio" / "norms.db"
OLD = FILES / "trackio_old" / "norms.db"
LOST = "a run that was resumed without a configuration has lost that of its beginning"


@pytest.fixture
def runs() -> list[TrackedRun]:
    return read("trackio", FILE)[0]


@pytest.fixture
def copy(tmp_path: Path) -> Path:
    return Path(shutil.copy(FILE, tmp_path))


@pytest.fixture
def database(copy: Path) -> Iterator[sqlite3.Connection]:
    """A connection to the copy, whose statements are committed at once."""
    connection = sqlite3.connect(copy, isolation_level=None)
    yield connection
    connection.close()


def test_runs_of_one_name_are_runs_with_ids_of_their_own(runs: list[TrackedRun]) -> None:
    assert [run.name for run in runs] == ["whole", "whole", "resumed", "resumed-bare"]
    assert len({run.id for run in runs}) == 4
    assert [run.settings.get("seed") for run in runs] == [0, 1, 3, None]
    assert {run.project for run in runs} == {"norms"}


def test_neither_an_unlogged_run_nor_one_that_was_killed_at_once_is_in_the_file(runs: list[TrackedRun]) -> None:
    assert not {"unlogged", "killed"} & {run.name for run in runs}


def test_there_are_no_states(runs: list[TrackedRun]) -> None:
    assert {(run.state, run.state_text) for run in runs} == {("finished", "")}


def test_points_are_in_the_order_in_which_they_were_logged_with_duplicates(runs: list[TrackedRun]) -> None:
    steps = [(0, "0.5"), (1, "0.6"), (2, "0.7"), (10, "0.75"), (10, "0.875"), (4, "0.25")]
    # the next automatic step is the maximum plus one
    assert points(runs[0], "test/acc") == [*steps, (11, "0.125")]
    assert points(runs[0], "loss") == [(0, "1.0"), (1, "nan"), (2, "inf")]
    assert points(runs[0], "low") == [(11, "-inf")]
    assert runs[0].last_step == 11


def test_last_values_are_numbers_alone(runs: list[TrackedRun]) -> None:
    assert runs[0].last == {
        "test/acc": 0.125,
        "loss": math.inf,
        "low": -math.inf,
        "table.x": 1.0,
        "__step": 7.0,
    }


def test_a_resumed_run_goes_on_after_its_last_step(runs: list[TrackedRun]) -> None:
    assert [step for step, _ in points(runs[2], "loss")] == [0, 1, 2, 3, 4, 5]


def test_settings_are_those_of_the_configuration_without_what_trackio_adds(runs: list[TrackedRun]) -> None:
    assert runs[0].settings == {
        "norm": "layer",
        "seed": 0,
        "optim.lr": 0.001,
        "optim.decay": "NaN",
        "widths": [1, 2],
        "nothing": None,
    }


def test_a_run_that_was_resumed_without_a_configuration_has_lost_it(runs: list[TrackedRun]) -> None:
    assert runs[3].settings == {}
    assert read("trackio", FILE)[1] == [f"{FILE}: 1 run without settings: {LOST}"]


def test_times_are_those_of_the_first_and_the_last_point(runs: list[TrackedRun]) -> None:
    resumed = runs[2]
    assert resumed.started_at is not None
    assert resumed.ended_at is not None
    assert 0.5 < resumed.ended_at - resumed.started_at < 2
    assert resumed.started_at > 1.79e9


def test_curves_are_those_that_were_asked_for(runs: list[TrackedRun]) -> None:
    for curves, names in (((), []), (["loss", "none"], ["loss"])):
        run = read("trackio", FILE, curves)[0][0]
        assert (list(run.curves), run.last, run.last_step) == (names, runs[0].last, 11)


def test_a_folder_has_several_projects(copy: Path) -> None:
    shutil.copy(copy, copy.with_name("others.db"))
    (copy.parent / "text.db").write_text("no database")
    assert [run.project for run in read("trackio", copy.parent)[0]] == ["norms"] * 4 + ["others"] * 4
    assert [run.project for run in read("trackio", copy.parent, project="others")[0]] == ["others"] * 4
    assert recognised("trackio", copy.parent)


def test_databases_of_others_are_not_recognised(tmp_path: Path) -> None:
    assert recognised("trackio", FILE)
    assert not recognised("trackio", tmp_path)
    assert not recognised("trackio", tmp_path / "none.db")
    with sqlite3.connect(tmp_path / "other.db") as other:
        other.execute("CREATE TABLE metrics (key, value, step, run_uuid)")  # as in MLflow
    other.close()
    assert not recognised("trackio", tmp_path / "other.db")
    (tmp_path / "text.db").write_text("x" * 100)
    assert not recognised("trackio", tmp_path / "text.db")


def test_rows_of_a_write_ahead_log_are_read_and_it_stays(copy: Path, database: sqlite3.Connection) -> None:
    database.execute("UPDATE metrics SET step = 99 WHERE id = 7")
    log = copy.with_name("norms.db-wal")
    before = (copy.read_bytes(), log.read_bytes())
    assert read("trackio", copy)[0][0].last_step == 99
    assert (copy.read_bytes(), log.read_bytes()) == before


def test_reading_leaves_no_files(copy: Path) -> None:
    read("trackio", copy)
    assert [path.name for path in copy.parent.iterdir()] == ["norms.db"]
    assert copy.read_bytes() == FILE.read_bytes()


def test_a_newer_schema_is_noted_and_missing_columns_are_refused(copy: Path, database: sqlite3.Connection) -> None:
    database.execute("PRAGMA user_version = 3")
    runs, notes = read("trackio", copy)
    assert len(runs) == 4
    assert notes[0] == f"{copy}: its schema 3 is newer than 2, which this reader knows: compare a few values"
    database.execute("ALTER TABLE configs RENAME COLUMN config TO settings")
    with pytest.raises(UsageError, match="Trackio: the table configs has no column config"):
        read("trackio", copy)
    database.execute("DROP TABLE metrics")
    with pytest.raises(UsageError, match="no database of a project of Trackio: there is no table metrics"):
        read("trackio", copy)


def test_without_ids_runs_are_told_apart_by_name() -> None:
    (one, other), notes = read("trackio", OLD)
    assert [(run.id, run.name, run.settings) for run in (one, other)] == [
        ("one", "one", {"norm": "none"}),
        ("other", "other", {"norm": "layer"}),
    ]
    assert points(one, "loss") == [(0, "0.5"), (1, "nan")]
    assert (one.started_at, one.ended_at, notes) == (None, None, [])
    assert recognised("trackio", OLD)


@pytest.mark.parametrize("stored", ["'{\"loss\": 1'", "x'ff00'", "'[1]'", "7", "''"])
def test_a_damaged_row_is_left_out_with_a_note(stored: str, copy: Path, database: sqlite3.Connection) -> None:
    database.execute(f"UPDATE metrics SET metrics = {stored} WHERE id = 2")
    database.execute(f"UPDATE configs SET config = {stored} WHERE id = 1")
    runs, notes = read("trackio", copy)
    assert points(runs[0], "loss") == [(0, "1.0"), (2, "inf")]
    assert notes[:2] == [
        f"{copy}, run {runs[0].id}, configuration: not the JSON of a table: left out",
        f"{copy}, run {runs[0].id}, row 2 of metrics: not the JSON of a table: left out",
    ]


def test_a_step_that_is_no_whole_number_is_left_out(copy: Path, database: sqlite3.Connection) -> None:
    database.execute("UPDATE metrics SET step = 'one' WHERE id = 2")
    runs, notes = read("trackio", copy)
    assert points(runs[0], "loss") == [(0, "1.0"), (2, "inf")]
    assert notes[0].endswith("row 2 of metrics: its step is no whole number: left out")


def test_a_folder_or_file_without_projects_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="no file of a project of Trackio"):
        read("trackio", tmp_path)
