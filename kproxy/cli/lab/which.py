"""`kproxy lab list`, `env` and `status`: which labs there are, how to speak to one, and what it has."""

from __future__ import annotations

import os
import shlex
from collections.abc import Iterator
from pathlib import Path

import click
import msgspec

from kproxy.cli.lab.common import name_option, open_model
from kproxy.cli.output import output_option, report_note, table_lines, terminal_width, write_output, write_result
from kproxy.lab.cluster import ClusterView, EndpointView, NodeView, PodView, ServicePortView, ServiceView
from kproxy.lab.errors import LabError
from kproxy.lab.lifecycle.down import all_labs
from kproxy.lab.spec import check_name
from kproxy.lab.state import LabDirectory, lab_root


class _Lab(msgspec.Struct, rename="camel"):
    """A lab. `phase` is that of its record, `unknown` without one. `directory` is where it is kept."""

    name: str
    phase: str
    nodes: int = 0
    ip_family: str = ""
    mode: str = ""
    kubeconfig: str = ""
    directory: str = ""


@click.command("list")
@output_option
def list_command(output_format: str) -> None:
    """Show which labs there are on this machine.

    \b
    Examples:
      kproxy lab list
      export KPROXY_LAB=$(kproxy lab list -o json | jq -r '.labs[0].name')
    """
    found = [_read(each) for each in all_labs()]
    notes = [
        f"lab {each.name} is kept in {each.directory}: `kproxy lab down --all` ends it, too"
        for each in found
        if Path(each.directory).parent != lab_root()
    ]
    rows = [("NAME", "PHASE", "NODES", "IP FAMILY", "MODE")]
    rows += [(each.name, each.phase, str(each.nodes), each.ip_family, each.mode) for each in found]
    lines = table_lines(rows, width=terminal_width()) if found else ()
    notes = notes if found else ["no lab is there: `kproxy lab up` makes one"]
    write_result("LabList", {"labs": found}, output_format, lines, notes=notes)


def _read(lab: LabDirectory) -> _Lab:
    try:
        record = lab.record()
    except LabError as error:
        report_note(str(error))
        record = None
    if record is None:
        return _Lab(lab.name, "unknown", directory=str(lab.path))
    spec = record.spec
    return _Lab(
        lab.name, record.phase, len(record.nodes), spec.ip_family, spec.mode, str(lab.kubeconfig), str(lab.path)
    )


@click.command("env")
@name_option
def env(name: str) -> None:
    """Print the line that makes kubectl speak to the lab.

    The kubeconfig belongs to the user who made the lab: root, or the one who ran `sudo kproxy lab up`.

    \b
    Examples:
      eval "$(kproxy lab env)"
      kubectl get nodes -o wide
    """
    lab = LabDirectory(check_name(name))
    lab.running()
    if not os.access(lab.kubeconfig, os.R_OK):
        raise LabError(f"{lab.kubeconfig}: only root, and the user who made the lab by sudo, can read it")
    write_output(f"export KUBECONFIG={shlex.quote(str(lab.kubeconfig))}\n", None)


@click.command("status")
@name_option
@output_option
def status(name: str, output_format: str) -> None:
    """Show the nodes with their pods, and the Services with their endpoints.

    \b
    Examples:
      kproxy lab status
      kproxy lab status -o json | jq '.pods[].addresses'
    """
    cluster = open_model(name).cluster
    write_result("LabStatus", cluster, output_format, picture(cluster))


def picture(cluster: ClusterView) -> Iterator[str]:
    """The lab as text: a line about it, the tree of nodes and pods, the table of Services."""
    running = cluster.api_server if cluster.api_running else "NOT RUNNING"
    head = f"lab {cluster.name}: {cluster.ip_family}, {cluster.rules_by}, {cluster.backend}"
    yield f"{head}; API server {running}"
    yield f"├── client outside  {' '.join(cluster.client)}"
    for index, node in enumerate(cluster.nodes):
        last = index == len(cluster.nodes) - 1
        yield f"{'└──' if last else '├──'} {_node(node)}"
        pods = [pod for pod in cluster.pods if pod.node == node.name]
        for number, pod in enumerate(pods):
            branch = "└──" if number == len(pods) - 1 else "├──"
            yield f"{'    ' if last else '│   '}{branch} {_pod(pod)}"
    waiting = [pod for pod in cluster.pods if not pod.node]
    for pod in waiting:
        yield f"pod {pod.key} waits for a node"
    if cluster.services:
        yield ""
        yield from _table(cluster)


def _node(node: NodeView) -> str:
    parts = [node.name, " ".join(node.addresses), f"pods {' '.join(node.pod_cidrs)}"]
    parts.append("Ready" if node.ready else f"NOT READY ({node.reason})")
    missing = [kind for kind in ("overlay", "proxy", "kubelet") if kind not in node.processes]
    if missing:
        parts.append(f"not running: {', '.join(missing)}")
    if not node.link:
        parts.append("link down")
    return "  ".join(parts)


def _pod(pod: PodView) -> str:
    state = "Terminating" if pod.terminating else "crashed" if pod.failed else pod.phase
    ready = "" if pod.terminating or pod.failed else ", ready" if pod.ready else ", not ready"
    ports = " ".join(f"{port.number}/{port.protocol.lower()}" for port in pod.ports)
    network = "  host network" if pod.host_network else ""
    return f"{pod.key}  {' '.join(pod.addresses) or '-'}  {ports}  {state}{ready}{network}"


def _table(cluster: ClusterView) -> Iterator[str]:
    rows = [("SERVICE", "TYPE", "ADDRESSES", "PORT", "POLICY", "ENDPOINTS")]
    for service in cluster.services:
        addresses = [*service.cluster_ips, *service.external_ips, *service.load_balancer_ips]
        for number, port in enumerate(service.ports):
            head = (service.key, service.type, " ".join(addresses) or "None") if not number else ("", "", "")
            node_port = f":{port.node_port}" if port.node_port else ""
            named = f"{port.port}{node_port}/{port.protocol.lower()}"
            rows.append((*head, named, _policy(service) if not number else "", _endpoints(port)))
    yield from table_lines(rows, width=terminal_width())


def _policy(service: ServiceView) -> str:
    parts = [f"in {service.internal_policy}"]
    if service.is_external:
        parts.append(f"ext {service.external_policy}")
    if service.affinity != "None":
        parts.append(f"affinity {service.affinity}")
    return ", ".join(parts)


def _endpoints(port: ServicePortView) -> str:
    if not port.endpoints:
        return "none"
    shown = [_endpoint(item) for item in port.endpoints[:6]]
    rest = len(port.endpoints) - len(shown)
    return " ".join(shown) + (f" and {rest} more" if rest else "")


def _endpoint(item: EndpointView) -> str:
    address = f"[{item.address}]" if ":" in item.address else item.address
    state = "" if item.ready else "(draining)" if item.serving and item.terminating else "(not ready)"
    return f"{address}:{item.port}{state}"
