"""ServiceCIDR of networking.k8s.io/v1 as a frozen typed value."""

from __future__ import annotations

import msgspec

from kproxy.api.types.meta import ObjectMeta


class ServiceCIDR(msgspec.Struct, frozen=True):
    """networking/v1 ServiceCIDR: one network of ClusterIPs, or one of each family. `cidrs` are canonical."""

    metadata: ObjectMeta
    cidrs: tuple[str, ...] = ()
