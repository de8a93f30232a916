"""`python -m vagrant.checks`: the checks on this machine, with progress and a table. `--help` tells the arguments.

The machine's own rules are of one scenario at a time. What the kernel printed then is compared, traced, and sent
through a namespace of its own, before the next scenario is applied.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from kproxy.errors import KproxyError
from vagrant.checks import golden, traffic
from vagrant.checks.scenario import FAMILIES, NFTABLES, Scenario, read_scenario

GOLDEN = Path(__file__).parents[2] / "rules_golden"
CHOSEN = {
    "nft": (
        "minikube", "dual-stack", "nodeport-local-policy", "loadbalancer-source-ranges", "session-affinity",
        "no-endpoints",
    ),
    "legacy": ("minikube", "dual-stack", "session-affinity", "no-endpoints"),
    NFTABLES: ("dual-stack", "session-affinity"),
}  # fmt: skip
"""What is checked unless told otherwise: each kind of address, policy and family once; with legacy, whose rules take
twice as long to read back, each match and target."""
VARIANTS = tuple(CHOSEN)


@dataclass(frozen=True)
class Row:
    """One scenario in one variant and family: what was right, and what was not, as lines."""

    scenario: str
    variant: str
    family: str
    rules: str
    traced: str
    sent: str
    wrong: tuple[str, ...]


def say(text: str) -> None:
    """A line of progress, at once."""
    print(text, flush=True)  # noqa: T201  # this is a program's output


def examine(scenario: Scenario, variant: str, dumps: Mapping[int, str]) -> Iterator[Row]:
    """Compare what the kernel printed, by family, and try it with packets; touches nothing of this machine's own.

    Raises:
        KproxyError: the packets could not be traced or sent.
    """
    traced = golden.trace_packets(scenario, variant, dumps)
    sent = traffic.send_packets(scenario, variant, dumps)
    for family, name in FAMILIES.items():
        rules = golden.compare_rules(scenario.expected(variant, family), dumps[family])
        packets = sent[family]
        wrong = [f"rules: {line}" for line in rules]
        wrong += [f"traced: {line}" for line in traced[family].lines]
        wrong += [f"sent: {line}" for line in traffic.describe({family: packets})]
        yield Row(
            scenario.name,
            variant,
            name,
            f"{len(rules)} lines differ" if rules else "ok",
            _share(traced[family].total, traced[family].wrong),
            _share(packets.sent, len(packets.wrong)) + (f" +{packets.left_out} not" if packets.left_out else ""),
            tuple(wrong),
        )


def _share(total: int, wrong: int) -> str:
    if not total:
        return "-"
    return f"{wrong} of {total} differ" if wrong else f"{total} ok"


def table(rows: Sequence[Row]) -> Iterator[str]:
    """The rows as aligned text."""
    head = ("scenario", "variant", "family", "rules", "packets traced", "packets sent", "")
    cells = [head, *((*_cells(row), "DIFFERS" if row.wrong else "ok") for row in rows)]
    widths = [max(len(line[column]) for line in cells) for column in range(len(head))]
    for line in cells:
        yield "  ".join(text.ljust(width) for text, width in zip(line, widths, strict=True)).rstrip()


def _cells(row: Row) -> tuple[str, ...]:
    return row.scenario, row.variant, row.family, row.rules, row.traced, row.sent


def parse_arguments(arguments: Sequence[str] | None = None) -> argparse.Namespace:
    """The command line; a wrong one ends the program with 2."""
    parser = argparse.ArgumentParser(
        prog="check.sh TREE",
        description="Golden clusters in this machine's own kernel: applied, read back, traced, and their packets sent.",
        epilog="exit: 0 all as expected, 1 differences or a failed command, 2 bad usage or input",
    )
    parser.add_argument("scenarios", nargs="*", metavar="SCENARIO", help="folders of rules_golden/")
    parser.add_argument("--all", action="store_true", help="every scenario")
    parser.add_argument("--variant", choices=VARIANTS, action="append", help="only with this; repeatable")
    parser.add_argument("--directory", type=Path, default=GOLDEN, help="where the scenarios are")
    parsed = parser.parse_args(arguments)
    known = sorted(path.parent.name for path in parsed.directory.glob("*/cluster.yaml"))
    unknown = [name for name in parsed.scenarios if name not in known]
    if unknown:
        parser.error(f"no scenario {unknown[0]!r} in {parsed.directory}; there are: {', '.join(known)}")
    if parsed.all and parsed.scenarios:
        parser.error("either --all or names of scenarios")
    named = known if parsed.all else list(dict.fromkeys(parsed.scenarios))
    parsed.chosen = {variant: named or list(CHOSEN[variant]) for variant in dict.fromkeys(parsed.variant or VARIANTS)}
    return parsed


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the checks; the exit code."""
    options = parse_arguments(arguments)
    rows: list[Row] = []
    failures: list[str] = []
    try:
        names = dict.fromkeys(name for chosen in options.chosen.values() for name in chosen)
        known = {name: read_scenario(options.directory / name) for name in names}
    except KproxyError as error:
        say(f"error: {error}")
        return 2
    for variant, chosen in options.chosen.items():
        for name in chosen:
            began, title = time.monotonic(), f"{name}, {variant}"
            try:
                golden.apply(known[name], variant)
                applied = time.monotonic()
                dumps = {family: golden.dump(variant, family) for family in FAMILIES}
                found = list(examine(known[name], variant, dumps))
            except (golden.CommandError, KproxyError, OSError) as error:
                failures.append(f"{title}: {error}")
                say(f"{time.monotonic() - began:6.1f} s  {title}: FAILED: {error}")
                continue
            wrong = "DIFFERS" if any(row.wrong for row in found) else "ok"
            say(f"{time.monotonic() - began:6.1f} s  {title}: applied in {applied - began:.1f} s, examined: {wrong}")
            for row in found:
                for line in row.wrong:
                    say(f"          {row.family} {line}")
            rows += found
        # One variant after the other: rules of both at once are a fault of their own.
        failures += _clean_up(variant)
    for line in table(rows):
        say(line)
    differing = sum(bool(row.wrong) for row in rows)
    say(f"{len(rows) - differing} of {len(rows)} as expected" + (f"; {len(failures)} failed" if failures else ""))
    return 1 if differing or failures else 0


def _clean_up(variant: str) -> list[str]:
    began = time.monotonic()
    try:
        golden.run("kproxy", "cleanup", "--yes")
        left = golden.leftovers([variant])
    except golden.CommandError as error:
        left = [str(error)]
    say(f"{time.monotonic() - began:6.1f} s  cleanup, {variant}: {'left behind:' if left else 'nothing left'}")
    for line in left:
        say(f"          {line}")
    return [f"cleanup {variant}: {line}" for line in left]


if __name__ == "__main__":
    sys.exit(main())
