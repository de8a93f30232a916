"""Comparing rules of nftables, and rules of one language with those of the other."""

from __future__ import annotations

from kproxy.dataplane.compare.compare import Comparison, compare
from kproxy.dataplane.symbolic.host_rules import SideRules
from kproxy.netfilter import Family, parse_save
from kproxy.netfilter.nftables.text import parse_nft

SERVICE = """
table ip kube-proxy {
  set affinity-x {
    type ipv4_addr
    flags dynamic,timeout
    timeout 60s
  }
  map service-ips {
    type ipv4_addr . inet_proto . inet_service : verdict
    elements = { 10.96.0.1 . tcp . 80 : goto service-a, 10.96.0.2 . tcp . 80 : goto service-b }
  }
  chain endpoint-x {
    update @affinity-x { ip saddr }
    meta l4proto tcp dnat to 10.0.0.7:8080
  }
  chain endpoint-y {
    meta l4proto tcp dnat to 10.0.0.8:8080
  }
  chain service-a {
    ip saddr @affinity-x goto endpoint-x
    numgen random mod 2 vmap { 0 : goto endpoint-x, 1 : goto endpoint-y }
  }
  chain service-b {
    meta l4proto tcp dnat ip to numgen random mod 3 map { 0 : 10.0.0.1, 1 : 10.0.0.2, 2 : 10.0.0.3 }
  }
  chain services {
    ip daddr . meta l4proto . th dport vmap @service-ips
  }
  chain nat-prerouting {
    type nat hook prerouting priority dstnat; policy accept;
    jump services
  }
  chain nat-output {
    type nat hook output priority dstnat; policy accept;
    jump services
  }
}
"""
SAME_IN_IPTABLES = """
*nat
:PREROUTING ACCEPT [0:0]
:OUTPUT ACCEPT [0:0]
:KUBE-SERVICES - [0:0]
:KUBE-SVC-A - [0:0]
:KUBE-SVC-B - [0:0]
:KUBE-SEP-X - [0:0]
:KUBE-SEP-Y - [0:0]
-A PREROUTING -j KUBE-SERVICES
-A OUTPUT -j KUBE-SERVICES
-A KUBE-SERVICES -d 10.96.0.1/32 -p tcp -m tcp --dport 80 -j KUBE-SVC-A
-A KUBE-SERVICES -d 10.96.0.2/32 -p tcp -m tcp --dport 80 -j KUBE-SVC-B
-A KUBE-SVC-A -m recent --rcheck --seconds 60 --reap --name KUBE-SEP-X --mask 255.255.255.255 --rsource -j KUBE-SEP-X
-A KUBE-SVC-A -m statistic --mode random --probability 0.50000000000 -j KUBE-SEP-X
-A KUBE-SVC-A -j KUBE-SEP-Y
-A KUBE-SVC-B -p tcp -m statistic --mode random --probability 0.33333333349 -j DNAT --to-destination 10.0.0.1
-A KUBE-SVC-B -p tcp -m statistic --mode random --probability 0.50000000000 -j DNAT --to-destination 10.0.0.2
-A KUBE-SVC-B -p tcp -j DNAT --to-destination 10.0.0.3
-A KUBE-SEP-X -p tcp -m recent --set --name KUBE-SEP-X --mask 255.255.255.255 --rsource -m tcp -j DNAT --to-destination 10.0.0.7:8080
-A KUBE-SEP-Y -p tcp -m tcp -j DNAT --to-destination 10.0.0.8:8080
COMMIT
"""  # noqa: E501


def nft(text: str) -> SideRules:
    """Native rules of a host."""
    return SideRules((), parse_nft(text))


def compared(one: SideRules, other: SideRules) -> Comparison:
    """The comparison for IPv4."""
    return compare(one, other, family=Family.IPV4)


def test_names_comments_and_counters_do_not_count() -> None:
    other = SERVICE.replace("service-a", "renamed").replace("service-ips", "by-address")
    other = other.replace("jump services", 'counter jump services comment "here"')
    assert compared(nft(SERVICE), nft(other)).alike


def test_the_same_services_in_both_languages_are_alike() -> None:
    """Affinity's memory is the same by what it does, and a third is a third, although each rounds it differently."""
    iptables = SideRules.of(parse_save(SAME_IN_IPTABLES))
    assert compared(iptables, nft(SERVICE)).alike
    assert compared(nft(SERVICE), iptables).alike


def test_affinity_that_lasts_longer_is_a_difference() -> None:
    iptables = SideRules.of(parse_save(SAME_IN_IPTABLES))
    found = compared(iptables, nft(SERVICE.replace("timeout 60s", "timeout 90s")))
    assert not found.alike
    assert all(difference.destinations == ("10.96.0.1:80/tcp",) for difference in found.differences)


def test_a_difference_between_the_languages_has_a_confirmed_witness() -> None:
    iptables = SideRules.of(parse_save(SAME_IN_IPTABLES))
    found = compared(iptables, nft(SERVICE.replace("2 : 10.0.0.3", "2 : 10.0.0.4")))
    (difference,) = found.differences
    assert difference.destinations == ("10.96.0.2:80/tcp",)
    assert difference.cause is None


def test_rules_of_the_other_language_are_no_cause() -> None:
    """Also where no packet meets the chains of iptables, as in what kube-proxy gives iptables-restore."""
    iptables = SideRules.of(parse_save("*nat\n:KUBE-SERVICES - [0:0]\n-A KUBE-SERVICES -j ACCEPT\nCOMMIT\n"))
    found = compared(iptables, nft(SERVICE))
    assert found.differences
    assert {difference.cause for difference in found.differences} == {None}


def test_a_removed_rule_is_one_cause() -> None:
    chain = """
table inet fw {
  chain banned {
    ip saddr 192.0.2.1 drop
    ip daddr 10.0.0.1 reject
  }
  chain input {
    type filter hook input priority filter; policy accept;
    ct state established accept
    tcp dport { 22, 2222 } jump banned
  }
}
"""
    found = compared(nft(chain), nft(chain.replace("    tcp dport { 22, 2222 } jump banned\n", "")))
    assert len(found.differences) > 1
    assert {difference.cause.words() for difference in found.differences if difference.cause} == {
        "rule 2 of input, jump to banned, is only in A"
    }


def test_what_is_unknown_makes_only_what_depends_on_it_undecided() -> None:
    rules = """
table ip t {
  chain input {
    type filter hook input priority 0; policy accept;
    socket wildcard 1 drop
    tcp dport 22 OPTIONAL
  }
}
"""
    found = compared(nft(rules.replace("OPTIONAL", "drop")), nft(rules.replace("OPTIONAL", "accept")))
    assert found.differences
    assert any("socket wildcard" in str(difference.conditions) for difference in found.differences)
    assert compared(nft(rules.replace("OPTIONAL", "drop")), nft(rules.replace("OPTIONAL", "drop"))).alike


def test_base_chains_are_called_by_priority() -> None:
    early = """
table ip t {
  chain a {
    type filter hook input priority -10; policy accept;
    tcp dport 22 drop
  }
  chain b {
    type filter hook input priority 10; policy accept;
    tcp dport 22 reject
  }
}
"""
    later = early.replace("priority -10", "priority 20")
    found = compared(nft(early), nft(later))
    assert {(difference.one, difference.other) for difference in found.differences} == {
        ("drops it", "rejects it (icmp-port-unreachable)")
    }


def test_numbers_that_are_drawn_meet_elements_of_all_kinds() -> None:
    """Numbers, ranges and the element for all others, in a map's keys; and keys that have more than the number."""
    by_thirds = "numgen random mod 3 map { 0 : 10.0.0.1, 1 : 10.0.0.2, 2 : 10.0.0.3 }"
    assert by_thirds in SERVICE
    in_ranges = "numgen random mod 6 map { 0-1 : 10.0.0.1, 4 : 10.0.0.3, 2-3 : 10.0.0.2, 5 : 10.0.0.3 }"
    assert compared(nft(SERVICE), nft(SERVICE.replace(by_thirds, in_ranges))).alike
    other = SERVICE.replace(by_thirds, "numgen random mod 6 map { 0-2 : 10.0.0.1, 3-4 : 10.0.0.2, 5 : 10.0.0.3 }")
    assert not compared(nft(SERVICE), nft(other)).alike
    first, last = (
        "vmap { 0 : goto endpoint-x, 1 : goto endpoint-y }",
        "vmap { 0 : goto endpoint-x, * : goto endpoint-y }",
    )
    assert compared(nft(SERVICE), nft(SERVICE.replace(first, last))).alike
    both = "numgen random mod 2 . meta l4proto vmap { 0 . tcp : goto endpoint-x, 1 . tcp : goto endpoint-y }"
    assert compared(nft(SERVICE), nft(SERVICE.replace(f"numgen random mod 2 {first}", both))).alike


def test_copies_of_marks_do_not_blow_up() -> None:
    text = """
    table inet t {{
      chain out {{ type filter hook output priority 0; policy accept; meta l4proto tcp ct mark 0x1 drop }}
      chain post {{ type filter hook postrouting priority -150; policy accept; ip daddr {} ct mark set meta mark{} }}
    }}
    """
    for shift in ("", " << 16"):
        one, other = (SideRules(nftables=parse_nft(text.format(net, shift))) for net in ("10.1.0.0/30", "10.1.0.0/29"))
        calls: list[int] = []

        def check(calls: list[int] = calls) -> None:
            calls.append(1)
            assert len(calls) < 500, "the diagrams explode"

        found = compare(one, other, family=Family.IPV4, check=check)
        assert found.differences
        assert not found.undecided
