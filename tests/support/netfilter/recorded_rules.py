"""The rules in `observed/`: what iptables made of them, nft and legacy alike.

Each file is a table and, perhaps, the hook from which the rules' chain T is reached. The kernel tests load them again,
with whichever iptables is installed; `tests/unit/netfilter` compares kproxy with the recording. It is of 1.8.9, and
says where 1.8.11 does otherwise.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path

from kproxy.netfilter import Family

_FOLDER = Path(__file__).parent / "observed"


NEWER = (1, 8, 11)
"""The release whose differences from 1.8.9 are recorded."""


@dataclass
class Observed:
    """One line of restore input, the lines of iptables-save that it becomes, and those of `iptables -L`.

    `newer` are the lines of 1.8.11's iptables-save, where it does otherwise: none if it refuses the rule.
    """

    given: str
    saved: list[str] = field(default_factory=list)
    listed: list[str] = field(default_factory=list)
    newer: list[str] | None = None

    def saved_by(self, release: tuple[int, ...]) -> list[str]:
        """What this release's iptables-save prints; nothing if it refuses the rule."""
        return self.saved if self.newer is None or release < NEWER else self.newer


@dataclass
class Group:
    """A file: `typed` rules are interpreted as a whole, `opaque` ones are not, `refused` ones do not load: in kproxy
    never, in iptables but for `newer`."""

    name: str
    family: Family
    table: str
    hook: str | None
    typed: list[Observed] = field(default_factory=list)
    opaque: list[Observed] = field(default_factory=list)
    refused: list[Observed] = field(default_factory=list)

    def restore_text(self, rules: list[Observed]) -> str:
        """Restore input that loads the rules into chain T."""
        hook = f"-A {self.hook} -j T\n" if self.hook else ""
        lines = "".join(f"{rule.given}\n" for rule in rules)
        return f"*{self.table}\n:T - [0:0]\n:U - [0:0]\n{lines}{hook}COMMIT\n"


@cache
def groups() -> tuple[Group, ...]:
    """All files, by name."""
    found = tuple(_read(path) for path in sorted(_FOLDER.glob("v[46]-*.txt")))
    assert len(found) >= 10
    return found


def _read(path: Path) -> Group:
    lines = path.read_text().splitlines()
    title = re.match(r"# table (\w+), hook (\w+), IPv([46]);", lines[0])
    assert title is not None
    hook = None if title[2] == "none" else title[2]
    group = Group(path.stem, Family(int(title[3])), title[1], hook)
    section: list[Observed] = []
    for line in lines:
        kind, _, text = line.partition(" ")
        if line.startswith("["):
            section = getattr(group, line.strip("[]"))
        elif kind == "<":
            section.append(Observed(f"-A T {text}".rstrip(" ")))
        elif kind == ">":
            section[-1].saved.append(text)
        elif kind == "11>":
            section[-1].newer = [*(section[-1].newer or []), text]
        elif kind == "11!":
            section[-1].newer = []
        elif kind == "=":
            section[-1].listed.append(text.removesuffix("|"))
    assert group.typed
    assert all(rule.saved for rule in group.typed + group.opaque)
    return group
