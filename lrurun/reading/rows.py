"""What an open ledger returns: lists of frozen values that are also data frames, and tables in a notebook."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any, Generic, SupportsIndex, TypeVar, overload

from lrurun.errors import LrurunError, plural
from lrurun.report import frame_columns
from lrurun.report.frame_columns import Columns

if TYPE_CHECKING:
    import pandas
    import polars

    from lrurun.ledger.values import RecordedCurve, Run
    from lrurun.report.tables.ladder_table import LadderReport
    from lrurun.report.tables.ledger_claims import LedgerClaim
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
        kind = f" of {type(self[0]).__name__}" if self else ""
        return f"<{plural(len(self), 'row')}{kind}>"

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
            kind = frame_columns.kind_of(values)
            nullable = {int: "Int64", bool: "boolean"}.get(kind) if None in values else None
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
        kinds: dict[type, Any] = {int: polars.Int64, float: polars.Float64, bool: polars.Boolean, str: polars.String}
        return polars.DataFrame(
            [
                polars.Series(name, values, dtype=kinds.get(frame_columns.kind_of(values)))
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


class ReportRows(Rows["LadderRow"]):
    """The rows of a report, one for each rung."""

    def __init__(self, report: LadderReport, page: str) -> None:
        rows: tuple[LadderRow, ...] = report.rows
        super().__init__(rows, columns_of(_fields_of_rows()))
        self.report = report
        """The whole report: its rows, claims, conclusions and notes."""
        self.page = page
        """The report as an HTML page."""

    def _repr_html_(self) -> str:
        """The page of the report, in a frame."""
        from lrurun.report.formats import pages

        return pages.render("frame.html", title=self.report.title, page=self.page)


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


def shown_claims(claims: Sequence[LedgerClaim]) -> Columns:
    """The columns of `lrurun claims`."""
    from lrurun.report.tables import ledger_claims

    rows = [ledger_claims.cells(claim) for claim in claims]
    return {name: [row[k] for row in rows] for k, name in enumerate(ledger_claims.HEADERS)}
