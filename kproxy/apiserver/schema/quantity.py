"""resource.Quantity as Go prints it: `1000m` becomes `1`, `0.5` becomes `500m`, `1024Ki` becomes `1Mi`.

Source: k8s.io/apimachinery pkg/api/resource. A number has one of three forms (decimal suffixes, binary suffixes, a
decimal exponent), which stays; within it, the mantissa is the integer with the largest possible suffix. Text that is
canonical to Go's eye is passed on as it is. Nothing finer than a nano is kept, nothing larger than 2^63-1.
"""

from __future__ import annotations

import functools
import re
from decimal import Decimal
from functools import lru_cache
from typing import Final

from kproxy.apiserver.errors import Json

PATTERN: Final = re.compile(r"([+-]?)(\d+(?:\.\d*)?|\.\d+)([eE][+-]?\d{1,9}|[KMGTPE]i|[numkMGTPE])?")
_DECIMAL: Final = {"n": -9, "u": -6, "m": -3, "": 0, "k": 3, "M": 6, "G": 9, "T": 12, "P": 15, "E": 18}
_BINARY: Final = {"Ki": 10, "Mi": 20, "Gi": 30, "Ti": 40, "Pi": 50, "Ei": 60}
_DECIMAL_SUFFIX: Final = {exponent: suffix for suffix, exponent in _DECIMAL.items()}
_BINARY_SUFFIX: Final = {exponent: suffix for suffix, exponent in _BINARY.items()}
_MAX: Final = (1 << 63) - 1
_NANO: Final = -9
_MILLI: Final = -3
_EXACT_DIGITS: Final = 18
_LARGEST_EXPONENT: Final = 1000


@lru_cache(4096)
def canonical_quantity(text: str, scale: int = _NANO) -> str:
    """The canonical text of a quantity, rounded up to 10**`scale`.

    Raises:
        ValueError: not a quantity.

    >>> [canonical_quantity(text) for text in ("1000m", "0.5", "1024Ki", "1.5Gi", "1e3", "1E", "-2000m", "0.1n")]
    ['1', '500m', '1Mi', '1536Mi', '1e3', '1E', '-2', '1n']
    """
    found = PATTERN.fullmatch(text)
    if found is None:
        raise ValueError(text)
    sign, number, suffix = found[1], found[2], found[3] or ""
    whole, _, fraction = number.partition(".")
    whole = whole.lstrip("0") or "0"
    if suffix in _BINARY:
        exponent = 0
        if _spelled_right(whole, fraction, _BINARY[suffix]):
            return text
    else:
        exponent = _DECIMAL[suffix] if suffix in _DECIMAL else int(suffix[1:])
        digits, power = whole + fraction, exponent - len(fraction)
        if (
            len(digits) <= _EXACT_DIGITS and power >= max(_NANO, scale) and power % 3 == 0
            and digits[0] != "0" and not digits.endswith("000")
        ):  # fmt: skip
            return text
    if not number.strip("0."):
        return "0"
    nanos = _nanos(number, exponent, suffix, scale)
    if sign == "-":
        nanos = -nanos
    if suffix in _BINARY and abs(nanos) >= 1024 * 10**9 and nanos % 10**9 == 0:
        return _binary(nanos // 10**9)
    return _decimal(nanos, exponential=suffix not in _DECIMAL and suffix not in _BINARY)


@functools.lru_cache(4096)
def nanos(text: str) -> int:
    """A canonical quantity in nanos.

    >>> nanos("1Ki") == nanos("1024"), nanos("-500m")
    (True, -500000000)
    """
    found = PATTERN.fullmatch(text)
    if found is None:
        raise ValueError(text)
    suffix = found[3] or ""
    exponent = 0 if suffix in _BINARY else _DECIMAL[suffix] if suffix in _DECIMAL else int(suffix[1:])
    amount = _nanos(found[2], exponent, suffix, _NANO)
    return -amount if found[1] == "-" else amount


def _spelled_right(whole: str, fraction: str, exponent: int) -> bool:
    """Whether Go takes a number with a binary suffix for canonical: it looks at three bits only."""
    fits = 15 - len(whole) - int(exponent * 3 / 10) - 1 >= 0
    return not fraction and fits and int(whole) & 7 != 0


def _nanos(number: str, exponent: int, suffix: str, scale: int) -> int:
    """A positive quantity in nanos, rounded up to 10**`scale` and capped."""
    if exponent > _LARGEST_EXPONENT:
        return _MAX * 10**9
    value = Decimal(number)
    mantissa, power = int("".join(map(str, value.as_tuple().digits))), int(value.as_tuple().exponent) + exponent
    mantissa <<= _BINARY.get(suffix, 0)
    if power < scale:
        unit = 10 ** min(scale - power, len(str(mantissa)) + 1)
        mantissa, power = -(-mantissa // unit), scale
    factor: int = 10 ** (power - _NANO)
    return min(mantissa * factor, _MAX * 10**9)


def _decimal(nanos: int, *, exponential: bool) -> str:
    exponent = _NANO
    while nanos % 1000 == 0 and (exponential or exponent < 18):
        nanos //= 1000
        exponent += 3
    if exponential:
        return f"{nanos}e{exponent}" if exponent else str(nanos)
    return f"{nanos}{_DECIMAL_SUFFIX[exponent]}"


def _binary(number: int) -> str:
    exponent = 0
    while number % 1024 == 0 and exponent < 60:
        number //= 1024
        exponent += 10
    return f"{number}{_BINARY_SUFFIX.get(exponent, '')}"


def round_resources(resources: Json | None) -> None:
    """Rounds a ResourceList up to milli-units, in place, as the API's defaults do."""
    if resources:
        for name, text in resources.items():
            resources[name] = canonical_quantity(text, _MILLI)
