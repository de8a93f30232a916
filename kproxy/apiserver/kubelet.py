"""How the API server speaks with kubelets, for pods/exec and pods/log: a stream of octets for each request.

The first line is the request, as JSON. What follows, both ways, are frames: a channel's number, four octets of length,
the payload. The channels are those of the `channel.k8s.io` protocols (k8s.io/apimachinery, remotecommand):

    0 stdin    1 stdout    2 stderr    3 how it ended: a metav1.Status, the last frame    4 size of the terminal
    255 stdin ends

A kubelet that runs a command or reads a log sends `STARTED` first; one that refuses sends channel 3 alone, with a
Status whose code is the refusal's.
"""

from __future__ import annotations

import asyncio
import struct
from collections.abc import Awaitable, Callable
from typing import Final

import msgspec

STDIN: Final = 0
STDOUT: Final = 1
STDERR: Final = 2
ENDED: Final = 3
RESIZE: Final = 4
STARTED: Final = 254
CLOSE: Final = 255

HEADER: Final = struct.Struct(">BI")
MAX_FRAME: Final = 16 << 20

Connect = Callable[[str], Awaitable[tuple[asyncio.StreamReader, asyncio.StreamWriter]]]
"""Connects to the kubelet of a node, by its name. Raises OSError."""


class ExecRequest(msgspec.Struct, frozen=True, tag="exec", tag_field="do"):
    """Run a command in a container of the Pod with this uid."""

    uid: str
    container: str
    command: tuple[str, ...]
    stdin: bool = False
    stdout: bool = False
    stderr: bool = False
    tty: bool = False


class LogRequest(msgspec.Struct, frozen=True, tag="log", tag_field="do"):
    """A container's log. `since` is in seconds since 1970; None for what is not limited."""

    uid: str
    container: str
    follow: bool = False
    previous: bool = False
    timestamps: bool = False
    tail: int | None = None
    since: float | None = None
    limit: int | None = None


KubeletRequest = ExecRequest | LogRequest


def frame(channel: int, payload: bytes = b"") -> bytes:
    """A frame as it is sent."""
    return HEADER.pack(channel, len(payload)) + payload


async def read_frame(reader: asyncio.StreamReader) -> tuple[int, bytes] | None:
    """The next frame; None if the other side has gone."""
    try:
        channel, length = HEADER.unpack(await reader.readexactly(HEADER.size))
        return (channel, await reader.readexactly(length)) if length <= MAX_FRAME else None
    except (asyncio.IncompleteReadError, OSError):
        return None
