"""Objects: of each field it is known what it holds; text in any other field is left out."""

from __future__ import annotations

import ipaddress
import json
import re
from collections.abc import Mapping
from typing import Any, Final

from kproxy.api.kubeproxyconfig.decode import decode_config
from kproxy.cluster.snapshot.layout import KINDS
from kproxy.collect.prune import pruned
from kproxy.collect.redact import names
from kproxy.collect.redact.hostfiles import redact_config
from kproxy.collect.redact.words import UnredactableError, Words
from kproxy.errors import InputError
from kproxy.services.names import LABEL_SERVICE_NAME

REDACTED_KINDS: Final = (*KINDS, "Endpoints")

_NAMES: Final = {
    "Service": names.SERVICE, "Endpoints": names.SERVICE, "Pod": names.POD, "Node": names.NODE,
    "EndpointSlice": names.SLICE, "Namespace": names.NAMESPACE,
}  # fmt: skip
_TIMES: Final = ("creationTimestamp", "deletionTimestamp", "resourceVersion", "generation")
_WORD: Final = re.compile(r"[A-Za-z0-9]*")
_KEPT: Final = frozenset({
    "apiVersion", "kind", "type", "protocol", "status", "ipFamilyPolicy", "sessionAffinity", "externalTrafficPolicy",
    "internalTrafficPolicy", "trafficDistribution", "addressType", "ipMode", "effect", "phase", "creationTimestamp",
    "deletionTimestamp", "lastTransitionTime", "lastHeartbeatTime", "resourceVersion", "ipFamilies", "architecture",
    "operatingSystem", "kernelVersion", "kubeletVersion", "kubeProxyVersion", "containerRuntimeVersion",
})  # fmt: skip
_ADDRESSES: Final = frozenset({
    "ip", "podIP", "hostIP", "clusterIP", "clusterIPs", "externalIPs", "loadBalancerIP", "loadBalancerSourceRanges",
    "podCIDR", "podCIDRs", "cidrs", "address", "addresses",
})  # fmt: skip
_NAMED: Final = {
    "namespace": names.NAMESPACE, "nodeName": names.NODE, "zone": names.ZONE, "targetPort": names.PORT,
    "hostname": names.DOMAIN, "externalName": names.DOMAIN,
}  # fmt: skip
_NAME_IN: Final = {
    "ports": names.PORT, "containers": names.CONTAINER, "forZones": names.ZONE, "forNodes": names.NODE,
}  # fmt: skip
_LABELS: Final = {
    "kubernetes.io/service-name": names.SERVICE, "kubernetes.io/hostname": names.NODE,
    "topology.kubernetes.io/zone": names.ZONE, "failure-domain.beta.kubernetes.io/zone": names.ZONE,
    "statefulset.kubernetes.io/pod-name": names.POD,
}  # fmt: skip


def redact_object(value: Mapping[str, Any], words: Words) -> dict[str, Any] | None:
    """An object of a snapshot; None if it does not belong in one.

    Raises:
        UnredactableError: it holds a configuration that cannot be read.
    """
    kind = str(value.get("kind"))
    kept = pruned(value) if kind in REDACTED_KINDS else None
    if kept is None:
        return None
    header = {"apiVersion": kept.get("apiVersion"), "kind": kind}
    given = kept["metadata"]
    if kind == "ConfigMap":  # its name and its place are the same everywhere
        data = {key: _config(text, words) for key, text in kept["data"].items()}
        return {**header, "metadata": {key: given[key] for key in ("name", "namespace") if key in given}, "data": data}
    fields = _mapping({key: item for key, item in kept.items() if key not in ("metadata", *header)}, "", words)
    if kind in ("Service", "EndpointSlice", "Endpoints"):
        _note_ports(value, words)
    return {**header, "metadata": _metadata(given, _NAMES.get(kind, names.OBJECT), words), **fields}


def _config(text: str, words: Words) -> str:
    try:
        found = decode_config(text.encode("utf-8", "surrogatepass"), "kube-proxy's ConfigMap").given
    except InputError as error:
        raise UnredactableError("kube-proxy's configuration cannot be read") from error
    return json.dumps(redact_config(found, words))


def _note_ports(value: Mapping[str, Any], words: Words) -> None:
    """The ServicePorts that an object may give kube-proxy."""
    metadata = value.get("metadata") or {}
    service = metadata.get("name")
    if value["kind"] == "EndpointSlice":
        service = (metadata.get("labels") or {}).get(LABEL_SERVICE_NAME)
    holders = [value, value.get("spec") or {}, *(value.get("subsets") or ())]
    ports = [port for holder in holders for port in holder.get("ports") or () if isinstance(port, Mapping)]
    for port in ports if service else ():
        words.service_port(str(metadata.get("namespace") or "default"), str(service), str(port.get("name") or ""))


def _metadata(given: Mapping[str, Any], kind: str, words: Words) -> dict[str, Any]:
    found = {key: given[key] for key in _TIMES if key in given}
    if "name" in given:
        found["name"] = words.names.name(kind, str(given["name"]))
    if "namespace" in given:
        found["namespace"] = words.names.name(names.NAMESPACE, str(given["namespace"]))
    if "uid" in given:
        found["uid"] = _uid(str(given["uid"]), words)
    if given.get("labels"):
        found["labels"] = _labels(given["labels"], words)
    if given.get("annotations"):
        found["annotations"] = {key: words.text(str(text)) for key, text in given["annotations"].items()}
    return found


def _uid(text: str, words: Words) -> str:
    digits = words.names.scrambled(text, 32).encode().hex()[:32]
    return f"{digits[:8]}-{digits[8:12]}-{digits[12:16]}-{digits[16:20]}-{digits[20:]}"


def _labels(given: Mapping[str, Any], words: Words) -> dict[str, Any]:
    name = words.names.name
    return {name(names.KEY, key): name(_LABELS.get(key, names.VALUE), str(item)) for key, item in given.items()}


def _mapping(value: Mapping[str, Any], parent: str, words: Words) -> dict[str, Any]:
    if parent == "targetRef":
        return _reference(value, words)
    if parent in ("selector", "labels"):
        return _labels(value, words)
    if value.get("type") == "Hostname" and isinstance(value.get("address"), str):
        return {"type": "Hostname", "address": words.names.name(names.NODE, value["address"])}
    found = {}
    for key, item in value.items():
        kept = _field(key, item, parent, words)
        if kept is not None:
            found[key] = kept
    return found


def _field(key: str, item: Any, parent: str, words: Words) -> Any:
    if isinstance(item, Mapping):
        return _mapping(item, key, words)
    if isinstance(item, list):
        kept = [
            _field(key, each, parent, words) if not isinstance(each, Mapping) else _mapping(each, key, words)
            for each in item
        ]
        return [each for each in kept if each is not None]
    if not isinstance(item, str):
        return item
    if key in _ADDRESSES:
        return _address(item, words)
    kind = _NAME_IN.get(parent) if key == "name" else _NAMED.get(key)
    if kind is not None:
        return words.names.name(kind, item)
    if key in _KEPT or (key == "reason" and _WORD.fullmatch(item)):
        return item
    if key == "key" and parent == "taints":
        return words.names.name(names.KEY, item)
    return None


def _address(text: str, words: Words) -> str:
    """An address or a CIDR; a name of a host in its place; "None" of headless Services."""
    if text in ("", "None"):
        return text
    try:
        if "/" in text:
            ipaddress.ip_network(text, strict=False)
            return words.text(text)
        return words.address(text)
    except ValueError:
        return words.names.name(names.DOMAIN, text)


def _reference(value: Mapping[str, Any], words: Words) -> dict[str, Any]:
    found = {key: value[key] for key in ("kind", "apiVersion") if key in value}
    if value.get("name"):
        found["name"] = words.names.name(_NAMES.get(str(value.get("kind")), names.OBJECT), str(value["name"]))
    if value.get("namespace"):
        found["namespace"] = words.names.name(names.NAMESPACE, str(value["namespace"]))
    if value.get("uid"):
        found["uid"] = _uid(str(value["uid"]), words)
    return found
