"""The whole agent but its threads, against a faulty API server and a faulty kernel, in simulated time.

Real: the informers' state machines and decoders, the MetaProxier, the inboxes, the runners, the proxiers, the syncers.
Simulated: the server (`tests.support.fakeapi.storage`), the kernel (`tests.support.linux.fake` and `nft_memory`), the
clock. A seed and the proxy mode decide everything.
"""

from __future__ import annotations

import json
from collections import Counter
from typing import Any

import msgspec

from kproxy.agent.proxy.node import MetaProxier, NodeFamily
from kproxy.agent.proxy.observer import SyncDone, SyncFailed
from kproxy.agent.proxy.proxier import FamilyProxier
from kproxy.agent.proxy.runner import BoundedFrequencyRunner
from kproxy.agent.sources.apiserver import KeyedHandler
from kproxy.api.kubeproxyconfig.types import MODE_IPTABLES, MODE_NFTABLES, KubeProxyConfiguration
from kproxy.client.resources import ENDPOINT_SLICES, NODES, SERVICES
from kproxy.informer import ReflectorOptions, ResourceEventHandlerFuncs
from kproxy.informer.shared import Listener
from kproxy.linux.iptables.executor import Iptables
from kproxy.linux.namespace import Namespace
from kproxy.linux.nftables.table import TableDifference, TableText
from kproxy.linux.sync.family_syncer import FamilySyncer
from kproxy.linux.sync.iptables.backend import HostFamily, Syncer
from kproxy.linux.sync.iptables.desired import Difference, desired_rules, find_difference
from kproxy.linux.sync.iptables.reconcile import read_dump
from kproxy.linux.sync.nftables.backend import TableFamily, TableSyncer
from kproxy.linux.sync.nftables.desired import table_text
from kproxy.linux.sync.nftables.reconcile import find_table_difference
from kproxy.netfilter.hooks import Variant
from kproxy.render import Features, RenderedTarget, Renderer, RenderOptions
from kproxy.render.nftables.renderer import Renderer as TableRenderer
from kproxy.services import IPFamily, ServiceState
from tests.support.agent.kernel import FaultyKernel, FaultyTables
from tests.support.fakeapi.storage import KINDS, Json
from tests.support.informer.watcher import FaultyServer, Watcher
from tests.support.linux.nft_memory import NFT

NODE = "node-0"
SERVICE, SLICE, NODE_KIND = (
    next(kind for kind in KINDS if kind.kind == name) for name in ("Service", "EndpointSlice", "Node")
)
SYNC_PERIOD = 10.0
MIN_SYNC_PERIOD = 1.0
CONFIG = KubeProxyConfiguration(detect_local_mode="NodeCIDR")


class Raising:
    """An observer that fails now and then: a bug in what counts must not stop what programs."""

    def __init__(self, world: World) -> None:
        self._world = world
        self.syncs: Counter[int] = Counter()
        self.failures = 0
        self.drifts = 0

    def queued(self, family: IPFamily) -> None: ...

    def synced(self, done: SyncDone) -> None:
        self.syncs[int(self._world.now // 60)] += 1
        self.drifts += bool(done.drift)
        if self._world.fault("observer"):
            raise RuntimeError("an observer that raises")

    def failed(self, failure: SyncFailed) -> None:
        self.syncs[int(self._world.now // 60)] += 1
        self.failures += 1


class World(FaultyServer):
    """See the module."""

    def __init__(
        self,
        seed: int,
        mode: str = MODE_IPTABLES,
        *,
        faults_until: float = 180.0,
        writes_until: float = 190.0,
        rate: float = 0.12,
        pace: float = 1.0,
    ) -> None:
        super().__init__(seed, faults_until, writes_until, rate, pace)
        self.family = self.random.choice((IPFamily.IPV4, IPFamily.IPV4, IPFamily.IPV6))
        self.last_drift = 0.0
        options = ReflectorOptions(page_size=self.random.choice((2, 5, 500)), watch_list=self.random.random() < 0.7)
        self.services = Watcher(self, SERVICES, options)
        self.slices = Watcher(self, ENDPOINT_SLICES, options)
        self.nodes = Watcher(self, NODES, options)
        self.watchers = (self.services, self.slices, self.nodes)
        self.config = msgspec.structs.replace(CONFIG, mode=mode)
        self.kernel: FaultyKernel | FaultyTables
        self.observer = Raising(self)
        self.meta_proxier = MetaProxier(self.config, NODE)
        self.proxier = self._make_proxier()
        self._handlers()
        for _ in range(self.random.randrange(12)):
            self.write()
        self.next_drift = self.random.uniform(5, 30)
        self.synced = False

    def run(self, until: float) -> None:
        """Goes on until this time, or a little later."""
        proxier_wake = self.now
        while self.now < until:
            for watcher in self.watchers:
                if watcher.wake <= self.now:
                    watcher.go_on()
            self._deliver()
            # The proxier's thread wakes up at every request; looking often is the same.
            seconds = self.proxier.step()
            proxier_wake = self.now + (1.0 if seconds is None else min(max(seconds, 0.001), 1.0))
            wakes = [watcher.wake for watcher in self.watchers]
            self._advance(max(self.now, min(*wakes, proxier_wake, self.now + 1.0)))

    def difference(self) -> Difference | TableDifference:
        """How the kernel differs from a fresh rendering of the server's state; false if it does not.

        In nftables mode chains may wait for their deletion that nothing leads to and that are empty.
        """
        if isinstance(self.kernel, FaultyTables):
            desired = self.desired_table()
            found = find_table_difference(desired, self.kernel.held(desired))
            rules = found.before.rules if found.before is not None else {}
            stale = tuple(chain for chain in found.change.stale_chains if rules.get(chain))
            return msgspec.structs.replace(found, change=msgspec.structs.replace(found.change, stale_chains=stale))
        state, options = self._wanted()
        wanted = desired_rules(RenderedTarget.of(state, options))
        return find_difference(wanted, read_dump(self.kernel.memory, counters=False))

    def desired_table(self) -> TableText:
        """The table as the server's state wants it."""
        state, options = self._wanted()
        renderer = TableRenderer(options)
        renderer.render(state)
        return table_text(renderer)

    def _wanted(self) -> tuple[ServiceState, RenderOptions]:
        objects = self.storage.objects.items()
        decode: dict[str, Any] = {SERVICE.qualified: SERVICES.codec, SLICE.qualified: ENDPOINT_SLICES.codec}
        found: dict[str, list[Any]] = {SERVICE.qualified: [], SLICE.qualified: []}
        for (qualified, _), value in objects:
            if qualified in decode:
                found[qualified].append(decode[qualified].decode(json.dumps(value).encode()))
        state = ServiceState.of(self.family, NODE, found[SERVICE.qualified], found[SLICE.qualified])
        # The MetaProxier says which Node counts: a Node that was deleted stays in force.
        return state, self.host.options(self.config, self.meta_proxier.target)

    def _make_proxier(self) -> FamilyProxier:
        here = Namespace.current()
        syncer: FamilySyncer
        self.host: HostFamily | TableFamily
        if self.config.mode == MODE_NFTABLES:
            tables = self.kernel = FaultyTables(self, self.family)
            self.host = TableFamily(self.family, here, NFT)
            options = self.host.options(self.config, self.meta_proxier.target)
            syncer = TableSyncer(tables, ServiceState(self.family, NODE), options, clock=lambda: self.now)
        else:
            kernel = self.kernel = FaultyKernel(self, self.family)
            iptables = Iptables(self.family, Variant.NFT, "", "", (1, 8, 9))
            canaries = ("mangle", "nat", "filter")
            self.host = HostFamily(self.family, here, iptables, Features(), None, canaries, False, 5.0)
            renderer = Renderer(self.host.options(self.config, self.meta_proxier.target))
            syncer = Syncer(kernel, ServiceState(self.family, NODE), renderer)
        runner = BoundedFrequencyRunner(MIN_SYNC_PERIOD, SYNC_PERIOD, self.random.random)
        return FamilyProxier(
            self.family, syncer, lambda: self.kernel.generation, runner, lambda: self.clock, self.observer
        )

    def _handlers(self) -> None:
        def fail(*_items: object) -> None:
            raise RuntimeError("a handler that raises")

        raising = ResourceEventHandlerFuncs(add=fail, update=fail, delete=fail)
        meta_proxier = self.meta_proxier
        self.listeners: list[Listener[Any]] = [
            self.services.informer.add_listener(KeyedHandler(meta_proxier.put_service)),
            self.slices.informer.add_listener(KeyedHandler(meta_proxier.put_slice)),
            self.nodes.informer.add_listener(KeyedHandler(lambda _key, node: meta_proxier.put_node(node))),
        ]
        for watcher in self.watchers:
            watcher.informer.add_listener(raising)
        self.attach_at: float | None = self.random.uniform(0, 3)

    def _deliver(self) -> None:
        for watcher in self.watchers:
            for listener in watcher.informer.listeners:
                while (notification := listener.next()) is not None:
                    try:
                        notification.deliver(listener.handler)
                    except RuntimeError:
                        assert listener not in self.listeners
                    listener.done(notification)
        if self.attach_at is not None and self.now >= self.attach_at:
            self.attach_at = None
            self.meta_proxier.attach([NodeFamily(self.host, self.proxier)])
        if not self.synced and all(
            watcher.informer.listener_has_synced(listener)
            for watcher, listener in zip(self.watchers, self.listeners, strict=True)
        ):
            self.synced = True
            self.meta_proxier.source_synced()
        if not self.synced:
            assert self.kernel.restores == 0, "programmed before the caches had synced"

    def _advance(self, to: float) -> None:
        self.write_until(to)
        if self.next_drift <= to and self.next_drift < self.faults_until:
            self.next_drift = to + self.random.uniform(5, 40)
            if self.kernel.drift():
                self.last_drift = to
        self.now = max(self.now, to)

    def write(self) -> None:
        self.remember()
        what = self.random.random()
        if what < 0.45:
            self._write_slice()
        elif what < 0.92:
            self._write_service()
        else:
            self._write_node()
        if (NODE_KIND.qualified, NODE) not in self.storage.objects:
            self._write_node()

    def _write_service(self) -> None:
        number = self.random.randrange(8)
        key = f"shop/s{number}"
        if (SERVICE.qualified, key) in self.storage.objects and self.random.random() < 0.4:
            self.storage.delete(SERVICE, key)
            return
        ip = f"10.96.0.{number + 1}" if self.family is IPFamily.IPV4 else f"fd00:96::{number + 1}"
        ports = [
            {"name": "p", "port": self.random.randrange(1, 100), "protocol": self.random.choice(("TCP", "UDP"))},
            {"name": "q", "port": 443, "protocol": "TCP"},
        ]
        body: Json = {
            "metadata": {"name": f"s{number}", "namespace": "shop"},
            "spec": {
                "type": "ClusterIP",
                "clusterIP": ip,
                "clusterIPs": [ip],
                "ports": ports[: self.random.randrange(1, 3)],
                "sessionAffinity": "None",
                "internalTrafficPolicy": self.random.choice(("Cluster", "Local")),
            },
        }
        if self.random.random() < 0.3:
            body["spec"]["type"] = "NodePort"
            body["spec"]["externalTrafficPolicy"] = self.random.choice(("Cluster", "Local"))
            for index, port in enumerate(body["spec"]["ports"]):
                port["nodePort"] = 30000 + 2 * number + index
        self.storage.put(SERVICE, body)

    def _write_slice(self) -> None:
        number, piece = self.random.randrange(8), self.random.randrange(2)
        key = f"shop/s{number}-{piece}"
        if (SLICE.qualified, key) in self.storage.objects and self.random.random() < 0.3:
            self.storage.delete(SLICE, key)
            return
        prefix = "10.244.0." if self.family is IPFamily.IPV4 else "fd00:244::"
        owner = number if self.random.random() < 0.9 else self.random.randrange(8)
        endpoints = [
            {
                "addresses": [f"{prefix}{20 * number + index + 1}"],
                "conditions": {"ready": self.random.random() < 0.8},
                "nodeName": self.random.choice((NODE, "node-1")),
            }
            for index in range(self.random.randrange(4))
        ]
        body = {
            "metadata": {
                "name": f"s{number}-{piece}",
                "namespace": "shop",
                "labels": {"kubernetes.io/service-name": f"s{owner}"},
            },
            "addressType": self.family.value,
            "endpoints": endpoints,
            "ports": [{"name": name, "port": 8080, "protocol": "TCP"} for name in ("p", "q")],
        }
        self.storage.put(SLICE, body)

    def _write_node(self) -> None:
        if (NODE_KIND.qualified, NODE) in self.storage.objects and self.random.random() < 0.2:
            self.storage.delete(NODE_KIND, NODE)
            return
        cidr = self.random.choice(("10.244.0.0/24", "10.244.1.0/24") if self.family is IPFamily.IPV4 else
                                  ("fd00:244::/64", "fd00:245::/64"))  # fmt: skip
        zone = self.random.choice(("a", "b"))
        body = {
            "metadata": {"name": NODE, "labels": {"topology.kubernetes.io/zone": zone}},
            "spec": {"podCIDR": cidr, "podCIDRs": [cidr]},
            "status": {"addresses": [{"type": "InternalIP", "address": "192.168.0.2"}]},
        }
        self.storage.put(NODE_KIND, body)
