"""The API server: durable creates, a long list, many watchers, the latency of a watch event, memory.

The server is a process of its own, as `kproxy apiserver` runs it, with TLS; the clients share another process, so a
figure holds the cost of both on this machine's cores. Targets, for two cores: 1,000 creates a second; 10,000 Services
listed in 0.5 s; 500 watchers see 1,000 changes within 2 s of the last write; median latency 5 ms.
"""

from __future__ import annotations

import asyncio
import functools
import json
import os
import shutil
import signal
import ssl
import statistics
import subprocess
import tempfile
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from bench.report import KPROXY, ms, s

CLIENTS = 8
CREATES = 5000
SERVICES = 10_000
SLICES = 1000
WATCHERS = 500
CHANGES = 1000


class Client:
    """One keep-alive connection; speaks just enough HTTP."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, token: str) -> None:
        self._reader = reader
        self._writer = writer
        self._head = f"Host: x\r\nAuthorization: Bearer {token}\r\nAccept: application/json\r\n"

    @classmethod
    async def connect(cls, port: int, context: ssl.SSLContext, token: str) -> Client:
        """Opens a connection."""
        reader, writer = await asyncio.open_connection("127.0.0.1", port, ssl=context, limit=1 << 20)
        return cls(reader, writer, token)

    async def send(self, method: str, path: str, body: bytes = b"", media: str = "application/json") -> None:
        """Sends a request."""
        head = f"{method} {path} HTTP/1.1\r\n{self._head}Content-Type: {media}\r\nContent-Length: {len(body)}\r\n\r\n"
        self._writer.write(head.encode() + body)
        await self._writer.drain()

    async def head(self) -> tuple[int, int]:
        """Status code and content length (-1: chunked) of the answer."""
        lines = (await self._reader.readuntil(b"\r\n\r\n")).split(b"\r\n")
        length = -1
        for line in lines[1:]:
            name, _, value = line.partition(b":")
            if name.lower() == b"content-length":
                length = int(value)
        return int(lines[0].split()[1]), length

    async def request(self, method: str, path: str, body: bytes = b"", media: str = "application/json") -> bytes:
        """Sends a request and reads its whole answer, which must be a success."""
        await self.send(method, path, body, media)
        code, length = await self.head()
        data = await self._reader.readexactly(length)
        if code >= 300:
            raise RuntimeError(f"{method} {path}: {code} {data[:300].decode()}")
        return data

    async def chunks(self) -> AsyncIterator[bytes]:
        """What a chunked answer brings, as it comes."""
        while data := await self._reader.read(1 << 18):
            yield data

    def close(self) -> None:
        """Closes the connection."""
        self._writer.close()


Connect = Callable[[], Awaitable[Client]]


@contextmanager
def server(directory: Path, *options: object) -> Iterator[tuple[subprocess.Popen[str], Connect]]:
    """Runs a server; its process, and what opens connections to it as administrator."""
    (directory / "tokens").write_text('bench,bench,1,"system:masters"\n')
    command = [KPROXY, "apiserver", "--data", directory / "data", "--listen", "127.0.0.1:0", *options]
    command += ["--token-file", directory / "tokens"]
    process = subprocess.Popen([str(word) for word in command], stderr=subprocess.PIPE, text=True)
    try:
        assert process.stderr is not None
        line = process.stderr.readline()
        if "ready" not in line:
            raise RuntimeError(f"no API server: {line}")
        context = ssl.create_default_context(cafile=directory / "data" / "ca.pem")
        context.check_hostname = False
        yield process, functools.partial(Client.connect, int(line.strip().rsplit(":", 1)[1]), context, "bench")
    finally:
        process.send_signal(signal.SIGTERM)
        process.wait(20)


def service(number: int) -> bytes:
    """The body of a Service."""
    spec = {"ports": [{"port": 80, "name": "http", "targetPort": 8080}], "selector": {"app": f"s{number}"}}
    return json.dumps({"metadata": {"name": f"s{number:05}", "labels": {"n": str(number)}}, "spec": spec}).encode()


async def creates(connect: Connect, count: int) -> float:
    """Seconds for `count` Services, created by several clients."""
    numbers = iter(range(count))
    path = "/api/v1/namespaces/default/services"

    async def work() -> None:
        client = await connect()
        for number in numbers:
            await client.request("POST", path, service(number))
        client.close()

    start = time.perf_counter()
    await asyncio.gather(*(work() for _ in range(CLIENTS)))
    return time.perf_counter() - start


async def slices(connect: Connect) -> None:
    """Creates slices of a hundred endpoints each."""
    numbers = iter(range(SLICES))

    async def work() -> None:
        client = await connect()
        for number in numbers:
            endpoints = [
                {
                    "addresses": [f"10.{number // 250}.{number % 250}.{n}"],
                    "nodeName": f"node-{n % 20}",
                    "zone": "a",
                    "conditions": {"ready": True, "serving": True, "terminating": False},
                    "targetRef": {"kind": "Pod", "namespace": "default", "name": f"p-{number}-{n}"},
                }
                for n in range(1, 101)
            ]  # fmt: skip
            body = {
                "metadata": {"name": f"e{number:05}", "labels": {"kubernetes.io/service-name": f"s{number:05}"}},
                "addressType": "IPv4",
                "endpoints": endpoints,
                "ports": [{"name": "http", "port": 8080, "protocol": "TCP"}],
            }
            path = "/apis/discovery.k8s.io/v1/namespaces/default/endpointslices"
            await client.request("POST", path, json.dumps(body).encode())
        client.close()

    await asyncio.gather(*(work() for _ in range(CLIENTS)))


async def listing(connect: Connect) -> tuple[float, int]:
    """Seconds to the last byte of a list of all Services, the best of three, and its size."""
    client = await connect()
    best, size = 1e9, 0
    for _ in range(3):
        start = time.perf_counter()
        size = len(await client.request("GET", "/api/v1/services"))
        best = min(best, time.perf_counter() - start)
    client.close()
    return best, size


async def fan_out(connect: Connect) -> tuple[float, float]:
    """Seconds that the writes took, and from the last write until the last watcher had seen everything."""
    path = "/api/v1/namespaces/kube-public/configmaps"
    client = await connect()
    version = json.loads(await client.request("GET", path))["metadata"]["resourceVersion"]
    started: asyncio.Queue[None] = asyncio.Queue()

    async def watch() -> float:
        watcher = await connect()
        await watcher.send("GET", f"{path}?watch=1&resourceVersion={version}&timeoutSeconds=300")
        await watcher.head()
        started.put_nowait(None)
        seen = 0
        async for data in watcher.chunks():
            seen += data.count(b'{"type":"')
            if seen >= CHANGES:
                break
        watcher.close()
        return time.perf_counter()

    watching = [asyncio.ensure_future(watch()) for _ in range(WATCHERS)]
    for _ in range(WATCHERS):
        await started.get()
    start = time.perf_counter()
    for number in range(CHANGES):
        await client.request(
            "POST", path, json.dumps({"metadata": {"name": f"c{number}"}, "data": {"a": "b" * 200}}).encode()
        )
    wrote = time.perf_counter()
    last = max(await asyncio.gather(*watching))
    client.close()
    return wrote - start, last - wrote


async def latency(connect: Connect) -> list[float]:
    """Seconds from sending a change to its watch event, one at a time."""
    path = "/api/v1/namespaces/kube-system/configmaps"
    client = await connect()
    watcher = await connect()
    version = json.loads(await client.request("GET", path))["metadata"]["resourceVersion"]
    await watcher.send("GET", f"{path}?watch=1&resourceVersion={version}&timeoutSeconds=300")
    await watcher.head()
    events = watcher.chunks()
    found = []
    for number in range(300):
        start = time.perf_counter()
        answer = asyncio.ensure_future(
            client.request("POST", path, json.dumps({"metadata": {"name": f"l{number}"}}).encode())
        )
        await anext(events)
        found.append(time.perf_counter() - start)
        await answer
    client.close()
    watcher.close()
    return found


def resident(pid: int) -> float:
    """Resident memory of a process in MB."""
    pages = int(Path(f"/proc/{pid}/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") / 1e6


async def run(directory: Path) -> None:
    """All measurements."""
    begin = time.perf_counter()
    with server(directory) as (process, connect):
        print(f"  ready after {s(time.perf_counter() - begin)}")
        print(f"  resident when idle: {resident(process.pid):.0f} MB")
        found = await latency(connect)
        print(f"  change to watch event: median {ms(statistics.median(found))}, worst {ms(max(found))}")
        seconds, after = await fan_out(connect)
        print(f"  {WATCHERS} watchers, {CHANGES} changes: writes {s(seconds)}, last event {s(after)} after the last")
        seconds = await creates(connect, CREATES)
        print(f"  {CREATES} Services by {CLIENTS} clients, durable: {CREATES / seconds:.0f} a second")
    shutil.rmtree(directory / "data")
    with server(directory) as (process, connect):
        seconds = await creates(connect, SERVICES)
        print(f"  {SERVICES} Services: {SERVICES / seconds:.0f} a second")
        seconds, size = await listing(connect)
        print(f"  list of {SERVICES} Services: {ms(seconds, 0)}, {size / 1e6:.1f} MB")
        await slices(connect)
        print(f"  resident with {SERVICES} Services, {SLICES * 100} endpoints: {resident(process.pid):.0f} MB")
    with server(directory) as (process, connect):
        print(f"  resident after a restart: {resident(process.pid):.0f} MB")


def main() -> None:
    """Prints the measurements."""
    print("apiserver")
    with tempfile.TemporaryDirectory() as name:
        asyncio.run(run(Path(name)))


if __name__ == "__main__":
    main()
