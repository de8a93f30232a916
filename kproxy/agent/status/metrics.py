"""What the agent counts: kube-proxy's metrics under its own names, labels and buckets, and `kproxy_` ones of our own.

Names, labels, buckets and help are those of kube-proxy v1.36 (tests/reference/kube-proxy-http/responses.txt and
Kubernetes' metrics reference). docs/observability.md lists them, docs/limits.md those that kube-proxy has and this has
not. What is cheap to look up is not counted, but read at each scrape: pending changes, nfacct counters,
Services without local endpoints. A label has few values that are known before: an enumeration, never a text.
"""

from __future__ import annotations

import datetime
import platform
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Final, Protocol

import prometheus_client
from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram
from prometheus_client.metrics_core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from kproxy import __version__
from kproxy.agent.proxy.observer import SyncDone, SyncFailed
from kproxy.agent.status.exposition import exposition
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

_STARTED: Final = time.time()

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
        self._last_queued: dict[IPFamily, Gauge] = {}
        self._registry = registry = CollectorRegistry(auto_describe=True)
        self._lookups = _Lookups(sources)

        def counter(name: str, text: str, *labels: str) -> Counter:
            return Counter(name, text, labels, registry=registry)

        def gauge(name: str, text: str, *labels: str) -> Gauge:
            return Gauge(name, text, labels, registry=registry)

        def histogram(name: str, text: str, buckets: Iterable[float], *labels: str) -> Histogram:
            return Histogram(name, text, labels, buckets=tuple(buckets), registry=registry)

        self._count_syncs(counter, gauge, histogram)
        self.nftables = nftables
        if nftables:
            self.nft_failures = counter(
                f"{_SYNC}_nftables_sync_failures_total", "[ALPHA] Cumulative proxy nftables sync failures", _FAMILY
            )
            self.nft_cleanup_failures = counter(
                f"{_SYNC}_nftables_cleanup_failures_total",
                "[ALPHA] Cumulative proxy nftables cleanup failures",
                _FAMILY,
            )
        else:
            self._count_iptables(counter, gauge)
        self._count_flows(counter, histogram)
        self.healthz = counter("kubeproxy_proxy_healthz_total", "[ALPHA] Cumulative proxy healthz HTTP status", "code")
        self.livez = counter("kubeproxy_proxy_livez_total", "[ALPHA] Cumulative proxy livez HTTP status", "code")
        self._count_requests(counter, histogram)
        self.sync_failing = gauge("kproxy_sync_failing", "Whether the last sync failed: 1 or 0.", _FAMILY)
        self.drift_repairs = counter("kproxy_drift_repairs_total", "Syncs that undid what others had changed.", _FAMILY)
        self.chains_written = counter("kproxy_chains_written_total", "Chains written to the kernel.", _FAMILY)
        self.chains_deleted = counter("kproxy_chains_deleted_total", "Chains deleted from the kernel.", _FAMILY)
        _build_info(registry)
        prometheus_client.ProcessCollector(registry=registry)
        registry.register(self._lookups)

    def _count_syncs(
        self, counter: Callable[..., Counter], gauge: Callable[..., Gauge], histogram: Callable[..., Histogram]
    ) -> None:
        """What kube-proxy counts of its syncs in every mode."""
        self.sync_duration = histogram(
            f"{_SYNC}_duration_seconds", "[ALPHA] SyncProxyRules latency in seconds", SYNC_BUCKETS, _FAMILY
        )
        self.full_duration = histogram(
            "kubeproxy_sync_full_proxy_rules_duration_seconds",
            "[ALPHA] SyncProxyRules latency in seconds for full resyncs",
            SYNC_BUCKETS,
            _FAMILY,
        )
        self.partial_duration = histogram(
            "kubeproxy_sync_partial_proxy_rules_duration_seconds",
            "[ALPHA] SyncProxyRules latency in seconds for partial resyncs",
            SYNC_BUCKETS,
            _FAMILY,
        )
        self.last_synced = gauge(
            f"{_SYNC}_last_timestamp_seconds", "[ALPHA] The last time proxy rules were successfully synced", _FAMILY
        )
        self.last_queued = gauge(
            f"{_SYNC}_last_queued_timestamp_seconds", "[ALPHA] The last time a sync of proxy rules was queued", _FAMILY
        )
        self.programming = histogram(
            "kubeproxy_network_programming_duration_seconds",
            "[ALPHA] In Cluster Network Programming Latency in seconds",
            PROGRAMMING_BUCKETS,
            _FAMILY,
        )
        self.endpoint_changes = counter(
            f"{_SYNC}_endpoint_changes_total", "[ALPHA] Cumulative proxy rules Endpoint changes"
        )
        self.service_changes = counter(
            f"{_SYNC}_service_changes_total", "[ALPHA] Cumulative proxy rules Service changes"
        )

    def _count_iptables(self, counter: Callable[..., Counter], gauge: Callable[..., Gauge]) -> None:
        """What kube-proxy counts in iptables mode only."""
        self.restore_failures = counter(
            f"{_SYNC}_iptables_restore_failures_total", "[ALPHA] Cumulative proxy iptables restore failures", _FAMILY
        )
        self.partial_failures = counter(
            f"{_SYNC}_iptables_partial_restore_failures_total",
            "[ALPHA] Cumulative proxy iptables partial restore failures",
            _FAMILY,
        )
        self.rules_total = gauge(
            f"{_SYNC}_iptables_total", "[ALPHA] Total number of iptables rules owned by kube-proxy", _FAMILY, "table"
        )
        self.rules_last = gauge(
            f"{_SYNC}_iptables_last",
            "[ALPHA] Number of iptables rules written by kube-proxy in last sync",
            _FAMILY,
            "table",
        )

    def _count_flows(self, counter: Callable[..., Counter], histogram: Callable[..., Histogram]) -> None:
        """What kube-proxy counts of connection tracking entries that it deletes."""
        self.flows_deleted = counter(
            "kubeproxy_conntrack_reconciler_deleted_entries_total",
            "[ALPHA] Cumulative conntrack flows deleted by conntrack reconciler",
            _FAMILY,
        )
        self.flows_duration = histogram(
            "kubeproxy_conntrack_reconciler_sync_duration_seconds",
            "[ALPHA] ReconcileConntrackFlowsLatency latency in seconds",
            SYNC_BUCKETS,
            _FAMILY,
        )

    def _count_requests(self, counter: Callable[..., Counter], histogram: Callable[..., Histogram]) -> None:
        """What client-go counts of requests to the API server."""
        self.requests = counter(
            "rest_client_requests_total",
            "[ALPHA] Number of HTTP requests, partitioned by status code, method, and host.",
            "code",
            "method",
            "host",
        )
        self.request_duration = histogram(
            "rest_client_request_duration_seconds",
            "[ALPHA] Request latency in seconds. Broken down by verb, and host.",
            REQUEST_BUCKETS,
            "verb",
            "host",
        )
        self.request_size = histogram(
            "rest_client_request_size_bytes",
            "[ALPHA] Request size in bytes. Broken down by verb and host.",
            SIZE_BUCKETS,
            "verb",
            "host",
        )
        self.response_size = histogram(
            "rest_client_response_size_bytes",
            "[ALPHA] Response size in bytes. Broken down by verb and host.",
            SIZE_BUCKETS,
            "verb",
            "host",
        )

    @property
    def started(self) -> int:
        """When the process started, in seconds since 1970: what the header Process-Start-Time-Unix says."""
        return int(_STARTED)

    def watch(self, sources: Sources) -> None:
        """Whom to ask at a scrape from now on."""
        self._lookups.sources = sources

    def queued(self, family: IPFamily) -> None:
        """See SyncObserver. Called for every object of a first list, so it has to be quick."""
        gauge = self._last_queued.get(family)
        if gauge is None:
            gauge = self._last_queued[family] = self.last_queued.labels(family.value)
        gauge.set(self._wall())

    def synced(self, done: SyncDone) -> None:
        """See SyncObserver."""
        name, report, now = done.family.value, done.report, self._wall()
        with self._lock:
            self._full_next[done.family] = False
        self.sync_duration.labels(name).observe(done.seconds)
        (self.full_duration if report.full else self.partial_duration).labels(name).observe(done.seconds)
        self.last_synced.labels(name).set(now)
        self._count_changes(done)
        if self.nftables:
            self.nft_failures.labels(name)
            self.nft_cleanup_failures.labels(name).inc(report.cleanup_failures)
        else:
            for table in TABLES:
                self.rules_total.labels(name, table).set(done.rule_totals.get(table, 0))
                self.rules_last.labels(name, table).set(report.rules_written.get(table, 0))
            self.restore_failures.labels(name)
            self.partial_failures.labels(name)
        for trigger in done.trigger_times:
            happened = parse_time(trigger)
            if happened is not None:
                # A clock that is ahead of ours would make it negative, and the sum go back.
                self.programming.labels(name).observe(max(0.0, now - happened))
        for step in report.steps:
            if step.step == "conntrack":
                self.flows_duration.labels(name).observe(step.seconds)
        self.flows_deleted.labels(name).inc(len(report.flows))
        self.chains_written.labels(name).inc(report.chains_written)
        self.chains_deleted.labels(name).inc(report.chains_deleted)
        self.drift_repairs.labels(name).inc(bool(done.drift))
        self.sync_failing.labels(name).set(0)

    def failed(self, failure: SyncFailed) -> None:
        """See SyncObserver. The first sync, a check, and whatever follows a failure are full; others partial."""
        name = failure.family.value
        with self._lock:
            full = failure.check or self._full_next.get(failure.family, True)
            self._full_next[failure.family] = True
        if self.nftables:
            self.nft_failures.labels(name).inc()
        else:
            (self.restore_failures if full else self.partial_failures).labels(name).inc()
        self.sync_failing.labels(name).set(1)
        self._count_changes(failure)

    def _count_changes(self, sync: SyncDone | SyncFailed) -> None:
        """What a sync took, whether or not it succeeded: kube-proxy counts changes as they come."""
        self.service_changes.inc(sync.service_changes)
        # Every family takes every slice, so the count of one is the count of all; Services count once for each family,
        # as in kube-proxy.
        if sync.family is self._counts_slices(sync.family):
            self.endpoint_changes.inc(sync.slice_changes)

    def _counts_slices(self, family: IPFamily) -> IPFamily:
        with self._lock:
            self._slice_family = self._slice_family or family
            return self._slice_family

    def text(self) -> str:
        """Everything, in the Prometheus text format."""
        return exposition(self._registry)


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
