"""The three-rule example of docs/symbolic.md: the function is the one that the page derives by hand."""

from __future__ import annotations

from fractions import Fraction

from kproxy.dataplane.model.verdict import ACCEPT
from kproxy.dataplane.symbolic.build import set_up
from kproxy.dataplane.symbolic.cases import CONNTRACK_CASES
from kproxy.dataplane.symbolic.leaves import Outcome
from kproxy.dataplane.symbolic.translated import KEEP, Destination
from kproxy.netfilter import Family, parse_save
from kproxy.netfilter.address import parse_address

RULES = """\
*nat
:PREROUTING ACCEPT [0:0]
:SVC - [0:0]
-A PREROUTING -d 10.96.0.1/32 -j SVC
-A SVC -m statistic --mode random --probability 0.25 -j MARK --set-xmark 0x1/0x1
-A SVC -m mark --mark 0x1/0x1 -j DNAT --to-destination 10.0.0.1
COMMIT
"""


def number(text: str) -> int:
    return parse_address(text, Family.IPV4)


def test_three_rules_by_hand() -> None:
    rules = parse_save(RULES, "example")
    setup = set_up(rules, rules)
    variables, outcomes, translation = setup.variables, setup.outcomes, setup.translation
    diagrams = variables.diagrams
    destinations = translation.destinations
    assert destinations[1:] == (Destination(number("10.0.0.1"), KEEP),)

    accepted = outcomes.sure(Outcome(ACCEPT))
    a, d = translation.at_destination(accepted, 0), translation.at_destination(accepted, 1)
    marked = variables.under(variables.mark, 1, 1)
    rule_3 = diagrams.ite(marked, d, a)
    rule_2 = outcomes.add_all(
        [
            outcomes.scale(diagrams.restrict(rule_3, ((variables.levels["mark"][31], 1),)), Fraction(1, 4)),
            outcomes.scale(rule_3, Fraction(3, 4)),
        ]
    )
    mixed = outcomes.add_all([outcomes.scale(d, Fraction(1, 4)), outcomes.scale(a, Fraction(3, 4))])
    assert rule_2 == diagrams.ite(marked, d, mixed)
    rule_1 = diagrams.ite(variables.address_is(variables.dst, number("10.96.0.1")), rule_2, a)

    function = setup.pipeline.function(setup.sides[0], "arriving", CONNTRACK_CASES[0])
    source = variables.values_of(variables.src, number("198.51.100.7"))
    for address in ("10.96.0.1", "10.96.0.2"):
        point = (*variables.values_of(variables.dst, number(address)), *source)
        assert diagrams.restrict(function, point) == diagrams.restrict(rule_1, point), address
