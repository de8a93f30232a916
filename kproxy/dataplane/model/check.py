"""Rule sets that the model cannot work with, found before the first packet.

`trace` raises when a packet comes to a jump to nowhere or into a loop; this finds them all, without a packet.
"""

from __future__ import annotations

from kproxy.dataplane.model.errors import DataplaneError
from kproxy.netfilter.family import BUILTIN_CHAINS
from kproxy.netfilter.iptables.check import check_ruleset
from kproxy.netfilter.iptables.ruleset import Ruleset


def check_traceable(ruleset: Ruleset, *, alone: bool = True) -> None:
    """Refuse a rule set with tables that Linux does not have, jumps to chains that are not there, loops, or matches
    that the kernel would refuse.

    Args:
        alone: no other rules belong to the host; then one that does nothing at all is refused, too: no rules, and no
            policy but ACCEPT.

    Raises:
        DataplaneError: every problem on a line of its own.
    """
    problems = [
        f"table {table.name}: no such table (tables: {', '.join(BUILTIN_CHAINS)})"
        for table in ruleset.tables
        if table.name not in BUILTIN_CHAINS
    ]
    problems += map(str, check_ruleset(ruleset))
    if alone and not problems and not ruleset.has_effect:
        problems.append("no rules")
    if problems:
        raise DataplaneError("\n".join(problems))
