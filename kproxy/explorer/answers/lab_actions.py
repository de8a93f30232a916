"""What only a lab allows: breaking and healing it, one real connection beside the model, and counters of its rules."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Final

import msgspec

from kproxy.api.kubeproxyconfig.types import MODE_NFTABLES
from kproxy.cluster.journey.network import POD
from kproxy.cluster.journey.path import ANSWERED
from kproxy.cluster.rules import read_rule_file
from kproxy.errors import KproxyError
from kproxy.explorer.answers.ask import MAX_WAYS, Answer, Way, way_record
from kproxy.explorer.errors import Refusal, bad_input
from kproxy.explorer.model.model import Model
from kproxy.explorer.sources.live import LabSource
from kproxy.lab import faults
from kproxy.lab.errors import LabInputError
from kproxy.lab.spec import CLIENT, FABRIC, LabSpec
from kproxy.linux.errors import LinuxError
from kproxy.linux.host.rules import output_of
from kproxy.linux.iptables.executor import IptablesExecutor, installed
from kproxy.linux.namespace import Namespace
from kproxy.netfilter import Family, Rule, parse_save
from kproxy.netfilter.hooks import Variant
from kproxy.netfilter.iptables.matches import CommentMatch
from kproxy.netfilter.nftables.stateful import Counter

if TYPE_CHECKING:
    from kproxy.lab.capture.dissect import PacketAtInterface
    from kproxy.lab.inspect.follow import Followed

Counts = tuple[int, int, str]
"""Packets and bytes that a rule has met, and its comment."""
TIMEOUT: Final = 1.5
"""Seconds for which silence must last, of a connection that is followed."""


class Fault(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What is broken or healed: `name` is a node's or a pod's, "" for the API server."""

    kind: str
    name: str = ""


class Broken(msgspec.Struct, frozen=True):
    """Something that is broken now, as `Fault` names it, and in words."""

    kind: str
    name: str
    words: str


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
    """What became of a connection, and whether it is what the model says.

    Attributes:
        agrees: whether every packet was where the model says, and the client got what it says; `open`: the model leaves
            it open.
        answer: the outcome in words; `end` is its kind: answered, refused, lost or unreachable.
        service: whose address was asked, `NAMESPACE/NAME`; "" if nobody's.
        journey: the place of the way that came about in `ask.journeys`, -1 if it is none of those that are listed.
        hops: at how many places the model or the capture has a packet; `same`: at how many it is the same one.
        ask: what the model holds possible.
    """

    agrees: bool
    open: bool
    answer: str
    end: str
    service: str
    journey: int
    hops: int
    same: int
    rows: tuple[Row, ...]
    ask: Answer


def break_or_heal(source: LabSource, fault: Fault, *, heal: bool) -> str:
    """What was done, in words. Raises Refusal: there is no such thing, or it cannot be done."""
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
    # Links are looked at again at once, without waiting for the poller; a node's cable ends at the fabric, too.
    source.look([name, FABRIC] if fault.kind in ("node", "link") else ())
    return done


def all_broken(source: LabSource) -> Iterator[Broken]:
    """What is broken now, whoever broke it, in the order in which it is to be healed: Pods need the API server and
    their nodes. Of a node that is off its link is not told, too."""
    from kproxy.lab.cluster import read_cluster

    cluster = read_cluster(source.lab, source.record)
    if not cluster.api_running:
        yield Broken("apiserver", "", "the API server does not run")
    for node in cluster.nodes:
        if not node.processes:
            yield Broken("node", node.name, f"{node.name} is off")
        elif not node.link:
            yield Broken("link", node.name, f"the link of {node.name} is down")
    for pod in cluster.pods:
        if pod.failed:
            yield Broken("pod", pod.key, f"pod {pod.key} has crashed")


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
    return follow_answer(found, model.revision)


def follow_answer(found: Followed, revision: int = 1) -> FollowAnswer:
    """A connection that was made, as it is told."""
    target, compared = found.target, found.compared
    sender = found.client if found.client.startswith(POD) else f"node/{found.client}"
    ways = tuple(_sent(way_record(each)) for each in found.journeys[:MAX_WAYS])
    known = Answer(
        revision, sender, target.destination, target.protocol.lower(), ways, (), (), (), (), len(found.journeys)
    )  # fmt: skip
    place, hops = place_of(found), len(compared.pairs)
    return FollowAnswer(
        found.agrees, found.is_open, said(found), found.answer.end, target.service,
        place if place < len(ways) else -1, hops, hops - compared.differences, rows_of(found), known,
    )  # fmt: skip


def _sent(way: Way) -> Way:
    """A way whose sender has the address that routing chose for it: it was sent, so nobody need be kept in doubt."""
    first = way.there[0]
    if first.snat or not first.src.startswith("?"):
        return way
    return msgspec.structs.replace(way, there=(msgspec.structs.replace(first, src=first.left_src), *way.there[1:]))


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


def _plain(name: str) -> str:
    """A reference of the map as the lab's commands name hosts."""
    if name.startswith("outside/"):
        return CLIENT
    return name.removeprefix("node/").removeprefix("host/")


def counters(source: LabSource) -> dict[str, dict[str, Counts]]:
    """Packets, bytes and the comment of every rule of every node that has met a packet, by `TABLE CHAIN RULE`, with the
    table's name as steps have it.

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


def _iptables(namespace: Namespace, spec: LabSpec) -> Iterator[tuple[str, Counts]]:
    for version in spec.families:
        family = Family.IPV4 if version == 4 else Family.IPV6
        binaries = installed(family)[Variant(spec.variant)]
        text = IptablesExecutor(namespace, binaries).save(counters=True)
        for table, chain, number, rule in parse_save(text, f"{spec.name}", family=family).rules():
            if rule.counters is not None and rule.counters.packets:
                key = f"{table.name} {chain.name} {number}"
                yield key, (rule.counters.packets, rule.counters.bytes, _comment(rule))


def _comment(rule: Rule) -> str:
    return next((match.comment for match in rule.matches if isinstance(match, CommentMatch)), "")


def _native(text: str, label: str) -> Iterator[tuple[str, Counts]]:
    rules = read_rule_file(text, label).nftables if text.strip() else None
    for table in rules.tables if rules is not None else ():
        for chain in table.chains:
            for number, rule in enumerate(chain.rules, 1):
                counted = next((each for each in rule.statements if isinstance(each, Counter)), None)
                if counted is not None and counted.packets:
                    name = f"{table.family.value} {table.name} {chain.name} {number}"
                    yield name, (counted.packets, counted.bytes, rule.comment or "")
