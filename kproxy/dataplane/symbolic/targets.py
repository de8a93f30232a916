"""What targets do to a whole function: given the function for a packet afterwards, the one for it before.

Theory: docs/symbolic.md, "Backwards".

Semantics are those of `concrete.targets`; address translation is in `nat`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from kproxy.dataplane.model.deeds import CLEARS_ECN, HARMLESS_TARGETS
from kproxy.dataplane.model.packet import CWR, ECE
from kproxy.dataplane.model.unseen import unseen_reason
from kproxy.dataplane.model.verdict import ACCEPT, DROP, INDETERMINATE, REJECT
from kproxy.dataplane.symbolic.conditions import RecentCheck
from kproxy.dataplane.symbolic.free_variables import BEFORE, FreeVariable, Listed, Stage, moment, set_moment
from kproxy.dataplane.symbolic.leaves import ONE, Bits, Expression, Outcome, Outcomes
from kproxy.dataplane.symbolic.nat import Continuation, Translation
from kproxy.dataplane.symbolic.nodes import Node
from kproxy.dataplane.symbolic.quantify import unaffected
from kproxy.dataplane.symbolic.variables import Variables
from kproxy.netfilter.iptables.codec import UINT32
from kproxy.netfilter.iptables.matches import RecentMatch, SetMatch
from kproxy.netfilter.iptables.option import Negatable
from kproxy.netfilter.iptables.targets import (
    ConnmarkTarget,
    CtTarget,
    DnatTarget,
    DscpTarget,
    HlTarget,
    MarkTarget,
    MasqueradeTarget,
    NetmapTarget,
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
    TtlTarget,
    Verdict,
)


class Targets:
    """Applies targets. `read_lists` are the lists of `-m recent` that some rule asks."""

    def __init__(
        self, variables: Variables, outcomes: Outcomes, translation: Translation, read_lists: frozenset[str]
    ) -> None:
        self._variables = variables
        self._diagrams = variables.diagrams
        self._outcomes = outcomes
        self.read_lists = read_lists
        self.translation = translation
        self._mark_changes: dict[MarkTarget, Bits] = {}
        self.drop = outcomes.sure(Outcome(DROP))
        self._evaluators: dict[type[Target], Callable[[Any, Node, Continuation], Node]] = {
            ConnmarkTarget: self._connmark,
            CtTarget: self._ct,
            DscpTarget: self._dscp,
            HlTarget: self._hops,
            MarkTarget: self._mark,
            NfqueueTarget: self._indeterminate,
            NotrackTarget: self._untrack,
            OpaqueTarget: self._opaque,
            RejectTarget: self._reject,
            SetTarget: self._set,
            TcpmssTarget: self._beside,
            TeeTarget: self._leaves,
            TosTarget: self._tos,
            TproxyTarget: self._tproxy,
            TtlTarget: self._hops,
        }

    def apply(
        self, target: Target | None, after: Node, fixed: tuple[tuple[int, int], ...], continuation: Continuation
    ) -> Node:
        """A target: `after` is the function of the next rule, `fixed` what is fixed of the packet."""
        if target is None:
            return after
        if isinstance(target, Verdict):
            return self._diagrams.restrict(self.verdict(target.verdict, continuation), fixed)
        if isinstance(target, (DnatTarget, RedirectTarget, NetmapTarget, SnatTarget, MasqueradeTarget)):
            return self._translate(target, fixed, continuation)
        action = self._evaluators.get(type(target))
        if action is None:
            return self._indeterminate(target, after, continuation)
        return action(target, after, continuation)

    def verdict(self, name: str, continuation: Continuation) -> Node:
        """ACCEPT, DROP, or a verdict that leaves it to user space."""
        if name in (ACCEPT, "RETURN"):
            return continuation.accept
        if name == DROP:
            return self.stop(Outcome(DROP), continuation)
        return self.open(f"{name}: user space decides", continuation.accept, continuation)

    def open(self, text: str, onward: Node, continuation: Continuation) -> Node:
        """What is not known: the packet may end here, or go on. So two sides that are open alike are alike only where
        what follows is."""
        goes_on = self._variables.free(FreeVariable("onward", text))
        return self._diagrams.ite(goes_on, onward, self.stop(Outcome(INDETERMINATE, text), continuation))

    def stop(self, outcome: Outcome, continuation: Continuation) -> Node:
        """The end of the way: before the destination is translated, that is without a translated destination."""
        node = self._outcomes.sure(outcome)
        return self.translation.at_destination(node, 0) if continuation.stage.phase == BEFORE else node

    # matches that act

    def seen(self, step: RecentCheck, yes: Node, no: Node, stage: Stage) -> Node:
        """A `-m recent` match between the function of what follows if it applies and if not."""
        match, condition = step.match, step.condition
        action = match.action.value
        diagrams = self._diagrams
        if action == "set":
            return diagrams.ite(condition, self._listed(match, stage, yes), self._listed(match, stage, no))
        if action == "update":
            return diagrams.ite(condition, self._listed(match, stage, yes), no)
        if action == "remove":
            held = diagrams.negate(condition) if match.action.negated else condition
            yes = diagrams.ite(held, self._unlisted(match, stage, yes), yes)
            no = diagrams.ite(held, self._unlisted(match, stage, no), no)
        return diagrams.ite(condition, yes, no)

    def _listed(self, match: RecentMatch, stage: Stage, node: Node) -> Node:
        return self._list_changed(match, stage, node, 1, "added to")

    def _unlisted(self, match: RecentMatch, stage: Stage, node: Node) -> Node:
        return self._list_changed(match, stage, node, 0, "removed from")

    def _list_changed(self, match: RecentMatch, stage: Stage, node: Node, value: int, did: str) -> Node:
        if match.name not in self.read_lists:
            return node
        asked = (match.name, match.side, match.mask.value, moment(match.side, stage))
        for key, level in self._variables.free_variables.items():
            about = key.where
            if not isinstance(about, Listed) or (about.hits > 1 and value):
                continue
            if (about.name, about.side, about.mask, about.moment) == asked:
                node = self._diagrams.restrict(node, ((level, value),))
        rewritten = "" if moment(match.side, stage) == BEFORE else " as rewritten"
        about = f"list {match.name}/{match.mask}"
        later = f"the {match.side}{rewritten} is removed from {about}"
        return self._outcomes.leave_behind(node, f"the {match.side}{rewritten} is {did} {about}", unless=later)

    # targets

    def _indeterminate(self, target: Target, after: Node, continuation: Continuation) -> Node:
        return self.open(unseen_reason(target) or target.to_save(), after, continuation)

    def _opaque(self, target: OpaqueTarget, after: Node, continuation: Continuation) -> Node:
        if (target.name, *target.words) == CLEARS_ECN:
            values = tuple(flags & ~(ECE | CWR) for flags in range(256))
            return self._outcomes.change_field(after, "tcp_flags", values)
        if target.name == "HMARK":
            return self._hashed(target, after, continuation)
        return (
            self._beside(target, after, continuation)
            if target.name in HARMLESS_TARGETS
            else self._indeterminate(target, after, continuation)
        )

    def _hashed(self, target: OpaqueTarget, after: Node, continuation: Continuation) -> Node:
        """HMARK: the mark is one that nobody knows, which decides nothing where no rule asks for it."""
        variables, diagrams, text = self._variables, self._diagrams, target.to_save()
        change: list[tuple[int, Expression]] = []
        for bit, level in enumerate(variables.levels["mark"]):
            key = FreeVariable("hash", f"bit {31 - bit} of {text}")
            variables.free(key)
            change.append((level, frozenset({variables.free_variables[key]})))
        hashed = self._beside(target, self._outcomes.compose_marks(after, tuple(change)), continuation)
        bits = [level for _, expression in change for level in expression]
        sure = unaffected(diagrams, hashed, bits)
        return diagrams.ite(sure, hashed, self._indeterminate(target, after, continuation))

    def _beside(self, target: Target, after: Node, _continuation: Continuation) -> Node:
        return self._outcomes.tell(after, target.to_save()[3:])

    def _leaves(self, target: Target, after: Node, _continuation: Continuation) -> Node:
        return self._outcomes.leave_behind(after, target.to_save()[3:])

    def _reject(self, target: RejectTarget, _after: Node, continuation: Continuation) -> Node:
        return self.stop(Outcome(REJECT, target.reject_with), continuation)

    def _mark(self, target: MarkTarget, after: Node, _continuation: Continuation) -> Node:
        change = self._mark_changes.get(target)
        if change is None:
            change = self._bits("mark", target.xmark.mask, target.xmark.value, "mark", 0, 0)
            self._mark_changes[target] = change
        return self._outcomes.compose_marks(after, change)

    def _bits(self, name: str, clear: int, xor: int, other: str, take: int, shift: int) -> Bits:
        """`mark & ~clear ^ xor ^ shifted(other & take)`; a positive shift is to the left."""
        changes = []
        levels, others = (self._variables.levels[each] for each in (name, other))
        for bit in range(31, -1, -1):
            at = levels[31 - bit]
            expression: Expression = frozenset() if clear >> bit & 1 else frozenset({at})
            if xor >> bit & 1:
                expression ^= {ONE}
            origin = bit - shift
            if 0 <= origin < 32 and take >> origin & 1:
                expression ^= {others[31 - origin]}
            if expression != {at}:
                changes.append((at, expression))
        return tuple(changes)

    def _connmark(self, target: ConnmarkTarget, after: Node, continuation: Continuation) -> Node:
        if not continuation.stage.tracked:
            return after
        shift = (target.left_shift or 0) - (target.right_shift or 0)
        nfmask = UINT32 if target.nfmask is None else target.nfmask
        ctmask = UINT32 if target.ctmask is None else target.ctmask
        if target.copy == "restore":
            change = self._bits("mark", nfmask, 0, "connmark", ctmask, shift)
        elif target.copy == "save":
            change = self._bits("connmark", ctmask, 0, "mark", nfmask, shift)
        elif target.xmark is not None:
            moved = target.xmark.value << shift & UINT32 if shift > 0 else target.xmark.value >> -shift
            keep = ~target.xmark.mask & UINT32
            change = self._bits("connmark", UINT32, moved, "connmark", keep, shift)
        else:
            return after
        return self._outcomes.compose_marks(after, change)

    def _ct(self, target: CtTarget, after: Node, continuation: Continuation) -> Node:
        return (
            self._untrack(target, after, continuation) if target.notrack else self._beside(target, after, continuation)
        )

    def _untrack(self, _target: Target, after: Node, continuation: Continuation) -> Node:
        if continuation.stage.table != "raw" or continuation.stage.looped:
            return after
        return self._diagrams.restrict(after, ((self._variables.untracked, 1),))

    def _tproxy(self, target: TproxyTarget, _after: Node, continuation: Continuation) -> Node:
        variables, diagrams = self._variables, self._diagrams
        change = self._bits("mark", target.tproxy_mark.mask, target.tproxy_mark.value, "mark", 0, 0)
        taken = diagrams.restrict(self._outcomes.compose_marks(continuation.accept, change), ((variables.assigned, 1),))
        taken = self._outcomes.change_header(taken, f"TPROXY to {target.on_ip} port {target.on_port or 'as it is'}")
        asked = variables.free(FreeVariable("socket", f"a transparent socket on port {target.on_port}", target.on_port))
        return diagrams.ite(asked, taken, self.stop(Outcome(DROP), continuation))

    def _tos(self, target: TosTarget, after: Node, _continuation: Continuation) -> Node:
        values = tuple(octet & ~target.tos.mask & 0xFF ^ target.tos.value for octet in range(256))
        return self._outcomes.change_field(after, "tos", values)

    def _dscp(self, target: DscpTarget, after: Node, _continuation: Continuation) -> Node:
        values = tuple(octet & 3 | target.dscp << 2 for octet in range(256))
        return self._outcomes.change_field(after, "tos", values)

    def _hops(self, target: TtlTarget, after: Node, _continuation: Continuation) -> Node:
        new, less, more = target.new, target.less, target.more
        values = tuple(min(max(ttl - (less or 0) + (more or 0), 0), 255) if new is None else new for ttl in range(256))
        return self._outcomes.change_field(after, "ttl", values)

    def decremented(self, node: Node) -> Node:
        """The function for a packet that is about to be forwarded: its TTL goes down, and 1 is the end of it."""
        values = tuple(max(ttl - 1, 0) for ttl in range(256))
        alive = self._diagrams.among(self._variables.ttl, ((2, 255),))
        return self._diagrams.ite(alive, self._outcomes.change_field(node, "ttl", values), self.drop)

    def _set(self, target: SetTarget, after: Node, continuation: Continuation) -> Node:
        for reference, value in ((target.del_set, 0), (target.add_set, 1)):
            if reference is not None:
                text = SetMatch(Negatable(reference)).to_save()
                level = self._variables.free_variables.get(
                    FreeVariable("set", text, (reference, set_moment(reference, continuation.stage)))
                )
                if level is not None:
                    after = self._diagrams.restrict(after, ((level, value),))
        return self._leaves(target, after, continuation)

    def _translate(
        self,
        target: DnatTarget | RedirectTarget | NetmapTarget | SnatTarget | MasqueradeTarget,
        fixed: tuple[tuple[int, int], ...],
        continuation: Continuation,
    ) -> Node:
        stage = continuation.stage
        wants_source = isinstance(target, (SnatTarget, MasqueradeTarget))
        at_source = stage.hook in ("POSTROUTING", "INPUT")
        if stage.table != "nat" or (not isinstance(target, NetmapTarget) and wants_source != at_source):
            text = f"{target.NAME} in table {stage.table} at {stage.hook}"
            return self.stop(Outcome(INDETERMINATE, text), continuation)
        if at_source:
            return self._diagrams.restrict(self.translation.source(target, continuation), fixed)
        return self.translation.destination(target, fixed, continuation)
