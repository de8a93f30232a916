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
from kproxy.api.validation.names import check_dns_label, check_dns_subdomain

_LETTER: Final = r"[^\W\d_]"
_WORD: Final = r"[^\W_]"
_UNITS: Final = (
    "ns|us|\u00b5s|ms|s|m|h|d|w|nanos?|nanoseconds?|micros?|microseconds?|millis?|milliseconds?|secs?|seconds?|mins?|minutes?|"
    "hrs?|hours?|days?|wks?|weeks?"
)
_HOSTNAME: Final = rf"{_WORD}(-?{_WORD}{{0,62}})?|({_WORD}([\w-]{{0,61}}{_WORD})?\.)+{_LETTER}{{2,63}}"
_ATOM: Final = r"[\w.!#$%&'*+/=?^`{|}~-]+"
_ADDRESS: Final = rf'({_ATOM}|"[^"]+")@({_ATOM}|\[[^\]]+\])'
_URI: Final = re.compile(r"(?:[A-Za-z][A-Za-z0-9+.-]*:(?!//)\S.*|(?:[A-Za-z][A-Za-z0-9+.-]*:)?//?([^/?#]*)(.*))")
_HOST: Final = re.compile(r"(?:[^\s@]*@)?(?:\[[0-9A-Fa-f:.%]+\]|[^\s:\[\]<>\"]*)(?::\d*)?")


def _matches(pattern: str) -> Callable[[str], bool]:
    compiled = re.compile(pattern)
    return lambda text: compiled.fullmatch(text) is not None


def _uri(text: str) -> bool:
    """What net/url.ParseRequestURI takes: an absolute URI or an absolute path."""
    if re.search(r"[\x00-\x1f\x7f]|%(?![0-9A-Fa-f]{2})", text):
        return False
    found = _URI.fullmatch(text)
    return found is not None and (found[1] is None or "//" not in text[:40] or _HOST.fullmatch(found[1]) is not None)


def _email(text: str) -> bool:
    """What net/mail.ParseAddress takes: an address, with a name before it if it stands in angle brackets."""
    found = re.fullmatch(rf"(?:[^<>@]*<({_ADDRESS})>|({_ADDRESS}))", text.strip())
    address = (found[1] or found[4]) if found else ""
    local = address.rpartition("@")[0]
    return bool(address) and ".." not in address and not local.startswith(".") and not local.endswith(".")


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


def _isbn(length: int) -> Callable[[str], bool]:
    def check(text: str) -> bool:
        digits = re.sub(r"[\s-]+", "", text)
        if not re.fullmatch(r"\d{9}[\dX]" if length == 10 else r"\d{13}", digits):
            return False
        values = [10 if digit == "X" else int(digit) for digit in digits]
        if length == 10:
            return sum((10 - index) * value for index, value in enumerate(values)) % 11 == 0
        return sum(value * (3 if index % 2 else 1) for index, value in enumerate(values)) % 10 == 0

    return check


def _credit_card(text: str) -> bool:
    digits = re.sub(r"\D", "", text)
    doubled = [int(digit) * (2 if index % 2 else 1) for index, digit in enumerate(reversed(digits))]
    issued = r"4\d{12}(\d{3})?|(5[1-5]\d{4}|(222[1-9]|22[3-9]\d|2[3-6]\d\d|27[01]\d|2720)\d\d)\d{10}|6(011|5\d\d)\d{12}"
    known = re.fullmatch(rf"{issued}|3[47]\d{{13}}|3(0[0-5]|[68]\d)\d{{11}}|(2131|1800|35\d{{3}})\d{{11}}", digits)
    return known is not None and sum(value - 9 if value > 9 else value for value in doubled) % 10 == 0


def _uuid(third: str = "[0-9a-f]{4}", fourth: str = "[0-9a-f]{4}") -> Callable[[str], bool]:
    return _matches(rf"(?i)[0-9a-f]{{8}}-?[0-9a-f]{{4}}-?{third}-?{fourth}-?[0-9a-f]{{12}}")


_OCTET: Final = r"\s*(0|[1-9]\d?|1\d\d?|2[0-4]\d|25[0-5])\s*"
_isbn10, _isbn13 = _isbn(10), _isbn(13)
_MAC: Final = "|".join(rf"{p}({s}{p}){{{n}}}" for p, s, ns in (("[0-9a-fA-F]{2}", ":", (5, 7, 19)),
    ("[0-9a-fA-F]{2}", "-", (5, 7, 19)), ("[0-9a-fA-F]{4}", r"\.", (2, 3, 9))) for n in ns)  # fmt: skip
FORMATS: Final[dict[str, Callable[[str], bool]]] = {
    "bsonobjectid": _matches("[0-9a-fA-F]{24}"),
    "byte": _matches(r"([A-Za-z0-9+/]{4})*([A-Za-z0-9+/]{2}==|[A-Za-z0-9+/]{3}=|[A-Za-z0-9+/]{4})"),
    "cidr": lambda text: canonical_cidr(text) is not None,
    "creditcard": _credit_card,
    "date": _date,
    "datetime": _datetime,
    "duration": _matches(rf"[+-]?(0|([0-9.]+\s*({_UNITS})\s*)+)"),
    "email": _email,
    "hexcolor": _matches("#?([0-9a-fA-F]{3}|[0-9a-fA-F]{6})"),
    "hostname": lambda text: re.fullmatch(_HOSTNAME, text) is not None and all(len(p) < 64 for p in text.split(".")),
    "ipv4": lambda text: ":" not in (canonical_ip(text) or ":"),
    "ipv6": lambda text: ":" in (canonical_ip(text) or ""),
    "isbn": lambda text: _isbn10(text) or _isbn13(text),
    "isbn10": _isbn10,
    "isbn13": _isbn13,
    "k8slongname": lambda text: not check_dns_subdomain(text),
    "k8sshortname": lambda text: not check_dns_label(text),
    "mac": _matches(_MAC),
    "password": lambda text: True,
    "rgbcolor": _matches(rf"rgb\(({_OCTET},){{2}}{_OCTET}\)"),
    "ssn": _matches(r"\d{3}[- ]?\d{2}[- ]?\d{4}"),
    "uri": _uri,
    "uuid": _uuid(),
    "uuid3": _uuid("3[0-9a-f]{3}"),
    "uuid4": _uuid("4[0-9a-f]{3}", "[89ab][0-9a-f]{3}"),
    "uuid5": _uuid("5[0-9a-f]{3}", "[89ab][0-9a-f]{3}"),
}  # fmt: skip
"""Whether a text has a format, by the format's name without dashes; other formats are no constraint."""

NUMBERS: Final[dict[str, tuple[float, float]]] = {
    "int32": (-(2**31), 2**31 - 1),
    "int64": (-(2**63), 2**63 - 1),
    "uint32": (0, 2**32 - 1),
    "uint64": (0, 2**64 - 1),
    "float": (-3.4028234663852886e38, 3.4028234663852886e38),
}
"""The smallest and the largest number of each format."""


def known_format(name: str) -> bool:
    """Whether texts are held to a format."""
    return name.replace("-", "") in FORMATS


def has_format(text: str, name: str) -> bool:
    """Whether a text has a format."""
    check = FORMATS.get(name.replace("-", ""))
    return check is None or check(text)
