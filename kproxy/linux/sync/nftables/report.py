"""Reports in nftables mode: what a change of the table means for each Service. The JSON form is in docs/apply.md."""

from __future__ import annotations

from collections import Counter

from kproxy.linux.nftables.change import Change
from kproxy.linux.nftables.table import TableText
from kproxy.linux.sync.nftables.desired import DesiredTable, ElementOwners
from kproxy.linux.sync.report import FamilyReport, ServiceChange


class TableReport(FamilyReport, frozen=True, rename="camel"):
    """What was done for one family in nftables mode.

    Attributes:
        elements_added, elements_deleted: of sets and maps.
        sets_written, sets_deleted: sets and maps.
        foreign: what else is in the table: `chain NAME`, say. It stays.
    """

    elements_added: int = 0
    elements_deleted: int = 0
    sets_written: int = 0
    sets_deleted: int = 0
    foreign: tuple[str, ...] = ()


class TableServiceChange(ServiceChange, frozen=True, rename="camel"):
    """What changed for one port of a Service; an element that was altered counts as one added and one removed."""

    elements_added: int = 0
    elements_removed: int = 0


class _Tally:
    def __init__(self) -> None:
        self.written = self.deleted = self.added = self.removed = self.elements_added = self.elements_removed = 0

    def change(self, is_there: bool) -> str:
        """In a word; `desired` says whether the Service is there now."""
        if not (self.removed or self.deleted or self.elements_removed):
            return "added"
        return "changed" if is_there or self.added or self.elements_added else "removed"


def table_service_changes(desired: DesiredTable, before: TableText | None, change: Change) -> tuple[ServiceChange, ...]:
    """What a change means for each Service, sorted by name; rules of no Service have the name ""."""
    old = before if before is not None else TableText(change.table)
    tallies: dict[str, _Tally] = {}

    def tally(name: str) -> _Tally:
        return tallies.setdefault(name, _Tally())

    for chain, rules in change.rules.items():
        mine = tally(desired.owner_of_chain(chain))
        mine.written += 1
        new, real = Counter(rules), Counter(old.rules.get(chain, ()))
        mine.added += sum((new - real).values())
        mine.removed += sum((real - new).values())
    for chain in change.stale_chains:
        mine = tally(desired.owner_of_chain(chain))
        mine.deleted += 1
        mine.removed += len(old.rules.get(chain, ()))
    owners = ElementOwners(desired, (desired.text, old))
    for ref, value in change.elements.items():
        tally(owners.owner(ref, value)).elements_added += 1
    for ref in change.stale_elements:
        tally(owners.owner(ref, old.elements[ref])).elements_removed += 1
    there = {desired.owner_of_chain(chain) for chain in desired.text.chains}
    there |= {owners.owner(ref, value) for ref, value in desired.text.elements.items()}
    return tuple(
        TableServiceChange(
            name,
            mine.change(name in there) if name else "changed",
            mine.written,
            mine.deleted,
            mine.added,
            mine.removed,
            mine.elements_added,
            mine.elements_removed,
        )
        for name, mine in sorted(tallies.items())
    )
