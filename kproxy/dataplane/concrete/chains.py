"""Chain traversal: one packet in one table of iptables, from where it stands to the next fork or the table's verdict.

A `Cursor` says where the packet is: the stage of `model/pipeline`, the chains it came through with the next rule of
each, and how many matches of that rule it has passed. `traverse` goes on from a cursor and a state until the table
accepts the packet, or until something is not determined: then it returns the alternatives. It also stops on the return
from a chain, where two paths may meet again, so that `explore` can follow them together.
"""

from __future__ import annotations

from fractions import Fraction
from typing import Final

from kproxy.dataplane.concrete import targets
from kproxy.dataplane.concrete.answer import answer as ask
from kproxy.dataplane.concrete.given import Given
from kproxy.dataplane.concrete.graph import DONE, END, Accepted, Cursor, Edge, End, Fork, Node, Step
from kproxy.dataplane.concrete.index import Index, IndexedChain, IndexedRule
from kproxy.dataplane.concrete.matches.registry import evaluate
from kproxy.dataplane.concrete.result import Result
from kproxy.dataplane.concrete.state import Answer, RuleRef, Split, State, View
from kproxy.dataplane.model.errors import DataplaneError
from kproxy.dataplane.model.host import Host
from kproxy.dataplane.model.pipeline import BaseChain, Source
from kproxy.dataplane.model.unseen import stands_for_unseen, unseen_reason, unseen_thing
from kproxy.dataplane.model.verdict import DROP, REJECT
from kproxy.netfilter.iptables.matches import Match, OpaqueMatch
from kproxy.netfilter.iptables.targets import TproxyTarget

_MAX_FRAMES: Final = 512


def traverse(index: Index, host: Host, base: BaseChain, cursor: Cursor, state: State, given: Given) -> Fork | Accepted:
    """Traverse a base chain and those that it leads to, from where the cursor stands."""
    if index.nftables is not None and index.traverse_nft is not None and base.source is Source.NFTABLES:
        return index.traverse_nft(index.nftables, host, base, cursor, state, given)
    return _TableTraversal(index, host, base, cursor, state, given).run()


class _TableTraversal:
    """One packet in one table."""

    def __init__(self, index: Index, host: Host, base: BaseChain, cursor: Cursor, state: State, given: Given) -> None:
        self._index = index
        self._cursor = cursor
        self._given = given
        self._source = base.source
        self._table = base.table
        self._state = state
        self._steps: list[Step] = []
        self._view = View(host, cursor.hook, RuleRef(self._table, "", 0), state, given.limit)

    def run(self) -> Fork | Accepted:
        frames = list(self._cursor.frames)
        skip = self._cursor.match
        while True:
            name, first = frames[-1]
            chain = self._index.chain(self._source, self._table, name)
            found = self._next_rule(chain, first, skip)
            if isinstance(found, Split):
                return self._fork(frames, found)
            if found is None:
                result = self._chain_end(chain, frames)
            else:
                resumed = skip > 0
                skip = 0
                result = self._apply(found, frames, resumed)
            if result is not None:
                return result
            skip = 0

    def _next_rule(self, chain: IndexedChain, first: int, skip: int) -> IndexedRule | Split | None:
        """The next rule that matches; or a match that is not decided, with `_at` saying where; or None."""
        candidates = chain.candidates(self._state.packet)
        position = chain.next_candidate(candidates, first)
        while position < len(candidates):
            at = candidates[position]
            rule = chain.rule(at)
            answer = self._answer(rule, skip if at == first else 0)
            if answer is True:
                self._at = at
                return rule
            if answer is not False:
                self._at = at
                return answer
            position += 1
        return None

    def _answer(self, rule: IndexedRule, skip: int) -> Answer:
        """Whether the rule matches, its first `skip` matches apart; `_match` is the one that an undecided answer is
        about, counted from 1 (the fixed part of the rule is number 1)."""
        view = self._view
        view.ref = rule.ref
        view.state = self._state
        if skip == 0:
            head = ask(rule.head, view)
            if head is False:
                return False
            if head is not True and (not rule.pure or not self._refuted(rule, 0)):
                self._match = 1
                return head
            if head is not True:
                return False
        done = max(skip - 1, 0)
        for number, (match, condition) in enumerate(rule.asked[done:], done + 2):
            answer = evaluate(match, condition, view)
            if answer is True:
                continue
            if answer is not False and rule.pure and self._refuted(rule, number - 1):
                return False
            if isinstance(answer, Split):
                if answer.no is None and answer.yes is not None:  # it applies, and changed something
                    self._state = view.state = answer.yes
                    continue
                if answer.yes is None and answer.no is not None:
                    self._state = view.state = answer.no
                    return False
            if isinstance(answer, Split) and answer.chance is None:
                decided = self._given.decide((match.to_save(), _name(match)))
                if decided is not None:
                    self._state = view.state = (answer.yes if decided else answer.no) or view.state
                    if decided:
                        continue
                    return False
            self._match = number
            return answer
        return True

    def _refuted(self, rule: IndexedRule, done: int) -> bool:
        """Whether a later match certainly does not apply, so that an open one before it does not count."""
        return any(evaluate(*asked, self._view) is False for asked in rule.asked[done:])

    def _fork(self, frames: list[tuple[str, int]], answer: Split) -> Fork:
        name = frames[-1][0]
        edges = []
        chance = answer.chance
        if answer.yes is not None:
            inside = self._cursor._replace(frames=(*frames[:-1], (name, self._at)), match=self._match)
            edges.append(Edge(chance, Node(inside, answer.yes)))
        if answer.no is not None:
            after = self._cursor._replace(frames=(*frames[:-1], (name, self._at + 1)), match=0)
            edges.append(Edge(None if chance is None else 1 - chance, Node(after, answer.no)))
        rule = self._index.chain(self._source, self._table, name).rule(self._at)
        asked = rule.asked[self._match - 2][0] if self._match > 1 else None
        if unseen := unseen_reason(asked):
            self._given.explain_unseen(unseen, unseen_thing(asked))
            return Fork(tuple(self._steps), tuple(edges), unseen)
        why = f"{self._view.ref}: {answer.why}" if answer.why else ""
        self._given.explain(why, "" if asked is None else asked.to_save())
        return Fork(tuple(self._steps), tuple(edges), why)

    def _chain_end(self, chain: IndexedChain, frames: list[tuple[str, int]]) -> Fork | Accepted | None:
        if len(frames) > 1:
            frames.pop()
            return self._link(frames)
        policy = chain.chain.policy or "ACCEPT"
        name = chain.chain.name
        if policy == "ACCEPT":
            return self._accept()
        did = f"policy {policy}"
        self._steps.append(Step("policy", self._cursor.hook, did, self._table, name))
        drop = End(DROP, self._cursor.hook, self._state)
        if policy == "DROP":
            return self._end(drop)
        accept = Node(self._cursor._replace(frames=DONE, match=0), self._state)
        reason = f"{self._table} {name}: policy {policy} is not interpreted"
        return Fork(tuple(self._steps), (Edge(None, drop), Edge(None, accept)), reason)

    def _link(self, frames: list[tuple[str, int]]) -> Fork:
        """Stop where another path may arrive, too."""
        after = self._cursor._replace(frames=tuple(frames), match=0)
        return Fork(tuple(self._steps), (Edge(Fraction(1), Node(after, self._state)),))

    def _accept(self) -> Accepted:
        return Accepted(self._state, tuple(self._steps))

    def _end(self, end: End) -> Fork:
        return Fork(tuple(self._steps), (Edge(Fraction(1), end),))

    def _apply(self, rule: IndexedRule, frames: list[tuple[str, int]], resumed: bool) -> Fork | Accepted | None:
        name = frames[-1][0]
        frames[-1] = (name, self._at + 1)
        if rule.jump is not None:
            self._jump(rule, frames)
            return None
        effects = self._effects(rule)
        if len(effects) > 1:
            edges = []
            unseen = unseen_reason(rule.rule.target)
            for effect in effects:
                step = () if unseen else (self._step(rule, effect.did),)
                edges.append(Edge(effect.chance, self._after(effect, frames, rule), step))
            why = unseen or f"{rule.ref}: {effects[0].did.partition(':')[0]}"
            if unseen:
                self._given.explain_unseen(unseen, unseen_thing(rule.rule.target))
            return Fork(tuple(self._steps), tuple(edges), why)
        effect = effects[0]
        if effect.result is Result.UNKNOWN:
            did = (self._step(rule, effect.did),)
            ways = targets.possible_effects(effect, rule.rule.target, self._view)
            edges = [Edge(None, self._after(each, frames, rule), did) for each in ways]
            return Fork(tuple(self._steps), tuple(edges), f"{rule.ref}: {effect.did}")
        self._steps.append(self._step(rule, effect.did))
        self._state = self._view.state = effect.state
        if effect.result is Result.CONTINUE:
            return self._link(frames) if resumed else None
        if effect.result is Result.ACCEPT:
            return self._accept()
        if effect.result is Result.RETURN:
            if len(frames) > 1:
                frames.pop()
                return self._link(frames)
            return self._chain_end(self._index.chain(self._source, self._table, name), frames)
        to = self._after(effect, frames, rule)
        return Fork(tuple(self._steps), (Edge(Fraction(1), to),))

    def _effects(self, rule: IndexedRule) -> list[targets.Effect]:
        """What the target may do; what user space, or a target that is not interpreted, decides may be assumed."""
        target = rule.rule.target
        effects = targets.apply_target(target, self._view)
        either = isinstance(target, TproxyTarget) and len(effects) > 1  # a socket listens, or none does
        if target is None or not (either or effects[0].result is Result.UNKNOWN):
            return effects
        name = target.to_save().split()[1]
        decided = self._given.decide((target.to_save(), name))
        if either:
            self._given.explain(f"{rule.ref}: {effects[0].did.partition(':')[0]}", name)
            return effects if decided is None else [effects[not decided]._replace(chance=Fraction(1))]
        if decided is None:
            self._given.explain(f"{rule.ref}: {effects[0].did}", name)
            return effects
        result = Result.ACCEPT if decided else Result.DROP
        return [targets.Effect(result, self._view.state, f"{name}: assumed")]

    def _after(self, effect: targets.Effect, frames: list[tuple[str, int]], rule: IndexedRule) -> Node | End:
        hook = self._cursor.hook
        if effect.result is Result.CONTINUE:
            return Node(self._cursor._replace(frames=tuple(frames), match=0), effect.state)
        if effect.result is Result.ACCEPT:
            return Node(self._cursor._replace(frames=DONE, match=0), effect.state)
        if effect.result is Result.REJECT:
            target = rule.rule.target
            answer: str = getattr(target, "reject_with", "")
            return End(REJECT, hook, effect.state, reject=answer)
        return End(DROP, hook, effect.state)

    def _jump(self, rule: IndexedRule, frames: list[tuple[str, int]]) -> None:
        target = rule.jump
        if target is None:
            return
        if not stands_for_unseen(rule.rule):
            self._steps.append(self._step(rule, f"{'goto' if target.goto else 'jump'} {target.chain}"))
        if any(target.chain == name for name, _ in frames):
            names = " → ".join([*(name for name, _ in frames), target.chain])
            raise DataplaneError(f"table {self._table}: a loop of jumps: {names}")
        if len(frames) > _MAX_FRAMES:
            raise DataplaneError(f"table {self._table}: jumps nested more than {_MAX_FRAMES} deep, at {target.chain}")
        self._index.chain(self._source, self._table, target.chain)
        if target.goto and len(frames) > 1:
            frames.pop()
        elif target.goto:
            # The end of the chain is then the end of the built-in chain: its policy decides.
            frames[-1] = (frames[-1][0], END)
        frames.append((target.chain, 0))

    def _step(self, rule: IndexedRule, did: str) -> Step:
        table, chain, number, source = rule.ref
        note = self._index.note
        about = "" if note is None else note(table, chain, number) or ""
        return Step("rule", self._cursor.hook, did, table, chain, number, rule.text, about, source)


def _name(match: Match) -> str:
    return match.name if isinstance(match, OpaqueMatch) else match.NAME
