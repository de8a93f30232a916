"""The questions whose answers are frozen: command lines of trace, explain, diff, migrate and audit, and their files.

Of each recorded cluster in both modes, of each recorded host, of each golden scenario, and of a cluster of three nodes
one of whose rules is lost.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import product
from pathlib import Path
from typing import Any, NamedTuple

import yaml

from tests.support import paths, recorded_hosts
from tests.support.cluster import audited
from tests.support.cluster.snapshots import recorded_snapshot
from tests.support.recorded import CLUSTERS

SCENARIOS = sorted(path.parent for path in (paths.TESTS.parent / "rules_golden").glob("*/expected"))
MODES = {"iptables": "config.yaml", "nftables": "config.nftables.yaml"}
OTHER = {"iptables": "nftables", "nftables": "iptables"}


class Question(NamedTuple):
    """A command line after `kproxy` without `-o json`, and the files that it names, in the folder where it runs."""

    words: Sequence[str]
    files: Mapping[str, str | bytes]


Questions = Mapping[str, Question]


def of_cluster(case: Path) -> Iterator[tuple[str, Question]]:
    """A recorded cluster: packets to all its addresses, its Services, the switch of its mode, a Service less."""
    objects = [item for item in yaml.safe_load_all((case / "cluster.yaml").read_text()) if item]
    services = [item for item in objects if item["kind"] == "Service"]
    names = [f"{item['metadata']['namespace']}/{item['metadata']['name']}" for item in services]
    node = _address_of(next(item for item in objects if item["kind"] == "Node"))
    packets = _lines(packet for service in services[:6] for packet in _packets(service, node))
    files = {name: (case / name).read_text() for name in ("cluster.yaml", "service-cidr.yaml", *MODES.values())}
    manifests = ["-f", "cluster.yaml", "-f", "service-cidr.yaml"]
    for mode, config in MODES.items():
        settings = ["--config", config]
        ask = ["trace", *manifests, *settings, "--packets", "packets"]
        if packets:  # a headless Service has no address
            yield f"{mode} trace", Question([*ask, "--summary"], {**files, "packets": packets})
            some = "\n".join(packets.splitlines()[::9])
            yield f"{mode} ways", Question(ask, {**files, "packets": f"{some}\n"})
        for name in names[:3]:
            yield f"{mode} {name}", Question(["explain", *manifests, *settings, "--service", name], files)
        yield f"{mode} migrate", Question(["migrate", *manifests, *settings, "--to", OTHER[mode]], files)
    # The dearest questions in one mode a cluster, in turn: all together take under two minutes on two processors.
    mode = list(MODES)[int(case.name[-1]) % 2]
    without = ["diff", "cluster.yaml", "--without", f"svc/{names[0]}", "--config", MODES[mode]]
    yield f"{mode} without", Question(without, files)
    yield f"{mode} audit", _audit(_without_a_rule(recorded_snapshot(case, mode), 3 if mode == "iptables" else 40))


def of_host(name: str) -> Iterator[tuple[str, Question]]:
    """A recorded host: the questions that the kernel answered, and its rules whole and less one."""
    asked = recorded_hosts.questions(name)
    rules, files = _rules_of(name)
    files["host.yaml"] = yaml.safe_dump(recorded_hosts.host_document(name))
    words = ["trace", *(word for file in rules for word in ("--rules", file)), "--host", "host.yaml"]
    for limit in ((), ("--limit", "within")):
        packets = _lines(question.packet for question in asked if limit or question.limit != "within")
        question = [*words, *limit, "--packets", "packets"]
        yield " ".join(("trace", *limit)), Question(question, {**files, "packets": packets})
    for lost, known in ((9, []), (2, ["--host", "host.yaml"])):
        fewer: dict[str, str | bytes] = {**files, f"fewer-{rules[0]}": _less_a_rule(files[rules[0]].encode(), lost)}
        both = [",".join(rules), ",".join([f"fewer-{rules[0]}", *rules[1:]])]
        yield " ".join(("diff", *known[:1], str(lost))), Question(["diff", *both, "-4", *known], fewer)
    yield "audit", _audit({f"nodes/{name}/{file}": data.encode() for file, data in _rules_of(name)[1].items()})


def of_scenario(case: Path) -> Iterator[tuple[str, Question]]:
    """A golden scenario: its packets, its rules of both modes beside each other, a Service, the switch of its mode."""
    files = {name: (case / name).read_text() for name in ("cluster.yaml", "config.yaml")}
    objects = [item for item in yaml.safe_load_all(files["cluster.yaml"]) if item]
    node = next(item["metadata"]["name"] for item in objects if item["kind"] == "Node")
    service = next(item["metadata"] for item in objects if item["kind"] == "Service")
    known = ["-f", "cluster.yaml", "--config", "config.yaml", "--node", node]
    name = f"{service.get('namespace', 'default')}/{service['name']}"
    yield "explain", Question(["explain", *known, "--service", name], files)
    yield "migrate", Question(["migrate", *known], files)
    for rules in sorted((case / "expected").iterdir()):
        node, family, _ = rules.name.rsplit(".", 2)
        both = {each.name: each.read_text() for each in (rules, rules.with_suffix(".nft"))}
        packets = _golden_packets(case, node, int(family[1:]))
        if packets:
            words = ["trace", "--rules", rules.name, "--packets", "packets"]
            yield f"trace {rules.name}", Question(words, {**both, "packets": packets})
        if rules.suffix == ".save":
            yield f"diff {rules.name}", Question(["diff", *both], both)


def of_three_nodes(mode: str) -> Iterator[tuple[str, Question]]:
    """A cluster of three nodes, whole and with a rule lost: audited, and asked over all nodes."""
    files = audited.cluster(mode)
    for lost in (None, *range(2, 60, 6)):
        yield f"audit {lost}", _audit(files if lost is None else _without_a_rule(files, lost))
    # pod/shop/web-1 is on n1, dns-2 on n2: a packet of each to each Service.
    for source, target in product(("pod/shop/web-1", "pod/shop/dns-2", "node/n3"), ("web", "dns", "edge")):
        words = ["trace", "--snapshot", "snapshot", "--from", source, "--to", f"svc/shop/{target}"]
        yield f"{source} to {target}", Question(words, {f"snapshot/{path}": data for path, data in files.items()})


def groups() -> Mapping[str, Iterable[tuple[str, Question]]]:
    """All questions by group."""
    found: dict[str, Iterable[tuple[str, Question]]] = {}
    found |= {case.name: of_cluster(case) for case in CLUSTERS}
    found |= {f"host {name}": of_host(name) for name in recorded_hosts.HOSTS}
    found |= {f"scenario {case.name}": of_scenario(case) for case in SCENARIOS}
    found |= {f"three nodes {mode}": of_three_nodes(mode) for mode in MODES}
    return found


def _audit(files: Mapping[str, bytes]) -> Question:
    return Question(["audit", "snapshot"], {f"snapshot/{path}": data for path, data in files.items()})


_RULE = re.compile(rb"-A \S|\t\t(?!type |elements|comment|flags|\}|[^{]*\{$)[^{}]*$")


def _less_a_rule(text: bytes, number: int) -> bytes:
    """Rules less one: the NUMBERth."""
    lines = text.splitlines(keepends=True)
    places = [place for place, line in enumerate(lines) if _RULE.match(line)]
    del lines[places[number % len(places)]]
    return b"".join(lines)


def _without_a_rule(files: Mapping[str, bytes], number: int) -> dict[str, bytes]:
    """The files, less one of the first node's rules."""
    path = min(path for path in files if path.endswith(("/iptables-save", "/nft")) and b"kube" in files[path].lower())
    return {**files, path: _less_a_rule(files[path], number)}


def _address_of(node: Mapping[str, Any]) -> Sequence[str]:
    return [item["address"] for item in node["status"]["addresses"] if item["type"] == "InternalIP"]


def _packets(service: Mapping[str, Any], node: Sequence[str]) -> Iterator[dict[str, Any]]:
    """Packets of a Pod, of the node and of somebody outside to each address of a Service."""
    spec = service["spec"]
    ingress = service.get("status", {}).get("loadBalancer", {}).get("ingress", [])
    own = [*spec.get("clusterIPs", []), *spec.get("externalIPs", []), *(item["ip"] for item in ingress if "ip" in item)]
    for port in spec["ports"]:
        to = [(address, port["port"]) for address in own if address != "None"]
        to += [(address, port["nodePort"]) for address in node if "nodePort" in port]
        for address, number in to:
            six = ":" in address
            at = f"[{address}]:{number}" if six else f"{address}:{number}"
            proto = port.get("protocol", "TCP").lower()
            clients = ("[fd00:10:244::9]", "[2001:db8:9::7]") if six else ("10.244.0.9", "198.51.100.7")
            for client, device in zip(clients, ("cni0", "eth0"), strict=True):
                yield {"src": f"{client}:40000", "dst": at, "proto": proto, "in": device}
            sender = next((each for each in node if (":" in each) == six), None)
            if sender is not None:
                source = f"[{sender}]:40000" if six else f"{sender}:40000"
                yield {"src": source, "dst": at, "proto": proto, "origin": "local"}


def _golden_packets(case: Path, node: str, version: int) -> str:
    """The packets of a scenario for one node and family, as --packets takes them."""
    found = []
    for item in yaml.safe_load((case / "packets.yaml").read_text())["packets"]:
        six = item["to"].count(":") > 1
        if item.get("node", node) == node and six == (version == 6):
            kept = {key: value for key, value in item.items() if key not in ("expect", "expectNftables", "node")}
            found.append({{"from": "src", "to": "dst"}.get(key, key): value for key, value in kept.items()})
    return _lines(found)


def _rules_of(name: str) -> tuple[list[str], dict[str, str]]:
    """The names of a host's files of rules, and the files."""
    files = {}
    for file in (*recorded_hosts.SAVES.values(), "ruleset.nft"):
        text = recorded_hosts.native_tables(name) if file == "ruleset.nft" else recorded_hosts.read(name, file)
        if text:
            files[file] = text
    return list(files), files


def _lines(items: Iterable[Mapping[str, Any]]) -> str:
    return "".join(f"{json.dumps(dict(item))}\n" for item in items)
