"""The host file."""

from __future__ import annotations

import re
from typing import Any

import pytest
import yaml

from kproxy.dataplane import Host, HostError, parse_host
from kproxy.dataplane.concrete.routing import Query, RouteResult, address_type, lookup
from kproxy.netfilter import Family
from kproxy.netfilter.address import parse_address
from tests.support import paths

DOCUMENTATION = paths.ROOT / "docs" / "host-file.md"


def example() -> dict[str, Any]:
    found = re.search(r"```yaml\n(.*?)```", DOCUMENTATION.read_text(), re.DOTALL)
    assert found is not None
    document: dict[str, Any] = yaml.safe_load(found[1])
    return document


def v4(text: str) -> int:
    return parse_address(text, Family.IPV4)


def test_the_documented_example() -> None:
    host = parse_host(example())
    assert host.is_local(Family.IPV4, v4("192.0.2.10"))
    assert host.is_local(Family.IPV4, v4("127.9.9.9"))
    assert host.is_local(Family.IPV4, v4("10.96.0.1")) is False
    assert host.bridge_of("veth1a2b") == "cni0"
    assert host.forwards(Family.IPV4, "eth0") is True
    assert host.forwards(Family.IPV6, "eth0") is None
    assert (host.flag("route_localnet", "eth0"), host.flag("route_localnet", "cni0")) == (1, None)
    assert host.calls_iptables(Family.IPV4) is True
    assert host.recent == {"KUBE-SEP-PLQTWCYKKRRVAV4U": {v4("198.51.100.7"): (12, 340)}}
    assert host.nth == {("nat", "PREROUTING", 2): 1}
    assert host.transparent == frozenset({(6, 15001)})

    def way(address: str, mark: int = 0) -> RouteResult | None:
        found = lookup(host, Query(Family.IPV4, v4(address), mark=mark))
        assert found is None or isinstance(found, RouteResult)
        return found

    assert way("8.8.8.8") == RouteResult("unicast", "eth0", v4("192.0.2.1"))
    assert way("10.244.1.7") == RouteResult("unicast", "eth0", v4("192.0.2.11"))
    assert way("10.244.0.7") == RouteResult("unicast", "cni0", None, v4("10.244.0.1"))
    assert way("203.0.113.1") == RouteResult("blackhole")
    assert way("8.8.8.8", 1) == RouteResult("local", "lo")
    assert way("192.0.2.255") == RouteResult("broadcast")
    assert address_type(host, Family.IPV4, v4("10.244.0.1"), "eth0") == "UNICAST"


def test_a_longer_route_into_the_loopback_network() -> None:
    """Without rules of the policy the kernel looks local and main table up as one (observed; of equal prefixes the
    local one wins); once there is a rule, the local table comes first."""
    routes = [{"to": f"{own}/32", "dev": "eth0"} for own in ("127.0.5.5", "127.0.0.1", "127.0.0.2", "192.0.2.10")]
    addresses = {"lo": ["127.0.0.1/8", "127.0.0.2/32"], "eth0": ["192.0.2.10/24"]}
    document = {
        "interfaces": [{"name": name, "addresses": own} for name, own in addresses.items()],
        "routes": routes,
    }
    host = parse_host(document)
    for own in ("127.0.0.1", "127.0.0.2", "192.0.2.10", "127.0.5.6"):
        assert lookup(host, Query(Family.IPV4, v4(own))) == RouteResult("local", "lo", None, v4(own))
    assert lookup(host, Query(Family.IPV4, v4("127.0.5.5"))) == RouteResult("unicast", "eth0")
    assert address_type(host, Family.IPV4, v4("127.0.5.5")) == "UNICAST"
    ruled = parse_host({**document, "rules": [{"from": "198.51.100.0/24", "table": "100"}]})
    found = lookup(ruled, Query(Family.IPV4, v4("127.0.5.5")))
    assert found == RouteResult("local", "lo", None, v4("127.0.5.5"))


def test_nothing_is_known_of_an_empty_file() -> None:
    host = parse_host({})
    assert (host.local_addresses, host.interfaces, host.routes, host.transparent) == (None, None, None, None)
    assert host.recent == {}
    assert parse_host({"recent": "unknown"}).recent is None
    assert host.is_local(Family.IPV4, 1) is None


def test_addresses_alone() -> None:
    host = parse_host({"localAddresses": ["192.0.2.10"]})
    assert host.is_local(Family.IPV4, v4("192.0.2.11")) is False
    assert host.local_addresses == Host.simple(["192.0.2.10"]).local_addresses


@pytest.mark.parametrize(
    ("document", "message"),
    [
        ([], "a mapping expected"),
        ({"interface": []}, "interface: unknown field (known: interfaces,"),
        ({"interfaces": {}}, "interfaces: a list expected"),
        ({"interfaces": [{}]}, "interfaces[0].name: this field is required"),
        ({"interfaces": [{"name": "a" * 16}]}, "interfaces[0].name: an interface name of at most 15"),
        ({"interfaces": [{"name": "a"}, {"name": "a"}]}, "interfaces: each interface only once"),
        ({"interfaces": [{"name": "a", "bridge": "b"}]}, "interfaces: bridge b of a is not among"),
        ({"interfaces": [{"name": "a", "addresses": ["1.2.3"]}]}, "interfaces[0].addresses[0]: "),
        ({"interfaces": [{"name": "a", "addresses": ["1.2.3.4/33"]}]}, "interfaces[0].addresses[0]: an address with"),
        ({"interfaces": [{"name": "a", "hairpin": 1}]}, "interfaces[0].hairpin: true or false expected"),
        ({"localAddresses": ["x"]}, "localAddresses[0]: "),
        ({"routes": [{"via": "1.2.3.4"}]}, "routes[0].to: this field is required"),
        ({"routes": [{"to": "default"}]}, "routes[0].to: 0.0.0.0/0 or ::/0 expected"),
        ({"routes": [{"to": "::/0", "via": "1.2.3.4"}]}, "routes[0].via: an address of the destination's family"),
        ({"routes": [{"to": "1.2.3.0/24", "type": "odd"}]}, "routes[0].type: one of unicast"),
        ({"rules": [{"fwmark": 1}]}, "rules[0].table: this field is required"),
        ({"rules": [{"fwmark": "x", "table": 1}]}, "rules[0].fwmark: a number"),
        ({"sysctls": {"forward": 1}}, "sysctls.forward: a name that begins with net."),
        ({"sysctls": {"ip_forward": "on"}}, "sysctls.ip_forward: a number"),
        ({"sets": {"s": {"type": "list:set"}}}, "sets.s: a set type with"),
        ({"sets": {"s": {"type": "hash:ip", "entries": ["a,b"]}}}, "sets.s: an element of 1 parts expected"),
        ({"recent": {"l": {"x": 1}}}, "recent.l.x: "),
        ({"nth": [{"table": "nut"}]}, "nth[0].table: one of mangle"),
        ({"transparent": ["80"]}, "transparent[0]: PROTOCOL/PORT expected"),
    ],
)
def test_errors_name_the_field(document: object, message: str) -> None:
    with pytest.raises(HostError) as caught:
        parse_host(document)
    assert str(caught.value).startswith(message)
    assert caught.value.exit_code == 2
