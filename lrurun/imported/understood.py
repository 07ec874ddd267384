"""An import before anything is written: the runs that were read, their rungs and seeds, and the file that says so."""

from __future__ import annotations

import os
import re
import shlex
import tempfile
from collections.abc import Collection, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

import msgspec
from msgspec import Struct, structs

from lrurun import decoding, paths
from lrurun.config import planning
from lrurun.config.imported import ImportTable
from lrurun.config.imported import rules as imported_rules
from lrurun.config.ladder import NAME, Ladder, load_ladder
from lrurun.config.recipe import Recipe, load_recipe
from lrurun.config.runs import pack
from lrurun.config.schema import ImportedConfig, Origin
from lrurun.data import tasks
from lrurun.errors import LrurunError, UsageError, plural, raise_first
from lrurun.imported import choosing, document, options, repeats, rungs, scoring, sources, understanding
from lrurun.imported.document import RungText
from lrurun.imported.options import ImportOptions
from lrurun.imported.recording import Placed
from lrurun.imported.scoring import ScoredRun
from lrurun.imported.sources import FRAME, OpenedSource
from lrurun.instances.import_record import Caution
from lrurun.ledger.values import Run
from lrurun.paths import shown
from lrurun.trackers import TrackedRun

MOST_POSITIONS = 4_999
"""The last position of a stage in a rung; runs beyond it share it."""
MOST_POINTS = 3_000_000
"""The most points of curves of scores that are held until it is known how they are read."""


class Request(Struct, frozen=True, kw_only=True):
    """What is to be imported, and where its file is."""

    sources: tuple[str, ...]
    """As the user names them; the path of a file that lrurun wrote, alone, stands for the sources in it."""
    options: ImportOptions
    name: str | None
    folder: Path
    """The folder of the file."""
    command: tuple[str, ...]
    """The command, for the head of the file."""
    frame: Any = None

    @property
    def document(self) -> Path | None:
        """The file that the user names in place of a source."""
        is_file = len(self.sources) == 1 and self.sources[0].endswith(".toml") and self.frame is None
        return Path(self.sources[0]).expanduser() if is_file else None

    @property
    def target(self) -> Path:
        """The path of the file.

        Raises:
            UsageError: the name cannot be one of a task.
        """
        return self.document or self.folder / f"{self.task}.toml"

    @property
    def task(self) -> str:
        """The name of the import.

        Raises:
            UsageError: it cannot be one.
        """
        if self.name is not None:
            return checked_name(self.name, "--name")
        stem = "runs" if self.frame is not None else re.split(r"[/\\]", self.sources[0].rstrip("/\\"))[-1]
        stem = re.sub(r"[^A-Za-z0-9._-]+", "-", Path(stem or "runs").stem).strip("-._")
        if not stem or stem.startswith("-"):
            stem = "runs"
        return checked_name(stem, f"{self.sources[0]}")


def checked_name(name: str, where: str) -> str:
    """The name of an import, which names its file and its task.

    Raises:
        UsageError: it is no file name, or the name of a task or of runs.
    """
    if not re.fullmatch(NAME, name, re.ASCII) or len(name) > 100 or name.endswith(".toml"):
        hint = "at most 100 letters, digits, '.', '_' and '-', as in --name norms"
        raise UsageError(f"{where}: {name!r} cannot be the name of an import and its file", hint)
    if name in tasks.TASKS or name in paths.names("recipes"):
        raise UsageError(f"{where}: {name!r} is a task of lrurun", "choose another name: --name NAME")
    if paths.is_run_id(name):
        raise UsageError(f"{where}: {name!r} looks like the id of a run", "choose another name: --name NAME")
    return name


class Understood(Struct, frozen=True, kw_only=True):
    """An import of which everything is known that the ledger gets, but the curves."""

    target: Path
    text: str
    """The text of the file."""
    is_new: bool
    """Whether the file is to be written."""
    table: ImportTable
    plan: planning.Plan
    sources: list[OpenedSource]
    counts: dict[str, int]
    """Source -> how many runs it has."""
    placed: list[Placed]
    kept: list[tuple[Placed, str]]
    """Runs of earlier imports that are no longer in the source, each with its id in the ledger."""
    outside: tuple[str, ...]
    """The runs that fit no rung, by their names."""
    cautions: tuple[Caution, ...]
    sentences: tuple[str, ...]
    """What was understood, a line each."""


class Earlier(Struct, frozen=True, kw_only=True):
    """A run that an earlier import has recorded."""

    run: Run
    name: str
    """The name that the tracker had for it."""


# Reading


class _Read(Struct, kw_only=True):
    """Runs as they were read, without curves unless they are short."""

    runs: list[tuple[TrackedRun, OpenedSource]]
    curves: frozenset[str]
    """The metrics whose curves were asked for."""
    has_curves: bool
    """Whether they have them."""


def _read(opened: Sequence[OpenedSource], curves: Collection[str]) -> _Read:
    identities = sources.Identities()
    found: list[tuple[TrackedRun, OpenedSource]] = []
    points, has_curves = 0, True
    for source in opened:
        for run in source.runs(curves):
            identities.add(run, source)
            points += sum(len(curve.steps) for curve in run.curves.values())
            if points > MOST_POINTS:
                has_curves = False
            found.append((run if has_curves else structs.replace(run, curves={}), source))
    if not found:
        names = ", ".join(source.name for source in opened)
        notes = "; ".join(note for source in opened for note in source.reader.notes())
        raise UsageError(f"{names}: has no runs", notes or "name a source with runs")
    return _Read(runs=found, curves=frozenset(curves), has_curves=has_curves)


def _with_curves(
    read: _Read, opened: Sequence[OpenedSource], needed: Collection[str]
) -> Iterator[tuple[TrackedRun, OpenedSource]]:
    """The runs with the curves that are needed: as they were read, or read again."""
    has_steps = any(run.last_step is not None for run, _ in read.runs)
    if not has_steps or (read.has_curves and read.curves.issuperset(needed)):
        yield from read.runs
        return
    known = {(source.tracker, run.project, run.id) for run, source in read.runs}
    for source in opened:
        for run in source.runs(needed):
            if (source.tracker, run.project, run.id) in known:
                yield run, source


def understand(request: Request, earlier: Sequence[Earlier] = ()) -> Understood:
    """Reads a source and says what it has, by the file of the import where there is one.

    Nothing is written. `earlier` are the imported runs of its task that the ledger has.

    Raises:
        UsageError: something in the source, an option or the file does not fit, or is not clear.
        LrurunError: the source cannot be read.
    """
    target = request.target
    if request.document is not None and not target.is_file():
        raise UsageError(f"{target}: there is no such file", "name a source of runs, or the file of an import")
    return _by_file(request, target, earlier) if target.exists() else _new(request, target, earlier)


class _Basis(Struct, frozen=True, kw_only=True):
    """What is known before the runs are sorted into rungs."""

    target: Path
    text: str
    is_new: bool
    table: ImportTable
    ladder: Ladder
    recipe: Recipe
    opened: list[OpenedSource]
    read: _Read
    earlier: Sequence[Earlier]
    twin: str | None
    """The validation metric by which the best step may be another one than the last, where nobody has said which
    counts."""
    sentences: list[str]


# A source without a file


def _new(request: Request, target: Path, earlier: Sequence[Earlier]) -> Understood:
    given = request.options
    opened = _opened(request.sources, given, Path(), request.frame)
    asked = {given.metric, given.metric_for_choice, *(_twins(given.metric) if given.metric else ())} - {None}
    read = _read(opened, [name for name in asked if name is not None])
    light = [run for run, _ in read.runs]
    metric = understanding.chosen_metric(light, given.metric)
    if given.metric_for_choice is not None:
        understanding.check_metric(light, given.metric_for_choice, "--metric-for-choice")
    opened = _with_columns(read, opened, [metric, *filter(None, [given.metric_for_choice])])
    light = [run for run, _ in read.runs]
    known = understanding.metrics(light)
    settings = understanding.paths_of(light)
    seed = _seed_setting(light, settings, given)
    table = _table(request, target, opened[0].tracker, light, metric, seed)
    declared = None if given.ladder is None else load_ladder(given.ladder)
    by: list[str] = []
    made: list[rungs.NewRung] = []
    if declared is None:
        by = _by(given, light, settings, {*known, *filter(None, [seed])})
        base = {understanding.resolved_name(name, by, "--base"): value for name, value in given.base.items()}
        made = rungs.by_values(light, by, base)
        if len(made) < 2:
            raise UsageError(
                f"--by {','.join(by)}: all runs have {_shown_values(made[0].values)}, so that there is one rung",
                f"settings that vary: {_listed_settings(understanding.varying(light, known)) or 'none'}",
            )
    varied = [each for each in understanding.varying(light, {*known, table.seed}) if each.name not in by]
    text = document.text(
        request.task,
        table,
        _rung_texts(made) if declared is None else _declared_rungs(declared),
        head=_head(request),
        notes=_notes(request, table, known, varied, by, made),
        tables=None if declared is None else {"claim": _claims(declared)},
    )
    ladder, recipe = _documents(text, target)
    return _finished(
        _Basis(
            target=target,
            text=text,
            is_new=True,
            table=table,
            ladder=ladder,
            recipe=recipe,
            opened=opened,
            read=read,
            earlier=earlier,
            twin=_twin(given, known, metric, light),
            sentences=[_score_sentence(table, known), *_seed_sentences(table, light)],
        ),
        by,
    )


def _opened(names: Sequence[str], given: ImportOptions, folder: Path, frame: Any) -> list[OpenedSource]:
    opened = sources.opened(
        names,
        kind=given.kind,
        folder=folder,
        project=given.project or "",
        metrics_file=given.metrics_file or "",
        items=given.items or "",
        frame=frame,
    )
    kinds = {source.tracker for source in opened}
    if len(kinds) > 1:
        found = ", ".join(f"{source.name} ({source.tracker})" for source in opened)
        raise UsageError(
            f"the sources are of several kinds: {found}", "import each kind under a name of its own: --name"
        )
    return opened


def _with_columns(read: _Read, opened: Sequence[OpenedSource], metrics: Sequence[str]) -> list[OpenedSource]:
    """The sources, and the runs that were read, with these metrics that are columns of a table no longer settings."""
    columns = tuple(name for name in metrics if any(name in run.settings for run, _ in read.runs))
    changed = {source.name: structs.replace(source, metrics=columns) for source in opened}
    read.runs = [(understanding.with_metrics(run, columns), changed[source.name]) for run, source in read.runs]
    return list(changed.values())


def _twins(metric: str) -> list[str]:
    """The names that a metric of the test split may have on a validation split."""
    names = []
    for word in ("val", "valid", "validation", "dev", "eval"):
        for mine, other in (("test", word), ("Test", word.capitalize()), ("TEST", word.upper())):
            if mine in metric:
                names.append(metric.replace(mine, other))
    return names


def _twin(given: ImportOptions, known: Mapping[str, int], metric: str, runs: Sequence[TrackedRun]) -> str | None:
    """The validation metric that could choose a step, where the user has not said which step counts."""
    if given.at is not None or given.protocol is not None or all(run.last_step is None for run in runs):
        return None
    if given.metric_for_choice is not None:
        return given.metric_for_choice
    return next((name for name in _twins(metric) if name in known), None)


def _seed_setting(runs: Sequence[TrackedRun], settings: Sequence[str], given: ImportOptions) -> str | None:
    if given.seed is None:
        return understanding.seed_column(runs)
    return understanding.resolved_name(given.seed, settings, "--seed-column")


def _by(
    given: ImportOptions, runs: Sequence[TrackedRun], settings: Sequence[str], without: Collection[str]
) -> list[str]:
    if not given.by:
        return understanding.chosen_by(runs, {*without, *given.choose})
    by = [understanding.resolved_name(name, settings, "--by") for name in given.by]
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
    direction = given.direction or understanding.direction_of(metric)
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
        of_choice = understanding.direction_of(given.metric_for_choice)
        entries |= {} if of_choice == direction else {"direction_for_choice": of_choice}
    table = msgspec.convert(entries, ImportTable)
    raise_first(imported_rules(table, ""))
    return table


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


def _head(request: Request) -> list[str]:
    command = shlex.join(request.command) if request.command else "lrurun.import_runs"
    again = (
        "The runs came from a data frame: pass it to lrurun.import_runs with this name to read it again."
        if request.frame is not None
        else "Edit it, and run the command again (lrurun import with this file as its source): it counts as it stands."
    )
    return [f"Runs that were made elsewhere, as lrurun has understood them. {again}", f"Written by: {command}"]


def _notes(
    request: Request,
    table: ImportTable,
    known: Mapping[str, int],
    varied: Sequence[understanding.Varying],
    by: Sequence[str],
    made: Sequence[rungs.NewRung],
) -> dict[str, str]:
    """The comments of the file: where its values come from, and what else they could be."""
    given = request.options
    others = [name for name in known if name != table.metric]
    notes = {
        "source": "Relative paths are from the folder of this file.",
        "metric": f"The score. Other metrics: {', '.join(others[:20])}." if others else "The score.",
        "direction": _source_of(given.direction, "By the name of the metric: ") + "max, or min if lower is better.",
        "at": _source_of(given.at, "Not named: ") + 'the "last" step, a number, or "best" by metric_for_choice.',
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
        table = {"name": rung.name, "where": rung.where, **({} if rung.on is None else {"on": rung.on})}
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


def _documents(text: str, target: Path) -> tuple[Ladder, Recipe]:
    """The ladder and the recipe in the text of a file, as they are read once it is written."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / target.name
        path.write_text(text, encoding="utf-8")
        ladder, recipe = load_ladder(str(path)), load_recipe(str(path))
    return structs.replace(ladder, path=shown(target)), structs.replace(recipe, path=shown(target))


# The file of an earlier import


def _by_file(request: Request, target: Path, earlier: Sequence[Earlier]) -> Understood:
    file, given = shown(target), request.options
    try:
        recipe = load_recipe(str(target))
    except LrurunError as error:
        if "import" in _keys(target):
            raise
        raise _not_ours(request, file) from error
    if recipe.imported is None:
        raise _not_ours(request, file)
    table, text = recipe.imported, target.read_text(encoding="utf-8")
    if request.name is not None and request.document is not None and request.name != recipe.task:
        raise options.contradiction(f"--name {request.name}", f'task = "{recipe.task}"', file, text, "task")
    raise_first(options.contradictions(given, table, file, text))
    folder = target.parent
    if request.document is None and request.frame is None:
        _check_sources(request, table, folder, file, text)
    if request.frame is None and table.source == (FRAME,):
        raise UsageError(
            f"{file}: its runs came from a data frame, which cannot be read again from here",
            f'pass it: lrurun.import_runs(frame, name="{recipe.task}")',
        )
    if request.frame is not None and table.source != (FRAME,):
        raise options.contradiction("a data frame", f"source = {', '.join(table.source)}", file, text, "source")
    ladder = load_ladder(_ladder_of(target))
    of_file = structs.replace(
        given,
        kind=None if request.frame is not None else table.from_,
        project=table.project or None,
        metrics_file=table.metrics_file or None,
        items=table.items or None,
    )
    opened = _opened(table.source, of_file, folder, request.frame)
    read = _read(opened, _needed(table))
    light = [run for run, _ in read.runs]
    understanding.check_metric(light, table.metric, f"{file} [import], metric:")
    if table.metric_for_choice:
        understanding.check_metric(light, table.metric_for_choice, f"{file} [import], metric_for_choice:")
    if table.seed and all(table.seed not in run.settings for run in light):
        understanding.resolved_name(table.seed, understanding.paths_of(light), f"{file} [import], seed:")
    opened = _with_columns(read, opened, [table.metric, *filter(None, [table.metric_for_choice])])
    light = [run for run, _ in read.runs]
    _check_rungs(request, ladder, light, table, file, text)
    known = understanding.metrics(light)
    return _finished(
        _Basis(
            target=target,
            text=text,
            is_new=False,
            table=table,
            ladder=ladder,
            recipe=recipe,
            opened=opened,
            read=read,
            earlier=earlier,
            twin=None,
            sentences=[
                f"as {file} says, which is as it was written or edited",
                _score_sentence(table, known),
                *_seed_sentences(table, light),
            ],
        ),
        [],
    )


def _ladder_of(target: Path) -> str:
    """The ladder in the file of an import.

    Raises:
        UsageError: it has no rungs.
    """
    from lrurun.config.ladder import default_ladder

    return default_ladder(str(target) if paths.is_path(str(target)) else f"./{target}")


def _keys(target: Path) -> Collection[str]:
    try:
        return decoding.load_toml(target).keys()
    except LrurunError:
        return ()


def _not_ours(request: Request, file: str) -> UsageError:
    if request.document is not None:
        return UsageError(f"{file}: has no [import], so that it names no runs", "name a source of runs")
    return UsageError(
        f"{file}: is there already, and is no file of lrurun import, which does not overwrite it",
        "choose another name: --name NAME",
    )


def _check_sources(request: Request, table: ImportTable, folder: Path, file: str, text: str) -> None:
    def places(names: Sequence[str], base: Path) -> set[str]:
        return {name if "://" in name else os.path.realpath(sources.located_in(base, name)) for name in names}

    if places(request.sources, Path()) != places(table.source, folder):
        found = f"source = {', '.join(table.source)}"
        raise options.contradiction(", ".join(request.sources), found, file, text, "source")


def _check_rungs(
    request: Request, ladder: Ladder, runs: Sequence[TrackedRun], table: ImportTable, file: str, text: str
) -> None:
    """Refuses options about rungs that would make other ones than the file has."""
    given = request.options
    declared = [(rung.name, rung.where, ladder.bases[rung.name]) for rung in ladder.rungs]
    found = f"the rungs {', '.join(rung.name for rung in ladder.rungs)}"
    if given.ladder is not None:
        other = load_ladder(given.ladder)
        if [(rung.name, rung.where, other.bases[rung.name]) for rung in other.rungs] != declared:
            raise options.contradiction(f"--ladder {given.ladder}", found, file, text, "rung")
    if given.by:
        by = [understanding.resolved_name(name, understanding.paths_of(runs), "--by") for name in given.by]
        base = {understanding.resolved_name(name, by, "--base"): value for name, value in given.base.items()}
        made = rungs.by_values(runs, by, base)
        if [(rung.name, rung.where, rung.on) for rung in made] != declared:
            more = [rung.name for rung in made if rung.name not in ladder.bases]
            found += f", without {', '.join(more)}" if more else ", with other conditions or bases"
            raise options.contradiction(f"--by {','.join(given.by)}", found, file, text, "rung")
    elif given.base:
        shown_base = ",".join(f"{name}={value}" for name, value in given.base.items())
        raise options.contradiction(f"--base {shown_base}", found, file, text, "rung")


# Rungs, seeds and settings


def _needed(table: ImportTable) -> list[str]:
    """The metrics whose curves decide scores."""
    return [table.metric, *([table.metric_for_choice] if table.metric_for_choice else [])]


def _finished(basis: _Basis, by: Sequence[str]) -> Understood:
    table, ladder = basis.table, basis.ladder
    best = None
    if basis.twin is not None:
        direction = understanding.direction_of(basis.twin)
        best = structs.replace(table, at="best", metric_for_choice=basis.twin, direction_for_choice=direction)
    scored: list[ScoredRun] = []
    at_best: list[ScoredRun] = []
    needed = [*_needed(table), *([basis.twin] if basis.twin else [])]
    for run, source in _with_curves(basis.read, basis.opened, needed):
        scored.append(scoring.scored(run, source.tracker, table))
        if best is not None:
            at_best.append(scoring.scored(run, source.tracker, best))
    if all(run.result is None for run in scored):
        raise UsageError(
            f"{table.metric}: no run has a usable value of it: {scored[0].why}",
            "name another metric or step, or import finished runs",
        )
    current = {sources.origin_of(run.run, run.tracker) for run in scored}
    vanished = [_scored_again(run, table) for run in basis.earlier if not _is_there(run.run, current)]
    everything = scored + vanished
    sorted_runs = rungs.sort([(run.run, run.tracker) for run in everything], ladder)
    members = {name: [everything[index] for index in found] for name, found in sorted_runs.members.items()}
    outside = [rungs.title_of(everything[index].run) for index in sorted_runs.outside if index < len(scored)]
    if best is not None:
        _ask_for_step(table, best, sorted_runs, scored, at_best)
    known = {(_origin_in(run.run).project, _origin_in(run.run).run): run.run.seed for run in basis.earlier}
    seeded = repeats.seeded(members, table, known)
    choices = choosing.chosen(seeded.rungs, table)
    ids = {_origin_in(run.run): run.run.id for run in basis.earlier}
    gone = {run.key for run in vanished}
    placed: list[Placed] = []
    kept: list[tuple[Placed, str]] = []
    for number, choice in enumerate(choices):
        for stage, of_stage in (("tune", choice.tune), ("train", choice.train)):
            for order, run in enumerate(of_stage):
                place = _placed(run, choice.rung, stage, pack(number, stage, min(order, MOST_POSITIONS)))
                if run.key in gone:
                    kept.append((place, ids[place.origin]))
                else:
                    placed.append(place)
    plan, cautions = _planned(basis, {choice.rung: choice.train for choice in choices})
    cautions = (*seeded.cautions, *choosing.on_choices(choices, table), *cautions)
    counts: dict[str, int] = {source.name: 0 for source in basis.opened}
    for _, source in basis.read.runs:
        counts[source.name] += 1
    return Understood(
        target=basis.target,
        text=basis.text,
        is_new=basis.is_new,
        table=table,
        plan=plan,
        sources=basis.opened,
        counts=counts,
        placed=placed,
        kept=kept,
        outside=tuple(outside),
        cautions=cautions,
        sentences=(
            *basis.sentences,
            *_rung_sentences(ladder, placed, kept, by),
            *(choice.sentence for choice in choices if choice.sentence),
            *seeded.sentences,
            *_outside_sentence(outside),
        ),
    )


def _placed(run: ScoredRun, rung: str, stage: Literal["tune", "train"], position: int) -> Placed:
    assert run.seed is not None
    origin = sources.origin_of(run.run, run.tracker)
    return Placed(scored=run, origin=origin, seed=run.seed, rung=rung, stage=stage, position=position)


def _origin_in(run: Run) -> Origin:
    assert isinstance(run.config, ImportedConfig)
    return run.config.origin


def _is_there(run: Run, current: Collection[Origin]) -> bool:
    """Whether the source still has a run of an earlier import; of a mean, all its runs."""
    origin = _origin_in(run)
    return origin in current or all(structs.replace(origin, run=part) in current for part in origin.run.split("+"))


def _scored_again(earlier: Earlier, table: ImportTable) -> ScoredRun:
    """A run of an earlier import, as the ledger has it."""
    run, origin = earlier.run, _origin_in(earlier.run)
    assert isinstance(run.config, ImportedConfig)
    settings = dict(run.config.settings)
    if table.seed:
        settings[table.seed] = run.seed
    tracked = TrackedRun(id=origin.run, project=origin.project, name=earlier.name, settings=settings)
    return ScoredRun(
        run=tracked,
        tracker=origin.tracker,
        seed=run.seed if table.seed else None,
        state=run.state,
        result=run.result,
        step=run.step,
        why=run.error or "",
    )


def _ask_for_step(
    table: ImportTable,
    best: ImportTable,
    found: rungs.Sorted,
    last: Sequence[ScoredRun],
    at_best: Sequence[ScoredRun],
) -> None:
    """Refuses to choose between the last step and the best one where that decides the order of rungs.

    Raises:
        UsageError: with both orders.
    """

    def order(runs: Sequence[ScoredRun]) -> list[str]:
        means = {}
        for name, indices in found.members.items():
            scores = [
                result[table.result]
                for index in indices
                if index < len(runs) and (result := runs[index].result) is not None
            ]
            finite = [score for score in scores if abs(score) < float("inf")]
            if finite:
                means[name] = sum(finite) / len(finite)
        return sorted(means, key=lambda name: means[name], reverse=table.direction == "max")

    by_last, by_best = order(last), order(at_best)
    if len(by_last) == len(by_best) and by_last != by_best:
        raise UsageError(
            f"the step decides the order of rungs: {', '.join(by_last)} by {table.metric} at the last step, "
            f"{', '.join(by_best)} at the best step by {best.metric_for_choice}",
            f"say which counts: --at last; or --at best --metric-for-choice {best.metric_for_choice}",
        )


def _planned(basis: _Basis, members: Mapping[str, Sequence[ScoredRun]]) -> tuple[planning.Plan, tuple[Caution, ...]]:
    """The plan with the settings that the runs of each rung share, and cautions on those that they do not."""
    table, ladder = basis.table, basis.ladder
    plan = planning.of_documents(ladder, basis.recipe, profile=None, sets={}, tune=False)
    tracked = {name: [run.run for run in of_rung] for name, of_rung in members.items()}
    left_out = {table.seed, *understanding.metrics([run for runs in tracked.values() for run in runs])}
    settings = {name: rungs.settings_of(runs, left_out) for name, runs in tracked.items()}
    everything = [run for runs in tracked.values() for run in runs]
    compared = {each.name for each in understanding.varying(everything, left_out)}
    resolved = []
    cautions = []
    for rung in plan.rungs:
        assert isinstance(rung.config, ImportedConfig)
        differences = ()
        if rung.on is not None:
            differences = rungs.differences(
                settings[rung.name], settings[rung.on], source=ladder.path, compared=compared
            )
            if len(differences) > 1:
                sentence = f"{rung.name} differs from {rung.on} in {rungs.shown(differences)}"
                cautions.append(Caution(short=sentence, full=sentence, rungs=(rung.name,)))
        config = structs.replace(rung.config, settings=settings[rung.name].shared)
        resolved.append(structs.replace(rung, config=config, differences=differences))
    chosen = set(table.choose)
    within: dict[str, list[str]] = {}
    for name, of_rung in settings.items():
        for path in of_rung.varying:
            if path not in chosen:
                within.setdefault(path, []).append(name)
    for path, names in within.items():
        where = "every rung" if len(names) == len(settings) else ", ".join(names)
        sentence = f"{path} varies within {where}"
        full = f"{sentence}: its runs are counted as seeds of one rung; --choose {path} counts one value of it"
        cautions.append(Caution(short=sentence, full=full, rungs=tuple(names) if len(names) < len(settings) else ()))
    return structs.replace(plan, rungs=tuple(resolved)), tuple(cautions)


# Sentences


def _score_sentence(table: ImportTable, known: Mapping[str, int]) -> str:
    step = {"last": "at the last step", "best": f"at the best step by {table.metric_for_choice}"}
    at = step.get(str(table.at), f"at step {table.at}")
    if table.protocol == "best-of-test":
        at = "the best of all steps, which was chosen on the test split"
    better = "higher is better" if table.direction == "max" else "lower is better"
    unit = f", in {'per cent' if table.unit == '%' else table.unit}" if table.unit else ""
    read = ", divided by 100" if table.per_cent else ""
    others = [name for name in known if name != table.metric]
    more = f"; other metrics: {', '.join(others[:8])}" if others else ""
    more += f" and {len(others) - 8} more" if len(others) > 8 else ""
    return f"score: {table.metric}, {at}; {better}{unit}{read}{more}"


def _seed_sentences(table: ImportTable, runs: Sequence[TrackedRun]) -> list[str]:
    if not table.seed:
        return ["seeds: no setting has them: the runs of a rung are numbered; that they are independent is your word"]
    values = {scoring.seed_of(run, table.seed) for run in runs} - {None}
    return [f"seeds: the setting {table.seed}, with {plural(len(values), 'value')}"]


def _rung_sentences(
    ladder: Ladder, placed: Sequence[Placed], kept: Sequence[tuple[Placed, str]], by: Sequence[str]
) -> list[str]:
    every = [*placed, *(place for place, _ in kept)]
    counts = {name: sum(place.rung == name and place.stage == "train" for place in every) for name in ladder.bases}
    of_by = f" by {', '.join(by)}" if by else ""
    listed = ", ".join(f"{name} ({plural(count, 'run')})" for name, count in counts.items())
    sentences = [f"rungs{of_by}: {listed}"]
    bases = {name: base for name, base in ladder.bases.items() if base is not None}
    if len(set(bases.values())) == 1:
        sentences[0] += f"; compared with {next(iter(bases.values()))}"
    elif bases:
        sentences[0] += f"; bases: {', '.join(f'{name} on {base}' for name, base in bases.items())}"
    single = [name for name, count in counts.items() if count == 1]
    if single:
        sentences.append(f"a single run: {', '.join(single)}; a verdict needs several seeds of each rung")
    if kept:
        sentences.append(f"{plural(len(kept), 'run')} of earlier imports, which the source no longer has, still count")
    return sentences


def _outside_sentence(outside: Sequence[str]) -> list[str]:
    if not outside:
        return []
    verb = "fits" if len(outside) == 1 else "fit"
    more = f" and {len(outside) - 5} more" if len(outside) > 5 else ""
    return [f"{plural(len(outside), 'run')} {verb} no rung: {', '.join(outside[:5])}{more}"]
