"""The resources that a lab's processes work with, and small readers of their objects."""

from __future__ import annotations

import datetime
from collections.abc import Mapping
from typing import Any, Final

from kproxy.client import dynamic_resource

Json = dict[str, Any]
"""An object that is being built."""
Object = Mapping[str, Any]
"""An object as it came; not to be changed."""

PODS: Final = dynamic_resource("", "v1", "pods", True)
NODES: Final = dynamic_resource("", "v1", "nodes", False)
SERVICES: Final = dynamic_resource("", "v1", "services", True)
NAMESPACES: Final = dynamic_resource("", "v1", "namespaces", False)
EVENTS: Final = dynamic_resource("", "v1", "events", True)
ENDPOINT_SLICES: Final = dynamic_resource("discovery.k8s.io", "v1", "endpointslices", True)
DEPLOYMENTS: Final = dynamic_resource("apps", "v1", "deployments", True)
REPLICA_SETS: Final = dynamic_resource("apps", "v1", "replicasets", True)
DAEMON_SETS: Final = dynamic_resource("apps", "v1", "daemonsets", True)
STATEFUL_SETS: Final = dynamic_resource("apps", "v1", "statefulsets", True)
CONTROLLER_REVISIONS: Final = dynamic_resource("apps", "v1", "controllerrevisions", True)
JOBS: Final = dynamic_resource("batch", "v1", "jobs", True)
LEASES: Final = dynamic_resource("coordination.k8s.io", "v1", "leases", True)
KINDS: Final = {
    "Pod": PODS,
    "Node": NODES,
    "Service": SERVICES,
    "Deployment": DEPLOYMENTS,
    "ReplicaSet": REPLICA_SETS,
    "DaemonSet": DAEMON_SETS,
    "StatefulSet": STATEFUL_SETS,
    "Job": JOBS,
}
"""The resources of the kinds that others refer to, as events and owner references do."""
LEASE_NAMESPACE: Final = "kube-node-lease"
LEASE_SECONDS: Final = 6
"""How long a node's lease holds."""
RENEW_SECONDS: Final = 2.0

DNS_NAMESPACE: Final = "kube-system"
DNS_SERVICE: Final = "kube-dns"
DNS_PORT: Final = 53
ZONE: Final = "cluster.local"
"""The domain of the cluster's names."""
SERVES: Final = "lab.kproxy.io/serves"
"""The annotation of a pod that serves something else than echoes: `dns`."""
DNS: Final = "dns"

FAILED: Final = "lab.kproxy.io/failed"
"""The annotation by which `lab fail pod` tells the kubelet that a pod's containers have crashed."""


def now() -> datetime.datetime:
    return datetime.datetime.now(datetime.UTC)


def timestamp(moment: datetime.datetime) -> str:
    """A metav1.Time: RFC 3339 in seconds, UTC."""
    return moment.strftime("%Y-%m-%dT%H:%M:%SZ")


def micro_timestamp(moment: datetime.datetime) -> str:
    """A metav1.MicroTime: RFC 3339 in microseconds, UTC."""
    return moment.strftime("%Y-%m-%dT%H:%M:%S.%fZ")


def parse_timestamp(text: str) -> datetime.datetime:
    """metav1.Time or metav1.MicroTime."""
    return datetime.datetime.fromisoformat(text.replace("Z", "+00:00"))


def key_of(item: Object) -> str:
    """`namespace/name`."""
    meta = item["metadata"]
    return f"{meta['namespace']}/{meta['name']}" if meta.get("namespace") else str(meta["name"])


def controller_of(item: Object) -> Json | None:
    """The owner reference of the controller."""
    for reference in item["metadata"].get("ownerReferences") or ():
        if reference.get("controller"):
            return dict(reference)
    return None


def condition_of(item: Object, kind: str) -> Json | None:
    """A status condition by its type."""
    for condition in (item.get("status") or {}).get("conditions") or ():
        if condition.get("type") == kind:
            return dict(condition)
    return None


def is_true(item: Object, kind: str) -> bool:
    """Whether a status condition is there and True."""
    return (condition_of(item, kind) or {}).get("status") == "True"


def is_ready(item: Object) -> bool:
    """Whether the condition Ready of a pod or a node is True."""
    return is_true(item, "Ready")


def is_terminating(item: Object) -> bool:
    return bool(item["metadata"].get("deletionTimestamp"))


def is_active(pod: Object) -> bool:
    """Whether a pod counts as a replica: client-go's IsPodActive."""
    phase = (pod.get("status") or {}).get("phase")
    return phase not in ("Succeeded", "Failed") and not is_terminating(pod)


def with_condition(conditions: list[Json], kind: str, status: str, reason: str = "", message: str = "") -> list[Json]:
    """The conditions with one set; its lastTransitionTime changes only with its status."""
    old = next((item for item in conditions if item.get("type") == kind), None)
    moment = timestamp(now())
    entry: Json = {"type": kind, "status": status, "lastTransitionTime": moment}
    if old is not None and old.get("status") == status and old.get("lastTransitionTime"):
        entry["lastTransitionTime"] = old["lastTransitionTime"]
    if old is not None and old.get("lastHeartbeatTime"):
        entry["lastHeartbeatTime"] = old["lastHeartbeatTime"]
    if reason:
        entry["reason"] = reason
    if message:
        entry["message"] = message
    rest = [item for item in conditions if item.get("type") != kind]
    return [*rest, entry]
