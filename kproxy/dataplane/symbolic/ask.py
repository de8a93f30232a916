"""A condition as the set of packets of which it holds, as a diagram."""

from __future__ import annotations

from kproxy.dataplane.symbolic.free_variables import FreeVariable, Stage
from kproxy.dataplane.symbolic.nodes import FALSE, TRUE, Node
from kproxy.dataplane.symbolic.variables import Variables
from kproxy.netfilter.condition import All, Any, Condition, In, Not, Open, Under
from kproxy.netfilter.iptables.codec import Masked


def ask(condition: Condition, variables: Variables, stage: Stage) -> Node:
    """The packets of which the condition holds at a stage of their way."""
    diagrams = variables.diagrams
    match condition:
        case In("tracked", _):
            return TRUE if stage.tracked else FALSE
        case In(field, intervals):
            level = variables.levels[field][0]
            return diagrams.any_of([variables.between(level, first, last) for first, last in intervals])
        case Under("mark" | "connmark" as field, value, mask):
            return variables.bits_equal(variables.levels[field][0], Masked(value, mask))
        case Under(field, value, mask):
            return variables.octet_under(variables.levels[field][0], Masked(value, mask))
        case Not(part):
            return diagrams.negate(ask(part, variables, stage))
        case All(parts):
            return diagrams.all_of([ask(part, variables, stage) for part in parts])
        case Any(parts):
            return diagrams.any_of([ask(part, variables, stage) for part in parts])
        case Open(kind, text, _):
            return variables.free(FreeVariable(kind, text))
