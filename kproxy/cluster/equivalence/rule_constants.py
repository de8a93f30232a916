"""The addresses and ports that rules name: by what programs beside kube-proxy could tell two Services apart.

Every number, network and range that a rule compares or writes counts, every element of a set and entry of a map,
whether it is an address, a port or something else: naming too much only makes fewer Services alike. What the comparison
of all packets does not look into (an ipset, a rate, a match or target that kproxy does not know) is for it the same
unknown whatever addresses a packet has (`dataplane.symbolic.conditions`), so that it tells no Services apart either.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Final

from kproxy.cluster.equivalence.interval_partition import Interval
from kproxy.netfilter import Family, Rule, condition, effect
from kproxy.netfilter.condition import Condition
from kproxy.netfilter.nftables import statement as nft
from kproxy.netfilter.nftables.effects import lower
from kproxy.netfilter.nftables.element import Element
from kproxy.netfilter.nftables.expression import AnonymousMap, AnonymousSet, Concat, Expression, MapLookup
from kproxy.netfilter.nftables.lowering import condition_of, fields_in, key_of
from kproxy.netfilter.nftables.ruleset import NftRuleset
from kproxy.netfilter.nftables.value import Prefix, Range

_PLACES: Final = frozenset({"src", "dst", "sport", "dport"})
_ADDRESS: Final = Family.IPV6.full_mask
_PORT: Final = 0xFFFF


class _UnfitError(Exception):
    """A rule tells addresses or ports apart by more than the ranges that they are in."""


@dataclass(frozen=True, slots=True)
class RuleConstants:
    """What some rules name, as ranges of numbers.

    Attributes:
        asked: what packets are compared with: whether two addresses, or two ports, are in the same of these is all that
            the rules can tell of them.
        written: what rules write into packets. One that has more than one number stands for each of them.
    """

    asked: frozenset[Interval]
    written: frozenset[Interval]

    @classmethod
    def of(
        cls, rules: Iterable[Rule], native: NftRuleset, family: Family, unfit: tuple[str, ...]
    ) -> RuleConstants | None:
        """What rules of iptables and native tables name.

        Args:
            family: of the packets.
            unfit: how the names of chains begin to which no rule may jump.

        Returns:
            None if they tell addresses or ports apart by more than ranges, as a mask with holes and NETMAP do, or if a
            rule jumps to such a chain.
        """
        found = _Constants(family, unfit)
        try:
            for rule in rules:
                for asked in (rule.asks(), *(match.condition() for match in rule.matches)):
                    found.ask(asked)
                found.do(rule.target.effect() if rule.target is not None else None)
            for table in native.tables:
                for each in table.sets:
                    found.add(each.elements)
            for table, _, _, native_rule in native.rules():
                for statement in native_rule.statements:
                    for step in lower(statement, table.family.value, lambda _: ""):
                        found.do(step)
        except _UnfitError:
            return None
        return cls(frozenset(found.asked), frozenset(found.written))


class _Constants:
    """Gathers what rules name; raises _UnfitError."""

    def __init__(self, family: Family, unfit: tuple[str, ...]) -> None:
        self.asked: set[Interval] = set()
        self.written: set[Interval] = set()
        self._unfit = unfit
        self._full_masks = (family.full_mask, _ADDRESS, _PORT)

    def ask(self, asked: Condition | None) -> None:
        """Takes what a condition names."""
        match asked:
            case condition.In(_, intervals):
                self.asked.update(intervals)
            case condition.Under(field, value, mask) if mask and _is_place(field):
                low = (mask & -mask) - 1
                if mask | low not in self._full_masks:
                    raise _UnfitError
                self.asked.add((value, value | low))
            case condition.Not(part):
                self.ask(part)
            case condition.All(parts) | condition.Any(parts):
                for part in parts:
                    self.ask(part)

    def do(self, step: Any) -> None:
        """Takes what a step of a rule names."""
        match step:
            case effect.Jump(chain) if chain.startswith(self._unfit):
                raise _UnfitError
            case effect.Nat():
                if step.kind == "netmap" or step.base is not None:
                    raise _UnfitError
                self.written.update(filter(None, (step.addresses, step.ports)))
            case effect.Socket(port):
                self._write(port)
            case nft.Match():
                asked = condition_of(step)
                if asked is None:
                    self._key(step.left)
                    self.add(step.right.elements if isinstance(step.right, AnonymousSet) else ())
                self.ask(asked)
            case nft.VerdictMap(key, found):
                self._look_up(key, found)
            case nft.Mangle(_, value):
                self._write(value)
            case nft.Nat():
                if step.prefix:
                    raise _UnfitError
                self._write(step.address)
                self._write(step.port)
            case _ if not isinstance(step, nft.Statement):
                self.ask(step)

    def add(self, elements: Iterable[Element]) -> None:
        """Takes elements of a set or map."""
        for each in elements:
            _put(self.asked, each.key)
            _put(self.written, each.data)

    def _look_up(self, key: Expression, found: object) -> None:
        self._key(key)
        self.add(found.elements if isinstance(found, AnonymousMap) else ())

    def _write(self, value: object) -> None:
        """Takes a value that is written into packets."""
        if isinstance(value, MapLookup):
            self._look_up(value.key, value.map)
        elif any(_is_place(field) for field, _ in fields_in(value)):
            raise _UnfitError
        _put(self.written, value)

    @staticmethod
    def _key(expression: Expression) -> None:
        """Refuses a rule that computes with an address or a port before it looks that up."""
        for part in expression.parts if isinstance(expression, Concat) else (expression,):
            key = key_of(part)
            if key is not None and _is_place(key.field):
                whole = _PORT if key.field.endswith("port") else _ADDRESS
                if (key.mask, key.shift, key.flip) != (whole, 0, 0):
                    raise _UnfitError


def _is_place(field: str) -> bool:
    """Whether a field is an address or a port, of the packet or of its connection."""
    return field in _PLACES or field.startswith(("ctorig", "ctrepl"))


def _put(numbers: set[Interval], value: object) -> None:
    """Adds every number in a value, and every range."""
    for each in value if isinstance(value, tuple) else (value,):
        if isinstance(each, int):
            numbers.add((each, each))
        elif isinstance(each, (Range, Prefix)):
            numbers.add((each.first, each.last))
