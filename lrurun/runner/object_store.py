"""A runs folder in an object store: --runs-dir s3://BUCKET/PATH.

Attempts write to a local copy, whose name is the URL. Checkpoints are copied to the store before the ledger calls them
committed, logs when their attempt ends; both are copied back where they are needed and absent. fsspec is imported when
the store is used.
"""

from __future__ import annotations

import contextlib
import secrets
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

from lrurun import files, paths
from lrurun.errors import LrurunError


def of(runs: Path) -> ObjectStore | None:
    """The store of which a runs folder is the local copy; None for a folder that is none."""
    return ObjectStore(paths.shown_runs(runs), runs) if paths.is_copy(runs) else None


def fetch(runs: Path, path: Path) -> Path:
    """Copies a file or folder of the runs folder back from its store, if it is absent here and there is one."""
    store = None if path.exists() else of(runs)
    if store is not None:
        store.get(path)
    return path


class ObjectStore:
    """The store behind the local copy `runs`. Names in it are those of files in the copy."""

    def __init__(self, url: str, runs: Path) -> None:
        self.url, self.runs = url, runs

    def put(self, path: Path) -> None:
        """Copies a file or folder to the store. What it has of that name is replaced.

        Raises:
            OSError: the store does not accept it.
        """
        with self._reached() as (fs, at):
            name = f"{at}/{path.relative_to(self.runs)}"
            if path.is_dir() and fs.exists(name):  # a file is replaced at once
                fs.rm(name, recursive=True)
            sources = sorted(path.rglob("*")) if path.is_dir() else [path]
            for source in (one for one in sources if one.is_file()):
                target = f"{at}/{source.relative_to(self.runs)}"
                if self.url.startswith("file:"):  # others have no folders, and would make a bucket
                    fs.makedirs(target.rpartition("/")[0], exist_ok=True)
                fs.put_file(str(source), target)

    def get(self, path: Path) -> None:
        """Copies a file or folder from the store, whole or not at all. Nothing happens if the store lacks it.

        Raises:
            OSError: it cannot be read or written.
        """
        with self._reached() as (fs, at):
            name = f"{at}/{path.relative_to(self.runs)}"
            found = fs.find(name)
            if not found:
                return
            path.parent.mkdir(parents=True, exist_ok=True)
            try:
                with files.atomic(path) as partial:
                    for one in found:
                        rest = one.removeprefix(name).lstrip("/")
                        if ".." in rest.split("/"):
                            raise OSError(f"{self.url}: {one}: leads out of the folder")
                        target = partial / rest if rest else partial
                        target.parent.mkdir(parents=True, exist_ok=True)
                        fs.get_file(one, str(target))
            except OSError:
                if not path.exists():  # otherwise another process was quicker
                    raise

    def remove(self, path: Path) -> None:
        """Removes a file or folder from the store, if it is there. Raises OSError."""
        with self._reached() as (fs, at):
            name = f"{at}/{path.relative_to(self.runs)}"
            if fs.exists(name):
                fs.rm(name, recursive=True)

    def has(self, path: Path) -> bool:
        """Whether the store has a file or folder. Raises OSError if that cannot be found out."""
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
        """Writes a file, reads it and removes it.

        Raises:
            LrurunError: that is not possible.
        """
        probe = self.runs / f".room-{secrets.token_hex(8)}"
        try:
            files.write(probe, b"lrurun")
            self.put(probe)
            probe.unlink()
            self.get(probe)
            self.remove(probe)
            same = probe.read_bytes() == b"lrurun"
        except OSError as error:
            text = f"{self.url}: the runs folder cannot be written: {error.strerror or error}"
            raise LrurunError(text, "check the bucket, the credentials and the endpoint of its package") from None
        finally:
            probe.unlink(missing_ok=True)
        if not same:
            raise LrurunError(f"{self.url}: what was written there is read otherwise", "use another store")


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
