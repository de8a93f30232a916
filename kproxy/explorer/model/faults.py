"""What is wrong with an endpoint of a Service, where a node's rules and the objects differ: in the same words on the
map, in its panel and on the Service's page."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from typing import Final

from kproxy.explorer.model.rule_chances import Asked

MISSING: Final = "missing"
"""The node's rules do not know the Service's address."""
REFUSED: Final = "refused"
"""They drop or reject what is sent to it."""
LOST: Final = "lost"
"""They choose the endpoint, and what is sent there is dropped or rejected."""
UNUSED: Final = "unused"
"""They never choose it, though the objects ask for it."""
WRONG: Final = "wrong"
"""They choose it, though the objects do not."""

NOT_THERE: Final = "not among the endpoints that the objects have"
NOBODY: Final = "no Pod has this address"

_NONE: Final = Fraction(0)


@dataclass(frozen=True, slots=True)
class Share:
    """What an endpoint gets from a node's rules.

    Attributes:
        chance, lost: of packets that reach it, and of those that are sent there and lost.
        fault: what is wrong with it; "" if nothing is.
        why: that in words.
    """

    chance: Fraction
    lost: Fraction = _NONE
    fault: str = ""
    why: str = ""


def share_of(address: str, asked: Asked, wanted: Fraction, node: str, left_out: str) -> Share:
    """What an endpoint, `ADDRESS:PORT`, gets from rules that were asked and could decide.

    Args:
        wanted: the chance that the objects ask for.
        left_out: why the objects leave it out, if they do.
    """
    chance, lost = asked.chances.get(address, _NONE), asked.lost.get(address, _NONE)
    if lost:
        return Share(chance, lost, LOST, asked.why_lost[address])
    if chance:
        return Share(chance, _NONE, *(("", "") if wanted else (WRONG, left_out)))
    if not wanted:
        return Share(chance)
    if asked.chances or asked.lost:
        return Share(chance, _NONE, UNUSED, f"the rules of {node} do not lead there")
    if asked.untranslated or not asked.refused:
        return Share(chance, _NONE, MISSING, f"rules missing on {node}")
    return Share(chance, _NONE, REFUSED, asked.refused)
