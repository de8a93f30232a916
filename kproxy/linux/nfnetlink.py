"""One request to netfilter over netlink, about an object with a name.

Spoken directly (<linux/netfilter/nfnetlink.h>): pyroute2's socket takes no namespace, and the tools are not everywhere.
"""

from __future__ import annotations

import socket
import struct
from typing import Final

_NETLINK_NETFILTER: Final = 12
_REQUEST: Final = 0x1
_ACK: Final = 0x4
_NAME: Final = 1  # NFACCT_NAME, NFTA_TABLE_NAME
_ERROR: Final = 2  # NLMSG_ERROR
_BEGIN, _END = 0x10, 0x11  # NFNL_MSG_BATCH_BEGIN, NFNL_MSG_BATCH_END


def ask(kind: int, flags: int, name: str = "", family: int = 0) -> bytes:
    """Sends one request from the namespace the thread is in; returns the kernel's answer, an error message included.

    Args:
        kind: the subsystem in the high byte, and its message.
        flags: of the header, besides NLM_F_REQUEST.
        name: the object's, which is its first attribute; "" for none.
        family: an address family of the kernel's, 0 for none.

    Raises:
        OSError: the kernel has no nfnetlink, or does not answer within 5 s.
    """
    return _exchange(_message(kind, flags, family, 0, _named(name) if name else b""))


def commit(kind: int, name: str, family: int, attributes: bytes) -> bytes:
    """Sends one message as a transaction, which nf_tables asks of what writes; returns the kernel's answer.

    Args:
        kind, name, family: see `ask`. attributes: those that follow the name.

    Raises:
        OSError: see `ask`.
    """
    subsystem = socket.htons(kind >> 8)
    return _exchange(
        _message(_BEGIN, 0, 0, subsystem, b"")
        + _message(kind, _ACK, family, 0, _named(name) + attributes)
        + _message(_END, 0, 0, subsystem, b"")
    )


def error_of(answer: bytes) -> int:
    """The errno that the kernel answers with; 0 if it agreed."""
    (kind,) = struct.unpack_from("=H", answer, 4)
    return -int(struct.unpack_from("=i", answer, 16)[0]) if kind == _ERROR else 0


def attribute(answer: bytes, wanted: int) -> bytes | None:
    """An attribute's value of an answer that is an object; None if it has none."""
    offset, end = 20, min(len(answer), int(struct.unpack_from("=I", answer)[0]))
    while offset + 4 <= end:
        length, kind = struct.unpack_from("=HH", answer, offset)
        if kind & 0x3FFF == wanted:
            return answer[offset + 4 : offset + length]
        offset += max((length + 3) & ~3, 4)
    return None


def _named(name: str) -> bytes:
    text = name.encode() + b"\0"
    return struct.pack("=HH", 4 + len(text), _NAME) + text + b"\0" * (-len(text) % 4)


def _message(kind: int, flags: int, family: int, resource: int, attributes: bytes) -> bytes:
    body = struct.pack("=BBH", family, 0, resource) + attributes  # struct nfgenmsg
    return struct.pack("=IHHII", 16 + len(body), kind, _REQUEST | flags, 1, 0) + body


def _exchange(messages: bytes) -> bytes:
    with socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, _NETLINK_NETFILTER) as netlink:
        netlink.settimeout(5)
        netlink.send(messages)
        return netlink.recv(8192)
