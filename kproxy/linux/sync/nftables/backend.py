"""The backend of nftables mode: the table of a family of this host, through nft.

`TableSyncer` keeps it up with a changing cluster, as `kproxy.linux.sync.iptables.backend.Syncer` does chains: what
changed is rendered again and written as one transaction that names nothing else; with `resync` everything is compared
with the kernel.

Chains that are not wanted any more are emptied with the transaction that ends their use, and deleted by a later sync,
at least `STALE` seconds afterwards, as kube-proxy v1.36 does it: kernels before 6.2 refuse to delete them at once. What
cannot be deleted then is counted and found again by the next comparison.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Sequence
from functools import partial

import msgspec

from kproxy.api.kubeproxyconfig.types import MODE_NFTABLES, KubeProxyConfiguration
from kproxy.api.types.networking import ServiceCIDR
from kproxy.cluster.stale_flows import Addresses, previous_addresses
from kproxy.linux.conntrack.programmed import table_addresses
from kproxy.linux.errors import LinuxError, UnreadableDumpError
from kproxy.linux.host.rules import read_host_rules
from kproxy.linux.namespace import Namespace
from kproxy.linux.nfnetlink import Ledger
from kproxy.linux.nftables.executor import Nft, NftExecutor, find_nft
from kproxy.linux.nftables.preflight import run_preflight
from kproxy.linux.nftables.readback import parse_listing, read_awake
from kproxy.linux.nftables.table import (
    STALE,
    Change,
    SetText,
    deletion_script,
    describe_change,
    difference,
    plan_transactions,
)
from kproxy.linux.sync.backend import Backend, Host, NodeRequest, Prepared, node_options, prepare_families
from kproxy.linux.sync.family_syncer import FamilySyncer, SyncReport
from kproxy.linux.sync.finding import Compared
from kproxy.linux.sync.nftables.describe import compare_table
from kproxy.linux.sync.nftables.desired import DesiredTable, desired_table, table_text
from kproxy.linux.sync.nftables.reconcile import find_table_difference, reconcile_table, write_transactions
from kproxy.linux.sync.report import FamilyReport, Progress, Stopwatch
from kproxy.render import Features, RenderedTable, RenderOptions, Target
from kproxy.render.nftables.renderer import Change as RenderedChange
from kproxy.render.nftables.renderer import Renderer
from kproxy.services import Changes, IPFamily, ServicePortName, ServiceState


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


TABLE_KEY = "kube-proxy"
"""What the rules of the one table are counted under."""


class TableSyncer(FamilySyncer):
    """Writes the table of one family.

    Invariants: while `needs_resync` is false, the kernel holds what the renderer holds, and the empty chains of
    `_stale` besides, unless another program changed it since.

    Args:
        namespace: where connection tracking entries that a change made stale are deleted; None leaves them alone.
        clock: seconds that do not go back.
    """

    def __init__(
        self,
        executor: NftExecutor,
        state: ServiceState,
        options: RenderOptions,
        namespace: Namespace | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        super().__init__(state, namespace)
        self._executor = executor
        self._renderer = Renderer(options)
        self._clock = clock
        self._stale: dict[str, float] = {}
        self._foreign: tuple[str, ...] = ()
        self._rules = 0
        self._cleanup_failures = 0

    @property
    def rendered_options(self) -> RenderOptions:
        return self._renderer.options

    @property
    def fingerprint(self) -> Callable[[], object | None]:
        return self._executor.fingerprint

    def rendered(self) -> RenderedTable:
        return RenderedTable.of(*self.snapshot())

    def rule_totals(self) -> dict[str, int]:
        """How many rules the table holds."""
        return {TABLE_KEY: self._rules}

    def _write_all(self, watch: Stopwatch, notes: list[str]) -> tuple[SyncReport, Callable[[], Addresses]]:
        with watch.step("render"):
            if self._options is not None:
                self._renderer, self._options = Renderer(self._options), None
            self._renderer.render(self._state)
            desired = table_text(self._renderer)
        self._delete_stale(notes)
        with watch.step("read"):
            listing, woken = read_awake(self._executor, desired)
        with watch.step("compare"):
            found = find_table_difference(desired, listing).after(woken)
            # Chains that are empty already only wait for their deletion.
            change = _without(found.change, {each for each in found.change.stale_chains if each in self._stale})
            transactions = plan_transactions(change)
        with watch.step("write"):
            write_transactions(self._executor, transactions)
            self._note_stale(found.change.stale_chains, desired.chains)
        self._rules = sum(map(len, desired.rules.values()))
        self._foreign = listing.foreign
        notes += [f"{each} in table {desired.name} is not kube-proxy's, and stays" for each in listing.foreign]
        report = self._report(change, len(change.rules.keys() | change.chains.keys()))
        if change:
            report = msgspec.structs.replace(report, found=describe_change(found.change))
        return report, lambda: table_addresses(found.before)

    def _read(self) -> str | None:
        return self._executor.list_table()

    def _comparison(self, give_way: Callable[[], None]) -> Callable[[str | None], bool]:
        desired = table_text(self._renderer)

        def is_as_wanted(text: str | None) -> bool:
            try:
                listing = parse_listing(text or "", desired, give_way)
            except UnreadableDumpError:
                return False
            change = find_table_difference(desired, listing).change
            # What others have put there is told by `resync`, once.
            return listing.foreign == self._foreign and not _without(change, self._stale.keys())

        return is_as_wanted

    def _write_changes(self, changes: Changes, watch: Stopwatch, notes: list[str]) -> SyncReport:
        with watch.step("render"):
            change = self._plan(changes.touched)
        self._delete_stale(notes, keep=change.rules.keys() | change.chains.keys())
        with watch.step("write"):
            self._flows.remember(previous_addresses(changes))
            write_transactions(self._executor, plan_transactions(change))
            self._note_stale(change.stale_chains, change.rules)
        return self._report(change, len(change.rules))

    def _report(self, change: Change, chains: int) -> SyncReport:
        failures, self._cleanup_failures = self._cleanup_failures, 0  # since this was last asked
        return SyncReport(
            chains_written=chains,
            chains_deleted=len(change.stale_chains),
            rules_written={TABLE_KEY: sum(map(len, change.rules.values()))},
            elements_written=len(change.elements) + len(change.stale_elements),
            cleanup_failures=failures,
        )

    def _plan(self, touched: Collection[ServicePortName]) -> Change:
        if self._options is not None:
            before = table_text(self._renderer)
            self._renderer, self._options = Renderer(self._options), None
            self._renderer.render(self._state)
            after = table_text(self._renderer)
            self._rules = sum(map(len, after.rules.values()))
            return difference(before, after)
        old = {name: self._renderer.chains_of(name) for name in touched}
        rendered = self._renderer.update(self._state, touched)
        known = {chain: rules for chains in old.values() for chain, rules in chains.items()}
        for chain, rules in rendered.chains.items():
            self._rules += len(rules) - len(known.get(chain, ()))
        self._rules -= sum(len(known.get(chain, ())) for chain in rendered.stale_chains)
        return self._change(rendered, known)

    def _change(self, rendered: RenderedChange, known: dict[str, tuple[str, ...]]) -> Change:
        """What the renderer says changed, as a change of the table in the kernel.

        Args:
            known: the chains, with rules, that the touched ServicePorts had.
        """
        again = dict(rendered.chains)
        replaced = frozenset(rendered.sets.keys() & self._sets_of(known))
        if replaced:
            # The rules that name such a set must go before it, though they stay the same.
            names = {f"@{name}" for name in replaced}
            for chain, rules in known.items():
                if chain not in rendered.stale_chains and any(names & set(rule.split()) for rule in rules):
                    again.setdefault(chain, rules)
        new = {chain: "" for chain in again if chain not in known and chain not in self._stale}
        return Change(
            table=self._executor.table,
            chains=new,
            rules=again,
            sets={name: SetText("set", definition) for name, definition in rendered.sets.items()},
            replaced_sets=replaced,
            elements=rendered.elements,
            stale_elements=tuple(rendered.stale_elements),
            stale_sets=rendered.stale_sets,
            stale_chains=rendered.stale_chains,
        )

    @staticmethod
    def _sets_of(chains: dict[str, tuple[str, ...]]) -> set[str]:
        return {word[1:] for rules in chains.values() for rule in rules for word in rule.split() if word[0] == "@"}

    def _note_stale(self, stale: Collection[str], used: Collection[str]) -> None:
        now = self._clock()
        for chain in stale:
            self._stale.setdefault(chain, now)
        for chain in list(self._stale):
            if chain in used:
                del self._stale[chain]

    def _delete_stale(self, notes: list[str], keep: Collection[str] = ()) -> None:
        """Deletes the chains that have been stale for long enough. That it fails is no failure of the sync."""
        before = self._clock() - STALE
        doomed = [chain for chain, since in self._stale.items() if since < before and chain not in keep]
        if not doomed:
            return
        for chain in doomed:
            del self._stale[chain]
        try:
            self._executor.run(deletion_script(self._executor.table, doomed))
        except LinuxError as error:
            self._cleanup_failures += 1
            notes.append(f"{len(doomed)} chains that are not used could not be deleted, the next check does: {error}")


def _without(change: Change, waiting: Collection[str]) -> Change:
    """A change without stale chains that are empty already."""
    stale = tuple(chain for chain in change.stale_chains if chain not in waiting)
    return msgspec.structs.replace(change, stale_chains=stale)
