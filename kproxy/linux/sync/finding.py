"""A finding: one difference between what the kernel should hold and what it holds, and what it is about, in a sentence;
what becomes of packets is for `judge` to say."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from difflib import SequenceMatcher
from typing import TYPE_CHECKING, Final, NamedTuple

import msgspec

from kproxy.render.iptables.chains import CANARY
from kproxy.render.origin import Origin
from kproxy.services import ServicePort

if TYPE_CHECKING:
    from kproxy.dataplane.symbolic.host_rules import SideRules


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


class Compared(NamedTuple):
    """How one family of the kernel differs from what it should hold.

    Attributes:
        sides: the rules as they should be and as they are, as far as they matter to packets of some ServicePorts.
            Raises InputError: they cannot be read; LinuxError.
        notes: what the user should know, without being drift.
    """

    findings: Sequence[Drift]
    sides: Callable[[Sequence[ServicePort]], tuple[SideRules, SideRules]]
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


def rule_findings(
    make: Callable[..., Drift],
    ref: tuple[str, str],
    wanted: Sequence[str],
    found: Sequence[str],
    origins: Sequence[Origin | None],
    owner: Callable[[str], str],
) -> Iterator[Drift]:
    """How the rules of a chain differ, as findings.

    Args:
        make: `Drift` of a family and variant.
        ref: table and chain.
        origins: of the wanted rules; not counted if there are not as many.
        owner: the Service of a rule that was found, or of the chain.
    """
    known = origins if len(origins) == len(wanted) else [None] * len(wanted)
    for change in rule_changes(wanted, found):
        service = owner(change.found)
        if change.kind == "rules-reordered":
            service, text = owner(""), REORDERED
        elif change.kind == "rule-extra":
            text = extra_means(change.found, ref[1], service)
        else:
            origin = known[change.at]
            text = (altered_means if change.found else missing_means)(origin)
            if origin is not None:
                service = str(origin.service_port or "")
        yield make(change.kind, *ref, text, service, change.at + 1, change.wanted, change.found)


REORDERED: Final = "packets meet the rules in another order; where two rules match one packet, another one decides"

_JUMPS: Final = {
    "missing": "packets of {source} do not come to {target}",
    "duplicated": "packets of {source} meet {target} more than once: what it counts or marks is done twice",
    "misplaced": "packets of {source} meet {target} in another order; where a rule before it decides, not at all",
    "extra": "packets of {source} meet {target}, and should not",
}
_QUOTED: Final = re.compile(r'"[^"]*"')


def missing_means(origin: Origin | None) -> str:
    """What it means that a rule or an element is not there."""
    if origin is None:
        return "what it does is not done"
    return f"not done any more: {str(origin).removeprefix('base rule: ')}"


def altered_means(origin: Origin | None) -> str:
    """What it means that another rule or element stands in the place of one."""
    return f"packets meet another in its place; as far as it differs, {missing_means(origin)}"


def extra_means(text: str, place: str, service: str) -> str:
    """What it means that a rule or an element is there that should not be. `place`: its chain or set."""
    whose = f"traffic to Service {service}" if service else f"traffic that meets {place}"
    words = set(_QUOTED.sub("", text).replace(":", " ").lower().split())
    if words & {"drop", "reject"}:
        return f"{whose} may be refused"
    if "accept" in words:
        return f"{whose} may be let through"
    if "return" in words:
        return f"{whose} may leave the chain before the rules after this one"
    if words & {"dnat", "redirect", "goto", "jump", "vmap"} or any(word.startswith("kube-s") for word in words):
        return f"{whose} may be sent to an endpoint that should not get it"
    return f"{whose} may be treated otherwise"


def missing_chain_means(table: str, chain: str, service: str) -> str:
    """What it means that a chain is not there."""
    if chain == CANARY:
        return "packets are treated alike; but somebody flushed the table, so what else was in it is gone too"
    if service:
        return f"traffic to Service {service} is not sent to its endpoints"
    return f"what chain {chain} of table {table} does is not done"


def faulty_jump_means(source: str, kind: str, target: str) -> str:
    """What a fault of a jump rule means."""
    return _JUMPS[kind].format(source=source, target=target)
