"""An import that has a file: it counts as it stands. Other options are errors, unless they wrote it before an edit."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec
from msgspec import structs

from lrurun import decoding, paths
from lrurun.config.imported import ImportTable
from lrurun.config.ladder import Ladder, default_ladder, load_ladder
from lrurun.config.recipe import load_recipe
from lrurun.errors import LrurunError, UsageError
from lrurun.imported import document, placing, rungs, sources, understanding
from lrurun.imported.earlier import EarlierImports
from lrurun.imported.placing import Basis, Understood, finished
from lrurun.imported.request import KEYS, NO_SEED, OPTIONS, ImportOptions, Request
from lrurun.imported.sources import FRAME
from lrurun.paths import shown
from lrurun.trackers import TrackedRun


def understand(request: Request, target: Path, earlier: EarlierImports) -> Understood:
    file, given = shown(target), request.options
    try:
        recipe = load_recipe(str(target))
    except LrurunError as error:
        keys = _keys(target)
        if "import" in keys if keys is not None else request.document is not None or _has_table(target):
            raise
        raise _not_ours(request, file) from error
    if recipe.imported is None:
        raise _not_ours(request, file)
    table, text = recipe.imported, target.read_text(encoding="utf-8")
    differences = Differences(file, text, earlier.request(recipe.task))
    if request.name is not None and request.document is not None and request.name != recipe.task:
        raise differences.error("task", f"--name {request.name}", f'task = "{recipe.task}"')
    folder = target.parent
    of_file = structs.replace(
        given,
        kind=None if request.frame is not None else table.from_,
        project=table.project or None,
        metrics_file=table.metrics_file or None,
        items=table.items or None,
    )
    try:
        differences.check_options(given, table)
    except UsageError:
        _check_names(request, table, of_file, folder)
        raise
    if request.document is None and request.frame is None:
        places = sources.places(request.sources, Path())
        if places != sources.places(table.source, folder):
            found = f"source = {', '.join(table.source)}"
            differences.check("source", {"source": places}, ", ".join(request.sources), found)
    if request.frame is None and table.source == (FRAME,):
        raise UsageError(
            f"{file}: its runs came from a data frame, which cannot be read again from here",
            f'pass it: lrurun.import_runs(frame, name="{recipe.task}")',
        )
    if request.frame is not None and table.source != (FRAME,):
        raise differences.error("source", "a data frame", f"source = {', '.join(table.source)}")
    ladder = load_ladder(_ladder_of(target))
    opened = sources.opened(table.source, of_file, folder, request.frame)
    read = sources.read(opened, sources.needed(table, opened))
    light = [run for run, _ in read.runs]
    understanding.check_metric(light, table.metric, f"{file} [import], metric:")
    if table.metric_for_choice:
        understanding.check_metric(light, table.metric_for_choice, f"{file} [import], metric_for_choice:")
    if table.seed and all(table.seed not in run.settings for run in light):
        understanding.resolved_name(table.seed, understanding.paths_of(light), f"{file} [import], seed:")
    opened = sources.with_columns(read, opened, [table.metric, *filter(None, [table.metric_for_choice])])
    light = [run for run, _ in read.runs]
    _check_rungs(request, ladder, light, differences)
    known = understanding.metrics(light)
    return finished(
        Basis(
            target=target,
            text=text,
            is_new=False,
            request={},
            table=table,
            ladder=ladder,
            recipe=recipe,
            opened=opened,
            read=read,
            earlier=earlier.runs(recipe.task, table.reading),
            for_steps=(),
            sentences=[
                f"as {file} says, which is as it was written or edited",
                *differences.sentences,
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


def _keys(target: Path) -> Collection[str] | None:
    """The keys of a file; None if it is no TOML."""
    try:
        return decoding.load_toml(target).keys()
    except LrurunError:
        return None


def _has_table(target: Path) -> bool:
    """Whether a file that is no TOML was that of an import before it was edited."""
    try:
        return "\n[import]" in target.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError):
        return False


def _not_ours(request: Request, file: str) -> UsageError:
    if request.document is not None:
        return UsageError(f"{file}: has no [import], so that it names no runs", "name a source of runs")
    return UsageError(
        f"{file}: is there already, and is no file of lrurun import, which does not overwrite it",
        "choose another name: --name NAME",
    )


def _check_names(request: Request, table: ImportTable, of_file: ImportOptions, folder: Path) -> None:
    """Refuses options that name what no run has: that is a mistake, whatever the file says.

    Raises:
        UsageError: with the nearest name.
    """
    given = request.options
    try:
        opened = sources.opened(table.source, of_file, folder, request.frame)
        runs = [run for run, _ in sources.read(opened, []).runs]
    except LrurunError:  # which the file is about, too
        return
    for option, name in (("--metric", given.metric), ("--metric-for-choice", given.metric_for_choice)):
        if name is not None:
            understanding.check_metric(runs, name, option)
    names = [("--choose", name) for name in given.choose]
    names += [("--seed-column", given.seed)] if given.seed not in (None, NO_SEED) else []
    for option, name in names:
        understanding.resolved_name(name, understanding.paths_of(runs), option)


class Differences:
    """The options of a request that say something else than the file of an import: errors, unless the file was written
    by the same option, and was edited since."""

    def __init__(self, file: str, content: str, earlier: Mapping[str, Any]) -> None:
        self.sentences: list[str] = []
        """What the file has in place of such options."""
        self._file = file
        self._content = content
        self._earlier = earlier

    def check(self, key: str, same: Mapping[str, Any], option: str, found: str) -> None:
        """Refuses an option, unless the request that wrote the file has these same entries.

        Raises:
            UsageError: it has not.
        """
        if any(self._earlier.get(name) != value for name, value in same.items()):
            raise self.error(key, option, found)
        self.sentences.append(f"{self._place(key)} has {found}, which counts")

    def error(self, key: str, option: str, found: str) -> UsageError:
        """The error of an option, by what the file has at a key of `[import]`."""
        message = f"{option}: {self._place(key)} has {found}"
        return UsageError(message, "edit the file, or import under another name: --name NAME")

    def check_options(self, options: ImportOptions, table: ImportTable) -> None:
        """Refuses options that say something else than the table.

        Raises:
            UsageError: the first of them.
        """
        recorded: dict[str, Any] = msgspec.to_builtins(table)
        values = options.recorded
        for name, key in KEYS.items():
            if name not in values or (name == "seed" and options.seed == NO_SEED and not recorded[key]):
                continue
            given = values[name]
            if given == (list(recorded[key]) if isinstance(recorded[key], tuple) else recorded[key]):
                continue
            if isinstance(given, str) and str(recorded[key]).endswith((f".{given}", f"/{given}")):
                continue  # the last parts of a dotted name
            is_written = document.line_of(self._content, key) is not None
            found = f"{key} = {_shown(recorded[key])}" if is_written else f"no {key}"
            self.check(key, {name: given}, f"{OPTIONS[name]} {_shown(given)}", found)

    def _place(self, key: str) -> str:
        line = document.line_of(self._content, key)
        return f"{self._file}, line {line}" if line else f"{self._file} [import]"


def _shown(value: Any) -> str:
    if isinstance(value, list | tuple):
        return ",".join(map(str, value)) or "[]"
    if isinstance(value, bool):
        return str(value).lower()
    return str(value) if value not in (None, "") else '""'


def _check_rungs(request: Request, ladder: Ladder, runs: Sequence[TrackedRun], differences: Differences) -> None:
    """Refuses options about rungs that would make other ones than the file has."""
    given, recorded = request.options, request.options.recorded
    declared = rungs.declared(ladder)
    found = f"the rungs {', '.join(rung.name for rung in ladder.rungs)}"
    if given.ladder is not None:
        other = load_ladder(given.ladder)
        if rungs.declared(other) != declared:
            same = {"ladder": given.ladder, "rungs": rungs.declared(other)}
            differences.check("rung", same, f"--ladder {given.ladder}", found)
    base_given = {"base": recorded.get("base")}
    if given.by:
        by = [understanding.resolved_name(name, understanding.paths_of(runs), "--by") for name in given.by]
        base = {understanding.resolved_name(name, by, "--base"): value for name, value in given.base.items()}
        made = rungs.by_values(runs, by, base)
        if [[rung.name, rung.where, rung.on] for rung in made] != declared:
            more = [rung.name for rung in made if rung.name not in ladder.bases]
            found += f", without {', '.join(more)}" if more else ", with other conditions or bases"
            differences.check("rung", {"by": recorded["by"]} | base_given, f"--by {','.join(given.by)}", found)
    elif given.base:
        shown_base = ",".join(f"{name}={value}" for name, value in given.base.items())
        differences.check("rung", base_given, f"--base {shown_base}", found)
