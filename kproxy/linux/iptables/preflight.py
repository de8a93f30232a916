"""Preflight: proving, before anything is written, that this host can load what kube-proxy's rules use.

Each feature is loaded in a scratch namespace that no other process sees and that vanishes afterwards. When all load at
once, as nearly always, that is one process; otherwise each is tried alone to find out which are missing and why. What
failed is tried again: a family that was left alone because iptables failed for a moment would stay without rules.

A scratch namespace takes CAP_SYS_ADMIN (unshare(2)), which a proxy's container seldom has, nor needs for anything else.
Without it the same rules are loaded in the namespace that is to be programmed, in a chain to which nothing jumps, and
removed at once. `iptables-restore --test` would not do: it never asks the kernel. Should the process be killed in
between, the chain stays behind; it counts as kube-proxy's (`owned`), so the next full sync or `cleanup` removes it.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterable
from typing import Final, Protocol

import msgspec

from kproxy.linux.errors import (
    FeatureMissingError,
    LinuxError,
    LockHeldError,
    NamespaceError,
    PrivilegeError,
    RestoreFailedError,
    ToolFailedError,
)
from kproxy.linux.iptables import nfacct
from kproxy.linux.iptables.binaries import Iptables
from kproxy.linux.iptables.executor import IptablesExecutor
from kproxy.linux.iptables.features import BY_NAME, FEATURES, Feature
from kproxy.linux.iptables.lock import DEFAULT_WAIT
from kproxy.linux.iptables.ownership import PREFLIGHT_CHAIN as CHAIN
from kproxy.linux.namespace import Namespace
from kproxy.services.names import IPFamily

_IP: Final = {IPFamily.IPV4: "192.0.2.1", IPFamily.IPV6: "[2001:db8::1]"}
_UNASKED: Final = ("nfacct",)

SECOND_LOOK: Final = 0.5
"""Seconds until what nothing works without is tried a last time."""


class Preflight(msgspec.Struct, frozen=True):
    """What a host lacks.

    Attributes:
        missing: for each feature that could not be loaded, what iptables said.
        untried: why nothing was tried, so that everything counts as there; "" if it was.
    """

    missing: dict[str, str]
    untried: str = ""

    def check(self) -> None:
        """Raises FeatureMissingError if something is missing that nothing works without; the error names it all."""
        required = [BY_NAME[name] for name in self.missing if BY_NAME[name].required]
        if required:
            listed = "".join(
                f"\n  {feature.name}, needed for {feature.needed_for}: {self.missing[feature.name]}"
                for feature in required
            )
            raise FeatureMissingError(
                f"this host's kernel or iptables lacks what kube-proxy's rules cannot do without:{listed}"
            )

    @property
    def losses(self) -> dict[str, str]:
        """For each optional feature that is missing, a sentence that says what is lost."""
        return {
            name: f"{name} cannot be used here ({why}): {BY_NAME[name].loss}"
            for name, why in self.missing.items()
            if not BY_NAME[name].required
        }


def run_preflight(
    iptables: Iptables, fallback: Namespace | None = None, *, with_nfacct: bool = False, lock_wait: float = DEFAULT_WAIT
) -> Preflight:
    """Tries what rules use with these binaries in a scratch namespace.

    Args:
        fallback: the namespace to try it in where no scratch namespace may be made; None: then nothing is tried.

    Raises:
        LinuxError: it could not be tried: no root, the xtables lock is held, iptables fails whatever it is asked.
    """
    try:
        scratch = Namespace.scratch()
    except (PrivilegeError, NamespaceError) as error:
        if fallback is None:
            return Preflight({}, f"what this host can load was not tried: {error}")
        executor = UndoingExecutor(IptablesExecutor(fallback, iptables, lock_wait=lock_wait))
        return _preflight(executor, fallback, with_nfacct)
    with scratch:
        return _preflight(IptablesExecutor(scratch, iptables, lock_wait=lock_wait), scratch, with_nfacct)


def _preflight(executor: Restorer, namespace: Namespace, with_nfacct: bool) -> Preflight:
    missing: dict[str, str] = {}
    if with_nfacct:
        try:
            nfacct.ensure_counters(namespace)
        except FeatureMissingError as error:
            missing["nfacct"] = str(error)
    features = [f for f in FEATURES if f.name not in missing and (with_nfacct or f.name not in _UNASKED)]
    return probe(executor, features, missing)


class Restorer(Protocol):
    """What a probe needs of an `Executor`."""

    @property
    def family(self) -> IPFamily: ...

    def restore(self, text: str) -> None: ...


class UndoingExecutor:
    """An executor in a namespace that is in use: what a probe loads is removed again at once."""

    def __init__(self, executor: Restorer) -> None:
        self._executor = executor

    @property
    def family(self) -> IPFamily:
        return self._executor.family

    def restore(self, text: str) -> None:
        tables = [line[1:] for line in text.splitlines() if line.startswith("*")]
        try:
            self._executor.restore(text)
        except RestoreFailedError:
            # The tables before the one that was refused are in: each table is a transaction of its own.
            for table in tables:
                with contextlib.suppress(RestoreFailedError):
                    self._executor.restore(_removal(table))
            raise
        if tables:
            self._executor.restore("".join(map(_removal, tables)))


def _removal(table: str) -> str:
    """Restore input that removes the probe's chain; declared first, since only a chain that is there can be deleted."""
    return f"*{table}\n:{CHAIN} - [0:0]\n-X {CHAIN}\nCOMMIT\n"


def probe(executor: Restorer, features: Iterable[Feature], missing: dict[str, str] | None = None) -> Preflight:
    """Tries features with an executor that may be scribbled on.

    Raises:
        LinuxError: it could not be tried.
    """
    features = list(features)
    found = dict(missing or {})
    if _try(executor, features) is None:
        return Preflight(found)
    failed = _failures(executor, features)
    if failed:
        _must_work(executor)
    failed = _failures(executor, [feature for feature in features if feature.name in failed])
    if any(feature.required for feature in features if feature.name in failed):
        time.sleep(SECOND_LOOK)
        failed = _failures(executor, [feature for feature in features if feature.name in failed])
    return Preflight(found | failed)


def _must_work(executor: Restorer) -> None:
    """Raises ToolFailedError if iptables fails whatever it is asked: that says nothing of what the host lacks."""
    try:
        executor.restore("")
    except RestoreFailedError as error:
        raise ToolFailedError(f"iptables-restore fails even with nothing to do: {error.reason}") from error


def _failures(executor: Restorer, features: Iterable[Feature]) -> dict[str, str]:
    reasons = {feature.name: _try(executor, [feature]) for feature in features}
    return {name: reason for name, reason in reasons.items() if reason is not None}


def _try(executor: Restorer, features: list[Feature]) -> str | None:
    """Why the features cannot be loaded together; None if they can."""
    try:
        executor.restore(probe_text(features, executor.family))
    except (PrivilegeError, LockHeldError):
        raise
    except LinuxError as error:
        return error.reason if isinstance(error, RestoreFailedError) else str(error)
    return None


def probe_text(features: Iterable[Feature], family: IPFamily) -> str:
    """Restore input that uses the features, each rule in a chain of its own table."""
    tables: dict[str, list[str]] = {}
    for feature in features:
        rules = tables.setdefault(feature.table, [])
        if feature.rule:
            rules.append(f"-A {CHAIN} {feature.rule.format(ip=_IP[family])}\n")
    return "".join(f"*{table}\n:{CHAIN} - [0:0]\n{''.join(rules)}COMMIT\n" for table, rules in tables.items())
