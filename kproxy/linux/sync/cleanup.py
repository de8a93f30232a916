"""`cleanup`: removes every rule and chain of kube-proxy's, and so of kproxy's, and nothing else.

Both modes, both variants of iptables and both families are looked at; a legacy table that does not exist is not made by
looking. A chain that another program's chain leads to has to stay, with what it leads to; it is reported. KUBE-FIREWALL
is shared with the kubelet: kube-proxy's own `--cleanup` always leaves it, we leave it when a kubelet's canary chain
shows that there is one.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Iterator, Mapping

import msgspec

from kproxy.api.kubeproxyconfig.types import MODE_NFTABLES
from kproxy.cluster.stale_flows import Addresses
from kproxy.linux.conntrack.programmed import programmed_addresses, table_addresses
from kproxy.linux.errors import INTERRUPTS, ApplyFailedError, KernelState, LinuxError, ToolMissingError, failure_message
from kproxy.linux.host.facts import read_link_names
from kproxy.linux.iptables import nfacct
from kproxy.linux.iptables.executor import COMMAND, Iptables, IptablesExecutor, installed
from kproxy.linux.iptables.legacy import DEFAULT_WAIT, legacy_tables
from kproxy.linux.namespace import Namespace
from kproxy.linux.nfnetlink import has_table
from kproxy.linux.nftables.executor import NftExecutor, find_nft
from kproxy.linux.nftables.readback import read_table
from kproxy.linux.programs import find_program, not_found
from kproxy.linux.sync.iptables.reconcile import cleanup_tables, read_dump
from kproxy.linux.sync.nftables.reconcile import cleanup_table
from kproxy.linux.sync.report import CleanedTables, Progress, StepTime, Stopwatch
from kproxy.netfilter.hooks import Variant
from kproxy.render.ipvs.renderer import DEVICE
from kproxy.render.nftables.names import TABLE, nft_family
from kproxy.services.names import IPFamily


class CleanupReport(msgspec.Struct, frozen=True, rename="camel"):
    """What `cleanup` did, or with `dry_run` would do."""

    where: str
    dry_run: bool
    tables: tuple[CleanedTables, ...]
    counters: tuple[str, ...]
    notes: tuple[str, ...]
    steps: tuple[StepTime, ...]


def cleanup(
    namespace: Namespace, *, dry_run: bool = False, lock_wait: float = DEFAULT_WAIT, progress: Progress | None = None
) -> CleanupReport:
    """Removes all that is kube-proxy's from a namespace, of both modes.

    Raises:
        ToolMissingError: neither iptables nor nft is installed.
        LinuxError: something cannot be read; it and what comes after it are unchanged.
        ApplyFailedError: removing failed; the error says what state that left.
    """
    watch = Stopwatch()
    try:
        found = _installed(tuple(IPFamily))
    except (LinuxError, *INTERRUPTS) as error:
        raise ApplyFailedError(failure_message(error), KernelState.UNCHANGED) from error
    if not found and find_program("nft") is None:
        raise ToolMissingError(
            "neither iptables nor nft is installed, so nothing can be read or removed\nstate: unchanged"
        )
    cleaner = _Cleaner(namespace, watch, lock_wait, dry_run=dry_run)
    cleaner.iptables(found, progress=progress)
    counters = () if dry_run else tuple(nfacct.delete_counters(namespace))
    cleaner.nftables(tuple(IPFamily))
    notes = _unreachable(namespace, found)
    if DEVICE in read_link_names(namespace):
        from kproxy.linux.sync.ipvs_host import cleanup_ipvs  # what few need

        with cleaner.part("ipvs"):
            notes.append(cleanup_ipvs(namespace, dry_run=dry_run))
    return CleanupReport(namespace.label, dry_run, tuple(cleaner.cleaned), counters, tuple(notes), tuple(watch.times))


Seen = Callable[[IPFamily, Addresses], None]
"""Called with where rules that are removed sent UDP and SCTP."""


def cleanup_other_mode(
    mode: str,
    namespace: Namespace,
    families: tuple[IPFamily, ...],
    *,
    dry_run: bool = False,
    lock_wait: float,
    seen: Seen = lambda _family, _addresses: None,
) -> list[CleanedTables]:
    """Removes what is kube-proxy's of the mode that is not in use, once the rules of the one in use are there.

    kube-proxy does this at its start, before it has written anything; packets then meet no rules for a while.

    Args:
        mode: the one in use.
        seen: connection tracking entries that they made, until they were gone, may be stale.

    Raises:
        LinuxError: something cannot be read or removed.
    """
    cleaner = _Cleaner(namespace, Stopwatch(), lock_wait, dry_run=dry_run)
    if mode == MODE_NFTABLES:
        cleaner.iptables(_installed(families), seen=seen)
        if not dry_run and any(each.chains_deleted for each in cleaner.cleaned):
            nfacct.delete_counters(namespace)
    else:
        cleaner.nftables(families, seen)
    found = cleaner.cleaned
    return [each for each in found if each.chains_deleted or each.jumps_deleted or each.sets_deleted or each.kept]


def _installed(families: tuple[IPFamily, ...]) -> dict[tuple[IPFamily, Variant], Iptables]:
    return {(family, variant): tools for family in families for variant, tools in installed(family).items()}


class _Cleaner:
    """Removes one part after the other, and keeps in `cleaned` what was removed."""

    def __init__(self, namespace: Namespace, watch: Stopwatch, lock_wait: float, *, dry_run: bool) -> None:
        self.cleaned: list[CleanedTables] = []
        self._namespace = namespace
        self._watch = watch
        self._lock_wait = lock_wait
        self._dry_run = dry_run

    @contextlib.contextmanager
    def part(self, name: str) -> Iterator[None]:
        """Times a part, and says of a failure which it was and what was cleaned up before."""
        try:
            with self._watch.step(name):
                yield
        except (LinuxError, *INTERRUPTS) as error:
            raise _after(error, name, self.cleaned) from error

    def iptables(
        self,
        found: Mapping[tuple[IPFamily, Variant], Iptables],
        seen: Seen | None = None,
        progress: Progress | None = None,
    ) -> None:
        for (family, variant), tools in found.items():
            with self.part(f"{family.value} {variant.value}"):
                executor = IptablesExecutor(self._namespace, tools, lock_wait=self._lock_wait)
                if seen is not None:
                    seen(family, programmed_addresses(read_dump(executor, counters=False)))
                self.cleaned.append(cleanup_tables(executor, dry_run=self._dry_run, progress=progress))

    def nftables(self, families: Iterable[IPFamily], seen: Seen | None = None) -> None:
        """Without nft the kernel is asked: a container with the host's network may lack a tool that the host has."""
        nft = None if find_program("nft") is None else find_nft()
        for family in families:
            with self.part(f"{family.value} nftables"):
                if nft is None:
                    _demand_no_table(self._namespace, family)
                    continue
                executor = NftExecutor(self._namespace, nft, family)
                if seen is not None:
                    seen(family, table_addresses(read_table(executor).table))
                self.cleaned.append(cleanup_table(executor, dry_run=self._dry_run))


def _demand_no_table(namespace: Namespace, family: IPFamily) -> None:
    """Raises ToolMissingError: it is there, and there is no nft to remove it with."""
    if has_table(namespace, family, TABLE):
        raise ToolMissingError(
            f"packets still meet the rules of the table {nft_family(family)} {TABLE}; it stays, since removing it "
            f"needs nft: {not_found('nft')}"
        )


def _unreachable(namespace: Namespace, found: dict[tuple[IPFamily, Variant], Iptables]) -> list[str]:
    absent = [family for family in IPFamily if not any(each is family for each, _ in found)]
    return [
        f"{family.value} was not looked at: {COMMAND[family]} is not installed, so what its tables hold is not known"
        for family in absent
    ] + [
        f"legacy tables of {family.value} exist ({', '.join(tables)}) and were not looked at: "
        f"{COMMAND[family]}-legacy is not installed"
        for family in IPFamily
        if (family, Variant.LEGACY) not in found and (tables := namespace.call(legacy_tables, family))
    ]


def _after(error: BaseException, name: str, cleaned: list[CleanedTables]) -> ApplyFailedError:
    state = error.state if isinstance(error, ApplyFailedError) else KernelState.UNCHANGED
    what = f"{name}: {failure_message(error)}"
    done = [f"{each.family} {each.variant}" for each in cleaned if each.chains_deleted]
    if not done:
        return ApplyFailedError(what, state, getattr(error, "detail", ""))
    return ApplyFailedError(
        what, KernelState.PARTLY_APPLIED, f"{', '.join(done)} are cleaned up, {name} is {state.value}"
    )
