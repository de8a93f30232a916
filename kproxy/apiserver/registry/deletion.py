"""Deletion, step by step: preconditions, finalizers, grace, the mark, and when nothing holds an object any more.

Source: k8s.io/apiserver pkg/registry/rest (BeforeDelete) and pkg/registry/generic/registry (store.go).
"""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Final

from kproxy.apiserver.errors import ApiError, Json, forbidden
from kproxy.apiserver.kinds.resources import Resource
from kproxy.apiserver.registry.writes import DeleteOptions, timestamp
from kproxy.apiserver.strategy import FOREGROUND, ORPHAN

CRDS: Final = "customresourcedefinitions.apiextensions.k8s.io"
CRD_CLEANUP: Final = "customresourcecleanup.apiextensions.k8s.io"
_IMMORTAL: Final = frozenset({"default", "kube-system", "kube-public"})


def check_immortal(resource: Resource, name: str) -> None:
    """Refuses to delete the namespaces that must be there (the NamespaceLifecycle admission plugin).

    Raises:
        ApiError: 403.
    """
    if resource.storage == "namespaces" and name in _IMMORTAL:
        raise forbidden("", "namespaces", name, "this namespace may not be deleted")


def check_preconditions(resource: Resource, name: str, live: Json, options: DeleteOptions) -> None:
    """Refuses a deletion whose preconditions the object does not meet.

    Raises:
        ApiError: 409.
    """
    meta = live["metadata"]
    if options.uid and options.uid != meta["uid"]:
        why = (
            f"the UID in the precondition ({options.uid}) does not match the UID in record ({meta['uid']}). "
            "The object might have been deleted and then recreated"
        )
    elif options.resource_version and options.resource_version != meta["resourceVersion"]:
        why = (
            f"the ResourceVersion in the precondition ({options.resource_version}) does not match the "
            f"ResourceVersion in record ({meta['resourceVersion']}). The object might have been modified"
        )
    else:
        return
    message = f'Operation cannot be fulfilled on {resource.kind} "{name}": {why}'
    if resource.group:
        message = f'Operation cannot be fulfilled on {resource.kind}.{resource.group} "{name}": {why}'
    details: Json = {"name": name, "kind": resource.kind}
    raise ApiError(409, "Conflict", message, {**({"group": resource.group} if resource.group else {}), **details})


def hold_instances(resource: Resource, value: Json, now: datetime) -> None:
    """A CustomResourceDefinition waits for its objects: a finalizer of its own, and a condition that says so.

    Source: k8s.io/apiextensions-apiserver pkg/registry/customresourcedefinition/etcd.go.
    """
    meta = value["metadata"]
    if resource.storage != CRDS or meta.get("deletionTimestamp"):
        return
    meta["finalizers"] = [each for each in meta.get("finalizers") or () if each != CRD_CLEANUP] + [CRD_CLEANUP]
    terminating = {
        "type": "Terminating", "status": "True", "lastTransitionTime": timestamp(now),
        "reason": "InstanceDeletionPending",
        "message": "CustomResourceDefinition marked for deletion; CustomResource deletion will begin soon",
    }  # fmt: skip
    status = value.setdefault("status", {})
    status["conditions"] = [*(status.get("conditions") or ()), terminating]


def set_finalizers(meta: Json, propagation: str) -> None:
    """Brings the finalizers of the garbage collector in line with the propagation that is asked for."""
    finalizers = list(meta.get("finalizers") or ())
    for finalizer, policy in ((ORPHAN, "Orphan"), (FOREGROUND, "Foreground")):
        if propagation == policy and finalizer not in finalizers:
            finalizers.append(finalizer)
        elif propagation and propagation != policy and finalizer in finalizers:
            finalizers.remove(finalizer)
    if finalizers:
        meta["finalizers"] = finalizers
    else:
        meta.pop("finalizers", None)


def grace_of(resource: Resource, value: Json, options: DeleteOptions) -> int:
    """Seconds a pod gets to end: none unless a node runs it (pkg/registry/core/pod/strategy.go)."""
    if resource.storage != "pods":
        return 0
    spec, phase = value["spec"], (value.get("status") or {}).get("phase")
    if not spec.get("nodeName") or phase in ("Succeeded", "Failed"):
        return 0
    if options.grace is not None:
        return max(options.grace, 0)
    return int(spec.get("terminationGracePeriodSeconds", 30))


def finished(resource: Resource, value: Json) -> bool:
    """Whether nothing holds an object that is being deleted any more."""
    if value["metadata"].get("finalizers"):
        return False
    if resource.storage == "namespaces":
        return not value["spec"].get("finalizers")
    return not value["metadata"].get("deletionGracePeriodSeconds")


def held(resource: Resource, value: Json, grace: int) -> bool:
    """Whether a deletion can only mark the object."""
    if value["metadata"].get("finalizers") or grace > 0:
        return True
    return bool(resource.storage == "namespaces" and value["spec"].get("finalizers"))


def mark(resource: Resource, value: Json, grace: int, now: datetime) -> None:
    """Marks an object as being deleted; a later deletion can only shorten its grace (seconds)."""
    meta = value["metadata"]
    if not meta.get("deletionTimestamp"):
        meta["deletionTimestamp"] = timestamp(now + timedelta(seconds=grace))
        if resource.storage == "namespaces":
            value["status"] = {**(value.get("status") or {}), "phase": "Terminating"}
        else:
            meta["deletionGracePeriodSeconds"] = grace
        if meta.get("generation"):
            meta["generation"] += 1
    elif grace < meta.get("deletionGracePeriodSeconds", 0):
        meta["deletionGracePeriodSeconds"] = grace
        meta["deletionTimestamp"] = timestamp(now + timedelta(seconds=grace))


def success(resource: Resource, name: str, uid: str) -> Json:
    """The Status that answers a deletion which leaves nothing to show."""
    details: Json = {"name": name}
    if resource.group:
        details["group"] = resource.group
    details |= {"kind": resource.plural, "uid": uid}
    return {"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success", "details": details}
