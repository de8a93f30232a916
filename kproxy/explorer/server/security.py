"""Who may ask: whoever has the token, from a page of this server, by the address that it listens on.

The token is the first part of every path. A page of another site can send requests to a server on this machine, and by
DNS rebinding even read the answers: hence the checks of Host, Origin and Sec-Fetch-Site. Nothing may be loaded from
elsewhere, and nothing inline runs (Content-Security-Policy).
"""

from __future__ import annotations

import asyncio
import hmac
from typing import Final

import msgspec
from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

POLICY: Final = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; font-src 'self'; "
    "connect-src 'self'; worker-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
HEADERS: Final = (
    (b"content-security-policy", POLICY.encode()),
    (b"x-content-type-options", b"nosniff"),
    (b"referrer-policy", b"no-referrer"),
    (b"x-frame-options", b"DENY"),
    (b"cross-origin-opener-policy", b"same-origin"),
    (b"cross-origin-resource-policy", b"same-origin"),
    (b"permissions-policy", b"camera=(), geolocation=(), microphone=()"),
    (b"cache-control", b"no-store"),
)


class Guard:
    """Lets requests with the token through, by the path behind it, and gives each answer the headers above."""

    def __init__(self, app: ASGIApp, token: str, hosts: frozenset[str]) -> None:
        """
        Args:
            hosts: what may stand in Host, with the port.
        """
        self._app = app
        self._token = token.encode()
        self._hosts = hosts

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            return

        begun = False

        async def guarded(message: Message) -> None:
            nonlocal begun
            if message["type"] == "http.response.start":
                begun = True
                own = {name for name, _ in HEADERS}
                kept = [pair for pair in message.get("headers", ()) if pair[0].lower() not in own]
                message = {**message, "headers": [*kept, *HEADERS]}
            await send(message)

        refused = self._refused(scope)
        if refused:
            await _refusal(refused)(scope, receive, guarded)
            return
        path: str = scope["path"]
        first, slash, rest = path.removeprefix("/").partition("/")
        inner = {**scope, "path": f"/{rest}", "raw_path": f"/{rest}".encode(), "root_path": ""}
        if not slash:
            await Response(status_code=307, headers={"location": f"/{first}/"})(scope, receive, guarded)
            return
        try:
            await self._app(inner, receive, guarded)
        except asyncio.CancelledError:
            # The server stops while this is computed: nothing went wrong of which uvicorn should print a traceback.
            if not begun:
                await _refusal("kproxy explore has been stopped", 503)(scope, receive, guarded)

    def _refused(self, scope: Scope) -> str:
        """Why a request is refused; "" if it is not."""
        headers: dict[bytes, list[bytes]] = {}
        for name, value in scope["headers"]:
            headers.setdefault(name.lower(), []).append(value)
        hosts = headers.get(b"host", [])
        if len(hosts) != 1 or hosts[0].decode("latin-1").lower() not in self._hosts:
            return "this server is asked by its own address only"
        origins = headers.get(b"origin", [])
        own = {f"http://{host}".encode() for host in self._hosts}
        if len(origins) > 1 or any(origin.lower() not in own for origin in origins):
            return "pages of other origins may not ask"
        if any(value not in (b"same-origin", b"none") for value in headers.get(b"sec-fetch-site", [])):
            return "pages of other origins may not ask"
        first = scope["path"].removeprefix("/").partition("/")[0]
        if not hmac.compare_digest(first.encode("utf-8", "surrogatepass"), self._token):
            return "the token in the URL is missing or wrong: kproxy explore has printed the whole URL"
        return ""


def _refusal(why: str, status: int = 403) -> Response:
    body = msgspec.json.encode({"error": {"message": why, "field": ""}})
    return Response(body, status, media_type="application/json")
