"""The scale subresource: autoscaling/v1 Scale of a workload or of a custom resource."""

from __future__ import annotations

from typing import Final

from kproxy.api.fielderror import invalid as invalid_field
from kproxy.apiserver.endpoints import negotiation
from kproxy.apiserver.endpoints.negotiation import MediaType, Response, encoded_response
from kproxy.apiserver.endpoints.request import Request
from kproxy.apiserver.errors import Json, bad_request, invalid, unsupported_media_type
from kproxy.apiserver.kinds.printers.builtin import KINDS
from kproxy.apiserver.kinds.printers.table import DEFAULT, selector_text
from kproxy.apiserver.kinds.resources import Resource
from kproxy.apiserver.registry.registry import Registry
from kproxy.apiserver.registry.writes import CUSTOM_PATCHES, JSON_PATCH, MERGE_PATCH, STRATEGIC_PATCH
from kproxy.apiserver.schema.decode import DecodeError, Decoder, TypeMismatchError, media_type, parse_body, parse_json
from kproxy.apiserver.schema.jsonpath import find
from kproxy.apiserver.schema.patch import apply_json_patch, apply_merge_patch
from kproxy.apiserver.schema.types import named

_SCHEMA: Final = "io.k8s.api.autoscaling.v1.Scale"


async def handle_scale(registry: Registry, request: Request, resource: Resource, negotiated: MediaType) -> Response:
    """Answers a get, update or patch of the scale subresource.

    Raises:
        StatusError: it is refused.
    """
    target = request.target
    entry = registry.head(resource, target.namespace, target.name)
    path = ((resource.scale or {}).get("specReplicasPath") or ".spec.replicas").strip(".").split(".")
    if request.method in ("PUT", "PATCH"):
        current = scale_of(resource, entry.value)
        body = _new_scale(request, resource, current)
        meta = body.get("metadata") or {}
        if meta.get("name", target.name) != target.name:
            given = meta["name"]
            raise bad_request(f"the name of the object ({given}) does not match the name on the URL ({target.name})")
        wanted = (body.get("spec") or {}).get("replicas", 0)
        if wanted < 0:
            errors = [invalid_field("spec.replicas", wanted, "must be greater than or equal to 0")]
            raise invalid("autoscaling", "Scale", target.name, errors)
        version = meta.get("resourceVersion", "")
        if request.method == "PATCH" and version == str(entry.revision):
            version = ""
        await registry.admit(
            resource, target.namespace, target.name, "scale", body, current, request.user, request.warnings,
            dry_run=request.dry_run(),
        )  # fmt: skip
        entry = registry.head(resource, target.namespace, target.name)
        result = await registry.set_replicas(resource, entry, path, wanted, request.options(), version)
        if result.done is not None:
            await result.done
        shown = scale_of(resource, result.value)
    else:
        shown = scale_of(resource, entry.value)
    columns = DEFAULT if resource.custom else KINDS["Scale"]
    scale = Resource("autoscaling", "v1", "Scale", "scales", named(_SCHEMA), columns=columns)
    include = request.query.get("includeObject", "")
    return encoded_response(negotiation.one(scale, shown, negotiated, registry.now, include), negotiated)


def _new_scale(request: Request, resource: Resource, current: Json) -> Json:
    if request.method == "PUT":
        body = parse_body(request.body, request.header("content-type"), "Scale")
    else:
        media = media_type(request.header("content-type"))
        try:
            patch = parse_json(request.body)
        except ValueError as error:
            raise bad_request(f"error decoding patch: {error}") from error
        if media == JSON_PATCH:
            body = apply_json_patch(current, patch)
        elif media in (MERGE_PATCH, STRATEGIC_PATCH):
            body = apply_merge_patch(current, patch)
        else:
            raise unsupported_media_type(", ".join(CUSTOM_PATCHES))
    if not isinstance(body, dict):
        raise bad_request("the object provided is unrecognized (must be of type Scale)")
    bare = {key: item for key, item in body.items() if key not in ("kind", "apiVersion")}
    try:
        return Decoder().object(bare, named(_SCHEMA))
    except TypeMismatchError as error:
        raise DecodeError("Scale", "v1", str(error)) from error


def scale_of(resource: Resource, value: Json) -> Json:
    """The autoscaling/v1 Scale of a workload."""
    meta = value["metadata"]
    names = ("name", "namespace", "uid", "resourceVersion", "creationTimestamp")
    paths = resource.scale or {}
    spec = find(value, paths.get("specReplicasPath", ".spec.replicas"))
    status = find(value, paths.get("statusReplicasPath", ".status.replicas"))
    if resource.custom:
        selector = "".join(
            map(str, find(value, paths.get("labelSelectorPath", "")) if "labelSelectorPath" in paths else [])
        )
    else:
        held = value["spec"].get("selector") or {}
        selector = selector_text(held) if held else ""
    shown: Json = {"replicas": status[0] if status else 0}
    if selector:
        shown["selector"] = selector
    wanted = spec[0] if spec else 0
    return {
        "kind": "Scale",
        "apiVersion": "autoscaling/v1",
        "metadata": {name: meta[name] for name in names if name in meta},
        "spec": {"replicas": wanted} if wanted else {},
        "status": shown,
    }
