"""What a wrong rule means for packets, in a sentence, from where the rule comes from.

Words can say what a rule is for; whether a particular packet is treated differently is for the data-plane model to
decide (`samples`, `table_samples`).
"""

from __future__ import annotations

from typing import Final

from kproxy.netfilter.text import target_of
from kproxy.render.iptables.chains import (
    CANARY,
    EXTERNAL_SERVICES,
    FILTER,
    FIREWALL,
    FORWARD,
    MARK_MASQ,
    NAT,
    NODEPORTS,
    POSTROUTING,
    PROXY_FIREWALL,
    SERVICES,
)
from kproxy.render.origin import Origin

_JUMPS: Final = {
    (NAT, SERVICES): "traffic to Services{which} is not sent to endpoints",
    (NAT, POSTROUTING): "service traffic is not masqueraded, so answers may not come back",
    (FILTER, SERVICES): "traffic to Services without endpoints{which} is not refused",
    (FILTER, EXTERNAL_SERVICES): "external traffic to Services without endpoints{which} is not refused",
    (FILTER, NODEPORTS): "whether health-check node ports are let in depends on what other rules say",
    (FILTER, FORWARD): "forwarded service traffic depends on the policy of FORWARD and on what other rules say",
    (FILTER, PROXY_FIREWALL): "loadBalancerSourceRanges are not enforced for traffic{which}",
    (FILTER, FIREWALL): "neighbours may reach what listens on 127.0.0.1 only",
}
_WHICH: Final = {
    "PREROUTING": " that comes from pods or from outside",
    "OUTPUT": " that comes from this node",
    "INPUT": " that is for this node",
    "FORWARD": " that is forwarded",
}
_CHAINS: Final = {
    SERVICES: "no Service is reached through this table",
    NODEPORTS: "node ports are not served",
    EXTERNAL_SERVICES: "external traffic to Services without endpoints is not refused",
    FORWARD: "forwarded service traffic depends on what other rules say",
    PROXY_FIREWALL: "loadBalancerSourceRanges are not enforced",
    FIREWALL: "neighbours may reach what listens on 127.0.0.1 only",
    POSTROUTING: "service traffic is not masqueraded, so answers may not come back",
    MARK_MASQ: "service traffic is not marked for masquerading, so answers may not come back",
    "services": "traffic to Services is not sent to endpoints",
    "masquerading": "service traffic is not masqueraded, so answers may not come back",
    "service-endpoints-check": "traffic to Services without endpoints is not refused",
    "nodeport-endpoints-check": "traffic to node ports without endpoints is not refused",
    "cluster-ips-check": "traffic to ports that a ClusterIP does not have is not rejected",
    "firewall-check": "loadBalancerSourceRanges are not enforced",
    "reject-chain": "traffic to Services without endpoints is not refused",
    CANARY: "packets are treated alike; but somebody flushed the table, so what else was in it is gone too",
}


def missing_rule(origin: Origin | None) -> str:
    """What it means that a rule is not there."""
    if origin is None:
        return "what the rule does is not done"
    name = f"Service {origin.service_port} ({origin.service_port.protocol})" if origin.service_port else ""
    reason, endpoint = origin.reason, origin.endpoint.address if origin.endpoint else ""
    if not name:
        return f"not done any more: {reason.removeprefix('base rule: ')}"
    if reason.endswith(("no endpoints", "no local endpoints")):
        return f"traffic to {name} at its {reason.rpartition(':')[0]} is not refused although nothing serves it"
    if reason == "choice of endpoint":
        return f"new connections to {name} are not sent to endpoint {endpoint} as often as they should be"
    if reason == "to endpoint":
        return f"traffic to {name} that was to go to endpoint {endpoint} does not get there"
    if reason.startswith("session affinity"):
        return f"clients of {name} that had endpoint {endpoint} may be sent to another"
    if reason.startswith("hairpin"):
        return f"endpoint {endpoint} cannot reach itself through {name}"
    if "masquerade" in reason:
        return f"traffic to {name} is not masqueraded where it should be, so answers may not come back"
    if reason.startswith(("source range", "the node itself")):
        source = reason.removeprefix("source range ").removesuffix(" is allowed")
        return f"traffic to {name} from {source} is not let in"
    if "source" in reason:
        return f"sources that {name} does not allow are not dropped"
    if reason.startswith("health-check"):
        return f"load balancers may not learn whether {name} has endpoints on this node"
    return f"traffic to {name} ({reason}) is not sent to its endpoints"


def altered_rule(origin: Origin | None) -> str:
    """What it means that another rule stands in a rule's place."""
    return f"packets meet another rule in its place; as far as it differs, {missing_rule(origin)}"


def extra_rule(chain: str, rule: str, service: str) -> str:
    """What it means that a rule is there that should not be."""
    target = target_of(rule)
    whose = f"traffic to Service {service}" if service else f"traffic that passes {chain}"
    if target in ("DROP", "REJECT"):
        return f"{whose} may be refused"
    if target == "ACCEPT":
        return f"{whose} may be let through"
    if target == "RETURN":
        return f"{whose} may leave the chain before the rules after this one"
    if target in ("DNAT", "REDIRECT") or target.startswith(("KUBE-SEP-", "KUBE-SVC-", "KUBE-SVL-", "KUBE-EXT-")):
        return f"{whose} may be sent to an endpoint that should not get it"
    return f"{whose} may be treated otherwise"


def reordered_rules(chain: str, service: str) -> str:
    """What it means that the rules of a chain stand in another order."""
    if chain.startswith(("KUBE-SVC-", "KUBE-SVL-")) or (service and chain.startswith(("service-", "local-"))):
        return f"connections to Service {service} are not shared among its endpoints as they should be"
    if chain.startswith("KUBE-SEP-"):
        return f"an endpoint of Service {service} may not be able to reach itself through the Service"
    if chain == SERVICES:
        return "the node-port rule must be last: traffic to addresses of this node may be taken for a node port"
    return "packets meet the rules in another order; where two rules match one packet, another one decides"


def missing_chain(table: str, chain: str, service: str) -> str:
    """What it means that a chain is not there."""
    if service:
        return f"traffic to Service {service} is not sent to its endpoints"
    return _CHAINS.get(chain, f"what chain {chain} of table {table} does is not done")


def faulty_jump(table: str, source: str, kind: str, rule: str) -> str:
    """What a fault of a jump rule means."""
    target = target_of(rule)
    lost = _JUMPS.get((table, target), f"what chain {target} does is not done").format(which=_WHICH.get(source, ""))
    if kind == "missing":
        return lost
    if kind == "duplicated":
        return "packets meet the chain more than once: what it counts or marks is done twice"
    if kind == "misplaced":
        return f"the chain is met in another order than it should be; where a rule before it decides, {lost}"
    return f"packets meet {target} from {source}, where it should not be met"


_NFT_SETS: Final = {
    "cluster-ips": "traffic to ports that a ClusterIP does not have is not rejected, nor is traffic masqueraded",
    "hairpin-connections": "pods cannot reach themselves through a Service",
    "nodeport-ips": "node ports are not served",
    "service-ips": "traffic to Services is not sent to endpoints",
    "service-nodeports": "node ports are not served",
    "no-endpoint-services": "traffic to Services without endpoints is not refused",
    "no-endpoint-nodeports": "traffic to node ports without endpoints is not refused",
    "firewall-ips": "loadBalancerSourceRanges are not enforced",
}


def faulty_set(name: str, service: str) -> str:
    """What it means that a set or map of nftables mode is not there, or is of another kind."""
    if service:
        return f"clients of Service {service} may not be sent to the endpoint they had"
    return _NFT_SETS.get(name, f"what rules look for in {name} is not found")


def missing_element(name: str, origin: Origin | None, service: str) -> str:
    """What it means that an element of a set or map is not there."""
    whose = f"Service {service}" if service else ""
    reason = origin.reason if origin is not None else ""
    address = reason.partition(":")[0] or "one of its addresses"
    if name in ("service-ips", "service-nodeports") and whose:
        return f"traffic to {whose} at its {address} is not sent to its endpoints"
    if name in ("no-endpoint-services", "no-endpoint-nodeports") and whose:
        return f"traffic to {whose} at its {address} is not refused although nothing serves it"
    if name == "firewall-ips" and whose:
        return f"sources that {whose} does not allow are not dropped"
    if name == "cluster-ips" and whose:
        return f"traffic to ports that the ClusterIP of {whose} does not have is not rejected"
    if name == "hairpin-connections" and whose and origin is not None and origin.endpoint is not None:
        return f"endpoint {origin.endpoint.address} cannot reach itself through {whose}"
    if name == "nodeport-ips":
        return "node ports are not served at this address of the node"
    return _NFT_SETS.get(name, f"what rules look for in {name} is not found")


def extra_element(name: str, service: str) -> str:
    """What it means that an element is there that should not be."""
    whose = f"traffic of Service {service}" if service else "traffic"
    if name in ("service-ips", "service-nodeports"):
        return f"{whose} may be sent to endpoints that should not get it"
    if name in ("no-endpoint-services", "no-endpoint-nodeports", "cluster-ips", "firewall-ips"):
        return f"{whose} may be refused"
    if name == "nodeport-ips":
        return "node ports are served at an address where they should not be"
    return f"{whose} may be treated otherwise"


def extra_nft_rule(chain: str, rule: str, service: str) -> str:
    """What it means that a rule of nftables is in one of kube-proxy's chains that should not be."""
    whose = f"traffic to Service {service}" if service else f"traffic that passes {chain}"
    words = set(rule.replace('"', " ").replace(":", " ").split())
    if words & {"drop", "reject"}:
        return f"{whose} may be refused"
    if "accept" in words:
        return f"{whose} may be let through"
    if words & {"dnat", "goto", "jump", "vmap"}:
        return f"{whose} may be sent to an endpoint that should not get it"
    return f"{whose} may be treated otherwise"
