"""From frames to packets of a flow."""

from __future__ import annotations

import pytest

from kproxy.lab.capture.dissect import BACK, THERE, Flow, observed_packets, read_frames
from kproxy.lab.capture.frames import Frame


@pytest.mark.parametrize("port", [4789, 8472, 4754, 40000])
def test_a_flow_is_known_whatever_port_masquerading_gave_it(port: int) -> None:
    """MASQUERADE --random-fully may choose the ports that VXLAN and other protocols have."""
    from scapy.layers.inet import IP, UDP
    from scapy.layers.l2 import Ether
    from scapy.layers.vxlan import VXLAN

    token = b"kproxy-0123456789ab"
    there = Ether() / IP(src="10.244.1.1", dst="10.244.1.2") / UDP(sport=port, dport=9000) / token
    back = (
        Ether() / IP(src="10.244.1.2", dst="10.244.1.1") / UDP(sport=9000, dport=port) / (b'{"pod":"' + token + b'"}')
    )
    outer = Ether() / IP(src="172.30.0.11", dst="172.30.0.12") / UDP(sport=port, dport=8472) / VXLAN(flags=8, vni=1)
    frames = [
        Frame(number, "node-1", "eth0", True, bytes(packet))
        for number, packet in enumerate((there, back, outer / there, outer / back))
    ]
    found = observed_packets(read_frames(frames), Flow("UDP", "client", 20000, token, 4))
    assert [(item.direction, item.outer is not None) for item in found] == [
        (THERE, False),
        (BACK, False),
        (THERE, True),
        (BACK, True),
    ]
