"""Statements of nftables in words, as nft prints them: names of what is unknown.

Theory: docs/symbolic.md, "The function".
"""

from __future__ import annotations

import dataclasses
from typing import Any

from kproxy.netfilter.nftables.rule import RulePrinter
from kproxy.netfilter.nftables.ruleset import Rule, Table
from kproxy.netfilter.nftables.statement import Match, Operator
from kproxy.netfilter.nftables.style import BOOKWORM


def text_of(statement: Any, table: Table) -> str:
    """A statement as nft prints it."""
    return RulePrinter(table.family, BOOKWORM, {item.name: item for item in table.sets}).rule(Rule((statement,)))


def positive(match: Match) -> tuple[Match, bool]:
    """A comparison without its negation, and whether it has one."""
    if match.operator is Operator.NE:
        return dataclasses.replace(match, operator=Operator.EQ), True
    if match.operator is Operator.NONE:
        return dataclasses.replace(match, operator=Operator.ANY), True
    return match, False
