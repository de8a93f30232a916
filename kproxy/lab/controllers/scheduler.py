"""Pods to nodes: ready, schedulable nodes that fit the pod's nodeSelector and whose taints it tolerates; the one with
the fewest pods of the same owner, then with the fewest pods. A node that pods should rather not go to comes last.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Final

from kproxy.lab.controllers.runtime import Bind, Reconciler, Said, Tables, Write, status_writes
from kproxy.lab.controllers.workload import NO_EXECUTE, NO_SCHEDULE, PREFER_NO_SCHEDULE, untolerated
from kproxy.lab.events import WARNING
from kproxy.lab.resources import (
    NODES,
    PODS,
    Object,
    condition_of,
    controller_of,
    is_ready,
    is_terminating,
    key_of,
    with_condition,
)

SCHEDULER: Final = "default-scheduler"


def reconcile(key: str, tables: Tables) -> Iterator[Write]:
    """The node of a pod that has none."""
    pod = tables.get(PODS, key)
    if pod is None or not _waits(pod):
        return
    nodes = tables.all(NODES)
    chosen = choose_node(pod, nodes, load_of(tables.all(PODS)))
    if chosen is not None:
        yield Bind(pod, chosen)
        yield Said(pod, "Pod", "Scheduled", f"Successfully assigned {key} to {chosen}")
        return
    message = why_not(pod, nodes)
    if (condition_of(pod, "PodScheduled") or {}).get("message") != message:
        old = list((pod.get("status") or {}).get("conditions") or [])
        conditions = with_condition(old, "PodScheduled", "False", "Unschedulable", message)
        yield from status_writes(PODS, pod, {"conditions": conditions})
        yield Said(pod, "Pod", "FailedScheduling", message, WARNING)


def load_of(pods: Iterable[Object]) -> Mapping[tuple[str, str], int]:
    """How many pods of an owner are on a node; "" as owner is all."""
    count: Counter[tuple[str, str]] = Counter()
    for pod in pods:
        node = pod["spec"].get("nodeName")
        if node and not is_terminating(pod):
            count.update([(_owner(pod), node), ("", node)])
    return count


def choose_node(pod: Object, nodes: Iterable[Object], load: Mapping[tuple[str, str], int]) -> str | None:
    """The best node for a pod; None if there is none. `load` counts pods by owner ("" for all) and node."""
    unwelcome = {
        str(node["metadata"]["name"]): len(list(untolerated(pod["spec"], node, PREFER_NO_SCHEDULE)))
        for node in nodes
        if not _obstacle(pod, node)
    }
    owner = _owner(pod)

    def order(name: str) -> tuple[int, int, int, tuple[int, str]]:
        return unwelcome[name], load.get((owner, name), 0), load.get(("", name), 0), _natural(name)

    return min(unwelcome, key=order, default=None)


def _obstacle(pod: Object, node: Object) -> str:
    """Why a node will not do, as kube-scheduler's plugins say it, in their order; "" if it will."""
    if (node.get("spec") or {}).get("unschedulable"):
        return "node(s) were unschedulable"
    # One that is not ready has the taint node.kubernetes.io/not-ready or unreachable, in a cluster.
    if not is_ready(node) or is_terminating(node) or any(untolerated(pod["spec"], node, NO_SCHEDULE, NO_EXECUTE)):
        return "node(s) had untolerated taint(s)"
    selector = pod["spec"].get("nodeSelector") or {}
    if not selector.items() <= (node["metadata"].get("labels") or {}).items():
        return "node(s) didn't match Pod's node affinity/selector"
    return ""


def why_not(pod: Object, nodes: Sequence[Object]) -> str:
    """kube-scheduler's message for a pod that no node will take (FitError)."""
    if not nodes:
        return "no nodes available to schedule pods"
    reasons = Counter(_obstacle(pod, node) for node in nodes)
    head = f"0/{len(nodes)} nodes are available: "
    counted = ", ".join(sorted(f"{count} {reason}" for reason, count in reasons.items()))
    helpless = f"{len(nodes)} Preemption is not helpful for scheduling"
    return f"{head}{counted}. no new claims to deallocate, preemption: {head}{helpless}."


def _natural(name: str) -> tuple[int, str]:
    """A sort key that puts node-2 before node-10."""
    return len(name), name


def _owner(pod: Object) -> str:
    owner = controller_of(pod)
    return str(owner["uid"]) if owner is not None else str(pod["metadata"].get("uid", ""))


def _waits(pod: Object) -> bool:
    spec = pod["spec"]
    return (
        not spec.get("nodeName")
        and not is_terminating(pod)
        and spec.get("schedulerName", SCHEDULER) == SCHEDULER
        and not spec.get("schedulingGates")
    )


def _waiting(items: Iterable[Object]) -> list[str]:
    return [key_of(pod) for pod in items if _waits(pod)]


CONTROLLER: Final = Reconciler(
    SCHEDULER,
    reconcile,
    ((PODS, lambda pod, _tables: _waiting([pod])), (NODES, lambda _node, tables: _waiting(tables.all(PODS)))),
)
