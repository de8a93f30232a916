"""Rules with what nft makes of them, recorded from nft 1.0.6 and 1.1.3."""

from __future__ import annotations

from functools import cache
from typing import NamedTuple

from tests.support import paths

FILE = paths.TESTS / "support" / "netfilter" / "observed" / "nftables-rules.txt"
TABLES = paths.TESTS / "support" / "netfilter" / "observed" / "nftables-tables.nft"


class Recorded(NamedTuple):
    """A rule of a table of `family` as a script says it, and as each release lists it."""

    family: str
    rule: str
    bookworm: str
    trixie: str


@cache
def recorded_rules() -> tuple[Recorded, ...]:
    """All of them."""
    found: list[Recorded] = []
    for line in FILE.read_text().splitlines():
        if line.startswith("#"):
            continue
        if not line.startswith(" "):
            family, _, rule = line.partition(" ")
            found.append(Recorded(family, rule, "", ""))
        elif not found[-1].bookworm:
            found[-1] = found[-1]._replace(bookworm=line.strip(), trixie=line.strip())
        else:
            found[-1] = found[-1]._replace(trixie=line.strip())
    return tuple(found)


def script_of(rules: tuple[Recorded, ...]) -> str:
    """A script that loads each rule into a table of its own family, one chain a rule."""
    lines = [f"add table {family} recorded" for family in dict.fromkeys(item.family for item in rules)]
    for number, item in enumerate(rules):
        lines.append(f"add chain {item.family} recorded c{number}")
        lines.append(f"add rule {item.family} recorded c{number} {item.rule}")
    return "\n".join(lines) + "\n"
