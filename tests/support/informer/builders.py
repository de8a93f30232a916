"""Services as tests of the informers need them."""

from __future__ import annotations

import json

from kproxy.api import ObjectMeta, Service, ServicePort, ServiceSpec


def service(name: str, version: int = 1, namespace: str = "default", labels: dict[str, str] | None = None) -> Service:
    """A Service whose port is its version, so that versions differ in more than their number."""
    meta = ObjectMeta(name, namespace, labels=labels or {}, resource_version=str(version))
    return Service(meta, ServiceSpec(ports=(ServicePort(version % 65535 + 1),)))


def spelled(name: str, version: int = 1, namespace: str = "default") -> dict[str, object]:
    """The same as JSON, with its kind."""
    meta = {"name": name, "namespace": namespace, "resourceVersion": str(version)}
    return {"kind": "Service", "apiVersion": "v1", "metadata": meta, "spec": {"ports": [{"port": 80}]}}


def line(kind: str, body: object) -> bytes:
    """A line of a watch."""
    return json.dumps({"type": kind, "object": body}).encode()
