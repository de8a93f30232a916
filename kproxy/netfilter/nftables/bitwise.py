"""Bitwise arithmetic with constants, in the one form that the kernel keeps: `(VALUE & MASK) ^ XOR`.

However a chain of `&`, `|` and `^` with constants was written, the kernel holds a mask and a number to xor; nft prints
them as `VALUE & A ^ B | C` with what is needed of that. `combine` gives this form, so that two spellings of one
computation are equal.
"""

from __future__ import annotations

from kproxy.netfilter.nftables.expression import Binary, Expression


def combine(operator: str, left: Expression, right: Expression, bits: int) -> Expression:
    """`left OPERATOR right` for values of `bits` bits (0: of unknown width), normalized."""
    if isinstance(left, int) and isinstance(right, int):
        return _compute(operator, left, right)
    if operator in ("<<", ">>") or not isinstance(right, int) or not bits:
        return Binary(operator, left, right)
    full = (1 << bits) - 1
    return from_mask_and_xor(*mask_and_xor(Binary(operator, left, right & full), full), full)


def _compute(operator: str, left: int, right: int) -> int:
    match operator:
        case "&":
            return left & right
        case "|":
            return left | right
        case "^":
            return left ^ right
        case "<<":
            return left << min(right, 128)
        case _:
            return left >> min(right, 128)


def mask_and_xor(expression: Expression, full: int) -> tuple[Expression, int, int]:
    """What an expression computes with constants: the value below, the mask, and the number to xor. `full` has all bits
    of the value's width."""
    mask, xor = full, 0
    steps: list[tuple[str, int]] = []
    while isinstance(expression, Binary) and isinstance(expression.right, int) and expression.operator in "&|^":
        steps.append((expression.operator, expression.right))
        expression = expression.left
    for operator, number in reversed(steps):
        if operator == "&":
            mask, xor = mask & number, xor & number
        elif operator == "|":
            mask, xor = mask & ~number, xor & ~number | number
        else:
            xor ^= number
    return expression, mask, xor


def from_mask_and_xor(base: Expression, mask: int, xor: int, full: int) -> Expression:
    """The expression for `(base & mask) ^ xor`, as nft prints it."""
    ored = xor & ~mask
    xored = xor & mask
    shown = (mask | ored) & full
    result = base
    if shown != full:
        result = Binary("&", result, shown)
    if xored:
        result = Binary("^", result, xored)
    if ored:
        result = Binary("|", result, ored)
    return result
