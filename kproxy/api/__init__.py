"""Kubernetes objects as frozen, typed, defaulted, validated values.

    >>> manifests = parse_manifests('''
    ... apiVersion: v1
    ... kind: Service
    ... metadata: {name: web}
    ... spec:
    ...   clusterIP: 10.96.0.7
    ...   ports: [{port: 80}]
    ... ''')
    >>> service = manifests.services[0]
    >>> service.metadata.key, service.spec.ports[0].protocol, service.spec.ip_families
    ('default/web', 'TCP', ('IPv4',))

`load_manifests` reads files, directories and standard input and raises one `ManifestError` with every problem in them.
`mirror_endpoints` turns Endpoints into EndpointSlices. The `validate_` functions apply the API server's checks to
values built by hand. docs/manifests.md is the user's page.
"""

from kproxy.api.fielderror import FieldError, ManifestError, Problem
from kproxy.api.kubeproxyconfig.decode import ProxyConfigError, load_config
from kproxy.api.kubeproxyconfig.types import KubeProxyConfiguration, LoadedConfig
from kproxy.api.load.manifests import Manifests, load_manifests, parse_manifests
from kproxy.api.load.mirror import mirror_endpoints
from kproxy.api.types.core import (
    EndpointAddress,
    Endpoints,
    EndpointsPort,
    EndpointSubset,
    LoadBalancerIngress,
    Node,
    NodeAddress,
    Service,
    ServicePort,
    ServiceSpec,
)
from kproxy.api.types.discovery import Endpoint, EndpointConditions, EndpointHints, EndpointPort, EndpointSlice
from kproxy.api.types.meta import EMPTY, ObjectMeta
from kproxy.api.types.networking import ServiceCIDR
from kproxy.api.validation.cluster import validate_node, validate_service_cidr
from kproxy.api.validation.discovery import validate_endpoint_slice, validate_endpoints
from kproxy.api.validation.service import validate_service

__all__ = [
    "EMPTY",
    "Endpoint",
    "EndpointAddress",
    "EndpointConditions",
    "EndpointHints",
    "EndpointPort",
    "EndpointSlice",
    "EndpointSubset",
    "Endpoints",
    "EndpointsPort",
    "FieldError",
    "KubeProxyConfiguration",
    "LoadBalancerIngress",
    "LoadedConfig",
    "ManifestError",
    "Manifests",
    "Node",
    "NodeAddress",
    "ObjectMeta",
    "Problem",
    "ProxyConfigError",
    "Service",
    "ServiceCIDR",
    "ServicePort",
    "ServiceSpec",
    "load_config",
    "load_manifests",
    "mirror_endpoints",
    "parse_manifests",
    "validate_endpoint_slice",
    "validate_endpoints",
    "validate_node",
    "validate_service",
    "validate_service_cidr",
]
