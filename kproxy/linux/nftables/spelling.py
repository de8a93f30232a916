"""nft's JSON in the words in which kube-proxy writes rules, elements and sets.

kube-proxy writes a dozen kinds of rules. Spelling what the kernel holds in kube-proxy's words makes comparing a table a
comparison of texts. A rule with anything else in it is spelled as its JSON: it is not kube-proxy's.

The kernel and nft keep the meaning, not the words: numbers lose their base, a set with one element its braces, networks
that lie in one another are joined. `canonical` does the same to a rule that is wanted.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from functools import lru_cache
from ipaddress import IPv4Network, IPv6Network, collapse_addresses, ip_address, ip_network, summarize_address_range
from typing import Any, Final

from kproxy.netfilter.family import protocol_name
from kproxy.render.nftables.serviceport import ElementValue

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
