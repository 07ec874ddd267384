"""What the readers of tables have in common, whatever the format of the table."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Collection, Iterator, Sequence
from typing import ClassVar

from lrurun.trackers import Source, TrackedRun, lrurun_exports
from lrurun.trackers.tables import forms
from lrurun.trackers.tables.columns import Table


class TableReader:
    """Reads the runs of one table."""

    name: ClassVar[str]
    title: ClassVar[str]

    def __init__(self, source: Source) -> None:
        self.source = source
        self._notes: list[str] = []

    def version(self) -> str:
        """Empty: the format has no version."""
        return ""

    @abstractmethod
    def table(self) -> Table:
        """Reads the table.

        Raises:
            UsageError: there is none.
            LrurunError: it cannot be read.
        """

    def runs(self, curves: Collection[str] | None = ()) -> Iterator[TrackedRun]:
        """The runs in the order of the table."""
        table = self.table()
        self._notes = table.notes
        found = forms.runs(table, self.source, curves)
        return lrurun_exports.of_table(found, self._notes) if lrurun_exports.is_own_table(table.names) else found

    def notes(self) -> Sequence[str]:
        """Sentences on what the last reading left out or had to interpret."""
        return self._notes
