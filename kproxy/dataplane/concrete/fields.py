"""How one packet yields the fields that rules read (`netfilter.field`).

A field is an attribute of the packet, or has a reader here: of the connection, the sending socket, the routes. None is
a value that is not known. A reader names the kernel's module that it follows.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Final

from kproxy.dataplane.concrete.routing import UNKNOWN, Query, Unknown, address_type, lookup
from kproxy.dataplane.concrete.state import View
from kproxy.dataplane.model.conntrack import ORIGINAL, Connection, FlowTuple
from kproxy.dataplane.model.packet import LOCAL, LOOPBACK
from kproxy.netfilter.family import Family
from kproxy.netfilter.iptables.codec import UINT32
from kproxy.netfilter.iptables.matches.addrtype import ADDRESS_TYPES
from kproxy.netfilter.nftables.lowering import CT_STATES

Value = int | str | None
_NUMBERS: Final = {name: number for number, name in CT_STATES.items()}


def read_field(field: str, view: View) -> Value:
    """The value of a field; None if it is not known."""
    read = _READERS.get(field)
    if read is not None:
        return read(view)
    name, *words = field.split(" ")
    computed = _COMPUTED.get(name)
    if computed is not None:
        return computed(view, words)
    found: Value = getattr(view.state.packet, field, None)
    return found


def _of_tuples(read: Callable[[Connection, FlowTuple, FlowTuple], int | None]) -> Callable[[View], int | None]:
    def value(view: View) -> int | None:
        entry = view.state.connection.known_as(view.state.packet)
        assert entry.original is not None
        assert entry.reply is not None
        return read(entry, entry.original, entry.reply)

    return value


def _sender(view: View) -> int | None:
    """Whether a socket of this host sent the packet (xt_owner, nft_meta)."""
    packet = view.state.packet
    found = False if packet.origin != LOCAL else True if packet.uid is not None else packet.socket
    return None if found is None else int(found)


def _id(view: View, name: str) -> int | None:
    """Of a packet that no socket sent, no id that a rule may ask for."""
    found: int | None = getattr(view.state.packet, name)
    return -1 if _sender(view) == 0 else found


def _packet_type(view: View) -> int | None:
    """How the frame was addressed: what comes with a unicast address was for this host."""
    packet = view.state.packet
    kind = None if packet.dst is None else address_type(view.host, packet.family, packet.dst)
    return 0 if kind in ("LOCAL", "UNICAST") else None


def _bridged(view: View) -> int | None:
    packet = view.state.packet
    ports = (packet.in_port, packet.out_port)
    return None if None in ports else int("" not in ports)


def _address(view: View, side: str, words: list[str]) -> tuple[int | None, str | None]:
    """An address of the packet, and the interface whose routes count, empty for all."""
    packet = view.state.packet
    device = packet.in_interface if "iif" in words else packet.out_interface if "oif" in words else ""
    return packet.src if side == "src" else packet.dst, device


def _kind(view: View, words: list[str], side: str) -> int | None:
    """The kernel's number of an address's type (xt_addrtype for IPv4, nft_fib)."""
    (address, device), family = _address(view, side, words), view.state.packet.family
    if address is None or device is None:
        return None
    if family is Family.IPV6 and not device:
        route = lookup(view.host, Query(family, address, None))
        if isinstance(route, Unknown):
            return None
        kind = "UNREACHABLE" if route is None else route.kind.upper()
        if kind == "LOCAL" and view.host.is_anycast(family, address):
            kind = "ANYCAST"
    else:
        found = address_type(view.host, family, address, device or None)
        kind = "" if isinstance(found, Unknown) else found
    return ADDRESS_TYPES.index(kind) if kind in ADDRESS_TYPES else None


def _is_local(view: View, words: list[str], side: str) -> int | None:
    """Whether an address is this host's own (xt_addrtype for IPv6)."""
    address, device = _address(view, side, words)
    if address is None or device is None:
        return None
    kind = address_type(view.host, view.state.packet.family, address, device or None)
    return None if kind is UNKNOWN else int(kind == "LOCAL")


def _reverse_path(view: View, words: list[str]) -> int | None:
    """Whether an answer would leave by the interface that the packet came from (ipt_rpfilter, ip6t_rpfilter)."""
    packet = view.state.packet
    if packet.in_interface == LOOPBACK:
        return 1
    if packet.src is None:
        return None
    if packet.src == 0:
        return int(packet.family is Family.IPV6 or packet.dst == UINT32)
    mark, known = (packet.mark, packet.mark_known) if "validmark" in words else (0, UINT32)
    route = lookup(view.host, Query(packet.family, packet.src, packet.dst, mark, known))
    if isinstance(route, Unknown):
        return None
    if route is None:
        return 0
    if route.kind == "local":
        accepted = "accept-local" in words
        if packet.family is Family.IPV6 or not accepted:
            return int(accepted)
    elif route.kind != "unicast":
        return 0
    if "loose" in words:
        return 1
    return None if route.device is None or packet.in_interface is None else int(route.device == packet.in_interface)


_READERS: Final[dict[str, Callable[[View], Value]]] = {
    "family": lambda view: 2 if view.state.packet.family is Family.IPV4 else 10,
    "ethertype": lambda view: 0x0800 if view.state.packet.family is Family.IPV4 else 0x86DD,
    "transport": lambda view: int(not view.state.packet.fragment),
    "ports": lambda view: 1,  # what stands there in another header is not known
    "tracked": lambda view: int(view.state.has_connection),
    "ctstate": lambda view: _NUMBERS.get(view.state.ctstate or ""),
    "ctorigsrc": _of_tuples(lambda _, original, reply: original.src),
    "ctorigdst": _of_tuples(lambda _, original, reply: original.dst),
    "ctreplsrc": _of_tuples(lambda _, original, reply: reply.src),
    "ctrepldst": _of_tuples(lambda _, original, reply: reply.dst),
    "ctorigsrcport": _of_tuples(lambda _, original, reply: original.sport),
    "ctorigdstport": _of_tuples(lambda _, original, reply: original.dport),
    "ctreplsrcport": _of_tuples(lambda _, original, reply: reply.sport),
    "ctrepldstport": _of_tuples(lambda _, original, reply: reply.dport),
    "reply": _of_tuples(lambda entry, original, reply: int(entry.direction != ORIGINAL)),
    "ipvs": lambda view: None if view.state.ipvs is None else int(view.state.ipvs),
    "has_socket": _sender,
    "sender": lambda view: int(_sender(view) != 0),
    "uid": lambda view: _id(view, "uid"),
    "gid": lambda view: _id(view, "gid"),
    "groups": lambda view: -1 if _sender(view) == 0 else None,
    "pkttype": _packet_type,
    "bridged": _bridged,
    "framed": lambda view: int(view.state.packet.in_interface != ""),
    "mac": lambda view: "" if view.state.packet.in_interface == LOOPBACK else None,
}
_COMPUTED: Final[dict[str, Callable[[View, list[str]], int | None]]] = {
    "src_kind": partial(_kind, side="src"), "dst_kind": partial(_kind, side="dst"),
    "src_local": partial(_is_local, side="src"), "dst_local": partial(_is_local, side="dst"),
    "src_path": _reverse_path,
}  # fmt: skip
"""Fields of the routes. Words after the name say how it is looked up."""
