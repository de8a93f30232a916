"""Connection tracking is switched on for a family, by rules of its tables; what is expected was seen on Linux 6.18."""

from __future__ import annotations

import pytest

from kproxy.dataplane import Host, index_ruleset, make_packet, trace
from kproxy.dataplane.compare.compare import compare
from kproxy.dataplane.symbolic.host_rules import SideRules
from kproxy.netfilter import Family
from kproxy.netfilter.nftables.ruleset import NftRuleset
from kproxy.netfilter.nftables.text import parse_nft

NAT_DROPS = "table ip a { chain o { type nat hook output priority 0; drop; }; }"


@pytest.mark.parametrize(
    ("other", "walked"),
    [
        ("", False),
        ("table ip b { chain x { ct state new accept; }; }", True),
        ("table inet b { chain x { ct state new accept; }; }", True),
        ("table ip b { flags dormant; chain x { ct state new accept; }; }", True),
        ("table ip6 b { chain x { ct state new accept; }; }", False),
        ("table ip6 b { chain x { type nat hook postrouting priority 0; masquerade; }; }", False),
        ("table inet b { chain x { type nat hook postrouting priority 0; masquerade; }; }", True),
    ],
)
def test_tables_that_make_the_kernel_walk_ipv4_nat_chains(other: str, walked: bool) -> None:
    rules = parse_nft(f"{NAT_DROPS}\n{other}\n")
    packet = make_packet("127.0.0.1:4000", "127.0.0.1:80", origin="local")
    index = index_ruleset((), nftables=rules, family=Family.IPV4)
    [outcome] = trace(index, Host(), packet).outcomes
    assert outcome.verdict == ("DROP" if walked else "ACCEPT")
    found = compare(SideRules((), rules), SideRules((), NftRuleset()), family=Family.IPV4)
    assert bool(found.differences) is walked
