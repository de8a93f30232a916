"""List, decode, index and follow: 10,000 Services with 100,000 endpoints, from a server on the loopback interface.

The server is a process of its own that sends prepared bytes, so that only the client is measured.
"""

from __future__ import annotations

import json
import statistics
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qsl, urlsplit

import msgspec

from bench.generate import endpoint_ip, endpoint_slice, service
from bench.report import answer, in_own_process, mib, ms, peak, s, show

SERVICES, ENDPOINTS = 10_000, 10
CHANGES = 200
GOAL = "under 5 s and 400 MB"


class Measured(msgspec.Struct):
    """One run. Times in seconds, memory in KiB."""

    synced: float
    cpu: float
    event_median: float
    event_worst: float
    idle_cpu: float
    peak: int


def objects(plural: str) -> Iterator[dict[str, Any]]:
    """The objects of a resource, as a server stores them."""
    for number in range(SERVICES):
        if plural == "services":
            item = service(number)
        else:
            item = endpoint_slice(number, [endpoint_ip(number, index) for index in range(ENDPOINTS)])
        meta = item["metadata"]
        meta["resourceVersion"] = str(number + 1)
        meta["uid"] = f"00000000-0000-4000-8000-{number:012d}"
        yield item


class Server(BaseHTTPRequestHandler):
    """LIST with pages, streaming lists, and a watch that changes one slice whenever a line comes in on stdin."""

    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    stored: dict[str, list[bytes]]
    changed = threading.Condition()
    change = 0

    def log_message(self, format: str, *args: Any) -> None:
        """Silence."""

    def do_GET(self) -> None:
        parts = urlsplit(self.path)
        query = dict(parse_qsl(parts.query))
        plural = parts.path.rpartition("/")[2]
        if "watch" in query:
            self.watch(plural, query.get("sendInitialEvents") == "true")
        else:
            self.page(plural, int(query.get("limit", "0")), int(query.get("continue", "0")))

    def page(self, plural: str, limit: int, start: int) -> None:
        items = self.stored[plural]
        end = start + limit if limit else len(items)
        token = f',"continue":"{end}"' if end < len(items) else ""
        head = f'{{"kind":"List","apiVersion":"v1","metadata":{{"resourceVersion":"{SERVICES}"{token}}},"items":['
        body = head.encode() + b",".join(items[start:end]) + b"]}"
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def watch(self, plural: str, initial: bool) -> None:
        self.send_response(200)
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()
        kind = "Service" if plural == "services" else "EndpointSlice"
        if initial:
            for item in self.stored[plural]:
                self.event("ADDED", item)
            end = f'{{"kind":"{kind}","metadata":{{"resourceVersion":"{SERVICES}","annotations":'
            self.event("BOOKMARK", (end + '{"k8s.io/initial-events-end":"true"}}}').encode())
        seen = self.change
        while True:
            with self.changed:
                while self.change == seen:
                    self.changed.wait()
                seen = self.change
            if plural == "endpointslices":
                item = json.loads(self.stored[plural][seen % SERVICES])
                item["metadata"]["resourceVersion"] = str(SERVICES + seen)
                item["metadata"]["annotations"] = {"sent": repr(time.clock_gettime(time.CLOCK_MONOTONIC))}
                self.event("MODIFIED", json.dumps(item).encode())

    def event(self, kind: str, item: bytes) -> None:
        line = b'{"type":"' + kind.encode() + b'","object":' + item + b"}\n"
        self.wfile.write(f"{len(line):x}\r\n".encode() + line + b"\r\n")


def serve() -> None:
    """The server: prints its port, changes a slice for each line of stdin, ends with it."""
    Server.stored = {
        plural: [json.dumps(item, separators=(",", ":")).encode() for item in objects(plural)]
        for plural in ("services", "endpointslices")
    }
    server = ThreadingHTTPServer(("127.0.0.1", 0), Server)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    print(server.server_address[1], flush=True)
    for _ in sys.stdin:
        with Server.changed:
            Server.change += 1
            Server.changed.notify_all()


def measure(streaming: bool) -> Measured:
    """Starts a server, follows it, and measures."""
    from kproxy.api import EndpointSlice
    from kproxy.client import ENDPOINT_SLICES, ClientConfig, RestClient, SharedInformerFactory
    from kproxy.client import SERVICES as SERVICE_RESOURCE
    from kproxy.informer import ReflectorOptions, ResourceEventHandlerFuncs, label_index_func

    command = [sys.executable, "-m", "bench.informer", "serve"]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, bufsize=1) as server:
        assert server.stdin is not None
        assert server.stdout is not None
        client = RestClient(ClientConfig(server=f"http://127.0.0.1:{server.stdout.readline().strip()}"))
        factory = SharedInformerFactory(client, options=ReflectorOptions(watch_list=streaming))
        latencies: list[float] = []
        arrived = threading.Event()

        def update(_old: EndpointSlice, new: EndpointSlice) -> None:
            sent = float(new.metadata.annotations["sent"])
            latencies.append(time.clock_gettime(time.CLOCK_MONOTONIC) - sent)
            arrived.set()

        begin, cpu = time.perf_counter(), time.process_time()
        services = factory.informer(SERVICE_RESOURCE)
        slices = factory.informer(ENDPOINT_SLICES, indexers={"service": label_index_func("kubernetes.io/service-name")})
        registration = slices.add_event_handler(ResourceEventHandlerFuncs(update=update))
        factory.start()
        factory.wait_for_cache_sync(60)
        registration.wait_for_sync(60)
        synced, spent = time.perf_counter() - begin, time.process_time() - cpu
        assert len(services.indexer) == len(slices.indexer) == SERVICES
        assert sum(len(item.endpoints) for item in slices.indexer.list()) == SERVICES * ENDPOINTS
        assert len(slices.indexer.by_index("service", "bench/svc-7")) == 1
        time.sleep(0.5)  # both watches are open by then
        for _ in range(CHANGES):
            arrived.clear()
            server.stdin.write("\n")
            assert arrived.wait(5), "a change did not arrive"
        idle = time.process_time()
        time.sleep(2)
        idle = (time.process_time() - idle) / 2
        most = peak()
        factory.shutdown()
        server.kill()
    return Measured(synced, spent, statistics.median(latencies), max(latencies), idle, most)


def main() -> None:
    """Prints the table."""
    rows = []
    for how, words in (("list", "pages of 500"), ("streaming", "streaming list")):
        got = in_own_process(Measured, "informer", how)
        rows.append({
            "how": words, "synced": s(got.synced), "CPU": s(got.cpu), "peak memory": mib(got.peak),
            "event to handler, median": ms(got.event_median, 2), "worst": ms(got.event_worst, 2),
            "idle CPU": f"{got.idle_cpu * 100:.2f} %",
        })  # fmt: skip
    show(f"informer: {SERVICES:,} Services, {SERVICES * ENDPOINTS:,} endpoints listed and indexed; goal {GOAL}", rows)


if __name__ == "__main__":
    if sys.argv[1] == "serve":
        serve()
    else:
        answer(measure(sys.argv[1] == "streaming"))
