"""Error codes that need something to go wrong on the machine; what was made until then is taken back each time."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from unittest import mock

import pytest

from kproxy.cni.plugin import serve
from kproxy.linux.namespace import Namespace
from kproxy.overlay.errors import Code
from tests.support.cni.client import RANGES, Runtime, configuration, ip, namespaces

pytestmark = pytest.mark.root
Net = tuple[Runtime, dict[str, str]]
PORTS: dict[str, Any] = {"runtimeConfig": {"portMappings": [{"hostPort": 8080, "containerPort": 80}]}}


@pytest.fixture
def net(tmp_path: Path) -> Iterator[Net]:
    with namespaces("node", "a", "b") as names:
        yield Runtime(names["node"], tmp_path / "data", configuration()), names


def links(namespace: str) -> set[str]:
    return {link["ifname"] for link in json.loads(ip("-n", namespace, "-j", "link"))} - {"lo"}


def nothing_is_left(net: Net) -> bool:
    runtime, names = net
    return not links(names["a"]) and links(names["node"]) <= {"cni0"} and not runtime.state()["attachments"]


def test_code_5_when_the_state_cannot_be_kept(net: Net, tmp_path: Path) -> None:
    runtime, names = net
    (tmp_path / "file").touch()
    answer = runtime.call("ADD", netns=names["a"], dataDir=str(tmp_path / "file" / "below"))
    assert answer.error == Code.IO_FAILURE
    assert "file/below" in answer.text
    assert runtime.call("STATUS", dataDir=str(tmp_path / "file")).error == Code.NOT_AVAILABLE
    too_long = runtime.call("ADD", netns=names["a"], name="n" * 300)
    assert too_long.error == Code.IO_FAILURE
    assert nothing_is_left(net)


def test_code_51_when_containers_have_lost_their_bridge(net: Net) -> None:
    runtime, names = net
    assert runtime.call("STATUS").code == 0, "no bridge yet, and nobody who lacks it"
    assert runtime.call("ADD", netns=names["a"]).result
    assert runtime.call("STATUS").code == 0
    ip("-n", names["node"], "link", "set", "cni0", "down")
    answer = runtime.call("STATUS")
    assert answer.error == Code.LIMITED_CONNECTIVITY
    assert "cni0 of 1 attachments is down" in answer.text
    ip("-n", names["node"], "link", "delete", "cni0")
    assert runtime.call("STATUS").error == Code.LIMITED_CONNECTIVITY
    ip("netns", "del", names["a"])
    until = time.monotonic() + 30
    while links(names["node"]) and time.monotonic() < until:  # the kernel takes a namespace down in its own time
        time.sleep(0.05)
    assert runtime.call("STATUS").code == 0, "a lease that outlived its namespace keeps nobody from ADD"


def test_code_100_when_the_kernel_refuses(net: Net) -> None:
    runtime, names = net
    routes = [{"dst": "10.9.0.0/16", "gw": "192.0.2.1"}]
    answer = runtime.call("ADD", netns=names["a"], ipam={"ranges": RANGES, "routes": routes})
    assert answer.error == Code.KERNEL_REFUSED
    assert "10.9.0.0/16" in answer.text, "which of the requests it was"
    assert nothing_is_left(net)
    assert runtime.call("ADD", netns=names["a"]).result, "and nothing is in the way"


def test_code_103_tells_the_containers_name_from_the_nodes(net: Net) -> None:
    runtime, names = net
    result = runtime.call("ADD", netns=names["a"]).result
    port = result["interfaces"][1]["name"]
    assert runtime.call("DEL", netns=names["a"]).code == 0
    ip("-n", names["node"], "link", "add", port, "type", "veth", "peer", "name", "left")
    assert runtime.call("ADD", netns=names["a"]).result, "what a killed ADD left of the node's end is replaced"
    assert links(names["node"]) == {"cni0", port}
    assert runtime.call("DEL", netns=names["a"]).code == 0
    ip("-n", names["a"], "link", "add", "eth0", "type", "veth", "peer", "name", "other")
    ip("-n", names["node"], "link", "add", port, "type", "veth", "peer", "name", "left")
    answer = runtime.call("ADD", netns=names["a"])
    assert answer.error == Code.NAME_TAKEN
    assert "eth0" in answer.text
    assert links(names["node"]) == {"cni0"}
    assert links(names["a"]) == {"eth0", "other"}, "somebody else's stays"


def test_code_105_when_iptables_fails_and_del_cleans_up_once_it_works(net: Net, tmp_path: Path) -> None:
    runtime, names = net
    fake = tmp_path / "bin"
    fake.mkdir()
    program = fake / "iptables-nft-restore"
    program.write_text("#!/bin/sh\necho 'iptables-restore: line 3 failed' >&2\nexit 1\n")
    program.chmod(0o755)
    path = f"{fake}{os.pathsep}{os.environ['PATH']}"
    answer = runtime.call("ADD", netns=names["a"], iptables="nft", env={"PATH": path}, **PORTS)
    assert answer.error == Code.PORT_MAPPING_FAILED
    assert "line 3 failed" in answer.text
    assert nothing_is_left(net)
    save = fake / "iptables-nft-save"
    save.write_text("#!/bin/sh\nexit 1\n")
    save.chmod(0o755)
    assert runtime.call("ADD", netns=names["a"], iptables="nft", env={"PATH": path}, **PORTS).error
    assert {item["state"] for item in runtime.state()["attachments"].values()} == {"pending"}
    assert runtime.call("DEL", netns=names["a"], iptables="nft", **PORTS).code == 0
    assert nothing_is_left(net)


def test_code_110_for_a_bug_of_ours(net: Net) -> None:
    runtime, names = net
    environment = runtime.environment("ADD", "c1", names["a"])
    conf = json.dumps(runtime.configuration()).encode()
    broken = mock.patch("kproxy.cni.plugin.render_result", side_effect=RuntimeError("a bug"))
    with Namespace.named(names["node"]) as node, broken:
        code, output = node.call(serve, environment, conf)
    assert code == 1
    assert json.loads(output)["code"] == Code.INTERNAL
    assert "a bug" in json.loads(output)["details"]
    assert runtime.call("DEL", netns=names["a"]).code == 0
    assert nothing_is_left(net)


def test_ipv6_that_a_runtime_switched_off_is_switched_on(net: Net) -> None:
    runtime, names = net
    for name in ("all", "default"):
        ip("netns", "exec", names["a"], "sysctl", "-qw", f"net.ipv6.conf.{name}.disable_ipv6=1")
    assert runtime.call("ADD", netns=names["a"]).result
    given = ip("-n", names["a"], "-o", "address", "show", "dev", "eth0", "scope", "global")
    assert "fd00:10:244:1::2/64" in given
    # The link-local address, which the kernel adds by itself, may still be.
    assert "tentative" not in given
