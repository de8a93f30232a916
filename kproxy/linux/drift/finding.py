"""A finding: one difference between what the kernel should hold and what it holds."""

from __future__ import annotations

import msgspec


class Drift(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    """One difference.

    Attributes:
        kind: table-flushed, canary-missing, chain-missing, chain-extra, rule-missing, rule-extra, rule-altered,
            rules-reordered, jump-missing, jump-duplicated, jump-misplaced, jump-extra, table-dormant, other-variant,
            other-mode; in nftables mode also table-missing, chain-altered, set-missing, set-altered, set-extra,
            element-missing, element-altered, element-extra.
        rule: its number in the chain, from 1: where it should stand if it is desired, else where it stands.
        wanted, found: the rule as it should be and as it is.
        service: `namespace/name[:port]`; "" if it belongs to none.
        set: in nftables mode the set or map that differs, or that an element is in.
        explanation: what it means for packets; `meaning` in JSON.
    """

    family: str
    variant: str
    kind: str
    table: str
    chain: str
    explanation: str = msgspec.field(name="meaning")
    service: str = ""
    rule: int = 0
    wanted: str = ""
    found: str = ""
    set: str = ""
