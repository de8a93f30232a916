"""What targets do: one function per target class. The effects of a target that is not here are unknown."""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction
from typing import Any, Final, NamedTuple

from kproxy.dataplane.concrete.matches.state import set_key
from kproxy.dataplane.concrete.nat import MANIP, Choice, NatTarget, choice_text, choices, set_ups
from kproxy.dataplane.concrete.result import Result
from kproxy.dataplane.concrete.state import DST, SRC, UNSEEN, State, View
from kproxy.dataplane.model.conntrack import UNTRACKED
from kproxy.dataplane.model.deeds import CLEARS_ECN, HARMLESS_TARGETS
from kproxy.dataplane.model.packet import CWR, ECE
from kproxy.dataplane.model.unseen import unseen_reason
from kproxy.netfilter.iptables.codec import UINT32
from kproxy.netfilter.iptables.targets import (
    ConnmarkTarget,
    CtTarget,
    DnatTarget,
    DscpTarget,
    HlTarget,
    LogTarget,
    MarkTarget,
    MasqueradeTarget,
    NetmapTarget,
    NflogTarget,
    NfqueueTarget,
    NotrackTarget,
    OpaqueTarget,
    RedirectTarget,
    RejectTarget,
    SetTarget,
    SnatTarget,
    Target,
    TcpmssTarget,
    TeeTarget,
    TosTarget,
    TproxyTarget,
    TraceTarget,
    TtlTarget,
    Verdict,
)


class Effect(NamedTuple):
    """One thing a target may do: how the traversal goes on, the state after it, and in a few words what it did.

    `chance` is the probability among the target's effects, None if that is unknown.
    """

    result: Result
    state: State
    did: str
    chance: Fraction | None = Fraction(1)


def apply_target(target: Target | None, view: View) -> list[Effect]:
    """What the target may do to the packet."""
    if target is None:
        return [Effect(Result.CONTINUE, view.state, "count")]
    action = _ACTIONS.get(type(target))
    if action is None:
        return [Effect(Result.UNKNOWN, view.state, f"{target.to_save()} is not interpreted")]
    return action(target, view)


_RESULTS: Final = {"ACCEPT": Result.ACCEPT, "DROP": Result.DROP, "RETURN": Result.RETURN}


def _verdict(target: Verdict, view: View) -> list[Effect]:
    if target.verdict == "QUEUE":
        return [Effect(Result.UNKNOWN, view.state, "QUEUE: user space decides")]
    return [Effect(_RESULTS[target.verdict], view.state, target.verdict)]


def _reject(target: RejectTarget, view: View) -> list[Effect]:
    return [Effect(Result.REJECT, view.state, f"REJECT with {target.reject_with}")]


def _goes_on(did: str) -> Callable[[Any, View], list[Effect]]:
    return lambda _target, view: [Effect(Result.CONTINUE, view.state, did)]


def xmarked(value: int, known: int, clear: int, new: int, new_known: int = UINT32) -> tuple[int, int]:
    """A mark and its known bits after some bits were cleared and others, perhaps open, were xor-ed in."""
    known = (known | clear) & new_known & UINT32
    return (value & ~clear ^ new) & known, known


def _shifted(value: int, known: int, left: int, right: int) -> tuple[int, int]:
    if left:
        return value << left & UINT32, (known << left | (1 << left) - 1) & UINT32
    if right:
        return value >> right, (known >> right | UINT32 ^ UINT32 >> right) & UINT32
    return value, known


def _mark(target: MarkTarget, view: View) -> list[Effect]:
    packet = view.state.packet
    mark, known = xmarked(packet.mark, packet.mark_known, target.xmark.mask, target.xmark.value)
    return [_marked(view.state, mark, known)]


def _marked(state: State, mark: int, known: int) -> Effect:
    return Effect(Result.CONTINUE, state.with_packet(mark=mark, mark_known=known), f"mark {_mark_text(mark, known)}")


def _mark_text(mark: int, known: int) -> str:
    return f"0x{mark:x}" if known == UINT32 else f"0x{mark:x}/0x{known:x}"


def _connmark(target: ConnmarkTarget, view: View) -> list[Effect]:
    state = view.state
    if not state.has_connection:
        return [Effect(Result.CONTINUE, state, "no connection to mark")]
    packet, entry = state.packet, state.connection
    left, right = target.left_shift or 0, target.right_shift or 0
    nfmask = UINT32 if target.nfmask is None else target.nfmask
    ctmask = UINT32 if target.ctmask is None else target.ctmask
    if target.copy == "restore":
        taken, taken_known = entry.mark & ctmask, entry.mark_known | ~ctmask & UINT32
        taken, taken_known = _shifted(taken, taken_known, left, right)
        mark, known = xmarked(packet.mark, packet.mark_known, nfmask, taken, taken_known)
        return [_marked(state, mark, known)]
    if target.xmark is not None:
        mark, known = xmarked(entry.mark, entry.mark_known, target.xmark.mask, target.xmark.value)
        mark, known = _shifted(mark, known, left, right)
    else:
        taken, taken_known = packet.mark & nfmask, packet.mark_known | ~nfmask & UINT32
        taken, taken_known = _shifted(taken, taken_known, left, right)
        mark, known = xmarked(entry.mark, entry.mark_known, ctmask, taken, taken_known)
    changed = entry.replace(mark=mark, mark_known=known)
    return [Effect(Result.CONTINUE, state._replace(connection=changed), f"connection mark {_mark_text(mark, known)}")]


def _nat(target: NatTarget, view: View) -> list[Effect]:
    manip = MANIP.get(view.hook)
    fits = isinstance(target, NetmapTarget) or isinstance(target, (SnatTarget, MasqueradeTarget)) == (manip == SRC)
    if manip is None or view.ref.table != "nat" or not fits:  # no kernel loads such a rule
        return [Effect(Result.UNKNOWN, view.state, f"{target.NAME} outside of its hooks")]
    found = choices(target, view)
    if found is None:
        return [Effect(Result.DROP, view.state, f"{target.NAME}: no address to rewrite to")]
    side = "destination" if manip == DST else "source"
    effects = []
    for choice in found:
        did = f"{target.NAME}: {side} becomes {choice_text(view.state, choice)}"
        states = set_ups(view.state, manip, choice)
        effects += [Effect(Result.ACCEPT, state, did, choice.chance if len(states) == 1 else None) for state in states]
    if any(effect.chance is None for effect in effects):
        return [effect._replace(chance=None) for effect in effects]
    return effects


def _untrack(target: NotrackTarget | CtTarget, view: View) -> list[Effect]:
    if isinstance(target, CtTarget) and not target.notrack:
        return [Effect(Result.CONTINUE, view.state, "sets how the connection is tracked")]
    if view.state.tracking != UNSEEN:
        return [Effect(Result.CONTINUE, view.state, "already tracked")]
    return [Effect(Result.CONTINUE, view.state._replace(tracking=UNTRACKED), "not tracked")]


def _tproxy(target: TproxyTarget, view: View) -> list[Effect]:
    # xt_TPROXY drops the packet if no transparent socket listens there.
    state = view.state
    packet = state.packet
    mark, known = xmarked(packet.mark, packet.mark_known, target.tproxy_mark.mask, target.tproxy_mark.value)
    given = state.with_packet(mark=mark, mark_known=known)._replace(assigned=True)
    port = target.on_port or packet.dport
    taken = Effect(Result.ACCEPT, given, f"TPROXY: given to the socket on port {port}", None)
    refused = Effect(Result.DROP, state, f"TPROXY: no socket on port {port}", None)
    listening = view.host.transparent
    if listening is None or port is None:
        return [taken, refused]
    return [taken if (packet.protocol, port) in listening else refused]


def _tos(target: TosTarget, view: View) -> list[Effect]:
    tos, mask = view.state.packet.tos, target.tos.mask
    new = target.tos.value if mask == 0xFF else None if tos is None else tos & ~mask & 0xFF ^ target.tos.value
    return [Effect(Result.CONTINUE, view.state.with_packet(tos=new), "sets the TOS")]


def _dscp(target: DscpTarget, view: View) -> list[Effect]:
    tos = view.state.packet.tos
    new = None if tos is None else tos & 3 | target.dscp << 2
    return [Effect(Result.CONTINUE, view.state.with_packet(tos=new), "sets the DSCP")]


def _hops(target: TtlTarget, view: View) -> list[Effect]:
    ttl = view.state.packet.ttl
    new, less, more = target.new, target.less, target.more
    if new is None and ttl is not None:
        new = min(max(ttl - (less or 0) + (more or 0), 0), 255)
    return [Effect(Result.CONTINUE, view.state.with_packet(ttl=new), "sets the TTL")]


def _set(target: SetTarget, view: View) -> list[Effect]:
    state = view.state
    for reference, present in ((target.add_set, True), (target.del_set, False)):
        if reference is not None:
            key = set_key(state.packet, reference)
            answers = {item for item in state.answers if item[0] != key}
            answers |= {(key, present), (("changed-set", reference.name), True)}
            state = state._replace(answers=frozenset(answers))
    return [Effect(Result.CONTINUE, state, "changes a set")]


def _nfqueue(_target: NfqueueTarget, view: View) -> list[Effect]:
    return [Effect(Result.UNKNOWN, view.state, "NFQUEUE: user space decides")]


def possible_effects(effect: Effect, target: Target | None, view: View) -> list[Effect]:
    """All that a target may do whose effect is UNKNOWN: user space accepts or drops; any other may do what rules may
    that were not seen, and change the mark."""
    accept, drop = (Effect(result, view.state, effect.did, None) for result in (Result.ACCEPT, Result.DROP))
    if isinstance(target, (NfqueueTarget, Verdict)):
        return [accept, drop]
    found = _unseen(effect.did, view)
    return [*found, accept, drop] if view.ref.table == "nat" else found


def _unseen(reason: str, view: View) -> list[Effect]:
    """All that rules which were not seen may do here."""
    state = view.state.with_open_marks()
    effects = [Effect(Result.CONTINUE, state, reason, None)]
    if view.ref.table == "raw" and state.tracking == UNSEEN:
        effects.append(Effect(Result.CONTINUE, state._replace(tracking=UNTRACKED), reason, None))
    manip = MANIP.get(view.hook)
    if view.ref.table == "nat" and manip is not None:
        states = set_ups(state, manip, Choice(None, None, Fraction(1)))
        return [*effects, *(Effect(Result.ACCEPT, state, reason, None) for state in states)]
    effects += (Effect(result, state, reason, None) for result in (Result.ACCEPT, Result.DROP))
    return [*effects, Effect(Result.REJECT, state, reason, None)] if view.ref.table == "filter" else effects


def _opaque(target: OpaqueTarget, view: View) -> list[Effect]:
    if reason := unseen_reason(target):
        return _unseen(reason, view)
    if (target.name, *target.words) == CLEARS_ECN:
        flags = view.state.packet.tcp_flags
        kept = None if flags is None else flags & ~(ECE | CWR)
        return [Effect(Result.CONTINUE, view.state.with_packet(tcp_flags=kept), "clears ECE and CWR")]
    if target.name in HARMLESS_TARGETS:
        return [Effect(Result.CONTINUE, view.state, f"{target.name}: no effect on the packet's way")]
    if target.name == "HMARK":
        return [Effect(Result.CONTINUE, view.state.with_packet(mark=0, mark_known=0), "HMARK: the mark is now open")]
    return [Effect(Result.UNKNOWN, view.state, f"{target.to_save()} is not interpreted")]


_ACTIONS: Final[dict[type[Target], Callable[[Any, View], list[Effect]]]] = {
    ConnmarkTarget: _connmark,
    CtTarget: _untrack,
    DnatTarget: _nat,
    DscpTarget: _dscp,
    HlTarget: _hops,
    LogTarget: _goes_on("log"),
    MarkTarget: _mark,
    MasqueradeTarget: _nat,
    NetmapTarget: _nat,
    NflogTarget: _goes_on("log"),
    NfqueueTarget: _nfqueue,
    NotrackTarget: _untrack,
    OpaqueTarget: _opaque,
    RedirectTarget: _nat,
    RejectTarget: _reject,
    SetTarget: _set,
    SnatTarget: _nat,
    TcpmssTarget: _goes_on("sets the MSS"),
    TeeTarget: _goes_on("sends a copy elsewhere"),
    TosTarget: _tos,
    TproxyTarget: _tproxy,
    TraceTarget: _goes_on("trace"),
    TtlTarget: _hops,
    Verdict: _verdict,
}
