"""Backups of ledgers or of parts of them, compressed or not, and how a compressed one is read."""

from __future__ import annotations

import contextlib
import errno
import lzma
import os
import shutil
import tempfile
import zipfile
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from lrurun import console
from lrurun.errors import DamagedError, LedgerError, LrurunError, NotFoundError
from lrurun.files import atomic, is_database
from lrurun.ledger import copying
from lrurun.ledger.copying import Copied
from lrurun.ledger.database import COMPRESSED
from lrurun.ledger.ledger import Ledger
from lrurun.ledger.part import Part
from lrurun.server import Location

if TYPE_CHECKING:
    from lrurun.data.task import Progress


def backup(ledger: Ledger, target: Path, part: Part | None = None) -> Copied | None:
    """Copy a ledger, even while others write to it, to the new file `target`, which appears complete or not at all.

    It is compressed if its name ends in ".xz". With a `part` it has only that, see `copying`; returns what it has then.

    Raises LrurunError if `target` exists or cannot be written, NotFoundError if no run is in the part, DamagedError if
    the ledger is damaged.
    """
    if target.exists():
        raise LrurunError(f"{target} exists, and is not overwritten", "name a new file")
    if not target.parent.is_dir():
        raise LrurunError(f"the folder {target.parent} does not exist", f"create it: mkdir -p {target.parent}")
    if not os.access(target.parent, os.W_OK):
        raise LrurunError(
            f"{target} cannot be written: its folder is read-only for this user",
            "name a file elsewhere with --out FILE",
        )
    try:
        with atomic(target) as partial:
            if target.suffix != COMPRESSED:
                return _copy(ledger, partial, part)
            whole = partial.with_name(f"{partial.name}.db")  # removed with the partial file
            copied = _copy(ledger, whole, part)
            with whole.open("rb") as source, lzma.open(partial, "wb") as packed:
                shutil.copyfileobj(source, packed)
            return copied
    except OSError as error:
        raise LrurunError(f"{target}: {error.strerror}", "choose another file") from None


def _copy(ledger: Ledger, target: Path, part: Part | None) -> Copied | None:
    if part is not None and not part.is_all:
        return copying.copy(ledger, target, part)
    ledger.database.backup(target)
    return None


@contextlib.contextmanager
def of_part(ledger: Ledger, part: Part) -> Iterator[tuple[Ledger, Copied | None]]:
    """A temporary ledger, to be read, that has a part of another one, and what it has; the ledger itself and None if
    the part is all of it. Errors about the copy name the ledger.

    Raises:
        NotFoundError: no run is in the part.
        LrurunError: there is no space for it.
    """
    if part.is_all:
        yield ledger, None
        return
    with tempfile.TemporaryDirectory(prefix="lrurun-") as folder:
        target = Path(folder) / "part.db"
        copied = copying.copy(ledger, target, part)
        with _named(target, ledger.path), Ledger.read(target) as of_part:
            yield of_part, copied


@contextlib.contextmanager
def unpacked(location: Location, progress: Progress = console.no_progress) -> Iterator[Location]:
    """The location of a ledger; of a compressed backup, or of a record in a zip file, a temporary copy to be read.

    Errors about the copy name the backup.

    Raises:
        DamagedError: the compressed file is not whole.
        LedgerError: it has something else in it.
        LrurunError: it cannot be read, or there is no space for it.
    """
    if isinstance(location, Path) and location.suffix.lower() == _ZIP and location.is_file():
        with _from_zip(location, progress) as whole:
            yield whole
        return
    if not isinstance(location, Path) or location.suffix != COMPRESSED or not location.exists():
        yield location
        return
    with tempfile.TemporaryDirectory(prefix="lrurun-") as folder:
        whole = Path(folder) / location.stem
        try:
            size = location.stat().st_size
            with location.open("rb") as source, lzma.open(source) as packed, whole.open("wb") as target:
                while chunk := packed.read(2**20):
                    target.write(chunk)
                    progress(f"unpacking {location.name}", source.tell(), size)
        except (lzma.LZMAError, EOFError):
            raise DamagedError(f"{location}: is not an xz file, or is incomplete", "copy it again") from None
        except OSError as error:
            hint = "free some space" if error.errno == errno.ENOSPC else "check the path and its permissions"
            raise LrurunError(f"{location} cannot be unpacked: {error.strerror}", hint) from None
        if not is_database(whole):
            raise LedgerError(f"{location}: has no ledger in it", "name a file that lrurun ledger backup wrote")
        with _named(whole, location):
            yield whole


@contextlib.contextmanager
def _named(whole: Path, location: Location) -> Iterator[None]:
    """Errors about a temporary copy name the ledger that it is from."""
    try:
        yield
    except LrurunError as error:
        error.message = error.message.replace(str(whole), str(location))
        error.hint = error.hint and error.hint.replace(str(whole), str(location))
        raise


PUBLISHED = "ledger.db"
"""The ledger in a record that `lrurun ledger export --to publication` made."""
_ZIP = ".zip"


def in_record(location: Location) -> Location:
    """The location of a ledger; of the folder of a published record, the ledger in it.

    Raises:
        NotFoundError: the folder has none.
    """
    if not isinstance(location, Path) or not location.is_dir():
        return location
    if not (location / PUBLISHED).is_file():
        hint = "name the file of a ledger, or a folder that lrurun ledger export --to publication made"
        raise NotFoundError(f"{location}: is a folder without {PUBLISHED}", hint)
    return location / PUBLISHED


@contextlib.contextmanager
def _from_zip(location: Path, progress: Progress) -> Iterator[Path]:
    """A temporary copy of the ledger in a zip file."""
    with tempfile.TemporaryDirectory(prefix="lrurun-") as folder:
        whole = Path(folder) / PUBLISHED
        try:
            with zipfile.ZipFile(location) as archive:
                entry = _ledger_in(archive, location)
                with archive.open(entry) as source, whole.open("wb") as target:
                    while chunk := source.read(2**20):
                        target.write(chunk)
                        progress(f"unpacking {location.name}", target.tell(), entry.file_size)
        except (zipfile.BadZipFile, EOFError, zlib.error, lzma.LZMAError, UnicodeDecodeError):
            raise _damaged(location) from None
        except NotImplementedError as error:
            raise LedgerError(f"{location}: cannot be unpacked here: {error}", _UNPACK) from None
        except OSError as error:
            if error.errno in (None, errno.EINVAL):  # of bz2, and of a place that is not in the file
                raise _damaged(location) from None
            hint = "free some space" if error.errno == errno.ENOSPC else "check the path and its permissions"
            raise LrurunError(f"{location} cannot be unpacked: {error.strerror}", hint) from None
        if not is_database(whole):
            raise LedgerError(f"{location}: has no ledger in it", "name a file that lrurun made")
        with _named(whole, location):
            yield whole


_UNPACK = "unpack it with another program, and name the folder with ledger.db"
_ENCRYPTED = 1
"""The bit of an entry's flags which says that it needs a password."""


def _ledger_in(archive: zipfile.ZipFile, location: Path) -> zipfile.ZipInfo:
    """The only entry that is a ledger.

    Raises:
        LedgerError: there is none or more than one, or it needs a password.
    """
    found = [entry for entry in archive.infolist() if entry.filename == PUBLISHED]
    if not found:
        hint = "name a file that lrurun ledger export --to publication made"
        inside = [entry.filename for entry in archive.infolist() if entry.filename.endswith(f"/{PUBLISHED}")]
        if len(inside) == 1:  # a folder was packed by another program
            hint = f"it has {inside[0]}: unpack it, and name the folder {inside[0].removesuffix(f'/{PUBLISHED}')}"
        raise LedgerError(f"{location}: has no {PUBLISHED} in it", hint)
    if found[1:]:
        raise LedgerError(f"{location}: has {len(found)} files {PUBLISHED} in it", "name a file that has one")
    if found[0].flag_bits & _ENCRYPTED:
        raise LedgerError(f"{location}: its {PUBLISHED} is encrypted", _UNPACK)
    return found[0]


def _damaged(location: Path) -> DamagedError:
    return DamagedError(f"{location}: is not a zip file, or is incomplete", "copy it again")
