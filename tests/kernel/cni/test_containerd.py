"""kproxy-cni with what it meets on a node: containerd, asked as the kubelet asks it, and the CNI project's plugins.

`make test-slow` unpacks both (scripts/container-tools.sh). containerd is in namespaces of its own, of which the daemon
behind the launcher sees nothing; its containers are processes that sleep (oci_runtime.py).
"""

from __future__ import annotations

import hashlib
import io
import json
import os
import shutil
import socket
import struct
import subprocess
import sys
import tarfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from kproxy.cni.install import install_node_launcher, write_conflist
from kproxy.cni.server import CniServer
from kproxy.lab.kubelet.cni import Attachment, NetworkList
from kproxy.linux.namespace import Namespace
from kproxy.overlay.conflist import network_list
from kproxy.overlay.ipam import Network
from kproxy.overlay.netconf import read_netconf
from tests.support import paths
from tests.support.cni.client import configuration, ip, namespaces

pytestmark = [pytest.mark.root, pytest.mark.slow]
TOOLS = Path(sys.executable).parent.parent / "container-tools" / "usr"
CIDRS: list[Network] = [item.ranges[0].subnet for item in read_netconf(configuration(), {}).ranges]
IMAGE = "kproxy.test/pause:1"
UDP, TCP = 1, 0
"""runtime.v1.Protocol."""


def varint(number: int) -> bytes:
    out = bytearray()
    while number > 127:
        out.append(number & 127 | 128)
        number >>= 7
    return bytes([*out, number])


def field(number: int, value: int | str | bytes) -> bytes:
    """A field of a protobuf message."""
    if isinstance(value, int):
        return varint(number << 3) + varint(value)
    data = value.encode() if isinstance(value, str) else value
    return varint(number << 3 | 2) + varint(len(data)) + data


@dataclass(frozen=True)
class Containerd:
    """A containerd in a node's network namespace; `data` is the plugin's state, `pid` containerd's."""

    node: str
    directory: Path
    pid: int

    def call(self, method: str, message: bytes) -> tuple[bytes, str]:
        """Calls the CRI's RuntimeService: the answer's message, and the error's text, "" if there is none."""
        headers = self.directory / "headers"
        done = subprocess.run(
            ["curl", "-sS", "--max-time", "120", "--http2-prior-knowledge", "--unix-socket", self.directory / "cd.sock",
             "-H", "content-type: application/grpc", "-H", "te: trailers", "--data-binary", "@-", "-D", headers,
             f"http://localhost/runtime.v1.RuntimeService/{method}"],
            input=b"\0" + struct.pack(">I", len(message)) + message, capture_output=True, check=True,
        )  # fmt: skip
        told = dict(line.split(": ", 1) for line in headers.read_text().splitlines() if ": " in line)
        return done.stdout[5:], "" if told["grpc-status"] == "0" else told["grpc-message"]

    def run_pod(self, name: str, ports: bytes = b"") -> tuple[str, str]:
        """RunPodSandbox as the kubelet sends it: the sandbox's ID, or the error."""
        metadata = field(1, name) + field(2, f"uid-{name}") + field(3, "default") + field(4, 0)
        config = field(1, metadata) + field(2, name) + field(3, str(self.directory / "logs")) + ports + field(8, b"")
        answer, error = self.call("RunPodSandbox", field(1, config))
        return answer[2:].decode(), error

    @property
    def attachments(self) -> dict[str, Any]:
        document = json.loads((self.directory / "data" / "kproxy" / "state.json").read_text())
        assert isinstance(document["attachments"], dict)
        return document["attachments"]


def port(protocol: int, container: int, host: int, address: str = "") -> bytes:
    """A PortMapping of a PodSandboxConfig."""
    return field(5, field(1, protocol) + field(2, container) + field(3, host) + (field(4, address) if address else b""))


def image() -> bytes:
    """A container image with one file, as docker saves them."""

    def archive(files: dict[str, bytes]) -> bytes:
        out = io.BytesIO()
        with tarfile.open(fileobj=out, mode="w") as tar:
            for name, data in files.items():
                info = tarfile.TarInfo(name)
                info.size = len(data)
                tar.addfile(info, io.BytesIO(data))
        return out.getvalue()

    layer = archive({"pause": b""})
    layers = {"type": "layers", "diff_ids": [f"sha256:{hashlib.sha256(layer).hexdigest()}"]}
    architecture = {"x86_64": "amd64", "aarch64": "arm64"}[os.uname().machine]
    config = {"architecture": architecture, "os": "linux", "config": {"Entrypoint": ["/pause"]}, "rootfs": layers}
    manifest = [{"Config": "config.json", "RepoTags": [IMAGE], "Layers": ["layer.tar"]}]
    documents = {"config.json": config, "manifest.json": manifest}
    return archive({"layer.tar": layer, **{name: json.dumps(value).encode() for name, value in documents.items()}})


def configure(directory: Path) -> None:
    """Writes containerd's configuration, the plugins and the list, and what stands for runc."""
    cri = '[plugins."io.containerd.grpc.v1.cri"'
    (directory / "config.toml").write_text(f"""
version = 2
root = "{directory}/root"
state = "{directory}/state"
[grpc]
address = "{directory}/cd.sock"
{cri}]
sandbox_image = "{IMAGE}"
disable_apparmor = true
restrict_oom_score_adj = true
{cri}.cni]
bin_dir = "{directory}/bin"
conf_dir = "{directory}/net.d"
{cri}.containerd]
snapshotter = "native"
{cri}.containerd.runtimes.runc]
runtime_type = "io.containerd.runc.v2"
{cri}.containerd.runtimes.runc.options]
BinaryName = "{directory}/runc"
""")
    install_node_launcher(directory / "bin", str(directory / "cni.sock"))
    shutil.copy(TOOLS / "lib/cni/loopback", directory / "bin")
    write_conflist(directory / "net.d", network_list(CIDRS, 1430, data_dir=str(directory / "data")))
    (directory / "pids").mkdir()
    runtime = directory / "runc"
    program = paths.TESTS / "support/cni/oci_runtime.py"
    runtime.write_text(f'#!/bin/sh\nOCI_RUNTIME_STATE={directory}/pids exec {sys.executable} {program} "$@"\n')
    runtime.chmod(0o755)


@contextmanager
def running(node: str, directory: Path) -> Iterator[Containerd]:
    """containerd with the sandbox's image. All that it starts is in its PID namespace, and ends with it."""
    configure(directory)
    script = (
        f"mount -t tmpfs tmpfs /run && mkdir -p /run/netns && exec {TOOLS}/bin/containerd -c {directory}/config.toml"
    )
    command = ["unshare", "--mount", "--propagation", "private", "--pid", "--fork", "--kill-child", "--mount-proc"]
    environment = {**os.environ, "PATH": f"{TOOLS}/bin:{os.environ['PATH']}"}
    with Namespace.named(node) as inside, (directory / "containerd.log").open("w") as log:
        process = inside.call(
            lambda: subprocess.Popen([*command, "sh", "-ec", script], stdout=log, stderr=log, env=environment)
        )
    try:
        until = time.monotonic() + 60
        while not (directory / "cd.sock").exists():
            assert process.poll() is None, (directory / "containerd.log").read_text()
            assert time.monotonic() < until, (directory / "containerd.log").read_text()
            time.sleep(0.1)
        ctr = [str(TOOLS / "bin/ctr"), "-a", str(directory / "cd.sock"), "-n", "k8s.io", "images", "import", "-"]
        subprocess.run(ctr, input=image(), check=True, capture_output=True)
        [pid] = Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()
        yield Containerd(node, directory, int(pid))
    finally:
        process.kill()
        process.wait()


def echoes(pod: Namespace, node: Namespace, listen: int, address: str, number: int, kind: int) -> bool:
    """Whether what the node sends to an address and port arrives in the Pod."""
    with (
        pod.call(socket.socket, socket.AF_INET, kind) as server,
        node.call(socket.socket, socket.AF_INET, kind) as client,
    ):
        server.bind(("0.0.0.0", listen))
        server.settimeout(10)
        client.settimeout(10)
        if kind == socket.SOCK_STREAM:
            server.listen()
        client.connect((address, number))
        client.send(b"ping")
        if kind == socket.SOCK_DGRAM:
            return server.recv(10) == b"ping"
        with server.accept()[0] as accepted:
            return accepted.recv(10) == b"ping"


def test_the_kubelets_pods_with_host_ports(tmp_path: Path) -> None:
    """containerd 1.6 prints the mappings' fields as HostPort, ContainerPort, Protocol and HostIP."""
    assert (TOOLS / "bin/containerd").exists(), "make test-slow unpacks it"
    with (
        namespaces("node", "daemon") as names,
        Namespace.named(names["daemon"]) as elsewhere,
        CniServer(str(tmp_path / "cni.sock"), elsewhere),
        running(names["node"], tmp_path) as containerd,
    ):
        ports = port(UDP, 7000, 8080) + port(TCP, 7001, 8081, "127.0.0.1")
        pod, error = containerd.run_pod("web", ports)
        assert not error
        answer, _ = containerd.call("PodSandboxStatus", field(1, pod))
        assert field(1, "10.244.1.2") in answer
        assert field(1, "fd00:10:244:1::2") in answer
        netns = f"/proc/{containerd.pid}/root{containerd.attachments[f'{pod}/eth0']['netns']}"
        with Namespace.named(netns.replace("/var/run/", "/run/")) as inside, Namespace.named(names["node"]) as node:
            assert echoes(inside, node, 7000, "127.0.0.1", 8080, socket.SOCK_DGRAM)
            assert echoes(inside, node, 7001, "127.0.0.1", 8081, socket.SOCK_STREAM)
        _, error = containerd.run_pod("other", ports)
        assert "the host port is taken" in error
        assert set(containerd.attachments) == {f"{pod}/eth0"}, "what the refused one had is freed"
        other, error = containerd.run_pod("third")
        assert not error
        for each in (pod, other):
            assert containerd.call("StopPodSandbox", field(1, each)) == (b"", "")
            assert containerd.call("RemovePodSandbox", field(1, each)) == (b"", "")
        assert containerd.attachments == {}
        assert "veth" not in ip("-n", names["node"], "-br", "link")


def test_host_ports_of_different_addresses_and_protocols(tmp_path: Path) -> None:
    """[sig-network] HostPort validates that there is no conflict between pods with same hostPort but different hostIP
    and protocol"""
    with (
        namespaces("node") as names,
        Namespace.named(names["node"]) as node,
        CniServer(str(tmp_path / "cni.sock"), node),
        running(names["node"], tmp_path) as containerd,
    ):
        for words in ("link add under0 type bridge", "link set under0 up", "address add 192.168.9.1/24 dev under0"):
            ip("-n", names["node"], *words.split())
        asked = (("127.0.0.1", TCP), ("192.168.9.1", TCP), ("192.168.9.1", UDP))
        for number, (address, protocol) in enumerate(asked):
            pod, error = containerd.run_pod(f"pod{number}", port(protocol, 8080, 54323, address))
            assert not error
            netns = containerd.attachments[f"{pod}/eth0"]["netns"].replace("/var/run/", "/run/")
            kind = socket.SOCK_DGRAM if protocol == UDP else socket.SOCK_STREAM
            with Namespace.named(f"/proc/{containerd.pid}/root{netns}") as inside:
                assert echoes(inside, node, 8080, address, 54323, kind)


def test_plugins_that_come_later_in_the_list(tmp_path: Path) -> None:
    """tuning changes MTU and MAC, sbr moves routes to another table; CHECK holds after both, and DEL cleans up."""
    plugin = Path(sys.executable).parent
    [first] = network_list(CIDRS, 1430, data_dir=str(tmp_path))["plugins"]
    later: list[dict[str, Any]] = [{"type": "tuning", "mtu": 1300, "mac": "02:00:00:00:00:99"}, {"type": "sbr"}]
    with namespaces("node", "pod") as names, Namespace.named(names["node"]) as node:
        attachment = Attachment("c1", f"/run/netns/{names['pod']}")
        for version in ("0.4.0", "1.0.0"):
            network = NetworkList("kproxy", version, (first, *later), f"{plugin}:{TOOLS / 'lib/cni'}")
            result = node.call(network.add, attachment)
            assert result["interfaces"][2]["mac"] == "02:00:00:00:00:99"
            assert "mtu 1300" in ip("-n", names["pod"], "link", "show", "eth0")
            assert "default" not in ip("-n", names["pod"], "route")
            node.call(network.check, attachment, result)
            ip(
                "-n",
                names["pod"],
                "address",
                "del",
                "10.244.1.2/24" if version < "1" else "10.244.1.3/24",
                "dev",
                "eth0",
            )
            with pytest.raises(Exception, match=r"lacks 10\.244\.1\."):
                node.call(network.check, attachment, result)
            node.call(network.delete, attachment, result)
            assert "eth0" not in ip("-n", names["pod"], "-br", "link")
