"""Whether a chain refuses every new connection, whatever its packets look like: iptables' lines and nft's JSON.

A rule counts if it has no condition, or only that the connection is new. Such rules are followed into the chains that
they lead to: ufw's FORWARD ends with a jump to ufw-reject-forward, which rejects.
"""

from __future__ import annotations

import shlex
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Final, NamedTuple

_NEW: Final = "NEW"


class RuleEnd(NamedTuple):
    """What a rule does with every new connection: DROP, REJECT, ACCEPT, RETURN, or a chain's name."""

    target: str
    goes: bool = False
    """Whether it does not come back from the chain (goto)."""


Rules = Iterable[RuleEnd | None]
"""A chain's; None for a rule that does not concern every new connection."""


def refuses(verdict: RuleEnd | None, chain: Callable[[str], Rules], seen: frozenset[str] = frozenset()) -> bool:
    """Whether a rule ends in DROP or REJECT for every new connection that no earlier rule has let through.

    Args:
        chain: the rules of a chain, none for one that is not there.
    """
    if verdict is None or verdict.target in ("ACCEPT", "RETURN") or verdict.target in seen:
        return False
    if verdict.target in ("DROP", "REJECT"):
        return True
    for rule in chain(verdict.target):
        if refuses(rule, chain, seen | {verdict.target}):
            return True
        if rule is not None and (rule.goes or rule.target in ("ACCEPT", "RETURN")):
            return False
    return False


def iptables_verdict(line: str) -> RuleEnd | None:
    """Of a line `-A CHAIN ...`, as `iptables -S` prints it."""
    words = shlex.split(line)[2:]
    while words:
        match words:
            case ["-m", "comment", "--comment", _, *rest]:
                pass
            case ["-m", "conntrack", "--ctstate", states, *rest] | ["-m", "state", "--state", states, *rest]:
                if _NEW not in states.split(","):
                    return None
            case ["-m", "conntrack", "!", "--ctstate", states, *rest] | ["-m", "state", "!", "--state", states, *rest]:
                if _NEW in states.split(","):
                    return None
            case ["-j" | "-g" as how, target, *_]:
                return RuleEnd(target, how == "-g")
            case _:
                return None
        words = rest
    return None


def nft_verdict(statements: Sequence[dict[str, Any]]) -> RuleEnd | None:
    """Of a rule's `expr` in nft's JSON."""
    for statement in statements:
        match statement:
            case {"counter": _} | {"log": _}:
                continue
            case {"match": {"op": op, "left": {"ct": {"key": "state"}}, "right": right}}:
                if ("new" in _states(right)) is (op == "!="):
                    return None
            case {"drop": _}:
                return RuleEnd("DROP")
            case {"reject": _}:
                return RuleEnd("REJECT")
            case {"accept": _}:
                return RuleEnd("ACCEPT")
            case {"return": _}:
                return RuleEnd("RETURN")
            case {"jump": {"target": str(target)}}:
                return RuleEnd(target)
            case {"goto": {"target": str(target)}}:
                return RuleEnd(target, goes=True)
            case _:
                return None
    return None


def _states(right: Any) -> list[str]:
    values = right.get("set", ()) if isinstance(right, dict) else right
    return [values] if isinstance(values, str) else list(values)
