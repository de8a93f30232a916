"""`rpfilter`, `mac`, `pkttype`."""

from __future__ import annotations

import pytest

from kproxy.dataplane import Host, make_packet, parse_host
from kproxy.netfilter.hooks import Hook
from tests.support.dataplane.tools import ask

NODE = parse_host(
    {
        "interfaces": [
            {"name": "lo", "addresses": ["127.0.0.1/8"]},
            {"name": "eth0", "addresses": ["192.0.2.10/24"]},
            {"name": "cni0", "addresses": ["10.244.0.1/24"]},
        ],
        "routes": [
            {"to": "10.9.0.0/16", "dev": "cni0", "via": "10.244.0.9"},
            {"to": "203.0.113.0/24", "type": "blackhole"},
        ],
        "sysctls": {"ip_forward": 1, "rp_filter": 0},
    }
)


@pytest.mark.parametrize(
    ("options", "src", "device", "expected"),
    [
        ("", "10.244.0.5", "cni0", True),
        ("", "10.244.0.5", "eth0", False),
        ("--invert", "10.244.0.5", "eth0", True),
        ("--loose", "10.244.0.5", "eth0", True),
        ("--loose", "198.51.100.1", "eth0", False),
        ("", "10.9.3.4", "cni0", True),
        ("", "203.0.113.5", "eth0", False),
        ("", "192.0.2.10", "lo", True),
        ("", "192.0.2.10", "eth0", False),
        ("", "10.244.0.5", None, None),
        ("--loose", "10.244.0.5", None, True),
    ],
)
def test_rpfilter(options: str, src: str, device: str | None, expected: bool | None) -> None:
    packet = make_packet(f"{src}:1", "192.0.2.10:80", "tcp", in_interface=device)
    assert ask(f"-m rpfilter {options}", packet, NODE, hook=Hook.PREROUTING) is expected


def test_rpfilter_of_a_host_without_routes_is_open() -> None:
    packet = make_packet("10.244.0.5:1", "192.0.2.10:80", "tcp", in_interface="eth0")
    assert ask("-m rpfilter", packet, Host.simple(["192.0.2.10"]), hook=Hook.PREROUTING) is None


def test_mac_and_packet_type() -> None:
    packet = make_packet("10.244.0.5:1", "192.0.2.10:80", "tcp", in_interface="eth0")
    assert ask("-m mac --mac-source 02:00:00:00:00:01", packet, NODE) is None
    assert ask("-m pkttype --pkt-type unicast", packet, NODE) is True
    assert ask("-m pkttype ! --pkt-type unicast", packet, NODE) is False
    everyone = make_packet("10.244.0.5:1", "255.255.255.255:80", "udp", in_interface="eth0")
    assert ask("-m pkttype --pkt-type broadcast", everyone, NODE) is None
