"""`kproxy lab probe`."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from fractions import Fraction

import click

from kproxy.cli.lab.common import name_option, open_lab
from kproxy.cli.options import SecondsRange, both_families
from kproxy.cli.output import output_option, table_lines, terminal_width, working, write_result
from kproxy.cluster.journey.path import ANSWERED
from kproxy.lab.cluster import read_cluster
from kproxy.lab.inspect.probe import Cell, Possible, ProbeResult, cells_of, run_probe
from kproxy.lab.inspect.targets import client_host
from kproxy.lab.model.hosts import LabModel
from kproxy.lab.spec import family_of
from kproxy.services import IPFamily


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
def command(
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
    lab, record = open_lab(name)
    cluster = read_cluster(lab, record)
    cluster.require_api_server("the Services")
    chosen = [cluster.service(text) for text in services] or cluster.echoing
    hosts = [client_host(cluster, text) for text in sources]
    wanted = {family.version for family in families or IPFamily}
    cells = [each for each in cells_of(cluster, chosen, hosts) if family_of(each[1].address) in wanted]
    with working("probing"):
        result = ProbeResult(tuple(run_probe(LabModel(record.spec, cluster), cells, count=count, timeout=timeout)))
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
        rows += [
            (_client(cell), cell.target.label, seen_words(cell), model_words(cell.possible), _mark(cell))
            for cell in cells
        ]
        yield from table_lines(rows, "  ", terminal_width())
    differing, opened = len(result.differing), sum(cell.open for cell in result.cells)
    tail = f", {opened} of them left open by the model" if opened else ""
    yield f"{len(result.cells)} cells: {len(result.cells) - differing} agree with the model{tail}, {differing} differ"


def _client(cell: Cell) -> str:
    host = cell.client.host.removeprefix("pod/").removeprefix("default/")
    return f"{cell.client.kind}: {host}" if cell.client.kind != "asked for" else host


def _mark(cell: Cell) -> str:
    return "DIFFERS" if not cell.agrees else "open" if cell.open else "="


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
    others = [_other(*key, chance) for key, chance in chances.items()]
    return ", ".join([*_grouped(answered), *others])


def _other(end: str, reason: str, chance: Fraction) -> str:
    share = f" {float(chance):.0%}" if chance != 1 else ""
    return f"{end}{share}{f' ({reason})' if reason else ''}"


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
