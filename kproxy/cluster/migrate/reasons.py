"""The reasons for which kube-proxy's modes differ: one row each, with what to say and what to do about it.

A row says which packets should show it, which Services and addresses it concerns, and what each mode does. Whether it
holds on a node is decided by the packets: a reason is found if one of them is treated differently. The order of the
rows is that of the report: what most traffic meets comes first.
"""

from __future__ import annotations

from typing import Final

from kproxy.api.kubeproxyconfig.types import MODE_IPTABLES, MODE_NFTABLES
from kproxy.cluster.migrate import affected_services as affected
from kproxy.cluster.migrate import ids
from kproxy.cluster.migrate.packets import Packets
from kproxy.cluster.migrate.reason import NOTHING, Advice, Reason, nothing
from kproxy.cluster.migrate.witness import fates_differ, returns_differ, sources_differ

FOREIGN: Final = (
    Reason(
        id=ids.FOREIGN_CHAINS,
        title="Rules of others that name kube-proxy's chains",
        iptables="These rules jump to chains of kube-proxy's iptables mode.",
        nftables=(
            "The chains are not there: kube-proxy removes what it can, and what still jumps to them fails to load."
        ),
        to_nftables=Advice("act", "Take these rules out, or write them for nftables, before the switch."),
        to_iptables=Advice("look", "See that these rules still mean what they say: their chains are back."),
    ),
    Reason(
        id=ids.FOREIGN_MARK,
        title="Rules of others that use the masquerade mark",
        iptables="The bit that asks for masquerading is also asked for, or set, by these rules.",
        nftables=(
            "They meet a packet's mark at other moments than today: nftables mode masquerades at its own priority."
        ),
        to_nftables=Advice("act", "Choose another bit, here or there: nftables.masqueradeBit."),
        to_iptables=Advice("act", "Choose another bit, here or there: iptables.masqueradeBit."),
    ),
    Reason(
        id=ids.FOREIGN_ORDER,
        title="Rules of others that come before or after kube-proxy's",
        iptables="kube-proxy's rules come first in iptables' chains, but for what others have put before them.",
        nftables=(
            "They stand in chains of their own, called in the order of priorities, before or after those of others."
        ),
        to_nftables=Advice("look", "See what these rules do then: they meet the packet in another order."),
    ),
)
"""Reasons that only a dump of the node shows."""

_HAIRPIN_TITLE: Final = "A pod that reaches itself through another node"
_HAIRPIN_IPTABLES: Final = "An endpoint of any node whose packet is sent back to itself is masqueraded."
_HAIRPIN_NFTABLES: Final = (
    "Only an endpoint of this node is; another's comes back with its own address as source, and the pod drops it as a "
    "martian."
)
_HAIRPIN_BY_CLUSTER_IP: Final = Reason(
    id=ids.REMOTE_HAIRPIN,
    title=_HAIRPIN_TITLE,
    services=affected.services_of(affected.with_remote_endpoints),
    iptables=_HAIRPIN_IPTABLES,
    nftables=_HAIRPIN_NFTABLES,
    to_nftables=Advice(
        "look",
        "See that kube-proxy runs on all nodes.",
        "A pod's own node translates its packets to a ClusterIP: one comes here untranslated only from a node "
        "without kube-proxy's rules.",
    ),
    differs=returns_differ,
)
"""Of packets to a ClusterIP, which as a rule meet the rules of the sender's own node."""

REASONS: Final = (
    Reason(
        id=ids.SHARED_ADDRESS,
        title="Two Services want the same address and port",
        packets=Packets.shared,
        services=affected.services_of(affected.sharing),
        addresses=lambda facts: (
            f"{door.address or 'node port '}{':' if door.address else ''}{door.port}/{door.protocol}"
            for door in facts.shared_doors
        ),
        iptables="The Service whose name comes first, by namespace and name, gets the traffic.",
        nftables="kube-proxy writes them in random order, and the last one gets it: it can change with every restart.",
        to_nftables=Advice("act", "Give each Service an address or port of its own."),
    ),
    Reason(
        id=ids.NODE_PORT_ADDRESSES,
        title="Node ports answer at other addresses",
        packets=Packets.node_port_addresses,
        services=affected.services_of(affected.moving_node_ports),
        addresses=affected.moving_node_ports_and_addresses,
        iptables=affected.node_ports_iptables,
        nftables=affected.node_ports_nftables,
        to_nftables=Advice(
            "act",
            "Set nodePortAddresses, or have clients use the primary address.",
            "Send clients and load balancers to the node's primary address, or set nodePortAddresses in "
            "KubeProxyConfiguration: 0.0.0.0/0 and ::/0 mean every address.",
            'nodePortAddresses: ["0.0.0.0/0", "::/0"]',
        ),
        to_iptables=Advice(
            "act",
            "Set nodePortAddresses to keep them to the primary address.",
            "Set nodePortAddresses to [primary] to keep node ports off the node's other addresses.",
            'nodePortAddresses: ["primary"]',
        ),
    ),
    Reason(
        id=ids.MASQUERADE_ALL,
        title="masqueradeAll is another setting in each mode",
        packets=Packets.masqueraded,
        services=affected.services_of(affected.answering),
        iptables=lambda facts: affected.masquerade_all_words(facts.iptables),
        nftables=lambda facts: affected.masquerade_all_words(facts.nftables),
        to_nftables=Advice(
            "act",
            "Set nftables.masqueradeAll as iptables.masqueradeAll is.",
            "Set nftables.masqueradeAll as iptables.masqueradeAll is: each mode reads its own section.",
            affected.masquerade_all_config(MODE_NFTABLES),
        ),
        to_iptables=Advice(
            "act",
            "Set iptables.masqueradeAll as nftables.masqueradeAll is.",
            "Set iptables.masqueradeAll as nftables.masqueradeAll is: each mode reads its own section.",
            affected.masquerade_all_config(MODE_IPTABLES),
        ),
        differs=sources_differ,
        applies=lambda facts: facts.iptables.masquerade_all != facts.nftables.masquerade_all,
    ),
    Reason(
        id=ids.HOST_FIREWALL,
        title="Node ports behind a host firewall",
        packets=Packets.behind_firewall,
        services=affected.services_of(affected.exposed),
        addresses=lambda facts: (
            f"{port.health_check_node_port}/tcp" for port in facts.service_ports if port.health_check_node_port
        ),
        iptables=(
            "kube-proxy accepts in FORWARD what it marked for masquerading and what belongs to a connection, and in "
            "INPUT its health-check node ports, before rules and policies of a host firewall."
        ),
        nftables="An accept of kube-proxy's own table lets nothing past the rules and policies of others.",
        to_nftables=Advice(
            "act",
            "Have the host's firewall accept node ports and the Pods' traffic.",
            "Only nodes with a host firewall are concerned. Have it accept, forwarded and on INPUT, the node ports "
            "(30000-32767 by default), health-check node ports and traffic to the pods' network.",
            without_dump="Give the node's dump with --rules to see whether its rules do.",
        ),
        to_iptables=Advice("act", "See what the host's firewall lets in then: look at the packets below."),
        firewall=True,
    ),
    Reason(
        id=ids.LOCALHOST_NODE_PORTS,
        title="Node ports on the loopback address",
        packets=Packets.localhost_node_ports,
        services=affected.services_of(affected.localhost_node_ports),
        addresses=affected.node_ports_of(affected.localhost_node_ports),
        iptables=affected.localhost_iptables,
        nftables="They do not: such a packet goes to what listens there on the node itself, if anything does.",
        to_nftables=Advice(
            "act",
            "Have programs on nodes use the node's address or a ClusterIP.",
            "Programs on the node that use 127.0.0.1:NODEPORT, registries on localhost as a rule, must use the "
            "node's address, a ClusterIP or a hostPort.",
        ),
        to_iptables=Advice(
            "act",
            "Keep node ports off 127.0.0.1, if they are to stay so.",
            "Set iptables.localhostNodePorts to false if node ports are to stay off the loopback address.",
            "iptables: {localhostNodePorts: false}",
        ),
    ),
    Reason(
        id=ids.SESSION_AFFINITY,
        title="Session affinity starts anew",
        packets=Packets.remembered,
        services=affected.services_of(affected.with_affinity),
        iptables="Which endpoint a client had is remembered by lists of the match recent.",
        nftables="It is remembered by sets of the table. Neither mode reads the other's memory.",
        to_nftables=Advice(
            "look",
            "Switch when new endpoints for all clients hurt least.",
            "At the switch each client of these Services gets a new endpoint for its next connection; connections "
            "that stand go on. Switch when that hurts least.",
        ),
    ),
    Reason(
        id=ids.REMOTE_HAIRPIN,
        title=_HAIRPIN_TITLE,
        packets=Packets.remote_hairpin,
        services=affected.services_of(affected.met_elsewhere),
        iptables=_HAIRPIN_IPTABLES,
        nftables=_HAIRPIN_NFTABLES,
        to_nftables=Advice(
            "look",
            "See whether a Pod calls its own Service so; the ClusterIP works.",
            "It concerns pods that reach their own Service's node port, external or load-balancer IP through "
            "another node: have them use the ClusterIP.",
        ),
        differs=returns_differ,
        to_cluster_ip=_HAIRPIN_BY_CLUSTER_IP,
    ),
    Reason(
        id=ids.RANDOM_FULLY,
        title="Source ports are chosen at random",
        packets=Packets.masqueraded,
        services=affected.services_of(affected.answering),
        iptables="MASQUERADE without --random-fully: the host's iptables does not know it.",
        nftables="masquerade fully-random: the port on the wire is a random one.",
        to_nftables=nothing("Nothing to do, unless something counts on source ports being kept."),
        differs=fates_differ,
        applies=lambda facts: not facts.iptables.features.random_fully,
    ),
    Reason(
        id=ids.SOURCE_RANGES,
        title="Load-balancer IPs that accept only some sources",
        packets=Packets.source_ranges,
        services=lambda facts: (port.name.service for _, _, port in facts.restricted),
        addresses=lambda facts: (f"{door.address}:{door.port}/{door.protocol}" for door, _, _ in facts.restricted),
        iptables="Sources are checked after translation, and only where there are endpoints.",
        nftables="They are checked first: what is not allowed is dropped, should there be endpoints or not.",
        to_nftables=nothing("Nothing to do: clients that are not allowed time out where they were refused."),
        to_iptables=nothing("Nothing to do: clients that are not allowed are refused where they timed out."),
    ),
    Reason(
        id=ids.REFUSED_HOOKS,
        title="Services without endpoints are refused in more places",
        case=affected.refused_case,
        packets=Packets.refused,
        services=affected.services_of(affected.concerned_by_refusal),
        addresses=affected.refused_doors,
        iptables=affected.refused_hooks_iptables,
        nftables=affected.refused_hooks_nftables,
        to_nftables=Advice(
            "look",
            affected.refused_do,
            "Programs on the node get an error at once, and with the policy Local no answer: have them use the "
            "ClusterIP. Where the address is the node's own on purpose, as with a DNS cache on each node, see that "
            "the Service has endpoints.",
        ),
        to_iptables=Advice(
            "look",
            "See whether programs on nodes count on an error at once.",
            "Programs on the node that counted on an error at once have to wait for an answer or a time-out.",
        ),
    ),
    Reason(
        id=ids.CLUSTER_IP_PORTS,
        title="Ports of a ClusterIP that no Service has",
        packets=Packets.cluster_ip_ports,
        services=affected.services_of(affected.all_ports),
        addresses=lambda facts: facts.cluster_ips,
        iptables=(
            "The packet is passed on untranslated, by the node's routes: most often it is lost, and the client waits."
        ),
        nftables="It is rejected: the client gets an error at once.",
        to_nftables=Advice(
            "none",
            "Nothing to do, unless something pings ClusterIPs.",
            "Nothing to do, but for ping and other programs that test a ClusterIP, and for monitoring that counts "
            "time-outs.",
        ),
        to_iptables=nothing("Nothing to do, but for clients that count on an error at once."),
    ),
    Reason(
        id=ids.UNALLOCATED_CLUSTER_IPS,
        title="Addresses of a ServiceCIDR that no Service has",
        packets=Packets.unallocated,
        addresses=lambda facts: facts.nftables.service_cidrs,
        iptables="The packet is passed on by the node's routes, out of the cluster perhaps.",
        nftables="It is dropped.",
        to_nftables=Advice("look", "See that nothing else uses addresses of the ServiceCIDRs."),
        to_iptables=NOTHING,
    ),
    Reason(
        id=ids.INVALID_PACKETS,
        title="Packets that conntrack cannot place",
        packets=Packets.invalid,
        iptables="Forwarded packets in state INVALID are dropped (conntrack.tcpBeLiberal is false).",
        nftables="They are passed on with a pod's address as source; a client may answer with a reset.",
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
        id=ids.MASQUERADE_MARK,
        title="The masquerade mark",
        packets=Packets.marked,
        services=lambda facts: (
            affected.nobody(facts)
            if affected.mark_bits_differ(facts)
            else affected.services_of(affected.refused)(facts)
        ),
        iptables=affected.mark_iptables,
        nftables=affected.mark_nftables,
        to_nftables=Advice(
            "look",
            "See that no other program uses this bit of the mark.",
            "See that no other program of the node uses that bit of the packet mark (CNI plugins, VPNs, policy "
            "routing); set nftables.masqueradeBit as iptables.masqueradeBit is where something counts on it.",
            affected.masquerade_bit_config(MODE_NFTABLES),
        ),
        to_iptables=Advice(
            "look",
            "See that no other program uses this bit of the mark.",
            "See that no other program of the node uses that bit of the packet mark; set iptables.masqueradeBit as "
            "nftables.masqueradeBit is where something counts on it.",
            affected.masquerade_bit_config(MODE_IPTABLES),
        ),
        differs=sources_differ,
    ),
    Reason(
        id=ids.LOCALNET_GUARD,
        title="The guard of 127.0.0.0/8",
        packets=Packets.localnet,
        addresses=lambda facts: ("127.0.0.0/8",),
        iptables=(
            "kube-proxy sets net.ipv4.conf.all.route_localnet to 1, and drops what comes from elsewhere to 127.0.0.0/8."
        ),
        nftables="It does neither. The setting stays as it is until a restart, and nothing guards these addresses.",
        to_nftables=Advice(
            "after",
            "Switch route_localnet off, unless another program needs it.",
            "After the switch set net.ipv4.conf.all.route_localnet to 0, unless another program needs it. (A "
            "kubelet writes a rule of the same kind into KUBE-FIREWALL; where it does, that goes on.)",
            "sysctl -w net.ipv4.conf.all.route_localnet=0",
        ),
        to_iptables=nothing("Nothing to do: kube-proxy sets it, and guards these addresses."),
    ),
)
"""Most traffic first: what clients of Services meet, then what strays, then what nobody should send."""
