"""The lines of the conformance table in docs/cni.md, each by executing the plugin as a runtime does."""

from __future__ import annotations

import json
import os
import re
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from kproxy.linux.namespace import Namespace
from kproxy.overlay.errors import Code
from kproxy.overlay.request import VERSIONS
from tests.support.cni.client import RANGES, Runtime, configuration, finish, ip, namespaces
from tests.support.waiting import PATIENCE

pytestmark = pytest.mark.root


@pytest.fixture
def net(tmp_path: Path) -> Iterator[tuple[Runtime, dict[str, str]]]:
    with namespaces("node", "a", "b") as names:
        yield Runtime(names["node"], tmp_path, configuration()), names


def links(namespace: str) -> set[str]:
    """The names of a namespace's interfaces but loopback."""
    return {link["ifname"] for link in json.loads(ip("-n", namespace, "-j", "link"))} - {"lo"}


Net = tuple[Runtime, dict[str, str]]


NOTHING_VALID: dict[str, Any] = {"cni.dev/valid-attachments": []}


# Version


@pytest.mark.parametrize("version", VERSIONS)
def test_version_lists_what_is_served(net: Net, version: str) -> None:
    answer = net[0].call("VERSION", raw={"cniVersion": version}).result
    assert answer == {"cniVersion": version, "supportedVersions": ["0.3.0", "0.3.1", "0.4.0", "1.0.0", "1.1.0"]}


@pytest.mark.parametrize("version", VERSIONS)
def test_the_result_is_in_the_configurations_version(net: Net, version: str) -> None:
    runtime, names = net
    result = runtime.call("ADD", netns=names["a"], cniVersion=version).result
    assert result["cniVersion"] == version
    assert [item["address"] for item in result["ips"]] == ["10.244.1.2/24", "fd00:10:244:1::2/64"]
    assert [item.get("version") for item in result["ips"]] == (["4", "6"] if version < "1" else [None, None])
    assert ("mtu" in result["interfaces"][2]) == (version == "1.1.0")
    assert result["interfaces"][2]["name"] == "eth0"
    assert result["interfaces"][2]["sandbox"] == f"/run/netns/{names['a']}"
    assert {item["interface"] for item in result["ips"]} == {2}
    assert {(item["dst"], item["gw"]) for item in result["routes"]} == {
        ("0.0.0.0/0", "10.244.1.1"),
        ("::/0", "fd00:10:244:1::1"),
    }


@pytest.mark.parametrize(
    ("command", "version"),
    [
        ("ADD", "0.2.0"),
        ("ADD", "2.0.0"),
        ("ADD", None),
        ("CHECK", "0.3.0"),
        ("CHECK", "0.3.1"),
        ("GC", "0.3.0"),
        ("GC", "1.0.0"),
        ("STATUS", "0.4.0"),
        ("STATUS", "1.0.0"),
    ],
)
def test_code_1_for_versions_not_served(net: Net, command: str, version: str | None) -> None:
    answer = net[0].call(command, netns=net[1]["a"], cniVersion=version)
    assert answer.error == Code.INCOMPATIBLE_VERSION
    assert str(version or "null") in answer.text


# Parameters


@pytest.mark.parametrize(
    ("command", "missing"),
    [
        *(("ADD", name) for name in ("CNI_COMMAND", "CNI_CONTAINERID", "CNI_NETNS", "CNI_IFNAME", "CNI_PATH")),
        ("DEL", "CNI_CONTAINERID"),
        ("DEL", "CNI_IFNAME"),
        ("CHECK", "CNI_NETNS"),
        ("GC", "CNI_PATH"),
        ("STATUS", "CNI_PATH"),
    ],
)
def test_code_4_for_missing_variables(net: Net, command: str, missing: str) -> None:
    answer = net[0].call(command, netns=net[1]["a"], env={missing: ""})
    assert answer.error == Code.INVALID_ENVIRONMENT
    assert missing in answer.text


@pytest.mark.parametrize(
    "wrong",
    [
        {"CNI_COMMAND": "MOVE"},
        {"CNI_CONTAINERID": "../x"},
        {"CNI_CONTAINERID": "-x"},
        {"CNI_IFNAME": "averylonginterfacename"},
        {"CNI_IFNAME": "a/b"},
        {"CNI_IFNAME": ".."},
        {"CNI_IFNAME": "a b"},
        {"CNI_IFNAME": "a:b"},
        {"CNI_ARGS": "K8S_POD_NAME"},
        {"CNI_ARGS": "IP=10.0.0"},
    ],
    ids=lambda wrong: "=".join(*wrong.items()),
)
def test_code_4_for_invalid_variables(net: Net, wrong: dict[str, str]) -> None:
    answer = net[0].call("ADD", netns=net[1]["a"], env=wrong)
    assert answer.error == Code.INVALID_ENVIRONMENT
    assert next(iter(wrong)) in answer.text


@pytest.mark.parametrize("raw", [b"", b"{", b"[]", b"null", b"\xff", b"[" * 100000])
def test_code_6_for_what_is_no_json_object(net: Net, raw: bytes) -> None:
    runtime, names = net
    answer = finish(runtime.start(runtime.environment("ADD", "c1", names["a"]), raw))
    assert answer.error == Code.DECODE_FAILURE


@pytest.mark.parametrize(
    ("change", "told"),
    [
        ({"name": None}, "name"),
        ({"name": "../x"}, "name"),
        ({"name": 5}, "name"),
        ({"mtu": "1500"}, "mtu"),
        ({"mtu": True}, "mtu"),
        ({"mtu": 60}, "mtu"),
        ({"mtu": 1000}, "mtu"),
        ({"bridge": "a/b"}, "bridge"),
        ({"dataDir": "relative"}, "dataDir"),
        ({"hairpinMode": 1}, "hairpinMode"),
        ({"iptables": "maybe"}, "iptables"),
        ({"ipam": None}, "ipam.ranges"),
        ({"ipam": {"ranges": [[]]}}, "ipam.ranges[0]"),
        ({"ipam": {"ranges": [[{"subnet": "10.0.0.0/33"}]]}}, "ipam.ranges[0][0].subnet"),
        ({"ipam": {"ranges": [[{"subnet": "10.0.0.0/31"}]]}}, "too small"),
        ({"ipam": {"ranges": [[{"subnet": "10.0.0.0/24", "rangeStart": "10.0.1.1"}]]}}, "rangeStart"),
        ({"ipam": {"ranges": [[{"subnet": "10.0.0.0/24"}, {"subnet": "fd00::/64"}]]}}, "mixes"),
        ({"ipam": {"ranges": [[{"subnet": "10.0.0.0/24"}], [{"subnet": "10.0.0.0/16"}]]}}, "overlaps"),
        (
            {"ipam": {"subnet": "10.0.0.0/24", "rangeStart": "10.0.0.255", "rangeEnd": "10.0.0.255"}},
            "leaves no address",
        ),
        ({"ipam": {"subnet": "10.0.0.0/24", "rangeStart": "10.0.0.1", "rangeEnd": "10.0.0.1"}}, "leaves no address"),
        ({"ipam": {"subnet": "224.0.0.0/24"}}, "ipam.subnet"),
        ({"ipam": {"subnet": "127.1.0.0/16"}}, "ipam.subnet"),
        ({"prevResult": "x"}, "prevResult"),
        ({"prevResult": {"interfaces": 5}}, "prevResult.interfaces"),
        ({"prevResult": {"ips": ["10.0.0.1"]}}, "prevResult.ips[0]"),
        ({"ipam": {"ranges": RANGES, "routes": [{"dst": "x"}]}}, "ipam.routes[0].dst"),
        ({"ipam": {"ranges": RANGES, "routes": [{"dst": "10.0.0.0/8", "gw": "fd00::1"}]}}, "family"),
        ({"runtimeConfig": {"portMappings": [{"hostPort": 70000, "containerPort": 1}]}}, "portMappings[0].hostPort"),
        ({"runtimeConfig": {"portMappings": [{"hostPort": 1, "containerPort": 1, "protocol": "x"}]}}, "protocol"),
        ({"runtimeConfig": {"mac": "01:00:00:00:00:00"}}, "mac"),
        ({"runtimeConfig": {"ips": ["10.9.9.9"]}}, "10.9.9.9"),
    ],
    ids=lambda value: json.dumps(value)[:60],
)
def test_code_7_names_the_field(net: Net, change: dict[str, Any], told: str) -> None:
    runtime, names = net
    answer = runtime.call("ADD", netns=names["a"], **({"raw": None} | change))
    assert answer.error == Code.INVALID_CONFIG
    assert told in answer.text
    assert links(names["node"]) <= {"cni0"}


@pytest.mark.parametrize("field", [{"ipMasq": True}, {"vlan": 5}, {"ipam": {"type": "dhcp"}}])
def test_code_2_names_field_and_value(net: Net, field: dict[str, Any]) -> None:
    answer = net[0].call("ADD", netns=net[1]["a"], **field)
    assert answer.error == Code.UNSUPPORTED_FIELD
    assert next(iter(field)) in answer.text
    assert json.dumps(next(iter(field.values()))).strip("{}").split(": ")[-1] in answer.text


def test_unknown_keys_are_ignored(net: Net) -> None:
    assert net[0].call("ADD", netns=net[1]["a"], future={"x": 1}, args={"cni": {}}).result


def test_an_error_result_has_the_keys_of_the_specification(net: Net) -> None:
    answer = net[0].call("ADD", netns="/run/netns/kp-cni-nowhere", cniVersion="1.0.0")
    assert answer.code == 1
    assert set(answer.document) == {"cniVersion", "code", "msg", "details"}
    assert answer.document["cniVersion"] == "1.0.0"


# ADD


def test_code_3_for_a_namespace_that_is_gone(net: Net) -> None:
    runtime, _ = net
    assert runtime.call("ADD", netns="/run/netns/kp-cni-nowhere").error == Code.UNKNOWN_CONTAINER
    assert runtime.state()["attachments"] == {}


def test_code_4_for_a_file_or_the_nodes_own_namespace(net: Net, tmp_path: Path) -> None:
    runtime, names = net
    file = tmp_path / "file"
    file.touch()
    assert runtime.call("ADD", netns=str(file)).error == Code.INVALID_ENVIRONMENT
    assert runtime.call("ADD", netns=names["node"]).error == Code.INVALID_ENVIRONMENT


def test_add_makes_the_pods_network(net: Net) -> None:
    runtime, names = net
    result = runtime.call("ADD", netns=names["a"]).result
    pod = json.loads(ip("-n", names["a"], "-j", "address", "show", "eth0"))[0]
    assert pod["mtu"] == 1450
    assert pod["operstate"] == "UP"
    assert pod["address"] == result["interfaces"][2]["mac"]
    assert {"10.244.1.2", "fd00:10:244:1::2"} <= {item["local"] for item in pod["addr_info"]}
    port = json.loads(ip("-n", names["node"], "-j", "-d", "link", "show", result["interfaces"][1]["name"]))[0]
    assert port["master"] == "cni0"
    assert port["linkinfo"]["info_slave_data"]["hairpin"] is True
    assert "10.244.1.1/24" in ip("-n", names["node"], "address", "show", "cni0")
    assert exchange(names["a"], names["node"], "10.244.1.1")
    runtime.call("ADD", container="c2", netns=names["b"]).result  # noqa: B018  # it must have succeeded
    assert exchange(names["a"], names["b"], "10.244.1.3")
    assert exchange(names["a"], names["b"], "fd00:10:244:1::3")


def exchange(source: str, target: str, address: str, port: int = 7000, listen: int = 0) -> bool:
    """Whether a UDP datagram and its answer pass; `listen` is the port at the target, if it is another."""
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    with (
        Namespace.named(source) as here,
        Namespace.named(target) as there,
        there.call(socket.socket, family, socket.SOCK_DGRAM) as server,
        here.call(socket.socket, family, socket.SOCK_DGRAM) as client,
    ):
        server.bind(("::" if family == socket.AF_INET6 else "0.0.0.0", listen or port))
        server.settimeout(3)
        client.settimeout(3)
        try:
            client.sendto(b"ping", (address, port))
            data, peer = server.recvfrom(100)
            server.sendto(data, peer)
            return client.recv(100) == b"ping"
        except OSError:
            return False


def test_two_adds_for_one_container(net: Net) -> None:
    runtime, names = net
    assert runtime.call("ADD", netns=names["a"]).result
    before = links(names["node"])
    assert runtime.call("ADD", netns=names["a"]).error == Code.ALREADY_ATTACHED
    assert links(names["node"]) == before, "the attachment that was there is left alone"
    assert "10.244.1.2" in ip("-n", names["a"], "address")


def test_two_interfaces_of_one_container(net: Net) -> None:
    runtime, names = net
    first = runtime.call("ADD", netns=names["a"]).result
    second = runtime.call("ADD", netns=names["a"], ifname="net1", isDefaultGateway=False).result
    assert first["ips"] != second["ips"]
    assert runtime.call("DEL", netns=names["a"], ifname="net1").code == 0
    assert links(names["a"]) == {"eth0"}


def test_an_interface_name_that_is_taken(net: Net) -> None:
    runtime, names = net
    ip("-n", names["a"], "link", "add", "eth0", "type", "bridge")
    answer = runtime.call("ADD", netns=names["a"])
    assert answer.error == Code.NAME_TAKEN
    assert "eth0" in answer.text
    assert runtime.state()["attachments"] == {}
    assert links(names["node"]) == {"cni0"}
    ip("-n", names["a"], "link", "delete", "eth0")
    assert runtime.call("ADD", netns=names["a"]).result


def test_a_bridge_name_that_is_taken(net: Net) -> None:
    runtime, names = net
    ip("-n", names["node"], "link", "add", "cni0", "type", "veth", "peer", "name", "other")
    assert runtime.call("ADD", netns=names["a"]).error == Code.NAME_TAKEN
    assert runtime.call("STATUS").error == Code.NOT_AVAILABLE


def test_an_exhausted_range(net: Net) -> None:
    runtime, names = net
    small = {"ranges": [[{"subnet": "10.9.0.0/30"}]]}
    assert runtime.call("ADD", netns=names["a"], ipam=small).result["ips"][0]["address"] == "10.9.0.2/30"
    answer = runtime.call("ADD", container="c2", netns=names["b"], ipam=small)
    assert answer.error == Code.RANGE_EXHAUSTED
    assert "10.9.0.0/30" in answer.text
    assert runtime.call("STATUS", ipam=small).error == Code.NOT_AVAILABLE
    assert runtime.call("DEL", ipam=small).code == 0
    assert runtime.call("ADD", container="c2", netns=names["b"], ipam=small).result


def test_addresses_and_macs_that_are_asked_for(net: Net) -> None:
    runtime, names = net
    wanted = {"ips": ["10.244.1.77/24", "fd00:10:244:1::77"], "mac": "02:00:00:00:00:77"}
    result = runtime.call("ADD", netns=names["a"], runtimeConfig=wanted).result
    assert [item["address"] for item in result["ips"]] == ["10.244.1.77/24", "fd00:10:244:1::77/64"]
    assert "02:00:00:00:00:77" in ip("-n", names["a"], "link", "show", "eth0")
    taken = runtime.call("ADD", container="c2", netns=names["b"], env={"CNI_ARGS": "IgnoreUnknown=1;IP=10.244.1.77"})
    assert taken.error == Code.ADDRESS_TAKEN
    assert "c1/eth0" in taken.text


def test_static_routes(net: Net) -> None:
    runtime, names = net
    routes = [
        {"dst": "192.0.2.0/24", "gw": "10.244.1.9", "mtu": 1300, "priority": 7},
        {"dst": "198.51.100.0/24", "table": 1000},
        {"dst": "203.0.113.0/24", "scope": 253},
        {"dst": "2001:db8::/32", "advmss": 1000},
    ]
    ipam = {"ranges": RANGES, "routes": routes}
    result = runtime.call("ADD", netns=names["a"], ipam=ipam, isDefaultGateway=False).result
    assert "192.0.2.0/24 via 10.244.1.9 dev eth0 metric 7 mtu 1300" in re.sub(" +", " ", ip("-n", names["a"], "route"))
    assert "198.51.100.0/24 via 10.244.1.1" in ip("-n", names["a"], "route", "show", "table", "1000")
    assert "203.0.113.0/24 dev eth0 scope link" in ip("-n", names["a"], "route")
    assert "advmss 1000" in ip("-n", names["a"], "-6", "route")
    assert result["routes"][0] == {"dst": "192.0.2.0/24", "gw": "10.244.1.9", "mtu": 1300, "priority": 7}
    assert runtime.call("CHECK", netns=names["a"], ipam=ipam, isDefaultGateway=False, prevResult=result).code == 0


def test_prev_result_of_a_plugin_before_is_passed_on(net: Net) -> None:
    runtime, names = net
    before = {
        "cniVersion": "1.1.0",
        "interfaces": [{"name": "lo", "sandbox": "x"}],
        "ips": [{"address": "127.0.0.1/8", "interface": 0}],
        "dns": {"nameservers": ["10.96.0.10"]},
    }
    result = runtime.call("ADD", netns=names["a"], prevResult=before).result
    assert result["interfaces"][0] == before["interfaces"][0]  # type: ignore[index]
    assert [item["interface"] for item in result["ips"]] == [0, 3, 3]
    assert result["dns"] == before["dns"]


def test_prev_result_is_converted_to_the_version_asked_for(net: Net) -> None:
    runtime, names = net
    old: dict[str, Any] = {
        "cniVersion": "0.4.0",
        "interfaces": [{"name": "lo", "sandbox": "x"}],
        "ips": [{"version": "4", "address": "127.0.0.1/8", "interface": 0}],
    }
    result = runtime.call("ADD", netns=names["a"], cniVersion="1.0.0", prevResult=old).result
    assert result["ips"][0] == {"address": "127.0.0.1/8", "interface": 0}
    assert runtime.call("DEL", netns=names["a"]).code == 0
    new: dict[str, Any] = {
        "cniVersion": "1.1.0",
        "interfaces": [{"name": "x0", "sandbox": "x", "mtu": 1400, "socketPath": "/run/s", "pciID": "0"}],
        "ips": [{"address": "fd00::1/8", "gateway": "fd00::2"}],
        "routes": [{"dst": "10.0.0.0/8", "gw": "10.0.0.1", "mtu": 1400, "table": 7, "scope": 0}],
    }
    for version, address in (("0.3.0", {"version": "6"}), ("0.4.0", {"version": "6"}), ("1.0.0", {})):
        result = runtime.call("ADD", netns=names["a"], cniVersion=version, prevResult=new).result
        assert result["interfaces"][0] == {"name": "x0", "sandbox": "x"}
        assert result["ips"][0] == {**address, "address": "fd00::1/8", "gateway": "fd00::2"}
        assert result["routes"][0] == {"dst": "10.0.0.0/8", "gw": "10.0.0.1"}
        assert runtime.call("DEL", netns=names["a"]).code == 0
    result = runtime.call("ADD", netns=names["a"], prevResult=new).result
    assert (result["interfaces"][0], result["routes"][0]) == (new["interfaces"][0], new["routes"][0])
    assert runtime.call("DEL", netns=names["a"]).code == 0
    ancient = {"cniVersion": "0.2.0", "ip4": {"ip": "10.9.9.9/24", "routes": [{"dst": "10.9.0.0/16"}]}, "dns": {}}
    result = runtime.call("ADD", netns=names["a"], cniVersion="0.4.0", prevResult=ancient).result
    assert result["ips"][0] == {"version": "4", "address": "10.9.9.9/24"}
    assert result["routes"][0] == {"dst": "10.9.0.0/16"}


def test_field_names_are_matched_as_go_matches_them(net: Net) -> None:
    """Runtimes in Go print fields without JSON names as they are in the source; the last of a field's keys wins."""
    runtime, names = net
    conf = runtime.configuration()
    ports = [
        {"HostPort": 8080, "ContainerPort": 7000, "Protocol": "UDP", "HostIP": "0.0.0.0"},
        {"HostPort": 0, "ContainerPort": 7001, "Protocol": "tcp", "HostIP": ""},
        {"ContainerPort": 7002},
    ]
    ranges = [{"Subnet": "10.9.0.0/24", "RangeStart": "10.9.0.9", "RangeEnd": "10.9.0.9", "Gateway": "10.9.0.5"}]
    del conf["ipam"], conf["isDefaultGateway"]
    text = json.dumps(
        {**conf, "IPAM": {"Type": "host-local", "Routes": [{"DST": "0.0.0.0/0", "Gw": ""}]}, "BRIDGE": "br9"}
    )
    runtime_config = json.dumps({"PortMappings": ports, "ipranges": ranges, "Mac": "02:00:00:00:00:77"})
    text = text[:-1] + f', "mtu": 1400, "MTU": 1300, "mtu": 1350, "Mtu": 1380, "RuntimeConfig": {runtime_config}}}'
    environment = runtime.environment("ADD", "c1", names["a"])
    result = finish(runtime.start(environment, text.encode())).result
    assert [item["address"] for item in result["ips"]] == ["10.9.0.9/24"]
    assert [item["gateway"] for item in result["ips"]] == ["10.9.0.5"]
    assert result["interfaces"][0]["name"] == "br9"
    assert result["interfaces"][2] == {
        "name": "eth0", "mac": "02:00:00:00:00:77", "mtu": 1380, "sandbox": f"/run/netns/{names['a']}"
    }  # fmt: skip
    assert exchange(names["node"], names["a"], "127.0.0.1", 8080, 7000)
    shouted = json.loads(json.dumps(result))
    shouted = {key.upper(): [{name.upper(): value for name, value in item.items()} for item in shouted[key]]
               for key in ("interfaces", "ips", "routes")}  # fmt: skip
    check = text[:-1] + f', "PrevResult": {json.dumps(shouted)}}}'
    answer = finish(runtime.start({**environment, "CNI_COMMAND": "CHECK"}, check.encode()))
    assert answer.code == 0, answer.document


def test_refusals_and_unsupported_fields_hold_whatever_the_case_of_their_names(net: Net) -> None:
    runtime, names = net
    assert runtime.call("ADD", netns=names["a"], IPMasq=True).error == Code.UNSUPPORTED_FIELD
    wrong = runtime.call("ADD", netns=names["a"], runtimeConfig={"portMappings": [{"HostPort": 1, "ContainerPort": 0}]})
    assert wrong.error == Code.INVALID_CONFIG
    assert "runtimeConfig.portMappings[0].containerPort" in wrong.text


def test_empty_lists_of_prev_result_may_be_null(net: Net) -> None:
    """So Go's encoder prints a list that was never made."""
    runtime, names = net
    before = {"cniVersion": "1.1.0", "interfaces": None, "ips": None, "routes": None, "dns": None}
    assert runtime.call("ADD", netns=names["a"], prevResult=before).result["ips"][0]["interface"] == 2


# DEL


def test_del_takes_everything_away_and_again_does_no_harm(net: Net) -> None:
    runtime, names = net
    assert runtime.call("ADD", netns=names["a"]).result
    for _ in range(2):
        answer = runtime.call("DEL", netns=names["a"])
        assert answer.code == 0
        assert answer.document is None
        assert links(names["node"]) == {"cni0"}
        assert links(names["a"]) == set()
        assert runtime.state()["attachments"] == {}


def test_del_without_a_namespace_and_with_a_broken_ipam(net: Net) -> None:
    runtime, names = net
    assert runtime.call("ADD", netns=names["a"]).result
    ip("netns", "del", names["a"])
    assert runtime.call("DEL", netns=names["a"], ipam={"ranges": "?"}).code == 0
    assert runtime.state()["attachments"] == {}
    assert runtime.call("DEL", container="never-seen").code == 0


@pytest.mark.parametrize(
    ("refused", "environment"),
    [
        ({"ipMasq": True}, {}),
        ({"mtu": 60}, {}),
        ({"bridge": "a/b"}, {}),
        ({"ipam": {"type": "dhcp"}}, {}),
        ({"runtimeConfig": {"mac": "x"}}, {}),
        ({"runtimeConfig": {"ips": ["x"]}}, {}),
        ({"runtimeConfig": {"portMappings": [{"hostPort": 70000, "containerPort": 1}]}}, {}),
        ({"prevResult": "x"}, {}),
        ({}, {"CNI_ARGS": "IP=x"}),
        ({}, {"CNI_ARGS": "x"}),
    ],
    ids=str,
)
def test_del_takes_down_whatever_add_would_refuse(
    net: Net, refused: dict[str, Any], environment: dict[str, str]
) -> None:
    """A runtime follows an ADD that failed with a DEL of the same configuration, and keeps the pod while that fails."""
    runtime, names = net
    assert runtime.call("ADD", netns=names["a"]).result
    assert runtime.call("ADD", "c2", netns=names["b"], env=environment, **refused).code == 1
    for container in ("c1", "c2"):
        assert runtime.call("DEL", container, netns=names["a"], env=environment, **refused).code == 0
    assert runtime.state()["attachments"] == {}
    assert links(names["node"]) <= {"cni0"}


# CHECK


@pytest.mark.parametrize(
    ("damage", "told"),
    [
        (["-n", "a", "address", "del", "10.244.1.2/24", "dev", "eth0"], "10.244.1.2/24"),
        (["-n", "a", "route", "del", "default"], "0.0.0.0/0"),
        (["-n", "a", "link", "set", "eth0", "down"], "down"),
        (["-n", "a", "link", "set", "eth0", "name", "eth1"], "eth0 is not in the container"),
        (["-n", "node", "link", "set", "VETH", "nomaster"], "not at bridge"),
        (["-n", "node", "link", "set", "VETH", "type", "bridge_slave", "hairpin", "off"], "hairpin"),
        (["-n", "node", "address", "del", "10.244.1.1/24", "dev", "cni0"], "10.244.1.1/24"),
    ],
    ids=lambda value: value if isinstance(value, str) else None,
)
def test_check_tells_what_is_wrong(net: Net, damage: list[str], told: str) -> None:
    runtime, names = net
    result = runtime.call("ADD", netns=names["a"]).result
    checked = runtime.call("CHECK", netns=names["a"], prevResult=result)
    assert (checked.code, checked.document) == (0, None)
    known = {**names, "VETH": result["interfaces"][1]["name"]}
    ip(*(known.get(word, word) for word in damage))
    answer = runtime.call("CHECK", netns=names["a"], prevResult=result)
    assert answer.error == Code.CHECK_FAILED
    assert told in answer.text


@pytest.mark.parametrize(
    "later",
    [
        ["link set eth0 mtu 1300"],
        ["link set eth0 address 02:00:00:00:00:99"],
        ["address add 192.0.2.9/24 dev eth0"],
        ["route add 203.0.113.0/24 via 10.244.1.1"],
        ["route del default", "route add default via 10.244.1.1 table 100"],
        ["route del default", "route add default via 10.244.1.1 metric 50 mtu 1300"],
    ],
    ids=str,
)
def test_check_allows_what_a_later_plugin_changed(net: Net, later: list[str]) -> None:
    """As `tuning` changes MTU and MAC, `sbr` the tables of routes, and others add addresses."""
    runtime, names = net
    result = runtime.call("ADD", netns=names["a"]).result
    for command in later:
        ip("-n", names["a"], *command.split())
    checked = runtime.call("CHECK", netns=names["a"], prevResult=result)
    assert checked.code == 0, checked.document


def test_check_goes_by_the_result_that_later_plugins_left(net: Net) -> None:
    runtime, names = net
    result = runtime.call("ADD", netns=names["a"]).result
    ip("-n", names["a"], "route", "del", "default")
    ip("-n", names["a"], "address", "del", "10.244.1.2/24", "dev", "eth0")
    changed = json.loads(json.dumps(result))
    changed["interfaces"][2] |= {"mac": "02:00:00:00:00:99", "mtu": 9000}
    changed["routes"] = [item for item in result["routes"] if item["dst"] != "0.0.0.0/0"]
    assert runtime.call("CHECK", netns=names["a"], prevResult=changed).error == Code.CHECK_FAILED, "the address"
    changed["ips"] = [{"address": "192.0.2.9/24", "interface": 2}, *result["ips"][1:]]
    assert runtime.call("CHECK", netns=names["a"], prevResult=changed).code == 0
    changed["ips"][0]["address"] = "10.244.1.200/24"
    answer = runtime.call("CHECK", netns=names["a"], prevResult=changed)
    assert answer.error == Code.CHECK_FAILED, "an address of the range that nobody leased"
    assert "10.244.1.200/24" in answer.text
    changed["ips"] = [{"address": "192.0.2.9/24", "interface": 2}]
    assert runtime.call("CHECK", netns=names["a"], prevResult=changed).error == Code.CHECK_FAILED, "none of its leases"


def test_check_of_what_is_not_attached_or_without_prev_result(net: Net) -> None:
    runtime, names = net
    result = runtime.call("ADD", netns=names["a"]).result
    assert runtime.call("CHECK", netns=names["a"]).error == Code.INVALID_CONFIG
    unknown = runtime.call("CHECK", container="c9", netns=names["b"], prevResult=result)
    assert unknown.error == Code.UNKNOWN_CONTAINER


# GC and STATUS


def test_gc_frees_what_is_not_valid(net: Net) -> None:
    runtime, names = net
    assert runtime.call("ADD", netns=names["a"]).result
    assert runtime.call("ADD", container="c2", netns=names["b"]).result
    valid: dict[str, Any] = {"cni.dev/valid-attachments": [{"containerID": "c2", "ifname": "eth0"}]}
    assert runtime.call("GC", **valid).code == 0
    assert set(runtime.state()["attachments"]) == {"c2/eth0"}
    assert links(names["a"]) == set()
    assert links(names["b"]) == {"eth0"}


@pytest.mark.parametrize(
    "none",
    [{"cni.dev/valid-attachments": None}, {"cni.dev/valid-attachments": []}, {"cni.dev/attachments": []}, {}],
    ids=str,
)
def test_gc_without_valid_attachments_frees_all(net: Net, none: dict[str, Any]) -> None:
    """null is Go's empty list; CNI's library leaves the key out when it has nothing to keep."""
    runtime, names = net
    assert runtime.call("ADD", netns=names["a"]).result
    conf = {**runtime.configuration(), **none}
    assert finish(runtime.start(runtime.environment("GC", "", ""), conf)).code == 0
    assert runtime.state()["attachments"] == {}
    assert links(names["a"]) == set()


@pytest.mark.parametrize("key", ["cni.dev/attachments", "CNI.dev/Valid-Attachments"])
def test_gc_keeps_what_the_other_spelling_of_the_key_names(net: Net, key: str) -> None:
    """The specification first had `cni.dev/attachments`, and CNI's library sends both."""
    runtime, names = net
    assert runtime.call("ADD", netns=names["a"]).result
    valid: dict[str, Any] = {key: [{"containerID": "c1", "ifname": "eth0"}]}
    assert runtime.call("GC", **valid).code == 0
    assert set(runtime.state()["attachments"]) == {"c1/eth0"}
    wrong: dict[str, Any] = {key: {"c1": "eth0"}}
    assert runtime.call("GC", **wrong).error == Code.INVALID_CONFIG


def test_status_is_silent_when_add_can_be_served(net: Net) -> None:
    answer = net[0].call("STATUS")
    assert (answer.code, answer.document) == (0, None)


def test_without_root(net: Net, tmp_path: Path) -> None:
    runtime, names = net
    os.chmod(tmp_path, 0o777)
    environment = runtime.environment("ADD", "c1", names["a"])
    # Imports come first: the tests' interpreter may be where only root reads.
    script = (
        "import os, sys; from kproxy.cni.plugin import serve; os.setgid(65534); os.setuid(65534);"
        "code, output = serve(os.environ, sys.stdin.buffer.read()); print(output); sys.exit(code)"
    )
    for command, code in (("ADD", Code.NOT_PERMITTED), ("STATUS", Code.NOT_AVAILABLE)):
        done = subprocess.run(
            [sys.executable, "-c", script],
            input=json.dumps(runtime.configuration()), text=True, capture_output=True, check=False,
            env={**environment, "CNI_COMMAND": command},
        )  # fmt: skip
        assert json.loads(done.stdout)["code"] == code, done.stderr
        assert "root" in done.stdout


# Port mappings


@pytest.mark.parametrize("variant", ["nft", "legacy"])
def test_port_mappings(net: Net, variant: str) -> None:
    runtime, names = net
    ports = [
        {"hostPort": 8080, "containerPort": 7000, "protocol": "tcp"},
        {"hostPort": 8080, "containerPort": 7000, "protocol": "udp"},
    ]
    extra: dict[str, Any] = {"iptables": variant, "runtimeConfig": {"portMappings": ports}}
    result = runtime.call("ADD", netns=names["a"], **extra).result
    runtime.call("ADD", container="c2", netns=names["b"]).result  # noqa: B018
    assert exchange(names["b"], names["a"], "10.244.1.1", 8080, 7000), "another pod by the node's address"
    assert exchange(names["b"], names["a"], "fd00:10:244:1::1", 8080, 7000)
    assert exchange(names["node"], names["a"], "127.0.0.1", 8080, 7000), "the node by its loopback address"
    assert exchange(names["a"], names["a"], "10.244.1.1", 8080, 7000), "hairpin: the pod itself"
    assert runtime.call("CHECK", netns=names["a"], prevResult=result, **extra).code == 0
    clash = runtime.call("ADD", container="c3", netns=names["b"], ifname="net1", **extra)
    assert clash.error == Code.PORT_TAKEN
    with Namespace.named(names["node"]) as node:

        def saved() -> str:
            command = [f"iptables-{variant}-save", "-t", "nat"]
            return node.call(lambda: subprocess.run(command, capture_output=True, text=True, check=True).stdout)

        flush = [f"iptables-{variant}", "-t", "nat", "-F", "CNI-HOSTPORT-DNAT"]
        assert "CNI-DN-" in saved()
        node.call(lambda: subprocess.run(flush, check=True))
        assert runtime.call("CHECK", netns=names["a"], prevResult=result, **extra).error == Code.CHECK_FAILED
        assert runtime.call("DEL", netns=names["a"], **extra).code == 0
        assert "CNI-DN-" not in saved()


# Concurrency and crashes


def test_twenty_adds_at_once(tmp_path: Path) -> None:
    labels = [f"p{number}" for number in range(20)]
    with namespaces("node", *labels) as names:
        runtime = Runtime(names["node"], tmp_path, configuration())
        conf = runtime.configuration()
        started = [runtime.start(runtime.environment("ADD", label, names[label]), conf) for label in labels]
        results = [finish(process).result for process in started]
        for family in (0, 1):
            assert len({result["ips"][family]["address"] for result in results}) == 20
        assert len(links(names["node"])) == 21
        assert {record["state"] for record in runtime.state()["attachments"].values()} == {"done"}
        started = [runtime.start(runtime.environment("DEL", label, names[label]), conf) for label in labels]
        assert [finish(process).code for process in started] == [0] * 20
        assert links(names["node"]) == {"cni0"}
        assert runtime.state()["attachments"] == {}


@pytest.mark.parametrize("mend", ["ADD", "DEL", "GC"])
def test_kill_9_in_the_middle_of_add(net: Net, mend: str) -> None:
    runtime, names = net
    extra: dict[str, Any] = {"runtimeConfig": {"portMappings": [{"hostPort": 8080, "containerPort": 80}]}}
    conf = runtime.configuration(**extra)
    halfway = 0
    for step in range(8):
        process = runtime.start(runtime.environment("ADD", "c1", names["a"]), conf)
        # From before the first record to after the last: at some of these moments things are half made.
        until = time.monotonic() + PATIENCE
        while not runtime.state()["attachments"] and process.poll() is None and time.monotonic() < until:
            time.sleep(0.0005)
        time.sleep(step * 0.006)
        process.kill()  # nothing where it has ended by itself
        process.communicate()
        states = [record["state"] for record in runtime.state()["attachments"].values()]
        halfway += states == ["pending"]
        if mend == "ADD" and states != ["done"]:
            assert runtime.call("ADD", netns=names["a"], **extra).result["ips"]
            assert links(names["a"]) == {"eth0"}
            assert len(links(names["node"])) == 2
        if mend == "GC":
            assert runtime.call("GC", **NOTHING_VALID).code == 0
        else:
            assert runtime.call("DEL", netns=names["a"], **extra).code == 0
        assert runtime.state()["attachments"] == {}
        assert links(names["a"]) == set()
        assert links(names["node"]) <= {"cni0"}
        with Namespace.named(names["node"]) as node:
            done = node.call(lambda: subprocess.run(["iptables-save"], capture_output=True, text=True, check=True))
        assert "CNI-DN-" not in done.stdout
    assert halfway, "no ADD was caught in the middle"


def test_a_lock_that_is_held_means_try_again_later(net: Net, tmp_path: Path) -> None:
    from kproxy.linux.pod.cnistore import Store
    from kproxy.overlay.errors import CniError

    store, other = Store(str(tmp_path)), Store(str(tmp_path), wait=0.05)
    with store.state():
        done: list[Code] = []

        def attempt() -> None:
            try:
                with other.state():
                    pass
            except CniError as error:
                done.append(error.code)

        thread = threading.Thread(target=attempt)
        thread.start()
        thread.join()
        assert done == [Code.TRY_AGAIN_LATER]


def test_a_state_file_that_cannot_be_understood(net: Net, tmp_path: Path) -> None:
    runtime, names = net
    (tmp_path / "kproxy").mkdir()
    (tmp_path / "kproxy" / "state.json").write_text('{"version": 1, "attachments": {"c": 5}, "last": {}}')
    answer = runtime.call("ADD", netns=names["a"])
    assert answer.error == Code.STATE_CORRUPT
    assert "state.json" in answer.text
