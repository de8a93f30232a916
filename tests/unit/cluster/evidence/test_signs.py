"""What a host's rules point to and do not show, and that answers leave it open."""

from __future__ import annotations

import re
from collections.abc import Iterable
from fractions import Fraction
from ipaddress import ip_address
from pathlib import Path

import pytest

from kproxy.cluster.evidence.signs import cut_listing
from kproxy.cluster.evidence.unseen import Assumed, is_thing, suspected
from kproxy.cluster.rules import HostRules, read_ipsets, read_rule_file
from kproxy.dataplane import Host, make_packet, trace, trace_reply
from kproxy.dataplane.model.ipvs import Ipvs
from kproxy.netfilter import Family
from kproxy.netfilter.ipvs.read import read_servers
from kproxy.render.iptables.base import JUMP_RULES, JumpRule
from kproxy.render.nftables.base import JUMPS
from tests.support.evidence import (
    EMPTY,
    FILTER,
    IPVS,
    LEGACY_TOO,
    MANAGED,
    NAT,
    NATIVE,
    NO_RAW,
    PIECES,
    UNLED,
    WHOLE,
)
from tests.support.paths import ROOT
from tests.support.recorded import IPVS_CLUSTERS

DNS = ("10.244.1.21:4000", "10.96.0.10:53", "udp")
OWN = Host.simple(["172.30.0.11"])


def rules(*texts: str, assumed: Assumed | None = None, live: bool = False, collected: bool = False) -> HostRules:
    files = [read_rule_file(text, f"file{number}") for number, text in enumerate(texts)]
    return HostRules(files, assumed=assumed or Assumed(), live=live, collected=collected)


def things(held: HostRules) -> set[str]:
    return {each.what for each in suspected(held.unseen)}


def ends(held: HostRules) -> set[tuple[str, str]]:
    """All that may become of a packet to DNS: verdicts and destinations, `open` among the first."""
    result = trace(held.index(Family.IPV4), OWN, make_packet(*DNS))
    found: set[tuple[str, str]] = set()
    for outcome in result.outcomes:
        if outcome.verdict == "INDETERMINATE":
            found.add(("open", ""))
        for each in outcome.possible or (outcome,):
            found.add((each.verdict, each.dst))
    return found


@pytest.mark.parametrize(
    ("texts", "expected"),
    [
        ((NAT,), {"filter table"}),
        ((FILTER,), {"nat table"}),
        ((UNLED, ), {"filter table", "base-chain jumps"}),
        ((UNLED + FILTER,), {"base-chain jumps"}),
        ((PIECES,), {"filter table", "base-chain jumps"}),
        ((EMPTY,), {"chain KUBE-SVC-TCOU7JCQXEZGVUNU"}),
        ((IPVS,), {"ipvs", "ipset KUBE-CLUSTER-IP"}),
        ((NATIVE,), {"base-chain jumps"}),
        ((MANAGED,), {"nft iptables"}),
        ((LEGACY_TOO,), {"legacy iptables"}),
        ((NO_RAW,), {"raw table"}),
    ],
)  # fmt: skip
def test_what_the_evidence_points_to_is_open(texts: Iterable[str], expected: set[str]) -> None:
    held = rules(*texts)
    assert things(held) == expected
    assert all(is_thing(each.what) and each.why and each.host for each in suspected(held.unseen))
    assert ("open", "") in ends(held)
    # What was not seen can be decided: then nothing of it is left.
    decided = rules(*texts, assumed=Assumed(complete=True))
    assert not things(decided)
    assert ("open", "") not in ends(decided) or texts == (IPVS,)


@pytest.mark.parametrize("text", [WHOLE, "*filter\n:FORWARD DROP [0:0]\nCOMMIT\n"])
def test_without_a_sign_nothing_is_open(text: str) -> None:
    held = rules(text)
    assert not things(held)
    assert ("open", "") not in ends(held)
    assert {each.what for each in held.unseen} >= {"legacy iptables", "nftables", "raw table"}


def test_one_thing_is_decided() -> None:
    held = rules(UNLED, assumed=Assumed(empty=frozenset({"filter table"})))
    assert things(held) == {"base-chain jumps"}
    assert ends(held) == {
        ("open", ""),
        ("ACCEPT", "10.96.0.10:53"),
        ("ACCEPT", "10.244.1.2:53"),
        ("ACCEPT", "10.244.2.2:53"),
    }


def test_what_a_kernel_holds_is_all_there_is() -> None:
    for text in (NAT, FILTER, UNLED, EMPTY):
        assert not rules(text, live=True).unseen
    assert things(rules(IPVS, live=True)) == {"ipvs"}


def test_the_whole_dump_is_among_what_a_part_leaves_possible() -> None:
    whole = ends(rules(WHOLE))
    assert {verdict for verdict, _ in whole} == {"ACCEPT", "DROP"}
    for part in (NAT, UNLED, UNLED + FILTER):
        assert whole <= ends(rules(part))
    opened = ends(rules(FILTER))
    assert {("ACCEPT", "?"), ("DROP", "?")} <= opened


DUMP = (ROOT / "docs/examples/worker-1.save").read_text()


@pytest.mark.parametrize(
    ("without", "what"),
    [
        (r"-A KUBE-SERVICES .*", "chain KUBE-SERVICES"),
        (r"-A KUBE-NODEPORTS .*", "chain KUBE-NODEPORTS"),
        (r"-A KUBE-POSTROUTING .*", "chain KUBE-POSTROUTING"),
        (r"-A KUBE-POSTROUTING .* -j MASQUERADE.*", "chain KUBE-POSTROUTING"),
        (r"-A KUBE-MARK-MASQ .*", "chain KUBE-MARK-MASQ"),
        (r"-A KUBE-FORWARD .*", "chain KUBE-FORWARD"),
        (r".*KUBE-SEP-.*", "chain KUBE-SVC-67NZLRHBNDSAWJRO"),
        (r"-A KUBE-SEP-\S+ .* -j DNAT.*", "chain KUBE-SEP-SALMXZIGYR4FD3WM"),
        (r"-A KUBE-EXT-.* -j KUBE-SVC-.*", "chain KUBE-EXT-67NZLRHBNDSAWJRO"),
        # the last endpoint of a Service: its jump asks nothing
        (r"-A KUBE-SVC-67NZLRHBNDSAWJRO (?!.*probability).* -j KUBE-SEP-.*", "chain KUBE-SVC-67NZLRHBNDSAWJRO"),
        # others of its endpoints: nothing leads to their chains
        (r".* -m statistic .*", "chain KUBE-SVC-67NZLRHBNDSAWJRO"),
        (r".*10\.244\.1\.11.*", "chain KUBE-SVC-67NZLRHBNDSAWJRO"),
        (r"-A KUBE-FORWARD .*mark.*", "chain KUBE-FORWARD"),
        (r"-A KUBE-FORWARD .*RELATED.*", "chain KUBE-FORWARD"),
        # an address that a Service's chain names
        (r"-A KUBE-SERVICES -d 10\.96\.0\.80.*", "chain KUBE-SERVICES"),
        # chains that are there in each version
        (r".*KUBE-POSTROUTING.*", "chain KUBE-POSTROUTING"),
        (r".*KUBE-MARK-MASQ.*", "chain KUBE-MARK-MASQ"),
        (r".*KUBE-SERVICES.*", "chain KUBE-SERVICES"),
        (r".*KUBE-NODEPORTS.*", "chain KUBE-NODEPORTS"),
        (r".*KUBE-(SVC|EXT)-67NZLRHBNDSAWJRO.*", "chain KUBE-SERVICES"),
    ],
)
def test_chains_that_lack_what_kube_proxy_always_writes(without: str, what: str) -> None:
    cut = re.sub(rf"^{without}\n", "", DUMP, flags=re.MULTILINE)
    assert cut != DUMP
    assert what in things(rules(cut))
    packets = [("203.0.113.7:4000", "172.30.0.11:30080"), ("10.244.1.21:4000", "10.96.0.80:80")]
    results = [trace(rules(cut).index(Family.IPV4), OWN, make_packet(*each)) for each in packets]
    assert not all(each.determined for each in results)


def test_a_chain_of_a_service_to_which_nothing_leads() -> None:
    """With the Service it would be gone, too: what led to it was not seen."""
    cut = re.sub(r"^-A KUBE-SERVICES .*kube-dns:dns cluster.*\n", "", DUMP, flags=re.MULTILINE)
    assert things(rules(cut)) == {"chain KUBE-SERVICES"}
    assert ("open", "") in ends(rules(cut))
    assert not things(rules(cut, collected=True))


def test_what_session_affinity_remembers_is_in_two_rules() -> None:
    whole = (ROOT / "rules_golden/session-affinity/expected/node-0.v4.save").read_text()
    (chain, first), *_ = re.findall(r"^-A (KUBE-SVC-\S+) .*--rcheck.* -j (KUBE-SEP-\S+)$", whole, flags=re.MULTILINE)
    assert not things(rules(whole))
    for lost in (rf"-A {chain} .*--rcheck.* -j {first}\n", rf"-A {chain} (?!.*--rcheck).* -j {first}\n"):
        assert things(rules(re.sub(f"^{lost}", "", whole, flags=re.MULTILINE))) == {f"chain {chain}"}


@pytest.mark.parametrize("table", ["nat", "filter"])
def test_chains_of_which_only_the_names_are_there(table: str) -> None:
    """As `head` or `grep` leaves them: neither their rules nor the jumps to them were seen."""
    head, body, rest = re.split(rf"(^\*{table}\n.*?^COMMIT\n)", DUMP, maxsplit=1, flags=re.MULTILINE | re.DOTALL)
    cut = head + re.sub(r"^-A .*\n", "", body, flags=re.MULTILINE) + rest
    assert "base-chain jumps" in things(rules(cut))
    assert {verdict for verdict, _ in ends(rules(DUMP))} < {verdict for verdict, _ in ends(rules(cut))}


CLOSED = re.sub(r"(\*filter\n(?:.*\n)*?:FORWARD) ACCEPT", r"\1 DROP", DUMP)
BARE = "*filter\n:INPUT ACCEPT [0:0]\n:FORWARD DROP [0:0]\n-A FORWARD -s 10.9.0.0/16 -j ACCEPT\nCOMMIT\n"
EMPTY_NAT = "*nat\n:PREROUTING ACCEPT [0:0]\n:OUTPUT ACCEPT [0:0]\n:POSTROUTING ACCEPT [0:0]\nCOMMIT\n"


@pytest.mark.parametrize(
    ("cut", "what"),
    [
        (re.sub(r".*KUBE-FORWARD.*\n", "", CLOSED), "chain KUBE-FORWARD"),
        (re.sub(r"-A KUBE-FORWARD .*\n", "", CLOSED), "chain KUBE-FORWARD"),
        (BARE + NAT, "filter table"),
        (FILTER + EMPTY_NAT, "nat table"),
    ],
)
def test_what_was_not_seen_of_a_table_may_accept(cut: str, what: str) -> None:
    """What the whole dump says is among what is possible, also where the built-in chain's policy is DROP."""
    assert things(rules(cut)) == {what}
    packet = make_packet("203.0.113.7:4000", "172.30.0.11:30080")
    outcomes = trace(rules(cut).index(Family.IPV4), OWN, packet).outcomes
    assert {each.verdict for each in outcomes} == {"INDETERMINATE"}
    assert "ACCEPT" in {possible.verdict for each in outcomes for possible in each.possible}
    assert not things(rules(CLOSED))


def test_what_all_possibilities_agree_on_is_certain() -> None:
    """The verdict and the destination of a packet to itself, of which only the masquerading was not seen."""
    cut = re.sub(r".* -j KUBE-POSTROUTING\n", "", DUMP)
    packet = make_packet("10.244.1.21:4000", "10.96.0.90:80")
    result = trace(rules(cut).index(Family.IPV4), OWN, packet)
    (only,) = result.outcomes
    assert (only.probability, str(only.verdict), only.src, only.dst) == (Fraction(1), "ACCEPT", "?", "10.244.1.21:8080")
    assert {(each.verdict, each.src.partition(":")[0]) for each in only.possible} == {
        ("ACCEPT", "10.244.1.21"), ("ACCEPT", "172.30.0.11"),
    }  # fmt: skip
    assert only.reasons
    assert not result.determined
    (back,) = trace_reply(rules(cut).index(Family.IPV4), OWN, only).outcomes
    assert (back.verdict, back.src, back.dst) == ("ACCEPT", "10.96.0.90:80", "10.244.1.21:4000")


def test_the_path_of_an_open_outcome_ends_where_the_ways_part() -> None:
    (only,) = trace(rules(NAT).index(Family.IPV4), OWN, make_packet(*DNS)).outcomes
    assert only.verdict == "INDETERMINATE"
    assert [step.chain for step in only.path] == ["PREROUTING", "KUBE-SERVICES"]


def test_the_cause_of_a_loss_may_be_open() -> None:
    """The rule or the policy: which of them depends on the interface, and both drop."""
    table = "*filter\n:FORWARD DROP [0:0]\n-A FORWARD -o docker0 -j DROP\nCOMMIT\n"
    (only,) = trace(rules(table).index(Family.IPV4), OWN, make_packet(*DNS)).outcomes
    assert (only.verdict, only.hook, only.reason, only.path) == ("DROP", "FORWARD", "the cause is open", ())
    (known,) = trace(rules(table.replace(" -o docker0", "")).index(Family.IPV4), OWN, make_packet(*DNS)).outcomes
    assert (known.reason, [step.did for step in known.path]) == ("", ["DROP"])


FIREWALL = (ROOT / "rules_golden/loadbalancer-source-ranges-local/expected/node-1.v4.save").read_text()
FULL = FIREWALL.replace(
    "-A KUBE-PROXY-FIREWALL ",
    "-A KUBE-SERVICES -d 10.96.0.99/32 -j REJECT\n-A KUBE-EXTERNAL-SERVICES -d 10.96.0.99/32 -j REJECT\n"
    "-A KUBE-PROXY-FIREWALL ",
    1,
)
"""A dump in which each chain has rules to which a built-in chain jumps."""


@pytest.mark.parametrize("jump", JUMP_RULES, ids=lambda jump: f"{jump.table} {jump.source} {jump.target}")
def test_one_jump_that_is_missing(jump: JumpRule) -> None:
    """Also where another built-in chain has one to the same chain: which packets meet it is then open, and what the
    whole dump says is among what is possible."""
    assert not things(rules(FULL))
    head, table, rest = re.split(rf"(^\*{jump.table}\n.*?^COMMIT\n)", FULL, maxsplit=1, flags=re.MULTILINE | re.DOTALL)
    cut = head + re.sub(rf"^-A {jump.source} .*-j {jump.target}\n", "", table, flags=re.MULTILINE) + rest
    assert cut != FULL
    held = rules(cut)
    assert things(held) == {"base-chain jumps"}
    (lost,) = suspected(held.unseen)
    assert jump.target in lost.why
    assert not things(rules(cut, collected=True))


def test_a_firewall_without_rules_beside_its_load_balancer() -> None:
    cut = re.sub(r"^-A KUBE-PROXY-FIREWALL .*\n", "", FIREWALL, flags=re.MULTILINE)
    assert not things(rules(FIREWALL))
    assert things(rules(cut)) == {"chain KUBE-PROXY-FIREWALL"}


@pytest.mark.parametrize("last", [r"-A OUTPUT .*-j KUBE-PROXY-FIREWALL", r"-A KUBE-FIREWALL .*", r"-A FORWARD .*"])
def test_a_filter_table_alone_that_is_cut_may_refuse(last: str) -> None:
    (filter_table,) = re.findall(r"^\*filter\n.*?^COMMIT\n", FIREWALL, flags=re.MULTILINE | re.DOTALL)
    found = list(re.finditer(rf"^{last}\n", filter_table, flags=re.MULTILINE))
    held = rules(f"{filter_table[: found[-1].end()]}COMMIT\n")
    outcomes = trace(
        held.index(Family.IPV4), OWN, make_packet("172.30.0.11:4000", "198.51.100.10:80", origin="local")
    ).outcomes
    ends = {(possible.verdict, possible.dst) for each in outcomes for possible in each.possible}
    assert {("ACCEPT", "198.51.100.10:80"), ("DROP", "198.51.100.10:80")} <= ends, "sent as it is, in OUTPUT"


def test_a_firewall_that_forwarded_packets_may_meet() -> None:
    cut = re.sub(r"^-A FORWARD .*\n", "", FULL, flags=re.MULTILINE)
    (refused,) = set(re.findall(r"^-A KUBE-PROXY-FIREWALL -d (\S+)/32 ", FULL, flags=re.MULTILINE))
    host = Host.simple(["192.168.0.1"])
    for text, verdict in ((FULL, "DROP"), (cut, "INDETERMINATE")):
        packet = make_packet("203.0.113.7:4000", f"{refused}:80", "tcp", in_interface="eth0")
        (only,) = trace(rules(text).index(Family.IPV4), host, packet).outcomes
        assert only.verdict == verdict
    assert "DROP" in {each.verdict for each in only.possible}


GOLDEN = sorted((ROOT / "rules_golden").glob("*/expected/*.save"))


@pytest.mark.parametrize("path", GOLDEN, ids=lambda path: path.stem)
def test_whole_dumps_lack_nothing(path: Path) -> None:
    assert not [what for what in things(rules(path.read_text())) if what.startswith("chain ")]


TABLE = (ROOT / "rules_golden/minikube/expected/minikube.v4.nft").read_text()


@pytest.mark.parametrize(
    ("what", "cut"),
    [
        ("nftables", re.sub(r"elements = \{[^}]*\}", "", TABLE)),
        ("nftables", re.sub(r"\tchain nat-prerouting \{[^}]*\}\n", "", TABLE)),
        ("nftables", re.sub(r"(\tchain services \{)[^}]*\}", r"\1\n\t}", TABLE)),
        ("nftables", re.sub(r"\t\tip daddr \. meta l4proto \. th dport vmap @service-ips\n", "", TABLE)),
        ("nftables", re.sub(r"10\.96\.0\.10 \. \w+ \. \d+ : goto [^,} ]*,?", "", TABLE)),
        ("nftables", re.sub(r"(\tchain service-FY5PMXPG\S+ \{)[^}]*\}[^}]*\}", r"\1\n\t}", TABLE)),
        ("base-chain jumps", re.sub(r"\t\ttype (nat|filter) hook .*\n", "", TABLE)),
        *(("nftables", re.sub(rf"(chain {name} \{{\n)\t\ttype .*\n", r"\1", TABLE)) for name in JUMPS),
        *(("nftables", re.sub(rf"\tchain {name} \{{[^}}]*\}}\n", "", TABLE)) for name in JUMPS),
        ("nftables", re.sub(r"(chain filter-forward[^}]*)\t\tct state new jump cluster-ips-check\n", r"\1", TABLE)),
    ],
)
def test_a_table_of_nftables_mode_that_is_cut(what: str, cut: str) -> None:
    assert cut != TABLE
    held = rules(cut)
    assert what in things(held)
    dns = trace(held.index(Family.IPV4), OWN, make_packet("10.244.1.21:4000", "10.96.0.10:53", "udp"))
    assert not dns.determined


AFFINE = (ROOT / "rules_golden/session-affinity-nodeport/expected/node-0.v4.nft").read_text()


@pytest.mark.parametrize(
    ("lost", "why"),
    [
        (r"\n\t\telements = \{ 10\.96\.0\.101 \. tcp[^}]*\}", "cluster-ips has an address"),
        (r"\n\t\telements = \{ 10\.96\.0\.101 \}", "cluster-ips has no elements"),
        (r"\n\t\tmeta l4proto tcp dnat to 10\.244\.0\.6:8080", "writes last"),
        (r"\n\t\tnumgen random mod 2 vmap .*", "writes last"),
    ],
)
def test_what_a_service_of_nftables_mode_lacks_that_is_reached_all_the_same(lost: str, why: str) -> None:
    """Its node port leads to its chains, and the memory of affinity to its endpoints."""
    cut = re.sub(lost, "", AFFINE)
    assert (cut != AFFINE, things(rules(AFFINE))) == (True, set())
    (gap,) = suspected(rules(cut).unseen)
    assert (gap.what, why in gap.why) == ("nftables", True)


REFUSED = (ROOT / "rules_golden/no-endpoints/expected/node-0.v4.nft").read_text()
TERSE = re.sub(r"\n\t\telements = \{[^}]*\}", "", REFUSED)


@pytest.mark.parametrize("cut", [TERSE, re.sub(r"\tchain firewall-\w+-[^}]*\}\n", "", TERSE)])
def test_a_terse_listing_in_which_no_service_has_endpoints(cut: str) -> None:
    """No chain of a Service tells that elements are missing; that none is there does."""
    packet = make_packet("203.0.113.7:4000", "198.51.100.10:80")
    for text, verdict, unseen in ((REFUSED, "REJECT", set()), (cut, "INDETERMINATE", {"nftables"})):
        held = rules(text)
        assert things(held) == unseen
        (only,) = trace(held.index(Family.IPV4), OWN, packet).outcomes
        assert only.verdict == verdict
    assert "REJECT" in {each.verdict for each in only.possible}


def test_one_table_of_nftables_is_no_whole_listing() -> None:
    for text, looked_at in ((TABLE, False), (TABLE + "table inet other {\n}\n", True)):
        assert ("nftables" not in {each.what for each in rules(text).unseen}) is looked_at
    assert "nftables" not in {each.what for each in rules(TABLE, collected=True).unseen}


@pytest.mark.parametrize("path", sorted((ROOT / "rules_golden").glob("*/expected/*.nft")), ids=lambda path: path.stem)
def test_whole_tables_lack_nothing(path: Path) -> None:
    assert not things(rules(path.read_text()))


@pytest.mark.parametrize(
    "text", [re.sub(r"\tchain nat-prerouting \{[^}]*\}\n", "", TABLE), LEGACY_TOO], ids=["nftables", "legacy"]
)
def test_the_order_of_what_was_not_seen_is_no_reason(text: str) -> None:
    """It may do anything or nothing, whether it comes first or last."""
    packet = make_packet("10.244.1.21:4000", "10.96.0.10:53", "udp")
    outcomes = trace(rules(text).index(Family.IPV4), OWN, packet).outcomes
    reasons = [reason for each in outcomes for reason in each.reasons]
    assert any(reason.startswith("not seen: ") for reason in reasons)
    assert not any("registered first" in reason for reason in reasons)
    assert {("ACCEPT", "10.244.1.2:53")} <= ends(rules(LEGACY_TOO))


@pytest.mark.parametrize("table", ["raw", "filter"])
def test_one_thing_is_told_once(table: str) -> None:
    """A warning of a table, and that the dump lacks it, are one thing: the suspected one."""
    warning = f"# Table `{table}' is incompatible, use 'nft' tool.\n"
    nat = re.sub(r"(?s)\*filter.*?COMMIT\n", "", DUMP)
    unseen = HostRules([read_rule_file(warning + nat, "w.save")]).unseen
    found = [each for each in unseen if (each.family, each.what) == ("IPv4", f"{table} table")]
    assert [each.suspected for each in found] == [True]
    assert "only nft can show it" in found[0].why
    assert len({(each.family, each.what) for each in unseen}) == len(unseen)


@pytest.mark.parametrize("case", IPVS_CLUSTERS, ids=lambda case: case.name)
def test_a_cut_listing_is_told_from_a_whole_one(case: Path) -> None:
    """Of what the real kube-proxy made: whole, nothing is missing; without its first cluster IP, that is named."""
    _, listing, sets, _ = re.split(r"^# .*\n", (case / "kube-proxy.v4.ipvs").read_text(), flags=re.MULTILINE)
    found, servers = read_ipsets(sets, "sets"), read_servers(listing, "servers").servers
    assert cut_listing(Family.IPV4, Ipvs(Family.IPV4, servers), found) == ""
    for member in found["KUBE-CLUSTER-IP"].entries[:1]:
        address, port = member.begins
        left = {each: real for each, real in servers.items() if int(ip_address(each.address)) != address}
        assert f"port {port}, and no virtual server" in cut_listing(Family.IPV4, Ipvs(Family.IPV4, left), found)
