"""Workloads as kubectl's user has them: readiness probes, DaemonSets, rollouts, eviction, Events."""

from __future__ import annotations

import datetime
import json
import socket
from collections.abc import Iterator
from operator import itemgetter
from pathlib import Path
from typing import Any

import pytest

from kproxy.linux.namespace import Namespace
from tests.support.lab.labtools import Lab, deployment, lab_up, service
from tests.support.waiting import eventually

pytestmark = [pytest.mark.root, pytest.mark.slow]


@pytest.fixture(scope="module")
def lab(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lab]:
    with lab_up(tmp_path_factory.mktemp("work"), "--nodes", "2") as found:
        yield found


def get(lab: Lab, *words: str) -> Any:
    return json.loads(lab.kubectl("get", *words, "-o", "json"))


def ready(lab: Lab, label: str) -> dict[str, bool]:
    """The pods with a label that are not terminating, and whether they are ready."""
    return {
        item["metadata"]["name"]: any(
            each["type"] == "Ready" and each["status"] == "True" for each in item["status"].get("conditions", ())
        )
        for item in get(lab, "pods", "-l", label)["items"]
        if "deletionTimestamp" not in item["metadata"]
    }


def has_failed(lab: Lab, *pods: str) -> bool:
    """Whether a probe of each of these pods has failed, as the kubelet tells."""
    told = {
        event["involvedObject"]["uid"] for event in get(lab, "events", "--field-selector=reason=Unhealthy")["items"]
    }
    return told >= {get(lab, "pod", name)["metadata"]["uid"] for name in pods}


@pytest.mark.parametrize(
    ("probe", "becomes"),
    [
        ({"httpGet": {"port": "http", "path": "/healthz"}}, True),
        ({"tcpSocket": {"port": 8080}}, True),
        ({"httpGet": {"port": 8081}}, False),
        ({"tcpSocket": {"port": "metrics"}}, False),
        ({"exec": {"command": ["false"]}}, True),
        ({"grpc": {"port": 9}}, True),
    ],
    ids=lambda value: json.dumps(value)[:50] if isinstance(value, dict) else None,
)
def test_a_pod_is_ready_when_its_probe_succeeds(lab: Lab, probe: dict[str, Any], becomes: bool) -> None:
    container = {
        "name": "echo", "image": "echo", "ports": [{"containerPort": 8080, "name": "http"}],
        "readinessProbe": {**probe, "periodSeconds": 1, "failureThreshold": 1},
    }  # fmt: skip
    lab.apply(
        {
            "apiVersion": "v1", "kind": "Pod", "metadata": {"name": "probed", "labels": {"app": "probed"}},
            "spec": {"containers": [container]},
        }
    )  # fmt: skip
    try:
        eventually(lambda: get(lab, "pod", "probed")["status"].get("phase") == "Running")
        if becomes:
            lab.kubectl("wait", "--for=condition=Ready", "pod/probed", "--timeout=120s")
        else:
            eventually(lambda: has_failed(lab, "probed"))
            assert ready(lab, "app=probed") == {"probed": False}
            message = get(lab, "pod", "probed")["status"]["conditions"]
            assert any("unready status: [echo]" in item.get("message", "") for item in message)
    finally:
        lab.kubectl("delete", "pod", "probed")


def test_readiness_comes_and_goes_with_traffic(lab: Lab) -> None:
    """By a probe of something else than the pod: a port of the fabric that is open, or not."""
    host = "172.30.0.1"
    body = deployment("gate", 2)
    pod = body["spec"]["template"]["spec"]["containers"][0]
    probe = {"tcpSocket": {"host": host, "port": 9}, "periodSeconds": 1, "failureThreshold": 1}
    pod["readinessProbe"] = probe
    lab.apply(body, service("gate", "gate"))

    def endpoints() -> int:
        return sum(item.ready for item in lab.cluster().service("gate").ports[0].endpoints)

    eventually(lambda: len(ready(lab, "app=gate")) == 2)
    eventually(lambda: has_failed(lab, *ready(lab, "app=gate")))
    assert endpoints() == 0
    with Namespace.named(lab.directory.running().spec.fabric) as fabric:
        server = fabric.call(lambda: socket.create_server((host, 9), backlog=512))
    with server:
        lab.kubectl("rollout", "status", "deployment/gate", "--timeout=120s")
        eventually(lambda: endpoints() == 2)
    eventually(lambda: endpoints() == 0)
    lab.kubectl("delete", "deployment/gate", "service/gate")


def test_a_rollout_stops_at_pods_that_do_not_get_ready_and_is_undone(lab: Lab) -> None:
    lab.kubectl("create", "deployment", "shop", "--image=echo", "--port=8080", "--replicas=2")
    lab.kubectl("rollout", "status", "deployment/shop", "--timeout=120s")
    before = set(ready(lab, "app=shop"))
    lab.kubectl("rollout", "restart", "deployment/shop")
    lab.kubectl("rollout", "status", "deployment/shop", "--timeout=120s")
    after = set(ready(lab, "app=shop"))
    assert len(after) == 2
    assert not before & after
    probe = {"name": "echo", "readinessProbe": {"tcpSocket": {"port": 9}}}
    lab.kubectl(
        "patch", "deployment", "shop", "-p", json.dumps({"spec": {"template": {"spec": {"containers": [probe]}}}})
    )
    eventually(lambda: len(ready(lab, "app=shop")) == 3)
    eventually(lambda: has_failed(lab, *(ready(lab, "app=shop").keys() - after)))
    assert sum(ready(lab, "app=shop").values()) == 2, "the old pods stay until new ones are ready"
    lab.kubectl("rollout", "undo", "deployment/shop")
    lab.kubectl("rollout", "status", "deployment/shop", "--timeout=120s")
    assert set(ready(lab, "app=shop")) == after
    wide = lab.kubectl("get", "pods", "-o", "wide", "-l", "app=shop", "--no-headers")
    assert all("10.244." in line and "node-" in line for line in wide.splitlines())
    lab.kubectl("delete", "deployment", "shop")


def daemon_set(name: str, **spec: Any) -> dict[str, Any]:
    body = deployment(name, 0)
    template = body["spec"]["template"]
    template["spec"].update(spec)
    return {**body, "kind": "DaemonSet", "spec": {"selector": body["spec"]["selector"], "template": template}}


def places(lab: Lab, app: str) -> list[str]:
    """The nodes of the pods of an app, "" for one that has none yet, without those that are ending."""
    items = get(lab, "pods", "-l", f"app={app}")["items"]
    return sorted(item["spec"].get("nodeName", "") for item in items if "deletionTimestamp" not in item["metadata"])


def test_a_daemon_set_has_one_pod_on_each_node(lab: Lab) -> None:
    lab.apply(daemon_set("agent"))
    lab.kubectl("rollout", "status", "daemonset/agent", "--timeout=120s")

    assert places(lab, "agent") == ["node-1", "node-2"]
    before = set(ready(lab, "app=agent"))
    lab.kubectl("delete", "pod", min(before))
    eventually(lambda: places(lab, "agent") == ["node-1", "node-2"])
    lab.run("node", "add")
    eventually(lambda: places(lab, "agent") == ["node-1", "node-2", "node-3"])
    lab.kubectl("rollout", "restart", "daemonset/agent")
    lab.kubectl("rollout", "status", "daemonset/agent", "--timeout=120s")
    assert not before & set(ready(lab, "app=agent"))
    assert places(lab, "agent") == ["node-1", "node-2", "node-3"]
    lab.run("node", "remove", "node-3")
    eventually(lambda: places(lab, "agent") == ["node-1", "node-2"])
    lab.apply(daemon_set("agent", nodeSelector={"kubernetes.io/hostname": "node-2"}))
    eventually(lambda: places(lab, "agent") == ["node-2"])
    lab.kubectl("delete", "daemonset", "agent")
    eventually(lambda: places(lab, "agent") == [])


def test_pods_of_a_failed_node_are_evicted_in_their_time(lab: Lab) -> None:
    stays, goes = deployment("stays", 2), deployment("goes", 2)
    toleration = {"key": "node.kubernetes.io/unreachable", "operator": "Exists", "effect": "NoExecute"}
    goes["spec"]["template"]["spec"]["tolerations"] = [{**toleration, "tolerationSeconds": 1}]
    lab.apply(stays, goes, daemon_set("agent"))
    for workload in ("deployment/stays", "deployment/goes", "daemonset/agent"):
        lab.kubectl("rollout", "status", workload, "--timeout=120s")
    lab.run("fail", "node", "node-2")
    lab.kubectl("wait", "--for=condition=Ready=Unknown", "node/node-2", "--timeout=120s")

    eventually(lambda: places(lab, "goes") == ["node-1", "node-1"])
    assert places(lab, "stays") == ["node-1", "node-2"]
    assert places(lab, "agent") == ["node-1", "node-2"]
    eventually(lambda: sum(ready(lab, "app=stays").values()) == 1)
    terminating = [
        item for item in get(lab, "pods", "-l", "app=goes")["items"] if "deletionTimestamp" in item["metadata"]
    ]
    assert len(terminating) == 1, "nobody is there to end it"
    lab.run("heal", "node", "node-2")
    eventually(lambda: len(get(lab, "pods", "-l", "app=goes")["items"]) == 2)
    eventually(lambda: all(ready(lab, "app=stays").values()))


def job(name: str, *command: str, policy: str = "Never", **spec: Any) -> dict[str, Any]:
    env = [{"name": "SELF", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}}]
    container = {"name": "main", "image": "x", "command": command, "env": env}
    template = {"spec": {"restartPolicy": policy, "containers": [container]}}
    return {"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": name}, "spec": {"template": template, **spec}}


@pytest.fixture
def flag(lab: Lab) -> Iterator[Path]:
    """A file that may come; outside of /tmp, for a Job's command has one of its own."""
    path = Path(f"/run/kproxy-test-{lab.name}")
    yield path
    path.unlink(missing_ok=True)


def test_what_runs_before_a_job_and_what_it_has_not(lab: Lab) -> None:
    """Init containers one after another, and what their failure does; volumes, and values of ConfigMaps."""
    found, failing = job("prepared", "sh", "-c", "echo [$COLOR]"), job("unready", "true", backoffLimit=0)
    spec = found["spec"]["template"]["spec"]
    spec["volumes"] = [{"name": "work", "emptyDir": {}}, {"name": "host", "hostPath": {"path": "/etc"}}]
    color = {"name": "COLOR", "valueFrom": {"configMapKeyRef": {"name": "colors", "key": "a"}}}
    spec["containers"][0]["env"].append(color)
    spec["initContainers"] = [{"name": name, "image": "x", "command": ["true"]} for name in ("one", "two")]
    failing["spec"]["template"]["spec"]["initContainers"] = [{"name": "no", "image": "x", "command": ["false"]}]
    lab.apply(found, failing)
    lab.kubectl("wait", "--for=condition=Complete", "job/prepared", "--timeout=120s")
    lab.kubectl("wait", "--for=condition=Failed", "job/unready", "--timeout=120s")
    assert lab.kubectl("logs", "job/prepared", "-c", "main") == "[]\n"
    (pod,) = get(lab, "pods", "-l", "job-name=prepared")["items"]
    ended = [each["state"]["terminated"]["exitCode"] for each in pod["status"]["initContainerStatuses"]]
    assert (ended, pod["status"]["phase"]) == ([0, 0], "Succeeded")
    (pod,) = get(lab, "pods", "-l", "job-name=unready")["items"]
    assert pod["status"]["phase"] == "Failed"
    assert pod["status"]["containerStatuses"][0]["state"] == {"waiting": {"reason": "PodInitializing"}}
    told = {each["reason"]: each["message"] for each in get(lab, "events")["items"]}
    assert told["VolumesNotMounted"] == "a lab has no volumes: work (emptyDir), host (hostPath)"
    assert told["ValuesNotGiven"] == "no command gets values of ConfigMaps and Secrets: COLOR (configMapKeyRef)"
    lab.kubectl("delete", "job", "--all", "--timeout=120s")


def test_jobs_run_their_commands_to_the_end(lab: Lab, flag: Path) -> None:
    mark = f"/etc/kproxy-test-{lab.name}"
    script = f"""
        echo "$(uname -n) $SELF index $JOB_COMPLETION_INDEX"
        ip -br address show eth0 | grep -o '10[.]244[.][0-9.]*'
        echo mine > /tmp/mine && test "$(ls /tmp)" = mine && echo writes in /tmp
        touch {mark} || echo nowhere else
    """
    # What a command has started does not keep its pod from ending.
    lab.apply(
        job("work", "sh", "-c", script, completions=2, parallelism=2, completionMode="Indexed"),
        job("broken", "sh", "-c", "sleep 1000 & echo no >&2; exit 3", backoffLimit=0),
        job("nothing", "/nonexistent/program", backoffLimit=0),
        job("again", "test", "-e", str(flag), policy="OnFailure", backoffLimit=100),
        job("long", "sleep", "1000"),
    )
    lab.kubectl("wait", "--for=condition=Complete", "job/work", "--timeout=120s")
    lab.kubectl("wait", "--for=condition=Failed", "job/broken", "job/nothing", "--timeout=120s")
    for meta in (pod["metadata"] for pod in get(lab, "pods", "-l", "job-name=work")["items"]):
        name, index = meta["name"], meta["labels"]["batch.kubernetes.io/job-completion-index"]
        said = lab.kubectl("logs", name).splitlines()
        assert said[0] == f"work-{index} {name} index {index}"
        assert said[1].startswith("10.244.")
        assert said[2] == "writes in /tmp"
        assert "Read-only file system" in said[3]
        assert said[4:] == ["nowhere else"]
    assert not Path(mark).exists()
    broken = get(lab, "pods", "-l", "job-name=broken")["items"][0]
    assert broken["status"]["phase"] == "Failed"
    assert broken["status"]["containerStatuses"][0]["state"]["terminated"]["exitCode"] == 3
    assert lab.kubectl("logs", "job/broken") == "no\n"
    nothing = get(lab, "pods", "-l", "job-name=nothing")["items"][0]["status"]["containerStatuses"][0]
    assert nothing["state"]["terminated"]["reason"] == "StartError"
    assert 'exec: "/nonexistent/program"' in nothing["state"]["terminated"]["message"]

    def restarts() -> int:
        items = get(lab, "pods", "-l", "job-name=again")["items"]
        return sum(each["restartCount"] for item in items for each in item["status"].get("containerStatuses", ()))

    eventually(lambda: restarts() > 0)
    flag.touch()
    lab.kubectl("wait", "--for=condition=Complete", "job/again", "--timeout=120s")
    # While it runs, its pod can be entered, and has its namespace only until it ends.
    pod = get(lab, "pods", "-l", "job-name=long")["items"][0]
    inside = [item for item in lab.namespaces() if pod["metadata"]["uid"] in item]
    assert inside
    assert not [item for item in lab.namespaces() if broken["metadata"]["uid"] in item]
    lab.kubectl("delete", "job", "--all", "--timeout=120s")
    eventually(lambda: not set(inside) & set(lab.namespaces()))
    lab.run("status")


# --- Events ---


def events(lab: Lab, kind: str, name: str) -> dict[tuple[str, str], dict[str, Any]]:
    """By reason and message, of objects whose names begin so."""
    found = json.loads(lab.kubectl("get", "events", "-A", "-o", "json"))["items"]
    return {
        (item["reason"], item["message"]): item
        for item in found
        if item["involvedObject"]["kind"] == kind and item["involvedObject"]["name"].startswith(name)
    }


def wait_for_reasons(lab: Lab, kind: str, name: str, reasons: set[str]) -> None:
    """Waits until all these reasons were given."""
    eventually(lambda: reasons <= {reason for reason, _ in events(lab, kind, name)})


def test_the_life_of_a_pod(lab: Lab) -> None:
    item = deployment("web", 1)
    probe = {"httpGet": {"path": "/", "port": 9}, "periodSeconds": 1, "failureThreshold": 1}
    item["spec"]["template"]["spec"]["containers"][0]["readinessProbe"] = probe
    lab.apply(item)
    wait_for_reasons(lab, "Pod", "web-", {"Scheduled", "Pulled", "Created", "Started", "Unhealthy"})
    name = next(pod.name for pod in lab.cluster().pods if pod.name.startswith("web-"))

    def unhealthy_most() -> Any:
        # A busy machine makes one fail in another way, which is told apart.
        found = events(lab, "Pod", "web-").items()
        return max((each for (reason, _), each in found if reason == "Unhealthy"), key=itemgetter("count"))

    eventually(lambda: unhealthy_most()["count"] > 1)  # one that fails again is counted
    found, unhealthy = events(lab, "Pod", "web-"), unhealthy_most()
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
    wait_for_reasons(lab, "ReplicaSet", "web-", {"SuccessfulCreate"})
    (created,) = [message for reason, message in events(lab, "ReplicaSet", "web-") if reason == "SuccessfulCreate"]
    assert created == f"Created pod: {name}"
    lab.kubectl("delete", "deployment", "web", "--wait=false")
    wait_for_reasons(lab, "Pod", "web-", {"Killing"})
    ((_, scaled),) = [key for key in events(lab, "Deployment", "web") if key[0] == "ScalingReplicaSet"]
    assert scaled.startswith("Scaled up replica set web-")
    assert scaled.endswith(" from 0 to 1")


def test_a_pod_that_waits_says_why(lab: Lab) -> None:
    lab.apply(deployment("stuck", 1, node="node-9"))
    wait_for_reasons(lab, "Pod", "stuck-", {"FailedScheduling"})
    pod = next(pod.name for pod in lab.cluster().pods if pod.name.startswith("stuck-"))
    described = lab.kubectl("describe", "pod", pod)
    assert "0/2 nodes are available: 2 node(s) didn't match Pod's node affinity/selector." in described
    lab.kubectl("delete", "deployment", "stuck")


def test_a_node_says_when_it_was_heard_of(lab: Lab) -> None:
    wait_for_reasons(lab, "Node", "node-1", {"RegisteredNode", "NodeReady"})
    (ready,) = json.loads(lab.kubectl("get", "node", "node-1", "-o", "json"))["status"]["conditions"]
    heard = datetime.datetime.fromisoformat(ready["lastHeartbeatTime"].replace("Z", "+00:00"))
    assert abs((datetime.datetime.now(datetime.UTC) - heard).total_seconds()) < 600
    lab.run("fail", "node", "node-1")
    # Not by the Event alone: a busy machine's node may have been late before, and be back.
    lab.kubectl("wait", "--for=condition=Ready=Unknown", "node/node-1", "--timeout=120s")
    wait_for_reasons(lab, "Node", "node-1", {"NodeNotReady"})
    (unknown,) = json.loads(lab.kubectl("get", "node", "node-1", "-o", "json"))["status"]["conditions"]
    assert unknown["status"] == "Unknown"
    assert unknown["lastHeartbeatTime"] >= ready["lastHeartbeatTime"], "what was heard last is kept"
    lab.run("heal", "node", "node-1")
