"""The spelling of field names."""

from __future__ import annotations

import msgspec
import pytest

from kproxy.api.wire import structs


@pytest.mark.parametrize(
    ("name", "spelled"),
    [
        ("port", "port"),
        ("target_port", "targetPort"),
        ("cluster_ips", "clusterIPs"),
        ("external_ips", "externalIPs"),
        ("load_balancer_ip", "loadBalancerIP"),
        ("load_balancer_source_ranges", "loadBalancerSourceRanges"),
        ("allocate_load_balancer_node_ports", "allocateLoadBalancerNodePorts"),
        ("client_ip", "clientIP"),
        ("pod_cidrs", "podCIDRs"),
        ("ip_mode", "ipMode"),
        ("ip_families", "ipFamilies"),
        ("api_version", "apiVersion"),
    ],
)
def test_api_name(name: str, spelled: str) -> None:
    assert structs.api_name(name) == spelled


@pytest.mark.parametrize("kind", structs.KINDS)
def test_null_is_absent_everywhere(kind: str) -> None:
    """Go clients write null for every empty pointer, list and map, at any depth."""
    struct = structs.KINDS[kind][1]
    fields = {item.encode_name: None for item in msgspec.structs.fields(struct)}
    assert msgspec.convert(fields, struct) == struct()
