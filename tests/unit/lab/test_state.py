"""A lab's plan, its directory, and what is left of it."""

from __future__ import annotations

import ipaddress
import os
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from kproxy.lab import network
from kproxy.lab.errors import LabError, LabInputError
from kproxy.lab.lifecycle import down, processes
from kproxy.lab.spec import MAX_NODES, SERVICE_RANGES, LabSpec, check_name, node_number
from kproxy.lab.state import LabDirectory, LabRecord, lab_root, list_labs


def test_the_directory_of_a_lab(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KPROXY_LAB_DIR", str(tmp_path))
    lab = LabDirectory("one", tmp_path)
    with pytest.raises(LabInputError, match="there is no lab 'one'"):
        lab.running()
    lab.write(LabRecord(LabSpec("one"), "starting"))
    with pytest.raises(LabError, match="it was left starting"):
        lab.running()
    with lab.locked(), pytest.raises(LabError, match="another command"), LabDirectory("one", tmp_path).locked():
        pass
    lab.write(LabRecord(LabSpec("one", 2, "dual", "legacy"), "up", 7, (1, 2)))
    assert lab.running().spec.families == (4, 6)
    assert [item.name for item in list_labs()] == ["one"]
    (lab.path / "lab.json").write_text('{"spec"')
    assert lab.record() is None
    lab.remove()
    assert list_labs() == []


def test_a_lock_that_is_held_a_moment_is_waited_for(tmp_path: Path) -> None:
    """As by a child of a killed command, until it executes its program."""
    lab, done = LabDirectory("one", tmp_path), threading.Event()

    def hold() -> None:
        with LabDirectory("one", tmp_path).locked():
            held.set()
            done.wait(0.2)

    held = threading.Event()
    holder = threading.Thread(target=hold)
    holder.start()
    held.wait()
    with lab.locked():
        pass
    holder.join()


def test_a_lab_directory_is_absolute(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("KPROXY_LAB_DIR", "rel dir")
    assert lab_root() == tmp_path / "rel dir"


@pytest.mark.parametrize("family", ["ipv4", "ipv6", "dual"])
def test_no_address_is_given_twice_and_no_ranges_overlap(family: str) -> None:
    spec = LabSpec("a", MAX_NODES, family)  # type: ignore[arg-type]
    plans = list(spec.node_plans())
    addresses = [a for plan in plans for a in plan.addresses] + [*spec.gateways, *spec.client_addresses]
    assert len(set(addresses)) == len(addresses)
    networks = [ipaddress.ip_network(cidr) for plan in plans for cidr in plan.pod_cidrs]
    networks += [ipaddress.ip_network(SERVICE_RANGES[item]) for item in spec.families]
    for place, one in enumerate(networks):
        for other in networks[place + 1 :]:
            assert one.version != other.version or not one.overlaps(other)
        assert not any(ipaddress.ip_address(item) in one for item in addresses)
    pools = [ipaddress.ip_network(cidr) for cidr in spec.pod_cidrs]
    assert all(any(net.version == pool.version and net.subnet_of(pool) for pool in pools)  # type: ignore[arg-type]
               for plan in plans for net in map(ipaddress.ip_network, plan.pod_cidrs))  # fmt: skip


def test_mtu_leaves_room_for_the_tunnel() -> None:
    assert LabSpec("a").pod_mtu == 1450
    assert LabSpec("a", ip_family="ipv6").pod_mtu == 1430
    assert LabSpec("a", ip_family="dual").pod_mtu == 1430
    assert LabSpec("a", backend="host-gw").pod_mtu == 1500


@pytest.mark.parametrize("name", ["", "Lab", "a-", "-a", "a_b", "a" * 17, "a/b", ".."])
def test_names_that_are_none(name: str) -> None:
    with pytest.raises(LabInputError, match="--name"):
        check_name(name)


def test_node_numbers() -> None:
    assert [node_number(text) for text in ("node-1", "node-12", "node-0", "node-01", "pod", "node-")] == [
        1, 12, None, None, None, None,
    ]  # fmt: skip


def test_each_namespace_is_of_one_lab(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Though one lab's name begins as another's, or ends as a host's."""
    monkeypatch.setattr(network, "NETNS_DIRECTORY", str(tmp_path))
    labs = ("a", "a-b", "a-node-1", "a-p", "a-client", "a-b-fabric", "0" * 16)
    uid = "8d2d2a3e-0b8c-4d0a-9c3f-0123456789ab"
    wanted = {}
    for name in labs:
        spec = LabSpec(check_name(name), nodes=2)
        wanted[name] = [
            spec.pod_namespace(uid),
            spec.client,
            spec.fabric,
            *(node.namespace for node in spec.node_plans()),
        ]
        for namespace in wanted[name]:
            (tmp_path / namespace).touch()
    for other in ("kp-lab-a", "kp-lab-a-b", "kp-lab-fabric", "kp-lab-a-node-x", "kp-lab-A-client", "other"):
        (tmp_path / other).touch()
    assert network.stray_labs() == {*labs}
    assert {name: network.lab_namespaces(name) for name in labs} == wanted
    assert network.lab_namespaces("") == []


def test_labs_of_other_directories_are_known_by_their_namespaces(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also where the directory is gone and the processes run on, as after a test run that was interrupted."""
    name = f"t{os.getpid()}"
    home = tmp_path / "labs" / name
    monkeypatch.delenv("KPROXY_LAB_DIR", raising=False)
    monkeypatch.setattr(down, "list_labs", list)
    monkeypatch.setattr(down, "stray_labs", lambda: {name, "bare"})
    command = [sys.executable, "-c", "print(flush=True); input()"]
    environment = {**os.environ, processes.LAB: str(home)}
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=environment, text=True) as begun:
        assert begun.stdout is not None
        assert begun.stdout.readline() == "\n"
        bare, found = sorted(down.all_labs(), key=lambda each: len(each.name) > 4)
        assert (found.name, found.path) == (name, home)
        assert (bare.name, str(bare.path)) == ("bare", "/run/kproxy-lab/bare")
        assert [each.pid for each in processes.find(found)] == [begun.pid]
        monkeypatch.setenv("KPROXY_LAB_DIR", str(tmp_path / "others"))
        assert down.all_labs() == []
        begun.communicate("\n")
