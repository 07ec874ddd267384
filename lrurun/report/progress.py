"""How far a ladder is: read from the ledger alone, so that every terminal shows the same."""

from __future__ import annotations

import statistics
import time
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any, Protocol

from msgspec import Struct

from lrurun.console import clean
from lrurun.ledger.values import STATES, Attempt, Ladder, Run, Standing

if TYPE_CHECKING:
    from rich.console import RenderableType

SPEED = "machine/steps_per_second"
_WATCHED = ["train/loss", "val/accuracy", SPEED]


class Source(Protocol):
    """What this needs of a ledger."""

    def runs(self, ladder_key: str | None = None, *, resultless: bool = False, brief: bool = False) -> list[Run]: ...

    def standings(self, ladder_key: str) -> list[Standing]: ...

    def attempts(self, run_id: str) -> list[Attempt]: ...

    def latest(self, run_ids: Sequence[str], keys: Sequence[str]) -> dict[str, dict[str, tuple[int, float]]]: ...


class RungProgress(Struct, frozen=True, kw_only=True):
    """One rung and stage of a ladder."""

    rung: str
    stage: str
    counts: dict[str, int]
    step: int
    """Steps taken by all its runs."""
    steps: int
    loss: float | None
    """Mean over its running runs, or over the finished ones where none runs."""
    score: float | None
    speed: float | None
    """Steps a second of one run, median."""
    eta_seconds: float | None

    @property
    def total(self) -> int:
        return sum(self.counts.values())


class Progress(Struct, frozen=True, kw_only=True):
    """A ladder instance at one moment."""

    ladder: Ladder
    counts: dict[str, int]
    rungs: tuple[RungProgress, ...]
    eta_seconds: float | None
    """None where nothing runs, or no run has told its speed yet."""
    running: tuple[Run, ...]
    places: dict[str, str]
    """Running run -> where it runs: host, process and device."""

    @property
    def total(self) -> int:
        return sum(self.counts.values())


def collect(ledger: Source, ladder: Ladder) -> Progress:
    """The progress of one ladder instance."""
    standings = ledger.standings(ladder.key)
    counts = dict.fromkeys(STATES, 0)
    for standing in standings:
        counts[standing.state] = counts.get(standing.state, 0) + standing.first
    # those that may have a speed or a loss that no result tells
    runs = ledger.runs(ladder.key, resultless=True, brief=True) if any(s.resultless for s in standings) else []
    latest = ledger.latest([run.id for run in runs], _WATCHED) if runs else {}
    speeds = [speed for standing in standings for speed in standing.speeds]
    speeds += [latest[run.id][SPEED][1] for run in runs if SPEED in latest.get(run.id, {})]
    usual = statistics.median(speeds) if speeds else None
    groups: dict[tuple[str, str], tuple[list[Standing], list[Run]]] = {}
    for standing in standings:
        groups.setdefault((standing.rung, standing.stage), ([], []))[0].append(standing)
    for run in runs:
        for member in run.memberships:
            # which may have come after the standings were read
            if member.ladder_key == ladder.key and (member.rung, member.stage) in groups:
                groups[member.rung, member.stage][1].append(run)
    rungs = tuple(_rung(rung, stage, *group, latest, usual) for (rung, stage), group in groups.items())
    at_work = [run for run in runs if run.state == "running"]
    left = {run.id: _left(run, latest, usual) for run in runs if run.state in ("queued", "running")}
    known = (
        None
        if not left or any(v is None for v in left.values())
        else sum(v or 0.0 for v in left.values()) / max(1, len(at_work))
    )
    return Progress(
        ladder=ladder,
        counts=counts,
        rungs=rungs,
        eta_seconds=known if at_work else None,
        running=tuple(at_work),
        places={run.id: _place(ledger.attempts(run.id)) for run in at_work},
    )


def _place(attempts: list[Attempt]) -> str:
    newest = attempts[-1]
    device = newest.environment.get("device")
    return f"{newest.host}:{newest.pid}" + (f" ({device})" if device else "")


def as_json(progress: Progress) -> dict[str, Any]:
    """The fixed fields of `status --json` for one ladder."""
    counts = {state: progress.counts.get(state, 0) for state in STATES}
    return {
        "ladder": progress.ladder.name,
        "task": progress.ladder.task,
        "profile": progress.ladder.profile,
        "total": progress.total,
        "done": counts["done"],
        "running": counts["running"],
        "queued": counts["queued"],
        "interrupted": counts["interrupted"],
        "diverged": counts["diverged"],
        "failed": counts["failed"],
        "eta_seconds": progress.eta_seconds,
        "instance": progress.ladder.key,
        "set": progress.ladder.spec.get("set", {}),
        "tune": progress.ladder.spec.get("tune", False),
        "running_on": progress.places,
        "rungs": [
            {
                "rung": rung.rung,
                "stage": rung.stage,
                "total": rung.total,
                **{state: rung.counts.get(state, 0) for state in STATES},
                "step": rung.step,
                "steps": rung.steps,
                "train/loss": rung.loss,
                "val/accuracy": rung.score,
                "steps_per_second": rung.speed,
                "eta_seconds": rung.eta_seconds,
            }
            for rung in progress.rungs
        ],
    }


COLUMNS = ("rung", "runs", "state", "steps", "loss", "last val %", "steps/s", "left")
_TEXT = ("rung", "state")
"""Columns of words, not of numbers."""


def rows(progress: Progress) -> list[list[str]]:
    """A line a rung, with a cell for each of COLUMNS."""
    return [
        [
            rung.rung + (" (tune)" if rung.stage == "tune" else ""),
            f"{rung.counts.get('done', 0) + rung.counts.get('diverged', 0)}/{rung.total}",
            state_of(rung.counts),
            f"{rung.step / rung.steps:.0%}" if rung.steps else "",
            "" if rung.loss is None else f"{rung.loss:.3f}",
            "" if rung.score is None else f"{100 * rung.score:.1f}",
            "" if rung.speed is None else f"{rung.speed:.0f}",
            "" if rung.eta_seconds is None else clock(rung.eta_seconds),
        ]
        for rung in progress.rungs
    ]


def in_hand(progress: Progress) -> list[str]:
    """A line for each run in hand."""
    lines = []
    for run in progress.running:
        name, stage, _ = _member(run, progress.ladder.key)
        what = f"{name} seed {run.seed}" if stage != "tune" else f"{name} (tune)"
        lines.append(f"{what} ({run.id}) at step {run.step} of {run.steps} on {progress.places[run.id]}")
    return lines


def view(progress: Progress, width: int) -> RenderableType:
    """The live view: a line a rung, a line for the whole; fewer columns on a narrow terminal."""
    from rich import box
    from rich.table import Table
    from rich.text import Text

    wide, narrow = width >= 90, width < 76
    hidden = set() if wide else {"loss", "steps/s", *(("steps",) if narrow else ())}
    padding = (0, 1, 0, 0) if narrow else (0, 1)
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, padding=padding, title_justify="left", caption_justify="left")
    table.title = Text(clean(title(progress.ladder)))
    for column in COLUMNS:
        if column not in hidden:
            table.add_column(column, justify="left" if column in _TEXT else "right", no_wrap=True)
    for rung, cells in zip(progress.rungs, rows(progress), strict=True):
        styles = {"state": _STYLE.get(_main(rung.counts), "")}
        shown = zip(COLUMNS, cells, strict=True)
        table.add_row(*[Text(clean(cell), style=styles.get(name, "")) for name, cell in shown if name not in hidden])
    lines = [summary(progress), *([] if narrow else in_hand(progress))]
    table.caption = Text("\n".join(map(clean, lines)))
    return table


_STYLE = {"done": "green", "running": "cyan", "failed": "red", "diverged": "yellow", "interrupted": "yellow"}


def state_of(counts: dict[str, int]) -> str:
    """A rung's state in words: what is not simply done is counted."""
    main = _main(counts)
    extra = [f"{counts[s]} {s}" for s in ("diverged", "failed", "interrupted") if counts.get(s) and s != main]
    return ", ".join([main, *extra])


def _main(counts: dict[str, int]) -> str:
    for state in ("running", "queued", "interrupted", "failed", "diverged", "done"):
        if counts.get(state):
            return state
    return "queued"


def title(ladder: Ladder) -> str:
    """`ladder lru on sDigits, profile smoke, tuned, optim.lr=0.01`."""
    text = f"ladder {ladder.name} on {ladder.task}"
    if ladder.profile:
        text += f", profile {ladder.profile}"
    if ladder.spec.get("tune"):
        text += ", tuned"
    for path, value in ladder.spec.get("set", {}).items():
        text += f", {path}={value}"
    return text


def summary(progress: Progress) -> str:
    """`12 of 24 done, 2 running, 10 queued, 1:20 left`."""
    parts = [f"{progress.counts.get('done', 0)} of {progress.total} done"]
    parts += [f"{progress.counts[s]} {s}" for s in STATES if s != "done" and progress.counts.get(s)]
    if progress.eta_seconds is not None:
        parts.append(f"{clock(progress.eta_seconds)} left")
    return ", ".join(parts)


def clock(seconds: float) -> str:
    """`0:07`, `12:30`, `3:04:05`."""
    whole = round(seconds)
    hours, rest = divmod(whole, 3600)
    minutes, rest = divmod(rest, 60)
    return f"{hours}:{minutes:02d}:{rest:02d}" if hours else f"{minutes}:{rest:02d}"


class Lines:
    """Progress for a pipe: one plain line an event, and one at least every 30 s."""

    def __init__(self, ladder_key: str, *, every: float = 30.0) -> None:
        self.key, self.every = ladder_key, every
        self._states: dict[str, tuple[str, int]] = {}
        self._said = time.monotonic()

    def update(self, progress: Progress, runs: Iterable[Run]) -> list[str]:
        """The lines that are due on `runs`, which are all of the ladder."""
        lines = []
        for run in sorted(runs, key=lambda r: _member(r, self.key)[2]):
            before = self._states.get(run.id)
            now = (run.state, run.step)
            if before is None and run.state in ("queued", "done", "diverged"):
                self._states[run.id] = now  # what was so when we came is no event
            elif before is None or before[0] != run.state:
                lines.append(f"{time.strftime('%H:%M:%S')} {_line(run, self.key)}")
                self._states[run.id] = now
        if not lines and time.monotonic() - self._said >= self.every:
            lines.append(f"{time.strftime('%H:%M:%S')} {summary(progress)}")
        if lines:
            self._said = time.monotonic()
        return lines


def _line(run: Run, key: str) -> str:
    rung, stage, position = _member(run, key)
    what = f"{rung} seed {run.seed}" if stage != "tune" else f"{rung} tuning, point {position % 10_000 + 1}"
    text = f"{what} ({run.id}): {run.state}"
    if run.state == "running":
        return text
    if run.state == "done" and run.result:
        scores = [
            f"{n} {100 * run.result[k]:.2f} %"
            for n, k in (("val", "val/accuracy"), ("test", "test/accuracy"))
            if k in run.result
        ]
        return f"{text}, {', '.join(scores)}"
    if run.state == "failed" and run.error:
        return f"{text}: {run.error.splitlines()[0]}"
    return f"{text} at step {run.step} of {run.steps}"


def _member(run: Run, key: str) -> tuple[str, str, int]:
    for member in run.memberships:
        if member.ladder_key == key:
            return member.rung, member.stage, member.position
    return "?", "train", 0


def _left(run: Run, latest: dict[str, dict[str, tuple[int, float]]], usual: float | None) -> float | None:
    speed = latest.get(run.id, {}).get(SPEED, (0, usual))[1]
    return (run.steps - run.step) / speed if speed else None


def _rung(
    rung: str,
    stage: str,
    standings: list[Standing],
    runs: list[Run],
    latest: dict[str, dict[str, tuple[int, float]]],
    usual: float | None,
) -> RungProgress:
    at_work = [run for run in runs if run.state == "running"]
    done = next((standing for standing in standings if standing.state == "done"), None)

    def mean(key: str) -> float | None:
        values = [latest[run.id][key][1] for run in at_work if key in latest.get(run.id, {})]
        return sum(values) / len(values) if values else None

    speeds = [speed for standing in standings for speed in standing.speeds]
    speeds += [latest[run.id][SPEED][1] for run in runs if SPEED in latest.get(run.id, {})]
    speed = statistics.median(speeds) if speeds else None
    left = [_left(run, latest, speed or usual) for run in runs if run.state in ("queued", "running")]
    eta = sum(v or 0.0 for v in left) / len(at_work) if at_work and left and None not in left else None
    return RungProgress(
        rung=rung,
        stage=stage,
        counts={s.state: s.count for s in standings},
        step=sum(s.steps if s.state == "done" else s.step for s in standings),
        steps=sum(s.steps for s in standings),
        loss=mean("train/loss") if at_work else done.loss if done else None,
        score=mean("val/accuracy") if at_work else done.score if done else None,
        speed=speed,
        eta_seconds=eta,
    )
