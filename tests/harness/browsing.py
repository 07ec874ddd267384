"""The browser view without a browser: requests to its application, and the addresses on its pages."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from html import unescape
from pathlib import Path
from typing import Any, ClassVar, NamedTuple

import anyio
import pytest

from lrurun.paths import Places
from lrurun.ui import app, token_guard
from lrurun.ui.source import Source

TOKEN = "secret-token-of-this-test"
HOST = "127.0.0.1:8765"


class Answer(NamedTuple):
    """What a browser gets."""

    status: int
    headers: dict[str, str]
    body: bytes

    @property
    def text(self) -> str:
        return self.body.decode()


class View:
    """The application of a ledger, behind its guard."""

    made: ClassVar[list[View]] = []

    def __init__(self, ledger: Any, runs: Path) -> None:
        self.made.append(self)
        self.source = Source(Places(ledger=ledger, runs=runs, data=runs / "none"))
        self.app = token_guard.Guard(
            app.make(self.source),
            token=TOKEN,
            names=token_guard.names_of("127.0.0.1"),
            cookie="mine",
            only_loopback=True,
        )

    def request(self, address: str, headers: Mapping[str, str], method: str = "GET") -> Answer:
        """The answer to a request with exactly these headers."""
        path, _, query = address.partition("?")
        scope = {
            "type": "http", "asgi": {"version": "3.0"}, "http_version": "1.1", "method": method, "scheme": "http",
            "path": path, "raw_path": path.encode(), "query_string": query.encode(), "root_path": "",
            "headers": [(name.lower().encode(), value.encode("latin-1")) for name, value in headers.items()],
            "client": ("127.0.0.1", 50000), "server": ("127.0.0.1", 8765),
        }  # fmt: skip
        sent: list[Any] = []

        async def receive() -> dict[str, Any]:
            await anyio.sleep_forever()
            return {}

        async def send(message: Any) -> None:
            sent.append(message)

        async def call() -> None:
            await self.app(scope, receive, send)

        anyio.run(call)
        found = {name.decode(): value.decode() for name, value in sent[0]["headers"]}
        return Answer(sent[0]["status"], found, b"".join(message.get("body", b"") for message in sent[1:]))

    def get(self, address: str, **headers: str) -> Answer:
        """The answer to a browser that has the token."""
        return self.request(address, {"host": HOST, "cookie": f"mine={TOKEN}", **headers})

    def page(self, address: str, status: int = 200) -> str:
        """A page, checked: nothing runs that is not a file of the server, and nothing comes from elsewhere."""
        self.source._stamp = (float("-inf"), ())  # as if a second had passed
        answer = self.get(address)
        assert answer.status == status, (address, answer.text)
        tags = re.findall(r"<[a-zA-Z][^>]*>", answer.text)
        assert not [tag for tag in tags if re.search(r"\s(on\w+|style)\s*=", tag)]
        assert [tag for tag in tags if tag.startswith("<script")] == [
            f'<script src="/static/{name}.js" defer>' for name in ("uplot/uPlot.iife.min", "charts", "tables", "live")
        ]
        assert "<style" not in answer.text
        assert TOKEN not in answer.text
        places = re.findall(r'(?:href|src|action|data-src|data-live)="([^"]*)"', answer.text)
        assert all(one.startswith(("/", "#", "?", "data:,")) and not one.startswith("//") for one in places), places
        return answer.text


@pytest.fixture(autouse=True)
def closed() -> Iterator[None]:
    """Ledgers are closed after each test; a view that is used again opens its own again."""
    yield
    for view in View.made:
        view.source.drop()


def links(page: str) -> set[str]:
    """The addresses to which a page leads, and those from which it takes data."""
    found = re.findall(r'(?:href|data-src)="(/[^"]*)"', page)
    return {unescape(one).partition("#")[0] for one in found}


def words(page: str) -> str:
    """The text of a page in one line."""
    return " ".join(unescape(re.sub(r"<[^>]+>", " ", page)).split())
