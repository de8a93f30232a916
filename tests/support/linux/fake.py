"""A kernel in memory, and faults: executors that go through the same suite as the real one."""

from __future__ import annotations

from collections.abc import Callable

from kproxy.linux.errors import FailedLine, RestoreFailedError
from kproxy.linux.iptables.executor import Executor
from kproxy.netfilter import (
    RestoreError,
    Ruleset,
    RuleSyntaxError,
    apply_restore,
    parse_restore,
    print_save,
)
from kproxy.netfilter.hooks import Variant
from kproxy.services import IPFamily


class MemoryExecutor:
    """Does in memory what iptables-restore and iptables-save do."""

    def __init__(self, family: IPFamily, variant: Variant = Variant.NFT) -> None:
        self._family = family
        self._variant = variant
        self.ruleset = Ruleset(family)
        self.asleep: set[str] = set()

    @property
    def family(self) -> IPFamily:
        return self._family

    @property
    def variant(self) -> Variant:
        return self._variant

    def save(self, *, counters: bool) -> str:
        return print_save(self.ruleset.in_save_order(), counters=counters)

    def fingerprint(self) -> object | None:
        return None

    def dormant(self) -> frozenset[str]:
        return frozenset(self.asleep)

    def wake(self, table: str) -> None:
        self.asleep.discard(table)

    def restore(self, text: str) -> None:
        try:
            self.ruleset = apply_restore(self.ruleset, parse_restore(text, family=self._family))
        except RestoreError as error:
            self.ruleset = error.applied
            line = FailedLine(error.line, text.split("\n")[error.line - 1])
            committed = text.split("\n")[: error.line - 1].count("COMMIT")
            raise RestoreFailedError("fake-restore", error.reason, [line], error.table, committed) from error
        except RuleSyntaxError as error:
            raise RestoreFailedError("fake-restore", str(error), [], "", 0) from error


class Killed(BaseException):
    """The process was killed: nobody catches this."""


class Faulty:
    """Passes everything on, transaction by transaction, until a fault.

    Attributes:
        transactions: how many were carried out.
        restores: how many times `restore` was called.
    """

    def __init__(
        self,
        executor: Executor,
        *,
        fail_at: int | None = None,
        error: Callable[[], BaseException] = Killed,
        once: bool = True,
    ) -> None:
        self._executor = executor
        self._fail_at = fail_at
        self._error = error
        self._once = once
        self.transactions = 0
        self.restores = 0

    @property
    def family(self) -> IPFamily:
        return self._executor.family

    @property
    def variant(self) -> Variant:
        return self._executor.variant

    def save(self, *, counters: bool) -> str:
        return self._executor.save(counters=counters)

    def fingerprint(self) -> object | None:
        return None

    def dormant(self) -> frozenset[str]:
        return self._executor.dormant()

    def wake(self, table: str) -> None:
        self._executor.wake(table)

    def restore(self, text: str) -> None:
        self.restores += 1
        for part in transactions(text):
            if self._fail_at is not None and self.transactions >= self._fail_at:
                if self._once:
                    self._fail_at = None
                raise self._error()
            self._executor.restore(part)
            self.transactions += 1


def transactions(text: str) -> list[str]:
    """The tables of restore input, each a text of its own."""
    return [f"{part}COMMIT\n" for part in text.split("COMMIT\n") if part]


def refused() -> RestoreFailedError:
    """What iptables raises when it refuses a line."""
    return RestoreFailedError("iptables-restore", "No such file or directory", [FailedLine(3, "-A X -j Y")], "nat", 0)
