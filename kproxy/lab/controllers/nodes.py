"""The life of nodes: one whose lease is not renewed is not ready, and neither are its pods.

kube-controller-manager's node lifecycle controller with a lab's patience: a kubelet renews its lease every 2 s (10 s
in a cluster), and after 6 s (40 s) it is taken to be gone. Its pods are evicted as in a cluster: after 300 s, or the
tolerationSeconds with which a pod tolerates node.kubernetes.io/unreachable; then they are terminating until the node
comes back or goes for good, and their owners make others.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from kproxy.lab.controllers.runtime import Again, Delete, Reconciler, Said, Tables, Write, status_writes
from kproxy.lab.controllers.workload import NO_EXECUTE, tolerates
from kproxy.lab.events import WARNING
from kproxy.lab.resources import (
    LEASE_NAMESPACE,
    LEASE_SECONDS,
    LEASES,
    NODES,
    PODS,
    Object,
    condition_of,
    controller_of,
    is_active,
    is_ready,
    key_of,
    parse_timestamp,
    with_condition,
)

EVICTION_SECONDS: Final = 300
"""What the admission plugin DefaultTolerationSeconds gives pods that say nothing."""
UNREACHABLE: Final = "node.kubernetes.io/unreachable"


def eviction_seconds(pod: Object) -> float | None:
    """How long a pod stays on a node that is unreachable; None for ever."""
    if (controller_of(pod) or {}).get("kind") == "DaemonSet":
        return None  # its controller adds the toleration
    taint = {"key": UNREACHABLE, "effect": NO_EXECUTE}
    tolerations = [each for each in pod["spec"].get("tolerations") or () if tolerates(each, taint)]
    found = [each.get("tolerationSeconds") for each in tolerations]
    if not found:
        return float(EVICTION_SECONDS)
    # The shortest counts; without seconds a toleration holds for ever.
    given = [max(0.0, float(item)) for item in found if item is not None]
    return min(given) if given else None


def reconcile(key: str, tables: Tables) -> Iterator[Write]:
    """The condition Ready of a node whose lease has run out, and what becomes of its pods."""
    node = tables.get(NODES, key)
    if node is None:
        return
    condition = condition_of(node, "Ready")
    if condition is None:
        text = f"Node {key} event: Registered Node {key} in Controller"
        yield Said(node, "Node", "RegisteredNode", text)
    left = _left(node, tables)
    if left > 0:
        yield Again(left + 0.1)
        return
    since = tables.now.timestamp()
    if condition is not None and condition.get("status") == "Unknown":
        since = parse_timestamp(str(condition["lastTransitionTime"])).timestamp()
    else:
        known = list((node.get("status") or {}).get("conditions") or [])
        text = "Kubelet stopped posting node status."
        yield Said(node, "Node", "NodeNotReady", f"Node {key} status is now: NodeNotReady")
        conditions = with_condition(known, "Ready", "Unknown", "NodeStatusUnknown", text)
        yield from status_writes(NODES, node, {"conditions": conditions})
    pods = [pod for pod in tables.all(PODS) if pod["spec"].get("nodeName") == key]
    for pod in pods:
        if is_ready(pod):
            yield from _mark(pod)
    yield from _evict(pods, since, tables)


CONTROLLER: Final = Reconciler(
    "node-controller",
    reconcile,
    (
        (NODES, lambda node, _tables: [node["metadata"]["name"]]),
        (LEASES, lambda lease, _tables: [lease["metadata"]["name"]]),
    ),
)


def _left(node: Object, tables: Tables) -> float:
    """Seconds that the node's lease still holds; one that has never had one is given the same time from its creation
    on, and nobody could renew one before the server began."""
    lease = tables.get(LEASES, f"{LEASE_NAMESPACE}/{node['metadata']['name']}") or {}
    renewed = (lease.get("spec") or {}).get("renewTime") or node["metadata"]["creationTimestamp"]
    heard = max(tables.since, parse_timestamp(str(renewed)))
    return LEASE_SECONDS - (tables.now - heard).total_seconds()


def _mark(pod: Object) -> Iterator[Write]:
    """Says of a pod that it is not ready."""
    conditions = list((pod.get("status") or {}).get("conditions") or [])
    marked = with_condition(conditions, "Ready", "False", "NodeNotReady", "Node is not ready")
    yield from status_writes(PODS, pod, {"conditions": marked})
    yield Said(pod, "Pod", "NodeNotReady", "Node is not ready", WARNING)


def _evict(pods: list[Object], since: float, tables: Tables) -> Iterator[Write]:
    """Deletes the pods whose time on a node that has been unreachable `since` is over."""
    for pod in pods:
        stays = eviction_seconds(pod)
        if stays is None or not is_active(pod):
            continue
        left = since + stays - tables.now.timestamp()
        if left > 0:
            yield Again(left + 0.1)
            continue
        text = f"Marking for deletion Pod {key_of(pod)}"
        said = Said(pod, "Pod", "TaintManagerEviction", text, component="taint-eviction-controller")
        yield Delete(PODS, pod, said)
