"""Holds the symbolic functions and the concrete evaluator together: at random points, their distributions are the
same."""

from __future__ import annotations

import itertools
from dataclasses import replace
from fractions import Fraction
from random import Random

from kproxy.dataplane.compare.compare import deep_recursion
from kproxy.dataplane.compare.consistency import correlated, tuples_fit
from kproxy.dataplane.compare.observe import Observation, index_rules, observe, watch_of
from kproxy.dataplane.compare.outcome_words import Distribution, distribution_at
from kproxy.dataplane.compare.witness import Values, situation_of
from kproxy.dataplane.model.ipvs import Ipvs
from kproxy.dataplane.symbolic.build import Setup, set_up
from kproxy.dataplane.symbolic.cases import CONNTRACK_CASES, LO, ORIGINS, ConntrackCase
from kproxy.dataplane.symbolic.free_variables import FreeVariable
from kproxy.dataplane.symbolic.host_rules import SideRules
from kproxy.dataplane.symbolic.nat import KEPT, KEPT_DESTINATION
from kproxy.dataplane.symbolic.nodes import TRUE, Node
from kproxy.netfilter import Family
from kproxy.netfilter.address import format_address, parse_address
from kproxy.netfilter.ipvs.server import RealServer, VirtualServer
from tests.support.dataplane.compare_rules import ADDRESSES, Generator, mutate, ruleset

SNAT = (parse_address("10.0.0.9", Family.IPV4),)
"""What SNAT rules of the generator rewrite to."""

VIRTUAL = "8.8.8.8"
"""The address of virtual servers, to which no rule of the generator translates."""

FIELDS = (("length", (40, 60, 80)), ("ttl", (63, 64, 65)), ("tos", (0x00, 0x10, 0x11, 0x30)),
          ("tcp_flags", (0x02, 0x42, 0xC2)))  # fmt: skip
"""Variables of header fields, and the values that rules of a generator with `fields` tell apart."""


def random_values(
    random: Random, setup: Setup, origin: str, state: ConntrackCase, *, fields: bool = False
) -> dict[int, int]:
    """Values for all variables, from what the generator's rules can tell apart; with `fields`, several of `FIELDS`."""
    variables = setup.variables
    values: dict[int, int] = {}

    def address(level: int, *choices: str) -> str:
        chosen = random.choice(choices)
        values.update(variables.values_of(level, parse_address(chosen, Family.IPV4)))
        return chosen

    dst = address(variables.dst, *ADDRESSES, "8.8.8.8")
    src = address(variables.src, *ADDRESSES[:2], "8.8.4.4", "127.0.0.1")
    address(variables.translated_dst, "10.0.0.1", "9.9.9.9" if variables.served else "10.96.0.1", "9.9.9.9")
    new_src = address(variables.translated_src, "10.0.0.2", "9.9.9.9")
    for level, ports in (
        (variables.dport, (80, 81, 5)), (variables.translated_dport, (80, 5)), (variables.sport, (1000,)),
        (variables.translated_sport, (1000, 2000)),
    ):  # fmt: skip
        values.update(variables.values_of(level, random.choice(ports)))
    values[variables.protocol] = random.choice((6, 17))
    served = {format_address(each, Family.IPV4) for each in variables.served}
    sure = {"127.0.0.1": 1, **dict.fromkeys(served, 0)}
    values[variables.dst_kind] = sure.get(dst, random.randrange(2))
    values[variables.src_kind] = values[variables.dst_kind] if src == dst else sure.get(src, random.randrange(2))
    values[variables.translated_kind] = random.randrange(2)
    values[variables.translated_src_kind] = values[variables.src_kind] if new_src == src else random.randrange(2)
    names = len(variables.interfaces.names)
    for level in (variables.in_interface, variables.out_interface, variables.translated_out):
        values[level] = random.randrange(LO + 1, names)
    if origin == "local":
        values[variables.in_interface] = 0
        if values[variables.dst_kind] == 1:
            values[variables.out_interface] = LO
    values |= {variables.length: 60, variables.ttl: 64}
    if fields:
        for name, several in FIELDS:
            values.update(variables.values_of(getattr(variables, name), random.choice(several)))
    if state.tracked and not state.fresh:
        values |= {level: random.randrange(2) for level in (variables.reply, variables.dnat, variables.snat)}
    for name in ("mark", "connmark"):
        values |= {level: random.randrange(2) for level in variables.levels[name][30:]}
    held = random.randrange(2)  # a list holds an address at all times or never
    rates = random.randrange(2)
    for key, level in variables.free_variables.items():
        assert isinstance(key, FreeVariable)
        values[level] = {"recent": held, "rate": rates}.get(key.kind, random.randrange(2))
        if key == KEPT:
            read = Values(variables, values)
            values[level] = int(read.number(variables.src) == read.number(variables.translated_src))
        if key == KEPT_DESTINATION:
            read = Values(variables, values)
            values[level] = int(read.number(variables.dst) == read.number(variables.translated_dst))
    if state.tracked and not state.fresh:
        fit = tuples_fit(variables)
        asked = [
            level
            for key, level in variables.free_variables.items()
            if isinstance(key, FreeVariable) and key.kind == "conntrack"
        ]
        choices = (dict(zip(asked, bits, strict=True)) for bits in itertools.product((0, 1), repeat=len(asked)))
        values |= next(chosen for chosen in choices if variables.diagrams.at(fit, values | chosen) == TRUE)
    return values


def plain(distribution: Distribution, fresh: bool) -> dict[tuple[object, ...], Fraction]:
    """Verdicts, destinations of new connections, and whether the source was rewritten, with chances."""
    result: dict[tuple[object, ...], Fraction] = {}
    for fate, weight in distribution.items():
        key: tuple[object, ...] = (fate.outcome.verdict,)
        if fate.outcome.verdict == "ACCEPT":
            assert fate.destination is not None
            key += (bool(fate.outcome.source) and fresh, fate.destination.address if fresh else None)
        result[key] = result.get(key, Fraction(0)) + weight
    return result


def plain_observation(seen: dict[Observation, Fraction], fresh: bool) -> dict[tuple[object, ...], Fraction]:
    """The same of what the concrete evaluator says."""
    result: dict[tuple[object, ...], Fraction] = {}
    for item, weight in seen.items():
        key: tuple[object, ...] = (item[0],)
        if item[0] == "ACCEPT":
            source = item[5]
            assert isinstance(source, tuple)
            key += (source[0] and fresh, item[3] if fresh else None)
        result[key] = result.get(key, Fraction(0)) + weight
    return result


def correlated_at(setup: Setup, node: Node, values: dict[int, int], state: ConntrackCase) -> Node:
    """A function at these values, below the translated destination: there, equal addresses are of one kind."""
    upper = tuple((level, values.get(level, 0)) for level in range(setup.variables.destination))
    return correlated(setup, setup.variables.diagrams.restrict(node, upper), state, values)


def check(seed: int, points: int, *, fields: bool = False) -> int:
    """One random rule set of iptables and a mutant of it; returns how many packets were compared."""
    random = Random(seed)
    rules = Generator(random, fields=fields).rules()
    sides = (SideRules.of(ruleset(rules)), SideRules.of(ruleset(mutate(random, rules))))
    return check_sides(random, sides, points, f"seed {seed}", fields=fields)


def check_ipvs(seed: int, points: int) -> int:
    """A random rule set on two hosts: one with random virtual servers, the other with others or with none."""
    random = Random(seed)
    rules = SideRules.of(ruleset(Generator(random).rules()))
    sides = tuple(replace(rules, ipvs=found, own=_addresses(found)) for found in (_servers(random), _servers(random)))
    other = rules if random.random() < 0.3 else sides[1]
    return check_sides(random, (sides[0], other), points, f"ipvs seed {seed}", fields=True, ttl=False)


def _servers(random: Random) -> Ipvs:
    found = {}
    for _ in range(random.randint(1, 3)):
        address, port = VIRTUAL, random.choice((80, 81))
        key = VirtualServer(random.choice(("tcp", "udp")), address, port, random.choice(("rr", "wrr")))
        found[key] = [
            RealServer(real, random.choice((80, 5)), random.randint(0, 3))
            for real in random.sample(("10.0.0.1", "10.0.0.2", "9.9.9.9"), random.randint(0, 2))
        ]
    return Ipvs(Family.IPV4, found)


def _addresses(servers: Ipvs) -> frozenset[int]:
    return frozenset(address for _, address, _ in servers.services)


def check_sides(
    random: Random,
    sides: tuple[SideRules, SideRules],
    points: int,
    name: str,
    *,
    fields: bool = False,
    ttl: bool = True,
) -> int:
    """Both sides at random points, for every origin and state; returns how many packets were compared. Without `ttl` it
    does not count: IPVS takes one from it, which is no rule's doing."""
    compared = 0
    with deep_recursion():
        setup = set_up(*sides, exact=True)
        watches = [watch_of(setup, side) for side in setup.sides]
        indexes = [index_rules(rules, setup.family) for rules in sides]
        unknown = any(destination.text for destination in setup.translation.destinations)
        for origin in ORIGINS:
            for state in CONNTRACK_CASES:
                if state.name == "RELATED (an ICMP error)":
                    continue
                nodes = [setup.pipeline.function(side, origin, state) for side in setup.sides]
                for _ in range(points):
                    values = random_values(random, setup, origin, state, fields=fields)
                    about = (setup.variables, values, origin, state, setup.translation.destinations)
                    first, second = (situation_of(*about, each, sources=SNAT) for each in watches)
                    if first is None or second is None:
                        continue
                    compared += 1
                    found = [
                        distribution_at(setup, correlated_at(setup, node, values, state), values) for node in nodes
                    ]
                    seen = [
                        observe(index, situation, watch)
                        for index, situation, watch in zip(indexes, (first, second), watches, strict=True)
                    ]
                    if not ttl:
                        seen = [{(*item[:7], *item[8:]): weight for item, weight in each.items()} for each in seen]
                    label = f"{name}: {first.packet}, {first.host.local_addresses}, {state.name}"
                    for one, other in zip(found, seen, strict=True):
                        assert sum(one.values()) == 1, label
                        if not unknown:
                            assert plain(one, state.fresh) == plain_observation(other, state.fresh), label
                    # The address that REDIRECT takes may be that of a DNAT beside it: two functions come to one there.
                    taken = Values(setup.variables, values).number(setup.variables.translated_dst)
                    may_meet = unknown and any(each.address == taken for each in setup.translation.destinations)
                    alike = found[0] == found[1], seen[0] == seen[1]
                    assert alike[0] == alike[1] or (may_meet and alike[1]), f"{label}: {found} against {seen}"
    return compared
