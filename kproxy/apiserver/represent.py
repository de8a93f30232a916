"""Answers in the form that a client accepts: JSON, YAML, tables, metadata only."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from datetime import datetime
from functools import lru_cache
from typing import Any, Final

import msgspec
import yaml

from kproxy.apiserver.registry import Registry
from kproxy.apiserver.resources import Resource
from kproxy.apiserver.status import Json, bad_request, not_acceptable
from kproxy.apiserver.store import Entry

JSON: Final = "application/json"
YAML: Final = "application/yaml"
OFFERED: Final = (
    "application/json, application/yaml, application/vnd.kubernetes.protobuf, application/json;stream=watch, "
    "application/vnd.kubernetes.protobuf;stream=watch"
)
encode = msgspec.json.Encoder().encode


@dataclass(frozen=True, slots=True)
class Form:
    """What a client accepts: a media type, and `Table`, `PartialObjectMetadata(List)` or "" for the object itself."""

    media: str = JSON
    shape: str = ""
    version: str = "v1"


@lru_cache(512)
def negotiate(accept: str) -> Form:
    """The first form of an Accept header that can be served.

    Raises:
        ApiError: 406.
    """
    if not accept.strip():
        return Form()
    for clause in accept.split(","):
        media, *parameters = (part.strip() for part in clause.split(";"))
        given = {key.strip(): value.strip() for key, _, value in (p.partition("=") for p in parameters)}
        shape = given.get("as", "")
        if media in ("*/*", "application/*"):
            media = JSON
        if media not in (JSON, YAML, "text/yaml"):
            continue
        if shape and (
            shape not in ("Table", "PartialObjectMetadata", "PartialObjectMetadataList")
            or given.get("g") != "meta.k8s.io"
            or given.get("v") not in ("v1", "v1beta1")
        ):
            continue
        return Form(JSON if media == JSON else YAML, shape, given.get("v", "v1"))
    raise not_acceptable(OFFERED)


def prefix(resource: Resource) -> bytes:
    """The opening of an object's JSON: `{"kind":"Service","apiVersion":"v1",`."""
    return f'{{"kind":"{resource.kind}","apiVersion":"{resource.api_version}",'.encode()


def full(resource: Resource, entry: Entry) -> bytes:
    """An object's JSON with kind and apiVersion."""
    if resource.storage == "events" and resource.group:
        return full_value(resource, Registry.shown(resource, entry.value))
    return prefix(resource) + entry.body[1:]


def full_value(resource: Resource, value: Json) -> bytes:
    """A value's JSON with kind and apiVersion."""
    return encode({"kind": resource.kind, "apiVersion": resource.api_version, **value})


def item(resource: Resource, entry: Entry) -> bytes:
    """An object as an item of a list: only custom resources repeat their kind there."""
    if resource.custom or (resource.storage == "events" and resource.group):
        return full(resource, entry)
    return entry.body


def partial(value: Json) -> Json:
    """PartialObjectMetadata of an object."""
    return {"kind": "PartialObjectMetadata", "apiVersion": "meta.k8s.io/v1", "metadata": value.get("metadata") or {}}


def table_row(resource: Resource, value: Json, now: datetime, include: str) -> Json:
    """One row of a table."""
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
        raise bad_request(f"unrecognized includeObject value: {include!r}")
    return {
        "kind": "Table",
        "apiVersion": "meta.k8s.io/v1",
        "metadata": metadata,
        "columnDefinitions": list(resource.columns.definitions) if header else None,
        "rows": [table_row(resource, value, now, include) for value in values],
    }


def to_media(data: bytes, form: Form) -> tuple[bytes, str]:
    """JSON bytes in the media type of a form, and that type."""
    if form.media == JSON:
        return data + b"\n", JSON
    return yaml.safe_dump(msgspec.json.decode(data), sort_keys=False, allow_unicode=True).encode(), YAML


def one(resource: Resource, value: Json, form: Form, now: Callable[[], datetime], include: str) -> bytes:
    """One object in a form's shape."""
    if form.shape == "Table":
        version = {"resourceVersion": value["metadata"].get("resourceVersion", "")}
        return encode(table(resource, [value], version, now(), include))
    if form.shape == "PartialObjectMetadata":
        return encode(partial(value))
    if form.shape:
        raise not_acceptable(OFFERED)
    return full_value(resource, value)
