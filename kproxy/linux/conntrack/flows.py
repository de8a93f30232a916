"""Connection tracking entries of UDP and SCTP: reading them, deleting single ones, and ending the stale ones.

The conntrack tool reads 7,700 entries in 0.05 s where pyroute2 takes 2.3 s, so it is used if it is installed.
Deleting goes through pyroute2, which takes about a millisecond an entry and no process.

Which entries are stale `cluster.stale_flows` judges. A packet may have been sent to an endpoint by the old rules and
not have its entry yet when the new rules are in and the table is read: the entry would be missed. The kernel handles a
packet from its first hook to its last within one RCU read-side critical section, so an RCU grace period is exactly the
wait that is needed, and membarrier(2)'s MEMBARRIER_CMD_GLOBAL waits for one (the kernel's kernel/sched/membarrier.c
calls synchronize_rcu). That takes some ten milliseconds.
"""

from __future__ import annotations

import ctypes
import platform
import socket
import time
from collections.abc import Iterable
from typing import Any, Final

from kproxy.cluster.facts.conntrack import Flow, parse_flows
from kproxy.cluster.stale_flows import Addresses, StaleFlow, stale_flows
from kproxy.linux.errors import LinuxError, ToolFailedError
from kproxy.linux.host.facts import interface_addresses
from kproxy.linux.lazy_import import load
from kproxy.linux.namespace import Namespace
from kproxy.linux.process import run
from kproxy.linux.programs import find_program
from kproxy.linux.sysctl import SysctlError, read_sysctl
from kproxy.services.names import IPFamily

PROTOCOLS: Final = {"UDP": socket.IPPROTO_UDP, "SCTP": socket.IPPROTO_SCTP}


def read_flows(namespace: Namespace, family: IPFamily, protocols: Iterable[str]) -> list[Flow]:
    """The entries of these protocols.

    Raises:
        LinuxError: they cannot be read.
    """
    read = _read_with_tool if find_program("conntrack") else _read_with_netlink
    return [flow for protocol in protocols for flow in read(namespace, family, protocol)]


def _read_with_tool(namespace: Namespace, family: IPFamily, protocol: str) -> list[Flow]:
    command = ["conntrack", "-L", "-f", family.value.lower(), "-p", protocol.lower()]
    done = run(namespace, command, timeout=60)
    if done.code:
        raise ToolFailedError(f"conntrack -L failed: {' '.join(done.stderr.split())}")
    return list(parse_flows(done.stdout, protocol))


def _read_with_netlink(namespace: Namespace, family: IPFamily, protocol: str) -> list[Flow]:
    library, netlink_error = load("pyroute2.conntrack"), load("pyroute2.netlink.exceptions").NetlinkError

    number = _number(family)
    flows = []
    try:
        with library.Conntrack(nfgen_family=number, netns=namespace.netns, flags=0) as conntrack:
            desired = library.NFCTAttrTuple(family=number, proto=PROTOCOLS[protocol])
            # Not `dump_entries`, which loses the ports of SCTP.
            for message in conntrack.dump(tuple_orig=desired):
                if (
                    message.get_attr("CTA_TUPLE_ORIG").get_attr("CTA_TUPLE_PROTO").get_attr("CTA_PROTO_NUM")
                    == (PROTOCOLS[protocol])
                ):
                    there = _tuple(message.get_attr("CTA_TUPLE_ORIG"), family)
                    flows.append(Flow(protocol, *there, *_tuple(message.get_attr("CTA_TUPLE_REPLY"), family)))
    except (OSError, netlink_error) as error:
        raise LinuxError(f"cannot read the connection tracking table of {namespace.label}: {error}") from error
    return flows


def _tuple(attribute: Any, family: IPFamily) -> tuple[str, int, str, int]:
    """Source and destination of one direction (<linux/netfilter/nfnetlink_conntrack.h>)."""
    ip, ports = attribute.get_attr("CTA_TUPLE_IP"), attribute.get_attr("CTA_TUPLE_PROTO")
    version = "V6" if family.is_ipv6 else "V4"
    return (
        str(ip.get_attr(f"CTA_IP_{version}_SRC")),
        int(ports.get_attr("CTA_PROTO_SRC_PORT")),
        str(ip.get_attr(f"CTA_IP_{version}_DST")),
        int(ports.get_attr("CTA_PROTO_DST_PORT")),
    )


def delete_flows(namespace: Namespace, family: IPFamily, flows: Iterable[Flow]) -> int:
    """Deletes entries; those that are gone already count too. Returns how many there were.

    Raises:
        LinuxError: an entry cannot be deleted.
    """
    flows = list(flows)
    if not flows:
        return 0
    library, netlink_error = load("pyroute2.conntrack"), load("pyroute2.netlink.exceptions").NetlinkError

    number = _number(family)
    try:
        with library.Conntrack(nfgen_family=number, netns=namespace.netns, flags=0) as conntrack:
            for flow in flows:
                original = library.NFCTAttrTuple(
                    family=number,
                    saddr=flow.source,
                    daddr=flow.destination,
                    proto=PROTOCOLS[flow.protocol],
                    sport=flow.source_port,
                    dport=flow.destination_port,
                )
                try:
                    conntrack.entry("del", tuple_orig=original)
                except netlink_error as error:
                    if error.code != 2:  # ENOENT: it has expired meanwhile
                        raise LinuxError(f"cannot delete the connection tracking entry {flow}: {error}") from error
    except OSError as error:  # a namespace that is gone, or a machine so busy that its socket is not there in time
        what = f"cannot delete connection tracking entries of {namespace.label}"
        raise LinuxError(f"{what}: {error}") from error
    return len(flows)


def table_full(namespace: Namespace) -> str:
    """Says so when the connection tracking table is full, since the kernel then drops new connections; "" otherwise."""
    try:
        count = int(read_sysctl(namespace, "net.netfilter.nf_conntrack_count"))
        limit = int(read_sysctl(namespace, "net.netfilter.nf_conntrack_max"))
    except (SysctlError, ValueError):
        return ""
    if count < limit:
        return ""
    return (
        f"the connection tracking table of {namespace.label} is full ({count} of {limit} entries): the kernel drops "
        "new connections whatever the rules; raise net.netfilter.nf_conntrack_max"
    )


def _number(family: IPFamily) -> int:
    return int(socket.AF_INET6 if family.is_ipv6 else socket.AF_INET)


PASSES: Final = 3
"""Reading the table gives no snapshot, and where entries come and go one can be missed: so it is read again after
entries were deleted."""
_COMMAND_GLOBAL: Final = 1
_NUMBERS: Final = {"x86_64": 324, "aarch64": 283, "riscv64": 283, "ppc64le": 365, "s390x": 356}
_ENOUGH: Final = 0.05
"""Seconds to wait where the kernel does not offer it: longer than a processor stays in one packet, unless a hypervisor
takes it away."""

_libc = ctypes.CDLL(None, use_errno=True)


def wait_for_packets() -> bool:
    """Returns when every packet that was being handled by the kernel has been; False if that had to be guessed."""
    number = _NUMBERS.get(platform.machine())
    if number is not None and _libc.syscall(number, _COMMAND_GLOBAL, 0, 0) == 0:
        return True
    time.sleep(_ENOUGH)
    return False


def clean_flows(
    namespace: Namespace,
    family: IPFamily,
    desired: Addresses,
    before: Addresses,
    *,
    dry_run: bool = False,
    endpoints: frozenset[str] | None = None,
) -> list[StaleFlow]:
    """Deletes the stale entries of a namespace, and returns them.

    Args:
        endpoints: only entries that lead to one of these.

    Raises:
        LinuxError: entries cannot be read or deleted.
    """
    protocols = sorted({protocol for protocol, _, _ in (*desired.services, *before.services)})
    found: list[StaleFlow] = []
    if protocols and not dry_run:
        wait_for_packets()
    for _ in range(1 if dry_run else PASSES):
        flows = read_flows(namespace, family, protocols) if protocols else []
        if endpoints is not None:
            flows = [flow for flow in flows if flow.endpoint in endpoints]
        stale = stale_flows(flows, desired, before, interface_addresses(namespace, family)) if flows else []
        if not stale:
            break
        found += stale
        if not dry_run:
            delete_flows(namespace, family, [each.flow for each in stale])
    return found
