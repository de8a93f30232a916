"""A report in plain text: the outcomes with chances and replies, then as a tree the way that all of them share, and the
rest of each one's way."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

import click

from kproxy.cli.output import Branch
from kproxy.cli.trace.words import (
    by_hook,
    common_steps,
    depths,
    loss_words,
    outcome_words,
    packet_words,
    percent,
    reply_words,
    step_words,
)
from kproxy.dataplane.concrete.graph import Step
from kproxy.dataplane.query.report import Report, Reported
from kproxy.netfilter.family import protocol_name
from kproxy.words import chance_words, counted

_RULE = re.compile(r" rule \d+$")
_MAX_POSSIBLE = 16
MAX_BRANCHES = 8
"""Outcomes whose way is shown; all are in the summary."""
COLOURS = {"ACCEPT": "green", "DROP": "red", "REJECT": "red", "INDETERMINATE": "yellow"}


def report_text(report: Report, label: str, unseen: Sequence[str] = ()) -> str:
    """The lines of a report as one text, without colours."""
    return "".join(f"{click.unstyle(line)}\n" for line in report_lines(report, label, unseen))


def report_lines(report: Report, label: str, unseen: Sequence[str] = ()) -> list[str]:
    """The outcomes, with the lines about what was not seen, and the tree, coloured."""
    root = Branch("")
    shared = common_steps(report)
    several = len(report.outcomes) > 1
    first = report.outcomes[0].outcome.steps
    _add_way(root, (first[:shared] or first) if several and shared else first if not several else ())
    if several:
        for reported in report.outcomes[:MAX_BRANCHES]:
            branch = root.add(_heading(reported))
            _add_way(branch, reported.outcome.steps[shared:])
        hidden = len(report.outcomes) - MAX_BRANCHES
        if hidden > 0:
            root.add(f"... and {counted(hidden, 'more outcome')}, listed above")
    lines = [click.style(packet_words(report.question), bold=True)]
    width = max(len(percent(item.outcome.probability)) for item in report.outcomes)
    for reported in report.outcomes:
        lines += _summary(reported, width, report.question.packet.in_interface)
    hints = dict.fromkeys(hint for item in report.outcomes for hint in item.outcome.hints)
    lines += [click.style(f"would settle it: {hint}", fg="yellow") for hint in hints]
    lines += unseen
    lines += [click.style(f"assumed: {text}", fg="yellow") for text in report.assumptions]
    lines += ["", f"rules: {label}", *root.lines()]
    lines += [f"{hook}: {line}" for hook, calls in report.hooks.items() for line in calls]
    return lines


def summary_line(report: Report) -> str:
    """A report in one line: the packet, and each outcome with its chance, and where and why it is lost or open."""
    fates = []
    for item in (each.outcome for each in report.outcomes):
        why = "; ".join(filter(None, (loss_words(item), *grouped_reasons(item.reasons))))
        fate = f"{percent(item.probability)} {_verdict(item.verdict)} {item.src} → {item.dst}"
        fates.append(f"{fate} ({why})" if why else fate)
    packet = report.question.packet
    name = protocol_name(packet.protocol)
    return f"{name} {packet.source} → {packet.destination}: {'; '.join(fates)}\n"


def grouped_reasons(reasons: Sequence[str]) -> list[str]:
    """Reasons in which several rules ask the same as one, with the first rule and how many more there are."""
    rules: dict[str, list[str]] = {}
    for reason in reasons:
        rule, colon, question = reason.partition(": ")
        is_rule = bool(colon) and bool(_RULE.search(rule))
        rules.setdefault(question if is_rule else reason, []).append(rule if is_rule else "")
    lines = []
    for question, held in rules.items():
        more = f" and {len(held) - 1} more rule" + "s" * (len(held) > 2) if len(held) > 1 else ""
        lines.append(f"{held[0]}{more}: {question}" if held[0] else question)
    return lines


def _heading(reported: Reported) -> str:
    item = reported.outcome
    return f"{click.style(percent(item.probability), bold=True)} {_verdict(item.verdict)} {item.dst}".removesuffix(" ?")


def _verdict(verdict: str) -> str:
    return click.style(verdict, fg=COLOURS[verdict], bold=True)


def _summary(reported: Reported, width: int, came_by: str | None) -> Iterator[str]:
    item = reported.outcome
    yield f"  {percent(item.probability):>{width}}  {_verdict(item.verdict)}  {outcome_words(reported)}"
    margin = " " * (width + 4)
    if item.probability != 1:
        yield f"{margin}chance {chance_words(item.probability)}"
    for reason in grouped_reasons(item.reasons):
        yield f"{margin}depends on: {reason}"
    several = len({other.device for other in item.possible if other.via == "out"}) > 1
    for other in item.possible[:_MAX_POSSIBLE]:
        hook = f" in {other.hook}" if other.hook else ""
        by = f" by {other.device or 'another interface'}" if several and other.via == "out" else ""
        why = f": {other.reason}" if other.reason else ""
        yield f"{margin}possible: {other.verdict} {other.src} → {other.dst}{hook}{by}{why}"
    if len(item.possible) > _MAX_POSSIBLE:
        yield f"{margin}and {counted(len(item.possible) - _MAX_POSSIBLE, 'more possibility')} (-o json lists all)"
    if reported.reply is not None:
        yield f"{margin}reply: {reply_words(reported.reply, came_by)}"


def _add_way(root: Branch, steps: Sequence[Step]) -> None:
    for hook, group in by_hook(steps):
        branch = root.add(click.style(hook, fg="cyan", bold=True))
        levels = [branch]
        for step, depth in zip(group, depths(group), strict=True):
            heading, rule = step_words(step)
            if step.note:
                heading += click.style(f"  ({step.note})", fg="yellow")
            del levels[depth + 1 :]
            levels.append(levels[-1].add(heading, rule))
