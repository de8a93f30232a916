"""Recorded rules of kube-proxy: every endpoint of a Service gets its share, and other promises of Services hold."""

from __future__ import annotations

import re
from fractions import Fraction
from pathlib import Path

import pytest

from kproxy.dataplane import Host, index_ruleset, make_packet, trace
from kproxy.netfilter import Family, parse_save
from tests.support.kernel.dataplane_runs import REFERENCE, kube_ruleset

CASES = sorted(path for path in (REFERENCE / "clusters").iterdir() if path.is_dir())
NODE_IPS = ["192.168.0.2", "2001:db8::2", "10.244.0.1", "fd00:10:244::1"]
SERVICE = re.compile(
    r'-A KUBE-SERVICES -m comment --comment "(\S+) cluster IP" -m (\w+) -p \w+ -d (\S+) --dport (\d+) '
    r"-j (KUBE-SV[CL]-\w+)"
)
ENDPOINT = re.compile(r"-A (KUBE-SV[CL]-\w+) -m comment --comment \"\S+ -> (\S+)\"(?! -m recent)")


@pytest.mark.parametrize("family", list(Family), ids=lambda family: f"v{family.version}")
@pytest.mark.parametrize("case", CASES[::4], ids=lambda case: case.name)
def test_every_endpoint_has_its_share(case: Path, family: Family) -> None:
    text = (case / f"kube-proxy.v{family.version}.restore").read_text()
    ends: dict[str, list[str]] = {}
    for chain, endpoint in ENDPOINT.findall(text):
        ends.setdefault(chain, []).append(endpoint)
    index = index_ruleset(kube_ruleset(text, family)[1])
    client = "198.51.100.7:4000" if family is Family.IPV4 else "[2001:db8:5::7]:4000"
    for _, protocol, address, port, chain in SERVICE.findall(text):
        host = address.partition("/")[0]
        target = f"[{host}]:{port}" if family is Family.IPV6 else f"{host}:{port}"
        packet = make_packet(client, target, protocol, in_interface="eth0")
        result = trace(index, Host.simple(NODE_IPS), packet)
        found: dict[str, Fraction] = {}
        for outcome in result.outcomes:
            assert (outcome.verdict, outcome.dnat) == ("ACCEPT", True)
            found[outcome.dst] = found.get(outcome.dst, Fraction(0)) + outcome.probability
        assert set(found) == set(ends[chain])
        assert sum(found.values()) == 1
        for share in found.values():
            assert abs(share - Fraction(1, len(found))) < Fraction(1, 1 << 28)


def test_a_real_node() -> None:
    """The cluster of the article: DNS, a node port, its local form, and what is not a Service."""
    dump = parse_save((REFERENCE / "minikube" / "iptables-nft-save.v4.txt").read_text())
    index, host = index_ruleset(dump), Host.simple(["192.168.49.2"])
    assert index.variant == "nft"
    dns = trace(index, host, make_packet("10.244.0.9:4000", "10.96.0.10:53", "udp", in_interface="bridge")).outcomes[0]
    assert (dns.probability, dns.dst, dns.masquerade) == (Fraction(1), "10.244.0.2:53", False)
    port = trace(index, host, make_packet("203.0.113.9:4000", "192.168.49.2:32198", in_interface="eth0")).outcomes[0]
    assert (port.dst, port.masquerade, port.src) == ("10.244.0.35:8080", True, "192.168.49.2")
    own = trace(index, host, make_packet(None, "10.96.0.10:53", "udp", origin="local")).outcomes[0]
    assert (own.dst, own.masquerade) == ("10.244.0.2:53", True)
    other = trace(index, host, make_packet("10.244.0.9:4000", "93.184.216.34:443", in_interface="bridge")).outcomes[0]
    assert (other.verdict, other.dnat, other.via) == ("ACCEPT", False, "out")
