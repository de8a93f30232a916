"""Diff: whether two rule sets treat every packet alike, at 1000x5, 2000x5 and 7000x10 services and endpoints.

Both sides are what iptables-save prints on a node with that many ClusterIP Services: 7000x10 makes 224,000 rules. Each
case runs in a process of its own, so that its peak memory is its own. Times are processor time of its one thread:

    identical      the same text twice
    renamed        every chain of kube-proxy's under another name, and the dispatch rules in another order
    one rule       one endpoint's DNAT goes to another port
    mark           another mark bit throughout, which packets that bring along the one or the other can tell
    half           every second service lost an endpoint

A second table, at 2000x5 and 5000x10, has the same cluster in both modes: reading and indexing each side's text, with a
first packet through it, and comparing the two.
"""

from __future__ import annotations

import gc
import json
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from bench.generate import service
from bench.trace import write_dump

if TYPE_CHECKING:
    from rich.table import Table as RichTable

SIZES = ((1000, 5), (2000, 5), (7000, 10))
MODE_SIZES = ((2000, 5), (5000, 10))
CASES = ("identical", "renamed", "one rule", "mark", "half")


class Measured(msgspec.Struct):
    """One case. Times in seconds, memory in KiB. `differences` counts those put into words, `left` the destinations
    that were not."""

    rules: int
    read: float
    compare: float
    alike: bool
    differences: int
    left: int
    undecided: int
    peak: int


def changed(text: str, case: str) -> str:
    """The other side of a case."""
    if case == "renamed":
        for prefix in ("SVC", "SEP", "EXT", "SVL", "FW"):
            text = text.replace(f"KUBE-{prefix}-", f"OTHER-{prefix}-")
        return _dispatch_reversed(text)
    if case == "one rule":
        return "8081".join(text.rsplit("8080", 1))
    if case == "mark":
        return text.replace("0x4000", "0x100000")
    if case == "half":
        return _without_endpoints(text)
    return text


def _dispatch_reversed(text: str) -> str:
    lines = text.splitlines()
    places = [
        place
        for place, line in enumerate(lines)
        if line.startswith("-A KUBE-SERVICES ") and "must be the last rule" not in line
    ]
    for place, line in zip(places, [lines[place] for place in reversed(places)], strict=True):
        lines[place] = line
    return "\n".join(lines) + "\n"


def _without_endpoints(text: str) -> str:
    """Takes the first endpoint of every second service out of its chain; the chances of the others stay as they are."""
    kept, seen = [], {""}
    for line in text.splitlines():
        found = re.match(r"-A (KUBE-SVC-\S+) .*-j KUBE-SEP-", line)
        if found is not None and found[1] not in seen:
            seen.add(found[1])
            if len(seen) % 2 == 0:
                continue
        kept.append(line)
    return "\n".join(kept) + "\n"


def measure(one: str, other: str) -> Measured:
    """Measures one case in this process."""
    from kproxy.dataplane.compare.compare import compare
    from kproxy.netfilter import parse_save

    gc.disable()
    start = time.process_time()
    first, second = (parse_save(Path(path).read_text(), path) for path in (one, other))
    read = time.process_time()
    found = compare(first, second)
    done = time.process_time()
    return Measured(
        rules=first.rule_count,
        read=read - start,
        compare=done - read,
        alike=found.alike,
        differences=len(found.differences),
        left=found.unexamined,
        undecided=len(found.undecided),
        peak=_peak(),
    )


class Side(msgspec.Struct):
    """One mode's rules: seconds to read and index them, for a first packet and for the next, and the memory of the
    process, in KiB."""

    index: float
    first: float
    packet: float
    peak: int


def measure_side(path: str) -> Side:
    """Measures one mode in this process."""
    from kproxy.dataplane import Host, index_ruleset, make_packet, trace
    from kproxy.netfilter import Family, parse_save
    from kproxy.netfilter.nftables.text import parse_nft

    gc.disable()
    start = time.process_time()
    text = Path(path).read_text()
    if path.endswith(".nft"):
        index = index_ruleset((), nftables=parse_nft(text, path), family=Family.IPV4)
    else:
        index = index_ruleset(parse_save(text, path))
    marks = [start, time.process_time()]
    for number in (1, 2):
        packet = make_packet("10.9.9.9:40000", service_endpoint(number), in_interface="eth0")
        (*_, last) = trace(index, Host.simple([]), packet).outcomes
        assert last.dnat, "a Service was asked"
        marks.append(time.process_time())
    begun, indexed, first, second = marks
    return Side(indexed - begun, first - indexed, second - first, _peak())


def _peak() -> int:
    """The most memory that this process has had, in KiB. (ru_maxrss would count its parent's, at the fork.)"""
    status = Path("/proc/self/status").read_text()
    return int(status.partition("VmHWM:")[2].split()[0])


def service_endpoint(number: int) -> str:
    """Address and port of a generated Service."""
    spec = service(number)["spec"]
    assert isinstance(spec, dict)
    return f"{spec['clusterIP']}:{spec['ports'][0]['port']}"


def measure_modes(one: str, other: str) -> Measured:
    """Measures a comparison across modes in this process."""
    from kproxy.dataplane.compare.compare import compare
    from kproxy.dataplane.symbolic.host_rules import SideRules
    from kproxy.netfilter import Family, parse_save
    from kproxy.netfilter.nftables.text import parse_nft

    gc.disable()
    start = time.process_time()
    first = parse_save(Path(one).read_text(), one)
    second = parse_nft(Path(other).read_text(), other)
    read = time.process_time()
    found = compare(SideRules.of(first), SideRules((), second), family=Family.IPV4)
    return Measured(
        rules=first.rule_count,
        read=read - start,
        compare=time.process_time() - read,
        alike=found.alike,
        differences=len(found.differences),
        left=found.unexamined,
        undecided=len(found.undecided),
        peak=_peak(),
    )


def modes(directory: Path) -> RichTable:
    """The second table."""
    from rich.table import Table

    table = Table(title="the same cluster in iptables mode and in nftables mode")
    for heading in ("size", "what", "read and index", "first packet", "next", "compare", "answer", "peak memory"):
        table.add_column(heading, justify="right")
    for size in MODE_SIZES:
        one, other = directory / "one.save", directory / "other.nft"
        write_dump(*size, one)
        write_dump(*size, other, mode="nftables")
        name = f"{size[0]}x{size[1]}"
        for path in (one, other):
            side = Side(**_run("side", path))
            seconds = (f"{side.index:.2f} s", f"{side.first * 1e3:.1f} ms", f"{side.packet * 1e3:.1f} ms")
            table.add_row(name, path.suffix[1:], *seconds, "", "", f"{side.peak / 1024:.0f} MiB")
        got = Measured(**_run("modes", one, other))
        answer = f"{got.differences} differences, {got.left} more"
        both = (f"{got.read:.2f} s", "", "", f"{got.compare:.2f} s")
        table.add_row(name, "diff", *both, answer, f"{got.peak / 1024:.0f} MiB")
    return table


def _run(*arguments: str | Path) -> dict[str, Any]:
    """What a process of its own measured."""
    command = [sys.executable, "-m", "bench.diff", *map(str, arguments)]
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    return dict(json.loads(done.stdout))


def main() -> None:
    """Prints the tables."""
    from rich.console import Console
    from rich.table import Table

    table = Table(title="diff: do two dumps of a node treat every packet alike?")
    for heading in ("size", "rules each", "case", "read both", "compare", "answer", "peak memory"):
        table.add_column(heading, justify="right")
    with tempfile.TemporaryDirectory() as name:
        for size in SIZES:
            one, other = Path(name) / "one.save", Path(name) / "other.save"
            write_dump(*size, one)
            for case in CASES:
                other.write_text(changed(one.read_text(), case))
                got = Measured(**_run("case", one, other))
                answer = f"{got.differences} difference{'' if got.differences == 1 else 's'}"
                answer = "alike" if got.alike else answer
                table.add_row(
                    f"{size[0]}x{size[1]}",
                    f"{got.rules}",
                    case,
                    f"{got.read:.2f} s",
                    f"{got.compare:.2f} s",
                    answer + (f", {got.left} more" if got.left else ""),
                    f"{got.peak / 1024:.0f} MiB",
                )
                assert not got.undecided, f"{size} {case}: {got.undecided} undecided"
        beside = modes(Path(name))
    console = Console(width=None if sys.stdout.isatty() else 160)
    console.print(table)
    console.print(beside)


if __name__ == "__main__":
    measures: dict[str, Callable[..., msgspec.Struct]] = {
        "case": measure,
        "side": measure_side,
        "modes": measure_modes,
    }
    sys.stdout.write(msgspec.json.encode(measures[sys.argv[1]](*sys.argv[2:])).decode())
