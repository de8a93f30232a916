"""Port mappings as iptables rules, with the chains and the meaning of CNI's portmap plugin.

    PREROUTING, OUTPUT (to a local address) ─> CNI-HOSTPORT-DNAT ─> CNI-DN-xxx (one per attachment) ─> DNAT
    POSTROUTING ─> CNI-HOSTPORT-MASQ: masquerades what a CNI-DN chain marked: a pod to itself, and the node's 127.0.0.1

A plan is the text for `iptables-restore --noflush`, made from what `iptables-save -t nat` printed, so that only what
lacks is added and what is there twice goes. Bit 0x2000 is the plugin's; kube-proxy uses 0x4000 and 0x8000.
"""

from __future__ import annotations

import hashlib
import ipaddress
import re
from collections.abc import Iterator, Sequence
from typing import Final

from kproxy.overlay.ipam import Lease
from kproxy.overlay.netconf import PortMapping

DNAT: Final = "CNI-HOSTPORT-DNAT"
MASQ: Final = "CNI-HOSTPORT-MASQ"
SETMARK: Final = "CNI-HOSTPORT-SETMARK"
_MARK: Final = "0x2000/0x2000"
_MAX_PORTS: Final = 15
"""xt_multiport takes no more in a rule."""
_LONGEST_COMMENT: Final = 255
_JUMPS: Final = (
    ("PREROUTING", f"-m addrtype --dst-type LOCAL -j {DNAT}"),
    ("OUTPUT", f"-m addrtype --dst-type LOCAL -j {DNAT}"),
    ("POSTROUTING", f'-m comment --comment "CNI portfwd requiring masquerade" -j {MASQ}'),
)
_BASE: Final = (
    (MASQ, f"-m mark --mark {_MARK} -j MASQUERADE"),
    (SETMARK, f'-m comment --comment "CNI portfwd masquerade mark" -j MARK --set-xmark {_MARK}'),
)


def chain_name(network: str, key: str) -> str:
    """The chain of an attachment's mappings, at most 28 characters as xtables demands."""
    return "CNI-DN-" + hashlib.sha512((network + key).encode()).hexdigest()[:21]


def has_mapping(saved: str, chain: str) -> bool:
    """Whether a save of the nat table knows the chain."""
    return f"\n:{chain} " in saved


def plan_mapping(
    saved: str, network: str, key: str, leases: Sequence[Lease], ports: Sequence[PortMapping], version: int
) -> str:
    """The restore text that maps ports to the pod's address of one family; "" if none concerns it."""
    lease, mine = _concerned(leases, ports, version)
    if lease is None or not mine:
        return ""
    chain = chain_name(network, key)
    there = set(saved.splitlines())
    lines = ["*nat"]
    absent = (name for name in (DNAT, MASQ, SETMARK) if not any(line.startswith(f":{name} ") for line in there))
    lines += [f":{name} - [0:0]" for name in absent]
    # Naming a chain empties it, so what a killed ADD left of it goes.
    lines.append(f":{chain} - [0:0]")
    lines += _dispatch_removals(saved, chain)
    lines += [f"-A {name} {rule}" for name, rule in (*_JUMPS, *_BASE) if f"-A {name} {rule}" not in there]
    said = f'dnat name: "{network}" id: "{key}"'[:_LONGEST_COMMENT].replace("\\", "\\\\").replace('"', '\\"')
    comment = f'-m comment --comment "{said}"'
    for protocol in dict.fromkeys(port.protocol for port in mine):
        numbers = list(dict.fromkeys(port.host_port for port in mine if port.protocol == protocol))
        for start in range(0, len(numbers), _MAX_PORTS):
            group = ",".join(map(str, numbers[start : start + _MAX_PORTS]))
            lines.append(f"-A {DNAT} -p {protocol} {comment} -m multiport --dports {group} -j {chain}")
    lines += [f"-A {chain} {rule}" for port in mine for rule in _rules(port, lease)]
    return "\n".join([*lines, "COMMIT", ""])


def _concerned(
    leases: Sequence[Lease], ports: Sequence[PortMapping], version: int
) -> tuple[Lease | None, list[PortMapping]]:
    """The address of a family, and the mappings that lead to it."""
    lease = next((item for item in leases if item.range.version == version), None)
    return lease, [port for port in ports if port.host_ip is None or port.host_ip.version == version]


def _rules(port: PortMapping, lease: Lease) -> Iterator[str]:
    host = f"-d {port.destination} " if port.destination is not None else ""
    match = f"-p {port.protocol} -m {port.protocol} --dport {port.host_port}"
    yield f"-s {lease.range.subnet} {host}{match} -j {SETMARK}"
    if lease.range.version == 4:
        yield f"-s 127.0.0.1/32 {host}{match} -j {SETMARK}"
    target = f"[{lease.address}]" if lease.range.version == 6 else f"{lease.address}"
    yield f"{host}{match} -j DNAT --to-destination {target}:{port.container_port}"


def _dispatch_removals(saved: str, chain: str) -> list[str]:
    lines = (line for line in saved.splitlines() if line.startswith(f"-A {DNAT} "))
    return [f"-D{line[2:]}" for line in lines if line.endswith(f" -j {chain}")]


def plan_unmapping(saved: str, chains: Sequence[str]) -> str:
    """The restore text that takes attachments' mappings away; "" if there are none. The base chains stay."""
    gone = [chain for chain in chains if has_mapping(saved, chain)]
    if not gone:
        return ""
    lines = ["*nat"]
    for chain in gone:
        lines += [*_dispatch_removals(saved, chain), f":{chain} - [0:0]", f"-X {chain}"]
    return "\n".join([*lines, "COMMIT", ""])


def missing_mappings(
    saved: str, network: str, key: str, leases: Sequence[Lease], ports: Sequence[PortMapping], version: int
) -> list[str]:
    """What CHECK finds of a family's mappings, in words; [] if all are there."""
    lease, mine = _concerned(leases, ports, version)
    if lease is None or not mine:
        return []
    chain = chain_name(network, key)
    jumps = [line for line in saved.splitlines() if line.startswith(f"-A {DNAT} ") and line.endswith(f"-j {chain}")]
    rules = [line for line in saved.splitlines() if line.startswith(f"-A {chain} ")]
    found = []
    for port in mine:
        reached = any(
            f"-p {port.protocol} " in line and str(port.host_port) in re.split(r"[ ,]", line) for line in jumps
        )
        target = f"[{lease.address}]" if version == 6 else f"{lease.address}"
        translated = any(
            f"-p {port.protocol} " in line
            and f"--dport {port.host_port} " in line
            and line.endswith(f"--to-destination {target}:{port.container_port}")
            and _destination(line) == port.destination
            for line in rules
        )
        if not reached or not translated:
            found.append(f"port mapping {port} to {target}:{port.container_port} is not in iptables")
    bases = [f"-A {name} {rule}" for name, rule in _JUMPS if f"-A {name} {rule}" not in saved.splitlines()]
    return found + [f"rule {line!r} is not in iptables" for line in bases]


def _destination(line: str) -> object:
    found = re.search(r"-d (\S+)", line)
    return ipaddress.ip_interface(found[1]).ip if found else None
