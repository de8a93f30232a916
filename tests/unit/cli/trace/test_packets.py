"""`kproxy trace --packets` and `--pcap`: many packets."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.support import paths
from tests.support.cli import Run

ROOT = paths.ROOT
RULES = ROOT / "rules_golden" / "minikube" / "expected" / "minikube.v4.save"
SOURCE = ("--rules", RULES, "--local-ip", "192.168.49.2")
DNS = {"src": "10.244.0.9:40000", "dst": "10.96.0.10:53", "proto": "udp", "in": "cni0"}


def lines_of(text: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in text.splitlines()]


def test_json_lines_in_json_lines_out(kproxy: Run, tmp_path: Path) -> None:
    local = {"src": "127.0.0.1", "dst": "127.0.0.1:32198", "origin": "local", "name": "node port on localhost"}
    marked = {"src": "10.244.0.9", "dst": "10.244.0.3:80", "mark": "0x4000", "ctstate": "NEW"}
    (tmp_path / "packets.jsonl").write_text("\n\n".join(json.dumps(item) for item in (DNS, local, marked)) + "\n")
    done = kproxy("trace", *SOURCE, "--packets", "packets.jsonl")
    assert (done.returncode, done.stderr) == (0, "")
    answers = lines_of(done.stdout)
    assert [answer["outcomes"][0]["dst"] for answer in answers] == [
        "10.244.0.2:53",
        "10.244.0.35:8080",
        "10.244.0.3:80",
    ]
    assert [answer["source"] for answer in answers] == [f"packets.jsonl: line {number}" for number in (1, 3, 5)]
    assert answers[1]["packet"]["name"] == "node port on localhost"
    assert answers[2]["packet"]["mark"] == 0x4000


def test_lines_of_a_family_without_rules_are_answered_with_an_error(kproxy: Run) -> None:
    six = {"src": "[fd00::9]:40000", "dst": "[fd00::10]:53", "proto": "udp", "name": "six"}
    text = "\n".join(map(json.dumps, (DNS, six, DNS)))
    done = kproxy("trace", *SOURCE, "--packets", "-", stdin=text)
    assert done.returncode == 1
    first, second, third = lines_of(done.stdout)
    assert first["outcomes"] == third["outcomes"]
    assert len(first["outcomes"]) > 0
    assert second["outcomes"] == []
    assert "these are rules of IPv4, and the packet is one of IPv6" in second["error"]
    assert second["source"] == "standard input: line 2"
    assert second["packet"]["name"] == "six"
    assert "error" not in first
    done = kproxy("trace", *SOURCE, "--packets", "-", stdin=json.dumps(six))
    assert (done.returncode, done.stdout) == (2, "")
    assert "standard input: line 1: " in done.stderr


def test_answers_are_questions_again(kproxy: Run) -> None:
    first = kproxy("trace", *SOURCE, "--packets", "-", stdin=json.dumps(DNS))
    packet = json.dumps(lines_of(first.stdout)[0]["packet"])
    assert kproxy("trace", *SOURCE, "--packets", "-", stdin=packet).stdout == first.stdout
    assert kproxy("trace", *SOURCE, "--packets", "-", stdin=first.stdout).stdout == first.stdout


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("{", "a JSON object expected"),
        ("[1]", "a JSON object expected"),
        ('{"src": "10.0.0.1"}', "dst: this field is required"),
        ('{"dst": "10.0.0.1:80", "sorce": "10.0.0.1"}', "sorce: unknown field (known: name, src"),
        ('{"dst": 80}', "dst: a text expected, not 80"),
        ('{"dst": "10.0.0.1:80", "mark": -1}', "mark: a number from 0 to 4294967295 expected"),
        ('{"dst": "10.0.0.1:80", "mark": true}', "mark: a number"),
        ('{"dst": "10.0.0.1:80", "origin": "moon"}', "origin: local or arriving expected"),
        ('{"dst": "10.0.0.1:80", "proto": 700}', "proto: a number from 1 to 255"),
        ('{"dst": "10.0.0.1:80", "recent": "x"}', "recent: a list of names expected"),
        ('{"dst": "10.0.0.1:80", "tcpFlags": "X"}', "tcpFlags: flags of FIN"),
        ('{"to": "svc/x", "src": "10.0.0.1"}', "Service default/x is not in the cluster"),
    ],
)
def test_a_bad_line_is_an_error_and_nothing_is_printed(kproxy: Run, tmp_path: Path, line: str, words: str) -> None:
    (tmp_path / "packets.jsonl").write_text(f"{json.dumps(DNS)}\n{line}\n{json.dumps(DNS)}\n")
    done = kproxy("trace", *SOURCE, "--packets", "packets.jsonl")
    assert (done.returncode, done.stdout) == (2, "")
    assert "packets.jsonl: line 2: " in done.stderr
    assert words in done.stderr


def test_no_packets_at_all(kproxy: Run, tmp_path: Path) -> None:
    (tmp_path / "empty").write_text("\n")
    done = kproxy("trace", *SOURCE, "--packets", "empty")
    assert done.returncode == 2
    assert "empty: no packets" in done.stderr
    assert kproxy("trace", *SOURCE, "--packets", "nowhere").returncode == 2


@pytest.fixture
def capture(tmp_path: Path) -> Path:
    from scapy.layers.inet import ICMP, IP, TCP, UDP
    from scapy.layers.l2 import ARP, Ether
    from scapy.layers.sctp import SCTP
    from scapy.packet import Packet
    from scapy.utils import wrpcap

    frames: list[Packet] = [
        Ether() / IP(src="10.244.0.9", dst="10.96.0.10", ttl=63) / UDP(sport=40000, dport=53) / b"query",
        Ether() / ARP(pdst="10.244.0.1"),
        Ether() / IP(src="10.244.0.9", dst="10.103.198.138") / TCP(sport=41000, dport=8080, flags="S"),
        Ether() / IP(src="10.244.0.36", dst="10.244.0.9") / TCP(sport=8080, dport=41000, flags="SA"),
        Ether() / IP(src="10.244.0.9", dst="10.244.0.2") / ICMP(),
        Ether() / IP(src="10.244.0.9", dst="10.244.0.2", frag=100, proto=17) / (b"x" * 8),
        Ether() / IP(src="10.244.0.9", dst="10.244.0.2") / SCTP(sport=1, dport=2),
    ]
    path = tmp_path / "capture.pcap"
    wrpcap(str(path), frames)
    return path


def test_a_capture(kproxy: Run, capture: Path) -> None:
    done = kproxy("trace", *SOURCE, "--pcap", "capture.pcap", "--in", "cni0", "-o", "json")
    assert done.returncode == 0, done.stderr
    assert "skipped 1 packets that are no IP packets" in done.stderr
    answers = lines_of(done.stdout)
    assert [answer["source"] for answer in answers] == [
        f"capture.pcap: packet {number}" for number in (1, 3, 4, 5, 6, 7)
    ]
    packets = [answer["packet"] for answer in answers]
    assert packets[0] == {**DNS, "origin": "arriving", "mark": 0, "ctstate": "NEW", "ttl": 63, "tos": 0, "length": 33}
    assert answers[0]["outcomes"][0]["dst"] == "10.244.0.2:53"
    assert [item["dst"] for item in answers[1]["outcomes"]] == ["10.244.0.36:8080", "10.244.0.37:8080"]
    assert (packets[2]["tcpFlags"], packets[2]["ctstate"]) == ("SYN,ACK", "ESTABLISHED")
    assert (packets[3]["proto"], packets[3]["icmpType"]) == ("icmp", 8)
    assert (packets[4]["fragment"], packets[4]["dst"]) == (True, "10.244.0.2")
    assert packets[5]["proto"] == "sctp"


def test_a_capture_in_words_and_with_a_state(kproxy: Run, capture: Path) -> None:
    done = kproxy("trace", *SOURCE, "--pcap", "capture.pcap", "--ctstate", "INVALID")
    assert done.returncode == 0
    assert done.stdout.count("conntrack state INVALID") == 6
    assert "capture.pcap: packet 3" in done.stdout


def test_ipv6_in_a_capture(kproxy: Run, tmp_path: Path) -> None:
    from scapy.layers.inet import TCP
    from scapy.layers.inet6 import ICMPv6EchoRequest, IPv6, IPv6ExtHdrHopByHop
    from scapy.packet import Packet
    from scapy.utils import wrpcap

    frames: list[Packet] = [
        IPv6(src="fd00::1", dst="fd00::2") / IPv6ExtHdrHopByHop() / TCP(sport=1, dport=80),
        IPv6(src="fd00::1", dst="fd00::2") / ICMPv6EchoRequest(),
    ]
    wrpcap(str(tmp_path / "six.pcap"), frames)
    rules = ROOT / "rules_golden" / "ipv6-only" / "expected" / "node-0.v6.save"
    done = kproxy("trace", "--rules", rules, "--pcap", "six.pcap", "-o", "json")
    assert done.returncode == 0, done.stderr
    packets = [answer["packet"] for answer in lines_of(done.stdout)]
    assert [(packet["proto"], packet["dst"]) for packet in packets] == [("tcp", "[fd00::2]:80"), ("icmp", "fd00::2")]
    assert packets[1]["icmpType"] == 128


def test_a_capture_of_a_node_holds_tunnels_both_families_and_packets_cut_short(kproxy: Run, tmp_path: Path) -> None:
    from scapy.layers.inet import IP, TCP
    from scapy.layers.inet6 import ICMPv6EchoRequest, IPv6
    from scapy.layers.l2 import GRE, Ether
    from scapy.packet import Packet
    from scapy.utils import wrpcap

    inside = IP(src="10.244.0.9", dst="10.96.0.1") / TCP(sport=1, dport=443)
    outside = IP(src="192.168.0.3", dst="192.168.0.2")
    cut = Ether(bytes(Ether() / inside)[:36])
    frames: list[Packet] = [
        Ether() / IP(src="192.168.0.3", dst="192.168.0.2", proto=4) / inside,
        Ether() / outside / GRE() / inside,
        Ether() / IPv6(src="fe80::1", dst="ff02::1") / ICMPv6EchoRequest(),
        cut,
    ]
    wrpcap(str(tmp_path / "node.pcap"), frames)
    done = kproxy("trace", *SOURCE, "--pcap", "node.pcap", "-o", "json")
    assert done.returncode == 0, done.stderr
    packets = [answer["packet"] for answer in lines_of(done.stdout)]
    assert [(packet["proto"], packet["dst"]) for packet in packets] == [
        ("ipencap", "192.168.0.2"),
        ("gre", "192.168.0.2"),
    ]
    assert "skipped 1 packet of IPv6" in done.stderr
    assert "or are cut short" in done.stderr

    wrpcap(str(tmp_path / "six.pcap"), frames[2:3])
    done = kproxy("trace", *SOURCE, "--pcap", "six.pcap")
    assert (done.returncode, done.stdout) == (2, "")
    assert "these are rules of IPv4" in done.stderr


def test_what_is_no_capture(kproxy: Run, tmp_path: Path) -> None:
    from scapy.layers.l2 import ARP, Ether
    from scapy.utils import wrpcap

    (tmp_path / "text").write_text("hello, this is no capture at all\n")
    (tmp_path / "empty").write_text("")
    wrpcap(str(tmp_path / "arp.pcap"), [Ether() / ARP()])
    for name, words in (
        ("text", "text: not a capture"),
        ("empty", "empty: not a capture"),
        ("nowhere", "nowhere: No such file"),
        ("arp.pcap", "arp.pcap: no IP packets"),
    ):
        done = kproxy("trace", *SOURCE, "--pcap", name)
        assert (done.returncode, done.stdout) == (2, "")
        assert words in done.stderr


def test_a_capture_with_a_packet_that_cannot_be_asked_for_and_one_that_is_no_ip_packet(
    kproxy: Run, tmp_path: Path
) -> None:
    from scapy.layers.inet import IP, UDP
    from scapy.layers.l2 import Ether
    from scapy.packet import Packet
    from scapy.utils import wrpcap

    odd = b"\x14\x06\x40\x00" + bytes(60)  # not of version 6; and extension headers of which nothing is there
    cut = b"\x60" + bytes(5) + b"\x00\x40" + bytes(32) + b"\x2c\x00"
    frames: list[Packet] = [
        Ether() / IP(src="10.244.0.9", dst="10.244.0.2", proto=0),
        Ether(type=0x86DD) / odd,
        Ether(type=0x86DD) / cut,
        Ether() / IP(src="10.244.0.9", dst="10.244.0.2") / UDP(sport=1, dport=53),
    ]
    wrpcap(str(tmp_path / "odd.pcap"), [Ether(bytes(frame)) for frame in frames])
    done = kproxy("trace", *SOURCE, "--pcap", "odd.pcap", "-o", "json")
    assert done.returncode == 0, done.stderr
    assert [answer["source"] for answer in lines_of(done.stdout)] == ["odd.pcap: packet 4"]
    assert "skipped odd.pcap: packet 1: proto: a number from 1 to 255 expected, not 0" in done.stderr
    assert "skipped 2 packets that are no IP packets, or are cut short" in done.stderr

    wrpcap(str(tmp_path / "odd.pcap"), frames[:1])
    done = kproxy("trace", *SOURCE, "--pcap", "odd.pcap")
    assert (done.returncode, done.stdout) == (2, "")
    assert "packet 1: proto: a number from 1 to 255 expected, not 0" in done.stderr
