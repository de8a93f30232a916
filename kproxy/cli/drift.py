"""`kproxy drift`: what differs between a node's rules and what the kernel holds."""

from __future__ import annotations

from collections.abc import Iterator

import click

from kproxy.cli.kernel import NodeArguments, confirm, node_arguments, open_namespace, variant_words
from kproxy.cli.output import report_note, write_json, write_lines
from kproxy.linux.drift.find import CannotTellError, DriftReport, find_drift
from kproxy.linux.errors import ApplyFailedError, LinuxError

MAX_LINES = 200


@click.command("drift")
@node_arguments
@click.option("--repair", is_flag=True, help="Mend what was found, and nothing else.")
def command(arguments: NodeArguments, repair: bool) -> None:
    """Tell every difference between a node's rules and what the kernel holds; only reads, unless --repair.

    Each difference comes with its Service and with what it means for packets. Rules of others do not count.
    Exit code: 0 no drift, or all of it mended; 1 drift; 2 whether there is drift is unknown.

    \b
    Examples:
      kproxy drift -f cluster.yaml --node node-1 --netns node-1
      kproxy drift -f cluster.yaml --node node-1 --netns node-1 --repair
      kubectl get svc,endpointslices,nodes -A -o json |
        kproxy drift -f - --node worker-2 -o json
    """
    request = arguments.read_request()
    if repair:
        confirm("changes", "drift --repair", arguments.netns, arguments.yes)
    try:
        with open_namespace(arguments.netns) as namespace:
            report = find_drift(request, namespace, repair=repair)
    except ApplyFailedError:
        raise
    except LinuxError as error:
        raise CannotTellError(f"whether there is drift is unknown: {error}") from error
    if arguments.output_format == "json":
        write_json(report)
    else:
        for note in report.notes:
            report_note(note)
        write_lines(describe(report))
    if report.findings and not report.repaired:
        raise click.exceptions.Exit(1)


def describe(report: DriftReport) -> Iterator[str]:
    """The report in words."""
    for finding in report.findings[:MAX_LINES]:
        where = f"{finding.table} {finding.chain or finding.set}".strip() or "all tables"
        number = f" rule {finding.rule}" if finding.rule else ""
        whose = f" [Service {finding.service}]" if finding.service else ""
        yield f"{finding.family} {finding.variant} {where}{number}: {finding.kind}{whose}"
        if finding.wanted:
            yield f"  wanted: {finding.wanted}"
        if finding.found:
            yield f"  found:  {finding.found}"
        yield f"  meaning: {finding.explanation}"
    if len(report.findings) > MAX_LINES:
        yield f"and {len(report.findings) - MAX_LINES} more (-o json lists all)"
    yield from (f"packets: {text}" for text in report.packets)
    where = f"node {report.node} in {report.where}, {variant_words(report.variant)}"
    if not report.findings:
        yield f"{where}: no drift"
        return
    count = f"{len(report.findings)} difference{'s' if len(report.findings) > 1 else ''}"
    yield f"{where}: {count}{', all mended' if report.repaired else ''}"
