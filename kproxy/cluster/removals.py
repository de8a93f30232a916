"""--without: a cluster in which Pods, nodes or Services are gone."""

from __future__ import annotations

import ipaddress
import json
from collections.abc import Sequence
from dataclasses import replace
from typing import Final, TypeVar

from kproxy.api import Endpoints, EndpointSlice, Manifests, Node, Service
from kproxy.api.load.manifests import load_contents
from kproxy.api.load.reader import RawObject
from kproxy.cluster.edits import Edit, EditError, by_key, edit
from kproxy.cluster.snapshot.cluster import kind_of_object
from kproxy.errors import InputError

_GONE: Final[dict[str, bool | str]] = {"ready": False, "serving": False}
_EDITED: Final = frozenset({"Service", "EndpointSlice", "Endpoints", "Node"})
"""The kinds that edits look at and that count in a cluster."""
_Value = TypeVar("_Value", Service, EndpointSlice, Endpoints, Node)


def manifests_without(
    cluster: Manifests, objects: Sequence[RawObject], refs: Sequence[str], namespace: str
) -> Manifests:
    """A cluster without what `refs` name. What they do not touch stays as it was read.

    A Pod's endpoints, or those of an address, are there and not ready, as while it is deleted; a node is gone with its
    Pods and their endpoints, a Service with its EndpointSlices.

    Args:
        cluster: EndpointSlices that mirror Endpoints included.
        objects: what it was read from.
        namespace: of names that say none.

    Raises:
        InputError: there is no such thing.
    """
    found = by_key(each for each in objects if kind_of_object(each) in _EDITED)
    edits = [_edit(ref, namespace) for ref in refs]
    for ref, each in zip(refs, edits, strict=True):
        try:
            edit(found, [each])
        except EditError as error:
            raise InputError(f"--without {ref}: {str(error).partition(': ')[2]}") from error
    edited = edit(found, edits).objects
    changed = [value for key, value in edited.items() if value is not found[key]]
    text = json.dumps({"apiVersion": "v1", "kind": "List", "items": changed})
    loaded = load_contents({f"without {', '.join(refs)}": text.encode()}) if changed else Manifests()

    def kept(kind: str, values: Sequence[_Value], new: Sequence[_Value]) -> tuple[_Value, ...]:
        """Those that are there still. What mirrors Endpoints is nobody's object, and is made again."""
        instead = {each.metadata.key: each for each in new}
        keys = {_key(kind, each): each for each in values}
        return tuple(instead.get(each.metadata.key, each) for key, each in keys.items() if key in edited)

    return replace(
        cluster,
        services=kept("Service", cluster.services, loaded.services),
        endpoint_slices=kept("EndpointSlice", cluster.endpoint_slices, loaded.endpoint_slices),
        endpoints=kept("Endpoints", cluster.endpoints, loaded.endpoints),
        nodes=kept("Node", cluster.nodes, loaded.nodes),
    ).with_mirrored_slices()


def _key(kind: str, value: Service | EndpointSlice | Endpoints | Node) -> tuple[str, str, str]:
    """What an object's edits know it by."""
    return kind, "" if isinstance(value, Node) else value.metadata.namespace, value.metadata.name


def _edit(ref: str, namespace: str) -> Edit:
    """The edit that a reference asks for. Raises InputError."""
    kind, _, name = ref.partition("/")
    if kind == "node" and name:
        return Edit("drop-node", node=name)
    if kind in ("pod", "svc") and name:
        name = name if "/" in name else f"{namespace}/{name}"
        return Edit("endpoint", pod=name, set=_GONE) if kind == "pod" else Edit("delete", service=name)
    try:
        return Edit("endpoint", address=str(ipaddress.ip_address(ref)), set=_GONE)
    except ValueError:
        raise InputError(
            f"--without {ref}: pod/NS/NAME, node/NAME, svc/NS/NAME or the address of an endpoint expected"
        ) from None
