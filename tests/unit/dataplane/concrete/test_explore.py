"""Chance, open questions, and how they combine. The properties hold for any rule set, so random ones are tried."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kproxy.dataplane import Connection, DataplaneError, Host, IpSet, Outcome, Packet, TraceResult, index_ruleset, trace
from kproxy.dataplane.concrete import explore
from kproxy.netfilter import Family, canonical_ruleset
from tests.support.dataplane.tools import NEW_PACKET, NODE, chances, fate, rules
from tests.support.examples import tried
from tests.support.kernel.dataplane_rules import Generator, Packets, set_contents
from tests.support.kernel.dataplane_wire import node_host

SETS = {
    name: IpSet.parse(kind, entries, None if kind.startswith("bitmap") else family)
    for family in Family
    for name, (kind, entries) in set_contents(family).items()
}
HOST = replace(node_host(), sets=SETS)

seeds = st.integers(0, 1 << 32)
families = st.sampled_from(list(Family))


def total(result: TraceResult) -> Fraction:
    return sum((outcome.probability for outcome in result.outcomes), Fraction(0))


def key(outcome: Outcome) -> tuple[object, ...]:
    packet = outcome.packet
    return (
        outcome.verdict, outcome.hook, outcome.via, outcome.reject, outcome.reason, outcome.src, outcome.dst,
        outcome.dnat, outcome.masquerade, packet.out_interface,
    )  # fmt: skip


def distribution(result: TraceResult) -> dict[tuple[object, ...], Fraction]:
    found: dict[tuple[object, ...], Fraction] = {}
    for outcome in result.outcomes:
        found[key(outcome)] = found.get(key(outcome), Fraction(0)) + outcome.probability
    return found


@tried(15, 100)
@given(seeds, families)
def test_merged_outcomes_are_the_paths_put_together(seed: int, family: Family) -> None:
    random = Random(seed)
    index = index_ruleset(canonical_ruleset(Generator(random, family).ruleset(), family), variant="nft")
    packets = Packets(random, family)
    for _ in range(4):
        packet = packets.one().packet
        merged, single = trace(index, HOST, packet), trace(index, HOST, packet, paths=True)
        assert total(merged) == total(single) == 1
        assert distribution(merged) == distribution(single)
        assert len(merged.outcomes) <= len(single.outcomes)


OPEN_FIELDS = ("src", "dst", "sport", "dport", "in_interface", "tcp_flags", "icmp_type", "length", "ttl", "tos", "uid")
OPEN_HOSTS = (
    HOST,
    replace(HOST, routes=None),
    replace(HOST, sysctls={}),
    replace(HOST, local_addresses=None, interfaces=None, routes=None),
    replace(HOST, sets={}),
)


def covers(told: Outcome, full: Outcome) -> bool:
    """Whether what was told with less knowledge is what happens with more."""
    mine, its = told.packet, full.packet
    fields = ("src", "sport", "dst", "dport", "out_interface")
    same = all(getattr(mine, field) in (None, getattr(its, field)) for field in fields)
    # Dropped by a rule, or because this host forwards nothing: where it is not known which, no hook is told.
    hook = told.hook or (full.hook if told.reasons else "")
    return same and (told.verdict, hook, told.via, told.reject, told.dnat) == (
        full.verdict, full.hook, full.via, full.reject, full.dnat
    )  # fmt: skip


@tried(20, 120)
@given(seeds, families, st.sets(st.sampled_from(OPEN_FIELDS), max_size=3), st.sampled_from(OPEN_HOSTS), st.booleans())
def test_what_is_open_is_never_guessed(
    seed: int, family: Family, fields: set[str], host: Host, open_state: bool
) -> None:
    """Whatever is said with less known holds, with at least that chance, once everything is known."""
    random = Random(seed)
    index = index_ruleset(canonical_ruleset(Generator(random, family).ruleset(), family), variant="nft")
    packet = Packets(random, family).one().packet
    if packet.origin == "local":
        fields = fields - {"in_interface", "src"}  # routing chooses the source of a packet that has none
    less = packet.replace(**dict.fromkeys(fields, None))
    if open_state:
        less = less.replace(mark=0, mark_known=0)
    told = trace(index, host, less, Connection(None) if open_state else None)
    assert total(told) == 1
    full = trace(index, HOST, packet)
    for outcome in told.outcomes:
        if outcome.verdict != "INDETERMINATE":
            share = sum((item.probability for item in full.outcomes if covers(outcome, item)), Fraction(0))
            assert share >= outcome.probability, f"{outcome}\n{full}"


@tried(15, 80)
@given(seeds, families)
def test_an_index_changes_nothing(seed: int, family: Family) -> None:
    """Rules that a packet certainly does not match may be there in any number."""
    random = Random(seed)
    ruleset = canonical_ruleset(Generator(random, family).ruleset(), family)
    packet = Packets(random, family).one().packet
    padding = "203.0.113.250/32" if family is Family.IPV4 else "2001:db8:ff::1/128"
    text = "".join(
        f"*{table.name}\n"
        + "".join(f"{chain.to_save()}\n" for chain in table.chains)
        + "".join(
            f"-A {chain.name} -d {padding}\n" * 5 + rule.to_restore(chain.name) + "\n"
            for chain in table.chains
            for rule in chain.rules
        )
        + "COMMIT\n"
        for table in ruleset.tables
    )
    padded = canonical_ruleset(text, family)
    first, second = (trace(index_ruleset(item, variant="nft"), HOST, packet) for item in (ruleset, padded))
    assert distribution(first) == distribution(second)


def test_exact_chances() -> None:
    chance = "nat: -A PREROUTING -m statistic --mode random --probability"
    text = f"""{chance} 0.3333333333 -j DNAT --to-destination 10.244.0.11
               {chance} 0.5 -j DNAT --to-destination 10.244.0.12
               nat: -A PREROUTING -j DNAT --to-destination 10.244.0.13"""
    third = Fraction(715827883, 1 << 31)
    found = chances(trace(rules(text), NODE, NEW_PACKET))
    assert found == {
        "10.244.0.11:80": third, "10.244.0.12:80": (1 - third) / 2, "10.244.0.13:80": (1 - third) / 2
    }  # fmt: skip


def test_an_open_question_touches_only_what_depends_on_it() -> None:
    text = """filter: -A FORWARD -m statistic --mode random --probability 0.25 -j ACCEPT
              filter: -A FORWARD -m string --string x --algo bm -j DROP"""
    result = trace(rules(text), NODE, NEW_PACKET)
    assert [(item.verdict, item.probability) for item in result.outcomes] == [
        ("INDETERMINATE", Fraction(3, 4)), ("ACCEPT", Fraction(1, 4))
    ]  # fmt: skip
    (reason,) = result.outcomes[0].reasons
    assert reason.startswith("filter FORWARD rule 2: ")
    assert not result.determined


def test_an_open_question_that_decides_nothing() -> None:
    text = """filter: -A FORWARD -m string --string x --algo bm -j DROP
              filter: -A FORWARD -j DROP"""
    assert fate(text).verdict == "DROP"


def test_many_forks_meet_again() -> None:
    """Each rule forks, and all ways go on from the same place: the work grows with the rules, not with the ways."""
    line = "mangle: -A FORWARD -m statistic --mode random --probability 0.5 -j LOG\n"
    limited = "mangle: -A FORWARD -m limit --limit 1/sec -j LOG\n"
    assert fate(line * 200 + limited * 200).verdict == "ACCEPT"


def test_too_many_ways(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(explore, "MAX_NODES", 2000)
    half = "mangle: -A FORWARD -m statistic --mode random --probability 0.5"
    text = "\n".join(f"{half} -j MARK --or-mark {1 << bit}" for bit in range(24))
    result = trace(rules(text), NODE, NEW_PACKET)
    assert total(result) == 1
    (outcome,) = (item for item in result.outcomes if item.verdict == "INDETERMINATE")
    assert "too many ways" in outcome.reason


def test_a_thousand_endpoints() -> None:
    ends = 1000
    lines = [
        f"nat: -A PREROUTING -m statistic --mode random --probability {1 / (ends - n):.11f} "
        f"-j DNAT --to-destination 10.{n // 256}.{n % 256}.1"
        for n in range(ends)
    ]
    result = trace(rules("\n".join(lines)), NODE, NEW_PACKET)
    assert total(result) == 1
    assert len(result.outcomes) == ends
    assert all(abs(float(item.probability) - 1 / ends) < 1e-6 for item in result.outcomes)


def test_paths_keeps_ways_apart() -> None:
    text = "filter: -A FORWARD -m statistic --mode random --probability 0.5 -j LOG"
    result = trace(rules(text), NODE, NEW_PACKET, paths=True)
    assert sorted(len(outcome.path) for outcome in result.outcomes) == [0, 1]
    assert total(result) == 1


def test_a_packet_of_the_other_family() -> None:
    packet = Packet(Family.IPV6, 1, 2, 6)
    with pytest.raises(DataplaneError, match="IPv4"):
        trace(rules("filter: -A FORWARD -j DROP"), NODE, packet)
