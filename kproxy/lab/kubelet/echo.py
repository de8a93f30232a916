"""The echo server of a pod: whatever comes in is answered with one line of JSON, the pod that answers, and which peer
it saw.

    {"pod": "web-1", "namespace": "default", "node": "node-1", "protocol": "TCP", "peer": "10.244.1.5:40000",
     "local": "10.244.2.3:8080", "data": "hello"}

TCP answers every line, and HTTP's GET with the same in a response; UDP every datagram; SCTP every message.
"""

from __future__ import annotations

from asyncio import StreamReader, StreamWriter
from collections.abc import Callable
from typing import ClassVar, Final

import msgspec

from kproxy.lab.kubelet.servers import Answer

_METHODS: Final = (b"GET ", b"HEAD ", b"POST ", b"PUT ")


class Echo(msgspec.Struct, frozen=True):
    """A program of `PodServers`: which pod and node answer."""

    pod: str
    namespace: str
    node: str
    log: Callable[[str, str, str, bytes], None] | None = None
    """Gets the protocol, the peer, the pod's own `address:port`, and what came."""
    prepared: ClassVar[bool] = True

    async def prepare(self) -> None:
        pass

    def answer(self, protocol: str, peer: str, local: str, data: bytes) -> bytes:
        """The line that answers `data`."""
        if self.log is not None:
            self.log(protocol, peer, local, data)
        reply = {
            "pod": self.pod,
            "namespace": self.namespace,
            "node": self.node,
            "protocol": protocol,
            "peer": peer,
            "local": local,
            "data": data.decode(errors="replace"),
        }
        return msgspec.json.encode(reply) + b"\n"

    async def converse(self, reader: StreamReader, writer: StreamWriter, answer: Answer) -> None:
        while (line := await reader.readline()).endswith(b"\n"):
            if not line.startswith(_METHODS):
                writer.write(answer(line[:-1]))
                await writer.drain()
                continue
            while (await reader.readline()).strip():
                pass
            body = answer(line.rstrip(b"\r\n"))
            head = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nConnection: close\r\nContent-Length: "
            writer.write(head + f"{len(body)}\r\n\r\n".encode() + (b"" if line.startswith(b"HEAD ") else body))
            return
