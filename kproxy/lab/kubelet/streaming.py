"""The kubelet's side of `kubectl exec` and `kubectl logs`: requests of the API server, on a socket in the node's
directory, which only root can reach (`kproxy.apiserver.kubelet` has the protocol)."""

from __future__ import annotations

import logging
import os
import socket
import threading
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Final, NamedTuple

import msgspec

from kproxy.apiserver.kubelet import STARTED, STDOUT, ExecRequest, KubeletRequest, LogRequest
from kproxy.lab.kubelet.commands import Client, Command, failure
from kproxy.lab.kubelet.environment import environment
from kproxy.lab.kubelet.logs import Line, PodLogs
from kproxy.lab.kubelet.podspec import containers_of, hostname_of
from kproxy.lab.resources import Object, micro_timestamp
from kproxy.linux.errors import LinuxError

log = logging.getLogger(__name__)

SOCKET: Final = "kubelet.sock"
_MAX_REQUEST: Final = 1 << 20
_LOOK: Final = 1.0
"""Seconds after which one who follows a log is looked at: whether he is still there."""


class RunningPod(NamedTuple):
    """A pod that has its namespace."""

    pod: Object
    netns: str
    running: bool
    files: Mapping[str, str]
    """What it sees in place of this machine's files."""


class Streams:
    """Answers the API server. `find` gives the pod of a uid, None if this node has none."""

    def __init__(self, directory: Path, find: Callable[[str], RunningPod | None], logs: PodLogs) -> None:
        self._find = find
        self._logs = logs
        self._lock = threading.Lock()
        self._commands: dict[str, set[Command]] = {}
        self._listening = listen(directory)

    def run(self) -> None:
        """Serves for ever."""
        while True:
            connection, _ = self._listening.accept()
            threading.Thread(target=self._serve, args=(connection,), name="stream", daemon=True).start()

    def end(self, uid: str) -> None:
        """Ends a pod's commands."""
        with self._lock:
            commands = self._commands.pop(uid, set())
        for command in commands:
            command.kill()

    def _serve(self, connection: socket.socket) -> None:
        client = Client(connection)
        try:
            asked = _read_request(connection)
            if isinstance(asked, ExecRequest):
                self._exec(client, asked)
            elif asked is not None:
                self._log(client, asked)
        except OSError:
            pass  # the client has gone
        except Exception:
            log.exception("a request of the API server")
        finally:
            connection.close()

    def _exec(self, client: Client, asked: ExecRequest) -> None:
        found = self._find(asked.uid)
        if found is None or not found.running or asked.container not in _names(found.pod):
            client.end(failure(f'unable to upgrade connection: container not found ("{asked.container}")'))
            return
        client.send(STARTED)
        try:
            values = environment(found.pod, asked.container, terminal=asked.tty)
            command = Command(asked, found.netns, values, hostname_of(found.pod), found.files)
        except (OSError, LinuxError, ValueError) as error:
            client.end(failure(f"error executing command in container: {error}"))
            return
        with self._lock:
            self._commands.setdefault(asked.uid, set()).add(command)
        try:
            command.serve(client)
        finally:
            with self._lock:
                self._commands.get(asked.uid, set()).discard(command)

    def _log(self, client: Client, asked: LogRequest) -> None:
        found = self._find(asked.uid)
        name = asked.container
        what = f'container "{name}" in pod "{found.pod["metadata"]["name"]}"' if found else f'container "{name}"'
        if asked.previous:
            client.end(failure(f"previous terminated {what} not found", 400, "BadRequest"))
            return
        lines = self._logs.lines(asked.uid)
        if found is None or not lines:
            client.end(failure(f"{what} is waiting to start: ContainerCreating", 400, "BadRequest"))
            return
        client.send(STARTED)
        chosen = [line for line in lines if line.container in ("", name) and line.time >= (asked.since or 0.0)]
        if asked.tail is not None:
            chosen = chosen[len(chosen) - min(asked.tail, len(chosen)) :]
        left, seen = asked.limit, lines[-1].number
        while True:
            data = b"".join(_text(line, asked.timestamps) for line in chosen)[:left]
            left = None if left is None else left - len(data)
            for at in range(0, len(data), 1 << 16):
                client.send(STDOUT, data[at : at + (1 << 16)])
            if not asked.follow or left == 0:
                break
            more = self._logs.wait(asked.uid, seen, _LOOK)
            if more is None or (not more and _has_ended(self._find(asked.uid))):
                break
            client.send(STDOUT)  # fails if the client has gone
            chosen = [line for line in more if line.container in ("", name)]
            seen = more[-1].number if more else seen
        client.end({"metadata": {}, "status": "Success"})


def listen(directory: Path) -> socket.socket:
    """The listening socket. By way of a descriptor: a path may be longer than an address of a socket may be."""
    listening = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    path = directory / SOCKET
    path.unlink(missing_ok=True)
    descriptor = os.open(directory, os.O_PATH | os.O_DIRECTORY)
    try:
        listening.bind(f"/proc/self/fd/{descriptor}/{SOCKET}")
        os.chmod(path, 0o600)
        listening.listen(64)
    except BaseException:
        listening.close()
        raise
    finally:
        os.close(descriptor)
    return listening


def _read_request(connection: socket.socket) -> KubeletRequest | None:
    data = bytearray()
    while not data.endswith(b"\n"):
        piece = connection.recv(1)
        if not piece or len(data) > _MAX_REQUEST:
            return None
        data += piece
    found: KubeletRequest = msgspec.json.decode(bytes(data), type=KubeletRequest)
    return found


def _names(pod: Object) -> list[str]:
    return [str(item["name"]) for item in containers_of(pod)]


def _has_ended(found: RunningPod | None) -> bool:
    return found is None or (found.pod.get("status") or {}).get("phase") in ("Succeeded", "Failed")


def _text(line: Line, timestamps: bool) -> bytes:
    stamp = f"{micro_timestamp(datetime.fromtimestamp(line.time, UTC))} " if timestamps else ""
    return f"{stamp}{line.text}\n".encode(errors="replace")
