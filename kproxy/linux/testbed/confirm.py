"""The kernel's word on a comparison: witnesses sent through two rule sets, each loaded in a namespace of its own.

    with Kernels(family, rules_a, rules_b) as kernels:
        for difference in comparison.differences:
            confirmation = kernels.confirm(difference.situations, difference.traces)

A witness is confirmed if each kernel does nothing but what its side's trace says, and if what they do shows the
difference. One packet does not show every difference: that its chances are others, or what it leaves behind for the
next packet.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from enum import Enum
from typing import Final

from kproxy.dataplane.compare.witness import Situation
from kproxy.dataplane.concrete.trace import Outcome, TraceResult
from kproxy.dataplane.model.packet import LOOPBACK, format_endpoint
from kproxy.dataplane.model.verdict import ACCEPT, DROP, INDETERMINATE, REJECT
from kproxy.linux.testbed.host import RuleText, ScratchHost, UnsendableError
from kproxy.linux.testbed.wire import REJECT_NAMES, REJECTS, Observed, address_text
from kproxy.netfilter.address import parse_address
from kproxy.netfilter.family import Family

_TRIES: Final = 4
_MAX_TRIES: Final = 64
"""So often a packet is sent whose fate is chance, until one is seen that the other side does not have."""


class KernelVerdict(Enum):
    """What the kernel says of a witness."""

    CONFIRMED = "confirmed"
    REFUTED = "refuted"
    NOT_SHOWN = "not shown by one packet"
    NOT_SENT = "not sent"


@dataclass(frozen=True, slots=True)
class Confirmation:
    """What was seen of a witness.

    Attributes:
        verdict: `REFUTED`: a kernel did what the trace of its side does not say. `NOT_SHOWN`: each did what its
            trace says, and that is the same.
        seen: what each kernel did, in words.
        reason: of `NOT_SENT`, why; of `REFUTED`, which side.
    """

    verdict: KernelVerdict
    seen: tuple[tuple[str, ...], tuple[str, ...]] = ((), ())
    reason: str = ""


class Kernels:
    """Two hosts that differ in their rules. Use it as a context manager.

    Raises:
        LinuxError: as `ScratchHost`.
    """

    def __init__(self, family: Family, one: Sequence[RuleText], other: Sequence[RuleText]) -> None:
        self._family = family
        self._stack = ExitStack()
        try:
            self._beds = tuple(self._stack.enter_context(ScratchHost(family, rules)) for rules in (one, other))
            self._judges = tuple(Judge(family, bed) for bed in self._beds)
        except BaseException:
            self._stack.close()
            raise

    def __enter__(self) -> Kernels:
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def confirm(self, situations: Sequence[Situation], traces: Sequence[TraceResult]) -> Confirmation:
        """Send a witness through both.

        Args:
            situations: what the packet meets on each host.
            traces: what the model says of it, for each.

        Raises:
            LinuxError: as `ScratchHost.send`, but for packets that cannot be made.
        """
        if any(item.assumed for item in situations):
            texts = ", ".join(sorted({key.text for item in situations for key, _ in item.assumed}))
            return Confirmation(KernelVerdict.NOT_SENT, reason=f"it depends on what is assumed of {texts}")
        try:
            return self._confirm(situations, traces)
        except UnsendableError as error:
            return Confirmation(KernelVerdict.NOT_SENT, reason=str(error))

    def _confirm(self, situations: Sequence[Situation], traces: Sequence[TraceResult]) -> Confirmation:
        seen: list[dict[Observed | None, None]] = [{}, {}]
        tries = 1 if all(len(item.outcomes) == 1 for item in traces) else _TRIES
        told_apart = False
        while not told_apart and sum(map(len, seen)) < _MAX_TRIES and tries <= _MAX_TRIES:
            for side, (bed, situation) in enumerate(zip(self._beds, situations, strict=True)):
                sent = bed.send(situation.host, situation.packet, situation.connection, tries)
                seen[side] |= dict.fromkeys(sent)
            for side, name in enumerate("AB"):
                strange = [item for item in seen[side] if not self._judges[side].may_be(traces[side], item)]
                if strange:
                    return Confirmation(KernelVerdict.REFUTED, self._words(seen), f"{name}: {_text(strange[0])}")
            told_apart = any(
                not self._judges[side].may_be(traces[1 - side], item) for side in (0, 1) for item in seen[side]
            )
            tries = tries * 4 if tries > 1 else _MAX_TRIES + 1
        return Confirmation(KernelVerdict.CONFIRMED if told_apart else KernelVerdict.NOT_SHOWN, self._words(seen))

    def _words(self, seen: Sequence[dict[Observed | None, None]]) -> tuple[tuple[str, ...], tuple[str, ...]]:
        first, second = (tuple(dict.fromkeys(map(_text, items))) for items in seen)
        return first, second


class Judge:
    """What a trace says of a packet beside what is seen of it on a scratch host."""

    def __init__(self, family: Family, bed: ScratchHost) -> None:
        self._family = family
        self._bed = bed

    def may_be(self, trace: TraceResult, seen: Observed | None) -> bool:
        """Whether a trace says that this may be seen."""
        return any(
            self._is(trace, item, seen)
            for outcome in trace.outcomes
            for item in (outcome.possible if outcome.verdict == INDETERMINATE else (outcome,))
        )

    def _is(self, trace: TraceResult, outcome: Outcome, seen: Observed | None) -> bool:
        if outcome.verdict == DROP or seen is None:
            return outcome.verdict == DROP and seen is None
        if outcome.verdict == REJECT:
            return seen.kind == REJECTS[outcome.reject]
        if outcome.verdict != ACCEPT or seen.kind != "packet":
            return False
        packet, sent = outcome.packet, trace.packet
        own = {address_text(self._family, item) for item in self._bed.own.values()}
        source = (seen.src, seen.sport) == (address_text(self._family, sent.src or 0), sent.sport)
        if outcome.snat:
            chosen = seen.src in own or packet.src == sent.src
            source = chosen or seen.src == address_text(self._family, packet.src or 0)
        there = (seen.dst, seen.dport) == (address_text(self._family, packet.dst or 0), packet.dport)
        local = outcome.via == "local"
        if local != (seen.where == "local"):
            return False
        link = local or packet.out_interface in (None, LOOPBACK, seen.where)
        return source and there and link

    @staticmethod
    def words(seen: Observed | None) -> str:
        """What was seen, in words."""
        return _text(seen)


def _text(seen: Observed | None) -> str:
    """What was seen, in words."""
    if seen is None:
        return "dropped"
    if seen.kind != "packet":
        return f"rejected ({REJECT_NAMES.get(seen.kind, seen.kind)})"
    family = Family.IPV6 if ":" in seen.src else Family.IPV4
    source, destination = (_endpoint(family, *end) for end in ((seen.src, seen.sport), (seen.dst, seen.dport)))
    return f"{source} to {destination}, " + ("delivered" if seen.where == "local" else f"out by {seen.where}")


def _endpoint(family: Family, address: str, port: int | None) -> str:
    return format_endpoint(family, parse_address(address, family), port)
