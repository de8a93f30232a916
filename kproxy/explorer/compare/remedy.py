"""What to do about the cause of a difference, where the rules that are there are not those that should be.

What kube-proxy does by itself is said as v1.36 does it: chains that are not one Service's are written whole at every
sync, those of Services when these change, and all with a full sync: at its start, after a failure or a flush, and an
hour after the last one. A sync comes with every change of a Service or an endpoint, and after an hour at most. Jumps
from chains that are not its own are looked at in a full sync: one that lacks is put first, and no other is touched.
"""

from __future__ import annotations

import re
from typing import Final

from kproxy.dataplane.compare.difference import Cause
from kproxy.linux.iptables.ownership import is_owned, is_service_chain
from kproxy.netfilter.text import service_of, target_of
from kproxy.render.iptables.base import BASE_CHAINS
from kproxy.render.nftables.names import TABLE

_MEND: Final = "Restart kube-proxy there, or run `kproxy drift --repair`."
ANY_DRIFT: Final = f"{_MEND} Both write kube-proxy's rules anew."
_FULL: Final = "with its next full sync, at its start and about every hour"
_COMMENT: Final = re.compile(r'comment (?:"([^"]*)"|([^"-]\S*))')


def of_drift(cause: Cause | None) -> str:
    """What to do about a rule that is not as it should be, of which the second side is what is there."""
    if cause is None:
        return ANY_DRIFT
    is_extra = cause.side == "b"
    if not _is_kube_proxys(cause):
        if is_extra or cause.instead is not None:
            return f"kube-proxy leaves what is in {cause.chain} alone. Run `kproxy drift --repair`, or delete it there."
        return f"kube-proxy puts it first in {cause.chain} {_FULL}. {_MEND}"
    if is_extra and _may_be_old(cause):
        return f"It may be one of kube-proxy's that is older than the objects: it goes {_when(cause)}. {_MEND}"
    if is_extra:
        return (
            f"It is not kube-proxy's, but in its chain: it goes {_when(cause)}. {_MEND} If it comes back, look for "
            f"the program that writes it{_by_comment(cause)}."
        )
    return f"kube-proxy mends it {_when(cause)}. {_MEND}"


def of_diff(cause: Cause | None) -> str:
    """What to know of a rule that only one source has, if it is not kube-proxy's."""
    if cause is None or _is_kube_proxys(cause) or is_owned(cause.table, target_of(cause.text)):
        return ""
    return (
        "It is of another program: kube-proxy neither writes nor removes it. Look for its owner by the chain "
        f"{cause.chain}{_by_comment(cause)} and by what it does."
    )


def _is_kube_proxys(cause: Cause) -> bool:
    return is_owned(cause.table, cause.chain) or cause.table.split()[-1] == TABLE


def _may_be_old(cause: Cause) -> bool:
    """Whether what is too much looks like kube-proxy's own: it is a Service's, or leads to a chain of kube-proxy's."""
    if not is_owned(cause.table, cause.chain):
        return bool(cause.set) or "goto" in cause.action or "jump" in cause.action
    leads_on = is_owned(cause.table, target_of(cause.text))
    return leads_on or is_service_chain(cause.chain) or bool(service_of(cause.text))


def _when(cause: Cause) -> str:
    if cause.chain in BASE_CHAINS.get(cause.table, ()):
        return "with its next sync, at the next change of any Service and after an hour at most"
    return f"when its Service changes, or {_FULL}" if is_owned(cause.table, cause.chain) else _FULL


def _by_comment(cause: Cause) -> str:
    found = _COMMENT.search(cause.text)
    return f", by its comment “{found[1] or found[2]}”" if found else ""
