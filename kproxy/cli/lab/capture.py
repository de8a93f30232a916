"""`kproxy lab capture`."""

from __future__ import annotations

import contextlib
import queue
import signal
from collections.abc import Sequence

import click

from kproxy.cli.interrupts import SIGNALS
from kproxy.cli.lab.common import name_option, open_lab
from kproxy.cli.lab.trace import write_bytes
from kproxy.cli.options import SecondsRange
from kproxy.cluster.journey.network import POD
from kproxy.lab.cluster import read_cluster
from kproxy.lab.inspect.targets import client_host
from kproxy.lab.model.hosts import LabModel
from kproxy.lab.spec import CLIENT, FABRIC


@click.command("capture")
@name_option
@click.option("-w", "--write", "path", metavar="FILE", required=True, help="Where to; the format is pcapng.")
@click.option("--host", "hosts", metavar="HOST", multiple=True, help="Only there: client, fabric, a node, a pod.")
@click.option("--for", "seconds", type=SecondsRange(0.01), metavar="SECONDS", help="Stop after so long.")
def command(name: str, path: str, hosts: Sequence[str], seconds: float | None) -> None:
    """Capture what passes on every interface of every host, until Ctrl-C, and write it into one file.

    Each interface of each host is an interface of the file, named HOST:DEVICE, so that Wireshark shows the hops of a
    packet below each other.

    \b
    Examples:
      kproxy lab capture -w all.pcap --for 5
      kproxy lab capture -w node.pcap --host node-1
    """
    from kproxy.lab.capture.frames import Capture, pcapng

    lab, record = open_lab(name)
    cluster = read_cluster(lab, record)
    model = LabModel(record.spec, cluster)
    if hosts:
        chosen = [FABRIC if host == FABRIC else client_host(cluster, host) for host in hosts]
    else:
        pods = [f"{POD}{pod.key}" for pod in cluster.pods if pod.netns and not pod.host_network]
        chosen = [CLIENT, FABRIC, *(node.name for node in cluster.nodes), *pods]
    write_bytes(path, b"")  # an unusable file is an error before anything is waited for
    # A handler may not set a threading.Event that is waited for (kproxy.agent.run.StopEvent).
    stopped: queue.SimpleQueue[None] = queue.SimpleQueue()
    for number in SIGNALS:
        signal.signal(number, lambda _number, _frame: stopped.put(None))
    with Capture({host: model.netns(host) for host in chosen}) as capture:
        click.echo(f"capturing on {len(chosen)} hosts", err=True)
        with contextlib.suppress(queue.Empty):
            stopped.get(timeout=seconds)
        capture.stop()
    frames = capture.frames
    write_bytes(path, pcapng(frames))
    click.echo(f"{len(frames)} frames written to {path}", err=True)
