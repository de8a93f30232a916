"""`kproxy overlay`: a node's part of the pod network between nodes."""

from __future__ import annotations

import contextlib
import ipaddress
import os
import signal
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final, TypeVar

import click
import msgspec

from kproxy.agent.overlay import OverlayAgent, OverlaySettings, Round, remove
from kproxy.api.addresses import canonical_cidr
from kproxy.cli.loading import SuggestingGroup, gives
from kproxy.cli.options import SecondsRange
from kproxy.cli.output import output_option, report_note, write_output, write_result
from kproxy.client import RestClient, load_client_config
from kproxy.cni.install import NODE_SOCKET, install_node_launcher, write_conflist
from kproxy.errors import InputError
from kproxy.linux.errors import PrivilegeError
from kproxy.linux.namespace import Namespace
from kproxy.netfilter.hooks import Variant
from kproxy.overlay.conflist import network_list
from kproxy.overlay.ipam import Network
from kproxy.overlay.plan import Backend
from kproxy.overlay.rules import RuleSettings

Function = TypeVar("Function", bound=Callable[..., object])


_netns_option = click.option(
    "--netns", metavar="NAME", help="Act in this network namespace. Default: the one it is in."
)


class CidrList(click.ParamType[tuple[Network, ...]]):
    """CIDRs with commas between them, as kube-proxy's --cluster-cidr."""

    name = "cidrs"

    def convert(self, value: object, param: click.Parameter | None, ctx: click.Context | None) -> tuple[Network, ...]:
        found = []
        for text in str(value).split(","):
            canonical = canonical_cidr(text.strip())
            if canonical is None:
                self.fail(f"{text!r} is not a CIDR such as 10.244.0.0/16", param, ctx)
            found.append(ipaddress.ip_network(canonical, strict=False))
        return tuple(found)


@dataclass(frozen=True)
class _Node:
    """What the command line says of this node, and of the API server that has its object."""

    netns: str | None
    kubeconfig: str | None
    context: str | None
    settings: OverlaySettings

    @contextlib.contextmanager
    def agent(self, namespace: Namespace) -> Iterator[OverlayAgent]:
        """An agent that has not started. Raises ConfigError."""
        client = RestClient(load_client_config(self.kubeconfig, self.context))
        agent = OverlayAgent(client, namespace, self.settings, _tell)
        try:
            yield agent
        finally:
            agent.stop()


_LINKS: Final = (
    click.option("--node", metavar="NAME", required=True, help="This node's name."),
    _netns_option,
    click.option("--kubeconfig", metavar="FILE", help="As kubectl's. Default: $KUBECONFIG, ~/.kube/config."),
    click.option("--context", metavar="NAME", help="The kubeconfig's context."),
    click.option(
        "--backend", type=click.Choice([item.value for item in Backend]), default="vxlan", show_default=True,
        help="vxlan: tunnels; host-gw: routes by the nodes' addresses, which must share a link.",
    ),
    click.option(
        "--mtu", metavar="BYTES", type=click.IntRange(1280, 65535),
        help="MTU of the overlay itself. Default: what the network between the nodes leaves.",
    ),
    click.option(
        "--underlay-mtu", metavar="BYTES", type=click.IntRange(1350, 65535),
        help="MTU of the network between the nodes; VXLAN takes 50 bytes of it with IPv4, 70 with IPv6. "
        "Default: that of the interface with the node's address.",
    ),
)  # fmt: skip
"""The options of what concerns links, addresses and routes."""
_RULES: Final = (
    click.option(
        "--ip-masq/--no-ip-masq", default=False, show_default=True,
        help="Masquerade what pods send to addresses outside of the pod network.",
    ),
    click.option(
        "--iptables-forward-rules/--no-iptables-forward-rules", default=True, show_default=True,
        help="Accept what pods send and get in iptables' FORWARD chain, whatever its policy is.",
    ),
    click.option(
        "--cluster-cidr", metavar="CIDR[,CIDR]", type=CidrList(),
        help="The ranges of all pods. Default: the Nodes' podCIDRs, so that each new Node changes the rules.",
    ),
    click.option(
        "--variant", type=click.Choice(["auto", "nft", "legacy"]), default="auto", show_default=True,
        help="Which iptables to write with; auto: the one with the overlay's rules, else kube-proxy's, else nft.",
    ),
)  # fmt: skip
"""The options of what concerns rules."""


def _take_node(values: dict[str, Any]) -> _Node:
    """What these options say."""
    rules = RuleSettings(
        values.pop("ip_masq", False), values.pop("iptables_forward_rules", True), values.pop("cluster_cidr", None) or ()
    )
    variant = values.pop("variant", "auto")
    settings = OverlaySettings(
        values.pop("node"), Backend(values.pop("backend")), values.pop("underlay_mtu"), values.pop("mtu"),
        rules=rules, variant=None if variant == "auto" else Variant(variant),
    )  # fmt: skip
    return _Node(values.pop("netns"), values.pop("kubeconfig"), values.pop("context"), settings)


@click.group("overlay", cls=SuggestingGroup)
def command() -> None:
    """Join the pod networks of the nodes, by VXLAN or by routes.

    It reads the Node objects (podCIDRs and addresses), and writes nothing to the API server.

    \b
    Examples:
      kproxy overlay run --node node-1 --kubeconfig kubeconfig --ip-masq
      kproxy overlay run --node node-1 --netns node-1 --backend host-gw --once
      kproxy overlay check --node node-1 --netns node-1 -o json
      kproxy overlay cleanup --netns node-1
      kproxy overlay install-cni --node node-1
    """


@command.command("run")
@gives("node", _take_node, *_LINKS, *_RULES)
@click.option("--once", is_flag=True, help="Bring the node to the plan and end.")
@click.option(
    "--resync", metavar="SECONDS", type=SecondsRange(min=0.1), default=30.0, show_default=True,
    help="How often to compare the kernel with the plan when nothing changes.",
)  # fmt: skip
@click.option("--cni-socket", metavar="PATH", help="Also serve the CNI plugin on this socket, which makes ADD quicker.")
@click.option(
    "--ready-file", metavar="FILE", type=click.Path(path_type=Path),
    help="Create this file after the first round without a problem; it is removed at the start.",
)  # fmt: skip
def run(node: _Node, once: bool, resync: float, cni_socket: str | None, ready_file: Path | None) -> None:
    """Keep a node's overlay at what the Node objects say.

    It says `ready` on stderr after the first round without a problem, and ends with exit code 0 on SIGTERM or Ctrl-C.
    The overlay stays, so that pods go on until it is started again; `kproxy overlay cleanup` removes it.

    \b
    Examples:
      kproxy overlay run --node node-1 --kubeconfig kubeconfig
      kproxy overlay run --node node-1 --netns node-1 --once
    """

    def ready() -> None:
        if ready_file is not None:
            ready_file.touch()
        click.echo("ready", err=True)

    node = replace(node, settings=msgspec.structs.replace(node.settings, resync=resync))
    if ready_file is not None:
        try:
            ready_file.unlink(missing_ok=True)
            ready_file.parent.stat()
        except OSError as error:
            raise InputError(f"--ready-file {ready_file}: {error.strerror or error}") from error
    with _namespace(node.netns) as namespace, node.agent(namespace) as agent:
        if once:
            agent.start()
            if agent.once().problems:
                raise click.exceptions.Exit(1)
            return
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, lambda _number, _frame: threading.Thread(target=agent.stop, daemon=True).start())
        if cni_socket is None:
            agent.start()
            agent.run(ready)
        else:
            from kproxy.cni.server import CniServer

            with CniServer(cni_socket, namespace):
                agent.start()
                agent.run(ready)


@command.command("install-cni", short_help="Install the CNI plugin and its configuration.")
@gives("node", _take_node, *_LINKS)
@click.option(
    "--bin-dir", metavar="DIR", type=click.Path(path_type=Path), default=Path("/opt/cni/bin"), show_default=True,
    help="Where the container runtime looks for CNI plugins.",
)  # fmt: skip
@click.option(
    "--conf-dir", metavar="DIR", type=click.Path(path_type=Path), default=Path("/etc/cni/net.d"), show_default=True,
    help="Where it looks for network configurations.",
)  # fmt: skip
@click.option(
    "--cni-socket", metavar="PATH", default=NODE_SOCKET, show_default=True,
    help="The socket of the node's `kproxy overlay run`. For another than the default, the launcher is compiled here.",
)  # fmt: skip
@click.option(
    "--timeout", metavar="SECONDS", type=SecondsRange(min=0),
    help="How long to wait for the Node's podCIDRs. Default: for ever.",
)  # fmt: skip
def install_cni(node: _Node, bin_dir: Path, conf_dir: Path, cni_socket: str, timeout: float | None) -> None:
    """Install the CNI plugin on this node: the launcher, and then 10-kproxy.conflist.

    The launcher takes requests to `kproxy overlay run --cni-socket`; the node needs neither Python nor a compiler. The
    list of network configurations has the podCIDRs of the Node, which are waited for, and the overlay's MTU. It is
    written last, since with it the container runtime takes the node's network for ready.

    \b
    Examples:
      kproxy overlay install-cni --node node-1
      kproxy overlay install-cni --node node-1 --bin-dir /host/opt/cni/bin \\
        --conf-dir /host/etc/cni/net.d
    """
    with _namespace(node.netns) as namespace:
        launcher = install_node_launcher(bin_dir, cni_socket)
        report_note(f"wrote {launcher}")
        with node.agent(namespace) as agent:
            agent.start()
            own, size = agent.wait_for_own(timeout)
    report_note(f"wrote {write_conflist(conf_dir, network_list(own.pod_cidrs.values(), size))}")


@command.command("check", short_help="Compare the kernel with the Node objects.")
@gives("node", _take_node, *_LINKS, *_RULES)
@output_option
def check(node: _Node, output_format: str) -> None:
    """Tell how the kernel differs from what the Node objects say; changes nothing.

    Exit code: 0 no drift; 1 drift, or a node that cannot be reached; 2 bad input.

    \b
    Examples:
      kproxy overlay check --node node-1 --netns node-1
      kproxy overlay check --node node-1 --kubeconfig kubeconfig -o json
    """
    name = node.settings.node
    with _namespace(node.netns) as namespace, node.agent(namespace) as agent:
        agent.start()
        found = agent.check()
    drift = [
        {"kind": each.kind, "wanted": each.desired and str(each.desired), "found": each.found and str(each.found)}
        for each in found.changes
    ]
    document = {"node": name, "mtu": found.mtu, "drift": drift, "problems": found.problems, "notes": found.notes}
    lines = [*map(str, found.changes), *(f"problem: {text}" for text in found.problems)]
    write_result("OverlayCheck", document, output_format, lines or [f"node {name}: no drift"])
    if found.changes or found.problems:
        raise click.exceptions.Exit(1)


@command.command("cleanup", short_help="Remove a node's overlay, and nothing else.")
@_netns_option
def cleanup(netns: str | None) -> None:
    """Remove a node's overlay: its devices, routes and rules, and nothing else.

    It needs neither the API server nor the node's name. Do it after `kproxy overlay run` has ended.

    \b
    Examples:
      kproxy overlay cleanup
      kproxy overlay cleanup --netns node-1
    """
    with _namespace(netns) as namespace:
        done = remove(namespace)
    write_output("".join(f"removed {change.found}\n" for change in done.changes) or "there is no overlay\n", None)
    for problem in done.problems:
        report_note(problem)
    if done.problems:
        raise click.exceptions.Exit(1)


def _namespace(netns: str | None) -> Namespace:
    if os.geteuid() != 0:
        raise PrivilegeError("this needs root: links and routes are to be read and changed")
    return Namespace.current() if netns is None else Namespace.named(netns)


def _tell(done: Round) -> None:
    for change in done.changes:
        report_note(f"mended {change}")
    for text in (*done.problems, *done.notes):
        report_note(text)
