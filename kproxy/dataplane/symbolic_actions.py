"""What targets do to a whole function: given the function for a packet afterwards, the one for it before.

Semantics are those of `act` and `nat`. Address translation fixes the destination in what comes after its hook (or, for
addresses that rules do not name, calls it by a level of its own: `later_dst` and the like) and files the result under
its final destination.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, Final, NamedTuple

from kproxy.dataplane.nat import MOST_CHOICES
from kproxy.dataplane.regions import FALSE, TRUE, ZERO, Node
from kproxy.dataplane.symbolic_fields import LOCAL, Fields
from kproxy.dataplane.symbolic_matches import BEFORE, Listed, Question, Seen, Stage, moment, set_moment
from kproxy.dataplane.symbolic_outcome import (
    ACCEPT,
    DROP,
    ONE,
    REJECT,
    UNDECIDED,
    Bits,
    Expression,
    Outcome,
    Outcomes,
)
from kproxy.netfilter.address import format_address
from kproxy.netfilter.codec import UINT32, Range
from kproxy.netfilter.family import Family
from kproxy.netfilter.matches import RecentMatch, SetMatch
from kproxy.netfilter.option import Negatable
from kproxy.netfilter.targets import (
    ConnmarkTarget,
    CtTarget,
    DnatTarget,
    DscpTarget,
    HlTarget,
    MarkTarget,
    MasqueradeTarget,
    NatRange,
    NetmapTarget,
    NfqueueTarget,
    NotrackTarget,
    OpaqueTarget,
    RedirectTarget,
    RejectTarget,
    SetTarget,
    SnatTarget,
    Target,
    TcpmssTarget,
    TeeTarget,
    TosTarget,
    TproxyTarget,
    TtlTarget,
    Verdict,
)

KEEP: Final = -1
OPEN: Final = -2

KEPT: Final = Question("kept", "the source that is chosen is the one that the packet has")
"""What MASQUERADE and the like choose is the host's business."""

_HARMLESS: Final = frozenset(
    {"AUDIT", "CHECKSUM", "CLASSIFY", "ECN", "IDLETIMER", "LED", "RATEEST", "TCPOPTSTRIP", "ULOG"}
)


class Destination(NamedTuple):
    """A final destination: address and port, each a number, `KEEP`, or `OPEN` with a text that says what is known."""

    address: int
    port: int
    text: str = ""


UNCHANGED: Final = Destination(KEEP, KEEP)


@dataclass(frozen=True, eq=False)
class Exits:
    """Where packets go from a table.

    Attributes:
        stage: the table and hook.
        accept: the function for a packet that the table accepts.
        onward: in the nat table, the function for a translated packet after the hook, not filed under any destination.
        rerouted: as `onward`, for a packet whose destination address changed.
    """

    stage: Stage
    accept: Node
    onward: Node = ZERO
    rerouted: Node = ZERO


class Actions:
    """Applies targets. `finals` lists the final destinations of both sides, `UNCHANGED` first; `read_lists` are the
    lists of `-m recent` that some rule asks."""

    def __init__(
        self, fields: Fields, outcomes: Outcomes, finals: tuple[Destination, ...], read_lists: frozenset[str]
    ) -> None:
        self._fields = fields
        self._diagrams = fields.diagrams
        self._outcomes = outcomes
        self.read_lists = read_lists
        self.finals = finals
        self._places = {final: place for place, final in enumerate(finals)}
        self._ports_of: dict[int, list[int]] = {}
        self._addresses_of: dict[int, list[int]] = {}
        for final in finals:
            if final.address >= 0 and final.port >= 0:
                self._ports_of.setdefault(final.address, []).append(final.port)
                self._addresses_of.setdefault(final.port, []).append(final.address)
        self._sent_from: dict[Destination, tuple[Node, Node]] = {}
        self._renamers: dict[Hashable, Callable[[int, Node], Node | None]] = {}
        self._of_new_destination = {fields.later_kind, fields.later_out}
        self._of_new_source = {fields.later_src_kind, fields.later_sport, fields.later_sport + 1}
        self._of_new_source |= set(range(fields.later_src, fields.later_src + fields.chunks))
        self._mark_changes: dict[MarkTarget, Bits] = {}
        self.drop = outcomes.sure(Outcome(DROP))
        self._actions: dict[type[Target], Callable[[Any, Node, Exits], Node]] = {
            ConnmarkTarget: self._connmark,
            CtTarget: self._ct,
            DscpTarget: self._dscp,
            HlTarget: self._hops,
            MarkTarget: self._mark,
            NfqueueTarget: self._undecided,
            NotrackTarget: self._untrack,
            OpaqueTarget: self._opaque,
            RejectTarget: self._reject,
            SetTarget: self._set,
            TcpmssTarget: self._header,
            TeeTarget: self._leaves,
            TosTarget: self._tos,
            TproxyTarget: self._tproxy,
            TtlTarget: self._hops,
        }

    def apply(self, target: Target | None, after: Node, known: tuple[tuple[int, int], ...], exits: Exits) -> Node:
        """A target: `after` is the function of the next rule, `known` what is fixed about the packet."""
        if target is None:
            return after
        if isinstance(target, Verdict):
            return self._diagrams.assign(self.verdict(target.verdict, exits), known)
        if isinstance(target, (DnatTarget, RedirectTarget, NetmapTarget, SnatTarget, MasqueradeTarget)):
            return self._translate(target, known, exits)
        action = self._actions.get(type(target))
        if action is None:
            return self._undecided(target, after, exits)
        return action(target, after, exits)

    def verdict(self, name: str, exits: Exits) -> Node:
        """ACCEPT, DROP, or a verdict that leaves it to user space."""
        if name in (ACCEPT, "RETURN"):
            return exits.accept
        if name == DROP:
            return self._stop(Outcome(DROP), exits)
        return self._stop(Outcome(UNDECIDED, f"{name}: user space decides"), exits)

    def _stop(self, outcome: Outcome, exits: Exits) -> Node:
        """The end of the way: before the destination is translated, that is without a final destination."""
        node = self._outcomes.sure(outcome)
        return self._filed(node, 0) if exits.stage.phase == BEFORE else node

    # matches that act

    def seen(self, step: Seen, yes: Node, no: Node, stage: Stage) -> Node:
        """A `-m recent` match between the function of what follows if it applies and if not."""
        match, condition = step.match, step.condition
        action = match.action.value
        diagrams = self._diagrams
        if action == "set":
            return diagrams.choose(condition, self._listed(match, stage, yes), self._listed(match, stage, no))
        if action == "update":
            return diagrams.choose(condition, self._listed(match, stage, yes), no)
        if action == "remove":
            held = diagrams.negate(condition) if match.action.negated else condition
            yes = diagrams.choose(held, self._unlisted(match, stage, yes), yes)
            no = diagrams.choose(held, self._unlisted(match, stage, no), no)
        return diagrams.choose(condition, yes, no)

    def _listed(self, match: RecentMatch, stage: Stage, node: Node) -> Node:
        return self._list_changed(match, stage, node, 1, "added to")

    def _unlisted(self, match: RecentMatch, stage: Stage, node: Node) -> Node:
        return self._list_changed(match, stage, node, 0, "removed from")

    def _list_changed(self, match: RecentMatch, stage: Stage, node: Node, value: int, did: str) -> Node:
        if match.name not in self.read_lists:
            return node
        asked = (match.name, match.side, match.mask.value, moment(match.side, stage))
        for key, level in self._fields.questions.items():
            about = key.where if isinstance(key, Question) else None
            if not isinstance(about, Listed) or (about.hits > 1 and value):
                continue
            if (about.name, about.side, about.mask, about.moment) == asked:
                node = self._diagrams.assign(node, ((level, value),))
        rewritten = "" if moment(match.side, stage) == BEFORE else " as rewritten"
        about = f"list {match.name}/{match.mask}"
        later = f"the {match.side}{rewritten} is removed from {about}"
        return self._outcomes.leave_behind(node, f"the {match.side}{rewritten} is {did} {about}", unless=later)

    # targets

    def _undecided(self, target: Target, _after: Node, exits: Exits) -> Node:
        return self._stop(Outcome(UNDECIDED, target.to_save()), exits)

    def _opaque(self, target: OpaqueTarget, after: Node, exits: Exits) -> Node:
        return self._header(target, after, exits) if target.name in _HARMLESS else self._undecided(target, after, exits)

    def _header(self, target: Target, after: Node, _exits: Exits) -> Node:
        return self._outcomes.change_header(after, target.to_save()[3:])

    def _leaves(self, target: Target, after: Node, _exits: Exits) -> Node:
        return self._outcomes.leave_behind(after, target.to_save()[3:])

    def _reject(self, target: RejectTarget, _after: Node, exits: Exits) -> Node:
        return self._stop(Outcome(REJECT, target.reject_with), exits)

    def _mark(self, target: MarkTarget, after: Node, _exits: Exits) -> Node:
        change = self._mark_changes.get(target)
        if change is None:
            level = self._fields.mark
            change = self._mark_changes[target] = self._bits(level, target.xmark.mask, target.xmark.value, level, 0, 0)
        return self._outcomes.assign_marks(after, change)

    def _bits(self, level: int, clear: int, xor: int, other: int, take: int, shift: int) -> Bits:
        """`mark & ~clear ^ xor ^ shifted(other & take)`; a positive shift is to the left."""
        changes = []
        for bit in range(31, -1, -1):
            at = level + 31 - bit
            expression: Expression = frozenset() if clear >> bit & 1 else frozenset({at})
            if xor >> bit & 1:
                expression ^= {ONE}
            origin = bit - shift
            if 0 <= origin < 32 and take >> origin & 1:
                expression ^= {other + 31 - origin}
            if expression != {at}:
                changes.append((at, expression))
        return tuple(changes)

    def _connmark(self, target: ConnmarkTarget, after: Node, exits: Exits) -> Node:
        fields = self._fields
        if not exits.stage.tracked:
            return after
        shift = (target.left_shift or 0) - (target.right_shift or 0)
        nfmask = UINT32 if target.nfmask is None else target.nfmask
        ctmask = UINT32 if target.ctmask is None else target.ctmask
        if target.copy == "restore":
            change = self._bits(fields.mark, nfmask, 0, fields.connmark, ctmask, shift)
        elif target.copy == "save":
            change = self._bits(fields.connmark, ctmask, 0, fields.mark, nfmask, shift)
        elif target.xmark is not None:
            moved = target.xmark.value << shift & UINT32 if shift > 0 else target.xmark.value >> -shift
            keep = ~target.xmark.mask & UINT32
            change = self._bits(fields.connmark, UINT32, moved, fields.connmark, keep, shift)
        else:
            return after
        return self._outcomes.assign_marks(after, change)

    def _ct(self, target: CtTarget, after: Node, exits: Exits) -> Node:
        return self._untrack(target, after, exits) if target.notrack else self._header(target, after, exits)

    def _untrack(self, _target: Target, after: Node, exits: Exits) -> Node:
        if exits.stage.table != "raw" or exits.stage.looped:
            return after
        return self._diagrams.assign(after, ((self._fields.untracked, 1),))

    def _tproxy(self, target: TproxyTarget, _after: Node, exits: Exits) -> Node:
        fields, diagrams = self._fields, self._diagrams
        change = self._bits(fields.mark, target.tproxy_mark.mask, target.tproxy_mark.value, fields.mark, 0, 0)
        taken = diagrams.assign(self._outcomes.assign_marks(exits.accept, change), ((fields.assigned, 1),))
        taken = self._outcomes.change_header(taken, f"TPROXY to {target.on_ip} port {target.on_port or 'as it is'}")
        asked = fields.question(Question("socket", f"a transparent socket on port {target.on_port}", target.on_port))
        return diagrams.choose(asked, taken, self._stop(Outcome(DROP), exits))

    def _remapped(self, node: Node, level: int, values: tuple[int, ...]) -> Node:
        """The function for a field that becomes `values[field]`."""
        diagrams = self._diagrams

        def change(at: int, found: Node) -> Node | None:
            if at != level:
                return None
            cuts = range(1, len(values) + 1)
            return diagrams.node(level, cuts, [diagrams.assign(found, ((level, value),)) for value in values])

        return diagrams.replace(node, level, ("remap", level, values), change)

    def _tos(self, target: TosTarget, after: Node, exits: Exits) -> Node:
        values = tuple(octet & ~target.tos.mask & 0xFF ^ target.tos.value for octet in range(256))
        return self._header(target, self._remapped(after, self._fields.tos, values), exits)

    def _dscp(self, target: DscpTarget, after: Node, exits: Exits) -> Node:
        values = tuple(octet & 3 | target.dscp << 2 for octet in range(256))
        return self._header(target, self._remapped(after, self._fields.tos, values), exits)

    def _hops(self, target: TtlTarget | HlTarget, after: Node, exits: Exits) -> Node:
        if isinstance(target, TtlTarget):
            new, less, more = target.ttl_set, target.ttl_dec, target.ttl_inc
        else:
            new, less, more = target.hl_set, target.hl_dec, target.hl_inc
        values = tuple(min(max(ttl - (less or 0) + (more or 0), 0), 255) if new is None else new for ttl in range(256))
        return self._header(target, self._remapped(after, self._fields.ttl, values), exits)

    def decremented(self, node: Node) -> Node:
        """The function for a packet that is about to be forwarded: its TTL goes down, and 1 is the end of it."""
        values = tuple(max(ttl - 1, 0) for ttl in range(256))
        alive = self._diagrams.among(self._fields.ttl, ((2, 255),))
        return self._diagrams.choose(alive, self._remapped(node, self._fields.ttl, values), self.drop)

    def _set(self, target: SetTarget, after: Node, exits: Exits) -> Node:
        for reference, value in ((target.del_set, 0), (target.add_set, 1)):
            if reference is not None:
                text = SetMatch(Negatable(reference)).to_save()
                level = self._fields.questions.get(
                    Question("set", text, (reference, set_moment(reference, exits.stage)))
                )
                if level is not None:
                    after = self._diagrams.assign(after, ((level, value),))
        return self._leaves(target, after, exits)

    # address translation

    def file(self, node: Node, final: int) -> Node:
        """The function of packets that end at this final destination: those that go no further have none."""
        if final == 0:
            return self._filed(node, 0)
        goes = self._outcomes.map_outcomes(
            node, "goes", lambda outcome: outcome if outcome.verdict in (ACCEPT, UNDECIDED) else None
        )
        ends = self._outcomes.map_outcomes(
            node, "ends", lambda outcome: None if outcome.verdict in (ACCEPT, UNDECIDED) else outcome
        )
        if ends == ZERO:
            return self._filed(goes, final)
        # Where it depends on what kind of address the new destination is, the end belongs to this destination only.
        loose, bound = self._split(ends, self._of_new_destination)
        return self._outcomes.add_all(
            [self._filed(self._outcomes.add_all([goes, bound]), final), self._filed(loose, 0)]
        )

    def _split(self, node: Node, levels: set[int]) -> tuple[Node, Node]:
        """A function where some levels do not change it, and the rest."""
        diagrams = self._diagrams
        if not diagrams.support(node) & levels:
            return node, ZERO
        same = diagrams.unaffected(node, levels)
        loose = diagrams.choose(same, node, ZERO)
        return diagrams.assign(loose, tuple((level, 0) for level in sorted(levels))), diagrams.choose(same, ZERO, node)

    def _filed(self, node: Node, final: int) -> Node:
        diagrams, level = self._diagrams, self._fields.final
        if diagrams.level[node] > level:
            return diagrams.equals(level, final, node, ZERO)
        return diagrams.choose(diagrams.equals(level, final), node, ZERO)

    def _translate(
        self,
        target: DnatTarget | RedirectTarget | NetmapTarget | SnatTarget | MasqueradeTarget,
        known: tuple[tuple[int, int], ...],
        exits: Exits,
    ) -> Node:
        stage = exits.stage
        wants_source = isinstance(target, (SnatTarget, MasqueradeTarget))
        at_source = stage.hook in ("POSTROUTING", "INPUT")
        if stage.table != "nat" or (not isinstance(target, NetmapTarget) and wants_source != at_source):
            text = f"{target.NAME} in table {stage.table} at {stage.hook}"
            return self._stop(Outcome(UNDECIDED, text), exits)
        if at_source:
            return self._diagrams.assign(self._new_source(target, exits), known)
        return self._new_destination(target, known, exits)

    def _new_source(self, target: Target, exits: Exits) -> Node:
        fields, diagrams = self._fields, self._diagrams
        later = exits.onward
        moved = {fields.sport: fields.later_sport, fields.sport + 1: fields.later_sport + 1}
        wanted = target.to_source if isinstance(target, SnatTarget) else None
        if wanted is None or wanted.addresses is None or wanted.addresses[0] != wanted.addresses[1]:
            moved |= {fields.src + chunk: fields.later_src + chunk for chunk in range(fields.chunks)}
            if isinstance(target, MasqueradeTarget):  # takes one of the host's own
                later = diagrams.assign(later, ((fields.src_kind, LOCAL),))
            else:
                moved[fields.src_kind] = fields.later_src_kind
        else:
            later = diagrams.assign(later, fields.address_values(fields.src, wanted.addresses[0]))
            later = self._kind_of(later, fields.src_kind, fields.later_src_kind, wanted.addresses[0])
            if wanted.ports is None and isinstance(target, SnatTarget) and not (target.random or target.random_fully):
                moved = {}
        later = self.renamed(diagrams.assign(later, ((fields.snat, 1),)), moved)
        same = diagrams.assign(exits.onward, ((fields.snat, 0),))
        if same != diagrams.assign(exits.onward, ((fields.snat, 1),)):
            # Given the source that it has anyway, a packet does not count as translated, and some rule asks that.
            later = diagrams.choose(self._keeps_source(target), same, later)
        text = target.to_save()[3:]
        loose, bound = self._split(later, self._of_new_source)
        rewritten = self._outcomes.rewrite_source(loose, text)
        if bound == ZERO:
            return rewritten
        return self._outcomes.add_all([rewritten, self._outcomes.rewrite_source(bound, text, always=True)])

    def _keeps_source(self, target: Target) -> Node:
        """Whether the new source is the one that the packet has."""
        fields, diagrams = self._fields, self._diagrams
        ports, random = None, False
        here = fields.question(KEPT)
        if isinstance(target, SnatTarget):
            wanted = target.to_source
            ports, random = wanted.ports, target.random or target.random_fully
            if wanted.addresses is None:
                here = TRUE
            elif wanted.addresses[0] == wanted.addresses[1]:
                here = fields.address_between(fields.src, wanted.addresses[0], wanted.addresses[0])
        elif isinstance(target, MasqueradeTarget):
            ports, random = target.to_ports, target.random or target.random_fully
        if ports is not None:
            return diagrams.both(here, fields.port_in(fields.sport, ports))
        return diagrams.both(here, diagrams.negate(fields.has_ports())) if random else here

    def _kind_of(self, node: Node, kind: int, later: int, address: int) -> Node:
        certain = self._fields.certain_kind(address)
        if certain is not None:
            return self._diagrams.assign(node, ((kind, certain),))
        return self.renamed(node, {kind: later})

    def renamed(self, node: Node, levels: dict[int, int]) -> Node:
        """The function with some fields called by other levels."""
        diagrams = self._diagrams
        if not levels:
            return node
        first = min(levels)
        if not diagrams.reaches(node, first):
            return node
        name = ("rename", tuple(levels.items()))
        change = self._renamers.get(name)
        if change is None:

            def change(level: int, found: Node) -> Node | None:
                new = levels.get(level)
                if new is None:
                    return None
                kids = [self.renamed(kid, levels) for kid in diagrams.kids[found]]
                return diagrams.rebuilt(new, diagrams.cuts[found], kids)

            self._renamers[name] = change
        return diagrams.replace(node, first, name, change)

    def _new_destination(self, target: Target, known: tuple[tuple[int, int], ...], exits: Exits) -> Node:
        """One part per way to translate, with its chance."""
        fields = self._fields
        if isinstance(target, DnatTarget) and is_simple(target):
            return self._to(simple_destination(target), known, exits)
        if isinstance(target, DnatTarget):
            wanted, random = target.to_destination, target.random
        elif isinstance(target, RedirectTarget):
            wanted, random = redirect_range(target, fields.family, exits.stage.hook), target.random
        else:
            assert isinstance(target, NetmapTarget), target
            return self._to(Destination(OPEN, KEEP, target.to_save()[3:]), known, exits)
        redirected = isinstance(target, RedirectTarget)
        result = []
        addresses = address_choices(wanted, redirected)
        for address, text in addresses:
            result.append(
                self._outcomes.scale(
                    self._ports(wanted, address, text, random, known, exits), Fraction(1, len(addresses))
                )
            )
        return self._outcomes.add_all(result)

    def _ports(
        self,
        wanted: NatRange,
        address: int,
        text: str,
        random: bool,
        known: tuple[tuple[int, int], ...],
        exits: Exits,
    ) -> Node:
        ports = wanted.ports
        parts = []
        choices = port_choices(wanted, random)
        for port, about in choices:
            final = Destination(address, port, " ".join(filter(None, (text, about))))
            parts.append(self._outcomes.scale(self._to(final, known, exits), Fraction(1, len(choices))))
        result = self._outcomes.add_all(parts)
        if ports is not None and ports.first != ports.last and wanted.base_port is None and not random:
            stays = self._diagrams.assign(self._fields.port_in(self._fields.dport, ports), known)
            kept = self._to(Destination(address, KEEP, text), known, exits) if stays != FALSE else result
            result = self._diagrams.choose(stays, kept, result)
        return result

    def _to(self, final: Destination, known: tuple[tuple[int, int], ...], exits: Exits) -> Node:
        """The function for a packet sent to a final destination, filed under it."""
        fields, diagrams = self._fields, self._diagrams
        if final == UNCHANGED:
            return diagrams.assign(self.file(exits.onward, 0), known)
        place = self._places[final]
        sent = self._file_exact(diagrams.assign(self._after(final, exits), ((fields.dnat, 1),)), final, place)
        if OPEN in (final.address, final.port):
            return diagrams.assign(sent, known)
        # Sent to where it goes anyway, a packet does not count as translated; to another port there, it is not routed
        # again.
        there = TRUE if final.address == KEEP else diagrams.assign(self._at_address(final.address), known)
        if there == FALSE:
            return diagrams.assign(sent, known)
        if final.port == KEEP:
            stays = exits.accept
        else:
            other_port = self._send(Destination(KEEP, final.port), exits.onward)
            stays = self._file_exact(diagrams.assign(other_port, ((fields.dnat, 1),)), final, place)
            here = fields.port_in(fields.dport, Range(final.port, final.port))
            stays = diagrams.choose(here, exits.accept, stays)
        return diagrams.assign(diagrams.choose(there, stays, sent), known)

    def treated(self, final: Destination, exits: Exits) -> Node:
        """What becomes of a packet that is sent on to a destination."""
        return self._after(final, exits)

    def _after(self, final: Destination, exits: Exits) -> Node:
        """The function for a packet with this destination, in terms of the packet before."""
        start = exits.rerouted if final.address != KEEP else exits.onward
        if start != self._sent_from.get(final, (-1, ZERO))[0]:
            self._sent_from[final] = start, self._send(final, start)
        return self._sent_from[final][1]

    def _send(self, final: Destination, after: Node) -> Node:
        fields, diagrams = self._fields, self._diagrams
        moved: dict[int, int] = {}
        fixed: tuple[tuple[int, int], ...] = ()
        if final.address >= 0:
            fixed += fields.address_values(fields.dst, final.address)
            certain = fields.certain_kind(final.address)
            if certain is None:
                moved[fields.dst_kind] = fields.later_kind
            else:
                fixed += ((fields.dst_kind, certain),)
        elif final.address == OPEN:
            moved |= {fields.dst + chunk: fields.later_dst + chunk for chunk in range(fields.chunks)}
            if final.text.startswith("REDIRECT"):
                fixed += ((fields.dst_kind, LOCAL),)
            else:
                moved[fields.dst_kind] = fields.later_kind
        if final.port >= 0:
            fixed += fields.port_values(fields.dport, final.port)
        elif final.port == OPEN:
            moved |= {fields.dport: fields.later_dport, fields.dport + 1: fields.later_dport + 1}
        return self.renamed(diagrams.assign(after, tuple(sorted(fixed))), moved)

    def _at_address(self, address: int) -> Node:
        return self._fields.address_is(self._fields.dst, address)

    def _file_exact(self, after: Node, final: Destination, place: int) -> Node:
        """File under the most exact name: an address whose port stays is address and port where the port is known."""
        fields, diagrams = self._fields, self._diagrams
        result = self.file(after, place)
        if final.address >= 0 and final.port == KEEP:
            for port in self._ports_of.get(final.address, ()):
                exact = self.file(after, self._places[Destination(final.address, port)])
                result = diagrams.choose(fields.port_in(fields.dport, Range(port, port)), exact, result)
        elif final.address == KEEP and final.port >= 0:
            for address in self._addresses_of.get(final.port, ()):
                exact = self.file(after, self._places[Destination(address, final.port)])
                result = diagrams.choose(self._at_address(address), exact, result)
        return result


def is_simple(target: DnatTarget) -> bool:
    """Whether a target sends packets to one address and one port."""
    wanted = target.to_destination
    return (
        wanted.addresses is not None
        and wanted.addresses[0] == wanted.addresses[1]
        and wanted.ports is not None
        and wanted.ports.first == wanted.ports.last
    )


def simple_destination(target: DnatTarget) -> Destination:
    """Where such a target sends packets."""
    wanted = target.to_destination
    assert wanted.addresses is not None, target
    assert wanted.ports is not None, target
    return Destination(wanted.addresses[0], wanted.ports.first)


def redirect_range(target: RedirectTarget, family: Family, hook: str) -> NatRange:
    """REDIRECT as a range: for packets of the host itself, the loopback address."""
    loopback = 0x7F000001 if family is Family.IPV4 else 1
    return NatRange(family, (loopback, loopback) if hook == "OUTPUT" else None, target.to_ports)


def address_choices(wanted: NatRange, redirected: bool = False) -> list[tuple[int, str]]:
    """The addresses that a target may choose, with a text for one that is open; all have the same chance."""
    if wanted.addresses is None:
        return [(OPEN, "REDIRECT")] if redirected else [(KEEP, "")]
    first, last = wanted.addresses
    if first == last:
        return [(first, "")]
    if 0 <= last - first < MOST_CHOICES:
        return [(address, "") for address in range(first, last + 1)]
    return [(OPEN, f"{format_address(first, wanted.family)}-{format_address(last, wanted.family)}")]


def port_choices(wanted: NatRange, random: bool) -> list[tuple[int, str]]:
    """The ports that a target may choose for a packet whose port is not in its range."""
    ports = wanted.ports
    if ports is None:
        return [(OPEN, "port at random")] if random else [(KEEP, "")]
    if ports.first == ports.last:
        return [(ports.first, "")]
    if wanted.base_port is not None:
        return [(OPEN, f"ports {ports.text('-')}/{wanted.base_port}")]
    if not random:
        return [(ports.first, "")]
    if ports.last - ports.first + 1 > MOST_CHOICES:
        return [(OPEN, f"ports {ports.text('-')}")]
    return [(port, "") for port in range(ports.first, ports.last + 1)]


def finals_of(target: Target | None, family: Family) -> list[Destination]:
    """All final destinations that a target may lead to."""
    found = []
    if isinstance(target, NetmapTarget):
        return [Destination(OPEN, KEEP, target.to_save()[3:])]
    ranges: list[tuple[NatRange, bool, bool]] = []
    if isinstance(target, DnatTarget):
        ranges.append((target.to_destination, target.random, False))
    if isinstance(target, RedirectTarget):
        ranges += [(redirect_range(target, family, hook), target.random, True) for hook in ("OUTPUT", "PREROUTING")]
    for wanted, random, redirected in ranges:
        for address, text in address_choices(wanted, redirected):
            for port, about in [*port_choices(wanted, random), (KEEP, "")]:
                found.append(Destination(address, port, " ".join(filter(None, (text, about)))))
    return found


__all__ = ["KEPT", "UNCHANGED", "Actions", "Destination", "Exits", "finals_of"]
