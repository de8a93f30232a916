"""The comparison of the two modes on one node for one family: which reasons hold, and whether they are all.

1. Each reason's packets are sent through both modes' rules (`witness`). Those that are treated differently are found.
2. The steps of the reasons that were found are taken (`steps`), and what is left is compared, for all packets
   (`dataplane.compare`). What still differs is reason `other`; what cannot be decided is said.
3. With a dump of the node, usual packets and those of all reasons meet other programs' rules, too (`foreign`). This is
   a trial of packets, not a comparison of all.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import islice
from typing import Final

from kproxy.cluster.equivalence.services import Alike
from kproxy.cluster.evidence.unseen import IPVS, Unseen
from kproxy.cluster.migrate import ids
from kproxy.cluster.migrate.foreign import ForeignRules, NamedRule, are_met
from kproxy.cluster.migrate.packets import Packets
from kproxy.cluster.migrate.reason import Reason
from kproxy.cluster.migrate.reasons import FOREIGN, REASONS
from kproxy.cluster.migrate.steps import iptables_rules, nftables_rules
from kproxy.cluster.migrate.witness import Candidate, Judge, Witness, marks_differ, sources_differ
from kproxy.cluster.node import NodeFacts
from kproxy.dataplane import ACCEPT
from kproxy.dataplane.compare.compare import Undecided, compare
from kproxy.dataplane.compare.difference import Difference
from kproxy.dataplane.model.unseen import thing_of_reason
from kproxy.dataplane.symbolic.host_rules import SideRules
from kproxy.netfilter import Ruleset, apply_restore, parse_restore

_MOST: Final = 60
_MOST_OF_EACH: Final = 3
"""So many packets are sent through the rules of all programs, where those are known."""

_IS_ORDER: Final = "registered first"
_IS_OURS: Final = "kube-proxy"
"""How the model says that it does not know the order of two chains, and that one is of nftables mode."""

Tell = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class Found:
    """A difference on one node and family.

    Attributes:
        reason: None for `other`, in the comparison's own words.
        witness: None where rules show the difference and no packet.
        difference: what the comparison says, if it found it.
        rules: other programs' rules that it is about, in words.
        with_dump: whether the witness meets the rules of the node's dump, too.
    """

    reason: Reason | None
    witness: Witness | None
    difference: Difference | None = None
    rules: tuple[str, ...] = ()
    with_dump: bool = False

    @property
    def id(self) -> str:
        """The reason's identifier."""
        return ids.OTHER if self.reason is None else self.reason.id


@dataclass(frozen=True)
class Analysis:
    """What was found for one node and family.

    Attributes:
        undecided: what the model cannot decide; `left_open` is what of it is about all packets, not one that was tried.
        tried: how many packets met other programs' rules, which are `foreign`.
        is_of_fewer: whether the Services were compared that stand for all.
    """

    facts: NodeFacts
    found: tuple[Found, ...]
    undecided: tuple[Undecided, ...] = ()
    left_open: tuple[Undecided, ...] = ()
    tried: int = 0
    foreign: ForeignRules | None = None
    is_of_fewer: bool = False

    @property
    def unseen(self) -> tuple[Unseen, ...]:
        """What was not seen, of the cluster or the node, and may hide how the modes differ."""
        return (*self.facts.unseen, *(() if self.foreign is None else self.foreign.unseen))

    def shown(self, found: Found) -> Found:
        """What was found, its witness on its way through all of the node's rules: those of the Services that stand for
        all are fewer, and have other numbers in their chains."""
        if not self.is_of_fewer or found.witness is None or found.reason is None:
            return found
        judge = self._guarded if found.reason.firewall or found.with_dump else self._judge
        witness = judge.witness(found.witness.candidate, found.reason.differs)
        return found if witness is None else replace(found, witness=witness)

    @cached_property
    def _rules(self) -> tuple[SideRules, SideRules]:
        return iptables_rules(self.facts), nftables_rules(self.facts)

    @cached_property
    def _judge(self) -> Judge:
        return Judge(*self._rules, self.facts.family)

    @cached_property
    def _guarded(self) -> Judge:
        return Judge(*on_the_node(self.facts, *self._rules, self.foreign), self.facts.family)


def analyse(
    facts: NodeFacts,
    *,
    to_nftables: bool,
    foreign: ForeignRules | None = None,
    alike: Alike | None = None,
    tell: Tell = lambda _what: None,
) -> Analysis:
    """Compare the modes on one node for one family.

    Args:
        foreign: other programs' rules on this node, from its dump.
        alike: which Services stand for all; without, each Service is compared.
        tell: gets what is being done, in a few words.
    """
    if any(gap.what == IPVS for gap in facts.unseen):
        return Analysis(facts, ())  # IPVS is not modelled
    fewer = None if alike is None else alike.facts(facts, () if foreign is None else (foreign.named,))
    if fewer is not None:
        short = analyse(fewer, to_nftables=to_nftables, foreign=foreign, tell=tell)
        # What has no reason is said of each Service in the comparison's own words.
        if not short.left_open and all(each.reason is not None for each in short.found):
            return replace(short, facts=facts, is_of_fewer=True)
    tell("rendering both modes")
    iptables, nftables = iptables_rules(facts), nftables_rules(facts)
    tell("sending packets")
    packets = Packets(facts, to_nftables=to_nftables)
    judge = Judge(iptables, nftables, facts.family)
    guarded: Judge | None = None
    found = []
    for reason in REASONS:
        if not reason.applies(facts):
            continue
        if not reason.firewall:
            witness = judge.find(reason.packets(packets), reason.differs)
        else:
            guarded = guarded or Judge(*on_the_node(facts, iptables, nftables, foreign), facts.family)
            candidates = reason.packets(Packets(facts, to_nftables=to_nftables, routed=foreign is not None))
            witness = guarded.find(islice(candidates, _MOST), reason.differs, judge)
        if witness is not None:
            told = reason.shown_by(facts, witness.candidate.iptables.packet)
            found.append(Found(told, witness, with_dump=reason.firewall and foreign is not None))
    steps = {each.id for each in found}
    left = compare(
        iptables_rules(facts, steps),
        nftables_rules(facts, steps),
        family=facts.family,
        host=facts.host,
        progress=tell,
        examine=None,
    )
    found += [_other(difference) for difference in left.differences]
    undecided, tried = left.undecided, 0
    if foreign is not None:
        if foreign.kubelet:
            found = [each for each in found if each.id != ids.LOCALNET_GUARD]
        beside = guarded or Judge(*on_the_node(facts, iptables, nftables, foreign), facts.family)
        known = {each.id for each in found}
        routed = Packets(facts, to_nftables=to_nftables, routed=True)
        candidates = (each for usual in _usual(routed) for each in routed.arriving_by(usual, foreign.interfaces))
        more, doubts, tried = _with_others(facts, foreign, candidates, judge, beside)
        found += [each for each in more if each.id not in known]
        undecided += doubts
    return Analysis(facts, tuple(found), undecided, left.undecided, tried, foreign)


def _with_others(
    facts: NodeFacts,
    foreign: ForeignRules,
    candidates: Iterable[Candidate],
    judge: Judge,
    beside: Judge,
) -> tuple[list[Found], tuple[Undecided, ...], int]:
    """What a node's dump adds: rules that name kube-proxy's chains or use its mark, and packets that the rules of all
    programs together treat differently in the two modes, and those of kube-proxy alone do not; what of the dump the
    model does not know, although packets depend on it; and how many packets were tried."""
    chains, mark, order = FOREIGN
    bits = facts.iptables.masquerade_mark | facts.nftables.masquerade_mark
    users = tuple(foreign.users_of(bits))
    named = [(chains, foreign.kube), (mark, users)]
    firewall = next(reason for reason in REASONS if reason.firewall)
    shown: dict[str, Found] = {}
    orders: dict[str, None] = {}
    unknown: Counter[str] = Counter()
    tried = 0
    for candidate in () if foreign.is_empty else candidates:
        tried += 1
        witness = beside.witness(candidate, sources_differ)
        if witness is None:
            first, second = beside.doubts(candidate)
            if any(map(thing_of_reason, first | second)):
                continue  # `Analysis.unseen` has it
            of_order = {text for text in first | second if _IS_ORDER in text and _IS_OURS in text}
            orders |= dict.fromkeys(sorted(of_order & (first ^ second)))
            unknown.update((first | second) - of_order - set().union(*judge.doubts(candidate)))
            marked = (
                beside.witness(candidate, marks_differ(bits)) if foreign.markers and order.id not in shown else None
            )
            if marked is not None:
                marked = replace(marked, by_marks=True)
                shown[order.id] = Found(
                    order, marked, rules=tuple(each.text for each in foreign.markers[:_MOST_OF_EACH]), with_dump=True
                )
        elif judge.witness(candidate, sources_differ) is None:
            refused = [
                any(end.verdict != ACCEPT for end in each.outcomes) for each in (witness.iptables, witness.nftables)
            ]
            reason = firewall if refused[0] != refused[1] else order
            met = (each for each, rules in named if are_met(rules, witness.iptables, witness.nftables))
            reason = next(met, reason)
            shown.setdefault(reason.id, Found(reason, witness, with_dump=True))
    for reason, rules in named:
        if rules:
            found = shown.pop(reason.id, None)
            witness = found.witness if found is not None else _decided_by(rules, facts, foreign, judge, beside)
            shown[reason.id] = Found(reason, witness, rules=tuple(rule.text for rule in rules), with_dump=True)
    if orders and order.id not in shown:
        shown[order.id] = Found(order, None, rules=tuple(orders))
    undecided = (Undecided(f"{count} of the packets tried", reason) for reason, count in unknown.most_common())
    return list(shown.values()), tuple(undecided), tried


def _decided_by(
    rules: Collection[NamedRule], facts: NodeFacts, foreign: ForeignRules, judge: Judge, beside: Judge
) -> Witness | None:
    """A packet that meets another end in the other mode because of these rules of others, none that was tried: one of
    those that meet another end in iptables mode without these rules."""
    own = iptables_rules(facts)
    opened = foreign.opened
    sides = (opened.with_iptables(own), opened.without(rules).with_iptables(own))
    for difference in compare(*sides, family=facts.family).differences:
        witness = beside.find([Candidate.of(difference.witness)], sources_differ, judge)
        if witness is not None:
            return witness
    return None


def _usual(packets: Packets) -> Iterator[Candidate]:
    """Packets as they are met every day, and those of all reasons: so many of each."""
    yield from islice(packets.usual(), _MOST)
    for reason in REASONS:
        yield from islice(reason.packets(packets), _MOST_OF_EACH)


def on_the_node(
    facts: NodeFacts, iptables: SideRules, nftables: SideRules, foreign: ForeignRules | None
) -> tuple[SideRules, SideRules]:
    """Both modes' rules with those of other programs; where these are not known, on a host that accepts nothing."""
    if foreign is not None:
        opened = foreign.opened
        return opened.with_iptables(iptables), opened.with_nftables(nftables)
    return behind_firewall(facts, iptables, nftables)


def behind_firewall(facts: NodeFacts, iptables: SideRules, nftables: SideRules) -> tuple[SideRules, SideRules]:
    """Both modes' rules on a host whose own rules accept nothing: the policies of INPUT and FORWARD are DROP."""
    policies = parse_restore("*filter\n:INPUT DROP [0:0]\n:FORWARD DROP [0:0]\nCOMMIT\n", family=facts.family)
    (first,) = iptables.rulesets
    empty = apply_restore(Ruleset(facts.family), policies)
    return (
        SideRules.of(apply_restore(first, policies)),
        SideRules(SideRules.of(empty).iptables, nftables.nftables),
    )


def _other(difference: Difference) -> Found:
    candidate = Candidate(*difference.situations)
    one, other = difference.traces
    return Found(None, Witness(candidate, one, other), difference)
