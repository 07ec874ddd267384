"""Heartbeats: how often a supervisor writes them, and which runs are taken from a worker whose process has exited."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from time import monotonic
from typing import Any

from sqlalchemy import Connection, Row, and_, or_, select, update
from sqlalchemy.sql.elements import ColumnElement

from lrurun.ledger import owner
from lrurun.ledger.database.schema import attempts, runs
from lrurun.ledger.database.sql import among, now, server_age
from lrurun.ledger.handle import Handle, retried
from lrurun.ledger.rows import add_event, build, load_runs
from lrurun.ledger.values import Owner, Run

HEARTBEAT_SECONDS = 10.0
"""How often a supervisor writes the heartbeat of the attempts of its workers."""

HEARTBEAT_TIMEOUT = 120.0
"""Seconds without a heartbeat after which an owner on another machine counts as exited."""

RETURN_SECONDS = 30.0
"""Seconds that owners on other machines have for a heartbeat after a server was away."""

OWNER_EXITED = "interrupted: owner gone"
"""The reason of an attempt that `reap` ended."""


class Heartbeats(Handle):
    """Signs of life of the workers that hold runs, and the runs whose worker gives none."""

    @retried
    def record_heartbeats(self, pairs: Sequence[tuple[str, int]]) -> list[tuple[str, int]]:
        """Record a heartbeat of attempts (run id, attempt). Returns those that no longer hold their run."""
        lost = []
        with self._writing(durable=False) as connection:
            time = now(connection)
            for run_id, n in pairs:
                number = (
                    select(runs.c.number)
                    .where(runs.c.id == run_id, runs.c.attempt == n, runs.c.state == "running")
                    .scalar_subquery()
                )
                updated = connection.execute(
                    update(attempts).where(attempts.c.run == number, attempts.c.n == n).values(heartbeat_at=time)
                )
                if not updated.rowcount:
                    lost.append((run_id, n))
        return lost

    @retried
    def reap(
        self, this_process: Owner, alive: Callable[[Owner], bool] | None = None, *, timeout: float = HEARTBEAT_TIMEOUT
    ) -> list[Run]:
        """Mark running runs whose owner has exited as interrupted, and return them.

        An owner on this host, boot and pid namespace is looked up by pid and start time, and its heartbeat is ignored.
        In a file, an owner on this host and another boot has exited; on a server it may be on another machine of the
        same name. Any other has exited after `timeout` seconds without a heartbeat; when a server has just come back,
        it first gets the time to write one.
        """
        if not self.has_abandoned(this_process, alive, timeout=timeout):
            return []
        with self._writing() as connection:
            time = now(connection)
            rows = self._abandoned_runs(connection, this_process, alive, timeout, locked=True)
            for row in rows:
                connection.execute(update(runs).where(runs.c.number == row.number).values(state="interrupted"))
                seen = max(row.heartbeat_at, row.seen_at)  # its last sign of life, which may be hours ago
                connection.execute(
                    update(attempts)
                    .where(attempts.c.run == row.number, attempts.c.n == row.n)
                    .values(ended_at=seen, outcome="exited", reason=OWNER_EXITED)
                )
                text = f"owner exited: process {row.pid} on {row.host}"
                add_event(connection, time, "interrupted", text, run=row.number, attempt=row.n)
            return load_runs(connection, among(runs.c.number, [row.number for row in rows]))

    @retried
    def has_abandoned(
        self, this_process: Owner, alive: Callable[[Owner], bool] | None = None, *, timeout: float = HEARTBEAT_TIMEOUT
    ) -> bool:
        """Whether `reap` would find a run. Writes nothing, so that readers may ask too."""
        with self._reading() as connection:
            return bool(self._abandoned_runs(connection, this_process, alive, timeout))

    def _abandoned_runs(
        self,
        connection: Connection,
        this_process: Owner,
        alive: Callable[[Owner], bool] | None,
        timeout: float,
        *,
        locked: bool = False,
    ) -> list[Row[Any]]:
        patience = math.inf if monotonic() - self.database.away_at < RETURN_SECONDS else timeout
        return _abandoned(
            connection, this_process, alive or owner.alive, patience, shared=self.database.is_shared, locked=locked
        )


def _abandoned(
    connection: Connection,
    this_process: Owner,
    alive: Callable[[Owner], bool],
    timeout: float,
    *,
    shared: bool,
    locked: bool = False,
) -> list[Row[Any]]:
    """The running runs whose owner has exited, with their attempts; see `Ledger.reap`.

    On a server, `locked` locks these runs, and leaves out runs that another transaction is changing.
    """
    running = (
        select(runs.c.number, runs.c.id, attempts)
        .join(attempts, and_(attempts.c.run == runs.c.number, attempts.c.n == runs.c.attempt))
        .where(runs.c.state == "running")
    )
    time = now(connection)
    # Attempts that live elsewhere are not read: every node asks twice a second.
    running = running.where(or_(attempts.c.host == this_process.host, attempts.c.heartbeat_at < time - timeout))
    if locked:
        running = running.with_for_update(of=[runs, attempts], key_share=True, skip_locked=True)
    rows = connection.execute(running).all()
    if rows and server_age(connection) < RETURN_SECONDS:
        timeout = math.inf

    def silence(row: Row[Any]) -> float:
        return time - (max(row.heartbeat_at, row.seen_at) if shared else float(row.heartbeat_at))

    return [row for row in rows if _exited(build(Owner, row), silence(row), this_process, alive, timeout, shared)]


def _exited(
    owner: Owner, silent: float, this_process: Owner, alive: Callable[[Owner], bool], timeout: float, shared: bool
) -> bool:
    # Machines that share a server may have the same name.
    if owner.host == this_process.host and owner.boot != this_process.boot and not shared:
        return True
    if (owner.host, owner.boot, owner.namespace) == (this_process.host, this_process.boot, this_process.namespace):
        return not alive(owner)
    return silent > timeout


def same_machine(owner: Owner) -> ColumnElement[bool]:
    """Whether an attempt is on the machine and in the pid namespace of an owner: a name of a host is not enough."""
    columns = attempts.c
    return and_(columns.host == owner.host, columns.boot == owner.boot, columns.namespace == owner.namespace)
