"""CNI ADD as a container runtime executes it: alone and 50 at once; the plugin by itself, and with a daemon behind it.

Each ADD is timed from before its process is started until after it has ended, so with 50 at once most of the time of
the plugin by itself is Python starting 50 times on the processors there are. Everything is in network namespaces.
"""

from __future__ import annotations

import json
import os
import select
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from kproxy.cni.install import install_launcher
from kproxy.cni.server import CniServer
from kproxy.linux.namespace import Namespace

AT_ONCE = 50
ROUNDS = 3
ALONE = 15
PREFIX = f"kp-cnib{os.getpid()}"


def _ip(*words: str) -> None:
    subprocess.run(["ip", *words], check=True, capture_output=True)


def _environment(command: str, number: int) -> Mapping[str, str]:
    return {
        "PATH": os.environ["PATH"], "CNI_COMMAND": command, "CNI_CONTAINERID": f"pod{number}", "CNI_IFNAME": "eth0",
        "CNI_NETNS": f"/run/netns/{PREFIX}-{number}", "CNI_PATH": "/opt/cni/bin",
    }  # fmt: skip


def _spawn(plugin: Path, command: str, number: int, conf: Path, output: Path) -> int:
    """Starts an execution and returns its process id: as little work of ours beside the plugin's as can be."""
    actions = [
        (os.POSIX_SPAWN_OPEN, 0, str(conf), os.O_RDONLY, 0),
        (os.POSIX_SPAWN_OPEN, 1, str(output), os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600),
    ]
    return os.posix_spawn(str(plugin), [str(plugin)], _environment(command, number), file_actions=actions)


def _execute(plugin: Path, command: str, numbers: range, conf: Path) -> list[float]:
    """Starts executions one right after the other; the seconds of each from its start to its end."""
    poll = select.poll()
    began: dict[int, tuple[int, float]] = {}
    times = []
    for number in numbers:
        start = time.perf_counter()
        pid = _spawn(plugin, command, number, conf, conf.parent / f"out{number}")
        descriptor = os.pidfd_open(pid)
        began[descriptor] = (pid, start)
        poll.register(descriptor, select.POLLIN)
    while began:
        for descriptor, _ in poll.poll():
            pid, start = began.pop(descriptor)
            times.append(time.perf_counter() - start)
            poll.unregister(descriptor)
            os.close(descriptor)
            _, status = os.waitpid(pid, 0)
            assert status == 0, [path.read_text() for path in conf.parent.glob("out*") if "code" in path.read_text()]
    return times


def _measure(node: Namespace, plugin: Path, conf: Path) -> tuple[list[float], list[float], float]:
    """ADD alone, ADD 50 at once in all rounds, and the seconds until all of a round had ended, in the median."""
    alone = []
    for _ in range(ALONE):
        alone += node.call(_execute, plugin, "ADD", range(1), conf)
        node.call(_execute, plugin, "DEL", range(1), conf)
    together, whole = [], []
    for _ in range(ROUNDS):
        began = time.perf_counter()
        together += node.call(_execute, plugin, "ADD", range(AT_ONCE), conf)
        whole.append(time.perf_counter() - began)
        node.call(_execute, plugin, "DEL", range(AT_ONCE), conf)
    return alone, together, statistics.median(whole)


def main() -> None:
    """Prints the table."""
    if os.geteuid() != 0:
        print("cni: needs root, left out")
        return
    names = [f"{PREFIX}-node", *(f"{PREFIX}-{number}" for number in range(AT_ONCE))]
    conf: dict[str, Any] = {
        "cniVersion": "1.1.0", "name": "bench", "type": "kproxy-cni", "mtu": 1450, "isDefaultGateway": True,
        "ipam": {"ranges": [[{"subnet": "10.244.1.0/24"}], [{"subnet": "fd00:10:244:1::/64"}]]},
    }  # fmt: skip
    script = Path(sys.executable).parent / "kproxy-cni"
    with ExitStack() as stack:
        scratch = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="kpcni", dir="/dev/shm")))
        for name in names:
            stack.callback(subprocess.run, ["ip", "netns", "del", name], capture_output=True)
            _ip("netns", "add", name)
        node = stack.enter_context(Namespace.named(names[0]))
        launcher = install_launcher(scratch / "bin", script)
        server = stack.enter_context(_daemon(names[0], f"{launcher}.sock"))
        assert server
        print(f"\nCNI ADD, dual stack, {os.cpu_count()} processors; milliseconds from start to end of the process")
        print(f"{'':34}{'alone':>8}{f'{AT_ONCE} at once: median':>24}{'worst':>8}{'all':>8}")
        kinds: dict[str, Path] = {"kproxy-cni (Python)": script, "launcher and daemon": launcher}
        for kind, plugin in kinds.items():
            file = scratch / "conf.json"
            file.write_text(json.dumps({**conf, "dataDir": str(scratch / plugin.parent.name)}))
            alone, together, whole = _measure(node, plugin, file)
            figures = [statistics.median(alone), statistics.median(together), max(together), whole]
            shown = [f"{figure * 1000:.0f}" for figure in figures]
            print(f"{kind:34}{shown[0]:>8}{shown[1]:>24}{shown[2]:>8}{shown[3]:>8}")


class _daemon:  # noqa: N801  # a context manager
    """A process of its own that serves the socket, as `kproxy overlay run --cni-socket` does."""

    def __init__(self, node: str, path: str) -> None:
        code = "import sys, threading\nfrom bench.cni import serve_forever\nserve_forever(sys.argv[1], sys.argv[2])"
        self._path = path
        self._process = subprocess.Popen([sys.executable, "-c", code, node, path])

    def __enter__(self) -> bool:
        until = time.monotonic() + 20
        while not os.path.exists(self._path):
            assert time.monotonic() < until, "the daemon did not start"
            time.sleep(0.01)
        return True

    def __exit__(self, *_: object) -> None:
        self._process.terminate()
        self._process.wait(20)


def serve_forever(node: str, path: str) -> None:
    """The daemon's process."""
    with Namespace.named(node) as namespace, CniServer(path, namespace):
        threading.Event().wait()
