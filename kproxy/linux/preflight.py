"""Preflight: proving, before anything is written, that this host can load what kube-proxy's rules use.

Each feature is loaded in a scratch namespace that nobody else sees and that vanishes afterwards. When all load at
once, as nearly always, that is one process; otherwise each is tried alone to find out which are missing and why. What
failed is tried again: a family that was left alone because iptables failed for a moment would stay without rules.
"""

from __future__ import annotations

import time
from collections.abc import Iterable
from typing import Final

import msgspec

from kproxy.linux import nfacct
from kproxy.linux.binaries import Iptables
from kproxy.linux.errors import (
    FeatureMissingError,
    LinuxError,
    LockHeldError,
    PrivilegeError,
    RestoreFailedError,
    ToolFailedError,
)
from kproxy.linux.executor import Executor, IptablesExecutor
from kproxy.linux.features import BY_NAME, FEATURES, Feature
from kproxy.linux.lock import DEFAULT_WAIT
from kproxy.linux.namespace import Namespace
from kproxy.services.names import IPFamily

CHAIN: Final = "KUBE-PREFLIGHT"
_IP: Final = {IPFamily.IPV4: "192.0.2.1", IPFamily.IPV6: "[2001:db8::1]"}
_UNASKED: Final = ("nfacct",)

SECOND_LOOK: Final = 0.5
"""Seconds until what nothing works without is tried a last time."""


class Preflight(msgspec.Struct, frozen=True):
    """What a host lacks.

    Attributes:
        missing: for each feature that could not be loaded, what iptables said.
    """

    missing: dict[str, str]

    def check(self) -> None:
        """Raises FeatureMissingError if something is missing that nothing works without; the error names it all."""
        required = [BY_NAME[name] for name in self.missing if BY_NAME[name].required]
        if required:
            told = "".join(
                f"\n  {feature.name}, needed for {feature.needed_for}: {self.missing[feature.name]}"
                for feature in required
            )
            raise FeatureMissingError(
                f"this host's kernel or iptables lacks what kube-proxy's rules cannot do without:{told}"
            )

    @property
    def losses(self) -> list[str]:
        """What is lost for want of optional features, a sentence each."""
        return [
            f"{name} cannot be used here ({why}): {BY_NAME[name].loss}"
            for name, why in self.missing.items()
            if not BY_NAME[name].required
        ]


def run_preflight(iptables: Iptables, *, with_nfacct: bool = False, lock_wait: float = DEFAULT_WAIT) -> Preflight:
    """Tries what rules use with these binaries in a scratch namespace.

    Raises:
        LinuxError: it could not be tried: no root, the xtables lock is held, iptables fails whatever it is asked.
    """
    missing: dict[str, str] = {}
    with Namespace.scratch() as scratch:
        if with_nfacct:
            try:
                nfacct.ensure_counters(scratch)
            except FeatureMissingError as error:
                missing["nfacct"] = str(error)
        features = [f for f in FEATURES if f.name not in missing and (with_nfacct or f.name not in _UNASKED)]
        return probe(IptablesExecutor(scratch, iptables, lock_wait=lock_wait), features, missing)


def probe(executor: Executor, features: Iterable[Feature], missing: dict[str, str] | None = None) -> Preflight:
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


def _must_work(executor: Executor) -> None:
    """Raises ToolFailedError if iptables fails whatever it is asked: that says nothing of what the host lacks."""
    try:
        executor.restore("")
    except RestoreFailedError as error:
        raise ToolFailedError(f"iptables-restore fails even with nothing to do: {error.reason}") from error


def _failures(executor: Executor, features: Iterable[Feature]) -> dict[str, str]:
    reasons = {feature.name: _try(executor, [feature]) for feature in features}
    return {name: reason for name, reason in reasons.items() if reason is not None}


def _try(executor: Executor, features: list[Feature]) -> str | None:
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
