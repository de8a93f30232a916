"""The small API server of these tests over HTTP: what clients and informers need, on a loopback port.

List with pages, watch with bookmarks and streaming lists, 410 both ways, create, update, merge patch, delete, bearer
tokens, TLS with client certificates. `intercept` takes a request over before it is answered, to hang, to drop the
connection or to answer nonsense.
"""

from __future__ import annotations

import contextlib
import json
import socket
import ssl
import threading
import time
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qsl, unquote, urlsplit

from tests.support.fakeapi.storage import KINDS, Json, Kind, Selectors, StatusError, Storage, bookmark, expired

Intercept = Callable[["Handler"], bool]
"""Sees each request first; True: it is dealt with."""


class FakeApiServer:
    """The server, from its start to `stop`. `storage` may be written with `put` and `delete` of this class only."""

    def __init__(
        self,
        *,
        tokens: dict[str, str] | None = None,
        tls: ssl.SSLContext | None = None,
        watch_list: bool = True,
        gone_as_status: bool = False,
    ) -> None:
        self.storage = Storage()
        self.changed = threading.Condition()
        self.tokens = tokens
        self.watch_list = watch_list
        self.gone_as_status = gone_as_status
        self.intercept: Intercept | None = None
        self.requests: list[str] = []
        self.stopping = False
        self.watchers = 0
        self._sockets: set[socket.socket] = set()
        owner = self

        class Bound(Handler):
            api = owner

        class Server(ThreadingHTTPServer):
            daemon_threads = True
            request_queue_size = 128

            def handle_error(self, request: Any, client_address: Any) -> None:
                """Connections that break are what is being tested."""

            def process_request(self, request: Any, client_address: Any) -> None:
                owner._sockets.add(request)
                super().process_request(request, client_address)

            def shutdown_request(self, request: Any) -> None:
                owner._sockets.discard(request)
                super().shutdown_request(request)

        self._server = Server(("127.0.0.1", 0), Bound)
        self._scheme = "http"
        if tls is not None:
            self._server.socket = tls.wrap_socket(self._server.socket, server_side=True)
            self._scheme = "https"
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.05,), daemon=True)
        self._thread.start()

    @property
    def url(self) -> str:
        return f"{self._scheme}://127.0.0.1:{self._server.server_address[1]}"

    def put(self, plural: str, body: Json) -> Json:
        with self.changed:
            stored = self.storage.put(kind_of(plural), body)
            self.changed.notify_all()
            return stored

    def delete(self, plural: str, key: str) -> None:
        with self.changed:
            self.storage.delete(kind_of(plural), key)
            self.changed.notify_all()

    def drop_connections(self) -> None:
        """Cuts every connection, as a server that is killed does."""
        for connection in list(self._sockets):
            with contextlib.suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)

    def stop(self) -> None:
        with self.changed:
            self.stopping = True
            self.changed.notify_all()
        self.drop_connections()
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()

    def __enter__(self) -> FakeApiServer:
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()


def kind_of(plural: str) -> Kind:
    return next(kind for kind in KINDS if kind.plural == plural)


class Handler(BaseHTTPRequestHandler):
    """One connection."""

    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    api: FakeApiServer

    def log_message(self, format: str, *args: Any) -> None:
        """Silence."""

    def answer(self) -> None:
        self.api.requests.append(f"{self.command} {self.path}")
        length = int(self.headers.get("Content-Length") or 0)
        self.body = self.rfile.read(length)
        if self.api.intercept is not None and self.api.intercept(self):
            return
        try:
            self._authenticate()
            self._route()
        except StatusError as error:
            self.send_json(error.body, error.code)

    do_GET = do_POST = do_PUT = do_PATCH = do_DELETE = answer  # noqa: N815 - BaseHTTPRequestHandler's names

    def send_json(self, body: Json, code: int = 200, headers: dict[str, str] | None = None) -> None:
        data = json.dumps(body, separators=(",", ":")).encode() + b"\n"
        self.send_response(code)
        sent = {"Content-Type": "application/json", "Content-Length": str(len(data))} | (headers or {})
        for name, value in sent.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(data)

    def begin_stream(self) -> None:
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()

    def send_piece(self, data: bytes) -> None:
        self.wfile.write(f"{len(data):x}\r\n".encode() + data + b"\r\n")

    def end_stream(self) -> None:
        self.wfile.write(b"0\r\n\r\n")

    def hang_up(self) -> None:
        """Cuts the connection without a word."""
        self.close_connection = True
        with contextlib.suppress(OSError):
            self.connection.shutdown(socket.SHUT_RDWR)

    def _authenticate(self) -> None:
        if self.api.tokens is None:
            return
        header = self.headers.get("Authorization", "")
        if not header:
            raise StatusError(403, "Forbidden", 'forbidden: User "system:anonymous" cannot get path "/"')
        if header.removeprefix("Bearer ") not in self.api.tokens:
            raise StatusError(401, "Unauthorized", "Unauthorized")

    def _route(self) -> None:
        parts = urlsplit(self.path)
        self.query = dict(parse_qsl(parts.query))
        words = [unquote(word) for word in parts.path.strip("/").split("/")]
        group, version, rest = ("", words[1], words[2:]) if words[0] == "api" else ("", "", [])
        if words[0] == "apis" and len(words) > 2:
            group, version, rest = words[1], words[2], words[3:]
        namespace = ""
        if len(rest) > 2 and rest[0] == "namespaces":
            namespace, rest = rest[1], rest[2:]
        asked = (group, version, rest[0] if rest else "")
        kind = next((kind for kind in KINDS if (kind.group, kind.version, kind.plural) == asked), None)
        if kind is None:
            raise StatusError(404, "NotFound", "the server could not find the requested resource", {})
        if len(rest) > 1:
            self._one(kind, f"{namespace}/{rest[1]}" if namespace else rest[1])
        else:
            self._collection(kind, namespace)

    def _one(self, kind: Kind, key: str) -> None:
        storage = self.api.storage
        with self.api.changed:
            old = storage.get(kind, key)
            if self.command == "GET":
                answer = old
            elif self.command == "DELETE":
                storage.delete(kind, key)
                answer = {"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success"}
            else:
                body = json.loads(self.body)
                merged = _merge(old, body) if self.command == "PATCH" else body
                stated = body.get("metadata", {}).get("resourceVersion")
                if stated and stated != old["metadata"]["resourceVersion"]:
                    name = key.rpartition("/")[2]
                    what = f'{kind.qualified} "{name}": the object has been modified'
                    raise StatusError(409, "Conflict", f"Operation cannot be fulfilled on {what}")
                answer = storage.put(kind, merged)
            self.api.changed.notify_all()
        self.send_json(answer)

    def _collection(self, kind: Kind, namespace: str) -> None:
        if self.command == "POST":
            body = json.loads(self.body)
            if namespace:
                body.setdefault("metadata", {}).setdefault("namespace", namespace)
            with self.api.changed:
                self.send_json(self.api.storage.put(kind, body), 201)
                self.api.changed.notify_all()
            return
        selectors = Selectors(self.query.get("labelSelector", ""), self.query.get("fieldSelector", ""))
        if self.query.get("watch") in ("1", "true"):
            self._watch(kind, namespace, selectors)
            return
        with self.api.changed:
            page = self.api.storage.page(
                kind,
                namespace,
                limit=int(self.query.get("limit", "0")),
                continue_token=self.query.get("continue", ""),
                resource_version=self.query.get("resourceVersion", ""),
                selectors=selectors,
            )
        self.send_json(page)

    def _watch(self, kind: Kind, namespace: str, selectors: Selectors) -> None:
        storage, version = self.api.storage, self.query.get("resourceVersion", "")
        initial = self.query.get("sendInitialEvents") == "true"
        if initial and not self.api.watch_list:
            message = "sendInitialEvents: Forbidden: sendInitialEvents is forbidden for watch unless it is enabled"
            raise StatusError(422, "Invalid", f'ListOptions.meta.k8s.io "" is invalid: {message}')
        with self.api.changed:
            since = int(version) if version not in ("", "0") and not initial else storage.version
            if since < storage.compacted and self.api.gone_as_status:
                raise expired(since, storage.compacted)
            first = storage.initial(kind, namespace, selectors) if initial or version in ("", "0") else []
        self.begin_stream()
        for event in first:
            self.send_piece(_encode(event))
        if initial:
            self.send_piece(_encode(bookmark(kind, since, initial_events_end=True)))
        until = time.monotonic() + float(self.query.get("timeoutSeconds", "300"))
        for event in self._events(kind, namespace, selectors, since, until):
            self.send_piece(_encode(event))
        self.end_stream()

    def _events(self, kind: Kind, namespace: str, selectors: Selectors, since: int, until: float) -> Iterator[Json]:
        self.api.watchers += 1
        try:
            while not self.api.stopping:
                try:
                    with self.api.changed:
                        changes = self.api.storage.changes(kind, since)
                        if not changes and not self.api.changed.wait(max(0.0, min(until - time.monotonic(), 1.0))):
                            if time.monotonic() >= until:
                                if self.query.get("allowWatchBookmarks") == "true":
                                    yield bookmark(kind, self.api.storage.version)
                                return
                            continue
                except StatusError as error:
                    yield {"type": "ERROR", "object": error.body}
                    return
                for change in changes:
                    since = change.version
                    if selectors.match(change.object, namespace):
                        yield change.event()
        finally:
            self.api.watchers -= 1


def _encode(event: Json) -> bytes:
    return json.dumps(event, separators=(",", ":")).encode() + b"\n"


def _merge(old: Any, patch: Any) -> Any:
    """RFC 7396."""
    if not isinstance(patch, dict):
        return patch
    merged = dict(old) if isinstance(old, dict) else {}
    for name, value in patch.items():
        if value is None:
            merged.pop(name, None)
        else:
            merged[name] = _merge(merged.get(name), value)
    return merged
