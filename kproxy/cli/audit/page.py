"""The audit as one self-contained page: a block for each finding, the worst first; the rest on demand."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from html import escape
from typing import Final

from kproxy.cli.output import counted
from kproxy.cli.page import PALETTE, page
from kproxy.cluster.audit import Finding, Gap, Report, Severity

_MANY: Final = 12
_STYLE: Final = f"""{PALETTE}
header,main{{max-width:1080px;margin:0 auto;padding:0 20px}}
header{{padding-top:28px}}
main{{padding-bottom:40px}}
h1{{font-size:1.45rem;margin:0;overflow-wrap:anywhere;font-weight:650}}
h2{{font-size:1.05rem;margin:0;font-weight:650}}
.sub{{color:var(--soft);margin:6px 0 0;overflow-wrap:anywhere}}
.all{{margin:18px 0;padding:12px 16px;border-radius:8px;font-weight:650}}
.well{{background:var(--okbg);color:var(--ok)}}.unknown{{background:var(--openbg);color:var(--open)}}
article,details{{background:var(--card);border:1px solid var(--line);border-left:5px solid var(--idle);
border-radius:8px;padding:12px 16px;margin:14px 0}}
.error{{border-left-color:var(--bad)}}.warning{{border-left-color:var(--open)}}.info{{border-left-color:var(--blue)}}
.badge{{font-size:.75rem;letter-spacing:.06em;text-transform:uppercase;font-weight:650;margin-right:8px}}
.error .badge{{color:var(--bad)}}.warning .badge{{color:var(--open)}}.info .badge{{color:var(--blue)}}
.kind{{color:var(--soft);font-weight:400;font-size:.85em}}
dl{{display:grid;grid-template-columns:92px 1fr;gap:4px 12px;margin:10px 0 0}}
dt{{color:var(--blue)}}dd{{margin:0;overflow-wrap:anywhere}}
code,pre{{font:13px/1.5 ui-monospace,"DejaVu Sans Mono",monospace;white-space:pre-wrap;overflow-wrap:anywhere;margin:0}}
dd details{{border:0;padding:0;margin:0;background:none}}
summary{{cursor:pointer;color:var(--blue)}}
"""


def audit_page(report: Report) -> str:
    """The page as HTML."""
    of = f" of {report.created}" if report.created else ""
    facts = (
        f"{counted(len(report.nodes), 'node')}, {counted(report.services, 'Service')}, "
        f"{counted(report.questions, 'packet')} on {counted(len(report.judged), 'node')}"
    )
    header = [f"<h1>{escape(report.source)}</h1>", f'<p class="sub">kproxy audit{escape(of)} · {facts}</p>']
    main: list[str] = []
    if report.is_well:
        known = bool(report.judged)
        text = "All well." if known else "Nothing is known to be wrong, and of no node are the rules known."
        main.append(f'<p class="all {"well" if known else "unknown"}">{text}</p>')
    for finding in report.findings:
        main += _finding(finding, report)
    for title, gaps in (("Not decided", report.undecided), ("Not known", report.missing)):
        if gaps:
            main += _gaps(title, gaps, report)
    return page(f"{report.source} · kproxy audit", _STYLE, "", header, main)


def _finding(finding: Finding, report: Report) -> Iterator[str]:
    yield f'<article class="{finding.severity.value}">'
    badge = f'<span class="badge">{finding.severity.value}</span>'
    yield f'<h2>{badge}{escape(finding.title)} <span class="kind">{finding.kind}</span></h2><dl>'
    everywhere = len(finding.nodes) == len(report.nodes) > 1
    yield _row("nodes", _listed([f"all {len(report.nodes)}"] if everywhere else finding.nodes))
    for label, names in (
        ("Services", finding.services), ("what", finding.details), ("at", finding.addresses),
        ("from", finding.clients), ("since", finding.since),
    ):  # fmt: skip
        if names:
            yield _row(label, _listed(names))
    for number, rule in enumerate(finding.rules):
        yield _row("" if number else "rule", f"{escape(rule.location)}<br><code>{escape(rule.text)}</code>")
    witness = finding.witness
    if witness is not None:
        packet = f"<code>{escape(witness.packet)}</code>, from {escape(witness.client)}, on {escape(witness.node)}"
        yield _row("packet", packet)
        yield _row("expected", _listed(witness.expected))
        yield _row("found", _listed(witness.found))
    yield _row("do", escape(finding.hint))
    yield "</dl></article>"


def _row(label: str, value: str) -> str:
    return f"<dt>{label}</dt><dd>{value}</dd>"


def _listed(names: Sequence[str]) -> str:
    shown, rest = names[:_MANY], names[_MANY:]
    text = "<br>".join(map(escape, shown))
    if rest:
        text += f"<details><summary>{len(rest):,} more</summary>{'<br>'.join(map(escape, rest))}</details>"
    return text


def _gaps(title: str, gaps: Sequence[Gap], report: Report) -> Iterator[str]:
    opened = " open" if title == "Not decided" else ""
    yield f'<details class="{Severity.INFO.value}"{opened}><summary>{title}: {len(gaps)}</summary><dl>'
    for gap in gaps:
        everywhere = len(gap.nodes) == len(report.nodes) > 1
        where = f"{len(gap.nodes)} nodes" if everywhere else ", ".join(gap.nodes[:_MANY])
        parts = [gap.what, f"({gap.why})" if gap.why else "", f"({counted(gap.count, 'packet')})" if gap.count else ""]
        text = " ".join(filter(None, parts)) + (f": {gap.then}" if gap.then else "")
        yield _row(escape(where), escape(text))
    yield "</dl></details>"
