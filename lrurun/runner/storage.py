"""Where checkpoints and logs are kept: in the runs folder itself, or in an object store (--runs-dir s3://BUCKET/PATH).

Attempts write to the runs folder. With an object store it is a local mirror, whose name is the URL: checkpoints are
copied to the store before the ledger calls them committed, logs when their attempt ends; both are copied back where
they are needed and absent. fsspec is imported when the store is used.
"""

from __future__ import annotations

import contextlib
import os
import secrets
import shutil
import stat
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from functools import cache
from pathlib import Path
from typing import Any, ClassVar

from lrurun import files, paths
from lrurun.errors import LrurunError


def storage_for(runs: Path) -> Storage:
    """The storage of a runs folder."""
    return ObjectStore(paths.shown_runs(runs), runs) if paths.is_mirror(runs) else Folder(runs)


class Storage(ABC):
    """The part of the runs folder `runs` that outlives this machine. Everything in it is named by its path in that
    folder."""

    at_once: ClassVar[int] = 1000
    """How many folders are set aside in one transaction, for whose end other commands wait."""

    def __init__(self, runs: Path) -> None:
        self.runs = runs

    @abstractmethod
    def put(self, path: Path) -> None:
        """Stores a file or folder that was written. What is stored under that name is replaced. Raises OSError."""

    @abstractmethod
    def fetch(self, path: Path) -> Path:
        """Makes a file or folder that is stored readable at its path, whole or not at all. Raises OSError."""

    @abstractmethod
    def has(self, path: Path) -> bool:
        """Whether a file or folder is stored. Raises OSError if that cannot be found out."""

    @abstractmethod
    def check(self) -> None:
        """Checks that it can be written and read. Raises LrurunError."""

    def sizes(self, names: Sequence[str]) -> dict[str, int]:
        """Folder or file of the runs folder -> its bytes, of those that there are. Raises OSError."""
        return {name: size for name in names if (size := _size(self.runs / name)) is not None}

    def set_aside(self, names: Sequence[str], aside: Path) -> None:
        """Moves folders and files of the runs folder to another folder in it, where they wait for `remove_aside`; what
        is absent is passed over. Raises OSError."""
        for name in names:
            source = self.runs / name
            if os.path.lexists(source):
                target = aside / name
                target.parent.mkdir(parents=True, exist_ok=True)
                if os.path.lexists(target):  # of the same removal, put back by someone
                    target = target.with_name(f"{target.name}.{secrets.token_hex(8)}")
                source.rename(target)

    def remove_aside(self, aside: Path) -> None:
        """Removes what was moved there. Raises OSError."""
        files.remove_tree(aside)

    def remove(self, path: Path) -> None:
        """Removes a checkpoint, also one that is half written or that does not exist. Raises OSError."""
        for folder in [path, *path.parent.glob(f"{path.name}.orbax-checkpoint-tmp*")]:
            shutil.rmtree(folder, ignore_errors=True)


class Folder(Storage):
    """A runs folder on disk: what is written there is stored."""

    def put(self, path: Path) -> None:
        return

    def fetch(self, path: Path) -> Path:
        return path

    def has(self, path: Path) -> bool:
        return path.exists()

    def check(self) -> None:
        return


class ObjectStore(Storage):
    """An object store, of which the runs folder is the local mirror."""

    at_once = 20  # each folder is a request, or several

    def __init__(self, url: str, runs: Path) -> None:
        super().__init__(runs)
        self.url = url

    def put(self, path: Path) -> None:
        with self._reached() as (fs, at):
            name = f"{at}/{path.relative_to(self.runs)}"
            if path.is_dir() and fs.exists(name):  # a file is replaced at once
                fs.rm(name, recursive=True)
            sources = sorted(path.rglob("*")) if path.is_dir() else [path]
            for source in (source for source in sources if source.is_file()):
                target = f"{at}/{source.relative_to(self.runs)}"
                if self.url.startswith("file:"):  # others have no folders, and would make a bucket
                    fs.makedirs(target.rpartition("/")[0], exist_ok=True)
                fs.put_file(str(source), target)

    def fetch(self, path: Path) -> Path:
        if not path.exists():
            self._get(path)
        return path

    def sizes(self, names: Sequence[str]) -> dict[str, int]:
        """The larger one of what the store has and what is here."""
        here, there = super().sizes(names), dict.fromkeys(names, -1)
        with self._reached() as (fs, at):
            # the store lists a thousand files at once, but one folder at a time
            for folder in [at] if len(names) > _ONE_BY_ONE else [f"{at}/{name}" for name in names]:
                for path, facts in fs.find(folder, detail=True).items():
                    parts = path.removeprefix(at).lstrip("/").split("/")
                    for name in ("/".join(parts[: n + 1]) for n in range(min(len(parts), 2))):
                        if name in there:
                            there[name] = max(there[name], 0) + int(facts.get("size") or 0)
        return {name: size for name in names if (size := max(here.get(name, -1), there[name])) >= 0}

    def set_aside(self, names: Sequence[str], aside: Path) -> None:
        """Removes them from the store, which renames nothing; the local copies are moved."""
        with self._reached() as (fs, at):
            if self.url.startswith("file:"):
                for folder in (f"{at}/{name}" for name in names if fs.exists(f"{at}/{name}")):
                    fs.rm(folder, recursive=True)
            elif stored := [path for name in names for path in fs.find(f"{at}/{name}")]:
                fs.rm(stored)
        super().set_aside(names, aside)

    def _get(self, path: Path) -> None:
        """Copies a file or folder from the store. Nothing happens if the store lacks it."""
        with self._reached() as (fs, at):
            name = f"{at}/{path.relative_to(self.runs)}"
            names = fs.find(name)
            if not names:
                return
            path.parent.mkdir(parents=True, exist_ok=True)
            try:
                with files.atomic(path) as partial:
                    for source in names:
                        rest = source.removeprefix(name).lstrip("/")
                        if ".." in rest.split("/"):
                            raise OSError(f"{self.url}: {source}: leads out of the folder")
                        target = partial / rest if rest else partial
                        target.parent.mkdir(parents=True, exist_ok=True)
                        fs.get_file(source, str(target))
            except OSError:
                if not path.exists():  # otherwise another process was quicker
                    raise

    def remove(self, path: Path) -> None:
        super().remove(path)
        self._remove(path)

    def _remove(self, path: Path) -> None:
        with self._reached() as (fs, at):
            name = f"{at}/{path.relative_to(self.runs)}"
            if fs.exists(name):
                fs.rm(name, recursive=True)

    def has(self, path: Path) -> bool:
        if path.exists():
            return True
        with self._reached() as (fs, at):
            return bool(fs.exists(f"{at}/{path.relative_to(self.runs)}"))

    @contextlib.contextmanager
    def _reached(self) -> Iterator[tuple[Any, str]]:
        """The file system of fsspec and the path in it; what its packages raise becomes an OSError."""
        fs, path = _connected(self.url)
        try:
            fs.invalidate_cache()  # other processes write too
            yield fs, path
        except OSError:
            raise
        except Exception as error:  # each package has its own
            raise OSError(f"{self.url}: {(str(error).splitlines() or [type(error).__name__])[0]}") from error

    def check(self) -> None:
        probe = self.runs / f".room-{secrets.token_hex(8)}"
        try:
            files.write(probe, b"lrurun")
            self.put(probe)
            probe.unlink()
            self._get(probe)
            self._remove(probe)
            is_same = probe.read_bytes() == b"lrurun"
        except OSError as error:
            text = f"{self.url}: the runs folder cannot be written: {error.strerror or error}"
            raise LrurunError(text, "check the bucket, the credentials and the endpoint of its package") from None
        finally:
            probe.unlink(missing_ok=True)
        if not is_same:
            raise LrurunError(f"{self.url}: a file read back differs from what was written", "use another store")


_ONE_BY_ONE = 20
"""Of more folders than this, the sizes are read from a list of the whole store."""


def _size(path: Path) -> int | None:
    """The bytes of a file, or of all files in a folder; None if there is neither. Raises OSError."""
    try:
        found = path.lstat()
    except FileNotFoundError:
        return None
    return _size_of_folder(str(path)) if stat.S_ISDIR(found.st_mode) else found.st_size


def _size_of_folder(folder: str) -> int:
    total = 0
    with contextlib.suppress(FileNotFoundError), os.scandir(folder) as entries:
        for entry in entries:
            if entry.is_dir(follow_symlinks=False):
                total += _size_of_folder(entry.path)
            else:
                with contextlib.suppress(FileNotFoundError):
                    total += entry.stat(follow_symlinks=False).st_size
    return total


@cache
def _connected(url: str) -> tuple[Any, str]:
    package = paths.STORES[url.partition("://")[0]]
    try:
        import fsspec  # type: ignore[import-untyped]

        fs, path = fsspec.core.url_to_fs(url)
    except ImportError:
        text = f"{url}: {package or 'fsspec'} is not installed"
        raise LrurunError(text, f"pip install {package or 'fsspec'}, on every node") from None
    except Exception as error:  # of credentials, for example
        raise LrurunError(f"{url}: {(str(error).splitlines() or [''])[0]}", "see the settings of its package") from None
    return fs, path.rstrip("/")
