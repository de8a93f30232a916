"""The kinds of findings: one row each. docs/audit.md lists them."""

from __future__ import annotations

from enum import StrEnum
from types import MappingProxyType
from typing import Final, NamedTuple


class Severity(StrEnum):
    """How bad, the worst first. What is `INFO` alone leaves a cluster well."""

    ERROR = "error"
    """Traffic is lost, or goes where it should not."""
    WARNING = "warning"
    INFO = "info"


class Kind(NamedTuple):
    """A kind of finding. `hint` says what to do; `{mend}` in it stands for the commands of its observations."""

    id: str
    severity: Severity
    title: str
    hint: str


_ERROR, _WARNING, _INFO = Severity.ERROR, Severity.WARNING, Severity.INFO
_RESTART: Final = "See kube-proxy's log on the node; restart its pod there."
_RESTART_OR_FIND: Final = f"{_RESTART} If the rule comes back, find the program that writes it."

_ROWS: Final = (
    Kind("rules-missing", _ERROR, "kube-proxy's rules are not on the node", _RESTART),
    Kind(
        "jumps-lost", _ERROR, "kube-proxy's rules are on the node, and packets do not come to them",
        "Another program has rewritten built-in chains. kube-proxy puts its jumps back with its next "
        "full sync: restart its pod on the node, and find that program.",
    ),
    Kind("service-missing", _ERROR, "kube-proxy's rules do not know a Service", _RESTART),
    Kind("refused", _ERROR, "kube-proxy's chains drop or refuse a Service that has endpoints", _RESTART_OR_FIND),
    Kind("endpoint-stale", _ERROR, "Traffic goes to an endpoint that the Service does not have", _RESTART),
    Kind("endpoint-missing", _ERROR, "An endpoint of a Service gets no traffic", _RESTART),
    Kind(
        "foreign-drop", _ERROR, "A rule of another program refuses Service traffic",
        "Find out which program wrote it. A NetworkPolicy may mean it.",
    ),
    Kind(
        "foreign-drop-outside", _WARNING, "A rule of another program refuses clients from outside",
        "A firewall may mean it; else let the node port or address through.",
    ),
    Kind(
        "foreign-redirect", _ERROR, "A rule of another program sends Service traffic elsewhere",
        "Find out which program wrote it, and let it leave Services alone.",
    ),
    Kind(
        "node-port-shadowed", _ERROR, "A rule of another program takes a node port",
        "Give the Service another node port, or the program another port.",
    ),
    Kind(
        "foreign-bypass", _ERROR, "A rule of another program keeps traffic from kube-proxy's rules",
        "It must come after kube-proxy's, or leave Service addresses alone.",
    ),
    Kind(
        "foreign-masquerade", _WARNING, "A rule of another program hides Service clients' addresses",
        "Except the pod networks from it.",
    ),
    Kind(
        "masquerade-missing", _ERROR, "Traffic is not masqueraded that must be: answers miss the client",
        "Compare clusterCIDR and detectLocalMode with the pods' addresses; restart kube-proxy.",
    ),
    Kind(
        "masquerade-extra", _WARNING, "kube-proxy's rules hide clients' addresses without need",
        "Compare clusterCIDR, detectLocalMode and masqueradeAll; restart kube-proxy.",
    ),
    Kind("refusal-missing", _WARNING, "Traffic of a Service that should be refused is let through", _RESTART),
    Kind("share-uneven", _WARNING, "Endpoints do not get equal shares", _RESTART),
    Kind(
        "ipvs-server", _WARNING, "A virtual server has another scheduler, timeout or flag than kube-proxy gives it",
        _RESTART,
    ),
    Kind(
        "ipvs-foreign", _WARNING, "IPVS has a virtual server that no Service asks for",
        "kube-proxy removes it with its next sync. If another program needs it, spare it by excludeCIDRs; else {mend}.",
    ),
    Kind("ipvs-address", _ERROR, "kube-ipvs0 has other addresses than the Services", f"{{mend}}. {_RESTART}"),
    Kind("ipvs-set", _ERROR, "An ipset of kube-proxy has other members than it should", _RESTART_OR_FIND),
    Kind("ipvs-rule", _ERROR, "kube-proxy's iptables rules of IPVS mode are not as it writes them", _RESTART_OR_FIND),
    Kind(
        "ipvs-conntrack", _ERROR, "IPVS keeps its connections from conntrack: masquerading fails",
        "{mend}; kube-proxy sets it when it starts, and something has reset it.",
    ),
    Kind(
        "leftover-rules", _WARNING, "Rules of kube-proxy are left from another mode or variant",
        "`kube-proxy --cleanup` (or `kproxy cleanup`) on the node, then restart kube-proxy.",
    ),
    Kind("ip-forward", _ERROR, "The node does not forward packets", "{mend}, and the same in /etc/sysctl.d."),
    Kind(
        "route-localnet", _WARNING, "Node ports do not answer at 127.0.0.1",
        "kube-proxy sets route_localnet when it starts; something has reset it.",
    ),
    Kind(
        "rp-filter", _WARNING, "The reverse-path filter drops clients from outside",
        "{mend}, or mend the routes.",
    ),
    Kind(
        "bridge-nf", _ERROR, "Bridged packets do not pass through the rules",
        "modprobe br_netfilter; {mend}: answers between pods of a node miss the client.",
    ),
    Kind(
        "conntrack-full", _ERROR, "The connection tracking table is nearly full: new connections will be lost",
        "Raise net.netfilter.nf_conntrack_max (kube-proxy: conntrack.maxPerCore), or find who opens so many.",
    ),
    Kind(
        "no-route", _ERROR, "No route leads to endpoints",
        "See whether the network plugin runs on the node, and the routes to that podCIDR.",
    ),
    Kind(
        "route-astray", _ERROR, "The route to pods leads to another node",
        "See whether the network plugin runs on the node; Nodes may have swapped podCIDRs.",
    ),
    Kind(
        "tunnel-astray", _ERROR, "The tunnel does not lead to the node of the pods",
        "See whether the network plugin runs on the node: it keeps neighbours and FDB of the tunnel.",
    ),
    Kind(
        "mtu", _WARNING, "A tunnel's packets do not fit the network under it: large ones are lost",
        "Set the network plugin's MTU to what is left, and make the pods anew.",
    ),
    Kind(
        "stale-flow", _ERROR, "Connections without an end are kept to endpoints that are gone, or past them",
        "On the node: {mend}",
    ),
    Kind(
        "claimed-twice", _ERROR, "Several Services claim one address and port: which one answers is random",
        "Give each Service an address or a port of its own.",
    ),
    Kind("proxy-unhealthy", _ERROR, "kube-proxy says that it is not healthy", _RESTART),
    Kind("proxy-behind", _WARNING, "kube-proxy has not brought its rules up to date", _RESTART),
    Kind(
        "cluster-cidr", _ERROR, "Pods have addresses outside of what kube-proxy takes for pods",
        "Set clusterCIDR (or detectLocalMode) to what the network plugin gives out; restart kube-proxy.",
    ),
    Kind("versions-mixed", _WARNING, "The nodes' kube-proxies have different minor versions", "Finish the upgrade."),
    Kind(
        "modes-mixed", _WARNING, "The nodes' kube-proxies run in different modes",
        "Restart those that still run with the old configuration.",
    ),
    Kind(
        "no-endpoints", _INFO, "A Service has no endpoint that is ready: connections to it are refused",
        "Compare its selector with the Pods' labels, and see whether they are ready.",
    ),
    Kind(
        "no-local-endpoints", _INFO, "Traffic policy Local, and no endpoint on the node: traffic is dropped there",
        "Meant so for load balancers that ask the health check port; else run a Pod on each node.",
    ),
)  # fmt: skip

KINDS: Final = MappingProxyType({each.id: each for each in _ROWS})
