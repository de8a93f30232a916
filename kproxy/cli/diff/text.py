"""A comparison in plain text."""

from __future__ import annotations

import difflib
from collections.abc import Iterator, Sequence
from fractions import Fraction

import click

from kproxy.cli.output import Verbatim
from kproxy.dataplane import Outcome, TraceResult, format_endpoint
from kproxy.dataplane.compare.compare import Comparison
from kproxy.dataplane.compare.difference import Cause, Difference
from kproxy.dataplane.compare.witness import Situation
from kproxy.dataplane.model.packet import LOCAL
from kproxy.dataplane.symbolic.host_rules import SideRules
from kproxy.netfilter.address import format_address
from kproxy.netfilter.family import protocol_name
from kproxy.netfilter.nftables.style import Style
from kproxy.netfilter.nftables.text import print_nft
from kproxy.words import counted

SIDES = ("A", "B")
MAX_OUTCOMES = 4
MAX_SITES = 6
COLOURS = {"ACCEPT": "green", "DROP": "red", "REJECT": "red", "INDETERMINATE": "yellow"}


def comparison_text(
    found: Comparison, labels: Sequence[str], counts: Sequence[int], max_shown: int | None
) -> Iterator[str]:
    """The lines of the answer. `counts` are the numbers of rules; `max_shown` None shows everything."""
    width = max(map(len, labels))
    for side, label, count in zip(SIDES, labels, counts, strict=True):
        yield f"{click.style(side, bold=True)}  {label:<{width}}  {counted(count, 'rule')}"
    yield ""
    findings = found.findings
    only = found.families[0].value if len(found.families) == 1 else ""
    if found.alike:
        yield click.style(f"alike: every {f'{only} ' if only else ''}packet is treated the same", fg="green", bold=True)
    elif found.differences:
        of = f" of {only} packets" if only else ""
        yield click.style(f"different: {counted(len(findings), 'difference')}{of}", fg="red", bold=True)
    elif not found.stopped:
        yield click.style(
            "not decided: no difference is certain, and not every packet is certain", fg="yellow", bold=True
        )
    shown = findings if max_shown is None else findings[:max_shown]
    for number, finding in enumerate(shown, 1):
        yield ""
        family = found.family_of(finding[0])
        yield from _finding_text(f"{number}. {f'{family}: ' if family else ''}", finding, everything=max_shown is None)
    hidden = len(findings) - len(shown)
    if hidden or found.unexamined or found.unusual:
        yield ""
        parts = [f"{counted(hidden, 'more difference')} {_are(hidden)} not shown"] if hidden else []
        if found.unusual:
            parts.append(
                f"{counted(found.unusual, 'finding')} {_are(found.unusual)} left out, about connections translated "
                "already, broadcast, or endpoints that are the host's own"
            )
        if found.unexamined:
            one = found.unexamined == 1
            differ = "differs and was" if one else "differ and were"
            parts.append(f"{counted(found.unexamined, 'more destination')} {differ} not put into words")
        yield f"{'; '.join(parts)}: --all shows everything"
    if found.undecided:
        yield ""
        yield click.style("what the model cannot decide:", fg="yellow", bold=True)
        yield from (f"  {item.where}: {item.reason}" for item in found.undecided)
    if found.stopped:
        yield ""
        yield click.style(f"not compared to the end: {found.stopped}", fg="yellow", bold=True)
        for result in dict.fromkeys(part.result for part in found.parts):
            parts = [
                f"{part.family} {part.origin} {part.state}".lstrip() for part in found.parts if part.result == result
            ]
            yield f"  {result}: {', '.join(parts)}"
    if found.remarks:
        yield ""
        yield "differences that change no packet's treatment:"
        yield from (f"  {text}" for text in found.remarks)


def _finding_text(head: str, finding: Sequence[Difference], *, everything: bool) -> Iterator[str]:
    """One finding: if several differences or destinations have one cause, that first, with the first difference as its
    example."""
    cause = finding[0].cause
    count = len({place.own for item in finding for place in item.places})
    if cause is None or len(finding) == count == 1:
        yield from _difference_text(head, finding[0], cause)
        return
    yield click.style(f"{head}{cause.words()}: {counted(count, 'destination')}, as:", bold=True)
    yield from _changed_text(cause)
    for item in finding if everything else finding[:1]:
        yield from _difference_text("   ", item)
    if len(finding) > 1 and not everything:
        more = len(finding) - 1
        yield f"   and {counted(more, 'more difference')} of this cause: --all shows {'it' if more == 1 else 'them'}"


def _changed_text(cause: Cause) -> Iterator[str]:
    """What each side has, if both have something in that place, with the words that differ marked."""
    if cause.instead is None:
        return
    one, other = (text.split(" ") for text in cause.texts)
    opcodes = difflib.SequenceMatcher(None, one, other, autojunk=False).get_opcodes()
    for side, words, spans in (
        (SIDES[0], one, [(tag, first, last) for tag, first, last, _, _ in opcodes]),
        (SIDES[1], other, [(tag, first, last) for tag, _, _, first, last in opcodes]),
    ):
        parts = [
            word if tag == "equal" else click.style(word, bold=True)
            for tag, first, last in spans
            for word in words[first:last]
        ]
        yield Verbatim(f"     {click.style(side, bold=True)} has {' '.join(parts)}")


def _are(count: int) -> str:
    return "is" if count == 1 else "are"


def _difference_text(head: str, difference: Difference, cause: Cause | None = None) -> Iterator[str]:
    shown = ", ".join(difference.destinations[:MAX_SITES])
    if len(difference.destinations) > MAX_SITES:
        shown += f" and {counted(len(difference.destinations) - MAX_SITES, 'more destination')}"
    conditions = f", {difference.conditions}" if difference.conditions else ""
    yield click.style(f"{head}{shown} from {difference.sources}{conditions}", bold=True)
    if cause is not None:
        yield f"   {cause.words()}:"
        yield from _changed_text(cause)
    for side, text in zip(SIDES, (difference.one, difference.other), strict=True):
        yield f"     {click.style(side, bold=True)} {text}"
    yield f"   for example {situation_text(difference.witness)}"
    for side, result in zip(SIDES, difference.traces, strict=True):
        yield from _trace_text(side, result)


def situation_text(item: Situation) -> str:
    """The witness in one line."""
    packet = item.packet
    parts = [f"{protocol_name(packet.protocol)} {packet.source} → {packet.destination}"]
    parts.append("made by this host" if packet.origin == LOCAL else f"arriving on {packet.in_interface}")
    parts.append(f"state {item.connection.state}")
    if packet.mark:
        parts.append(f"mark 0x{packet.mark:x}")
    if item.connection.mark:
        parts.append(f"connection mark 0x{item.connection.mark:x}")
    own = sorted(address for family, address in item.host.local_addresses or () if family is packet.family)
    if own:
        parts.append(f"on a host with {', '.join(format_address(address, packet.family) for address in own[:3])}")
    parts += [f"`{question.text}` {'holds' if answer else 'does not hold'}" for question, answer in item.assumed]
    return ", ".join(parts)


def _trace_text(side: str, result: TraceResult) -> Iterator[str]:
    shown = result.outcomes[:MAX_OUTCOMES]
    chances = [_chance(outcome.probability) for outcome in shown]
    width = max(map(len, chances))
    for index, (outcome, chance) in enumerate(zip(shown, chances, strict=True)):
        head = click.style(side, bold=True) if index == 0 else " "
        verdict = click.style(outcome.verdict, fg=COLOURS[outcome.verdict])
        yield f"     {head} {chance:>{width}}  {verdict} {_end(outcome)}"
        yield f"       {'':>{width}}  {click.style(_path(outcome), dim=True)}"
    if len(result.outcomes) > len(shown):
        yield f"       and {counted(len(result.outcomes) - len(shown), 'more outcome')}"


def _chance(value: Fraction) -> str:
    near = value.limit_denominator(10_000)
    return str(near) if abs(near - value) < Fraction(1, 1 << 26) else f"{float(value):.6f}"


def _end(outcome: Outcome) -> str:
    packet = outcome.packet
    if outcome.verdict == "REJECT":
        return f"in {outcome.hook} with {outcome.reject}"
    if outcome.verdict == "DROP":
        return f"in {outcome.hook}{f': {outcome.reason}' if outcome.reason else ''}"
    text = f"{packet.source} → {format_endpoint(packet.family, packet.dst, packet.dport)}"
    notes = [word for word, held in (("DNAT", outcome.dnat), ("source rewritten", outcome.snat)) if held]
    if packet.mark:
        notes.append(f"mark 0x{packet.mark:x}")
    return f"{text} ({', '.join(notes)})" if notes else text


def _path(outcome: Outcome) -> str:
    """The rules that matched: `nat PREROUTING 1, KUBE-SERVICES 4; filter FORWARD 2`."""
    parts: list[tuple[str, list[str]]] = []
    for step in outcome.path:
        rule = f"{step.chain} {step.rule}"
        if parts and parts[-1][0] == step.table:
            parts[-1][1].append(rule)
        else:
            parts.append((step.table, [rule]))
    return "; ".join(f"{table} {', '.join(rules)}" for table, rules in parts) or "no rule matches"


def text_difference(rulesets: Sequence[SideRules], labels: Sequence[str]) -> Iterator[str]:
    """A unified diff of what iptables-save and nft would print: counters and comment lines left out."""
    first, second = ([*_save_lines(ruleset)] for ruleset in rulesets)
    for line in difflib.unified_diff(first, second, labels[0], labels[1], n=1, lineterm=""):
        colour = {"-": "red", "+": "green", "@": "cyan"}.get(line[0])
        yield click.style(line, fg=colour) if colour else line


def _save_lines(rules: SideRules) -> Iterator[str]:
    for table in (table for ruleset in rules.rulesets for table in ruleset.in_save_order().tables):
        yield f"*{table.name}"
        yield from (f":{chain.name} {chain.policy or '-'}" for chain in table.chains)
        yield from (rule.to_restore(chain.name) for chain in table.chains for rule in chain.rules)
        yield "COMMIT"
    yield from print_nft(rules.nftables, Style(stateless=True)).splitlines()
