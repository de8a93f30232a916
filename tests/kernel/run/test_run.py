"""`kproxy run` in a namespace, against a real `kproxy apiserver`, files and the real kernel."""

from __future__ import annotations

import contextlib
import fcntl
import json
import random
import signal
import socket
import subprocess
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest

from kproxy.client import ENDPOINT_SLICES, NODES, SERVICES, RestClient
from kproxy.client.errors import ApiError
from kproxy.linux.namespace import Namespace
from kproxy.netfilter.hooks import Variant
from kproxy.services import IPFamily
from tests.support import paths
from tests.support.examples import spread
from tests.support.kernel.agent_runs import (
    NODE,
    Server,
    difference,
    node,
    piece,
    put,
    running_agent,
    running_server,
    service,
)
from tests.support.kernel.namespaces import fresh_namespace, run
from tests.support.waiting import PATIENCE, eventually

pytestmark = pytest.mark.root

FAST = ("--iptables-min-sync-period", "10ms", "--iptables-sync-period", "1s", "--cluster-cidr", "10.244.0.0/16")


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Server]:
    with running_server(tmp_path) as found:
        yield found


@pytest.fixture
def client(server: Server) -> RestClient:
    client = server.client()
    put(client, NODES, node())
    put(client, SERVICES, service("web"))
    put(client, ENDPOINT_SLICES, piece("web", "10.244.0.5", "10.244.0.6"))
    return client


@pytest.fixture
def namespace() -> Iterator[str]:
    with fresh_namespace() as name:
        yield name


def arguments(server: Server, namespace: str, variant: str = "nft") -> tuple[str, ...]:
    target = ("--kubeconfig", str(server.kubeconfig), "--node", NODE, "--netns", namespace, "--variant", variant)
    return (*target, *FAST)


@pytest.mark.parametrize("variant", spread(list(Variant), 1, 1), ids=lambda variant: variant.value)
def test_follows_the_server_and_mends_what_others_do(
    server: Server, client: RestClient, namespace: str, tmp_path: Path, variant: Variant
) -> None:
    def right() -> bool:
        return not any(difference(client, namespace, family, variant) for family in IPFamily)

    def told(repairs: int) -> bool:
        return agent.said().count("drift repaired") == repairs

    with running_agent(tmp_path, *arguments(server, namespace, variant.value)) as agent:
        eventually(right, what=agent.said)
        put(client, ENDPOINT_SLICES, piece("web", "10.244.0.7"))
        put(client, SERVICES, service("dns", 53, "UDP"))
        put(client, ENDPOINT_SLICES, piece("dns", "10.244.0.8", protocol="UDP"))
        eventually(right, what=agent.said)
        client.delete(SERVICES, "web", "default")
        put(client, NODES, node("b"))
        eventually(right, what=agent.said)

        iptables = f"iptables-{variant.value}"
        kinds_of_damage = [
            (iptables, "-t", "nat", "-F"),
            (iptables, "-t", "nat", "-D", "KUBE-POSTROUTING", "1"),
            (iptables, "-D", "INPUT", "1"),
            (iptables, "-t", "nat", "-X", "KUBE-PROXY-CANARY"),
            (iptables, "-t", "nat", "-I", "KUBE-SERVICES", "-j", "RETURN"),
        ]
        if variant is Variant.NFT:
            kinds_of_damage.append(("nft", "add table ip nat { flags dormant ; }"))
        for repairs, damage in enumerate(kinds_of_damage):
            run(*damage, namespace=namespace)
            # Not `not right()`: the proxy may have mended it by now. A told repair proves that there was damage.
            eventually(partial(told, repairs + 1), what=agent.said)
            eventually(right, what=agent.said)
        assert agent.stop() == 0
    assert right(), "SIGTERM leaves the rules"
    # With nobody left who mends them, the damage stays, and is seen.
    for damage in reversed(kinds_of_damage):
        run(*damage, namespace=namespace)
        assert not right(), damage


def test_a_server_that_is_killed_and_comes_back(
    server: Server, client: RestClient, namespace: str, tmp_path: Path
) -> None:
    with running_agent(tmp_path, *arguments(server, namespace)) as agent:
        eventually(lambda: not difference(client, namespace, IPFamily.IPV4, Variant.NFT), what=agent.said)
        server.stop(signal.SIGKILL)
        run("iptables-nft", "-t", "nat", "-F", namespace=namespace)
        server.start()
        client = server.client()
        client.delete(ENDPOINT_SLICES, "web-x", "default")
        put(client, SERVICES, service("late"))
        eventually(lambda: not difference(client, namespace, IPFamily.IPV4, Variant.NFT), what=agent.said)
        assert agent.stop(signal.SIGINT) == 0


@pytest.mark.parametrize("variant", spread(list(Variant), 1, 1), ids=lambda variant: variant.value)
def test_rules_are_kept_whatever_becomes_of_the_node_in_mode_node_cidr(
    server: Server, client: RestClient, namespace: str, tmp_path: Path, variant: Variant
) -> None:
    """Health is red while the pod CIDR is waited for, and green as long as rules are kept, the Node there or not."""
    run("ip", "link", "set", "lo", "up", namespace=namespace)
    client.delete(NODES, NODE)

    def health(path: str) -> tuple[int, str]:
        """Status and reason; 0 while nobody listens."""
        with Namespace.named(namespace) as entered:
            try:
                answer = entered.call(urllib.request.urlopen, f"http://127.0.0.1:10256/{path}", None, 10.0)
            except urllib.error.HTTPError as error:
                return error.code, json.load(error)["reason"]
            except OSError:
                return 0, ""
        return answer.status, json.load(answer).get("reason", "")

    def rules() -> str:
        return run(f"iptables-{variant.value}-save", "-t", "nat", namespace=namespace)

    def sends(cidr: str, ip: str) -> bool:
        return f"! -s {cidr} " in rules() and f"{ip}:8080" in rules()

    options = (*arguments(server, namespace, variant.value)[:-2], "--detect-local-mode", "NodeCIDR")
    with running_agent(tmp_path, *options) as agent:
        waiting = f"nothing is programmed yet, waiting for the pod CIDR of Node {NODE}, for detect-local mode NodeCIDR"
        eventually(lambda: health("healthz") == (503, waiting), what=agent.said)
        assert health("livez") == (503, waiting)
        put(client, NODES, node())
        eventually(lambda: sends("10.244.0.0/24", "10.244.0.5"), what=agent.said)
        eventually(lambda: health("healthz") == (200, ""), what=agent.said)
        client.delete(NODES, NODE)
        eventually(lambda: "the Node is gone" in agent.said(), what=agent.said)
        put(client, ENDPOINT_SLICES, piece("web", "10.244.0.7"))
        eventually(lambda: sends("10.244.0.0/24", "10.244.0.7"), what=agent.said)
        assert "10.244.0.5" not in rules()
        put(client, NODES, {"metadata": {"name": NODE}})
        eventually(lambda: "the Node has lost this" in agent.said(), what=agent.said)
        put(client, ENDPOINT_SLICES, piece("web", "10.244.0.8"))
        eventually(lambda: sends("10.244.0.0/24", "10.244.0.8"), what=agent.said)
        assert (health("healthz"), health("livez")) == ((200, ""), (200, ""))
        other = {"podCIDR": "10.244.9.0/24", "podCIDRs": ["10.244.9.0/24"]}
        put(client, NODES, {**node(), "spec": other})
        eventually(lambda: sends("10.244.9.0/24", "10.244.0.8"), what=agent.said)
        assert "10.244.0.0/24" not in rules()
        assert agent.stop() == 0


def test_waits_for_the_server_and_starts_over_a_node_that_has_rules(
    server: Server, client: RestClient, namespace: str, tmp_path: Path
) -> None:
    with running_agent(tmp_path, *arguments(server, namespace)) as agent:
        eventually(lambda: not difference(client, namespace, IPFamily.IPV4, Variant.NFT), what=agent.said)
        agent.stop(signal.SIGKILL)
    put(client, ENDPOINT_SLICES, piece("web", "10.244.0.9"))
    server.stop()
    with running_agent(tmp_path, *arguments(server, namespace)) as agent:
        eventually(lambda: "list or watch failed" in agent.said(), what=agent.said)
        assert "synced" not in agent.said()
        server.start()
        client = server.client()
        eventually(lambda: not difference(client, namespace, IPFamily.IPV4, Variant.NFT), what=agent.said)
        assert agent.stop(signal.SIGHUP) == 129


def test_a_lock_that_is_held_delays_and_loses_nothing(
    server: Server, client: RestClient, namespace: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lock = tmp_path / "xtables.lock"
    monkeypatch.setenv("XTABLES_LOCKFILE", str(lock))
    options = (*arguments(server, namespace, "legacy"), "--lock-wait", "1")
    with running_agent(tmp_path, *options) as agent:
        eventually(lambda: not difference(client, namespace, IPFamily.IPV4, Variant.LEGACY), what=agent.said)
        with lock.open("w") as held:
            fcntl.flock(held, fcntl.LOCK_EX)
            put(client, ENDPOINT_SLICES, piece("web", "10.244.0.11"))
            put(client, SERVICES, service("new"))
            eventually(lambda: agent.said().count("sync failed") >= 3, what=agent.said)
        eventually(lambda: not difference(client, namespace, IPFamily.IPV4, Variant.LEGACY), what=agent.said)
        assert agent.stop() == 0
    retries = [float(text.split()[0]) for text in agent.said().split(" retryIn=")[1:]]
    assert max(retries) <= 0.2, "who waited in vain goes on waiting: not a moment after the release is lost"


@pytest.mark.parametrize("variant", spread(["auto", "nft"], 1, 1))
def test_nft_needs_no_lock(
    server: Server, client: RestClient, namespace: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, variant: str
) -> None:
    """Held from before the start to the end by a process of this very namespace, which may be making legacy tables."""
    lock = tmp_path / "xtables.lock"
    monkeypatch.setenv("XTABLES_LOCKFILE", str(lock))
    run("iptables-legacy", "-w", "-t", "nat", "-L", namespace=namespace)
    holding = [
        "ip",
        "netns",
        "exec",
        namespace,
        "flock",
        "--no-fork",
        str(lock),
        "sh",
        "-c",
        "echo held; exec sleep 600",
    ]
    with subprocess.Popen(holding, stdout=subprocess.PIPE, text=True) as holder:
        try:
            assert holder.stdout is not None
            assert holder.stdout.readline() == "held\n"
            options = (*arguments(server, namespace, variant), "--lock-wait", "1")
            with running_agent(tmp_path, *options) as agent:
                eventually(lambda: not difference(client, namespace, IPFamily.IPV4, Variant.NFT), what=agent.said)
                put(client, ENDPOINT_SLICES, piece("web", "10.244.0.11"))
                put(client, SERVICES, service("new"))
                eventually(lambda: not difference(client, namespace, IPFamily.IPV4, Variant.NFT), what=agent.said)
                assert "failed" not in agent.said()
                assert "cannot be programmed" not in agent.said()
                assert agent.stop() == 0
        finally:
            holder.kill()


def test_files_are_followed(namespace: str, tmp_path: Path) -> None:
    manifests = tmp_path / "manifests"
    manifests.mkdir()

    def write(name: str, *objects: tuple[str, str, dict[str, object]]) -> None:
        documents = [{"apiVersion": version, "kind": kind, **body} for version, kind, body in objects]
        (manifests / name).write_text(json.dumps({"apiVersion": "v1", "kind": "List", "items": documents}))

    def rules() -> str:
        return run("iptables-nft-save", "-t", "nat", namespace=namespace)

    web = service("web", clusterIP="10.96.0.9", clusterIPs=["10.96.0.9"])

    def write_web(ip: str) -> None:
        write("web.json", ("v1", "Service", web), ("discovery.k8s.io/v1", "EndpointSlice", piece("web", ip)))

    write("node.json", ("v1", "Node", node()))
    write_web("10.244.0.5")
    options = ("-f", str(manifests), "--netns", namespace, "--variant", "nft", *FAST)
    with running_agent(tmp_path, *options) as agent:
        eventually(lambda: "10.244.0.5:8080" in rules(), what=agent.said)
        (manifests / "web.json").write_text("{ half")
        eventually(lambda: "manifests not taken" in agent.said(), what=agent.said)
        assert "10.244.0.5:8080" in rules()
        write_web("10.244.0.6")
        eventually(lambda: "10.244.0.6:8080" in rules(), what=agent.said)
        assert "10.244.0.5:8080" not in rules()
        (manifests / "web.json").unlink()
        eventually(lambda: "10.244.0.6:8080" not in rules(), what=agent.said)
        assert agent.stop() == 0


def test_once_init_only_cleanup_and_a_changed_configuration(namespace: str, tmp_path: Path) -> None:
    cluster = paths.ROOT / "rules_golden" / "minikube"
    target = ("--netns", namespace, "--variant", "nft")
    with running_agent(tmp_path, "--init-only", *target) as agent:
        assert agent.process.wait(PATIENCE) == 0
    assert "KUBE" not in run("iptables-nft-save", namespace=namespace)
    assert run("cat", "/proc/sys/net/ipv4/conf/all/route_localnet", namespace=namespace).strip() == "1"
    with running_agent(tmp_path, "-f", str(cluster / "cluster.yaml"), "--once", *target) as agent:
        assert agent.process.wait(PATIENCE) == 0, agent.said()
    assert "KUBE-SVC-HW2XM7FRY33HEVYM" in run("iptables-nft-save", namespace=namespace)
    config = tmp_path / "config.yaml"
    config.write_text((cluster / "config.yaml").read_text())
    options = ("-f", str(cluster / "cluster.yaml"), "--config", str(config), *target)
    with running_agent(tmp_path, *options) as agent:
        eventually(lambda: 'synced family="IPv4"' in agent.said(), what=agent.said)
        config.write_text(config.read_text() + "\n# changed\n")
        assert agent.process.wait(PATIENCE) == 1, "as kube-proxy: whatever started it starts it again"
    assert "KUBE-SVC-HW2XM7FRY33HEVYM" in run("iptables-nft-save", namespace=namespace)
    with running_agent(tmp_path, "--cleanup", *target) as agent:
        assert agent.process.wait(PATIENCE) == 0, agent.said()
    assert "KUBE" not in run("iptables-nft-save", namespace=namespace)


def test_once_that_is_ended_early_is_no_success(namespace: str, tmp_path: Path) -> None:
    with socket.socket() as nobody:
        nobody.bind(("127.0.0.1", 0))
        master = f"http://127.0.0.1:{nobody.getsockname()[1]}"
        with running_agent(tmp_path, "--master", master, "--netns", namespace, "--node", NODE, "--once") as agent:
            eventually(lambda: "list or watch failed" in agent.said(), what=agent.said)
            assert agent.stop() == 128 + signal.SIGTERM
    assert "KUBE-SERVICES" not in run("iptables-nft-save", namespace=namespace)


@pytest.mark.parametrize("seed", spread(range(3), 0, 1))
def test_random_faults_against_the_real_kernel(server: Server, namespace: str, tmp_path: Path, seed: int) -> None:
    rng = random.Random(seed)
    variant = rng.choice(list(Variant))
    client = server.client()
    put(client, NODES, node())
    with contextlib.ExitStack() as stack:
        agent = stack.enter_context(running_agent(tmp_path, *arguments(server, namespace, variant.value)))
        for _ in range(60):
            what = rng.random()
            name = f"s{rng.randrange(6)}"
            if what < 0.4:
                ips = [f"10.244.0.{rng.randrange(1, 250)}" for _ in range(rng.randrange(4))]
                put(client, ENDPOINT_SLICES, piece(name, *dict.fromkeys(ips)))
            elif what < 0.7:
                put(client, SERVICES, service(name, rng.randrange(1, 1000)))
            elif what < 0.8:
                with contextlib.suppress(ApiError):
                    client.delete(SERVICES, name, "default")
            elif what < 0.9:
                table = rng.choice(("nat", "filter", "mangle"))
                run(f"iptables-{variant.value}", "-w", "-t", table, "-F", namespace=namespace)
            elif what < 0.94:
                agent.stop(signal.SIGKILL)
                agent = stack.enter_context(running_agent(tmp_path, *arguments(server, namespace, variant.value)))
            elif what < 0.98:
                server.stop(rng.choice((signal.SIGKILL, signal.SIGTERM)))
                server.start()
                client = server.client()
            time.sleep(rng.choice((0.0, 0.02, 0.3)))
        eventually(
            lambda: not any(difference(client, namespace, family, variant) for family in IPFamily), 120.0, agent.said
        )
        assert agent.stop() == 0


def test_traffic_follows_what_a_client_writes(
    server: Server, client: RestClient, namespace: str, tmp_path: Path
) -> None:
    """Two endpoints on addresses of the namespace's loopback interface; each says who it is."""
    ips = ("10.244.0.5", "10.244.0.6")
    run("ip", "link", "set", "lo", "up", namespace=namespace)
    run("ip", "route", "add", "default", "dev", "lo", namespace=namespace)
    for ip in ips:
        run("ip", "address", "add", f"{ip}/32", "dev", "lo", namespace=namespace)
    put(client, ENDPOINT_SLICES, piece("web", ips[0]))
    cluster_ip = client.get(SERVICES, "web", "default").spec.cluster_ip
    with contextlib.ExitStack() as stack:
        entered = stack.enter_context(Namespace.named(namespace))
        for ip in ips:
            listener = stack.enter_context(entered.call(socket.create_server, (ip, 8080)))
            threading.Thread(target=_answer, args=(listener, ip), daemon=True).start()

        def answers() -> str:
            try:
                with entered.call(socket.create_connection, (cluster_ip, 80), 2.0) as connection:
                    return connection.recv(100).decode()
            except OSError as error:
                return type(error).__name__

        agent = stack.enter_context(running_agent(tmp_path, *arguments(server, namespace)))
        eventually(lambda: answers() == ips[0], what=agent.said)
        put(client, ENDPOINT_SLICES, piece("web", ips[1]))
        eventually(lambda: answers() == ips[1], what=agent.said)
        put(client, ENDPOINT_SLICES, piece("web", *ips))
        eventually(lambda: {answers() for _ in range(20)} == set(ips), what=agent.said)
        put(client, ENDPOINT_SLICES, piece("web"))
        # Over a loopback interface a REJECT is not answered; on a real one the client is refused at once.
        eventually(lambda: answers() in ("ConnectionRefusedError", "TimeoutError"), what=agent.said)
        assert agent.stop() == 0


def _answer(listener: socket.socket, name: str) -> None:
    with contextlib.suppress(OSError):
        while True:
            connection, _ = listener.accept()
            with connection:
                connection.sendall(name.encode())
