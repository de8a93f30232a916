"""Statements of nftables that look up maps, change sets, or depend on what passed before: as functions, backwards.

Theory: docs/symbolic.md, "nftables".

A map chooses between what its elements do. What the other statements do is data (`netfilter.nftables.effects`).
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable
from fractions import Fraction
from functools import partial
from typing import Any, ClassVar, NamedTuple, Protocol

from kproxy.dataplane.symbolic.ask import OpaqueError, ask
from kproxy.dataplane.symbolic.conditions import RecentCheck
from kproxy.dataplane.symbolic.effects import Effects, Situation
from kproxy.dataplane.symbolic.free_variables import FreeVariable, Stage, moment
from kproxy.dataplane.symbolic.leaves import Outcomes
from kproxy.dataplane.symbolic.nat import Continuation
from kproxy.dataplane.symbolic.nftables.comparisons import Comparisons, Random, elements_of
from kproxy.dataplane.symbolic.nftables.structure import parts_of
from kproxy.dataplane.symbolic.nftables.text import positive, text_of
from kproxy.dataplane.symbolic.nodes import MISS, TRUE, Node
from kproxy.dataplane.symbolic.normalize import Call, NormalizedChain
from kproxy.dataplane.symbolic.restrictions import Fixed
from kproxy.netfilter.address import Address
from kproxy.netfilter.condition import Chance
from kproxy.netfilter.iptables.matches import RecentMatch
from kproxy.netfilter.iptables.option import Negatable
from kproxy.netfilter.nftables import statement as nft
from kproxy.netfilter.nftables.effects import FAMILIES, mark_bits, nat, verdict
from kproxy.netfilter.nftables.element import Element
from kproxy.netfilter.nftables.expression import MapLookup, Meta, Payload, SetReference
from kproxy.netfilter.nftables.stateful import ConnectionLimit, Limit, Quota
from kproxy.netfilter.nftables.value import Verdict


class Place(NamedTuple):
    """Where evaluation is: the rest of a rule of a chain, what is fixed there, and where packets go: `back` is what
    becomes of those that leave the chain. `role` tells rules with rates of their own apart."""

    chain: NormalizedChain
    rest: tuple[object, ...]
    role: Hashable
    back: Node
    fixed: Fixed
    continuation: Continuation


class Evaluator(Protocol):
    """Evaluates the rest of a rule (`chains`)."""

    def rest(self, place: Place, position: int, after: Node) -> Node: ...
    def call(self, call: Call, place: Place, after: Node) -> Node: ...
    def inside(self, condition: Node, place: Place, after: Node, then: Callable[[Place, Node], Node]) -> Node: ...


class Statements:
    """Evaluates such statements; `evaluator` the rest of their rules. `timeouts` are those of sets that are state, in
    milliseconds."""

    KINDS: ClassVar[frozenset[type]] = frozenset(
        {nft.VerdictMap, nft.Mangle, nft.Nat, nft.SetUpdate, nft.ObjectReference, Limit, Quota, ConnectionLimit}
    )

    def __init__(
        self, evaluator: Evaluator, comparisons: Comparisons, outcomes: Outcomes, effects: Effects,
        timeouts: dict[str, int],
    ) -> None:  # fmt: skip
        self._evaluator = evaluator
        self._comparisons = comparisons
        self._variables = comparisons.variables
        self._diagrams = comparisons.variables.diagrams
        self._outcomes = outcomes
        self._effects = effects
        self._timeouts = timeouts
        self._actions: dict[type, Callable[[Any, Place, int, Node], Node]] = {
            nft.VerdictMap: self._verdict_map,
            nft.Mangle: self._mangle,
            nft.Nat: self._nat,
            nft.SetUpdate: self._set_update,
            nft.ObjectReference: self._rate,
            Limit: self._rate,
            Quota: self._rate,
            ConnectionLimit: self._rate,
        }

    def apply(self, statement: object, place: Place, position: int, after: Node) -> Node:
        """A rule from this statement on. Raises OpaqueError if it may do anything."""
        return self._actions[type(statement)](statement, place, position, after)

    def ask(self, step: object, chain: NormalizedChain, stage: Stage) -> Node | Chance:
        """What a question of a rule is."""
        if not isinstance(step, nft.Match):
            return ask(step, self._variables, stage)  # type: ignore[arg-type]
        parts = self._comparisons.parts(step.left)
        if len(parts) == 1 and isinstance(parts[0], Random):
            try:
                return Chance(self._comparisons.chance(parts[0], step, stage))
            except OpaqueError:
                unknown = FreeVariable("onward", f"{text_of(step, chain.native)} ")
                return self._variables.free(unknown)
        return self._comparisons.match(
            step, stage, chain.native, lambda found, match: self._state(found.name, match, chain, stage)
        )

    def _mixed(self, parts: Iterable[tuple[Fraction, Node]]) -> Node:
        summed: dict[Node, Fraction] = {}
        for chance, node in parts:
            summed[node] = summed.get(node, Fraction(0)) + chance
        return self._outcomes.add_all([self._outcomes.scale(node, chance) for node, chance in summed.items() if chance])

    def _verdict_map(self, statement: nft.VerdictMap, place: Place, position: int, after: Node) -> Node:
        evaluator = self._evaluator

        def then(element: Element, inner: Place, rest: Node) -> Node:
            item = element.data
            if not isinstance(item, Verdict):
                raise OpaqueError
            if item.chain is not None:
                return evaluator.call(Call(place.chain.callees[item.chain], item.kind == "goto"), inner, rest)
            return evaluator.rest(inner._replace(rest=(verdict(item), *inner.rest[position + 1 :])), 0, rest)

        return self._looked_up(statement, place, after, then)

    def _looked_up(
        self, lookup: nft.VerdictMap | MapLookup, place: Place, after: Node,
        then: Callable[[Element, Place, Node], Node],
    ) -> Node:  # fmt: skip
        """`then` for the element that a key selects; `after` where there is none."""
        diagrams, stage = self._diagrams, place.continuation.stage
        present, choices = self._comparisons.select(lookup.key, elements_of(place.chain.native, lookup.map), stage)

        def chosen(element: Element, inner: Place, _miss: Node) -> Node:
            return then(element, inner, diagrams.restrict(after, inner.fixed))

        parts = []
        for chance, rows in choices:
            found = [self._evaluator.inside(held, place, MISS, partial(chosen, element)) for held, element in rows]
            parts.append((chance, diagrams.override(diagrams.override_all(found), after) if found else after))
        result = parts[0][1] if len(parts) == 1 and parts[0][0] == 1 else self._mixed(parts)
        return diagrams.ite(diagrams.restrict(present, place.fixed), result, after)

    def _mangle(self, statement: nft.Mangle, place: Place, position: int, after: Node) -> Node:
        """What is written depends on the packet: a mark is looked up, all else is open."""
        target, value = statement.target, statement.value
        following = self._evaluator.rest(place, position + 1, after)
        if isinstance(target, Payload):
            return self._effects.open(text_of(statement, place.chain.native), following, place.continuation)
        name = "mark" if isinstance(target, Meta) else "connmark"
        if name == "connmark" and not place.continuation.stage.tracked:
            return following
        if not isinstance(value, MapLookup):
            raise OpaqueError
        at = Situation(following, after, place.fixed, place.continuation)
        return self._looked_up(
            value, place, after, lambda element, inner, _: self._marked(name, element.data, at, inner)
        )

    def _marked(self, name: str, value: Any, at: Situation, inner: Place) -> Node:
        bits = mark_bits(name, value)
        if bits is None:
            raise OpaqueError
        return self._effects.apply(bits, at._replace(following=self._diagrams.restrict(at.following, inner.fixed)))

    def _nat(self, statement: nft.Nat, place: Place, _position: int, after: Node) -> Node:
        family, lookup = self._variables.family, statement.address
        if statement.family is not None and FAMILIES[statement.family] is not family:
            return after
        if not isinstance(lookup, MapLookup):
            raise OpaqueError

        def then(element: Element, inner: Place, rest: Node) -> Node:
            found = nat(statement, family, element.data, statement.port)
            if found is None:
                raise OpaqueError
            return self._effects.apply(found, Situation(rest, rest, inner.fixed, inner.continuation))

        return self._looked_up(lookup, place, after, then)

    def _rate(self, statement: nft.Statement, place: Place, position: int, after: Node) -> Node:
        """Whether a limit lets the packet pass is unknown; that of a named object is the same for all rules."""
        role = "" if isinstance(statement, nft.ObjectReference) else place.role
        within = self._variables.free(FreeVariable("rate", text_of(statement, place.chain.native), role))
        return self._diagrams.ite(within, self._evaluator.rest(place, position + 1, after), after)

    # sets that rules change

    def _state(self, name: str, asked: nft.Match, chain: NormalizedChain, stage: Stage) -> Node | None:
        """Whether a set holds the packet's key, if that is state; None for a set whose elements are known."""
        state = chain.lists.get(name)
        if state is None:
            return None
        match = self._as_list(state, asked.left)
        if match is not None:
            found = self._comparisons.conditions.match(match, stage, 0)
            assert isinstance(found, RecentCheck), found
            return found.condition
        return self._variables.free(_set_variable(state, asked.left, text_of(positive(asked)[0], chain.native), stage))

    def _as_list(self, state: str, key: object, action: str = "rcheck") -> RecentMatch | None:
        """A set of addresses with a time-out is what a list of `-m recent` is; None if it is another set."""
        timeout = self._timeouts.get(state)
        sides = {"saddr": "source", "daddr": "dest"}
        if not isinstance(key, Payload) or key.protocol not in ("ip", "ip6") or key.field not in sides:
            return None
        family = self._variables.family
        seconds = None if timeout is None or action == "set" else timeout // 1000
        return RecentMatch(Negatable(action), state, Address(family, family.full_mask), sides[key.field], seconds)

    def _set_update(self, statement: nft.SetUpdate, place: Place, position: int, after: Node) -> Node:
        following, stage = self._evaluator.rest(place, position + 1, after), place.continuation.stage
        if any(isinstance(item, (Limit, Quota, ConnectionLimit)) for item in statement.stateful):
            text = text_of(statement, place.chain.native)
            following = self._diagrams.ite(
                self._variables.free(FreeVariable("rate", text, place.role)), following, after
            )
        state, adds = place.chain.lists[statement.set], statement.operation != "delete"
        match = self._as_list(state, statement.key, "set" if adds else "remove")
        if match is not None:
            check = RecentCheck(TRUE, match) if adds else self._comparisons.conditions.match(match, stage, 0)
            assert isinstance(check, RecentCheck), check
            return self._effects.seen(check, following, following, stage)
        asked = nft.Match(statement.key, nft.Operator.EQ, SetReference(statement.set))
        variable = _set_variable(state, statement.key, text_of(asked, place.chain.native), stage)
        level = self._variables.free_variables.get(variable)
        if level is not None:
            following = self._diagrams.restrict(following, ((level, int(adds)),))
        return self._outcomes.leave_behind(following, text_of(statement, place.chain.native))


def _set_variable(state: str, key: object, text: str, stage: Stage) -> FreeVariable:
    fields = {part.field for part in parts_of(key) if isinstance(part, Payload)}
    side = "dest" if fields & {"daddr", "dport"} else "source"
    return FreeVariable("set", text, (state, (moment(side, stage),)))
