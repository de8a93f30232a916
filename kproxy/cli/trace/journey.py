"""`kproxy trace` of a snapshot, a lab, or a cluster with --via: a connection's whole way over all hosts, and the way of
what comes back."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import click

from kproxy.cli.live_snapshot import settled
from kproxy.cli.output import answer, text_of, write_files, write_output, write_report
from kproxy.cli.sources import Sources
from kproxy.cli.trace.text import percent
from kproxy.cluster.evidence.unseen import headlines, suspected
from kproxy.cluster.journey.known import OUTSIDE, KnownNetwork, known_journeys
from kproxy.cluster.journey.network import POD
from kproxy.cluster.journey.path import ANSWERED, LOST, OPEN, REFUSED, UNREACHABLE, Hop, Journey
from kproxy.cluster.journey.question import PathQuestion, read_question
from kproxy.cluster.journey.record import assumed_on_the_way, journeys_record, missing_on_the_way, unseen_on_the_way
from kproxy.cluster.motion import in_motion
from kproxy.cluster.sources import Kind
from kproxy.dataplane.model.verdict import ACCEPT, DROP, INDETERMINATE, REJECT
from kproxy.words import with_arrows

MAX_SHOWN = 8
"""Journeys whose hops are shown; all are in the summary."""
COLOURS = {ANSWERED: "green", OPEN: "yellow"}
VERDICTS = {ANSWERED: ACCEPT, REFUSED: REJECT, LOST: DROP, UNREACHABLE: DROP, OPEN: INDETERMINATE}
"""What an end is for --expect."""


def trace_hosts(
    sources: Sources, given: Mapping[str, str], sport: int | None, shown: str | None, html: str | None, *, summary: bool
) -> Sequence[str]:
    """Reads a cluster, asks, and prints. A live one is read again where a way fails: it may have changed meanwhile.

    Args:
        given: the fields `from`, `to` and `proto`; `src` and `dst` stand for addresses in the first two.
        shown: `text`, `json` or `yaml`; None for text, or for nothing beside a page.
        html: the file of the page; None for none.
        summary: how each way ends, and not its hops.

    Returns:
        What becomes of the packet on each way that may be, as a verdict.

    Raises:
        KproxyError: the snapshot cannot be read, or a name stands for nothing.
    """
    sender, receiver = (given.get("from") or given.get("src"), given.get("to") or given.get("dst"))
    for one, other in (("from", "src"), ("to", "dst")):
        if one in given and other in given:
            raise click.UsageError(f"--{one} and --{other} exclude each other")
    if sender is None or receiver is None:
        raise click.UsageError("a way over all hosts needs --from and --to")

    def ask() -> tuple[KnownNetwork, PathQuestion, Sequence[Journey]]:
        network = KnownNetwork(sources.read_cluster())
        asked = read_question(network, sender, receiver, given.get("proto"), sources.namespace or "")
        ways = known_journeys(
            network, asked.client, asked.destination, asked.protocol, source=asked.source, source_port=sport
        )
        return network, asked, ways

    live = Kind.SNAPSHOT not in sources.kinds
    (network, question, found), _, moving = settled(ask, lambda state: _failures(state[2]), live=live)
    assumed, missing = assumed_on_the_way(network, found), missing_on_the_way(network, found)
    unseen = unseen_on_the_way(network, found)
    verdicts = [VERDICTS[each.end] for each in found if each.probability]
    said = (*headlines(suspected(unseen)), *missing, *([in_motion(moving)] if moving else ()))
    if html is not None:
        from kproxy.explorer.export.commands import journeys_page

        plain = "".join(f"{click.unstyle(line)}\n" for line in _lines(question, found, assumed, said))
        write_files({Path(html): journeys_page(network, question, found, plain)})
        if shown is None:
            return verdicts
    if shown in ("json", "yaml"):
        record = journeys_record(question, found, assumed, missing) | ({"moving": moving} if moving else {})
        value = answer("Journeys", record, unseen)
        for item in value["journeys"] if summary else ():
            del item["there"], item["back"]
        write_output(text_of(value, shown), None)
    else:
        write_report(_lines(question, found, assumed, said, hops=not summary))
    return verdicts


def _failures(found: Sequence[Journey]) -> set[tuple[str, str, str, str]]:
    """How ways end that are certain to fail."""
    return {(each.end, each.at, each.target, each.reason) for each in found if each.end not in COLOURS}


def short(host: str) -> str:
    """A host for people."""
    return f"{host.removeprefix(OUTSIDE)} (outside)" if host.startswith(OUTSIDE) else host


def _lines(
    question: PathQuestion, found: Sequence[Journey], notes: Sequence[str], missing: Sequence[str], *, hops: bool = True
) -> Iterator[str]:
    yield click.style(f"{question.protocol} {short(question.client)} → {question.destination}", bold=True)
    width = max(len(percent(item.probability)) for item in found)
    for item in found:
        yield f"  {percent(item.probability):>{width}}  {_end(item, question)}"
    for each in notes:
        yield click.style(f"assumed: {each}", fg="yellow")
    for each in missing:
        yield click.style(each, fg="yellow")
    for item in found[:MAX_SHOWN] if hops else ():
        yield from ("", *_journey(item, question))


def _end(item: Journey, question: PathQuestion) -> str:
    word = click.style(item.end, fg=COLOURS.get(item.end, "red"), bold=True)
    if item.end == ANSWERED:
        return f"{word} by {short(item.at)} at {item.target}, which sees {item.source}"
    sent = f", sent to {item.target}" if item.target != question.destination else ""
    back = ", on the way back" if item.back and item.at != item.there[-1].host else ""
    return f"{word} at {short(item.at)}{sent}{back}{f': {item.reason}' if item.reason else ''}"


def _journey(item: Journey, question: PathQuestion) -> Iterator[str]:
    yield f"{click.style(percent(item.probability), bold=True)} {_end(item, question)}"
    for hop in item.there:
        yield from _hop(hop)
    if item.back:
        yield "  and back:"
        for hop in item.back:
            yield from _hop(hop)


def _hop(hop: Hop) -> Iterator[str]:
    came, left = hop.arrived, hop.left
    where = f" in by {came.in_interface}" if came.in_interface else ""
    yield f"  {click.style(short(hop.host), fg='cyan', bold=True)}{where}: {came.source} → {came.destination}"
    for step in hop.outcome.steps:
        if step.kind in ("rule", "policy"):
            yield click.style(f"      {step.hook:<11} {step.table} {step.chain} {step.rule}: {step.did}", dim=True)
        elif step.kind == "translate":
            yield f"      {step.hook:<11} {with_arrows(step.did)}"
    if hop.outcome.verdict != "ACCEPT":
        why = hop.outcome.reason or "; ".join(hop.outcome.reasons)
        yield f"      {hop.outcome.verdict}{f': {why}' if why else ''}"
    elif hop.outcome.via == "local":
        yield "      delivered" + ("" if hop.host.startswith((POD, OUTSIDE)) else " to this host")
    else:
        by = f" by {left.out_interface}" if left.out_interface else ""
        inside = f", in {with_arrows(str(hop.outer))}" if hop.outer is not None else ""
        kept = ", and waits for its neighbour" if hop.held else ""
        yield f"      leaves{by}: {left.source} → {left.destination}{inside}{kept}"
