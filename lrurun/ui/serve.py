"""Binds an address, prints the link, and serves until it is stopped."""

from __future__ import annotations

import errno
import ipaddress
import secrets
import socket
from collections.abc import Sequence

import uvicorn

from lrurun import console
from lrurun.errors import LrurunError
from lrurun.paths import Places
from lrurun.ui import app, token_guard
from lrurun.ui.source import Source


def run(places: Places, host: str, port: int, *, instances: Sequence[str] = (), where: str | None = None) -> None:
    """Serves the pages of a ledger, or of a part of it; returns when it is stopped by a signal.

    Raises:
        UsageError: the condition is wrong.
        NotFoundError: there is no such instance.
        LrurunError: the ledger is not one that this version reads, or the address cannot be bound.
    """
    source = Source(places, instances, where)
    try:
        part = source.part(source.ledger(), ())
    finally:
        source.drop()  # it was opened to refuse one that cannot be read, and a part that it does not have
    source = Source(places, [one.key for one in part.instances], where)  # names may change
    bound = bind(host, port)
    at, number = bound.getsockname()[:2]
    local = ipaddress.ip_address(at).is_loopback
    token = secrets.token_urlsafe(32)
    cookie = f"lrurun-{secrets.token_hex(4)}"
    guarded = token_guard.Guard(
        app.make(source), token=token, names=token_guard.names_of(host), cookie=cookie, only_loopback=local
    )
    if not local:
        console.warn(f"bound to {at}: the link and what it shows cross the network unencrypted; an ssh tunnel is safe")
    shown = f"[{host}]" if ":" in host else host
    console.say("lrurun ui: open this link; ^C stops")
    console.write(f"http://{shown}:{number}/?token={token}")
    # Its messages would have addresses with the token.
    settings = uvicorn.Config(
        guarded, log_config=None, log_level="critical", access_log=False, timeout_graceful_shutdown=1, ws="none",
        server_header=False, proxy_headers=False,
    )  # fmt: skip
    uvicorn.Server(settings).run(sockets=[bound])


def bind(host: str, port: int) -> socket.socket:
    """A socket that listens.

    Raises:
        LrurunError: the port is in use or not allowed, or the host has no such address.
    """
    try:
        family = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0][0]
        return socket.create_server((host, port), family=family)
    except socket.gaierror:
        raise LrurunError(f"--host {host}: no such address", "without --host only this machine can connect") from None
    except OSError as error:
        if error.errno == errno.EADDRINUSE:
            raise LrurunError(
                f"port {port} of {host} is in use, maybe by another lrurun ui",
                "choose another one: --port N, or --port 0 for any that is free",
            ) from None
        hint = "ports below 1024 need rights: choose a larger --port" if port < 1024 else "name another --host"
        raise LrurunError(f"{host}:{port} cannot be bound: {error.strerror}", hint) from None
