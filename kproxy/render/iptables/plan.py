"""Plans: what to hand to iptables-restore, in which batches, and what to delete.

Whatever is written, rules that changed in the cluster, what drifted in the kernel, or what is being put back after a
failure, is a `Change`, and `order_batches` is the one place that decides its order. A batch is one transaction of one
table. A kernel that has carried out any prefix of the batches treats every packet by the old or by the new state of its
Service:

1. refusals: filter chains that gain rules, with the rules they lose still in them, and the jumps to them. A refusal
   names an address that nat rules rewrite as long as they serve it, so it has no effect before they stop;
2. base chains that service chains jump to;
3. chains of ServicePorts, whole ServicePorts to a batch: endpoint chains first, then service chains, then external and
   firewall chains. Nothing jumps to new chains yet, and a batch is one transaction, so changed ones switch at once;
4. the dispatch chains of the nat table and the jumps to them, which make the new chains live;
5. filter chains that lose rules, as they should be in the end: only now is every address served that was refused;
6. other tables, which hold nothing that decides;
7. deletions of chains that nothing jumps to any more.

Where the nat table's part (2 to 4, and its deletions) is no more than one batch, it is one. Why batches at all, and of
which size, was measured with iptables 1.8.9, 5000 Services of 10 endpoints, 60,000 chains: iptables-nft takes time
quadratic in the chains of one transaction; batches of 200 chains, many to a process, take 2.7 s, batches of 500 take
3.2 s, a plain restore over 250 s. iptables-legacy replaces the whole table with every transaction, so there the nat
table is one batch whatever its size; its chains are sorted by name, because libiptc keeps them so and then spends 1.3 s
of processor time instead of 1.8 s on that cluster.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Final, Protocol

import msgspec

from kproxy.render.iptables.chains import FILTER, NAT
from kproxy.render.iptables.serviceport import ChainRef
from kproxy.services.names import ServicePortName

CHAINS_PER_BATCH: Final = 200

_HEIGHT: Final = {
    "KUBE-MARK-": -1,
    "KUBE-POSTROUTING": -1,
    "KUBE-SEP-": 0,
    "KUBE-SVC-": 1,
    "KUBE-SVL-": 1,
    "KUBE-EXT-": 2,
    "KUBE-XLB-": 2,
    "KUBE-FW-": 3,
}
_DISPATCH_HEIGHT: Final = 4


def height(chain: str) -> int:
    """How far a chain is from the leaves of the jump graph: chains jump only to chains of a lower height.

    -1 for base chains that others jump to, 0 to 3 for chains of one ServicePort (those of older releases included), 4
    for the rest.
    """
    return _HEIGHT.get(chain[: chain.find("-", 5) + 1] or chain, _DISPATCH_HEIGHT)


def deletion_order(chains: Iterable[str]) -> tuple[str, ...]:
    """Chains in an order in which each can be deleted once those before it are gone."""
    return tuple(sorted(chains, key=lambda chain: (-height(chain), chain)))


class Edit(Protocol):
    """An edit of a built-in chain, which holds rules of others too and is therefore never written as a whole."""

    @property
    def table(self) -> str:
        """Its table."""

    @property
    def text(self) -> str:
        """Lines of restore input."""

    @property
    def only_removes(self) -> bool:
        """Whether the change adds no rule."""


class Change(msgspec.Struct, frozen=True):
    """Everything to be written.

    Attributes:
        writes: the new rules (restore lines, each ended by a newline) of each chain to write, which replace its old
            ones.
        deletions: chains to delete.
        edits: edits of built-in chains.
        groups: which of the nat chains of `writes` must change together: a key for each, their ServicePort say.
        previous: what filter chains of `writes` hold now, as far as that is known, rules that stay in the spelling of
            `writes`.
    """

    writes: Mapping[ChainRef, str]
    deletions: Sequence[ChainRef] = ()
    edits: Sequence[Edit] = ()
    groups: Mapping[str, object] = {}
    previous: Mapping[ChainRef, str] = {}

    def __bool__(self) -> bool:
        return bool(self.writes or self.deletions or self.edits)


class Batch(msgspec.Struct, frozen=True):
    """One transaction of one table.

    Attributes:
        table: nat, filter or mangle.
        chains: the new rules of each chain.
        deletions: chains to delete.
        edits: edits of built-in chains.
        purpose: what the batch does, for people.
    """

    table: str
    chains: Mapping[str, str]
    deletions: tuple[str, ...] = ()
    edits: tuple[Edit, ...] = ()
    purpose: str = ""

    @property
    def text(self) -> str:
        """Input for `iptables-restore --noflush --counters`."""
        return "".join(
            (
                f"*{self.table}\n",
                *(f":{chain} - [0:0]\n" for chain in (*self.chains, *self.deletions)),
                *self.chains.values(),
                *(edit.text for edit in self.edits),
                *(f"-X {chain}\n" for chain in self.deletions),
                "COMMIT\n",
            )
        )

    def __bool__(self) -> bool:
        return bool(self.chains or self.deletions or self.edits)


class Plan(msgspec.Struct, frozen=True):
    """What brings the kernel from the last planned state, or from any state, to the desired one.

    Attributes:
        full: whether every chain is written, whatever was planned before.
        base: changed chains that no ServicePort adds to, and changed dispatch chains.
        service_ports: changed chains of each touched ServicePort.
        deletions: nat chains that are no longer needed, in an order in which they can go.
        previous: what the chains of `base` held before, as far as that is known.
    """

    full: bool
    base: Mapping[ChainRef, str]
    service_ports: Mapping[ServicePortName, Mapping[str, str]]
    deletions: tuple[str, ...] = ()
    previous: Mapping[ChainRef, str] = {}

    def __bool__(self) -> bool:
        return bool(self.base or self.deletions or any(self.service_ports.values()))

    @property
    def restore_text(self) -> str:
        """The whole plan as one text, laid out as kube-proxy does: the filter table, then the nat table."""
        nat = {ref[1]: text for ref, text in self.base.items() if ref[0] == NAT}
        for chains in self.service_ports.values():
            nat.update(chains)
        tables = (
            Batch(FILTER, {ref[1]: text for ref, text in self.base.items() if ref[0] == FILTER}),
            Batch(NAT, nat, self.deletions),
        )
        return "".join(table.text for table in tables if table)

    @property
    def change(self) -> Change:
        """The plan as something to write."""
        writes: dict[ChainRef, str] = {}
        groups: dict[str, object] = {}
        for name, chains in self.service_ports.items():
            for chain, text in chains.items():
                writes[(NAT, chain)] = text
                groups[chain] = name
        writes.update(self.base)
        return Change(writes, [(NAT, chain) for chain in self.deletions], (), groups, self.previous)

    def batches(self, chains_per_batch: int | None = CHAINS_PER_BATCH) -> Iterator[Batch]:
        """The plan as batches in the order in which they must be carried out."""
        return order_batches(self.change, chains_per_batch)


def order_batches(change: Change, chains_per_batch: int | None = CHAINS_PER_BATCH) -> Iterator[Batch]:
    """A change as batches in the order in which they must be carried out.

    Args:
        chains_per_batch: None if the nat table shall be one batch whatever its size.
    """
    refusals, others_of_filter = _filter_chains(change)
    doomed: dict[str, list[str]] = {}
    for table, chain in change.deletions:
        doomed.setdefault(table, []).append(chain)
    # A jump that goes takes refusals with it, one that comes makes them live.
    early = tuple(edit for edit in change.edits if edit.table == FILTER and not edit.only_removes)
    late = tuple(edit for edit in change.edits if edit.table == FILTER and edit.only_removes)
    nat, nat_deletions = _nat_batches(change, deletion_order(doomed.pop(NAT, ())), chains_per_batch)
    batches = [
        Batch(FILTER, refusals, (), early, "refusals"),
        *nat,
        Batch(FILTER, others_of_filter, deletion_order(doomed.pop(FILTER, ())), late, "filter chains"),
    ]
    others = dict.fromkeys([*(table for table, _ in change.writes), *doomed, *(edit.table for edit in change.edits)])
    for table in sorted(others.keys() - {FILTER, NAT}):
        chains = {chain: text for (where, chain), text in change.writes.items() if where == table}
        edits = tuple(edit for edit in change.edits if edit.table == table)
        batches.append(Batch(table, chains, deletion_order(doomed.get(table, ())), edits, f"table {table}"))
    return (batch for batch in (*batches, *nat_deletions) if batch)


def _filter_chains(change: Change) -> tuple[dict[str, str], dict[str, str]]:
    """The filter chains to write before the nat table changes, and those to write after."""
    before: dict[str, str] = {}
    after: dict[str, str] = {}
    for ref, text in change.writes.items():
        if ref[0] != FILTER:
            continue
        new = text.splitlines(keepends=True)
        old = change.previous.get(ref, "").splitlines(keepends=True)
        kept = set(new)
        lost = [line for line in old if line not in kept]
        if not set(new) <= set(old) or not lost:
            before[ref[1]] = text + "".join(lost)
        if lost:
            after[ref[1]] = text
    return before, after


def _nat_batches(
    change: Change, deletions: tuple[str, ...], chains_per_batch: int | None
) -> tuple[list[Batch], list[Batch]]:
    """The batches of the nat table, and those of its deletions that are not in them."""
    chains = {chain: text for (table, chain), text in change.writes.items() if table == NAT}
    edits = tuple(edit for edit in change.edits if edit.table == NAT)
    if chains_per_batch is None:
        chains = dict(sorted(chains.items()))
    if chains_per_batch is None or len(chains) + len(deletions) <= chains_per_batch:
        return [Batch(NAT, chains, deletions, edits, "nat chains")], []
    heights = {chain: height(chain) for chain in chains}
    leaves = {chain: text for chain, text in chains.items() if heights[chain] < 0}
    own = {chain: text for chain, text in chains.items() if 0 <= heights[chain] < _DISPATCH_HEIGHT}
    dispatch = {chain: text for chain, text in chains.items() if heights[chain] >= _DISPATCH_HEIGHT}
    return [
        Batch(NAT, leaves, purpose="base chains"),
        *_service_port_batches(own, change.groups, chains_per_batch),
        Batch(NAT, dispatch, (), edits, "dispatch chains"),
    ], [
        Batch(NAT, {}, deletions[start : start + chains_per_batch], purpose="deletions")
        for start in range(0, len(deletions), chains_per_batch)
    ]


def _service_port_batches(
    chains: Mapping[str, str], groups: Mapping[str, object], chains_per_batch: int
) -> Iterator[Batch]:
    together: dict[object, list[str]] = {}
    for chain in chains:
        together.setdefault(groups.get(chain, chain), []).append(chain)
    batch: list[str] = []
    for names in together.values():
        if batch and len(batch) + len(names) > chains_per_batch:
            yield _leaf_first(chains, batch)
            batch = []
        batch += names
    if batch:
        yield _leaf_first(chains, batch)


def _leaf_first(chains: Mapping[str, str], names: list[str]) -> Batch:
    return Batch(NAT, {name: chains[name] for name in sorted(names, key=height)}, purpose="service chains")
