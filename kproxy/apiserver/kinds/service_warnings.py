"""What to warn the writer of a Service of, though it is accepted.

Source: kubernetes/kubernetes pkg/api/service/warnings.go.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from kproxy.api.addresses import canonical_cidr, canonical_ip
from kproxy.api.fielderror import show
from kproxy.apiserver.errors import Json

_HINTS: Final = "service.kubernetes.io/topology-aware-hints"


def service_warnings(value: Json) -> Iterator[str]:
    """Warnings of a Service."""
    spec, kind = value["spec"], value["spec"].get("type")
    if _HINTS in (value["metadata"].get("annotations") or {}):
        yield f"annotation {_HINTS} is deprecated, please use service.kubernetes.io/topology-mode instead"
    headless = kind == "ClusterIP" and spec.get("clusterIP") == "None"
    outside = spec.get("externalIPs") or []
    if headless:
        ignored = {
            "loadBalancerIP": spec.get("loadBalancerIP"),
            "externalIPs": outside,
            "SessionAffinity": spec.get("sessionAffinity") != "None",
        }
        yield from (f"spec.{name} is ignored for headless services" for name, given in ignored.items() if given)
    elif kind != "ExternalName":
        for index, each in enumerate(spec.get("clusterIPs") or ()):
            yield from _address(each, f"spec.clusterIPs[{index}]")
    for index, each in enumerate(outside):
        yield from _address(each, f"spec.externalIPs[{index}]")
    if outside and not headless and kind != "ExternalName":
        yield "spec.externalIPs is deprecated and may no longer be implemented in some clusters"
    if spec.get("loadBalancerIP"):
        yield from _address(spec["loadBalancerIP"], "spec.loadBalancerIP")
    for index, each in enumerate(spec.get("loadBalancerSourceRanges") or ()):
        yield from _network(each, f"spec.loadBalancerSourceRanges[{index}]")
    if kind == "ExternalName" and outside:
        yield 'spec.externalIPs is ignored when spec.type is "ExternalName"'
    if kind != "ExternalName" and spec.get("externalName"):
        yield 'spec.externalName is ignored when spec.type is not "ExternalName"'
    if spec.get("trafficDistribution") == "PreferClose":
        yield 'spec.trafficDistribution: "PreferClose" is deprecated; use "PreferSameZone"'


def _address(text: str, path: str) -> Iterator[str]:
    """k8s.io/apimachinery pkg/util/validation GetWarningsForIP, of an address that is valid."""
    canonical = canonical_ip(text)
    if ":" in text and canonical not in (None, text):
        yield f"{path}: IPv6 address {show(text)} should be in RFC 5952 canonical format ({show(canonical)})"


def _network(text: str, path: str) -> Iterator[str]:
    """GetWarningsForCIDR, of a network that is valid."""
    canonical = canonical_cidr(text.strip())
    if ":" in text and canonical not in (None, text):
        yield f"{path}: IPv6 CIDR value {show(text)} should be in RFC 5952 canonical format ({show(canonical)})"
