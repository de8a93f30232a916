"""What of an object belongs in a snapshot: what networking needs, and nothing that may be a secret."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from kproxy.api.kubeproxyconfig.types import CONFIG_KEYS, CONFIG_MAPS

Object = Mapping[str, Any]

_METADATA: Final = (
    "name", "namespace", "uid", "labels", "creationTimestamp", "deletionTimestamp", "resourceVersion", "generation",
)  # fmt: skip
_KEPT_ANNOTATIONS: Final = (
    "service.kubernetes.io/", "endpointslice.kubernetes.io/", "endpoints.kubernetes.io/", "node.alpha.kubernetes.io/",
    "flannel.alpha.coreos.com/", "projectcalico.org/",
)  # fmt: skip


def pruned(value: Object) -> dict[str, Any] | None:
    """An object as a snapshot keeps it; None if it does not belong in one."""
    kind = value.get("kind")
    metadata = _metadata(value.get("metadata") or {})
    if kind == "Pod":
        return {**_header(value), "metadata": metadata, "spec": _pod_spec(value), "status": _pod_status(value)}
    if kind == "ConfigMap":
        if metadata.get("name") not in CONFIG_MAPS:
            return None
        data = {key: text for key, text in (value.get("data") or {}).items() if key in CONFIG_KEYS}
        return {**_header(value), "metadata": metadata, "data": data}
    if kind == "Node":
        status = value.get("status") or {}
        kept = {key: status[key] for key in ("addresses", "conditions", "nodeInfo") if key in status}
        return {**_header(value), "metadata": metadata, "spec": value.get("spec") or {}, "status": kept}
    return {**value, "metadata": metadata}


def _header(value: Object) -> dict[str, Any]:
    return {"apiVersion": value.get("apiVersion"), "kind": value.get("kind")}


def _metadata(metadata: Object) -> dict[str, Any]:
    kept = {key: metadata[key] for key in _METADATA if key in metadata}
    annotations = {
        key: text for key, text in (metadata.get("annotations") or {}).items() if key.startswith(_KEPT_ANNOTATIONS)
    }
    return {**kept, "annotations": annotations} if annotations else kept


def _pod_spec(pod: Object) -> dict[str, Any]:
    spec = pod.get("spec") or {}
    containers = [_container(item) for item in spec.get("containers") or ()]
    sidecars = [_container(item) for item in spec.get("initContainers") or () if item.get("restartPolicy") == "Always"]
    kept = {key: spec[key] for key in ("nodeName", "hostNetwork") if key in spec}
    return {**kept, "containers": [*containers, *sidecars]}


def _container(item: Object) -> dict[str, Any]:
    return {key: item[key] for key in ("name", "ports") if key in item}


def _pod_status(pod: Object) -> dict[str, Any]:
    status = pod.get("status") or {}
    kept = {key: status[key] for key in ("phase", "podIP", "podIPs", "hostIP", "hostIPs") if key in status}
    conditions: Sequence[Object] = status.get("conditions") or ()
    states = [
        {key: item[key] for key in ("type", "status", "lastTransitionTime") if key in item} for item in conditions
    ]
    return {**kept, "conditions": states}
