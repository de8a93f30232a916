"""Picking packets: of all that a condition allows, one that can be, and that reads well.

Upper values (destination, protocol, port) are chosen first, then the rest below them. Preferred values are those of
documentation networks, so that what is shown to people looks like an example; where they do not do, whatever can be.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping
from functools import cached_property
from typing import Final

from kproxy.dataplane.compare.consistency import lists_fit, tuples_fit
from kproxy.dataplane.compare.regions import LOOPBACK, Region
from kproxy.dataplane.compare.witness import Values
from kproxy.dataplane.model.host import MULTICAST_NETWORKS, Host
from kproxy.dataplane.symbolic.build import Setup
from kproxy.dataplane.symbolic.cases import ConntrackCase, feasible_start
from kproxy.dataplane.symbolic.nat import KEPT_DESTINATION
from kproxy.dataplane.symbolic.nodes import FALSE, LEAF, TRUE, Node
from kproxy.dataplane.symbolic.table import TABLE, Shape
from kproxy.dataplane.symbolic.variables import BROADCAST, LOCAL
from kproxy.netfilter.address import parse_address
from kproxy.netfilter.effect import Nat
from kproxy.netfilter.family import Family

_MAX_UPPER: Final = 8
_OWN: Final = 3
"""After so many that read well it may be that only the host's own addresses will do."""
_MAX_MASQUERADED: Final = 60
DOCUMENTATION: Final = {
    Family.IPV4: ("198.51.100.7", "203.0.113.9", "192.0.2.11"),
    Family.IPV6: ("2001:db8:1::7", "2001:db8:2::9", "2001:db8:3::b"),
}


class WitnessSearch:
    """Picks packets for one comparison. `host` restricts them to what it can meet."""

    def __init__(self, setup: Setup, host: Host | None) -> None:
        self._setup = setup
        self._variables = setup.variables
        self._diagrams = setup.variables.diagrams
        self._host = host
        self._feasible: dict[tuple[str, str], Node] = {}
        self.addresses = {
            destination.address for destination in setup.translation.destinations if destination.address >= 0
        }

    @cached_property
    def _own(self) -> tuple[int, ...]:
        """The host's addresses but loopback's, its first interfaces' first."""
        if self._host is None:
            return ()
        family = self._variables.family
        interfaces = [each for each in (self._host.interfaces or {}).values() if not each.is_loopback]
        named = [own.value for each in interfaces for own in each.addresses if own.family is family]
        others = sorted(address for kind, address in self._host.local_addresses or () if kind is family)
        first, last = LOOPBACK[family]
        return tuple(each for each in dict.fromkeys([*named, *others]) if not first <= each <= last)

    def agreed(self, condition: Node) -> Node:
        """That free variables of the same text have the same value, wherever they are asked: a witness's rules cannot
        be given two."""
        diagrams = self._diagrams
        support = diagrams.support(condition)
        result = TRUE
        for levels in self._asked_alike():
            asked = [level for level in levels if level in support]
            for one, other in itertools.pairwise(asked):
                yes = diagrams.equals(other, 1)
                result = diagrams.both(result, diagrams.ite(diagrams.equals(one, 1), yes, diagrams.negate(yes)))
        return result

    def same_answers(self, chosen: dict[int, int]) -> dict[int, int]:
        """The chosen values, and for free variables that do not matter the values given to those of the same text."""
        result = dict(chosen)
        for levels in self._asked_alike():
            answers = [chosen[level] for level in levels if level in chosen]
            result |= {level: answers[0] for level in levels if answers and level not in chosen}
        return result

    def _asked_alike(self) -> list[list[int]]:
        """The free variables of the same text, several at a time."""
        by_text: dict[str, list[int]] = {}
        for key, level in self._variables.free_variables.items():
            by_text.setdefault(key.text, []).append(level)
        return [levels for levels in by_text.values() if len(levels) > 1]

    def upper_values(
        self, region: Region, different: Node, alike: list[Node]
    ) -> Iterator[tuple[dict[int, int] | None, Node]]:
        """Destination, protocol and port of packets to a site, with what is feasible for them; None after the last.

        First some that read well; if none of those will do, whatever can be. Between two of them the caller may add to
        the conditions in which no others are wanted.
        """
        variables, diagrams = self._variables, self._diagrams
        key = (region.origin, region.state.name)
        feasible = self._feasible.get(key)
        if feasible is None:
            feasible = self._all_feasible(region.origin, region.state)
            if region.origin == "local" and region.state.fresh and variables.family is Family.IPV4:
                feasible = diagrams.both(feasible, self._masqueraded({}))
            self._feasible[key] = feasible
        seen: set[tuple[tuple[int, int], ...]] = set()
        site = diagrams.both(region.site.address, region.site.service)
        names = ["dst", "protocol", "dport"]
        if not region.state.fresh:
            names += ["translated_dst", "translated_dport"]
        selecting = {level for name in names for level in variables.levels[name]}
        for number in range(_MAX_UPPER):
            prefer = self._preferences(number % 3) | self._own_destination(region, number)
            wanted = site
            if number >= _OWN:
                wanted = diagrams.both(diagrams.both(site, feasible), different)
                for condition in alike:
                    wanted = diagrams.both(wanted, diagrams.negate(condition))
                for upper in seen:
                    asked = tuple((level, value) for level, value in upper if level in selecting)
                    wanted = diagrams.both(wanted, diagrams.negate(diagrams.point(asked)))
                if wanted == FALSE:
                    yield None, FALSE
                    return
            chosen, _ = self.pick(wanted, prefer)
            values = {
                **prefer,
                **{level: value for level, value in chosen.items() if level < variables.destination},
            }
            upper = tuple(sorted((level, value) for level, value in values.items() if level < variables.destination))
            if upper not in seen:
                seen.add(upper)
                possible = diagrams.restrict(feasible, upper)
                if region.origin == "local" and region.state.fresh and variables.family is Family.IPV6:
                    possible = diagrams.both(possible, self._masqueraded(values))
                if region.origin == "arriving" and region.state.fresh:
                    possible = diagrams.both(possible, self._redirected(values))
                yield values, possible

    def _own_destination(self, region: Region, number: int) -> dict[int, int]:
        """Where only an address of the host's own may do: one that people know it by, and of loopback the first."""
        variables = self._variables
        first, last = LOOPBACK[variables.family]
        inside = self._diagrams.both(region.site.address, self._diagrams.negate(self._loopback(variables.dst)))
        if inside == FALSE:
            return dict(variables.values_of(variables.dst, min(first + max(number, 1), last)))
        if number < _OWN or not self._own:
            return {}
        return dict(variables.values_of(variables.dst, self._own[(number - _OWN) % len(self._own)]))

    def alike(self, region: Region, values: Mapping[int, int]) -> Node:
        """The destinations, protocols and ports for which `correlated` gives what it gives for these values: the new
        port does not matter to it, nor does which port it is that no translated destination at this address has."""
        variables, diagrams = self._variables, self._diagrams
        read = Values(variables, values)
        dst, port = read.number(variables.dst), read.number(variables.dport)
        ports = {each.port for each in self._setup.translation.destinations if each.address in (dst, -1)}
        names = ["dst", "protocol"] if region.state.fresh else ["dst", "protocol", "translated_dst"]
        pinned = [(level, values[level]) for name in names for level in variables.levels[name] if level in values]
        result = diagrams.point(tuple(sorted(pinned)))
        if port in ports:
            return diagrams.both(result, variables.between(variables.dport, port, port))
        others = diagrams.any_of([variables.between(variables.dport, each, each) for each in ports if each >= 0])
        return diagrams.both(result, diagrams.negate(others))

    def _masqueraded(self, values: Mapping[int, int]) -> Node:
        """What MASQUERADE may choose for a packet that the host sends to itself (`nat.masquerade_address`): IPv4 takes
        an address of global scope, IPv6 the destination."""
        variables, diagrams = self._variables, self._diagrams
        nats = (step for chain, step in self._setup.structure.steps() if chain.table is None and isinstance(step, Nat))
        if any(nat.kind in ("snat", "netmap") for nat in nats):
            return TRUE  # these may choose anything
        if variables.family is Family.IPV4:
            return diagrams.negate(self._loopback(variables.translated_src))
        if len(self.addresses) > _MAX_MASQUERADED:
            return TRUE
        result = FALSE
        for address in sorted({Values(variables, values).number(variables.dst), *self.addresses}):
            result = diagrams.either(result, variables.between(variables.translated_src, address, address))
        return result

    def _redirected(self, values: Mapping[int, int]) -> Node:
        """REDIRECT's address is the packet's own destination, or another."""
        variables, diagrams = self._variables, self._diagrams
        if KEPT_DESTINATION not in variables.free_variables:
            return TRUE
        same = variables.address_is(variables.translated_dst, Values(variables, values).number(variables.dst))
        return diagrams.either(variables.free(KEPT_DESTINATION), diagrams.negate(same))

    def _preferences(self, number: int) -> dict[int, int]:
        """Values for variables that may have any, in three variants."""
        variables = self._variables
        result: dict[int, int] = {}
        for row in TABLE:
            if row.example is None:
                continue
            example = row.example if isinstance(row.example, int) else row.example[variables.family]
            first = variables.levels[row.name][0]
            if row.shape is Shape.ADDRESS:
                texts = DOCUMENTATION[variables.family]
                example = parse_address(texts[(example + number) % 3], variables.family) + number
            elif row.shape is Shape.INTERFACE:
                example = min(example, len(variables.interfaces.names) - 1)
            elif row.varied:
                example += number
            result |= variables.values_of(first, example)
        return result

    def _all_feasible(self, origin: str, state: ConntrackCase) -> Node:
        variables, diagrams = self._variables, self._diagrams
        result = feasible_start(variables, origin, state)
        pairs = (
            (variables.dst, variables.dst_kind),
            (variables.src, variables.src_kind),
            (variables.translated_dst, variables.translated_kind),
        )
        for level, kind in pairs:
            result = diagrams.both(result, variables.possible(level, kind))
            if level != variables.translated_dst or not state.fresh:
                result = diagrams.both(result, self._on_host(level, kind))
        result = diagrams.both(result, lists_fit(variables))
        if state.known:
            result = diagrams.both(result, tuples_fit(variables))
        # Connections are translated to addresses that hosts have.
        return diagrams.both(result, self.unicast(variables.translated_dst))

    def _on_host(self, level: int, kind: int) -> Node:
        """What the host tells about an address, if there is one."""
        variables, diagrams = self._variables, self._diagrams
        if self._host is None or self._host.local_addresses is None:
            return TRUE
        local = self._loopback(level)
        for family, address in sorted(self._host.local_addresses, key=lambda pair: (pair[0].value, pair[1])):
            if family is variables.family:
                local = diagrams.either(local, variables.between(level, address, address))
        others = diagrams.negate(diagrams.equals(kind, LOCAL))
        if self._host.interfaces is None:  # then no network of its own is known, and no broadcast address
            certain = diagrams.negate(variables.possible(level, kind))
            never = diagrams.both(diagrams.equals(kind, BROADCAST), self.unicast(level))
            others = diagrams.both(others, diagrams.negate(diagrams.either(certain, never)))
        return diagrams.ite(local, diagrams.equals(kind, LOCAL), others)

    def unicast(self, level: int) -> Node:
        """Addresses that hosts have."""
        variables, diagrams = self._variables, self._diagrams
        if variables.family is Family.IPV4:
            return variables.between(level, 0x01000000, 0xDFFFFFFF)
        return diagrams.both(
            variables.between(level, 2, Family.IPV6.full_mask),
            diagrams.negate(variables.address_under(level, MULTICAST_NETWORKS[Family.IPV6])),
        )

    def _loopback(self, level: int) -> Node:
        variables = self._variables
        return variables.between(level, *LOOPBACK[variables.family])

    def pick(self, condition: Node, prefer: Mapping[int, int]) -> tuple[dict[int, int], Node]:
        """Values that fulfil a condition, preferred ones where possible, and the condition of their path."""
        diagrams = self._diagrams
        chosen: dict[int, int] = {}
        steps: list[tuple[int, int, int]] = []
        while diagrams.level[condition] != LEAF:
            level = diagrams.level[condition]
            wanted = prefer.get(level, 0)
            options = []
            start = 0
            for stop, child in zip(diagrams.bounds[condition], diagrams.children[condition], strict=True):
                if child != FALSE:
                    fits = start <= wanted < stop
                    options.append((not fits, start - stop, start, stop, child))
                start = stop
            unfit, _, start, stop, child = min(options)
            value = wanted if not unfit else min(start + (stop - start > 2), stop - 1)
            chosen[level] = value
            steps.append((level, start, stop - 1))
            condition = child
        path = TRUE
        for level, first, last in reversed(steps):
            path = diagrams.among(level, ((first, last),), path)
        return chosen, path
