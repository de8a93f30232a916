"""The audit as JUnit's XML: a test case for each kind of finding, which fails once for each finding of it."""

from __future__ import annotations

import re
from typing import Final
from xml.etree import ElementTree

from kproxy.cluster.audit.finding_kinds import KINDS, Severity
from kproxy.cluster.audit.report import AuditReport, Finding
from kproxy.cluster.evidence.unseen import suspected
from kproxy.words import with_arrows

_NOT_IN_XML: Final = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


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
