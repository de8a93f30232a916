"""Executing readiness and startup probes, as the kubelet's prober does: one worker per container that has some.

A container that has neither is ready when it runs. One that has is not ready until its startup probe has succeeded and
its readiness probe `successThreshold` times in a row; `failureThreshold` failures in a row take that back. Network
probes go from the node to the pod's address, commands run in the pod's network and this machine's files. A program that
this machine has not is the image's, as the server that it asks is: that probe succeeds, for the pod's servers run.

kubernetes/kubernetes pkg/kubelet/prober; defaults are those of core/v1's Probe.
"""

from __future__ import annotations

import contextlib
import json
import logging
import os
import re
import socket
import ssl
import subprocess
import threading
from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Final

import msgspec

from kproxy.lab.resources import Object
from kproxy.linux.errors import LinuxError
from kproxy.linux.isolation import isolate
from kproxy.linux.namespace import Namespace

log = logging.getLogger(__name__)

_FAST: Final = 0.2
"""Seconds between the first attempts of a container that has never been ready, if its period is longer: whoever looks
at a lab waits for it."""
_FAST_ATTEMPTS: Final = 10
_MAX_STATUS: Final = 1 << 16
"""Octets of a status line."""
_NOT_FOUND: Final = 127
"""A shell's exit code for a program that it does not find."""
_MAX_SHOWN: Final = 1024
"""Characters of a command's output in a message."""


class Probe(msgspec.Struct, frozen=True):
    """One probe. `kind` is `httpGet`, `tcpSocket`, `exec` or "" for one that is not known; times are seconds.

    `port` is a number; 0 if the container has no port of the name given. `host` is "" for the pod's own address.
    """

    kind: str
    host: str = ""
    port: int = 0
    path: str = "/"
    tls: bool = False
    headers: tuple[tuple[str, str], ...] = ()
    command: tuple[str, ...] = ()
    initial_delay: float = 0.0
    period: float = 10.0
    timeout: float = 1.0
    successes: int = 1
    failures: int = 3


class NoProgramError(Exception):
    """What a probe executes is not on this machine."""


class Target(msgspec.Struct, frozen=True):
    """Where a pod is: its namespace, and its first address."""

    netns: str
    address: str
    hostname: str = ""
    files: Mapping[str, str] = MappingProxyType({})
    """What commands see in place of this machine's files."""


def read_probe(container: Object, name: str) -> Probe | None:
    """A container's `readinessProbe` or `startupProbe`; None if it has none."""
    found = container.get(name)
    if not found:
        return None
    kind = next((item for item in ("httpGet", "tcpSocket", "exec") if found.get(item) is not None), "")
    action = found.get(kind) or {}
    return Probe(
        kind,
        str(action.get("host") or ""),
        _port(container, action.get("port")),
        str(action.get("path") or "/"),
        action.get("scheme") == "HTTPS",
        tuple((str(item["name"]), str(item.get("value", ""))) for item in action.get("httpHeaders") or ()),
        tuple(map(str, action.get("command") or ())),
        float(found.get("initialDelaySeconds") or 0),
        float(found.get("periodSeconds") or 10),
        float(found.get("timeoutSeconds") or 1),
        int(found.get("successThreshold") or 1),
        int(found.get("failureThreshold") or 3),
    )


def _port(container: Object, port: object) -> int:
    if isinstance(port, int):
        return port
    named = (item for item in container.get("ports") or () if item.get("name") == port)
    return next((int(item["containerPort"]) for item in named), 0)


def run_probe(probe: Probe, target: Target) -> str:
    """Executes a probe once: "" if it succeeded, else why not, in a kubelet's words, which are those of Go's net.

    Raises:
        NoProgramError: it is a command whose program is not on this machine.
    """
    host = probe.host or target.address
    shown = f"[{host}]" if ":" in host else host
    try:
        if probe.kind == "httpGet":
            return _http_get(probe, host, shown)
        if probe.kind == "tcpSocket":
            socket.create_connection((host, probe.port), probe.timeout).close()
            return ""
        if probe.kind == "exec":
            return _execute(probe, target)
    except TimeoutError:
        late = "context deadline exceeded (Client.Timeout exceeded while awaiting headers)"
        return f"{_get(probe, shown)}: {late}" if probe.kind == "httpGet" else _dial(probe, shown, "i/o timeout")
    except OSError as error:
        if not error.errno or probe.kind == "exec":
            return f"{probe.kind}: {error}"
        said = _dial(probe, shown, f"connect: {os.strerror(error.errno).lower()}")
        return f"{_get(probe, shown)}: {said}" if probe.kind == "httpGet" else said
    except (LinuxError, ValueError, OverflowError) as error:
        return f"{probe.kind}: {error}"
    return "a lab knows httpGet, tcpSocket and exec"


def _dial(probe: Probe, host: str, problem: str) -> str:
    return f"dial tcp {host}:{probe.port}: {problem}"


def _get(probe: Probe, host: str) -> str:
    scheme = "https" if probe.tls else "http"
    return f'Get "{scheme}://{host}:{probe.port}{_path(probe)}"'


def _path(probe: Probe) -> str:
    return probe.path if probe.path.startswith("/") else f"/{probe.path}"


def _http_get(probe: Probe, host: str, shown: str) -> str:
    """One GET. Only the status line of the answer matters, so this is all of HTTP that is needed."""
    fields = {"Host": f"{shown}:{probe.port}", "User-Agent": "kube-probe/kproxy-lab", "Connection": "close"}
    lines = [
        f"GET {_path(probe)} HTTP/1.1",
        *(f"{name}: {value}" for name, value in (fields | dict(probe.headers)).items()),
    ]
    if any(character in line for line in lines for character in "\r\n"):
        raise ValueError("a line break in path or headers")
    with contextlib.ExitStack() as stack:
        connection = stack.enter_context(socket.create_connection((host, probe.port), probe.timeout))
        if probe.tls:
            # The kubelet skips the certificate's verification, too.
            connection = stack.enter_context(ssl._create_unverified_context().wrap_socket(connection))
        connection.sendall("\r\n".join([*lines, "", ""]).encode())
        answer = b""
        while b"\n" not in answer and len(answer) < _MAX_STATUS and (more := connection.recv(4096)):
            answer += more
    found = re.match(rb"HTTP/1\.[01] (\d{3})", answer)
    if found is None:
        line = answer.partition(b"\n")[0].rstrip()[:80].decode(errors="replace")
        broken = f"net/http: HTTP/1.x transport connection broken: malformed HTTP response {json.dumps(line)}"
        return f"{_get(probe, shown)}: {broken if answer else 'EOF'}"
    status = int(found[1])
    return "" if 200 <= status < 400 else f"HTTP probe failed with statuscode: {status}"


def _execute(probe: Probe, target: Target) -> str:
    def run() -> subprocess.CompletedProcess[bytes]:
        return subprocess.run(
            probe.command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
            timeout=probe.timeout, check=False,
        )  # fmt: skip

    try:
        with Namespace.named(target.netns) as inside:
            inside.call(isolate, target.hostname, target.files)
            done = inside.call(run)
    except FileNotFoundError as error:
        if error.filename != probe.command[0]:
            raise
        raise NoProgramError(probe.command[0]) from error
    except subprocess.TimeoutExpired:
        return f'command timed out: "{" ".join(probe.command)}" timed out after {probe.timeout:g}s'
    if done.returncode == 0:
        return ""
    if done.returncode == _NOT_FOUND:
        raise NoProgramError(" ".join(probe.command))
    # A kubelet's message is the command's output alone; one without any says nothing.
    return done.stdout.decode(errors="replace").strip()[:_MAX_SHOWN] or f"exit code {done.returncode}"


class Count:
    """How probes of one kind went: ready or not, by thresholds. A machine without a clock."""

    def __init__(self, probe: Probe) -> None:
        self._probe = probe
        self._last: bool | None = None
        self._run = 0
        self.passed = False

    def note(self, succeeded: bool) -> None:
        """Records the result of one attempt."""
        self._run = self._run + 1 if succeeded is self._last else 1
        self._last = succeeded
        if self._run >= (self._probe.successes if succeeded else self._probe.failures):
            self.passed = succeeded


Tell = Callable[[str, str, str, str], None]
"""Uid, container, kind of probe, and what there is to say."""


class Prober:
    """The probes of a node's pods; `changed(uid)` is called when a pod's readiness may have,
    `failed(uid, container, kind, problem)` for every probe that fails, and `skipped` with the program in place of a
    problem for each that cannot be executed."""

    def __init__(
        self,
        changed: Callable[[str], None],
        failed: Tell,
        skipped: Tell,
    ) -> None:
        self._changed = changed
        self._failed = failed
        self._skipped = skipped
        self._lock = threading.Lock()
        self._pods: dict[str, tuple[threading.Event, dict[str, bool]]] = {}

    def start(self, uid: str, containers: Sequence[Object], target: Target) -> None:
        """Begins to probe a pod that has begun to run."""
        self.stop(uid)
        probes = {
            str(item["name"]): (read_probe(item, "startupProbe"), read_probe(item, "readinessProbe"))
            for item in containers
        }
        probed = {name: pair for name, pair in probes.items() if any(pair)}
        ended = threading.Event()
        with self._lock:
            self._pods[uid] = (ended, dict.fromkeys(probed, False))
        for name, (startup, readiness) in probed.items():
            threading.Thread(
                target=self._work,
                args=(uid, name, startup, readiness, target, ended),
                name=f"probe {name}",
                daemon=True,
            ).start()

    def stop(self, uid: str) -> None:
        with self._lock:
            known = self._pods.pop(uid, None)
        if known is not None:
            known[0].set()

    def readiness(self, uid: str) -> Mapping[str, bool]:
        """Which containers that have probes are ready; without a pod's, all are."""
        with self._lock:
            known = self._pods.get(uid)
            return dict(known[1]) if known is not None else {}

    def _work(
        self,
        uid: str,
        name: str,
        startup: Probe | None,
        readiness: Probe | None,
        target: Target,
        ended: threading.Event,
    ) -> None:
        if startup is not None and not self._until_passed(uid, name, startup, target, ended):
            return
        if readiness is None:
            self._note(uid, name, True, ended)
            return
        count, attempts = Count(readiness), 0
        wait = readiness.initial_delay
        while not ended.wait(wait):
            problem = self._attempt(uid, name, "Readiness", readiness, target, ended)
            count.note(not problem)
            if count.passed != self.readiness(uid).get(name):
                log.info("readiness probe of container %s, pod %s: %s", name, uid, problem or "succeeded")
                self._note(uid, name, count.passed, ended)
            attempts += 1
            early = not count.passed and attempts < _FAST_ATTEMPTS
            wait = min(readiness.period, _FAST) if early else readiness.period

    def _until_passed(self, uid: str, name: str, probe: Probe, target: Target, ended: threading.Event) -> bool:
        count, attempts, wait = Count(probe), 0, probe.initial_delay
        while not ended.wait(wait):
            count.note(not self._attempt(uid, name, "Startup", probe, target, ended))
            if count.passed:
                return True
            attempts += 1
            wait = min(probe.period, _FAST) if attempts < _FAST_ATTEMPTS else probe.period
        return False

    def _attempt(self, uid: str, name: str, kind: str, probe: Probe, target: Target, ended: threading.Event) -> str:
        """Executes a probe and tells of it; what is wrong, "" for nothing."""
        try:
            problem = run_probe(probe, target)
        except NoProgramError as error:
            if not self.readiness(uid).get(name) and not ended.is_set():  # once, not with every period
                self._skipped(uid, name, kind, str(error))
            return ""
        if problem and not ended.is_set():
            self._failed(uid, name, kind, problem)
        return problem

    def _note(self, uid: str, name: str, ready: bool, ended: threading.Event) -> None:
        with self._lock:
            known = self._pods.get(uid)
            if known is None or known[0] is not ended:
                return  # the pod has gone, or began again
            known[1][name] = ready
        self._changed(uid)
