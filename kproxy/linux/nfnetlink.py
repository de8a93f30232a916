"""Requests to netfilter over netlink: about an object with a name, about tables of nf_tables, and for their generation.

Spoken directly (<linux/netfilter/nfnetlink.h>): pyroute2's socket takes no namespace and 7 ms to open, nft may not be
installed, and iptables-nft tells nothing of tables' flags.

The generation of a namespace's nf_tables rules is a number that every committed transaction raises by one. While it
stays the same, rules that were right are still right: that is known for the price of one message instead of reading
every rule (NFT_MSG_GETGEN, <linux/netfilter/nf_tables.h>). A `Ledger` takes off what we wrote ourselves: each COMMIT of
iptables-nft-restore and each script of nft is one transaction.
"""

from __future__ import annotations

import errno
import os
import socket
import struct
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from kproxy.linux.errors import PrivilegeError, ToolFailedError
from kproxy.linux.namespace import Namespace
from kproxy.services.names import IPFamily

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


_NEW_TABLE: Final = 10 << 8  # NFNL_SUBSYS_NFTABLES, NFT_MSG_NEWTABLE (<linux/netfilter/nf_tables.h>)
_GET_TABLE: Final = 10 << 8 | 1
_FLAGS: Final = 2  # NFTA_TABLE_FLAGS, 32 bits in network order
_DORMANT: Final = 1  # NFT_TABLE_F_DORMANT
_FAMILIES: Final = {IPFamily.IPV4: socket.AF_INET, IPFamily.IPV6: socket.AF_INET6}


def has_table(namespace: Namespace, family: IPFamily, name: str) -> bool:
    """Whether the table is there; a kernel that cannot say, since it has no nf_tables, has none."""
    return _flags(namespace, family, name) is not None


def is_dormant(namespace: Namespace, family: IPFamily, name: str) -> bool:
    """Whether the table is there and the kernel calls none of its chains."""
    return bool((_flags(namespace, family, name) or 0) & _DORMANT)


def wake(namespace: Namespace, family: IPFamily, name: str) -> None:
    """Makes the kernel call the chains of a dormant table, all of them; nothing if there is no such table.

    Raises:
        PrivilegeError: it needs root.
        ToolFailedError: the kernel refuses.
    """
    flags = _flags(namespace, family, name)
    if flags is None:
        return
    data = struct.pack("=HH", 8, _FLAGS) + struct.pack(">I", flags & ~_DORMANT)
    try:
        code = error_of(namespace.call(commit, _NEW_TABLE, name, int(_FAMILIES[family]), data))
    except OSError as error:
        code = error.errno or errno.EIO
    if code == errno.EPERM:
        raise PrivilegeError(f"cannot wake the dormant table {name}: it needs root")
    if code:
        raise ToolFailedError(f"cannot wake the dormant table {name}: {os.strerror(code)}")


def _flags(namespace: Namespace, family: IPFamily, name: str) -> int | None:
    """The flags of a table; None if it is not there."""
    try:
        answer = namespace.call(ask, _GET_TABLE, 0, name, int(_FAMILIES[family]))
    except OSError:
        return None
    if struct.unpack_from("=H", answer, 4)[0] != _NEW_TABLE:
        return None
    value = attribute(answer, _FLAGS)
    return 0 if value is None else int(struct.unpack(">I", value)[0])


_GETGEN: Final = 10 << 8 | 16  # NFNL_SUBSYS_NFTABLES, NFT_MSG_GETGEN
_NEWGEN: Final = 10 << 8 | 15
_GEN_ID: Final = 1  # NFTA_GEN_ID, a big-endian u32
_MASK: Final = 0xFFFFFFFF


def nft_generation(namespace: Namespace) -> int | None:
    """The generation now; None if the kernel does not tell."""
    try:
        return parse_generation(namespace.call(ask, _GETGEN, 0))
    except OSError:
        return None


def parse_generation(answer: bytes) -> int | None:
    """Reads an NFT_MSG_NEWGEN message; None for any other."""
    if len(answer) < 20 or struct.unpack_from("=H", answer, 4)[0] != _NEWGEN:
        return None
    value = attribute(answer, _GEN_ID)
    return int.from_bytes(value, "big") if value is not None and len(value) == 4 else None


class Ledger:
    """Counts the transactions of our own in one namespace, of all families together. Thread-safe.

    Invariant: `_own` counts only transactions that raised the generation as they should; while some are under way,
    `_begun` is the generation before the first of them, and `_finished` how many of them have ended well. A write that
    fails, or beside which another program wrote, is not counted, so that it looks like another program's.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._own = 0
        self._under_way = 0
        self._begun: int | None = None
        self._finished = 0

    @contextmanager
    def writing(self, namespace: Namespace, transactions: int) -> Iterator[None]:
        """Around the carrying out of so many transactions."""
        with self._lock:
            if not self._under_way:
                self._begun, self._finished = nft_generation(namespace), 0
            self._under_way += 1
        done = 0
        try:
            yield
            done = transactions
        finally:
            with self._lock:
                self._under_way -= 1
                self._finished += done
                if not self._under_way and self._begun is not None:
                    now = nft_generation(namespace)
                    if now is not None and (now - self._begun) & _MASK == self._finished:
                        self._own += self._finished

    def others(self, namespace: Namespace) -> int | None:
        """A number that stays the same as long as nobody but us writes; None if that is not known now."""
        with self._lock:
            generation = None if self._under_way else nft_generation(namespace)
            return None if generation is None else (generation - self._own) & _MASK
