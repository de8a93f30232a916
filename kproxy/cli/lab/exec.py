"""`kproxy lab exec`."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence

import click

from kproxy.cli.lab.common import name_option, open_lab
from kproxy.cluster.journey.network import POD
from kproxy.lab.cluster import read_cluster
from kproxy.lab.errors import LabError
from kproxy.lab.inspect.targets import client_host
from kproxy.lab.kubelet.resolver import PODS_DIRECTORY, files_of
from kproxy.lab.lifecycle import processes
from kproxy.lab.model.hosts import LabModel
from kproxy.lab.spec import FABRIC
from kproxy.linux.isolation import isolate
from kproxy.linux.namespace import Namespace


@click.command("exec", context_settings={"ignore_unknown_options": True})
@name_option
@click.argument("host", metavar="POD|NODE|client|fabric")
@click.argument("arguments", metavar="[--] CMD...", nargs=-1, required=True, type=click.UNPROCESSED)
def command(name: str, host: str, arguments: Sequence[str]) -> None:
    """Run a command inside the network of a pod, a node, the client outside, or the fabric.

    Only the network is the host's; files and processes are this machine's, save that a pod has its own hostname and,
    with cluster DNS, its own resolv.conf. The exit code is the command's.

    \b
    Examples:
      kproxy lab exec client -- curl -s 172.30.0.11:30080
      kproxy lab exec node-1 -- iptables-save -t nat
      kproxy lab exec web-6d4cf -- ip route
    """
    lab, record = open_lab(name)
    cluster = read_cluster(lab, record)
    wanted = FABRIC if host == FABRIC else client_host(cluster, host)
    netns = LabModel(record.spec, cluster).netns(wanted)
    environment = processes.environment(lab, f"exec/{wanted}")
    sys.stdout.flush()
    try:
        with Namespace.named(netns) as inside:
            pod = next((item for item in cluster.pods if f"{POD}{item.key}" == wanted), None)
            if pod is not None:
                inside.call(
                    isolate,
                    pod.node if pod.host_network else pod.name,
                    files_of(lab.node(pod.node) / PODS_DIRECTORY, pod.uid),
                )
            # The thread that calls exec becomes the process, and it is the one that is inside.
            inside.call(os.execvpe, arguments[0], list(arguments), environment)
    except OSError as error:
        raise LabError(f"{arguments[0]}: {error.strerror}") from error
