"""Evaluators of the matches that look at the packet's own headers, marks, interfaces and socket."""

from __future__ import annotations

from collections.abc import Hashable

from kproxy.dataplane.concrete.state import Answer, Split, State, View, negate, open_question, unknown
from kproxy.dataplane.model.packet import CWR, ECE, LOCAL, LOOPBACK, PORT_PROTOCOLS, Packet
from kproxy.netfilter.iptables.codec import UINT32, Masked, Range
from kproxy.netfilter.iptables.matches import (
    CHUNK_TYPES,
    ConnmarkMatch,
    DscpMatch,
    EcnMatch,
    HlMatch,
    Icmp6Match,
    IcmpMatch,
    IprangeMatch,
    LengthMatch,
    MarkMatch,
    MultiportMatch,
    OwnerMatch,
    PhysdevMatch,
    SctpMatch,
    TcpMatch,
    TosMatch,
    TtlMatch,
    UdpMatch,
)
from kproxy.netfilter.iptables.option import Negatable


def both(view: View, answers: list[Answer]) -> Answer:
    """Whether all parts of one match hold. At most one open part forks; the others are asked again after it."""
    pending: Answer = True
    for answer in answers:
        if answer is False:
            return False
        if answer is not True:
            if pending is True:
                pending = answer
            elif isinstance(pending, Split) and pending != answer:
                # Two open parts: nothing links them, so each evaluation is a question of its own.
                return unknown(view, pending.why)
    return pending


def compare(view: View, value: int | None, wanted: bool | None, negated: bool, key: Hashable, why: str) -> Answer:
    """`wanted` turned round if `negated`, or an open question if the value is."""
    if value is None or wanted is None:
        answer = open_question(view, key, why)
        return negate(answer) if negated else answer
    return wanted != negated


def interface_fits(pattern: str, name: str) -> bool:
    """Whether an interface has the name, or begins with it if the pattern ends in `+`; no interface is empty."""
    if pattern.endswith("+"):
        return name.startswith(pattern[:-1])
    return name == pattern


def interface_answer(view: View, field: str, wanted: Negatable[str]) -> Answer:
    """Whether the packet's interface, the value of that field, fits the pattern."""
    packet = view.state.packet
    name: str | None = getattr(packet, field)
    pattern = wanted.value
    if name is not None:
        return interface_fits(pattern, name) != wanted.negated
    if pattern == "+":
        return not wanted.negated
    if pattern == LOOPBACK and field in ("in_interface", "out_interface"):
        # Only what the host sends to itself passes the loopback interface, and then the interface is known.
        return wanted.negated
    answer = open_question(view, (field, pattern), f"the {_INTERFACE_NAMES[field]} is not known")
    if isinstance(answer, Split) and answer.yes is not None and not pattern.endswith("+"):
        answer = answer._replace(yes=view.state.with_packet(**{field: pattern}))
    return negate(answer) if wanted.negated else answer


_INTERFACE_NAMES = {
    "in_interface": "input interface",
    "out_interface": "output interface",
    "in_port": "input bridge port",
    "out_port": "output bridge port",
}


def _port_answer(view: View, field: str, wanted: Negatable[Range] | None) -> Answer:
    if wanted is None:
        return True
    value: int | None = getattr(view.state.packet, field)
    fits = None if value is None else wanted.value.contains(value)
    name = "source" if field == "sport" else "destination"
    return compare(view, value, fits, wanted.negated, (field, wanted.value), f"the {name} port is not known")


def tcp(match: TcpMatch, view: View) -> Answer:
    """Ports, flags, options."""
    packet = view.state.packet
    answers = [_port_answer(view, "sport", match.sport), _port_answer(view, "dport", match.dport)]
    if match.flags is not None:
        flags = packet.tcp_flags
        fits = None if flags is None else match.flags.value.contains(flags)
        why = "the TCP flags are not known"
        answers.append(compare(view, flags, fits, match.flags.negated, ("tcp_flags", match.flags.value), why))
    if match.option is not None:
        why = "the TCP options are not known"
        answers.append(compare(view, None, None, match.option.negated, ("option", match.option.value), why))
    return both(view, answers)


def udp(match: UdpMatch, view: View) -> Answer:
    """Ports."""
    return both(view, [_port_answer(view, "sport", match.sport), _port_answer(view, "dport", match.dport)])


def sctp(match: SctpMatch, view: View) -> Answer:
    """Ports and chunk types."""
    answers = [_port_answer(view, "sport", match.sport), _port_answer(view, "dport", match.dport)]
    if match.chunks is not None:
        chunks = ", ".join(name for name, _ in match.chunks.value.chunks if name in CHUNK_TYPES)
        key = ("sctp_chunks", match.chunks.value)
        answers.append(
            compare(view, None, None, match.chunks.negated, key, f"the SCTP chunks are not known ({chunks or 'ALL'})")
        )
    return both(view, answers)


def multiport(match: MultiportMatch, view: View) -> Answer:
    """Ports in lists; a packet without ports never fits."""
    packet = view.state.packet
    if packet.protocol not in PORT_PROTOCOLS:
        return False
    wanted = match.sports or match.dports or match.ports
    if wanted is None:
        return unknown(view, "multiport without ports")
    fields = ("sport",) if match.sports else ("dport",) if match.dports else ("sport", "dport")
    values: list[int | None] = [getattr(packet, field) for field in fields]
    if any(value is not None and any(ports.contains(value) for ports in wanted.value) for value in values):
        return not wanted.negated
    if None not in values:
        return wanted.negated
    return compare(view, None, None, wanted.negated, ("multiport", fields, wanted.value), "a port is not known")


def icmp(match: IcmpMatch | Icmp6Match, view: View) -> Answer:
    """Type and code."""
    packet = view.state.packet
    wanted = match.icmp_type.value
    if isinstance(match, IcmpMatch) and wanted.type == 255:
        return not match.icmp_type.negated
    fits: bool | None
    if packet.icmp_type is None:
        fits = None
    elif packet.icmp_type != wanted.type:
        fits = False
    elif wanted.codes == Range(0, 255):
        fits = True
    else:
        fits = None if packet.icmp_code is None else wanted.codes.contains(packet.icmp_code)
    known = None if fits is None else 0
    return compare(view, known, fits, match.icmp_type.negated, ("icmp", wanted), "the ICMP type is not known")


def masked_bits(value: int, known: int, wanted: Masked) -> bool | None:
    """Whether `value & mask == wanted`, as far as the known bits tell."""
    if wanted.value & ~wanted.mask & UINT32 or (value ^ wanted.value) & wanted.mask & known:
        return False
    return None if wanted.mask & ~known & UINT32 else True


def _learn(value: int, known: int, wanted: Masked, answer: bool) -> tuple[int, int] | None:
    """Value and known bits once it is answered whether the bits have the wanted value; None: nothing to remember."""
    open_bits = wanted.mask & ~known & UINT32
    if answer:
        return value & known | wanted.value & open_bits, known | open_bits
    if open_bits & (open_bits - 1):
        return None
    return value & known | ~wanted.value & open_bits, known | open_bits


def mark(match: MarkMatch, view: View) -> Answer:
    """The packet's mark."""
    packet, wanted = view.state.packet, match.mark.value
    fits = masked_bits(packet.mark, packet.mark_known, wanted)
    if fits is not None:
        return fits != match.mark.negated
    states: list[State] = []
    for answer in (True, False):
        learnt = _learn(packet.mark, packet.mark_known, wanted, answer)
        states.append(view.state if learnt is None else view.state.with_packet(mark=learnt[0], mark_known=learnt[1]))
    found = Split(states[0], states[1], None, "the packet's mark is not known")
    return negate(found) if match.mark.negated else found


def connmark(match: ConnmarkMatch, view: View) -> Answer:
    """The connection's mark; a packet without a connection never fits, negated or not (xt_connmark)."""
    state = view.state
    if not state.has_connection:
        return False
    entry, wanted = state.connection, match.mark.value
    fits = masked_bits(entry.mark, entry.mark_known, wanted)
    if fits is not None:
        return fits != match.mark.negated
    states: list[State] = []
    for answer in (True, False):
        learnt = _learn(entry.mark, entry.mark_known, wanted, answer)
        changed = entry if learnt is None else entry.replace(mark=learnt[0], mark_known=learnt[1])
        states.append(state._replace(connection=changed))
    found = Split(states[0], states[1], None, "the connection's mark is not known")
    return negate(found) if match.mark.negated else found


def iprange(match: IprangeMatch, view: View) -> Answer:
    """Addresses in ranges."""
    packet = view.state.packet
    answers = []
    for field, wanted in (("src", match.src_range), ("dst", match.dst_range)):
        if wanted is not None:
            address: int | None = getattr(packet, field)
            fits = None if address is None else wanted.value.contains(address)
            key = (field, wanted.value)
            answers.append(compare(view, address, fits, wanted.negated, key, "an address is not known"))
    return both(view, answers)


def length(match: LengthMatch, view: View) -> Answer:
    """The packet's length."""
    value, wanted = view.state.packet.length, match.length.value
    fits = None if value is None else wanted.contains(value)
    return compare(view, value, fits, match.length.negated, ("length", wanted), "the packet's length is not known")


def hops(match: TtlMatch | HlMatch, view: View) -> Answer:
    """TTL or hop limit."""
    value = view.state.packet.ttl
    if isinstance(match, TtlMatch):
        equal, less, greater = match.ttl_eq, match.ttl_lt, match.ttl_gt
    else:
        equal, less, greater = match.hl_eq, match.hl_lt, match.hl_gt
    if value is None:
        return unknown(view, "the TTL is not known")
    if equal is not None:
        return (value == equal.value) != equal.negated
    if less is not None:
        return value < less
    return greater is not None and value > greater


def dscp(match: DscpMatch, view: View) -> Answer:
    """The code point."""
    value = view.state.packet.tos
    if value is None:
        return unknown(view, "the DSCP is not known")
    return (value >> 2 == match.dscp.value) != match.dscp.negated


def tos(match: TosMatch, view: View) -> Answer:
    """The TOS octet."""
    value = view.state.packet.tos
    if value is None:
        return unknown(view, "the TOS is not known")
    return match.tos.value.contains(value) != match.tos.negated


def ecn(match: EcnMatch, view: View) -> Answer:
    """The bits of Explicit Congestion Notification (xt_ecn)."""
    packet = view.state.packet
    flags, octet, answers = packet.tcp_flags, packet.tos, []
    for bit, wanted in ((ECE, match.tcp_ece), (CWR, match.tcp_cwr)):
        if wanted is not None:
            fits = None if flags is None else bool(flags & bit)
            answers.append(compare(view, flags, fits, not wanted, ("tcp_flags", bit), "the TCP flags are not known"))
    if match.ip_ect is not None:
        fits = None if octet is None else octet & 3 == match.ip_ect.value
        key = ("ecn", match.ip_ect.value)
        answers.append(compare(view, octet, fits, match.ip_ect.negated, key, "the TOS is not known"))
    return both(view, answers)


def owner(match: OwnerMatch, view: View) -> Answer:
    """The sending socket; a packet without one fits only if every part is negated (xt_owner)."""
    packet = view.state.packet
    given = {
        "socket": None if match.socket_exists is None else not match.socket_exists,
        "uid": None if match.uid_owner is None else match.uid_owner.negated,
        "gid": None if match.gid_owner is None else match.gid_owner.negated,
    }
    has_socket = False if packet.origin != LOCAL else True if packet.uid is not None else packet.socket
    if has_socket is False:
        return all(negated for negated in given.values() if negated is not None)
    if has_socket is None:
        return open_question(view, ("owner", match), "the sending socket is not known")
    if match.socket_exists is False:
        return False
    answers: list[Answer] = []
    for field, wanted in (("uid", match.uid_owner), ("gid", match.gid_owner)):
        if wanted is not None:
            value = _owner_id(packet, field)
            fits = None if value is None else wanted.value.contains(value)
            if field == "gid" and match.suppl_groups and not fits:
                value = fits = None
            key = (field, wanted.value, match.suppl_groups)
            answers.append(compare(view, value, fits, wanted.negated, key, f"the sender's {field} is not known"))
    return both(view, answers)


def _owner_id(packet: Packet, field: str) -> int | None:
    return packet.uid if field == "uid" else packet.gid


def physdev(match: PhysdevMatch, view: View) -> Answer:
    """The bridge ports (xt_physdev). A packet that met no bridge has none: then only negated parts can fit."""
    packet = view.state.packet
    answers: list[Answer] = []
    for field, present, wanted in (
        ("in_port", match.is_in, match.physdev_in),
        ("out_port", match.is_out, match.physdev_out),
    ):
        port: str | None = getattr(packet, field)
        if present is not None:
            key = (field, "present")
            known = None if port is None else 0
            answers.append(compare(view, known, port != "", not present, key, "the bridge port is not known"))
        if wanted is not None:
            answers.append(interface_answer(view, field, wanted))
    if match.is_bridged is not None:
        fits = (
            None if packet.in_port is None or packet.out_port is None else "" not in (packet.in_port, packet.out_port)
        )
        known = None if fits is None else 0
        answers.append(
            compare(view, known, fits, not match.is_bridged, "bridged", "whether it is bridged is not known")
        )
    return both(view, answers)
