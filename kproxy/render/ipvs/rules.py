"""The iptables rules of IPVS mode: what to masquerade, accept and refuse, by the sets.

They are kube-proxy v1.36's, in its order.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final, NamedTuple

from kproxy.render.iptables.base import JumpRule
from kproxy.render.iptables.chains import FILTER, FORWARD, MARK_MASQ, NAT, POSTROUTING, PROXY_FIREWALL, SERVICES
from kproxy.render.ipvs import sets
from kproxy.render.ipvs.renderer import IpvsState
from kproxy.render.ipvs.sets import IpSet
from kproxy.render.options import RenderOptions
from kproxy.render.origin import Origin
from kproxy.services.node import LocalTrafficDetector

NODE_PORT: Final = "KUBE-NODE-PORT"
LOAD_BALANCER: Final = "KUBE-LOAD-BALANCER"
SOURCE_RANGES: Final = "KUBE-SOURCE-RANGES-FIREWALL"
IPVS_FILTER: Final = "KUBE-IPVS-FILTER"
IPVS_OUT_FILTER: Final = "KUBE-IPVS-OUT-FILTER"

CHAINS: Final = {
    NAT: (SERVICES, POSTROUTING, NODE_PORT, LOAD_BALANCER, MARK_MASQ),
    FILTER: (FORWARD, NODE_PORT, PROXY_FIREWALL, SOURCE_RANGES, IPVS_FILTER, IPVS_OUT_FILTER),
}
"""The chains that every restore declares."""


def _jump(table: str, target: str, source: str, comment: str) -> JumpRule:
    return JumpRule(table, source, f'-m comment --comment "{comment}"', target)


JUMP_RULES: Final = (
    _jump(NAT, SERVICES, "OUTPUT", "kubernetes service portals"),
    _jump(NAT, SERVICES, "PREROUTING", "kubernetes service portals"),
    _jump(NAT, POSTROUTING, "POSTROUTING", "kubernetes postrouting rules"),
    _jump(FILTER, FORWARD, "FORWARD", "kubernetes forwarding rules"),
    _jump(FILTER, NODE_PORT, "INPUT", "kubernetes health check rules"),
    _jump(FILTER, PROXY_FIREWALL, "INPUT", "kube-proxy firewall rules"),
    _jump(FILTER, PROXY_FIREWALL, "FORWARD", "kube-proxy firewall rules"),
    _jump(FILTER, IPVS_FILTER, "INPUT", "kubernetes ipvs access filter"),
    _jump(FILTER, IPVS_OUT_FILTER, "OUTPUT", "kubernetes ipvs access filter"),
)
"""In the order in which kube-proxy ensures them. Each is prepended, so in a fresh chain the last one comes first."""


class Line(NamedTuple):
    """One rule: `arguments` are what follows `-A CHAIN`."""

    table: str
    chain: str
    arguments: str
    origin: Origin


def rules(state: IpvsState, options: RenderOptions) -> Iterator[Line]:
    """All rules, in the order in which each table has them."""
    loopback = "::1/128" if options.family.is_ipv6 else "127.0.0.0/8"
    yield _base(NAT, SERVICES, f"-s {loopback} -j RETURN", "leave the host's own loopback traffic alone")
    for row in sets.SET_RULES:
        if state.members[row.set]:
            protocol = f"-p {row.protocol} " if row.protocol else ""
            text = f"{protocol}{_comment(row.set.comment)} {_asks(row.set, row.asks, options)} -j {row.target}"
            yield _base(row.table, row.chain, text, row.set.comment)
    yield from _services(state, options)
    yield _base(NAT, LOAD_BALANCER, f"-j {MARK_MASQ}", "masquerade traffic to load-balancer IPs")
    yield _base(FILTER, SOURCE_RANGES, "-j DROP", "drop traffic from outside of the source ranges")
    for found in (sets.CLUSTER_IP, sets.LOAD_BALANCER):
        if state.members[found]:
            text = f"{_asks(found, 'dst,dst', options)} -j ACCEPT"
            yield _base(NAT, SERVICES, text, "accept traffic to virtual servers")
    yield from _marks(options)
    health = f"{_comment(sets.HEALTH_CHECK.comment)} {_asks(sets.HEALTH_CHECK, 'dst', options)} -j ACCEPT"
    yield _base(FILTER, NODE_PORT, health, "accept health checks")
    yield from _filter(state, options)


def _services(state: IpvsState, options: RenderOptions) -> Iterator[Line]:
    """What traffic to ClusterIPs is masqueraded, and what to external IPs goes to virtual servers."""
    local = options.local_traffic
    if state.members[sets.CLUSTER_IP]:
        way, source = "dst,dst", ""
        if not options.masquerade_all:
            way, source = ("dst,dst", f" {_if_not_local(local)}") if local.is_implemented else ("src,dst", "")
        text = f"{_comment(sets.CLUSTER_IP.comment)} {_asks(sets.CLUSTER_IP, way, options)}{source} -j {MARK_MASQ}"
        yield _base(NAT, SERVICES, text, "masquerade traffic to ClusterIPs from outside of the cluster")
    for found in (sets.EXTERNAL_IP, sets.EXTERNAL_IP_LOCAL):
        if not state.members[found]:
            continue
        asked = f"{_comment(found.comment)} {_asks(found, 'dst,dst', options)}"
        if found is sets.EXTERNAL_IP:
            yield _base(NAT, SERVICES, f"{asked} -j {MARK_MASQ}", "masquerade traffic to external IPs")
        outside = "-m physdev ! --physdev-is-in -m addrtype ! --src-type LOCAL"
        yield _base(NAT, SERVICES, f"{asked} {outside} -j ACCEPT", "accept traffic from outside to external IPs")
        inside = "-m addrtype --dst-type LOCAL"
        yield _base(NAT, SERVICES, f"{asked} {inside} -j ACCEPT", "accept traffic to external IPs that are local")
    yield _base(NAT, SERVICES, f"-m addrtype --dst-type LOCAL -j {NODE_PORT}", "node ports")


def _if_not_local(local: LocalTrafficDetector) -> str:
    """The arguments that match what is not of local pods; the network as it was configured."""
    return f"! -s {local.written}" if local.written else local.if_not_local


def _marks(options: RenderOptions) -> Iterator[Line]:
    """The chains that mark, masquerade what is marked, and forward it."""
    mark = options.mark
    marked = f"{_comment('kubernetes forwarding rules')} -m mark --mark {mark}/{mark} -j ACCEPT"
    related = f"{_comment('kubernetes forwarding conntrack rule')} -m conntrack --ctstate RELATED,ESTABLISHED -j ACCEPT"
    yield _base(FILTER, FORWARD, marked, "forward packets marked for masquerading")
    yield _base(FILTER, FORWARD, related, "forward what belongs to a connection")
    random_fully = " --random-fully" if options.features.random_fully else ""
    masquerade = f"{_comment('kubernetes service traffic requiring SNAT')} -j MASQUERADE{random_fully}"
    yield _base(NAT, POSTROUTING, f"-m mark ! --mark {mark}/{mark} -j RETURN", "leave unmarked packets alone")
    yield _base(NAT, POSTROUTING, f"-j MARK --xor-mark {mark}", "clear the masquerade mark")
    yield _base(NAT, POSTROUTING, masquerade, "masquerade marked packets")
    yield _base(NAT, MARK_MASQ, f"-j MARK --or-mark {mark}", "mark for masquerading")


def _filter(state: IpvsState, options: RenderOptions) -> Iterator[Line]:
    """What keeps other ports of the node from being reached at the addresses of `kube-ipvs0`."""
    open_sets = (sets.LOAD_BALANCER, sets.CLUSTER_IP, sets.EXTERNAL_IP, sets.EXTERNAL_IP_LOCAL, sets.HEALTH_CHECK)
    for found in open_sets:
        asks = "dst" if found is sets.HEALTH_CHECK else "dst,dst"
        yield _base(
            FILTER, IPVS_FILTER, f"{_asks(found, asks, options)} -j RETURN", "virtual servers and health checks"
        )
    refuse = f"-m conntrack --ctstate NEW {_asks(sets.ACTIVE, 'dst', options)} -j REJECT"
    yield _base(FILTER, IPVS_FILTER, refuse, "refuse the node's other ports at these addresses")
    for (ip, port), origin in state.refused_sources.items():
        asked = f"-m ipvs --vaddr {ip} --vproto {port.protocol} --vport {port.port}"
        yield Line(FILTER, IPVS_OUT_FILTER, f"-s {ip} {asked} -j DROP", origin)


def _base(table: str, chain: str, arguments: str, why: str) -> Line:
    return Line(table, chain, arguments, Origin(f"base rule: {why}"))


def _comment(text: str) -> str:
    return f'-m comment --comment "{text}"'


def _asks(found: IpSet, fields: str, options: RenderOptions) -> str:
    return f"-m set --match-set {found.name_in(options.family)} {fields}"


def restore_text(lines: Sequence[Line]) -> str:
    """One text for `iptables-restore --noflush`."""
    out = []
    for table, chains in CHAINS.items():
        out += [f"*{table}", *(f":{chain} - [0:0]" for chain in chains)]
        out += [f"-A {line.chain} {line.arguments}" for line in lines if line.table == table]
        out.append("COMMIT")
    return "\n".join(out) + "\n"
