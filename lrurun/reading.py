"""The commands that read: status, runs, show, report. None of them creates a file or imports jax."""

from __future__ import annotations

import json as jsonlib
import math
import os
import time
from collections.abc import Mapping
from contextlib import nullcontext, suppress
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from msgspec import structs

from lrurun import catalog, console, listing, logs
from lrurun.errors import LedgerError, LrurunError, NotFoundError, UsageError, hint_for
from lrurun.ledger.values import Attempt, Event, Run
from lrurun.ledger.values import Ladder as Instance
from lrurun.paths import Places
from lrurun.report import comparison, detail, matrix, progress, render, sheet, sparkline, speed

if TYPE_CHECKING:
    from lrurun import plan as planning  # not otherwise: the tasks need NumPy, and lists of runs do not
    from lrurun.commands import Asked

WATCH_SECONDS = 1.0
PATIENCE_SECONDS = 30.0
"""How long a watch waits for a queue that nobody works on."""

MAIN_CURVES = ("train/loss", "val/accuracy")
"""Those that `show` draws."""
LOG_LINES = 10
"""Of a log that `show` prints."""


def status(places: Places, *, watch: bool, json: bool) -> int:
    """Every ladder of the ledger; with `watch`, the one that runs, until it is finished or nobody works on it."""
    if watch and json:
        raise UsageError("--watch shows for as long as it runs, --json prints one object", "leave one of them out")
    if watch:
        return _watch(places)
    found = _progress(places)
    if json:
        console.write(document({"ladders": [progress.as_json(p) for p in found]}))
        return 0
    if not found:
        console.say(f"no ladders in {places.ledger} yet; lrurun ladder TASK starts one")
    for number, one in enumerate(found):
        if console.is_screen():
            console.show(progress.view(one, console.width()))
            continue
        if number:
            console.write("")
        console.table(progress.title(one.ladder), progress.COLUMNS, progress.rows(one))
        console.write("\n".join(map(console.clean, [progress.summary(one), *progress.in_hand(one)])))
    return 0


def _watch(places: Places) -> int:
    from lrurun.report.live import Display

    at_work = [p for p in _progress(places) if p.counts.get("running") or p.counts.get("queued")]
    if not at_work:
        console.say("nothing to watch: no run is queued or running")
        return 0
    # the newest that has a run in hand, else the newest
    chosen = max(at_work, key=lambda p: (p.counts.get("running", 0) > 0, p.ladder.created_at))
    last_seen = time.monotonic()
    with Display() as display:
        while True:
            ledger = truthful(places)
            if ledger is None:
                raise LrurunError(f"{places.ledger}: the ledger has gone while it was watched", "put it back")
            with ledger:
                now = progress.collect(ledger, chosen.ladder)
                display.update(now, partial(ledger.runs, chosen.ladder.key, brief=True))
            if now.counts.get("running"):
                last_seen = time.monotonic()
            if not now.counts.get("running") and not now.counts.get("queued"):
                return 0
            if time.monotonic() - last_seen > PATIENCE_SECONDS:
                console.say("nothing has run for a while: the runs in the queue wait for their ladder command")
                return 0
            time.sleep(WATCH_SECONDS)


def _progress(places: Places) -> list[progress.Progress]:
    ledger = truthful(places)
    if ledger is None:
        return []
    with ledger:
        return [progress.collect(ledger, ladder) for ladder in ledger.ladders()]


def truthful(places: Places) -> Any:
    """The ledger, with the runs of dead processes marked where it can be written; None where there is none."""
    from lrurun.ledger import owner
    from lrurun.ledger.store import Ledger

    ledger = open_(places)
    folder = places.ledger.absolute().parent
    if ledger is None or not ledger.has_abandoned(owner.here()):
        return ledger
    if os.access(places.ledger, os.W_OK) and os.access(folder, os.W_OK):
        ledger.close()
        ledger = Ledger.open(places.ledger, create=False)
        ledger.reap(owner.here())
    return ledger


def open_(places: Places) -> Any:
    """The ledger for reading; None where there is none."""
    from lrurun.ledger.store import Ledger

    ledger = Ledger.read(places.ledger)
    if ledger is not None and ledger.note:
        console.warn(ledger.note)
    return ledger


def runs(
    places: Places,
    *,
    ladder: str | None,
    limit: int | None,
    json: bool,
    condition: str | None = None,
    sort: str | None = None,
) -> int:
    """Lists the runs of which `condition` holds, newest first or by `sort`; `limit` 0 is all of them."""
    ledger = truthful(places)
    found: list[Run] = []
    choice = listing.Choice(None, None, ())
    on_screen = limit is None and not json and console.is_screen()
    most = listing.SCREENFUL if on_screen else limit or None
    # all of them are read only where there is something to choose among them by
    part = most if (ladder, condition, sort) == (None, None, None) else None
    beyond = 0
    with ledger if ledger is not None else nullcontext():
        if ledger is not None:
            found = ledger.runs(superseded=True, brief=True, limit=part)
            beyond = ledger.number_of_runs() - len(found) if part else 0
        if condition is not None or sort is not None:
            choice = listing.Choice(condition, sort, list({name: None for run in found for name in run.result or ()}))
            if found and choice.of_settings:
                found = ledger.runs(superseded=True)
    if ladder is not None:
        names = {m.ladder for run in found for m in run.memberships}
        if found and ladder not in names:
            hint = hint_for(ladder, sorted(names), "ladders here")
            raise NotFoundError(f"ladder {ladder!r}: this ledger has no runs of it", hint)
        found = [run for run in found if any(m.ladder == ladder for m in run.memberships)]
    known, found = len(found), choice.apply(found)
    beyond += len(found[most:]) if most else 0
    found = found[:most]
    if json:
        console.write(document({"runs": [_run_json(run) for run in found]}))
        return 0
    rows = []
    tagged = any(run.tags for run in found)
    for run in found:
        first = run.memberships[0] if run.memberships else None
        result = run.result or {}
        rows.append(
            [
                run.id,
                run.task,
                first.rung if first else "",
                first.stage if first else "",
                str(run.seed),
                listing.state(run),
                f"{run.step}/{run.steps}",
                _percent(result.get("val/accuracy")),
                _percent(result.get("test/accuracy")),
                *([", ".join(run.tags)] if tagged else []),
            ]
        )
    if not rows:
        none = f"none of the {known} runs is so" if known else "no runs in {} yet; lrurun ladder TASK starts some"
        console.say(none.format(places.ledger))
        return 0
    headers = ["id", "task", "rung", "stage", "seed", "state", "step", "val %", "test %"]
    console.table(None, headers + ["tags"] * tagged, rows)
    if on_screen and beyond:
        console.say(f"and {beyond} more; --limit 0 lists all")
    return 0


def show(places: Places, prefix: str, *, json: bool, toml: bool = False) -> int:
    """One run in full; with `toml`, as a ladder that trains it again."""
    if json and toml:
        raise UsageError("--json and --toml are two documents", "leave one of them out")
    ledger = truthful(places)
    if ledger is None:
        raise NotFoundError(f"run {prefix!r}: there is no ledger at {places.ledger}", "name one with --ledger PATH")
    with ledger:
        run = ledger.run(prefix)
        attempts, metrics, events = ledger.attempts(run.id), ledger.metrics(run.id), ledger.events(run=run.id)
        checkpoints = ledger.checkpoints(run.id)
    if toml:
        from lrurun import again

        console.write(again.toml(run))
        return 0
    if json:
        table = {
            "run": _run_json(run),
            "config": run.config,
            "execution": run.execution,
            "provenance": run.provenance,
            "error": run.error,
            "attempts": [_attempt_json(attempt) for attempt in attempts],
            "metrics": {key: [[step, value] for step, value in curve] for key, curve in metrics.items()},
            "checkpoints": [
                {"step": c.step, "state": c.state, "path": c.path, "bytes": c.bytes, "sha256": c.sha256}
                for c in checkpoints
            ],
            "events": [_event_json(event) for event in events],
        }
        console.write(document(table))
        return 0
    where = ", ".join(dict.fromkeys(f"{m.ladder}/{m.rung} ({m.stage})" for m in run.memberships))
    console.write(f"run {run.id}: {run.task}, seed {run.seed}, {run.state} at step {run.step} of {run.steps}")
    console.write(console.clean(f"of {where or 'no ladder'}; {run.fingerprint}"))
    if run.tags:
        console.write(console.clean(f"tags: {', '.join(run.tags)}"))
    if run.excluded is not None:
        console.write(console.clean(f"excluded from every report: {run.excluded}"))
    if run.error:
        console.write(console.clean(run.error, lines=True))
    if run.result:
        console.table("result", ["metric", "value"], [[k, f"{v:.6g}"] for k, v in sorted(run.result.items())])
    flat = {**dict(catalog.flatten(run.config)), **dict(catalog.flatten(run.execution, "execution."))}
    console.table(
        "configuration",
        ["path", "value", "from"],
        [[k, str(v), run.provenance.get(k, "default")] for k, v in flat.items()],
    )
    console.table(
        "attempts",
        ["n", "started", "seconds", "from step", "where", "device", "how it ended"],
        [
            [
                str(a.n),
                listing.when(a.started_at) or "",
                f"{a.ended_at - a.started_at:.1f}" if a.ended_at else "",
                "" if a.resumed_from is None else str(a.resumed_from),
                f"{a.host}:{a.pid}",
                str(a.environment.get("device", "")) + _packed(a),
                a.reason or "",
            ]
            for a in attempts
        ],
    )
    curves = [[k, str(len(c)), *_ends(c)] for k, c in sorted(metrics.items())]
    console.table("curves", ["metric", "points", "first", "last", "least", "most"], curves)
    for line in sparklines(metrics):
        console.write(line)
    if events:
        console.table(
            "events", ["time", "kind", "text"], [[listing.when(e.time) or "", e.kind, e.text] for e in events]
        )
    if checkpoints:
        console.table("checkpoints", ["step", "state", "path"], [[str(c.step), c.state, c.path] for c in checkpoints])
    log = None
    with suppress(LrurunError):  # of a run whose folder would be elsewhere
        log = logs.path_of(places, run.id, attempts[-1].n) if attempts else None
    if log and (last := logs.tail(log, LOG_LINES)):
        console.write("\n".join([console.clean(f"log, the last lines of {log}"), *last]) + "\n")
    return 0


def sparklines(metrics: dict[str, list[tuple[int, float]]]) -> list[str]:
    """A line for each of the main curves that has more than one point."""
    levels = sparkline.BLOCKS if console.can_show(sparkline.BLOCKS) else sparkline.ASCII
    wide = max(map(len, MAIN_CURVES))
    room = min(console.width(), 100) - wide - 2
    curves = {name: [value for _, value in metrics.get(name, ())] for name in MAIN_CURVES}
    return [f"{k.ljust(wide)}  {sparkline.draw(c, room, levels)}" for k, c in curves.items() if len(c) > 1]


def report(
    places: Places,
    asked: Asked,
    *,
    instance: str | None,
    format: Any,
    out: Path | None,
    limit: int | None,
    speeds: bool = False,
) -> int:
    """The comparison table of one ladder instance, or that of its training speeds."""

    plan = None if instance else asked.plan()
    ledger = open_(places)
    if ledger is None:
        raise NotFoundError(
            f"{places.ledger}: there is no ledger, so there are no results", f"run: lrurun ladder {asked.task}"
        )
    with ledger:
        plan, found = chosen(ledger, asked.task, plan, instance, "report")
        made = (build_speeds if speeds else build)(plan, found, ledger, rungs=limit)
        details = _details(made, ledger, places.runs) if format == "html" else None
    _print(made, format, out, details)
    return 0


def report_all(places: Places, asked: Asked, *, format: Any, out: Path | None, limit: int | None) -> int:
    """A ladder on all its tasks that the ledger has, in one table; a profile is a column of its own."""
    from lrurun import plan as planning

    ladder = _first(catalog.load_ladder(asked.ladder), limit)
    ledger = open_(places)
    if ledger is None:
        raise NotFoundError(
            f"{places.ledger}: there is no ledger, so there are no results",
            f"run: lrurun ladder TASK --ladder {ladder.name}",
        )
    with ledger:
        reports, notes, others = [], [], []
        refused: LrurunError | None = None
        for found in sorted(ledger.find_ladders(ladder.name), key=_place):
            if asked.profile not in (None, found.profile) or not _may_be(found, asked):
                others.append(progress.title(found))
                continue
            try:
                plan = planning.make(
                    found.task,
                    ladder=asked.ladder,
                    profile=found.profile,
                    sets=[*asked.sets, *_protocol(found)],
                    tune=asked.tune,
                    imports=False,  # what the ladder itself names is there
                )
                if plan.spec == found.spec:
                    reports.append(build(plan, found, ledger, rungs=limit))
                else:
                    others.append(progress.title(found))
            except LrurunError as error:
                refused = refused or error
                notes.append(f"left out: {progress.title(found)}: {error.message}")
        if not reports:
            if refused is not None:
                raise refused
            wanted = f"ladder {ladder.name}" + (f", profile {asked.profile}" if asked.profile else "")
            hint = f"this ledger has: {_some(others)}" if others else f"run: lrurun ladder TASK --ladder {ladder.name}"
            raise NotFoundError(f"{wanted}: on no task of this ledger", hint)
        if others:
            notes.append(f"left out, being of another profile, --set or --tune: {_some(others)}")
        made = matrix.build(ladder, reports, notes)
        details = _details(made, ledger, places.runs) if format == "html" else None
    _print(made, format, out, details)
    return 0


def _place(instance: Instance) -> tuple[int, str, str]:
    """Tasks in the order of `lrurun list tasks`, the plain recipe of each before its profiles."""
    from lrurun import tasks

    known = list(tasks.TASKS)
    number = known.index(instance.task) if instance.task in known else len(known)
    return number, instance.task, instance.profile or ""


def _may_be(instance: Instance, asked: Asked) -> bool:
    """Whether it can have been asked for: told without its plan, as there may be hundreds of other settings."""
    if instance.spec["tune"] != asked.tune:
        return False
    return bool(asked.sets) or not set(instance.spec["set"]) - {"train.protocol"}


def _protocol(instance: Instance) -> list[str]:
    """The protocol that the instance was given, if any: tasks know unequal ones, and each column names its own."""
    protocol = instance.spec["set"].get("train.protocol")
    return [] if protocol is None else [f"train.protocol={protocol}"]


def _some(titles: list[str], most: int = 5) -> str:
    more = f"; and {len(titles) - most} more" if len(titles) > most else ""
    return "; ".join(titles[:most]) + more


def _print(made: render.AnyReport, format: Any, out: Path | None, details: dict[str, detail.Detail] | None) -> None:
    """A report to stdout, or into a file."""
    text = render.render(
        made,
        format,
        width=console.width() if out is None else console.PIPE_WIDTH,
        color=out is None and console.has_color(),
        details=details,
    )
    if out is None:
        console.write(text, styled=format == "table")
        return
    _write(out, text if text.endswith("\n") else text + "\n")
    console.say(f"wrote {out}")


def _details(made: render.AnyReport, ledger: Any, folder: Path) -> dict[str, detail.Detail]:
    page = render.layout(made)
    ids = {run for group in page.groups for run in (*group.runs, *group.others)}
    spectra = _spectra([group.runs[0] for group in page.groups if group.runs], ledger, folder) if page.curves else {}
    return detail.collect(ledger, ids, page.document["metric"], spectra)


def _spectra(ids: list[str], ledger: Any, folder: Path) -> dict[str, tuple[Any, Any]]:
    """Run id -> eigenvalues before and after training, of those whose checkpoints are on disk."""
    kept = [run for run in ledger.runs(ids=ids) if ledger.checkpoints(run.id, "committed")]
    if not kept:
        return {}
    console.say(f"reading the eigenvalues of {len(kept)} run{'s' if len(kept) > 1 else ''}")
    from lrurun import spectra

    found = {}
    for run in kept:
        try:
            _, initial, trained = spectra.before_and_after(run, ledger, folder)
            found[run.id] = sum(initial, ()), sum(trained, ())
        except LrurunError as error:
            console.warn(f"the page goes without the eigenvalues of run {run.id}: {error.message}")
    return found


def chosen(
    ledger: Any, task: str, plan: planning.Plan | None, instance: str | None, command: str
) -> tuple[planning.Plan, Instance]:
    """The ladder instance that is asked for, by its plan or else by its id, with its plan.

    Raises:
        NotFoundError: the ledger has none such.
    """
    if plan is not None:
        return plan, _instance(ledger, plan)
    found = ledger.ladder(instance)
    if found.task != task:
        raise NotFoundError(
            f"instance {instance} is of task {found.task}, not {task}",
            f"run: lrurun {command} {found.task} --instance {instance}",
        )
    from lrurun import plan as planning

    sets, tune = found.spec["set"], found.spec["tune"]
    return planning.make(
        found.task, ladder=found.name, profile=found.profile, sets=sets, tune=tune, imports=False
    ), found


def _write(out: Path, text: str) -> None:
    write_whole(out, text.encode())


def write_whole(out: Path, content: bytes) -> None:
    """A file whole or not at all; into a pipe or device as it is."""
    target = out.resolve()
    try:
        if target.is_file():
            with target.open("rb") as file:
                if file.read(15) == b"SQLite format 3":
                    raise UsageError(f"--out {out}: is a database, and would be lost", "choose another --out FILE")
    except OSError as error:
        raise LrurunError(f"{out}: {error.strerror}", "choose another --out FILE") from None
    temporary = target.with_name(f".{target.name}.{os.getpid()}.tmp")
    try:
        if out.exists() and not out.is_file():
            out.write_bytes(content)
            return
        temporary.write_bytes(content)
        temporary.replace(target)
    except OSError as error:
        temporary.unlink(missing_ok=True)
        raise LrurunError(f"{out}: {error.strerror}", "choose another --out FILE") from None


def _instance(ledger: Any, plan: planning.Plan) -> Instance:
    for found in ledger.find_ladders(plan.ladder.name, plan.recipe.task):
        if found.profile == plan.profile and found.spec == plan.spec:
            return found
    others = [f"{progress.title(o)} (--instance {o.key})" for o in ledger.find_ladders(None, plan.recipe.task)]
    run = f"lrurun ladder {plan.recipe.task}" + (f" --profile {plan.profile}" if plan.profile else "")
    hint = f"this ledger has: {'; '.join(others)}" if others else f"run: {run}"
    wanted = f"ladder {plan.ladder.name} on {plan.recipe.task}" + (f", profile {plan.profile}" if plan.profile else "")
    raise NotFoundError(f"{wanted}: not in this ledger", hint)


def build(plan: planning.Plan, instance: Instance, ledger: Any, *, rungs: int | None = None) -> comparison.Report:
    """The report on an instance, from its runs in the ledger."""
    task = plan.task
    current, notes = _current(plan, instance, ledger.runs(instance.key))
    return comparison.build(
        _first(plan.ladder, rungs),
        task=task.name,
        profile=plan.profile,
        instance=instance.key,
        runs=current,
        notes=notes,
        same_as_before=plan.same_as_before,
        test_items=task.sizes(plan.options)["test"],
        data=_data(ledger, [run for run in current if run.excluded is None]),
        chance=1 / task.classes,
    )


def build_speeds(plan: planning.Plan, instance: Instance, ledger: Any, *, rungs: int | None = None) -> speed.Report:
    """The training speeds of an instance, from its runs in the ledger."""
    current, notes = _current(plan, instance, ledger.runs(instance.key))
    return speed.build(
        _first(plan.ladder, rungs),
        task=plan.task.name,
        profile=plan.profile,
        instance=instance.key,
        runs=current,
        last_attempt=partial(_newest, ledger.newest_attempts([run.id for run in current])),
        notes=notes,
        same_as_before=plan.same_as_before,
    )


def counted(
    plan: planning.Plan, instance: Instance, ledger: Any, metric: str = comparison.METRIC
) -> tuple[dict[str, comparison.Selected], list[str]]:
    """Rung -> the runs of an instance that a report counts, and notes on those that it leaves out."""
    current, notes = _current(plan, instance, ledger.runs(instance.key))
    return (
        comparison.select(
            plan.ladder,
            instance=instance.key,
            runs=current,
            same_as_before=plan.same_as_before,
            metric=metric,
            notes=notes,
        ),
        notes,
    )


def _first(ladder: catalog.Ladder, rungs: int | None) -> catalog.Ladder:
    """The ladder's first so many rungs, and what is said of them: a checked part of a checked document."""
    if rungs is None:
        return ladder
    named = {rung.name for rung in ladder.rungs[:rungs]}
    return structs.replace(
        ladder,
        rungs=ladder.rungs[:rungs],
        speeds=tuple(s for s in ladder.speeds if s.rung is None or s.rung in named),
        claims=tuple(c for c in ladder.claims if {c.rung, c.than} <= named),
        grid=None,
    )


def _data(ledger: Any, found: list[Run]) -> dict[str, Any]:
    """What the newest finished run recorded of its data; reports refuse runs of unequal ones."""
    for run in sorted(found, key=lambda run: run.finished_at or 0.0, reverse=True):
        for attempt in reversed(ledger.attempts(run.id)):
            if "data" in attempt.environment:
                return dict(attempt.environment["data"])
    return {}


def _current(plan: planning.Plan, instance: Instance, found: list[Run]) -> tuple[list[Run], list[str]]:
    """The runs whose settings are those that ladder and recipe have now, and a note on the others."""
    from lrurun import plan as planning

    free = tuple(plan.grid) if plan.tune else ()
    wanted = {rung.name: planning.common_settings(planning.plain(rung.config), free) for rung in plan.rungs}
    current, others = [], []
    for run in found:
        rungs = {m.rung for m in run.memberships if m.ladder_key == instance.key and m.stage == "train"}
        if rungs and planning.common_settings(run.config, free) not in [
            wanted[rung] for rung in rungs if rung in wanted
        ]:
            others.append(run.id)
        else:
            current.append(run)
    if not others:
        return current, []
    return current, [f"left out, because ladder or recipe say otherwise now: {', '.join(sorted(others))}"]


def _run_json(run: Run) -> dict[str, Any]:
    first = run.memberships[0] if run.memberships else None
    return {
        "id": run.id,
        "fingerprint": run.fingerprint,
        "task": run.task,
        "ladder": first.ladder if first else None,
        "rung": first.rung if first else None,
        "stage": first.stage if first else None,
        "seed": run.seed,
        "profile": first.profile if first else None,
        "state": run.state,
        "step": run.step,
        "steps": run.steps,
        "parameters": run.parameters,
        "metrics": run.result or {},
        "ladders": [
            {"ladder": m.ladder, "task": m.task, "profile": m.profile, "rung": m.rung, "stage": m.stage}
            for m in run.memberships
        ],
        "created_at": listing.when(run.created_at),
        "finished_at": listing.when(run.finished_at),
        "superseded": run.superseded,
        "data_sha256": run.data_sha256,
        "tags": list(run.tags),
        "excluded": run.excluded,
    }


def _attempt_json(attempt: Attempt) -> dict[str, Any]:
    return {
        "n": attempt.n,
        "host": attempt.host,
        "pid": attempt.pid,
        "started_at": listing.when(attempt.started_at),
        "ended_at": listing.when(attempt.ended_at),
        "reason": attempt.reason,
        "resumed_from": attempt.resumed_from,
        "environment": attempt.environment,
    }


def _event_json(event: Event) -> dict[str, Any]:
    return {"attempt": event.attempt, "time": listing.when(event.time), "kind": event.kind, "text": event.text}


def document(table: dict[str, Any]) -> str:
    """The one JSON object of a command."""
    return jsonlib.dumps(sheet.finite({"schema_version": 1, **table}), indent=2, allow_nan=False)


def _newest(attempts: Mapping[str, Attempt], run: str) -> Attempt:
    if run not in attempts:
        raise LedgerError(f"run {run} has a result and no attempt that it came from", "lrurun ledger check tells more")
    return attempts[run]


def _percent(value: float | None) -> str:
    return "" if value is None else f"{100 * value:.2f}"


def _packed(attempt: Attempt) -> str:
    count = attempt.environment.get("packed", 1)
    return f", one of {count} runs packed" if isinstance(count, int) and count > 1 else ""


def _ends(curve: list[tuple[int, float]]) -> list[str]:
    values = [value for _, value in curve]
    finite = [value for value in values if math.isfinite(value)] or [math.nan]
    return [f"{v:.4g}" for v in (values[0], values[-1], min(finite), max(finite))]
