"""The verbs over HTTP, for any resource: from a request to the registry or a list, and back to an answer."""

from __future__ import annotations

import asyncio
from typing import Any

from kproxy.api.fielderror import forbidden, required
from kproxy.apiserver.endpoints import negotiation
from kproxy.apiserver.endpoints.binding import handle_binding
from kproxy.apiserver.endpoints.eviction import handle_eviction
from kproxy.apiserver.endpoints.lists import Lists, selection_of, version_of, wait_for
from kproxy.apiserver.endpoints.negotiation import MediaType, Response, encoded_response, entry_response, negotiate_for
from kproxy.apiserver.endpoints.podstreams import PodStreams
from kproxy.apiserver.endpoints.request import Request, Target
from kproxy.apiserver.endpoints.reviews import Reviews
from kproxy.apiserver.endpoints.scale import handle_scale
from kproxy.apiserver.errors import bad_request, invalid, method_not_allowed, no_resource, not_found
from kproxy.apiserver.kinds.resources import Resource
from kproxy.apiserver.registry.patching import check_media
from kproxy.apiserver.registry.registry import Registry
from kproxy.apiserver.registry.writes import APPLY_PATCH, WriteResult
from kproxy.apiserver.schema.decode import is_yaml, media_type, parse_body, parse_json, parse_yaml, read_yaml


def check_path(target: Target, resource: Resource) -> None:
    """Refuses a path that authorization took for one in a namespace, or for one of the cluster, and that is none: who
    may watch everything in `default` may not watch `/api/v1/namespaces/default/nodes`.

    Raises:
        StatusError: 404.
    """
    if resource.strategy.is_namespace:
        fits = target.name == target.namespace or not target.namespace
    elif resource.namespaced:
        fits = bool(target.namespace) or not target.name
    else:
        fits = not target.namespace
    if not fits or target.rest:
        raise no_resource()


class ResourceHandler:
    """Answers requests about resources."""

    def __init__(self, registry: Registry, reviews: Reviews, pods: Resource, pod_streams: PodStreams) -> None:
        self._registry = registry
        self._pods = pods
        self._reviews = reviews
        self._pod_streams = pod_streams
        self._lists = Lists(registry)

    async def handle(self, request: Request, resource: Resource) -> Response:
        """Does what a request asks for, and says how it went.

        Raises:
            StatusError: it is refused.
        """
        target = request.target
        if is_yaml(request.header("content-type")):
            request.body = await asyncio.to_thread(read_yaml, request.body)
        if target.subresource:
            return await self._subresource(request, resource)
        if not target.name:
            return await self._collection(request, resource)
        if not resource.stored:
            raise no_resource()
        return await self._object(request, resource)

    async def _collection(self, request: Request, resource: Resource) -> Response:
        verb = request.verb
        if verb not in resource.verbs or verb not in ("list", "create", "deletecollection"):
            raise method_not_allowed()
        if verb == "list":
            negotiated = negotiate_for(request, resource)
            return await self._lists.handle(request, resource, negotiated)
        if resource.namespaced and not request.target.namespace:
            raise method_not_allowed()
        if verb == "deletecollection":
            return await self._delete_collection(request, resource)
        if resource.stored:
            return await self._create(request, resource)
        negotiated = negotiate_for(request, resource)
        if resource.storage == "bindings":
            return await handle_binding(self._registry, request, resource, self._pods, negotiated)
        body = parse_body(request.body, request.header("content-type"), resource.kind)
        value, request.warnings = self._reviews.review(
            resource, request.target.namespace, body, request.options(), request.user
        )
        return encoded_response(negotiation.one(resource, value, negotiated, self._registry.now, ""), negotiated, 201)

    async def _create(self, request: Request, resource: Resource) -> Response:
        negotiated = negotiate_for(request, resource)
        body = parse_body(request.body, request.header("content-type"), resource.kind)
        result = await self._registry.create(
            resource, request.target.namespace, body, request.options(), user=request.user
        )
        return await self._write_response(request, resource, result, negotiated)

    async def _write_response(
        self, request: Request, resource: Resource, result: WriteResult, negotiated: MediaType
    ) -> Response:
        if result.done is not None:
            await result.done
        request.warnings = result.warnings
        if result.status is not None:
            return encoded_response(negotiation.encode(result.status), negotiated, result.code)
        if result.entry is not None and not negotiated.shape:
            return entry_response(resource, result.entry, negotiated, result.code)
        value = resource.strategy.to_version(result.value)
        body = negotiation.one(resource, value, negotiated, self._registry.now, request.query.get("includeObject", ""))
        return encoded_response(body, negotiated, result.code)

    async def _object(self, request: Request, resource: Resource) -> Response:
        target, method = request.target, request.method
        negotiated = negotiate_for(request, resource)
        if method in ("GET", "HEAD"):
            return await self._get(request, resource, negotiated)
        if method == "PUT" and "update" in resource.verbs:
            body = parse_body(request.body, request.header("content-type"), resource.kind)
            result = await self._registry.update(
                resource, target.namespace, target.name, body, request.options(), user=request.user
            )
        elif method == "PATCH" and "patch" in resource.verbs:
            result = await self._patch(request, resource)
        elif method == "DELETE" and "delete" in resource.verbs:
            options = request.delete_options(optional_body(request))
            result = await self._registry.delete(resource, target.namespace, target.name, options, request.user)
        else:
            raise method_not_allowed()
        return await self._write_response(request, resource, result, negotiated)

    async def _get(self, request: Request, resource: Resource, negotiated: MediaType) -> Response:
        target = request.target
        table = self._registry.table(resource)
        key = self._registry.key(resource, target.namespace, target.name)
        version = version_of(request)
        if version:
            await wait_for(self._registry.store, version)
        entry = table.entries.get(key)
        if entry is None:
            raise not_found(resource.group, resource.plural, target.name)
        if not negotiated.shape:
            return entry_response(resource, entry, negotiated)
        value = resource.strategy.to_version(entry.value)
        body = negotiation.one(resource, value, negotiated, self._registry.now, request.query.get("includeObject", ""))
        return encoded_response(body, negotiated)

    async def _patch(self, request: Request, resource: Resource, subresource: str = "") -> WriteResult:
        media = media_type(request.header("content-type"))
        options = request.options()
        if media == APPLY_PATCH:
            if not request.query.get("fieldManager"):
                errors = [required("fieldManager", "is required for apply patch")]
                raise invalid("meta.k8s.io", "PatchOptions", "", errors)
        elif request.flag("force"):
            errors = [forbidden("force", "may not be specified for non-apply patch")]
            raise invalid("meta.k8s.io", "PatchOptions", "", errors)
        check_media(resource, media)
        try:
            patch = parse_yaml(request.body) if media == APPLY_PATCH else parse_json(request.body)
        except ValueError as error:
            raise bad_request(f"error decoding patch: {error}") from error
        target = request.target
        return await self._registry.patch(
            resource, target.namespace, target.name, patch, media, options,
            subresource=subresource, user=request.user,
        )  # fmt: skip

    async def _delete_collection(self, request: Request, resource: Resource) -> Response:
        negotiated = negotiate_for(request, resource)
        options = request.delete_options(optional_body(request))
        selection = selection_of(request, resource)
        table = self._registry.table(resource)
        revision = self._registry.store.revision
        selected = [entry for entry in table.in_namespace(selection.namespace) if selection.matches(entry)]
        futures = []
        for entry in selected:
            if table.head(entry.key) is None:
                continue
            result = await self._registry.delete(resource, entry.namespace, entry.name, options, request.user)
            if result.done is not None:
                futures.append(result.done)
        if futures:
            await asyncio.gather(*futures)
        head = f'{{"kind":"{resource.list_kind}","apiVersion":"{resource.api_version}","metadata":'.encode()
        items = b",".join(negotiation.item(resource, entry) for entry in selected)
        metadata = negotiation.encode({"resourceVersion": str(revision)})
        return encoded_response(b"".join((head, metadata, b',"items":[', items, b"]}")), negotiated)

    async def _subresource(self, request: Request, resource: Resource) -> Response:
        target, method = request.target, request.method
        found = resource.subresource(target.subresource)
        if found is None:
            raise no_resource()
        verb = {"GET": "get", "HEAD": "get", "PUT": "update", "PATCH": "patch", "POST": "create",
                "DELETE": "delete"}.get(method, "")  # fmt: skip
        if verb not in found.verbs:
            raise method_not_allowed()
        if target.subresource == "exec":
            raise self._pod_streams.refuse(request)
        negotiated = negotiate_for(request, resource)
        if target.subresource == "binding":
            return await handle_binding(self._registry, request, resource, resource, negotiated)
        if target.subresource == "eviction":
            return await handle_eviction(self._registry, request, resource, negotiated)
        if target.subresource == "scale":
            return await handle_scale(self._registry, request, resource, negotiated)
        if target.subresource == "token":
            body = parse_body(request.body, request.header("content-type"), found.kind)
            if isinstance(body, dict):
                await self._registry.admit(
                    resource, target.namespace, target.name, "token", body, None, request.user, request.warnings,
                    dry_run=request.dry_run(),
                )  # fmt: skip
            value, warnings = self._reviews.token_request(
                resource, target.namespace, target.name, body, request.options(), request.user
            )
            request.warnings += warnings
            made = {"kind": found.kind, "apiVersion": f"{found.group}/{found.version}", **value}
            return encoded_response(negotiation.encode(made), negotiated, 201)
        if verb == "get":
            return await self._get(request, resource, negotiated)
        if verb == "patch":
            result = await self._patch(request, resource, target.subresource)
        else:
            body = parse_body(request.body, request.header("content-type"), resource.kind)
            result = await self._registry.update(
                resource, target.namespace, target.name, body, request.options(),
                subresource=target.subresource, user=request.user,
            )  # fmt: skip
        return await self._write_response(request, resource, result, negotiated)


def optional_body(request: Request) -> Any:
    if not request.body:
        return None
    value = parse_body(request.body, request.header("content-type"), "DeleteOptions")
    if not isinstance(value, dict):
        raise bad_request("json: cannot unmarshal into Go value of type v1.DeleteOptions")
    return value
