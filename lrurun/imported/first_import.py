"""A source that has no file yet: its table and its rungs, understood or asked for, as the text of a file."""

from __future__ import annotations

import os
import shlex
import tempfile
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec
from msgspec import structs

from lrurun import decoding, paths
from lrurun.config import metric_names
from lrurun.config.imported import ImportTable, rules, validation_metrics
from lrurun.config.ladder import Ladder, load_ladder
from lrurun.config.recipe import Recipe, load_recipe
from lrurun.console import clean
from lrurun.errors import UsageError, plural, raise_first
from lrurun.imported import document, exports, placing, rungs, scoring, sources, understanding
from lrurun.imported.conditions import PROJECT
from lrurun.imported.document import RungText
from lrurun.imported.earlier import EarlierImports
from lrurun.imported.placing import Basis, Understood, finished
from lrurun.imported.request import NO_SEED, ImportOptions, Request
from lrurun.imported.sources import FRAME
from lrurun.paths import shown
from lrurun.trackers import Direction, TrackedRun


def understand(request: Request, target: Path, earlier: EarlierImports) -> Understood:
    given = request.options
    opened = sources.opened(request.sources, given, Path(), request.frame)
    read = sources.read(opened, [] if sources.tell_ends(opened) else _asked(given))
    light = [run for run, _ in read.runs]
    asked, given = given, exports.completed(given, light)
    read.runs = exports.in_order(read.runs, [run.exported for run in light])
    light = [run for run, _ in read.runs]
    metric = understanding.chosen_metric(light, given.metric)
    if given.metric_for_choice is not None:
        understanding.check_metric(light, given.metric_for_choice, "--metric-for-choice")
    opened = sources.with_columns(read, opened, [metric, *filter(None, [given.metric_for_choice])])
    light = [run for run, _ in read.runs]
    known = understanding.metrics(light)
    _check_choice(given, known, metric)
    settings = understanding.paths_of(light)
    seed = _seed_setting(light, settings, given)
    table = _table(structs.replace(request, options=given), target, opened[0].tracker, light, metric, seed)
    declared = None if given.ladder is None else load_ladder(given.ladder)
    by: list[str] = []
    made: list[rungs.NewRung] = []
    if declared is None:
        by = _by(given, light, settings, {*known, *filter(None, [seed])})
        if seed in by:
            raise UsageError(
                f"--by {','.join(by)}: {seed} has the seeds, and each rung needs several",
                "leave it out of --by, or name another setting with --seed-column, or none",
            )
        base = {understanding.resolved_name(name, by, "--base"): value for name, value in given.base.items()}
        if chosen := [name for name in table.choose if name in by]:
            raise UsageError(
                f"--choose {chosen[0]}: makes the rungs, of which none has several values of it",
                "leave it out of --choose or of --by",
            )
        made = rungs.by_values(light, by, base)
        made = made if base else exports.with_bases(made, by, light)
        if len(made) < 2:
            raise UsageError(
                f"--by {','.join(by)}: all runs have {_shown_values(made[0].values)}, so that there is one rung",
                f"settings that vary: {_listed_settings(understanding.varying(light, known)) or 'none'}",
            )
    varying = understanding.varying(light, {*known, table.seed}, with_drawn=True)
    varied = [each for each in varying if each.name not in by]
    text = document.text(
        request.task,
        _title(by, declared),
        table,
        _rung_texts(made) if declared is None else _declared_rungs(declared),
        head=_head(request, target),
        notes=_notes(
            request,
            table,
            known,
            varied,
            by,
            made,
            is_recorded=given.direction is None and understanding.recorded_direction(light, metric) is not None,
        ),
        tables=None if declared is None else {"claim": _claims(declared)},
    )
    ladder, recipe = documents_of(text, target)
    return finished(
        Basis(
            target=target,
            text=text,
            is_new=True,
            request=_recorded(request, declared),
            table=table,
            ladder=ladder,
            recipe=recipe,
            opened=opened,
            read=read,
            earlier=earlier.runs(request.task, table.reading),
            for_steps=_for_steps(asked, known, table, light),
            sentences=[placing.score_sentence(table, known), *placing.seed_sentences(table, light)],
        ),
        by,
    )


def _recorded(request: Request, declared: Ladder | None) -> dict[str, Any]:
    """What the user asks for, with which a later request is compared."""
    entries = request.options.recorded
    if request.frame is None:
        entries["source"] = sources.places(request.sources, Path())
    return entries if declared is None else entries | {"rungs": rungs.declared(declared)}


def _check_choice(given: ImportOptions, known: Collection[str], metric: str) -> None:
    """Refuses options that need a validation metric which nobody has named.

    Raises:
        UsageError: with the metrics that could be it.
    """
    for option, needs_it in (("--at best", given.at == "best"), ("--choose", bool(given.choose))):
        if needs_it and given.metric_for_choice is None:
            likely = validation_metrics(known, metric)
            likely += [name for name in known if metric_names.split_of(name) == "validation" and name not in likely]
            others = likely or [name for name in known if name != metric]
            hint = f"name it: --metric-for-choice {others[0]}" if others else "no run has another metric"
            more = f"; others: {', '.join(others[1:6])}" if len(others) > 1 else ""
            raise UsageError(f"{option}: needs the validation metric that chooses", hint + more)


_USUAL = ("loss", "acc", "accuracy", "error")
"""Scores whose values on the validation split are read at once, as they often are beside any score."""


def _asked(given: ImportOptions) -> list[str]:
    """The metrics whose curves are read at once: those that are named, and what metrics of the validation split may be
    called, so that the source need not be read again for them."""
    names = [name for name in (given.metric, given.metric_for_choice) if name is not None]
    if given.metric is not None and given.at is None:
        own = given.metric.replace("test", "").strip("/_.: -")
        for word in ("val", "valid", "validation", "dev", "eval"):
            name = given.metric.replace("test", word)
            names += [name, *(name.replace(own, usual) for usual in _USUAL if own)]
    return list(dict.fromkeys(names))


def _for_steps(
    given: ImportOptions, known: Collection[str], table: ImportTable, runs: Sequence[TrackedRun]
) -> tuple[str, ...]:
    """The validation metrics that could choose a step, where the user leaves the step open: those that say in which
    direction they are better, the score on the validation split first."""
    if given.at is not None or given.protocol is not None or all(run.last_step is None for run in runs):
        return ()
    if given.metric_for_choice is not None:
        return (given.metric_for_choice,)
    twins = validation_metrics(known, table.metric)
    others = [
        name
        for name in known
        if name != table.metric
        and metric_names.split_of(name) == "validation"
        and metric_names.direction_of(name) is not None
        and not metric_names.is_about_time(name)
    ]
    return tuple(dict.fromkeys([*twins, *others]))


def _seed_setting(runs: Sequence[TrackedRun], settings: Sequence[str], given: ImportOptions) -> str | None:
    if given.seed is None:
        return understanding.seed_column(runs)
    if given.seed == NO_SEED and NO_SEED not in settings:
        return None
    return understanding.resolved_name(given.seed, settings, "--seed-column")


def _by(
    given: ImportOptions, runs: Sequence[TrackedRun], settings: Sequence[str], without: Collection[str]
) -> list[str]:
    if not given.by:
        return understanding.chosen_by(runs, {*without, *given.choose})
    known = list(settings)
    if PROJECT not in settings and len({run.project for run in runs}) > 1:
        known.append(PROJECT)
    by = [understanding.resolved_name(name, known, "--by") for name in given.by]
    for name in by:
        if by.count(name) > 1:
            raise UsageError(f"--by {','.join(given.by)}: {name} is named twice", "name each setting once")
    return by


def _table(
    request: Request, target: Path, kind: str, runs: Sequence[TrackedRun], metric: str, seed: str | None
) -> ImportTable:
    """The table `[import]`: what is given, and what is understood."""
    given = request.options
    settings = understanding.paths_of(runs)
    values = [value for run in runs if (value := scoring.value_of(run, metric)) is not None]
    scale = understanding.scale_of(metric if given.unit is None else "accuracy", values)
    direction = given.direction or _direction(runs, metric)
    entries: dict[str, Any] = {
        "unit": scale.unit,
        "per_cent": scale.per_cent and given.unit in (None, "%"),
        **given.values,
        "source": [FRAME]
        if request.frame is not None
        else [_from_folder(name, target.parent) for name in request.sources],
        "from": kind,
        "metric": metric,
        "direction": direction,
        "seed": seed or "",
        "choose": [understanding.resolved_name(name, settings, "--choose") for name in given.choose],
    }
    if given.metric_for_choice is not None:
        table = msgspec.convert(entries, ImportTable)
        of_choice = direction if table.choice_is_twin else _known(runs, given.metric_for_choice)
        if of_choice is None:
            raise UsageError(
                f"--metric-for-choice {given.metric_for_choice}: its name does not say whether higher is better",
                "name a metric whose name says it; or import without it, and then write metric_for_choice and "
                "direction_for_choice into the file",
            )
        entries |= {} if of_choice == direction else {"direction_for_choice": of_choice}
    table = msgspec.convert(entries, ImportTable)
    raise_first(rules(table, shown(target)))
    return table


def _known(runs: Sequence[TrackedRun], metric: str) -> Direction | None:
    """Whether higher or lower values are better, as the tracker has it, else by the name of the metric."""
    return understanding.recorded_direction(runs, metric) or metric_names.direction_of(metric)


def _direction(runs: Sequence[TrackedRun], metric: str) -> Direction:
    """Whether higher or lower scores are better.

    Raises:
        UsageError: neither the tracker nor the name of the metric says it.
    """
    direction = _known(runs, metric)
    if direction is None:
        raise UsageError(
            f"{metric}: its name does not say whether higher or lower is better",
            "say it with --direction max, or with --direction min where lower is better",
        )
    return direction


def _from_folder(name: str, folder: Path) -> str:
    """A source as the file names it, whose relative paths are from its folder."""
    if "://" in name or name.startswith("~") or os.path.isabs(name):
        return name
    return os.path.relpath(name, folder)


def _shown_values(values: Mapping[str, str]) -> str:
    return ", ".join(f"{name}={value}" for name, value in values.items())


def _listed_settings(found: Sequence[understanding.Varying]) -> str:
    return "; ".join(each.shown for each in found[:12])


# The text of the file


def _title(by: Sequence[str], declared: Ladder | None) -> str:
    """The title of the ladder, which reports complete by the name of the import, as in "comparison by norm on runs"."""
    if declared is None:
        return clean(f"comparison by {' and '.join(by)}")
    return "comparison" if declared.title == "ladder" else declared.title


def _head(request: Request, target: Path) -> list[str]:
    again = f"lrurun import {shown(target)}"
    if request.frame is not None:
        again = f'lrurun.import_runs(frame, name="{request.task}")'
    return [
        f"Runs that were made elsewhere, as lrurun has understood them. Edit this file, and import it: {again}",
        f"Written by: {shlex.join(request.command) if request.command else 'lrurun.import_runs'}",
    ]


def _notes(
    request: Request,
    table: ImportTable,
    known: Mapping[str, int],
    varied: Sequence[understanding.Varying],
    by: Sequence[str],
    made: Sequence[rungs.NewRung],
    is_recorded: bool,
) -> dict[str, str]:
    """The comments of the file: where its values come from, and what else they could be.

    Args:
        is_recorded: the tracker records the direction of the metric.
    """
    given = request.options
    others = [name for name in known if name != table.metric]
    recorded = "By the record of the tracker: " if is_recorded else "By the name of the metric: "
    notes = {
        "source": "Relative paths are from the folder of this file.",
        "metric": f"The score. Other metrics: {', '.join(others[:20])}." if others else "The score.",
        "direction": _source_of(given.direction, recorded) + "max, or min if lower is better.",
        "at": _source_of(given.at, "By default: ") + 'the "last" step; or a number; or "best" by metric_for_choice.',
        "seed": _seed_note(table, given),
        "crashed": 'Whether runs that crashed are "missing", or "failed": failures that rank below all others.',
    }
    if table.unit and given.unit is None:
        notes["unit"] = "By the name and the values of the metric: fractions that are printed in per cent."
    if table.per_cent and given.per_cent is None:
        notes["per_cent"] = "By its values: the tracker has per cent, so that they are divided by 100."
    lines = (
        [f"One rung for each combination of {' and '.join(by)}, in the order in which they were found."] if made else []
    )
    lines.append("A run is a seed of the rung whose condition it meets; it is compared with the runs of `on`.")
    if varied:
        lines.append(f"Also vary: {_listed_settings(varied)}.")
    return {**notes, "rung": "\n".join(lines)}


def _source_of(value: Any, otherwise: str) -> str:
    return "As asked for: " if value is not None else otherwise


def _seed_note(table: ImportTable, given: ImportOptions) -> str:
    if not table.seed:
        return "No setting has the seed: runs of a rung are numbered, and that they are independent is your word."
    return "As asked for." if given.seed is not None else "By its name: the setting that has the seed."


def _rung_texts(made: Sequence[rungs.NewRung]) -> list[RungText]:
    texts = []
    for rung in made:
        table: dict[str, Any] = {"name": rung.name, "where": rung.where}
        if rung.on is not None:
            table["on"] = rung.on
        elif rung is not made[0]:
            table["root"] = True
        comment = plural(rung.runs, "run")
        if len(rung.apart) > 1:
            comment += f"; it differs from its base in {' and '.join(rung.apart)}"
        texts.append(RungText(table=table, comment=comment))
    return texts


_OF_RUNGS = ("name", "title", "on", "root", "why", "where")
"""The keys of rungs that are copied from a ladder."""


def _declared_rungs(ladder: Ladder) -> list[RungText]:
    """The rungs of a ladder file, as it has them.

    Raises:
        UsageError: a rung has no condition.
    """
    for rung in ladder.rungs:
        if not rung.where:
            raise UsageError(
                f"{ladder.path}, rung {rung.name}: has no condition on its runs",
                "as in: where = \"norm = 'layer' and depth = 4\"",
            )
    table = decoding.load_toml(paths.find("ablations", ladder.path))
    return [RungText(table={key: rung[key] for key in rung if key in _OF_RUNGS}) for rung in table["rung"]]


def _claims(ladder: Ladder) -> list[dict[str, Any]]:
    claims: list[dict[str, Any]] = decoding.load_toml(paths.find("ablations", ladder.path)).get("claim", [])
    return claims


def documents_of(text: str, target: Path) -> tuple[Ladder, Recipe]:
    """The ladder and the recipe in the text of a file, as they are read once it is written."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / target.name
        path.write_text(text, encoding="utf-8")
        ladder, recipe = load_ladder(str(path)), load_recipe(str(path))
    return structs.replace(ladder, path=shown(target)), structs.replace(recipe, path=shown(target))
