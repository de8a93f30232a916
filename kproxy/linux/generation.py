"""The generation of a namespace's nf_tables rules: a number that every committed transaction raises by one.

While the number stays the same, rules that were right are still right: that is known for the price of one netlink
message instead of reading every rule (NFT_MSG_GETGEN, <linux/netfilter/nf_tables.h>). A `Ledger` takes off what we
wrote ourselves: each COMMIT of iptables-nft-restore and each script of nft is one transaction.
"""

from __future__ import annotations

import struct
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from kproxy.linux.namespace import Namespace
from kproxy.linux.nfnetlink import ask, attribute

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
