"""An API server as a source, and Endpoints as slices."""

from __future__ import annotations

import threading
from collections.abc import Iterator

import pytest

from kproxy.agent.sources.apiserver import ApiSource, EndpointsMirror, KeyedHandler
from kproxy.api import EndpointAddress, Endpoints, EndpointSlice, EndpointsPort, EndpointSubset, ObjectMeta, Service
from kproxy.client import ClientConfig, RestClient
from kproxy.informer.objects import DeletedFinalStateUnknown
from tests.support.agent.recorder import Recorder
from tests.support.fakeapi.server import FakeApiServer
from tests.support.waiting import PATIENCE, eventually


@pytest.fixture
def api() -> Iterator[FakeApiServer]:
    with FakeApiServer() as server:
        yield server


def put_service(api: FakeApiServer, name: str, labels: dict[str, str] | None = None, ip: str = "10.96.0.1") -> None:
    spec = {"clusterIP": ip, "ports": [{"port": 80}]}
    api.put("services", {"metadata": {"name": name, "labels": labels or {}}, "spec": spec})


def test_lists_says_so_and_watches(api: FakeApiServer) -> None:
    put_service(api, "web")
    put_service(api, "labelled", {"service.kubernetes.io/headless": ""})
    put_service(api, "headless", ip="None")
    put_service(api, "other", {"service.kubernetes.io/service-proxy-name": "x"})
    labels = {"kubernetes.io/service-name": "web"}
    piece = {"metadata": {"name": "web-1", "labels": labels}, "addressType": "IPv4", "endpoints": [], "ports": []}
    api.put("endpointslices", piece)
    for name in ("node-0", "node-1"):
        api.put("nodes", {"metadata": {"name": name}, "spec": {"podCIDR": "10.244.0.0/24"}})
    client, sink, synced = RestClient(ClientConfig(server=api.url)), Recorder(), threading.Event()
    source = ApiSource(client, "node-0", sink, synced.set)
    assert "services" in source.describe_waiting()
    source.start()
    assert synced.wait(PATIENCE)
    assert source.describe_waiting() == ""
    assert sink.take() == [
        "+node 10.244.0.0/24",
        "+service default/labelled",
        "+service default/web",
        "+slice default/web-1",
    ]
    put_service(api, "late")
    api.delete("services", "default/web")
    eventually(lambda: len(sink.told) == 2)
    assert sink.take() == ["+service default/late", "-service default/web"]
    source.stop()
    client.close()


def test_endpoints_instead_of_slices(api: FakeApiServer) -> None:
    put_service(api, "web")
    subset = {"addresses": [{"ip": "10.0.0.1"}], "ports": [{"port": 80}]}
    api.put("endpoints", {"metadata": {"name": "web"}, "subsets": [subset]})
    client, sink, synced = RestClient(ClientConfig(server=api.url)), Recorder(), threading.Event()
    source = ApiSource(client, "node-0", sink, synced.set, use_endpoints=True)
    source.start()
    assert synced.wait(PATIENCE)
    service, piece = sink.take()
    assert service == "+service default/web"
    assert piece.startswith("+slice default/web-")
    api.delete("endpoints", "default/web")
    eventually(lambda: bool(sink.told))
    assert sink.take() == [piece.replace("+", "-", 1)]
    source.stop()
    client.close()


def test_a_source_that_is_stopped_before_it_synced_never_says_so() -> None:
    client, sink, synced = RestClient(ClientConfig(server="http://127.0.0.1:9")), Recorder(), threading.Event()
    source = ApiSource(client, "node-0", sink, synced.set)
    source.start()
    eventually(lambda: "(" in source.describe_waiting())
    source.stop()
    assert not synced.wait(0.2)
    client.close()


def endpoints(*ips: str) -> Endpoints:
    subset = EndpointSubset(tuple(map(EndpointAddress, ips)), (), (EndpointsPort(80),))
    return Endpoints(ObjectMeta("web", "default"), (subset,))


def test_the_mirror_follows_services_and_endpoints_in_any_order() -> None:
    service = Service(ObjectMeta("web", "default"))
    sink = Recorder()
    mirror = EndpointsMirror(sink)
    mirror.put_endpoints("default/web", endpoints("10.0.0.1"))
    assert sink.take() == [], "a Service must be there"
    mirror.put_service("default/web", service)
    told = sink.take()
    assert [line.split()[0] for line in told] == ["+service", "+slice"]
    mirror.put_endpoints("default/web", endpoints("10.0.0.1", "fd00::1"))
    assert [line.split()[0] for line in sink.take()] == ["+slice", "+slice"]
    mirror.put_endpoints("default/web", endpoints("fd00::1"))
    assert [line.split()[0] for line in sink.take()] == ["+slice", "-slice"]
    mirror.put_service("default/web", None)
    assert [line.split()[0] for line in sink.take()] == ["-service", "-slice"]
    mirror.put_endpoints("default/web", None)
    assert sink.take() == []


def test_a_reader_of_endpoints_reads_also_those_with_slices_of_their_own() -> None:
    """kube-apiserver's own Endpoints say skip-mirror, because it writes their slices itself."""
    sink = Recorder()
    mirror = EndpointsMirror(sink)
    subset = EndpointSubset((EndpointAddress("172.18.0.2"),), (), (EndpointsPort(6443, "https"),))
    meta = ObjectMeta("kubernetes", "default", {"endpointslice.kubernetes.io/skip-mirror": "true"})
    mirror.put_endpoints("default/kubernetes", Endpoints(meta, (subset,)))
    mirror.put_service("default/kubernetes", Service(ObjectMeta("kubernetes", "default")))
    assert [line.split()[0] for line in sink.take()] == ["+service", "+slice"]


def test_every_address_of_a_subset_counts() -> None:
    """The mirroring controller stops at 1000; kube-proxy took them all when it read Endpoints."""
    taken: list[EndpointSlice] = []

    class Sink(Recorder):
        def put_slice(self, key: str, endpoint_slice: EndpointSlice | None) -> None:
            assert endpoint_slice is not None
            taken.append(endpoint_slice)

    mirror = EndpointsMirror(Sink())
    mirror.put_service("default/web", Service(ObjectMeta("web", "default")))
    mirror.put_endpoints("default/web", endpoints(*(f"10.0.{at // 250}.{at % 250 + 1}" for at in range(2300))))
    assert [len(each.endpoints) for each in taken] == [2300]


def test_tombstones_are_deletions() -> None:
    told: list[tuple[str, Service | None]] = []
    handler: KeyedHandler[Service] = KeyedHandler(lambda key, item: told.append((key, item)))
    service = Service(ObjectMeta("web", "default"))
    handler.on_add(service, True)
    handler.on_update(service, service)
    handler.on_delete(DeletedFinalStateUnknown("default/web", None))
    handler.on_delete(service)
    assert told == [("default/web", service), ("default/web", service), ("default/web", None), ("default/web", None)]
