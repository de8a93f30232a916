"""Preflight: proving, before anything is written, that this host can load what kube-proxy's rules use.

A missing optional feature costs only itself: `LineRewriter` turns rendered lines into what the host can load, and
`loss` says what that costs. kube-proxy instead fails every restore (kubernetes/kubernetes issue 142068).

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
import re
import time
from collections.abc import Callable, Collection, Iterable
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
from kproxy.linux.iptables.executor import Iptables, IptablesExecutor
from kproxy.linux.iptables.legacy import DEFAULT_WAIT
from kproxy.linux.iptables.ownership import PREFLIGHT_CHAIN as CHAIN
from kproxy.linux.namespace import Namespace
from kproxy.render.iptables.chains import FILTER, MANGLE, NAT
from kproxy.services.names import IPFamily


class Feature(msgspec.Struct, frozen=True):
    """One ability.

    Attributes:
        name: of the match, target, option or table, as iptables spells it.
        table: where it is needed; `rule` is a rule that uses it, "" for the table itself.
        needed_for: what kube-proxy uses it for.
        loss: what is lost without it; "" when nothing works without it.
    """

    name: str
    table: str
    rule: str
    needed_for: str
    loss: str = ""

    @property
    def required(self) -> bool:
        return not self.loss


FEATURES: Final = (
    Feature("table nat", NAT, "", "sending service traffic to endpoints"),
    Feature("table filter", FILTER, "", "refusing traffic to services without endpoints"),
    Feature(
        "table mangle", MANGLE, "", "a canary chain", "no canary in table mangle: drift looks at the other tables only"
    ),
    Feature("tcp", NAT, "-p tcp -m tcp --dport 1 -j RETURN", "Services with TCP ports"),
    Feature("udp", NAT, "-p udp -m udp --dport 1 -j RETURN", "Services with UDP ports"),
    Feature("DNAT", NAT, "-p tcp -m tcp -j DNAT --to-destination {ip}:1", "sending traffic to endpoints"),
    Feature("MARK", NAT, "-j MARK --or-mark 0x4000", "marking traffic for masquerading"),
    Feature("mark", NAT, "-m mark --mark 0x4000/0x4000 -j RETURN", "masquerading"),
    Feature("MASQUERADE", NAT, "-j MASQUERADE", "traffic whose answer must come back through this node"),
    Feature("conntrack", FILTER, "-m conntrack --ctstate NEW -j RETURN", "telling new connections from others"),
    Feature(
        "comment", NAT, '-m comment --comment "a b" -j RETURN', "naming Services in rules", "rules carry no comments"
    ),
    Feature(
        "statistic",
        NAT,
        "-m statistic --mode random --probability 0.5000000000 -j RETURN",
        "choosing one of several endpoints",
        "connections to a Service are not spread: all go to its first endpoint",
    ),
    Feature(
        "recent",
        NAT,
        "-m recent --name KUBE-PREFLIGHT --rcheck --seconds 10 --reap -j RETURN",
        "session affinity",
        "session affinity ClientIP has no effect",
    ),
    Feature(
        "addrtype",
        NAT,
        "-m addrtype --dst-type LOCAL -j RETURN",
        "telling the node's own addresses",
        "node ports work on the addresses that interfaces have now, their refusal when there are no endpoints is left "
        "out, and with external traffic policy Local the node's own traffic is treated as from outside",
    ),
    Feature(
        "sctp",
        NAT,
        "-p sctp -m sctp --dport 1 -j RETURN",
        "Services with SCTP ports",
        "Services with SCTP ports do not work",
    ),
    Feature(
        "REJECT",
        FILTER,
        "-j REJECT",
        "refusing traffic to services without endpoints",
        "traffic to Services without endpoints is dropped, so clients wait instead of being refused at once",
    ),
    Feature(
        "random-fully",
        NAT,
        "-j MASQUERADE --random-fully",
        "source ports of masqueraded traffic",
        "source ports of masqueraded traffic are chosen less randomly, so busy nodes may lose some new connections",
    ),
    Feature(
        "nfacct",
        FILTER,
        "-m nfacct --nfacct-name ct_state_invalid_dropped_pkts -j RETURN",
        "counting packets for kube-proxy's metrics",
        "packets are not counted for kube-proxy's metrics",
    ),
)

BY_NAME: Final = {feature.name: feature for feature in FEATURES}

LineRewriter = Callable[[str], "str | None"]
"""Turns a restore line (without its newline) into one that can be loaded, or None to leave it out."""

_COMMENT: Final = re.compile(r'-m comment --comment (?:"(?:[^"\\]|\\.)*"|\S+) ?')
_STATISTIC: Final = re.compile(r"-m statistic --mode random --probability \S+ ")
_RECENT_SET: Final = re.compile(r"-m recent --name \S+ --set ")


def line_rewriter(missing: Collection[str]) -> LineRewriter | None:
    """What to do to each rendered line when these optional features are missing; None if nothing.

    nfacct and random-fully are not here: the renderer itself knows how to do without them.
    """
    edits = [edit for name, edit in _EDITS.items() if name in missing]
    if not edits:
        return None

    def rewrite(line: str) -> str | None:
        current: str | None = line
        for edit in edits:
            if current is not None:
                current = edit(current)
        return current

    return rewrite


_EDITS: Final[dict[str, LineRewriter]] = {
    "recent": lambda line: None if " --rcheck " in line else _RECENT_SET.sub("", line),
    "addrtype": lambda line: None if "-m addrtype " in line else line,
    "sctp": lambda line: None if " -p sctp " in f"{line} " else line,
    "REJECT": lambda line: f"{line[: -len('REJECT')]}DROP" if line.endswith("-j REJECT") else line,
    "statistic": lambda line: _STATISTIC.sub("", line),
    "comment": lambda line: _COMMENT.sub("", line).rstrip(),
}
"""How to do without a feature, in the order in which lines are edited."""


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
