"""The short names of ladder instances: no two of a ledger have the same, and people may change them."""

from __future__ import annotations

from sqlalchemy import Connection, select, update

from lrurun.config import names
from lrurun.errors import UsageError
from lrurun.ledger.database.schema import events, ladders
from lrurun.ledger.database.sql import ENQUEUE, lock, now
from lrurun.ledger.handle import Handle, retried
from lrurun.ledger.rows import add_event, ladder_instance, unpack
from lrurun.ledger.values import RENAMED, LadderInstance


class Names(Handle):
    """Changes of short names."""

    @retried
    def rename(self, ladder_key: str, name: str) -> LadderInstance:
        """Gives an instance (a key) another short name, and records an event. A name that it has already is kept.

        Raises:
            UsageError: another instance has the name, or it could be the beginning of an id.
        """
        with self._writing() as connection:
            number = self._ladder_number(connection, ladder_key)
            give_name(connection, ladder_key, name, f"rename {name}")
            return ladder_instance(connection.execute(select(ladders).where(ladders.c.id == number)).one())


def give_name(connection: Connection, ladder_key: str, name: str, subject: str) -> None:
    """Gives the instance with this key, if there is one, a name; an event has the one that it had.

    Raises:
        UsageError: another instance has the name, or it could be the beginning of an id; the error begins with
            `subject`.
    """
    lock(connection, ENQUEUE)  # of two commands that choose one name at once, the second is refused
    same_name = select(ladders).where(ladders.c.short_name == name, ladders.c.key != ladder_key)
    if (other := connection.execute(same_name).one_or_none()) is not None:
        raise taken(subject, ladder_instance(other))
    row = connection.execute(select(ladders).where(ladders.c.key == ladder_key)).one_or_none()
    if row is None or row.short_name != name:
        names.check_new(name, subject)
    if row is not None and row.short_name != name:
        connection.execute(update(ladders).where(ladders.c.id == row.id).values(short_name=name))
        text, payload = f"renamed from {row.short_name} to {name}", {"from": row.short_name, "to": name}
        add_event(connection, now(connection), RENAMED, text, payload, ladder=row.id)


def taken(subject: str, other: LadderInstance) -> UsageError:
    """The error of a name that another instance has."""
    return UsageError(
        f"{subject}: is the name of another instance: {other.identity.description}",
        f"choose another name; lrurun report --instance {other.short_name} shows that one",
    )


def present_name(connection: Connection, old: str) -> str | None:
    """The name that the instance has now which had this one last; None if no instance had it."""
    query = (
        select(events.c.payload, ladders.c.short_name)
        .join(ladders, ladders.c.id == events.c.ladder)
        .where(events.c.kind == RENAMED)
        .order_by(events.c.id.desc())
    )
    for payload, name in connection.execute(query):
        if payload is not None and unpack(payload).get("from") == old and name != old:
            return str(name)
    return None
