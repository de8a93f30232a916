"""A condition asked of one packet: yes, no, or open.

An open answer is a `Split`: the states in which the packet goes on if the condition holds and if it does not.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Final

from kproxy.dataplane.concrete.state import Answer, Split, State, View, negate, open_question, unknown
from kproxy.dataplane.model.conntrack import ESTABLISHED, NEW, ORIGINAL, Connection, FlowTuple
from kproxy.netfilter.condition import All, Among, Any, Condition, In, Not, Open, Under
from kproxy.netfilter.iptables.codec import UINT32

_WORDS: Final = {
    "src": "the source address", "dst": "the destination address", "sport": "the source port",
    "dport": "the destination port", "icmp_type": "the ICMP type", "icmp_code": "the ICMP code",
    "tcp_flags": "the TCP flags", "length": "the packet's length", "tos": "the TOS", "ttl": "the TTL",
}  # fmt: skip
_REWRITTEN: Final = frozenset({"tos", "ttl"})
"""Fields that targets change while they are open: an answer about them is not remembered."""


def answer(condition: Condition, view: View) -> Answer:
    """Whether the condition holds of the packet as it is now."""
    match condition:
        case In("tracked", _):
            return view.state.has_connection
        case In(field, intervals):
            value = _value(field, view)
            if value is None:
                return _open(condition, field, view)
            return any(first <= value <= last for first, last in intervals)
        case Under("mark" | "connmark" as field, value, mask):
            return _mark(field, value, mask, view)
        case Under(field, wanted, mask):
            value = _value(field, view)
            return _open(condition, field, view) if value is None else value & mask == wanted
        case Not(part):
            return negate(answer(part, view))
        case All(parts):
            return _all(parts, view, answer)
        case Any(parts):
            return negate(_all(parts, view, lambda part, view: negate(answer(part, view))))
        case Among("ctstate", names):
            return _state(condition, names, view)
        case Among(_, names):
            return _status(condition, names, view)
        case Open(_, _, what):
            return open_question(view, condition, f"{what} is not known")


def _all(parts: Iterable[Condition], view: View, ask: Callable[[Condition, View], Answer]) -> Answer:
    answers: list[Answer] = []
    for part in parts:
        found = ask(part, view)
        if found is False:
            return False
        answers.append(found)
    return both(view, answers)


def _value(field: str, view: View) -> int | None:
    """What the packet, or its connection, has as a field; None if it is not known."""
    read = _OF_CONNECTION.get(field)
    if read is None:
        found: int | None = getattr(view.state.packet, field)
        return found
    entry = view.state.connection.known_as(view.state.packet)
    assert entry.original is not None, field
    assert entry.reply is not None, field
    return read(entry, entry.original, entry.reply)


_OF_CONNECTION: Final[dict[str, Callable[[Connection, FlowTuple, FlowTuple], int | None]]] = {
    "ctorigsrc": lambda _, original, reply: original.src,
    "ctorigdst": lambda _, original, reply: original.dst,
    "ctreplsrc": lambda _, original, reply: reply.src,
    "ctrepldst": lambda _, original, reply: reply.dst,
    "ctorigsrcport": lambda _, original, reply: original.sport,
    "ctorigdstport": lambda _, original, reply: original.dport,
    "ctreplsrcport": lambda _, original, reply: reply.sport,
    "ctrepldstport": lambda _, original, reply: reply.dport,
    "reply": lambda entry, original, reply: int(entry.direction != ORIGINAL),
}


def _state(condition: Condition, names: frozenset[str], view: View) -> Answer:
    """Whether the connection's state is one of these; SNAT and DNAT are states of the connection too."""
    state = view.state
    if state.has_connection and (
        ("SNAT" in names and state.connection.snat) or ("DNAT" in names and state.connection.dnat)
    ):
        return True
    current = state.ctstate
    return (
        open_question(view, condition, "the connection's state is not known") if current is None else current in names
    )


def _status(condition: Condition, names: frozenset[str], view: View) -> Answer:
    entry = view.state.connection
    held = entry.status
    if held is None:
        settled = entry.state == ESTABLISHED or entry.direction != ORIGINAL
        held = frozenset({"SEEN_REPLY", "CONFIRMED"} if settled else {"CONFIRMED"} if view.state.looped else ())
        doubtful = {"ASSURED", "EXPECTED"} if settled or entry.state != NEW else set()
        if not names & held and names & doubtful:
            return open_question(view, condition, "the connection's status is not known")
    return bool(names & held)


def both(view: View, answers: list[Answer]) -> Answer:
    """Whether all parts hold. At most one open part forks; the others are asked again after it."""
    pending: Answer = True
    for each in answers:
        if each is False:
            return False
        if each is not True:
            if pending is True:
                pending = each
            elif isinstance(pending, Split) and pending != each:
                # Two open parts: nothing links them, so each evaluation is a question of its own.
                return unknown(view, pending.why)
    return pending


def _open(condition: Condition, field: str, view: View) -> Answer:
    why = f"{_WORDS.get(field, field)} is not known"
    return unknown(view, why) if field in _REWRITTEN else open_question(view, condition, why)


def _mark(field: str, wanted: int, mask: int, view: View) -> Answer:
    """A mark of which some bits may be open; what an answer tells of them is remembered."""
    state = view.state
    holder = state.packet if field == "mark" else state.connection
    value, known = holder.mark, holder.mark_known
    if wanted & ~mask & UINT32 or (value ^ wanted) & mask & known:
        return False
    still = mask & ~known & UINT32
    if not still:
        return True
    why = "the packet's mark is not known" if field == "mark" else "the connection's mark is not known"
    # That several bits together are not the wanted ones says nothing of a single one.
    no = state if still & (still - 1) else _learnt(state, field, value & known | ~wanted & still, known | still)
    return Split(_learnt(state, field, value & known | wanted & still, known | still), no, None, why)


def _learnt(state: State, field: str, mark: int, known: int) -> State:
    if field == "mark":
        return state.with_packet(mark=mark, mark_known=known)
    return state._replace(connection=state.connection.replace(mark=mark, mark_known=known))
