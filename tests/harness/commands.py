"""Commands run in this process, and an empty folder for them."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

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


def said(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, str, str]:
    """Exit code, stdout, stderr of a command."""
    code = entry.run(list(arguments))
    return (code, *capsys.readouterr())


def answered(capsys: pytest.CaptureFixture[str], *arguments: str) -> dict[str, Any]:
    """What a command answers with `--json`."""
    code, out, err = said(capsys, *arguments, "--json")
    assert (code, err) == (0, "")
    table: dict[str, Any] = json.loads(out)
    return table


def lrurun(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, str, str]:
    """The same as `said` for a command that may write no file."""
    before = tree()
    found = said(capsys, *arguments)
    assert tree() == before
    return found
