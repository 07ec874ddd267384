"""The files of a copy, which lie in a folder or in an archive: tasks read both by the same lines."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Sequence
from pathlib import Path, PurePath, PurePosixPath
from typing import IO, NamedTuple

from lrurun.data.copies import archives, reading
from lrurun.data.task import Progress
from lrurun.errors import LrurunError

LRA = ("lra_release.gz", "lra_release.tar.gz")
"""Archives of Long Range Arena's release. The published name ends in `.gz`; it is a compressed tar archive."""


class File(NamedTuple):
    """A regular file of a copy. In an archive it must be read before the next one is requested."""

    name: str
    """The part of its path that a pattern describes."""
    folder: PurePosixPath
    """The rest of its path in an archive; "." in a folder."""
    where: str
    """Its place, for messages."""
    source: Path | IO[bytes]

    def open(self) -> IO[bytes]:
        """The content, from its beginning. It is read with a function of `reading` that has a limit."""
        return reading.open_regular(self.source) if isinstance(self.source, Path) else self.source

    def read(self, limit: int) -> bytes:
        """The content.

        Raises:
            LrurunError: it cannot be read, or has more than `limit` bytes.
        """
        try:
            with self.open() as file:
                return reading.read(file, limit, self.where)
        except OSError as error:
            raise LrurunError(f"{self.where}: {error.strerror}", reading.DAMAGED) from None


class Copy(NamedTuple):
    """A folder or an archive with files of these names, which are patterns: `*` stands for any part without a slash."""

    place: Path
    patterns: Sequence[str]
    hint: str
    """What to do if files are missing."""

    @property
    def archive(self) -> Path | None:
        """The archive, if it is one."""
        return None if self.place.is_dir() else self.place

    def files(self, progress: Progress) -> Iterator[File]:
        """The files, in any order.

        Raises:
            LrurunError: the archive is damaged or truncated, or, at the end, a pattern has no file.
        """
        folder, missing = PurePosixPath(), set(self.patterns)
        for pattern, file in self._in_folder(progress) if self.place.is_dir() else self._in_archive(progress):
            missing.discard(pattern)
            folder = file.folder
            yield file
        self._check([str(folder / pattern) for pattern in self.patterns if pattern in missing])

    def _in_folder(self, progress: Progress) -> Iterator[tuple[str, File]]:
        for pattern in self.patterns:
            for path in self.place.glob(pattern):
                progress(f"reading {path.parent}", 0, None)
                yield pattern, File(path.relative_to(self.place).as_posix(), PurePosixPath(), str(path), path)

    def _in_archive(self, progress: Progress) -> Iterator[tuple[str, File]]:
        """The members whose last parts are those of a pattern: their names are compared and never used as paths."""
        parts = [re.escape(pattern).replace(r"\*", "[^/]*") for pattern in self.patterns]
        expression = re.compile(f"(?:(.*)/)?(?:{'|'.join(f'({part})' for part in parts)})", re.DOTALL)
        for member, content in archives.members(self.place, progress):
            if found := expression.fullmatch(member):
                assert found.lastindex is not None
                where, folder = f"{self.place}: {member}", PurePosixPath(found[1] or "")
                yield self.patterns[found.lastindex - 2], File(found[found.lastindex], folder, where, content)

    def innermost(self, progress: Progress) -> Iterator[File]:
        """The same where an archive may have two copies of each file: those of the innermost one come last.

        Raises:
            LrurunError: as for `files`, of the innermost copy.
        """
        chosen, done = PurePosixPath(), set[str]()
        for file in self.files(progress):
            if done and file.folder != chosen:
                if depth(file.folder) <= depth(chosen):
                    continue
                done.clear()  # an outer copy came first
            chosen = file.folder
            yield file
            done.add(file.name)
            if len(done) == len(self.patterns) and depth(chosen) == 2:
                return  # what follows are gigabytes of other tasks
        self._check([str(chosen / name) for name in self.patterns if name not in done])

    def _check(self, missing: Collection[str]) -> None:
        if missing:
            raise LrurunError(f"{self.place}: {' and '.join(missing)} missing", self.hint)


def find(
    path: Path, folders: Sequence[str], patterns: Sequence[str], archive_names: Collection[str], hint: str
) -> Copy | None:
    """The first of `folders` at `path` that has files of all patterns, or the archive at `path` or in it, or None.

    Raises:
        LrurunError: only files of some patterns were found, and no archive.
    """
    if path.is_file():
        return Copy(path, patterns, hint) if archives.is_archive(path) else None
    partial_copy = None
    for folder in folders:
        copy = Copy(path / folder, patterns, hint)
        missing = [pattern for pattern in patterns if next(copy.place.glob(pattern), None) is None]
        if not missing:
            return copy
        if len(missing) < len(patterns) and partial_copy is None:
            partial_copy = (copy, missing)
    for name in archive_names:
        if (path / name).is_file():
            return Copy(path / name, patterns, hint)
    if partial_copy:
        copy, missing = partial_copy
        copy._check(missing)
    return None


def release(name: str) -> list[str]:
    """Where the folder `name` of Long Range Arena's release may be, the best place first.

    The archive has `lra_release/<name>` and `lra_release/lra_release/<name>`; published work reads the inner one.
    """
    return [f"lra_release/lra_release/{name}", f"lra_release/{name}", name, ""]


def depth(folder: PurePath) -> int:
    """The depth of a folder inside the release, 2 at most; the innermost copy is the best."""
    return folder.parts.count("lra_release")
