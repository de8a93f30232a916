"""What rules and elements refer to: chains, sets, objects and flowtables of their table."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

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
from kproxy.netfilter.nftables.statement import (
    Dup,
    FlowAdd,
    Fwd,
    Mangle,
    Match,
    Nat,
    ObjectReference,
    Queue,
    SetUpdate,
    Statement,
    Tproxy,
    VerdictMap,
)
from kproxy.netfilter.nftables.value import Verdict


@dataclass(frozen=True, slots=True)
class References:
    """The names that a rule refers to; `objects` by kind and name."""

    chains: tuple[str, ...] = ()
    sets: tuple[str, ...] = ()
    objects: tuple[tuple[str, str], ...] = ()
    flowtables: tuple[str, ...] = ()

    def rename_chain(self, rule: Rule, old: str, new: str) -> Rule:
        """The rule with its jumps to a chain going to the chain's new name; the rule itself if it has none."""
        if old not in self.chains:
            return rule
        statements = [_rename(statement, old, new) for statement in rule.statements]
        return dataclasses.replace(rule, statements=tuple(statements))


def _rename(statement: Statement, old: str, new: str) -> Statement:
    if isinstance(statement, Verdict) and statement.chain == old:
        return Verdict(statement.kind, new)
    return statement


def chains_of_elements(elements: Iterable[Element]) -> Iterator[str]:
    """The chains that the verdicts of elements jump or go to."""
    for element in elements:
        data = element.data
        if isinstance(data, Verdict) and data.chain is not None:
            yield data.chain


def expressions_of(statement: Statement) -> Iterator[Expression]:
    """The expressions directly inside a statement."""
    match statement:
        case Match(left, _, right):
            yield from (left, right)
        case VerdictMap(key, found):
            yield from (key, found)
        case Mangle(target, value):
            yield from (target, value)
        case Nat() | Tproxy():
            yield from (item for item in (statement.address, statement.port) if item is not None)
        case Dup() | Fwd():
            yield from (item for item in (statement.address, statement.device) if item is not None)
        case Queue(number):
            yield number
        case SetUpdate():
            yield statement.key
            if statement.data is not None:
                yield statement.data
        case ObjectReference(_, MapLookup() as name):
            yield name
        case _:
            return


def walk(expression: Expression) -> Iterator[Expression]:
    """An expression and all expressions inside it."""
    yield expression
    match expression:
        case Binary(_, left, right):
            yield from walk(left)
            yield from walk(right)
        case Concat(parts):
            for part in parts:
                yield from walk(part)
        case MapLookup(key, found):
            yield from walk(key)
            yield from walk(found)
        case Jhash(key):
            yield from walk(key)
        case _:
            return


def references_of(rule: Rule) -> References:
    """Everything that a rule refers to."""
    chains: list[str] = []
    sets: list[str] = []
    objects: list[tuple[str, str]] = []
    flowtables: list[str] = []
    for statement in rule.statements:
        match statement:
            case Verdict(_, chain):
                if chain is not None:
                    chains.append(chain)
            case ObjectReference(kind, str() as name):
                objects.append((kind, name))
            case FlowAdd(name):
                flowtables.append(name)
            case SetUpdate():
                sets.append(statement.set)
            case _:
                pass
        for expression in expressions_of(statement):
            for inner in walk(expression):
                if isinstance(inner, SetReference):
                    sets.append(inner.name)
                elif isinstance(inner, (AnonymousMap, AnonymousSet)):
                    chains += chains_of_elements(inner.elements)
                    if isinstance(statement, ObjectReference) and isinstance(inner, AnonymousMap):
                        objects += [(statement.kind, str(element.data)) for element in inner.elements]
    return References(tuple(chains), tuple(sets), tuple(objects), tuple(flowtables))
