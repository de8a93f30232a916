"""From iptables mode's rules to rules that treat packets as nftables mode does, step by step.

Each step takes one known difference between the modes out of the rules, by other options of the renderer, by leaving
rules out, and by restore input that adds some. What is still different after all steps of the reasons that were found
is none of them. So the reasons are complete if, and only if, the comparison finds the two sides alike then; and a
difference that no step knows cannot hide behind one that is known.

Rules that a step adds stand in chains of their own, `MIGRATE-...`, or in front of kube-proxy's.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import Final

import msgspec

from kproxy.cluster.node import NodeFacts
from kproxy.cluster.rendered import nftables_text
from kproxy.dataplane.symbolic.host_rules import SideRules
from kproxy.netfilter import Family, Ruleset, apply_restore, parse_restore
from kproxy.netfilter.hooks import Table
from kproxy.netfilter.text import chain_of, destination_of, key_of, target_of
from kproxy.render import Renderer
from kproxy.render.iptables.chains import (
    EXTERNAL_SERVICES,
    FORWARD,
    MARK_MASQ,
    NODEPORTS,
    PROXY_FIREWALL,
    SERVICES,
    endpoint_chain_name,
    service_port_hash,
)
from kproxy.render.iptables.save import saved_ruleset
from kproxy.render.nftables.save import nft_ruleset
from kproxy.services.claims import ServiceAddress, doors_of

_LOOPBACK_NETWORK: Final = {Family.IPV4: "127.0.0.0/8", Family.IPV6: "::1/128"}
_NODE_PORT_REFUSALS: Final = "MIGRATE-NODEPORTS"
_CLUSTER_IPS: Final = "MIGRATE-CLUSTER-IPS"
_MASQUERADED: Final = "MIGRATE-MASQ"
_UNALLOCATED: Final = "MIGRATE-UNALLOCATED"
_OWN: Final = re.compile(r"MIGRATE-\S+")
_DISPATCH: Final = (SERVICES, EXTERNAL_SERVICES, PROXY_FIREWALL, NODEPORTS)


@dataclass(frozen=True, slots=True)
class Step:
    """One step: other options of the renderer, lines that are left out, and restore input that is added."""

    options: Callable[[NodeFacts], Mapping[str, object]] = lambda _facts: {}
    drops: Callable[[NodeFacts], Callable[[str], bool]] = lambda _facts: lambda _line: False
    adds: Callable[[NodeFacts], str] = lambda _facts: ""


def iptables_rules(facts: NodeFacts, steps: Collection[str] = ()) -> SideRules:
    """Iptables mode's rules on a fresh host, with the steps of some reasons taken."""
    taken = [step for name, step in STEPS.items() if name in steps]
    changes = {name: value for step in taken for name, value in step.options(facts).items()}
    drops = [step.drops(facts) for step in taken]
    text = Renderer(msgspec.structs.replace(facts.iptables, **changes)).plan_full(facts.state).restore_text
    if drops:
        text = "".join(line for line in text.splitlines(keepends=True) if not any(drop(line) for drop in drops))
    rules = saved_ruleset(text, facts.family)
    for addition in [step.adds(facts) for step in taken] + [_refusals(facts, steps)]:
        if addition:
            rules = apply_restore(rules, parse_restore(addition, family=facts.family))
    return SideRules.of(Ruleset(facts.family, rules.in_save_order().tables))


def nftables_rules(facts: NodeFacts, steps: Collection[str] = ()) -> SideRules:
    """Nftables mode's rules on a fresh host. Addresses that several Services share are left out by a step, here and
    there."""
    text = nftables_text(facts.state, facts.nftables)
    if "shared-address" in steps:
        shared = facts.shared_doors.keys()
        keys = ((line, key_of(line.partition(" { ")[2])) for line in text.splitlines(keepends=True))
        text = "".join(line for line, key in keys if key is None or ServiceAddress(*key) not in shared)
    return SideRules((), nft_ruleset(text))


# the steps


def _all_ports_masqueraded(facts: NodeFacts) -> str:
    """In nftables mode every port of a ClusterIP is masqueraded as one that a Service has, and refused afterwards.

    Those that a Service has with endpoints are masqueraded as iptables mode's options say."""
    options = facts.nftables
    who = "" if options.masquerade_all else f"{options.local_traffic.if_not_local} "
    marks: list[str] = []
    if options.masquerade_all or options.local_traffic.is_implemented:
        answered = (port for port in facts.service_ports if facts.decided[port.name].has_internal)
        doors = sorted(ServiceAddress.of(port.cluster_ip, port) for port in answered)
        marks = [f"-A {_MASQUERADED} {_to(door)} -j RETURN" for door in doors]
        marks += [f"-A {_MASQUERADED} -d {ip} {who}-j {MARK_MASQ}" for ip in facts.cluster_ips]
        marks.append(f"-I {SERVICES} 1 -j {_MASQUERADED}")
    served = [f"{_to(door)} -j RETURN" for door in sorted(facts.cluster_ip_doors)]
    return _restore(Table.NAT, marks) + _refuse_first(_CLUSTER_IPS, served, facts.cluster_ips, "REJECT")


def _unallocated_dropped(facts: NodeFacts) -> str:
    served = [f"-d {ip} -j RETURN" for ip in facts.cluster_ips]
    served += [
        f"{_to(door)} -j RETURN"
        for port in facts.service_ports
        for door in doors_of(port)
        if door.address and door.address != port.cluster_ip
    ]
    return _refuse_first(_UNALLOCATED, served, facts.nftables.service_cidrs, "DROP")


def _refuse_first(chain: str, served: Iterable[str], networks: Iterable[str], target: str) -> str:
    """Rules before all others of FORWARD and OUTPUT that refuse what goes to some networks and is not served."""
    lines = [f"-A {chain} {rule}" for rule in dict.fromkeys(served)]
    lines += [f"-A {chain} -d {network} -j {target}" for network in networks]
    lines += [f"-I {hook} 1 -m conntrack --ctstate NEW -j {chain}" for hook in ("FORWARD", "OUTPUT")]
    return _restore(Table.FILTER, lines)


def _remote_hairpin(facts: NodeFacts) -> Callable[[str], bool]:
    """Endpoints of other nodes that are told apart from this node's own by chain."""
    remote = {
        endpoint_chain_name(port.name, endpoint.address)
        for port, endpoint in facts.remote_endpoints
        if f"{endpoint.address}/{port.protocol}" not in facts.hairpin
    }

    return lambda line: target_of(line) == MARK_MASQ and chain_of(line) in remote


def _firewall_first(facts: NodeFacts) -> str:
    """Sources are checked before anything is translated, and whether there are endpoints or not."""
    checks: list[str] = []
    ways: list[str] = []
    for number, (door, sources, port) in enumerate(facts.restricted):
        chain = f"MIGRATE-FW-{number}"
        match = _to(door)
        checks += [f"-A {hook} -m conntrack --ctstate NEW {match} -j {chain}" for hook in ("PREROUTING", "OUTPUT")]
        checks += [f"-A {chain} -s {source} -j RETURN" for source in sources]
        checks.append(f"-A {chain} -j DROP")
        if facts.decided[port.name].has_any:
            ways.append(f"-I {SERVICES} 1 {match} -j KUBE-EXT-{service_port_hash(port.name)}")
    return _restore(Table.MANGLE, checks) + _restore(Table.NAT, ways)


def _refused_everywhere(_facts: NodeFacts) -> str:
    """Services without endpoints are refused at all three hooks, each at two of them in iptables mode."""
    lines = [
        f"-A INPUT -m conntrack --ctstate NEW -j {SERVICES}",
        f"-A OUTPUT -m conntrack --ctstate NEW -j {EXTERNAL_SERVICES}",
    ]
    return _restore(Table.FILTER, lines)


def _refused_node_port(line: str) -> bool:
    return line.startswith(f"-A {EXTERNAL_SERVICES} ") and "--dst-type LOCAL" in line


def _shared_line(facts: NodeFacts) -> Callable[[str], bool]:
    """Whether a line of restore input leads a shared address and port somewhere."""
    shared = facts.shared_doors.keys()

    def drops(line: str) -> bool:
        door = destination_of(line.rstrip()) if chain_of(line) in _DISPATCH else None
        return door is not None and ServiceAddress(door.address.partition("/")[0], *door[1:]) in shared

    return drops


STEPS: Final = {
    "shared-address": Step(drops=_shared_line),
    "node-port-addresses": Step(
        options=lambda facts: {"node_port_addresses": facts.nftables.node_port_addresses},
        drops=lambda _facts: _refused_node_port,
    ),
    "localhost-node-ports": Step(
        options=lambda _facts: {"localhost_node_ports": False}, drops=lambda _facts: _refused_node_port
    ),
    "localnet-guard": Step(options=lambda _facts: {"localhost_node_ports": False}),
    "cluster-ip-ports": Step(adds=_all_ports_masqueraded),
    "unallocated-cluster-ips": Step(adds=_unallocated_dropped),
    "invalid-packets": Step(options=lambda _facts: {"drop_invalid": False}),
    "masquerade-mark": Step(
        options=lambda facts: {"masquerade_mark": facts.nftables.masquerade_mark},
        drops=lambda _facts: lambda line: chain_of(line) == FORWARD and target_of(line) == "ACCEPT",
    ),
    "masquerade-all": Step(options=lambda facts: {"masquerade_all": facts.nftables.masquerade_all}),
    "random-fully": Step(
        options=lambda facts: {"features": msgspec.structs.replace(facts.iptables.features, random_fully=True)}
    ),
    "remote-hairpin": Step(drops=_remote_hairpin),
    "source-ranges": Step(
        drops=lambda _facts: (
            lambda line: (
                chain_of(line) == PROXY_FIREWALL
                or (chain_of(line) == SERVICES and target_of(line).startswith("KUBE-FW-"))
            )
        ),
        adds=_firewall_first,
    ),
    "refused-hooks": Step(adds=_refused_everywhere),
}
"""The steps by the reason that each takes away."""


def _refusals(facts: NodeFacts, steps: Collection[str]) -> str:
    """Node ports that are refused for want of endpoints, at the addresses that the steps leave."""
    everywhere, loopback = "node-port-addresses" not in steps, "localhost-node-ports" not in steps
    if everywhere and loopback:
        return ""
    addresses = None if everywhere else facts.node_port_addresses(facts.nftables)
    network = _LOOPBACK_NETWORK[facts.family]
    lines: list[str] = []
    if addresses is None and everywhere:
        where = [f"-m addrtype --dst-type LOCAL ! -d {network}"]
    elif addresses is None:
        # What comes to the input hook is refused there without a look at its address, as broadcasts are.
        where = ["" if loopback else f"! -d {network}"]
    else:
        where = [f"-d {ip}" for ip in addresses] + ([f"-d {network}"] if loopback else [])
    for port in facts.refused_node_ports:
        target = "DROP" if facts.decided[port.name].has_any else "REJECT"
        match = f"-p {port.protocol} --dport {port.node_port} -j {target}"
        lines += [f"-A {_NODE_PORT_REFUSALS} {place} {match}" for place in where]
    lines.append(f"-A INPUT -m conntrack --ctstate NEW -j {_NODE_PORT_REFUSALS}")
    return _restore(Table.FILTER, lines)


def _to(door: ServiceAddress) -> str:
    return f"-d {door.address} -p {door.protocol} --dport {door.port}"


def _restore(table: Table, lines: list[str]) -> str:
    """Restore input for one table that declares the chains of steps."""
    chains = dict.fromkeys(each for line in lines for each in _OWN.findall(line))
    declared = [f":{chain} - [0:0]" for chain in chains]
    return "".join(f"{line}\n" for line in (f"*{table.value}", *declared, *lines, "COMMIT")) if lines else ""
