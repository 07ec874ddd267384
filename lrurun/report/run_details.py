"""The details of each run in the HTML page, beside its score: settings, attempts, curves, eigenvalues."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from msgspec import Struct

from lrurun.config.settings import flatten
from lrurun.judging.scores import curves_of
from lrurun.report.tables.content import ReportContent

if TYPE_CHECKING:
    from lrurun.ledger.ledger import Ledger


class RunDetail(Struct, frozen=True, kw_only=True):
    """A run."""

    seed: int
    state: str
    step: int
    steps: int
    score: float | None
    """The metric of the report."""
    attempts: int
    settings: dict[str, Any]
    """Dotted path -> value, the seed left out."""
    curves: dict[str, list[tuple[int, float]]] = {}
    """Metric -> (step, value) by step; empty where the page draws no curves."""
    eigenvalues: dict[str, tuple[complex, ...]] = {}
    """ "start" and "end" of training -> the eigenvalues of all layers; empty where none are recorded, or the page does
    not draw them."""


def collect(content: ReportContent, ledger: Ledger, *, curves: bool = True) -> dict[str, RunDetail]:
    """Run id -> detail of every run behind the report; without `curves`, these are empty."""
    curves = curves and content.curves
    groups = {run: group for group in reversed(content.groups) for run in (*group.runs, *group.other_runs)}
    drawn = {group.runs[0] for group in content.groups if group.runs} if content.curves else set()
    newest = ledger.newest_attempts(groups)
    details = {}
    for run in ledger.runs(ids=set(groups), superseded=True):
        settings = dict(flatten(run.config))
        settings.pop("seed", None)
        recorded = ledger.eigenvalues(run.id) if run.id in drawn else {}
        details[run.id] = RunDetail(
            seed=run.seed,
            state=run.state,
            step=run.step,
            steps=run.steps,
            score=(run.result or {}).get(groups[run.id].metric),
            attempts=newest[run.id].n if run.id in newest else 0,
            settings=settings,
            curves=ledger.metrics(run.id, curves_of(groups[run.id].score, test=run.kind == "imported"))
            if curves
            else {},
            eigenvalues={
                moment: tuple(value for layer in layers for value in layer or ()) for moment, layers in recorded.items()
            },
        )
    return details
