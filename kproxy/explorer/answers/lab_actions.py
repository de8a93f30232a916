"""What only a lab allows: breaking and healing it, one real connection beside the model, and counters of its rules."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Final

import msgspec

from kproxy.api.kubeproxyconfig.types import MODE_NFTABLES
from kproxy.cluster.journey.path import ANSWERED
from kproxy.cluster.rules import read_rule_file
from kproxy.errors import KproxyError
from kproxy.explorer.answers.ask import Answer, Ask, answer
from kproxy.explorer.errors import Refusal, bad_input
from kproxy.explorer.model.model import Model
from kproxy.explorer.sources.live import LabSource
from kproxy.lab import faults
from kproxy.lab.errors import LabInputError
from kproxy.lab.spec import CLIENT, LabSpec
from kproxy.linux.errors import LinuxError
from kproxy.linux.host.rules import output_of
from kproxy.linux.iptables.binaries import installed
from kproxy.linux.iptables.executor import IptablesExecutor
from kproxy.linux.namespace import Namespace
from kproxy.netfilter import Family, parse_save
from kproxy.netfilter.hooks import Variant
from kproxy.netfilter.nftables.stateful import Counter

if TYPE_CHECKING:
    from kproxy.lab.capture.dissect import PacketAtInterface
    from kproxy.lab.inspect.follow import Followed

TIMEOUT: Final = 1.5
"""Seconds for which silence must last, of a connection that is followed."""


class Fault(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What is broken or healed: `name` is a node's or a pod's, "" for the API server."""

    kind: str
    name: str = ""


class Done(msgspec.Struct, frozen=True):
    done: str


class Follow(msgspec.Struct, frozen=True, forbid_unknown_fields=True, rename={"sender": "from"}):
    """A connection to make, as `kproxy lab trace` names its ends."""

    sender: str
    to: str


class Row(msgspec.Struct, frozen=True):
    """One interface: what the model says passes there, and what was captured; None: nothing."""

    direction: str
    place: str
    host: str
    device: str
    model: str | None
    captured: str | None
    same: bool


class FollowAnswer(msgspec.Struct, frozen=True):
    """`journey` is the place of the way that came about in `ask.journeys`, -1 if it is none of them."""

    agrees: bool
    open: bool
    answer: str
    journey: int
    rows: tuple[Row, ...]
    ask: Answer | None


def break_or_heal(source: LabSource, fault: Fault, *, heal: bool) -> Done:
    """Raises Refusal: there is no such thing, or it cannot be done."""
    if fault.kind not in faults.KINDS:
        raise bad_input(f"kind: one of {', '.join(faults.KINDS)} expected", "kind")
    name = fault.name.removeprefix("node/").removeprefix("pod/")
    if (fault.kind == "apiserver") == bool(name):
        raise bad_input(f"name: {'none' if name else 'a name'} expected", "name")
    try:
        done = (faults.heal if heal else faults.fail)(source.lab, fault.kind, name)
    except LabInputError as error:
        raise bad_input(f"name: {error}", "name") from error
    except KproxyError as error:
        raise Refusal(409, str(error)) from error
    # Links are looked at again at once, without waiting for the poller.
    source.look([name] if fault.kind in ("node", "link") else ())
    return Done(done)


def follow_connection(source: LabSource, model: Model, asked: Follow) -> FollowAnswer:
    """Makes one connection, and says what was captured beside what the model says.

    Raises:
        Refusal: a name stands for nothing, or it cannot be made.
    """
    # Imported here: only a lab needs scapy, a quarter of a second of the start.
    from kproxy.lab.cluster import read_cluster
    from kproxy.lab.inspect.follow import follow
    from kproxy.lab.inspect.targets import client_host, find_target
    from kproxy.lab.model.hosts import LabModel

    record = source.record
    try:
        cluster = read_cluster(source.lab, record)
        client = client_host(cluster, _plain(asked.sender))
        target = find_target(cluster, asked.to)
        lab_model = LabModel(record.spec, cluster)
        found = follow(lab_model, client, target, timeout=TIMEOUT)
    except LabInputError as error:
        raise bad_input(str(error), "to" if asked.to in str(error) else "from") from error
    except LinuxError as error:
        raise Refusal(409, str(error)) from error
    known = _answer(model, client, found)
    place = place_of(found) if known is not None else -1
    return FollowAnswer(found.agrees, found.is_open, said(found), place, rows_of(found), known)


def place_of(found: Followed) -> int:
    """The place of the way that came about among all of them; -1 if it is none."""
    way = found.compared.journey
    return next((number for number, each in enumerate(found.journeys) if each == way), -1)


def rows_of(found: Followed) -> tuple[Row, ...]:
    """Model and capture beside one another, in the order of the model. What was captured where the model says another
    packet is in its row, which opens; what was captured elsewhere comes last."""
    pairs = found.compared.pairs
    left = [seen for wanted, seen in pairs if wanted is None and seen is not None]
    rows = []
    for wanted, seen in pairs:
        if wanted is None:
            continue
        there = seen or next((each for each in left if each.position == wanted.position), None)
        if seen is None and there is not None:
            left.remove(there)
        rows.append(_row(wanted, wanted.words, None if there is None else there.words, same=seen is not None))
    return (*rows, *(_row(each, None, each.words, same=False) for each in left))


def _row(at: PacketAtInterface, model: str | None, captured: str | None, *, same: bool) -> Row:
    place = f"{at.host} {at.device} {'out' if at.outgoing else 'in'}"
    return Row(at.direction, place, at.host, at.device, model, captured, same)


def said(found: Followed) -> str:
    """What became of the connection, in words."""
    seen = found.answer
    if seen.end != ANSWERED:
        return str(seen.end)
    who = f" by {seen.pod}" if seen.pod else ""
    return f"answered{who}{f', which sees {seen.source}' if seen.source else ''}"


def _answer(model: Model, client: str, found: Followed) -> Answer | None:
    """The same question to the model of the page; None if it does not know one of the ends."""
    target = found.target
    sender = client if client.startswith("pod/") else f"node/{client}"
    try:
        return answer(model, Ask(sender, target.destination, protocol=target.protocol.lower()))
    except KproxyError:
        return None


def _plain(name: str) -> str:
    """A reference of the map as the lab's commands name hosts."""
    if name.startswith("outside/"):
        return CLIENT
    return name.removeprefix("node/").removeprefix("host/")


def counters(source: LabSource) -> dict[str, dict[str, tuple[int, int]]]:
    """Packets and bytes of every rule of every node, by `TABLE CHAIN RULE`, with the table's name as steps have it.

    Raises:
        Refusal: a node cannot be read.
    """
    record = source.record
    found = {}
    for plan in source.lab.plans(record):
        try:
            with Namespace.named(plan.namespace) as inside:
                if record.spec.mode == MODE_NFTABLES:
                    found[plan.name] = dict(_native(output_of(inside, ["nft", "list", "ruleset"]), plan.name))
                else:
                    found[plan.name] = dict(_iptables(inside, record.spec))
        except KproxyError as error:
            raise Refusal(503, f"{plan.name}: {error}", away=True) from error
    return found


Counted = Iterator[tuple[str, tuple[int, int]]]


def _iptables(namespace: Namespace, spec: LabSpec) -> Counted:
    for version in spec.families:
        family = Family.IPV4 if version == 4 else Family.IPV6
        binaries = installed(family)[Variant(spec.variant)]
        text = IptablesExecutor(namespace, binaries).save(counters=True)
        for table, chain, number, rule in parse_save(text, f"{spec.name}", family=family).rules():
            if rule.counters is not None and rule.counters.packets:
                key = f"{table.name} {chain.name} {number}"
                yield key, (rule.counters.packets, rule.counters.bytes)


def _native(text: str, label: str) -> Counted:
    rules = read_rule_file(text, label).nftables if text.strip() else None
    for table in rules.tables if rules is not None else ():
        for chain in table.chains:
            for number, rule in enumerate(chain.rules, 1):
                counted = next((each for each in rule.statements if isinstance(each, Counter)), None)
                if counted is not None and counted.packets:
                    name = f"{table.family.value} {table.name} {chain.name} {number}"
                    yield name, (counted.packets, counted.bytes)
