"""Chain traversal in nftables: one packet in one base chain, to the next fork or to the chain's verdict.

The cursor's frames are chains of the table, as for iptables; `match` counts the statements of the present rule that are
done. A rule ends at the first statement that does not hold; accept ends the base chain, drop the packet. What ends
elsewhere, where paths may meet again, is a node of its own.
"""

from __future__ import annotations

from enum import Enum
from fractions import Fraction
from typing import Final

from kproxy.dataplane.concrete.given import Given
from kproxy.dataplane.concrete.graph import DONE, END, Accepted, Cursor, Edge, End, Fork, Node, Step
from kproxy.dataplane.concrete.nft.index import NftRules, NftTable
from kproxy.dataplane.concrete.nft.matches import match_answer
from kproxy.dataplane.concrete.nft.statements import Effect, possible_effects, run
from kproxy.dataplane.concrete.result import Result
from kproxy.dataplane.concrete.state import RuleRef, Split, State, View
from kproxy.dataplane.model.deeds import is_told, stays_of_dropped
from kproxy.dataplane.model.errors import DataplaneError
from kproxy.dataplane.model.host import Host
from kproxy.dataplane.model.pipeline import BaseChain
from kproxy.dataplane.model.verdict import DROP, INDETERMINATE, REJECT
from kproxy.netfilter.hooks import ChainType
from kproxy.netfilter.nftables.ruleset import Chain, Rule
from kproxy.netfilter.nftables.stateful import Counter, Last
from kproxy.netfilter.nftables.statement import Log, Match, Statement

_SURE: Final = Fraction(1)
_MAX_FRAMES: Final = 32
"""The kernel refuses jumps nested more than 16 deep (NFT_JUMP_STACK_SIZE)."""
_PURE: Final = (Counter, Last, Log)


class _Next(Enum):
    """How the traversal goes on after a rule."""

    RULE = "rule"
    CHAIN = "chain"


def traverse_nft(
    rules: NftRules, host: Host, base: BaseChain, cursor: Cursor, state: State, given: Given
) -> Fork | Accepted:
    """Traverse a base chain of nftables from where the cursor stands."""
    return _Traversal(rules.table(base.table), host, base, cursor, state, given).run()


class _Traversal:
    def __init__(
        self, table: NftTable, host: Host, base: BaseChain, cursor: Cursor, state: State, given: Given
    ) -> None:
        self._table = table
        self._base = base
        self._given = given
        self._cursor = cursor
        self._state = state
        self._steps: list[Step] = []
        self._view = View(host, cursor.hook, RuleRef(table.name, "", 0), state, given.limit)

    def run(self) -> Fork | Accepted:
        frames = list(self._cursor.frames)
        skip = self._cursor.match
        while True:
            name, at = frames[-1]
            rules = self._table.chain(name).rules
            going = _Next.RULE
            while at < len(rules):
                found = self._rule(rules[at], name, at, skip, frames)
                skip = 0
                if isinstance(found, (Fork, Accepted)):
                    return found
                going = found
                if going is _Next.CHAIN:
                    break
                at += 1
            if going is _Next.RULE:
                ended = self._chain_end(frames)
                if ended is not None:
                    return ended

    def _rule(
        self, rule: Rule, name: str, at: int, skip: int, frames: list[tuple[str, int]]
    ) -> Fork | Accepted | _Next:
        view = self._view
        view.ref = RuleRef(self._table.name, name, at + 1)
        view.state = self._state
        did: list[str] = []
        for number, statement in enumerate(rule.statements[skip:], skip):
            if isinstance(statement, Match):
                answer = match_answer(statement, view, self._table)
                if answer is True:
                    continue
                if answer is False:
                    return _Next.RULE
                if answer.yes is None or answer.no is None:
                    self._state = view.state = answer.yes or answer.no or view.state
                    if answer.yes is None:
                        return _Next.RULE
                    continue
                if self._refuted(rule, number + 1):
                    return _Next.RULE
                decided = None if answer.chance is not None else self._given.decide(self._table.texts(statement))
                if decided is not None:
                    self._state = view.state = (answer.yes if decided else answer.no) or view.state
                    if not decided:
                        return _Next.RULE
                    continue
                return self._fork(frames, name, at, number, answer)
            effects = self._effects(statement)
            if effects[0].result is Result.UNKNOWN:
                nat = self._base.type is ChainType.NAT
                effects = possible_effects(effects[0], statement, view, self._table, nat=nat)
            if len(effects) > 1:
                return self._split(effects, rule, frames, name, at, number)
            effect = effects[0]
            self._state = view.state = effect.state
            if effect.result is Result.BREAK:
                return _Next.RULE
            if effect.did:
                did.append(effect.did)
            if effect.result is not Result.CONTINUE:
                return self._decided(effect, rule, frames, at, did)
        self._steps.append(self._step(rule, "; ".join(did) or "count"))
        if skip:  # here a path that was split off may meet the others again
            return self._link([*frames[:-1], (name, at + 1)])
        return _Next.RULE

    def _effects(self, statement: Statement) -> list[Effect]:
        """What a statement may do; what is not known of it may be assumed: yes goes on (or accepts), no ends the rule
        (or drops)."""
        effects = run(statement, self._view, self._table)
        if is_told(statement):
            text, stays = self._table.texts(statement)[0], stays_of_dropped(statement)
            effects = [
                each._replace(state=each.state.with_told(text, stays=stays)) if each.result is Result.CONTINUE else each
                for each in effects
            ]
        first = effects[0]
        open_ended = first.result is Result.UNKNOWN
        if not open_ended and {(each.result, each.chance) for each in effects} != {
            (Result.CONTINUE, None),
            (Result.BREAK, None),
        }:
            return effects
        texts = self._table.texts(statement)
        decided = self._given.decide(texts)
        if decided is None:
            self._given.explain(f"{self._view.ref}: {first.did if open_ended else first.why}", texts[0])
            return effects
        if open_ended:
            return [first._replace(result=Result.ACCEPT if decided else Result.DROP)]
        wanted = Result.CONTINUE if decided else Result.BREAK
        return [each._replace(chance=_SURE) for each in effects if each.result is wanted]

    def _refuted(self, rule: Rule, first: int) -> bool:
        """Whether a later match surely does not hold, so that an open one before it does not count."""
        for statement in rule.statements[first:]:
            if isinstance(statement, Match):
                if match_answer(statement, self._view, self._table) is False:
                    return True
            elif not isinstance(statement, _PURE):
                break
        return False

    def _fork(self, frames: list[tuple[str, int]], name: str, at: int, number: int, answer: Split) -> Fork:
        cursor, edges = self._cursor, []
        if answer.yes is not None:
            inside = cursor._replace(frames=(*frames[:-1], (name, at)), match=number + 1)
            edges.append(Edge(answer.chance, Node(inside, answer.yes)))
        if answer.no is not None:
            after = cursor._replace(frames=(*frames[:-1], (name, at + 1)), match=0)
            edges.append(Edge(None if answer.chance is None else 1 - answer.chance, Node(after, answer.no)))
        why = f"{self._view.ref}: {answer.why}" if answer.why else ""
        statement = self._table.chain(name).rules[at].statements[number]
        self._given.explain(why, self._table.texts(statement)[0])
        return Fork(tuple(self._steps), tuple(edges), why)

    def _split(
        self, effects: list[Effect], rule: Rule, frames: list[tuple[str, int]], name: str, at: int, number: int
    ) -> Fork:
        edges = []
        for effect in effects:
            inside = [*frames[:-1], (name, at)]
            ends = effect.result not in (Result.CONTINUE, Result.BREAK)
            step = (self._step(rule, effect.did),) if ends else ()
            edges.append(Edge(effect.chance, self._after(effect, inside, at, number + 1), step))
        why = next((effect.why or effect.did for effect in effects if effect.chance is None), "")
        return Fork(tuple(self._steps), tuple(edges), f"{self._view.ref}: {why}" if why else "")

    def _after(self, effect: Effect, frames: list[tuple[str, int]], at: int, following: int) -> Node | End:
        """Where one of several effects leads."""
        cursor, name = self._cursor, frames[-1][0]
        if effect.result is Result.CONTINUE:
            return Node(cursor._replace(frames=tuple(frames), match=following), effect.state)
        frames = [*frames[:-1], (name, at + 1)]
        if effect.result in (Result.JUMP, Result.GOTO):
            frames = self._jumped(frames, effect)
        elif effect.result is Result.ACCEPT:
            frames = list(DONE)
        elif effect.result is Result.RETURN:
            frames = frames[:-1] if len(frames) > 1 else [(name, END)]
        elif effect.result is not Result.BREAK:
            return self._end(effect)
        return Node(cursor._replace(frames=tuple(frames), match=0), effect.state)

    def _end(self, effect: Effect) -> End:
        hook = self._cursor.hook
        if effect.result is Result.REJECT:
            return End(REJECT, hook, effect.state, reject=effect.reject)
        if effect.result is Result.DROP:
            return End(DROP, hook, effect.state)
        return End(INDETERMINATE, hook, effect.state, reason=f"{self._view.ref}: {effect.did}")

    def _decided(
        self, effect: Effect, rule: Rule, frames: list[tuple[str, int]], at: int, did: list[str]
    ) -> Fork | Accepted | _Next:
        self._steps.append(self._step(rule, "; ".join(did)))
        name = frames[-1][0]
        frames[-1] = (name, at + 1)
        if effect.result in (Result.JUMP, Result.GOTO):
            frames[:] = self._jumped(frames, effect)
            return _Next.CHAIN
        if effect.result is Result.ACCEPT:
            return Accepted(self._state, tuple(self._steps))
        if effect.result is Result.RETURN:
            return self._chain_end(frames) or _Next.CHAIN
        return Fork(tuple(self._steps), (Edge(_SURE, self._end(effect)),))

    def _jumped(self, frames: list[tuple[str, int]], effect: Effect) -> list[tuple[str, int]]:
        self._table.chain(effect.chain)
        if any(effect.chain == name for name, _ in frames):
            names = " → ".join([*(name for name, _ in frames), effect.chain])
            raise DataplaneError(f"table {self._table.name}: a loop of jumps: {names}")
        if len(frames) > _MAX_FRAMES:
            raise DataplaneError(f"table {self._table.name}: jumps nested too deep, at {effect.chain}")
        if effect.result is Result.JUMP:
            return [*frames, (effect.chain, 0)]
        # After a goto the chain does not go on; of a base chain the policy still counts.
        left = frames[:-1] if len(frames) > 1 else [(frames[-1][0], END)]
        return [*left, (effect.chain, 0)]

    def _chain_end(self, frames: list[tuple[str, int]]) -> Fork | Accepted | None:
        if len(frames) > 1:
            frames.pop()
            return self._link(frames)
        chain: Chain = self._table.chain(self._base.chain)
        if chain.base is None or chain.base.policy != "drop":
            return Accepted(self._state, tuple(self._steps))
        hook = self._cursor.hook
        self._steps.append(Step("policy", hook, "policy DROP", self._table.name, chain.name))
        return Fork(tuple(self._steps), (Edge(_SURE, End(DROP, hook, self._state)),))

    def _link(self, frames: list[tuple[str, int]]) -> Fork:
        """Stop where another path may arrive, too."""
        after = self._cursor._replace(frames=tuple(frames), match=0)
        return Fork(tuple(self._steps), (Edge(_SURE, Node(after, self._state)),))

    def _step(self, rule: Rule, did: str) -> Step:
        table, chain, number, _ = self._view.ref
        note = self._table.note(chain, number, rule)
        return Step("rule", self._cursor.hook, did, table, chain, number, self._table.text(rule), note)
