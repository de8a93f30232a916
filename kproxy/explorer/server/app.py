"""The API over HTTP (docs/explore.md): a table of endpoints, each a function of this package.

What asks the model runs in a few threads, and what takes long in the explorer's worker, at most `MAX_WAITING` requests
at a time, each with a time limit; a request whose client has gone is given up. Every refusal is one JSON error.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from typing import Annotated, Any, Final

import msgspec
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse
from starlette.routing import Route

from kproxy.cluster.edits import Edit, as_manifests
from kproxy.explorer.answers import lab_actions
from kproxy.explorer.answers.ask import Ask, AskRule, answer, hop_rules
from kproxy.explorer.answers.map import map_answer
from kproxy.explorer.answers.service import ServicePage, service_names, service_page
from kproxy.explorer.compare import compare as comparing
from kproxy.explorer.errors import Refusal
from kproxy.explorer.model.model import Model, Work
from kproxy.explorer.page import encode, static_file
from kproxy.explorer.server.exchange import HANDLERS, read_body, read_query
from kproxy.explorer.state import Event, Explorer

THREADS: Final = 4
MAX_WAITING: Final = 24
ASK_SECONDS: Final = 20.0
WORK_SECONDS: Final = 120.0
COMPARING: Final = 0.75
"""Of the time that there is, what comparisons take: the answer has to be put together and sent."""
HEARTBEAT: Final = 15.0
_TYPES: Final = {"html": "text/html", "js": "text/javascript", "css": "text/css"}


class _Nothing(msgspec.Struct, frozen=True):
    """A query without parameters."""


class _Of(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A source as it is, or a copy with edits, as in `Explorer.state`; maybe as a node sees it."""

    node: str = ""
    source: str = ""
    edits: tuple[Edit, ...] = ()


class _Map(_Of, frozen=True, forbid_unknown_fields=True):
    than: str = ""
    revision: Annotated[int, msgspec.Meta(ge=0)] = 0


class _Service(_Of, frozen=True, forbid_unknown_fields=True):
    family: str | None = None


class _Edits(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    edits: tuple[Edit, ...]


@dataclass(frozen=True)
class Endpoint:
    """What is asked at a path, and what answers it.

    Attributes:
        asked: of what the query, or the body, is.
        answer: gets the explorer, what is asked, the time for it and the variable parts of the path; gives what is sent
            as JSON, or a response.
        query: the parameters of a GET; None of a POST.
        seconds: that it may take; None: as much as `WORK_SECONDS`, in the worker.
    """

    path: str
    asked: type[Any]
    answer: Callable[..., object]
    query: tuple[str, ...] | None = None
    seconds: float | None = ASK_SECONDS


def _map(explorer: Explorer, asked: _Map, work: Work) -> Response:
    model = explorer.state(asked.source, asked.edits)
    return _json(map_answer(model, asked.node, work, asked.than, asked.revision))


def _page(explorer: Explorer, asked: _Service, work: Work, namespace: str, name: str) -> ServicePage:
    model = explorer.state(asked.source, asked.edits)
    return service_page(model, f"{namespace}/{name}", work, asked.node, asked.family)


def _whatif(explorer: Explorer, asked: comparing.WhatIf, work: Work) -> comparing.WhatIfAnswer:
    return comparing.what_if(explorer.model, explorer.copy_with(asked.edits), asked, work.part(COMPARING))


def _save(explorer: Explorer, asked: _Edits, _work: Work) -> Response:
    edited = explorer.copy_with(asked.edits).edited
    assert edited is not None
    headers = {"content-disposition": 'attachment; filename="manifests.yaml"'}
    text = as_manifests(edited).encode("utf-8", "backslashreplace")
    return Response(text, media_type="application/yaml", headers=headers)


def _compare(explorer: Explorer, asked: comparing.Compare, work: Work) -> object:
    one, other = (explorer.state(each.source, each.edits) for each in (asked.a, asked.b))
    return comparing.compare_sides(one, other, asked, work.part(COMPARING))


def _fault(explorer: Explorer, asked: lab_actions.Fault, _work: Work, *, heal: bool) -> dict[str, str]:
    done = lab_actions.break_or_heal(explorer.lab(), asked, heal=heal)
    explorer.changed([done])
    return {"done": done}


def _broken(explorer: Explorer, _asked: _Nothing, _work: Work) -> dict[str, tuple[lab_actions.Broken, ...]]:
    return {"broken": tuple(lab_actions.all_broken(explorer.lab()))}


def _follow(explorer: Explorer, asked: lab_actions.Follow, _work: Work) -> lab_actions.FollowAnswer:
    return lab_actions.follow_connection(explorer.lab(), explorer.model, asked)


def _of_state(answered: Callable[..., object]) -> Callable[..., object]:
    """Answers a question of the state that it names."""
    return lambda explorer, asked, _work: answered(explorer.state(asked.source, asked.edits), asked)


def _names(model: Model, _asked: _Of) -> dict[str, tuple[str, ...]]:
    return {"services": service_names(model)}


_SERVICE: Final = "/api/services/{namespace}/{name}"
ENDPOINTS: Final = (
    Endpoint("/api/source", _Nothing, lambda explorer, _asked, _work: explorer.view(), ()),
    Endpoint("/api/map", _Map, _map, ("node", "source", "than", "revision")),
    Endpoint("/api/map", _Map, _map, seconds=WORK_SECONDS),
    Endpoint("/api/ask", Ask, _of_state(answer)),
    Endpoint("/api/rules", AskRule, _of_state(hop_rules)),
    Endpoint("/api/services", _Of, _of_state(_names), ("source",)),
    Endpoint(_SERVICE, _Service, _page, ("node", "family", "source"), WORK_SECONDS),
    Endpoint(_SERVICE, _Service, _page, seconds=WORK_SECONDS),
    Endpoint("/api/whatif", comparing.WhatIf, _whatif, seconds=None),
    Endpoint("/api/whatif/save", _Edits, _save, seconds=WORK_SECONDS),
    Endpoint("/api/compare", comparing.Compare, _compare, seconds=None),
    Endpoint("/api/counters", _Nothing, lambda explorer, _asked, _work: lab_actions.counters(explorer.lab()), ()),
    Endpoint("/api/lab/fail", lab_actions.Fault, partial(_fault, heal=False), seconds=WORK_SECONDS),
    Endpoint("/api/lab/heal", lab_actions.Fault, partial(_fault, heal=True), seconds=WORK_SECONDS),
    Endpoint("/api/lab/broken", _Nothing, _broken, ()),
    Endpoint("/api/lab/follow", lab_actions.Follow, _follow, seconds=WORK_SECONDS),
)


class Api:
    """The endpoints, the page's files and the stream of events."""

    def __init__(self, explorer: Explorer) -> None:
        self.explorer = explorer
        self._threads = ThreadPoolExecutor(THREADS, thread_name_prefix="explorer")
        self._waiting = 0
        self._streams: set[Callable[[Event | None], None]] = set()

    def app(self) -> Starlette:
        routes = [
            Route("/", self._file, methods=["GET"]),
            Route("/static/{name}", self._file, methods=["GET"]),
            Route("/api/audit", self._audit, methods=["GET"]),
            Route("/api/events", self._events, methods=["GET"]),
        ]
        for each in ENDPOINTS:
            method = "POST" if each.query is None else "GET"
            routes.append(Route(each.path, partial(self._answer, each), methods=[method]))
        app = Starlette(routes=routes, exception_handlers=HANDLERS)
        # A redirect would be to an address without the token.
        app.router.redirect_slashes = False
        return app

    def close(self) -> None:
        """Ends streams of events; called in the loop."""
        self._threads.shutdown(wait=False, cancel_futures=True)
        for put in self._streams:
            put(None)

    async def _file(self, request: Request) -> Response:
        name = request.path_params.get("name", "index.html")
        kind = _TYPES.get(name.rpartition(".")[2], "text/plain")
        return Response(static_file(name), media_type=kind)

    async def _answer(self, endpoint: Endpoint, request: Request) -> Response:
        if endpoint.query is None:
            asked = await read_body(request, endpoint.asked)
        else:
            asked = read_query(request, endpoint.asked, endpoint.query)
        answered = partial(endpoint.answer, self.explorer, asked, **request.path_params)
        return await self._run(answered, endpoint.seconds)

    async def _audit(self, request: Request) -> Response:
        """The audit; with `progress` how far it is, which begins it; with `known` what somebody asked for before, and
        null if nobody has."""
        asked = read_query(request, dict[str, str], ("known", "progress"))
        explorer = self.explorer
        if not asked:
            return await self._run(explorer.model.audit, None)
        return await self._run(lambda _work: explorer.check() if "progress" in asked else explorer.model.audited)

    async def _events(self, request: Request) -> Response:
        read_query(request, _Nothing, ())
        loop = asyncio.get_running_loop()
        waiting: asyncio.Queue[Event | None] = asyncio.Queue(100)

        def put(event: Event | None) -> None:
            if waiting.full():  # a page that does not read learns the newest
                waiting.get_nowait()
            waiting.put_nowait(event)

        def told(event: Event) -> None:
            loop.call_soon_threadsafe(put, event)

        put(self.explorer.listen(told))
        self._streams.add(put)
        if self.explorer.away:
            put(Event("away", {"message": self.explorer.away}))

        async def stream() -> AsyncIterator[bytes]:
            try:
                while True:
                    try:
                        event = await asyncio.wait_for(waiting.get(), HEARTBEAT)
                    except TimeoutError:
                        yield b": still here\n\n"
                        continue
                    if event is None:
                        return
                    yield f"event: {event.kind}\ndata: {encode(event.data).decode()}\n\n".encode()
            finally:
                self.explorer.forget(told)
                self._streams.discard(put)

        return StreamingResponse(stream(), media_type="text/event-stream")

    async def _run(self, answered: Callable[[Work], object], seconds: float | None = ASK_SECONDS) -> Response:
        """Calls a function in a thread; None: in the worker, where the time counts from when it begins."""
        if self._waiting >= MAX_WAITING:
            raise Refusal(503, "the explorer is busy: ask again")
        whole = Work(float("inf") if seconds is None else seconds)

        def work() -> Response:
            found = answered(whole if seconds is not None else Work(WORK_SECONDS, whole=whole))
            return found if isinstance(found, Response) else _json(encode(found))

        self._waiting += 1
        try:
            async with asyncio.timeout(None if seconds is None else seconds + 1):
                where = self.explorer.worker if seconds is None else self._threads
                return await asyncio.wrap_future(where.submit(work))
        finally:
            whole.cancel()
            self._waiting -= 1


def _json(data: bytes) -> Response:
    return Response(data, media_type="application/json")
