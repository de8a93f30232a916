"""The proxier of one family: takes what changed, renders it, brings it to the kernel; again until it is there.

Each `step` asks the runner what is due and does it: drain the inbox into the state, then write what that changed, or
compare everything with the kernel when a check is due. Nothing is lost by a failure: what was drained stays in the
state, the syncer starts over from the full state, and the runner says when.

kube-proxy keeps an empty canary chain in each table and, every sync period, looks whether that of the mangle table is
there: a flush of nat alone, a single deleted rule or a removed jump go unnoticed for an hour (kubernetes/kubernetes
issue 129128). Here the canaries are part of the desired rules, like every other chain, and a check compares everything;
but reading every rule is dear, so it first looks whether anybody else has written at all since the rules were last
known to be right, by the kernel's fingerprint. An idle node is checked for less than a millisecond.

Steps come from one thread; `inbox`, `set_options`, `enable` and `request_check` may be used from any.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Collection, Iterable, Sequence
from typing import Final

from kproxy.agent.log import event
from kproxy.agent.proxy.observer import NoObserver, SyncDone, SyncFailed, SyncObserver
from kproxy.agent.proxy.runner import BoundedFrequencyRunner, Run, Wait
from kproxy.agent.sources.inbox import Inbox, Taken
from kproxy.cluster.stale_flows import Addresses
from kproxy.errors import KproxyError
from kproxy.linux.errors import LinuxError, is_lock_held
from kproxy.linux.sync.family_syncer import FamilySyncer, SyncReport
from kproxy.linux.sync.report import CleanedTables, StepTime
from kproxy.render import RenderedTable, RenderedTarget, RenderOptions
from kproxy.services import (
    IPFamily,
    ServicePortName,
    ServiceState,
    health_check_node_ports,
    local_ready_endpoints,
)

TRIGGER_TIME: Final = "endpoints.kubernetes.io/last-change-trigger-time"

FULL_SYNC_PERIOD: Final = 3600.0
"""Seconds after which everything is compared even if nothing seems to have changed, as kube-proxy does."""

LEAST_WAIT: Final = 1.0
"""Seconds of a failed sync that count as waiting for the xtables lock; a shorter one has spent them otherwise."""

MOST_GIVEN_WAY: Final = 20
"""So many times in a row a check gives way to changes; then it is done whatever comes."""

NOTHING: Final = Taken({}, {})

MAX_TRIGGERS: Final = 10_000
"""Trigger times kept while syncs fail."""


CleanOtherMode = Callable[[Callable[[Addresses], None]], Sequence[CleanedTables]]
"""Removes the rules of the mode that is not in use, and calls what it is given with where they sent traffic."""


class FamilyProxier:
    """See the module.

    Args:
        syncer: writes the rules; only this proxier may use it.
        fingerprint: equal as long as nobody has written rules, or nobody but the syncer; None if that is unknown.
        clock: seconds that should not go back.
        clean_other_mode: removes the rules of the mode that is not in use; called until it succeeds once.
    """

    def __init__(
        self,
        family: IPFamily,
        syncer: FamilySyncer,
        fingerprint: Callable[[], object | None],
        runner: BoundedFrequencyRunner,
        clock: Callable[[], float],
        observer: SyncObserver | None = None,
        clean_other_mode: CleanOtherMode = lambda _seen: (),
    ) -> None:
        self.family = family
        self.inbox = Inbox(self._changed)
        self._syncer = syncer
        self._fingerprint = fingerprint
        # Taken before the rules were read or written that are right; None if they may be wrong.
        self._right: object | None = None
        self._runner = runner
        self._clock = clock
        self._clean_other_mode: CleanOtherMode | None = clean_other_mode
        self._observer: SyncObserver = observer or NoObserver()
        # Guards the runner and the fields below; notified of every request.
        self._wake = threading.Condition()
        # Held during a sync, so that others see the state between syncs only.
        self._busy = threading.Lock()
        self._options: RenderOptions | None = None
        self._stopped = False
        self._synced_once = False
        self._compared = clock()
        self._gave_way = 0
        self._triggers: list[str] = []
        # What the sync under way took; only its thread looks.
        self._taken = NOTHING

    @property
    def has_synced(self) -> bool:
        """Whether the kernel has held the wanted rules at least once."""
        return self._synced_once

    @property
    def other_mode_left(self) -> bool:
        """Whether rules of the mode that is not in use may be there still: removing them failed."""
        return self._clean_other_mode is not None

    @property
    def failing(self) -> bool:
        """Whether the last sync failed."""
        return self._runner.failing

    def snapshot(self) -> tuple[ServiceState, RenderOptions]:
        """A copy of the state as last synced, and the options it was rendered with.

        Never waits, so that metrics answer while iptables hangs; during a sync it may hold a part of what is new.
        """
        return self._syncer.snapshot()

    def rendered(self) -> RenderedTarget | RenderedTable:
        """The rules as they were wanted at the last sync, rendered anew."""
        return self._syncer.rendered()

    def enable(self) -> None:
        """All that must be known before the first sync is known."""
        with self._wake:
            self._runner.enable()
            self._wake.notify_all()

    def request_check(self) -> None:
        """Compares everything with the kernel soon."""
        with self._wake:
            self._runner.request_check()
            self._wake.notify_all()

    def set_options(self, options: RenderOptions) -> None:
        """Takes new render options, since the node changed."""
        with self._wake:
            if options == (self._options or self._syncer.options):
                return
            self._options = options
        self._changed()

    def run(self) -> None:
        """Steps until `stop`: the body of the family's thread."""
        while True:
            self.step()
            with self._wake:
                if self._stopped:
                    return
                # Between the step and here a request may have come, so the runner is asked again.
                seconds = self._runner.seconds_left(self._clock())
                if seconds is None or seconds > 0:
                    self._wake.wait(seconds)

    def stop(self) -> None:
        """Ends `run` after the sync under way."""
        with self._wake:
            self._stopped = True
            self._wake.notify_all()

    def step(self) -> float | None:
        """Does what is due; seconds until something may be due again, None if only a request can change that."""
        with self._wake:
            action = Wait(None) if self._stopped else self._runner.next_action(self._clock())
        if isinstance(action, Wait):
            return action.seconds
        start = self._clock()
        self._taken = NOTHING
        try:
            with self._busy:
                self._sync(action, start)
        except LinuxError as error:
            self._failed(action, start, error)
        except Exception as error:
            # A bug must not stop the others' traffic from being kept right: log it, start over from the full state.
            self._failed(action, start, error, bug=True)
        else:
            with self._wake:
                self._runner.finished(action, True, self._clock(), checked=not self._gave_way)
        return 0.0

    def _changed(self) -> None:
        self._observer.queued(self.family)
        with self._wake:
            self._runner.request()
            self._wake.notify_all()

    def _sync(self, run: Run, start: float) -> None:
        self._taken = taken = self.inbox.take()
        self._take(taken)
        with self._wake:
            options, self._options = self._options, None
        if options is not None:
            self._syncer.set_options(options)
        report, drift = self._write(run, start)
        self._end_other_mode()
        self._synced_once = True
        triggers, self._triggers = tuple(self._triggers), []
        ports = health_check_node_ports(self._syncer.state.service_ports)
        local = local_ready_endpoints(self._syncer.state.endpoints) if ports else {}
        done = SyncDone(
            family=self.family,
            report=report,
            seconds=self._clock() - start,
            service_changes=len(taken.services),
            slice_changes=len(taken.slices),
            trigger_times=triggers,
            rule_totals=self._syncer.rule_totals(),
            drift=drift,
            health_check_ports=ports,
            local_endpoints={service: local.get(service, 0) for service in ports},
        )
        self._tell(done)

    def _end_other_mode(self) -> None:
        """Once the wanted rules are there: kube-proxy does it before, and packets meet no rules for a while."""
        if self._clean_other_mode is None:
            return
        seen: list[Addresses] = []
        try:
            cleaned = self._clean_other_mode(seen.append)
        except LinuxError as error:
            event(
                "rules of the other mode are left, the next sync removes them",
                level=logging.ERROR,
                family=self.family.value,
                error=str(error),
            )
            return
        self._clean_other_mode = None
        for addresses in seen:
            self._syncer.other_rules_went(addresses)
        for each in cleaned:
            event(
                "removed the rules of the other mode",
                family=self.family.value,
                variant=each.variant,
                chains=each.chains_deleted,
                rules=each.rules_deleted,
            )

    def _take(self, taken: Taken) -> None:
        state = self._syncer.state
        for key, service in taken.services.items():
            try:
                state.delete_service(key) if service is None else state.update_service(service)
            except Exception as error:
                event("object ignored", level=logging.ERROR, kind="Service", key=key, exception=error)
        for key, piece in taken.slices.items():
            try:
                state.delete_endpoint_slice(key) if piece is None else state.update_endpoint_slice(piece)
            except Exception as error:
                event("object ignored", level=logging.ERROR, kind="EndpointSlice", key=key, exception=error)
            else:
                trigger = piece.metadata.annotations.get(TRIGGER_TIME) if piece is not None else None
                if trigger and self._synced_once and len(self._triggers) < MAX_TRIGGERS:
                    self._triggers.append(trigger)

    def _write(self, run: Run, start: float) -> tuple[SyncReport, str]:
        """Writes what differs; returns what others had changed, if that was compared."""
        if self._syncer.needs_resync:
            return self._compare(start), ""
        if not run.check:
            return self._partial(), ""
        late = not 0 <= start - self._compared < FULL_SYNC_PERIOD
        if not late and self._right is not None and self._fingerprint() == self._right:
            return self._partial(check=True), ""
        # First our own changes, so that what is left to mend is what others did.
        own = self._partial(check=True)
        if self._gave_way < MOST_GIVEN_WAY:
            # Its own list: a check that gave way may go on reading beside the next one.
            taken: list[object | None] = []
            right = self._syncer.is_right(lambda: taken.append(self._fingerprint()), lambda: self._runner.requested)
            if right is None:
                self._gave_way += 1
                return own, ""
            if right:
                self._gave_way, self._compared = 0, start
                self._right = taken[0]
                return own, ""
        mended = self._compare(start)
        return mended.after(own), mended.found

    def _partial(self, *, check: bool = False) -> SyncReport:
        report = self._syncer.sync(check=check)
        if report.cleanup_failures:
            self._right = None  # what could not be deleted, the next check finds again
        return report

    def _compare(self, start: float) -> SyncReport:
        taken = self._fingerprint()
        report = self._syncer.resync()
        self._gave_way, self._compared = 0, start
        self._right = taken
        return report

    def _tell(self, done: SyncDone) -> None:
        report = done.report
        if done.drift:
            event("drift repaired", level=logging.WARNING, family=self.family.value, found=done.drift)
        for note in report.notes:
            event("note", level=logging.WARNING, family=self.family.value, note=note)
        quiet = not (report.wrote or report.touched or report.flows)
        event(
            "synced",
            level=logging.DEBUG if quiet else logging.INFO,
            family=self.family.value,
            sync="full" if report.full else "partial",
            changed=_names(report.touched),
            services=done.service_changes,
            endpointSlices=done.slice_changes,
            chainsWritten=report.chains_written,
            chainsDeleted=report.chains_deleted,
            rulesWritten=sum(report.rules_written.values()),
            elementsWritten=report.elements_written,
            flowsDeleted=len(report.flows),
            seconds=round(done.seconds, 4),
            steps=_seconds(report.steps),
        )
        self._observer.synced(done)

    def _failed(self, run: Run, start: float, error: Exception, bug: bool = False) -> None:
        self._syncer.needs_resync = True
        self._right = None
        now = self._clock()
        with self._wake:
            self._runner.finished(run, False, now, waited=is_lock_held(error) and now - start >= LEAST_WAIT)
            retry = self._runner.seconds_left(now)
        event(
            "sync failed",
            level=logging.ERROR,
            exception=error if bug or not isinstance(error, KproxyError) else None,
            family=self.family.value,
            error=str(error),
            seconds=round(now - start, 4),
            retryIn=round(retry or 0.0, 2),
        )
        changes = len(self._taken.services), len(self._taken.slices)
        self._observer.failed(SyncFailed(self.family, run.check, str(error), *changes))


def _seconds(steps: Iterable[StepTime]) -> dict[str, float]:
    """How long each step took, in seconds; what a sync does twice is one step."""
    result: dict[str, float] = {}
    for step in steps:
        result[step.step] = round(result.get(step.step, 0.0) + step.seconds, 4)
    return result


def _names(touched: Collection[ServicePortName], most: int = 5) -> str:
    """ServicePorts for a log line: the first few by name, and how many more."""
    if not touched:
        return ""
    names = sorted(touched)
    return ",".join(map(str, names[:most])) + (f",+{len(names) - most}" if len(names) > most else "")
