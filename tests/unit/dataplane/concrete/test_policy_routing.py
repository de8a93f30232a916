"""The routing policy: every selector and action of `ip rule`, as this kernel's `ip -json rule show` printed them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest

from kproxy.cluster.facts.ip import parse_routes, parse_rules, with_family
from kproxy.dataplane import Host, make_packet
from kproxy.dataplane.concrete.routing import UNKNOWN, Query, RouteResult, lookup, possible_routes
from kproxy.netfilter import Family

ROUTES = [
    {"dst": "default", "gateway": "192.0.2.1", "dev": "eth0"},
    {"dst": "10.5.0.0/16", "dev": "eth1"},
    {"dst": "default", "dev": "wg0", "table": "7"},
    {"type": "throw", "dst": "10.6.0.0/16", "table": "7"},
]


def host(*rules: Mapping[str, Any], routes: list[Any] = ROUTES) -> Host:
    return replace(
        Host.simple(["192.0.2.2"]),
        interfaces={},
        routes=parse_routes(with_family(routes, Family.IPV4)),
        rules=parse_rules(with_family([{"src": "all", **rule} for rule in rules], Family.IPV4)),
    )


def device(on: Host, destination: str = "198.51.100.1:443", source: str = "10.1.0.1:80", **packet: Any) -> str:
    """The device that the packet leaves by; `?` if that is open, `none`, or the kind of a route that drops."""
    own = packet.pop("own", False)
    asked = Query.of(make_packet(source, destination, packet.pop("proto", "tcp"), **packet), "" if own else "eth9")
    found = lookup(on, asked)
    if isinstance(found, RouteResult):
        return found.device or ("?" if found.kind == "unicast" else found.kind)
    return "?" if found is UNKNOWN else "none"


@pytest.mark.parametrize(
    ("rule", "packet", "expected"),
    [
        ({"not": None, "fwmark": "0xca6c", "table": "7"}, {}, "wg0"),
        ({"not": None, "fwmark": "0xca6c", "table": "7"}, {"mark": 0xCA6C}, "eth0"),
        ({"oif": "lo", "table": "7"}, {}, "eth0"),
        ({"oif": "lo", "table": "7"}, {"own": True}, "?"),
        ({"iif": "lo", "table": "7"}, {"own": True}, "wg0"),
        ({"iif": "lo", "table": "7"}, {}, "eth0"),
        ({"tos": "0x10", "table": "7"}, {"tos": 0x10}, "wg0"),
        ({"tos": "0x10", "table": "7"}, {"tos": 0}, "eth0"),
        ({"tos": "0x10", "table": "7"}, {}, "?"),
        ({"ipproto": "tcp", "sport": 80, "dport_start": 443, "dport_end": 445, "table": "7"}, {}, "wg0"),
        ({"ipproto": "udp", "table": "7"}, {}, "eth0"),
        ({"dport_start": 1, "dport_end": 2, "table": "7"}, {}, "eth0"),
        ({"uid_start": 0, "uid_end": 1000, "table": "7"}, {"own": True}, "?"),
        ({"uid_start": 0, "uid_end": 1000, "table": "7"}, {}, "?"),
        ({"uid_start": 1, "uid_end": 1000, "table": "7"}, {}, "eth0"),
        ({"l3mdev": None}, {}, "?"),
        ({"tun_id": 5, "table": "7"}, {}, "?"),
        ({"table": "7", "suppress_ifgroup": "5"}, {}, "?"),
        ({"table": "7", "something": "new"}, {}, "?"),
        ({"src": "10.0.0.0", "srclen": 8, "action": "unreachable"}, {}, "unreachable"),
        ({"action": "prohibit"}, {}, "prohibit"),
        ({"action": "blackhole"}, {}, "blackhole"),
        ({"nop": None}, {}, "eth0"),
        ({"table": "7", "flow_from": "3", "protocol": "static"}, {}, "wg0"),
        ({"table": "7"}, {"destination": "10.6.0.1:443"}, "eth0"),
    ],
)
def test_a_rule(rule: dict[str, Any], packet: dict[str, Any], expected: str) -> None:
    assert device(host({"priority": 100, **rule}), **packet) == expected


def test_wireguards_rules() -> None:
    """wg-quick: all goes into the tunnel but what is marked, and what main has a route for that is no default."""
    found = host(
        {"priority": 100, "table": "main", "suppress_prefixlen": 0},
        {"priority": 101, "not": None, "fwmark": "0xca6c", "table": "7"},
    )
    assert device(found) == "wg0"
    assert device(found, "10.5.0.1:443") == "eth1"
    assert device(found, mark=0xCA6C) == "eth0"


def test_goto_goes_on_at_a_priority() -> None:
    found = host(
        {"priority": 10, "src": "10.1.0.0", "srclen": 16, "goto": 30},
        {"priority": 20, "action": "blackhole"},
        {"priority": 30, "nop": None},
        {"priority": 40, "table": "7"},
    )
    assert device(found) == "wg0"
    assert device(found, source="10.2.0.1:80") == "blackhole"


def test_the_hops_of_a_multipath_route_are_all_possible() -> None:
    hops = [{"gateway": f"192.0.2.{number}", "dev": f"eth{number}", "weight": 1} for number in (1, 2)]
    found = lookup(host(routes=[{"dst": "default", "nexthops": hops}]), Query(Family.IPV4, 0xC6336401))
    assert found == RouteResult("unicast")


def test_an_open_rule_leaves_what_it_does_and_what_follows() -> None:
    """A rule that may apply: nothing else than its table's route and the next rules' is possible."""
    found = host({"priority": 10, "uid_start": 0, "uid_end": 99, "table": "7"}, {"priority": 20, "action": "prohibit"})
    kinds = {route.device or route.kind for route in possible_routes(found, Query(Family.IPV4, 0xC6336401)) if route}
    assert kinds == {"wg0", "prohibit"}
    assert lookup(found, Query(Family.IPV4, 0xC6336401)) is UNKNOWN
