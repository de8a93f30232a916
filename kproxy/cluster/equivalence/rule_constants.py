"""The addresses and ports that rules name: by what programs beside kube-proxy could tell two Services apart.

Every number in a rule counts, and every network, range, element of a set and entry of a map, whatever it is compared
with, be it an address, a port or a mark: naming too much only makes fewer Services alike. What the comparison of all
packets does not look into (an ipset, a rate, a match or target that kproxy does not know) is for it the same unknown
whatever addresses a packet has (`dataplane.symbolic.conditions`), so that it tells no Services apart either.
"""

from __future__ import annotations

import dataclasses
import enum
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from fractions import Fraction
from typing import Final

from kproxy.cluster.equivalence.interval_partition import Interval, bounds
from kproxy.netfilter import Jump, Rule
from kproxy.netfilter.address import AddressRange, Network
from kproxy.netfilter.iptables.codec import Range
from kproxy.netfilter.iptables.targets import NatRange, NetmapTarget
from kproxy.netfilter.nftables import value as nft
from kproxy.netfilter.nftables.element import Element
from kproxy.netfilter.nftables.expression import (
    AnonymousMap,
    AnonymousSet,
    Binary,
    Ct,
    Expression,
    MapLookup,
    Meta,
    Payload,
)
from kproxy.netfilter.nftables.expression import SetReference as NftSetReference
from kproxy.netfilter.nftables.references import walk
from kproxy.netfilter.nftables.ruleset import NftRuleset
from kproxy.netfilter.nftables.statement import Mangle, Match, Nat, Operator, Statement, VerdictMap

_ORDERED: Final = (Operator.LT, Operator.LE, Operator.GT, Operator.GE)
_PLACES: Final = frozenset({"saddr", "daddr", "sport", "dport"})
_STATES: Final = frozenset({"mark", "state", "status", "direction", "label", "zone", "id", "expiration"})


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
    def of(cls, rules: Iterable[Rule], native: NftRuleset, unfit: tuple[str, ...]) -> RuleConstants | None:
        """What rules of iptables and native tables name.

        Args:
            unfit: how the names of chains begin to which no rule may jump.

        Returns:
            None if they tell addresses or ports apart by more than ranges, as a mask with holes and NETMAP do, or if a
            rule jumps to such a chain.
        """
        asked: set[Interval] = set()
        written: set[Interval] = set()
        try:
            for rule in rules:
                _add_rule(rule, unfit, asked, written)
            for table in native.tables:
                for each in table.sets:
                    _add_elements(each.elements, asked, written)
            for _, _, _, native_rule in native.rules():
                for statement in native_rule.statements:
                    _add_statement(statement, asked, written)
        except _UnfitError:
            return None
        return cls(frozenset(asked), frozenset(written))


def _add_rule(rule: Rule, unfit: tuple[str, ...], asked: set[Interval], written: set[Interval]) -> None:
    if isinstance(rule.target, Jump) and rule.target.chain.startswith(unfit):
        raise _UnfitError
    asked.update(_numbers((rule.source, rule.destination, rule.matches)))
    written.update(_numbers(rule.target))


def _add_statement(statement: Statement, asked: set[Interval], written: set[Interval]) -> None:
    """Takes what a statement of nftables names."""
    match statement:
        case Match(left, operator, right):
            _refuse_computed(left)
            asked.update(_numbers((left, right)))
            if operator in _ORDERED and isinstance(right, int):
                asked.update(((0, right), (0, right - 1)))
        case VerdictMap(key, found):
            _refuse_computed(key)
            asked.update(_numbers(key))
            _add_map(found, asked, written)
        case Mangle(target, value):
            asked.update(_numbers(target))
            _add_value(value, asked, written)
        case Nat():
            if statement.prefix:
                raise _UnfitError
            for each in (statement.address, statement.port):
                if each is not None:
                    _add_value(each, asked, written)
        case _:
            written.update(_numbers(statement))


def _add_value(value: Expression, asked: set[Interval], written: set[Interval]) -> None:
    """Takes a value that is written into packets."""
    if isinstance(value, MapLookup):
        _refuse_computed(value.key)
        asked.update(_numbers(value.key))
        _add_map(value.map, asked, written)
        return
    for each in walk(value):
        if isinstance(each, MapLookup) or _is_place(each):
            raise _UnfitError
    written.update(_numbers(value))


def _add_map(found: object, asked: set[Interval], written: set[Interval]) -> None:
    if isinstance(found, AnonymousMap):
        _add_elements(found.elements, asked, written)
    elif not isinstance(found, NftSetReference):
        raise _UnfitError


def _add_elements(elements: Iterable[Element], asked: set[Interval], written: set[Interval]) -> None:
    for each in elements:
        asked.update(_numbers(each.key))
        written.update(_numbers(each.data))


def _refuse_computed(expression: Expression) -> None:
    """Raises _UnfitError: a rule computes with an address or a port before it compares it."""
    for each in walk(expression):
        if isinstance(each, MapLookup) or (isinstance(each, Binary) and any(map(_is_place, walk(each)))):
            raise _UnfitError


def _is_place(expression: Expression) -> bool:
    """Whether it may yield an address or a port."""
    if isinstance(expression, Payload):
        return expression.field in _PLACES
    if isinstance(expression, Ct):
        return expression.key not in _STATES
    return not isinstance(expression, (int, str, tuple, nft.Range, nft.Prefix, Binary, Meta))


def _numbers(item: object) -> Iterator[Interval]:
    """Every number in a value, and every range. Raises _UnfitError."""
    match item:
        case None | bool() | str() | bytes() | float() | Fraction() | enum.Enum():
            return
        case int():
            yield item, item
        case Network():
            if item.prefix_length is None:
                raise _UnfitError
            yield bounds(item)
        case AddressRange():
            yield from _range(item.first.value, item.last.value)
        case Range() | nft.Range() | nft.Prefix():
            yield from _range(item.first, item.last)
        case NetmapTarget() | NatRange(base_port=int()):
            raise _UnfitError
        case AnonymousSet() | AnonymousMap():
            for each in item.elements:
                yield from _numbers((each.key, each.data))
        case NatRange():
            yield from () if item.addresses is None else _range(*item.addresses)
            yield from _numbers(item.ports)
        case tuple() | frozenset():
            for each in item:
                yield from _numbers(each)
        case _ if dataclasses.is_dataclass(item):
            for field in dataclasses.fields(item):
                yield from _numbers(getattr(item, field.name))
        case _:
            raise _UnfitError


def _range(first: int, last: int) -> Iterator[Interval]:
    if first <= last:
        yield first, last
