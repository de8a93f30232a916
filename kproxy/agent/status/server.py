"""Everything that an agent shows of itself, put together: health, metrics, health-check node ports, debug pages.

`serve_status` makes the observer that the proxiers report to, and serves the ports. What a scrape or a debug page needs
besides is read from the agent at each request.
"""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING

from kproxy.agent.proxy.host import open_namespace
from kproxy.agent.proxy.observer import SyncDone, SyncFailed, SyncObserver
from kproxy.agent.run import Agent
from kproxy.agent.status.collect import NodeCollection, guarded
from kproxy.agent.status.health import ProxyHealth, node_eligible
from kproxy.agent.status.metrics import Metrics
from kproxy.agent.status.ports import Pages, serve
from kproxy.agent.status.service_health import EVERYWHERE, ServiceHealthServer
from kproxy.api.kubeproxyconfig.configz import configz_json
from kproxy.api.kubeproxyconfig.types import MODE_NFTABLES
from kproxy.cluster.snapshot.script import COLLECT
from kproxy.errors import InputError
from kproxy.httpd.server import Handler, HttpServers, open_socket
from kproxy.linux.errors import LinuxError
from kproxy.linux.host.facts import interface_addresses
from kproxy.linux.iptables import nfacct
from kproxy.linux.namespace import Namespace
from kproxy.linux.sync.backend import node_options
from kproxy.render import Features, RenderOptions
from kproxy.services import IPFamily, ServiceState

if TYPE_CHECKING:
    from kproxy.agent.status.debug import TraceText
    from kproxy.cluster.rules import HostRules


class Telemetry:
    """Passes the proxiers' reports on to metrics, health and the health-check node ports. A SyncObserver."""

    def __init__(self, metrics: Metrics, health: ProxyHealth, ports: Mapping[IPFamily, ServiceHealthServer]) -> None:
        self._metrics = metrics
        self._health = health
        self._ports = ports

    def queued(self, family: IPFamily) -> None:
        """See SyncObserver."""
        self._health.queued(family)
        self._metrics.queued(family)

    def synced(self, done: SyncDone) -> None:
        """See SyncObserver."""
        self._health.updated(done.family)
        self._metrics.synced(done)
        self._ports[done.family].sync(done.health_check_ports, done.local_endpoints)

    def failed(self, failure: SyncFailed) -> None:
        """See SyncObserver."""
        self._health.failed(failure.family, failure.error)
        self._metrics.failed(failure)


class AgentSources:
    """What is looked up at a scrape. See `metrics.Sources`."""

    def __init__(self, agent: Agent, namespace: Namespace, ports: Mapping[IPFamily, ServiceHealthServer]) -> None:
        self._agent = agent
        self._namespace = namespace
        self._ports = ports

    def pending(self) -> tuple[int, int]:
        """See Sources."""
        sizes = [member.proxier.inbox.sizes() for member in self._agent.members]
        return sum(services for services, _ in sizes), sum(slices for _, slices in sizes)

    def snapshots(self) -> Iterable[tuple[ServiceState, RenderOptions]]:
        """See Sources."""
        return [member.proxier.snapshot() for member in self._agent.members if member.proxier.has_synced]

    def health_check_ports(self) -> tuple[int, int]:
        """See Sources."""
        servers = self._ports.values()
        served = frozenset[int]().union(*(each.open_ports for each in servers))
        failed = frozenset[int]().union(*(each.failed_ports for each in servers))
        return len(served), len(failed)

    def counted_packets(self) -> Mapping[str, int]:
        """See Sources."""
        if not any(member.host.counts_packets for member in self._agent.members):
            return {}
        return nfacct.read_packets(self._namespace)


@contextlib.contextmanager
def serve_status(agent: Agent, trace_text: TraceText | None = None) -> Iterator[SyncObserver]:
    """Serves an agent's ports while the context is open, in the namespace that it programs.

    Raises:
        KproxyError: with bindAddressHardFail, a port cannot be bound.
    """
    settings = agent.settings
    with contextlib.ExitStack() as stack:
        # Of their own: the proxiers' namespaces are busy during a sync.
        namespace = stack.enter_context(open_namespace(settings.netns))
        looking = stack.enter_context(open_namespace(settings.netns))
        health = ProxyHealth(
            2 * settings.sync_period, eligible=lambda: node_eligible(agent.meta_proxier.node), unready=agent.unready
        )
        servers = stack.enter_context(HttpServers(lambda *address: namespace.call(open_socket, *address)))
        ports = {
            family: ServiceHealthServer(
                servers, health.is_healthy, functools.partial(health_addresses, agent, looking, family)
            )
            for family in IPFamily
        }
        for each in ports.values():
            stack.callback(each.close)
        metrics = Metrics(nftables=settings.config.mode == MODE_NFTABLES)
        metrics.watch(AgentSources(agent, looking, ports))
        agent.requests.attach(metrics)
        pages = Pages(
            health,
            metrics,
            settings.config.mode,
            lambda: configz_json(settings.config),
            {
                **_debug_pages(agent, looking, trace_text),
                COLLECT: guarded(NodeCollection(settings).answer, settings.collect_token_file),
            },
        )
        for served in serve(
            servers,
            pages,
            settings.config.healthz_bind_address,
            settings.config.metrics_bind_address,
            hard_fail=settings.config.bind_address_hard_fail,
        ):
            if served is not None:
                stack.callback(served.close)
        yield Telemetry(metrics, health, ports)


def health_addresses(agent: Agent, namespace: Namespace, family: IPFamily) -> tuple[str, ...]:
    """Where a family's health-check node ports listen: on its node-port addresses, as kube-proxy chooses them."""
    if not agent.settings.config.node_ports_on:
        return EVERYWHERE[family]
    try:
        options = node_options(agent.settings.config, agent.meta_proxier.target, namespace, family, Features())
        if options.node_port_addresses.match_all:
            return EVERYWHERE[family]
        return tuple(options.node_port_addresses.matching(interface_addresses(namespace, family)))
    except (LinuxError, InputError):
        return EVERYWHERE[family]  # as kube-proxy when it cannot tell


def _debug_pages(agent: Agent, namespace: Namespace, trace_text: TraceText | None) -> Mapping[str, Handler]:
    """/debug/rules and /debug/trace; what they need of the model is imported with the first request, not at start."""

    @functools.cache
    def pages() -> Mapping[str, Handler]:
        from kproxy.agent.status.debug import debug_pages
        from kproxy.linux.host.facts import read_host

        return debug_pages(
            lambda: [member.proxier for member in agent.members],
            lambda family: _kernel_rules(agent, namespace, family),
            lambda: read_host(namespace),
            agent.settings.netns or agent.settings.node_name,
            trace_text,
        )

    return {
        path: guarded(lambda request, path=path: pages()[path](request))  # type: ignore[misc]
        for path in ("/debug/rules", "/debug/trace")
    }


def _kernel_rules(agent: Agent, namespace: Namespace, family: IPFamily) -> HostRules:
    from kproxy.linux.host.rules import read_host_rules

    member = next(member for member in agent.members if member.host.family is family)
    where = agent.settings.netns or agent.settings.node_name
    variant = member.host.variant
    return read_host_rules(namespace, where, variant, nft=variant is None, families=(family,))
