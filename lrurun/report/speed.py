"""The training speed of a ladder's rungs, rung by rung and machine by machine, beside the published speeds."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from typing import TYPE_CHECKING, Any

from msgspec import Struct, structs

from lrurun import catalog
from lrurun.console import clean
from lrurun.report import sheet, statistics
from lrurun.report.comparison import SPEED, select
from lrurun.report.sheet import NOTHING, Column

if TYPE_CHECKING:
    from lrurun.ledger import values


class Setting(Struct, frozen=True, kw_only=True):
    """What a speed depends on beside the rung. None where it is not recorded."""

    device: str | None = None
    """The accelerator, or the CPU's model."""
    threads: int | None = None
    packed: int = 1
    """Runs that were trained in one program."""
    steps_per_dispatch: int | None = None


class Published(Struct, frozen=True, kw_only=True):
    """A published speed on the task."""

    system: str
    source: str
    device: str
    value: float
    """Steps a second."""
    speedup: float | None
    """Over the ladder's first rung in the same source, on the same device."""


class Row(Struct, frozen=True, kw_only=True):
    """A rung in one setting."""

    rung: str
    title: str
    n: int
    """Finished seeds with a recorded speed."""
    steps_per_second: float | None
    """Mean over them."""
    stderr: float | None
    speedup: float | None
    """Over the first rung that has runs in this setting."""
    parameters: int | None
    setting: Setting | None
    """None where it has no runs."""
    same_as_before: bool
    """Whether these are the runs of an earlier rung, which has the same settings."""
    published: tuple[Published, ...]
    runs: tuple[str, ...]
    """Ids, in order of their seeds."""
    code_versions: tuple[str, ...]


class Report(Struct, frozen=True, kw_only=True):
    """One table of speeds."""

    task: str
    ladder: str
    title: str
    profile: str | None
    instance: str
    rows: tuple[Row, ...]
    bases: tuple[str, ...]
    """The rungs that speed-ups are over: one, or one a setting."""
    others: tuple[Published, ...]
    """Published systems that are no rung of the ladder."""
    devices: tuple[str, ...]
    """Those of the ladder's published speeds, on whatever task."""
    notes: tuple[str, ...]


def build(
    ladder: catalog.Ladder,
    *,
    task: str,
    profile: str | None,
    instance: str,
    runs: Sequence[values.Run],
    last_attempt: Callable[[str], values.Attempt],
    same_as_before: Collection[str] = frozenset(),
    notes: Sequence[str] = (),
) -> Report:
    """The speeds of the ladder instance of key `instance`: a row for every rung and setting that it was trained in.

    `last_attempt` gives the last attempt at a run, the one whose speed its result has; `notes` are sentences for the
    foot. Runs of unequal data are refused.
    """
    notes = list(notes)
    selected = select(ladder, instance=instance, runs=runs, same_as_before=same_as_before, metric=SPEED, notes=notes)
    counted = {run.id: run for one in selected.values() for run in one.counted}
    attempts = {name: last_attempt(name) for name in counted}
    settings = {name: _setting(run, attempts[name]) for name, run in counted.items()}

    rows: list[Row] = []
    bases: dict[Setting, tuple[str, float]] = {}
    for rung in ladder.rungs:
        one = selected[rung.name]
        if one.of != rung.name and one.counted:
            notes.append(f"{rung.name} has the settings of {one.of}, and these are its runs")
        groups: list[tuple[Setting | None, list[values.Run]]] = [
            (setting, members)
            for setting in dict.fromkeys(settings.values())
            if (members := [run for run in one.counted if settings[run.id] == setting])
        ]
        for setting, members in groups or [(None, [])]:
            speeds = [(run.result or {})[SPEED] for run in members]
            mean = statistics.mean(speeds)
            base: float | None = None
            if setting is not None and mean is not None:
                _, base = bases.setdefault(setting, (rung.name, mean))
            rows.append(
                Row(
                    rung=rung.name,
                    title=rung.title,
                    n=len(members),
                    steps_per_second=mean,
                    stderr=statistics.stderr(speeds),
                    speedup=mean / base if mean is not None and base else None,
                    parameters=one.parameters,
                    setting=setting,
                    same_as_before=one.of != rung.name,
                    published=_published(ladder, task, rung.name),
                    runs=tuple(run.id for run in members),
                    code_versions=tuple(sorted({version for run in members for version in run.code})),
                )
            )
    hosts = sorted({attempt.host for attempt in attempts.values()})
    if len(hosts) > 1:
        notes.append(f"these runs were made on more than one host: {', '.join(hosts)}")
    return Report(
        task=task,
        ladder=ladder.name,
        title=ladder.title,
        profile=profile,
        instance=instance,
        rows=tuple(rows),
        bases=tuple(dict.fromkeys(rung for rung, _ in bases.values())),
        others=_published(ladder, task, None),
        devices=tuple(dict.fromkeys(speed.device for speed in ladder.speeds)),
        notes=tuple(notes),
    )


def _setting(run: values.Run, attempt: values.Attempt) -> Setting:
    device = attempt.environment.get("device")
    machine = attempt.environment.get("machine")
    if device == "cpu" and isinstance(machine, dict):
        # jax calls every CPU so
        device = machine.get("cpu") or device
    packed = attempt.environment.get("packed", 1)
    return Setting(
        device=device if device is None else str(device),  # what a ledger says can be anything
        threads=run.execution.get("threads"),
        packed=packed if isinstance(packed, int) else 1,
        steps_per_dispatch=run.execution.get("steps_per_dispatch"),
    )


def _published(ladder: catalog.Ladder, task: str, rung: str | None) -> tuple[Published, ...]:
    """The published speeds of a rung, or of the systems that are none, on the task."""
    bases = {
        (speed.source, speed.device): speed.steps_per_second[task]
        for speed in ladder.speeds
        if speed.rung == ladder.rungs[0].name and task in speed.steps_per_second
    }
    found = []
    for speed in ladder.speeds:
        if speed.rung == rung and task in speed.steps_per_second:
            value, base = speed.steps_per_second[task], bases.get((speed.source, speed.device))
            found.append(
                Published(
                    system=speed.system,
                    source=speed.source,
                    device=speed.device,
                    value=value,
                    speedup=value / base if base else None,
                )
            )
    return tuple(found)


# As text


def document(report: Report) -> dict[str, Any]:
    """The JSON object of a report, before it is text."""
    return sheet.finite(
        {
            "schema_version": sheet.SCHEMA_VERSION,
            "task": report.task,
            "ladder": report.ladder,
            "profile": report.profile,
            "instance": report.instance,
            "metric": SPEED,
            "rows": [
                {
                    "rung": row.rung,
                    "title": row.title,
                    "n": row.n,
                    "steps_per_second": row.steps_per_second,
                    "stderr": row.stderr,
                    "speedup": row.speedup,
                    "parameters": row.parameters,
                    **{name: getattr(row.setting, name, None) for name in Setting.__struct_fields__},
                    "same_as_before": row.same_as_before,
                    "published": [structs.asdict(one) for one in row.published],
                    "runs": list(row.runs),
                    "code_versions": list(row.code_versions),
                }
                for row in report.rows
            ],
            "published_others": [structs.asdict(one) for one in report.others],
            "notes": list(report.notes),
        }
    )


_CSV_COLUMNS = (
    "task", "ladder", "profile", "instance", "metric", "rung", "title", "n", "steps_per_second", "stderr", "speedup",
    "parameters", "device", "threads", "packed", "steps_per_dispatch", "same_as_before", "published_value",
    "published_speedup", "published_device", "published_source", "runs", "code_versions",
)  # fmt: skip


def _steps(row: Row) -> str:
    if row.steps_per_second is None:
        return f"{NOTHING} (n=0)"
    error = "" if row.stderr is None else f" ± {sheet.three_digits(row.stderr)}"
    versions = f", {len(row.code_versions)} code versions" if len(row.code_versions) > 1 else ""
    return f"{sheet.three_digits(row.steps_per_second)}{error} (n={row.n}){versions}"


def _times(value: float | None) -> str:
    return NOTHING if value is None else f"{sheet.three_digits(value)}×"


def _published_steps(row: Row) -> str:
    return " / ".join(f"{one.value} ({clean(one.device)})" for one in row.published) or NOTHING


def _published_times(row: Row) -> str:
    return " / ".join(_times(one.speedup) for one in row.published) or NOTHING


_SETTING = {"device": "device", "threads": "threads", "packed": "packed", "steps_per_dispatch": "steps a dispatch"}
"""Field of a setting -> its name in a table."""


def _of_setting(field: str) -> Column:
    def cell(row: Row) -> str:
        if row.setting is None:
            return NOTHING
        value = getattr(row.setting, field)
        return "not recorded" if value is None else clean(str(value))

    return Column(name=_SETTING[field], cell=cell, right=field != "device")


def page(report: Report) -> sheet.Sheet:
    """What the report prints."""
    known = [row.setting for row in report.rows if row.setting is not None]
    differing = [field for field in _SETTING if len({getattr(setting, field) for setting in known}) > 1]
    where = tuple(_of_setting(field) for field in differing)
    steps = Column(name="steps/s", cell=_steps, right=False, link=sheet.runs_of)
    ours = (steps, Column(name="speed-up", cell=lambda row: _times(row.speedup), link=sheet.runs_of))
    published: tuple[Column, ...] = ()
    if any(row.published for row in report.rows):
        published = (
            Column(name="published", cell=_published_steps),
            Column(name="its speed-up", cell=_published_times),
        )

    def stacked(row: Row) -> list[str]:
        said = [clean(row.rung), f"{_steps(row)} steps/s"]
        if row.speedup is not None:
            said.append(f"speed-up {_times(row.speedup)}")
        if row.setting is not None:
            said += [f"{column.name} {column.cell(row)}" for column in where]
        if row.published:
            said.append(f"published {_published_steps(row)}, {_published_times(row)}")
        return said

    widest = (sheet.RUNG, sheet.TITLE, *ours, *where, sheet.PARAMETERS, *published)
    return sheet.Sheet(
        title=sheet.heading(report.task, report.profile, f"training speed, {report.title}"),
        rows=report.rows,
        layouts=(
            widest,
            (sheet.RUNG, *ours, *where, sheet.PARAMETERS, *published),
            (sheet.RUNG, *ours, *where, *published),
            (sheet.RUNG, *ours, *where, *published[:1]),
            (sheet.RUNG, *ours, *where),
        ),
        stacked=stacked,
        markdown=(*widest[:2], structs.replace(steps, right=True), *widest[3:]),
        latex=(sheet.RUNG, structs.replace(steps, right=True), *widest[3:]),
        foot=tuple(_foot(report, known, differing)),
        groups=tuple(
            sheet.Group(
                anchor=sheet.anchor(rung),
                title=rung,
                runs=tuple(run for row in report.rows if row.rung == rung for run in row.runs),
            )
            for rung in dict.fromkeys(row.rung for row in report.rows)
        ),
        document=document(report),
        csv=_CSV_COLUMNS,
    )


def _foot(report: Report, known: Sequence[Setting], differing: Sequence[str]) -> list[str]:
    base = report.bases[0] if len(report.bases) == 1 else "the first rung that has runs"
    same = f" of the same {' and '.join(_SETTING[field] for field in differing)}" if differing else ""
    said = [
        "Steps/s: mean ± standard error over n finished seeds, each the steps of a run over the seconds that they "
        "took, compilation and evaluation not counted; of an interrupted run, in its last attempt. It depends on what "
        f"else the machine does. Speed-up: over {base}{same}."
    ]
    shared = {_SETTING[field]: getattr(known[0], field) for field in _SETTING if known and field not in differing}
    words = [
        f"{name} {value}" for name, value in shared.items() if value is not None and (name, value) != ("packed", 1)
    ]
    if words:
        said.append(f"All runs: {', '.join(words)}.")
    said.append(_published_foot(report))
    if report.others:
        others = (
            f"{one.system} {one.value}, {_times(one.speedup)} ({one.source}, {one.device})" for one in report.others
        )
        said.append(f"Published of systems that are no rung here: {'; '.join(others)}.")
    if report.devices:
        said.append(
            "Speed-ups belong to their device: those of a CPU do not compare with the published ones "
            f"({', '.join(report.devices)})."
        )
    return said + sheet.last_words(report.rows, report.notes)


def _published_foot(report: Report) -> str:
    rungs: dict[str, list[str]] = {}
    for row in report.rows:
        for one in row.published:
            names = rungs.setdefault(f"{one.source}, on {one.device}", [])
            if row.rung not in names:
                names.append(row.rung)
    if not rungs:
        return f"Published: no speeds for {report.task}."
    sources = [f"{source} ({', '.join(names)})" for source, names in rungs.items()]
    known = any(one.speedup is not None for row in report.rows for one in row.published)
    over = f" Its speed-ups are over {report.rows[0].rung}, from the speeds as printed." if known else ""
    return f"Published: {'; '.join(sources)}.{over}{sheet.scale(report.profile)}"
