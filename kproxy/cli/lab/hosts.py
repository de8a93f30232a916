"""`kproxy lab exec` and `kproxy lab capture`: inside of hosts."""

from __future__ import annotations

import contextlib
import os
import queue
import signal
import sys
from collections.abc import Sequence

import click

from kproxy.cli.interrupts import SIGNALS
from kproxy.cli.lab.common import host_of, name_option, open_model
from kproxy.cli.options import SecondsRange
from kproxy.cli.output import write_bytes
from kproxy.cluster.journey.network import POD
from kproxy.lab.errors import LabError
from kproxy.lab.kubelet.resolver import PODS_DIRECTORY, files_of
from kproxy.lab.lifecycle import processes
from kproxy.lab.spec import CLIENT, FABRIC
from kproxy.lab.state import LabDirectory
from kproxy.linux.isolation import isolate
from kproxy.linux.namespace import Namespace


@click.command("exec", context_settings={"ignore_unknown_options": True})
@name_option
@click.argument("host", metavar="POD|NODE|client|fabric")
@click.argument("arguments", metavar="[--] CMD...", nargs=-1, required=True, type=click.UNPROCESSED)
def execute(name: str, host: str, arguments: Sequence[str]) -> None:
    """Run a command inside the network of a pod, a node, the client outside, or the fabric.

    Only the network is the host's; files and processes are this machine's, save that a pod has its own hostname and,
    with cluster DNS, its own resolv.conf. The exit code is the command's.

    \b
    Examples:
      kproxy lab exec client -- curl -s 172.30.0.11:30080
      kproxy lab exec node-1 -- iptables-save -t nat
      kproxy lab exec web-6d4cf -- ip route
    """
    model = open_model(name)
    lab, cluster = LabDirectory(name), model.cluster
    wanted = host_of(cluster, host)
    netns = model.netns(wanted)
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


@click.command("capture")
@name_option
@click.option("-w", "--write", "path", metavar="FILE", required=True, help="Where to; the format is pcapng.")
@click.option("--host", "hosts", metavar="HOST", multiple=True, help="Only there: client, fabric, a node, a pod.")
@click.option("--for", "seconds", type=SecondsRange(0.01), metavar="SECONDS", help="Stop after so long.")
def capture(name: str, path: str, hosts: Sequence[str], seconds: float | None) -> None:
    """Capture what passes on every interface of every host, until Ctrl-C, and write it into one file.

    Each interface of each host is an interface of the file, named HOST:DEVICE, so that Wireshark shows the hops of a
    packet below each other.

    \b
    Examples:
      kproxy lab capture -w all.pcap --for 5
      kproxy lab capture -w node.pcap --host node-1
    """
    from kproxy.lab.capture.frames import Capture, pcapng

    model = open_model(name)
    cluster = model.cluster
    if hosts:
        chosen = [host_of(cluster, host) for host in hosts]
    else:
        pods = [f"{POD}{pod.key}" for pod in cluster.pods if pod.netns and not pod.host_network]
        chosen = [CLIENT, FABRIC, *(node.name for node in cluster.nodes), *pods]
    write_bytes(path, b"")  # an unusable file is an error before anything is waited for
    # A handler may not set a threading.Event that is waited for (kproxy.agent.run.StopEvent).
    stopped: queue.SimpleQueue[None] = queue.SimpleQueue()
    for number in SIGNALS:
        signal.signal(number, lambda _number, _frame: stopped.put(None))
    with Capture({host: model.netns(host) for host in chosen}) as capturing:
        click.echo(f"capturing on {len(chosen)} hosts", err=True)
        with contextlib.suppress(queue.Empty):
            stopped.get(timeout=seconds)
        capturing.stop()
    frames = capturing.frames
    write_bytes(path, pcapng(frames))
    click.echo(f"{len(frames)} frames written to {path}", err=True)
