"""SQLite's write-ahead log, as far as it takes to tell a torn end from damage.

SQLite reads the log up to the first frame that does not fit, and says nothing of what stands behind it. After a crash
that is an end: what was being written and never acknowledged. A frame that does not fit with good ones behind it is
damage, and what SQLite leaves out was acknowledged.

Format: sqlite.org/fileformat2.html, "The Write-Ahead Log". A header of 32 octets; frames of 24 octets and a page. A
frame's checksum continues that of the frame before it; its salts are the header's, else it is left over from an earlier
round.
"""

from __future__ import annotations

import struct
from pathlib import Path
from typing import Final, NamedTuple

_HEADER: Final = struct.Struct(">8I")
_FRAME: Final = struct.Struct(">6I")
_MAGIC: Final = 0x377F0682
"""With its lowest bit set, checksums are over big-endian words."""


class WalState(NamedTuple):
    """What a write-ahead log holds.

    Attributes:
        kept: octets up to the end of the last transaction that SQLite reads.
        dropped: octets of this round behind that.
        damaged: the octet at which a frame does not fit though a whole transaction stands behind it; None if there is
            none.
    """

    kept: int
    dropped: int
    damaged: int | None


def read_wal(path: Path) -> WalState:
    """Looks through a write-ahead log, which may be missing or empty.

    Raises:
        OSError: it cannot be read.
    """
    try:
        data = path.read_bytes()
    except FileNotFoundError:
        return WalState(0, 0, None)
    if len(data) < _HEADER.size:
        return WalState(0, len(data), None)
    magic, _, size, _, *salts, one, two = _HEADER.unpack_from(data)
    order = ">" if magic & 1 else "<"
    if magic & ~1 != _MAGIC or not 512 <= size <= 65536 or _checksum(data[:24], order, (0, 0)) != (one, two):
        return WalState(0, len(data), _HEADER.size if _has_frames(data) else None)
    sums, at, kept, first_bad = (one, two), _HEADER.size, _HEADER.size, -1
    last_of_round, damaged = kept, None
    while at + _FRAME.size + size <= len(data):
        _, committed, salt, other, one, two = _FRAME.unpack_from(data, at)
        end = at + _FRAME.size + size
        mine = [salt, other] == salts
        fits = mine and _checksum(data[at : at + 8] + data[at + _FRAME.size : end], order, sums) == (one, two)
        if fits and first_bad < 0:
            kept = end if committed else kept
        elif fits and committed and damaged is None:
            damaged = first_bad
        elif not fits and first_bad < 0:
            first_bad = at
        last_of_round = end if mine else last_of_round
        sums = (one, two)
        at = end
    torn = len(data) - at if at == last_of_round else 0
    return WalState(kept, last_of_round + torn - kept, damaged)


def _checksum(data: bytes, order: str, start: tuple[int, int]) -> tuple[int, int]:
    one, two = start
    words = struct.unpack(f"{order}{len(data) // 4}I", data)
    for first, second in zip(words[::2], words[1::2], strict=True):
        one = one + first + two & 0xFFFFFFFF
        two = two + second + one & 0xFFFFFFFF
    return one, two


def _has_frames(data: bytes) -> bool:
    """Whether anything but zeros stands behind the header."""
    return bool(data[_HEADER.size :].strip(b"\0"))
