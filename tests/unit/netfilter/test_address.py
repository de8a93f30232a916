"""Addresses, masks and networks."""

from __future__ import annotations

import ipaddress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kproxy.netfilter.address import Network, format_address, parse_address
from kproxy.netfilter.family import Family

V4, V6 = Family.IPV4, Family.IPV6


@pytest.mark.parametrize(
    ("text", "value"),
    [("10.1.2.3", 0x0A010203), ("10", 0x0A000000), ("10.1", 0x0A010000), ("010.1.1.1", 0x08010101),
     ("0x0a.1.1.1", 0x0A010101), ("255.255.255.255", 0xFFFFFFFF)],
)  # fmt: skip
def test_ipv4(text: str, value: int) -> None:
    assert parse_address(text, V4) == value


@pytest.mark.parametrize("text", ["", "1.2.3.4.5", "256.1.1.1", "1..2", "a.b.c.d", "1.2.3.0x100", "::1", "1.2.3.08",
                                  "١.1.1.1", " 1.2.3.4", "www.example.org"])  # fmt: skip
def test_no_ipv4(text: str) -> None:
    with pytest.raises(ValueError, match="an IPv4 address expected"):
        parse_address(text, V4)


@pytest.mark.parametrize("text", ["", "1.2.3.4", "::g", "fe80::1%eth0", "1:2", ":::", "٠::"])
def test_no_ipv6(text: str) -> None:
    with pytest.raises(ValueError, match="an IPv6 address expected"):
        parse_address(text, V6)


@pytest.mark.parametrize(
    "text",
    ["::", "::1", "::ffff:1.2.3.4", "::1.2.3.4", "::ffff:0.0.0.0", "1:0:0:2::3", "1:0:2:0:3:0:4:0", "fd00::1:0:0",
     "::1:0:0", "2001:db8::"],
)  # fmt: skip
def test_ipv6_as_the_c_library_writes_it(text: str) -> None:
    assert format_address(parse_address(text, V6), V6) == text


@given(st.integers(0, (1 << 32) - 1))
def test_ipv4_comes_back(value: int) -> None:
    text = format_address(value, V4)
    assert parse_address(text, V4) == value
    assert text == str(ipaddress.IPv4Address(value))


@given(st.integers(0, (1 << 128) - 1))
def test_ipv6_comes_back(value: int) -> None:
    assert parse_address(format_address(value, V6), V6) == value


@pytest.mark.parametrize(
    ("given", "text", "length"),
    [("10.1.2.3/8", "10.0.0.0/8", 8), ("10.1.2.3", "10.1.2.3/32", 32),
     ("1.2.3.4/255.0.255.0", "1.0.3.0/255.0.255.0", None), ("0/0", "0.0.0.0/0", 0),
     ("10.0.0.1/255.255.255.0", "10.0.0.0/24", 24)],
)  # fmt: skip
def test_network(given: str, text: str, length: int | None) -> None:
    network = Network.parse(given, V4)
    assert str(network) == text
    assert network.prefix_length == length


@pytest.mark.parametrize("text", ["10.0.0.0/33", "10.0.0.0/08", "10.0.0.0/", "10.0.0.0/-1", "10.0.0.0/a", "/8"])
def test_no_network(text: str) -> None:
    with pytest.raises(ValueError, match="expected"):
        Network.parse(text, V4)
