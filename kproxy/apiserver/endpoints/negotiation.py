"""Content negotiation: JSON, YAML, protobuf, tables, metadata only.

A client gets the first of the media types it accepts that there is, by quality, then order, as from kube-apiserver.
JSON is what the store holds; an object's protobuf message is kept with it once it has been made.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from datetime import datetime
from functools import lru_cache
from typing import Any, Final

import msgspec
import yaml

from kproxy.api.fielderror import show
from kproxy.apiserver.endpoints.request import Request
from kproxy.apiserver.errors import Json, bad_request, not_acceptable
from kproxy.apiserver.kinds.resources import Resource
from kproxy.apiserver.schema.protobuf import MEDIA_TYPE as PROTOBUF
from kproxy.apiserver.schema.protobuf import (
    encode_envelope,
    encode_message,
    envelope,
    has_message,
    list_message,
    message_name,
)
from kproxy.apiserver.storage.store import Entry

JSON: Final = "application/json"
YAML: Final = "application/yaml"
STREAM: Final = ";stream=watch"
OFFERED: Final = (
    "application/json, application/yaml, application/vnd.kubernetes.protobuf, application/json;stream=watch, "
    "application/vnd.kubernetes.protobuf;stream=watch"
)
_OFFERED_WATCHES: Final = "application/json;stream=watch, application/vnd.kubernetes.protobuf;stream=watch"
_SHAPES: Final = ("Table", "PartialObjectMetadata", "PartialObjectMetadataList")
_PRETTY: Final = ("curl", "Wget", "Mozilla/5.0")
"""User agents that get indented JSON (k8s.io/apiserver pkg/endpoints/handlers/negotiation)."""
encode = msgspec.json.Encoder().encode


@dataclass(frozen=True, slots=True)
class MediaType:
    """What a client accepts: a media type, and `Table`, `PartialObjectMetadata(List)` or "" for the object itself.
    `pretty`: indented JSON."""

    media: str = JSON
    shape: str = ""
    version: str = "v1"
    pretty: bool = False


@lru_cache(512)
def negotiate(accept: str, *, protobuf: bool = True, table: bool = True, watching: bool = False) -> MediaType:
    """The media type of an Accept header that suits best: by quality, then order.

    `protobuf`: whether the kind has a message; `table`: whether it has columns. Metadata alone is there in protobuf for
    every kind, tables for none.

    Raises:
        StatusError: 406.
    """
    if not accept.strip():
        return MediaType()
    for media, given in _clauses(accept):
        shape = given.get("as", "")
        if media in ("*/*", "application/*"):
            media = JSON
        if shape and (
            shape not in _SHAPES or given.get("g") != "meta.k8s.io" or given.get("v") not in ("v1", "v1beta1")
        ):
            continue
        if shape == "Table" and not table:
            continue
        if media == JSON or (media in (YAML, "text/yaml") and not watching):
            return MediaType(JSON if media == JSON else YAML, shape, given.get("v", "v1"))
        if media == PROTOBUF and shape != "Table" and (protobuf or shape):
            return MediaType(PROTOBUF, shape, given.get("v", "v1"))
    raise not_acceptable(_OFFERED_WATCHES if watching else OFFERED)


def _clauses(accept: str) -> list[tuple[str, dict[str, str]]]:
    """Media types with their parameters, best first; those of quality 0 are left out."""
    found = []
    for clause in accept.split(","):
        media, *parameters = (part.strip() for part in clause.split(";"))
        given = {key.strip(): value.strip() for key, _, value in (p.partition("=") for p in parameters)}
        try:
            quality = float(given.get("q", "1"))
        except ValueError:
            quality = 1.0
        if quality > 0:
            found.append((-quality, media.lower(), given))
    found.sort(key=lambda each: each[0])
    return [(media, given) for _, media, given in found]


def negotiate_for(request: Request, resource: Resource) -> MediaType:
    """The media type of the response to a request about a resource.

    Raises:
        StatusError: 406.
    """
    accept = request.header("accept")
    kind, version = resource.kind, resource.api_version
    table = resource.stored
    found = resource.subresource(request.target.subresource)
    if found is not None and found.kind != resource.kind:
        kind, table = found.kind, found.name == "scale"
        version = f"{found.group}/{found.version}" if found.group else found.version or resource.version
    protobuf = PROTOBUF in accept and has_message(version, kind)
    negotiated = negotiate(accept, protobuf=protobuf, table=table, watching=request.verb == "watch")
    return replace(negotiated, pretty=True) if negotiated.media == JSON and is_pretty(request) else negotiated


def negotiate_refusal(request: Request) -> MediaType:
    """The media type of a refusal: clauses with `as=` do not count, and there is always one."""
    for media, given in _clauses(request.header("accept")):
        if given.get("as"):
            continue
        if media in (PROTOBUF, YAML):
            return MediaType(media)
        if media in (JSON, "*/*", "application/*"):
            break
    return MediaType(pretty=is_pretty(request))


def is_pretty(request: Request) -> bool:
    """Whether JSON is to be indented: `pretty` says so, or the user agent is a browser or curl."""
    asked = request.query.get("pretty")
    if asked:
        return asked in ("1", "t", "T", "TRUE", "true", "True")
    return request.header("user-agent").startswith(_PRETTY)


def prefix(resource: Resource) -> bytes:
    """The opening of an object's JSON: `{"kind":"Service","apiVersion":"v1",`."""
    return f'{{"kind":"{resource.kind}","apiVersion":"{resource.api_version}",'.encode()


def full(resource: Resource, entry: Entry) -> bytes:
    """An object's JSON with kind and apiVersion."""
    if not resource.strategy.converts:
        return prefix(resource) + entry.body[1:]
    if entry.view is None or entry.view[0] is not resource.strategy:
        entry.view = (resource.strategy, full_value(resource, resource.strategy.to_version(entry.value)))
    return entry.view[1]


def message(resource: Resource, entry: Entry) -> bytes:
    """An object's protobuf message, of a kind that has one."""
    kept = entry.message
    if kept is None or kept[0] != resource.api_version:
        name = message_name(resource.api_version, resource.kind)
        made = encode_message(resource.strategy.to_version(entry.value), name)
        entry.message = kept = (resource.api_version, made)
    return kept[1]


def enveloped(resource: Resource, entry: Entry) -> bytes:
    """An object in protobuf, with kind and apiVersion."""
    return envelope(resource.api_version, resource.kind, message(resource, entry))


def enveloped_list(resource: Resource, entries: Iterable[Entry], metadata: Json) -> bytes:
    """A list in protobuf."""
    listed = list_message(metadata, (message(resource, entry) for entry in entries))
    return envelope(resource.api_version, resource.list_kind, listed)


def full_value(resource: Resource, value: Json) -> bytes:
    """A value's JSON with kind and apiVersion."""
    return encode({"kind": resource.kind, "apiVersion": resource.api_version, **value})


def item(resource: Resource, entry: Entry) -> bytes:
    """An object as an item of a list: only what is converted repeats its kind there."""
    return full(resource, entry) if resource.strategy.converts else entry.body


def partial(value: Json) -> Json:
    """PartialObjectMetadata of an object."""
    return {"kind": "PartialObjectMetadata", "apiVersion": "meta.k8s.io/v1", "metadata": value.get("metadata") or {}}


def table_row(resource: Resource, value: Json, now: datetime, include: str) -> Json:
    shown: Any = partial(value)
    if include == "None":
        shown = None
    elif include == "Object":
        shown = {"kind": resource.kind, "apiVersion": resource.api_version, **value}
    return {"cells": resource.columns.row(value, now), "object": shown}


def table(
    resource: Resource, values: Iterable[Json], metadata: Json, now: datetime, include: str, *, header: bool = True
) -> Json:
    """meta.k8s.io/v1 Table."""
    if include not in ("", "None", "Metadata", "Object"):
        raise bad_request(f"unrecognized includeObject value: {show(include)}")
    return {
        "kind": "Table",
        "apiVersion": "meta.k8s.io/v1",
        "metadata": metadata,
        "columnDefinitions": list(resource.columns.definitions) if header else None,
        "rows": [table_row(resource, value, now, include) for value in values],
    }


def to_media(data: bytes, negotiated: MediaType) -> tuple[bytes, str]:
    """JSON bytes in the negotiated media type, and its name."""
    if negotiated.media == JSON:
        return (msgspec.json.format(data, indent=2) if negotiated.pretty else data) + b"\n", JSON
    value = msgspec.json.decode(data)
    if negotiated.media == PROTOBUF:
        return encode_envelope(value), PROTOBUF
    return yaml.dump(value, Dumper=yaml.CSafeDumper, sort_keys=False, allow_unicode=True).encode(), YAML


def one(resource: Resource, value: Json, negotiated: MediaType, now: Callable[[], datetime], include: str) -> bytes:
    """One object as JSON: itself, as a table or its metadata alone."""
    if negotiated.shape == "Table":
        version = {"resourceVersion": value["metadata"].get("resourceVersion", "")}
        return encode(table(resource, [value], version, now(), include))
    if negotiated.shape == "PartialObjectMetadata":
        return encode(partial(value))
    if negotiated.shape:
        raise not_acceptable(OFFERED)
    return full_value(resource, value)


class Response:
    """A whole response."""

    __slots__ = ("body", "code", "headers", "media")

    def __init__(self, body: bytes, media: str = JSON, code: int = 200, headers: Any = ()) -> None:
        self.body = body
        self.media = media
        self.code = code
        self.headers = headers


def entry_response(resource: Resource, entry: Entry, negotiated: MediaType, code: int = 200) -> Response:
    """A response with a stored object in the media type that the client wants."""
    if negotiated.media == PROTOBUF:
        return Response(enveloped(resource, entry), PROTOBUF, code)
    return encoded_response(full(resource, entry), negotiated, code)


def encoded_response(data: bytes, negotiated: MediaType, code: int = 200) -> Response:
    """A response with JSON bytes in the media type that the client wants."""
    return Response(*to_media(data, negotiated), code=code)
