"""A report in plain text: the outcomes with chances and replies, then as a tree the way that all of them share, and the
rest of each one's way."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from fractions import Fraction

import click

from kproxy.cli.output import Branch
from kproxy.dataplane.concrete.graph import Step
from kproxy.dataplane.concrete.trace import Outcome
from kproxy.dataplane.model.packet import LOCAL
from kproxy.dataplane.model.unseen import thing_of_reason
from kproxy.dataplane.model.verdict import ACCEPT, DROP, INDETERMINATE, REJECT
from kproxy.dataplane.query.report import Reply, Report, Reported
from kproxy.dataplane.query.spec import Question
from kproxy.netfilter.family import protocol_name
from kproxy.words import chance_words, counted, with_arrows

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
    return f"{flow(report.question)}: {'; '.join(fates)}"


def flow(question: Question) -> str:
    """`tcp 10.244.0.9:40000 → 10.96.0.10:53`."""
    packet = question.packet
    return f"{protocol_name(packet.protocol)} {packet.source} → {packet.destination}"


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


def percent(chance: Fraction) -> str:
    """A chance for people, rounded to four digits; certainty and impossibility only if they are exact."""
    if chance == 1:
        return "100%"
    value = float(chance * 100)
    if value < 0.001:
        return "<0.001%"
    return f"{value:.4g}%" if value < 99.995 else ">99.99%"


def packet_words(question: Question) -> str:
    """`tcp 10.244.0.9:40000 → 10.96.0.10:53, arrives on cni0, conntrack state NEW`."""
    packet, entry = question.packet, question.connection
    text = flow(question)
    if packet.origin == LOCAL:
        text += ", sent by this host"
    else:
        text += f", arrives on {packet.in_interface}" if packet.in_interface else ", arrives"
    text += f", conntrack state {entry.state}" if entry.state else ", conntrack state open"
    if packet.mark:
        text += f", mark 0x{packet.mark:x}"
    return text


def outcome_words(reported: Reported) -> str:
    """What becomes of the packet, in one line."""
    item = reported.outcome
    flow = f"{item.src} → {item.dst}"
    if item.verdict == ACCEPT:
        where = {
            "local": "delivered to this host",
            "out": f"leaves by {item.packet.out_interface}" if item.packet.out_interface else "leaves this host",
            "bridged": "passed on by the bridge",
        }.get(item.via, f"passes {item.hook}")
        return f"{flow}, {_rewrites(reported)}; {where}"
    if item.verdict in (DROP, REJECT):
        return f"{flow}, {loss_words(item)}"
    things = dict.fromkeys(filter(None, map(thing_of_reason, item.reasons)))
    if things:
        return f"indeterminate: it depends on what was not seen: {', '.join(things)}"
    return "indeterminate: it depends on what is not given"


def loss_words(item: Outcome) -> str:
    """Where and why a packet is lost: `dropped in FORWARD by filter KUBE-FORWARD 1`; "" of one that is not."""
    where = f" in {item.hook}" if item.hook else ""
    if item.verdict == DROP:
        return f"dropped{where}{f': {item.reason}' if item.reason else _last_rule(item.steps)}"
    if item.verdict == REJECT:
        return f"rejected{where} with {item.reject}{_last_rule(item.steps)}"
    return ""


def _rewrites(reported: Reported) -> str:
    item = reported.outcome
    done = []
    if item.dnat:
        done.append("destination translated")
    if item.masquerade:
        done.append("masqueraded" if item.snat else "marked for masquerading, but never leaves")
    if not item.determined:
        done.append("the source is open")
    return " and ".join(done) if done else "not rewritten"


def _last_rule(steps: Sequence[Step]) -> str:
    for step in reversed(steps):
        if step.kind == "rule":
            return f" by {step.table} {step.chain} {step.rule}"
        if step.kind == "policy":
            return f" by the policy of {step.table} {step.chain}"
    return ""


def reply_words(reply: Reply | None, came_by: str | None = None) -> str:
    """What comes back."""
    if reply is None:
        return "no reply"
    text = f"{reply.kind} {reply.src} → {reply.dst}"
    if reply.verdict == ACCEPT:
        if (reply.received_src, reply.received_dst) != (reply.src, reply.dst):
            text += f", received as {reply.received_src} → {reply.received_dst}"
        if reply.out_interface and came_by and reply.out_interface != came_by:
            text += f", leaves by {reply.out_interface}, though the packet came by {came_by}"
        return text
    if reply.verdict == INDETERMINATE:
        return f"{text}; what becomes of it on its way back is open{f': {reply.reason}' if reply.reason else ''}"
    return f"{text}; on its way back: {reply.verdict}{f', {reply.reason}' if reply.reason else ''}"


def step_words(step: Step) -> tuple[str, str]:
    """A step as a heading, and the rule behind it or nothing."""
    if step.kind == "rule":
        return f"{step.table} {step.chain} {step.rule}: {step.did}", step.text
    if step.kind == "policy":
        return f"{step.table} {step.chain}: {step.did}", ""
    names = {"conntrack": "conntrack", "route": "routing", "translate": "address translation"}
    return f"{names.get(step.kind, step.kind)}: {with_arrows(step.did)}", ""


def common_steps(report: Report) -> int:
    """How many steps all outcomes share from the beginning."""
    ways = [item.outcome.steps for item in report.outcomes if item.outcome.steps]
    if not ways:
        return 0
    shared = 0
    for steps in zip(*ways, strict=False):
        if any(step != steps[0] for step in steps[1:]):
            break
        shared += 1
    return shared


def by_hook(steps: Sequence[Step]) -> list[tuple[str, list[Step]]]:
    """Steps in order, grouped by the hook at which they happened."""
    groups: list[tuple[str, list[Step]]] = []
    for step in steps:
        if not groups or groups[-1][0] != step.hook:
            groups.append((step.hook, []))
        groups[-1][1].append(step)
    return groups


def depths(steps: Sequence[Step]) -> list[int]:
    """How deep in jumps each step of one hook is; what is not a rule is at depth 0."""
    found: list[int] = []
    stack: list[tuple[str, str, str]] = []
    led = ""
    for step in steps:
        if step.kind != "rule":
            found.append(0)
            continue
        chain = (step.source, step.table, step.chain)
        if chain in stack:
            del stack[stack.index(chain) + 1 :]
        elif stack and stack[-1][:2] == chain[:2] and led.endswith(f" {step.chain}"):
            stack.append(chain)
        else:
            stack = [chain]
        led = step.did
        found.append(len(stack) - 1)
    return found
