"""Legacy tables, asked of the kernel: which there are, and a fingerprint of them, equal as long as nobody writes rules.

The kernel counts no generations for them, but hands out a table as a whole (IPT_SO_GET_ENTRIES,
<linux/netfilter_ipv4/ip_tables.h>), for a fraction of what iptables-save takes to print it. The counters of packets,
which are in every entry, are left out.
"""

from __future__ import annotations

import ctypes
import hashlib
import os
import socket
import struct
from pathlib import Path
from typing import Final

from kproxy.linux.errors import LinuxError, PrivilegeError
from kproxy.linux.namespace import Namespace
from kproxy.services.names import IPFamily

_GET_INFO, _GET_ENTRIES = 64, 65
_NAME: Final = 32
_INFO: Final = 84  # struct ipt_getinfo, struct ip6t_getinfo: at the end the size of the entries
_HEAD: Final = 40  # struct ipt_get_entries: the name, the size, padding
_LAYOUT: Final = {
    IPFamily.IPV4: (socket.AF_INET, socket.IPPROTO_IP, 90, 96),
    IPFamily.IPV6: (socket.AF_INET6, socket.IPPROTO_IPV6, 142, 152),
}
"""Where struct ipt_entry and struct ip6t_entry have `next_offset` and `counters`."""

_libc = ctypes.CDLL(None, use_errno=True)


def legacy_tables(family: IPFamily) -> list[str]:
    """The legacy tables that exist in the calling thread's namespace.

    Reading a legacy table through iptables makes it; this only looks.
    """
    name = "ip6_tables_names" if family.is_ipv6 else "ip_tables_names"
    try:
        return Path(f"/proc/thread-self/net/{name}").read_text().split()
    except FileNotFoundError:
        return []
    except OSError as error:
        raise PrivilegeError(f"cannot read which legacy tables there are: {error.strerror}; it needs root") from error


def legacy_fingerprint(namespace: Namespace, family: IPFamily) -> bytes | None:
    """The fingerprint of a family's tables now; None if the kernel does not tell. No table is made."""
    try:
        return namespace.call(_fingerprint, family)
    except (OSError, LinuxError):
        return None


def _fingerprint(family: IPFamily) -> bytes:
    kind, level, next_offset, counters = _LAYOUT[family]
    digest = hashlib.sha1(usedforsecurity=False)
    with socket.socket(kind, socket.SOCK_DGRAM) as asked:
        for table in sorted(legacy_tables(family)):
            info = _ask(asked, level, _GET_INFO, table, _INFO, 0)
            (size,) = struct.unpack_from("=I", info, _INFO - 4)
            entries = _ask(asked, level, _GET_ENTRIES, table, _HEAD + size, size)
            at = _HEAD
            while at < len(entries):
                entries[at + counters : at + counters + 16] = bytes(16)
                at += struct.unpack_from("=H", entries, at + next_offset)[0] or len(entries)
            digest.update(info)
            digest.update(entries)
    return digest.digest()


def _ask(asked: socket.socket, level: int, option: int, table: str, length: int, size: int) -> bytearray:
    """getsockopt with a request in the buffer, which Python's own does not take. Raises OSError."""
    buffer = bytearray(struct.pack(f"={_NAME}sI", table.encode(), size).ljust(length, b"\0"))
    where = (ctypes.c_char * length).from_buffer(buffer)
    count = ctypes.c_uint32(length)
    if _libc.getsockopt(asked.fileno(), level, option, where, ctypes.byref(count)):
        code = ctypes.get_errno()
        raise OSError(code, os.strerror(code))
    return buffer
