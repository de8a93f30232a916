"""The rules of a table, cut into those of each chain, where another table has nearly the same.

Nodes of a cluster have megabytes of rules, and a few lines that differ. What two texts have in common at both ends is
found by comparing halves, and is not cut again.
"""

from __future__ import annotations

import re
from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from itertools import accumulate
from typing import Final, NamedTuple

_RULES: Final = re.compile(r"-A (\S+) .*\n(?:-A \1 .*\n)*")


class Blocks(NamedTuple):
    """The rules of a table: `rules` are those of each of `chains`, in the order of the text; they end at `ends`."""

    text: str
    chains: Sequence[str]
    rules: Sequence[str]
    ends: Sequence[int]


NO_BLOCKS: Final = Blocks("", (), (), ())


def cut_blocks(text: str, like: Blocks = NO_BLOCKS) -> Blocks | None:
    """Cuts rules as iptables-save prints them; None if something else is between them.

    Args:
        like: of nearly the same text.
    """
    # The block at the edge of what is common may go on differently: it is left out.
    same = _common_start(text, like.text)
    first = max(0, bisect_right(like.ends, same) - 1)
    start = like.ends[first - 1] if first else 0
    same = _common_end(text, like.text, start)
    last = len(like.ends) - 1 - bisect_left(like.ends, len(like.text) - same)
    last = max(0, min(last, len(like.ends) - first) - 1)
    end = len(text) - len(like.text) + like.ends[-last - 1] if last else len(text)
    chains, rules, at = [], [], start
    for found in _RULES.finditer(text, start, end):
        if found.start() != at:
            return None
        at = found.end()
        chains.append(found[1])
        rules.append(found[0])
    if at != end:
        return None
    tail = len(like.rules) - last
    chains = [*like.chains[:first], *chains, *like.chains[tail:]]
    rules = [*like.rules[:first], *rules, *like.rules[tail:]]
    return Blocks(text, chains, rules, list(accumulate(map(len, rules))))


def _common_start(one: str, other: str) -> int:
    """How many characters two texts have in common at their beginning."""
    low, high = 0, min(len(one), len(other))
    while low < high:
        middle = (low + high + 1) // 2
        if one[low:middle] == other[low:middle]:
            low = middle
        else:
            high = middle - 1
    return low


def _common_end(one: str, other: str, begin: int) -> int:
    """The same at their end, where each has `begin` characters that do not count."""
    low, high = 0, min(len(one), len(other)) - begin
    while low < high:
        middle = (low + high + 1) // 2
        if one[len(one) - middle : len(one) - low] == other[len(other) - middle : len(other) - low]:
            low = middle
        else:
            high = middle - 1
    return low
