"""The generation of a namespace's nf_tables rules: a number that every committed transaction raises.

While the number stays the same, rules that were right are still right: that is known for the price of one netlink
message instead of reading every rule. Spoken directly (nf_tables, <linux/netfilter/nf_tables.h>, NFT_MSG_GETGEN), since
pyroute2's socket takes no namespace.
"""

from __future__ import annotations

import socket
import struct
from typing import Final

from kproxy.linux.namespace import Namespace

_NETLINK_NETFILTER: Final = 12
_GETGEN: Final = 10 << 8 | 16  # NFNL_SUBSYS_NFTABLES, NFT_MSG_GETGEN
_NEWGEN: Final = 10 << 8 | 15
_REQUEST: Final = 0x1
_GEN_ID: Final = 1  # NFTA_GEN_ID, a big-endian u32
_HEADERS: Final = 20  # struct nlmsghdr and struct nfgenmsg


def nft_generation(namespace: Namespace) -> int | None:
    """The generation now; None if the kernel does not tell."""
    return namespace.call(_ask)


def _ask() -> int | None:
    message = struct.pack("=IHHII", _HEADERS, _GETGEN, _REQUEST, 1, 0) + struct.pack("=BBH", 0, 0, 0)
    try:
        with socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, _NETLINK_NETFILTER) as netlink:
            netlink.settimeout(5)
            netlink.send(message)
            answer = netlink.recv(8192)
    except OSError:
        return None
    return parse_generation(answer)


def parse_generation(answer: bytes) -> int | None:
    """Reads an NFT_MSG_NEWGEN message; None for any other."""
    if len(answer) < _HEADERS or struct.unpack_from("=H", answer, 4)[0] != _NEWGEN:
        return None
    at = _HEADERS
    while at + 4 <= len(answer):
        length, kind = struct.unpack_from("=HH", answer, at)
        if kind == _GEN_ID and length == 8 and at + 8 <= len(answer):
            return int(struct.unpack_from(">I", answer, at + 4)[0])
        at += max(4, (length + 3) & ~3)
    return None
