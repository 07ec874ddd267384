"""The contract of `Reader`, kept by every reader on the files that its tracker wrote."""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import sys
import tarfile
from collections.abc import Callable, Iterator
from importlib import metadata
from pathlib import Path

import msgspec
import numpy as np
import pytest

from lrurun import trackers
from lrurun.errors import UsageError
from lrurun.trackers import Source, TrackedRun
from tests.trackers.reader_output import FILES

SOURCES = {
    "parquet": ["tables/steps-polars.parquet", "tables/nested.parquet"],
    "csv": ["tables/runs-pandas.csv", "tables/steps-polars.tsv", "tables/mlflow.csv"],
    "jsonl": ["tables/runs-pandas.jsonl"],
    "mlflow": ["mlflow/mlflow.db", "mlflow/mlruns"],
    "optuna": ["optuna/studies.db", "optuna/journal.log"],
    "trackio": ["trackio", "trackio_old"],
    "aim": ["aim/indexed.tar.xz"],
    "wandb": ["wandb", "wandb/online"],
    "sacred": ["sacred/sacred_runs"],
    "ray": ["ray", "ray/ladder"],
    "transformers": ["transformers"],
    "lightning": ["lightning"],
    "dvclive": ["dvclive", "dvclive/runs/whole"],
    "hydra": ["hydra/multirun", "hydra/outputs"],
    "tensorboard": ["tensorboard", "tensorboard/two-writers"],
}
"""Name of a reader -> sources in the files that its tracker wrote."""
ALSO: dict[str, list[str]] = {}
"""Source -> other readers that recognise it too, and come later."""
NEEDED = {"parquet": "pyarrow", "aim": "aim", "tensorboard": "tensorboard"}
"""Name of a reader -> the package that it needs, beside those that lrurun itself requires."""
LIGHT = {"lrurun", "numpy", "msgspec", "yaml", "typing_extensions", "_distutils_hack"}
"""The packages that any reader may import."""
OWN = {
    "parquet": {"pyarrow", "cloudpickle"},  # pyarrow imports the other where it is installed
    "wandb": {"google"},
    "tensorboard": {"google", "tensorboard", "tensorboardX"},
}
"""Name of a reader -> the packages that it may import as well."""
PAIRS = [(name, path) for name, paths in SOURCES.items() for path in paths]


@pytest.fixture
def located(tmp_path: Path) -> Iterator[Callable[[str], Path]]:
    """Copies a source, which is then all that is in a folder, and cannot be written."""
    folder = tmp_path / "source"
    folder.mkdir()

    def copied(path: str) -> Path:
        if path.endswith(".tar.xz"):
            with tarfile.open(FILES / path) as archive:
                archive.extractall(folder, filter="data")
            return folder
        target = folder / Path(path).name
        if (FILES / path).is_dir():
            shutil.copytree(FILES / path, target, symlinks=True)
        else:
            shutil.copy(FILES / path, target)
        return target

    yield copied
    permit(folder, 0o700)


def permit(folder: Path, mode: int) -> None:
    """Sets the permissions of a folder and of all in it: of files without those of execution."""
    for place, _, files in os.walk(folder):
        os.chmod(place, mode)
        for file in files:
            os.chmod(Path(place, file), mode & 0o666)


def content(folder: Path) -> dict[str, str]:
    """Name -> digest of each file, and of each folder its time of change."""
    found = {}
    for place, folders, files in os.walk(folder):
        found |= {str(Path(place, name)): hashlib.sha256(Path(place, name).read_bytes()).hexdigest() for name in files}
        found |= {str(Path(place, name)): str(Path(place, name).stat().st_mtime_ns) for name in folders}
    return found


def source_of(name: str, path: Path) -> Source:
    return Source(name=str(path), metrics_file="metrics.json" if name == "hydra" else "")


def needs(name: str) -> None:
    """Skips the test of a reader whose package is not installed. Aim has none for Python 3.13: CI never reads it."""
    if name in NEEDED:
        pytest.importorskip(NEEDED[name], reason=f"{NEEDED[name]} is not installed (of Aim, CI never has it)")


def read(source: Source, name: str, curves: list[str] | None) -> tuple[list[TrackedRun], list[str]]:
    reader = trackers.opened(source, name)
    return list(reader.runs(curves)), list(reader.notes())


def text(run: TrackedRun, *, with_curves: bool = True) -> str:
    """A run as a text, in which NaN equals NaN."""
    of_run = {name: getattr(run, name) for name in run.__struct_fields__ if name != "curves"}
    curves = {name: (curve.steps.tolist(), curve.values.tolist()) for name, curve in run.curves.items()}
    return repr((of_run, curves if with_curves else None))


def test_every_reader_is_here() -> None:
    assert list(SOURCES) == list(trackers.BUILT_IN) == trackers.names()
    assert trackers.FRAME not in trackers.names()
    for name in [*SOURCES, trackers.FRAME]:
        assert trackers.reader(name).name == name
        assert trackers.reader(name).title


@pytest.mark.parametrize(("name", "path"), PAIRS)
def test_a_reader_gives_the_runs_of_one_project(name: str, path: str, located: Callable[[str], Path]) -> None:
    """Where there is none of the name, it names those that there are."""
    needs(name)
    source = source_of(name, located(path))
    runs, _ = read(source, name, [])
    projects = {run.project for run in runs if run.project}
    for project in projects:
        chosen, _ = read(msgspec.structs.replace(source, project=project), name, [])
        assert [run.id for run in chosen] == [run.id for run in runs if run.project == project]
    wrong = f"{min(projects, default='')}x"
    with pytest.raises(UsageError) as caught:
        read(msgspec.structs.replace(source, project=wrong), name, [])
    assert repr(wrong) in caught.value.message
    assert all(project in str(caught.value.hint) for project in projects)
    assert projects or "of no project" in str(caught.value.hint) or "name a column project" in str(caught.value.hint)


@pytest.mark.parametrize(("name", "path"), PAIRS)
def test_a_reader_recognises_its_own_sources_alone(name: str, path: str, located: Callable[[str], Path]) -> None:
    """Without its package too."""
    source = Source(name=str(located(path)))
    takers = [other for other in trackers.names() if trackers.reader(other).recognises(source)]
    assert takers == [name, *ALSO.get(path, [])]
    assert trackers.recognise(source).name == name
    for other in trackers.names():
        assert not trackers.reader(other).recognises(Source(name=str(Path(source.name) / "none")))


@pytest.mark.parametrize(("name", "path"), PAIRS)
def test_runs_are_as_the_form_says(name: str, path: str, located: Callable[[str], Path]) -> None:
    needs(name)
    source = source_of(name, located(path))
    reader = trackers.opened(source, name)
    assert not reader.notes()
    light, full = list(reader.runs(())), list(reader.runs(None))
    notes = list(reader.notes())
    assert [text(run, with_curves=False) for run in light] == [text(run, with_curves=False) for run in full]
    assert not any(run.curves for run in light)
    again = list(reader.runs(None))
    assert [text(run) for run in again] == [text(run) for run in full]
    assert list(reader.notes()) == notes
    assert full
    assert len({(run.project, run.id) for run in full}) == len(full)
    assert all(run.id and run.place for run in full)
    assert {run.state for run in full} <= {"finished", "crashed", "running"}
    assert isinstance(reader.version(), str)
    for run in full:
        assert run.curves.keys() <= run.last.keys()
        assert all(type(value) is float for value in run.last.values())
        assert all(value is None or type(value) in (str, int, float, bool, list) for value in run.settings.values())
        greatest = [int(curve.steps.max()) for curve in run.curves.values()]
        assert not greatest or (run.last_step is not None and max(greatest) <= run.last_step)
        for curve in run.curves.values():
            assert len(curve.steps) == len(curve.values) > 0
            assert (curve.steps.dtype, curve.values.dtype) == (np.dtype(np.int64), np.dtype(np.float64))


@pytest.mark.parametrize(("name", "path"), PAIRS)
def test_one_curve_is_that_of_all(name: str, path: str, located: Callable[[str], Path]) -> None:
    needs(name)
    source = source_of(name, located(path))
    full = read(source, name, None)[0]
    metric = next((metric for run in full for metric in run.curves), None)
    if metric is None:
        return
    some = read(source, name, [metric, "no such metric"])[0]
    assert [text(run) for run in some] == [
        text(msgspec.structs.replace(run, curves={name: run.curves[name] for name in run.curves if name == metric}))
        for run in full
    ]


@pytest.mark.parametrize(("name", "path"), PAIRS)
@pytest.mark.parametrize("may_write", [True, False])
def test_nothing_is_written(name: str, path: str, may_write: bool, located: Callable[[str], Path]) -> None:
    needs(name)
    place = located(path)
    folder = place.parent if place.name != "source" else place
    if not may_write:
        permit(folder, 0o500)
    before = content(folder)
    source = source_of(name, place)
    assert trackers.recognise(source).name == name
    read(source, name, None)
    assert content(folder) == before


@pytest.mark.parametrize("names", [[name for name in SOURCES if name not in {"aim", *OWN}], *([name] for name in OWN)])
def test_no_package_is_imported_that_is_not_needed(names: list[str]) -> None:
    for name in names:
        needs(name)
    sources = [source_of(name, FILES / path) for name in names for path in SOURCES[name]]
    code = (
        "import sys; from lrurun import trackers\n"
        f"for name, metrics_file in {[(source.name, source.metrics_file) for source in sources]}:\n"
        "    list(trackers.opened(trackers.Source(name=name, metrics_file=metrics_file)).runs(None))\n"
        "print(*{name.partition('.')[0] for name in sys.modules})"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    loaded = set(done.stdout.split()) & metadata.packages_distributions().keys()
    assert loaded <= LIGHT.union(*(OWN.get(name, ()) for name in names))
