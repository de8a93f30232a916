"""Carries out the plan of one attachment, and reads it back: bridge, veth pair, addresses, routes, sysctls.

Call these from a thread that is in the node's network namespace. Everything may be done again: what is there already is
left alone, and what an ADD that was killed left of the same attachment is deleted first.
"""

from __future__ import annotations

import contextlib
import errno
import os
import socket
from collections.abc import Iterator, Mapping

from kproxy.linux.rtnetlink import KernelRoute, Link, NetlinkError, Rtnetlink, inside
from kproxy.overlay.attach import BridgePlan, PodPlan
from kproxy.overlay.errors import CniError, Code
from kproxy.overlay.netconf import Route


@contextlib.contextmanager
def open_netns(path: str) -> Iterator[int]:
    """An open descriptor of a pod's namespace.

    Raises:
        CniError: UNKNOWN_CONTAINER if it is not there; INVALID_ENVIRONMENT if it is none, or the plugin's own.
    """
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
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
def _told(what: str) -> Iterator[None]:
    """Turns the kernel's refusals into CNI errors."""
    try:
        yield
    except OSError as error:
        if error.errno in (errno.EPERM, errno.EACCES):
            raise CniError(Code.NOT_PERMITTED, f"{what}: not permitted", "the plugin needs root") from error
        raise CniError(Code.KERNEL_REFUSED, f"{what} failed", error.strerror or str(error)) from error


def attach(plan: PodPlan, netns: str) -> None:
    """Makes an attachment.

    Raises:
        CniError: what failed; what was made until then may remain, and `detach` removes it.
    """
    with open_netns(netns) as descriptor, _told("opening rtnetlink"), Rtnetlink() as node:
        with _told(f"deleting what was left of {plan.link}"):
            node.delete_link(plan.link)
        bridge = ensure_bridge(node, plan.bridge)
        with _told("setting sysctls"):
            _write_sysctls(plan.sysctls, plan.optional)
        with _told(f"entering {netns}"), inside(descriptor):
            pod = Rtnetlink()
        with pod:
            if pod.link(plan.ifname) is not None:
                raise CniError(
                    Code.NAME_TAKEN, "the interface name is taken in the container", f"{plan.ifname} in {netns}"
                )
            with _told(f"making the veth pair {plan.link}"):
                node.add_veth(plan.link, plan.link_mac, plan.mtu, bridge.index, (plan.ifname, plan.mac, descriptor))
            with _told(f"bringing {plan.link} up"):
                port = node.link(plan.link)
                if port is None:
                    raise NetlinkError(errno.ENODEV, "it vanished again")
                if plan.hairpin:
                    node.set_hairpin(port.index, True)
                node.set_link(port.index)
            with _told(f"entering {netns}"), inside(descriptor):
                _skip_dad(plan.ifname)
            _configure_pod(pod, plan)


def ensure_bridge(node: Rtnetlink, plan: BridgePlan) -> Link:
    """The bridge with its addresses, made if it is not there. Raises CniError."""
    with _told(f"making the bridge {plan.name}"):
        link = node.link(plan.name)
        if link is None:
            try:
                node.add_bridge(plan.name, plan.mac)
                _skip_dad(plan.name)
            except NetlinkError as error:
                if error.errno != errno.EEXIST:  # another ADD was quicker
                    raise
            link = node.link(plan.name)
        if link is None:
            raise NetlinkError(errno.ENODEV, "it vanished again")
        if link.kind != "bridge":
            raise CniError(
                Code.NAME_TAKEN, "the bridge's name is taken", f"{plan.name} is of kind {link.kind or 'hardware'}"
            )
        if not link.up or (plan.mtu and link.mtu != plan.mtu):
            node.set_link(link.index, plan.mtu)
        if plan.addresses:
            there = node.addresses(link.index)
            for address in plan.addresses:
                if address not in there:
                    node.add_address(link.index, address)
    return link


def _configure_pod(pod: Rtnetlink, plan: PodPlan) -> None:
    with _told(f"configuring {plan.ifname}"):
        loopback, link = pod.link("lo"), pod.link(plan.ifname)
        if loopback is None or link is None:
            raise NetlinkError(errno.ENODEV, "the interface vanished again")
        pod.set_link(loopback.index)
        pod.set_link(link.index)
        for address in plan.addresses:
            pod.add_address(link.index, address)
    for route in plan.routes:
        with _told(f"adding the route to {route.destination}"):
            pod.add_route(kernel_route(route, link.index))


def kernel_route(route: Route, index: int) -> KernelRoute:
    """A planned route as the kernel knows it."""
    scope = route.scope if route.scope is not None else (0 if route.gateway is not None else 253)
    return KernelRoute(
        str(route.destination),
        str(route.gateway) if route.gateway is not None else "",
        index,
        route.table or 254,
        route.priority,
        route.mtu,
        route.advmss,
        scope,
    )


def _skip_dad(name: str) -> None:
    """Lets an interface that is down use its link-local IPv6 address as soon as it is up.

    Duplicate address detection would hold it back for a second or two, and with it every neighbour solicitation for
    packets that the node forwards. The addresses are ours to give, so there are no duplicates.
    """
    try:
        with open(f"/proc/sys/net/ipv6/conf/{name}/accept_dad", "w", encoding="ascii") as file:
            file.write("0")
    except FileNotFoundError:
        return  # a kernel without IPv6


def _write_sysctls(wanted: Mapping[str, str], optional: frozenset[str]) -> None:
    for name, value in wanted.items():
        path = f"/proc/sys/{name}"
        try:
            with open(path, encoding="ascii") as file:
                if file.read().strip() == value:
                    continue
            with open(path, "w", encoding="ascii") as file:
                file.write(value)
        except FileNotFoundError:
            if name not in optional:
                raise


def detach(link: str) -> None:
    """Deletes an attachment's veth pair, both ends of it; nothing if it is not there. Raises CniError."""
    with _told(f"deleting {link}"), Rtnetlink() as node:
        node.delete_link(link)


def check(plan: PodPlan, netns: str) -> list[str]:
    """How the kernel differs from the plan, in words; [] if it does not. Raises CniError."""
    found: list[str] = []
    with open_netns(netns) as descriptor, _told("reading links"), Rtnetlink() as node:
        bridge, port = node.link(plan.bridge.name), node.link(plan.link)
        if bridge is None or bridge.kind != "bridge":
            found.append(f"bridge {plan.bridge.name} is not there")
        else:
            found += _link_differences(bridge, "", plan.bridge.mtu)
            there = node.addresses(bridge.index)
            found += [f"bridge {bridge.name} lacks {item}" for item in plan.bridge.addresses if item not in there]
        if port is None:
            found.append(f"{plan.link} is not there")
        else:
            found += _link_differences(port, plan.link_mac, plan.mtu)
            if bridge is not None and port.master != bridge.index:
                found.append(f"{plan.link} is not at bridge {bridge.name}")
            elif port.hairpin != plan.hairpin:
                found.append(f"hairpin mode of {plan.link} is {'on' if port.hairpin else 'off'}")
        found += _sysctl_differences(plan)
        with inside(descriptor):
            pod = Rtnetlink()
        with pod:
            found += _pod_differences(pod, plan)
    return found


def _link_differences(link: Link, mac: str, mtu: int) -> list[str]:
    found = [] if link.up else [f"{link.name} is down"]
    if mac and link.mac != mac:
        found.append(f"{link.name} has MAC {link.mac}, not {mac}")
    if mtu and link.mtu != mtu:
        found.append(f"{link.name} has MTU {link.mtu}, not {mtu}")
    return found


def _pod_differences(pod: Rtnetlink, plan: PodPlan) -> list[str]:
    link = pod.link(plan.ifname)
    if link is None:
        return [f"{plan.ifname} is not in the container"]
    found = _link_differences(link, plan.mac, plan.mtu)
    there = pod.addresses(link.index)
    found += [f"{plan.ifname} lacks {address}" for address in plan.addresses if address not in there]
    routes: dict[int, list[KernelRoute]] = {}
    for route in plan.routes:
        family = socket.AF_INET if route.destination.version == 4 else socket.AF_INET6
        if family not in routes:
            routes[family] = pod.routes(family)
        if not any(_same_route(kernel_route(route, link.index), item) for item in routes[family]):
            found.append(f"route to {route.destination} via {route.gateway or plan.ifname} is not in the container")
    return found


def _same_route(wanted: KernelRoute, there: KernelRoute) -> bool:
    same = (wanted.destination, wanted.gateway, wanted.index, wanted.table, wanted.mtu, wanted.advmss) == (
        there.destination,
        there.gateway,
        there.index,
        there.table,
        there.mtu,
        there.advmss,
    )
    # IPv6 routes have no scope, and a metric of 1024 if none is given.
    ipv6 = ":" in wanted.destination
    return (
        same
        and (wanted.priority == there.priority or (ipv6 and not wanted.priority))
        and (ipv6 or wanted.scope == there.scope)
    )


def _sysctl_differences(plan: PodPlan) -> list[str]:
    found = []
    for name, value in plan.sysctls.items():
        try:
            with open(f"/proc/sys/{name}", encoding="ascii") as file:
                there = file.read().strip()
        except FileNotFoundError:
            continue
        if there != value:
            found.append(f"sysctl {name.replace('/', '.')} is {there}, not {value}")
    return found
