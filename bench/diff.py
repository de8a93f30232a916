"""Diff: whether two rule sets treat every packet alike, at 1000x5, 2000x5 and 7000x10 services and endpoints.

Both sides are what iptables-save prints on a node with that many ClusterIP Services: 7000x10 makes 224,000 rules. Each
case runs in a process of its own, so that its peak memory is its own. Times are processor time of its one thread:

    identical      the same text twice
    renamed        every chain of kube-proxy's under another name, and the dispatch rules in another order
    one rule       one endpoint's DNAT goes to another port
    mark           another mark bit throughout, which packets that bring along the one or the other can tell
    half           every second service lost an endpoint
"""

from __future__ import annotations

import gc
import json
import re
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import msgspec

from bench.trace import write_dump

SIZES = ((1000, 5), (2000, 5), (7000, 10))
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
        peak=resource.getrusage(resource.RUSAGE_SELF).ru_maxrss,
    )


def main() -> None:
    """Prints the table."""
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
                command = [sys.executable, "-m", "bench.diff", str(one), str(other)]
                done = subprocess.run(command, check=True, capture_output=True, text=True)
                got = Measured(**json.loads(done.stdout))
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
    Console(width=None if sys.stdout.isatty() else 160).print(table)


if __name__ == "__main__":
    sys.stdout.write(msgspec.json.encode(measure(sys.argv[1], sys.argv[2])).decode())
