"""Applying manifests to a lab, and waiting for what they ask for."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Final

import msgspec

from kproxy.api.document.read import read_documents
from kproxy.api.document.tree import DocumentError
from kproxy.client import ApiError, Discovered, PatchType, RestClient, discover, dynamic_resource, load_client_config
from kproxy.cluster.inputs import named_file, read_text
from kproxy.errors import InputError, Location
from kproxy.lab.errors import LabError, LabInputError
from kproxy.lab.resources import (
    DAEMON_SETS,
    DEPLOYMENTS,
    NODES,
    PODS,
    REPLICA_SETS,
    STATEFUL_SETS,
    Json,
    is_ready,
    is_terminating,
    key_of,
)
from kproxy.lab.state import LabDirectory

MANAGER: Final = "kproxy-lab"
_SUFFIXES: Final = (".yaml", ".yml", ".json")
_FIRST: Final = ("Namespace", "CustomResourceDefinition", "ServiceAccount", "ConfigMap", "Secret", "Service")
"""Kinds that others may need."""


class Manifest(msgspec.Struct, frozen=True):
    """One object; `where` is its file and document, for messages."""

    where: str
    body: Json


def lab_client(lab: LabDirectory) -> RestClient:
    """A client of the lab's API server, with all rights."""
    return RestClient(load_client_config(str(lab.kubeconfig)))


def read_manifests(paths: Sequence[str]) -> list[Manifest]:
    """All objects of files and directories, Lists taken apart.

    Raises:
        LabInputError: something cannot be read, or is no object; all such problems at once.
    """
    found: list[Manifest] = []
    problems: list[str] = []
    for path in [file for item in paths for file in _files(item, problems)]:
        try:
            documents = read_documents(read_text(path))
        except DocumentError as error:
            problems.append(f"{Location(str(path), line=error.line)}: {error.message}")
            continue
        except InputError as error:
            problems.append(str(error))
            continue
        for number, document in enumerate(documents, 1):
            problems += [f"{Location(str(path), line=each.line)}: {each.message}" for each in document.duplicates]
            if document.value is not None:
                _take(document.value, f"{path}, document {number}", found, problems)
    if problems:
        raise LabInputError("\n".join(problems))
    return sorted(found, key=lambda item: _FIRST.index(k) if (k := item.body["kind"]) in _FIRST else len(_FIRST))


def _files(text: str, problems: list[str]) -> Iterable[Path]:
    try:
        path = named_file(text)
    except InputError as error:
        problems.append(f'"": {error}')
        return ()
    if path.is_dir():
        return sorted(item for item in path.iterdir() if item.suffix in _SUFFIXES)
    if not path.exists():
        problems.append(f"{text}: No such file or directory")
        return ()
    return (path,)


def _take(document: object, where: str, found: list[Manifest], problems: list[str]) -> None:
    if not isinstance(document, dict) or not isinstance(document.get("kind"), str) or "apiVersion" not in document:
        problems.append(f"{where}: an object with apiVersion and kind expected")
        return
    if document["kind"].endswith("List") and isinstance(document.get("items"), list):
        for index, item in enumerate(document["items"]):
            _take(item, f"{where}, items[{index}]", found, problems)
        return
    if not isinstance(document.get("metadata"), dict) or not document["metadata"].get("name"):
        problems.append(f"{where}: metadata.name: this field is required")
        return
    found.append(Manifest(where, document))


def apply_manifests(client: RestClient, manifests: Iterable[Manifest]) -> list[str]:
    """Server-side apply of every object; returns `kind/name` of each.

    Raises:
        LabInputError: the server refused some; all refusals at once.
    """
    known = discover(client)
    done: list[str] = []
    problems: list[str] = []
    for item in manifests:
        try:
            done.append(_apply(client, known, item))
        except ApiError as error:
            problems.append(f"{item.where}: {error.message}")
        except LabInputError as error:
            problems.append(f"{item.where}: {error}")
    if problems:
        raise LabInputError("\n".join(problems))
    return done


def _apply(client: RestClient, known: Discovered, item: Manifest) -> str:
    body = {name: value for name, value in item.body.items() if name != "status"}
    group, _, version = str(body["apiVersion"]).rpartition("/")
    found = next((each for each in known.resources if (each.kind, each.group) == (body["kind"], group)), None)
    if found is None:
        raise LabInputError(f'no kind "{body["kind"]}" in version "{body["apiVersion"]}" is served')
    meta = dict(body["metadata"])
    for name in ("managedFields", "resourceVersion", "uid", "creationTimestamp"):
        meta.pop(name, None)
    body["metadata"] = meta
    resource = dynamic_resource(group, version, found.plural, found.namespaced)
    namespace = str(meta.get("namespace") or "default") if found.namespaced else ""
    if found.namespaced:
        meta["namespace"] = namespace
    client.patch(resource, meta["name"], body, namespace, patch_type=PatchType.APPLY, field_manager=MANAGER, force=True)
    return f"{found.kind.lower()}/{meta['name']}"


class Progress(msgspec.Struct, frozen=True):
    """How far a lab has come: what is ready, what there should be, and what is missing in words."""

    nodes: int
    wanted_nodes: int
    pods: int
    wanted_pods: int
    missing: tuple[str, ...]

    @property
    def done(self) -> bool:
        return not self.missing


def read_progress(client: RestClient, nodes: Sequence[str]) -> Progress:
    """What `lab up` waits for: how many nodes, pods and workloads are ready."""
    there = {item.metadata.name: item.raw for item in client.list(NODES).items}
    unready = [name for name in nodes if name not in there or not is_ready(there[name])]
    missing = [f"node {name} is not ready" for name in unready]
    pods = [item.raw for item in client.list(PODS).items if not is_terminating(item.raw)]
    ready = sum(map(is_ready, pods))
    owned = 0
    for item in client.list(DEPLOYMENTS).items:
        desired = int(item.raw["spec"].get("replicas", 1))
        status = item.raw.get("status") or {}
        if (
            status.get("observedGeneration", 0) < item.raw["metadata"].get("generation", 0)
            or min(status.get("updatedReplicas", 0), status.get("availableReplicas", 0)) < desired
        ):
            have = status.get("availableReplicas", 0)
            missing.append(f"deployment {item.metadata.key} has {have} of {desired} pods available")
        owned += desired
    for item in client.list(REPLICA_SETS).items:
        if not item.raw["metadata"].get("ownerReferences"):
            desired = int(item.raw["spec"].get("replicas", 1))
            owned += desired
            if int((item.raw.get("status") or {}).get("readyReplicas", 0)) < desired:
                missing.append(f"replicaset {item.metadata.key} has not {desired} pods ready")
    for item in client.list(DAEMON_SETS).items:
        status = item.raw.get("status") or {}
        desired = int(status.get("desiredNumberScheduled", 0))
        owned += desired
        if (
            status.get("observedGeneration", 0) < item.raw["metadata"].get("generation", 0)
            or min(status.get("updatedNumberScheduled", 0), status.get("numberAvailable", 0)) < desired
        ):
            missing.append(f"daemonset {item.metadata.key} has not a pod available on each of {desired} nodes")
    for item in client.list(STATEFUL_SETS).items:
        desired, status = int(item.raw["spec"].get("replicas", 1)), item.raw.get("status") or {}
        owned += desired
        if (
            status.get("observedGeneration", 0) < item.raw["metadata"].get("generation", 0)
            or min(status.get("replicas", 0), status.get("availableReplicas", 0)) < desired
        ):
            have = status.get("availableReplicas", 0)
            missing.append(f"statefulset {item.metadata.key} has {have} of {desired} pods available")
    alone = [pod for pod in pods if not pod["metadata"].get("ownerReferences")]
    missing += [f"pod {key_of(pod)} is not ready" for pod in alone if not is_ready(pod)]
    return Progress(len(nodes) - len(unready), len(nodes), ready, owned + len(alone), tuple(missing))


def wait_until(
    client: RestClient,
    nodes: Sequence[str],
    timeout: float,
    show: Callable[[Progress], None] = lambda _found: None,
    problems: Callable[[], Iterable[str]] = tuple,
) -> Progress:
    """Waits until nodes and workloads are ready, and `problems` knows of none.

    Raises:
        LabError: they are not after `timeout` seconds.
    """
    deadline = time.monotonic() + timeout
    while True:
        found = read_progress(client, nodes)
        show(found)
        if found.done:
            found = msgspec.structs.replace(found, missing=tuple(problems()))
        if found.done:
            return found
        if time.monotonic() > deadline:
            raise LabError(f"not ready after {timeout:.0f} s: " + "; ".join(found.missing[:5]))
        time.sleep(0.1)
