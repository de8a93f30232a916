"""Durations as Kubernetes configuration writes them: metav1.Duration, which is Go's time.Duration as text.

A duration is a signed 64-bit count of nanoseconds. Its text is a sign and a sequence of decimal numbers with a unit
("1h15m30.918s"); the units are ns, us (also with either micro sign), ms, s, m and h, and a lone "0" needs none. Go
prints the largest units first and never a zero in front ("15m0s", "1.5s", "250ms", "0s"), so text that kproxy prints is
text that kube-proxy prints. Source: the documentation of Go's package time (ParseDuration, Duration.String).
"""

from __future__ import annotations

import re
from typing import Final

_UNITS: Final = {
    "ns": 1,
    "us": 1_000,
    "µs": 1_000,  # micro sign, U+00B5
    "μs": 1_000,  # Greek mu, U+03BC
    "ms": 1_000_000,
    "s": 1_000_000_000,
    "m": 60_000_000_000,
    "h": 3_600_000_000_000,
}
_MAX: Final = 2**63 - 1
_PART: Final = re.compile(r"(?P<whole>[0-9]*)(?:\.(?P<fraction>[0-9]*))?(?P<unit>[^0-9.]*)")


class Duration(int):
    """A signed span of time in nanoseconds."""

    @property
    def seconds(self) -> float:
        """The span in seconds."""
        return self / 1_000_000_000

    def __str__(self) -> str:
        return format_duration(self)

    @classmethod
    def of(cls, value: object) -> Duration:
        """The duration that a text denotes; ValueError as `parse_duration`, and for what is no text."""
        if not isinstance(value, str):
            raise ValueError('must be a duration such as "30s"')
        return cls(parse_duration(value))


class FlushFrequency(Duration):
    """The only duration that may also be a number, of nanoseconds (TimeOrMetaDuration in component-base)."""

    @classmethod
    def of(cls, value: object) -> Duration:
        if not isinstance(value, int) or isinstance(value, bool):
            return super().of(value)
        if not -_MAX - 1 <= value <= _MAX:
            raise ValueError("must be nanoseconds in 64 bits")
        return cls(value)


def parse_duration(text: str) -> int:
    """Nanoseconds of a Go duration; ValueError with Go's own message when `text` is invalid or exceeds 64 bits."""
    quoted = _quote(text)
    negative = text.startswith("-")
    rest = text[1:] if text[:1] in ("-", "+") else text
    if rest == "0":
        return 0
    if not rest:
        raise ValueError(f"time: invalid duration {quoted}")
    total = 0
    position = 0
    while position < len(rest):
        part = _PART.match(rest, position)
        assert part is not None  # every group of the pattern may be empty
        whole, fraction, unit = part["whole"], part["fraction"] or "", part["unit"]
        if not whole and not fraction:
            raise ValueError(f"time: invalid duration {quoted}")
        # Leading zeros aside, more than 19 digits cannot fit, and Python would refuse to convert thousands of them.
        digits = whole.lstrip("0")
        if len(digits) > 19 or int(digits or "0") > _MAX + 1:
            raise ValueError(f"time: invalid duration {quoted}")
        if not unit:
            raise ValueError(f"time: missing unit in duration {quoted}")
        scale = _UNITS.get(unit)
        if scale is None:
            raise ValueError(f"time: unknown unit {_quote(unit)} in duration {quoted}")
        total += int(digits or "0") * scale + _fraction_nanoseconds(fraction, scale)
        if total > _MAX + 1:
            raise ValueError(f"time: invalid duration {quoted}")
        position = part.end()
    if negative:
        return -total
    if total > _MAX:
        raise ValueError(f"time: invalid duration {quoted}")
    return total


def _fraction_nanoseconds(digits: str, scale: int) -> int:
    """Nanoseconds of the digits behind a decimal point; Go rounds towards zero and in float64, and so does this."""
    kept = digits[:18]
    if not kept:
        return 0
    return int(float(int(kept)) * (scale / float(10 ** len(kept))))


def format_duration(nanoseconds: int) -> str:
    """`nanoseconds` as Go's Duration.String prints it."""
    if nanoseconds == 0:
        return "0s"
    sign = "-" if nanoseconds < 0 else ""
    rest = abs(nanoseconds)
    if rest < 1_000:
        return f"{sign}{rest}ns"
    if rest < 1_000_000:
        return f"{sign}{_decimal(rest, 1_000)}µs"
    if rest < 1_000_000_000:
        return f"{sign}{_decimal(rest, 1_000_000)}ms"
    minutes, below = divmod(rest, 60_000_000_000)
    text = f"{_decimal(below, 1_000_000_000)}s"
    if minutes:
        hours, minutes = divmod(minutes, 60)
        text = f"{minutes}m{text}"
        if hours:
            text = f"{hours}h{text}"
    return sign + text


def _decimal(value: int, unit: int) -> str:
    """`value / unit` in decimal, without trailing zeros; `unit` is a power of ten."""
    whole, fraction = divmod(value, unit)
    if not fraction:
        return str(whole)
    width = len(str(unit)) - 1
    return f"{whole}.{str(fraction).zfill(width).rstrip('0')}"


def _quote(text: str) -> str:
    """`text` in double quotes as Go's errors quote it, non-printable and non-ASCII characters escaped by byte."""
    parts = []
    for character in text:
        if character in '"\\':
            parts.append("\\" + character)
        elif " " <= character <= "~":
            parts.append(character)
        else:
            parts.extend(f"\\x{byte:02x}" for byte in character.encode("utf-8", "surrogatepass"))
    return '"' + "".join(parts) + '"'
