"""The API server's checks of a Node."""

from __future__ import annotations

import pytest

from kproxy.api.types.core import Node, NodeAddress
from kproxy.api.types.meta import ObjectMeta
from kproxy.api.validation.cluster import validate_node

META = ObjectMeta("node-0")


@pytest.mark.parametrize(
    "node",
    [
        Node(META),
        Node(META, ("10.0.0.0/24", "fd00::/64")),
        Node(META, addresses=(NodeAddress("InternalIP", "10.0.0.1"), NodeAddress("Hostname", "not an IP"))),
    ],
)
def test_legal(node: Node) -> None:
    assert validate_node(node) == []


@pytest.mark.parametrize(
    ("node", "errors"),
    [
        (Node(ObjectMeta("n", "default")), ["metadata.namespace: Forbidden: not allowed on this type"]),
        (
            Node(META, ("10.0.0.0",)),
            [
                'spec.podCIDRs[0]: Invalid value: "10.0.0.0": must be a valid CIDR value, '
                "(e.g. 10.9.8.0/24 or 2001:db8::/64)"
            ],
        ),
        (
            Node(META, ("10.0.0.0/24", "10.0.1.0/24")),
            [
                'spec.podCIDRs: Invalid value: ["10.0.0.0/24","10.0.1.0/24"]: '
                "may specify no more than one CIDR for each IP family"
            ],
        ),
        (
            Node(META, ("10.0.0.0/24", "fd00::/64", "fd00::/64")),
            [
                'spec.podCIDRs: Invalid value: ["10.0.0.0/24","fd00::/64","fd00::/64"]: '
                "may specify no more than one CIDR for each IP family",
                'spec.podCIDRs[2]: Duplicate value: "fd00::/64"',
            ],
        ),
        (
            Node(META, addresses=(NodeAddress("Hostname", "a"), NodeAddress("Hostname", "a"))),
            ['status.addresses[1]: Duplicate value: {"Type":"Hostname","Address":"a"}'],
        ),
    ],
)
def test_errors(node: Node, errors: list[str]) -> None:
    assert [str(error) for error in validate_node(node)] == errors
