"""What this host can do in nftables mode, and one node's table for that.

`prepare_tables_host` is for everything that programs a host; `prepare_tables` adds what each family's table should hold
for one state of a cluster. A family that the host cannot do is left alone, unless it was asked for, as in iptables
mode.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

import msgspec

from kproxy.api.kubeproxyconfig.types import KubeProxyConfiguration
from kproxy.api.types.networking import ServiceCIDR
from kproxy.cluster.stale_flows import Addresses
from kproxy.linux.conntrack.table_addresses import table_addresses
from kproxy.linux.generation import Ledger
from kproxy.linux.namespace import Namespace
from kproxy.linux.nftables.binary import Nft, find_nft
from kproxy.linux.nftables.executor import NftExecutor
from kproxy.linux.nftables.preflight import run_preflight
from kproxy.linux.sync.nftables.desired import DesiredTable, desired_table
from kproxy.linux.sync.nftables.reconcile import MODE, reconcile_table
from kproxy.linux.sync.prepare import NodeRequest, node_options, prepare_families
from kproxy.linux.sync.progress import Progress
from kproxy.linux.sync.report import FamilyReport
from kproxy.render import Features, RenderedTable, RenderOptions, Target
from kproxy.services import IPFamily, ServiceState

REASON: Final = "mode nftables"


class TableFamily(msgspec.Struct, frozen=True):
    """One family that this host can program.

    Attributes:
        features: say whether chains and sets can have comments.
        ledger: counts the transactions of all executors of the namespace.
    """

    family: IPFamily
    namespace: Namespace
    nft: Nft
    features: Features = Features()
    ledger: Ledger | None = None

    def options(
        self, config: KubeProxyConfiguration, target: Target, service_cidrs: Sequence[ServiceCIDR] = ()
    ) -> RenderOptions:
        """What to render with. Raises LinuxError."""
        return node_options(config, target, self.namespace, self.family, self.features, service_cidrs=service_cidrs)

    def executor(self) -> NftExecutor:
        """What reads and writes the table."""
        return NftExecutor(self.namespace, self.nft, self.family, ledger=self.ledger)


class TablesHost(msgspec.Struct, frozen=True):
    """What can be programmed; `left_out` says why other families cannot."""

    nft: Nft
    families: tuple[TableFamily, ...]
    left_out: tuple[str, ...] = ()

    @property
    def notes(self) -> tuple[str, ...]:
        """What the user should know."""
        return self.left_out


class PreparedTable(msgspec.Struct, frozen=True):
    """One family, ready to be compared or written."""

    host: TableFamily
    executor: NftExecutor
    rendered: RenderedTable
    desired: DesiredTable

    @property
    def family(self) -> IPFamily:
        return self.host.family

    @property
    def state(self) -> ServiceState:
        """The ServicePorts and endpoints that are wanted."""
        return self.rendered.state

    def reconcile(
        self, namespace: Namespace, *, dry_run: bool = False, progress: Progress | None = None
    ) -> tuple[FamilyReport, Callable[[], Addresses]]:
        """Brings the kernel to the desired table; see `reconcile_table`."""
        outcome = reconcile_table(self.executor, self.desired, namespace, dry_run=dry_run, progress=progress)
        return outcome.report, lambda: table_addresses(outcome.difference.before)


class PreparedTables(msgspec.Struct, frozen=True):
    """The host, and the families of the node that can be programmed."""

    host: TablesHost
    families: tuple[PreparedTable, ...]

    @property
    def variant(self) -> str:
        return MODE

    @property
    def reason(self) -> str:
        return f"{REASON}, {self.host.nft}"

    @property
    def notes(self) -> tuple[str, ...]:
        """What the user should know."""
        return self.host.notes


def prepare_tables_host(
    namespace: Namespace, families: tuple[IPFamily, ...] = (), features: Features | None = None
) -> TablesHost:
    """Finds out what the host can do. Nothing is written.

    Args:
        families: those that must work; both if empty, as far as the host has them.

    Raises:
        LinuxError: it cannot be programmed.
    """
    nft = find_nft()
    asked = features or Features()

    def prepare(family: IPFamily) -> TableFamily:
        preflight = run_preflight(NftExecutor(namespace, nft, family))
        preflight.check()
        comments = asked.object_comments and preflight.object_comments
        return TableFamily(family, namespace, nft, msgspec.structs.replace(asked, object_comments=comments))

    return TablesHost(nft, *prepare_families(families or tuple(IPFamily), prepare, demand_all=bool(families)))


def prepare_tables(request: NodeRequest, namespace: Namespace) -> PreparedTables:
    """Finds out what the host can do and renders for it. Raises as `prepare_tables_host`."""
    host = prepare_tables_host(namespace, request.families, request.features)
    return PreparedTables(host, tuple(_render_family(request, family) for family in host.families))


def _render_family(request: NodeRequest, host: TableFamily) -> PreparedTable:
    state = ServiceState.of(host.family, request.target.node_name, request.services, request.endpoint_slices)
    rendered = RenderedTable.of(state, host.options(request.config, request.target, request.service_cidrs))
    return PreparedTable(host, host.executor(), rendered, desired_table(rendered))
