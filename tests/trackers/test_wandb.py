"""Runs of Weights & Biases, in files that wandb 0.31.0 and 0.16.6 wrote: what each recorded is in `make/wandb.py`."""

from __future__ import annotations

import json
import math
import shutil
import subprocess
import sys
from collections.abc import Collection, Sequence
from pathlib import Path

import pytest

from lrurun import trackers
from lrurun.errors import LrurunError, UsageError
from lrurun.trackers import Source, TrackedRun
from lrurun.trackers.wandb import nested
from lrurun.trackers.wandb.records import MAGIC, RecordFile

FILES = Path(__file__).parent / "files" / "wandb"
SETTINGS = {
    **{"lr": 1e-5, "large": 1e20, "norm": "layer", "n.x": 1, "n.y": [1, 2], "n.z": 4, '"n.x"': 7, "none": None},
    **{"deep": True, "octal": "010", "on": "on", "clip": math.inf, "added": 3},
}
"""Of the run `whole`: nested keys and a literal key with the same name are two, and a later update is merged."""


def read(
    place: Path, curves: Collection[str] | None = None, **options: str
) -> tuple[dict[str, TrackedRun], Sequence[str]]:
    """Id -> run, and the notes."""
    reader = trackers.opened(Source(name=str(place), **options), "wandb")
    runs = list(reader.runs(curves))
    assert len({run.id for run in runs}) == len(runs)
    return {run.id: run for run in runs}, reader.notes()


def points(run: TrackedRun, metric: str) -> list[tuple[int, float]]:
    curve = run.curves[metric]
    return list(zip(curve.steps.tolist(), curve.values.tolist(), strict=True))


def copy(folder: str, to: Path) -> Path:
    """A copy of the one run in a folder, to be changed."""
    [run] = (FILES / folder).iterdir()
    shutil.copytree(run, to / run.name)
    return to / run.name


@pytest.mark.parametrize("folder", ["offline", "online"])
def test_whole_run(folder: str) -> None:
    runs, notes = read(FILES / folder)
    run = runs["whole"]
    assert run.settings == SETTINGS
    assert (run.project, run.name, run.state, run.state_text) == ("digits", "layer-0", "finished", "exit code 0")
    loss = points(run, "loss")
    assert loss[:3] == [(0, 1), (10, 1 / 2), (20, 1 / 3)]  # not the value that was dropped
    assert loss[3][0] == 30
    assert math.isnan(loss[3][1])
    assert points(run, "bound") == [(30, math.inf)]
    assert points(run, "val/acc") == [(10 * step, 0.3 - 0.1 * step) for step in range(3)]
    assert points(run, "deep.a") == [(0, 0), (10, 1), (20, 2)]
    assert points(run, '"deep.a"') == [(0, 0), (10, -1), (20, -2)]
    assert points(run, "extra") == [(30, 5)]  # a call without a step joins the row of the last step
    assert set(run.curves) == {"loss", "val/acc", "deep.a", '"deep.a"', "bound", "extra"}
    assert run.last_step == 30
    assert run.place.startswith(str(FILES / folder))
    assert run.started_at < run.ended_at < run.started_at + 60
    assert len(run.code) == (40 if folder == "online" else 0)
    assert 'keys with dots that nested ones are named like are written in quotes: "deep.a", "n.x"' in notes


def test_last_values() -> None:
    """The history counts; the summary adds what is in no history, and what `define_metric` keeps."""
    runs, notes = read(FILES / "offline")
    last = runs["whole"].last
    assert math.isnan(last["loss"])  # 0.1 in the summary
    assert last["val/acc"] == pytest.approx(0.1)
    assert last["val/acc.max"] == 0.3
    assert (last["best"], last["extra"], last["bound"], last["deep.a"], last['"deep.a"']) == (0.9, 5, math.inf, 2, -2)
    assert set(last) == {"loss", "val/acc", "val/acc.max", "best", "extra", "bound", "deep.a", '"deep.a"'}
    assert any(
        "the summary has another value than the end of the history, which counts: loss" in note for note in notes
    )


def test_curves_that_are_asked_for() -> None:
    for curves, expected in (((), set()), (["loss", "other"], {"loss"})):
        run = read(FILES / "offline", curves)[0]["whole"]
        assert set(run.curves) == expected
        assert len(run.last) == 8
        assert run.last_step == 30


def test_states() -> None:
    """The exit record decides. After `raise SystemExit(3)` W&B has recorded code 0."""
    runs, _ = read(FILES / "offline")
    states = {run.id: (run.state, run.state_text) for run in runs.values()}
    assert states == {
        "whole": ("finished", "exit code 0"),
        "crashed": ("crashed", "exit code 3"),
        "raised": ("finished", "exit code 0"),
    }


def test_killed_runs() -> None:
    """One was killed before its first records were written; of the other, the last row is lost, and so is its end."""
    runs, notes = read(FILES / "killed")
    assert list(runs) == ["soon", "later"]
    assert {(run.state, run.state_text) for run in runs.values()} == {("running", "no exit record")}
    assert (runs["soon"].last, runs["soon"].settings, runs["soon"].curves) == ({}, {}, {})
    assert points(runs["later"], "loss") == [(0, 4.0), (1, 3.0)]
    assert runs["later"].settings == {"norm": "none"}
    assert len(notes) == 1
    assert "offline-run-" in notes[0]
    assert "no records yet: the run has just begun, or was killed soon" in notes[0]


def test_long_record() -> None:
    """A record may go on over several blocks of the file."""
    runs, notes = read(FILES / "long")
    assert runs["long"].settings == {"text": "x" * 40_000}
    assert runs["long"].last == {"loss": 0.25}
    assert not notes


def test_resumed_run() -> None:
    """Two folders of one run are one, in the order of their times, which the state and settings of the last decide."""
    runs, notes = read(FILES / "resumed")
    run = runs["resumed"]
    assert points(run, "loss") == [(step, pytest.approx(1 - step / 10)) for step in range(4)]
    assert run.settings == {"part": 1}
    assert run.state == "finished"
    assert len(notes) == 1
    assert "was resumed, and has several folders, which are read as one run" in notes[0]


def test_old_version() -> None:
    runs, _ = read(FILES / "old")
    assert (runs["crashed"].settings, runs["crashed"].last) == ({"norm": "none"}, {"loss": 2.0})
    assert runs["crashed"].state_text == "exit code 3"


# Files without the record


def test_downloaded_files(tmp_path: Path) -> None:
    """config.yaml has `1e-05`, which PyYAML takes for a text. Nothing says how the run ended."""
    folder = copy("online", tmp_path)
    next(folder.glob("*.wandb")).unlink()
    runs, notes = read(tmp_path)
    run = runs["whole"]
    assert run.settings == SETTINGS
    assert run.last.pop("loss") == 0.1
    assert run.last == {"val/acc.max": 0.3, "best": 0.9, "extra": 5, "bound": math.inf, "deep.a": 2, '"deep.a"': -2}
    assert (run.curves, run.last_step, run.state, run.state_text) == ({}, 30, "finished", "")
    assert len(run.code) == 40
    assert run.started_at < run.ended_at
    assert any("has no .wandb file, which would say how the run ended: it counts as finished" in note for note in notes)

    # the same files as the API downloads them: in a folder of the run's name
    shutil.copytree(folder / "files", tmp_path / "api" / "q1w2e3r4")
    runs, _ = read(tmp_path / "api")
    assert runs["q1w2e3r4"].settings == SETTINGS


def test_files_beside_an_empty_record(tmp_path: Path) -> None:
    """A record without a run is no reason to leave out what the files have."""
    folder = copy("online", tmp_path)
    next(folder.glob("*.wandb")).write_bytes(MAGIC)
    run = read(folder)[0]["whole"]
    assert (run.settings, run.state, run.last["best"]) == (SETTINGS, "running", 0.9)


def test_items(tmp_path: Path) -> None:
    """A list of numbers that was logged, or a file among those of the run."""
    assert read(FILES / "offline", items="correct")[0]["whole"].items == [1, 0, 1]
    assert read(FILES / "offline")[0]["whole"].items is None
    folder = copy("online", tmp_path)
    (folder / "files" / "items.json").write_text("[0, 1]")
    assert read(folder, items="items.json")[0]["whole"].items == [0, 1]
    (folder / "files" / "items.json").write_text('{"a": 1}')
    with pytest.raises(UsageError, match=r"items.json: is no list of numbers"):
        read(folder, items="items.json")


def test_whole_numbers_that_no_float_reaches(tmp_path: Path) -> None:
    folder = copy("online", tmp_path)
    next(folder.glob("*.wandb")).unlink()
    large = "1" + "0" * 400
    content = f'{{"acc": {large}, "correct": [true, -{large}], "_step": {large}, "_timestamp": {large}}}'
    (folder / "files" / "wandb-summary.json").write_text(content)
    [run] = read(folder, items="correct")[0].values()
    assert run.last == {"acc": float("inf")}
    assert run.items == [1.0, float("-inf")]
    assert (run.last_step, run.ended_at) == (None, None)


@pytest.mark.parametrize(
    ("name", "content", "problem"),
    [
        ("config.yaml", b"lr: {value: [1", "config.yaml, line 2: is not YAML"),
        ("config.yaml", b"- 1\n", "config.yaml: expected a table of settings, found list"),
        ("config.yaml", b"lr:\n  value: \xe9\n", "config.yaml: not UTF-8 text"),
        ("wandb-summary.json", b'{"loss": 1', "wandb-summary.json: not valid JSON"),
        ("wandb-metadata.json", b"{", "wandb-metadata.json: not valid JSON"),
    ],
)
def test_broken_files(tmp_path: Path, name: str, content: bytes, problem: str) -> None:
    folder = copy("online", tmp_path)
    next(folder.glob("*.wandb")).unlink()
    (folder / "files" / name).write_bytes(content)
    with pytest.raises(UsageError) as error:
        read(folder)
    assert problem in error.value.message
    assert error.value.hint


# Broken records


def test_truncated_record(tmp_path: Path) -> None:
    """Wherever the file ends, what is complete is read, and nothing else."""
    [whole] = (FILES / "offline").glob("*whole/*.wandb")
    content = whole.read_bytes()
    path = tmp_path / "run-whole.wandb"
    expected = read(whole)[0]["whole"].curves
    lengths, silent = [], 0
    for end in range(0, len(content), 7):
        path.write_bytes(content[:end])
        [run], notes = (lambda found: (list(found[0].values()), found[1]))(read(path))
        assert run.state == "running"
        silent += not notes  # where a record ends
        for metric, curve in run.curves.items():
            number = len(curve.steps)
            assert curve.steps.tolist() == expected[metric].steps[:number].tolist()
            assert str(curve.values.tolist()) == str(expected[metric].values[:number].tolist())
        lengths.append(len(run.curves["val/acc"].steps) if "val/acc" in run.curves else 0)
    assert lengths == sorted(lengths)
    assert set(lengths) == {0, 1, 2, 3}
    assert silent < 20


def test_damaged_record(tmp_path: Path) -> None:
    """A byte that changed is noticed by the checksum."""
    [whole] = (FILES / "offline").glob("*whole/*.wandb")
    content = bytearray(whole.read_bytes())
    content[content.index(b"0.3333333333333333") + 3] ^= 1
    path = tmp_path / "run-whole.wandb"
    path.write_bytes(content)
    runs, notes = read(path)
    assert points(runs["whole"], "loss") == [(0, 1), (10, 0.5)]
    assert any("its .wandb file has a damaged record: what comes before is read" in note for note in notes)


def test_other_files(tmp_path: Path) -> None:
    path = tmp_path / "run-a.wandb"
    path.write_bytes(b"SQLite format 3\0")
    with pytest.raises(UsageError, match="is no file of W&B"):
        read(path)
    path.write_bytes(MAGIC[:-1] + b"\x07")
    with pytest.raises(UsageError, match="is of another version"):
        read(path)
    with pytest.raises(UsageError, match="there is no such file or folder"):
        read(tmp_path / "absent")
    (tmp_path / "empty").mkdir()
    with pytest.raises(UsageError, match="there are no runs of wandb in this folder"):
        read(tmp_path / "empty")


def test_failing_disk(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object, **__: object) -> None:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(Path, "open", fail)
    with pytest.raises(LrurunError, match=r"\.wandb: cannot be read: Permission denied"):
        read(FILES / "offline")


def test_records_are_those_of_the_package() -> None:
    """The declared messages have the fields that the file has: the numbers of the records follow each other."""
    [whole] = (FILES / "offline").glob("*whole/*.wandb")
    file = RecordFile(whole)
    kinds = [field.name for record in file for field, _ in record.ListFields()]
    assert file.fault == ""
    assert kinds.count("run") == kinds.count("exit") == 1
    assert kinds.count("history") == 4
    assert kinds.index("run") < kinds.index("history") < kinds.index("exit")


# Folders


def test_folders(tmp_path: Path) -> None:
    """A folder `wandb`, the one that it is in, one run, or one file; the link to the latest run is none."""
    for run in (FILES / "offline").iterdir():
        shutil.copytree(run, tmp_path / "wandb" / run.name)
    (tmp_path / "wandb" / "latest-run").symlink_to(tmp_path / "wandb" / run.name)
    for place in (tmp_path, tmp_path / "wandb"):
        assert list(read(place)[0]) == ["whole", "crashed", "raised"]  # by time
    for place in (tmp_path / "wandb" / "latest-run", *(tmp_path / "wandb" / run.name).glob("*.wandb")):
        assert list(read(place)[0]) == [run.name.rpartition("-")[2]]


def test_folders_that_are_further_down(tmp_path: Path) -> None:
    """As of a sweep whose jobs have a folder `wandb` each; the files of a run are no other run."""
    for job, folder in enumerate(("online", "killed")):
        shutil.copytree(FILES / folder, tmp_path / "outputs" / str(job) / "wandb")
    (tmp_path / "outputs" / "1" / "files").mkdir()
    (tmp_path / "outputs" / "1" / "files" / "config.yaml").write_text("lr: 1")  # of any other tool
    assert trackers.recognise(Source(name=str(tmp_path))).name == "wandb"
    assert set(read(tmp_path)[0]) == {"whole", "soon", "later"}


def test_projects(tmp_path: Path) -> None:
    assert set(read(FILES / "offline", project="digits")[0]) == {"whole", "crashed", "raised"}
    with pytest.raises(UsageError, match="has no project 'digts'") as caught:
        read(FILES / "offline", project="digts")
    assert caught.value.hint == "did you mean 'digits'? projects: digits"
    # of what was downloaded without its .wandb file, nobody knows the project
    online = copy("online", tmp_path)
    next(online.glob("*.wandb")).unlink()
    for run in (FILES / "offline").iterdir():
        shutil.copytree(run, online.parent / run.name)
    runs, notes = read(online.parent, project="digits")
    assert set(runs) == {"whole", "crashed", "raised"}
    assert "1 run without a project left out" in notes
    with pytest.raises(UsageError, match="has no project 'digits'") as caught:
        read(online, project="digits")
    assert caught.value.hint == "its runs are of no project: leave it out"


def test_recognition(tmp_path: Path) -> None:
    for folder in FILES.iterdir():
        assert trackers.recognise(Source(name=str(folder))).name == "wandb"
        for run in folder.iterdir():
            assert trackers.recognise(Source(name=str(run))).name == "wandb"
            for path in run.glob("*.wandb"):
                assert trackers.recognise(Source(name=str(path))).name == "wandb"
    (tmp_path / "notes.txt").write_text("a")
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "config.yaml").write_text("lr: 1")  # of any other tool
    for place in (tmp_path, tmp_path / "notes.txt", tmp_path / "absent"):
        assert not trackers.reader("wandb").recognises(Source(name=str(place)))


def test_reading_twice() -> None:
    reader = trackers.opened(Source(name=str(FILES / "resumed")), "wandb")
    assert [len(list(reader.runs(()))) for _ in range(2)] == [1, 1]
    assert len(reader.notes()) == 1


def test_light_imports() -> None:
    """Neither the package of W&B nor jax."""
    code = (
        "import sys; from lrurun import trackers\n"
        f"list(trackers.opened(trackers.Source(name={str(FILES / 'online')!r})).runs(None))\n"
        "print([name for name in ('jax', 'wandb', 'pandas') if name in sys.modules])"
    )
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True).stdout == "[]\n"


# Nested keys


def test_changes_of_nested_tables() -> None:
    """A table is merged, an empty one or a plain value replaces, and what is removed is gone."""
    table: dict[str, object] = {}
    nested.put(table, ("a",), {"x": 1, "y": {"z": 2}})
    nested.put(table, ("a", "y", "w"), 3)
    nested.put(table, ("a",), {"x": 4})
    assert table == {"a": {"x": 4, "y": {"z": 2, "w": 3}}}
    nested.remove(table, ("a", "y", "z"))
    nested.remove(table, ("a", "x", "none"))
    nested.remove(table, ("none", "x"))
    assert table == {"a": {"x": 4, "y": {"w": 3}}}
    nested.put(table, ("a", "x"), {"q": 1})
    nested.put(table, ("a", "y"), {})
    assert table == {"a": {"x": {"q": 1}, "y": {}}}
    nested.put(table, ("a",), 5)
    assert table == {"a": 5}
    assert json.loads(json.dumps(table)) == table
