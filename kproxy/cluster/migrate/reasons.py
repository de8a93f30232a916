"""The reasons for which kube-proxy's modes differ: one row each, with what to say and what to do about it.

A row says which packets should show it, which Services and addresses it concerns, and what each mode does. Whether it
holds on a node is decided by the packets: a reason is found if one of them is treated differently. The order of the
rows is that of the report: what most traffic meets comes first.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from typing import Final, Literal

from kproxy.cluster.migrate import affected_services as affected
from kproxy.cluster.migrate.affected_services import Names, Services, Words, nobody
from kproxy.cluster.migrate.packets import Packets
from kproxy.cluster.migrate.witness import (
    Candidate,
    Differs,
    ends_differ,
    fates_differ,
    returns_differ,
    sources_differ,
)
from kproxy.cluster.node import NodeFacts
from kproxy.dataplane.compare.difference import Difference

Effort = Literal["act", "look", "after", "none"]
"""What there is to do: change something, or see that nobody needs it, before the switch; look whether it concerns one
of the cluster's programs; change something after the switch; nothing."""


@dataclass(frozen=True, slots=True)
class Advice:
    """What to do about it: when, and how much; in a few words; the whole sentence, if that is more, and one more where
    no dump is given; a line of KubeProxyConfiguration, or a command, that does it, which may depend on the node and on
    whether the switch is to nftables mode."""

    effort: Effort
    do: str
    sentence: str = ""
    config: str | Callable[[NodeFacts, bool], str] = ""
    without_dump: tuple[str, ...] = ()


def said(words: str | Words, facts: NodeFacts) -> str:
    """Words for a node."""
    return words if isinstance(words, str) else words(facts)


def nothing(sentence: str) -> Advice:
    """Nothing has to be done, but for what the sentence says."""
    return Advice("none", "Nothing to do.", sentence)


@dataclass(frozen=True, slots=True, kw_only=True)
class Reason:
    """One row. Of two with one `id`, which is part of the JSON, the first that shows counts.

    Attributes:
        case: the title where it shows on a node.
        packets: candidates for a witness. services, addresses: what it concerns.
        first, second: what happens in the first of the two modes (iptables; IPVS of a switch from it) and in the
            second; a function where that depends on the node.
        shows: which differences that the comparison finds are of this reason.
        to_nftables, to_iptables: what to do about a switch to that mode; the same for both if only one is given.
        differs: which differences between two traces are of this reason. applies: whether a node can have it.
        is_of_settings: whether no packet shows it, and `applies` alone says that it holds.
        firewall: whether witnesses are sent through a host whose own rules accept nothing.
    """

    id: str
    title: str
    case: Words | None = None
    packets: Callable[[Packets], Iterable[Candidate]] = lambda _packets: ()
    services: Services = nobody
    addresses: Names = lambda _facts: ()
    first: str | Words
    second: str | Words
    to_nftables: Advice
    to_iptables: Advice | None = None
    differs: Differs = ends_differ
    shows: Callable[[NodeFacts, Difference], bool] | None = None
    applies: Callable[[NodeFacts], bool] = lambda _facts: True
    firewall: bool = False
    is_of_settings: bool = False

    def advice(self, *, to_nftables: bool) -> Advice:
        """What to do about a switch."""
        return self.to_nftables if to_nftables else self.to_iptables or self.to_nftables


FOREIGN: Final = (
    Reason(
        id="foreign-kube-chains",
        title="Rules of others that name kube-proxy's chains",
        first="These rules jump to chains of kube-proxy's iptables mode.",
        second="The chains are not there: kube-proxy removes what it can; what still jumps to them fails to load.",
        to_nftables=Advice("act", "Take these rules out, or write them for nftables, before the switch."),
        to_iptables=Advice("look", "See that these rules still mean what they say: their chains are back."),
    ),
    Reason(
        id="foreign-mark",
        title="Rules of others that use the masquerade mark",
        first="The bit that asks for masquerading is also asked for, or set, by these rules.",
        second="They meet a packet's mark at other moments: nftables mode masquerades at its own priority.",
        to_nftables=Advice("act", "Choose another bit, here or there: nftables.masqueradeBit."),
        to_iptables=Advice("act", "Choose another bit, here or there: iptables.masqueradeBit."),
    ),
    Reason(
        id="foreign-hook-order",
        title="Rules of others that come before or after kube-proxy's",
        first="kube-proxy's rules come first in iptables' chains, but for what others have put before them.",
        second="They stand in chains of their own, called by their priorities, before or after those of others.",
        to_nftables=Advice("look", "See what these rules do then: they meet the packet in another order."),
    ),
)
"""Reasons that only a dump of the node shows."""

_REMOTE_HAIRPIN: Final = Reason(
    id="remote-hairpin",
    title="A pod that reaches itself through another node",
    packets=Packets.remote_hairpin,
    services=lambda facts: (port for port in affected.with_remote_endpoints(facts) if port.externally_accessible),
    first="An endpoint of any node whose packet is sent back to itself is masqueraded.",
    second="Only an endpoint of this node is; another's comes back with its own address, and the pod drops it.",
    to_nftables=Advice(
        "look",
        "See whether a Pod calls its own Service so; the ClusterIP works.",
        "It concerns pods that reach their own Service's node port, external or load-balancer IP through another node: "
        "have them use the ClusterIP.",
    ),
    differs=returns_differ,
)

REASONS: Final = (
    Reason(
        id="shared-address",
        title="Two Services want the same address and port",
        packets=Packets.shared,
        services=lambda facts: (port for ports in facts.shared_doors.values() for port in ports),
        addresses=lambda facts: (
            f"{door.address or 'node port '}{':' if door.address else ''}{door.port}/{door.protocol}"
            for door in facts.shared_doors
        ),
        first="The Service whose name comes first, by namespace and name, gets the traffic.",
        second="kube-proxy writes them in random order, and the last one gets it: it can change with every restart.",
        to_nftables=Advice("act", "Give each Service an address or port of its own."),
    ),
    Reason(
        id="node-port-addresses",
        title="Node ports answer at other addresses",
        packets=Packets.node_port_addresses,
        services=affected.moving_node_ports,
        addresses=affected.moving_node_ports_and_addresses,
        first=lambda facts: (
            f"Node ports answer {affected.answers_at(facts, facts.iptables)}; those without endpoints are refused at "
            "every address."
        ),
        second=lambda facts: (
            "Those without endpoints are refused at every address, broadcast addresses too."
            if facts.node_port_addresses(facts.nftables) is None
            else f"They answer {affected.answers_at(facts, facts.nftables)}; elsewhere packets go to its programs."
        ),
        to_nftables=Advice(
            "act",
            "Set nodePortAddresses, or have clients use the primary address.",
            "Send clients to the primary address, or set nodePortAddresses: 0.0.0.0/0 and ::/0 mean every address.",
            'nodePortAddresses: ["0.0.0.0/0", "::/0"]',
        ),
        to_iptables=Advice("act", "Keep them to the primary address.", config='nodePortAddresses: ["primary"]'),
    ),
    Reason(
        id="masquerade-all",
        title="masqueradeAll is another setting in each mode",
        packets=Packets.masqueraded,
        services=affected.answering,
        first=lambda facts: affected.masquerade_all_words(facts.iptables),
        second=lambda facts: affected.masquerade_all_words(facts.nftables),
        to_nftables=Advice("act", "Set it for the new mode as for the old one.", config=affected.masquerade_all_config),
        differs=sources_differ,
        applies=lambda facts: facts.iptables.masquerade_all != facts.nftables.masquerade_all,
    ),
    Reason(
        id="host-firewall",
        title="Node ports behind a host firewall",
        packets=Packets.behind_firewall,
        services=affected.exposed,
        addresses=lambda facts: (
            f"{port.health_check_node_port}/tcp" for port in facts.service_ports if port.health_check_node_port
        ),
        first=(
            "kube-proxy accepts marked traffic and that of connections in FORWARD, and its health-check node ports in "
            "INPUT, before a host firewall."
        ),
        second="An accept of kube-proxy's own table lets nothing past the rules and policies of others.",
        to_nftables=Advice(
            "act",
            "Have the host's firewall accept node ports and the Pods' traffic.",
            "Only nodes with a host firewall are concerned. Have it accept, forwarded and on INPUT, the node ports "
            "(30000-32767 by default), health-check node ports and traffic to the pods' network.",
            without_dump=("Give the node's dump beside the manifests to see whether its rules do.",),
        ),
        to_iptables=Advice("act", "See what the host's firewall lets in then: look at the packets below."),
        firewall=True,
    ),
    Reason(
        id="localhost-node-ports",
        title="Node ports on the loopback address",
        packets=Packets.localhost_node_ports,
        services=affected.localhost_node_ports,
        addresses=affected.node_ports_of(affected.localhost_node_ports),
        first=lambda facts: (
            "Node ports answer on 127.0.0.1, for programs on the node itself."
            if facts.iptables.localhost_node_ports
            else "Node ports without endpoints are refused on the loopback address, too."
        ),
        second="They do not: such a packet goes to what listens there on the node itself, if anything does.",
        to_nftables=Advice(
            "act",
            "Have programs on nodes use the node's address or a ClusterIP.",
            "Programs on the node that use 127.0.0.1:NODEPORT must use its address, a ClusterIP or a hostPort.",
        ),
        to_iptables=Advice("act", "Keep node ports off 127.0.0.1.", config="iptables: {localhostNodePorts: false}"),
    ),
    Reason(
        id="session-affinity",
        title="Session affinity starts anew",
        packets=Packets.remembered,
        services=affected.with_affinity,
        first="Which endpoint a client had is remembered by lists of the match recent.",
        second="It is remembered by sets. Neither mode reads the other's memory; connections that stand go on.",
        to_nftables=Advice("look", "Switch when new endpoints for all clients hurt least."),
    ),
    _REMOTE_HAIRPIN,
    replace(
        _REMOTE_HAIRPIN,
        packets=Packets.remote_hairpin_by_cluster_ip,
        services=affected.with_remote_endpoints,
        to_nftables=Advice(
            "look",
            "See that kube-proxy runs on all nodes.",
            "A pod's own node translates its packets to a ClusterIP: one comes here untranslated only from a node "
            "without kube-proxy's rules.",
        ),
    ),
    Reason(
        id="random-fully",
        title="Source ports are chosen at random",
        packets=Packets.masqueraded,
        services=affected.answering,
        first="MASQUERADE without --random-fully: the host's iptables does not know it.",
        second="masquerade fully-random: the port on the wire is a random one.",
        to_nftables=nothing("Nothing to do, unless something counts on source ports being kept."),
        differs=fates_differ,
        applies=lambda facts: not facts.iptables.features.random_fully,
    ),
    Reason(
        id="source-ranges",
        title="Load-balancer IPs that accept only some sources",
        packets=Packets.source_ranges,
        services=lambda facts: (port for _, _, port in facts.restricted),
        addresses=lambda facts: (f"{door.address}:{door.port}/{door.protocol}" for door, _, _ in facts.restricted),
        first="Sources are checked after translation, and only where there are endpoints.",
        second="They are checked first: what is not allowed is dropped, should there be endpoints or not.",
        to_nftables=nothing("Nothing to do: clients that are not allowed time out where they were refused."),
        to_iptables=nothing("Nothing to do: clients that are not allowed are refused where they timed out."),
    ),
    Reason(
        id="refused-hooks",
        title="Services without endpoints are refused in more places",
        case=affected.refused_as,
        packets=Packets.refused,
        services=lambda facts: affected.refused_outside(facts) or affected.refused(facts),
        addresses=affected.refused_addresses,
        first=affected.refused_iptables,
        second="It is refused; with the policy Local it is dropped.",
        to_nftables=Advice(
            "look",
            "Give these Services endpoints, if programs on nodes ask them.",
            "Programs on the node get an error at once, and with the policy Local no answer: have them use the "
            "ClusterIP. Where the address is the node's own on purpose, as with a DNS cache on each node, see that "
            "the Service has endpoints.",
        ),
        to_iptables=Advice("look", "See whether programs on nodes count on an error at once."),
    ),
    Reason(
        id="cluster-ip-ports",
        title="Ports of a ClusterIP that no Service has",
        packets=Packets.cluster_ip_ports,
        services=lambda facts: facts.service_ports,
        addresses=lambda facts: facts.cluster_ips,
        first="The packet is passed on untranslated: most often it is lost, and the client waits.",
        second="It is rejected: the client gets an error at once.",
        to_nftables=nothing(
            "Nothing to do, but for what pings or tests ClusterIPs, and monitoring that counts time-outs."
        ),
        to_iptables=nothing("Nothing to do, but for clients that count on an error at once."),
    ),
    Reason(
        id="unallocated-cluster-ips",
        title="Addresses of a ServiceCIDR that no Service has",
        packets=Packets.unallocated,
        addresses=lambda facts: facts.nftables.service_cidrs,
        applies=lambda facts: bool(facts.nftables.service_cidrs),
        first="The packet is passed on by the node's routes, out of the cluster perhaps.",
        second="It is dropped.",
        to_nftables=Advice("look", "See that nothing else uses addresses of the ServiceCIDRs."),
        to_iptables=nothing(""),
    ),
    Reason(
        id="invalid-packets",
        title="Packets that conntrack cannot place",
        packets=Packets.invalid,
        first="Forwarded packets in state INVALID are dropped (conntrack.tcpBeLiberal is false).",
        second="They are passed on with a pod's address as source; a client may answer with a reset.",
        to_nftables=Advice(
            "look",
            "See whether connections get reset; conntrack can place such packets.",
            "Where connections of slow or lossy clients were reset before kube-proxy dropped such packets, set "
            "conntrack.tcpBeLiberal to true: conntrack then places them.",
            "conntrack: {tcpBeLiberal: true}",
        ),
        to_iptables=nothing("Nothing to do; set conntrack.tcpBeLiberal to true to have them placed instead."),
    ),
    Reason(
        id="masquerade-mark",
        title="The masquerade mark",
        packets=Packets.marked,
        services=lambda facts: () if affected.mark_bits_differ(facts) else affected.refused(facts),
        first=lambda facts: (
            f"The packet mark 0x{facts.iptables.masquerade_mark:x} asks for masquerading (iptables.masqueradeBit), and "
            "what arrives with it passes FORWARD before Services without endpoints are refused."
        ),
        second=lambda facts: (
            f"The packet mark 0x{facts.nftables.masquerade_mark:x} asks for it (nftables.masqueradeBit; the section "
            "iptables does not count), and what arrives with it is refused as any other packet."
        ),
        to_nftables=Advice(
            "look", "See that no other program uses this bit of the mark.", config=affected.masquerade_bit_config
        ),
        differs=sources_differ,
    ),
    Reason(
        id="localnet-guard",
        title="The guard of 127.0.0.0/8",
        packets=Packets.localnet,
        addresses=lambda facts: ("127.0.0.0/8",),
        first="kube-proxy sets route_localnet to 1, and drops what comes from elsewhere to 127.0.0.0/8.",
        second="It does neither. The setting stays as it is until a restart, and nothing guards these addresses.",
        to_nftables=Advice(
            "after",
            "Switch route_localnet off, unless another program needs it.",
            config="sysctl -w net.ipv4.conf.all.route_localnet=0",
        ),
        to_iptables=nothing("Nothing to do: kube-proxy sets it, and guards these addresses."),
    ),
)
"""Most traffic first: what clients of Services meet, then what strays, then what nobody should send."""

OTHER: Final = Reason(
    id="other",
    title="Something else",
    first="",
    second="",
    to_nftables=Advice("act", "No known difference of the modes: see what becomes of the packet."),
)
"""What the comparison finds beyond these, in its own words."""
