"""`lrurun verify --items`: per-item results of older runs, from their final checkpoints."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Literal

from msgspec import Struct

from lrurun import console
from lrurun.commands._shared import output
from lrurun.errors import LrurunError, UsageError, plural
from lrurun.session import opening

if TYPE_CHECKING:
    from lrurun.data.task import Data
    from lrurun.ledger.ledger import Ledger
    from lrurun.ledger.values import Run
    from lrurun.paths import Places

Status = Literal["added", "recorded", "different", "none", "no checkpoint"]


class RunItems(Struct, frozen=True, kw_only=True):
    """The per-item results of one run."""

    run: str
    status: Status
    """"added"; "recorded": it has some, and was left alone; "different": the evaluation does not give the recorded
    scores, and nothing was added; "none": it has no test scores that are means over items; "no checkpoint": its final
    checkpoint is not kept."""
    results: Sequence[str]
    """The names of the scores whose results were added."""
    detail: str | None
    """For people: what differs, or is missing."""


class VerifyItemsDocument(Struct, frozen=True, kw_only=True):
    """The JSON of `lrurun verify --items`."""

    runs: Sequence[RunItems]


def verify_items(places: Places, names: Sequence[str], instance: str | None, *, json: bool) -> int:
    """Adds per-item results to runs, or to the final runs of an instance. Returns the exit code.

    Raises:
        UsageError: neither is named.
        LrurunError: the data of a run are not in the data folder.
    """
    from lrurun.runner import run_files

    if not names and instance is None:
        raise UsageError("verify --items: expected RUNs, or --instance", "lrurun status lists the instances")
    done: list[RunItems] = []
    with opening.change(places, next(iter(names), None)) as ledger:
        for found in _each(ledger, places, _chosen(ledger, names, instance)):
            done.append(found)
            if found.status == "added":
                run_files.keep_run(ledger, places.runs, found.run)
            if not json:
                _print(found)
    if json:
        output.write_json(VerifyItemsDocument(runs=done))
    else:
        counts = {
            status: sum(one.status == status for one in done) for status in dict.fromkeys(one.status for one in done)
        }
        said = {"recorded": "had them before", "none": "have none", "no checkpoint": "without a final checkpoint"}
        listed = "; ".join(f"{count} {said.get(status, status)}" for status, count in counts.items())
        console.paragraph(f"{plural(len(done), 'run')}: {listed}")
    return 3 if any(one.status == "different" for one in done) else 0


def _chosen(ledger: Ledger, names: Sequence[str], instance: str | None) -> list[Run]:
    """The runs of these names, and the final runs of an instance, sorted by rung."""
    chosen = {run.id: run for run in (ledger.run(name) for name in names)}
    if instance is not None:
        key = ledger.ladder(instance).key
        of_instance = [
            (membership.rung, run.seed, run)
            for run in ledger.runs(key)
            for membership in run.memberships
            if membership.ladder_key == key and membership.stage == "train"
        ]
        chosen |= {run.id: run for *_, run in sorted(of_instance, key=lambda one: one[:2])}
    return list(chosen.values())


def _each(ledger: Ledger, places: Places, runs: Sequence[Run]) -> Iterator[RunItems]:
    loaded: dict[str, Data] = {}
    for run in runs:
        if ledger.item_names([run.id]):
            yield RunItems(run=run.id, status="recorded", results=(), detail=None)
        elif (why := _without(run)) is not None:
            yield RunItems(run=run.id, status="none", results=(), detail=why)
        else:
            yield _evaluated(ledger, places, run, loaded)


_NOT_TRAINED = {
    "program": "a program logs them itself",
    "study": "a cell of a study has no test items",
    "imported": "an import brings them: items in [import]",
}
"""Kind of runs -> why they are not evaluated."""


def _without(run: Run) -> str | None:
    """Why a run has no per-item results; None if it may have some."""
    if run.kind != "training":
        return _NOT_TRAINED[run.kind]
    if run.state != "done":
        return f"it is {run.state}"
    if not any(name.startswith("test") for name in run.result or {}):
        return "a tuning run has no test scores"
    return None


def _evaluated(ledger: Ledger, places: Places, run: Run, loaded: dict[str, Data]) -> RunItems:
    from lrurun import trained
    from lrurun.config import plugin_code
    from lrurun.data import task_data
    from lrurun.instances import documents
    from lrurun.report import again

    documents.load_code_of(ledger, run)
    try:
        checkpoint = trained.final(run, ledger.checkpoints(run.id, "committed"), places.runs)
    except LrurunError as error:
        detail = error.message.removeprefix(f"run {run.id}: ")
        return RunItems(run=run.id, status="no checkpoint", results=(), detail=detail)
    config = plugin_code.config_of(run.config, f"run {run.id}")
    plan = again.plan_of(run)
    folder, protocol = places.data / again.data_folder(plan, run, places.data), config.train.protocol
    if (key := f"{folder}|{protocol}") not in loaded:
        loaded.clear()  # one at a time: they may be large
        loaded[key] = task_data.load(plan.task, plan.options, folder, protocol)
    try:
        items = trained.items(run, config, checkpoint, loaded[key])
    except trained.OtherScores as error:
        return RunItems(run=run.id, status="different", results=(), detail=str(error))
    if not items:
        return RunItems(run=run.id, status="none", results=(), detail="no score of its task is a mean over items")
    return RunItems(run=run.id, status="added", results=ledger.record_items(run.id, items), detail=None)


def _print(found: RunItems) -> None:
    texts = {
        "added": f"added for {', '.join(found.results)}",
        "recorded": "recorded already",
        "different": f"not added: {found.detail}",
        "none": f"none: {found.detail}",
        "no checkpoint": f"not added: {found.detail}",
    }
    console.paragraph(console.clean(f"run {found.run}: per-item results {texts[found.status]}"))
