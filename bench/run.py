"""`kproxy run` from an API server, both modes (iptables-nft): start to rules, one change, a rolling update, idle cost.

Server, agent and this process share the machine's cores, as the reference's did. The start is from the process's first
instruction until iptables-restore or nft has ended, and until the first sync has. A change is timed from the server's
answer to the kernel's commit, which netfilter itself announces (NFT_MSG_NEWGEN); afterwards the kernel's rules are
compared with a fresh rendering of the server's objects.
"""

from __future__ import annotations

import asyncio
import json
import os
import re
import select
import signal
import socket
import statistics
import struct
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from bench.apiserver import Client, Connect, resident, server
from bench.generate import cluster_lines, endpoint_ip, endpoint_slice, service
from bench.report import fresh_namespace, show
from kproxy.client import RestClient, load_client_config
from kproxy.client.cluster import read_objects

SIZE = (2000, 5)
STARTS = 3
CHANGES = 60
QUIET = 0.2
"""Seconds without a commit after which a change has come to its end: iptables-nft commits more than once."""
ROLLING = 200
ROLLING_SERVICE = 9000
IDLE_SECONDS = 40
SETTLE_SECONDS = 33
"""After a change, the check of the next sync period still has to read everything once."""
MODES = ("iptables", "nftables")
TARGETS = {
    "iptables": {"written": "< 3 s", "median": "< 60 ms", "worst": "< 250 ms", "idle": "< 1 %"},
    "nftables": {"written": "", "median": "< 20 ms", "worst": "", "idle": ""},
}
REFERENCE = {"start": 7.0, "change": 0.227, "resident": 119}
"""kube-proxy v1.36.2 on such a machine: seconds, seconds (minSyncPeriod 1ms, median), megabytes."""

VARIANT = {"iptables": ["--variant", "nft"], "nftables": []}

SLICES = "/apis/discovery.k8s.io/v1/namespaces/bench/endpointslices"


class Commits:
    """The nf_tables commits of a namespace as the kernel announces them."""

    def __init__(self, namespace: str) -> None:
        from kproxy.linux.namespace import Namespace

        with Namespace.named(namespace) as entered:
            self._socket = entered.call(socket.socket, socket.AF_NETLINK, socket.SOCK_RAW, 12)
        self._socket.bind((0, 0))
        self._socket.setsockopt(socket.SOL_SOCKET, 33, 64 << 20)  # SO_RCVBUFFORCE
        self._socket.setsockopt(270, 1, 7)  # SOL_NETLINK, NETLINK_ADD_MEMBERSHIP, NFNLGRP_NFTABLES

    def wait(self, timeout: float) -> float | None:
        """When the next commit ended (perf_counter); None if there is none in time."""
        until = time.perf_counter() + timeout
        while (left := until - time.perf_counter()) > 0:
            if not select.select([self._socket], [], [], left)[0]:
                return None
            data = self._socket.recv(1 << 20)
            now = time.perf_counter()
            at = 0
            while at + 16 <= len(data):
                length, kind = struct.unpack_from("=IH", data, at)
                if kind == (10 << 8 | 15):  # NFNL_SUBSYS_NFTABLES, NFT_MSG_NEWGEN
                    return now
                at += (length + 3) & ~3
        return None

    def last(self, timeout: float, quiet: float) -> float | None:
        """When the last of the next commits ended, once there has been none for `quiet` seconds."""
        found = None
        while (when := self.wait(timeout if found is None else quiet)) is not None:
            found = when
        return found

    def drain(self) -> int:
        """Forgets what has come; how many commits that were."""
        count = 0
        while self.wait(0.0001) is not None:
            count += 1
        return count

    def close(self) -> None:
        self._socket.close()


def write_config(path: Path, **fields: object) -> None:
    """A configuration of kube-proxy's, with what all here have in common."""
    kind = {"apiVersion": "kubeproxy.config.k8s.io/v1alpha1", "kind": "KubeProxyConfiguration"}
    path.write_text(json.dumps({**kind, "clusterCIDR": "10.0.0.0/8", **fields}))


class Agent:
    """A running `kproxy run`, and what its log says."""

    def __init__(self, mode: str, kubeconfig: Path, namespace: str, directory: Path) -> None:
        self.log = directory / f"{namespace}.log"
        config = directory / f"{mode}.json"
        write_config(
            config,
            mode=mode,
            clientConnection={"kubeconfig": str(kubeconfig)},
            healthzBindAddress="127.0.0.1:20256",
            metricsBindAddress="127.0.0.1:20249",
            **{mode: {"minSyncPeriod": "1ms"}},
        )
        command = [sys.executable, "-m", "kproxy", "run", "--config", str(config), "--node", "node-0"]
        command += ["--netns", namespace, *VARIANT[mode]]
        self.started = time.perf_counter()
        with self.log.open("w") as log:
            self.process = subprocess.Popen(command, stderr=log, stdout=subprocess.DEVNULL)

    def wait_synced(self) -> tuple[float, float]:
        """Seconds from the start until IPv4's rules are in the kernel, and until both families' syncs have ended."""
        while True:
            text = self.log.read_text()
            if len(set(re.findall(r'synced family="(IPv[46])"', text))) == 2:
                done = time.perf_counter() - self.started
                steps = json.loads(re.findall(r'synced family="IPv4".*steps=({.*})', text)[0])
                return done - sum(steps.get(step, 0.0) for step in ("conntrack",)), done
            if self.process.poll() is not None or time.perf_counter() - self.started > 120:
                raise RuntimeError(f"kproxy run did not sync:\n{text[-2000:]}")
            time.sleep(0.005)

    @property
    def syncs(self) -> int:
        return self.log.read_text().count('synced family="IPv4"')

    def cpu(self) -> float:
        """Seconds of CPU so far, child processes included."""
        fields = Path(f"/proc/{self.process.pid}/stat").read_text().rpartition(")")[2].split()
        return sum(map(int, fields[11:15])) / os.sysconf("SC_CLK_TCK")

    def stop(self) -> None:
        self.process.send_signal(signal.SIGTERM)
        self.process.wait(60)


async def load(connect: Connect) -> None:
    """Creates the cluster."""
    client = await connect()
    await client.request("POST", "/api/v1/namespaces", json.dumps({"metadata": {"name": "bench"}}).encode())
    paths = {"Node": "/api/v1/nodes", "Service": "/api/v1/namespaces/bench/services", "EndpointSlice": SLICES}
    lines = iter([*cluster_lines(*SIZE), json.dumps(service(ROLLING_SERVICE)), *map(json.dumps, rolling_slices())])

    async def work() -> None:
        connection = await connect()
        for line in lines:
            body = json.loads(line)
            if body["kind"] == "Service":  # the server chooses cluster IPs
                del body["spec"]["clusterIP"], body["spec"]["clusterIPs"]
            await connection.request("POST", paths[body["kind"]], json.dumps(body).encode())
        connection.close()

    await asyncio.gather(*(work() for _ in range(8)))
    client.close()


def rolling_slices(replaced: int = 0) -> list[dict[str, object]]:
    """The two slices of a Service with 200 endpoints, the first `replaced` of which are new."""
    ips = [f"10.200.{int(index < replaced)}.{index + 1}" for index in range(ROLLING)]
    found = []
    for number in range(2):
        each = endpoint_slice(ROLLING_SERVICE, ips[number * 100 : number * 100 + 100])
        each["metadata"]["name"] = f"svc-{ROLLING_SERVICE}-{number}"
        found.append(each)
    return found


async def one_change(client: Client, commits: Commits, number: int) -> float:
    """Seconds from the server's answer to the kernel's commit, for one slice that gets another endpoint."""
    ips = [endpoint_ip(number, index) for index in range(SIZE[1] - 1)]
    body = endpoint_slice(number, [*ips, f"10.99.{number >> 8}.{number & 255}"])
    commits.drain()
    # The kernel may be quicker than the answer's way here.
    await client.request("PUT", f"{SLICES}/svc-{number}-x", json.dumps(body).encode())
    accepted = time.perf_counter()
    committed = await asyncio.to_thread(commits.last, 10.0, QUIET)
    if committed is None:
        raise RuntimeError("a change did not come to the kernel within 10 s")
    return max(0.0, committed - accepted)


async def rolling_update(client: Client, commits: Commits) -> tuple[float, float, int]:
    """Replaces 200 endpoints one by one: seconds for the server, seconds until the kernel has the last, commits."""
    commits.drain()
    start = time.perf_counter()
    for replaced in range(1, ROLLING + 1):
        number = (replaced - 1) // 100
        body = rolling_slices(replaced)[number]
        await client.request("PUT", f"{SLICES}/svc-{ROLLING_SERVICE}-{number}", json.dumps(body).encode())
    accepted = time.perf_counter()
    count, last = 0, accepted
    while (when := await asyncio.to_thread(commits.wait, 1.0)) is not None:
        count, last = count + 1, when
    return accepted - start, max(0.0, last - accepted), count


def check_kernel(mode: str, kubeconfig: Path, namespace: str) -> None:
    """The kernel holds what a fresh rendering of the server's objects gives. Raises RuntimeError."""
    client = RestClient(load_client_config(str(kubeconfig)))
    manifests = b"\n---\n".join(data for _, data in read_objects(client, "", lambda _text: None))
    drift = [sys.executable, "-m", "kproxy", "drift", "-f", "-", "--node", "node-0", "--netns", namespace]
    drift += [*VARIANT[mode], "--feature", "nfacct=on"] if mode == "iptables" else []
    with tempfile.TemporaryDirectory() as made:
        config = Path(made) / "config.json"
        write_config(config, mode=mode)
        done = subprocess.run([*drift, "--config", str(config)], input=manifests, check=False, capture_output=True)
    if done.returncode:
        said = done.stdout.decode()[-3000:] + done.stderr.decode()[-3000:]
        raise RuntimeError(f"the kernel's rules are not the server's state:\n{said}")


Figures = dict[str, str]
"""What was measured in one mode, in words, by the name of its row."""


async def measure(directory: Path, kubeconfig: Path, connect: Connect) -> dict[str, Figures]:
    """The figures of each mode."""
    await load(connect)
    starts: dict[str, list[tuple[float, float]]] = {mode: [] for mode in MODES}
    for _ in range(STARTS - 1):
        for mode in MODES:
            with fresh_namespace() as other:
                agent = Agent(mode, kubeconfig, other, directory)
                starts[mode].append(agent.wait_synced())
                agent.stop()
    return {mode: await measure_mode(mode, starts[mode], directory, kubeconfig, connect) for mode in MODES}


async def measure_mode(
    mode: str, starts: list[tuple[float, float]], directory: Path, kubeconfig: Path, connect: Connect
) -> Figures:
    """One start more, and what comes after it."""
    found: Figures = {}
    with fresh_namespace() as name:
        agent = Agent(mode, kubeconfig, name, directory)
        commits = Commits(name)
        try:
            starts.append(agent.wait_synced())
            written, done = (statistics.median(each) for each in zip(*starts, strict=True))
            found |= {"written": _s(written), "done": _s(done)}
            await asyncio.sleep(3)
            client = await connect()
            times = [await one_change(client, commits, 7 * number) for number in range(CHANGES)]
            found |= {"median": _s(statistics.median(times)), "worst": _s(max(times))}
            before = agent.syncs
            server, after, count = await rolling_update(client, commits)
            found["rolling"] = (
                f"{_s(after)}, {agent.syncs - before} syncs, {count} commits ({_s(server)} for the server)"
            )
            check_kernel(mode, kubeconfig, name)
            found["resident"] = f"{resident(agent.process.pid):.0f} MB"
            await asyncio.sleep(SETTLE_SECONDS)
            begin, cpu = time.perf_counter(), agent.cpu()
            await asyncio.sleep(IDLE_SECONDS)
            share = (agent.cpu() - cpu) / (time.perf_counter() - begin)
            found["idle"] = f"{share * 100:.2f} %"
            client.close()
            await restore(connect)
        finally:
            commits.close()
            agent.stop()
    return found


async def restore(connect: Connect) -> None:
    """Brings the slices back that changes have altered, for the next mode."""
    client = await connect()  # the server has closed the one that was idle
    changed = [7 * number for number in range(CHANGES)]
    bodies = [endpoint_slice(number, [endpoint_ip(number, index) for index in range(SIZE[1])]) for number in changed]
    for body in [*bodies, *rolling_slices()]:
        name = body["metadata"]["name"]
        await client.request("PUT", f"{SLICES}/{name}", json.dumps(body).encode())
    client.close()


def _s(seconds: float) -> str:
    return f"{seconds:.2f} s" if seconds >= 1 else f"{seconds * 1000:.0f} ms"


ROWS = {
    "written": ("start to all rules in the kernel", f"{REFERENCE['start']} s"),
    "done": ("start to the end of the first sync", ""),
    "median": ("one change, median", f"{REFERENCE['change'] * 1000:.0f} ms"),
    "worst": ("one change, worst", ""),
    "rolling": (f"rolling update of {ROLLING} endpoints, last one", ""),
    "idle": (f"CPU when idle, over {IDLE_SECONDS} s", ""),
    "resident": ("resident", f"{REFERENCE['resident']} MB"),
}


def main() -> None:
    """Prints the table."""
    if os.geteuid() != 0:
        print("run: needs root, for network namespaces")
        return
    with tempfile.TemporaryDirectory() as made:
        directory = Path(made)
        kubeconfig = directory / "kubeconfig"
        options = ("--write-kubeconfig", kubeconfig, "--service-cluster-ip-range", "172.16.0.0/12")
        with server(directory, *options) as (_, connect):
            found = asyncio.run(measure(directory, kubeconfig, connect))
    rows = []
    for name, (what, reference) in ROWS.items():
        row = {"": what}
        for mode in MODES:
            row |= {f"{mode} mode": found[mode][name], f"target, {mode}": TARGETS[mode].get(name, "")}
        rows.append(row | {"kube-proxy v1.36.2, iptables": reference})
    show(f"run: {SIZE[0]} Services of {SIZE[1]} endpoints, from an API server", rows)


if __name__ == "__main__":
    main()
