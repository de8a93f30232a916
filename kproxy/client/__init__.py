"""API servers: credentials and kubeconfig, REST calls, discovery, list and watch streams, and the informers' driver.

    >>> config = load_client_config()                                          # doctest: +SKIP
    >>> client = RestClient(config)                                            # doctest: +SKIP
    >>> client.get(SERVICES, "kubernetes", "default").spec.cluster_ip          # doctest: +SKIP
    '10.96.0.1'

The only HTTP client of kproxy. docs/client.md is the user's page.
"""

from kproxy.client.config import ClientConfig, Overrides, in_cluster_config, load_client_config
from kproxy.client.discovery import ApiResource, discover
from kproxy.client.errors import (
    ApiError,
    CancelledError,
    ConfigError,
    CredentialError,
    DiscoveryError,
    TransportError,
)
from kproxy.client.http import Call, HttpClient
from kproxy.client.informer import BlockingWorkQueue, Informer, Registration, SharedInformerFactory
from kproxy.client.resources import (
    ENDPOINT_SLICES,
    ENDPOINTS,
    NODES,
    SERVICE_CIDRS,
    SERVICES,
    dynamic_resource,
)
from kproxy.client.rest import PatchType, RestClient

__all__ = [
    "ENDPOINTS",
    "ENDPOINT_SLICES",
    "NODES",
    "SERVICES",
    "SERVICE_CIDRS",
    "ApiError",
    "ApiResource",
    "BlockingWorkQueue",
    "Call",
    "CancelledError",
    "ClientConfig",
    "ConfigError",
    "CredentialError",
    "DiscoveryError",
    "HttpClient",
    "Informer",
    "Overrides",
    "PatchType",
    "Registration",
    "RestClient",
    "SharedInformerFactory",
    "TransportError",
    "discover",
    "dynamic_resource",
    "in_cluster_config",
    "load_client_config",
]
