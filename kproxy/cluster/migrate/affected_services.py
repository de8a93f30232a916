"""Whom the reasons concern on a node, and the sentences that depend on its cluster or configuration."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

from kproxy.api.kubeproxyconfig.types import MODE_NFTABLES
from kproxy.cluster.node import NodeFacts
from kproxy.render import RenderOptions
from kproxy.services.serviceport import ServicePort

Names = Callable[[NodeFacts], Iterable[str]]
Words = Callable[[NodeFacts], str]


def nobody(_facts: NodeFacts) -> Iterator[str]:
    return iter(())


def services_of(choose: Callable[[NodeFacts], Iterable[ServicePort]]) -> Names:
    return lambda facts: (port.name.service for port in choose(facts))


def all_ports(facts: NodeFacts) -> Iterable[ServicePort]:
    return facts.service_ports


def answering(facts: NodeFacts) -> Iterable[ServicePort]:
    return (port for port in facts.service_ports if facts.decided[port.name].has_any)


def exposed(facts: NodeFacts) -> Iterable[ServicePort]:
    """Those that clients outside of the cluster reach."""
    return (
        port
        for port in facts.service_ports
        if port.health_check_node_port or (port.externally_accessible and facts.decided[port.name].has_any)
    )


def refused(facts: NodeFacts) -> Iterable[ServicePort]:
    return (
        port
        for port in facts.service_ports
        if not (facts.decided[port.name].has_internal and facts.decided[port.name].has_external)
    )


def met_elsewhere(facts: NodeFacts) -> Iterable[ServicePort]:
    """Those with endpoints of other nodes that such an endpoint reaches through this node, by another address than
    their ClusterIP."""
    return [port for port in with_remote_endpoints(facts) if port.externally_accessible]


def with_remote_endpoints(facts: NodeFacts) -> Iterable[ServicePort]:
    """Those with endpoints of other nodes."""
    return {port.name: port for port, _ in facts.remote_endpoints}.values()


def sharing(facts: NodeFacts) -> Iterable[ServicePort]:
    return (port for ports in facts.shared_doors.values() for port in ports)


def with_affinity(facts: NodeFacts) -> Iterable[ServicePort]:
    return (port for port in facts.service_ports if port.session_affinity_seconds and facts.decided[port.name].has_any)


def node_ports_of(choose: Callable[[NodeFacts], Iterable[ServicePort]]) -> Names:
    return lambda facts: (f"{port.node_port}/{port.protocol}" for port in choose(facts))


# node ports


def node_ports_move(facts: NodeFacts) -> bool:
    return facts.node_port_addresses(facts.iptables) != facts.node_port_addresses(facts.nftables)


def moving_node_ports(facts: NodeFacts) -> Iterable[ServicePort]:
    return facts.node_ports if node_ports_move(facts) else facts.refused_node_ports


def _answers_at(facts: NodeFacts, options: RenderOptions) -> str:
    if facts.node_port_addresses(options) is None:
        return "at every address of the node"
    named = f"{facts.family.bits}"
    if all(cidr.endswith(f"/{named}") for cidr in options.node_port_addresses.cidrs):
        return "at the node's primary address only"
    return f"at the node's addresses in {', '.join(options.node_port_addresses.cidrs)} only"


def node_ports_iptables(facts: NodeFacts) -> str:
    if node_ports_move(facts):
        return f"Node ports answer {_answers_at(facts, facts.iptables)}."
    return "Node ports without endpoints are refused at every address of the node, whatever nodePortAddresses says."


def node_ports_nftables(facts: NodeFacts) -> str:
    where = _answers_at(facts, facts.nftables)
    if node_ports_move(facts):
        return f"Node ports answer {where}; elsewhere their packets go to the node's own programs."
    if facts.node_port_addresses(facts.nftables) is None:
        return "They are refused at every address, broadcast addresses too."
    return f"They are refused {where}; elsewhere their packets go to the node's own programs."


def localhost_node_ports(facts: NodeFacts) -> Iterable[ServicePort]:
    return facts.node_ports if facts.iptables.localhost_node_ports else facts.refused_node_ports


def localhost_iptables(facts: NodeFacts) -> str:
    if facts.iptables.localhost_node_ports:
        return "Node ports answer on 127.0.0.1, for programs on the node itself."
    return "Node ports without endpoints are refused on the loopback address, too."


def moving_node_ports_and_addresses(facts: NodeFacts) -> Iterator[str]:
    """The node ports, and the addresses that only one mode answers at."""
    yield from node_ports_of(moving_node_ports)(facts)
    chosen = [facts.node_port_addresses(options) for options in (facts.iptables, facts.nftables)]
    own = [*facts.own_addresses, *(ip for ips in chosen for ip in ips or ())]
    first, second = (set(own if ips is None else ips) for ips in chosen)
    yield from (ip for ip in dict.fromkeys(own) if (ip in first) != (ip in second))


# the mark


def masquerade_bit_config(mode: str) -> Words:
    """A line of KubeProxyConfiguration that gives a mode the bit of the other one, if it is another one."""

    def line(facts: NodeFacts) -> str:
        other = facts.iptables if mode == MODE_NFTABLES else facts.nftables
        bit = other.masquerade_mark.bit_length() - 1
        return f"{mode}: {{masqueradeBit: {bit}}}" if mark_bits_differ(facts) else ""

    return line


def mark_bits_differ(facts: NodeFacts) -> bool:
    return facts.iptables.masquerade_mark != facts.nftables.masquerade_mark


def mark_iptables(facts: NodeFacts) -> str:
    mark = f"0x{facts.iptables.masquerade_mark:x}"
    if mark_bits_differ(facts):
        return f"The packet mark {mark} asks for masquerading (iptables.masqueradeBit)."
    return f"What arrives with the mark {mark} passes FORWARD before Services without endpoints are refused."


def mark_nftables(facts: NodeFacts) -> str:
    if mark_bits_differ(facts):
        mark = f"0x{facts.nftables.masquerade_mark:x}"
        return f"The packet mark {mark} asks for it (nftables.masqueradeBit); the section iptables does not count."
    return "It is refused as any other packet."


def masquerade_all_words(options: RenderOptions) -> str:
    if options.masquerade_all:
        return "All traffic to ClusterIPs is masqueraded."
    return "Traffic to ClusterIPs is masqueraded unless it comes from pods."


def masquerade_all_config(mode: str) -> Words:
    """A line of KubeProxyConfiguration that sets masqueradeAll for a mode as the other one has it."""

    def line(facts: NodeFacts) -> str:
        other = facts.iptables if mode == MODE_NFTABLES else facts.nftables
        return f"{mode}: {{masqueradeAll: {'true' if other.masquerade_all else 'false'}}}"

    return line


# Services without endpoints


def _refused_outside(facts: NodeFacts) -> list[ServicePort]:
    return [
        port
        for port in facts.service_ports
        if (port.external_ips or port.load_balancer_vips) and not facts.decided[port.name].has_external
    ]


def _is_local_only(facts: NodeFacts) -> bool:
    """Whether all that is refused outside has endpoints on other nodes: the policy is Local."""
    return all(facts.decided[port.name].has_any for port in _refused_outside(facts))


def concerned_by_refusal(facts: NodeFacts) -> Iterable[ServicePort]:
    return _refused_outside(facts) or refused(facts)


def refused_doors(facts: NodeFacts) -> Iterator[str]:
    outside = _refused_outside(facts)
    for port in outside:
        yield from (*port.external_ips, *port.load_balancer_vips)
    for port in () if outside else refused(facts):
        yield port.cluster_ip


def refused_case(facts: NodeFacts) -> str:
    if not _refused_outside(facts):
        return "A ClusterIP without endpoints that is the node's own"
    if _is_local_only(facts):
        return "The policy Local without endpoints here, asked by the node from a foreign address"
    return "External addresses without endpoints, asked by the node"


def refused_do(facts: NodeFacts) -> str:
    if _refused_outside(facts) and _is_local_only(facts):
        return "Have programs on nodes that send from such an address use the ClusterIP."
    return "Give these Services endpoints, if programs on nodes ask them."


def refused_hooks_iptables(facts: NodeFacts) -> str:
    if _refused_outside(facts):
        if _is_local_only(facts):
            return (
                "What a program of the node sends, with an address that is not the node's as source, to an external or "
                "load-balancer IP without endpoints on this node is passed on; what others send there is refused."
            )
        return (
            "What the node itself sends to an external or load-balancer IP without endpoints is passed on; what others "
            "send there is refused."
        )
    return "A ClusterIP without endpoints that is an address of the node itself is not refused."


def refused_hooks_nftables(facts: NodeFacts) -> str:
    if not _refused_outside(facts):
        return "It is refused."
    return "It is dropped." if _is_local_only(facts) else "It is refused, too; with the policy Local it is dropped."
