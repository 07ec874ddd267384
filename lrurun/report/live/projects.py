"""The instances of a ledger by task and ladder, newest first: `lrurun status` and the first page of the browser view.

An instance of which nothing runs is one line there, with what it has come to.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import TypeVar

from msgspec import Struct, structs

from lrurun import console
from lrurun.console import clean
from lrurun.ledger.times import when
from lrurun.ledger.values import LadderInstance
from lrurun.report.live import progress
from lrurun.report.live.progress import LadderProgress
from lrurun.table import Column, Table, of_text

SCREEN = 28
"""Lines of a list of which nothing runs, at most, so that a terminal of 30 shows it with the messages below it: in it,
instances that wait show their rungs while there is room."""
_INDENT = 2
_BOLD, _RESET = "\x1b[1m", "\x1b[0m"

T = TypeVar("T")


def grouped(
    items: Iterable[T], ladder: Callable[[T], LadderInstance], active_at: Callable[[T], float]
) -> dict[tuple[str, str], list[T]]:
    """(ladder, task) -> what there is of it; those in which something happened last come first, inside of each, too."""
    groups: dict[tuple[str, str], list[T]] = {}
    newest_first = sorted(enumerate(items), key=lambda item: (active_at(item[1]), item[0]), reverse=True)
    for _, item in newest_first:
        instance = ladder(item)
        groups.setdefault((instance.name, instance.task), []).append(item)
    return groups


def heading(ladder: str, task: str) -> str:
    """The title of the instances of a ladder on a task."""
    return f"ladder {ladder} on {task}"


def finished(now: LadderProgress) -> str:
    """When the last run ended, to the minute; empty while runs remain."""
    time = when(now.finished_at)
    return "" if time is None else f"{time[:10]} {time[11:16]}"


class Shown(Struct, frozen=True):
    """An instance in the list."""

    progress: LadderProgress
    remarks: Sequence[str] = ()
    """Sentences on what prevents it from being finished."""


class Lines(Struct, frozen=True):
    """The lines of the list."""

    lines: Sequence[str]
    folded: bool
    """Whether an instance is a line."""


def lines(
    instances: Sequence[Shown], *, details: bool, width: int | None, color: bool = False, ascii: bool = False
) -> Lines:
    """The list: instances with a running run, and with `details` all, show their rungs, the others are a line each.

    Those with remaining runs of which none is running show their rungs too, newest first, as long as the list has no
    more lines than a `SCREEN`.

    Args:
        width: None: not a terminal, where nothing is cut.
    """
    groups = grouped(instances, lambda one: one.progress.ladder, lambda one: one.progress.active_at)
    everything = [one for group in groups.values() for one in group]
    open_keys = {one.progress.ladder.key for one in everything if details or one.progress.is_running}
    rung_lines = {
        one.progress.ladder.key: _with_rungs(one, width, color=color, ascii=ascii)
        for one in everything
        if one.progress.ladder.key in open_keys
    }
    drawn = list(_drawn(groups, open_keys, rung_lines, width, color=color, ascii=ascii))
    for one in everything:
        if one.progress.is_unfinished and one.progress.ladder.key not in open_keys:
            more = {*open_keys, one.progress.ladder.key}
            rung_lines[one.progress.ladder.key] = _with_rungs(one, width, color=color, ascii=ascii)
            longer = list(_drawn(groups, more, rung_lines, width, color=color, ascii=ascii))
            if len(longer) > SCREEN:
                break
            open_keys, drawn = more, longer
    return Lines(drawn, len(open_keys) < len(everything))


def _drawn(
    groups: Mapping[tuple[str, str], Sequence[Shown]],
    open_keys: set[str],
    rung_lines: Mapping[str, Sequence[str]],
    width: int | None,
    *,
    color: bool,
    ascii: bool,
) -> Iterator[str]:
    folded = [one for group in groups.values() for one in group if one.progress.ladder.key not in open_keys]
    names, by_key = _one_line_each(folded, width, color=color, ascii=ascii)
    is_first, after_rungs = True, False
    for (ladder, task), group in groups.items():
        for one in group:
            if one.progress.ladder.key in open_keys:
                yield from () if is_first else [""]
                yield from rung_lines[one.progress.ladder.key]
                is_first, after_rungs = False, True
        rest = [one for one in group if one.progress.ladder.key not in open_keys]
        if not rest:
            continue
        yield from [""] if after_rungs else []
        after_rungs = False
        for line in _wrapped(heading(ladder, task), width):
            yield f"{_BOLD}{line}{_RESET}" if color else line
        yield from names
        names = []  # above the first of them
        is_first = False
        for one in rest:
            yield from by_key[one.progress.ladder.key]
            for remark in one.remarks:
                yield from _wrapped(remark, width, indent=2 * _INDENT)


def _with_rungs(one: Shown, width: int | None, *, color: bool, ascii: bool) -> list[str]:
    """An instance as `lrurun status --watch` shows it."""
    now = one.progress
    if width is not None:
        drawn = progress.view(now, width, color=color)
        return [*drawn, *(line for remark in one.remarks for line in _wrapped(remark, width))]
    table = of_text(progress.columns(now), progress.rows(now))
    drawn = [progress.title(now.ladder), *(table.in_ascii() if ascii else table).lines(rule=False)]
    drawn += [progress.summary(now), *filter(None, [progress.so_far(now)]), *progress.running_lines(now)]
    return [*map(clean, drawn), *map(clean, one.remarks)]


def _one_line_each(
    folded: Sequence[Shown], width: int | None, *, color: bool, ascii: bool
) -> tuple[list[str], dict[str, list[str]]]:
    """The line with the names of columns, and key -> the line of each instance; more lines where it is too narrow."""
    if not folded:
        return [], {}
    table = _table([one.progress for one in folded])
    table = table.in_ascii() if ascii else table
    keys = [one.progress.ladder.key for one in folded]
    indent = " " * _INDENT
    fitted = table if width is None else table.fit(max(width - _INDENT, 1))
    if fitted is None:
        assert width is not None
        stacked = [list(structs.replace(table, rows=(row,)).stacked(width)) for row in table.rows]
        return [], dict(zip(keys, stacked, strict=True))
    names, *rows = (f"{indent}{line}" for line in fitted.lines(rule=False, color=color))
    return [names], {key: [row] for key, row in zip(keys, rows, strict=True)}


def _table(folded: Sequence[LadderProgress]) -> Table:
    """A row for each instance, without the columns of which all cells are empty."""
    day_and_time = Column(name="finished", cell=lambda now: finished(now)[5:], right=False, priority=3)
    columns = (
        Column(name="instance", cell=lambda now: clean(now.ladder.short_name), right=False),
        Column(name="runs", cell=lambda now: f"{_done(now)}/{now.total}"),
        Column(name="seeds", cell=progress.seeds, priority=1),
        Column(name="finished (UTC)", cell=finished, right=False, priority=2, narrower=day_and_time),
        Column(name="best on validation", cell=lambda now: clean(progress.best_score(now)), right=False),
        Column(name="not done", cell=progress.not_done, right=False),
        Column(name="removed", cell=progress.removed, right=False),
        Column(name="requested by", cell=lambda now: clean(progress.requester(now.ladder)), right=False, priority=4),
    )
    shown = tuple(column for column in columns if column.name == "instance" or any(map(column.cell, folded)))
    return Table(columns=shown, rows=tuple(folded))


def _done(now: LadderProgress) -> int:
    return now.counts.get("done", 0) + now.counts.get("diverged", 0)


def _wrapped(text: str, width: int | None, *, indent: int = 0) -> list[str]:
    label = " " * indent
    return [label + clean(text)] if width is None else console.wrapped(clean(text), width, label=label, indent=indent)
