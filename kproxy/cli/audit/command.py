"""`kproxy audit`: which Services are wrong on which nodes, and why."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click

from kproxy.cli.cluster_source import PLUGIN, Connection, connection_options
from kproxy.cli.output import colour_stdout, report_note, working, write_files, write_json, write_output

if TYPE_CHECKING:
    from kproxy.cluster.snapshot.cluster import Cluster


@click.command("audit")
@click.argument("snapshot", required=False)
@connection_options
@click.option("--lab", metavar="NAME", help="The nodes and objects of a lab, as they are now.")
@click.option(
    "--node", "nodes", metavar="NAME[=NETNS]", multiple=True, help="With a live cluster: a namespace as node."
)
@click.option(
    "-o", "--output", "output_format", type=click.Choice(["text", "json", "junit"]), default="text",
    help="Default: text.",
)  # fmt: skip
@click.option("--html", metavar="FILE", help="Write a page that shows the findings.")
def command(
    connection: Connection,
    snapshot: str | None,
    lab: str | None,
    nodes: Sequence[str],
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

    SNAPSHOT is what kproxy collect wrote. Without --node, --kubeconfig and
    --context read objects only. docs/audit.md lists the findings.

    Exit 0 all well, 1 findings, 2 bad input.

    \b
    Examples:
      kproxy audit prod.tar.gz
      kproxy audit prod.tar.gz -o json | jq -r '.findings[].title'
      kproxy audit snap/ -o junit > audit.xml
      kproxy audit --lab lab --html lab.html
      kproxy audit --kubeconfig k.conf --node n1=kp-a --node n2=kp-b
    """
    root = click.get_current_context().find_root()
    live = bool(connection.given) or (root.obj == PLUGIN and snapshot is None and lab is None)
    if (snapshot is not None) + (lab is not None) + live != 1:
        raise click.UsageError("one cluster expected: SNAPSHOT, --lab NAME, or --kubeconfig FILE or --context NAME")
    if nodes and snapshot is not None:
        raise click.UsageError("--node goes with a live cluster, not with a snapshot")

    from kproxy.cli.audit.junit import junit_text
    from kproxy.cli.audit.processes import in_processes
    from kproxy.cli.audit.text import report_lines
    from kproxy.cluster.audit import audit
    from kproxy.cluster.snapshot.cluster import read_snapshot

    with working("reading the cluster"):
        cluster = read_snapshot(snapshot, report_note) if snapshot is not None else _live(connection, lab, nodes)
    with _Progress() as progress:
        report = audit(cluster, progress, parts=in_processes)
    if html is not None:
        from kproxy.cli.audit.page import audit_page

        write_files({Path(html): audit_page(report).encode(errors="backslashreplace").decode()})
    if output_format == "json":
        write_json(report)
    elif output_format == "junit":
        write_output(junit_text(report), None)
    else:
        text = "\n".join(report_lines(report)) + "\n"
        text = text if colour_stdout() else click.unstyle(text)
        write_output(text.encode(errors="surrogateescape").decode(errors="backslashreplace"), None)
    if not report.is_well:
        raise click.exceptions.Exit(1)


def _live(connection: Connection, lab: str | None, nodes: Sequence[str]) -> Cluster:
    from kproxy.cli.gathering import gather
    from kproxy.cluster.snapshot.cluster import Cluster

    via = "lab" if lab is not None else "netns" if nodes else "none"
    label = f"lab {lab}" if lab is not None else connection.context or connection.kubeconfig or "cluster"
    return Cluster(gather(connection, via, lab or "", nodes, label).files, tell=report_note)


class _Progress:
    """One line on a terminal's stderr that says which node is being judged."""

    def __init__(self) -> None:
        self._shown = sys.stderr.isatty()

    def __call__(self, what: str) -> None:
        if self._shown:
            click.echo(f"\r\x1b[Kauditing {what}", err=True, nl=False)

    def __enter__(self) -> _Progress:
        return self

    def __exit__(self, *_: object) -> None:
        if self._shown:
            click.echo("\r\x1b[K", err=True, nl=False)
