"""The recorded hosts of tests/reference/hosts: their files, the questions about them, and their host files."""

from __future__ import annotations

import ipaddress
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

import yaml

from kproxy.netfilter import Family
from tests.support import paths

FOLDER = paths.TESTS / "reference" / "hosts"
HOSTS = sorted(path.parent.name for path in FOLDER.glob("*/ip.json"))
IPTABLES_TABLES = ("raw", "mangle", "nat", "filter", "security")
SAVES = {
    (Family.IPV4, "nft"): "iptables-save", (Family.IPV6, "nft"): "ip6tables-save",
    (Family.IPV4, "legacy"): "iptables-legacy-save", (Family.IPV6, "legacy"): "ip6tables-legacy-save",
}  # fmt: skip


@dataclass(frozen=True)
class Peer:
    """Who is at the other end of a link: `device` is the host's, or the bridge's whose port `port` is."""

    address: str
    device: str
    port: str | None


@dataclass(frozen=True)
class Question:
    """A packet, with the fields of `kproxy trace --packets`, and what the kernel does with it.

    An answer has `verdict` (ACCEPT, DROP, REJECT); of an accepted packet `src` (without port), `dst`, `dnat`,
    `masquerade`, and `out`, the device it leaves by, or `via: local`; of a rejected one `reject`. Several answers: it
    may be any of these.
    `assume` and `limit` are what the rules and the host cannot tell and decides the answer, as `kproxy trace` takes it.
    """

    name: str
    packet: Mapping[str, Any]
    answers: Sequence[Mapping[str, Any]]
    assume: tuple[str, ...]
    limit: str | None


def read(name: str, file: str) -> str | None:
    """A file of a recorded host, or None if there is none."""
    path = FOLDER / name / file
    return path.read_text() if path.exists() else None


@cache
def _document(name: str) -> Mapping[str, Any]:
    return yaml.safe_load((FOLDER / name / "questions.yaml").read_text())  # type: ignore[no-any-return]


def peers(name: str) -> dict[str, Peer]:
    """The neighbours of a host by address: those of questions.yaml, and the gateways of its routes."""
    ip = addresses(name)
    found = {}
    for route in [*ip["route"], *ip["route6"]]:
        if "gateway" in route:
            found[route["gateway"]] = Peer(route["gateway"], route["dev"], None)
    for address, place in _document(name)["peers"].items():
        device, _, port = str(place).partition("/")
        found[address] = Peer(address, device, port or None)
    return found


def questions(name: str) -> list[Question]:
    """The questions about a host."""
    return [
        Question(
            item["name"],
            item["packet"],
            item["answer"] if isinstance(item["answer"], list) else [item["answer"]],
            tuple(item.get("assume", ())),
            item.get("limit"),
        )
        for item in _document(name)["questions"]
    ]


def addresses(name: str) -> Mapping[str, Any]:
    """What `ip -j` printed of a host: link, address, route, route6, rule, rule6."""
    return json.loads((FOLDER / name / "ip.json").read_text())  # type: ignore[no-any-return]


def own_addresses(name: str) -> Iterator[tuple[str, str]]:
    """Device and address with its prefix length, without those that the kernel chooses itself."""
    for link in addresses(name)["address"]:
        for item in link["addr_info"]:
            if item["scope"] != "link" and link["ifname"] != "lo":
                yield link["ifname"], f"{item['local']}/{item['prefixlen']}"


def routes(name: str) -> Iterator[dict[str, Any]]:
    """The routes that do not follow from the addresses, with the fields of a host file: to, via, dev, type."""
    networks = {(device, address) for device, address in _networks(name)}
    for family, listed in (("0.0.0.0/0", addresses(name)["route"]), ("::/0", addresses(name)["route6"])):
        for route in listed:
            to = family if route["dst"] == "default" else route["dst"]
            if to.startswith(("fe80:", "ff00:", "multicast")) or (route.get("dev"), _network(to)) in networks:
                continue
            found = {"to": _network(to), "type": route.get("type", "unicast")}
            found |= {key: route[field] for key, field in (("via", "gateway"), ("dev", "dev")) if field in route}
            yield found


def _networks(name: str) -> Iterator[tuple[str, str]]:
    for device, address in own_addresses(name):
        yield device, _network(address)


def _network(text: str) -> str:
    return str(ipaddress.ip_network(text, strict=False))


def sysctls(name: str) -> dict[str, int]:
    """The recorded sysctls."""
    lines = (line.partition(" = ") for line in (read(name, "sysctl.txt") or "").splitlines())
    return {key: int(value) for key, _, value in lines}


def native_tables(name: str) -> str:
    """Of the nftables dump, the tables that are not iptables-nft's."""
    kept: list[str] = []
    keeping = False
    for line in (read(name, "ruleset.nft") or "").splitlines(keepends=True):
        if line.startswith("table "):
            _, family, table = line.split()[:3]
            keeping = family not in ("ip", "ip6") or table not in IPTABLES_TABLES
        if keeping:
            kept.append(line)
    return "".join(kept)


def host_document(name: str) -> dict[str, Any]:
    """The host as a host file (docs/host-file.md) describes it, without its sets."""
    own: dict[str, list[str]] = {"lo": ["127.0.0.1/8", "::1/128"]}
    for device, address in own_addresses(name):
        own.setdefault(device, []).append(address)
    interfaces = []
    for link in addresses(name)["link"]:
        entry: dict[str, Any] = {"name": link["ifname"], "addresses": own.get(link["ifname"], [])}
        if "master" in link:
            entry |= {"bridge": link["master"], "hairpin": link["linkinfo"]["info_slave_data"]["hairpin"]}
        interfaces.append(entry)
    recorded = sysctls(name)
    short = {
        "net.ipv4.ip_forward": "ip_forward", "net.ipv6.conf.all.forwarding": "ip6_forward",
        "net.bridge.bridge-nf-call-iptables": "bridge-nf-call-iptables",
        "net.bridge.bridge-nf-call-ip6tables": "bridge-nf-call-ip6tables",
    }  # fmt: skip
    kept = {key.removeprefix("net.ipv4.conf.all."): value for key, value in recorded.items() if ".conf.all." in key}
    kept = {key: value for key, value in kept.items() if key in ("route_localnet", "rp_filter", "accept_local")}
    kept |= {short[key]: value for key, value in recorded.items() if key in short}
    kept |= {key: value for key, value in recorded.items() if ".conf." in key and ".conf.all." not in key}
    return {"interfaces": interfaces, "routes": list(routes(name)), "sysctls": kept}
