"""What the pages on ladders, claims and studies show."""

from __future__ import annotations

import shlex
import time
from collections.abc import Mapping
from functools import partial
from typing import TYPE_CHECKING, Any

from markupsafe import Markup
from msgspec import Struct, structs

from lrurun import paths
from lrurun.config.schema import LADDER_KINDS
from lrurun.errors import LrurunError, NotFoundError
from lrurun.instances import continuing
from lrurun.judging.verdicts import JUDGED, NOT_RUN
from lrurun.ledger import owner
from lrurun.ledger.times import when
from lrurun.report import run_details
from lrurun.report.figures import compared_items, page_figures
from lrurun.report.formats import content_of, html
from lrurun.report.live import progress
from lrurun.report.tables import claims_table, ledger_claims, loaded_instance
from lrurun.studies.machinery import study_claims, study_pages
from lrurun.table import of_text
from lrurun.ui import curves

if TYPE_CHECKING:
    from lrurun.judging.judged_claim import JudgedClaim
    from lrurun.judging.rung_runs import RungRuns
    from lrurun.ledger.ledger import Ledger
    from lrurun.ledger.values import LadderInstance
    from lrurun.report.figures.figures import Figure
    from lrurun.ui.source import Source, Stamp

_REST = 10.0
"""How many times as long as it takes to make the table of claims it is kept at least."""
_FIGURE = "The figure; its result is in the text above."
PATIENCE = 0.4
"""Seconds for conclusions that are not known yet; the page asks for the others when it is there."""


class Failure(Struct, frozen=True):
    """Why a part of a page is missing."""

    message: str
    hint: str | None


def results_stamp(stamp: Stamp) -> Stamp:
    """The part of a stamp that differs when results may differ: all but the steps of running runs."""
    return stamp[:-1]


def ladders(source: Source, ledger: Ledger, stamp: Stamp, *, studies: bool) -> dict[str, Any]:
    """The list of ladder instances, or of studies: progress and conclusion of each, newest first."""
    instances = [instance for instance in ledger.ladders() if (instance.kind not in LADDER_KINDS) is studies]
    until = time.monotonic() + PATIENCE
    entries, waiting = [], False
    superseded = _superseded(source, ledger, stamp)
    instances = instances[::-1]
    instances.sort(key=lambda instance: instance.key in superseded)  # those that nobody asks for any more come last
    for instance in instances:
        now = _progress(source, ledger, instance, stamp)
        key = ("conclusion", instance.key)
        counts = source.cached(
            ("item counts", instance.key), results_stamp(stamp), partial(ledger.item_totals, instance.key)
        )
        # not the stamp: where a run is training, it would have all conclusions made again all the time
        # finished runs of an import change when they are imported again
        of_import = results_stamp(stamp) if instance.kind == "imported" else None
        seen = (tuple(sorted(now.counts.items())), counts, of_import)
        conclusion: Any = source.known(key, seen)
        if conclusion is None and time.monotonic() < until:
            conclusion = source.cached(key, seen, partial(_conclusion, ledger, instance))
        waiting |= conclusion is None
        entries.append(
            {
                "key": instance.key,
                "title": progress.title(instance),
                "asked": when(instance.created_at),
                "summary": progress.summary(now),
                "done": sum(now.counts[state] for state in ("done", "diverged")),
                "total": now.total,
                "conclusion": conclusion,
                "superseded": superseded.get(instance.key, ""),
            }
        )
    return {
        "entries": entries,
        "waiting": waiting,
        "abandoned": ledger.has_abandoned(owner.this_process()),
        "studies": studies,
    }


def _superseded(source: Source, ledger: Ledger, stamp: Stamp) -> Mapping[str, str]:
    """Key of each instance that stays unfinished -> why."""

    def sentences() -> dict[str, str]:
        superseded = continuing.superseded(ledger)
        return {key: f"{continuing.sentence(ledger.ladder(key), by)}." for key, by in superseded.items()}

    known: Mapping[str, str] = source.cached(("superseded",), results_stamp(stamp), sentences)
    return known


def _progress(source: Source, ledger: Ledger, instance: LadderInstance, stamp: Stamp) -> progress.LadderProgress:
    """The progress of an instance; nothing is read if it has neither queued nor running runs, unless something was
    recorded."""
    key = ("progress", instance.key)
    known: Any = source.known(key, results_stamp(stamp))
    if known is not None and not (known.counts["queued"] or known.counts["running"]):
        return known
    current = progress.collect(ledger, instance)
    return current if current.counts["running"] else source.cached(key, results_stamp(stamp), lambda: current)


def _conclusion(ledger: Ledger, instance: LadderInstance) -> str:
    """The first sentence of the report, or why there is no report."""
    try:
        if instance.kind not in LADDER_KINDS:
            return study_pages.conclusion(ledger, instance)
        report = loaded_instance.of_instance(ledger, instance).report()
        return next(iter(report.conclusions), "No results yet.")
    except LrurunError as error:
        return f"No report: {error.message}"


def ladder(source: Source, ledger: Ledger, key: str, stamp: Stamp, *, with_items: bool) -> dict[str, Any]:
    """One ladder instance, or study: progress, and the report. Raises NotFoundError.

    Comparisons of test items take long where there are many: they are only made where the address asks for them.
    """
    instance = ledger.ladder(key)
    now = _progress(source, ledger, instance, stamp)
    is_ladder = instance.kind in LADDER_KINDS
    make = _report if is_ladder else _study
    try:
        shown = source.cached(("report", instance.key), results_stamp(stamp), lambda: make(ledger, instance))
    except LrurunError as error:
        shown = {"failure": Failure(error.message, error.hint)}
    items: Any = None
    if with_items and is_ladder:
        items = source.cached(("items", instance.key), results_stamp(stamp), lambda: _items(ledger, instance))
    return {
        "instance": instance,
        "items": items,
        "heading": progress.title(instance),
        "title": progress.title(instance),
        "summary": progress.summary(now),
        "superseded": _superseded(source, ledger, stamp).get(instance.key, ""),
        "running": progress.running_lines(now),
        "rungs": of_text(progress.columns(now), progress.rows(now), title="progress of the rungs"),
        "done": sum(now.counts[state] for state in ("done", "diverged")),
        "total": now.total,
        "of_ladder": is_ladder,
        "abandoned": ledger.has_abandoned(owner.this_process()),
        **shown,
    }


def _report(ledger: Ledger, instance: LadderInstance) -> dict[str, Any]:
    """The report of `lrurun report`, as its HTML page has it."""
    report = loaded_instance.of_instance(ledger, instance).report()
    content = content_of(report)
    details = run_details.collect(content, ledger, curves=False)
    return {"heading": content.title, "report": html.parts(report, content, details)}


def _items(ledger: Ledger, instance: LadderInstance) -> dict[str, Any]:
    """The test items of each rung beside its base, or why they cannot be drawn."""
    try:
        loaded = loaded_instance.of_instance(ledger, instance)
        compared = compared_items.collect(loaded, loaded.command)
    except LrurunError as error:
        return {"failure": Failure(error.message, error.hint)}
    words = ["lrurun", "plot", "--instance", instance.short_name, "--kind", "items", "--out", "items.csv"]
    return {
        "planes": page_figures.item_planes(compared),
        "caption": compared_items.caption(compared),
        "command": shlex.join([*words, *paths.place_options()]),
    }


def _study(ledger: Ledger, instance: LadderInstance) -> dict[str, Any]:
    """The report of `lrurun study`, as its HTML page has it."""
    figure = Markup('<img class="figure" src="/ladders/{}/figure.svg" alt="{}">').format(instance.key, _FIGURE)
    page = study_pages.of_instance(ledger, instance, figure)
    return {"heading": page.heading, "body": Markup(page.body)}


def drawing(ledger: Ledger, key: str) -> bytes:
    """The figure of a study, as an SVG file.

    Raises:
        NotFoundError: there is no such instance, or it is a ladder.
        LrurunError: it is not complete.
    """
    instance = ledger.ladder(key)
    if instance.kind in LADDER_KINDS:
        raise NotFoundError(f"instance {instance.short_name}: has no figure of its own", "its page has all of them")
    return study_pages.drawing(ledger, instance)


def ladder_curves(
    source: Source, ledger: Ledger, key: str, kind: curves.Kind, span: curves.Span, stamp: Stamp, *, seeds: bool
) -> Figure:
    """The curves of a ladder instance. Raises as `ladder` does, and for reports that cannot be made."""
    instance = ledger.ladder(key)
    loaded = loaded_instance.of_instance(ledger, instance)

    def counted() -> dict[str, RungRuns]:
        return loaded.counted()[0]

    selected = source.cached(("counted", instance.key), results_stamp(stamp), counted)
    return curves.ladder_figure(loaded.plan, selected, ledger, kind, span, source.cached, seeds=seeds)


def claims(source: Source, ledger: Ledger, stamp: Stamp) -> dict[str, Any]:
    """The table of `lrurun claims`. It reads all ladders: while they train, it may be older by ten times what that
    takes, so that a viewer leaves them the processor. The page then asks again."""
    made, wait = source.rested("claims", results_stamp(stamp), lambda: _claims(ledger), _REST)
    return made | {"wait": round(1000 * wait)}


def _claims(ledger: Ledger) -> dict[str, Any]:
    known, errors = ledger_claims.ladders_of(ledger)
    failures = [Failure(error.message, error.hint) for error in errors]  # of files of the user
    evidence = ledger_claims.gather(ledger, known, None, study_claims.evidence(ledger, None))
    document = ledger_claims.collect(evidence, known, None, None)
    counts = claims_table.count_table(document.claims, by_runs=ledger.exists)
    groups: dict[str, list[tuple[JudgedClaim, None]]] = {"Judged by this ledger": [], "Not judged": [], "Not run": []}
    for claim in document.claims:
        judged = "Judged by this ledger" if claim.shown in JUDGED else "Not judged"
        title = "Not run" if claim.shown == NOT_RUN else judged
        groups[title].append((claim, None))  # without a drawing of its interval, which is on the page of the ladder
    return {
        "failures": failures,
        "counts": structs.replace(counts, title="claims in this ledger"),
        "groups": list(groups.items()),
    }
