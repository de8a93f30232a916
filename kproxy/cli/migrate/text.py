"""The report in plain text, for a person who must decide: what changes at the top, then one block each."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator, Mapping, Sequence
from typing import Final

import click

from kproxy.cli.output import labelled, report_width, wrapped
from kproxy.cluster.migrate.reasons import Effort
from kproxy.cluster.migrate.report import FateRecord, KernelAnswer, MigrateReport, ModeChange, NotDecided, WitnessRecord
from kproxy.words import counted

MAX_SERVICES: Final = 4
MAX_ADDRESSES: Final = 6
MAX_FATES: Final = 3
MARGIN: Final = "   "
LABEL: Final = 8
EFFORTS: Final[Mapping[Effort, str]] = {
    "act": "Before the switch",
    "look": "To check",
    "after": "After the switch",
    "none": "Nothing to do",
}
EDGE: Final = 80
"""Where columns end that stand at the right: also where lines are not folded."""


def report_lines(report: MigrateReport) -> Iterator[str]:
    """The lines of the answer."""
    count = len(report.findings)
    nodes = report.nodes[0] if len(report.nodes) == 1 else f"{len(report.nodes)} nodes"
    services = counted(report.services, "Service")
    yield f"From {report.from_} to {report.to} mode on {nodes}, {' and '.join(report.families)}, {services}"
    yield ""
    if not report.changes:
        yield click.style("Nothing changes: every packet is treated alike.", fg="green", bold=True)
        yield from _needs(report)
        return
    if not count:
        yield click.style("It cannot be told what changes.", fg="yellow", bold=True)
    else:
        yield click.style("One thing changes." if count == 1 else f"{count} things change.", bold=True)
        yield ""
        yield from _overview(report.findings)
    for number, finding in enumerate(report.findings, 1):
        yield ""
        yield from _finding(number, finding, report)
    yield ""
    if report.undecided:
        yield click.style("What the model cannot decide:", fg="yellow", bold=True)
        yield from _undecided(report)
    elif all(finding.reason != "other" for finding in report.findings):
        text = "Nothing else changes: with these set aside, the comparison finds every packet treated alike"
        text += f"; of those that meet other programs' rules, {report.tried} were tried." if report.tried else "."
        yield from wrapped(text)
    if report.absent:
        yield from _absent(report)
    yield from _needs(report)


def _undecided(report: MigrateReport) -> Iterator[str]:
    """What cannot be decided; what is alike on several nodes or for both families is one line."""
    groups: dict[tuple[str, str], list[NotDecided]] = {}
    for each in report.undecided:
        groups.setdefault((each.where, each.reason), []).append(each)
    for (where, reason), found in groups.items():
        nodes = dict.fromkeys(each.node for each in found)
        on = next(iter(nodes)) if len(nodes) == 1 else f"{len(nodes)} nodes"
        families = " and ".join(dict.fromkeys(each.family for each in found))
        yield from wrapped(f"{on}, {families}, {where}: {reason}", "  ", "  ")
    if report.hidden:
        yield from ("", *wrapped(f"What was not seen may hide: {'; '.join(report.hidden)}."))


def _absent(report: MigrateReport) -> Iterator[str]:
    """The titles of what does not show; those of one reason why together."""
    yield ""
    yield "Ruled out:"
    for why in dict.fromkeys(each.why for each in report.absent):
        titles = "; ".join(each.title for each in report.absent if each.why == why)
        yield from wrapped(f"{titles}. {why}", "  ", "  ")
    yield ""


def _needs(report: MigrateReport) -> Iterator[str]:
    if not report.needs:
        return
    yield from wrapped(f"Each node needs {' and '.join(report.needs)}.")
    for each in report.kernels:
        if not each.fits:
            text = f"{each.node} has Linux {each.version}, which is too old."
            yield from (click.style(line, fg="red") for line in wrapped(text))
    told = len(report.kernels)
    if told and all(each.fits for each in report.kernels):
        whose = (
            "All nodes have" if told == len(report.nodes) else f"{told} of {len(report.nodes)} nodes are known to have"
        )
        yield f"{whose} such a kernel."


def _overview(findings: Sequence[ModeChange]) -> Iterator[str]:
    """One line each, by what there is to do."""
    counts = [counted(len(each.services), "Service") if each.services else "" for each in findings]
    size = max(map(len, counts))
    before = ""
    for number, (finding, count) in enumerate(zip(findings, counts, strict=True), 1):
        if finding.effort != before:
            before = finding.effort
            yield f"{EFFORTS[finding.effort]}:"
        room = min(report_width(), EDGE) - 6 - (size + 2 if size else 0)
        title = textwrap.shorten(finding.title, room, placeholder="...")
        yield f"{number:>3}  {title:<{room}}  {count}".rstrip()


def _finding(number: int, finding: ModeChange, report: MigrateReport) -> Iterator[str]:
    head = f"{number}. {finding.title}"
    gap = min(report_width(), EDGE) - len(head) - len(finding.reason)
    where = click.style(finding.reason, dim=True)
    yield f"{click.style(head, bold=True)}{' ' * gap}{where}" if gap > 1 else click.style(head, bold=True)
    concerns = [*_listed(finding.services, MAX_SERVICES, "Service"), *_listed(finding.addresses, MAX_ADDRESSES, "")]
    limits = [] if finding.families == report.families else [f"{' and '.join(finding.families)} only"]
    if finding.nodes != report.nodes:
        limits += _listed(finding.nodes, MAX_SERVICES, "node")
    yield from _labelled(
        ("today", finding.today), ("then", finding.then), ("for", concerns), ("where", "; ".join(limits))
    )
    if finding.witness is not None:
        yield from _witness(finding.witness)
    yield from _labelled(("do", finding.advice), ("config", finding.config))


def _witness(witness: WitnessRecord) -> Iterator[str]:
    yield from _labelled(("packet", witness.text + (f", {witness.setting}" if witness.setting else "")))
    for label, ends in (("today", witness.today), ("then", witness.then)):
        for index, text in enumerate(_fates(ends)):
            first = f"{MARGIN}{'':{LABEL}}{label if index == 0 else '':7}"
            yield from wrapped(text, first, " " * len(first))
    if witness.kernel is not None:
        yield from _kernel(witness.kernel)


def _kernel(answer: KernelAnswer) -> Iterator[str]:
    first = f"{MARGIN}{'':{LABEL}}kernel "
    texts = [answer.verdict if not answer.reason else f"{answer.verdict}: {answer.reason}"]
    if answer.verdict == "refuted":
        texts += [f"today {' or '.join(answer.today)}", f"then {' or '.join(answer.then)}"]
    colour = {"confirmed": "green", "refuted": "red"}.get(answer.verdict, "yellow")
    for line in wrapped("; ".join(texts), first, " " * len(first)):
        yield click.style(line, fg=colour)


def _fates(ends: Sequence[FateRecord]) -> Iterator[str]:
    for end in ends[:MAX_FATES]:
        yield end.text if end.chance == "1" else f"{end.chance} {end.text}"
    if len(ends) > MAX_FATES:
        yield f"and {len(ends) - MAX_FATES} more"


def _listed(names: Sequence[str], most: int, what: str) -> list[str]:
    """Some names in one text; none if there are none."""
    if not names:
        return []
    shown = ", ".join(names[:most])
    left = len(names) - most
    return [shown if left <= 0 else f"{shown} and {counted(left, f'more {what}') if what else f'{left:,} more'}"]


def _labelled(*rows: tuple[str, str | Sequence[str]]) -> Iterator[str]:
    return labelled(rows, MARGIN, LABEL)
