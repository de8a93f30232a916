"""What kube-proxies tell of themselves, and how they fit one another and the Pods."""

from __future__ import annotations

import ipaddress
from collections.abc import Iterable, Iterator, Sequence
from datetime import datetime
from typing import Final

from kproxy.cluster.audit.hosts import families, local_pods
from kproxy.cluster.audit.node import AuditedNode
from kproxy.cluster.audit.observation import Observation
from kproxy.cluster.facts.kubeproxy import metric
from kproxy.netfilter import Family
from kproxy.words import listed

_BEHIND: Final = 30.0
"""Seconds that rules may be older than the last change: kube-proxy joins changes of a second or more."""
_SYNC: Final = "kubeproxy_sync_proxy_rules"
_FAILURES: Final = ("iptables_restore_failures_total", "nftables_sync_failures_total")
_SHOWN: Final = 3


def observe_proxy(node: AuditedNode) -> Iterator[Observation]:
    """What is wrong with one node's kube-proxy. Raises InputError: a file of it cannot be read."""
    health = node.host.health
    if health is not None and health.healthy is False:
        detail = f"healthz: {' '.join(health.text.split())[:100]}"
        yield Observation("proxy-unhealthy", node.name, "unhealthy", detail)
    elif health is not None:
        behind = _seconds(health.last_updated, health.current_time)
        if behind > _BEHIND:
            detail = f"{node.name}: rules of {health.last_updated}, {behind:.0f} s old, and changes wait"
            yield Observation("proxy-behind", node.name, "behind", detail)
        else:
            yield from _queued(node)
    else:
        yield from _queued(node)
    yield from _pods_outside(node)


def _queued(node: AuditedNode) -> Iterator[Observation]:
    """Changes that wait by the metrics: they came after the last time that rules were written."""
    metrics = node.host.metrics or {}
    queued, done = (metric(metrics, f"{_SYNC}_last_{name}timestamp_seconds") for name in ("queued_", ""))
    if queued is None or done is None or queued - done <= _BEHIND:
        return
    failures = sum(value for name in _FAILURES for value in metrics.get(f"{_SYNC}_{name}", {}).values())
    detail = f"{node.name}: rules of {node.synced}, and changes of {queued - done:.0f} s later wait"
    detail += f"; {failures:.0f} writes have failed" if failures else ""
    yield Observation("proxy-behind", node.name, "behind", detail)


def _seconds(first: str, second: str) -> float:
    try:
        begin, end = (datetime.fromisoformat(_short(each)) for each in (first, second))
        return (end - begin).total_seconds()
    except (ValueError, TypeError):
        return 0.0


def _short(time: str) -> str:
    """RFC 3339 as Python reads it: Go writes nanoseconds, and ` +0000 UTC m=+1.5` where it prints a time plainly."""
    words = time.split(" m=")[0].replace(" UTC", "").replace(" +0000", "+00:00").strip()
    head, dot, tail = words.partition(".")
    digits = len(tail) - len(tail.lstrip("0123456789"))
    return f"{head}.{tail[: min(digits, 6)].ljust(6, '0')}{tail[digits:]}" if dot else words


def _pods_outside(node: AuditedNode) -> Iterator[Observation]:
    """Pods that kube-proxy takes for clients outside."""
    if not node.config_known:
        return
    for family in families(node):
        local = node.facts(family).iptables.local_traffic
        if not local.source:
            continue
        network = ipaddress.ip_network(local.source)
        outside = [
            f"{pod.name} {address}"
            for pod in local_pods(node)
            for address in pod.addresses
            if (":" in address) == (family is Family.IPV6) and ipaddress.ip_address(address) not in network
        ]
        if outside:
            shown = listed(outside, _SHOWN)
            yield Observation("cluster-cidr", node.name, local.source, f"not in {local.source}: {shown}")


def observe_all(nodes: Sequence[AuditedNode]) -> Iterator[Observation]:
    """How the nodes' kube-proxies fit one another."""
    versions = _by_value((node.host.proxy_version, node.name) for node in nodes)
    if len({".".join(version.split(".")[:2]) for version in versions}) > 1:
        yield from _mixed("versions-mixed", versions)
    modes = _by_value((node.config.mode if node.host.proxy_config is not None else None, node.name) for node in nodes)
    if len(modes) > 1:
        yield from _mixed("modes-mixed", modes)


def _by_value(pairs: Iterable[tuple[str | None, str]]) -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    for value, node in pairs:
        if value:
            found.setdefault(value, []).append(node)
    return found


def _mixed(kind: str, values: dict[str, list[str]]) -> Iterator[Observation]:
    """One observation for each node of the fewer, which are likely those to mend."""
    ordered = sorted(values.items(), key=lambda each: (-len(each[1]), each[0]))
    most, count = ordered[0][0], len(ordered[0][1])
    for value, names in ordered[1:]:
        for name in names:
            yield Observation(kind, name, kind, f"{value}, and {most} on {count} nodes")
