"""The save form: what iptables-save prints once the rules are in.

There is one source of truth, the restore text; this adds the jump rules and canary chains that kube-proxy makes sure of
with single iptables calls.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from kproxy.netfilter import Ruleset, apply_restore, canonical_ruleset, parse_restore
from kproxy.render.iptables.base import CANARY_TABLES, JUMP_RULES, JumpRule
from kproxy.render.iptables.chains import CANARY
from kproxy.render.iptables.serviceport import ChainRef
from kproxy.render.origin import Origin, RenderedRule
from kproxy.services.names import IPFamily


def jump_text(jumps: Sequence[JumpRule] = JUMP_RULES, canary_tables: Sequence[str] = CANARY_TABLES) -> str:
    """Restore input that adds a mode's jump rules and canary chains to tables that hold none of kube-proxy's."""
    tables: dict[str, list[str]] = {table: [f":{CANARY} - [0:0]\n"] for table in canary_tables}
    for table, chain in dict.fromkeys((jump.table, jump.target) for jump in jumps):
        tables.setdefault(table, []).append(f":{chain} - [0:0]\n")
    for jump in reversed(jumps):  # each is prepended, so the last one comes first
        tables[jump.table].append(f"{jump.text}\n")
    return "".join(f"*{table}\n{''.join(lines)}COMMIT\n" for table, lines in tables.items())


def saved_ruleset(restore_text: str, family: IPFamily, jumps: str | None = None) -> Ruleset:
    """The tables of a fresh namespace once jump rules, canaries and a full restore are in. `jumps`: as `jump_text` has
    them; by default those of iptables mode."""
    fresh = canonical_ruleset(jump_text() if jumps is None else jumps, family)
    operations = parse_restore(restore_text, family=family)
    return apply_restore(fresh, operations).in_save_order()


def rendered_rules(ruleset: Ruleset, origins: Mapping[ChainRef, Sequence[Origin]]) -> Iterator[RenderedRule]:
    """Every rule of a mode's save form with its provenance, in order."""
    for table in ruleset.tables:
        for chain in table.chains:
            found = origins.get((table.name, chain.name), ())
            for number, (rule, origin) in enumerate(zip(chain.rules, found, strict=True), start=1):
                yield RenderedRule(table.name, chain.name, number, rule.to_restore(chain.name), origin)
