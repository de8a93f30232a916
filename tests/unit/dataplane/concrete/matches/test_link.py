"""`rpfilter`, `mac`, `pkttype`, and matches that only a running kernel can answer."""

from __future__ import annotations

import pytest

from kproxy.dataplane import Host, index_ruleset, make_packet, parse_host, trace
from kproxy.netfilter import Family, canonical_ruleset
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


OPEN = {
    "-m time --timestart 08:00:00": "the time of day",
    "-m policy --dir in --pol none": "IPsec",
    "-m socket --transparent": "local socket",
    "-m connlimit --connlimit-above 5 --connlimit-mask 32 --connlimit-saddr": "how many connections",
    '-m bpf --bytecode "1,6 0 0 0"': "BPF",
    "-m cgroup --cgroup 5": "control group",
}


@pytest.mark.parametrize("match", OPEN)
def test_open_matches_say_what_they_depend_on_and_what_settles_it(match: str) -> None:
    text = f"*filter\n:FORWARD ACCEPT [0:0]\n-A FORWARD {match} -j DROP\nCOMMIT\n"
    index = index_ruleset(canonical_ruleset(text, Family.IPV4))
    packet = make_packet("10.244.0.5:1", "10.9.0.1:80", "tcp", in_interface="cni0")
    (outcome,) = trace(index, NODE, packet).outcomes
    assert outcome.verdict == "INDETERMINATE"
    assert OPEN[match] in outcome.reasons[0]
    (hint,) = outcome.hints
    expression = hint.removeprefix("--assume '").removesuffix("=yes|no'")
    for key in (expression, match.split()[1]):
        for answer, verdict in ((True, "DROP"), (False, "ACCEPT")):
            assert trace(index, NODE, packet, assumed={key: answer}).outcomes[0].verdict == verdict


def test_assumptions_about_user_space() -> None:
    text = "*filter\n:FORWARD ACCEPT [0:0]\n-A FORWARD -p tcp -j NFQUEUE --queue-num 1\nCOMMIT\n"
    index = index_ruleset(canonical_ruleset(text, Family.IPV4))
    packet = make_packet("10.244.0.5:1", "10.9.0.1:80", "tcp", in_interface="cni0")
    (outcome,) = trace(index, NODE, packet).outcomes
    assert outcome.hints == ("--assume 'NFQUEUE=yes|no'",)
    assert trace(index, NODE, packet, assumed={"NFQUEUE": True}).outcomes[0].verdict == "ACCEPT"
    assert trace(index, NODE, packet, assumed={"NFQUEUE": False}).outcomes[0].verdict == "DROP"
