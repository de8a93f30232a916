"""The reply: what the other side sends back, and its own passage through the host, with translation undone.

The reply of an accepted packet arrives by the interface that the packet left by, or is made by this host if it was
delivered here; it belongs to the same connection, so that the nat tables are not walked and the connection's tuples
rewrite it. The answer to a rejected packet is made by this host and counts as RELATED. Two answers meet no hook but
EGRESS: the TCP RST to a packet that came by a bridge port (nf_send_reset), and what is rejected at INGRESS
(nft_reject_netdev).
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from fractions import Fraction

from kproxy.dataplane.concrete.graph import End
from kproxy.dataplane.concrete.index import Index
from kproxy.dataplane.concrete.state import State
from kproxy.dataplane.concrete.trace import Outcome, TraceResult, end_outcome, trace
from kproxy.dataplane.model.conntrack import ESTABLISHED, RELATED, Connection
from kproxy.dataplane.model.errors import DataplaneError
from kproxy.dataplane.model.host import Host
from kproxy.dataplane.model.packet import ACK, ARRIVING, ICMP, ICMPV6, LOCAL, SYN, TCP, Packet
from kproxy.dataplane.model.verdict import ACCEPT, DROP, INDETERMINATE, REJECT
from kproxy.netfilter.effect import ANSWERS
from kproxy.netfilter.family import Family
from kproxy.netfilter.hooks import Hook
from kproxy.netfilter.iptables.ruleset import Ruleset

_RST = 0x04
_ECHO_REPLY = {ICMP: 0, ICMPV6: 129}
_UNREACHABLE = {family: {row.name: row.code for row in rows} for family, rows in ANSWERS.items()}


def is_answered(outcome: Outcome) -> bool:
    """Whether something answers a packet: no reset answers a reset (nf_reject_ip_tcphdr_get), and no ICMP error one
    (icmp_send, icmpv6_send)."""
    packet = outcome.packet
    if outcome.verdict == REJECT and outcome.reject == "tcp-reset":
        return not (packet.tcp_flags is not None and packet.tcp_flags & _RST)
    return outcome.verdict == ACCEPT or (outcome.verdict == REJECT and not packet.is_icmp_error)


def reply_to(host: Host, outcome: Outcome) -> tuple[Packet, Connection]:
    """The packet that answers, and the connection as it finds it.

    Raises:
        DataplaneError: nothing answers (`is_answered`), or what becomes of the packet is not known.
    """
    packet = outcome.packet
    if not is_answered(outcome):
        raise DataplaneError(f"no reply to a packet whose verdict is {outcome.verdict}")
    if outcome.verdict == REJECT:
        return _rejection(host, outcome)
    entry = outcome.connection
    following = Connection("UNTRACKED") if entry is None else entry.turned(ESTABLISHED)
    local = outcome.via == "local"
    echo = packet.protocol in _ECHO_REPLY
    answer = Packet(
        packet.family, packet.dst, packet.src, packet.protocol, packet.dport, packet.sport,
        icmp_type=_ECHO_REPLY.get(packet.protocol), icmp_code=0 if echo else None,
        tcp_flags=SYN | ACK if packet.protocol == TCP else None,
        in_interface="" if local else packet.out_interface, in_port=None if packet.out_port is None else "",
        origin=LOCAL if local else ARRIVING,
    )  # fmt: skip
    return answer, following


def _rejection(host: Host, outcome: Outcome) -> tuple[Packet, Connection]:
    packet, entry = outcome.packet, outcome.connection
    following = Connection("INVALID") if entry is None else entry.turned(RELATED)
    if outcome.reject == "tcp-reset":
        acknowledges = packet.tcp_flags is not None and packet.tcp_flags & ACK  # then the reset itself does not
        answer = Packet(
            packet.family, packet.dst, packet.src, TCP, packet.dport, packet.sport,
            tcp_flags=_RST if acknowledges else _RST | ACK, origin=LOCAL, socket=False,
        )  # fmt: skip
        return answer, following
    kind, protocol = (3, ICMP) if packet.family is Family.IPV4 else (1, ICMPV6)
    # The host answers from the address that was asked if that is its own, else as it routes (icmp_send, icmp6_send).
    own = packet.dst is not None and host.is_local(packet.family, packet.dst)
    answer = Packet(
        packet.family, packet.dst if own else None, packet.src, protocol,
        icmp_type=kind, icmp_code=_UNREACHABLE[packet.family].get(outcome.reject), origin=LOCAL, socket=False,
    )  # fmt: skip
    return answer, following


def error_name(packet: Packet) -> str:
    """What an answer that refuses is called, as `--reject-with` says it: `icmp-port-unreachable`, `tcp-reset`; "" for
    any other packet."""
    if packet.protocol == TCP:
        return "tcp-reset" if packet.tcp_flags is not None and packet.tcp_flags & _RST else ""
    kind = 3 if packet.family is Family.IPV4 else 1
    if packet.protocol not in _ECHO_REPLY or packet.icmp_type != kind:
        return ""
    return next((name for name, code in _UNREACHABLE[packet.family].items() if code == packet.icmp_code), "")


def _is_sent_directly(outcome: Outcome) -> bool:
    """Whether the device sends the answer: to what a chain of netdev refuses, and a reset by a bridge. One of inet at
    ingress answers as any other does, through the host's own chains."""
    if outcome.verdict != REJECT:
        return False
    of_device = outcome.hook == Hook.INGRESS and outcome.steps[-1].table.startswith("netdev ")
    return of_device or (outcome.reject == "tcp-reset" and bool(outcome.packet.in_port))


def _is_lost(host: Host, outcome: Outcome) -> bool:
    """Whether nothing answers: a bridge port has no addresses, so that no answer to it is routed but a reset."""
    refused = outcome.verdict == REJECT and outcome.hook == Hook.INGRESS and outcome.reject != "tcp-reset"
    port = host.interface(outcome.packet.in_interface)
    return refused and port is not None and bool(port.bridge)


def _sent_directly(host: Host, answer: Packet, entry: Connection, outcome: Outcome) -> TraceResult:
    """The answer goes out by the device that the rejected packet came by, its addresses turned round."""
    packet = outcome.packet
    out = host.bridge_of(packet.in_interface) or packet.in_interface
    answer = answer.replace(src=packet.dst, in_interface="", out_interface=out, out_port=packet.in_port)
    sent = End(ACCEPT, "", State(answer, entry), via="out", reason="sent by the device without meeting rules")
    return TraceResult(answer, entry, (end_outcome(sent, host, Fraction(1)),))


def trace_reply(
    ruleset: Ruleset | Index, host: Host, outcome: Outcome, *, assumed: Mapping[str, bool] | None = None
) -> TraceResult:
    """Send the answer to an outcome through the same rules.

    Raises:
        DataplaneError: see `reply_to` and `trace`.
    """
    packet, entry = reply_to(host, outcome)
    if outcome.connection is None and any(step.kind == "ipvs" for step in outcome.steps):
        end = End(
            INDETERMINATE, "", State(packet, entry), reason="what IPVS does with an untracked answer is not modelled"
        )
        return TraceResult(packet, entry, (end_outcome(end, host, Fraction(1), reasons=(end.reason,)),))
    if _is_sent_directly(outcome):
        return _sent_directly(host, packet, entry, outcome)
    if _is_lost(host, outcome):
        lost = End(DROP, "", State(packet, entry), reason="an answer to what came by a bridge port is not routed")
        return TraceResult(packet, entry, (end_outcome(lost, host, Fraction(1)),))
    host = dataclasses.replace(host, elements=outcome.elements)
    # An answer that refuses has the entry of what it answers from the start (nf_send_reset, icmp_glue_bits).
    tracked = outcome.verdict == REJECT and outcome.connection is not None
    return trace(ruleset, host, packet, entry, assumed=assumed, tracked=tracked)
