"""ReplicaSet to Pods.

As kube-controller-manager's replica set controller: active pods that are the set's (`claims`) are counted, missing ones
are created, surplus ones deleted in its order (those that matter least first). A pod that was just created or deleted
is remembered by its uid until the informer has shown it (client-go's expectations), so that no pod is made or deleted
twice.
"""

from __future__ import annotations

from kproxy.client import RestClient, SharedInformerFactory
from kproxy.lab.controllers.base import Controller
from kproxy.lab.controllers.claims import (
    ORPHAN_INDEX,
    OWNER_INDEX,
    claim,
    orphan_index,
    owned_or_wanted_by,
    owner_index,
)
from kproxy.lab.controllers.expectations import Expectations
from kproxy.lab.controllers.pods import PodControl
from kproxy.lab.controllers.template import pod_of
from kproxy.lab.controllers.writes import write_status
from kproxy.lab.resources import (
    PODS,
    REPLICA_SETS,
    Json,
    Object,
    is_active,
    is_ready,
    is_terminating,
    key_of,
)


class ReplicaSetController(Controller):
    name = "replicaset"
    component = "replicaset-controller"
    workers = 2

    def __init__(self, client: RestClient, factory: SharedInformerFactory) -> None:
        super().__init__(client, factory)
        self._sets = self.follow(REPLICA_SETS, lambda item: [key_of(item)])
        self._pods = self.follow(
            PODS,
            owned_or_wanted_by("ReplicaSet", self._sets),
            **{OWNER_INDEX: owner_index, ORPHAN_INDEX: orphan_index},
        )
        self._control = PodControl(client, self.recorder, "ReplicaSet")
        self._expectations = Expectations()

    def sync(self, key: str) -> float | None:
        found = self._sets.indexer.get_by_key(key)
        if found is None or is_terminating(found.raw):
            self._expectations.forget(key)
            return None
        item = found.raw
        owned = [each.raw for each in self._pods.indexer.by_index(OWNER_INDEX, str(item["metadata"]["uid"]))]
        orphans = [each.raw for each in self._pods.indexer.by_index(ORPHAN_INDEX, item["metadata"]["namespace"])]
        pods = claim(self.client, item, "ReplicaSet", owned, orphans)
        shown = {str(pod["metadata"]["uid"]) for pod in pods}
        active = [pod for pod in pods if is_active(pod) and not self._expectations.is_deleted(pod["metadata"]["uid"])]
        pending = self._expectations.pending(key, shown)
        desired = int(item["spec"].get("replicas", 1))
        missing = desired - len(active) - pending
        if missing > 0:
            for _ in range(missing):
                uid = self._control.create(item, pod_of(item, "ReplicaSet"))
                self._expectations.created(key, uid)
        elif missing < 0 and not pending:
            for pod in sorted(active, key=rank)[:-missing]:
                self._expectations.deleted(pod["metadata"]["uid"])
                self._control.delete(item, pod)
        self._write_status(item, active)
        return None

    def _write_status(self, item: Object, active: list[Object]) -> None:
        ready = [pod for pod in active if is_ready(pod)]
        labels = (item["spec"]["template"].get("metadata") or {}).get("labels") or {}
        labelled = [pod for pod in active if labels.items() <= (pod["metadata"].get("labels") or {}).items()]
        status: Json = {
            "replicas": len(active),
            "fullyLabeledReplicas": len(labelled),
            "readyReplicas": len(ready),
            "availableReplicas": len(ready),
            "observedGeneration": item["metadata"].get("generation", 0),
        }
        write_status(self.client, REPLICA_SETS, item, status)


def rank(pod: Object) -> tuple[bool, bool, bool, str]:
    """The order in which surplus pods go: unassigned, then not running, then not ready, then the youngest
    (controller.ActivePodsWithRanks, without the ranks by node)."""
    running = (pod.get("status") or {}).get("phase") == "Running"
    # ISO times compare as text; the younger pod goes first, so each digit is turned around.
    turned = "".join(chr(0x7F - ord(char)) for char in pod["metadata"].get("creationTimestamp") or "")
    return bool(pod["spec"].get("nodeName")), running, is_ready(pod), turned
