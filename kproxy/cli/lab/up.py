"""`kproxy lab up`."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Sequence
from typing import get_args

import click

from kproxy.cli import interrupts
from kproxy.cli.lab.common import VARIABLE
from kproxy.cli.options import SecondsRange, mode_option
from kproxy.cli.output import ProgressLine, report_note, write_output
from kproxy.lab.config.decode import DEFAULT_TIMEOUT, PRESETS, about_preset, lab_of_options, load_lab_config
from kproxy.lab.errors import LabError
from kproxy.lab.lifecycle.manifests import ManifestReader, asks_for_names, read_manifests
from kproxy.lab.lifecycle.objects import Progress
from kproxy.lab.lifecycle.up import Waiting, bring_up
from kproxy.lab.spec import DEFAULT_NODES, MAX_NODES, BackendName, IpFamily, Mode, Variant, check_name
from kproxy.lab.state import LabDirectory

_PRESETS = "\n".join(("\b", "Presets:", *(f"  {name:<10}  {about_preset(name)}" for name in PRESETS)))


@click.command("up", epilog=_PRESETS)
@click.option(
    "--name", metavar="NAME", envvar=VARIABLE,
    help="What to call it; several may be up. Default: $KPROXY_LAB, else what its file says, else lab.",
)  # fmt: skip
@click.option(
    "--config", "config_path", metavar="FILE",
    help="The lab as a file (kind: Lab; documentation: lab); - for stdin. What other options say goes before it.",
)  # fmt: skip
@click.option("--preset", type=click.Choice(list(PRESETS)), help="A lab's file that comes with kproxy; see below.")
@click.option(
    "-f", "--filename", "filenames", metavar="PATH", multiple=True,
    help="Manifests to apply, beside those of the lab's file: files, directories, or - for stdin.",
)  # fmt: skip
@click.option(
    "--nodes", type=click.IntRange(1, MAX_NODES), metavar="N", help=f"How many nodes. Default: {DEFAULT_NODES}."
)
@click.option("--ip-family", type=click.Choice(get_args(IpFamily)), help="Of nodes, pods and Services. Default: ipv4.")
@click.option(
    "--variant", type=click.Choice(get_args(Variant)),
    help="Which iptables programs the rules; in nftables mode, those of the overlay. Default: nft.",
)  # fmt: skip
@mode_option()
@click.option(
    "--backend", type=click.Choice(get_args(BackendName)), help="How pods of different nodes meet. Default: vxlan."
)
@click.option(
    "--dns/--no-dns", default=None,
    help="Whether names of Services and pods are answered: a server as CoreDNS is. Default: if manifests have Services "
    "and something that runs commands, as Jobs do.",
)  # fmt: skip
@click.option(
    "--timeout", type=SecondsRange(min=1), metavar="SECONDS",
    help=f"How long to wait until everything is ready. Default: {DEFAULT_TIMEOUT:g}.",
)  # fmt: skip
@click.option(
    "--dry-run", is_flag=True, help="Check everything, print the lab's file with what options say, make nothing."
)
def command(
    name: str | None,
    config_path: str | None,
    preset: str | None,
    filenames: Sequence[str],
    nodes: int | None,
    ip_family: IpFamily | None,
    variant: Variant | None,
    mode: Mode | None,
    backend: BackendName | None,
    dns: bool | None,
    timeout: float | None,
    dry_run: bool,
) -> None:
    """Build a lab and wait until its nodes and workloads are ready.

    It stays until `kproxy lab down`. If it does not come up, what was made is removed again; if only its workloads are
    not ready in time, it stays, and the exit code is 1.

    \b
    Examples:
      kproxy lab up
      kproxy lab up --preset zones
      kproxy lab up --config lab.yaml --name second
      kproxy lab up -f manifests/ --nodes 5 --ip-family dual --dns
      kproxy lab up --preset damaged --dry-run > lab.yaml
    """
    if preset is not None and config_path is not None:
        raise click.UsageError("--preset and --config exclude one another: a preset is such a file")
    if [config_path, *filenames].count("-") > 1:
        raise click.UsageError("only one file can be -: there is one standard input")
    if name is not None:
        check_name(name)
    fields = {
        "name": name, "nodes": nodes, "networking.ipFamily": ip_family, "networking.backend": backend,
        "networking.dns": dns, "proxy.mode": mode, "proxy.variant": variant, "timeout": timeout,
    }  # fmt: skip
    options = {path: value for path, value in fields.items() if value is not None}
    path = PRESETS[preset] if preset is not None else config_path
    config = lab_of_options(options) if path is None else load_lab_config(path, options)
    for warning in config.warnings:
        report_note(warning)

    def add_objects(reader: ManifestReader) -> None:
        for number, document in config.objects:
            reader.add(config.file, number, document)

    manifests = read_manifests([*config.manifests, *filenames], add_objects)
    if config.fields.networking.dns is None and (asker := asks_for_names(manifests)) is not None:
        config = config.with_dns()
        report_note(f"{asker.where}: {asker.kind} runs commands: cluster DNS is up for it; --no-dns leaves it out")
    if dry_run:
        write_output(config.text(tuple(each for each in filenames if each != "-")), None)
        return
    begun = time.monotonic()
    shown = _Shown()
    spec = config.spec
    with interrupts.held() as check:
        shown.check = check
        waiting = Waiting(config.fields.timeout, shown.say, shown.progress, shown.tell, check)
        lab = LabDirectory(spec.name)
        brought = bring_up(lab, spec, manifests, waiting, invoking_user(), config.fields.commands)
    last = shown.last
    pods = f", {last.pods} pods" if last is not None and last.wanted_pods else ""
    shown.clear()
    count = len(brought.record.nodes)
    click.echo(f"lab {spec.name}: {count} nodes{pods} after {time.monotonic() - begun:.1f} s", err=True)
    option = "" if spec.name == "lab" else f" --name {spec.name}"
    click.echo(f'for kubectl: eval "$(kproxy lab env{option})"; to look: kproxy lab status{option}', err=True)
    if brought.late:
        raise LabError(f"{brought.late}\nthe lab stays, to be looked at")


def invoking_user() -> tuple[int, int] | None:
    """The user and group that called this by sudo; None without sudo (sudo(8): SUDO_UID, SUDO_GID)."""
    user, group = os.environ.get("SUDO_UID", ""), os.environ.get("SUDO_GID", "")
    return (int(user), int(group)) if os.geteuid() == 0 and user.isdecimal() and group.isdecimal() else None


class _Shown:
    """Progress: one changing line on a terminal, nothing otherwise. Whenever something is shown, `check` may raise."""

    def __init__(self) -> None:
        self.check: Callable[[], None] = lambda: None
        self.last: Progress | None = None
        self._line = ProgressLine()

    def say(self, text: str) -> None:
        self.check()
        if self._line.is_shown:
            self._line.show(f"{text}...")
        elif " " in text and "earlier" in text:
            click.echo(f"note: {text}", err=True)

    def tell(self, text: str) -> None:
        """A remark, on a line of its own."""
        self.clear()
        report_note(text)

    def progress(self, found: Progress) -> None:
        self.check()
        self.last = found
        self._line.show(f"nodes {found.nodes}/{found.wanted_nodes}, pods {found.pods}/{found.wanted_pods}")

    def clear(self) -> None:
        self._line.clear()
