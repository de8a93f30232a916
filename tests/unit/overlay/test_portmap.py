"""Port mappings of host IPs: a wildcard is of its own family, as CNI's portmap has it."""

from __future__ import annotations

from typing import Any

import pytest

from kproxy.overlay.errors import CniError, Code
from kproxy.overlay.ipam import PENDING, Leases, Record, allocate
from kproxy.overlay.netconf import NetConf, read_netconf
from kproxy.overlay.portmap import plan_mapping


def conf(host_ip: str) -> NetConf:
    mapping = {"hostPort": 80, "containerPort": 8080, "protocol": "tcp", "hostIP": host_ip}
    document: dict[str, Any] = {
        "cniVersion": "1.0.0", "name": "n", "type": "kproxy-cni",
        "ipam": {"ranges": [[{"subnet": "10.0.0.0/24"}], [{"subnet": "fd00::/64"}]]},
        "runtimeConfig": {"portMappings": [mapping]},
    }  # fmt: skip
    return read_netconf(document, {})


@pytest.mark.parametrize(
    ("host_ip", "versions"),
    [("", {4, 6}), ("0.0.0.0", {4}), ("::", {6}), ("192.0.2.1", {4}), ("2001:db8::1", {6})],
)
def test_a_host_ip_is_of_one_family(host_ip: str, versions: set[int]) -> None:
    read = conf(host_ip)
    _, leases = allocate(Leases(), "a", Record(PENDING, (), "veth0"), read.ranges)
    texts = {version: plan_mapping("", "n", "a", leases, read.ports, version) for version in (4, 6)}
    assert {version for version, text in texts.items() if "--dport 80 -j DNAT" in text} == versions
    one = [host_ip] if host_ip in ("192.0.2.1", "2001:db8::1") else []
    assert all((f"-d {host_ip} " in texts[version]) is bool(one) for version in versions)


@pytest.mark.parametrize(
    ("first", "second", "taken"),
    [
        ("", "::", True), ("0.0.0.0", "", True), ("0.0.0.0", "192.0.2.1", True), ("2001:db8::1", "::", True),
        ("0.0.0.0", "::", False), ("0.0.0.0", "2001:db8::1", False), ("192.0.2.1", "192.0.2.2", False),
    ],
)  # fmt: skip
def test_a_wildcard_takes_the_port_of_every_address_of_its_family(first: str, second: str, taken: bool) -> None:
    ranges = conf("").ranges
    held, _ = allocate(Leases(), "a", Record(PENDING, (), "v", ports=((first, 80, "tcp"),)), ranges)
    wanted = Record(PENDING, (), "w", ports=((second, 80, "tcp"),))
    if not taken:
        allocate(held, "b", wanted, ranges)
        return
    with pytest.raises(CniError) as caught:
        allocate(held, "b", wanted, ranges)
    assert caught.value.code == Code.PORT_TAKEN
