"""The connection tracking entries of a namespace that have gone stale (`cluster.stale_flows` judges), and their end.

A packet may have been sent to an endpoint by the old rules and not have its entry yet when the new rules are in and the
table is read: the entry would be missed. The kernel handles a packet from its first hook to its last within one RCU
read-side critical section, so an RCU grace period is exactly the wait that is needed, and membarrier(2)'s
MEMBARRIER_CMD_GLOBAL waits for one (the kernel's kernel/sched/membarrier.c calls synchronize_rcu). That takes some ten
milliseconds.
"""

from __future__ import annotations

import ctypes
import platform
import time
from typing import Final

from kproxy.cluster.stale_flows import Addresses, StaleFlow, stale_flows
from kproxy.linux.conntrack.flows import delete_flows, read_flows
from kproxy.linux.host.addresses import interface_addresses
from kproxy.linux.namespace import Namespace
from kproxy.services.names import IPFamily

PASSES: Final = 3
"""Reading the table gives no snapshot, and where entries come and go one can be missed: so it is read again after
entries were deleted."""
_COMMAND_GLOBAL: Final = 1
_NUMBERS: Final = {"x86_64": 324, "aarch64": 283, "riscv64": 283, "ppc64le": 365, "s390x": 356}
_ENOUGH: Final = 0.05
"""Seconds to wait where the kernel does not offer it: longer than a processor stays in one packet, unless a hypervisor
takes it away."""

_libc = ctypes.CDLL(None, use_errno=True)


def wait_for_packets() -> bool:
    """Returns when every packet that was being handled by the kernel has been; False if that had to be guessed."""
    number = _NUMBERS.get(platform.machine())
    if number is not None and _libc.syscall(number, _COMMAND_GLOBAL, 0, 0) == 0:
        return True
    time.sleep(_ENOUGH)
    return False


def clean_flows(
    namespace: Namespace,
    family: IPFamily,
    desired: Addresses,
    before: Addresses,
    *,
    dry_run: bool = False,
    endpoints: frozenset[str] | None = None,
) -> list[StaleFlow]:
    """Deletes the stale entries of a namespace, and returns them.

    Args:
        endpoints: only entries that lead to one of these.

    Raises:
        LinuxError: entries cannot be read or deleted.
    """
    protocols = sorted({protocol for protocol, _, _ in (*desired.services, *before.services)})
    found: list[StaleFlow] = []
    if protocols and not dry_run:
        wait_for_packets()
    for _ in range(1 if dry_run else PASSES):
        flows = read_flows(namespace, family, protocols) if protocols else []
        if endpoints is not None:
            flows = [flow for flow in flows if flow.endpoint in endpoints]
        stale = stale_flows(flows, desired, before, interface_addresses(namespace, family)) if flows else []
        if not stale:
            break
        found += stale
        if not dry_run:
            delete_flows(namespace, family, [each.flow for each in stale])
    return found
