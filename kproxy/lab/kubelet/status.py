"""What the kubelet says of pods and of its node: values only."""

from __future__ import annotations

import subprocess
from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Final, NamedTuple

from kproxy.lab.kubelet.podspec import init_containers_of
from kproxy.lab.resources import Json, Object, condition_of, now, parse_timestamp, timestamp, with_condition
from kproxy.lab.spec import NodePlan

REPORT_SECONDS: Final = 300
"""A kubelet says how its node is at least so often, even if nothing has changed (nodeStatusReportFrequency)."""


_INITIALIZING: Final = {"reason": "PodInitializing"}


class Ended(NamedTuple):
    """How a command ended; times are timestamps."""

    code: int
    reason: str
    message: str
    started: str
    finished: str


class Task:
    """A container that runs a command.

    Attributes:
        process: what runs; None if nothing does.
        started: when it began, a timestamp; "" if it has not.
        ended: how it ended, None if it has not; `last` is how the run before did.
        again: when it is started once more, by the monotonic clock; None if it is not.
    """

    def __init__(self) -> None:
        self.process: subprocess.Popen[bytes] | None = None
        self.started = ""
        self.restarts = 0
        self.ended: Ended | None = None
        self.last: Ended | None = None
        self.again: float | None = None

    @property
    def runs(self) -> bool:
        return bool(self.started) and self.ended is None

    @property
    def succeeded(self) -> bool:
        return self.ended is not None and not self.ended.code

    @property
    def failed(self) -> bool:
        """Whether it ended badly, for good."""
        return self.ended is not None and bool(self.ended.code) and self.again is None


def pod_status(
    pod: Object,
    *,
    hosts: Sequence[str],
    addresses: Sequence[str],
    running: bool,
    probed: Mapping[str, bool],
    started: str,
    restarts: int,
    problem: str,
    tasks: Mapping[str, Task] = MappingProxyType({}),
) -> Json:
    """The status of a pod on this node.

    `addresses` are the pod's own, empty while it has none; `running` says whether its servers run, `probed` which
    containers that have probes are ready, `problem` why there is no sandbox. `tasks` are the containers of a pod that
    runs commands.
    """
    containers = pod["spec"].get("containers") or ()
    inits = init_containers_of(pod) if tasks else ()
    incomplete = [str(item["name"]) for item in inits if not tasks[item["name"]].succeeded]
    alive = {str(item["name"]): tasks[item["name"]].runs if tasks else running for item in containers}
    unready = [name for name, runs in alive.items() if not runs or not probed.get(name, True)]
    ready = running and not unready
    old = pod.get("status") or {}
    conditions = list(old.get("conditions") or [])
    said = {True: "True", False: "False"}
    conditions = with_condition(conditions, "PodReadyToStartContainers", said[bool(addresses)])
    missing = f"containers with incomplete status: [{' '.join(incomplete)}]" if incomplete else ""
    why = "ContainersNotInitialized" if incomplete else ""
    conditions = with_condition(conditions, "Initialized", said[not incomplete], why, missing)
    phase = _phase(bool(started), tasks, [str(item["name"]) for item in inits])
    over = {"Succeeded": "PodCompleted", "Failed": "PodFailed"}.get(phase, "ContainersNotReady")
    reason = "" if ready else over
    message = problem or ("" if ready else f"containers with unready status: [{' '.join(unready)}]")
    for kind in ("Ready", "ContainersReady"):
        conditions = with_condition(conditions, kind, said[ready], reason, message)
    conditions = with_condition(conditions, "PodScheduled", "True")
    status: Json = {
        "phase": phase,
        "hostIP": hosts[0],
        "hostIPs": [{"ip": address} for address in hosts],
        "startTime": old.get("startTime") or timestamp(now()),
        "conditions": conditions,
        "containerStatuses": [
            _task(item, tasks[item["name"]], item["name"] not in unready)
            if tasks
            else _container(item, running, item["name"] not in unready, started, restarts, problem)
            for item in containers
        ],
    }
    if inits:
        status["initContainerStatuses"] = [
            _task(item, tasks[item["name"]], item["name"] not in incomplete) for item in inits
        ]
    if addresses:
        status["podIP"] = addresses[0]
        status["podIPs"] = [{"ip": address} for address in addresses]
    return status


def _phase(started: bool, tasks: Mapping[str, Task], inits: Sequence[str]) -> str:
    before = [tasks[name] for name in inits]
    if any(task.failed for task in before):
        return "Failed"
    if not all(task.succeeded for task in before):
        return "Pending"
    if not tasks or not all(task.succeeded or task.failed for task in tasks.values()):
        return "Running" if started else "Pending"
    return "Failed" if any(task.failed for task in tasks.values()) else "Succeeded"


def _task(item: Object, task: Task, ready: bool) -> Json:
    state: Json = {"running": {"startedAt": task.started}} if task.started else {"waiting": _INITIALIZING}
    last = task.last
    if task.ended is not None and task.again is not None:
        text = f"restarting failed container {item['name']}"
        state, last = {"waiting": {"reason": "CrashLoopBackOff", "message": text}}, task.ended
    elif task.ended is not None:
        state = {"terminated": _terminated(task.ended)}
    entry = _entry(item, "command", ready, task.runs, task.restarts, state)
    return {**entry, "lastState": {"terminated": _terminated(last)} if last is not None else {}}


def _terminated(ended: Ended) -> Json:
    found: Json = {"exitCode": ended.code, "reason": ended.reason}
    found |= {"startedAt": ended.started, "finishedAt": ended.finished}
    return {**found, **({"message": ended.message} if ended.message else {})}


def _container(item: Object, running: bool, ready: bool, started: str, restarts: int, problem: str) -> Json:
    if running:
        state: Json = {"running": {"startedAt": started}}
    elif started:
        state = {"waiting": {"reason": "CrashLoopBackOff", "message": "crashed by `kproxy lab fail pod`"}}
    else:
        state = {"waiting": {"reason": "ContainerCreating", **({"message": problem} if problem else {})}}
    return _entry(item, "echo", ready, running, restarts, state)


def _entry(item: Object, program: str, ready: bool, started: bool, restarts: int, state: Json) -> Json:
    return {
        "name": item["name"],
        "image": item.get("image", ""),
        "imageID": f"kproxy.lab/{program}",
        "ready": ready,
        "started": started,
        "restartCount": restarts,
        "state": state,
        "lastState": {},
    }


def same_status(old: Object, new: Object) -> bool:
    """Whether nothing would change but times."""

    def essence(status: Object) -> tuple[object, ...]:
        conditions = {
            (item["type"], item["status"], item.get("reason", ""), item.get("message", ""))
            for item in status.get("conditions") or ()
        }
        containers = [
            (item["name"], item.get("ready"), item.get("restartCount"), sorted(item.get("state") or ()))
            for item in (*(status.get("initContainerStatuses") or ()), *(status.get("containerStatuses") or ()))
        ]
        return (status.get("phase"), status.get("podIP"), status.get("podIPs"), conditions, containers)

    return essence(old) == essence(new)


def node_body(plan: NodePlan) -> Json:
    """The Node as the kubelet registers it."""
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {
            "name": plan.name,
            "labels": {
                "kubernetes.io/hostname": plan.name,
                "kubernetes.io/os": "linux",
                "kubernetes.io/arch": "amd64",
                "topology.kubernetes.io/zone": f"zone-{'abc'[(plan.number - 1) % 3]}",
                **plan.labels,
            },
        },
        "spec": {
            "podCIDR": plan.pod_cidrs[0],
            "podCIDRs": list(plan.pod_cidrs),
        },
    }


def node_status(plan: NodePlan, old: Object, problem: str, version: str) -> Json:
    """Its status; `problem` says why it is not ready, empty if it is."""
    conditions = list((old.get("status") or {}).get("conditions") or [])
    if problem:
        conditions = with_condition(conditions, "Ready", "False", "KubeletNotReady", problem)
    else:
        conditions = with_condition(conditions, "Ready", "True", "KubeletReady", "kubelet is posting ready status")
    conditions = [{**item, "lastHeartbeatTime": timestamp(now())} for item in conditions]
    addresses = [{"type": "InternalIP", "address": address} for address in plan.addresses]
    return {
        "addresses": [*addresses, {"type": "Hostname", "address": plan.name}],
        "capacity": {"pods": "110"},
        "allocatable": {"pods": "110"},
        "conditions": conditions,
        "nodeInfo": {
            "architecture": "amd64",
            "bootID": "",
            "containerRuntimeVersion": "netns://1",
            "kernelVersion": "",
            "kubeProxyVersion": "",
            "kubeletVersion": version,
            "machineID": "",
            "operatingSystem": "linux",
            "osImage": "a network namespace",
            "systemUUID": "",
        },
    }


def node_is_ready(node: Object, problem: str) -> bool:
    """Whether the Node says already what should be said."""
    condition = condition_of(node, "Ready")
    if condition is None or not condition.get("lastHeartbeatTime"):
        return False
    if (now() - parse_timestamp(condition["lastHeartbeatTime"])).total_seconds() > REPORT_SECONDS:
        return False
    return condition["status"] == ("False" if problem else "True") and (
        not problem or condition.get("message") == problem
    )
