"""Questions: what becomes of a connection, way by way and hop by hop; and all rules of one hop, matched or not."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import Final

import msgspec

from kproxy.cluster.edits import Edit
from kproxy.cluster.journey.known import OUTSIDE, KnownNetwork
from kproxy.cluster.journey.path import ANSWERED, LOST, OPEN, REFUSED, Hop, Journey
from kproxy.cluster.journey.question import PathQuestion, read_question
from kproxy.cluster.journey.record import (
    HopRecord,
    JourneyRecord,
    assumed_on_the_way,
    journey_record,
    missing_on_the_way,
)
from kproxy.cluster.services_in_rules import CLUSTER_IP
from kproxy.dataplane import ACCEPT, INDETERMINATE, REJECT, DataplaneError, Packet
from kproxy.dataplane.model.packet import LOCAL, parse_endpoint
from kproxy.dataplane.query.report import Reported, report
from kproxy.dataplane.query.spec import PacketError, Question
from kproxy.dataplane.query.spec import read_question as read_host_question
from kproxy.errors import InputError
from kproxy.explorer.answers.evaluated_rules import EvaluatedHook, evaluated_hooks
from kproxy.explorer.answers.map import known_client
from kproxy.explorer.answers.shares import percent
from kproxy.explorer.errors import bad_input, cannot
from kproxy.explorer.model.clients import NODE
from kproxy.explorer.model.model import CLIENT, CLIENT6, HOST, HOST_ID, Model, family_named
from kproxy.explorer.model.owners import Doors
from kproxy.family import join_host_port
from kproxy.netfilter import Family
from kproxy.netfilter.address import format_address
from kproxy.netfilter.family import protocol_name
from kproxy.netfilter.hooks import Hook

_ASSUME: Final = re.compile(r"--assume '(.+)=yes\|no'")
_SWITCHES: Final = 12
SVC: Final = "svc/"
MAX_WAYS: Final = 500


class Ask(msgspec.Struct, frozen=True, forbid_unknown_fields=True, rename={"sender": "from"}):
    """A question. `assume` decides what is open, by expression; `source` and `edits` say what is asked, as in
    `Explorer.state`."""

    sender: str
    to: str
    port: int | str | None = None
    protocol: str | None = None
    sport: int | None = None
    family: str | None = None
    assume: dict[str, bool] = {}
    source: str = ""
    edits: tuple[Edit, ...] = ()


class AskRule(Ask, frozen=True, forbid_unknown_fields=True, rename={"sender": "from"}):
    """The same, and the hop whose rules are wanted."""

    journey: int = 0
    direction: str = "there"
    hop: int = 0


class AskedRules(msgspec.Struct, frozen=True):
    """All rules of one hop of an answer, matched or not."""

    host: str
    hooks: tuple[EvaluatedHook, ...]


class Switch(msgspec.Struct, frozen=True):
    """Something that is open and can be assumed; `chosen` None: it is not."""

    expression: str
    text: str
    values: tuple[bool, ...]
    chosen: bool | None


class Untranslated(msgspec.Struct, frozen=True):
    """Where a packet to a Service was not translated: `asked` rules of a chain, and none was for its destination. `hop`
    is the place of the host on the way there."""

    hop: int
    hook: str
    table: str
    chain: str
    asked: int


class Way(JourneyRecord, frozen=True, omit_defaults=True, kw_only=True):
    """A journey as the command prints it, and its chance for people; `untranslated`, if that is why it is lost."""

    percent: float
    untranslated: Untranslated | None = None


class Answer(msgspec.Struct, frozen=True, rename={"client": "from"}):
    """What `kproxy trace SNAPSHOT -o json` prints, and what would settle what is open. `ways` is how many there are;
    of very many the likeliest are listed."""

    revision: int
    client: str
    to: str
    protocol: str
    journeys: tuple[Way, ...]
    assumptions: tuple[str, ...]
    missing: tuple[str, ...]
    settle: tuple[Switch, ...]
    hints: tuple[str, ...]
    ways: int


def answer(model: Model, asked: Ask) -> Answer:
    """Everything that can become of a connection.

    Raises:
        Refusal: a name stands for nothing, or a value is wrong.
    """
    with model.lock:
        if model.known.cluster is None:
            return _of_host(model, asked)
        question, found = walk(model, asked)
        return journeys_answer(model.network, model.doors, question, found, asked.assume, model.revision)


def journeys_answer(
    network: KnownNetwork,
    doors: Doors,
    question: PathQuestion,
    found: Sequence[Journey],
    assumed: Mapping[str, bool] = MappingProxyType({}),
    revision: int = 1,
) -> Answer:
    """All journeys of a connection as an answer. `doors`: where the cluster's Services answer; `assumed`: what was
    decided although it is open."""
    reasons = {
        reason: hop.outcome.hints
        for item in found
        for hop in (*item.there, *item.back)
        for reason in hop.outcome.reasons
    }
    switches, hints = _switches(assumed, reasons.items())
    ways = tuple(
        msgspec.structs.replace(way_record(each), untranslated=_untranslated(network, doors, each))
        for each in found[:MAX_WAYS]
    )
    return Answer(
        revision, question.client, question.destination, question.protocol, ways,
        assumed_on_the_way(network, found), missing_on_the_way(network, found), switches, hints, len(found),
    )  # fmt: skip


def walk(model: Model, asked: Ask) -> tuple[PathQuestion, Sequence[Journey]]:
    """The question with its names resolved, and all journeys. Raises Refusal."""
    network = model.network
    sender, receiver, protocol = _ends(model, asked)
    _check(asked)
    try:
        question = read_question(network, sender, receiver, protocol)
        found = model.journeys(
            question.client,
            question.destination,
            question.protocol,
            source=question.source,
            source_port=asked.sport,
            assumed=asked.assume,
        )
    except (InputError, DataplaneError) as error:
        text = str(error)
        field = "from" if text.startswith("--from") else "to" if text.startswith("--to") else "protocol"
        raise bad_input(text.removeprefix("--"), field if text.startswith("--") else "") from error
    return question, found


def hop_rules(model: Model, asked: AskRule) -> AskedRules:
    """The rules of one hop of one journey.

    Raises:
        Refusal: there is no such hop.
    """
    with model.lock:
        if model.known.cluster is None:
            question, reported, _ = host_report(model, asked)
            if not 0 <= asked.journey < len(reported) or asked.direction != "there" or asked.hop:
                raise bad_input("hop: there is only the first one of each way there", "hop")
            outcome = reported[asked.journey].outcome
            hop = Hop(HOST, question.packet, outcome)
            return AskedRules(HOST, tuple(evaluated_hooks(model.index(question.packet.family), hop)))
        _, found = walk(model, asked)
        if not 0 <= asked.journey < len(found):
            raise bad_input(f"journey: a number from 0 to {len(found) - 1} expected", "journey")
        if asked.direction not in ("there", "back"):
            raise bad_input("direction: there or back expected", "direction")
        hops = found[asked.journey].there if asked.direction == "there" else found[asked.journey].back
        if not 0 <= asked.hop < len(hops):
            raise bad_input(f"hop: a number from 0 to {len(hops) - 1} expected", "hop")
        hop = hops[asked.hop]
        index = model.network.host(hop.host).indexes[hop.arrived.family]
        try:
            return AskedRules(hop.host, tuple(evaluated_hooks(index, hop)))
        except DataplaneError as error:
            raise cannot(str(error)) from error


def _check(asked: Ask) -> None:
    if asked.sport is not None and not 0 <= asked.sport <= 0xFFFF:
        raise bad_input("sport: a port between 0 and 65535 expected", "sport")
    if len(asked.assume) > 100:
        raise bad_input("assume: at most 100 expected", "assume")


def _ends(model: Model, asked: Ask) -> tuple[str, str, str | None]:
    """Sender and receiver as `read_question` knows them, and the protocol."""
    sender, receiver = asked.sender.removeprefix(OUTSIDE), asked.to.removeprefix(OUTSIDE)
    kind, _, name = sender.partition("/")
    if sender == "outside" and known_client(model):
        sender = known_client(model).replace("node/", "host/")
    elif sender == "outside":
        sender = CLIENT6 if asked.family == Family.IPV6.value or ":" in receiver.partition("/")[0][:5] else CLIENT
    elif kind == "node" and name in model.cluster.hosts and not model.cluster.hosts[name].has_node:
        sender = f"host/{name}"
    elif sender in model.cluster.hosts:  # as a lab's commands name hosts
        sender = f"{'node' if model.cluster.hosts[sender].has_node else 'host'}/{sender}"
    if not sender or not receiver:
        field = "to" if sender else "from"
        raise bad_input(f"{field}: expected", field)
    if asked.port is not None and not isinstance(asked.port, str) and not 0 < asked.port <= 0xFFFF:
        raise bad_input("port: a port between 1 and 65535, or its name, expected", "port")
    protocol = asked.protocol.lower() if asked.protocol else None
    receiver, chosen = _of_family(model, asked, receiver)
    return sender, receiver, protocol or chosen


def _of_family(model: Model, asked: Ask, receiver: str) -> tuple[str, str | None]:
    """The receiver with its port, and for a family that was asked for the Service's address of that family."""
    body, at, node = receiver.partition("@")
    kind, slash, rest = body.partition("/")
    named = bool(slash) and kind in ("svc", "nodeport", "lb", "externalip", "pod", "node")
    if asked.port is not None:
        if named and ":" not in rest:
            body = f"{body}:{asked.port}"
        elif not named and _has_no_port(body):
            body = f"{body}:{asked.port}" if body.startswith("[") else join_host_port(body, asked.port)
    if asked.family and kind == "svc" and slash:
        wanted = family_named(asked.family, ())
        key, _, port = body.removeprefix("svc/").partition(":")
        key = key if "/" in key else f"default/{key}"
        service = next((each for each in model.manifests.services if each.metadata.key == key), None)
        ips = [ip for ip in service.spec.cluster_ips if (":" in ip) == (wanted is Family.IPV6)] if service else []
        if service is not None and not ips:
            raise bad_input(f"family: Service {key} has no {wanted.value} ClusterIP", "family")
        ports = [each for each in (service.spec.ports if service else ()) if port in ("", each.name, str(each.port))]
        if len(ports) == 1 and ips[0] != "None":
            return join_host_port(ips[0], ports[0].port), ports[0].protocol.lower()
    return f"{body}{at}{node}", None


def _has_no_port(text: str) -> bool:
    try:
        return parse_endpoint(text).port is None
    except DataplaneError:
        return True


def way_record(item: Journey) -> Way:
    """A journey as answers have it."""
    record = journey_record(item, steps=True)
    fields = {name: getattr(record, name) for name in JourneyRecord.__struct_fields__}
    return Way(**fields, percent=percent(item.probability))


def _untranslated(network: KnownNetwork, doors: Doors, item: Journey) -> Untranslated | None:
    """Where a journey to a Service's address got no other destination. What a rule drops or rejects is told by it."""
    ended = item.there[-1].outcome
    if item.end == ANSWERED or ended.verdict == REJECT or any(hop.outcome.dnat for hop in item.there):
        return None
    place = next((place for place, hop in enumerate(item.there) if hop.host in network.cluster.hosts), None)
    if place is None or not _is_of_service(doors, item.there[0].left):
        return None
    hop = item.there[place]
    asked = [
        Untranslated(place, hook.hook, chain.table, chain.chain, chain.asked)
        for hook in evaluated_hooks(network.host(hop.host).indexes[hop.arrived.family], hop)
        if hook.hook in (Hook.PREROUTING, Hook.OUTPUT)
        for chain in hook.chains
        if chain.table == "nat" or "kube-proxy" in chain.table
    ]
    # Of the chains on its way the one with the most rules, or the last of those, is that of all Services' addresses.
    return max(reversed(asked), key=lambda each: each.asked, default=None)


def _is_of_service(doors: Doors, packet: Packet) -> bool:
    """Whether a Service answers at the destination, by its address or as a node port."""
    if packet.dst is None or packet.dport is None:
        return False
    address = format_address(packet.dst, packet.family)
    return bool(doors.at(address, packet.dport, protocol_name(packet.protocol).lower()))


def _switches(
    assumed: Mapping[str, bool], reasons: Iterable[tuple[str, Sequence[str]]]
) -> tuple[tuple[Switch, ...], tuple[str, ...]]:
    """A switch for each thing that may be assumed, those that are chosen first; and what else would help."""
    found = {text: Switch(text, f"assumed: {text}", (True, False), value) for text, value in assumed.items()}
    hints: dict[str, None] = {}
    for reason, options in reasons:
        for option in options:
            match = _ASSUME.fullmatch(option)
            if match is None:
                hints |= dict.fromkeys(filter(None, [_plain(option)]))
            elif match[1] not in found:
                found[match[1]] = Switch(match[1], reason, (True, False), None)
    return tuple(found.values())[:_SWITCHES], tuple(hints)


def _plain(option: str) -> str:
    """What would settle it, without the command line's words; "" where a switch does."""
    return _OPTIONS.get(option.partition(" ")[0], option)


_OPTIONS: Final = {
    "--local-ip": "the host's addresses (ip-addr.json)",
    "--host": "the host's links, routes and sysctls",
    "--in": "the interface that the packet arrives on",
    "--ipset": "the contents of the ipset (ipset save)",
    "--limit": "",
    "--mark": "the packet's mark",
    "--ctstate": "the connection's state",
    "--src": "the sender's address and port",
    "--rules": "a dump with the comments that iptables-save writes",
}


# --- one host's rules ---


def _of_host(model: Model, asked: Ask) -> Answer:
    """The same for the rules of one host: a journey of one hop."""
    question, reported, assumptions = host_report(model, asked)
    return host_answer(question, reported, assumptions, asked, model.revision)


def host_answer(
    question: Question, reported: Sequence[Reported], assumptions: Sequence[str], asked: Ask, revision: int = 1
) -> Answer:
    """What becomes of a packet on one host, as a journey of one hop for each outcome."""
    ways = tuple(_host_way(each, question.packet) for each in reported)
    reasons = {reason: each.outcome.hints for each in reported for reason in each.outcome.reasons}
    switches, hints = _switches(asked.assume, reasons.items())
    packet = question.packet
    return Answer(
        revision, packet.source, packet.destination, protocol_name(packet.protocol), ways[:MAX_WAYS],
        tuple(assumptions), (), switches, hints, len(ways),
    )  # fmt: skip


def host_report(model: Model, asked: Ask) -> tuple[Question, Sequence[Reported], tuple[str, ...]]:
    """Outcomes of one host's rules, and what was assumed. Raises Refusal."""
    if asked.edits:
        raise bad_input("edits: there are no objects to edit", "edits")
    _check(asked)
    receiver, protocol = asked.to.removeprefix(OUTSIDE), asked.protocol
    sender = asked.sender.removeprefix(OUTSIDE)
    if "/" in receiver and not receiver.startswith(SVC):
        raise bad_input(f"to: an address with a port or svc/NS/NAME expected, not {receiver!r}: {_ONLY_RULES}", "to")
    if "/" in sender and sender != HOST_ID:
        raise bad_input(f"from: an address or {HOST_ID} expected, not {sender!r}: {_ONLY_RULES}", "from")
    if receiver.startswith(SVC):
        receiver, protocol = _told_receiver(model, asked)
    elif asked.port is not None and _has_no_port(receiver):
        receiver = join_host_port(receiver, asked.port)
    fields: dict[str, object] = {"dst": receiver, "proto": protocol}
    if sender in (HOST_ID, HOST):
        fields |= {"origin": "local", "src": _own_address(model, receiver)}
    elif sender == "outside":
        fields["src"] = CLIENT6 if receiver.startswith("[") else CLIENT
    else:
        fields["src"] = sender
    if asked.sport is not None and isinstance(fields.get("src"), str) and _has_no_port(str(fields["src"])):
        source = str(fields["src"])
        fields["src"] = join_host_port(source, asked.sport)
    try:
        question = read_host_question(fields)
        index, around = model.index(question.packet.family), model.surroundings(question.packet)
        found = report(index, around, question, assumed=asked.assume)
    except PacketError as error:
        name, _, words = str(error).partition(":")
        field = _FIELDS.get(name, "")
        raise bad_input(f"{field}:{words}" if field else str(error), field) from error
    except (InputError, DataplaneError) as error:
        raise bad_input(str(error), "to") from error
    taken = (_OWN_ADDRESS,) if question.packet.origin == LOCAL else ()
    return question, found.outcomes, (*found.assumptions, *taken)


def _own_address(model: Model, receiver: str) -> str:
    """What the host sends from."""
    family = Family.IPV6 if receiver.startswith("[") else Family.IPV4
    return next(each.address for each in model.clients(family) if each.id == NODE)


def _told_receiver(model: Model, asked: Ask) -> tuple[str, str]:
    """The ClusterIP and protocol of a Service that the rules tell of. Raises Refusal."""
    name, _, port = asked.to.removeprefix(SVC).partition(":")
    port = port or ("" if asked.port is None else str(asked.port))
    wanted = family_named(asked.family, model.families)
    doors = [door for door in model.told if door.service == name and door.kind == CLUSTER_IP]
    doors = [door for door in doors if port in ("", door.port, str(door.number))]
    if asked.protocol:
        doors = [door for door in doors if door.protocol == asked.protocol.upper()]
    doors = [door for door in doors if door.family is wanted] or doors
    if len(doors) != 1:
        told = ", ".join(f"{door.port or door.number}/{door.protocol}" for door in doors)
        raise bad_input(f"to: which port of {name}? {told}" if doors else f"to: the rules tell of no {asked.to}", "to")
    return join_host_port(doors[0].address, doors[0].number), doors[0].protocol.lower()


_OWN_ADDRESS: Final = "the host is taken to send from an address that no rule is about"
_ONLY_RULES: Final = "one host's rules tell of no others"
_FIELDS: Final = {"src": "from", "dst": "to", "proto": "protocol"}
_ENDS: Final = {ACCEPT: ANSWERED, REJECT: REFUSED}


def _host_way(item: Reported, sent: Packet) -> Way:
    outcome = item.outcome
    hop = Hop(HOST, sent, outcome)
    why = outcome.reason or "; ".join(outcome.reasons)
    if outcome.possible:
        ends = (f"{each.verdict} {each.src} → {each.dst}" for each in outcome.possible)
        why += f"; it may end as {', '.join(ends)}"
    end = OPEN if outcome.probability and outcome.verdict == INDETERMINATE else _ENDS.get(outcome.verdict, LOST)
    back: tuple[HopRecord, ...] = ()
    if item.reply is not None:
        reply = item.reply
        back = (
            HopRecord(
                HOST, reply.src, reply.dst, reply.received_src, reply.received_dst, reply.verdict,
                reason=reply.reason, error=outcome.reject,
            ),
        )  # fmt: skip
    way = way_record(Journey(outcome.probability, end, HOST, why, (hop,)))
    return msgspec.structs.replace(way, back=back, source=outcome.src, target=outcome.dst)
