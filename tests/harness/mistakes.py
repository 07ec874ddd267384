"""A small ladder with a mistake put in, and the error that it gives."""

from __future__ import annotations

from pathlib import Path

import pytest

from lrurun.config.ladder import load_ladder
from lrurun.errors import UsageError

LADDER = """
name = "mine"
title = "mine"
source = "ours"

[[rung]]
name = "first"
title = "the first"
change = { "model.recurrence.kind" = "dense" }

[[rung]]
name = "second"
title = "the second"
change = { "model.recurrence.activation" = "tanh" }
"""


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    """An empty working directory, in which nothing may appear."""
    monkeypatch.chdir(tmp_path)
    return tmp_path


def ladder_error(text: str) -> tuple[str, str | None]:
    Path("l.toml").write_text(text)
    with pytest.raises(UsageError) as caught:
        load_ladder("./l.toml")
    assert [path.name for path in Path().iterdir()] == ["l.toml"]
    return caught.value.message, caught.value.hint


def changed(text: str, old: str, new: str) -> str:
    assert text.count(old) == 1
    return text.replace(old, new)
