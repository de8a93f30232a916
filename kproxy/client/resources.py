"""Which resources there are to call: typed ones, and any other by group, version and plural."""

from __future__ import annotations

import json
from typing import Final, Generic
from urllib.parse import quote

import msgspec

from kproxy.api.types.core import Endpoints, Node, Service
from kproxy.api.types.discovery import EndpointSlice
from kproxy.api.types.networking import ServiceCIDR
from kproxy.api.wire import convert, structs
from kproxy.errors import InputError
from kproxy.informer.codec import Codec, Unstructured, UnstructuredCodec, endpoint_slice_codec
from kproxy.informer.objects import T


class Resource(msgspec.Struct, Generic[T], frozen=True):
    """A resource of an API server and how its objects are decoded.

    `group` is "" for core; `plural` is the name in the URL.
    """

    group: str
    version: str
    plural: str
    namespaced: bool
    codec: Codec[T]

    @property
    def group_version(self) -> str:
        return f"{self.group}/{self.version}" if self.group else self.version

    @property
    def qualified(self) -> str:
        """`plural.group`, or `plural` in core, as in messages and `kubectl get`."""
        return f"{self.plural}.{self.group}" if self.group else self.plural

    def path(self, namespace: str = "", name: str = "", subresource: str = "") -> str:
        """The URL path of the collection, of one object, or of a part of it; "" is all namespaces.

        Raises InputError for a name that would lead elsewhere (client-go's IsValidPathSegmentName).
        """
        for what, text in (("namespace", namespace), ("resource name", name)):
            reason = _no_segment(text)
            if reason:
                raise InputError(f"invalid {what} {json.dumps(text)}: {reason}")
        parts = ["/apis" if self.group else "/api", self.group_version]
        if self.namespaced and namespace:
            parts += ["namespaces", quote(namespace, safe="")]
        parts.append(self.plural)
        parts += [quote(part, safe="") for part in (name, subresource) if part]
        return "/".join(parts)


def _no_segment(text: str) -> str:
    """Why a text cannot be a part of a path; "" if it can."""
    if text in (".", ".."):
        return f"may not be '{text}'"
    return next((f"may not contain '{sign}'" for sign in "/%" if sign in text), "")


SERVICES: Final[Resource[Service]] = Resource(
    "", "v1", "services", True, Codec(structs.WireService, convert.convert_service)
)
ENDPOINTS: Final[Resource[Endpoints]] = Resource(
    "", "v1", "endpoints", True, Codec(structs.WireEndpoints, convert.convert_endpoints)
)
NODES: Final[Resource[Node]] = Resource("", "v1", "nodes", False, Codec(structs.WireNode, convert.convert_node))
ENDPOINT_SLICES: Final[Resource[EndpointSlice]] = Resource(
    "discovery.k8s.io", "v1", "endpointslices", True, endpoint_slice_codec()
)
SERVICE_CIDRS: Final[Resource[ServiceCIDR]] = Resource(
    "networking.k8s.io", "v1", "servicecidrs", False, Codec(structs.WireServiceCIDR, convert.convert_service_cidr)
)


def dynamic_resource(group: str, version: str, plural: str, namespaced: bool) -> Resource[Unstructured]:
    """Any resource, custom ones included; its objects stay as they came."""
    return Resource(group, version, plural, namespaced, UnstructuredCodec())


PODS: Final = dynamic_resource("", "v1", "pods", namespaced=True)
CONFIG_MAP_RESOURCE: Final = dynamic_resource("", "v1", "configmaps", namespaced=True)
