"""The contents of the pages on runs: the table, one run, a comparison."""

from __future__ import annotations

from collections import ChainMap
from collections.abc import Mapping, Sequence, Set
from contextlib import suppress
from typing import TYPE_CHECKING, Any
from urllib.parse import urlencode

from msgspec import structs

from lrurun.errors import LrurunError, UsageError, plural
from lrurun.instances import documents
from lrurun.judging import scores
from lrurun.ledger import owner
from lrurun.ledger.values import STATES
from lrurun.ledger.where import grammar
from lrurun.ledger.where.grammar import ValueComparison, check_name
from lrurun.ledger.where.names import Names
from lrurun.report import again, listing, run_table
from lrurun.report.figures import page_figures
from lrurun.report.figures.figures import Figure, Panel, spectrum
from lrurun.report.tables import run_tables
from lrurun.runner import logs
from lrurun.table import Column, Table, of_text
from lrurun.ui import curves
from lrurun.ui.ladder_pages import Failure, results_stamp

if TYPE_CHECKING:
    from lrurun.ledger.ledger import Ledger
    from lrurun.ledger.part import Part
    from lrurun.ledger.values import Attempt, LadderInstance, Run
    from lrurun.ledger.where.grammar import Condition
    from lrurun.ui.source import Source, Stamp

PAGE = 100
"""Rows of the table of runs."""
LOG_LINES = 200
_LONGEST = 2000
"""Characters of a line of a log, of a cell of a table and of the reason of an exclusion that are shown."""
_LONGEST_ERROR = 20_000
"""Characters of an error, with its traceback, that are shown: its beginning and its end."""
MOST_COMPARED = 12
SORTED = {
    **{name: name for name in ("id", "task", "rung", "stage", "seed", "state", "step", "numerics", "user")},
    "tags": "tag",
}
"""Header -> the name by which its column is sorted."""


class Query:
    """The state of the table of runs: exactly what its address says."""

    def __init__(self, parameters: Mapping[str, Sequence[str]]) -> None:
        def first(name: str) -> str:
            return next(iter(parameters.get(name, ())), "").strip()

        self.where, self.sort = first("where"), first("sort")
        self.instance, self.rung, self.stage = first("instance"), first("rung"), first("stage")
        self.columns = [name for name in dict.fromkeys(map(str.strip, parameters.get("column", ()))) if name]
        page = first("page")
        self.page = max(1, int(page)) if page.isascii() and page.isdigit() and len(page) < 7 else 1

    def address(self, **changes: Any) -> str:
        """The address of the table with some changes."""
        state: dict[str, Any] = {"where": self.where, "sort": self.sort, "column": self.columns, "page": self.page}
        state |= {"instance": self.instance, "rung": self.rung, "stage": self.stage, **changes}
        kept = {name: value for name, value in state.items() if value and (name, value) != ("page", 1)}
        return "/runs" + (f"?{urlencode(kept, doseq=True)}" if kept else "")

    def sorted_by(self, name: str) -> str:
        """The address of the table sorted by a name: in the other direction if it is already."""
        return self.address(sort=f"-{name}" if self.sort == name else name, page=1)

    @property
    def chosen(self) -> dict[str, str]:
        """What links choose beside the condition: an instance, and one of its rungs."""
        chosen = {"instance": self.instance, "rung": self.rung, "stage": self.stage}
        return {name: value for name, value in chosen.items() if value}

    @property
    def by_rung(self) -> bool:
        """Whether the runs of an instance are shown rung by rung: until they are sorted, or a rung is chosen."""
        return bool(self.instance) and not self.sort and not self.rung

    def condition(self, choice: listing.Choice) -> Condition | None:
        """The condition of the box together with what links choose."""
        parts = [ValueComparison(name, "=", value, None) for name, value in self.chosen.items()]
        every = [*([] if choice.condition is None else [choice.condition]), *parts]
        return grammar.And(tuple(every)) if len(every) > 1 else next(iter(every), None)


def runs(source: Source, ledger: Ledger, query: Query, stamp: Stamp) -> dict[str, Any]:
    """The table of runs, or what is wrong with the condition."""
    known = source.cached("results", results_stamp(stamp), ledger.result_names)
    settings = source.cached("settings", results_stamp(stamp), ledger.program_settings)
    names = ChainMap(settings, Names(known))  # type: ignore[arg-type]
    page: dict[str, Any] = {"query": query, "names": sorted(names), "total": 0, "rows": [], "groups": [], "pages": 1}
    try:
        choice = listing.Choice(query.where or None, query.sort or None, ledger)
        for name in query.columns:
            check_name(name, names, "column")
    except UsageError as error:
        return page | {"failure": Failure(error.message, error.hint)}
    part = source.part(ledger, stamp)
    page |= {"all": ledger.count_runs(part=part)}
    if query.by_rung:
        groups = _groups(ledger, ledger.ladder(query.instance), query, choice, part)
        return page | {"groups": groups, "total": sum(group["count"] for group in groups)}
    wanted = ("ids", query.address(page=1, column=[]))
    # Where the steps of running runs do not matter, they change nothing.
    ids = source.cached(
        wanted,
        results_stamp(stamp) if not query.where and not query.sort else stamp,
        lambda: ledger.run_ids(query.condition(choice), choice.sort, descending=choice.descending, part=part),
    )
    start = PAGE * (query.page - 1)
    page |= {"total": len(ids), "pages": -(-len(ids) // PAGE) or 1}
    return page | _table(ledger, ids[start : start + PAGE], query)


def _groups(
    ledger: Ledger, instance: LadderInstance, query: Query, choice: listing.Choice, part: Part
) -> list[dict[str, Any]]:
    """The runs of an instance, rung by rung in the order of the ladder, the newest of each; without rungs that have
    none of the runs that are asked for."""
    groups = []
    rungs = dict.fromkeys((summary.rung, summary.stage) for summary in ledger.state_summaries(instance.key))
    for rung, stage in rungs:
        of_rung = [ValueComparison(name, "=", value, None) for name, value in (("rung", rung), ("stage", stage))]
        given = [] if (condition := query.condition(choice)) is None else [condition]
        ids = ledger.run_ids(grammar.And((*given, *of_rung)), part=part)
        if not ids:
            continue
        states: dict[str, int] = {}
        for (state,) in ledger.columns_of(["state"], ids).values():
            states[state] = states.get(state, 0) + 1
        counted = ", ".join(f"{states[state]} {state}" for state in STATES if state in states)
        groups.append(
            {
                "rung": rung + (" (tune)" if stage == "tune" else ""),
                "facts": f"{plural(len(ids), 'run')}: {counted}",
                "count": len(ids),
                "more": len(ids) - PAGE,
                "address": query.address(rung=rung, stage=stage, page=1),
                **_table(ledger, ids[:PAGE], query),
            }
        )
    return groups


def _table(ledger: Ledger, ids: Sequence[str], query: Query) -> dict[str, Any]:
    """The columns and rows of runs."""
    runs = list(ledger.each(ids, brief=False))
    if not runs:
        return {}
    values = {}
    if query.columns:
        values = {
            run: tuple(map(run_table.exact, query.columns, row))
            for run, row in ledger.columns_of(query.columns, [run.id for run in runs]).items()
        }
    declared = scores.declared(ledger, {run.task for run in runs})
    headers, rows = listing.table(runs, owner.user(), query.columns, values, declared=declared, whole=True)
    kept = [column for column, name in enumerate(headers) if _is_shown(name, column, rows, query)]
    table = of_text([headers[column] for column in kept], [[row[column] for column in kept] for row in rows])
    results = {name for run in runs for name in run.result or ()}
    return {
        "columns": [(column, _sort_name(column.name, query, results)) for column in table.columns],
        "rows": [
            (run, list(zip(cells, map(_cell_class, table.columns[1:], cells), strict=True)))
            for run, *cells in table.rows
        ],
    }


def _cell_class(column: Column, cell: str) -> str:
    """The class of a cell of the table of runs."""
    return "right" if column.right else "long" if len(cell) > 40 else ""


def _is_shown(name: str, column: int, rows: Sequence[Sequence[str]], query: Query) -> bool:
    if name in query.columns or name not in ("numerics", "tags", "cell", "user"):
        return True
    values = {row[column] for row in rows} - {"", owner.user()}
    return len(values) > (1 if name == "numerics" else 0)


def _sort_name(header: str, query: Query, results: Set[str]) -> str | None:
    """The name by which a column can be sorted, None if there is none."""
    if header in query.columns:
        return header
    split, _, _ = header.partition(" ")
    if split in ("val", "test"):
        names = {name for name in results if name.startswith(f"{split}/")} - {f"{split}/loss"}
        return names.pop() if len(names) == 1 else None
    return SORTED.get(header)


def run(source: Source, ledger: Ledger, prefix: str, number: int | None) -> dict[str, Any]:
    """Everything about one run; `number` is the attempt whose log is shown. Raises NotFoundError."""
    recorded = ledger.run(prefix)
    attempts = ledger.attempts(recorded.id)
    eigenvalues = ledger.eigenvalues(recorded.id)
    shown = shown_attempt(attempts, number)
    return {
        "run": recorded,
        "heading": run_tables.heading(recorded),
        "memberships": run_tables.memberships(recorded),
        "rung": recorded.memberships[0].rung if recorded.memberships else "",
        "error": None if recorded.error is None else _cut(recorded.error, _LONGEST_ERROR),
        "excluded": None if recorded.excluded is None else _cut(recorded.excluded),
        "result": run_tables.result(recorded),
        "items": run_tables.items(ledger.item_counts(recorded.id)),
        "configuration": _cut_cells(run_tables.configuration(recorded)),
        "origin": None if (origin := run_tables.origin(recorded, attempts)) is None else _cut_cells(origin),
        "attempts": _cut_cells(run_tables.attempts(attempts)),
        "events": _cut_cells(run_tables.events(ledger.events(run=recorded.id))),
        "checkpoints": run_tables.checkpoints(ledger.checkpoints(recorded.id)),
        "eigenvalues": run_tables.eigenvalues(eigenvalues) if eigenvalues else None,
        "planes": page_figures.planes(_planes(eigenvalues)),
        "numbers": [attempt.n for attempt in attempts],
        "attempt": shown,
        "log": _log(source, recorded, shown) if shown else None,
        "again": source.cached(("again", recorded.id), recorded.fingerprint, lambda: _again(ledger, recorded)),
    }


def _cut(text: str, most: int = _LONGEST) -> str:
    """A text without its middle, if it is long."""
    if len(text) <= most:
        return text
    half = most // 2
    return f"{text[:half]} ... ({len(text) - 2 * half:,} characters are left out) ... {text[-half:]}"


def _cut_cells(table: Table) -> Table:
    return structs.replace(table, rows=tuple([_cut(cell) for cell in row] for row in table.rows))


def shown_attempt(attempts: Sequence[Attempt], number: int | None) -> int | None:
    """The number of the attempt whose log is shown: the one asked for, if it is known, else the newest."""
    known = [attempt.n for attempt in attempts]
    return number if number in known else next(reversed(known), None)


def _planes(eigenvalues: run_tables.Spectra) -> list[Panel]:
    """A panel for each layer."""
    layers = max(map(len, eigenvalues.values()), default=0)

    def eigenvalues_of(moment: str, layer: int) -> tuple[complex, ...]:
        spectra = eigenvalues.get(moment, ())
        return tuple(spectra[layer] or ()) if layer < len(spectra) else ()

    panels = [spectrum(f"layer {k}", eigenvalues_of("start", k), eigenvalues_of("end", k)) for k in range(layers)]
    return [panel for panel in panels if panel.curves]


def _log(source: Source, run: Run, attempt: int) -> list[str] | None:
    """The last lines of a log, long ones cut; None where there is none that can be read."""
    with suppress(LrurunError):  # it would be outside of the runs folder
        path = logs.path_of(source.places, run.id, attempt)
        if logs.is_readable(path):
            lines = logs.tail(path, LOG_LINES)
            return [_cut(line) for line in lines]
    return None


def _again(ledger: Ledger, run: Run) -> str | Failure:
    """The command and the TOML that train the run again."""
    documents.load_code_of(ledger, run)
    try:
        return again.toml(run, documents.program_of(ledger, run))
    except LrurunError as error:
        return Failure(error.message, error.hint)


def compare(ledger: Ledger, prefixes: Sequence[str]) -> dict[str, Any]:
    """The differences of runs, and their results. Raises NotFoundError, and UsageError for fewer than two runs."""
    compared_runs = chosen(ledger, prefixes)
    if len(compared_runs) < 2:
        raise UsageError("a comparison needs at least two runs", "choose runs in the table of runs")
    compared = run_tables.compare(compared_runs)
    names = [run.id for run in compared_runs]
    return {
        "runs": compared_runs,
        "differs": run_tables.differences(compared, names),
        "results": run_tables.results(compared, names),
    }


def chosen(ledger: Ledger, prefixes: Sequence[str]) -> list[Run]:
    """The runs of an address, each once. Raises UsageError if there are too many."""
    if len(prefixes) > MOST_COMPARED:
        raise UsageError(f"{len(prefixes)} runs are too many to compare", f"choose at most {MOST_COMPARED}")
    return list({run.id: run for run in map(ledger.run, prefixes)}.values())


def run_curves(ledger: Ledger, prefixes: Sequence[str], span: curves.Span) -> Figure:
    """The curves of runs."""
    return curves.run_figure(chosen(ledger, prefixes), ledger, span)
