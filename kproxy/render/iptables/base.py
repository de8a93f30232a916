"""The rules that are there whatever the cluster holds: base chains, jump rules, canaries.

kube-proxy writes the base chains with every full restore, and makes sure of the jump rules and canaries with single
iptables calls, because the built-in chains they are in are shared with other programs.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

import msgspec

from kproxy.render.iptables.chains import (
    EXTERNAL_SERVICES,
    FILTER,
    FIREWALL,
    FORWARD,
    MANGLE,
    MARK_MASQ,
    NAT,
    NODEPORTS,
    POSTROUTING,
    PROXY_FIREWALL,
    SERVICES,
)
from kproxy.render.iptables.serviceport import ChainRef
from kproxy.render.options import RenderOptions
from kproxy.render.origin import Origin


class JumpRule(msgspec.Struct, frozen=True):
    """A rule that kube-proxy keeps at the head of a built-in chain; it also makes sure that the target chain exists."""

    table: str
    source: str
    arguments: str
    target: str

    @property
    def text(self) -> str:
        """The rule as restore input."""
        return f"-A {self.source} {self.arguments}{' ' if self.arguments else ''}-j {self.target}"


def _jump(table: str, target: str, source: str, comment: str = "", new_only: bool = False) -> JumpRule:
    match = "-m conntrack --ctstate NEW" if new_only else ""
    note = f'-m comment --comment "{comment}"' if comment else ""
    return JumpRule(table, source, " ".join(part for part in (match, note) if part), target)


JUMP_RULES: Final = (
    _jump(FILTER, EXTERNAL_SERVICES, "INPUT", "kubernetes externally-visible service portals", new_only=True),
    _jump(FILTER, EXTERNAL_SERVICES, "FORWARD", "kubernetes externally-visible service portals", new_only=True),
    _jump(FILTER, NODEPORTS, "INPUT", "kubernetes health check service ports"),
    _jump(FILTER, SERVICES, "FORWARD", "kubernetes service portals", new_only=True),
    _jump(FILTER, SERVICES, "OUTPUT", "kubernetes service portals", new_only=True),
    _jump(FILTER, FORWARD, "FORWARD", "kubernetes forwarding rules"),
    _jump(FILTER, PROXY_FIREWALL, "INPUT", "kubernetes load balancer firewall", new_only=True),
    _jump(FILTER, PROXY_FIREWALL, "OUTPUT", "kubernetes load balancer firewall", new_only=True),
    _jump(FILTER, PROXY_FIREWALL, "FORWARD", "kubernetes load balancer firewall", new_only=True),
    _jump(NAT, SERVICES, "OUTPUT", "kubernetes service portals"),
    _jump(NAT, SERVICES, "PREROUTING", "kubernetes service portals"),
    _jump(NAT, POSTROUTING, "POSTROUTING", "kubernetes postrouting rules"),
    _jump(FILTER, FIREWALL, "INPUT"),
    _jump(FILTER, FIREWALL, "OUTPUT"),
)
"""In the order in which kube-proxy ensures them. Each is prepended, so in a fresh chain the last one comes first."""


def jump_origins(jumps: Sequence[JumpRule] = JUMP_RULES) -> dict[ChainRef, list[Origin]]:
    """The origins of a mode's jump rules as they stand in fresh built-in chains."""
    origins: dict[ChainRef, list[Origin]] = {}
    for jump in reversed(jumps):
        origin = Origin(f"base rule: jump from {jump.source} to {jump.target}")
        origins.setdefault((jump.table, jump.source), []).append(origin)
    return origins


CANARY_TABLES: Final = (MANGLE, NAT, FILTER)
"""Tables that hold an empty KUBE-PROXY-CANARY chain; when it vanishes, the table was flushed."""

BASE_CHAINS: Final = {
    FILTER: (SERVICES, EXTERNAL_SERVICES, FORWARD, NODEPORTS, PROXY_FIREWALL),
    NAT: (SERVICES, NODEPORTS, POSTROUTING, MARK_MASQ),
}
"""The chains that every full restore declares first, in kube-proxy's order; KUBE-FIREWALL follows where it is used."""

LAST_IN_SERVICES: Final = '"kubernetes service nodeports; NOTE: this must be the last rule in this chain"'


class BaseRules(msgspec.Struct, frozen=True):
    """The base rules for one family on one node.

    Attributes:
        chains: rule lines of the chains that no ServicePort adds to.
        node_ports_jump: the lines that end KUBE-SERVICES in the nat table.
        origins: the origin of each line, by chain.
    """

    chains: Mapping[ChainRef, str]
    node_ports_jump: str
    origins: Mapping[ChainRef, list[Origin]]


def render_base_rules(options: RenderOptions) -> BaseRules:
    martians = "-d 127.0.0.0/8 ! -s 127.0.0.0/8 -m conntrack ! --ctstate RELATED,ESTABLISHED,DNAT"
    random_fully = " --random-fully" if options.features.random_fully else ""
    rules: dict[ChainRef, list[tuple[str, str]]] = {
        (NAT, MARK_MASQ): [(f"-j MARK --or-mark {options.mark}", "mark for masquerading")],
        (NAT, POSTROUTING): [
            (f"-m mark ! --mark {options.mark}/{options.mark} -j RETURN", "leave unmarked packets alone"),
            # Clearing the mark keeps a packet that traverses the stack again from being masqueraded again.
            (f"-j MARK --xor-mark {options.mark}", "clear the masquerade mark"),
            (
                f'-m comment --comment "kubernetes service traffic requiring SNAT" -j MASQUERADE{random_fully}',
                "masquerade marked packets",
            ),
        ],
        (FILTER, FORWARD): _forward_rules(options),
    }
    if options.localhost_node_ports:
        # Node ports on localhost need route_localnet, which would let neighbours reach services bound to 127.0.0.0/8.
        comment = '-m comment --comment "block incoming localnet connections"'
        rules[(FILTER, FIREWALL)] = [
            (f"{comment} {martians} -j DROP", "block martians that route_localnet would admit"),
        ]
    jumps = _node_ports_jump(options)
    origins = {ref: [Origin(f"base rule: {why}") for _, why in lines] for ref, lines in rules.items()}
    origins[(NAT, SERVICES)] = [Origin(f"base rule: {why}") for _, why in jumps]
    return BaseRules({ref: _text(ref[1], lines) for ref, lines in rules.items()}, _text(SERVICES, jumps), origins)


def _text(chain: str, lines: list[tuple[str, str]]) -> str:
    return "".join(f"-A {chain} {arguments}\n" for arguments, _ in lines)


def _forward_rules(options: RenderOptions) -> list[tuple[str, str]]:
    rules = []
    if options.drop_invalid:
        # A packet conntrack cannot place would leave with a pod's address and reset the client's connection.
        count = "-m nfacct --nfacct-name ct_state_invalid_dropped_pkts " if options.features.nfacct else ""
        rules.append((f"-m conntrack --ctstate INVALID {count}-j DROP", "drop packets conntrack cannot place"))
    marked = f'-m comment --comment "kubernetes forwarding rules" -m mark --mark {options.mark}/{options.mark}'
    related = '-m comment --comment "kubernetes forwarding conntrack rule" -m conntrack --ctstate RELATED,ESTABLISHED'
    return [
        *rules,
        (f"{marked} -j ACCEPT", "forward packets marked for masquerading"),
        (f"{related} -j ACCEPT", "forward what belongs to a connection"),
    ]


def _node_ports_jump(options: RenderOptions) -> list[tuple[str, str]]:
    """The rules that end KUBE-SERVICES: traffic to the node's own addresses may be for a node port."""
    comment = f"-m comment --comment {LAST_IN_SERVICES}"
    why = "node ports, after all other service rules"
    if options.node_port_addresses.match_all:
        destination = "-m addrtype --dst-type LOCAL"
        if options.family.is_ipv6:
            destination += " ! -d ::1/128"  # IPv6 has no route_localnet
        elif not options.localhost_node_ports:
            destination += " ! -d 127.0.0.0/8"
        return [(f"{comment} {destination} -j {NODEPORTS}", why)]
    addresses = [
        ip
        for ip in options.node_port_addresses.matching(options.interface_addresses)
        if options.localhost_node_ports or not (ip == "::1" or ip.startswith("127."))
    ]
    return [(f"{comment} -d {ip} -j {NODEPORTS}", why) for ip in addresses]
