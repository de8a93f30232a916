"""A copy of a cluster in which something is changed: its objects are edited as they were read, and loaded again, so
that a copy is checked as any manifests are.
"""

from __future__ import annotations

import copy
import ipaddress
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final, TypeVar

import msgspec
import yaml

from kproxy.api import Endpoints, EndpointSlice, Manifests, Node, Service
from kproxy.api.kubeproxyconfig.types import MODE_IPTABLES, MODE_NFTABLES
from kproxy.api.load.manifests import load_contents
from kproxy.api.load.reader import RawObject
from kproxy.cluster.snapshot.cluster import kind_of_object, value_of_object
from kproxy.cluster.snapshot.files import Files, MemoryFiles
from kproxy.cluster.snapshot.layout import NODES, OBJECTS
from kproxy.errors import InputError
from kproxy.services.names import LABEL_SERVICE_NAME
from kproxy.words import listed

Object = dict[str, Any]

MAX_EDITS: Final = 200
_POLICIES: Final = {
    "internalTrafficPolicy": ("Cluster", "Local"),
    "externalTrafficPolicy": ("Cluster", "Local"),
    "sessionAffinity": ("None", "ClientIP"),
}
_CONDITIONS: Final = ("ready", "serving", "terminating")
_GONE: Final[dict[str, bool | str]] = {"ready": False, "serving": False}
_EDITED: Final = frozenset({"Service", "EndpointSlice", "Endpoints", "Node"})
"""The kinds that edits look at and that count in a cluster."""
_Value = TypeVar("_Value", Service, EndpointSlice, Endpoints, Node)


class EditError(InputError):
    """An edit that cannot be made. `field` is the one to blame; `missing`: it names what is not there."""

    def __init__(self, message: str, field: str, *, missing: bool = False) -> None:
        super().__init__(message)
        self.field = field
        self.missing = missing


class Edit(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One edit, as docs/explore.md lists them; which fields count follows from `do`."""

    do: str
    address: str = ""
    pod: str = ""
    node: str = ""
    service: str = ""
    manifest: str = ""
    mode: str = ""
    set: dict[str, bool | str] = {}

    def by_name(self) -> Edit:
        """The same with names where it has the map's ids: `web/a` for `pod/web/a`."""
        plain = {
            "pod": self.pod.removeprefix("pod/") if self.pod.count("/") > 1 else self.pod,
            "service": self.service.removeprefix("svc/") if self.service.count("/") > 1 else self.service,
            "node": self.node.removeprefix("node/"),
        }
        return msgspec.structs.replace(self, **plain)


class EditWords(msgspec.Struct, frozen=True):
    """An edit in words, and what it touches: ids of the map."""

    text: str
    touches: tuple[str, ...]


@dataclass
class Edited:
    """A copy's objects.

    Attributes:
        objects: by kind, namespace and name; kinds that are not known stay as they are.
        mode: the proxy mode, if an edit switched it.
        gone: nodes that were dropped.
        words: the edits, in words.
    """

    objects: dict[tuple[str, str, str], Object]
    mode: str | None = None
    gone: set[str] = field(default_factory=set)
    words: list[EditWords] = field(default_factory=list)


def by_key(objects: Iterable[RawObject]) -> dict[tuple[str, str, str], Object]:
    """Objects as they were read, by kind, namespace and name."""
    return {_key(value): value for value in map(value_of_object, objects)}


def _key(value: Object) -> tuple[str, str, str]:
    metadata = value.get("metadata") or {}
    kind = str(value.get("kind") or "")
    namespace = "" if kind in ("Node", "ServiceCIDR") else str(metadata.get("namespace") or "default")
    return kind, namespace, str(metadata.get("name") or "")


def edit(objects: Mapping[tuple[str, str, str], Object], edits: Sequence[Edit]) -> Edited:
    """A copy with the edits made, in their order.

    Raises:
        EditError: an edit names nothing that is there, or says nothing; or a manifest cannot be read.
    """
    if len(edits) > MAX_EDITS:
        raise EditError(f"more than {MAX_EDITS} edits", "edits")
    edited = Edited(dict(objects))
    for number, each in enumerate(edits):
        where = f"edits[{number}]"
        change = _CHANGES.get(each.do)
        if change is None:
            raise EditError(f"{where}.do: one of {', '.join(_CHANGES)} expected", f"{where}.do")
        edited.words.append(change(edited, each.by_name(), where))
    return edited


class EditedFiles:
    """A cluster's files with a copy's objects; dropped nodes have none."""

    def __init__(self, files: Files, edited: Edited) -> None:
        self.label = files.label
        self._files = files
        self._gone = tuple(f"{NODES}/{name}/" for name in edited.gone)
        by_kind: dict[str, list[Object]] = {}
        for each in edited.objects.values():
            by_kind.setdefault(str(each.get("kind")), []).append({"apiVersion": "v1", **each})
        self._own = MemoryFiles(files.label, pack=False)
        for kind, items in by_kind.items():
            found = {"apiVersion": "v1", "kind": "List", "items": items}
            self._own.put(f"{OBJECTS}/{kind}.json", _encoded(found))

    def paths(self) -> tuple[str, ...]:
        kept = [
            path
            for path in self._files.paths()
            if not path.startswith((f"{OBJECTS}/", *self._gone)) and path != OBJECTS
        ]
        return tuple(sorted((*kept, *self._own.paths())))

    def read(self, path: str) -> bytes | None:
        if path.startswith(f"{OBJECTS}/"):
            return self._own.read(path)
        return None if self._gone and path.startswith(self._gone) else self._files.read(path)


def _encoded(value: Object) -> bytes:
    """JSON; with lone surrogates, which strings of YAML may have, as they are."""
    try:
        return msgspec.json.encode(value)
    except (UnicodeEncodeError, TypeError):
        return json.dumps(value, ensure_ascii=False).encode("utf-8", "surrogatepass")


def as_manifests(edited: Edited) -> str:
    """The copy's Services, EndpointSlices, Nodes and other objects as YAML documents."""
    documents = [each for _, each in sorted(edited.objects.items(), key=lambda item: item[0])]
    texts = [yaml.safe_dump(each, sort_keys=False, allow_unicode=True) for each in documents]
    return "---\n".join(texts)


# --- what edits do ---


def _endpoint(edited: Edited, item: Edit, where: str) -> EditWords:
    """Conditions of an endpoint, in every slice that has it."""
    if not item.address and not item.pod:
        raise EditError(f"{where}: address or pod expected", f"{where}.address")
    wrong = [name for name, value in item.set.items() if name not in _CONDITIONS or not isinstance(value, bool)]
    if wrong or not item.set:
        raise EditError(f"{where}.set: ready, serving or terminating, true or false, expected", f"{where}.set")
    touches: dict[str, None] = {}
    for key, value in list(edited.objects.items()):
        service = f"{key[1]}/{_service_of(value)}"
        if key[0] != "EndpointSlice" or item.service not in ("", service):
            continue
        changed, pods = copy.deepcopy(value), []
        for entry in changed.get("endpoints") or ():
            pod = _pod_of(entry, key[1])
            if item.address in (entry.get("addresses") or ()) if item.address else pod == item.pod:
                entry["conditions"] = {**(entry.get("conditions") or {}), **item.set}
                pods.append(pod)
        if pods:
            edited.objects[key] = changed
            touches |= dict.fromkeys([*(f"pod/{pod}" for pod in pods if pod), f"svc/{service}"])
    if not touches:
        named = "address" if item.address else "pod"
        raise EditError(f"{where}: no endpoint is {item.address or item.pod}", f"{where}.{named}", missing=True)
    words = ", ".join(f"{'' if value else 'not '}{name}" for name, value in item.set.items())
    return EditWords(f"endpoint {item.address or item.pod}: {words}", tuple(touches))


def _pod_of(entry: Object, namespace: str) -> str:
    """`namespace/name` of the Pod that an endpoint is; "" if it is none."""
    target = entry.get("targetRef") or {}
    return f"{target.get('namespace') or namespace}/{target.get('name')}" if target.get("kind") == "Pod" else ""


def _service_of(value: Object) -> str:
    return str(((value.get("metadata") or {}).get("labels") or {}).get(LABEL_SERVICE_NAME) or "")


def _drop_node(edited: Edited, item: Edit, where: str) -> EditWords:
    """A node that is gone for good: with its pods, and the endpoints on it."""
    if ("Node", "", item.node) not in edited.objects:
        raise EditError(f"{where}: there is no node {item.node!r}", f"{where}.node", missing=True)
    del edited.objects["Node", "", item.node]
    edited.gone.add(item.node)
    touches = {f"node/{item.node}": None}
    for key, value in list(edited.objects.items()):
        if key[0] == "Pod" and (value.get("spec") or {}).get("nodeName") == item.node:
            del edited.objects[key]
            touches[f"pod/{key[1]}/{key[2]}"] = None
        elif key[0] == "EndpointSlice":
            entries = value.get("endpoints") or ()
            kept = [entry for entry in entries if entry.get("nodeName") != item.node]
            if len(kept) < len(entries):
                edited.objects[key] = {**value, "endpoints": kept}
                touches[f"svc/{key[1]}/{_service_of(value)}"] = None
    return EditWords(f"node {item.node} is gone", tuple(touches))


def _service(edited: Edited, item: Edit, where: str) -> tuple[tuple[str, str, str], Object]:
    namespace, _, name = item.service.rpartition("/")
    key = ("Service", namespace or "default", name)
    if key not in edited.objects:
        raise EditError(f"{where}: there is no Service {item.service!r}", f"{where}.service", missing=True)
    return key, edited.objects[key]


def _policy(edited: Edited, item: Edit, where: str) -> EditWords:
    """Traffic policies and affinity of a Service."""
    key, value = _service(edited, item, where)
    wrong = [name for name, wanted in item.set.items() if wanted not in _POLICIES.get(name, ())]
    if wrong or not item.set:
        known = "; ".join(f"{name} {' or '.join(values)}" for name, values in _POLICIES.items())
        raise EditError(f"{where}.set: {known} expected", f"{where}.set")
    spec = {**(value.get("spec") or {}), **item.set}
    if spec.get("sessionAffinity") != "ClientIP":
        spec.pop("sessionAffinityConfig", None)
    edited.objects[key] = {**value, "spec": spec}
    words = ", ".join(f"{name} {wanted}" for name, wanted in item.set.items())
    return EditWords(f"Service {key[1]}/{key[2]}: {words}", (f"svc/{key[1]}/{key[2]}",))


def _delete(edited: Edited, item: Edit, where: str) -> EditWords:
    """A Service, with its EndpointSlices."""
    key, _ = _service(edited, item, where)
    del edited.objects[key]
    for each, value in list(edited.objects.items()):
        if each == ("Endpoints", *key[1:]) or (each[:2], _service_of(value)) == (("EndpointSlice", key[1]), key[2]):
            del edited.objects[each]
    return EditWords(f"Service {key[1]}/{key[2]} is deleted", (f"svc/{key[1]}/{key[2]}",))


def _apply(edited: Edited, item: Edit, where: str) -> EditWords:
    """Objects of a manifest, new ones or in place of those that are there."""
    try:
        raw: list[RawObject] = []
        load_contents({where: item.manifest.encode("utf-8", "surrogatepass")}, on_object=raw.append)
    except InputError as error:
        raise EditError(" ".join(str(error).splitlines()), f"{where}.manifest") from error
    found = by_key(raw)
    edited.objects |= found
    names = [f"{kind} {f'{namespace}/' if namespace else ''}{name}" for kind, namespace, name in found]
    return EditWords(f"applied {listed(names, 5)}", tuple(filter(None, (_id(*key, found[key]) for key in found))))


def _id(kind: str, namespace: str, name: str, value: Object) -> str:
    ids = {"Service": f"svc/{namespace}/{name}", "Pod": f"pod/{namespace}/{name}", "Node": f"node/{name}"}
    return ids.get(kind, f"svc/{namespace}/{_service_of(value)}" if kind == "EndpointSlice" else "")


def _mode(edited: Edited, item: Edit, where: str) -> EditWords:
    if item.mode not in (MODE_IPTABLES, MODE_NFTABLES):
        raise EditError(f"{where}.mode: {MODE_IPTABLES} or {MODE_NFTABLES} expected", f"{where}.mode")
    edited.mode = item.mode
    return EditWords(f"kube-proxy in {item.mode} mode on every node", ())


_CHANGES: Final = {
    "endpoint": _endpoint,
    "drop-node": _drop_node,
    "policy": _policy,
    "delete": _delete,
    "apply": _apply,
    "mode": _mode,
}


# --- what is gone of a cluster: --without ---


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
    edits = [_removal(ref, namespace) for ref in refs]
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
        namespaces = ("" if kind == "Node" else each.metadata.namespace for each in values)
        keys = ((kind, namespace, each.metadata.name) for namespace, each in zip(namespaces, values, strict=True))
        return tuple(
            instead.get(each.metadata.key, each) for key, each in zip(keys, values, strict=True) if key in edited
        )

    return replace(
        cluster,
        services=kept("Service", cluster.services, loaded.services),
        endpoint_slices=kept("EndpointSlice", cluster.endpoint_slices, loaded.endpoint_slices),
        endpoints=kept("Endpoints", cluster.endpoints, loaded.endpoints),
        nodes=kept("Node", cluster.nodes, loaded.nodes),
    ).with_mirrored_slices()


def _removal(ref: str, namespace: str) -> Edit:
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
