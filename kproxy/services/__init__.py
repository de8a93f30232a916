"""What Services and EndpointSlices mean to a proxy: ServicePorts, endpoints, traffic policies, topology.

Everything is per IP family and per node, as in kube-proxy:

    >>> from kproxy.services import IPFamily, ServiceState
    >>> state = ServiceState(IPFamily.IPV4, "node-0")
    >>> bool(state.apply())  # nothing went in, so nothing changed
    False

Objects go into a `ServiceState` as they are listed and watched; `apply` makes them visible and says which ServicePorts
that touched; `select_endpoints` decides which endpoints a ServicePort uses on this node.
"""

from kproxy.services.endpoints import Endpoint
from kproxy.services.names import IPFamily, ServicePortName
from kproxy.services.node import LocalTrafficDetector, NodePortAddresses
from kproxy.services.serviceport import ServicePort
from kproxy.services.topology import health_check_node_ports, local_ready_endpoints, select_endpoints
from kproxy.services.tracker import Changes, ServiceState

__all__ = [
    "Changes",
    "Endpoint",
    "IPFamily",
    "LocalTrafficDetector",
    "NodePortAddresses",
    "ServicePort",
    "ServicePortName",
    "ServiceState",
    "health_check_node_ports",
    "local_ready_endpoints",
    "select_endpoints",
]
