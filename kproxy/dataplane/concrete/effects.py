"""What a rule's effects (`netfilter.effect`) do to one packet: one function for each kind."""

from __future__ import annotations

from collections.abc import Callable
from enum import Enum
from fractions import Fraction
from typing import Any, Final, NamedTuple

from kproxy.dataplane.concrete.matches.state import set_key
from kproxy.dataplane.concrete.nat import MANIP, Choice, choice_text, choices, set_ups
from kproxy.dataplane.concrete.state import DST, SRC, UNSEEN, State, View
from kproxy.dataplane.model.conntrack import UNTRACKED
from kproxy.netfilter.effect import (
    Hashed,
    Jump,
    Nat,
    Queue,
    Reject,
    Remember,
    SetBits,
    SetField,
    Socket,
    Told,
    Unknown,
    Untrack,
    Verdict,
    moved,
)
from kproxy.netfilter.iptables.codec import UINT32


class Result(Enum):
    """How the traversal goes on after a target of iptables or a statement of nft."""

    CONTINUE = "continue"
    """with the rule's next statement, and after the last with the next rule"""
    BREAK = "break"
    """with the next rule at once"""
    ACCEPT = "accept"
    DROP = "drop"
    RETURN = "return"
    JUMP = "jump"
    GOTO = "goto"
    REJECT = "reject"
    UNKNOWN = "unknown"


class Way(NamedTuple):
    """One thing that an effect may do: how the traversal goes on, the state after it, and in a few words what it did.

    `chance` is its probability among the effect's ways, None if that is not known, and `why` then says why; `chain` is
    where a jump leads, `reject` the answer by iptables' name.
    """

    result: Result
    state: State
    did: str = ""
    chance: Fraction | None = Fraction(1)
    chain: str = ""
    reject: str = ""
    why: str = ""


_RESULTS: Final = {
    "accept": Result.ACCEPT, "drop": Result.DROP, "return": Result.RETURN, "continue": Result.CONTINUE,
}  # fmt: skip
NOT_LISTENING: Final = "whether a transparent socket listens is not known"


def _verdict(effect: Verdict, view: View) -> list[Way]:
    return [Way(_RESULTS[effect.kind], view.state, effect.word)]


def _jump(effect: Jump, view: View) -> list[Way]:
    result = Result.GOTO if effect.goto else Result.JUMP
    return [Way(result, view.state, f"{result.value} {effect.chain}", chain=effect.chain)]


def _queue(effect: Queue, view: View) -> list[Way]:
    return [Way(Result.UNKNOWN, view.state, f"{effect.name}: user space decides")]


def _unknown(effect: Unknown, view: View) -> list[Way]:
    return [Way(Result.UNKNOWN, view.state, f"{effect.name} is not interpreted")]


def _reject(effect: Reject, view: View) -> list[Way]:
    answer = effect.answer(view.state.packet.family)
    if not answer:
        return [Way(Result.BREAK, view.state)]
    return [Way(Result.REJECT, view.state, f"{effect.word} with {answer}", reject=answer)]


def _set_field(effect: SetField, view: View) -> list[Way]:
    old, same = getattr(view.state.packet, effect.name), len(set(effect.values)) == 1
    new = effect.values[0] if same else None if old is None else effect.values[old]
    return [Way(Result.CONTINUE, view.state.with_packet(**{effect.name: new}), effect.did)]


def _set_bits(effect: SetBits, view: View) -> list[Way]:
    state = view.state
    if effect.asks_connection and not state.has_connection:
        return [Way(Result.CONTINUE, state, "no connection to mark")]
    mark, known = effect.xor, UINT32
    for term in effect.terms:
        holder = state.packet if term.name == "mark" else state.connection
        mark ^= term.of(holder.mark)
        known &= moved(holder.mark_known | ~term.bits & UINT32, term.shift) | UINT32 ^ moved(UINT32, term.shift)
    return [with_mark(effect.name, mark, known, view)]


def with_mark(name: str, mark: int, known: int, view: View) -> Way:
    """A mark, `mark` or `connmark`, set to a number of which some bits are known."""
    state, mark = view.state, mark & known
    text = f"mark 0x{mark:x}" if known == UINT32 else f"mark 0x{mark:x}/0x{known:x}"
    if name == "mark":
        return Way(Result.CONTINUE, state.with_packet(mark=mark, mark_known=known), text)
    changed = state.connection.replace(mark=mark, mark_known=known)
    return Way(Result.CONTINUE, state._replace(connection=changed), f"connection {text}")


def _hashed(effect: Hashed, view: View) -> list[Way]:
    state = view.state.with_packet(mark=0, mark_known=0).with_told(effect.text, stays=False)
    return [Way(Result.CONTINUE, state, "HMARK: the mark is now open")]


def _told(effect: Told, view: View) -> list[Way]:
    state = view.state.with_told(effect.text, stays=effect.stays) if effect.text else view.state
    return [Way(Result.CONTINUE, state, effect.did)]


def _nat(effect: Nat, view: View) -> list[Way]:
    family = view.state.packet.family
    if not fits_hook(effect.kind, view):  # no kernel loads such a rule
        return [Way(Result.UNKNOWN, view.state, f"{effect.word} outside of its hooks")]
    if effect.family not in (None, family):
        return [Way(Result.BREAK, view.state)]
    return translations(effect, view)


def fits_hook(kind: str, view: View) -> bool:
    """Whether a translation of this kind can be here."""
    manip = MANIP.get(view.hook)
    return view.translates and manip is not None and (
        kind == "netmap" or (kind in ("snat", "masquerade")) == (manip == SRC)
    )  # fmt: skip


def translations(
    effect: Nat, view: View, weight: Fraction | None = Fraction(1), opened: Callable[[Choice], Choice] | None = None
) -> list[Way]:
    """What a translation may do, of which the chance is `weight`; `opened` takes out of a choice what is not known."""
    state, manip = view.state, MANIP[view.hook]
    found = choices(effect, view)
    if found is None:
        return [Way(Result.DROP, state, f"{effect.word}: no address to rewrite to", weight)]
    side = "destination" if manip == DST else "source"
    ways = []
    for choice in found if opened is None else map(opened, found):
        did = f"{effect.word}: {side} becomes {choice_text(state, choice)}"
        states = set_ups(state, manip, choice)
        chance = None if weight is None or len(states) > 1 else weight * choice.chance
        ways += [Way(Result.ACCEPT, each, did, chance, why="what is translated is not known") for each in states]
    return all_open(ways)


def all_open(ways: list[Way], why: str = "") -> list[Way]:
    """Ways without chances, if one has none."""
    if all(way.chance is not None for way in ways):
        return ways
    return [way._replace(chance=None, why=why or way.why) for way in ways]


def _untrack(_effect: Untrack, view: View) -> list[Way]:
    if view.state.tracking != UNSEEN:
        return [Way(Result.CONTINUE, view.state, "already tracked")]
    return [Way(Result.CONTINUE, view.state._replace(tracking=UNTRACKED), "not tracked")]


def _socket(effect: Socket, view: View) -> list[Way]:
    """xt_TPROXY drops the packet without a transparent socket there; nft_tproxy ends the rule."""
    state, port = view.state, view.state.packet.dport if effect.port is None else effect.port
    goes, refused = (Result.ACCEPT, Result.DROP) if effect.final else (Result.CONTINUE, Result.BREAK)
    given = state if effect.mark is None else _set_bits(effect.mark, view)[0].state
    given = given._replace(assigned=True).with_told(effect.text, stays=False)
    name = "TPROXY" if effect.final else "tproxy"
    ways = [
        Way(goes, given, f"{name}: given to the socket on port {port}", None, why=NOT_LISTENING),
        Way(refused, state, f"{name}: no socket on port {port}", None, why=NOT_LISTENING),
    ]
    listening = view.host.transparent
    if listening is None or not isinstance(port, int):
        return ways
    return [ways[(state.packet.protocol, port) not in listening]._replace(chance=Fraction(1))]


def _remember(effect: Remember, view: View) -> list[Way]:
    state = view.state
    for reference, present in effect.changes:
        key = set_key(state.packet, reference)
        answers = {item for item in state.answers if item[0] != key}
        answers |= {(key, present), (("changed-set", reference.name), True)}
        state = state._replace(answers=frozenset(answers))
    return [Way(Result.CONTINUE, state.with_told(effect.text, stays=True), "changes a set")]


def possible(
    effect: object, way: Way, view: View, has_chain: Callable[[str], bool], *, unseen: bool = False
) -> list[Way]:
    """All that an effect may do of which that is not known (`way`): user space accepts or drops; any other may do what
    rules of its table may, or what it says, and change marks. `unseen`: rules that were not seen do."""
    state = view.state
    if isinstance(effect, Queue):
        return _unsure(way, [Way(Result.ACCEPT, state), Way(Result.DROP, state)])
    may, table, opened = getattr(effect, "may", None), view.ref.table, state.with_open_marks()
    found = [Way(Result.CONTINUE, opened)] if may is None else [Way(Result.BREAK, state), Way(Result.CONTINUE, opened)]
    if may is None:
        may = frozenset({"accept", "drop", "translate"} if not (unseen and view.translates) else {"translate"})
        may |= {"reject"} if table == "filter" else set()
        if table == "raw" and state.tracking == UNSEEN:
            found.append(Way(Result.CONTINUE, opened._replace(tracking=UNTRACKED)))
    manip = MANIP.get(view.hook)
    if "translate" in may and view.translates and manip is not None:
        found += [Way(Result.ACCEPT, each) for each in set_ups(opened, manip, Choice(None, None, Fraction(1)))]
    for kind in ("accept", "drop", "reject", "return"):
        if kind in may:
            found.append(Way(Result(kind), opened))
    leads = (lead for lead in getattr(effect, "leads", ()) if has_chain(lead.chain))
    return _unsure(way, [*found, *(_jump(lead, view)[0]._replace(state=opened) for lead in leads)])


def _unsure(way: Way, found: list[Way]) -> list[Way]:
    return [each._replace(chance=None, why=way.did, did=way.did) for each in found]


ACTS: Final[dict[type, Callable[[Any, View], list[Way]]]] = {
    Hashed: _hashed,
    Jump: _jump,
    Nat: _nat,
    Queue: _queue,
    Reject: _reject,
    Remember: _remember,
    SetBits: _set_bits,
    SetField: _set_field,
    Socket: _socket,
    Told: _told,
    Unknown: _unknown,
    Untrack: _untrack,
    Verdict: _verdict,
}
