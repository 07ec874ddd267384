"""Settings and fixtures of all tests."""

from __future__ import annotations

import gc
import os
import shutil
import signal
from functools import cache
from importlib import metadata
from pathlib import Path
from typing import Any

import pytest
from jaxtyping import install_import_hook

from lrurun import console, paths
from lrurun.ledger.database import sqlite
from tests.harness import ROOT
from tests.harness.machine import FINISHED_LADDER, FOUR_RUNS, LONG, Machine, end_processes
from tests.harness.servers import postgres
from tests.harness.shared import IS_OURS, SHARED, once

__all__ = ["postgres"]  # a fixture

# checks shapes, see lrurun/nn/axes.py
install_import_hook(["lrurun.nn.recurrences", "lrurun.nn.network"], "beartype.beartype")

FLAGS = ["--xla_backend_optimization_level=0", "--xla_llvm_disable_expensive_passes=true"]
if metadata.version("jaxlib").startswith("0.10."):
    FLAGS.append("--xla_cpu_use_fusion_emitters=false")  # unknown to later ones
# Tests compile much and compute little; a `Machine` with ladders of many steps uses the compiler as users do.
os.environ.setdefault("XLA_FLAGS", " ".join(FLAGS))

for name in ("LRURUN_LEDGER", "LRURUN_RUNS", "LRURUN_DATA"):  # of the user
    os.environ.pop(name, None)
# Of compiled programs. Set LRURUN_TESTS_CACHE for a folder that serves another session, too.
os.environ["XDG_CACHE_HOME"] = os.environ.get("LRURUN_TESTS_CACHE", str(SHARED / "cache"))
os.environ["XDG_DATA_HOME"] = str(SHARED / "share")
os.environ["XDG_CONFIG_HOME"] = str(SHARED / "config")
os.environ["JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS"] = "0"

if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:  # a shell's background job; what tests start would inherit it
    signal.signal(signal.SIGINT, signal.default_int_handler)
if signal.getsignal(signal.SIGHUP) is signal.SIG_IGN:  # nohup: a handler is not inherited, being ignored is
    signal.signal(signal.SIGHUP, lambda *_: None)


_SQL: dict[Any, Any] = {}
_create_engine = sqlite.create_engine


@cache
def _dialect() -> Any:
    """The dialect of all engines, to which compiled SQL belongs. It learns the version of SQLite from a connection."""
    engine = _create_engine("sqlite://")
    engine.connect().close()
    engine.dispose()  # closes the connection that the pool keeps
    return engine.dialect


def _engine(*arguments: Any, **options: Any) -> Any:
    """SQL that was compiled for one ledger file is used for the next, and no write waits for the disk."""

    def connect() -> Any:
        connection = options["creator"]()
        if NO_SYNC:
            connection.execute("PRAGMA synchronous=OFF").close()
        return connection

    made = _create_engine(*arguments, **{**options, "creator": connect}, execution_options={"compiled_cache": _SQL})
    made.dialect = _dialect()
    return made


sqlite.create_engine = _engine
NO_SYNC = True
"""A test of what is written to the disk turns it off."""


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--update-golden", action="store_true", help="write what people see to tests/golden, to be read")


def pytest_configure(config: pytest.Config) -> None:
    if hasattr(config, "workerinput") or not config.getoption("numprocesses", None):
        import jax

        jax.config.update("jax_numpy_rank_promotion", "raise")  # arrays of unequal rank never broadcast by themselves
        if not jax.config.jax_compilation_cache_dir:
            jax.config.update("jax_compilation_cache_dir", os.environ["XDG_CACHE_HOME"] + "/lrurun/xla")


FIRST = ("ui_browser", "ray", "slurm", "chaos", "server_ladder", "kills", "object_store", "every_moment")
"""Files with slow tests of half a minute or more, which at the end would run alone."""


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Slow tests of the files in `FIRST` come first in each process, which begins with a part of the list as long as
    those of the others (`--dist worksteal`)."""
    names = [f"test_{name}" for name in FIRST]
    early = [item for item in items if item.path.stem in names and item.get_closest_marker("slow")]
    rest = [item for item in items if item.path.stem not in names or not item.get_closest_marker("slow")]
    workers = int(os.environ.get("PYTEST_XDIST_WORKER_COUNT", "1"))
    total, items[:] = len(items), []
    for number in range(workers):
        mine = names[number::workers]
        part = [item for name in mine for item in early if item.path.stem == name]
        room = (total - len(items)) // (workers - number) - len(part)
        items += part + rest[: max(0, room)]
        del rest[: max(0, room)]
    items += rest


def pytest_collection_finish() -> None:
    """Many modules stay, and tests make much garbage: the usual thresholds cost a tenth of the time."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(100_000, 50, 100)


def pytest_unconfigure(config: pytest.Config) -> None:
    """The process that made the shared folder removes it."""
    if IS_OURS and not hasattr(config, "workerinput"):
        shutil.rmtree(SHARED, ignore_errors=True)


@pytest.fixture(autouse=True)
def nothing_remains():
    """No process of a test, and no setting of a command run in this process, reaches the next test."""
    yield
    console.set_verbosity(0)
    paths.note_place_options(None, None, None)
    end_processes()


@pytest.fixture
def golden(request):
    """Compares a text with the file of this name in `tests/golden`; `pytest --update-golden` writes it instead."""

    def check(name: str, text: str) -> None:
        path = ROOT / "tests" / "golden" / name
        if request.config.getoption("--update-golden"):
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text, encoding="utf-8")
        kept = path.read_text(encoding="utf-8") if path.exists() else None
        assert kept is not None, f"there is no {path}: pytest --update-golden writes it"
        assert text == kept, f"differs from tests/golden/{name}: pytest --update-golden, then read git diff"

    return check


@pytest.fixture
def strict():
    """Mixed types are an error inside, so that nothing becomes float64 or int32 unnoticed."""
    import jax

    with jax.numpy_dtype_promotion("strict"):
        yield


@pytest.fixture
def machine(tmp_path):
    """A folder with a ledger of its own, to run commands in."""
    return Machine(tmp_path / "here")


@pytest.fixture
def here(machine, monkeypatch):
    """The same, and its folder is the working directory of the test itself."""
    monkeypatch.chdir(machine.folder)
    return machine


@pytest.fixture(scope="session")
def finished():
    """A finished smoke ladder of three rungs, which tests only read."""
    return Machine(once("finished", lambda folder: _run_ladder(folder, *FINISHED_LADDER[2:], "--jobs", "1")))


@pytest.fixture(scope="session")
def long_history():
    """What an undisturbed ladder of longer runs records, `FOUR_RUNS` of it."""
    return Machine(once("long", lambda folder: _run_ladder(folder, *LONG, *FOUR_RUNS))).history()


def _run_ladder(folder: Path, *options: str) -> None:
    Machine(folder).run("ladder", "sDigits", *options)


@pytest.fixture
def drawing(monkeypatch):
    """The figures that commands write, as they were before they became bytes."""
    from lrurun.report.figures import figure_files

    return _noted(monkeypatch, figure_files.encode)


@pytest.fixture
def sketched(monkeypatch):
    """The same, but the figures are not encoded as images, which takes most of the time."""
    return _noted(monkeypatch, lambda figure, suffix: b"a figure")


def _noted(monkeypatch, encode):
    from lrurun.report.figures import figure_files

    seen = []

    def note(figure, suffix):
        seen.append(figure)
        return encode(figure, suffix)

    monkeypatch.setattr(figure_files, "encode", note)
    return seen
