"""Provenance: which object each rule came from."""

from __future__ import annotations

import msgspec

from kproxy.services.endpoints import Endpoint
from kproxy.services.names import ServicePortName


class Origin(msgspec.Struct, frozen=True):
    """Why a rule is there.

    Attributes:
        reason: in a few words, what the rule is for ("cluster IP", "node port", "endpoint", "base rule: ...").
        service_port: the ServicePort it belongs to; None for base rules.
        endpoint: the endpoint it leads to or belongs to, if any; it names its EndpointSlice.
    """

    reason: str
    service_port: ServicePortName | None = None
    endpoint: Endpoint | None = None

    def __str__(self) -> str:
        if self.service_port is None:
            return self.reason
        text = f"Service {self.service_port} ({self.service_port.protocol}): {self.reason}"
        if self.endpoint is not None:
            text += f" {self.endpoint.address} of EndpointSlice {self.endpoint.slice}"
        return text


class RenderedRule(msgspec.Struct, frozen=True):
    """One rule with its place and its provenance; `number` counts from 1 within the chain."""

    table: str
    chain: str
    number: int
    text: str
    origin: Origin


class RenderedObject(msgspec.Struct, frozen=True):
    """One thing besides the rules of iptables, with its provenance: an object of nftables, or what IPVS mode has.

    Attributes:
        kind: table, chain, set, map, rule or element; in IPVS mode set, element, virtual server, real server, address,
            sysctl, timeouts or excluded network.
        container: what it is or is in: table, chain, set, map; in IPVS mode set, virtual server or device.
        name: of that.
        number: of a rule in its chain, from 1; 0 for other objects.
        text: the line that makes it, for `nft -f`; in IPVS mode for ipset, ipvsadm, ip or sysctl.
    """

    kind: str
    container: str
    name: str
    number: int
    text: str
    origin: Origin
