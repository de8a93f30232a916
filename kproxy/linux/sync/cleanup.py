"""`cleanup`: removes every rule and chain of kube-proxy's, and so of kproxy's, and nothing else.

Both modes, both variants of iptables and both families are looked at; a legacy table that does not exist is not made by
looking. A chain that another program's chain leads to has to stay, with what it leads to; it is reported. KUBE-FIREWALL
is shared with the kubelet: kube-proxy's own `--cleanup` always leaves it, we leave it when a kubelet's canary chain
shows that there is one.
"""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from kproxy.api.kubeproxyconfig.types import MODE_NFTABLES
from kproxy.cluster.stale_flows import Addresses
from kproxy.linux.conntrack.programmed import programmed_addresses, table_addresses
from kproxy.linux.errors import INTERRUPTS, ApplyFailedError, KernelState, LinuxError, ToolMissingError, failure_message
from kproxy.linux.host.facts import read_link_names
from kproxy.linux.iptables import nfacct
from kproxy.linux.iptables.binaries import COMMAND, Iptables, installed
from kproxy.linux.iptables.executor import Executor, IptablesExecutor
from kproxy.linux.iptables.legacy import legacy_tables
from kproxy.linux.iptables.lock import DEFAULT_WAIT
from kproxy.linux.iptables.ownership import removable_chains
from kproxy.linux.namespace import Namespace
from kproxy.linux.nf_tables import has_table
from kproxy.linux.nftables.binary import find_nft
from kproxy.linux.nftables.executor import NftExecutor
from kproxy.linux.nftables.readback import read_table
from kproxy.linux.programs import find_program, not_found
from kproxy.linux.sync.jumps import remove_jumps
from kproxy.linux.sync.nftables.cleanup import cleanup_table
from kproxy.linux.sync.reconcile import read_dump, roll_back
from kproxy.linux.sync.report import CleanedTables, KeptChain, Progress, StepTime, Stopwatch
from kproxy.linux.sync.restore_batches import Change, plan_runs, run_text
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
    cleaned: list[CleanedTables] = []
    _clean_iptables(namespace, found, cleaned, dry_run, lock_wait, watch, progress)
    counters = () if dry_run else tuple(nfacct.delete_counters(namespace))
    _clean_nftables(namespace, tuple(IPFamily), cleaned, dry_run, watch)
    notes = _unreachable(namespace, found)
    if DEVICE in read_link_names(namespace):
        from kproxy.linux.sync.ipvs_host import cleanup_ipvs  # what few need

        try:
            notes.append(cleanup_ipvs(namespace, dry_run=dry_run))
        except (LinuxError, *INTERRUPTS) as error:
            raise _after(error, "ipvs", cleaned) from error
    return CleanupReport(namespace.label, dry_run, tuple(cleaned), counters, tuple(notes), tuple(watch.times))


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
    cleaned: list[CleanedTables] = []
    watch = Stopwatch()
    if mode == MODE_NFTABLES:
        found = _installed(families)
        _clean_iptables(namespace, found, cleaned, dry_run, lock_wait, watch, None, seen)
        if not dry_run and any(each.chains_deleted for each in cleaned):
            nfacct.delete_counters(namespace)
    else:
        _clean_nftables(namespace, families, cleaned, dry_run, watch, seen)
    return [each for each in cleaned if each.chains_deleted or each.jumps_deleted or each.sets_deleted or each.kept]


def _installed(families: tuple[IPFamily, ...]) -> dict[tuple[IPFamily, Variant], Iptables]:
    return {(family, variant): tools for family in families for variant, tools in installed(family).items()}


def _clean_iptables(
    namespace: Namespace,
    found: dict[tuple[IPFamily, Variant], Iptables],
    cleaned: list[CleanedTables],
    dry_run: bool,
    lock_wait: float,
    watch: Stopwatch,
    progress: Progress | None,
    seen: Seen | None = None,
) -> None:
    for (family, variant), tools in found.items():
        name = f"{family.value} {variant.value}"
        with watch.step(name):
            executor = IptablesExecutor(namespace, tools, lock_wait=lock_wait)
            try:
                if seen is not None:
                    seen(family, programmed_addresses(read_dump(executor, counters=False)))
                cleaned.append(cleanup_tables(executor, dry_run=dry_run, progress=progress))
            except (LinuxError, *INTERRUPTS) as error:
                raise _after(error, name, cleaned) from error


def _clean_nftables(
    namespace: Namespace,
    families: tuple[IPFamily, ...],
    cleaned: list[CleanedTables],
    dry_run: bool,
    watch: Stopwatch,
    seen: Seen | None = None,
) -> None:
    """Without nft the kernel is asked: a container with the host's network may lack a tool that the host has."""
    nft = None if find_program("nft") is None else find_nft()
    for family in families:
        name = f"{family.value} nftables"
        with watch.step(name):
            try:
                if nft is None:
                    _demand_no_table(namespace, family)
                    continue
                executor = NftExecutor(namespace, nft, family)
                if seen is not None:
                    seen(family, table_addresses(read_table(executor).table))
                cleaned.append(cleanup_table(executor, dry_run=dry_run))
            except (LinuxError, *INTERRUPTS) as error:
                raise _after(error, name, cleaned) from error


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


def cleanup_tables(executor: Executor, *, dry_run: bool = False, progress: Progress | None = None) -> CleanedTables:
    """Removes all that is kube-proxy's from one family and variant.

    Raises:
        LinuxError: it cannot be read.
        ApplyFailedError: removing failed.
    """
    before = read_dump(executor, counters=True)
    doomed, kept = removable_chains(before)
    edits = remove_jumps(before, kept)
    report = CleanedTables(
        executor.family.value,
        executor.variant.value,
        chains_deleted=len(doomed),
        rules_deleted=sum(len(chain.rules) for ref in doomed if (chain := before.chain(*ref)) is not None),
        jumps_deleted=sum(len(edit.deletions) for edit in edits),
        kept=tuple(KeptChain(*ref, by) for ref, by in kept.items()),
    )
    if dry_run or not (doomed or edits):
        return report
    runs = plan_runs(Change({}, doomed, edits), executor.variant)
    total, done = sum(map(len, runs)), 0
    try:
        for run in runs:
            if progress is not None:
                progress("removing", done, total)
            executor.restore(run_text(run))
            done += len(run)
        after = read_dump(executor, counters=False)
    except (LinuxError, *INTERRUPTS) as error:
        raise roll_back(executor, before, failure_message(error)) from error
    left, _ = removable_chains(after)
    if left or remove_jumps(after, kept):
        raise roll_back(executor, before, f"removing failed: {len(left)} chains of kube-proxy's are still there")
    return report
