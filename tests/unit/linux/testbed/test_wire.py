"""Packets as bytes are recognised again, also inside an ICMP error, and by what answers them."""

from __future__ import annotations

import struct

import pytest

from kproxy.dataplane import make_packet
from kproxy.linux.testbed.wire import Observed, build, packets_before, read_frame, what_counts
from kproxy.netfilter import Family

ENDS = {Family.IPV4: ("198.51.100.7", "10.96.0.1"), Family.IPV6: ("2001:db8::7", "fd00:96::1")}
HEADER = bytes(14)

both_families = pytest.mark.parametrize("family", list(Family), ids=lambda family: f"v{family.version}")


@both_families
@pytest.mark.parametrize("malformed", [False, True])
@pytest.mark.parametrize("protocol", ["tcp", "udp", "sctp", "icmp"])
def test_a_packet_is_recognised(family: Family, protocol: str, malformed: bool) -> None:
    src, dst = ENDS[family]
    ports = (None, None) if protocol == "icmp" else (40000, 80)
    packet = make_packet(src, dst, protocol).replace(sport=ports[0], dport=ports[1])
    data = build(packet, 4321, malformed=malformed)
    assert read_frame("eth0", HEADER + data) == (4321, Observed("eth0", "packet", src, ports[0], dst, ports[1]))
    assert read_frame("eth0", HEADER + data[:8]) is None


def test_an_error_about_it_and_a_reset_are_told() -> None:
    packet = make_packet("198.51.100.7:40000", "10.96.0.1:80")
    sent = build(packet, 77)
    error = bytearray(build(make_packet("10.96.0.1", "198.51.100.7", "icmp"), 0))
    error[20:28] = struct.pack("!BBHI", 3, 3, 0, 0)
    seen = read_frame("eth0", HEADER + bytes(error[:28]) + sent)
    assert seen is not None
    assert (seen[0], seen[1].kind) == (77, "icmp 3/3")
    back = make_packet("10.96.0.1:80", "198.51.100.7:40000").replace(tcp_flags=0x14)
    reset = read_frame("eth0", HEADER + build(back, 0, ack=78))
    assert reset is not None
    assert (reset[0], reset[1].kind) == (77, "tcp-reset")
    whole = Observed("local", "packet", "198.51.100.7", 40000, "10.96.0.1", 80)
    assert what_counts([reset[1], whole]) is whole
    assert what_counts([reset[1]]) is reset[1]
    assert what_counts([]) is None


@both_families
def test_what_comes_before_a_related_connection_names_its_destination(family: Family) -> None:
    src, dst = ENDS[family]
    packet = make_packet(src, dst).replace(sport=40000, dport=0x1234)
    *_, command = packets_before(packet)
    asks = {Family.IPV4: b"PORT 10,96,0,1,18,52\r\n", Family.IPV6: b"EPRT |2|fd00:96::1|4660|\r\n"}
    assert command.endswith(asks[family])
    (request,) = packets_before(packet.replace(protocol=17))
    assert request.endswith(b"\0octet\0")
    assert struct.pack("!HH", 0x1234, 69) in request
