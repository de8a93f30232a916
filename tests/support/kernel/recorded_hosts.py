"""A recorded host laid again in a namespace: its links, addresses, routes and sysctls, its neighbours, and its rules.

Every link that is no bridge is one end of a pair, whose other end is in the namespace of wires; whatever kind the link
was of, what leaves by it is seen there, and what is sent there arrives on it.
"""

from __future__ import annotations

import os
import re
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from kproxy.dataplane import Packet, make_packet
from kproxy.linux.testbed.wire import REJECT_NAMES, Observed, what_counts
from kproxy.netfilter import Family
from kproxy.netfilter.address import format_address
from tests.support import recorded_hosts
from tests.support.kernel.dataplane_wire import Node, Probe, inside
from tests.support.recorded_hosts import Question

TRIES = 16
"""How often a packet that may end in several ways is sent."""


def _hardware(side: str, number: int) -> str:
    return f"02:00:00:00:{'01' if side == 'wire' else '00'}:{number:02x}"


class HostNode(Node):
    """A recorded host and the wires at its links."""

    def __init__(self, name: str, host: str) -> None:
        self.host = host
        self.devices = [link for link in recorded_hosts.addresses(host)["link"] if link["ifname"] != "lo"]
        self.numbers = {link["ifname"]: number for number, link in enumerate(self.devices)}
        self.masters = {link["ifname"]: link["master"] for link in self.devices if "master" in link}
        ends = {f"w{self.numbers[link['ifname']]}": link["ifname"] for link in self.devices if not _is_bridge(link)}
        super().__init__(name, links=ends)
        self.peers = recorded_hosts.peers(host)

    def make(self) -> None:
        """Lay the namespaces, load the rules, and open the sockets."""
        self._add_namespaces()
        self._batch(self.name, self._links_of_node())
        self._batch(self.wires, [f"link set {end} up" for end in self.ends])
        for key, value in recorded_hosts.sysctls(self.host).items():
            with inside(self.name):
                path = Path("/proc/sys", *key.split("."))
                if path.exists() and os.access(path, os.W_OK):
                    path.write_text(str(value))
        self._batch(self.name, self._addresses_and_routes())
        for port, bridge in self.masters.items():
            self.run("bridge", "fdb", "replace", _hardware("wire", self.numbers[port]), "dev", port, "master", "static")
            assert bridge in self.numbers
        self.load()
        self._open()

    def _batch(self, namespace: str, lines: Sequence[str]) -> None:
        done = subprocess.run(
            ["ip", "-n", namespace, "-batch", "-"], input="\n".join(lines), capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, f"{self.host}: {done.stderr}\n" + "\n".join(lines)

    def _links_of_node(self) -> list[str]:
        lines = ["link set lo up"]
        for link in self.devices:
            name, number = link["ifname"], self.numbers[link["ifname"]]
            if _is_bridge(link):
                lines.append(f"link add {name} address {_hardware('node', number)} type bridge forward_delay 0")
            else:
                peer = f"peer name w{number} address {_hardware('wire', number)} netns {self.wires}"
                lines.append(f"link add {name} address {_hardware('node', number)} type veth {peer}")
            lines.append(f"link set {name} up")
        for link in self.devices:
            if "master" in link:
                state = link["linkinfo"]["info_slave_data"]
                lines.append(f"link set {link['ifname']} master {link['master']}")
                hairpin, isolated = ("on" if state.get(key) else "off" for key in ("hairpin", "isolated"))
                lines.append(f"link set {link['ifname']} type bridge_slave hairpin {hairpin} isolated {isolated}")
        return lines

    def _addresses_and_routes(self) -> list[str]:
        lines = []
        for device, address in recorded_hosts.own_addresses(self.host):
            lines.append(f"addr add {address} dev {device}" + (" nodad" if ":" in address else ""))
        for peer in self.peers.values():
            hardware = _hardware("wire", self.numbers[peer.port or peer.device])
            lines.append(f"neigh replace {peer.address} lladdr {hardware} dev {peer.device} nud permanent")
        for route in recorded_hosts.routes(self.host):
            kind = "" if route["type"] == "unicast" else f"{route['type']} "
            text = f"route add {kind}{route['to']}"
            text += "".join(f" {key} {route[key]}" for key in ("via", "dev") if key in route and not kind)
            lines.append(text + (" onlink" if "via" in route and ":" not in route["to"] else ""))
        return lines

    def load(self) -> None:
        """Load the recorded rules, of whatever kind they are."""
        sets = recorded_hosts.read(self.host, "ipset.save")
        if sets is not None:
            self.run("ipset", "restore", text=sets)
        for (family, variant), file in recorded_hosts.SAVES.items():
            text = recorded_hosts.read(self.host, file)
            if text is not None:
                tool = f"{'ip6tables' if family is Family.IPV6 else 'iptables'}-{variant}-restore"
                self.run(tool, text=text)
        native = recorded_hosts.native_tables(self.host)
        if native:
            self.run("nft", "-f", "-", text=_loadable(native))

    def addresses_of_frame(self, packet: Packet, link: str) -> tuple[str, str]:
        """To a neighbour on the same bridge, else to the host."""
        device = self.ends[link]
        bridge = self.masters.get(device)
        target = self.numbers[bridge or device]
        source = _hardware("wire", self.numbers[device])
        other = self.peers.get(format_address(packet.dst or 0, packet.family))
        if bridge is not None and other is not None and other.device == bridge and other.port != device:
            return _hardware("wire", self.numbers[other.port or other.device]), source
        return _hardware("node", target), source

    def probe(self, fields: Mapping[str, Any], token: int, sport: int | None = None) -> Probe:
        """The packet of a question, as one to send; with another source port if one is named."""
        packet = make_packet(fields["src"], fields["dst"], fields.get("proto", "tcp"))
        if sport is not None:
            packet = packet.replace(sport=sport)
        if fields.get("origin") == "local":
            return Probe(packet, "node", token)
        device = fields.get("inPort") or fields["in"]
        return Probe(packet, f"w{self.numbers[device]}", token)

    def outcomes(self, questions: Sequence[Question], tries: int = TRIES) -> list[list[dict[str, Any]]]:
        """Send the packets of all questions together; of each all that became of it, in the form of answers.

        One that may end in several ways is sent several times, each time from another port.
        """
        probes: list[list[Probe]] = []
        for number, question in enumerate(questions):
            token = 1000 * (number + 1)
            tried = [self.probe(question.packet, token)]
            if len(question.answers) != 1:
                tried += [self.probe(question.packet, token + one, 41000 + one) for one in range(1, tries)]
            probes.append(tried)
        seen = self.exchange([probe for tried in probes for probe in tried])
        found = []
        for tried in probes:
            told = [self._told(probe, what_counts(seen.get(probe.token, []))) for probe in tried]
            found.append([item for place, item in enumerate(told) if item not in told[:place]])
        return found

    def _told(self, probe: Probe, seen: Observed | None) -> dict[str, Any]:
        if seen is None:
            return {"verdict": "DROP"}
        if seen.kind != "packet":
            return {"verdict": "REJECT", "reject": REJECT_NAMES[seen.kind]}
        packet = probe.packet
        dst = _endpoint(seen.dst, seen.dport)
        sent = format_address(packet.src or 0, packet.family)
        answer = {
            "verdict": "ACCEPT",
            "src": seen.src,
            "dst": dst,
            "dnat": dst != _endpoint(format_address(packet.dst or 0, packet.family), packet.dport),
            "masquerade": seen.src != sent,
        }
        if seen.where == "local":
            return {**answer, "via": "local"}
        device = self.ends[seen.where]
        return {**answer, "out": self.masters.get(device, device)}


def _loadable(tables: str) -> str:
    """A dump of nftables as any release of nft loads it.

    A table with an owner is gone when its owner is, so that it is loaded without one; nft 1.0.6 knows the name dstnat
    at prerouting alone, and prints -100 at output.
    """
    tables = re.sub(r"^\tflags owner.*\n", "", tables, flags=re.MULTILINE)
    return re.sub(
        r"(hook output priority )dstnat(?: ([+-]) (\d+))?;",
        lambda found: f"{found[1]}{-100 + int((found[2] or '') + (found[3] or '0'))};",
        tables,
    )


def _is_bridge(link: Mapping[str, Any]) -> bool:
    return bool(link.get("linkinfo", {}).get("info_kind") == "bridge")


def _endpoint(address: str, port: int | None) -> str:
    if port is None:
        return address
    return f"[{address}]:{port}" if ":" in address else f"{address}:{port}"


@contextmanager
def laid(host: str) -> Iterator[HostNode]:
    """A recorded host in namespaces of its own, with its rules loaded."""
    node = HostNode(f"kp-h{os.getpid() % 100000}", host)
    try:
        node.make()
        yield node
    finally:
        node.close()
