"""Reports: what an operation changed, per Service, and how long each step took. The JSON form is described in
docs/apply.md."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Final

import msgspec

from kproxy.linux.iptables.canonical import ChainRef
from kproxy.linux.iptables.ownership import services_of_chains
from kproxy.linux.sync.desired import DesiredRules
from kproxy.linux.sync.difference import Difference
from kproxy.linux.sync.jumps import JumpFault
from kproxy.netfilter.text import SaveText, service_of
from kproxy.render.iptables.chains import NAT

Progress = Callable[[str, int, int], None]
"""Called with what is going on, and how many steps of how many are done."""

APPLIED: Final = "applied"
NOTHING: Final = "nothing to do"
WOULD_CHANGE: Final = "would change"


class StepTime(msgspec.Struct, frozen=True):
    """How long a step took, in seconds."""

    step: str
    seconds: float


class ServiceChange(msgspec.Struct, frozen=True, rename="camel"):
    """What changed for one port of a Service.

    Attributes:
        service: `namespace/name[:port]`; "" for rules that belong to no Service.
        change: added, changed or removed.
        chains_written, chains_deleted, rules_added, rules_removed: how much; a rule that was altered counts as one
            removed and one added.
    """

    service: str
    change: str
    chains_written: int
    chains_deleted: int
    rules_added: int
    rules_removed: int


class KeptChain(msgspec.Struct, frozen=True, rename="camel"):
    """A chain that should have gone but stays, because rules of another chain lead to it."""

    table: str
    chain: str
    referred_to_by: str


class CleanedTables(msgspec.Struct, frozen=True, rename="camel"):
    """What was removed from one family and variant; the variant `nftables` stands for the table of nftables mode.

    Attributes:
        sets_deleted: sets and maps of nftables mode.
        foreign: what others have in the table of nftables mode; it stays.
    """

    family: str
    variant: str
    chains_deleted: int = 0
    rules_deleted: int = 0
    jumps_deleted: int = 0
    kept: tuple[KeptChain, ...] = ()
    sets_deleted: int = 0
    foreign: tuple[str, ...] = ()


class FamilyReport(msgspec.Struct, frozen=True, rename="camel"):
    """What was done for one family.

    Attributes:
        result: `applied`, `nothing to do`, or `would change` in a dry run.
        iptables: version and variant.
        transactions: how many table transactions were carried out; `processes`, by how many iptables-restore.
        jumps: what was wrong with the jump rules.
    """

    family: str
    variant: str
    iptables: str
    result: str
    chains_written: int = 0
    chains_created: int = 0
    chains_deleted: int = 0
    transactions: int = 0
    processes: int = 0
    services: tuple[ServiceChange, ...] = ()
    jumps: tuple[JumpFault, ...] = ()
    kept: tuple[KeptChain, ...] = ()
    steps: tuple[StepTime, ...] = ()
    notes: tuple[str, ...] = ()


class Stopwatch:
    """Collects how long steps take."""

    def __init__(self) -> None:
        self.times: list[StepTime] = []

    @contextmanager
    def step(self, name: str) -> Iterator[None]:
        """Times what happens inside."""
        start = time.perf_counter()
        try:
            yield
        finally:
            self.times.append(StepTime(name, round(time.perf_counter() - start, 6)))


class _Tally:
    def __init__(self) -> None:
        self.written = self.deleted = self.added = self.removed = 0


def service_changes(desired: DesiredRules, before: SaveText, difference: Difference) -> tuple[ServiceChange, ...]:
    """What a difference means for each Service, sorted by name."""
    tallies: dict[str, _Tally] = {}
    old_names: dict[str, str] | None = None

    def tally(name: str) -> _Tally:
        return tallies.setdefault(name, _Tally())

    for ref, text in difference.writes.items():
        owner = desired.owners.get(ref[1]) if ref[0] == NAT else None
        chain = before.chain(*ref)
        added, removed = _rule_changes(desired, ref, text, chain.rules if chain else [])
        if owner is not None:
            mine = tally(str(owner))
            mine.written += 1
            mine.added += sum(added.values())
            mine.removed += sum(removed.values())
            continue
        tally("").written += 1
        for rule, count in added.items():
            tally(service_of(rule)).added += count
        for rule, count in removed.items():
            tally(service_of(rule)).removed += count
    for ref in difference.deletions:
        if old_names is None:
            old_names = services_of_chains(before)
        chain = before.chain(*ref)
        mine = tally(old_names.get(ref[1], ""))
        mine.deleted += 1
        mine.removed += len(chain.rules) if chain else 0
    there = set(map(str, desired.owners.values()))
    return tuple(
        ServiceChange(name, _change(name, mine, there), mine.written, mine.deleted, mine.added, mine.removed)
        for name, mine in sorted(tallies.items())
        if mine.deleted or mine.added or mine.removed or (name and mine.written)
    )


def _change(name: str, tally: _Tally, there: set[str]) -> str:
    if not name:
        return "changed"
    if tally.removed == 0 and tally.deleted == 0 and tally.added:
        return "added"
    return "removed" if name not in there and not tally.added else "changed"


def _rule_changes(
    desired: DesiredRules, ref: ChainRef, text: str, real: list[str]
) -> tuple[Mapping[str, int], Mapping[str, int]]:
    if not real:
        if ref[1].startswith(("KUBE-SEP-", "KUBE-SVC-")):  # only their number counts
            return {"": text.count("\n")}, {}
        return Counter(text.splitlines()), {}
    new, old = Counter(desired.rules(ref)), Counter(real)
    return new - old, old - new


def kept_chains(difference: Difference) -> tuple[KeptChain, ...]:
    """The chains that had to stay."""
    return tuple(KeptChain(*ref, by) for ref, by in difference.kept.items())
