"""What this host can do in a mode, and one node's rules rendered for that: where a mode becomes a backend."""

from __future__ import annotations

import msgspec

from kproxy.api.kubeproxyconfig.types import MODE_IPVS, MODE_NFTABLES
from kproxy.linux.iptables.lock import DEFAULT_WAIT
from kproxy.linux.namespace import Namespace
from kproxy.linux.sync.backend import Host, NodeRequest, Prepared
from kproxy.linux.sync.iptables_host import prepare_iptables
from kproxy.linux.sync.nftables_host import prepare_nftables
from kproxy.netfilter.hooks import Variant
from kproxy.render import Features
from kproxy.services import IPFamily


class PreparedNode(msgspec.Struct, frozen=True):
    """The host, and the families of the node that can be programmed."""

    host: Host
    families: tuple[Prepared, ...]

    @property
    def notes(self) -> tuple[str, ...]:
        """What the user should know."""
        return (*self.host.general_notes, *(note for family in self.families for note in family.notes))


def prepare_host(
    mode: str,
    namespace: Namespace,
    families: tuple[IPFamily, ...] = (),
    variant: Variant | None = None,
    features: Features | None = None,
    lock_wait: float = DEFAULT_WAIT,
    *,
    writes: bool = True,
) -> Host:
    """Finds out what the host can do in a mode.

    Args:
        families: those that must work; both if empty, as far as the host has them.
        variant: of iptables; None for auto.
        features: which optional features to use if the host has them.
        lock_wait: seconds to wait for the xtables lock.
        writes: whether the namespace may be written to: counters, and rules to try where no scratch namespace can be
            made.

    Raises:
        LinuxError: it cannot be programmed.
    """
    features = features or Features(nfacct=mode != MODE_NFTABLES)
    if mode == MODE_NFTABLES:
        return prepare_nftables(namespace, families, features)
    if mode == MODE_IPVS:
        from kproxy.linux.sync.ipvs_host import ipvs_host  # what few need

        plain = msgspec.structs.replace(features, nfacct=False)
        return ipvs_host(prepare_iptables(namespace, families, variant, plain, lock_wait, writes=writes))
    return prepare_iptables(namespace, families, variant, features, lock_wait, writes=writes)


def prepare_node(request: NodeRequest, namespace: Namespace, *, writes: bool) -> PreparedNode:
    """Finds out what the host can do and renders for it. Raises as `prepare_host`."""
    wanted = (request.families, request.variant, request.features, request.lock_wait)
    host = prepare_host(request.config.mode, namespace, *wanted, writes=writes)
    return PreparedNode(host, tuple(family.render(request) for family in host.families))
