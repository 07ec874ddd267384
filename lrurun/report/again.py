"""A run as a ladder of one rung, which trains it again: `lrurun show RUN --toml`, `lrurun verify RUN`."""

from __future__ import annotations

import contextlib
import glob
import re
import shlex
import tempfile
from pathlib import Path
from typing import Any

import msgspec
from msgspec import structs

from lrurun.config import planning, plugin_code, programs
from lrurun.config.fingerprint import fingerprint
from lrurun.config.ladder import Ladder
from lrurun.config.recipe import About, Recipe
from lrurun.config.resolve import RateSource, ResolvedRung
from lrurun.config.schema import (
    KIND,
    OPTIMIZER,
    TUNING_SEED,
    Execution,
    LadderConfig,
    ProgramConfig,
    RunConfig,
    decode,
)
from lrurun.config.settings import flatten, toml_value
from lrurun.console import clean
from lrurun.data import task_data, tasks
from lrurun.data.outside import OutsideTask
from lrurun.data.task import Task
from lrurun.errors import LrurunError, UsageError
from lrurun.ledger.values import Run


def toml(run: Run, program: programs.ProgramTable | None = None) -> str:
    """The text of the ladder; its first lines have the command that trains the run.

    `program` is the table of its recipe, of which the run itself has a part.

    Raises:
        LrurunError: with the present recipes, no ladder command trains this run again.
        UsageError: it was imported.
    """
    _refuse_imported(run)
    if run.seed >= TUNING_SEED:
        raise LrurunError(
            f"run {run.id} is a tuning run: a ladder trains it only to choose among the points of the grid",
            "name one of its final runs: lrurun runs --where 'stage=train'",
        )
    if isinstance(run.config, ProgramConfig):
        return _program_document(run, run.config, program or _program(run.config))
    config = plugin_code.config_of(run.config, f"run {run.id}")
    execution = run.execution
    document = _document(run, config)
    for task, profile in {(m.task, m.profile): None for m in run.memberships} | {(run.task, None): None}:
        rung = _resolve(document, task, profile)
        if rung is not None and fingerprint(_with_seed(rung.training, config.seed)) == fingerprint(config):
            return f"{_command(run, task, profile, rung.execution, execution)}\n{document}"
    raise LrurunError(
        f"run {run.id} cannot be trained again: the recipe of {run.task} has changed its data, or was not found",
        "restore the recipe; lrurun show names the data of the run",
    )


def _refuse_imported(run: Run) -> None:
    if run.kind == "imported":
        raise UsageError(
            f"run {run.id}: was imported, and cannot be trained again here",
            f"lrurun show {run.id} has its settings and its place in the tracker",
        )


def plan_of(run: Run, folder: Path | None = None) -> planning.Plan:
    """A plan that trains the run again, whatever recipes and ladders say now. Its data are in the task's own folder.

    `folder` is the folder of a program.

    Raises:
        LrurunError: a plug-in is not loaded, or has changed.
        UsageError: the configuration does not fit this version, or is of an imported run.
    """
    _refuse_imported(run)
    about = About(source=f"run {run.id}", expect="", device="", hours=0, checked="never")
    data: dict[str, Any] = {}
    program = None
    config: LadderConfig
    if isinstance(run.config, ProgramConfig):
        config, program = run.config, _program(run.config)
        task: Task = OutsideTask(config.task, "a program", programs.metric_of(program))
        options = task.options()
    else:
        config = plugin_code.config_of(run.config, f"run {run.id}")
        data, task = config.data, tasks.get(config.task, config.data)
        options = tasks.options_of(task, data)
    if fingerprint(config) != run.fingerprint:
        raise LrurunError(
            f"run {run.id}: its configuration has fingerprint {fingerprint(config)[:19]}, not {run.fingerprint[:19]}",
            "the ledger was edited: lrurun ledger check",
        )
    rung = ResolvedRung(
        name=run.memberships[0].rung if run.memberships else "run",
        title="",
        on=None,
        values={},
        sources=run.sources,
        config=config,
        execution=run.execution,
        steps=run.steps,
        differences=(),
        same_as_base=False,
        rate_source=RateSource("set", "the run's"),
    )
    recipe = Recipe(task=config.task, about=about, data=data, model={}, optim={}, train={}, program=program)
    return planning.Plan(
        ladder=Ladder(name=f"again-{run.id}", title=f"run {run.id} again", source=run.fingerprint),
        recipe=structs.replace(recipe, path=str((folder or Path()) / "recipe.toml")),
        profile=None,
        seeds=1,
        changes={},
        tune=False,
        rungs=(rung,),
        options=options,
        data_name=task.name,
    )


def data_folder(plan: planning.Plan, run: Run, folder: Path) -> str:
    """The name of the folder with the data that the run was trained on, by their digest.

    Args:
        folder: the folder of all data.

    Raises:
        LrurunError: there is none.
    """
    name, different = plan.task.name, None
    for copy in sorted(folder.glob(f"{glob.escape(name)}*")):
        with contextlib.suppress(LrurunError):  # of another task, or made with other settings
            manifest = task_data.manifest(plan.task, plan.options, copy)
            if manifest is not None and run.data_sha256 in (None, task_data.digest(manifest.sha256)):
                return copy.name
            if manifest is not None:
                different = f"{copy} has {task_data.digest(manifest.sha256)[:19]}"
    wanted = f"run {run.id} was trained on data {(run.data_sha256 or 'of an unknown digest')[:19]}"
    if different is not None:
        raise LrurunError(
            f"{wanted}, {different}", "restore those data, or name the folder that has them with --data-dir"
        )
    profile = next((f" --profile {m.profile}" for m in run.memberships if m.profile), "")
    raise LrurunError(
        f"{wanted}, which are not in {folder}",
        plan.task.restore
        or f"run: lrurun data prepare {name}{profile}; or name the folder that has them with --data-dir",
    )


def _program(config: ProgramConfig) -> programs.ProgramTable:
    """What a recipe says about the program of a run."""
    program = config.program
    return programs.ProgramTable(
        command=program.command,
        files=tuple(program.files),
        metric=program.metric,
        direction=program.direction,
        read=program.read or {},
    )


def _program_document(run: Run, config: ProgramConfig, table: programs.ProgramTable) -> str:
    """A recipe with a ladder of one rung, which belongs beside the program's files."""
    program, execution = config.program, run.execution
    memberships = ", ".join(f"ladder {m.ladder}, rung {m.rung}" for m in run.memberships[:1])
    settings = programs.paths_of(config.settings)
    display = {name: getattr(table, name) for name in ("chance", "unit", "share", "test_items", "decimals")}
    display["steps"] = table.steps or run.steps or None
    lines = [
        f"# Beside the files of its program, executes run {run.id} again, if it is not done (--fresh in any case):",
        f"# lrurun ladder FILE.toml --seeds '{run.seed},'",
        *(f"# {name} {digest}" for name, digest in program.files.items()),
        f"task = {toml_value(config.task)}",
        f"name = {toml_value(f'again-{run.id}')}",
        f"source = {toml_value(', '.join(filter(None, [memberships, run.fingerprint])))}",
        "",
        "[program]",
        f"command = {toml_value(list(program.command))}",
        f"files = {toml_value(list(program.files))}",
        f"metric = {toml_value(program.metric)}",
        f"direction = {toml_value(program.direction)}",
        *(f"read.{toml_value(name)} = {toml_value(pattern)}" for name, pattern in (program.read or {}).items()),
        *(f"{name} = {toml_value(value)}" for name, value in display.items() if value not in (None, "")),
        f"threads = {execution.threads}",
        f"devices = {execution.devices}",
        f"stop_seconds = {execution.stop_seconds!r}",
        f"silent_seconds = {execution.hang_after_seconds!r}",
        "",
        "[settings]",
        *(f"{_key(path)} = {toml_value(value)}" for path, value in settings.items()),
        "",
        "[[rung]]",
        f"name = {toml_value(f'run-{run.id}')}",
        f"title = {toml_value(f'run {run.id} again')}",
    ]
    return "\n".join(lines) + "\n"


def _key(path: str) -> str:
    """The key of a setting in TOML, without the table's name."""
    return ".".join(
        part if re.fullmatch(r"[\w-]+", part, re.ASCII) else toml_value(part) for part in path.split(".")[1:]
    )


def _document(run: Run, config: RunConfig[Any, Any]) -> str:
    memberships = [f"ladder {m.ladder}, rung {m.rung}" for m in run.memberships[:1]]
    table = msgspec.to_builtins(config)
    flat = flatten({name: table[name] for name in ("model", "optim", "train")})
    changes = {path: value for path, value in flat if value is not None}  # a default, which TOML cannot express
    if "optim.warmup_steps" in changes:
        del changes["optim.warmup"]  # has no effect then, and only one of them can be set
    task = tasks.get(config.task, config.data)
    if task.spec(tasks.options_of(task, config.data)).output.at == "positions":
        del changes["model.pooling"]  # such outputs have none, and a document must not set it
    changes = dict(sorted(changes.items(), key=lambda item: item[0] not in (KIND, OPTIMIZER)))
    title = f"run {run.id} again"
    lines = [
        f"name = {toml_value(f'again-{run.id}')}",
        f"title = {toml_value(title)}",
        f"source = {toml_value(', '.join([*memberships, run.fingerprint]))}",
        *([f"load = [{', '.join(map(toml_value, files))}]"] if (files := plugin_code.files_of(config)) else []),
        "",
        "[[rung]]",
        f"name = {toml_value(f'run-{run.id}')}",
        f"title = {toml_value(title)}",
        "",
        "[rung.change]",
        *(f"{toml_value(path)} = {toml_value(value)}" for path, value in changes.items()),
    ]
    return "\n".join(lines) + "\n"


def _resolve(document: str, task: str, profile: str | None) -> planning.ResolvedRung | None:
    """The rung of the ladder on that task, as a ladder command would resolve it; None where that fails."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "again.toml"
        path.write_text(document, encoding="utf-8")
        try:
            return planning.make(task, ladder=str(path), profile=profile).rungs[0]
        except UsageError:
            return None


def _with_seed(config: RunConfig[Any, Any], seed: int) -> RunConfig[Any, Any]:
    return decode({**msgspec.to_builtins(config), "seed": seed}, RunConfig, "the ladder")


def _command(run: Run, task: str, profile: str | None, default: Execution, recorded: Execution) -> str:
    arguments = ["lrurun", "ladder", task, *(["--profile", profile] if profile else []), "--ladder", "FILE.toml"]
    arguments += ["--seeds", f"{run.seed},"]
    for name in Execution.__struct_fields__:
        if getattr(default, name) != getattr(recorded, name):
            arguments += ["--set", f"execution.{name}={toml_value(getattr(recorded, name)).strip(chr(34))}"]
    return (
        f"# Trains run {run.id} again if it is not done already (--fresh trains it in any case):\n"
        f"# {clean(shlex.join(arguments))}"
    )
