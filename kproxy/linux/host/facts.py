"""What a namespace tells of its host: interfaces, addresses, bridge ports, routes, policy rules and sysctls, as the
`Host` of the data-plane model; and its interfaces' addresses, which nodePortAddresses is matched against.

The facts come from `ip -json` of iproute2, whose fields mean what netlink's do; `kproxy.cluster.facts` reads them.
Sysctls come from /proc/sys.
"""

from __future__ import annotations

import socket
from collections.abc import Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import Any, Final

import msgspec

from kproxy.cluster.facts.ip import parse_interfaces, parse_routes, parse_rules, with_family
from kproxy.dataplane.model.host import SHORT_SYSCTLS, Host, local_addresses_of
from kproxy.linux.errors import LinuxError, NamespaceError, ToolFailedError
from kproxy.linux.lazy_import import load
from kproxy.linux.namespace import Namespace
from kproxy.linux.process import run
from kproxy.linux.sysctl import read_sysctl
from kproxy.netfilter.family import Family
from kproxy.services.names import IPFamily

_TIMEOUT: Final = 30.0
_PER_INTERFACE: Final = ("rp_filter", "route_localnet", "accept_local", "forwarding")
_OPTIONS: Final = {Family.IPV4: "-4", Family.IPV6: "-6"}


def read_host(namespace: Namespace) -> Host:
    """Reads all of it.

    Raises:
        LinuxError: something cannot be read.
    """
    interfaces = parse_interfaces(read_json(namespace, "ip", "-json", "-details", "address", "show"))
    routes: list[Mapping[str, Any]] = []
    rules: list[Mapping[str, Any]] = []
    for family, option in _OPTIONS.items():
        routes += with_family(read_json(namespace, "ip", "-json", option, "route", "show", "table", "all"), family)
        rules += with_family(read_json(namespace, "ip", "-json", option, "rule", "show"), family)
    return Host(
        local_addresses=local_addresses_of(interfaces),
        interfaces=MappingProxyType({item.name: item for item in interfaces}),
        routes=parse_routes(routes),
        rules=parse_rules(rules),
        sysctls=MappingProxyType(read_sysctls(namespace, [item.name for item in interfaces])),
    )


def read_link_names(namespace: Namespace) -> list[str]:
    """The names of its links. Raises LinuxError: the kernel does not tell."""
    return [name for _, name in namespace.call(socket.if_nameindex)]


def read_sysctls(namespace: Namespace, interfaces: Iterable[str]) -> dict[str, int]:
    """The sysctls that the model asks for; those that this kernel does not have are left out."""
    names = list(SHORT_SYSCTLS.values())
    found: dict[str, int] = {}
    for name in names:
        _read_one(namespace, name, name, found)
    for interface in interfaces:
        for setting in _PER_INTERFACE:
            _read_one(namespace, f"net/ipv4/conf/{interface}/{setting}", f"net.ipv4.conf.{interface}.{setting}", found)
    return found


def _read_one(namespace: Namespace, path: str, name: str, found: dict[str, int]) -> None:
    try:
        found[name] = int(read_sysctl(namespace, path))
    except (LinuxError, ValueError):
        # Without br_netfilter bridged frames do not come to iptables.
        if name.startswith("net.bridge."):
            found[name] = 0


def read_json(namespace: Namespace, *command: str) -> list[Mapping[str, Any]]:
    """What a command of iproute2 prints with -json. Raises LinuxError."""
    done = run(namespace, command, timeout=_TIMEOUT)
    if done.code:
        raise ToolFailedError(f"{' '.join(command)} failed in {namespace.label}: {done.stderr.strip()}")
    try:
        found = msgspec.json.decode(done.stdout or "[]", type=list[dict[str, Any]])
    except msgspec.DecodeError as error:
        raise ToolFailedError(f"{' '.join(command)} printed something else than JSON: {error}") from error
    return [item for item in found if item]


def interface_addresses(namespace: Namespace, family: IPFamily) -> tuple[str, ...]:
    """The addresses of one family, in the order of interfaces: loopback first.

    Raises:
        LinuxError: they cannot be read.
    """
    number = socket.AF_INET6 if family.is_ipv6 else socket.AF_INET
    try:
        # flags=0: a missing namespace is an error, not something to make.
        with load("pyroute2").IPRoute(netns=namespace.netns, flags=0) as route:
            entries = list(route.get_addr(family=number))
    except FileNotFoundError as error:
        raise NamespaceError(f"{namespace.label} is not there") from error
    except (OSError, load("pyroute2.netlink.exceptions").NetlinkError) as error:
        raise LinuxError(f"cannot read the interface addresses of {namespace.label}: {error}") from error
    found = []
    for entry in sorted(entries, key=lambda entry: int(entry["index"])):
        attributes = dict(entry["attrs"])
        # On a point-to-point interface IFA_ADDRESS is the peer's (rtnetlink(7)).
        address = attributes.get("IFA_LOCAL") or attributes.get("IFA_ADDRESS")
        if address:
            found.append(str(address))
    return tuple(dict.fromkeys(found))


def is_this_node(addresses: Sequence[str], node_ip: str) -> bool:
    """Whether a namespace with these addresses is the node with this IP, so that its addresses are the node's.

    A fresh namespace has none but loopback: then what the Node object tells is the better source. A node IP that is a
    loopback address means that it is unknown; then any address but loopback will do.
    """
    if node_ip in ("127.0.0.1", "::1"):
        return any(not address.startswith(("127.", "fe80:")) and address != "::1" for address in addresses)
    return node_ip in addresses
