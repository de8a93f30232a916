"""Reading back kube-proxy's table from nft's JSON, in the words in which kube-proxy writes rules, elements and sets.

kube-proxy writes a dozen kinds of rules. Spelling what the kernel holds in kube-proxy's words makes comparing a table a
comparison of texts, and takes a fifth of the processor time of `netfilter.nftables`, which makes values of every
expression: the table is read at each start and check. A rule with anything else in it is spelled as its JSON: it is not
kube-proxy's.

The kernel and nft keep the meaning, not the words: numbers lose their base, a set with one element its braces, networks
that lie in one another are joined. `canonical` does the same to a rule that is wanted.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Mapping
from functools import lru_cache
from ipaddress import IPv4Network, IPv6Network, collapse_addresses, ip_address, ip_network, summarize_address_range
from typing import Any, Final

import msgspec

from kproxy.linux.errors import UnreadableDumpError
from kproxy.linux.nftables.executor import NftExecutor
from kproxy.linux.nftables.ownership import is_our_chain, is_our_set
from kproxy.linux.nftables.table import SetText, TableText
from kproxy.netfilter.family import protocol_name
from kproxy.render.nftables.serviceport import ElementRef, ElementValue

Json = Any
"""A piece of nft's JSON (libnftables-json(5)), whose layout the functions below know."""

_VERDICTS: Final = ("accept", "drop", "return", "continue")
_MARK: Final = {"meta": {"key": "mark"}}
_L4PROTO: Final = {"meta": {"key": "l4proto"}}
_UNREACHABLE: Final = ("icmp", "icmpv6")

_UNLISTED: Final = "dynamic"
"""A flag of sets that nft 1.0 leaves out of its JSON."""

_BITS: Final = {"|": "or", "&": "and", "^": "xor"}


class _UnknownError(Exception):
    """Something that kube-proxy does not write."""


def rule_text(rule: Mapping[str, Json]) -> str:
    """A rule object of `nft -j list`, in kube-proxy's words as far as `canonical` keeps them."""
    try:
        text = " ".join(_statement(each) for each in rule["expr"])
    except (_UnknownError, KeyError, TypeError, ValueError, IndexError):
        text = json.dumps(rule.get("expr"), separators=(",", ":"))
    comment = rule.get("comment")
    return f'{text} comment "{comment}"' if comment else text


@lru_cache(maxsize=4096)
def canonical(rule: str) -> str:
    """A rule of kube-proxy's as `rule_text` spells it."""
    body, mark, comment = rule.partition(' comment "')
    body = _HEX.sub(lambda found: str(int(found[0], 16)), body)
    body = _NETWORKS.sub(lambda found: _addresses(found[1].replace(" ", "").split(",")), body)
    body = body.replace("mark and ", "meta mark and ").replace("mark set mark", "meta mark set meta mark")
    return body.replace("meta meta", "meta").replace('"', "") + mark + comment


_HEX: Final = re.compile(r"\b0x[0-9a-f]+\b")
_NETWORKS: Final = re.compile(r"(?<=[sd]addr )((?:!= )?(?:\{ [^}]*\}|[0-9a-f:][0-9a-f.:/]*))(?= |$)")


def protocol_part(types: Json) -> int | None:
    """Which part of a set's keys is a protocol; None if none is. `types` as in a set object of `nft -j list`."""
    parts = [types] if isinstance(types, str) else types
    return parts.index("inet_proto") if isinstance(parts, list) and "inet_proto" in parts else None


def element(item: Json, protocol: int | None = None) -> tuple[str, ElementValue]:
    """An element of a set or map: its key, of which the part `protocol` is one, and what goes with it."""
    value = ""
    if isinstance(item, list):
        item, data = item
        value = _verdict(data) or json.dumps(data)
    comment = ""
    if isinstance(item, dict) and "elem" in item:
        comment = item["elem"].get("comment", "")
        item = item["elem"]["val"]
    if protocol is not None:
        parts = item["concat"] if isinstance(item, dict) else [item]
        if isinstance(parts[protocol], int):
            item = {"concat": [*parts[:protocol], _protocol(parts[protocol]), *parts[protocol + 1 :]]}
    return _constant(item), ElementValue(value, comment)


def set_signature(kind: str, definition: str) -> tuple[object, ...]:
    """What tells a set of kube-proxy's from another: kind, types, flags and timeout (in seconds), not its comment."""
    fields: dict[str, str] = {}
    for field in definition.partition(" comment ")[0].strip("{} ").split(" ; "):
        name, _, value = field.strip(" ;").partition(" ")
        fields[name] = value
    types, _, data = fields.get("type", "").partition(" : ")
    flags = frozenset(flag.strip() for flag in fields.get("flags", "").split(",") if flag) - {_UNLISTED}
    timeout = int(fields["timeout"].removesuffix("s")) if "timeout" in fields else 0
    return kind, types, data, flags, timeout


def listed_set_signature(kind: str, item: Mapping[str, Json]) -> tuple[object, ...]:
    """The same of a set or map object of `nft -j list`."""
    types = item.get("type", "")
    flags = item.get("flags", ())
    return (
        kind,
        " . ".join(types) if isinstance(types, list) else str(types),
        str(item.get("map", "")),
        frozenset([flags] if isinstance(flags, str) else flags) - {_UNLISTED},
        int(item.get("timeout", 0)),
    )


def set_definition(item: Mapping[str, Json]) -> str:
    """A set or map object of `nft -j list` as its definition, in kube-proxy's words."""
    _, types, data, flags, timeout = listed_set_signature("", item)
    parts = [f"type {types}{f' : {data}' if data else ''}"]
    if isinstance(flags, frozenset) and flags:
        parts.append(f"flags {','.join(sorted(flags))}")
    if timeout:
        parts.append(f"timeout {timeout}s")
    if item.get("comment"):
        parts.append(f'comment "{item["comment"]}"')
    return f"{{ {' ; '.join(parts)} ; }}"


def chain_signature(definition: str) -> tuple[str, ...]:
    """What tells a chain from another: its type, hook, priority and policy; nothing of a regular chain."""
    found = _HOOKED.search(definition)
    return (found[1], found[2], found[3], found[4] or "accept") if found else ()


_HOOKED: Final = re.compile(r"type (\w+) hook (\w+) priority (-?\w+) ;(?: policy (\w+) ;)?")


def chain_definition(item: Mapping[str, Json]) -> str:
    """A chain object of `nft -j list` as its definition."""
    if "hook" not in item:
        return ""
    policy = item.get("policy", "accept")
    tail = "" if policy == "accept" else f" policy {policy} ;"
    return f"{{ type {item['type']} hook {item['hook']} priority {item['prio']} ;{tail} }}"


def _statement(statement: Json) -> str:
    ((kind, body),) = statement.items()
    if kind == "match":
        return _match(body)
    if kind in _VERDICTS:
        return str(kind)
    if kind in ("jump", "goto"):
        return f"{kind} {body['target']}"
    if kind == "vmap":
        return f"{_expression(body['key'])} vmap {_data(body['data'])}"
    if kind == "mangle" and body["key"] == _MARK:
        return f"meta mark set {_expression(body['value'])}"
    if kind == "reject":
        if body and (body["type"] not in _UNREACHABLE or body["expr"] != "port-unreachable"):
            raise _UnknownError
        return "reject"
    if kind == "masquerade":
        flags = (body or {}).get("flags", ())
        return " ".join(["masquerade", *([flags] if isinstance(flags, str) else flags)])
    if kind == "dnat":
        return _dnat(body)
    if kind == "set" and body["op"] == "update":
        return f"update {body['set']} {{ {_expression(body['elem'])} }}"
    raise _UnknownError


def _match(body: Json) -> str:
    operator = {"==": "", "in": "", "!=": "!= "}[body["op"]]
    left, right = _expression(body["left"]), body["right"]
    if body["left"] == _MARK and isinstance(right, dict) and "prefix" in right:
        # What nft makes of a test of the highest bit.
        length = right["prefix"]["len"]
        return f"{left} and {(1 << length) - 1 << (32 - length)} {operator}{right['prefix']['addr']}"
    if isinstance(right, dict) and ({"set", "prefix", "range"} & right.keys()):
        return f"{left} {operator}{_addresses(_networks(right.get('set', [right])))}"
    if body["left"] == _L4PROTO:
        right = _protocol(right)
    return f"{left} {operator}{_constant(right)}"


def _protocol(value: Json) -> Json:
    """A protocol by its name: nft prints the number on a host without /etc/protocols, such as a small container."""
    return protocol_name(value) if isinstance(value, int) else value


def _dnat(body: Json) -> str:
    address = body["addr"]
    if isinstance(address, dict) and "map" in address:
        choice = address["map"]
        family = body["family"]
        return f"dnat {family} addr . port to {_expression(choice['key'])} map {_data(choice['data'])}"
    ip = f"[{address}]" if ":" in address else address
    return f"dnat to {ip}:{body['port']}"


def _expression(value: Json) -> str:
    if not isinstance(value, dict):
        return _constant(value)
    ((kind, body),) = value.items()
    if kind == "payload":
        return f"{body['protocol']} {body['field']}"
    if kind == "meta":
        return str(body["key"]) if body["key"] in ("iifname", "oifname") else f"meta {body['key']}"
    if kind == "ct":
        return f"ct {body['key']}"
    if kind == "fib":
        (flag,) = body["flags"]
        return f"fib {flag} {body['result']}"
    if kind == "numgen":
        if body["mode"] != "random" or body.get("offset"):
            raise _UnknownError
        return f"numgen random mod {body['mod']}"
    if kind == "concat":
        return " . ".join(map(_expression, body))
    if kind in _BITS:
        return f"{_expression(body[0])} {_BITS[kind]} {_expression(body[1])}"
    raise _UnknownError


def _data(data: Json) -> str:
    """What a map is: the name of one, or one that is written out, by number."""
    if isinstance(data, str):
        return data
    pairs = sorted(data["set"], key=lambda pair: int(pair[0]))
    return f"{{ {' , '.join(f'{key} : {_verdict(value) or _constant(value)}' for key, value in pairs)} }}"


def _verdict(value: Json) -> str:
    if isinstance(value, dict):
        ((kind, body),) = value.items()
        if kind in ("goto", "jump"):
            return f"{kind} {body['target']}"
        if kind in _VERDICTS:
            return str(kind)
    return ""


def _constant(value: Json) -> str:
    if isinstance(value, str | int):
        return str(value)
    if isinstance(value, list):
        return ",".join(map(_constant, value))
    if isinstance(value, dict) and "concat" in value:
        return " . ".join(map(_constant, value["concat"]))
    if isinstance(value, dict) and "prefix" in value:
        return f"{value['prefix']['addr']}/{value['prefix']['len']}"
    raise _UnknownError


def _networks(items: Iterable[Json]) -> list[str]:
    found: list[str] = []
    for item in items:
        if isinstance(item, dict) and "range" in item:
            first, last = map(ip_address, item["range"])
            found += map(str, summarize_address_range(first, last))
        else:
            found.append(_constant(item))
    return found


def _addresses(items: list[str]) -> str:
    """Networks and addresses, joined where they can be; braces where there are several."""
    prefix = ""
    if items[0].startswith("!="):
        prefix, items = "!= ", [items[0].removeprefix("!="), *items[1:]]
    networks = [ip_network(item.strip("{}")) for item in items]
    joined = [_network_text(n) for n in collapse_addresses(n for n in networks if isinstance(n, IPv4Network))]
    joined += [_network_text(n) for n in collapse_addresses(n for n in networks if isinstance(n, IPv6Network))]
    return prefix + (joined[0] if len(joined) == 1 else f"{{ {' , '.join(joined)} }}")


def _network_text(network: IPv4Network | IPv6Network) -> str:
    return str(network.network_address) if network.prefixlen == network.max_prefixlen else str(network)


class Listing(msgspec.Struct, frozen=True):
    """What the kernel holds.

    Attributes:
        table: kube-proxy's own objects, spelled as the desired ones where both mean the same; None without a table.
        foreign: chains, sets and other objects in the table that kube-proxy does not make: `chain NAME`, say; sorted.
        foreign_rules: the rules of foreign chains, which may lead to ours.
        dormant: whether the kernel calls none of the table's chains; then `table` may be None, as nft cannot list it.
    """

    table: TableText | None
    foreign: tuple[str, ...] = ()
    foreign_rules: tuple[str, ...] = ()
    dormant: bool = False


def read_table(executor: NftExecutor, desired: TableText | None = None) -> Listing:
    """Reads the table.

    Args:
        desired: the table whose spelling is used.

    Raises:
        LinuxError: it cannot be read.
    """
    text = executor.list_table()
    if text is None:
        return Listing(None)
    try:
        listing = parse_listing(text, desired or TableText(executor.table))
    except UnreadableDumpError:
        # nft 1.0.6 writes what happens to be in memory for the flags of a table, which may end its JSON.
        if executor.is_dormant():
            return Listing(None, dormant=True)
        raise
    return msgspec.structs.replace(listing, dormant=executor.is_dormant()) if listing.dormant else listing


def read_awake(executor: NftExecutor, desired: TableText | None = None) -> tuple[Listing, bool]:
    """Reads the table, woken if it was dormant, which it says, too. Raises as `read_table`."""
    listing = read_table(executor, desired)
    if not listing.dormant:
        return listing, False
    executor.wake("" if desired is None else desired.definition)
    return read_table(executor, desired), True


def parse_listing(text: str, desired: TableText, each: Callable[[], None] = lambda: None) -> Listing:
    """Reads what `nft -j list table` prints; of a table with any flags, `dormant` is true.

    Args:
        each: called before each object; what it raises ends the work.

    Raises:
        UnreadableDumpError: it is something else.
    """
    try:
        return _Reader(desired).read(msgspec.json.decode(text, type=_Printed).nftables, each)
    except (msgspec.DecodeError, KeyError, TypeError, ValueError, AttributeError) as error:
        raise UnreadableDumpError(
            f"what nft -j list table {desired.name} prints cannot be understood: {error}"
        ) from error


class _Printed(msgspec.Struct):
    """What nft prints: objects that are not taken apart yet, which takes long if there are many."""

    nftables: list[msgspec.Raw]


class _Reader:
    def __init__(self, desired: TableText) -> None:
        self._desired = desired
        self._chains: dict[str, str] = {}
        self._rules: dict[str, list[str]] = {}
        self._sets: dict[str, SetText] = {}
        self._elements: dict[ElementRef, ElementValue] = {}
        self._foreign: list[str] = []
        self._foreign_rules: list[str] = []
        self._spellings: dict[str, dict[str, str]] = {}

    def read(self, objects: Iterable[msgspec.Raw], each: Callable[[], None]) -> Listing:
        flagged = False
        for printed in objects:
            each()
            ((kind, item),) = msgspec.json.decode(printed).items()
            if kind == "chain":
                self._chain(item)
            elif kind in ("set", "map"):
                self._set(kind, item)
            elif kind == "rule":
                self._rule(item)
            elif kind == "table":
                flagged = "flags" in item
            elif kind != "metainfo":
                self._foreign.append(f"{kind} {item.get('name', '')}".strip())
        rules = {chain: tuple(own) for chain, own in self._rules.items()}
        name, definition = self._desired.name, self._desired.definition
        table = TableText(name, definition, self._chains, rules, self._sets, self._elements)
        # nft 1.0 lists counters before chains, 1.1 after them.
        return Listing(table, tuple(sorted(self._foreign)), tuple(self._foreign_rules), flagged)

    def _chain(self, item: dict[str, Any]) -> None:
        name = item["name"]
        desired = self._desired.chains.get(name)
        if desired is None and not is_our_chain(name):
            self._foreign.append(f"chain {name}")
            return
        found = chain_definition(item)
        # nft 1.0 does not list the comments of chains.
        alike = desired is not None and chain_signature(desired) == chain_signature(found)
        self._chains[name] = desired if alike and desired is not None else found

    def _set(self, kind: str, item: dict[str, Any]) -> None:
        name = item["name"]
        desired = self._desired.sets.get(name)
        if desired is None and not is_our_set(name):
            self._foreign.append(f"{kind} {name}")
            return
        found = listed_set_signature(kind, item)
        if desired is not None and set_signature(desired.kind, desired.definition) == found:
            self._sets[name] = desired
        else:
            self._sets[name] = SetText(kind, set_definition(item))
        if "timeout" not in item.get("flags", ()):  # those with one are filled by packets
            protocol = protocol_part(item.get("type"))
            for each in item.get("elem", ()):
                key, value = element(each, protocol)
                self._elements[name, key] = value

    def _rule(self, item: dict[str, Any]) -> None:
        chain, text = item["chain"], rule_text(item)
        if chain in self._chains:
            if chain not in self._spellings:
                self._spellings[chain] = {canonical(rule): rule for rule in self._desired.rules.get(chain, ())}
            self._rules.setdefault(chain, []).append(self._spellings[chain].get(text, text))
        else:
            self._foreign_rules.append(text)
