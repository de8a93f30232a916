"""ReplicaSet to Pods.

As kube-controller-manager's replica set controller: active pods are counted, missing ones are created, surplus ones
deleted in its order (those that matter least first). Pods that are not its own are not taken in, whatever their labels.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from kproxy.lab.controllers.runtime import Reconciler, Tables, Write, status_writes
from kproxy.lab.controllers.workload import create_pod, delete_pod, own_key, owned_by, pod_of
from kproxy.lab.resources import PODS, REPLICA_SETS, Json, Object, is_active, is_ready, is_terminating

_KIND: Final = "ReplicaSet"


def reconcile(key: str, tables: Tables) -> Iterator[Write]:
    """The pods of a ReplicaSet, and its status."""
    item = tables.get(REPLICA_SETS, key)
    if item is None or is_terminating(item):
        return
    active = [pod for pod in tables.owned(PODS, item) if is_active(pod)]
    missing = int(item["spec"].get("replicas", 1)) - len(active)
    for _ in range(missing):
        yield create_pod(item, _KIND, pod_of(item, _KIND))
    for pod in sorted(active, key=rank)[: max(0, -missing)]:
        yield delete_pod(item, _KIND, pod)
    yield from status_writes(REPLICA_SETS, item, status_of(item, active))


CONTROLLER: Final = Reconciler("replicaset-controller", reconcile, ((REPLICA_SETS, own_key), (PODS, owned_by(_KIND))))


def status_of(item: Object, active: list[Object]) -> Json:
    """The status of a set with these active pods."""
    ready = sum(map(is_ready, active))
    labels = (item["spec"]["template"].get("metadata") or {}).get("labels") or {}
    labelled = [pod for pod in active if labels.items() <= (pod["metadata"].get("labels") or {}).items()]
    return {
        "replicas": len(active),
        "fullyLabeledReplicas": len(labelled),
        "readyReplicas": ready,
        "availableReplicas": ready,
        "observedGeneration": item["metadata"].get("generation", 0),
    }


def rank(pod: Object) -> tuple[bool, bool, bool, str]:
    """The order in which surplus pods go: unassigned, then not running, then not ready, then the youngest
    (controller.ActivePodsWithRanks, without the ranks by node)."""
    running = (pod.get("status") or {}).get("phase") == "Running"
    # ISO times compare as text; the younger pod goes first, so each digit is turned around.
    turned = "".join(chr(0x7F - ord(char)) for char in pod["metadata"].get("creationTimestamp") or "")
    return bool(pod["spec"].get("nodeName")), running, is_ready(pod), turned
