"""`kproxy explore`: a cluster as a page, served on this machine."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING

import click

from kproxy.api.octets import read_octets
from kproxy.cli.live_snapshot import named_lab
from kproxy.cli.objects import RenderChoices
from kproxy.cli.options import parse_listen, rendering_options
from kproxy.cli.output import report_note, working
from kproxy.cli.sources import EVERYTHING, Sources, sources
from kproxy.cluster.sources import Kind

if TYPE_CHECKING:
    from kproxy.explorer.sources.source import Source, SourceState


@click.command("explore")
@sources(EVERYTHING, "The namespace that is shown first.", needs=EVERYTHING)
@rendering_options()
@click.option("--against", metavar="PATH", multiple=True, help="A second source: a snapshot, manifests or rules.")
@click.option("--listen", metavar="ADDRESS:PORT", default="127.0.0.1:0", show_default=True, help="A loopback address.")
@click.option("--open", "open_page", is_flag=True, help="Open the page in the browser.")
@click.option("--export", metavar="FILE.html", help="Write one file that needs no server, and end; - for stdout.")
def command(
    sources: Sources, how: RenderChoices, against: Sequence[str], listen: str, open_page: bool, export: str | None
) -> None:
    """Show a cluster as a page: walk through it, ask what becomes of packets, change a copy and see what that changes,
    compare it with another, and break a lab.

    SOURCE is a snapshot, manifests, dumps of one host, lab:NAME, cluster:CONTEXT or netns:NAME; dumps and manifests
    together are one cluster. The page is served on this machine only, under a URL with a token, until Ctrl-C. Nothing
    is written anywhere; a lab is changed where you say so on the page.

    \b
    Examples:
      kproxy explore cluster.tar.gz --open
      kproxy explore cluster:prod -n shop
      kproxy explore node.save node.nft
      kproxy explore lab:lab
      kproxy explore before.tar.gz --against after.tar.gz
      kproxy explore cluster.tar.gz --export cluster.html
    """
    host, port = parse_listen(listen)
    chosen, second = _read(sources, how, against)
    from kproxy.explorer.server.listener import serve
    from kproxy.explorer.state import Explorer

    with working("reading the cluster"):
        explorer = Explorer(chosen, sources.namespace or "", second)
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


def _read(sources: Sources, how: RenderChoices, against: Sequence[str]) -> tuple[Source, Source | None]:
    """What is named: one source of all, and maybe a second one. Raises click.UsageError."""
    from kproxy.cluster.sources import read_name
    from kproxy.explorer.sources.rendering import ObjectChoices
    from kproxy.explorer.sources.source import StillSource, still_source

    kinds, others = sources.kinds, tuple(map(read_name, against))
    rendered = kinds <= {Kind.MANIFESTS, Kind.CLUSTER}
    if not rendered and all(each.kind is not Kind.MANIFESTS for each in others) and how != RenderChoices():
        raise click.UsageError("--config, --mode and --feature go with manifests or a cluster alone")
    names = (*(path for each in sources.names for path in each.names), *against)
    if names.count("-") > 1:
        raise click.UsageError("only one input can be standard input")
    stdin = read_octets("-") if "-" in names else b""
    given = ObjectChoices(how.mode, how.features, sources.allocate, sources.endpoints)
    second = still_source(others, how.config, given, stdin) if others else None
    if kinds == {Kind.LAB}:
        lab = named_lab(sources.names[0].names[0])
        from kproxy.explorer.sources.live import LabSource

        return LabSource(*lab), second
    if rendered:
        return sources.explored(how, stdin), second
    if len(kinds) == 1 and Kind.NETNS not in kinds:
        return still_source(sources.names, stdin=stdin), second
    return StillSource(Kind.SNAPSHOT, sources.label, partial(_together, sources)), second


def _together(sources: Sources) -> SourceState:
    """Dumps and objects that were named together, or a network namespace, as one cluster."""
    from kproxy.cluster.snapshot.cluster import Cluster
    from kproxy.explorer.sources.source import SourceState

    warnings: list[str] = []
    cluster = Cluster(sources.files, tell=warnings.append)
    return SourceState(sources.label, cluster, warnings=tuple(warnings))
