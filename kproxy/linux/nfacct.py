"""nfacct objects: named counters in the kernel that `-m nfacct` rules add to. A rule cannot name one that is not there.

Spoken directly in netlink (nfnetlink_acct, <linux/netfilter/nfnetlink_acct.h>), since pyroute2 has no such socket and
the nfacct tool is seldom installed.
"""

from __future__ import annotations

import errno
import os
import socket
import struct
from typing import Final

from kproxy.linux.errors import FeatureMissingError, PrivilegeError
from kproxy.linux.namespace import Namespace

NFACCT_NAMES: Final = ("ct_state_invalid_dropped_pkts", "localhost_nps_accepted_pkts")
"""The counters that kube-proxy's rules name (1.31 and later)."""

_NETLINK_NETFILTER: Final = 12
_SUBSYSTEM: Final = 7 << 8  # NFNL_SUBSYS_ACCT
_NEW, _DELETE = 0, 3  # NFNL_MSG_ACCT_NEW, NFNL_MSG_ACCT_DEL
_REQUEST, _ACK, _CREATE, _EXCL = 0x1, 0x4, 0x400, 0x200
_ERROR: Final = 2  # NLMSG_ERROR


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


def _request(kind: int, flags: int, name: str) -> int:
    """Sends one request and returns the errno that the kernel answers with, 0 if it agreed."""
    text = name.encode() + b"\0"
    attribute = struct.pack("=HH", 4 + len(text), 1) + text  # NFACCT_NAME
    attribute += b"\0" * (-len(attribute) % 4)
    body = struct.pack("=BBH", 0, 0, 0) + attribute  # struct nfgenmsg
    header = struct.pack("=IHHII", 16 + len(body), _SUBSYSTEM | kind, _REQUEST | _ACK | flags, 1, 0)
    try:
        with socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, _NETLINK_NETFILTER) as netlink:
            netlink.settimeout(5)
            netlink.send(header + body)
            answer = netlink.recv(8192)
    except OSError as error:
        return error.errno or errno.EIO
    (kind_of_answer,) = struct.unpack_from("=H", answer, 4)
    (code,) = struct.unpack_from("=i", answer, 16)
    return -code if kind_of_answer == _ERROR else 0
