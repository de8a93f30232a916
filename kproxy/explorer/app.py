"""The API over HTTP (docs/explore.md): Starlette's routes, each to a function of this package.

What asks the model runs in a few threads, at most `MAX_WAITING` requests at a time, each with a time limit; a request
whose client has gone is given up. Every refusal is one JSON error.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import json
import logging
import re
from collections.abc import AsyncIterator, Awaitable, Callable
from importlib import resources
from typing import Any, Final, TypeVar

import anyio
import anyio.to_thread
import msgspec
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response, StreamingResponse
from starlette.routing import Route

from kproxy.errors import KproxyError
from kproxy.explorer.ask import Ask, AskRule, answer
from kproxy.explorer.audits import audit_report
from kproxy.explorer.comparing import Compare, WhatIf, compare_sides, what_if
from kproxy.explorer.edits import Edit, as_manifests
from kproxy.explorer.errors import Refusal, bad_input, not_found
from kproxy.explorer.hop_rules import hop_rules
from kproxy.explorer.lab_actions import Done, Fault, Follow, break_or_heal, counters, follow_connection
from kproxy.explorer.maps import draw_map
from kproxy.explorer.model import Work
from kproxy.explorer.services import ServiceQuery, service_names, service_page
from kproxy.explorer.state import Event, Explorer

log = logging.getLogger(__name__)

MAX_BODY: Final = 4 << 20
BODY_SECONDS: Final = 10.0
THREADS: Final = 4
MAX_WAITING: Final = 24
ASK_SECONDS: Final = 20.0
WORK_SECONDS: Final = 120.0
HEARTBEAT: Final = 15.0
_PATH: Final = re.compile(r" - at `\$?\.?(.*)`$")
_TYPES: Final = {
    ".html": "text/html; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".css": "text/css; charset=utf-8",
    ".svg": "image/svg+xml",
    ".woff2": "font/woff2",
    ".json": "application/json",
    ".txt": "text/plain; charset=utf-8",
}

Body = TypeVar("Body")
Endpoint = Callable[[Request], Awaitable[Response]]


class MapQuery(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    node: str = ""
    edits: tuple[Edit, ...] = ()


class ServiceBody(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    node: str = ""
    family: str | None = None
    edits: tuple[Edit, ...] = ()


class EditsBody(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    edits: tuple[Edit, ...]


class Api:
    """The endpoints."""

    def __init__(self, explorer: Explorer) -> None:
        self.explorer = explorer
        self._limiter: anyio.CapacityLimiter | None = None
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
            Route("/api/lab/follow", self._follow, methods=post),
            Route("/api/events", self._events, methods=get),
        ]
        handlers: Any = {
            Refusal: _refusal,
            KproxyError: _kproxy_error,
            HTTPException: _http_error,
            TimeoutError: _timeout,
            RecursionError: _too_deep,
            Exception: _fault,
        }
        return Starlette(routes=routes, exception_handlers=handlers)

    def close(self) -> None:
        """Ends streams of events; called in the loop."""
        self._closing = True
        for each in self._streams:
            with contextlib.suppress(asyncio.QueueFull):
                each.put_nowait(None)

    # --- the page ---

    async def _page(self, _request: Request) -> Response:
        return await self._file("index.html")

    async def _static(self, request: Request) -> Response:
        return await self._file(request.path_params["name"])

    async def _file(self, name: str) -> Response:
        data = await anyio.to_thread.run_sync(static_file, name)
        kind = _TYPES.get(f".{name.rpartition('.')[2]}", "application/octet-stream")
        return Response(data, media_type=kind)

    # --- what is asked ---

    async def _source(self, request: Request) -> Response:
        _query(request)
        return await self._run(lambda _work: self.explorer.view())

    async def _map(self, request: Request) -> Response:
        node = _query(request, "node").get("node", "")
        model = self.explorer.model
        return await self._run(lambda work: draw_map(model, node, work), WORK_SECONDS)

    async def _edited_map(self, request: Request) -> Response:
        body = await _body(request, MapQuery)
        return await self._run(
            lambda work: draw_map(self.explorer.model_with(body.edits), body.node, work), WORK_SECONDS
        )

    async def _ask(self, request: Request) -> Response:
        body = await _body(request, Ask)
        return await self._run(lambda _work: answer(self.explorer.model_with(body.edits), body))

    async def _rules(self, request: Request) -> Response:
        body = await _body(request, AskRule)
        return await self._run(lambda _work: hop_rules(self.explorer.model_with(body.edits), body))

    async def _services(self, request: Request) -> Response:
        _query(request)
        return await self._run(lambda _work: {"services": service_names(self.explorer.model)})

    async def _service(self, request: Request) -> Response:
        given = _query(request, "node", "family")
        body = ServiceBody(given.get("node", ""), given.get("family"))
        return await self._service_page(request, body)

    async def _edited_service(self, request: Request) -> Response:
        return await self._service_page(request, await _body(request, ServiceBody))

    async def _service_page(self, request: Request, body: ServiceBody) -> Response:
        key = f"{request.path_params['namespace']}/{request.path_params['name']}"
        query = ServiceQuery(body.node, body.family)
        return await self._run(
            lambda work: service_page(self.explorer.model_with(body.edits), key, query, work), WORK_SECONDS
        )

    # --- copies and comparisons ---

    async def _whatif(self, request: Request) -> Response:
        body = await _body(request, WhatIf)
        return await self._run(
            lambda work: what_if(self.explorer.model, self.explorer.copy_with(body.edits), body, work), WORK_SECONDS
        )

    async def _save(self, request: Request) -> Response:
        body = await _body(request, EditsBody)
        explorer = self.explorer

        def text(_work: Work) -> bytes:
            edited = explorer.copy_with(body.edits).edited
            assert edited is not None
            return as_manifests(edited).encode("utf-8", "backslashreplace")

        data = await self._in_thread(text, WORK_SECONDS)
        headers = {"content-disposition": 'attachment; filename="manifests.yaml"'}
        return Response(data, media_type="application/yaml", headers=headers)

    async def _compare(self, request: Request) -> Response:
        body = await _body(request, Compare)
        side = self.explorer.model_with
        return await self._run(
            lambda work: compare_sides(side(body.a.edits), side(body.b.edits), body, work), WORK_SECONDS
        )

    async def _audit(self, request: Request) -> Response:
        _query(request)
        return await self._run(lambda work: audit_report(self.explorer.model, work), WORK_SECONDS)

    # --- labs ---

    async def _fault(self, request: Request, *, heal: bool) -> Response:
        lab = self.explorer.lab()
        body = await _body(request, Fault)

        def change(_work: Work) -> Done:
            done = break_or_heal(lab, body, heal=heal)
            self.explorer.changed([done.done])
            return done

        return await self._run(change, WORK_SECONDS)

    async def _follow(self, request: Request) -> Response:
        lab = self.explorer.lab()
        body = await _body(request, Follow)
        return await self._run(lambda _work: follow_connection(lab, self.explorer.model, body), WORK_SECONDS)

    async def _counters(self, request: Request) -> Response:
        _query(request)
        lab = self.explorer.lab()
        return await self._run(lambda _work: counters(lab))

    # --- events ---

    async def _events(self, request: Request) -> Response:
        _query(request)
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

    async def _in_thread(self, function: Callable[[Work], bytes], seconds: float) -> bytes:
        if self._waiting >= MAX_WAITING:
            raise Refusal(503, "the explorer is busy: ask again")
        if self._limiter is None:
            self._limiter = anyio.CapacityLimiter(THREADS)
        work = Work(seconds)
        self._waiting += 1
        try:
            with anyio.fail_after(seconds + 1):
                return await anyio.to_thread.run_sync(
                    functools.partial(function, work), abandon_on_cancel=True, limiter=self._limiter
                )
        finally:
            work.cancel()
            self._waiting -= 1


def _encoded(function: Callable[[Work], object], work: Work) -> bytes:
    return encode(function(work))


def encode(value: object) -> bytes:
    """JSON. Rules of others may hold bytes that are no UTF-8, kept as lone surrogates: they are escaped."""
    try:
        return msgspec.json.encode(value)
    except UnicodeEncodeError:
        text = json.dumps(msgspec.to_builtins(value), ensure_ascii=False)
        return text.encode(errors="backslashreplace").replace(b"\\udc", b"\\\\udc")


def static_file(name: str) -> bytes:
    """A file of the built page. Raises Refusal: there is none of that name."""
    if re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9._-]{0,100}", name):
        found = resources.files("kproxy.explorer").joinpath("static", name)
        if found.is_file():
            return found.read_bytes()
    raise not_found("there is no such file")


def _event_text(event: Event) -> bytes:
    return f"event: {event.kind}\ndata: {encode(event.data).decode()}\n\n".encode()


def _query(request: Request, *known: str) -> dict[str, str]:
    """The query's parameters. Raises Refusal: one is unknown, or comes twice."""
    found: dict[str, str] = {}
    for name, value in request.query_params.multi_items():
        if name not in known or name in found:
            raise bad_input(f"{name[:80]!r}: known once each: {', '.join(known) or 'nothing'}", name[:80])
        found[name] = value
    return found


async def _body(request: Request, kind: type[Body]) -> Body:
    """The request's body as a struct. Raises Refusal: it is none, or too large."""
    if request.headers.get("content-type", "").partition(";")[0].strip().lower() != "application/json":
        raise Refusal(415, "a body of Content-Type application/json expected")
    parts, size = [], 0
    try:
        async with asyncio.timeout(BODY_SECONDS):
            async for part in request.stream():
                size += len(part)
                if size > MAX_BODY:
                    raise Refusal(413, f"a request has at most {MAX_BODY >> 20} MiB")
                parts.append(part)
    except ClientDisconnect as error:
        raise bad_input("the client has gone") from error
    try:
        return msgspec.json.decode(b"".join(parts), type=kind)
    except msgspec.ValidationError as error:
        text = str(error)
        match = _PATH.search(text)
        field = match[1] if match is not None else ""
        named = re.search(r"field `([^`]{1,80})`", text)
        if named is not None:
            field = f"{field}.{named[1]}" if field else named[1]
        words = _PATH.sub("", text)
        raise bad_input(f"{field}: {words}" if field else words, field) from error
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise bad_input(f"not JSON: {error}") from error


# --- refusals ---


def _error(status: int, message: str, field: str = "", *, away: bool = False) -> Response:
    told: dict[str, object] = {"message": " ".join(message.split()), "field": field}
    if away:
        told["away"] = True
    return Response(encode({"error": told}), status, media_type="application/json")


async def _refusal(_request: Request, error: Refusal) -> Response:
    return _error(error.status, str(error), error.field, away=error.away)


async def _kproxy_error(_request: Request, error: KproxyError) -> Response:
    """What cannot be read of the source."""
    return _error(503, str(error), away=True)


async def _http_error(_request: Request, error: HTTPException) -> Response:
    return _error(error.status_code, error.detail)


async def _timeout(_request: Request, _error_: TimeoutError) -> Response:
    return _error(504, "this takes too long")


async def _too_deep(_request: Request, _error_: RecursionError) -> Response:
    return _error(400, "the request is nested too deeply")


async def _fault(request: Request, error: Exception) -> Response:
    log.error("%s: %s", request.url.path, error, exc_info=error)
    return _error(500, "an error of kproxy itself: please report it")
