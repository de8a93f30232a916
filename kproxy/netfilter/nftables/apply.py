"""Applying commands to a rule set, as the kernel does.

A script is a transaction: either all of its commands can be applied or none is, and then the error names the first one
that cannot. Adding what is there is fine; rules are always added; deleting what is not there is refused (`destroy` is
not), and so is deleting a chain or set that rules or verdict maps still refer to.

Sets and rules become what nft 1.0.6 and 1.1.3 list, so that a script and the listing of what it loads are equal:

- A set with a timeout of its own has the flag `timeout`.
- A set that a rule updates is dynamic, with room for 65535 elements unless it says otherwise (a map gets the room
  only).
- Statements of the set, such as `counter`, stand at each of its elements, and not in the rules that update it.
- Intervals are kept in one form; with `auto-merge` they are joined where they touch.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, Final

from kproxy.netfilter.nftables.command import DELETING, Command
from kproxy.netfilter.nftables.element import Element, Elements
from kproxy.netfilter.nftables.errors import NftApplyError
from kproxy.netfilter.nftables.objects import NamedObject
from kproxy.netfilter.nftables.order import merge_intervals, same_intervals
from kproxy.netfilter.nftables.references import chains_of_elements, references_of
from kproxy.netfilter.nftables.ruleset import Chain, NftRuleset, Rule, Table, TableFamily
from kproxy.netfilter.nftables.sets import Set
from kproxy.netfilter.nftables.statement import SetUpdate

DYNAMIC_SIZE: Final = 65535
"""The most elements of a set that rules update."""


class _RefusedError(Exception):
    """The kernel would refuse the command; the message is the reason."""


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

    def freeze(self) -> Table:
        updated = updated_sets(rule for rules in self.rules.values() for rule in rules)
        by_type: dict[type, list[Any]] = {kind: [] for kind in (Chain, Set, NamedObject)}
        for (_, name), item in self.items.items():
            if isinstance(item, Set):
                if name in self.elements:
                    item = dataclasses.replace(item, elements=Elements(self.elements[name].values()))
                item = canonical_set(item, updated=name in updated)
            by_type[type(item)].append(item)
        stateful = {item.name: item for item in by_type[Set] if item.stateful}
        chains = []
        for chain in by_type[Chain]:
            rules = self.rules[chain.name]
            found = (canonical_rule(rule, stateful) for rule in rules) if stateful else rules
            chains.append(dataclasses.replace(chain, rules=tuple(found)))
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

    def change(self, command: Command) -> None:
        """A command about a chain, set or object."""
        verb, name = command.verb, command.name
        kind = "set" if command.kind == "map" else command.kind
        if verb == "add":
            self._add(command.item, kind, name)
        elif (kind, name) not in self.items:
            if verb != "destroy":
                raise _RefusedError(f"no such {kind}: {name}")
        elif verb in DELETING:
            user = next((user for user in self.users(kind, name) if user != f"{kind} {name}"), None)
            if user is not None:
                raise _RefusedError(f"the {kind} {name} is in use by {user}")
            del self.items[kind, name]
            if kind == "chain":
                del self.rules[name]
        elif verb == "flush" and kind == "chain":
            self.rules[name] = []
        elif verb == "flush" and kind == "set":
            self.elements[name] = {}
        else:
            raise _RefusedError(f"{verb} is not for {command.kind}s")

    def _add(self, item: Any, kind: str, name: str) -> None:
        old = self.items.get((kind, name))
        if old is None:
            if isinstance(item, Chain):
                if item.base is not None and item.base.policy is None:
                    item = dataclasses.replace(item, base=dataclasses.replace(item.base, policy="accept"))
                self.rules[name] = list(item.rules)
            self.items[kind, name] = item
        elif isinstance(item, Chain):
            if item.base is not None:
                same = {"policy": item.base.policy, "devices": item.base.devices}
                if old.base is None or dataclasses.replace(old.base, **same) != item.base:
                    raise _RefusedError(f"the chain exists, with another hook: {name}")
                if item.base.policy is not None:
                    base = dataclasses.replace(old.base, policy=item.base.policy)
                    self.items[kind, name] = dataclasses.replace(old, base=base)
            self.rules[name] += item.rules
        elif isinstance(item, Set):
            if (old.types, old.data_types, old.object_kind) != (item.types, item.data_types, item.object_kind):
                raise _RefusedError(f"the set exists, with another type: {name}")
            self._add_elements(name, item.elements)

    def change_rule(self, command: Command) -> None:
        """A rule to add, or to insert before the others."""
        rules = self.rules.get(command.name)
        if rules is None:
            raise _RefusedError(f"no such chain: {command.name}")
        assert isinstance(command.item, Rule)
        rules.insert(0 if command.verb == "insert" else len(rules), command.item)

    def change_elements(self, command: Command) -> None:
        """Elements to add or to delete."""
        if ("set", command.name) not in self.items:
            raise _RefusedError(f"no such set: {command.name}")
        assert isinstance(command.item, Elements)
        if command.verb == "add":
            self._add_elements(command.name, command.item)
        elif command.verb in DELETING:
            known = self._elements_of(command.name)
            for element in command.item:
                if known.pop(element.key, None) is None and command.verb == "delete":
                    raise _RefusedError(f"no such element in set {command.name}: {element.key!r}")

    def _elements_of(self, name: str) -> dict[object, Element]:
        if name not in self.elements:
            self.elements[name] = {element.key: element for element in self.items["set", name].elements}
        return self.elements[name]

    def _add_elements(self, name: str, elements: Elements) -> None:
        known = self._elements_of(name)
        for element in elements:
            if known.setdefault(element.key, element).data != element.data:
                raise _RefusedError(f"the element exists in set {name}: {element.key!r}")


_CHANGES: Final[Mapping[str, Callable[[_TableDraft, Command], None]]] = {
    "rule": _TableDraft.change_rule,
    "element": _TableDraft.change_elements,
}
"""What changes a table, by what a command is about; other commands are about what has a name."""

_Drafts = dict[tuple[TableFamily | None, str], _TableDraft]


def _change_table(drafts: _Drafts, command: Command) -> None:
    """A command about a table as a whole."""
    key = (command.family, command.table)
    found, item = drafts.get(key), command.item
    if isinstance(item, Table):
        if found is None:
            drafts[key] = _TableDraft(item)
            return
        # Without flags it wakes the table: nft always sends them (measured with 1.0.6).
        flags = item.flags | (found.table.flags - {"dormant"})
        comment = found.table.comment or item.comment
        found.table = dataclasses.replace(found.table, flags=flags, comment=comment)
    elif command.verb not in (*DELETING, "flush"):
        raise _RefusedError(f"{command.verb} is not for tables")
    elif found is None:
        if command.verb != "destroy":
            raise _RefusedError("no such table")
    elif command.verb == "flush":
        found.rules = {name: [] for name in found.rules}
    else:
        del drafts[key]


def apply_commands(ruleset: NftRuleset, commands: Iterable[Command], source: str = "") -> NftRuleset:
    """Apply commands to a rule set, which stays as it is; `source` is what messages call the script.

    Raises:
        NftApplyError: the kernel would refuse one of them.
    """
    drafts: _Drafts = {(table.family, table.name): _TableDraft(table) for table in ruleset.tables}
    for command in commands:
        try:
            if command.kind == "ruleset":
                drafts = {key: draft for key, draft in drafts.items() if command.family not in (None, key[0])}
            elif command.kind == "table":
                _change_table(drafts, command)
            elif (draft := drafts.get((command.family, command.table))) is None:
                raise _RefusedError("no such table")
            else:
                _CHANGES.get(command.kind, _TableDraft.change)(draft, command)
        except _RefusedError as error:
            family = "" if command.family is None else f"{command.family.value} "
            what = f"table {family}{command.table}: " if command.table else ""
            raise NftApplyError(f"{what}{error}", source=source, line=command.line) from None
    return NftRuleset(tuple(draft.freeze() for draft in drafts.values()))


def updated_sets(rules: Iterable[Rule]) -> set[str]:
    """The names of the sets that rules update."""
    return {statement.set for rule in rules for statement in rule.statements if type(statement) is SetUpdate}


def canonical_set(item: Set, *, updated: bool) -> Set:
    """A set as it is listed once it is loaded; `updated` says that a rule updates it."""
    flags, size, elements = item.flags, item.size, item.elements
    if item.timeout is not None:
        flags |= {"timeout"}
    if updated:
        flags |= {"dynamic"} if not item.is_map else set()
        size = DYNAMIC_SIZE if size is None else size
    if "interval" in flags:
        elements = same_intervals(elements, item.types)
        if item.auto_merge and not item.is_map and len(item.types) == 1:
            elements = merge_intervals(elements, item.types[0])
    if item.stateful and any(not element.stateful for element in elements):
        elements = Elements(
            element if element.stateful else dataclasses.replace(element, stateful=item.stateful)
            for element in elements
        )
    return dataclasses.replace(item, flags=flags, size=size, elements=elements)


def canonical_rule(rule: Rule, stateful: dict[str, Set]) -> Rule:
    """A rule as it is listed: without the statements that the sets it updates have anyway. `stateful` are these
    sets."""
    statements = tuple(
        dataclasses.replace(statement, stateful=())
        if type(statement) is SetUpdate
        and statement.set in stateful
        and stateful[statement.set].stateful == statement.stateful
        else statement
        for statement in rule.statements
    )
    return rule if statements == rule.statements else dataclasses.replace(rule, statements=statements)
