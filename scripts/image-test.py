"""Runs the image that `make image` built, with podman, in a network namespace of its own that stands for a node.

The API server runs as the image's own user, without any capability. It takes deploy/ as `kubectl apply -k` sends it.
The DaemonSet's containers then run as the stored object says: arguments, environment, mounts, user, capabilities, root
file system, with the configuration that the ConfigMap has (only its server's address is the namespace's) and the token
that the ServiceAccount gets. What is looked at: the health checks of the image, the probes of the DaemonSet, the
capabilities that the process really has, the rules in the namespace before and after a change of endpoints, and an end
by SIGTERM, after which the rules stay; then the same in nftables mode, which removes the other mode's rules.

usage: image-test.py [IMAGE]       as root; podman and kubectl are Debian's
exit: 0 all as it should be, 1 something is not, 2 bad usage
"""

from __future__ import annotations

import functools
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import kproxy

ROOT = Path(__file__).resolve().parents[1]
NODE = "node-0"
ACCOUNT = "/var/run/secrets/kubernetes.io/serviceaccount"
PATIENCE = 180.0
"""Seconds that anything may take on a slow machine."""
APART = "KPROXY_IMAGE_TEST_APART"
"""Set in the process that has a mount namespace of its own."""
CAPABILITIES = {"DAC_OVERRIDE": 1, "NET_ADMIN": 12, "NET_RAW": 13, "SYS_RESOURCE": 24}
"""Their bits in /proc/PID/status (linux/capability.h)."""
OBJECTS: Sequence[Mapping[str, Any]] = (
    {"apiVersion": "v1", "kind": "Node", "metadata": {"name": NODE}},
    {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {"name": "web", "namespace": "default"},
        "spec": {"clusterIP": "10.96.0.80", "ports": [{"port": 80}]},
    },
    {
        "apiVersion": "discovery.k8s.io/v1",
        "kind": "EndpointSlice",
        "metadata": {"name": "web-1", "namespace": "default", "labels": {"kubernetes.io/service-name": "web"}},
        "addressType": "IPv4",
        "ports": [{"port": 8080}],
        "endpoints": [{"addresses": ["10.244.0.5"]}],
    },
)


class ImageError(Exception):
    """Something is not as it should be."""


def run(*words: str | Path, stdin: str = "") -> str:
    done = subprocess.run(
        [str(word) for word in words], input=stdin, capture_output=True, text=True, timeout=PATIENCE, check=False
    )
    if done.returncode:
        shown = " ".join(map(str, words))
        raise ImageError(f"exit {done.returncode}: {shown}\n{done.stdout[-2000:]}{done.stderr[-4000:]}")
    return done.stdout


def eventually(what: str, holds: Callable[[], object]) -> None:
    """Waits until `holds` is true; an ImageError in it is what it says when time is over."""
    end, problem = time.monotonic() + PATIENCE, ""
    while time.monotonic() < end:
        try:
            if holds():
                return
        except ImageError as error:
            problem = f": {error}"
        time.sleep(0.5)
    raise ImageError(f"not after {PATIENCE:.0f} s: {what}{problem}")


def done(what: str) -> None:
    print(f"image-test: {time.monotonic() - BEGAN:5.0f} s  {what}", flush=True)


BEGAN = time.monotonic()


def possible(capabilities: Sequence[str]) -> list[str]:
    """Those that this machine's root has itself: others cannot be given to a container."""
    own = int(Path("/proc/self/status").read_text().partition("CapBnd:")[2].split()[0], 16)
    return [name for name in capabilities if own >> CAPABILITIES[name] & 1]


class Machine:
    """A namespace that stands for a node, with a directory for the node's files, and containers in it."""

    def __init__(self, image: str, directory: Path) -> None:
        self.image, self.directory = image, directory
        self.name = f"kp-image-{os.getpid()}"
        self.files = directory / "node"
        self.containers: list[str] = []

    def start(self) -> None:
        run("ip", "netns", "add", self.name)
        run("ip", "-n", self.name, "link", "set", "lo", "up")
        # As a node's own address, which the proxy asks for; nothing leaves the namespace.
        run("ip", "-n", self.name, "link", "add", "eth0", "type", "veth", "peer", "name", "eth1")
        run("ip", "-n", self.name, "address", "add", "192.0.2.10/24", "dev", "eth0")
        for link in ("eth0", "eth1"):
            run("ip", "-n", self.name, "link", "set", link, "up")
        run("ip", "-n", self.name, "route", "add", "default", "via", "192.0.2.1")

    def inside(self, *words: str | Path, stdin: str = "") -> str:
        return run("ip", "netns", "exec", self.name, *words, stdin=stdin)

    def kubectl(self, *words: str | Path, document: object = None) -> str:
        kubeconfig = self.directory / "data" / "kubeconfig"
        text = json.dumps(document) if document is not None else ""
        return self.inside("kubectl", "--kubeconfig", kubeconfig, *words, stdin=text)

    def podman(self, name: str, options: Sequence[str], arguments: Sequence[str], wait: bool = False) -> None:
        """Starts a container, or runs it to its end."""
        # No control group of its own, and no higher limits: not every machine's root may give them.
        common = ["--cgroups=disabled", f"--network=ns:/run/netns/{self.name}", "--log-driver=k8s-file", "--pull=never"]
        common += ["--ulimit=nofile=4096:4096", "--ulimit=nproc=4096:4096"]
        full = f"{self.name}-{name}"
        self.containers.append(full)
        command = ["podman", "run", f"--name={full}", *([] if wait else ["--detach"])]
        run(*command, *common, *options, self.image, *arguments)

    def log(self, name: str) -> str:
        both = subprocess.run(
            ["podman", "logs", f"{self.name}-{name}"], text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
            check=False,
        )  # fmt: skip
        return both.stdout

    def healthy(self, name: str) -> bool:
        run("podman", "healthcheck", "run", f"{self.name}-{name}")
        return True

    def status(self, name: str) -> dict[str, str]:
        """/proc/PID/status of a container's first process."""
        process = run("podman", "inspect", "--format", "{{.State.Pid}}", f"{self.name}-{name}").strip()
        lines = Path(f"/proc/{process}/status").read_text().splitlines()
        return {key: value.strip() for key, _, value in (line.partition(":") for line in lines)}

    def stop(self, name: str) -> int:
        """Ends it as the kubelet does; its exit code."""
        full = f"{self.name}-{name}"
        run("podman", "stop", "--time=60", full)
        return int(run("podman", "inspect", "--format", "{{.State.ExitCode}}", full))

    def remove(self) -> None:
        for name in self.containers:
            subprocess.run(["podman", "rm", "--force", "--time=5", name], capture_output=True, check=False)
        subprocess.run(["ip", "netns", "delete", self.name], capture_output=True, check=False)

    def container(self, pod: Mapping[str, Any], container: Mapping[str, Any], files: Mapping[str, Path]) -> list[str]:
        """podman's options for a container of a Pod; `files` are the folders of volumes that the API server fills."""
        security = {**pod.get("securityContext", {}), **container.get("securityContext", {})}
        options = [
            f"--user={security['runAsUser']}:{security['runAsGroup']}",
            f"--volume={files['token']}:{ACCOUNT}:ro",
        ]
        if security.get("privileged"):
            options.append("--privileged")
        if security.get("readOnlyRootFilesystem"):
            options += ["--read-only", "--read-only-tmpfs=false"]
        if security.get("allowPrivilegeEscalation") is False:
            options.append("--security-opt=no-new-privileges")
        capabilities = security.get("capabilities", {})
        options += [f"--cap-drop={name}" for name in capabilities.get("drop", [])]
        options += [f"--cap-add={name}" for name in possible(capabilities.get("add", []))]
        for each in container.get("env", []):
            value = each.get("value") or {"spec.nodeName": NODE}[each["valueFrom"]["fieldRef"]["fieldPath"]]
            options.append(f"--env={each['name']}={value}")
        volumes = {each["name"]: each for each in pod["volumes"]}
        for mount in container["volumeMounts"]:
            source = self.source(volumes[mount["name"]], files)
            options.append(f"--volume={source}:{mount['mountPath']}" + (":ro" if mount.get("readOnly") else ""))
        return options

    def source(self, volume: Mapping[str, Any], files: Mapping[str, Path]) -> Path:
        if "hostPath" not in volume:
            files[volume["name"]].mkdir(exist_ok=True)
            return files[volume["name"]]
        path, kind = str(volume["hostPath"]["path"]), volume["hostPath"].get("type", "")
        if path == "/lib/modules" and Path(path).exists():
            return Path(path)  # the kernel's own
        # Of the node, which is not this machine: its lock is not shared with this machine's.
        there = self.files / path.lstrip("/")
        (there.parent if kind == "FileOrCreate" else there).mkdir(parents=True, exist_ok=True)
        if kind == "FileOrCreate":
            there.touch()
        return there


def start_server(machine: Machine) -> None:
    data = machine.directory / "data"
    data.mkdir()
    os.chown(data, 65532, 65532)
    options = ["--read-only", "--cap-drop=ALL", "--security-opt=no-new-privileges", f"--volume={data}:/data"]
    arguments = ["apiserver", "--data=/data/state", "--write-kubeconfig=/data/kubeconfig", "--root-ca-configmap"]
    machine.podman("apiserver", options, arguments)
    eventually("the API server is healthy", lambda: machine.healthy("apiserver"))
    status = machine.status("apiserver")
    if status["Uid"].split() != ["65532"] * 4 or int(status["CapEff"], 16):
        raise ImageError(f"the API server is not an ordinary user: {status}")
    done("API server: healthy, as user 65532, without capabilities, on a read-only root file system")


def apply_manifests(machine: Machine) -> dict[str, Any]:
    """The DaemonSet as it is stored."""
    for more in (["--dry-run=server"], []):
        machine.kubectl("apply", "--validate=true", *more, "-k", ROOT / "deploy")
    for each in OBJECTS:
        machine.kubectl("create", "--validate=true", "-f", "-", document=each)
    found: dict[str, Any] = json.loads(machine.kubectl("-n", "kube-system", "get", "daemonset", "kproxy", "-o", "json"))
    done("deploy/ is taken, first with --dry-run=server")
    return found


def mounted(machine: Machine, mode: str) -> dict[str, Path]:
    """The folders that a kubelet would make: the ConfigMap's, the ServiceAccount's, an empty one."""
    folders = {name: machine.directory / f"{name}-{mode}" for name in ("config", "token", "tmp")}
    for folder in folders.values():
        folder.mkdir()
    data = json.loads(machine.kubectl("-n", "kube-system", "get", "configmap", "kproxy", "-o", "json"))["data"]
    edited = {
        "config.conf": data["config.conf"].replace("mode: iptables", f"mode: {mode}"),
        "kubeconfig.conf": data["kubeconfig.conf"].replace("control-plane.example", "127.0.0.1"),
    }
    for name, text in edited.items():
        (folders["config"] / name).write_text(text)
    authority = json.loads(machine.kubectl("-n", "kube-system", "get", "configmap", "kube-root-ca.crt", "-o", "json"))
    (folders["token"] / "ca.crt").write_text(authority["data"]["ca.crt"])
    path = "/api/v1/namespaces/kube-system/serviceaccounts/kproxy/token"
    answer = json.loads(machine.kubectl("create", "--raw", path, "-f", "-", document={"spec": {}}))
    (folders["token"] / "token").write_text(answer["status"]["token"])
    return folders


def rules(machine: Machine, mode: str) -> str:
    if mode == "nftables":
        return machine.inside("nft", "list", "table", "ip", "kube-proxy")
    return machine.inside("iptables-nft-save") + machine.inside("iptables-legacy-save")


def serves(machine: Machine, mode: str, address: str, not_this: str) -> bool:
    text = rules(machine, mode)
    return address in text and not_this not in text


def try_agent(machine: Machine, daemonset: Mapping[str, Any], mode: str) -> None:
    files = mounted(machine, mode)
    pod = daemonset["spec"]["template"]["spec"]
    [init], [proxy] = pod["initContainers"], pod["containers"]
    for container in (init, proxy):
        arguments = [each.replace("$(NODE_NAME)", NODE) for each in container["args"]]
        options = machine.container(pod, container, files)
        machine.podman(f"{container['name']}-{mode}", options, arguments, wait=container is init)
    done(f"{mode}: the init container ended with 0")
    name = f"{proxy['name']}-{mode}"
    eventually("the agent is healthy", lambda: machine.healthy(name))
    for ask in (proxy[probe]["httpGet"] for probe in ("livenessProbe", "readinessProbe")):
        url = f"http://192.0.2.10:{ask['port']}{ask['path']}"
        eventually(url, functools.partial(machine.inside, "curl", "-sS", "--fail", "--noproxy", "*", url))
    wanted = sum(1 << CAPABILITIES[each] for each in possible(proxy["securityContext"]["capabilities"]["add"]))
    status = machine.status(name)
    if int(status["CapEff"], 16) != wanted or status["NoNewPrivs"] != "1":
        raise ImageError(f"the agent's capabilities are {status['CapEff']}, not {wanted:016x}")
    eventually("the Service's rules", lambda: "10.244.0.5" in rules(machine, mode))
    words = ["-n", "default", "patch", "endpointslice", "web-1", "--type=merge", "-p"]
    for address, before in (("10.244.0.6", "10.244.0.5"), ("10.244.0.5", "10.244.0.6")):
        machine.kubectl(*words, json.dumps({"endpoints": [{"addresses": [address]}]}))
        eventually(f"rules for {address}", functools.partial(serves, machine, mode, address, before))
    if mode == "nftables":
        eventually("no rules of iptables mode", lambda: "KUBE-SVC" not in rules(machine, "iptables"))
    if code := machine.stop(name):
        raise ImageError(f"the agent ended with {code}:\n{machine.log(name)}")
    if "10.244.0.5" not in rules(machine, mode):
        raise ImageError("the rules did not stay when the agent ended")
    warnings = [line for line in machine.log(name).splitlines() if line[:1] in ("W", "E", "F")]
    done(f"{mode}: healthy, with its capabilities only; rules follow a change, and stay after SIGTERM")
    for line in warnings:
        print(f"image-test: it said: {line}")


def main(words: Sequence[str]) -> int:
    if len(words) > 1 or words[:1] in (["-h"], ["--help"]):
        print(__doc__)
        return 2 if len(words) > 1 else 0
    image = words[0] if words else f"localhost/kproxy:{kproxy.__version__}"
    if os.geteuid():
        print("image-test: only root can make a network namespace; run: sudo make image-test", file=sys.stderr)
        return 1
    if APART not in os.environ:
        # Mounts of its own: containers' storage, named namespaces, and for crun one hierarchy of control groups, since
        # it starts nothing where the machine has both kinds.
        os.environ[APART] = "yes"
        os.execvp("unshare", ["unshare", "--mount", "--propagation=private", sys.executable, __file__, *words])
    if Path("/sys/fs/cgroup/unified").exists():
        run("mount", "-t", "cgroup2", "none", "/sys/fs/cgroup")
    # Health checks are asked for here, not by timers of systemd.
    os.environ["DISABLE_HC_SYSTEMD"] = "true"
    with tempfile.TemporaryDirectory(prefix="kp-image-") as directory:
        Path(directory).chmod(0o755)
        machine = Machine(image, Path(directory))
        try:
            machine.start()
            start_server(machine)
            daemonset = apply_manifests(machine)
            for mode in ("iptables", "nftables"):
                try_agent(machine, daemonset, mode)
            if code := machine.stop("apiserver"):
                raise ImageError(f"the API server ended with {code}:\n{machine.log('apiserver')}")
        except (ImageError, subprocess.TimeoutExpired) as error:
            print(f"image-test: FAILED: {error}", file=sys.stderr)
            for name in machine.containers:
                print(f"--- {name}\n{machine.log(name.removeprefix(machine.name + '-'))[-3000:]}", file=sys.stderr)
            return 1
        finally:
            machine.remove()
    done("all as it should be")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
