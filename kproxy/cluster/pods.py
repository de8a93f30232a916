"""Pods, as far as traces need them: their addresses, their node, and their named ports.

`kproxy.api` has no use for Pods and skips them. A Pod is known here from its own object, or, where the manifests hold
none, from the `targetRef` of the endpoints that it stands behind.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

import msgspec

from kproxy.api.addresses import canonical_ip
from kproxy.api.load.reader import RawObject

ENDED: Final = ("Succeeded", "Failed")
"""Phases in which a Pod's address may be another one's by now."""


@dataclass(frozen=True, slots=True)
class Pod:
    """A Pod.

    Attributes:
        name: `namespace/name`.
        node: empty if not known.
        ports: container ports by name, with protocol.
        phase: of its status; empty if not known.
        ready: whether its condition Ready is true; None if not known.
        terminating: whether it is being deleted.
    """

    name: str
    addresses: tuple[str, ...]
    node: str = ""
    host_network: bool = False
    ports: Mapping[str, tuple[int, str]] = field(default_factory=dict)
    phase: str = ""
    ready: bool | None = None
    terminating: bool = False


def read_pods(objects: Iterable[RawObject]) -> dict[str, Pod]:
    """The Pods among the objects of manifests, by `namespace/name`."""
    pods: dict[str, Pod] = {}
    referred: dict[str, Pod] = {}
    for each in objects:
        value = each if isinstance(each, dict) else msgspec.json.decode(each)
        kind = value["kind"]
        if kind == "Pod":
            pod = _pod(value)
            pods[pod.name] = pod
        elif kind in ("EndpointSlice", "Endpoints"):
            for pod in _referred(value):
                known = referred.get(pod.name)
                addresses = dict.fromkeys((*(known.addresses if known else ()), *pod.addresses))
                referred[pod.name] = Pod(pod.name, tuple(addresses), pod.node or (known.node if known else ""))
    for name, pod in referred.items():
        if name not in pods or not pods[name].addresses:
            pods[name] = pod
    return pods


def _mapping(value: object) -> Mapping[str, Any]:
    return value if isinstance(value, dict) else {}


def _list(value: object) -> list[Any]:
    return value if isinstance(value, list) else []


def _canonical(address: str) -> str:
    """As endpoints have it. What is no address stays as it is."""
    return canonical_ip(address) or address


def _name(value: Mapping[str, Any]) -> str:
    metadata = _mapping(value.get("metadata"))
    return f"{metadata.get('namespace') or 'default'}/{metadata.get('name')}"


def _pod(value: Mapping[str, Any]) -> Pod:
    spec, status = _mapping(value.get("spec")), _mapping(value.get("status"))
    found = [str(_mapping(item).get("ip") or "") for item in _list(status.get("podIPs"))]
    addresses = dict.fromkeys(_canonical(ip) for ip in [str(status.get("podIP") or ""), *found] if ip)
    ports = {}
    for container in _list(spec.get("containers")):
        for port in map(_mapping, _list(_mapping(container).get("ports"))):
            if port.get("name") and isinstance(port.get("containerPort"), int):
                ports[str(port["name"])] = (port["containerPort"], str(port.get("protocol") or "TCP"))
    node, shared = str(spec.get("nodeName") or ""), spec.get("hostNetwork") is True
    conditions = {item.get("type"): item.get("status") for item in map(_mapping, _list(status.get("conditions")))}
    ready = None if "Ready" not in conditions else conditions["Ready"] == "True"
    terminating = bool(_mapping(value.get("metadata")).get("deletionTimestamp"))
    phase = str(status.get("phase") or "")
    return Pod(_name(value), tuple(addresses), node, shared, ports, phase, ready, terminating)


def _referred(value: Mapping[str, Any]) -> Iterator[Pod]:
    """Pods behind the endpoints of an EndpointSlice or an Endpoints object."""
    namespace = _name(value).partition("/")[0]
    entries = [(item, _list(_mapping(item).get("addresses"))) for item in _list(value.get("endpoints"))]
    for subset in map(_mapping, _list(value.get("subsets"))):
        both = [*_list(subset.get("addresses")), *_list(subset.get("notReadyAddresses"))]
        entries += [(item, [_mapping(item).get("ip")]) for item in both]
    for item, addresses in entries:
        target = _mapping(_mapping(item).get("targetRef"))
        if target.get("kind") == "Pod" and target.get("name"):
            name = f"{target.get('namespace') or namespace}/{target['name']}"
            found = tuple(_canonical(str(address)) for address in addresses[:1] if address)
            yield Pod(name, found, str(_mapping(item).get("nodeName") or ""))
