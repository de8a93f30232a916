"""deploy/overlay: its manifests against the schema and RBAC, and what its containers do, on a node of namespaces.

The daemon and the launcher see different files, as they do on a node: the daemon nothing of /run but /run/kproxy, the
launcher no Python and no compiler.
"""

from __future__ import annotations

import json
import os
import shlex
import shutil
import subprocess
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import yaml

from kproxy import __version__
from kproxy.cni.install import NODE_SOCKET, PACKAGED
from kproxy.linux.namespace import Namespace
from kproxy.overlay.errors import Code
from tests.support import paths
from tests.support.cni.client import ip, namespaces
from tests.support.processes import read_until, started

pytestmark = [pytest.mark.root, pytest.mark.slow]
ROOT = paths.ROOT
DEPLOY = ROOT / "deploy" / "overlay"
KPROXY = str(Path(sys.executable).parent / "kproxy")
TOKENS = 'admin-token,admin,uid1,"system:masters"\n'
NODE: dict[str, Any] = {
    "apiVersion": "v1",
    "kind": "Node",
    "metadata": {"name": "node-1"},
    "spec": {"podCIDR": "10.244.1.0/24", "podCIDRs": ["10.244.1.0/24", "fd00:10:244:1::/64"]},
}
ADDRESSES = [{"type": "InternalIP", "address": item} for item in ("192.168.9.1", "fd00:9::1")]


@pytest.fixture(scope="module")
def objects() -> dict[str, Any]:
    """What `kubectl apply -k deploy/overlay` would send, by kind."""
    built = subprocess.run(["kubectl", "kustomize", str(DEPLOY)], capture_output=True, text=True, check=True)
    found = {each["kind"]: each for each in yaml.safe_load_all(built.stdout)}
    assert sorted(found) == ["ClusterRole", "ClusterRoleBinding", "DaemonSet", "ServiceAccount"]
    return found


@dataclass(frozen=True)
class Node:
    """A node: a namespace with an API server, and directories that are its file system.

    Attributes:
        pod: the name of a Pod's namespace.
        kubeconfig: with the ServiceAccount's token.
    """

    namespace: Namespace
    pod: str
    directory: Path
    admin: Path
    kubeconfig: Path

    def start(self, *command: str, **options: Any) -> subprocess.Popen[str]:
        pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
        return self.namespace.call(lambda: subprocess.Popen(command, text=True, **{**pipes, **options}))

    def kubectl(self, *words: str, document: object = None) -> str:
        process = self.start("kubectl", "--kubeconfig", str(self.admin), *words)
        output, errors = process.communicate(json.dumps(document) if document is not None else "", timeout=60)
        assert process.returncode == 0, errors
        return output

    def arguments(self, container: Mapping[str, Any]) -> list[str]:
        """A container's command line, with this node's directories and the ServiceAccount's kubeconfig."""
        texts = [
            text.replace("=/tmp/", f"={self.directory}/")  # first: the node's directory may be in /tmp itself
            .replace("/host/", f"{self.directory}/")
            .replace("$(NODE_NAME)", "node-1")
            for text in container["args"]
        ]
        return [KPROXY, *texts, "--kubeconfig", str(self.kubeconfig)]

    def launcher(self, command: str, plugin: Mapping[str, Any], container: str = "c1") -> tuple[int, Any]:
        """Executes the launcher as a container runtime does, where there is nothing else; its answer."""
        environment = {
            "CNI_COMMAND": command, "CNI_CONTAINERID": container, "CNI_IFNAME": "eth0", "CNI_PATH": "/opt/cni/bin",
            "CNI_NETNS": f"/run/netns/{self.pod}", "PATH": "/nowhere",
        }  # fmt: skip
        program = str(self.directory / "opt/cni/bin/kproxy-cni")
        words = ["env", "-i", *(f"{name}={value}" for name, value in environment.items()), program]
        process = self.start(*_with_files(self.directory, words, netns=True))
        output, _ = process.communicate(json.dumps(plugin), timeout=60)
        return process.returncode, json.loads(output) if output else None


def _with_files(directory: Path, words: list[str], netns: bool) -> list[str]:
    """A command that sees of /run only the node's /run/kproxy, and /run/netns if that is wanted."""
    run, kept = directory / "run", directory / "netns"
    script = [
        f"mount --rbind /run/netns {kept}",
        "mount -t tmpfs tmpfs /run",
        "mkdir /run/kproxy /run/netns",
        f"mount --bind {run} /run/kproxy",
        *([f"mount --rbind {kept} /run/netns"] if netns else []),
        f"exec {shlex.join(words)}",
    ]
    return ["unshare", "--mount", "--propagation", "private", "sh", "-ec", "\n".join(script)]


@pytest.fixture
def node(tmp_path: Path) -> Iterator[Node]:
    """A node whose API server has taken all of deploy/overlay, every field known and valid."""
    for name in ("run", "netns"):
        (tmp_path / name).mkdir()
    (tmp_path / "tokens.csv").write_text(TOKENS)
    admin, kubeconfig = tmp_path / "admin.conf", tmp_path / "overlay.conf"
    with namespaces("node", "pod") as names, Namespace.named(names["node"]) as namespace:
        for words in (
            "link add under0 type bridge", "link set under0 up",
            "address add 192.168.9.1/24 dev under0", "address add fd00:9::1/64 dev under0 nodad",
        ):  # fmt: skip
            ip("-n", names["node"], *words.split())
        made = Node(namespace, names["pod"], tmp_path, admin, kubeconfig)
        server = made.start(
            KPROXY, "apiserver", "--data", str(tmp_path / "api"), "--listen", "127.0.0.1:0",
            "--write-kubeconfig", str(admin), "--token-file", str(tmp_path / "tokens.csv"),
        )  # fmt: skip
        with started(server, "ready"):
            told = made.kubectl("apply", "--validate=true", "--dry-run=server", "-k", str(DEPLOY))
            assert len(told.splitlines()) == 4
            made.kubectl("apply", "--validate=true", "-k", str(DEPLOY))
            account = "/api/v1/namespaces/kube-system/serviceaccounts/kproxy-overlay"
            answer = made.kubectl("create", "--raw", f"{account}/token", "-f", "-", document={"spec": {}})
            token = json.loads(answer)["status"]["token"]
            document = yaml.safe_load(admin.read_text())
            document["users"][0]["user"] = {"token": token}
            kubeconfig.write_text(yaml.safe_dump(document))
            yield made


def test_a_node_gets_its_plugin_and_pods_their_network(node: Node, objects: Mapping[str, Any]) -> None:
    pod_spec = objects["DaemonSet"]["spec"]["template"]["spec"]
    [install], [run] = pod_spec["initContainers"], pod_spec["containers"]
    launcher, conflist = node.directory / "opt/cni/bin/kproxy-cni", node.directory / "etc/cni/net.d/10-kproxy.conflist"

    added = "".join(f",+{name.lower()}" for name in install["securityContext"]["capabilities"]["add"])
    installing = node.start("setpriv", f"--bounding-set=-all{added}", *node.arguments(install))
    read_until(installing, "node node-1 is not among the Node objects")
    node.kubectl("create", "-f", "-", document={**NODE, "spec": {}})
    read_until(installing, "node node-1 has no podCIDR yet")
    assert launcher.exists()
    assert not conflist.exists(), "with it the runtime would take the network for ready"
    found = json.loads(node.kubectl("get", "node", "node-1", "-o", "json"))
    found["status"] = {"addresses": ADDRESSES}
    node.kubectl("replace", "--raw", "/api/v1/nodes/node-1/status", "-f", "-", document=found)
    node.kubectl("patch", "node", "node-1", "--type=merge", "-p", json.dumps({"spec": NODE["spec"]}))
    _, errors = installing.communicate(timeout=60)
    assert installing.returncode == 0, errors
    assert [path.name for path in conflist.parent.iterdir()] == [conflist.name]

    document = json.loads(conflist.read_text())
    assert document["cniVersion"] == "1.0.0"
    [plugin] = document["plugins"]
    assert plugin["mtu"] == 1430, "what VXLAN over IPv6 leaves of 1500 bytes"
    # As libcni makes it of the list, with the port mappings that containerd passes.
    request = {
        **plugin,
        "cniVersion": "1.0.0",
        "name": document["name"],
        "runtimeConfig": {"portMappings": [{"HostPort": 8080, "ContainerPort": 80, "Protocol": "tcp", "HostIP": ""}]},
    }
    assert node.launcher("ADD", request)[1]["code"] == Code.TRY_AGAIN_LATER, "no daemon yet"
    with started(node.start(*_with_files(node.directory, node.arguments(run), netns=False)), "ready"):
        code, result = node.launcher("ADD", request)
        assert code == 0, result
        assert (node.directory / "ready").exists(), "what the readiness probe looks for"
        assert result["cniVersion"] == "1.0.0"
        assert [item["address"] for item in result["ips"]] == ["10.244.1.2/24", "fd00:10:244:1::2/64"]
        assert result["interfaces"][2]["sandbox"] == f"/run/netns/{node.pod}"
        assert "mtu 1430" in ip("-n", node.pod, "link", "show", "eth0")
        assert node.launcher("CHECK", {**request, "prevResult": result}) == (0, None)
        assert node.launcher("STATUS", {**request, "cniVersion": "1.1.0"}) == (0, None)
    answer = node.launcher("DEL", request)
    assert (answer[0], answer[1]["code"]) == (1, Code.TRY_AGAIN_LATER), (
        "the runtime keeps the Pod until it is there again"
    )
    with started(node.start(*_with_files(node.directory, node.arguments(run), netns=False)), "ready"):
        assert node.launcher("DEL", request) == (0, None)
    assert "eth0" not in ip("-n", node.pod, "-br", "link")


def test_waiting_for_podcidrs_can_end(node: Node, objects: Mapping[str, Any]) -> None:
    node.kubectl("create", "-f", "-", document={**NODE, "spec": {}})
    install = objects["DaemonSet"]["spec"]["template"]["spec"]["initContainers"][0]
    process = node.start(*node.arguments(install), "--timeout", "0.1")
    _, errors = process.communicate(timeout=60)
    assert process.returncode == 1
    assert "node node-1 has no podCIDR yet, after 0.1 s" in errors
    assert "Traceback" not in errors


def test_an_mtu_is_not_guessed_in_silence(node: Node, objects: Mapping[str, Any]) -> None:
    """The Node's address may be on no interface, a NAT's say: pods keep the MTU that they begin with."""
    status = {"addresses": [{"type": "InternalIP", "address": "192.0.2.7"}]}
    spec = {"podCIDR": "10.244.1.0/24", "podCIDRs": ["10.244.1.0/24"]}
    node.kubectl("create", "--raw", "/api/v1/nodes", "-f", "-", document={**NODE, "spec": spec, "status": status})
    install = node.arguments(objects["DaemonSet"]["spec"]["template"]["spec"]["initContainers"][0])
    unknown = (
        "no interface has node node-1's address 192.0.2.7, so the MTU of the network between the nodes is not known"
    )

    def ended(*words: str) -> tuple[int, str]:
        process = node.start(*words)
        _, errors = process.communicate(timeout=60)
        return process.returncode, errors

    code, errors = ended(*install, "--timeout", "0.1")
    assert (code, unknown in errors) == (1, True), errors
    run = (KPROXY, "overlay", "run", "--once", "--node", "node-1", "--kubeconfig", str(node.kubeconfig))
    code, errors = ended(*run)
    assert (code, unknown in errors, "1500 bytes are assumed" in errors) == (0, True, True), errors
    for given in ("--mtu", "--underlay-mtu"):
        for command in ((*install, "--timeout", "30"), run):
            code, errors = ended(*command, given, "1400")
            assert (code, "no interface" in errors) == (0, False), errors
    conflist = json.loads((node.directory / "etc/cni/net.d/10-kproxy.conflist").read_text())
    assert conflist["plugins"][0]["mtu"] == 1350


def test_a_directory_that_cannot_be_written(node: Node) -> None:
    (node.directory / "file").touch()
    process = node.start(
        KPROXY, "overlay", "install-cni", "--node", "node-1", "--kubeconfig", str(node.kubeconfig),
        "--bin-dir", str(node.directory / "file" / "below"),
    )  # fmt: skip
    _, errors = process.communicate(timeout=60)
    assert process.returncode == 1
    assert "file/below/kproxy-cni" in errors
    assert "Traceback" not in errors


def test_the_pod_fits_together(objects: Mapping[str, Any]) -> None:
    spec = objects["DaemonSet"]["spec"]
    pod = spec["template"]["spec"]
    assert spec["selector"]["matchLabels"].items() <= spec["template"]["metadata"]["labels"].items()
    assert pod["serviceAccountName"] == objects["ServiceAccount"]["metadata"]["name"]
    assert pod["hostNetwork"] is True
    # It may read nodes and nothing else; that this is enough shows the test above, done with the account's token.
    assert objects["ClusterRole"]["rules"] == [{"apiGroups": [""], "resources": ["nodes"], "verbs": ["list", "watch"]}]
    volumes = {volume["name"]: volume for volume in pod["volumes"]}
    containers = (*pod["initContainers"], *pod["containers"])
    assert {mount["name"] for container in containers for mount in container["volumeMounts"]} == set(volumes)
    assert {container["image"] for container in containers} == {f"kproxy:{__version__}"}
    for container in containers:  # the node's paths are the same in the container, but for what is installed
        for mount in container["volumeMounts"]:
            path = volumes[mount["name"]].get("hostPath", {}).get("path", "/tmp")
            assert mount["mountPath"] in (path, f"/host{path}")
    [overlay] = pod["containers"]
    assert f"--cni-socket={NODE_SOCKET}" in overlay["args"]
    ready = overlay["readinessProbe"]["exec"]["command"][-1]
    assert f"--ready-file={ready}" in overlay["args"]
    assert overlay["securityContext"]["readOnlyRootFilesystem"] is True
    [mount] = [mount for mount in overlay["volumeMounts"] if mount["mountPath"] == os.path.dirname(ready)]
    assert "emptyDir" in volumes[mount["name"]]
    assert os.path.dirname(NODE_SOCKET) == volumes["state"]["hostPath"]["path"]


@pytest.mark.slow
def test_the_image_has_a_launcher_that_needs_nothing(tmp_path: Path) -> None:
    """Installed as the image installs it, from what the ignore file leaves, and executed in an empty root directory."""
    source, installed = tmp_path / "src", tmp_path / "installed"
    ignored = (ROOT / "deploy/Dockerfile.dockerignore").read_text().splitlines()
    source.mkdir()
    for name in (line[1:] for line in ignored if line.startswith("!")):
        if (ROOT / name).is_dir():
            shutil.copytree(ROOT / name, source / name, ignore=shutil.ignore_patterns("__pycache__"))
        else:
            (source / name).parent.mkdir(exist_ok=True)
            shutil.copy(ROOT / name, source / name)
    assert " -m kproxy.cni.install\n" in (ROOT / "deploy/Dockerfile").read_text()
    for module in (("pip", "install", "-q", "--no-deps", "--target", installed, source), ("kproxy.cni.install",)):
        command = [sys.executable, "-m", *map(str, module)]
        environment = os.environ | {"PYTHONPATH": str(installed)}
        done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
    empty = tmp_path / "root"
    empty.mkdir()
    shutil.copyfile(installed / "kproxy/cni" / PACKAGED.name, empty / "kproxy-cni")
    (empty / "kproxy-cni").chmod(0o755)
    asked = subprocess.run(
        ["chroot", str(empty), "/kproxy-cni"], input='{"cniVersion": "1.0.0"}',
        env={"CNI_COMMAND": "VERSION", "PATH": os.environ["PATH"]},
        capture_output=True, text=True, check=True,
    )  # fmt: skip
    assert json.loads(asked.stdout) == {
        "cniVersion": "1.0.0",
        "supportedVersions": ["0.3.0", "0.3.1", "0.4.0", "1.0.0", "1.1.0"],
    }
