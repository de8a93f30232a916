"""DaemonSet to Pods: one on each node that the template's nodeSelector and tolerations allow, whatever state it is in.

As kube-controller-manager's daemon set controller, without surges, history and minReadySeconds. Pods are bound to
their node when they are created; the scheduler has no say. A pod that was just created is remembered until the informer
shows it, so that no node gets two.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final

from kproxy.client import RestClient, SharedInformerFactory
from kproxy.lab.controllers.base import Controller
from kproxy.lab.controllers.claims import OWNER_INDEX, owned_by, owner_index
from kproxy.lab.controllers.expectations import Expectations
from kproxy.lab.controllers.pods import PodControl
from kproxy.lab.controllers.rolling import resolve
from kproxy.lab.controllers.taints import NO_EXECUTE, NO_SCHEDULE, untolerated
from kproxy.lab.controllers.template import pod_of, template_hash
from kproxy.lab.controllers.writes import write_status
from kproxy.lab.resources import (
    DAEMON_SETS,
    NODES,
    PODS,
    Json,
    Object,
    is_active,
    is_ready,
    is_terminating,
    key_of,
)

HASH_LABEL: Final = "controller-revision-hash"
_STATE: Final = "node.kubernetes.io/"


def wants_node(template: Object, node: Object, *effects: str) -> bool:
    """Whether a pod template belongs on a node: its nodeSelector fits, and it tolerates the taints of these effects.

    What says how the node is (node.kubernetes.io/) every pod of a DaemonSet tolerates.
    """
    spec = template["spec"]
    labels = node["metadata"].get("labels") or {}
    return (
        not is_terminating(node)
        and (spec.get("nodeSelector") or {}).items() <= labels.items()
        and all(str(taint["key"]).startswith(_STATE) for taint in untolerated(spec, node, *effects))
    )


def outdated(pods: Sequence[Object], digest: str, desired: int, max_unavailable: int) -> list[Object]:
    """Which pods of an older template a rolling update deletes now: all that are not ready, and of the others as many
    as may be unavailable."""
    old = [pod for pod in pods if (pod["metadata"].get("labels") or {}).get(HASH_LABEL) != digest]
    room = max_unavailable - (desired - sum(map(is_ready, pods)))
    useless = [pod for pod in old if not is_ready(pod)]
    useful = sorted((pod for pod in old if is_ready(pod)), key=key_of)
    return useless + useful[: max(0, room)]


def _names(nodes: Iterable[Object]) -> Iterable[str]:
    return (str(node["metadata"]["name"]) for node in nodes)


class DaemonSetController(Controller):
    name = "daemonset"
    component = "daemonset-controller"

    def __init__(self, client: RestClient, factory: SharedInformerFactory) -> None:
        super().__init__(client, factory)
        self._sets = self.follow(DAEMON_SETS, lambda item: [key_of(item)])
        self._pods = self.follow(PODS, owned_by("DaemonSet"), **{OWNER_INDEX: owner_index})
        # A node's status changes with every condition; what matters here is seldom, and finding nothing to do is quick.
        self._nodes = self.follow(NODES, lambda _node: [item.metadata.key for item in self._sets.indexer.list()])
        self._control = PodControl(client, self.recorder, "DaemonSet")
        self._expectations = Expectations()

    def sync(self, key: str) -> float | None:
        found = self._sets.indexer.get_by_key(key)
        if found is None or is_terminating(found.raw):
            return None
        item = found.raw
        uid, template = str(item["metadata"]["uid"]), item["spec"]["template"]
        digest = template_hash(template)
        pods = [each.raw for each in self._pods.indexer.by_index(OWNER_INDEX, uid)]
        shown = {str(pod["metadata"]["uid"]) for pod in pods}
        everywhere = [each.raw for each in self._nodes.indexer.list()]
        nodes = sorted(_names(node for node in everywhere if wants_node(template, node, NO_SCHEDULE, NO_EXECUTE)))
        # NoSchedule keeps pods away from a node, and does not drive off those that are there.
        allowed = set(_names(node for node in everywhere if wants_node(template, node, NO_EXECUTE)))
        by_node: dict[str, list[Object]] = {}
        for pod in pods:
            by_node.setdefault(str(pod["spec"].get("nodeName", "")), []).append(pod)
        for node in nodes:
            # A node that still has one that terminates waits for its end, as ports of the host may be in use.
            owner = f"{uid}/{node}"
            if not self._expectations.pending(owner, shown) and not by_node.get(node):
                self._expectations.created(owner, self._create(item, digest, node))
        active = [pod for pod in pods if is_active(pod)]
        misplaced = [pod for pod in active if pod["spec"].get("nodeName") not in allowed]
        kept = [pod for pod in active if pod not in misplaced]
        for pod in misplaced + self._to_replace(item, kept, digest, len(nodes)):
            self._control.delete(item, pod)
        self._write_status(item, kept, digest, len(nodes), len(misplaced))
        return None

    @staticmethod
    def _to_replace(item: Object, pods: list[Object], digest: str, desired: int) -> list[Object]:
        strategy = item["spec"].get("updateStrategy") or {}
        if strategy.get("type", "RollingUpdate") != "RollingUpdate":
            return []
        limit = resolve((strategy.get("rollingUpdate") or {}).get("maxUnavailable", 1), desired, up=True)
        return outdated(pods, digest, desired, max(1, limit))

    def _create(self, item: Object, digest: str, node: str) -> str:
        body = pod_of(item, "DaemonSet")
        body["metadata"]["labels"][HASH_LABEL] = digest
        body["spec"]["nodeName"] = node
        return self._control.create(item, body)

    def _write_status(self, item: Object, pods: list[Object], digest: str, desired: int, misplaced: int) -> None:
        ready = sum(map(is_ready, pods))
        updated = sum((pod["metadata"].get("labels") or {}).get(HASH_LABEL) == digest for pod in pods)
        status: Json = {
            "observedGeneration": item["metadata"].get("generation", 0),
            "desiredNumberScheduled": desired,
            "currentNumberScheduled": len(pods),
            "updatedNumberScheduled": updated,
            "numberMisscheduled": misplaced,
            "numberReady": ready,
            "numberAvailable": ready,
            "numberUnavailable": max(0, desired - ready),
        }
        write_status(self.client, DAEMON_SETS, item, status)
