"""Which pods belong to a workload: those it is the controller of, and orphans that its selector matches.

client-go's PodControllerRefManager: a pod whose labels the selector does not match any more is let go (that is how a
pod is taken out of a Deployment to be looked at), and an orphan that it does match is taken in. Both are patches with
the pod's resourceVersion, so that a decision about a pod that has changed since comes to nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, Final

from kproxy.client import RestClient
from kproxy.client.informer import Informer
from kproxy.informer import Unstructured, selector_matches
from kproxy.lab.resources import KINDS, PODS, Json, Object, controller_of, is_active

OWNER_INDEX: Final = "owner"
ORPHAN_INDEX: Final = "orphans"


def owner_index(item: Any) -> Iterable[str]:
    """Objects by the uid of their controller."""
    owner = controller_of(item.raw)
    return () if owner is None else (str(owner["uid"]),)


def orphan_index(item: Any) -> Iterable[str]:
    """Objects without a controller, by namespace."""
    return () if controller_of(item.raw) is not None else (str(item.raw["metadata"].get("namespace", "")),)


def owned_by(kind: str) -> Callable[[Object], list[str]]:
    """For informers: the key of an object's controller, if that is of this kind."""

    def keys(item: Object) -> list[str]:
        owner = controller_of(item) or {}
        return [f"{item['metadata']['namespace']}/{owner['name']}"] if owner.get("kind") == kind else []

    return keys


def owned_or_wanted_by(kind: str, workloads: Informer[Unstructured]) -> Callable[[Object], list[str]]:
    """The same for pods that may be taken in: one without a controller has the keys of the workloads that select it."""
    owned = owned_by(kind)

    def keys(pod: Object) -> list[str]:
        if controller_of(pod) is not None:
            return owned(pod)
        namespace = pod["metadata"]["namespace"]
        return [
            item.metadata.key
            for item in workloads.indexer.list()
            if item.metadata.namespace == namespace and selects(item.raw, pod)
        ]

    return keys


def owner_reference(item: Object, kind: str) -> Json:
    """A reference to the controller of what is created."""
    meta = item["metadata"]
    return {
        "apiVersion": KINDS[kind].group_version,
        "kind": kind,
        "name": meta["name"],
        "uid": meta["uid"],
        "controller": True,
        "blockOwnerDeletion": True,
    }


def selects(owner: Object, pod: Object) -> bool:
    """Whether a workload's selector matches a pod."""
    return selector_matches(owner["spec"].get("selector") or {}, pod["metadata"].get("labels") or {})


def claim(
    client: RestClient, owner: Object, kind: str, owned: Iterable[Object], orphans: Iterable[Object]
) -> list[Object]:
    """The pods of a workload, after those that are not any more were let go, and orphans taken in. Raises ApiError."""
    kept = []
    for pod in owned:
        if not is_active(pod) or selects(owner, pod):
            kept.append(pod)
            continue
        uid = owner["metadata"]["uid"]
        rest = [item for item in pod["metadata"]["ownerReferences"] if item.get("uid") != uid]
        _set_owners(client, pod, rest)
    for pod in orphans:
        if is_active(pod) and selects(owner, pod):
            there = list(pod["metadata"].get("ownerReferences") or ())
            _set_owners(client, pod, [*there, owner_reference(owner, kind)])
            kept.append(pod)
    return kept


def _set_owners(client: RestClient, pod: Object, owners: list[Json]) -> None:
    meta = pod["metadata"]
    patch = {"metadata": {"resourceVersion": meta["resourceVersion"], "ownerReferences": owners}}
    client.patch(PODS, meta["name"], patch, meta["namespace"])
