"""Connection tracking entries, where the way to the kernel fails, and packets on their way."""

from __future__ import annotations

import platform
import time
from types import SimpleNamespace

import pytest

from kproxy.cluster.facts.conntrack import Flow
from kproxy.linux.conntrack import flows
from kproxy.linux.conntrack.flows import wait_for_packets
from kproxy.linux.errors import LinuxError
from kproxy.linux.namespace import Namespace
from kproxy.services.names import IPFamily


class Late:
    """A connection whose socket is not there in time: pyroute2 makes it in a child process."""

    NetlinkError = type("NetlinkError", (Exception,), {})
    NFCTAttrTuple = SimpleNamespace

    def __init__(self, **_options: object) -> None:
        pass

    def __enter__(self) -> Late:
        return self

    def __exit__(self, *_error: object) -> None:
        pass

    def entry(self, *_arguments: object, **_fields: object) -> None:
        raise TimeoutError("could not start netns socket within timeout")


def test_a_socket_that_does_not_come_is_an_error_of_ours(monkeypatch: pytest.MonkeyPatch) -> None:
    library = SimpleNamespace(Conntrack=Late, NFCTAttrTuple=SimpleNamespace, NetlinkError=Late.NetlinkError)
    monkeypatch.setattr(flows, "load", lambda _name: library)
    flow = Flow("UDP", "10.0.0.1", 4000, "10.96.0.10", 53, "10.244.0.2", 53, "10.0.0.1", 4000)
    with Namespace.current() as here, pytest.raises(LinuxError, match=r"cannot delete connection .* within timeout"):
        flows.delete_flows(here, IPFamily.IPV4, [flow])


def test_the_kernel_says_when() -> None:
    assert wait_for_packets()


def test_where_it_cannot_some_time_passes(monkeypatch: pytest.MonkeyPatch) -> None:
    slept: list[float] = []
    monkeypatch.setattr(platform, "machine", lambda: "pdp11")
    monkeypatch.setattr(time, "sleep", slept.append)
    assert not wait_for_packets()
    assert slept == [0.05]
