"""`kproxy cleanup`: removes kproxy's and kube-proxy's rules."""

from __future__ import annotations

from collections.abc import Iterator

import click

from kproxy.cli.node_options import (
    confirm,
    in_words,
    lock_wait_option,
    netns_option,
    open_namespace,
    progress_bar,
    yes_option,
)
from kproxy.cli.output import output_option, write_result
from kproxy.linux.sync.cleanup import CleanupReport, cleanup


@click.command("cleanup")
@netns_option
@lock_wait_option
@click.option("--dry-run", is_flag=True, help="Tell what would go, and change nothing.")
@output_option
@yes_option
def command(netns: str | None, lock_wait: float, dry_run: bool, output_format: str, yes: bool) -> None:
    """Remove every rule and chain of kproxy's and kube-proxy's, of both modes, variants and families, and nothing else.

    The rules of `kproxy overlay` stay: `kproxy overlay cleanup` removes them with the overlay.

    \b
    Examples:
      kproxy cleanup --netns node-1
      kproxy cleanup --dry-run
    """
    if not dry_run:
        confirm("removes kube-proxy's rules from", "cleanup", netns, yes)
    with open_namespace(netns) as namespace, progress_bar() as progress:
        report = cleanup(namespace, dry_run=dry_run, lock_wait=lock_wait, progress=progress)
    write_result("Cleanup", report, output_format, describe(report), notes=report.notes)


def describe(report: CleanupReport) -> Iterator[str]:
    """The report in words."""
    verb = "would be removed" if report.dry_run else "removed"
    yield f"kube-proxy's rules in {report.where}:"
    for tables in report.tables:
        if tables.chains_deleted or tables.jumps_deleted or tables.sets_deleted:
            yield f"  {tables.family} {tables.variant}: {in_words(tables)}, {verb}"
        else:
            yield f"  {tables.family} {tables.variant}: none"
        if tables.foreign:
            yield f"    stays, since it is another program's: {', '.join(tables.foreign)}"
        for kept in tables.kept:
            yield f"    {kept.table} {kept.chain} stays: {kept.referred_to_by} uses it"
    if report.counters:
        yield f"  nfacct counters removed: {', '.join(report.counters)}"
