"""Taints of nodes, and which of them a pod tolerates (k8s.io/component-helpers scheduling/corev1)."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from kproxy.lab.resources import Object

NO_SCHEDULE: Final = "NoSchedule"
PREFER_NO_SCHEDULE: Final = "PreferNoSchedule"
NO_EXECUTE: Final = "NoExecute"


def untolerated(spec: Object, node: Object, *effects: str) -> Iterator[Object]:
    """The taints of a node, of some effects, that a pod of this spec does not tolerate."""
    tolerations = spec.get("tolerations") or ()
    for taint in (node.get("spec") or {}).get("taints") or ():
        if taint.get("effect") in effects and not any(_tolerates(each, taint) for each in tolerations):
            yield taint


def _tolerates(toleration: Object, taint: Object) -> bool:
    if (toleration.get("effect") or taint["effect"]) != taint["effect"]:
        return False
    if (toleration.get("key") or taint["key"]) != taint["key"]:
        return False
    operator = toleration.get("operator") or "Equal"
    if operator == "Exists":
        return True
    # Without a key only Exists is allowed, which the API server sees to.
    return operator == "Equal" and (toleration.get("value") or "") == (taint.get("value") or "")
