"""A CNI runtime for tests, as `cnitool` is one: it calls or executes the plugin, and makes the namespaces around it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import uuid
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from unittest import mock

from kproxy.cni.plugin import serve
from kproxy.linux.namespace import Namespace

PLUGIN = Path(sys.executable).parent / "kproxy-cni"
RANGES = [[{"subnet": "10.244.1.0/24"}], [{"subnet": "fd00:10:244:1::/64"}]]


def ip(*words: str) -> str:
    """Runs ip(8)."""
    done = subprocess.run(["ip", *words], capture_output=True, text=True, check=False)
    assert done.returncode == 0, f"ip {' '.join(words)}: {done.stderr}"
    return done.stdout


@contextmanager
def namespaces(*labels: str) -> Iterator[dict[str, str]]:
    """Named namespaces, loopback up, by label; deleted afterwards."""
    token = uuid.uuid4().hex[:6]
    names = {label: f"kp-cni{token}-{label}" for label in labels}
    try:
        for name in names.values():
            ip("netns", "add", name)
            ip("-n", name, "link", "set", "lo", "up")
        yield names
    finally:
        for name in names.values():
            if os.path.exists(f"/run/netns/{name}"):
                ip("netns", "del", name)


@dataclass(frozen=True)
class Result:
    """What an execution gave: exit code, and standard output as JSON, None if there was none."""

    code: int
    document: Any
    stderr: str

    @property
    def error(self) -> int:
        """The error result's code; the call must have failed."""
        assert self.code != 0, self.document
        return int(self.document["code"])

    @property
    def text(self) -> str:
        return f"{self.document.get('msg')}: {self.document.get('details', '')}"

    @property
    def result(self) -> dict[str, Any]:
        """The result; the call must have succeeded."""
        assert self.code == 0, self.document or self.stderr
        assert isinstance(self.document, dict)
        return self.document


@dataclass(frozen=True)
class Runtime:
    """Has requests carried out in a node's namespace with a configuration; `data` is the node's dataDir."""

    node: str
    data: Path
    conf: Mapping[str, Any]
    executed: bool = False
    """Whether `call` executes the plugin; else it calls what the plugin calls."""

    def configuration(self, **extra: Any) -> dict[str, Any]:
        """The configuration with keys added, or removed where the value is None."""
        merged = {**self.conf, "dataDir": str(self.data), **extra}
        return {key: value for key, value in merged.items() if value is not None}

    def environment(
        self, command: str, container: str, netns: str, ifname: str = "eth0", **extra: str
    ) -> dict[str, str]:
        """The environment with variables added, or removed where the value is empty."""
        path = netns if "/" in netns or not netns else f"/run/netns/{netns}"
        environment = {
            **{key: value for key, value in os.environ.items() if not key.startswith("CNI_")},
            "CNI_COMMAND": command,
            "CNI_CONTAINERID": container,
            "CNI_NETNS": path,
            "CNI_IFNAME": ifname,
            "CNI_PATH": str(PLUGIN.parent),
            **extra,
        }
        return {key: value for key, value in environment.items() if value}

    def start(self, environment: Mapping[str, str], document: object) -> subprocess.Popen[bytes]:
        """Starts the plugin in the node's namespace and feeds it."""
        with Namespace.named(self.node) as node:
            process = node.call(
                lambda: subprocess.Popen(
                    [PLUGIN], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=environment
                )
            )
        assert process.stdin is not None
        process.stdin.write(document if isinstance(document, bytes) else json.dumps(document).encode())
        process.stdin.close()
        process.stdin = None
        return process

    def call(self, command: str, container: str = "c1", netns: str = "", ifname: str = "eth0", **extra: Any) -> Result:
        """Carries out a command; `env` adds to the environment, the rest to the configuration."""
        environment = self.environment(command, container, netns, ifname, **extra.pop("env", {}))
        document = extra.pop("raw", None) or self.configuration(**extra)
        if self.executed:
            return finish(self.start(environment, document))
        with Namespace.named(self.node) as node, mock.patch.dict(os.environ, {"PATH": environment["PATH"]}):
            code, output = node.call(serve, environment, json.dumps(document).encode())
        return Result(code, json.loads(output) if output else None, "")

    def state(self) -> dict[str, Any]:
        """The state file; empty if there is none."""
        file = self.data / str(self.conf["name"]) / "state.json"
        found = json.loads(file.read_text()) if file.exists() else {"attachments": {}}
        assert isinstance(found, dict)
        return found


def finish(process: subprocess.Popen[bytes]) -> Result:
    """Waits for a started plugin."""
    output, errors = process.communicate(timeout=180)
    return Result(process.returncode, json.loads(output) if output.strip() else None, errors.decode())


def configuration(**extra: Any) -> dict[str, Any]:
    """A usual one."""
    return {
        "cniVersion": "1.1.0",
        "name": "kproxy",
        "type": "kproxy-cni",
        "mtu": 1450,
        "isDefaultGateway": True,
        "ipam": {"type": "host-local", "ranges": RANGES},
        **extra,
    }
