"""Damage to a lab, as commands in a node's namespace, and what the audit must then say. The finder does not see this.

The lab: Services web (TCP, a node port; a pod on each of node-1 and node-2), dns (UDP; a pod on node-2), and edge (a
node port; a pod on node-3). In rules, WEB1 stands for the pod on node-1, and so on.
"""

from __future__ import annotations

from typing import Final, NamedTuple

WEB, DNS, EDGE = "default/web:tcp80", "default/dns:udp53", "default/edge:tcp443"


class Damage(NamedTuple):
    """Commands for `sh -c` that do it and undo it on a node, and the finding: kind, Services, a piece of the rule."""

    name: str
    node: str
    do: str
    undo: str
    kind: str
    services: tuple[str, ...] = ()
    rule: str = ""


def rule(name: str, node: str, table: str, chain: str, text: str, kind: str, services: tuple[str, ...] = ()) -> Damage:
    """A rule of another program before all others."""
    head = f"iptables -w -t {table}"
    return Damage(
        name,
        node,
        f"{head} -I {chain} 1 {text}",
        f"{head} -D {chain} {text}",
        kind,
        services,
        text.rpartition("-j ")[2],
    )


def edit(name: str, node: str, expression: str, kind: str, services: tuple[str, ...], table: str = "nat") -> Damage:
    """The table's dump through sed -E, restored; and the dump as it was."""
    save = f"iptables-save -t {table} > /tmp/$KEEP && "
    do = f"{save}sed -E '{expression}' /tmp/$KEEP | iptables-restore -w"
    return Damage(name, node, do, "iptables-restore -w < /tmp/$KEEP", kind, services)


def sysctl(name: str, node: str, key: str, bad: int, good: int, kind: str) -> Damage:
    return Damage(name, node, f"sysctl -qw {key}={bad}", f"sysctl -qw {key}={good}", kind)


_TO_WEB2: Final = "-A KUBE-SEP-[A-Z2-7]+ .*--to-destination WEB2:8080"
DAMAGES: Final = (
    edit("stale endpoint", "node-1", r"s/(to-destination) WEB2:8080/\1 WEB2:8099/", "endpoint-stale", (WEB,)),
    edit("endpoint elsewhere", "node-2", r"s/(to-destination) DNS2:53$/\1 EDGE3:53/", "endpoint-stale", (DNS,)),
    edit("Service not known", "node-3", r"/^-A KUBE-SERVICES .*dns:udp53/d", "service-missing", (DNS,)),
    edit("endpoint left out", "node-1", r"/^-A KUBE-SVC-.*WEB1:8080/d", "endpoint-missing", (WEB,)),
    edit("shares", "node-2", r"s/(KUBE-SVC-.*probability) 0\.5[0-9]*/\1 0.9/", "share-uneven", (WEB,)),
    edit(
        "endpoints swapped", "node-3",
        r"/^-A KUBE-SVC-.*probability 0\.5/{h;d};/^-A KUBE-SVC-.*-> WEB2:8080/{G}", "endpoint-missing", (WEB,),
    ),
    edit("no masquerade", "node-1", r"/^-A KUBE-EXT-.*-j KUBE-MARK-MASQ/d", "masquerade-missing", (EDGE, WEB)),
    edit("mark without effect", "node-2", "/^-A KUBE-POSTROUTING .*MASQ/d", "masquerade-missing", ()),
    edit("node port not known", "node-3", r"/^-A KUBE-NODEPORTS .*30443/d", "service-missing", (EDGE,)),
    edit("dispatch gone", "node-1", r"/^-A (PREROUTING|OUTPUT) .*-j KUBE-SERVICES/d", "rules-missing", ()),
    Damage(
        "flushed", "node-2", "iptables-save -t nat > /tmp/$KEEP; iptables -w -t nat -F",
        "iptables-restore -w < /tmp/$KEEP", "rules-missing",
    ),
    Damage(
        "own chain returns", "node-3", "iptables -w -t nat -I KUBE-SERVICES 1 -p udp -j RETURN",
        # The proxy may have written its chain again.
        "iptables -w -t nat -D KUBE-SERVICES -p udp -j RETURN || true", "service-missing", (DNS,),
    ),
    rule("DROP of a port", "node-1", "filter", "FORWARD", "-p udp -m udp --dport 53 -j DROP", "foreign-drop", (DNS,)),
    rule("REJECT of an endpoint", "node-2", "filter", "FORWARD", "-d WEB1/32 -p tcp -j REJECT", "foreign-drop", (WEB,)),
    rule("DROP in raw", "node-3", "raw", "PREROUTING", "-p udp -m udp --dport 53 -j DROP", "foreign-drop", (DNS,)),
    rule("DROP in mangle", "node-1", "mangle", "FORWARD", "-d EDGE3/32 -j DROP", "foreign-drop", (EDGE,)),
    rule(
        "DROP where the endpoint is", "node-3", "filter", "FORWARD", "-d EDGE3/32 -j DROP", "foreign-drop", (EDGE,)
    ),
    rule("OUTPUT refuses", "node-2", "filter", "OUTPUT", "-p tcp -m tcp --dport 8443 -j DROP", "foreign-drop", (EDGE,)),
    rule(
        "node port shadowed", "node-1", "nat", "PREROUTING", "-p tcp -m tcp --dport 30080 -j REDIRECT --to-ports 22",
        "node-port-shadowed", (WEB,),
    ),
    rule(
        "cluster IP taken", "node-2", "nat", "PREROUTING", "-d VIPDNS/32 -j DNAT --to-destination 192.0.2.1",
        "foreign-redirect", (DNS,),
    ),
    rule("accepted first", "node-3", "nat", "PREROUTING", "-d 10.96.0.0/12 -j ACCEPT", "foreign-bypass"),
    rule(
        "pods hidden", "node-1", "nat", "POSTROUTING", "-d WEB1/32 -j MASQUERADE", "foreign-masquerade", (WEB,)
    ),
    Damage(
        "DROP by nft", "node-2",
        "nft add table inet wall; nft add chain inet wall f '{ type filter hook forward priority 0; }'; "
        "nft add rule inet wall f udp dport 53 drop", "nft delete table inet wall", "foreign-drop", (DNS,), "drop",
    ),
    Damage(
        "legacy leftovers", "node-3",
        "iptables-legacy -w -t nat -N KUBE-SERVICES; "
        "iptables-legacy -w -t nat -A KUBE-SERVICES -d 10.96.9.9 -j RETURN; "
        "iptables-legacy -w -t nat -A PREROUTING -j KUBE-SERVICES",
        "iptables-legacy -w -t nat -F; iptables-legacy -w -t nat -X", "leftover-rules",
    ),
    Damage(
        "table of the other mode", "node-1",
        "nft add table ip kube-proxy; nft add chain ip kube-proxy services; nft add chain ip kube-proxy p "
        "'{ type nat hook prerouting priority -100; }'; nft add rule ip kube-proxy p jump services",
        "nft delete table ip kube-proxy", "leftover-rules",
    ),
    sysctl("no forwarding", "node-1", "net.ipv4.ip_forward", 0, 1, "ip-forward"),
    sysctl("no route_localnet", "node-2", "net.ipv4.conf.all.route_localnet", 0, 1, "route-localnet"),
    sysctl("bridge-nf", "node-1", "net.bridge.bridge-nf-call-iptables", 0, 1, "bridge-nf"),
    Damage(
        "route withdrawn", "node-3", "ip route show CIDR2 > /tmp/$KEEP; ip route del CIDR2",
        "ip route add $(cat /tmp/$KEEP)", "no-route", (DNS, WEB),
    ),
    Damage(
        "blackhole", "node-1", "ip route add blackhole WEB2/32", "ip route del blackhole WEB2/32", "no-route", (WEB,)
    ),
    Damage(
        "route to the wrong node", "node-1", "ip route show CIDR3 > /tmp/$KEEP; ip route replace CIDR3 via ADDRESS2",
        "ip route replace $(cat /tmp/$KEEP)", "route-astray", (EDGE,),
    ),
    Damage(
        "FDB entry wrong", "node-1",
        "bridge fdb show dev VXLAN | grep ADDRESS2 > /tmp/$KEEP; "
        "bridge fdb replace $(cut -d' ' -f1 /tmp/$KEEP) dev VXLAN dst ADDRESS3 self permanent",
        "bridge fdb replace $(cut -d' ' -f1 /tmp/$KEEP) dev VXLAN dst ADDRESS2 self permanent", "tunnel-astray",
        (DNS, WEB),
    ),
    Damage(
        "neighbour gone", "node-2", "ip neigh show dev VXLAN > /tmp/$KEEP; ip neigh flush dev VXLAN nud all",
        "while read to _ mac _; do ip neigh replace $to dev VXLAN lladdr $mac nud permanent; done < /tmp/$KEEP",
        "tunnel-astray",
    ),
    Damage("MTU", "node-3", "ip link set VXLAN mtu 1500", "ip link set VXLAN mtu 1450", "mtu"),
)  # fmt: skip


def table_edit(name: str, node: str, expression: str, kind: str, services: tuple[str, ...]) -> Damage:
    """kube-proxy's table of nftables mode through sed -E, loaded in one transaction; and as it was."""
    load = "{ echo delete table ip kube-proxy; cat; } | nft -f -"
    do = f"nft -s list table ip kube-proxy > /tmp/$KEEP && sed -E '{expression}' /tmp/$KEEP | {load}"
    return Damage(name, node, do, f"cat /tmp/$KEEP | {load}", kind, services)


def element(name: str, node: str, item: str, key: str, kind: str, services: tuple[str, ...]) -> Damage:
    """An element of the table's sets and maps deleted."""
    edited = table_edit(name, node, "", kind, services)
    return edited._replace(
        do=f"nft -s list table ip kube-proxy > /tmp/$KEEP; nft delete element ip kube-proxy {item} '{{ {key} }}'"
    )


_ANY_MODE: Final = (
    "DROP of a port", "REJECT of an endpoint", "DROP in raw", "DROP in mangle", "DROP where the endpoint is",
    "OUTPUT refuses", "pods hidden", "DROP by nft", "no forwarding",
    "bridge-nf", "route withdrawn", "blackhole", "route to the wrong node", "FDB entry wrong", "neighbour gone", "MTU",
)  # fmt: skip
_WALL: Final = (
    "nft add table ip wall; nft add chain ip wall p '{ type nat hook prerouting priority -110; }'; "
    "nft add rule ip wall p"
)
NFTABLES_DAMAGES: Final = (
    Damage(
        "node port shadowed by nft", "node-1", f"{_WALL} tcp dport 30080 redirect to :22", "nft delete table ip wall",
        "node-port-shadowed", (WEB,), "redirect",
    ),
    Damage(
        "cluster IP taken by nft", "node-2", f"{_WALL} ip daddr VIPDNS dnat to 192.0.2.1", "nft delete table ip wall",
        "foreign-redirect", (DNS,), "dnat",
    ),
    *(each for each in DAMAGES if each.name in _ANY_MODE),
    table_edit("stale endpoint", "node-1", r"s/WEB2 \. 8080/WEB2 . 8099/", "endpoint-stale", (WEB,)),
    table_edit("endpoint elsewhere", "node-2", r"s/: DNS2 \. 53/: EDGE3 . 53/", "endpoint-stale", (DNS,)),
    element("Service not known", "node-3", "service-ips", "VIPDNS . udp . 53", "refused", (DNS,)),
    element("node port not known", "node-3", "service-nodeports", "tcp . 30443", "service-missing", (EDGE,)),
    table_edit(
        "endpoint left out", "node-1", r"s/mod 2 map \{ 0 : [^,]*, 1 : /mod 1 map { 0 : /", "endpoint-missing", (WEB,)
    ),
    table_edit(
        "shares", "node-2", r"s/mod 2 map \{ 0 : ([^,]*), 1 :/mod 10 map { 0-8 : \1, 9 :/", "share-uneven", (WEB,)
    ),
    table_edit("mark without effect", "node-2", "/masquerade fully-random/d", "masquerade-missing", ()),
    table_edit("no masquerade", "node-1", "/comment \"masquerade\"/d", "masquerade-missing", (EDGE, WEB)),
    table_edit("dispatch gone", "node-1", "/jump services/d", "service-missing", ()),
    table_edit("dispatch empty", "node-2", "/vmap @service-ips/d", "refused", ()),
    table_edit(
        "own chain returns", "node-3", r"s/^\tchain services \{/&\n meta l4proto udp return/", "refused", (DNS,)
    ),
    table_edit("refused", "node-1", r"s/^\tchain service-[^ ]*dns[^ ]* \{/&\n drop/", "refused", (DNS,)),
    Damage(
        "table deleted", "node-2", "nft -s list table ip kube-proxy > /tmp/$KEEP; nft delete table ip kube-proxy",
        "nft -f /tmp/$KEEP", "rules-missing",
    ),
    Damage(
        "leftovers of iptables mode", "node-3",
        "iptables -w -t nat -N KUBE-SERVICES; iptables -w -t nat -A KUBE-SERVICES -d 10.96.9.9 -j RETURN; "
        "iptables -w -t nat -A PREROUTING -j KUBE-SERVICES",
        "iptables -w -t nat -D PREROUTING -j KUBE-SERVICES; iptables -w -t nat -F KUBE-SERVICES; "
        "iptables -w -t nat -X KUBE-SERVICES", "leftover-rules",
    ),
)  # fmt: skip
"""The same and others for a lab in nftables mode. Rules of iptables at PREROUTING of nat are at kube-proxy's priority:
which comes first is not known, and said."""
