"""A condition as the set of packets of which it holds, as a diagram."""

from __future__ import annotations

from kproxy.dataplane.symbolic import connection
from kproxy.dataplane.symbolic.free_variables import FreeVariable, Stage
from kproxy.dataplane.symbolic.nodes import FALSE, TRUE, Node
from kproxy.dataplane.symbolic.variables import Variables
from kproxy.netfilter.address import Network
from kproxy.netfilter.condition import All, Among, Any, Condition, In, Not, Open, Under
from kproxy.netfilter.iptables.codec import Range


def ask(condition: Condition, variables: Variables, stage: Stage) -> Node:
    """The packets of which the condition holds at a stage of their way."""
    diagrams = variables.diagrams
    match condition:
        case In("tracked", _):
            return TRUE if stage.tracked else FALSE
        case In("reply", ((1, 1),)):
            return FALSE if stage.fresh else diagrams.equals(variables.reply, 1)
        case In("reply", _):
            return TRUE if stage.fresh else diagrams.equals(variables.reply, 0)
        case In(field, _) | Under(field, _, _) if field in connection.TUPLES:
            if connection.of_first_packet(field, stage):
                return of_packet(condition, variables, connection.TUPLES[field])
            return variables.free(FreeVariable("conntrack", _text(condition, variables), condition))
        case In(field, _) | Under(field, _, _):
            return of_packet(condition, variables, field)
        case Not(part):
            return diagrams.negate(ask(part, variables, stage))
        case All(parts):
            return diagrams.all_of([ask(part, variables, stage) for part in parts])
        case Any(parts):
            return diagrams.any_of([ask(part, variables, stage) for part in parts])
        case Among("ctstate", names):
            return connection.state(variables, names, stage)
        case Among(_, names):
            return connection.status(variables, names, stage)
        case Open(kind, text, _):
            return variables.free(FreeVariable(kind, text))


def of_packet(condition: In | Under, variables: Variables, field: str) -> Node:
    """The packets of which a condition holds, asked of that field."""
    level = variables.levels[field][0]
    match condition:
        case In(_, intervals):
            return variables.diagrams.any_of([variables.between(level, *each) for each in intervals])
        case Under(_, value, mask):
            return variables.under(level, value, mask)


def _text(condition: In | Under, variables: Variables) -> str:
    """The option that asks it."""
    if isinstance(condition, Under):
        return f"--{condition.field} {Network(variables.family, condition.value, condition.mask)}"
    return f"--{condition.field} {','.join(Range(*each).text() for each in condition.intervals)}"


def asked_of_packet(variables: Variables, condition: In | Under) -> Node | None:
    """What a question about the original tuple asks of a packet that still has its addresses and ports; None if it asks
    something else."""
    field = condition.field
    return of_packet(condition, variables, connection.TUPLES[field]) if field.startswith("ctorig") else None
