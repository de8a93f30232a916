"""The host that is programmed: which iptables, what its kernel can do, and what kube-proxy sets up once at start.

The set-up (kube-proxy's server_linux.go and conntrack settings): route_localnet for node ports on localhost, the size
and the time-outs of connection tracking, the process's OOM score. Each is logged when it is done, and when it fails.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final

import msgspec

from kproxy.agent.log import event
from kproxy.api.kubeproxyconfig.types import MODE_NFTABLES, Conntrack, KubeProxyConfiguration
from kproxy.cluster.stale_flows import Addresses
from kproxy.linux.errors import LinuxError
from kproxy.linux.iptables.legacy import DEFAULT_WAIT
from kproxy.linux.namespace import Namespace
from kproxy.linux.nfnetlink import Ledger
from kproxy.linux.sync import apply
from kproxy.linux.sync.backend import Host
from kproxy.linux.sync.cleanup import cleanup_other_mode
from kproxy.linux.sync.report import CleanedTables
from kproxy.linux.sysctl import read_sysctl, write_sysctl
from kproxy.netfilter.hooks import Variant
from kproxy.render import Features
from kproxy.services import IPFamily
from kproxy.services.node import node_port_addresses


def clean_other_mode(
    mode: str, namespace: Namespace, family: IPFamily, lock_wait: float
) -> Callable[[Callable[[Addresses], None]], list[CleanedTables]]:
    """What removes kube-proxy's rules of the mode that is not in use, of one family.

    It calls its argument with where these rules sent traffic.
    """

    def clean(seen: Callable[[Addresses], None]) -> list[CleanedTables]:
        return cleanup_other_mode(
            mode, namespace, (family,), lock_wait=lock_wait, seen=lambda _family, addresses: seen(addresses)
        )

    return clean


def open_namespace(netns: str | None) -> Namespace:
    """The namespace of that name, or the one the process is in. Raises LinuxError."""
    return Namespace.current() if netns is None else Namespace.named(netns)


def prepare_host(
    mode: str,
    netns: str | None,
    families: tuple[IPFamily, ...] = (),
    variant: Variant | None = None,
    features: Features | None = None,
    lock_wait: float = DEFAULT_WAIT,
) -> Host:
    """Finds out what the host can do; see `apply.prepare_host`.

    Each family gets a namespace of its own, so that the families do not wait for one another. The caller closes
    them (`close_host`).
    """
    ledger = Ledger()
    with open_namespace(netns) as namespace:
        host = apply.prepare_host(mode, namespace, families, variant, features, lock_wait)
    own = tuple(family.own(open_namespace(netns), ledger) for family in host.families)
    return msgspec.structs.replace(host, families=own)


def close_host(host: Host) -> None:
    """Ends the threads of the families' namespaces."""
    for family in host.families:
        family.namespace.close()


_TIMEOUTS: Final = {
    "tcp_established_timeout": "nf_conntrack_tcp_timeout_established",
    "tcp_close_wait_timeout": "nf_conntrack_tcp_timeout_close_wait",
    "udp_timeout": "nf_conntrack_udp_timeout",
    "udp_stream_timeout": "nf_conntrack_udp_timeout_stream",
}


def set_up_host(config: KubeProxyConfiguration, netns: str | None) -> None:
    """Does what kube-proxy does once at start. What cannot be done is logged, and nothing else depends on it."""
    if netns is None:
        try:
            Path("/proc/self/oom_score_adj").write_text(f"{config.oom_score_adj}\n")
        except OSError as error:
            event("cannot set the OOM score", level=30, value=config.oom_score_adj, error=str(error))
    with open_namespace(netns) as namespace:
        for name, value, minimum in sysctls(config, netns):
            _ensure(namespace, name, value, minimum)


def sysctls(config: KubeProxyConfiguration, netns: str | None) -> Iterator[tuple[str, int, bool]]:
    """What kube-proxy sets: name, value, and whether a larger value is left alone."""
    addresses = node_port_addresses(
        () if config.node_ports_on_primary_only else config.node_port_addresses, IPFamily.IPV4, "127.0.0.1"
    )
    primary = config.node_ports_on_primary_only
    if (
        config.mode != MODE_NFTABLES
        and config.iptables.localhost_node_ports
        and not primary
        and addresses.contains_loopback
    ):
        yield "net.ipv4.conf.all.route_localnet", 1, False
    conntrack = config.conntrack
    limit = conntrack_limit(conntrack, os.cpu_count() or 1)
    if limit and netns is None:  # one limit for the whole machine, which only the machine's own namespace may set
        yield "net.netfilter.nf_conntrack_max", limit, True
    for field, name in _TIMEOUTS.items():
        seconds = int(getattr(conntrack, field).seconds)
        if seconds > 0:
            yield f"net.netfilter.{name}", seconds, False
    if conntrack.tcp_be_liberal:
        yield "net.netfilter.nf_conntrack_tcp_be_liberal", 1, False


def conntrack_limit(conntrack: Conntrack, cpus: int) -> int:
    """How many connections to track: maxPerCore for each CPU, at least min; 0 leaves the kernel's limit alone."""
    if conntrack.max_per_core <= 0:
        return 0
    return max(conntrack.max_per_core * cpus, conntrack.min)


def _ensure(namespace: Namespace, name: str, value: int, minimum: bool) -> None:
    try:
        before = int(read_sysctl(namespace, name))
        if before == value or (minimum and before >= value):
            return
        write_sysctl(namespace, name, value)
    except (LinuxError, ValueError) as error:
        event("cannot set a sysctl", level=30, name=name, value=value, error=str(error))
    else:
        event("set a sysctl", name=name, value=value, before=before)
