"""State that has names: lists of `-m recent` and sets that rules change. Which of one side is which of the other.

Theory: docs/symbolic.md, "Normalized rules".

Names differ between the two rule languages, and what plays the same part is the same: the set or list that is filled
where packets are sent to the same endpoints, and asked for the same service.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Final, NamedTuple

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
"""A set, by the names of its table and its own; a list of `-m recent` has `LISTS` for a table."""
LISTS: Final = ""

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


def parts_of_lists(rulesets: Iterable[Ruleset]) -> dict[Name, Part]:
    """The parts of lists of `-m recent`."""
    found = _Parts()
    for ruleset in rulesets:
        if not any(isinstance(match, RecentMatch) for _, _, _, rule in ruleset.rules() for match in rule.matches):
            continue
        for table, chain, _, rule in ruleset.rules():
            where = f"{table.name} {chain.name}"
            for match in rule.matches:
                if isinstance(match, RecentMatch):
                    kind = found.fills if match.action.value == "set" else found.asks
                    kind.setdefault(match.name, set()).add(where)
            if isinstance(rule.target, DnatTarget):
                found.endpoints.setdefault(where, set()).add(str(rule.target.to_destination))
            if isinstance(rule.target, Jump):
                callee, service = f"{table.name} {rule.target.chain}", _service(rule)
                if service is not None:
                    found.services.setdefault(callee, set()).add(service)
                else:
                    found.callers.setdefault(callee, set()).add(where)
    return {(LISTS, name): found.part(name) for name in {**found.fills, **found.asks}}


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


def name_state(ours: Mapping[Name, Part], theirs: Mapping[Name, Part]) -> tuple[dict[Name, str], dict[Name, str]]:
    """Names for the lists and sets of both sides, equal for those that play the same part; a pair of a list and a set
    is named after the list. What has the same name and part is the same, then what has the same part, then what sends
    packets to the same endpoints, then what has the same name."""
    pairs: dict[Name, Name] = {}
    for key in _KEYS:
        waiting: dict[object, list[Name]] = {}
        for name, part in sorted(ours.items()):
            if name not in pairs.values():
                waiting.setdefault(key(name, part), []).append(name)
        for name, part in sorted(theirs.items()):
            found = waiting.get(key(name, part))
            if name not in pairs and found:
                pairs[name] = found.pop(0)
    first = {name: " ".join(name).strip() for name in ours}
    second = {name: f"{' '.join(name).strip()} (of the second)" for name in theirs}
    for name, mine in pairs.items():
        second[name] = first[mine] = name[1] if name[0] == LISTS else first[mine]
    return first, second


_KEYS: Final[Sequence[Callable[[Name, Part], object]]] = (
    lambda name, part: (name, part),
    lambda name, part: part if part.endpoints else name,
    lambda name, part: part.endpoints or name,
    lambda name, part: name,
)
