"""Chain traversal: one packet in one base chain, from where it stands to the next fork or the chain's verdict.

A `Cursor` says where the packet is: the stage of `model/pipeline`, the chains it came through with the next rule of
each, and how many steps of that rule it has passed. `traverse` goes on from a cursor and a state until the base chain
accepts the packet, or until something is not determined: then it returns the alternatives. A rule ends at the first
step that does not hold; accept ends the base chain, drop the packet. Traversal also stops on the return from a chain,
where two paths may meet again, so that `explore` can follow them together.
"""

from __future__ import annotations

from bisect import bisect_left
from fractions import Fraction
from typing import Final

from kproxy.dataplane.concrete.assumptions import Assumptions
from kproxy.dataplane.concrete.effects import Result, Way, possible
from kproxy.dataplane.concrete.graph import DONE, END, Accepted, Cursor, Edge, End, Fork, Node, Step
from kproxy.dataplane.concrete.index import Index
from kproxy.dataplane.concrete.state import RuleRef, Split, State, View
from kproxy.dataplane.concrete.steps import IndexedRule, RuleChain, RuleStep
from kproxy.dataplane.model.errors import DataplaneError
from kproxy.dataplane.model.host import Host
from kproxy.dataplane.model.pipeline import BaseChain
from kproxy.dataplane.model.unseen import unseen_reason, unseen_thing
from kproxy.dataplane.model.verdict import DROP, INDETERMINATE, REJECT
from kproxy.netfilter.effect import Socket
from kproxy.netfilter.hooks import ChainType

_SURE: Final = Fraction(1)
_MAX_FRAMES: Final = 512
_EITHER: Final = {(Result.CONTINUE, None), (Result.BREAK, None)}
Frames = list[tuple[str, int]]


class Traversal:
    """One packet in one base chain and those that it leads to, from where the cursor stands."""

    def __init__(
        self, index: Index, host: Host, base: BaseChain, cursor: Cursor, state: State, assumed: Assumptions
    ) -> None:
        self._rules = index.table(base.source, base.table)
        self._base = base
        self._cursor = cursor
        self._assumptions = assumed
        self._state = state
        self._steps: list[Step] = []
        self._gone: dict[str, int] = {}  # chains that a goto led to, and how many frames are below each
        translates = base.type is ChainType.NAT
        self._view = View(host, cursor.hook, RuleRef(base.table, "", 0), state, assumed.limit, translates)

    def run(self) -> Fork | Accepted:
        frames, skip = list(self._cursor.frames), self._cursor.match
        while True:
            found = self._chain(frames, skip)
            if found is not None:
                return found
            skip = 0

    def _chain(self, frames: Frames, skip: int) -> Fork | Accepted | None:
        """The chain of the last frame from its next rule on; None: the frames say where it goes on."""
        name, first = frames[-1]
        chain = self._rules.chain(name)
        candidates = chain.candidates(self._state.packet)
        position, depth = bisect_left(candidates, first), len(frames)
        while position < len(candidates):
            at = candidates[position]
            found = self._rule(chain, at, skip if at == first else 0, frames)
            if found is not None or frames[-1] != (name, first) or len(frames) != depth:
                return found
            position += 1
        return self._chain_end(frames)

    def _rule(self, chain: RuleChain, at: int, skip: int, frames: Frames) -> Fork | Accepted | None:
        rule, view = chain.rule(at), self._view
        view.ref, view.state = rule.ref, self._state
        did: list[str] = []
        for number, step in enumerate(rule.steps[skip:], skip) if skip else enumerate(rule.steps):
            if not step.acts:
                answer = self._rules.ask(step, view)
                if answer is True:
                    continue
                if answer is False:
                    return None
                found = self._unsure(answer, rule, number, at, frames)
                if found is None or isinstance(found, Fork):
                    return found
                continue
            ways = self._ways(rule, step)
            if len(ways) > 1:
                return self._split(ways, rule, number, at, frames, did)
            way = ways[0]
            self._state = view.state = way.state
            if way.result is Result.BREAK:
                return None
            if way.did:
                did.append(way.did)
            if way.result is not Result.CONTINUE:
                return self._decided(way, rule, at, frames, did)
        self._steps.append(self._step(rule, did))
        if skip:  # here a path that was split off may meet the others again
            return self._link([*frames[:-1], (frames[-1][0], at + 1)])
        return None

    def _unsure(self, answer: Split, rule: IndexedRule, number: int, at: int, frames: Frames) -> Fork | bool | None:
        """What follows an answer that is not simply yes or no: True goes on with the rule, None with the next."""
        step, view = rule.steps[number], self._view
        decided = answer.no is None if answer.yes is None or answer.no is None else None
        if decided is None:
            if step.pure and self._refuted(rule, number + 1):
                return None
            if answer.chance is None:
                decided = self._assumptions.decide(self._rules.texts(step))
        if decided is None:
            return self._fork(answer, rule, number, at, frames)
        self._state = view.state = (answer.yes if decided else answer.no) or view.state
        return decided or None

    def _refuted(self, rule: IndexedRule, first: int) -> bool:
        """Whether a later question is surely answered with no, so that an open one before it does not count."""
        for step in rule.steps[first:]:
            if not step.pure:
                break
            if not step.acts and self._rules.ask(step, self._view) is False:
                return True
        return False

    def _fork(self, answer: Split, rule: IndexedRule, number: int, at: int, frames: Frames) -> Fork:
        chance, edges, step = answer.chance, [], rule.steps[number]
        if answer.yes is not None:
            edges.append(Edge(chance, self._node([*frames[:-1], (frames[-1][0], at)], answer.yes, number + 1)))
        if answer.no is not None:
            after = [*frames[:-1], (frames[-1][0], at + 1)]
            edges.append(Edge(None if chance is None else 1 - chance, self._node(after, answer.no)))
        if unseen := unseen_reason(step.source):
            self._assumptions.explain_unseen(unseen, unseen_thing(step.source))
            return Fork(tuple(self._steps), tuple(edges), unseen)
        why = f"{self._view.ref}: {answer.why}" if answer.why else ""
        self._assumptions.explain(why, next(iter(self._rules.texts(step)), ""))
        return Fork(tuple(self._steps), tuple(edges), why)

    def _ways(self, rule: IndexedRule, step: RuleStep) -> list[Way]:
        """What a step may do; what is not known of it may be assumed: yes goes on (or accepts), no ends the rule (or
        drops)."""
        unseen = unseen_reason(step.source)
        ways = self._rules.act(step, self._view)
        first = ways[0]
        is_open = first.result is Result.UNKNOWN
        if unseen:
            self._assumptions.explain_unseen(unseen, unseen_thing(step.source))
            return possible(step.what, first._replace(did=unseen), self._view, self._rules.has_chain, unseen=True)
        either = len(ways) > 1 and (
            {(way.result, way.chance) for way in ways} == _EITHER or isinstance(step.what, Socket)
        )
        if not is_open and not either:
            return ways
        texts = self._rules.texts(step)
        decided = self._assumptions.decide(texts)
        if decided is None:
            self._assumptions.explain(f"{self._view.ref}: {first.did if is_open else first.why}", texts[0])
            return possible(step.what, first, self._view, self._rules.has_chain) if is_open else ways
        if is_open:
            result = Result.ACCEPT if decided else Result.DROP
            return [first._replace(result=result, did=f"{texts[0]}: assumed")]
        return [ways[not decided]._replace(chance=_SURE)]

    def _split(self, ways: list[Way], rule: IndexedRule, number: int, at: int, frames: Frames, did: list[str]) -> Fork:
        edges, last = [], number + 1 == len(rule.steps)
        unseen = unseen_reason(rule.steps[number].source)
        for way in ways:
            ends = way.result is not Result.BREAK and (last or way.result is not Result.CONTINUE)
            step = (self._step(rule, [*did, way.did]),) if ends and not unseen else ()
            edges.append(Edge(way.chance, self._after(way, frames, at, 0 if last else number + 1), step))
        why = next((way.why or way.did for way in ways if way.chance is None), "")
        return Fork(tuple(self._steps), tuple(edges), why if unseen or not why else f"{self._view.ref}: {why}")

    def _after(self, way: Way, frames: Frames, at: int, following: int) -> Node | End:
        """Where one of several ways leads; `following` is the rule's next step, 0 if there is none."""
        name = frames[-1][0]
        if way.result is Result.CONTINUE and following:
            return self._node([*frames[:-1], (name, at)], way.state, following)
        frames = [*frames[:-1], (name, at + 1)]
        if way.result in (Result.JUMP, Result.GOTO):
            frames = self._jumped(frames, way)
        elif way.result is Result.ACCEPT:
            frames = list(DONE)
        elif way.result is Result.RETURN:
            frames = frames[:-1] if len(frames) > 1 else [(name, END)]
        elif way.result not in (Result.BREAK, Result.CONTINUE):
            return self._end(way)
        return self._node(frames, way.state)

    def _node(self, frames: Frames, state: State, following: int = 0) -> Node:
        return Node(self._cursor._replace(frames=tuple(frames), match=following), state)

    def _end(self, way: Way) -> End:
        hook = self._cursor.hook
        if way.result is Result.REJECT:
            return End(REJECT, hook, way.state, reject=way.reject)
        if way.result is Result.DROP:
            return End(DROP, hook, way.state)
        return End(INDETERMINATE, hook, way.state, reason=f"{self._view.ref}: {way.did}")

    def _decided(self, way: Way, rule: IndexedRule, at: int, frames: Frames, did: list[str]) -> Fork | Accepted | None:
        if not rule.unseen:
            self._steps.append(self._step(rule, did))
        frames[-1] = (frames[-1][0], at + 1)
        if way.result in (Result.JUMP, Result.GOTO):
            frames[:] = self._jumped(frames, way)
            return None
        if way.result is Result.ACCEPT:
            return self._accept()
        if way.result is Result.RETURN:
            return self._chain_end(frames)
        return Fork(tuple(self._steps), (Edge(_SURE, self._end(way)),))

    def _jumped(self, frames: Frames, way: Way) -> Frames:
        self._rules.chain(way.chain)
        if any(way.chain == name for name, _ in frames):
            names = " → ".join([*(name for name, _ in frames), way.chain])
            raise DataplaneError(f"table {self._base.table}: a loop of jumps: {names}")
        if len(frames) > _MAX_FRAMES:
            raise DataplaneError(f"table {self._base.table}: jumps nested more than {_MAX_FRAMES} deep, at {way.chain}")
        if way.result is Result.JUMP:
            self._gone = {name: depth for name, depth in self._gone.items() if depth < len(frames)}
            return [*frames, (way.chain, 0)]
        # After a goto the chain does not go on; of a base chain the policy still counts.
        left = frames[:-1] if len(frames) > 1 else [(frames[-1][0], END)]
        self._gone = {name: depth for name, depth in self._gone.items() if depth <= len(left)}
        if way.chain in self._gone:  # no frame tells of it
            raise DataplaneError(f"table {self._base.table}: a loop of jumps: {' → '.join(self._gone)}")
        self._gone[way.chain] = len(left)
        return [*left, (way.chain, 0)]

    def _chain_end(self, frames: Frames) -> Fork | Accepted:
        if len(frames) > 1:
            return self._link(frames[:-1])
        name, hook = self._base.chain, self._cursor.hook
        policy = self._rules.chain(name).policy
        if policy == "ACCEPT":
            return self._accept()
        did = f"policy {policy}"
        self._steps.append(Step("policy", hook, did, self._base.table, name))
        drop = End(DROP, hook, self._state)
        if policy == "DROP":
            return Fork(tuple(self._steps), (Edge(_SURE, drop),))
        accept = self._node(list(DONE), self._state)
        reason = f"{self._base.table} {name}: policy {policy} is not interpreted"
        return Fork(tuple(self._steps), (Edge(None, drop), Edge(None, accept)), reason)

    def _accept(self) -> Accepted:
        return Accepted(self._state, tuple(self._steps))

    def _link(self, frames: Frames) -> Fork:
        """Stop where another path may arrive, too."""
        return Fork(tuple(self._steps), (Edge(_SURE, self._node(frames, self._state)),))

    def _step(self, rule: IndexedRule, did: list[str]) -> Step:
        table, chain, number, source = rule.ref
        told = "; ".join(filter(None, did)) or "count"
        return Step("rule", self._cursor.hook, told, table, chain, number, *rule.described(), source)
