"""The octets of a file that a user names, within bounds: /dev/zero and a pipe that never ends are refused."""

from __future__ import annotations

import os
import select
import stat
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import BinaryIO, Final

MOST: Final = 256 << 20
"""Octets of one file."""
_PIECE: Final = 1 << 20
_SILENCE: Final = 60_000
"""Milliseconds in which a named pipe has to bring something."""


def read_octets(name: str | Path, stdin: BinaryIO | None = None, most: int = MOST) -> bytes:
    """What a file holds, `-` for standard input.

    Args:
        stdin: stands in for the process's standard input. most: how many octets it may have.

    Raises:
        OSError: it cannot be read.
        ValueError: it has more octets, is a pipe that says nothing for a minute, or its name is none.
    """
    if name == "-":
        return _read((sys.stdin.buffer if stdin is None else stdin).read, most)
    if not stat.S_ISFIFO(os.stat(name).st_mode):
        with open(name, "rb") as file:
            return _read(file.read, most)
    descriptor = os.open(name, os.O_RDONLY | os.O_NONBLOCK)  # which does not wait for the one who writes
    try:
        return _read(partial(_read_pipe, descriptor), most)
    finally:
        os.close(descriptor)


def _read_pipe(descriptor: int, size: int) -> bytes:
    poll = select.poll()
    poll.register(descriptor, select.POLLIN)
    if not poll.poll(_SILENCE):
        raise ValueError(f"a pipe that says nothing for {_SILENCE // 1000} s")
    return os.read(descriptor, size)


def _read(read: Callable[[int], bytes], most: int) -> bytes:
    pieces: list[bytes] = []
    left = most
    while piece := read(_PIECE):
        pieces.append(piece)
        left -= len(piece)
        if left < 0:
            raise ValueError(f"larger than {most // 1_000_000} MB")
    return b"".join(pieces)
