"""nfacct objects: named counters in the kernel that `-m nfacct` rules add to. A rule cannot name one that is not there.

Spoken directly in netlink (nfnetlink_acct, <linux/netfilter/nfnetlink_acct.h>), since pyroute2 has no such socket and
the nfacct tool is seldom installed.
"""

from __future__ import annotations

import errno
import os
import struct
from typing import Final

from kproxy.linux.errors import FeatureMissingError, PrivilegeError
from kproxy.linux.namespace import Namespace
from kproxy.linux.nfnetlink import ask, attribute, error_of

NFACCT_NAMES: Final = ("ct_state_invalid_dropped_pkts", "localhost_nps_accepted_pkts")
"""The counters that kube-proxy's rules name (1.31 and later)."""

_SUBSYSTEM: Final = 7 << 8  # NFNL_SUBSYS_ACCT
_NEW, _GET, _DELETE = 0, 1, 3  # NFNL_MSG_ACCT_NEW, NFNL_MSG_ACCT_GET, NFNL_MSG_ACCT_DEL
_PACKETS: Final = 2  # NFACCT_PKTS, 64 bits in network order
_ACK, _CREATE, _EXCL = 0x4, 0x400, 0x200


def ensure_counters(namespace: Namespace, names: tuple[str, ...] = NFACCT_NAMES) -> None:
    """Makes the counters that do not exist yet.

    Raises:
        FeatureMissingError: the kernel has no nfacct.
        PrivilegeError: it needs root.
    """
    for name in names:
        code = namespace.call(_request, _NEW, _CREATE | _EXCL, name)
        if code == errno.EPERM:
            raise PrivilegeError(f"cannot make the nfacct counter {name}: it needs root")
        if code not in (0, errno.EEXIST):
            raise FeatureMissingError(f"cannot make the nfacct counter {name}: {os.strerror(code)}")


def delete_counters(namespace: Namespace, names: tuple[str, ...] = NFACCT_NAMES) -> list[str]:
    """Deletes the counters that exist and that no rule uses; returns their names."""
    return [name for name in names if namespace.call(_request, _DELETE, 0, name) == 0]


def read_packets(namespace: Namespace, names: tuple[str, ...] = NFACCT_NAMES) -> dict[str, int]:
    """How many packets each counter has counted; those that do not exist are left out."""
    found: dict[str, int] = {}
    for name in names:
        packets = namespace.call(_packets, name)
        if packets is not None:
            found[name] = packets
    return found


def _packets(name: str) -> int | None:
    try:
        answer = ask(_SUBSYSTEM | _GET, 0, name)
    except OSError:
        return None
    if struct.unpack_from("=H", answer, 4)[0] != _SUBSYSTEM | _NEW:
        return None
    value = attribute(answer, _PACKETS)
    return None if value is None else int(struct.unpack(">Q", value)[0])


def _request(kind: int, flags: int, name: str) -> int:
    """Sends one request and returns the errno that the kernel answers with, 0 if it agreed."""
    try:
        return error_of(ask(_SUBSYSTEM | kind, flags | _ACK, name))
    except OSError as error:
        return error.errno or errno.EIO
