"""Carries out the plan of one attachment, and reads it back: bridge, veth pair, addresses, routes, sysctls.

Call these from a thread that is in the node's network namespace. Everything may be done again: what is there already is
left alone, and what an ADD that was killed left of the same attachment is deleted. An attachment takes five messages to
the kernel if its bridge is there: each costs a system call and a turn at the one lock that all of rtnetlink has.
"""

from __future__ import annotations

import contextlib
import errno
import os
import socket
from collections.abc import Iterator, Mapping

from kproxy.linux.pod.rtnetlink import (
    KernelRoute,
    Link,
    NetlinkError,
    Request,
    Rtnetlink,
    add_address,
    add_route,
    add_veth,
    inside,
    set_link,
    set_port,
)
from kproxy.overlay.attach import BridgePlan, PodPlan
from kproxy.overlay.errors import CniError, Code
from kproxy.overlay.netconf import Route


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
    except OSError as error:
        if error.errno in (errno.EPERM, errno.EACCES):
            raise CniError(Code.NOT_PERMITTED, f"{what}: not permitted", "the plugin needs root") from error
        raise CniError(Code.KERNEL_REFUSED, f"{what} failed", error.strerror or str(error)) from error


def attach(plan: PodPlan, netns: str, opened: int | None = None) -> None:
    """Makes an attachment in the namespace `netns`, of which `opened` is a descriptor if the path is not to be opened.

    Raises:
        CniError: what failed; what was made until then may remain, and `detach` removes it.
    """
    with open_netns(netns, opened) as descriptor, _as_cni_error("opening rtnetlink"), Rtnetlink() as node:
        bridge = ensure_bridge(node, plan.bridge)
        with _as_cni_error("setting sysctls"):
            _write_sysctls(plan.sysctls, plan.optional)
        _make_veth(node, plan, bridge, descriptor, netns)
        with _as_cni_error(f"entering {netns}"), inside(descriptor):
            _prepare_ipv6(plan.ifname, plan.addresses)
            pod = Rtnetlink()
        with pod:
            _configure_pod(pod, plan)


def _make_veth(node: Rtnetlink, plan: PodPlan, bridge: Link, descriptor: int, netns: str) -> None:
    asks = [
        add_veth(plan.link, plan.link_mac, plan.mtu, bridge.ifindex, (plan.ifname, plan.mac, descriptor)),
        set_port(plan.link, plan.hairpin),
    ]
    for again in (False, True):
        try:
            node.carry_out(asks)
            return
        except NetlinkError as error:
            # Which of both names was taken, the kernel does not say. The node's end is ours alone: of an ADD that was
            # killed, or of the container's interface, which keeps its name for it.
            if error.errno == errno.EEXIST and error.index == 0:
                if not again and node.link(plan.link) is not None:
                    with _as_cni_error(f"deleting what was left of {plan.link}"):
                        node.delete_link(plan.link)
                    continue
                raise CniError(
                    Code.NAME_TAKEN, "the interface name is taken in the container", f"{plan.ifname} in {netns}"
                ) from error
            with _as_cni_error(f"{'bringing up' if error.index else 'making'} the veth pair {plan.link}"):
                raise


def ensure_bridge(node: Rtnetlink, plan: BridgePlan) -> Link:
    """The bridge with its addresses, made if it is not there. Raises CniError."""
    with _as_cni_error(f"making the bridge {plan.name}"):
        link = node.link(plan.name)
        if link is None:
            try:
                node.add_bridge(plan.name, plan.mac)
                _prepare_ipv6(plan.name, plan.addresses)
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
            node.set_link(plan.name, plan.mtu)
        if plan.addresses:
            there = node.addresses(link.ifindex)
            for address in plan.addresses:
                if address not in there:
                    node.add_address(link.ifindex, address)
    return link


def _configure_pod(pod: Rtnetlink, plan: PodPlan) -> None:
    with _as_cni_error(f"configuring {plan.ifname}"):
        pod.carry_out([set_link("lo"), set_link(plan.ifname)])
        link = pod.link(plan.ifname)
        if link is None:
            raise NetlinkError(errno.ENODEV, "the interface vanished again")
    steps: list[tuple[str, Request]] = [
        (f"adding {address} to {plan.ifname}", add_address(link.ifindex, address)) for address in plan.addresses
    ]
    steps += [
        (f"adding the route to {route.destination}", add_route(kernel_route(route, link.ifindex)))
        for route in plan.routes
    ]
    try:
        pod.carry_out([ask for _, ask in steps])
    except NetlinkError as error:
        with _as_cni_error(steps[error.index][0]):
            raise


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
    with _as_cni_error(f"deleting {link}"), Rtnetlink() as node:
        node.delete_link(link)


def check(plan: PodPlan, netns: str, opened: int | None = None) -> list[str]:
    """How the kernel differs from the plan, in words; [] if it does not. Raises CniError.

    MTUs and MACs are not compared, nor what a route has beside destination, gateway and interface: a plugin that comes
    later in the list may have changed them, as `tuning` and `sbr` do.
    """
    found: list[str] = []
    with open_netns(netns, opened) as descriptor, _as_cni_error("reading links"), Rtnetlink() as node:
        bridge, port = node.link(plan.bridge.name), node.link(plan.link)
        if bridge is None or bridge.kind != "bridge":
            found.append(f"bridge {plan.bridge.name} is not there")
        else:
            found += _down(bridge)
            there = node.addresses(bridge.ifindex)
            found += [f"bridge {bridge.name} lacks {item}" for item in plan.bridge.addresses if item not in there]
        if port is None:
            found.append(f"{plan.link} is not there")
        else:
            found += _down(port)
            if bridge is not None and port.master != bridge.ifindex:
                found.append(f"{plan.link} is not at bridge {bridge.name}")
            elif port.hairpin != plan.hairpin:
                found.append(f"hairpin mode of {plan.link} is {'on' if port.hairpin else 'off'}")
        found += _sysctl_differences(plan)
        with inside(descriptor):
            pod = Rtnetlink()
        with pod:
            found += _pod_differences(pod, plan)
    return found


def _down(link: Link) -> list[str]:
    return [] if link.up else [f"{link.name} is down"]


def _pod_differences(pod: Rtnetlink, plan: PodPlan) -> list[str]:
    link = pod.link(plan.ifname)
    if link is None:
        return [f"{plan.ifname} is not in the container"]
    found = _down(link)
    there = pod.addresses(link.ifindex)
    found += [f"{plan.ifname} lacks {address}" for address in plan.addresses if address not in there]
    routes: dict[int, list[KernelRoute]] = {}
    for route in plan.routes:
        family = socket.AF_INET if route.destination.version == 4 else socket.AF_INET6
        if family not in routes:
            routes[family] = pod.routes(family)
        if not any(_same_route(kernel_route(route, link.ifindex), item) for item in routes[family]):
            found.append(f"route to {route.destination} via {route.gateway or plan.ifname} is not in the container")
    return found


def _same_route(desired: KernelRoute, there: KernelRoute) -> bool:
    return (desired.destination, desired.gateway, desired.ifindex) == (there.destination, there.gateway, there.ifindex)


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
