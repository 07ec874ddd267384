"""The ledger that is shown: opened when it appears, opened again when it is replaced, and asked whether it changed."""

from __future__ import annotations

import os
import sys
import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Hashable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, TypeVar

from msgspec import Struct

from lrurun import paths
from lrurun.errors import LrurunError
from lrurun.ledger import owner
from lrurun.ledger.ledger import Ledger
from lrurun.ledger.part import Part
from lrurun.paths import Places
from lrurun.session import parts

T = TypeVar("T")

SECONDS = 1.0
"""How often the ledger is asked, however many viewers there are."""
_TIMEOUT = 5.0
BYTES = 128 * 1024 * 1024
"""Memory for the results of `Source.cached`: the oldest ones are dropped."""

Stamp = tuple[Any, ...]


class Source:
    """A ledger, or a part of it, and its runs folder. Threads share it; it never writes."""

    def __init__(self, places: Places, instances: Sequence[str] = (), where: str | None = None) -> None:
        """`instances` and `where` select the part that lists show, as --instance and --where do."""
        self.places = places
        self._instances, self._where = instances, where
        self._lock = threading.Lock()
        self._ledger: Ledger | None = None
        self._identity: Stamp | None = None
        self._stamp: tuple[float, Stamp] = (float("-inf"), ())
        self._kept: OrderedDict[Hashable, tuple[Any, Any]] = OrderedDict()
        self._sizes: dict[Hashable, int] = {}
        self._making: dict[Hashable, threading.Lock] = {}

    def ledger(self) -> Ledger:
        """The ledger as it is now, one without rows if there is none. Raises LrurunError where it cannot be read."""
        with self._lock:
            identity = self._file()
            if self._ledger is None or not self._ledger.exists or identity != self._identity:
                if self._ledger is not None:
                    self._ledger.close()
                self._ledger = Ledger.read(self.places.ledger, timeout=_TIMEOUT)
                self._identity = identity
            return self._ledger

    def part(self, ledger: Ledger, stamp: Stamp) -> Part:
        """The part of the ledger that lists show. Raises as `parts.named` does: another ledger may lack an instance."""
        names = [self._where, *self._instances]
        return self.cached(("part", *names), stamp[:-1], lambda: parts.named(ledger, self._instances, self._where))

    def _file(self) -> Stamp | None:
        """A stamp that differs when another file is at the ledger's path. A file that this user cannot write to is
        read as it was when it was opened, so that its time and size count too."""
        path = self.places.ledger
        if isinstance(path, Path):
            with suppress(OSError):
                status = path.stat()
                identity: Stamp = (status.st_dev, status.st_ino)
                if os.access(path, os.W_OK) and os.access(path.parent, os.W_OK):
                    return identity
                return (*identity, status.st_mtime_ns, status.st_size, path.with_name(f"{path.name}-wal").exists())
        return None

    def stamp(self) -> Stamp:
        """A stamp that differs after every change of the ledger; at most `SECONDS` old. Raises as `ledger` does."""
        at, stamp = self._stamp
        if time.monotonic() - at < SECONDS:
            return stamp
        try:
            ledger = self.ledger()
            stamp = (
                (*(self._identity or ()), ledger.has_abandoned(owner.this_process()), *ledger.stamp())
                if ledger.exists
                else ()
            )
        except LrurunError:
            self.drop()
            raise
        self._stamp = (time.monotonic(), stamp)
        return stamp

    def drop(self) -> None:
        """Close the ledger; the next reader opens it again."""
        with self._lock:
            if self._ledger is not None:
                self._ledger.close()
            self._ledger = None

    def known(self, key: Hashable, stamp: Any) -> Any:
        """The value that `cached` has for this key and stamp; None if there is none."""
        entry = self._kept.get(key)
        return entry[1] if entry is not None and entry[0] == stamp else None

    def cached(self, key: Hashable, stamp: Any, make: Callable[[], T]) -> T:
        """The value that `make` returned for this key and stamp. Several threads that want it wait for one that
        makes it."""
        with self._turn(key):
            known = self._kept.get(key)
            if known is not None and known[0] == stamp:
                return known[1]
            made = make()
            self.keep(key, stamp, made)
            return made

    def rested(self, key: Hashable, stamp: Any, make: Callable[[], T], rest: float) -> tuple[T, float]:
        """The value as from `cached`, but made again only after `rest` times as long as it took; also the seconds
        until it may be made again, 0 if it is of this stamp."""
        with self._turn(key):
            now, known = time.monotonic(), self._kept.get(key)
            if known is None or (known[0] != stamp and now >= known[1][1]):
                value, end = make(), time.monotonic()
                known = (stamp, (value, end + rest * (end - now)))
                self.keep(key, *known)
            made, until = known[1]
            return made, 0.0 if known[0] == stamp else max(SECONDS, until - now)

    def _turn(self, key: Hashable) -> threading.Lock:
        with self._lock:
            return self._making.setdefault(key, threading.Lock())

    def keep(self, key: Hashable, stamp: Any, made: Any) -> None:
        """Stores the value that `known` and `cached` return for this key and stamp from now on."""
        size = size_of(made)
        with self._lock:
            self._kept[key] = (stamp, made)
            self._kept.move_to_end(key)
            self._sizes[key] = size
            while len(self._kept) > 1 and sum(self._sizes.values()) > BYTES:
                old, _ = self._kept.popitem(last=False)
                del self._sizes[old]
                self._making.pop(old, None)

    def log_size(self, run: str, attempt: int) -> int | None:
        """The size of a log, None where there is none. Asked often: an object store is not."""
        with suppress(OSError, LrurunError):
            return paths.inside(self.places.runs, run, str(attempt), "log.txt").stat().st_size
        return None


def size_of(value: Any) -> int:
    """About how many bytes a value has in memory, with all that it holds."""
    size, seen, left = 1000, set[int](), [value]  # so that very small ones are bounded, too
    while left:
        item = left.pop()
        if id(item) in seen:
            continue
        seen.add(id(item))
        size += sys.getsizeof(item) + (item.nbytes if isinstance(item, memoryview) else 0)
        if isinstance(item, dict):
            left += [*item, *item.values()]
        elif isinstance(item, list | tuple | set | frozenset):
            if set(map(type, item)) <= {str, int, float}:  # such as the ids of all runs
                size += sum(map(sys.getsizeof, item))
            else:
                left += item
        elif isinstance(item, Struct):
            left += [getattr(item, name) for name in item.__struct_fields__]
    return size
