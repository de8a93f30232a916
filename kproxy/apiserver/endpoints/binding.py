"""Binding a Pod to a node: `pods/binding`, which schedulers use, and the older `bindings`.

Source: kubernetes/kubernetes pkg/registry/core/pod/storage/storage.go (BindingREST).
"""

from __future__ import annotations

from kproxy.apiserver.endpoints import negotiation
from kproxy.apiserver.endpoints.negotiation import MediaType, Response, encoded_response
from kproxy.apiserver.endpoints.request import Request
from kproxy.apiserver.errors import Json, StatusError, bad_request, conflict, invalid, stale
from kproxy.apiserver.kinds.pods import bind, binding_errors
from kproxy.apiserver.kinds.resources import Resource
from kproxy.apiserver.registry.registry import Registry
from kproxy.apiserver.registry.writes import timestamp
from kproxy.apiserver.schema.decode import DecodeError, Decoder, TypeMismatchError, parse_body
from kproxy.apiserver.schema.types import named

_SCHEMA = "io.k8s.api.core.v1.Binding"


async def handle_binding(
    registry: Registry, request: Request, resource: Resource, pods: Resource, negotiated: MediaType
) -> Response:
    """Binds the Pod that the path or, for the `resource` bindings, the Binding names.

    Raises:
        StatusError: 400 for a body that is no Binding, 422 for one without a node (kube-apiserver says 500), 404
            without the Pod, 409 for one that is bound already or waits.
    """
    binding = _binding(request)
    meta = binding.get("metadata") or {}
    name = request.target.name or meta.get("name", "")
    if meta.get("name", "") != name:
        raise bad_request("name in URL does not match name in Binding object")
    if errors := binding_errors(binding):
        raise invalid("", "Binding", name, errors)
    where = request.target
    await registry.admit(
        resource, where.namespace, name, where.subresource, binding, None, request.user, request.warnings,
        dry_run=request.dry_run(),
    )  # fmt: skip
    entry = registry.head(pods, where.namespace, name)
    value = entry.value
    if meta.get("uid") and meta["uid"] != value["metadata"]["uid"]:
        why = f"Precondition failed: UID in precondition: {meta['uid']}, UID in object meta: {value['metadata']['uid']}"
        raise conflict("", "pods", name, why)
    if meta.get("resourceVersion") and meta["resourceVersion"] != str(entry.revision):
        raise stale("", "pods", name)
    if problem := bind(value, binding, timestamp(registry.now())):
        raise _refused(name, problem)
    if not request.dry_run():
        _, done = registry.store.put(registry.table(pods), entry.key, value)
        await done
    response = {"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success"}
    return encoded_response(negotiation.encode(response), negotiated, 201)


def _binding(request: Request) -> Json:
    body = parse_body(request.body, request.header("content-type"), "Binding")
    if not isinstance(body, dict) or body.get("kind", "Binding") != "Binding":
        raise bad_request("not a Binding object")
    bare = {key: item for key, item in body.items() if key not in ("kind", "apiVersion")}
    try:
        return Decoder().object(bare, named(_SCHEMA))
    except TypeMismatchError as error:
        raise DecodeError("Binding", "v1", str(error)) from error


def _refused(name: str, problem: str) -> StatusError:
    message = f'Operation cannot be fulfilled on pods/binding "{name}": {problem}'
    return StatusError(409, "Conflict", message, {"name": name, "kind": "pods/binding"})
