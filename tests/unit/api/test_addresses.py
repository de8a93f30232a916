"""IP and CIDR forms: what Go reads, what it prints, what v1.36 refuses in new objects."""

from __future__ import annotations

import ipaddress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kproxy.api import addresses


@pytest.mark.parametrize(
    ("text", "canonical"),
    [
        ("10.0.0.1", "10.0.0.1"),
        ("0.0.0.0", "0.0.0.0"),
        ("255.255.255.255", "255.255.255.255"),
        ("010.001.0.09", "10.1.0.9"),
        ("FD00:0:0:0::0A", "fd00::a"),
        ("::ffff:10.0.0.1", "10.0.0.1"),
        ("::FFFF:0a00:0001", "10.0.0.1"),
        ("::ffff:010.0.0.1", "10.0.0.1"),
        ("64:ff9b::10.0.0.1", "64:ff9b::a00:1"),
        ("::", "::"),
        ("1:0:0:2:0:0:0:3", "1:0:0:2::3"),
        ("2001:db8:0:1:1:1:1:1", "2001:db8:0:1:1:1:1:1"),
    ],
)
def test_canonical_ip(text: str, canonical: str) -> None:
    assert addresses.canonical_ip(text) == canonical


@pytest.mark.parametrize(
    "text",
    ["", "None", "10.0.0", "10.0.0.256", "10.0.0.1/24", " 10.0.0.1", "10.0.0.1\n", "fe80::1%eth0", "1::2::3", "::g",
     "1.2.3.4.5", "10.0.0.-1", "١٠.0.0.1", "::ffff:10.0.0", "::1.2.3.400", "12345::", "0x0a.0.0.1", ":", "::\udc80"],
)  # fmt: skip
def test_no_ip(text: str) -> None:
    assert addresses.canonical_ip(text) is None
    assert addresses.check_ip(text, False) == (addresses.NOT_AN_IP,)
    assert addresses.check_ip(text, True) == (addresses.NOT_AN_IP,)


@given(st.ip_addresses())
def test_plain_addresses_are_their_own_canonical_form(
    address: ipaddress.IPv4Address | ipaddress.IPv6Address,
) -> None:
    mapped = address.ipv4_mapped if isinstance(address, ipaddress.IPv6Address) else None
    canonical = addresses.canonical_ip(str(address))
    assert canonical == str(mapped or address)
    assert addresses.canonical_ip(canonical) == canonical
    assert addresses.canonical_ip(address.exploded) == canonical
    assert addresses.ip_family(canonical) == ("IPv6" if address.version == 6 and mapped is None else "IPv4")


@given(st.text(max_size=50))
def test_any_text_is_an_address_or_none(text: str) -> None:
    canonical = addresses.canonical_ip(text)
    if canonical is not None:
        assert str(ipaddress.ip_address(canonical)) == canonical
    addresses.canonical_cidr(text)
    addresses.check_special_ip(text)
    addresses.check_cidr(text, True)


@pytest.mark.parametrize(
    ("text", "messages"),
    [
        ("10.0.0.1", ()),
        ("FD00::1", ()),  # not canonical, but unambiguous
        ("010.0.0.1", ("must not have leading 0s",)),
        ("::ffff:10.0.0.1", ("must not be an IPv4-mapped IPv6 address",)),
        ("::ffff:010.0.0.1", ("must not have leading 0s",)),
    ],
)
def test_strict_ip(text: str, messages: tuple[str, ...]) -> None:
    assert addresses.check_ip(text, False) == ()
    assert addresses.check_ip(text, True) == messages


@pytest.mark.parametrize(
    ("text", "canonical", "strict"),
    [
        ("10.0.0.0/8", "10.0.0.0/8", ()),
        ("0.0.0.0/0", "0.0.0.0/0", ()),
        ("2001:DB8::/64", "2001:db8::/64", ()),
        ("198.51.100.7/24", "198.51.100.7/24", ("must not have bits set beyond the prefix length",)),
        ("10.0.0.0/08", "10.0.0.0/8", ("must not have leading 0s in IP or prefix length",)),
        ("010.0.0.0/8", "10.0.0.0/8", ("must not have leading 0s in IP or prefix length",)),
        ("::ffff:10.0.0.0/104", "10.0.0.0/8", ("must not have an IPv4-mapped IPv6 address",)),
    ],
)
def test_cidr(text: str, canonical: str, strict: tuple[str, ...]) -> None:
    assert addresses.canonical_cidr(text) == canonical
    assert addresses.check_cidr(text, False) == ()
    assert addresses.check_cidr(text, True) == strict


@pytest.mark.parametrize(
    "text", ["", "10.0.0.0", "10.0.0.0/", "10.0.0.0/33", "::/129", "10.0.0.0/-1", "10.0.0.0/8/8", "/8", " 10.0.0.0/8"]
)
def test_no_cidr(text: str) -> None:
    assert addresses.canonical_cidr(text) is None
    assert addresses.check_cidr(text, False) == ("must be a valid CIDR value, (e.g. 10.9.8.0/24 or 2001:db8::/64)",)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("0.0.0.0", "may not be unspecified (0.0.0.0)"),
        ("::", "may not be unspecified (::)"),
        ("127.0.0.1", "may not be in the loopback range (127.0.0.0/8, ::1/128)"),
        ("127.255.0.9", "may not be in the loopback range (127.0.0.0/8, ::1/128)"),
        ("::1", "may not be in the loopback range (127.0.0.0/8, ::1/128)"),
        ("169.254.169.254", "may not be in the link-local range (169.254.0.0/16, fe80::/10)"),
        ("febf::1", "may not be in the link-local range (169.254.0.0/16, fe80::/10)"),
        ("224.0.0.9", "may not be in the link-local multicast range (224.0.0.0/24, ff02::/10)"),
        ("ff02::1", "may not be in the link-local multicast range (224.0.0.0/24, ff02::/10)"),
        ("nonsense", "must be a valid IP address"),
    ],
)
def test_special_ips(text: str, message: str) -> None:
    assert addresses.check_special_ip(text) == (message,)


@pytest.mark.parametrize("text", ["10.0.0.1", "0.0.0.1", "224.0.1.1", "ff0e::1", "fec0::1", "2001:db8::1"])
def test_ordinary_ips(text: str) -> None:
    assert addresses.check_special_ip(text) == ()
