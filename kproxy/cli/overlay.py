"""`kproxy overlay`: a node's part of the pod network between nodes."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable
from typing import TypeVar

import click
import msgspec

from kproxy.agent.overlaynode import OverlayAgent, OverlaySettings, Round
from kproxy.cli.output import report_note, write_output
from kproxy.client import RestClient, load_client_config
from kproxy.linux.errors import PrivilegeError
from kproxy.linux.namespace import Namespace
from kproxy.overlay.plan import Backend

Function = TypeVar("Function", bound=Callable[..., object])


def _common(function: Function) -> Function:
    for option in (
        click.option(
            "--underlay-mtu", metavar="BYTES", type=click.IntRange(1350, 65535),
            help="MTU of the network between the nodes; VXLAN takes 50 bytes of it with IPv4, 70 with IPv6. "
            "Default: that of the interface with the node's address.",
        ),
        click.option(
            "--mtu", metavar="BYTES", type=click.IntRange(1280, 65535),
            help="MTU of the overlay itself. Default: what the network between the nodes leaves.",
        ),
        click.option(
            "--backend", type=click.Choice([item.value for item in Backend]), default="vxlan", show_default=True,
            help="vxlan: tunnels; host-gw: routes by the nodes' addresses, which must share a link.",
        ),
        click.option("--context", metavar="NAME", help="The kubeconfig's context."),
        click.option("--kubeconfig", metavar="FILE", help="As kubectl's. Default: $KUBECONFIG, ~/.kube/config."),
        click.option("--netns", metavar="NAME", help="Act in this network namespace. Default: the one it is in."),
        click.option("--node", metavar="NAME", required=True, help="This node's name."),
    ):  # fmt: skip
        function = option(function)
    return function


@click.group("overlay")
def command() -> None:
    """Join the pod networks of the nodes, by VXLAN or by routes.

    It reads the Node objects (podCIDRs and addresses), and writes nothing to the API server.

    \b
    Examples:
      kproxy overlay run --node node-1 --kubeconfig kubeconfig
      kproxy overlay run --node node-1 --netns node-1 --backend host-gw --once
      kproxy overlay check --node node-1 --netns node-1 -o json
    """


@command.command("run")
@_common
@click.option("--once", is_flag=True, help="Bring the node to the plan and end.")
@click.option(
    "--resync", metavar="SECONDS", type=click.FloatRange(min=0.1), default=30.0, show_default=True,
    help="How often to compare the kernel with the plan when nothing changes.",
)  # fmt: skip
@click.option("--cni-socket", metavar="PATH", help="Also serve the CNI plugin on this socket, which makes ADD quicker.")
def run(
    node: str, netns: str | None, kubeconfig: str | None, context: str | None, backend: str, mtu: int | None,
    underlay_mtu: int | None, once: bool, resync: float, cni_socket: str | None,
) -> None:  # fmt: skip
    """Keep a node's overlay at what the Node objects say.

    It says `ready` on stderr after the first round without a problem, and ends with exit code 0 on SIGTERM or Ctrl-C.

    \b
    Examples:
      kproxy overlay run --node node-1 --kubeconfig kubeconfig
      kproxy overlay run --node node-1 --netns node-1 --once
    """
    settings = OverlaySettings(node, Backend(backend), underlay_mtu, mtu, resync)
    with _namespace(netns) as namespace:
        agent = _agent(namespace, settings, kubeconfig, context)
        try:
            if once:
                agent.start()
                if agent.once().problems:
                    raise click.exceptions.Exit(1)
                return
            for number in (signal.SIGTERM, signal.SIGINT):
                signal.signal(number, lambda _number, _frame: threading.Thread(target=agent.stop, daemon=True).start())
            if cni_socket is None:
                agent.start()
                agent.run(lambda: click.echo("ready", err=True))
            else:
                from kproxy.cni.server import CniServer

                with CniServer(cni_socket, namespace):
                    agent.start()
                    agent.run(lambda: click.echo("ready", err=True))
        finally:
            agent.stop()


@command.command("check")
@_common
@click.option("-o", "--output", "output_format", type=click.Choice(["text", "json"]), default="text")
def check(
    node: str, netns: str | None, kubeconfig: str | None, context: str | None, backend: str, mtu: int | None,
    underlay_mtu: int | None, output_format: str,
) -> None:  # fmt: skip
    """Tell how the kernel differs from what the Node objects say; changes nothing.

    Exit code: 0 no drift; 1 drift, or a node that cannot be reached; 2 bad input.

    \b
    Examples:
      kproxy overlay check --node node-1 --netns node-1
      kproxy overlay check --node node-1 --kubeconfig kubeconfig -o json
    """
    with _namespace(netns) as namespace:
        agent = _agent(namespace, OverlaySettings(node, Backend(backend), underlay_mtu, mtu), kubeconfig, context)
        try:
            agent.start()
            found = agent.check()
        finally:
            agent.stop()
    if output_format == "json":
        document = {
            "node": node,
            "mtu": found.mtu,
            "drift": [
                {"kind": change.kind, "wanted": _text(change.wanted), "found": _text(change.found)}
                for change in found.changes
            ],
            "problems": found.problems,
        }
        write_output(msgspec.json.format(msgspec.json.encode(document)).decode() + "\n", None)
    else:
        lines = [*map(str, found.changes), *(f"problem: {text}" for text in found.problems)]
        write_output("".join(f"{line}\n" for line in lines or [f"node {node}: no drift"]), None)
    if found.changes or found.problems:
        raise click.exceptions.Exit(1)


def _text(item: object) -> str | None:
    return None if item is None else str(item)


def _namespace(netns: str | None) -> Namespace:
    if os.geteuid() != 0:
        raise PrivilegeError("this needs root: links and routes are to be read and changed")
    return Namespace.current() if netns is None else Namespace.named(netns)


def _agent(
    namespace: Namespace, settings: OverlaySettings, kubeconfig: str | None, context: str | None
) -> OverlayAgent:
    client = RestClient(load_client_config(kubeconfig, context))
    return OverlayAgent(client, namespace, settings, _tell)


def _tell(done: Round) -> None:
    for change in done.changes:
        report_note(f"mended {change}")
    for problem in done.problems:
        report_note(problem)
