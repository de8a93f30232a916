"""The permutation of addresses keeps what prefixes, networks and ranges hold."""

from __future__ import annotations

import ipaddress

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kproxy.collect.redact.addresses import AddressMap

KEY = bytes(range(32))
V4, V6 = ipaddress.IPv4Address, ipaddress.IPv6Address


def shared(one: int, other: int, width: int) -> int:
    return width - (one ^ other).bit_length()


@settings(max_examples=40)
@given(st.sampled_from([32, 128]), st.data())
def test_two_addresses_share_as_many_bits_as_before(width: int, data: st.DataObject) -> None:
    kind = V4 if width == 32 else V6
    number = st.integers(0, 2**width - 1)
    one = data.draw(number)
    other = one ^ data.draw(number) >> data.draw(st.integers(0, width))
    space = AddressMap(KEY)
    new_one, new_other = (int(space.address(kind(value))) for value in (one, other))
    if width == 128 and any(value >> 120 == 0 or value >> 118 == 0x3FA for value in (one, other)):
        return  # those that hold an IPv4 address or a MAC address
    assert shared(new_one, new_other, width) == shared(one, other, width)


@settings(max_examples=40)
@given(st.integers(0, 2**32 - 1), st.integers(0, 2**32 - 1), st.lists(st.integers(0, 2**32 - 1), max_size=20))
def test_ranges_hold_what_they_held(one: int, other: int, others: list[int]) -> None:
    first, last = sorted((one, other))
    space = AddressMap(KEY)
    space.keep_range(V4(first), V4(last))
    low, high = int(space.address(V4(first))), int(space.address(V4(last)))
    assert high - low == last - first
    for value in (*others, first + 1, last - 1, last + 1, first - 1):
        if 0 <= value < 2**32:
            assert (low <= int(space.address(V4(value))) <= high) == (first <= value <= last)


@pytest.mark.parametrize(
    "text",
    ["0.0.0.0", "127.0.0.1", "127.1.2.3", "169.254.20.10", "224.0.0.251", "255.255.255.255", "::", "::1", "ff02::1",
     "fe80::1"],
)  # fmt: skip
def test_special_addresses_stay(text: str) -> None:
    assert str(AddressMap(KEY).address(ipaddress.ip_address(text))) == text


@pytest.mark.parametrize("cidr", ["10.0.0.0/8", "172.16.0.0/12", "192.168.0.0/16", "100.64.0.0/10", "fd00::/8"])
def test_private_addresses_stay_private(cidr: str) -> None:
    network = ipaddress.ip_network(cidr)
    space = AddressMap(KEY)
    for at in (1, 77, 65000):
        mapped = space.address(network.network_address + at)
        assert mapped in network or (cidr == "fd00::/8" and mapped in ipaddress.ip_network("fc00::/7"))
    assert space.address(V4("8.8.8.8")).is_global


def test_the_first_and_the_last_address_of_a_network_stay_these() -> None:
    space = AddressMap(KEY)
    network = ipaddress.ip_network("10.32.0.0/12")
    space.keep_network(network)
    new = ipaddress.ip_network(space.network("10.32.0.0/12"))
    assert space.address(V4("10.32.0.0")) == new.network_address
    assert space.address(V4("10.47.255.255")) == new.broadcast_address
    hosts = [space.address(V4("10.32.0.0") + at) for at in range(1, 3000)]
    assert len(set(hosts)) == len(hosts)
    assert not {new.network_address, new.broadcast_address} & set(hosts)


def test_addresses_in_addresses_follow() -> None:
    space = AddressMap(KEY)
    inner = space.address(V4("192.0.2.1"))
    assert str(inner) != "192.0.2.1"
    assert space.address(V6("::ffff:192.0.2.1")) == V6(f"::ffff:{inner}")
    mac = space.mac("0a:11:22:33:44:55")
    assert mac.startswith("0a:")
    assert mac != "0a:11:22:33:44:55"
    first, second, third, fourth, fifth, sixth = mac.split(":")
    made = V6(f"fe80::{int(first, 16) ^ 2:02x}{second}:{third}ff:fe{fourth}:{fifth}{sixth}")
    assert space.address(V6("fe80::811:22ff:fe33:4455")) == made
