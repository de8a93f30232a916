"""Packets and endpoints as text."""

from __future__ import annotations

import pytest

from kproxy.dataplane import DataplaneError, format_endpoint, make_packet, parse_endpoint
from kproxy.netfilter import Family


@pytest.mark.parametrize(
    ("text", "family", "port"),
    [
        ("10.0.0.1", Family.IPV4, None), ("10.0.0.1:80", Family.IPV4, 80), ("[10.0.0.1]:80", Family.IPV4, 80),
        ("fd00::1", Family.IPV6, None), ("[fd00::1]:80", Family.IPV6, 80), ("[fd00::1]", Family.IPV6, None),
    ],
)  # fmt: skip
def test_endpoint(text: str, family: Family, port: int | None) -> None:
    found = parse_endpoint(text)
    assert (found[0], found[2]) == (family, port)
    assert parse_endpoint(format_endpoint(*found)) == found


BAD = "10.0.0 10.0.0.1: 10.0.0.1:65536 10.0.0.1:x [fd00::1]x [fd00::1 [::1]: fe80::1%eth0"


@pytest.mark.parametrize("text", ["", *BAD.split()])
def test_bad_endpoint(text: str) -> None:
    with pytest.raises(DataplaneError):
        parse_endpoint(text)


def test_make_packet() -> None:
    packet = make_packet("10.0.0.1:4000", "10.0.0.2:80")
    assert (packet.protocol, packet.tcp_flags, packet.source, packet.destination) == (
        6, 2, "10.0.0.1:4000", "10.0.0.2:80"
    )  # fmt: skip
    assert make_packet("10.0.0.1:4000", "10.0.0.2:80", new=False).tcp_flags is None
    assert make_packet("10.0.0.1", "10.0.0.2", "icmp").icmp_type == 8
    ping = make_packet("fd00::1", "fd00::2", "icmp")
    assert (ping.protocol, ping.icmp_type) == (58, 128)
    assert make_packet(None, "10.0.0.2:80", origin="local").in_interface == ""
    assert str(packet.replace(mark=0x4000, src=None)) == "tcp ?:4000 -> 10.0.0.2:80 mark 0x4000"


@pytest.mark.parametrize(
    ("src", "dst", "protocol"),
    [("10.0.0.1", "fd00::1", "tcp"), ("10.0.0.1", "10.0.0.2:80", "icmp"), ("10.0.0.1", "10.0.0.2:80", "nothing")],
)
def test_packets_that_make_no_sense(src: str, dst: str, protocol: str) -> None:
    with pytest.raises(DataplaneError):
        make_packet(src, dst, protocol)


def test_icmp_errors() -> None:
    assert make_packet("10.0.0.1", "10.0.0.2", "icmp", icmp_type=3).is_icmp_error
    assert not make_packet("10.0.0.1", "10.0.0.2", "icmp").is_icmp_error
