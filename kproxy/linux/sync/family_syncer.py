"""What keeps one family's rules in the kernel up with a changing cluster, in either mode, and the report of a sync.

`apply` reads the kernel, which takes as long as it has rules; a syncer knows what it wrote last, so a changed
EndpointSlice costs rendering one ServicePort and one short write. Its user calls `resync` now and then, and after every
failure the next `sync` is one.

Connection tracking entries are cleaned after the rules are right: at the first sync too, since the process that wrote
the rules may have been killed before it cleaned up. What could not be cleaned is kept and tried again with the next
sync; it does not make the sync fail, since new connections follow the rules. With the check that follows, what was
cleaned is looked through once more: a packet of this host's own that was preempted between two hooks, on a kernel that
preempts, gets its entry by the old rules after any wait.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor, wait
from typing import Final

import msgspec

from kproxy.cluster.stale_flows import Addresses, StaleFlow, desired_addresses, merge_addresses, previous_addresses
from kproxy.linux.conntrack.flows import PROTOCOLS, clean_flows
from kproxy.linux.errors import LinuxError
from kproxy.linux.namespace import Namespace
from kproxy.linux.sync.report import StepTime, Stopwatch
from kproxy.render import RenderedTable, RenderedTarget, RenderOptions
from kproxy.services import Changes, IPFamily, ServicePortName, ServiceState

NO_ADDRESSES: Final = Addresses({}, {}, frozenset())


class FlowCleaner:
    """Deletes the stale entries of one family; without a namespace, nothing.

    Invariants: `_before` is where traffic was sent to by rules that were replaced and whose flows are not cleaned yet,
    `_cleaned` where it was before the clean-ups since the last check.
    """

    def __init__(self, namespace: Namespace | None, family: IPFamily, state: ServiceState) -> None:
        self.namespace = namespace
        self._family = family
        self._state = state
        self._before: Addresses | None = None
        self._cleaned: Addresses | None = None

    @property
    def waits(self) -> bool:
        """Whether there is something to clean up after."""
        return self._before is not None

    @property
    def may_have_missed(self) -> bool:
        """Whether there were clean-ups since the last check."""
        return self._cleaned is not None

    def remember(self, before: Addresses) -> None:
        """Rules that sent traffic there are being replaced."""
        if self.namespace is None or not (before.services or before.all_endpoints):
            return
        self._before = before if self._before is None else merge_addresses(self._before, before)

    def clean(self, notes: list[str], desired: bool) -> list[StaleFlow]:
        """Deletes what went stale, if rules for UDP or SCTP changed now or since the last time that succeeded."""
        if self.namespace is None or not (desired or self._before is not None):
            return []
        before = self._before or NO_ADDRESSES
        cleaned = before if self._cleaned is None else merge_addresses(self._cleaned, before)
        try:
            flows = clean_flows(self.namespace, self._family, desired_addresses(self._state), before)
        except LinuxError as error:
            self._before = before
            notes.append(f"stale connection tracking entries were not all removed: {error}")
            return []
        self._before, self._cleaned = None, cleaned
        return flows

    def clean_again(self, notes: list[str]) -> list[StaleFlow]:
        """Deletes what a clean-up since the last check missed."""
        self._before, self._cleaned = merge_addresses(self._cleaned or NO_ADDRESSES, self._before or NO_ADDRESSES), None
        flows = self.clean(notes, True)
        self._cleaned = None
        return flows


_LOOK: Final = 0.02
"""Seconds after which a check looks again whether something is wanted."""


class _GaveWayError(Exception):
    """A check is given up, since something else is wanted."""


class SyncReport(msgspec.Struct, frozen=True):
    """What one sync did.

    Attributes:
        full: whether everything was rendered and compared with the kernel; otherwise only what changed was written.
        touched: the ServicePorts that the state says changed.
        chains_written, chains_deleted: how many.
        rules_written: how many rules were written, by table; rules of chains that were deleted are counted nowhere.
        elements_written: how many elements of sets and maps were added or deleted; in nftables mode.
        cleanup_failures: how often deleting stale chains failed, in nftables mode.
        found: with `full`, how the kernel differed, in a few words; "" if not at all.
        flows: the connection tracking entries that were deleted; without those of `other_rules_went`, and those that
            are deleted after a sync that failed.
        notes: what else went wrong, without making the sync fail.
        steps: how long each step took.
    """

    full: bool = False
    touched: frozenset[ServicePortName] = frozenset()
    chains_written: int = 0
    chains_deleted: int = 0
    rules_written: Mapping[str, int] = {}
    elements_written: int = 0
    cleanup_failures: int = 0
    found: str = ""
    flows: tuple[StaleFlow, ...] = ()
    notes: tuple[str, ...] = ()
    steps: tuple[StepTime, ...] = ()

    @property
    def wrote(self) -> bool:
        """Whether anything was written."""
        return bool(self.chains_written or self.chains_deleted or self.elements_written or self.found)

    def after(self, earlier: SyncReport) -> SyncReport:
        """The report of this sync and the one just before it as one: what both did, and how the kernel differed in
        between."""
        return SyncReport(
            full=self.full,
            touched=earlier.touched | self.touched,
            chains_written=earlier.chains_written + self.chains_written,
            chains_deleted=earlier.chains_deleted + self.chains_deleted,
            rules_written=Counter(earlier.rules_written) + Counter(self.rules_written),
            elements_written=earlier.elements_written + self.elements_written,
            cleanup_failures=earlier.cleanup_failures + self.cleanup_failures,
            found=self.found,
            flows=earlier.flows + self.flows,
            notes=earlier.notes + self.notes,
            steps=earlier.steps + self.steps,
        )


class FamilySyncer(ABC):
    """Writes the rules of one family: `sync` what changed, `resync` what the kernel has otherwise.

    Args:
        state: the ServicePorts and endpoints; its changes are applied by the syncs.
        namespace: where connection tracking entries that a change made stale are deleted; None leaves them alone.
    """

    def __init__(self, state: ServiceState, namespace: Namespace | None) -> None:
        self._state = state
        self._options: RenderOptions | None = None
        self._flows = FlowCleaner(namespace, state.family, state)
        self.needs_resync = True

    @property
    @abstractmethod
    def rendered_options(self) -> RenderOptions:
        """What the last rendering was made with."""

    @property
    @abstractmethod
    def fingerprint(self) -> Callable[[], object | None]:
        """Gives something that stays equal as long as nobody else writes rules; None if that is unknown."""

    @abstractmethod
    def rendered(self) -> RenderedTarget | RenderedTable:
        """The rules as they were wanted at the last sync, rendered anew."""

    @abstractmethod
    def rule_totals(self) -> dict[str, int]:
        """How many of kube-proxy's rules there are, by table."""

    def resync(self) -> SyncReport:
        """Renders everything, compares it with the kernel, and writes the difference.

        Raises:
            LinuxError: it cannot be read or written.
        """
        unknown, self.needs_resync = self.needs_resync, True
        watch, notes = Stopwatch(), list[str]()
        with watch.step("state"):
            changes = self._state.apply()
            self._flows.remember(previous_addresses(changes))
        report, before = self._write_all(watch, notes)
        self.needs_resync = False
        flows: list[StaleFlow] = []
        with watch.step("conntrack"):
            if unknown or report.found or self._flows.waits:
                self._flows.remember(before())
                flows = self._flows.clean(notes, True)
        return msgspec.structs.replace(
            report, full=True, touched=changes.touched, flows=tuple(flows), notes=tuple(notes), steps=tuple(watch.times)
        )

    @abstractmethod
    def _write_all(self, watch: Stopwatch, notes: list[str]) -> tuple[SyncReport, Callable[[], Addresses]]:
        """What `resync` does to the rules; also gives where they sent traffic before. Raises as it."""

    def is_right(self, before: Callable[[], None], wanted: Callable[[], bool]) -> bool | None:
        """Whether the kernel holds what was written last; False also if only `resync` can tell. Nothing is written.

        Reading and comparing many rules takes seconds, and a change does not wait for that.

        Args:
            before: called before the kernel is read, in a thread of its own.
            wanted: whether something else is to be done by now: then it gives way, and returns None.

        Raises:
            LinuxError: it cannot be read.
        """
        if self.needs_resync or self._options is not None or self._flows.waits:
            return False

        def read() -> str | None:
            before()
            return self._read()

        def give_way() -> None:
            if wanted():
                raise _GaveWayError

        reading = ThreadPoolExecutor(1)
        try:
            text = reading.submit(read)
            is_as_wanted = self._comparison(give_way)
            while not text.done():
                give_way()
                wait([text], timeout=_LOOK)
            give_way()
            return is_as_wanted(text.result())
        except _GaveWayError:
            return None
        finally:
            reading.shutdown(wait=False)  # what it reads is not needed any more

    @abstractmethod
    def _read(self) -> str | None:
        """What the kernel holds. Raises LinuxError: it cannot be read."""

    @abstractmethod
    def _comparison(self, give_way: Callable[[], None]) -> Callable[[str | None], bool]:
        """What tells whether what was read is as it was written last. Both call `give_way` now and then, which raises
        if something else is wanted."""

    def sync(self, *, check: bool = False) -> SyncReport:
        """Takes the changes that the state has gathered since, and writes what they change.

        Args:
            check: look once more for flows of what was cleaned up since the last check.

        Raises:
            LinuxError: it could not be written; the next `sync` is a `resync`.
        """
        if self.needs_resync:
            return self.resync()
        watch, notes = Stopwatch(), list[str]()
        with watch.step("state"):
            changes = self._state.apply()
        # From here on what is rendered is ahead of the kernel, until it is written.
        self.needs_resync = True
        report = self._write_changes(changes, watch, notes)
        self.needs_resync = False
        flows = self._clean_flows(watch, notes, changes.touched, check=check)
        return msgspec.structs.replace(
            report, touched=changes.touched, flows=flows, notes=tuple(notes), steps=tuple(watch.times)
        )

    @abstractmethod
    def _write_changes(self, changes: Changes, watch: Stopwatch, notes: list[str]) -> SyncReport:
        """Renders and writes what changed, and has `_flows` remember it before. Raises as `sync`."""

    @property
    def state(self) -> ServiceState:
        return self._state

    @property
    def options(self) -> RenderOptions:
        """What the next sync renders with."""
        return self._options or self.rendered_options

    def set_options(self, options: RenderOptions) -> None:
        """The node changed: the next sync renders with these, and writes what that alters."""
        self._options = options if options != self.rendered_options else None

    def snapshot(self) -> tuple[ServiceState, RenderOptions]:
        """A copy of the applied state, and the options it was rendered with, for `/debug/rules`."""
        copy = ServiceState(self._state.family, self._state.node_name)
        copy.service_ports = dict(self._state.service_ports)
        copy.endpoints = dict(self._state.endpoints)
        return copy, self.rendered_options

    def other_rules_went(self, before: Addresses) -> None:
        """Rules of the other mode were removed that sent traffic there: flows that they led astray are deleted.

        If that fails, the next sync tries again.
        """
        self._flows.remember(before)
        if self._flows.waits:
            self._flows.clean([], True)

    def _clean_flows(
        self, watch: Stopwatch, notes: list[str], touched: Iterable[ServicePortName], *, check: bool
    ) -> tuple[StaleFlow, ...]:
        """After a sync that wrote only what changed."""
        if self._flows.namespace is None:
            return ()
        with watch.step("conntrack"):
            flows = self._flows.clean_again(notes) if check and self._flows.may_have_missed else []
            return (*flows, *self._flows.clean(notes, any(name.protocol in PROTOCOLS for name in touched)))
