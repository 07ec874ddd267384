"""What the pages on ladders, claims and studies show."""

from __future__ import annotations

import hashlib
import re
import shlex
import time
from collections.abc import Mapping, Sequence, Set
from functools import partial
from typing import TYPE_CHECKING, Any
from urllib.parse import urlencode

from markupsafe import Markup
from msgspec import Struct, structs

from lrurun import paths
from lrurun.config.schema import LADDER_KINDS
from lrurun.errors import LrurunError, NotFoundError
from lrurun.instances import continuing
from lrurun.judging.verdicts import JUDGED, NOT_RUN
from lrurun.ledger import owner
from lrurun.ledger.part import Part
from lrurun.ledger.times import when
from lrurun.ledger.values import STATES
from lrurun.ledger.where.grammar import ValueComparison
from lrurun.report import formats, run_details
from lrurun.report.figures import compared_items, page_figures
from lrurun.report.figures.drawing import ladder_rates
from lrurun.report.formats import content_of, html
from lrurun.report.live import progress, projects
from lrurun.report.tables import claims_table, ledger_claims, loaded_instance
from lrurun.session import next_step
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


class Filter:
    """What the boxes of the list select: exactly what its address says."""

    NAMES = ("ladder", "task", "user", "tag", "state")

    def __init__(self, parameters: Mapping[str, Sequence[str]], path: str) -> None:
        def first(name: str) -> str:
            return next(iter(parameters.get(name, ())), "").strip()

        self.path = path
        self.chosen = {name: value for name in self.NAMES if (value := first(name))}
        self.with_hidden = bool(first("hidden"))

    @property
    def is_set(self) -> bool:
        """Whether the list is not the one without boxes."""
        return bool(self.chosen) or self.with_hidden

    def address(self, *, hidden: bool) -> str:
        """The address of the list with, or without, hidden instances."""
        parameters = {**self.chosen, **({"hidden": "1"} if hidden else {})}
        return self.path + (f"?{urlencode(parameters)}" if parameters else "")

    def has(self, instance: LadderInstance, now: progress.LadderProgress, tagged: Set[str]) -> bool:
        """Whether an instance meets every box; `tagged` are the keys of those that have a run with the tag."""
        values = {"ladder": instance.name, "task": instance.task, "user": instance.user or ""}
        if any(self.chosen.get(name, value) != value for name, value in values.items()):
            return False
        if "tag" in self.chosen and instance.key not in tagged:
            return False
        state = self.chosen.get("state")
        if state is None:
            return True
        return _is_over(now) if state == FINISHED_INSTANCE else bool(now.counts.get(state))


FINISHED_INSTANCE = "finished"
"""The box of instances of which nothing remains."""
_SHOWN = 10
"""Finished instances of a ladder on a task that are shown at first."""


def _is_over(now: progress.LadderProgress) -> bool:
    """Whether nothing of an instance remains to be done: a failed run would be tried again."""
    return not now.is_unfinished and not now.counts.get("failed")


def ladders(source: Source, ledger: Ledger, stamp: Stamp, wanted: Filter, *, studies: bool) -> dict[str, Any]:
    """The list of ladder instances, or of studies, by ladder and task, newest first: progress and conclusion of each.

    Hidden instances are left out, unless the boxes or the part of the ledger that is shown name them.
    """
    part, hidden = source.part(ledger, stamp), ledger.hidden()
    instances = [one for one in ledger.ladders_of(part) if (one.kind not in LADDER_KINDS) is studies]
    left_out = set() if wanted.with_hidden or part.instances else {one.key for one in instances if one.key in hidden}
    shown = [one for one in instances if one.key not in left_out]
    until = time.monotonic() + PATIENCE
    superseded = _superseded(source, ledger, stamp)
    tagged = ledger.tagged()
    of_tag: Set[str] = set()
    if "tag" in wanted.chosen:
        has_tag = Part(condition=ValueComparison("tag", "=", wanted.chosen["tag"], None))
        of_tag = {one.key for one in ledger.ladders_of(has_tag)}
    all_progress = {one.key: _progress(source, ledger, one, stamp) for one in shown}
    listed = [one for one in shown if wanted.has(one, all_progress[one.key], of_tag)]
    waiting = False
    groups = []
    by_group = projects.grouped(listed, lambda one: one, lambda one: all_progress[one.key].active_at)
    for (name, task), members in by_group.items():
        entries = []
        # superseded ones come last
        for instance in sorted(members, key=lambda one: one.key in superseded):
            now = all_progress[instance.key]
            conclusion = _known_conclusion(source, ledger, instance, now, stamp, until)
            waiting |= conclusion is None
            entries.append(_entry(instance, now, conclusion, superseded.get(instance.key, ""), instance.key in hidden))
        finished = [entry for entry in entries if entry["is_folded"]]
        groups.append(
            {
                "id": hashlib.blake2s(repr((name, task)).encode(), digest_size=6).hexdigest(),
                "heading": task if studies else projects.heading(name, task),
                "open": [entry for entry in entries if not entry["is_folded"]],
                "finished": finished[:_SHOWN],
                "older": finished[_SHOWN:],
            }
        )
    return {
        "groups": groups,
        "any": bool(instances),
        "hidden_count": len(left_out),
        "boxes": _boxes(shown, list(tagged), wanted),
        "filter": wanted,
        "waiting": waiting,
        "abandoned": ledger.has_abandoned(owner.this_process()),
        "studies": studies,
    }


def _boxes(instances: Sequence[LadderInstance], tags: Sequence[str], wanted: Filter) -> list[tuple[str, list[str]]]:
    """Name -> the values of each box that has a choice; what the address names is among them."""
    users = sorted({one.user for one in instances if one.user})
    values = {
        "ladder": sorted({one.name for one in instances}),
        "task": sorted({one.task for one in instances}),
        "user": users if len(users) > 1 else [],
        "tag": list(tags),
        "state": [FINISHED_INSTANCE, *(state for state in STATES if state != "done")],
    }
    boxes = []
    for name, known in values.items():
        chosen = wanted.chosen.get(name)
        every = known if chosen is None or chosen in known else [*known, chosen]
        boxes += [(name, every)] if every else []
    return boxes


def _known_conclusion(
    source: Source, ledger: Ledger, instance: LadderInstance, now: progress.LadderProgress, stamp: Stamp, until: float
) -> str | None:
    """The first sentence of the report; None if it is not known, and there is no time to make it."""
    key = ("conclusion", instance.key)
    counts = source.cached(
        ("item counts", instance.key), results_stamp(stamp), partial(ledger.item_totals, instance.key)
    )
    # not the stamp: where a run is training, it would have all conclusions made again all the time
    # finished runs of an import change when they are imported again
    of_import = results_stamp(stamp) if instance.kind == "imported" else None
    seen = (tuple(sorted(now.counts.items())), counts, of_import)
    conclusion: str | None = source.known(key, seen)
    if conclusion is None and time.monotonic() < until:
        conclusion = source.cached(key, seen, partial(_conclusion, ledger, instance))
    return conclusion


def _entry(
    instance: LadderInstance, now: progress.LadderProgress, conclusion: str | None, superseded: str, hidden: bool
) -> dict[str, Any]:
    """An instance in the list. What is finished is folded, and so is what has failed or is superseded."""
    facts = [
        progress.summary(now),
        *([f"{seeds} seed{'' if seeds == '1' else 's'}"] if (seeds := progress.seeds(now)) else []),
        *([f"finished {at} UTC"] if (at := projects.finished(now)) else []),
    ]
    return {
        "key": instance.key,
        "name": instance.short_name,
        "title": progress.title(instance),
        "asked": when(instance.created_at),
        "summary": progress.summary(now),
        "facts": ", ".join(facts),
        "best": progress.best_score(now),
        "done": _done(now),
        "total": now.total,
        "conclusion": conclusion,
        "superseded": superseded,
        "hidden": hidden,
        "is_folded": bool(superseded) or not now.is_unfinished,
    }


def _done(now: progress.LadderProgress) -> int:
    return sum(now.counts[state] for state in ("done", "diverged"))


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
        "done": _done(now),
        "total": now.total,
        "downloads": list(DOWNLOADS) if is_ladder else [],
        "names_of_formats": {ending: name for ending, (name, _) in DOWNLOADS.items()},
        "runs_address": f"/runs?{urlencode({'instance': instance.short_name})}",
        "of_ladder": is_ladder,
        "abandoned": ledger.has_abandoned(owner.this_process()),
        **shown,
    }


def _report(ledger: Ledger, instance: LadderInstance) -> dict[str, Any]:
    """The report of `lrurun report`, as its HTML page has it."""
    report = loaded_instance.of_instance(ledger, instance).report()
    content = content_of(report)
    details = run_details.collect(content, ledger, curves=False)
    return {"heading": instance.identity.named(content.title), "report": html.parts(report, content, details)}


DOWNLOADS: Mapping[str, tuple[str, str]] = {
    "txt": ("text", "text/plain"),
    "md": ("Markdown", "text/markdown"),
    "csv": ("CSV", "text/csv"),
    "tex": ("LaTeX", "application/x-tex"),
    "html": ("HTML", "text/html"),
    "json": ("JSON", "application/json"),
}
"""How the name of a report's file ends -> what its format is called, and its type."""


def download(source: Source, ledger: Ledger, key: str, ending: str, stamp: Stamp) -> tuple[str, str, bytes]:
    """The report of an instance as `lrurun report --instance NAME --out FILE` writes it: file name, type, content.

    Raises:
        NotFoundError: there is no such instance or format, or it is of a study.
        LrurunError: the report cannot be made.
    """
    instance = ledger.ladder(key)
    if instance.kind not in LADDER_KINDS or ending not in DOWNLOADS:
        known = ", ".join(DOWNLOADS)
        raise NotFoundError(f"instance {instance.short_name}: has no report.{ending}", f"ladders have: {known}")

    def make() -> bytes:
        loaded = loaded_instance.of_instance(ledger, instance)
        report, format = loaded.report(), formats.ENDINGS[f".{ending}"]
        details = run_details.collect(content_of(report), ledger) if format == "html" else None
        request = next_step.request_of(loaded)
        text = formats.render(report, format, details=details, answer=True, request=request)
        return (text if text.endswith("\n") else f"{text}\n").encode()

    content = source.cached(("download", instance.key, ending), results_stamp(stamp), make)
    name = re.sub(r"[^\w.+-]+", "_", instance.short_name, flags=re.ASCII).strip(".") or "report"
    return f"{name}.{ending}", DOWNLOADS[ending][1], content


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
    if kind == "rates":
        figure = ladder_rates(loaded.plan, loaded.identity, loaded.runs, instance.key, loaded.command)
        return curves.rates_figure(figure, span)

    def counted() -> dict[str, RungRuns]:
        return loaded.counted()[0]

    selected = source.cached(("counted", instance.key), results_stamp(stamp), counted)
    return curves.ladder_figure(loaded.plan, selected, ledger, kind, span, source.cached, seeds=seeds)


def claims(source: Source, ledger: Ledger, stamp: Stamp) -> dict[str, Any]:
    """The table of `lrurun claims`. It reads all ladders: while they train, it may be older by ten times what that
    takes, so that a viewer leaves them the processor. The page then asks again."""
    part = source.part(ledger, stamp)
    made, wait = source.rested("claims", results_stamp(stamp), lambda: _claims(ledger, part), _REST)
    return made | {"wait": round(1000 * wait)}


def _claims(ledger: Ledger, part: Part) -> dict[str, Any]:
    """All claims; of a part of the ledger those that its instances judge."""
    known, errors = ledger_claims.ladders_of(ledger)
    failures = [Failure(error.message, error.hint) for error in errors]  # of files of the user
    by_study = study_claims.evidence(ledger, None)
    evidence = ledger_claims.gather(ledger, known, None, by_study, part=part)
    document = ledger_claims.collect(evidence, known, None, None)
    claims: Sequence[JudgedClaim] = document.claims
    if not part.is_all:
        instances = ledger.ladders_of(part)
        keys, tasks = {instance.key for instance in instances}, {instance.task for instance in instances}
        studied = tasks & set(by_study)
        claims = [claim for claim in claims if claim.task in studied or (claim.here and claim.here.instance in keys)]
    counts = claims_table.count_table(claims, by_runs=ledger.exists)
    groups: dict[str, list[tuple[JudgedClaim, None]]] = {"Judged by this ledger": [], "Not judged": [], "Not run": []}
    for claim in claims:
        judged = "Judged by this ledger" if claim.shown in JUDGED else "Not judged"
        title = "Not run" if claim.shown == NOT_RUN else judged
        groups[title].append((claim, None))  # without a drawing of its interval, which is on the page of the ladder
    return {
        "failures": failures,
        "counts": structs.replace(counts, title="claims in this ledger"),
        "groups": list(groups.items()),
    }
