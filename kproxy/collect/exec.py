"""Nodes that are read by executing the script in a host-network Pod on each, over the API server."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from kproxy.client import ApiError, RestClient
from kproxy.client.cluster import one_line_errors
from kproxy.client.exec import ExecError, execute
from kproxy.client.resources import NODES, PODS
from kproxy.cluster.snapshot.script import MAX_OCTETS, SECONDS
from kproxy.collect.nodes import NodeReader, ScriptReader
from kproxy.errors import InputError, KproxyError

SELECTORS: Final = ("k8s-app=kube-proxy", "component=kube-proxy", "app.kubernetes.io/name=kproxy")
"""kube-proxy's own Pods, of kubeadm and its like, and as static Pods; then those of `deploy/`."""
NAMESPACE: Final = "kube-system"

_DEFAULT_CONTAINER: Final = "kubectl.kubernetes.io/default-container"


class NodeExecError(KproxyError):
    """The script could not be executed on a node."""


@dataclass(frozen=True, slots=True)
class ExecReader(ScriptReader):
    """Executes the script in a container of a Pod. `seconds` and `max_octets` are for all of it."""

    client: RestClient
    namespace: str
    pod: str
    container: str
    seconds: float = SECONDS
    max_octets: int = MAX_OCTETS
    via: str = "exec"

    def run(self, script: str) -> bytes:
        where = f"pod {self.namespace}/{self.pod}"
        try:
            # By standard input: as an argument it would be in the URL, and proxies bound these.
            done = execute(
                self.client, self.namespace, self.pod, ("sh", "-s"), container=self.container,
                stdin=script.encode(), timeout=self.seconds, max_octets=self.max_octets,
            )  # fmt: skip
        except ApiError as error:
            raise NodeExecError(f"{where}: {error.message}") from error
        except ExecError as error:
            raise NodeExecError(f"{where}: {error}") from error
        if done.code:
            said = done.errors.decode(errors="replace").strip().splitlines()
            raise NodeExecError(
                f"{where}: the script ended with exit code {done.code}{f': {said[-1]}' if said else ''}"
            )
        return done.output


def find_readers(
    client: RestClient, nodes: Iterable[str], selector: str | None
) -> tuple[dict[str, NodeReader], dict[str, str]]:
    """A reader for each node that has a Pod to execute in, and why the others have none.

    Args:
        nodes: only these; none for all.
        selector: of the Pods, in any namespace; None for kube-proxy's own.

    Raises:
        InputError: there is no such node.
        ClusterReadError: nodes or Pods cannot be listed.
    """
    with one_line_errors(client):
        known = sorted(node.metadata.name for node in client.list(NODES).items)
        selectors = (selector,) if selector is not None else SELECTORS
        where = "" if selector is not None else NAMESPACE
        lists = [[item.raw for item in client.list(PODS, where, label_selector=each).items] for each in selectors]
    wanted = tuple(nodes) or tuple(known)
    for name in wanted:
        if name not in known:
            raise InputError(f"the cluster has no node {name!r}: there are {', '.join(known[:10]) or 'none'}")
    readers: dict[str, NodeReader] = {}
    missing: dict[str, str] = {}
    for name in wanted:
        here = [pod for pods in lists for pod in sorted(pods, key=_order) if _node(pod) == name]
        fit = next((pod for pod in here if not _objection(pod)), None)
        if fit is not None:
            metadata = fit["metadata"]
            readers[name] = ExecReader(client, str(metadata["namespace"]), str(metadata["name"]), _container(fit))
        elif here:
            missing[name] = f"pod {'/'.join(_order(here[0]))} {_objection(here[0])}"
        else:
            whose = f"no Pod with {selector}" if selector is not None else f"no Pod of kube-proxy in {NAMESPACE}"
            missing[name] = f"{whose} is there: --selector names others"
    return readers, missing


def _order(pod: Mapping[str, Any]) -> tuple[str, str]:
    return str(pod["metadata"].get("namespace")), str(pod["metadata"]["name"])


def _node(pod: Mapping[str, Any]) -> str:
    return str((pod.get("spec") or {}).get("nodeName") or "")


def _objection(pod: Mapping[str, Any]) -> str:
    """Why a Pod is of no use, "" if it is."""
    if not (pod.get("spec") or {}).get("hostNetwork"):
        return "has a network of its own: hostNetwork is needed"
    if pod["metadata"].get("deletionTimestamp"):
        return "is being deleted"
    phase = str((pod.get("status") or {}).get("phase") or "")
    return "" if phase == "Running" else f"is not running: {phase or 'Pending'}"


def _container(pod: Mapping[str, Any]) -> str:
    """The container that kubectl would take: the annotated one, else the first."""
    named = (pod["metadata"].get("annotations") or {}).get(_DEFAULT_CONTAINER)
    containers = (pod.get("spec") or {}).get("containers") or ()
    names = [str(each.get("name")) for each in containers]
    return str(named) if named in names else next(iter(names), "")
