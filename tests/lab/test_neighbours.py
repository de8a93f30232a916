"""Traces over links that are down: what the hosts' kernels know of their neighbours decides what is seen where."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator, Sequence
from typing import Any

import pytest

from tests.support.lab.labtools import Lab, deployment, lab_up, service

pytestmark = [pytest.mark.root, pytest.mark.slow]
DOWN = "node-3"


@pytest.fixture(scope="module", params=["vxlan", pytest.param("host-gw", marks=pytest.mark.soak)])
def lab(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lab]:
    """A lab whose node-3 has lost its cable, with a pod behind it that is still an endpoint of a Service."""
    backend = request.param
    family = "ipv4" if backend == "vxlan" else "dual"
    with lab_up(tmp_path_factory.mktemp("labs"), "--backend", backend, "--ip-family", family) as lab:
        lab.apply(deployment("far", 1, node=DOWN), deployment("near", 1, node="node-1"))
        lab.settled(lambda found: all(any(pod.ready for pod in found.pods if name in pod.name) for name in NAMES))
        apply_slice(lab, family)
        ask_faster(lab)
        lab.run("fail", "link", DOWN)
        yield lab


NAMES = ("far", "near")


def apply_slice(lab: Lab, family: str) -> None:
    """A Service whose endpoint is the far pod, whatever becomes of it."""
    addresses = next(pod.addresses for pod in lab.cluster().pods if "far" in pod.name)
    exposed = service("far", "", type="NodePort", ipFamilyPolicy="RequireDualStack" if family == "dual" else None)
    del exposed["spec"]["selector"]
    slices = [
        {
            "apiVersion": "discovery.k8s.io/v1",
            "kind": "EndpointSlice",
            "metadata": {"name": f"far-{n}", "namespace": "default", "labels": {"kubernetes.io/service-name": "far"}},
            "addressType": "IPv6" if ":" in address else "IPv4",
            "ports": [{"name": "tcp80", "port": 8080, "protocol": "TCP"}],
            "endpoints": [{"addresses": [address]}],
        }
        for n, address in enumerate(addresses)
    ]
    lab.apply(exposed, *slices)
    lab.settled(lambda found: len(found.service("far").ports[0].endpoints) == len(addresses))


def ask_faster(lab: Lab) -> None:
    """A kernel gives up a neighbour after three questions; here they follow faster than one a second."""
    for host, device in (("fabric", "fabric"), ("node-1", "eth0"), ("node-2", "eth0"), (DOWN, "eth0")):
        for version in ("ipv4", "ipv6"):
            setting = f"net.{version}.neigh.{device}.retrans_time_ms=100"
            subprocess.run(
                ["ip", "netns", "exec", f"kp-lab-{lab.name}-{host}", "sysctl", "-qw", setting], check=True, timeout=60
            )


def neighbours(lab: Lab, *command: str) -> None:
    """Changes what every host that lives knows of node-3."""
    cluster = lab.cluster()
    for host, device in (("fabric", "fabric"), ("node-1", "eth0"), ("node-2", "eth0")):
        for address in cluster.node(DOWN).addresses:
            words = ["ip", "-n", f"kp-lab-{lab.name}-{host}", "neigh", command[0], address, *command[1:]]
            done = subprocess.run([*words, "dev", device], capture_output=True, text=True, check=False)
            assert done.returncode == 0 or "No such file" in done.stderr, done.stderr


def trace(lab: Lab, *arguments: str) -> dict[str, Any]:
    done = lab.call("trace", *arguments, "-o", "json", "--timeout", "0.5")
    assert done.returncode in (0, 1), done.stderr
    found: dict[str, Any] = json.loads(done.stdout)
    shown = json.dumps({name: found[name] for name in ("journeys", "answer", "hops")}, indent=1)
    assert done.returncode == 0, shown
    assert found["agrees"]
    assert not found["open"]
    return found


def ends(found: dict[str, Any]) -> set[str]:
    return {item["end"] for item in found["journeys"]}


def places(found: dict[str, Any]) -> set[tuple[str, str, str]]:
    return {(hop["host"], hop["device"], hop["direction"]) for hop in found["hops"] if hop["captured"]}


def errors(found: dict[str, Any]) -> Sequence[str]:
    return [hop["captured"] for hop in found["hops"] if hop["captured"].startswith("icmp")]


def families(lab: Lab) -> list[str]:
    return ["-4", "-6"] if lab.cluster().ip_family == "dual" else ["-4"]


def test_a_host_that_does_not_know_the_neighbour_asks_in_vain_and_reports_it(lab: Lab) -> None:
    neighbours(lab, "del")
    tunnel = lab.cluster().backend == "vxlan"
    for option in families(lab):
        code = "icmp 3/1" if option == "-4" else "icmp 1/3"
        # The sender is on the host that asks: nothing leaves it.
        found = trace(lab, "--from", "node-1", "--to", f"pod/{key(lab, 'far')}:8080", option)
        assert ends(found) == {"lost" if tunnel else "unreachable"}
        assert not any(device == "eth0" for _host, device, _way in places(found))
        assert found["answer"]["end"] == ("lost" if tunnel else "unreachable")
        # The sender is a pod: its node tells it, but of what waited in a tunnel nobody is told.
        found = trace(lab, "--from", key(lab, "near"), "--to", f"pod/{key(lab, 'far')}:8080", option)
        assert ("node-1", "eth0", "out") not in places(found)
        assert [text.startswith(code) for text in errors(found)] == ([] if tunnel else [True, True])
        # From outside over the fabric, and over a node that masquerades.
        found = trace(lab, "--from", "client", "--to", f"nodeport/far@{DOWN}", option)
        assert ends(found) == {"unreachable"}
        assert [text.startswith(code) for text in errors(found)] == [True, True]
        assert ("fabric", "fabric", "out") not in places(found)
        found = trace(lab, "--from", "client", "--to", "nodeport/far@node-1", option)
        assert ends(found) == {"lost" if tunnel else "unreachable"}
        # node-1 out, the fabric in and out, the client in.
        assert [text.startswith(code) for text in errors(found)] == ([] if tunnel else [True] * 4)


def test_a_host_that_takes_the_neighbour_for_known_sends_and_the_packet_is_lost(lab: Lab) -> None:
    neighbours(lab, "replace", "lladdr", "02:00:00:00:00:03", "nud", "permanent")
    try:
        for option in families(lab):
            for source, target in (
                ("node-1", f"pod/{key(lab, 'far')}:8080"),
                (key(lab, "near"), f"pod/{key(lab, 'far')}:8080"),
                ("client", "nodeport/far@node-1"),
            ):
                found = trace(lab, "--from", source, "--to", target, option)
                assert ends(found) == {"lost"}
                assert {("node-1", "eth0", "out"), ("fabric", "fabric", "in"), ("fabric", "fabric", "out")} <= places(
                    found
                )
                assert errors(found) == []
            found = trace(lab, "--from", "client", "--to", f"nodeport/far@{DOWN}", option)
            assert ends(found) == {"lost"}
            assert ("fabric", "fabric", "out") in places(found)
    finally:
        neighbours(lab, "del")


def test_a_node_without_its_cable_sends_nothing(lab: Lab) -> None:
    tunnel = lab.cluster().backend == "vxlan"
    for option in families(lab):
        for source in (DOWN, key(lab, "far")):
            found = trace(lab, "--from", source, "--to", f"pod/{key(lab, 'near')}:8080", option)
            assert ends(found) == {"lost" if tunnel else "unreachable"}
            assert not any(host in ("fabric", "node-1") or (host, device) == (DOWN, "eth0")
                           for host, device, _way in places(found))  # fmt: skip
        assert ends(trace(lab, "--from", DOWN, "--to", f"pod/{key(lab, 'far')}:8080", option)) == {"answered"}


def key(lab: Lab, name: str) -> str:
    """The pod of a Deployment."""
    return next(pod.key for pod in lab.cluster().pods if pod.name.startswith(f"{name}-"))


def test_probe_asks_all_its_questions_and_compares_the_lost_ones(lab: Lab) -> None:
    """Of two endpoints of a Service one is behind the cable: about half of the questions are lost."""
    family = lab.cluster().ip_family
    near = next(pod.addresses[0] for pod in lab.cluster().pods if "near" in pod.name)
    far = next(pod.addresses[0] for pod in lab.cluster().pods if "far" in pod.name)
    exposed = service("half", "", ipFamilyPolicy="SingleStack")
    del exposed["spec"]["selector"]
    lab.apply(
        exposed,
        {
            "apiVersion": "discovery.k8s.io/v1",
            "kind": "EndpointSlice",
            "metadata": {"name": "half", "namespace": "default", "labels": {"kubernetes.io/service-name": "half"}},
            "addressType": "IPv4",
            "ports": [{"name": "tcp80", "port": 8080, "protocol": "TCP"}],
            "endpoints": [{"addresses": [near]}, {"addresses": [far]}],
        },
    )
    assert family in ("ipv4", "dual")
    lab.settled(lambda found: len(found.service("half").ports[0].endpoints) == 2)
    cell = lab.json("probe", "--service", "half", "--from", "node-2", "--count", "30", "--timeout", "1")["cells"][0]
    assert cell["agrees"]
    seen = {item["end"]: item["count"] for item in cell["seen"]}
    assert sum(seen.values()) == 30
    assert seen["answered"] > 0
    assert sum(count for end, count in seen.items() if end in ("lost", "unreachable")) > 0
    text = lab.run("probe", "--service", "half", "--from", "node-2", "--count", "30", "--timeout", "1")
    assert " of 30" in text
    assert "50%" in text
