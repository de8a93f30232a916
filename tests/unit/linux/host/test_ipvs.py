"""Virtual servers as the kernel tells them; what of this needs a kernel with IPVS is in the VM."""

from __future__ import annotations

import os

from kproxy.linux.host.ipvs import listed, read_ipvs
from kproxy.linux.namespace import Namespace
from kproxy.netfilter.ipvs.server import RealServer, VirtualServer


def test_attributes_are_read() -> None:
    real = {"ADDR": "10.244.0.2", "PORT": 53, "WEIGHT": 1, "FWD_METHOD": 0x100, "ACTIVE_CONNS": 2, "INACT_CONNS": 3}
    dns = {
        "AF": 2, "PROTOCOL": 17, "ADDR": "10.96.0.10", "PORT": 53, "SCHED_NAME": "mh", "TIMEOUT": 360,
        "FLAGS": {"flags": 0x12, "mask": 0},
    }  # fmt: skip
    api = {**dns, "PROTOCOL": 6, "PORT": 443, "SCHED_NAME": "rr", "FLAGS": {"flags": 0x3, "mask": 0}, "TIMEOUT": 10800}
    mark = {"FWMARK": 7, "SCHED_NAME": "rr"}
    found = listed([(dns, [real]), (api, [{**real, "FWD_METHOD": 3, "WEIGHT": 0}]), (mark, [])])
    assert found.by_mark == 1
    assert found.servers == {
        VirtualServer("udp", "10.96.0.10", 53, "mh", 0, ("mh-port",)): [
            RealServer("10.244.0.2", 53, 1, "m", 2, 3),
        ],
        VirtualServer("tcp", "10.96.0.10", 443, "rr", 10800): [RealServer("10.244.0.2", 53, 0, "g", 2, 3)],
    }


def test_a_kernel_without_ipvs_has_none() -> None:
    if not os.path.exists("/proc/net/ip_vs"):
        with Namespace.current() as here:
            assert read_ipvs(here) is None
