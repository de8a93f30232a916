"""What rules ask of the connection, as conditions on the variables: state, status, the tuples.

Theory: docs/symbolic.md, "The function". Semantics are those of `concrete.answer`.
"""

from __future__ import annotations

from typing import Final

from kproxy.dataplane.symbolic.free_variables import BEFORE, FreeVariable, Stage
from kproxy.dataplane.symbolic.nodes import FALSE, TRUE, Node
from kproxy.dataplane.symbolic.variables import Variables

TUPLES: Final = {
    "ctorigsrc": "src", "ctorigdst": "dst", "ctreplsrc": "dst", "ctrepldst": "src",
    "ctorigsrcport": "sport", "ctorigdstport": "dport", "ctreplsrcport": "dport", "ctrepldstport": "sport",
}  # fmt: skip
"""The connection's tuples, and what of its first packet they are."""


def of_first_packet(field: str, stage: Stage) -> bool:
    """Whether a field of the tuples is, at this stage, what the packet has."""
    new = stage.fresh and not stage.looped
    return new and (stage.phase == BEFORE or field not in ("ctorigdst", "ctorigdstport"))


def state(variables: Variables, names: frozenset[str], stage: Stage) -> Node:
    """The packets whose connection's state is one of these."""
    diagrams = variables.diagrams
    if stage.table == "raw" and not stage.looped:  # only a rule of this table can have said anything yet
        answers = [TRUE if name in names else FALSE for name in ("UNTRACKED", "INVALID")]
        return diagrams.ite(diagrams.equals(variables.untracked, 1), *answers)
    if stage.ctstate in names:
        return TRUE
    result = FALSE
    if stage.tracked:
        # The first packet's connection is not translated before the nat tables have translated it.
        translated = not stage.fresh or stage.phase != BEFORE, not stage.fresh or stage.source_done
        for name, level, done in zip(("DNAT", "SNAT"), (variables.dnat, variables.snat), translated, strict=True):
            if name in names and done:
                result = diagrams.either(result, diagrams.equals(level, 1))
    return result


def status(variables: Variables, names: frozenset[str], stage: Stage) -> Node:
    """The packets whose connection has one of these statuses."""
    if stage.ctstate == "NEW":
        return TRUE if stage.looped and "CONFIRMED" in names else FALSE
    if stage.ctstate == "ESTABLISHED" and names & {"SEEN_REPLY", "CONFIRMED"}:
        return TRUE
    free = (variables.free(FreeVariable("conntrack", f"--ctstatus {name}", name)) for name in sorted(names))
    return variables.diagrams.any_of(free)
