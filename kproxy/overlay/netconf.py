"""The network configuration: every key's type, range and default, and errors that name the key and its value.

Keys that other bridge plugins know and this one does not are refused with code 2 when they ask for something; unknown
keys are ignored. For DEL and GC `lenient` forgives all but what says where the state is: a runtime follows an ADD that
was refused with a DEL of the same configuration, and keeps the pod for as long as that fails.
"""

from __future__ import annotations

import ipaddress
import json
from collections.abc import Mapping
from typing import Any, Final, NamedTuple

from kproxy.overlay.errors import CniError, Code
from kproxy.overlay.fieldnames import UNSUPPORTED
from kproxy.overlay.ipam import Address, Network, RangeSet, bad, read_range_set

DEFAULT_DATA_DIR: Final = "/run/kproxy/cni"
"""On a tmpfs: leases must not outlive the namespaces they are for, and replacing a file on ext4 waits for its disk."""
_PROTOCOLS: Final = ("tcp", "udp", "sctp")
SCOPES: Final = (0, 200, 253)
"""RT_SCOPE_UNIVERSE, _SITE and _LINK (rtnetlink(7))."""


class Route(NamedTuple):
    """A route of the pod; `gateway` None is the range's. `scope` is rtnetlink's number."""

    destination: Network
    gateway: Address | None = None
    mtu: int = 0
    advmss: int = 0
    priority: int = 0
    table: int = 0
    scope: int | None = None


class PortMapping(NamedTuple):
    """A port of the node that leads to the pod; `host_ip` None is any address, 0.0.0.0 or :: any of that family.

    `protocol` is lower case.
    """

    host_port: int
    container_port: int
    protocol: str
    host_ip: Address | None = None

    @property
    def destination(self) -> Address | None:
        """The node's only address that leads to the pod; None if it is not one alone."""
        return None if self.host_ip is None or self.host_ip.is_unspecified else self.host_ip

    def __str__(self) -> str:
        return f"{self.host_ip or '*'}:{self.host_port}/{self.protocol}"


class NetConf(NamedTuple):
    """A network configuration. MTU 0 is the kernel's. `valid` are the attachments that GC must leave, if any is."""

    name: str
    bridge: str
    mtu: int
    is_gateway: bool
    hairpin: bool
    data_dir: str
    iptables: str
    ranges: tuple[RangeSet, ...]
    reserved: tuple[Network, ...]
    routes: tuple[Route, ...]
    requested_ips: tuple[Address, ...]
    mac: str
    ports: tuple[PortMapping, ...]
    previous: Mapping[str, Any] | None
    valid: frozenset[tuple[str, str]]


def _get(document: Mapping[str, Any], key: str, kind: type, default: Any, where: str = "") -> Any:
    value = document.get(key)
    if value is None:
        return default
    # bool is a kind of int in Python, and not in JSON.
    if not isinstance(value, kind) or (kind is int and isinstance(value, bool)):
        names = {bool: "true or false", int: "an integer", str: "a string", dict: "an object", list: "a list"}
        bad(f"{where}{key}", value, f"must be {names[kind]}")
    return value


def interface_name_problem(name: str) -> str:
    """Why the kernel takes no interface of this name (dev_valid_name in net/core/dev.c); "" if it does."""
    if not name or len(name.encode(errors="surrogateescape")) > 15:
        return "must have 1 to 15 bytes"
    if name in (".", ".."):
        return "must not be . or .."
    if any(character in "/:" or character.isspace() for character in name):
        return "must not hold /, : or space"
    return ""


def read_netconf(document: Mapping[str, Any], arguments: Mapping[str, str], lenient: bool = False) -> NetConf:
    """Reads a configuration.

    Raises:
        CniError: with code 2 or 7.
    """
    if not lenient:
        for key in UNSUPPORTED:
            if document.get(key):
                raise CniError(Code.UNSUPPORTED_FIELD, "unsupported field", f"{key}: {json.dumps(document[key])}")
    data_dir = _get(document, "dataDir", str, DEFAULT_DATA_DIR)
    if not data_dir.startswith("/"):
        bad("dataDir", data_dir, "must be an absolute path")
    iptables = _get(document, "iptables", str, "auto")
    if iptables not in ("auto", "nft", "legacy"):
        bad("iptables", iptables, "must be auto, nft or legacy")
    valid = _valid(document)
    try:
        return _read_rest(document, arguments, data_dir, iptables, valid)
    except CniError:
        if not lenient:
            raise
    # What else is needed to take an attachment down is in its record.
    return NetConf(document["name"], "", 0, False, False, data_dir, iptables, (), (), (), (), "", (), None, valid)


def _read_rest(
    document: Mapping[str, Any],
    arguments: Mapping[str, str],
    data_dir: str,
    iptables: str,
    valid: frozenset[tuple[str, str]],
) -> NetConf:
    bridge = _get(document, "bridge", str, "cni0")
    if interface_name_problem(bridge):
        bad("bridge", bridge, "is no name of an interface")
    mtu = _get(document, "mtu", int, 0)
    if mtu and not 68 <= mtu <= 65535:
        bad("mtu", mtu, "must be from 68 to 65535")
    is_gateway = _get(document, "isGateway", bool, True)
    is_default = _get(document, "isDefaultGateway", bool, False)
    hairpin = _get(document, "hairpinMode", bool, True)
    runtime = _get(document, "runtimeConfig", dict, {})
    ipam = _get(document, "ipam", dict, {})
    ranges = _ranges(ipam, runtime)
    reserved = tuple(_network(item, f"ipam.reserved[{i}]") for i, item in _items(ipam, "reserved", "ipam."))
    routes = tuple(_route(item, f"ipam.routes[{i}]") for i, item in _items(ipam, "routes", "ipam."))
    routes += _default_routes(ranges, routes) if is_default else ()
    if mtu and mtu < 1280 and any(item.is_ipv6 for item in ranges):
        bad("mtu", mtu, "is below 1280, the least that IPv6 works with")
    return NetConf(
        document["name"],
        bridge,
        mtu,
        is_gateway or is_default,
        hairpin,
        data_dir,
        iptables,
        ranges,
        reserved,
        routes,
        _requested_ips(runtime, arguments),
        _mac(runtime, arguments),
        tuple(_port(item, f"runtimeConfig.portMappings[{i}]") for i, item in _mappings(runtime)),
        _previous(document),
        valid,
    )


def _previous(document: Mapping[str, Any]) -> Mapping[str, Any] | None:
    """prevResult with its lists; runtimes written in Go print an empty one as null."""
    previous = _get(document, "prevResult", dict, None)
    if previous is None:
        return None
    lists = {key: _objects(previous, key, "prevResult.") for key in ("interfaces", "ips", "routes")}
    for key in ("ip4", "ip6"):  # as versions before 0.3.0 spell a result
        old = _get(previous, key, dict, None, "prevResult.")
        if old is not None:
            lists["ips"].append({"address": old.get("ip"), "gateway": old.get("gateway")})
            lists["routes"] += _objects(old, "routes", f"prevResult.{key}.")
    return {**lists, "dns": _get(previous, "dns", dict, {}, "prevResult.")}


def _objects(document: Mapping[str, Any], key: str, where: str) -> list[Mapping[str, Any]]:
    items = _items(document, key, where)
    for index, item in items:
        if not isinstance(item, dict):
            bad(f"{where}{key}[{index}]", item, "must be an object")
    return [item for _, item in items]


def _items(document: Mapping[str, Any], key: str, where: str) -> list[tuple[int, Any]]:
    return list(enumerate(_get(document, key, list, [], where)))


def _mappings(runtime: Mapping[str, Any]) -> list[tuple[int, Any]]:
    # A hostPort of 0, or none, asks for nothing, as with the portmap plugin.
    found = _items(runtime, "portMappings", "runtimeConfig.")
    return [(i, item) for i, item in found if not isinstance(item, dict) or item.get("hostPort") not in (None, 0)]


def _ranges(ipam: Mapping[str, Any], runtime: Mapping[str, Any]) -> tuple[RangeSet, ...]:
    kind = _get(ipam, "type", str, "host-local", "ipam.")
    if kind != "host-local":
        raise CniError(Code.UNSUPPORTED_FIELD, "unsupported IPAM plugin", f'ipam.type: "{kind}"; only host-local is')
    sets = [(f"ipam.ranges[{i}]", item) for i, item in _items(ipam, "ranges", "ipam.")]
    if ipam.get("subnet") is not None:
        sets.insert(0, ("ipam", [ipam]))
    for i, item in _items(runtime, "ipRanges", "runtimeConfig."):
        # containerd's library passes a list of ranges, where the convention has a list of sets.
        sets.append((f"runtimeConfig.ipRanges[{i}]", [item] if isinstance(item, dict) else item))
    if not sets:
        bad("ipam.ranges", ipam.get("ranges"), "names no range to take addresses from")
    read = [read_range_set(item, where) for where, item in sets]
    for index, one in enumerate(read):
        for other in read[:index]:
            if any(a.subnet.overlaps(b.subnet) for a in one.ranges for b in other.ranges if a.version == b.version):
                bad(sets[index][0], sets[index][1], "overlaps another range set")
    return tuple(read)


def _default_routes(ranges: tuple[RangeSet, ...], routes: tuple[Route, ...]) -> tuple[Route, ...]:
    there = {route.destination for route in routes}
    defaults = dict.fromkeys(ipaddress.ip_network("::/0" if item.is_ipv6 else "0.0.0.0/0") for item in ranges)
    return tuple(Route(item) for item in defaults if item not in there)


def _network(value: object, where: str) -> Network:
    try:
        return ipaddress.ip_network(value, strict=False)  # type: ignore[arg-type]  # anything else raises
    except ValueError:
        bad(where, value, "is no address or CIDR")


def _address(value: object, where: str) -> Address:
    try:
        return ipaddress.ip_address(value)  # type: ignore[arg-type]
    except ValueError:
        bad(where, value, "is no IP address")


def _route(item: object, where: str) -> Route:
    if not isinstance(item, dict) or not isinstance(item.get("dst"), str):
        bad(where, item, 'must be {"dst": CIDR, ...}')
    destination = _network(item["dst"], f"{where}.dst")
    gateway = None if item.get("gw") in (None, "") else _address(item["gw"], f"{where}.gw")
    if gateway is not None and gateway.version != destination.version:
        bad(f"{where}.gw", item["gw"], f"is of another family than {destination}")
    numbers = {}
    for key in ("mtu", "advmss", "priority", "table"):
        numbers[key] = _get(item, key, int, 0, f"{where}.")
        if not 0 <= numbers[key] <= 0xFFFFFFFF:
            bad(f"{where}.{key}", numbers[key], "must be from 0 to 4294967295")
    scope = _get(item, "scope", int, None, f"{where}.")
    if scope not in (None, *SCOPES):
        bad(f"{where}.scope", scope, f"must be one of {', '.join(map(str, SCOPES))}")
    return Route(destination, gateway, **numbers, scope=scope)


def _port(item: object, where: str) -> PortMapping:
    if not isinstance(item, dict):
        bad(where, item, "must be an object")
    protocol = str(item.get("protocol") or "tcp").lower()
    if protocol not in _PROTOCOLS:
        bad(f"{where}.protocol", item.get("protocol"), "must be tcp, udp or sctp")
    numbers = []
    for key in ("hostPort", "containerPort"):
        number = _get(item, key, int, 0, f"{where}.")
        if not 1 <= number <= 65535:
            bad(f"{where}.{key}", item.get(key), "must be from 1 to 65535")
        numbers.append(number)
    host = item.get("hostIP")
    address = None if host in (None, "") else _address(host, f"{where}.hostIP")
    return PortMapping(numbers[0], numbers[1], protocol, address)


def _requested_ips(runtime: Mapping[str, Any], arguments: Mapping[str, str]) -> tuple[Address, ...]:
    found = []
    for index, item in _items(runtime, "ips", "runtimeConfig."):
        text = item.partition("/")[0] if isinstance(item, str) else item
        found.append(_address(text, f"runtimeConfig.ips[{index}]"))
    for text in filter(None, arguments.get("IP", "").split(",")):
        try:
            found.append(ipaddress.ip_address(text.partition("/")[0]))
        except ValueError:
            raise CniError(Code.INVALID_ENVIRONMENT, "CNI_ARGS: no IP address", f"IP={text}") from None
    return tuple(dict.fromkeys(found))


def _mac(runtime: Mapping[str, Any], arguments: Mapping[str, str]) -> str:
    text = _get(runtime, "mac", str, "", "runtimeConfig.") or arguments.get("MAC", "")
    if not text:
        return ""
    parts = text.lower().split(":")
    valid = len(parts) == 6 and all(len(part) == 2 and set(part) <= set("0123456789abcdef") for part in parts)
    if not valid or int(parts[0], 16) & 1 or not any(int(part, 16) for part in parts):
        bad("runtimeConfig.mac", text, "is no unicast MAC address such as 02:00:00:00:00:01")
    return ":".join(parts)


def _valid(document: Mapping[str, Any]) -> frozenset[tuple[str, str]]:
    """The valid attachments. null, which Go prints for an empty list, and none at all both mean that there are none:
    CNI's library leaves the key out when it is given no attachments to keep, and has then deleted all it knew of.
    It also sends `cni.dev/attachments`, the name that was in the specification by mistake."""
    key = "cni.dev/valid-attachments"
    if document.get(key) is None:
        key = "cni.dev/attachments"
    found = set()
    for index, item in enumerate(_objects(document, key, "")):
        if not isinstance(item.get("containerID"), str):
            bad(f"{key}[{index}]", item, 'must be {"containerID", "ifname"}')
        found.add((item["containerID"], str(item.get("ifname", ""))))
    return frozenset(found)
