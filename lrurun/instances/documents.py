"""The ladder and the recipe of an instance as they were run, in the ledger: its reports need neither their files nor
the code of recurrences."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec
from msgspec import Struct, structs

from lrurun import console, paths, plugins
from lrurun.config import planning, schema
from lrurun.config.ladder import DEFAULT_LADDER, Ladder, lasting_path, load_ladder
from lrurun.config.programs import ProgramTable
from lrurun.config.recipe import Recipe, load_recipe
from lrurun.config.resolve import ResolvedRung
from lrurun.decoding import canonical
from lrurun.errors import NotFoundError, UsageError, plural
from lrurun.instances.import_record import IMPORTED
from lrurun.ledger.values import DOCUMENTS, REQUEST
from lrurun.ledger.where.grammar import ValueComparison
from lrurun.plugins import PluginType

if TYPE_CHECKING:
    from lrurun.ledger.ledger import Ledger
    from lrurun.ledger.values import LadderInstance, Run


class _RecordedRung(ResolvedRung, frozen=True, kw_only=True):
    config: dict[str, Any]  # type: ignore[assignment]


class InstanceDocuments(Struct, frozen=True, kw_only=True):
    """The documents of an instance."""

    ladder: Ladder
    """The ladder, with absolute paths of the plug-ins that it loads."""
    recipe: Recipe
    rungs: tuple[_RecordedRung, ...]
    """The rungs as they were resolved, each with its configuration as a table."""

    @property
    def files(self) -> dict[str, str] | None:
        """The digests of the files of a program; None for trainings."""
        program = self.rungs[0].config.get("program")
        return None if program is None else dict(program.get("files", {}))

    @property
    def plug_ins(self) -> dict[tuple[PluginType, str], str]:
        """Type and name of each plug-in that the rungs use -> its digest."""
        digests: dict[tuple[PluginType, str], str] = {}
        for config in (rung.config for rung in self.rungs):
            if "model" not in config:
                continue
            names: dict[PluginType, str] = {
                "recurrence": config["model"]["recurrence"]["kind"],
                "task": config["task"],
                "optimizer": config["optim"].get("name", schema.DEFAULT_OPTIMIZER),
            }
            code = config.get("code", {})
            digests |= {(type_, name): code[type_] for type_, name in names.items() if type_ in code}
        return digests


def record(ledger: Ledger, instance: LadderInstance, plan: planning.Plan) -> None:
    """Records the documents of a plan, unless they are recorded as they are."""
    folder = Path(plan.ladder.path).parent
    load = tuple(os.path.abspath(folder / Path(file).expanduser()) for file in plan.ladder.load)
    ladder, recipe = plan.ladder, plan.recipe
    of_ladder, of_recipe = lasting_paths(plan)
    ladder, recipe = structs.replace(ladder, load=load, path=of_ladder), structs.replace(recipe, path=of_recipe)
    recorded = find(ledger, instance)
    if recorded is None or (recorded.ladder, recorded.recipe) != (ladder, recipe):
        if plan.kind == "imported":  # whose rungs have the settings of their runs, which no document has
            used = plan
        else:
            used = planning.of_documents(
                ladder, recipe, profile=plan.profile, sets=plan.changes, tune=plan.tune,
                extend=plan.extend_option,
            )  # fmt: skip
        rungs = [{**_table(rung), "config": canonical(rung.config)} for rung in used.rungs]
        table = {"ladder": _table(ladder), "recipe": _table(recipe), "rungs": rungs}
        ledger.event(DOCUMENTS, "ladder and recipe as they were run", table, ladder=instance.key)


def lasting_paths(plan: planning.Plan) -> tuple[str, str]:
    """The paths of the ladder and the recipe of a plan, as documents record them."""
    ladder, recipe = plan.ladder, plan.recipe
    return (
        lasting_path("ablations", ladder.name) if ladder.is_packaged else os.path.abspath(ladder.path),
        lasting_path("recipes", recipe.task) if recipe.is_packaged else os.path.abspath(recipe.path),
    )


def _table(value: Any) -> Any:
    """Documents as plain tables, without empty values that are defaults: some of them may not be given."""
    if isinstance(value, Struct):
        return {
            field.encode_name: _table(getattr(value, field.name))
            for field in _fields(type(value))
            if field.required or getattr(value, field.name) not in (None, "", (), [], {})
        }
    if isinstance(value, dict):
        return {name: _table(part) for name, part in value.items()}
    return [_table(part) for part in value] if isinstance(value, list | tuple) else value


_fields = cache(structs.fields)


def find(ledger: Ledger, instance: LadderInstance) -> InstanceDocuments | None:
    """The documents of an instance as they were last run; None if no ladder command has made it, or another version
    of lrurun whose documents this one cannot read."""
    events = ledger.events(ladder_key=instance.key, of_runs=False, kind=DOCUMENTS)
    payloads = [event.payload for event in events]
    with contextlib.suppress(msgspec.ValidationError):
        return msgspec.convert(payloads[-1], InstanceDocuments) if payloads else None
    return None


def _newest(ledger: Ledger, group: paths.Group, name: str) -> InstanceDocuments | None:
    """The documents of the newest instance whose ladder or recipe has this name, or was read from this file, after
    their plug-ins are loaded.

    None if there is such a file here, and if no instance has such documents.
    """
    if _is_here(group, name):
        return None
    of_ladders, by_path = group == "ablations", paths.is_path(name)
    for instance in _newest_first(ledger):
        if by_path or name == (instance.name if of_ladders else instance.task):
            recorded = find(ledger, instance)
            file = recorded and (recorded.ladder if of_ladders else recorded.recipe).path
            if recorded is not None and (not by_path or file == os.path.abspath(name)):
                load_code(ledger, instance, recorded, *(("recurrence", "optimizer") if of_ladders else ("task",)))
                return recorded
    return None


def _newest_first(ledger: Ledger) -> list[LadderInstance]:
    """The instances, newest first. Imported ones come first, in the order in which they were last imported: one whose
    file was edited, and edited back, is the newest again."""
    last = {key: number for number, (key, _) in enumerate(ledger.events_of_ladders(IMPORTED), 1)}
    numbered = enumerate(ledger.ladders())
    newest_first = sorted(numbered, key=lambda pair: (last.get(pair[1].key, 0), pair[0]), reverse=True)
    return [instance for _, instance in newest_first]


def ladder_of_name(name: str, ledger: Ledger) -> Ladder:
    """The ladder of this name or in this file; one without a file here is the one that the ledger records.

    Raises:
        UsageError: there is none, it is wrong, or it needs a plug-in that is not loaded.
    """
    if (recorded := _newest(ledger, "ablations", name)) is None:
        return load_ladder(name)
    _say_recorded(f"ladder {name}", recorded.ladder.path, recorded.recipe)
    return recorded.ladder


def of_names(ladder: str, task: str, ledger: Ledger) -> tuple[Ladder, Recipe, dict[str, str] | None]:
    """A ladder as `ladder_of_name` reads it, and the recipe of this task or in this file.

    A recipe without a file here comes from the newest instance on the task. With the recorded recipe of a program or an
    import come its ladder, unless another one is named, and the digests of the files of a program.

    Raises:
        UsageError: there is none, or it is wrong.
    """
    if (recorded := _newest(ledger, "recipes", task)) is None:
        try:
            recipe = load_recipe(task)
        except UsageError as error:
            _check_interrupted(ledger, task)
            refuse_instance(ledger, task, error, "--instance {}")
            raise
        return ladder_of_name(ladder, ledger), recipe, None
    _say_recorded(f"recipe of {task}", recorded.recipe.path, recorded.recipe)
    if recorded.recipe.kind == "training":
        return ladder_of_name(ladder, ledger), recorded.recipe, None
    files = recorded.files
    own = recorded.ladder if ladder == DEFAULT_LADDER else ladder_of_name(ladder, ledger)
    return own, recorded.recipe, files


def _check_interrupted(ledger: Ledger, task: str) -> None:
    """Refuses a task of which an import was killed before its runs had their rungs.

    Raises:
        NotFoundError: with the number of runs that it has recorded.
    """
    if task in ledger.names_of("task") and not ledger.ladders(None, task):
        count = len(ledger.run_ids(ValueComparison(name="task", operator="=", text=task, number=None)))
        raise NotFoundError(
            f"{task}: its import was interrupted after {plural(count, 'run')}, before they had their rungs",
            "run the same lrurun import: it goes on",
        )


def refuse_instance(ledger: Ledger, name: str, error: UsageError, hint: str) -> None:
    """Raises the error that there is no such task with a hint that names an instance, if it is the short name of one.

    Args:
        hint: what names it, with {} in place of the name.
    """
    if any(instance.short_name == name for instance in ledger.ladders()):
        raise UsageError(error.message, f"it is the name of an instance: {hint.format(name)}") from None


def recorded_files(ledger: Ledger, task: str) -> dict[str, str] | None:
    """The digests of the files of a program as the newest instance on a task has them; None if there is none."""
    for instance in reversed(ledger.ladders(None, task)):
        if instance.kind == "program" and (recorded := find(ledger, instance)) is not None:
            return recorded.files
    return None


def _say_recorded(what: str, path: str, recipe: Recipe) -> None:
    if recipe.imported is not None:  # whose file says how runs are read: reports never need it
        return
    hint = "name that file to read it as it is now" if Path(path).exists() else "there is no such file here"
    console.say(f"{what}: as the ledger records it, from {path}; {hint}")


def _is_here(group: paths.Group, name: str) -> bool:
    """Whether there is a file of this name."""
    try:
        paths.find(group, name)
    except UsageError:
        return False
    return True


def present_plan(
    ledger: Ledger,
    instance: LadderInstance,
    ladder: Ladder,
    *,
    sets: Mapping[str, Any],
    tune: bool,
    extend: int | None,
) -> planning.Plan:
    """The plan of a ladder with the recipe of an instance: lrurun's own as it is now, others as they were run.

    `extend` is the value of `--extend`, as for `lrurun.config.planning.make`.

    Raises:
        UsageError: the values do not fit, or there is no such recipe.
    """
    recorded = find(ledger, instance)
    if recorded is None or recorded.recipe.is_packaged:
        recipe = load_recipe(instance.task, imports=False)
    else:
        recipe = recorded.recipe
    files = None if recorded is None else recorded.files
    return planning.of_documents(
        ladder, recipe, profile=instance.profile, sets=sets, tune=tune, extend=extend, files=files
    )


def plan_of(ledger: Ledger, instance: LadderInstance) -> planning.Plan:
    """The plan of an instance as it was recorded, whatever its files and its recurrences are now.

    Raises:
        UsageError: the plug-in of its task is not loaded, or the documents do not fit this version.
    """
    recorded, sets, tune, extend = find(ledger, instance), instance.spec.set, instance.spec.tune, instance.spec.extend
    if recorded is None:
        return planning.make(
            instance.task, ladder=instance.name, profile=instance.profile, sets=sets, tune=tune,
            extend=extend if tune else None, imports=False,
        )  # fmt: skip
    load_code(ledger, instance, recorded, "task")
    rungs = [structs.replace(rung, config=schema.recorded(rung.config)) for rung in recorded.rungs]
    return planning.of_rungs(
        recorded.ladder, recorded.recipe, rungs, profile=instance.profile, changes=sets, tune=tune, extend=extend
    )


# The code of an instance


def load_code(
    ledger: Ledger, instance: LadderInstance, recorded: InstanceDocuments | None, *needed: PluginType
) -> None:
    """Loads the files with the recurrences or the task of an instance, if no other code is loaded under their names,
    and if they have not changed since.

    On a server, which other users can write to, only files that this user has requested and nobody else can change.

    Raises:
        UsageError: a plug-in is still not loaded.
    """
    plug_ins = {} if recorded is None else recorded.plug_ins
    missing = {key: digest for key, digest in plug_ins.items() if key[0] in needed and plugins.source_of(*key) is None}
    if recorded is None or not missing:
        return
    files, by_this_user = _files(ledger, instance, recorded.ladder)
    for file in files:
        is_loadable = by_this_user and (not ledger.database.is_shared or plugins.is_protected(Path(file)))
        if is_loadable and plugins.digest_of(Path(file)) in missing.values():
            plugins.load(file)
    for type_, name in missing:
        if plugins.source_of(type_, name) is None:
            raise UsageError(
                f"ladder {instance.short_name}: its {type_} {name!r} is not loaded: no file of yours is as it was then",
                f"name the file that has it: --load {files[0] if files else 'FILE'}; "
                f"as recorded: lrurun report --instance {instance.short_name}",
            )


def load_code_of(ledger: Ledger, run: Run) -> None:
    """Loads the plug-ins of a run as `load_code` does, as far as possible."""
    for key in dict.fromkeys(membership.ladder_key for membership in run.memberships):
        with contextlib.suppress(UsageError):
            instance = ledger.ladder(key)
            load_code(ledger, instance, find(ledger, instance), "recurrence", "task", "optimizer")


def program_of(ledger: Ledger, run: Run) -> ProgramTable | None:
    """The table of the recipe of a program's run, as its newest instance was run; None if there is none."""
    for membership in reversed(run.memberships if run.kind == "program" else ()):
        if (recorded := find(ledger, ledger.ladder(membership.ladder_key))) is not None:
            return recorded.recipe.program
    return None


def changed_code(ledger: Ledger, instance: LadderInstance, plan: planning.Plan) -> list[str]:
    """A sentence on files of plug-ins that have changed since the runs of an instance; none if they are as they were,
    or gone."""
    codes: list[Any] = [rung.config.code or {} for rung in plan.rungs if isinstance(rung.config, schema.RunConfig)]
    used = {digest for code in codes for digest in msgspec.to_builtins(code).values()}
    if not used:
        return []
    files = {file: plugins.digest_of(Path(file)) for file in _files(ledger, instance, plan.ladder)[0]}
    changed = [paths.shown(Path(file)) for file, digest in files.items() if digest is not None and digest not in used]
    if used <= set(files.values()) or not changed:
        return []
    return [f"{', '.join(changed)} changed after these runs: they are shown as recorded"]


def files_of_code(ledger: Ledger, instance: LadderInstance, ladder: Ladder) -> list[str]:
    """The files with plug-ins that the commands for an instance loaded."""
    return _files(ledger, instance, ladder)[0]


def _files(ledger: Ledger, instance: LadderInstance, ladder: Ladder) -> tuple[list[str], bool]:
    """The files with plug-ins that the commands for an instance loaded, and whether this user gave such a command."""
    from lrurun.ledger import owner

    requests = [event.payload or {} for event in ledger.events(ladder_key=instance.key, of_runs=False, kind=REQUEST)]
    own = not ledger.database.is_shared or owner.user() in [request.get("user") for request in requests]
    return list(dict.fromkeys([*ladder.load, *(file for request in requests for file in request.get("load", []))])), own
