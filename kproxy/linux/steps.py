"""Steps: what is handed to iptables-restore, in which order and how much at once.

A step is one table's transaction, a run is the steps of one iptables-restore process, which commits them one after
the other. After any prefix of the steps every packet meets the old or the new state of its service
(`kproxy.render.plan` has the argument): base chains that service chains jump to; chains of whole ServicePorts; the
filter table; the dispatch chains of the nat table with the jump rules, which make the new chains live; deletions.

How much at once was measured (iptables 1.8.9, 5000 services of 10 endpoints, 60,000 chains). iptables-nft takes time
quadratic in the chains of one transaction, and about 5 ms to start: batches of 200 chains, many to a process, take
    2.7 s,
of 500 chains 3.2 s, of 500 chains in a process each 3.1 s. iptables-legacy replaces the whole table with every
transaction, so there it is one for each table, whatever its size. Either way, less than a batch is one transaction for
each table, which is safest and fastest.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Final

import msgspec

from kproxy.linux.binaries import Variant
from kproxy.linux.canonical import Place
from kproxy.linux.jumps import JumpEdit
from kproxy.linux.owned import height, is_service_chain, target_of
from kproxy.render.chains import FILTER, MANGLE, MARK_MASQ, NAT, POSTROUTING

CHAINS_PER_STEP: Final = 200
STEPS_PER_RUN: Final = 25

_LEAVES: Final = (MARK_MASQ, POSTROUTING)


class Step(msgspec.Struct, frozen=True):
    """One transaction of one table."""

    table: str
    purpose: str
    chains: Mapping[str, str] = {}
    deletions: tuple[str, ...] = ()
    edits: tuple[JumpEdit, ...] = ()

    @property
    def text(self) -> str:
        """Input for `iptables-restore --noflush --counters`."""
        return "".join(
            (
                f"*{self.table}\n",
                *(f":{chain} - [0:0]\n" for chain in self.chains),
                *(f":{chain} - [0:0]\n" for chain in self.deletions),
                *self.chains.values(),
                *(edit.text for edit in self.edits),
                *(f"-X {chain}\n" for chain in self.deletions),
                "COMMIT\n",
            )
        )


class Change(msgspec.Struct, frozen=True):
    """Everything to be written.

    Attributes:
        writes: restore lines of each chain to write.
        deletions: chains to delete.
        edits: edits of built-in chains.
        groups: which of the chains of `writes` must change together: a key for each; chains without one are grouped by
            the jumps between them.
    """

    writes: Mapping[Place, str]
    deletions: Sequence[Place] = ()
    edits: Sequence[JumpEdit] = ()
    groups: Mapping[str, object] = {}


def plan_runs(change: Change, variant: Variant) -> list[list[Step]]:
    """Orders a change into steps, and the steps into runs."""
    count = len(change.writes) + len(change.deletions)
    if variant is Variant.LEGACY or count <= CHAINS_PER_STEP:
        steps = list(_whole_tables(change))
        return [steps] if steps else []
    steps = list(_stepwise(change))
    return [steps[start : start + STEPS_PER_RUN] for start in range(0, len(steps), STEPS_PER_RUN)]


def run_text(steps: Iterable[Step]) -> str:
    """The input of one iptables-restore process."""
    return "".join(step.text for step in steps)


def _whole_tables(change: Change) -> Iterator[Step]:
    tables = {
        *(place[0] for place in change.writes),
        *(place[0] for place in change.deletions),
        *(edit.table for edit in change.edits),
    }
    for table in sorted(tables, key=_table_order):
        yield Step(
            table,
            f"table {table}",
            {place[1]: text for place, text in change.writes.items() if place[0] == table},
            tuple(place[1] for place in change.deletions if place[0] == table),
            tuple(edit for edit in change.edits if edit.table == table),
        )


def _stepwise(change: Change) -> Iterator[Step]:
    nat = {place[1]: text for place, text in change.writes.items() if place[0] == NAT}
    service_chains = {chain: text for chain, text in nat.items() if is_service_chain(chain)}
    leaves = {chain: text for chain, text in nat.items() if chain in _LEAVES}
    rest = {chain: text for chain, text in nat.items() if chain not in service_chains and chain not in leaves}
    if leaves:
        yield Step(NAT, "base chains", leaves)
    for chains in _batches(_grouped(service_chains, change.groups), CHAINS_PER_STEP):
        yield Step(NAT, "service chains", dict(sorted(chains.items(), key=lambda item: height(item[0]))))
    others = Change(
        {place: text for place, text in change.writes.items() if place[0] != NAT}
        | {(NAT, chain): text for chain, text in rest.items()},
        (),
        change.edits,
    )
    for step in _whole_tables(others):
        yield msgspec.structs.replace(step, purpose="dispatch chains and jumps" if step.table == NAT else step.purpose)
    for table in (FILTER, NAT, MANGLE):
        doomed = sorted((chain for name, chain in change.deletions if name == table), key=lambda c: (-height(c), c))
        for start in range(0, len(doomed), CHAINS_PER_STEP):
            yield Step(table, "deletions", {}, tuple(doomed[start : start + CHAINS_PER_STEP]))


def _table_order(table: str) -> tuple[int, str]:
    return ((FILTER, NAT, MANGLE).index(table) if table in (FILTER, NAT, MANGLE) else 3, table)


def _grouped(chains: Mapping[str, str], groups: Mapping[str, object]) -> Iterator[dict[str, str]]:
    """The chains of each ServicePort together, in the order in which they are first met."""
    leader = _leaders({chain: text for chain, text in chains.items() if chain not in groups})
    found: dict[object, dict[str, str]] = {}
    for chain, text in chains.items():
        found.setdefault(groups[chain] if chain in groups else leader[chain], {})[chain] = text
    yield from found.values()


def _leaders(chains: Mapping[str, str]) -> dict[str, str]:
    """One chain to stand for each set of chains that jumps connect (union-find)."""
    leader = {chain: chain for chain in chains}

    def find(chain: str) -> str:
        while leader[chain] != chain:
            leader[chain] = leader[leader[chain]]
            chain = leader[chain]
        return chain

    for chain, text in chains.items():
        for line in text.splitlines():
            target = target_of(line)
            if target in leader:
                leader[find(target)] = find(chain)
    return {chain: find(chain) for chain in chains}


def _batches(groups: Iterable[dict[str, str]], size: int) -> Iterator[dict[str, str]]:
    batch: dict[str, str] = {}
    for group in groups:
        if batch and len(batch) + len(group) > size:
            yield batch
            batch = {}
        batch.update(group)
    if batch:
        yield batch
