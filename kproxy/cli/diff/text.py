"""A comparison in plain text, and as JSON."""

from __future__ import annotations

import difflib
from collections.abc import Iterator, Sequence
from fractions import Fraction

import click
import msgspec

from kproxy.dataplane import Index, Outcome, TraceResult, format_endpoint
from kproxy.dataplane.compare.compare import Comparison, Difference, trace_witness
from kproxy.dataplane.compare.witness import Situation
from kproxy.dataplane.model.packet import LOCAL
from kproxy.netfilter import Ruleset
from kproxy.netfilter.address import format_address
from kproxy.netfilter.family import protocol_name

MAX_OUTCOMES = 4
MAX_SITES = 6
SIDES = ("A", "B")
COLOURS = {"ACCEPT": "green", "DROP": "red", "REJECT": "red", "INDETERMINATE": "yellow"}

Indexes = tuple[Index, Index]


def comparison_text(found: Comparison, labels: Sequence[str], indexes: Indexes, max_shown: int | None) -> Iterator[str]:
    """The lines of the answer."""
    width = max(map(len, labels))
    for side, label, index in zip(SIDES, labels, indexes, strict=True):
        yield f"{click.style(side, bold=True)}  {label:<{width}}  {index.ruleset.rule_count:,} rules"
    yield ""
    if found.alike:
        yield click.style("alike: every packet is treated the same", fg="green", bold=True)
    elif found.differences:
        yield click.style(f"different: {_count(found)}", fg="red", bold=True)
    else:
        yield click.style(
            "not decided: no difference is certain, and not every packet is certain", fg="yellow", bold=True
        )
    shown = found.differences if max_shown is None else found.differences[:max_shown]
    for number, difference in enumerate(shown, 1):
        yield ""
        yield from _difference_text(number, difference, indexes)
    hidden = len(found.differences) - len(shown)
    if hidden or found.unexamined or found.unusual:
        yield ""
        parts = [f"{hidden:,} more differences are not shown"] if hidden else []
        if found.unusual:
            parts.append(
                f"{found.unusual:,} findings are left out that are about connections translated already, broadcast, or "
                "endpoints that are the host's own"
            )
        if found.unexamined:
            parts.append(f"{found.unexamined:,} more destinations differ and were not put into words")
        yield f"{'; '.join(parts)}: --all shows everything"
    if found.undecided:
        yield ""
        yield click.style("what the model cannot decide:", fg="yellow", bold=True)
        yield from (f"  {item.where}: {item.reason}" for item in found.undecided)
    if found.remarks:
        yield ""
        yield "differences that change no packet's treatment:"
        yield from (f"  {text}" for text in found.remarks)


def _count(found: Comparison) -> str:
    count = len(found.differences)
    return f"{count:,} differences" if count != 1 else "1 difference"


def _difference_text(number: int, difference: Difference, indexes: Indexes) -> Iterator[str]:
    shown = ", ".join(difference.destinations[:MAX_SITES])
    if len(difference.destinations) > MAX_SITES:
        shown += f" and {len(difference.destinations) - MAX_SITES:,} more destinations"
    conditions = f", {difference.conditions}" if difference.conditions else ""
    yield click.style(f"{number}. {shown} from {difference.sources}{conditions}", bold=True)
    for side, text in zip(SIDES, (difference.one, difference.other), strict=True):
        yield f"     {click.style(side, bold=True)} {text}"
    yield f"   for example {situation_text(difference.witness)}"
    for side, result in zip(SIDES, trace_witness(indexes, difference), strict=True):
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
    for place, (outcome, chance) in enumerate(zip(shown, chances, strict=True)):
        head = click.style(side, bold=True) if place == 0 else " "
        verdict = click.style(outcome.verdict, fg=COLOURS[outcome.verdict])
        yield f"     {head} {chance:>{width}}  {verdict} {_end(outcome)}"
        yield f"       {'':>{width}}  {click.style(_path(outcome), dim=True)}"
    if len(result.outcomes) > len(shown):
        yield f"       and {len(result.outcomes) - len(shown)} more outcomes"


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
        place = f"{step.chain} {step.rule}"
        if parts and parts[-1][0] == step.table:
            parts[-1][1].append(place)
        else:
            parts.append((step.table, [place]))
    return "; ".join(f"{table} {', '.join(places)}" for table, places in parts) or "no rule matches"


# JSON


def comparison_json(found: Comparison, labels: Sequence[str], indexes: Indexes) -> bytes:
    """The answer for programs; docs/diff.md lists the fields."""
    record = {
        "alike": found.alike,
        "a": labels[0],
        "b": labels[1],
        "differences": [_difference_record(item, indexes) for item in found.differences],
        "unexamined": found.unexamined,
        "unusual": found.unusual,
        "undecided": [{"where": item.where, "reason": item.reason} for item in found.undecided],
        "remarks": list(found.remarks),
    }
    return msgspec.json.format(msgspec.json.encode(record)) + b"\n"


def _difference_record(item: Difference, indexes: Indexes) -> dict[str, object]:
    packet = item.witness.packet
    traces = trace_witness(indexes, item)
    return {
        "destinations": list(item.destinations),
        "from": item.sources,
        "conditions": item.conditions,
        "a": item.one,
        "b": item.other,
        "witness": {
            "src": packet.source,
            "dst": packet.destination,
            "proto": protocol_name(packet.protocol),
            "origin": packet.origin,
            "in": packet.in_interface or "",
            "mark": packet.mark,
            "ctstate": item.witness.connection.state,
            "localAddresses": [
                format_address(address, family) for family, address in sorted(
                    item.witness.host.local_addresses or (), key=lambda pair: pair[1]
                )
            ],
            "assumed": [{"match": question.text, "holds": answer} for question, answer in item.witness.assumed],
            "a": [_outcome_record(outcome) for outcome in traces[0].outcomes],
            "b": [_outcome_record(outcome) for outcome in traces[1].outcomes],
        },
    }  # fmt: skip


def _outcome_record(outcome: Outcome) -> dict[str, object]:
    return {
        "probability": f"{outcome.probability.numerator}/{outcome.probability.denominator}",
        "verdict": outcome.verdict,
        "src": outcome.src,
        "dst": outcome.dst,
        "dnat": outcome.dnat,
        "masquerade": outcome.masquerade,
        "hook": outcome.hook,
        "path": [
            {"table": step.table, "chain": step.chain, "rule": step.rule, "text": step.text} for step in outcome.path
        ],
    }


# text


def text_difference(rulesets: Sequence[Ruleset], labels: Sequence[str]) -> Iterator[str]:
    """A unified diff of what iptables-save would print: counters and comment lines left out."""
    first, second = ([*_save_lines(ruleset)] for ruleset in rulesets)
    for line in difflib.unified_diff(first, second, labels[0], labels[1], n=1, lineterm=""):
        colour = {"-": "red", "+": "green", "@": "cyan"}.get(line[0])
        yield click.style(line, fg=colour) if colour else line


def _save_lines(ruleset: Ruleset) -> Iterator[str]:
    for table in ruleset.in_save_order().tables:
        yield f"*{table.name}"
        yield from (f":{chain.name} {chain.policy or '-'}" for chain in table.chains)
        yield from (rule.to_restore(chain.name) for chain in table.chains for rule in chain.rules)
        yield "COMMIT"
