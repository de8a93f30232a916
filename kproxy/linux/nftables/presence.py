"""Whether a table exists, asked of the kernel where nft is not installed."""

from __future__ import annotations

import socket
import struct
from typing import Final

from kproxy.linux.namespace import Namespace
from kproxy.linux.nfnetlink import ask
from kproxy.services.names import IPFamily

_NEW_TABLE: Final = 10 << 8  # NFNL_SUBSYS_NFTABLES, NFT_MSG_NEWTABLE (<linux/netfilter/nf_tables.h>)
_GET_TABLE: Final = 10 << 8 | 1
_FAMILIES: Final = {IPFamily.IPV4: socket.AF_INET, IPFamily.IPV6: socket.AF_INET6}


def has_table(namespace: Namespace, family: IPFamily, name: str) -> bool:
    """Whether the table is there; a kernel that cannot say, since it has no nf_tables, has none."""
    try:
        answer = namespace.call(ask, _GET_TABLE, 0, name, int(_FAMILIES[family]))
    except OSError:
        return False
    return bool(struct.unpack_from("=H", answer, 4)[0] == _NEW_TABLE)
