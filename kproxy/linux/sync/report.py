"""Reports: what an operation changed, per Service, and how long each step took. The JSON form is described in
docs/apply.md."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from typing import Final

import msgspec

Progress = Callable[[str, int, int], None]
"""Called with what is going on, and how many steps of how many are done."""

APPLIED: Final = "applied"
NOTHING: Final = "nothing to do"
WOULD_CHANGE: Final = "would change"

_COUNTS: Final = ("chains_written", "chains_deleted", "rules_added", "rules_removed")
_ELEMENTS: Final = ("elements_added", "elements_removed")


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
        elements_added, elements_removed: of sets and maps, in nftables mode; altered ones count as both.
    """

    service: str
    change: str
    chains_written: int
    chains_deleted: int
    rules_added: int
    rules_removed: int
    elements_added: int | msgspec.UnsetType = msgspec.UNSET
    elements_removed: int | msgspec.UnsetType = msgspec.UNSET


class KeptChain(msgspec.Struct, frozen=True, rename="camel"):
    """A chain that should have gone but stays, because rules of another chain lead to it."""

    table: str
    chain: str
    referred_to_by: str


class JumpFault(msgspec.Struct, frozen=True):
    """What is wrong with one jump rule: missing, duplicated, misplaced or extra."""

    table: str
    chain: str
    kind: str
    rule: str


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
        elements_added, elements_deleted, sets_written, sets_deleted: of sets and maps, in nftables mode.
        foreign: what else is in the table of nftables mode: `chain NAME`, say. It stays.
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
    elements_added: int | msgspec.UnsetType = msgspec.UNSET
    elements_deleted: int | msgspec.UnsetType = msgspec.UNSET
    sets_written: int | msgspec.UnsetType = msgspec.UNSET
    sets_deleted: int | msgspec.UnsetType = msgspec.UNSET
    foreign: tuple[str, ...] | msgspec.UnsetType = msgspec.UNSET


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


class Tallies(dict[str, Counter[str]]):
    """How much changes, by Service and by the names of `ServiceChange`; rules of no Service have the name ""."""

    def __missing__(self, name: str) -> Counter[str]:
        return self.setdefault(name, Counter())

    def changes(self, there: Collection[str], *, elements: bool = False) -> tuple[ServiceChange, ...]:
        """Those that change, sorted by name.

        Args:
            there: the Services that are wanted.
            elements: whether elements are told, too.
        """
        found = []
        names = _COUNTS + (_ELEMENTS if elements else ())
        for name, tally in sorted(self.items()):
            come = tally["rules_added"] + tally["elements_added"]
            gone = tally["rules_removed"] + tally["chains_deleted"] + tally["elements_removed"]
            change = "changed"
            if name and come and not gone:
                change = "added"
            elif name and not come and name not in there:
                change = "removed"
            if come or gone or (name and tally["chains_written"]):
                found.append(ServiceChange(name, change, **{each: tally[each] for each in names}))
        return tuple(found)
