"""Explore: the explorer's answers for 1000x5, 2000x5, 5000x10 and 10000x3 services and endpoints on ten nodes, from
manifests.

Each size runs in a process of its own. Times are without HTTP, which adds about a millisecond, but with the JSON. The
targets: 300 ms for a question at 2000x5, the worst one too, and 100 ms for what is on the page.
"""

from __future__ import annotations

import json
import resource
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from pathlib import Path

import msgspec

from bench.generate import cluster_lines

SIZES = ((1000, 5), (2000, 5), (5000, 10), (10_000, 3))
NODES = 10
ASKED = 100


class Measured(msgspec.Struct):
    """One size. Times in seconds, memory in KiB. `early` is a question that comes as soon as the page is there, `ready`
    when all is made ready in the background; what follows comes after that: `map` is the whole map as clients on
    another node have it, `again` the same once more; `ask` and `worst` are questions, each about another Service;
    `whatif` marks an endpoint terminating and compares all nodes."""

    load: float
    early: float
    ready: float
    map: float
    again: float
    ask: float
    worst: float
    rules: float
    service: float
    whatif: float
    peak: int


def write_manifests(services: int, endpoints: int, path: Path) -> None:
    """The cluster of `bench.generate`, with all its nodes."""
    lines = list(cluster_lines(services, endpoints))
    node = json.loads(lines[0])
    for number in range(1, NODES):
        status = {"addresses": [{"type": "InternalIP", "address": f"192.168.0.{number + 2}"}]}
        spec = {"podCIDRs": [f"10.0.{number}.0/24"]}
        lines.append(json.dumps({**node, "metadata": {"name": f"node-{number}"}, "spec": spec, "status": status}))
    path.write_text("\n".join(lines))


def measure(path: str, services: int) -> Measured:
    """Measures one size in this process."""
    from kproxy.cluster.edits import Edit
    from kproxy.explorer.answers.ask import Ask, AskRule, answer
    from kproxy.explorer.answers.hop_rules import hop_rules
    from kproxy.explorer.answers.map import map_answer
    from kproxy.explorer.answers.service import ServiceQuery, service_page
    from kproxy.explorer.compare.compare import WhatIf, what_if
    from kproxy.explorer.model.model import Work
    from kproxy.explorer.page import encode
    from kproxy.explorer.server.listener import settle_garbage
    from kproxy.explorer.sources.source import ManifestSource
    from kproxy.explorer.state import Explorer
    from kproxy.render import Features

    def timed(function: Callable[[], object]) -> float:
        begin = time.perf_counter()
        found = function()
        if not isinstance(found, bytes):
            encode(found)
        return time.perf_counter() - begin

    start = time.perf_counter()
    explorer = Explorer(ManifestSource([path], None, None, Features()))
    load = time.perf_counter() - start
    model = explorer.model
    warm = threading.Event()

    def rest() -> None:
        settle_garbage()
        warm.set()

    def ask(number: int) -> float:
        name = f"svc/bench/svc-{number * 97 % services}"
        return timed(lambda: answer(model, Ask("node/node-1", name, protocol="tcp")))

    begin = time.perf_counter()
    explorer.start(rest)
    early = ask(1)
    warm.wait()
    ready = time.perf_counter() - begin
    times = [ask(number) for number in range(ASKED)]
    edits = (Edit("endpoint", address=_endpoint(model.manifests.endpoint_slices[7]), set={"ready": False}),)
    return Measured(
        load=load,
        early=early,
        ready=ready,
        map=timed(lambda: map_answer(model, "node-1", Work(600))),
        again=timed(lambda: map_answer(model, "node-1", Work(600))),
        ask=statistics.median(times),
        worst=max(times),
        rules=timed(lambda: hop_rules(model, AskRule("node/node-1", "svc/bench/svc-9", protocol="tcp"))),
        service=timed(lambda: service_page(model, "bench/svc-2", ServiceQuery(), Work(600))),
        whatif=timed(lambda: what_if(model, explorer.copy_with(edits), WhatIf(edits), Work(600))),
        peak=resource.getrusage(resource.RUSAGE_SELF).ru_maxrss,
    )


def _endpoint(item: object) -> str:
    from kproxy.api import EndpointSlice

    assert isinstance(item, EndpointSlice)
    return item.endpoints[0].addresses[0]


def main() -> None:
    """Prints the table."""
    from rich.console import Console
    from rich.table import Table

    table = Table(title="explore: answers of the explorer's model, ten nodes, from manifests")
    headings = (
        "size",
        "load",
        "early question",
        "ready",
        "map",
        "again",
        "question",
        "worst",
        "rules",
        "Service",
        "what if",
    )
    for heading in (*headings, "peak memory"):
        table.add_column(heading, justify="right")
    with tempfile.TemporaryDirectory() as name:
        for size in SIZES:
            path = Path(name) / f"{size[0]}x{size[1]}.jsonl"
            write_manifests(*size, path)
            command = [sys.executable, "-m", "bench.explore", str(path), str(size[0])]
            done = subprocess.run(command, check=True, capture_output=True, text=True)
            got = Measured(**json.loads(done.stdout))
            short = (got.map, got.again, got.ask, got.worst, got.rules, got.service)
            table.add_row(
                f"{size[0]}x{size[1]}",
                f"{got.load:.1f} s",
                f"{got.early:.1f} s",
                f"{got.ready:.1f} s",
                *(f"{each * 1000:.0f} ms" for each in short),
                f"{got.whatif:.1f} s",
                f"{got.peak / 1024:.0f} MiB",
            )
    Console(width=None if sys.stdout.isatty() else 140).print(table)


if __name__ == "__main__":
    sys.stdout.write(msgspec.json.encode(measure(sys.argv[1], int(sys.argv[2]))).decode())
