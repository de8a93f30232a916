"""`trace`: what happens to a packet, with which chance, and why.

>>> from kproxy.dataplane import Host, make_packet, trace
>>> from kproxy.netfilter import parse_save
>>> rules = parse_save('''*nat
... :PREROUTING ACCEPT [0:0]
... :POSTROUTING ACCEPT [0:0]
... -A PREROUTING -d 10.96.0.1 -m statistic --mode random --probability 0.5 -j DNAT --to-destination 10.0.0.1
... -A PREROUTING -d 10.96.0.1 -j DNAT --to-destination 10.0.0.2
... COMMIT
... ''')
>>> result = trace(rules, Host.simple(["192.0.2.1"]), make_packet("10.0.0.9:4000", "10.96.0.1:443", "tcp"))
>>> [(outcome.probability, str(outcome.verdict), outcome.dst) for outcome in result.outcomes]
[(Fraction(1, 2), 'ACCEPT', '10.0.0.1:443'), (Fraction(1, 2), 'ACCEPT', '10.0.0.2:443')]
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from dataclasses import dataclass, field, replace
from fractions import Fraction

from kproxy.dataplane.concrete.assumptions import Assumptions
from kproxy.dataplane.concrete.explore import Arrival, Exploration
from kproxy.dataplane.concrete.graph import End, Step
from kproxy.dataplane.concrete.hooks import PacketPath
from kproxy.dataplane.concrete.index import Index, index_ruleset
from kproxy.dataplane.concrete.state import TRACKED, UNSEEN, State
from kproxy.dataplane.model.conntrack import NEW, ORIGINAL, Connection
from kproxy.dataplane.model.errors import DataplaneError
from kproxy.dataplane.model.host import Host
from kproxy.dataplane.model.packet import Packet
from kproxy.dataplane.model.unseen import thing_of_reason
from kproxy.dataplane.model.verdict import INDETERMINATE, FinalVerdict
from kproxy.netfilter.iptables.codec import UINT32
from kproxy.netfilter.iptables.ruleset import Ruleset
from kproxy.netfilter.iptables.save import collector_paused


@dataclass(frozen=True, slots=True)
class Outcome:
    """One thing that can happen to the packet.

    Attributes:
        probability: exact. The outcomes of a trace add up to 1.
        verdict: ACCEPT, DROP, REJECT, or INDETERMINATE: it depends on something that is not known, see `reasons`.
        packet: as it is at the end; of an INDETERMINATE outcome, what is the same whatever turns out.
        dnat: whether the destination was rewritten.
        masquerade: whether the source was rewritten, or would be if the packet, which is marked for that, left.
        snat: whether the source was rewritten in fact.
        hook: where it happened: PREROUTING, INPUT, FORWARD, OUTPUT or POSTROUTING; empty if that is not known.
        via: of an accepted packet: `local` (delivered to this host), `out` (left by `packet.out_interface`), `bridged`
            (passed on by a bridge, unseen by iptables).
        reject: of a rejected one: the answer, by iptables' name.
        reason: why, if no rule decided: `no route to the destination`.
        reasons: what an INDETERMINATE outcome depends on.
        possible: what an INDETERMINATE outcome may turn out to be, without chances; of a certain one that leaves by an
            interface which is open, by which.
        connection: the conntrack entry at the end, as the next packet will find it, or None if there is none.
        elements: what this packet and those before it changed in nftables' sets, for the `Host` that the next packet
            meets.
        hints: options of `kproxy trace` that would settle the reasons.
        steps: everything that happened, in order; of several paths to this outcome the likeliest.
    """

    probability: Fraction
    verdict: FinalVerdict
    packet: Packet
    dnat: bool
    masquerade: bool
    snat: bool
    hook: str
    via: str
    reject: str
    reason: str
    reasons: tuple[str, ...]
    possible: tuple[Outcome, ...]
    connection: Connection | None
    steps: tuple[Step, ...]
    elements: Mapping[tuple[str, str], Mapping[Hashable, Hashable]] = field(default_factory=dict, compare=False)
    hints: tuple[str, ...] = ()

    @property
    def src(self) -> str:
        """The source at the end, `IP[:PORT]`."""
        return self.packet.source

    @property
    def dst(self) -> str:
        """The destination at the end, `IP[:PORT]`."""
        return self.packet.destination

    @property
    def device(self) -> str:
        """The interface by which the packet leaves, "" if it does not leave or that is open."""
        return (self.packet.out_interface or "") if self.via == "out" else ""

    @property
    def determined(self) -> bool:
        """Whether nothing is left open but the output interface: neither the verdict nor what becomes of the source."""
        return self.verdict != INDETERMINATE and len({(each.src, each.masquerade) for each in self.possible}) < 2

    @property
    def path(self) -> tuple[Step, ...]:
        """The rules that matched, in order."""
        return tuple(step for step in self.steps if step.kind == "rule")


@dataclass(frozen=True, slots=True)
class TraceResult:
    """What can happen to a packet: the outcomes, the likeliest first, their probabilities adding up to 1. `used` are
    the assumptions that decided something."""

    packet: Packet
    connection: Connection
    outcomes: tuple[Outcome, ...]
    used: frozenset[str] = frozenset()

    @property
    def determined(self) -> bool:
        """Whether nothing is left open but output interfaces."""
        return all(outcome.determined for outcome in self.outcomes)


def trace(
    ruleset: Ruleset | Index,
    host: Host,
    packet: Packet,
    connection: Connection | None = None,
    *,
    paths: bool = False,
    limit: bool | None = None,
    assumed: Mapping[str, bool] | None = None,
    told: frozenset[str] = frozenset(),
    tracked: bool = False,
) -> TraceResult:
    """Send a packet through a rule set on a host.

    For many packets make an `Index` once with `index_ruleset`. `connection` is what conntrack knows; left out, the
    packet begins a connection. With `paths`, outcomes that differ only in path are not merged. `limit` decides all
    matches on rates: True for within, False for above, None leaves them open. `assumed` answers other things that are
    open, by text (`assumptions.py` says which texts). `told` are the options that are given, which hints do not name.
    With `tracked` the packet has its conntrack entry before conntrack sees it.

    Raises:
        DataplaneError: the rule set is of the other family, a rule that the packet meets jumps to a chain that is not
            there or in a loop.
    """
    index = ruleset if isinstance(ruleset, Index) else index_ruleset(ruleset)
    family = index.family
    if family is not None and family is not packet.family:
        raise DataplaneError(f"a packet of {family.value} expected for these rules, not of {packet.family.value}")
    entry = connection or Connection()
    with collector_paused():  # one collection would walk the whole rule set, which takes longer than the trace
        # A mark that is known, as 0 is where no option gives one, is not what is missing: rules made it open.
        known = {option for option, each in (("--mark", packet), ("--ctmark", entry)) if each.mark_known == UINT32}
        assumptions = Assumptions(limit, assumed or {}, told | known)
        state = State(packet, entry, TRACKED if tracked else UNSEEN, ipvs=None if index.ipvs is None else False)
        exploration = Exploration(PacketPath(index, host, assumptions), state)
        found = exploration.paths() if paths else exploration.distribution()
        outcomes = tuple(_outcome(item, host, assumptions) for item in found if item.chance)
    return TraceResult(packet, entry, outcomes, frozenset(assumptions.used))


def _outcome(item: Arrival, host: Host, assumptions: Assumptions) -> Outcome:
    ends = (end_outcome(end, host, Fraction(0)) for end in item.possible)
    # Ends that differ only in what no outcome shows, as in a mark, are one.
    possible = {
        (end.verdict, end.reject, end.src, end.dst, end.dnat, end.masquerade, end.hook, end.reason, end.device): end
        for end in ends
    }
    found = end_outcome(item.end, host, item.chance, item.steps, item.reasons, tuple(possible.values()))
    # What hangs on a thing that was not seen is settled with it.
    reasons = [reason for reason in item.reasons if thing_of_reason(reason)] or item.reasons
    hints = dict.fromkeys(hint for reason in reasons for hint in assumptions.hint(reason))
    return replace(found, hints=tuple(hints)) if hints else found


def _elements(host: Host, state: State) -> Mapping[tuple[str, str], Mapping[Hashable, Hashable]]:
    if not state.sets:
        return host.elements
    found = {name: dict(held) for name, held in host.elements.items()}
    for table, name, key, data in state.sets:
        found.setdefault((table, name), {})[key] = data
    return found


def end_outcome(
    end: End,
    host: Host,
    chance: Fraction,
    steps: tuple[Step, ...] = (),
    reasons: tuple[str, ...] = (),
    possible: tuple[Outcome, ...] = (),
) -> Outcome:
    """How a packet ended, as an outcome."""
    state = end.state
    entry = state.connection
    tracked = state.has_connection
    rewritten = tracked and (state.masqueraded or (entry.snat and entry.state != NEW and entry.direction == ORIGINAL))
    if end.verdict == INDETERMINATE:
        dnat = bool(possible) and all(item.dnat for item in possible)
    else:
        dnat = tracked and ((entry.dnat or entry.ipvs) if entry.direction == ORIGINAL else entry.snat)
    return Outcome(
        probability=chance,
        verdict=end.verdict,
        packet=state.packet,
        dnat=dnat,
        masquerade=rewritten or end.marked,
        snat=rewritten,
        hook=end.hook,
        via=end.via,
        reject=end.reject,
        reason=end.reason,
        reasons=reasons,
        possible=possible,
        connection=entry if tracked else None,
        steps=steps,
        elements=_elements(host, state),
    )
