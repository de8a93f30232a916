"""Plans: what to hand to iptables-restore, in which batches, and what to delete.

A plan is a sequence of batches, each the text of one restore of one table (`iptables-restore --noflush`). A kernel
that has carried out any prefix of them treats every packet by the old or by the new state of its service, never by a
mixture:

1. base chains that service chains jump to;
2. chains of ServicePorts, whole ServicePorts to a batch: endpoint chains first, then service chains, then external and
   firewall chains. Nothing jumps to new chains yet, and a batch is one transaction, so changed ones switch at once;
3. the filter table, then the dispatch chains of the nat table, which make the new chains live;
4. deletions of chains that nothing jumps to any more.

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
    """

    full: bool
    base: Mapping[Place, str]
    service_ports: Mapping[ServicePortName, Mapping[str, str]]
    deletions: tuple[str, ...] = ()

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
        leaves = {place[1]: text for place, text in self.base.items() if place in _LEAF_BASE}
        if leaves:
            yield Batch(NAT, leaves, purpose="base chains")
        yield from self._service_port_batches(chains_per_batch)
        filter_chains = {place[1]: text for place, text in self.base.items() if place[0] == FILTER}
        if filter_chains:
            yield Batch(FILTER, filter_chains, purpose="filter chains")
        dispatch = {place[1]: text for place, text in self.base.items() if place[0] == NAT and place in DISPATCH}
        if dispatch:
            yield Batch(NAT, dispatch, purpose="dispatch chains")
        for start in range(0, len(self.deletions), chains_per_batch):
            yield Batch(NAT, {}, self.deletions[start : start + chains_per_batch], purpose="deletions")

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
