"""What a shell's Tab key offers beyond commands and flags: names of Services, nodes, Pods, namespaces and labs.

They come from where the command line says that the cluster is: SOURCE, or an option that names one; with none of these
from the API server that kubectl would ask. Whatever goes wrong, nothing is offered: a completion that
prints an error would be written into the command line. Where nothing fits, the shell offers files.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

import click

from kproxy.errors import KproxyError


class _Names(NamedTuple):
    """Of a cluster: `NS/NAME` of what has a namespace."""

    services: tuple[str, ...]
    pods: tuple[str, ...]
    nodes: tuple[str, ...]


def services(context: click.Context, _parameter: click.Parameter, incomplete: str) -> list[str]:
    """NS/NAME."""
    return _beginning(_names(context).services, incomplete)


def nodes(context: click.Context, _parameter: click.Parameter, incomplete: str) -> list[str]:
    return _beginning(_names(context).nodes, incomplete)


def namespaces(context: click.Context, _parameter: click.Parameter, incomplete: str) -> list[str]:
    """Those that Services and Pods are in."""
    found = _names(context)
    return _beginning({name.partition("/")[0] for name in (*found.services, *found.pods)}, incomplete)


def senders(context: click.Context, _parameter: click.Parameter, incomplete: str) -> list[str]:
    """pod/NS/NAME and node/NAME."""
    return _beginning(_references(_names(context), "pod", "node"), incomplete)


def receivers(context: click.Context, _parameter: click.Parameter, incomplete: str) -> list[str]:
    """svc/NS/NAME, nodeport/NS/NAME, pod/NS/NAME and node/NAME."""
    return _beginning(_references(_names(context), "svc", "nodeport", "pod", "node"), incomplete)


def labs(_context: click.Context, _parameter: click.Parameter, incomplete: str) -> list[str]:
    from kproxy.lab.state import list_labs

    with contextlib.suppress(OSError):
        return _beginning((lab.name for lab in list_labs()), incomplete)
    return []


def lab_hosts(context: click.Context, _parameter: click.Parameter, incomplete: str) -> list[str]:
    """The client, the nodes and the Pods of the lab that --name says."""
    found = _names(context)
    return _beginning(("client", *found.nodes, *found.pods), incomplete)


def lab_targets(context: click.Context, _parameter: click.Parameter, incomplete: str) -> list[str]:
    return _beginning(_references(_names(context), "svc", "nodeport", "pod"), incomplete)


def contexts(context: click.Context, _parameter: click.Parameter, incomplete: str) -> list[str]:
    """Those of the kubeconfig that --kubeconfig, $KUBECONFIG or the home directory says."""
    from kproxy.client.kubeconfig import kubeconfig_paths, read_kubeconfig

    with contextlib.suppress(KproxyError):
        found = read_kubeconfig(kubeconfig_paths(context.params.get("kubeconfig"), os.environ))
        return _beginning(found.contexts, incomplete)
    return []


def sources(context: click.Context, parameter: click.Parameter, incomplete: str) -> list[str]:
    """lab:NAME, cluster:CONTEXT and netns:NAME once a kind is named, the kinds before; files are the shell's."""
    kind, colon, rest = incomplete.partition(":")
    if not colon:
        return _beginning(("cluster:", "lab:", "netns:"), incomplete) if incomplete else []
    known = {"netns": network_namespaces, "lab": labs, "cluster": contexts}
    found = known[kind](context, parameter, rest) if kind in known else []
    return _beginning((f"{kind}:{name}" for name in found), incomplete)


def network_namespaces(_context: click.Context, _parameter: click.Parameter, incomplete: str) -> list[str]:
    with contextlib.suppress(OSError):
        return _beginning(os.listdir("/run/netns"), incomplete)
    return []


def _beginning(names: Iterable[str], incomplete: str) -> list[str]:
    return sorted({name for name in names if name.startswith(incomplete)})


def _references(names: _Names, *kinds: str) -> list[str]:
    lists = {"svc": names.services, "nodeport": names.services, "pod": names.pods, "node": names.nodes}
    return [f"{kind}/{name}" for kind in kinds for name in lists[kind]]


def _names(context: click.Context) -> _Names:
    given = dict(context.params)
    # Of a line that ends within an option click keeps what stands alone apart.
    given["sources"] = (*(given.get("sources") or ()), *context.args)
    try:
        return _read(given)
    except (KproxyError, OSError, ValueError, ModuleNotFoundError):
        return _Names((), (), ())


def _read(given: dict[str, Any]) -> _Names:
    """Raises KproxyError: the cluster cannot be read."""
    from kproxy.cluster.pods import read_pods
    from kproxy.cluster.sources import Kind, read_name

    raw: list[Any] = []
    files = [name for name in given.get("filenames") or () if name != "-"]
    snapshots = [given["snapshot"]] if given.get("snapshot") else []
    for name in map(read_name, filter(None, given["sources"])):
        if name.kind is Kind.MANIFESTS:
            files += name.names
        elif name.kind is Kind.SNAPSHOT:
            snapshots += name.names
        elif name.kind in (Kind.LAB, Kind.CLUSTER):
            given["lab" if name.kind is Kind.LAB else "context"] = name.names[0] or None
    if snapshots:
        from kproxy.cluster.snapshot.cluster import read_snapshot

        cluster = read_snapshot(snapshots[0])
        manifests, pods = cluster.manifests, cluster.pods
    elif files:
        from kproxy.api.load.manifests import load_manifests

        manifests = load_manifests(files, on_object=raw.append)
        pods = read_pods(raw)
    else:
        from kproxy.api.load.manifests import load_contents
        from kproxy.client import RestClient, load_client_config
        from kproxy.client.cluster import read_objects
        from kproxy.client.cluster import read_pods as ask_for_pods

        client = RestClient(load_client_config(_kubeconfig(given), given.get("context")))
        try:
            pieces = dict((*read_objects(client, "", lambda _text: None), *ask_for_pods(client)))
        finally:
            client.close()
        manifests, pods = load_contents(pieces, on_object=raw.append), read_pods(raw)
    metadata = [each.metadata for each in manifests.services]
    return _Names(
        tuple(f"{each.namespace}/{each.name}" for each in metadata),
        tuple(pods),
        tuple(each.metadata.name for each in manifests.nodes),
    )


def _kubeconfig(given: Mapping[str, Any]) -> str | None:
    """Of the lab that is named, or what --kubeconfig says."""
    lab = given.get("lab") or (given.get("name") if "kubeconfig" not in given else None)
    if lab:
        from kproxy.lab.state import LabDirectory

        return str(LabDirectory(lab).kubeconfig)
    return given.get("kubeconfig")
