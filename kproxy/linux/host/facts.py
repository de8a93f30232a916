"""What a namespace tells of its host: interfaces, addresses, bridge ports, routes, policy rules and sysctls, as the
`Host` of the data-plane model.

The facts come from `ip -json` of iproute2, whose fields mean what netlink's do; `kproxy.cluster.facts` reads them.
Sysctls come from /proc/sys.
"""

from __future__ import annotations

import socket
from collections.abc import Iterable, Mapping
from types import MappingProxyType
from typing import Any, Final

import msgspec

from kproxy.cluster.facts.ip import parse_interfaces, parse_routes, parse_rules, with_family
from kproxy.dataplane.model.host import SHORT_SYSCTLS, Host, local_addresses_of
from kproxy.linux.errors import LinuxError, ToolFailedError
from kproxy.linux.namespace import Namespace
from kproxy.linux.process import run
from kproxy.linux.sysctl import read_sysctl
from kproxy.netfilter.family import Family

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
