"""Requests as they are read, and answers as they are written: queries, bodies, JSON, refusals.

Every refusal is one JSON error.
"""

from __future__ import annotations

import asyncio
import logging
import re
from typing import Any, Final, TypeVar

import msgspec
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response

from kproxy.errors import KproxyError
from kproxy.explorer.errors import Refusal, bad_input
from kproxy.explorer.page import encode

log = logging.getLogger(__name__)

MAX_BODY: Final = 4 << 20
BODY_SECONDS: Final = 10.0
_PATH: Final = re.compile(r" - at `\$?\.?(.*)`$")

Body = TypeVar("Body")


def read_query(request: Request, *known: str) -> dict[str, str]:
    """The query's parameters. Raises Refusal: one is unknown, or comes twice."""
    found: dict[str, str] = {}
    for name, value in request.query_params.multi_items():
        if name not in known or name in found:
            raise bad_input(f"{name[:80]!r}: known once each: {', '.join(known) or 'nothing'}", name[:80])
        found[name] = value
    return found


def read_number(text: str, name: str) -> int:
    """A number of a query. Raises Refusal: it is none."""
    if not text.isascii() or not text.isdigit() or len(text) > 15:
        raise bad_input(f"{name}: a number expected, not {text[:80]!r}", name)
    return int(text)


async def read_body(request: Request, kind: type[Body]) -> Body:
    """The request's body as a struct. Raises Refusal: it is none, or too large."""
    if request.headers.get("content-type", "").partition(";")[0].strip().lower() != "application/json":
        raise Refusal(415, "a body of Content-Type application/json expected")
    announced = request.headers.get("content-length", "")
    # What is announced is not waited for.
    if announced.isdecimal() and (len(announced) > len(str(MAX_BODY)) or int(announced) > MAX_BODY):
        raise _too_large()
    parts, size = [], 0
    try:
        async with asyncio.timeout(BODY_SECONDS):
            async for part in request.stream():
                size += len(part)
                if size > MAX_BODY:
                    raise _too_large()
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


def _too_large() -> Refusal:
    return Refusal(413, f"a request has at most {MAX_BODY >> 20} MiB")


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


HANDLERS: Final[Any] = {
    Refusal: _refusal,
    KproxyError: _kproxy_error,
    HTTPException: _http_error,
    TimeoutError: _timeout,
    RecursionError: _too_deep,
    Exception: _fault,
}
