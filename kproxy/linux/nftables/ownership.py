"""Which chains and sets of the table kube-proxy are kube-proxy's own, and whose Service they are.

Anything else in the table is another program's. It stays, and so does what its rules lead to.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable
from typing import Final

from kproxy.linux.nftables.table import TableText
from kproxy.netfilter.text import owner_of, reachable

_CHAINS: Final = frozenset(
    (
        *("filter-prerouting", "endpoints-check", "mark-for-masquerade", "firewall-allow-check"),
        *("cluster-ips-check", "filter-forward", "filter-input", "filter-output", "filter-output-post-dnat"),
        *("filter-output-pre-dnat", "filter-prerouting-pre-dnat", "firewall-check", "masquerading", "nat-output"),
        *("nat-postrouting", "nat-prerouting", "nodeport-endpoints-check", "reject-chain", "service-endpoints-check"),
        "services",
    )
)
"""Chains that no Service has to do with, of kube-proxy v1.29 to v1.36."""

_SETS: Final = frozenset(
    (
        *("cluster-ips", "hairpin-connections", "nodeport-ips", "firewall-ips", "firewall"),
        *("no-endpoint-nodeports", "no-endpoint-services", "service-ips", "service-nodeports"),
    )
)
_LEADS_TO: Final = re.compile(r"\b(?:goto|jump) ([^\s,}]+)")
_JSON_LEADS_TO: Final = re.compile(r'"target":"([^"]+)"')


def is_our_chain(name: str) -> bool:
    """Whether kube-proxy, of this or an older release, gives chains such a name."""
    return name in _CHAINS or owner_of(name) is not None


def is_our_set(name: str) -> bool:
    """Whether kube-proxy gives sets or maps such a name."""
    return name in _SETS or (name.startswith("affinity-") and owner_of(name) is not None)


def service_of(name: str) -> str:
    """`namespace/name[:port]` of the Service whose chain or affinity set has this name; "" if it belongs to none."""
    found = owner_of(name)
    return "" if found is None else found.service_port


def targets_of(rule: str) -> set[str]:
    """The chains that a rule leads to; also one that is spelled as JSON."""
    return set(_LEADS_TO.findall(rule)) | set(_JSON_LEADS_TO.findall(rule))


def keep_reachable(stale: Collection[str], foreign_rules: Iterable[str], table: TableText) -> set[str]:
    """The stale chains that have to stay, since another program's rules lead to them, at once or through others."""

    def leads_to(rules: Iterable[str]) -> list[str]:
        return [chain for rule in rules for chain in targets_of(rule) if chain in stale]

    return reachable(leads_to(foreign_rules), lambda chain: leads_to(table.rules.get(chain, ())))
