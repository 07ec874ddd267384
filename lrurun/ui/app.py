"""The addresses of the browser view. Every page is made from the ledger as it is at that moment."""

from __future__ import annotations

import contextlib
import hashlib
from collections.abc import AsyncIterator, Callable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, get_args
from urllib.parse import urlencode

import anyio
import anyio.to_thread
import msgspec
from starlette.applications import Starlette
from starlette.responses import HTMLResponse, Response, StreamingResponse
from starlette.routing import Mount, Route
from starlette.staticfiles import StaticFiles

from lrurun import console
from lrurun.errors import LedgerError, LrurunError, NotFoundError, UsageError
from lrurun.report.formats import pages
from lrurun.runner import logs
from lrurun.ui import ladder_pages, note_pages, run_pages
from lrurun.ui.curves import Kind
from lrurun.ui.ladder_pages import Failure
from lrurun.ui.source import SECONDS, Source, Stamp

if TYPE_CHECKING:
    from starlette.requests import Request

    from lrurun.ledger.ledger import Ledger

HERE = Path(__file__).parent
_THREADS = 8
"""Requests that are answered at a time: a server beside a training ladder leaves it the cores."""
_KEEP_ALIVE = 15.0
"""Seconds after which a stream without news says that it is there."""
_DRAWING_POLICY = "default-src 'none'; style-src 'unsafe-inline'; img-src data:"
"""The security policy of a figure drawn by matplotlib, which is a document of its own without scripts."""


class Pages:
    """The handlers of the addresses; methods that are not `async` run in threads."""

    def __init__(self, source: Source) -> None:
        self.source = source
        self._drawing = anyio.Lock()
        self._templates = pages.environment(HERE / "templates")

    def _page(
        self,
        request: Request,
        template: str,
        make: Callable[[Ledger, Stamp], dict[str, Any]],
        *,
        section: str = "",
        log: Stamp = (),
    ) -> Response:
        """A page, or the error in its place. Viewers of one address share what is made."""
        try:
            stamp = self.source.stamp()
            ledger = self.source.ledger()
            name = ("page", request.url.path, request.url.query)

            def render() -> str:
                return self._render(template, make(ledger, stamp), section=section, state=_state((*stamp, *log)))

            # What these pages wait for is no change of the ledger.
            waits = template in ("ladders.html", "claims.html")
            text = render() if waits else self.source.cached(name, (*stamp, *log), render)
            return HTMLResponse(text)
        except LrurunError as error:
            return self._failure(error, section)

    def _failure(self, error: LrurunError, section: str = "") -> Response:
        """The page that explains an error."""
        failure = Failure(error.message, error.hint)
        text = self._render("error.html", {"failure": failure}, section=section, state="")
        return HTMLResponse(text, _status(error))

    def _render(self, template: str, context: dict[str, Any], *, section: str, state: str) -> str:
        known: dict[str, Any] = {"missing": False, "note": None, "part": ""}
        with contextlib.suppress(LrurunError):
            ledger = self.source.ledger()
            known |= {"missing": not ledger.exists, "note": ledger.note}
            known["part"] = self.source.part(ledger, self.source.stamp()).text
        place = str(self.source.places.ledger)
        return self._templates.get_template(template).render(
            **known, **context, section=section, state=state, place=console.redact(place)
        )

    # The pages

    def ladders(self, request: Request) -> Response:
        return self._list(request, studies=False)

    def studies(self, request: Request) -> Response:
        return self._list(request, studies=True)

    def _list(self, request: Request, *, studies: bool) -> Response:
        path = "/studies" if studies else "/"
        wanted = ladder_pages.Filter(_parameters(request), path)
        return self._page(
            request,
            "ladders.html",
            lambda ledger, at: ladder_pages.ladders(self.source, ledger, at, wanted, studies=studies),
            section=path,
        )

    def ladder(self, request: Request) -> Response:
        key, items = request.path_params["key"], "items" in request.query_params

        def make(ledger: Ledger, stamp: Stamp) -> dict[str, Any]:
            return ladder_pages.ladder(self.source, _there(ledger), key, stamp, with_items=items)

        return self._page(request, "ladder.html", make)

    def runs(self, request: Request) -> Response:
        query = run_pages.Query(_parameters(request))
        return self._page(
            request, "runs.html", lambda ledger, at: run_pages.runs(self.source, ledger, query, at), section="/runs"
        )

    def run(self, request: Request) -> Response:
        run, number = request.path_params["run"], _whole(request.query_params.get("attempt"))

        def make(ledger: Ledger, stamp: Stamp) -> dict[str, Any]:
            return run_pages.run(self.source, _there(ledger), run, number)

        return self._page(request, "run.html", make, log=(self._log_size(run, number),))

    def compare(self, request: Request) -> Response:
        names = request.query_params.getlist("run")
        drawn = f"/data/runs?{urlencode({'run': names}, doseq=True)}"
        return self._page(
            request, "compare.html", lambda ledger, at: run_pages.compare(_there(ledger), names) | {"source": drawn}
        )

    def claims(self, request: Request) -> Response:
        return self._page(
            request, "claims.html", lambda ledger, at: ladder_pages.claims(self.source, ledger, at), section="/claims"
        )

    def notes(self, request: Request) -> Response:
        return self._page(
            request, "notes.html", lambda ledger, at: note_pages.notes(self.source, ledger, at), section="/notes"
        )

    # What pages ask for

    def download(self, request: Request) -> Response:
        """The report of an instance as a file."""
        key, ending = request.path_params["key"], request.path_params["ending"]
        try:
            stamp = self.source.stamp()
            made = ladder_pages.download(self.source, _there(self.source.ledger()), key, ending, stamp)
        except LrurunError as error:
            return self._failure(error)
        name, media_type, content = made
        headers = {"content-disposition": f'attachment; filename="{name}"'}
        return Response(content, media_type=media_type, headers=headers)

    def ladder_data(self, request: Request) -> Response:
        key, span, seeds = request.path_params["key"], _span(request), "seeds" in request.query_params
        asked = request.query_params.get("kind")
        kind: Kind = next((kind for kind in get_args(Kind) if kind == asked), "curves")
        return self._data(
            request,
            lambda ledger, at: ladder_pages.ladder_curves(self.source, ledger, key, kind, span, at, seeds=seeds),
        )

    def run_data(self, request: Request) -> Response:
        names, span = request.query_params.getlist("run"), _span(request)
        return self._data(request, lambda ledger, at: run_pages.run_curves(ledger, names, span))

    def _data(self, request: Request, make: Callable[[Ledger, Stamp], Any]) -> Response:
        try:
            stamp = self.source.stamp()
            ledger = _there(self.source.ledger())
            name = ("data", request.url.path, request.url.query)
            body = self.source.cached(name, stamp, lambda: msgspec.json.encode(make(ledger, stamp)))
            return Response(body, media_type="application/json")
        except LrurunError as error:
            body = msgspec.json.encode({"panels": [], "caption": f"Not drawn: {console.clean(error.message)}"})
            return Response(body, media_type="application/json")

    def log(self, request: Request) -> Response:
        """The log of an attempt as plain text, from inside the runs folder."""
        try:
            run = _there(self.source.ledger()).run(request.path_params["run"])
            path = logs.path_of(self.source.places, run.id, request.path_params["attempt"])
            if not logs.is_readable(path):
                raise NotFoundError(f"run {run.id} has no log of this attempt in the runs folder that can be read")
        except LrurunError as error:
            return self._failure(error)
        reader = logs.Reader(path)
        lines = iter(lambda: reader.lines(last=True), [])
        return StreamingResponse(("\n".join(block) + "\n" for block in lines), media_type="text/plain")

    async def figure(self, request: Request) -> Response:
        """The figure of an instance that has one of its own, as a study; one is drawn at a time."""
        key = request.path_params["key"]

        def draw() -> bytes:
            ledger, stamp = _there(self.source.ledger()), ladder_pages.results_stamp(self.source.stamp())
            return self.source.cached(("figure", key), stamp, lambda: ladder_pages.drawing(ledger, key))

        try:
            async with self._drawing:
                picture = await anyio.to_thread.run_sync(draw)
        except LrurunError as error:
            return Response(console.clean(error.message), _status(error), media_type="text/plain")
        return Response(picture, media_type="image/svg+xml", headers={"content-security-policy": _DRAWING_POLICY})

    def style(self, request: Request) -> Response:
        """The style of all pages."""
        return Response(pages.style(), media_type="text/css")

    def _log_size(self, run: str, attempt: int | None) -> int | None:
        """The size of the log that the page of a run shows; None where there is none."""
        with contextlib.suppress(LrurunError):
            ledger = self.source.ledger()
            recorded = ledger.run(run)
            number = run_pages.shown_attempt(ledger.attempts(recorded.id), attempt)
            return None if number is None else self.source.log_size(recorded.id, number)
        return None

    async def live(self, request: Request) -> Response:
        """Server-sent events: the state of the ledger, and of the log of a run, whenever it is another one."""
        run, attempt = request.query_params.get("run"), _whole(request.query_params.get("attempt"))

        def state() -> str:
            try:
                log = () if run is None else (self._log_size(run, attempt),)
                return _state((*self.source.stamp(), *log))
            except LrurunError:
                return "unreadable"

        return StreamingResponse(_events(partial(anyio.to_thread.run_sync, state)), media_type="text/event-stream")


async def _events(state: Callable[[], Any]) -> AsyncIterator[str]:
    last, quiet = None, 0.0
    while True:
        now = await state()
        if now != last or quiet >= _KEEP_ALIVE:
            yield f"data: {now}\n\n" if now != last else ": nothing new\n\n"
            last, quiet = now, 0.0
        await anyio.sleep(SECONDS)
        quiet += SECONDS


def make(source: Source) -> Starlette:
    """The application, without its guard."""
    pages = Pages(source)

    @contextlib.asynccontextmanager
    async def lifespan(_: Starlette) -> AsyncIterator[None]:
        anyio.to_thread.current_default_thread_limiter().total_tokens = _THREADS
        yield
        source.drop()

    routes = [
        Route("/", pages.ladders),
        Route("/studies", pages.studies),
        Route("/ladders/{key}", pages.ladder),
        Route("/ladders/{key}/figure.svg", pages.figure),
        Route("/ladders/{key}/report.{ending}", pages.download),
        Route("/runs", pages.runs),
        Route("/runs/{run}", pages.run),
        Route("/runs/{run}/log/{attempt:int}", pages.log),
        Route("/compare", pages.compare),
        Route("/claims", pages.claims),
        Route("/notes", pages.notes),
        Route("/data/ladders/{key}", pages.ladder_data),
        Route("/data/runs", pages.run_data),
        Route("/live", pages.live),
        Route("/static/report.css", pages.style),
        Mount("/static", StaticFiles(directory=HERE / "static")),
    ]
    return Starlette(routes=routes, lifespan=lifespan, exception_handlers={Exception: _bug})


def _bug(request: Request, error: Exception) -> Response:
    import traceback

    console.warn(f"a page could not be made: {type(error).__name__}: {error}")
    console.say("".join(traceback.format_exception(error)), level=1)
    return Response("A bug in lrurun: its terminal says more, with -v.\n", 500, media_type="text/plain")


def _state(stamp: Stamp) -> str:
    return hashlib.blake2s(repr(stamp).encode(), digest_size=8).hexdigest()


def _status(error: LrurunError) -> int:
    statuses: dict[type[LrurunError], int] = {NotFoundError: 404, UsageError: 400, LedgerError: 503}
    return next((status for error_type, status in statuses.items() if isinstance(error, error_type)), 500)


def _there(ledger: Ledger) -> Ledger:
    if not ledger.exists:
        raise NotFoundError("there is no ledger yet", "run: lrurun ladder TASK")
    return ledger


def _parameters(request: Request) -> dict[str, list[str]]:
    return {name: request.query_params.getlist(name) for name in request.query_params}


def _whole(text: str | None) -> int | None:
    return int(text) if text and text.isascii() and text.isdigit() and len(text) < 10 else None


def _span(request: Request) -> tuple[int, int] | None:
    first, last = (_whole(request.query_params.get(name)) for name in ("from", "to"))
    return None if first is None or last is None else (first, last)
