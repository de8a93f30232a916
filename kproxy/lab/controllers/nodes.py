"""The life of nodes: one whose lease is not renewed is not ready, and neither are its pods.

kube-controller-manager's node lifecycle controller with a lab's patience: a kubelet renews its lease every 2 s (10 s
in a cluster), and after 6 s (40 s) it is taken to be gone. Its pods are evicted as in a cluster: after 300 s, or the
tolerationSeconds with which a pod tolerates node.kubernetes.io/unreachable; then they are terminating until the node
comes back or goes for good, and their owners make others.
"""

from __future__ import annotations

from typing import Final

from kproxy.client import RestClient, SharedInformerFactory
from kproxy.lab.controllers.base import Controller
from kproxy.lab.controllers.writes import delete_object, write_status
from kproxy.lab.events import WARNING, Recorder
from kproxy.lab.resources import (
    LEASES,
    NODES,
    PODS,
    Object,
    condition_of,
    controller_of,
    is_active,
    is_ready,
    now,
    parse_timestamp,
    with_condition,
)

LEASE_SECONDS: Final = 6
"""How long a lease holds."""
RENEW_SECONDS: Final = 2.0
EVICTION_SECONDS: Final = 300
"""What the admission plugin DefaultTolerationSeconds gives pods that say nothing."""
UNREACHABLE: Final = "node.kubernetes.io/unreachable"
NODE_INDEX: Final = "node"


def eviction_seconds(pod: Object) -> float | None:
    """How long a pod stays on a node that is unreachable; None for ever."""
    if (controller_of(pod) or {}).get("kind") == "DaemonSet":
        return None  # its controller adds the toleration
    found = [
        item.get("tolerationSeconds")
        for item in pod["spec"].get("tolerations") or ()
        if item.get("effect") in (None, "", "NoExecute")
        and (
            (item.get("key") == UNREACHABLE and (item.get("operator") == "Exists" or not item.get("value")))
            or (not item.get("key") and item.get("operator") == "Exists")
        )
    ]
    if not found:
        return float(EVICTION_SECONDS)
    # The shortest counts; without seconds a toleration holds for ever.
    given = [max(0.0, float(item)) for item in found if item is not None]
    return min(given) if given else None


class NodeLifecycleController(Controller):
    """Marks nodes whose lease has run out, and evicts their pods."""

    name = "nodes"
    component = "node-controller"

    def __init__(self, client: RestClient, factory: SharedInformerFactory) -> None:
        super().__init__(client, factory)
        self._nodes = self.follow(NODES, lambda item: [str(item["metadata"]["name"])])
        self._leases = self.follow(LEASES, lambda item: [str(item["metadata"]["name"])])
        self._evictions = Recorder(client, "taint-eviction-controller")
        self._registered: set[str] = set()
        self._pods = factory.informer(PODS, indexers={NODE_INDEX: lambda item: (item.raw["spec"].get("nodeName", ""),)})

    def sync(self, key: str) -> float | None:
        found = self._nodes.indexer.get_by_key(key)
        if found is None:
            return None
        uid = str(found.raw["metadata"]["uid"])
        if uid not in self._registered:
            self._registered.add(uid)
            text = f"Node {key} event: Registered Node {key} in Controller"
            self.recorder.event(found.raw, "Node", "RegisteredNode", text)
        left = self._left(key)
        if left > 0:
            return left + 0.1
        condition = condition_of(found.raw, "Ready")
        if condition is not None and condition.get("status") == "Unknown":
            self._mark_pods(key)
            return self._evict(key, parse_timestamp(str(condition["lastTransitionTime"])).timestamp())
        status = found.raw.get("status") or {}
        conditions = with_condition(
            list(status.get("conditions") or []),
            "Ready",
            "Unknown",
            "NodeStatusUnknown",
            "Kubelet stopped posting node status.",
        )
        self.recorder.event(found.raw, "Node", "NodeNotReady", f"Node {key} status is now: NodeNotReady")
        write_status(self.client, NODES, found.raw, {"conditions": conditions})
        self._mark_pods(key)
        return self._evict(key, now().timestamp())

    def _evict(self, node: str, since: float) -> float | None:
        """Deletes the pods whose time on a node that has been unreachable `since` is over; seconds to the next."""
        waits = []
        for item in self._pods.indexer.by_index(NODE_INDEX, node):
            stays = eviction_seconds(item.raw)
            if stays is None or not is_active(item.raw):
                continue
            left = since + stays - now().timestamp()
            if left > 0:
                waits.append(left)
                continue
            text = f"Marking for deletion Pod {item.metadata.key}"
            self._evictions.event(item.raw, "Pod", "TaintManagerEviction", text)
            delete_object(self.client, PODS, item.raw)
        return min(waits) + 0.1 if waits else None

    def _left(self, node: str) -> float:
        """Seconds that the node's lease still holds."""
        lease = next((item.raw for item in self._leases.indexer.list() if item.metadata.name == node), None)
        renewed = ((lease or {}).get("spec") or {}).get("renewTime")
        if not renewed:
            # A node that has never had one is given the same time from its creation on.
            found = self._nodes.indexer.get_by_key(node)
            renewed = found.raw["metadata"].get("creationTimestamp") if found is not None else None
        if not renewed:
            return 0.0
        return LEASE_SECONDS - (now() - parse_timestamp(str(renewed))).total_seconds()

    def _mark_pods(self, node: str) -> None:
        for item in self._pods.indexer.by_index(NODE_INDEX, node):
            if is_ready(item.raw):
                self._mark(item.raw)

    def _mark(self, pod: Object) -> None:
        conditions = list((pod.get("status") or {}).get("conditions") or [])
        marked = with_condition(conditions, "Ready", "False", "NodeNotReady", "Node is not ready")
        write_status(self.client, PODS, pod, {"conditions": marked})
        self.recorder.event(pod, "Pod", "NodeNotReady", "Node is not ready", type=WARNING)
