"""State that has names: lists of `-m recent` and sets that rules change. Which of one side is which of the other.

Theory: docs/symbolic.md, "Normalized rules".

Names differ between the two rule languages, and what plays the same part is the same: the set or list that is filled
where packets are sent to the same endpoints, and asked for the same service.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from kproxy.dataplane.symbolic.nftables.structure import changed_sets, nats_of, table_name
from kproxy.netfilter.family import Family
from kproxy.netfilter.iptables.matches import RecentMatch, SctpMatch, TcpMatch, UdpMatch
from kproxy.netfilter.iptables.rule import Rule
from kproxy.netfilter.iptables.ruleset import Ruleset
from kproxy.netfilter.iptables.targets import DnatTarget, Jump
from kproxy.netfilter.nftables.expression import SetReference
from kproxy.netfilter.nftables.ruleset import Table
from kproxy.netfilter.nftables.statement import Match, Nat, SetUpdate, VerdictMap
from kproxy.netfilter.nftables.value import Verdict

Name = tuple[str, str]
"""A set, by the names of its table and its own."""


Service = tuple[int | None, int, int]
"""Address (None: a node port), protocol and port."""


class Part(NamedTuple):
    """What a list is for: where packets are sent that it is filled with, and the services that ask it."""

    endpoints: frozenset[str]
    services: frozenset[Service]


class _Parts:
    """Gathers parts: which chains fill and ask which list, where chains send packets, and what leads to them."""

    def __init__(self) -> None:
        self.fills: dict[str, set[str]] = {}
        self.asks: dict[str, set[str]] = {}
        self.endpoints: dict[str, set[str]] = {}
        self.services: dict[str, set[Service]] = {}
        self.callers: dict[str, set[str]] = {}

    def part(self, name: str) -> Part:
        endpoints = {item for chain in self.fills.get(name, ()) for item in self.endpoints.get(chain, ())}
        asking, waiting = set[str](), list(self.asks.get(name, ()))
        while waiting:
            chain = waiting.pop()
            if chain not in asking:
                asking.add(chain)
                waiting += self.callers.get(chain, ())
        services = {item for chain in asking for item in self.services.get(chain, ())}
        return Part(frozenset(endpoints), frozenset(services))


def parts_of_lists(rulesets: Iterable[Ruleset], names: Mapping[str, str]) -> dict[str, Part]:
    """The parts of lists of `-m recent`, by the names that they are given."""
    found = _Parts()
    for ruleset in rulesets:
        for table, chain, _, rule in ruleset.rules():
            where = f"{table.name} {chain.name}"
            for match in rule.matches:
                if isinstance(match, RecentMatch):
                    kind = found.fills if match.action.value == "set" else found.asks
                    kind.setdefault(names.get(match.name, match.name), set()).add(where)
            if isinstance(rule.target, DnatTarget):
                found.endpoints.setdefault(where, set()).add(str(rule.target.to_destination))
            if isinstance(rule.target, Jump):
                callee, service = f"{table.name} {rule.target.chain}", _service(rule)
                if service is not None:
                    found.services.setdefault(callee, set()).add(service)
                else:
                    found.callers.setdefault(callee, set()).add(where)
    return {name: found.part(name) for name in {**found.fills, **found.asks}}


def _service(rule: Rule) -> Service | None:
    destination, protocol = rule.destination, rule.protocol
    if protocol is None or protocol.negated or (destination is not None and destination.negated):
        return None
    address = None if destination is None else destination.value.address
    for match in rule.matches:
        if isinstance(match, (TcpMatch, UdpMatch, SctpMatch)) and match.dport is not None and not match.dport.negated:
            return address, protocol.value, match.dport.value.first
    return None


def parts_of_sets(tables: Iterable[Table], family: Family) -> dict[Name, Part]:
    """The parts of sets that rules change."""
    result: dict[Name, Part] = {}
    for table in tables:
        found = _Parts()
        for chain in table.chains:
            for rule in chain.rules:
                for statement in rule.statements:
                    if isinstance(statement, SetUpdate):
                        found.fills.setdefault(statement.set, set()).add(chain.name)
                    elif isinstance(statement, Match) and isinstance(statement.right, SetReference):
                        found.asks.setdefault(statement.right.name, set()).add(chain.name)
                    elif isinstance(statement, Nat):
                        texts = (nat.range_text() for nat in nats_of(statement, table, family) if nat.kind == "dnat")
                        found.endpoints.setdefault(chain.name, set()).update(texts)
                    elif isinstance(statement, VerdictMap):
                        for service, callee in _services(statement, table):
                            found.services.setdefault(callee, set()).add(service)
                    elif isinstance(statement, Verdict) and statement.chain is not None:
                        found.callers.setdefault(statement.chain, set()).add(chain.name)
        for name in changed_sets(table):
            result[table_name(table), name] = found.part(name)
    return result


def _services(statement: VerdictMap, table: Table) -> Iterable[tuple[Service, str]]:
    held = table.set(statement.map.name) if isinstance(statement.map, SetReference) else statement.map
    for element in () if held is None else held.elements:
        key, data = element.key, element.data
        if isinstance(key, tuple) and len(key) in (2, 3) and isinstance(data, Verdict) and data.chain is not None:
            address = key[0] if len(key) == 3 else None
            protocol, port = key[-2:]
            if isinstance(address, int | None) and isinstance(protocol, int) and isinstance(port, int):
                yield (address, protocol, port), data.chain


def name_sets(
    lists: Sequence[Mapping[str, Part]], sets: Sequence[Mapping[Name, Part]]
) -> tuple[dict[Name, str], dict[Name, str]]:
    """Names for the sets of both sides, equal for those that play the same part: that of a list of the other side, or
    that of a set of the first."""
    first = _paired(sets[0], lists[1])
    result: dict[Name, str] = {}
    for name in sorted(sets[0]):
        result[name] = first.get(name, " ".join(name))
    known: dict[str, Part] = dict(lists[0]) | {result[name]: part for name, part in sets[0].items()}
    same = {name: result[name] for name in sets[1] if name in result and sets[0][name] == sets[1][name]}
    rest = {name: part for name, part in sets[1].items() if name not in same}
    taken = set(same.values())
    second = same | _paired(rest, {alias: part for alias, part in known.items() if alias not in taken})
    for name in sorted(sets[1]):
        second.setdefault(name, f"{' '.join(name)} (of the second)")
    return result, second


def _paired(sets: Mapping[Name, Part], lists: Mapping[str, Part]) -> dict[Name, str]:
    """Sets and lists of the same part, and where that is unique of the same endpoints."""
    result: dict[Name, str] = {}
    for exact in (True, False):
        waiting: dict[object, list[str]] = {}
        for alias, part in sorted(lists.items()):
            if alias not in result.values() and part.endpoints:
                waiting.setdefault(part if exact else part.endpoints, []).append(alias)
        for name, part in sorted(sets.items()):
            candidates = waiting.get(part if exact else part.endpoints, [])
            if name not in result and candidates:
                result[name] = candidates.pop(0)
    return result
