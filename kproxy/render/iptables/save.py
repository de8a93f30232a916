"""The save form: what iptables-save prints once the rules are in.

There is one source of truth, the restore text; this adds the jump rules and canary chains that kube-proxy makes sure of
with single iptables calls, and has `netfilter` print the whole canonically.
"""

from __future__ import annotations

from kproxy.netfilter import Ruleset, apply_restore, canonical_ruleset, parse_restore, print_save
from kproxy.render.iptables.base import CANARY_TABLES, JUMP_RULES
from kproxy.render.iptables.chains import CANARY
from kproxy.services.names import IPFamily


def jump_text() -> str:
    """Restore input that adds the jump rules and canary chains to tables that hold none of kube-proxy's."""
    tables: dict[str, list[str]] = {table: [f":{CANARY} - [0:0]\n"] for table in CANARY_TABLES}
    for table, chain in dict.fromkeys((jump.table, jump.target) for jump in JUMP_RULES):
        tables[table].append(f":{chain} - [0:0]\n")
    for jump in reversed(JUMP_RULES):  # each is prepended, so the last one comes first
        tables[jump.table].append(f"{jump.text}\n")
    return "".join(f"*{table}\n{''.join(lines)}COMMIT\n" for table, lines in tables.items())


def saved_ruleset(restore_text: str, family: IPFamily) -> Ruleset:
    """The tables of a fresh namespace once jump rules, canaries and a full restore are in."""
    fresh = canonical_ruleset(jump_text(), family)
    operations = parse_restore(restore_text, family=family)
    return apply_restore(fresh, operations).in_save_order()


def save_text(restore_text: str, family: IPFamily) -> str:
    """What iptables-save (without comment lines, counters zero) prints for `saved_ruleset`."""
    return print_save(saved_ruleset(restore_text, family))
