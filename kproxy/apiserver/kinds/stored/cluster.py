"""Limits, priorities, ingresses and network policies, which nothing here acts on; requests for certificates."""

from __future__ import annotations

from base64 import b64decode
from collections.abc import Iterator
from typing import Final

from kproxy.api.fielderror import FieldError, invalid
from kproxy.apiserver.errors import Json
from kproxy.apiserver.kinds.stored.row import Stored
from kproxy.apiserver.kinds.strategy import Context, path_name


def _begin_request(value: Json, context: Context) -> None:
    """Who asks is who is authenticated, whatever the request says."""
    spec, user = value["spec"], context.user
    for name in ("username", "uid", "groups", "extra"):
        spec.pop(name, None)
    if user is not None:
        spec |= user.info


def _request_errors(value: Json) -> Iterator[FieldError]:
    """What is no request for a certificate; `auth.signers` reads it."""
    text = value["spec"].get("request") or ""
    if not text:
        return  # `needed` says so
    from cryptography import x509

    try:
        x509.load_pem_x509_csr(b64decode(text))
    except ValueError:
        yield invalid("spec.request", text, "PEM block type must be CERTIFICATE REQUEST")


def _keep_decision(value: Json, old: Json) -> None:
    """Only the approval endpoint approves and denies."""
    decided = ("Approved", "Denied")
    kept = [each for each in (old.get("status") or {}).get("conditions") or () if each.get("type") in decided]
    status = value.setdefault("status", {})
    given = [each for each in status.get("conditions") or () if each.get("type") not in decided]
    status["conditions"] = kept + given
    if not status["conditions"]:
        del status["conditions"]


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
    Stored("networking.k8s.io", "NetworkPolicy", "networkpolicies", short="netpol", generation=("spec",),
           complete=_complete_policy),
    Stored("certificates.k8s.io", "CertificateSigningRequest", "certificatesigningrequests", short="csr",
           namespaced=False, status={}, subresources=("approval",), fields=("spec.signerName",), begin=_begin_request,
           kept=("spec",), keep_status=_keep_decision, errors=_request_errors, check_name=path_name, rules="""
        spec.request       needed
        spec.signerName    needed
        spec.usages        needed
    """),
)  # fmt: skip
