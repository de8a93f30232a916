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

from kproxy.api.config import KubeProxyConfiguration, LoadedConfig
from kproxy.api.config_decode import ConfigError, load_config
from kproxy.api.core import (
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
from kproxy.api.discovery import Endpoint, EndpointConditions, EndpointHints, EndpointPort, EndpointSlice
from kproxy.api.manifests import Manifests, load_manifests, parse_manifests
from kproxy.api.meta import EMPTY, ObjectMeta
from kproxy.api.mirror import mirror_endpoints
from kproxy.api.problems import FieldError, ManifestError, Problem
from kproxy.api.validate_discovery import validate_endpoint_slice, validate_endpoints
from kproxy.api.validate_node import validate_node
from kproxy.api.validate_service import validate_service

__all__ = [
    "EMPTY",
    "ConfigError",
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
    "Service",
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
]
