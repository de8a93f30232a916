"""Cluster IPs and node ports: each has one owner, and the lower part of a range is handed out last."""

from __future__ import annotations

import ipaddress
import random

import pytest

from kproxy.apiserver.kinds.allocator import NODE_PORTS, Addresses, AllocationError, Allocators, Ports


@pytest.mark.parametrize(("cidr", "count"), [("10.0.0.0/28", 14), ("10.0.0.0/24", 254), ("fd00::/124", 15)])
def test_every_address_once(cidr: str, count: int) -> None:
    network = ipaddress.ip_network(cidr)
    for seed in range(20):
        addresses = Addresses(cidr, random.Random(seed))
        given = [addresses.take_any() for _ in range(count)]
        assert len(set(given)) == count
        assert str(network.network_address) not in given
        if network.version == 4:
            assert str(network.broadcast_address) not in given
        with pytest.raises(AllocationError, match="range is full"):
            addresses.take_any()
        addresses.give_back(given[3])
        assert addresses.take_any() == given[3]


def test_the_lower_part_is_left_to_services_that_ask_for_a_value() -> None:
    addresses = Addresses("10.0.0.0/16", random.Random(1))
    assert all(int(addresses.take_any().split(".")[3]) >= 0 for _ in range(500))
    taken = [
        int(ipaddress.ip_address(addresses.take_any())) - int(ipaddress.ip_address("10.0.0.0")) for _ in range(500)
    ]
    assert min(taken) >= 256
    assert addresses.first == "10.0.0.1"
    addresses.take(addresses.first)


@pytest.mark.parametrize(
    ("address", "message"),
    [
        ("10.0.0.5", "provided IP is already allocated"),
        ("10.0.0.0", "provided IP is already allocated"),
        ("10.0.0.255", "provided IP is already allocated"),
        ("10.0.1.1", "does not match the current range"),
        ("fd00::1", "does not match the current range"),
    ],
)
def test_addresses_that_cannot_be_had(address: str, message: str) -> None:
    addresses = Addresses("10.0.0.0/24", random.Random(1))
    addresses.take("10.0.0.5")
    with pytest.raises(AllocationError, match=message):
        addresses.take(address)


def test_dry_runs_and_foreign_addresses_change_nothing() -> None:
    addresses = Addresses("10.0.0.0/24", random.Random(1))
    addresses.take("10.0.0.9", dry_run=True)
    addresses.take("10.0.0.9")
    for address in ("10.9.0.9", "fd00::1", "x", "10.0.0.0", "10.0.0.255"):
        addresses.give_back(address)
    for address in ("10.0.0.0", "10.0.0.255"):
        with pytest.raises(AllocationError):
            addresses.take(address)


def test_ports() -> None:
    ports = Ports(range(30000, 30040), random.Random(1))
    given = [ports.take_any() for _ in range(40)]
    assert sorted(given) == list(range(30000, 30040))
    assert min(given[:24]) >= 30016
    with pytest.raises(AllocationError, match="range is full"):
        ports.take_any()
    ports.give_back(30007)
    ports.take(30007, dry_run=True)
    ports.take(30007)
    with pytest.raises(AllocationError, match="already allocated"):
        ports.take(30007)
    with pytest.raises(AllocationError, match="valid ports is 30000-30039"):
        ports.take(80)


def test_families_come_in_the_order_of_their_ranges() -> None:
    allocators = Allocators(["fd00::/112", "10.0.0.0/16"], random.Random(1))
    assert (allocators.families, allocators.primary) == (["IPv6", "IPv4"], "IPv6")
    assert NODE_PORTS[-1] == 32767
