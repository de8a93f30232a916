"""A whole response, and how one is made of JSON."""

from __future__ import annotations

from typing import Any

from kproxy.apiserver.endpoints import negotiation
from kproxy.apiserver.endpoints.negotiation import MediaType
from kproxy.apiserver.kinds.resources import Resource
from kproxy.apiserver.schema.protobuf.decoder import MEDIA_TYPE as PROTOBUF
from kproxy.apiserver.storage.store import Entry


class Response:
    __slots__ = ("body", "code", "headers", "media")

    def __init__(self, body: bytes, media: str = negotiation.JSON, code: int = 200, headers: Any = ()) -> None:
        self.body = body
        self.media = media
        self.code = code
        self.headers = headers


def entry_response(resource: Resource, entry: Entry, negotiated: MediaType, code: int = 200) -> Response:
    """A response with a stored object in the media type that the client wants."""
    if negotiated.media == PROTOBUF:
        return Response(negotiation.enveloped(resource, entry), PROTOBUF, code)
    return encoded_response(negotiation.full(resource, entry), negotiated, code)


def encoded_response(data: bytes, negotiated: MediaType, code: int = 200) -> Response:
    """A response with JSON bytes in the media type that the client wants."""
    return Response(*negotiation.to_media(data, negotiated), code=code)
