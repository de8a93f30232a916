"""kube-proxy's table as text, object by object, the difference of two tables, and the transactions that carry it out.

Rule lines are data here as in iptables mode: a table that is wanted is kept in the words that nft is given, and what
the kernel holds is spelled alike where it means the same (`readback`), so that two tables are compared object by object
without looking into rules. A `netfilter.nftables.ruleset.Table` has the meaning of every rule instead, and parsing a
large table into it takes seconds where a sync takes milliseconds.

A script of nft is one transaction, so what is in one script switches at once for every packet. Only two things are not
in the same script as the rest:

- Rules of new chains, if there are many. A map that is written in a rule is a set of its own to the kernel, and binding
  it to its rule walks the whole transaction (__nft_set_trans_bind): of one transaction for 5000 Services that is a
  quarter of the processor time or more, of 500 rules at a time a fiftieth. Most of the rest grows with the square
  of the sets in the table, whatever the transactions: the kernel walks all of them for each new one, to find it a name
  (nf_tables_set_alloc_name) and three times to look for it by name. Nothing leads to a new chain before the last of
  these scripts, which adds the elements and rewrites the chains that were there, so no packet sees what the others
  prepare.
- Deletions of chains. Kernels before 6.2 notice some time later only that a map element which is gone refers to a chain
  no more, and refuse to delete it until then. kube-proxy v1.36 flushes a stale chain when it becomes stale and deletes
  it at least a second later; see `STALE`.

Elements are added and deleted many to a line: a line is a message to the kernel and a step of the transaction. Rules
that name no set are written in braces after their chain's name, which spares nft from reading all sets first.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from itertools import groupby
from typing import Final

import msgspec

from kproxy.render.nftables.serviceport import ElementRef, ElementValue
from kproxy.render.nftables.table import element_text
from kproxy.words import listed


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


RULES_PER_TRANSACTION: Final = 500
SPLIT_ABOVE: Final = 2
"""Batches of rules above which it pays to have several: each is a process, which reads the table's chains."""
ELEMENTS_PER_LINE: Final = 100

STALE: Final = 1.0
"""Seconds that a chain stays, empty, after the last that led to it is gone."""


class Change(msgspec.Struct, frozen=True):
    """What is to be done to a table; false if nothing.

    Attributes:
        table: its name with its family.
        create: the definition of the table, if there is none yet; None if there is.
        wake: whether the table is there and dormant, which `NftExecutor.wake` ends.
        chains: definitions of chains to add.
        replaced_chains: those of `chains` that are there with another definition, which only a new chain can have.
        rules: of chains that are new or whose rules differ: all their rules.
        sets: sets and maps to add; `replaced_sets` those of them that are there with another definition.
        elements: to add. If another value stands there, it is among `stale_elements` too.
        stale_elements, stale_sets, stale_chains: to delete, chains later than the rest.
    """

    table: str
    create: str | None = None
    wake: bool = False
    chains: Mapping[str, str] = {}
    replaced_chains: frozenset[str] = frozenset()
    rules: Mapping[str, tuple[str, ...]] = {}
    sets: Mapping[str, SetText] = {}
    replaced_sets: frozenset[str] = frozenset()
    elements: Mapping[ElementRef, ElementValue] = {}
    stale_elements: Collection[ElementRef] = ()
    stale_sets: tuple[str, ...] = ()
    stale_chains: tuple[str, ...] = ()

    def __bool__(self) -> bool:
        return bool(
            self.create is not None
            or self.wake
            or self.chains
            or self.rules
            or self.sets
            or self.elements
            or self.stale_elements
            or self.stale_sets
            or self.stale_chains
        )


def difference(before: TableText | None, after: TableText) -> Change:
    """What makes one table of another, spelled alike; of none if `before` is None."""
    old = before if before is not None else TableText(after.name)
    replaced_chains = frozenset(
        name for name, definition in after.chains.items() if old.chains.get(name, definition) != definition
    )
    replaced_sets = frozenset(name for name, each in after.sets.items() if old.sets.get(name, each) != each)
    # A set that rules refer to cannot be replaced, so those rules go first and are written again.
    again = _chains_that_name(after, replaced_sets)
    elements = {
        ref: value for ref, value in after.elements.items() if ref[0] in replaced_sets or old.elements.get(ref) != value
    }
    gone = [
        ref
        for ref, value in old.elements.items()
        if after.elements.get(ref) != value and ref[0] in after.sets and ref[0] not in replaced_sets
    ]
    return Change(
        table=after.name,
        create=after.definition if before is None else None,
        chains={name: d for name, d in after.chains.items() if name not in old.chains or name in replaced_chains},
        replaced_chains=replaced_chains,
        rules={
            name: after.rules.get(name, ())
            for name in after.chains
            if name in replaced_chains or name in again or old.rules.get(name, ()) != after.rules.get(name, ())
        },
        sets={name: each for name, each in after.sets.items() if name not in old.sets or name in replaced_sets},
        replaced_sets=replaced_sets,
        elements=elements,
        stale_elements=gone,
        stale_sets=tuple(name for name in old.sets if name not in after.sets),
        stale_chains=tuple(name for name in old.chains if name not in after.chains),
    )


def _chains_that_name(table: TableText, sets: Collection[str]) -> set[str]:
    if not sets:
        return set()
    names = {f"@{name}" for name in sets}
    return {chain for chain, rules in table.rules.items() if any(names & set(rule.split()) for rule in rules)}


def plan_transactions(change: Change, rules_per_transaction: int = RULES_PER_TRANSACTION) -> list[str]:
    """The scripts of a change, deletions of chains left out, each one transaction, in the order in which they must be
    carried out."""
    early: list[str] = []
    new = {
        chain: rules
        for chain, rules in change.rules.items()
        if chain in change.chains and chain not in change.replaced_chains and not change.chains[chain]
    }
    if sum(map(len, new.values())) > SPLIT_ABOVE * rules_per_transaction:
        head = msgspec.structs.replace(
            change,
            rules={},
            elements={},
            stale_elements=(),
            stale_sets=(),
            stale_chains=(),
            # Base chains come with the rest: the first hook to see a packet is there when all is.
            chains={chain: d for chain, d in change.chains.items() if chain not in change.replaced_chains and not d},
            replaced_chains=frozenset(),
            sets={name: each for name, each in change.sets.items() if name not in change.replaced_sets},
            replaced_sets=frozenset(),
        )
        # A rule may name a set that is replaced only in the last transaction.
        late = {f"@{name}" for name in change.replaced_sets}
        movable = {c: rules for c, rules in new.items() if not late or not any(late & set(r.split()) for r in rules)}
        batches = _rule_batches(movable, rules_per_transaction)
        early = [_script(head), *(_script(Change(change.table, rules=each), fresh=each.keys()) for each in batches)]
        change = msgspec.structs.replace(
            change,
            create=None,
            chains={chain: d for chain, d in change.chains.items() if chain not in head.chains},
            rules={chain: rules for chain, rules in change.rules.items() if chain not in movable},
            sets={name: each for name, each in change.sets.items() if name not in head.sets},
        )
    script = _script(change, fresh=new.keys())
    return [*early, script] if script else early


def _rule_batches(rules: Mapping[str, tuple[str, ...]], size: int) -> Iterator[dict[str, tuple[str, ...]]]:
    batch: dict[str, tuple[str, ...]] = {}
    count = 0
    for chain, own in rules.items():
        if batch and count + len(own) > size:
            yield batch
            batch, count = {}, 0
        batch[chain] = own
        count += len(own)
    if batch:
        yield batch


def deletion_script(table: str, chains: Iterable[str]) -> str:
    """Deletes chains that nothing leads to; emptied first, since they may lead to one another."""
    names = list(chains)
    return "".join(
        [*(f"flush chain {table} {name}\n" for name in names), *(f"delete chain {table} {name}\n" for name in names)]
    )


def _script(change: Change, fresh: Collection[str] = ()) -> str:
    """One transaction. `fresh`: chains that have no rules yet."""
    table = change.table
    lines: list[str] = []
    if change.create is not None:
        lines.append(f"add table {table} {change.create}".rstrip())
    for chain in sorted(change.replaced_chains):
        lines += [f"flush chain {table} {chain}", f"delete chain {table} {chain}"]
    lines += [f"add chain {table} {chain} {text}".rstrip() for chain, text in change.chains.items()]
    lines += [
        f"flush chain {table} {chain}"
        for chain in (*change.rules, *change.stale_chains)
        if chain not in change.chains and chain not in fresh
    ]
    lines += _element_lines("delete", table, ((ref, ref[1]) for ref in change.stale_elements))
    # `delete set` deletes maps too.
    lines += [f"delete set {table} {name}" for name in (*change.stale_sets, *sorted(change.replaced_sets))]
    lines += [f"add {each.kind} {table} {name} {each.definition}".rstrip() for name, each in change.sets.items()]
    for chain, rules in change.rules.items():
        lines += _rule_lines(table, chain, rules)
    lines += _element_lines("add", table, ((ref, element_text(ref[1], v)) for ref, v in change.elements.items()))
    return "".join(f"{line}\n" for line in lines)


def _rule_lines(table: str, chain: str, rules: Sequence[str]) -> Iterator[str]:
    """Rules at the end of a chain that is there.

    For `add rule` nft first reads every set of the table, those written in rules included: 25 ms with 5000 Services.
    For a chain with its rules in braces it does not, so it would not find a set that they name either.
    """
    if any("@" in rule for rule in rules):
        yield from (f"add rule {table} {chain} {rule}" for rule in rules)
    elif rules:
        yield f"add chain {table} {chain} {{"
        yield from rules
        yield "}"


def _element_lines(verb: str, table: str, elements: Iterable[tuple[ElementRef, str]]) -> Iterator[str]:
    for name, own in groupby(sorted(elements), lambda each: each[0][0]):
        texts = [text for _, text in own]
        for start in range(0, len(texts), ELEMENTS_PER_LINE):
            some = ", ".join(texts[start : start + ELEMENTS_PER_LINE])
            yield f"{verb} element {table} {name} {{ {some} }}"


class TableDifference(msgspec.Struct, frozen=True):
    """How the kernel differs from the desired table; false if it does not.

    Attributes:
        before: what the kernel holds, spelled as the desired table; None if there is no table.
        kept: chains that should go but stay, since another program's rules lead to them.
        foreign: what else is in the table.
    """

    before: TableText | None
    change: Change
    kept: tuple[str, ...] = ()
    foreign: tuple[str, ...] = ()

    def __bool__(self) -> bool:
        return bool(self.change)

    def after(self, woken: bool) -> TableDifference:
        """The same, of a table that was dormant before."""
        if not woken:
            return self
        return msgspec.structs.replace(self, change=msgspec.structs.replace(self.change, wake=True))


def describe_change(change: Change) -> str:
    """A change in a few words, for messages; "" if it is none."""
    parts = []
    if change.create is not None:
        parts.append("there is no table")
    if change.wake:
        parts.append("the table was dormant")
    for what, names in (
        ("chains other than wanted", [*change.rules, *(name for name in change.chains if name not in change.rules)]),
        ("chains too many", change.stale_chains),
        ("sets or maps other than wanted", change.sets),
        ("sets or maps too many", change.stale_sets),
        ("elements missing or altered", [f"{name} {{ {key} }}" for name, key in change.elements]),
        (
            "elements too many",
            [f"{ref[0]} {{ {ref[1]} }}" for ref in change.stale_elements if ref not in change.elements],
        ),
    ):
        if names:
            parts.append(f"{len(names)} {what} ({listed(list(names), 5)})")
    return "; ".join(parts)
