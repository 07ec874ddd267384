"""Runs of TensorBoard: event files of the real writers give every point that they were given, in 32 bits."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

from lrurun.errors import LrurunError, UsageError
from lrurun.trackers import Source, TrackedRun
from lrurun.trackers.tensorboard import TensorBoardReader, records
from lrurun.trackers.tensorboard.content import Content, Point
from lrurun.trackers.tensorboard.folders import parts_of_runs
from tests.trackers.reader_output import FILES, points, read, recognised

FOLDER = FILES / "tensorboard"


def runs_in(name: str) -> dict[str, TrackedRun]:
    return {run.id: run for run in read("tensorboard", FOLDER / name)[0]}


def error_of(path: Path) -> LrurunError:
    with pytest.raises(LrurunError) as raised:
        list(TensorBoardReader(Source(name=str(path))).runs())
    return raised.value


@pytest.mark.parametrize("form", ["simple", "tensors"])
def test_both_forms_of_scalars_have_32_bits(form: str) -> None:
    run = runs_in("values")[form]
    assert points(run, "loss") == [
        (0, "0.5"), (1, "nan"), (2, "inf"), (3, "inf"), (4, "16777216.0"), (5, str(float(np.float32(0.1)))),
    ]  # fmt: skip
    assert (run.state, run.last_step, run.started_at, run.ended_at) == ("finished", 5, 1_700_000_000.0, 1_700_000_005.0)
    assert run.place == str(FOLDER / "values" / form)
    assert read("tensorboard", FOLDER / "values")[1] == ["numbers have 32 bits, about 7 digits"]


def test_two_writers_in_a_folder_keep_all_of_both() -> None:
    [run] = runs_in("two-writers").values()
    assert run.id == "two-writers"
    found = points(run, "loss")
    assert len(found) == 142
    assert [step for step, _ in found] == [*range(101), *range(60, 101)]
    assert run.last == {"loss": 1100.0}


def test_what_a_new_start_made_void_is_left_out() -> None:
    runs, notes = read("tensorboard", FOLDER / "again")
    assert points(runs[0], "loss") == [
        *((step, str(float(step))) for step in range(60)),
        *((step, str(1000.0 + step)) for step in range(60, 80)),
    ]
    assert (runs[0].last, runs[0].last_step) == ({"loss": 1079.0}, 79)
    assert notes[0] == "41 points left out that became void when a run began again"


def test_points_are_ordered_by_time_also_where_files_are_not(tmp_path: Path) -> None:
    for number, file in enumerate(sorted((FOLDER / "two-writers").iterdir(), reverse=True)):
        shutil.copy(file, tmp_path / f"events.out.tfevents.{number}")
    [run], _ = read("tensorboard", tmp_path)
    assert run.last == {"loss": 1100.0}
    assert [step for step, _ in points(run, "loss")] == [*range(101), *range(60, 101)]


def test_settings_of_the_hparams_plugin() -> None:
    runs = runs_in("hparams")
    assert list(runs) == ["one", "two/session-0", "two/session-1", "keras"]  # as they started
    one = runs["one"]  # its session is in a folder of its own, named by the time
    assert one.settings == {"lr": 0.1, "depth": 4, "norm": "layer", "bias": True}
    assert isinstance(one.settings["depth"], int)
    assert one.last == {"loss": float(np.float32(1 / 3)), "hparam/accuracy": 0.75}
    assert (one.state_text, list(one.curves), one.last_step) == ("success", ["loss"], 2)
    for seed in range(2):
        session = runs[f"two/session-{seed}"]
        assert session.settings == {"seed": seed, "lr": 0.5}
        assert (session.last, session.last_step) == ({"hparam/accuracy": 0.5 + seed / 4}, None)
    assert runs["keras"].settings == {"units": 16, "dropout": 0.25, "act": "relu"}
    assert (runs["keras"].state, runs["keras"].state_text) == ("finished", "")


@pytest.mark.parametrize(("status", "state"), [(2, "crashed"), (3, "running"), (1, "finished"), (0, "finished")])
def test_the_state_is_that_of_the_session(status: int, state: str, tmp_path: Path) -> None:
    from tensorboardX import summary
    from tensorboardX.proto.event_pb2 import Event
    from tensorboardX.proto.plugin_hparams_pb2 import HParamsPluginData
    from tensorboardX.record_writer import RecordWriter

    _, _, end = summary.hparams({"lr": 1}, {})
    content = HParamsPluginData.FromString(end.value[0].metadata.plugin_data.content)
    content.session_end_info.status = status
    end.value[0].metadata.plugin_data.content = content.SerializeToString()
    writer = RecordWriter(str(tmp_path / "events.out.tfevents.1"))
    writer.write(Event(wall_time=1, summary=end).SerializeToString())
    writer.close()
    [run], _ = read("tensorboard", tmp_path)
    assert run.state == state


def test_settings_that_lightning_writes_beside_the_events(tmp_path: Path) -> None:
    [run] = runs_in("lightning").values()
    assert run.id == "version_0"
    assert run.settings == {"lr": 0.001, "model.depth": 4, "model.sizes": [1, 2], "options.seed": 3}
    shutil.copytree(FOLDER / "lightning", tmp_path, dirs_exist_ok=True)
    file = tmp_path / "version_0/hparams.yaml"
    file.write_text("a: [")
    assert error_of(tmp_path).message.startswith(f"{file}, line 2: is not YAML: ")


def test_folders_of_parts_are_one_run() -> None:
    runs, notes = read("tensorboard", FOLDER / "split")
    keras, scalars = runs
    assert (keras.id, scalars.id) == ("keras", "scalars")
    assert keras.last == {"train/epoch_loss": 2.0, "validation/epoch_loss": 12.0}
    assert points(scalars, "loss/b") == [(0, "10.0"), (1, "11.0")]
    assert scalars.last == {"alone": 1.0, "loss/a": 1.0, "loss/b": 11.0}
    assert notes[0] == "4 folders read as parts of the run in the folder above"
    some, _ = read("tensorboard", FOLDER / "split", ["validation/epoch_loss", "loss/a", "epoch_loss"])
    assert [list(run.curves) for run in some] == [["validation/epoch_loss"], ["loss/a"]]
    assert [run.last for run in some] == [run.last for run in runs]


def test_what_is_a_part_and_what_is_a_run() -> None:
    from pathlib import PurePosixPath

    def content(folder: PurePosixPath) -> Content:
        tags = {"run/loss_a": ["loss"], "run/loss_b": ["loss", "acc"], "run/val_loss_c": ["val/loss"]}
        is_session = "1700000000." in folder.name
        points: dict[str, Point] = dict.fromkeys(tags.get(str(folder), []), (0.0, 0, 0.0))
        return Content(newest=points, has_session=is_session)

    folders = [
        *("run", "run/loss_a", "run/loss_b", "run/val_loss_c", "run/train", "run/train/1700000000.5"),
        *("two", "two/1700000000.1", "two/1700000000.2", "other/train"),
    ]
    runs = parts_of_runs({PurePosixPath(folder): [] for folder in folders}, content)
    assert {str(run): [(str(part.folder), part.name("x")) for part in parts] for run, parts in runs.items()} == {
        "other": [("other/train", "train/x")],
        "run": [
            *[("run", "x"), ("run/loss_a", "x/a"), ("run/val_loss_c", "x/c")],
            *[("run/train", "train/x"), ("run/train/1700000000.5", "train/x")],
        ],
        "run/loss_b": [("run/loss_b", "x")],
        "two": [("two", "x")],
        "two/1700000000.1": [("two/1700000000.1", "x")],
        "two/1700000000.2": [("two/1700000000.2", "x")],
    }


def test_names_are_those_in_the_files() -> None:
    [run] = runs_in("names").values()
    assert run.last == {"val/acc_top_5": 0.5, "loss__x_": 0.25}


def test_files_that_are_cut_or_damaged_give_what_is_before() -> None:
    runs, notes = read("tensorboard", FOLDER / "cut")
    [file] = (FOLDER / "cut").iterdir()
    assert points(runs[0], "loss") == [(step, f"{step}.5") for step in range(4)]
    assert notes[0] == f"{file}: the last record is cut, as a killed writer leaves it, and is left out"
    runs, notes = read("tensorboard", FOLDER / "damaged")
    [file] = (FOLDER / "damaged").iterdir()
    assert points(runs[0], "loss") == [(step, f"{step}.5") for step in range(3)]
    assert notes[0].startswith(f"{file}: damaged at byte ")


def test_every_cut_and_every_changed_byte_is_noticed(tmp_path: Path) -> None:
    [file] = (FOLDER / "damaged").iterdir()
    [source] = (FOLDER / "names").iterdir()
    content = source.read_bytes()
    changed = tmp_path / file.name
    whole = read("tensorboard", FOLDER / "names")[0][0].last
    for at in range(len(content)):
        changed.write_bytes(content[:at])
        [run], notes = read("tensorboard", tmp_path)
        assert run.last.items() <= whole.items()
        changed.write_bytes(content[:at] + bytes([content[at] ^ 1]) + content[at + 1 :])
        [run], notes = read("tensorboard", tmp_path)
        assert run.last.items() < whole.items()
        assert len(notes) == 2


def test_writers_that_begin_in_one_second_leave_the_second_and_a_note(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They have a file of one name, which the second empties, and the first writes on behind it."""
    from tensorboardX import SummaryWriter

    monkeypatch.setattr(time, "time", lambda: 1_700_000_000.0)
    first = SummaryWriter(str(tmp_path))
    for step in range(50):
        first.add_scalar("loss", step, step)
    first.flush()
    second = SummaryWriter(str(tmp_path))
    for step in range(5):
        second.add_scalar("loss", 1000 + step, step)
    second.flush()
    first.add_scalar("loss", 50, 50)
    for writer in (first, second):
        writer.close()
    [file] = tmp_path.iterdir()
    [run], notes = read("tensorboard", tmp_path)
    assert points(run, "loss") == [(step, f"{1000.0 + step}") for step in range(5)]
    assert notes[0].startswith(f"{file}: damaged at byte ")


def test_all_points_of_long_runs_are_read(tmp_path: Path) -> None:
    """Of which EventAccumulator keeps 10 as tensors, and 10,000 as numbers."""
    from tensorboard.summary import Writer
    from tensorboardX import SummaryWriter

    numbers, tensors = SummaryWriter(str(tmp_path / "numbers")), Writer(str(tmp_path / "tensors"))
    for step in range(10_100):
        numbers.add_scalar("loss", step, step, walltime=step)
        tensors.add_scalar("loss", step, step, wall_time=step)
    numbers.close()
    tensors.close()
    for run in read("tensorboard", tmp_path)[0]:
        assert list(run.curves["loss"].values) == list(run.curves["loss"].steps) == list(range(10_100))


def test_either_package_is_enough(monkeypatch: pytest.MonkeyPatch) -> None:
    expected = str(read("tensorboard", FOLDER)[0])
    monkeypatch.setattr(records, "_PACKAGES", records._PACKAGES[1:])
    assert TensorBoardReader(Source(name="x")).version().startswith("tensorboardX 2.")
    assert str(read("tensorboard", FOLDER)[0]) == expected
    monkeypatch.setattr(records, "_PACKAGES", [("none", "no_such_package", "no_such_package")])
    error = error_of(FOLDER)
    assert error.message == (
        f"{FOLDER}: neither tensorboard nor tensorboardX is installed, which have the form of event files"
    )
    assert error.hint == "install one: pip install 'lrurun[tensorboard]'"


def test_neither_tensorflow_nor_jax_is_imported() -> None:
    program = f"""
import sys
from lrurun.trackers import Source
from lrurun.trackers.tensorboard import TensorBoardReader
assert list(TensorBoardReader(Source(name={str(FOLDER)!r})).runs(None))
print([name for name in ("tensorflow", "jax", "torch") if name in sys.modules])
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"


def test_wrong_sources(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert recognised("tensorboard", FOLDER)
    assert recognised("tensorboard", next((FOLDER / "names").iterdir()))
    assert not recognised("tensorboard", tmp_path)
    assert not recognised("tensorboard", tmp_path / "none")
    for path, found in ((tmp_path, "has no event files"), (tmp_path / "none", "there is no such folder")):
        error = error_of(path)
        assert isinstance(error, UsageError)
        assert found in error.message

    def refuse(path: str) -> None:
        raise PermissionError(13, "Permission denied", str(path))

    monkeypatch.setattr(os, "scandir", refuse)
    assert error_of(FOLDER).message == f"{FOLDER}: cannot be read: Permission denied"


def test_an_event_file_alone_is_a_run() -> None:
    [file] = (FOLDER / "names").iterdir()
    [run], _ = read("tensorboard", file)
    assert (run.id, run.place) == (file.name, str(file))
