"""Who may see the pages: the user with the link, from a page of this server, under a name of this server."""

from __future__ import annotations

import hmac
import ipaddress
import re
import socket
from contextlib import suppress
from typing import TYPE_CHECKING
from urllib.parse import parse_qsl, quote, urlencode

from starlette.datastructures import Headers, MutableHeaders
from starlette.requests import cookie_parser
from starlette.responses import PlainTextResponse, RedirectResponse, Response

if TYPE_CHECKING:
    from starlette.types import ASGIApp, Message, Receive, Scope, Send

POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; "
    "form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
)
"""Nothing is loaded from elsewhere, and no script or style is part of a page."""
_HEADERS = {
    "content-security-policy": POLICY,
    "x-content-type-options": "nosniff",
    "x-frame-options": "DENY",
    "referrer-policy": "no-referrer",
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
    "cache-control": "no-store",
}
LOOPBACK = ("127.0.0.1", "localhost", "::1")
_HOST = re.compile(r"(\[[0-9a-fA-F:.]+\]|[\w.-]+)(?::[0-9]+)?", re.ASCII)
_NO_TOKEN = (
    "This page belongs to one user. Open the link that lrurun ui printed: it contains the token. The address of any "
    "other page works in another browser with the same ?token=... at its end.\n"
)


def names_of(host: str) -> frozenset[str]:
    """The names under which a server bound to `host` may be addressed; others may be of a rebound domain."""
    if host in LOOPBACK:
        return frozenset(LOOPBACK)
    return frozenset({*LOOPBACK, host.lower(), socket.gethostname().lower(), socket.getfqdn().lower()})


def _is_foreign(headers: Headers) -> bool:
    """Whether a page of another site, or of another port of this host, asks for more than to go to a page."""
    goes = (headers.get("sec-fetch-mode"), headers.get("sec-fetch-dest")) == ("navigate", "document")
    return headers.get("sec-fetch-site") in ("cross-site", "same-site") and not goes


class Guard:
    """Refuses requests without the token, with a foreign Host or Origin, and all that are not GET or HEAD.

    Pages of other sites, and of other ports of this host, may link to a page, but embed and load nothing. Browsers say
    so in Sec-Fetch-Site, https://www.w3.org/TR/fetch-metadata/, to loopback addresses and under HTTPS.

    Args:
        cookie: the name of the cookie: servers on one machine share their cookies, so that each needs its own.
        only_loopback: whether the server is bound to a loopback address; else any of its IP addresses may be named.
    """

    def __init__(self, app: ASGIApp, *, token: str, names: frozenset[str], cookie: str, only_loopback: bool) -> None:
        self.app, self.token, self.names, self.cookie = app, token, names, cookie
        self.only_loopback = only_loopback

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """An ASGI application."""
        if scope["type"] != "http":
            if scope["type"] == "lifespan":
                await self.app(scope, receive, send)
            return  # no web sockets

        async def guarded(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                for name, value in _HEADERS.items():
                    headers.setdefault(name, value)
            await send(message)

        answer = self._refusal(scope)
        await (answer or self.app)(scope, receive, guarded)

    def _refusal(self, scope: Scope) -> Response | None:
        headers = Headers(scope=scope)
        if scope["method"] not in ("GET", "HEAD"):
            return PlainTextResponse("This server only shows pages.\n", 405, {"allow": "GET, HEAD"})
        hosts = headers.getlist("host")
        if len(hosts) != 1 or not self._is_ours(hosts[0]):
            return PlainTextResponse("This server has another name.\n", 400)
        origin = headers.get("origin")
        if _is_foreign(headers) or (origin is not None and origin != f"{scope['scheme']}://{hosts[0]}"):
            return PlainTextResponse("Requests from other sites are refused.\n", 403)
        query = parse_qsl(scope["query_string"].decode("latin-1"), keep_blank_values=True)
        if tokens := [value for name, value in query if name == "token"]:
            if not self._is_token(tokens[0]):
                return PlainTextResponse(_NO_TOKEN, 403)
            # To the same page of this server, whatever its path begins with.
            rest = urlencode([(name, value) for name, value in query if name != "token"])
            path = f"/{quote(scope['path'].lstrip('/'))}"
            entered = RedirectResponse(f"{path}?{rest}" if rest else path, 303)
            entered.set_cookie(self.cookie, self.token, httponly=True, samesite="strict")
            return entered
        if not self._is_token(self._from_cookie(headers.getlist("cookie"))):
            return PlainTextResponse(_NO_TOKEN, 403)
        return None

    def _is_token(self, token: str) -> bool:
        return hmac.compare_digest(token.encode(), self.token.encode())

    def _from_cookie(self, texts: list[str]) -> str:
        # Other servers of this machine may have set cookies that http.cookies refuses together with this one.
        return next((cookies[self.cookie] for cookies in map(cookie_parser, texts) if self.cookie in cookies), "")

    def _is_ours(self, host: str) -> bool:
        parts = _HOST.fullmatch(host)
        if parts is None:
            return False
        name = parts[1].strip("[]").lower()
        if name in self.names or self.only_loopback:
            return name in self.names
        with suppress(ValueError):
            return bool(ipaddress.ip_address(name))
        return False
