"""The interface of a mode: what programs one family of a host, whether by iptables or by nftables.

A `Backend` is a family that the host can program; `render` gives what its part of the kernel should hold, as something
`Prepared` that reads, compares, writes and reports. Whoever applies or keeps rules knows these, and no mode.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import TypeVar

import msgspec

from kproxy.api.kubeproxyconfig.types import KubeProxyConfiguration
from kproxy.api.types.core import Service
from kproxy.api.types.discovery import EndpointSlice
from kproxy.api.types.networking import ServiceCIDR
from kproxy.cluster.stale_flows import Addresses
from kproxy.linux.errors import FeatureMissingError
from kproxy.linux.host.facts import interface_addresses, is_this_node
from kproxy.linux.iptables.legacy import DEFAULT_WAIT
from kproxy.linux.iptables.variant import Choice
from kproxy.linux.namespace import Namespace
from kproxy.linux.nfnetlink import Ledger
from kproxy.linux.sync.family_syncer import FamilySyncer
from kproxy.linux.sync.finding import Compared
from kproxy.linux.sync.report import FamilyReport, Progress
from kproxy.netfilter.hooks import Variant
from kproxy.render import Features, RenderOptions, Target, render_options
from kproxy.services import IPFamily, NodePortAddresses, ServiceState

FamilyT = TypeVar("FamilyT")


class NodeRequest(msgspec.Struct, frozen=True):
    """What is wanted of a node.

    Attributes:
        families: those asked for; both if empty, as far as the host has them.
        variant: None for auto.
        features: which optional features to use if the host has them.
        lock_wait: seconds to wait for the xtables lock.
        libiptc: whether legacy tables that were written are read back through libiptc too.
        service_cidrs: the ranges of ClusterIPs, for which nftables mode has rules.
        config_known: whether anything says how kube-proxy is configured; `config` has its defaults otherwise.
        counters_known: whether `features` says if rules count packets with nfacct; else a comparison takes what is
            there.
    """

    target: Target
    config: KubeProxyConfiguration
    services: Sequence[Service]
    endpoint_slices: Sequence[EndpointSlice]
    families: tuple[IPFamily, ...] = ()
    variant: Variant | None = None
    features: Features = Features()
    lock_wait: float = DEFAULT_WAIT
    libiptc: bool = False
    service_cidrs: Sequence[ServiceCIDR] = ()
    config_known: bool = True
    counters_known: bool = True


class Prepared(msgspec.Struct, frozen=True):
    """One family, ready to be compared or written; `state` has the ServicePorts and endpoints that are wanted."""

    family: IPFamily
    state: ServiceState
    options: RenderOptions

    @property
    def notes(self) -> Sequence[str]:
        """What the user should know of it."""
        return ()

    def reconcile(
        self, namespace: Namespace, *, dry_run: bool = False, progress: Progress | None = None
    ) -> tuple[FamilyReport, Callable[[], Addresses]]:
        """Brings the kernel to what is wanted, reads back, and says where rules sent traffic before.

        Raises:
            LinuxError: nothing could be read, so nothing was tried.
            ApplyFailedError: it could not be done; its `state` says what the kernel was left in.
        """
        raise NotImplementedError

    def compare(self, namespace: Namespace) -> Compared:
        """Every difference between the kernel and what is wanted. Raises LinuxError: it cannot be read."""
        raise NotImplementedError

    def read_again(self) -> Sequence[str]:
        """Notes where a second way of reading what was written disagrees; none if there is no such way."""
        return ()


class Backend(msgspec.Struct, frozen=True):
    """One family that a host can program.

    Attributes:
        tool: the program that reads and writes, with its version.
        variant: of iptables; None for nftables.
        counts_packets: whether its rules count packets with nfacct.
    """

    family: IPFamily
    namespace: Namespace

    @property
    def tool(self) -> str:
        raise NotImplementedError

    @property
    def variant(self) -> Variant | None:
        return None

    @property
    def counts_packets(self) -> bool:
        return False

    def own(self, namespace: Namespace, ledger: Ledger) -> Backend:
        """The same in a namespace of its own, whose transactions are counted in a ledger."""
        return msgspec.structs.replace(self, namespace=namespace, ledger=ledger)

    def options(
        self, config: KubeProxyConfiguration, target: Target, service_cidrs: Sequence[ServiceCIDR] = ()
    ) -> RenderOptions:
        """What to render with. Raises LinuxError: the node's addresses cannot be read."""
        raise NotImplementedError

    def notes(self) -> Iterable[str]:
        """What the user should know."""
        return ()

    def render(self, request: NodeRequest) -> Prepared:
        """What the kernel should hold. Raises LinuxError."""
        raise NotImplementedError

    def syncer(self, state: ServiceState, options: RenderOptions) -> FamilySyncer:
        """What keeps the kernel up with a state that changes."""
        raise NotImplementedError


class Host(msgspec.Struct, frozen=True):
    """What can be programmed, and why it is that.

    Attributes:
        variant: of iptables, or `nftables`.
        left_out: why other families cannot be programmed.
        choice: how the variant of iptables was chosen; None in nftables mode.
    """

    variant: str
    reason: str
    families: tuple[Backend, ...]
    left_out: tuple[str, ...] = ()
    choice: Choice | None = None

    @property
    def general_notes(self) -> tuple[str, ...]:
        """What the user should know, whatever is rendered."""
        return (*(self.choice.notes if self.choice is not None else ()), *self.left_out)

    @property
    def notes(self) -> tuple[str, ...]:
        """What the user should know."""
        return (*self.general_notes, *(note for family in self.families for note in family.notes()))


def prepare_families(
    families: Iterable[IPFamily], prepare: Callable[[IPFamily], FamilyT], *, demand_all: bool
) -> tuple[tuple[FamilyT, ...], tuple[str, ...]]:
    """The families that the host can do, and of the others why not.

    As kube-proxy does: a family that the host cannot do is left alone, unless it was asked for or is the last.

    Raises:
        LinuxError: see `prepare`.
    """
    found: list[FamilyT] = []
    left_out: list[str] = []
    refused: FeatureMissingError | None = None
    for family in families:
        try:
            found.append(prepare(family))
        except FeatureMissingError as error:
            if demand_all:
                raise
            refused = refused or error
            left_out.append(f"{family.value} is left alone: {error}")
    if refused is not None and not found:
        raise refused
    return tuple(found), tuple(left_out)


def node_options(
    config: KubeProxyConfiguration,
    target: Target,
    namespace: Namespace,
    family: IPFamily,
    features: Features,
    no_addrtype: bool = False,
    service_cidrs: Iterable[ServiceCIDR] = (),
) -> RenderOptions:
    """The render options of one family, with the namespace's interface addresses where they matter and are the node's.

    Args:
        no_addrtype: the host cannot match local addresses, so every address a packet has is taken for a node port's.

    Raises:
        LinuxError: the addresses cannot be read.
    """
    options = render_options(config, family, target.node_name, target.node, features, service_cidrs=service_cidrs)
    if no_addrtype and options.node_port_addresses.match_all:
        everything = NodePortAddresses(False, ("::/0" if family.is_ipv6 else "0.0.0.0/0",))
        options = msgspec.structs.replace(options, node_port_addresses=everything)
    if not options.node_port_addresses.match_all:
        addresses = interface_addresses(namespace, family)
        if is_this_node(addresses, options.node_ip):
            options = msgspec.structs.replace(options, interface_addresses=addresses)
    return options
