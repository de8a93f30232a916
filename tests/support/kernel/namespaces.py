"""Network namespaces for tests: made here, named `kp-...`, and always deleted."""

from __future__ import annotations

import os
import re
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import count

_numbers = count()
_TAKES_THE_LOCK = re.compile(r"ip6?tables(-nft|-legacy)?(-restore)?")

_READS = ("--inh-caps", "--ambient-caps", "--bounding-set")
NOBODY = (
    *("setpriv", "--securebits=+no_setuid_fixup", "--reuid=65534", "--regid=65534", "--clear-groups"),
    *(f"{option}=-all,+dac_read_search" for option in _READS),
)
"""Before a command: as nobody, who may read everything and nothing else, since a checkout may be in root's own home."""


def run(*command: str, namespace: str | None = None, text: str | None = None) -> str:
    """Runs a command, inside a namespace if one is named, and returns its output; a failure tells all it said.

    iptables waits for the xtables lock: it is one file for all namespaces, so any other test may hold it.
    """
    if _TAKES_THE_LOCK.fullmatch(command[0]):
        command = (command[0], "-w", *command[1:])
    full = ("ip", "netns", "exec", namespace, *command) if namespace else command
    done = subprocess.run(full, input=text, capture_output=True, text=True, check=False)
    assert done.returncode == 0, f"{' '.join(full)}: exit {done.returncode}\n{done.stderr}"
    return done.stdout


@contextmanager
def fresh_namespace() -> Iterator[str]:
    """A new, empty namespace."""
    name = f"kp-t{os.getpid()}-{next(_numbers)}"
    run("ip", "netns", "add", name)
    try:
        yield name
    finally:
        run("ip", "netns", "del", name)


def save(command: str, namespace: str) -> dict[str, str]:
    """The tables of a dump by name, without comment lines and with counters zeroed.

    By name, because legacy tables are listed in the order of their first use, the newest first.
    """
    text = run(f"{command}-save", namespace=namespace)
    return split_tables(re.sub(r"\[\d+:\d+\]", "[0:0]", text))


def split_tables(text: str) -> dict[str, str]:
    """The tables of a dump by name."""
    tables: dict[str, list[str]] = {}
    current: list[str] = []
    for line in text.splitlines():
        if line.startswith("*"):
            current = tables.setdefault(line[1:], [])
        if not line.startswith("#"):
            current.append(line)
    return {name: "\n".join(lines) for name, lines in tables.items()}
