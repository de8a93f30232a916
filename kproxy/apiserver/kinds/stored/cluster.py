"""What nothing here acts on: limits, priorities, addresses, policies of networks, requests for certificates, Leases;
what kubelets and schedulers list before they begin: volumes, runtime classes, devices and disruption budgets.

Nothing here provisions, attaches or allocates; evictions read the disruption budgets.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from kproxy.api.addresses import check_ip
from kproxy.api.fielderror import FieldError, invalid
from kproxy.apiserver.errors import Json
from kproxy.apiserver.kinds.stored.row import Kind
from kproxy.apiserver.kinds.strategy import path_name

_STORAGE: Final = "storage.k8s.io"
_NO_LIMITS: Final = "{} is stored, but kproxy's API server limits nothing by it"
_DEVICES: Final = "resource.k8s.io"


def _budget_errors(value: Json) -> Iterator[FieldError]:
    spec = value["spec"]
    if spec.get("minAvailable") is not None and spec.get("maxUnavailable") is not None:
        yield invalid("spec", spec, "minAvailable and maxUnavailable cannot be both set")


def _complete_policy(value: Json) -> None:
    """A NetworkPolicy is about what comes in, and about what goes out if it says anything of that."""
    spec = value["spec"]
    if not spec.get("policyTypes"):
        spec["policyTypes"] = ["Ingress", "Egress"] if spec.get("egress") else ["Ingress"]
    for rule in (*(spec.get("ingress") or ()), *(spec.get("egress") or ())):
        for port in rule.get("ports") or ():
            port.setdefault("protocol", "TCP")


ROWS: Final = (
    Kind("coordination.k8s.io", "Lease", "leases", qualified_finalizers=False, create_on_update=True, rules="""
        spec.leaseDurationSeconds  min 1
        spec.leaseTransitions      min 0
    """),
    Kind("", "LimitRange", "limitranges", short="limits", unenforced=_NO_LIMITS.format("LimitRange")),
    Kind("", "ResourceQuota", "resourcequotas", short="quota", status={},
           unenforced=_NO_LIMITS.format("ResourceQuota")),
    Kind("networking.k8s.io", "Ingress", "ingresses", short="ing", status={"loadBalancer": {}},
           generation=("spec",)),
    Kind("networking.k8s.io", "IngressClass", "ingressclasses", namespaced=False, generation=("spec",),
           fixed=("spec.controller",), defaults='spec.parameters.scope  "Cluster"'),
    Kind("scheduling.k8s.io", "PriorityClass", "priorityclasses", short="pc", namespaced=False,
           generation=("metadata.generation",),
           defaults='preemptionPolicy  "PreemptLowerPriority"'),
    Kind("networking.k8s.io", "IPAddress", "ipaddresses", short="ip", namespaced=False,
           check_name=lambda name: check_ip(name, True)),
    Kind("networking.k8s.io", "ServiceCIDR", "servicecidrs", namespaced=False, status={}),
    Kind("networking.k8s.io", "NetworkPolicy", "networkpolicies", short="netpol", generation=("spec",),
           complete=_complete_policy),
    Kind("certificates.k8s.io", "CertificateSigningRequest", "certificatesigningrequests", short="csr",
           namespaced=False, status={}, fields=("spec.signerName",), check_name=path_name,
           unenforced="CertificateSigningRequest is stored, but kproxy's API server signs nothing"),
    Kind("", "PersistentVolume", "persistentvolumes", short="pv", namespaced=False, status={"phase": "Pending"},
           defaults="""
        spec.persistentVolumeReclaimPolicy  "Retain"
        spec.volumeMode                     "Filesystem"
    """),
    Kind("", "PersistentVolumeClaim", "persistentvolumeclaims", short="pvc", status={"phase": "Pending"},
           defaults='spec.volumeMode  "Filesystem"'),
    Kind(_STORAGE, "CSIDriver", "csidrivers", namespaced=False, generation=("spec",), defaults="""
        spec.attachRequired        true
        spec.podInfoOnMount        false
        spec.volumeLifecycleModes  ["Persistent"]
        spec.storageCapacity       false
        spec.fsGroupPolicy         "ReadWriteOnceWithFSType"
        spec.requiresRepublish     false
        spec.seLinuxMount          false
    """),
    Kind(_STORAGE, "CSINode", "csinodes", namespaced=False),
    Kind(_STORAGE, "CSIStorageCapacity", "csistoragecapacities"),
    Kind(_STORAGE, "StorageClass", "storageclasses", short="sc", namespaced=False, defaults="""
        reclaimPolicy      "Delete"
        volumeBindingMode  "Immediate"
    """),
    Kind(_STORAGE, "VolumeAttachment", "volumeattachments", namespaced=False, status={"attached": False}),
    Kind(_STORAGE, "VolumeAttributesClass", "volumeattributesclasses", short="vac", namespaced=False),
    Kind("node.k8s.io", "RuntimeClass", "runtimeclasses", namespaced=False, qualified_finalizers=False),
    Kind("policy", "PodDisruptionBudget", "poddisruptionbudgets", short="pdb", generation=("spec",),
           qualified_finalizers=False, errors=_budget_errors,
           status={"currentHealthy": 0, "desiredHealthy": 0, "disruptionsAllowed": 0, "expectedPods": 0}, rules="""
        spec.minAvailable                count
        spec.maxUnavailable              count
        spec.selector                    selector
        spec.unhealthyPodEvictionPolicy  one-of AlwaysAllow IfHealthyBudget
    """),
    Kind(_DEVICES, "DeviceClass", "deviceclasses", namespaced=False, generation=("spec",)),
    Kind(_DEVICES, "ResourceClaim", "resourceclaims", status={}),
    Kind(_DEVICES, "ResourceClaimTemplate", "resourceclaimtemplates"),
    Kind(_DEVICES, "ResourceSlice", "resourceslices", namespaced=False, generation=("spec",),
           fields=("spec.driver", "spec.nodeName")),
)  # fmt: skip
