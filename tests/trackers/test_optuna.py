"""Optuna: storages as the package wrote them, and as its installed version writes them; it is the reference."""

from __future__ import annotations

import contextlib
import json
import math
import shutil
import sqlite3

import pytest

from lrurun import trackers
from lrurun.errors import LrurunError, UsageError
from lrurun.trackers import Source, sqlite
from lrurun.trackers import optuna as optuna_reader
from lrurun.trackers.optuna import OptunaReader
from tests.harness.machine import Machine
from tests.trackers.make.environment import FILES

FOLDER = FILES / "optuna"
DATABASE, JOURNAL = "studies.db", "journal.log"
ENDS = {"COMPLETE": "finished", "FAIL": "crashed", "PRUNED": "running", "RUNNING": "running"}


def read(name, curves=None, **options):
    reader = OptunaReader(Source(name=str(name), **options))
    return list(reader.runs(curves)), list(reader.notes())


def of_study(name, study="norms"):
    return [run for run in read(name)[0] if run.project == study]


@contextlib.contextmanager
def storage(path):
    """The storage of a copy, opened by the package: it may write to it."""
    import optuna
    from optuna.storages import JournalStorage
    from optuna.storages.journal import JournalFileBackend

    copy = shutil.copy(path, path.with_suffix(f".copy{path.suffix}")) if path.exists() else path
    if path.suffix == ".log":
        yield JournalStorage(JournalFileBackend(str(copy)))
        return
    database = optuna.storages.RDBStorage(f"sqlite:///{copy}")
    try:
        yield database
    finally:
        database.remove_session()
        database.engine.dispose()


@pytest.fixture(params=[DATABASE, JOURNAL])
def path(request, tmp_path):
    """A copy of a storage."""
    return shutil.copy(FOLDER / request.param, tmp_path / request.param)


def assert_as_optuna_reads_it(path):
    """Asserts that the reader gives what the package gives."""
    import optuna

    expected = {}
    with storage(path) as opened:
        for name in optuna.get_all_study_names(opened):
            study = optuna.load_study(study_name=name, storage=opened)
            objectives = len(study.directions)
            metrics = ["value"] if objectives == 1 else [f"values/{index}" for index in range(objectives)]
            for trial in study.trials:
                if trial.state.name != "WAITING":
                    expected[name, str(trial.number)] = (trial, study.metric_names or metrics, study.user_attrs)
    runs = {(run.project, run.id): run for run in read(path)[0]}
    assert list(runs) == list(expected)
    for key, (trial, names, attributes) in expected.items():
        run = runs[key]
        settings = {name: value for name, value in run.settings.items() if "user_attrs." not in name}
        assert settings == trial.params
        assert {name: type(value) for name, value in settings.items()} == {
            name: type(value) for name, value in trial.params.items()
        }
        for name, value in attributes.items():
            assert run.settings[f"study_user_attrs.{name}"] == value
        assert (run.state, run.state_text) == (ENDS[trial.state.name], trial.state.name)
        reports = trial.intermediate_values
        if reports:
            curve = run.curves["intermediate_value"]
            points = sorted(zip(curve.steps.tolist(), curve.values.tolist(), strict=True))
            assert repr(points) == repr(sorted(reports.items()))  # of a database the package gives them by their steps
            assert run.last_step == max(reports)
        else:
            assert run.curves == {}
        values = trial.values if trial.state.name == "COMPLETE" else None
        assert [run.last.get(name) for name in names] == (values or [None] * len(names))
        assert run.started_at == pytest.approx(trial.datetime_start.timestamp(), abs=1e-6)
        if trial.state.name != "RUNNING":
            assert run.ended_at == pytest.approx(trial.datetime_complete.timestamp(), abs=1e-6)


def test_the_files_are_read_as_optuna_reads_them(path):
    assert_as_optuna_reads_it(path)


@pytest.mark.parametrize("name", [DATABASE, JOURNAL])
def test_the_installed_version_is_read_as_it_reads_itself(tmp_path, name):
    import optuna

    def objective(trial):
        kind = trial.suggest_categorical("kind", ["a", 2, 0.5, False, None, "b"])
        depth = trial.suggest_int("depth", 1, 9)
        if depth > 3:
            trial.suggest_float("rate", 0, 1, step=0.125)
        for step in range(4):
            trial.report(depth - step / 10, 2 * step)
            if trial.number == 3:
                raise optuna.TrialPruned
        trial.set_user_attr("seed", trial.number)
        trial.set_user_attr("seed", trial.number + 1)
        if trial.number == 5:
            raise ValueError(kind)
        return -math.inf if trial.number == 6 else depth / 7

    optuna.logging.set_verbosity(optuna.logging.ERROR)
    with storage(tmp_path / name) as opened:
        sampler = optuna.samplers.RandomSampler(3)
        study = optuna.create_study(storage=opened, study_name="s", sampler=sampler, direction="maximize")
        study.optimize(objective, n_trials=8, catch=ValueError)
        distributions = study.trials[0].distributions
        trial = optuna.trial.create_trial(
            value=3.0,
            params={"kind": 2, "depth": 4},
            distributions={name: distributions[name] for name in ("kind", "depth")},
            user_attrs={"seed": 1},
            intermediate_values={1: 0.5, 3: 0.25},
        )
        study.add_trial(trial)
        optuna.create_study(storage=opened, study_name="deleted")
        optuna.delete_study(study_name="deleted", storage=opened)
        optuna.create_study(storage=opened, study_name="t").optimize(lambda trial: 1.0, n_trials=1)
    assert_as_optuna_reads_it(tmp_path / name)
    runs = of_study(tmp_path / name, "s")
    assert [run.settings["user_attrs.seed"] for run in runs if run.state_text != "PRUNED"] == [1, 2, 3, 5, 6, 7, 8, 1]
    assert [run.id for run in runs if run.state != "finished"] == ["3", "5"]


def test_states_and_values(path):
    runs = of_study(path)
    assert [(run.id, run.state, run.state_text) for run in runs] == [
        ("0", "finished", "COMPLETE"),
        ("1", "crashed", "FAIL"),
        ("2", "crashed", "FAIL"),  # the objective was NaN
        ("3", "finished", "COMPLETE"),
        ("4", "running", "PRUNED"),
        ("5", "finished", "COMPLETE"),
        ("6", "finished", "COMPLETE"),
        ("7", "running", "RUNNING"),  # killed
    ]
    assert [run.last.get("value") for run in runs] == [0, None, None, math.inf, None, 5.5, 6, None]


def test_a_pruned_trial_has_reports_and_no_score(path):
    run = of_study(path)[4]
    assert run.curves["intermediate_value"].values.tolist() == [4.0, 4.1]
    assert run.last == {"intermediate_value": 4.1}
    if path.suffix == ".db":  # where it has a value
        with contextlib.closing(sqlite3.connect(path)) as connection:
            assert connection.execute("SELECT value FROM trial_values WHERE trial_id = 7").fetchall() == [(4.1,)]


def test_reports(path):
    run = of_study(path)[5]
    curve = run.curves["intermediate_value"]
    assert curve.steps.tolist() == [0, 10, 20, 5, 6]  # the first of each step, in their order
    assert curve.values[:3].tolist() == [5.0, 5.1, 5.2]
    assert math.isnan(curve.values[3])
    assert curve.values[4] == -math.inf
    assert (run.last_step, run.last["intermediate_value"]) == (20, -math.inf)
    light = read(path, ())[0]
    assert all(not run.curves for run in light)
    assert [(run.last, run.last_step) for run in light] == [(run.last, run.last_step) for run in read(path)[0]]


def test_settings(path):
    runs = of_study(path)
    assert [run.settings["norm"] for run in runs] == ["none", "layer", None, 3, "none", "layer", None, 3]
    assert runs[5].settings == {
        "norm": "layer",
        "lr": 0.006,
        "model.depth": 4,
        "user_attrs.seed": 5,
        "user_attrs.test.acc": 0.5,
        "user_attrs.test.items": [1, 0],
        "study_user_attrs.data": "digits",
    }
    assert type(runs[5].settings["model.depth"]) is int


def test_a_study_says_which_values_are_better(path, tmp_path):
    assert of_study(path)[0].directions == {"value": "min", "intermediate_value": "min"}
    [two] = of_study(path, "two objectives")
    assert two.directions == {"accuracy": "max", "size": "min"}
    machine = Machine(tmp_path / "machine")
    command = ("import", str(path), "--project", "norms", "--metric", "value", "--by", "norm", "--dry-run")
    done = machine.run(*command)
    assert 'better.\ndirection = "min"' in done.stdout
    assert "score: value, at the last step; lower is better" in done.stderr
    assert 'direction = "max"' in machine.run(*command, "--direction", "max").stdout


def test_studies_with_other_directions_are_asked_about(tmp_path):
    import optuna

    with storage(tmp_path / DATABASE) as opened:
        for name, direction in (("a", "minimize"), ("b", "maximize")):
            study = optuna.create_study(storage=opened, study_name=name, direction=direction)
            for norm in ("x", "y", "x", "y"):
                study.enqueue_trial({"norm": norm})
            study.optimize(lambda trial: float(trial.suggest_categorical("norm", ["x", "y"]) == "x"), n_trials=4)
    machine = Machine(tmp_path)
    command = ("import", DATABASE, "--metric", "value", "--by", "norm")
    done = machine.run(*command, code=2)
    assert "value: which values are better depends on the study: lower in a, higher in b" in done.stderr
    assert "higher is better" in machine.run(*command, "--project", "b").stderr


@pytest.mark.parametrize("direction", ["minimize", "maximize"])
def test_an_infinite_objective_is_never_the_best(direction, tmp_path):
    """Minimising, Optuna shows -inf as the best value, and maximising inf."""
    import optuna

    odd = -math.inf if direction == "minimize" else math.inf
    with storage(tmp_path / DATABASE) as opened:
        study = optuna.create_study(storage=opened, study_name="s", direction=direction)
        for norm in ("x", "y"):
            for seed in range(4):
                study.enqueue_trial({"norm": norm}, user_attrs={"seed": seed})

        def objective(trial):
            norm = trial.suggest_categorical("norm", ["x", "y"])
            return odd if norm == "y" and trial.user_attrs["seed"] == 3 else 1.0 + trial.user_attrs["seed"]

        study.optimize(objective, n_trials=8)
        assert study.best_value == odd
    machine = Machine(tmp_path)
    machine.run("import", DATABASE, "--metric", "value", "--by", "norm")
    x, y = machine.json("report", "--instance", "studies")["rows"]
    assert (x["n"], x["infinite"], y["n"], y["infinite"], y["verdict"]) == (4, 0, 3, 1, "not judged")
    assert sorted(y["scores"]) == [1.0, 2.0, 3.0]


def test_studies_are_projects(path):
    [run] = of_study(path, "two objectives")
    assert run.last == {"accuracy": run.settings["x"], "size": 2.0}
    assert [run.project for run in read(path, project="two objectives")[0]] == ["two objectives"]
    with pytest.raises(UsageError) as caught:
        read(path, project="norm")
    assert caught.value.hint == "did you mean 'norms'? projects: norms, two objectives"


def test_trials_that_have_not_begun(path):
    assert read(path)[1] == [f"{path}: 1 of 10 trials have not begun (WAITING) and are left out"]


def test_source_is_recognised(path, tmp_path):
    assert OptunaReader.recognises(Source(name=str(path)))
    other = tmp_path / "other.db"
    with contextlib.closing(sqlite3.connect(other)) as connection:
        connection.execute("CREATE TABLE studies (study_id)")
    for content in (b"", b"{", b'{"op_code": 0}', b"\xff", b"SQLite format 3\0 and no database"):
        (tmp_path / "file").write_bytes(content)
        assert not OptunaReader.recognises(Source(name=str(tmp_path / "file")))
    for name in (other, tmp_path, tmp_path / "missing", "postgresql://host/studies"):
        assert not OptunaReader.recognises(Source(name=str(name)))
        with pytest.raises(UsageError):
            read(name)


def test_url_and_version(tmp_path):
    path = shutil.copy(FOLDER / DATABASE, tmp_path / "50%?# ä.db")
    assert len(read(path)[0]) == 9
    path = path.rename(tmp_path / "studies.db")
    url = f"sqlite:///{path}"
    assert OptunaReader.recognises(Source(name=url))
    assert [run.id for run in read(url)[0]] == [run.id for run in read(path)[0]]
    assert len(read(f"{url}?timeout=5")[0]) == 9
    assert OptunaReader(Source(name=url)).version() == "Optuna v3.2.0.a"
    assert OptunaReader(Source(name=str(FOLDER / JOURNAL))).version() == ""


def change(path, *statements):
    with contextlib.closing(sqlite3.connect(path)) as connection, connection:
        for statement in statements:
            connection.execute(statement)


@pytest.fixture
def database(tmp_path):
    return shutil.copy(FOLDER / DATABASE, tmp_path / DATABASE)


def test_databases_of_other_versions_are_refused(database):
    change(database, "UPDATE alembic_version SET version_num = 'v9.0.0.a'")
    with pytest.raises(UsageError) as caught:
        read(database)
    assert "its tables have version v9.0.0.a" in caught.value.message
    assert "trials_dataframe().to_csv" in caught.value.hint
    change(database, "ALTER TABLE trial_intermediate_values DROP COLUMN intermediate_value_type")
    with pytest.raises(UsageError) as caught:
        read(database)
    assert "optuna storage upgrade" in caught.value.hint
    change(database, "DROP TABLE alembic_version")
    with pytest.raises(UsageError, match="have version none"):
        read(database)


def test_times_of_older_versions_have_no_zone(database):
    assert read(database)[0][0].started_at
    change(database, "UPDATE version_info SET library_version = '4.5.0'")
    run = read(database)[0][0]
    assert (run.started_at, run.ended_at) == (None, None)


def test_nothing_is_written(path, tmp_path):
    before = path.read_bytes()
    path.chmod(0o400)
    tmp_path.chmod(0o500)
    try:
        read(path)
    finally:
        tmp_path.chmod(0o700)
    assert path.read_bytes() == before
    assert [file.name for file in tmp_path.iterdir()] == [path.name]


def test_a_locked_database(database, monkeypatch):
    monkeypatch.setattr(sqlite, "TIMEOUT", 0.01)
    with contextlib.closing(sqlite3.connect(database, isolation_level=None)) as writer:
        writer.execute("BEGIN EXCLUSIVE")
        with pytest.raises(LrurunError) as caught:
            read(database)
    assert "another process holds this database" in caught.value.message
    assert caught.value.exit_code == 1


def test_a_writer_need_not_wait_for_a_reader(database):
    with contextlib.closing(sqlite3.connect(database, timeout=0)) as writer:
        for run in OptunaReader(Source(name=str(database))).runs(None):
            writer.execute("INSERT INTO studies (study_name) VALUES (?)", (f"new {run.project} {run.id}",))
            writer.commit()
        assert writer.execute("SELECT count(*) FROM studies").fetchone() == (11,)


@pytest.mark.parametrize(
    "statement",
    [
        "UPDATE trials SET state = 'LOST' WHERE number = 3",
        "UPDATE trial_params SET distribution_json = '{'",
        "UPDATE trial_params SET distribution_json = '{}'",
        "UPDATE trial_params SET param_value = 99 WHERE param_name = 'norm'",
        "UPDATE trial_user_attributes SET value_json = 'x'",
        "UPDATE trial_values SET value = NULL WHERE value_type = 'FINITE'",
        "DROP TABLE trial_params",
    ],
)
def test_damaged_databases(database, statement):
    change(database, statement)
    with pytest.raises(LrurunError) as caught:
        read(database)
    assert str(database) in caught.value.message
    assert "\n" not in caught.value.message


def test_a_damaged_file(database):
    content = bytearray(database.read_bytes())
    content[600:20_000] = b"\xff" * 19_400
    database.write_bytes(content)
    with pytest.raises(LrurunError, match="not a whole database of SQLite"):
        read(database)


@pytest.fixture
def journal(tmp_path):
    return shutil.copy(FOLDER / JOURNAL, tmp_path / JOURNAL)


def test_half_written_last_line(journal):
    whole = read(journal)
    with journal.open("a") as file:
        file.write('{"op_code": 7, "worker_id": "w", "trial_id": 9, "st')
    runs, notes = read(journal)
    assert [run.last for run in runs][:3] == [run.last for run in whole[0]][:3]
    assert f"{journal}: the last line is half written and left out" in notes


def test_operations_after_the_end_of_a_trial_count_for_nothing(journal):
    rows = [
        {"op_code": 7, "trial_id": 2, "step": 99, "intermediate_value": 1.0},
        {"op_code": 6, "trial_id": 2, "state": 3, "values": None, "datetime_complete": "2026-11-28T00:00:00+00:00"},
        {"op_code": 8, "trial_id": 2, "user_attr": {"seed": 99}},
        {"op_code": 0, "study_name": "norms", "directions": [2]},
        {"op_code": 7, "trial_id": 1234, "step": 1, "intermediate_value": 1.0},
        {"op_code": 2, "study_id": 1234, "user_attr": {"a": 1}},
        {"op_code": 6, "trial_id": 9, "state": 0, "values": None, "datetime_start": "2026-11-28T00:00:00+00:00"},
        {"op_code": 9, "trial_id": 9, "system_attr": {"a": 1}},
        {"op_code": 10},
        {"op_code": 0, "study_name": "later", "directions": [1]},
        {"op_code": 4, "study_id": 2, "datetime_start": "2026-11-28T00:00:00+00:00"},
    ]
    before = [(run.settings, run.last, run.state_text, run.started_at) for run in read(journal)[0]]
    with journal.open("a") as file:
        for row in rows:
            file.write(json.dumps(row | {"worker_id": "other"}) + "\n")
    *runs, later = read(journal)[0]
    assert [(run.settings, run.last, run.state_text, run.started_at) for run in runs] == before
    assert (later.project, later.id, later.state_text) == ("later", "0", "RUNNING")
    assert_as_optuna_reads_it(journal)


@pytest.mark.parametrize(
    ("row", "message"),
    [
        ({"op_code": 11}, "operation 11 is of a newer version"),
        ({"op_code": "x"}, "operation 'x' is of a newer version"),
        ({"a": 1}, "is none of a journal of Optuna"),
        ({"op_code": 6, "trial_id": 9, "state": 99, "values": None}, "is none of a journal of Optuna"),
        ({"op_code": 5, "trial_id": 9, "param_name": "a", "param_value_internal": 0, "distribution": "{}"}, "is none"),
    ],
)
def test_damaged_journals(journal, row, message):
    with journal.open("a") as file:
        file.write(json.dumps(row) + "\n")
    with pytest.raises(UsageError) as caught:
        read(journal)
    assert message in caught.value.message
    assert str(journal) in caught.value.message


def test_a_journal_without_studies(tmp_path):
    path = tmp_path / "empty.log"
    path.touch()
    with pytest.raises(UsageError, match="has no run of Optuna"):
        read(path)


@pytest.mark.parametrize(
    ("value", "distribution", "expected"),
    [
        (2.0, {"name": "IntUniformDistribution", "attributes": {"low": 0, "high": 3}}, 2),
        (2.0, {"name": "DiscreteUniformDistribution", "attributes": {"low": 0, "high": 3, "q": 1}}, 2.0),
        (1.0, {"type": "categorical", "choices": ["a", "b"]}, "b"),
        (3.0, {"type": "int", "low": 1, "high": 4}, 3),
        (3.0, {"type": "float", "low": 1, "high": 4}, 3.0),
    ],
)
def test_parameters_of_older_versions(value, distribution, expected):
    found = optuna_reader._parameter(value, json.dumps(distribution))
    assert (found, type(found)) == (expected, type(expected))


@pytest.mark.parametrize("form", ["csv", "jsonl", "frame", "levels"])
@pytest.mark.parametrize("name", ["norms", "two objectives"])
def test_the_table_of_a_study_gives_the_same_trials(tmp_path, name, form):
    """`study.trials_dataframe()` as a CSV file, as JSON lines, and as a frame with one and several levels of names."""
    import optuna

    with storage(shutil.copy(FOLDER / DATABASE, tmp_path / DATABASE)) as opened:
        frame = optuna.load_study(storage=opened, study_name=name).trials_dataframe(multi_index=form == "levels")
    source = Source(name="trials", frame=frame)
    if form == "csv":
        source = Source(name=str(tmp_path / "trials.csv"))
        frame.to_csv(source.name)
    elif form == "jsonl":
        source = Source(name=str(tmp_path / "trials.jsonl"))
        frame.to_json(source.name, orient="records", lines=True, date_format="iso")
    reader = trackers.opened(source)
    runs = {run.id: run for run in reader.runs(None)}
    stored = {run.id: run for run in of_study(FOLDER / DATABASE, name)}
    assert runs.keys() == stored.keys()
    for number, run in runs.items():
        of_storage = stored[number]
        assert (run.state, run.state_text) == (of_storage.state, of_storage.state_text)
        reports = {"intermediate_value"}  # which the table lacks
        last = {metric: value for metric, value in of_storage.last.items() if metric not in reports}
        if form == "jsonl":  # to_json of pandas writes null for infinities
            last = {metric: value for metric, value in last.items() if math.isfinite(value)}
        assert run.last == pytest.approx(last, abs=1e-9)
        assert (run.started_at, run.ended_at) == pytest.approx((of_storage.started_at, of_storage.ended_at), abs=1e-3)
        known = ("lr", "model.depth", "user_attrs.seed", "x")
        assert {key: run.settings[key] for key in known if run.settings.get(key) is not None} == pytest.approx(
            {key: of_storage.settings[key] for key in known if key in of_storage.settings}
        )
        assert {"duration", "number", "start_time", "end_time"}.isdisjoint(run.settings)
        assert (reader.notes()[-1:] == [f"{source.name}: 1 of 2 trials have not begun (WAITING) and are left out"]) == (
            name == "two objectives"
        )
        assert not any("system_attrs" in key for key in run.settings)


def test_trials_of_two_studies_in_one_table(tmp_path):
    path = tmp_path / "trials.csv"
    path.write_text("number,value,params_x,state\n0,1,0.5,COMPLETE\n1,2,0.5,COMPLETE\n0,3,0.5,COMPLETE\n")
    with pytest.raises(UsageError) as caught:
        list(trackers.opened(Source(name=str(path))).runs())
    assert "line 2 and line 4 are both trial 0" in caught.value.message


@pytest.mark.parametrize(
    "header", ["number,value,x", "number,params_x,y", "value,params_x,n", "values,number,params_x"]
)
def test_tables_with_some_columns_of_a_study(tmp_path, header):
    path = tmp_path / "runs.csv"
    path.write_text(f"{header}\n7,0.5,1\n8,0.6,2\n")
    runs = list(trackers.opened(Source(name=str(path))).runs())
    assert [list(run.settings) for run in runs] == [header.split(",")] * 2
