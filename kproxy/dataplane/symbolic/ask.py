"""A condition as the set of packets of which it holds, as a diagram.

Theory: docs/symbolic.md, "The function". Semantics are those of `concrete.answer`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from kproxy.dataplane.symbolic.free_variables import BEFORE, FreeVariable, Stage
from kproxy.dataplane.symbolic.nodes import FALSE, TRUE, Node
from kproxy.dataplane.symbolic.variables import LOCAL, NO_INTERFACE, Variables
from kproxy.netfilter.address import Network
from kproxy.netfilter.condition import PORTS, All, Among, Any, Condition, In, Interval, Not, Open, Under
from kproxy.netfilter.family import Family
from kproxy.netfilter.iptables.codec import Range


class OpaqueError(Exception):
    """The variables do not hold what is asked: the whole match is a free variable."""


_KNOWN: Final[dict[str, Callable[[Variables, Stage], int | None]]] = {
    "tracked": lambda variables, stage: int(stage.tracked),
    "reply": lambda variables, stage: 0 if stage.fresh else None,
    "family": lambda variables, stage: 2 if variables.family is Family.IPV4 else 10,
    "ethertype": lambda variables, stage: 0x0800 if variables.family is Family.IPV4 else 0x86DD,
    "transport": lambda variables, stage: 1,
    "sender": lambda variables, stage: 1,
    "ipvs": lambda variables, stage: int(stage.balanced),
}
"""Fields that are the same for all packets at a stage, or may be."""
_KINDS: Final = (1, 2, 3, 5)
"""The kernel's numbers of the kinds of addresses, in the order of `variables.ADDRESS_KINDS`."""
_TUPLES: Final = {
    "ctorigsrc": "src", "ctorigdst": "dst", "ctreplsrc": "dst", "ctrepldst": "src",
    "ctorigsrcport": "sport", "ctorigdstport": "dport", "ctreplsrcport": "dport", "ctrepldstport": "sport",
}  # fmt: skip
"""The connection's tuples, and what of its first packet they are."""


def ask(condition: Condition, variables: Variables, stage: Stage) -> Node:
    """The packets of which the condition holds at a stage of their way. Raises OpaqueError."""
    diagrams = variables.diagrams
    match condition:
        case In(field, intervals):
            known = _KNOWN[field](variables, stage) if field in _KNOWN else None
            if known is not None:
                return TRUE if any(first <= known <= last for first, last in intervals) else FALSE
            return _in(condition, variables, stage)
        case Under():
            return _of_field(condition, variables, stage)
        case Not(part):
            return diagrams.negate(ask(part, variables, stage))
        case All(parts):
            result = TRUE
            for part in parts:
                if result != FALSE:
                    result = diagrams.both(result, ask(part, variables, stage))
            return result
        case Any(parts):
            return diagrams.any_of([ask(part, variables, stage) for part in parts])
        case Among("ctstate", names):
            return _state(variables, names, stage)
        case Among("ctstatus", names):
            return _status(variables, names, stage)
        case Among("in_interface" | "out_interface" as field, names):
            if not (stage.input if field == "in_interface" else stage.output):
                return TRUE if any(variables.interfaces.atoms(name)[:1] == _NONE for name in names) else FALSE
            return diagrams.any_of(
                [variables.interface_fits(variables.levels[field][0], name) for name in sorted(names)]
            )
        case Open(kind, text, _):
            return variables.free(FreeVariable(kind, text))
    raise OpaqueError


_NONE: Final = [(NO_INTERFACE, NO_INTERFACE)]


def _in(condition: In, variables: Variables, stage: Stage) -> Node:
    match condition.field:
        case "ports":
            return ask(PORTS, variables, stage)
        case "has_socket":
            return variables.free(FreeVariable("owner", "-m owner --socket-exists", "socket"))
        case "src_local" | "dst_local" as field:
            return variables.diagrams.equals(variables.levels[field.replace("local", "kind")][0], LOCAL)
        case "uid" | "gid" | "groups" as field:
            return variables.diagrams.any_of([_owner(variables, field, *each) for each in condition.intervals])
        case "src_kind" | "dst_kind" as field:
            return _kind(condition.intervals, variables, field)
    return _of_field(condition, variables, stage)


def _owner(variables: Variables, field: str, first: int, last: int) -> Node:
    groups, name = field == "groups", field.replace("groups", "gid")
    text = f"-m owner --{name}-owner {Range(first, last).text('-')}" + (" --suppl-groups" if groups else "")
    return variables.free(FreeVariable("owner", text, (name, first, last, groups)))


def _kind(intervals: tuple[Interval, ...], variables: Variables, field: str) -> Node:
    """Whether the kind of an address is one of these. IPv6 knows of multicast by the address alone."""
    diagrams, kind = variables.diagrams, variables.levels[field][0]
    numbers = [number for first, last in intervals for number in range(first, min(last, 11) + 1)]
    held = [(at, at) for at, number in enumerate(_KINDS) if number in numbers]
    if variables.family is Family.IPV4:
        return diagrams.among(kind, held)
    if not set(numbers) <= set(_KINDS):
        raise OpaqueError
    address = variables.levels[field.removesuffix("_kind")][0]
    group = variables.address_under(address, Network(Family.IPV6, 0xFF << 120, 0xFF << 120))
    local, other, many = (TRUE if number in numbers else FALSE for number in (2, 1, 5))
    return diagrams.ite(group, many, diagrams.ite(diagrams.equals(kind, LOCAL), local, other))


def _of_field(condition: In | Under, variables: Variables, stage: Stage) -> Node:
    field = condition.field
    if field in _TUPLES:
        if _of_first_packet(field, stage):
            return of_packet(condition, variables, _TUPLES[field])
        return variables.free(FreeVariable("conntrack", _text(condition, variables), condition))
    if field not in variables.levels:
        raise OpaqueError
    return of_packet(condition, variables, field)


def of_packet(condition: In | Under, variables: Variables, field: str) -> Node:
    """The packets of which a condition holds, asked of that field."""
    level = variables.levels[field][0]
    match condition:
        case In(_, intervals):
            return variables.diagrams.any_of([variables.between(level, *each) for each in intervals])
        case Under(_, value, mask):
            return variables.under(level, value, mask)


def _text(condition: In | Under, variables: Variables) -> str:
    """The option that asks it."""
    if isinstance(condition, Under):
        return f"--{condition.field} {Network(variables.family, condition.value, condition.mask)}"
    return f"--{condition.field} {','.join(Range(*each).text() for each in condition.intervals)}"


def asked_of_packet(variables: Variables, condition: In | Under) -> Node | None:
    """What a question about the original tuple asks of a packet that still has its addresses and ports; None if it asks
    something else."""
    field = condition.field
    return of_packet(condition, variables, _TUPLES[field]) if field.startswith("ctorig") else None


def _of_first_packet(field: str, stage: Stage) -> bool:
    """Whether a field of the tuples is, at this stage, what the packet has."""
    new = stage.fresh and not stage.looped
    return new and (stage.phase == BEFORE or field not in ("ctorigdst", "ctorigdstport"))


def _state(variables: Variables, names: frozenset[str], stage: Stage) -> Node:
    """The packets whose connection's state is one of these."""
    diagrams = variables.diagrams
    if stage.table == "raw" and not stage.looped:  # only a rule of this table can have said anything yet
        answers = [TRUE if name in names else FALSE for name in ("UNTRACKED", "INVALID")]
        return diagrams.ite(diagrams.equals(variables.untracked, 1), *answers)
    if stage.ctstate in names:
        return TRUE
    result = FALSE
    if stage.tracked:
        # The first packet's connection is not translated before the nat tables have translated it.
        translated = not stage.fresh or stage.phase != BEFORE, not stage.fresh or stage.source_done
        for name, level, done in zip(("DNAT", "SNAT"), (variables.dnat, variables.snat), translated, strict=True):
            if name in names and done:
                result = diagrams.either(result, diagrams.equals(level, 1))
    return result


def _status(variables: Variables, names: frozenset[str], stage: Stage) -> Node:
    """The packets whose connection has one of these statuses."""
    if stage.ctstate == "NEW":
        return TRUE if stage.looped and "CONFIRMED" in names else FALSE
    if stage.ctstate == "ESTABLISHED" and names & {"SEEN_REPLY", "CONFIRMED"}:
        return TRUE
    free = (variables.free(FreeVariable("conntrack", f"--ctstatus {name}", name)) for name in sorted(names))
    return variables.diagrams.any_of(free)
