"""What reading commands print on terminals of 80 and 120 columns: no line is longer."""

from __future__ import annotations

from pathlib import Path

import pytest

from lrurun import console
from lrurun.ledger.store import Ledger
from tests.commands import folder, said
from tests.results import fill

__all__ = ["folder"]  # a fixture

TAG = "a-tag-whose-name-is-longer-than-forty-characters"
COMMANDS = [
    "status",
    "runs",
    "runs --by rung,optim.lr",
    "runs --columns id,rung,tag,optim.lr,created_at,model.recurrence.kind",
    "show",
    "report",
    "report --details",
    "report --all --set optim.lr=0.0123456789 --set optim.weight_decay=0.0123456789",
    "report --speed",
    "claims sDigits",
    "plan sDigits --profile smoke --tune",
    "query --views",
    "list",
    "list --details",
    "list studies bridge",
    "data info sDigits",
    "data info ListOps",
    "check recipe sDigits",
]


@pytest.mark.parametrize("width", [80, 120])
def test_no_line_is_longer_than_the_terminal_is_wide(
    folder: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, width: int
) -> None:
    sets = ["optim.lr=0.0123456789", "optim.weight_decay=0.0123456789"]
    fill(folder / "ledger.db", "sDigits", {"tanh-rnn": [0.5, 0.6], "stable-exponential": [0.9, None]}, sets=sets)
    with Ledger.open(folder / "ledger.db") as ledger:
        run = ledger.runs()[0].id
    assert said(capsys, "mark", run, "--tag", TAG)[0] == 0
    monkeypatch.setattr(console, "is_screen", lambda: True)
    monkeypatch.setattr(console, "width", lambda: width)
    for command in COMMANDS:
        code, out, err = said(capsys, *command.split())
        assert code == 0, (command, err)
        # a path is copied whole
        long = [line for line in out.splitlines() if len(line) > width and "/" not in line.split()[-1]]
        assert not long, (command, long)
