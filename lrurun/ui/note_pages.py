"""What the page on tags and notes shows: what people have written about runs, for others to read."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any
from urllib.parse import urlencode

from lrurun.errors import plural
from lrurun.ledger.times import when
from lrurun.ledger.values import REMOVED
from lrurun.report.figures import curves

if TYPE_CHECKING:
    from lrurun.ledger.ledger import Ledger
    from lrurun.ledger.values import Event, Run
    from lrurun.ui.source import Source, Stamp

_RUNS = 12
"""Runs of a tag that are listed; a link has all of them."""
_NOTES = 500
"""Notes, exclusions, hidden instances and removals that are shown, the newest of each."""
_TAGS = 500
"""Tags that are shown, the first in the alphabet."""


def notes(source: Source, ledger: Ledger, stamp: Stamp) -> dict[str, Any]:
    """Tags with their runs, notes, runs that reports leave out, hidden instances, and what was removed.

    Of a part of the ledger, what belongs to its runs and instances; removals belong to the whole ledger.
    """
    part = source.part(ledger, stamp)
    members = None if part.is_all else set(ledger.run_ids(part=part))

    def is_shown(run: str | None) -> bool:
        return members is None or run in members

    tagged = {tag: [run for run in of_tag if is_shown(run)] for tag, of_tag in ledger.tagged().items()}
    every_tag = [tag for tag, of_tag in tagged.items() if of_tag]
    tagged = {tag: tagged[tag] for tag in every_tag[:_TAGS]}
    noted = [event for event in ledger.events(kind="note") if event.run is not None and is_shown(event.run)]
    excluded = [exclusion for exclusion in ledger.exclusions() if is_shown(exclusion.run)]
    who_excluded = {event.run: _user(event) for event in ledger.events(kind="excluded")}
    named = {run for of_tag in tagged.values() for run in of_tag[:_RUNS]}
    named |= {event.run for event in noted[-_NOTES:] if event.run} | {one.run for one in excluded[:_NOTES]}
    runs = {run.id: run for run in ledger.runs(ids=named, superseded=True, brief=True)}
    instances = {instance.key: instance for instance in ledger.ladders_of(part)}
    hidden = {key: record for key, record in ledger.hidden().items() if key in instances}
    removals = ledger.removals()
    return {
        "tags": [
            {
                "name": tag,
                "count": plural(len(of_tag), "run"),
                "address": _address(tag),
                "runs": [_link(run, runs) for run in of_tag[:_RUNS] if run in runs],
                "more": max(len(of_tag) - _RUNS, 0),
            }
            for tag, of_tag in tagged.items()
        ],
        "notes": _by_text(
            [(event.run, event.time, _user(event), event.text) for event in reversed(noted[-_NOTES:]) if event.run],
            runs,
        ),
        "exclusions": _by_text(
            [(one.run, one.time, who_excluded.get(one.run), one.why) for one in excluded[:_NOTES]], runs
        ),
        "hidden": [
            {"key": key, "name": instances[key].short_name, "time": when(record.time), "user": record.user}
            for key, record in sorted(hidden.items(), key=lambda item: -item[1].time)[:_NOTES]
        ],
        "removals": [
            {
                "what": REMOVED[removal.kind],
                "selection": removal.selection,
                "runs": plural(removal.runs, "run"),
                "time": when(removal.time),
                "user": removal.user,
                "text": removal.why or "",
                "is_finished": removal.finished_at is not None,
            }
            for removal in reversed(removals[-_NOTES:])
        ],
        "more": {
            "tags": max(len(every_tag) - _TAGS, 0),
            "notes": max(len(noted) - _NOTES, 0),
            "exclusions": max(len(excluded) - _NOTES, 0),
            "hidden": max(len(hidden) - _NOTES, 0),
            "removals": max(len(removals) - _NOTES, 0),
        },
    }


def _user(event: Event) -> str | None:
    """Who wrote it; older versions did not record it."""
    user = (event.payload or {}).get("user")
    return user if isinstance(user, str) else None


def _address(tag: str) -> str | None:
    """The address of the table of the runs with a tag; None for a tag that no condition can name."""
    quote = next((sign for sign in "'\"" if sign not in tag), None)
    return None if quote is None else f"/runs?{urlencode({'where': f'tag={quote}{tag}{quote}'})}"


def _by_text(entries: Iterable[tuple[str, float, str | None, str]], runs: Mapping[str, Run]) -> list[dict[str, Any]]:
    """Run, time, user and text of notes -> one entry for all runs that one command has given the same."""
    together: dict[tuple[float, str | None, str], list[str]] = {}
    for run, time, user, text in entries:
        together.setdefault((time, user, text), []).append(run)
    return [
        {
            "runs": [_link(run, runs) for run in ids[:_RUNS]],
            "more": max(len(ids) - _RUNS, 0),
            "time": when(time),
            "user": user,
            "text": text,
        }
        for (time, user, text), ids in together.items()
    ]


def _link(run: str, runs: Mapping[str, Run]) -> dict[str, str]:
    """A run with the instance, rung and seed by which others know it."""
    known = runs.get(run)
    if known is None:
        return {"id": run, "name": ""}
    instance = f"{known.memberships[0].instance}: " if known.memberships else ""
    return {"id": run, "name": instance + curves.names_of([known])[run]}
