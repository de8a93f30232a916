"""Applying commands to a rule set, as the kernel does.

A script is a transaction: either all of its commands can be applied or none is, and then the error names the first one
that cannot. Adding what is there is fine (`create` is not); rules are always added; deleting what is not there is
refused (`destroy` is not), and so is deleting a chain or set that rules or verdict maps still refer to.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Iterator
from typing import Any, NoReturn

from kproxy.netfilter.nftables.command import ADDING, DELETING, Command
from kproxy.netfilter.nftables.element import Element, Elements
from kproxy.netfilter.nftables.errors import NftApplyError
from kproxy.netfilter.nftables.objects import NamedObject
from kproxy.netfilter.nftables.references import chains_of_elements, references_of
from kproxy.netfilter.nftables.ruleset import Chain, NftRuleset, Rule, Table
from kproxy.netfilter.nftables.sets import Set
from kproxy.netfilter.nftables.settle import settle_rule, settle_set, updated_sets


class _TableDraft:
    """A table while commands change it. `items` are by kind and name, a map's kind being set; `rules` those of chains
    and `elements` those of sets, of the latter only what commands have changed."""

    def __init__(self, table: Table) -> None:
        self.table = table
        self.items: dict[tuple[str, str], Any] = {("chain", item.name): item for item in table.chains}
        self.items |= {("set", item.name): item for item in table.sets}
        self.items |= {(item.kind, item.name): item for item in table.objects}
        self.rules = {chain.name: list(chain.rules) for chain in table.chains}
        self.elements: dict[str, dict[object, Element]] = {}

    def elements_of(self, name: str) -> dict[object, Element]:
        """The elements of a set, to be changed."""
        if name not in self.elements:
            self.elements[name] = {element.key: element for element in self.items["set", name].elements}
        return self.elements[name]

    def freeze(self) -> Table:
        updated = updated_sets(rule for rules in self.rules.values() for rule in rules)
        by_type: dict[type, list[Any]] = {kind: [] for kind in (Chain, Set, NamedObject)}
        for (_, name), item in self.items.items():
            if isinstance(item, Set):
                if name in self.elements:
                    item = dataclasses.replace(item, elements=Elements(self.elements[name].values()))
                item = settle_set(item, updated=name in updated)
            by_type[type(item)].append(item)
        stateful = {item.name: item for item in by_type[Set] if item.stateful}
        chains = []
        for chain in by_type[Chain]:
            rules = self.rules[chain.name]
            settled = (settle_rule(rule, stateful) for rule in rules) if stateful else rules
            chains.append(dataclasses.replace(chain, rules=tuple(settled)))
        sets, objects = (tuple(by_type[kind]) for kind in (Set, NamedObject))
        return dataclasses.replace(self.table, chains=tuple(chains), sets=sets, objects=objects)

    def users(self, kind: str, name: str) -> Iterator[str]:
        """What refers to a chain or a set."""
        for chain, rules in self.rules.items():
            for found in map(references_of, rules):
                if name in (found.chains if kind == "chain" else found.sets):
                    yield f"chain {chain}"
        for item in self.items.values():
            if kind == "chain" and isinstance(item, Set) and item.is_verdict_map:
                elements = self.elements[item.name].values() if item.name in self.elements else item.elements
                if name in chains_of_elements(elements):
                    yield f"map {item.name}"


class _Draft:
    """A rule set while commands change it."""

    def __init__(self, ruleset: NftRuleset, source: str) -> None:
        self.tables = {(table.family, table.name): _TableDraft(table) for table in ruleset.tables}
        self.source = source

    def fail(self, command: Command, reason: str) -> NoReturn:
        family = "" if command.family is None else f"{command.family.value} "
        what = f"table {family}{command.table}: " if command.table else ""
        raise NftApplyError(f"{what}{reason}", source=self.source, line=command.line)

    def apply(self, command: Command) -> None:
        """Carry out a command. Raises NftApplyError."""
        if command.kind == "ruleset":
            kept = {key: table for key, table in self.tables.items() if command.family not in (None, key[0])}
            self.tables = kept
        elif command.kind == "table":
            self._table(command)
        else:
            table = None if command.family is None else self.tables.get((command.family, command.table))
            if table is None:
                self.fail(command, "no such table")
            change = {"rule": self._rule, "element": self._element}.get(command.kind, self._named)
            change(table, command)

    def _table(self, command: Command) -> None:
        assert command.family is not None
        key = (command.family, command.table)
        found = self.tables.get(key)
        item = command.item
        if isinstance(item, Table):
            if found is None:
                self.tables[key] = _TableDraft(item)
                return
            if command.verb == "create":
                self.fail(command, "the table exists")
            # Without flags it wakes the table: nft always sends them (measured with 1.0.6).
            flags = item.flags | (found.table.flags - {"dormant"})
            comment = found.table.comment or item.comment
            found.table = dataclasses.replace(found.table, flags=flags, comment=comment)
        elif command.verb not in (*DELETING, "flush"):
            self.fail(command, f"{command.verb} is not for tables")
        elif found is None:
            if command.verb != "destroy":
                self.fail(command, "no such table")
        elif command.verb == "flush":
            found.rules = {name: [] for name in found.rules}
        else:
            del self.tables[key]

    def _named(self, table: _TableDraft, command: Command) -> None:
        """A chain, set or object."""
        verb, name = command.verb, command.name
        kind = "set" if command.kind == "map" else command.kind
        found = table.items.get((kind, name))
        if verb in ADDING:
            self._add(table, command, kind, found)
        elif found is None:
            if verb != "destroy":
                self.fail(command, f"no such {kind}: {name}")
        elif verb in DELETING:
            user = next((user for user in table.users(kind, name) if user != f"{kind} {name}"), None)
            if user is not None:
                self.fail(command, f"the {kind} {name} is in use by {user}")
            del table.items[kind, name]
            if kind == "chain":
                del table.rules[name]
        elif verb == "flush" and kind == "chain":
            table.rules[name] = []
        elif verb == "flush" and kind == "set":
            table.elements[name] = {}
        elif verb != "reset":
            self.fail(command, f"{verb} is not for {command.kind}s")

    def _add(self, table: _TableDraft, command: Command, kind: str, old: Any) -> None:
        item, name = command.item, command.name
        if old is None:
            if isinstance(item, Chain):
                if item.base is not None and item.base.policy is None:
                    item = dataclasses.replace(item, base=dataclasses.replace(item.base, policy="accept"))
                table.rules[name] = list(item.rules)
            table.items[kind, name] = item
            return
        if command.verb == "create":
            self.fail(command, f"the {kind} exists: {name}")
        if isinstance(item, Chain):
            if item.base is not None:
                same = {"policy": item.base.policy, "devices": item.base.devices}
                if old.base is None or dataclasses.replace(old.base, **same) != item.base:
                    self.fail(command, f"the chain exists, with another hook: {name}")
                if item.base.policy is not None:
                    base = dataclasses.replace(old.base, policy=item.base.policy)
                    table.items[kind, name] = dataclasses.replace(old, base=base)
            table.rules[name] += item.rules
        elif isinstance(item, Set):
            if (old.types, old.data_types, old.object_kind) != (item.types, item.data_types, item.object_kind):
                self.fail(command, f"the set exists, with another type: {name}")
            self._add_elements(table, command, item.elements)

    def _rule(self, table: _TableDraft, command: Command) -> None:
        rules = table.rules.get(command.name)
        if rules is None:
            self.fail(command, f"no such chain: {command.name}")
        assert isinstance(command.item, Rule)
        rules.insert(0 if command.verb == "insert" else len(rules), command.item)

    def _element(self, table: _TableDraft, command: Command) -> None:
        if ("set", command.name) not in table.items:
            self.fail(command, f"no such set: {command.name}")
        assert isinstance(command.item, Elements)
        if command.verb in ADDING:
            self._add_elements(table, command, command.item)
        elif command.verb in DELETING:
            known = table.elements_of(command.name)
            for element in command.item:
                if known.pop(element.key, None) is None and command.verb == "delete":
                    self.fail(command, f"no such element in set {command.name}: {element.key!r}")

    def _add_elements(self, table: _TableDraft, command: Command, elements: Elements) -> None:
        known = table.elements_of(command.name)
        for element in elements:
            old = known.setdefault(element.key, element)
            if old is not element and (command.verb == "create" or old.data != element.data):
                self.fail(command, f"the element exists in set {command.name}: {element.key!r}")


def apply_commands(ruleset: NftRuleset, commands: Iterable[Command], source: str = "") -> NftRuleset:
    """Apply commands to a rule set, which stays as it is; `source` is what messages call the script.

    Raises:
        NftApplyError: the kernel would refuse one of them.
    """
    draft = _Draft(ruleset, source)
    for command in commands:
        draft.apply(command)
    return NftRuleset(tuple(table.freeze() for table in draft.tables.values()))
