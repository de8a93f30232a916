"""Paths that name no resource: health, metrics, version, OpenAPI, discovery.

Discovery and OpenAPI are made on demand and kept until a CustomResourceDefinition changes what is served.
"""

from __future__ import annotations

from typing import Any

import msgspec

from kproxy.apiserver.endpoints import discovery, negotiation
from kproxy.apiserver.endpoints.health import Health
from kproxy.apiserver.endpoints.negotiation import Response
from kproxy.apiserver.endpoints.openapi import Documents
from kproxy.apiserver.endpoints.request import Request
from kproxy.apiserver.errors import Json, method_not_allowed, no_resource
from kproxy.apiserver.kinds.resources import Resource
from kproxy.apiserver.registry.catalog import Catalog


class NonResourceHandler:
    """The paths beside the resources."""

    def __init__(self, catalog: Catalog, health: Health) -> None:
        self._catalog = catalog
        self._health = health
        self._documents = Documents()
        self._discovery: dict[Any, bytes] = {}
        catalog.on_change.append(self._forget)

    def _forget(self) -> None:
        self._documents.clear()
        self._discovery.clear()

    def handle(self, request: Request) -> Response:
        """The answer to a path that names no resource served here.

        Raises:
            StatusError: 404 or 405.
        """
        if request.target.group is not None:
            if self._catalog.has_group(request.target.group, request.target.version):
                raise no_resource()
            return Response(b"404 page not found\n", "text/plain; charset=utf-8", 404)
        path = request.path.rstrip("/") or "/"
        if (found := self._health.handle(path, request.query)) is not None:
            return Response(found[1], found[2], found[0])
        if request.method not in ("GET", "HEAD"):
            raise method_not_allowed()
        accept = request.header("accept")
        if path == "/version":
            text = msgspec.json.format(negotiation.encode(discovery.version_info()), indent=2)
            return Response(text, negotiation.JSON)
        if path == "/":
            paths = [
                "/api", "/api/v1", "/apis", "/healthz", "/livez", "/metrics", "/openapi/v2", "/openapi/v3", "/readyz",
                "/version",
            ]  # fmt: skip
            return _pretty(request, Response(negotiation.encode({"paths": paths}), negotiation.JSON))
        if path.startswith("/openapi/"):
            return self._openapi(path, request, accept)
        return _pretty(request, self._discover(path, accept))

    def _openapi(self, path: str, request: Request, accept: str) -> Response:
        groups: dict[str, list[Resource]] = {}
        for resource in self._catalog:
            name = f"apis/{resource.group}/{resource.version}" if resource.group else f"api/{resource.version}"
            groups.setdefault(name, []).append(resource)
        if path == "/openapi/v3":
            return Response(negotiation.encode(self._documents.index(groups)), "text/plain; charset=utf-8")
        if path == "/openapi/v2":
            protobuf = "proto-openapi.spec.v2@v1.0+protobuf" in accept
            media = "application/com.github.proto-openapi.spec.v2.v1.0+protobuf" if protobuf else "application/json"
            return Response(self._documents.v2(list(self._catalog), protobuf=protobuf), media)
        name = path.removeprefix("/openapi/v3/")
        if name not in groups:
            return Response(b"404 page not found\n", "text/plain; charset=utf-8", 404)
        headers = [(b"vary", b"Accept")]
        return Response(self._documents.v3(name, groups[name]), "application/json", 200, headers)

    def _discover(self, path: str, accept: str) -> Response:
        aggregated = discovery.wants_aggregated(accept) if path in ("/api", "/apis") else ""
        key = (path, aggregated)
        if key not in self._discovery:
            made = self._make_discovery(path, aggregated)
            if made is None:
                return Response(b"404 page not found\n", "text/plain; charset=utf-8", 404)
            if len(self._discovery) < 500:
                self._discovery[key] = negotiation.encode(made) + b"\n"
            else:
                return Response(negotiation.encode(made))
        media = f"application/json;g=apidiscovery.k8s.io;v={aggregated};as={discovery.AGGREGATED}"
        return Response(self._discovery[key], media if aggregated else negotiation.JSON, 200, [(b"vary", b"Accept")])

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


def _pretty(request: Request, response: Response) -> Response:
    """An answer that is indented if it is JSON and a person reads it."""
    if response.code != 200 or not negotiation.is_pretty(request):
        return response
    return Response(msgspec.json.format(response.body, indent=2) + b"\n", response.media, 200, response.headers)
