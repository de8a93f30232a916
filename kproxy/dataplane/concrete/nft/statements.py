"""What statements do: one function for each kind."""

from __future__ import annotations

import re
from collections.abc import Callable
from fractions import Fraction
from typing import Any, Final, NamedTuple

from kproxy.dataplane.concrete.nat import MANIP, Choice, NatTarget, choice_text, choices, set_ups
from kproxy.dataplane.concrete.nft.expressions import Sets, evaluate, look_up
from kproxy.dataplane.concrete.nft.keys import payload
from kproxy.dataplane.concrete.nft.values import MISSING, Drawn, Open, Uniform, alternatives, bounds
from kproxy.dataplane.concrete.result import Result
from kproxy.dataplane.concrete.state import DST, SRC, UNSEEN, Split, State, View, open_question, unknown
from kproxy.dataplane.model.deeds import FIELDS, UNMODELLED
from kproxy.dataplane.model.packet import TCP, Packet
from kproxy.netfilter.address import Network
from kproxy.netfilter.family import Family
from kproxy.netfilter.iptables.codec import UINT8, UINT32, Range
from kproxy.netfilter.iptables.targets import (
    DnatTarget,
    MasqueradeTarget,
    NatRange,
    NetmapTarget,
    RedirectTarget,
    SnatTarget,
)
from kproxy.netfilter.nftables.expression import Ct, ExtensionField, Meta, Payload
from kproxy.netfilter.nftables.operand import is_expression
from kproxy.netfilter.nftables.stateful import ConnectionLimit, Counter, Last, Limit, Quota
from kproxy.netfilter.nftables.statement import (
    Dup,
    FlowAdd,
    Fwd,
    Log,
    Mangle,
    Nat,
    Notrack,
    ObjectReference,
    OpaqueStatement,
    Queue,
    Reject,
    ResetOption,
    SetUpdate,
    Synproxy,
    Tproxy,
    VerdictMap,
    Xt,
)
from kproxy.netfilter.nftables.value import Prefix, Verdict


class Effect(NamedTuple):
    """One thing that a statement may do. `chance` is its probability among the statement's effects, None if that is not
    known, and `why` then says why; `chain` is where a jump leads, `reject` the answer by iptables' name."""

    result: Result
    state: State
    did: str = ""
    chance: Fraction | None = Fraction(1)
    chain: str = ""
    reject: str = ""
    why: str = ""


def run(statement: object, view: View, sets: Sets) -> list[Effect]:
    """What the statement may do to the packet."""
    action = _ACTIONS.get(type(statement))
    if action is None:
        return [Effect(Result.UNKNOWN, view.state, f"{type(statement).__name__.lower()} is not interpreted")]
    return action(statement, view, sets)


_WORD: Final = re.compile(r"[a-z]+")
_LEADS: Final = re.compile(r"\b(jump|goto) ([\w./-]+)")
_MOST_VERDICTS: Final = 100


def possible_effects(effect: Effect, statement: object, view: View, sets: Sets, *, nat: bool) -> list[Effect]:
    """All that a statement may do whose effect is UNKNOWN.

    A map may have any of its verdicts; user space accepts or drops. A statement that is not interpreted may hold or
    not, change marks, and do what its words say; what does not start as an expression may do anything. `nat` says
    whether the chain may translate.
    """
    state = view.state
    if isinstance(statement, VerdictMap):
        elements = sets.elements(statement.map)
        fitting = [each for each, _ in elements.candidates(evaluate(statement.key, view, sets))]
        fitting += [elements.catch_all] if elements.catch_all is not None else []
        verdicts = dict.fromkeys(each.data for each in fitting if isinstance(each.data, Verdict))
        if len(verdicts) > _MOST_VERDICTS:
            return [effect]
        found = [*(_verdict(verdict, view, sets)[0] for verdict in verdicts), Effect(Result.BREAK, state)]
    elif isinstance(statement, Queue):
        found = [Effect(Result.ACCEPT, state), Effect(Result.DROP, state)]
    else:
        found = [Effect(Result.BREAK, state), Effect(Result.CONTINUE, state.with_open_marks())]
        text = getattr(statement, "text", "")
        words = set(_WORD.findall(text))
        anything = not is_expression(text.partition(" ")[0])
        for word, result in (("accept", Result.ACCEPT), ("drop", Result.DROP), ("reject", Result.REJECT)):
            if anything or word in words:
                found.append(Effect(result, state))
        if "return" in words:
            found.append(Effect(Result.RETURN, state))
        found += [
            Effect(Result.JUMP if word == "jump" else Result.GOTO, state, chain=chain)
            for word, chain in _LEADS.findall(text)
            if sets.has_chain(chain)
        ]
        manip = MANIP.get(view.hook)
        if nat and manip is not None and (anything or words & {"dnat", "snat", "masquerade", "redirect"}):
            found += [Effect(Result.ACCEPT, each) for each in set_ups(state, manip, Choice(None, None, Fraction(1)))]
    return [each._replace(chance=None, why=effect.did, did=effect.did) for each in found]


def _goes_on(did: str) -> Callable[[Any, View, Sets], list[Effect]]:
    return lambda _statement, view, _sets: [Effect(Result.CONTINUE, view.state, did)]


_RESULTS: Final = {
    "accept": Result.ACCEPT, "drop": Result.DROP, "return": Result.RETURN, "jump": Result.JUMP, "goto": Result.GOTO,
    "continue": Result.CONTINUE,
}  # fmt: skip


def _verdict(verdict: Verdict, view: View, _sets: Sets) -> list[Effect]:
    did = verdict.kind if verdict.chain is None else f"{verdict.kind} {verdict.chain}"
    return [Effect(_RESULTS[verdict.kind], view.state, did, chain=verdict.chain or "")]


def _vmap(statement: VerdictMap, view: View, sets: Sets) -> list[Effect]:
    key = evaluate(statement.key, view, sets)
    found: Any = MISSING if key is MISSING else look_up(statement.map, key, view, sets)
    if isinstance(found, Open):
        return [Effect(Result.UNKNOWN, view.state, f"vmap: {found.why}")]
    effects = []
    rows: Any = found.items if isinstance(found, Drawn) else ((found, Fraction(1)),)
    for verdict, chance in rows:
        why = found.why if isinstance(found, Drawn) else ""
        if verdict is MISSING:
            effects.append(Effect(Result.BREAK, view.state, "", chance, why=why))
        else:
            effects.append(_verdict(verdict, view, sets)[0]._replace(chance=chance, why=why))
    return effects


_CODES: Final[dict[str, dict[int, str]]] = {
    "icmp": {
        0: "icmp-net-unreachable", 1: "icmp-host-unreachable", 2: "icmp-proto-unreachable", 3: "icmp-port-unreachable",
        9: "icmp-net-prohibited", 10: "icmp-host-prohibited", 13: "icmp-admin-prohibited",
    },
    "icmpv6": {
        0: "icmp6-no-route", 1: "icmp6-adm-prohibited", 3: "icmp6-addr-unreachable", 4: "icmp6-port-unreachable",
        5: "icmp6-policy-fail", 6: "icmp6-reject-route",
    },
}  # fmt: skip
_ICMPX: Final = {Family.IPV4: (0, 3, 1, 13), Family.IPV6: (0, 4, 3, 1)}
"""The codes of icmpx (no-route, port-unreachable, host-unreachable, admin-prohibited) in each family (nft_reject)."""


def _reject(statement: Reject, view: View, _sets: Sets) -> list[Effect]:
    packet = view.state.packet
    if statement.kind == "tcp reset":
        if packet.protocol != TCP:  # nft adds the condition itself
            return [Effect(Result.BREAK, view.state)]
        return [Effect(Result.REJECT, view.state, "reject with tcp reset", reject="tcp-reset")]
    kind = "icmp" if packet.family is Family.IPV4 else "icmpv6"
    code = statement.code
    if statement.kind == "icmpx":
        code = _ICMPX[packet.family][code]
    elif statement.kind != kind:
        return [Effect(Result.BREAK, view.state)]
    answer = _CODES[kind].get(code, f"{kind}-{code}")
    return [Effect(Result.REJECT, view.state, f"reject with {answer}", reject=answer)]


def _mangle(statement: Mangle, view: View, sets: Sets) -> list[Effect]:
    if not _has_header(statement.target, view.state.packet):
        return [Effect(Result.BREAK, view.state)]
    if isinstance(statement.target, Payload) and statement.target.field in UNMODELLED:
        field = f"{statement.target.protocol} {statement.target.field}"
        return [Effect(Result.UNKNOWN, view.state, f"writing {field} is not modelled")]
    value = evaluate(statement.value, view, sets)
    if value is MISSING:
        return [Effect(Result.BREAK, view.state)]
    drawn = alternatives(value)
    why = drawn.why
    effects = []
    for each, chance in drawn.items:
        if each is MISSING:
            effects.append(Effect(Result.BREAK, view.state, "", chance, why=why))
        else:
            state, did = _written(statement.target, each, view)
            effects.append(Effect(Result.CONTINUE, state, did, chance, why=why))
    return effects


def _has_header(target: object, packet: Packet) -> bool:
    """Whether the packet has the header that is written: nft asks for its protocol first, and does not list that."""
    if isinstance(target, Payload):
        return payload(packet, target.protocol, target.field) is not MISSING
    if isinstance(target, ExtensionField) and target.kind == "tcp option":  # nft_exthdr_tcp_set_eval
        return packet.protocol == TCP and not packet.fragment
    return True


def _written(target: object, value: Any, view: View) -> tuple[State, str]:
    """The state with one thing written."""
    state = view.state
    number, known = (value.value, value.known & UINT32) if isinstance(value, Open) else (value, UINT32)
    if isinstance(target, Meta) and target.key == "mark":
        text = f"0x{number:x}" if known == UINT32 else f"0x{number:x}/0x{known:x}"
        return state.with_packet(mark=number & known, mark_known=known), f"mark {text}"
    if isinstance(target, Ct) and target.key == "mark":
        if not state.has_connection:
            return state, "no connection to mark"
        changed = state.connection.replace(mark=number & known, mark_known=known)
        return state._replace(connection=changed), f"connection mark 0x{number:x}"
    if isinstance(target, Payload):
        new = None if isinstance(value, Open) else value
        return _header_written(target, new, state), f"{target.protocol} {target.field} set"
    name = getattr(target, "key", "") or "a header"
    return state, f"sets {name}"


def _header_written(target: Payload, new: int | None, state: State) -> State:
    field = {
        "saddr": "src", "daddr": "dst", "sport": "sport", "dport": "dport",
    }.get(target.field)  # fmt: skip
    if field is not None:
        return state.with_packet(**{field: new})
    part = FIELDS.get((target.protocol, target.field))
    if part is None:
        return state
    old = 0 if part.mask == UINT8 else getattr(state.packet, part.name)
    return state.with_packet(**{part.name: None if new is None or old is None else part.written(old, new)})


def _nat(statement: Nat, view: View, sets: Sets) -> list[Effect]:
    """nft_nat, nft_masq, nft_redir: the chain ends with what NAT answers."""
    state, family = view.state, view.state.packet.family
    manip = MANIP.get(view.hook)
    if manip is None or (statement.kind in ("snat", "masquerade")) != (manip == SRC):
        return [Effect(Result.UNKNOWN, state, f"{statement.kind} outside of its hooks")]
    if statement.family is not None and statement.family != ("ip" if family is Family.IPV4 else "ip6"):
        return [Effect(Result.BREAK, state)]
    effects: list[Effect] = []
    address = None if statement.address is None else evaluate(statement.address, view, sets)
    port = None if statement.port is None else evaluate(statement.port, view, sets)
    for where, chance in alternatives(address).items if address is not None else ((None, Fraction(1)),):
        for at, share in alternatives(port).items if port is not None else ((None, Fraction(1)),):
            weight = None if chance is None or share is None else chance * share
            effects += _translations(statement, where, at, weight, view)
    if any(effect.chance is None for effect in effects):
        why = next((item.why for item in (address, port) if isinstance(item, Drawn)), "")
        return [effect._replace(chance=None, why=why or effect.why) for effect in effects]
    return effects


def _translations(statement: Nat, address: Any, port: Any, weight: Fraction | None, view: View) -> list[Effect]:
    state = view.state
    manip = MANIP[view.hook]
    if MISSING in (address, port):
        return [Effect(Result.BREAK, state, "", weight)]
    if statement.concatenated and isinstance(address, tuple):
        address, port = address
    found = choices(_target(statement, address, port, view), view)
    if found is None:
        return [Effect(Result.DROP, state, f"{statement.kind}: no address to rewrite to", weight)]
    side = "destination" if manip == DST else "source"
    effects = []
    for choice in found:
        if isinstance(address, Open):
            choice = choice._replace(address=None)
        if isinstance(port, Open):
            choice = choice._replace(port=None)
        did = f"{statement.kind}: {side} becomes {choice_text(state, choice)}"
        states = set_ups(state, manip, choice)
        chance = None if weight is None or len(states) > 1 else weight * choice.chance
        why = "what is translated is not known"
        effects += [Effect(Result.ACCEPT, each, did, chance, why=why) for each in states]
    return effects


def _target(statement: Nat, address: Any, port: Any, view: View) -> NatTarget:
    """The iptables target that does the same: both end in nf_nat_setup_info."""
    family = view.state.packet.family
    numbers = bounds(port)
    ports = None if numbers is None else Range(*numbers)
    random = "random" in statement.flags
    fully = "fully-random" in statement.flags
    if statement.kind == "masquerade":
        return MasqueradeTarget(ports, random, fully)
    if statement.kind == "redirect":
        return RedirectTarget(ports, random or fully)
    if statement.prefix and isinstance(address, Prefix):
        return NetmapTarget(Network(family, address.address, address.mask))
    wanted = NatRange(family, bounds(address), ports)
    if statement.kind == "snat":
        return SnatTarget(wanted, random, fully)
    return DnatTarget(wanted, random or fully)


def _limit(statement: Limit, view: View, _sets: Sets) -> list[Effect]:
    within = view.limit
    if within is None:
        return _either(view, unknown(view, "whether the rate is within the limit is not known"))
    return [Effect(Result.CONTINUE if within != statement.over else Result.BREAK, view.state)]


def _unknown_state(statement: Quota | ConnectionLimit, view: View, _sets: Sets) -> list[Effect]:
    name = "quota" if isinstance(statement, Quota) else "ct count"
    answer = open_question(view, (name, view.ref), f"whether the {name} is used up is not known")
    if isinstance(answer, bool):
        return [Effect(Result.CONTINUE if answer else Result.BREAK, view.state)]
    return _either(view, answer)


def _either(view: View, answer: Split) -> list[Effect]:
    return [
        Effect(Result.CONTINUE, answer.yes or view.state, "", None, why=answer.why),
        Effect(Result.BREAK, answer.no or view.state, "", None, why=answer.why),
    ]


def _update(statement: SetUpdate, view: View, sets: Sets) -> list[Effect]:
    """nft_dynset: the set remembers the key."""
    key = evaluate(statement.key, view, sets)
    if key is MISSING:
        return [Effect(Result.BREAK, view.state)]
    data: Any = True
    if statement.data is not None:
        data = evaluate(statement.data, view, sets)
    if isinstance(key, (Drawn, Uniform)) or isinstance(data, (Drawn, Uniform)):
        return [Effect(Result.UNKNOWN, view.state, f"a random element of @{statement.set} is not modelled")]
    if statement.operation == "delete":
        data = None
    table = view.ref.table
    kept = {item for item in view.state.sets if item[:3] != (table, statement.set, key)}
    state = view.state._replace(sets=frozenset(kept | {(table, statement.set, key, data)}))
    word = {"add": "adds to", "update": "updates", "delete": "deletes from"}[statement.operation]
    done = Effect(Result.CONTINUE, state, f"{word} @{statement.set}")
    for each in statement.stateful:
        if isinstance(each, (Counter, Last)):
            continue
        held = run(each, View(view.host, view.hook, view.ref, state, view.limit), sets)
        return held if len(held) > 1 or held[0].result is Result.BREAK else [done]
    return [done]


def _notrack(_statement: Notrack, view: View, _sets: Sets) -> list[Effect]:
    if view.state.tracking != UNSEEN:
        return [Effect(Result.CONTINUE, view.state, "already tracked")]
    return [Effect(Result.CONTINUE, view.state._replace(tracking="UNTRACKED"), "not tracked")]


def _tproxy(statement: Tproxy, view: View, sets: Sets) -> list[Effect]:
    """nft_tproxy: without a transparent socket there the rule ends."""
    state, packet = view.state, view.state.packet
    port = packet.dport if statement.port is None else evaluate(statement.port, view, sets)
    taken = Effect(Result.CONTINUE, state._replace(assigned=True), f"tproxy: given to the socket on port {port}", None)
    refused = Effect(Result.BREAK, state, "", None)
    listening = view.host.transparent
    if listening is None or not isinstance(port, int):
        why = "whether a transparent socket listens is not known"
        return [taken._replace(why=why), refused._replace(why=why)]
    chosen = taken if (packet.protocol, port) in listening else refused
    return [chosen._replace(chance=Fraction(1))]


def _user_space(statement: object, view: View, _sets: Sets) -> list[Effect]:
    name = type(statement).__name__.lower()
    return [Effect(Result.UNKNOWN, view.state, f"{name}: user space decides")]


def _object(statement: ObjectReference, view: View, _sets: Sets) -> list[Effect]:
    if statement.kind in ("quota", "limit"):
        key = ("object", statement.kind, statement.name)
        answer = open_question(view, key, f"whether {statement.kind} {statement.name} is used up is not known")
        if isinstance(answer, Split):
            return _either(view, answer)
        return [Effect(Result.CONTINUE if answer else Result.BREAK, view.state)]
    if statement.kind == "synproxy":
        return [Effect(Result.UNKNOWN, view.state, "synproxy is not modelled")]
    return [Effect(Result.CONTINUE, view.state, f"{statement.kind} {statement.name}")]


def _opaque(statement: OpaqueStatement | Xt | Synproxy, view: View, _sets: Sets) -> list[Effect]:
    name = getattr(statement, "text", "") or getattr(statement, "name", "") or "synproxy"
    return [Effect(Result.UNKNOWN, view.state, f"{name} is not interpreted")]


_ACTIONS: Final[dict[type, Callable[[Any, View, Sets], list[Effect]]]] = {
    ConnectionLimit: _unknown_state,
    Counter: _goes_on(""),
    Dup: _goes_on("sends a copy elsewhere"),
    FlowAdd: _goes_on("offloads the connection"),
    Fwd: _user_space,
    Last: _goes_on(""),
    Limit: _limit,
    Log: _goes_on("log"),
    Mangle: _mangle,
    Nat: _nat,
    Notrack: _notrack,
    ObjectReference: _object,
    OpaqueStatement: _opaque,
    Queue: _user_space,
    Quota: _unknown_state,
    Reject: _reject,
    ResetOption: _goes_on("takes a TCP option out"),
    SetUpdate: _update,
    Synproxy: _opaque,
    Tproxy: _tproxy,
    Verdict: _verdict,
    VerdictMap: _vmap,
    Xt: _opaque,
}
