"""The kubelet's work on pods: a namespace and echo servers for each pod of the node, readiness, graceful termination.

    bound to this node -> namespace, CNI ADD -> servers -> Running, Ready
    deletionTimestamp  -> preStop (servers go on) -> servers stop -> CNI DEL, namespace -> deleted for good

A pod whose containers run commands (`tasks`) ends with them, and its namespace with it; its log stays until it is
deleted. The containers of others are echo servers, on all ports that the pod declares; one that declares none serves 80
and 8080, TCP and UDP, as images that say nothing of their ports often do. What stands for the application's own time to
end is the container's `preStop.sleep`, at most the grace period: meanwhile the servers answer, and the pod is serving
while it terminates.
"""

from __future__ import annotations

import logging
import signal
import threading
import time
from collections.abc import Collection
from pathlib import Path
from typing import Any, Final

import msgspec

from kproxy.client import ApiError, BlockingWorkQueue, RestClient, SharedInformerFactory, TransportError
from kproxy.informer import DeletedFinalStateUnknown, Unstructured
from kproxy.informer.ratelimit import ItemExponentialFailureRateLimiter
from kproxy.lab.errors import LabError
from kproxy.lab.events import WARNING, Recorder
from kproxy.lab.kubelet.cni import NetworkList, PluginError
from kproxy.lab.kubelet.dns import PORTS, Dns, InformedObjects
from kproxy.lab.kubelet.echo import Echo
from kproxy.lab.kubelet.environment import not_given
from kproxy.lab.kubelet.logs import PodLogs
from kproxy.lab.kubelet.podspec import (
    all_containers_of,
    container_of_port,
    containers_of,
    event_parts,
    init_containers_of,
    is_task,
    pod_ports,
    pod_words,
    pre_stop,
    serves_dns,
    volumes_of,
)
from kproxy.lab.kubelet.probes import Prober
from kproxy.lab.kubelet.sandboxes import Sandbox, Sandboxes
from kproxy.lab.kubelet.servers import PodServers, Program
from kproxy.lab.kubelet.status import pod_status, same_status
from kproxy.lab.kubelet.streaming import RunningPod, Streams
from kproxy.lab.kubelet.tasks import Tasks
from kproxy.lab.resources import (
    FAILED,
    PODS,
    Json,
    Object,
    is_terminating,
    key_of,
    now,
    parse_timestamp,
    timestamp,
)
from kproxy.lab.spec import LabSpec, NodePlan
from kproxy.linux.errors import LinuxError

log = logging.getLogger(__name__)


_WORKERS: Final = 4


class Kubelet:
    """Makes, watches and ends the pods of one node.

    client-go's pattern: changes come as keys, never as differences; a worker reads what is known when it comes to the
    key, and a failure puts the key back with a growing delay.
    """

    def __init__(
        self, client: RestClient, spec: LabSpec, plan: NodePlan, network: NetworkList, directory: Path
    ) -> None:
        self.client = client
        self.recorder = Recorder(client, "kubelet", plan.name)
        self._families = spec.families
        self._plan = plan
        # Failures come back within the second at first: a lab is looked at while it works.
        self._queue: BlockingWorkQueue[str] = BlockingWorkQueue(ItemExponentialFailureRateLimiter(0.01, 30.0))
        self.servers = PodServers(self._probed)
        self._prober = Prober(self.servers.loop, self._probed, self._say_of)
        self._logs = PodLogs()
        self.tasks = Tasks(self._probed, self._logs)
        self._names = InformedObjects(client)
        self.sandboxes = Sandboxes(spec, plan, network, directory)
        self.streams = Streams(directory, self._find, self._logs)
        self._started: dict[str, str] = {}
        """When the servers of a pod started, as a timestamp."""
        self._restarts: dict[str, int] = {}
        self._given: dict[str, Object] = {}
        """Pods that run commands, with the addresses that they had when these were started."""
        self._ended: set[str] = set()
        """Pods that have come to their end by themselves; their informer may still show them running."""
        self._killing: set[str] = set()
        """Pods of which it was said that they are stopped."""
        self._factory = SharedInformerFactory(client)
        self._pods = self._factory.informer(PODS, field_selector=f"spec.nodeName={plan.name}")
        self._pods.add_event_handler(self)

    # --- the work queue ---

    def on_add(self, item: Unstructured, is_in_initial_list: bool) -> None:
        self._queue.add(_work_key(item.raw))

    def on_update(self, old: Unstructured, new: Unstructured) -> None:
        self._queue.add(_work_key(old.raw))
        self._queue.add(_work_key(new.raw))

    def on_delete(self, item: Unstructured | DeletedFinalStateUnknown[Unstructured]) -> None:
        last = item.object if isinstance(item, DeletedFinalStateUnknown) else item
        if last is not None:
            self._queue.add(_work_key(last.raw))

    def start(self) -> None:
        """Follows the node's pods, and begins to work."""
        self._factory.start()
        self._factory.wait_for_cache_sync()
        # Sandboxes whose pods went while no kubelet ran.
        there = {item.metadata.uid for item in self._pods.indexer.list()}
        for item in self.sandboxes.list():
            if item.uid not in there:
                self._queue.add(f"{item.uid}|{item.key}")
        for number in range(_WORKERS):
            threading.Thread(target=self._work, name=f"kubelet-{number}", daemon=True).start()

    def _work(self) -> None:
        while (work := self._queue.get()) is not None:
            key = work.item
            try:
                again = self._sync(key)
            except (ApiError, TransportError) as error:
                # A conflict means that the object has changed: its event brings the key back, but not always sooner.
                if not (isinstance(error, ApiError) and error.code in (404, 409)):
                    log.warning("%s: %s", key, error)
                self._queue.add_rate_limited(key)
            except Exception:
                log.exception("%s", key)
                self._queue.add_rate_limited(key)
            else:
                self._queue.forget(key)
                if again is not None:
                    self._queue.add_after(key, again)
            finally:
                self._queue.done(key)

    def _find(self, uid: str) -> RunningPod | None:
        """A pod of this node that has its namespace, or had it until it ended."""
        sandbox = self.sandboxes.get(uid)
        shown = self._pods.indexer
        if sandbox is not None:
            found = shown.get_by_key(sandbox.key)
        else:
            found = next((item for item in shown.list() if item.metadata.uid == uid), None)
        if found is None or found.metadata.uid != uid:
            return None
        netns = sandbox.netns if sandbox is not None else ""
        return RunningPod(found.raw, netns, self._runs(uid), self.sandboxes.files(uid))

    def _runs(self, uid: str) -> bool:
        return self.servers.is_serving(uid) or self.tasks.is_running(uid)

    # --- one pod ---

    def _sync(self, key: str) -> float | None:
        """Brings a pod to what its object says; a number asks for the same again after so many seconds."""
        uid, _, name = key.partition("|")
        found = self._pods.indexer.get_by_key(name)
        pod = found.raw if found is not None and found.metadata.uid == uid else None
        if pod is None:
            self._tear_down(uid)
            self._forget(uid)
            return None
        if is_terminating(pod):
            return self._terminate(pod)
        if uid in self._ended or (pod.get("status") or {}).get("phase") in ("Succeeded", "Failed"):
            self._tear_down(uid)
            return None
        try:
            sandbox = self.sandboxes.make(pod)
        except PluginError as error:
            log.warning("pod %s: %s", name, error)
            self._report(pod, None, str(error))
            text = f"Failed to create pod sandbox: {error}"
            self.recorder.event(pod, "Pod", "FailedCreatePodSandBox", text, type=WARNING)
            raise
        failed = FAILED in (pod["metadata"].get("annotations") or {})
        if is_task(pod):
            return self._run_task(pod, sandbox, failed)
        self._run(pod, sandbox, failed)
        self._report(pod, sandbox, "")
        return None

    def _run_task(self, pod: Object, sandbox: Sandbox, failed: bool) -> float | None:
        """Starts the commands of a pod, or kills those of one that `lab fail` has crashed; ends it when all have."""
        uid = sandbox.uid
        if failed:
            self.tasks.signal(uid, signal.SIGKILL)
        else:
            if uid not in self._given:
                self._given[uid] = {**pod, "status": {**(pod.get("status") or {}), **self._addresses(sandbox)}}
                self._say_left_out(pod, "VolumesNotMounted", "a lab has no volumes", volumes_of(pod))
                text = "no command gets values of ConfigMaps and Secrets"
                self._say_left_out(pod, "ValuesNotGiven", text, not_given(pod))
            given, files = self._given[uid], self.sandboxes.files(uid)
            self._say_started(pod, self.tasks.run(given, sandbox.netns, files))
            if uid not in self._started and self.tasks.is_initialized(pod):
                self._started[uid] = timestamp(now())
                self._prober.start(uid, containers_of(pod), sandbox.addresses[0])
        if self._report(pod, sandbox, "") in ("Succeeded", "Failed"):
            self._ended.add(uid)
            self._tear_down(uid)
        return self.tasks.left(uid)

    def _addresses(self, sandbox: Sandbox) -> Json:
        own = {"podIP": sandbox.addresses[0], "podIPs": [{"ip": address} for address in sandbox.addresses]}
        return {**own, "hostIP": self._plan.addresses[0]}

    def _run(self, pod: Object, sandbox: Sandbox, failed: bool) -> None:
        """Starts the servers of a pod, or stops those of one that `lab fail` has crashed."""
        uid = sandbox.uid
        serves = self.servers.listens(uid)
        if failed and serves:
            self._crash(pod, uid)
        if failed or serves:
            return
        meta, ports = pod["metadata"], PORTS if serves_dns(pod) else pod_ports(pod)

        def said(protocol: str, peer: str, local: str, data: bytes) -> None:
            text = data[:200].decode(errors="replace").rstrip()
            owner = container_of_port(pod, int(local.rpartition(":")[2]))
            self._logs.add(uid, f"{protocol} {peer} to {local}: {text}", owner)

        program: Program
        if serves_dns(pod):
            program = Dns(self._names, lambda text: self._logs.add(uid, text))
        else:
            program = Echo(meta["name"], meta["namespace"], self._plan.name, said)
        try:
            self.servers.start(uid, sandbox.netns, program, ports, self._families)
        except (OSError, LinuxError) as error:
            for _name, part in event_parts(pod):
                self.recorder.event(pod, "Pod", "Failed", f"Error: {error}", type=WARNING, part=part)
            raise LabError(f"pod {sandbox.key}: its ports cannot be served: {error}") from error
        for port in ports:
            text = f"serving {port.protocol} {port.number}"
            self._logs.add(uid, text, container_of_port(pod, port.number))
        self._logs.add(uid, f"pod {meta['name']} on {self._plan.name}")
        self._say_left_out(
            pod, "InitContainersNotRun", "servers begin at once, without the init containers",
            [str(item["name"]) for item in init_containers_of(pod)],
        )  # fmt: skip
        self._say_started(pod, [str(item["name"]) for item in containers_of(pod)])
        self._started[uid] = timestamp(now())
        self._prober.start(uid, containers_of(pod), sandbox.addresses[0])

    def _crash(self, pod: Object, uid: str) -> None:
        self._prober.stop(uid)
        self.servers.stop(uid)
        self._restarts[uid] = self._restarts.get(uid, 0) + 1
        for name, part in event_parts(pod):
            text = f"Back-off restarting failed container {name} in pod {pod_words(pod)}"
            self.recorder.event(pod, "Pod", "BackOff", text, type=WARNING, part=part)

    def _say_started(self, pod: Object, names: Collection[str]) -> None:
        """What a kubelet says of containers that it starts and whose images it has: here every image is as good."""
        images = {str(item["name"]): item.get("image", "") for item in all_containers_of(pod)}
        before = [(str(item["name"]), f"spec.initContainers{{{item['name']}}}") for item in init_containers_of(pod)]
        for name, part in (*before, *event_parts(pod)):
            if name in names:
                there = f'Container image "{images[name]}" already present on machine and can be accessed by the pod'
                self.recorder.event(pod, "Pod", "Pulled", there, part=part)
                self.recorder.event(pod, "Pod", "Created", "Container created", part=part)
                self.recorder.event(pod, "Pod", "Started", "Container started", part=part)

    def _say_left_out(self, pod: Object, reason: str, text: str, names: Collection[str]) -> None:
        """That a lab does not do something that the pod asks for."""
        if names:
            self.recorder.event(pod, "Pod", reason, f"{text}: {', '.join(names)}", type=WARNING)

    def _say_of(self, uid: str, container: str, reason: str, text: str, type: str) -> None:
        """An event of a container, if its pod is still there."""
        found = self._find(uid)
        if found is not None:
            part = f"spec.containers{{{container}}}"
            self.recorder.event(found.pod, "Pod", reason, text, type=type, part=part)

    def _probed(self, uid: str) -> None:
        sandbox = self.sandboxes.get(uid)
        if sandbox is not None:
            self._queue.add(f"{uid}|{sandbox.key}")

    def _report(self, pod: Object, sandbox: Sandbox | None, problem: str) -> str:
        """Writes the pod's status if it has changed; the phase."""
        uid = str(pod["metadata"]["uid"])
        status = pod_status(
            pod,
            hosts=self._plan.addresses,
            addresses=sandbox.addresses if sandbox is not None else (),
            running=self._runs(uid),
            probed=self._prober.readiness(uid),
            started=self._started.get(uid, ""),
            restarts=self._restarts.get(uid, 0),
            problem=problem,
            tasks=self.tasks.states(uid),
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
        return str(status["phase"])

    # --- the end of a pod ---

    def _terminate(self, pod: Object) -> float | None:
        meta = pod["metadata"]
        uid = str(meta["uid"])
        grace = int(meta.get("deletionGracePeriodSeconds") or 0)
        begun = parse_timestamp(str(meta["deletionTimestamp"])).timestamp() - grace
        # The time of deletion has whole seconds; what passed before the kubelet heard of it is not counted.
        asked = min(pre_stop(pod), grace)
        left = begun + asked - time.time()
        alive = self.sandboxes.get(uid) is not None
        first = alive and uid not in self._killing
        if first:
            self._killing.add(uid)
            for name, part in event_parts(pod):
                self.recorder.event(pod, "Pod", "Killing", f"Stopping container {name}", part=part)
        if alive and asked and left > 0 and self.servers.is_serving(uid):
            return left
        if alive and self.tasks.is_running(uid) and (left := begun + grace - time.time()) > 0:
            if first:
                self.tasks.signal(uid, signal.SIGTERM)
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
        self.tasks.forget(uid)
        self.streams.end(uid)
        if self.sandboxes.get(uid) is None:
            return
        self.sandboxes.remove(uid)
        self._started.pop(uid, None)
        self._restarts.pop(uid, None)
        self._given.pop(uid, None)
        self._killing.discard(uid)

    def _forget(self, uid: str) -> None:
        """What is kept of a pod that has ended until it is deleted."""
        self._ended.discard(uid)
        self._logs.forget(uid)


def _work_key(pod: Object) -> str:
    # With the uid: a pod of the same name that comes later is another one.
    return f"{pod['metadata']['uid']}|{key_of(pod)}"
