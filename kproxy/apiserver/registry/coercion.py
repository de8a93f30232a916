"""Request bodies as typed values of a resource: the kind checked, fields typed and pruned."""

from __future__ import annotations

from typing import Any

from kproxy.apiserver.crd.structural import prune
from kproxy.apiserver.errors import Json, bad_request
from kproxy.apiserver.kinds.resources import Resource
from kproxy.apiserver.registry.writes import Options
from kproxy.apiserver.schema.decode import DecodeError, Decoder, TypeMismatchError, unknown_fields


def decode(resource: Resource, body: Any, options: Options) -> tuple[Json, list[str]]:
    """A body as a typed value without kind and apiVersion, and what to warn of.

    Raises:
        StatusError: 400: another kind, a wrong type, or an unknown field when validation is strict.
    """
    check_kind(resource, body)
    value, unknown = typed(resource, body)
    if options.field_validation == "Ignore":
        return value, []
    found = unknown_fields(unknown)
    if found and options.field_validation == "Strict":
        raise DecodeError(resource.kind, resource.version, f"strict decoding error: {', '.join(found)}")
    return value, options.note(found)


def check_kind(resource: Resource, body: Any) -> None:
    """Refuses an object of another kind or version; one without either is taken for the right one."""
    if not isinstance(body, dict):
        text = f"couldn't get version/kind; json parse error: json: cannot unmarshal into Go value ({resource.kind})"
        raise bad_request(f"the object provided is unrecognized (must be of type {resource.kind}): {text}")
    kind, version = body.get("kind"), body.get("apiVersion")
    if version not in (None, "", resource.api_version):
        if kind in (None, "", resource.kind):
            raise bad_request(
                f"the API version in the data ({version}) does not match the expected API version "
                f"({resource.api_version})"
            )
        raise bad_request(f'no kind "{kind}" is registered for version "{version}" in scheme')
    if kind not in (None, "", resource.kind):
        group = resource.group.partition(".")[0] or "core"
        problem = f"converting ({resource.version}.{kind}) to ({group}.{resource.kind}): unknown conversion"
        raise DecodeError(kind, resource.version, problem, expected=resource.kind)


def typed(resource: Resource, body: Json) -> tuple[Json, list[str]]:
    """An object as its kind's Go struct would print it, metadata first, and the paths of unknown fields.

    Raises:
        StatusError: 400 for a wrong type.
    """
    decoder = Decoder()
    try:
        if resource.custom:
            value = custom_object(resource, body, decoder)
        else:
            value = decoder.object(
                {key: item for key, item in body.items() if key not in ("kind", "apiVersion")}, resource.node
            )
    except TypeMismatchError as error:
        raise DecodeError(resource.kind, resource.version, str(error)) from error
    value = resource.strategy.from_version(value)
    ordered: Json = {"metadata": value.pop("metadata", None) or {}}
    if not resource.custom and (body.get("metadata") or {}).get("managedFields") == []:
        ordered["metadata"]["managedFields"] = []  # asks for the ownership to be forgotten; omitempty otherwise
    ordered |= value
    return ordered, decoder.unknown


def custom_object(resource: Resource, body: Json, decoder: Decoder) -> Json:
    """A custom resource without kind and apiVersion, pruned; `decoder` collects what it does not know."""
    value: Json = {key: item for key, item in body.items() if key not in ("kind", "apiVersion")}
    metadata = value.pop("metadata", None) or {}
    typed = decoder.object(metadata, resource.node.props["metadata"].node, "metadata")
    unknown: list[str] = []
    pruned: Json = prune(value, resource.node, "", unknown)
    decoder.unknown += sorted(unknown)
    return {"metadata": typed, **pruned}


_empty: dict[tuple[str, str], Json] = {}


def empty(resource: Resource) -> Json:
    """The object of a kind with nothing set, not to be changed: what a new object is compared with to see what it
    sets."""
    if resource.custom:
        return {}
    key = (resource.storage, resource.version + resource.group)
    if key not in _empty:
        _empty[key] = typed(resource, {})[0]
    return _empty[key]
