"""Noticing what others did to the rules.

kube-proxy keeps an empty canary chain in each table and, every sync period, looks whether that of the mangle table is
there: a flush of nat alone, a single deleted rule or a removed jump go unnoticed for an hour (kubernetes/kubernetes
issue 129128). Here the canaries are part of the desired rules, like every other chain, and a check compares everything.

That costs reading every rule, so a check first asks something cheaper, whether anything at all was written since the
rules were last seen to be right: for nf_tables the generation of the namespace's rules, for legacy the text of
iptables-save, which is quick there. An idle node with 50,000 rules is checked for less than a millisecond.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable

from kproxy.linux.errors import LinuxError

Fingerprint = Callable[[], "object | None"]
"""Something that is equal as long as the kernel's rules are; None if it is unknown."""


class KernelWatch:
    """Whether the rules may have changed since they were seen to be right.

    A fingerprint is taken before the rules are read, so a change in between counts as one.
    """

    def __init__(self, fingerprint: Fingerprint) -> None:
        self._fingerprint = fingerprint
        self._right: object | None = None

    def suspicious(self) -> bool:
        """Whether the rules must be read to know."""
        if self._right is None:
            return True
        return self._fingerprint() != self._right

    def before_reading(self) -> object | None:
        """The rules are about to be read: the fingerprint that `was_right` is to get."""
        return self._fingerprint()

    def was_right(self, taken: object | None) -> None:
        """The rules that were read after this fingerprint were right, and nothing had to be written."""
        self._right = taken

    def written(self) -> None:
        """We wrote something: the next check has to read again."""
        self._right = None


def text_fingerprint(save: Callable[[], str]) -> Fingerprint:
    """The fingerprint of what iptables-save prints without counters."""

    def fingerprint() -> object | None:
        try:
            text = save()
        except LinuxError:
            return None
        # The comment lines hold the time of day.
        lines = (line for line in text.splitlines() if not line.startswith("#"))
        return hashlib.sha256("\n".join(lines).encode()).digest()

    return fingerprint
