"""Names and families: how kube-proxy names a port of a Service."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from kproxy.family import IPFamily as IPFamily

LABEL_SERVICE_NAME = "kubernetes.io/service-name"
LABEL_SERVICE_PROXY_NAME = "service.kubernetes.io/service-proxy-name"
LABEL_HEADLESS = "service.kubernetes.io/headless"
LABEL_TOPOLOGY_ZONE = "topology.kubernetes.io/zone"


class ServicePortName(NamedTuple):
    """The name of one port of one Service; it sorts by namespace, name, port and protocol.

    `port` is the port's name, "" for an unnamed one; `protocol` is TCP, UDP or SCTP. kube-proxy counts the protocol as
    part of the name, so an EndpointSlice port of another protocol gives a ServicePort no endpoints.
    """

    namespace: str
    name: str
    port: str
    protocol: str

    @property
    def service(self) -> str:
        """`namespace/name` of the Service."""
        return f"{self.namespace}/{self.name}"

    def __str__(self) -> str:
        """`namespace/name[:port]`, the text kube-proxy hashes into chain names and writes into comments."""
        return f"{self.namespace}/{self.name}:{self.port}" if self.port else f"{self.namespace}/{self.name}"


def is_of_another_proxy(service_labels: Mapping[str, str]) -> bool:
    """Whether the labels of a Service hand it to another proxy.

    kube-proxy watches Services by `!service.kubernetes.io/service-proxy-name` and the field `spec.clusterIP!=None`: the
    label's value does not matter, and a label `headless` keeps no Service with a cluster IP from its rules.
    """
    return LABEL_SERVICE_PROXY_NAME in service_labels


def is_headless(slice_labels: Mapping[str, str]) -> bool:
    """Whether the labels of an EndpointSlice say that its Service is headless.

    kube-proxy watches EndpointSlices by `!service.kubernetes.io/headless` alone.
    """
    return LABEL_HEADLESS in slice_labels


def family_of(address: str) -> IPFamily:
    """The family of a canonical IP address or CIDR text."""
    return IPFamily.IPV6 if ":" in address else IPFamily.IPV4
