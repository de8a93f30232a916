"""Patch bodies: which kinds there are, what they make of an object, and what server-side apply accepts."""

from __future__ import annotations

from typing import Any, Final

import msgspec

from kproxy.api.fielderror import invalid
from kproxy.apiserver.errors import Json, StatusError, bad_request, unsupported_media_type
from kproxy.apiserver.errors import invalid as invalid_object
from kproxy.apiserver.kinds.resources import Resource
from kproxy.apiserver.registry.coercion import check_kind, custom_object, typed
from kproxy.apiserver.registry.writes import CUSTOM_PATCHES, JSON_PATCH, MERGE_PATCH, PATCHES, STRATEGIC_PATCH, Options
from kproxy.apiserver.schema.decode import DecodeError, Decoder, TypeMismatchError, json_kind, unknown_fields
from kproxy.apiserver.schema.field_paths import duplicate, show_path
from kproxy.apiserver.schema.patch import apply_json_patch, apply_merge_patch, apply_strategic_patch, go_value

_OPERATION: Final = frozenset({"op", "path", "from", "value"})


def check_media(resource: Resource, media: str) -> None:
    """Refuses a patch of a kind that the resource does not take.

    Raises:
        StatusError: 415.
    """
    accepted = CUSTOM_PATCHES if resource.custom else PATCHES
    if media not in accepted:
        raise unsupported_media_type(", ".join(accepted))


def patched_object(resource: Resource, live: Json, patch: Any, media: str) -> Json:
    """What a patch makes of an object.

    Raises:
        StatusError: 400 or 422: it is no patch, or does not fit the object.
    """
    if media == JSON_PATCH:
        patched = apply_json_patch(live, patch)
    elif media == MERGE_PATCH:
        if not isinstance(patch, dict):
            raise bad_request(
                f"error decoding patch: json: cannot unmarshal {json_kind(patch)} into Go value of type "
                "map[string]interface {}"
            )
        patched = apply_merge_patch(live, patch)
    else:
        patched = apply_strategic_patch(live, patch, resource.node)
    if not isinstance(patched, dict):
        raise bad_request("the patched object is no object")
    return patched


def decode_patched(
    resource: Resource, patched: Json, patch: Any, media: str, options: Options
) -> tuple[Json, list[str]]:
    """A patched object as a typed value, and what to warn of.

    Raises:
        StatusError: 422: the patch makes no object of the kind, or has an unknown field when validation is strict.
    """
    shown = go_value(patch) if media == STRATEGIC_PATCH else msgspec.json.encode(patched).decode()
    try:
        check_kind(resource, patched)
        value, unknown = typed(resource, patched)
    except DecodeError as error:
        raise _bad_patch(shown, error.problem) from error
    except StatusError as error:
        raise _bad_patch(shown, error.message) from error
    if options.field_validation == "Ignore":
        return value, []
    found = unknown_fields(unknown)
    if media == JSON_PATCH:
        others = (f"[{at}].{key}" for at, each in enumerate(patch) for key in each or () if key not in _OPERATION)
        found = [f"json patch {each}" for each in unknown_fields(others)] + found
    if found and options.field_validation == "Strict":
        raise _bad_patch(shown, f"strict decoding error: {', '.join(found)}")
    return value, options.note(found)


def _bad_patch(shown: str, detail: str) -> StatusError:
    """422 of no kind and no name, as kube-apiserver's."""
    return invalid_object("", "", "", [invalid("patch", shown, detail)])


def applied_configuration(resource: Resource, namespace: str, name: str, config: Any) -> Json:
    """The body of a server-side apply without kind and apiVersion, checked but otherwise as it was sent.

    Raises:
        StatusError: 400: not this object; 500: a field that the schema does not have.
    """
    check_kind(resource, config)
    if not config.get("kind") or not config.get("apiVersion"):
        raise bad_request("apply requires apiVersion and kind to be set")
    decoder = Decoder()
    bare = {key: item for key, item in config.items() if key not in ("kind", "apiVersion")}
    try:
        if resource.custom:
            custom_object(resource, config, decoder)
        else:
            decoder.object(bare, resource.node)
    except TypeMismatchError as error:
        raise DecodeError(resource.kind, resource.version, str(error)) from error
    meta = config.get("metadata") or {}
    given = meta.get("name", name)
    if given != name:
        raise bad_request(f"the name of the object ({given}) does not match the name on the URL ({name})")
    if meta.get("managedFields") is not None:
        raise bad_request("metadata.managedFields must be nil")
    twice = duplicate(bare, resource.node)
    if decoder.unknown or twice:
        where = f"{namespace}/{name}" if namespace else name
        what = f"failed to create typed patch object ({where}; {resource.api_version}, Kind={resource.kind})"
        if twice is None:
            raise StatusError(500, "", f"{what}: .{decoder.unknown[0]}: field not declared in schema")
        raise StatusError(500, "", f"{what}: {show_path(twice[0])}: duplicate entries for key {show_path(twice[1:])}")
    return resource.strategy.from_version(bare)
