"""Diff: whether two rule sets treat every packet alike, at 1000x5, 2000x5 and 7000x10 services and endpoints.

Both sides are what iptables-save prints on a node with that many ClusterIP Services: 7000x10 makes 224,000 rules. Times
are processor time of one thread:

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
import re
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec

from bench.generate import service
from bench.report import answer, in_own_process, mib, ms, peak, s, show
from bench.trace import write_dump

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


def read_rules(path: str) -> Any:
    """The rules of a dump, by its suffix those of iptables-save or of nft."""
    from kproxy.netfilter import parse_save
    from kproxy.netfilter.nftables.text import parse_nft

    text = Path(path).read_text()
    return parse_nft(text, path) if path.endswith(".nft") else parse_save(text, path)


def measure(one: str, other: str) -> Measured:
    """Measures one case, or a comparison across modes, in this process."""
    from kproxy.dataplane.compare.compare import compare
    from kproxy.dataplane.symbolic.host_rules import SideRules
    from kproxy.netfilter import Family

    gc.disable()
    start = time.process_time()
    first, second = read_rules(one), read_rules(other)
    read = time.process_time()
    if other.endswith(".nft"):
        found = compare(SideRules.of(first), SideRules((), second), family=Family.IPV4)
    else:
        found = compare(first, second)
    return Measured(
        rules=first.rule_count,
        read=read - start,
        compare=time.process_time() - read,
        alike=found.alike,
        differences=len(found.differences),
        left=found.unexamined,
        undecided=len(found.undecided),
        peak=peak(),
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
    from kproxy.netfilter import Family

    gc.disable()
    start = time.process_time()
    rules = read_rules(path)
    index = index_ruleset((), nftables=rules, family=Family.IPV4) if path.endswith(".nft") else index_ruleset(rules)
    marks = [start, time.process_time()]
    for number in (1, 2):
        packet = make_packet("10.9.9.9:40000", service_endpoint(number), in_interface="eth0")
        (*_, last) = trace(index, Host.simple([]), packet).outcomes
        assert last.dnat, "a Service was asked"
        marks.append(time.process_time())
    begun, indexed, first, second = marks
    return Side(indexed - begun, first - indexed, second - first, peak())


def service_endpoint(number: int) -> str:
    """Address and port of a generated Service."""
    spec = service(number)["spec"]
    return f"{spec['clusterIP']}:{spec['ports'][0]['port']}"


def modes(directory: Path) -> Iterator[dict[str, str]]:
    """The rows of the second table."""
    for size in MODE_SIZES:
        one, other = directory / "one.save", directory / "other.nft"
        write_dump(*size, one)
        write_dump(*size, other, mode="nftables")
        name = f"{size[0]}x{size[1]}"
        for path in (one, other):
            side = in_own_process(Side, "diff", "side", path)
            yield {
                "size": name, "what": path.suffix[1:], "read and index": s(side.index), "first packet": ms(side.first),
                "next": ms(side.packet), "compare": "", "answer": "", "peak memory": mib(side.peak),
            }  # fmt: skip
        got = in_own_process(Measured, "diff", "case", one, other)
        both = f"{got.differences} differences, {got.left} more"
        yield {
            "size": name, "what": "diff", "read and index": s(got.read), "first packet": "", "next": "",
            "compare": s(got.compare), "answer": both, "peak memory": mib(got.peak),
        }  # fmt: skip


def cases(directory: Path) -> Iterator[dict[str, str]]:
    """The rows of the first table."""
    for size in SIZES:
        one, other = directory / "one.save", directory / "other.save"
        write_dump(*size, one)
        for case in CASES:
            other.write_text(changed(one.read_text(), case))
            got = in_own_process(Measured, "diff", "case", one, other)
            found = f"{got.differences} difference{'' if got.differences == 1 else 's'}"
            yield {
                "size": f"{size[0]}x{size[1]}", "rules each": f"{got.rules}", "case": case, "read both": s(got.read),
                "compare": s(got.compare),
                "answer": ("alike" if got.alike else found) + (f", {got.left} more" if got.left else ""),
                "peak memory": mib(got.peak),
            }  # fmt: skip
            assert not got.undecided, f"{size} {case}: {got.undecided} undecided"


def main() -> None:
    """Prints the tables."""
    with tempfile.TemporaryDirectory() as name:
        show("diff: do two dumps of a node treat every packet alike?", cases(Path(name)))
        show("the same cluster in iptables mode and in nftables mode", modes(Path(name)))


if __name__ == "__main__":
    answer(measure(*sys.argv[2:]) if sys.argv[1] == "case" else measure_side(*sys.argv[2:]))
