"""Files and folders: which one is at a path, and those that appear only when they are complete."""

from __future__ import annotations

import contextlib
import fcntl
import glob
import os
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

MANY = 100
"""Of more entries than this in a folder that is removed, several are removed at once."""
_THREADS = 8
"""How many: a disk with a journal, or a file server, lets each removal wait, and they wait together."""


def identity(path: Path) -> tuple[int, int] | None:
    """The numbers of the device and of the file at a path, which another file or folder there does not have.

    None if there is none, or if it cannot be read.
    """
    try:
        status = path.stat()
    except OSError:
        return None
    return status.st_dev, status.st_ino


def is_database(path: Path) -> bool:
    """Whether a file is a database of SQLite. Raises OSError if it cannot be read."""
    with path.open("rb") as file:
        return file.read(15) == b"SQLite format 3"


@contextlib.contextmanager
def atomic(target: Path, temporary: Path | None = None) -> Iterator[Path]:
    """A path beside `target` at which to make a file or folder; it is renamed to `target` at the end of the block.

    If the block raises, what was made is removed, with the files that SQLite keeps beside a database, and `target`
    stays as it was. A file replaces an existing file; nothing replaces a folder that is not empty.

    Args:
        temporary: the path, in the folder of `target`; by default a name that nobody else has.

    Raises:
        OSError: it cannot be made or renamed.
    """
    partial = temporary or target.with_name(f".{target.name}.{os.urandom(8).hex()}.tmp")
    try:
        yield partial
        partial.replace(target)
    finally:
        with contextlib.suppress(OSError):  # a folder that cannot be read holds nothing of ours
            for path in map(Path, glob.glob(f"{glob.escape(str(partial))}*")):
                if path.is_dir() and not path.is_symlink():
                    shutil.rmtree(path, ignore_errors=True)
                else:
                    path.unlink(missing_ok=True)


def remove_tree(folder: Path) -> None:
    """Removes a folder with all that is in it, or a file; another process may remove the same at once.

    Links are removed, not followed.

    Raises:
        OSError: something cannot be removed; all else is.
    """
    if folder.is_dir() and not folder.is_symlink():
        if faults := _empty(str(folder)):
            raise faults[0]
    elif os.path.lexists(folder):
        folder.unlink(missing_ok=True)


def _empty(folder: str) -> list[OSError]:
    """Removes a folder with all that is in it. Returns what could not be done."""
    entries: list[os.DirEntry[str]] = []
    with contextlib.suppress(FileNotFoundError), os.scandir(folder) as found:
        entries = list(found)
    if len(entries) > MANY:
        from concurrent.futures import ThreadPoolExecutor

        with ThreadPoolExecutor(_THREADS) as pool:  # an exception here cancels what has not begun
            removed = list(pool.map(_remove_entry, entries))
    else:
        removed = [_remove_entry(entry) for entry in entries]
    faults = [fault for of_entry in removed for fault in of_entry]
    if not faults:
        try:
            os.rmdir(folder)
        except FileNotFoundError:
            pass
        except OSError as error:
            faults.append(error)
    return faults


def _remove_entry(entry: os.DirEntry[str]) -> list[OSError]:
    try:
        if entry.is_dir(follow_symlinks=False):
            return _empty(entry.path)
        os.unlink(entry.path)
    except FileNotFoundError:
        pass
    except OSError as error:
        return [error]
    return []


@contextlib.contextmanager
def locked(path: Path, waiting: Callable[[], None]) -> Iterator[None]:
    """Holds the lock file `path`, and removes it at the end. A lock is released when its process is killed.

    `waiting` is called once if another process holds it.
    """
    while True:
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT, 0o644)
        try:
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                waiting()
                fcntl.flock(descriptor, fcntl.LOCK_EX)
            try:
                is_same = os.path.samestat(os.fstat(descriptor), os.stat(path))
            except FileNotFoundError:
                is_same = False  # the previous holder has removed the file, so this lock protects nothing
            if is_same:
                try:
                    yield
                finally:
                    with contextlib.suppress(OSError):
                        path.unlink()
                return
        finally:
            os.close(descriptor)


def write(target: Path, content: bytes) -> None:
    """Writes a file atomically; what is neither a file nor missing (a pipe, a device) is written to directly.

    A link is followed: the file that it leads to is replaced.

    Raises:
        OSError: it cannot be written.
    """
    if target.exists() and not target.is_file():
        target.write_bytes(content)
        return
    with atomic(target.resolve()) as partial:
        partial.write_bytes(content)
