"""A finding: one difference between what the kernel should hold and what it holds."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from difflib import SequenceMatcher
from typing import NamedTuple

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


class Compared(msgspec.Struct, frozen=True):
    """How one family of the kernel differs from what it should hold.

    Attributes:
        packets: what that means for packets to some Services, in sentences.
        notes: what the user should know, without being drift.
    """

    differs: bool
    findings: Sequence[Drift]
    packets: Callable[[Iterable[str]], Sequence[str]]
    notes: Sequence[str] = ()


class RuleChange(NamedTuple):
    """A difference between two lists of rules.

    Attributes:
        kind: rules-reordered, rule-altered, rule-missing or rule-extra.
        at: from 0, in the wanted rules; of an extra rule, in those that were found.
    """

    kind: str
    at: int
    wanted: str
    found: str


def rule_changes(wanted: Sequence[str], found: Sequence[str]) -> Iterator[RuleChange]:
    """How the rules of a chain differ; where only their order does, the first that stands elsewhere."""
    if Counter(wanted) == Counter(found):
        pairs = enumerate(zip(wanted, found, strict=True))
        yield from [RuleChange("rules-reordered", i, one, other) for i, (one, other) in pairs if one != other][:1]
        return
    for tag, i1, i2, j1, j2 in SequenceMatcher(None, wanted, found, autojunk=False).get_opcodes():
        both = 0 if tag == "equal" else min(i2 - i1, j2 - j1)
        yield from (RuleChange("rule-altered", i1 + n, wanted[i1 + n], found[j1 + n]) for n in range(both))
        if tag != "equal":
            yield from (RuleChange("rule-missing", index, wanted[index], "") for index in range(i1 + both, i2))
            yield from (RuleChange("rule-extra", index, "", found[index]) for index in range(j1 + both, j2))
