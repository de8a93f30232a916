"""`kproxy drift`: what differs between a node's rules and what the kernel holds."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import chain, repeat
from typing import Final

import click
import msgspec

from kproxy.cli.live_snapshot import settled
from kproxy.cli.node_options import NodeArguments, confirm, node_arguments, open_namespace, variant_words
from kproxy.cli.output import Verbatim, terminal_width, wrapped, write_answer, write_result
from kproxy.cluster.evidence.manifests import Lacking
from kproxy.cluster.evidence.signs import ipvs_of_devices, ipvs_of_mode
from kproxy.cluster.evidence.unseen import CLUSTER_IPS, ENDPOINTS, NOTHING, VARIANTS, Unseen, suspected
from kproxy.cluster.motion import in_motion
from kproxy.linux.drift.find import CannotTellError, DriftReport, find_drift
from kproxy.linux.errors import ApplyFailedError, LinuxError
from kproxy.linux.host.facts import read_link_names
from kproxy.linux.namespace import Namespace
from kproxy.linux.sync.finding import Drift
from kproxy.netfilter.hooks import Variant
from kproxy.render.nftables.names import HAIRPIN_CONNECTIONS
from kproxy.services import IPFamily
from kproxy.words import counted

_RULES: Final = ("  wanted: ", "  found:  ")

MAX_LINES = 200


@click.command("drift")
@node_arguments
@click.option("--repair", is_flag=True, help="Mend what was found, and nothing else.")
def command(arguments: NodeArguments, repair: bool) -> None:
    """Tell every difference between a node's rules and what the kernel holds; only reads, unless --repair.

    Each difference comes with its Service and with what it means for packets. Rules of others do not count.
    Exit code: 0 no drift, or all of it mended; 1 drift; 2 whether there is drift is unknown, also in one family only.

    \b
    Examples:
      kproxy drift cluster.yaml@node-1 netns:node-1
      kproxy drift cluster.yaml@node-1 netns:node-1 --repair
      kubectl get svc,endpointslices,nodes -A -o json |
        kproxy drift -@worker-2 -o json
    """
    request, read = arguments.read_request(compared=True)
    missing = read.lacking(NOTHING)
    gaps = missing.unseen(read.label)
    lacking = [
        each for each in gaps if each.what == CLUSTER_IPS or (each.what == ENDPOINTS and not request.endpoint_slices)
    ]
    lacking += ipvs_of_mode(request.target.node_name, request.config.mode)
    if lacking:
        # What such manifests render is not what the node should hold, so nothing is compared, and nothing mended. One
        # Service without EndpointSlices among others is left out where the node has rules of it. IPVS mode has none.
        if arguments.output_format != "text":
            empty = DriftReport(request.target.node_name, arguments.netns or "", "", "", ())
            write_answer("Drift", empty, arguments.output_format, lacking)
        raise CannotTellError(f"whether there is drift is unknown: {_why(*lacking)}")
    if repair:
        confirm("changes", "drift --repair", arguments.netns, arguments.yes)
    try:
        with open_namespace(arguments.netns) as namespace:
            of_ipvs = ipvs_of_devices(namespace.label, read_link_names(namespace))
            live = arguments.sources.is_live
            of_endpoints = [each for each in suspected(gaps) if each.what == ENDPOINTS]
            report = find_drift(request, namespace, repair=repair and not live and not of_endpoints)
            if of_endpoints:
                report = _without(report, missing)
                of_endpoints = of_endpoints if report.unjudged else []
                if repair and of_endpoints:
                    raise CannotTellError(f"nothing was mended: the node has rules of it, and {_why(*of_endpoints)}")
                if repair:
                    report = find_drift(request, namespace, repair=True)
            if live:
                report = _settled(report, arguments, namespace)
            if live and repair and report.findings:
                report = find_drift(arguments.read_request(compared=True)[0], namespace, repair=True)
    except ApplyFailedError:
        raise
    except LinuxError as error:
        raise CannotTellError(f"whether there is drift is unknown: {error}") from error
    unread = "its iptables is not installed"
    unseen = [Unseen(report.where, family, VARIANTS[Variant.NFT], unread, True) for family in report.unread]
    lines = describe(report, terminal_width())
    write_result(
        "Drift", report, arguments.output_format, lines, [*unseen, *of_ipvs, *of_endpoints],
        notes=report.notes,
    )  # fmt: skip
    if report.findings and not report.repaired:
        raise click.exceptions.Exit(1)
    if report.unread:
        # Only what is asked for is known to be wanted: kube-proxy itself goes on with one family.
        family = report.unread[0]
        other = "-6" if family == IPFamily.IPV4.value else "-4"
        what = f"its iptables is not installed ({other}: only the other family)"
        raise CannotTellError(f"whether there is drift in {family} is unknown: {what}")
    if of_ipvs or of_endpoints:
        raise CannotTellError(f"whether there is drift is unknown: {_why(*of_ipvs, *of_endpoints)}")


def _why(*unseen: Unseen) -> str:
    """Why one cannot tell, without how other commands go on: of invented endpoints a node has no rules."""
    return "; ".join(each.why.partition(" (--assume-endpoints")[0] for each in unseen)


def _without(report: DriftReport, missing: Lacking) -> DriftReport:
    """The report without what it says of Services of which nobody gave the EndpointSlices, if the node has chains of
    theirs: they were made of endpoints that these Services have."""
    unknown = {each.metadata.key for services in missing.endpoints.values() for each in services}
    found = (each.service for each in report.findings if each.kind == "chain-extra")
    served = {each: None for each in sorted(found) if each.partition(":")[0] in unknown}
    if not served:
        return report
    left = (each for each in report.findings if each.service not in served)
    findings = tuple(each for each in left if (each.kind, each.set) != ("element-extra", HAIRPIN_CONNECTIONS))
    names = tuple(f"Service {name.partition(':')[0]}{end}" for name in served for end in ": ")
    packets = tuple(each for each in report.packets if not any(name in each for name in names))
    return msgspec.structs.replace(
        report, findings=findings, packets=packets if findings else (), unjudged=tuple(served)
    )


def _settled(report: DriftReport, arguments: NodeArguments, namespace: Namespace) -> DriftReport:
    """The differences from a live cluster that are still there when it and the node are read again, twice: whoever
    keeps the rules lags behind a change by a moment."""
    later = (find_drift(arguments.read_request(compared=True)[0], namespace) for _ in repeat(None))
    reports = chain((report,), later)
    last, stays, moving = settled(lambda: next(reports), lambda each: map(_without_number, each.findings))
    left = tuple(each for each in report.findings if _without_number(each) in stays)
    return msgspec.structs.replace(last, findings=left, moving=moving or msgspec.UNSET)


def _without_number(finding: Drift) -> Drift:
    """A finding as it is told apart from others: its rule's number changes with the rules before it."""
    return msgspec.structs.replace(finding, rule=0)


def describe(report: DriftReport, width: int | None = None) -> Iterator[str]:
    """The report in words, each line at most `width` columns wide if its words allow."""
    for label, text in _parts(report):
        if width is None or label in _RULES:
            yield Verbatim(label + text)
        else:
            yield from wrapped(text, label, " " * (len(label) or 2), width)


def _parts(report: DriftReport) -> Iterator[tuple[str, str]]:
    """What is said, each with the label that it stands behind."""
    for finding in report.findings[:MAX_LINES]:
        where = f"{finding.table} {finding.chain or finding.set}".strip() or "all tables"
        number = f" rule {finding.rule}" if finding.rule else ""
        whose = f" [Service {finding.service}]" if finding.service else ""
        yield "", f"{finding.family} {finding.variant} {where}{number}: {finding.kind}{whose}"
        if finding.wanted:
            yield _RULES[0], finding.wanted
        if finding.found:
            yield _RULES[1], finding.found
        yield "  meaning: ", finding.explanation
    if len(report.findings) > MAX_LINES:
        yield "", f"and {len(report.findings) - MAX_LINES} more (-o json lists all)"
    yield from (("packets: ", text) for text in report.packets)
    where = f"node {report.node} in {report.where}, {variant_words(report.variant)}"
    if report.unread:
        where += f", {' and '.join(report.unread)} not looked at"
    if report.unjudged:
        where += f", {', '.join(report.unjudged)} not judged"
    if report.moving:
        yield "", in_motion(report.moving)
    if not report.findings:
        yield "", f"{where}: no drift"
        return
    yield "", f"{where}: {counted(len(report.findings), 'difference')}{', all mended' if report.repaired else ''}"
