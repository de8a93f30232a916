"""A golden cluster in the machine's own kernel: applied, read back, compared, and its packets traced."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from kproxy.cluster.golden_packets import PACKETS, run_packets
from kproxy.render.golden import diff_save
from kproxy.render.nftables.names import TABLE, nft_family
from kproxy.services import IPFamily
from vagrant.checks.scenario import FAMILIES, NFTABLES, Scenario, mode_of

TIME_LIMIT = 240.0
"""Seconds for one command: far more than any needs on an emulated processor."""
_COUNTERS = re.compile(r"\[\d+:\d+\]")


class CommandError(Exception):
    """A command failed; the message is what it said."""


def run(*command: str) -> str:
    """Run a command and return its output.

    Raises:
        CommandError: it failed, is not there, or took too long.
    """
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=TIME_LIMIT)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise CommandError(f"{' '.join(command)}: {error}") from error
    if done.returncode:
        raise CommandError(f"{' '.join(command)}: exit {done.returncode}\n{done.stderr.strip()}")
    return done.stdout


def iptables_command(variant: str, family: int, what: str) -> str:
    """`iptables-nft-save`, say."""
    return f"{'iptables' if family == 4 else 'ip6tables'}-{variant}-{what}"


def list_command(variant: str, family: int) -> tuple[str, ...]:
    """What prints the rules of a variant and family."""
    if variant == NFTABLES:
        return "nft", "list", "table", nft_family(IPFamily(family)), TABLE
    return (iptables_command(variant, family, "save"),)


def apply(scenario: Scenario, variant: str) -> None:
    """Bring the machine's own rules to those of the scenario, as a user would.

    Raises:
        CommandError: kproxy could not.
    """
    config = () if scenario.config_file is None else ("--config", str(scenario.config_file))
    cluster = str(scenario.cluster_file)
    how = ("--mode", mode_of(variant), *(() if variant == NFTABLES else ("--variant", variant)))
    run("kproxy", "apply", "-f", cluster, *config, "--node", scenario.node_name, *how, "--yes")


def dump(variant: str, family: int) -> str:
    """What the kernel holds, with counters zeroed, as the golden files have them.

    Raises:
        CommandError: it cannot be read.
    """
    return _COUNTERS.sub("[0:0]", run(*list_command(variant, family)))


def tables(text: str) -> dict[str, str]:
    """The tables of a dump by name: legacy tables are listed in the order of their first use, the newest first."""
    found: dict[str, list[str]] = {}
    current: list[str] = []
    for line in text.splitlines():
        if line.startswith("*"):
            current = found.setdefault(line[1:], [])
        if not line.startswith("#"):
            current.append(line)
    return {name: "\n".join(lines) for name, lines in found.items()}


def compare_rules(expected: str, actual: str) -> list[str]:
    """What differs, as lines; empty if the texts are the same, table by table and byte by byte."""
    if expected.startswith("table "):
        # nft lists chains, sets and maps as they were made, which is by what the scenario before left.
        found = [each for each in diff_save(expected, actual) if each.table]
        return [line for each in found for line in (f"table {each.table} {each.chain}", *each.lines)]
    wanted, held = tables(expected), tables(actual)
    # An empty table that somebody looked at once stays listed; it holds no rule.
    held = {name: text for name, text in held.items() if name in wanted or _holds_something(text)}
    if wanted == held:
        return []
    lines = [f"table {name} is missing" for name in wanted if name not in held]
    lines += [f"table {name} should be empty" for name in held if name not in wanted]
    for difference in diff_save(expected, actual):
        lines += [f"{difference.table} {difference.chain}", *(f"  {line}" for line in difference.lines)]
    # Nothing differs within a chain, so their order does.
    return lines or ["the same chains, in another order"]


def _holds_something(table: str) -> bool:
    return any(line.startswith("-A") or (line.startswith(":") and " - " in line) for line in table.splitlines())


class Traced(NamedTuple):
    """Golden packets of a family that were traced, and what was wrong, as lines."""

    total: int
    wrong: int
    lines: Sequence[str]


def trace_packets(scenario: Scenario, variant: str, dumps: Mapping[int, str]) -> dict[int, Traced]:
    """Send the golden packets through what the kernel printed, in the model."""
    results = {}
    for family, text in dumps.items():
        total = len(scenario.packets(variant, family))
        if not total:
            results[family] = Traced(0, 0, ())
            continue
        name = scenario.rules_file(variant, family)
        # Packets of the other family and of other nodes have no rules here, and so are not run.
        done = run_packets(scenario.path / PACKETS, {name: text}, scenario.nodes, scenario.config)
        lines = [line for item in done.differences for line in (item.name, *item.lines)]
        results[family] = Traced(total, len(done.differences), lines)
    return results


def leftovers(variants: Sequence[str]) -> list[str]:
    """Rules and chains of Kubernetes that are still there, after a cleanup.

    Raises:
        CommandError: the rules cannot be read.
    """
    commands = [
        ("nft", "list", "tables") if variant == NFTABLES else list_command(variant, family)
        for variant in variants
        for family in FAMILIES
    ]
    return [
        f"{' '.join(command)}: {line}"
        for command in dict.fromkeys(commands)
        for line in run(*command).splitlines()
        if "KUBE-" in line or line.split()[-1:] == [TABLE]
    ]
