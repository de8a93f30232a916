"""The backend of nftables mode: the table of a family of this host, through nft."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

import msgspec

from kproxy.api.kubeproxyconfig.types import MODE_NFTABLES, KubeProxyConfiguration
from kproxy.api.types.networking import ServiceCIDR
from kproxy.cluster.stale_flows import Addresses
from kproxy.linux.conntrack.programmed import table_addresses
from kproxy.linux.generation import Ledger
from kproxy.linux.host.rules import read_host_rules
from kproxy.linux.namespace import Namespace
from kproxy.linux.nftables.binary import Nft, find_nft
from kproxy.linux.nftables.executor import NftExecutor
from kproxy.linux.nftables.preflight import run_preflight
from kproxy.linux.sync.backend import Backend, Host, NodeRequest, Prepared, node_options, prepare_families
from kproxy.linux.sync.finding import Compared
from kproxy.linux.sync.nftables.describe import compare_table
from kproxy.linux.sync.nftables.desired import DesiredTable, desired_table
from kproxy.linux.sync.nftables.reconcile import reconcile_table
from kproxy.linux.sync.nftables.syncer import TableSyncer
from kproxy.linux.sync.report import FamilyReport, Progress
from kproxy.render import Features, RenderedTable, RenderOptions, Target
from kproxy.services import IPFamily, ServiceState


class TableFamily(Backend, frozen=True):
    """One family that this host can program.

    Attributes:
        features: say whether chains and sets can have comments.
        ledger: counts the transactions of all executors of the namespace.
    """

    nft: Nft
    features: Features = Features()
    ledger: Ledger | None = None

    @property
    def tool(self) -> str:
        return str(self.nft)

    def options(
        self, config: KubeProxyConfiguration, target: Target, service_cidrs: Sequence[ServiceCIDR] = ()
    ) -> RenderOptions:
        return node_options(config, target, self.namespace, self.family, self.features, service_cidrs=service_cidrs)

    def executor(self) -> NftExecutor:
        """What reads and writes the table."""
        return NftExecutor(self.namespace, self.nft, self.family, ledger=self.ledger)

    def render(self, request: NodeRequest) -> PreparedTable:
        state = ServiceState.of(self.family, request.target.node_name, request.services, request.endpoint_slices)
        rendered = RenderedTable.of(state, self.options(request.config, request.target, request.service_cidrs))
        return PreparedTable(
            self.family, state, rendered.options, self, self.executor(), rendered, desired_table(rendered)
        )

    def syncer(self, state: ServiceState, options: RenderOptions) -> TableSyncer:
        return TableSyncer(self.executor(), state, options, self.namespace)


class PreparedTable(Prepared, frozen=True):
    """One family, ready to be compared or written."""

    host: TableFamily
    executor: NftExecutor
    rendered: RenderedTable
    desired: DesiredTable

    def reconcile(
        self, namespace: Namespace, *, dry_run: bool = False, progress: Progress | None = None
    ) -> tuple[FamilyReport, Callable[[], Addresses]]:
        outcome = reconcile_table(self.executor, self.desired, namespace, dry_run=dry_run, progress=progress)
        return outcome.report, lambda: table_addresses(outcome.difference.before)

    def compare(self, namespace: Namespace) -> Compared:
        read = partial(read_host_rules, namespace, namespace.label, families=(self.family,))
        return compare_table(self.rendered, self.desired, self.executor, read)


def prepare_nftables(namespace: Namespace, families: tuple[IPFamily, ...], asked: Features) -> Host:
    """Finds out what the host can do. Nothing is written. See `prepare_host`."""
    nft = find_nft()

    def prepare(family: IPFamily) -> TableFamily:
        preflight = run_preflight(NftExecutor(namespace, nft, family))
        preflight.check()
        comments = asked.object_comments and preflight.object_comments
        return TableFamily(family, namespace, nft, msgspec.structs.replace(asked, object_comments=comments))

    found, left_out = prepare_families(families or tuple(IPFamily), prepare, demand_all=bool(families))
    return Host(MODE_NFTABLES, f"mode nftables, {nft}", found, left_out)
