"""Calls of webhooks: one POST over TLS each, to a URL or to an endpoint of a Service.

Source: k8s.io/apiserver pkg/util/webhook (client.go), pkg/util/proxy (ResolveEndpoint).
"""

from __future__ import annotations

import asyncio
import random
import socket
import ssl
from base64 import b64decode
from collections.abc import Callable
from functools import lru_cache
from types import SimpleNamespace
from typing import Any, Final
from urllib.parse import urlsplit

import httptools

from kproxy.apiserver.errors import Json
from kproxy.apiserver.registry.webhooks.review import CallError
from kproxy.apiserver.storage.store import Store

OpenSocket = Callable[[int], socket.socket]
"""Makes a TCP socket of a family from which the endpoints of Services are reached."""
_SERVICE_URL: Final = "https://{name}.{namespace}.svc:{port}{path}"
_LARGEST: Final = 3 * 1024 * 1024
"""Bytes of an answer: those of the largest object."""


class Caller:
    """Sends reviews. `store` has the Services and their EndpointSlices; `open_socket` reaches their endpoints."""

    def __init__(self, store: Store, open_socket: OpenSocket) -> None:
        self._services = store.table("services")
        self._slices = store.table("endpointslices.discovery.k8s.io")
        self._open_socket = open_socket

    async def post(self, config: Json, body: bytes, seconds: int) -> bytes:
        """The body of the answer of the webhook with this clientConfig, which has so many seconds for it.

        Raises:
            CallError: there is none.
        """
        service = config.get("service")
        url = config["url"] if service is None else _SERVICE_URL.format_map({"path": "/", **service})
        parts = urlsplit(f"{url}?timeout={seconds}s")
        host = parts.hostname or ""
        context = _context(config.get("caBundle") or "")
        try:
            async with asyncio.timeout(seconds):
                where = {"host": host, "port": parts.port or 443} if service is None else await self._reach(service)
                reader, writer = await asyncio.open_connection(ssl=context, server_hostname=host, **where)
                try:
                    head = (
                        f"POST {parts.path or '/'}?{parts.query} HTTP/1.1\r\nHost: {parts.netloc}\r\n"
                        "Content-Type: application/json\r\nAccept: application/json\r\nConnection: close\r\n"
                        f"Content-Length: {len(body)}\r\n\r\n"
                    )
                    writer.write(head.encode() + body)
                    return await _answer(reader)
                finally:
                    writer.close()
        except (OSError, httptools.HttpParserError) as error:
            raise CallError(f'failed to call webhook: Post "{parts.geturl()}": {_why(error)}') from error

    async def _reach(self, service: Json) -> dict[str, Any]:
        """A socket that is connected to an endpoint of a Service."""
        address = self._endpoint(service)
        sock = self._open_socket(socket.AF_INET6 if ":" in address[0] else socket.AF_INET)
        try:
            sock.setblocking(False)
            await asyncio.get_running_loop().sock_connect(sock, address)
        except BaseException:
            sock.close()
            raise
        return {"sock": sock}

    def _endpoint(self, service: Json) -> tuple[str, int]:
        """Address and port of a ready endpoint of a Service."""
        namespace, name, port = service["namespace"], service["name"], service["port"]
        entry = self._services.head(f"{namespace}/{name}")
        if entry is None:
            raise ConnectionError(f'service "{name}" not found')
        found = next((each for each in entry.value["spec"].get("ports") or () if each.get("port") == port), None)
        if found is None:
            raise ConnectionError(f'no service port {port} found for service "{name}"')
        endpoints = [
            (endpoint["addresses"][0], each["port"])
            for item in self._slices.heads_in(namespace)
            if item.labels.get("kubernetes.io/service-name") == name
            for each in item.value.get("ports") or ()
            if each.get("name", "") == found.get("name", "") and each.get("port")
            for endpoint in item.value.get("endpoints") or ()
            if (endpoint.get("conditions") or {}).get("ready") is not False
        ]
        if not endpoints:
            raise ConnectionError(f'no endpoints available for service "{name}"')
        return random.choice(endpoints)


@lru_cache(256)
def _context(bundle: str) -> ssl.SSLContext:
    """A context that trusts the authorities of a caBundle (base64 of PEM), or of the machine if it is ""."""
    try:
        context = ssl.create_default_context(cadata=b64decode(bundle).decode("ascii") if bundle else None)
    except (ssl.SSLError, ValueError) as error:
        raise CallError("could not get REST client: unable to load root certificates: no PEM") from error
    context.verify_flags &= ~ssl.VERIFY_X509_STRICT  # Go asks for no key identifiers
    return context


async def _answer(reader: asyncio.StreamReader) -> bytes:
    """Reads an answer up to the connection's end. Raises CallError if it is no success, or too long."""
    try:
        await reader.readexactly(_LARGEST)
    except asyncio.IncompleteReadError as error:
        data = error.partial
    else:
        raise CallError(f"failed to call webhook: the answer is longer than {_LARGEST} bytes")
    parts: list[bytes] = []
    parser = httptools.HttpResponseParser(SimpleNamespace(on_body=parts.append))
    parser.feed_data(data)
    code, body = parser.get_status_code(), b"".join(parts)
    if not code:
        raise ConnectionError("EOF")
    if not 200 <= code < 300:
        text = body[:1024].decode(errors="replace").strip() or f"status {code}"
        why = f'an error on the server ("{text}") has prevented the request from succeeding'
        raise CallError(f"failed to call webhook: {why}")
    return body


def _why(error: Exception) -> str:
    if isinstance(error, TimeoutError):
        return "context deadline exceeded"
    if isinstance(error, ssl.SSLCertVerificationError):
        return f"tls: failed to verify certificate: {error.verify_message}"
    return str(error.strerror or error) if isinstance(error, OSError) else str(error)
