"""Carries an overlay plan out with pyroute2, changing only what differs, and reads back what is there.

Ours are the devices named in `DEVICES` with all that is on them, and the main table's unicast routes whose protocol is
PROTOCOL. Nothing else is changed or deleted: another program's route to another node's pods is reported. What the
kernel derives from our routes for a while is the kernel's: to a destination whose path takes less than the route's MTU,
IPv6 keeps a host route with our protocol and the flag RTM_F_CLONED, and without it large packets would be lost.

One netlink socket stays open: opening one takes 7 ms.
"""

from __future__ import annotations

import contextlib
import ipaddress
import socket
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final

import msgspec

from kproxy.linux.errors import FeatureMissingError, LinuxError, NamespaceError, PrivilegeError
from kproxy.linux.lazy_import import load
from kproxy.linux.namespace import Namespace
from kproxy.linux.sysctl import SysctlError, read_sysctl, write_sysctl
from kproxy.overlay.ipam import Address
from kproxy.overlay.plan import (
    DEVICES,
    Change,
    FdbEntry,
    Item,
    LinkAddress,
    Neighbour,
    NodeRoute,
    Sysctl,
    VxlanLink,
    difference,
)
from kproxy.overlay.rules import RuleChain

PROTOCOL: Final = 107
"""rtm_protocol of our routes: one that neither the kernel nor iproute2 has a name for. (84, once free, is OVN's.)"""
_ONLINK: Final = 4
_MAIN_TABLE: Final = 254
_UNICAST: Final = 1
_CLONED: Final = 0x200
"""RTM_F_CLONED of <linux/rtnetlink.h>."""
_DEFAULT_METRIC: Final = {4: 0, 6: 1024}
_EXISTS, _INVALID = 17, 22
_PERMANENT: Final = 0x80
_FAMILIES: Final = {4: socket.AF_INET, 6: socket.AF_INET6}
_GONE: Final = (2, 3, 19, 99)
"""ENOENT, ESRCH, ENODEV, EADDRNOTAVAIL: what was to be deleted is gone already."""


class OverlayError(LinuxError):
    """The kernel refused a part of the plan."""


class OverlayKernel:
    """The overlay's part of a namespace. Close it when done.

    Raises:
        NamespaceError: the namespace is not there.
        PrivilegeError: the process may not.
    """

    def __init__(self, namespace: Namespace) -> None:
        self._namespace = namespace
        self._errors = load("pyroute2.netlink.exceptions").NetlinkError
        try:
            # flags=0: a missing namespace is an error, not something to make.
            self._route: Any = load("pyroute2").IPRoute(netns=namespace.netns, flags=0)
        except FileNotFoundError as error:
            raise NamespaceError(f"{namespace.label} is not there") from error
        except PermissionError as error:
            raise PrivilegeError(f"cannot enter {namespace.label}: it needs root") from error

    def close(self) -> None:
        self._route.close()

    def __enter__(self) -> OverlayKernel:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def read(self, sysctls: Iterable[Sysctl] = ()) -> list[Item]:
        """What is there of the overlay, and the values of the sysctls named. Raises OverlayError."""
        with self._as_overlay_error("reading the overlay"):
            names = {int(link["index"]): str(link.get("ifname")) for link in self._dump("get_links")}
            found: list[Item] = []
            for version, device in DEVICES.items():
                index = next((number for number, name in names.items() if name == device), None)
                if index is not None:
                    found += self._read_device(device, index, version)
                found += self._read_routes(version, names)
        for item in sysctls:
            with contextlib.suppress(SysctlError):
                found.append(Sysctl(item.name, read_sysctl(self._namespace, item.name)))
        return found

    def compare(self, desired: Iterable[Item]) -> list[Change]:
        """How the kernel differs from the plan's items. Raises OverlayError."""
        items = list(desired)
        return difference(items, self.read(item for item in items if isinstance(item, Sysctl)))

    def apply(self, desired: Iterable[Item]) -> tuple[list[Change], list[OverlayError]]:
        """Brings the kernel to the plan; returns what was different, and what could not be mended.

        One refused item, a gateway that no link leads to, say, does not keep the others out; what belongs on a device
        that could not be made is not tried, and not reported.
        """
        items = list(desired)
        changes = self.compare(items)
        problems: list[OverlayError] = []
        made_again: set[str] = set()
        missing: set[str] = set()
        for change in changes:
            item = change.desired
            if isinstance(item, LinkAddress | Neighbour | FdbEntry | NodeRoute) and item.device in missing:
                continue
            try:
                self._mend(change, made_again)
            except OverlayError as error:
                problems.append(error)
                if isinstance(item, VxlanLink):
                    missing.add(item.name)
        if made_again:
            # A device that was made again has lost what was on it.
            again, more = self.apply(items)
            return changes + again, problems + more
        return changes, problems

    def underlay_mtus(self, addresses: Mapping[int, Address]) -> dict[int, int]:
        """The MTU in bytes of the interface with each address, by IP version; what no interface has is left out.

        Raises:
            OverlayError: it cannot be read.
        """
        found = {}
        with self._as_overlay_error("reading the MTU of the network between the nodes"):
            for version, address in addresses.items():
                for entry in self._dump("get_addr", family=_FAMILIES[version]):
                    text = entry.get_attr("IFA_LOCAL") or entry.get_attr("IFA_ADDRESS")
                    if text and ipaddress.ip_address(str(text)) == address:
                        link = self._dump("get_links", index=int(entry["index"]))
                        found[version] = int(link[0].get_attr("IFLA_MTU"))
        return found

    def _dump(self, method: str, **arguments: object) -> list[Any]:
        # Dumps are lazy, and deleting while reading one misses entries.
        return list(getattr(self._route, method)(**arguments))

    @contextlib.contextmanager
    def _as_overlay_error(self, what: str) -> Iterator[None]:
        try:
            yield
        except self._errors as error:
            if error.code == 1:
                raise PrivilegeError(f"{what}: not permitted; it needs root") from error
            if error.code == 95:
                raise FeatureMissingError(
                    f"{what}: this kernel cannot; is its module (vxlan) there? host-gw does without"
                ) from error
            raise OverlayError(f"{what}: {error.args[-1]}") from error
        except OSError as error:
            raise OverlayError(f"{what}: {error.strerror or error}") from error

    def _read_device(self, device: str, index: int, version: int) -> Iterator[Item]:
        link = self._dump("get_links", index=index)
        info = link[0].get_nested("IFLA_LINKINFO", "IFLA_INFO_DATA") if link else None
        up = bool(link and link[0]["flags"] & 1)
        attribute = (lambda name: info.get_attr(name)) if info is not None else (lambda name: None)
        # A device that is down, or of another kind, comes out as another device than the one desired.
        yield VxlanLink(
            device,
            int(attribute("IFLA_VXLAN_ID") or 0),
            int(attribute("IFLA_VXLAN_PORT") or 0) if up else 0,
            str(attribute("IFLA_VXLAN_LOCAL" if version == 4 else "IFLA_VXLAN_LOCAL6") or ""),
            str(link[0].get_attr("IFLA_ADDRESS")) if link else "",
            int(link[0].get_attr("IFLA_MTU") or 0) if link else 0,
            bool(attribute("IFLA_VXLAN_LEARNING")),
        )
        family = _FAMILIES[version]
        for entry in self._dump("get_addr", index=index, family=family):
            text = str(entry.get_attr("IFA_LOCAL") or entry.get_attr("IFA_ADDRESS"))
            if int(entry["scope"]) == 0:
                yield LinkAddress(device, f"{text}/{entry['prefixlen']}")
        for entry in self._dump("get_neighbours", ifindex=index, family=family):
            if int(entry["ifindex"]) == index and int(entry["state"]) & _PERMANENT:
                mac = str(entry.get_attr("NDA_LLADDR"))
                yield Neighbour(device, str(entry.get_attr("NDA_DST")), mac)
        for entry in self._dump("get_neighbours", ifindex=index, family=socket.AF_BRIDGE):
            target = entry.get_attr("NDA_DST")
            if int(entry["ifindex"]) == index and target is not None:
                yield FdbEntry(device, str(entry.get_attr("NDA_LLADDR")), str(target))

    def _read_routes(self, version: int, names: dict[int, str]) -> Iterator[Item]:
        for entry in self._dump("get_routes", family=_FAMILIES[version], proto=PROTOCOL):
            destination, gateway = entry.get_attr("RTA_DST"), entry.get_attr("RTA_GATEWAY")
            ours = int(entry["proto"]) == PROTOCOL and int(entry["type"]) == _UNICAST
            table = int(entry.get_attr("RTA_TABLE") or entry["table"])
            if not ours or table != _MAIN_TABLE or int(entry["flags"]) & _CLONED or destination is None:
                continue
            device = names.get(int(entry.get_attr("RTA_OIF") or 0), "")
            onlink = bool(int(entry["flags"]) & _ONLINK)
            metric = int(entry.get_attr("RTA_PRIORITY") or 0)
            metric = 0 if metric == _DEFAULT_METRIC[version] else metric
            yield NodeRoute(f"{destination}/{entry['dst_len']}", str(gateway or ""), device, onlink, metric)

    def _index(self, device: str) -> int:
        found = self._route.link_lookup(ifname=device)
        if not found:
            raise OverlayError(f"{device} is not there")
        return int(next(iter(found)))

    def _mend(self, change: Change, made_again: set[str]) -> None:
        try:
            with self._as_overlay_error(f"mending: {change}"):
                if self._change_in_place(change):
                    return
                if change.found is not None and not isinstance(change.found, Sysctl):
                    self._delete(change.found)
                if change.desired is not None:
                    self._make(change.desired)
                if isinstance(change.desired, VxlanLink) and change.found is not None:
                    made_again.add(change.desired.name)
        except (SysctlError, FeatureMissingError) as error:
            raise OverlayError(str(error)) from error

    def _change_in_place(self, change: Change) -> bool:
        """Changes an item in place if the kernel can do that, so that packets go on; whether it did."""
        match change.desired, change.found:
            case NodeRoute() as desired, NodeRoute():
                self._route.route("replace", **self._route_options(desired))
                return True
            case VxlanLink() as desired, VxlanLink() as found if (
                msgspec.structs.replace(found, mtu=desired.mtu) == desired
            ):
                self._route.link("set", index=self._index(desired.name), mtu=desired.mtu)
                return True
        return False

    def _route_options(self, item: NodeRoute) -> dict[str, object]:
        options: dict[str, object] = {"dst": item.destination, "gateway": item.gateway, "proto": PROTOCOL}
        if item.device:
            options["oif"] = self._index(item.device)
        if item.onlink:
            options["flags"] = _ONLINK
        return options

    def _add_route(self, item: NodeRoute) -> None:
        """Adds a route where there is none of ours. Raises OverlayError if another program has one."""
        try:
            self._route.route("add", **self._route_options(item))
        except self._errors as error:
            # A route by another device also makes IPv6 refuse the gateway that lies in it.
            if error.code not in (_EXISTS, _INVALID) or not self._is_there(item):
                raise
            raise OverlayError(
                f"{item.destination} has a route that is not the overlay's, so {item} is not made; `ip route show "
                f"{item.destination}` tells whose it is"
            ) from error

    def _is_there(self, item: NodeRoute) -> bool:
        address, _, length = item.destination.partition("/")
        family = _FAMILIES[6 if ":" in address else 4]
        return any(
            entry.get_attr("RTA_DST") == address and int(entry["dst_len"]) == int(length)
            for entry in self._dump("get_routes", family=family, table=_MAIN_TABLE)
        )

    def _delete(self, item: Item) -> None:
        try:
            match item:
                case VxlanLink():
                    self._route.link("del", index=self._index(item.name))
                case LinkAddress():
                    address, _, length = item.address.partition("/")
                    self._route.addr("del", index=self._index(item.device), address=address, prefixlen=int(length))
                case NodeRoute():
                    metric = {"priority": item.metric} if item.metric else {}
                    self._route.route("del", dst=item.destination, proto=PROTOCOL, table=_MAIN_TABLE, **metric)
                case Neighbour():
                    self._route.neigh("del", ifindex=self._index(item.device), dst=item.address)
                case FdbEntry():
                    self._route.fdb("del", ifindex=self._index(item.device), lladdr=item.mac, dst=item.destination)
                case Sysctl() | RuleChain():
                    return
        except self._errors as error:
            if error.code not in _GONE:
                raise

    def _make(self, item: Item) -> None:
        match item:
            case VxlanLink():
                local = {"vxlan_local6" if ":" in item.local else "vxlan_local": item.local}
                self._route.link(
                    "add", ifname=item.name, kind="vxlan", vxlan_id=item.vni, vxlan_port=item.port,
                    vxlan_learning=int(item.learning), address=item.mac, mtu=item.mtu, **local,
                )  # fmt: skip
                self._route.link("set", index=self._index(item.name), state="up")
            case LinkAddress():
                address, _, length = item.address.partition("/")
                # Duplicate address detection would hold an IPv6 address back for a second.
                nodad = {"flags": 0x02} if ":" in address else {}
                index = self._index(item.device)
                self._route.addr("replace", index=index, address=address, prefixlen=int(length), **nodad)
            case NodeRoute():
                self._add_route(item)
            case Neighbour():
                index = self._index(item.device)
                self._route.neigh("replace", ifindex=index, dst=item.address, lladdr=item.mac, state=_PERMANENT)
            case FdbEntry():
                self._route.fdb("add", ifindex=self._index(item.device), lladdr=item.mac, dst=item.destination)
            case Sysctl():
                write_sysctl(self._namespace, item.name, item.value)
            case RuleChain():
                return
