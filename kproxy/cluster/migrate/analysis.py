"""The comparison of the two modes on one node for one family: which reasons hold, and whether they are all.

1. Each reason's packets are sent through both modes' rules (`witness`). Those that are treated differently are found.
2. The steps of the reasons that were found are taken (`steps`), and what is left is compared, for all packets
   (`dataplane.compare`). What still differs is reason `other`; what cannot be decided is said.
3. With a dump of the node, usual packets and those of all reasons meet other programs' rules, too (`foreign`). This is
   a trial of packets, not a comparison of all.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import islice
from typing import Final

from kproxy.cluster.equivalence.services import Alike
from kproxy.cluster.evidence.unseen import Unseen
from kproxy.cluster.migrate.foreign import ForeignRules, are_met
from kproxy.cluster.migrate.from_ipvs import FOREIGN_SERVERS
from kproxy.cluster.migrate.packets import Packets
from kproxy.cluster.migrate.reasons import FOREIGN, OTHER, REASONS, Reason
from kproxy.cluster.migrate.steps import iptables_rules, nftables_rules
from kproxy.cluster.migrate.switch import Switch, ipvs_rules
from kproxy.cluster.migrate.witness import (
    Candidate,
    Judge,
    Witness,
    doubts,
    fates_differ,
    marks_differ,
    shows,
    sources_differ,
)
from kproxy.cluster.node import NodeFacts
from kproxy.dataplane import ACCEPT
from kproxy.dataplane.compare.compare import Undecided, compare
from kproxy.dataplane.compare.difference import Difference
from kproxy.dataplane.compare.witness import Situation
from kproxy.dataplane.model.host import LOOPBACK_NETWORKS
from kproxy.dataplane.model.unseen import thing_of_reason
from kproxy.dataplane.symbolic.host_rules import SideRules
from kproxy.netfilter import Ruleset, apply_restore, parse_restore
from kproxy.netfilter.address import parse_address

CLOSED: Final = "*filter\n:INPUT DROP [0:0]\n:FORWARD DROP [0:0]\nCOMMIT\n"
"""A host's own rules that accept nothing, for iptables-restore."""
_MOST: Final = 60
_MOST_OF_EACH: Final = 3
"""So many packets are sent through the rules of all programs, where those are known."""

_IS_ORDER: Final = "registered first"
_IS_OURS: Final = "kube-proxy"
"""How the model says that it does not know the order of two chains, and that one is of nftables mode."""

Tell = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class Found:
    """A difference on one node and family. `witness`: None where rules show it and no packet; `difference`: of `OTHER`;
    `rules`: other programs' rules that it is about, in words; `with_dump`: whether the witness meets those of the
    dump."""

    reason: Reason
    witness: Witness | None
    difference: Difference | None = None
    rules: tuple[str, ...] = ()
    with_dump: bool = False

    @property
    def id(self) -> str:
        """The reason's identifier."""
        return self.reason.id

    @property
    def is_of_comparison(self) -> bool:
        """Whether the comparison of all packets found it, and no packet that was chosen for the reason."""
        return self.difference is not None or self.reason.shows is not None


class Modes:
    """Both modes' rules on a node: `alone`, and `beside` those of other programs, in front of packets."""

    def __init__(self, facts: NodeFacts, foreign: ForeignRules | None, switch: Switch) -> None:
        self._facts, self._foreign = facts, foreign
        self._rules = switch.rules(facts)

    @cached_property
    def alone(self) -> Judge:
        return Judge(self._rules, self._facts.family)

    @cached_property
    def beside(self) -> Judge:
        """Where the rules of others are not known, on a host that accepts nothing."""
        if self._foreign is None:
            rules = behind_firewall(self._facts, *self._rules)
        else:
            opened = self._foreign.opened
            rules = opened.with_iptables(self._rules[0]), opened.with_nftables(self._rules[1])
        return Judge(rules, self._facts.family)


@dataclass(frozen=True)
class Analysis:
    """What was found for one node and family. `tried`: how many packets met other programs' rules, which are `foreign`;
    `is_of_fewer`: whether the Services were compared that stand for all."""

    facts: NodeFacts
    switch: Switch
    found: tuple[Found, ...]
    undecided: tuple[Undecided, ...] = ()
    tried: int = 0
    foreign: ForeignRules | None = None
    is_of_fewer: bool = False

    @property
    def looked_for(self) -> tuple[Reason, ...]:
        """The reasons that would have been found."""
        if not self.switch.from_ipvs:
            return (*self.switch.reasons, *(FOREIGN if self.foreign is not None else ()))
        is_listed = self.foreign is not None and self.foreign.ipvs is not None
        return tuple(each for each in self.switch.reasons if is_listed or each is not FOREIGN_SERVERS)

    @property
    def unseen(self) -> tuple[Unseen, ...]:
        """What was not seen, of the cluster or the node, and may hide how the modes differ."""
        return (*self.facts.unseen, *(() if self.foreign is None else self.foreign.unseen))

    def shown(self, found: Found) -> Found:
        """What was found, its witness on its way through all of the node's rules: those of the Services that stand for
        all are fewer, and have other numbers in their chains."""
        if not self.is_of_fewer or found.witness is None:
            return found
        judge = self._modes.beside if found.reason.firewall or found.with_dump else self._modes.alone
        differs = fates_differ if self.switch.from_ipvs else found.reason.differs
        witness = judge.witness(found.witness.candidate, differs)
        return found if witness is None else replace(found, witness=witness)

    @cached_property
    def _modes(self) -> Modes:
        return Modes(self.facts, self.foreign, self.switch)


def analyse(
    facts: NodeFacts,
    switch: Switch,
    *,
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
    fewer = None if alike is None else alike.facts(facts, () if foreign is None else (foreign.named,))
    if fewer is not None:
        short, is_all = _analysed(fewer, foreign, switch, tell)
        if is_all:  # what has no reason is said of each Service in the comparison's own words
            return replace(short, facts=facts, is_of_fewer=True)
    return _analysed(facts, foreign, switch, tell)[0]


def _analysed(facts: NodeFacts, foreign: ForeignRules | None, switch: Switch, tell: Tell) -> tuple[Analysis, bool]:
    """Compares the modes with each Service; also whether the known reasons are all."""
    tell("rendering both modes")
    modes = Modes(facts, foreign, switch)
    tell("sending packets")
    if switch.from_ipvs:
        return _from_ipvs(facts, foreign, switch, modes, tell)
    to_nftables = switch.to_nftables
    plain, routed = (Packets(facts, to_nftables=to_nftables, routed=each) for each in (False, foreign is not None))
    found: list[Found] = []
    for reason in REASONS:
        if not reason.applies(facts) or any(each.id == reason.id for each in found):
            continue
        if reason.firewall:
            candidates = islice(reason.packets(routed), _MOST)
            witness = modes.beside.find(candidates, reason.differs, modes.alone)
        else:
            witness = modes.alone.find(reason.packets(plain), reason.differs)
        if witness is not None:
            found.append(Found(reason, witness, with_dump=reason.firewall and foreign is not None))
    steps = {each.id for each in found}
    left = compare(
        iptables_rules(facts, steps),
        nftables_rules(facts, steps),
        family=facts.family,
        host=facts.host,
        progress=tell,
        examine=None,
    )
    found += [Found(OTHER, _witness(each), each) for each in left.differences]
    is_all = not left.differences and not left.undecided
    if foreign is None:
        return Analysis(facts, switch, tuple(found), left.undecided), is_all
    if foreign.kubelet:
        found = [each for each in found if each.id != "localnet-guard"]
    known = {each.id for each in found}
    more, doubted, tried = _with_others(facts, foreign, routed, modes)
    found += [each for each in more if each.id not in known]
    return Analysis(facts, switch, tuple(found), left.undecided + doubted, tried, foreign), is_all


def _from_ipvs(
    facts: NodeFacts, foreign: ForeignRules | None, switch: Switch, modes: Modes, tell: Tell
) -> tuple[Analysis, bool]:
    """What the settings show, and the comparison of all packets with settings made alike: each difference is of the
    first reason that shows it."""
    packets = Packets(facts, to_nftables=switch.to_nftables)
    found: dict[str, Found] = {}
    for reason in (each for each in switch.reasons if each.applies(facts)):
        witness = modes.alone.find(reason.packets(packets), reason.differs)
        if witness is not None or reason.is_of_settings:
            found[reason.id] = Found(reason, witness)
    if foreign is not None and (others := foreign.servers_beside(facts, ipvs_rules(facts).ipvs)):
        found[FOREIGN_SERVERS.id] = Found(FOREIGN_SERVERS, None, rules=others)
    sides = switch.rules(switch.settled(facts))
    left = compare(*sides, family=facts.family, host=facts.host, progress=tell, examine=None)
    unknown: list[Found] = []
    judge = Judge(sides, facts.family)
    for each in sorted(left.differences, key=lambda each: _strangeness(facts, each)):
        known = next((row for row in switch.reasons if row.shows and row.shows(facts, each)), None)
        if known is None:
            unknown.append(Found(OTHER, _witness(each), each))
        elif known.id not in found:
            usual = _on_node(facts, judge, each)
            is_shown = usual is not None and known.shows is not None and known.shows(facts, usual)
            found[known.id] = Found(known, _witness(usual if usual is not None and is_shown else each))
    undecided = left.undecided
    if foreign is not None and not foreign.is_empty_beside_ipvs:
        undecided += (Undecided("the rules of other programs", "a switch from IPVS mode is compared without them"),)
    return Analysis(facts, switch, (*found.values(), *unknown), undecided, foreign=foreign), not unknown


def _witness(difference: Difference) -> Witness:
    first, second = difference.traces
    return Witness(difference.situations, (first, second))


def _on_node(facts: NodeFacts, judge: Judge, difference: Difference) -> Difference | None:
    """The difference with a witness that meets a host with the node's addresses, if that shows it, too."""
    own = frozenset((facts.family, parse_address(text, facts.family)) for text in facts.own_addresses)

    def there(situation: Situation) -> Situation:
        host = situation.host
        return replace(situation, host=replace(host, local_addresses=(host.local_addresses or frozenset()) | own))

    first, second = map(there, difference.situations)
    traced = judge.traced((first, second))
    found = replace(difference, situations=(first, second), traces=traced.traces)
    return found if shows(traced, fates_differ) else None


def _strangeness(facts: NodeFacts, difference: Difference) -> tuple[object, ...]:
    """The less, the likelier the node meets a difference's witness: it has the node's own addresses and no unusual
    conditions."""
    own = {address for kind, address in difference.witness.host.local_addresses or () if kind is facts.family}
    missing = sum(parse_address(text, facts.family) not in own for text in facts.own_addresses)
    packet = difference.witness.packet
    from_loopback = packet.src is None or LOOPBACK_NETWORKS[packet.family].contains(packet.src)
    return from_loopback, missing, difference.rank, len(difference.witness.assumed)


def _with_others(
    facts: NodeFacts, foreign: ForeignRules, packets: Packets, modes: Modes
) -> tuple[list[Found], tuple[Undecided, ...], int]:
    """What a node's dump adds: rules that name kube-proxy's chains or use its mark, and packets that the rules of all
    programs together treat differently in the two modes, and those of kube-proxy alone do not; what of the dump the
    model does not know, although packets depend on it; and how many packets were tried."""
    chains, mark, order = FOREIGN
    bits = facts.iptables.masquerade_mark | facts.nftables.masquerade_mark
    named = [(chains, foreign.kube), (mark, tuple(foreign.users_of(bits)))]
    firewall = next(reason for reason in REASONS if reason.firewall)
    shown: dict[str, Found] = {}
    orders: dict[str, None] = {}
    unknown: Counter[str] = Counter()
    tried = 0
    candidates = (each for usual in _usual(packets) for each in packets.arriving_by(usual, foreign.interfaces))
    for candidate in () if foreign.is_empty else candidates:
        tried += 1
        traced = modes.beside.traced(candidate)
        if not shows(traced, sources_differ):
            first, second = doubts(traced)
            if any(map(thing_of_reason, first | second)):
                continue  # `Analysis.unseen` has it
            of_order = {text for text in first | second if _IS_ORDER in text and _IS_OURS in text}
            orders |= dict.fromkeys(sorted(of_order & (first ^ second)))
            if first | second:
                unknown.update((first | second) - of_order - set().union(*doubts(modes.alone.traced(candidate))))
            if foreign.markers and order.id not in shown and shows(traced, marks_differ(bits)):
                texts = tuple(each.text for each in foreign.markers[:_MOST_OF_EACH])
                shown[order.id] = Found(order, traced, rules=texts, with_dump=True)
        elif modes.alone.witness(candidate, sources_differ) is None:
            refused = {any(end.verdict != ACCEPT for end in each.outcomes) for each in traced.traces}
            met = (each for each, rules in named if are_met(rules, *traced.traces))
            reason = next(met, firewall if len(refused) > 1 else order)
            shown.setdefault(reason.id, Found(reason, traced, with_dump=True))
    for reason, rules in named:
        if rules:
            found = shown.pop(reason.id, None)
            witness = None if found is None else found.witness
            shown[reason.id] = Found(reason, witness, rules=tuple(rule.text for rule in rules), with_dump=True)
    if orders and order.id not in shown:
        shown[order.id] = Found(order, None, rules=tuple(orders))
    undecided = (Undecided(f"{count} of the packets tried", reason) for reason, count in unknown.most_common())
    return list(shown.values()), tuple(undecided), tried


def _usual(packets: Packets) -> Iterator[Candidate]:
    """Packets as they are met every day, and those of all reasons: so many of each."""
    yield from islice(packets.usual(), _MOST)
    for reason in REASONS:
        yield from islice(reason.packets(packets), _MOST_OF_EACH)


def behind_firewall(facts: NodeFacts, iptables: SideRules, nftables: SideRules) -> tuple[SideRules, SideRules]:
    """Both modes' rules on a host whose own rules accept nothing: the policies of INPUT and FORWARD are DROP."""
    policies = parse_restore(CLOSED, family=facts.family)
    (first,) = iptables.rulesets
    empty = apply_restore(Ruleset(facts.family), policies)
    return (
        SideRules.of(apply_restore(first, policies)),
        SideRules(SideRules.of(empty).iptables, nftables.nftables),
    )
