"""The reasons for which IPVS mode differs from iptables and nftables mode: rows as `reasons` has them.

The comparison of all packets finds the differences; a row says which of them are its own, by what becomes of the
packet in IPVS mode. A difference is of the first row that shows it. Rows without `shows` are about settings that
`Switch.settled` makes alike before that, or about what no single packet shows; `applies` says whether they hold.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from kproxy.cluster.migrate import affected_services as affected
from kproxy.cluster.migrate.packets import Packets
from kproxy.cluster.migrate.reasons import Advice, Reason, nothing
from kproxy.cluster.node import NodeFacts
from kproxy.dataplane import ACCEPT, Outcome
from kproxy.dataplane.compare.difference import Difference
from kproxy.dataplane.concrete.ipvs import NO_LOOPBACK
from kproxy.dataplane.model.conntrack import ESTABLISHED, INVALID, RELATED, UNTRACKED
from kproxy.dataplane.model.host import LOOPBACK_NETWORKS
from kproxy.dataplane.model.packet import SYN, TCP
from kproxy.netfilter.address import format_address
from kproxy.netfilter.family import Family, protocol_name
from kproxy.render.ipvs.rules import IPVS_FILTER
from kproxy.services.serviceport import ServicePort

Shows = Callable[[NodeFacts, Difference], bool]


def _ends(test: Callable[[Outcome], bool]) -> Shows:
    """Whether something may become of the witness in IPVS mode."""
    return lambda _facts, difference: any(map(test, difference.traces[0].outcomes))


def _is_no_syn(_facts: NodeFacts, difference: Difference) -> bool:
    packet = difference.witness.packet
    return packet.protocol == TCP and packet.tcp_flags is not None and not packet.tcp_flags & SYN


def _is_to_itself(_facts: NodeFacts, difference: Difference) -> bool:
    packet = difference.witness.packet
    return difference.source_only and packet.src == packet.dst


def _is_loopback(_facts: NodeFacts, difference: Difference) -> bool:
    packet = difference.witness.packet
    return packet.dst is not None and LOOPBACK_NETWORKS[packet.family].contains(packet.dst)


def _asked(facts: NodeFacts, difference: Difference) -> tuple[str, str]:
    """The Service, and which of its addresses, the witness is sent to."""
    packet = difference.witness.packet
    address = "" if packet.dst is None else format_address(packet.dst, packet.family)
    return facts.addressed(address, packet.dport, protocol_name(packet.protocol))


def _is_node_port(facts: NodeFacts, difference: Difference) -> bool:
    return not difference.source_only and _asked(facts, difference)[1] == "node port"


def _is_local_policy(facts: NodeFacts, difference: Difference) -> bool:
    """Whether IPVS sends the witness to endpoints of a Service with the policy Local, and the other mode to others or
    to none."""
    service, _ = _asked(facts, difference)
    if difference.source_only or not any(port.name.service == service for port in _with_local_policy(facts)):
        return False
    return any(each.dnat for each in difference.traces[0].outcomes)


def _is_returned(_facts: NodeFacts, difference: Difference) -> bool:
    """Whether an endpoint gets its own packet back."""
    source = difference.witness.packet.src
    return difference.source_only and any(each.packet.dst == source for each in difference.traces[0].outcomes)


def _is_refused(_facts: NodeFacts, difference: Difference) -> bool:
    return not {"rejected", "dropped"}.isdisjoint(difference.ends)


def _is_own(_facts: NodeFacts, difference: Difference) -> bool:
    """Whether the node itself gets the witness, untranslated."""
    ends = difference.traces[0].outcomes
    return not difference.source_only and any(
        each.verdict == ACCEPT and each.via == "local" and not each.dnat for each in ends
    )


def _with_local_policy(facts: NodeFacts) -> list[ServicePort]:
    return [port for port in affected.answering(facts) if port.external_policy_local or port.internal_policy_local]


def _with_affinity(facts: NodeFacts) -> list[ServicePort]:
    """Whether they have endpoints or not: those may not be known."""
    return [port for port in facts.service_ports if port.session_affinity_seconds]


def _all(facts: NodeFacts) -> tuple[ServicePort, ...]:
    return facts.service_ports


def _scheduler(facts: NodeFacts) -> str:
    return facts.iptables.ipvs.scheduler or "rr"


IPVS_REASONS: Final = (
    Reason(
        id="ipvs-foreign-servers",
        is_of_settings=True,
        title="Virtual servers of other programs",
        first="kube-proxy leaves virtual servers in excludeCIDRs alone, and removes others that are not its own.",
        second="In nftables mode kube-proxy clears every virtual server when it starts, in iptables mode none.",
        addresses=lambda facts: facts.iptables.ipvs.exclude_cidrs,
        applies=lambda facts: bool(facts.iptables.ipvs.exclude_cidrs),
        to_nftables=Advice(
            "act",
            "Move these virtual servers to other nodes, or have their program restore them.",
            "kube-proxy clears the whole IPVS table once, at its first start in nftables mode. Move these virtual "
            "servers to nodes without kube-proxy, or restart the program that makes them after the switch.",
        ),
        to_iptables=Advice("look", "See that kube-proxy --cleanup is not run: it clears these virtual servers too."),
    ),
    Reason(
        id="ipvs-strict-arp",
        is_of_settings=True,
        title="strictARP no longer keeps the node from answering ARP",
        first="kube-proxy sets arp_ignore to 1 and arp_announce to 2: nodes do not answer for load-balancer IPs.",
        second="It sets neither, and the load-balancer IPs are on no interface: nothing answers for them. The settings "
        "stay until a restart.",
        applies=lambda facts: facts.iptables.ipvs.strict_arp and facts.family is Family.IPV4,
        to_nftables=Advice(
            "look",
            "See that the load balancer's announcer does not count on these settings.",
            "MetalLB and kube-vip ask for strictARP because of IPVS mode only. Remove it from the configuration after "
            "the switch.",
        ),
    ),
    Reason(
        id="ipvs-scheduler",
        is_of_settings=True,
        title="Endpoints are chosen at random, not by the scheduler",
        services=affected.answering,
        first=lambda facts: f"IPVS chooses endpoints with the scheduler {_scheduler(facts)}.",
        second="Each endpoint has the same chance for each connection.",
        applies=lambda facts: _scheduler(facts) != "rr",
        to_nftables=Advice(
            "look",
            "See that no Service counts on the scheduler.",
            "Services that count on the least loaded endpoint, or on one endpoint for a client, need a proxy of their "
            "own, or sessionAffinity: ClientIP.",
        ),
    ),
    Reason(
        id="session-affinity",
        is_of_settings=True,
        title="Session affinity starts anew",
        services=_with_affinity,
        first="IPVS remembers a client by its address, for all real servers of a virtual server, until its last "
        "connection has ended and the timeout is over.",
        second="A client keeps its endpoint until it has begun no connection for the timeout. Neither mode reads the "
        "other's memory.",
        applies=lambda facts: bool(_with_affinity(facts)),
        to_nftables=Advice("look", "Switch when new endpoints for all clients hurt least."),
    ),
    Reason(
        id="ipvs-loopback-source",
        title="Packets from a loopback address",
        services=affected.answering,
        first="IPVS drops what comes from a loopback address and would leave the node.",
        second="It is sent to an endpoint, with its source rewritten.",
        shows=_ends(lambda each: each.reason == NO_LOOPBACK),
        to_nftables=nothing("Nothing to do: a program that binds 127.0.0.1 before it connects begins to work."),
    ),
    Reason(
        id="ipvs-connections",
        title="Connections that stand during the switch",
        services=affected.answering,
        first="IPVS keeps a connection table of its own, and answers find their way back by it.",
        second="conntrack knows these connections, and their packets go on to IPVS only while its virtual servers are "
        "there.",
        to_nftables=Advice(
            "act",
            "Drain each node before its switch.",
            "Connections through Services break when the virtual servers go. Drain a node, switch it, and take it "
            "back. Long connections, as those of databases, begin anew.",
            config="kubectl drain NODE --ignore-daemonsets",
        ),
        shows=lambda _facts, difference: difference.witness.connection.state in (ESTABLISHED, RELATED),
    ),
    Reason(
        id="ipvs-graceful",
        is_of_settings=True,
        title="Endpoints that terminate",
        services=_all,
        applies=lambda facts: bool(facts.service_ports),
        first="A terminating endpoint stays as a real server with weight 0 until its connections have ended.",
        second="No new connection goes to it; conntrack alone carries those that stand. Nothing waits for them.",
        to_nftables=nothing("Nothing to do."),
    ),
    Reason(
        id="ipvs-leftovers",
        is_of_settings=True,
        title="What IPVS mode leaves on the node",
        first="Virtual servers, the device kube-ipvs0, sets and chains are kube-proxy's.",
        second="In iptables mode they stay, and IPVS goes on to serve them until they are removed. In nftables mode "
        "kube-proxy removes them when it starts, and clears every virtual server of other programs too.",
        to_nftables=Advice("look", "See that no other program has virtual servers on the node.", config="ipvsadm -Sn"),
        to_iptables=Advice(
            "act",
            "Remove them, or start the node anew.",
            "Run kube-proxy --cleanup on the drained node before kube-proxy starts in iptables mode, or reboot it.",
            "kube-proxy --cleanup",
        ),
    ),
    Reason(
        id="masquerade-mark",
        is_of_settings=True,
        title="The masquerade mark",
        first=lambda facts: (
            f"Mark 0x{facts.iptables.masquerade_mark:x} asks for masquerading (iptables.masqueradeBit)."
        ),
        second=lambda facts: f"0x{facts.nftables.masquerade_mark:x} asks for it (nftables.masqueradeBit).",
        applies=affected.mark_bits_differ,
        to_nftables=Advice(
            "look", "See that no other program uses this bit of the mark.", config=affected.masquerade_bit_config
        ),
        to_iptables=nothing("Nothing to do: the mark stays."),
    ),
    Reason(
        id="ipvs-address-filter",
        title="Other ports of a Service's addresses",
        services=_all,
        addresses=lambda facts: facts.service_addresses,
        first="kube-ipvs0 has these addresses, and KUBE-IPVS-FILTER refuses every port of them that no Service has, "
        "ports of the host's programs among them.",
        second="The node does not have them. Packets to these ports are passed on by its routes, or reach a program of "
        "the host if it has the address itself.",
        shows=_ends(lambda each: any(step.chain == IPVS_FILTER for step in each.path) and each.verdict != ACCEPT),
        to_nftables=Advice(
            "act",
            "Have a firewall refuse these ports, where a program of the host listens on them.",
            "Where an external IP is an address of the node, its programs become reachable there: sshd, the kubelet. "
            "Have the host's firewall refuse them. Elsewhere see that no router sends such packets in a loop.",
        ),
    ),
    Reason(
        id="invalid-packets",
        title="Packets that conntrack cannot place",
        services=affected.answering,
        first="IPVS sends them to an endpoint, or refuses them, by its own table.",
        second="They are not translated. iptables mode drops them in FORWARD.",
        shows=lambda _facts, difference: difference.witness.connection.state in (INVALID, UNTRACKED),
        to_nftables=nothing("Nothing to do, unless a program sends them on purpose."),
    ),
    Reason(
        id="ipvs-no-syn",
        title="TCP packets of connections that nobody knows",
        services=affected.answering,
        first="IPVS begins a connection with a SYN only; other packets to a virtual server reach the node itself, "
        "which answers with a reset.",
        second="They are translated, or refused, as a connection's first packet is.",
        shows=_is_no_syn,
        to_nftables=nothing("Nothing to do: the endpoint answers with a reset instead of the node."),
    ),
    Reason(
        id="ipvs-own-addresses",
        title="The node itself has the Services' addresses",
        services=_all,
        addresses=lambda facts: facts.cluster_ips,
        first="kube-ipvs0 has every ClusterIP, external and load-balancer IP. What IPVS does not take and no rule "
        "refuses reaches the node's own programs, and the node may use such an address as its source.",
        second="No interface has them: such packets are translated, refused or passed on.",
        shows=_is_own,
        to_nftables=Advice(
            "act",
            "Have programs use the node's own address.",
            "See that no program of the node binds a Service's address, and that what listens on every address is not "
            "asked by one. Have them use the node's address.",
        ),
    ),
    Reason(
        id="ipvs-ping",
        title="Ping of a Service's address",
        services=_all,
        packets=Packets.pings,
        first="The node has the address, and KUBE-IPVS-FILTER refuses the ping.",
        second="nftables mode refuses it at a ClusterIP. Elsewhere it is passed on by the node's routes, and most "
        "often nobody answers.",
        to_nftables=nothing("Nothing to do, but for monitoring that tells a refusal from a time-out."),
    ),
    Reason(
        id="localhost-node-ports",
        title="Node ports on the loopback address",
        services=affected.localhost_node_ports,
        addresses=affected.node_ports_of(affected.localhost_node_ports),
        first="No virtual server has a loopback address: the packet reaches a program of the node.",
        second="iptables mode answers there with iptables.localhostNodePorts, nftables mode never.",
        shows=_is_loopback,
        to_nftables=nothing("Nothing to do."),
        to_iptables=Advice("act", "Keep node ports off 127.0.0.1.", config="iptables: {localhostNodePorts: false}"),
    ),
    Reason(
        id="ipvs-local-policy",
        title="The policy Local has other endpoints",
        services=_with_local_policy,
        first="A virtual server has the same real servers for every client: this node's endpoints, or all if there are "
        "none.",
        second="Clients outside reach this node's endpoints, or are dropped if there are none; with the external "
        "policy, pods and the node itself reach all.",
        shows=_is_local_policy,
        to_nftables=Advice("look", "See that clients use nodes with an endpoint, and no Pod counts on its own node's."),
    ),
    Reason(
        id="node-port-addresses",
        title="Node ports answer at other addresses",
        services=lambda facts: facts.node_ports,
        addresses=affected.node_ports_of(lambda facts: facts.node_ports),
        first="Node ports answer at the addresses that the node had when kube-proxy read them, in nodePortAddresses.",
        second=lambda facts: (
            f"In nftables mode they answer {affected.answers_at(facts, facts.nftables)}, in iptables mode "
            f"{affected.answers_at(facts, facts.iptables)}, as the node's addresses change."
        ),
        shows=_is_node_port,
        to_nftables=Advice(
            "act",
            "Set nodePortAddresses, or have clients use the primary address.",
            "Send clients to the primary address, or set nodePortAddresses: 0.0.0.0/0 and ::/0 mean every address.",
            'nodePortAddresses: ["0.0.0.0/0", "::/0"]',
        ),
        to_iptables=Advice("look", "See at which addresses clients use node ports."),
    ),
    Reason(
        id="endpoint-itself",
        title="What an endpoint sends to its own address",
        services=affected.answering,
        first="IPVS mode masquerades it by the set KUBE-LOOP-BACK, whether it came through a Service or not.",
        second="It is masqueraded only if it came through a Service.",
        shows=_is_to_itself,
        to_nftables=nothing("Nothing to do: such packets stay inside the pod."),
    ),
    Reason(
        id="remote-hairpin",
        title="A pod that reaches itself through a Service",
        services=affected.answering,
        first="An endpoint of this node whose packet comes back to itself is masqueraded, on its own port.",
        second="iptables mode masquerades an endpoint of any node, nftables mode one of this node.",
        shows=_is_returned,
        to_nftables=Advice(
            "look",
            "See whether a Pod calls its own Service through another node; the ClusterIP works.",
        ),
    ),
    Reason(
        id="ipvs-masquerade",
        title="Other packets are masqueraded",
        services=affected.answering,
        first="IPVS mode masquerades by sets: what goes to a ClusterIP from outside of the cluster, and what goes to "
        "node ports, external and load-balancer IPs unless the policy is Local.",
        second="The source is rewritten by the Service's own rules: traffic of the node itself and to the node's own "
        "endpoints is treated in another way.",
        shows=lambda _facts, difference: difference.source_only,
        to_nftables=Advice("look", "See that no program or NetworkPolicy counts on the source that it sees today."),
    ),
    Reason(
        id="refused-hooks",
        title="Services without endpoints",
        services=affected.refused,
        addresses=affected.refused_addresses,
        first="IPVS refuses what it has no real server for, before the host's other rules see it.",
        second="kube-proxy's rules refuse it, or drop it with the policy Local.",
        shows=_is_refused,
        to_nftables=Advice("look", "See whether programs count on an error at once."),
    ),
)
"""What stands in rules and settings, then what most traffic meets, then what strays."""

FOREIGN_SERVERS: Final = IPVS_REASONS[0]
"""A dump shows it, too: by virtual servers that kube-proxy does not make."""
