"""Dumps as the write path needs them: `netfilter.text` of what iptables-save printed just now."""

from __future__ import annotations

import re
from typing import Final

from kproxy.linux.errors import UnreadableDumpError
from kproxy.netfilter.text import SaveText, SaveTextError, split_save

_INCOMPATIBLE: Final = re.compile(r"^# Table `(filter|nat|mangle)' is incompatible", re.MULTILINE)


def parse_dump(text: str, what: str = "iptables-save") -> SaveText:
    """Splits what iptables-save printed, with or without counters.

    Raises:
        UnreadableDumpError: it is not such text, or a table we need cannot be shown (nft rules that iptables does not
        know).
    """
    incompatible = _INCOMPATIBLE.search(text)
    if incompatible is not None:
        raise UnreadableDumpError(
            f"{what} cannot show table {incompatible[1]}: it holds rules that only nft understands, so it cannot be "
            "told what is in it; see `nft list ruleset`"
        )
    try:
        return split_save(text)
    except SaveTextError as error:
        raise UnreadableDumpError(f"{what} {error}") from error


def is_comment(text: str) -> bool:
    """Whether a text holds nothing but comments."""
    return all(not line or line.startswith("#") for line in text.split("\n"))
