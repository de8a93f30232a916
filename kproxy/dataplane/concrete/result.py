"""What follows when a target of iptables or a statement of nft has been carried out."""

from __future__ import annotations

from enum import Enum


class Result(Enum):
    """How the traversal goes on."""

    CONTINUE = "continue"
    """with the rule's next statement, and after the last with the next rule"""
    BREAK = "break"
    """with the next rule at once"""
    ACCEPT = "accept"
    DROP = "drop"
    RETURN = "return"
    JUMP = "jump"
    GOTO = "goto"
    REJECT = "reject"
    UNKNOWN = "unknown"
