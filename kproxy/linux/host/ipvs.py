"""The virtual servers of IPVS in a namespace, by netlink (<linux/ip_vs.h>)."""

from __future__ import annotations

import os
import socket
from collections.abc import Iterable, Mapping
from typing import Any, Final

from kproxy.linux.errors import LinuxError
from kproxy.linux.lazy_import import load
from kproxy.linux.namespace import Namespace
from kproxy.netfilter.ipvs.read import Listed
from kproxy.netfilter.ipvs.server import RealServer, VirtualServer

_LIST: Final = "/proc/thread-self/net/ip_vs"
_PROTOCOLS: Final = {socket.IPPROTO_TCP: "tcp", socket.IPPROTO_UDP: "udp", socket.IPPROTO_SCTP: "sctp"}
_PERSISTENT: Final = 0x1  # IP_VS_SVC_F_PERSISTENT
_SCHEDULER_FLAGS: Final = {0x8: ("fallback", 1), 0x10: ("port", 2), 0x20: ("", 3)}  # IP_VS_SVC_F_SCHED1 to 3
_HASHES: Final = ("sh", "mh")
_FORWARDING: Final = {0: "m", 1: "m", 2: "i", 3: "g"}  # IP_VS_CONN_F_MASQ, LOCALNODE, TUNNEL, DROUTE


def read_ipvs(namespace: Namespace) -> Listed | None:
    """The virtual and real servers, in the kernel's order; None where the kernel has no IPVS.

    Raises:
        LinuxError: they cannot be read.
    """
    if not namespace.call(os.path.exists, _LIST):
        return None
    library, netlink_error = load("pyroute2"), load("pyroute2.netlink.exceptions").NetlinkError
    try:
        with library.IPVS(netns=namespace.netns, flags=0) as kernel:
            return listed(
                (_attributes(each, "SERVICE"), [_attributes(one, "DEST") for one in _real_servers(kernel, each)])
                for each in kernel.service("dump")
            )
    except (OSError, netlink_error) as error:
        raise LinuxError(f"cannot read the virtual servers of {namespace.label}: {error}") from error


def _real_servers(kernel: Any, service: Any) -> Iterable[Any]:
    found: Iterable[Any] = kernel.dest("dump", service=load("pyroute2").IPVSService.from_message(service))
    return found


def _attributes(message: Any, what: str) -> dict[str, Any]:
    """The attributes of a message, by the ends of their names."""
    return {name.partition("_ATTR_")[2]: value for name, value in message.get(f"IPVS_CMD_ATTR_{what}")["attrs"]}


def listed(found: Iterable[tuple[Mapping[str, Any], Iterable[Mapping[str, Any]]]]) -> Listed:
    """The servers of the kernel's attributes: of each virtual server, and of its real ones."""
    servers = Listed({})
    for service, real in found:
        if "FWMARK" in service:
            servers.by_mark += 1
            continue
        flags = int(service["FLAGS"]["flags"])
        scheduler = str(service["SCHED_NAME"])
        server = VirtualServer(
            _PROTOCOLS[int(service["PROTOCOL"])],
            str(service["ADDR"]),
            int(service["PORT"]),
            scheduler,
            int(service["TIMEOUT"]) if flags & _PERSISTENT else 0,
            tuple(_flag(scheduler, name, number) for bit, (name, number) in _SCHEDULER_FLAGS.items() if flags & bit),
        )
        servers.servers[server] = [
            RealServer(
                str(each["ADDR"]), int(each["PORT"]), int(each["WEIGHT"]), _FORWARDING[int(each["FWD_METHOD"]) & 7],
                int(each["ACTIVE_CONNS"]), int(each["INACT_CONNS"]),
            )
            for each in real
        ]  # fmt: skip
    return servers


def _flag(scheduler: str, name: str, number: int) -> str:
    """A flag of a scheduler as ipvsadm names it: `mh-port`, or `flag-3` of those that it has no name for."""
    return f"{scheduler}-{name}" if name and scheduler in _HASHES else f"flag-{number}"
