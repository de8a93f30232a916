"""The kernel's hash of Jenkins (include/linux/jhash.h), by which nft's `jhash` and `-m cluster` choose, and how it is
scaled to a number below another. Words are read as a little-endian machine reads them."""

from __future__ import annotations

from typing import Final

_MASK: Final = 0xFFFFFFFF
_INITIAL: Final = 0xDEADBEEF
_WORD: Final = 4
_BLOCK: Final = 3 * _WORD


def jhash(key: bytes, seed: int) -> int:
    """`jhash` of bytes, which is also `jhash2` of the words in them: blocks of three words, then the rest."""
    a = b = c = _INITIAL + len(key) + seed & _MASK
    while len(key) > _BLOCK:
        a, b, c = _mixed(*_added(key[:_BLOCK], a, b, c))
        key = key[_BLOCK:]
    return _final(*_added(key, a, b, c)) if key else c


def scaled(number: int, modulus: int) -> int:
    """reciprocal_scale: a number below `modulus`."""
    return number * modulus >> 32


def _added(key: bytes, a: int, b: int, c: int) -> tuple[int, int, int]:
    first, second, third = (int.from_bytes(key[at : at + _WORD], "little") for at in (0, _WORD, 2 * _WORD))
    return a + first & _MASK, b + second & _MASK, c + third & _MASK


def _rol(number: int, count: int) -> int:
    return (number << count | number >> 32 - count) & _MASK


def _mixed(a: int, b: int, c: int) -> tuple[int, int, int]:
    for turn in (4, 6, 8, 16, 19, 4):
        # Each step: a -= c, a ^= rol(c, turn), c += b; then the three change places.
        a = (a - c & _MASK) ^ _rol(c, turn)
        c = c + b & _MASK
        a, b, c = b, c, a
    return a, b, c


def _final(a: int, b: int, c: int) -> int:
    for turn in (14, 11, 25, 16, 4, 14, 24):
        # Each step: c ^= b, c -= rol(b, turn); then the three change places.
        c = (c ^ b) - _rol(b, turn) & _MASK
        a, b, c = b, c, a
    return b
