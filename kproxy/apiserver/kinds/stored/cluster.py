"""Limits, priorities, ingresses and network policies, which nothing here acts on; requests for certificates."""

from __future__ import annotations

from typing import Final

from kproxy.api.addresses import check_ip
from kproxy.apiserver.errors import Json
from kproxy.apiserver.kinds.stored.row import Stored
from kproxy.apiserver.kinds.strategy import path_name

_NO_LIMITS: Final = "{} is stored, but kproxy's API server limits nothing by it"


def _complete_policy(value: Json) -> None:
    """A NetworkPolicy is about what comes in, and about what goes out if it says anything of that."""
    spec = value["spec"]
    if not spec.get("policyTypes"):
        spec["policyTypes"] = ["Ingress", "Egress"] if spec.get("egress") else ["Ingress"]
    for rule in (*(spec.get("ingress") or ()), *(spec.get("egress") or ())):
        for port in rule.get("ports") or ():
            port.setdefault("protocol", "TCP")


ROWS: Final = (
    Stored("", "LimitRange", "limitranges", short="limits", unenforced=_NO_LIMITS.format("LimitRange")),
    Stored("", "ResourceQuota", "resourcequotas", short="quota", status={},
           unenforced=_NO_LIMITS.format("ResourceQuota")),
    Stored("networking.k8s.io", "Ingress", "ingresses", short="ing", status={"loadBalancer": {}},
           generation=("spec",)),
    Stored("networking.k8s.io", "IngressClass", "ingressclasses", namespaced=False, generation=("spec",),
           fixed=("spec.controller",), defaults='spec.parameters.scope  "Cluster"'),
    Stored("scheduling.k8s.io", "PriorityClass", "priorityclasses", short="pc", namespaced=False,
           generation=("metadata.generation",),
           defaults='preemptionPolicy  "PreemptLowerPriority"'),
    Stored("networking.k8s.io", "IPAddress", "ipaddresses", short="ip", namespaced=False,
           check_name=lambda name: check_ip(name, True)),
    Stored("networking.k8s.io", "ServiceCIDR", "servicecidrs", namespaced=False, status={}),
    Stored("networking.k8s.io", "NetworkPolicy", "networkpolicies", short="netpol", generation=("spec",),
           complete=_complete_policy),
    Stored("certificates.k8s.io", "CertificateSigningRequest", "certificatesigningrequests", short="csr",
           namespaced=False, status={}, fields=("spec.signerName",), check_name=path_name,
           unenforced="CertificateSigningRequest is stored, but kproxy's API server signs nothing"),
)  # fmt: skip
