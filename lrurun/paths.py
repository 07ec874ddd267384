"""The paths of ledger, runs, data, recipes and ladders."""

from __future__ import annotations

import os
import re
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import Literal
from urllib.parse import quote, unquote

from msgspec import Struct

from lrurun import server
from lrurun.errors import LrurunError, UsageError, check_type, hint_for, nearest
from lrurun.server import ARGUMENT, Location

STORES = {"s3": "s3fs", "gs": "gcsfs", "az": "adlfs", "file": ""}
"""Scheme of a URL -> the package with which fsspec reads it."""
_URL = re.compile(r"(?P<scheme>[a-z][a-z0-9+.-]*)://(?P<path>.*)", re.IGNORECASE)

_RUN = re.compile(r"[0-9a-f]{12}(-\d+)?")
"""The id of a run, which is the name of its folder."""

Group = Literal["ablations", "recipes"]
"""The folder of ladders or of recipes."""
_NAME = {"ablations": "ladder", "recipes": "recipe"}


class Places(Struct, frozen=True, kw_only=True):
    """The ledger, the folder of all runs and the folder of all data."""

    ledger: Location
    runs: Path
    data: Path


_place_options: list[str] = []


def note_place_options(ledger: str | None, runs: str | None, data: str | None) -> None:
    """Keeps the places that the command line names, without a password, for the commands that are proposed."""
    options = {"--ledger": ledger, "--runs-dir": runs, "--data-dir": data}
    _place_options[:] = [word for name, text in options.items() if text is not None for word in (name, text)]


def place_options() -> list[str]:
    """The options with which another command uses the same places; empty where the command line names none."""
    return list(_place_options)


def places(ledger: str | None = None, runs: str | None = None, data: str | None = None) -> Places:
    """The places that a command uses: options override the environment, which overrides the defaults."""
    for option, text in (("--ledger", ledger), ("--runs-dir", runs), ("--data-dir", data)):
        if text == "":
            raise UsageError(f"{option}: expected a path, found an empty text", "leave the option out, or name a path")
    location = ledger_location(
        ledger or os.environ.get(server.VARIABLE) or "ledger.db", "--ledger" if ledger else server.VARIABLE
    )
    runs_text = runs or os.environ.get("LRURUN_RUNS")
    data_text = data or os.environ.get("LRURUN_DATA")
    share = os.environ.get("XDG_DATA_HOME") or "~/.local/share"
    return Places(
        ledger=location,
        runs=runs_folder(runs_text, "--runs-dir" if runs else "LRURUN_RUNS") if runs_text else default_runs(location),
        data=expanded(data_text, "--data-dir") if data_text else expanded(share, "--data-dir") / "lrurun",
    )


def given_ledger(ledger: str | os.PathLike[str]) -> Location:
    """The ledger that an argument of `lrurun.open` or `lrurun.load` names. Raises as `ledger_location` does."""
    hint = 'as in ledger="ledger.db"; the place of one that is open is str(opened.path)'
    check_type(ARGUMENT, ledger, str | os.PathLike, "a path or a URL", hint)
    return ledger_location(os.fspath(ledger), ARGUMENT)


def ledger_location(text: str, where: str = ARGUMENT) -> Location:
    """The file or the server that `text` names; `where` it was found, for messages.

    Raises:
        UsageError: it is neither a path nor the URL of a server or of an SQLite file, or has a password.
    """
    if not text:
        raise UsageError(f"{where}: expected a path, found an empty text", "name a file, as in ledger.db")
    if server.is_server(text):
        return server.parse(text, where)
    if "://" in text:
        scheme, _, text = text.partition("://")
        if not scheme.startswith("sqlite"):
            raise UsageError(
                f"{where}: a ledger is an SQLite file or a PostgreSQL database, found a {scheme} URL",
                "as in --ledger ledger.db, or --ledger postgresql+psycopg://USER@HOST/DATABASE",
            )
        text = text.removeprefix("/")
        if not text:
            raise UsageError(f"{where}: the URL names no file", "give the path of a file, as in --ledger ledger.db")
    return expanded(text, where)


def runs_folder(text: str, option: str) -> Path:
    """The runs folder that `text` names, or the local mirror of one in an object store. Raises UsageError."""
    if is_url(text):
        return cache_dir().parent / "runs" / _mirror_name(text, option)
    return expanded(text, option)


def is_url(text: str) -> bool:
    return _URL.fullmatch(text) is not None


def _mirror_name(url: str, option: str) -> str:
    """The name of the folder that is the local mirror of a URL, which was found in `option`.

    Raises:
        UsageError: there is no such scheme of stores, or the URL names no folder of it.
    """
    scheme, _, path = url.partition("://")
    if scheme not in STORES:
        raise UsageError(f"{option}: {scheme}:// is no object store", hint_for(scheme, STORES, "schemes"))
    if not path.strip("/") or re.search(r"[?#@]|::|//|(^|/)\.\.?(/|$)", path.removeprefix("/")):
        example = f"as in {option} {scheme}://BUCKET/FOLDER; options and keys are settings of the store's package"
        address = "one with a user or a key" if "@" in path else repr(url)
        raise UsageError(f"{option}: expected the URL of a folder, found {address}", example)
    name = quote(url.rstrip("/"), safe="")
    if len(name) > 255:
        raise UsageError(f"{option}: the URL is too long: {len(name)} bytes, at most 255", "name a shorter one")
    return name


def shown_runs(runs: Path) -> str:
    """The runs folder as one gives it: its URL, or its path."""
    return unquote(runs.name) if is_mirror(runs) else str(runs)


def is_mirror(runs: Path) -> bool:
    """Whether a runs folder is the local mirror of one in an object store."""
    return is_url(unquote(runs.name))


def default_runs(ledger: Location) -> Path:
    """The runs folder of a ledger, beside the file: `runs` of `ledger.db`, `b-runs` of `b.db`; with a server, `runs` in
    the working directory.

    Two ledgers in one folder have the same runs, whose attempts must not have the same folders. A backup has the
    folder of its original.
    """
    if not isinstance(ledger, Path):
        return Path("runs")
    name = ledger.name.partition(".backup-")[0]
    return ledger.parent / ("runs" if name == "ledger.db" else f"{name.removesuffix('.db')}-runs")


def run_folders(runs: Path) -> list[str]:
    """The ids of the runs that have a folder in a runs folder, sorted; none if it cannot be read."""
    with suppress(OSError):
        return sorted(entry.name for entry in os.scandir(runs) if _RUN.fullmatch(entry.name) and entry.is_dir())
    return []


def is_run_id(name: str) -> bool:
    """Whether a name is the id of a run, or looks like one."""
    return _RUN.fullmatch(name) is not None


def inside(folder: Path, *names: str) -> Path:
    """The path of `names`, which come from a ledger, below `folder`.

    Raises:
        LrurunError: the path is not below the folder: because of "..", an absolute path, or a link.
    """
    try:
        path = folder.joinpath(*names)
        if folder.resolve() in path.resolve().parents:
            with suppress(FileNotFoundError, NotADirectoryError, PermissionError):
                path.lstat()
            return path
    except (OSError, ValueError, RuntimeError):  # too long, not a file name, a loop of links
        pass
    raise LrurunError(
        f"{'/'.join(names)[:200]}: leads out of the runs folder {folder}",
        "the ledger was edited, or a link was moved: this path is neither read nor removed",
    )


def expanded(text: str, option: str) -> Path:
    """The path with `~` replaced by the home folder.

    Raises:
        UsageError: there is no such home folder, or it is a URL.
    """
    if is_url(text):
        raise UsageError(
            f"{option}: expected a path, found a {text.partition(':')[0]} URL",
            "of all folders only that of --runs-dir may be in an object store",
        )
    try:
        return Path(text).expanduser()
    except RuntimeError:
        raise UsageError(
            f"{option}: {text}: there is no such home folder", "set HOME, or give a path without ~"
        ) from None


def cache_dir() -> Path:
    """The folder of compiled programs, which all processes share."""
    return expanded(os.environ.get("XDG_CACHE_HOME") or "~/.cache", "XDG_CACHE_HOME") / "lrurun" / "xla"


@cache
def packaged(group: Group) -> Path:
    """The folder of the files that come with lrurun: in the checkout, or in the installed wheel."""
    package = Path(__file__).resolve().parent
    checkout = package.parent
    if (checkout / "pyproject.toml").is_file() and (checkout / group).is_dir():
        return checkout / group
    return package / "_data" / group


def names(group: Group) -> dict[str, Path]:
    """Every known name, with its file. A file in the working directory hides a packaged one."""
    files = {path.stem: path for path in sorted(packaged(group).glob("*.toml"))}
    local = Path(group)
    if local.is_dir() and local.resolve() != packaged(group):
        files |= {path.stem: path for path in sorted(local.glob("*.toml"))}
    return files


def hides_packaged(group: Group, path: Path) -> bool:
    """Whether `path` is a local file with the name of a packaged one."""
    original = packaged(group) / path.name
    return path.parent == Path(group) and path.is_file() and original.is_file() and original.resolve() != path.resolve()


def is_path(name: str) -> bool:
    """Whether a ladder or recipe is given by its path, not by its name."""
    return name.endswith(".toml") or os.sep in name


def find(group: Group, name: str) -> Path:
    """The file of a ladder or recipe, given by name or by path."""
    noun = _NAME[group]
    if group == "recipes" and name.endswith((".npy", ".npz")):
        raise UsageError(
            f"{name}: an array, expected a task",
            "make a task of arrays: lrurun data import NAME --inputs X.npy --labels Y.npy",
        )
    if name.endswith(".py"):
        raise UsageError(
            f"{name}: code, expected a {'task' if group == 'recipes' else 'ladder'}",
            "lrurun new program NAME writes the recipe that a program needs; plug-ins are loaded with --load FILE",
        )
    if group == "recipes" and _RUN.fullmatch(name):
        raise UsageError(f"{name}: a run, expected a task", f"lrurun show {name} shows a run")
    if is_path(name):
        path = Path(name)
        if not path.is_file():
            raise UsageError(
                f"{noun}: there is no file {name}", f"give a path to a TOML file, or a name: {', '.join(names(group))}"
            )
        return path
    known = names(group)
    if name not in known:
        if group == "recipes" and name in names("ablations"):
            hint = f"name it with --ladder, beside a task: --ladder {name}; lrurun list tasks shows the tasks"
            raise UsageError(f"{name!r} is a ladder, expected a task", hint)
        if group == "ablations" and name in names("recipes"):
            hint = f"name it in the place of the task; ladders: {', '.join(known)}"
            raise UsageError(f"{name!r} is a task, expected a ladder", hint)
        noun = "ladder" if group == "ablations" else "task"
        file = f"{name}.toml"
        hint = f"did you mean the file {file}?" if Path(file).is_file() else hint_for(name, known, f"{noun}s")
        if noun == "task" and nearest(name, known) is None:
            hint += "; with a task of your own: the path of its recipe, and --load FILE"
        raise UsageError(f"unknown {noun} {name!r}", hint)
    return known[name]


def shown(path: Path) -> str:
    """A path as one would type it: relative to the working directory, or `recipes/X.toml` if it comes with lrurun."""
    full = path.resolve()
    for base in (Path.cwd(), packaged("recipes").parent):
        if full.is_relative_to(base):
            short = full.relative_to(base)
            # not if a local file has the same relative path
            if not short.exists() or short.samefile(full):
                return str(short)
    return str(path)
