"""Volumes, runtime classes, devices and disruption budgets: what kubelets and schedulers list before they begin.

Nothing here provisions, attaches, allocates or evicts.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from kproxy.api.fielderror import FieldError, forbidden, invalid, required
from kproxy.apiserver.errors import Json
from kproxy.apiserver.kinds.field_rules import defaults, rules, set_defaults
from kproxy.apiserver.kinds.podrules import CLAIM, NODE_SELECTOR, TOLERATION
from kproxy.apiserver.kinds.stored.row import Stored
from kproxy.apiserver.schema.quantity import round_resources

_STORAGE: Final = "storage.k8s.io"
_DEVICES: Final = "resource.k8s.io"
_BESIDE_SOURCE: Final = frozenset(
    {
        "accessModes", "capacity", "claimRef", "mountOptions", "nodeAffinity", "persistentVolumeReclaimPolicy",
        "storageClassName", "volumeAttributesClassName", "volumeMode",
    }
)  # fmt: skip


def _complete_volume(value: Json) -> None:
    round_resources(value["spec"].get("capacity"))


def _complete_claim(value: Json) -> None:
    for part in ("limits", "requests"):
        round_resources((value["spec"].get("resources") or {}).get(part))


def _complete_runtime_class(value: Json) -> None:
    round_resources((value.get("overhead") or {}).get("podFixed"))


def _volume_errors(value: Json) -> Iterator[FieldError]:
    spec = value["spec"]
    sources = [name for name, item in spec.items() if name not in _BESIDE_SOURCE and item is not None]
    if not sources:
        yield FieldError("spec", "Required value: must specify a volume type")
    yield from (forbidden(f"spec.{name}", "may not specify more than 1 volume type") for name in sources[1:])
    if (spec.get("nodeAffinity") or {}).get("required") is not None:
        yield from NODE_SELECTOR.errors(spec["nodeAffinity"]["required"], "spec.nodeAffinity.required")


def _class_update_errors(value: Json, old: Json) -> Iterator[FieldError]:
    for name in ("parameters", "provisioner", "reclaimPolicy", "volumeBindingMode"):
        if value.get(name) != old.get(name):
            yield forbidden(name, f"updates to {name} are forbidden.")


def _node_update_errors(value: Json, old: Json) -> Iterator[FieldError]:
    """A driver may change only how much it can take."""

    def fixed(driver: Json) -> Json:
        return {key: item for key, item in driver.items() if key != "allocatable"}

    before = {each.get("name"): fixed(each) for each in (old.get("spec") or {}).get("drivers") or ()}
    for each in (value.get("spec") or {}).get("drivers") or ():
        if each.get("name") in before and fixed(each) != before[each["name"]]:
            yield invalid("spec.drivers", each.get("name"), "field is immutable")


def _budget_errors(value: Json) -> Iterator[FieldError]:
    spec = value["spec"]
    if spec.get("minAvailable") is not None and spec.get("maxUnavailable") is not None:
        yield invalid("spec", spec, "minAvailable and maxUnavailable cannot be both set")


def _tolerations(value: Json) -> Iterator[FieldError]:
    for index, each in enumerate((value.get("scheduling") or {}).get("tolerations") or ()):
        yield from TOLERATION.errors(each, f"scheduling.tolerations[{index}]")


_REQUEST_DEFAULTS: Final = defaults("""
    devices.requests[].exactly.allocationMode                    "ExactCount"
    devices.requests[].exactly.tolerations[].operator            "Equal"
    devices.requests[].firstAvailable[].allocationMode           "ExactCount"
    devices.requests[].firstAvailable[].tolerations[].operator   "Equal"
""")
_REQUESTS: Final = rules("""
    devices.requests                                   unique name
    devices.requests[].name                            needed; label
    devices.requests[].exactly.deviceClassName         needed; subdomain
    devices.requests[].exactly.allocationMode          one-of All ExactCount
    devices.requests[].firstAvailable                  unique name
    devices.requests[].firstAvailable[].name           needed; label
    devices.requests[].firstAvailable[].deviceClassName  needed; subdomain
    devices.requests[].firstAvailable[].allocationMode   one-of All ExactCount
""")


def _device_requests(spec: Json) -> Iterator[tuple[str, Json]]:
    """What is asked for, and where it stands in a claim's spec."""
    for index, each in enumerate((spec.get("devices") or {}).get("requests") or ()):
        path = f"devices.requests[{index}]"
        if each.get("exactly") is not None:
            yield f"{path}.exactly", each["exactly"]
        yield from ((f"{path}.firstAvailable[{n}]", part) for n, part in enumerate(each.get("firstAvailable") or ()))


def _complete_requests(spec: Json) -> None:
    set_defaults(spec, _REQUEST_DEFAULTS)
    for _, request in _device_requests(spec):
        if request["allocationMode"] == "ExactCount" and not request.get("count"):
            request["count"] = 1


def _request_errors(spec: Json, at: str) -> Iterator[FieldError]:
    """pkg/apis/resource/validation: ValidateResourceClaimSpec."""
    yield from _REQUESTS.errors(spec, at)
    for index, each in enumerate((spec.get("devices") or {}).get("requests") or ()):
        given = (each.get("exactly") is not None) + bool(each.get("firstAvailable"))
        text = "exactly one of `exactly` or `firstAvailable` is required"
        if not given:
            yield required(f"{at}.devices.requests[{index}]", text)
        elif given > 1:
            yield invalid(f"{at}.devices.requests[{index}]", None, f"{text}, but multiple fields are set")
    for path, request in _device_requests(spec):
        mode, count = request.get("allocationMode"), request.get("count", 0)
        if mode == "ExactCount" and count <= 0:
            yield invalid(f"{at}.{path}.count", count, "must be greater than zero")
        elif mode == "All" and count:
            yield invalid(f"{at}.{path}.count", count, "must not be specified when allocationMode is 'All'")


ROWS: Final = (
    Stored("", "PersistentVolume", "persistentvolumes", short="pv", namespaced=False, status={"phase": "Pending"},
           complete=_complete_volume, errors=_volume_errors, defaults="""
        spec.persistentVolumeReclaimPolicy  "Retain"
        spec.volumeMode                     "Filesystem"
    """, rules="""
        spec.accessModes                    needed; unique
        spec.accessModes[]                  one-of ReadOnlyMany ReadWriteMany ReadWriteOnce ReadWriteOncePod
        spec.capacity                       needed; amounts
        spec.persistentVolumeReclaimPolicy  one-of Delete Recycle Retain
        spec.volumeMode                     one-of Block Filesystem
        spec.storageClassName               subdomain
        spec.hostPath.path                  needed; no-backsteps
        spec.nfs.server                     needed
        spec.nfs.path                       needed; absolute
        spec.local.path                     needed; no-backsteps
        spec.csi.driver                     needed
        spec.csi.volumeHandle               needed
    """),
    Stored("", "PersistentVolumeClaim", "persistentvolumeclaims", short="pvc", status={"phase": "Pending"},
           complete=_complete_claim, errors=lambda value: CLAIM.errors(value["spec"], "spec"),
           defaults='spec.volumeMode  "Filesystem"'),
    Stored(_STORAGE, "CSIDriver", "csidrivers", namespaced=False, generation=("spec",), defaults="""
        spec.attachRequired        true
        spec.podInfoOnMount        false
        spec.volumeLifecycleModes  ["Persistent"]
        spec.storageCapacity       false
        spec.fsGroupPolicy         "ReadWriteOnceWithFSType"
        spec.requiresRepublish     false
        spec.seLinuxMount          false
    """, rules="""
        spec.fsGroupPolicy           one-of File None ReadWriteOnceWithFSType
        spec.volumeLifecycleModes[]  one-of Ephemeral Persistent
        spec.tokenRequests           unique audience
        spec.tokenRequests[].expirationSeconds  range 600 4294967296
    """),
    Stored(_STORAGE, "CSINode", "csinodes", namespaced=False, update_errors=_node_update_errors, rules="""
        spec.drivers                      unique name
        spec.drivers[].name               needed; subdomain
        spec.drivers[].nodeID             needed; bytes 256
        spec.drivers[].topologyKeys       unique
        spec.drivers[].topologyKeys[]     qualified
        spec.drivers[].allocatable.count  min 0
    """),
    Stored(_STORAGE, "CSIStorageCapacity", "csistoragecapacities", fixed=("nodeTopology", "storageClassName"), rules="""
        storageClassName     needed; subdomain
        nodeTopology         selector
        capacity             amount
        maximumVolumeSize    amount
    """),
    Stored(_STORAGE, "StorageClass", "storageclasses", short="sc", namespaced=False, update_errors=_class_update_errors,
           defaults="""
        reclaimPolicy      "Delete"
        volumeBindingMode  "Immediate"
    """, rules="""
        provisioner          needed; qualified
        reclaimPolicy        one-of Delete Retain
        volumeBindingMode    one-of Immediate WaitForFirstConsumer
    """),
    Stored(_STORAGE, "VolumeAttachment", "volumeattachments", namespaced=False, status={"attached": False},
           fixed=("spec",), rules="""
        spec.attacher     needed; subdomain
        spec.nodeName     needed; subdomain
        spec.source       one-source
    """),
    Stored("node.k8s.io", "RuntimeClass", "runtimeclasses", namespaced=False, qualified_finalizers=False,
           complete=_complete_runtime_class, fixed=("handler",), errors=_tolerations, rules="""
        handler                  needed; label
        overhead.podFixed        amounts
        scheduling.nodeSelector  labels
    """),
    Stored("policy", "PodDisruptionBudget", "poddisruptionbudgets", short="pdb", generation=("spec",),
           qualified_finalizers=False, errors=_budget_errors,
           status={"currentHealthy": 0, "desiredHealthy": 0, "disruptionsAllowed": 0, "expectedPods": 0}, rules="""
        spec.minAvailable                count
        spec.maxUnavailable              count
        spec.selector                    selector
        spec.unhealthyPodEvictionPolicy  one-of AlwaysAllow IfHealthyBudget
        status.currentHealthy            min 0
        status.desiredHealthy            min 0
        status.disruptionsAllowed        min 0
        status.expectedPods              min 0
    """),
    Stored(_DEVICES, "DeviceClass", "deviceclasses", namespaced=False, generation=("spec",)),
    Stored(_DEVICES, "ResourceClaim", "resourceclaims", status={}, fixed=("spec",),
           complete=lambda value: _complete_requests(value["spec"]),
           errors=lambda value: _request_errors(value["spec"], "spec")),
    Stored(_DEVICES, "ResourceClaimTemplate", "resourceclaimtemplates", fixed=("spec",),
           complete=lambda value: _complete_requests(value["spec"]["spec"]),
           errors=lambda value: _request_errors(value["spec"]["spec"], "spec.spec")),
    Stored(_DEVICES, "ResourceSlice", "resourceslices", namespaced=False, generation=("spec",),
           fields=("spec.driver", "spec.nodeName"), rules="""
        spec.driver                   needed; subdomain
        spec.pool.name                needed
        spec.pool.generation          min 0
        spec.pool.resourceSliceCount  min 1
        spec.devices                  unique name
        spec.devices[].name           needed; label
    """),
)  # fmt: skip
