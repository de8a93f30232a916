"""The kubelet's work on pods: a namespace and echo servers for each pod of the node, readiness, graceful termination.

    bound to this node -> namespace, CNI ADD -> servers -> Running, Ready
    deletionTimestamp  -> preStop (servers go on) -> servers stop -> CNI DEL, namespace -> deleted for good

A pod's containers are its echo servers, on all ports that it declares; a pod that declares none serves 80 and 8080, TCP
and UDP, as images that say nothing of their ports often do. What stands for the application's own time to end is the
container's `preStop.sleep`, at most the grace period: meanwhile the servers answer, and the pod is serving while it
terminates.
"""

from __future__ import annotations

import contextlib
import logging
import subprocess
import threading
import time
from pathlib import Path
from typing import Any, Final

import msgspec

from kproxy.client import ApiError, RestClient, SharedInformerFactory
from kproxy.lab.controllers.base import Controller, ObjectHandler
from kproxy.lab.errors import LabError
from kproxy.lab.events import WARNING
from kproxy.lab.kubelet.cni import Attachment, CniError, NetworkList
from kproxy.lab.kubelet.echo import EchoServers, Identity, Port
from kproxy.lab.kubelet.logs import PodLogs
from kproxy.lab.kubelet.probes import Prober, Target
from kproxy.lab.kubelet.status import pod_status, same_status
from kproxy.lab.kubelet.streaming import RunningPod, Streams
from kproxy.lab.network import delete_namespaces, set_up_pod
from kproxy.lab.resources import FAILED, PODS, Json, Object, is_terminating, key_of, now, parse_timestamp, timestamp
from kproxy.lab.spec import LabSpec, NodePlan, family_of
from kproxy.linux.errors import LinuxError
from kproxy.linux.namespace import NETNS_DIRECTORY

log = logging.getLogger(__name__)

DEFAULT_PORTS: Final = (Port(80), Port(8080), Port(80, "UDP"), Port(8080, "UDP"))


class Sandbox(msgspec.Struct, frozen=True):
    """A pod's namespace as it was made; kept on disk, so that a kubelet that starts again finds it."""

    uid: str
    key: str
    netns: str
    addresses: tuple[str, ...]
    result: Json
    runtime: Json
    host_network: bool = False


class Kubelet(Controller):
    """Makes, watches and ends the pods of one node."""

    name = "kubelet"
    component = "kubelet"
    workers = 4

    def __init__(
        self,
        client: RestClient,
        factory: SharedInformerFactory,
        spec: LabSpec,
        plan: NodePlan,
        network: NetworkList,
        directory: Path,
    ) -> None:
        self.host = plan.name
        super().__init__(client, factory)
        self.spec = spec
        self.plan = plan
        self.network = network
        self.servers = EchoServers()
        self._prober = Prober(self._probed, self._unhealthy)
        self._logs = PodLogs()
        self.streams = Streams(directory, self._find, self._logs)
        self._directory = directory / "pods"
        self._directory.mkdir(parents=True, exist_ok=True)
        self._lock = threading.Lock()
        self._sandboxes: dict[str, Sandbox] = {}
        self._started: dict[str, str] = {}
        """When the servers of a pod started, as a timestamp."""
        self._restarts: dict[str, int] = {}
        self._killing: set[str] = set()
        """Pods of which it was said that they are stopped."""
        self._pods = factory.informer(PODS, field_selector=f"spec.nodeName={plan.name}")
        self._load()

    def watch(self) -> None:
        """Follows the node's pods; after `_load`, so that what is there already is known."""
        self._pods.add_event_handler(ObjectHandler(lambda pod: self.queue.add(_work_key(pod))))

    @property
    def attachments(self) -> list[tuple[str, str]]:
        """The attachments that CNI's GC must leave."""
        with self._lock:
            return [(item.uid, "eth0") for item in self._sandboxes.values() if not item.host_network]

    def _find(self, uid: str) -> RunningPod | None:
        """A pod of this node that has its namespace."""
        with self._lock:
            sandbox = self._sandboxes.get(uid)
        found = self._pods.indexer.get_by_key(sandbox.key) if sandbox is not None else None
        if sandbox is None or found is None or found.metadata.uid != uid:
            return None
        return RunningPod(found.raw, sandbox.netns, self.servers.is_serving(uid))

    def _load(self) -> None:
        for file in self._directory.glob("*.json"):
            try:
                item = msgspec.json.decode(file.read_bytes(), type=Sandbox)
            except (OSError, msgspec.DecodeError):
                file.unlink(missing_ok=True)
                continue
            self._sandboxes[item.uid] = item

    def collect(self) -> None:
        """Takes away sandboxes whose pods went while the kubelet did not run. After the informer has synced."""
        there = {item.metadata.uid for item in self._pods.indexer.list()}
        for item in list(self._sandboxes.values()):
            if item.uid not in there:
                self.queue.add(f"{item.uid}|{item.key}")

    # --- one pod ---

    def sync(self, key: str) -> float | None:
        uid, _, name = key.partition("|")
        found = self._pods.indexer.get_by_key(name)
        pod = found.raw if found is not None and found.metadata.uid == uid else None
        if pod is None:
            self._tear_down(uid)
            return None
        if is_terminating(pod):
            return self._terminate(pod)
        if (pod.get("status") or {}).get("phase") in ("Succeeded", "Failed"):
            self._tear_down(uid)
            return None
        try:
            sandbox = self._sandbox(pod)
        except CniError as error:
            log.warning("pod %s: %s", name, error)
            self._report(pod, None, str(error))
            text = f"Failed to create pod sandbox: {error}"
            self.recorder.event(pod, "Pod", "FailedCreatePodSandBox", text, type=WARNING)
            raise
        failed = FAILED in (pod["metadata"].get("annotations") or {})
        self._run(pod, sandbox, failed)
        self._report(pod, sandbox, "")
        return None

    def _sandbox(self, pod: Object) -> Sandbox:
        meta = pod["metadata"]
        uid = str(meta["uid"])
        with self._lock:
            known = self._sandboxes.get(uid)
        if known is not None:
            return known
        if pod["spec"].get("hostNetwork"):
            made = Sandbox(uid, key_of(pod), self.plan.namespace, self.plan.addresses, {}, {}, True)
        else:
            made = self._attach(pod, uid)
        (self._directory / f"{uid}.json").write_bytes(msgspec.json.encode(made))
        with self._lock:
            self._sandboxes[uid] = made
        return made

    def _attach(self, pod: Object, uid: str) -> Sandbox:
        meta = pod["metadata"]
        netns = self.spec.pod_namespace(uid)
        # Left by a kubelet that was killed here: begin again.
        runtime: Json = {"portMappings": _port_mappings(pod)}
        arguments = f"IgnoreUnknown=1;K8S_POD_NAMESPACE={meta['namespace']};K8S_POD_NAME={meta['name']}"
        attachment = Attachment(uid, f"{NETNS_DIRECTORY}/{netns}", "eth0", arguments, runtime)
        if (Path(NETNS_DIRECTORY) / netns).exists():
            with contextlib.suppress(CniError):
                self.network.delete(attachment, None)
            delete_namespaces([netns])
        done = subprocess.run(["ip", "netns", "add", netns], capture_output=True, text=True, check=False)
        if done.returncode:
            raise LabError(f"cannot make namespace {netns}: {done.stderr.strip()}")
        try:
            set_up_pod(netns)
            result = self.network.add(attachment)
        except (LabError, LinuxError):
            with contextlib.suppress(CniError):
                self.network.delete(attachment, None)
            delete_namespaces([netns])
            raise
        addresses = [str(item["address"]).partition("/")[0] for item in result.get("ips") or ()]
        ordered = [a for family in self.spec.families for a in addresses if family_of(a) == family]
        return Sandbox(uid, key_of(pod), netns, tuple(ordered), result, runtime)

    def _run(self, pod: Object, sandbox: Sandbox, failed: bool) -> None:
        """Starts the servers of a pod, or stops those of one that `lab fail` has crashed."""
        uid = sandbox.uid
        if failed:
            if self.servers.is_serving(uid):
                self._prober.stop(uid)
                self.servers.stop(uid)
                self._restarts[uid] = self._restarts.get(uid, 0) + 1
                for name, part in _containers(pod):
                    text = f"Back-off restarting failed container {name} in pod {_pod_words(pod)}"
                    self.recorder.event(pod, "Pod", "BackOff", text, type=WARNING, part=part)
            return
        if self.servers.is_serving(uid):
            return
        meta = pod["metadata"]

        def said(protocol: str, peer: str, local: str, data: bytes) -> None:
            text = data[:200].decode(errors="replace").rstrip()
            port = int(local.rpartition(":")[2])
            self._logs.add(uid, port, f"{protocol} {peer} to {local}: {text}", time.time())

        identity = Identity(meta["name"], meta["namespace"], self.plan.name, said)
        try:
            self.servers.start(uid, sandbox.netns, identity, pod_ports(pod), self.spec.families)
        except (OSError, LinuxError) as error:
            for _name, part in _containers(pod):
                self.recorder.event(pod, "Pod", "Failed", f"Error: {error}", type=WARNING, part=part)
            raise LabError(f"pod {sandbox.key}: its ports cannot be served: {error}") from error
        for port in pod_ports(pod):
            self._logs.add(uid, port.number, f"serving {port.protocol} {port.number}", time.time())
        self._logs.add(uid, 0, f"pod {meta['name']} on {self.plan.name}", time.time())
        for _name, part in _containers(pod):
            self.recorder.event(pod, "Pod", "Created", "Container created", part=part)
            self.recorder.event(pod, "Pod", "Started", "Container started", part=part)
        self._started[uid] = timestamp(now())
        self._prober.start(uid, pod["spec"].get("containers") or (), Target(sandbox.netns, sandbox.addresses[0]))

    def _unhealthy(self, uid: str, container: str, kind: str, problem: str) -> None:
        with self._lock:
            sandbox = self._sandboxes.get(uid)
        found = self._pods.indexer.get_by_key(sandbox.key) if sandbox is not None else None
        if found is not None and found.metadata.uid == uid:
            text = f"{kind} probe failed: {problem}"
            part = f"spec.containers{{{container}}}"
            self.recorder.event(found.raw, "Pod", "Unhealthy", text, type=WARNING, part=part)

    def _probed(self, uid: str) -> None:
        with self._lock:
            sandbox = self._sandboxes.get(uid)
        if sandbox is not None:
            self.queue.add(f"{uid}|{sandbox.key}")

    def _report(self, pod: Object, sandbox: Sandbox | None, problem: str) -> None:
        uid = str(pod["metadata"]["uid"])
        status = pod_status(
            pod,
            hosts=self.plan.addresses,
            addresses=sandbox.addresses if sandbox is not None else (),
            running=self.servers.is_serving(uid),
            probed=self._prober.readiness(uid),
            started=self._started.get(uid, ""),
            restarts=self._restarts.get(uid, 0),
            problem=problem,
        )
        if not same_status(pod.get("status") or {}, status):
            meta = pod["metadata"]
            self.client.patch(
                PODS,
                meta["name"],
                {"metadata": {"uid": uid}, "status": status},
                meta["namespace"],
                subresource="status",
            )

    # --- the end of a pod ---

    def _terminate(self, pod: Object) -> float | None:
        meta = pod["metadata"]
        uid = str(meta["uid"])
        grace = int(meta.get("deletionGracePeriodSeconds") or 0)
        begun = parse_timestamp(str(meta["deletionTimestamp"])).timestamp() - grace
        # The time of deletion has whole seconds; what passed before the kubelet heard of it is not counted.
        asked = min(_pre_stop(pod), grace)
        left = begun + asked - time.time()
        with self._lock:
            alive = uid in self._sandboxes
        if alive and uid not in self._killing:
            self._killing.add(uid)
            for name, part in _containers(pod):
                self.recorder.event(pod, "Pod", "Killing", f"Stopping container {name}", part=part)
        if alive and asked and left > 0 and self.servers.is_serving(uid):
            return left
        self._tear_down(uid)
        options: dict[str, Any] = {
            "apiVersion": "v1",
            "kind": "DeleteOptions",
            "gracePeriodSeconds": 0,
            "preconditions": {"uid": uid},
        }
        try:
            self.client.raw("DELETE", PODS.path(meta["namespace"], meta["name"]), body=msgspec.json.encode(options))
        except ApiError as error:
            if error.code not in (404, 409):
                raise
        return None

    def _tear_down(self, uid: str) -> None:
        self._prober.stop(uid)
        self.servers.stop(uid)
        self.streams.end(uid)
        with self._lock:
            sandbox = self._sandboxes.get(uid)
        if sandbox is None:
            return
        if not sandbox.host_network:
            netns = f"{NETNS_DIRECTORY}/{sandbox.netns}"
            path = netns if Path(netns).exists() else ""
            attachment = Attachment(uid, path, "eth0", "", sandbox.runtime)
            self.network.delete(attachment, sandbox.result)
            delete_namespaces([sandbox.netns])
        (self._directory / f"{uid}.json").unlink(missing_ok=True)
        with self._lock:
            self._sandboxes.pop(uid, None)
        self._started.pop(uid, None)
        self._restarts.pop(uid, None)
        self._killing.discard(uid)


def _work_key(pod: Object) -> str:
    # With the uid: a pod of the same name that comes later is another one.
    return f"{pod['metadata']['uid']}|{key_of(pod)}"


def _containers(pod: Object) -> list[tuple[str, str]]:
    """The containers' names, and what events call them."""
    names = [str(item["name"]) for item in pod["spec"].get("containers") or ()]
    return [(name, f"spec.containers{{{name}}}") for name in names]


def _pod_words(pod: Object) -> str:
    meta = pod["metadata"]
    return f"{meta['name']}_{meta['namespace']}({meta['uid']})"


def pod_ports(pod: Object) -> tuple[Port, ...]:
    """The ports that a pod's echo server serves."""
    found = [
        Port(int(port["containerPort"]), port.get("protocol", "TCP"))
        for container in pod["spec"].get("containers") or ()
        for port in container.get("ports") or ()
    ]
    return tuple(dict.fromkeys(found)) or DEFAULT_PORTS


def _port_mappings(pod: Object) -> list[Json]:
    return [
        {
            "hostPort": port["hostPort"],
            "containerPort": port["containerPort"],
            "protocol": port.get("protocol", "TCP").lower(),
            **({"hostIP": port["hostIP"]} if port.get("hostIP") else {}),
        }
        for container in pod["spec"].get("containers") or ()
        for port in container.get("ports") or ()
        if port.get("hostPort")
    ]


def _pre_stop(pod: Object) -> float:
    """Seconds that the containers go on after the pod was deleted."""
    sleeps = [
        float((((container.get("lifecycle") or {}).get("preStop") or {}).get("sleep") or {}).get("seconds") or 0)
        for container in pod["spec"].get("containers") or ()
    ]
    return max(sleeps, default=0.0)
