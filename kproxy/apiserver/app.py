"""The API over ASGI: authenticate, authorize, dispatch, answer; every refusal is a metav1.Status.

The app keeps no state of its own beyond what it is given. Unknown errors are answered with 500 and logged with their
traceback; they never end the connection of anybody else.
"""

from __future__ import annotations

import asyncio
import logging
import secrets
from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any, Final
from urllib.parse import unquote

import msgspec

from kproxy.api.problems import FieldError, required
from kproxy.apiserver import discovery, represent
from kproxy.apiserver.auth import Authenticator, User
from kproxy.apiserver.catalog import Catalog
from kproxy.apiserver.columns import selector_text
from kproxy.apiserver.decode import media_type, parse_body, parse_json, parse_yaml
from kproxy.apiserver.health import Health
from kproxy.apiserver.jsonpath import find
from kproxy.apiserver.openapi import Documents
from kproxy.apiserver.rbac import Ask, Authorizer
from kproxy.apiserver.reads import Lists, selection_of
from kproxy.apiserver.registry import APPLY_PATCH, Registry, Written
from kproxy.apiserver.represent import Form, negotiate
from kproxy.apiserver.request import Request, parse_path, parse_query
from kproxy.apiserver.resources import Resource
from kproxy.apiserver.reviews import Reviews
from kproxy.apiserver.status import (
    ApiError,
    Json,
    bad_request,
    invalid,
    method_not_allowed,
    no_resource,
    not_found,
    timeout,
    too_large,
    unsupported_media_type,
)
from kproxy.apiserver.watch import Watches

Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]

log = logging.getLogger(__name__)

MOST_BODY: Final = 3 * 1024 * 1024
_BODY_TIME: Final = 30.0
_WRITE_TIME: Final = 60.0
_SEND_TIME: Final = 30.0
"""Seconds that a client may leave a full buffer unread."""
_PATCHES: Final = "application/json-patch+json, application/merge-patch+json, application/apply-patch+yaml"


class Answer:
    """A whole response."""

    __slots__ = ("body", "code", "headers", "media")

    def __init__(self, body: bytes, media: str = represent.JSON, code: int = 200, headers: Any = ()) -> None:
        self.body = body
        self.media = media
        self.code = code
        self.headers = headers


class App:
    """The ASGI application."""

    def __init__(
        self, catalog: Catalog, registry: Registry, authenticator: Authenticator, authorizer: Authorizer,
        reviews: Reviews, watches: Watches, health: Health,
    ) -> None:  # fmt: skip
        self._catalog = catalog
        self._registry = registry
        self._authenticator = authenticator
        self._authorizer = authorizer
        self._reviews = reviews
        self._watches = watches
        self._health = health
        self._lists = Lists(registry)
        self._documents = Documents()
        self._discovery: dict[Any, bytes] = {}
        catalog.on_change.append(self._forget)

    def _forget(self) -> None:
        self._documents.clear()
        self._discovery.clear()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """One request."""
        if scope["type"] != "http":
            return
        self._health.requests += 1
        headers: dict[str, str] = {}
        for name, value in scope["headers"]:
            key, text = name.decode("latin-1"), value.decode("latin-1")
            headers[key] = f"{headers[key]},{text}" if key in headers else text
        request = Request(scope["method"], "", {}, headers)
        try:
            request.path = _decoded_path(scope)
            request.query = parse_query(scope["query_string"])
            certificate = (scope.get("state") or {}).get("peer_certificate")
            user = self._authenticator.authenticate(request.header("authorization"), certificate)
            request.user = self._impersonated(request, user)
            request.target = parse_path(request.path)
            self._authorizer.require(request.user, request.ask)
            if (
                request.target.group is None
                or self._catalog.find(request.target.group, request.target.version, request.target.resource) is None
            ):
                answer = self._other(request)
            elif request.verb == "watch":
                await self._watch(request, receive, send, scope)
                return
            else:
                if request.method not in ("GET", "HEAD"):
                    request.body = await _read_body(request, receive)
                async with asyncio.timeout(_WRITE_TIME):
                    answer = await self._resource(request)
        except ApiError as error:
            answer = self._refusal(error)
        except TimeoutError:
            answer = self._refusal(timeout("request did not complete within the allowed time"))
        except RecursionError:
            answer = self._refusal(bad_request("the request is nested too deeply"))
        except Exception:
            log.exception("%s %s", request.method, request.path)
            self._health.faults += 1
            answer = self._refusal(ApiError(500, "InternalError", "Internal error occurred: unexpected error"))
        await self._respond(request, answer, send)

    def _refusal(self, error: ApiError) -> Answer:
        return Answer(represent.encode(error.status) + b"\n", represent.JSON, error.code, error.headers)

    async def _respond(self, request: Request, answer: Answer, send: Send) -> None:
        self._health.count(request, answer.code)
        headers = [
            (b"audit-id", secrets.token_hex(16).encode()),
            (b"cache-control", b"no-cache, private"),
            (b"content-type", answer.media.encode()),
            (b"content-length", b"%d" % len(answer.body)),
            *answer.headers,
            *((b"warning", _warning(text)) for text in request.warnings[:20]),
        ]
        if answer.code == 413 or (
            request.body == b"" and answer.code >= 400 and request.method in ("POST", "PUT", "PATCH")
        ):
            headers.append((b"connection", b"close"))  # the body may not have been read
        body = b"" if request.method == "HEAD" else answer.body
        try:
            async with asyncio.timeout(_SEND_TIME):
                await send({"type": "http.response.start", "status": answer.code, "headers": headers})
                await send({"type": "http.response.body", "body": body})
        except TimeoutError:
            return

    def _impersonated(self, request: Request, user: User) -> User:
        """The user that a request wants to act as, if the real one may (Impersonate-User and -Group)."""
        name = request.header("impersonate-user")
        groups = [each for each in request.header("impersonate-group").split(",") if each]
        if not name:
            if groups:
                raise bad_request("requested impersonation of groups without impersonating a user")
            return user
        parts = name.split(":")
        if name.startswith("system:serviceaccount:") and len(parts) == 4:
            self._authorizer.require(user, Ask("impersonate", "", "serviceaccounts", "", parts[2], parts[3]))
            if not groups:
                groups = ["system:serviceaccounts", f"system:serviceaccounts:{parts[2]}"]
        else:
            self._authorizer.require(user, Ask("impersonate", "", "users", "", "", name))
        for group in groups:
            if group not in ("system:serviceaccounts", "system:authenticated") and request.header("impersonate-group"):
                self._authorizer.require(user, Ask("impersonate", "", "groups", "", "", group))
        if name != "system:anonymous" and "system:authenticated" not in groups:
            groups.append("system:authenticated")
        return User(name, tuple(groups))

    # --- what is no resource ---

    def _other(self, request: Request) -> Answer:
        if request.target.group is not None:
            if self._catalog.has_group(request.target.group, request.target.version):
                raise no_resource()
            return Answer(b"404 page not found\n", "text/plain; charset=utf-8", 404)
        path = request.path.rstrip("/") or "/"
        if (found := self._health.answer(path, request.query)) is not None:
            return Answer(found[1], found[2], found[0])
        if request.method not in ("GET", "HEAD"):
            raise method_not_allowed()
        accept = request.header("accept")
        if path == "/version":
            text = msgspec.json.format(represent.encode(discovery.version_info()), indent=2)
            return Answer(text, represent.JSON)
        if path == "/":
            paths = ["/api", "/api/v1", "/apis", "/healthz", "/livez", "/metrics", "/openapi/v2", "/openapi/v3",
                     "/readyz", "/version"]  # fmt: skip
            return Answer(represent.encode({"paths": paths}), represent.JSON)
        if path.startswith("/openapi/"):
            return self._openapi(path, request, accept)
        return self._discover(path, accept)

    def _openapi(self, path: str, request: Request, accept: str) -> Answer:
        groups: dict[str, list[Resource]] = {}
        for resource in self._catalog:
            place = f"apis/{resource.group}/{resource.version}" if resource.group else f"api/{resource.version}"
            groups.setdefault(place, []).append(resource)
        if path == "/openapi/v3":
            return Answer(represent.encode(self._documents.index(groups)), "text/plain; charset=utf-8")
        if path == "/openapi/v2":
            protobuf = "proto-openapi.spec.v2@v1.0+protobuf" in accept
            media = "application/com.github.proto-openapi.spec.v2.v1.0+protobuf" if protobuf else "application/json"
            return Answer(self._documents.v2(list(self._catalog), protobuf=protobuf), media)
        place = path.removeprefix("/openapi/v3/")
        if place not in groups:
            return Answer(b"404 page not found\n", "text/plain; charset=utf-8", 404)
        headers = [(b"vary", b"Accept")]
        return Answer(self._documents.v3(place, groups[place]), "application/json", 200, headers)

    def _discover(self, path: str, accept: str) -> Answer:
        aggregated = discovery.wants_aggregated(accept) if path in ("/api", "/apis") else ""
        key = (path, aggregated)
        if key not in self._discovery:
            made = self._make_discovery(path, aggregated)
            if made is None:
                return Answer(b"404 page not found\n", "text/plain; charset=utf-8", 404)
            if len(self._discovery) < 500:
                self._discovery[key] = represent.encode(made) + b"\n"
            else:
                return Answer(represent.encode(made))
        media = f"application/json;g=apidiscovery.k8s.io;v={aggregated};as={discovery.AGGREGATED}"
        return Answer(self._discovery[key], media if aggregated else represent.JSON, 200, [(b"vary", b"Accept")])

    def _make_discovery(self, path: str, aggregated: str) -> Json | None:
        resources = list(self._catalog)
        if path in ("/api", "/apis") and aggregated:
            wanted = [each for each in resources if bool(each.group) == (path == "/apis")]
            return discovery.aggregated(wanted, aggregated)
        if path == "/api":
            return discovery.api_versions("")
        if path == "/apis":
            return discovery.group_list(resources)
        parts = path.strip("/").split("/")
        groups = discovery.groups_of(resources)
        if parts[0] == "apis" and len(parts) == 2 and parts[1] in groups:
            return {"kind": "APIGroup", "apiVersion": "v1", **discovery.group(parts[1], groups[parts[1]])}
        group, version = ("", parts[1]) if parts[0] == "api" and len(parts) == 2 else ("?", "")
        if parts[0] == "apis" and len(parts) == 3:
            group, version = parts[1], parts[2]
        rows = groups.get(group, {}).get(version)
        if rows is None:
            return None
        return discovery.resource_list(f"{group}/{version}" if group else version, rows)

    # --- resources ---

    async def _resource(self, request: Request) -> Answer:
        target = request.target
        resource = self._catalog.find(target.group or "", target.version, target.resource)
        assert resource is not None
        if target.rest or (target.namespace and not resource.namespaced and resource.storage != "namespaces"):
            raise no_resource()
        if resource.storage == "namespaces" and target.namespace and target.name != target.namespace:
            raise no_resource()
        if target.subresource:
            return await self._subresource(request, resource)
        if not target.name:
            return await self._collection(request, resource)
        if not resource.stored or (resource.namespaced and not target.namespace):
            raise no_resource()
        return await self._object(request, resource)

    async def _collection(self, request: Request, resource: Resource) -> Answer:
        verb = request.verb
        if verb not in resource.verbs:
            raise method_not_allowed()
        if verb == "list":
            form = negotiate(request.header("accept"))
            body = await self._lists.answer(request, resource, form)
            return Answer(*represent.to_media(body, form))
        if resource.namespaced and not request.target.namespace:
            raise method_not_allowed()
        if verb == "deletecollection":
            return await self._delete_collection(request, resource)
        if resource.stored:
            return await self._create(request, resource)
        form = negotiate(request.header("accept"))
        body, text = parse_body(request.body, request.header("content-type"), resource.kind)
        value, request.warnings = self._reviews.review(
            resource, request.target.namespace, body, text, request.options(), request.user
        )
        return Answer(*represent.to_media(represent.full_value(resource, value), form), code=201)

    async def _create(self, request: Request, resource: Resource) -> Answer:
        form = negotiate(request.header("accept"))
        body, text = parse_body(request.body, request.header("content-type"), resource.kind)
        written = self._registry.create(
            resource, request.target.namespace, body, request.options(), text=text, user=request.user
        )
        return await self._written(request, resource, written, form)

    async def _written(self, request: Request, resource: Resource, written: Written, form: Form) -> Answer:
        if written.done is not None:
            await asyncio.shield(written.done)
        request.warnings = written.warnings
        if written.status is not None:
            return Answer(*represent.to_media(represent.encode(written.status), form), code=written.code)
        if written.entry is not None and not form.shape:
            return Answer(*represent.to_media(represent.full(resource, written.entry), form), code=written.code)
        value = Registry.shown(resource, written.value)
        body = represent.one(resource, value, form, self._registry.now, request.query.get("includeObject", ""))
        return Answer(*represent.to_media(body, form), code=written.code)

    async def _object(self, request: Request, resource: Resource) -> Answer:
        target, method = request.target, request.method
        form = negotiate(request.header("accept"))
        if method in ("GET", "HEAD"):
            return await self._get(request, resource, form)
        if method == "PUT" and "update" in resource.verbs:
            body, text = parse_body(request.body, request.header("content-type"), resource.kind)
            written = self._registry.update(
                resource, target.namespace, target.name, body, request.options(), text=text, user=request.user
            )
        elif method == "PATCH" and "patch" in resource.verbs:
            written = self._patch(request, resource)
        elif method == "DELETE" and "delete" in resource.verbs:
            options = request.delete_options(_optional_body(request))
            written = self._registry.delete(resource, target.namespace, target.name, options)
        else:
            raise method_not_allowed()
        return await self._written(request, resource, written, form)

    async def _get(self, request: Request, resource: Resource, form: Form) -> Answer:
        target = request.target
        table = self._registry.table(resource)
        key = self._registry.key(resource, target.namespace, target.name)
        entry = table.entries.get(key)
        if entry is None:
            raise not_found(resource.group, resource.plural, target.name)
        if not form.shape:
            return Answer(*represent.to_media(represent.full(resource, entry), form))
        value = Registry.shown(resource, entry.value)
        body = represent.one(resource, value, form, self._registry.now, request.query.get("includeObject", ""))
        return Answer(*represent.to_media(body, form))

    def _patch(self, request: Request, resource: Resource, subresource: str = "") -> Written:
        media = media_type(request.header("content-type"))
        options = request.options()
        if media == APPLY_PATCH:
            if not request.query.get("fieldManager"):
                errors = [required("fieldManager", "is required for apply patch")]
                raise invalid("meta.k8s.io", "PatchOptions", "", errors)
        elif request.flag("force"):
            errors = [FieldError("force", "Forbidden: may not be specified for non-apply patch")]
            raise invalid("meta.k8s.io", "PatchOptions", "", errors)
        if not media.startswith("application/") or "patch" not in media:
            raise unsupported_media_type(
                _PATCHES
                if resource.custom
                else _PATCHES.replace(
                    ", application/apply", ", application/strategic-merge-patch+json, application/apply"
                )
            )
        try:
            patch = parse_yaml(request.body) if media == APPLY_PATCH else parse_json(request.body)
        except ValueError as error:
            raise bad_request(f"error decoding patch: {error}") from error
        target = request.target
        return self._registry.patch(
            resource, target.namespace, target.name, patch, media, options, subresource=subresource, user=request.user
        )

    async def _delete_collection(self, request: Request, resource: Resource) -> Answer:
        form = negotiate(request.header("accept"))
        options = request.delete_options(_optional_body(request))
        selection = selection_of(request, resource)
        table = self._registry.table(resource)
        revision = self._registry.store.revision
        selected = [entry for entry in table.in_namespace(selection.namespace) if selection.matches(entry)]
        futures = []
        for entry in selected:
            if table.head(entry.key) is None:
                continue
            written = self._registry.delete(resource, entry.namespace, entry.name, options)
            if written.done is not None:
                futures.append(written.done)
        if futures:
            await asyncio.gather(*futures)
        head = f'{{"kind":"{resource.list_kind}","apiVersion":"{resource.api_version}","metadata":'.encode()
        items = b",".join(represent.item(resource, entry) for entry in selected)
        metadata = represent.encode({"resourceVersion": str(revision)})
        return Answer(*represent.to_media(b"".join((head, metadata, b',"items":[', items, b"]}")), form))

    # --- subresources ---

    async def _subresource(self, request: Request, resource: Resource) -> Answer:
        target, method = request.target, request.method
        found = resource.subresource(target.subresource)
        if found is None or (resource.namespaced and not target.namespace):
            raise no_resource()
        verb = {"GET": "get", "HEAD": "get", "PUT": "update", "PATCH": "patch", "POST": "create"}.get(method, "")
        if verb not in found.verbs:
            raise method_not_allowed()
        form = negotiate(request.header("accept"))
        if target.subresource == "scale":
            return await self._scale(request, resource, form)
        if target.subresource == "token":
            body, text = parse_body(request.body, request.header("content-type"), found.kind)
            value, request.warnings = self._reviews.token_request(
                resource, target.namespace, target.name, body, text, request.options()
            )
            shown = {"kind": found.kind, "apiVersion": f"{found.group}/{found.version}", **value}
            return Answer(*represent.to_media(represent.encode(shown), form), code=201)
        if verb == "get":
            return await self._get(request, resource, form)
        if verb == "patch":
            written = self._patch(request, resource, target.subresource)
        else:
            body, text = parse_body(request.body, request.header("content-type"), resource.kind)
            written = self._registry.update(
                resource, target.namespace, target.name, body, request.options(), text=text,
                subresource=target.subresource, user=request.user,
            )  # fmt: skip
        return await self._written(request, resource, written, form)

    async def _scale(self, request: Request, resource: Resource, form: Form) -> Answer:
        target = request.target
        entry = self._registry.head(resource, target.namespace, target.name)
        path = ((resource.scale or {}).get("specReplicasPath") or ".spec.replicas").strip(".").split(".")
        if request.method in ("PUT", "PATCH"):
            body = self._new_scale(request, resource, _scale_of(resource, entry.value))
            wanted = (body.get("spec") or {}).get("replicas", 0)
            if isinstance(wanted, bool) or not isinstance(wanted, int):
                raise bad_request("json: cannot unmarshal into Go struct field ScaleSpec.spec.replicas of type int32")
            if wanted < 0:
                text = f"Invalid value: {wanted}: must be greater than or equal to 0"
                raise invalid("autoscaling", "Scale", target.name, [FieldError("spec.replicas", text)])
            version = (body.get("metadata") or {}).get("resourceVersion", "")
            if request.method == "PATCH" and version == str(entry.revision):
                version = ""
            written = self._registry.set_replicas(resource, entry, path, wanted, request.options(), version)
            if written.done is not None:
                await asyncio.shield(written.done)
            shown = _scale_of(resource, written.value)
        else:
            shown = _scale_of(resource, entry.value)
        return Answer(*represent.to_media(represent.encode(shown), form))

    @staticmethod
    def _new_scale(request: Request, resource: Resource, current: Json) -> Json:
        from kproxy.apiserver.patch import apply_json_patch, apply_merge_patch

        if request.method == "PUT":
            body, _ = parse_body(request.body, request.header("content-type"), "Scale")
        else:
            media = media_type(request.header("content-type"))
            try:
                patch = parse_json(request.body)
            except ValueError as error:
                raise bad_request(f"error decoding patch: {error}") from error
            if media == "application/json-patch+json":
                body = apply_json_patch(current, patch)
            elif media in ("application/merge-patch+json", "application/strategic-merge-patch+json"):
                body = apply_merge_patch(current, patch)
            else:
                raise unsupported_media_type(_PATCHES)
        if (
            not isinstance(body, dict)
            or not isinstance(body.get("spec") or {}, dict)
            or not isinstance(body.get("metadata") or {}, dict)
        ):
            raise bad_request("the object provided is unrecognized (must be of type Scale)")
        return body

    # --- watch ---

    async def _watch(self, request: Request, receive: Receive, send: Send, scope: Scope) -> None:
        target = request.target
        resource = self._catalog.find(target.group or "", target.version, target.resource)
        assert resource is not None
        if "watch" not in resource.verbs:
            raise method_not_allowed()
        form = negotiate(request.header("accept"))
        watcher = self._watches.open(request, resource, form)
        media = represent.JSON
        headers = [
            (b"audit-id", secrets.token_hex(16).encode()),
            (b"cache-control", b"no-cache, private"),
            (b"content-type", media.encode()),
        ]
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        self._health.count(request, 200)

        async def until_gone() -> None:
            while (await receive())["type"] != "http.disconnect":
                pass
            watcher.stop()

        listening = asyncio.ensure_future(until_gone())
        abort = (scope.get("state") or {}).get("abort")
        chunks = watcher.chunks()
        try:
            async for chunk in chunks:
                async with asyncio.timeout(_SEND_TIME):
                    await send({"type": "http.response.body", "body": chunk, "more_body": True})
            await send({"type": "http.response.body", "body": b""})
        except TimeoutError:
            self._health.dropped += 1
            if abort is not None:
                abort()
        finally:
            listening.cancel()
            await chunks.aclose()


def _decoded_path(scope: Scope) -> str:
    """The path with its percent signs resolved; an encoded slash or a control character names nothing.

    Raises:
        ApiError: 404 or 400.
    """
    raw = scope.get("raw_path") or scope["path"].encode()
    text: str = raw.decode("latin-1").partition("?")[0]
    if "%" in text:
        if "%2f" in text.lower() or "%00" in text:
            raise no_resource()
        try:
            text = unquote(text, errors="strict")
        except UnicodeDecodeError as error:
            raise bad_request("the path is not UTF-8") from error
    if not text.isprintable():
        raise bad_request("the path holds control characters")
    return text


async def _read_body(request: Request, receive: Receive) -> bytes:
    length = request.header("content-length")
    if length.isdecimal() and int(length) > MOST_BODY:
        raise too_large(MOST_BODY)
    parts: list[bytes] = []
    size = 0
    async with asyncio.timeout(_BODY_TIME):
        while True:
            message = await receive()
            if message["type"] == "http.disconnect":
                raise bad_request("the client has gone")
            parts.append(message.get("body", b""))
            size += len(parts[-1])
            if size > MOST_BODY:
                raise too_large(MOST_BODY)
            if not message.get("more_body"):
                return parts[0] if len(parts) == 1 else b"".join(parts)


def _optional_body(request: Request) -> Any:
    if not request.body:
        return None
    value, _ = parse_body(request.body, request.header("content-type"), "DeleteOptions")
    if not isinstance(value, dict):
        raise bad_request("json: cannot unmarshal into Go value of type v1.DeleteOptions")
    return value


def _warning(text: str) -> bytes:
    plain = "".join(character if " " <= character <= "~" else "?" for character in text)[:1024]
    escaped = plain.replace("\\", "\\\\").replace('"', '\\"')
    return f'299 - "{escaped}"'.encode()


def _scale_of(resource: Resource, value: Json) -> Json:
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
        selector = selector_text(value["spec"].get("selector"))
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
