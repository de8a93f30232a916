"""Commands: what a script says, one change to a rule set each.

`add table ip t`, a block `table ip t { ... }` and a listing all come down to these. `apply.py` applies them.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, TypeAlias

from kproxy.netfilter.nftables.element import Elements
from kproxy.netfilter.nftables.objects import NamedObject
from kproxy.netfilter.nftables.ruleset import Chain, Rule, Table, TableFamily
from kproxy.netfilter.nftables.sets import Set

DELETING: Final = frozenset({"delete", "destroy"})

Item: TypeAlias = Table | Chain | Rule | Set | Elements | NamedObject


@dataclass(frozen=True, slots=True)
class Command:
    """A command.

    `verb` is add, insert, delete, destroy or flush. `kind` says what it is about: ruleset, table, chain,
    rule, set, map, element, or the kind of an object. `family` is None for `flush ruleset` of all families.
    `name` is the name of the chain, set or object, for a rule of its chain. `item` is what is added. `line` is where
    the command stands.
    """

    verb: str
    kind: str
    family: TableFamily | None = None
    table: str = ""
    name: str = ""
    item: Item | None = None
    line: int = 0
