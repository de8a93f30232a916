"""The comparison of the two modes on one node for one family: which reasons hold, and whether they are all.

1. Each reason's packets are sent through both modes' rules (`witness`). Those that are treated differently are found.
2. The steps of the reasons that were found are taken (`steps`), and what is left is compared, for all packets
   (`dataplane.compare`). What still differs is reason `other`; what cannot be decided is said.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from kproxy.cluster.migrate import ids
from kproxy.cluster.migrate.facts import NodeFacts
from kproxy.cluster.migrate.packets import Packets
from kproxy.cluster.migrate.reasons import REASONS, Reason
from kproxy.cluster.migrate.steps import iptables_rules, nftables_rules
from kproxy.cluster.migrate.witness import Candidate, Judge, Witness
from kproxy.dataplane.compare.compare import Difference, Undecided, compare
from kproxy.dataplane.symbolic.side import SideRules
from kproxy.netfilter import Ruleset, apply_restore, parse_restore

Tell = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class Found:
    """A difference on one node and family, for a reason of the table; of reason `other` if `reason` is None, in the
    comparison's own words."""

    reason: Reason | None
    witness: Witness
    difference: Difference | None = None

    @property
    def id(self) -> str:
        """The reason's identifier."""
        return ids.OTHER if self.reason is None else self.reason.id


@dataclass(frozen=True, slots=True)
class Analysis:
    """What was found for one node and family; `undecided` is what the model cannot decide."""

    facts: NodeFacts
    found: tuple[Found, ...]
    undecided: tuple[Undecided, ...] = ()


def analyse(facts: NodeFacts, *, to_nftables: bool, tell: Tell = lambda _what: None) -> Analysis:
    """Compare the modes on one node for one family. `tell` gets what is being done, in a few words."""
    tell("rendering both modes")
    iptables, nftables = iptables_rules(facts), nftables_rules(facts)
    tell("sending packets")
    packets = Packets(facts)
    judge = Judge(iptables, nftables, facts.family)
    guarded: Judge | None = None
    found = []
    for reason in REASONS:
        if not reason.applies(facts):
            continue
        asked = judge
        if reason.firewall:
            guarded = guarded or Judge(*behind_firewall(facts, iptables, nftables), facts.family)
            asked = guarded
        witness = asked.find(reason.packets(packets, to_nftables), reason.differs)
        if witness is not None:
            found.append(Found(reason, witness))
    steps = {each.id for each in found}
    left = compare(
        iptables_rules(facts, steps), nftables_rules(facts, steps), family=facts.family, progress=tell, examine=None
    )
    others = [_other(difference) for difference in left.differences]
    return Analysis(facts, (*found, *others), left.undecided)


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
    candidate = Candidate(difference.witness, difference.witness_other)
    return Found(None, Witness(candidate, *difference.traces), difference)
