"""Kubernetes' own CEL functions, one row each: quantity, IP and CIDR, URL, regular expressions, lists, semver.

Source: k8s.io/apiserver pkg/cel/library. A row is what the checker knows; the function of the same name below does it,
for every kind of receiver that the rows name. A quantity, an address and the like are values of a type of their own,
which is a message with one text: equal texts are equal values.
"""

from __future__ import annotations

import ipaddress
import json
import re
from collections.abc import Callable, Iterator
from contextvars import ContextVar
from functools import cache, lru_cache
from itertools import pairwise
from typing import Any, Final, NamedTuple
from urllib.parse import parse_qs, urlsplit

from kproxy.api.addresses import canonical_cidr, canonical_ip
from kproxy.apiserver.cel import library
from kproxy.apiserver.patterns import Pattern, compiled
from kproxy.apiserver.schema.quantity import PATTERN, nanos

PACKAGE: Final = "kubernetes"
MESSAGES: Final = (
    "Quantity", "IP", "CIDR", "URL", "Semver",
    "Authorizer", "PathCheck", "GroupCheck", "ResourceCheck", "Decision",
)  # fmt: skip
_TABLE: Final = """
    quantity(string) -> Quantity
    isQuantity(string) -> bool
    Quantity.isInteger() -> bool
    Quantity.asInteger() -> int
    Quantity.asApproximateFloat() -> double
    Quantity.sign() -> int
    Quantity.add(Quantity) -> Quantity
    Quantity.add(int) -> Quantity
    Quantity.sub(Quantity) -> Quantity
    Quantity.sub(int) -> Quantity
    Quantity.isLessThan(Quantity) -> bool
    Quantity.isGreaterThan(Quantity) -> bool
    Quantity.compareTo(Quantity) -> int
    semver(string) -> Semver
    semver(string,bool) -> Semver
    isSemver(string) -> bool
    isSemver(string,bool) -> bool
    Semver.major() -> int
    Semver.minor() -> int
    Semver.patch() -> int
    Semver.isLessThan(Semver) -> bool
    Semver.isGreaterThan(Semver) -> bool
    Semver.compareTo(Semver) -> int
    ip(string) -> IP
    isIP(string) -> bool
    ip.isCanonical(string) -> bool
    IP.family() -> int
    IP.isUnspecified() -> bool
    IP.isLoopback() -> bool
    IP.isLinkLocalMulticast() -> bool
    IP.isLinkLocalUnicast() -> bool
    IP.isGlobalUnicast() -> bool
    cidr(string) -> CIDR
    isCIDR(string) -> bool
    CIDR.containsIP(IP) -> bool
    CIDR.containsIP(string) -> bool
    CIDR.containsCIDR(CIDR) -> bool
    CIDR.containsCIDR(string) -> bool
    CIDR.ip() -> IP
    CIDR.masked() -> CIDR
    CIDR.prefixLength() -> int
    url(string) -> URL
    isURL(string) -> bool
    URL.getScheme() -> string
    URL.getHost() -> string
    URL.getHostname() -> string
    URL.getPort() -> string
    URL.getEscapedPath() -> string
    URL.getQuery() -> map<string, list<string>>
    string.find(string) -> string
    string.findAll(string) -> list<string>
    string.findAll(string,int) -> list<string>
    list<dyn>.isSorted() -> bool
    list<dyn>.sum() -> dyn
    list<dyn>.min() -> dyn
    list<dyn>.max() -> dyn
    Authorizer.serviceAccount(string,string) -> Authorizer
    Authorizer.path(string) -> PathCheck
    Authorizer.group(string) -> GroupCheck
    GroupCheck.resource(string) -> ResourceCheck
    ResourceCheck.subresource(string) -> ResourceCheck
    ResourceCheck.namespace(string) -> ResourceCheck
    ResourceCheck.name(string) -> ResourceCheck
    PathCheck.check(string) -> Decision
    ResourceCheck.check(string) -> Decision
    Decision.allowed() -> bool
    Decision.reason() -> string
    Decision.errored() -> bool
    Decision.error() -> string
"""
_ROW: Final = re.compile(
    r"(?:(?P<of>[A-Z]\w*|string|list<dyn>)\.)?(?P<name>[\w.]+)\((?P<of_what>.*)\) -> (?P<result>.+)"
)
_SEMVER: Final = re.compile(
    r"(0|[1-9]\d*)\.(0|[1-9]\d*)\.(0|[1-9]\d*)(?:-([0-9A-Za-z-]+(?:\.[0-9A-Za-z-]+)*))?(?:\+[0-9A-Za-z.-]+)?"
)
_MAX_INT: Final = (1 << 63) - 1
_NANO: Final = 10**9


class Row(NamedTuple):
    """One overload: types of the receiver (if any) and the arguments, and of the result."""

    name: str
    member: bool
    parameters: tuple[str, ...]
    result: str


class Value(NamedTuple):
    """A value of one of MESSAGES."""

    kind: str
    text: str


@cache
def rows() -> tuple[Row, ...]:
    """The table."""
    found = []
    for line in _TABLE.strip().splitlines():
        row = _ROW.fullmatch(line.strip())
        assert row is not None, line
        given = tuple(each for each in row["of_what"].split(",") if each)
        of = (row["of"],) if row["of"] else ()
        found.append(Row(row["name"], bool(of), of + given, row["result"]))
    return tuple(found)


def _type(cel: Any, name: str) -> Any:
    return cel.Type(f"{PACKAGE}.{name}" if name in MESSAGES else name)


def declared(cel: Any) -> list[Any]:
    """Every overload with its types, for a checker."""
    by_name: dict[str, list[Any]] = {}
    for index, row in enumerate(rows()):
        parameters = [_type(cel, each) for each in row.parameters]
        overload = cel.Overload(f"{row.name}_{index}", _type(cel, row.result), parameters, row.member)
        by_name.setdefault(row.name, []).append(overload)
    return [cel.FunctionDecl(name, overloads) for name, overloads in by_name.items()]


def message_classes(pool: Any) -> dict[str, Any]:
    """The classes of MESSAGES in a pool."""
    make = library.protobuf("message_factory").GetMessageClass
    return {name: make(pool.FindMessageTypeByName(f"{PACKAGE}.{name}")) for name in MESSAGES}


def implemented(cel: Any, pool: Any) -> list[Any]:
    """What evaluates them. All of MESSAGES are one kind to the library's dispatcher, so that they share an overload."""
    classes = message_classes(pool)
    by_name: dict[str, dict[tuple[str, ...], Any]] = {}
    for index, row in enumerate(rows()):
        kinds = tuple("message" if each in MESSAGES else each for each in (str(row.member), *row.parameters))
        overloads = by_name.setdefault(row.name, {})
        if kinds not in overloads:
            parameters = [_type(cel, each) for each in row.parameters]
            does = _adapted(_DOES[row.name], classes)
            overloads[kinds] = cel.Overload(f"{row.name}_{index}", cel.Type.DYN, parameters, row.member, does)
    return [cel.FunctionDecl(name, list(overloads.values())) for name, overloads in by_name.items()]


def _adapted(function: Callable[..., Any], classes: dict[str, Any]) -> Callable[..., Any]:
    """A function of plain values and `Value`s as one of the library's values."""

    def call(*arguments: Any) -> Any:
        given = [Value(each.DESCRIPTOR.name, each.value) if hasattr(each, "DESCRIPTOR") else each for each in arguments]
        result = function(*given)
        return classes[result.kind](value=result.text) if isinstance(result, Value) else result

    return call


def _valid(make: Callable[..., Value]) -> Callable[..., bool]:
    def valid(*arguments: Any) -> bool:
        try:
            make(*arguments)
        except ValueError:
            return False
        return True

    return valid


# --- quantities and versions ---


def _quantity(text: str) -> Value:
    if PATTERN.fullmatch(text) is None:
        raise ValueError("quantities must match the regular expression '^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$'")
    return Value("Quantity", str(nanos(text)))


def _amount(value: Value | int) -> int:
    return int(value.text) if isinstance(value, Value) else value * _NANO


def _integer(value: Value) -> int:
    whole, rest = divmod(_amount(value), _NANO)
    if rest or not -_MAX_INT - 1 <= whole <= _MAX_INT:
        raise ValueError("cannot convert value to integer")
    return whole


def _is_integer(value: Value) -> bool:
    try:
        _integer(value)
    except ValueError:
        return False
    return True


def _sum(value: Value, other: Value | int) -> Value:
    return Value("Quantity", str(_amount(value) + _amount(other)))


def _difference(value: Value, other: Value | int) -> Value:
    return Value("Quantity", str(_amount(value) - _amount(other)))


def _semver(text: str, normalize: bool = False) -> Value:
    if normalize:
        core, *rest = re.split(r"(?=[-+])", text.removeprefix("v"), maxsplit=1)
        parts = [each.lstrip("0") or "0" for each in core.split(".")]
        text = ".".join([*parts, "0", "0"][: max(3, len(parts))]) + "".join(rest)
    if _SEMVER.fullmatch(text) is None:
        raise ValueError(f"invalid semver: {text}")
    return Value("Semver", text)


def _part(index: int) -> Callable[[Value], int]:
    return lambda value: int(re.split(r"[.+-]", value.text)[index])


def _rank(value: Value) -> Any:
    """What decides the order of two values of one kind."""
    if value.kind == "Quantity":
        return int(value.text)
    found = _SEMVER.fullmatch(value.text)
    assert found is not None
    before = [(0, int(each), "") if each.isdigit() else (1, 0, each) for each in (found[4] or "").split(".") if each]
    return (int(found[1]), int(found[2]), int(found[3]), not before, before)


def _compare(value: Value, other: Value) -> int:
    mine, theirs = _rank(value), _rank(other)
    return int(mine > theirs) - int(mine < theirs)


# --- addresses ---


def _ip(given: str | Value) -> Value:
    if isinstance(given, Value):
        return Value("IP", str(_network(given).ip))
    if canonical_ip(given) is None or "%" in given or (given.lower().startswith("::ffff:") and "." in given):
        raise ValueError(f"IP Address {given!r} parse error during conversion from string")
    return Value("IP", str(ipaddress.ip_address(given)))


def _cidr(text: str) -> Value:
    if canonical_cidr(text) is None:
        raise ValueError("network address parse error during conversion from string")
    return Value("CIDR", str(ipaddress.ip_interface(text)))


@lru_cache(1024)
def _interface(text: str) -> ipaddress.IPv4Interface | ipaddress.IPv6Interface:
    return ipaddress.ip_interface(text)


def _network(value: Value | str) -> ipaddress.IPv4Interface | ipaddress.IPv6Interface:
    return _interface(value.text if isinstance(value, Value) else _cidr(value).text)


def _address(value: Value) -> ipaddress.IPv4Address | ipaddress.IPv6Address:
    return ipaddress.ip_address(value.text)


def _contains_ip(value: Value, given: Value | str) -> bool:
    return _address(given if isinstance(given, Value) else _ip(given)) in _network(value).network


def _contains_cidr(value: Value, given: Value | str) -> bool:
    mine, other = _network(value).network, _network(given).network
    return mine.version == other.version and other.subnet_of(mine)  # type: ignore[arg-type]


def _is_global(value: Value) -> bool:
    address = _address(value)
    broadcast = address == ipaddress.ip_address("255.255.255.255")
    return not (
        address.is_unspecified or address.is_loopback or address.is_multicast or address.is_link_local or broadcast
    )


# --- texts and lists ---


def _url(text: str) -> Value:
    parts = urlsplit(text)
    if not (parts.scheme and (parts.netloc or text[len(parts.scheme) + 1 :])) and not text.startswith("/"):
        raise ValueError(f"URL parse error during conversion from string: parse {text!r}: invalid URI for request")
    if parts.netloc:
        _ = parts.port  # raises ValueError
    if re.search(r"[\x00-\x20\x7f]|%(?![0-9A-Fa-f]{2})", text):
        raise ValueError(f"URL parse error during conversion from string: parse {text!r}: invalid character")
    return Value("URL", text)


def _host(value: Value) -> str:
    return urlsplit(value.text).netloc.rpartition("@")[2]


def _host_name(value: Value) -> str:
    return re.sub(r":\d*$", "", _host(value)).strip("[]")


def _port(value: Value) -> str:
    found = re.search(r":(\d+)$", _host(value))
    return found[1] if found else ""


def _pattern(text: str) -> Pattern:
    try:
        return compiled(text)
    except ValueError as error:
        raise ValueError(f"Illegal regex: {error}") from error


def _matches(text: str, pattern: str) -> Iterator[str]:
    return (found[0] for found in _pattern(pattern).finditer(text))


def _find_all(text: str, pattern: str, most: int = -1) -> list[str]:
    found = list(_matches(text, pattern))
    return found if most < 0 else found[:most]


def _total(items: list[Any]) -> Any:
    return sum(items[1:], items[0]) if items else 0


def _least(items: list[Any]) -> Any:
    if not items:
        raise ValueError("min called on empty list")
    return min(items)


def _most(items: list[Any]) -> Any:
    if not items:
        raise ValueError("max called on empty list")
    return max(items)


# --- what a user may ---

Decide = Callable[[dict[str, str]], tuple[bool, str]]
"""Whether what is asked is allowed, and why: verb, group, resource, subresource, namespace and name, or path; of the
user of the request, or of serviceAccount (`namespace:name`)."""
DECIDE: Final[ContextVar[Decide]] = ContextVar("DECIDE")
"""Who decides in the request that is being admitted."""


def authorizer() -> Value:
    """The value of the variable `authorizer`."""
    return Value("Authorizer", "{}")


def _asks(kind: str, *fields: str) -> Callable[..., Value]:
    """What adds to a question: a check of a kind with these fields."""

    def add(value: Value, *given: str) -> Value:
        return Value(kind, json.dumps(json.loads(value.text) | dict(zip(fields, given, strict=True))))

    return add


def _service_account(value: Value, namespace: str, name: str) -> Value:
    return Value("Authorizer", json.dumps({"serviceAccount": f"{namespace}:{name}"}))


def _check(value: Value, verb: str) -> Value:
    return Value("Decision", json.dumps(DECIDE.get()(json.loads(value.text) | {"verb": verb})))


_DOES: Final[dict[str, Callable[..., Any]]] = {
    "quantity": _quantity,
    "isQuantity": _valid(_quantity),
    "isInteger": _is_integer,
    "asInteger": _integer,
    "asApproximateFloat": lambda value: _amount(value) / _NANO,
    "sign": lambda value: (_amount(value) > 0) - (_amount(value) < 0),
    "add": _sum,
    "sub": _difference,
    "semver": _semver,
    "isSemver": _valid(_semver),
    "major": _part(0),
    "minor": _part(1),
    "patch": _part(2),
    "isLessThan": lambda value, other: _compare(value, other) < 0,
    "isGreaterThan": lambda value, other: _compare(value, other) > 0,
    "compareTo": _compare,
    "ip": _ip,
    "isIP": _valid(_ip),
    "ip.isCanonical": lambda text: _ip(text).text == text,
    "family": lambda value: _address(value).version,
    "isUnspecified": lambda value: _address(value).is_unspecified,
    "isLoopback": lambda value: _address(value).is_loopback,
    "isLinkLocalMulticast": lambda value: value.text.startswith("224.0.0.") or value.text.startswith("ff02:"),
    "isLinkLocalUnicast": lambda value: _address(value).is_link_local,
    "isGlobalUnicast": _is_global,
    "cidr": _cidr,
    "isCIDR": _valid(_cidr),
    "containsIP": _contains_ip,
    "containsCIDR": _contains_cidr,
    "masked": lambda value: Value("CIDR", str(_network(value).network)),
    "prefixLength": lambda value: _network(value).network.prefixlen,
    "url": _url,
    "isURL": _valid(_url),
    "getScheme": lambda value: urlsplit(value.text).scheme,
    "getHost": _host,
    "getHostname": _host_name,
    "getPort": _port,
    "getEscapedPath": lambda value: urlsplit(value.text).path,
    "getQuery": lambda value: parse_qs(urlsplit(value.text).query, keep_blank_values=True),
    "find": lambda text, pattern: next(_matches(text, pattern), ""),
    "findAll": _find_all,
    "isSorted": lambda items: all(first <= second for first, second in pairwise(items)),
    "sum": _total,
    "min": _least,
    "max": _most,
    "serviceAccount": _service_account,
    "path": _asks("PathCheck", "path"),
    "group": _asks("GroupCheck", "group"),
    "resource": _asks("ResourceCheck", "resource"),
    "subresource": _asks("ResourceCheck", "subresource"),
    "namespace": _asks("ResourceCheck", "namespace"),
    "name": _asks("ResourceCheck", "name"),
    "check": _check,
    "allowed": lambda value: json.loads(value.text)[0],
    "reason": lambda value: json.loads(value.text)[1],
    "errored": lambda value: False,
    "error": lambda value: "",
}
