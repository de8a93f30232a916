"""What each kind of finding is about, in a sentence; what becomes of packets is for `judge` to say."""

from __future__ import annotations

import re
from typing import Final

from kproxy.render.iptables.chains import CANARY
from kproxy.render.origin import Origin

REORDERED: Final = "packets meet the rules in another order; where two rules match one packet, another one decides"

_JUMPS: Final = {
    "missing": "packets of {source} do not come to {target}",
    "duplicated": "packets of {source} meet {target} more than once: what it counts or marks is done twice",
    "misplaced": "packets of {source} meet {target} in another order; where a rule before it decides, not at all",
    "extra": "packets of {source} meet {target}, and should not",
}
_QUOTED: Final = re.compile(r'"[^"]*"')


def missing(origin: Origin | None) -> str:
    """What it means that a rule or an element is not there."""
    if origin is None:
        return "what it does is not done"
    return f"not done any more: {str(origin).removeprefix('base rule: ')}"


def altered(origin: Origin | None) -> str:
    """What it means that another rule or element stands in the place of one."""
    return f"packets meet another in its place; as far as it differs, {missing(origin)}"


def extra(text: str, place: str, service: str) -> str:
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


def missing_chain(table: str, chain: str, service: str) -> str:
    """What it means that a chain is not there."""
    if chain == CANARY:
        return "packets are treated alike; but somebody flushed the table, so what else was in it is gone too"
    if service:
        return f"traffic to Service {service} is not sent to its endpoints"
    return f"what chain {chain} of table {table} does is not done"


def faulty_jump(source: str, kind: str, target: str) -> str:
    """What a fault of a jump rule means."""
    return _JUMPS[kind].format(source=source, target=target)
