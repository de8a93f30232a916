"""Plans: what to hand to iptables-restore, in which batches, and what to delete.

A plan is a sequence of batches, each the text of one restore of one table (`iptables-restore --noflush`). A kernel that
has carried out any prefix of them treats every packet by the old or by the new state of its service:

1. refusals: filter chains that gain rules, with the rules they lose still in them. A refusal names an address that nat
   rules rewrite as long as they serve it, so it has no effect before they stop;
2. base chains that service chains jump to;
3. chains of ServicePorts, whole ServicePorts to a batch: endpoint chains first, then service chains, then external and
   firewall chains. Nothing jumps to new chains yet, and a batch is one transaction, so changed ones switch at once;
4. the dispatch chains of the nat table, which make the new chains live;
5. filter chains that lose rules, as they should be in the end: only now is every address served that was refused;
6. deletions of chains that nothing jumps to any more.

Batches are small because iptables-nft takes time quadratic in the number of chains in one restore.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

import msgspec

from kproxy.render.chains import FILTER, MARK_MASQ, NAT, POSTROUTING
from kproxy.render.serviceport import DISPATCH, Place
from kproxy.services.names import ServicePortName

CHAINS_PER_BATCH = 500
"""Measured with iptables-nft 1.8.9: more is slower per chain, fewer costs more restores."""

_LEAF_BASE = ((NAT, MARK_MASQ), (NAT, POSTROUTING))
_HEIGHT = {"KUBE-SEP-": 0, "KUBE-SVC-": 1, "KUBE-SVL-": 1, "KUBE-EXT-": 2, "KUBE-FW-": 3}
"""Chains jump only to chains of a lower height."""


def height(chain: str) -> int:
    """How far a ServicePort's chain is from the leaves of the jump graph."""
    return _HEIGHT[chain[: chain.index("-", 5) + 1]]


def deletion_order(chains: Iterable[str]) -> tuple[str, ...]:
    """Chains in an order in which each can be deleted once those before it are gone."""
    return tuple(sorted(chains, key=lambda chain: (-height(chain), chain)))


class Batch(msgspec.Struct, frozen=True):
    """One restore of one table.

    Attributes:
        table: nat or filter.
        chains: the new rules (restore lines, each ended by a newline) of each chain, which replace its old ones.
        deletions: chains to delete.
        purpose: what the batch does, for people.
    """

    table: str
    chains: Mapping[str, str]
    deletions: tuple[str, ...] = ()
    purpose: str = ""

    @property
    def text(self) -> str:
        """Input for `iptables-restore --noflush`."""
        return "".join(_table_text(self.table, self.chains, self.deletions))


class Plan(msgspec.Struct, frozen=True):
    """What brings the kernel from the last planned state, or from any state, to the wanted one.

    Attributes:
        full: whether every chain is written, whatever was planned before.
        base: changed chains that no ServicePort adds to, and changed dispatch chains.
        service_ports: changed chains of each touched ServicePort.
        deletions: nat chains that are no longer wanted, in an order in which they can go.
        previous: what the chains of `base` held before, as far as that is known.
    """

    full: bool
    base: Mapping[Place, str]
    service_ports: Mapping[ServicePortName, Mapping[str, str]]
    deletions: tuple[str, ...] = ()
    previous: Mapping[Place, str] = {}

    def __bool__(self) -> bool:
        return bool(self.base or self.deletions or any(self.service_ports.values()))

    @property
    def chain_count(self) -> int:
        """How many chains are written."""
        return len(self.base) + sum(len(chains) for chains in self.service_ports.values())

    @property
    def restore_text(self) -> str:
        """The whole plan as one text, laid out as kube-proxy does: the filter table, then the nat table."""
        nat = {place[1]: text for place, text in self.base.items() if place[0] == NAT}
        for chains in self.service_ports.values():
            nat.update(chains)
        tables = {FILTER: {place[1]: text for place, text in self.base.items() if place[0] == FILTER}, NAT: nat}
        parts: list[str] = []
        for table, chains in tables.items():
            deletions = self.deletions if table == NAT else ()
            if chains or deletions:
                parts.extend(_table_text(table, chains, deletions))
        return "".join(parts)

    def batches(self, chains_per_batch: int = CHAINS_PER_BATCH) -> Iterator[Batch]:
        """The plan as batches in the order in which they must be carried out."""
        refusals, wanted = self._filter_chains()
        leaves = {place[1]: text for place, text in self.base.items() if place in _LEAF_BASE}
        dispatch = {place[1]: text for place, text in self.base.items() if place[0] == NAT and place in DISPATCH}
        if refusals:
            yield Batch(FILTER, refusals, purpose="refusals")
        if leaves:
            yield Batch(NAT, leaves, purpose="base chains")
        yield from self._service_port_batches(chains_per_batch)
        if dispatch:
            yield Batch(NAT, dispatch, purpose="dispatch chains")
        if wanted:
            yield Batch(FILTER, wanted, purpose="filter chains")
        for start in range(0, len(self.deletions), chains_per_batch):
            yield Batch(NAT, {}, self.deletions[start : start + chains_per_batch], purpose="deletions")

    def _filter_chains(self) -> tuple[dict[str, str], dict[str, str]]:
        """The filter chains to write before the nat table changes, and those to write after."""
        before: dict[str, str] = {}
        after: dict[str, str] = {}
        for place, text in self.base.items():
            if place[0] != FILTER:
                continue
            new = text.splitlines(keepends=True)
            old = self.previous.get(place, "").splitlines(keepends=True)
            kept = set(new)
            lost = [line for line in old if line not in kept]
            if not set(new) <= set(old) or not lost:
                before[place[1]] = text + "".join(lost)
            if lost:
                after[place[1]] = text
        return before, after

    def _service_port_batches(self, chains_per_batch: int) -> Iterator[Batch]:
        group: list[tuple[str, str]] = []
        for chains in self.service_ports.values():
            if group and len(group) + len(chains) > chains_per_batch:
                yield _leaf_first(group)
                group = []
            group.extend(chains.items())
        if group:
            yield _leaf_first(group)


def _leaf_first(chains: list[tuple[str, str]]) -> Batch:
    ordered = sorted(chains, key=lambda item: height(item[0]))
    return Batch(NAT, dict(ordered), purpose="service chains")


def _table_text(table: str, chains: Mapping[str, str], deletions: Iterable[str]) -> Iterator[str]:
    yield f"*{table}\n"
    for chain in chains:
        yield f":{chain} - [0:0]\n"
    deletions = tuple(deletions)
    for chain in deletions:
        yield f":{chain} - [0:0]\n"
    yield from chains.values()
    for chain in deletions:
        yield f"-X {chain}\n"
    yield "COMMIT\n"
