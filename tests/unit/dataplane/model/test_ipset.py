"""Contents of ipsets."""

from __future__ import annotations

from random import Random

import pytest

from kproxy.dataplane import DataplaneError, IpSet
from kproxy.dataplane.model.ipset import PortPart, _fits, _Ports
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


def random_entry(random: Random, kind: str) -> str:
    parts = []
    for dimension in kind.partition(":")[2].split(","):
        address = f"10.0.{random.randrange(4)}.{random.randrange(8)}"
        first = random.randrange(8)
        ports = random.choice((f"{first}", f"{first}-{first + 3}"))
        if dimension == "port":
            parts.append(ports if kind.startswith("bitmap") else f"{random.choice(('tcp', 'udp'))}:{ports}")
        else:
            net = random.choice((f"{address}/{random.choice((22, 24, 30, 31))}", f"10.0.1.{first}-10.0.2.{first}"))
            parts.append(net if dimension == "net" else address)
    return ",".join(parts) + (" nomatch" if "net" in kind and random.random() < 0.3 else "")


@pytest.mark.parametrize("kind", ["hash:ip", "hash:net", "hash:ip,port", "hash:net,port,net", "bitmap:port"])
def test_the_index_finds_what_a_search_finds(kind: str) -> None:
    random = Random(kind)
    found = set()
    for _ in range(60):
        held = IpSet.parse(kind, [random_entry(random, kind) for _ in range(random.randrange(12))], Family.IPV4)
        for _ in range(20):
            asked = IpSet.parse(kind, [random_entry(random, kind).removesuffix(" nomatch")], Family.IPV4).entries[0]
            parts = [
                PortPart(part.protocol or 6, part.first) if isinstance(part, _Ports) else part.first
                for part in asked.parts
            ]
            fitting = [entry for entry in held.entries if _fits(entry, parts)]
            best = max(fitting, key=lambda entry: entry.width, default=None)
            expected = best is not None and not best.nomatch
            if len({entry.nomatch for entry in fitting if best is not None and entry.width == best.width}) < 2:
                assert held.contains(Family.IPV4, parts) is expected, (held, parts)
                found.add(expected)
    assert found == {True, False}


def test_a_large_set_is_not_searched() -> None:
    """Few of many elements are looked at for each packet."""
    held = IpSet.parse("hash:net", (f"10.{n >> 8}.{n & 255}.0/24" for n in range(4096)), Family.IPV4)
    assert held.contains(Family.IPV4, (parse_address("10.7.8.9", Family.IPV4),)) is True
    assert held.contains(Family.IPV4, (parse_address("11.7.8.9", Family.IPV4),)) is False
    assert len(list(held._candidates((parse_address("10.7.8.9", Family.IPV4),)))) == 1


def test_of_two_networks_the_first_counts_most() -> None:
    entries = ["10.0.0.1/32,1.0.0.0/8 nomatch", "10.0.0.0/24,1.1.1.0/24"]
    found = IpSet.parse("hash:net,net", entries)
    assert found.contains(Family.IPV4, [0x0A000001, 0x01010101]) is False
    assert found.contains(Family.IPV4, [0x0A000002, 0x01010101]) is True
