"""The progress of a ladder, read from the ledger alone: every terminal shows the same."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from itertools import chain, pairwise
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from msgspec import Struct

from lrurun import kinds
from lrurun.config.runs import point
from lrurun.config.schema import LADDER_KINDS
from lrurun.console import clean, duration, wrapped
from lrurun.data import tasks
from lrurun.errors import plural
from lrurun.judging.scores import ACCURACY, ScoreForm, number, of_instance, of_task
from lrurun.ledger import owner
from lrurun.ledger.values import (
    FINISHED,
    REMOVED,
    STATES,
    Attempt,
    LadderInstance,
    RemainingWork,
    RemovalKind,
    Run,
    StateSummary,
)
from lrurun.report import devices
from lrurun.table import KEPT, Column, Table

if TYPE_CHECKING:
    from lrurun.ledger.ledger import Ledger


SILENT_SECONDS, SILENT_DISPATCHES = 30.0, 10.0
"""A worker that has written nothing for both of these has not advanced for longer than usual: evaluations and
checkpoints, which come between dispatches, take less."""


class RungProgress(Struct, frozen=True, kw_only=True):
    """One rung and stage of a ladder."""

    rung: str
    stage: str
    counts: dict[str, int]
    """State -> how many runs have it."""
    step: int
    """Steps taken by all its runs."""
    steps: int
    loss: float | None
    """The mean training loss of its finished runs, or of the running ones until one has finished."""
    score: float | None
    """The mean of the finite validation scores of the same runs."""
    scored: int
    """How many runs have one."""
    speed: float | None
    """The median of the steps a second of its runs."""
    eta_seconds: float | None

    @property
    def total(self) -> int:
        return sum(self.counts.values())

    @property
    def without_score(self) -> int:
        """Finished runs that diverged or have no finite validation score."""
        return self.counts.get("diverged", 0) + self.counts.get("done", 0) - self.scored


REMAINING = ("queued", "running", "interrupted")
"""The states of runs that remain: a failed one is only tried again on request."""


class LadderProgress(Struct, frozen=True, kw_only=True):
    """A ladder instance at one moment."""

    ladder: LadderInstance
    counts: dict[str, int]
    rungs: tuple[RungProgress, ...]
    eta_seconds: float | None
    """The time left; None where nothing is running, or no speed is recorded yet."""
    running: tuple[Run, ...]
    running_on: dict[str, str]
    """Id of a running run -> host, process and device."""
    silent: dict[str, tuple[float, float]] = {}
    """Id of a running run whose worker has not advanced for long -> seconds since it did, and those that the steps of
    a dispatch usually take."""
    form: ScoreForm = ACCURACY
    """How the scores of its task are printed."""
    active_at: float
    """When a run of it was last created or finished; without runs, when it was requested first."""
    finished_at: float | None
    """When the last of its runs ended; None while runs remain."""
    removed: Mapping[RemovalKind, int] = MappingProxyType({})
    """How many runs it had that were forgotten, or left out of this copy, and are not back."""

    @property
    def total(self) -> int:
        return sum(self.counts.values())

    @property
    def is_running(self) -> bool:
        """Whether a run of it is running."""
        return bool(self.counts.get("running"))

    @property
    def is_unfinished(self) -> bool:
        """Whether runs of it remain; nothing remains of an import, and a failed run is only tried again on request."""
        if self.ladder.kind == "imported":
            return False
        return any(self.counts.get(state) for state in REMAINING)


def collect(ledger: Ledger, ladder: LadderInstance) -> LadderProgress:
    """The progress of one ladder instance."""
    form = _form(ledger, ladder)
    summaries = ledger.state_summaries(ladder.key, form.validation)
    counts: dict[str, int] = dict.fromkeys(STATES, 0)
    if _may_share_runs(summaries):
        counts |= ledger.state_counts(ladder.key)
    else:
        for summary in summaries:
            counts[summary.state] += summary.count
    work: dict[tuple[str, str] | None, RemainingWork] = {}
    usual = None
    if counts["queued"] or counts["running"]:
        work = ledger.remaining_work(ladder.key)
        usual = _median_speed(summaries)
    groups: dict[tuple[str, str], list[StateSummary]] = {}
    for summary in summaries:
        groups.setdefault((summary.rung, summary.stage), []).append(summary)
    running = ledger.runs(ladder.key, states=["running"]) if counts["running"] else []
    attempts = ledger.newest_attempts([run.id for run in running]) if running else {}
    rungs = tuple(
        _rung(*rung_and_stage, group, work.get(rung_and_stage), usual) for rung_and_stage, group in groups.items()
    )
    return LadderProgress(
        ladder=ladder,
        counts=counts,
        rungs=rungs,
        eta_seconds=work[None].duration(usual) if None in work else None,
        running=tuple(running),
        running_on={run.id: _process(attempts[run.id]) for run in running},
        silent=_silent(ladder, running, attempts, rungs, ledger.clock()) if running else {},
        form=form,
        active_at=max([ladder.created_at, *(at for s in summaries for at in (s.created_at, s.finished_at or 0.0))]),
        finished_at=None
        if ladder.kind != "imported" and any(counts[state] for state in REMAINING)
        else max((s.finished_at for s in summaries if s.finished_at is not None), default=None),
        removed=_removed(ledger, ladder),
    )


def _removed(ledger: Ledger, ladder: LadderInstance) -> dict[RemovalKind, int]:
    runs: dict[RemovalKind, set[str]] = {}
    for run in ledger.removed_from(ladder.key):  # a run in several rungs counts once
        runs.setdefault(run.kind, set()).add(run.run)
    return {kind: len(ids) for kind, ids in runs.items()}


class SweepProgress(Struct, frozen=True, kw_only=True):
    """The instances of a sweep at one moment."""

    instances: tuple[LadderProgress, ...]
    counts: dict[str, int]
    """State -> how many runs have it; a run that several instances have counts once."""
    eta_seconds: float | None
    """The time left; None where nothing is running, or no speed is recorded yet."""


def collect_sweep(ledger: Ledger, ladders: Sequence[LadderInstance]) -> SweepProgress:
    """The progress of the instances of a sweep."""
    instances = tuple(collect(ledger, ladder) for ladder in ladders)
    counts, work = ledger.work_of_several([ladder.key for ladder in ladders])
    speeds = [rung.speed for progress in instances for rung in progress.rungs if rung.speed is not None]
    usual = _median(speeds)
    return SweepProgress(
        instances=instances, counts=dict.fromkeys(STATES, 0) | counts, eta_seconds=work.duration(usual)
    )


def _silent(
    ladder: LadderInstance,
    running: Sequence[Run],
    attempts: Mapping[str, Attempt],
    rungs: Sequence[RungProgress],
    now: float,
) -> dict[str, tuple[float, float]]:
    """What `LadderProgress.silent` says. A run without a step may be compiling, which takes as long as it takes."""
    speeds = {(rung.rung, rung.stage): rung.speed for rung in rungs}
    silent = {}
    for run in running:
        rung, stage, _ = _member(run, ladder.key)
        speed, since = speeds.get((rung, stage)), now - attempts[run.id].seen_at
        if run.step and speed:
            usual = run.execution.steps_per_dispatch / speed
            if since > max(SILENT_SECONDS, SILENT_DISPATCHES * usual):
                silent[run.id] = since, usual
    return silent


def _form(ledger: Ledger, ladder: LadderInstance) -> ScoreForm:
    """The form of the scores of a ladder's task; if that is not loaded, from what one of its runs has recorded."""
    if ladder.task in tasks.TASKS:
        return of_task(ladder.task)
    if programs := of_instance(ledger, ladder):
        return programs[ladder.task]
    begun = ledger.runs(ladder.key, states=("done", "running"), brief=True)
    names = next((run.result for run in begun if run.result), None)
    return of_task(ladder.task, names or (ledger.metrics(begun[0].id) if begun else ()))


def _may_share_runs(summaries: list[StateSummary]) -> bool:
    """Whether a run can be in several rungs or stages: these have configurations between the same numbers."""
    spans: dict[tuple[str, str], tuple[int, int]] = {}
    for summary in summaries:
        first, last = spans.get((summary.rung, summary.stage), (summary.first_config, summary.last_config))
        spans[summary.rung, summary.stage] = min(first, summary.first_config), max(last, summary.last_config)
    return any(last >= first for (_, last), (first, _) in pairwise(sorted(spans.values())))


def _process(newest: Attempt) -> str:
    device = devices.name(newest)
    return f"{newest.host}:{newest.pid}" + (f" ({device})" if device else "")


def columns(progress: LadderProgress) -> tuple[str, ...]:
    """The headings of `rows`."""
    score = () if _is_without_score(progress) else (f"mean val {progress.form.heading}",)
    return ("rung", "runs", "state", "steps", "loss", *score, "steps/s", "time left")


def _is_without_score(progress: LadderProgress) -> bool:
    """Whether the runs are not trainings, which alone have a score."""
    return progress.ladder.kind not in LADDER_KINDS


def rows(progress: LadderProgress) -> list[list[str]]:
    """One line for each rung, with a cell for each of `columns`."""
    return [
        [
            rung.rung + (" (tune)" if rung.stage == "tune" else ""),
            f"{rung.counts.get('done', 0) + rung.counts.get('diverged', 0)}/{rung.total}",
            "compiling" if _is_compiling(rung, progress) else state_of(_counts(rung.counts, progress.ladder)),
            f"{rung.step / rung.steps:.0%}" if rung.steps and progress.ladder.kind != "imported" else "",
            "" if rung.loss is None else number(rung.loss, 3),
            *([] if _is_without_score(progress) else ["" if rung.score is None else progress.form.short(rung.score)]),
            "" if rung.speed is None else f"{rung.speed:.{0 if rung.speed >= 10 else 1}f}",
            "" if rung.eta_seconds is None else duration(rung.eta_seconds),
        ]
        for rung in progress.rungs
    ]


def _is_compiling(rung: RungProgress, progress: LadderProgress) -> bool:
    """Whether the first runs of a rung have taken no step: their program is compiled before the first one."""
    return progress.ladder.kind == "training" and bool(rung.counts.get("running")) and not rung.step


def running_lines(progress: LadderProgress) -> list[str]:
    """One line for each running run."""
    lines = []
    for run in progress.running:
        name, stage, _ = _member(run, progress.ladder.key)
        subject = _seed(run, name if stage != "tune" else f"{name} (tune),")
        text = f"{subject} ({run.id}) at {run.reached} on {progress.running_on[run.id]}"
        if run.id in progress.silent:
            since, usual = progress.silent[run.id]
            often = f"{usual:.1f} s" if usual < 60 else duration(usual)
            text += f": has not advanced for {duration(since)} (a dispatch usually takes {often})"
        lines.append(text)
    return lines


def view(progress: LadderProgress, width: int, *, color: bool = False) -> list[str]:
    """The lines of the live view: one for each rung, one for the ladder, the answer so far, and running runs.

    Columns keep their widths from one drawing to the next. A narrow terminal gets fewer of them, and of the running
    runs only those that do not advance.
    """
    table = _table(progress)
    fitted = table.fit(width)
    lines = [*wrapped(clean(title(progress.ladder)), width), ""]
    lines += table.stacked(width) if fitted is None else fitted.lines(color=color)
    running = [
        line
        for run, line in zip(progress.running, running_lines(progress), strict=True)
        if width >= _NARROW or run.id in progress.silent
    ]
    for text in ("", summary(progress), *filter(None, [so_far(progress)]), *running):
        lines += wrapped(clean(text), width)
    return lines


def view_sweep(progress: SweepProgress, width: int, *, color: bool = False) -> list[str]:
    """The lines of the live view of a sweep: one for each instance, one for all, and running runs."""
    table = _sweep_table(progress)
    fitted = table.fit(width)
    ladder = progress.instances[0].ladder
    about = f"ladder {ladder.name} on {ladder.task}" + (f", profile {ladder.profile}" if ladder.profile else "")
    lines = [*wrapped(clean(f"sweep of {plural(len(progress.instances), 'instance')}: {about}"), width), ""]
    lines += table.stacked(width) if fitted is None else fitted.lines(color=color)
    running: dict[str, str] = {}
    for instance in progress.instances:
        for run, line in zip(instance.running, running_lines(instance), strict=True):
            if width >= _NARROW or run.id in instance.silent:
                running.setdefault(run.id, f"{instance.ladder.short_name}: {line}")  # of a shared run, once
    for text in ("", sweep_summary(progress), *running.values()):
        lines += wrapped(clean(text), width)
    return lines


def view_of(progress: LadderProgress | SweepProgress, width: int, *, color: bool = False) -> list[str]:
    """The lines of the live view of a ladder or a sweep."""
    if isinstance(progress, SweepProgress):
        return view_sweep(progress, width, color=color)
    return view(progress, width, color=color)


def _sweep_table(progress: SweepProgress) -> Table:
    def column(name: str, cell: Callable[[LadderProgress], str], priority: int, **fields: Any) -> Column:
        return Column(name=name, cell=lambda row: clean(cell(row)), priority=priority, **({"right": False} | fields))

    def finished(row: LadderProgress) -> str:
        return f"{row.counts.get('done', 0) + row.counts.get('diverged', 0)}/{row.total}"

    def steps(row: LadderProgress) -> str:
        total = sum(rung.steps for rung in row.rungs)
        return f"{sum(rung.step for rung in row.rungs) / total:.0%}" if total else ""

    columns = (
        column("instance", lambda row: row.ladder.short_name, KEPT),
        column("runs", finished, 3, right=True),
        column("state", lambda row: state_of(_counts(row.counts, row.ladder)), KEPT, whole=True),
        column("steps", steps, 1, right=True),
        column("best on validation", _best, 2),
    )
    return Table(columns=columns, rows=progress.instances)


def _best(progress: LadderProgress) -> str:
    """The rung with the best scores of an instance so far, with them."""
    best = _best_rung(progress)
    if best is None or best.score is None:
        return ""
    return f"{best.rung}, {progress.form.labelled(progress.form.short(best.score))}"


def sweep_summary(progress: SweepProgress) -> str:
    """As `summary`, for all instances together."""
    silent = {run: since for instance in progress.instances for run, since in instance.silent.items()}
    return _summary(progress.counts, progress.instances[0].ladder, silent, progress.eta_seconds)


_NARROW = 76
"""The width of a terminal below which running runs are not shown."""


def _table(progress: LadderProgress) -> Table:
    names = columns(progress)
    widths = {
        "runs": 2 * max((len(str(rung.total)) for rung in progress.rungs), default=1) + 1,
        "state": len("interrupted"),
        "loss": len("12.345"),
    }
    order = ("loss", "steps/s", "steps", "time left", names[5], "runs")

    def column(k: int, name: str) -> Column:
        is_text, width = name in ("rung", "state"), widths.get(name, 0)
        return Column(
            name=name,
            cell=lambda row: clean(row[k]).ljust(width) if is_text else row[k].rjust(width),
            right=not is_text,
            whole=name == "state",
            priority=order.index(name) if name in order else KEPT,
        )

    return Table(columns=tuple(column(k, name) for k, name in enumerate(names)), rows=tuple(rows(progress)))


def best(progress: LadderProgress) -> RungProgress | None:
    """The rung with the best scores of those that have finished runs; None unless there are several, and where the
    best is no better than chance."""
    return None if sum(map(_is_scored, progress.rungs)) < 2 else _best_rung(progress)


def best_score(progress: LadderProgress) -> str:
    """The `best` rung and its score, as in "gamma-norm, 93.1 %"; empty if there is none."""
    rung = best(progress)
    if rung is None or rung.score is None:
        return ""
    return f"{rung.rung}, {progress.form.labelled(progress.form.short(rung.score))}"


def so_far(progress: LadderProgress) -> str:
    """A sentence with the `best` rung; empty if there is none."""
    rung = best(progress)
    if rung is None:
        return ""
    seeds = plural(rung.scored, "seed")
    return f"best on validation{' so far' * progress.is_unfinished}: {best_score(progress)} (mean of {seeds})"


def _is_scored(rung: RungProgress) -> bool:
    """Whether a rung has finished runs with a validation score."""
    return rung.stage == "train" and rung.score is not None and bool(rung.counts.get("done"))


def _best_rung(progress: LadderProgress) -> RungProgress | None:
    """The rung with the best scores; None where there is none, or it is no better than chance."""
    finished = list(filter(_is_scored, progress.rungs))
    least = min((rung.without_score for rung in finished), default=0)  # means of other seeds alone would mislead
    candidates = [rung for rung in finished if rung.without_score == least]
    score = progress.form.best(rung.score for rung in candidates if rung.score is not None)
    if score is None or _is_chance(score, progress.ladder.task):
        return None
    return next(rung for rung in candidates if rung.score == score)


def _is_chance(score: float, task: str) -> bool:
    """Whether a score is near or below chance, where the metric of the task says so."""
    metric = tasks.metric_with_chance(task) if task in tasks.TASKS else None
    if metric is None or metric.chance is None:
        return False
    return metric.oriented(score) <= metric.oriented(metric.chance) + (metric.near_chance or 0)


def seeds(progress: LadderProgress) -> str:
    """How many runs its rungs have, as in "3" or "1 to 3"; empty where it has none, or no seeds."""
    totals = [rung.total for rung in progress.rungs if rung.stage == "train"]
    if not totals or _is_without_score(progress):
        return ""
    least, most = min(totals), max(totals)
    return str(most) if least == most else f"{least} to {most}"


def not_done(progress: LadderProgress) -> str:
    """Its runs that are in another state than done, as in "1 diverged, 2 failed"; empty if there are none."""
    return _not_done(progress.counts, progress.ladder)


def _not_done(by_state: Mapping[str, int], ladder: LadderInstance) -> str:
    counts = _counts(by_state, ladder)
    return ", ".join(f"{count} {state}" for state, count in counts.items() if state != "done" and count)


MISSING = "missing"
"""The state of imported runs without a result."""


def _counts(counts: Mapping[str, int], ladder: LadderInstance) -> dict[str, int]:
    """State -> how many runs have it, in the order of states; imported runs without a result are missing."""
    ordered: dict[str, int] = {state: counts.get(state, 0) for state in STATES}
    if ladder.kind != "imported":
        return ordered
    missing = sum(count for state, count in ordered.items() if state not in FINISHED)
    return {**{state: ordered[state] for state in FINISHED}, MISSING: missing}


def state_of(counts: Mapping[str, int]) -> str:
    """The state of a rung; runs in unusual states are counted."""
    main = _main(counts)
    extra = [f"{counts[s]} {s}" for s in ("diverged", "failed", "interrupted", MISSING) if counts.get(s) and s != main]
    return ", ".join([main, *extra])


def _main(counts: Mapping[str, int]) -> str:
    for state in ("running", "queued", "interrupted", "failed", "diverged", "done", MISSING):
        if counts.get(state):
            return state
    return "queued"


def title(ladder: LadderInstance) -> str:
    """`sDigits-smoke-tune: ladder lru on sDigits, profile smoke, tuned, optim.lr=0.01`."""
    by = [f"requested by {requester(ladder)}"] if requester(ladder) else []
    return f"{ladder.short_name}: ladder {ladder.name} on {', '.join([*ladder.identity.parts(), *by])}"


def requester(ladder: LadderInstance) -> str:
    """The user who requested it first; empty if that is the user of this process, or nobody knows."""
    return "" if ladder.user in (None, owner.user()) else str(ladder.user)


def summary(progress: LadderProgress) -> str:
    """`12 of 24 done, 2 running, 10 queued, at least 1:20 left`; no time left is known while a worker does not
    advance."""
    text = _summary(progress.counts, progress.ladder, progress.silent, progress.eta_seconds)
    return ", ".join(filter(None, [text, removed(progress)]))


def removed(progress: LadderProgress) -> str:
    """How many of its runs were removed, as in "9 left out of this copy, 1 forgotten"; empty if none was."""
    return ", ".join(f"{count} {REMOVED[kind]}" for kind, count in progress.removed.items())


def _summary(
    by_state: Mapping[str, int],
    ladder: LadderInstance,
    silent: Mapping[str, tuple[float, float]],
    eta_seconds: float | None,
) -> str:
    parts = [f"{by_state.get('done', 0)} of {sum(by_state.values())} done"]
    parts += filter(None, [_not_done(by_state, ladder)])
    if silent:
        count, since = len(silent), duration(min(since for since, _ in silent.values()))
        workers = f"{count} {'worker has' if count == 1 else 'workers have'}"
        parts.append(f"{workers} not advanced for {since}")
    elif eta_seconds is not None:
        parts.append(f"at least {duration(eta_seconds)} left")  # compiling is not in it
    return ", ".join(parts)


class Lines:
    """Progress for a pipe: one plain line for each change of a run's state, and at least one every 30 s."""

    def __init__(self, *, every: float = 30.0) -> None:
        self.every = every
        self._states: dict[str, str] = {}
        """Run id -> the state in its last line. Runs without a line were queued, or finished before."""
        self._printed_at = time.monotonic()

    def update(
        self,
        names: Mapping[str, str],
        changed: Sequence[Run],
        whole: Callable[[], str],
        failures: Mapping[str, Sequence[str]],
        programs: Mapping[str, ScoreForm] = MappingProxyType({}),
    ) -> list[str]:
        """The lines that are due.

        Args:
            names: ladder key -> the name with which lines on its runs begin; "" where there is one ladder.
            changed: the runs that may be in another state than at the last update.
            whole: reads the progress of the ladder, for a line on all of it.
            failures: run id -> the reason of each attempt that has failed while this command watched.
            programs: task -> the form of its scores, for tasks of users' programs.
        """
        lines = []
        keys = {run.id: next((m.ladder_key for m in run.memberships if m.ladder_key in names), "") for run in changed}
        for run in sorted(changed, key=lambda r: _member(r, keys[r.id])[2]):
            if self._states.get(run.id, "queued") != run.state:
                self._states[run.id] = run.state
                text = _line(run, keys[run.id], failures.get(run.id, ()), programs)
                name = names.get(keys[run.id])
                lines.append(f"{time.strftime('%H:%M:%S')} {f'{name}: ' if name else ''}{text}")
        if not lines and time.monotonic() - self._printed_at >= self.every:
            lines.append(f"{time.strftime('%H:%M:%S')} {whole()}")
        if lines:
            self._printed_at = time.monotonic()
        return lines


def _line(run: Run, key: str, failures: Sequence[str], programs: Mapping[str, ScoreForm]) -> str:
    rung, stage, position = _member(run, key)
    subject = _seed(run, rung if stage != "tune" else f"{rung} tuning, point {point(position) + 1},")
    text = f"{subject} ({run.id}): {run.state}"
    if run.state == "running":
        return text
    if run.state == "queued" and failures:
        return f"{text} again, after {plural(len(failures), 'failed attempt')}: {failures[-1]}"
    if run.state == "done" and run.result:
        form = of_task(run.task, run.result, programs)
        scores = [
            f"{n} {form.labelled(form.full(run.result[k]))}"
            for n, k in (("val", form.validation), ("test", form.result))
            if k in run.result
        ]
        return ", ".join([text, *scores])
    if run.state == "failed" and run.error:
        return f"{text}: {run.error.splitlines()[0]}"
    return f"{text} at {run.reached}"


def _seed(run: Run, rung: str) -> str:
    """The rung and seed of a run; for other kinds than trainings, what they call it."""
    return f"{cell(run) or rung} seed {run.seed}"


def cell(run: Run) -> str:
    """The settings of a cell, as its kind describes them; empty for trainings and runs without settings here."""
    kind = None if run.settings is None else kinds.of(run.kind)
    return "" if kind is None else kind.described(run)


def _member(run: Run, key: str) -> tuple[str, str, int]:
    for member in run.memberships:
        if member.ladder_key == key:
            return member.rung, member.stage, member.position
    return "?", "train", 0


def _median_speed(summaries: list[StateSummary]) -> float | None:
    return _median(list(chain.from_iterable(summary.speeds for summary in summaries)))


def _median(speeds: Sequence[float]) -> float | None:
    import statistics  # whose fractions and random numbers take long to import

    return statistics.median(speeds) if speeds else None


def _rung(
    rung: str, stage: str, summaries: list[StateSummary], work: RemainingWork | None, usual: float | None
) -> RungProgress:
    by_state = {summary.state: summary for summary in summaries}
    measured = by_state.get("done") or by_state.get("running")
    speed = _median_speed(summaries)
    return RungProgress(
        rung=rung,
        stage=stage,
        counts={s.state: s.count for s in summaries},
        step=sum(s.steps if s.state == "done" else s.step for s in summaries),
        # of imported runs without a result, how many steps they would have had is not known
        steps=0 if any(s.step > s.steps for s in summaries) else sum(s.steps for s in summaries),
        loss=measured.loss if measured else None,
        score=measured.score if measured else None,
        scored=measured.scored if measured else 0,
        speed=speed,
        eta_seconds=work.duration(speed or usual) if work else None,
    )
