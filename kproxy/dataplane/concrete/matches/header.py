"""Evaluators of the matches that look at interfaces and at the sending socket."""

from __future__ import annotations

from collections.abc import Hashable

from kproxy.dataplane.concrete.answer import both
from kproxy.dataplane.concrete.state import Answer, Split, View, negate, open_question
from kproxy.dataplane.model.packet import LOCAL, LOOPBACK, Packet
from kproxy.netfilter.iptables.matches import OwnerMatch, PhysdevMatch
from kproxy.netfilter.iptables.option import Negatable


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
