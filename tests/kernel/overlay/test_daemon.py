"""`kproxy overlay` as it is run: an API server, a process per node, Nodes that come and go."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from contextlib import AbstractContextManager
from pathlib import Path

import pytest

from kproxy.api.types.core import Node
from tests.support.apiserver.server import Api
from tests.support.apiserver.server import shared as shared
from tests.support.cli import KPROXY, run_kproxy
from tests.support.cni.client import ip
from tests.support.overlay.network import OUTSIDE, Network, ask, node_object, outside_host, reaches, three_nodes
from tests.support.processes import read_until, started
from tests.support.waiting import eventually

pytestmark = [pytest.mark.root, pytest.mark.slow]
NODES = "/api/v1/nodes"
OVERLAY = [*KPROXY, "overlay"]

WITHOUT_VXLAN = """
from kproxy.linux.pod import vxlan

class Refusing:
    # The kernel's answer to a link of a kind that it has no module for.
    def __init__(self, route):
        self._route = route

    def __getattr__(self, name):
        return getattr(self._route, name)

    def link(self, verb, **options):
        if verb == "add" and options["kind"] == "vxlan":
            from pyroute2.netlink.exceptions import NetlinkError
            raise NetlinkError(95, "Operation not supported")
        return self._route.link(verb, **options)

class Kernel(vxlan.OverlayKernel):
    def __init__(self, namespace):
        super().__init__(namespace)
        self._route = Refusing(self._route)

import kproxy.agent.overlay
kproxy.agent.overlay.OverlayKernel = Kernel
from kproxy.__main__ import main
main()
"""


def running(command: list[str], ready: str) -> AbstractContextManager[subprocess.Popen[str]]:
    """A process that said it is ready; ended by SIGTERM, with exit code 0."""
    return started(subprocess.Popen(command, stderr=subprocess.PIPE, text=True), ready)


@pytest.fixture
def api(shared: Api) -> Api:
    """An API server without Nodes."""
    shared.ok("DELETE", NODES)
    return shared


def put_node(api: Api, node: Node) -> None:
    """Creates a Node with podCIDRs and addresses."""
    addresses = [{"type": item.type, "address": item.address} for item in node.addresses]
    document = {
        "metadata": {"name": node.metadata.name},
        "spec": {"podCIDR": node.pod_cidrs[0], "podCIDRs": list(node.pod_cidrs)},
        "status": {"addresses": addresses},
    }
    api.ok("POST", NODES, document)


@pytest.fixture
def network(tmp_path: Path) -> Iterator[Network]:
    with three_nodes(tmp_path) as made:
        yield made


def options_of(api: Api, network: Network, number: int) -> list[str]:
    """Options for a node."""
    node = ["--node", f"node-{number}", "--netns", network.names[f"n{number}"]]
    return [*node, "--kubeconfig", str(api.server.kubeconfig)]


def check(api: Api, network: Network, node: int) -> tuple[int, str]:
    done = run_kproxy("overlay", "check", *options_of(api, network, node), "-o", "json")
    return done.returncode, done.stdout or done.stderr


def test_nodes_join_and_leave(network: Network, api: Api) -> None:
    for number in (1, 2):
        put_node(api, node_object(number))
    options = {number: options_of(api, network, number) for number in (1, 2, 3)}
    code, told = check(api, network, 1)
    assert code == 1
    assert {item["kind"] for item in json.loads(told)["drift"]} >= {"missing"}
    assert run_kproxy("overlay", "run", *options[2], "--once").returncode == 0
    assert check(api, network, 2)[0] == 0
    with running([*OVERLAY, "run", *options[1], "--resync", "0.5"], "ready"):
        assert reaches(network, 1, 2, 4)
        assert reaches(network, 1, 2, 6)
        put_node(api, node_object(3))
        with running([*OVERLAY, "run", *options[3]], "ready"):
            eventually(lambda: reaches(network, 1, 3, 4, wait=1) and reaches(network, 3, 1, 6, wait=1))
            ip("-n", network.names["n1"], "link", "delete", "kproxy.1")
            eventually(lambda: reaches(network, 1, 3, 4, wait=1))  # drift is mended by itself
            api.ok("DELETE", f"{NODES}/node-3")
            eventually(lambda: "10.244.3.0/24" not in ip("-n", network.names["n1"], "route"))
            assert reaches(network, 1, 2, 4)
    assert check(api, network, 1) == (0, check(api, network, 1)[1])


def test_a_node_that_loses_its_node_object_or_what_it_says_follows_the_others(network: Network, api: Api) -> None:
    def routes() -> str:
        return ip("-n", network.names["n1"], "route") + ip("-n", network.names["n1"], "-6", "route")

    def knows(number: int) -> bool:
        return all(cidr in routes() for cidr in node_object(number).pod_cidrs)

    for number in (1, 2):
        put_node(api, node_object(number))
    options = options_of(api, network, 1)
    with running([*OVERLAY, "run", *options], "ready") as daemon:
        assert knows(2)
        api.ok("DELETE", f"{NODES}/node-1")
        read_until(daemon, "Node node-1 is gone: its podCIDRs and addresses stay as they were")
        put_node(api, node_object(3))
        eventually(lambda: knows(3))  # though its own Node is gone
        api.ok("POST", NODES, {"metadata": {"name": "node-1"}})
        read_until(daemon, "Node node-1 has lost its addresses: they stay as they were")
        api.ok("DELETE", f"{NODES}/node-3")
        eventually(lambda: not any(cidr in routes() for cidr in node_object(3).pod_cidrs))  # though it is bare
        assert knows(2)


def test_the_ready_file_is_there_after_a_round_without_a_problem(network: Network, api: Api, tmp_path: Path) -> None:
    file = tmp_path / "ready"
    file.touch()
    put_node(api, node_object(2))
    options = options_of(api, network, 1)
    with running([*OVERLAY, "run", *options, "--ready-file", str(file)], "node-1 is not among the Node objects"):
        assert not file.exists()
        put_node(api, node_object(1))
        eventually(file.exists)
    missing = str(tmp_path / "nowhere/ready")
    refused = run_kproxy("overlay", "run", *options, "--ready-file", missing)
    assert (refused.returncode, "nowhere/ready" in refused.stderr) == (2, True)


def test_the_mtu_follows_the_interface_with_the_nodes_address(network: Network, api: Api) -> None:
    """As flannel's does; what is asked for wins."""
    for number in (1, 2):
        set_underlay_mtu(network, number, 1600)
    for number in (1, 2):
        put_node(api, node_object(number))
    options = {number: options_of(api, network, number) for number in (1, 2)}
    assert run_kproxy("overlay", "run", *options[2], "--once").returncode == 0
    with running([*OVERLAY, "run", *options[1], "--resync", "0.5"], "ready"):
        assert mtus(network, 1) == {"kproxy.1": 1550, "kproxy-v6.1": 1530}
        told = json.loads(check(api, network, 1)[1])
        assert (told["mtu"], told["drift"]) == (1530, [])
        for family in (4, 6):
            assert reaches(network, 1, 2, family, 4000)
        set_underlay_mtu(network, 1, 1500)
        eventually(lambda: mtus(network, 1) == {"kproxy.1": 1450, "kproxy-v6.1": 1430})
    for option, expected in (("--mtu", (1400, 1400)), ("--underlay-mtu", (1350, 1330))):
        assert run_kproxy("overlay", "run", *options[1], option, "1400", "--once").returncode == 0
        assert tuple(mtus(network, 1).values()) == expected
    small = subprocess.run(
        [*OVERLAY, "run", *options[1], "--mtu", "576", "--once"], check=False, capture_output=True, text=True
    )
    assert small.returncode == 2
    assert "--mtu" in small.stderr


def test_rules_are_kept_while_it_runs_and_stay_until_cleanup(network: Network, api: Api) -> None:
    name = network.names["n1"]
    with outside_host(network) as outside:
        for number in (1, 2):
            put_node(api, node_object(number))
        options = [*options_of(api, network, 1), "--ip-masq"]

        checking = [*OVERLAY, "check", *options, "-o", "json"]

        def asks(wait: float = 10) -> bool:
            return all(ask(network.pod[1], "", outside, OUTSIDE[family], family, wait=wait) for family in (4, 6))

        with running([*OVERLAY, "run", *options, "--resync", "0.5", "--variant", "legacy"], "ready"):
            assert asks()
            ip("netns", "exec", name, "ip6tables-legacy", "-w", "60", "-t", "nat", "-F", "KPROXY-POSTRTG")
            eventually(lambda: asks(1))  # drift is mended by itself
            put_node(api, node_object(3))
            eventually(lambda: "10.244.2.0/23" in forwarded(name))  # the pods of node 2 and of the new node
            # The Node's addresses come after its podCIDRs, and with them its routes.
            eventually(lambda: "10.244.3.0/24" in ip("-n", name, "route"))
            eventually(lambda: "fd00:10:244:3::/64" in ip("-n", name, "-6", "route"))
        assert asks(), "pods go on while the overlay is started anew"
        told = subprocess.run([*checking, "--variant", "legacy"], capture_output=True, text=True, check=False)
        assert (told.returncode, json.loads(told.stdout)["drift"]) == (0, [])
        told = subprocess.run([*checking, "--variant", "nft"], capture_output=True, text=True, check=False)
        kinds = [item["kind"] for item in json.loads(told.stdout)["drift"]]
        assert (told.returncode, sorted(kinds)) == (1, ["missing"] * 4 + ["unexpected"] * 4)
        cleanup = [*OVERLAY, "cleanup", "--netns", name]
        done = subprocess.run(cleanup, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
        assert "removed iptables-legacy IPv6 nat KPROXY-POSTRTG" in done.stdout
        assert "removed link kproxy.1 " in done.stdout
        assert "KPROXY" not in ip("netns", "exec", name, "iptables-legacy-save")
        assert "kproxy" not in ip("-n", name, "link")
        done = subprocess.run(cleanup, capture_output=True, text=True, check=False)
        assert (done.returncode, done.stdout) == (0, "there is no overlay\n")


def forwarded(name: str) -> str:
    return ip("netns", "exec", name, "iptables-legacy-save", "-t", "filter")


@pytest.mark.parametrize(
    ("option", "told"),
    [
        (["--cluster-cidr", "10.244.0.0/16,nonsense"], "'nonsense' is not a CIDR"),
        (["--variant", "ipset"], "--variant"),
    ],
)
def test_options_that_are_wrong_are_named(option: list[str], told: str) -> None:
    done = subprocess.run(
        [*OVERLAY, "run", "--node", "node-1", *option], capture_output=True, text=True, check=False
    )  # fmt: skip
    assert done.returncode == 2
    assert told in done.stderr
    assert "Traceback" not in done.stderr


def set_underlay_mtu(network: Network, number: int, mtu: int) -> None:
    """Both ends of a node's cable."""
    ip("-n", network.names[f"n{number}"], "link", "set", "eth0", "mtu", str(mtu))
    ip("-n", network.fabric, "link", "set", f"n{number}", "mtu", str(mtu))


def mtus(network: Network, number: int) -> dict[str, int]:
    """The MTUs of a node's VXLAN devices."""
    found = json.loads(ip("-n", network.names[f"n{number}"], "-json", "link", "show", "type", "vxlan"))
    return {item["ifname"]: item["mtu"] for item in found}


def test_a_kernel_without_vxlan_is_reported_once_and_host_gw_still_works(network: Network, api: Api) -> None:
    for number in (1, 2, 3):
        put_node(api, node_object(number, (4,)))
    options = [*options_of(api, network, 1), "--once"]
    refused = subprocess.run(
        [sys.executable, "-c", WITHOUT_VXLAN, "overlay", "run", *options],
        capture_output=True,
        text=True,
        check=False,
    )
    assert refused.returncode == 1
    lines = [line for line in refused.stderr.splitlines() if "kproxy.1" in line and "cannot" in line]
    assert len(lines) == 1, refused.stderr
    assert "is its module (vxlan) there? host-gw does without" in lines[0]
    assert "is not there" not in refused.stderr, "what would be on the device is not told of as well"
    assert "Traceback" not in refused.stderr
    other = [sys.executable, "-c", WITHOUT_VXLAN, "overlay", "run", *options, "--backend", "host-gw"]
    assert subprocess.run(other, check=False).returncode == 0
    assert "10.244.2.0/24 via 192.168.9.2" in ip("-n", network.names["n1"], "route")
