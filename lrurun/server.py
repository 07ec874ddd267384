"""A PostgreSQL server as the location of a ledger: its URL, from which every password is kept apart."""

from __future__ import annotations

import os
import re
from pathlib import Path
from urllib.parse import parse_qsl, quote, unquote, urlencode, urlsplit

from msgspec import Struct

from lrurun.errors import LrurunError, UsageError

VARIABLE = "LRURUN_LEDGER"
"""The environment variable that may contain a password."""
ARGUMENT = "ledger"
"""The argument of functions in Python, in messages."""

_SCHEMES = ("postgresql+psycopg", "postgresql", "postgres")
_SECRETS = frozenset({"password", "sslpassword", "oauth_client_secret", "scram_client_key", "scram_server_key"})
"""Parameters of libpq whose values nobody may see."""
_EXAMPLE = "postgresql+psycopg://USER@HOST/DATABASE"


class Server(Struct, frozen=True):
    """A ledger in a PostgreSQL database. Its text has no password, so that it can be shown and stored."""

    text: str
    """The URL for SQLAlchemy, without passwords."""

    def __str__(self) -> str:
        return self.text

    def absolute(self) -> Server:
        """The same server: its text means the same in every folder. Paths have this method too."""
        return self

    def url(self) -> str:
        """The URL to connect with: with the password of LRURUN_LEDGER, where this names the same database.

        Passwords in PGPASSFILE, PGSERVICE and PGPASSWORD are read by the driver.

        Raises:
            LrurunError: the driver is not installed.
        """
        try:
            import psycopg  # noqa: F401
        except ImportError as error:
            raise LrurunError(
                f"the ledger {self} needs the PostgreSQL driver psycopg, which cannot be imported: "
                f"{str(error).splitlines()[0]}",
                "pip install 'lrurun[postgres]'",
            ) from None
        configured = os.environ.get(VARIABLE, "")
        if is_server(configured):
            public, private = _split(configured, VARIABLE)
            if public == self.text:
                return private
        return self.text


Location = Path | Server
"""Where a ledger is: an SQLite file, or a database of a PostgreSQL server."""


def is_server(text: str) -> bool:
    """Whether the text names a server, though maybe wrongly."""
    return re.match(r"postgres[a-z0-9+.-]*:", text, re.IGNORECASE) is not None or _is_conninfo(text)


def _is_conninfo(text: str) -> bool:
    """Whether a text is a connection string of libpq that is no URL, as in "host=db dbname=lab"."""
    keys = "host|hostaddr|port|dbname|user|password|passfile|service|servicefile|connect_timeout|sslmode"
    return re.match(rf"\s*({keys})\s*=", text) is not None


def parse(text: str, where: str = "--ledger") -> Server:
    """The server of a URL from the command line, from LRURUN_LEDGER or from an argument in Python, which `where` names.

    Raises:
        UsageError: it is no such URL, or has a password that other users of this machine could read.
    """
    public, private = _split(text, where)
    if public != private and where != VARIABLE:
        hint = f"leave it out of the URL, and keep it in a file (PGPASSFILE, PGSERVICE), or give the URL in {VARIABLE}"
        if where == ARGUMENT:
            message = f"{where}: a password in a script or notebook is visible to all who read it"
            raise UsageError(message, f"{hint}, without {ARGUMENT}=")
        raise UsageError(f"{where}: a password on the command line is visible to every user of this machine", hint)
    return Server(public)


def _split(text: str, where: str) -> tuple[str, str]:
    """The URL without and with its passwords. Messages show no part of it: a password may be anywhere."""
    if _is_conninfo(text):
        raise UsageError(
            f"{where}: expected the path of a file or a URL, found a connection string of libpq (KEY=VALUE)",
            f"write it as a URL, as in {_EXAMPLE}; a file of that name is ./NAME",
        )
    scheme, _, rest = text.partition(":")
    if scheme.lower() not in _SCHEMES or not rest.startswith("//"):
        raise UsageError(
            f"{where}: expected the path of a file or a URL that begins with {_SCHEMES[0]}://, found {scheme}:",
            f"as in {_EXAMPLE}",
        )
    try:
        parts = urlsplit(f"{_SCHEMES[0]}:{rest}")
        _ = parts.port
    except ValueError:
        parts = None
    if parts is None or parts.fragment or "@" in parts.path + parts.query or re.search(r"[\s#]", rest):
        raise UsageError(
            f"{where}: the URL of the PostgreSQL server cannot be read",
            f"as in {_EXAMPLE}; in names and passwords write %40 for @, %2F for /, %3A for :, %23 for #, %3F for ?",
        )
    account, at, host = parts.netloc.rpartition("@")
    user, colon, password = account.partition(":")
    settings = parse_qsl(parts.query, keep_blank_values=True)
    shown = [(name, value) for name, value in settings if name.lower() not in _SECRETS]

    def url(account: str, settings: list[tuple[str, str]]) -> str:
        query = f"?{urlencode(settings, safe='/:,', quote_via=quote)}" if settings else ""
        return f"{_SCHEMES[0]}://{account}{at}{host}{parts.path}{query}"

    secret = f"{user}:{quote(unquote(password), safe='')}" if colon else user
    return url(user, shown), url(secret, settings)
