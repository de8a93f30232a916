"""The health of the proxy, as a state machine with explicit clocks: what /healthz and /livez answer.

kube-proxy's rules (pkg/proxy/healthcheck/proxy_health.go, v1.36): a family is healthy while nothing is queued for it,
or what is queued has waited for less than the time-out, which is twice the sync period; /healthz is also red while the
node is not eligible: it is being deleted, or the cluster autoscaler has tainted it to be. A load balancer shall then
choose another node, but the proxy is alive, so /livez stays green.

kproxy adds that a family whose last sync failed is unhealthy until the next one succeeds, and that a first sync counts
too: kube-proxy stays green while every restore fails and nothing new is queued, or before the first success
(kubernetes/kubernetes issue 105742). All is red until there is something to program: while the cluster has not been
listed, or the Node has no pod CIDR that the configuration needs. kube-proxy waits for these before it opens its ports.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Final

import msgspec

from kproxy.api.types.core import Node
from kproxy.services import IPFamily

TO_BE_DELETED_TAINT: Final = "ToBeDeletedByClusterAutoscaler"
"""Set by the cluster autoscaler on a node that it is about to remove."""

_NEVER: Final = "0001-01-01T00:00:00Z"  # Go's zero time
_NANOSECONDS: Final = 1_000_000_000
_MAX_REASON: Final = 200


class FamilyHealth(msgspec.Struct, frozen=True):
    """One family: when it last succeeded (nanoseconds since 1970; None for never), and why it is unhealthy, or ""."""

    last_updated: int | None
    problem: str = ""


class Health(msgspec.Struct, frozen=True):
    """What is known at a moment (nanoseconds since 1970)."""

    now: int
    families: dict[IPFamily, FamilyHealth]
    problem: str = ""

    @property
    def healthy(self) -> bool:
        """Whether every family is, and there is no problem before any of them; the node does not count."""
        return not self.problem and not any(family.problem for family in self.families.values())


class ProxyHealth:
    """Written by the proxiers, read by the health port. Thread-safe.

    Args:
        timeout: seconds that a change may wait; kube-proxy takes twice the sync period.
        clock: seconds that never go back, for how long something has waited.
        wall: nanoseconds since 1970, for the times that are shown.
        eligible: whether the node may get traffic.
        unready: why no rules are kept yet, whatever the family, or "".
    """

    def __init__(
        self,
        timeout: float,
        *,
        clock: Callable[[], float] = time.monotonic,
        wall: Callable[[], int] = time.time_ns,
        eligible: Callable[[], bool] = lambda: True,
        unready: Callable[[], str] = lambda: "",
    ) -> None:
        self._timeout = timeout
        self._clock = clock
        self._wall = wall
        self._eligible = eligible
        self._unready = unready
        self._lock = threading.Lock()
        self._updated: dict[IPFamily, int] = {}
        # When the oldest change came that no sync has taken yet.
        self._queued: dict[IPFamily, float] = {}
        self._failures: dict[IPFamily, str] = {}

    def queued(self, family: IPFamily) -> None:
        """Something waits for a sync."""
        with self._lock:
            self._queued.setdefault(family, self._clock())

    def updated(self, family: IPFamily) -> None:
        """Records a sync that succeeded."""
        with self._lock:
            self._queued.pop(family, None)
            self._failures.pop(family, None)
            self._updated[family] = self._wall()

    def failed(self, family: IPFamily, error: str) -> None:
        """Records a sync that failed."""
        with self._lock:
            self._failures[family] = error
            self._queued.setdefault(family, self._clock())

    def health(self) -> Health:
        with self._lock:
            now = self._clock()
            known = sorted({*self._updated, *self._failures, *self._queued}, key=lambda family: family.value)
            found = {family: FamilyHealth(self._updated.get(family), self._problem(family, now)) for family in known}
            return Health(self._wall(), found, self._unready())

    def is_healthy(self) -> bool:
        """Whether every family is; the node does not count."""
        return self.health().healthy

    def healthz(self) -> tuple[int, str]:
        """Status and body of GET /healthz."""
        return self._answer(self._eligible())

    def livez(self) -> tuple[int, str]:
        """Status and body of GET /livez."""
        return self._answer(None)

    def _problem(self, family: IPFamily, now: float) -> str:
        failure = self._failures.get(family)
        if failure is not None:
            return f"the last sync failed: {_short(failure)}"
        since = self._queued.get(family)
        if since is not None and now - since >= self._timeout:
            return f"a change has waited for {now - since:.0f} s"
        return ""

    def _answer(self, eligible: bool | None) -> tuple[int, str]:
        health = self.health()
        green = health.healthy and eligible is not False
        times = [family.last_updated for family in health.families.values() if family.last_updated is not None]
        body: dict[str, object] = {
            # While all is well it is as good as updated now, as in kube-proxy.
            "lastUpdated": go_time(health.now if green else max(times, default=None)),
            "currentTime": go_time(health.now),
        }
        if eligible is not None:
            body["nodeEligible"] = eligible
        body["healthy"] = health.healthy
        if health.problem:
            body["reason"] = _short(health.problem)
        status = {family.value: _family(found) for family, found in health.families.items() if _is_shown(found)}
        if status:
            body["status"] = status
        return (200 if green else 503), msgspec.json.encode(body).decode()


def node_eligible(node: Node | None) -> bool:
    """Whether a node may get traffic: it is not being deleted, nor about to be. So may an unknown one."""
    if node is None:
        return True
    return not node.metadata.deletion_timestamp and TO_BE_DELETED_TAINT not in node.taints


def go_time(nanoseconds: int | None) -> str:
    """A time as Go's encoder prints it in UTC: RFC 3339 with up to nine digits, without trailing zeros."""
    if nanoseconds is None:
        return _NEVER
    seconds, rest = divmod(nanoseconds, _NANOSECONDS)
    text = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(seconds))
    return f"{text}.{rest:09}".rstrip("0").rstrip(".") + "Z" if rest else f"{text}Z"


def _short(problem: str) -> str:
    """The first line, cut: every client may read this port, and the log has the whole message."""
    return problem.partition("\n")[0][:_MAX_REASON]


def _is_shown(family: FamilyHealth) -> bool:
    """kube-proxy names a family from its first success on."""
    return family.last_updated is not None or bool(family.problem)


def _family(family: FamilyHealth) -> dict[str, object]:
    shown: dict[str, object] = {"lastUpdated": go_time(family.last_updated), "healthy": not family.problem}
    if family.problem:
        shown["reason"] = family.problem
    return shown
