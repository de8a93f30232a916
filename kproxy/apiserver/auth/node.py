"""What a kubelet may: users `system:node:NAME` in the group `system:nodes`.

A kubelet may read what the Pods on its node refer to, and write its own Node, Lease and CSINode and its own Pods. The
first is kube-apiserver's Node authorizer (kubernetes/kubernetes plugin/pkg/auth/authorizer/node), the second that and
the NodeRestriction admission plugin (plugin/pkg/admission/noderestriction). `NODE_RULES` are those of the ClusterRole
`system:node` (plugin/pkg/auth/authorizer/rbac/bootstrappolicy), which bound what is looked at one by one here.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

from kproxy.apiserver.auth.authentication import User
from kproxy.apiserver.errors import Json, forbidden
from kproxy.apiserver.kinds.resources import Resource
from kproxy.apiserver.storage.store import Store, Table

NODES: Final = "system:nodes"
_PREFIX: Final = "system:node:"
_LEASES: Final = "kube-node-lease"
_MIRROR: Final = "kubernetes.io/config.mirror"
_RESTRICTED: Final = ".node-restriction.kubernetes.io"
_KUBELET_SPACES: Final = (".kubelet.kubernetes.io", ".node.kubernetes.io")
_KUBELET_LABELS: Final = frozenset({
    "kubernetes.io/hostname", "kubernetes.io/os", "kubernetes.io/arch", "beta.kubernetes.io/os",
    "beta.kubernetes.io/arch", "beta.kubernetes.io/instance-type", "topology.kubernetes.io/zone",
    "topology.kubernetes.io/region", "failure-domain.beta.kubernetes.io/zone",
    "failure-domain.beta.kubernetes.io/region",
})  # fmt: skip
_READ: Final = ("get", "list", "watch")


def _rule(group: str, resources: str, verbs: str) -> Json:
    return {"verbs": verbs.split(), "apiGroups": [group], "resources": resources.split()}


NODE_RULES: Final = [
    _rule("authentication.k8s.io", "tokenreviews", "create"),
    _rule("authorization.k8s.io", "localsubjectaccessreviews subjectaccessreviews", "create"),
    _rule("", "services", "get list watch"),
    _rule("", "nodes", "create get list watch"),
    _rule("", "nodes/status", "patch update"),
    _rule("", "nodes", "patch update"),
    _rule("", "events", "create patch update"),
    _rule("events.k8s.io", "events", "create patch update"),
    _rule("", "pods", "get list watch"),
    _rule("", "pods", "create delete"),
    _rule("", "pods/status", "patch update"),
    _rule("", "pods/eviction", "create"),
    _rule("", "configmaps secrets", "get list watch"),
    _rule("", "persistentvolumeclaims persistentvolumes", "get"),
    _rule("", "endpoints", "get"),
    _rule("certificates.k8s.io", "certificatesigningrequests", "create get list watch"),
    _rule("coordination.k8s.io", "leases", "create delete get patch update"),
    _rule("storage.k8s.io", "volumeattachments", "get"),
    _rule("", "serviceaccounts/token", "create"),
    _rule("", "serviceaccounts", "get list watch"),
    _rule("", "persistentvolumeclaims/status", "get patch update"),
    _rule("storage.k8s.io", "csidrivers", "get list watch"),
    _rule("storage.k8s.io", "csinodes", "create delete get patch update"),
    _rule("node.k8s.io", "runtimeclasses", "get list watch"),
    _rule("resource.k8s.io", "resourceclaims", "get"),
    _rule("resource.k8s.io", "resourceslices", "create delete deletecollection get list patch update watch"),
]


def node_of(user: User | None) -> str:
    """The node whose kubelet a user is, "" for any other user."""
    if user is None or NODES not in user.groups or not user.name.startswith(_PREFIX):
        return ""
    return user.name.removeprefix(_PREFIX)


class NodeRights:
    """Decides what of NODE_RULES a kubelet may do with one object, from the tables of a store."""

    def __init__(self, store: Store) -> None:
        self._pods: Table = store.table("pods")
        self._claims: Table = store.table("persistentvolumeclaims")
        self._attachments: Table = store.table("volumeattachments.storage.k8s.io")
        self._slices: Table = store.table("resourceslices.resource.k8s.io")
        self._nodes: Table = store.table("nodes")

    def objection(self, node: str, verb: str, resource: str, namespace: str, name: str) -> str:
        """Why a kubelet may not do what NODE_RULES allow, "" if nothing is against it. `resource` is that of a rule:
        `pods/status`."""
        match resource:
            case "secrets" | "configmaps" | "persistentvolumeclaims" | "persistentvolumeclaims/status":
                return self._related(node, resource.partition("/")[0], namespace, name)
            case "serviceaccounts" | "serviceaccounts/token":
                return self._related(node, "serviceaccounts", namespace, name)
            case "persistentvolumes":
                return self._related(node, resource, "", name)
            case "volumeattachments":
                entry = self._attachments.head(name)
                return "" if entry is not None and entry.value["spec"].get("nodeName") == node else _unrelated(node)
            case "resourceslices" if verb in ("get", "update", "patch", "delete"):
                entry = self._slices.head(name)
                return "" if entry is not None and entry.value["spec"].get("nodeName") == node else _unrelated(node)
            case "leases":
                if namespace != _LEASES:
                    return f'can only access leases in the "{_LEASES}" system namespace'
                return _own(node, name, verb, "node lease")
            case "csinodes":
                return _own(node, name, verb, "CSINode")
            case "nodes" | "nodes/status" if verb not in _READ and verb != "create" and name != node:
                return f'node "{node}" is not allowed to modify node "{name}"'
            case "pods" | "pods/status" | "pods/eviction" if verb not in _READ and resource + verb != "podscreate":
                entry = self._pods.head(f"{namespace}/{name}")
                if entry is not None and entry.fields.get("spec.nodeName", "") != node:
                    return f'node "{node}" can only change pods with spec.nodeName set to itself'
        return ""

    def _related(self, node: str, plural: str, namespace: str, name: str) -> str:
        if not name or (not namespace and plural != "persistentvolumes"):
            return "can only read namespaced object of this type" if plural != "persistentvolumes" else _unrelated(node)
        if plural == "persistentvolumes":
            for entry in self._claims.in_namespace(""):
                if entry.value["spec"].get("volumeName") == name:
                    return self._related(node, "persistentvolumeclaims", entry.namespace, entry.name)
            return _unrelated(node)
        for entry in self._pods.in_namespace(namespace):
            if entry.fields.get("spec.nodeName") == node and (plural, name) in set(references(entry.value)):
                return ""
        return _unrelated(node)

    def check_write(self, resource: Resource, value: Json, old: Json | None, user: Any) -> None:
        """Refuses what a kubelet may not write into objects that it may write.

        Raises:
            ApiError: 403.
        """
        node = node_of(user)
        name, why = value["metadata"].get("name", ""), ""
        match node and (resource.group, resource.plural):
            case "", "nodes":
                why = _node_objection(node, value, old)
            case "", "pods":
                why = self._pod_objection(node, value, old)
            case "", "persistentvolumeclaims" if old is not None and _fixed_claim(value) != _fixed_claim(old):
                why = f'node "{node}" is not allowed to update fields other than status.capacity and status.conditions'
            case "resource.k8s.io", "resourceslices" if value["spec"].get("nodeName") != node:
                why = "can only write and delete ResourceSlices with the same NodeName as the requesting node"
            case "coordination.k8s.io", "leases":  # whose name the request for a new one does not have
                why = _own(node, name, "", "node lease")
            case "storage.k8s.io", "csinodes":
                why = _own(node, name, "", "CSINode")
        if why:
            raise forbidden(resource.group, resource.plural, name, why)

    def _pod_objection(self, node: str, value: Json, old: Json | None) -> str:
        if old is not None:
            mine, theirs = (each["metadata"].get("labels") or {} for each in (value, old))
            if mine != theirs:
                return f'node "{node}" cannot update labels through pod status'
            mine, theirs = ((each.get("status") or {}).get("resourceClaimStatuses") or [] for each in (value, old))
            return f'node "{node}" cannot update resource claim statuses' if mine != theirs else ""
        if _MIRROR not in (value["metadata"].get("annotations") or {}):
            return f'pod does not have "{_MIRROR}" annotation, node "{node}" can only create mirror pods'
        if value["spec"].get("nodeName") != node:
            return f'node "{node}" can only create pods with spec.nodeName set to itself'
        head = self._nodes.head(node)
        itself = {"apiVersion": "v1", "kind": "Node", "name": node, "uid": head.uid if head else "", "controller": True}
        owners = value["metadata"].get("ownerReferences") or []
        if [{key: each for key, each in owner.items() if each is not False} for owner in owners] != [itself]:
            return f'node "{node}" can only create pods with an owner reference set to itself'
        for plural, name in references(value):
            if name and not (
                plural == "serviceaccounts" and name == "default" and "serviceAccountName" not in value["spec"]
            ):
                return f'node "{node}" can not create pods that reference {plural}'
        sources = (each for volume in value["spec"].get("volumes") or ()
                   for each in (volume.get("projected") or {}).get("sources") or ())  # fmt: skip
        if any("clusterTrustBundle" in each for each in sources):
            return f'node "{node}" can not create pods that reference clustertrustbundles'
        if value["spec"].get("resourceClaims"):
            return f'node "{node}" can not create pods that reference resourceclaims'
        return ""

    def check_token(self, user: Any, namespace: str, account: str, bound: Json | None) -> None:
        """Refuses a kubelet a token that is not bound to a Pod on its node.

        Raises:
            ApiError: 403.
        """
        node = node_of(user)
        if not node:
            return
        bound, why = bound or {}, ""
        pod = self._pods.head(f"{namespace}/{bound.get('name', '')}")
        if bound.get("apiVersion") != "v1" or bound.get("kind") != "Pod" or not bound.get("name"):
            why = "node requested token not bound to a pod"
        elif not bound.get("uid"):
            why = "node requested token with a pod binding without a uid"
        elif pod is not None and pod.fields.get("spec.nodeName", "") != node:
            why = "node requested token bound to a pod scheduled on a different node"
        if why:
            raise forbidden("", "serviceaccounts", account, why)


def _own(node: str, name: str, verb: str, what: str) -> str:
    if name == node or (verb == "create" and not name):
        return ""
    return f"can only access {what} with the same name as the requesting node"


def _unrelated(node: str) -> str:
    return f"no relationship found between node '{node}' and this object"


def _node_objection(node: str, value: Json, old: Json | None) -> str:
    name = value["metadata"].get("name", "")
    if name != node:
        return f'node "{node}" is not allowed to modify node "{name}"'
    if value["spec"].get("configSource") != ((old or {}).get("spec") or {}).get("configSource"):
        return f'node "{node}" is not allowed to modify configSource'
    mine = value["metadata"].get("labels") or {}
    theirs = ((old or {}).get("metadata") or {}).get("labels") or {}
    changed = sorted(key for key in {*mine, *theirs} if mine.get(key) != theirs.get(key) and _is_restricted(key))
    if changed:
        return f'node "{node}" is not allowed to modify labels: {", ".join(changed)}'
    if old is not None and (value["spec"].get("taints") or []) != (old["spec"].get("taints") or []):
        return f'node "{node}" is not allowed to modify taints'
    if old is not None and value["metadata"].get("ownerReferences") != old["metadata"].get("ownerReferences"):
        # The garbage collector would delete the Node, which the kubelet may not.
        return f'node "{node}" is not allowed to modify ownerReferences'
    return ""


def _is_restricted(label: str) -> bool:
    """Whether a kubelet may not set a label: those that say what a node is trusted with, and all of Kubernetes' own
    that are not for kubelets (k8s.io/kubelet pkg/apis/well_known_labels.go)."""
    namespace = f".{label.rpartition('/')[0]}"
    if namespace.endswith(_RESTRICTED):
        return True
    ours = namespace.endswith((".kubernetes.io", ".k8s.io"))
    return ours and label not in _KUBELET_LABELS and not namespace.endswith(_KUBELET_SPACES)


def _fixed_claim(claim: Json) -> Json:
    """A claim without what a kubelet may write: the sizes and conditions that follow from a volume's resizing."""
    metadata = {key: each for key, each in claim["metadata"].items() if key not in ("resourceVersion", "managedFields")}
    status = {key: each for key, each in (claim.get("status") or {}).items() if key not in _RESIZING}
    return claim | {"metadata": metadata, "status": status}


_RESIZING: Final = (
    "capacity", "conditions", "allocatedResources", "allocatedResourceStatuses", "currentVolumeAttributesClassName",
    "modifyVolumeStatus",
)  # fmt: skip


def references(pod: Json) -> Iterator[tuple[str, str]]:
    """Plural and name of each object in its namespace that a Pod needs on its node.

    Source: pkg/api/v1/pod VisitPodSecretNames, VisitPodConfigmapNames.
    """
    spec = pod["spec"]
    yield "serviceaccounts", spec.get("serviceAccountName") or "default"
    for secret in spec.get("imagePullSecrets") or ():
        yield "secrets", secret.get("name", "")
    for kind in ("containers", "initContainers", "ephemeralContainers"):
        for container in spec.get(kind) or ():
            for source in container.get("envFrom") or ():
                yield from _named(source, ("secretRef", "secrets", "name"), ("configMapRef", "configmaps", "name"))
            for variable in container.get("env") or ():
                source = variable.get("valueFrom") or {}
                yield from _named(
                    source, ("secretKeyRef", "secrets", "name"), ("configMapKeyRef", "configmaps", "name")
                )
    for volume in spec.get("volumes") or ():
        yield from _volume(pod, volume)


def _volume(pod: Json, volume: Json) -> Iterator[tuple[str, str]]:
    yield from _named(
        volume, ("secret", "secrets", "secretName"), ("configMap", "configmaps", "name"),
        ("persistentVolumeClaim", "persistentvolumeclaims", "claimName"), ("azureFile", "secrets", "secretName"),
    )  # fmt: skip
    if "ephemeral" in volume:
        yield "persistentvolumeclaims", f"{pod['metadata'].get('name', '')}-{volume.get('name', '')}"
    for kind, field in (("csi", "nodePublishSecretRef"), *((each, "secretRef") for each in _WITH_SECRET)):
        secret = (volume.get(kind) or {}).get(field)
        if secret:
            yield "secrets", secret.get("name", "")
    for source in (volume.get("projected") or {}).get("sources") or ():
        yield from _named(source, ("secret", "secrets", "name"), ("configMap", "configmaps", "name"))


_WITH_SECRET: Final = ("cephfs", "cinder", "flexVolume", "rbd", "scaleIO", "iscsi", "storageos")


def _named(source: Json, *references: tuple[str, str, str]) -> Iterator[tuple[str, str]]:
    for key, plural, field in references:
        if (found := source.get(key)) is not None:
            yield plural, found.get(field, "")
