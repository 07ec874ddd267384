"""The command `plot`: which runs, which of their numbers, and the file that they are drawn into."""

from __future__ import annotations

import cmath
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from lrurun import console, paths, reading
from lrurun import plan as planning
from lrurun.commands import Asked
from lrurun.errors import NotFoundError, UsageError
from lrurun.ledger.values import Ladder as Instance
from lrurun.ledger.values import Run
from lrurun.paths import Places
from lrurun.report import comparison, figures, sheet, speed
from lrurun.report.figures import Curve, Line, Mark, Panel, Spectrum

if TYPE_CHECKING:
    from matplotlib.figure import Figure

NORM = "norm/layer"
"""A metric's name before the number of the layer, counted from 0."""

OF_TASKS = ("ladder", "speed")
"""Kinds of figures that compare the rungs of a ladder, and say nothing of single runs."""

CURVES = {"train/loss": "training loss", "val/accuracy": "validation accuracy [%]"}
"""Metric -> the name of its axis."""


def plot(
    places: Places, words: Sequence[str], asked: Asked, *, kind: str | None, instance: str | None, out: Path
) -> int:
    """Draws a figure of a task's ladder, or of runs, into a file; `words` are what the command names."""
    from lrurun.ledger.store import Ledger

    suffix = out.suffix.lower()
    if suffix not in figures.SUFFIXES:
        given = repr(out.suffix) if out.suffix else "no suffix"
        raise UsageError(
            f"--out {out}: the name must end in .png, .svg or .pdf, found {given}",
            f"as in --out {out.stem or 'figure'}.pdf",
        )
    of_runs = _are_runs(words)
    kind = kind or ("curves" if of_runs else "ladder")
    if of_runs:
        _check_for_runs(asked, kind, instance)
    plan = None if of_runs or instance else asked.plan()
    ledger = Ledger.read(places.ledger)
    if ledger is None:
        hint = "name one with --ledger PATH" if of_runs else f"run: lrurun ladder {asked.task}"
        raise NotFoundError(f"{places.ledger}: there is no ledger, so there is nothing to draw", hint)
    with ledger:
        if ledger.note:
            console.warn(ledger.note)
        if of_runs:
            runs = list({run.id: run for run in map(ledger.run, words)}.values())
            figure = _of_runs(kind, runs, ledger, places.runs)
        else:
            plan, found = reading.chosen(ledger, asked.task, plan, instance, "plot")
            figure = _of_task(kind, plan, found, ledger, places.runs)
    reading.write_whole(out, figures.encode(figure, suffix))
    console.say(f"wrote {out}")
    return 0


def _are_runs(words: Sequence[str]) -> bool:
    """Whether these are runs; else it is one task."""
    tasks = paths.names("recipes")
    found = [bool(re.fullmatch(r"[0-9a-f]+(-\d*)?", word)) and word not in tasks for word in words]
    if len(words) > 1 and not all(found):
        raise UsageError(
            f"plot takes one TASK, or RUNs alone, found {' '.join(words)}",
            "draw each task into a file of its own; lrurun runs lists the ids of runs",
        )
    return found[0]


def _check_for_runs(asked: Asked, kind: str, instance: str | None) -> None:
    if kind in OF_TASKS:
        raise UsageError(
            f"--kind {kind}: compares the rungs of a TASK, found runs", "name a TASK, or draw --kind curves"
        )
    given = {
        "--ladder": asked.ladder != "lru",
        "--profile": asked.profile is not None,
        "--set": bool(asked.sets),
        "--tune": asked.tune,
        "--instance": instance is not None,
    }
    if any(given.values()):
        named = next(name for name, is_given in given.items() if is_given)
        raise UsageError(f"{named}: chooses among the ladders of a TASK, found runs", f"leave {named} out")


def _of_runs(kind: str, runs: Sequence[Run], ledger: Any, folder: Path) -> Figure:
    if kind == "norms":
        return run_norms(runs, ledger)
    return run_eigenvalues(runs, ledger, folder) if kind == "eigenvalues" else run_curves(runs, ledger)


def _of_task(kind: str, plan: planning.Plan, instance: Instance, ledger: Any, folder: Path) -> Figure:
    metric = comparison.SPEED if kind == "speed" else comparison.METRIC
    selected, notes = reading.counted(plan, instance, ledger, metric)
    if not any(one.counted for one in selected.values()):
        words = plan.recipe.task + (f" --profile {plan.profile}" if plan.profile else "")
        raise NotFoundError(
            f"ladder {plan.ladder.name} on {words}: no run is finished, so there is nothing to draw",
            f"run: lrurun ladder {words}",
        )
    if kind == "curves":
        return ladder_curves(plan, selected, notes, ledger)
    if kind == "norms":
        return ladder_norms(plan, selected, notes, ledger)
    if kind == "eigenvalues":
        return ladder_eigenvalues(plan, selected, notes, ledger, folder)
    numbers = {run.id: (run.result or {})[metric] for one in selected.values() for run in one.counted}
    if kind == "speed":
        return speeds(reading.build_speeds(plan, instance, ledger), numbers)
    return ladder(reading.build(plan, instance, ledger), numbers)


# Means


def ladder(report: comparison.Report, scores: Mapping[str, float]) -> Figure:
    """The test accuracy of every rung; `scores` are those of the runs that count, by their ids."""
    lines = []
    silent: dict[str, list[str]] = {}
    for row in report.rows:
        for one in row.published:
            if one.value is None:
                silent.setdefault(one.note or "no value", []).append(row.rung)
        lines.append(
            Line(
                name=row.rung,
                note=_note(row),
                mean=_percent(row.mean),
                stderr=_percent(row.stderr),
                seeds=tuple(100 * scores[run] for run in row.runs),
                published=tuple(
                    Mark(value=100 * one.value, stderr=_percent(one.stderr))
                    for one in row.published
                    if one.value is not None
                ),
            )
        )
    sources = dict.fromkeys(one.source for row in report.rows for one in row.published if one.value is not None)
    said = ["Mean ± standard error over n finished seeds; each seed below its mean."]
    if sources:
        said.append(f"Published: {'; '.join(sources)}.{sheet.scale(report.profile)}")
    said += [f"Published without a value ({note}): {', '.join(rungs)}." for note, rungs in silent.items()]
    return figures.means(
        lines,
        label="test accuracy [%]",
        title=sheet.heading(report.task, report.profile, report.title),
        caption=_caption(said, report.notes),
    )


def _note(row: comparison.Row) -> str:
    """What stands under a rung's name."""
    counts = {"diverged": row.diverged, "failed": row.failed, "unfinished": row.unfinished}
    said = [f"n = {row.n}", *(f"{count} {state}" for state, count in counts.items() if count)]
    return ", ".join([*said, f"as {row.on}"] if row.same_as_before else said)


def speeds(report: speed.Report, found: Mapping[str, float]) -> Figure:
    """The training speed of every rung on every device; `found` has each counted run's, by its id."""
    settings = list(dict.fromkeys(row.setting for row in report.rows if row.setting is not None))
    differing = [
        name for name in speed.Setting.__struct_fields__ if len({getattr(setting, name) for setting in settings}) > 1
    ]
    lines = [
        Line(
            name=row.rung,
            note=f"n = {row.n}" + (", as the rung it changes" if row.same_as_before else ""),
            mean=row.steps_per_second,
            stderr=row.stderr,
            seeds=tuple(found[run] for run in row.runs),
            # once a rung, though it has a line for every setting
            published=()
            if number and report.rows[number - 1].rung == row.rung
            else tuple(Mark(value=one.value) for one in row.published),
            group=", ".join(_setting(row.setting, name) for name in differing) if row.setting else "",
        )
        for number, row in enumerate(report.rows)
    ]
    said = ["Mean ± standard error over n finished seeds; each seed below its mean."]
    shared = [_setting(settings[0], name) for name in ("device", "threads", "packed") if name not in differing]
    if words := [word for word in shared if word]:
        said.append(f"All runs: {', '.join(words)}.")
    sources = dict.fromkeys(f"{one.source}, on {one.device}" for row in report.rows for one in row.published)
    if sources:
        said.append(f"Published: {'; '.join(sources)}.{sheet.scale(report.profile)}")
        said.append("Speeds of unequal devices do not compare; their ratios may.")
    return figures.means(
        lines,
        label="training speed [steps/s]",
        title=sheet.heading(report.task, report.profile, f"training speed, {report.title}"),
        caption=_caption(said, report.notes),
        log=True,
    )


def _setting(setting: speed.Setting, name: str) -> str:
    value = getattr(setting, name)
    if name == "device":
        return "unknown device" if value is None else str(value)
    if name == "packed":
        return "" if value == 1 else f"{value} runs packed"
    words = name.replace("_", " ")
    return "" if value is None else f"{value} {words.removesuffix('s') if value == 1 else words}"


# Curves


def ladder_curves(
    plan: planning.Plan, selected: Mapping[str, comparison.Selected], notes: Sequence[str], ledger: Any
) -> Figure:
    """Loss and validation accuracy of every rung, as means over its finished seeds."""
    own = {rung: one for rung, one in selected.items() if one.of == rung and one.counted}
    known = {rung: [ledger.metrics(run.id, CURVES) for run in one.counted] for rung, one in own.items()}
    panels = [
        Panel(
            label=label,
            curves=tuple(
                _scaled(metric, figures.average(f"{rung} (n={len(seeds)})", [seed[metric] for seed in seeds]))
                for rung, seeds in known.items()
                if all(metric in seed for seed in seeds)
            ),
            log=metric == "train/loss",
        )
        for metric, label in CURVES.items()
    ]
    said = ["Line: mean over n finished seeds; band: ± standard error."]
    same = [f"{rung} as {one.of}" for rung, one in selected.items() if one.of != rung and one.counted]
    if same:
        said.append(f"Not drawn, being the same runs: {', '.join(same)}.")
    lost = [
        f"{rung} ({len(one.runs) - len(one.counted)} of {len(one.runs)})"
        for rung, one in selected.items()
        if one.of == rung and len(one.runs) > len(one.counted)
    ]
    if lost:
        said.append(f"Left out, being diverged, failed or unfinished: {', '.join(lost)}.")
    return figures.curves(
        panels,
        title=sheet.heading(plan.recipe.task, plan.profile, plan.ladder.title),
        caption=_caption(said, notes),
    )


def run_curves(runs: Sequence[Run], ledger: Any) -> Figure:
    """Loss and validation accuracy of single runs, as far as they have come."""
    known = {run.id: ledger.metrics(run.id, CURVES) for run in runs}
    if not any(known.values()):
        raise NotFoundError(
            f"run {', '.join(known)}: has no curves yet, so there is nothing to draw",
            "lrurun status tells how far it is",
        )
    panels = [
        Panel(
            label=label,
            curves=tuple(
                _scaled(metric, figures.average(_name(run), [known[run.id][metric]]))
                for run in runs
                if metric in known[run.id]
            ),
            log=metric == "train/loss",
        )
        for metric, label in CURVES.items()
        if any(metric in curves for curves in known.values())
    ]
    return figures.curves(panels, title=_heading(runs), caption=_states(runs))


# Norms

NORMS = (
    "Mean length of the recurrent state over the positions of one batch of the validation split, layer by layer; of "
    "bidirectional layers, of the forward direction."
)


def ladder_norms(
    plan: planning.Plan, selected: Mapping[str, comparison.Selected], notes: Sequence[str], ledger: Any
) -> Figure:
    """The lengths of every rung's states, as means over its finished seeds."""
    own = {rung: one for rung, one in selected.items() if one.of == rung and one.counted}
    panels = [
        _norms(f"{rung} (n={len(one.counted)})", [ledger.metrics(run.id) for run in one.counted])
        for rung, one in own.items()
    ]
    title = sheet.heading(plan.recipe.task, plan.profile, plan.ladder.title)
    several = any(len(one.counted) > 1 for one in own.values())
    said = [NORMS, *(["Line: mean over n finished seeds; band: ± standard error."] if several else [])]
    return _norm_figure(panels, title, _caption(said, notes), f"ladder {plan.ladder.name}")


def run_norms(runs: Sequence[Run], ledger: Any) -> Figure:
    """The lengths of the states of single runs."""
    panels = [_norms("" if len(runs) == 1 else run.id, [ledger.metrics(run.id)]) for run in runs]
    caption = " ".join([NORMS, _states(runs)]).strip()
    return _norm_figure(panels, _heading(runs), caption, f"run {', '.join(run.id for run in runs)}")


def _norms(title: str, seeds: Sequence[Mapping[str, list[tuple[int, float]]]]) -> Panel:
    known = set.intersection(*({key for key in seed if key.startswith(NORM)} for seed in seeds))
    layers = sorted(int(key.removeprefix(NORM)) for key in known)
    curves = tuple(figures.average(f"layer {k + 1}", [seed[f"{NORM}{k}"] for seed in seeds]) for k in layers)
    return Panel(title=title, label="mean state norm", curves=curves, log=True)


def _norm_figure(panels: Sequence[Panel], title: str, caption: str, what: str) -> Figure:
    if not any(panel.curves for panel in panels):
        raise NotFoundError(
            f"{what}: no norms are recorded, so there is nothing to draw",
            "they are recorded at every evaluation, by versions that know them; train again with --fresh",
        )
    columns = 1 if len(panels) == 1 else 2
    return figures.curves(panels, title=title, caption=caption, columns=columns, height=1.6 if columns == 1 else 1.25)


# Eigenvalues


def ladder_eigenvalues(
    plan: planning.Plan, selected: Mapping[str, comparison.Selected], notes: Sequence[str], ledger: Any, folder: Path
) -> Figure:
    """The eigenvalues of every rung that has runs of its own: those of all layers of its first finished seed."""
    from lrurun.spectra import before_and_after

    spectra: list[Spectrum] = []
    seeds: dict[int, list[str]] = {}
    for rung, one in selected.items():
        if one.of == rung and one.counted:
            run = one.counted[0]
            _, initial, trained = before_and_after(run, ledger, folder)
            spectra.append(Spectrum(title=rung, initial=sum(initial, ()), trained=sum(trained, ())))
            seeds.setdefault(run.seed, []).append(rung)
    of = "; ".join(
        f"seed {seed} of {', '.join(rungs)}" if len(seeds) > 1 else f"seed {seed}" for seed, rungs in seeds.items()
    )
    said = [f"Eigenvalues of the recurrence, all layers, {of}; the unit circle.", *_unfinite(spectra)]
    title = sheet.heading(plan.recipe.task, plan.profile, plan.ladder.title)
    return figures.eigenvalues(spectra, title=title, caption=_caption(said, notes))


def run_eigenvalues(runs: Sequence[Run], ledger: Any, folder: Path) -> Figure:
    """The eigenvalues of every layer of these runs."""
    from lrurun.spectra import before_and_after

    spectra, steps = [], []
    for run in runs:
        step, initial, trained = before_and_after(run, ledger, folder)
        steps.append(f"{step:,}" if len(runs) == 1 else f"{step:,} ({run.id})")
        for number, (before, after) in enumerate(zip(initial, trained, strict=True), 1):
            title = f"layer {number}" if len(runs) == 1 else f"{run.id[:6]}, layer {number}"
            spectra.append(Spectrum(title=title, initial=before, trained=after))
    said = [f"Eigenvalues of the recurrence, trained to step {', '.join(steps)}; the unit circle.", *_unfinite(spectra)]
    names = ", ".join(map(_name, runs)) if len(runs) == 1 else f"{len(runs)} runs"
    tasks = ", ".join(dict.fromkeys(run.task for run in runs))
    return figures.eigenvalues(spectra, title=f"{tasks}: {names}", caption=_caption([*said, _states(runs)], []).strip())


def _unfinite(spectra: Sequence[Spectrum]) -> list[str]:
    """What cannot be drawn."""
    lost = [one.title for one in spectra if not all(map(cmath.isfinite, one.trained))]
    return [f"Not finite, so not drawn, are some of: {', '.join(lost)}."] if lost else []


def _scaled(metric: str, curve: Curve) -> Curve:
    """Accuracies in per cent."""
    if not metric.endswith("accuracy"):
        return curve
    values, low, high = (tuple(100 * value for value in part) for part in (curve.values, curve.low, curve.high))
    return Curve(name=curve.name, steps=curve.steps, values=values, low=low, high=high)


def _name(run: Run) -> str:
    rung = run.memberships[0].rung if run.memberships else run.task
    return f"{run.id} ({rung}, seed {run.seed})"


def _heading(runs: Sequence[Run]) -> str:
    tasks = ", ".join(dict.fromkeys(run.task for run in runs))
    return f"{tasks}: run {runs[0].id}" if len(runs) == 1 else f"{tasks}: {len(runs)} runs"


def _states(runs: Sequence[Run]) -> str:
    """What must be said of runs that are not done."""
    said = [f"{run.id} is {run.state}, at step {run.step:,} of {run.steps:,}." for run in runs if run.state != "done"]
    return " ".join(said)


def _percent(value: float | None) -> float | None:
    return None if value is None else 100 * value


def _caption(said: Sequence[str], notes: Sequence[str]) -> str:
    return " ".join([*said, *(f"Note: {note}." for note in notes)])
