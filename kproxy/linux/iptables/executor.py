"""Executors: what reads and writes one family's tables in one variant; and the iptables binaries that do it.

Everything above speaks to an `Executor`. `IptablesExecutor` is the real one; the tests have one that keeps the tables
in memory, and both go through the same suite.

Debian and most others install both variants, as `iptables-nft` and `iptables-legacy`, with `iptables` a link to one of
them; older installations have only `iptables`, which says what it is: `iptables v1.8.9 (nf_tables)`, `(legacy)`, or
nothing before 1.8, which means legacy.
"""

from __future__ import annotations

import os
import re
from typing import Final, Protocol

import msgspec

from kproxy.linux import nfnetlink
from kproxy.linux.errors import (
    FailedLine,
    LockHeldError,
    PrivilegeError,
    RestoreFailedError,
    ToolFailedError,
    ToolMissingError,
    UnreadableDumpError,
)
from kproxy.linux.iptables.legacy import (
    DEFAULT_WAIT,
    legacy_fingerprint,
    legacy_tables,
    lock_held_error,
    locked_here,
    xtables_lock,
)
from kproxy.linux.iptables.ownership import TABLES
from kproxy.linux.namespace import Namespace
from kproxy.linux.nfnetlink import Ledger
from kproxy.linux.process import Finished, run
from kproxy.linux.programs import find_program, not_found
from kproxy.netfilter.hooks import Variant
from kproxy.netfilter.text import SaveText, SaveTextError, split_save
from kproxy.services.names import IPFamily

COMMAND: Final = {IPFamily.IPV4: "iptables", IPFamily.IPV6: "ip6tables"}

_VERSION: Final = re.compile(r" v(\d+(?:\.\d+)*)(?: \((\w+)\))?")


class Iptables(msgspec.Struct, frozen=True):
    """The binaries of one family and variant.

    Attributes:
        restore, save: paths of iptables-restore and iptables-save.
        version: as iptables says it, (1, 8, 9) say.
    """

    family: IPFamily
    variant: Variant
    restore: str
    save: str
    version: tuple[int, ...]

    def __str__(self) -> str:
        return f"{COMMAND[self.family]} {'.'.join(map(str, self.version))} ({self.variant.value})"


def parse_version(text: str) -> tuple[tuple[int, ...], Variant]:
    """Reads `iptables v1.8.9 (nf_tables)`.

    Raises:
        ToolFailedError: it is something else.
    """
    found = _VERSION.search(text)
    if found is None:
        raise ToolFailedError(f"iptables --version said {text.strip()!r}, which tells no version")
    variant = Variant.NFT if found[2] == "nf_tables" else Variant.LEGACY
    return tuple(map(int, found[1].split("."))), variant


def find_iptables(family: IPFamily, variant: Variant) -> Iptables:
    """Finds the binaries of a variant, by the names that tell it first, then by the plain names.

    Raises:
        ToolMissingError: there are none of that variant.
    """
    command = COMMAND[family]
    for prefix in (f"{command}-{variant.value}", command):
        restore, save = find_program(f"{prefix}-restore"), find_program(f"{prefix}-save")
        if restore is None or save is None:
            continue
        with Namespace.current() as here:
            version, found = parse_version(run(here, [restore, "--version"], timeout=10).stdout)
        if found is variant:
            return Iptables(family, variant, restore, save, version)
        raise ToolMissingError(
            f"{command} of the {variant.value} variant is not installed: {prefix} is of the {found.value} variant, and "
            f"{not_found(f'{command}-{variant.value}-restore')}"
        )
    raise ToolMissingError(
        f"{command} of the {variant.value} variant is not installed: "
        f"{not_found(f'{command}-{variant.value}-restore')}, nor is {command}-restore there "
        "(Debian: apt-get install iptables)"
    )


def installed(family: IPFamily) -> dict[Variant, Iptables]:
    """The variants that are installed for a family."""
    found = {}
    for variant in Variant:
        try:
            found[variant] = find_iptables(family, variant)
        except ToolMissingError:
            continue
    return found


TIMEOUT: Final = 300.0
"""Seconds that one iptables process may take; the slowest seen is a tenth of that."""

_NOT_PERMITTED: Final = re.compile("Permission denied|you must be root|Operation not permitted")

_NUMBERED: Final = re.compile(
    r"(?:^|: )line (\d+)(?: failed|: )|Error occurred at line: (\d+)|COMMIT expected at line (\d+)", re.MULTILINE
)
_NOISE: Final = re.compile(
    r"^(?:Try `.*|Error occurred at line: \d+|(?:.*: )?line \d+ failed|line \d+: )", re.MULTILINE
)
_PROGRAM: Final = re.compile(r"^ip6?tables\S*(?: v[\d.]+ \(\w+\))?: *", re.MULTILINE)


class Executor(Protocol):
    """Reads and writes the tables of one family in one variant."""

    @property
    def family(self) -> IPFamily:
        """The family it works on."""

    @property
    def variant(self) -> Variant:
        """The variant it works on."""

    def save(self, *, counters: bool) -> str:
        """What iptables-save prints, with `-c` if counters are wanted. Tables that do not exist stay so.

        Raises:
            LinuxError: it cannot be read.
        """

    def restore(self, text: str) -> None:
        """Does `iptables-restore --noflush --counters`: each table of the text is one transaction, in order.

        Raises:
            RestoreFailedError: iptables refused it; tables committed before stay.
            LinuxError: it could not be tried.
        """

    def fingerprint(self) -> object | None:
        """Something that stays equal as long as nobody else writes rules; what we write may leave it as it is where
        the kernel counts generations. None if it is unknown."""

    def dormant(self) -> frozenset[str]:
        """The tables that are there and whose chains the kernel does not call (a flag of nf_tables); iptables shows
        nothing of it, and writing changes nothing of it."""

    def wake(self, table: str) -> None:
        """Makes the kernel call the chains of a dormant table.

        Raises:
            LinuxError: it refuses.
        """


class IptablesExecutor:
    """The real thing: iptables processes inside a namespace."""

    def __init__(
        self,
        namespace: Namespace,
        iptables: Iptables,
        *,
        lock_wait: float = DEFAULT_WAIT,
        ledger: Ledger | None = None,
    ) -> None:
        """`ledger`: where the transactions of all that write to the namespace for us are counted."""
        self.iptables = iptables
        self.family = iptables.family
        self.variant = iptables.variant
        self._namespace = namespace
        self._ledger = ledger or Ledger()
        self._restores = 0
        self._lock_wait = lock_wait
        self._restore = [iptables.restore, "--noflush", "--counters"]
        if iptables.variant is Variant.LEGACY:
            self._restore += ["--wait", str(max(1, round(lock_wait)))]

    def save(self, *, counters: bool) -> str:
        if self.variant is Variant.LEGACY:
            self._await_others()
            if not self._legacy_tables():
                return ""
        return self._run_save([self.iptables.save, "-c"] if counters else [self.iptables.save])

    def _run_save(self, command: list[str]) -> str:
        done = run(self._namespace, command, timeout=TIMEOUT)
        if done.code:
            self._refuse(done)
            raise ToolFailedError(f"{self.iptables.save} failed: {done.reason}")
        return done.stdout

    def restore(self, text: str) -> None:
        if self.variant is Variant.LEGACY:
            self._restores += 1
            self._run_restore(text)
            return
        with self._ledger.writing(self._namespace, text.count("\nCOMMIT\n")):
            self._run_restore(text)

    def _run_restore(self, text: str) -> None:
        done = run(self._namespace, self._restore, text=text, timeout=TIMEOUT + self._lock_wait)
        if done.code:
            self._refuse(done)
            raise restore_error(os.path.basename(self.iptables.restore), done.stderr, text)

    def fingerprint(self) -> object | None:
        if self.variant is Variant.LEGACY:
            # What others bring back is no older state of ours, which would look the same.
            tables = legacy_fingerprint(self._namespace, self.family)
            return None if tables is None else (self._restores, tables)
        return self._ledger.others(self._namespace)

    def dormant(self) -> frozenset[str]:
        if self.variant is Variant.LEGACY:
            return frozenset()
        return frozenset(name for name in TABLES if nfnetlink.is_dormant(self._namespace, self.family, name))

    def wake(self, table: str) -> None:
        nfnetlink.wake(self._namespace, self.family, table)

    def save_unlocked(self) -> str:
        """What iptables-save prints without counters, even while the lock is held.

        The kernel replaces a legacy table as a whole, so each table is one that was there; a writer may be half
        through with several. Enough to see whose chains there are.

        Raises:
            LinuxError: it cannot be read.
        """
        if self.variant is Variant.LEGACY and not self._legacy_tables():
            return ""
        return self._run_save([self.iptables.save])

    def _await_others(self) -> None:
        """Waits for a process that is writing, which iptables-save itself does not: the restore of a killed process may
        still be at work. Where there are no tables, only a process in this very namespace matters: it may make one.
        """
        try:
            with xtables_lock(0):
                return
        except LockHeldError:
            if not self._legacy_tables() and not self._namespace.call(locked_here):
                return
        with xtables_lock(self._lock_wait):
            pass

    def _legacy_tables(self) -> list[str]:
        return self._namespace.call(legacy_tables, self.family)

    def _refuse(self, done: Finished) -> None:
        """Raises the errors that have nothing to do with rules."""
        if done.code < 0:
            raise ToolFailedError(f"{self.iptables} was ended by signal {-done.code}")
        if "xtables lock" in done.stderr and "holding" in done.stderr:
            raise lock_held_error(self._lock_wait)
        if "can't open lock file" in done.stderr:
            raise PrivilegeError(f"{self.iptables} cannot open the xtables lock: {done.reason}")
        if os.geteuid() != 0 and _NOT_PERMITTED.search(done.stderr):
            raise PrivilegeError(f"{self.iptables} needs root: {done.reason}")


def restore_error(program: str, stderr: str, text: str) -> RestoreFailedError:
    """Makes an error of iptables-restore's stderr, with the input lines that it names.

    Observed with 1.8.9 (the texts of older versions differ only in the program's name):

        iptables-restore: line 4 failed                                            legacy; often the COMMIT line
        iptables-nft-restore: line 2 failed: Bad rule (...)                        nft
        line 3: RULE_APPEND failed (No such file or directory): rule in chain X    nft, at COMMIT, one line per refusal
        Error occurred at line: 3                                                  both, for what cannot be parsed
        iptables-restore: COMMIT expected at line 3                                both

    Args:
        text: the input it was given.
    """
    lines = text.split("\n")
    numbers = sorted({int(next(filter(None, groups))) for groups in _NUMBERED.findall(stderr)})
    numbers = [number for number in numbers if 0 < number <= len(lines)]
    # Without a line it is unknown how far it came: it crashed, say.
    first = numbers[0] if numbers else 0
    table = next((line[1:] for line in reversed(lines[:first]) if line.startswith("*")), "")
    failed = [FailedLine(number, _shown(lines, number, table)) for number in numbers]
    return RestoreFailedError(program, _reason(stderr), failed, table, lines[: max(0, first - 1)].count("COMMIT"))


def _shown(lines: list[str], number: int, table: str) -> str:
    text = lines[number - 1]
    if text == "COMMIT":
        return f"COMMIT (the kernel refused table {table} as a whole)"
    return text


def _reason(stderr: str) -> str:
    text = _NOISE.sub("", _PROGRAM.sub("", stderr))
    reasons = list(dict.fromkeys(line.strip(" :") for line in text.splitlines() if line.strip(" :")))
    return "; ".join(reasons[:3]) if reasons else "the kernel refused it without saying why"


_INCOMPATIBLE: Final = re.compile(r"^# Table `(filter|nat|mangle)' is incompatible", re.MULTILINE)


def parse_dump(text: str, what: str = "iptables-save") -> SaveText:
    """Splits what iptables-save printed, with or without counters.

    Raises:
        UnreadableDumpError: it is not such text, or a table we need cannot be shown (nft rules that iptables does not
        know).
    """
    incompatible = _INCOMPATIBLE.search(text)
    if incompatible is not None:
        raise UnreadableDumpError(
            f"{what} cannot show table {incompatible[1]}: it holds rules that only nft understands, so it cannot be "
            "told what is in it; see `nft list ruleset`"
        )
    try:
        return split_save(text)
    except SaveTextError as error:
        raise UnreadableDumpError(f"{what} {error}") from error


def is_comment(text: str) -> bool:
    """Whether a text holds nothing but comments."""
    return all(not line or line.startswith("#") for line in text.split("\n"))
