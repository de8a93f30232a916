"""Carries out port mappings with iptables-save and iptables-restore in the namespace of the calling thread."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Final

from kproxy.linux.errors import LinuxError
from kproxy.linux.namespace import Namespace
from kproxy.linux.process import run
from kproxy.linux.programs import find_program
from kproxy.overlay.errors import CniError, Code
from kproxy.overlay.ipam import Lease
from kproxy.overlay.netconf import PortMapping
from kproxy.overlay.portmap import missing_mappings, plan_mapping, plan_unmapping

_FAMILIES: Final = {4: "iptables", 6: "ip6tables"}
_TIMEOUT: Final = 30.0
_LOCK_WAIT: Final = "10"


def program(version: int, variant: str, action: str) -> str:
    """The path of iptables-save or -restore of a family and variant (`auto`, `nft`, `legacy`). Raises CniError."""
    name = f"{_FAMILIES[version]}-{action}" if variant == "auto" else f"{_FAMILIES[version]}-{variant}-{action}"
    found = find_program(name)
    if found is None:
        raise CniError(Code.PORT_MAPPING_FAILED, "port mappings need iptables", f"{name} is not installed")
    return found


def map_ports(network: str, key: str, leases: Sequence[Lease], ports: Sequence[PortMapping], variant: str) -> None:
    """Adds an attachment's port mappings; what is there of them already is put right. Raises CniError."""
    for version in _FAMILIES:
        if any(port.host_ip is None or port.host_ip.version == version for port in ports) and any(
            lease.range.version == version for lease in leases
        ):
            text = plan_mapping(_save(version, variant), network, key, leases, ports, version)
            _restore(version, variant, text)
            _forget_udp(version, ports)


def unmap_ports(chains: Sequence[str], variant: str) -> None:
    """Removes the mappings of attachments, by their chains; nothing if there are none. Raises CniError."""
    for version in _FAMILIES:
        text = plan_unmapping(_save(version, variant), chains)
        if text:
            _restore(version, variant, text)


def check_ports(
    network: str, key: str, leases: Sequence[Lease], ports: Sequence[PortMapping], variant: str
) -> list[str]:
    """What CHECK finds of port mappings, in words. Raises CniError."""
    found = []
    for version in sorted({lease.range.version for lease in leases}):
        found += missing_mappings(_save(version, variant), network, key, leases, ports, version)
    return found


def _run(command: list[str], text: str = "") -> str:
    what = f"{os.path.basename(command[0])} failed"
    try:
        done = run(Namespace.current(), command, text=text, timeout=_TIMEOUT)
    except LinuxError as error:
        raise CniError(Code.PORT_MAPPING_FAILED, what, str(error)) from error
    if done.code:
        raise CniError(Code.PORT_MAPPING_FAILED, what, done.reason)
    return done.stdout


def _save(version: int, variant: str) -> str:
    return "\n" + _run([program(version, variant, "save"), "-t", "nat"])


def _restore(version: int, variant: str, text: str) -> None:
    _run([program(version, variant, "restore"), "--noflush", "-w", _LOCK_WAIT], text)


def _forget_udp(version: int, ports: Sequence[PortMapping]) -> None:
    """Removes flows to UDP host ports from before the mapping: they would go on past the new rule."""
    path = find_program("conntrack")
    for port in dict.fromkeys(port.host_port for port in ports if port.protocol == "udp") if path else ():
        family = "ipv4" if version == 4 else "ipv6"
        command = [str(path), "-D", "-f", family, "-p", "udp", "--orig-port-dst", str(port)]
        run(Namespace.current(), command, timeout=_TIMEOUT)
