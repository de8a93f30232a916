"""What kube-proxy's rules need of a kernel and its iptables, and how to do without what is optional.

A missing optional feature costs only itself: `LineRewriter` turns rendered lines into what the host can load, and
`loss` says what that costs. kube-proxy instead fails every restore (kubernetes/kubernetes issue 142068).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection
from typing import Final

import msgspec

from kproxy.render.iptables.chains import FILTER, MANGLE, NAT


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


def _without_comment(line: str) -> str | None:
    return _COMMENT.sub("", line).rstrip()


def _without_statistic(line: str) -> str | None:
    return _STATISTIC.sub("", line)


def _without_recent(line: str) -> str | None:
    return None if " --rcheck " in line else _RECENT_SET.sub("", line)


def _without_addrtype(line: str) -> str | None:
    return None if "-m addrtype " in line else line


def _without_sctp(line: str) -> str | None:
    return None if " -p sctp " in f"{line} " else line


def _without_reject(line: str) -> str | None:
    return f"{line[: -len('REJECT')]}DROP" if line.endswith("-j REJECT") else line


_EDITS: Final[dict[str, LineRewriter]] = {
    "recent": _without_recent,
    "addrtype": _without_addrtype,
    "sctp": _without_sctp,
    "REJECT": _without_reject,
    "statistic": _without_statistic,
    "comment": _without_comment,
}
