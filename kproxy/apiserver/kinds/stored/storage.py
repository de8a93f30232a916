"""Volumes, runtime classes, devices and disruption budgets: what kubelets and schedulers list before they begin.

Nothing here provisions, attaches or allocates; evictions read the disruption budgets.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from kproxy.api.fielderror import FieldError, invalid
from kproxy.apiserver.errors import Json
from kproxy.apiserver.kinds.stored.row import Stored
from kproxy.apiserver.schema.quantity import round_resources

_STORAGE: Final = "storage.k8s.io"
_DEVICES: Final = "resource.k8s.io"


def _complete_volume(value: Json) -> None:
    round_resources(value["spec"].get("capacity"))


def _complete_claim(value: Json) -> None:
    for part in ("limits", "requests"):
        round_resources((value["spec"].get("resources") or {}).get(part))


def _complete_runtime_class(value: Json) -> None:
    round_resources((value.get("overhead") or {}).get("podFixed"))


def _budget_errors(value: Json) -> Iterator[FieldError]:
    spec = value["spec"]
    if spec.get("minAvailable") is not None and spec.get("maxUnavailable") is not None:
        yield invalid("spec", spec, "minAvailable and maxUnavailable cannot be both set")


ROWS: Final = (
    Stored("", "PersistentVolume", "persistentvolumes", short="pv", namespaced=False, status={"phase": "Pending"},
           complete=_complete_volume, defaults="""
        spec.persistentVolumeReclaimPolicy  "Retain"
        spec.volumeMode                     "Filesystem"
    """),
    Stored("", "PersistentVolumeClaim", "persistentvolumeclaims", short="pvc", status={"phase": "Pending"},
           complete=_complete_claim, defaults='spec.volumeMode  "Filesystem"'),
    Stored(_STORAGE, "CSIDriver", "csidrivers", namespaced=False, generation=("spec",), defaults="""
        spec.attachRequired        true
        spec.podInfoOnMount        false
        spec.volumeLifecycleModes  ["Persistent"]
        spec.storageCapacity       false
        spec.fsGroupPolicy         "ReadWriteOnceWithFSType"
        spec.requiresRepublish     false
        spec.seLinuxMount          false
    """),
    Stored(_STORAGE, "CSINode", "csinodes", namespaced=False),
    Stored(_STORAGE, "CSIStorageCapacity", "csistoragecapacities"),
    Stored(_STORAGE, "StorageClass", "storageclasses", short="sc", namespaced=False, defaults="""
        reclaimPolicy      "Delete"
        volumeBindingMode  "Immediate"
    """),
    Stored(_STORAGE, "VolumeAttachment", "volumeattachments", namespaced=False, status={"attached": False}),
    Stored(_STORAGE, "VolumeAttributesClass", "volumeattributesclasses", short="vac", namespaced=False),
    Stored("node.k8s.io", "RuntimeClass", "runtimeclasses", namespaced=False, qualified_finalizers=False,
           complete=_complete_runtime_class),
    Stored("policy", "PodDisruptionBudget", "poddisruptionbudgets", short="pdb", generation=("spec",),
           qualified_finalizers=False, errors=_budget_errors,
           status={"currentHealthy": 0, "desiredHealthy": 0, "disruptionsAllowed": 0, "expectedPods": 0}, rules="""
        spec.minAvailable                count
        spec.maxUnavailable              count
        spec.selector                    selector
        spec.unhealthyPodEvictionPolicy  one-of AlwaysAllow IfHealthyBudget
    """),
    Stored(_DEVICES, "DeviceClass", "deviceclasses", namespaced=False, generation=("spec",)),
    Stored(_DEVICES, "ResourceClaim", "resourceclaims", status={}),
    Stored(_DEVICES, "ResourceClaimTemplate", "resourceclaimtemplates"),
    Stored(_DEVICES, "ResourceSlice", "resourceslices", namespaced=False, generation=("spec",),
           fields=("spec.driver", "spec.nodeName")),
)  # fmt: skip
