"""The API over ASGI: authenticate, authorize, dispatch, answer; every refusal is a metav1.Status.

The app keeps no state of its own beyond what it is given. Unknown errors are answered with 500 and logged with their
traceback; they never end another client's connection.
"""

from __future__ import annotations

import asyncio
import itertools
import logging
import secrets
from collections.abc import AsyncGenerator, Awaitable, Callable, MutableMapping
from typing import Any, Final
from urllib.parse import unquote

from kproxy.apiserver.auth.authentication import Authenticator, User
from kproxy.apiserver.auth.rbac import Attributes, Authorizer
from kproxy.apiserver.endpoints import negotiation
from kproxy.apiserver.endpoints.handlers import ResourceHandler, check_path
from kproxy.apiserver.endpoints.health import Health
from kproxy.apiserver.endpoints.negotiation import Response, negotiate_for
from kproxy.apiserver.endpoints.nonresource import NonResourceHandler
from kproxy.apiserver.endpoints.podstreams import PodStreams
from kproxy.apiserver.endpoints.request import Request, parse_path, parse_query
from kproxy.apiserver.endpoints.reviews import Reviews
from kproxy.apiserver.endpoints.watch import Watches
from kproxy.apiserver.errors import StatusError, bad_request, method_not_allowed, no_resource, timeout, too_large
from kproxy.apiserver.kinds.resources import Resource
from kproxy.apiserver.registry.catalog import Catalog
from kproxy.apiserver.registry.registry import Registry

Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]

log = logging.getLogger(__name__)

_IMPERSONATE_EXTRA: Final = "impersonate-extra-"
MAX_BODY: Final = 3 * 1024 * 1024
_BODY_TIME: Final = 30.0
_WRITE_TIME: Final = 60.0
_SEND_TIME: Final = 30.0
"""Seconds that a client may leave a full buffer unread."""
_PIECE: Final = 256 * 1024
"""Bytes of a body that are handed on at once; the next follow when the buffer has room."""
_audit_ids = itertools.count(secrets.randbits(120))
"""Of requests that bring none: no two have the same, nor those of another server."""
_UNCACHED: Final = (b"cache-control", b"no-cache, private")
_LINGER: Final = 2.0
_MAX_DRAINED: Final = 8 * 1024 * 1024
"""Seconds and bytes for which a refused client is listened to, so that it finds its answer."""


class App:
    """The ASGI application."""

    def __init__(
        self, catalog: Catalog, registry: Registry, authenticator: Authenticator, authorizer: Authorizer,
        reviews: Reviews, watches: Watches, health: Health, pod_streams: PodStreams,
    ) -> None:  # fmt: skip
        self._catalog = catalog
        self._authenticator = authenticator
        self._authorizer = authorizer
        self._watches = watches
        self._health = health
        self._nonresource_handler = NonResourceHandler(catalog, health)
        self._pod_streams = pod_streams
        self._resource_handler = ResourceHandler(registry, reviews, catalog.builtin("", "pods"), pod_streams)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """One request."""
        if scope["type"] == "websocket":
            await self._exec(scope, receive, send)
            return
        if scope["type"] != "http":
            return
        self._health.requests += 1
        request = _new_request(scope, scope["method"])
        try:
            resource = self._authorized(request, scope)
            request.check_timeout()
            if resource is None:
                response = self._nonresource_handler.handle(request)
            elif request.verb == "watch":
                await self._watch(request, resource, receive, send, scope)
                return
            elif _is_log(request):
                await self._log(request, receive, send, scope)
                return
            else:
                if request.method not in ("GET", "HEAD"):
                    request.body = await _read_body(request, receive)
                    request.body_read = True
                async with asyncio.timeout(_WRITE_TIME):
                    response = await self._resource_handler.handle(request, resource)
        except StatusError as error:
            response = self._refusal(request, error)
        except TimeoutError:
            response = self._refusal(request, timeout("request did not complete within the allowed time"))
        except RecursionError:
            response = self._refusal(request, bad_request("the request is nested too deeply"))
        except Exception:
            log.exception("%s %s", request.method, request.path)
            self._health.faults += 1
            response = self._refusal(
                request, StatusError(500, "InternalError", "Internal error occurred: unexpected error")
            )
        await self._respond(request, response, receive, send, scope)

    def _authorized(self, request: Request, scope: Scope) -> Resource | None:
        """Who asks and what for, if they may; None if the path names no known resource.

        Raises:
            StatusError: 400, 401, 403 or 404.
        """
        request.path = _decoded_path(scope)
        request.query = parse_query(scope["query_string"])
        certificate = (scope.get("state") or {}).get("peer_certificate")
        user = self._authenticator.authenticate(request.header("authorization"), certificate)
        request.user = self._impersonated(request, user)
        request.target = target = parse_path(request.path)
        self._authorizer.require(request.user, request.attributes)
        if target.group is None:
            return None
        resource = self._catalog.find(target.group, target.version, target.resource)
        if resource is not None:
            check_path(target, resource)
            request.deprecation = resource.deprecation
        return resource

    @staticmethod
    def _refusal(request: Request, error: StatusError) -> Response:
        negotiated = negotiation.negotiate_refusal(request)
        return Response(*negotiation.to_media(negotiation.encode(error.status), negotiated), error.code, error.headers)

    async def _respond(self, request: Request, response: Response, receive: Receive, send: Send, scope: Scope) -> None:
        self._health.count(request, response.code)
        headers = [
            (b"audit-id", _audit_id(request)),
            *([] if any(name == b"cache-control" for name, _ in response.headers) else [_UNCACHED]),
            (b"content-type", response.media.encode()),
            (b"content-length", b"%d" % len(response.body)),
            *response.headers,
            *_warnings(request),
        ]
        unread = not request.body_read and request.method not in ("GET", "HEAD") and _announces_body(request)
        if unread:
            headers.append((b"connection", b"close"))
        body = b"" if request.method == "HEAD" else response.body
        try:
            await send({"type": "http.response.start", "status": response.code, "headers": headers})
            for start in range(0, max(len(body), 1), _PIECE):
                more = unread or start + _PIECE < len(body)
                async with asyncio.timeout(_SEND_TIME):
                    await send({"type": "http.response.body", "body": body[start : start + _PIECE], "more_body": more})
            if unread:
                if not request.header("expect"):
                    await _drain(receive)
                await send({"type": "http.response.body", "body": b""})
        except TimeoutError:
            await _drop(scope, receive)

    def _impersonated(self, request: Request, user: User) -> User:
        """The user that a request wants to act as, if the real one may: every name, group, uid and extra it asks for.

        Source: kubernetes/apiserver pkg/endpoints/filters/impersonation. Groups that follow from the name are added
        after the check; a group that a header names is checked, whatever its name is.
        """
        name = request.header("impersonate-user")
        groups = [each for each in request.header("impersonate-group").split(",") if each]
        uid = request.header("impersonate-uid")
        extra = {
            unquote(header.removeprefix(_IMPERSONATE_EXTRA)): (value,)
            for header, value in request.headers.items()
            if header.startswith(_IMPERSONATE_EXTRA)
        }
        if not name:
            if groups or uid or extra:
                raise bad_request("requested impersonation of groups, a uid or extras without impersonating a user")
            return user
        parts = name.split(":")
        is_service_account = name.startswith("system:serviceaccount:") and len(parts) == 4
        if is_service_account:
            wanted = [Attributes("impersonate", "", "serviceaccounts", "", parts[2], parts[3])]
        else:
            wanted = [Attributes("impersonate", "", "users", "", "", name)]
        wanted += [Attributes("impersonate", "", "groups", "", "", group) for group in groups]
        if uid:
            wanted.append(Attributes("impersonate", "authentication.k8s.io", "uids", "", "", uid))
        for key, values in extra.items():
            wanted += [
                Attributes("impersonate", "authentication.k8s.io", "userextras", key, "", value) for value in values
            ]
        for attributes in wanted:
            self._authorizer.require(user, attributes)
        if is_service_account and not groups:
            groups = ["system:serviceaccounts", f"system:serviceaccounts:{parts[2]}"]
        if name != "system:anonymous" and "system:authenticated" not in groups:
            groups.append("system:authenticated")
        return User(name, tuple(groups), uid, extra)

    # --- watch ---

    async def _watch(self, request: Request, resource: Resource, receive: Receive, send: Send, scope: Scope) -> None:
        if "watch" not in resource.verbs:
            raise method_not_allowed()
        negotiated = negotiate_for(request, resource)
        watcher = self._watches.open(request, resource, negotiated)
        await watcher.ready()
        media = negotiated.media if negotiated.media == negotiation.JSON else negotiated.media + negotiation.STREAM
        await self._stream(request, media, watcher.chunks(), watcher.stop, receive, send, scope)

    async def _stream(
        self, request: Request, media: str, chunks: AsyncGenerator[bytes, None], stop: Callable[[], None],
        receive: Receive, send: Send, scope: Scope,
    ) -> None:  # fmt: skip
        """Sends an answer in pieces, until it ends or the client goes, which `stop` is told of."""
        headers = [
            (b"audit-id", _audit_id(request)),
            _UNCACHED,
            (b"content-type", media.encode()),
            *_warnings(request),
        ]
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        self._health.count(request, 200)

        async def until_gone() -> None:
            while (await receive())["type"] != "http.disconnect":
                pass
            stop()

        listening = asyncio.ensure_future(until_gone())
        try:
            async for chunk in chunks:
                async with asyncio.timeout(_SEND_TIME):
                    await send({"type": "http.response.body", "body": chunk, "more_body": True})
            await send({"type": "http.response.body", "body": b""})
        except TimeoutError:
            self._health.dropped += 1
            _abort(scope)
            # The connection is lost in the loop's next turn; returning before that counts as a missing response.
            await asyncio.wait([listening], timeout=_LINGER)
        finally:
            listening.cancel()
            await chunks.aclose()

    # --- pods/log and pods/exec ---

    async def _log(self, request: Request, receive: Receive, send: Send, scope: Scope) -> None:
        stream = await self._pod_streams.log(request)
        if stream is None:
            await self._respond(request, Response(b"", "text/plain"), receive, send, scope)
            return
        await self._stream(request, "text/plain", stream.chunks(), stream.stop, receive, send, scope)

    async def _exec(self, scope: Scope, receive: Receive, send: Send) -> None:
        """A WebSocket: it is accepted once the kubelet has begun."""
        self._health.requests += 1
        request = _new_request(scope, "GET")
        await receive()
        try:
            resource = self._authorized(request, scope)
            if resource is None or not _is_exec(request):
                raise no_resource()
            stream, protocol = await self._pod_streams.exec(request, scope["query_string"], scope["subprotocols"])
        except StatusError as error:
            response = self._refusal(request, error)
            self._health.count(request, response.code)
            headers = [(b"content-type", response.media.encode()), (b"content-length", b"%d" % len(response.body))]
            await send({"type": "websocket.http.response.start", "status": response.code, "headers": headers})
            await send({"type": "websocket.http.response.body", "body": response.body})
            return
        self._health.count(request, 101)
        await send({"type": "websocket.accept", "subprotocol": protocol})
        await stream.join(receive, send)


def _audit_id(request: Request) -> bytes:
    """The client's own, if it sends one (k8s.io/apiserver pkg/endpoints/filters/audit_init.go)."""
    return request.header("audit-id").encode("latin-1") or b"%032x" % next(_audit_ids)


def _new_request(scope: Scope, method: str) -> Request:
    headers: dict[str, str] = {}
    for name, value in scope["headers"]:
        key, text = name.decode("latin-1"), value.decode("latin-1")
        headers[key] = f"{headers[key]},{text}" if key in headers else text
    return Request(method, "", {}, headers)


def _is_log(request: Request) -> bool:
    target = request.target
    return (target.group, target.resource, target.subresource) == ("", "pods", "log") and request.method == "GET"


def _is_exec(request: Request) -> bool:
    target = request.target
    return (target.group, target.resource, target.subresource) == ("", "pods", "exec")


def _decoded_path(scope: Scope) -> str:
    """The path with its percent signs resolved; an encoded slash or a control character names nothing.

    Raises:
        StatusError: 404 or 400.
    """
    raw = scope.get("raw_path") or scope["path"].encode()
    text: str = raw.decode("latin-1").partition("?")[0]
    if "%" in text:
        if "%2f" in text.lower() or "%00" in text:
            raise no_resource()
        try:
            text = unquote(text, errors="strict")
        except UnicodeDecodeError as error:
            raise bad_request("the path is not UTF-8") from error
    if not text.isprintable():
        raise bad_request("the path holds control characters")
    return text


def _announces_body(request: Request) -> bool:
    return request.header("content-length") not in ("", "0") or "transfer-encoding" in request.headers


async def _drain(receive: Receive) -> None:
    """Reads what a client is still sending, within bounds.

    A connection that is closed with unread data is reset, and many clients, which read only when they have sent
    everything, would lose the answer.
    """
    size = 0
    try:
        async with asyncio.timeout(_LINGER):
            while size < _MAX_DRAINED:
                message = await receive()
                size += len(message.get("body", b""))
                if message["type"] == "http.disconnect" or not message.get("more_body"):
                    return
    except TimeoutError:
        return


def _abort(scope: Scope) -> None:
    abort = (scope.get("state") or {}).get("abort")
    if abort is not None:
        abort()


async def _drop(scope: Scope, receive: Receive) -> None:
    """Closes the connection of a client that does not read, and waits until it is closed."""
    _abort(scope)
    try:
        async with asyncio.timeout(_LINGER):
            while (await receive())["type"] != "http.disconnect":
                pass
    except TimeoutError:
        return


async def _read_body(request: Request, receive: Receive) -> bytes:
    length = request.header("content-length")
    if length.isdecimal() and int(length) > MAX_BODY:
        raise too_large(f"limit is {MAX_BODY}")
    parts: list[bytes] = []
    size = 0
    async with asyncio.timeout(_BODY_TIME):
        while True:
            message = await receive()
            if message["type"] == "http.disconnect":
                raise bad_request("the client has gone")
            parts.append(message.get("body", b""))
            size += len(parts[-1])
            if size > MAX_BODY:
                raise too_large(f"limit is {MAX_BODY}")
            if not message.get("more_body"):
                return parts[0] if len(parts) == 1 else b"".join(parts)


def _warnings(request: Request) -> list[tuple[bytes, bytes]]:
    deprecated = [request.deprecation] if request.deprecation else []
    return [(b"warning", _warning(text)) for text in (*deprecated, *request.warnings[:20])]


def _warning(text: str) -> bytes:
    plain = "".join(character if " " <= character <= "~" else "?" for character in text)[:1024]
    escaped = plain.replace("\\", "\\\\").replace('"', '\\"')
    return f'299 - "{escaped}"'.encode()
