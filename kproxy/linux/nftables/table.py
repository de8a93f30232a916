"""kube-proxy's table as text, object by object: what a command of nft has after an object's name.

Rule lines are data here as in iptables mode: a table that is wanted is kept in the words that nft is given, and what
the kernel holds is spelled alike where it means the same (`readback`), so that two tables are compared object by object
without looking into rules.

A `netfilter.nftables.ruleset.Table` is another thing: it has the meaning of every rule, for the data plane and for
printing, and parsing a large table into it takes seconds where a sync takes milliseconds. A
`render.nftables.table.RenderedTable` is a renderer with its state, which knows where each object comes from;
`sync.nftables.desired.table_text` makes a `TableText` of it.
"""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from kproxy.render.nftables.serviceport import ElementRef, ElementValue
from kproxy.render.nftables.table import element_text


class SetText(msgspec.Struct, frozen=True):
    """A set or map without its elements: `kind` is set or map, `definition` what stands in and with its braces."""

    kind: str
    definition: str


class TableText(msgspec.Struct, frozen=True):
    """A table.

    Attributes:
        name: with its family, `ip kube-proxy`.
        definition: of the table, "" for none, as all definitions.
        chains: the definition of each chain by name; of a regular chain it is a comment at most.
        rules: of each chain that has some, in order.
        sets: sets and maps by name.
        elements: of sets and maps; those that packets make (of dynamic sets) are not among them.
    """

    name: str
    definition: str = ""
    chains: Mapping[str, str] = {}
    rules: Mapping[str, tuple[str, ...]] = {}
    sets: Mapping[str, SetText] = {}
    elements: Mapping[ElementRef, ElementValue] = {}

    @property
    def script(self) -> str:
        """Input for `nft -f` where there is no such table yet, one object a line, in an order that nft can load."""
        lines = [_words("add table", self.name, self.definition)]
        lines += [_words("add chain", self.name, chain, definition) for chain, definition in self.chains.items()]
        lines += [_words("add", each.kind, self.name, name, each.definition) for name, each in self.sets.items()]
        lines += [f"add rule {self.name} {chain} {rule}" for chain, rules in self.rules.items() for rule in rules]
        lines += [
            f"add element {self.name} {name} {{ {element_text(key, value)} }}"
            for (name, key), value in self.elements.items()
        ]
        return "".join(f"{line}\n" for line in lines)


def _words(*words: str) -> str:
    return " ".join(word for word in words if word)
