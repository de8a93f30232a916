"""What was not seen of a host's rules, as rules: they stand where the unseen could act, and leave open what it does.

Evidence about a host is often partial: a dump of one table, a paste. Whoever reads it (`cluster.evidence`) puts such
rules in place of what it points to and does not show. Two kinds: a target that may do all that rules of its table can
do, and a match that may hold or not, before a jump that may be there. Both engines leave them open, with one reason for
all rules about one unseen thing.
"""

from __future__ import annotations

from typing import Final

from kproxy.netfilter.iptables.lexer import quote
from kproxy.netfilter.iptables.matches import Match, OpaqueMatch
from kproxy.netfilter.iptables.rule import Rule
from kproxy.netfilter.iptables.targets import OpaqueTarget, Target

_NAME: Final = "UNSEEN"
_NOT_SEEN: Final = "not seen: "


def unseen_target(what: str, why: str) -> OpaqueTarget:
    """A target that may do whatever rules of its table can: let pass, drop, refuse; in nat, translate to an address
    that is not known. `what` was not seen (`filter table`), `why` says what points to it."""
    return OpaqueTarget(_NAME, _text(what, why))


def unseen_match(what: str, why: str) -> OpaqueMatch:
    """A match that holds if the unseen thing is there; all matches about one thing hold together."""
    return OpaqueMatch(_NAME, _text(what, why))


def _text(what: str, why: str) -> str:
    return f"{quote(what)} {quote(why)}"


def unseen_reason(part: Match | Target | None) -> str:
    """Why a match or target is open, if it stands for something that was not seen; else ""."""
    if isinstance(part, (OpaqueMatch, OpaqueTarget)) and part.name == _NAME:
        what, why = part.words
        return f"{_NOT_SEEN}{what} ({why})"
    return ""


def thing_of_reason(reason: str) -> str:
    """What was not seen, of a reason that `unseen_reason` gave; "" of another one."""
    return reason.removeprefix(_NOT_SEEN).partition(" (")[0] if reason.startswith(_NOT_SEEN) else ""


def unseen_thing(part: Match | Target | None) -> str:
    """What was not seen, if a match or target stands for such a thing; else ""."""
    return part.words[0] if isinstance(part, (OpaqueMatch, OpaqueTarget)) and part.name == _NAME else ""


def stands_for_unseen(rule: Rule) -> bool:
    """Whether the rule is none of the host's, but stands for something that was not seen."""
    return bool(unseen_thing(rule.target)) or any(map(unseen_thing, rule.matches))
