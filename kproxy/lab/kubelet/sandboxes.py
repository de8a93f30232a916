"""The sandboxes of a node's pods: a network namespace with the plugins' interface in it, and the pod's own files.

Each is kept on disk, so that a kubelet that starts again finds it. A pod with hostNetwork has the node's namespace.
"""

from __future__ import annotations

import contextlib
import subprocess
import threading
from collections.abc import Mapping
from pathlib import Path
from typing import Final

import msgspec

from kproxy.lab.errors import LabError
from kproxy.lab.kubelet.cni import Attachment, NetworkList, PluginError
from kproxy.lab.kubelet.podspec import port_mappings
from kproxy.lab.kubelet.resolver import PODS_DIRECTORY, files_of, remove_files, write_files
from kproxy.lab.network import delete_namespaces, set_up_pod
from kproxy.lab.resources import Json, Object, key_of
from kproxy.lab.spec import LabSpec, NodePlan, family_of
from kproxy.linux.errors import LinuxError
from kproxy.linux.namespace import NETNS_DIRECTORY

_INTERFACE: Final = "eth0"


class Sandbox(msgspec.Struct, frozen=True):
    """A pod's namespace as it was made: `result` is the plugins', `runtime` the capabilities that they were given."""

    uid: str
    key: str
    netns: str
    addresses: tuple[str, ...]
    result: Json
    runtime: Json
    host_network: bool = False


class Sandboxes:
    """The sandboxes of one node, by the pods' uids. Thread-safe; no two threads may work on one pod."""

    def __init__(self, spec: LabSpec, plan: NodePlan, network: NetworkList, directory: Path) -> None:
        self._spec = spec
        self._plan = plan
        self._network = network
        self._directory = directory / PODS_DIRECTORY
        self._directory.mkdir(parents=True, exist_ok=True)
        self._lock = threading.Lock()
        self._made: dict[str, Sandbox] = {}
        for file in self._directory.glob("*.json"):
            try:
                item = msgspec.json.decode(file.read_bytes(), type=Sandbox)
            except (OSError, msgspec.DecodeError):
                file.unlink(missing_ok=True)
                continue
            self._made[item.uid] = item

    def get(self, uid: str) -> Sandbox | None:
        with self._lock:
            return self._made.get(uid)

    def list(self) -> list[Sandbox]:
        with self._lock:
            return list(self._made.values())

    def files(self, uid: str) -> Mapping[str, str]:
        """What a pod sees in place of this machine's files."""
        return files_of(self._directory, uid)

    def make(self, pod: Object) -> Sandbox:
        """A pod's sandbox, made if there is none. Raises LabError, LinuxError."""
        uid = str(pod["metadata"]["uid"])
        known = self.get(uid)
        if known is not None:
            return known
        if pod["spec"].get("hostNetwork"):
            made = Sandbox(uid, key_of(pod), self._plan.namespace, self._plan.addresses, {}, {}, True)
        else:
            made = self._attach(pod, uid)
        write_files(pod, self._spec.dns_addresses, self._directory)
        self._file(uid).write_bytes(msgspec.json.encode(made))
        with self._lock:
            self._made[uid] = made
        return made

    def remove(self, uid: str) -> None:
        """Takes a pod's sandbox away, if it has one. Raises PluginError."""
        sandbox = self.get(uid)
        if sandbox is None:
            return
        if not sandbox.host_network:
            netns = f"{NETNS_DIRECTORY}/{sandbox.netns}"
            path = netns if Path(netns).exists() else ""
            self._network.delete(Attachment(uid, path, _INTERFACE, "", sandbox.runtime), sandbox.result)
            delete_namespaces([sandbox.netns])
        self._file(uid).unlink(missing_ok=True)
        remove_files(self._directory, uid)
        with self._lock:
            self._made.pop(uid, None)

    def _file(self, uid: str) -> Path:
        return self._directory / f"{uid}.json"

    def _attach(self, pod: Object, uid: str) -> Sandbox:
        meta, netns = pod["metadata"], self._spec.pod_namespace(uid)
        runtime: Json = {"portMappings": port_mappings(pod)}
        arguments = f"IgnoreUnknown=1;K8S_POD_NAMESPACE={meta['namespace']};K8S_POD_NAME={meta['name']}"
        attachment = Attachment(uid, f"{NETNS_DIRECTORY}/{netns}", _INTERFACE, arguments, runtime)
        if (Path(NETNS_DIRECTORY) / netns).exists():
            self._undo(attachment, netns)  # left by a kubelet that was killed here
        done = subprocess.run(["ip", "netns", "add", netns], capture_output=True, text=True, check=False)
        if done.returncode:
            raise LabError(f"cannot make namespace {netns}: {done.stderr.strip()}")
        try:
            set_up_pod(netns)
            result = self._network.add(attachment)
        except (LabError, LinuxError):
            self._undo(attachment, netns)
            raise
        addresses = [str(item["address"]).partition("/")[0] for item in result.get("ips") or ()]
        ordered = [a for family in self._spec.families for a in addresses if family_of(a) == family]
        return Sandbox(uid, key_of(pod), netns, tuple(ordered), result, runtime)

    def _undo(self, attachment: Attachment, netns: str) -> None:
        with contextlib.suppress(PluginError):
            self._network.delete(attachment, None)
        delete_namespaces([netns])
