"""Deployment to ReplicaSets: rolling update, recreate, scaling, revisions, status.

As kube-controller-manager's deployment controller, without progress deadlines. A ReplicaSet belongs to the Deployment's
present template if its own template is the same, the label pod-template-hash apart.
"""

from __future__ import annotations

from typing import Final

from kproxy.client import ApiError, RestClient, SharedInformerFactory
from kproxy.lab.controllers.base import Controller
from kproxy.lab.controllers.claims import OWNER_INDEX, owned_by, owner_index, owner_reference
from kproxy.lab.controllers.rolling import Replicas, fenceposts, plan_rolling
from kproxy.lab.controllers.template import template_hash
from kproxy.lab.controllers.writes import delete_object, write_status
from kproxy.lab.resources import DEPLOYMENTS, REPLICA_SETS, Json, Object, is_terminating, key_of, with_condition

HASH_LABEL: Final = "pod-template-hash"
REVISION: Final = "deployment.kubernetes.io/revision"
_NOT_COPIED: Final = ("kubectl.kubernetes.io/last-applied-configuration", REVISION)


def same_template(one: Object, other: Object) -> bool:
    """Whether two templates are equal, the hash label apart."""

    def plain(template: Object) -> Json:
        meta = dict(template.get("metadata") or {})
        meta.pop("creationTimestamp", None)
        meta["labels"] = {name: value for name, value in (meta.get("labels") or {}).items() if name != HASH_LABEL}
        return {**template, "metadata": meta}

    return plain(one) == plain(other)


class DeploymentController(Controller):
    """Keeps the ReplicaSets of every Deployment."""

    name = "deployment"
    component = "deployment-controller"

    def __init__(self, client: RestClient, factory: SharedInformerFactory) -> None:
        super().__init__(client, factory)
        self._deployments = self.follow(DEPLOYMENTS, lambda item: [key_of(item)])
        self._sets = self.follow(REPLICA_SETS, owned_by("Deployment"), **{OWNER_INDEX: owner_index})

    def sync(self, key: str) -> float | None:
        found = self._deployments.indexer.get_by_key(key)
        if found is None or is_terminating(found.raw):
            return None
        deployment = found.raw
        sets = [each.raw for each in self._sets.indexer.by_index(OWNER_INDEX, str(deployment["metadata"]["uid"]))]
        sets.sort(key=_age)
        template = deployment["spec"]["template"]
        new = next((item for item in sets if same_template(item["spec"]["template"], template)), None)
        old = [item for item in sets if item is not new]
        if deployment["spec"].get("paused"):
            self._write_status(deployment, new, old)
            return None
        if new is None:
            if _strategy(deployment) == "Recreate" and any(_replicas(item).present for item in old):
                self._scale_all(deployment, old, 0)
                self._write_status(deployment, None, old)
                return None
            new = self._create(deployment, sets)
        else:
            self._renumber(deployment, new, sets)
        self._scale(deployment, new, old)
        self._clean_up(deployment, old)
        self._write_status(deployment, new, old)
        return None

    # --- ReplicaSets ---

    def _create(self, deployment: Object, sets: list[Object]) -> Object:
        meta, spec = deployment["metadata"], deployment["spec"]
        digest = template_hash(spec["template"])
        template = {**spec["template"], "metadata": dict(spec["template"].get("metadata") or {})}
        labels = {**(template["metadata"].get("labels") or {}), HASH_LABEL: digest}
        template["metadata"]["labels"] = labels
        selector = dict(spec["selector"])
        selector["matchLabels"] = {**(selector.get("matchLabels") or {}), HASH_LABEL: digest}
        kept = {name: value for name, value in (meta.get("annotations") or {}).items() if name not in _NOT_COPIED}
        revision = 1 + max((_revision(item) for item in sets), default=0)
        body: Json = {
            "apiVersion": "apps/v1",
            "kind": "ReplicaSet",
            "metadata": {
                "name": f"{meta['name']}-{digest}",
                "labels": labels,
                "annotations": {**kept, REVISION: str(revision)},
                "ownerReferences": [owner_reference(deployment, "Deployment")],
            },
            "spec": {"replicas": 0, "selector": selector, "template": template},
        }
        # The first set needs no second write: it gets all replicas at once.
        if not any(_replicas(item).desired for item in sets):
            body["spec"]["replicas"] = spec.get("replicas", 1)
        try:
            created: Object = self.client.create(REPLICA_SETS, body, meta["namespace"]).raw
            if body["spec"]["replicas"]:
                self._say_scaled(deployment, body["metadata"]["name"], 0, body["spec"]["replicas"])
        except ApiError as error:
            if error.code != 409:
                raise
            created = self.client.get(REPLICA_SETS, body["metadata"]["name"], meta["namespace"]).raw
        self._note_revision(deployment, _revision(created))
        return created

    def _renumber(self, deployment: Object, new: Object, sets: list[Object]) -> None:
        """The set of the present template has the highest revision, also after an undo."""
        highest = max((_revision(item) for item in sets if item is not new), default=0)
        revision = _revision(new)
        if revision <= highest:
            revision = highest + 1
            patch = {"metadata": {"annotations": {REVISION: str(revision)}}}
            self.client.patch(REPLICA_SETS, new["metadata"]["name"], patch, new["metadata"]["namespace"])
        self._note_revision(deployment, revision)

    def _note_revision(self, deployment: Object, revision: int) -> None:
        meta = deployment["metadata"]
        if (meta.get("annotations") or {}).get(REVISION) != str(revision):
            patch = {"metadata": {"annotations": {REVISION: str(revision)}}}
            self.client.patch(DEPLOYMENTS, meta["name"], patch, meta["namespace"])

    def _scale(self, deployment: Object, new: Object, old: list[Object]) -> None:
        replicas = int(deployment["spec"].get("replicas", 1))
        by_key = {key_of(item): item for item in [new, *old]}
        if _strategy(deployment) == "Recreate":
            changes = {key_of(new): replicas} if _replicas(new).desired != replicas else {}
        else:
            rolling = (deployment["spec"].get("strategy") or {}).get("rollingUpdate") or {}
            surge, unavailable = fenceposts(
                rolling.get("maxSurge", "25%"), rolling.get("maxUnavailable", "25%"), replicas
            )
            changes = plan_rolling(_replicas(new), [_replicas(item) for item in old], replicas, surge, unavailable)
        for key, count in changes.items():
            self._set_replicas(deployment, by_key[key], count)

    def _scale_all(self, deployment: Object, sets: list[Object], count: int) -> None:
        for item in sets:
            if _replicas(item).desired != count:
                self._set_replicas(deployment, item, count)

    def _say_scaled(self, deployment: Object, name: str, before: int, after: int) -> None:
        text = f"Scaled {'up' if after > before else 'down'} replica set {name} from {before} to {after}"
        self.recorder.event(deployment, "Deployment", "ScalingReplicaSet", text)

    def _set_replicas(self, deployment: Object, item: Object, count: int) -> None:
        # The version makes a stale decision fail: the set's own change brings the Deployment back.
        meta = item["metadata"]
        patch = {"metadata": {"resourceVersion": meta["resourceVersion"]}, "spec": {"replicas": count}}
        self.client.patch(REPLICA_SETS, meta["name"], patch, meta["namespace"])
        self._say_scaled(deployment, meta["name"], _replicas(item).desired, count)

    def _clean_up(self, deployment: Object, old: list[Object]) -> None:
        """Deletes old sets without pods beyond revisionHistoryLimit."""
        idle = [item for item in old if not _replicas(item).desired and not _replicas(item).present]
        surplus = len(idle) - int(deployment["spec"].get("revisionHistoryLimit", 10))
        for item in sorted(idle, key=_revision)[: max(0, surplus)]:
            delete_object(self.client, REPLICA_SETS, item)

    # --- status ---

    def _write_status(self, deployment: Object, new: Object | None, old: list[Object]) -> None:
        sets = [*old, *([new] if new is not None else [])]
        replicas = int(deployment["spec"].get("replicas", 1))
        counts = [_replicas(item) for item in sets]
        available = sum(item.available for item in counts)
        present = sum(item.present for item in counts)
        updated = _replicas(new).present if new is not None else 0
        conditions = list((deployment.get("status") or {}).get("conditions") or [])
        _, unavailable = fenceposts(*_limits(deployment), replicas)
        enough = available >= replicas - (unavailable if _strategy(deployment) != "Recreate" else 0)
        conditions = with_condition(
            conditions,
            "Available",
            "True" if enough else "False",
            "MinimumReplicasAvailable" if enough else "MinimumReplicasUnavailable",
            f"Deployment {'has' if enough else 'does not have'} minimum availability.",
        )
        done = updated == replicas and present == replicas and available == replicas
        name = new["metadata"]["name"] if new is not None else ""
        conditions = with_condition(
            conditions,
            "Progressing",
            "True",
            "NewReplicaSetAvailable" if done else "ReplicaSetUpdated",
            f'ReplicaSet "{name}" {"has successfully progressed" if done else "is progressing"}.',
        )
        status: Json = {
            "observedGeneration": deployment["metadata"].get("generation", 0),
            "replicas": present,
            "updatedReplicas": updated,
            "readyReplicas": sum(int((item.get("status") or {}).get("readyReplicas", 0)) for item in sets),
            "availableReplicas": available,
            "unavailableReplicas": max(0, max(replicas, present) - available),
            "conditions": conditions,
        }
        write_status(self.client, DEPLOYMENTS, deployment, status)


def _limits(deployment: Object) -> tuple[object, object]:
    rolling = (deployment["spec"].get("strategy") or {}).get("rollingUpdate") or {}
    return rolling.get("maxSurge", "25%"), rolling.get("maxUnavailable", "25%")


def _strategy(deployment: Object) -> str:
    return str((deployment["spec"].get("strategy") or {}).get("type", "RollingUpdate"))


def _replicas(item: Object) -> Replicas:
    status = item.get("status") or {}
    return Replicas(
        key_of(item),
        int(item["spec"].get("replicas", 1)),
        int(status.get("replicas", 0)),
        int(status.get("availableReplicas", 0)),
    )


def _revision(item: Object) -> int:
    text = (item["metadata"].get("annotations") or {}).get(REVISION, "0")
    return int(text) if text.isdigit() else 0


def _age(item: Object) -> tuple[str, str]:
    return item["metadata"].get("creationTimestamp") or "", item["metadata"]["name"]
