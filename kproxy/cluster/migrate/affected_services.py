"""Whom the reasons concern on a node, and the sentences that depend on its cluster or configuration."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Final

from kproxy.cluster.node import NodeFacts
from kproxy.render import RenderOptions
from kproxy.render.decisions import Decisions
from kproxy.services.serviceport import ServicePort

Services = Callable[[NodeFacts], Iterable[ServicePort]]
Names = Callable[[NodeFacts], Iterable[str]]
Words = Callable[[NodeFacts], str]


def nobody(_facts: NodeFacts) -> Iterator[ServicePort]:
    return iter(())


def _those(test: Callable[[ServicePort, Decisions], bool]) -> Services:
    return lambda facts: [port for port in facts.service_ports if test(port, facts.decided[port.name])]


answering: Final = _those(lambda _port, decided: decided.has_any)
with_affinity: Final = _those(lambda port, decided: decided.has_any and bool(port.session_affinity_seconds))
exposed: Final = _those(
    lambda port, decided: bool(port.health_check_node_port) or (port.externally_accessible and decided.has_any)
)
"""Those that clients outside of the cluster reach."""
refused: Final = _those(lambda _port, decided: not (decided.has_internal and decided.has_external))
refused_outside: Final = _those(
    lambda port, decided: bool(port.external_ips or port.load_balancer_vips) and not decided.has_external
)
"""Those whose external and load-balancer IPs are refused."""


def refused_addresses(facts: NodeFacts) -> Iterator[str]:
    outside = refused_outside(facts)
    for port in outside:
        yield from (*port.external_ips, *port.load_balancer_vips)
    for port in () if outside else refused(facts):
        yield port.cluster_ip


def refused_as(facts: NodeFacts) -> str:
    """Which Services without endpoints it concerns, and where."""
    if not (outside := refused_outside(facts)):
        return "A ClusterIP without endpoints that is the node's own"
    if _is_local_only(facts, outside):
        return "The policy Local without endpoints here, asked by the node from a foreign address"
    return "External addresses without endpoints, asked by the node"


def _is_local_only(facts: NodeFacts, outside: Iterable[ServicePort]) -> bool:
    return all(facts.decided[port.name].has_any for port in outside)


def refused_iptables(facts: NodeFacts) -> str:
    """What iptables mode does where Services have no endpoints."""
    if not (outside := refused_outside(facts)):
        return "A ClusterIP without endpoints that is an address of the node itself is not refused."
    whose = ", with an address that is not the node's as source," if _is_local_only(facts, outside) else ""
    return (
        f"What the node itself sends{whose} to an external or load-balancer IP without endpoints is passed on; what "
        "others send there is refused."
    )


def with_remote_endpoints(facts: NodeFacts) -> Iterable[ServicePort]:
    return {port.name: port for port, _ in facts.remote_endpoints}.values()


# node ports


def node_ports_of(choose: Services) -> Names:
    return lambda facts: (f"{port.node_port}/{port.protocol}" for port in choose(facts))


def moving_node_ports(facts: NodeFacts) -> Iterable[ServicePort]:
    first, second = map(facts.node_port_addresses, (facts.iptables, facts.nftables))
    return facts.node_ports if first != second else facts.refused_node_ports


def moving_node_ports_and_addresses(facts: NodeFacts) -> Iterator[str]:
    """The node ports, and the addresses that only one mode answers at."""
    yield from node_ports_of(moving_node_ports)(facts)
    chosen = [facts.node_port_addresses(options) for options in (facts.iptables, facts.nftables)]
    own = [*facts.own_addresses, *(ip for ips in chosen for ip in ips or ())]
    first, second = (set(own if ips is None else ips) for ips in chosen)
    yield from (ip for ip in dict.fromkeys(own) if (ip in first) != (ip in second))


def answers_at(facts: NodeFacts, options: RenderOptions) -> str:
    """Where node ports answer in one of the modes."""
    if facts.node_port_addresses(options) is None:
        return "at every address of the node"
    cidrs = options.node_port_addresses.cidrs
    if all(cidr.endswith(f"/{facts.family.bits}") for cidr in cidrs):
        return "at the node's primary address only"
    return f"at the node's addresses in {', '.join(cidrs)} only"


def localhost_node_ports(facts: NodeFacts) -> Iterable[ServicePort]:
    return facts.node_ports if facts.iptables.localhost_node_ports else facts.refused_node_ports


# settings of which each mode has its own


def mark_bits_differ(facts: NodeFacts) -> bool:
    return facts.iptables.masquerade_mark != facts.nftables.masquerade_mark


def masquerade_all_words(options: RenderOptions) -> str:
    if options.masquerade_all:
        return "All traffic to ClusterIPs is masqueraded."
    return "Traffic to ClusterIPs is masqueraded unless it comes from pods."


def masquerade_all_config(facts: NodeFacts, to_nftables: bool) -> str:
    """A line of KubeProxyConfiguration that sets masqueradeAll for the new mode as the old one has it."""
    section, old = ("nftables", facts.iptables) if to_nftables else ("iptables", facts.nftables)
    return f"{section}: {{masqueradeAll: {str(old.masquerade_all).lower()}}}"


def masquerade_bit_config(facts: NodeFacts, to_nftables: bool) -> str:
    """Likewise masqueradeBit, if it is another one."""
    section, old = ("nftables", facts.iptables) if to_nftables else ("iptables", facts.nftables)
    return f"{section}: {{masqueradeBit: {old.masquerade_mark.bit_length() - 1}}}" if mark_bits_differ(facts) else ""
