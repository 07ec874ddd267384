"""Recurrences and tasks from outside: classes in files and installed packages that somebody named.

A plug-in is code, and whoever loads it runs it. It is imported in three cases alone: `--load FILE` names its file; the
`load` of a ladder file does, and the command names that ladder; or a ladder, recipe or option that the command names
has a recurrence or task of which an installed package says by an entry point of the group `lrurun` that it is there.
`resume` stands for commands of before: it reads the ladder files that they named, and what these load, but what
`--load` named then must be named again. No folder is searched, and nothing in a ledger makes a reading command import
anything: `status`, `runs`, `show`, `query` need no plug-in, and what must build a model (`plot`, `show --toml`, `load`)
asks for the file to be named.

What a run takes from a plug-in is part of its fingerprint, by the digest of the file, or of all Python files of an
installed package. A run is never continued, drawn or loaded with other code than that. Built-in runs have no such part.
"""

from __future__ import annotations

import contextlib
import hashlib
import inspect
import os
import re
import sys
import traceback
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from types import ModuleType
from typing import Any, Literal, TypeVar

import msgspec
from msgspec import Struct

from lrurun import paths
from lrurun.config import RECURRENCES, Code, RecurrenceSettings, RunConfig
from lrurun.errors import LrurunError, UsageError
from lrurun.strict import convert

GROUP = "lrurun"
"""The group of the entry points, each with the name of a recurrence or task."""

What = Literal["recurrence", "task"]
C = TypeVar("C", bound=type)


class Source(Struct, frozen=True):
    """Where registered code comes from."""

    shown: str
    """For people."""
    sha256: str
    file: str | None = None
    """Its absolute path, of a file that was named."""


_FILES: dict[str, Source] = {}
"""Real path -> what was loaded from it."""
_GIVEN: list[str] = []
"""Absolute paths that `--load` named."""
_FOUND: list[tuple[What, str]] = []
"""What entry points were asked for, in order."""
_SOURCES: dict[tuple[What, str], tuple[Source, str]] = {}
"""What is registered -> where it comes from, and in which module."""
_loading: list[Source] = []
"""The file that is being loaded, if any."""


def recurrence(name: str) -> Callable[[C], C]:
    """Registers a subclass of `lrurun.recurrences.Recurrence` as `model.recurrence.kind = name`.

    Its inner class `Settings`, a `msgspec.Struct` whose fields all have defaults, says what else may stand in
    `[model.recurrence]`; `self.settings` then has the values. Without it there are none.

    Raises:
        UsageError: a name that is taken or none, another class, abstract methods, settings that TOML cannot give.
    """

    def register(cls: C) -> C:
        from lrurun import recurrences

        source = _source("recurrence", name, cls, RECURRENCES)
        _complete("recurrence", name, cls, recurrences.Recurrence)
        RECURRENCES[name] = _settings(name, cls)
        recurrences.KINDS[name] = (cls, (inspect.getdoc(cls) or "").partition("\n")[0])
        _SOURCES["recurrence", name] = (source, cls.__module__)
        return cls

    return register


def task(cls: C) -> C:
    """Registers a subclass of `lrurun.tasks.base.Task` under its `name`.

    Raises:
        UsageError: a name that is taken or none, another class, abstract methods, attributes that are missing.
    """
    from lrurun import tasks

    name = getattr(cls, "name", None)
    source = _source("task", name, cls, tasks.TASKS)
    _complete("task", str(name), cls, tasks.Task)
    for attribute, type_ in (("title", str), ("version", str), ("classes", int)):
        if not isinstance(getattr(cls, attribute, None), type_):
            raise UsageError(f"task {name!r}: has no {attribute}", f"add {attribute}, as lrurun.tasks.base.Task has it")
    made = cls()
    made.code = source.sha256
    tasks.TASKS[made.name] = made
    _SOURCES["task", made.name] = (source, cls.__module__)
    return cls


def _source(what: What, name: Any, cls: Any, known: Mapping[str, Any]) -> Source:
    """Where `cls` comes from, if it can be registered under this name."""
    if not isinstance(name, str) or not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9._-]*", name):
        raise UsageError(
            f"{what} {name!r}: expected a name of letters, digits, '.', '_' and '-'", f"as in {what} 'mine'"
        )
    if not isinstance(cls, type):
        raise UsageError(f"{what} {name!r}: expected a class, found {type(cls).__name__}", "decorate a class")
    if name in known and (what, name) not in _SOURCES:
        raise UsageError(f"{what} {name!r}: lrurun has one of this name", "choose another name")
    source = _loading[-1] if _loading else _of_module(what, name, cls.__module__)
    if name in known:
        other, module = _SOURCES[what, name]
        # the same file may be imported and loaded
        if other.sha256 != source.sha256 or module == cls.__module__:
            raise UsageError(f"{what} {name!r} is registered already, by {other.shown}", "choose another name")
    return source


def _complete(what: What, name: str, cls: Any, base: type) -> None:
    where = f"{base.__module__.removesuffix('.base')}.{base.__name__}"
    if not issubclass(cls, base):
        raise UsageError(f"{what} {name!r}: {cls.__name__} is no subclass of {where}", f"class {cls.__name__}({where})")
    if missing := sorted(getattr(cls, "__abstractmethods__", ())):
        raise UsageError(f"{what} {name!r}: {cls.__name__} lacks {', '.join(missing)}", f"{where} says what they do")


def _settings(name: str, cls: Any) -> type[RecurrenceSettings]:
    """The table of a kind: the fields of its `Settings`, with its tag, frozen and strict."""
    given = getattr(cls, "Settings", None)
    if given is None:
        bases: tuple[type, ...] = (RecurrenceSettings,)
    elif isinstance(given, type) and issubclass(given, Struct):
        bases = (given,) if issubclass(given, RecurrenceSettings) else (given, RecurrenceSettings)
    else:
        raise UsageError(f"recurrence {name!r}: Settings is no msgspec.Struct", "class Settings(msgspec.Struct): ...")
    if given is not None and "kind" in given.__struct_fields__:
        raise UsageError(f"recurrence {name!r}: Settings has a field 'kind', which is the name itself", "rename it")
    try:
        made: Any = msgspec.defstruct(
            f"{cls.__name__}Settings",
            [],
            bases=bases,
            module=cls.__module__,
            namespace={"__doc__": inspect.getdoc(cls) or ""},
            frozen=True,
            kw_only=True,
            forbid_unknown_fields=True,
            tag_field="kind",
            tag=name,
        )
        for field in msgspec.structs.fields(made):
            if field.required:
                raise UsageError(f"recurrence {name!r}: setting {field.name} has no default", "give it one")
        msgspec.convert(msgspec.to_builtins(made()), made, strict=True)
    except (TypeError, NameError, ValueError, msgspec.MsgspecError) as error:
        raise UsageError(
            f"recurrence {name!r}: its Settings or their defaults do not do: {error}",
            "use numbers, strings, truths and lists, with defaults of their own type",
        ) from None
    return made


def _of_module(what: What, name: str, module: str) -> Source:
    """The source of a class that no `load` brought here: of an installed package, or of the running program."""
    top = sys.modules.get(module.partition(".")[0])
    folders = [Path(folder) for folder in getattr(top, "__path__", ())]
    file = getattr(sys.modules.get(module), "__file__", None)
    if not folders and file is None:
        raise UsageError(f"{what} {name!r}: its class is in no file", "write it into a .py file, and load that")
    if not folders:
        text = Path(str(file)).read_bytes()
        return Source(paths.shown(Path(str(file))), _digest(text))
    every = sorted((path.relative_to(folder).as_posix(), path) for folder in folders for path in folder.rglob("*.py"))
    digests = "".join(f"{relative}={_digest(path.read_bytes())}\n" for relative, path in every)
    return Source(f"package {module.partition('.')[0]}", _digest(digests.encode()))


def _digest(content: bytes) -> str:
    return "sha256:" + hashlib.sha256(content).hexdigest()


def give(files: list[str]) -> None:
    """Loads what `--load` names."""
    for name in files:
        load(name)
        _GIVEN.append(os.path.abspath(Path(name).expanduser()))


def given() -> list[str]:
    """Absolute paths of what `--load` named."""
    return list(dict.fromkeys(_GIVEN))


def load(name: str | os.PathLike[str], *, base: Path | None = None, named: str = "--load") -> Source:
    """Imports a file, once; `named` says in errors who named it, relative to the folder `base`.

    Raises:
        UsageError: there is no such file, it is not Python, raises, or registers nothing, or what it may not.
        LrurunError: it cannot be read, or changed since it was loaded.
    """
    path = (base or Path()) / Path(name).expanduser()
    if path.suffix != ".py":
        raise UsageError(f"{named}: expected a .py file, found {name}", f"as in {named} mine.py")
    shown = paths.shown(path)
    try:
        content = path.read_bytes()
    except FileNotFoundError:
        hint = "give its path from here" if base is None else f"it is looked for from the ladder's folder, {base}"
        raise UsageError(f"{named}: there is no file {shown}", hint) from None
    except OSError as error:
        raise LrurunError(f"{shown}: {error.strerror}", "check the path and its permissions") from None
    real = os.path.realpath(path)
    source = Source(shown, _digest(content), real)
    before = _FILES.get(real)
    if before is not None and before.sha256 != source.sha256:
        raise LrurunError(f"{shown} was changed while this command was using it", "type the command again")
    if before is None:
        # a copy is the same code
        before = next((one for one in _FILES.values() if one.sha256 == source.sha256), None)
        if before is None:
            _import(path, content, source)
        _FILES[real] = before or source
    return _FILES[real]


def is_loaded(name: str, base: Path) -> bool:
    """Whether this file has been loaded."""
    return os.path.realpath(base / Path(name).expanduser()) in _FILES


def _import(path: Path, content: bytes, source: Source) -> None:
    """Runs the very bytes of which `source` has the digest."""
    name = f"lrurun_plugin_{re.sub(r'[^A-Za-z0-9]', '_', path.stem)}_{source.sha256[7:19]}"
    module = ModuleType(name)
    module.__file__ = source.file
    known = dict(_SOURCES)
    with _undone_if_it_fails(name):
        sys.modules[name] = module
        _loading.append(source)
        try:
            code = compile(content, str(path), "exec", dont_inherit=True)
            with contextlib.redirect_stdout(sys.stderr):  # stdout is for results
                exec(code, module.__dict__)
        except (Exception, SystemExit) as error:
            raise _told(error, str(path), source.shown) from (error if not isinstance(error, LrurunError) else None)
        finally:
            _loading.pop()
        if known == _SOURCES:
            raise UsageError(
                f"{source.shown}: registers nothing",
                'decorate a class: @lrurun.recurrence("name"), or @lrurun.task',
            )


@contextlib.contextmanager
def _undone_if_it_fails(module: str) -> Iterator[None]:
    """What a file has registered before it failed is gone."""
    before = dict(_SOURCES)
    try:
        yield
    except BaseException:
        sys.modules.pop(module, None)
        for what, name in set(_SOURCES) - set(before):
            forget(what, name)
        raise


def forget(what: What, name: str) -> None:
    """Undoes a registration; lrurun's own stay."""
    if _SOURCES.pop((what, name), None) is None:
        return
    if what == "task":
        from lrurun import tasks

        del tasks.TASKS[name]
    else:
        from lrurun import recurrences

        del RECURRENCES[name], recurrences.KINDS[name]


def _told(error: BaseException, path: str, shown: str) -> LrurunError:
    """What went wrong in a file, and where in it."""
    frames = traceback.extract_tb(error.__traceback__)
    lines = [frame.lineno for frame in frames if frame.filename == path]
    at = f"{shown}, line {lines[-1]}" if lines else shown
    if isinstance(error, LrurunError):
        return type(error)(f"{at}: {error.message}", error.hint)
    if isinstance(error, SyntaxError) and not lines:
        if error.lineno is None:
            return UsageError(f"{shown}: not valid Python: {error.msg}", "save the file as UTF-8 text")
        return UsageError(f"{shown}, line {error.lineno}: not valid Python: {error.msg}", "mend the line named above")
    if isinstance(error, ValueError) and not lines:
        # Python 3.11, of null bytes
        return UsageError(f"{shown}: not valid Python: {error}", "save the file as UTF-8 text")
    hint = "--debug shows all of it"
    if isinstance(error, ModuleNotFoundError):
        hint = f"install it, or leave it out: a plug-in is one file, and does not see the files beside {shown}"
    text = " ".join(str(error).split())
    return UsageError(f"{at}: raised {type(error).__name__}" + (f": {text}" if text else ""), hint)


def find(what: What, name: Any) -> None:
    """Imports the installed package that has this recurrence or task by an entry point, where it is not known yet.

    Raises:
        UsageError: the package raises, or has no such thing.
    """
    if what == "task":
        from lrurun import tasks

        known: Mapping[str, Any] = tasks.TASKS
    else:
        known = RECURRENCES
    if not isinstance(name, str) or name in known:
        return
    from importlib.metadata import entry_points

    for point in entry_points(group=GROUP, name=name):
        where = f"entry point {name!r} of package {point.dist.name if point.dist else point.value}"
        try:
            with contextlib.redirect_stdout(sys.stderr):
                point.load()
        except LrurunError as error:
            raise type(error)(f"{where}: {error.message}", error.hint) from None
        except Exception as error:
            text = " ".join(str(error).split())
            raise UsageError(f"{where}: raised {type(error).__name__}: {text}", "--debug shows all of it") from error
        if name not in known:
            raise UsageError(f"{where}: registers no {what} of this name", "ask those who made it, or remove it")
        _FOUND.append((what, name))
        return


def code(kind: str, task: str) -> tuple[Code | None, dict[str, str]]:
    """The digests that belong into a run's configuration, and dotted path -> where they come from."""
    names: dict[What, str] = {"recurrence": kind, "task": task}
    used = {what: _SOURCES[what, name][0] for what, name in names.items() if (what, name) in _SOURCES}
    if not used:
        return None, {}
    return (
        Code(**{what: source.sha256 for what, source in used.items()}),
        {f"code.{what}": source.shown for what, source in used.items()},
    )


def _unlike(config: Mapping[str, Any], where: str) -> LrurunError | None:
    """Why a run's configuration cannot be understood by what is loaded; None where it can."""
    kind: Any = config
    for step in ("model", "recurrence", "kind"):
        kind = kind.get(step) if isinstance(kind, Mapping) else None
    names: dict[What, Any] = {"recurrence": kind, "task": config.get("task")}
    code = config.get("code")
    for what, name in names.items():
        wanted = code.get(what) if isinstance(code, Mapping) else None
        source = _SOURCES.get((what, name), (None, ""))[0]
        if wanted is not None and source is None:
            return LrurunError(
                f"{where}: its {what} {name!r} comes from a file or package that is not loaded ({wanted[:19]})",
                "name the file: --load FILE.py",
            )
        if source is not None and wanted != source.sha256:
            was = f"{wanted[:19]} then" if wanted else "lrurun's own then"
            return LrurunError(
                f"{where}: {source.shown}, which has {what} {name!r}, is another one now: {was}, "
                f"{source.sha256[:19]} now",
                "name the file as it was, or train again with what it is now: lrurun ladder",
            )
    return None


def fits(config: Mapping[str, Any]) -> bool:
    """Whether the code of a run, as its plain configuration names it, is what is loaded."""
    return _unlike(config, "") is None


def config_of(config: Mapping[str, Any], where: str) -> RunConfig:
    """The configuration of a run of the ledger, for those that build its model or task.

    Raises:
        LrurunError: what it takes from plug-ins is not loaded, or is other code now.
        UsageError: it does not fit this version.
    """
    wrong = _unlike(config, where)
    if wrong is not None:
        raise wrong
    return convert(config, RunConfig, where)


def files_of(config: RunConfig) -> list[str]:
    """The files, absolute, that a run takes something from."""
    names: dict[What, str] = {"recurrence": type(config.model.recurrence).__struct_config__.tag, "task": config.task}  # type: ignore[dict-item]
    found = [_SOURCES[what, name][0].file for what, name in names.items() if (what, name) in _SOURCES]
    return list(dict.fromkeys(file for file in found if file is not None))


def order() -> dict[str, Any]:
    """What another process must load to know what this one knows, as plain data."""
    return {"files": [[path, source.sha256] for path, source in _FILES.items()], "found": [list(f) for f in _FOUND]}


def obey(order: Mapping[str, Any]) -> None:
    """Loads what `order` says.

    Raises:
        LrurunError: a file has gone or was changed since.
    """
    for path, digest in order.get("files", ()):
        source = load(path, named="a plug-in of this command")
        if source.sha256 != digest:
            raise LrurunError(f"{source.shown} was changed while this command was using it", "type the command again")
    for what, name in order.get("found", ()):
        find(what, name)
