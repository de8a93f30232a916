"""DaemonSet to Pods: one on each node that the template's nodeSelector and tolerations allow, whatever state it is in.

As kube-controller-manager's daemon set controller, without surges, history and minReadySeconds. Pods are bound to
their node when they are created; the scheduler has no say.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Final

from kproxy.lab.controllers.runtime import Reconciler, Tables, Write, status_writes
from kproxy.lab.controllers.workload import (
    NO_EXECUTE,
    NO_SCHEDULE,
    REVISION_LABEL,
    create_pod,
    delete_pod,
    own_key,
    owned_by,
    pod_of,
    resolve,
    revision_of,
    rolls,
    template_hash,
    untolerated,
)
from kproxy.lab.resources import DAEMON_SETS, NODES, PODS, Json, Object, is_active, is_ready, is_terminating, key_of

_KIND: Final = "DaemonSet"
_STATE: Final = "node.kubernetes.io/"


def wants_node(template: Object, node: Object, *effects: str) -> bool:
    """Whether a pod template belongs on a node: its nodeSelector fits, and it tolerates the taints of these effects.

    What says how the node is (node.kubernetes.io/) every pod of a DaemonSet tolerates.
    """
    spec = template["spec"]
    labels = node["metadata"].get("labels") or {}
    return (
        not is_terminating(node)
        and (spec.get("nodeSelector") or {}).items() <= labels.items()
        and all(str(taint["key"]).startswith(_STATE) for taint in untolerated(spec, node, *effects))
    )


def outdated(pods: Sequence[Object], digest: str, desired: int, max_unavailable: int) -> list[Object]:
    """Which pods of an older template a rolling update deletes now: all that are not ready, and of the others as many
    as may be unavailable."""
    old = [pod for pod in pods if revision_of(pod) != digest]
    room = max_unavailable - (desired - sum(map(is_ready, pods)))
    useless = [pod for pod in old if not is_ready(pod)]
    useful = sorted((pod for pod in old if is_ready(pod)), key=key_of)
    return useless + useful[: max(0, room)]


def reconcile(key: str, tables: Tables) -> Iterator[Write]:
    """The pods of a DaemonSet, and its status."""
    item = tables.get(DAEMON_SETS, key)
    if item is None or is_terminating(item):
        return
    template = item["spec"]["template"]
    digest = template_hash(template)
    pods, everywhere = tables.owned(PODS, item), tables.all(NODES)
    nodes = sorted(_names(node for node in everywhere if wants_node(template, node, NO_SCHEDULE, NO_EXECUTE)))
    # NoSchedule keeps pods away from a node, and does not drive off those that are there.
    allowed = set(_names(node for node in everywhere if wants_node(template, node, NO_EXECUTE)))
    # A node that still has one that terminates waits for its end, as ports of the host may be in use.
    taken = {str(pod["spec"].get("nodeName", "")) for pod in pods}
    for node in nodes:
        if node not in taken:
            body = pod_of(item, _KIND)
            body["metadata"]["labels"][REVISION_LABEL] = digest
            body["spec"]["nodeName"] = node
            yield create_pod(item, _KIND, body)
    active = [pod for pod in pods if is_active(pod)]
    misplaced = [pod for pod in active if pod["spec"].get("nodeName") not in allowed]
    kept = [pod for pod in active if pod not in misplaced]
    for pod in misplaced + _to_replace(item, kept, digest, len(nodes)):
        yield delete_pod(item, _KIND, pod)
    yield from status_writes(DAEMON_SETS, item, status_of(item, kept, digest, len(nodes), len(misplaced)))


def _names(nodes: Iterable[Object]) -> Iterator[str]:
    return (str(node["metadata"]["name"]) for node in nodes)


CONTROLLER: Final = Reconciler(
    "daemonset-controller",
    reconcile,
    (
        (DAEMON_SETS, own_key),
        (PODS, owned_by(_KIND)),
        # A node's status changes with every condition; what matters here is seldom, and finding nothing to do is quick.
        (NODES, lambda _node, tables: map(key_of, tables.all(DAEMON_SETS))),
    ),
)


def _to_replace(item: Object, pods: list[Object], digest: str, desired: int) -> list[Object]:
    if not rolls(item):
        return []
    strategy = item["spec"].get("updateStrategy") or {}
    limit = resolve((strategy.get("rollingUpdate") or {}).get("maxUnavailable", 1), desired, up=True)
    return outdated(pods, digest, desired, max(1, limit))


def status_of(item: Object, pods: list[Object], digest: str, desired: int, misplaced: int) -> Json:
    """The status of a set with these active pods that are where they belong, on `desired` nodes."""
    ready = sum(map(is_ready, pods))
    return {
        "observedGeneration": item["metadata"].get("generation", 0),
        "desiredNumberScheduled": desired,
        "currentNumberScheduled": len(pods),
        "updatedNumberScheduled": sum(revision_of(pod) == digest for pod in pods),
        "numberMisscheduled": misplaced,
        "numberReady": ready,
        "numberAvailable": ready,
        "numberUnavailable": max(0, desired - ready),
    }
