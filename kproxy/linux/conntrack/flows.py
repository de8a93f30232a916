"""Connection tracking entries: reading those of UDP and SCTP, and deleting single ones.

The conntrack tool reads 7,700 entries in 0.05 s where pyroute2 takes 2.3 s, so it is used if it is installed.
Deleting goes through pyroute2, which takes about a millisecond an entry and no process.
"""

from __future__ import annotations

import socket
from collections.abc import Iterable
from typing import Any, Final

from kproxy.cluster.facts.conntrack import Flow, parse_flows
from kproxy.linux.errors import LinuxError, ToolFailedError
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
