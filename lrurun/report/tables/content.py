"""The contents of a report, whatever the format: title, tables, footnotes, claims, and the runs behind the numbers."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from msgspec import Struct

from lrurun.console import clean
from lrurun.data.metric import SLOT
from lrurun.judging.scores import ScoreForm
from lrurun.report.tables import remarks
from lrurun.report.tables.remarks import Remark
from lrurun.table import NOTHING, Column, Table

if TYPE_CHECKING:
    from lrurun.judging.judged_claim import JudgedClaim

ON_PAGE = 3
"""LaTeX has the columns from this priority on: those below it, as titles, do not fit a page."""


class RunGroup(Struct, frozen=True, kw_only=True):
    """The runs behind some numbers."""

    anchor: str
    title: str
    runs: tuple[str, ...]
    """Ids of those that are counted."""
    other_runs: tuple[str, ...] = ()
    base: str | None = None
    """The group that it is compared with."""
    same_as: str | None = None
    """The group whose runs these are."""
    metric: str
    """The name of the result of each run that is shown."""
    score: ScoreForm | None = None
    """The form in which the result is printed, if it is a score."""


RUNG = Column(name="rung", cell=lambda row: clean(row.rung), right=False)
TITLE = Column(name="title", cell=lambda row: clean(row.title), right=False, priority=1)


def anchor(rung: str) -> str:
    """The anchor of the runs of a rung."""
    return f"runs/{rung}"


def runs_of(row: Any) -> str:
    """The link of a cell that is made from the runs of its row's rung."""
    return anchor(row.rung)


def number(name: str, field: str, form: Callable[[Any], str], *, priority: int, note: str = "") -> Column:
    """A column of a number that the runs of a rung have: a field of the row, as `form` writes it where it is known."""

    def cell(row: Any) -> str:
        value = getattr(row, field)
        return NOTHING if value is None else form(value)

    return Column(name=name, cell=cell, link=runs_of, priority=priority, note=note)


PARAMETERS = number("parameters", "parameters", "{:,}".format, priority=3)


class ReportContent(Struct, frozen=True, kw_only=True):
    """A report, ready to be rendered in any format."""

    title: str
    question: str = ""
    above: tuple[Table, ...] = ()
    """Another table before the main one, in forms of decreasing width: a terminal shows the first that fits, if any,
    LaTeX the last."""
    table: Table
    remarks: tuple[Remark, ...] = ()
    foot: tuple[str, ...] = ()
    """Further lines below the table."""
    groups: tuple[RunGroup, ...] = ()
    claims: tuple[JudgedClaim, ...] = ()
    label: str = ""
    """The label of the table in LaTeX."""
    csv: Sequence[str] = ()
    """The columns of CSV: names of fields."""
    curves: bool = False
    """Whether the HTML page shows learning curves and eigenvalues."""

    @property
    def cautions(self) -> list[str]:
        """What changes the reading of the numbers, in a few words each."""
        return [caution.text for caution in remarks.cautions_of(self.remarks)]

    def conclusions(self, *, beside_cautions: bool = False) -> list[str]:
        """The sentences that open the report; `beside_cautions` leaves out those that say the same."""
        return self._in_full(is_conclusion=True, beside_cautions=beside_cautions)

    def notes(self, columns: Sequence[Column], *, beside_cautions: bool = False) -> tuple[str, ...]:
        """The footnotes below these columns of the table: what explains the columns comes first."""
        of_columns = filter(None, [" ".join(column.note for column in columns if column.note)])
        return (*of_columns, *self._in_full(is_conclusion=False, beside_cautions=beside_cautions), *self.foot)

    def _in_full(self, *, is_conclusion: bool, beside_cautions: bool) -> list[str]:
        return [
            remark.full
            for remark in self.remarks
            if remark.full and remark.is_conclusion == is_conclusion and not (beside_cautions and remark.is_covered)
        ]


COMPARED = (
    *("difference", "low", "high", "improvement", "improvement_low", "improvement_high"),
    *("p_adjusted", "p_unadjusted", "provisional", "look", "detectable"),
    *("verdict_on_these_items", "p_on_these_items", "items_known", "item_error", "item_share"),
)
"""The fields of a comparison that are columns of CSV."""


def further_fields(tests: Sequence[str]) -> list[str]:
    """The columns of CSV for the scores on further tests."""
    return [f"{field}@{name}" for name in tests for field in ("mean", "stderr", "n")]


def slot_fields(slots: Sequence[int]) -> list[str]:
    """The columns of CSV for the accuracy by slot."""
    return [f"{field}@{SLOT}{slot}" for slot in slots for field in ("mean", "stderr", "n")]


def three_digits(value: float) -> str:
    """A number with at least three significant digits, and no exponent for usual speeds."""
    if value >= 100:
        return f"{value:.0f}"
    return f"{value:.{2 if value < 10 else 1}f}" if value >= 0.1 else f"{value:.3g}"


def scale(profile: str | None) -> str:
    """A sentence for published numbers beside runs of a profile, which has other sizes or other data."""
    return f" They are for the plain recipe, not for profile {profile}." if profile else ""


def mixed_versions(row: Any) -> list[str]:
    """The versions that the runs of a row do not have in common, though their settings are the same."""
    counts = {"code": len(row.code_versions), "numerics": len(row.numerics)}
    return [f"{count} {kind} versions" for kind, count in counts.items() if count > 1]


def versions(rows: Sequence[Any]) -> list[Remark]:
    """Remarks on the code and numerics versions of the rows, if there are several."""
    mixed = []
    codes = sorted({version for row in rows for version in row.code_versions})
    if len(codes) > 1:
        text = f"These runs come from more than one code version: {'; '.join(codes)}."
        mixed.append(Remark(full=text, topic="code"))
    pairs = dict.fromkeys((version, clean(row.rung)) for row in rows for version in row.numerics)
    numerics = sorted({version for version, _ in pairs})
    if len(numerics) > 1:
        rungs = (
            f"{numeric} ({', '.join(rung for version, rung in pairs if version == numeric)})" for numeric in numerics
        )
        text = (
            f"These runs come from more than one numerics version: {'; '.join(rungs)}. They round "
            "differently, so that scores of the same run may differ as much as between two seeds."
        )
        mixed.append(Remark(full=text, topic="numerics"))
    return mixed


def sentence(text: str) -> str:
    """`text`, with a full stop unless it ends with a mark."""
    return text if text.endswith((".", "!", "?")) else f"{text}."
