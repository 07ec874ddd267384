"""The reader of copies: finds published data in a folder, a tar archive or a folder of TFDS, and reads their files.

Copies may be hostile, and this is where they are held off. Nothing of an archive is unpacked under a name of its own:
names are compared and never used as paths, so that none leads outside. Links, devices and pipes in an archive are
skipped; in a folder, a link is the owner's, and what is no regular file is refused. A task states the most bytes that a
file of its kind can have (`reading`), and every header of an archive has a limit.
"""

from __future__ import annotations

import contextlib
import gzip
import itertools
import posixpath
import re
import shutil
import tarfile
import zlib
from collections.abc import Collection, Generator, Iterator, Sequence
from io import BufferedReader
from pathlib import Path, PurePosixPath
from typing import IO, Any, NamedTuple, cast

from lrurun.data.copies import reading, tfds
from lrurun.data.copies.reading import BLOCK, DAMAGED, first_line, open_regular
from lrurun.data.copies.tfds import Tfds
from lrurun.data.task import Progress
from lrurun.errors import LrurunError

LRA = ("lra_release.gz", "lra_release.tar.gz")
"""Archives of Long Range Arena's release. The published name ends in `.gz`; it is a compressed tar archive."""


class File(NamedTuple):
    """A regular file of a copy. In an archive it must be read before the next one is requested."""

    name: str
    """The part of the path that a pattern describes."""
    folder: PurePosixPath
    """The rest of the path in an archive; "." in a folder."""
    where: str
    """The path of the file, for messages."""
    source: Path | IO[bytes]

    def open(self) -> IO[bytes]:
        """The content, from its beginning. It is read with a function of `reading` that has a limit."""
        return open_regular(self.source) if isinstance(self.source, Path) else self.source

    def read(self, limit: int) -> bytes:
        """The content.

        Raises:
            LrurunError: it cannot be read, or has more than `limit` bytes.
        """
        try:
            with self.open() as file:
                return reading.read(file, limit, self.where)
        except OSError as error:
            raise LrurunError(f"{self.where}: {error.strerror}", DAMAGED) from None


class Copy(NamedTuple):
    """A folder or an archive with files of these names, which are patterns: `*` stands for any part without a slash."""

    path: Path
    patterns: Sequence[str]
    hint: str
    """A hint if files are missing."""
    folders: Sequence[str] = ("",)
    """The ends of the paths of the folder in an archive that has the files, the best one first."""

    @property
    def archive(self) -> Path | None:
        """The archive, if it is one."""
        return None if self.path.is_dir() else self.path

    @property
    def text(self) -> str:
        """One line for messages and manifests."""
        return f"the {'archive' if self.archive else 'folder'} {self.path.absolute()}"

    def rank(self, folder: PurePosixPath) -> int | None:
        """The index of a folder of the archive in `folders`; None if it is none of them."""
        for rank, end in enumerate(self.folders):
            parts = PurePosixPath(end).parts
            if folder.parts[len(folder.parts) - len(parts) :] == parts:
                return rank
        return None

    def files(self, progress: Progress, *patterns: str) -> Iterator[File]:
        """The files, in any order: all of them, or the files of some of the patterns.

        Raises:
            LrurunError: the archive is damaged or truncated, or, at the end, a pattern has no file.
        """
        requested = patterns or self.patterns
        folder, missing = PurePosixPath(), set(requested)
        read = self._in_archive if self.archive else self._in_folder
        for pattern, file in read(requested, progress):
            missing.discard(pattern)
            folder = file.folder
            yield file
        self.check([str(folder / pattern) for pattern in requested if pattern in missing])

    def _in_folder(self, patterns: Sequence[str], progress: Progress) -> Iterator[tuple[str, File]]:
        for pattern in patterns:
            for path in self.path.glob(pattern):
                progress(f"reading {path.parent}", 0, None)
                yield pattern, File(path.relative_to(self.path).as_posix(), PurePosixPath(), str(path), path)

    def _in_archive(self, patterns: Sequence[str], progress: Progress) -> Generator[tuple[str, File], None, None]:
        """The members whose last parts match a pattern."""
        parts = [re.escape(pattern).replace(r"\*", "[^/]*") for pattern in patterns]
        expression = re.compile(f"(?:(.*)/)?(?:{'|'.join(f'({part})' for part in parts)})", re.DOTALL)
        for member, content in members(self.path, progress):
            if match := expression.fullmatch(member):
                assert match.lastindex is not None
                where, folder = f"{self.path}: {member}", PurePosixPath(match[1] or "")
                if self.rank(folder) is not None:
                    yield patterns[match.lastindex - 2], File(match[match.lastindex], folder, where, content)

    def innermost(self, progress: Progress) -> Iterator[File]:
        """The files of an archive that may have two copies of each: the files of the best folder come last.

        Raises:
            LrurunError: as for `files`, of that folder.
        """
        chosen, best, done = PurePosixPath(), len(self.folders), set[str]()
        for file in self.files(progress):
            rank = self.rank(file.folder) or 0
            if done and file.folder != chosen:
                if rank >= best:
                    continue
                done.clear()  # a worse one came first
            chosen, best = file.folder, rank
            yield file
            done.add(file.name)
            if rank == 0 and done == set(self.patterns):
                return  # what follows are gigabytes of other tasks
        self.check([str(chosen / name) for name in self.patterns if "*" not in name and name not in done])

    @contextlib.contextmanager
    def on_disk(self, where: Path, limit: int, progress: Progress) -> Iterator[list[File]]:
        """The files in the order of their names, which can be read in any order and more than once.

        Files of an archive are copied into the folder `where` for that time.

        Raises:
            LrurunError: as for `innermost`, or a file of an archive has more than `limit` bytes.
        """
        if self.archive is None:
            yield sorted(self.files(progress), key=lambda file: file.name)
            return
        folder, numbers, files = where / "unpacked", itertools.count(), dict[str, File]()
        folder.mkdir()
        try:
            for file in self.innermost(progress):
                path = folder / str(next(numbers))
                with path.open("wb") as output:
                    output.writelines(reading.blocks(file.open(), limit, file.where))
                files = {name: earlier for name, earlier in files.items() if earlier.folder == file.folder}
                files[file.name] = file._replace(source=path)
            yield [files[name] for name in sorted(files)]
        finally:
            shutil.rmtree(folder, ignore_errors=True)

    def check(self, missing: Collection[str]) -> None:
        """Refuses a copy without these files.

        Raises:
            LrurunError: if there are any.
        """
        if missing:
            raise LrurunError(f"{self.path}: {' and '.join(missing)} missing", self.hint)


def find(
    path: Path,
    patterns: Sequence[str],
    hint: str,
    *,
    forms: Sequence[Sequence[str]] = (),
    folders: Sequence[str] = ("",),
    archives: Collection[str] = (),
    data_set: str = "",
    config: str | None = None,
    limit: int = tfds.RECORD_LIMIT,
) -> Copy | Tfds | None:
    """The copy at `path`, or None: an archive, a folder with files of all patterns, or one that TFDS has prepared.

    Args:
        hint: what to do if only some of the files are there.
        forms: the patterns of other forms that the files may have.
        folders: where the files may be, in an archive or from `path` on, the best one first.
        archives: names of archives that may lie in the folder `path`.
        data_set: the name of the data in TFDS; `config` is the configuration, and `limit` as in `tfds.find`.

    Raises:
        LrurunError: files of some patterns, but not of others; a TFDS folder that cannot be read.
    """
    if path.is_file():
        return Copy(path, _form(path, (patterns, *forms), folders), hint, folders) if is_archive(path) else None
    incomplete = None
    for form, folder in itertools.product((patterns, *forms), folders):
        copy = Copy(path / folder, form, hint)
        missing = [pattern for pattern in form if next(copy.path.glob(pattern), None) is None]
        if not missing:
            return copy
        if len(missing) < len(form) and incomplete is None:
            incomplete = (copy, missing)
    for name in archives:
        if (path / name).is_file():
            return Copy(path / name, _form(path / name, (patterns, *forms), folders), hint, folders)
    if data_set and (prepared := tfds.find(path, data_set, config=config, limit=limit)):
        return prepared
    if incomplete:
        incomplete[0].check(incomplete[1])
    return None


def _form(archive: Path, forms: Sequence[Sequence[str]], folders: Sequence[str]) -> Sequence[str]:
    """The patterns of the first file of an archive that has any of these forms; the first ones if there is none."""
    if len(forms) > 1:
        patterns = [pattern for form in forms for pattern in form]
        files = Copy(archive, patterns, "", folders)._in_archive(patterns, lambda *_: None)
        with contextlib.closing(files):
            for pattern, _ in files:
                return next(form for form in forms if pattern in form)
    return forms[0]


def release(name: str) -> list[str]:
    """The paths at which the folder `name` of Long Range Arena's release may be, the best one first.

    The archive has `lra_release/<name>` and `lra_release/lra_release/<name>`; published work reads the inner one.
    """
    return [f"lra_release/lra_release/{name}", f"lra_release/{name}", name]


def members(path: Path, progress: Progress | None = None) -> Iterator[tuple[str, IO[bytes]]]:
    """The regular files of an archive in their order: their names, without "./", and files to read.

    Each file must be read before the next one is requested, with a function of `reading` that has a limit. Links,
    devices and pipes are skipped. A name may be any text.

    Raises:
        LrurunError: not an archive, damaged, or truncated; the latter two also when a file is read.
    """
    try:
        size = path.stat().st_size
        with open_regular(path) as file:
            stream = _Forward(path, file)
            for member, content in _entries(path, stream):
                if progress:
                    progress(f"reading {path.name}", file.tell(), size)
                if content:
                    yield posixpath.normpath(member.name).lstrip("/"), content
            stream.skip_rest()
    except OSError as error:
        raise LrurunError(f"{path}: {error.strerror}", "check the path and its permissions") from None


def is_archive(path: Path) -> bool:
    """Whether the file begins like a tar archive, gzipped or not."""
    with open_regular(path) as file:
        try:
            tarfile.TarInfo.frombuf(_Forward(path, file).read(tarfile.BLOCKSIZE), "utf-8", "surrogateescape")
        except (LrurunError, tarfile.HeaderError):
            return False
    return True


def _entries(path: Path, stream: _Forward) -> Iterator[tuple[tarfile.TarInfo, IO[bytes] | None]]:
    """The members, with content where they are regular files."""
    try:
        archive = tarfile.open(fileobj=cast(Any, stream), mode="r:")
        while (member := archive.next()) is not None:
            yield member, archive.extractfile(member) if member.isreg() else None
            cast(Any, archive).members.clear()  # or the headers of two million files fill the memory
    except (LrurunError, OSError):
        raise
    except Exception as error:  # TarError; for invalid headers also ValueError, RecursionError and others
        raise LrurunError(f"{path}: not a tar archive, or a damaged one: {first_line(error)}", DAMAGED) from None


class _Forward:
    """The decompressed bytes of an archive for `tarfile`, which reads headers whole and trusts the sizes they state.

    No read returns fewer bytes than requested, or may request more than a long header can have; positions only grow.
    """

    def __init__(self, path: Path, file: BufferedReader) -> None:
        zipped = file.peek(2)[:2] == b"\x1f\x8b"
        self._path, self._position = path, 0
        self._file: IO[bytes] | gzip.GzipFile = gzip.GzipFile(fileobj=file) if zipped else file

    def tell(self) -> int:
        return self._position

    def seek(self, position: int) -> int:
        if position < self._position:
            raise tarfile.ReadError("it states a negative size")
        while self._position < position:
            self.read(min(position - self._position, BLOCK))
        return position

    def read(self, size: int) -> bytes:
        if size > BLOCK:
            raise tarfile.ReadError(f"a header of {size:,} bytes, where {BLOCK:,} are allowed")
        data = self._take(size)
        if len(data) < size:
            raise LrurunError(f"{self._path}: the archive is truncated, or not a tar archive", DAMAGED)
        return data

    def skip_rest(self) -> None:
        """Reads to the end, where gzip keeps its checksum."""
        while self._take(BLOCK):
            pass

    def _take(self, size: int) -> bytes:
        try:
            data = self._file.read(size)
        except EOFError:
            raise LrurunError(f"{self._path}: the archive is truncated", DAMAGED) from None
        except (zlib.error, gzip.BadGzipFile) as error:
            raise LrurunError(f"{self._path}: the archive is damaged: {first_line(error)}", DAMAGED) from None
        self._position += len(data)
        return data
