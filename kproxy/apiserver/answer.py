"""A whole response, and how one is made of JSON."""

from __future__ import annotations

from typing import Any

from kproxy.apiserver import represent
from kproxy.apiserver.represent import Form


class Answer:
    """A whole response."""

    __slots__ = ("body", "code", "headers", "media")

    def __init__(self, body: bytes, media: str = represent.JSON, code: int = 200, headers: Any = ()) -> None:
        self.body = body
        self.media = media
        self.code = code
        self.headers = headers


def in_form(data: bytes, form: Form, code: int = 200) -> Answer:
    """An answer of JSON bytes in the media type that the client wants."""
    return Answer(*represent.to_media(data, form), code=code)
