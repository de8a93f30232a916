"""`kproxy explore`: a cluster as a page, served on this machine."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING

import click

from kproxy.api.octets import read_octets
from kproxy.cli import names
from kproxy.cli.cluster_source import ClusterSource, cluster_source
from kproxy.cli.options import feature_option, mode_option, parse_listen, snapshot_source
from kproxy.cli.output import report_note, working
from kproxy.extras import require
from kproxy.render import Features

if TYPE_CHECKING:
    from kproxy.explorer.sources.source import Source


@click.command("explore")
@snapshot_source("The same as SNAPSHOT.")
@cluster_source("The namespace that is shown first.", required=False)
@click.option("--config", "config_path", metavar="FILE", help="KubeProxyConfiguration. Default: the cluster's.")
@mode_option
@feature_option
@click.option("--rules", "rule_files", metavar="FILE", multiple=True, help="One host's rules, and ipsets; repeatable.")
@click.option(
    "--lab",
    metavar="NAME",
    help="A lab that is up: it can be broken and healed from the page.",
    shell_complete=names.labs,
)
@click.option(
    "--against",
    metavar="PATH",
    multiple=True,
    help="A second source: a snapshot, manifests or rules.",
)
@click.option("--listen", metavar="ADDRESS:PORT", default="127.0.0.1:0", show_default=True, help="A loopback address.")
@click.option("--open", "open_page", is_flag=True, help="Open the page in the browser.")
@click.option("--export", metavar="FILE.html", help="Write one file that needs no server, and end; - for stdout.")
def command(
    snapshot: str | None,
    source: ClusterSource,
    config_path: str | None,
    mode: str | None,
    features: Features,
    rule_files: Sequence[str],
    lab: str | None,
    against: Sequence[str],
    listen: str,
    open_page: bool,
    export: str | None,
) -> None:
    """Show a cluster as a page: walk through it, ask what becomes of packets, change a copy and see what that changes,
    compare it with another, and break a lab.

    The page is served on this machine only, under a URL with a token, until Ctrl-C. Nothing is written anywhere; a lab
    is changed where you say so on the page.

    \b
    Examples:
      kproxy explore cluster.tar.gz --open
      kproxy explore -f cluster.yaml --config kube-proxy.yaml
      kproxy explore --context prod -n shop
      kproxy explore --rules node.save --rules node.nft
      kproxy explore --lab lab
      kproxy explore before.tar.gz --against after.tar.gz
      kproxy explore -f cluster.yaml --against worker-1.save
      kproxy explore cluster.tar.gz --export cluster.html
    """
    host, port = parse_listen(listen)
    chosen, second = _sources(snapshot, source, config_path, mode, features, rule_files, lab, against)
    from kproxy.explorer.server.listener import serve
    from kproxy.explorer.state import Explorer

    with working("reading the cluster"):
        explorer = Explorer(chosen, source.namespace or "", second)
    for model in (explorer.model, explorer.second):
        for each in () if model is None else model.known.warnings:
            report_note(each)
    if export is not None:
        from kproxy.cli.output import write_output
        from kproxy.explorer.export.explore import export_page

        with working("asking for what the file will hold"):
            text = export_page(explorer)
        write_output(text, export)
        return

    def ready(url: str) -> None:
        click.echo(url)
        sys.stdout.flush()
        if open_page:
            click.launch(url)

    asyncio.run(serve(explorer, host, port, ready))


def _sources(
    snapshot: str | None,
    source: ClusterSource,
    config_path: str | None,
    mode: str | None,
    features: Features,
    rule_files: Sequence[str],
    lab: str | None,
    against: Sequence[str],
) -> tuple[Source, Source | None]:
    """What the options name: one source of all, and maybe a second one. Raises click.UsageError."""
    given = [bool(snapshot), bool(rule_files), lab is not None]
    live = source.is_live and not any(given)
    if sum((*given, bool(source.filenames or source.connection.given), live and not source.connection.given)) != 1:
        raise click.UsageError("one source expected: SNAPSHOT, -f, --rules, --lab, --kubeconfig or --context")
    from kproxy.cluster.sources import Kind, read_name
    from kproxy.explorer.sources.named import source_named
    from kproxy.explorer.sources.source import RulesSource, SnapshotSource

    rendered = bool(source.filenames) or live or any(read_name(name).kind is Kind.MANIFESTS for name in against)
    if not rendered and (config_path or mode or features != Features()):
        raise click.UsageError("--config, --mode and --feature go with -f, --kubeconfig or --context")
    if [*source.filenames, *rule_files, *against].count("-") > 1:
        raise click.UsageError("only one input can be standard input")
    stdin = read_octets("-") if "-" in (*source.filenames, *rule_files, *against) else b""
    second = None
    if against:
        second = source_named(against, config_path, mode, features, stdin, source.allocate, source.endpoints)
    if snapshot:
        return SnapshotSource(snapshot), second
    if rule_files:
        return RulesSource(rule_files, stdin), second
    if lab is not None:
        require("lab", "--lab")
        from kproxy.cli.lab.common import open_lab
        from kproxy.explorer.sources.live import LabSource

        return LabSource(*open_lab(lab)), second
    return source.explored(config_path, mode, features, stdin), second
