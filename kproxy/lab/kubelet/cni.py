"""Calling CNI plugins as a container runtime does: a network configuration list, executed plugin by plugin.

The protocol is the CNI specification's 1.1.0, sections 2 to 5: parameters in the environment, the configuration on
stdin, results and errors as JSON on stdout. Nothing is known here of what a plugin does.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import msgspec

from kproxy.lab.errors import LabError
from kproxy.lab.resources import Json
from kproxy.overlay.request import VERSIONS

_TIMEOUT: Final = 60.0


class PluginError(LabError):
    """A plugin failed. `code` is the specification's (section 5), 0 if it died without saying."""

    def __init__(self, plugin: str, command: str, code: int, message: str) -> None:
        super().__init__(f"CNI {command} by {plugin} failed{f' with code {code}' if code else ''}: {message}")
        self.code = code


class Attachment(msgspec.Struct, frozen=True):
    """A container's attachment to the network. `netns` is a path, "" if it has gone; `runtime` holds capabilities."""

    container: str
    netns: str
    interface: str = "eth0"
    arguments: str = ""
    runtime: Mapping[str, Any] = msgspec.field(default_factory=dict)


class NetworkList(msgspec.Struct, frozen=True):
    """A network configuration list (`.conflist`), and where its plugins are. `version` is the newest of those in the
    list that is known here."""

    name: str
    version: str
    plugins: tuple[Json, ...]
    path: str

    @classmethod
    def load(cls, file: Path) -> NetworkList:
        """Reads a list. Raises LabError."""
        try:
            document = msgspec.json.decode(file.read_bytes(), type=dict[str, Any])
            written = [document["cniVersion"], *document.get("cniVersions", ())]
            known = [version for version in VERSIONS if version in written]
            return cls(document["name"], (known or written[:1])[-1], tuple(document["plugins"]), plugin_path())
        except (OSError, msgspec.DecodeError, KeyError) as error:
            raise LabError(f"{file}: no CNI network configuration list: {error}") from error

    def add(self, attachment: Attachment) -> Json:
        """ADD: the plugins in order, each given the result of the one before; the last result. Raises PluginError."""
        result: Json | None = None
        for plugin in self.plugins:
            result = self._call("ADD", plugin, attachment, result) or result
        return result or {}

    def delete(self, attachment: Attachment, result: Json | None) -> None:
        """DEL: the plugins backwards, each given the result of ADD. Raises PluginError."""
        for plugin in reversed(self.plugins):
            self._call("DEL", plugin, attachment, result)

    def check(self, attachment: Attachment, result: Json) -> None:
        """CHECK. Raises PluginError."""
        for plugin in self.plugins:
            self._call("CHECK", plugin, attachment, result)

    def status(self) -> None:
        """STATUS: whether ADD can be served now. Raises PluginError."""
        for plugin in self.plugins:
            self._call("STATUS", plugin, None, None)

    def _call(self, command: str, plugin: Json, attachment: Attachment | None, result: Json | None) -> Json | None:
        kind = str(plugin.get("type", ""))
        program = shutil.which(kind, path=self.path)
        if program is None:
            raise LabError(f"the CNI plugin {kind!r} is not in {self.path}")
        configuration = {**plugin, "name": self.name, "cniVersion": self.version}
        wanted = configuration.get("capabilities") or {}
        environment = {**os.environ, "CNI_COMMAND": command, "CNI_PATH": self.path}
        if attachment is not None:
            runtime = {name: value for name, value in attachment.runtime.items() if wanted.get(name)}
            if runtime:
                configuration["runtimeConfig"] = runtime
            environment |= {
                "CNI_CONTAINERID": attachment.container,
                "CNI_NETNS": attachment.netns,
                "CNI_IFNAME": attachment.interface,
                "CNI_ARGS": attachment.arguments,
            }
        if result is not None:
            configuration["prevResult"] = result
        configuration.pop("capabilities", None)
        return _execute(program, kind, command, configuration, environment)


def _execute(program: str, kind: str, command: str, configuration: Json, environment: Mapping[str, str]) -> Json | None:
    try:
        done = subprocess.run(
            [program],
            input=msgspec.json.encode(configuration),
            capture_output=True,
            env=dict(environment),
            timeout=_TIMEOUT,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise PluginError(kind, command, 0, str(error)) from error
    try:
        answer = msgspec.json.decode(done.stdout, type=dict[str, Any]) if done.stdout.strip() else None
    except msgspec.DecodeError:
        answer = None
    if done.returncode == 0:
        return answer
    if answer is not None and "code" in answer:
        details = f" ({answer['details']})" if answer.get("details") else ""
        raise PluginError(kind, command, int(answer["code"]), f"{answer.get('msg', '')}{details}")
    raise PluginError(kind, command, 0, done.stderr.decode(errors="replace").strip() or f"exit code {done.returncode}")


def plugin_path() -> str:
    """Where plugins are looked for: $CNI_PATH, beside this interpreter, then PATH."""
    parts = [os.environ.get("CNI_PATH", ""), str(Path(sys.executable).parent), os.environ.get("PATH", "")]
    return os.pathsep.join(part for part in parts if part)
