"""host-local IPAM as a pure state machine: range sets, reservations, and the record of which attachment has which
address.

A range set is where one address of an attachment comes from; it may consist of several ranges. Addresses are given out
round robin, beginning behind the last one given, as host-local does, so that a freed address is not used again at once.
Never given out: the network's first address, an IPv4 subnet's last, the gateways, and what `reserved` names.

`Leases` is all there is to know: attachments in the order of ADD, and the last address of each range set. Functions
take one and return another; `kproxy.linux.pod.cnistore` keeps it on disk.

The values here and in the modules beside it are NamedTuples, not dataclasses: the plugin is started once per pod, and
importing `dataclasses` and making theirs is a quarter of its time.
"""

from __future__ import annotations

import ipaddress
import json
from collections.abc import Collection, Mapping, Sequence
from typing import Any, Final, NamedTuple, NoReturn

from kproxy.overlay.errors import CniError, Code

Address = ipaddress.IPv4Address | ipaddress.IPv6Address
Network = ipaddress.IPv4Network | ipaddress.IPv6Network

PENDING: Final = "pending"
DONE: Final = "done"


class Range(NamedTuple):
    """A part of a subnet, `start` and `end` included."""

    subnet: Network
    start: int
    end: int
    gateway: Address

    @property
    def version(self) -> int:
        return self.subnet.version

    def holds(self, address: Address) -> bool:
        """Whether the address may be given out of it."""
        return address.version == self.version and self.start <= int(address) <= self.end


class RangeSet(NamedTuple):
    """Ranges of one family, of which an attachment gets one address."""

    ranges: tuple[Range, ...]

    @property
    def is_ipv6(self) -> bool:
        return self.ranges[0].version == 6

    @property
    def key(self) -> str:
        """By which the last address is remembered: the first subnet."""
        return str(self.ranges[0].subnet)

    def range_of(self, address: Address) -> Range | None:
        """The range an address is in."""
        return next((item for item in self.ranges if item.holds(address)), None)


class Record(NamedTuple):
    """What is known of an attachment: enough to take it down again.

    Attributes:
        state: `pending` while ADD works at it, `done` after.
        ips: one of each range set.
        ports: host ports as (host IP or "", port, protocol).
        link: the node's end of the veth pair.
    """

    state: str
    ips: tuple[str, ...]
    link: str
    netns: str = ""
    ports: tuple[tuple[str, int, str], ...] = ()


class Leases(NamedTuple):
    """All of a network on a node, by attachment key. Invariant: no address is in two records."""

    records: Mapping[str, Record] = {}
    last: Mapping[str, str] = {}


class Lease(NamedTuple):
    """An address for a pod, and the range it is from."""

    address: Address
    range: Range

    @property
    def interface(self) -> str:
        """With the subnet's prefix length: `10.244.1.2/24`."""
        return f"{self.address}/{self.range.subnet.prefixlen}"


def read_range_set(value: object, where: str) -> RangeSet:
    """Reads a list of {"subnet", "rangeStart", "rangeEnd", "gateway"}.

    Raises:
        CniError: with code 7.
    """
    if not isinstance(value, list) or not value:
        bad(where, value, "must be a list of ranges that is not empty")
    # The set that `ipam.subnet` and its companions make is no list in the configuration.
    ranges = [_read_range(item, f"{where}[{index}]" if where != "ipam" else where) for index, item in enumerate(value)]
    for index, one in enumerate(ranges):
        if one.version != ranges[0].version:
            bad(where, value, "mixes IPv4 and IPv6; make a set of each")
        if any(one.start <= other.end and other.start <= one.end for other in ranges[:index]):
            bad(f"{where}[{index}]", value[index], "overlaps another range of the set")
    return RangeSet(tuple(ranges))


def bad(where: str, value: object, why: str) -> NoReturn:
    """Raises CniError: a field of the configuration has a value that cannot be."""
    raise CniError(Code.INVALID_CONFIG, "invalid network configuration", f"{where}: {json.dumps(value)} {why}")


def _read_range(item: object, where: str) -> Range:
    if not isinstance(item, dict) or not isinstance(item.get("subnet"), str):
        bad(where, item, 'must be {"subnet": CIDR, ...}')
    try:
        subnet = ipaddress.ip_network(item["subnet"], strict=False)
    except ValueError:
        bad(f"{where}.subnet", item["subnet"], "is no CIDR")
    if subnet.max_prefixlen - subnet.prefixlen < 2:
        bad(f"{where}.subnet", item["subnet"], "is too small: there must be room for a gateway and a pod")
    if subnet.is_multicast or subnet.is_loopback or subnet.prefixlen == 0:
        bad(f"{where}.subnet", item["subnet"], "has no addresses that a pod can have")
    first, final = int(subnet.network_address) + 1, int(subnet.broadcast_address)
    final -= subnet.version == 4
    start = _bound(item, "rangeStart", subnet, first, where)
    end = _bound(item, "rangeEnd", subnet, final, where)
    if start > end:
        bad(where, item, "has its rangeStart behind its rangeEnd")
    gateway = _bound(item, "gateway", subnet, first, where)
    start, end = max(start, first), min(end, final)
    if start > end or start == end == gateway:
        bad(where, item, "leaves no address for a pod")
    return Range(subnet, start, end, subnet[gateway - int(subnet.network_address)])


def _bound(item: Mapping[str, Any], key: str, subnet: Network, default: int, where: str) -> int:
    value = item.get(key)
    if value in (None, ""):
        return default
    try:
        address = ipaddress.ip_address(value)
    except ValueError:
        bad(f"{where}.{key}", value, "is no IP address")
    if address not in subnet:
        bad(f"{where}.{key}", value, f"is not in {subnet}")
    return int(address)


def allocate(
    leases: Leases,
    key: str,
    record: Record,
    ranges: Sequence[RangeSet],
    reserved: Collection[Network] = (),
    requested: Collection[Address] = (),
) -> tuple[Leases, tuple[Lease, ...]]:
    """Gives an attachment one address of each range set, and records it with `record` as the rest.

    Args:
        requested: addresses asked for; each must be in a range set, at most one in each.

    Raises:
        CniError: ALREADY_ATTACHED, RANGE_EXHAUSTED, ADDRESS_TAKEN, PORT_TAKEN, or INVALID_CONFIG for an address
            asked for that no range holds.
    """
    if key in leases.records:
        raise CniError(
            Code.ALREADY_ATTACHED, "the container is attached already", f"{key}; DEL comes before another ADD"
        )
    _check_ports(leases, record)
    taken = {ip: owner for owner, other in leases.records.items() for ip in other.ips}
    given, last = [], dict(leases.last)
    left = list(requested)
    for item in ranges:
        mine = [address for address in left if item.range_of(address) is not None]
        if mine:
            chosen = mine[0]
            left.remove(chosen)
            _check_free(chosen, item, taken, reserved)
        else:
            chosen = _next_free(item, taken, reserved, leases.last.get(item.key))
            last[item.key] = str(chosen)
        holder = item.range_of(chosen)
        assert holder is not None
        given.append(Lease(chosen, holder))
    if left:
        shown = ", ".join(map(str, left))
        raise CniError(Code.INVALID_CONFIG, "an address asked for is in no range left", shown)
    stored = record._replace(ips=tuple(str(lease.address) for lease in given))
    return Leases({**leases.records, key: stored}, last), tuple(given)


def _check_ports(leases: Leases, record: Record) -> None:
    for ip, port, protocol in record.ports:
        for owner, other in leases.records.items():
            for other_ip, other_port, other_protocol in other.ports:
                same = (port, protocol) == (other_port, other_protocol)
                if same and _overlap(ip, other_ip):
                    raise CniError(
                        Code.PORT_TAKEN, "the host port is taken", f"{ip or '*'}:{port}/{protocol} leads to {owner}"
                    )


def _overlap(one: str, other: str) -> bool:
    """Whether two host IPs, "" for any, have an address in common."""
    if one == other or not one or not other:
        return True
    first, second = ipaddress.ip_address(one), ipaddress.ip_address(other)
    return first.version == second.version and (first.is_unspecified or second.is_unspecified)


def _is_reserved(address: Address, item: RangeSet, reserved: Collection[Network]) -> bool:
    return any(address == part.gateway for part in item.ranges) or any(
        network.version == address.version and address in network for network in reserved
    )


def _check_free(address: Address, item: RangeSet, taken: Mapping[str, str], reserved: Collection[Network]) -> None:
    if str(address) in taken:
        raise CniError(Code.ADDRESS_TAKEN, "the address asked for is taken", f"{address} by {taken[str(address)]}")
    if _is_reserved(address, item, reserved):
        raise CniError(Code.ADDRESS_TAKEN, "the address asked for is reserved", str(address))


def _next_free(item: RangeSet, taken: Mapping[str, str], reserved: Collection[Network], last: str | None) -> Address:
    found = next_address(item, taken, reserved, last)
    if found is None:
        shown = ", ".join(f"{part.subnet}" for part in item.ranges)
        raise CniError(Code.RANGE_EXHAUSTED, "no address is free", f"range {shown}: {len(taken)} leases on this node")
    return found


def next_address(
    item: RangeSet, taken: Collection[str], reserved: Collection[Network], last: str | None
) -> Address | None:
    """The next free address of a range set behind `last`, round robin; None if there is none.

    Reserved blocks are stepped over whole, so that a large one costs nothing.
    """
    start = ipaddress.ip_address(last) if last else None
    index = next((i for i, part in enumerate(item.ranges) if start is not None and part.holds(start)), 0)
    begun = item.ranges[index]
    behind = int(start) + 1 if start is not None and begun.holds(start) else begun.start
    spans = [(begun, behind, begun.end)]
    spans += [(part, part.start, part.end) for part in (*item.ranges[index + 1 :], *item.ranges[:index])]
    spans.append((begun, begun.start, behind - 1))
    for part, low, high in spans:
        number = low
        while number <= high:
            address = part.subnet[number - int(part.subnet.network_address)]
            blocks = [net for net in reserved if net.version == address.version and address in net]
            if blocks:
                number = max(int(net.broadcast_address) for net in blocks) + 1
            elif str(address) in taken or any(address == other.gateway for other in item.ranges):
                number += 1
            else:
                return address
    return None


def finish(leases: Leases, key: str) -> Leases:
    """Marks an attachment as done."""
    return leases._replace(records={**leases.records, key: leases.records[key]._replace(state=DONE)})


def release(leases: Leases, key: str) -> Leases:
    """Frees what an attachment has; nothing if there is none."""
    return leases._replace(records={name: record for name, record in leases.records.items() if name != key})


def stale(leases: Leases, valid: Collection[tuple[str, str]]) -> tuple[str, ...]:
    """The attachments that GC must free: those not among `valid`, which are pairs of container and interface."""
    keep = {f"{container}/{ifname}" for container, ifname in valid}
    return tuple(key for key in leases.records if key not in keep)
