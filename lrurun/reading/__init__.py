"""A ledger that is open for reading, for notebooks and scripts: `lrurun.open`. Nothing is written, and jax not used."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from types import TracebackType
from typing import TYPE_CHECKING, Any, SupportsIndex

from lrurun import paths, plugins
from lrurun.errors import NotFoundError, UsageError, check_type, plural
from lrurun.reading.rows import (
    ReportRows,
    Rows,
    columns_of_claims,
    report_rows,
    shown_claims,
    shown_curves,
    shown_runs,
)
from lrurun.report import frame_columns

if TYPE_CHECKING:
    from lrurun.judging.judged_claim import JudgedClaim
    from lrurun.ledger.ledger import Ledger
    from lrurun.ledger.values import RecordedCurve, Run


class OpenLedger:
    """A ledger that is open for reading. What it returns is what the ledger holds at that moment.

    A ledger that does not exist is read as an empty one, until it does.
    """

    def __init__(self, location: paths.Location) -> None:
        self.path = location
        """The file or the server."""
        self._ledger: Ledger | None = None
        self._reopen()

    def _reopen(self) -> Ledger:
        from lrurun.ledger.ledger import Ledger

        if self._ledger is None or not self._ledger.exists:
            self.close()
            self._ledger = Ledger.read(self.path)
        return self._ledger

    def close(self) -> None:
        """Closes the ledger; a later call opens it again."""
        if self._ledger is not None:
            self._ledger.close()
            self._ledger = None

    def __enter__(self) -> OpenLedger:
        return self

    def __exit__(
        self, error_type: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def __repr__(self) -> str:
        ledger = self._reopen()
        count = plural(ledger.count_runs(), "run") if ledger.exists else "none yet"
        return f"<lrurun ledger {self.path}: {count}>"

    def runs(
        self, where: str | None = None, *, sort: str | None = None, limit: int | None = None, ladder: str | None = None
    ) -> Rows[Run]:
        """The runs, newest first, superseded ones included.

        Args:
            where: a condition, as in "task=sDigits and test/accuracy>0.9"; see `lrurun runs --where`.
            sort: a field, a result or a setting; with a minus before it, the largest first.
            limit: at most so many; 0 gives no runs, unlike `lrurun runs --limit 0`, None all.
            ladder: only runs of a ladder with this name.

        Raises:
            UsageError: the condition cannot be read, an unknown name, or an argument of another type.
        """
        hint = 'as in runs("task=sDigits", sort="-test/accuracy", ladder="lru")'
        _check_texts(hint, where=where, sort=sort, ladder=ladder)
        check_type("limit", limit, SupportsIndex | None, "a whole number", "as in limit=20")
        ids = self._ids(where, sort, ladder)
        ledger = self._reopen()
        if limit is not None and limit < 0:
            raise UsageError(f"limit: expected at least 0, found {limit}", "leave it out for all runs")
        runs = ledger.each(ids[:limit], brief=False)
        return Rows(runs, frame_columns.of_runs, shown=shown_runs)

    def _ids(self, where: str | None, sort: str | None = None, ladder: str | None = None) -> list[str]:
        from lrurun.report import listing

        ledger = self._reopen()
        choice = listing.Choice(where, sort, ledger, names=("where", "sort"))
        return choice.ids(ledger, ladder)

    def metrics(
        self,
        run: str | Run | Iterable[str | Run] | None = None,
        *,
        keys: str | Iterable[str] | None = None,
        where: str | None = None,
        points: int | None = None,
    ) -> Rows[RecordedCurve]:
        """The curves of runs; as a data frame, a row for each point. Only their rows of the ledger are read.

        Args:
            run: a run or several, also by the beginning of their ids; None: all, or those that meet `where`.
            keys: names of metrics, as "train/loss"; None: all.
            where: a condition on runs, as of `runs`.
            points: at most so many points of each curve, of which its extremes are kept; 4 or more; None: all.

        Raises:
            NotFoundError: there is no such run, or no run of the ledger has such a metric.
            UsageError: both `run` and `where`; a condition that cannot be read; an argument of another type.
        """
        _check_texts('as in metrics(where="task=sDigits")', where=where)
        check_type("points", points, SupportsIndex | None, "a whole number", "as in points=500")
        if run is not None and where is not None:
            raise UsageError("run and where exclude each other", "leave one of them out")
        if points is not None and points < 4:
            raise UsageError(f"points: expected at least 4, found {points}", "leave it out for all points")
        ledger = self._reopen()
        names = None if keys is None else _several("keys", keys, str, "a name", 'as in keys=["train/loss"]')
        if not ledger.exists:
            if run is not None:
                raise NotFoundError(f"there is no ledger at {self.path}", "see `lrurun runs`")
            self._ids(where)  # checks it
            return Rows((), frame_columns.of_curves, shown=shown_curves)
        ids = self._ids(where) if run is None else self._named(ledger, run)
        if names is not None:
            _check_keys(ledger, names)
        curves = ledger.curves(ids, names)
        if points is not None:
            curves = (_reduced(curve, points) for curve in curves)
        return Rows(curves, frame_columns.of_curves, shown=shown_curves)

    @staticmethod
    def _named(ledger: Ledger, run: Any) -> list[str]:
        from lrurun.ledger.values import Run

        items = _several("run", run, str | Run, "a run or an id", 'as in metrics("4ebf68b6") or metrics(ledger.runs())')
        return [ledger.run(item).id if isinstance(item, str) else item.id for item in items]

    def report(
        self,
        task: str,
        *,
        ladder: str | None = None,
        profile: str | None = None,
        sets: Mapping[str, Any] | Sequence[str] = (),
        tune: bool = False,
        extend: int | None = None,
        instance: str | None = None,
    ) -> ReportRows:
        """The comparison of a ladder's rungs, as `lrurun report` prints it; its `report` has the claims.

        Args:
            ladder: None for the one in the file of the recipe, else `lru`.
            sets: the values of `--set`.
            tune: whether it was trained with `--tune`.
            extend: the value of `--extend` that it was tuned with; None for the number in the recipe.
            instance: the short name or the id of a ladder instance, in place of the others.

        Raises:
            NotFoundError: the ledger has no such instance.
            UsageError: unknown names, or an argument of another type.
        """
        from lrurun import studies
        from lrurun.config.settings import parse_sets
        from lrurun.instances.requests import LadderRequest, ladder_or_default
        from lrurun.report.tables import loaded_instance

        hint = 'as in report("sDigits", ladder="lru", sets={"optim.lr": 0.001})'
        check_type("task", task, str, "text", hint)
        _check_texts(hint, ladder=ladder, profile=profile, instance=instance)
        check_type("sets", sets, Mapping | Sequence, "a mapping or a list", hint)
        if studies.is_task(task):
            raise UsageError(f"{task}: reports of studies have no rungs", f"run: lrurun report {task} --json")
        values = dict(sets) if isinstance(sets, Mapping) else parse_sets(sets)
        request = LadderRequest(
            task=task, ladder=ladder_or_default(ladder, task), profile=profile, sets=values, tune=tune, extend=extend
        )
        ledger = self._reopen()
        plan = None if instance else request.plan_in(ledger)
        if not ledger.exists:
            raise NotFoundError(f"there is no ledger at {self.path}", f"run: {request.command()}")
        return report_rows(loaded_instance.chosen(ledger, task, plan, instance, request.command()))

    def claims(
        self,
        *,
        ladder: str | None = None,
        task: str | None = None,
        paper: str | None = None,
        instance: str | None = None,
    ) -> Rows[JudgedClaim]:
        """The claims of papers, each judged by the paper's own numbers and, `here`, by the runs of this ledger.

        Args:
            ladder, task, paper: only claims of this ladder, on this task, of this paper.
            instance: the short name or the id of a ladder instance, whose runs judge the claims of its ladder; in place
                of ladder and task.

        Raises:
            NotFoundError: the ledger has no such instance.
            UsageError: unknown names, or an instance beside ladder or task.
        """
        from lrurun import studies
        from lrurun.report.tables import claims_table, ledger_claims, loaded_instance
        from lrurun.studies.machinery import study_claims

        hint = 'as in claims(ladder="lru", task="sDigits")'
        _check_texts(hint, ladder=ladder, task=task, paper=paper, instance=instance)
        claims_table.check_paper(paper, "paper")
        ledger = self._reopen()
        only = None
        if instance is not None:
            if ladder is not None or task is not None:
                raise UsageError(
                    "instance and ladder or task exclude each other", "the instance has a ladder and a task"
                )
            only = loaded_instance.of_instance(ledger, ledger.ladder(instance))
            task, ladder = only.instance.task, only.instance.name
        ladders, errors = ({only.ladder.name: only.ladder}, []) if only else ledger_claims.ladders_of(ledger, ladder)
        for error in errors:
            raise error
        task = study_claims.task_of(task, ladder)
        if task is None or not studies.is_task(task):
            ledger_claims.check_task(task, ledger)
        by_task = study_claims.evidence(ledger, task) if ladder is None else {}
        evidence = ledger_claims.gather(ledger, ladders, task, by_task, only)
        document = ledger_claims.collect(evidence, ladders, task, paper)
        return Rows(document.claims, columns_of_claims, shown=shown_claims)


def _check_texts(hint: str, **arguments: str | None) -> None:
    """Refuses optional arguments that are no texts. Raises UsageError."""
    for name, value in arguments.items():
        check_type(name, value, str | None, "text", hint)


def _several(name: str, argument: Any, types: Any, expected: str, hint: str) -> list[Any]:
    """One value of these types, or several, as a list. Raises UsageError."""
    if isinstance(argument, types):
        return [argument]
    check_type(name, argument, Iterable, f"{expected}, or several", hint)
    values = list(argument)
    for value in values:
        check_type(name, value, types, expected, hint)
    return values


def _check_keys(ledger: Ledger, keys: Sequence[str]) -> None:
    """Refuses a metric that no run has."""
    from lrurun.errors import hint_for

    known = ledger.metric_names()
    for key in keys:
        if key not in known and known:
            raise NotFoundError(f"no run has a metric {key!r}", hint_for(key, known, "metrics"))


def _reduced(curve: RecordedCurve, points: int) -> RecordedCurve:
    import numpy as np
    from msgspec import structs

    from lrurun.report.figures.curves import kept

    at = kept(curve.steps, curve.values, points)
    steps, values = (np.asarray(column)[at].data.toreadonly() for column in (curve.steps, curve.values))
    return structs.replace(curve, steps=steps, values=values)


def open(ledger: str | os.PathLike[str] | None = None, *, files: Sequence[str | os.PathLike[str]] = ()) -> OpenLedger:
    """A ledger for reading: a path, or the URL of a PostgreSQL database; by default the one that commands use.

    It is never changed, and may be in use. Runs of exited processes are shown as running until a command that writes
    marks them as interrupted. `files` are plug-ins with tasks and recurrences of the ladders to be reported.

    Raises:
        UsageError: what `ledger` names is no ledger, or an argument of another type.
        LedgerError: another version has written it, or the server cannot be reached.
        LrurunError: it cannot be read.
    """
    plugins.load_files(files, named="files")
    return OpenLedger(paths.places().ledger if ledger is None else paths.given_ledger(ledger))
