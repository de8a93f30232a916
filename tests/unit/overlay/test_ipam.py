"""IPAM as a state machine: whatever the order of requests, nobody gets what another has."""

from __future__ import annotations

import ipaddress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kproxy.overlay.errors import CniError, Code
from kproxy.overlay.ipam import PENDING, Leases, Record, allocate, finish, next_address, read_range_set, release, stale
from tests.support.examples import tried

RECORD = Record(PENDING, (), "veth0")
SMALL = read_range_set([{"subnet": "10.0.0.0/29"}], "r")
"""Six addresses but the gateway: .2 to .6."""


def test_round_robin_behind_the_last_address() -> None:
    leases = Leases()
    got = []
    for number in range(7):
        leases, given_ = allocate(leases, f"c{number}/eth0", RECORD, [SMALL])
        got.append(str(given_[0].address))
        leases = release(leases, f"c{number}/eth0")
    assert got == [f"10.0.0.{last}" for last in (2, 3, 4, 5, 6, 2, 3)]


def test_a_set_of_several_ranges_is_used_in_order_and_the_gateways_of_all_are_kept() -> None:
    ranges = read_range_set(
        [
            {"subnet": "10.0.0.0/24", "rangeStart": "10.0.0.10", "rangeEnd": "10.0.0.11", "gateway": "10.0.0.10"},
            {"subnet": "10.0.1.0/24", "rangeStart": "10.0.1.0", "rangeEnd": "10.0.1.2"},
        ],
        "r",
    )
    leases, got = Leases(), []
    for number in range(2):
        leases, given_ = allocate(leases, f"c{number}/e", RECORD, [ranges])
        got.append(given_[0].interface)
    assert got == ["10.0.0.11/24", "10.0.1.2/24"]
    with pytest.raises(CniError) as caught:
        allocate(leases, "c9/e", RECORD, [ranges])
    assert caught.value.code == Code.RANGE_EXHAUSTED


def test_a_large_reserved_block_costs_nothing() -> None:
    wide = read_range_set([{"subnet": "fd00::/64"}], "r")
    found = next_address(wide, (), [ipaddress.ip_network("fd00::/65")], None)
    assert str(found) == "fd00::8000:0:0:0"
    assert next_address(wide, (), [ipaddress.ip_network("fd00::/64")], None) is None


def test_an_ipv6_range_has_its_last_address_and_an_ipv4_range_no_broadcast() -> None:
    assert (
        str(next_address(read_range_set([{"subnet": "fd00::/126", "rangeStart": "fd00::3"}], "r"), (), (), None))
        == "fd00::3"
    )
    only = read_range_set([{"subnet": "10.0.0.0/30"}], "r")
    assert next_address(only, {"10.0.0.2"}, (), None) is None


def test_host_ports_are_taken_by_address_and_protocol() -> None:
    def record(ip: str, protocol: str) -> Record:
        return Record(PENDING, (), "v", ports=((ip, 80, protocol),))

    leases, _ = allocate(Leases(), "a/e", record("10.9.9.9", "tcp"), [SMALL])
    leases, _ = allocate(leases, "b/e", record("10.9.9.8", "tcp"), [SMALL])
    leases, _ = allocate(leases, "c/e", record("", "udp"), [SMALL])
    for ip in ("", "10.9.9.9"):
        with pytest.raises(CniError) as caught:
            allocate(leases, "d/e", record(ip, "tcp"), [SMALL])
        assert caught.value.code == Code.PORT_TAKEN


@tried(60, 400)
@given(st.lists(st.tuples(st.booleans(), st.integers(0, 9)), max_size=60), st.sets(st.integers(2, 6), max_size=3))
def test_no_address_is_given_twice_and_none_is_lost(steps: list[tuple[bool, int]], reserved: set[int]) -> None:
    blocked = [ipaddress.ip_network(f"10.0.0.{last}/32") for last in reserved]
    usable = {f"10.0.0.{last}" for last in range(2, 7)} - {f"10.0.0.{last}" for last in reserved}
    leases = Leases()
    holders: dict[str, str] = {}
    for add, number in steps:
        key = f"c{number}/eth0"
        if not add:
            leases = release(leases, key)
            holders.pop(key, None)
            continue
        code: Code | None = None
        try:
            leases, given_ = allocate(leases, key, RECORD, [SMALL], blocked)
        except CniError as error:
            code = error.code
        if code is not None:
            assert code == (Code.ALREADY_ATTACHED if key in holders else Code.RANGE_EXHAUSTED)
            assert key in holders or len(holders) == len(usable)
            continue
        address = str(given_[0].address)
        assert address in usable
        assert address not in holders.values()
        holders[key] = address
        leases = finish(leases, key)
    assert {key: record.ips[0] for key, record in leases.records.items()} == holders


def test_stale_is_what_is_not_valid() -> None:
    leases = Leases({"a/eth0": RECORD, "a/net1": RECORD, "b/eth0": RECORD})
    assert stale(leases, {("a", "eth0"), ("c", "eth0")}) == ("a/net1", "b/eth0")
