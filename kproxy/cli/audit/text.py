"""The audit in plain text: how bad it is, one block for each finding, and at the end what is not known. As JUnit's XML:
a test case for each kind of finding, which fails once for each finding of it."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from functools import partial
from typing import Final
from xml.etree import ElementTree

import click

from kproxy.cli.output import Verbatim, labelled, wrapped
from kproxy.cluster.audit.finding_kinds import KINDS, Severity
from kproxy.cluster.audit.report import AuditReport, Finding, Gap
from kproxy.cluster.evidence.unseen import NO_RULES, headlines, suspected
from kproxy.cluster.motion import in_motion
from kproxy.words import counted, with_arrows

_WELL: Final = "All well."
_MOST: Final = 6
_MOST_RULES: Final = 3
_INDENT: Final = "   "
_LABEL: Final = 10
_NOT_IN_XML: Final = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
_wrapped = partial(wrapped, cut=True)
_COLOURS: Final = {Severity.ERROR: "red", Severity.WARNING: "yellow", Severity.INFO: "cyan"}


def report_lines(report: AuditReport) -> Iterator[str]:
    """The lines of the answer."""
    of = f" of {report.created}" if report.created else ""
    of += f", read within {report.apart:.1f} s" if report.apart else ""
    yield from _wrapped(
        f"{report.source}{of}: {counted(len(report.nodes), 'node')}, {counted(report.services, 'Service')}, "
        f"{counted(report.questions, 'packet')} on {counted(len(report.judged), 'node')}"
    )
    if report.is_well:
        text = _well(report)
        yield click.style(text, fg="green" if text == _WELL else "yellow", bold=True)
    for line in headlines([each for each in suspected(report.unseen) if each.why != NO_RULES]):
        yield from _wrapped(line, "", "  ")
    for number, finding in enumerate(report.findings, 1):
        yield ""
        yield from _finding(number, finding, report)
    if report.moving:
        yield ""
        yield from _wrapped(in_motion(report.moving), "", "  ")
    if report.undecided:
        yield ""
        yield click.style("Not decided:", bold=True)
        for gap in report.undecided:
            yield from _gap(gap, report)
    if report.missing:
        yield ""
        yield click.style("Not known:", bold=True)
        for gap in report.missing:
            yield from _gap(gap, report)


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


def _finding(number: int, finding: Finding, report: AuditReport) -> Iterator[str]:
    severity = click.style(finding.severity.value, fg=_COLOURS[finding.severity], bold=True)
    head = f"{number}. {finding.severity.value}: {finding.title} [{finding.kind}]"
    lines = list(_wrapped(head, "", _INDENT))
    yield lines[0].replace(finding.severity.value, severity, 1)
    yield from lines[1:]
    everywhere = len(finding.nodes) == len(report.nodes) > 1
    lag = ", while the cluster was read: it may be kube-proxy's usual lag" if finding.young else ""
    yield from _labelled(
        ("nodes", f"all {len(report.nodes)}" if everywhere else _listed(finding.nodes)),
        ("Services", _listed(finding.services)),
        ("what", _listed(finding.details, "; ")),
        ("at", _listed(finding.addresses)),
        ("from", _listed(finding.clients)),
        ("since", _listed(finding.since, "; ") + lag if finding.since else ""),
    )
    for index, rule in enumerate(finding.rules[:_MOST_RULES]):
        yield from _labelled(("rule" if not index else "", rule.location))
        if rule.text != (finding.rules[index - 1].text if index else ""):
            yield Verbatim(f"{_INDENT}{'':<{_LABEL}}{rule.text}")
    if len(finding.rules) > _MOST_RULES:
        yield from _labelled(("", f"and {len(finding.rules) - _MOST_RULES} more"))
    witness = finding.witness
    if witness is not None:
        yield from _labelled(
            ("packet", f"{with_arrows(witness.packet)}, from {witness.client}, on {witness.node}"),
            ("expected", _listed(witness.expected)),
            ("found", _listed(witness.found)),
        )
    yield from _labelled(("do", finding.hint))


def _gap(gap: Gap, report: AuditReport) -> Iterator[str]:
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
    yield from _wrapped(text, "  ", "    ")


def _listed(names: Sequence[str], between: str = ", ") -> str:
    left = len(names) - _MOST
    return between.join(names[:_MOST]) + (f" and {left:,} more" if left > 0 else "")


def _labelled(*rows: tuple[str, str]) -> Iterator[str]:
    return labelled(rows, _INDENT, _LABEL, cut=True)


def junit_text(report: AuditReport) -> str:
    """One `testsuite` without kinds of severity info. What was not found is skipped where not all could be told."""
    cases = [kind for kind in KINDS.values() if kind.severity is not Severity.INFO]
    found = {kind.id: [each for each in report.findings if each.kind == kind.id] for kind in cases}
    failed = sum(bool(each) for each in found.values())
    why = "; ".join(f"not seen: {each.what}" for each in suspected(report.unseen))
    why = (
        why
        or ("" if report.judged else "no node was judged")
        or ("not everything was decided" if report.undecided else "")
    )
    skipped = len(cases) - failed if why else 0
    suite = ElementTree.Element(
        "testsuite", name="kproxy audit", tests=str(len(cases)), failures=str(failed), errors="0", skipped=str(skipped)
    )
    for kind in cases:
        case = ElementTree.SubElement(suite, "testcase", classname="kproxy.audit", name=f"{kind.id}: {kind.title}")
        if why and not found[kind.id]:
            ElementTree.SubElement(case, "skipped", message=_clean(why))
        for finding in found[kind.id]:
            nodes = ", ".join(finding.nodes)
            failure = ElementTree.SubElement(case, "failure", type=kind.severity.value, message=_clean(f"on {nodes}"))
            failure.text = _clean("\n".join(_lines(finding)))
    ElementTree.indent(suite)
    return f'<?xml version="1.0" encoding="UTF-8"?>\n{ElementTree.tostring(suite, encoding="unicode")}\n'


def _lines(finding: Finding) -> list[str]:
    lines = [f"nodes: {', '.join(finding.nodes)}"]
    lines += [f"Services: {', '.join(finding.services)}"] if finding.services else []
    lines += list(finding.details)
    lines += [f"{rule.location}: {rule.text}" for rule in finding.rules]
    if finding.witness is not None:
        witness = finding.witness
        lines += [
            f"packet: {with_arrows(witness.packet)}, from {witness.client}, on {witness.node}",
            f"expected: {', '.join(witness.expected)}",
            f"found: {', '.join(witness.found)}",
        ]
    return [*lines, finding.hint]


def _clean(text: str) -> str:
    """Without what XML cannot hold."""
    return _NOT_IN_XML.sub("?", text)
