"""`kproxy audit`: which Services are wrong on which nodes, and why."""

from __future__ import annotations

import time
from collections.abc import Collection
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import click

from kproxy.cli.cluster_source import Connection, connection_options, is_plugin
from kproxy.cli.evidence import assume_option, exit_with
from kproxy.cli.live_snapshot import Reading, gather, reading_options, report_unread
from kproxy.cli.options import snapshot_source
from kproxy.cli.output import ProgressLine, report_note, working, write_answer, write_files, write_output, write_report
from kproxy.cluster.evidence.unseen import Assumed
from kproxy.cluster.motion import AGAIN

if TYPE_CHECKING:
    from kproxy.cluster.snapshot.cluster import Cluster


@click.command("audit")
@snapshot_source("The same as SNAPSHOT.")
@connection_options
@reading_options
@assume_option
@click.option(
    "-o", "--output", "output_format", type=click.Choice(["text", "json", "yaml", "junit"]), default="text",
    help="Default: text.",
)  # fmt: skip
@click.option("--html", metavar="FILE", help="Write a page that shows the findings.")
def command(
    connection: Connection,
    snapshot: str | None,
    reading: Reading,
    assumed: Assumed,
    output_format: str,
    html: str | None,
) -> None:
    """Say which Services are wrong on which nodes of a cluster, and why.

    For each Service port and address, packets of four clients (a pod here, a pod
    elsewhere, the node itself, outside) are sent through all rules of each node,
    and through those that kube-proxy should have written there. Where the
    answers differ, a finding names Services, nodes, the rule to blame and a
    packet. Routes, sysctls, connections and kube-proxy's health are looked at,
    too, as far as they are known; what is missing is named at the end.

    SNAPSHOT is what kproxy collect wrote. A live cluster is read as kproxy
    collect reads it, with the same options: without --via, no node is.
    The findings are listed in the documentation: audit.

    Exit 0 all well, 1 findings, or something of a live cluster could not be
    read, 2 bad input, or something to which the evidence points was not seen.

    \b
    Examples:
      kproxy audit prod.tar.gz
      kproxy audit prod.tar.gz -o json | jq -r '.findings[].title'
      kproxy audit snap/ -o junit > audit.xml
      kproxy audit --lab lab --html lab.html
      kproxy audit --context prod --via exec
      kproxy audit --kubeconfig k.conf --node n1=kp-a --node n2=kp-b
    """
    given = (*connection.given, *reading.given)
    if snapshot is not None and given:
        raise click.UsageError(f"SNAPSHOT or a live cluster expected: {given[0]} goes with the latter")
    if snapshot is None and not given and not is_plugin():
        raise click.UsageError(
            "a cluster expected: SNAPSHOT, --lab NAME, or --kubeconfig FILE or --context NAME with --via"
        )

    from kproxy.cli.audit.junit import junit_text
    from kproxy.cli.audit.processes import in_processes
    from kproxy.cli.audit.text import report_lines
    from kproxy.cluster.audit.audit import audit
    from kproxy.cluster.snapshot.cluster import read_snapshot

    with working("reading the cluster"):
        if snapshot is None:
            cluster = _live(connection, reading, assumed)
        else:
            cluster = read_snapshot(snapshot, report_note, assumed)
    line = ProgressLine()
    try:
        again = None if snapshot is not None else partial(_again, connection, reading, assumed)
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
    unread = snapshot is None and report_unread(cluster.info)
    exit_with(found=unread or not report.is_well, undecided=False, unseen=report.unseen)


def _again(connection: Connection, reading: Reading, assumed: Assumed, nodes: Collection[str]) -> Cluster:
    """The cluster a while later, of these nodes."""
    time.sleep(AGAIN)
    if reading.chosen != "none":
        named = {each.partition("=")[0]: each for each in reading.nodes}
        reading = replace(reading, nodes=tuple(named.get(name, name) for name in nodes))
    return _live(connection, reading, assumed)


def _live(connection: Connection, reading: Reading, assumed: Assumed) -> Cluster:
    from kproxy.cluster.snapshot.cluster import Cluster

    if reading.chosen == "none":
        report_note("no node is read without --via (exec, agent, netns or lab), so only the objects are looked at")
    return Cluster(gather(connection, reading, reading.label(connection)).files, tell=report_note, assumed=assumed)
