"""Pods, as far as traces need them: their addresses, their node, and their named ports.

`kproxy.api` has no use for Pods and skips them. A Pod is known here from its own object, or, where the manifests hold
none, from the `targetRef` of the endpoints that it stands behind.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import msgspec

from kproxy.api.document.json_text import split_json
from kproxy.api.document.tree import DocumentError
from kproxy.api.document.yaml_text import read_yaml
from kproxy.api.load.manifests import SUFFIXES

MAX_LISTS: Final = 8


@dataclass(frozen=True, slots=True)
class Pod:
    """A Pod. `node` is empty if not known; `ports` are container ports by name, with protocol."""

    name: str
    addresses: tuple[str, ...]
    node: str = ""
    host_network: bool = False
    ports: Mapping[str, tuple[int, str]] = field(default_factory=dict)


def read_pods(filenames: Iterable[str], stdin: bytes = b"") -> dict[str, Pod]:
    """The Pods of manifests by `namespace/name`. The files have been loaded as manifests before, so whatever is wrong
    with them has been reported. `stdin` is what standard input (`-`) held."""
    pods: dict[str, Pod] = {}
    referred: dict[str, Pod] = {}
    for data in _contents(filenames, stdin):
        for value in _objects(data):
            kind = value.get("kind")
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


def _contents(filenames: Iterable[str], stdin: bytes) -> Iterator[bytes]:
    for name in filenames:
        if name == "-":
            yield stdin
            continue
        path = Path(name)
        for file in sorted(path.iterdir()) if path.is_dir() else [path]:
            if file == path or (file.suffix in SUFFIXES and not file.is_dir()):
                yield file.read_bytes()


def _objects(data: bytes) -> Iterator[dict[str, Any]]:
    stripped = data.removeprefix(b"\xef\xbb\xbf").lstrip()
    if b"Pod" not in stripped:
        return
    if stripped[:1] == b"{":
        try:
            for _, piece in split_json(stripped):
                yield from _opened(msgspec.json.decode(piece))
            return
        except msgspec.DecodeError:
            pass  # YAML in flow style
    try:
        for document in read_yaml(stripped.decode("utf-8")):
            yield from _opened(document.value)
    except DocumentError:
        return


def _opened(value: object, depth: int = 0) -> Iterator[dict[str, Any]]:
    if not isinstance(value, dict):
        return
    items = value.get("items")
    if isinstance(items, list) and depth < MAX_LISTS:
        kind = str(value.get("kind") or "").removesuffix("List")
        for item in items:
            if isinstance(item, dict) and "kind" not in item and kind:
                item = {**item, "kind": kind}
            yield from _opened(item, depth + 1)
        return
    yield value


def _mapping(value: object) -> Mapping[str, Any]:
    return value if isinstance(value, dict) else {}


def _list(value: object) -> list[Any]:
    return value if isinstance(value, list) else []


def _name(value: Mapping[str, Any]) -> str:
    metadata = _mapping(value.get("metadata"))
    return f"{metadata.get('namespace') or 'default'}/{metadata.get('name')}"


def _pod(value: Mapping[str, Any]) -> Pod:
    spec, status = _mapping(value.get("spec")), _mapping(value.get("status"))
    found = [str(_mapping(item).get("ip") or "") for item in _list(status.get("podIPs"))]
    addresses = dict.fromkeys(ip for ip in [str(status.get("podIP") or ""), *found] if ip)
    ports = {}
    for container in _list(spec.get("containers")):
        for port in map(_mapping, _list(_mapping(container).get("ports"))):
            if port.get("name") and isinstance(port.get("containerPort"), int):
                ports[str(port["name"])] = (port["containerPort"], str(port.get("protocol") or "TCP"))
    node, shared = str(spec.get("nodeName") or ""), spec.get("hostNetwork") is True
    return Pod(_name(value), tuple(addresses), node, shared, ports)


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
            found = tuple(str(address) for address in addresses[:1] if address)
            yield Pod(name, found, str(_mapping(item).get("nodeName") or ""))
