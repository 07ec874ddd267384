"""The forms of a table of runs, and how each becomes runs.

A table has one of four forms, which its columns decide (names as in `roles`):

* It has a row for each *value* if it has columns `metric` and `value` beside one that names the run: what MLflow's page
  exports of a chart.
* It has a row for each *step* if a column names the run, its values repeat, and there is a column of steps.
* It is a *chart* of W&B's page if its columns are named `run - metric`, with `__MIN` and `__MAX` of each (`charts`).
* Otherwise it has a row for each *run*. That rows have steps does not make them steps of one run.

A run is known again by its id, and by its project where a column names that. Where its file is does not matter.

* Without a column that names the run, a column of names that are all different does.
* Without such names, the id of a row is a digest of its cells with texts, whole numbers, and true or false: mostly its
  settings and its seed, while scores are in columns of fractions. Cells whose names say that they change as a run goes
  on, or that they are results, are left out. Of equal rows, the second has `-2` after it, and so on. So a row that is
  inserted or deleted changes no id of another, and a row with another score is the same run, which has changed.

Of a table with a row for each step, a column whose cells are the same in all rows of every run is a setting; other
columns of numbers are metrics, with a point in each row where they are not empty. Rows without a step count for last
values alone. Columns of texts that change within a run are left out, and refused where they distinguish rows of equal
steps: then the column that names the run does not tell runs apart.

Of a table with a row for each run, all columns are settings, but those whose names say something else. That of a study
of Optuna has names of its own (`trials`).
"""

from __future__ import annotations

import hashlib
import json
from collections import Counter
from collections.abc import Collection, Iterator, Mapping
from typing import Any

import numpy as np
from msgspec import Struct
from numpy.typing import NDArray

from lrurun.console import setting
from lrurun.errors import UsageError, hint_for, listed, plural
from lrurun.trackers import Curve, Source, State, TrackedRun, Value, numbers
from lrurun.trackers.tables import charts, roles, trials
from lrurun.trackers.tables.columns import Block, Column, Table, check_names, objects
from lrurun.trackers.tables.values import ValueTable

_LARGEST = 2.0**53
"""From here on, not every whole number has a fraction of 64 bits of its own."""
VALUES_AT_ONCE = 3_000_000
"""How many values of curves are in memory at once, so that a large file is not."""
_LISTED = 3


def runs(table: Table, source: Source, curves: Collection[str] | None) -> Iterator[TrackedRun]:
    """Yields the runs of a table; `table.notes` has the sentences about them before the first one.

    Raises:
        UsageError: ids of runs that are missing or not unique, steps that are no whole numbers, and the like.
    """
    if source.project and (charts.is_chart(table.names) or not roles.find_all(table.names, roles.PROJECT)):
        problem = f"{table.place}: has no column of projects, found the project {source.project!r}"
        raise UsageError(problem, f"leave it out, or name a column {' or '.join(roles.PROJECT)}")
    if source.items and source.items not in table.names:
        hint = hint_for(source.items, table.names, "columns")
        raise UsageError(f"{table.place}: has no column {source.items!r} with results of items", hint)
    if not table.rows:
        table.notes.append(f"{table.place} has names of columns, and no rows")
        return iter(())
    if charts.is_chart(table.names):
        return charts.runs(table, curves)
    if ValueTable.fits(table):
        table = ValueTable(table)
    elif trials.fits(table.names):
        table = trials.of_runs(table)
    reading = _Reading(table, source)
    found = reading.runs(curves)
    if not source.project:
        return found
    if source.project not in reading.projects:
        problem = f"{table.place}: no run is of the project {source.project!r}"
        raise UsageError(problem, hint_for(source.project, list(dict.fromkeys(reading.projects)), "projects"))
    return (run for run in found if run.project == source.project)


class _Parts(Struct):
    """Which column is what."""

    run: str | None = None
    project: str | None = None
    step: str | None = None
    name: str | None = None
    state: str | None = None
    started: str | None = None
    ended: str | None = None
    code: str | None = None
    items: str | None = None
    settings: dict[str, str] = {}
    """Column -> name of the setting."""
    metrics: dict[str, str] = {}
    """Column -> name of the metric."""


class _Reading:
    """One reading of a table."""

    def __init__(self, table: Table, source: Source) -> None:
        self.table = table
        self.parts = _Parts(items=source.items or None)
        self.ids: list[str] = []
        """Of the runs, in the order of their first rows."""
        self.projects: list[str] = []
        """Of the runs; empty texts where no column has them."""
        self.row_names: list[str] = []
        """How people find the runs of a table without ids; else empty."""
        self.numbers: NDArray[np.int32] = np.arange(table.rows, dtype=np.int32)
        """(rows,) the number of each row's run."""
        self.is_long = False
        """Whether runs have several rows."""
        self.steps: NDArray[np.int64] | None = None
        """(rows,)"""
        self.has_step: NDArray[np.bool_] = np.zeros(table.rows, bool)
        """(rows,)"""
        self.last_steps: dict[int, int] = {}
        """Number of a run -> its greatest step."""
        self.first_cells: dict[str, Column] = {}
        """Column -> (runs,) its cell in the first row of each run."""
        self.last_cells: dict[str, Column] = {}
        """Column -> (runs,) its last cell of each run that is not empty."""
        self.changes: set[str] = set()
        """Columns whose cells are not the same in all rows of every run."""

    def runs(self, curves: Collection[str] | None) -> Iterator[TrackedRun]:
        self._find_runs()
        self._find_steps()
        self._scan()
        self._assign()
        return self._made(curves)

    # The runs

    def _column(self, name: str) -> Column:
        blocks = [block[name] for _, block in self.table.blocks([name])]
        if len(blocks) == 1:
            return blocks[0]
        return Column(np.concatenate([part.values for part in blocks]), np.concatenate([part.empty for part in blocks]))

    def _find_runs(self) -> None:
        table, parts = self.table, self.parts
        candidates = roles.find_all(table.names, roles.RUN, without=[parts.items])
        parts.step = next(iter(roles.find_all(table.names, roles.STEP, without=[parts.items])), None)
        parts.project = next(iter(roles.find_all(table.names, roles.PROJECT, without=[parts.items])), None)
        for name in candidates:
            self._number(name)
            # With steps, a column that repeats comes before one that counts the rows.
            if self.is_long or parts.step is None:
                break
        else:
            if candidates:
                self._number(candidates[0])
        parts.name = next(iter(roles.find_all(table.names, roles.NAME, without=[parts.items, parts.run])), None)
        if parts.run is None:
            self._number_rows()
        elif self.is_long and parts.step is None and not isinstance(table, ValueTable):
            raise self._not_unique()

    def _number(self, name: str) -> None:
        """Takes the runs from a column of ids."""
        table = self.table
        self.parts.run = name
        numbers: dict[tuple[Any, Any], int] = {}
        project = self.parts.project
        for start, block in table.blocks([name, *([project] if project else [])]):
            column = block[name]
            if column.empty.any():
                row = table.row_name(start + int(np.flatnonzero(column.empty)[0]))
                raise UsageError(f"{table.place}: {row} has no id of its run in {name!r}", "fill in every id")
            values = column.values
            if values.dtype.kind == "f" and (large := np.abs(values) >= _LARGEST).any():
                row = table.row_name(start + int(np.flatnonzero(large)[0]))
                problem = f"{table.place}: {row} has a number in {name!r} that is too large for an id: it loses digits"
                raise UsageError(problem, 'write ids as texts, as in "18446744073709551615"')
            # The rows of a run mostly follow each other: then few of them are looked at one by one.
            try:
                is_first = np.concatenate([[True], values[1:] != values[:-1]])
                projects = self._projects(block, len(values))
                is_first[1:] |= projects[1:] != projects[:-1]
                first = np.flatnonzero(is_first)
                cells = list(zip(projects[first].tolist(), values[first].tolist(), strict=True))
                of_first = np.fromiter((numbers.setdefault(cell, len(numbers)) for cell in cells), np.int32, len(cells))
            except (TypeError, ValueError):
                raise UsageError(f"{table.place}: {name!r} has lists, expected ids of runs", "rename it") from None
            self.numbers[start : start + len(values)] = np.repeat(of_first, np.diff(first, append=len(values)))
        self.projects = [of_project for of_project, _ in numbers]
        self.ids = [_id_text(cell) for _, cell in numbers]
        self.is_long = len(numbers) < table.rows

    def _projects(self, block: Block, length: int) -> NDArray[Any]:
        """(rows,) the projects of the rows of a block."""
        if self.parts.project is None:
            return objects([""] * length)
        return objects([_text(cell) for cell in block[self.parts.project].cells()])

    def _number_rows(self) -> None:
        table, parts = self.table, self.parts
        self.projects = [""] * table.rows
        if parts.project is not None:
            self.projects = [_text(cell) for cell in self._column(parts.project).cells()]
        names = self._column(parts.name).cells() if parts.name else []
        ids = [_id_text(name) for name in names]
        if ids and None not in names and len(set(ids)) == len(ids):
            self.ids = ids
            return
        self.row_names = list(map(table.row_name, range(table.rows)))
        seen: Counter[tuple[str, str]] = Counter()
        for project, digest in zip(self.projects, self._digests(), strict=True):
            seen[project, digest] += 1
            number = seen[project, digest]
            self.ids.append(digest if number == 1 else f"{digest}-{number}")
        note = (
            f"{table.place}: no column names the run, as run_id would: each row is a run, known again by its texts and "
            "whole numbers"
        )
        if equal := sum(number - 1 for number in seen.values()):
            verb = "equals another one" if equal == 1 else "equal others"
            note += f"; {plural(equal, 'row')} {verb} in these, and only their order distinguishes them"
        if parts.step is not None:
            note += f", although there are steps in {parts.step!r}"
        table.notes.append(note)

    def _digests(self) -> list[str]:
        """A digest for each row, by the rule at the head of this module."""
        table = self.table
        changing = {*roles.find_all(table.names, roles.CHANGING), self.parts.items}
        rows: list[list[str]] = [[] for _ in range(table.rows)]
        for name in sorted(set(table.names) - changing):
            if roles.stripped(name, roles.METRIC_PREFIXES):
                continue
            column = self._column(name)
            if column.is_numeric and column.values.dtype != bool:
                if roles.is_result(name) or not _are_whole(column):
                    continue
            for row, cell in zip(rows, column.cells(), strict=True):
                is_list = isinstance(cell, list) or (isinstance(cell, str) and cell[:1] == "[")
                is_fraction = isinstance(cell, float) and not cell.is_integer()
                if cell is not None and not is_fraction and not (is_list and roles.is_result(name)):
                    row += [name, setting(cell)]
        return [hashlib.sha256(json.dumps(row).encode()).hexdigest()[:12] for row in rows]

    def _not_unique(self) -> UsageError:
        repeated = np.flatnonzero(np.bincount(self.numbers) > 1).tolist()
        places = "; ".join(
            f"{self.ids[number]!r} in "
            + listed([self.table.row_name(row) for row in np.flatnonzero(self.numbers == number).tolist()])
            for number in repeated[:_LISTED]
        )
        more = f", and {len(repeated) - _LISTED} more" if len(repeated) > _LISTED else ""
        problem = f"{self.table.place}: ids of runs in {self.parts.run!r} are not unique: {places}{more}"
        hint = "rename the column if it numbers repetitions, as to seed; rows for each step need a column step"
        return UsageError(problem, hint)

    # Steps

    def _find_steps(self) -> None:
        """Takes steps from the first column of them whose cells are whole numbers."""
        table, parts = self.table, self.parts
        if parts.step is None or not self.is_long:
            return
        candidates, problem = roles.find_all(table.names, roles.STEP, without=[parts.items]), ""
        for name in candidates:
            column = self._column(name)
            steps = _whole(column)
            if isinstance(steps, int):
                problem = problem or f"{table.row_name(steps)} has the step {column.cell(steps)!r} in {name!r}"
                continue
            negative = ~column.empty & (steps < 0)
            parts.step, self.steps, self.has_step = name, steps, ~column.empty & ~negative
            greatest = np.full(len(self.ids), -1, np.int64)
            np.maximum.at(greatest, self.numbers[self.has_step], steps[self.has_step])
            self.last_steps = {number: step for number, step in enumerate(greatest.tolist()) if step >= 0}
            if len(candidates) > 1:
                others = listed([other for other in candidates if other != name])
                table.notes.append(f"{table.place}: steps are those of {name!r}; {others} is read as any other column")
            if negative.any():
                rows = plural(int(negative.sum()), "row")
                table.notes.append(f"{table.place}: {rows} with a negative step count for last values alone")
            if missing := int(column.empty.sum()):
                table.notes.append(
                    f"{table.place}: {plural(missing, 'row')} without a step count for last values alone"
                )
            return
        raise UsageError(f"{table.place}: {problem}, expected whole numbers", "write steps from 0 on as whole numbers")

    # All cells once

    def _scan(self) -> None:
        """Reads every cell once: which columns change within runs, their first and their last cells."""
        count, table = len(self.ids), self.table
        names = [
            name for name in table.names if name not in (self.parts.run, self.parts.step if self.is_long else None)
        ]
        begun = np.zeros(count, bool)
        for start, block in table.blocks(names):
            if not names:
                return
            length = len(next(iter(block.values())).empty)
            numbers = self.numbers[start : start + length]
            new, first_rows = np.unique(numbers, return_index=True)
            is_new = ~begun[new]
            new, first_rows = new[is_new], first_rows[is_new]
            begun[new] = True
            for name, column in block.items():
                self._see(name, column, numbers, new, first_rows, count)

    def _see(
        self,
        name: str,
        column: Column,
        numbers: NDArray[np.int32],
        new: NDArray[np.int32],
        first_rows: NDArray[np.intp],
        count: int,
    ) -> None:
        if name not in self.first_cells:
            for cells in (self.first_cells, self.last_cells):
                cells[name] = Column(np.zeros(count, column.values.dtype), np.ones(count, bool))
        first, last = self.first_cells[name], self.last_cells[name]
        first.values[new], first.empty[new] = column.values[first_rows], column.empty[first_rows]
        if not self.is_long:
            return
        filled = slice(None) if not column.empty.any() else ~column.empty
        last.values[numbers[filled]] = column.values[filled]  # of equal indices the last one counts
        last.empty[numbers[filled]] = False
        if name not in self.changes:
            same = column.same(Column(first.values[numbers], first.empty[numbers]))
            if not same.all():
                self.changes.add(name)

    # What each column is

    def _assign(self) -> None:
        table, parts = self.table, self.parts
        taken: set[str | None] = {parts.run, parts.step if self.is_long else None, parts.items}
        for role, known in (("started", roles.STARTED), ("ended", roles.ENDED), ("code", roles.CODE)):
            name = next(iter(roles.find_all(table.names, known, without=taken)), None)
            if name is not None and (role == "code" or self._are_times(name)):
                setattr(parts, role, name)
                taken.add(name)
        taken.add(self._find_state(taken))
        if parts.name is not None and not self._is_repeated(parts.name):
            taken.add(parts.name)
        ignored = []
        for name in table.names:
            if name in taken:
                continue
            metric = roles.stripped(name, roles.METRIC_PREFIXES)
            setting = roles.stripped(name, roles.SETTING_PREFIXES)
            is_numeric = self.first_cells[name].is_numeric
            if isinstance(table, ValueTable):  # other columns that change are about values, as their times
                is_metric = name in table.metrics
            else:
                is_metric = is_numeric and bool(metric or (name in self.changes and not setting))
            if is_metric:
                parts.metrics[name] = metric or name
            elif name not in self.changes:
                parts.settings[name] = setting or name
            else:
                if not isinstance(table, ValueTable) and not self._are_times(name):
                    self._check_change(name, setting)
                ignored.append(name)
        if ignored:
            what = "it changes within a run, and is" if len(ignored) == 1 else "they change within a run, and are"
            table.notes.append(f"{table.place}: {listed(ignored)} left out: {what} no metric")
        for group in (parts.settings, parts.metrics):
            check_names(f"{table.place}: without their prefixes", list(group.values()))

    def _are_times(self, name: str) -> bool:
        cells = [cell for cell in self.first_cells[name].cells() if cell is not None]
        return bool(cells) and all(roles.seconds_of(cell) is not None for cell in cells)

    def _find_state(self, taken: Collection[str | None]) -> str | None:
        """The column of states: one so named, of whose words or cells at least half are known. A run with another word
        is not known to have ended."""
        for name in self.table.names:
            if roles.plain(name) in roles.STATE and name not in taken:
                cells = self.last_cells[name].cells() if self.is_long else self.first_cells[name].cells()
                counts = Counter(_text(cell) for cell in cells if cell is not None)
                if not counts:
                    continue
                unknown = [word for word in counts if not roles.state_of(word)]
                words = listed([repr(word) for word in sorted(unknown)])
                of_runs = sum(counts[word] for word in unknown)
                if 2 * len(unknown) > len(counts) and 2 * of_runs > counts.total():
                    is_no_state = f"{words} {'is no state' if len(unknown) == 1 else 'are no states'} of a run"
                    self.table.notes.append(f"{self.table.place}: {name!r} is a setting: {is_no_state}")
                    continue
                if unknown:
                    what = f"the state of {plural(of_runs, 'run')} is {words}, which is not known"
                    self.table.notes.append(f"{self.table.place}: {name!r}: {what}: read as running, so as missing")
                self.parts.state = name
                return name
        return None

    def _is_repeated(self, name: str) -> bool:
        cells = self.first_cells[name].cells()
        return len(set(map(str, cells))) < len(cells)

    def _check_change(self, name: str, setting: str | None) -> None:
        """Refuses a column by which rows of one run and step differ, and a setting that changes within a run."""
        table, column = self.table, self._column(name)
        first: dict[tuple[int, int], int] = {}
        for row, number in enumerate(self.numbers.tolist()):
            step = int(self.steps[row]) if self.steps is not None else 0
            other = first.setdefault((number, step), row)
            if other != row and column.cell(other) != column.cell(row):
                problem = (
                    f"{table.place}: {table.row_name(other)} and {table.row_name(row)} are both step {step} of the run "
                    f"{self.ids[number]!r}, and differ in {name!r}"
                )
                hint = f"write ids in {self.parts.run!r} that tell runs apart, or make a table for each {name!r}"
                raise UsageError(problem, hint)
        if setting:
            raise UsageError(f"{table.place}: {name!r} changes within a run", "a setting is the same in all its rows")

    # The runs that come out

    def _made(self, curves: Collection[str] | None) -> Iterator[TrackedRun]:
        wanted = {column: metric for column, metric in self.parts.metrics.items() if curves is None or metric in curves}
        if self.steps is None or not wanted:
            for number in range(len(self.ids)):
                yield self._run(number, {})
            return
        counts = np.bincount(self.numbers, minlength=len(self.ids))
        for begin, end in _batches(counts * len(wanted)):
            yield from self._with_curves(begin, end, counts, wanted)

    def _with_curves(
        self, begin: int, end: int, counts: NDArray[np.intp], wanted: Mapping[str, str]
    ) -> Iterator[TrackedRun]:
        """The runs from number `begin` to `end`, whose curves are in memory at once."""
        assert self.steps is not None
        rows = np.flatnonzero((self.numbers >= begin) & (self.numbers < end))
        first_row, last_row = int(rows[0]), int(rows[-1])
        values = {column: np.empty(len(rows)) for column in wanted}
        filled = {column: np.empty(len(rows), bool) for column in wanted}
        at = 0
        for start, block in self.table.blocks(list(wanted), first_row, last_row + 1):
            length = len(next(iter(block.values())).empty)
            inside = rows[at : at + np.searchsorted(rows[at:], start + length)] - start
            for name, cells in block.items():
                values[name][at : at + len(inside)] = cells.values[inside]
                filled[name][at : at + len(inside)] = ~cells.empty[inside]
            at += len(inside)
        order = np.argsort(self.numbers[rows], kind="stable")
        offset = 0
        for number in range(begin, end):
            of_run = order[offset : offset + counts[number]]
            offset += len(of_run)
            steps, has_step = self.steps[rows[of_run]], self.has_step[rows[of_run]]
            curves = {}
            for column, metric in wanted.items():
                points = filled[column][of_run] & has_step
                if points.any():
                    curves[metric] = Curve(steps[points], values[column][of_run][points])
            yield self._run(number, curves)

    def _run(self, number: int, curves: dict[str, Curve]) -> TrackedRun:
        parts, first = self.parts, self.first_cells
        last = self.last_cells if self.is_long else self.first_cells

        def cell(name: str | None) -> Value:
            return None if name is None else first[name].cell(number)

        state_cell = None if parts.state is None else last[parts.state].cell(number)
        state: State = "finished" if parts.state is None else roles.state_of(state_cell) or "running"
        return TrackedRun(
            id=self.ids[number],
            project=self.projects[number],
            name=_text(cell(parts.name)),
            settings={setting: first[column].cell(number) for column, setting in parts.settings.items()},
            state=state,
            state_text=_text(state_cell),
            last={
                metric: float(last[column].values[number])
                for column, metric in parts.metrics.items()
                if not last[column].empty[number]
            },
            last_step=self.last_steps.get(number),
            curves=curves,
            items=None if parts.items is None else self._items(last[parts.items].cell(number), number),
            started_at=roles.seconds_of(cell(parts.started)),
            ended_at=roles.seconds_of(None if parts.ended is None else last[parts.ended].cell(number)),
            code=_text(cell(parts.code)),
            place=self.table.place,
            row=self.row_names[number] if self.row_names else "",
        )

    def _items(self, cell: Any, number: int) -> list[float] | None:
        if cell is None:
            return None
        listed = cell
        if isinstance(cell, str):
            try:
                listed = json.loads(cell)
            except (ValueError, RecursionError):
                listed = None
        if isinstance(listed, np.ndarray | tuple):
            listed = np.asarray(listed).tolist()
        results = numbers.results(listed)
        if results is None:
            problem = f"{self.table.place}: {self.parts.items!r} of the run {self.ids[number]!r} is no list of numbers"
            raise UsageError(problem, "write one as [1, 0, 1]")
        return results


def _are_whole(column: Column) -> bool:
    values = column.values[~column.empty].astype(np.float64)
    return bool((np.isfinite(values) & (values == np.floor(values))).all())


def _id_text(cell: Any) -> str:
    return str(int(cell)) if isinstance(cell, float) and cell.is_integer() else str(cell)


def _text(cell: Value) -> str:
    return "" if cell is None else _id_text(cell)


def _whole(column: Column) -> NDArray[np.int64] | int:
    """(rows,) the cells as whole numbers, 0 where they are empty; or the first row that has another value."""
    values, filled = column.values, ~column.empty
    if values.dtype.kind == "i":
        wrong = np.zeros(len(values), bool)
    elif values.dtype.kind == "f":
        with np.errstate(invalid="ignore"):
            wrong = filled & ~((values == np.floor(values)) & (np.abs(values) < 2**53))
    else:
        wrong = filled
    if wrong.any():
        return int(np.flatnonzero(wrong)[0])
    return np.where(filled, values, 0).astype(np.int64)


def _batches(sizes: NDArray[np.intp]) -> Iterator[tuple[int, int]]:
    """Ranges of runs whose sizes add up to at most VALUES_AT_ONCE, of one run at least."""
    begin, total = 0, 0
    for number, size in enumerate(sizes.tolist()):
        if total + size > VALUES_AT_ONCE and number > begin:
            yield begin, number
            begin, total = number, 0
        total += size
    yield begin, len(sizes)
