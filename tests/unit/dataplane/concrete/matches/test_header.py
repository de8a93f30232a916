"""Matches on the packet's own headers, marks, interfaces and socket."""

from __future__ import annotations

import pytest

from kproxy.dataplane import Connection, Packet, make_packet
from kproxy.dataplane.model.conntrack import INVALID
from tests.support.dataplane.tools import NEW_PACKET, ask, fate

UDP = make_packet("198.51.100.7:4000", "10.96.0.1:53", "udp", in_interface="eth0")
SCTP = make_packet("198.51.100.7:4000", "10.96.0.1:53", "sctp", in_interface="eth0")
PING = make_packet("198.51.100.7", "10.96.0.1", "icmp", in_interface="eth0")
PING6 = make_packet("2001:db8::7", "fd00:96::1", "icmp", in_interface="eth0")
LOCAL = make_packet("192.0.2.10:4000", "10.96.0.1:80", origin="local", uid=1000, gid=100)
BRIDGED = NEW_PACKET.replace(in_interface="cni0", in_port="veth1", out_port="")


@pytest.mark.parametrize(
    ("match", "packet", "wanted"),
    [
        ("-p tcp -m tcp --dport 80", NEW_PACKET.replace(dport=None), None),
        ("-p tcp -m tcp --sport 1 --dport 80", NEW_PACKET.replace(dport=None), False),
        ("-p tcp -m tcp --sport 1 --dport 80", NEW_PACKET.replace(dport=None, sport=None), None),
        ("-p tcp -m tcp --syn", NEW_PACKET, True),
        ("-p tcp -m tcp ! --syn", NEW_PACKET, False),
        ("-p tcp -m tcp --tcp-flags ALL SYN", NEW_PACKET.replace(tcp_flags=0x12), False),
        ("-p tcp -m tcp --syn", NEW_PACKET.replace(tcp_flags=None), None),
        ("-p tcp -m tcp --tcp-option 2", NEW_PACKET, None),
        ("-p sctp -m sctp --chunk-types any INIT", SCTP, None),
        ("-p tcp -m multiport --ports 80,4000", NEW_PACKET.replace(sport=None), True),
        ("-p tcp -m multiport --ports 81,4000", NEW_PACKET.replace(sport=None), None),
        ("-p icmp -m icmp --icmp-type any", PING.replace(icmp_type=None), True),
        ("-p icmp -m icmp --icmp-type 8", PING.replace(icmp_type=None), None),
        ("-p icmp -m icmp --icmp-type 8/1", PING.replace(icmp_code=None), None),
        ("-m mark --mark 0x1", NEW_PACKET.replace(mark=0, mark_known=0), None),
        ("-m mark --mark 0x1/0x1", NEW_PACKET.replace(mark=1, mark_known=1), True),
        ("-m mark --mark 0x3/0x3", NEW_PACKET.replace(mark=0, mark_known=1), False),
        ("-m iprange --src-range 198.51.100.0-198.51.100.9", NEW_PACKET.replace(src=None), None),
        ("-m length --length 40:60", NEW_PACKET, None),
        ("-m ttl --ttl-gt 63", NEW_PACKET, None),
        ("-m dscp --dscp 0x08", NEW_PACKET.replace(tos=0x20), True),
        ("-m dscp --dscp 0x08", NEW_PACKET, None),
        ("-m ecn --ecn-ip-ect 2", NEW_PACKET, None),
        ("-p tcp -m ecn ! --ecn-tcp-ece", NEW_PACKET.replace(tcp_flags=None), None),
        ("-m owner --uid-owner 0-999", LOCAL, False),
        ("-m owner --uid-owner 1000 --gid-owner 100", LOCAL, True),
        ("-m owner --uid-owner 1000", LOCAL.replace(uid=None), None),
        ("-m owner --gid-owner 7 --suppl-groups", LOCAL, None),
        ("-m owner --socket-exists", LOCAL, True),
        ("-m owner --uid-owner 0", NEW_PACKET, False),
        ("-m owner ! --uid-owner 0", NEW_PACKET, True),
        ("-m owner ! --socket-exists", NEW_PACKET, True),
        ("-m physdev --physdev-is-bridged", BRIDGED, False),
        ("-m physdev --physdev-is-in", BRIDGED, True),
        ("-m physdev --physdev-is-out", BRIDGED.replace(out_port=None), None),
        ("-m physdev --physdev-in veth1", NEW_PACKET.replace(in_port="", out_port=""), False),
        ("-m comment --comment x", NEW_PACKET, True),
        ("-m nfacct --nfacct-name x", NEW_PACKET, True),
        ("-m string --string x --algo bm", NEW_PACKET, None),
        ("-m mac --mac-source 02:00:00:00:00:01", NEW_PACKET, None),
    ],
)
def test_answer(match: str, packet: Packet, wanted: bool | None) -> None:
    assert ask(match, packet) is wanted


def test_connmark_wants_a_connection() -> None:
    marked = Connection(mark=0x10)
    assert ask("-m connmark --mark 0x10", connection=marked) is True
    assert ask("-m connmark ! --mark 0x10", connection=marked) is False
    assert ask("-m connmark ! --mark 0x10", tracking=INVALID) is False
    assert ask("-m connmark --mark 0x1", connection=Connection(mark_known=0)) is None


@pytest.mark.parametrize(
    ("head", "name", "verdict"),
    [
        ("-i eth0", "eth0", "DROP"),
        ("-i eth1", "eth0", "ACCEPT"),
        ("-i eth+", "eth0", "DROP"),
        ("! -i eth+", "eth0", "ACCEPT"),
        ("-i eth0", None, "INDETERMINATE"),
        ("-i lo", None, "ACCEPT"),  # what comes by lo is made here, and then its interface is known
        ("! -i lo", None, "DROP"),
    ],
)
def test_input_interface(head: str, name: str | None, verdict: str) -> None:
    assert fate(f"filter: -A FORWARD {head} -j DROP", NEW_PACKET.replace(in_interface=name)).verdict == verdict


def test_an_interface_once_guessed_stays() -> None:
    packet = NEW_PACKET.replace(in_interface=None)
    text = """filter: -A FORWARD -i eth0 -j MARK --set-xmark 0x1/0x1
              filter: -A FORWARD -i eth0 -m mark ! --mark 0x1/0x1 -j DROP
              filter: -A FORWARD ! -i eth0 -m mark --mark 0x1/0x1 -j DROP"""
    assert fate(text, packet).verdict == "ACCEPT"


def test_a_mark_bit_once_seen_is_known() -> None:
    packet = NEW_PACKET.replace(mark_known=0)
    text = """filter: -A FORWARD -m mark --mark 0x1/0x1 -j RETURN
              filter: -A FORWARD -m mark ! --mark 0x1/0x1 -j RETURN
              filter: -A FORWARD -j DROP"""
    assert fate(text, packet).verdict == "ACCEPT"
