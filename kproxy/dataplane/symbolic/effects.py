"""What effects (`netfilter.effect`) do to a whole function: given the function for a packet afterwards, the one before.

Theory: docs/symbolic.md, "Backwards".

Semantics are those of `concrete.effects`; address translation is in `nat`.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any, NamedTuple

from kproxy.dataplane.model.verdict import DROP, INDETERMINATE, REJECT
from kproxy.dataplane.symbolic.conditions import RecentCheck
from kproxy.dataplane.symbolic.free_variables import BEFORE, FreeVariable, Listed, Stage, moment, set_moment
from kproxy.dataplane.symbolic.leaves import ONE, Bits, Expression, Outcome, Outcomes
from kproxy.dataplane.symbolic.nat import Continuation, Translation
from kproxy.dataplane.symbolic.nodes import Node
from kproxy.dataplane.symbolic.quantify import unaffected
from kproxy.dataplane.symbolic.restrictions import Fixed
from kproxy.dataplane.symbolic.variables import Variables
from kproxy.netfilter.effect import (
    Hashed,
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
)
from kproxy.netfilter.iptables.matches import RecentMatch, SetMatch
from kproxy.netfilter.iptables.option import Negatable


class Situation(NamedTuple):
    """Where an effect is: the function of the rest of its rule, and that of the next rule; what is fixed of the packet;
    and where packets go."""

    following: Node
    after: Node
    fixed: Fixed
    continuation: Continuation


class Effects:
    """Applies effects. `read_lists` are the lists of `-m recent` that some rule asks."""

    def __init__(
        self, variables: Variables, outcomes: Outcomes, translation: Translation, read_lists: frozenset[str]
    ) -> None:
        self._variables = variables
        self._diagrams = variables.diagrams
        self._outcomes = outcomes
        self.read_lists = read_lists
        self.translation = translation
        self._change = cache(self._changed_bits)
        self.drop = outcomes.sure(Outcome(DROP))
        self._actions: dict[type, Callable[[Any, Situation], Node]] = {
            Hashed: self._hashed,
            Nat: self._nat,
            Queue: self._queue,
            Reject: self._reject,
            Remember: self._remember,
            SetBits: self._set_bits,
            SetField: lambda effect, at: outcomes.change_field(at.following, effect.name, effect.values),
            Socket: self._socket,
            Told: lambda effect, at: self._told(effect.text, effect.stays, at.following),
            Unknown: self._unknown,
            Untrack: self._untrack,
            Verdict: self._verdict,
        }

    def apply(self, effect: object, at: Situation) -> Node:
        """The function for a packet that comes to an effect."""
        return self._actions[type(effect)](effect, at)

    def policy(self, name: str, continuation: Continuation) -> Node:
        """What becomes of packets at the end of a base chain."""
        if name == "QUEUE":
            return self.open("QUEUE: user space decides", continuation.accept, continuation)
        return self.stop(Outcome(DROP), continuation) if name == "DROP" else continuation.accept

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
            about = key.where if isinstance(key, FreeVariable) else None
            if not isinstance(about, Listed) or (about.hits > 1 and value):
                continue
            if (about.name, about.side, about.mask, about.moment) == asked:
                node = self._diagrams.restrict(node, ((level, value),))
        rewritten = "" if moment(match.side, stage) == BEFORE else " as rewritten"
        about = f"list {match.name}/{match.mask}"
        later = f"the {match.side}{rewritten} is removed from {about}"
        return self._outcomes.leave_behind(node, f"the {match.side}{rewritten} is {did} {about}", unless=later)

    # effects

    def _verdict(self, effect: Verdict, at: Situation) -> Node:
        if effect.kind == "continue":
            return at.following
        return self._diagrams.restrict(self.policy(effect.kind.upper(), at.continuation), at.fixed)

    def _queue(self, effect: Queue, at: Situation) -> Node:
        return self._diagrams.restrict(self.open(effect.text, at.continuation.accept, at.continuation), at.fixed)

    def _unknown(self, effect: Unknown, at: Situation) -> Node:
        """It may end the packet's way, or the rule, or neither."""
        ended = self.open(effect.text, at.after, at.continuation)
        if at.following == at.after:
            return ended
        holds = self._variables.free(FreeVariable("onward", f"{effect.text} "))
        return self._diagrams.ite(holds, at.following, ended)

    def _told(self, text: str, stays: bool, following: Node) -> Node:
        if not text:
            return following
        return self._outcomes.leave_behind(following, text) if stays else self._outcomes.tell(following, text)

    def _reject(self, effect: Reject, at: Situation) -> Node:
        answer = effect.answer(self._variables.family)
        return self.stop(Outcome(REJECT, answer), at.continuation) if answer else at.after

    def _hashed(self, effect: Hashed, at: Situation) -> Node:
        """The mark is one that nobody knows, which decides nothing where no rule asks for it."""
        variables, diagrams = self._variables, self._diagrams
        change: list[tuple[int, Expression]] = []
        for bit, level in enumerate(variables.levels["mark"]):
            key = FreeVariable("hash", f"bit {31 - bit} of -j {effect.text}")
            variables.free(key)
            change.append((level, frozenset({variables.free_variables[key]})))
        hashed = self._outcomes.tell(self._outcomes.compose_marks(at.following, tuple(change)), effect.text)
        bits = [level for _, expression in change for level in expression]
        sure = unaffected(diagrams, hashed, bits)
        return diagrams.ite(sure, hashed, self.open(f"-j {effect.text}", at.after, at.continuation))

    def _set_bits(self, effect: SetBits, at: Situation) -> Node:
        if effect.asks_connection and not at.continuation.stage.tracked:
            return at.following
        return self._outcomes.compose_marks(at.following, self._change(effect))

    def _changed_bits(self, effect: SetBits) -> Bits:
        changes, levels = [], self._variables.levels
        for at, level in enumerate(levels[effect.name]):
            bit = 31 - at
            expression: Expression = frozenset({ONE} if effect.xor >> bit & 1 else ())
            for term in effect.terms:
                origin = bit - term.shift
                if 0 <= origin < 32 and term.bits >> origin & 1:
                    expression ^= {levels[term.name][31 - origin]}
            if expression != {level}:
                changes.append((level, expression))
        return tuple(changes)

    def _untrack(self, _effect: Untrack, at: Situation) -> Node:
        stage = at.continuation.stage
        if stage.table != "raw" or stage.looped:
            return at.following
        return self._diagrams.restrict(at.following, ((self._variables.untracked, 1),))

    def _socket(self, effect: Socket, at: Situation) -> Node:
        variables, diagrams, port = self._variables, self._diagrams, effect.known_port
        taken = at.continuation.accept if effect.final else at.following
        if effect.mark is not None:
            taken = self._outcomes.compose_marks(taken, self._change(effect.mark))
        taken = self._outcomes.change_header(diagrams.restrict(taken, ((variables.assigned, 1),)), effect.text)
        asked = variables.free(FreeVariable("socket", f"a transparent socket on port {port}", port))
        return diagrams.ite(asked, taken, self.stop(Outcome(DROP), at.continuation) if effect.final else at.after)

    def _remember(self, effect: Remember, at: Situation) -> Node:
        node = at.following
        for reference, value in reversed(effect.changes):
            text = SetMatch(Negatable(reference)).to_save()
            about = (reference, set_moment(reference, at.continuation.stage))
            level = self._variables.free_variables.get(FreeVariable("set", text, about))
            if level is not None:
                node = self._diagrams.restrict(node, ((level, int(value)),))
        return self._outcomes.leave_behind(node, effect.text)

    def _nat(self, effect: Nat, at: Situation) -> Node:
        stage = at.continuation.stage
        at_source = stage.hook in ("POSTROUTING", "INPUT")
        if effect.family not in (None, self._variables.family):
            return at.after
        if stage.table != "nat" or (effect.kind != "netmap" and effect.of_source != at_source):
            text = f"{effect.kind.upper()} in table {stage.table} at {stage.hook}"
            return self.stop(Outcome(INDETERMINATE, text), at.continuation)
        if at_source:
            return self._diagrams.restrict(self.translation.source(effect, at.continuation), at.fixed)
        return self.translation.destination(effect, at.fixed, at.continuation)

    def decremented(self, node: Node) -> Node:
        """The function for a packet that is about to be forwarded: its TTL goes down, and 1 is the end of it."""
        values = tuple(max(ttl - 1, 0) for ttl in range(256))
        alive = self._diagrams.among(self._variables.ttl, ((2, 255),))
        return self._diagrams.ite(alive, self._outcomes.change_field(node, "ttl", values), self.drop)
