"""Breaking a lab, and mending it.

node       its processes are killed and its cable is pulled: what a power cut looks like from outside
link       only the cable is pulled
pod        its containers crash: the echo servers close, the pod is not ready
apiserver  killed; the data stays, and so do the rules that the nodes have

What a node's own process keeps, it mends within 30 s: the overlay its tunnel, MTU, routes, neighbours and FDB, the
proxy its rules. A fault of these must be told to that process.
"""

from __future__ import annotations

import time
from typing import Final

import msgspec

from kproxy.lab.cluster import read_cluster
from kproxy.lab.errors import LabError, LabInputError
from kproxy.lab.lifecycle import processes
from kproxy.lab.lifecycle.down import tear_down_node
from kproxy.lab.lifecycle.node_processes import NODE_KINDS, start_node
from kproxy.lab.lifecycle.objects import lab_client
from kproxy.lab.lifecycle.up import APISERVER, require_apiserver, start_apiserver, wait_for_apiserver
from kproxy.lab.network import set_node_link
from kproxy.lab.resources import FAILED, NODES, PODS
from kproxy.lab.spec import NodePlan, node_number
from kproxy.lab.state import LabDirectory, LabRecord

KINDS: Final = ("node", "link", "pod", "apiserver")
_PATIENCE: Final = 10.0


def fail(lab: LabDirectory, kind: str, name: str) -> str:
    """Breaks something; says what was done. Raises LabError."""
    with lab.locked():
        record = lab.running()
        if kind == "apiserver":
            if not processes.end(lab, lambda item: item.kind == APISERVER):
                raise LabError("the API server does not run")
            return "the API server is killed"
        if kind == "pod":
            return _mark_pod(lab, record, name, True)
        plan = plan_of(lab, record, name)
        if kind == "node":
            processes.end(lab, lambda item: item.node == name and item.kind in NODE_KINDS)
        set_node_link(record.spec, plan.name, False)
        return f"{name} is off" if kind == "node" else f"the link of {name} is down"


def heal(lab: LabDirectory, kind: str, name: str) -> str:
    """Mends it; says what was done. Raises LabError."""
    with lab.locked():
        record = lab.running()
        if kind == "apiserver":
            if any(item.kind == APISERVER for item in processes.find(lab)):
                return "the API server runs already"
            wait_for_apiserver(lab, start_apiserver(lab))
            return "the API server runs again"
        if kind == "pod":
            return _mark_pod(lab, record, name, False)
        plan = plan_of(lab, record, name)
        set_node_link(record.spec, plan.name, True)
        if kind == "node":
            start_node(lab, record.spec, plan)
        return f"{name} is on again" if kind == "node" else f"the link of {name} is up"


def plan_of(lab: LabDirectory, record: LabRecord, name: str) -> NodePlan:
    """The plan of a node that there is. Raises LabInputError."""
    number = node_number(name)
    if number is None or number not in record.nodes:
        known = ", ".join(plan.name for plan in lab.plans(record))
        raise LabInputError(f"no node {name!r}: there are {known}")
    return record.spec.node(number)


def _mark_pod(lab: LabDirectory, record: LabRecord, name: str, failed: bool) -> str:
    pod = read_cluster(lab, record).pod(name)
    client = lab_client(lab)
    value = "true" if failed else None
    client.patch(PODS, pod.name, {"metadata": {"annotations": {FAILED: value}}}, pod.namespace)
    deadline = time.monotonic() + _PATIENCE
    while time.monotonic() < deadline:
        now = client.get(PODS, pod.name, pod.namespace).raw
        states = (now.get("status") or {}).get("containerStatuses") or ()
        if all(("running" in (item.get("state") or {})) is not failed for item in states):
            return f"pod {pod.key} {'has crashed' if failed else 'runs again'}"
        time.sleep(0.02)
    raise LabError(f"pod {pod.key}: its kubelet has done nothing in {_PATIENCE:.0f} s")


def leave_node(lab: LabDirectory, name: str) -> None:
    """Takes a node away for good, with its Node and its pods. Raises LabError."""
    with lab.locked():
        record = lab.running()
        plan = plan_of(lab, record, name)
        if len(record.nodes) == 1:
            raise LabError(f"{name} is the only node: `kproxy lab down` ends the lab")
        require_apiserver(lab, "no node can leave")
        rest = tuple(number for number in record.nodes if number != plan.number)
        pods = [item.uid for item in read_cluster(lab, record).pods if item.node == name]
        tear_down_node(lab, record.spec, plan, pods)
        lab.write(msgspec.structs.replace(record, nodes=rest))
        client = lab_client(lab)
        client.delete(NODES, name)
        for item in client.list(PODS, field_selector=f"spec.nodeName={name}").items:
            # No kubelet is left to end them: as kubectl delete --force.
            client.raw(
                "DELETE",
                PODS.path(item.metadata.namespace, item.metadata.name),
                body=b'{"kind":"DeleteOptions","apiVersion":"v1","gracePeriodSeconds":0}',
            )
