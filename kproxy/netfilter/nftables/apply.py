"""Applying commands to a rule set, as the kernel does.

A script is a transaction: either all of its commands can be applied or none is, and then the error names the first one
that cannot. Adding what is there is fine (`create` is not); rules are always added; deleting what is not there is
refused (`destroy` is not), and so is deleting a chain or set that rules or verdict maps still refer to. New handles are
not invented: rules that the script adds have none.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable, Iterator, Mapping
from types import MappingProxyType
from typing import Final, NoReturn

from kproxy.netfilter.nftables.command import Command
from kproxy.netfilter.nftables.element import Element, Elements
from kproxy.netfilter.nftables.errors import NftApplyError
from kproxy.netfilter.nftables.flowtable import Flowtable
from kproxy.netfilter.nftables.objects import NamedObject
from kproxy.netfilter.nftables.references import chains_of_elements, references_of
from kproxy.netfilter.nftables.ruleset import Chain, NftRuleset, Rule, Table
from kproxy.netfilter.nftables.sets import Set
from kproxy.netfilter.nftables.settle import settle_rule, settle_set, updated_sets


class _ChainDraft:
    __slots__ = ("chain", "rules")

    def __init__(self, chain: Chain) -> None:
        self.chain = chain
        self.rules: list[Rule] = list(chain.rules)

    def freeze(self) -> Chain:
        return dataclasses.replace(self.chain, rules=tuple(self.rules))


class _SetDraft:
    __slots__ = ("changed", "elements", "set")

    def __init__(self, item: Set) -> None:
        self.set = item
        self.changed = False
        self.elements: dict[object, Element] = {element.key: element for element in item.elements}

    def freeze(self) -> Set:
        if not self.changed:
            return self.set
        return dataclasses.replace(self.set, elements=Elements(self.elements.values()))


class _TableDraft:
    __slots__ = ("chains", "flowtables", "objects", "sets", "table")

    def __init__(self, table: Table) -> None:
        self.table = table
        self.chains = {chain.name: _ChainDraft(chain) for chain in table.chains}
        self.sets = {item.name: _SetDraft(item) for item in table.sets}
        self.objects = {(item.kind, item.name): item for item in table.objects}
        self.flowtables = {item.name: item for item in table.flowtables}

    def freeze(self) -> Table:
        updated = updated_sets(rule for chain in self.chains.values() for rule in chain.rules)
        sets = [settle_set(item.freeze(), updated=name in updated) for name, item in self.sets.items()]
        stateful = {item.name: item for item in sets if item.stateful}
        if stateful:
            for chain in self.chains.values():
                chain.rules = [settle_rule(rule, stateful) for rule in chain.rules]
        return dataclasses.replace(
            self.table,
            chains=tuple(chain.freeze() for chain in self.chains.values()),
            sets=tuple(sets),
            objects=tuple(self.objects.values()),
            flowtables=tuple(self.flowtables.values()),
        )

    def chain_users(self) -> Iterator[tuple[str, str]]:
        """Every chain that something refers to, with what refers to it."""
        for name, chain in self.chains.items():
            for rule in chain.rules:
                for target in references_of(rule).chains:
                    yield target, f"chain {name}"
        for name, item in self.sets.items():
            if item.set.is_verdict_map:
                for target in chains_of_elements(item.elements.values()):
                    yield target, f"map {name}"

    def set_users(self) -> Iterator[tuple[str, str]]:
        """Every set that a rule refers to, with the rule's chain."""
        for name, chain in self.chains.items():
            for rule in chain.rules:
                for target in references_of(rule).sets:
                    yield target, f"chain {name}"


class _Draft:
    """A rule set while commands change it."""

    def __init__(self, ruleset: NftRuleset, source: str) -> None:
        self.tables = {(table.family, table.name): _TableDraft(table) for table in ruleset.tables}
        self.source = source

    def fail(self, command: Command, reason: str) -> NoReturn:
        family = "" if command.family is None else f"{command.family.value} "
        what = f"table {family}{command.table}: " if command.table else ""
        raise NftApplyError(f"{what}{reason}", source=self.source, line=command.line)

    def table(self, command: Command) -> _TableDraft:
        found = None if command.family is None else self.tables.get((command.family, command.table))
        if found is None:
            self.fail(command, "no such table")
        return found

    def chain(self, command: Command) -> _ChainDraft:
        found = self.table(command).chains.get(command.name)
        if found is None:
            self.fail(command, f"no such chain: {command.name}")
        return found

    def set(self, command: Command) -> _SetDraft:
        found = self.table(command).sets.get(command.name)
        if found is None:
            self.fail(command, f"no such set: {command.name}")
        return found


def apply_commands(ruleset: NftRuleset, commands: Iterable[Command], source: str = "") -> NftRuleset:
    """Apply commands to a rule set, which stays as it is; `source` is what messages call the script.

    Raises:
        NftApplyError: the kernel would refuse one of them.
    """
    draft = _Draft(ruleset, source)
    for command in commands:
        _APPLY[command.kind](draft, command)
    return NftRuleset(tuple(table.freeze() for table in draft.tables.values()))


def _ruleset(draft: _Draft, command: Command) -> None:
    draft.tables = {
        key: table for key, table in draft.tables.items() if command.family not in (None, table.table.family)
    }


def _table(draft: _Draft, command: Command) -> None:
    assert command.family is not None
    key = (command.family, command.table)
    found = draft.tables.get(key)
    match command.verb:
        case "add" | "create":
            if found is not None and command.verb == "create":
                draft.fail(command, "the table exists")
            item = command.item
            assert isinstance(item, Table)
            if found is None:
                draft.tables[key] = _TableDraft(item)
            else:
                # Without flags it wakes the table: nft always sends them (measured with 1.0.6).
                flags = item.flags | (found.table.flags - {"dormant"})
                comment = found.table.comment or item.comment
                found.table = dataclasses.replace(found.table, flags=flags, comment=comment)
        case "delete" | "destroy":
            if found is None:
                if command.verb == "delete":
                    draft.fail(command, "no such table")
                return
            del draft.tables[key]
        case "flush":
            if found is None:
                draft.fail(command, "no such table")
            for chain in found.chains.values():
                chain.rules = []
        case _:
            draft.fail(command, f"{command.verb} is not for tables")


def _chain(draft: _Draft, command: Command) -> None:
    table = draft.table(command)
    found = table.chains.get(command.name)
    if command.verb in ("add", "create"):
        _add_chain(draft, command, table, found)
        return
    if found is None:
        if command.verb == "destroy":
            return
        draft.fail(command, f"no such chain: {command.name}")
    match command.verb:
        case "flush":
            found.rules = []
        case "rename":
            if command.new_name in table.chains:
                draft.fail(command, f"the chain exists: {command.new_name}")
            _rename(table, command.name, command.new_name)
        case "delete" | "destroy":
            user = next((user for target, user in table.chain_users() if target == command.name), None)
            if user is not None and user != f"chain {command.name}":
                draft.fail(command, f"the chain {command.name} is in use by {user}")
            del table.chains[command.name]
        case _:
            draft.fail(command, f"{command.verb} is not for chains")


def _add_chain(draft: _Draft, command: Command, table: _TableDraft, found: _ChainDraft | None) -> None:
    item = command.item
    assert isinstance(item, Chain)
    if found is None:
        if item.base is not None and item.base.policy is None:
            item = dataclasses.replace(item, base=dataclasses.replace(item.base, policy="accept"))
        table.chains[command.name] = _ChainDraft(item)
        return
    if command.verb == "create":
        draft.fail(command, f"the chain exists: {command.name}")
    old = found.chain
    if item.base is not None:
        if old.base is None or (old.base.type, old.base.hook, old.base.priority) != (
            item.base.type, item.base.hook, item.base.priority,
        ):  # fmt: skip
            draft.fail(command, f"the chain exists, with another hook: {command.name}")
        if item.base.policy is not None:
            found.chain = dataclasses.replace(old, base=dataclasses.replace(old.base, policy=item.base.policy))
    found.rules += item.rules


def _rename(table: _TableDraft, old: str, new: str) -> None:
    renamed = {}
    for name, chain in table.chains.items():
        if name == old:
            chain.chain = dataclasses.replace(chain.chain, name=new)
        renamed[new if name == old else name] = chain
    table.chains = renamed
    for chain in table.chains.values():
        chain.rules = [references_of(rule).rename_chain(rule, old, new) for rule in chain.rules]


def _rule(draft: _Draft, command: Command) -> None:
    chain = draft.chain(command)
    rules = chain.rules
    index = _index(draft, command, rules)
    match command.verb:
        case "add" | "insert" | "create":
            assert isinstance(command.item, Rule)
            if index is None:
                rules.insert(len(rules) if command.after else 0, command.item)
            else:
                rules.insert(index + command.after, command.item)
        case "replace":
            assert isinstance(command.item, Rule)
            assert index is not None
            rules[index] = dataclasses.replace(command.item, handle=rules[index].handle)
        case "delete" | "destroy":
            if index is not None:
                del rules[index]
        case _:
            pass


def _index(draft: _Draft, command: Command, rules: list[Rule]) -> int | None:
    if command.index is not None:
        if command.index >= len(rules):
            draft.fail(command, f"no such rule in chain {command.name}: index {command.index}")
        return command.index
    if command.handle is None:
        return None
    index = next((index for index, rule in enumerate(rules) if rule.handle == command.handle), None)
    if index is None and command.verb != "destroy":
        draft.fail(command, f"no such rule in chain {command.name}: handle {command.handle}")
    return index


def _set(draft: _Draft, command: Command) -> None:
    table = draft.table(command)
    found = table.sets.get(command.name)
    if command.verb in ("add", "create"):
        item = command.item
        assert isinstance(item, Set)
        if found is None:
            table.sets[command.name] = _SetDraft(item)
            return
        if command.verb == "create":
            draft.fail(command, f"the set exists: {command.name}")
        if (found.set.types, found.set.data_types, found.set.object_kind) != (
            item.types, item.data_types, item.object_kind,
        ):  # fmt: skip
            draft.fail(command, f"the set exists, with another type: {command.name}")
        _add_elements(draft, command, found, item.elements)
        return
    if found is None:
        if command.verb != "destroy":
            draft.fail(command, f"no such set: {command.name}")
        return
    match command.verb:
        case "flush":
            found.elements.clear()
            found.changed = True
        case "delete" | "destroy":
            user = next((user for target, user in table.set_users() if target == command.name), None)
            if user is not None:
                draft.fail(command, f"the set {command.name} is in use by {user}")
            del table.sets[command.name]
        case _:
            pass


def _element(draft: _Draft, command: Command) -> None:
    found = draft.set(command)
    elements = command.item
    assert isinstance(elements, Elements)
    found.changed = True
    if command.verb in ("add", "create"):
        _add_elements(draft, command, found, elements)
    elif command.verb in ("delete", "destroy"):
        for element in elements:
            if found.elements.pop(element.key, None) is None and command.verb == "delete":
                draft.fail(command, f"no such element in set {command.name}: {element.key!r}")


def _add_elements(draft: _Draft, command: Command, found: _SetDraft, elements: Elements) -> None:
    known = found.elements
    found.changed = True
    for element in elements:
        old = known.setdefault(element.key, element)
        if old is not element and (command.verb == "create" or old.data != element.data):
            draft.fail(command, f"the element exists in set {command.name}: {element.key!r}")


def _object(draft: _Draft, command: Command) -> None:
    table = draft.table(command)
    key = (command.kind, command.name)
    if command.verb in ("add", "create"):
        assert isinstance(command.item, NamedObject)
        if key in table.objects:
            if command.verb == "create":
                draft.fail(command, f"the {command.kind} exists: {command.name}")
            return
        table.objects[key] = command.item
    elif command.verb in ("delete", "destroy") and table.objects.pop(key, None) is None and command.verb == "delete":
        draft.fail(command, f"no such {command.kind}: {command.name}")


def _flowtable(draft: _Draft, command: Command) -> None:
    table = draft.table(command)
    if command.verb in ("add", "create"):
        if not isinstance(command.item, Flowtable):
            draft.fail(command, f"the flowtable {command.name} has no hook")
        if command.name in table.flowtables and command.verb == "create":
            draft.fail(command, f"the flowtable exists: {command.name}")
        table.flowtables.setdefault(command.name, command.item)
        return
    found = table.flowtables.pop(command.name, None)
    if found is None and command.verb == "delete":
        draft.fail(command, f"no such flowtable: {command.name}")


_APPLY: Final[Mapping[str, Callable[[_Draft, Command], None]]] = MappingProxyType(
    {
        "ruleset": _ruleset, "table": _table, "chain": _chain, "rule": _rule, "set": _set, "map": _set,
        "element": _element, "flowtable": _flowtable, "counter": _object, "quota": _object, "limit": _object,
        "synproxy": _object, "secmark": _object, "ct helper": _object, "ct timeout": _object,
        "ct expectation": _object,
    }
)  # fmt: skip
