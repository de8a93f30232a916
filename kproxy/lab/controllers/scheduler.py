"""Pods to nodes: ready, schedulable nodes that fit the pod's nodeSelector and whose taints it tolerates; the one with
the fewest pods of the same owner, then with the fewest pods. A node that pods should rather not go to comes last.

A pod gets its node by a Binding, as from kube-scheduler. What was decided is remembered until the informer shows it, so
that pods that come together do not all find the same node empty.
"""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Final

import msgspec

from kproxy.client import ApiError, RestClient, SharedInformerFactory
from kproxy.lab.controllers.base import Controller
from kproxy.lab.controllers.taints import NO_EXECUTE, NO_SCHEDULE, PREFER_NO_SCHEDULE, untolerated
from kproxy.lab.controllers.writes import write_status
from kproxy.lab.events import WARNING
from kproxy.lab.resources import NODES, PODS, Object, controller_of, is_ready, is_terminating, key_of, with_condition

SCHEDULER: Final = "default-scheduler"


class Scheduler(Controller):
    """Binds every pending pod to a node."""

    name = "scheduler"
    component = SCHEDULER

    def __init__(self, client: RestClient, factory: SharedInformerFactory) -> None:
        super().__init__(client, factory)
        self._lock = threading.Lock()
        self._assumed: dict[str, tuple[str, str]] = {}
        """Owner and node of pods by uid, until the informer shows the node."""
        self._waiting: set[str] = set()
        self._pods = self.follow(PODS, lambda pod: [key_of(pod)] if _waits(pod) else [])
        self._nodes = self.follow(NODES, lambda _node: tuple(self._waiting))

    def sync(self, key: str) -> float | None:
        found = self._pods.indexer.get_by_key(key)
        if found is None or not _waits(found.raw) or str(found.raw["metadata"]["uid"]) in self._assumed:
            self._waiting.discard(key)
            return None
        pod = found.raw
        chosen = choose_node(pod, [item.raw for item in self._nodes.indexer.list()], self._load())
        if chosen is None:
            self._waiting.add(key)
            self._say_unschedulable(pod)
            return None
        self._waiting.discard(key)
        meta = pod["metadata"]
        with self._lock:
            self._assumed[meta["uid"]] = (_owner(pod), chosen)
        try:
            self._bind(meta["name"], meta["namespace"], chosen)
        except ApiError:
            with self._lock:
                self._assumed.pop(meta["uid"], None)
            raise
        self.recorder.event(pod, "Pod", "Scheduled", f"Successfully assigned {key} to {chosen}")
        return None

    def _bind(self, name: str, namespace: str, node: str) -> None:
        target = {"apiVersion": "v1", "kind": "Node", "name": node}
        binding = {"apiVersion": "v1", "kind": "Binding", "metadata": {"name": name}, "target": target}
        self.client.raw("POST", PODS.path(namespace, name, "binding"), body=msgspec.json.encode(binding))

    def _load(self) -> Mapping[tuple[str, str], int]:
        """How many pods of an owner are on a node; "" as owner is all."""
        count: Counter[tuple[str, str]] = Counter()
        for item in self._pods.indexer.list():
            node = item.raw["spec"].get("nodeName")
            if node and not is_terminating(item.raw):
                count.update([(_owner(item.raw), node), ("", node)])
                with self._lock:
                    self._assumed.pop(item.metadata.uid, None)
        with self._lock:
            for owner, node in self._assumed.values():
                count.update([(owner, node), ("", node)])
        return count

    def _say_unschedulable(self, pod: Object) -> None:
        message = why_not(pod, [item.raw for item in self._nodes.indexer.list()])
        old = list((pod.get("status") or {}).get("conditions") or [])
        if any(item.get("type") == "PodScheduled" and item.get("message") == message for item in old):
            return
        conditions = with_condition(old, "PodScheduled", "False", "Unschedulable", message)
        write_status(self.client, PODS, pod, {"conditions": conditions})
        self.recorder.event(pod, "Pod", "FailedScheduling", message, type=WARNING)


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
