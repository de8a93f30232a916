"""What statements do that depend on the packet, on sets that change, or on what passed before: one function for each
kind. What the others do is data (`netfilter.nftables.effects`)."""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction
from typing import Any, Final

from kproxy.dataplane.concrete.effects import ACTS, Result, Way, all_open, fits_hook, translations, with_mark
from kproxy.dataplane.concrete.nat import Choice
from kproxy.dataplane.concrete.nft.expressions import Sets, evaluate, look_up
from kproxy.dataplane.concrete.nft.values import MISSING, Drawn, Open, Uniform, alternatives
from kproxy.dataplane.concrete.state import Split, View, open_question, unknown
from kproxy.netfilter.family import Family
from kproxy.netfilter.iptables.codec import UINT32
from kproxy.netfilter.nftables.effects import FAMILIES, UNMODELLED, WIDE_FIELDS, nat, verdict
from kproxy.netfilter.nftables.expression import Ct, Meta, Payload, SetReference
from kproxy.netfilter.nftables.lowering import key_of
from kproxy.netfilter.nftables.stateful import ConnectionLimit, Limit, Quota
from kproxy.netfilter.nftables.statement import Mangle, Nat, ObjectReference, SetUpdate, VerdictMap
from kproxy.netfilter.nftables.value import Prefix, Verdict, bounds

_MOST_VERDICTS: Final = 100


def _act(item: Verdict, view: View) -> list[Way]:
    done = verdict(item)
    return ACTS[type(done)](done, view)


def _vmap(statement: VerdictMap, view: View, sets: Sets) -> list[Way]:
    key = evaluate(statement.key, view, sets)
    found: Any = MISSING if key is MISSING else look_up(statement.map, key, view, sets)
    if isinstance(found, Open):
        return _open_vmap(statement, key, Way(Result.UNKNOWN, view.state, f"vmap: {found.why}"), view, sets)
    ways = []
    rows: Any = found.items if isinstance(found, Drawn) else ((found, Fraction(1)),)
    for item, chance in rows:
        why = found.why if isinstance(found, Drawn) else ""
        way = Way(Result.BREAK, view.state) if item is MISSING else _act(item, view)[0]
        ways.append(way._replace(chance=chance, why=why))
    return ways


def _open_vmap(statement: VerdictMap, key: Any, way: Way, view: View, sets: Sets) -> list[Way]:
    """Any of its verdicts, unless they are too many."""
    elements = sets.elements(statement.map)
    fitting = [each for each, _ in elements.candidates(key)]
    fitting += [elements.catch_all] if elements.catch_all is not None else []
    verdicts = dict.fromkeys(each.data for each in fitting if isinstance(each.data, Verdict))
    if len(verdicts) > _MOST_VERDICTS:
        return [way]
    found = [*(_act(item, view)[0] for item in verdicts), Way(Result.BREAK, view.state)]
    return [each._replace(chance=None, why=way.did, did=way.did) for each in found]


def _mangle(statement: Mangle, view: View, sets: Sets) -> list[Way]:
    target = statement.target
    if isinstance(target, Payload) and target.field in UNMODELLED:
        field = f"{target.protocol} {target.field}"
        return [Way(Result.UNKNOWN, view.state, f"writing {field} is not modelled")]
    drawn = alternatives(evaluate(statement.value, view, sets))
    ways = []
    for value, chance in drawn.items:
        way = Way(Result.BREAK, view.state) if value is MISSING else _written(target, value, view)
        ways.append(way._replace(chance=chance, why=drawn.why))
    return ways


def _written(target: object, value: Any, view: View) -> Way:
    """One value written."""
    if isinstance(target, (Meta, Ct)):
        if isinstance(target, Ct) and not view.state.has_connection:
            return Way(Result.CONTINUE, view.state, "no connection to mark")
        number, known = (value.value, value.known & UINT32) if isinstance(value, Open) else (value, UINT32)
        return with_mark("mark" if isinstance(target, Meta) else "connmark", number, known, view)
    part = key_of(target)
    assert isinstance(target, Payload), target
    assert part is not None, target
    old = 0 if target.field in WIDE_FIELDS else getattr(view.state.packet, part.field)
    new = None if isinstance(value, Open) or old is None else part.written(old, value)
    state = view.state.with_packet(**{part.field: new})
    return Way(Result.CONTINUE, state, f"{target.protocol} {target.field} set")


def _nat(statement: Nat, view: View, sets: Sets) -> list[Way]:
    """nft_nat: the chain ends with what NAT answers."""
    family = view.state.packet.family
    if not fits_hook(statement.kind, view):
        return [Way(Result.UNKNOWN, view.state, f"{statement.kind} outside of its hooks")]
    if statement.family is not None and FAMILIES[statement.family] is not family:
        return [Way(Result.BREAK, view.state)]
    ways: list[Way] = []
    address = None if statement.address is None else evaluate(statement.address, view, sets)
    port = None if statement.port is None else evaluate(statement.port, view, sets)
    for where, chance in alternatives(address).items if address is not None else ((None, Fraction(1)),):
        for at, share in alternatives(port).items if port is not None else ((None, Fraction(1)),):
            weight = None if chance is None or share is None else chance * share
            ways += _translated(statement, family, where, at, weight, view)
    return all_open(ways, next((item.why for item in (address, port) if isinstance(item, Drawn)), ""))


def _translated(
    statement: Nat, family: Family, address: Any, port: Any, weight: Fraction | None, view: View
) -> list[Way]:
    if MISSING in (address, port):
        return [Way(Result.BREAK, view.state, "", weight)]
    if statement.concatenated and isinstance(address, tuple):
        address, port = address
    plain = [each if isinstance(each, Prefix) or bounds(each) else None for each in (address, port)]
    constant = nat(statement, family, *plain)
    assert constant is not None, statement

    def opened(choice: Choice) -> Choice:
        choice = choice._replace(address=None) if isinstance(address, Open) else choice
        return choice._replace(port=None) if isinstance(port, Open) else choice

    return translations(constant, view, weight, opened)


def _limit(statement: Limit, view: View, _sets: Sets) -> list[Way]:
    within = view.limit
    if within is None:
        return _either(view, unknown(view, "whether the rate is within the limit is not known"))
    return [Way(Result.CONTINUE if within != statement.over else Result.BREAK, view.state)]


def _used_up(name: str, key: object, view: View) -> list[Way]:
    answer = open_question(view, key, f"whether {name} is used up is not known")
    if isinstance(answer, bool):
        return [Way(Result.CONTINUE if answer else Result.BREAK, view.state)]
    return _either(view, answer)


def _object(statement: ObjectReference, view: View, _sets: Sets) -> list[Way]:
    name = f"{statement.kind} {statement.name}"
    return _used_up(name, ("object", statement.kind, statement.name), view)


def _either(view: View, answer: Split) -> list[Way]:
    return [
        Way(Result.CONTINUE, answer.yes or view.state, "", None, why=answer.why),
        Way(Result.BREAK, answer.no or view.state, "", None, why=answer.why),
    ]


def _update(statement: SetUpdate, view: View, sets: Sets) -> list[Way]:
    """nft_dynset: the set remembers the key; an element that is there keeps its data (nft_rhash_update)."""
    key = evaluate(statement.key, view, sets)
    if key is MISSING:
        return [Way(Result.BREAK, view.state)]
    data: Any = True
    if statement.data is not None:
        held = look_up(SetReference(statement.set), key, view, sets)
        data = evaluate(statement.data, view, sets) if held is MISSING else held
    if isinstance(key, (Drawn, Uniform)) or isinstance(data, (Drawn, Uniform)):
        return [Way(Result.UNKNOWN, view.state, f"a random element of @{statement.set} is not modelled")]
    if statement.operation == "delete":
        data = None
    table = view.ref.table
    kept = {item for item in view.state.sets if item[:3] != (table, statement.set, key)}
    state = view.state._replace(sets=frozenset(kept | {(table, statement.set, key, data)}))
    word = {"add": "adds to", "update": "updates", "delete": "deletes from"}[statement.operation]
    done = Way(Result.CONTINUE, state, f"{word} @{statement.set}")
    for each in statement.stateful:
        if type(each) in STATEMENTS:
            inner = View(view.host, view.hook, view.ref, state, view.limit)
            held = STATEMENTS[type(each)](each, inner, sets)
            return held if len(held) > 1 or held[0].result is Result.BREAK else [done]
    return [done]


STATEMENTS: Final[dict[type, Callable[[Any, View, Sets], list[Way]]]] = {
    ConnectionLimit: lambda _, view, sets: _used_up("the ct count", ("ct count", view.ref), view),
    Limit: _limit,
    Mangle: _mangle,
    Nat: _nat,
    ObjectReference: _object,
    Quota: lambda _, view, sets: _used_up("the quota", ("quota", view.ref), view),
    SetUpdate: _update,
    VerdictMap: _vmap,
}
