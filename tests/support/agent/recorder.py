"""A sink that records what a source tells the proxy."""

from __future__ import annotations

from kproxy.api import EndpointSlice, Node, Service, ServiceCIDR


class Recorder:
    """A sink that writes down what it was told."""

    def __init__(self) -> None:
        self.service_cidrs: dict[str, ServiceCIDR | None] = {}
        self.told: list[str] = []

    def put_service(self, key: str, service: Service | None) -> None:
        self.told.append(f"{'-' if service is None else '+'}service {key}")

    def put_slice(self, key: str, endpoint_slice: EndpointSlice | None) -> None:
        self.told.append(f"{'-' if endpoint_slice is None else '+'}slice {key}")

    def put_service_cidr(self, key: str, service_cidr: ServiceCIDR | None) -> None:
        self.service_cidrs[key] = service_cidr

    def put_node(self, node: Node | None) -> None:
        self.told.append("-node" if node is None else f"+node {','.join(node.pod_cidrs)}")

    def take(self) -> list[str]:
        told, self.told = sorted(self.told), []
        return told
