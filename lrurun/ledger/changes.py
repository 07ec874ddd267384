"""What people and commands change about runs that no worker holds: events, marks, removed checkpoints."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from msgspec import Struct
from sqlalchemy import delete, select

from lrurun.ledger import owner
from lrurun.ledger.database.schema import checkpoints, events, exclusions, runs, tags
from lrurun.ledger.database.sql import among, now, upsert
from lrurun.ledger.handle import Handle, retried
from lrurun.ledger.rows import add_event, clean, load_runs
from lrurun.ledger.values import Run


class Changes(Handle):
    """Changes to any run, whoever holds it."""

    @retried
    def event(
        self,
        kind: str,
        text: str,
        payload: Struct | Mapping[str, Any] | None = None,
        *,
        run: str | None = None,
        attempt: int | None = None,
        ladder: str | None = None,
    ) -> int:
        """Record that something happened, to a run (id), an attempt of it, or a ladder (key). Returns its number.

        `text` is for people; what programs need to know is in `payload`.

        The ledger itself writes "running", "done", "diverged", "failed" and "interrupted".
        """
        with self._writing(durable=False) as connection:
            run_number = None if run is None else self._run_number(connection, run)
            ladder_number = None if ladder is None else self._ladder_number(connection, ladder)
            return add_event(
                connection, now(connection), kind, text, payload, run=run_number, attempt=attempt, ladder=ladder_number
            )

    @retried
    def mark(
        self,
        run_ids: Iterable[str],
        *,
        tag: Iterable[str] = (),
        untag: Iterable[str] = (),
        note: str | None = None,
        exclude: str | None = None,
        include: bool = False,
    ) -> list[Run]:
        """Record what people say about runs, for all of them or for none. Returns the runs as they are then.

        Args:
            run_ids: of the runs.
            tag: tags to add; those that a run already has stay. An event has all tags, if they have changed.
            untag: tags to remove; those that a run does not have are ignored.
            note: an event of each run, unless its newest event is the same note.
            exclude: exclude the runs from every report, for this reason; an event, unless it changes nothing.
            include: include them again; an event too.
        """
        with self._writing() as connection:
            time = now(connection)
            numbers = [self._run_number(connection, run_id) for run_id in run_ids]
            new_events: list[tuple[int, str, str]] = []
            for number in numbers:
                [run] = load_runs(connection, runs.c.number == number, brief=True)
                before = run.excluded
                for name in tag:
                    added = {"run": number, "name": name}
                    connection.execute(upsert(connection, tags).values(added).on_conflict_do_nothing())
                connection.execute(delete(tags).where(tags.c.run == number, among(tags.c.name, untag)))
                tag_names = select(tags.c.name).where(tags.c.run == number).order_by(tags.c.name)
                if (changed := connection.execute(tag_names).scalars().all()) != list(run.tags):
                    new_events.append((number, "tags", ", ".join(changed) or "none"))
                if exclude is not None and clean(exclude) != before:
                    row = {"run": number, "why": clean(exclude), "time": time}
                    statement = upsert(connection, exclusions).values(row)
                    connection.execute(statement.on_conflict_do_update(index_elements=["run"], set_=row))
                    new_events.append((number, "excluded", exclude))
                if include and before is not None:
                    connection.execute(delete(exclusions).where(exclusions.c.run == number))
                    new_events.append((number, "included", ""))
                newest = select(events.c.kind, events.c.text).where(events.c.run == number).order_by(events.c.id.desc())
                if note is not None and connection.execute(newest.limit(1)).first() != ("note", clean(note)):
                    new_events.append((number, "note", note))
            user = owner.user()
            who = None if user is None else {"user": user}
            for number, kind, text in new_events:  # the last writes of the transaction
                add_event(connection, time, kind, text, who, run=number)
            return [load_runs(connection, runs.c.number == number)[0] for number in numbers]

    @retried
    def drop_checkpoints(self, ids: Iterable[int]) -> list[int]:
        """Delete rows of checkpoints, except of running runs. Returns the ids of the deleted ones."""
        idle = select(runs.c.number).where(runs.c.state != "running")
        with self._writing() as connection:
            deleted = connection.execute(
                delete(checkpoints)
                .where(among(checkpoints.c.id, ids), checkpoints.c.run.in_(idle))
                .returning(checkpoints.c.id)
            )
            return sorted(deleted.scalars())
