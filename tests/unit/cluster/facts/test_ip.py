"""Host facts: what `ip -json` prints, as values of the model. tests/netns has the live side."""

from __future__ import annotations

from kproxy.cluster.facts.ip import parse_interfaces, parse_routes, parse_rules, with_family
from kproxy.cluster.facts.links import parse_links
from kproxy.netfilter import Family


def test_interfaces_with_addresses_and_bridge_ports() -> None:
    found = parse_interfaces(
        [
            {"ifname": "lo", "addr_info": []},
            {"ifname": "cni0", "addr_info": [{"local": "10.244.0.1", "prefixlen": 24, "broadcast": "10.244.0.255"}]},
            {
                "ifname": "veth0",
                "master": "cni0",
                "linkinfo": {"info_slave_kind": "bridge", "info_slave_data": {"hairpin": True}},
                "addr_info": [{"local": "fe80::1", "prefixlen": 64}],
            },
            {"ifname": "eth0", "master": "vrf0", "linkinfo": {"info_slave_kind": "vrf"}},
        ]
    )
    assert [(item.name, item.bridge, item.hairpin) for item in found] == [
        ("lo", "", None), ("cni0", "", None), ("veth0", "cni0", True), ("eth0", "", None),
    ]  # fmt: skip
    assert [str(address) for item in found for address in item.addresses] == ["10.244.0.1/24", "fe80::1/64"]


def test_a_link_without_flags_is_not_known_to_be_down() -> None:
    found = parse_links([{"ifname": "a"}, {"ifname": "b", "flags": ["UP"]}, {"ifname": "c", "flags": ["NO-CARRIER"]}])
    assert [(link.up, link.carrier) for link in found.values()] == [(True, True), (True, True), (False, False)]


def test_routes_but_those_of_the_local_table() -> None:
    routes = parse_routes(
        with_family(
            [
                {"dst": "default", "gateway": "192.0.2.1", "dev": "eth0", "metric": 100},
                {"dst": "10.244.0.0/24", "dev": "cni0", "prefsrc": "10.244.0.1"},
                {"type": "blackhole", "dst": "10.9.0.0/16", "table": "100"},
                {"type": "local", "dst": "10.244.0.1", "dev": "cni0", "table": "local"},
                {"dst": "10.8.0.1", "nexthops": [{"gateway": "192.0.2.2", "dev": "eth0"}, {"dev": "eth1"}]},
            ],
            Family.IPV4,
        )
    )
    assert [(str(route.network), route.device, route.kind, route.table, route.metric) for route in routes] == [
        ("0.0.0.0/0", "eth0", "unicast", "main", 100),
        ("10.244.0.0/24", "cni0", "unicast", "main", 0),
        ("10.9.0.0/16", None, "blackhole", "100", 0),
        ("10.8.0.1/32", "eth0", "unicast", "main", 0),
        ("10.8.0.1/32", "eth1", "unicast", "main", 0),
    ]


def test_policy_rules_but_those_of_every_host() -> None:
    rules = parse_rules(
        with_family(
            [
                {"priority": 0, "src": "all", "table": "local"},
                {"priority": 100, "src": "all", "fwmark": "0x1", "fwmask": "0xff", "table": "100"},
                {"priority": 200, "src": "10.0.0.0", "srclen": 8, "iif": "eth0", "table": "200"},
                {"priority": 32766, "src": "all", "table": "main"},
            ],
            Family.IPV4,
        )
    )
    assert [(rule.table, rule.priority, rule.in_interface) for rule in rules] == [
        ("100", 100, None),
        ("200", 200, "eth0"),
    ]
    assert rules[0].mark is not None
    assert (rules[0].mark.value, rules[0].mark.mask) == (1, 255)
    assert str(rules[1].source) == "10.0.0.0/8"


def test_the_main_table_before_other_rules_is_a_rule() -> None:
    usual = [{"priority": 0, "src": "all", "table": "local"}, {"priority": 32766, "src": "all", "table": "main"}]
    early = {"priority": 100, "src": "all", "table": "main"}
    (found,) = parse_rules(with_family([*usual, early], Family.IPV4))
    assert (found.table, found.priority) == ("main", 100)
