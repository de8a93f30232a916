"""`kproxy lab status`."""

from __future__ import annotations

from collections.abc import Iterator

import click

from kproxy.cli.lab.common import name_option, open_lab
from kproxy.cli.output import output_option, table_lines, terminal_width, write_result
from kproxy.lab.cluster import ClusterView, EndpointView, NodeView, PodView, ServicePortView, ServiceView, read_cluster


@click.command("status")
@name_option
@output_option
def command(name: str, output_format: str) -> None:
    """Show the nodes with their pods, and the Services with their endpoints.

    \b
    Examples:
      kproxy lab status
      kproxy lab status -o json | jq '.pods[].addresses'
    """
    lab, record = open_lab(name)
    cluster = read_cluster(lab, record)
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
            rows.append((*head, _port(port), _policy(service) if not number else "", _endpoints(port)))
    yield from table_lines(rows, width=terminal_width())


def _port(port: ServicePortView) -> str:
    node_port = f":{port.node_port}" if port.node_port else ""
    return f"{port.port}{node_port}/{port.protocol.lower()}"


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
