"""Patch bodies: which kinds there are, what they make of an object, and what server-side apply accepts."""

from __future__ import annotations

from typing import Any

from kproxy.api.problems import invalid
from kproxy.apiserver.decode import Decoder, TypeMismatchError, decode_error
from kproxy.apiserver.events import from_new_event
from kproxy.apiserver.fields import duplicate, show_path
from kproxy.apiserver.patch import apply_json_patch, apply_merge_patch, apply_strategic_patch
from kproxy.apiserver.resources import Resource
from kproxy.apiserver.status import ApiError, Json, bad_request, unsupported_media_type
from kproxy.apiserver.status import invalid as invalid_object
from kproxy.apiserver.typed import check_kind, custom_object, typed
from kproxy.apiserver.writing import APPLY_PATCH, JSON_PATCH, MERGE_PATCH, STRATEGIC_PATCH, Options


def check_media(resource: Resource, media: str) -> None:
    """Refuses a patch of a kind that the resource does not take.

    Raises:
        ApiError: 415.
    """
    accepted = [JSON_PATCH, MERGE_PATCH, STRATEGIC_PATCH, APPLY_PATCH]
    if resource.custom:
        accepted.remove(STRATEGIC_PATCH)
    if media not in accepted:
        raise unsupported_media_type(", ".join(accepted))


def patched_object(resource: Resource, live: Json, patch: Any, media: str) -> Json:
    """What a patch makes of an object.

    Raises:
        ApiError: 400 or 422: it is no patch, or does not fit the object.
    """
    if media == JSON_PATCH:
        patched = apply_json_patch(live, patch)
    elif media == MERGE_PATCH:
        if not isinstance(patch, dict):
            raise bad_request(
                "error decoding patch: json: cannot unmarshal into Go value of type map[string]interface {}"
            )
        patched = apply_merge_patch(live, patch)
    else:
        patched = apply_strategic_patch(live, patch, resource.node)
    if not isinstance(patched, dict):
        raise bad_request("the patched object is no object")
    return patched


def decode_patched(
    resource: Resource, name: str, patched: Json, patch: Any, options: Options
) -> tuple[Json, list[str]]:
    """A patched object as a typed value, and what to warn of.

    Raises:
        ApiError: 422: the patch makes no object of the kind.
    """
    try:
        check_kind(resource, patched)
        value, unknown = typed(resource, patched)
    except ApiError as error:
        detail = error.message.partition(": ")[2] or error.message
        raise _bad_patch(resource, name, patch, detail) from error
    found = [] if options.field_validation == "Ignore" else [f'unknown field "{path}"' for path in unknown]
    if found and options.field_validation == "Strict":
        raise _bad_patch(resource, name, patch, f"strict decoding error: {', '.join(found)}")
    return value, found


def _bad_patch(resource: Resource, name: str, patch: Any, detail: str) -> ApiError:
    return invalid_object(resource.group, resource.kind, name, [invalid("patch", patch, detail)])


def applied_configuration(resource: Resource, namespace: str, name: str, config: Any) -> Json:
    """The body of a server-side apply without kind and apiVersion, checked but otherwise as it was sent.

    Raises:
        ApiError: 400: not this object; 500: a field that the schema does not have.
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
        raise decode_error(resource.kind, resource.version, str(error)) from error
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
            raise ApiError(500, "", f"{what}: .{decoder.unknown[0]}: field not declared in schema")
        raise ApiError(500, "", f"{what}: {show_path(twice[0])}: duplicate entries for key {show_path(twice[1:])}")
    return from_new_event(bare) if resource.storage == "events" and resource.group else bare
