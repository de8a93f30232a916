"""/debug/rules and /debug/trace: what is programmed, and what the data-plane model says of a packet.

Fields of the query:

    /debug/rules   service=NS/NAME[:PORT] family=IPv4|IPv6 table=nat chain=KUBE-SERVICES o=text|json
    /debug/trace   those of `kproxy trace`: src dst proto in origin mark ctstate ...; or service=NS/NAME[:PORT] for dst;
                   rules=kernel|wanted, o=json|text

/debug/rules are the rules as the last sync wanted them, with provenance; whether that sync succeeded is said with them.
/debug/trace reads the kernel's rules and host, so that it tells what happens now, also to what others have written;
with rules=wanted it takes the rules of the last sync. Its JSON is that of `kproxy trace -o json` (docs/trace.md).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Final, Protocol

import msgspec

from kproxy.dataplane import Host, Index, index_ruleset
from kproxy.dataplane.model.check import check_traceable
from kproxy.dataplane.query.assumptions import Surroundings
from kproxy.dataplane.query.json import report_record
from kproxy.dataplane.query.report import Report, report
from kproxy.dataplane.query.spec import FIELDS, read_question
from kproxy.errors import InputError, KproxyError
from kproxy.httpd.protocol import JSON, Handler, Request, Response, text_response
from kproxy.netfilter import Ruleset, parse_save
from kproxy.render import RenderedTarget
from kproxy.render.iptables.base import jump_origins
from kproxy.render.iptables.save import saved_ruleset
from kproxy.render.origin import RenderedRule
from kproxy.render.provenance import RuleRecord, rule_record
from kproxy.services import IPFamily, ServicePortName

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

    def rendered(self) -> RenderedTarget:
        """The rules as wanted at the last sync."""


Views = Callable[[], Sequence[FamilyView]]
TraceText = Callable[[Report, str], str]


class FamilyRules(msgspec.Struct, frozen=True):
    """The rules of one family. `synced`: whether the kernel has held such rules; `failing`: whether the last sync
    failed, so that it may hold others."""

    family: str
    node: str
    synced: bool
    failing: bool
    rules: tuple[RuleRecord, ...]


class RulesRecord(msgspec.Struct, frozen=True):
    """The JSON of /debug/rules."""

    families: tuple[FamilyRules, ...]


def debug_pages(
    views: Views,
    read_rules: Callable[[IPFamily], str],
    read_host: Callable[[], Host],
    where: str,
    trace_text: TraceText | None = None,
) -> Mapping[str, Handler]:
    """The handlers by path; all may block.

    Args:
        views: the families that are programmed.
        read_rules: what iptables-save prints now.
        read_host: the host as it is now.
        where: what the rules are of, for people.
        trace_text: a trace for people; without it, o=text is refused.
    """
    trace = _Trace(views, read_rules, read_host, where, trace_text)
    return {
        "/debug/rules": _guarded(lambda request: rules_page(views(), request.query)),
        "/debug/trace": _guarded(trace.answer),
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
            tuple(msgspec.structs.replace(head, rules=tuple(map(rule_record, rules))) for head, rules in found)
        )
        return Response(msgspec.json.format(msgspec.json.encode(record), indent=1) + b"\n", 200, JSON)
    return text_response("".join(line for head, rules in found for line in _rules_text(head, rules)))


def _family_rules(view: FamilyView, query: Mapping[str, str]) -> tuple[FamilyRules, list[RenderedRule]]:
    rendered = view.rendered()
    service, table, chain = (query.get(name, "") for name in ("service", "table", "chain"))
    rules = [
        rule
        for rule in rendered.rules()
        if table in ("", rule.table) and chain in ("", rule.chain) and _is_of(rule.origin.service_port, service)
    ]
    head = FamilyRules(view.family.value, rendered.options.node_name, view.has_synced, view.failing, ())
    return head, rules


def _rules_text(head: FamilyRules, rules: Sequence[RenderedRule]) -> Iterator[str]:
    state = "the last sync failed, the kernel may differ" if head.failing else "as of the last sync"
    yield f"# {head.family} rules of node {head.node}, {state if head.synced else 'not programmed yet'}\n"
    place = ("", "")
    for rule in rules:
        if (rule.table, rule.chain) != place:
            place = (rule.table, rule.chain)
            yield f"\n# {rule.table} {rule.chain}\n"
        yield f"# {rule.number}. {rule.origin}\n{rule.text}\n"
    yield "\n"


class _Trace:
    """/debug/trace. Keeps the last rules it parsed of each family, since that takes longer than anything else."""

    def __init__(
        self,
        views: Views,
        read_rules: Callable[[IPFamily], str],
        read_host: Callable[[], Host],
        where: str,
        trace_text: TraceText | None,
    ) -> None:
        self._views = views
        self._read_rules = read_rules
        self._read_host = read_host
        self._where = where
        self._trace_text = trace_text
        self._parsed: dict[IPFamily, tuple[str, Ruleset]] = {}

    def answer(self, request: Request) -> Response:
        """Raises KproxyError."""
        query = request.query
        _check_fields(query, TRACE_FIELDS)
        as_json = _wants_json(query, "json")
        if not as_json and self._trace_text is None:
            raise InputError("o: json expected")
        kernel = _one_of(query, "rules", "kernel", "wanted") == "kernel"
        question = read_question(self._fields(query))
        family = question.packet.family
        view = next((view for view in self._views() if view.family is family), None)
        if view is None:
            raise NotProgrammedError(f"{family.value} is not programmed")
        rendered = view.rendered()
        index = self._index(family, rendered, kernel)
        found = report(index, Surroundings.known(self._read_host()), question)
        label = f"{self._where}, {'now' if kernel else 'as of the last sync'}"
        if as_json:
            return Response(msgspec.json.format(msgspec.json.encode(report_record(found))) + b"\n", 200, JSON)
        assert self._trace_text is not None
        return text_response(self._trace_text(found, label))

    def _fields(self, query: Mapping[str, str]) -> Mapping[str, object]:
        fields: dict[str, object] = {name: query[name] for name in FIELDS if name in query}
        if "recent" in fields:
            fields["recent"] = str(fields["recent"]).split(",")
        if "fragment" in fields:
            fields["fragment"] = fields["fragment"] == "true"
        service = query.get("service", "")
        if service:
            if "dst" in fields:
                raise InputError("service: it stands for dst, and both are given")
            fields |= self._service(service, _family(query.get("family", "")), query.get("src", ""))
            if "proto" in query:
                fields["proto"] = query["proto"]
        return fields

    def _service(self, service: str, family: IPFamily | None, src: str) -> Mapping[str, object]:
        """Where a Service's cluster IP is, as fields; in the family of `src`, if neither says which."""
        if family is None and src:
            family = IPFamily.IPV6 if src.count(":") > 1 else IPFamily.IPV4
        for view in self._views():
            if family not in (None, view.family):
                continue
            ports = view.rendered().state.service_ports
            names = sorted(name for name in ports if _is_of(name, service))
            if len(names) > 1:
                raise InputError(f"service: {service} has several ports; name one: {', '.join(map(str, names))}")
            if names:
                port = ports[names[0]]
                ip = f"[{port.cluster_ip}]" if ":" in port.cluster_ip else port.cluster_ip
                return {"dst": f"{ip}:{port.port}", "proto": names[0].protocol}
        raise NotProgrammedError(f"Service {service} is not programmed")

    def _index(self, family: IPFamily, rendered: RenderedTarget, kernel: bool) -> Index:
        wanted = saved_ruleset(rendered.restore_text, family)
        ruleset = self._kernel(family) if kernel else wanted
        notes = _notes(wanted, rendered)

        def note(table: str, chain: str, number: int) -> str | None:
            found = ruleset.chain(table, chain)
            known = notes.get((table, chain))
            return known.get(found.rules[number - 1].to_save(chain)) if found is not None and known else None

        return index_ruleset(ruleset, note)

    def _kernel(self, family: IPFamily) -> Ruleset:
        text = self._read_rules(family)
        kept = self._parsed.get(family)
        if kept is not None and kept[0] == text:
            return kept[1]
        ruleset = parse_save(text, f"iptables-save of {self._where}", family=family)
        check_traceable(ruleset)
        self._parsed[family] = text, ruleset
        return ruleset


def _notes(wanted: Ruleset, rendered: RenderedTarget) -> dict[tuple[str, str], dict[str, str]]:
    """The provenance of every rule by its place and its text, so that it also serves rules read from the kernel."""
    origins = jump_origins() | rendered.renderer.origins(rendered.state)
    found: dict[tuple[str, str], dict[str, str]] = {}
    for table in wanted.tables:
        for chain in table.chains:
            texts = (rule.to_save(chain.name) for rule in chain.rules)
            reasons = origins.get((table.name, chain.name), ())
            found[(table.name, chain.name)] = dict(zip(texts, map(str, reasons), strict=False))
    return found


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
