"""The audit in plain text: how bad it is, one block for each finding, and at the end what is not known."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

import click

from kproxy.cli.output import Verbatim, labelled, report_width, wrapped
from kproxy.cluster.audit.finding_kinds import Severity
from kproxy.cluster.audit.report import AuditReport, Finding, Gap
from kproxy.cluster.evidence.unseen import NO_RULES, headlines, suspected
from kproxy.cluster.motion import in_motion
from kproxy.words import counted, with_arrows

_WELL: Final = "All well."
_MOST: Final = 6
_MOST_RULES: Final = 3
_INDENT: Final = "   "
_LABEL: Final = 10
_COLOURS: Final = {Severity.ERROR: "red", Severity.WARNING: "yellow", Severity.INFO: "cyan"}


def report_lines(report: AuditReport) -> Iterator[str]:
    """The lines of the answer."""
    width = report_width()
    of = f" of {report.created}" if report.created else ""
    of += f", read within {report.apart:.1f} s" if report.apart else ""
    yield from _wrapped(
        f"{report.source}{of}: {counted(len(report.nodes), 'node')}, {counted(report.services, 'Service')}, "
        f"{counted(report.questions, 'packet')} on {counted(len(report.judged), 'node')}", "", "", width,
    )  # fmt: skip
    if report.is_well:
        text = _well(report)
        yield click.style(text, fg="green" if text == _WELL else "yellow", bold=True)
    for line in headlines([each for each in suspected(report.unseen) if each.why != NO_RULES]):
        yield from _wrapped(line, "", "  ", width)
    for number, finding in enumerate(report.findings, 1):
        yield ""
        yield from _finding(number, finding, report, width)
    if report.moving:
        yield ""
        yield from _wrapped(in_motion(report.moving), "", "  ", width)
    if report.undecided:
        yield ""
        yield click.style("Not decided:", bold=True)
        for gap in report.undecided:
            yield from _gap(gap, report, width)
    if report.missing:
        yield ""
        yield click.style("Not known:", bold=True)
        for gap in report.missing:
            yield from _gap(gap, report, width)


def _well(report: AuditReport) -> str:
    """The headline of a report without findings: as sure as what was seen."""
    if not report.judged:
        known = any(each.why != NO_RULES for each in suspected(report.unseen))
        what = "nothing was judged" if known else "of no node are the rules known"
        return f"Nothing is known to be wrong, and {what}."
    open_questions = sum(gap.count for gap in report.undecided)
    if open_questions or suspected(report.unseen):
        more = f": {counted(open_questions, 'packet')} could not be decided" if open_questions else ""
        return f"Nothing is known to be wrong, and not everything could be told{more}."
    return _WELL


def _finding(number: int, finding: Finding, report: AuditReport, width: int) -> Iterator[str]:
    severity = click.style(finding.severity.value, fg=_COLOURS[finding.severity], bold=True)
    head = f"{number}. {finding.severity.value}: {finding.title} [{finding.kind}]"
    lines = list(_wrapped(head, "", _INDENT, width))
    yield lines[0].replace(finding.severity.value, severity, 1)
    yield from lines[1:]
    everywhere = len(finding.nodes) == len(report.nodes) > 1
    yield from _labelled("nodes", f"all {len(report.nodes)}" if everywhere else _listed(finding.nodes), width)
    for label, names in (
        ("Services", finding.services), ("what", finding.details), ("at", finding.addresses), ("from", finding.clients),
    ):  # fmt: skip
        if names:
            yield from _labelled(label, _listed(names, "; " if label == "what" else ", "), width)
    if finding.since:
        lag = ", while the cluster was read: it may be kube-proxy's usual lag" if finding.young else ""
        yield from _labelled("since", _listed(finding.since, "; ") + lag, width)
    for index, rule in enumerate(finding.rules[:_MOST_RULES]):
        yield from _labelled("rule" if not index else "", rule.location, width)
        if rule.text != (finding.rules[index - 1].text if index else ""):
            yield Verbatim(f"{_INDENT}{'':<{_LABEL}}{rule.text}")
    if len(finding.rules) > _MOST_RULES:
        yield from _labelled("", f"and {len(finding.rules) - _MOST_RULES} more", width)
    witness = finding.witness
    if witness is not None:
        yield from _labelled(
            "packet", f"{with_arrows(witness.packet)}, from {witness.client}, on {witness.node}", width
        )
        yield from _labelled("expected", _listed(witness.expected), width)
        yield from _labelled("found", _listed(witness.found), width)
    yield from _labelled("do", finding.hint, width)


def _gap(gap: Gap, report: AuditReport, width: int) -> Iterator[str]:
    if not gap.nodes:
        where = ""
    elif len(gap.nodes) == len(report.nodes) > 1:
        where = f"{len(gap.nodes)} nodes: "
    else:
        where = f"{_listed(gap.nodes)}: "
    parts = [gap.what]
    parts += [f"({gap.why})"] if gap.why else []
    parts += [f"({counted(gap.count, 'packet')})"] if gap.count else []
    text = f"{where}{' '.join(parts)}" + (f": {gap.then}" if gap.then else "")
    yield from _wrapped(text, "  ", "    ", width)


def _listed(names: Sequence[str], between: str = ", ") -> str:
    left = len(names) - _MOST
    return between.join(names[:_MOST]) + (f" and {left:,} more" if left > 0 else "")


def _labelled(label: str, text: str, width: int) -> Iterator[str]:
    yield from labelled(f"{_INDENT}{label:<{_LABEL}}", label, text, width, cut=True)


def _wrapped(text: str, first: str, rest: str, width: int) -> Iterator[str]:
    yield from wrapped(text, first, rest, width, cut=True)
