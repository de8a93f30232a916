"""What the proxier reports to metrics, health, and health-check node ports."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

import msgspec

from kproxy.linux.sync.family_syncer import SyncReport
from kproxy.services import IPFamily


class SyncDone(msgspec.Struct, frozen=True):
    """A sync that succeeded.

    Attributes:
        report: what it did.
        seconds: how long it took.
        service_changes, slice_changes: how many objects it took.
        trigger_times: when the changed endpoints changed in the cluster, RFC 3339, from the annotation
            endpoints.kubernetes.io/last-change-trigger-time of the slices taken since the last success.
        rule_totals: how many rules kube-proxy's chains hold, by table.
        drift: what others had changed, in words; "" if nothing.
        health_check_ports: the port of each Service with a health-check node port, by `namespace/name`.
        local_endpoints: for each of those Services, how many ready endpoints this node has.
    """

    family: IPFamily
    report: SyncReport
    seconds: float
    service_changes: int = 0
    slice_changes: int = 0
    trigger_times: tuple[str, ...] = ()
    rule_totals: Mapping[str, int] = {}
    drift: str = ""
    health_check_ports: Mapping[str, int] = {}
    local_endpoints: Mapping[str, int] = {}


class SyncFailed(msgspec.Struct, frozen=True):
    """A sync that failed.

    Attributes:
        check: whether it was to compare everything.
        service_changes, slice_changes: how many objects it took. They are in the state and count: no later sync takes
            them again.
    """

    family: IPFamily
    check: bool
    error: str
    service_changes: int = 0
    slice_changes: int = 0


class SyncObserver(Protocol):
    """Called from the families' sync threads; `queued` from any thread."""

    def queued(self, family: IPFamily) -> None:
        """Something changed and waits for a sync."""

    def synced(self, done: SyncDone) -> None:
        """A sync has succeeded."""

    def failed(self, failure: SyncFailed) -> None:
        """A sync has failed; it will be tried again."""


class NoObserver:
    def queued(self, family: IPFamily) -> None: ...

    def synced(self, done: SyncDone) -> None: ...

    def failed(self, failure: SyncFailed) -> None: ...
