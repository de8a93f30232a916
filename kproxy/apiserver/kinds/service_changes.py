"""How cluster IPs and families of a Service may change: the first stays, a second comes and goes with the policy.

Source: kubernetes/kubernetes pkg/apis/core/validation (ValidateServiceUpdate).
"""

from __future__ import annotations

from kproxy.api.fielderror import FieldError, invalid
from kproxy.apiserver.errors import Json


def _headless(spec: Json) -> bool:
    return spec.get("clusterIPs") == ["None"]


def changed_ips(spec: Json, before: Json) -> list[FieldError]:
    """Cluster IPs stay; only the second may be added, or given back (validateUpgradeDowngradeClusterIPs)."""
    mine, theirs = spec.get("clusterIPs") or [], before.get("clusterIPs") or []
    if _headless(spec) and _headless(before):
        return []
    if theirs and not mine:
        return [invalid("spec.clusterIPs[0]", None, "primary clusterIP can not be unset")]
    errors = [
        invalid(f"spec.clusterIPs[{index}]", mine, "may not change once set")
        for index, (new, old) in enumerate(zip(mine, theirs, strict=False))
        if new != old
    ]
    if len(mine) < len(theirs):
        errors += _released(spec, "secondary clusterIP")
    return errors


def changed_families(spec: Json, before: Json) -> list[FieldError]:
    """The same for families, which a headless Service may change (validateUpgradeDowngradeIPFamilies)."""
    mine, theirs = spec.get("ipFamilies") or [], before.get("ipFamilies") or []
    if _headless(spec) or _headless(before):
        return []
    errors = [
        invalid("spec.ipFamilies[0]", mine, "may not change once set")
        for new, old in zip(mine, theirs, strict=False)
        if new != old
    ]
    if mine and len(mine) < len(theirs):
        errors += _released(spec, "secondary ipFamily")
    return errors


def _released(spec: Json, what: str) -> list[FieldError]:
    policy = spec.get("ipFamilyPolicy")
    if policy == "SingleStack":
        return []
    return [invalid("spec.ipFamilyPolicy", policy, f"must be set to 'SingleStack' when releasing the {what}")]
