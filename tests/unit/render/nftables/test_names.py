"""Names of chains and sets."""

from __future__ import annotations

from kproxy.render.nftables.names import (
    MAX_BASE,
    endpoint_base,
    service_port_base,
)
from kproxy.services import Endpoint, ServicePortName


def test_a_long_name_is_cut_and_keeps_its_hash() -> None:
    name = ServicePortName("n" * 63, "s" * 63, "p" * 63, "SCTP")
    endpoint = Endpoint("[fd00:1111:2222:3333:4444:5555:6666:7777]:65535", "fd00:1111:2222:3333:4444:5555:6666:7777")
    other = Endpoint("[fd00:1111:2222:3333:4444:5555:6666:7777]:65534", endpoint.ip)
    assert not service_port_base(name).endswith("...")
    cut = endpoint_base(name, endpoint)
    assert len(cut) == MAX_BASE
    assert cut.endswith("...")
    assert cut[8:] == endpoint_base(name, other)[8:]
    assert cut[:8] != endpoint_base(name, other)[:8]
