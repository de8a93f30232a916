"""`kproxy lab probe` and `kproxy lab trace`: what happens, and what the model says of it."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from fractions import Fraction
from typing import TYPE_CHECKING, Any

import click

from kproxy.cli.lab.common import name_option, open_model, short
from kproxy.cli.options import SecondsRange, both_families
from kproxy.cli.output import output_option, table_lines, terminal_width, working, write_bytes, write_result
from kproxy.cluster.journey.path import ANSWERED, Hop, Journey
from kproxy.lab.inspect.probe import Cell, Possible, ProbeResult, cells_of, run_probe
from kproxy.lab.inspect.targets import client_host, find_target
from kproxy.lab.spec import family_of
from kproxy.services import IPFamily
from kproxy.words import with_arrows

if TYPE_CHECKING:
    from kproxy.lab.inspect.follow import Followed


@click.command("probe")
@name_option
@click.option("--service", "services", metavar="[NS/]NAME", multiple=True, help="Only these Services; repeatable.")
@click.option(
    "--from", "sources", metavar="HOST", multiple=True,
    help="Ask from these (client, a node, a pod) instead of one client of each kind; repeatable.",
)  # fmt: skip
@both_families
@click.option("--count", type=click.IntRange(1, 1000), default=6, show_default=True, help="Questions for each cell.")
@click.option(
    "--timeout", type=SecondsRange(0.05, 60), default=1.5, show_default=True, metavar="SECONDS",
    help="After which a question counts as lost.",
)  # fmt: skip
@output_option
def probe(
    name: str,
    services: Sequence[str],
    sources: Sequence[str],
    families: tuple[IPFamily, ...],
    count: int,
    timeout: float,
    output_format: str,
) -> None:
    """Ask every Service from every kind of client, and compare what happens with what the model says.

    The model reads each node's rules, routes and interfaces from the kernel and follows the packet over all hosts. A
    cell shows which pods answered and which source address they saw; what the model says stands beside it. Exit code 1
    if they differ.

    \b
    Examples:
      kproxy lab probe
      kproxy lab probe --service web --from client --from node-2
      kproxy lab probe -o json | jq '.cells[] | select(.agrees | not)'
    """
    model = open_model(name)
    cluster = model.cluster
    cluster.require_api_server("the Services")
    chosen = [cluster.service(text) for text in services] or cluster.echoing
    hosts = [client_host(cluster, text) for text in sources]
    wanted = {family.version for family in families or IPFamily}
    cells = [each for each in cells_of(cluster, chosen, hosts) if family_of(each[1].address) in wanted]
    with working("probing"):
        result = ProbeResult(tuple(run_probe(model, cells, count=count, timeout=timeout)))
    write_result("LabProbe", result, output_format, matrix(result))
    if result.differing:
        sys.exit(1)


def matrix(result: ProbeResult) -> Iterator[str]:
    """The cells as a table for each Service, and how many agree."""
    by_service: dict[str, list[Cell]] = {}
    for cell in result.cells:
        by_service.setdefault(cell.target.service, []).append(cell)
    for service, cells in by_service.items():
        yield service
        rows = [("CLIENT", "ADDRESS", "SEEN", "MODEL", "")]
        for cell in cells:
            kind = f"{cell.client.kind}: " if cell.client.kind != "asked for" else ""
            mark = "DIFFERS" if not cell.agrees else "open" if cell.open else "="
            client = f"{kind}{short(cell.client.host)}"
            rows.append((client, cell.target.label, seen_words(cell), model_words(cell.possible), mark))
        yield from table_lines(rows, "  ", terminal_width())
    differing, opened = len(result.differing), sum(cell.open for cell in result.cells)
    tail = f", {opened} of them left open by the model" if opened else ""
    yield f"{len(result.cells)} cells: {len(result.cells) - differing} agree with the model{tail}, {differing} differ"


def seen_words(cell: Cell) -> str:
    """What was seen, in a few words."""
    answered = [item for item in cell.seen if item.end == ANSWERED]
    total = sum(item.count for item in cell.seen)
    others = [
        item.end if item.count == total else f"{item.end} {item.count} of {total}"
        for item in cell.seen
        if item.end != ANSWERED
    ]
    named = _grouped([(item.pod, item.source) for item in answered if item.pod])
    return ", ".join([*named, *(["answered"] if any(not item.pod for item in answered) else []), *others])


def model_words(possible: Sequence[Possible]) -> str:
    """What may happen, in a few words."""
    answered = [(item.pod or item.at, item.source) for item in possible if item.end == ANSWERED]
    chances: dict[tuple[str, str], Fraction] = {}
    for item in possible:
        if item.end != ANSWERED:
            key = (item.end, item.reason)
            chances[key] = chances.get(key, Fraction(0)) + Fraction(item.chance)
    others = [
        f"{end}{f' {float(chance):.0%}' if chance != 1 else ''}{f' ({reason})' if reason else ''}"
        for (end, reason), chance in chances.items()
    ]
    return ", ".join([*_grouped(answered), *others])


def _grouped(pairs: Sequence[tuple[str, str]]) -> list[str]:
    """Pods by the source that they see: `3 pods see 10.244.1.1`."""
    by_source: dict[str, list[str]] = {}
    for pod, source in pairs:
        by_source.setdefault(source, []).append(pod.removeprefix("default/"))
    found = []
    for source, pods in by_source.items():
        who = pods[0] if len(pods) == 1 else f"{len(pods)} pods"
        found.append(f"{who} sees {source}" if len(pods) == 1 else f"{who} see {source}")
    return found


@click.command("trace")
@name_option
@click.option("--from", "source", metavar="HOST", default="client", show_default=True, help="client, a node, or a pod.")
@click.option(
    "--to", "destination", metavar="TARGET", required=True,
    help="svc/, nodeport/, lb/, externalip/ or localhost/[NS/]NAME[:PORT][@NODE], pod/[NS/]NAME:PORT, or IP:PORT; "
    "/udp or /sctp after it.",
)  # fmt: skip
@click.option("-4", "family", flag_value=4, type=int, help="IPv4.")
@click.option("-6", "family", flag_value=6, type=int, help="IPv6.")
@click.option("--rules", is_flag=True, help="Show the rules that matched on every host.")
@click.option("-w", "--write", "pcap", metavar="FILE", help="Write what was captured, as pcapng.")
@click.option("--timeout", type=SecondsRange(0.05, 60), default=1.5, show_default=True, metavar="SECONDS")
@output_option
def trace(
    name: str,
    source: str,
    destination: str,
    family: int | None,
    rules: bool,
    pcap: str | None,
    timeout: float,
    output_format: str,
) -> None:
    """Make one connection and follow it: what the model says of every hop, and the packet that was captured there.

    The first packet and what first answers it are compared at every interface: addresses, ports, the VXLAN header. Exit
    code 1 if the model and the capture differ.

    \b
    Examples:
      kproxy lab trace --from client --to nodeport/web@node-1
      kproxy lab trace --from web-6d4cf --to svc/web --rules
      kproxy lab trace --from node-2 --to 10.96.0.10:53/udp -w dns.pcap
    """
    from kproxy.lab.capture.frames import pcapng
    from kproxy.lab.inspect.follow import follow

    model = open_model(name)
    sender, receiver = client_host(model.cluster, source), find_target(model.cluster, destination, family)
    found = follow(model, sender, receiver, timeout=timeout)
    if pcap is not None:
        write_bytes(pcap, pcapng(found.frames))
    write_result("LabTrace", as_json(found), output_format, describe(found, rules))
    if not found.agrees:
        sys.exit(1)


def describe(found: Followed, rules: bool) -> Iterator[str]:
    yield f"{short(found.client)} → {found.target.label}"
    if len(found.journeys) > 1:
        yield f"the model knows {len(found.journeys)} ways:"
        for journey in found.journeys[:8]:
            yield f"  {float(journey.probability):6.1%}  {journey_words(journey)}"
        if len(found.journeys) > 8:
            yield f"  and {len(found.journeys) - 8} more"
    elif found.journeys and found.journeys[0].end != ANSWERED:
        yield f"the model: {journey_words(found.journeys[0])}"
    pod = found.answer.pod if found.answer.end == ANSWERED else ""
    told = f"{short(pod)} on {found.answer.node} answered and saw {found.answer.source}" if pod else found.answer.end
    yield f"this time: {told}"
    yield ""
    rows = [("HOP", "MODEL", "CAPTURED", "")]
    direction = "there"
    for wanted, seen in found.compared.pairs:
        item = wanted or seen
        assert item is not None
        if item.direction != direction:
            direction = item.direction
            rows.append(("-- and back --", "", "", ""))
        model, captured = (with_arrows(each.words) if each else "" for each in (wanted, seen))
        place = f"{short(item.host)} {'out' if item.outgoing else 'in'} {item.device}"
        rows.append((place, model, captured, "NOT EXPECTED" if not wanted else "=" if seen else "NOT SEEN"))
    yield from table_lines(rows, width=terminal_width())
    if rules:
        yield ""
        for hop in (*found.compared.journey.there, *found.compared.journey.back):
            yield from _rules(hop)
    yield ""
    if found.is_open:
        yield "the model leaves open what happens"
    count = len(found.compared.pairs)
    yield f"{count - found.compared.differences} of {count} hops agree" + ("" if found.agrees else ": THEY DIFFER")


def journey_words(journey: Journey) -> str:
    """A journey in a few words."""
    if journey.end == ANSWERED:
        return f"{short(journey.at)} answers and sees {journey.source}"
    return f"{journey.end} at {short(journey.at)}{f': {journey.reason}' if journey.reason else ''}"


def _rules(hop: Hop) -> Iterator[str]:
    """The rules that matched on a host, and what else was done there."""
    if hop.outcome.steps:
        yield f"{short(hop.host)}: {with_arrows(str(hop.arrived))}"
    for step in hop.outcome.steps:
        did = f"{step.table} {step.text}" if step.kind == "rule" else f"{step.kind}: {with_arrows(step.did)}"
        yield f"    {step.hook:<12} {did}"


def as_json(found: Followed) -> dict[str, Any]:
    """The trace as `lab trace -o json` prints it."""
    return {
        "from": found.client,
        "to": found.target,
        "journeys": [
            {"probability": str(journey.probability)}
            | {name: getattr(journey, name) for name in ("end", "at", "pod", "source", "reason")}
            for journey in found.journeys
        ],
        "answer": found.answer,
        "agrees": found.agrees,
        "open": found.is_open,
        "hops": [
            {
                "way": place.direction,
                "host": place.host,
                "device": place.device,
                "direction": "out" if place.outgoing else "in",
                "model": wanted.words if wanted else None,
                "captured": seen.words if seen else None,
                "time": seen.time if seen else None,
            }
            for wanted, seen in found.compared.pairs
            if (place := wanted or seen) is not None
        ],
    }
