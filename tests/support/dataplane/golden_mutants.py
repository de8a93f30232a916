"""Single-rule changes to golden rule sets: a rule deleted, two swapped, or an address, port, mark, target or
probability altered."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from random import Random

from kproxy.dataplane import DataplaneError
from kproxy.dataplane.model.check import check_traceable
from kproxy.netfilter import Family, Ruleset, parse_save
from tests.support import paths

GOLDEN = paths.ROOT / "rules_golden"
KINDS = ("delete", "swap", "address", "port", "mark", "target", "probability")


@dataclass(frozen=True)
class Mutant:
    """A golden rule set and one changed rule. `before` and `after` are iptables-save text."""

    name: str
    kind: str
    family: Family
    before: str
    after: str
    rule: str
    became: str

    @property
    def rulesets(self) -> tuple[Ruleset, Ruleset]:
        """Both sides."""
        return parse_save(self.before, family=self.family), parse_save(self.after, family=self.family)

    def __str__(self) -> str:
        return f"{self.name} {self.kind}: {self.rule} -> {self.became or 'gone'}"


def golden_files() -> list[Path]:
    """All golden rule sets of both families that hold services, small ones only."""
    files = sorted(GOLDEN.glob("*/expected/*.save"))
    return [path for path in files if 20 < path.read_text().count("\n-A ") < 400]


def mutants(seed: int, count: int) -> Iterator[Mutant]:
    """Mutants from a seed, all kinds by turns."""
    random = Random(seed)
    files = golden_files()
    made = 0
    while made < count:
        path = random.choice(files)
        found = _mutate(random, path, KINDS[made % len(KINDS)])
        if found is not None:
            made += 1
            yield found


def _mutate(random: Random, path: Path, kind: str) -> Mutant | None:
    """A mutant of this kind; None if the chosen rule has nothing of the kind, or the kernel would refuse the result."""
    before = path.read_text()
    lines = before.splitlines()
    tables: dict[int, str] = {}
    table = ""
    for place, line in enumerate(lines):
        table = line[1:] if line.startswith("*") else table
        if line.startswith("-A "):
            tables[place] = table
    place = random.choice(_places(lines, tables, kind) or [0])
    if place == 0:
        return None
    rule, became = lines[place], ""
    if kind == "delete":
        del lines[place]
    elif kind == "swap":
        lines[place], lines[place + 1] = lines[place + 1], lines[place]
        became = f"after {lines[place]}"
    else:
        became = _altered(random, kind, rule, tables[place], lines)
        lines[place] = became
    family = Family.IPV6 if ".v6." in path.name else Family.IPV4
    name = f"{path.parts[-3]}/{path.stem}"
    mutant = Mutant(name, kind, family, before, "\n".join(lines) + "\n", rule, became)
    try:
        check_traceable(mutant.rulesets[1])
    except DataplaneError:
        return None
    return mutant if rule != became else None


_PATTERNS = {
    "address": r"-[sd] \S+|--to-destination \S+",
    "port": r"--dport \S+|--to-destination \S+",
    "mark": r"0x[0-9a-f]+/0x[0-9a-f]+",
    "probability": r"--probability (\S+)",
}


_ADDRESS = r"-[sd] (\S+)"


def _places(lines: list[str], tables: dict[int, str], kind: str) -> list[int]:
    if kind == "swap":
        return [place for place in tables if place + 1 in tables and _chain(lines[place]) == _chain(lines[place + 1])]
    if kind in _PATTERNS:
        return [place for place in tables if re.search(_PATTERNS[kind], lines[place])]
    return list(tables)


def _chain(line: str) -> str:
    return line.split()[1]


def _altered(random: Random, kind: str, rule: str, table: str, lines: list[str]) -> str:
    if kind == "target":
        return _other_target(random, rule, table, lines)
    found = random.choice(list(re.finditer(_PATTERNS[kind], rule)))
    return rule[: found.start()] + _other(random, kind, found[0], lines) + rule[found.end() :]


def _other(random: Random, kind: str, text: str, lines: list[str]) -> str:
    if kind == "mark":
        mask = random.choice(("0x8000", "0x1", "0xc000", "0x0"))
        return f"{mask}/{mask}" if random.random() < 0.6 else f"{text.partition('/')[0]}/{mask}"
    if kind == "probability":
        return f"--probability {random.choice(('0.10000000009', '0.25000000000', '0.75000000000', '1.00000000000'))}"
    option, _, value = text.partition(" ")
    if kind == "port":
        host, _, port = value.rpartition(":")
        return f"{option} {host}:{int(port) + 1}" if host else f"{option} {int(port) + random.choice((1, 1000))}"
    joined = "\n".join(lines)
    if option == "--to-destination":
        others = re.findall(r"--to-destination (\S+)", joined)
        host = random.choice(others).rpartition(":")[0]
        return f"{option} {host}:{value.rpartition(':')[2]}"
    if random.random() < 0.3:
        address, _, length = value.partition("/")
        return f"{option} {address}/{max(int(length) - random.choice((1, 8)), 0)}"
    return f"{option} {random.choice(re.findall(_ADDRESS, joined))}"


def _other_target(random: Random, rule: str, table: str, lines: list[str]) -> str:
    """Another jump, or a verdict that the table allows."""
    chains = [line[1:].split()[0] for line in lines if line.startswith(":KUBE")]
    own = {_chain(line) for line in lines if line.startswith("-A ")}
    chains = [name for name in chains if name in own and (name.startswith("KUBE-SEP-") or name == "KUBE-MARK-MASQ")]
    if "POSTROUTING" in _chain(rule):  # the kernel refuses DNAT there
        chains = ["KUBE-MARK-MASQ"]
    wanted = ["ACCEPT", "RETURN", *(["DROP", "REJECT --reject-with %s"] if table == "filter" else chains * 2)]
    kind = "icmp6-port-unreachable" if "/128" in "".join(lines) else "icmp-port-unreachable"
    head, _, _ = rule.rpartition(" -j ")
    target = random.choice(wanted)
    return f"{head} -j {target % kind if '%' in target else target}"
