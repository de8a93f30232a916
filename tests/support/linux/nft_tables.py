"""Small tables as kube-proxy v1.36 writes them, and a way to make others of them."""

from __future__ import annotations

import json
import random
from typing import Final

from kproxy.linux.nftables.table import SetText, TableText
from kproxy.render.nftables.serviceport import ElementRef, ElementValue
from kproxy.render.nftables.table import element_text

_BASE = """\
add table {t} {{ comment "rules for kube-proxy" ; }}
add chain {t} cluster-ips-check
add chain {t} filter-forward {{ type filter hook forward priority 0 ; }}
add chain {t} masquerading
add chain {t} nat-postrouting {{ type nat hook postrouting priority 100 ; }}
add chain {t} nat-prerouting {{ type nat hook prerouting priority -100 ; }}
add chain {t} reject-chain {{ comment "helper for @no-endpoint-services / @no-endpoint-nodeports" ; }}
add chain {t} service-endpoints-check
add chain {t} services
add set {t} cluster-ips {{ type {a} ; comment "Active ClusterIPs" ; }}
add map {t} no-endpoint-services {{ type {a} . inet_proto . inet_service : verdict ; comment "x" ; }}
add map {t} service-ips {{ type {a} . inet_proto . inet_service : verdict ; comment "ClusterIP traffic" ; }}
add rule {t} cluster-ips-check {ip} daddr @cluster-ips reject comment "Reject traffic to invalid ports of ClusterIPs"
add rule {t} filter-forward ct state new jump service-endpoints-check
add rule {t} filter-forward ct state new jump cluster-ips-check
add rule {t} masquerading mark and 0x00004000 != 0 mark set mark xor 0x00004000 masquerade fully-random
add rule {t} nat-postrouting jump masquerading
add rule {t} nat-prerouting jump services
add rule {t} reject-chain reject
add rule {t} service-endpoints-check {ip} daddr . meta l4proto . th dport vmap @no-endpoint-services
add rule {t} services {ip} daddr . meta l4proto . th dport vmap @service-ips
"""


_BASE32 = str.maketrans("0189", "ADEF")


def make_table(names: str, version: int = 4, affinity: int = 10800, revision: int = 0) -> TableText:
    """A table with a Service for each letter.

    Upper case: with session affinity, of `affinity` seconds. A digit: a Service without endpoints. Another `revision`
    has other endpoints.
    """
    family = "ip" if version == 4 else "ip6"
    text = _BASE.format(t=f"{family} kube-proxy", ip=family, a=f"ipv{version}_addr")
    table = parse_script(text)
    chains, rules, sets = dict(table.chains), dict(table.rules), dict(table.sets)
    elements = dict(table.elements)
    for name in names:
        number = ord(name)
        cluster_ip, pod = (f"10.96.0.{number}", "10.244.{}.{}") if version == 4 else (f"fd00::{number}", "fd01::{}:{}")
        elements["cluster-ips", cluster_ip] = ElementValue()
        key = f"{cluster_ip} . tcp . 80"
        if name.isdigit():
            elements["no-endpoint-services", key] = ElementValue("goto reject-chain", f"ns/{name}")
            continue
        base = f"HASH{str(number).zfill(4).translate(_BASE32)}-ns/{name}/tcp/"
        service = f"service-{base}"
        elements["service-ips", key] = ElementValue(f"goto {service}")
        chains[service] = ""
        pods = [pod.format(number, each + revision) for each in (1, 2, 3)]
        if name.islower():
            choices = " , ".join(f"{i} : {ip} . 8080" for i, ip in enumerate(pods))
            text = f"meta l4proto tcp dnat {family} addr . port to numgen random mod 3 map {{ {choices} }}"
            rules[service] = (text,)
            continue
        own = [f"{base}__{ip.replace(':', '.')}/8080" for ip in pods]
        for ip, each in zip(pods, own, strict=True):
            sets[f"affinity-{each}"] = SetText(
                "set", f"{{ type ipv{version}_addr ; flags dynamic,timeout ; timeout {affinity}s ; }}"
            )
            chains[f"endpoint-{each}"] = ""
            address = f"[{ip}]:8080" if version == 6 else f"{ip}:8080"
            rules[f"endpoint-{each}"] = (
                f"update @affinity-{each} {{ {family} saddr }}",
                f"meta l4proto tcp dnat to {address}",
            )
        lead = " , ".join(f"{i} : goto endpoint-{each}" for i, each in enumerate(own))
        rules[service] = (
            *(f"{family} saddr @affinity-{each} goto endpoint-{each}" for each in own),
            f"numgen random mod 3 vmap {{ {lead} }}",
        )
    return TableText(table.name, table.definition, chains, rules, sets, elements)


def random_tables(seed: int, count: int, version: int = 4) -> list[TableText]:
    """Tables one after the other, each somewhat different from the one before."""
    chance = random.Random(seed)
    return [
        make_table(
            "".join(sorted(chance.sample("abcdABCD123", chance.randint(0, 8)))),
            version,
            chance.choice((10800, 60)),
            chance.randint(0, 2),
        )
        for _ in range(count)
    ]


def comparable(listing: str | None) -> list[str]:
    """What `nft -j list table` prints, object by object, without handles and without an order of objects."""
    found = []
    for each in json.loads(listing or '{"nftables": []}')["nftables"]:
        ((kind, item),) = each.items()
        item.pop("handle", None)
        if kind in ("set", "map"):
            item["elem"] = sorted(map(json.dumps, item.get("elem", ())))
        if kind != "rule":
            found.append(json.dumps(each, sort_keys=True))
    rules: dict[str, list[object]] = {}
    for each in json.loads(listing or '{"nftables": []}')["nftables"]:
        if "rule" in each:
            rules.setdefault(each["rule"]["chain"], []).append((each["rule"]["expr"], each["rule"].get("comment")))
    return sorted(found) + [json.dumps(pair) for pair in sorted(rules.items())]


def table_script(table: TableText) -> str:
    """Input for `nft -f` where there is no such table yet, one object a line, in an order that nft can load."""
    name = table.name
    lines = [f"add table {name} {table.definition}", *(f"add chain {name} {c} {d}" for c, d in table.chains.items())]
    lines += [f"add {each.kind} {name} {one} {each.definition}" for one, each in table.sets.items()]
    lines += [f"add rule {name} {chain} {rule}" for chain, rules in table.rules.items() for rule in rules]
    lines += [f"add element {name} {ref[0]} {{ {element_text(ref[1], v)} }}" for ref, v in table.elements.items()]
    return "".join(f"{line.rstrip()}\n" for line in lines)


def parse_script(text: str) -> TableText:
    """Reads back what `TableText.script` writes, and what kube-proxy's own dumps hold: one `add` a line.

    Raises:
        ValueError: a line is something else, or not of the same table.
    """
    name = definition = ""
    chains: dict[str, str] = {}
    rules: dict[str, list[str]] = {}
    sets: dict[str, SetText] = {}
    elements: dict[ElementRef, ElementValue] = {}
    for number, line in enumerate(text.splitlines(), 1):
        verb, kind, family, table, *rest = line.split(" ", 4)
        own = f"{family} {table}"
        if verb != "add" or own != (name or own):
            raise ValueError(f"line {number} adds nothing to table {name or own}: {line}")
        name = own
        what, _, tail = (rest[0] if rest else "").partition(" ")
        if kind == "table":
            definition = rest[0] if rest else ""
        elif kind == "chain":
            chains[what] = tail
        elif kind in ("set", "map"):
            sets[what] = SetText(kind, tail)
        elif kind == "rule":
            rules.setdefault(what, []).append(tail)
        elif kind == "element":
            key, value = _parse_element(tail)
            elements[what, key] = value
        else:
            raise ValueError(f"line {number} adds a {kind!r}: {line}")
    return TableText(name, definition, chains, {chain: tuple(own) for chain, own in rules.items()}, sets, elements)


def _parse_element(text: str) -> tuple[str, ElementValue]:
    """`{ KEY [comment "..."] [: VERDICT] }`; keys of IPv6 addresses hold colons, but none between spaces."""
    inner = text.removeprefix("{ ").removesuffix(" }")
    head, mark, tail = inner.partition(_COMMENT)
    if mark:
        comment, _, value = tail.partition('"')
        return head, ElementValue(value.removeprefix(" : "), comment)
    key, _, value = inner.partition(" : ")
    return key, ElementValue(value)


_COMMENT: Final = ' comment "'
