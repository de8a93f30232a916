"""Limits and priorities, ingresses, requests for certificates."""

from __future__ import annotations

from base64 import b64decode
from collections.abc import Iterator
from typing import Final

from kproxy.api.fielderror import FieldError, forbidden, invalid
from kproxy.apiserver.errors import Json
from kproxy.apiserver.kinds.stored.row import Stored
from kproxy.apiserver.kinds.strategy import Context, path_name
from kproxy.apiserver.schema.quantity import nanos, round_resources

_HIGHEST_PRIORITY: Final = 1_000_000_000

# --- limits and priorities ---


def _complete_limits(value: Json) -> None:
    """What the limits of containers leave open (SetDefaults_LimitRangeItem)."""
    for item in (value.get("spec") or {}).get("limits") or ():
        for name in ("max", "min", "default", "defaultRequest"):
            round_resources(item.get(name))
        if item.get("type") == "Container":
            limit = {**(item.get("max") or {}), **(item.get("default") or {})}
            asked = {**(item.get("min") or {}), **limit, **(item.get("defaultRequest") or {})}
            item |= {name: found for name, found in (("default", limit), ("defaultRequest", asked)) if found}


def _limit_errors(value: Json) -> Iterator[FieldError]:
    for index, item in enumerate(value["spec"].get("limits") or ()):
        path = f"spec.limits[{index}]"
        pairs = (("min", "max"), ("min", "default"), ("default", "max"), ("defaultRequest", "default"),
                 ("min", "defaultRequest"), ("defaultRequest", "max"))  # fmt: skip
        for low, high in pairs:
            for name, amount in (item.get(low) or {}).items():
                most = (item.get(high) or {}).get(name)
                if most is not None and nanos(amount) > nanos(most):
                    text = f"{low} value {amount} is greater than {high} value {most}"
                    yield invalid(f"{path}.{low}[{name}]", amount, text)
        if item.get("type") == "Pod":
            yield from (
                forbidden(f"{path}.{name}", "may not be specified when `type` is 'Pod'")
                for name in ("default", "defaultRequest")
                if item.get(name)
            )
        for name, ratio in (item.get("maxLimitRequestRatio") or {}).items():
            if nanos(ratio) < 10**9:
                yield invalid(f"{path}.maxLimitRequestRatio[{name}]", ratio, f"ratio {ratio} is less than 1")


def _complete_quota(value: Json) -> None:
    round_resources((value.get("spec") or {}).get("hard"))


_SYSTEM_PRIORITIES: Final = {"system-cluster-critical": 2_000_000_000, "system-node-critical": 2_000_001_000}


def _priority_errors(value: Json) -> Iterator[FieldError]:
    name, number = value["metadata"].get("name") or "", value.get("value", 0)
    if name.startswith("system-"):
        if _SYSTEM_PRIORITIES.get(name) != number:
            text = "priority class names with 'system-' prefix are reserved for system use only"
            yield forbidden("metadata.name", f"{text}. error: {name} is not a known system priority class")
    elif number > _HIGHEST_PRIORITY:
        yield forbidden("value", f"maximum allowed value of a user defined priority is {_HIGHEST_PRIORITY}")


def _priority_change_errors(value: Json, old: Json) -> Iterator[FieldError]:
    if value.get("value", 0) != old.get("value", 0):
        yield forbidden("value", "may not be changed in an update.")


def system_priority_classes() -> list[Json]:
    """The PriorityClasses that every cluster has (pkg/apis/scheduling/v1 SystemPriorityClasses)."""
    notes = {
        "system-node-critical": "Used for system critical pods that must not be moved from their current node.",
        "system-cluster-critical": "Used for system critical pods that must run in the cluster, but can be moved to "
        "another node if necessary.",
    }
    return [
        {"metadata": {"name": name}, "value": _SYSTEM_PRIORITIES[name], "description": text}
        for name, text in notes.items()
    ]


# --- certificates ---


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


_SCOPES: Final = (
    "BestEffort CrossNamespacePodAffinity NotBestEffort NotTerminating PriorityClass Terminating VolumeAttributesClass"
)

_NO_LIMITS: Final = "{} is stored, but kproxy's API server limits nothing by it"

ROWS: Final = (
    Stored("", "LimitRange", "limitranges", short="limits", complete=_complete_limits, errors=_limit_errors,
           unenforced=_NO_LIMITS.format("LimitRange"), rules="""
        spec.limits[].type             needed; one-of Container Pod PersistentVolumeClaim
        spec.limits[].max              amounts
        spec.limits[].min              amounts
        spec.limits[].default          amounts
        spec.limits[].defaultRequest   amounts
    """),
    Stored("", "ResourceQuota", "resourcequotas", short="quota", status={}, complete=_complete_quota,
           fixed=("spec.scopes", "spec.scopeSelector"), unenforced=_NO_LIMITS.format("ResourceQuota"), rules=f"""
        spec.hard        amounts
        spec.scopes      unique
        spec.scopes[]    one-of {_SCOPES}
        spec.scopeSelector.matchExpressions[].scopeName  needed; one-of {_SCOPES}
        spec.scopeSelector.matchExpressions[].operator   needed; one-of DoesNotExist Exists In NotIn
    """),
    Stored("networking.k8s.io", "Ingress", "ingresses", short="ing", status={"loadBalancer": {}},
           generation=("spec",)),
    Stored("networking.k8s.io", "IngressClass", "ingressclasses", namespaced=False, generation=("spec",),
           fixed=("spec.controller",), defaults='spec.parameters.scope  "Cluster"'),
    Stored("scheduling.k8s.io", "PriorityClass", "priorityclasses", short="pc", namespaced=False,
           generation=("metadata.generation",), fixed=("preemptionPolicy",), errors=_priority_errors,
           update_errors=_priority_change_errors,
           defaults='preemptionPolicy  "PreemptLowerPriority"',
           rules="preemptionPolicy  one-of Never PreemptLowerPriority"),
    Stored("certificates.k8s.io", "CertificateSigningRequest", "certificatesigningrequests", short="csr",
           namespaced=False, status={}, subresources=("approval",), fields=("spec.signerName",), begin=_begin_request,
           kept=("spec",), keep_status=_keep_decision, errors=_request_errors, check_name=path_name, rules="""
        spec.request       needed
        spec.signerName    needed
        spec.usages        needed
    """),
)  # fmt: skip
