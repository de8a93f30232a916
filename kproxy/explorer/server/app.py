"""The API over HTTP (docs/explore.md): Starlette's routes, each to a function of this package.

What asks the model runs in a few threads, and what takes long in the explorer's worker, at most `MAX_WAITING` requests
at a time, each with a time limit; a request whose client has gone is given up. Every refusal is one JSON error.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
from collections.abc import AsyncIterator, Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Final

import msgspec
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse
from starlette.routing import Route

from kproxy.cluster.edits import Edit, as_manifests
from kproxy.explorer.answers.ask import Ask, AskRule, answer, hop_rules
from kproxy.explorer.answers.audit import audit_report
from kproxy.explorer.answers.lab_actions import (
    Done,
    Fault,
    Follow,
    all_broken,
    break_or_heal,
    counters,
    follow_connection,
)
from kproxy.explorer.answers.map import map_answer
from kproxy.explorer.answers.service import service_names, service_page
from kproxy.explorer.compare.compare import Compare, WhatIf, compare_sides, what_if
from kproxy.explorer.errors import Refusal, cannot
from kproxy.explorer.model.model import Work
from kproxy.explorer.page import encode, static_file
from kproxy.explorer.server.exchange import HANDLERS, read_body, read_number, read_query
from kproxy.explorer.state import Event, Explorer
from kproxy.explorer.worker import Worker

THREADS: Final = 4
MAX_WAITING: Final = 24
ASK_SECONDS: Final = 20.0
WORK_SECONDS: Final = 120.0
COMPARING: Final = 0.75
"""Of the time that there is, what comparisons take: the answer has to be put together and sent."""
HEARTBEAT: Final = 15.0
_TYPES: Final = {
    ".html": "text/html; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".css": "text/css; charset=utf-8",
    ".svg": "image/svg+xml",
    ".woff2": "font/woff2",
    ".json": "application/json",
    ".txt": "text/plain; charset=utf-8",
}


class MapQuery(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    node: str = ""
    source: str = ""
    edits: tuple[Edit, ...] = ()


class ServiceBody(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    node: str = ""
    family: str | None = None
    source: str = ""
    edits: tuple[Edit, ...] = ()


class EditsBody(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    edits: tuple[Edit, ...]


class Api:
    """The endpoints."""

    def __init__(self, explorer: Explorer) -> None:
        self.explorer = explorer
        self._threads = ThreadPoolExecutor(THREADS, thread_name_prefix="explorer")
        self._waiting = 0
        self._closing = False
        self._streams: set[asyncio.Queue[Event | None]] = set()

    def app(self) -> Starlette:
        get, post = ["GET"], ["POST"]
        routes = [
            Route("/", self._page, methods=get),
            Route("/static/{name}", self._static, methods=get),
            Route("/api/source", self._source, methods=get),
            Route("/api/map", self._map, methods=get),
            Route("/api/map", self._edited_map, methods=post),
            Route("/api/ask", self._ask, methods=post),
            Route("/api/rules", self._rules, methods=post),
            Route("/api/services", self._services, methods=get),
            Route("/api/services/{namespace}/{name}", self._service, methods=get),
            Route("/api/services/{namespace}/{name}", self._edited_service, methods=post),
            Route("/api/whatif", self._whatif, methods=post),
            Route("/api/whatif/save", self._save, methods=post),
            Route("/api/compare", self._compare, methods=post),
            Route("/api/audit", self._audit, methods=get),
            Route("/api/counters", self._counters, methods=get),
            Route("/api/lab/fail", functools.partial(self._fault, heal=False), methods=post),
            Route("/api/lab/heal", functools.partial(self._fault, heal=True), methods=post),
            Route("/api/lab/broken", self._broken),
            Route("/api/lab/follow", self._follow, methods=post),
            Route("/api/events", self._events, methods=get),
        ]
        app = Starlette(routes=routes, exception_handlers=HANDLERS)
        # A redirect would be to an address without the token.
        app.router.redirect_slashes = False
        return app

    def close(self) -> None:
        """Ends streams of events; called in the loop."""
        self._closing = True
        self._threads.shutdown(wait=False, cancel_futures=True)
        for each in self._streams:
            with contextlib.suppress(asyncio.QueueFull):
                each.put_nowait(None)

    # --- the page ---

    async def _page(self, _request: Request) -> Response:
        return await self._file("index.html")

    async def _static(self, request: Request) -> Response:
        return await self._file(request.path_params["name"])

    async def _file(self, name: str) -> Response:
        data = static_file(name)
        kind = _TYPES.get(f".{name.rpartition('.')[2]}", "application/octet-stream")
        return Response(data, media_type=kind)

    # --- what is asked ---

    async def _source(self, request: Request) -> Response:
        read_query(request)
        return await self._run(lambda _work: self.explorer.view())

    async def _map(self, request: Request) -> Response:
        given = read_query(request, "node", "source", "than", "revision")
        revision = read_number(given.get("revision", "0"), "revision")
        return await self._drawn(
            MapQuery(given.get("node", ""), given.get("source", "")), given.get("than", ""), revision
        )

    async def _edited_map(self, request: Request) -> Response:
        return await self._drawn(await read_body(request, MapQuery))

    async def _drawn(self, body: MapQuery, than: str = "", revision: int = 0) -> Response:
        state = self.explorer.state
        data = await self._in_thread(
            lambda work: map_answer(state(body.source, body.edits), body.node, work, than, revision),
            WORK_SECONDS if body.edits else ASK_SECONDS,
        )
        return Response(data, media_type="application/json")

    async def _ask(self, request: Request) -> Response:
        body = await read_body(request, Ask)
        return await self._run(lambda _work: answer(self.explorer.state(body.source, body.edits), body))

    async def _rules(self, request: Request) -> Response:
        body = await read_body(request, AskRule)
        return await self._run(lambda _work: hop_rules(self.explorer.state(body.source, body.edits), body))

    async def _services(self, request: Request) -> Response:
        source = read_query(request, "source").get("source", "")
        return await self._run(lambda _work: {"services": service_names(self.explorer.state(source))})

    async def _service(self, request: Request) -> Response:
        given = read_query(request, "node", "family", "source")
        body = ServiceBody(given.get("node", ""), given.get("family"), given.get("source", ""))
        return await self._service_page(request, body)

    async def _edited_service(self, request: Request) -> Response:
        return await self._service_page(request, await read_body(request, ServiceBody))

    async def _service_page(self, request: Request, body: ServiceBody) -> Response:
        key = f"{request.path_params['namespace']}/{request.path_params['name']}"
        state = self.explorer.state
        return await self._run(
            lambda work: service_page(state(body.source, body.edits), key, work, body.node, body.family), WORK_SECONDS
        )

    # --- copies and comparisons ---

    async def _whatif(self, request: Request) -> Response:
        body = await read_body(request, WhatIf)
        explorer = self.explorer
        return await self._run_long(
            lambda work: what_if(explorer.model, explorer.copy_with(body.edits), body, work.part(COMPARING))
        )

    async def _save(self, request: Request) -> Response:
        body = await read_body(request, EditsBody)
        explorer = self.explorer

        def text(_work: Work) -> bytes:
            edited = explorer.copy_with(body.edits).edited
            assert edited is not None
            return as_manifests(edited).encode("utf-8", "backslashreplace")

        data = await self._in_thread(text, WORK_SECONDS)
        headers = {"content-disposition": 'attachment; filename="manifests.yaml"'}
        return Response(data, media_type="application/yaml", headers=headers)

    async def _compare(self, request: Request) -> Response:
        body = await read_body(request, Compare)

        def found(work: Work) -> object:
            one, other = (self.explorer.state(each.source, each.edits) for each in (body.a, body.b))
            return compare_sides(one, other, body, work.part(COMPARING))

        return await self._run_long(found)

    async def _audit(self, request: Request) -> Response:
        asked = read_query(request, "known", "progress")
        if "progress" in asked:
            return await self._run(lambda _work: self._checked())
        known = asked.get("known")
        if known is not None:  # what somebody asked for before, and null if nobody has
            return Response(encode(self.explorer.model.audited), media_type="application/json")
        return await self._run_long(lambda work: audit_report(self.explorer.model, work))

    def _checked(self) -> object:
        if not self.explorer.view().can.audit:
            raise cannot("there is no audit of this source: it needs a snapshot with rules, or a lab")
        return self.explorer.check()

    # --- labs ---

    async def _fault(self, request: Request, *, heal: bool) -> Response:
        lab = self.explorer.lab()
        body = await read_body(request, Fault)

        def change(_work: Work) -> Done:
            done = break_or_heal(lab, body, heal=heal)
            self.explorer.changed([done.done])
            return done

        return await self._run(change, WORK_SECONDS)

    async def _broken(self, request: Request) -> Response:
        read_query(request)
        lab = self.explorer.lab()
        return await self._run(lambda _work: all_broken(lab))

    async def _follow(self, request: Request) -> Response:
        lab = self.explorer.lab()
        body = await read_body(request, Follow)
        return await self._run(lambda _work: follow_connection(lab, self.explorer.model, body), WORK_SECONDS)

    async def _counters(self, request: Request) -> Response:
        read_query(request)
        lab = self.explorer.lab()
        return await self._run(lambda _work: counters(lab))

    # --- events ---

    async def _events(self, request: Request) -> Response:
        read_query(request)
        loop = asyncio.get_running_loop()
        waiting: asyncio.Queue[Event | None] = asyncio.Queue(100)
        self._streams.add(waiting)

        def put(event: Event) -> None:
            if waiting.full():  # a page that does not read learns the newest
                waiting.get_nowait()
            waiting.put_nowait(event)

        def told(event: Event) -> None:
            loop.call_soon_threadsafe(put, event)

        first = self.explorer.listen(told)

        async def stream() -> AsyncIterator[bytes]:
            try:
                yield _event_text(first)
                if self.explorer.away:
                    yield _event_text(Event("away", {"message": self.explorer.away}))
                while not self._closing:
                    try:
                        async with asyncio.timeout(HEARTBEAT):
                            event = await waiting.get()
                    except TimeoutError:
                        yield b": still here\n\n"
                        continue
                    if event is None:
                        return
                    yield _event_text(event)
            finally:
                self.explorer.forget(told)
                self._streams.discard(waiting)

        return StreamingResponse(stream(), media_type="text/event-stream")

    # --- running ---

    async def _run(self, function: Callable[[Work], object], seconds: float = ASK_SECONDS) -> Response:
        """Calls a function in a thread and answers what it returns as JSON."""
        data = await self._in_thread(functools.partial(_encoded, function), seconds)
        return Response(data, media_type="application/json")

    async def _in_thread(self, function: Callable[[Work], bytes], seconds: float = ASK_SECONDS) -> bytes:
        work = Work(seconds)
        async with asyncio.timeout(seconds + 1):
            return await self._waited(work, self._threads, lambda: function(work))

    async def _run_long(self, function: Callable[[Work], object]) -> Response:
        """The same in the worker; the time counts from when it begins."""
        waited = Work(float("inf"))
        data = await self._waited(
            waited, self.explorer.worker, lambda: _encoded(function, Work(WORK_SECONDS, whole=waited))
        )
        return Response(data, media_type="application/json")

    async def _waited(self, work: Work, where: ThreadPoolExecutor | Worker, function: Callable[[], bytes]) -> bytes:
        if self._waiting >= MAX_WAITING:
            raise Refusal(503, "the explorer is busy: ask again")
        self._waiting += 1
        try:
            return await asyncio.wrap_future(where.submit(function))
        finally:
            work.cancel()
            self._waiting -= 1


def _encoded(function: Callable[[Work], object], work: Work) -> bytes:
    return encode(function(work))


def _event_text(event: Event) -> bytes:
    return f"event: {event.kind}\ndata: {encode(event.data).decode()}\n\n".encode()
