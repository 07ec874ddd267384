"""What an open ledger returns: lists of frozen values that are also data frames, and tables in a notebook."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any, Generic, SupportsIndex, TypeVar, overload

from lrurun.console import duration, rough_duration
from lrurun.errors import LrurunError, plural
from lrurun.report import frame_columns
from lrurun.report.frame_columns import Columns

if TYPE_CHECKING:
    import pandas
    import polars

    from lrurun.instances.remaining import PlanDocument, PlannedRung
    from lrurun.judging.judged_claim import JudgedClaim
    from lrurun.ledger.values import RecordedCurve, Run
    from lrurun.report.tables.ladder_table import LadderReport
    from lrurun.report.tables.loaded_instance import LoadedInstance
    from lrurun.report.tables.row_scores import LadderRow

T = TypeVar("T")

SHOWN = 50
"""The most rows of a table in a notebook."""


class Rows(list[T], Generic[T]):
    """A list of frozen values, which is also a data frame and a table in a notebook. Parts of it are too."""

    def __init__(
        self,
        values: Iterable[T],
        columns: Callable[[Sequence[T]], Columns],
        *,
        shown: Callable[[Sequence[T]], Columns] | None = None,
    ) -> None:
        """`shown` are the columns of the table in a notebook, if they are not all."""
        super().__init__(values)
        self._columns, self._shown = columns, shown or columns

    def __repr__(self) -> str:
        contents = f" of {type(self[0]).__name__}" if self else ""
        return f"<{plural(len(self), 'row')}{contents}>"

    @overload
    def __getitem__(self, at: SupportsIndex) -> T: ...
    @overload
    def __getitem__(self, at: slice) -> Rows[T]: ...
    def __getitem__(self, at: SupportsIndex | slice) -> T | Rows[T]:
        if isinstance(at, slice):
            return Rows(super().__getitem__(at), self._columns, shown=self._shown)
        return super().__getitem__(at)

    def columns(self) -> Columns:
        """Name -> a value for each row."""
        return self._columns(self)

    def to_pandas(self) -> pandas.DataFrame:
        """A data frame of pandas: numbers as float64 or Int64, times as UTC.

        Raises:
            LrurunError: pandas is not installed.
        """
        try:
            import pandas
        except ModuleNotFoundError as error:
            raise _missing(error, "pandas") from None
        frame = {}
        for name, values in self.columns().items():
            type_ = frame_columns.type_of(values)
            nullable = {int: "Int64", bool: "boolean"}.get(type_) if None in values else None
            frame[name] = pandas.Series(values, dtype=nullable or ("object" if not values else None))
        return pandas.DataFrame(frame)

    def to_polars(self) -> polars.DataFrame:
        """A data frame of polars, in which a missing value is null and NaN stays NaN.

        Raises:
            LrurunError: polars is not installed.
        """
        try:
            import polars
        except ModuleNotFoundError as error:
            raise _missing(error, "polars") from None
        types: dict[type, Any] = {int: polars.Int64, float: polars.Float64, bool: polars.Boolean, str: polars.String}
        return polars.DataFrame(
            [
                polars.Series(name, values, dtype=types.get(frame_columns.type_of(values)))
                for name, values in self.columns().items()
            ]
        )

    def _repr_html_(self) -> str:
        """A table, of the first rows only if there are many."""
        from lrurun.report.formats import pages

        columns = self._shown(self[:SHOWN])
        return pages.render(
            "rows.html",
            names=list(columns),
            rows=[list(map(frame_columns.text, row)) for row in zip(*columns.values(), strict=True)],
            more="no rows"
            if not self
            else f"{plural(len(self), 'row')}, of which the first {SHOWN} are shown"
            if len(self) > SHOWN
            else "",
        )


class PlanRows(Rows["PlannedRung"]):
    """The rungs of a plan, each with its runs and the time that they take."""

    def __init__(self, plan: PlanDocument) -> None:
        from lrurun.instances.remaining import PlannedRung

        super().__init__(plan.rungs, columns_of(PlannedRung.__struct_fields__), shown=_shown_plan)
        self.plan = plan
        """The whole plan: the name and the label of the instance, its seeds, its workers, `runs_left`, `eta_seconds`
        (the time of all runs that are left; None where no finished run shows the speed), and notes."""

    def __repr__(self) -> str:
        runs_left, seconds = self.plan.runs_left, self.plan.eta_seconds
        time = "" if not runs_left else ", time unknown" if seconds is None else f", about {rough_duration(seconds)}"
        name = self.plan.instance.short_name
        return f"<plan of {name}: {plural(len(self), 'rung')}, {plural(runs_left, 'run')} left{time}>"


class ReportRows(Rows["LadderRow"]):
    """The rows of a report, one for each rung that is shown."""

    def __init__(self, report: LadderReport, page: str) -> None:
        rows: tuple[LadderRow, ...] = report.rows
        super().__init__(rows, columns_of(_fields_of_rows()))
        self.report = report
        """The whole report: its rows, claims, conclusions and notes."""
        self.page = page
        """The report as an HTML page."""

    @property
    def rows(self) -> ReportRows:
        """These rows."""
        return self

    @property
    def claims(self) -> Rows[JudgedClaim]:
        """The claims of papers about these rungs, judged from the runs: text, verdict, difference, interval and p."""
        from lrurun.judging.judged_claim import JudgedClaim

        return Rows(self.report.claims, columns_of(JudgedClaim.__struct_fields__), shown=_shown_claims_of_report)

    @property
    def cautions(self) -> list[str]:
        """What changes the reading of the report, in a few words each, as "2 runs diverged (tanh-rnn)"."""
        from lrurun.report import formats

        return formats.content_of(self.report).cautions

    def _repr_html_(self) -> str:
        """The page of the report, in a frame."""
        from lrurun.report.formats import pages

        return pages.render("frame.html", title=self.report.title, page=self.page)


def report_rows(loaded: LoadedInstance, rungs: Sequence[str] = ()) -> ReportRows:
    """The report on an instance, of these rungs or of all.

    Raises:
        UsageError: there is no such rung.
    """
    from lrurun.config import planning
    from lrurun.report import formats, run_details

    shown = planning.rung_names(loaded.plan.ladder, rungs) if rungs else None
    report = loaded.report(rungs=shown)
    details = run_details.collect(formats.content_of(report), loaded.ledger)
    return ReportRows(report, formats.render(report, "html", details=details))


def _fields_of_rows() -> tuple[str, ...]:
    from lrurun.report.tables.row_scores import LadderRow

    return LadderRow.__struct_fields__


def columns_of(fields: Sequence[str]) -> Callable[[Sequence[Any]], Columns]:
    """The function that makes the columns of structs with these fields."""
    return lambda values: frame_columns.of_structs(values, fields)


def _missing(error: ModuleNotFoundError, extra: str) -> LrurunError:
    return LrurunError(f"{error.name} is not installed", f"install it: pip install 'lrurun[{extra}]'")


def shown_runs(runs: Sequence[Run]) -> Columns:
    """The columns of a table of runs in a notebook: no settings, and no column without a value."""
    from lrurun.config.schema import is_setting

    hidden = {"fingerprint", "data_sha256", "error", "created_at", "superseded"}
    return {
        name: values
        for name, values in frame_columns.of_runs(runs).items()
        if name not in hidden and not is_setting(name) and (name == "id" or any(v not in (None, []) for v in values))
    }


def shown_curves(curves: Sequence[RecordedCurve]) -> Columns:
    """A row for each curve."""
    return {
        "run": [curve.run for curve in curves],
        "key": [curve.key for curve in curves],
        "points": [len(curve) for curve in curves],
        "first": [curve.values[0] for curve in curves],
        "last": [curve.values[-1] for curve in curves],
        "lowest": [min(curve.values) for curve in curves],
        "highest": [max(curve.values) for curve in curves],
    }


def _shown_plan(rungs: Sequence[PlannedRung]) -> Columns:
    """The columns of `lrurun plan`, with times of one worker."""
    times = [rung.seconds_left if rung.runs_left else 0.0 for rung in rungs]
    return {
        "rung": [rung.rung for rung in rungs],
        "title": [rung.title for rung in rungs],
        "done": [f"{rung.runs_done}/{rung.runs}" for rung in rungs],
        "time left": ["unknown" if time is None else duration(time) if time else "" for time in times],
        "learning rate": [rung.learning_rate for rung in rungs],
    }


def _shown_claims_of_report(claims: Sequence[JudgedClaim]) -> Columns:
    """The claim, its verdict and the reason."""
    return {
        "claim": [claim.text for claim in claims],
        "verdict": [f"{claim.shown}{claim.mark}" for claim in claims],
        "detail": [claim.detail for claim in claims],
        "source": [claim.source for claim in claims],
    }


def columns_of_claims(claims: Sequence[JudgedClaim]) -> Columns:
    """The fields of `lrurun claims --json`."""
    from lrurun.report.formats.as_json import selected
    from lrurun.report.tables.ledger_claims import LedgerClaims

    paths = LedgerClaims.claim_fields
    fields = dict.fromkeys(path.partition(".")[0] for path in paths)
    return frame_columns.of_tables([selected(claim, paths) for claim in claims], list(fields))


def shown_claims(claims: Sequence[JudgedClaim]) -> Columns:
    """The columns of `lrurun claims`."""
    from lrurun.report.tables import claims_table

    rows = [claims_table.cells(claim) for claim in claims]
    return {name: [row[k] for row in rows] for k, name in enumerate(claims_table.HEADERS)}
