"""What a loader tells about objects that it accepts."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from kproxy.api.validation.strict import spelling_errors, strict_errors, strict_warnings
from kproxy.api.wire import structs

ZEROS, MAPPED = "must not have leading 0s", "must not be an IPv4-mapped IPv6 address"


def spell(kind: str, **fields: Any) -> structs.WireObject:
    return msgspec.convert({"metadata": {"name": "a"}, **fields}, structs.KINDS[kind][1])


@pytest.mark.parametrize(
    ("spelled", "found"),
    [
        (spell("Service", spec={"clusterIP": "010.0.0.1"}), f'spec.clusterIPs[0]: Invalid value: "010.0.0.1": {ZEROS}'),
        (
            spell("Service", spec={"externalIPs": ["10.0.0.1", "::ffff:10.0.0.1"]}),
            f'spec.externalIPs[1]: Invalid value: "::ffff:10.0.0.1": {MAPPED}',
        ),
        (
            spell("Service", spec={"loadBalancerSourceRanges": [" 198.51.100.7/24 "]}),
            'spec.LoadBalancerSourceRanges[0]: Invalid value: "198.51.100.7/24": '
            "must not have bits set beyond the prefix length",
        ),
        (
            spell("Service", status={"loadBalancer": {"ingress": [{"ip": "10.0.0.01"}]}}, spec={}),
            f'status.loadBalancer.ingress[0].ip: Invalid value: "10.0.0.01": {ZEROS}',
        ),
        (
            spell("EndpointSlice", endpoints=[{"addresses": ["10.0.0.1"]}, {"addresses": ["10.0.00.1"]}]),
            f'endpoints[1].addresses[0]: Invalid value: "10.0.00.1": {ZEROS}',
        ),
        (
            spell("Endpoints", subsets=[{"notReadyAddresses": [{"ip": "01.0.0.1"}]}]),
            f'subsets[0].notReadyAddresses[0].ip: Invalid value: "01.0.0.1": {ZEROS}',
        ),
        (
            spell("Node", spec={"podCIDRs": ["10.0.0.0/024"]}),
            f'spec.podCIDRs[0]: Invalid value: "10.0.0.0/024": {ZEROS} in IP or prefix length',
        ),
    ],
)
def test_strict_errors(spelled: structs.WireObject, found: str) -> None:
    assert [str(error) for error in strict_errors(spelled)] == [found]
    path, _, detail = found.partition(": Invalid value: ")
    told = [(warning.path, warning.message) for warning in strict_warnings(spelled) if warning.path]
    value, _, message = detail.partition(": ")
    assert told == [(path, f"{value} {message}: a v1.36 API server refuses it in a new object")]


@pytest.mark.parametrize(
    "spelled",
    [
        spell("Service", spec={"clusterIPs": ["FD00::1", "nonsense"], "loadBalancerSourceRanges": ["nonsense"]}),
        spell("Service"),
        spell("EndpointSlice", addressType="FQDN", endpoints=[{"addresses": ["010.0.0.1"]}]),
        spell("Endpoints", subsets=[{"addresses": [{"ip": "FD00::1"}]}]),
        spell("Node"),
    ],
)
def test_forms_that_are_not_ambiguous(spelled: structs.WireObject) -> None:
    assert strict_errors(spelled) == []


def test_addresses_of_slices_are_canonical() -> None:
    """What can be read in one way only is no matter for a loader."""
    slice_ = spell("EndpointSlice", addressType="IPv6", endpoints=[{"addresses": ["fd00::1", "FD00:0::1"]}])
    wrong = 'endpoints[0].addresses[1]: Invalid value: "FD00:0::1": must be in canonical form ("fd00::1")'
    assert [str(error) for error in strict_errors(slice_)] == [wrong]
    assert strict_warnings(slice_) == []


def test_pod_cidr_and_pod_cidrs_must_agree() -> None:
    assert [
        str(error) for error in spelling_errors(spell("Node", spec={"podCIDR": "10.0.0.0/8", "podCIDRs": ["::/64"]}))
    ] == ['spec.podCIDRs: Invalid value: ["::/64"]: first value must match `podCIDR`']
    for spec in ({"podCIDR": "a", "podCIDRs": ["a", "b"]}, {"podCIDR": "a"}, {"podCIDRs": ["a"]}, None):
        assert spelling_errors(spell("Node", spec=spec)) == []
