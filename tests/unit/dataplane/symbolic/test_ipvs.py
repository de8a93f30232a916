"""IPVS for all packets: virtual servers of two sides compared, and both engines held together."""

from __future__ import annotations

from collections.abc import Iterable

import pytest

from kproxy.dataplane import IpSet
from kproxy.dataplane.compare.compare import Comparison, compare
from kproxy.dataplane.model.ipvs import Ipvs
from kproxy.dataplane.symbolic.host_rules import SideRules
from kproxy.netfilter import Family, parse_save
from kproxy.netfilter.address import parse_address
from kproxy.netfilter.ipvs.read import read_servers
from tests.support.dataplane.agreement import check_ipvs
from tests.support.examples import spread

RULES = """*nat
:PREROUTING ACCEPT [0:0]
:OUTPUT ACCEPT [0:0]
COMMIT
*filter
:INPUT ACCEPT [0:0]
:FORWARD ACCEPT [0:0]
COMMIT
"""
SERVERS = """-A -t 10.96.0.10:80 -s rr
-a -t 10.96.0.10:80 -r 10.244.0.5:8080 -m -w 1
-a -t 10.96.0.10:80 -r 10.244.1.7:8080 -m -w 1
"""
VIRTUAL = parse_address("10.96.0.10", Family.IPV4)


def side(servers: str, rules: str = RULES, sets: dict[str, IpSet] | None = None) -> SideRules:
    found = Ipvs(Family.IPV4, read_servers(servers, "servers").servers)
    plain = SideRules.of(parse_save(rules, family=Family.IPV4))
    return SideRules(plain.iptables, plain.nftables, found, frozenset({VIRTUAL}), sets or {})


def told(found: Comparison) -> set[tuple[str, str]]:
    """What both sides do, without conditions."""
    return {(each.one, each.other) for each in found.differences}


UNTRACKED_BY_RULES = (1062, 1260)
"""Here rules keep packets of known connections from being tracked; what the connection says does not count then."""


@pytest.mark.parametrize("seed", [*spread(range(0, 400, 8), 12, 38), *UNTRACKED_BY_RULES])
def test_both_engines_agree(seed: int) -> None:
    check_ipvs(seed, 3)


def test_the_order_of_real_servers_does_not_matter() -> None:
    first, *real = SERVERS.splitlines()
    assert compare(side(SERVERS), side("\n".join([first, *reversed(real)]))).alike


def test_another_real_server_is_a_difference() -> None:
    found = compare(side(SERVERS), side(SERVERS.replace("10.244.1.7", "10.244.1.8")))
    half = "1/2 to 10.244.0.5:8080 and 1/2 to 10.244.1"
    assert told(found) == {(f"sends {half}.7:8080", f"sends {half}.8:8080")}


@pytest.mark.parametrize(
    ("servers", "does"),
    [
        (SERVERS.splitlines()[0], "rejects it (icmp-port-unreachable)"),
        (SERVERS.replace("-w 1", "-w 0"), "rejects it (icmp-port-unreachable)"),
        (SERVERS.replace("-s rr", "-s wrr").replace("7:8080 -m -w 1", "7:8080 -m -w 3"),
         "sends 3/4 to 10.244.1.7:8080 and 1/4 to 10.244.0.5:8080"),
    ],
)  # fmt: skip
def test_what_a_new_connection_meets(servers: str, does: str) -> None:
    found = compare(side(SERVERS), side(servers))
    assert does in {other.removesuffix(" (source as it is)") for _, other in told(found)}


def test_an_unknown_scheduler_decides_nothing() -> None:
    found = compare(side(SERVERS), side(SERVERS.replace("-s rr", "-s lc")))
    assert not found.alike
    assert not found.differences
    assert found.undecided


def dnat(real: Iterable[str]) -> str:
    lines = ""
    for chain in ("PREROUTING", "OUTPUT"):
        chances = ("-m statistic --mode random --probability 0.5 ", "")
        for chance, to in zip(chances, real, strict=True):
            lines += f"-A {chain} -d 10.96.0.10/32 -p tcp -m tcp --dport 80 {chance}-j DNAT --to-destination {to}\n"
    return RULES.replace("COMMIT\n*filter", f"{lines}COMMIT\n*filter")


def test_dnat_to_the_same_differs_only_where_ipvs_does_otherwise() -> None:
    other = SideRules.of(parse_save(dnat(("10.244.0.5:8080", "10.244.1.7:8080")), family=Family.IPV4))
    found = compare(side(SERVERS), other)
    assert not found.undecided
    assert {each.one.partition(" (")[0] for each in found.differences} == {
        "drops it",  # IPVS sends nothing from 127.0.0.0/8 to another host
        "sends all to 10.96.0.10:80",  # what begins no connection stays on the host, which has the address
        "sends all to 10.96.0.10:8000",  # so do other ports
        "sends 1/2 to 10.244.0.5:8080 and 1/2 to 10.244.1.7:8080",  # conntrack translates no untracked packet
    }


SET = "-A FORWARD -m set --match-set S dst,dst -j DROP\n"


def test_members_of_known_sets_are_compared() -> None:
    rules = RULES.replace("COMMIT\n", f"{SET}COMMIT\n").replace(SET, "", 1)
    one, other, same = (
        {"S": IpSet.parse("hash:ip,port", members)}
        for members in (["10.0.0.1,tcp:80"], ["10.0.0.1,tcp:80", "10.0.0.2,tcp:80"], ["10.0.0.1,tcp:80"])
    )
    assert compare(side(SERVERS, rules, one), side(SERVERS, rules, same)).alike
    (found,) = compare(side(SERVERS, rules, one), side(SERVERS, rules, other)).differences
    assert (found.one, found.other) == ("sends all to 10.0.0.2:80 (source as it is)", "drops it")
