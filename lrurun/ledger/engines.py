"""Closing the connections of SQLAlchemy's engines."""

from __future__ import annotations

from sqlalchemy import Engine, event


def close(engine: Engine) -> None:
    """Close the connections of an engine: idle ones now, those in use by other threads when they are returned, which
    SQLAlchemy would keep in a pool that nobody closes. Closing twice is allowed; a connection that is opened later is
    closed after its transaction."""
    event.listen(engine, "checkin", lambda _connection, entry: entry.close())
    engine.dispose()
