"""The plug-in code that a run depends on: its digests, and whether the loaded code is the same."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import msgspec

from lrurun import plugins
from lrurun.config.schema import (
    CellConfig,
    Code,
    Config,
    ImportedConfig,
    LadderConfig,
    ProgramConfig,
    RunConfig,
    decode,
)
from lrurun.errors import LrurunError, UsageError
from lrurun.plugins import WORDS, PluginType, Source


def code_of(names: Mapping[PluginType, str]) -> tuple[Code | None, dict[str, str]]:
    """The digests of the plug-ins that these names are of, and a table from dotted paths to their sources.

    Args:
        names: the recurrence, the task and the optimiser of a run.
    """
    used = _sources(names)
    if not used:
        return None, {}
    return (
        Code(**{type_: source.sha256 for type_, source in used.items()}),
        {f"code.{type_}": source.shown for type_, source in used.items()},
    )


def _mismatch(config: RunConfig, where: str) -> LrurunError | None:
    """The error that says why the loaded code cannot be used for a run's configuration; None if it can."""
    for type_, name, recorded, source in _pairs(config):
        if recorded is not None and source is None:
            origin = f"comes from a file or package that is not loaded ({recorded[:19]})"
            return LrurunError(f"{where}: its {WORDS[type_]} {name!r} {origin}", "name the file: --load FILE.py")
        if source is not None and recorded != source.sha256:
            recorded_code = f"{recorded[:19]} then" if recorded else "lrurun's own then"
            return LrurunError(
                f"{where}: {source.shown}, which has {WORDS[type_]} {name!r}, has changed since: {recorded_code}, "
                f"{source.sha256[:19]} now",
                "load the file as it was, or train again with the present one: lrurun ladder",
            )
    return None


def _pairs(config: RunConfig) -> Iterator[tuple[PluginType, str, str | None, Source | None]]:
    """The type of plug-in, its name, the recorded digest and the loaded source, for all that may come from plug-ins."""
    for type_, name in _names(config).items():
        yield type_, name, getattr(config.code or Code(), type_), plugins.source_of(type_, name)


def _names(config: RunConfig) -> dict[PluginType, str]:
    """The names of what a run has that may come from plug-ins."""
    kind = str(config.model.recurrence.__struct_config__.tag)
    return {"recurrence": kind, "task": config.task, "optimizer": config.optim.name}


def outdated(config: Config) -> str | None:
    """A clause that names the plug-in of a run that has changed or is not loaded; None if all are as recorded."""
    for type_, name, recorded, source in _pairs(config) if isinstance(config, RunConfig) else ():
        if recorded is not None and source is None:
            return f"the plug-in with their {WORDS[type_]} {name!r} is not loaded (--load FILE)"
        if source is not None and recorded != source.sha256:
            return f"the plug-in {source.shown} has changed since"
    return None


def config_of(config: Config, where: str) -> RunConfig:
    """The configuration of a run in the ledger, for building its model or task.

    Raises:
        LrurunError: a plug-in that it needs is not loaded, or has changed.
        UsageError: the run is a cell of a study, or its configuration does not fit this version.
    """
    if isinstance(config, ProgramConfig):
        hint = "what the program has saved is in the folder `program` of the run, in the runs folder"
        raise UsageError(f"{where}: executed a program, and lrurun knows no model of it", hint)
    if isinstance(config, ImportedConfig):
        hint = f"its tracker has what it saved: lrurun show {where.removeprefix('run ')} names its place"
        raise UsageError(f"{where}: was imported, and lrurun knows no model of it", hint)
    if isinstance(config, CellConfig):
        raise UsageError(
            f"{where}: is a run of {config.task}, not a trained model", f"lrurun report {config.task} shows its result"
        )
    if (error := _mismatch(config, where)) is not None:
        raise error
    # its plug-in may have been loaded after the configuration was read
    return decode(msgspec.to_builtins(config), RunConfig, where)


def files_of(config: LadderConfig) -> list[str]:
    """Absolute paths of the plug-in files that a run uses."""
    if not isinstance(config, RunConfig):
        return []
    sources = _sources(_names(config))
    return list(dict.fromkeys(source.file for source in sources.values() if source.file is not None))


def _sources(names: Mapping[PluginType, str]) -> dict[PluginType, Source]:
    """The sources of those that are plug-ins."""
    return {type_: source for type_, name in names.items() if (source := plugins.source_of(type_, name)) is not None}
