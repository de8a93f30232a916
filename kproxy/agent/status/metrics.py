"""What the agent counts: kube-proxy's metrics under its own names, labels and buckets, and `kproxy_` ones of our own.

Names, labels, buckets and help are those of kube-proxy v1.36 (tests/reference/kube-proxy-http/responses.txt and
Kubernetes' metrics reference). docs/observability.md lists them, docs/limits.md those that kube-proxy has and this has
not. What is cheap to look up is not counted, but read at each scrape: pending changes, nfacct counters,
Services without local endpoints. A label has few values that are known before: an enumeration, never a text.
"""

from __future__ import annotations

import datetime
import platform
import re
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, Final, Protocol

import prometheus_client
from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram
from prometheus_client.metrics_core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from kproxy import __version__
from kproxy.agent.proxy.observer import SyncDone, SyncFailed
from kproxy.render import RenderOptions
from kproxy.services import IPFamily, ServiceState
from kproxy.services.topology import select_endpoints

SYNC_BUCKETS: Final = tuple(0.001 * 2**power for power in range(15))
"""Seconds: 1 ms to 16.384 s."""

PROGRAMMING_BUCKETS: Final = (0.0, 0.25, 0.5, *map(float, range(1, 60)), *map(float, range(60, 120, 5)),
                              *map(float, range(120, 301, 30)))  # fmt: skip
"""Seconds, from the change of an endpoint to the rule that follows."""

REQUEST_BUCKETS: Final = (0.005, 0.025, 0.1, 0.25, 0.5, 1.0, 2.0, 4.0, 8.0, 15.0, 30.0, 60.0)
SIZE_BUCKETS: Final = (64, 256, 512, 1024, 4096, 16384, 65536, 262144, 1048576, 4194304, 16777216)

GIT_VERSION: Final = f"v1.36.2+kproxy.{__version__}"

_SYNC: Final = "kubeproxy_sync_proxy_rules"
_FAMILY: Final = "ip_family"

TABLES: Final = ("filter", "nat")

CONTENT_TYPE: Final = "text/plain; version=0.0.4; charset=utf-8; escaping=underscores"

_WHOLE: Final = re.compile(r'(\ble="-?\d+)\.0(?=")|( -?\d+)\.0$', re.MULTILINE)
"""A whole number. To whoever selects a bucket, prometheus-client's `le="1.0"` is another than Go's `le="1"`."""

_HOST: Final = ("verb", "host")

_Row = tuple[str, str, type[Counter | Gauge | Histogram], str, tuple[str, ...], tuple[float, ...]]
_ROWS: Final[tuple[_Row, ...]] = (
    ("sync", f"{_SYNC}_duration_seconds", Histogram, "[ALPHA] SyncProxyRules latency in seconds",
     (_FAMILY,), SYNC_BUCKETS),
    ("full sync", "kubeproxy_sync_full_proxy_rules_duration_seconds", Histogram,
     "[ALPHA] SyncProxyRules latency in seconds for full resyncs", (_FAMILY,), SYNC_BUCKETS),
    ("partial sync", "kubeproxy_sync_partial_proxy_rules_duration_seconds", Histogram,
     "[ALPHA] SyncProxyRules latency in seconds for partial resyncs", (_FAMILY,), SYNC_BUCKETS),
    ("last synced", f"{_SYNC}_last_timestamp_seconds", Gauge,
     "[ALPHA] The last time proxy rules were successfully synced", (_FAMILY,), ()),
    ("last queued", f"{_SYNC}_last_queued_timestamp_seconds", Gauge,
     "[ALPHA] The last time a sync of proxy rules was queued", (_FAMILY,), ()),
    ("programming", "kubeproxy_network_programming_duration_seconds", Histogram,
     "[ALPHA] In Cluster Network Programming Latency in seconds", (_FAMILY,), PROGRAMMING_BUCKETS),
    ("endpoint changes", f"{_SYNC}_endpoint_changes_total", Counter,
     "[ALPHA] Cumulative proxy rules Endpoint changes", (), ()),
    ("service changes", f"{_SYNC}_service_changes_total", Counter,
     "[ALPHA] Cumulative proxy rules Service changes", (), ()),
    ("flows deleted", "kubeproxy_conntrack_reconciler_deleted_entries_total", Counter,
     "[ALPHA] Cumulative conntrack flows deleted by conntrack reconciler", (_FAMILY,), ()),
    ("flows", "kubeproxy_conntrack_reconciler_sync_duration_seconds", Histogram,
     "[ALPHA] ReconcileConntrackFlowsLatency latency in seconds", (_FAMILY,), SYNC_BUCKETS),
    ("healthz", "kubeproxy_proxy_healthz_total", Counter,
     "[ALPHA] Cumulative proxy healthz HTTP status", ("code",), ()),
    ("livez", "kubeproxy_proxy_livez_total", Counter, "[ALPHA] Cumulative proxy livez HTTP status", ("code",), ()),
    ("requests", "rest_client_requests_total", Counter,
     "[ALPHA] Number of HTTP requests, partitioned by status code, method, and host.", ("code", "method", "host"), ()),
    ("request", "rest_client_request_duration_seconds", Histogram,
     "[ALPHA] Request latency in seconds. Broken down by verb, and host.", _HOST, REQUEST_BUCKETS),
    ("request size", "rest_client_request_size_bytes", Histogram,
     "[ALPHA] Request size in bytes. Broken down by verb and host.", _HOST, SIZE_BUCKETS),
    ("response size", "rest_client_response_size_bytes", Histogram,
     "[ALPHA] Response size in bytes. Broken down by verb and host.", _HOST, SIZE_BUCKETS),
    ("failing", "kproxy_sync_failing", Gauge, "Whether the last sync failed: 1 or 0.", (_FAMILY,), ()),
    ("repairs", "kproxy_drift_repairs_total", Counter, "Syncs that undid what others had changed.", (_FAMILY,), ()),
    ("chains written", "kproxy_chains_written_total", Counter, "Chains written to the kernel.", (_FAMILY,), ()),
    ("chains deleted", "kproxy_chains_deleted_total", Counter, "Chains deleted from the kernel.", (_FAMILY,), ()),
)  # fmt: skip
"""What kube-proxy counts in every mode, what client-go counts, and kproxy's own: the name here, the metric's name, its
kind, help, labels, and a histogram's buckets."""

_IPTABLES_ROWS: Final[tuple[_Row, ...]] = (
    ("full failures", f"{_SYNC}_iptables_restore_failures_total", Counter,
     "[ALPHA] Cumulative proxy iptables restore failures", (_FAMILY,), ()),
    ("partial failures", f"{_SYNC}_iptables_partial_restore_failures_total", Counter,
     "[ALPHA] Cumulative proxy iptables partial restore failures", (_FAMILY,), ()),
    ("rules", f"{_SYNC}_iptables_total", Gauge,
     "[ALPHA] Total number of iptables rules owned by kube-proxy", (_FAMILY, "table"), ()),
    ("rules written", f"{_SYNC}_iptables_last", Gauge,
     "[ALPHA] Number of iptables rules written by kube-proxy in last sync", (_FAMILY, "table"), ()),
)  # fmt: skip

_NFTABLES_ROWS: Final[tuple[_Row, ...]] = (
    ("full failures", f"{_SYNC}_nftables_sync_failures_total", Counter,
     "[ALPHA] Cumulative proxy nftables sync failures", (_FAMILY,), ()),
    ("cleanup failures", f"{_SYNC}_nftables_cleanup_failures_total", Counter,
     "[ALPHA] Cumulative proxy nftables cleanup failures", (_FAMILY,), ()),
)  # fmt: skip

STARTED: Final = int(time.time())
"""When the process started, in seconds since 1970: what the header Process-Start-Time-Unix says."""

# Go's client has no *_created series; kube-proxy's names are a contract.
prometheus_client.disable_created_metrics()  # type: ignore[no-untyped-call]


class Sources(Protocol):
    """What is asked for at a scrape."""

    def pending(self) -> tuple[int, int]:
        """How many Services and EndpointSlices wait for a sync."""

    def snapshots(self) -> Iterable[tuple[ServiceState, RenderOptions]]:
        """Each family's state as last applied, with what it was rendered with."""

    def counted_packets(self) -> Mapping[str, int]:
        """The kernel's nfacct counters by their names."""

    def health_check_ports(self) -> tuple[int, int]:
        """How many health-check node ports are served, and how many should be and cannot."""


class Metrics:
    """All metrics of one agent, in a registry of their own. Thread-safe.

    Args:
        sources: asked at each scrape; see `watch`.
        wall: seconds since 1970.
        nftables: whether what kube-proxy counts in nftables mode is counted, or what it counts in iptables mode.
    """

    def __init__(
        self, sources: Sources | None = None, wall: Callable[[], float] = time.time, *, nftables: bool = False
    ) -> None:
        self._wall = wall
        self._lock = threading.Lock()
        self._full_next: dict[IPFamily, bool] = {}
        self._slice_family: IPFamily | None = None
        self._registry = registry = CollectorRegistry(auto_describe=True)
        self._lookups = _Lookups(sources)
        self.nftables = nftables
        self._metrics: dict[str, Counter | Gauge | Histogram] = {}
        for name, full_name, kind, text, labels, buckets in (*_ROWS, *(_NFTABLES_ROWS if nftables else _IPTABLES_ROWS)):
            more: dict[str, Any] = {"buckets": buckets} if buckets else {}
            self._metrics[name] = kind(full_name, text, labels, registry=registry, **more)
        _build_info(registry)
        prometheus_client.ProcessCollector(registry=registry)
        registry.register(self._lookups)

    def count(self, name: str, *labels: str, by: float = 1) -> None:
        """Adds to a counter, by its name in the tables above; by 0 only shows it."""
        metric = self._labelled(name, labels)
        assert isinstance(metric, Counter)
        metric.inc(by)

    def observe(self, name: str, value: float, *labels: str) -> None:
        """Adds an observation to a histogram, by its name in the tables above."""
        metric = self._labelled(name, labels)
        assert isinstance(metric, Histogram)
        metric.observe(value)

    def _set(self, name: str, value: float, *labels: str) -> None:
        metric = self._labelled(name, labels)
        assert isinstance(metric, Gauge)
        metric.set(value)

    def _labelled(self, name: str, labels: tuple[str, ...]) -> Counter | Gauge | Histogram:
        return self._metrics[name].labels(*labels) if labels else self._metrics[name]

    def watch(self, sources: Sources) -> None:
        """Whom to ask at a scrape from now on."""
        self._lookups.sources = sources

    def queued(self, family: IPFamily) -> None:
        """See SyncObserver. Called for every object of a first list, so it has to be quick."""
        self._set("last queued", self._wall(), family.value)

    def synced(self, done: SyncDone) -> None:
        """See SyncObserver."""
        name, report, now = done.family.value, done.report, self._wall()
        with self._lock:
            self._full_next[done.family] = False
        self.observe("sync", done.seconds, name)
        self.observe("full sync" if report.full else "partial sync", done.seconds, name)
        self._set("last synced", now, name)
        self._count_changes(done)
        self.count("full failures", name, by=0)
        if self.nftables:
            self.count("cleanup failures", name, by=report.cleanup_failures)
        else:
            self.count("partial failures", name, by=0)
            for table in TABLES:
                self._set("rules", done.rule_totals.get(table, 0), name, table)
                self._set("rules written", report.rules_written.get(table, 0), name, table)
        for trigger in done.trigger_times:
            happened = parse_time(trigger)
            if happened is not None:
                # A clock that is ahead of ours would make it negative, and the sum go back.
                self.observe("programming", max(0.0, now - happened), name)
        for step in report.steps:
            if step.step == "conntrack":
                self.observe("flows", step.seconds, name)
        self.count("flows deleted", name, by=len(report.flows))
        self.count("chains written", name, by=report.chains_written)
        self.count("chains deleted", name, by=report.chains_deleted)
        self.count("repairs", name, by=bool(done.drift))
        self._set("failing", 0, name)

    def failed(self, failure: SyncFailed) -> None:
        """See SyncObserver. The first sync, a check, and whatever follows a failure are full; others partial."""
        name = failure.family.value
        with self._lock:
            full = failure.check or self._full_next.get(failure.family, True)
            self._full_next[failure.family] = True
        self.count("full failures" if full or self.nftables else "partial failures", name)
        self._set("failing", 1, name)
        self._count_changes(failure)

    def _count_changes(self, sync: SyncDone | SyncFailed) -> None:
        """What a sync took, whether or not it succeeded: kube-proxy counts changes as they come."""
        self.count("service changes", by=sync.service_changes)
        # Every family takes every slice, so the count of one is the count of all; Services count once for each family,
        # as in kube-proxy.
        if sync.family is self._counts_slices(sync.family):
            self.count("endpoint changes", by=sync.slice_changes)

    def _counts_slices(self, family: IPFamily) -> IPFamily:
        with self._lock:
            self._slice_family = self._slice_family or family
            return self._slice_family

    def text(self) -> str:
        """Everything, in the Prometheus text format; numbers as Go's client writes them."""
        return _WHOLE.sub(r"\1\2", prometheus_client.generate_latest(self._registry).decode())


class _Lookups(Collector):
    """Metrics that are computed at each scrape; none without sources."""

    def __init__(self, sources: Sources | None) -> None:
        self.sources = sources

    def describe(self) -> Iterable[Metric]:
        return ()

    def collect(self) -> Iterator[Metric]:
        if self.sources is None:
            return
        services, slices = self.sources.pending()
        yield GaugeMetricFamily(
            f"{_SYNC}_service_changes_pending", "[ALPHA] Pending proxy rules Service changes", value=services
        )
        yield GaugeMetricFamily(
            f"{_SYNC}_endpoint_changes_pending", "[ALPHA] Pending proxy rules Endpoint changes", value=slices
        )
        lonely = GaugeMetricFamily(
            f"{_SYNC}_no_local_endpoints_total",
            "[ALPHA] Number of services with a Local traffic policy and no endpoints",
            labels=("ip_family", "traffic_policy"),
        )
        for state, options in self.sources.snapshots():
            for policy, services_without in no_local_endpoints(state, options).items():
                lonely.add_metric((state.family.value, policy), len(services_without))
        yield lonely
        ports, failed = self.sources.health_check_ports()
        yield GaugeMetricFamily(
            "kproxy_health_check_node_ports", "Health-check node ports that are served.", value=ports
        )
        yield GaugeMetricFamily(
            "kproxy_health_check_node_ports_failed",
            "Health-check node ports that should be served and cannot be.",
            value=failed,
        )
        counters = self.sources.counted_packets()
        for counter, name, text in _NFACCT:
            if counter in counters:
                yield CounterMetricFamily(name, f"[ALPHA] {text}", value=counters[counter])


_NFACCT: Final = (
    (
        "ct_state_invalid_dropped_pkts",
        "kubeproxy_iptables_ct_state_invalid_dropped_packets",
        "packets dropped by iptables to work around conntrack problems",
    ),
    (
        "localhost_nps_accepted_pkts",
        "kubeproxy_iptables_localhost_nodeports_accepted_packets",
        "Number of packets accepted on nodeports of loopback interface",
    ),
)


def no_local_endpoints(state: ServiceState, options: RenderOptions) -> dict[str, set[str]]:
    """The Services, by traffic policy, that keep traffic on this node, have endpoints, and none of them here."""
    found: dict[str, set[str]] = {"internal": set(), "external": set()}
    for name, port in list(state.service_ports.items()):
        if not port.uses_local_endpoints:
            continue
        selected = select_endpoints(port, state.endpoints.get(name, ()), options.node_name, options.zone)
        if not selected.has_any or selected.local:
            continue
        if port.internal_policy_local:
            found["internal"].add(name.service)
        if port.external_policy_local:
            found["external"].add(name.service)
    return found


def parse_time(text: str) -> float | None:
    """RFC 3339 in seconds since 1970; None if it is invalid."""
    try:
        found = datetime.datetime.fromisoformat(text)
    except ValueError:
        return None
    return found.timestamp() if found.tzinfo is not None else None


def _build_info(registry: CollectorRegistry) -> None:
    labels = {
        "major": "1",
        "minor": "36",
        "git_version": GIT_VERSION,
        "git_commit": "",
        "git_tree_state": "",
        "build_date": "",
        # kube-proxy's label; what built us is Python.
        "go_version": "",
        "compiler": f"{platform.python_implementation()} {platform.python_version()}",
        "platform": f"linux/{_MACHINES.get(platform.machine(), platform.machine())}",
    }
    text = (
        "[ALPHA] A metric with a constant '1' value labeled by major, minor, git version, git commit, git tree state, "
        "build date, Go version, and compiler from which Kubernetes was built, and platform on which it is running."
    )
    Gauge("kubernetes_build_info", text, tuple(labels), registry=registry).labels(**labels).set(1)


_MACHINES: Final = {"x86_64": "amd64", "aarch64": "arm64"}
