"""The string and number formats of OpenAPI schemas that are validated, one line each.

Sources: k8s.io/kube-openapi pkg/validation/strfmt (and govalidator's patterns), k8s.io/apiextensions-apiserver
pkg/apis/apiextensions/validation. A dash in a format's name does not count: `date-time` is `datetime`.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from datetime import date, time
from typing import Final

from kproxy.api.addresses import canonical_cidr, canonical_ip

_LETTER: Final = r"[^\W\d_]"
_WORD: Final = r"[^\W_]"
_UNITS: Final = (
    "ns|us|\u00b5s|ms|s|m|h|d|w|nanos?|nanoseconds?|micros?|microseconds?|millis?|milliseconds?|secs?|seconds?|mins?|minutes?|"
    "hrs?|hours?|days?|wks?|weeks?"
)
_HOSTNAME: Final = rf"{_WORD}(-?{_WORD}{{0,62}})?|({_WORD}([\w-]{{0,61}}{_WORD})?\.)+{_LETTER}{{2,63}}"
_URI: Final = re.compile(r"(?:[A-Za-z][A-Za-z0-9+.-]*:|/)[^\s\x00-\x1f\x7f]*")
"""An absolute URI or an absolute path."""


def _matches(pattern: str) -> Callable[[str], bool]:
    compiled = re.compile(pattern)
    return lambda text: compiled.fullmatch(text) is not None


def _date(text: str) -> bool:
    try:
        return bool(re.fullmatch(r"\d{4}-\d\d-\d\d", text)) and bool(date.fromisoformat(text))
    except ValueError:
        return False


def _datetime(text: str) -> bool:
    day, _, rest = text.lower().partition("t")
    found = re.fullmatch(r"(\d\d:\d\d:\d\d)(.\d+)?(z|[+-]\d\d:\d\d)", rest)
    try:
        return _date(day) and found is not None and bool(str(time.fromisoformat(found[1])))
    except ValueError:
        return False


FORMATS: Final[dict[str, Callable[[str], bool]]] = {
    "byte": _matches(r"([A-Za-z0-9+/]{4})*([A-Za-z0-9+/]{2}==|[A-Za-z0-9+/]{3}=|[A-Za-z0-9+/]{4})"),
    "cidr": lambda text: canonical_cidr(text) is not None,
    "date": _date,
    "datetime": _datetime,
    "duration": _matches(rf"[+-]?(0|([0-9.]+\s*({_UNITS})\s*)+)"),
    "email": _matches(r'([^<>@]*<)?("[^"]+"|[^\s@<>]+)@[^\s@<>]+>?'),
    "hostname": lambda text: re.fullmatch(_HOSTNAME, text) is not None and all(len(p) < 64 for p in text.split(".")),
    "ipv4": lambda text: ":" not in (canonical_ip(text) or ":"),
    "ipv6": lambda text: ":" in (canonical_ip(text) or ""),
    "password": lambda text: True,
    "uri": lambda text: _URI.fullmatch(text) is not None,
    "uuid": _matches("(?i)[0-9a-f]{8}-?[0-9a-f]{4}-?[0-9a-f]{4}-?[0-9a-f]{4}-?[0-9a-f]{12}"),
}  # fmt: skip
"""Whether a text has a format, by the format's name without dashes; other formats are no constraint."""

NUMBERS: Final[dict[str, tuple[float, float]]] = {
    "int32": (-(2**31), 2**31 - 1),
    "int64": (-(2**63), 2**63 - 1),
    "float": (-3.4028234663852886e38, 3.4028234663852886e38),
}
"""The smallest and the largest number of each format."""


def has_format(text: str, name: str) -> bool:
    """Whether a text has a format."""
    check = FORMATS.get(name.replace("-", ""))
    return check is None or check(text)
