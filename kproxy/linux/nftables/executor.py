"""The executor: what reads and writes kube-proxy's table of one family, through nft in a namespace.

`nft -f` makes one transaction of its whole input: all of it, or nothing. There is no lock: the kernel takes one
transaction after the other, and nft starts over when another one came between its reading and its writing.
"""

from __future__ import annotations

import os
import re
from typing import Final

import msgspec

from kproxy.linux import nfnetlink
from kproxy.linux.errors import FailedLine, PrivilegeError, RestoreFailedError, ToolFailedError, ToolMissingError
from kproxy.linux.namespace import Namespace
from kproxy.linux.nfnetlink import Ledger
from kproxy.linux.process import Finished, one_line, run
from kproxy.linux.programs import find_program, not_found
from kproxy.render.nftables.names import TABLE, nft_family
from kproxy.services.names import IPFamily

_VERSION: Final = re.compile(r"\bv(\d+(?:\.\d+)*)")


class Nft(msgspec.Struct, frozen=True):
    """The binary. `version` is as nft says it, (1, 0, 6) say."""

    path: str
    version: tuple[int, ...]

    def __str__(self) -> str:
        return f"nft {'.'.join(map(str, self.version))}"


def parse_version(text: str) -> tuple[int, ...]:
    """Reads `nftables v1.0.6 (Lester Gooch #5)`.

    Raises:
        ToolFailedError: it is something else.
    """
    found = _VERSION.search(text)
    if found is None:
        raise ToolFailedError(f"nft --version said {text.strip()!r}, which tells no version")
    return tuple(map(int, found[1].split(".")))


def find_nft() -> Nft:
    """Finds the binary.

    Raises:
        ToolMissingError: it is not there.
    """
    path = find_program("nft")
    if path is None:
        raise ToolMissingError(
            f"nftables mode needs nft, which is not installed: {not_found('nft')} (Debian: apt-get install nftables)"
        )
    with Namespace.current() as here:
        return Nft(path, parse_version(run(here, [path, "--version"], timeout=10).stdout))


TIMEOUT: Final = 300.0
"""Seconds that one nft process may take; the slowest seen, 5000 Services of 10 endpoints, is a tenth of that."""

_NOT_PERMITTED: Final = "Operation not permitted"
_NOT_THERE: Final = ("No such file or directory", "Protocol not supported", "Address family not supported")
"""How nft says that there is no such table, or that the kernel has no nf_tables, so that there can be none."""

_PLACED: Final = re.compile(r"^\S*?:(\d+):\d+(?:-\d+)?: Error: (.*)$", re.MULTILINE)
_UNPLACED: Final = re.compile(r"^Error: (.*)$", re.MULTILINE)


class NftExecutor:
    """Runs nft for one family."""

    def __init__(self, namespace: Namespace, nft: Nft, family: IPFamily, *, ledger: Ledger | None = None) -> None:
        """`ledger`: where the transactions of all that write to the namespace for us are counted."""
        self.namespace = namespace
        self.family = family
        self.nft = nft
        self._ledger = ledger or Ledger()

    @property
    def table(self) -> str:
        """The table as nft names it: `ip kube-proxy`."""
        return f"{nft_family(self.family)} {TABLE}"

    def run(self, script: str) -> None:
        """Carries out a script as one transaction.

        Raises:
            RestoreFailedError: nft or the kernel refused it; nothing of it is in the kernel.
            LinuxError: it could not be tried.
        """
        with self._ledger.writing(self.namespace, 1):
            self._run_script(["-f", "-"], script)

    def fingerprint(self) -> object | None:
        """What stays equal as long as nobody but those of the ledger writes rules; None if that is unknown."""
        return self._ledger.others(self.namespace)

    def check(self, script: str) -> None:
        """Has nft and the kernel look at a script without carrying it out. Raises as `run`."""
        self._run_script(["--check", "-f", "-"], script)

    def list_table(self) -> str | None:
        """The table as JSON, as `nft -j list table` prints it; None if there is none.

        Raises:
            LinuxError: it cannot be read.
        """
        done = run(self.namespace, [self.nft.path, "-j", "list", "table", *self.table.split()], timeout=TIMEOUT)
        if done.code == 0:
            return done.stdout
        self._refuse(done)
        if any(reason in done.stderr for reason in _NOT_THERE):
            return None
        raise ToolFailedError(f"nft list table {self.table} failed: {done.reason}")

    def is_dormant(self) -> bool:
        """Whether the table is there and the kernel calls none of its chains."""
        return nfnetlink.is_dormant(self.namespace, self.family, TABLE)

    def wake(self, definition: str = "") -> None:
        """Makes the kernel call the chains of a table that is dormant. Raises as `run`.

        In a transaction of its own: the kernel takes no new base chain behind it (EINVAL, measured on 6.18).
        """
        self.run(f"add table {self.table} {definition}".rstrip() + "\n")

    def _run_script(self, options: list[str], script: str) -> None:
        done = run(self.namespace, [self.nft.path, *options], text=script, timeout=TIMEOUT)
        if done.code:
            self._refuse(done)
            raise script_error(done.stderr, script, self.table)

    def _refuse(self, done: Finished) -> None:
        """Raises the errors that have nothing to do with rules."""
        if done.code < 0:
            raise ToolFailedError(f"{self.nft} was ended by signal {-done.code}")
        if _NOT_PERMITTED in done.stderr:
            who = "this process lacks the capability CAP_NET_ADMIN" if os.geteuid() == 0 else "nft needs root"
            raise PrivilegeError(f"{who}: {done.reason}")


def script_error(stderr: str, script: str, table: str) -> RestoreFailedError:
    """Makes an error of nft's stderr, with the lines of the script that it names. Observed with 1.0.6 and 1.1.3:

        /dev/stdin:4:24-24: Error: Could not process rule: No such file or directory
        add rule ip kube-proxy c drop
                               ^

    `In file included from`, `Warning:` and messages without a place exist too.

    Args:
        script: the input it was given.
        table: the table that the script is about.
    """
    lines = script.split("\n")
    placed = [(int(number), reason) for number, reason in _PLACED.findall(stderr)]
    failed = [FailedLine(n, lines[n - 1]) for n in sorted({n for n, _ in placed}) if 0 < n <= len(lines)]
    reasons = dict.fromkeys(reason.strip() for reason in [*(r for _, r in placed), *_UNPLACED.findall(stderr)])
    message = "; ".join(list(reasons)[:3]) or one_line(stderr) or "no reason given"
    return RestoreFailedError("nft -f", message, failed, table, 0)
