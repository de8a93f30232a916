"""The metrics against what kube-proxy v1.36.2 was recorded to answer: names, types, labels, buckets, format."""

from __future__ import annotations

import socket
import subprocess
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime

import pytest
from prometheus_client.parser import text_string_to_metric_families

from kproxy.agent.proxy.observer import SyncDone, SyncFailed
from kproxy.agent.status.metrics import Metrics, no_local_endpoints
from kproxy.api import load_manifests
from kproxy.linux.iptables import nfacct
from kproxy.linux.namespace import Namespace
from kproxy.linux.sync.family_syncer import SyncReport
from kproxy.linux.sync.report import StepTime
from kproxy.render import RenderOptions, render_options
from kproxy.services import IPFamily, ServiceState
from tests.support import paths
from tests.support.agent.recorded_http import Family, parse_metrics, recorded_reply

LIMITS = paths.ROOT / "docs" / "limits.md"
NOW = 1_800_000_000.5


class Asked:
    """Sources with an answer to everything."""

    def __init__(self, state: ServiceState | None = None, options: RenderOptions | None = None) -> None:
        self.families = [(state, options)] if state is not None and options is not None else []

    def pending(self) -> tuple[int, int]:
        return 3, 4

    def snapshots(self) -> Iterable[tuple[ServiceState, RenderOptions]]:
        return self.families

    def counted_packets(self) -> Mapping[str, int]:
        return {"ct_state_invalid_dropped_pkts": 7, "localhost_nps_accepted_pkts": 0}

    def health_check_ports(self) -> tuple[int, int]:
        return 2, 1


def done(family: IPFamily, *, full: bool = True, **fields: object) -> SyncDone:
    report = SyncReport(
        full=full,
        touched=frozenset(),
        chains_written=5,
        rules_written={"nat": 22, "filter": 5},
        steps=(StepTime("conntrack", 0.002),),
    )
    given: dict[str, object] = {"rule_totals": {"nat": 22, "filter": 5}, **fields}
    return SyncDone(family, report, 0.08, **given)  # type: ignore[arg-type]


def after_one_sync() -> Metrics:
    """Metrics as those of the recorded kube-proxy: both families have synced once, and health was asked for."""
    metrics = Metrics(Asked(*lonely_cluster()), lambda: NOW)
    for family in IPFamily:
        metrics.queued(family)
        metrics.synced(done(family, service_changes=2, slice_changes=2))
    metrics.count("healthz", "200")
    metrics.count("livez", "200")
    return metrics


def lonely_cluster() -> tuple[ServiceState, RenderOptions]:
    text = b"""
apiVersion: v1
kind: Service
metadata: {name: both, namespace: shop}
spec:
  type: NodePort
  clusterIP: 10.96.0.1
  internalTrafficPolicy: Local
  externalTrafficPolicy: Local
  ports: [{name: a, port: 80, nodePort: 30080}, {name: b, port: 81, nodePort: 30081}]
---
apiVersion: v1
kind: Service
metadata: {name: here, namespace: shop}
spec: {clusterIP: 10.96.0.2, internalTrafficPolicy: Local, ports: [{port: 80}]}
---
apiVersion: v1
kind: Service
metadata: {name: empty, namespace: shop}
spec: {clusterIP: 10.96.0.3, internalTrafficPolicy: Local, ports: [{port: 80}]}
---
apiVersion: discovery.k8s.io/v1
kind: EndpointSlice
metadata: {name: both-1, namespace: shop, labels: {kubernetes.io/service-name: both}}
addressType: IPv4
ports: [{name: a, port: 8080}, {name: b, port: 8081}]
endpoints: [{addresses: [10.244.1.1], nodeName: node-1}]
---
apiVersion: discovery.k8s.io/v1
kind: EndpointSlice
metadata: {name: here-1, namespace: shop, labels: {kubernetes.io/service-name: here}}
addressType: IPv4
ports: [{port: 8080}]
endpoints: [{addresses: [10.244.0.1], nodeName: node-0}]
"""
    cluster = load_manifests(("-",), text)
    from kproxy.api.kubeproxyconfig.types import KubeProxyConfiguration

    options = render_options(KubeProxyConfiguration(), IPFamily.IPV4, "node-0", None, None)
    return ServiceState.of(IPFamily.IPV4, "node-0", cluster.services, cluster.endpoint_slices), options


@pytest.fixture(scope="module")
def ours() -> dict[str, Family]:
    return parse_metrics(after_one_sync().text())


@pytest.fixture(scope="module")
def theirs() -> dict[str, Family]:
    return parse_metrics(recorded_reply("GET :10249/metrics").body)


def test_every_recorded_family_is_there_or_in_the_limits(ours: dict[str, Family], theirs: dict[str, Family]) -> None:
    missing = theirs.keys() - ours.keys()
    limits = LIMITS.read_text()
    assert {name for name in missing if f"`{name}`" not in limits} == set()
    assert not [name for name in missing if name.startswith("kubeproxy_")]


def test_our_own_are_described(ours: dict[str, Family]) -> None:
    page = (paths.ROOT / "docs" / "observability.md").read_text()
    own = {name for name in ours if name.startswith("kproxy_")}
    assert len(own) > 5
    assert {name for name in own if f"| `{name}`" not in page and f", `{name}` |" not in page} == set()


def test_types_are_kube_proxys(ours: dict[str, Family], theirs: dict[str, Family]) -> None:
    both = ours.keys() & theirs.keys()
    assert len(both) >= 20
    assert {name: ours[name].kind for name in both} == {name: theirs[name].kind for name in both}


def test_samples_and_labels_are_kube_proxys(ours: dict[str, Family], theirs: dict[str, Family]) -> None:
    for name, family in theirs.items():
        if name in ours and family.samples:
            assert ours[name].label_names() == family.label_names(), name


def test_buckets_are_kube_proxys(ours: dict[str, Family], theirs: dict[str, Family]) -> None:
    for name in ours.keys() & theirs.keys():
        assert ours[name].buckets() == theirs[name].buckets(), name
    assert ours["kubeproxy_sync_proxy_rules_duration_seconds"].buckets()[-2:] == ["16.384", "+Inf"]


def test_values(ours: dict[str, Family], theirs: dict[str, Family]) -> None:
    """What depends on counts alone is what was recorded for the same counts."""
    for name in ("service_changes_total", "endpoint_changes_total", "iptables_total", "iptables_last"):
        full = f"kubeproxy_sync_proxy_rules_{name}"
        mine = {key: value for key, value in ours[full].samples.items() if "IPv6" not in dict(key[1]).values()}
        assert mine == {key: theirs[full].samples[key] for key in mine}
    for name in ("kubeproxy_proxy_healthz_total", "kubeproxy_proxy_livez_total"):
        assert ours[name].samples == theirs[name].samples


def test_another_parser_reads_it() -> None:
    text = after_one_sync().text()
    found = {family.name: family for family in text_string_to_metric_families(text)}
    assert found["kubeproxy_sync_proxy_rules_service_changes"].samples[0].value == 4
    assert all(family.documentation for family in found.values())


def test_lookups_happen_at_the_scrape(ours: dict[str, Family]) -> None:
    def value(name: str, *labels: tuple[str, str]) -> str:
        return ours[name].samples[(name, labels)]

    assert value("kubeproxy_sync_proxy_rules_service_changes_pending") == "3"
    assert value("kubeproxy_sync_proxy_rules_endpoint_changes_pending") == "4"
    assert value("kubeproxy_iptables_ct_state_invalid_dropped_packets_total") == "7"
    assert value("kproxy_health_check_node_ports") == "2"
    assert value("kproxy_health_check_node_ports_failed") == "1"
    no_local = "kubeproxy_sync_proxy_rules_no_local_endpoints_total"
    assert value(no_local, ("ip_family", "IPv4"), ("traffic_policy", "external")) == "1"


def test_services_without_local_endpoints() -> None:
    """A Service counts once, whatever its ports; one without any endpoint does not count."""
    assert no_local_endpoints(*lonely_cluster()) == {"internal": {"shop/both"}, "external": {"shop/both"}}


def test_failures_are_full_or_partial() -> None:
    """kube-proxy falls back to a full restore after a failure, and starts with one."""
    metrics = Metrics()
    full = "kubeproxy_sync_proxy_rules_iptables_restore_failures_total"
    partial = "kubeproxy_sync_proxy_rules_iptables_partial_restore_failures_total"

    def counts() -> tuple[float, float]:
        families = parse_metrics(metrics.text())
        labels = (("ip_family", "IPv4"),)
        return tuple(float(families[name].samples.get((name, labels), 0)) for name in (full, partial))  # type: ignore[return-value]

    def fail(check: bool = False) -> None:
        metrics.failed(SyncFailed(IPFamily.IPV4, check, "refused"))

    fail()
    assert counts() == (1, 0)
    metrics.synced(done(IPFamily.IPV4))
    fail()
    assert counts() == (1, 1)
    fail()
    assert counts() == (2, 1)
    metrics.synced(done(IPFamily.IPV4, full=False))
    fail(check=True)
    assert counts() == (3, 1)
    failing = parse_metrics(metrics.text())["kproxy_sync_failing"]
    assert failing.samples == {("kproxy_sync_failing", (("ip_family", "IPv4"),)): "1"}


def test_changes_of_a_failed_sync_count() -> None:
    metrics = Metrics()
    metrics.failed(SyncFailed(IPFamily.IPV4, False, "refused", service_changes=2, slice_changes=3))
    metrics.failed(SyncFailed(IPFamily.IPV6, False, "refused", service_changes=2, slice_changes=3))
    metrics.synced(done(IPFamily.IPV4, service_changes=0, slice_changes=1))
    families = parse_metrics(metrics.text())
    sync = "kubeproxy_sync_proxy_rules"
    for name, count in ((f"{sync}_service_changes_total", "4"), (f"{sync}_endpoint_changes_total", "4")):
        assert families[name].samples == {(name, ()): count}


def test_network_programming_latency() -> None:
    """From the annotation's time to the sync; a clock ahead of ours counts as no time, nonsense not at all."""
    metrics = Metrics(wall=lambda: NOW)
    times = tuple(datetime.fromtimestamp(NOW - ago, UTC).isoformat().replace("+00:00", "Z") for ago in (0.3, 2.5, -60))
    metrics.synced(done(IPFamily.IPV4, full=False, trigger_times=(*times, "yesterday", "2026-01-01T00:00:00")))
    name = "kubeproxy_network_programming_duration_seconds"
    family = parse_metrics(metrics.text())[name]
    values = {dict(labels).get("le", sample): value for (sample, labels), value in family.samples.items()}
    assert values[f"{name}_count"] == "3"
    assert (values["0"], values["0.25"], values["0.5"], values["2"], values["3"]) == ("1", "1", "2", "2", "3")
    assert family.buckets()[:4] == ["0", "0.25", "0.5", "1"]
    assert family.buckets()[-4:] == ["240", "270", "300", "+Inf"]
    assert len(family.buckets()) == 82


def test_numbers_are_gos() -> None:
    """Whole ones without a fraction, as values and as bounds of buckets; texts are left as they are."""
    metrics = Metrics(wall=lambda: NOW)
    metrics.observe("request size", 3_000_000, "GET", "10.0.0.0")
    metrics.observe("request", 0.5, "GET", "10.0.0.0")
    metrics.count("requests", "200", "GET", '1.0" 1.0')
    lines = metrics.text().splitlines()
    assert 'rest_client_request_size_bytes_bucket{host="10.0.0.0",le="64",verb="GET"} 0' in lines
    assert 'rest_client_request_size_bytes_bucket{host="10.0.0.0",le="4.194304e+06",verb="GET"} 1' in lines
    assert 'rest_client_request_duration_seconds_sum{host="10.0.0.0",verb="GET"} 0.5' in lines
    assert 'rest_client_requests_total{code="200",host="1.0\\" 1.0",method="GET"} 1' in lines


@pytest.mark.root
def test_nfacct_counters_of_the_kernel() -> None:
    """Packets that a rule counts in the kernel are what the metric says."""
    with Namespace.scratch() as namespace:
        assert nfacct.read_packets(namespace) == {}
        nfacct.ensure_counters(namespace)
        name = nfacct.NFACCT_NAMES[1]
        for command in (
            ["ip", "link", "set", "lo", "up"],
            ["iptables", "-A", "OUTPUT", "-p", "udp", "--dport", "9", "-m", "nfacct", "--nfacct-name", name],
        ):
            namespace.call(subprocess.run, command, check=True, capture_output=True)
        with namespace.call(socket.socket, socket.AF_INET, socket.SOCK_DGRAM) as sender:
            for _ in range(3):
                sender.sendto(b"counted", ("127.0.0.1", 9))
        assert nfacct.read_packets(namespace) == {nfacct.NFACCT_NAMES[0]: 0, name: 3}


def test_nftables_mode_has_its_own_counters_of_failures() -> None:
    metrics = Metrics(Asked(), nftables=True)
    report = SyncReport(full=True, touched=frozenset(), cleanup_failures=2)
    metrics.synced(SyncDone(IPFamily.IPV4, report, 0.08))
    metrics.failed(SyncFailed(IPFamily.IPV4, True, "made up"))
    found = parse_metrics(metrics.text())
    sync = "kubeproxy_sync_proxy_rules"
    values = {
        name: {dict(labels)["ip_family"]: value for (_, labels), value in found[f"{sync}_{name}"].samples.items()}
        for name in ("nftables_sync_failures_total", "nftables_cleanup_failures_total")
    }
    assert values == {
        "nftables_sync_failures_total": {"IPv4": "1"},
        "nftables_cleanup_failures_total": {"IPv4": "2"},
    }
    assert not [name for name in found if "_iptables_" in name and name.startswith(sync)]
