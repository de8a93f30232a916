"""This node: what is known of it decides how every rule is rendered, so changes of it are followed.

kube-proxy v1.36 (pkg/proxy/node.go, pkg/proxy/config) follows its Node's zone; in mode NodeCIDR it ends, to be started
again, when the podCIDRs change; other addresses, and that the Node is gone, it only logs, and goes on with what it read
at its start. Here what is new is followed without a new start: the render options are computed anew, and the next sync
writes what that alters. What a Node loses stays as it was, since its rules serve what still runs on the node: all of a
Node that is deleted; the podCIDRs or addresses of one that comes back without any, until it has some again.

`MetaProxier` is named as kube-proxy's (pkg/proxy/metaproxier). A source lists the cluster while the host's iptables are
examined; objects that come before the proxiers are there wait in an inbox.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Sequence

import msgspec

from kproxy.agent.log import event
from kproxy.agent.proxy.proxier import FamilyProxier
from kproxy.agent.sources.inbox import Inbox
from kproxy.api.kubeproxyconfig.types import LOCAL_NODE_CIDR, KubeProxyConfiguration
from kproxy.api.types.core import Node, Service
from kproxy.api.types.discovery import EndpointSlice
from kproxy.api.types.networking import ServiceCIDR
from kproxy.errors import InputError
from kproxy.linux.errors import LinuxError
from kproxy.linux.sync.backend import Backend
from kproxy.render import Target
from kproxy.services.node import host_ips


class NodeFamily(msgspec.Struct, frozen=True):
    """A family of this node, and its proxier."""

    host: Backend
    proxier: FamilyProxier


class MetaProxier:
    """Takes what the sources put, and hands it to every family's proxier. Thread-safe.

    Invariant: proxiers are enabled only when the source has synced, they are attached, and the Node says what the
    configuration needs of it.
    """

    def __init__(self, config: KubeProxyConfiguration, node_name: str) -> None:
        self._config = config
        self._node_name = node_name
        self._lock = threading.RLock()
        self._early = Inbox()
        self._service_cidrs: dict[str, ServiceCIDR] = {}
        self._members: tuple[NodeFamily, ...] = ()
        # As last seen, and what of all that was seen is in force.
        self._node: Node | None = None
        self._known: Node | None = None
        self._gone = False
        self._lost: dict[str, str] = {}
        self._synced = False
        self._enabled = False

    @property
    def node(self) -> Node | None:
        """The Node as last seen, also when it is gone since: what decides whether it may get traffic."""
        return self._node

    @property
    def target(self) -> Target:
        """What to render for: with what the Node has lost as it was."""
        return Target(self._node_name, self._known)

    @property
    def waits_for_node(self) -> bool:
        """Whether the Node does not say yet what the configuration needs: its pod CIDR, in mode NodeCIDR."""
        needed = self._config.detect_local_mode == LOCAL_NODE_CIDR
        return needed and (self._known is None or not self._known.pod_cidrs)

    def attach(self, members: Sequence[NodeFamily]) -> None:
        """The proxiers are there; they get what came before."""
        with self._lock:
            self._members = tuple(members)
            early = self._early.take()
            for key, service in early.services.items():
                self.put_service(key, service)
            for key, piece in early.slices.items():
                self.put_slice(key, piece)
            self.refresh()
            self._enable()

    def source_synced(self) -> None:
        """The source has put everything there was."""
        with self._lock:
            self._synced = True
            self._enable()

    def put_service(self, key: str, service: Service | None) -> None:
        """See Sink."""
        with self._lock:
            if not self._members:
                self._early.put_service(key, service)
            for member in self._members:
                member.proxier.inbox.put_service(key, service)

    def put_slice(self, key: str, endpoint_slice: EndpointSlice | None) -> None:
        """See Sink."""
        with self._lock:
            if not self._members:
                self._early.put_slice(key, endpoint_slice)
            for member in self._members:
                member.proxier.inbox.put_slice(key, endpoint_slice)

    @property
    def service_cidrs(self) -> Sequence[ServiceCIDR]:
        """The networks of ClusterIPs, as last seen, sorted by name."""
        with self._lock:
            return [found for _, found in sorted(self._service_cidrs.items())]

    def put_service_cidr(self, key: str, service_cidr: ServiceCIDR | None) -> None:
        """See Sink."""
        with self._lock:
            if self._service_cidrs.get(key) == service_cidr:
                return
            if service_cidr is None:
                del self._service_cidrs[key]
            else:
                self._service_cidrs[key] = service_cidr
            self.refresh()

    def put_node(self, node: Node | None) -> None:
        """See Sink."""
        with self._lock:
            if node is None:
                if self._node is not None and not self._gone:
                    self._gone = True
                    event("the Node is gone, what it said stays", level=logging.WARNING, node=self._node_name)
                return
            if self._gone:
                self._gone = False
                event("the Node is back", node=self._node_name)
            self._node = node
            known = keep_lost(self._known, node)
            changes = describe_changes(self._known, known)
            lost = describe_changes(node, known)
            self._known = known
            # Once, not with every heartbeat that the Node then goes on with.
            if lost and lost != self._lost:
                event("the Node has lost this, it stays", level=logging.WARNING, node=self._node_name, stays=lost)
            self._lost = lost
            if not changes:
                return
            event("node", node=self._node_name, says=changes)
            self.refresh()
            self._enable()

    def refresh(self) -> None:
        """Computes the render options anew, of the Node and of the addresses that interfaces have now."""
        with self._lock:
            for member in self._members:
                try:
                    member.proxier.set_options(member.host.options(self._config, self.target, self.service_cidrs))
                except (LinuxError, InputError) as error:
                    event(
                        "cannot take what the node says, what was known stays",
                        level=logging.ERROR,
                        family=member.host.family.value,
                        error=str(error),
                    )

    def _enable(self) -> None:
        if self._enabled or not (self._synced and self._members) or self.waits_for_node:
            return
        self._enabled = True
        for member in self._members:
            member.proxier.enable()


def keep_lost(known: Node | None, node: Node) -> Node:
    """A Node, with the podCIDRs and addresses that were known before where it has none.

    A kubelet that registers its Node again does so without podCIDRs, and a cloud's controller sets the addresses later.
    """
    if known is None:
        return node
    return msgspec.structs.replace(
        node,
        pod_cidrs=node.pod_cidrs or known.pod_cidrs,
        addresses=node.addresses if host_ips(node) else known.addresses,
    )


def describe_changes(old: Node | None, new: Node) -> dict[str, str]:
    """What of a Node that decides rules is different now, for a log line: empty if nothing is."""
    parts = {
        "labels": (old.metadata.labels if old else {}, new.metadata.labels),
        "podCIDRs": (old.pod_cidrs if old else (), new.pod_cidrs),
        "addresses": (old.addresses if old else (), new.addresses),
    }
    shown = {
        "podCIDRs": ",".join(new.pod_cidrs),
        "addresses": ",".join(address.address for address in new.addresses),
        "labels": ",".join(f"{name}={value}" for name, value in sorted(new.metadata.labels.items())),
    }
    return {name: shown[name] or "(none)" for name, (before, after) in parts.items() if before != after or old is None}
