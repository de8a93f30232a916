"""The host file: a `Host` from the decoded YAML that docs/host-file.md describes.

Every list that is given is complete; what is not given is not known. Errors name the field by its path.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Final, NoReturn, TypeVar

from kproxy.dataplane.model.errors import DataplaneError, HostError
from kproxy.dataplane.model.host import (
    SHORT_SYSCTLS,
    Host,
    Interface,
    InterfaceAddress,
    Route,
    RoutingRule,
    connected_routes,
    local_addresses_of,
)
from kproxy.dataplane.model.ipset import IpSet
from kproxy.dataplane.model.packet import parse_ip
from kproxy.netfilter.address import Network
from kproxy.netfilter.family import BUILTIN_CHAINS, Family
from kproxy.netfilter.iptables.codec import UINT32, Masked, Range, parse_protocol, parse_uint

T = TypeVar("T")

_KINDS: Final = ("unicast", "local", "broadcast", "blackhole", "unreachable", "prohibit", "throw")
_ACTIONS: Final = ("lookup", "unreachable", "prohibit", "blackhole", "nop")
_FAMILIES: Final = {"inet": Family.IPV4, "inet6": Family.IPV6}
_FIELDS: Final = (
    "interfaces", "localAddresses", "routes", "rules", "sysctls", "sets", "recent", "nth", "transparent",
)  # fmt: skip


def parse_host(document: object) -> Host:
    """Read a host from a decoded host file.

    Raises:
        HostError: a field is unknown or wrong; it says which and what was expected.
    """
    root = _Value(document, "")
    fields = root.fields(_FIELDS)
    interfaces = None if "interfaces" not in fields else fields["interfaces"].items(_interface)
    local = None if interfaces is None else local_addresses_of(interfaces)
    if "localAddresses" in fields:
        local = (local or frozenset()) | frozenset(fields["localAddresses"].items(_ip))
    return Host(
        local_addresses=local,
        interfaces=None if interfaces is None else _by_name(interfaces, fields["interfaces"]),
        routes=_routes(fields.get("routes"), interfaces or ()),
        rules=() if "rules" not in fields else fields["rules"].items(_rule),
        sysctls=MappingProxyType({} if "sysctls" not in fields else _sysctls(fields["sysctls"])),
        sets=MappingProxyType({} if "sets" not in fields else fields["sets"].entries(_set)),
        recent=_recent(fields.get("recent")),
        nth=MappingProxyType({} if "nth" not in fields else dict(fields["nth"].items(_nth))),
        transparent=None if "transparent" not in fields else frozenset(fields["transparent"].items(_socket)),
    )


@dataclass(frozen=True, slots=True)
class _Value:
    """A value of the document and where it stands."""

    value: object
    path: str

    def fail(self, expected: str) -> NoReturn:
        raise HostError(self.path, expected)

    def below(self, name: str) -> str:
        return f"{self.path}.{name}" if self.path else name

    def mapping(self) -> Mapping[object, object]:
        if not isinstance(self.value, Mapping):
            self.fail("a mapping expected")
        return self.value

    def fields(self, known: Sequence[str]) -> dict[str, _Value]:
        found = {}
        for name, value in self.mapping().items():
            if name not in known:
                raise HostError(self.below(str(name)), f"unknown field (known: {', '.join(known)})")
            if value is not None:
                found[str(name)] = _Value(value, self.below(str(name)))
        return found

    def entries(self, read: Callable[[_Value], T]) -> dict[str, T]:
        return {str(name): read(_Value(value, self.below(str(name)))) for name, value in self.mapping().items()}

    def items(self, read: Callable[[_Value], T]) -> tuple[T, ...]:
        if not isinstance(self.value, Sequence) or isinstance(self.value, str):
            self.fail("a list expected")
        return tuple(read(_Value(value, f"{self.path}[{place}]")) for place, value in enumerate(self.value))

    def text(self) -> str:
        if isinstance(self.value, bool) or not isinstance(self.value, (str, int)):
            self.fail("a text expected")
        return str(self.value)

    def name(self) -> str:
        text = self.text()
        if not 0 < len(text) < 16:
            self.fail("an interface name of at most 15 characters expected")
        return text

    def number(self, most: int = UINT32) -> int:
        if isinstance(self.value, bool):
            return int(self.value)
        try:
            return parse_uint(str(self.value), most)
        except ValueError as error:
            raise HostError(self.path, str(error)) from error

    def flag(self) -> bool:
        if not isinstance(self.value, bool):
            self.fail("true or false expected")
        return self.value

    def choice(self, known: Sequence[str]) -> str:
        if self.value not in known:
            self.fail(f"one of {', '.join(known)} expected")
        return str(self.value)

    def protocol(self) -> int:
        """A protocol's number, from its name or number."""
        try:
            return parse_protocol(str(self.value))
        except ValueError:
            self.fail("a protocol")

    def ports(self) -> Range:
        """`PORT` or `FIRST-LAST`."""
        first, dash, last = str(self.value).partition("-")
        if not first.isdigit() or (dash and not last.isdigit()) or int(last or first) > 0xFFFF:
            self.fail("a port, or FIRST-LAST,")
        return Range(int(first), int(last or first))

    def network(self) -> Network:
        text = self.text()
        try:
            return Network.parse(text, Family.IPV6 if ":" in text else Family.IPV4)
        except ValueError as error:
            raise HostError(self.path, str(error)) from error


def _need(fields: Mapping[str, _Value], name: str, owner: _Value) -> _Value:
    if name not in fields:
        raise HostError(owner.below(name), "this field is required")
    return fields[name]


def _ip(value: _Value) -> tuple[Family, int]:
    try:
        return parse_ip(value.text())
    except DataplaneError as error:
        raise HostError(value.path, str(error)) from error


def _interface(value: _Value) -> Interface:
    fields = value.fields(("name", "addresses", "bridge", "hairpin"))
    addresses = () if "addresses" not in fields else fields["addresses"].items(_interface_address)
    return Interface(
        _need(fields, "name", value).name(),
        addresses,
        fields["bridge"].name() if "bridge" in fields else "",
        fields["hairpin"].flag() if "hairpin" in fields else None,
    )


def _interface_address(value: _Value) -> InterfaceAddress:
    host, slash, length = value.text().partition("/")
    family, address = _ip(_Value(host, value.path))
    if slash and not (length.isascii() and length.isdigit() and int(length) <= family.bits):
        value.fail(f"an address with a prefix length of at most {family.bits} expected")
    return InterfaceAddress(family, address, int(length) if slash else family.bits)


def _by_name(interfaces: Sequence[Interface], where: _Value) -> Mapping[str, Interface]:
    found = {item.name: item for item in interfaces}
    if len(found) != len(interfaces):
        where.fail("each interface only once expected")
    for item in interfaces:
        if item.bridge and item.bridge not in found:
            where.fail(f"bridge {item.bridge} of {item.name} is not among the interfaces")
    return MappingProxyType(found)


def _routes(value: _Value | None, interfaces: Sequence[Interface]) -> tuple[Route, ...] | None:
    if value is None:
        return None
    connected = connected_routes(interfaces)
    given = value.items(lambda item: _route(item, connected))
    return (*given, *(route for route in connected if route not in given))


def _route(value: _Value, connected: Sequence[Route]) -> Route:
    fields = value.fields(("to", "via", "dev", "src", "type", "metric", "table"))
    gateway = _ip(fields["via"]) if "via" in fields else None
    to = _need(fields, "to", value)
    if to.value == "default":
        family = gateway[0] if gateway else _ip(fields["src"])[0] if "src" in fields else None
        if family is None:
            to.fail("0.0.0.0/0 or ::/0 expected for a default route without a gateway")
        network = Network(family, 0, 0)
    else:
        network = to.network()
    for name in ("via", "src"):
        if name in fields and _ip(fields[name])[0] is not network.family:
            fields[name].fail("an address of the destination's family expected")
    device = fields["dev"].name() if "dev" in fields else None
    if device is None and gateway is not None:
        device = next((route.device for route in connected if route.network.contains(gateway[1])
                       and route.family is gateway[0]), None)  # fmt: skip
    return Route(
        network,
        device,
        gateway[1] if gateway else None,
        _ip(fields["src"])[1] if "src" in fields else None,
        fields["type"].choice(_KINDS) if "type" in fields else "unicast",
        fields["metric"].number() if "metric" in fields else 0,
        fields["table"].text() if "table" in fields else "main",
    )


def _rule(value: _Value) -> RoutingRule:
    fields = value.fields(
        ("table", "priority", "fwmark", "from", "to", "iif", "family", "not", "ipproto", "sport", "dport", "tos",
         "action", "goto", "suppress_prefixlength", "other")
    )  # fmt: skip
    action = "goto" if "goto" in fields else fields["action"].choice(_ACTIONS) if "action" in fields else "lookup"
    source = fields["from"].network() if "from" in fields else None
    destination = fields["to"].network() if "to" in fields else None
    family = _FAMILIES[fields["family"].choice(tuple(_FAMILIES))] if "family" in fields else None
    for network in (source, destination):
        family = family if network is None else network.family
    return RoutingRule(
        _need(fields, "table", value).text() if action == "lookup" else "",
        fields["priority"].number() if "priority" in fields else 32765,
        family,
        _masked(fields["fwmark"]) if "fwmark" in fields else None,
        source,
        destination,
        fields["iif"].name() if "iif" in fields else None,
        fields["not"].flag() if "not" in fields else False,
        fields["ipproto"].protocol() if "ipproto" in fields else None,
        fields["sport"].ports() if "sport" in fields else None,
        fields["dport"].ports() if "dport" in fields else None,
        fields["tos"].number() if "tos" in fields else None,
        action,
        fields["goto"].number() if "goto" in fields else None,
        fields["suppress_prefixlength"].number() if "suppress_prefixlength" in fields else None,
        fields["other"].text() if "other" in fields else "",
    )


def _masked(value: _Value) -> Masked:
    mark, slash, mask = value.text().partition("/")
    number = _Value(mark, value.path).number()
    return Masked(number, _Value(mask, value.path).number() if slash else UINT32)


def _sysctls(value: _Value) -> dict[str, int]:
    found = {}
    for name, item in value.entries(lambda entry: entry).items():
        full = SHORT_SYSCTLS.get(name, name)
        if not full.startswith("net."):
            item.fail(f"a name that begins with net. expected, or one of {', '.join(SHORT_SYSCTLS)}")
        found[full] = item.number()
    return found


def _set(value: _Value) -> IpSet:
    fields = value.fields(("type", "family", "entries"))
    family = _FAMILIES[fields["family"].choice(tuple(_FAMILIES))] if "family" in fields else None
    entries = fields["entries"].items(_Value.text) if "entries" in fields else ()
    try:
        return IpSet.parse(_need(fields, "type", value).text(), entries, family)
    except DataplaneError as error:
        raise HostError(value.path, str(error)) from error


def _recent(value: _Value | None) -> Mapping[str, Mapping[int, tuple[int, ...]]] | None:
    if value is None:
        return MappingProxyType({})
    if value.value == "unknown":
        return None
    return MappingProxyType(value.entries(_recent_list))


def _recent_list(value: _Value) -> Mapping[int, tuple[int, ...]]:
    found = {}
    for address, ages in value.entries(lambda entry: entry).items():
        key = _ip(_Value(address, value.below(address)))[1]
        found[key] = (ages.number(),) if isinstance(ages.value, int) else ages.items(_Value.number)
    return MappingProxyType(found)


def _nth(value: _Value) -> tuple[tuple[str, str, int], int]:
    fields = value.fields(("table", "chain", "rule", "seen"))
    table = _need(fields, "table", value).choice(tuple(BUILTIN_CHAINS))
    chain, rule = _need(fields, "chain", value).text(), _need(fields, "rule", value).number()
    return (table, chain, rule), _need(fields, "seen", value).number()


def _socket(value: _Value) -> tuple[int, int]:
    protocol, slash, port = value.text().partition("/")
    if not slash:
        value.fail("PROTOCOL/PORT expected")
    try:
        return parse_protocol(protocol), parse_uint(port, 0xFFFF)
    except ValueError as error:
        raise HostError(value.path, str(error)) from error
