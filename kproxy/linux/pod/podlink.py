"""Carries out the plan of one attachment, and reads it back: bridge, veth pair, addresses, routes, sysctls.

Call these from a thread that is in the node's network namespace: pyroute2's socket belongs to the namespace that its
thread was in when it was opened. Everything may be done again: what is there already is left alone, and what an ADD
that was killed left of the same attachment is deleted.
"""

from __future__ import annotations

import contextlib
import errno
import ipaddress
import os
import socket
from collections.abc import Iterator, Mapping
from typing import Any, Final

from kproxy.linux.lazy_import import load
from kproxy.linux.namespace import inside
from kproxy.overlay.attach import BridgePlan, PodPlan
from kproxy.overlay.errors import CniError, Code
from kproxy.overlay.netconf import Route

_LOOPBACK: Final = 1
"""The index of `lo` in every network namespace."""
_UP: Final = 1
_NODAD: Final = 2
_LINK_SCOPE: Final = 253
_MAIN_TABLE: Final = 254


def open_route() -> Any:
    """pyroute2's IPRoute of the namespace that the calling thread is in; close it when done."""
    return load("pyroute2").IPRoute(ext_ack=True, strict_check=True)


def refused() -> tuple[type[Exception], ...]:
    """What is raised when the kernel refuses something."""
    return OSError, load("pyroute2.netlink.exceptions").NetlinkError


def code_of(error: Exception) -> int:
    """The errno of what `refused` lists."""
    return int(getattr(error, "code", None) or getattr(error, "errno", None) or 0)


def find_link(route: Any, name: str) -> Any:
    """An interface by its name as pyroute2 gives it; None if it is not there."""
    try:
        return next(iter(route.link("get", ifname=name)))
    except refused() as error:
        if code_of(error) == errno.ENODEV:
            return None
        raise


def kind_of(link: Any) -> str:
    """`bridge`, `veth`; "" of hardware."""
    return link.get(("linkinfo", "kind")) or ""


def is_up(link: Any) -> bool:
    """Whether it was brought up."""
    return bool(link["flags"] & _UP)


@contextlib.contextmanager
def open_netns(path: str, opened: int | None = None) -> Iterator[int]:
    """An open descriptor of a pod's namespace: a copy of `opened`, if there is one, else of what is at the path.

    Raises:
        CniError: UNKNOWN_CONTAINER if it is not there; INVALID_ENVIRONMENT if it is not a network namespace, or is
            the plugin's own.
    """
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC) if opened is None else os.dup(opened)
    except FileNotFoundError as error:
        raise CniError(Code.UNKNOWN_CONTAINER, "the network namespace is not there", f"CNI_NETNS={path}") from error
    except OSError as error:
        raise CniError(Code.IO_FAILURE, "cannot open the network namespace", f"{path}: {error.strerror}") from error
    try:
        mine, found = os.stat("/proc/thread-self/ns/net"), os.fstat(descriptor)
        if found.st_dev != mine.st_dev:
            raise CniError(Code.INVALID_ENVIRONMENT, "CNI_NETNS is no network namespace", path)
        if found.st_ino == mine.st_ino:
            raise CniError(Code.INVALID_ENVIRONMENT, "CNI_NETNS is the node's own network namespace", path)
        yield descriptor
    finally:
        os.close(descriptor)


@contextlib.contextmanager
def _as_cni_error(what: str) -> Iterator[None]:
    """Turns the kernel's refusals into CNI errors."""
    try:
        yield
    except refused() as error:
        if code_of(error) in (errno.EPERM, errno.EACCES):
            raise CniError(Code.NOT_PERMITTED, f"{what}: not permitted", "the plugin needs root") from error
        words = error.args[1] if len(error.args) > 1 else str(error)
        raise CniError(Code.KERNEL_REFUSED, f"{what} failed", words) from error


def attach(plan: PodPlan, netns: str, opened: int | None = None) -> None:
    """Makes an attachment in the namespace `netns`, of which `opened` is a descriptor if the path is not to be opened.

    Raises:
        CniError: what failed; what was made until then may remain, and `detach` removes it.
    """
    with open_netns(netns, opened) as descriptor, _as_cni_error("opening rtnetlink"), open_route() as node:
        bridge = ensure_bridge(node, plan.bridge)
        with _as_cni_error("setting sysctls"):
            _write_sysctls(plan.sysctls, plan.optional)
        _make_veth(node, plan, bridge, descriptor, netns)
        with _as_cni_error(f"entering {netns}"), inside(descriptor):
            _prepare_ipv6(plan.ifname, plan.addresses)
            pod = open_route()
        with pod:
            _configure_pod(pod, plan)


def _make_veth(node: Any, plan: PodPlan, bridge: int, descriptor: int, netns: str) -> None:
    """Makes the pair, one end at the bridge, the other in the namespace. Both are down: an end does not come up before
    it knows the other (ENOTCONN of veth_open)."""
    size = {"mtu": plan.mtu} if plan.mtu else {}
    peer = {"ifname": plan.ifname, "address": plan.mac, "net_ns_fd": descriptor, **size}
    ends = {"ifname": plan.link, "kind": "veth", "address": plan.link_mac, "master": bridge, "peer": peer, **size}
    with _as_cni_error(f"making the veth pair {plan.link}"):
        try:
            _add_veth(node, ends)
        except refused() as error:
            if code_of(error) != errno.EEXIST:
                raise
            raise CniError(
                Code.NAME_TAKEN, "the interface name is taken in the container", f"{plan.ifname} in {netns}"
            ) from error
    with _as_cni_error(f"bringing up the veth pair {plan.link}"):
        index = _index(node, plan.link)
        node.link("set", index=index, state="up")
        node.brport("set", index=index, mode=int(plan.hairpin))


def _add_veth(node: Any, ends: Mapping[str, object]) -> None:
    try:
        node.link("add", **ends)
    except refused() as error:
        # Which of both names was taken, the kernel does not say. The node's end is ours alone: of an ADD that was
        # killed, or of the container's interface, which keeps its name for it.
        if code_of(error) != errno.EEXIST or not _delete_link(node, str(ends["ifname"])):
            raise
        node.link("add", **ends)


def _delete_link(node: Any, name: str) -> bool:
    """Deletes an interface; False if it is not there."""
    try:
        node.link("del", ifname=name)
    except refused() as error:
        if code_of(error) == errno.ENODEV:
            return False
        raise
    return True


def _index(route: Any, name: str) -> int:
    link = find_link(route, name)
    if link is None:
        raise OSError(errno.ENODEV, "the interface vanished again")
    return int(link["index"])


def ensure_bridge(node: Any, plan: BridgePlan) -> int:
    """The index of the bridge with its addresses, made if it is not there. Raises CniError."""
    with _as_cni_error(f"making the bridge {plan.name}"):
        link = find_link(node, plan.name)
        if link is None:
            try:
                # Its MTU comes later: only then does it stay when ports come and go.
                node.link("add", ifname=plan.name, kind="bridge", address=plan.mac)
                _prepare_ipv6(plan.name, plan.addresses)
            except refused() as error:
                if code_of(error) != errno.EEXIST:  # another ADD was quicker
                    raise
            link = find_link(node, plan.name)
        if link is None:
            raise OSError(errno.ENODEV, "it vanished again")
        if kind_of(link) != "bridge":
            raise CniError(
                Code.NAME_TAKEN, "the bridge's name is taken", f"{plan.name} is of kind {kind_of(link) or 'hardware'}"
            )
        index = int(link["index"])
        if not is_up(link) or (plan.mtu and link.get("mtu") != plan.mtu):
            node.link("set", index=index, state="up", **({"mtu": plan.mtu} if plan.mtu else {}))
        if plan.addresses:
            there = _addresses(node, index)
            for address in plan.addresses:
                if address not in there:
                    try:
                        _add_address(node, index, address)
                    except refused() as error:
                        if code_of(error) != errno.EEXIST:
                            raise
    return index


def _addresses(route: Any, index: int) -> set[str]:
    """The addresses of an interface, with prefix lengths."""
    return {f"{each.get('local') or each.get('address')}/{each['prefixlen']}" for each in route.get_addr(index=index)}


def _add_address(route: Any, index: int, address: str) -> None:
    """Adds an address with its prefix length, without duplicate address detection."""
    interface = ipaddress.ip_interface(address)
    more: dict[str, object] = {}
    if interface.version == 6:
        more["flags"] = _NODAD
    elif interface.network.prefixlen < 31:
        more["broadcast"] = str(interface.network.broadcast_address)
    route.addr("add", index=index, address=str(interface.ip), prefixlen=interface.network.prefixlen, **more)


def _configure_pod(pod: Any, plan: PodPlan) -> None:
    with _as_cni_error(f"configuring {plan.ifname}"):
        pod.link("set", index=_LOOPBACK, state="up")
        index = _index(pod, plan.ifname)
        pod.link("set", index=index, state="up")
    for address in plan.addresses:
        with _as_cni_error(f"adding {address} to {plan.ifname}"):
            _add_address(pod, index, address)
    for route in plan.routes:
        with _as_cni_error(f"adding the route to {route.destination}"):
            _add_route(pod, route, index)


def _add_route(pod: Any, route: Route, index: int) -> None:
    """Adds a route, or replaces that of the same destination, table and priority."""
    metrics = {name: value for name, value in (("mtu", route.mtu), ("advmss", route.advmss)) if value}
    wanted = {
        "gateway": str(route.gateway) if route.gateway is not None else None,
        "priority": route.priority,
        "metrics": metrics,
    }
    scope = route.scope if route.scope is not None else (0 if route.gateway is not None else _LINK_SCOPE)
    more = {name: value for name, value in wanted.items() if value}
    pod.route(
        "replace", dst=str(route.destination), oif=index, table=route.table or _MAIN_TABLE, scope=scope, proto=3, **more
    )


def _prepare_ipv6(name: str, addresses: tuple[str, ...]) -> None:
    """Lets an interface that is down have IPv6, and use its link-local address as soon as it is up.

    Duplicate address detection would hold that back for a second or two, and with it every neighbour solicitation for
    packets that the node forwards. The addresses are ours to give, so there are no duplicates. Container runtimes
    switch IPv6 off in new namespaces; an IPv6 address needs it on.
    """
    directory = f"/proc/sys/net/ipv6/conf/{name}"
    try:
        _write_file(f"{directory}/accept_dad", "0")
        if any(":" in address for address in addresses) and _read_file(f"{directory}/disable_ipv6") != "0":
            _write_file(f"{directory}/disable_ipv6", "0")
    except FileNotFoundError:
        return  # a kernel without IPv6


def _write_sysctls(desired: Mapping[str, str], optional: frozenset[str]) -> None:
    for name, value in desired.items():
        path = f"/proc/sys/{name}"
        try:
            if _read_file(path) != value:
                _write_file(path, value)
        except FileNotFoundError:
            if name not in optional:
                raise


def _read_file(path: str) -> str:
    # Without Python's file objects: reading a sysctl takes 5 microseconds, making one of those 30.
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        return os.read(descriptor, 4096).decode("ascii", "replace").strip()
    finally:
        os.close(descriptor)


def _write_file(path: str, value: str) -> None:
    descriptor = os.open(path, os.O_WRONLY | os.O_CLOEXEC)
    try:
        os.write(descriptor, value.encode("ascii"))
    finally:
        os.close(descriptor)


def detach(link: str) -> None:
    """Deletes an attachment's veth pair, both ends of it; nothing if it is not there. Raises CniError."""
    with _as_cni_error(f"deleting {link}"), open_route() as node:
        _delete_link(node, link)


def check(plan: PodPlan, netns: str, opened: int | None = None) -> list[str]:
    """How the kernel differs from the plan, in words; [] if it does not. Raises CniError.

    MTUs and MACs are not compared, nor what a route has beside destination, gateway and interface: a plugin that comes
    later in the list may have changed them, as `tuning` and `sbr` do.
    """
    found: list[str] = []
    with open_netns(netns, opened) as descriptor, _as_cni_error("reading links"), open_route() as node:
        bridge, port = find_link(node, plan.bridge.name), find_link(node, plan.link)
        if bridge is None or kind_of(bridge) != "bridge":
            found.append(f"bridge {plan.bridge.name} is not there")
        else:
            found += _down(bridge)
            there = _addresses(node, bridge["index"])
            found += [f"bridge {plan.bridge.name} lacks {item}" for item in plan.bridge.addresses if item not in there]
        if port is None:
            found.append(f"{plan.link} is not there")
        else:
            found += _down(port)
            hairpin = bool(port.get_nested("IFLA_LINKINFO", "IFLA_INFO_SLAVE_DATA", "IFLA_BRPORT_MODE"))
            if bridge is not None and port.get("master") != bridge["index"]:
                found.append(f"{plan.link} is not at bridge {plan.bridge.name}")
            elif hairpin != plan.hairpin:
                found.append(f"hairpin mode of {plan.link} is {'on' if hairpin else 'off'}")
        found += _sysctl_differences(plan)
        with inside(descriptor):
            pod = open_route()
        with pod:
            found += _pod_differences(pod, plan)
    return found


def _down(link: Any) -> list[str]:
    return [] if is_up(link) else [f"{link.get('ifname')} is down"]


def _pod_differences(pod: Any, plan: PodPlan) -> list[str]:
    link = find_link(pod, plan.ifname)
    if link is None:
        return [f"{plan.ifname} is not in the container"]
    found, index = _down(link), link["index"]
    there = _addresses(pod, index)
    found += [f"{plan.ifname} lacks {address}" for address in plan.addresses if address not in there]
    routes = {
        (each["family"], each.get("dst"), each["dst_len"], each.get("gateway"), each.get("oif"))
        for family in (socket.AF_INET, socket.AF_INET6)
        for each in pod.get_routes(family=family)
    }
    for route in plan.routes:
        net, gateway = route.destination, str(route.gateway) if route.gateway is not None else None
        family = socket.AF_INET if net.version == 4 else socket.AF_INET6
        destination = str(net.network_address) if net.prefixlen else None
        if (family, destination, net.prefixlen, gateway, index) not in routes:
            found.append(f"route to {net} via {route.gateway or plan.ifname} is not in the container")
    return found


def _sysctl_differences(plan: PodPlan) -> list[str]:
    found = []
    for name, value in plan.sysctls.items():
        try:
            there = _read_file(f"/proc/sys/{name}")
        except FileNotFoundError:
            continue
        if there != value:
            found.append(f"sysctl {name.replace('/', '.')} is {there}, not {value}")
    return found
