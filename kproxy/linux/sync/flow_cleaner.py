"""Where replaced rules sent traffic, kept until the stale connection tracking entries are deleted.

See `syncer` for when they are cleaned; both modes do it alike.
"""

from __future__ import annotations

from typing import Final

from kproxy.cluster.stale_flows import Addresses, StaleFlow, desired_addresses, merge_addresses
from kproxy.linux.conntrack.stale import clean_flows
from kproxy.linux.errors import LinuxError
from kproxy.linux.namespace import Namespace
from kproxy.services import IPFamily, ServiceState

NO_ADDRESSES: Final = Addresses({}, {}, frozenset())


class FlowCleaner:
    """Deletes the stale entries of one family; without a namespace, nothing.

    Invariants: `_before` is where traffic was sent to by rules that were replaced and whose flows are not cleaned yet,
    `_cleaned` where it was before the clean-ups since the last check.
    """

    def __init__(self, namespace: Namespace | None, family: IPFamily, state: ServiceState) -> None:
        self.namespace = namespace
        self._family = family
        self._state = state
        self._before: Addresses | None = None
        self._cleaned: Addresses | None = None

    @property
    def waits(self) -> bool:
        """Whether there is something to clean up after."""
        return self._before is not None

    @property
    def may_have_missed(self) -> bool:
        """Whether there were clean-ups since the last check."""
        return self._cleaned is not None

    def remember(self, before: Addresses) -> None:
        """Rules that sent traffic there are being replaced."""
        if self.namespace is None or not (before.services or before.all_endpoints):
            return
        self._before = before if self._before is None else merge_addresses(self._before, before)

    def clean(self, notes: list[str], desired: bool) -> list[StaleFlow]:
        """Deletes what went stale, if rules for UDP or SCTP changed now or since the last time that succeeded."""
        if self.namespace is None or not (desired or self._before is not None):
            return []
        before = self._before or NO_ADDRESSES
        cleaned = before if self._cleaned is None else merge_addresses(self._cleaned, before)
        try:
            flows = clean_flows(self.namespace, self._family, desired_addresses(self._state), before)
        except LinuxError as error:
            self._before = before
            notes.append(f"stale connection tracking entries were not all removed: {error}")
            return []
        self._before, self._cleaned = None, cleaned
        return flows

    def clean_again(self, notes: list[str]) -> list[StaleFlow]:
        """Deletes what a clean-up since the last check missed."""
        self._before, self._cleaned = merge_addresses(self._cleaned or NO_ADDRESSES, self._before or NO_ADDRESSES), None
        flows = self.clean(notes, True)
        self._cleaned = None
        return flows
