"""The training speed of a ladder's rungs, rung by rung and machine by machine, beside the published speeds."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence
from typing import TYPE_CHECKING, ClassVar

from msgspec import Struct, structs

from lrurun.config.instance import Instance
from lrurun.config.ladder import Ladder, Rung
from lrurun.console import clean
from lrurun.judging import statistics
from lrurun.judging.rung_runs import SPEED, InstanceRuns, Note, RungRuns, numerics, with_speed
from lrurun.report.devices import several
from lrurun.report.tables import content, remarks
from lrurun.report.tables.content import PARAMETERS, RUNG, TITLE
from lrurun.report.tables.remarks import Remark
from lrurun.table import NOTHING, Column, Table

if TYPE_CHECKING:
    from lrurun.ledger.values import Attempt, Run


class SpeedSetting(Struct, frozen=True, kw_only=True):
    """The settings that a speed depends on, besides the rung. None where one is not recorded."""

    device: str | None = None
    """The accelerator, or the CPU's model."""
    threads: int | None = None
    packed: int = 1
    """Runs that were trained in one program."""
    steps_per_dispatch: int | None = None


class PublishedSpeed(Struct, frozen=True, kw_only=True):
    """A published speed on the task."""

    system: str
    source: str
    device: str
    value: float | None
    """Steps per second; None where the source prints relative times."""
    relative_time: float | None = None
    """The time of a step, divided by the time of another system of the source."""
    speedup: float | None
    """The speed-up over the ladder's first rung in the same source, on the same device."""


class SpeedRow(Struct, frozen=True, kw_only=True):
    """A rung in one setting."""

    rung: str
    title: str
    n: int
    """Finished seeds with a recorded speed."""
    steps_per_second: float | None
    """Mean over them."""
    stderr: float | None
    speedup: float | None
    """The speed-up over the first rung that has runs in this setting: the ratio of the means."""
    speedup_low: float | None = None
    speedup_high: float | None = None
    """The least and the greatest ratio of a seed to one of that rung; None for that rung itself, and where one of them
    has fewer than two."""
    parameters: int | None
    device: str | None = None
    threads: int | None = None
    packed: int | None = None
    steps_per_dispatch: int | None = None
    """These four are its setting; all None where it has no runs."""
    same_as_before: bool
    """Whether these are the runs of an earlier rung, which has the same settings."""
    published: tuple[PublishedSpeed, ...]
    runs: tuple[str, ...]
    """Ids, in order of their seeds."""
    code_versions: tuple[str, ...]
    numerics: tuple[int, ...]
    """The numerics versions of the runs."""

    @property
    def setting(self) -> SpeedSetting | None:
        """The setting of the runs; None where there are none."""
        if self.packed is None:
            return None
        return SpeedSetting(
            device=self.device,
            threads=self.threads,
            packed=self.packed,
            steps_per_dispatch=self.steps_per_dispatch,
        )


class SpeedReport(Struct, frozen=True, kw_only=True):
    """One table of speeds."""

    json_fields: ClassVar[Sequence[str]] = (
        "task ladder title profile instance=key metric rows bases published_others devices notes set tune extend "
        "data label"
    ).split()
    instance: Instance
    title: str
    metric: str = SPEED
    rows: tuple[SpeedRow, ...]
    bases: tuple[str, ...]
    """The rungs that speed-ups are over: one, or one for each setting."""
    published_others: tuple[PublishedSpeed, ...]
    """Published systems that are not rungs of the ladder."""
    devices: tuple[str, ...]
    """The devices of the ladder's published speeds, on whatever task."""
    notes: tuple[Note, ...]


def build(
    instance: InstanceRuns, last_attempt: Callable[[str], Attempt], shown: Collection[str] | None = None
) -> SpeedReport:
    """The speeds of a ladder instance: a row for every rung and every setting in which it was trained.

    `last_attempt` returns the last attempt at a run, whose speed is in its result; `shown` are the rungs to show.
    Speed-ups are over the first rung of those. Runs on unequal data are refused.
    """
    ladder, task, notes = instance.ladder, instance.identity.task, list(instance.notes)
    selected = with_speed(instance, notes)
    counted = {run.id: run for runs in selected.values() for run in runs.counted}
    attempts = {name: last_attempt(name) for name in counted}
    settings = {name: _setting(run, attempts[name]) for name, run in counted.items()}

    rows: list[SpeedRow] = []
    bases: dict[SpeedSetting, tuple[str, list[float]]] = {}
    for rung in (rung for rung in ladder.rungs if shown is None or rung.name in shown):
        runs = selected[rung.name]
        if runs.rung != rung.name and runs.counted:
            notes.append(Note(f"{rung.name} has the settings of {runs.rung}, and these are its runs"))
        groups: dict[SpeedSetting | None, list[Run]] = {
            setting: members
            for setting in dict.fromkeys(settings.values())
            if (members := [run for run in runs.counted if settings[run.id] == setting])
        }
        for setting, members in (groups or {None: []}).items():
            row = _row(rung, runs, setting, members, _published(ladder, task, rung.name))
            if setting is not None and members:
                speeds = _speeds(members)
                base, base_speeds = bases.setdefault(setting, (rung.name, speeds))
                row = structs.replace(row, **_ratio(speeds, base_speeds, is_base=base == rung.name))
            rows.append(row)
    notes += _several_hosts(attempts.values())
    return SpeedReport(
        instance=instance.identity,
        title=ladder.title,
        rows=tuple(rows),
        bases=tuple(dict.fromkeys(rung for rung, _ in bases.values())),
        published_others=_published(ladder, task, None),
        devices=tuple(dict.fromkeys(speed.device for speed in ladder.speeds)),
        notes=tuple(notes),
    )


def _speeds(runs: Sequence[Run]) -> list[float]:
    return [(run.result or {})[SPEED] for run in runs]


def _ratio(speeds: Sequence[float], base: Sequence[float], *, is_base: bool) -> dict[str, float | None]:
    """The speed-up, with its range over the seeds."""
    if min(base) <= 0:
        return {"speedup": None}
    ratio = sum(speeds) / len(speeds) / (sum(base) / len(base))
    if is_base or min(len(speeds), len(base)) < 2:
        return {"speedup": ratio}
    return {"speedup": ratio, "speedup_low": min(speeds) / max(base), "speedup_high": max(speeds) / min(base)}


def _several_hosts(attempts: Iterable[Attempt]) -> list[Note]:
    """A note, if there are several."""
    hosts = sorted({attempt.host for attempt in attempts})
    return [Note(f"these runs were made on more than one host: {', '.join(hosts)}")] if len(hosts) > 1 else []


def _row(
    rung: Rung,
    runs: RungRuns,
    setting: SpeedSetting | None,
    members: Sequence[Run],
    published: tuple[PublishedSpeed, ...],
) -> SpeedRow:
    speeds = _speeds(members)
    return SpeedRow(
        rung=rung.name,
        title=rung.title,
        n=len(members),
        steps_per_second=statistics.mean(speeds),
        stderr=statistics.stderr(speeds),
        speedup=None,
        parameters=runs.parameters,
        **(structs.asdict(setting) if setting else {}),
        same_as_before=runs.rung != rung.name,
        published=published,
        runs=tuple(run.id for run in members),
        code_versions=tuple(sorted({version for run in members for version in run.code})),
        numerics=numerics(members),
    )


def _setting(run: Run, attempt: Attempt) -> SpeedSetting:
    device = attempt.environment.get("device")
    machine = attempt.environment.get("machine")
    if device == "cpu" and isinstance(machine, dict):
        # jax has no other name for a CPU.
        device = machine.get("cpu") or device
    packed = attempt.environment.get("packed", 1)
    return SpeedSetting(
        device=device if device is None else f"{device}{several(attempt)}",  # a ledger may hold anything
        threads=run.execution.threads,
        packed=packed if isinstance(packed, int) else 1,
        steps_per_dispatch=run.execution.steps_per_dispatch,
    )


def _published(ladder: Ladder, task: str, rung: str | None) -> tuple[PublishedSpeed, ...]:
    """The published speeds on the task of a rung, or of the systems that are not rungs."""
    bases = {
        (speed.source, speed.device): speed.speeds[task]
        for speed in ladder.speeds
        if speed.rung == ladder.rungs[0].name and task in speed.speeds
    }
    speeds = []
    for speed in ladder.speeds:
        if speed.rung == rung and task in speed.speeds:
            base = bases.get((speed.source, speed.device))
            speeds.append(
                PublishedSpeed(
                    system=speed.system,
                    source=speed.source,
                    device=speed.device,
                    value=speed.steps_per_second.get(task),
                    relative_time=speed.relative_time.get(task),
                    speedup=speed.speeds[task] / base if base else None,
                )
            )
    return tuple(speeds)


# What the report shows

_CSV_COLUMNS = (
    "task ladder profile instance metric rung title n steps_per_second stderr speedup speedup_low speedup_high "
    "parameters device threads packed steps_per_dispatch same_as_before published_value published_speedup "
    "published_device published_source runs code_versions numerics label"
).split()


def _steps(row: SpeedRow) -> str:
    if row.steps_per_second is None:
        return f"{NOTHING} (n=0)"
    error = "" if row.stderr is None else f" ± {content.three_digits(row.stderr)}"
    speed = f"{content.three_digits(row.steps_per_second)}{error} (n={row.n})"
    return ", ".join([speed, *content.mixed_versions(row)])


def _times(value: float | None) -> str:
    return NOTHING if value is None else f"{content.three_digits(value)}×"


def _speedup(row: SpeedRow) -> str:
    if row.speedup_low is None or row.speedup_high is None:
        return _times(1.0 if row.speedup == 1 else None)
    between = f"[{content.three_digits(row.speedup_low)}, {content.three_digits(row.speedup_high)}]"
    return f"{_times(row.speedup)} {between}"


def _published_steps(row: SpeedRow) -> str:
    return " / ".join(f"{_value(speed)} ({clean(speed.device)})" for speed in row.published) or NOTHING


def _value(speed: PublishedSpeed) -> str:
    return f"relative time {speed.relative_time:g}" if speed.value is None else str(speed.value)


def _published_times(row: SpeedRow) -> str:
    return " / ".join(_times(speed.speedup) for speed in row.published) or NOTHING


_SETTING = {"device": "device", "threads": "threads", "packed": "packed", "steps_per_dispatch": "steps a dispatch"}
"""Field of a setting -> its name in a table."""


def _of_setting(field: str) -> Column:
    def cell(row: SpeedRow) -> str:
        if row.setting is None:
            return NOTHING
        value = getattr(row.setting, field)
        return "not recorded" if value is None else clean(str(value))

    return Column(name=_SETTING[field], cell=cell, right=field != "device")


def content_of(report: SpeedReport) -> content.ReportContent:
    """The contents of the report."""
    settings = [row.setting for row in report.rows if row.setting is not None]
    differing = [field for field in _SETTING if len({getattr(setting, field) for setting in settings}) > 1]
    where = tuple(_of_setting(field) for field in differing)
    steps = Column(name="steps/s", cell=_steps, right=False, whole=True, link=content.runs_of)
    ours = (steps, Column(name="speed-up", cell=_speedup, link=content.runs_of))
    published: tuple[Column, ...] = ()
    if any(row.published for row in report.rows):
        published = (
            Column(name="published", cell=_published_steps, priority=8),
            Column(name="its speed-up", cell=_published_times, priority=7),
        )

    columns = (RUNG, TITLE, *ours, *where, PARAMETERS, *published)
    return content.ReportContent(
        title=report.instance.title(f"training speed, {report.title}"),
        table=Table(columns=columns, rows=report.rows),
        remarks=_remarks(report, settings, differing),
        groups=tuple(
            content.RunGroup(
                anchor=content.anchor(rung),
                title=rung,
                runs=tuple(run for row in report.rows if row.rung == rung for run in row.runs),
                metric=report.metric,
            )
            for rung in dict.fromkeys(row.rung for row in report.rows)
        ),
        label=report.instance.anchor("speed"),
        csv=_CSV_COLUMNS,
    )


def _remarks(report: SpeedReport, settings: Sequence[SpeedSetting], differing: Sequence[str]) -> tuple[Remark, ...]:
    base = report.bases[0] if len(report.bases) == 1 else "the first rung that has runs"
    same = f" of the same {' and '.join(_SETTING[field] for field in differing)}" if differing else ""
    sentences = [
        "Steps/s: mean ± standard error over n finished seeds. Compilation and evaluation are not counted; of an "
        "interrupted run, only the last attempt is. Other work on the machine lowers it. "
        f"Speed-up: over {base}{same}, with the least and the greatest ratio of two seeds; none where a rung has one."
    ]
    shared = {_SETTING[field]: getattr(settings[0], field) for field in _SETTING if settings and field not in differing}
    equal = [
        f"{name} {value}" for name, value in shared.items() if value is not None and (name, value) != ("packed", 1)
    ]
    if equal:
        sentences.append(f"All runs: {', '.join(equal)}.")
    sentences.append(_published_foot(report))
    if report.published_others:
        systems = (
            f"{speed.system} {_value(speed)}, {_times(speed.speedup)} ({speed.source}, {speed.device})"
            for speed in report.published_others
        )
        sentences.append(f"Published for systems that are not rungs here: {'; '.join(systems)}.")
    if report.devices:
        sentences.append(
            "Speed-ups depend on the device: those of a CPU cannot be compared with the published ones "
            f"({', '.join(report.devices)})."
        )
    return (*remarks.sentences(sentences), *content.versions(report.rows), *remarks.of_notes(report.notes))


def _published_foot(report: SpeedReport) -> str:
    rungs: dict[str, list[str]] = {}
    for row in report.rows:
        for speed in row.published:
            names = rungs.setdefault(f"{speed.source}, on {speed.device}", [])
            if row.rung not in names:
                names.append(row.rung)
    if not rungs:
        return f"Published: no speeds for {report.instance.task}."
    sources = [f"{source} ({', '.join(names)})" for source, names in rungs.items()]
    has_ratio = any(speed.speedup is not None for row in report.rows for speed in row.published)
    over = f" Its speed-ups are over {report.rows[0].rung}, from the speeds as printed." if has_ratio else ""
    return f"Published: {'; '.join(sources)}.{over}{content.scale(report.instance.profile)}"
