"""`compare`: complete where all packets can be enumerated, blind to what changes nothing, exact where things differ."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kproxy.dataplane import Connection, DataplaneError, Host, Packet, index_ruleset
from kproxy.dataplane.compare.compare import Comparison, compare, trace_witness
from kproxy.dataplane.compare.examine import NOT_MODELLED
from kproxy.dataplane.compare.observe import observe
from kproxy.dataplane.compare.witness import Situation, Watch
from kproxy.dataplane.model.errors import BoundReachedError
from kproxy.dataplane.model.host import SHORT_SYSCTLS, Interface, InterfaceAddress, Route
from kproxy.netfilter import Family, Ruleset, parse_save
from kproxy.netfilter.address import Network, parse_address
from tests.support.dataplane.compare_rules import Generator, disguise, mutate, ruleset, text
from tests.support.dataplane.golden_mutants import mutants
from tests.support.examples import tried


def rules(*lines: str, family: Family = Family.IPV4) -> Ruleset:
    """A rule set from `table: RULE` lines; chains are declared as they come."""
    tables: dict[str, dict[str, list[str]]] = {}
    for line in lines:
        table, _, rule = line.partition(": ")
        chains = tables.setdefault(table, {})
        words = rule.split()
        chains.setdefault(words[1], []).append(rule)
        if words[-2] in ("-j", "-g") and words[-1].startswith("KP"):
            chains.setdefault(words[-1], [])
    parts = []
    for table, chains in tables.items():
        parts.append(f"*{table}")
        parts += [f":{name} {'-' if name.startswith('KP') else 'ACCEPT'} [0:0]" for name in chains]
        parts += [rule for listed in chains.values() for rule in listed]
        parts.append("COMMIT")
    return parse_save("\n".join(parts) + "\n", family=family)


def confirmed(one: Ruleset, other: Ruleset, found: Comparison) -> None:
    """Every reported difference is one of its witness, and the two traces show it."""
    for difference in found.differences:
        watch = Watch(0xFFFFFFFF, 0xFFFFFFFF, {name: name for name in ("L1", "LIST-1", "LIST-2")})
        seen = (observe(one, difference.situations[0], watch), observe(other, difference.situations[1], watch))
        assert seen[0] != seen[1], difference
        for result in trace_witness((one, other), difference):
            assert sum(outcome.probability for outcome in result.outcomes) == 1


# completeness: a small packet space in full

LOCAL_CHOICES = ("10.0.0.1", "10.96.0.1")


def all_situations() -> Iterator[Situation]:
    """Every packet that rules of a plain generator can tell apart, on every host and in every connection state."""
    four = [parse_address(word, Family.IPV4) for word in ("10.0.0.1", "10.0.0.2", "10.96.0.1", "127.0.0.1", "8.8.8.8")]
    sysctls = {SHORT_SYSCTLS[name]: 1 for name in ("ip_forward", "route_localnet", "accept_local")}
    sysctls[SHORT_SYSCTLS["rp_filter"]] = 0
    default = Network(Family.IPV4, 0, 0)
    ours = parse_address("192.0.2.1", Family.IPV4)  # what MASQUERADE takes
    address = InterfaceAddress(Family.IPV4, ours, 32)
    interfaces = {"lo": Interface("lo"), **{name: Interface(name, (address,)) for name in ("eth0", "cni0")}}
    for own in itertools.chain.from_iterable(itertools.combinations(LOCAL_CHOICES, size) for size in range(3)):
        local = frozenset((Family.IPV4, parse_address(word, Family.IPV4)) for word in (*own, "192.0.2.1"))
        for out in ("eth0", "cni0"):
            host = Host(local_addresses=local, interfaces=interfaces, routes=(Route(default, out),), sysctls=sysctls)
            for state in ("NEW", "ESTABLISHED", "INVALID", "UNTRACKED"):
                for src, dst, port, protocol, mark, way in itertools.product(
                    (four[0], four[4]), four, (80, 81, 5), (6, 17), range(4), ("eth0", "cni0", "")
                ):
                    packet = Packet(
                        Family.IPV4, src, dst, protocol, 1000, port, mark=mark, in_interface=way, in_port="",
                        out_port="", origin="arriving" if way else "local", ttl=64, length=60, tos=0, tcp_flags=2,
                    )  # fmt: skip
                    yield Situation(packet, host, Connection(state))


SITUATIONS = list(all_situations())
PLAIN = Watch(0, 0, {})


def disagreement(one: Ruleset, other: Ruleset, situations: list[Situation]) -> Situation | None:
    """The first of some situations in which two rule sets treat the packet differently."""
    indexes = index_ruleset(one), index_ruleset(other)
    for situation in situations:
        if observe(indexes[0], situation, PLAIN) != observe(indexes[1], situation, PLAIN):
            return situation
    return None


def enumerate_and_compare(seed: int, share: int) -> bool:
    random = Random(seed)
    before = Generator(random, plain=True).rules()
    after = mutate(random, before)
    one, other = ruleset(before), ruleset(after)
    found = compare(one, other, examine=None)
    unexpected = [item for item in found.undecided if item.reason != NOT_MODELLED]
    assert not unexpected, (text(before), text(after), unexpected)
    confirmed(one, other, found)
    if found.alike:
        chosen = SITUATIONS if share == 1 else random.sample(SITUATIONS, len(SITUATIONS) // share)
        missed = disagreement(one, other, chosen)
        assert missed is None, (text(before), text(after), missed)
    return found.alike


@tried(6, 60)
@given(st.integers(0, 1 << 40))
def test_alike_means_that_no_packet_differs(seed: int) -> None:
    enumerate_and_compare(seed, 40)


@pytest.mark.soak
@tried(12, 24)
@given(st.integers(0, 1 << 40))
def test_alike_means_that_no_packet_of_a_whole_space_differs(seed: int) -> None:
    enumerate_and_compare(seed, 1)


def test_ports_that_change_nothing_are_not_tried_one_by_one() -> None:
    """A reply to the address that is also the new destination: its two kinds are one, and then the sides do the same,
    whatever the ports are."""
    enumerate_and_compare(7565683, 400)


@tried(8, 75)
@given(st.integers(0, 1 << 40))
def test_what_changes_nothing_is_no_difference(seed: int) -> None:
    random = Random(seed)
    before = Generator(random).rules()
    after = disguise(random, before)
    found = compare(ruleset(before), ruleset(after))
    assert found.alike, (text(before), text(after), found)


@tried(8, 75)
@given(st.integers(0, 1 << 40))
def test_mutants_have_a_witness(seed: int) -> None:
    random = Random(seed)
    before = Generator(random).rules()
    one, other = ruleset(before), ruleset(mutate(random, before))
    confirmed(one, other, compare(one, other))


@pytest.mark.parametrize("seed", [33, 999999])
def test_no_difference_is_left_open_for_want_of_a_packet(seed: int) -> None:
    """Marks that end alike though only one side asks them, and lists whose answers contradict themselves."""
    random = Random(seed)
    before = Generator(random).rules()
    one, other = ruleset(before), ruleset(mutate(random, before))
    found = compare(one, other)
    assert {item.reason for item in found.undecided} <= {NOT_MODELLED}
    confirmed(one, other, found)


# single things


def statements(one: Ruleset, other: Ruleset) -> list[str]:
    found = compare(one, other)
    assert not found.alike
    assert not [item for item in found.undecided if item.reason != NOT_MODELLED]
    confirmed(one, other, found)
    return [difference.statement() for difference in found.differences]


DNS = (
    "nat: -A PREROUTING -j KP-SERVICES",
    "nat: -A OUTPUT -j KP-SERVICES",
    "nat: -A KP-SERVICES -d 10.96.0.10/32 -p udp -m udp --dport 53 -j KP-DNS",
    "nat: -A KP-DNS -m statistic --mode random --probability 0.5 -j KP-A",
    "nat: -A KP-DNS -j KP-B",
    "nat: -A KP-A -p udp -m udp -j DNAT --to-destination 10.244.0.2:53",
    "nat: -A KP-B -p udp -m udp -j DNAT --to-destination 10.244.0.3:53",
)


def test_the_smallest_statement() -> None:
    gone = [line for line in DNS if "statistic" not in line]
    assert statements(
        rules(*DNS), rules(*(line.replace("KP-B", "KP-A") if "KP-DNS -j" in line else line for line in gone))
    ) == [
        "10.96.0.10:53/udp from anywhere: A sends 1/2 to 10.244.0.2:53 and 1/2 to 10.244.0.3:53; "
        "B sends all to 10.244.0.2:53"
    ]


def test_splitting_by_chance_twice_is_the_same_as_once() -> None:
    drop = "filter: -A FORWARD -d 192.0.2.1/32 -m statistic --mode random --probability"
    assert compare(rules(f"{drop} 0.75 -j DROP"), rules(f"{drop} 0.5 -j DROP", f"{drop} 0.5 -j DROP")).alike


def test_redirect_may_choose_the_address_that_the_packet_has() -> None:
    rule = "nat: -A PREROUTING -d 10.0.0.1/32 -p tcp -m tcp --dport 80 -j"
    assert statements(rules(f"{rule} REDIRECT"), rules()) == [
        "10.0.0.1:80/tcp from anywhere, arriving, where `REDIRECT takes the packet's own destination` does not hold: "
        "A sends all to REDIRECT; B sends all to 10.0.0.1:80"
    ]


def test_netmap_maps_addresses_of_its_network_to_themselves() -> None:
    rule = "nat: -A PREROUTING -d 10.0.0.0/24 -j"
    assert compare(rules(f"{rule} NETMAP --to 10.0.0.0/24"), rules(f"{rule} ACCEPT")).alike
    other = statements(rules(f"{rule} NETMAP --to 10.0.0.0/25"), rules(f"{rule} ACCEPT"))
    assert [text.partition(" from")[0] for text in other] == ["10.0.0.128/25"]


def test_disjoint_rules_in_any_order() -> None:
    lines = [
        f"filter: -A INPUT -p tcp -m tcp --dport {port} -j {target}" for port, target in ((80, "DROP"), (81, "ACCEPT"))
    ]
    last = "filter: -A INPUT -s 10.0.0.0/8 -j DROP"
    assert compare(rules(*lines, last), rules(*reversed(lines), last)).alike
    assert not compare(rules(*lines, last), rules(last, *lines)).alike


def test_only_sources_outside_of_the_cluster() -> None:
    masquerade = "nat: -A POSTROUTING {} -d 192.0.2.7/32 -j MASQUERADE"
    assert statements(rules(masquerade.format("! -s 10.0.0.0/8")), rules(masquerade.format(""))) == [
        "192.0.2.7 from 10.0.0.0/8, arriving, the destination is not this host: "
        "A leaves the source as it is; B rewrites the source (MASQUERADE)",
        "192.0.2.7 from 10.0.0.0/8, made by this host: "
        "A leaves the source as it is; B rewrites the source (MASQUERADE)",
    ]


def test_random_fully_is_a_difference_of_ports() -> None:
    rule = "nat: -A POSTROUTING -o eth0 -d 192.0.2.7/32 -j MASQUERADE"
    found = statements(rules(rule), rules(f"{rule} --random-fully"))
    assert len(found) == 2
    for line in found:
        assert line.endswith("A rewrites the source (MASQUERADE); B rewrites the source (MASQUERADE --random-fully)")
        assert "out by eth0" in line


def test_a_mark_that_no_rule_tests_is_compared_as_it_ends() -> None:
    def mark(value: str) -> Ruleset:
        return rules(f"mangle: -A PREROUTING -d 192.0.2.7/32 -j MARK --set-xmark {value}")

    assert compare(mark("0x5/0xff"), mark("0x5/0xff")).alike
    assert not compare(mark("0x5/0xff"), mark("0x6/0xff")).alike
    assert not compare(mark("0x5/0xff"), rules("mangle: -A PREROUTING -d 192.0.2.7/32 -j ACCEPT")).alike
    # Clearing and setting at once, or one after the other.
    two = rules(
        "mangle: -A PREROUTING -d 192.0.2.7/32 -j MARK --set-xmark 0x0/0xff",
        "mangle: -A PREROUTING -d 192.0.2.7/32 -j MARK --set-xmark 0x5/0x0",
    )
    assert compare(mark("0x5/0xff"), two).alike


def test_a_mark_that_only_passes_a_message_on_is_not() -> None:
    def both(bit: str) -> Ruleset:
        return rules(
            f"nat: -A PREROUTING -s 10.0.0.1/32 -j MARK --set-xmark {bit}/{bit}",
            f"nat: -A POSTROUTING -m mark --mark {bit}/{bit} -j MASQUERADE",
            "mangle: -A PREROUTING -j MARK --set-xmark 0x0/0xc000",
            "mangle: -A OUTPUT -j MARK --set-xmark 0x0/0xc000",
        )

    assert compare(both("0x4000"), both("0x8000")).alike


def test_connection_states_and_nat_state() -> None:
    accept = "filter: -A FORWARD -m conntrack --ctstate {} -j ACCEPT"
    drop = "filter: -A FORWARD -j DROP"
    one, other = rules(accept.format("RELATED,ESTABLISHED"), drop), rules(accept.format("ESTABLISHED"), drop)
    found = statements(one, other)
    assert found
    assert all("RELATED" in line for line in found)
    dnat = "nat: -A PREROUTING -d 192.0.2.7/32 -p tcp -j DNAT --to-destination 10.0.0.1:80"
    drop = "filter: -A FORWARD -d 10.0.0.1/32 -p tcp -m tcp --dport 80 -m conntrack --ctstate NEW,DNAT -j DROP"
    never = "filter: -A FORWARD -m conntrack ! --ctstate DNAT -m conntrack --ctstate DNAT -j ACCEPT"
    assert compare(rules(dnat, drop), rules(dnat, drop, never)).alike


def test_sending_a_packet_where_it_goes_anyway_changes_nothing() -> None:
    to_itself = rules("nat: -A PREROUTING -d 10.0.0.1/32 -p tcp -m tcp --dport 80 -j DNAT --to-destination 10.0.0.1:80")
    nothing = rules("nat: -A PREROUTING -d 10.0.0.1/32 -j ACCEPT")
    assert compare(to_itself, nothing).alike
    same_port = rules("nat: -A PREROUTING -d 10.9.0.1/32 -p tcp -m tcp --dport 80 -j DNAT --to-destination 10.0.0.1")
    with_port = rules("nat: -A PREROUTING -d 10.9.0.1/32 -p tcp -m tcp --dport 80 -j DNAT --to-destination 10.0.0.1:80")
    assert compare(same_port, with_port).alike


AFFINITY = (
    "nat: -A PREROUTING -d 10.96.0.1/32 -p tcp -m tcp --dport 80 -j KP-SVC",
    "nat: -A KP-SVC -m recent --rcheck --seconds 60 --reap --name LIST-1 --mask 255.255.255.255 --rsource -j KP-SEP1",
    "nat: -A KP-SVC -m recent --rcheck --seconds 60 --reap --name LIST-2 --mask 255.255.255.255 --rsource -j KP-SEP2",
    "nat: -A KP-SVC -m statistic --mode random --probability 0.5 -j KP-SEP1",
    "nat: -A KP-SVC -j KP-SEP2",
    "nat: -A KP-SEP1 -p tcp -m recent --set --name LIST-1 --mask 255.255.255.255 --rsource -m tcp "
    "-j DNAT --to-destination 10.0.0.1:80",
    "nat: -A KP-SEP2 -p tcp -m recent --set --name LIST-2 --mask 255.255.255.255 --rsource -m tcp "
    "-j DNAT --to-destination 10.0.0.2:80",
)


def test_lists_may_be_renamed_one_to_one() -> None:
    one = rules(*AFFINITY)
    for table in ({"LIST-1": "OTHER", "LIST-2": "ANOTHER"}, {"LIST-1": "LIST-2", "LIST-2": "LIST-1"}):
        swapped = [line.replace("LIST-1", "?").replace("LIST-2", table["LIST-2"]) for line in AFFINITY]
        swapped = [line.replace("?", table["LIST-1"]) for line in swapped]
        assert compare(one, rules(*swapped)).alike, table
    mixed = [line.replace("LIST-2", "LIST-1") if "--set" in line else line for line in AFFINITY]
    assert not compare(one, rules(*mixed)).alike
    forgotten = [
        line.replace(" -m recent --set --name LIST-2 --mask 255.255.255.255 --rsource", "") for line in AFFINITY
    ]
    found = compare(one, rules(*forgotten))
    assert not found.alike
    confirmed(one, rules(*forgotten), found)


def test_matches_that_are_not_interpreted() -> None:
    opaque = "filter: -A FORWARD -m string --algo bm --string evil -j {}"
    last = "filter: -A FORWARD -d 192.0.2.7/32 -j {}"
    drops = rules(opaque.format("DROP"), last.format("DROP"))
    assert compare(drops, drops).alike
    # The same unknown on both sides: certain, whatever the answer.
    reordered = rules("filter: -A FORWARD -s 10.0.0.1/32 -j ACCEPT", opaque.format("DROP"), last.format("DROP"))
    assert not compare(drops, reordered).alike
    found = compare(drops, rules(opaque.format("ACCEPT"), last.format("DROP")))
    assert found.differences
    assert "string" in found.differences[0].conditions
    # Only one side has it: not decided, and listed.
    found = compare(drops, rules(last.format("DROP")))
    assert not found.alike
    assert not found.differences
    assert any("string" in item.reason for item in found.undecided)


@pytest.mark.parametrize(
    "match",
    [
        "-m string --algo bm --string evil", "-m mac --mac-source 02:00:00:00:00:01", "-m conntrack --ctexpire 1:10",
        "-m conntrack ! --ctexpire 1:10", "-m conntrack --ctstate ESTABLISHED --ctexpire 1:10",
    ],
)  # fmt: skip
def test_what_only_one_side_asks_and_nothing_answers(match: str) -> None:
    """Typed matches that stay open are interpreted: only their answer is missing."""
    found = compare(rules(f"filter: -A FORWARD {match} -j DROP"), rules("filter: -A FORWARD -s 10.0.0.0/8 -j ACCEPT"))
    assert f"depends on `{match}`, whose answer is not known, on one side only" in {
        item.reason for item in found.undecided
    }


def test_two_matches_on_the_time_left_are_two_questions() -> None:
    accepted = "filter: -A FORWARD -m conntrack --ctexpire 1:10 -j ACCEPT"
    dropped = "filter: -A FORWARD -m conntrack --ctstate ESTABLISHED --ctexpire 1:10 -j DROP"
    found = compare(rules(accepted, dropped), rules("filter: -A FORWARD -j ACCEPT"))
    assert not found.alike
    assert any("--ctexpire" in item.reason for item in found.undecided)


def test_targets_that_are_not_interpreted() -> None:
    one = rules("filter: -A FORWARD -d 192.0.2.7/32 -j SYNPROXY --mss 1460")
    assert compare(one, rules("filter: -A FORWARD -d 192.0.2.7/32 -m comment --comment x -j SYNPROXY --mss 1460")).alike
    found = compare(one, rules("filter: -A FORWARD -d 192.0.2.7/32 -j DROP"))
    assert not found.alike
    assert found.undecided


def test_logs_and_counters_are_remarks() -> None:
    plain = rules("filter: -A FORWARD -d 192.0.2.7/32 -j DROP")
    logged = rules("filter: -A FORWARD -d 192.0.2.7/32 -j LOG", "filter: -A FORWARD -d 192.0.2.7/32 -j DROP")
    found = compare(plain, logged)
    assert found.alike
    assert found.remarks == ("-j LOG: 0 rules in the first, 1 in the second",)


def test_not_tracking_is_a_difference() -> None:
    found = compare(
        rules("raw: -A PREROUTING -d 192.0.2.7/32 -j CT --notrack"),
        rules("raw: -A PREROUTING -d 192.0.2.7/32 -j ACCEPT"),
    )
    assert not found.alike


def test_multicast_is_listed_as_undecided_once_it_is_routed() -> None:
    found = compare(rules("filter: -A INPUT -d 224.0.0.251/32 -j DROP"), rules("filter: -A INPUT -j ACCEPT"))
    assert (found.alike, found.differences) == (False, ())
    assert [(item.where, item.reason) for item in found.undecided] == [("224.0.0.251", "multicast is not modelled")]
    before = compare(rules("raw: -A PREROUTING -d 224.0.0.251/32 -j DROP"), rules("raw: -A PREROUTING -j ACCEPT"))
    assert [difference.destinations for difference in before.differences] == [("224.0.0.251",)]


def test_interfaces_with_a_plus() -> None:
    plus, name = (rules(f"filter: -A FORWARD -i {word} -d 192.0.2.7/32 -j DROP") for word in ("cali+", "cali0"))
    found = compare(plus, name)
    assert len(found.differences) == 1
    assert "in by cali" in found.differences[0].conditions
    confirmed(plus, name, found)


def test_ipv6() -> None:
    rule = "nat: -A PREROUTING -d fd00:96::a/128 -p udp -m udp --dport 53 -j DNAT --to-destination [fd00::{}]:53"
    one, other = (rules(rule.format(end), family=Family.IPV6) for end in (1, 2))
    assert statements(one, other) == [
        "[fd00:96::a]:53/udp from anywhere, arriving: A sends all to [fd00::1]:53; B sends all to [fd00::2]:53"
    ]


def test_a_host_narrows_the_question() -> None:
    local, nothing = (rules(f"filter: -A INPUT -d {address}/32 -j DROP") for address in ("192.0.2.7", "192.0.2.8"))
    assert not compare(local, nothing).alike
    assert compare(local, nothing, host=Host.simple(["192.0.2.1"])).alike
    assert not compare(local, nothing, host=Host.simple(["192.0.2.7"])).alike


def test_the_loopback_guard_counts_once() -> None:
    """Dropped on the way out or on the way in is the same, also for what MASQUERADE rewrites: not to 127.0.0.0/8."""
    guard = "filter: -A {} ! -s 127.0.0.0/8 -d 127.0.0.0/8 -m conntrack ! --ctstate RELATED,ESTABLISHED,DNAT -j DROP"
    masquerade = "nat: -A POSTROUTING -m mark --mark 0x4000/0x4000 -j MASQUERADE --random-fully"
    one = rules(guard.format("INPUT"), guard.format("OUTPUT"), masquerade)
    assert compare(one, rules(guard.format("INPUT"), masquerade)).alike
    assert not compare(one, rules(guard.format("OUTPUT"), masquerade)).alike


def test_a_source_that_stays_as_it_is_is_no_translation() -> None:
    """SNAT to the source that the packet has leaves no SNAT state, which the way back in by lo can ask for."""
    snat = "nat: -A POSTROUTING -d 192.0.2.7/32 -j SNAT --to-source 10.0.0.1"
    state = "filter: -A INPUT -i lo -d 192.0.2.7/32 -m conntrack --ctstate SNAT -j DROP"
    source = "filter: -A INPUT -i lo -s 10.0.0.1/32 -d 192.0.2.7/32 -j DROP"
    found = compare(rules(snat, state), rules(snat, source))
    assert {difference.sources for difference in found.differences} == {"10.0.0.1"}
    assert any("in state" not in difference.conditions for difference in found.differences)  # of new connections, too
    confirmed(rules(snat, state), rules(snat, source), found)


def test_groups_are_not_addresses_of_the_host_in_ipv6() -> None:
    rule = "nat: -A PREROUTING -d ff02::1/128 -m addrtype --dst-type LOCAL -j DNAT --to-destination fd00::1"
    nothing = "nat: -A PREROUTING -d fd00::9/128 -j ACCEPT"
    assert compare(rules(rule, family=Family.IPV6), rules(nothing, family=Family.IPV6)).alike


def test_the_same_question_in_two_places() -> None:
    asked = "-m string --algo bm --string evil -s 192.0.2.7/32 -j {}"
    one = rules(f"raw: -A PREROUTING {asked.format('ACCEPT')}", f"filter: -A FORWARD {asked.format('DROP')}")
    other = rules(f"raw: -A PREROUTING {asked.format('ACCEPT')}", f"filter: -A FORWARD {asked.format('ACCEPT')}")
    found = compare(one, other)
    assert found.differences
    assert {item.reason for item in found.undecided} == {NOT_MODELLED}
    confirmed(one, other, found)


def test_flags_that_conntrack_calls_invalid_begin_no_connection() -> None:
    null = "filter: -A FORWARD -p tcp -m tcp --tcp-flags ALL NONE -m conntrack --ctstate {} -j DROP"
    nothing = rules("filter: -A FORWARD -d 192.0.2.7/32 -j ACCEPT")
    assert compare(rules(null.format("NEW,RELATED,ESTABLISHED")), nothing).alike
    found = compare(rules(null.format("INVALID")), nothing)
    assert {each.witness.connection.state for each in found.differences} == {"INVALID"}


@pytest.mark.parametrize("flag", ["--physdev-is-in", "! --physdev-is-in"])
def test_a_bridge_port_and_none_are_one_question(flag: str) -> None:
    other = flag.removeprefix("! ") if flag.startswith("! ") else f"! {flag}"
    one = rules(f"filter: -A FORWARD -m physdev {flag} -j DROP", f"filter: -A FORWARD -m physdev {other} -j ACCEPT")
    same = rules(f"filter: -A FORWARD -m physdev {flag} -j DROP")
    assert compare(one, same).alike
    found = compare(rules(f"filter: -A FORWARD -m physdev {flag} -s 10.0.0.1/32 -j DROP"), same)
    assert bool(found.differences[0].witness.assumed) != flag.startswith("!"), "its packet comes by no bridge port"
    confirmed(rules(f"filter: -A FORWARD -m physdev {flag} -s 10.0.0.1/32 -j DROP"), same, found)


def test_what_rules_ask_of_a_connection_fits_its_packets() -> None:
    one = rules("filter: -A FORWARD -d 192.0.2.7/32 -m conntrack --ctstate ESTABLISHED --ctorigsrc 10.0.0.1 -j DROP")
    found = compare(one, rules("filter: -A FORWARD -d 192.0.2.8/32 -j ACCEPT"))
    assert found.differences
    assert not found.undecided
    confirmed(one, rules("filter: -A FORWARD -j ACCEPT"), found)


def test_marks_that_end_differently_are_a_remark() -> None:
    mark = "nat: -A PREROUTING -d 192.0.2.7/32 -j MARK --set-xmark 0x4000/0x4000"
    asked = "nat: -A POSTROUTING -m mark --mark 0x4000/0x4000 -j MASQUERADE"
    undone = "mangle: -A POSTROUTING -j MARK --set-xmark 0x0/0x4000"
    loop = "mangle: -A INPUT -j ACCEPT"
    found = compare(rules(mark, asked, loop, undone), rules(mark, asked, loop, undone, undone))
    assert found.alike
    assert found.remarks == ("-j MARK --set-xmark 0x0/0x4000: 1 rule in the first, 2 in the second",)


def test_what_cannot_be_compared() -> None:
    four, six = rules("filter: -A INPUT -j DROP"), rules("filter: -A INPUT -j DROP", family=Family.IPV6)
    with pytest.raises(DataplaneError, match="one family"):
        compare(four, six)
    loop = rules("filter: -A INPUT -j KP-A", "filter: -A KP-A -j KP-B", "filter: -A KP-B -j KP-A")
    with pytest.raises(DataplaneError, match="loop"):
        compare(four, loop)


# recorded clusters


@pytest.mark.soak
def test_changes_to_golden_rules_are_decided() -> None:
    answers = set()
    for mutant in mutants(5, 105):
        one, other = mutant.rulesets
        found = compare(one, other)
        unexpected = [item for item in found.undecided if item.reason != NOT_MODELLED]
        assert not unexpected, f"{mutant}: {unexpected}"
        confirmed(one, other, found)
        answers.add((mutant.kind, found.alike))
    assert len(answers) > 10


# marks that are copied as a whole

SAVE = "mangle: -A POSTROUTING {}-j CONNMARK --save-mark --nfmask 0x{:x} --ctmask 0x{:x}{}"
RESTORE = "mangle: -A PREROUTING {}-j CONNMARK --restore-mark --nfmask 0x{:x} --ctmask 0x{:x}{}"
WHOLE = 0xFFFFFFFF
ASKED = "filter: -A OUTPUT -p tcp -m connmark --mark 0x1 -j DROP"
EACH_BIT = tuple(
    f"filter: -A FORWARD -s 10.{bit}.0.0/16 -m connmark --mark 0x{1 << bit:x}/0x{1 << bit:x} -j DROP"
    for bit in range(32)
)


def bounded(one: Ruleset, other: Ruleset) -> Comparison:
    """The comparison, made with two million nodes at most."""
    calls: list[int] = []

    def check() -> None:
        calls.append(1)
        assert len(calls) < 500, "the diagrams explode"

    return compare(one, other, check=check)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (
            (ASKED, SAVE.format("-d 10.1.0.0/30 ", WHOLE, WHOLE, "")),
            (ASKED, SAVE.format("-d 10.1.0.0/29 ", WHOLE, WHOLE, "")),
        ),
        (
            (ASKED, SAVE.format("", WHOLE, 0xFFFFFF00, " --left-shift-mark 8")),
            (ASKED, SAVE.format("-p tcp ", WHOLE, 0xFFFFFF00, " --left-shift-mark 8")),
        ),
        (
            (*EACH_BIT, RESTORE.format("", WHOLE, WHOLE, ""), SAVE.format("", WHOLE, WHOLE, "")),
            (*EACH_BIT, RESTORE.format("", 0xFF, 0xFF, ""), SAVE.format("", WHOLE, WHOLE, "")),
        ),
    ],
    ids=["a whole mark", "shifted", "each bit asked"],
)
def test_copies_of_marks_do_not_blow_up(one: tuple[str, ...], other: tuple[str, ...]) -> None:
    first, second = rules(*one), rules(*other)
    found = bounded(first, second)
    assert found.differences
    assert {item.reason for item in found.undecided} <= {NOT_MODELLED}
    confirmed(first, second, found)


def test_marks_that_end_alike_are_no_difference() -> None:
    one = rules(ASKED, "mangle: -A POSTROUTING -j CONNMARK --set-xmark 0x2/0x2", SAVE.format("", 0xFD, 0xFD, ""))
    other = rules(ASKED, SAVE.format("", 0xFD, 0xFD, ""), "mangle: -A POSTROUTING -j CONNMARK --set-xmark 0x2/0x2")
    assert compare(one, other).alike
    # 0x2 is there already where it was asked for.
    again = "mangle: -A POSTROUTING -m connmark --mark 0x2/0x2 -j CONNMARK --set-xmark 0x2/0x2"
    assert compare(rules(ASKED), rules(ASKED, again)).alike


def test_a_bound_ends_a_comparison() -> None:
    one, other = rules(ASKED), rules(*EACH_BIT)

    calls: list[int] = []

    def check() -> None:
        calls.append(1)
        if len(calls) > 1:
            raise BoundReachedError("that is enough")

    found = compare(one, other, check=check)
    assert not found.alike
    assert found.stopped == "that is enough"
    assert [part.result for part in found.parts].count("different") == 1
    assert {part.result for part in found.parts} == {"different", "not compared"}
