"""Bitwise arithmetic with constants, in the one form that the kernel keeps: `(VALUE & MASK) ^ XOR`.

However a chain of `&`, `|` and `^` with constants was written, the kernel holds a mask and a number to xor; nft prints
them as `VALUE & A ^ B | C` with what is needed of that. `combine` gives this form, so that two spellings of one
computation are equal.
"""

from __future__ import annotations

import operator as python
from collections.abc import Callable, Mapping
from typing import Final

from kproxy.netfilter.nftables.expression import Binary, Expression

_COMPUTE: Final[Mapping[str, Callable[[int, int], int]]] = {
    "&": python.and_,
    "|": python.or_,
    "^": python.xor,
    "<<": lambda left, right: left << min(right, 128),
    ">>": lambda left, right: left >> min(right, 128),
}
MASK_AND_XOR: Final[Mapping[str, Callable[[int, int, int], tuple[int, int]]]] = {
    "&": lambda mask, xor, number: (mask & number, xor & number),
    "|": lambda mask, xor, number: (mask & ~number, xor & ~number | number),
    "^": lambda mask, xor, number: (mask, xor ^ number),
}
"""What becomes of a mask and a number to xor by an operation with a number."""


def combine(operator: str, left: Expression, right: Expression, bits: int) -> Expression:
    """`left OPERATOR right` for values of `bits` bits (0: of unknown width), normalized."""
    if isinstance(left, int) and isinstance(right, int):
        return _COMPUTE[operator](left, right)
    if operator in ("<<", ">>") or not isinstance(right, int) or not bits:
        return Binary(operator, left, right)
    full = (1 << bits) - 1
    steps = [(operator, right & full)]
    while isinstance(left, Binary) and isinstance(left.right, int) and left.operator in MASK_AND_XOR:
        steps.append((left.operator, left.right))
        left = left.left
    mask, xor = full, 0
    for step, number in reversed(steps):
        mask, xor = MASK_AND_XOR[step](mask, xor, number)
    ored = xor & ~mask
    shown = (("&", (mask | ored) & full, full), ("^", xor & mask, 0), ("|", ored, 0))
    for step, number, nothing in shown:
        left = left if number == nothing else Binary(step, left, number)
    return left
