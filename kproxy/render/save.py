"""The save form: what iptables-save prints once the rules are in.

There is one source of truth, the restore text; this adds the jump rules and canary chains that kube-proxy makes sure of
with single iptables calls, and has `netfilter` print the whole canonically.
"""

from __future__ import annotations

from kproxy.netfilter import Ruleset, canonical_ruleset, print_save
from kproxy.render.base import CANARY_TABLES, JUMP_RULES
from kproxy.render.chains import CANARY
from kproxy.services.names import IPFamily

def jump_text() -> str:
    """Restore input that adds the jump rules and canary chains to fresh tables."""
    tables: dict[str, list[str]] = {table: [f":{CANARY} - [0:0]\n"] for table in CANARY_TABLES}
    chains = {(jump.table, jump.target): None for jump in JUMP_RULES}
    for table, chain in chains:
        tables[table].append(f":{chain} - [0:0]\n")
    for jump in reversed(JUMP_RULES):  # each is prepended, so the last one comes first
        tables[jump.table].append(f"{jump.text}\n")
    return "".join(f"*{table}\n{''.join(lines)}COMMIT\n" for table, lines in tables.items())
