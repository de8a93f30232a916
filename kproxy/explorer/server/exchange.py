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

Asked = TypeVar("Asked")


def read_query(request: Request, kind: type[Asked], known: tuple[str, ...]) -> Asked:
    """The query as a struct. Raises Refusal: a parameter is not known, comes twice, or is wrong."""
    found: dict[str, str] = {}
    for name, value in request.query_params.multi_items():
        if name not in known or name in found:
            raise bad_input(f"{name[:80]!r}: known once each: {', '.join(known) or 'nothing'}", name[:80])
        found[name] = value
    try:
        return msgspec.convert(found, kind, strict=False)
    except msgspec.ValidationError as error:
        raise _wrong(error) from error


async def read_body(request: Request, kind: type[Asked]) -> Asked:
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
        raise _wrong(error) from error
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise bad_input(f"not JSON: {error}") from error


def _wrong(error: msgspec.ValidationError) -> Refusal:
    """What does not fit, with its field."""
    text = str(error)
    match = _PATH.search(text)
    field = match[1] if match is not None else ""
    named = re.search(r"field `([^`]{1,80})`", text)
    if named is not None:
        field = f"{field}.{named[1]}" if field else named[1]
    words = _PATH.sub("", text)
    return bad_input(f"{field}: {words}" if field else words, field)


def _too_large() -> Refusal:
    return Refusal(413, f"a request has at most {MAX_BODY >> 20} MiB")


async def _refuse(request: Request, error: Exception) -> Response:
    """The answer to what went wrong."""
    field, away = "", False
    match error:
        case Refusal(status=status, field=field, away=away):
            message = str(error)
        case KproxyError():  # what cannot be read of the source
            status, message, away = 503, str(error), True
        case HTTPException(status_code=status, detail=message):
            pass
        case TimeoutError():
            status, message = 504, "this takes too long"
        case RecursionError():
            status, message = 400, "the request is nested too deeply"
        case _:
            log.error("%s: %s", request.url.path, error, exc_info=error)
            status, message = 500, "an error of kproxy itself: please report it"
    told = {"message": " ".join(message.split()), "field": field, **({"away": True} if away else {})}
    return Response(encode({"error": told}), status, media_type="application/json")


HANDLERS: Final[Any] = dict.fromkeys((KproxyError, HTTPException, TimeoutError, RecursionError, Exception), _refuse)
