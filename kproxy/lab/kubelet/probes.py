"""Executing readiness probes, as the kubelet's prober does: one task per container that has one.

A container that has none is ready when it runs. One that has is not ready until its probe has succeeded
`successThreshold` times in a row; `failureThreshold` failures in a row take that back. `httpGet` and `tcpSocket` go
from the node to the pod's address. What only an image can answer, a command or gRPC, is not executed, and succeeds:
the pod's servers run.

kubernetes/kubernetes pkg/kubelet/prober; defaults are those of core/v1's Probe.
"""

from __future__ import annotations

import asyncio
import json
import logging
import os
import re
import ssl
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from typing import Final

import msgspec

from kproxy.family import join_host_port
from kproxy.lab.events import NORMAL, WARNING
from kproxy.lab.resources import Object

log = logging.getLogger(__name__)

_FAST: Final = 0.2
"""Seconds between the first attempts of a container that has never been ready, if its period is longer: whoever looks
at a lab waits for it."""
_FAST_ATTEMPTS: Final = 10


class Probe(msgspec.Struct, frozen=True):
    """One probe. `kind` is `httpGet` or `tcpSocket`, or another, which is not executed; times are seconds.

    `port` is a number; 0 if the container has no port of the name given. `host` is "" for the pod's own address.
    """

    kind: str
    host: str = ""
    port: int = 0
    path: str = "/"
    tls: bool = False
    headers: tuple[tuple[str, str], ...] = ()
    initial_delay: float = 0.0
    period: float = 10.0
    timeout: float = 1.0
    successes: int = 1
    failures: int = 3


def read_probe(container: Object) -> Probe | None:
    """A container's `readinessProbe`; None if it has none."""
    found = container.get("readinessProbe")
    if not found:
        return None
    kind = next((item for item in ("httpGet", "tcpSocket", "exec", "grpc") if found.get(item) is not None), "unknown")
    action = found.get(kind) or {}
    return Probe(
        kind,
        str(action.get("host") or ""),
        _port(container, action.get("port")),
        str(action.get("path") or "/"),
        action.get("scheme") == "HTTPS",
        tuple((str(item["name"]), str(item.get("value", ""))) for item in action.get("httpHeaders") or ()),
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


async def run_probe(probe: Probe, address: str) -> str:
    """Executes a probe of a pod with this address once: "" if it succeeded, else why not, in a kubelet's words, which
    are those of Go's net."""
    where = join_host_port(probe.host or address, probe.port)
    path = probe.path if probe.path.startswith("/") else f"/{probe.path}"
    is_http = probe.kind == "httpGet"
    asked = f'Get "{"https" if probe.tls else "http"}://{where}{path}": ' if is_http else ""
    # The kubelet does not verify certificates either.
    context = ssl._create_unverified_context() if probe.tls else None
    try:
        request = _request(probe, path, where)
        async with asyncio.timeout(probe.timeout):
            reader, writer = await asyncio.open_connection(probe.host or address, probe.port, ssl=context)
            try:
                writer.write(request)
                return _judge(await reader.readline(), asked) if is_http else ""
            finally:
                writer.transport.abort()
    except TimeoutError:
        late = "context deadline exceeded (Client.Timeout exceeded while awaiting headers)"
        return f"{asked}{late}" if is_http else f"dial tcp {where}: i/o timeout"
    except (OSError, ValueError, OverflowError) as error:
        number = error.errno if isinstance(error, OSError) else None
        return (
            f"{asked}dial tcp {where}: connect: {os.strerror(number).lower()}" if number else f"{probe.kind}: {error}"
        )


def _request(probe: Probe, path: str, where: str) -> bytes:
    """What is sent: of HTTP only this is needed. Raises ValueError: it would be something else."""
    if probe.kind != "httpGet":
        return b""
    fields = {"Host": where, "User-Agent": "kube-probe/kproxy-lab", "Connection": "close", **dict(probe.headers)}
    lines = [f"GET {path} HTTP/1.1", *(f"{name}: {value}" for name, value in fields.items())]
    if any(character in line for line in lines for character in "\r\n"):
        raise ValueError("a line break in path or headers")
    return "\r\n".join([*lines, "", ""]).encode()


def _judge(line: bytes, asked: str) -> str:
    """What is wrong with the first line of an answer."""
    found = re.match(rb"HTTP/1\.[01] (\d{3})", line)
    if found is None:
        shown = json.dumps(line.rstrip()[:80].decode(errors="replace"))
        broken = f"net/http: HTTP/1.x transport connection broken: malformed HTTP response {shown}"
        return f"{asked}{broken if line else 'EOF'}"
    return "" if 200 <= int(found[1]) < 400 else f"HTTP probe failed with statuscode: {int(found[1])}"


class Count:
    """How probes of one container went: ready or not, by thresholds. A machine without a clock."""

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


Say = Callable[[str, str, str, str, str], None]
"""An Event: uid, container, reason, message, type."""


class Prober:
    """The probes of a node's pods, in an event loop that another thread runs; `changed(uid)` is called when a pod's
    readiness may have, `say` for every probe that fails, and once for each that is not executed."""

    def __init__(self, loop: asyncio.AbstractEventLoop, changed: Callable[[str], None], say: Say) -> None:
        self._loop = loop
        self._changed = changed
        self._say = say
        self._pods: dict[str, tuple[list[Future[None]], dict[str, bool]]] = {}

    def start(self, uid: str, containers: Sequence[Object], address: str) -> None:
        """Begins to probe a pod that has begun to run."""
        self.stop(uid)
        works, ready = self._pods[uid] = ([], {})
        for item in containers:
            name, probe = str(item["name"]), read_probe(item)
            if probe is None:
                continue
            if probe.kind not in ("httpGet", "tcpSocket"):
                text = f"Readiness probe taken as a success: {probe.kind} is the image's to answer"
                self._say(uid, name, "ProbeNotExecuted", text, NORMAL)
                continue
            ready[name] = False
            work = self._work(uid, name, probe, address, ready)
            works.append(asyncio.run_coroutine_threadsafe(work, self._loop))

    def stop(self, uid: str) -> None:
        works, _ = self._pods.pop(uid, ([], {}))
        for work in works:
            work.cancel()

    def readiness(self, uid: str) -> Mapping[str, bool]:
        """Which containers that have a probe are ready; without a pod's, all are."""
        _, ready = self._pods.get(uid, ([], {}))
        return dict(ready)

    async def _work(self, uid: str, name: str, probe: Probe, address: str, ready: dict[str, bool]) -> None:
        """One attempt after another until the pod ends."""
        count, attempts, wait = Count(probe), 0, probe.initial_delay
        while True:
            await asyncio.sleep(wait)
            problem = await run_probe(probe, address)
            if problem:
                self._say(uid, name, "Unhealthy", f"Readiness probe failed: {problem}", WARNING)
            count.note(not problem)
            if count.passed != ready[name]:
                log.info("readiness probe of container %s, pod %s: %s", name, uid, problem or "succeeded")
                ready[name] = count.passed
                self._changed(uid)
            attempts += 1
            early = not count.passed and attempts < _FAST_ATTEMPTS
            wait = min(probe.period, _FAST) if early else probe.period
