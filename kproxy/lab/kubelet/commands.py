"""One command of `kubectl exec` in a pod's network namespace, with its input and output.

A pod's containers are processes of this machine with a network of their own, so a command sees this machine's files. It
runs in a session of its own, which ends with the client: what `kubectl exec` started does not outlive the connection.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import pty
import select
import shutil
import signal
import socket
import struct
import subprocess
import termios
import threading
from collections.abc import Mapping
from typing import Any, Final

import msgspec

from kproxy.apiserver.kubelet import CLOSE, ENDED, HEADER, MAX_FRAME, RESIZE, STDERR, STDIN, STDOUT, ExecRequest, frame
from kproxy.lab.kubelet.environment import PATH
from kproxy.linux.isolation import isolate
from kproxy.linux.namespace import Namespace

_PIECE: Final = 32768


class Client:
    """The API server's end of a request. Any thread may send."""

    def __init__(self, connection: socket.socket) -> None:
        self.connection = connection
        self._lock = threading.Lock()

    def send(self, channel: int, payload: bytes = b"") -> None:
        """Raises OSError if the client has gone."""
        with self._lock:
            self.connection.sendall(frame(channel, payload))

    def end(self, status: Mapping[str, Any]) -> None:
        """The last frame: how it ended."""
        with contextlib.suppress(OSError):
            self.send(ENDED, msgspec.json.encode(status))

    def receive(self) -> tuple[int, bytes] | None:
        """The next frame; None if the client has gone."""
        head = self._exactly(HEADER.size)
        if head is None:
            return None
        channel, length = HEADER.unpack(head)
        payload = self._exactly(length) if length <= MAX_FRAME else None
        return None if payload is None else (channel, payload)

    def _exactly(self, count: int) -> bytes | None:
        try:
            data = self.connection.recv(count, socket.MSG_WAITALL) if count else b""
        except OSError:
            return None
        return data if len(data) == count else None


def failure(message: str, code: int = 500, reason: str = "InternalError") -> dict[str, Any]:
    """A metav1.Status."""
    return {"metadata": {}, "status": "Failure", "message": message, "reason": reason, "code": code}


def exit_status(code: int) -> dict[str, Any]:
    """The Status that tells a command's exit code; killed by a signal it is 128 and the signal's number."""
    if code == 0:
        return {"metadata": {}, "status": "Success"}
    number = code if code > 0 else 128 - code
    return {
        "metadata": {},
        "status": "Failure",
        "message": f"command terminated with non-zero exit code: exit status {number}",
        "reason": "NonZeroExitCode",
        "details": {"causes": [{"reason": "ExitCode", "message": str(number)}]},
    }


def spawn(
    words: list[str],
    netns: str,
    hostname: str,
    files: Mapping[str, str],
    *,
    read_only: bool = False,
    terminal: bool = False,
    **options: Any,
) -> subprocess.Popen[bytes]:
    """Starts a program of this machine in a pod's network, in a session of its own.

    Args:
        files: what it sees in place of this machine's files.
        terminal: its standard input becomes its controlling terminal.
        options: of Popen; its PATH is that of `env`.

    Raises:
        FileNotFoundError: there is no such program.
        OSError, LinuxError: it cannot be started.
    """

    def start() -> subprocess.Popen[bytes]:
        isolate(hostname, files, read_only=read_only)
        program = shutil.which(words[0], path=options["env"].get("PATH"))
        if program is None:
            raise FileNotFoundError(f'exec: "{words[0]}": executable file not found in $PATH')
        if terminal:
            setsid = shutil.which("setsid", path=PATH) or "setsid"
            return subprocess.Popen(["setsid", "--ctty", *words], executable=setsid, **options)
        return subprocess.Popen(words, executable=program, start_new_session=True, **options)

    with Namespace.named(netns) as inside:
        return inside.call(start)


class Command:
    """A command that runs."""

    def __init__(
        self, asked: ExecRequest, netns: str, environment: Mapping[str, str], hostname: str, files: Mapping[str, str]
    ) -> None:
        """Starts it. Raises as `spawn`."""
        self._terminal, words, slave = -1, list(asked.command), -1
        wanted = {"stdin": asked.stdin, "stdout": asked.stdout, "stderr": asked.stderr}
        streams: dict[str, Any] = {name: subprocess.PIPE if on else subprocess.DEVNULL for name, on in wanted.items()}
        if asked.tty:
            self._terminal, slave = pty.openpty()
            streams = dict.fromkeys(wanted, slave)
        try:
            self.process = spawn(
                words, netns, hostname, files, terminal=asked.tty, env=dict(environment), cwd="/", **streams
            )
        finally:
            if slave >= 0:
                os.close(slave)

    def kill(self) -> None:
        """Ends the command and what it started in its session."""
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self.process.pid, signal.SIGKILL)

    def serve(self, client: Client) -> None:
        """Carries input and output until the command ends or the client goes."""
        sources = self._sources()
        pumps = [threading.Thread(target=self._pump, args=(client, *source), daemon=True) for source in sources]
        for pump in pumps:
            pump.start()
        reading = threading.Thread(target=self._input, args=(client,), daemon=True)
        reading.start()
        code = self.process.wait()
        for pump in pumps:
            pump.join()
        client.end(exit_status(code))
        # The other direction stays open until the API server has read the end. What a terminal still sends would fail
        # there otherwise, and with it the connection, before its last frame is read.
        with contextlib.suppress(OSError):
            client.connection.shutdown(socket.SHUT_WR)
        reading.join()
        for stream in (self.process.stdin, self.process.stdout, self.process.stderr):
            if stream is not None:
                with contextlib.suppress(OSError):
                    stream.close()
        if self._terminal >= 0:
            os.close(self._terminal)

    def _sources(self) -> list[tuple[int, int]]:
        """Channels, and the descriptors that fill them."""
        if self._terminal >= 0:
            return [(STDOUT, self._terminal)]
        streams = ((STDOUT, self.process.stdout), (STDERR, self.process.stderr))
        return [(channel, stream.fileno()) for channel, stream in streams if stream is not None]

    def _pump(self, client: Client, channel: int, source: int) -> None:
        try:
            while piece := os.read(source, _PIECE):
                client.send(channel, piece)
        except OSError:
            # A terminal whose last user has gone (EIO), or a client that has.
            if self._terminal < 0:
                self.kill()

    def _input(self, client: Client) -> None:
        while (found := client.receive()) is not None:
            channel, payload = found
            if channel == STDIN:
                self._write(client, payload)
            elif channel == CLOSE and self._terminal < 0 and self.process.stdin is not None:
                with contextlib.suppress(OSError):
                    self.process.stdin.close()
            elif channel == RESIZE and self._terminal >= 0:
                self._resize(payload)
        self.kill()

    def _write(self, client: Client, data: bytes) -> None:
        """To the command's input; one that reads nothing must not hide that the client goes."""
        stdin = self.process.stdin
        if self._terminal < 0 and (stdin is None or stdin.closed):
            return
        target = self._terminal if self._terminal >= 0 else stdin.fileno()  # type: ignore[union-attr]
        os.set_blocking(target, False) if self._terminal < 0 else None
        poll = select.poll()
        poll.register(target, select.POLLOUT)
        poll.register(client.connection, select.POLLRDHUP)
        while data:
            ready = dict(poll.poll())
            if client.connection.fileno() in ready or ready.get(target, 0) & (select.POLLERR | select.POLLHUP):
                return
            try:
                data = data[os.write(target, data) :]
            except BlockingIOError:
                continue
            except OSError:
                return

    def _resize(self, payload: bytes) -> None:
        with contextlib.suppress(msgspec.MsgspecError, OSError, struct.error, TypeError):
            size = msgspec.json.decode(payload, type=dict[str, int])
            packed = struct.pack("HHHH", size.get("Height", 0), size.get("Width", 0), 0, 0)
            fcntl.ioctl(self._terminal, termios.TIOCSWINSZ, packed)
