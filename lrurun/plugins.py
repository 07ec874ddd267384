"""Plug-ins: recurrences, optimisers and tasks in files and installed packages that a user names.

Loading a plug-in runs its code. It is imported in four cases only: `--load FILE` names its file; the command names a
ladder whose `load` names the file; a ladder, recipe or option of the command uses a recurrence, optimiser or task that
an installed package provides by an entry point of the group `lrurun`; or a command about recorded runs needs the code
(to build a model, or to resolve a ladder), and the file that they were trained with is unchanged
(`lrurun.instances.documents`). `resume` repeats earlier commands: it reads the ladder files that they named and
loads the plug-ins of these, but needs the same `--load` again. No folder is searched, and `status`, `runs`, `show` and
`query` need no plug-in.

The fingerprint of a run includes the digests of the plug-ins that it uses: of a file, or of all Python files of an
installed package. A run is never continued, plotted or loaded with other code.

This module loads files and records where registered classes come from. What a recurrence must have is checked in
`lrurun.config.recurrences.registration`, what an optimiser must have in `lrurun.config.optimizers.registration`, what a
task must have in `lrurun.data.registration`.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import re
import stat
import sys
import traceback
from collections.abc import Callable, Iterator, Mapping, MutableMapping, Sequence
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any, Generic, Literal, TypeVar

from msgspec import Struct

from lrurun import paths
from lrurun.errors import LrurunError, UsageError, check_type

if TYPE_CHECKING:
    from importlib.metadata import EntryPoints

GROUP = "lrurun"
"""The group of the entry points, each with the name of a recurrence, optimiser or task."""

PluginType = Literal["recurrence", "task", "optimizer"]
WORDS: dict[PluginType, str] = {"recurrence": "recurrence", "task": "task", "optimizer": "optimiser"}
"""What sentences call each type."""
C = TypeVar("C", bound=type)
E = TypeVar("E")


class Source(Struct, frozen=True):
    """The origin of registered code."""

    shown: str
    """The name in messages."""
    sha256: str
    file: str | None = None
    """The absolute path, where a file was named."""


class Registry(MutableMapping[str, E], Generic[E]):
    """Name -> recurrence, optimiser or task: lrurun's own, whose modules are imported on use, then plug-ins."""

    def __init__(self, own: Mapping[str, Callable[[], E]]) -> None:
        """`own` maps the name of each of lrurun's own entries to a function that imports and returns it."""
        self._makers: dict[str, Callable[[], E] | None] = dict(own)
        self._entries: dict[str, E] = {}

    def __getitem__(self, name: str) -> E:
        if name not in self._entries and (make := self._makers[name]) is not None:
            self._entries[name] = make()
        return self._entries[name]

    def __setitem__(self, name: str, entry: E) -> None:
        self._makers.setdefault(name, None)
        self._entries[name] = entry

    def __delitem__(self, name: str) -> None:
        del self._makers[name]
        self._entries.pop(name, None)

    def __contains__(self, name: object) -> bool:
        return name in self._makers

    def __iter__(self) -> Iterator[str]:
        return iter(self._makers)

    def __len__(self) -> int:
        return len(self._makers)

    def is_imported(self, name: str) -> bool:
        """Whether the module of an entry has been imported; False for an unknown name."""
        return name in self._entries


_REGISTRIES: dict[PluginType, Registry[Any]] = {}
_FILES: dict[str, Source] = {}
"""Real path -> source of the file that was loaded from it."""
_NAMED: list[str] = []
"""Absolute paths of files that `--load` or an argument named."""
_INSTALLED: list[tuple[PluginType, str]] = []
"""Plug-ins found by entry points, in order."""
_SOURCES: dict[tuple[PluginType, str], tuple[Source, str]] = {}
"""Kind of plug-in and name of a registered class -> its source and its module."""
_check: list[Callable[[Path], None]] = []
"""Functions that may refuse a file before it is imported."""
_loading: list[Source] = []
"""The file that is being loaded, if any."""


def registry(type_: PluginType, own: Mapping[str, Callable[[], E]]) -> Registry[E]:
    """Makes the registry of all recurrences, optimisers or tasks, with lrurun's own; plug-ins are added later."""
    _REGISTRIES[type_] = entries = Registry(own)
    return entries


def decorator(name: str | C, register: Callable[[str, C], C]) -> Callable[[C], C] | C:
    """The result of a decorator with a name, `@task("name")`, or without one, `@task`, for a class with an attribute
    `name`."""
    if isinstance(name, str):
        return lambda cls: register(name, cls)
    return register(getattr(name, "name", None) or "", name)


def register(
    type_: PluginType,
    name: str,
    entry: Callable[[Source], Any],
    cls: Any,
    base: type,
) -> None:
    """Adds `entry`, made for the source of `cls`, under this name.

    Raises:
        UsageError: the name is taken or not permitted, or the class is no subclass of `base` or has abstract methods.
    """
    source = _source(type_, name, cls)
    public = f"lrurun.{base.__name__}"
    if not issubclass(cls, base):
        hint = f"class {cls.__name__}({public})"
        raise UsageError(f"{type_} {name!r}: {cls.__name__} is not a subclass of {public}", hint)
    if missing := sorted(getattr(cls, "__abstractmethods__", ())):
        hint = f"the docstrings of {public} say what they do"
        raise UsageError(f"{type_} {name!r}: {cls.__name__} lacks {', '.join(missing)}", hint)
    _REGISTRIES[type_][name] = entry(source)
    _SOURCES[type_, name] = (source, cls.__module__)


def _source(type_: PluginType, name: str, cls: Any) -> Source:
    """The source of `cls`. Raises UsageError if the class cannot be registered under this name."""
    if not isinstance(cls, type):
        raise UsageError(f"{type_} {name!r}: expected a class, found {type(cls).__name__}", "decorate a class")
    if not name:
        raise UsageError(f"{type_} {cls.__name__}: has no name", f'add one: @lrurun.{type_}("mine")')
    if not isinstance(name, str) or not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9._-]*", name):
        raise UsageError(
            f"{type_} {name!r}: expected a name of letters, digits, '.', '_' and '-'", f"as in {type_} 'mine'"
        )
    if name in _REGISTRIES[type_] and (type_, name) not in _SOURCES:
        raise UsageError(f"{type_} {name!r}: already part of lrurun", "choose another name")
    source = _loading[-1] if _loading else _module_source(type_, name, cls.__module__)
    if (type_, name) in _SOURCES:
        earlier, module = _SOURCES[type_, name]
        # the same file may be imported and loaded
        if earlier.sha256 != source.sha256 or module == cls.__module__:
            raise UsageError(f"{type_} {name!r} is registered already, by {earlier.shown}", "choose another name")
    return source


def source_of(type_: PluginType, name: Any) -> Source | None:
    """The source of the recurrence, optimiser or task with this name; None for lrurun's own and for unknown names."""
    return _SOURCES[type_, name][0] if isinstance(name, str) and (type_, name) in _SOURCES else None


def _module_source(type_: PluginType, name: str, module: str) -> Source:
    """The source of a class outside loaded files: an installed package, or the running program."""
    top = sys.modules.get(module.partition(".")[0])
    folders = [Path(folder) for folder in getattr(top, "__path__", ())]
    file = getattr(sys.modules.get(module), "__file__", None)
    if not folders and file is None:
        raise UsageError(
            f"{type_} {name!r}: its class is not defined in a file", "define it in a .py file, and load that"
        )
    if not folders:
        text = Path(str(file)).read_bytes()
        return Source(paths.shown(Path(str(file))), _digest(text))
    files = sorted((path.relative_to(folder).as_posix(), path) for folder in folders for path in folder.rglob("*.py"))
    digests = "".join(f"{relative}={_digest(path.read_bytes())}\n" for relative, path in files)
    return Source(f"package {module.partition('.')[0]}", _digest(digests.encode()))


def _digest(content: bytes) -> str:
    return "sha256:" + hashlib.sha256(content).hexdigest()


@contextlib.contextmanager
def checked(check: Callable[[Path], None]) -> Iterator[None]:
    """Within the block, calls `check` with the path of each file before it is imported; `check` may raise."""
    _check.append(check)
    try:
        yield
    finally:
        _check.pop()


def load_files(files: Sequence[str | os.PathLike[str]], *, named: str = "--load") -> None:
    """Loads the files that `--load` or an argument of `lrurun.open` or `lrurun.load` names. Raises like `load`."""
    hint = 'as in files=["mine.py"]'
    check_type(named, files, list | tuple, "a list of paths", hint)
    for file in files:
        check_type(named, file, str | os.PathLike, "a path", hint)
        load(file, named=named)
        _NAMED.append(os.path.abspath(Path(file).expanduser()))


def named_files() -> list[str]:
    """Absolute paths of the files that `--load` or an argument named."""
    return list(dict.fromkeys(_NAMED))


def load_options() -> list[str]:
    """The options that load these files in another command."""
    return [word for file in named_files() for word in ("--load", min(file, os.path.relpath(file), key=len))]


def load(name: str | os.PathLike[str], *, base: Path | None = None, named: str = "--load") -> Source:
    """Imports a file once. Its name is relative to `base`. Errors begin with `named`, the place where it was named.

    Raises:
        UsageError: there is no such file, it is not Python, it raises, or what it registers is refused.
        LrurunError: it cannot be read, or changed since it was loaded.
    """
    path = (base or Path()) / Path(name).expanduser()
    if path.suffix != ".py":
        raise UsageError(f"{named}: expected a .py file, found {name}", f"as in {named} mine.py")
    shown = paths.shown(path)
    try:
        content = path.read_bytes()
    except FileNotFoundError:
        hint = (
            "paths are relative to the working directory" if base in (None, Path()) else f"paths are relative to {base}"
        )
        raise UsageError(f"{named}: there is no file {shown}", hint) from None
    except OSError as error:
        raise LrurunError(f"{shown}: {error.strerror}", "check the path and its permissions") from None
    real = os.path.realpath(path)
    source = Source(shown, _digest(content), real)
    loaded_source = _FILES.get(real)
    if loaded_source is not None and loaded_source.sha256 != source.sha256:
        raise _changed(shown)
    if loaded_source is None:
        # a copy of a loaded file is the same code
        loaded_source = next((copy for copy in _FILES.values() if copy.sha256 == source.sha256), None)
        if loaded_source is None:
            for check in _check:
                check(path)
            _import(path, content, source)
        _FILES[real] = loaded_source or source
    return _FILES[real]


def is_loaded(name: str, base: Path) -> bool:
    """Whether a file, relative to the folder `base`, has been loaded."""
    return os.path.realpath(base / Path(name).expanduser()) in _FILES


def digest_of(file: Path) -> str | None:
    """The digest of a file as it is now; None if it cannot be read."""
    try:
        return _digest(file.read_bytes())
    except OSError:
        return None


def is_protected(file: Path) -> bool:
    """Whether the file exists, and only this user and root can change it, or replace it or a folder on the way to it.

    A group that has the number of the user counts as the user alone. In a sticky folder others replace nothing.
    """
    for path in (Path(os.path.abspath(file)), Path(os.path.realpath(file))):
        for part in (path, *path.parents):
            try:
                status = part.stat()
            except OSError:
                return False
            own_group = status.st_gid in (0, os.getuid())
            foreign_bits = stat.S_IWOTH if own_group else stat.S_IWOTH | stat.S_IWGRP
            sticky = stat.S_ISDIR(status.st_mode) and status.st_mode & stat.S_ISVTX
            if status.st_uid not in (0, os.getuid()) or (status.st_mode & foreign_bits and not sticky):
                return False
    return True


def _import(path: Path, content: bytes, source: Source) -> None:
    """Runs exactly the bytes whose digest `source` has."""
    name = f"lrurun_plugin_{re.sub(r'[^A-Za-z0-9]', '_', path.stem)}_{source.sha256[7:19]}"
    module = ModuleType(name)
    module.__file__ = source.file
    earlier_sources = dict(_SOURCES)
    with _undo_on_failure(name):
        sys.modules[name] = module
        _loading.append(source)
        try:
            code = compile(content, str(path), "exec", dont_inherit=True)
            with contextlib.redirect_stdout(sys.stderr):  # stdout is for results
                exec(code, module.__dict__)
        except (Exception, SystemExit) as error:
            raise _error_in_file(error, str(path), source.shown) from (
                error if not isinstance(error, LrurunError) else None
            )
        finally:
            _loading.pop()
        if earlier_sources == _SOURCES:
            raise UsageError(
                f"{source.shown}: registers nothing",
                'decorate a class: @lrurun.recurrence("name"), @lrurun.optimizer("name") or @lrurun.task("name")',
            )


@contextlib.contextmanager
def _undo_on_failure(module: str) -> Iterator[None]:
    """Removes what a file registered before it failed."""
    earlier_sources = dict(_SOURCES)
    try:
        yield
    except BaseException:
        sys.modules.pop(module, None)
        for type_, name in set(_SOURCES) - set(earlier_sources):
            forget(type_, name)
        raise


def forget(type_: PluginType, name: str) -> None:
    """Undoes the registration of a plug-in; lrurun's own entries stay."""
    if _SOURCES.pop((type_, name), None) is not None:
        del _REGISTRIES[type_][name]


def _error_in_file(error: BaseException, path: str, shown: str) -> LrurunError:
    """The error to show for an exception in a file, with the failure and its place."""
    frames = traceback.extract_tb(error.__traceback__)
    lines = [frame.lineno for frame in frames if frame.filename == path]
    at = f"{shown}, line {lines[-1]}" if lines else shown
    if isinstance(error, LrurunError):
        return type(error)(f"{at}: {error.message}", error.hint)
    if isinstance(error, SyntaxError) and not lines:
        if error.lineno is None:
            return UsageError(f"{shown}: not valid Python: {error.msg}", "save the file as UTF-8 text")
        return UsageError(
            f"{shown}, line {error.lineno}: not valid Python: {error.msg}", "correct the line named above"
        )
    if isinstance(error, ValueError) and not lines:
        # Python 3.11, of null bytes
        return UsageError(f"{shown}: not valid Python: {error}", "save the file as UTF-8 text")
    return UsageError(*_raised(error, at, shown))


def _raised(error: BaseException, at: str, shown: str) -> tuple[str, str]:
    """The message and hint for an exception at a place in a plug-in."""
    hint = "--debug shows the traceback"
    if isinstance(error, ModuleNotFoundError):
        hint = f"install it, or leave it out: a plug-in is one file, and cannot import the files beside {shown}"
    text = " ".join(str(error).split())
    return f"{at}: raised {type(error).__name__}" + (f": {text}" if text else ""), hint


def fault(error: BaseException) -> LrurunError | None:
    """The error to show for an exception in the code of a plug-in; None if it comes from other code.

    An OSError in lrurun's own code counts as other code even where a plug-in called it: a disk may be full.
    """
    owners = {module.partition(".")[0]: source.shown for source, module in _SOURCES.values()}
    for frame, line in reversed(list(traceback.walk_tb(error.__traceback__))):
        top = str(frame.f_globals.get("__name__")).partition(".")[0]
        if top in owners:
            file = Path(frame.f_code.co_filename).name
            at = owners[top] if Path(owners[top]).name == file else f"{owners[top]}, {file}"
            return LrurunError(*_raised(error, f"{at}, line {line}", owners[top]))
        if top == "lrurun" and isinstance(error, OSError):
            return None
    return None


def load_installed(type_: PluginType, name: Any) -> None:
    """Imports the installed package whose entry point provides this recurrence, optimiser or task, if it is not loaded.

    Raises:
        UsageError: the package raises, or does not register the name; a loaded file or another package has it too.
    """
    known = _REGISTRIES[type_]
    if not isinstance(name, str) or (name in known and source_of(type_, name) is None):  # lrurun's own
        return
    source, points = source_of(type_, name), list(_entry_points().select(name=name))
    if not points or (source is not None and source.file is None):
        return
    packages = sorted(f"package {point.dist.name if point.dist else point.value}" for point in points)
    if len(places := [*packages, *([] if source is None else [source.shown])]) > 1:
        raise UsageError(f"{type_} {name!r}: is in {' and in '.join(places)}", "load or install one of them")
    where = f"entry point {name!r} of {packages[0]}"
    try:
        with contextlib.redirect_stdout(sys.stderr):
            points[0].load()
    except LrurunError as error:
        raise type(error)(f"{where}: {error.message}", error.hint) from None
    except Exception as error:
        text = " ".join(str(error).split())
        raise UsageError(f"{where}: raised {type(error).__name__}: {text}", "--debug shows the traceback") from error
    if name not in known:
        raise UsageError(f"{where}: registers no {WORDS[type_]} with this name", "report it, or remove the package")
    _INSTALLED.append((type_, name))


def _entry_points() -> EntryPoints:
    """The entry points of recurrences, optimisers and tasks in installed packages, which are not imported."""
    from lrurun import machine  # here, because few commands need it

    return machine.entry_points(GROUP)


def installed_names() -> set[str]:
    """The names of recurrences, optimisers and tasks in installed packages, which are not imported."""
    return _entry_points().names


class Loaded(Struct, frozen=True):
    """The plug-ins that a process has loaded, so that another process can load the same."""

    files: list[tuple[str, str]] = []
    """Path and digest of each file."""
    installed: list[tuple[PluginType, str]] = []


def loaded() -> Loaded:
    """The plug-ins that this process has loaded."""
    return Loaded([(path, source.sha256) for path, source in _FILES.items()], list(_INSTALLED))


def load_all(plug_ins: Loaded) -> None:
    """Loads the plug-ins of another process.

    Raises:
        LrurunError: a file is missing, or has changed since.
    """
    for path, digest in plug_ins.files:
        source = load(path, named="a plug-in of this command")
        if source.sha256 != digest:
            raise _changed(source.shown)
    for type_, name in plug_ins.installed:
        load_installed(type_, name)


def _changed(shown: str) -> LrurunError:
    return LrurunError(f"{shown} was changed while this command was using it", "run the command again")
