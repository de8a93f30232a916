"""What can go wrong between kproxy and the kernel.

Every message names what was tried and, where something was being written, the state the kernel was left in. Exit codes:
1 for an operation that failed, 2 for bad input such as a namespace that is not there.
"""

from __future__ import annotations

import enum
from collections.abc import Sequence
from typing import Final

import msgspec

from kproxy.errors import InputError, KproxyError

INTERRUPTS: Final = (KeyboardInterrupt, SystemExit)
"""How SIGINT and SIGTERM reach the main thread; the command line makes the latter a SystemExit."""


class LinuxError(KproxyError):
    """Root of the errors of this package."""


class PrivilegeError(LinuxError):
    """The process may not do this: it is not root, or lacks a capability."""


class NamespaceError(LinuxError, InputError):
    """The network namespace asked for is not there, or is no network namespace."""

    exit_code = 2


class ToolMissingError(LinuxError):
    """A program that is needed is not installed, or not of the variant asked for."""


class ToolFailedError(LinuxError):
    """A program failed, and what it said does not concern a rule."""


class UnreadableDumpError(ToolFailedError):
    """What iptables-save or nft printed cannot be understood, so what the kernel holds is not known."""


class LockHeldError(LinuxError):
    """Another process held the xtables lock for longer than the wait allowed."""


def is_lock_held(error: BaseException) -> bool:
    """Whether an error is, or came of, a xtables lock that another process held."""
    found: BaseException | None = error
    while found is not None and not isinstance(found, LockHeldError):
        found = found.__cause__
    return found is not None


class FeatureMissingError(LinuxError):
    """The kernel or iptables lacks something that no rule set of kube-proxy's can do without."""


class KernelState(enum.Enum):
    """What a failed operation left behind."""

    UNCHANGED = "unchanged"
    RESTORED = "restored"
    PARTLY_APPLIED = "partly applied"
    APPLIED = "applied"


class FailedLine(msgspec.Struct, frozen=True):
    """A line of restore input that iptables refused; `number` counts from 1."""

    number: int
    text: str


class RestoreFailedError(LinuxError):
    """iptables-restore refused its input.

    Attributes:
        reason: what iptables said, in its own words.
        lines: the input lines it spoke of; empty if it named none.
        table: the table that was being restored, "" if unknown.
        committed: how many tables of the input had been committed before, in order; 0 if it named no line.
    """

    def __init__(self, program: str, reason: str, lines: Sequence[FailedLine], table: str, committed: int) -> None:
        where = f" in table {table}" if table else ""
        shown = "".join(f"\n  line {line.number}: {line.text}" for line in lines[:5])
        more = f"\n  and {len(lines) - 5} more lines" if len(lines) > 5 else ""
        super().__init__(f"{program} failed{where}: {reason}{shown}{more}")
        self.reason = reason
        self.lines = tuple(lines)
        self.table = table
        self.committed = committed


class ApplyFailedError(LinuxError):
    """The kernel could not be brought to the desired state.

    Attributes:
        message: what went wrong.
        state: what it is left in.
        detail: which parts, where it is partly applied.
    """

    def __init__(self, message: str, state: KernelState, detail: str = "") -> None:
        shown = {
            KernelState.UNCHANGED: "the kernel's rules are unchanged",
            KernelState.RESTORED: "the rules that were there before are restored",
            KernelState.PARTLY_APPLIED: "the rules are partly applied",
            KernelState.APPLIED: "the rules are applied",
        }[state]
        super().__init__(f"{message}\nstate: {shown}{f': {detail}' if detail else ''}")
        self.message = message
        self.state = state
        self.detail = detail


def failure_message(error: BaseException) -> str:
    """What went wrong, without the state that the kernel was left in; an interruption has no message of its own."""
    if isinstance(error, ApplyFailedError):
        return error.message
    return str(error) if isinstance(error, LinuxError) else "interrupted"
