"""`kproxy lab up`."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Sequence

import click

from kproxy.cli import interrupts
from kproxy.cli.lab.common import invoking_user, new_name_option
from kproxy.cli.options import mode_option
from kproxy.cli.output import report_note
from kproxy.lab.lifecycle.node_processes import read_proxy
from kproxy.lab.lifecycle.objects import Progress, read_manifests
from kproxy.lab.lifecycle.up import bring_up
from kproxy.lab.spec import MAX_NODES, LabSpec, check_name
from kproxy.lab.state import LabDirectory


@click.command("up")
@new_name_option
@click.option(
    "-f", "--filename", "filenames", metavar="PATH", multiple=True, help="Manifests to apply: files or directories."
)
@click.option(
    "--nodes", type=click.IntRange(1, MAX_NODES), default=3, show_default=True, metavar="N", help="How many nodes."
)
@click.option(
    "--ip-family", type=click.Choice(["ipv4", "ipv6", "dual"]), default="ipv4", show_default=True,
    help="Of nodes, pods and Services.",
)  # fmt: skip
@click.option(
    "--variant", type=click.Choice(["nft", "legacy"]), default="nft", show_default=True,
    help="Which iptables programs the rules; in nftables mode, those of the overlay.",
)  # fmt: skip
@mode_option
@click.option(
    "--config", "config_path", metavar="FILE",
    help="KubeProxyConfiguration of the nodes' proxies; a lab sets the kubeconfig, the pods' ranges and the health "
    "port itself.",
)  # fmt: skip
@click.option(
    "--backend", type=click.Choice(["vxlan", "host-gw"]), default="vxlan", show_default=True,
    help="How pods of different nodes meet.",
)  # fmt: skip
@click.option(
    "--timeout", type=click.FloatRange(min=1), default=120.0, show_default=True, metavar="SECONDS",
    help="How long to wait until everything is ready.",
)  # fmt: skip
def command(
    name: str,
    filenames: Sequence[str],
    nodes: int,
    ip_family: str,
    variant: str,
    mode: str | None,
    config_path: str | None,
    backend: str,
    timeout: float,
) -> None:
    """Build a lab and wait until its nodes and workloads are ready.

    It stays until `kproxy lab down`. If it does not come up, what was made is removed again.

    \b
    Examples:
      kproxy lab up
      kproxy lab up -f manifests/ --nodes 5 --ip-family dual
      kproxy lab up --name old --variant legacy
      kproxy lab up --name new --mode nftables
    """
    mode, proxy = read_proxy(config_path, mode, report_note)
    spec = LabSpec(check_name(name), nodes, ip_family, variant, backend, mode, proxy)  # type: ignore[arg-type]
    manifests = read_manifests(filenames)
    begun = time.monotonic()
    shown = _Shown()
    owner = invoking_user()
    with interrupts.held() as check:
        shown.check = check
        record = bring_up(
            LabDirectory(name), spec, manifests, timeout=timeout, say=shown.say, show=shown.progress, check=check,
            owner=owner,
        )  # fmt: skip
    last = shown.last
    pods = f", {last.pods} pods" if last is not None and last.wanted_pods else ""
    shown.clear()
    click.echo(f"lab {name}: {len(record.nodes)} nodes{pods} after {time.monotonic() - begun:.1f} s", err=True)
    option = "" if name == "lab" else f" --name {name}"
    click.echo(f'for kubectl: eval "$(kproxy lab env{option})"; to look: kproxy lab status{option}', err=True)


class _Shown:
    """Progress: one changing line on a terminal, nothing otherwise. Whenever something is shown, `check` may raise."""

    def __init__(self) -> None:
        self.check: Callable[[], None] = lambda: None
        self.last: Progress | None = None
        self._terminal = sys.stderr.isatty()

    def say(self, text: str) -> None:
        self.check()
        if self._terminal:
            click.echo(f"\r\x1b[K{text}...", err=True, nl=False)
        elif " " in text and "earlier" in text:
            click.echo(f"note: {text}", err=True)

    def progress(self, found: Progress) -> None:
        self.check()
        self.last = found
        if self._terminal:
            text = f"nodes {found.nodes}/{found.wanted_nodes}, pods {found.pods}/{found.wanted_pods}"
            click.echo(f"\r\x1b[K{text}", err=True, nl=False)

    def clear(self) -> None:
        if self._terminal:
            click.echo("\r\x1b[K", err=True, nl=False)
