"""A statement that writes a header changes only packets that have it: nft asks for that, and does not list it."""

from __future__ import annotations

from kproxy.dataplane import Host, index_ruleset, make_packet, trace
from kproxy.dataplane.compare.compare import compare
from kproxy.dataplane.symbolic.host_rules import SideRules
from kproxy.netfilter import Family
from kproxy.netfilter.nftables.ruleset import NftRuleset
from kproxy.netfilter.nftables.text import parse_nft


def rules(statement: str, table: str = "ip") -> NftRuleset:
    return parse_nft(
        f"table {table} t {{ chain f {{ type filter hook forward priority 0; {statement}; tcp dport 80 drop; }} }}",
        "test",
    )


def test_another_familys_header_in_an_inet_table() -> None:
    index = index_ruleset((), nftables=rules("ip6 hoplimit set 1", "inet"), family=Family.IPV4)
    (found,) = trace(index, Host.simple(["10.9.9.9"]), make_packet("10.0.0.1:5", "10.0.0.2:80", "tcp", ttl=9)).outcomes
    assert (found.verdict, found.packet.ttl) == ("DROP", 8)


def test_all_packets_at_once_know_it_too() -> None:
    """Only UDP is undecided where two such statements write different ports."""
    one, other = (SideRules((), rules(f"udp dport set {port}")) for port in (53, 54))
    found = compare(one, other, family=Family.IPV4)
    assert not found.differences
    assert {each.where for each in found.undecided}
    assert all("udp" in each.where for each in found.undecided)
