"""What rules and elements refer to: chains, sets, objects and flowtables of their table."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, get_args

from kproxy.netfilter.nftables.element import Element
from kproxy.netfilter.nftables.expression import (
    AnonymousMap,
    AnonymousSet,
    Binary,
    Concat,
    Expression,
    Jhash,
    MapLookup,
    SetReference,
)
from kproxy.netfilter.nftables.ruleset import Rule
from kproxy.netfilter.nftables.statement import FlowAdd, ObjectReference, SetUpdate, Statement
from kproxy.netfilter.nftables.value import Verdict


@dataclass(frozen=True, slots=True)
class References:
    """The names that a rule refers to; `objects` by kind and name, flowtables among them."""

    chains: tuple[str, ...] = ()
    sets: tuple[str, ...] = ()
    objects: tuple[tuple[str, str], ...] = ()


def chains_of_elements(elements: Iterable[Element]) -> Iterator[str]:
    """The chains that the verdicts of elements jump or go to."""
    for element in elements:
        data = element.data
        if isinstance(data, Verdict) and data.chain is not None:
            yield data.chain


_EXPRESSION: Final = re.compile("Expression|Payload|MapLookup|SetReference")
_FIELDS: Final[Mapping[type, Sequence[str]]] = {
    kind: [each.name for each in dataclasses.fields(kind) if _EXPRESSION.search(str(each.type))]
    for kind in get_args(Statement)
}
"""The fields of statements that may hold an expression, by their types."""


def expressions_of(statement: Statement) -> Iterator[Expression]:
    """The expressions directly inside a statement."""
    for name in _FIELDS[type(statement)]:
        value = getattr(statement, name)
        if value is not None:
            yield value


def walk(expression: Expression) -> Iterator[Expression]:
    """An expression and all expressions inside it."""
    yield expression
    match expression:
        case Concat(inner):
            pass
        case Binary(_, left, right) | MapLookup(left, right):
            inner = (left, right)
        case Jhash(key):
            inner = (key,)
        case _:
            return
    for part in inner:
        yield from walk(part)


def references_of(rule: Rule) -> References:
    """Everything that a rule refers to."""
    chains: list[str] = []
    sets: list[str] = []
    objects: list[tuple[str, str]] = []
    for statement in rule.statements:
        match statement:
            case Verdict(_, chain):
                if chain is not None:
                    chains.append(chain)
            case ObjectReference(kind, str() as name):
                objects.append((kind, name))
            case FlowAdd(name):
                objects.append(("flowtable", name))
            case SetUpdate():
                sets.append(statement.set)
        for expression in expressions_of(statement):
            for inner in walk(expression):
                if isinstance(inner, SetReference):
                    sets.append(inner.name)
                elif isinstance(inner, (AnonymousMap, AnonymousSet)):
                    chains += chains_of_elements(inner.elements)
                    if isinstance(statement, ObjectReference) and isinstance(inner, AnonymousMap):
                        objects += [(statement.kind, str(element.data)) for element in inner.elements]
    return References(tuple(chains), tuple(sets), tuple(objects))
