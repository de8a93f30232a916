"""Lists and numbers in sentences."""

from __future__ import annotations

from collections.abc import Sequence


def listed(names: Sequence[object], most: int) -> str:
    """`a, b and 3 more`: at most so many of them, and how many are left."""
    left = len(names) - most
    return ", ".join(map(str, names[:most])) + (f" and {left} more" if left > 0 else "")


def counted(count: int, noun: str) -> str:
    """A number with its noun, which takes an `s` for any number but one."""
    return f"{count:,} {noun}{'' if count == 1 else 's'}"
