"""A condition asked of one packet: yes, no, or open.

An open answer is a `Split`: the states in which the packet goes on if the condition holds and if it does not.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Final

from kproxy.dataplane.concrete.fields import read_field
from kproxy.dataplane.concrete.state import (
    BRIDGED,
    Answer,
    Split,
    State,
    View,
    by_chance,
    negate,
    open_question,
    unknown,
)
from kproxy.dataplane.model.conntrack import ESTABLISHED, NEW, ORIGINAL
from kproxy.dataplane.model.packet import LOOPBACK
from kproxy.netfilter.condition import All, Among, Any, Chance, Condition, In, Not, Open, Under
from kproxy.netfilter.field import word_of
from kproxy.netfilter.iptables.codec import UINT32

_REWRITTEN: Final = frozenset({"tos", "ttl"})
"""Fields that targets change while they are open: an answer about them is not remembered."""


def answer(condition: Condition, view: View) -> Answer:
    """Whether the condition holds of the packet as it is now."""
    match condition:
        case In(field, intervals):
            value = read_field(field, view)
            if not isinstance(value, int):
                return _open(condition, field, view)
            return any(first <= value <= last for first, last in intervals)
        case Under("mark" | "connmark" as field, value, mask):
            return _mark(field, value, mask, view)
        case Under(field, wanted, mask):
            value = read_field(field, view)
            return value & mask == wanted if isinstance(value, int) else _open(condition, field, view)
        case Not(part):
            return negate(answer(part, view))
        case All(parts):
            return _all(parts, view, answer)
        case Any(parts):
            return negate(_all(parts, view, lambda part, view: negate(answer(part, view))))
        case Among("ctstate", names):
            return _state(condition, names, view)
        case Among("ctstatus", names):
            return _status(condition, names, view)
        case Among(field, names):
            return _name(field, names, view)
        case Chance():
            return _chance(condition, view)
        case Open("rate", _, what):
            return unknown(view, f"{what} is not known") if view.limit is None else view.limit
        case Open(_, _, what, each):
            why = f"{what} is not known"
            return unknown(view, why) if each else open_question(view, condition, why)


def _all(parts: Iterable[Condition], view: View, ask: Callable[[Condition, View], Answer]) -> Answer:
    """Whether all parts hold. At most one open part forks; the others are asked again after it."""
    pending: Answer = True
    for part in parts:
        found = ask(part, view)
        if found is False:
            return False
        if isinstance(found, Split):
            if pending is True:
                pending = found
            elif isinstance(pending, Split) and pending != found:
                # Two open parts: nothing links them, so each evaluation is a question of its own.
                pending = unknown(view, pending.why)
    return pending


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


def _open(condition: Condition, field: str, view: View) -> Answer:
    why = f"{word_of(field)} is not known"
    # What is asked of an address that is known is about that address, which NAT may change.
    about = getattr(view.state.packet, field[:3]) if field[:4] in ("src_", "dst_") else None
    key = field if field == BRIDGED else (condition, about)
    return unknown(view, why) if field in _REWRITTEN else open_question(view, key, why)


def interface_fits(pattern: str, name: str) -> bool:
    """Whether an interface has the name, or begins with it if the pattern ends in `+`; no interface is empty."""
    return name.startswith(pattern[:-1]) if pattern.endswith("+") else name == pattern


def _name(field: str, names: frozenset[str], view: View) -> Answer:
    """Whether a name is one of these. An interface that is not known is the one that a rule asks for, if it fits."""
    value = read_field(field, view)
    if isinstance(value, str):
        return any(interface_fits(pattern, value) for pattern in names)
    if "+" in names:
        return True
    # Only what the host sends to itself passes the loopback interface, and then the interface is known.
    names = names - {LOOPBACK} if field in ("in_interface", "out_interface") else names
    if not names:
        return False
    answer = open_question(view, (field, names), f"{word_of(field)} is not known")
    if isinstance(answer, Split) and answer.yes is not None and len(names) == 1:
        (name,) = names
        if field != "mac" and not name.endswith("+"):
            answer = answer._replace(yes=view.state.with_packet(**{field: name}))
    return answer


def _chance(condition: Chance, view: View) -> Answer:
    """By chance; every n-th packet, if the host gives how many packets the rule has numbered (statistic_mt)."""
    ref = (view.ref.table, view.ref.chain, view.ref.rule)
    if not condition.every or ref not in view.host.nth or view.ref.source:
        return by_chance(view, condition.chance)
    met = dict(view.state.nth)
    before = met.get(ref, 0)
    fits = ((view.host.nth[ref] + before) % condition.every == condition.packet) != condition.negated
    met[ref] = before + 1
    state = view.state._replace(nth=frozenset(met.items()))
    return Split(state, None) if fits else Split(None, state)


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
    # That several bits together are not the wanted ones says nothing of a single one.
    no = state if still & (still - 1) else _learnt(state, field, value & known | ~wanted & still, known | still)
    yes = _learnt(state, field, value & known | wanted & still, known | still)
    return Split(yes, no, None, f"{word_of(field)} is not known")


def _learnt(state: State, field: str, mark: int, known: int) -> State:
    if field == "mark":
        return state.with_packet(mark=mark, mark_known=known)
    return state._replace(connection=state.connection.replace(mark=mark, mark_known=known))
