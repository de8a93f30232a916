"""/debug/rules and /debug/trace: what is programmed, and what the data-plane model says of a packet.

Fields of the query:

    /debug/rules   service=NS/NAME[:PORT] family=IPv4|IPv6 table=nat chain=KUBE-SERVICES o=text|json
    /debug/trace   those of `kproxy trace`: src dst proto in origin mark ctstate ...; or service=NS/NAME[:PORT] for dst;
                   rules=kernel|wanted, o=json|text

/debug/rules are the rules as the last sync wanted them, with provenance; whether that sync succeeded is said with them.
In nftables mode they are all objects of the table, and `table` is kube-proxy.
/debug/trace reads the kernel's rules and host, so that it tells what happens now, also to what others have written;
with rules=wanted it takes the rules of the last sync. In iptables mode the kernel's rules are what iptables-save of the
variant in use prints; in nftables mode all of the namespace, since native nftables stands beside those of iptables.
Its JSON is that of `kproxy trace -o json` (docs/trace.md).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Final, NamedTuple, Protocol

import msgspec

from kproxy.cluster.rules import HostRules
from kproxy.dataplane import Host, Index, index_ruleset
from kproxy.dataplane.query.assumptions import Surroundings
from kproxy.dataplane.query.json import report_record
from kproxy.dataplane.query.report import Report, report
from kproxy.dataplane.query.spec import FIELDS, read_question
from kproxy.errors import InputError, KproxyError
from kproxy.family import join_host_port
from kproxy.httpd.server import JSON, Handler, Request, Response, text_response
from kproxy.netfilter import Ruleset
from kproxy.netfilter.family import Family
from kproxy.netfilter.nftables.rule import RulePrinter
from kproxy.netfilter.nftables.ruleset import Chain, NftRuleset, Table
from kproxy.netfilter.nftables.style import BOOKWORM
from kproxy.render import RenderedTable, RenderedTarget
from kproxy.render.iptables.save import saved_ruleset
from kproxy.render.nftables.save import nft_ruleset
from kproxy.render.origin import Origin
from kproxy.render.provenance import ObjectRecord, RuleRecord, object_record, rule_record
from kproxy.services import IPFamily, ServicePortName

Rendered = RenderedTarget | RenderedTable
Notes = Mapping[tuple[str, str], Mapping[str, str]]
"""The provenance of rules by table, chain, and text, so that it also serves rules read from the kernel."""

RULES_FIELDS: Final = ("service", "family", "table", "chain", "o")
TRACE_FIELDS: Final = (*FIELDS, "service", "family", "rules", "o")


class NotProgrammedError(InputError):
    """What is asked for is not among what is programmed."""


class FamilyView(Protocol):
    """One family's proxier, as seen from here."""

    @property
    def family(self) -> IPFamily: ...

    @property
    def has_synced(self) -> bool: ...

    @property
    def failing(self) -> bool: ...

    def rendered(self) -> Rendered:
        """The rules as wanted at the last sync."""


Views = Callable[[], Sequence[FamilyView]]
ReadRules = Callable[[IPFamily], HostRules]
TraceText = Callable[[Report, str], str]


class FamilyRules(msgspec.Struct, frozen=True):
    """The rules of one family. `synced`: whether the kernel has held such rules; `failing`: whether the last sync
    failed, so that it may hold others."""

    family: str
    node: str
    synced: bool
    failing: bool
    rules: tuple[RuleRecord | ObjectRecord, ...]


class RulesRecord(msgspec.Struct, frozen=True):
    """The JSON of /debug/rules."""

    families: tuple[FamilyRules, ...]


def debug_pages(
    views: Views,
    read_rules: ReadRules,
    read_host: Callable[[], Host],
    where: str,
    trace_text: TraceText | None = None,
) -> Mapping[str, Handler]:
    """The handlers by path; all may block.

    Args:
        views: the families that are programmed.
        read_rules: the rules that packets of a family meet now.
        read_host: the host as it is now.
        where: what the rules are of, for people.
        trace_text: a trace for people; without it, o=text is refused.
    """

    def trace(request: Request) -> Response:
        query = request.query
        _check_fields(query, TRACE_FIELDS)
        as_json = _wants_json(query, "json")
        if not as_json and trace_text is None:
            raise InputError("o: json expected")
        kernel = _one_of(query, "rules", "kernel", "wanted") == "kernel"
        question = read_question(_packet_fields(views(), query))
        family = question.packet.family
        view = next((view for view in views() if view.family is family), None)
        if view is None:
            raise NotProgrammedError(f"{family.value} is not programmed")
        index = debug_index(view.rendered(), family, read_rules(family) if kernel else None)
        found = report(index, Surroundings.known(read_host()), question)
        if as_json:
            return Response(msgspec.json.format(msgspec.json.encode(report_record(found))) + b"\n", 200, JSON)
        assert trace_text is not None
        return text_response(trace_text(found, f"{where}, {'now' if kernel else 'as of the last sync'}"))

    return {
        "/debug/rules": _guarded(lambda request: rules_page(views(), request.query)),
        "/debug/trace": _guarded(trace),
    }


def _guarded(handler: Handler) -> Handler:
    def answer(request: Request) -> Response:
        try:
            return handler(request)
        except NotProgrammedError as error:
            return text_response(f"error: {error}\n", 404)
        except KproxyError as error:
            return text_response(f"error: {error}\n", 400 if error.exit_code == 2 else 503)

    return answer


def rules_page(views: Sequence[FamilyView], query: Mapping[str, str]) -> Response:
    """The programmed rules, of one Service or all. Raises InputError."""
    _check_fields(query, RULES_FIELDS)
    as_json = _wants_json(query, "text")
    wanted = _family(query.get("family", ""))
    found = [_family_rules(view, query) for view in views if wanted in (None, view.family)]
    if not found:
        raise NotProgrammedError("no such family is programmed (yet)")
    if not any(rules for _, rules in found) and any(query.get(name) for name in ("service", "table", "chain")):
        asked = " ".join(f"{name}={query[name]}" for name in ("service", "table", "chain") if query.get(name))
        raise NotProgrammedError(f"no rule of {asked} is programmed")
    if as_json:
        record = RulesRecord(
            tuple(msgspec.structs.replace(head, rules=tuple(each.record for each in rules)) for head, rules in found)
        )
        return Response(msgspec.json.format(msgspec.json.encode(record), indent=1) + b"\n", 200, JSON)
    return text_response("".join(line for head, rules in found for line in _rules_text(head, rules)))


class _Listed(NamedTuple):
    """A rule, or an object of nftables. `heading` is what it stands under, `chain` "" for what is in none."""

    table: str
    chain: str
    heading: str
    number: int
    text: str
    origin: Origin
    record: RuleRecord | ObjectRecord


def _listed(rendered: Rendered) -> Iterator[_Listed]:
    if isinstance(rendered, RenderedTable):
        for each in rendered.objects():
            chain = each.name if each.container == "chain" else ""
            heading = f"{each.container} {each.name}"
            record = object_record(each, rendered.table)
            yield _Listed(rendered.table, chain, heading, each.number, each.text, each.origin, record)
        return
    for rule in rendered.rules():
        heading = f"{rule.table} {rule.chain}"
        yield _Listed(rule.table, rule.chain, heading, rule.number, rule.text, rule.origin, rule_record(rule))


def _family_rules(view: FamilyView, query: Mapping[str, str]) -> tuple[FamilyRules, list[_Listed]]:
    rendered = view.rendered()
    service, table, chain = (query.get(name, "") for name in ("service", "table", "chain"))
    rules = [
        each
        for each in _listed(rendered)
        if table in ("", each.table, each.table.rpartition(" ")[2])
        and chain in ("", each.chain)
        and _is_of(each.origin.service_port, service)
    ]
    head = FamilyRules(view.family.value, rendered.options.node_name, view.has_synced, view.failing, ())
    return head, rules


def _rules_text(head: FamilyRules, rules: Sequence[_Listed]) -> Iterator[str]:
    state = "the last sync failed, the kernel may differ" if head.failing else "as of the last sync"
    yield f"# {head.family} rules of node {head.node}, {state if head.synced else 'not programmed yet'}\n"
    heading = ""
    for each in rules:
        if each.heading != heading:
            heading = each.heading
            yield f"\n# {heading}\n"
        number = f"{each.number}. " if each.number else ""
        yield f"# {number}{each.origin}\n{each.text}\n"
    yield "\n"


def _packet_fields(views: Sequence[FamilyView], query: Mapping[str, str]) -> Mapping[str, object]:
    """The fields of a packet, a Service in the place of `dst` resolved."""
    fields: dict[str, object] = {name: query[name] for name in FIELDS if name in query}
    if "recent" in fields:
        fields["recent"] = str(fields["recent"]).split(",")
    if "fragment" in fields:
        fields["fragment"] = fields["fragment"] == "true"
    service = query.get("service", "")
    if service:
        if "dst" in fields:
            raise InputError("service: it stands for dst, and both are given")
        proto = fields.get("proto")
        fields |= _service_fields(views, service, _family(query.get("family", "")), query.get("src", ""))
        fields |= {} if proto is None else {"proto": proto}
    return fields


def _service_fields(
    views: Sequence[FamilyView], service: str, family: IPFamily | None, src: str
) -> Mapping[str, object]:
    """Where a Service's cluster IP is, as fields; in the family of `src`, if neither says which."""
    if family is None and src:
        family = IPFamily.IPV6 if src.count(":") > 1 else IPFamily.IPV4
    for view in views:
        if family not in (None, view.family):
            continue
        ports = view.rendered().state.service_ports
        names = sorted(name for name in ports if _is_of(name, service))
        if len(names) > 1:
            raise InputError(f"service: {service} has several ports; name one: {', '.join(map(str, names))}")
        if names:
            port = ports[names[0]]
            return {"dst": join_host_port(port.cluster_ip, port.port), "proto": names[0].protocol}
    raise NotProgrammedError(f"Service {service} is not programmed")


def _is_of(name: ServicePortName | None, service: str) -> bool:
    """Whether a rule is of a Service (`NS/NAME`, or NAME in default) or of one of its ports; "" is every rule."""
    if not service:
        return True
    full = service if "/" in service else f"default/{service}"
    return name is not None and full in (name.service, str(name))


def _family(text: str) -> IPFamily | None:
    if not text:
        return None
    for family in IPFamily:
        if text.lower() in (family.value.lower(), family.value[-1]):
            return family
    raise InputError(f"family: IPv4 or IPv6 expected, not {text!r}")


def _wants_json(query: Mapping[str, str], default: str) -> bool:
    other = "json" if default == "text" else "text"
    return _one_of(query, "o", default, other) == "json"


def _one_of(query: Mapping[str, str], field: str, *words: str) -> str:
    found = query.get(field, words[0])
    if found not in words:
        raise InputError(f"{field}: {' or '.join(words)} expected, not {found!r}")
    return found


def _check_fields(query: Mapping[str, str], known: Sequence[str]) -> None:
    for field in query:
        if field not in known:
            raise InputError(f"{field}: unknown field (known: {', '.join(known)})")


# --- the rules that /debug/trace asks, each of kproxy's with its provenance ---


def debug_index(rendered: Rendered, family: Family, kernel: HostRules | None) -> Index:
    """The rules of a family ready for traces: the kernel's, or without those the rendered ones."""
    if isinstance(rendered, RenderedTable):
        return _table_index(rendered, family, kernel)
    desired = saved_ruleset(rendered.restore_text, family)
    notes = _notes(desired, rendered)
    rulesets = [desired] if kernel is None else [each.ruleset for each in kernel.iptables(family)]

    def note(table: str, chain: str, number: int) -> str | None:
        known = notes.get((table, chain))
        found = next((each for ruleset in rulesets if (each := ruleset.chain(table, chain)) is not None), None)
        return known.get(found.rules[number - 1].to_save(chain)) if known and found is not None else None

    return index_ruleset(desired if kernel is None else kernel.iptables(family), note, family=family)


def _table_index(rendered: RenderedTable, family: Family, kernel: HostRules | None) -> Index:
    desired = nft_ruleset(rendered.restore_text)
    notes = _table_notes(desired, rendered)
    nftables = desired if kernel is None else kernel.nftables
    printers = {name: (table, _printer(table)) for name, table in _tables(nftables)}

    def note(table: str, chain: str, number: int) -> str | None:
        known = notes.get((table, chain))
        if not known or table not in printers:
            return None
        native, printer = printers[table]
        found = native.chain(chain)
        return known.get(printer.rule(found.rules[number - 1])) if found is not None else None

    iptables = () if kernel is None else kernel.iptables(family)
    return index_ruleset(iptables, note, nftables=nftables, family=family)


def _notes(desired: Ruleset, rendered: RenderedTarget) -> Notes:
    origins = rendered.rule_origins()
    found: dict[tuple[str, str], dict[str, str]] = {}
    for table in desired.tables:
        for chain in table.chains:
            texts = (rule.to_save(chain.name) for rule in chain.rules)
            reasons = origins.get((table.name, chain.name), ())
            found[(table.name, chain.name)] = dict(zip(texts, map(str, reasons), strict=False))
    return found


def _table_notes(desired: NftRuleset, rendered: RenderedTable) -> Notes:
    origins = rendered.rule_origins()
    return {
        (name, chain.name): dict(zip(_texts(table, chain), map(str, origins.get((name, chain.name), ())), strict=False))
        for name, table in _tables(desired)
        for chain in table.chains
    }


def _texts(table: Table, chain: Chain) -> Iterator[str]:
    return map(_printer(table).rule, chain.rules)


def _printer(table: Table) -> RulePrinter:
    return RulePrinter(table.family, BOOKWORM, {item.name: item for item in table.sets})


def _tables(ruleset: NftRuleset | None) -> Iterator[tuple[str, Table]]:
    """Tables by family and name, as traces name them."""
    for table in ruleset.tables if ruleset is not None else ():
        yield f"{table.family.value} {table.name}", table
