"""`kproxy lab trace`."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from kproxy.cli.lab.common import name_option, open_lab
from kproxy.cli.options import SecondsRange
from kproxy.cli.output import OutputError, output_option, table_lines, terminal_width, write_result
from kproxy.cluster.journey.path import ANSWERED, Hop, Journey
from kproxy.dataplane.concrete.graph import Step
from kproxy.lab.cluster import read_cluster
from kproxy.lab.inspect.targets import client_host, find_target
from kproxy.lab.model.hosts import LabModel
from kproxy.words import with_arrows

if TYPE_CHECKING:
    from kproxy.lab.capture.dissect import ObservedPacket
    from kproxy.lab.capture.expect import Expected
    from kproxy.lab.inspect.follow import Followed


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
def command(
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

    lab, record = open_lab(name)
    cluster = read_cluster(lab, record)
    model = LabModel(record.spec, cluster)
    found = follow(model, client_host(cluster, source), find_target(cluster, destination, family), timeout=timeout)
    if pcap is not None:
        write_bytes(pcap, pcapng(found.frames))
    write_result("LabTrace", as_json(found), output_format, describe(found, rules))
    if not found.agrees:
        sys.exit(1)


def write_bytes(path: str, data: bytes) -> None:
    """Writes a binary file. Raises OutputError."""
    try:
        Path(path).write_bytes(data)
    except OSError as error:
        raise OutputError(f"cannot write {path}: {error.strerror or error}") from error


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
    yield f"this time: {answer_words(found)}"
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
        rows.append((place_words(item), model, captured, _mark(wanted, seen)))
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


def short(host: str) -> str:
    """A host's name without `pod/` and the namespace `default`."""
    return host.removeprefix("pod/").removeprefix("default/")


def journey_words(journey: Journey) -> str:
    """A journey in a few words."""
    if journey.end == ANSWERED:
        return f"{short(journey.at)} answers and sees {journey.source}"
    return f"{journey.end} at {short(journey.at)}{f': {journey.reason}' if journey.reason else ''}"


def answer_words(found: Followed) -> str:
    """What the client received, in a few words."""
    answer = found.answer
    if answer.end == ANSWERED and answer.pod:
        return f"{short(answer.pod)} on {answer.node} answered and saw {answer.source}"
    return answer.end


def place_words(item: Expected | ObservedPacket) -> str:
    """Host, direction and interface of a packet, in a few words."""
    return f"{short(item.host)} {'out' if item.outgoing else 'in'} {item.device}"


def _mark(wanted: Expected | None, seen: ObservedPacket | None) -> str:
    if wanted is None:
        return "NOT EXPECTED"
    return "NOT SEEN" if seen is None else "="


def _rules(hop: Hop) -> Iterator[str]:
    steps: Sequence[Step] = hop.outcome.steps
    if not steps:
        return
    yield f"{short(hop.host)}: {with_arrows(str(hop.arrived))}"
    for step in steps:
        yield f"    {step.hook:<12} {rule_words(step)}"


def rule_words(step: Step) -> str:
    """A step of the model's path, in a few words."""
    if step.kind == "rule":
        return f"{step.table} {step.text}"
    return f"{step.kind}: {with_arrows(step.did)}"


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
