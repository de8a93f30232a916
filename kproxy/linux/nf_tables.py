"""Tables of nf_tables, asked of the kernel: nft may not be installed, and iptables-nft tells nothing of their flags."""

from __future__ import annotations

import errno
import os
import socket
import struct
from typing import Final

from kproxy.linux.errors import PrivilegeError, ToolFailedError
from kproxy.linux.namespace import Namespace
from kproxy.linux.nfnetlink import ask, attribute, commit, error_of
from kproxy.services.names import IPFamily

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
