"""Programming one family: its rules, and when those are put back, the connection tracking entries made meanwhile.

An apply that fails is taken back, but while some of its batches were in the kernel, packets followed them. The entries
they left would go on leading flows, and clients that use such a port again, to endpoints that neither what is there now
nor what comes next wants. So they go as soon as the rules are back.
"""

from __future__ import annotations

from kproxy.linux.conntrack.stale import StaleFlow, clean_flows, programmed_addresses
from kproxy.linux.errors import INTERRUPTS, ApplyFailedError, KernelState, LinuxError
from kproxy.linux.iptables.dump import ChainDump, Dump
from kproxy.linux.iptables.executor import Executor
from kproxy.linux.namespace import Namespace
from kproxy.linux.sync.desired import Wanted
from kproxy.linux.sync.reconcile import Outcome, Progress, apply_rules, read_dump
from kproxy.render.iptables.chains import NAT


def program_rules(
    executor: Executor,
    wanted: Wanted,
    namespace: Namespace | None,
    *,
    dry_run: bool = False,
    name: str = "",
    progress: Progress | None = None,
) -> Outcome:
    """Does `apply_rules`, and cleans up after one that failed half-way.

    Args:
        namespace: where the connection tracking entries are; None leaves them alone.

    Raises:
        LinuxError, ApplyFailedError: as `apply_rules`.
    """
    try:
        return apply_rules(executor, wanted, dry_run=dry_run, name=name, progress=progress)
    except ApplyFailedError as error:
        if namespace is None or error.state in (KernelState.UNCHANGED, KernelState.APPLIED):
            raise
        try:
            clean_after_failure(executor, wanted, namespace)
        except (LinuxError, *INTERRUPTS) as second:
            what = str(error).rsplit("\nstate: ", 1)[0]
            why = str(second) if isinstance(second, LinuxError) else "interrupted"
            note = f"connection tracking entries that it left were not all removed: {why}"
            raise ApplyFailedError(f"{what}\n({note})", error.state, error.detail) from error
        raise


def clean_after_failure(executor: Executor, tried: Wanted, namespace: Namespace) -> list[StaleFlow]:
    """Deletes entries that lead to endpoints of what was tried and that the kernel's rules do not lead to.

    Raises:
        LinuxError: the rules or the entries cannot be read, or an entry cannot be deleted.
    """
    now = programmed_addresses(read_dump(executor, counters=False))
    then = programmed_addresses(wanted_dump(tried))
    return clean_flows(namespace, executor.family, now, then, endpoints=then.all_endpoints)


def wanted_dump(wanted: Wanted) -> Dump:
    """The nat table that is wanted, as if it had been read."""
    return Dump(
        {NAT: {chain: ChainDump("-", wanted.rules((NAT, chain)), []) for table, chain in wanted.chains if table == NAT}}
    )
