"""Deployment to ReplicaSets: rolling update, recreate, scaling, revisions, status; and ReplicaSet to Pods.

As kube-controller-manager's deployment controller, without progress deadlines. A ReplicaSet belongs to the Deployment's
present template if its own template is the same, the label pod-template-hash apart.

As its replica set controller: active pods are counted, missing ones are created, surplus ones deleted in its order
(those that matter least first). Pods that are not its own are not taken in, whatever their labels.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

import msgspec

from kproxy.lab.controllers.runtime import Create, Delete, Patch, Reconciler, Said, Tables, Write, status_writes
from kproxy.lab.controllers.workload import (
    create_pod,
    delete_pod,
    own_key,
    owned_by,
    owner_reference,
    pod_of,
    resolve,
    template_hash,
)
from kproxy.lab.events import WARNING
from kproxy.lab.resources import (
    DEPLOYMENTS,
    PODS,
    REPLICA_SETS,
    Json,
    Object,
    is_active,
    is_ready,
    is_terminating,
    key_of,
    with_condition,
)

HASH_LABEL: Final = "pod-template-hash"
REVISION: Final = "deployment.kubernetes.io/revision"
_KIND: Final = "Deployment"
_SET: Final = "ReplicaSet"
_NOT_COPIED: Final = ("kubectl.kubernetes.io/last-applied-configuration", REVISION)


def same_template(one: Object, other: Object) -> bool:
    """Whether two templates are equal, the hash label apart."""

    def plain(template: Object) -> Json:
        meta = dict(template.get("metadata") or {})
        meta.pop("creationTimestamp", None)
        meta["labels"] = {name: value for name, value in (meta.get("labels") or {}).items() if name != HASH_LABEL}
        return {**template, "metadata": meta}

    return plain(one) == plain(other)


def reconcile(key: str, tables: Tables) -> Iterator[Write]:
    """The ReplicaSets of a Deployment, and its status. A set that is made is scaled when its event comes."""
    deployment = tables.get(DEPLOYMENTS, key)
    if deployment is None or is_terminating(deployment):
        return
    sets = sorted(tables.owned(REPLICA_SETS, deployment), key=_age)
    template = deployment["spec"]["template"]
    new = next((item for item in sets if same_template(item["spec"]["template"], template)), None)
    old = [item for item in sets if item is not new]
    if not deployment["spec"].get("paused"):
        if new is not None:
            yield from _renumber(deployment, new, old)
            yield from _scale(deployment, new, old)
            yield from _clean_up(deployment, old)
        elif _strategy(deployment) == "Recreate" and any(_replicas(item).present for item in old):
            for item in old:
                if _replicas(item).desired:
                    yield from _set_replicas(deployment, item, 0)
        else:
            yield from _create(deployment, sets)
    yield from status_writes(DEPLOYMENTS, deployment, status_of(deployment, new, old))


CONTROLLER: Final = Reconciler(
    "deployment-controller", reconcile, ((DEPLOYMENTS, own_key), (REPLICA_SETS, owned_by(_KIND)))
)


# --- ReplicaSets ---


def _create(deployment: Object, sets: list[Object]) -> Iterator[Write]:
    meta, spec = deployment["metadata"], deployment["spec"]
    digest = template_hash(spec["template"])
    template = {**spec["template"], "metadata": dict(spec["template"].get("metadata") or {})}
    labels = {**(template["metadata"].get("labels") or {}), HASH_LABEL: digest}
    template["metadata"]["labels"] = labels
    selector = dict(spec["selector"])
    selector["matchLabels"] = {**(selector.get("matchLabels") or {}), HASH_LABEL: digest}
    kept = {name: value for name, value in (meta.get("annotations") or {}).items() if name not in _NOT_COPIED}
    revision = 1 + max(map(_revision, sets), default=0)
    # The first set needs no second write: it gets all replicas at once.
    replicas = 0 if any(_replicas(item).desired for item in sets) else int(spec.get("replicas", 1))
    name = f"{meta['name']}-{digest}"
    body: Json = {
        "metadata": {
            "name": name,
            "namespace": meta["namespace"],
            "labels": labels,
            "annotations": {**kept, REVISION: str(revision)},
            "ownerReferences": [owner_reference(deployment, _KIND)],
        },
        "spec": {"replicas": replicas, "selector": selector, "template": template},
    }
    refused = Said(
        deployment, _KIND, "ReplicaSetCreateError", f'Failed to create new replica set "{name}": {{error}}', WARNING
    )
    yield Create(REPLICA_SETS, body, _scaled(deployment, name, 0, replicas) if replicas else None, refused)
    yield from _note_revision(deployment, revision)


def _renumber(deployment: Object, new: Object, old: list[Object]) -> Iterator[Write]:
    """The set of the present template has the highest revision, also after an undo."""
    revision, highest = _revision(new), max(map(_revision, old), default=0)
    if revision <= highest:
        revision = highest + 1
        yield Patch(REPLICA_SETS, new, {"metadata": {"annotations": {REVISION: str(revision)}}})
    yield from _note_revision(deployment, revision)


def _note_revision(deployment: Object, revision: int) -> Iterator[Write]:
    if _revision(deployment) != revision:
        yield Patch(DEPLOYMENTS, deployment, {"metadata": {"annotations": {REVISION: str(revision)}}})


def _scale(deployment: Object, new: Object, old: list[Object]) -> Iterator[Write]:
    replicas = int(deployment["spec"].get("replicas", 1))
    if _strategy(deployment) == "Recreate":
        changes = {key_of(new): replicas} if _replicas(new).desired != replicas else {}
    else:
        surge, unavailable = fenceposts(*_limits(deployment), replicas)
        changes = plan_rolling(_replicas(new), [_replicas(item) for item in old], replicas, surge, unavailable)
    for item in (new, *old):
        if key_of(item) in changes:
            yield from _set_replicas(deployment, item, changes[key_of(item)])


def _scaled(deployment: Object, name: str, before: int, after: int) -> Said:
    text = f"Scaled {'up' if after > before else 'down'} replica set {name} from {before} to {after}"
    return Said(deployment, _KIND, "ScalingReplicaSet", text)


def _set_replicas(deployment: Object, item: Object, count: int) -> tuple[Write, Write]:
    patch = Patch(REPLICA_SETS, item, {"spec": {"replicas": count}})
    return patch, _scaled(deployment, item["metadata"]["name"], _replicas(item).desired, count)


def _clean_up(deployment: Object, old: list[Object]) -> Iterator[Write]:
    """Deletes old sets without pods beyond revisionHistoryLimit."""
    idle = [item for item in old if not _replicas(item).desired and not _replicas(item).present]
    surplus = len(idle) - int(deployment["spec"].get("revisionHistoryLimit", 10))
    for item in sorted(idle, key=_revision)[: max(0, surplus)]:
        yield Delete(REPLICA_SETS, item)


# --- how many replicas each ReplicaSet should have next (pkg/controller/deployment/rolling.go) ---


class Replicas(msgspec.Struct, frozen=True):
    """One ReplicaSet: its key, what it is asked for, how many are there and available. Older sets come first."""

    key: str
    desired: int
    present: int
    available: int


def fenceposts(surge: object, unavailable: object, replicas: int) -> tuple[int, int]:
    """maxSurge and maxUnavailable as numbers; both 0 would never get anywhere, so then one may be unavailable
    (ResolveFenceposts)."""
    max_surge = resolve(surge, replicas, up=True)
    max_unavailable = resolve(unavailable, replicas, up=False)
    if max_surge == 0 and max_unavailable == 0:
        max_unavailable = 1
    return max_surge, max_unavailable


def plan_rolling(
    new: Replicas, old: list[Replicas], replicas: int, max_surge: int, max_unavailable: int
) -> dict[str, int]:
    """What a rolling update scales next: the new set up as far as the surge lets it, the old ones down as far as enough
    pods stay available. Keys that need no change are left out."""
    changes: dict[str, int] = {}
    total = new.desired + sum(item.desired for item in old)
    if new.desired > replicas:
        changes[new.key] = replicas
    elif new.desired < replicas and (room := replicas + max_surge - total) > 0:
        changes[new.key] = new.desired + min(room, replicas - new.desired)
    changes.update(_scale_down_old(new, old, replicas - max_unavailable))
    return changes


def _scale_down_old(new: Replicas, old: list[Replicas], least: int) -> dict[str, int]:
    total = new.desired + sum(item.desired for item in old)
    budget = total - least - (new.desired - new.available)
    changes: dict[str, int] = {}
    if budget <= 0:
        return changes
    # Those that are not available go first: no client notices (cleanupUnhealthyReplicas).
    for item in old:
        dead = min(item.desired - item.available, budget)
        if dead > 0:
            changes[item.key] = item.desired - dead
            budget -= dead
    spare = new.available + sum(item.available for item in old) - least
    for item in old:
        here = changes.get(item.key, item.desired)
        drop = min(here, max(0, min(spare, budget)))
        if drop:
            changes[item.key] = here - drop
            spare -= drop
            budget -= drop
    return changes


# --- status ---


def status_of(deployment: Object, new: Object | None, old: list[Object]) -> Json:
    """The status of a Deployment with the set of its present template, and its old ones."""
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
    return {
        "observedGeneration": deployment["metadata"].get("generation", 0),
        "replicas": present,
        "updatedReplicas": updated,
        "readyReplicas": sum(int((item.get("status") or {}).get("readyReplicas", 0)) for item in sets),
        "availableReplicas": available,
        "unavailableReplicas": max(0, max(replicas, present) - available),
        "conditions": conditions,
    }


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


# --- ReplicaSet to Pods ---


def reconcile_set(key: str, tables: Tables) -> Iterator[Write]:
    """The pods of a ReplicaSet, and its status."""
    item = tables.get(REPLICA_SETS, key)
    if item is None or is_terminating(item):
        return
    active = [pod for pod in tables.owned(PODS, item) if is_active(pod)]
    missing = int(item["spec"].get("replicas", 1)) - len(active)
    for _ in range(missing):
        yield create_pod(item, _SET, pod_of(item, _SET))
    for pod in sorted(active, key=rank)[: max(0, -missing)]:
        yield delete_pod(item, _SET, pod)
    yield from status_writes(REPLICA_SETS, item, set_status(item, active))


SETS: Final = Reconciler("replicaset-controller", reconcile_set, ((REPLICA_SETS, own_key), (PODS, owned_by(_SET))))


def set_status(item: Object, active: list[Object]) -> Json:
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
