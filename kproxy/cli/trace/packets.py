"""Many packets: JSON lines, each a packet by the fields of `kproxy.dataplane.query.spec`, or a record of an earlier
trace; or a capture, pcap or pcapng, read with scapy, which is imported only here.

Each IP packet of a capture is a question of its own, in its order. A capture does not say what conntrack knew, so the
packet itself has to: a TCP packet that is not a bare SYN belongs to an ESTABLISHED connection, and so does one whose
answer has been seen before; an ICMP error is RELATED; all others are NEW. How an established connection is translated
is not in the capture either, and is taken to be not at all.
"""

from __future__ import annotations

import importlib
import logging
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, Final, NamedTuple

import msgspec

from kproxy.cli.output import report_note
from kproxy.cluster.inputs import named_file, read_text, text_label
from kproxy.dataplane import DataplaneError
from kproxy.dataplane.model.packet import ICMP, ICMPV6, SYN, TCP, parse_endpoint
from kproxy.dataplane.query.spec import PacketError, Question, read_question
from kproxy.errors import InputError, Location
from kproxy.extras import missing_extra
from kproxy.words import counted

_ACK_SYN_RST_FIN: Final = 0x17
_EXTENSIONS: Final = 8
_TRANSPORTS: Final = {6: "TCP", 17: "UDP", 132: "SCTP"}
_ECHO_REPLY: Final = {ICMP: 0, ICMPV6: 129}

Resolve = Callable[[Mapping[str, object]], Mapping[str, object]]


class Asked(NamedTuple):
    """A question and where it was read: empty for one from options."""

    question: Question
    source: str = ""


def read_packets(path: str, resolve: Resolve) -> list[Asked]:
    """Reads JSON lines; blank ones are skipped.

    Raises:
        InputError: every line that cannot be used, with file, line, field and what was expected; or there is no packet.
    """
    label = text_label(path)
    found: list[Asked] = []
    problems: list[str] = []
    for number, line in _lines(path):
        where = Location(label, line=number)
        try:
            found.append(Asked(read_question(resolve(_fields(line))), str(where)))
        except (DataplaneError, ValueError) as error:
            shown = line if len(line) <= 200 else f"{line[:200]}..."
            problems.append(f"{where}: {error}: {shown}")
    if problems:
        raise InputError("\n".join(problems))
    if not found:
        raise InputError(f"{label}: no packets")
    return found


def _lines(path: str) -> Iterator[tuple[int, str]]:
    for number, line in enumerate(read_text(path).removeprefix("\ufeff").split("\n"), 1):
        if line.strip():
            yield number, line.strip()


def _fields(line: str) -> Mapping[str, object]:
    try:
        value = msgspec.json.decode(line)
    except msgspec.DecodeError as error:
        raise ValueError(f"a JSON object expected ({error})") from error
    if isinstance(value, dict) and isinstance(value.get("packet"), dict):
        value = value["packet"]
    if not isinstance(value, dict):
        raise ValueError("a JSON object expected")
    return value


def read_capture(path: str, common: Mapping[str, object]) -> list[Asked]:
    """Reads the IP packets of a capture, but for those that end before their ports, and those of which nothing can be
    asked, as of protocol 0; `common` are fields that hold for all of them, such as `in` and `ctstate`.

    Raises:
        InputError: it cannot be read, or holds no IP packet that can be asked for.
    """
    found: list[Asked] = []
    refused: list[str] = []
    others = 0
    seen: set[tuple[object, ...]] = set()
    for number, frame in enumerate(_frames(named_file(path)), 1):
        fields = _frame_fields(frame)
        if fields is None:
            others += 1
            continue
        try:
            question = read_question({**fields, **common})
        except PacketError as error:
            refused.append(f"{path}: packet {number}: {error}")
            continue
        if "ctstate" not in common:
            question = _with_state(question, seen)
        found.append(Asked(question, f"{path}: packet {number}"))
    if not found:
        raise InputError(refused[0] if refused else f"{path}: no IP packets")
    if refused:
        more = f" (and {counted(len(refused) - 1, 'other packet')})" if len(refused) > 1 else ""
        report_note(f"skipped {refused[0]}{more}")
    if others:
        report_note(f"{path}: skipped {others} packets that are no IP packets, or are cut short")
    return found


def _frames(path: Path) -> Iterator[Any]:
    try:
        # scapy warns of missing routes while it is imported.
        logging.getLogger("scapy.runtime").setLevel(logging.ERROR)
        for module in ("l2", "inet", "inet6", "sctp"):
            importlib.import_module(f"scapy.layers.{module}")
        scapy_utils = importlib.import_module("scapy.utils")
        scapy_error = importlib.import_module("scapy.error").Scapy_Exception
    except ImportError as error:
        raise missing_extra(error, "--pcap") or InputError(f"--pcap: scapy cannot be imported: {error}") from error
    try:
        with scapy_utils.PcapReader(str(path)) as reader:
            yield from reader
    except OSError as error:
        raise InputError(f"{path}: {error.strerror or error}") from error
    except (scapy_error, EOFError, ValueError) as error:
        raise InputError(f"{path}: not a capture: {str(error) or 'unexpected end of file'}") from error


def _frame_fields(frame: Any) -> dict[str, object] | None:
    layer = frame.getlayer("IP") or frame.getlayer("IPv6")
    six = layer is not None and layer.name == "IPv6"
    if layer is None or layer.version != (6 if six else 4):
        return None
    above = _ipv6_protocol(layer) if six else (int(layer.proto), int(layer.frag))
    if above is None:
        return None
    protocol, offset = above
    fields: dict[str, object] = {"proto": protocol}
    fields["ttl"] = int(layer.hlim if six else layer.ttl)
    fields["tos"] = int(layer.tc if six else layer.tos)
    fields["length"] = min(int(layer.plen) + 40 if six else int(layer.len or len(layer)), 0xFFFF)
    src, dst = parse_endpoint(str(layer.src)), parse_endpoint(str(layer.dst))
    if offset:
        return {**fields, "src": src, "dst": dst, "fragment": True}
    if protocol in _TRANSPORTS:  # not any such layer: a tunnel's packet holds those of the packet inside
        transport = frame.getlayer(_TRANSPORTS[protocol])
        if transport is None:
            return None
        src, dst = src._replace(port=int(transport.sport)), dst._replace(port=int(transport.dport))
        if transport.name == "TCP":
            names = str(transport.flags)
            letters = {"F": "FIN", "S": "SYN", "R": "RST", "P": "PSH", "A": "ACK", "U": "URG", "E": "ECE", "C": "CWR"}
            fields["tcpFlags"] = ",".join(letters[flag] for flag in names if flag in letters) or "NONE"
    elif protocol in (ICMP, ICMPV6):
        payload = bytes(layer.payload)
        icmp = bytes(frame.getlayer("ICMP")) if frame.haslayer("ICMP") else payload
        if len(icmp) >= 2:
            fields["icmpType"], fields["icmpCode"] = icmp[0], icmp[1]
    return {**fields, "src": src, "dst": dst}


def _ipv6_protocol(layer: Any) -> tuple[int, int] | None:
    """The protocol behind the extension headers, and the fragment's offset; None if the packet ends before them."""
    number, offset, header = int(layer.nh), 0, layer.payload
    for _ in range(_EXTENSIONS):
        if number not in (0, 43, 44, 60):
            break
        if not hasattr(header, "nh"):  # scapy made no header of what there is
            return None
        if number == 44:
            offset = int(header.offset)
        number, header = int(header.nh), header.payload
    return number, offset


def _with_state(question: Question, seen: set[tuple[object, ...]]) -> Question:
    packet = question.packet
    way = (packet.protocol, packet.src, packet.sport, packet.dst, packet.dport)
    back = (packet.protocol, packet.dst, packet.dport, packet.src, packet.sport)
    seen.add(way)
    if packet.is_icmp_error:
        state = "RELATED"
    elif packet.protocol == TCP and packet.tcp_flags is not None:
        state = "NEW" if packet.tcp_flags & _ACK_SYN_RST_FIN == SYN else "ESTABLISHED"
    elif packet.protocol in _ECHO_REPLY:
        state = "ESTABLISHED" if packet.icmp_type == _ECHO_REPLY[packet.protocol] else "NEW"
    else:
        state = "ESTABLISHED" if back in seen and back != way else "NEW"
    return Question(packet, question.connection.replace(state=state), question.recent, question.name)
