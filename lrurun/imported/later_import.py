"""An import that has a file: it counts as it stands, and options may not say anything else."""

from __future__ import annotations

import os
from collections.abc import Collection, Sequence
from pathlib import Path

from msgspec import structs

from lrurun import decoding, paths
from lrurun.config.imported import ImportTable
from lrurun.config.ladder import Ladder, default_ladder, load_ladder
from lrurun.config.recipe import load_recipe
from lrurun.errors import LrurunError, UsageError, raise_first
from lrurun.imported import placing, rungs, sources, understanding
from lrurun.imported.placing import Basis, EarlierRuns, Understood, finished
from lrurun.imported.request import Request, contradiction, contradictions
from lrurun.imported.sources import FRAME
from lrurun.paths import shown
from lrurun.trackers import TrackedRun


def understand(request: Request, target: Path, earlier: EarlierRuns) -> Understood:
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
        raise contradiction(f"--name {request.name}", f'task = "{recipe.task}"', file, text, "task")
    raise_first(contradictions(given, table, file, text))
    folder = target.parent
    if request.document is None and request.frame is None:
        _check_sources(request, table, folder, file, text)
    if request.frame is None and table.source == (FRAME,):
        raise UsageError(
            f"{file}: its runs came from a data frame, which cannot be read again from here",
            f'pass it: lrurun.import_runs(frame, name="{recipe.task}")',
        )
    if request.frame is not None and table.source != (FRAME,):
        raise contradiction("a data frame", f"source = {', '.join(table.source)}", file, text, "source")
    ladder = load_ladder(_ladder_of(target))
    of_file = structs.replace(
        given,
        kind=None if request.frame is not None else table.from_,
        project=table.project or None,
        metrics_file=table.metrics_file or None,
        items=table.items or None,
    )
    opened = sources.opened(table.source, of_file, folder, request.frame)
    read = sources.read(opened, sources.needed(table))
    light = [run for run, _ in read.runs]
    understanding.check_metric(light, table.metric, f"{file} [import], metric:")
    if table.metric_for_choice:
        understanding.check_metric(light, table.metric_for_choice, f"{file} [import], metric_for_choice:")
    if table.seed and all(table.seed not in run.settings for run in light):
        understanding.resolved_name(table.seed, understanding.paths_of(light), f"{file} [import], seed:")
    opened = sources.with_columns(read, opened, [table.metric, *filter(None, [table.metric_for_choice])])
    light = [run for run, _ in read.runs]
    _check_rungs(request, ladder, light, table, file, text)
    known = understanding.metrics(light)
    return finished(
        Basis(
            target=target,
            text=text,
            is_new=False,
            table=table,
            ladder=ladder,
            recipe=recipe,
            opened=opened,
            read=read,
            earlier=earlier(recipe.task, table.reading),
            for_steps=(),
            sentences=[
                f"as {file} says, which is as it was written or edited",
                placing.score_sentence(table, known),
                *placing.seed_sentences(table, light),
            ],
        ),
        [],
    )


def _ladder_of(target: Path) -> str:
    """The ladder in the file of an import.

    Raises:
        UsageError: it has no rungs.
    """
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
        raise contradiction(", ".join(request.sources), found, file, text, "source")


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
            raise contradiction(f"--ladder {given.ladder}", found, file, text, "rung")
    if given.by:
        by = [understanding.resolved_name(name, understanding.paths_of(runs), "--by") for name in given.by]
        base = {understanding.resolved_name(name, by, "--base"): value for name, value in given.base.items()}
        made = rungs.by_values(runs, by, base)
        if [(rung.name, rung.where, rung.on) for rung in made] != declared:
            more = [rung.name for rung in made if rung.name not in ladder.bases]
            found += f", without {', '.join(more)}" if more else ", with other conditions or bases"
            raise contradiction(f"--by {','.join(given.by)}", found, file, text, "rung")
    elif given.base:
        shown_base = ",".join(f"{name}={value}" for name, value in given.base.items())
        raise contradiction(f"--base {shown_base}", found, file, text, "rung")
