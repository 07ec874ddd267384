"""Output of commands: JSON objects, files, cells of tables."""

from __future__ import annotations

from functools import cache
from itertools import islice
from typing import TYPE_CHECKING, Any

from msgspec import Struct

from lrurun import console, files
from lrurun.errors import LrurunError, UsageError

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

    from lrurun.ledger.values import Run


MOST_CHARACTERS = 2000
"""The largest number of characters of a text that users record: a note, or a reason."""


class MembershipOutput(Struct, frozen=True):
    """A ladder instance that a run belongs to."""

    ladder: str
    task: str
    profile: str | None
    instance: str
    """The short name."""
    rung: str
    stage: str
    user: str | None


class RunOutput(Struct, frozen=True, kw_only=True):
    """A run in `runs --json` and `show --json`. Ladder, rung, stage and profile are those that it was made for."""

    id: str
    fingerprint: str
    task: str
    ladder: str | None
    rung: str | None
    stage: str | None
    seed: int
    profile: str | None
    state: str
    step: int
    steps: int
    parameters: int | None
    metrics: dict[str, float]
    ladders: list[MembershipOutput]
    created_at: str | None
    finished_at: str | None
    superseded: bool
    data_sha256: str | None
    tags: list[str]
    excluded: str | None
    numerics: int | None


def run_output(run: Run) -> RunOutput:
    """A run as JSON shows it."""
    from lrurun.ledger.times import when

    values: dict[str, Any] = {
        name: when(column.of_run(run)) if column.type == "time" else column.of_run(run)
        for name, column in _columns_of_runs().items()
    }
    memberships = [
        MembershipOutput(m.ladder, m.task, m.profile, m.instance, m.rung, m.stage, m.user) for m in run.memberships
    ]
    return RunOutput(**values, metrics=run.result or {}, ladders=memberships)


@cache
def _columns_of_runs() -> dict[str, Any]:
    """The columns of runs that JSON shows."""
    from lrurun.ledger.columns import COLUMNS

    return {name: column for name, column in COLUMNS.items() if name in RunOutput.__struct_fields__}


def write_json(value: Struct) -> None:
    """Prints a struct as the one JSON object of a command."""
    from lrurun.report.formats import as_json

    console.write(as_json.render(value))


def write_json_list(document: type[Struct], items: Iterable[Struct]) -> None:
    """Prints a struct with one field, a list, as the one JSON object of a command. Items are printed as they come."""
    from lrurun.report.formats import as_json

    (name,) = document.__struct_fields__
    parts = as_json.render_list(name, items)
    while chunk := list(islice(parts, 1000)):
        console.write("\n".join(chunk))


def write_file(out: Path, content: bytes, option: str = "--out") -> None:
    """Writes the file of an option, whole or not at all; pipes and devices are written to directly.

    Raises:
        UsageError: the file is a database.
        LrurunError: it cannot be written.
    """
    try:
        if out.is_file() and files.is_database(out):
            raise UsageError(f"{option} {out}: is a database, and would be lost", f"choose another {option} FILE")
    except OSError as error:
        raise LrurunError(f"{out}: {error.strerror}", f"choose another {option} FILE") from None
    try:
        files.write(out, content)
    except OSError as error:
        raise LrurunError(f"{out}: {error.strerror}", f"choose another {option} FILE") from None


def cell(value: Any) -> str:
    """A value in a table for people."""
    return "" if value is None else value.hex() if isinstance(value, bytes) else console.setting(value)


def check_text(option: str, text: str | None) -> None:
    """Refuses a text that says nothing, or is too long for lists and pages. Raises UsageError."""
    if text is not None and not text.strip():
        raise UsageError(f"{option}: the text is empty", f"as in {option} 'the fan was loud'")
    if text is not None and len(text) > MOST_CHARACTERS:
        raise UsageError(
            f"{option}: the text has {len(text):,} characters, at most {MOST_CHARACTERS:,} are allowed",
            "write the rest into a file, and name the file",
        )
