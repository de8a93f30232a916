"""Contents of ipsets."""

from __future__ import annotations

import pytest

from kproxy.dataplane import DataplaneError, IpSet
from kproxy.dataplane.model.ipset import PortPart
from kproxy.netfilter import Family
from kproxy.netfilter.address import parse_address


def v4(text: str) -> int:
    return parse_address(text, Family.IPV4)


def test_networks_and_exceptions() -> None:
    found = IpSet.parse("hash:net", ["10.0.0.0/8", "10.1.0.0/16 nomatch", "10.1.2.0/24"])
    answers = [found.contains(Family.IPV4, [v4(text)]) for text in ("10.9.0.1", "10.1.9.1", "10.1.2.3", "11.0.0.1")]
    assert answers == [True, False, True, False]
    assert found.contains(Family.IPV6, [1]) is False
    assert found.contains(Family.IPV4, [None]) is None
    assert found.contains(Family.IPV4, []) is False


def test_ports() -> None:
    found = IpSet.parse("hash:ip,port,ip", ["10.0.0.1,udp:53-60,10.0.0.2", "10.0.0.1,icmp:8/0,10.0.0.2"])
    one, two = v4("10.0.0.1"), v4("10.0.0.2")
    assert found.contains(Family.IPV4, [one, PortPart(17, 55), two]) is True
    assert found.contains(Family.IPV4, [one, PortPart(6, 55), two]) is False
    assert found.contains(Family.IPV4, [one, PortPart(17, None), two]) is None
    assert found.contains(Family.IPV4, [one, PortPart(1, 8 << 8), two]) is True
    bitmap = IpSet.parse("bitmap:port", ["80-90"])
    wanted = ((6, True), (17, True), (132, False))
    assert all(bitmap.contains(Family.IPV4, [PortPart(number, 85)]) is answer for number, answer in wanted)


def test_ranges() -> None:
    found = IpSet.parse("bitmap:ip", ["10.0.0.1-10.0.0.5"])
    assert found.contains(Family.IPV4, [v4("10.0.0.5")])
    assert not found.contains(Family.IPV4, [v4("10.0.0.6")])


@pytest.mark.parametrize(
    ("kind", "entries"),
    [
        ("hash", []), ("list:set", []), ("hash:mac", []), ("hash:ip", [""]), ("hash:ip", ["x"]),
        ("hash:ip,port", ["10.0.0.1"]), ("hash:ip,port", ["10.0.0.1,tcp:x"]), ("hash:ip", ["10.0.0.1", "fd00::1"]),
    ],
)  # fmt: skip
def test_bad_sets(kind: str, entries: list[str]) -> None:
    with pytest.raises(DataplaneError):
        IpSet.parse(kind, entries)
