"""Commands run in this process, in an empty folder, where they may write no file."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from lrurun import __main__ as entry
from lrurun import console


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    """An empty working directory, without environment variables of lrurun."""
    for name in [name for name in os.environ if name.startswith("LRURUN_")]:
        monkeypatch.delenv(name)
    for name in ("HOME", "XDG_DATA_HOME", "XDG_CACHE_HOME"):
        monkeypatch.setenv(name, str(tmp_path / "home"))
    monkeypatch.chdir(tmp_path)
    yield tmp_path
    console.set_verbosity(0)


def tree() -> list[str]:
    return sorted(str(path) for path in Path().rglob("*") if path.is_file())


def lrurun(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, str, str]:
    """Exit code, stdout, stderr of a command that may write no file."""
    before = tree()
    code = entry.run(list(arguments))
    assert tree() == before
    out, err = capsys.readouterr()
    return code, out, err
