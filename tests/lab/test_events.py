"""Events: how they are counted, and that a lab's explain what its parts did."""

from __future__ import annotations

import datetime
import json
import time
from collections.abc import Callable, Iterator
from operator import itemgetter
from typing import Any

import pytest

from kproxy.lab.controllers.scheduler import why_not
from kproxy.lab.events import Correlator
from tests.support.lab.labtools import Lab, deployment, lab_up

KEY = ("Pod", "default", "web", "uid", "v1")


def test_an_event_that_comes_again_is_counted() -> None:
    memory = Correlator("kubelet")
    assert memory.count((*KEY, "a"), "web.1", "t1").count == 1
    second = memory.count((*KEY, "a"), "web.2", "t2")
    assert (second.name, second.first, second.count) == ("web.1", "t1", 2)
    assert memory.count((*KEY, "b"), "web.3", "t3").name == "web.3"


def node(*, ready: bool = True, disk: str = "hdd", unschedulable: bool = False) -> dict[str, Any]:
    return {
        "metadata": {"name": "n", "labels": {"disk": disk}},
        "spec": {"unschedulable": unschedulable},
        "status": {"conditions": [{"type": "Ready", "status": "True" if ready else "Unknown"}]},
    }


def test_why_no_node_will_do() -> None:
    """The words of kube-scheduler v1.36."""
    pod = {"metadata": {"name": "p"}, "spec": {"nodeSelector": {"disk": "ssd"}}}
    assert why_not(pod, []) == "no nodes available to schedule pods"
    assert why_not(pod, [node(), node(), node(ready=False), node(unschedulable=True)]) == (
        "0/4 nodes are available: 1 node(s) had untolerated taint(s), 1 node(s) were unschedulable, "
        "2 node(s) didn't match Pod's node affinity/selector. no new claims to deallocate, "
        "preemption: 0/4 nodes are available: 4 Preemption is not helpful for scheduling."
    )


@pytest.fixture(scope="module")
def lab(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lab]:
    with lab_up(tmp_path_factory.mktemp("labs"), "--nodes", "2") as lab:
        yield lab


def events(lab: Lab, kind: str, name: str) -> dict[tuple[str, str], dict[str, Any]]:
    """By reason and message, of objects whose names begin so."""
    found = json.loads(lab.kubectl("get", "events", "-A", "-o", "json"))["items"]
    return {
        (item["reason"], item["message"]): item
        for item in found
        if item["involvedObject"]["kind"] == kind and item["involvedObject"]["name"].startswith(name)
    }


def eventually(lab: Lab, kind: str, name: str, done: Callable[[set[str]], bool]) -> set[str]:
    """The reasons, once they are as wanted."""
    deadline = time.monotonic() + 60
    while not done(found := {reason for reason, _ in events(lab, kind, name)}):
        assert time.monotonic() < deadline, found
        time.sleep(0.2)
    return found


@pytest.mark.root
def test_the_life_of_a_pod(lab: Lab) -> None:
    item = deployment("web", 1)
    probe = {"httpGet": {"path": "/", "port": 9}, "periodSeconds": 1, "failureThreshold": 1}
    item["spec"]["template"]["spec"]["containers"][0]["readinessProbe"] = probe
    lab.apply(item)
    eventually(lab, "Pod", "web-", {"Scheduled", "Pulled", "Created", "Started", "Unhealthy"}.issubset)
    name = next(pod.name for pod in lab.cluster().pods if pod.name.startswith("web-"))
    deadline = time.monotonic() + 60
    while True:
        found = events(lab, "Pod", "web-")
        # A busy machine makes one fail in another way, which is told apart.
        unhealthy = max((each for (reason, _), each in found.items() if reason == "Unhealthy"), key=itemgetter("count"))
        if unhealthy["count"] > 1:
            break
        assert time.monotonic() < deadline, "a probe that fails again is counted"
        time.sleep(0.2)
    assert unhealthy["type"] == "Warning"
    assert unhealthy["message"].startswith("Readiness probe failed: ")
    assert unhealthy["involvedObject"]["fieldPath"] == "spec.containers{echo}"
    assert unhealthy["source"]["component"] == "kubelet"
    assert unhealthy["source"]["host"] in ("node-1", "node-2")
    scheduled = next(message for reason, message in found if reason == "Scheduled")
    assert scheduled.startswith(f"Successfully assigned default/{name} to node-")
    assert ("Pulled", 'Container image "echo" already present on machine and can be accessed by the pod') in found
    described = lab.kubectl("describe", "pod", name)
    assert "default-scheduler" in described
    assert "Container started" in described
    # Before the deletion: a pod may be seen to go before its ReplicaSet, which then makes one more for a moment.
    eventually(lab, "ReplicaSet", "web-", {"SuccessfulCreate"}.issubset)
    (created,) = [message for reason, message in events(lab, "ReplicaSet", "web-") if reason == "SuccessfulCreate"]
    assert created == f"Created pod: {name}"
    lab.kubectl("delete", "deployment", "web", "--wait=false")
    eventually(lab, "Pod", "web-", {"Killing"}.issubset)
    ((_, scaled),) = [key for key in events(lab, "Deployment", "web") if key[0] == "ScalingReplicaSet"]
    assert scaled.startswith("Scaled up replica set web-")
    assert scaled.endswith(" from 0 to 1")


@pytest.mark.root
def test_a_pod_that_waits_says_why(lab: Lab) -> None:
    lab.apply(deployment("stuck", 1, node="node-9"))
    eventually(lab, "Pod", "stuck-", {"FailedScheduling"}.issubset)
    pod = next(pod.name for pod in lab.cluster().pods if pod.name.startswith("stuck-"))
    described = lab.kubectl("describe", "pod", pod)
    assert "0/2 nodes are available: 2 node(s) didn't match Pod's node affinity/selector." in described
    lab.kubectl("delete", "deployment", "stuck")


@pytest.mark.root
def test_a_node_says_when_it_was_heard_of(lab: Lab) -> None:
    eventually(lab, "Node", "node-1", {"RegisteredNode", "NodeReady"}.issubset)
    (ready,) = json.loads(lab.kubectl("get", "node", "node-1", "-o", "json"))["status"]["conditions"]
    heard = datetime.datetime.fromisoformat(ready["lastHeartbeatTime"].replace("Z", "+00:00"))
    assert abs((datetime.datetime.now(datetime.UTC) - heard).total_seconds()) < 600
    lab.run("fail", "node", "node-1")
    # Not by the Event alone: a busy machine's node may have been late before, and be back.
    lab.kubectl("wait", "--for=condition=Ready=Unknown", "node/node-1", "--timeout=120s")
    eventually(lab, "Node", "node-1", {"NodeNotReady"}.issubset)
    (unknown,) = json.loads(lab.kubectl("get", "node", "node-1", "-o", "json"))["status"]["conditions"]
    assert unknown["status"] == "Unknown"
    assert unknown["lastHeartbeatTime"] >= ready["lastHeartbeatTime"], "what was heard last is kept"
    lab.run("heal", "node", "node-1")
