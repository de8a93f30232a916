"""Deletion, step by step: preconditions, finalizers, grace, the mark, and when nothing holds an object any more.

Source: k8s.io/apiserver pkg/registry/rest (BeforeDelete) and pkg/registry/generic/registry (store.go).
"""

from __future__ import annotations

from datetime import datetime, timedelta

from kproxy.apiserver.errors import Json, StatusError, forbidden
from kproxy.apiserver.kinds.resources import Resource
from kproxy.apiserver.kinds.strategy import FOREGROUND, ORPHAN
from kproxy.apiserver.registry.writes import DeleteOptions, timestamp


def check_deletable(resource: Resource, name: str) -> None:
    """Refuses to delete what must be there (for namespaces, the NamespaceLifecycle admission plugin).

    Raises:
        StatusError: 403.
    """
    if name in resource.strategy.undeletable:
        raise forbidden(resource.group, resource.plural, name, f"this {resource.singular} may not be deleted")


def check_preconditions(resource: Resource, name: str, live: Json, options: DeleteOptions) -> None:
    """Refuses a deletion whose preconditions the object does not meet.

    Raises:
        StatusError: 409.
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
    raise StatusError(409, "Conflict", message, {**({"group": resource.group} if resource.group else {}), **details})


def set_finalizers(meta: Json, propagation: str, *, orphans: bool) -> None:
    """Brings the finalizers of the garbage collector in line with the propagation that is asked for, else with those
    that are there, else with the kind's own way."""
    finalizers = list(meta.get("finalizers") or ())
    if not propagation and orphans and FOREGROUND not in finalizers:
        propagation = "Orphan"
    for finalizer, policy in ((ORPHAN, "Orphan"), (FOREGROUND, "Foreground")):
        if propagation == policy and finalizer not in finalizers:
            finalizers.append(finalizer)
        elif propagation and propagation != policy and finalizer in finalizers:
            finalizers.remove(finalizer)
    if finalizers:
        meta["finalizers"] = finalizers
    else:
        meta.pop("finalizers", None)


def finished(resource: Resource, value: Json) -> bool:
    """Whether nothing holds an object that is being deleted any more."""
    return not (resource.strategy.has_finalizers(value) or value["metadata"].get("deletionGracePeriodSeconds"))


def mark(resource: Resource, value: Json, grace: int, now: datetime) -> None:
    """Marks an object as being deleted; a later deletion can only shorten its grace (seconds)."""
    meta = value["metadata"]
    if not meta.get("deletionTimestamp"):
        meta["deletionTimestamp"] = timestamp(now + timedelta(seconds=grace))
        resource.strategy.mark_deleted(value, grace)
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
