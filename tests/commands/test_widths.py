"""What commands print on terminals of 80 and 120 columns: no line is longer, and every command is tried."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from pathlib import Path

import pytest
import typer

from lrurun import cli, console
from lrurun.ledger.store import Ledger
from tests.harness.commands import folder, said
from tests.harness.plug_ins import MAJORITY, RECIPE, forgotten
from tests.harness.results import fill

__all__ = ["folder", "forgotten"]  # fixtures

TASK = "TheMajorityOfNineBitsInASequenceOfNineBits"
RUNGS = ["a-first-rung-whose-name-is-longer-than-forty-characters", "another-rung-with-a-name-as-long-as-the-first-one"]
TAG = "a-tag-whose-name-is-longer-than-forty-characters"
SETS = ["optim.lr=0.0123456789", "optim.weight_decay=0.0123456789"]
NAME = "a-ladder-whose-name-is-longer-than-forty-characters"
LADDER = f"""
name = "{NAME}"
title = "a dense recurrence, and a diagonal one that is described in a title of more than a line"
source = "ours"

[[rung]]
name = "{RUNGS[0]}"
title = "a dense recurrence"
change = {{ "model.recurrence.kind" = "dense" }}

[[rung]]
name = "{RUNGS[1]}"
title = "a diagonal recurrence"
change = {{ "model.recurrence.kind" = "diagonal" }}

[[claim]]
text = "A diagonal recurrence is better than a dense one, even where the sequences are as short as these are"
kind = "better"
rung = "{RUNGS[1]}"
than = "{RUNGS[0]}"
source = "ours, and described at some length in a place that has a long name"
"""
OWN = f"{TASK} --ladder {NAME} {' '.join(f'--set {text}' for text in SETS)}"

CALLS = {
    "ladder": [f"ladder {OWN} --dry-run", "ladder sDigits --profile smoke --tune --dry-run"],
    "resume": ["resume"],
    "plan": [f"plan {OWN}", "plan sDigits --profile smoke --tune", "plan sDigits --sweep optim.lr=0.001,0.002"],
    "study": ["study memory --dry-run"],
    "status": ["status"],
    "runs": [
        "runs",
        "runs --by rung,optim.lr",
        "runs --columns id,rung,tag,optim.lr,created_at,model.recurrence.kind",
    ],
    "show": ["show", "show RUN", "show RUN --log"],
    "report": [
        "report",
        "report --details",
        f"report {OWN} --rung {RUNGS[1]}",
        f"report {OWN} --detect 2",
        "report --instance sDigits-set --details",
        f"report --all {' '.join(f'--set {text}' for text in SETS)}",
        "report --speed",
    ],
    "claims": ["claims", "claims sDigits", f"claims --ladder {NAME}", f"claims --ladder {NAME} --details"],
    "compare": ["compare RUN OTHER"],
    "query": [
        "query --views",
        "query 'select * from results'",
        "query 'select rung, instance from results'",
    ],
    "mark": [f"mark RUN --tag {TAG} --note 'the fan was loud' --exclude '{'a broken disk, ' * 9}'"],
    "data prepare": [f"data prepare {TASK}", "data prepare sDigits"],
    "data check": [f"data check {TASK}", "data check sDigits"],
    "data info": [f"data info {TASK}", "data info sDigits", "data info ListOps"],
    "ledger path": ["ledger path"],
    "ledger check": ["ledger check"],
    "ledger migrate": ["ledger migrate"],
    "ledger backup": ["ledger backup"],
    "ledger merge": ["ledger merge other.db"],
    "ledger export": ["ledger export --to csv exported"],
    "ledger gc": ["ledger gc --dry-run"],
    "doctor": ["doctor"],
    "list": ["list", "list --details", "list studies bridge"],
    "new": ["new task Another"],
    "check": ["check recipe sDigits", f"check ladder {NAME}"],
}
"""Command -> what is tried of it. RUN and OTHER are runs of the ledger."""
NO_TABLE = {
    "verify": "trains a run; prints sentences alone",
    "plot": "writes a file",
    "ledger rebuild": "reads a runs folder; prints a sentence",
    "ui": "a server, which prints its address",
    "bench": "measures for minutes; its table is an ordinary one",
    "data import": "reads files of users; prints sentences alone",
}
"""Command -> why it is not tried."""


def commands(app: typer.Typer) -> list[str]:
    """Every command, with those of groups."""
    groups = [f"{group.name} {inner.name}" for group in app.registered_groups for inner in named(group.typer_instance)]
    return [*(str(command.name) for command in app.registered_commands), *groups]


def named(app: typer.Typer | None) -> Sequence[typer.models.CommandInfo]:
    """The commands of a group, those without a name with that of their function."""
    assert app is not None
    for command in app.registered_commands:
        assert command.callback is not None
        command.name = command.name or command.callback.__name__.rstrip("_")
    return app.registered_commands


def test_every_command_is_tried_or_has_a_reason_not_to_be() -> None:
    assert sorted(commands(cli.make_app())) == sorted([*CALLS, *NO_TABLE])


@pytest.fixture
def runs(folder: Path) -> list[str]:
    """A ledger with long names, and another one; the ids of two runs."""
    (folder / "recipes").mkdir()
    (folder / "own.py").write_text(MAJORITY.replace('"Majority"', f'"{TASK}"'))
    (folder / "recipes" / f"{TASK}.toml").write_text(RECIPE.replace('"Majority"', f'"{TASK}"'))
    (folder / "ablations").mkdir()
    (folder / "ablations" / f"{NAME}.toml").write_text(LADDER.replace('"ours"\n', '"ours"\nload = ["../own.py"]\n', 1))
    fill(folder / "ledger.db", "sDigits", {"tanh-rnn": [0.5, 0.6], "stable-exponential": [0.9, None]}, sets=SETS)
    for file in ("ledger.db", "other.db"):
        scores = {RUNGS[0]: [0.5, 0.6, 0.7], RUNGS[1]: [0.9, 0.8, None]}
        fill(folder / file, TASK, scores, ladder=NAME, sets=SETS)
    with Ledger.open(folder / "ledger.db") as ledger:
        found = [run.id for run in ledger.runs() if run.task == TASK]
    (folder / "runs" / found[0] / "1").mkdir(parents=True)
    (folder / "runs" / found[0] / "1" / "log.txt").write_text("it began\n")
    return found[:2]


@pytest.mark.parametrize("width", [80, pytest.param(120, marks=pytest.mark.slow)])
def test_no_line_is_longer_than_the_terminal_is_wide(
    runs: list[str], capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, width: int
) -> None:
    monkeypatch.setattr(console, "is_screen", lambda: True)
    monkeypatch.setattr(console, "width", lambda: width)
    problems = []
    for call in (call for calls in CALLS.values() for call in calls):
        words = [{"RUN": runs[0], "OTHER": runs[1]}.get(word, word) for word in shlex.split(call)]
        code, out, err = said(capsys, *words)
        # paths and names longer than a line are copied whole
        long = [line for line in out.splitlines() if len(line) > width and " " in line.strip()]
        long = [line for line in long if "/" not in line.split()[-1]]
        if code or long:
            problems.append((call, code, err, long))
    assert not problems
