"""A running explorer, asked over HTTP as a page would."""

from __future__ import annotations

import asyncio
import http.client
import json
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from kproxy.explorer.server.listener import ExplorerServer
from kproxy.explorer.state import Explorer


@dataclass(frozen=True)
class Answered:
    """An answer: its status, headers by lower-case name, and body."""

    status: int
    headers: Mapping[str, str]
    body: bytes

    @property
    def json(self) -> Any:
        return json.loads(self.body)

    @property
    def error(self) -> str:
        """`field: message` of a refusal."""
        found = self.json["error"]
        return f"{found['field']}: {found['message']}" if found["field"] else str(found["message"])


@dataclass(frozen=True)
class Page:
    """Asks a server as a page of it would."""

    host: str
    token: str

    def ask(
        self,
        method: str,
        path: str,
        body: object = None,
        headers: Mapping[str, str] | None = None,
        *,
        raw: bytes | None = None,
        token: str | None = None,
    ) -> Answered:
        """One request; `body` is sent as JSON, `raw` as it is."""
        connection = http.client.HTTPConnection(self.host, timeout=60)
        data = raw if raw is not None else None if body is None else json.dumps(body).encode()
        sent = {"Content-Type": "application/json"} if data is not None else {}
        try:
            connection.request(
                method, f"/{self.token if token is None else token}/{path}", data, {**sent, **(headers or {})}
            )
            answer = connection.getresponse()
            found = {name.lower(): value for name, value in answer.getheaders()}
            return Answered(answer.status, found, answer.read())
        finally:
            connection.close()

    def get(self, path: str) -> Any:
        answered = self.ask("GET", path)
        assert answered.status == 200, answered.body
        return answered.json

    def post(self, path: str, body: object) -> Any:
        answered = self.ask("POST", path, body)
        assert answered.status == 200, answered.body
        return answered.json

    @contextmanager
    def events(self) -> Iterator[Iterator[tuple[str, Any]]]:
        """The stream of events: name and data of each."""
        connection = http.client.HTTPConnection(self.host, timeout=60)
        connection.request("GET", f"/{self.token}/api/events")
        answer = connection.getresponse()
        assert answer.status == 200

        def read() -> Iterator[tuple[str, Any]]:
            name = ""
            while line := answer.readline():
                field, _, value = line.decode().rstrip("\n").partition(": ")
                if field == "event":
                    name = value
                elif field == "data":
                    yield name, json.loads(value)

        try:
            yield read()
        finally:
            connection.close()


@contextmanager
def serving(explorer: Explorer) -> Iterator[Page]:
    """The explorer's server in a thread of its own, on any free port."""
    loop = asyncio.new_event_loop()
    server = ExplorerServer(explorer, "127.0.0.1", 0)
    thread = threading.Thread(target=loop.run_forever, daemon=True)
    thread.start()
    try:
        asyncio.run_coroutine_threadsafe(server.start(), loop).result(30)
        explorer.start()
        yield Page(server.url.split("/")[2], server.token)
    finally:
        asyncio.run_coroutine_threadsafe(server.stop(), loop).result(30)
        explorer.stop()
        loop.call_soon_threadsafe(loop.stop)
        thread.join(30)
        loop.close()
