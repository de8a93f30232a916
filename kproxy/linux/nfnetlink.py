"""One request to netfilter over netlink, about an object with a name.

Spoken directly (<linux/netfilter/nfnetlink.h>): pyroute2's socket takes no namespace, and the tools are not everywhere.
"""

from __future__ import annotations

import socket
import struct
from typing import Final

_NETLINK_NETFILTER: Final = 12
_REQUEST: Final = 0x1
_NAME: Final = 1  # NFACCT_NAME, NFTA_TABLE_NAME


def ask(kind: int, flags: int, name: str, family: int = 0) -> bytes:
    """Sends one request from the namespace the thread is in; returns the kernel's answer, an error message included.

    Args:
        kind: the subsystem in the high byte, and its message.
        flags: of the header, besides NLM_F_REQUEST.
        name: the object's, which is its first attribute.
        family: an address family of the kernel's, 0 for none.

    Raises:
        OSError: the kernel has no nfnetlink, or does not answer within 5 s.
    """
    text = name.encode() + b"\0"
    attribute = struct.pack("=HH", 4 + len(text), _NAME) + text
    attribute += b"\0" * (-len(attribute) % 4)
    body = struct.pack("=BBH", family, 0, 0) + attribute  # struct nfgenmsg
    header = struct.pack("=IHHII", 16 + len(body), kind, _REQUEST | flags, 1, 0)
    with socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, _NETLINK_NETFILTER) as netlink:
        netlink.settimeout(5)
        netlink.send(header + body)
        return netlink.recv(8192)
