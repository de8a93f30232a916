"""`kproxy audit`: which Services are wrong on which nodes, and why."""

from __future__ import annotations

import time
from collections.abc import Collection
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Final

import click

from kproxy.cli.evidence import assume_option, exit_with
from kproxy.cli.live_snapshot import report_unread
from kproxy.cli.output import ProgressLine, report_note, write_answer, write_files, write_output, write_report
from kproxy.cli.sources import EVERYTHING, Sources, sources
from kproxy.cluster.evidence.unseen import Assumed
from kproxy.cluster.motion import AGAIN
from kproxy.cluster.sources import Kind

if TYPE_CHECKING:
    from kproxy.cluster.snapshot.cluster import Cluster

_TOGETHER: Final = "kproxy audit node.save cluster.yaml"


@click.command("audit")
@sources(EVERYTHING, needs=EVERYTHING, via=True)
@click.option("--config", "config_path", metavar="FILE", help="With dumps: their nodes' KubeProxyConfiguration.")
@assume_option
@click.option(
    "-o", "--output", "output_format", type=click.Choice(["text", "json", "yaml", "junit"]), default="text",
    help="Default: text.",
)  # fmt: skip
@click.option("--html", metavar="FILE", help="Write a page that shows the findings.")
def command(sources: Sources, config_path: str | None, assumed: Assumed, output_format: str, html: str | None) -> None:
    """Say which Services are wrong on which nodes of a cluster, and why.

    For each Service port and address, packets of four clients (a pod here, a pod
    elsewhere, the node itself, outside) are sent through all rules of each node,
    and through those that kube-proxy should have written there. Where the
    answers differ, a finding names Services, nodes, the rule to blame and a
    packet. Routes, sysctls, connections and kube-proxy's health are looked at,
    too, as far as they are known; what is missing is named at the end.

    SOURCE is a snapshot of kproxy collect, lab:NAME, cluster:CONTEXT, whose
    nodes are read as kproxy collect reads them (without --via, none is), or
    dumps of nodes and the manifests of their cluster together.
    The findings are listed in the documentation: audit.

    Exit 0 all well, 1 findings, or something of a live cluster could not be
    read, 2 bad input, or something to which the evidence points was not seen.

    \b
    Examples:
      kproxy audit prod.tar.gz
      kproxy audit snap/ -o junit > audit.xml
      kproxy audit node.save cluster.yaml
      kproxy audit n1.save@n1 n2.save@n2 cluster.yaml
      kproxy audit lab:lab --html lab.html
      kproxy audit cluster:prod --via exec
    """
    from kproxy.cli.audit.text import junit_text, report_lines
    from kproxy.cli.processes import in_processes
    from kproxy.cluster.audit.audit import audit

    live = len(sources.names) == 1 and not sources.kinds.isdisjoint((Kind.LAB, Kind.CLUSTER, Kind.NETNS))
    if sources.kinds <= {Kind.RULES, Kind.NETNS} and (not live or sources.netns):
        raise click.UsageError(f"{sources.label}: the objects of its cluster expected beside it, as in {_TOGETHER}")
    if config_path is not None and not sources.dumps:
        raise click.UsageError("--config goes with dumps: a snapshot and a cluster have their own")
    sources = replace(sources, config=config_path)
    if sources.kinds == {Kind.CLUSTER} and sources.reading_of(sources.names[0]).chosen == "none":
        report_note("no node is read without --via (exec, agent, netns or lab), so only the objects are looked at")
    cluster = sources.read_cluster(assumed)
    line = ProgressLine()
    try:
        again = partial(_again, sources, assumed) if live else None
        report = audit(cluster, lambda what: line.show(f"auditing {what}"), parts=in_processes, again=again)
    finally:
        line.clear()
    if html is not None:
        from kproxy.explorer.export.commands import audit_page

        plain = click.unstyle("\n".join(report_lines(report)))
        write_files({Path(html): audit_page(report, cluster, plain)})
    if output_format in ("json", "yaml"):
        write_answer("Audit", report, output_format)
    elif output_format == "junit":
        write_output(junit_text(report), None)
    else:
        write_report(report_lines(report))
    unread = live and report_unread(cluster.info)
    exit_with(found=unread or not report.is_well, undecided=False, unseen=report.unseen)


def _again(sources: Sources, assumed: Assumed, nodes: Collection[str]) -> Cluster:
    """The cluster a while later, of these nodes."""
    time.sleep(AGAIN)
    if sources.reading_of(sources.names[0]).chosen != "none":
        named = {each.partition("=")[0]: each for each in sources.nodes}
        sources = replace(sources, nodes=tuple(named.get(name, name) for name in nodes))
    return sources.read_cluster(assumed)
