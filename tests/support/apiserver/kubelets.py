"""Kubelets that a test makes up, for a server's pods/exec and pods/log."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import threading
from collections.abc import Callable

import msgspec

from kproxy.apiserver.kubelet import KubeletRequest
from kproxy.lab.kubelet.commands import Client

Answer = Callable[[str, KubeletRequest, Client], None]
"""What a kubelet does with a request: its node, what is asked, and whom to answer. The connection ends when it returns.
"""


class Kubelets:
    """Kubelets of all nodes but `gone`; each request is answered in a thread."""

    def __init__(self, answer: Answer) -> None:
        self.answer = answer
        self.asked: list[tuple[str, KubeletRequest]] = []

    async def __call__(self, node: str) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        if node == "gone":
            raise ConnectionRefusedError(111, "Connection refused")
        ours, theirs = socket.socketpair()
        threading.Thread(target=self._serve, args=(node, theirs), daemon=True).start()
        return await asyncio.open_connection(sock=ours)

    def _serve(self, node: str, connection: socket.socket) -> None:
        with connection, contextlib.suppress(OSError):
            line = b""
            while not line.endswith(b"\n"):
                line += connection.recv(1)
            asked: KubeletRequest = msgspec.json.decode(line, type=KubeletRequest)
            self.asked.append((node, asked))
            self.answer(node, asked, Client(connection))
