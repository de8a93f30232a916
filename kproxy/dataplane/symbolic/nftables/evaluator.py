"""Chains of nftables as functions, evaluated backwards.

Theory: docs/symbolic.md, "nftables".

A rule is its statements one after the other: a match chooses between what the rest of the rule does and the next rule,
a map between the verdicts of its elements, `numgen` mixes them. What nat, reject and the like do is what iptables'
targets do (`targets`); the kernel has them once.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from fractions import Fraction
from typing import Any, Final, NamedTuple

from kproxy.dataplane.model.deeds import FIELDS, is_told
from kproxy.dataplane.symbolic.ask import OpaqueError, ask
from kproxy.dataplane.symbolic.conditions import RecentCheck
from kproxy.dataplane.symbolic.free_variables import FreeVariable, moment
from kproxy.dataplane.symbolic.leaves import Bits, Expression, Outcomes
from kproxy.dataplane.symbolic.nat import Continuation
from kproxy.dataplane.symbolic.nftables.comparisons import Comparisons, Random, elements_of
from kproxy.dataplane.symbolic.nftables.marks import linear_bits
from kproxy.dataplane.symbolic.nftables.structure import NftStructure, NormalizedChain, parts_of, verdicts_of
from kproxy.dataplane.symbolic.nftables.text import positive, text_of
from kproxy.dataplane.symbolic.nftables.translation import (
    constant_target,
    is_of,
    looked_up,
    reject_target,
    target_of_data,
    targets_of,
)
from kproxy.dataplane.symbolic.nodes import FALSE, MISS, TRUE, Node
from kproxy.dataplane.symbolic.restrictions import Fixed, fixed_by, joined
from kproxy.dataplane.symbolic.targets import Targets
from kproxy.dataplane.symbolic.translated import Destination, destinations_of
from kproxy.dataplane.symbolic.variables import Variables
from kproxy.netfilter.address import Address
from kproxy.netfilter.iptables.matches import RecentMatch
from kproxy.netfilter.iptables.option import Negatable
from kproxy.netfilter.iptables.targets import NotrackTarget
from kproxy.netfilter.nftables import statement as nft
from kproxy.netfilter.nftables.element import Element
from kproxy.netfilter.nftables.expression import Ct, MapLookup, Meta, Payload, SetReference
from kproxy.netfilter.nftables.lowering import header_present, key_of
from kproxy.netfilter.nftables.stateful import ConnectionLimit, Limit, Quota
from kproxy.netfilter.nftables.value import Verdict

_MAX_REMEMBERED: Final = 300_000
_MAX_DESTINATIONS: Final = 64
_PLAIN_META: Final = frozenset({"nftrace"})


class _Place(NamedTuple):
    """Where evaluation is: a rule of a chain, what is fixed there, and where packets go."""

    chain: NormalizedChain
    rule: tuple[nft.Statement, ...]
    role: object
    back: Node
    fixed: Fixed
    continuation: Continuation


class NftEvaluator:
    """Evaluates the chains of both sides over the same variables."""

    def __init__(
        self, structure: NftStructure, variables: Variables, outcomes: Outcomes, comparisons: Comparisons,
        targets: Targets, timeouts: dict[str, int],
    ) -> None:  # fmt: skip
        self._structure = structure
        self._variables = variables
        self._diagrams = variables.diagrams
        self._outcomes = outcomes
        self._comparisons = comparisons
        self._targets = targets
        self._timeouts = timeouts
        self._results: dict[tuple[object, ...], Node] = {}
        self._reachable: dict[int, tuple[Destination, ...] | None] = {}
        self._statements: dict[type, Callable[[Any, _Place, int, Node], Node]] = {
            nft.Match: self._match,
            Verdict: self._verdict_statement,
            nft.VerdictMap: self._verdict_map,
            nft.Mangle: self._mangle,
            nft.Nat: self._nat,
            nft.Reject: self._reject,
            nft.Queue: self._queue,
            nft.SetUpdate: self._set_update,
            nft.Tproxy: self._tproxy,
            nft.Notrack: self._notrack,
            nft.Dup: self._leaves,
            nft.FlowAdd: self._leaves,
            nft.ResetOption: self._header,
            nft.ObjectReference: self._object,
            Limit: self._rate,
            Quota: self._rate,
            ConnectionLimit: self._rate,
        }

    def base_chain(self, number: int, policy: str, continuation: Continuation) -> Node:
        """A base chain: the function for a packet that comes to it."""
        return self._chain(number, self._targets.verdict(policy.upper(), continuation), (), continuation)

    def _chain(self, number: int, back: Node, fixed: Fixed, continuation: Continuation) -> Node:
        """A chain, when `back` is what becomes of packets that leave it at its end or by return."""
        chain = self._structure.chains[number]
        key = (number, back, fixed, self._reached(number, fixed, continuation))
        found = self._results.get(key)
        if found is None:
            if len(self._results) > _MAX_REMEMBERED:
                self._results.clear()
            result = back
            for position in range(len(chain.rules) - 1, -1, -1):
                place = _Place(chain, chain.rules[position], (number, position), back, fixed, continuation)
                result = self._from(place, 0, result)
            found = self._results[key] = result
        return found

    def _reached(self, number: int, fixed: Fixed, continuation: Continuation) -> object:
        """What a chain can see of what comes after its base chain: for packets to one address only how the chain's
        endpoints are treated, which is the same in many circumstances."""
        if not all(level in dict(fixed) for level in self._variables.levels["dst"]):
            return continuation
        targets = self._destinations(number)
        if not targets:
            return continuation
        reached = tuple(self._targets.translation.treated(target, continuation) for target in targets)
        accept = self._diagrams.restrict(continuation.accept, fixed)
        return continuation.stage, accept, self._diagrams.restrict(continuation.onward, fixed), reached

    def _destinations(self, number: int) -> tuple[Destination, ...] | None:
        """Where a chain sends packets, if to few destinations; None: to many, or it rewrites sources."""
        if number not in self._reachable:
            self._reachable[number] = self._all_destinations(self._structure.chains[number])
        return self._reachable[number]

    def _all_destinations(self, chain: NormalizedChain) -> tuple[Destination, ...] | None:
        found: dict[Destination, None] = {}
        family = self._variables.family
        for rule in chain.rules:
            for statement in rule:
                if isinstance(statement, nft.Nat):
                    if statement.kind not in ("dnat", "redirect"):
                        return None
                    for target in targets_of(statement, chain.table, family):
                        found |= dict.fromkeys(destinations_of(target, family))
                for verdict in verdicts_of(statement, chain.table):
                    if verdict.chain is not None:
                        below = self._destinations(chain.callees[verdict.chain])
                        if below is None:
                            return None
                        found |= dict.fromkeys(below)
                if len(found) > _MAX_DESTINATIONS:
                    return None
        return tuple(found)

    # statements

    def _from(self, place: _Place, position: int, after: Node) -> Node:
        """A rule from one of its statements on; `after` is the function of the next rule."""
        if position == len(place.rule):
            return after
        statement = place.rule[position]
        action = self._statements.get(type(statement))
        if action is None:
            return self._open(statement, place, position, after)
        try:
            return action(statement, place, position, after)
        except OpaqueError:
            return self._open(statement, place, position, after)

    def _open(self, statement: nft.Statement, place: _Place, position: int, after: Node) -> Node:
        """A statement that may do anything: end the packet's way, or the rule, or neither."""
        text, targets = text_of(statement, place.chain.table), self._targets
        ended = targets.open(text, after, place.continuation)
        holds = self._variables.free(FreeVariable("onward", f"{text} "))
        return self._diagrams.ite(holds, self._from(place, position + 1, after), ended)

    def _inside(self, condition: Node, place: _Place, after: Node, then: Callable[[_Place, Node], Node]) -> Node:
        """`then` where a condition holds, with the variables that the condition fixes fixed; `after` elsewhere."""
        diagrams = self._diagrams
        condition = diagrams.restrict(condition, place.fixed)
        if condition == FALSE:
            return after
        more = fixed_by(self._variables, condition)
        if not more:
            return diagrams.ite(condition, then(place, after), after)
        inner = place._replace(back=diagrams.restrict(place.back, more), fixed=joined(place.fixed, more))
        return diagrams.ite(condition, then(inner, diagrams.restrict(after, more)), after)

    def _match(self, statement: nft.Match, place: _Place, position: int, after: Node) -> Node:
        stage = place.continuation.stage
        parts = self._comparisons.parts(statement.left)
        if len(parts) == 1 and isinstance(parts[0], Random):
            fits = self._comparisons.chance(parts[0], statement, stage)
            return self._mixed([(fits, self._from(place, position + 1, after)), (1 - fits, after)])
        condition = self._comparisons.match(
            statement, stage, place.chain.table, lambda found, match: self._state(found.name, match, place)
        )
        return self._inside(condition, place, after, lambda inner, rest: self._from(inner, position + 1, rest))

    def _mixed(self, parts: Iterable[tuple[Fraction, Node]]) -> Node:
        summed: dict[Node, Fraction] = {}
        for chance, node in parts:
            summed[node] = summed.get(node, Fraction(0)) + chance
        return self._outcomes.add_all([self._outcomes.scale(node, chance) for node, chance in summed.items() if chance])

    def _verdict_statement(self, verdict: Verdict, place: _Place, position: int, after: Node) -> Node:
        return self._verdict(verdict, place, position, after)

    def _verdict(self, verdict: Verdict, place: _Place, position: int, after: Node) -> Node:
        if verdict.kind == "continue":
            return self._from(place, position + 1, after)
        if verdict.kind == "return":
            return place.back
        if verdict.chain is not None:
            onward = place.back if verdict.kind == "goto" else after
            return self._chain(place.chain.callees[verdict.chain], onward, place.fixed, place.continuation)
        return self._diagrams.restrict(self._targets.verdict(verdict.kind.upper(), place.continuation), place.fixed)

    def _verdict_map(self, statement: nft.VerdictMap, place: _Place, position: int, after: Node) -> Node:
        def then(element: Element, inner: _Place, rest: Node) -> Node:
            if not isinstance(element.data, Verdict):
                raise OpaqueError
            return self._verdict(element.data, inner, position, rest)

        return self._looked_up(statement, place, after, then)

    def _looked_up(
        self, lookup: nft.VerdictMap | MapLookup, place: _Place, after: Node,
        then: Callable[[Element, _Place, Node], Node],
    ) -> Node:  # fmt: skip
        """`then` for the element that a key selects; `after` where there is none."""
        diagrams, stage = self._diagrams, place.continuation.stage
        present, choices = self._comparisons.select(lookup.key, elements_of(place.chain.table, lookup.map), stage)
        parts = []
        for chance, rows in choices:
            rest, chosen = after, []
            for condition, element in rows:
                found = self._inside(condition, place, MISS, lambda inner, miss, element=element: then(  # type: ignore[misc]
                    element, inner, diagrams.restrict(after, inner.fixed)))  # fmt: skip
                chosen.append(found)
            if chosen:
                rest = diagrams.override(diagrams.override_all(chosen), after)
            parts.append((chance, rest))
        result = parts[0][1] if len(parts) == 1 and parts[0][0] == 1 else self._mixed(parts)
        return diagrams.ite(diagrams.restrict(present, place.fixed), result, after)

    def _mangle(self, statement: nft.Mangle, place: _Place, position: int, after: Node) -> Node:
        target, variables = statement.target, self._variables
        following = self._from(place, position + 1, after)
        text = text_of(statement, place.chain.table)
        if isinstance(target, Meta) and target.key in _PLAIN_META:
            return following
        if not place.continuation.stage.tracked and any(isinstance(part, Ct) for part in parts_of(statement.value)):
            return after  # without a connection there is nothing to read, and the rule ends
        if isinstance(target, (Meta, Ct)) and target.key == "mark":
            levels = variables.levels["mark" if isinstance(target, Meta) else "connmark"]
            if isinstance(target, Ct) and not place.continuation.stage.tracked:
                return following
            value = statement.value
            if isinstance(value, MapLookup):
                return self._looked_up(
                    value, place, after, lambda element, inner, _: self._marked(
                        levels, element.data, self._diagrams.restrict(following, inner.fixed)))  # fmt: skip
            return self._marked(levels, value, following)
        if isinstance(target, Payload):
            written = self._payload_set(target, statement, place, following, text)
        else:
            written = self._outcomes.tell(following, text)
        # nft asks for the header's protocol first, and does not list that: without it the rule ends.
        present = ask(header_present(target), variables, place.continuation.stage)
        present = self._diagrams.restrict(present, place.fixed)
        return self._diagrams.ite(present, written, after)

    def _marked(self, levels: Sequence[int], value: object, following: Node) -> Node:
        bits = linear_bits(self._variables, value)
        change: Bits = tuple(
            (level, expression)
            for level, expression in zip(levels, bits, strict=True)
            if expression != Expression({level})
        )
        return self._outcomes.compose_marks(following, change)

    def _payload_set(self, target: Payload, statement: nft.Mangle, place: _Place, following: Node, text: str) -> Node:
        value = statement.value
        if is_told(statement):
            return self._outcomes.tell(following, text)
        part = FIELDS.get((target.protocol, target.field))
        if part is None:
            return self._targets.open(text, following, place.continuation)
        key = key_of(value)
        if key is None or key.field not in ("", part.name):
            return self._targets.open(text, following, place.continuation)
        level: int = getattr(self._variables, part.name)
        values = tuple(part.written(old, key.of(old)) for old in range(self._diagrams.sizes[level]))
        return self._outcomes.change_field(following, part.name, values)

    def _nat(self, statement: nft.Nat, place: _Place, _position: int, after: Node) -> Node:
        family = self._variables.family
        if not is_of(statement, family):
            return after
        lookup = looked_up(statement)
        if lookup is None:
            target = constant_target(statement, family)
            return self._targets.apply(target, after, place.fixed, place.continuation)
        return self._looked_up(
            lookup, place, after, lambda element, inner, rest: self._targets.apply(
                target_of_data(statement, family, element.data), rest, inner.fixed, inner.continuation))  # fmt: skip

    def _reject(self, statement: nft.Reject, place: _Place, _position: int, after: Node) -> Node:
        target = reject_target(statement, self._variables.family)
        return after if target is None else self._targets.apply(target, after, place.fixed, place.continuation)

    def _queue(self, _statement: nft.Queue, place: _Place, _position: int, _after: Node) -> Node:
        return self._targets.verdict("QUEUE", place.continuation)

    def _tproxy(self, statement: nft.Tproxy, place: _Place, position: int, after: Node) -> Node:
        """To a socket, if there is one: then the rule goes on."""
        variables, diagrams = self._variables, self._diagrams
        port = statement.port if isinstance(statement.port, int) else None
        following = self._from(place, position + 1, after)
        taken = diagrams.restrict(following, ((variables.assigned, 1),))
        taken = self._outcomes.change_header(taken, f"TPROXY to {statement.address} port {port or 'as it is'}")
        asked = variables.free(FreeVariable("socket", f"a transparent socket on port {port}", port))
        return diagrams.ite(asked, taken, after)

    def _notrack(self, _statement: nft.Notrack, place: _Place, position: int, after: Node) -> Node:
        following = self._from(place, position + 1, after)
        return self._targets.apply(NotrackTarget(), following, place.fixed, place.continuation)

    def _leaves(self, statement: nft.Dup | nft.FlowAdd, place: _Place, position: int, after: Node) -> Node:
        return self._outcomes.leave_behind(
            self._from(place, position + 1, after), text_of(statement, place.chain.table)
        )

    def _header(self, statement: nft.ResetOption, place: _Place, position: int, after: Node) -> Node:
        return self._outcomes.tell(self._from(place, position + 1, after), text_of(statement, place.chain.table))

    def _rate(self, statement: Limit | Quota | ConnectionLimit, place: _Place, position: int, after: Node) -> Node:
        return self._diagrams.ite(self._rate_kept(statement, place), self._from(place, position + 1, after), after)

    def _rate_kept(self, statement: nft.Statement, place: _Place) -> Node:
        """Whether a limit lets the packet pass is unknown."""
        return self._variables.free(FreeVariable("rate", text_of(statement, place.chain.table), place.role))

    def _object(self, statement: nft.ObjectReference, place: _Place, position: int, after: Node) -> Node:
        following = self._from(place, position + 1, after)
        if statement.kind in ("limit", "quota"):
            return self._diagrams.ite(self._rate_kept(statement, place._replace(role="")), following, after)
        if statement.kind == "synproxy":
            return self._open(statement, place, position, after)
        return self._outcomes.tell(following, text_of(statement, place.chain.table))

    # sets that rules change

    def _state(self, name: str, asked: nft.Match, place: _Place) -> Node | None:
        """Whether a set holds the packet's key, if that is state; None for a set whose elements are known."""
        state = place.chain.lists.get(name)
        if state is None:
            return None
        match = self._as_list(state, asked.left)
        if match is not None:
            found = self._comparisons.conditions.match(match, place.continuation.stage, 0)
            assert isinstance(found, RecentCheck), found
            return found.condition
        text = text_of(positive(asked)[0], place.chain.table)
        return self._variables.free(self._set_variable(state, asked.left, text, place))

    def _as_list(self, state: str, key: object, action: str = "rcheck") -> RecentMatch | None:
        """A set of addresses with a time-out is what a list of `-m recent` is; None if it is another set."""
        timeout = self._timeouts.get(state)
        sides = {"saddr": "source", "daddr": "dest"}
        if not isinstance(key, Payload) or key.protocol not in ("ip", "ip6") or key.field not in sides:
            return None
        family = self._variables.family
        seconds = None if timeout is None or action == "set" else timeout // 1000
        return RecentMatch(Negatable(action), state, Address(family, family.full_mask), sides[key.field], seconds)

    def _set_variable(self, state: str, key: object, text: str, place: _Place) -> FreeVariable:
        fields = {part.field for part in parts_of(key) if isinstance(part, Payload)}
        side = "dest" if fields & {"daddr", "dport"} else "source"
        when = moment(side, place.continuation.stage)
        return FreeVariable("set", text, (state, (when,)))

    def _set_update(self, statement: nft.SetUpdate, place: _Place, position: int, after: Node) -> Node:
        following = self._from(place, position + 1, after)
        limits = [item for item in statement.stateful if isinstance(item, (Limit, Quota, ConnectionLimit))]
        if limits:
            following = self._diagrams.ite(self._rate_kept(statement, place), following, after)
        state = place.chain.lists[statement.set]
        adds = statement.operation != "delete"
        match = self._as_list(state, statement.key, "set" if adds else "remove")
        stage = place.continuation.stage
        if match is not None:
            if not adds:
                found = self._comparisons.conditions.match(match, stage, 0)
                assert isinstance(found, RecentCheck), found
                return self._targets.seen(found, following, following, stage)
            return self._targets.seen(RecentCheck(TRUE, match), following, following, stage)
        asked = nft.Match(statement.key, nft.Operator.EQ, SetReference(statement.set))
        variable = self._set_variable(state, statement.key, text_of(asked, place.chain.table), place)
        level = self._variables.free_variables.get(variable)
        if level is not None:
            following = self._diagrams.restrict(following, ((level, int(adds)),))
        return self._outcomes.leave_behind(following, text_of(statement, place.chain.table))
