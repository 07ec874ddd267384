"""Instances are hidden from lists, and shown in them again."""

from __future__ import annotations

from collections.abc import Iterable

from sqlalchemy import delete

from lrurun.ledger.database.schema import hidden
from lrurun.ledger.database.sql import among, now, upsert
from lrurun.ledger.handle import Handle, retried
from lrurun.ledger.owner import user
from lrurun.ledger.part import InstanceInPart, Part, instances_in
from lrurun.ledger.rows import add_event


class Hiding(Handle):
    """What lists leave out. No run, no design and no verdict depends on it."""

    @retried
    def missing_rights_to_hide(self) -> list[str]:
        """The rights that this user of a server lacks to hide instances and to show them again."""
        with self._reading() as connection:
            return self.database.missing_rights(connection, [(hidden.name, "INSERT"), (hidden.name, "DELETE")])

    @retried
    def hide(self, ladder_keys: Iterable[str]) -> list[str]:
        """Hides instances (keys), or none of them. Returns the keys of those that were shown before.

        Raises:
            NotFoundError: there is no such instance.
        """
        with self._writing() as connection:
            time, changed = now(connection), []
            for key in dict.fromkeys(ladder_keys):
                row = {"ladder": self._ladder_number(connection, key), "time": time, "user": user()}
                new = upsert(connection, hidden).values(row).on_conflict_do_nothing().returning(hidden.c.ladder)
                if connection.execute(new).first() is not None:
                    changed.append(key)
            for key in changed:  # the last writes of the transaction
                add_event(connection, time, "hidden", _by(), ladder=self._ladder_number(connection, key))
            return changed

    @retried
    def show(self, ladder_keys: Iterable[str]) -> list[str]:
        """Shows hidden instances (keys) again, or none of them. Returns the keys of those that were hidden.

        Raises:
            NotFoundError: there is no such instance.
        """
        with self._writing() as connection:
            time, numbers = now(connection), {self._ladder_number(connection, key): key for key in ladder_keys}
            removed = delete(hidden).where(among(hidden.c.ladder, numbers)).returning(hidden.c.ladder)
            gone = set(connection.execute(removed).scalars())
            for number in numbers:
                if number in gone:
                    add_event(connection, time, "shown", _by(), ladder=number)
            return [key for number, key in numbers.items() if number in gone]

    @retried
    def instances_in(self, part: Part) -> list[InstanceInPart]:
        """The instances that have runs, oldest first, each with how many of them are in a part."""
        with self._reading() as connection:
            return instances_in(connection, part.of_runs())


def _by() -> str:
    return f"by {user() or 'an unknown user'}"
