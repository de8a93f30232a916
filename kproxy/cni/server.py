"""Serves CNI requests on a Unix socket, in a process that is there already.

Starting Python and importing pyroute2 costs a plugin more than all it does: 130 ms of processor time against 6 ms for
an ADD. So a node's daemon (`kproxy overlay run --cni-socket PATH`) may serve requests itself, and `launcher.c`, a
program of a few kilobytes, takes them there: it sends its environment and standard input, and prints the answer and
exits with its code. If no server listens, it executes `kproxy-cni` instead, which does the same; both use the same
state and locks, so they may be mixed.

The request, in the byte order of the machine:   uint32 lengths of environment and input, environment as K=V\\0, input
The answer:                                      uint32 exit code, uint32 length, standard output

The launcher passes descriptors along (SCM_RIGHTS). One is of its network namespace: a runtime may have started it in
another than the daemon's, so that is where the request is carried out. The other is of the container's, if CNI_NETNS
could be opened: a daemon that is in a container itself does not see that path. Only root may connect.
"""

from __future__ import annotations

import contextlib
import os
import queue
import socket
import struct
import threading
from typing import Final

from kproxy.cni.plugin import serve
from kproxy.errors import KproxyError
from kproxy.linux.lazy_import import load
from kproxy.linux.namespace import Namespace, inside

WORKERS: Final = 2
"""Requests carried out at a time; more would only wait for the kernel's one rtnetlink lock."""
_LONGEST: Final = 1 << 24
_TIMEOUT: Final = 60.0


class CniServerError(KproxyError):
    """The socket cannot be served."""


class CniServer:
    """Serves from `with` on to its end.

    Args:
        path: the socket; one without a listener is replaced.
        namespace: where the daemon works; requests say themselves where they belong.

    Raises:
        CniServerError: it cannot be made, or another process serves it.
    """

    def __init__(self, path: str, namespace: Namespace) -> None:
        self.path = path
        self._namespace = namespace
        self._queue: queue.SimpleQueue[socket.socket | None] = queue.SimpleQueue()
        self._threads: list[threading.Thread] = []
        self._listener: socket.socket | None = None

    def __enter__(self) -> CniServer:
        load("pyroute2")  # once, and not in the first request
        listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            with contextlib.suppress(FileNotFoundError):
                self._replace_stale()
            os.makedirs(os.path.dirname(os.path.abspath(self.path)), exist_ok=True)
            mask = os.umask(0o177)
            try:
                listener.bind(self.path)
            finally:
                os.umask(mask)
            listener.listen(512)
        except OSError as error:
            listener.close()
            raise CniServerError(f"cannot serve CNI on {self.path}: {error.strerror or error}") from error
        self._listener = listener
        workers = [threading.Thread(target=self._work, name=f"cni-{n}", daemon=True) for n in range(WORKERS)]
        self._threads = [*workers, threading.Thread(target=self._accept, args=(listener,), name="cni", daemon=True)]
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        """Takes no more requests; those under way are finished."""
        if self._listener is not None:
            with contextlib.suppress(OSError):
                os.unlink(self.path)
            with contextlib.suppress(OSError):
                self._listener.shutdown(socket.SHUT_RDWR)
            self._listener.close()
        for _worker in range(WORKERS):
            self._queue.put(None)
        for thread in self._threads:
            thread.join(_TIMEOUT)

    def _replace_stale(self) -> None:
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
            try:
                probe.connect(self.path)
            except ConnectionRefusedError:
                os.unlink(self.path)
                return
        raise CniServerError(f"another process serves {self.path} already")

    def _accept(self, listener: socket.socket) -> None:
        while True:
            try:
                connection, _ = listener.accept()
            except OSError:
                return
            connection.settimeout(_TIMEOUT)
            self._queue.put(connection)

    def _work(self) -> None:
        while (connection := self._queue.get()) is not None:
            # A runtime that goes away or sends garbage affects only its own request.
            with connection, contextlib.suppress(OSError, struct.error, ValueError):
                _answer(connection)


def _answer(connection: socket.socket) -> None:
    head, descriptors, _, _ = socket.recv_fds(connection, 8, 2)
    try:
        environment_length, input_length = struct.unpack("=II", head)
        if environment_length + input_length > _LONGEST or not descriptors:
            return
        environ = {}
        for pair in _receive(connection, environment_length).split(b"\0"):
            name, _, value = pair.decode("utf-8", "surrogateescape").partition("=")
            environ[name] = value
        stdin = _receive(connection, input_length)
        with inside(descriptors[0]):
            code, output = serve(environ, stdin, descriptors[1] if len(descriptors) > 1 else None)
    finally:
        for descriptor in descriptors:
            os.close(descriptor)
    data = output.encode()
    connection.sendall(struct.pack("=II", code, len(data)) + data)


def _receive(connection: socket.socket, length: int) -> bytes:
    data = bytearray()
    while len(data) < length:
        part = connection.recv(length - len(data))
        if not part:
            raise ValueError("the request ends too early")
        data += part
    return bytes(data)
