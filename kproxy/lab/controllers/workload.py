"""What the controllers of workloads share: which pods are whose, and pods made from templates."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from typing import Final

import msgspec

from kproxy.lab.controllers.runtime import Create, Delete, Keys, Said, Tables
from kproxy.lab.events import WARNING
from kproxy.lab.resources import KINDS, PODS, Json, Object, controller_of, key_of

NO_SCHEDULE: Final = "NoSchedule"
PREFER_NO_SCHEDULE: Final = "PreferNoSchedule"
NO_EXECUTE: Final = "NoExecute"
REVISION_LABEL: Final = "controller-revision-hash"
NAME_ALPHABET: Final = "bcdfghjklmnpqrstvwxz2456789"
"""apimachinery's util/rand: no vowels, so that no words come out."""


# --- whose ---


def own_key(item: Object, _tables: Tables) -> list[str]:
    """The object's own key."""
    return [key_of(item)]


def owned_by(kind: str) -> Keys:
    """The key of an object's controller, if that is of this kind."""

    def keys(item: Object, _tables: Tables) -> list[str]:
        owner = controller_of(item) or {}
        return [f"{item['metadata']['namespace']}/{owner['name']}"] if owner.get("kind") == kind else []

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


# --- pods ---


def template_hash(template: Object) -> str:
    """A hash of a pod template in apimachinery's safe alphabet."""
    digest = hashlib.sha256(msgspec.json.encode(template, order="deterministic")).digest()
    return "".join(NAME_ALPHABET[byte % len(NAME_ALPHABET)] for byte in digest[:10])


def pod_of(owner: Object, kind: str) -> Json:
    """A new pod of a controller, with the template's labels, annotations and spec; the server draws its name."""
    meta, template = owner["metadata"], owner["spec"]["template"]
    given = template.get("metadata") or {}
    return {
        "metadata": {
            "generateName": f"{meta['name']}-",
            "namespace": meta["namespace"],
            "labels": dict(given.get("labels") or {}),
            "annotations": dict(given.get("annotations") or {}),
            "ownerReferences": [owner_reference(owner, kind)],
        },
        "spec": dict(template["spec"]),
    }


def create_pod(owner: Object, kind: str, body: Json) -> Create:
    """The write that makes a pod of a workload, with the workload's Events."""
    return Create(
        PODS,
        body,
        Said(owner, kind, "SuccessfulCreate", "Created pod: {name}"),
        Said(owner, kind, "FailedCreate", "Error creating: {error}", WARNING),
    )


def delete_pod(owner: Object, kind: str, pod: Object, said: str = "") -> Delete:
    """The write that deletes a pod of a workload; `said` is the Event's message if not the usual one."""
    text = said or f"Deleted pod: {pod['metadata']['name']}"
    return Delete(PODS, pod, Said(owner, kind, "SuccessfulDelete", text))


def resolve(value: object, replicas: int, *, up: bool) -> int:
    """An int-or-percent: `25%` of the replicas, rounded up or down; 0 for what is neither."""
    if isinstance(value, int):
        return value
    text = str(value)
    if text.endswith("%") and text[:-1].isdigit():
        share = int(text[:-1]) * replicas
        return -(-share // 100) if up else share // 100
    return 0


# --- revisions ---


def revision_of(pod: Object) -> str:
    """The revision of its workload's template that a pod of a DaemonSet or StatefulSet was made from."""
    return str((pod["metadata"].get("labels") or {}).get(REVISION_LABEL, ""))


def rolls(item: Object) -> bool:
    """Whether a DaemonSet or StatefulSet replaces the pods of older revisions by itself."""
    return bool((item["spec"].get("updateStrategy") or {}).get("type", "RollingUpdate") == "RollingUpdate")


# --- taints ---


def untolerated(spec: Object, node: Object, *effects: str) -> Iterator[Object]:
    """The taints of a node, of some effects, that a pod of this spec does not tolerate (k8s.io/component-helpers
    scheduling/corev1)."""
    tolerations = spec.get("tolerations") or ()
    for taint in (node.get("spec") or {}).get("taints") or ():
        if taint.get("effect") in effects and not any(tolerates(each, taint) for each in tolerations):
            yield taint


def tolerates(toleration: Object, taint: Object) -> bool:
    """Whether a toleration is for a taint."""
    if (toleration.get("effect") or taint["effect"]) != taint["effect"]:
        return False
    if (toleration.get("key") or taint["key"]) != taint["key"]:
        return False
    operator = toleration.get("operator") or "Equal"
    # Without a key only Exists is allowed, which the API server sees to.
    return operator == "Exists" or (
        operator == "Equal" and (toleration.get("value") or "") == (taint.get("value") or "")
    )
