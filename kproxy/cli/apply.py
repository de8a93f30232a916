"""`kproxy apply`: brings a network namespace, or this machine, to a node's rules; `kproxy cleanup` removes them."""

from __future__ import annotations

from collections.abc import Iterator

import click
import msgspec

from kproxy.cli.node_options import (
    NodeArguments,
    confirm,
    in_words,
    lock_wait_option,
    netns_option,
    node_arguments,
    open_namespace,
    progress_bar,
    variant_words,
    yes_option,
)
from kproxy.cli.output import output_option, write_result
from kproxy.linux.sync.apply import ApplyReport, apply_node
from kproxy.linux.sync.cleanup import CleanupReport
from kproxy.linux.sync.cleanup import cleanup as remove_rules
from kproxy.linux.sync.report import FamilyReport

MAX_LINES = 40
"""Of Services, in text output; JSON has all."""

MAX_MISSING = 5
"""Of missing jump rules: at a first apply they all are."""


@click.command("apply")
@node_arguments
@click.option("--dry-run", is_flag=True, help="Tell what would change, and change nothing.")
def command(arguments: NodeArguments, dry_run: bool) -> None:
    """Program a node's rules into the kernel: into a network namespace, or into this machine.

    Whatever is there now, only the difference is written, in an order in which every packet meets the old or the new
    rules of its Service; then it is read back, and what was there before is put back if that is not right. Rules of
    others stay as they are. More, and the JSON output, is in the documentation: apply, drift and cleanup.

    \b
    Examples:
      ip netns add node-1
      kproxy apply cluster.yaml@node-1 netns:node-1
      kproxy apply cluster.yaml@worker-2 --dry-run -o json
      kproxy apply cluster.yaml@node-1 netns:node-1 --mode ipvs
      kubectl get svc,endpointslices,nodes -A -o json |
        kproxy apply -@worker-2 --yes
    """
    request, _ = arguments.read_request(libiptc=True)
    if not dry_run:
        confirm("changes", "apply", arguments.netns, arguments.yes)
    with open_namespace(arguments.netns) as namespace, progress_bar() as progress:
        report = apply_node(request, namespace, dry_run=dry_run, progress=progress)
    write_result("Apply", report, arguments.output_format, describe(report), notes=report.notes)


def describe(report: ApplyReport) -> Iterator[str]:
    """The report in words."""
    yield f"node {report.node} in {report.where}, {variant_words(report.variant)} ({report.variant_reason})"
    for family in report.families:
        yield from _describe_family(family, report.dry_run)
    if report.conntrack:
        verb = "would be deleted" if report.dry_run else "deleted"
        yield f"connection tracking: {len(report.conntrack)} stale entries {verb}"
        for entry in report.conntrack[:MAX_LINES]:
            yield f"  {entry.entry}  {entry.service}: {entry.reason}"
        yield from _more(len(report.conntrack))
    for cleaned in report.cleaned:
        verb = "would be removed" if report.dry_run else "removed"
        yield f"{cleaned.family} rules of the other mode ({variant_words(cleaned.variant)}) {verb}: {in_words(cleaned)}"
    steps = ", ".join(f"{step.step} {step.seconds:.2f}" for step in report.steps)
    yield f"{report.seconds:.2f} s: {steps}"


def _describe_family(family: FamilyReport, dry_run: bool) -> Iterator[str]:
    counts = (
        f"{family.chains_written} chains written ({family.chains_created} of them new), "
        f"{family.chains_deleted} chains deleted"
    )
    if family.elements_added is not msgspec.UNSET:
        counts += f", {family.elements_added} elements added, {family.elements_deleted} deleted"
    done = f" in {family.transactions} transactions" if family.transactions else ""
    times = ", ".join(f"{step.step} {step.seconds:.2f} s" for step in family.steps)
    changed = family.result != "nothing to do"
    yield f"{family.family}: {family.result}{f': {counts}{done}' if changed else ''} ({times})"
    for service in family.services[:MAX_LINES]:
        parts = [
            f"{service.chains_written} chains written" if service.chains_written else "",
            f"{service.chains_deleted} deleted" if service.chains_deleted else "",
            f"+{service.rules_added} -{service.rules_removed} rules",
        ]
        if service.elements_added is not msgspec.UNSET:
            parts.append(f"+{service.elements_added} -{service.elements_removed} elements")
        name = service.service or "(rules of no Service)"
        yield f"  {name}  {service.change}: {', '.join(part for part in parts if part)}"
    yield from _more(len(family.services))
    verb = "would be put right" if dry_run else "put right"
    missing = [jump for jump in family.jumps if jump.kind == "missing"]
    if len(missing) > MAX_MISSING:
        yield f"  {len(missing)} jump rules were missing, {verb}"
    for jump in family.jumps:
        if jump not in missing or len(missing) <= MAX_MISSING:
            yield f"  jump rule in {jump.table} {jump.chain} was {jump.kind}, {verb}: {jump.rule}"
    yield from (f"  {note}" for note in family.notes)
    for kept in family.kept:
        yield f"  {kept.table} {kept.chain} stays, because a rule of {kept.referred_to_by} leads to it"


def _more(count: int) -> Iterator[str]:
    if count > MAX_LINES:
        yield f"  and {count - MAX_LINES} more (-o json lists all)"


@click.command("cleanup")
@netns_option
@lock_wait_option
@click.option("--dry-run", is_flag=True, help="Tell what would go, and change nothing.")
@output_option
@yes_option
def cleanup(netns: str | None, lock_wait: float, dry_run: bool, output_format: str, yes: bool) -> None:
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
        report = remove_rules(namespace, dry_run=dry_run, lock_wait=lock_wait, progress=progress)
    write_result("Cleanup", report, output_format, describe_cleanup(report), notes=report.notes)


def describe_cleanup(report: CleanupReport) -> Iterator[str]:
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
