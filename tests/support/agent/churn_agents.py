"""Proxies that churn is compared on: every detector and both variants beside one another, all on one API server."""

from __future__ import annotations

import contextlib
import os
import threading
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Final

import msgspec

from kproxy.agent.config.options import Settings
from kproxy.agent.proxy.node import NodeFamily
from kproxy.agent.proxy.observer import NoObserver, SyncDone, SyncFailed, SyncObserver
from kproxy.agent.run import Agent
from kproxy.agent.sources.apiserver import NOT_HEADLESS, OURS, WITH_CLUSTER_IP, ApiSource
from kproxy.api import EndpointSlice, KubeProxyConfiguration, Node, Service
from kproxy.api.kubeproxyconfig.duration import Duration
from kproxy.api.kubeproxyconfig.types import DetectLocal, IPTables
from kproxy.client import ENDPOINT_SLICES, SERVICES, RestClient
from kproxy.linux.iptables.executor import Executor
from kproxy.linux.namespace import Namespace
from kproxy.linux.sync.iptables.backend import HostFamily
from kproxy.linux.sync.iptables.desired import DesiredRules, Difference, desired_rules, find_difference
from kproxy.linux.sync.iptables.reconcile import describe, read_dump
from kproxy.netfilter.hooks import Variant
from kproxy.render import Features, RenderedTarget, render_options
from kproxy.services import IPFamily, ServiceState
from kproxy.services.endpoints import Endpoint, endpoints_of_service, service_key_of
from tests.support.agent.churn import NODE, Churn
from tests.support.kernel.namespaces import fresh_namespace

FIRST: Final = int(os.environ.get("KPROXY_CHURN_FIRST", "0"))
SEEDS: Final = int(os.environ.get("KPROXY_CHURN_SEEDS", "2"))
OPERATIONS: Final = int(os.environ.get("KPROXY_CHURN_OPERATIONS", "100"))
"""What tests run; `make test-churn` sets them."""

PATIENCE: Final = 180.0
"""Seconds until a proxy that is still busy counts as one that never settles."""

STRIKES: Final = 200
"""Looks, 50 ms apart, at which a proxy that has nothing left to do holds other rules than it should."""


def configurations() -> dict[str, KubeProxyConfiguration]:
    """One for each way to detect local traffic, with periods of their own."""

    def made(minimum: str, period: str = "24h", **fields: Any) -> KubeProxyConfiguration:
        # Most of them check later than any run ends: what a change leaves wrong shall stay wrong.
        iptables = IPTables(min_sync_period=Duration.of(minimum), sync_period=Duration.of(period))
        return KubeProxyConfiguration(iptables=iptables, healthz_bind_address="", metrics_bind_address="", **fields)

    return {
        "ClusterCIDR": made("1ms", cluster_cidr="10.244.0.0/16,fd00:10:244::/48"),
        "NodeCIDR": made("30ms", detect_local_mode="NodeCIDR"),
        "BridgeInterface": made(
            "300ms", "2s", detect_local_mode="BridgeInterface", detect_local=DetectLocal(bridge_interface="cni0")
        ),
        "InterfaceNamePrefix": made(
            "1ms", detect_local_mode="InterfaceNamePrefix", detect_local=DetectLocal(interface_name_prefix="veth")
        ),
    }


class Recorder(NoObserver):
    """What the proxiers told."""

    def __init__(self) -> None:
        self.syncs = 0
        self.failures: list[str] = []
        self.drift: list[str] = []

    def synced(self, done: SyncDone) -> None:
        self.syncs += 1
        if done.drift:
            self.drift.append(done.drift)

    def failed(self, failure: SyncFailed) -> None:
        self.failures.append(failure.error)


class Proxy:
    """A running proxy, and what it programs."""

    def __init__(self, name: str, config: KubeProxyConfiguration, variant: Variant) -> None:
        self.name = f"{name} {variant.value}"
        self.mode = name
        self.config = config
        self.variant = variant
        self.recorder = Recorder()
        self.members: Sequence[NodeFamily] = ()
        self.source: ApiSource | None = None
        self.executors: dict[IPFamily, Executor] = {}

    @property
    def watched(self) -> list[tuple[Any, Any]]:
        """Informers and the registrations at them."""
        return self.source._watched if self.source is not None else []

    def busy(self, cluster: Cluster) -> str:
        """What it has still to do, in words; "" for nothing."""
        for informer, registration in self.watched:
            known = {each.metadata.key: each.metadata.resource_version for each in informer.indexer.list()}
            wanted = cluster.versions.get(informer.resource.plural)
            if wanted is not None and known != wanted:
                return f"{informer.resource.plural} are not as the server has them: {_first_difference(known, wanted)}"
            if len(registration._listener):
                return f"a handler of {informer.resource.plural} has not been called"
        for member in self.members:
            proxier = member.proxier
            if any(proxier.inbox.sizes()):
                return f"{proxier.family.value}: {proxier.inbox.sizes()} wait"
            with proxier._wake:
                if proxier._runner._requested or proxier._runner._running or proxier._options:
                    return f"{proxier.family.value}: a sync is due or under way"
        return "" if self.members else "it has not started"


def _first_difference(known: dict[str, str], wanted: dict[str, str]) -> str:
    key = min(key for key in known.keys() | wanted.keys() if known.get(key) != wanted.get(key))
    return f"{key} is {known.get(key)}, should be {wanted.get(key)}"


class Cluster(msgspec.Struct, frozen=True):
    """What the server holds, at a version."""

    version: str
    services: tuple[Service, ...]
    slices: tuple[EndpointSlice, ...]
    node: Node | None
    versions: dict[str, dict[str, str]]

    @classmethod
    def read(cls, client: RestClient, node: Node | None) -> Cluster:
        """Now."""
        services = client.list(SERVICES, label_selector=OURS, field_selector=WITH_CLUSTER_IP)
        found = client.list(ENDPOINT_SLICES, label_selector=NOT_HEADLESS)
        versions = {
            "services": {each.metadata.key: each.metadata.resource_version for each in services.items},
            "endpointslices": {each.metadata.key: each.metadata.resource_version for each in found.items},
        }
        return cls(found.resource_version, tuple(services.items), tuple(found.items), node, versions)

    def contradictions(self) -> int:
        """ServicePorts with an endpoint that slices say different things of, so that their order counts.

        kube-proxy walks the slices of a Service in the random order of a Go map, so there chance decides, anew with
        every change of one of them.
        """
        count = 0
        for family in IPFamily:
            by_service: dict[str, list[EndpointSlice]] = {}
            for each in self.slices:
                if owner := service_key_of(each, family):
                    by_service.setdefault(owner, []).append(each)
            for owner, found in by_service.items():
                orders = (sorted(found, key=lambda each: each.metadata.key, reverse=turn) for turn in (False, True))
                one, other = (
                    endpoints_of_service(owner, {f"{at:04}": each for at, each in enumerate(order)}, family, NODE)
                    for order in orders
                )
                count += sum(_said(one[name]) != _said(other[name]) for name in one)
        return count

    def wanted(self, config: KubeProxyConfiguration, family: IPFamily, features: Features) -> DesiredRules:
        """A fresh rendering."""
        options = render_options(config, family, NODE, self.node, features)
        state = ServiceState.of(family, NODE, self.services, self.slices)
        return desired_rules(RenderedTarget.of(state, options))


def _said(endpoints: Sequence[Endpoint]) -> list[Endpoint]:
    return [msgspec.structs.replace(each, slice="") for each in endpoints]


@contextlib.contextmanager
def kernel_proxy(kubeconfig: Path, name: str, config: KubeProxyConfiguration, variant: Variant) -> Iterator[Proxy]:
    """`kproxy run`'s agent in a network namespace of its own."""
    proxy = Proxy(name, config, variant)
    connection = msgspec.structs.replace(config.client_connection, kubeconfig=str(kubeconfig))
    config = msgspec.structs.replace(config, client_connection=connection)

    @contextlib.contextmanager
    def observe(_agent: Agent) -> Iterator[SyncObserver]:
        yield proxy.recorder

    with fresh_namespace() as namespace, contextlib.ExitStack() as stack:
        settings = Settings(config=config, node_name=NODE, netns=namespace, variant=variant)
        agent = Agent(settings, observe=observe)
        codes: list[int] = []
        thread = threading.Thread(target=lambda: codes.append(agent.run()), name=proxy.name, daemon=True)
        thread.start()
        try:
            until = time.monotonic() + PATIENCE
            while not agent.members:
                assert thread.is_alive(), "it ended"
                assert time.monotonic() < until, f"it did not start: {agent.trouble}"
                time.sleep(0.05)
            assert isinstance(agent._source, ApiSource)
            proxy.members, proxy.source = agent.members, agent._source
            entered = stack.enter_context(Namespace.named(namespace))
            for member in agent.members:
                assert isinstance(member.host, HostFamily)
                reader = msgspec.structs.replace(member.host, namespace=entered).executor()
                proxy.executors[member.host.family] = reader
            yield proxy
        finally:
            agent.stop("the test is over")
            thread.join(60)
        assert codes == [0]


class Watchman:
    """Waits until every proxy holds what a fresh rendering of the server's state says, and no longer."""

    def __init__(self, client: RestClient, proxies: Sequence[Proxy]) -> None:
        self._client = client
        self._proxies = proxies
        self.longest = 0.0
        self.comparisons = 0
        self.contradictions = 0

    def settle(self, churn: Churn) -> None:
        """Raises AssertionError with what is wrong."""
        begun = time.monotonic()
        cluster = Cluster.read(self._client, churn.node)
        left = list(self._proxies)
        strikes: dict[str, int] = {}
        while True:
            wrong: dict[str, str] = {}
            wanted: dict[object, DesiredRules] = {}
            still = []
            for proxy in left:
                busy = proxy.busy(cluster)
                if busy:
                    wrong[proxy.name] = busy
                    still.append(proxy)
                    continue
                found = self._differences(proxy, cluster, wanted)
                if found:
                    strikes[proxy.name] = strikes.get(proxy.name, 0) + 1
                    wrong[proxy.name] = f"holds other rules: {'; '.join(map(describe, found))}"
                    still.append(proxy)
            now = Cluster.read(self._client, churn.node)
            if now.versions != cluster.versions:
                cluster, left, strikes = now, list(self._proxies), {}  # a controller has written meanwhile
                continue
            left = still
            lag = "" if left else churn.controller_lag()
            if lag:
                wrong["the slice controller"] = lag
            last = churn.done[-20:]
            assert max(strikes.values(), default=0) < STRIKES, f"stays wrong: {wrong} after {last}"
            assert time.monotonic() - begun < PATIENCE, f"did not settle: {wrong} after {last}"
            if not left and not lag:
                break
            time.sleep(0.05)
        self.contradictions += cluster.contradictions()
        self.longest = max(self.longest, time.monotonic() - begun)

    def _differences(self, proxy: Proxy, cluster: Cluster, wanted: dict[object, DesiredRules]) -> list[Difference]:
        found = []
        for family, executor in proxy.executors.items():
            hosts = [member.host for member in proxy.members if isinstance(member.host, HostFamily)]
            features = next(host.features for host in hosts if host.family is family)
            key = (proxy.mode, family, features)
            if key not in wanted:
                wanted[key] = cluster.wanted(proxy.config, family, features)
            self.comparisons += 1
            difference = find_difference(wanted[key], read_dump(executor, counters=False))
            if difference:
                found.append(difference)
        return found

    def check_quiet(self) -> None:
        """No sync failed, nothing had to be repaired, no watch was lost: nobody disturbed them."""
        for proxy in self._proxies:
            assert proxy.recorder.failures == [], proxy.name
            assert proxy.recorder.drift == [], proxy.name
            for informer, _ in proxy.watched:
                assert informer.metrics.failures == 0, f"{proxy.name}: {informer.last_failure}"


def run_churn(client: RestClient, proxies: Sequence[Proxy], seed: int, operations: int) -> str:
    """One seed; what it came to, in words. Raises AssertionError."""
    churn, watchman = Churn(client, seed), Watchman(client, proxies)
    begun = time.monotonic()
    try:
        churn.begin()
        watchman.settle(churn)
        while len(churn.done) < operations:
            for _ in range(min(churn.random.choice((1, 3, 10, 30)), operations - len(churn.done))):
                churn.step()
            watchman.settle(churn)
        churn.end()
        watchman.settle(churn)
        watchman.check_quiet()
    except AssertionError as error:
        raise AssertionError(f"churn seed {seed}, after {len(churn.done)} operations: {error}") from error
    return (
        f"seed {seed}: {len(churn.done)} operations, {sum(churn.refused.values())} of {churn.requests} writes refused, "
        f"{watchman.comparisons} comparisons, "
        f"{watchman.contradictions} ServicePorts with contradictory slices, longest settling {watchman.longest:.1f} s, "
        f"{time.monotonic() - begun:.0f} s"
    )
