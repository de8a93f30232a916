"""The reasons for which kube-proxy's modes differ: one row each, with what to say and what to do about it.

A row says which packets should show it, which Services and addresses it concerns, and what each mode does. Whether it
holds on a node is decided by the packets: a reason is found if one of them is treated differently. The order of the
rows is that of the report: what most traffic meets comes first.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Final

from kproxy.cluster.migrate import ids
from kproxy.cluster.migrate.facts import NodeFacts
from kproxy.cluster.migrate.packets import Packets
from kproxy.cluster.migrate.witness import Candidate, Differs, ends_differ, fates_differ, returns_differ, sources_differ
from kproxy.render import RenderOptions
from kproxy.services.serviceport import ServicePort

ASK_FOR_RULES: Final = "Give the node's dump with --rules to see whether its rules do."
"""Advice that is followed already where a dump is given."""

Names = Callable[[NodeFacts], Iterable[str]]
Words = Callable[[NodeFacts], str]


@dataclass(frozen=True, slots=True)
class Reason:
    """One row.

    Attributes:
        packets: candidates for a witness; the flag says whether the switch is to nftables mode.
        services, addresses: what it concerns, in words.
        iptables, nftables: what happens in each mode.
        to_nftables, to_iptables: what to do before a switch to that mode.
        differs: which differences between two traces are of this reason.
        applies: whether the configuration can have it at all.
        firewall: whether witnesses are sent through a host whose own rules accept nothing.
    """

    id: str
    title: str
    packets: Callable[[Packets, bool], Iterable[Candidate]]
    services: Names
    addresses: Names
    iptables: Words
    nftables: Words
    to_nftables: tuple[str, ...]
    to_iptables: tuple[str, ...] = ()
    differs: Differs = ends_differ
    applies: Callable[[NodeFacts], bool] = lambda _facts: True
    firewall: bool = False


def _say(text: str) -> Words:
    return lambda _facts: text


def _none(_facts: NodeFacts) -> Iterator[str]:
    return iter(())


def _services(choose: Callable[[NodeFacts], Iterable[ServicePort]]) -> Names:
    return lambda facts: (port.name.service for port in choose(facts))


def _all(facts: NodeFacts) -> Iterable[ServicePort]:
    return facts.service_ports


def _answering(facts: NodeFacts) -> Iterable[ServicePort]:
    return (port for port in facts.service_ports if facts.decided[port.name].has_any)


def _exposed(facts: NodeFacts) -> Iterable[ServicePort]:
    """Those that clients outside of the cluster reach."""
    return (
        port
        for port in facts.service_ports
        if port.health_check_node_port or (port.externally_accessible and facts.decided[port.name].has_any)
    )


def _refused(facts: NodeFacts) -> Iterable[ServicePort]:
    return (
        port
        for port in facts.service_ports
        if not (facts.decided[port.name].has_internal and facts.decided[port.name].has_external)
    )


def _shared(facts: NodeFacts) -> Iterable[ServicePort]:
    return (port for ports in facts.shared_doors.values() for port in ports)


def _with_affinity(facts: NodeFacts) -> Iterable[ServicePort]:
    return (port for port in facts.service_ports if port.session_affinity_seconds and facts.decided[port.name].has_any)


def _ports(choose: Callable[[NodeFacts], Iterable[ServicePort]]) -> Names:
    return lambda facts: (f"{port.node_port}/{port.protocol}" for port in choose(facts))


# node ports


def _moved(facts: NodeFacts) -> bool:
    return facts.node_port_addresses(facts.iptables) != facts.node_port_addresses(facts.nftables)


def _moved_ports(facts: NodeFacts) -> Iterable[ServicePort]:
    return facts.node_ports if _moved(facts) else facts.refused_node_ports


def _answers_at(facts: NodeFacts, options: RenderOptions) -> str:
    if facts.node_port_addresses(options) is None:
        return "at every address of the node"
    named = f"{facts.family.bits}"
    if all(cidr.endswith(f"/{named}") for cidr in options.node_port_addresses.cidrs):
        return "at the node's primary address only"
    return f"at the node's addresses in {', '.join(options.node_port_addresses.cidrs)} only"


def _node_ports_iptables(facts: NodeFacts) -> str:
    if _moved(facts):
        return f"Node ports answer {_answers_at(facts, facts.iptables)}."
    return "Node ports without endpoints are refused at every address of the node, whatever nodePortAddresses says."


def _node_ports_nftables(facts: NodeFacts) -> str:
    where = _answers_at(facts, facts.nftables)
    if _moved(facts):
        return f"Node ports answer {where}; elsewhere their packets go to the node's own programs."
    if facts.node_port_addresses(facts.nftables) is None:
        return "They are refused at every address, broadcast addresses too."
    return f"They are refused {where}; elsewhere their packets go to the node's own programs."


def _localhost_ports(facts: NodeFacts) -> Iterable[ServicePort]:
    return facts.node_ports if facts.iptables.localhost_node_ports else facts.refused_node_ports


def _localhost_iptables(facts: NodeFacts) -> str:
    if facts.iptables.localhost_node_ports:
        return "Node ports answer on 127.0.0.1, for programs on the node itself."
    return "Node ports without endpoints are refused on the loopback address, too."


def _primary(facts: NodeFacts) -> Iterator[str]:
    """The node ports, and the addresses that only one mode answers at."""
    yield from _ports(_moved_ports)(facts)
    chosen = [facts.node_port_addresses(options) for options in (facts.iptables, facts.nftables)]
    own = [*facts.own_addresses, *(ip for ips in chosen for ip in ips or ())]
    first, second = (set(own if ips is None else ips) for ips in chosen)
    yield from (ip for ip in dict.fromkeys(own) if (ip in first) != (ip in second))


# the mark


def _bits_differ(facts: NodeFacts) -> bool:
    return facts.iptables.masquerade_mark != facts.nftables.masquerade_mark


def _mark_iptables(facts: NodeFacts) -> str:
    mark = f"0x{facts.iptables.masquerade_mark:x}"
    if _bits_differ(facts):
        return f"The packet mark {mark} asks for masquerading (iptables.masqueradeBit)."
    return f"What arrives with the mark {mark} passes FORWARD before Services without endpoints are refused."


def _mark_nftables(facts: NodeFacts) -> str:
    if _bits_differ(facts):
        mark = f"0x{facts.nftables.masquerade_mark:x}"
        return f"The packet mark {mark} asks for it (nftables.masqueradeBit); the section iptables does not count."
    return "It is refused as any other packet."


def _masquerade_all(options: RenderOptions) -> str:
    if options.masquerade_all:
        return "All traffic to ClusterIPs is masqueraded."
    return "Traffic to ClusterIPs is masqueraded unless it comes from pods."


# Services without endpoints


def _refused_outside(facts: NodeFacts) -> bool:
    return any(
        (port.external_ips or port.load_balancer_vips) and not facts.decided[port.name].has_external
        for port in facts.service_ports
    )


def _refused_doors(facts: NodeFacts) -> Iterator[str]:
    for port in _refused(facts):
        if _refused_outside(facts):
            if not facts.decided[port.name].has_external:
                yield from (*port.external_ips, *port.load_balancer_vips)
        else:
            yield port.cluster_ip


def _hooks_iptables(facts: NodeFacts) -> str:
    if _refused_outside(facts):
        if all(facts.decided[port.name].has_any for port in facts.service_ports):
            return (
                "What a program of the node sends, with an address that is not the node's as source, to an external or "
                "load-balancer IP without endpoints on this node is passed on; what others send there is refused."
            )
        return (
            "What the node itself sends to an external or load-balancer IP without endpoints is passed on; what others "
            "send there is refused."
        )
    return "A ClusterIP without endpoints that is an address of the node itself is not refused."


def _no_packets(_packets: Packets, _to: bool) -> Iterator[Candidate]:
    return iter(())


FOREIGN: Final = (
    Reason(
        ids.FOREIGN_CHAINS,
        "Rules of others that name kube-proxy's chains",
        _no_packets,
        _none,
        _none,
        _say("These rules jump to chains of kube-proxy's iptables mode."),
        _say("The chains are not there: kube-proxy removes what it can, and what still jumps to them fails to load."),
        ("Take these rules out, or have their program write them for nftables mode, before the switch.",),
        ("They find their chains again; see that they still mean what they say.",),
    ),
    Reason(
        ids.FOREIGN_MARK,
        "Rules of others that use the masquerade mark",
        _no_packets,
        _none,
        _none,
        _say("The bit that asks for masquerading is also asked for, or set, by these rules."),
        _say("They meet a packet's mark at other moments than today: nftables mode masquerades at its own priority."),
        ("Choose another bit, here or there: nftables.masqueradeBit.",),
        ("Choose another bit, here or there: iptables.masqueradeBit.",),
    ),
    Reason(
        ids.FOREIGN_ORDER,
        "Rules of others that come before or after kube-proxy's",
        _no_packets,
        _none,
        _none,
        _say("kube-proxy's rules come first in iptables' chains."),
        _say("They stand in chains of their own, called in the order of priorities, before or after those of others."),
        ("Look at the packet: another program's rule meets it in another order, or no longer.",),
    ),
)
"""Reasons that only a dump of the node shows."""

REASONS: Final = (
    Reason(
        ids.SHARED_ADDRESS,
        "Two Services want the same address and port",
        lambda packets, _to: packets.shared(),
        _services(_shared),
        lambda facts: (
            f"{door.address or 'node port '}{':' if door.address else ''}{door.port}/{door.protocol}"
            for door in facts.shared_doors
        ),
        _say("The Service whose name comes first, by namespace and name, gets the traffic."),
        _say("kube-proxy writes them in random order, and the last one gets it: it can change with every restart."),
        ("Give each Service an address or port of its own before the switch.",),
        ("Give each Service an address or port of its own.",),
    ),
    Reason(
        ids.NODE_PORT_ADDRESSES,
        "Node ports answer at other addresses",
        lambda packets, _to: packets.node_port_addresses(),
        _services(_moved_ports),
        _primary,
        _node_ports_iptables,
        _node_ports_nftables,
        (
            "Send clients and load balancers to the node's primary address, or set nodePortAddresses in "
            "KubeProxyConfiguration: 0.0.0.0/0 and ::/0 mean every address.",
        ),
        ("Set nodePortAddresses to [primary] to keep node ports off the node's other addresses.",),
    ),
    Reason(
        ids.MASQUERADE_ALL,
        "masqueradeAll is another setting in each mode",
        lambda packets, _to: packets.masqueraded(),
        _services(_answering),
        _none,
        lambda facts: _masquerade_all(facts.iptables),
        lambda facts: _masquerade_all(facts.nftables),
        ("Set nftables.masqueradeAll as iptables.masqueradeAll is: each mode reads its own section.",),
        ("Set iptables.masqueradeAll as nftables.masqueradeAll is: each mode reads its own section.",),
        sources_differ,
        lambda facts: facts.iptables.masquerade_all != facts.nftables.masquerade_all,
    ),
    Reason(
        ids.HOST_FIREWALL,
        "Node ports behind a host firewall",
        lambda packets, _to: packets.behind_firewall(),
        _services(_exposed),
        lambda facts: (
            f"{port.health_check_node_port}/tcp" for port in facts.service_ports if port.health_check_node_port
        ),
        _say(
            "kube-proxy accepts in FORWARD what it marked for masquerading and what belongs to a connection, and in "
            "INPUT its health-check node ports, before rules and policies of a host firewall."
        ),
        _say("An accept of kube-proxy's own table lets nothing past the rules and policies of others."),
        (
            "Only nodes with a host firewall are concerned. Have it accept, forwarded and on INPUT, the node ports "
            "(30000-32767 by default), health-check node ports and traffic to the pods' network.",
            ASK_FOR_RULES,
        ),
        ("Nodes whose firewall relied on the stricter behaviour let more in: look at the packets below.",),
        firewall=True,
    ),
    Reason(
        ids.LOCALHOST_NODE_PORTS,
        "Node ports on the loopback address",
        lambda packets, _to: packets.localhost_node_ports(),
        _services(_localhost_ports),
        _ports(_localhost_ports),
        _localhost_iptables,
        _say("They do not: such a packet goes to what listens there on the node itself, if anything does."),
        (
            "Programs on the node that use 127.0.0.1:NODEPORT, registries on localhost as a rule, must use the node's "
            "address, a ClusterIP or a hostPort.",
        ),
        ("Set iptables.localhostNodePorts to false if node ports are to stay off the loopback address.",),
    ),
    Reason(
        ids.SESSION_AFFINITY,
        "Session affinity starts anew",
        lambda packets, to: packets.remembered(to),
        _services(_with_affinity),
        _none,
        _say("Which endpoint a client had is remembered by lists of the match recent."),
        _say("It is remembered by sets of the table. Neither mode reads the other's memory."),
        (
            "At the switch each client of these Services gets a new endpoint for its next connection; connections that "
            "stand go on. Switch when that hurts least.",
        ),
        (
            "At the switch each client of these Services gets a new endpoint for its next connection; connections that "
            "stand go on. Switch when that hurts least.",
        ),
    ),
    Reason(
        ids.REMOTE_HAIRPIN,
        "A pod that reaches itself through another node",
        lambda packets, _to: packets.remote_hairpin(),
        lambda facts: (port.name.service for port, _ in facts.remote_endpoints),
        _none,
        _say("An endpoint of any node whose packet is sent back to itself is masqueraded."),
        _say("Only an endpoint of this node is; another's comes back with its own address as source, and is lost."),
        (
            "It concerns pods that reach their own Service's node port, external or load-balancer IP through another "
            "node: have them use the ClusterIP.",
        ),
        differs=returns_differ,
    ),
    Reason(
        ids.RANDOM_FULLY,
        "Source ports are chosen at random",
        lambda packets, _to: packets.masqueraded(),
        _services(_answering),
        _none,
        _say("MASQUERADE without --random-fully: the host's iptables does not know it."),
        _say("masquerade fully-random: the port on the wire is a random one."),
        ("Nothing to do, unless something counts on source ports being kept.",),
        differs=fates_differ,
        applies=lambda facts: not facts.iptables.features.random_fully,
    ),
    Reason(
        ids.SOURCE_RANGES,
        "Load-balancer IPs that accept only some sources",
        lambda packets, _to: packets.source_ranges(),
        lambda facts: (port.name.service for _, _, port in facts.restricted),
        lambda facts: (f"{door.address}:{door.port}/{door.protocol}" for door, _, _ in facts.restricted),
        _say("Sources are checked after translation, and only where there are endpoints."),
        _say("They are checked first: what is not allowed is dropped, should there be endpoints or not."),
        ("Nothing to do: clients that are not allowed time out where they were refused.",),
        ("Nothing to do: clients that are not allowed are refused where they timed out.",),
    ),
    Reason(
        ids.REFUSED_HOOKS,
        "Services without endpoints, seen from the node itself",
        lambda packets, _to: packets.refused(),
        _services(_refused),
        _refused_doors,
        _hooks_iptables,
        _say("It is refused, too."),
        (
            "Programs on the node get an error at once. Where the address is the node's own on purpose, as with a DNS "
            "cache on each node, see that the Service has endpoints.",
        ),
        ("Programs on the node that counted on an error at once have to wait for an answer or a time-out.",),
    ),
    Reason(
        ids.CLUSTER_IP_PORTS,
        "Ports of a ClusterIP that no Service has",
        lambda packets, _to: packets.cluster_ip_ports(),
        _services(_all),
        lambda facts: facts.cluster_ips,
        _say(
            "The packet is passed on untranslated, by the node's routes: most often it is lost, and the client waits."
        ),
        _say("It is rejected: the client gets an error at once."),
        (
            "Nothing to do, but for ping and other programs that test a ClusterIP, and for monitoring that counts "
            "time-outs.",
        ),
        ("Nothing to do, but for clients that count on an error at once.",),
    ),
    Reason(
        ids.UNALLOCATED_CLUSTER_IPS,
        "Addresses of a ServiceCIDR that no Service has",
        lambda packets, _to: packets.unallocated(),
        _none,
        lambda facts: facts.nftables.service_cidrs,
        _say("The packet is passed on by the node's routes, out of the cluster perhaps."),
        _say("It is dropped."),
        ("See that nothing else uses addresses of the ServiceCIDRs: a VPN, a load balancer, another cluster.",),
        ("Nothing to do.",),
    ),
    Reason(
        ids.INVALID_PACKETS,
        "Packets that conntrack cannot place",
        lambda packets, _to: packets.invalid(),
        _none,
        _none,
        _say("Forwarded packets in state INVALID are dropped (conntrack.tcpBeLiberal is false)."),
        _say("They are passed on with a pod's address as source; a client may answer with a reset."),
        (
            "Where connections of slow or lossy clients were reset before kube-proxy dropped such packets, set "
            "conntrack.tcpBeLiberal to true: conntrack then places them.",
        ),
        ("Nothing to do; set conntrack.tcpBeLiberal to true to have them placed instead.",),
    ),
    Reason(
        ids.MASQUERADE_MARK,
        "The masquerade mark",
        lambda packets, _to: packets.marked(),
        lambda facts: _none(facts) if _bits_differ(facts) else _services(_refused)(facts),
        _none,
        _mark_iptables,
        _mark_nftables,
        (
            "See that no other program of the node uses that bit of the packet mark (CNI plugins, VPNs, policy "
            "routing); set nftables.masqueradeBit as iptables.masqueradeBit is where something counts on it.",
        ),
        (
            "See that no other program of the node uses that bit of the packet mark; set iptables.masqueradeBit as "
            "nftables.masqueradeBit is where something counts on it.",
        ),
        differs=sources_differ,
    ),
    Reason(
        ids.LOCALNET_GUARD,
        "The guard of 127.0.0.0/8",
        lambda packets, _to: packets.localnet(),
        _none,
        lambda facts: ("127.0.0.0/8",),
        _say(
            "kube-proxy sets net.ipv4.conf.all.route_localnet to 1, and drops what comes from elsewhere to 127.0.0.0/8."
        ),
        _say("It does neither. The setting stays as it is until a restart, and nothing guards these addresses."),
        (
            "After the switch set net.ipv4.conf.all.route_localnet to 0, unless another program needs it. (A kubelet "
            "writes a rule of the same kind into KUBE-FIREWALL; where it does, that goes on.)",
        ),
        ("Nothing to do: kube-proxy sets it, and guards these addresses.",),
    ),
)
"""Most traffic first: what clients of Services meet, then what strays, then what nobody should send."""
