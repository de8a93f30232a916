"""What the wire spelling shows and the public value no longer does: odd forms that a cluster may hold.

Since v1.36 the API server refuses addresses with leading zeros, IPv4-mapped ones, and CIDRs with bits beyond the
prefix, but only in fields that change (KEP-4858): objects from before keep them, and kube-proxy reads them. In
EndpointSlices, which are younger than that, an address must be as Go prints it (IsValidIP of k8s.io/apimachinery
pkg/util/validation). A loader of cluster dumps must accept them all, and tells of the first, which can be
misread; `strict_errors` is what the API server answers to a new object.
"""

from __future__ import annotations

from collections.abc import Iterator

from kproxy.api.addresses import canonical_cidr, canonical_ip, check_cidr, strict_ip_messages
from kproxy.api.fielderror import FieldError, invalid, show
from kproxy.api.wire import structs


def spelling_errors(spelled: structs.WireObject) -> list[FieldError]:
    """Contradictions between two spellings of one thing, which decoding resolves: spec.podCIDR and spec.podCIDRs."""
    if isinstance(spelled, structs.WireNode) and spelled.spec is not None:
        one, many = spelled.spec.pod_cidr, spelled.spec.pod_cidrs
        if one and many and many[0] != one:
            return [invalid("spec.podCIDRs", many, "first value must match `podCIDR`")]
    return []


def strict_errors(spelled: structs.WireObject) -> list[FieldError]:
    """What StrictIPCIDRValidation refuses in a new object, beyond what the validators of public values refuse."""
    errors = [invalid(path, text, message) for path, text, message in _strict(spelled)]
    if isinstance(spelled, structs.WireEndpointSlice):
        for path, text, _ in _addresses(spelled):
            canonical = canonical_ip(text)
            if canonical is not None and not strict_ip_messages(text):
                errors.append(invalid(path, text, f"must be in canonical form ({show(canonical)})"))
    return errors


def _strict(spelled: structs.WireObject) -> Iterator[tuple[str, str, str]]:
    """Path, value and message of each warning. Invalid addresses are left to the validators."""
    for path, text, cidr in _addresses(spelled):
        if cidr:
            messages = check_cidr(text, True) if canonical_cidr(text) else ()
        else:
            messages = strict_ip_messages(text) if canonical_ip(text) not in (text, None) else ()
        for message in messages:
            yield path, text, message


def _addresses(spelled: structs.WireObject) -> Iterator[tuple[str, str, bool]]:
    """Path, trimmed text, and whether it is a CIDR, of each address field of an object."""
    if isinstance(spelled, structs.WireEndpointSlice):
        if spelled.address_type == "FQDN":
            return
        for index, endpoint in enumerate(spelled.endpoints or ()):
            for position, text in enumerate(endpoint.addresses or ()):
                if text and canonical_ip(text) != text:
                    yield f"endpoints[{index}].addresses[{position}]", text, False
    elif isinstance(spelled, structs.WireService):
        yield from _service_addresses(spelled)
    elif isinstance(spelled, structs.WireEndpoints):
        for index, subset in enumerate(spelled.subsets or ()):
            for name, items in (("addresses", subset.addresses), ("notReadyAddresses", subset.not_ready_addresses)):
                for position, item in enumerate(items or ()):
                    yield f"subsets[{index}].{name}[{position}].ip", item.ip or "", False
    elif isinstance(spelled, structs.WireServiceCIDR):
        for index, text in enumerate(spelled.spec.cidrs or () if spelled.spec is not None else ()):
            yield f"spec.cidrs[{index}]", text or "", True
    elif spelled.spec is not None:
        for index, text in enumerate(spelled.spec.pod_cidrs or ()):
            yield f"spec.podCIDRs[{index}]", text or "", True


def _service_addresses(spelled: structs.WireService) -> Iterator[tuple[str, str, bool]]:
    spec = spelled.spec
    if spec is None:
        return
    for index, text in enumerate(spec.cluster_ips or (spec.cluster_ip,)):
        yield f"spec.clusterIPs[{index}]", text or "", False
    for index, text in enumerate(spec.external_ips or ()):
        yield f"spec.externalIPs[{index}]", text or "", False
    for index, text in enumerate(spec.load_balancer_source_ranges or ()):
        yield f"spec.LoadBalancerSourceRanges[{index}]", (text or "").strip(), True
    if spelled.status is not None and spelled.status.load_balancer is not None:
        for index, item in enumerate(spelled.status.load_balancer.ingress or ()):
            yield f"status.loadBalancer.ingress[{index}].ip", item.ip or "", False


def strict_warnings(spelled: structs.WireObject) -> list[FieldError]:
    """What the user should know about an object that is accepted."""
    return [
        FieldError(path, f"{show(text)} {message}: a v1.36 API server refuses it in a new object")
        for path, text, message in _strict(spelled)
    ]
